//! What came out: rates, latencies, how busy everything was, how much of each buffer was needed, and what limits: the busiest
//! resource where one has hardly any time left, otherwise what makes others wait.

use super::network::{Load, Network};
use super::system::{FullChoice, NetworkSection, Placement, System};
use super::world::World;
use schemars::JsonSchema;
use serde::Serialize;

/// What came out of a simulated run. Rates, latencies, loads and buffers are those between the end of the warm-up and
/// the last trigger; the account of events is that of the whole run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Outcome {
    /// The name of the system.
    pub system: String,
    /// The seed: everything random follows from it.
    pub seed: u64,
    /// Seconds of simulated time that were counted.
    #[schemars(range(min = 0))]
    pub counted_s: f64,
    /// Simulation steps of the whole run.
    pub steps: u64,
    /// Rates that were reached.
    pub rate: Reached,
    /// The part of all triggers, 0 to 1, that were vetoed because a front end was full.
    #[schemars(range(min = 0))]
    pub dead_time: f64,
    /// What limits.
    pub limit: Limit,
    /// From the trigger until the event is built, and until its release was sent to all readout units.
    pub latency: Latencies,
    /// What works: links, computers, filters, disks.
    pub resources: Vec<Resource>,
    /// What holds something, and how much of it was needed.
    pub buffers: Vec<Buffer>,
    /// What the networks lost or made wait.
    pub networks: Vec<NetworkCounts>,
    /// The flows of a system in which sources push; absent for other systems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowOutcome>,
    /// The account of the whole run, drain included.
    pub events: Events,
}

/// Rates that were reached.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Reached {
    /// Events built a second.
    #[schemars(range(min = 0))]
    pub events_per_s: f64,
    /// Triggers a second, vetoed ones included; null where the front ends send as fast as they can.
    #[schemars(range(min = 0))]
    pub offered_per_s: Option<f64>,
    /// Bytes of fragments built a second.
    #[schemars(range(min = 0))]
    pub bytes_per_s: f64,
}

/// Latencies, from the trigger on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Latencies {
    /// From the trigger until the event is built.
    pub built: Latency,
    /// From the trigger until the release of the event was sent to all readout units.
    pub released: Latency,
}

/// One latency, in seconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Latency {
    /// The mean in seconds.
    #[schemars(range(min = 0))]
    pub mean_s: f64,
    /// The median in seconds.
    #[schemars(range(min = 0))]
    pub p50_s: f64,
    /// The 90th percentile in seconds.
    #[schemars(range(min = 0))]
    pub p90_s: f64,
    /// The 99th percentile in seconds.
    #[schemars(range(min = 0))]
    pub p99_s: f64,
    /// The 99.9th percentile in seconds.
    #[schemars(range(min = 0))]
    pub p999_s: f64,
    /// The longest time, in seconds.
    #[schemars(range(min = 0))]
    pub max_s: f64,
    /// The distribution: pairs of the upper end of a step in seconds and the events in it.
    pub histogram: Vec<(f64, u64)>,
}

/// Resources of one kind: links, computers, filters, disks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Resource {
    /// Of which kind.
    pub name: String,
    /// How many.
    pub count: usize,
    /// The average utilisation, 0 to 1.
    #[schemars(range(min = 0))]
    pub utilisation: f64,
    /// The same of the busiest one.
    #[schemars(range(min = 0))]
    pub utilisation_max: f64,
    /// Which one is the busiest, counted from 0.
    pub busiest: usize,
    /// Bytes a second of one of them, on average; null for a resource without bytes.
    #[schemars(range(min = 0))]
    pub bytes_per_s: Option<f64>,
    /// The same of the one that moves most.
    #[schemars(range(min = 0))]
    pub bytes_per_s_max: Option<f64>,
}

/// Things of one kind that hold something.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Buffer {
    /// Of which kind.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// The capacity of one of them; null if unlimited.
    pub size: Option<u64>,
    /// The most that one of them held.
    pub most: u64,
    /// The share of the time, 0 to 1, in which the fullest one caused back-pressure; null if unknown.
    #[schemars(range(min = 0))]
    pub full: Option<f64>,
}

/// The unit of a buffer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Events.
    Events,
}

/// What a network lost or made wait.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct NetworkCounts {
    /// Which network.
    pub name: String,
    /// Packets that it carried.
    pub packets: u64,
    /// Packets that found a full port and were lost.
    pub dropped: u64,
    /// Time-outs after losses.
    pub timeouts: u64,
    /// Losses repaired by fast retransmission, without a time-out.
    pub fast_retransmits: u64,
    /// The part of the time, 0 to 1, that senders were paused before a full port, on average.
    #[schemars(range(min = 0))]
    pub paused: f64,
    /// Flows that stood still after a loss, on average.
    #[schemars(range(min = 0))]
    pub stalled_flows: f64,
}

