//! The receiving half of an input queue: it assembles sets of events from packets, and sends the throttle's state to
//! the triggers.

use super::GatewayDriveConfig;
use super::boards::{Order, Read, ThrottleBoard};
use super::link::send_bytes;
use super::report::{GatewayHistograms, GatewayReport};
use ropewalk_flow::gateway as machine;
use ropewalk_flow::gateway::{self, Address, EventSet, ReceiveQueue};
use ropewalk_io::packet::{MemoryInUse, Packet, QueueInUse, Receiver, Refusal, Sender, over_v4};
use ropewalk_memory::Staging;
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::gateway::{Message, ThrottleState};
use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The parts of the receiving half of an input queue.
#[derive(Debug)]
pub struct ReceivingParts<R, S> {
    /// Inputs of packets: a receiver for each flow, or one for all of them. In the latter case the number of the
    /// address that a packet was sent to ([`Packet::to`](ropewalk_io::packet::Packet::to)) determines its flow.
    pub inputs: Vec<R>,
    /// Output of the throttle's state and of requests to triggers.
    pub triggers: S,
    /// Board that shows the throttle's state to hardware.
    pub board: Option<Arc<ThrottleBoard>>,
    /// Memory for packets that are moved, because too much of their receive memory is held.
    pub evacuated: Staging,
}

/// The receiving half; see the module documentation.
pub(super) struct Receiving<R, S> {
    config: Arc<GatewayDriveConfig>,
    machine: machine::Receiver,
    inputs: Vec<Input<R>>,
    triggers: S,
    board: Option<Arc<ThrottleBoard>>,
    /// The state shown on the board.
    shown: Option<ThrottleState>,
    /// Position up to which orders were read.
    read: Read,
    staging: Staging,
    /// An encoded message, and the peers that it still has to be sent to.
    message: Vec<u8>,
    unsent: Vec<SocketAddrV4>,
    /// Flows whose last event is known.
    stopped: Vec<bool>,
    /// Time from which on no packets are in flight after the last event, unless one arrives before.
    quiet_from: Instant,
    ask_at: Instant,
    /// When to measure the queues in front of the inputs again, and the maximum so far.
    look_at: Instant,
    most_waiting: QueueInUse,
}

/// Interval of the queries to the kernel about lost packets.
const ASK: Duration = Duration::from_secs(1);
/// Interval of the measurement of the queues in front of the inputs. Sockets ask the kernel, at the cost of a packet or
/// two.
const LOOK: Duration = Duration::from_micros(200);
/// Time without a packet after the last event, after which no packets are in flight.
const QUIET: Duration = Duration::from_millis(200);
/// Maximum number of messages in one turn.
const MESSAGES: usize = 16;

impl<R: Receiver, S: Sender> Receiving<R, S> {
    pub(super) fn new(
        config: Arc<GatewayDriveConfig>,
        machine: machine::Receiver,
        parts: ReceivingParts<R, S>,
    ) -> Self {
        let (flows, triggers) = (config.machine.flows.len(), config.triggers.len());
        let ReceivingParts { inputs, triggers: sender, board, evacuated } = parts;
        let is_apart = inputs.len() == flows;
        config.histograms.renew(|told| *told = GatewayHistograms::of(&config.machine, &machine));
        let flows_of = |place: u8| if is_apart { vec![place] } else { (0..flows as u8).collect() };
        let inputs = (0..).zip(inputs).map(|(place, input)| Input::new(input, flows_of(place), config.batch)).collect();
        Self {
            config,
            machine,
            inputs,
            triggers: sender,
            board,
            shown: None,
            read: Read::default(),
            staging: evacuated,
            message: Vec::with_capacity(2048),
            unsent: Vec::with_capacity(triggers),
            stopped: vec![false; flows],
            quiet_from: Instant::ZERO,
            ask_at: Instant::ZERO,
            look_at: Instant::ZERO,
            most_waiting: QueueInUse::default(),
        }
    }

    /// Returns the state machine.
    pub(super) const fn machine(&self) -> &machine::Receiver {
        &self.machine
    }

