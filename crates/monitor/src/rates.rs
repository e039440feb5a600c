//! What changes between two samples, per second; and the trend of a run, its rates and occupancies by its age, to
//! compare later runs with.

use core::time::Duration;

use ropewalk_terms::{Counter, NodeId, Role, RunNumber, SourceId};
use serde::{Serialize, Serializer};

use crate::{NodeSample, Sample, SourceSample};

/// How fast a source is.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct SourceRates {
    /// The source.
    #[serde(serialize_with = "source_number")]
    pub source: SourceId,
    /// Fragments received per second.
    pub fragments_hz: f64,
    /// Bytes of fragments received per second.
    pub bytes_per_second: f64,
    /// Part of the time in which it was not read because buffers or the window were full, 0 to 1.
    pub back_pressure_share: f64,
}

/// How fast a node is.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct NodeRates {
    /// The node, by name.
    #[serde(serialize_with = "node_name")]
    pub node: NodeId,
    /// Events built per second, of a builder unit; fragments received per second, of a readout unit.
    pub rate_hz: f64,
    /// Bytes written to run files per second, of a builder unit; bytes of fragments received, of a readout unit.
    pub bytes_per_second: f64,
    /// Part of its pools' blocks that is held now, 0 to 1; `None` if it has no pool or has not reported it.
    pub pool_share: Option<f64>,
    /// What it did with its time.
    #[serde(flatten)]
    pub shares: NodeShares,
}

/// Parts of the time, 0 to 1; `None` if a node does not report it.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct NodeShares {
    /// It, or what shares its thread, had something to do.
    pub busy_share: Option<f64>,
    /// A builder unit had no room for further events.
    pub full_share: Option<f64>,
    /// Its disk had something to write.
    pub disk_busy_share: Option<f64>,
    /// Built events waited because storage had no room for them.
    pub disk_wait_share: Option<f64>,
    /// Its filter units had events to decide on, on the average.
    pub filter_busy_share: Option<f64>,
    /// Super-fragments of a readout unit waited because a builder unit's connection had not taken them yet.
    pub link_wait_share: Option<f64>,
    /// It held settled events and no builder unit asked for one.
    pub request_wait_share: Option<f64>,
}

impl NodeShares {
    fn between(before: &NodeSample, now: &NodeSample, interval: Duration) -> Self {
        let share = |counter| {
            now.numbers.known(counter)?;
            let time = now.numbers.increase(&before.numbers, counter) as f64 / 1e9;
            // Reports are not exactly as far apart as samples: it could come out a little above 1.
            Some((time / interval.as_secs_f64()).min(1.0))
        };
        let units = now.numbers.get(Counter::FilterUnits);
        let of_filters = now.numbers.increase(&before.numbers, Counter::FilterBusyTime) as f64 / 1e9;
        let filter_busy = of_filters / units as f64 / interval.as_secs_f64();
        Self {
            busy_share: share(Counter::ThreadBusyTime),
            full_share: share(Counter::BuilderFullTime),
            disk_busy_share: share(Counter::DiskBusyTime),
            disk_wait_share: share(Counter::DiskWaitTime),
            filter_busy_share: (units > 0).then_some(filter_busy.min(1.0)),
            link_wait_share: share(Counter::LinkWaitTime),
            request_wait_share: share(Counter::RequestWaitTime),
        }
    }
}

/// What changes between two samples, per second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// The run.
    #[serde(serialize_with = "run_number")]
    pub run: RunNumber,
    /// The time between the two samples, in seconds.
    pub seconds: f64,
    /// Events built per second, complete or not.
    pub events_hz: f64,
    /// Bytes of fragments received per second.
    pub bytes_in_per_second: f64,
    /// Bytes written to run files per second.
    pub bytes_to_disk_per_second: f64,
    /// Part of the time in which no source was held back, 0 to 1, as far as can be told: sources that are held back at
    /// different times have less.
    pub live_share: f64,
    /// Events assigned and not finished now.
    pub events_in_flight: u64,
    /// Each source, in the samples' order.
    pub sources: Vec<SourceRates>,
    /// Each node, in the samples' order.
    pub nodes: Vec<NodeRates>,
}

impl Rates {
    /// The rates between two samples. `None` if they are of different runs or have the same time.
    pub fn between(before: &Sample, now: &Sample) -> Option<Self> {
        let interval = now.time.since(before.time);
        if now.run != before.run || interval.is_zero() {
            return None;
        }
        let sources: Vec<_> =
            now.sources.iter().map(|source| source_rates(before.source(source.source), source, interval)).collect();
        let nodes: Vec<_> = now
            .nodes
            .iter()
            .map(|node| node_rates(before.node(node.node), node, &now.sources, &sources, interval))
            .collect();
        let finished = |sample: &Sample| sample.events.built + sample.events.incomplete_emitted;
        let held_back = sources.iter().map(|source| source.back_pressure_share).fold(0.0, f64::max);
        Some(Self {
            run: now.run,
            seconds: interval.as_secs_f64(),
            events_hz: per_second(increase(finished(before), finished(now)), interval),
            bytes_in_per_second: sources.iter().map(|source| source.bytes_per_second).sum(),
            bytes_to_disk_per_second: nodes
                .iter()
                .filter(|rates| rates.node.role == Role::Builder)
                .map(|rates| rates.bytes_per_second)
                .sum(),
            live_share: 1.0 - held_back,
            events_in_flight: now.events.in_flight,
            sources,
            nodes,
        })
    }

