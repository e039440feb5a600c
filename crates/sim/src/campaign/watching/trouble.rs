//! What may limit a run, and how it shows in what nodes and sources tell.

use super::super::draw::Draw;
use ropewalk_monitor::bottleneck::Limit;

/// What limits a run: one thing, of one node or source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Trouble {
    pub(super) limit: Limit,
    /// Which readout unit, builder unit or source.
    pub(super) place: usize,
}

/// What is drawn.
const LIMITS: [Limit; 13] = [
    Limit::DiskFailing,
    Limit::DiskFull,
    Limit::NodeMissing,
    Limit::DatagramsLost,
    Limit::SourceSilent,
    Limit::Disk,
    Limit::Filter,
    Limit::Link,
    Limit::Builder,
    Limit::BuilderSmall,
    Limit::PoolFull,
    Limit::Readout,
    Limit::SourceSlow,
];

impl Trouble {
    /// One of a system with so many readout units, builder units and sources.
    pub(super) fn draw(draw: &mut Draw, [readouts, builders, sources]: [usize; 3]) -> Self {
        let limit = draw.of(&LIMITS);
        let places = match limit {
            Limit::Link | Limit::PoolFull | Limit::Readout => readouts,
            Limit::DatagramsLost | Limit::SourceSilent | Limit::SourceSlow => sources,
            _ => builders,
        };
        Self { limit, place: draw.below(places as u64) as usize }
    }

    /// Whose it is, as the finder calls it.
    pub(super) fn subject(self) -> String {
        match self.limit {
            Limit::Link | Limit::PoolFull | Limit::Readout => format!("ru{}", self.place),
            Limit::DatagramsLost | Limit::SourceSilent | Limit::SourceSlow => format!("source {}", self.place + 1),
            _ => format!("bu{}", self.place),
        }
    }

    /// Builder units have no room: whatever they wait for is behind them.
    pub(super) const fn fills_builders(self) -> bool {
        matches!(self.limit, Limit::Disk | Limit::Filter | Limit::Builder | Limit::BuilderSmall)
    }

    /// Every source is held back.
    pub(super) const fn holds_all_back(self) -> bool {
        self.fills_builders() || matches!(self.limit, Limit::Link | Limit::PoolFull)
    }

    /// Sources are held back that wait for this one.
    pub(super) const fn waits_for(self, source: usize) -> bool {
        matches!(self.limit, Limit::SourceSlow | Limit::SourceSilent) && self.place != source
    }

    pub(super) const fn is_of(self, limit: Limit, place: usize) -> bool {
        self.place == place && self.limit as u8 == limit as u8
    }
}

/// A share of the time, in thousandths, between two.
pub(super) fn share(draw: &mut Draw, least: u64, most: u64) -> f64 {
    draw.between(least, most) as f64 / 1000.0
}
