//! One input queue: assembly, farm and throttle together, or as two halves for two threads.

use super::account::{FarmAccount, FlowAccount, SourceAccount};
use super::assembly::Assembly;
use super::config::{FlowConfig, GatewayConfig, GatewayConfigError};
use super::dispatch::PushBytes;
use super::farm::Farm;
use super::local::LocalCounts;
use super::set::{EventSet, GatheredEvent};
use super::sources::{Address, Masking};
use super::throttle::{Level, ReceiveQueue, Throttle};
use ropewalk_memory::{Payload, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, Ledger, SourceId};
use ropewalk_wire::gateway::{Credit, Decisions, Message, Progress, Stream, ThrottleState};
use ropewalk_wire::mep::MepRequest;

/// An outgoing message.
#[expect(clippy::large_enum_variant, reason = "it is polled out and sent at once: an allocation would cost more")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outgoing {
    /// For a node.
    Progress(u16, Progress),
    /// For subscribers of decisions in the order of events.
    Stream(Stream),
    /// For the trigger.
    Throttle(ropewalk_wire::gateway::Throttle),
}

/// Requests to the trigger for a flow.
#[derive(Copy, Clone, Debug, Default)]
struct Asked {
    sequence: u32,
    /// Sets that were requested and have not begun.
    awaited: u64,
    /// Sets that had begun at the last count.
    begun: u64,
    at: Instant,
}

/// The receiving half: assembles packets into sets; its throttle watches the free room.
#[derive(Debug)]
pub struct Receiver {
    flows: Box<[Assembly]>,
    config: GatewayConfig,
    asked: Box<[Asked]>,
    throttle: Throttle,
    /// Number of implausible packets at the last look.
    jumps: u64,
    jumped: Option<Instant>,
}

impl Receiver {
    fn new(config: &GatewayConfig) -> Self {
        let level = |(index, flow): (usize, &FlowConfig)| {
            let capacity = u64::from(flow.sets);
            Level::new(capacity, config.throttle.sets(index, flow.packing, capacity))
        };
        // The last two levels are the packet pool and the receive queue; only the drive knows their sizes.
        let unknown = [Level::new(u64::MAX, 0); 2];
        let levels = config.flows.iter().enumerate().map(level).chain(unknown).collect();
        Self {
            flows: (0..).zip(&config.flows).map(|(index, flow)| Assembly::new(index, flow)).collect(),
            config: config.clone(),
            asked: vec![Asked::default(); config.flows.len()].into_boxed_slice(),
            throttle: Throttle::new(config.gateway, config.incarnation, &config.throttle, levels),
            jumps: 0,
            jumped: None,
        }
    }

    /// Processes a packet of a flow; see [`Assembly::on_packet`] for the returned packet.
    #[inline]
    #[must_use = "a packet that comes back is in no account"]
    pub fn on_packet(&mut self, flow: u8, from: Address, packet: Payload, now: Instant) -> Option<Payload> {
        self.flows.get_mut(usize::from(flow))?.on_packet(from, packet, now)
    }

