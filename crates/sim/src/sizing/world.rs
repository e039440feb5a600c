//! The simulated system: the real machines, what lies between them, and the loop that lets time pass.

use super::front_end::FrontEndModel;
use super::network::{Framing, Full, Nature, Network};
use super::outcome::{Histogram, Outcome};
use super::queue::{Letter, Queue, Side, Step};
use super::system::{FullChoice, NetworkSection, Placement, System};
use super::units::{BuilderUnit, Costs, Host, ManagerUnit, ReadoutUnit, Stopwatch, Work};
use ropewalk_flow::messages::{Fragment, SuperFragmentEntry};
use ropewalk_terms::{EventKey, Incarnation, Instant, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// Longer than any simulated run: no source is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The whole system. Unit 0 is the event manager; readout units follow, then builder units.
pub(super) struct World<'a> {
    pub(super) system: &'a System,
    pub(super) queue: Queue,
    pub(super) now: u64,
    pub(super) front_ends: FrontEndModel,
    pub(super) front: Network,
    pub(super) event: Network,
    pub(super) manager: ManagerUnit,
    pub(super) readouts: Vec<ReadoutUnit>,
    pub(super) builders: Vec<BuilderUnit>,
    pub(super) hosts: Vec<Host>,
    /// Whether a unit has something to do, by unit.
    due: Vec<bool>,
    /// What the current turn sends, and to which unit.
    pub(super) outbox: Vec<(u32, Letter)>,
    /// Super-fragments on their way, by flow: where each ends in the flow's stream.
    flights: Vec<VecDeque<(u64, SuperFragmentEntry)>>,
    /// The super-fragment that a builder unit takes just now.
    pub(super) answer: Vec<Fragment>,
    pub(super) built: Histogram,
    pub(super) released: Histogram,
    pub(super) pause: Stopwatch,
    /// When counting began, and what had happened before.
    pub(super) counted_from: u64,
    pub(super) before: Before,
}

/// What had happened when counting began.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Before {
    pub(super) triggered: u64,
    pub(super) vetoed: u64,
}

fn nature(side: Side, section: &NetworkSection) -> Nature {
    Nature {
        side,
        packet: section.packet.0,
        buffer: section.buffer.0,
        latency: section.latency.0.as_nanos() as u64,
        window: section.window.0,
        framing: Framing { payload: section.framing.frame().0, header: section.framing.frame().1 },
        full: match section.full {
            FullChoice::Pause => Full::Pause,
            FullChoice::Drop => Full::Drop { timeout: section.retransmit_after.0.as_nanos() as u64 },
        },
    }
}

/// Bytes a second on the wire of a link: a fragment's own cost makes its bytes slower.
fn link_speed(system: &System, mean_fragment: f64) -> f64 {
    let (payload, header) = system.front_network.framing.frame();
    let in_stream = system.front_end.format.in_stream(mean_fragment.round() as u64) as f64;
    let on_the_wire = in_stream * (1.0 + header as f64 / payload as f64);
    let per_fragment = system.front_end.per_fragment.0.as_secs_f64();
    1.0 / (1.0 / system.front_end.link.bytes_per_second + per_fragment / on_the_wire)
}

