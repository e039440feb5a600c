//! Computers of a push system. An input queue of a gateway is the real machine on a core that works in turns, between a socket
//! and a link to the nodes. A node of the farm has the real machine towards each input queue of its gateway, and cores that
//! decide.

use super::sources::Port;
use super::system::{GatewaySection, PushSystem, frames, on_the_wire};
use crate::sizing::units::{Costs, Work};
use ropewalk_flow::gateway::{
    Address, Ending, FarmConfig, FarmNode, FarmNodeConfig, FlowConfig, Gateway, GatewayConfig, Outgoing, PacketSource,
    ReceiveQueue, ThrottleConfig,
};
use ropewalk_flow::source::Random;
use ropewalk_flow::source::TimeDistribution;
use ropewalk_memory::Payload;
use ropewalk_terms::{EventKey, Incarnation, Instant, SourceId};
use ropewalk_wire::gateway::{Frame, Message, PushView, Throttle};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Pushes of one turn, as in the real drive.
const PUSHES: usize = 256;
/// Memory of the link to the nodes: what finds no room stays in the machine.
const LINK_BUFFER: u64 = 256 << 10;

/// Packets of one flow that wait to be taken: its socket.
#[derive(Debug, Default)]
struct Socket {
    packets: VecDeque<(u16, Payload)>,
    bytes: u64,
}

/// What a turn leads to, when the time for it is over.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Events for nodes of the gateway, and when the link has sent them at the earliest.
    pub(super) pushes: Vec<(u16, Vec<u8>, u64)>,
    /// Other words for them.
    pub(super) messages: Vec<(u16, Message)>,
    pub(super) throttle: Option<Throttle>,
    /// Sets that were finished: flow, first event, whether nothing was missing.
    pub(super) finished: Vec<(u8, u64, bool)>,
}

/// An input queue.
pub(super) struct InputQueue {
    pub(super) machine: Gateway,
    sockets: Vec<Socket>,
    /// The flow of each socket.
    flows: Vec<u8>,
    room: u64,
    batch: usize,
    mtu: u64,
    mail: Vec<Message>,
    costs: Costs,
    pub(super) output: Port,
    /// A turn is going on.
    pub(super) is_working: bool,
    /// Packets may be left that were not taken, or pushes.
    has_more: bool,
    /// When it is to be woken, if nothing happens before.
    pub(super) alarm: u64,
    pub(super) results: Results,
    pub(super) busy: u64,
    /// Packets that found no room in a socket, and the most bytes in one.
    pub(super) lost: u64,
    pub(super) most_waiting: u64,
    /// By flow: the most sets that were in use.
    pub(super) most_sets: Vec<u64>,
}

impl InputQueue {
    pub(super) fn new(system: &PushSystem, queue: u16) -> Self {
        let GatewaySection { output, socket, batch, mtu, host, .. } = &system.gateway;
        let machine = Gateway::new(&config(system, queue)).expect("the file was checked");
        Self {
            machine,
            sockets: system.flow.iter().map(|_| Socket::default()).collect(),
            flows: (0..system.flow.len() as u8).collect(),
            room: socket.0,
            batch: *batch as usize,
            mtu: mtu.0,
            mail: Vec::new(),
            costs: Costs::of_queue(host),
            output: Port::new(output.bytes_per_second, LINK_BUFFER),
            is_working: false,
            has_more: false,
            alarm: u64::MAX,
            results: Results::default(),
            busy: 0,
            lost: 0,
            most_waiting: 0,
            most_sets: vec![0; system.flow.len()],
        }
    }

    /// A packet has come; false where its socket has no room.
    pub(super) fn arrived(&mut self, flow: u8, source: u16, packet: Payload) -> bool {
        let socket = &mut self.sockets[usize::from(flow)];
        let bytes = packet.len() as u64;
        if socket.bytes + bytes > self.room {
            self.lost += 1;
            return false;
        }
        socket.bytes += bytes;
        socket.packets.push_back((source, packet));
        self.most_waiting = self.most_waiting.max(socket.bytes);
        true
    }

    /// A node says something.
    pub(super) fn told(&mut self, message: Message) {
        self.mail.push(message);
    }