/// What was reached in one flow of a system in which sources push.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowOutcome {
    /// The name of the flow.
    pub name: String,
    /// Events triggered a second, vetoed ones included.
    #[schemars(range(min = 0))]
    pub offered_per_s: f64,
    /// Events decided a second.
    #[schemars(range(min = 0))]
    pub events_per_s: f64,
    /// Packets that gateways took a second.
    #[schemars(range(min = 0))]
    pub packets_per_s: f64,
    /// Bytes a second of these packets.
    #[schemars(range(min = 0))]
    pub bytes_per_s: f64,
    /// How many sets of events were not complete.
    pub incomplete: u64,
    /// From the trigger until the event is built.
    pub built: Latency,
    /// From the trigger until the event is decided.
    pub decided: Latency,
}

/// The account of the events of a whole run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Events {
    /// Triggers that the front ends took.
    pub triggered: u64,
    /// Triggers that found a front end full.
    pub vetoed: u64,
    /// Events that were built complete.
    pub built: u64,
    /// Events that were built with something missing.
    pub incomplete: u64,
    /// Events that were not built, for whatever cause.
    pub dropped: u64,
    /// Events in progress at the end: at front ends, readout units or builder units.
    pub in_flight: u64,
    /// Fragments that readout units received.
    pub fragments_received: u64,
    /// Of these fragments, how many were released in complete events.
    pub fragments_in_complete_events: u64,
    /// Of these fragments, how many are still held.
    pub fragments_in_flight: u64,
    /// Whether events and fragments add up, so that nothing vanished.
    pub balanced: bool,
}

impl Outcome {
    /// What was counted up to now.
    pub(super) fn new(world: &World<'_>) -> Self {
        let system = world.system;
        let seconds = (world.now - world.counted_from.min(world.now)).max(1) as f64 * 1e-9;
        let triggers = &world.front_ends.triggers;
        let vetoed = triggers.vetoed - world.before.vetoed;
        let offered = triggers.issued - world.before.triggered + vetoed;
        let resources = resources(world, seconds);
        let mut outcome = Self {
            system: system.name.clone(),
            seed: system.seed,
            counted_s: seconds,
            steps: world.queue.taken(),
            rate: Reached {
                events_per_s: world.built.count() as f64 / seconds,
                offered_per_s: world.front_ends.has_clock().then_some(offered as f64 / seconds),
                bytes_per_s: world.builders.iter().map(|unit| unit.built_bytes).sum::<u64>() as f64 / seconds,
            },
            dead_time: vetoed as f64 / offered.max(1) as f64,
            limit: Limit::default(),
            latency: Latencies { built: latency(&world.built), released: latency(&world.released) },
            resources,
            buffers: buffers(world, seconds),
            networks: networks(world, seconds),
            flows: Vec::new(),
            events: Events::default(),
        };
        outcome.limit = judge(&outcome);
        outcome
    }

    /// The account at the end of everything.
    pub(super) fn close(&mut self, world: &World<'_>) {
        self.steps = world.queue.taken();
        let triggers = &world.front_ends.triggers;
        let account = world.manager.machine.account();
        let (built, incomplete) = (account.built, account.incomplete_emitted);
        let dropped = account.incomplete_dropped.total();
        let mut fragments = ropewalk_terms::FragmentAccount::default();
        world.readouts.iter().for_each(|unit| fragments.merge(&unit.machine.total()));
        let in_events = fragments.in_complete_events + fragments.in_incomplete_events;
        // What the machines lost for any cause would be missing on the right.
        let fragments_add_up = fragments.received == in_events + fragments.in_flight;
        let ended = account.accounted() - account.in_flight;
        self.events = Events {
            triggered: triggers.issued,
            vetoed: triggers.vetoed,
            built,
            incomplete,
            dropped,
            in_flight: triggers.issued.saturating_sub(ended),
            fragments_received: fragments.received,
            fragments_in_complete_events: fragments.in_complete_events,
            fragments_in_flight: fragments.in_flight,
            balanced: fragments_add_up && ended <= triggers.issued && account.assigned == account.accounted(),
        };
    }
}