    /// Returns the use of each input's memory.
    pub(super) fn memory_in_use(&mut self) -> impl Iterator<Item = MemoryInUse> {
        self.inputs.iter_mut().map(|input| input.receiver.memory_in_use())
    }

    /// Receives a batch of packets from each input.
    pub(super) fn receive(&mut self, now: Instant) -> usize {
        let (mut work, mut fullest) = (0, 0);
        // Packets behind one that waits for a set were not inspected yet.
        let had_waiting = self.inputs.iter().any(Input::is_waiting);
        for input in &mut self.inputs {
            let used = input.receiver.memory_in_use();
            fullest = fullest.max(self.config.memory * used.held as u64 / used.all.max(1) as u64);
            let must_move = used.is_above(self.config.evacuate_above);
            work += input.receive(&mut self.machine, must_move.then_some(&mut self.staging), now);
        }
        self.machine.on_pool(fullest, self.config.memory, now);
        if now >= self.look_at {
            self.look_at_queues(now);
        }
        if work > 0 || had_waiting {
            self.quiet_from = now.after(QUIET);
        }
        work
    }

    /// Measures the queues in front of the inputs.
    fn look_at_queues(&mut self, now: Instant) {
        self.look_at = now.after(LOOK);
        let Self { inputs, machine, most_waiting, .. } = self;
        let queues = inputs.iter_mut().map(|input| {
            let queue @ QueueInUse { used, room, packet } = input.receiver.queue_in_use();
            if used >= most_waiting.used {
                *most_waiting = queue;
            }
            (input.flows.as_slice(), ReceiveQueue { used, room, packet })
        });
        machine.on_queues(queues, now);
    }

    /// Advances the time. Without nodes no packets can be processed, so that triggers are stopped.
    pub(super) fn on_time(&mut self, has_nodes: bool, now: Instant) {
        self.machine.on_time(now);
        self.machine.set_error(!has_nodes, now);
        // Before the orders: those given before a run begins apply from its first event on.
        self.machine.set_held(self.config.is_held.load(Ordering::Acquire), now);
        if self.config.orders.has_news(&self.read) {
            self.read_orders(now);
        }
        let state = self.machine.throttle().state();
        if let Some(board) = &self.board
            && self.shown != Some(state)
        {
            self.shown = Some(state);
            board.show(state);
        }
    }

    /// Returns when to report again.
    pub(super) fn renews(&self, now: Instant) -> Instant {
        now.after(self.config.orders.interval())
    }

    /// Reads the new orders of run control.
    #[cold]
    fn read_orders(&mut self, now: Instant) {
        let Self { config, machine, read, .. } = self;
        config.orders.read(read, |order| match order {
            Order::Mask(source, is_masked) => machine.mask(source, is_masked),
            Order::SetTimeout(flow, timeout) => machine.set_timeout(flow as u8, timeout, now),
            // For the other half.
            Order::SetPrescale(..) => {}
        });
    }

    /// Returns the next finished set, for the other half.
    pub(super) fn take_set(&mut self) -> Option<EventSet> {
        self.machine.take_set()
    }

    /// Takes back an empty set.
    pub(super) fn give_back(&mut self, set: EventSet) {
        self.machine.give_back(set);
    }

    /// Sends messages to triggers.
    pub(super) fn tell(&mut self, now: Instant) -> usize {
        for told in 0..MESSAGES {
            while let Some(&to) = self.unsent.last() {
                match send_bytes(&mut self.triggers, to, &self.message, now) {
                    Err(Refusal::Full) => return told,
                    Ok(()) | Err(Refusal::TooLarge) => drop(self.unsent.pop()),
                }
            }
            self.message.clear();
            if !self.next_message(now) {
                return told;
            }
        }
        MESSAGES
    }

    /// Encodes the next message. Returns false if no message waits.
    fn next_message(&mut self, now: Instant) -> bool {
        if let Some(throttle) = self.machine.next_throttle(now) {
            self.unsent.extend(self.config.triggers.iter().flatten());
            Message::Throttle(throttle).encode(&mut self.message);
            return true;
        }
        self.config.requests && self.next_request(now)
    }

