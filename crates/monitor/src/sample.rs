//! What one look at a run sees and how the values of a measure are distributed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::numbering::{Numbered, SourceNumbering};
use crate::synchrony::Relation;
use ropewalk_terms::{
    ByCause, Counter, EventAccount, FragmentAccount, Incarnation, Instant, Measure, NodeId, RunNumber, SourceId,
    StreamAccount, StreamIndex, Utc, bucket_of, counted, greatest_in,
};

/// Some counters with their values, ordered by counter; what is not there is zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers(Vec<(Counter, u64)>);

impl Numbers {
    /// Adds to a counter.
    pub fn add(&mut self, counter: Counter, value: u64) {
        // Nodes report their counters in order.
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

    /// The value of a counter; `None` if it was not reported.
    pub fn known(&self, counter: Counter) -> Option<u64> {
        self.0.binary_search_by_key(&counter, |&(known, _)| known).ok().map(|place| self.0[place].1)
    }

    /// The increase of a counter since `before`. A total that has fallen was reset: then it is the whole total.
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

/// A node, as reported by the event manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// It is connected to the event manager.
    pub is_connected: bool,
    /// When it reported last, by the clock of the program that received it; `None` if unknown.
    pub reported: Option<Instant>,
    /// Its youngest life; `None` before the first.
    pub incarnation: Option<Incarnation>,
    /// What it counts as a whole. Totals are sums over all its lives; levels are those of the present life.
    pub numbers: Numbers,
    /// What was measured of its events, over all its lives; an unreported measure is left out.
    pub distributions: BTreeMap<Measure, Distribution>,
}

/// A source as its readout unit reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSample {
    /// The source.
    pub source: SourceId,
    /// The readout unit that receives it.
    pub readout: NodeId,
    /// The outcomes of its fragments.
    pub account: FragmentAccount,
    /// Datagrams of it that were lost before they could be taken.
    pub lost_datagrams: ByCause,
    /// The first bytes of the first fragment of it whose checksum was wrong; empty if there was none.
    pub corrupt: Vec<u8>,
    /// What is counted of it.
    pub numbers: Numbers,
    /// Its fragments in doubt, by the name of the flag (`crc_errors`); flags without a fragment are left out.
    pub doubts: Vec<(&'static str, u64)>,
    /// It sends datagrams, so that it never has a connection.
    pub sends_datagrams: bool,
    /// What is known of its numbers.
    pub numbering: SourceNumbering,
    /// Its histograms by their places in the configuration, each by cell (`terms::Binning`), those without anything
    /// left out.
    pub histograms: BTreeMap<u8, BTreeMap<u16, u64>>,
}

impl SourceSample {
    /// Nothing more is expected of it: it has ended in order, or is masked.
    pub fn has_ended(&self) -> bool {
        self.numbers.get(Counter::SourcesEnded) > 0 || self.numbers.get(Counter::SourceMasked) > 0
    }

    /// Grows with anything that it sends: fragments, and bytes in which no frame is found.
    pub fn came(&self) -> u64 {
        self.account.received + self.numbers.get(Counter::GarbageBytes)
    }

    /// Whether events are built without it, by a command.
    pub fn is_masked(&self) -> bool {
        self.numbers.get(Counter::SourceMasked) == 1
    }

    /// It was unmasked, and none of its fragments has gone on with the numbers of the run yet.
    pub fn is_asked_back(&self) -> bool {
        self.numbers.get(Counter::SourceMasked) == 2
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
    /// The outcomes of its events.
    pub account: StreamAccount,
}

/// The disk that is full first, among the disks that builder units of this process write to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DiskSample {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// When it is full at the recent rate; `None` if it is not being filled.
    pub full_in: Option<Duration>,
}

/// What takes the time of the disk that a node writes to: of several disks the busiest one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskLoad {
    /// In words, such as `discards take 45 % of the time of disk sda`.
    pub sentence: String,
    /// The part of the time in which it has something to do, in thousandths.
    pub busy_thousandths: u16,
    /// The part that discards take, in thousandths.
    pub discards_thousandths: u16,
    /// The share of time that flushes of its cache take, in thousandths.
    pub flushes_thousandths: u16,
}

/// The phase of a run that has begun and is paused: nothing is built then, which is no fault.
pub const PAUSED: &str = "paused";

/// The stable names of the phases of a run.
pub const PHASES: [&str; 6] = ["initial", "configured", "running", PAUSED, "draining", "ended"];