pub(super) fn latency(histogram: &Histogram) -> Latency {
    let at = |part| histogram.quantile(part) as f64 * 1e-9;
    Latency {
        mean_s: histogram.mean() * 1e-9,
        p50_s: at(0.5),
        p90_s: at(0.9),
        p99_s: at(0.99),
        p999_s: at(0.999),
        max_s: histogram.most() as f64 * 1e-9,
        histogram: histogram.steps().map(|(end, count)| (end as f64 * 1e-9, count)).collect(),
    }
}

/// A resource from the busy nanoseconds and bytes of its members.
pub(super) fn resource(name: &str, seconds: f64, loads: impl Iterator<Item = Load>, has_bytes: bool) -> Resource {
    let loads: Vec<Load> = loads.collect();
    let count = loads.len();
    let busy = |load: &Load| load.busy as f64 * 1e-9 / seconds;
    let (busiest, most) = loads.iter().enumerate().max_by_key(|(index, load)| (load.busy, count - index)).unzip();
    let mean = |total: f64| total / count.max(1) as f64;
    let bytes = |load: &Load| load.bytes as f64 / seconds;
    Resource {
        name: name.to_owned(),
        count,
        utilisation: mean(loads.iter().map(busy).sum()),
        utilisation_max: most.map_or(0.0, busy),
        busiest: busiest.unwrap_or(0),
        bytes_per_s: has_bytes.then(|| mean(loads.iter().map(bytes).sum())),
        bytes_per_s_max: has_bytes.then(|| loads.iter().map(bytes).fold(0.0, f64::max)),
    }
}

fn resources(world: &World<'_>, seconds: f64) -> Vec<Resource> {
    let system = world.system;
    let busy = |busy| Load { busy, bytes: 0 };
    let hosts = |from: usize, count: usize| world.hosts[from..from + count].iter().map(|host| busy(host.busy));
    let mut resources = vec![
        resource("front-end link", seconds, world.front.sender_loads(), true),
        resource("input of a readout unit", seconds, world.front.port_loads(), true),
    ];
    let readouts = world.readouts.len();
    if system.placement == Placement::Shared {
        resources.push(resource("the computer", seconds, hosts(0, 1), false));
    } else {
        resources.extend([
            resource("computer of a readout unit", seconds, hosts(1, readouts), false),
            resource("output of a readout unit", seconds, world.event.sender_loads(), true),
            resource("input of a builder unit", seconds, world.event.port_loads(), true),
            resource("computer of a builder unit", seconds, hosts(1 + readouts, world.builders.len()), false),
            resource("computer of the event manager", seconds, hosts(0, 1), false),
        ]);
    }
    if let Some(filter) = &system.filter {
        let loads = world.builders.iter().map(|unit| busy(unit.filter.busy / u64::from(filter.workers)));
        resources.push(resource("filter units of a builder unit", seconds, loads, false));
    }
    if system.disk.is_some() {
        let loads = world.builders.iter().map(|unit| unit.disk.load);
        resources.push(resource("disk of a builder unit", seconds, loads, true));
    }
    resources
}

fn buffers(world: &World<'_>, seconds: f64) -> Vec<Buffer> {
    let System { readout, builder, front_end, front_network, event_network, manager, .. } = world.system;
    let part = |nanoseconds: u64| Some(nanoseconds as f64 * 1e-9 / seconds);
    let of_readouts = |get: fn(&super::units::ReadoutUnit) -> u64| world.readouts.iter().map(get).max().unwrap_or(0);
    let of_builders = |get: fn(&super::units::BuilderUnit) -> u64| world.builders.iter().map(get).max().unwrap_or(0);
    let now = world.now;
    let pool_full = world.readouts.iter().map(|unit| unit.pool_full.total(now)).max().unwrap_or(0);
    let table_full = world.readouts.iter().map(|unit| unit.table_full.total(now)).max().unwrap_or(0);
    let builder_full = world.builders.iter().map(|unit| unit.full.total(now)).max().unwrap_or(0);
    let in_bytes = |name, size, most, full| buffer(name, Unit::Bytes, size, most, full);
    let in_events = |name, size, most, full| buffer(name, Unit::Events, size, most, full);
    let paused = part(world.pause.total(now)).filter(|_| world.front_ends.has_clock());
    let (capacity, window) = (u64::from(readout.capacity), front_network.window.0);
    let mut buffers = vec![
        in_bytes("memory of a source", front_end.buffer.0, world.front_ends.most_kept, paused),
        in_bytes("port to a readout unit", front_network.buffer.0, world.front.most_held(), None),
        in_bytes("stream of a source, unread", window, of_readouts(|unit| unit.most_waiting), None),
        in_bytes("pool of a readout unit", readout.pool.0, of_readouts(|unit| unit.most_bytes), part(pool_full)),
        in_events("table of a readout unit", capacity, of_readouts(|unit| unit.most_events), part(table_full)),
    ];
    if world.system.placement == Placement::Own {
        buffers.push(in_bytes("port to a builder unit", event_network.buffer.0, world.event.most_held(), None));
    }
    let (events, most) = (u64::from(builder.events), of_builders(|unit| unit.most_events));
    buffers.push(in_events("events of a builder unit", events, most, part(builder_full)));
    buffers.push(in_bytes("bytes of a builder unit", builder.bytes.0, of_builders(|unit| unit.most_bytes), None));
    let size = u64::from(manager.capacity);
    buffers.push(in_events("events assigned and not released", size, world.manager.most_assigned, None));
    if world.system.filter.is_some() {
        let most = of_builders(|unit| unit.filter.most_waiting);
        buffers.push(in_events("before the filter", events, most, None));
    }
    if world.system.disk.is_some() {
        buffers.push(in_events("before the disk", events, of_builders(|unit| unit.disk.most_waiting), None));
    }
    buffers
}

