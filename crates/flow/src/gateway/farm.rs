//! The farm: sends events of finished sets to nodes with credit, and takes their decisions; every event is decided
//! once.
//!
//! ```text
//!  set --> events wait, by flow --> a node with credit --> decided by the node --> in order to the stream, or to storage
//!            ^  first in the line         |   |  not received, message lost, node silent
//!            +----------------------------|---+  (attempt + 1)
//!                                         +-- decision time-out --> decided by default; the node's decision will be late
//! ```
//! A set is held until all of its events are decided and have left. `dispatch` puts events into pushes.

use super::account::FarmAccount;
use super::assembly::Ages;
use super::config::{FlowConfig, GatewayConfig, Output};
use super::dispatch::{EventPlace, Greeting, Nodes, Plan, Settled};
use super::local::Local;
use super::lumisection::{ClosedLumisection, Lumisections};
use super::set::{Ending, EventSet, FragmentPlace, Stage};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventAccount, EventKey, Incarnation, Instant, Verdict};
use ropewalk_wire::gateway::{Credit, Decision, Decisions, Progress, Stream, StreamEntry, Verdict as Answer};
use std::collections::VecDeque;

/// A set of events in the farm.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) set: EventSet,
    pub(super) deadline: Instant,
    /// Number of events without a decision.
    undecided: u16,
    /// Number of decided events that have not left.
    pub(super) leaving: u16,
    /// Serial number of the set in this slot.
    pub(super) serial: u32,
    /// Account of its events so far.
    pub(super) ended: EventAccount,
}

/// The farm's state for one flow.
#[derive(Debug)]
pub(super) struct FarmFlow {
    pub(super) config: FlowConfig,
    /// Events that wait for a node, or waited when they were noted.
    pub(super) waiting: VecDeque<EventPlace>,
    /// Its sets, oldest first.
    pub(super) ages: Ages,
    /// Order of decisions; storage takes accepted events in any order.
    pub(super) order: Order,
    pub(super) stored: VecDeque<EventPlace>,
    pub(super) lumisections: Lumisections,
    pub(super) account: FarmAccount,
}

/// The events of all flows between assembly and decision.
#[derive(Debug)]
pub struct Farm {
    pub(super) gateway: u16,
    pub(super) incarnation: Incarnation,
    pub(super) silence: Duration,
    pub(super) heartbeat: Duration,
    pub(super) flows: Box<[FarmFlow]>,
    pub(super) slots: Box<[Option<Held>]>,
    vacant: Vec<u16>,
    serial: u32,
    pub(super) nodes: Nodes,
    /// The slots of a gateway that decides itself.
    pub(super) local: Option<Local>,
    pub(super) plan: Plan,
    /// The event that storage gets next, and its fragments.
    pub(super) storing: Option<EventPlace>,
    pub(super) stored_fragments: Vec<FragmentPlace>,
    empty: Vec<EventSet>,
    /// When to look for silent nodes, and for nodes that need a message.
    next_look: Instant,
}

impl Farm {
    /// Creates an empty farm; the configuration must have been checked.
    pub fn new(config: &GatewayConfig) -> Self {
        let sets: usize = config.flows.iter().map(|flow| usize::from(flow.sets)).sum();
        let largest_set = config.flows.iter().map(|flow| flow.sources.len()).max().unwrap_or_default();
        let flow = |flow: &FlowConfig| FarmFlow {
            waiting: VecDeque::with_capacity(2 * usize::from(flow.sets) * usize::from(flow.packing)),
            ages: Ages::new(sets),
            order: Order::new(usize::from(flow.sets)),
            stored: VecDeque::with_capacity(usize::from(flow.sets) * usize::from(flow.packing)),
            lumisections: Lumisections::new(usize::from(flow.sets)),
            account: FarmAccount::default(),
            config: flow.clone(),
        };
        Self {
            gateway: config.gateway,
            incarnation: config.incarnation,
            silence: config.farm.silence,
            heartbeat: config.farm.heartbeat,
            flows: config.flows.iter().map(flow).collect(),
            slots: core::iter::repeat_with(|| None).take(sets).collect(),
            vacant: (0..sets as u16).rev().collect(),
            serial: 0,
            nodes: Nodes::new(&config.farm),
            local: Local::new(config),
            plan: Plan::new(config.farm.largest_push, largest_set),
            storing: None,
            stored_fragments: Vec::with_capacity(largest_set),
            empty: Vec::with_capacity(sets),
            next_look: Instant::ZERO,
        }
    }