/// The state of a run at one moment. Nodes report a few times a second and at different moments, so that numbers of
/// different nodes may differ by as much.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// When it was taken, for differences.
    pub time: Instant,
    /// When it was taken, by civil time.
    pub utc: Utc,
    /// The run; 0 before the first.
    pub run: RunNumber,
    /// The stable name of the run's phase: `running`.
    pub phase: &'static str,
    /// Configured nodes, ordered.
    pub nodes: Vec<NodeSample>,
    /// When the event manager worked last; `None` without an event manager.
    pub manager_turned: Option<Instant>,
    /// The interval of the nodes' reports; 0 if unknown.
    pub report_interval: Duration,
    /// Known sources, ordered.
    pub sources: Vec<SourceSample>,
    /// Known streams, ordered.
    pub streams: Vec<StreamSample>,
    /// The event manager's account of events.
    pub events: EventAccount,
    /// The offset of each source from the reference source, which has offset 0, if known; ordered by source.
    pub synchrony: Vec<(SourceId, Relation)>,
    /// Sources that match the reference source at no offset, and never did; ordered.
    pub unrelated: Vec<SourceId>,
    /// Configured names of sources.
    pub names: Arc<BTreeMap<SourceId, String>>,
    /// Configured names of nodes, as far as they differ from the ids.
    pub node_names: Arc<BTreeMap<NodeId, String>>,
    /// Sources that events do not need to be complete.
    pub optional: Arc<BTreeSet<SourceId>>,
    /// Directories to which nodes of this process write.
    pub outputs: Arc<BTreeMap<NodeId, String>>,
    /// What takes the time of the disks of these.
    pub disk_loads: Arc<BTreeMap<NodeId, DiskLoad>>,
    /// Sources in which a slip by one event stays unseen, in a sentence; `None` if all are checked.
    pub unchecked_step: Option<Arc<str>>,
    /// Datagrams that were lost before they could be taken, where several sources send to one port.
    pub lost_datagrams: ByCause,
    /// The disk that is full first; `None` if no builder unit of this process writes to one.
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

    /// Whether an open connection of the source has sent nothing yet: its readout unit has as many of these as sources
    /// of it lack one.
    pub fn may_be_connected(&self, source: &SourceSample) -> bool {
        let lacks_one = |one: &&SourceSample| {
            let is_there = one.sends_datagrams || one.numbers.get(Counter::SourceConnections) > 0 || one.has_ended();
            one.readout == source.readout && !is_there
        };
        let idle = self.node(source.readout).map_or(0, |node| node.numbers.get(Counter::ConnectionsIdle));
        idle > 0 && lacks_one(&source) && idle >= self.sources.iter().filter(lacks_one).count() as u64
    }

    /// Sources in which a slip by one event stays unseen, in a sentence: they lack what is compared, or it never
    /// matched.
    pub fn step_not_checked(&self) -> Option<String> {
        let configured = self.unchecked_step.as_deref().map(str::to_owned);
        if self.unrelated.is_empty() {
            return configured;
        }
        let names: Vec<_> = self.unrelated.iter().map(|source| self.name_of(*source)).collect();
        let (named, more) = names.split_at(names.len().min(3));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let never = format!("times or bunch crossings of {}{more} never matched those of the others", named.join(", "));
        Some(configured.map_or(format!("step not checked: {never}"), |sentence| format!("{sentence}; {never}")))
    }

    /// The name of a source with its id: `boardA (source 7)`; `source 7` if it has no configured name.
    pub fn name_of(&self, source: SourceId) -> String {
        self.names.get(&source).map_or_else(|| format!("source {source}"), |name| format!("{name} (source {source})"))
    }

    /// The masked sources by name, the first few, as `masked: straw (source 2)`; `None` if no source is masked.
    pub fn masked_sources(&self) -> Option<String> {
        const NAMED: usize = 3;
        let masked = || self.sources.iter().filter(|source| source.is_masked());
        let names: Vec<String> = masked().take(NAMED).map(|source| self.name_of(source.source)).collect();
        let more = masked().count() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("masked: {}{more}", names.join(", ")))
    }

    /// The name of a node with its id: `crate-1 (ru0)`; `ru0` if that is its name.
    pub fn name_of_node(&self, node: NodeId) -> String {
        self.node_names.get(&node).map_or_else(|| node.to_string(), |name| format!("{name} ({node})"))
    }

    /// The directories to which a node writes, as ` (/data0)`; empty if another process has the node.
    pub fn place_of(&self, node: NodeId) -> String {
        self.outputs.get(&node).map_or_else(String::new, |output| format!(" ({output})"))
    }

    /// Nodes that are away: the first one, or the gateway from which nodes of its farm are, how many, and a sentence;
    /// none if all are there.
    pub fn missing_nodes(&self) -> Option<(NodeId, u64, String)> {
        let missing = || self.nodes.iter().filter(|node| !node.is_connected).map(|node| node.node);
        let Some(first) = missing().next() else {
            let away = |node: &NodeSample| node.numbers.get(Counter::FarmNodesAway);
            let gateway = self.nodes.iter().find(|node| away(node) > 0)?;
            let nodes = counted(away(gateway), "farm node");
            let sentence = format!("{nodes} not connected to {}", self.name_of_node(gateway.node));
            return Some((gateway.node, away(gateway), sentence));
        };
        let count = missing().count();
        let others = match count - 1 {
            0 => String::new(),
            1 => " and 1 more node".to_owned(),
            others => format!(" and {others} more nodes"),
        };
        let sentence = format!("{}{others} not connected to the event manager", self.name_of_node(first));
        Some((first, count as u64, sentence))
    }

    /// What is known of the numbers of all sources.
    pub fn numbered(&self) -> Vec<Numbered<'_>> {
        let numbered = self.sources.iter().map(|source| {
            Numbered::new(source.source, (&source.numbering, &source.account), |counter| source.numbers.get(counter))
        });
        numbered.collect()
    }

    /// What was measured of the events of all nodes.
    pub fn distribution(&self, measure: Measure) -> Distribution {
        let mut all = Distribution::default();
        self.nodes.iter().filter_map(|node| node.distributions.get(&measure)).for_each(|one| all.merge(one));
        all
    }

    /// Events without a required source, kept or dropped.
    pub(crate) fn incomplete_events(&self) -> u64 {
        self.events.incomplete_emitted + self.events.incomplete_dropped.total()
    }

    /// The sum of a counter over nodes and sources. Each is counted by one of the two.
    pub fn total(&self, counter: Counter) -> u64 {
        let nodes = self.nodes.iter().map(|node| node.numbers.get(counter));
        nodes.chain(self.sources.iter().map(|source| source.numbers.get(counter))).sum()
    }
}