impl<'a> World<'a> {
    pub(super) fn new(system: &'a System) -> Self {
        let (readouts, builders) = (u32::from(system.readouts), u32::from(system.builders));
        let sources_of = |readout: u32| {
            // Links are dealt out in order, as evenly as they go.
            let first = |readout: u32| (readout * system.front_ends).div_ceil(readouts) * system.front_end.streams;
            first(readout)..first(readout + 1)
        };
        let links = system.fragment_sizes().into_iter().map(|size| link_speed(system, size.mean()));
        let inputs = (0..readouts).map(|_| system.readout.input.bytes_per_second);
        let mut front = Network::new(nature(Side::Front, &system.front_network), links, inputs);
        for readout in 0..readouts {
            sources_of(readout).for_each(|source| front.add_flow(source / system.front_end.streams, readout));
        }
        let outputs = (0..readouts).map(|_| system.readout.output.bytes_per_second);
        let inputs = (0..builders).map(|_| system.builder.input.bytes_per_second);
        let mut event = Network::new(nature(Side::Event, &system.event_network), outputs, inputs);
        for flow in 0..readouts * builders {
            event.add_flow(flow / builders, flow % builders);
        }
        let front_ends = FrontEndModel::new(system);
        let units = 1 + readouts + builders;
        Self {
            manager: ManagerUnit::new(system),
            answer: Vec::new(),
            readouts: (0..readouts)
                .map(|index| ReadoutUnit::new(system, index, sources_of(index), &front_ends))
                .collect(),
            builders: (0..builders).map(|index| BuilderUnit::new(system, index, sources_of)).collect(),
            hosts: hosts(system, units),
            due: vec![false; units as usize],
            flights: (0..readouts * builders).map(|_| VecDeque::new()).collect(),
            queue: Queue::new(),
            now: 0,
            front_ends,
            front,
            event,
            outbox: Vec::new(),
            built: Histogram::new(),
            released: Histogram::new(),
            pause: Stopwatch::default(),
            counted_from: 0,
            before: Before::default(),
            system,
        }
    }

    /// Lets the time of the whole run pass. Everything was counted between warm-up and the last trigger.
    pub(super) fn run(mut self) -> Outcome {
        self.connect();
        let (warm_up, end) = (self.system.warm_up.0.as_nanos() as u64, self.system.duration.0.as_nanos() as u64);
        let last = end + self.system.drain.0.as_nanos() as u64;
        let mut outcome = None;
        while let Some((at, step)) = self.queue.pop() {
            if self.counted_from == 0 && at >= warm_up {
                self.count_from(warm_up.max(1));
            }
            if outcome.is_none() && at >= end {
                self.now = end;
                outcome = Some(Outcome::new(&self));
            }
            if at > last {
                break;
            }
            self.now = at;
            self.step(step);
            if outcome.is_some() && self.readouts.iter().all(|unit| unit.floor > self.front_ends.triggers.issued) {
                break;
            }
        }
        let mut outcome = outcome.unwrap_or_else(|| Outcome::new(&self));
        outcome.close(&self);
        outcome
    }

    /// Everybody knows everybody, and the run is started.
    fn connect(&mut self) {
        let now = Instant::ZERO;
        for unit in 0..self.system.readouts {
            self.manager.machine.node_connected(now, NodeId::readout(unit), Incarnation(1));
        }
        for (unit, builder) in (0..).zip(&mut self.builders) {
            self.manager.machine.node_connected(now, NodeId::builder(unit), Incarnation(1));
            builder.machine.manager_connected(now);
            (0..self.system.readouts).for_each(|readout| builder.machine.readout_connected(now, readout));
        }
        self.readouts.iter_mut().for_each(ReadoutUnit::connect_sources);
        self.manager.machine.start(now, EventKey::new(0, 1), None);
        self.wake(0);
        let gather = self.system.trigger.gather.0.as_nanos() as u64;
        for link in 0..self.system.front_ends {
            // Spread over the interval, as cables of all lengths would.
            let offset = gather * u64::from(link) / u64::from(self.system.front_ends);
            self.queue.push(offset, Step::Gather { link });
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Gather { link } => self.gather(link),
            Step::Sent { network, sender } => {
                let (network, queue, now) = self.network(network);
                network.sent(queue, now, sender);
                self.serve_freed();
            }
            Step::Forwarded { network, port } => {
                let (network, queue, now) = self.network(network);
                network.forwarded(queue, now, port);
                self.serve_freed();
            }
            Step::Arrived { network: Side::Front, flow, bytes } => self.fragments_arrived(flow, bytes),
            Step::Arrived { network: Side::Event, flow, bytes } => self.super_fragments_arrived(flow, bytes),
            Step::Opened { network, flow } => {
                self.network(network).0.join(flow);
                self.serve(network, flow);
            }
            Step::Resend { network, flow } => {
                let (state, _, now) = self.network(network);
                state.resend(now, flow);
                self.serve(network, flow);
            }
            Step::Control { unit, letter } => {
                self.inbox(unit).push(letter);
                self.wake(unit);
            }
            Step::TurnEnd { host } => self.end_turn(host),
            Step::Filtered { builder, slot } => self.filtered(builder, slot),
            Step::Written { builder, slot } => self.written(builder, slot),
        }
    }

