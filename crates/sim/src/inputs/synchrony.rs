//! The watch over synchrony, told anything.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::builder::synchrony::{Config, Observation, SourceConfig, Synchrony};
use ropewalk_terms::{EventKey, SourceId};

const SOURCES: u32 = 3;

/// Feeds the watch with observations: mostly one event after the other, with keys that agree or do not.
///
/// # Panics
/// Where the machine does, or where it tells of changes for ever.
pub fn synchrony(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut config = Config::new((1..=SOURCES).map(|id| SourceConfig {
        time_bits: 1 + choices.below(64) as u8,
        time_tolerance: choices.below(16) as u32,
        ..SourceConfig::new(SourceId(id))
    }));
    config.window = 64;
    config.reference = choices.chance().then_some(SourceId(1));
    let mut synchrony = Synchrony::new(config).expect("made to be right");
    let mut number = 0;
    while !choices.is_over() {
        number += choices.below(2) + 1;
        let key = if choices.below(32) == 0 { choices.key() } else { EventKey::new(0, number) };
        // One choice for the event and one for each source keeps inputs short.
        let event = choices.wide();
        let row: [Observation; SOURCES as usize] = std::array::from_fn(|_| observation(&mut choices, event));
        synchrony.observe(key, &row);
        if choices.below(64) == 0 {
            synchrony.conclude();
        }
        let changes = (0..MOST_ACTIONS).map_while(|_| synchrony.poll()).count();
        assert!(changes < MOST_ACTIONS, "the watch does not come to rest");
        assert_eq!(synchrony.statuses().count(), SOURCES as usize);
        let _ = (synchrony.reference(), synchrony.suspicion_of_reference(), synchrony.cause(0));
    }
}

fn observation(choices: &mut Choices<'_>, event: u64) -> Observation {
    let kind = choices.below(256);
    let own = if kind >= 240 { choices.wide() } else { event };
    let mut observation = Observation::MISSING;
    if kind & 1 == 1 {
        observation = observation.with_bunch_crossing(own as u16);
    }
    if kind & 2 == 2 {
        observation = observation.with_trigger_tag(own as u32);
    }
    if kind & 4 == 4 {
        observation = observation.with_time(own);
    }
    observation
}
