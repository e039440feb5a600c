//! What came out of a push system, in the form of all sizings, and what limits it: what is lost, what is busy, or what stops the
//! trigger.

use super::system::FlowSection;
use super::world::World;
use crate::sizing::network::Load;
use crate::sizing::outcome::{
    Buffer, Events, FlowOutcome, HELD_UP, Histogram, Latencies, Limit, NetworkCounts, Outcome, Reached, Resource, Unit,
    buffer, busiest, described, has_reached_all, latency, percent, resource,
};
use ropewalk_terms::EventAccount;

impl Outcome {
    /// What was counted up to now.
    pub(super) fn of_push(world: &World<'_>) -> Self {
        let system = world.system;
        let seconds = (world.now - world.counted_from.min(world.now)).max(1) as f64 * 1e-9;
        let (mut built, mut decided) = (Histogram::new(), Histogram::new());
        for counts in &world.flows {
            built.merge(&counts.built);
            decided.merge(&counts.decided);
        }
        let flows: Vec<FlowOutcome> = (0..world.flows.len()).map(|flow| of_flow(world, flow, seconds)).collect();
        let (triggered, vetoed) = (0..world.flows.len()).fold((0, 0), |(triggered, vetoed), flow| {
            let ([now_triggered, now_vetoed, ..], before) = (world.counts(flow), world.flows[flow].before);
            (triggered + now_triggered - before[0], vetoed + now_vetoed - before[1])
        });
        let mut outcome = Self {
            system: system.name.clone(),
            seed: system.seed,
            counted_s: seconds,
            steps: world.steps.taken(),
            rate: Reached {
                events_per_s: decided.count() as f64 / seconds,
                offered_per_s: Some((triggered + vetoed) as f64 / seconds),
                bytes_per_s: flows.iter().map(|flow| flow.bytes_per_s).sum(),
            },
            dead_time: vetoed as f64 / (triggered + vetoed).max(1) as f64,
            limit: Limit::default(),
            latency: Latencies { built: latency(&built), released: latency(&decided) },
            resources: resources(world, seconds),
            buffers: buffers(world, seconds),
            networks: networks(world),
            flows,
            events: Events::default(),
        };
        outcome.limit = judge(&outcome);
        outcome
    }

    /// The account at the end of everything.
    pub(super) fn close_push(&mut self, world: &World<'_>) {
        self.steps = world.steps.taken();
        let (mut events, mut account) = (Events::default(), EventAccount::default());
        let mut are_balanced = true;
        for (flow, section) in world.system.flow.iter().enumerate() {
            let packing = u64::from(section.packing);
            let [triggered, vetoed, ..] = world.counts(flow);
            (events.triggered, events.vetoed) = (events.triggered + triggered, events.vetoed + vetoed);
            for queue in &world.queues {
                let (packets, farm) = queue.machine.account(flow as u8);
                are_balanced &= packets.is_balanced() && farm.is_balanced();
                account.merge(&farm.events);
                events.fragments_received += packets.packets.received * packing;
                events.fragments_in_complete_events += packets.packets.in_complete_events * packing;
                events.fragments_in_flight += packets.packets.in_flight * packing;
            }
        }
        (events.built, events.incomplete) = (account.built, account.incomplete_emitted);
        events.dropped = account.incomplete_dropped.total();
        let ended = account.accounted() - account.in_flight;
        events.in_flight = events.triggered.saturating_sub(ended);
        events.balanced = are_balanced && ended <= events.triggered && account.assigned == account.accounted();
        self.events = events;
    }
}

fn of_flow(world: &World<'_>, flow: usize, seconds: f64) -> FlowOutcome {
    let (counts, now) = (&world.flows[flow], world.counts(flow));
    let since = |index: usize| (now[index] - counts.before[index]) as f64 / seconds;
    FlowOutcome {
        name: world.system.flow[flow].name.clone(),
        offered_per_s: since(0) + since(1),
        events_per_s: counts.decided.count() as f64 / seconds,
        packets_per_s: since(2),
        bytes_per_s: since(3),
        incomplete: counts.incomplete,
        built: latency(&counts.built),
        decided: latency(&counts.decided),
    }
}