    /// What a network's steps need: itself, the queue and the time.
    const fn network(&mut self, side: Side) -> (&mut Network, &mut Queue, u64) {
        let network = match side {
            Side::Front => &mut self.front,
            Side::Event => &mut self.event,
        };
        (network, &mut self.queue, self.now)
    }

    fn gather(&mut self, link: u32) {
        if self.front_ends.has_clock() {
            self.front_ends.gather(self.now, link, &mut self.front);
            self.pause.set(self.now, self.front_ends.triggers.pausing > 0 && !self.front_ends.is_over(self.now));
            if !(self.front_ends.is_over(self.now) && self.front_ends.is_complete(link)) {
                self.queue.push(self.now + self.system.trigger.gather.0.as_nanos() as u64, Step::Gather { link });
            }
        }
        self.serve_front(link);
    }

    fn serve_front(&mut self, link: u32) {
        if !self.front_ends.has_clock() {
            let enough = 2 * self.system.front_network.packet.0;
            self.front_ends.feed(self.now, link, &mut self.front, enough);
        }
        self.front.serve(&mut self.queue, self.now, link);
    }

    pub(super) fn serve(&mut self, side: Side, flow: u32) {
        match side {
            Side::Front => self.serve_front(self.front.flow(flow).sender),
            Side::Event => self.event.serve(&mut self.queue, self.now, self.event.flow(flow).sender),
        }
    }

    fn serve_freed(&mut self) {
        while let Some(link) = self.front.freed.pop() {
            self.serve_front(link);
        }
        while let Some(sender) = self.event.freed.pop() {
            self.event.serve(&mut self.queue, self.now, sender);
        }
    }

    fn fragments_arrived(&mut self, flow: u32, bytes: u32) {
        self.front.arrived(flow, u64::from(bytes));
        let readable = self.front.flow(flow).received;
        if self.front_ends.next_fragment(flow, readable).is_some() {
            let readout = self.front.flow(flow).port;
            let waiting = readable - self.front.flow(flow).consumed;
            let unit = &mut self.readouts[readout as usize];
            unit.most_waiting = unit.most_waiting.max(waiting);
            self.wake(1 + readout);
        }
    }

    fn super_fragments_arrived(&mut self, flow: u32, bytes: u32) {
        self.event.arrived(flow, u64::from(bytes));
        let received = self.event.flow(flow).received;
        self.event.consume(&mut self.queue, self.now, flow, received);
        let builders = self.builders.len() as u32;
        let (readout, builder) = (flow / builders, flow % builders);
        let flight = &mut self.flights[flow as usize];
        let mut came = false;
        while let Some((_, entry)) = flight.pop_front_if(|(end, _)| *end <= received) {
            self.builders[builder as usize].arrived.push((readout as u16, entry));
            came = true;
        }
        if came {
            self.wake(self.builder_unit(builder));
        }
    }

    /// Sends a super-fragment from a readout unit to a builder unit.
    pub(super) fn fly(&mut self, readout: u32, builder: u32, entry: SuperFragmentEntry, bytes: u64) {
        if self.system.placement == Placement::Shared {
            self.builders[builder as usize].arrived.push((readout as u16, entry));
            self.come_again(self.builder_unit(builder));
            return;
        }
        let flow = readout * self.builders.len() as u32 + builder;
        self.flights[flow as usize].push_back((self.event.flow(flow).queued + bytes, entry));
        self.event.offer(flow, bytes);
    }

    fn inbox(&mut self, unit: u32) -> &mut Vec<Letter> {
        let readouts = self.readouts.len() as u32;
        match unit {
            0 => &mut self.manager.inbox,
            unit if unit <= readouts => &mut self.readouts[unit as usize - 1].inbox,
            unit => &mut self.builders[(unit - 1 - readouts) as usize].inbox,
        }
    }