pub(super) fn buffer(name: &str, unit: Unit, size: u64, most: u64, full: Option<f64>) -> Buffer {
    Buffer { name: name.to_owned(), unit, size: Some(size), most, full }
}

fn networks(world: &World<'_>, seconds: f64) -> Vec<NetworkCounts> {
    let counts = |name: &str, network: &Network, section: &NetworkSection| {
        let paused: Vec<u64> = network.paused(world.now).collect();
        NetworkCounts {
            name: format!("{name} ({})", if section.full == FullChoice::Pause { "pause" } else { "drop" }),
            packets: network.counts.packets,
            dropped: network.counts.dropped,
            timeouts: network.counts.timeouts,
            fast_retransmits: network.counts.fast,
            paused: paused.iter().sum::<u64>() as f64 * 1e-9 / seconds / paused.len().max(1) as f64,
            stalled_flows: network.stalled(world.now) as f64 * 1e-9 / seconds,
        }
    };
    let mut networks = vec![counts("front-end network", &world.front, &world.system.front_network)];
    if world.system.placement == Placement::Own {
        networks.push(counts("event network", &world.event, &world.system.event_network));
    }
    networks
}

/// Steps within one doubling of the time.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
const BUCKETS: usize = 64 << FINE_BITS;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    total: u64,
    most: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, total: 0, most: 0 }
    }

    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.total += nanoseconds;
        self.most = self.most.max(nanoseconds);
    }

    /// Adds what another one counted.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        (self.count, self.total) = (self.count + other.count, self.total + other.total);
        self.most = self.most.max(other.most);
    }

    pub(super) fn clear(&mut self) {
        *self = Self { counts: std::mem::take(&mut self.counts), count: 0, total: 0, most: 0 };
        self.counts.fill(0);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The mean in nanoseconds; 0 where nothing was counted.
    pub(super) fn mean(&self) -> f64 {
        self.total as f64 / self.count.max(1) as f64
    }

    /// The longest time in nanoseconds.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// The time that this part (0 to 1) of all stayed within, in nanoseconds.
    fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(bucket).min(self.most);
            }
        }
        self.most
    }

    /// The upper ends of the steps that hold something, in nanoseconds, and their counts.
    pub(super) fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, &count)| (upper(bucket), count))
    }
}

const fn bucket(value: u64) -> usize {
    if value < FINE {
        return value as usize;
    }
    let shift = value.ilog2() - FINE_BITS;
    (((shift + 1) as u64 * FINE) + (value >> shift) - FINE) as usize
}

/// The largest value of a bucket.
const fn upper(bucket: usize) -> u64 {
    let (row, column) = (bucket as u64 / FINE, bucket as u64 % FINE);
    if row == 0 { column } else { ((column + FINE + 1) << (row - 1)) - 1 }
}

/// What limits a system, and why that is said.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Limit {
    /// The name of a resource or a buffer, or `the trigger` where everything that was triggered is built.
    pub by: String,
    /// The figures behind it, for people.
    pub because: String,
}

/// A resource that is busy for this part of the time is the limit: queues before it grow without bound soon after.
const BUSY: f64 = 0.9;
/// One that is busy for this part of the time does not keep up, even while buffers before it still hide that.
const OVERLOADED: f64 = 0.99;
/// A rate this close to what is offered is what is offered.
const ALL: f64 = 0.98;
/// A unit that waits for this part of the time is held up.
pub(super) const HELD_UP: f64 = 0.05;

