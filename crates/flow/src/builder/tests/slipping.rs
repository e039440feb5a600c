//! A source that slips: the watch over synchrony, fed by the builder.

use super::hand::{Hand, config, fragment};
use crate::builder::BuilderConfig;
use crate::builder::synchrony::{Action, Config, SourceConfig, Verdict};
use crate::messages::{FragmentFlags, Message, SynchronyState};
use ropewalk_terms::{Cause, SourceId};

const SLIP: u64 = 300;
const EVENTS: u64 = 1000;

/// The crossing of a trigger: without a pattern over a few hundred events.
fn crossing(trigger: u64) -> u16 {
    (trigger.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16 % 3564
}

struct Slipped {
    hand: Hand,
    told: Vec<SynchronyState>,
    stop: Vec<Cause>,
    flagged: Vec<(u64, u32)>,
}

/// Two sources; from event `SLIP` on source 1 delivers the data of the next trigger.
fn slip(action: Action) -> Slipped {
    let synchrony = Config { action, ..Config::new([SourceConfig::new(SourceId(0)), SourceConfig::new(SourceId(1))]) };
    let settings = BuilderConfig { synchrony: Some(synchrony), check_bunch_crossing: false, ..config(1) };
    let mut slipped = Slipped { hand: Hand::new(settings), told: vec![], stop: vec![], flagged: vec![] };
    for number in 1..=EVENTS {
        let hand = &mut slipped.hand;
        hand.assign([number], 1);
        let request = hand.done().requests[0].1[0];
        let mut fragments = vec![fragment(number, 0), fragment(number, 1)];
        fragments[0].meta.bunch_crossing = crossing(number);
        fragments[1].meta.bunch_crossing = crossing(if number < SLIP { number } else { number + 1 });
        hand.answer_with(0, request, &mut fragments, None);
        let done = hand.done();
        for fragment in hand.builder.event(done.emitted[0]).fragments() {
            if fragment.meta.flags.contains(FragmentFlags::DISPLACED) {
                slipped.flagged.push((number, fragment.meta.source.0));
            }
        }
        hand.written(done.emitted[0]);
        slipped.stop.extend(done.stop);
        slipped.told.extend(done.other.iter().map(|message| match message {
            Message::Synchrony(state) => *state,
            other => panic!("{other:?}"),
        }));
    }
    slipped
}

#[test]
fn a_source_that_slipped_is_told_and_its_fragments_are_flagged() {
    let slipped = slip(Action::Flag);
    let displaced = slipped.told.iter().find(|state| state.verdict == 2).expect("the slip is told");
    assert_eq!((displaced.source, displaced.offset), (SourceId(1), 1));
    assert!(displaced.since.number().abs_diff(SLIP) <= 2, "{displaced:?}");
    let (first, _) = slipped.flagged[0];
    assert!((SLIP..SLIP + 200).contains(&first), "found at {first}");
    assert!(slipped.flagged.iter().all(|&(_, source)| source == 1));
    assert_eq!(slipped.flagged.len() as u64, EVENTS + 1 - first);
    assert!(slipped.stop.is_empty());
    assert_eq!(slipped.hand.builder.paused(), None);
    let mut statuses = slipped.hand.builder.synchrony().expect("it is watched").statuses();
    assert!(statuses.any(|status| status.verdict == Verdict::Offset(1)));
    assert_eq!(slipped.hand.builder.account().built, EVENTS);
}

#[test]
fn it_stops_the_run_where_that_is_asked_for() {
    assert_eq!(slip(Action::Stop).stop, [Cause::SynchronyOffset]);
}

#[test]
fn it_withholds_credit_where_a_pause_is_asked_for_until_it_is_resumed() {
    let mut hand = slip(Action::Pause).hand;
    assert_eq!(hand.builder.paused(), Some(Cause::SynchronyOffset));
    assert!(hand.done().credits.is_empty());
    hand.builder.resume();
    let credit = hand.done().credits[0];
    assert_eq!(credit.events, EVENTS + 4);
}

#[test]
fn a_new_run_forgets_the_slip() {
    let mut hand = slip(Action::Pause).hand;
    hand.say(&Message::Start(crate::messages::Start::of_run(super::hand::key(1))));
    assert_eq!(hand.builder.paused(), None);
    assert!(!hand.builder.synchrony().expect("it is watched").any_displaced());
}
