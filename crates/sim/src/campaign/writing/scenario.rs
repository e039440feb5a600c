//! What a seed is: files and lumisections, what the disk does, and when the process dies.

use super::super::draw::Draw;
use ropewalk_io::disk::DiskFaults;
use std::collections::BTreeSet;
use std::time::Duration;

/// The files of events of one builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Events are acknowledged when they are handed over, and may be lost with the process from then on.
    pub is_handed: bool,
    /// A file is closed after so many events.
    pub file_events: u32,
    /// Or at this size.
    pub file_bytes: u64,
    /// Or after this time.
    pub file_time: Duration,
    /// A lumisection has so many events.
    pub lumisection_events: u64,
    /// Blocks for what is staged.
    pub blocks: usize,
    /// What the disk does, until the end comes.
    pub faults: DiskFaults,
    /// How often events are offered.
    pub steps: u64,
    /// Behind which steps the process dies; also when no more events are offered.
    pub deaths: BTreeSet<u64>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0xf17e);
        let steps = draw.between(20, 150);
        let deaths = (0..draw.below(5)).map(|_| draw.below(steps + 40)).collect();
        let rate = |draw: &mut Draw| if draw.one_in(2) { draw.below(30) as f64 / 100.0 } else { 0.0 };
        let least_latency = draw.time(Duration::from_micros(10), Duration::from_millis(2));
        let faults = DiskFaults {
            least_latency,
            most_latency: least_latency + draw.time(Duration::from_micros(10), Duration::from_millis(2)),
            bandwidth: draw.one_in(3).then_some(1 << 20),
            write_error: rate(&mut draw),
            name_error: rate(&mut draw),
            torn_append: rate(&mut draw) * 3.0,
            ..DiskFaults::default()
        };
        Self {
            seed,
            is_handed: draw.one_in(3),
            file_events: draw.between(1, 12) as u32,
            file_bytes: draw.of(&[200, 1000, 1 << 20]),
            file_time: draw.time(Duration::from_millis(1), Duration::from_millis(50)),
            lumisection_events: draw.between(1, 60),
            blocks: draw.between(8, 32) as usize,
            faults,
            steps,
            deaths,
        }
    }
}