/// Which resource is the busiest, and that it is the limit where it has hardly any time left.
pub(super) fn busiest(outcome: &Outcome) -> (Option<&Resource>, Option<Limit>) {
    let busiest = outcome.resources.iter().max_by(|one, other| one.utilisation_max.total_cmp(&other.utilisation_max));
    let limit = busiest.filter(|busiest| busiest.utilisation_max >= BUSY).map(|busiest| {
        let because = format!(
            "busy {} of the time ({} on average over {})",
            percent(busiest.utilisation_max),
            percent(busiest.utilisation),
            busiest.count
        );
        Limit { by: member(&busiest.name, busiest.busiest, busiest.count), because }
    });
    (busiest, limit)
}

/// Whether everything that was offered is built.
pub(super) fn has_reached_all(outcome: &Outcome) -> bool {
    outcome.rate.offered_per_s.is_some_and(|offered| outcome.rate.events_per_s >= ALL * offered)
}

/// A resource, and how busy it is.
pub(super) fn described(one: &Resource) -> String {
    format!("{} ({} busy)", member(&one.name, one.busiest, one.count), percent(one.utilisation_max))
}

/// Judges by what was counted.
pub(super) fn judge(outcome: &Outcome) -> Limit {
    let (busiest, busy) = busiest(outcome);
    let overloaded = busiest.is_some_and(|busiest| busiest.utilisation_max >= OVERLOADED);
    if has_reached_all(outcome) && outcome.dead_time < 1.0 - ALL && !overloaded {
        let next = busiest.map_or(String::new(), |next| format!("; the next limit is the {}", described(next)));
        let because = format!("everything that was triggered is built{next}");
        return Limit { by: "the trigger".to_owned(), because };
    }
    let round_trips = || {
        busiest.map(|busiest| {
            let because = format!(
                "no resource is busy all the time: round trips; the busiest is busy {}",
                percent(busiest.utilisation_max)
            );
            Limit { by: busiest.name.clone(), because }
        })
    };
    busy.or_else(|| waiting(outcome)).or_else(round_trips).unwrap_or_default()
}

/// Nothing is busy: what makes units wait? Losses first, since everything behind them fills up as well; then from the
/// builder units backwards, as back-pressure runs.
fn waiting(outcome: &Outcome) -> Option<Limit> {
    let lossy = outcome.networks.iter().find(|network| network.dropped > 0);
    if let Some(network) = lossy {
        let because = format!(
            "{} packets lost, {} time-outs; {:.1} flows stand still at any time until what was lost is sent again",
            network.dropped, network.timeouts, network.stalled_flows
        );
        return Some(Limit { by: format!("switch buffers of the {}", network.name), because });
    }
    let full = |name: &str| {
        let buffer = outcome.buffers.iter().find(|buffer| buffer.name == name)?;
        let part = buffer.full.filter(|&part| part >= HELD_UP)?;
        Some(Limit { by: buffer.name.clone(), because: format!("full {} of the time", percent(part)) })
    };
    let paused = || {
        let network = outcome.networks.iter().rev().find(|network| network.paused >= HELD_UP)?;
        let because = format!(
            "senders are paused {} of the time: packets behind one for a full port wait too",
            percent(network.paused)
        );
        Some(Limit { by: format!("switch buffers of the {}", network.name), because })
    };
    full("events of a builder unit")
        .or_else(paused)
        .or_else(|| full("pool of a readout unit"))
        .or_else(|| full("table of a readout unit"))
}

fn member(name: &str, index: usize, count: usize) -> String {
    if count > 1 { format!("{name} (number {index} of {count})") } else { name.to_owned() }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain([1 << 20, (1 << 40) + 12_345, 1 << 62]) {
            let end = upper(bucket(value));
            assert!(end >= value && end - value <= value / FINE, "{value} {end}");
        }
    }

    #[test]
    fn percentiles_are_within_three_percent() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|value| histogram.add(value));
        for part in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let found = histogram.quantile(part) as f64 / (part * 100_000.0);
            assert!((0.97..1.04).contains(&found), "{part}: {found}");
        }
        assert_eq!((histogram.quantile(1.0), histogram.most(), histogram.count()), (100_000, 100_000, 100_000));
        assert!((histogram.mean() - 50_000.5).abs() < 0.01);
        let (before, mut other) = (histogram.quantile(0.5), Histogram::new());
        other.merge(&histogram);
        histogram.merge(&other);
        assert_eq!((histogram.count(), histogram.quantile(0.5), histogram.most()), (200_000, before, 100_000));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.steps().count(), histogram.quantile(0.5)), (0, 0, 0));
    }
}