    /// Records that all packets of a flow that arrived until now were processed; see [`Assembly::on_drained`].
    pub fn on_drained(&mut self, flow: u8, now: Instant) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.on_drained(now);
        }
    }

    /// Records that packets of a flow may wait unprocessed; see [`Assembly::on_blocked`].
    pub fn on_blocked(&mut self, flow: u8) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.on_blocked();
        }
    }

    /// Frees receive memory of a flow; see [`Assembly::evacuate`].
    pub fn evacuate(&mut self, flow: u8, room: &mut Staging) -> u64 {
        self.flows.get_mut(usize::from(flow)).map_or(0, |flow| flow.evacuate(room))
    }

    /// Handles time-outs and updates the throttle.
    pub fn on_time(&mut self, now: Instant) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.on_time(now);
            let used = usize::from(self.config.flows[index].sets) - flow.empty_sets();
            self.throttle.observe(index, used as u64, now);
        }
        self.look_for_jumps(now);
    }

    /// Implausible numbers count as out of sync until none has come for the time-out of a set.
    fn look_for_jumps(&mut self, now: Instant) {
        let jumps = self.flows.iter().map(Assembly::jumps).sum();
        if jumps != self.jumps {
            (self.jumps, self.jumped) = (jumps, Some(now));
        }
        let patience = self.config.flows.iter().map(|flow| flow.timeout).max().unwrap_or_default();
        let is_out = self.jumped.is_some_and(|at| now < at.after(patience));
        self.throttle.set_out_of_sync(is_out, now);
    }

    /// Sets the use of the packet pool, in bytes of whole blocks.
    pub fn on_pool(&mut self, used: u64, capacity: u64, now: Instant) {
        let size = Level::new(capacity, self.config.throttle.bytes(capacity));
        self.throttle.observe_sized(self.flows.len(), size, used, now);
    }

    /// Sets the fill level of the receive queues, each with the flows whose packets wait there. The queue that leaves
    /// the least room until the trigger must stop counts.
    pub fn on_queues<'a>(&mut self, queues: impl Iterator<Item = (&'a [u8], ReceiveQueue)>, now: Instant) {
        let level = |(flows, queue): (&[u8], ReceiveQueue)| {
            let wanted = self.config.wanted_queue(flows, queue.packet);
            Level { used: queue.used, ..Level::new(queue.room, self.config.throttle.queue(wanted, queue.room)) }
        };
        if let Some(fullest) = queues.map(level).min_by_key(Level::left) {
            self.throttle.observe_sized(self.flows.len() + 1, fullest, fullest.used, now);
        }
    }

    /// Whether waiting packets stop the triggers, or soon will: [`Receiver::on_queues`] must be called again.
    pub fn has_full_queue(&self) -> bool {
        self.throttle.levels().nth(self.flows.len() + 1).is_some_and(|queue| queue.state != ThrottleState::Ready)
    }

    /// Sets or clears the error state: a required part is broken, for example no node is connected.
    pub fn set_error(&mut self, is_on: bool, now: Instant) {
        self.throttle.set_error(is_on, now);
    }

    /// Lets run control stop or resume triggers. Packets that arrive nevertheless are accepted.
    pub fn set_held(&mut self, is_on: bool, now: Instant) {
        self.throttle.set_held(is_on, now);
    }

    /// Masks or unmasks a source in sets that are opened from now on; see [`Assembly::mask`]. Unknown sources are
    /// ignored.
    pub fn mask(&mut self, source: SourceId, is_masked: bool) {
        for (known, flow) in self.config.flows.iter().zip(&mut self.flows) {
            if let Some(place) = known.sources.iter().position(|one| one.id == source) {
                flow.mask(place as u16, is_masked);
            }
        }
    }

    /// Sets the time-out of sets of a flow that are opened from now on; see [`Assembly::set_timeout`].
    pub fn set_timeout(&mut self, flow: u8, timeout: core::time::Duration, now: Instant) {
        let index = usize::from(flow);
        if let (Some(known), Some(flow)) = (self.config.flows.get_mut(index), self.flows.get_mut(index)) {
            known.timeout = timeout;
            flow.set_timeout(timeout, now);
        }
    }

    /// Returns the contents of a flow's histograms; see [`Assembly::histograms`].
    pub fn histograms(&self, flow: u8) -> impl Iterator<Item = (u16, u8, &[u64])> {
        self.flows.get(usize::from(flow)).into_iter().flat_map(Assembly::histograms)
    }

    /// Returns which sources of a flow were masked, from which event to which.
    pub fn masking(&self, flow: u8) -> Option<&Masking> {
        self.flows.get(usize::from(flow)).map(Assembly::masking)
    }

    /// Takes the next finished set, for [`Sender::on_set`]; dropped sets too.
    pub fn take_set(&mut self) -> Option<EventSet> {
        self.flows.iter_mut().find_map(Assembly::take_finished)
    }

    /// Takes back an empty set from [`Sender::take_empty`].
    pub fn give_back(&mut self, set: EventSet) {
        let flow = usize::from(set.flow());
        self.flows[flow].give_back(set);
    }

    /// Returns the throttle's state, if it is due.
    pub fn next_throttle(&mut self, now: Instant) -> Option<ropewalk_wire::gateway::Throttle> {
        self.throttle.next_message(now)
    }

    /// Returns a request for packets of a flow, if there is room for more than was requested; `utc` is the time of the
    /// request, for display.
    ///
    /// Requested sets that do not begin within twice the time-out of a set count as lost.
    pub fn next_request(&mut self, flow: u8, utc: core::time::Duration, now: Instant) -> Option<MepRequest> {
        let index = usize::from(flow);
        let (assembly, asked) = (self.flows.get(index)?, &mut self.asked[index]);
        let begun = assembly.sets_seen();
        asked.awaited = asked.awaited.saturating_sub(begun - asked.begun);
        let is_over = now >= asked.at.after(2 * self.config.flows[index].timeout);
        if begun != asked.begun || is_over {
            asked.at = now;
        }
        if is_over && begun == asked.begun && !is_planted(Flaw::PacketRequestNotRepeated) {
            asked.awaited = 0;
        }
        asked.begun = begun;
        let room = (assembly.empty_sets() as u64).saturating_sub(asked.awaited);
        let count = u8::try_from(room).unwrap_or(u8::MAX);
        // Small requests would cost a message each.
        if count == 0 || (asked.awaited > 0 && room < u64::from(self.config.flows[index].sets).div_ceil(8)) {
            return None;
        }
        asked.awaited += u64::from(count);
        asked.sequence += 1;
        let (sequence, run) = (asked.sequence, self.config.run);
        Some(MepRequest { count, sequence, run, seconds: utc.as_secs(), nanoseconds: u64::from(utc.subsec_nanos()) })
    }

    /// Sets the last event of a flow.
    pub fn stop_after(&mut self, flow: u8, last_event: u64) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.stop_after(last_event);
        }
    }

    /// Finishes all sets in assembly for this cause because nothing more will be received.
    pub fn close_all(&mut self, cause: Cause) {
        self.flows.iter_mut().for_each(|flow| flow.close_all(cause));
    }

    /// Returns when [`Receiver::on_time`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        let sets = self.flows.iter().map(Assembly::next_deadline);
        sets.chain([self.throttle.next_deadline()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the account of a flow's packets.
    pub fn account(&self, flow: u8) -> FlowAccount {
        self.flows.get(usize::from(flow)).map(Assembly::account).unwrap_or_default()
    }

    /// Returns the account of each source of a flow, in the order of the configuration.
    pub fn by_source(&self, flow: u8) -> &[SourceAccount] {
        self.flows.get(usize::from(flow)).map(Assembly::by_source).unwrap_or_default()
    }

    /// Returns the number of finished sets of a flow that were not taken yet.
    pub fn finished_sets(&self, flow: u8) -> usize {
        self.flows.get(usize::from(flow)).map_or(0, Assembly::finished_sets)
    }

    /// Whether all sets are empty and here.
    pub fn is_empty(&self) -> bool {
        self.config.flows.iter().zip(&self.flows).all(|(known, flow)| usize::from(known.sets) == flow.empty_sets())
    }

    fn packing(&self, flow: u8) -> u16 {
        self.flows.get(usize::from(flow)).map_or(0, Assembly::packing)
    }

    /// Returns the throttle. Its levels are the flows' sets in order, then the packet pool, then the receive queue.
    pub const fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

/// The sending half: sends events to nodes and takes their decisions.
#[derive(Debug)]
pub struct Sender {
    farm: Farm,
}

impl Sender {
    /// Takes a finished set from [`Receiver::take_set`]; see [`Farm::on_set`] for the result.
    pub fn on_set(&mut self, set: EventSet, now: Instant) -> Option<&mut EventSet> {
        self.farm.on_set(set, now)
    }

    /// Returns a set whose events have all left, for [`Receiver::give_back`].
    pub fn take_empty(&mut self) -> Option<EventSet> {
        self.farm.take_empty()
    }

    /// Returns the farm: pushes, decisions, storage.
    pub const fn farm(&mut self) -> &mut Farm {
        &mut self.farm
    }

    /// Returns the account of a flow's events.
    pub fn account(&self, flow: u8) -> FarmAccount {
        self.farm.account(flow)
    }

    /// Returns how many nodes were connected and fell silent.
    pub fn nodes_away(&self) -> u64 {
        self.farm.nodes_away()
    }

    /// Returns the account of events decided here.
    pub fn local_counts(&self) -> LocalCounts {
        self.farm.local_counts()
    }

    /// Returns how many more events a node may be given now.
    pub fn credit(&self, node: u16) -> u64 {
        self.farm.credit(node)
    }

    /// Returns when [`Sender::on_time`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        self.farm.next_deadline()
    }

    /// Returns decisions that leave in order, or a message for a node.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        if let Some(stream) = self.farm.next_stream() {
            return Some(Outgoing::Stream(stream));
        }
        self.farm.next_progress(now).map(|(node, progress)| Outgoing::Progress(node, progress))
    }

    /// Handles a message from a node.
    pub fn on_message(&mut self, message: &Message, now: Instant) {
        match message {
            Message::Credit(credit) => self.on_credit(credit, now),
            Message::Decisions(decisions) => self.on_decisions(decisions, now),
            Message::Progress(_) | Message::Stream(_) | Message::Throttle(_) => {}
        }
    }

    fn on_credit(&mut self, credit: &Credit, now: Instant) {
        self.farm.on_credit(credit, now);
    }

    fn on_decisions(&mut self, decisions: &Decisions, now: Instant) {
        self.farm.on_decisions(decisions, now);
    }

    /// Handles time-outs.
    pub fn on_time(&mut self, now: Instant) {
        self.farm.on_time(now);
    }
}