    /// Does what there is to do; how long that takes.
    pub(super) fn turn(&mut self, now: u64) -> u64 {
        let mut work = Work::default();
        let instant = Instant::from_nanoseconds(now);
        self.has_more = false;
        for flow in 0..self.sockets.len() {
            self.receive(flow as u8, instant, &mut work);
        }
        let waiting = |socket: &Socket| ReceiveQueue { used: socket.bytes, room: self.room, packet: 0 };
        self.machine.receiver().on_queues(self.flows.chunks(1).zip(self.sockets.iter().map(waiting)), instant);
        for message in self.mail.drain(..) {
            self.machine.on_message(&message, instant);
            work.messages += 1;
        }
        let finished = &mut self.results.finished;
        self.machine.turn(instant, |set| {
            finished.push((set.flow(), set.first().number(), set.ending() == Ending::Complete));
        });
        let blocked_until = self.push(now, &mut work);
        self.say(instant, &mut work);
        while self.machine.next_stored().is_some() {
            self.machine.stored();
        }
        for (most, level) in self.most_sets.iter_mut().zip(self.machine.throttle().levels()) {
            *most = (*most).max(level.used);
        }
        let (idle, time) = self.costs.of(work);
        self.busy += time;
        self.is_working = true;
        let deadline = self.machine.next_deadline().as_nanoseconds();
        self.alarm = deadline.min(blocked_until.unwrap_or(u64::MAX)).max(now + 1000);
        idle + time
    }

    fn receive(&mut self, flow: u8, now: Instant, work: &mut Work) {
        let socket = &mut self.sockets[usize::from(flow)];
        for _ in 0..self.batch {
            let Some((source, packet)) = socket.packets.pop_front() else {
                self.machine.receiver().on_drained(flow, now);
                return;
            };
            let bytes = packet.len() as u64;
            if let Some(packet) = self.machine.on_packet(flow, address(source), packet, now) {
                // No set is free: it stays where it is until one is.
                socket.packets.push_front((source, packet));
                return;
            }
            socket.bytes -= bytes;
            work.fragments += 1;
            work.received += bytes;
        }
        self.has_more |= !socket.packets.is_empty();
    }

    /// Hands over pushes, as long as the link has room; until when it has none, otherwise.
    fn push(&mut self, now: u64, work: &mut Work) -> Option<u64> {
        for _ in 0..PUSHES {
            let node = self.machine.next_push()?;
            let view = self.machine.push_view();
            let length = view.length() as u64;
            let on_the_wire = on_the_wire(self.mtu, length);
            if let Err(until) = self.output.room_for(now, on_the_wire) {
                return Some(until);
            }
            let mut bytes = Vec::with_capacity(view.length());
            view.pieces().for_each(|piece| bytes.extend_from_slice(piece));
            let leaves = self.output.take(now, on_the_wire).unwrap_or(now);
            self.results.pushes.push((node, bytes, leaves));
            self.machine.sent(Instant::from_nanoseconds(now));
            work.frames += frames(self.mtu, length);
            work.sent += length;
        }
        self.has_more = true;
        None
    }

    fn say(&mut self, now: Instant, work: &mut Work) {
        while let Some(message) = self.machine.next_message(now) {
            work.messages += 1;
            match message {
                Outgoing::Progress(node, progress) => self.results.messages.push((node, Message::Progress(progress))),
                Outgoing::Throttle(throttle) => self.results.throttle = Some(throttle),
                // Decisions leave in order; nothing here waits for them.
                Outgoing::Stream(_) => {}
            }
        }
    }

    /// The turn is over: whether there is something to do at once.
    pub(super) fn end_turn(&mut self) -> bool {
        self.is_working = false;
        self.has_more || !self.mail.is_empty()
    }

    /// Packets that came and were not taken.
    pub(super) fn waiting(&self) -> u64 {
        self.sockets.iter().map(|socket| socket.packets.len() as u64).sum()
    }

    /// Packets and events that are in the machine.
    pub(super) fn in_flight(&self) -> u64 {
        let accounts = (0..self.sockets.len() as u8).map(|flow| self.machine.account(flow));
        accounts.map(|(packets, events)| packets.packets.in_flight + events.events.in_flight).sum()
    }

    /// Counts anew from here.
    pub(super) fn reset(&mut self) {
        (self.busy, self.lost, self.most_waiting) = (0, 0, 0);
        self.most_sets.fill(0);
        self.output.reset();
    }
}

/// Where a source's packets come from: flows have tables of their own.
fn address(source: u16) -> Address {
    Address::of(Ipv4Addr::from_bits(0x0A00_0001 + u32::from(source)))
}

fn config(system: &PushSystem, queue: u16) -> GatewayConfig {
    let flows = system.flow.iter().map(|section| {
        let source = |source| PacketSource { id: SourceId(source), address: address(source as u16) };
        FlowConfig {
            sets: section.sets,
            assembling: section.sets / 2,
            timeout: section.timeout.0,
            output: section.output,
            decision_timeout: section.decision_timeout.0,
            budget: section.budget.0,
            ..FlowConfig::new((0..u32::from(section.sources)).map(source).collect(), section.packing)
        }
    });
    let farm = FarmConfig {
        largest_push: system.gateway.largest_push.0 as usize,
        most_outstanding: system.farm.outstanding,
        ..FarmConfig::new(system.farm.nodes)
    };
    let throttle = ThrottleConfig { latency: system.gateway.throttle.0, ..ThrottleConfig::default() };
    GatewayConfig { throttle, ..GatewayConfig::new(queue, flows.collect(), farm) }
}

