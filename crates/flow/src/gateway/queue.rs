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

/// A message on its way out.
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

/// What was asked of the trigger for a flow.
#[derive(Copy, Clone, Debug, Default)]
struct Asked {
    sequence: u32,
    /// Sets that were asked for and have not begun.
    awaited: u64,
    /// Sets that had begun when it was counted last.
    begun: u64,
    at: Instant,
}

/// The receiving half: packets become sets, the throttle watches the room.
#[derive(Debug)]
pub struct Receiver {
    flows: Box<[Assembly]>,
    config: GatewayConfig,
    asked: Box<[Asked]>,
    throttle: Throttle,
    /// Packets with implausible numbers, when it was looked last.
    jumps: u64,
    jumped: Option<Instant>,
}

impl Receiver {
    fn new(config: &GatewayConfig) -> Self {
        let level = |(index, flow): (usize, &FlowConfig)| {
            let capacity = u64::from(flow.sets);
            Level::new(capacity, config.throttle.sets(index, flow.packing, capacity))
        };
        // Behind the flows stand the pool of packets and the queue in front of it, of which only the drive knows how large they
        // are.
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

    /// A packet of a flow came from this address; see [`Assembly::on_packet`] for the one that comes back.
    #[inline]
    #[must_use = "a packet that comes back is in no account"]
    pub fn on_packet(&mut self, flow: u8, from: Address, packet: Payload, now: Instant) -> Option<Payload> {
        self.flows.get_mut(usize::from(flow))?.on_packet(from, packet, now)
    }

    /// All packets of a flow that had come by now were offered and taken; see [`Assembly::on_drained`].
    pub fn on_drained(&mut self, flow: u8, now: Instant) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.on_drained(now);
        }
    }

    /// Packets of a flow may wait unseen; see [`Assembly::on_blocked`].
    pub fn on_blocked(&mut self, flow: u8) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.on_blocked();
        }
    }

    /// Too much is held of where the packets of a flow come in; see [`Assembly::evacuate`].
    pub fn evacuate(&mut self, flow: u8, room: &mut Staging) -> u64 {
        self.flows.get_mut(usize::from(flow)).map_or(0, |flow| flow.evacuate(room))
    }

    /// Time passes, and the throttle looks how much room there is.
    pub fn on_time(&mut self, now: Instant) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.on_time(now);
            let used = usize::from(self.config.flows[index].sets) - flow.empty_sets();
            self.throttle.observe(index, used as u64, now);
        }
        self.look_for_jumps(now);
    }

    /// Implausible numbers say that a source or the gateway is out of step, until none comes for as long as a set waits.
    fn look_for_jumps(&mut self, now: Instant) {
        let jumps = self.flows.iter().map(Assembly::jumps).sum();
        if jumps != self.jumps {
            (self.jumps, self.jumped) = (jumps, Some(now));
        }
        let patience = self.config.flows.iter().map(|flow| flow.timeout).max().unwrap_or_default();
        let is_out = self.jumped.is_some_and(|at| now < at.after(patience));
        self.throttle.set_out_of_sync(is_out, now);
    }

    /// How much of the packets' pool is in use, in bytes of whole blocks.
    pub fn on_pool(&mut self, used: u64, capacity: u64, now: Instant) {
        let size = Level::new(capacity, self.config.throttle.bytes(capacity));
        self.throttle.observe_sized(self.flows.len(), size, used, now);
    }

    /// How full the queues are in which packets wait before they are received, each with the flows whose packets wait there.
    /// The one counts that leaves the least until the trigger must stop.
    pub fn on_queues<'a>(&mut self, queues: impl Iterator<Item = (&'a [u8], ReceiveQueue)>, now: Instant) {
        let level = |(flows, queue): (&[u8], ReceiveQueue)| {
            let wanted = self.config.wanted_queue(flows, queue.packet);
            Level { used: queue.used, ..Level::new(queue.room, self.config.throttle.queue(wanted, queue.room)) }
        };
        if let Some(fullest) = queues.map(level).min_by_key(Level::left) {
            self.throttle.observe_sized(self.flows.len() + 1, fullest, fullest.used, now);
        }
    }

    /// Whether triggers are to stop, or soon will be, because packets wait to be received: [`Receiver::on_queues`] is to look again.
    pub fn has_full_queue(&self) -> bool {
        self.throttle.levels().nth(self.flows.len() + 1).is_some_and(|queue| queue.state != ThrottleState::Ready)
    }

    /// Something that the run cannot do without is broken (no node is there), or is not any more.
    pub fn set_error(&mut self, is_on: bool, now: Instant) {
        self.throttle.set_error(is_on, now);
    }

    /// Run control stops or resumes triggers. Packets that come nevertheless are accepted as before.
    pub fn set_held(&mut self, is_on: bool, now: Instant) {
        self.throttle.set_held(is_on, now);
    }

    /// A source takes no part in what is begun from now on, or takes part again; see [`Assembly::mask`]. Of one that no flow has nothing
    /// is said.
    pub fn mask(&mut self, source: SourceId, is_masked: bool) {
        for (known, flow) in self.config.flows.iter().zip(&mut self.flows) {
            if let Some(place) = known.sources.iter().position(|one| one.id == source) {
                flow.mask(place as u16, is_masked);
            }
        }
    }

    /// Sets of a flow that are begun from now on wait so long for their packets; see [`Assembly::set_timeout`].
    pub fn set_timeout(&mut self, flow: u8, timeout: core::time::Duration, now: Instant) {
        let index = usize::from(flow);
        if let (Some(known), Some(flow)) = (self.config.flows.get_mut(index), self.flows.get_mut(index)) {
            known.timeout = timeout;
            flow.set_timeout(timeout, now);
        }
    }

    /// What users' histograms of a flow hold; see [`Assembly::histograms`].
    pub fn histograms(&self, flow: u8) -> impl Iterator<Item = (u16, u8, &[u64])> {
        self.flows.get(usize::from(flow)).into_iter().flat_map(Assembly::histograms)
    }

    /// Which sources of a flow were masked, and from which event to which.
    pub fn masking(&self, flow: u8) -> Option<&Masking> {
        self.flows.get(usize::from(flow)).map(Assembly::masking)
    }

    /// The next finished set, for [`Sender::on_set`]; dropped ones too.
    pub fn take_set(&mut self) -> Option<EventSet> {
        self.flows.iter_mut().find_map(Assembly::take_finished)
    }

    /// An empty set comes back from [`Sender::take_empty`].
    pub fn give_back(&mut self, set: EventSet) {
        let flow = usize::from(set.flow());
        self.flows[flow].give_back(set);
    }

    /// The throttle's state, if it is due to be sent.
    pub fn next_throttle(&mut self, now: Instant) -> Option<ropewalk_wire::gateway::Throttle> {
        self.throttle.next_message(now)
    }

    /// A request for packets of a flow, if there is room for more than was asked for; `utc` is when, for people.
    ///
    /// What was asked for and did not begin within twice a set's time-out is taken for lost.
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
        // Few at a time would cost a message each.
        if count == 0 || (asked.awaited > 0 && room < u64::from(self.config.flows[index].sets).div_ceil(8)) {
            return None;
        }
        asked.awaited += u64::from(count);
        asked.sequence += 1;
        let (sequence, run) = (asked.sequence, self.config.run);
        Some(MepRequest { count, sequence, run, seconds: utc.as_secs(), nanoseconds: u64::from(utc.subsec_nanos()) })
    }

    /// The run's last event of a flow is known.
    pub fn stop_after(&mut self, flow: u8, last_event: u64) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.stop_after(last_event);
        }
    }

    /// Nothing more will be received: what is in assembly is finished as it is, for this cause.
    pub fn close_all(&mut self, cause: Cause) {
        self.flows.iter_mut().for_each(|flow| flow.close_all(cause));
    }

    /// When something is due that time alone brings.
    pub fn next_deadline(&self) -> Instant {
        let sets = self.flows.iter().map(Assembly::next_deadline);
        sets.chain([self.throttle.next_deadline()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The account of a flow's packets.
    pub fn account(&self, flow: u8) -> FlowAccount {
        self.flows.get(usize::from(flow)).map(Assembly::account).unwrap_or_default()
    }

    /// What became of the packets of each source of a flow, in the order of the configuration.
    pub fn by_source(&self, flow: u8) -> &[SourceAccount] {
        self.flows.get(usize::from(flow)).map(Assembly::by_source).unwrap_or_default()
    }

    /// Finished sets of a flow that have not been taken yet.
    pub fn finished_sets(&self, flow: u8) -> usize {
        self.flows.get(usize::from(flow)).map_or(0, Assembly::finished_sets)
    }

    /// Whether every set is here and empty: none is in assembly, and every finished one has been given back.
    pub fn is_empty(&self) -> bool {
        self.config.flows.iter().zip(&self.flows).all(|(known, flow)| usize::from(known.sets) == flow.empty_sets())
    }

    fn packing(&self, flow: u8) -> u16 {
        self.flows.get(usize::from(flow)).map_or(0, Assembly::packing)
    }

    /// The throttle: its levels are the flows' sets in their order, then the packets' pool, then the queue in front of it.
    pub const fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

/// The sending half: events go to nodes, decisions come back.
#[derive(Debug)]
pub struct Sender {
    farm: Farm,
}

impl Sender {
    /// A finished set comes from [`Receiver::take_set`]; see [`Farm::on_set`] for what comes back.
    pub fn on_set(&mut self, set: EventSet, now: Instant) -> Option<&mut EventSet> {
        self.farm.on_set(set, now)
    }

    /// A set whose events have all left, for [`Receiver::give_back`].
    pub fn take_empty(&mut self) -> Option<EventSet> {
        self.farm.take_empty()
    }

    /// The farm: pushes, decisions, storage.
    pub const fn farm(&mut self) -> &mut Farm {
        &mut self.farm
    }

    /// The account of a flow's events.
    pub fn account(&self, flow: u8) -> FarmAccount {
        self.farm.account(flow)
    }

    /// How many nodes of the farm were there and fell silent.
    pub fn nodes_away(&self) -> u64 {
        self.farm.nodes_away()
    }

    /// What became of events that were decided here.
    pub fn local_counts(&self) -> LocalCounts {
        self.farm.local_counts()
    }

    /// How many more events a node may be given now.
    pub fn credit(&self, node: u16) -> u64 {
        self.farm.credit(node)
    }

    /// When something is due that time alone brings.
    pub fn next_deadline(&self) -> Instant {
        self.farm.next_deadline()
    }

    /// Decisions that leave in order, or a message for a node.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        if let Some(stream) = self.farm.next_stream() {
            return Some(Outgoing::Stream(stream));
        }
        self.farm.next_progress(now).map(|(node, progress)| Outgoing::Progress(node, progress))
    }

    /// A message from a node.
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

    /// Time passes.
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
    /// A gateway that has received nothing.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &GatewayConfig) -> Result<Self, GatewayConfigError> {
        config.check()?;
        let (receiver, sender) = (Receiver::new(config), Sender { farm: Farm::new(config) });
        Ok(Self { receiver, sender, flows: config.flows.len() as u8 })
    }

    /// The two halves, each for a thread of its own.
    pub fn split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }

    /// A packet of a flow came from this address; see [`Assembly::on_packet`] for the one that comes back.
    #[inline]
    #[must_use = "a packet that comes back is in no account"]
    pub fn on_packet(&mut self, flow: u8, from: Address, packet: Payload, now: Instant) -> Option<Payload> {
        self.receiver.on_packet(flow, from, packet, now)
    }

    /// A message from a node.
    pub fn on_message(&mut self, message: &Message, now: Instant) {
        self.sender.on_message(message, now);
    }

    /// Once for every batch, or when [`Gateway::next_deadline`] has come: time passes, finished sets go over to the farm, and
    /// empty ones come back. `observe` sees each finished set, the dropped ones too.
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

    /// The node of the next push, if there is one; see [`Farm::next_push`].
    pub fn next_push(&mut self) -> Option<u16> {
        self.sender.farm.next_push()
    }

    /// The push of [`Gateway::next_push`].
    pub fn push_view(&self) -> PushBytes<'_> {
        self.sender.farm.push_view()
    }

    /// The push was handed to the transport.
    pub fn sent(&mut self, now: Instant) {
        self.sender.farm.sent(now);
    }

    /// The next accepted event for storage; see [`Farm::next_stored`].
    pub fn next_stored(&mut self) -> Option<EventKey> {
        self.sender.farm.next_stored()
    }

    /// The event of [`Gateway::next_stored`].
    pub fn stored_view(&self) -> Option<GatheredEvent<'_>> {
        self.sender.farm.stored_view()
    }

    /// Storage has the event.
    pub fn stored(&mut self) {
        self.sender.farm.stored();
    }

    /// The next message for a node, for the trigger, or for the reader of decisions.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        let throttle = self.receiver.next_throttle(now).map(Outgoing::Throttle);
        throttle.or_else(|| self.sender.next_message(now))
    }

    /// A request for packets of a flow; see [`Receiver::next_request`].
    pub fn next_request(&mut self, flow: u8, utc: core::time::Duration, now: Instant) -> Option<MepRequest> {
        self.receiver.next_request(flow, utc, now)
    }

    /// When something is due that time alone brings.
    pub fn next_deadline(&self) -> Instant {
        self.receiver.next_deadline().min(self.sender.farm.next_deadline())
    }

    /// The receiving half: pool, end of run, accounts.
    pub const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// The account of a flow: of its packets, and of its events.
    pub fn account(&self, flow: u8) -> (FlowAccount, FarmAccount) {
        (self.receiver.account(flow), self.sender.farm.account(flow))
    }

    /// How long triggers could come, and how long they could not.
    pub const fn throttle(&self) -> &Throttle {
        &self.receiver.throttle
    }

    /// The ledger of all flows, in flight counted from the tables of both halves.
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