    /// The rates of a source.
    pub fn source(&self, source: SourceId) -> Option<&SourceRates> {
        self.sources.iter().find(|known| known.source == source)
    }

    /// The rates of a node.
    pub fn node(&self, node: NodeId) -> Option<&NodeRates> {
        self.nodes.iter().find(|known| known.node == node)
    }
}

fn source_rates(before: Option<&SourceSample>, now: &SourceSample, interval: Duration) -> SourceRates {
    let rate = |counter| {
        // It is unknown since when a source counts that is new in this sample.
        per_second(before.map_or(0, |before| now.numbers.increase(&before.numbers, counter)), interval)
    };
    SourceRates {
        source: now.source,
        fragments_hz: rate(Counter::FragmentsReceived),
        bytes_per_second: rate(Counter::PayloadBytesReceived),
        // Reports are not exactly as far apart as samples: it could come out a little above 1.
        back_pressure_share: (rate(Counter::BackPressureTime) / 1e9).min(1.0),
    }
}

fn node_rates(
    before: Option<&NodeSample>,
    now: &NodeSample,
    sources: &[SourceSample],
    rates: &[SourceRates],
    interval: Duration,
) -> NodeRates {
    let rate =
        |counter| per_second(before.map_or(0, |before| now.numbers.increase(&before.numbers, counter)), interval);
    let (rate_hz, bytes_per_second) = match now.node.role {
        Role::Builder => {
            (rate(Counter::EventsBuilt) + rate(Counter::EventsIncompleteEmitted), rate(Counter::BytesWritten))
        }
        _ => {
            let own =
                || sources.iter().zip(rates).filter(|(source, _)| source.readout == now.node).map(|(_, rates)| rates);
            (own().map(|rates| rates.fragments_hz).sum(), own().map(|rates| rates.bytes_per_second).sum())
        }
    };
    let blocks = now.numbers.get(Counter::PoolBlocks);
    let pool_share = (blocks > 0).then(|| now.numbers.get(Counter::PoolHeld) as f64 / blocks as f64);
    // It is unknown since when a node counts that is new in this sample.
    let shares = before.map_or(NodeShares::default(), |before| NodeShares::between(before, now, interval));
    NodeRates { node: now.node, rate_hz, bytes_per_second, pool_share, shares }
}

const fn increase(before: u64, now: u64) -> u64 {
    if now < before { now } else { now - before }
}

fn per_second(count: u64, interval: Duration) -> f64 {
    count as f64 / interval.as_secs_f64()
}

fn source_number<S: Serializer>(source: &SourceId, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(source.0)
}

fn run_number<S: Serializer>(run: &RunNumber, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(run.0)
}

fn node_name<S: Serializer>(node: &NodeId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(node)
}

#[cfg(test)]
mod tests {

    use ropewalk_terms::{ByCause, EventAccount, FragmentAccount, Instant, RunNumber};

    use super::*;
    use crate::{Numbers, Sample};

    /// A run with one source, one readout unit and one builder unit, `seconds` after its start.
    fn sample(seconds: u64, fragments: u64, held_back: Duration, written: u64) -> Sample {
        let node = |node, numbers: &[(Counter, u64)]| NodeSample {
            node,
            is_connected: true,
            reported: None,
            incarnation: None,
            numbers: numbers.iter().copied().collect(),
            distributions: Default::default(),
        };
        let source = SourceSample {
            source: SourceId(7),
            readout: NodeId::readout(0),
            account: FragmentAccount::default(),
            lost_datagrams: ByCause::default(),
            corrupt: Vec::new(),
            numbers: Numbers::from_iter([
                (Counter::FragmentsReceived, fragments),
                (Counter::PayloadBytesReceived, 100 * fragments),
                (Counter::BackPressureTime, held_back.as_nanos() as u64),
            ]),
            doubts: Vec::new(),
            sends_datagrams: false,
            numbering: Default::default(),
            histograms: Default::default(),
        };
        Sample {
            time: Instant::from_nanoseconds(seconds * 1_000_000_000),
            run: RunNumber(3),
            nodes: vec![
                node(NodeId::readout(0), &[(Counter::PoolBlocks, 64), (Counter::PoolHeld, 16)]),
                node(NodeId::builder(0), &[(Counter::EventsBuilt, fragments), (Counter::BytesWritten, written)]),
            ],
            sources: vec![source],
            events: EventAccount { built: fragments, in_flight: 5, ..EventAccount::default() },
            ..Sample::default()
        }
    }