    fn next_request(&mut self, now: Instant) -> bool {
        let utc = Duration::from_nanos(self.config.epoch.0.saturating_add_unsigned(now.as_nanoseconds()) as u64);
        for (flow, trigger) in (0..).zip(&self.config.triggers) {
            let Some(trigger) = trigger else { continue };
            if let Some(request) = self.machine.next_request(flow, utc, now) {
                self.unsent.push(*trigger);
                self.message.extend_from_slice(&request.to_bytes());
                return true;
            }
        }
        false
    }

    pub(super) fn flush(&mut self, now: Instant) -> usize {
        self.triggers.flush(now)
    }

    /// Returns whether all flows have ended. Each flow gets its last event once that is known. The packets of the last
    /// triggers may be in flight then, even after a long silence.
    pub(super) fn have_stopped(&mut self, now: Instant) -> bool {
        for (flow, gate) in (0u8..).zip(&self.config.gates) {
            let stopped = &mut self.stopped[usize::from(flow)];
            if *stopped {
                continue;
            }
            let Some(gate) = gate else {
                *stopped = self.config.is_over.load(Ordering::Relaxed);
                continue;
            };
            if let Some(issued) = gate.last() {
                *stopped = true;
                let first = self.config.machine.flows[usize::from(flow)].first_event;
                self.machine.stop_after(flow, (first + issued).saturating_sub(1));
            }
        }
        let have_all = self.stopped.iter().all(|stopped| *stopped);
        if have_all {
            self.quiet_from = self.quiet_from.max(now.after(QUIET));
        }
        have_all
    }

    /// Returns whether all sets are here and empty, and no packet waits for one.
    pub(super) fn is_empty(&self) -> bool {
        self.machine.is_empty() && !self.inputs.iter().any(Input::is_waiting)
    }

    /// Returns whether packets have been absent long enough that none can be in flight.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now >= self.quiet_from
    }

    /// Finishes incomplete sets as they are, and refuses packets that wait for a set.
    pub(super) fn close(&mut self, now: Instant) {
        self.machine.close_all(Cause::DrainTimedOut);
        for input in &mut self.inputs {
            input.offer_waiting(&mut self.machine, now);
        }
    }

    /// Returns whether all messages were sent.
    pub(super) fn has_told(&self) -> bool {
        self.unsent.is_empty() && self.triggers.queued() == 0
    }

    /// Adds this half's part to the report. The inputs' own counters and users' histograms are added periodically, and
    /// to the last report.
    pub(super) fn report(&mut self, report: &mut GatewayReport, is_last: bool, now: Instant) {
        let asks = is_last || now >= self.ask_at;
        if asks {
            self.ask_at = now.after(ASK);
            report.received.clear();
            report.received.extend(self.inputs.iter_mut().map(|input| input.receiver.counters()));
            GatewayHistograms::renew(&self.config.histograms, report.flows.len() as u8, &self.machine);
        }
        for (flow, known) in (0..).zip(&mut report.flows) {
            known.packets = self.machine.account(flow);
            known.by_source.copy_from_slice(self.machine.by_source(flow));
            known.unclaimed = self.machine.finished_sets(flow) as u64;
            self.machine.masking(flow).into_iter().for_each(|masking| known.tell_masks(masking));
        }
        let throttle = self.machine.throttle();
        (report.state, (report.live, report.dead)) = (throttle.state(), throttle.live_and_dead());
        report.stops.clear();
        report.stops.extend(throttle.levels().map(|level| (level.dead, level.stops)));
        let sets = throttle.levels().take(report.flows.len());
        report.sets = sets.fold((0, 0), |(used, all), level| (used + level.used, all + level.capacity));
        report.most_waiting = self.most_waiting;
        report.evacuated = self.inputs.iter().map(|input| input.evacuated).sum();
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let inputs = self.inputs.iter().filter(|input| !input.is_waiting());
        let inputs = inputs.filter_map(|input| input.receiver.next_deadline());
        let look = self.machine.has_full_queue().then_some(self.look_at);
        inputs.chain(look).chain([self.machine.next_deadline()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        let has_told = self.has_told();
        // Inputs that wait for a set wait for nodes or for time, and would be woken in vain.
        let inputs = self.inputs.iter_mut().filter(|input| !input.is_waiting());
        inputs.fold(has_told, |may_sleep, input| input.receiver.prepare_wait() && may_sleep)
    }

    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        let inputs = self.inputs.iter().filter(|input| !input.is_waiting());
        into.extend(inputs.filter_map(|input| input.receiver.wait_descriptor()));
    }
}