/// How often a node says that it is there.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// How long it waits for the rest of an event.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest event.
const LARGEST_EVENT: u32 = 1 << 26;

/// An event of one of the queues, by its place there.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Task {
    queue: usize,
    sequence: u64,
    flow: u8,
    key: EventKey,
}

/// A node.
pub(super) struct Node {
    /// By queue of its gateway.
    machines: Vec<FarmNode>,
    /// By flow: how long a decision takes, and which part is accepted.
    flows: Vec<(TimeDistribution, f64)>,
    cores: usize,
    random: Random,
    waiting: VecDeque<Task>,
    /// Until when, which event, since when.
    working: BinaryHeap<Reverse<(u64, Task, u64)>>,
    counted_from: u64,
    /// When it is to be woken, if nothing happens before.
    pub(super) alarm: u64,
    /// Nanoseconds of decisions that ended, of all cores together.
    pub(super) busy: u64,
    pub(super) most_waiting: u64,
}

impl Node {
    /// Node `node` of the gateway whose first input queue is `first_queue`.
    pub(super) fn new(system: &PushSystem, first_queue: u16, node: u16) -> Self {
        let machine = |queue| {
            FarmNode::new(FarmNodeConfig {
                node,
                incarnation: Incarnation(1),
                gateway: first_queue + queue,
                window: system.farm.outstanding,
                heartbeat: HEARTBEAT,
                patience: PATIENCE,
                largest_event: LARGEST_EVENT,
            })
        };
        Self {
            machines: (0..system.gateway.queues).map(machine).collect(),
            flows: system.flow.iter().map(|flow| (flow.decision_time.0, flow.accept)).collect(),
            cores: system.farm.cores as usize,
            random: Random::new(system.seed, 0xfa << 32 | u64::from(first_queue) << 16 | u64::from(node)),
            waiting: VecDeque::new(),
            working: BinaryHeap::new(),
            counted_from: 0,
            alarm: u64::MAX,
            busy: 0,
            most_waiting: 0,
        }
    }

    /// Events come from a queue of its gateway, or another word.
    pub(super) fn hear(&mut self, queue: usize, bytes: &[u8], now: u64) {
        let machine = &mut self.machines[queue];
        let at = Instant::from_nanoseconds(now);
        let Ok((_, body, _)) = Frame::split(bytes) else { return };
        let Ok(push) = PushView::parse(body) else { return };
        machine.on_push(&push, at);
        while let Some(event) = machine.next_event() {
            let task = Task { queue, sequence: event.head.sequence, flow: event.head.flow, key: event.head.key };
            self.waiting.push_back(task);
        }
        self.begin(now);
        self.most_waiting = self.most_waiting.max(self.waiting.len() as u64);
    }

    /// A queue says how far the numbers have come.
    pub(super) fn hear_message(&mut self, queue: usize, message: &Message, now: u64) {
        if let Message::Progress(progress) = message {
            self.machines[queue].on_progress(progress, Instant::from_nanoseconds(now));
        }
    }

    fn begin(&mut self, now: u64) {
        while self.working.len() < self.cores {
            let Some(task) = self.waiting.pop_front() else { return };
            let time = self.flows[usize::from(task.flow)].0.next(&mut self.random).as_nanos() as u64;
            self.working.push(Reverse((now + time, task, now)));
        }
    }

    /// Finishes the tasks that are due. Calls `decided` for each decided event, and `said` with each message and its
    /// queue.
    pub(super) fn turn(
        &mut self,
        now: u64,
        mut decided: impl FnMut(u8, EventKey),
        mut said: impl FnMut(usize, Message),
    ) {
        while let Some(&Reverse((until, task, since))) =
            self.working.peek().filter(|Reverse((until, ..))| *until <= now)
        {
            self.working.pop();
            self.busy += until.saturating_sub(since.max(self.counted_from));
            let accept = self.random.unit() < self.flows[usize::from(task.flow)].1;
            if self.machines[task.queue].decide(task.sequence, accept, 0) {
                decided(task.flow, task.key);
            }
            self.begin(until);
        }
        let at = Instant::from_nanoseconds(now);
        let mut alarm = self.working.peek().map_or(u64::MAX, |Reverse((until, ..))| *until);
        for (queue, machine) in self.machines.iter_mut().enumerate() {
            machine.on_time(at);
            while let Some(message) = machine.next_message(at) {
                said(queue, message);
            }
            alarm = alarm.min(machine.next_deadline().as_nanoseconds());
        }
        self.alarm = alarm.max(now + 1);
    }

    /// Counts anew from here.
    pub(super) const fn reset(&mut self, now: u64) {
        (self.busy, self.most_waiting, self.counted_from) = (0, 0, now);
    }
}
