//! What a seed is: files and their events, units, and how often things go wrong.

use super::super::draw::Draw;
use ropewalk_flow::files::{BrokerConfig, FileId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The files of a run, and who filters them.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Events by the file that they are in, in the order in which files are written.
    pub files: BTreeMap<FileId, Vec<u64>>,
    /// How many filter units there are.
    pub units: u32,
    /// How patient the broker is.
    pub broker: BrokerConfig,
    /// A unit dies in one of so many steps; 0: never.
    pub deaths: u64,
    /// A unit hangs in one of so many steps, for a while or for ever; 0: never.
    pub hangs: u64,
    /// The broker hears of a unit's word in one of so many steps.
    pub delay: u64,
    /// The broker dies in one of so many steps; 0: never.
    pub broker_deaths: u64,
    /// A document cannot get its name in one of so many cases; 0: never.
    pub refusals: u64,
    /// So long all that may go wrong; then nothing does any more.
    pub steps: u64,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0xf11e);
        let (mut files, mut number) = (BTreeMap::new(), 0);
        for lumisection in 1..=draw.between(1, 4) as u32 {
            for _ in 0..draw.below(6) {
                let events = draw.below(6);
                let file = FileId { lumisection, index: files.len() as u32 };
                files.insert(file, (number..number + events).collect());
                number += events;
            }
        }
        let rarely = |draw: &mut Draw, least| if draw.one_in(3) { 0 } else { draw.between(least, 20 * least) };
        let broker = BrokerConfig {
            time_out: draw.time(Duration::from_millis(3), Duration::from_millis(100)),
            tries: draw.between(1, 4) as u16,
            retry: draw.time(Duration::from_micros(100), Duration::from_millis(5)),
        };
        Self {
            seed,
            files,
            units: draw.between(1, 4) as u32,
            broker,
            deaths: rarely(&mut draw, 10),
            hangs: rarely(&mut draw, 20),
            delay: draw.between(2, 8),
            broker_deaths: rarely(&mut draw, 30),
            refusals: if draw.one_in(2) { 0 } else { draw.between(2, 6) },
            steps: draw.between(50, 500),
        }
    }
}
