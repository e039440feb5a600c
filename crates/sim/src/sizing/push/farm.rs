//! A node of a farm: the real machine towards each input queue of its gateway, and cores that decide.

use super::system::PushSystem;
use ropewalk_flow::gateway::{FarmNode, FarmNodeConfig};
use ropewalk_flow::source::Random;
use ropewalk_node::quantity::Times;
use ropewalk_terms::{EventKey, Incarnation, Instant};
use ropewalk_wire::gateway::{Frame, Message, PushView};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

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
#[derive(Debug)]
pub(super) struct Node {
    /// By queue of its gateway.
    machines: Vec<FarmNode>,
    /// By flow: how long a decision takes, and which part is accepted.
    flows: Vec<(Times, f64)>,
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
            flows: system.flow.iter().map(|flow| (flow.decision_time, flow.accept)).collect(),
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

    /// What is due is decided: `decided` hears of it, `said` what is to be told to which queue.
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