fn resources(world: &World<'_>, seconds: f64) -> Vec<Resource> {
    let busy = |busy| Load { busy, bytes: 0 };
    let link = |(sources, section): (&super::sources::FlowSources, &FlowSection)| {
        // All sources of a flow do the same.
        let count = u64::from(section.sources);
        let load = Load { busy: sources.load.busy / count, bytes: sources.load.bytes / count };
        resource(&format!("link of a source of {}", section.name), seconds, std::iter::once(load), true)
    };
    let mut resources: Vec<Resource> = world.sources.iter().zip(&world.system.flow).map(link).collect();
    let cores = u64::from(world.system.farm.cores);
    resources.extend([
        resource("input of a queue", seconds, world.ports.iter().map(|port| port.load), true),
        resource("core of a queue", seconds, world.queues.iter().map(|queue| busy(queue.busy)), false),
        resource("output of a queue", seconds, world.queues.iter().map(|queue| queue.output.load), true),
        resource("node", seconds, world.nodes.iter().map(|node| busy(node.busy / cores)), false),
    ]);
    resources
}

fn buffers(world: &World<'_>, seconds: f64) -> Vec<Buffer> {
    let system = world.system;
    let buffer = |name: &str, unit, size, most| buffer(name, unit, size, most, None);
    let most_held = world.ports.iter().map(|port| port.most_held).max().unwrap_or_default();
    let most_waiting = world.queues.iter().map(|queue| queue.most_waiting).max().unwrap_or_default();
    let mut buffers = vec![
        buffer("port to a queue", Unit::Bytes, system.network.buffer.0, most_held),
        buffer("socket of a queue", Unit::Bytes, system.gateway.socket.0, most_waiting),
    ];
    for (index, section) in system.flow.iter().enumerate() {
        let most = world.queues.iter().map(|queue| queue.most_sets[index]).max().unwrap_or_default();
        let dead = |queue: &super::gateway::InputQueue| {
            let level = queue.machine.throttle().levels().nth(index);
            level.map_or(0.0, |level| level.dead.as_secs_f64())
        };
        // Of the whole run: what the machine says of itself does not begin with what is counted.
        let full = world.queues.iter().map(dead).fold(0.0, f64::max) / (seconds + world.counted_from as f64 * 1e-9);
        let name = format!("sets of {} in a queue", section.name);
        buffers
            .push(Buffer { full: Some(full), ..buffer(&name, Unit::Events, events(section), most * packing(section)) });
    }
    let most_waiting = world.nodes.iter().map(|node| node.most_waiting).max().unwrap_or_default();
    let outstanding = u64::from(system.farm.outstanding) * u64::from(system.gateway.queues);
    buffers.push(buffer("before the cores of a node", Unit::Events, outstanding, most_waiting));
    buffers
}

const fn packing(section: &FlowSection) -> u64 {
    section.packing as u64
}

const fn events(section: &FlowSection) -> u64 {
    section.sets as u64 * packing(section)
}

fn networks(world: &World<'_>) -> Vec<NetworkCounts> {
    let counts = |name: &str, packets, dropped| NetworkCounts {
        name: name.to_owned(),
        packets,
        dropped,
        ..NetworkCounts::default()
    };
    let (packets, lost) =
        world.ports.iter().fold((0, 0), |(packets, lost), port| (packets + port.packets, lost + port.lost));
    let overflown = world.queues.iter().map(|queue| queue.lost).sum();
    vec![counts("ports to queues", packets, lost), counts("sockets of queues", packets - lost, overflown)]
}

/// Judges by what was counted.
pub(super) fn judge(outcome: &Outcome) -> Limit {
    let (busiest, busy) = busiest(outcome);
    let who = busiest.map_or(String::new(), described);
    if let Some(network) = outcome.networks.iter().find(|network| network.dropped > 0) {
        let incomplete: u64 = outcome.flows.iter().map(|flow| flow.incomplete).sum();
        let because = format!(
            "{} of {} packets lost, and {incomplete} sets of events incomplete; the busiest is the {who}",
            network.dropped, network.packets
        );
        return Limit { by: network.name.clone(), because };
    }
    if has_reached_all(outcome) {
        let because = format!("everything that was triggered is built; the next limit is the {who}");
        return Limit { by: "the trigger".to_owned(), because };
    }
    if let Some(busy) = busy {
        return busy;
    }
    let full = outcome.buffers.iter().filter(|buffer| buffer.full.is_some_and(|full| full >= HELD_UP));
    let fullest = full.max_by(|one, other| one.full.unwrap_or(0.0).total_cmp(&other.full.unwrap_or(0.0)));
    fullest.map_or_else(
        || Limit {
            by: "the throttle".to_owned(),
            because: format!("nothing is busy all the time; the busiest is the {who}"),
        },
        |buffer| {
            let because = format!("full {} of the time; the busiest is the {who}", percent(buffer.full.unwrap_or(0.0)));
            Limit { by: buffer.name.clone(), because }
        },
    )
}