    /// The number of a builder unit among all units.
    pub(super) fn builder_unit(&self, builder: u32) -> u32 {
        1 + self.readouts.len() as u32 + builder
    }

    /// The number of a node among all units.
    pub(super) fn unit_of(&self, node: NodeId) -> u32 {
        match node.role {
            ropewalk_terms::Role::Readout => 1 + u32::from(node.index),
            ropewalk_terms::Role::Builder => self.builder_unit(u32::from(node.index)),
            _ => 0,
        }
    }

    const fn host_of(&self, unit: u32) -> u32 {
        match self.system.placement {
            Placement::Own => unit,
            Placement::Shared => 0,
        }
    }

    /// A unit has something to do.
    pub(super) fn wake(&mut self, unit: u32) {
        self.due[unit as usize] = true;
        let host = self.host_of(unit);
        if !self.hosts[host as usize].working {
            self.begin_turn(host);
        }
    }

    /// A unit has something to do in the next turn of its host, which has one going on.
    pub(super) fn come_again(&mut self, unit: u32) {
        self.due[unit as usize] = true;
    }

    /// Everybody on the host who has something to do does it; what comes of it leaves when the time for it is over.
    fn begin_turn(&mut self, host: u32) {
        let mut work = Work::default();
        for unit in self.hosts[host as usize].units.clone() {
            if !std::mem::take(&mut self.due[unit as usize]) {
                continue;
            }
            let readouts = self.readouts.len() as u32;
            match unit {
                0 => self.turn_manager(&mut work),
                unit if unit <= readouts => self.turn_readout(unit - 1, &mut work),
                unit => self.turn_builder(unit - 1 - readouts, &mut work),
            }
        }
        let state = &mut self.hosts[host as usize];
        let (idle, work) = state.costs.of(work);
        let time = idle + work;
        state.working = true;
        state.busy += work;
        let latency = match self.system.placement {
            Placement::Own => self.system.event_network.latency.0.as_nanos() as u64,
            Placement::Shared => 0,
        };
        for (unit, letter) in self.outbox.drain(..) {
            self.queue.push(self.now + time + latency, Step::Control { unit, letter });
        }
        self.queue.push(self.now + time, Step::TurnEnd { host });
    }

    fn end_turn(&mut self, host: u32) {
        // A unit that is woken meanwhile has its turn in the next one.
        let units = self.hosts[host as usize].units.clone();
        let readouts = self.readouts.len() as u32;
        for unit in units.clone() {
            match unit {
                0 => self.manager_has_sent(),
                unit if unit <= readouts => self.readout_has_sent(unit - 1),
                unit => self.builder_has_built(unit - 1 - readouts),
            }
        }
        self.hosts[host as usize].working = false;
        if units.into_iter().any(|unit| self.due[unit as usize]) {
            self.begin_turn(host);
        }
    }

    /// Forgets what was counted so far.
    fn count_from(&mut self, now: u64) {
        self.counted_from = now;
        self.before = Before { triggered: self.front_ends.triggers.issued, vetoed: self.front_ends.triggers.vetoed };
        self.front.reset(now);
        self.event.reset(now);
        self.hosts.iter_mut().for_each(|host| host.busy = 0);
        self.readouts.iter_mut().for_each(|unit| unit.reset(now));
        self.builders.iter_mut().for_each(|unit| unit.reset(now));
        self.manager.most_assigned = 0;
        self.built.clear();
        self.released.clear();
        self.pause.reset(now);
        self.front_ends.most_kept = 0;
    }
}

fn hosts(system: &System, units: u32) -> Vec<Host> {
    let host = |units, section| Host { costs: Costs::new(section), units, working: false, busy: 0 };
    if system.placement == Placement::Shared {
        return vec![host(0..units, &system.readout.host)];
    }
    let section = |unit: u32| match unit {
        0 => &system.manager.host,
        unit if unit <= u32::from(system.readouts) => &system.readout.host,
        _ => &system.builder.host,
    };
    (0..units).map(|unit| host(unit..unit + 1, section(unit))).collect()
}
