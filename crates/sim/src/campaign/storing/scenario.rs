//! What a seed is: streams, segments, what the disk does, and when process and power go.

use super::super::draw::Draw;
use ropewalk_io::disk::DiskFaults;
use ropewalk_terms::AcknowledgementLevel;
use std::collections::BTreeMap;
use std::time::Duration;

/// What happens between two steps.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Accident {
    /// The process dies, and another one goes on with the run.
    Death,
    /// The power is cut, and with it the process dies. Only where an acknowledgement promises that what it is for is synced.
    PowerCut,
}

/// The run files of one builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// How many streams there are; one has no name.
    pub streams: u8,
    /// What an acknowledgement promises.
    pub level: AcknowledgementLevel,
    /// A segment is closed at this size in bytes.
    pub segment_bytes: u64,
    /// So much of a segment is worth a further piece of work for the disk, in bytes.
    pub batch_bytes: u64,
    /// Or after so many events.
    pub segment_events: u64,
    /// Blocks for what is staged.
    pub blocks: usize,
    /// What the disk does, until the end comes.
    pub faults: DiskFaults,
    /// How often events are offered.
    pub steps: u64,
    /// What happens behind which step.
    pub accidents: BTreeMap<u64, Accident>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x570e);
        let level = draw.of(&[AcknowledgementLevel::Written, AcknowledgementLevel::Synced]);
        let kinds: &[Accident] = match level {
            AcknowledgementLevel::Synced => &[Accident::Death, Accident::PowerCut],
            _ => &[Accident::Death],
        };
        let steps = draw.between(20, 200);
        let accidents = (0..draw.below(4)).map(|_| (draw.below(steps), draw.of(kinds))).collect();
        let rate = |draw: &mut Draw| if draw.one_in(2) { draw.below(30) as f64 / 100.0 } else { 0.0 };
        let least_latency = draw.time(Duration::from_micros(10), Duration::from_millis(5));
        let faults = DiskFaults {
            least_latency,
            most_latency: least_latency + draw.time(Duration::from_micros(10), Duration::from_millis(5)),
            bandwidth: draw.one_in(3).then_some(1 << 20),
            write_error: rate(&mut draw),
            sync_error: rate(&mut draw),
            name_error: rate(&mut draw),
            torn_append: rate(&mut draw) * 3.0,
            ..DiskFaults::default()
        };
        Self {
            seed,
            streams: draw.between(1, 4) as u8,
            level,
            segment_bytes: draw.of(&[4 << 10, 16 << 10, u64::MAX]),
            segment_events: draw.between(5, 60),
            blocks: draw.between(16, 64) as usize,
            faults,
            steps,
            accidents,
            // Drawn last, so that everything else of a seed is what it was before.
            batch_bytes: draw.of(&[1, 2 << 10, 1 << 20]),
        }
    }
}