    /// Takes a finished set from assembly. Its events wait for nodes from now on. Returns the set for observers, unless
    /// it is dropped.
    pub fn on_set(&mut self, mut set: EventSet, now: Instant) -> Option<&mut EventSet> {
        let flow = &mut self.flows[usize::from(set.flow)];
        let events = set.events.len() as u16;
        flow.account.events.assigned += u64::from(events);
        flow.order.open_from(set.open_from);
        set.lumisection = flow.lumisections.enter(set.lumisection);
        let mut ended = EventAccount { assigned: events.into(), ..EventAccount::default() };
        let dropped = match set.ending {
            Ending::Dropped(cause) => Some(cause),
            // Too late: a later event has already left in order.
            _ if flow.config.output == Output::Stream && flow.order.has_passed(set.first) => Some(Cause::Late),
            Ending::Complete | Ending::Incomplete => None,
        };
        if let Some(cause) = dropped {
            flow.account.events.incomplete_dropped.add(cause, u64::from(events));
            ended.incomplete_dropped.add(cause, u64::from(events));
            flow.lumisections.leave(set.lumisection, &ended);
            self.empty.push(set);
            return None;
        }
        let slot = self.vacant.pop().expect("there are as many slots as sets");
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        flow.ages.push(slot);
        if flow.config.output == Output::Stream {
            flow.order.insert(set.first, slot);
        }
        make_room(&mut flow.waiting, usize::from(events), &self.slots);
        flow.waiting.extend((0..events).map(|event| EventPlace { slot, event, serial }));
        // A local decider has its own time limit.
        let patience = if self.local.is_some() { Duration::MAX } else { flow.config.decision_timeout };
        let deadline = now.after(patience);
        let held = Held { set, deadline, undecided: events, leaving: 0, serial, ended };
        Some(&mut self.slots[usize::from(slot)].insert(held).set)
    }

    /// Returns the set of an event, if it is still held.
    pub(super) fn held(&mut self, place: EventPlace) -> Option<&mut Held> {
        self.slots[usize::from(place.slot)].as_mut().filter(|held| held.serial == place.serial)
    }

    /// Releases a set whose events are all decided and have left, unless a push still needs its bytes.
    pub(super) fn release(&mut self, slot: u16) {
        let held = &self.slots[usize::from(slot)];
        let is_done = held.as_ref().is_some_and(|held| held.undecided == 0 && held.leaving == 0);
        if !is_done || self.plan.needs(slot) {
            return;
        }
        if let Some(held) = self.slots[usize::from(slot)].take() {
            let flow = &mut self.flows[usize::from(held.set.flow)];
            flow.ages.remove(slot);
            flow.lumisections.leave(held.set.lumisection, &held.ended);
            self.vacant.push(slot);
            self.empty.push(held.set);
        }
    }

    /// Takes a set whose events have all left; it goes back to assembly.
    pub fn take_empty(&mut self) -> Option<EventSet> {
        self.empty.pop()
    }

    /// Handles time: nodes fall silent, events are decided by default.
    pub fn on_time(&mut self, now: Instant) {
        for flow in 0..self.flows.len() {
            while let Some(slot) = self.flows[flow].overdue(&self.slots, now) {
                self.decide_by_default(slot, now);
            }
        }
        if now >= self.next_look {
            let silence = self.silence;
            while let Some(node) = self.nodes.fall_silent(|heard| heard.after(silence) <= now) {
                if !is_planted(Flaw::SilentNodeKeepsEvents) {
                    self.take_back(node);
                }
            }
            self.look_again();
        }
    }

    fn look_again(&mut self) {
        let silent = self.nodes.least_heard().map_or(Instant::FAR_FUTURE, |heard| heard.after(self.silence));
        self.next_look = silent;
    }

