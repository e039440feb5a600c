//! The simulated push system: the real machines, what lies between them, the loop that lets time pass, and the outcome
//! in the form of all sizings. The limit is a loss, a busy resource, or the throttle.

use super::super::queue::Queue;
use super::gateway::{InputQueue, Node};
use super::sources::{FlowSources, Memory, Port};
use super::system::{FlowSection, PushSystem, on_the_wire};
use crate::sizing::network::Load;
use crate::sizing::outcome::{
    Buffer, Events, FlowOutcome, HELD_UP, Histogram, Latencies, Limit, NetworkCounts, Outcome, Reached, Resource, Unit,
    buffer, busiest, described, has_reached_all, latency, percent, resource,
};
use ropewalk_terms::EventAccount;
use ropewalk_wire::gateway::{Message, Throttle};
use std::mem;

/// What happens.
pub(super) enum Step {
    /// The last event of a flow's next set is there.
    Trigger { flow: u8 },
    /// The last bit of a source's packet is in the switch.
    AtSwitch { flow: u8, set: u64, source: u16 },
    /// A packet is in its receiver's memory.
    Arrived { flow: u8, set: u64, source: u16 },
    /// A queue's core has done the work of its turn.
    TurnEnd { queue: u16 },
    /// Time alone brings something to a queue.
    QueueDue { queue: u16 },
    /// What a queue says is at its node.
    AtNode { node: u32, queue: u16, word: Word },
    /// Time alone brings something to a node.
    NodeDue { node: u32 },
    /// What a node says is at its queue.
    AtQueue { queue: u16, message: Box<Message> },
    /// What a queue says of its state is at the triggers.
    AtTriggers { throttle: Throttle },
}

/// What is on its way to a node.
pub(super) enum Word {
    Push(Vec<u8>),
    Message(Box<Message>),
}

/// What was counted of a flow since the warm-up.
#[derive(Clone, Debug)]
pub(super) struct FlowCounts {
    pub(super) built: Histogram,
    pub(super) decided: Histogram,
    /// Sets to which something was missing.
    pub(super) incomplete: u64,
    /// What had happened when counting began: events triggered, events vetoed, packets, their bytes.
    pub(super) before: [u64; 4],
}