    #[test]
    fn what_came_between_two_samples_is_divided_by_the_time_between_them() {
        let before = sample(10, 1_000, Duration::ZERO, 50_000);
        let now = sample(12, 3_000, Duration::from_millis(500), 250_000);
        let rates = Rates::between(&before, &now).expect("time has gone on");
        assert_eq!((rates.seconds, rates.events_hz), (2.0, 1_000.0));
        assert_eq!((rates.bytes_in_per_second, rates.bytes_to_disk_per_second), (100_000.0, 100_000.0));
        assert_eq!((rates.live_share, rates.events_in_flight), (0.75, 5));
        let source = rates.source(SourceId(7)).expect("the source");
        assert_eq!((source.fragments_hz, source.back_pressure_share), (1_000.0, 0.25));
        let readout = rates.node(NodeId::readout(0)).expect("the readout unit");
        assert_eq!((readout.rate_hz, readout.bytes_per_second, readout.pool_share), (1_000.0, 100_000.0, Some(0.25)));
        let builder = rates.node(NodeId::builder(0)).expect("the builder unit");
        assert_eq!((builder.rate_hz, builder.bytes_per_second, builder.pool_share), (1_000.0, 100_000.0, None));
    }

    #[test]
    fn counters_that_began_anew_give_no_negative_rate() {
        let (before, now) = (sample(10, 1_000, Duration::ZERO, 50_000), sample(11, 30, Duration::ZERO, 400));
        let rates = Rates::between(&before, &now).expect("time has gone on");
        assert_eq!(
            (rates.events_hz, rates.bytes_in_per_second, rates.bytes_to_disk_per_second),
            (30.0, 3_000.0, 400.0)
        );
    }

    #[test]
    fn samples_of_two_runs_or_of_one_moment_have_no_rates() {
        let before = sample(10, 1_000, Duration::ZERO, 0);
        assert_eq!(Rates::between(&before, &before), None);
        let other = Sample { run: RunNumber(4), ..sample(12, 2_000, Duration::ZERO, 0) };
        assert_eq!(Rates::between(&before, &other), None);
    }

    #[test]
    fn a_source_or_node_that_was_not_there_before_has_no_rate_yet() {
        let before = Sample { nodes: Vec::new(), sources: Vec::new(), ..sample(10, 0, Duration::ZERO, 0) };
        let rates = Rates::between(&before, &sample(11, 9_000, Duration::ZERO, 9_000)).expect("time has gone on");
        assert_eq!((rates.bytes_in_per_second, rates.bytes_to_disk_per_second), (0.0, 0.0));
    }

    #[test]
    fn reports_that_are_further_apart_than_samples_hold_no_source_back_for_more_than_all_the_time() {
        let before = sample(10, 0, Duration::ZERO, 0);
        let rates = Rates::between(&before, &sample(11, 0, Duration::from_millis(1_050), 0)).expect("time has gone on");
        assert_eq!((rates.sources[0].back_pressure_share, rates.live_share), (1.0, 0.0));
    }

    #[test]
    fn times_of_a_node_are_parts_of_the_time_and_those_of_filters_are_of_each_unit() {
        let (mut before, mut now) = (sample(10, 0, Duration::ZERO, 0), sample(12, 0, Duration::ZERO, 0));
        let told = |sample: &mut Sample, busy: u64, filters: u64| {
            let numbers = &mut sample.nodes[1].numbers;
            numbers.add(Counter::DiskBusyTime, busy * 1_000_000);
            numbers.add(Counter::FilterBusyTime, filters * 1_000_000);
            numbers.add(Counter::FilterUnits, 4);
        };
        told(&mut before, 500, 1_000);
        told(&mut now, 2_000, 3_000);
        let rates = Rates::between(&before, &now).expect("time has gone on");
        let shares = rates.node(NodeId::builder(0)).expect("the builder unit").shares;
        assert_eq!(
            (shares.disk_busy_share, shares.filter_busy_share, shares.busy_share),
            (Some(0.75), Some(0.25), None)
        );
        before.nodes.clear();
        let rates = Rates::between(&before, &now).expect("time has gone on");
        assert_eq!(rates.nodes[1].shares, NodeShares::default());
    }

    #[test]
    fn as_json_sources_are_numbers_and_nodes_are_names() {
        let before = sample(10, 0, Duration::ZERO, 0);
        let rates = Rates::between(&before, &sample(11, 4, Duration::ZERO, 0)).expect("time has gone on");
        let json = serde_json::to_value(&rates).expect("numbers and names");
        assert_eq!((&json["run"], &json["sources"][0]["source"]), (&3.into(), &7.into()));
        assert_eq!(
            (&json["nodes"][1]["node"], &json["nodes"][1]["pool_share"]),
            (&"bu0".into(), &serde_json::Value::Null)
        );
    }
}
