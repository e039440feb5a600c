//! What one look at a run sees.

use crate::Distribution;
use core::time::Duration;
use ropewalk_terms::{
    ByCause, Counter, EventAccount, FragmentAccount, Incarnation, Instant, Measure, NodeId, RunNumber, SourceId,
    StreamAccount, StreamIndex, Utc,
};

use std::collections::BTreeMap;

/// Some counters with their values, ordered by counter; what is not there is zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers(Vec<(Counter, u64)>);

impl Numbers {
    /// Adds to a counter.
    pub fn add(&mut self, counter: Counter, value: u64) {
        // Nodes tell their counters in order.
        if self.0.last().is_none_or(|&(last, _)| last < counter) {
            return self.0.push((counter, value));
        }
        match self.0.binary_search_by_key(&counter, |&(known, _)| known) {
            Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(value),
            Err(place) => self.0.insert(place, (counter, value)),
        }
    }

    /// The value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.known(counter).unwrap_or(0)
    }

    /// The value of a counter; none where nobody told it.
    pub fn known(&self, counter: Counter) -> Option<u64> {
        self.0.binary_search_by_key(&counter, |&(known, _)| known).ok().map(|place| self.0[place].1)
    }

    /// What came to a counter since it was `before`. A total that has fallen began anew: then all of it came since.
    pub fn increase(&self, before: &Self, counter: Counter) -> u64 {
        let (now, before) = (self.get(counter), before.get(counter));
        if now < before { now } else { now - before }
    }
}

impl FromIterator<(Counter, u64)> for Numbers {
    fn from_iter<T: IntoIterator<Item = (Counter, u64)>>(numbers: T) -> Self {
        let mut all = Self::default();
        numbers.into_iter().for_each(|(counter, value)| all.add(counter, value));
        all
    }
}

/// A node as the event manager knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// It is connected to the event manager.
    pub is_connected: bool,
    /// Its youngest life; none before the first.
    pub incarnation: Option<Incarnation>,
    /// What it counts as a whole. Totals are sums over all its lives; levels are those of a life that goes on.
    pub numbers: Numbers,
    /// What was measured of its events, over all its lives; a measure of which it has told nothing is not there.
    pub distributions: BTreeMap<Measure, Distribution>,
}

/// A source as its readout unit tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSample {
    /// The source.
    pub source: SourceId,
    /// The readout unit that receives it.
    pub readout: NodeId,
    /// Where its fragments went.
    pub account: FragmentAccount,
    /// Datagrams of it that were lost before they could be taken.
    pub lost_datagrams: ByCause,
    /// The first bytes of the first fragment of it whose checksum was wrong; empty where there was none.
    pub corrupt: Vec<u8>,
    /// What is counted of it.
    pub numbers: Numbers,
    /// Its histograms by their places in the configuration, each by cell (`terms::Binning`), those without anything left out.
    pub histograms: BTreeMap<u8, BTreeMap<u16, u64>>,
}

impl SourceSample {
    /// Nothing more is expected of it: it has ended in order, or is masked.
    pub fn has_ended(&self) -> bool {
        self.numbers.get(Counter::SourcesEnded) > 0 || self.numbers.get(Counter::SourceMasked) > 0
    }

    /// A connection of it is open now. Always false for sources that send datagrams.
    pub fn is_connected(&self) -> bool {
        self.numbers.get(Counter::SourceConnections) > self.numbers.get(Counter::SourceDisconnections)
    }
}

/// A stream of run files.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamSample {
    /// Which of the configured streams.
    pub stream: StreamIndex,
    /// Where its events went.
    pub account: StreamAccount,
}

/// The disk that is full first, of those that builder units of this process write to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DiskSample {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// When it is full at the rate of late; none where it is not being filled.
    pub full_in: Option<Duration>,
}

/// The phase of a run that has begun and is paused: nothing is built then, and nobody is to blame.
pub const PAUSED: &str = "paused";

/// How far a run can be, by the stable names.
pub const PHASES: [&str; 6] = ["initial", "configured", "running", PAUSED, "draining", "ended"];

/// What one look at a run sees. Nodes report a few times a second and not at the same moment, so that numbers of different
/// nodes may be apart by that much.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// When it was taken, for differences.
    pub time: Instant,
    /// When it was taken, for people.
    pub utc: Utc,
    /// The run; 0 before the first.
    pub run: RunNumber,
    /// How far the run is, by its stable name: `running`.
    pub phase: &'static str,
    /// Configured nodes, ordered.
    pub nodes: Vec<NodeSample>,
    /// Sources that were heard of, ordered.
    pub sources: Vec<SourceSample>,
    /// Streams that were heard of, ordered.
    pub streams: Vec<StreamSample>,
    /// The event manager's account of events.
    pub events: EventAccount,
    /// Datagrams that were lost before they could be taken, where several sources send to one port.
    pub lost_datagrams: ByCause,
    /// The disk that is full first; none where no builder unit of this process writes to one.
    pub disk: Option<DiskSample>,
}

impl Sample {
    /// A node.
    pub fn node(&self, node: NodeId) -> Option<&NodeSample> {
        self.nodes.iter().find(|known| known.node == node)
    }

    /// A source.
    pub fn source(&self, source: SourceId) -> Option<&SourceSample> {
        self.sources.binary_search_by_key(&source, |known| known.source).ok().map(|place| &self.sources[place])
    }

    /// What was measured of the events of all nodes.
    pub fn distribution(&self, measure: Measure) -> Distribution {
        let mut all = Distribution::default();
        self.nodes.iter().filter_map(|node| node.distributions.get(&measure)).for_each(|one| all.merge(one));
        all
    }

    /// The sum of a counter over nodes and sources. Each is counted by one of the two.
    pub fn total(&self, counter: Counter) -> u64 {
        let nodes = self.nodes.iter().map(|node| node.numbers.get(counter));
        nodes.chain(self.sources.iter().map(|source| source.numbers.get(counter))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_add_up_and_what_was_not_told_is_not_known() {
        let numbers: Numbers =
            [(Counter::PoolHeld, 2), (Counter::EventsBuilt, 5), (Counter::PoolHeld, 1)].into_iter().collect();
        assert_eq!((numbers.get(Counter::PoolHeld), numbers.known(Counter::EventsBuilt)), (3, Some(5)));
        assert_eq!((numbers.get(Counter::PoolLoans), numbers.known(Counter::PoolLoans)), (0, None));
    }

    #[test]
    fn a_total_that_fell_began_anew() {
        let of = |value| Numbers::from_iter([(Counter::EventsBuilt, value)]);
        assert_eq!(of(12).increase(&of(10), Counter::EventsBuilt), 2);
        assert_eq!(of(3).increase(&of(10), Counter::EventsBuilt), 3);
    }

    #[test]
    fn a_source_is_connected_while_more_connections_began_than_ended() {
        let mut source = SourceSample {
            source: SourceId(1),
            readout: NodeId::readout(0),
            account: FragmentAccount::default(),
            lost_datagrams: ByCause::default(),
            corrupt: Vec::new(),
            numbers: Numbers::default(),
            histograms: BTreeMap::new(),
        };
        assert!(!source.is_connected());
        source.numbers.add(Counter::SourceConnections, 2);
        source.numbers.add(Counter::SourceDisconnections, 1);
        assert!(source.is_connected());
        source.numbers.add(Counter::SourceDisconnections, 1);
        assert!(!source.is_connected());
    }
}