/// Values of a measure, counted in its buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Distribution {
    /// By bucket, in order; a bucket without values is left out.
    buckets: Vec<(u16, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// Adds to a bucket.
    pub fn add(&mut self, bucket: u16, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |&(known, _)| known) {
            Ok(place) => self.buckets[place].1 = self.buckets[place].1.saturating_add(count),
            Err(place) if count > 0 => self.buckets.insert(place, (bucket, count)),
            Err(_) => {}
        }
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Self) {
        other.buckets.iter().for_each(|&(bucket, count)| self.add(bucket, count));
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// The number of values up to this one. Exact at powers of two; otherwise the bucket with the value is not
    /// included.
    pub fn at_most(&self, value: u64) -> u64 {
        let whole = self.buckets.iter().filter(|&&(bucket, _)| greatest_in(bucket) <= value);
        whole.map(|&(_, count)| count).sum()
    }

    /// The value that this part of all does not exceed, 0 to 1, rounded up to the end of its bucket; `None` without
    /// values.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let mut reaches = |&&(_, count): &&(u16, u64)| {
            seen += count;
            seen >= wanted
        };
        self.buckets.iter().find(|bucket| reaches(bucket)).map(|&(bucket, _)| greatest_in(bucket))
    }

    /// The mean of all values; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// The increase since `before`. A count that has fallen was reset: then it is the whole count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let has_fallen = |&(bucket, count): &(u16, u64)| self.of(bucket) < count;
        if before.buckets.iter().any(has_fallen) {
            return self.clone();
        }
        let buckets = self.buckets.iter().map(|&(bucket, count)| (bucket, count - before.of(bucket)));
        Self { buckets: buckets.filter(|&(_, count)| count > 0).collect(), sum: self.sum.saturating_sub(before.sum) }
    }

    fn of(&self, bucket: u16) -> u64 {
        let place = self.buckets.binary_search_by_key(&bucket, |&(known, _)| known).ok();
        place.map_or(0, |place| self.buckets[place].1)
    }
}

impl FromIterator<u64> for Distribution {
    fn from_iter<T: IntoIterator<Item = u64>>(values: T) -> Self {
        let mut all = Self::default();
        for value in values {
            all.add(bucket_of(value), 1);
            all.sum = all.sum.saturating_add(value);
        }
        all
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
            doubts: Vec::new(),
            sends_datagrams: false,
            numbering: SourceNumbering::default(),
            histograms: BTreeMap::new(),
        };
        assert!(!source.is_connected());
        source.numbers.add(Counter::SourceConnections, 2);
        source.numbers.add(Counter::SourceDisconnections, 1);
        assert!(source.is_connected());
        source.numbers.add(Counter::SourceDisconnections, 1);
        assert!(!source.is_connected());
    }

    #[test]
    fn quantiles_are_ends_of_buckets_that_so_many_values_do_not_exceed() {
        let all: Distribution = (1..=1_000).collect();
        for (part, value) in [(0.0, 1), (0.5, 512), (0.9, 960), (0.99, 1_024), (1.0, 1_024)] {
            assert_eq!(all.quantile(part), Some(value), "{part}");
        }
        assert_eq!((all.count(), all.mean(), all.at_most(256)), (1_000, Some(500.5), 256));
        assert_eq!((Distribution::default().quantile(0.5), Distribution::default().mean()), (None, None));
    }

    #[test]
    fn what_came_since_is_the_difference_unless_it_began_anew() {
        let before: Distribution = [1, 5, 5].into_iter().collect();
        let mut now = before.clone();
        now.merge(&[5, 900].into_iter().collect());
        assert_eq!(now.since(&before), [5, 900].into_iter().collect());
        let anew: Distribution = [5, 900].into_iter().collect();
        assert_eq!(anew.since(&before), anew);
        assert_eq!(now.since(&now).count(), 0);
    }
}
