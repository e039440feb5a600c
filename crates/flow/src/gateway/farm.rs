//! The farm: events of finished sets go to nodes with credit, decisions come back, every event is decided once.
//!
//! ```text
//!  set --> events wait, by flow --> a node with credit --> decided by the node --> in order to the stream, or to storage
//!            ^  first in the line         |   |  not received, message lost, node silent
//!            +----------------------------|---+  (attempt + 1)
//!                                         +-- decision time-out --> decided by default; the node's decision will be late
//! ```
//! A set is held until all of its events are decided and have left. How events get into pushes is in `dispatch`, what
//! decisions do in `deciding`, what leaves in `order`; here is what they share.

use super::account::FarmAccount;
use super::ages::Ages;
use super::config::{FlowConfig, GatewayConfig, Output};
use super::dispatch::Plan;
use super::gather::FragmentPlace;
use super::nodes::{EventPlace, Nodes};
use super::order::Order;
use super::set::{Ending, EventSet, Stage};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Incarnation, Instant};
use std::collections::VecDeque;

/// A set of events in the farm.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) set: EventSet,
    pub(super) deadline: Instant,
    /// Events without a decision.
    pub(super) undecided: u16,
    /// Events that have a decision and have not left.
    pub(super) leaving: u16,
    /// Which set in this slot it is.
    pub(super) serial: u32,
}

/// One flow's part of the farm.
#[derive(Debug)]
pub(super) struct FarmFlow {
    pub(super) config: FlowConfig,
    /// Events that wait for a node, or did when they were noted here.
    pub(super) waiting: VecDeque<EventPlace>,
    /// Its sets, oldest first.
    pub(super) ages: Ages,
    /// What leaves in order; storage takes accepted events in any.
    pub(super) order: Order,
    pub(super) stored: VecDeque<EventPlace>,
    pub(super) account: FarmAccount,
}

/// All flows' events between assembly and decision.
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
    pub(super) plan: Plan,
    /// The event that storage is to get, and its fragments.
    pub(super) storing: Option<EventPlace>,
    pub(super) stored_fragments: Vec<FragmentPlace>,
    empty: Vec<EventSet>,
    /// When to look for silent nodes and for such that should be told something.
    next_look: Instant,
}

impl Farm {
    /// An empty farm; the configuration must have been checked.
    pub fn new(config: &GatewayConfig) -> Self {
        let sets: usize = config.flows.iter().map(|flow| usize::from(flow.sets)).sum();
        let largest_set = config.flows.iter().map(|flow| flow.sources.len()).max().unwrap_or_default();
        let flow = |flow: &FlowConfig| FarmFlow {
            waiting: VecDeque::with_capacity(2 * usize::from(flow.sets) * usize::from(flow.packing)),
            ages: Ages::new(sets),
            order: Order::new(usize::from(flow.sets)),
            stored: VecDeque::with_capacity(usize::from(flow.sets) * usize::from(flow.packing)),
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
            plan: Plan::new(config.farm.largest_push, largest_set),
            storing: None,
            stored_fragments: Vec::with_capacity(largest_set),
            empty: Vec::with_capacity(sets),
            next_look: Instant::ZERO,
        }
    }

    /// A finished set comes from assembly. Its events wait for nodes from now on. Returns it for whoever wants to look, unless it is dropped.
    pub fn on_set(&mut self, set: EventSet, now: Instant) -> Option<&mut EventSet> {
        let flow = &mut self.flows[usize::from(set.flow)];
        let events = set.events.len() as u16;
        flow.account.events.assigned += u64::from(events);
        flow.order.open_from(set.open_from);
        let dropped = match set.ending {
            Ending::Dropped(cause) => Some(cause),
            // Its turn is over: a later event has left in its place.
            _ if flow.config.output == Output::Stream && flow.order.has_passed(set.first) => Some(Cause::Late),
            Ending::Complete | Ending::Incomplete => None,
        };
        if let Some(cause) = dropped {
            flow.account.events.incomplete_dropped.add(cause, u64::from(events));
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
        let deadline = now.after(flow.config.decision_timeout);
        let held = Held { set, deadline, undecided: events, leaving: 0, serial };
        Some(&mut self.slots[usize::from(slot)].insert(held).set)
    }

    /// The set of an event, if it is still held.
    pub(super) fn held(&mut self, place: EventPlace) -> Option<&mut Held> {
        self.slots[usize::from(place.slot)].as_mut().filter(|held| held.serial == place.serial)
    }

    /// Lets a set go whose events are all decided and have left, unless a push still needs its bytes.
    pub(super) fn release(&mut self, slot: u16) {
        let held = &self.slots[usize::from(slot)];
        let is_done = held.as_ref().is_some_and(|held| held.undecided == 0 && held.leaving == 0);
        if !is_done || self.plan.needs(slot) {
            return;
        }
        if let Some(held) = self.slots[usize::from(slot)].take() {
            self.flows[usize::from(held.set.flow)].ages.remove(slot);
            self.vacant.push(slot);
            self.empty.push(held.set);
        }
    }

    /// A set whose events have all left: it goes back to assembly.
    pub fn take_empty(&mut self) -> Option<EventSet> {
        self.empty.pop()
    }

    /// Time passes: nodes fall silent, events are decided by default.
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

    pub(super) fn look_again(&mut self) {
        let silent = self.nodes.least_heard().map_or(Instant::FAR_FUTURE, |heard| heard.after(self.silence));
        self.next_look = silent;
    }

    /// When something is due that time alone brings.
    pub fn next_deadline(&self) -> Instant {
        let overdue = self.flows.iter().filter_map(|flow| flow.next_deadline(&self.slots));
        overdue.chain([self.next_look, self.next_told()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Whether no set is held.
    pub const fn is_empty(&self) -> bool {
        self.vacant.len() == self.slots.len()
    }

    /// Whether a node is there.
    pub fn has_nodes(&self) -> bool {
        self.nodes.iter().any(|node| node.is_present())
    }

    /// How many more events a node may be given now.
    pub fn credit(&self, node: u16) -> u64 {
        self.nodes.iter().nth(node.into()).map_or(0, super::nodes::Node::credit)
    }

    /// The account of a flow, with what is in flight counted from the table.
    pub fn account(&self, flow: u8) -> FarmAccount {
        let Some(known) = self.flows.get(usize::from(flow)) else { return FarmAccount::default() };
        let mut account = known.account;
        let held = self.slots.iter().flatten().filter(|held| held.set.flow == flow);
        let open = |held: &Held| held.set.events.iter().filter(|event| event.stage != Stage::Decided).count() as u64;
        account.events.in_flight = held.map(open).sum();
        account
    }

    /// The event of a place.
    pub(super) fn key(held: &Held, event: u16) -> EventKey {
        held.set.first.plus(u64::from(event))
    }
}

impl FarmFlow {
    /// Its oldest set that has undecided events, oldest deadline first.
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

/// Whether an event that was noted as waiting still does.
pub(super) fn is_waiting(place: EventPlace, slots: &[Option<Held>]) -> bool {
    let held = slots[usize::from(place.slot)].as_ref().filter(|held| held.serial == place.serial);
    held.is_some_and(|held| held.set.events[usize::from(place.event)].stage == Stage::Waiting)
}

/// Forgets what does not wait any more, where there would be no room for what comes.
pub(super) fn make_room(waiting: &mut VecDeque<EventPlace>, more: usize, slots: &[Option<Held>]) {
    if waiting.len() + more > waiting.capacity() {
        waiting.retain(|place| is_waiting(*place, slots));
    }
}