/// One input queue that runs to completion: both halves.
#[derive(Debug)]
pub struct Gateway {
    receiver: Receiver,
    sender: Sender,
    flows: u8,
}

impl Gateway {
    /// Creates a gateway.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn new(config: &GatewayConfig) -> Result<Self, GatewayConfigError> {
        config.check()?;
        let (receiver, sender) = (Receiver::new(config), Sender { farm: Farm::new(config) });
        Ok(Self { receiver, sender, flows: config.flows.len() as u8 })
    }

    /// Returns the two halves for two threads.
    pub fn split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }

    /// Processes a packet of a flow; see [`Assembly::on_packet`] for the returned packet.
    #[inline]
    #[must_use = "a packet that comes back is in no account"]
    pub fn on_packet(&mut self, flow: u8, from: Address, packet: Payload, now: Instant) -> Option<Payload> {
        self.receiver.on_packet(flow, from, packet, now)
    }

    /// Handles a message from a node.
    pub fn on_message(&mut self, message: &Message, now: Instant) {
        self.sender.on_message(message, now);
    }

    /// Must be called after every batch, or when [`Gateway::next_deadline`] has come: handles time-outs, moves finished
    /// sets to the farm and empty ones back. `observe` sees each finished set, also the dropped ones.
    pub fn turn(&mut self, now: Instant, mut observe: impl FnMut(&EventSet)) {
        self.sender.on_time(now);
        self.take_back();
        self.receiver.on_time(now);
        while let Some(set) = self.receiver.take_set() {
            observe(&set);
            self.sender.on_set(set, now);
        }
        self.take_back();
        let has_nodes = self.sender.farm.has_nodes();
        self.receiver.set_error(!has_nodes, now);
    }

    fn take_back(&mut self) {
        while let Some(set) = self.sender.take_empty() {
            self.receiver.give_back(set);
        }
    }

    /// Returns the node of the next push, if there is one; see [`Farm::next_push`].
    pub fn next_push(&mut self) -> Option<u16> {
        self.sender.farm.next_push()
    }

    /// Returns the push of [`Gateway::next_push`].
    pub fn push_view(&self) -> PushBytes<'_> {
        self.sender.farm.push_view()
    }

    /// Records that the push was passed to the transport.
    pub fn sent(&mut self, now: Instant) {
        self.sender.farm.sent(now);
    }

    /// Returns the next accepted event for storage; see [`Farm::next_stored`].
    pub fn next_stored(&mut self) -> Option<EventKey> {
        self.sender.farm.next_stored()
    }

    /// Returns the event of [`Gateway::next_stored`].
    pub fn stored_view(&self) -> Option<GatheredEvent<'_>> {
        self.sender.farm.stored_view()
    }

    /// Records that storage has the event.
    pub fn stored(&mut self) {
        self.sender.farm.stored();
    }

    /// Returns the next message for a node, for the trigger, or for subscribers of decisions.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        let throttle = self.receiver.next_throttle(now).map(Outgoing::Throttle);
        throttle.or_else(|| self.sender.next_message(now))
    }

    /// Returns a request for packets of a flow; see [`Receiver::next_request`].
    pub fn next_request(&mut self, flow: u8, utc: core::time::Duration, now: Instant) -> Option<MepRequest> {
        self.receiver.next_request(flow, utc, now)
    }

    /// Returns when [`Gateway::turn`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        self.receiver.next_deadline().min(self.sender.farm.next_deadline())
    }

    /// Returns the receiving half: pool, end of run, accounts.
    pub const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Returns the accounts of a flow's packets and events.
    pub fn account(&self, flow: u8) -> (FlowAccount, FarmAccount) {
        (self.receiver.account(flow), self.sender.farm.account(flow))
    }

    /// Returns the throttle.
    pub const fn throttle(&self) -> &Throttle {
        &self.receiver.throttle
    }

    /// Returns the ledger of all flows; what is in flight is counted from the tables of both halves.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for flow in 0..self.flows {
            let (packets, farm) = self.account(flow);
            ledger.fragments.merge(&packets.packets);
            ledger.events.merge(&farm.events);
            let packing = u64::from(self.receiver.packing(flow));
            let before = (packets.open + self.receiver.finished_sets(flow) as u64) * packing;
            ledger.events.assigned += before + packets.refused.total() * packing;
            ledger.events.in_flight += before;
            for (cause, sets) in packets.refused.iter() {
                ledger.events.incomplete_dropped.add(cause, sets * packing);
            }
        }
        ledger
    }
}