    /// Returns when [`Farm::on_time`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        let overdue = self.flows.iter().filter_map(|flow| flow.next_deadline(&self.slots));
        overdue.chain([self.next_look, self.next_told()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the next closed lumisection of a flow, where no set before lumisection `below` comes any more. Events
    /// that come nevertheless are counted in the oldest open one.
    pub fn next_closed_lumisection(&mut self, flow: u8, below: u32) -> Option<ClosedLumisection> {
        let (number, account) = self.flows.get_mut(usize::from(flow))?.lumisections.next_closed(below)?;
        Some(ClosedLumisection { flow, number, account })
    }

    /// Returns the first event of the oldest set of a flow that was in assembly when the last set came; without one,
    /// the highest key.
    pub fn open_from(&self, flow: u8) -> EventKey {
        let known = self.flows.get(usize::from(flow)).filter(|flow| flow.account.events.assigned > 0);
        known.map_or(EventKey::MAX, |flow| flow.order.open_from)
    }

    /// Whether no set is held.
    pub const fn is_empty(&self) -> bool {
        self.vacant.len() == self.slots.len()
    }

    /// Whether anything is connected that decides.
    pub fn has_nodes(&self) -> bool {
        self.local.is_some() || self.nodes.iter().any(|node| node.is_present())
    }

    /// Returns how many nodes were connected and fell silent.
    pub fn nodes_away(&self) -> u64 {
        self.nodes.iter().filter(|node| node.is_away()).count() as u64
    }

    /// Returns how many more events a node may be given now.
    pub fn credit(&self, node: u16) -> u64 {
        self.nodes.iter().nth(node.into()).map_or(0, super::dispatch::Node::credit)
    }

    /// Returns the account of a flow; events in flight are counted from the table.
    pub fn account(&self, flow: u8) -> FarmAccount {
        let Some(known) = self.flows.get(usize::from(flow)) else { return FarmAccount::default() };
        let mut account = known.account;
        let held = self.slots.iter().flatten().filter(|held| held.set.flow == flow);
        let open = |held: &Held| held.set.events.iter().filter(|event| event.stage != Stage::Decided).count() as u64;
        account.events.in_flight = held.map(open).sum();
        account
    }

    /// Returns the key of an event.
    pub(super) fn key(held: &Held, event: u16) -> EventKey {
        held.set.first.plus(u64::from(event))
    }
}

impl FarmFlow {
    /// Returns the oldest set with undecided events, and its deadline.
    fn oldest_undecided(&self, slots: &[Option<Held>]) -> Option<(u16, Instant)> {
        let held = self.ages.iter().filter_map(|slot| Some((slot, slots[usize::from(slot)].as_ref()?)));
        held.filter(|(_, held)| held.undecided > 0).map(|(slot, held)| (slot, held.deadline)).next()
    }

    fn next_deadline(&self, slots: &[Option<Held>]) -> Option<Instant> {
        self.oldest_undecided(slots).map(|(_, deadline)| deadline)
    }

    fn overdue(&self, slots: &[Option<Held>], now: Instant) -> Option<u16> {
        self.oldest_undecided(slots).filter(|(_, deadline)| *deadline <= now).map(|(slot, _)| slot)
    }
}

/// Whether an event that was noted as waiting still waits.
pub(super) fn is_waiting(place: EventPlace, slots: &[Option<Held>]) -> bool {
    let held = slots[usize::from(place.slot)].as_ref().filter(|held| held.serial == place.serial);
    held.is_some_and(|held| held.set.events[usize::from(place.event)].stage == Stage::Waiting)
}

/// Drops entries that no longer wait if there is no room for `more`.
fn make_room(waiting: &mut VecDeque<EventPlace>, more: usize, slots: &[Option<Held>]) {
    if waiting.len() + more > waiting.capacity() {
        waiting.retain(|place| is_waiting(*place, slots));
    }
}

/// A decision, made by a node or by default.
#[derive(Copy, Clone, Debug)]
pub(super) struct Ruling {
    pub(super) verdict: Verdict,
    pub(super) word: u32,
    pub(super) by_default: bool,
}

/// Returns the verdict of a decision that only accepts or rejects.
const fn verdict(accept: bool) -> Verdict {
    if accept { Verdict::Accepted } else { Verdict::Rejected }
}

impl Farm {
    /// Handles credit of a node. A node that restarts or returns gets none of its earlier events back: others have
    /// them.
    pub fn on_credit(&mut self, credit: &Credit, now: Instant) {
        if self.nodes.greet(credit, now) == Greeting::New {
            self.take_back(credit.node);
            self.nodes.list(credit.node);
        }
        self.look_again();
    }

    /// Handles decisions of a node. Each decision also returns credit.
    pub fn on_decisions(&mut self, decisions: &Decisions, now: Instant) {
        let (is_ours, number) = (self.is_for_us(decisions), decisions.node);
        let Some(node) = self.nodes.get(number).filter(|node| is_ours && node.is_in(decisions.incarnation)) else {
            return;
        };
        // An event that was never pushed cannot be decided: the node counts wrongly.
        if decisions.cumulative > node.next {
            return;
        }
        self.nodes.heard(number, now);
        for decision in &decisions.entries {
            self.on_decision(number, decision, now);
        }
        let Some(node) = self.nodes.get(number) else { return };
        for sequence in node.unsettled().filter(|&sequence| decisions.covers(sequence)) {
            self.on_lost_decision(number, sequence);
        }
        self.nodes.list(number);
    }

    fn is_for_us(&self, decisions: &Decisions) -> bool {
        decisions.gateway == self.gateway && decisions.gateway_incarnation == self.incarnation
    }

    fn on_decision(&mut self, node: u16, decision: &Decision, now: Instant) {
        let Some(known) = self.nodes.get(node) else { return };
        let place = match known.settle(decision.sequence) {
            Settled::Awaited(place) => place,
            Settled::Late(flow) => return self.flows[usize::from(flow)].account.late += 1,
            // The flow of the event is no longer known: the first flow counts it.
            Settled::Unawaited => return self.flows[0].account.ignored += 1,
        };
        match decision.verdict {
            Answer::NotReceived => self.send_again(place, |account| &mut account.not_received),
            Answer::Accept | Answer::Reject => {
                let verdict = verdict(decision.verdict == Answer::Accept);
                self.decide(place, Ruling { verdict, word: decision.word, by_default: false }, now);
            }
        }
    }

    /// Handles a decision whose message was lost.
    fn on_lost_decision(&mut self, node: u16, sequence: u64) {
        if is_planted(Flaw::LostDecisionKeepsCredit) {
            return;
        }
        let settled = self.nodes.get(node).map(|node| node.settle(sequence));
        if let Some(Settled::Awaited(place)) = settled {
            self.send_again(place, |account| &mut account.lost);
        }
    }

    /// Lets an event wait for a node again, before all others.
    fn send_again(&mut self, place: EventPlace, count: impl Fn(&mut super::FarmAccount) -> &mut u64) {
        let Some(held) = self.held(place) else { return };
        held.set.events[usize::from(place.event)].stage = Stage::Waiting;
        let flow = usize::from(held.set.flow);
        let flow = &mut self.flows[flow];
        make_room(&mut flow.waiting, 1, &self.slots);
        flow.waiting.push_front(place);
        *count(&mut flow.account) += 1;
    }

    /// Takes back all events of a node.
    pub(super) fn take_back(&mut self, node: u16) {
        let mut places = arrayvec::ArrayVec::<EventPlace, { ropewalk_wire::gateway::MOST_OUTSTANDING as usize }>::new();
        if let Some(known) = self.nodes.get(node) {
            known.take_back(|place| places.push(place));
        }
        places.into_iter().for_each(|place| self.send_again(place, |account| &mut account.taken_back));
    }

    /// Decides the remaining events of a set by default.
    fn decide_by_default(&mut self, slot: u16, now: Instant) {
        let Some(held) = &self.slots[usize::from(slot)] else { return };
        let (serial, events) = (held.serial, held.set.events.len() as u16);
        let flow = held.set.flow;
        let decision = self.flows[usize::from(flow)].config.default_decision;
        let ruling = Ruling { verdict: verdict(decision.accept), word: decision.word, by_default: true };
        for event in 0..events {
            let place = EventPlace { slot, event, serial };
            let stage = self.held(place).map(|held| held.set.events[usize::from(event)].stage);
            if let Some(Stage::Sent { node, sequence }) = stage
                && let Some(node) = self.nodes.get(node).filter(|_| !is_planted(Flaw::DecidedTwice))
            {
                node.give_up(sequence, flow);
            }
            if stage.is_some_and(|stage| stage != Stage::Decided) {
                self.decide(place, ruling, now);
            }
        }
    }

    pub(super) fn decide(&mut self, place: EventPlace, ruling: Ruling, now: Instant) {
        let Some(held) = self.slots[usize::from(place.slot)].as_mut().filter(|held| held.serial == place.serial) else {
            return;
        };
        let flow = &mut self.flows[usize::from(held.set.flow)];
        let event = &mut held.set.events[usize::from(place.event)];
        event.stage = Stage::Decided;
        (event.verdict, event.word, event.by_default) = (ruling.verdict, ruling.word, ruling.by_default);
        let is_kept = ruling.verdict != Verdict::Rejected;
        held.undecided -= 1;
        let account = &mut flow.account;
        let is_whole = held.set.ending == Ending::Complete;
        for events in [&mut account.events, &mut held.ended] {
            *(if is_whole { &mut events.built } else { &mut events.incomplete_emitted }) += 1;
            *(match ruling.verdict {
                Verdict::Accepted | Verdict::Unselected => &mut events.accepted,
                Verdict::Rejected => &mut events.rejected,
                Verdict::Quarantined => &mut events.quarantined,
            }) += 1;
        }
        held.ended.unselected += u64::from(ruling.verdict == Verdict::Unselected);
        account.decided += 1;
        account.by_default += u64::from(ruling.by_default);
        account.in_budget += u64::from(now.since(held.set.opened) <= flow.config.budget);
        match flow.config.output {
            Output::Stream => held.leaving += 1,
            Output::Storage if self.local.is_some() => held.leaving += u16::from(is_kept),
            Output::Storage if is_kept => {
                held.leaving += 1;
                flow.stored.push_back(place);
            }
            Output::Storage => {}
        }
        self.release(place.slot);
    }

    /// Returns when a node must get the range of sequence numbers.
    fn next_told(&self) -> Instant {
        let due = |told: Option<Instant>| told.map_or(Instant::ZERO, |told| told.after(self.heartbeat));
        let present = self.nodes.iter().filter(|node| node.is_present());
        present.map(|node| due(node.told)).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The next node that got no message for a while, and the progress to send it.
    pub fn next_progress(&mut self, now: Instant) -> Option<(u16, Progress)> {
        let (gateway, incarnation, heartbeat) = (self.gateway, self.incarnation, self.heartbeat);
        let is_due = |told: Option<Instant>| told.is_none_or(|told| told.after(heartbeat) <= now);
        let due = self.nodes.iter().position(|node| node.is_present() && is_due(node.told))? as u16;
        let node = self.nodes.get(due)?;
        node.told = Some(now);
        Some((due, Progress { gateway, incarnation, next: node.next, floor: node.awaited_from() }))
    }
}

/// The sets of a flow in the order of their events.
///
/// Decisions leave in the order of events.
///
/// A set's turn has come when no earlier one is held or in assembly. A set that comes when a later one has begun to
/// leave is too late.
#[derive(Debug)]
pub(super) struct Order {
    /// First event and slot.
    sets: VecDeque<(EventKey, u16)>,
    /// No earlier set than this one's first event is in assembly.
    open_from: EventKey,
    /// The next event that may leave.
    next: EventKey,
    /// How many events of the first set have left.
    left: u16,
    /// Number of events that have left in all.
    total: u64,
}

impl Order {
    pub(super) fn new(sets: usize) -> Self {
        let (open_from, next) = (EventKey::MIN, EventKey::MIN);
        Self { sets: VecDeque::with_capacity(sets), open_from, next, left: 0, total: 0 }
    }

    /// Sets the first event of assembly's oldest set.
    pub(super) const fn open_from(&mut self, first: EventKey) {
        self.open_from = first;
    }

    /// Whether a later event has left.
    fn has_passed(&self, first: EventKey) -> bool {
        first < self.next
    }

    pub(super) fn insert(&mut self, first: EventKey, slot: u16) {
        let place = self.sets.partition_point(|(other, _)| *other < first);
        self.sets.insert(place, (first, slot));
    }

    /// Returns the slot of the set whose turn it is.
    fn first(&self) -> Option<u16> {
        self.sets.front().filter(|(first, _)| *first < self.open_from).map(|(_, slot)| *slot)
    }
}

impl Farm {
    /// Returns the next decisions of one flow in the order of events.
    pub fn next_stream(&mut self) -> Option<Stream> {
        (0..self.flows.len()).find_map(|flow| self.stream_of(flow))
    }

    fn stream_of(&mut self, flow: usize) -> Option<Stream> {
        if self.flows[flow].config.output != Output::Stream {
            return None;
        }
        let (gateway, incarnation) = (self.gateway, self.incarnation);
        let before = self.flows[flow].order.total;
        let mut stream = Stream { gateway, flow: flow as u8, incarnation, before, ..Stream::default() };
        while !stream.entries.is_full()
            && let Some(entry) = self.next_entry(flow)
        {
            stream.entries.push(entry);
        }
        (!stream.entries.is_empty()).then_some(stream)
    }

    fn next_entry(&mut self, flow: usize) -> Option<StreamEntry> {
        let flow = &mut self.flows[flow];
        let (order, account) = (&mut flow.order, &mut flow.account);
        let slot = order.first()?;
        let held = self.slots[usize::from(slot)].as_mut()?;
        let event = held.set.events.get(usize::from(order.left)).filter(|event| event.stage == Stage::Decided)?;
        let key = held.set.first.plus(u64::from(order.left));
        let accept = event.verdict != Verdict::Rejected;
        let entry = StreamEntry { key, accept, word: event.word, by_default: event.by_default };
        (order.left, order.total, order.next) = (order.left + 1, order.total + 1, key.next());
        account.streamed += 1;
        held.leaving -= 1;
        if usize::from(order.left) == held.set.events.len() {
            order.left = 0;
            order.sets.pop_front();
            self.release(slot);
        }
        Some(entry)
    }
}