/// The packets of one receiver, mostly those of one flow. Packets for which there is no set yet wait here. All later
/// ones stay in the kernel, whose buffer is larger than a gateway's table needs to be.
pub(super) struct Input<R> {
    pub(super) receiver: R,
    /// The flow of each of the receiver's addresses.
    pub(super) flows: Vec<u8>,
    /// Maximum number of packets that the receiver hands on at once.
    batch: usize,
    packets: Vec<Packet>,
    waiting: VecDeque<Packet>,
    /// Number of packets that were copied because too much of their memory was held.
    pub(super) evacuated: u64,
}

impl<R: Receiver> Input<R> {
    pub(super) fn new(receiver: R, flows: Vec<u8>, batch: usize) -> Self {
        let (packets, waiting) = (Vec::with_capacity(2 * batch), VecDeque::with_capacity(2 * batch));
        Self { receiver, flows, batch, packets, waiting, evacuated: 0 }
    }

    /// Returns whether packets wait for a set.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Offers packets to the machine, a batch at most. With an `evacuation`, too much of the receive memory is held:
    /// packets of the set that has waited longest are copied to it, or new packets if no set waits, as long as it has
    /// room. Returns how many packets were taken from the receiver.
    pub(super) fn receive(
        &mut self,
        machine: &mut gateway::Receiver,
        evacuation: Option<&mut Staging>,
        now: Instant,
    ) -> usize {
        // The oldest waiting packets go first, because a ring stops at them.
        let left = evacuation.and_then(|room| {
            let moved: u64 = self.flows.iter().map(|&flow| machine.evacuate(flow, room)).sum();
            self.evacuated += moved;
            (moved == 0).then_some(room)
        });
        if !self.offer_waiting(machine, now) {
            return 0;
        }
        let received = self.receiver.receive(now, &mut self.packets);
        if let Some(evacuation) = left {
            self.evacuate(evacuation);
        }
        let mut packets = self.packets.drain(..);
        while let Some(Packet { from, to, payload, came }) = packets.next() {
            let flow = self.flows.get(usize::from(to)).copied().unwrap_or(u8::MAX);
            if let Some(payload) = machine.on_packet(flow, address(from), payload, now) {
                self.waiting.push_back(Packet { from, to, payload, came });
                self.waiting.extend(packets);
                // Packets of the other flows that share the input wait behind it.
                self.flows.iter().for_each(|&flow| machine.on_blocked(flow));
                return received;
            }
        }
        if received < self.batch {
            self.flows.iter().for_each(|&flow| machine.on_drained(flow, now));
        }
        received
    }

    /// Offers waiting packets. Returns false if there is still no set for them.
    fn offer_waiting(&mut self, machine: &mut gateway::Receiver, now: Instant) -> bool {
        while let Some(Packet { from, to, payload, came }) = self.waiting.pop_front() {
            let flow = self.flows.get(usize::from(to)).copied().unwrap_or(u8::MAX);
            if let Some(payload) = machine.on_packet(flow, address(from), payload, now) {
                self.waiting.push_front(Packet { from, to, payload, came });
                return false;
            }
        }
        true
    }

    /// Copies packets, to free their receive memory.
    fn evacuate(&mut self, staging: &mut Staging) {
        for packet in &mut self.packets {
            let Some(copy) = packet.payload.evacuate(staging) else { return };
            packet.payload = copy;
            self.evacuated += 1;
        }
    }
}

/// Sources have IPv4 addresses. Any other address belongs to no source.
fn address(from: SocketAddr) -> Address {
    let from = over_v4(from);
    Address { ip: *from.ip(), port: from.port() }
}