/// The whole system. The queues of a gateway follow one another, and so do its nodes.
pub(super) struct World<'a> {
    pub(super) system: &'a PushSystem,
    pub(super) steps: Queue<Step>,
    pub(super) now: u64,
    memory: Memory,
    pub(super) sources: Vec<FlowSources>,
    /// Of the switch, by queue.
    pub(super) ports: Vec<Port>,
    pub(super) queues: Vec<InputQueue>,
    pub(super) nodes: Vec<Node>,
    pub(super) flows: Vec<FlowCounts>,
    pub(super) counted_from: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(system: &'a PushSystem) -> Self {
        let counts = FlowCounts { built: Histogram::new(), decided: Histogram::new(), incomplete: 0, before: [0; 4] };
        let flows = (0_u64..).zip(&system.flow);
        let port = |_| Port::new(system.gateway.input.bytes_per_second, system.network.buffer.0);
        let of_gateway = |gateway| (0..system.farm.nodes).map(move |node| (gateway, node));
        let nodes = (0..system.gateways).flat_map(of_gateway);
        Self {
            steps: Queue::new(),
            now: 0,
            memory: Memory::default(),
            sources: flows.map(|(flow, section)| FlowSources::new(system, section, system.seed ^ flow << 40)).collect(),
            ports: (0..system.queues()).map(port).collect(),
            queues: (0..system.queues()).map(|queue| InputQueue::new(system, queue)).collect(),
            nodes: nodes.map(|(gateway, node)| Node::new(system, gateway * system.gateway.queues, node)).collect(),
            flows: vec![counts; system.flow.len()],
            counted_from: 0,
            system,
        }
    }

    /// Lets the time of the whole run pass. Everything was counted between warm-up and the last trigger.
    pub(super) fn run(mut self) -> Outcome {
        (0..self.nodes.len() as u32).for_each(|node| self.steps.push(0, Step::NodeDue { node }));
        (0..self.queues.len() as u16).for_each(|queue| self.steps.push(0, Step::QueueDue { queue }));
        for flow in 0..self.sources.len() as u8 {
            self.trigger_next(flow);
        }
        let (warm_up, end) = (self.system.warm_up.0.as_nanos() as u64, self.system.duration.0.as_nanos() as u64);
        let last = end + self.system.drain.0.as_nanos() as u64;
        let mut outcome = None;
        while let Some((at, step)) = self.steps.pop() {
            if self.counted_from == 0 && at >= warm_up {
                self.count_from(warm_up.max(1));
            }
            if outcome.is_none() && at >= end {
                self.now = end;
                outcome = Some(Outcome::of_push(&self));
            }
            if at > last {
                break;
            }
            self.now = at;
            self.step(step);
            if outcome.is_some() && self.steps.taken().is_multiple_of(256) && self.is_empty() {
                break;
            }
        }
        let mut outcome = outcome.unwrap_or_else(|| Outcome::of_push(&self));
        outcome.close_push(&self);
        outcome
    }

    fn is_empty(&self) -> bool {
        let have_landed = self.sources.iter().all(FlowSources::have_landed);
        have_landed && self.queues.iter().all(|queue| queue.waiting() == 0 && queue.in_flight() == 0)
    }

    fn latency(&self) -> u64 {
        self.system.network.latency.0.as_nanos() as u64
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Trigger { flow } => self.trigger(flow),
            Step::AtSwitch { flow, set, source } => self.at_switch(flow, set, source),
            Step::Arrived { flow, set, source } => self.arrived(flow, set, source),
            Step::TurnEnd { queue } => self.end_turn(queue),
            Step::QueueDue { queue } => {
                // A later alarm may have been set since.
                if self.queues[usize::from(queue)].alarm <= self.now || self.now == 0 {
                    self.wake(queue);
                }
            }
            Step::AtNode { node, queue, word } => self.at_node(node, queue, word),
            Step::NodeDue { node } => {
                if self.nodes[node as usize].alarm <= self.now || self.now == 0 {
                    self.turn_node(node);
                }
            }
            Step::AtQueue { queue, message } => {
                self.queues[usize::from(queue)].told(*message);
                self.wake(queue);
            }
            Step::AtTriggers { throttle } => {
                self.sources.iter_mut().for_each(|sources| sources.on_throttle(&throttle, self.now));
            }
        }
    }

    fn trigger_next(&mut self, flow: u8) {
        let due = self.sources[usize::from(flow)].next_due();
        if due < self.system.duration.0.as_nanos() as u64 {
            self.steps.push(due, Step::Trigger { flow });
        }
    }

    fn trigger(&mut self, flow: u8) {
        let sources = &mut self.sources[usize::from(flow)];
        if let Some(set) = sources.trigger(self.now, &mut self.memory) {
            let mtu = self.system.network.mtu.0;
            for source in 0..self.system.flow[usize::from(flow)].sources {
                let at = sources.send(self.now, set, source, |bytes| on_the_wire(mtu, bytes));
                self.steps.push(at, Step::AtSwitch { flow, set, source });
            }
        }
        self.trigger_next(flow);
    }

    fn at_switch(&mut self, flow: u8, set: u64, source: u16) {
        let sources = &mut self.sources[usize::from(flow)];
        let bytes = on_the_wire(self.system.network.mtu.0, sources.packet(set, source).len() as u64);
        match self.ports[usize::from(sources.queue_of(set))].take(self.now, bytes) {
            Some(leaves) => {
                let latency = self.latency();
                self.steps.push(leaves + latency, Step::Arrived { flow, set, source });
            }
            None => sources.landed(set),
        }
    }

    fn arrived(&mut self, flow: u8, set: u64, source: u16) {
        let sources = &mut self.sources[usize::from(flow)];
        let (queue, packet) = (sources.queue_of(set), sources.packet(set, source).clone());
        sources.landed(set);
        if self.queues[usize::from(queue)].arrived(flow, source, packet) {
            self.wake(queue);
        }
    }

    /// A queue has something to do; while it works that waits for its next turn.
    fn wake(&mut self, queue: u16) {
        let state = &mut self.queues[usize::from(queue)];
        if !state.is_working {
            let time = state.turn(self.now);
            self.steps.push(self.now + time, Step::TurnEnd { queue });
        }
    }

    fn end_turn(&mut self, queue: u16) {
        let (now, latency) = (self.now, self.latency());
        let first_node = u32::from(queue / self.system.gateway.queues) * u32::from(self.system.farm.nodes);
        let state = &mut self.queues[usize::from(queue)];
        let mut results = mem::take(&mut state.results);
        for (node, bytes, leaves) in results.pushes.drain(..) {
            let (node, word) = (first_node + u32::from(node), Word::Push(bytes));
            self.steps.push(leaves.max(now) + latency, Step::AtNode { node, queue, word });
        }
        for (node, message) in results.messages.drain(..) {
            let (node, word) = (first_node + u32::from(node), Word::Message(Box::new(message)));
            self.steps.push(now + latency, Step::AtNode { node, queue, word });
        }
        if let Some(throttle) = results.throttle.take() {
            self.steps.push(now + latency, Step::AtTriggers { throttle });
        }
        for (flow, first, is_whole) in results.finished.drain(..) {
            let (sources, counts) = (&self.sources[usize::from(flow)], &mut self.flows[usize::from(flow)]);
            let time = now - sources.triggered_at(first);
            (0..self.system.flow[usize::from(flow)].packing).for_each(|_| counts.built.add(time));
            counts.incomplete += u64::from(!is_whole);
        }
        state.results = results;
        let has_more = state.end_turn();
        let alarm = state.alarm;
        if has_more {
            self.wake(queue);
        } else if alarm < u64::MAX {
            self.steps.push(alarm.max(now), Step::QueueDue { queue });
        }
    }

    fn at_node(&mut self, node: u32, queue: u16, word: Word) {
        let state = &mut self.nodes[node as usize];
        let of_gateway = usize::from(queue % self.system.gateway.queues);
        match word {
            Word::Push(bytes) => state.hear(of_gateway, &bytes, self.now),
            Word::Message(message) => state.hear_message(of_gateway, &message, self.now),
        }
        self.turn_node(node);
    }

    fn turn_node(&mut self, node: u32) {
        let (now, latency) = (self.now, self.latency());
        let gateway = node / u32::from(self.system.farm.nodes);
        let first_queue = gateway as u16 * self.system.gateway.queues;
        let Self { nodes, flows, sources, steps, .. } = self;
        let state = &mut nodes[node as usize];
        let before = state.alarm;
        let decided = |flow: u8, key: ropewalk_terms::EventKey| {
            let triggered = sources[usize::from(flow)].triggered_at(key.number());
            flows[usize::from(flow)].decided.add(now - triggered);
        };
        let said = |queue: usize, message| {
            let queue = first_queue + queue as u16;
            steps.push(now + latency, Step::AtQueue { queue, message: Box::new(message) });
        };
        state.turn(now, decided, said);
        // An alarm that stands already need not be set again.
        if state.alarm != before || before <= now {
            steps.push(state.alarm, Step::NodeDue { node });
        }
    }

    /// Forgets what was counted so far.
    fn count_from(&mut self, now: u64) {
        self.counted_from = now;
        for flow in 0..self.flows.len() {
            self.flows[flow].before = self.counts(flow);
            let counts = &mut self.flows[flow];
            counts.built.clear();
            counts.decided.clear();
            counts.incomplete = 0;
            self.sources[flow].load = Default::default();
        }
        self.ports.iter_mut().for_each(Port::reset);
        self.queues.iter_mut().for_each(InputQueue::reset);
        self.nodes.iter_mut().for_each(|node| node.reset(now));
    }

    /// Of a flow, since the beginning: events triggered, events vetoed, packets taken, their bytes.
    pub(super) fn counts(&self, flow: usize) -> [u64; 4] {
        let (sources, section) = (&self.sources[flow], &self.system.flow[flow]);
        let accounts = self.queues.iter().map(|queue| queue.machine.account(flow as u8).0);
        let (packets, bytes) = accounts
            .fold((0, 0), |(packets, bytes), account| (packets + account.packets.received, bytes + account.bytes));
        [sources.sets * u64::from(section.packing), sources.vetoed, packets, bytes]
    }
}

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
        // Of the whole run: the machine's own figure includes the warm-up.
        let full = world.queues.iter().map(dead).fold(0.0, f64::max) / (seconds + world.counted_from as f64 * 1e-9);
        let name = format!("sets of {} in a queue", section.name);
        let packing = u64::from(section.packing);
        let held = buffer(&name, Unit::Events, u64::from(section.sets) * packing, most * packing);
        buffers.push(Buffer { full: Some(full), ..held });
    }
    let most_waiting = world.nodes.iter().map(|node| node.most_waiting).max().unwrap_or_default();
    let outstanding = u64::from(system.farm.outstanding) * u64::from(system.gateway.queues);
    buffers.push(buffer("before the cores of a node", Unit::Events, outstanding, most_waiting));
    buffers
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
