//! The state machine of the event manager: its state, inputs and actions.

use super::announce::Floor;
use super::assign::{LackingLog, Releases};
use super::links::{BuilderLink, ReadoutLink};
use super::recovery::{EndedLog, Recovered};
use super::run::{Lumisections, Phase};
use super::table::{Stage, Table};
use super::{ManagerConfig, ManagerState};
use crate::messages::{LumisectionEnd, Mask, Message, ReadoutState, Resync, Setting, Start};
use crate::run_state::Settings;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{
    Attempt, ByCause, Ending, EventAccount, EventKey, Incarnation, Instant, NodeId, Parameter, Role, SourceId,
};
use std::collections::{BTreeMap, VecDeque};

/// An action for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "batches live in the message so that none needs an allocation")]
pub enum ManagerAction {
    /// Send a message. Messages to nodes that are no longer connected are skipped.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Every event of a lumisection has ended. Readout and builder units get a message, too.
    LumisectionEnded(LumisectionEnd),
    /// Every node has finished or was given up: the run is over, and the next one may start.
    RunEnded,
}

/// Counts of what is not in the ledger.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ManagerCounts {
    /// Events assigned again after a builder unit was lost.
    pub reassigned: u64,
    /// Acknowledgements of an older attempt, or repeated ones: ignored.
    pub stale_acknowledgements: u64,
    /// Messages from nodes that are not configured or not connected, or in the wrong direction: ignored.
    pub refused_messages: u64,
    /// Events that were assigned without data of a silent readout unit.
    pub left_out: u64,
    /// Announced events that were never assigned, by cause.
    pub unassigned: ByCause,
}

/// The event manager.
#[derive(Debug)]
pub struct Manager {
    pub(super) config: ManagerConfig,
    pub(super) phase: Phase,
    pub(super) first: EventKey,
    pub(super) last: Option<EventKey>,
    pub(super) highest: Option<EventKey>,
    pub(super) table: Table,
    pub(super) floor: Floor,
    pub(super) readouts: Vec<ReadoutLink>,
    pub(super) builders: Vec<BuilderLink>,
    pub(super) last_builder: Option<u16>,
    pub(super) again: Vec<u64>,
    pub(super) recovered: Recovered,
    pub(super) releases: Releases,
    pub(super) ended: EndedLog,
    pub(super) lacking: LackingLog,
    /// Events that a builder unit kept in an earlier attempt than the present one, by position: its index, the attempt
    /// and the ending.
    pub(super) kept: BTreeMap<u64, (u16, Attempt, Ending)>,
    /// Positions of dropped events that a lost builder unit may have kept.
    pub(super) undecided: Vec<u64>,
    pub(super) lumisections: Lumisections,
    /// Lumisections that ended and were not yet returned to the caller.
    pub(super) ended_lumisections: VecDeque<LumisectionEnd>,
    pub(super) outbox: VecDeque<(NodeId, Message)>,
    pub(super) account: EventAccount,
    pub(super) counts: ManagerCounts,
    pub(super) run_ended: bool,
    /// While true, no further event is assigned.
    pub(super) is_paused: bool,
    /// Parameters that were changed.
    pub(super) settings: Settings,
    /// Sources that were masked or unmasked.
    masks: BTreeMap<SourceId, bool>,
}

impl Manager {
    /// Creates a manager without nodes and without a run. Settings outside their limits ([`ManagerConfig::check`]) are
    /// set to the nearest permitted value.
    pub fn new(mut config: ManagerConfig) -> Self {
        config.batch = config.batch.clamp(1, crate::messages::BATCH);
        let nodes = usize::from(config.readouts) + usize::from(config.builders);
        let table = Table::new(config.capacity.max(1));
        let capacity = table.capacity();
        Self {
            phase: Phase::Idle,
            first: EventKey::MIN,
            last: None,
            highest: None,
            table,
            floor: Floor::default(),
            readouts: (0..config.readouts).map(|_| ReadoutLink::new()).collect(),
            builders: (0..config.builders).map(|_| BuilderLink::default()).collect(),
            last_builder: None,
            again: Vec::with_capacity(capacity),
            recovered: Recovered::default(),
            releases: Releases::new(capacity),
            ended: EndedLog::default(),
            lacking: LackingLog::default(),
            kept: BTreeMap::new(),
            undecided: Vec::new(),
            lumisections: Lumisections::default(),
            ended_lumisections: VecDeque::new(),
            outbox: VecDeque::with_capacity(3 * nodes + 16),
            account: EventAccount::default(),
            counts: ManagerCounts::default(),
            run_ended: false,
            is_paused: false,
            settings: Settings::default(),
            masks: BTreeMap::new(),
            config,
        }
    }

    /// Records that a node has connected, in this life. If it was connected already, that connection is lost.
    pub fn node_connected(&mut self, now: Instant, node: NodeId, incarnation: Incarnation) {
        match node.role {
            Role::Readout if node.index < self.config.readouts => self.readout_connected(now, node, incarnation),
            Role::Builder if node.index < self.config.builders => self.builder_connected(now, node, incarnation),
            _ => self.counts.refused_messages += 1,
        }
    }

    /// Records that a node's connection is lost. The manager stops waiting for it, and assigns a builder unit's events
    /// again.
    pub fn node_lost(&mut self, now: Instant, node: NodeId) {
        match node.role {
            Role::Readout => self.readout_lost(now, node.index),
            Role::Builder => self.builder_lost(now, node.index),
            _ => {}
        }
    }

    /// Handles a message.
    pub fn message(&mut self, now: Instant, from: NodeId, message: &Message) {
        let index = usize::from(from.index);
        let known = match from.role {
            Role::Readout => self.readouts.get(index).is_some_and(|link| link.present),
            Role::Builder => self.builders.get(index).is_some_and(|link| link.connected),
            _ => false,
        };
        if from.role == Role::Readout && known {
            self.readouts[index].hear(now);
        }
        match (from.role, message) {
            _ if !known => self.counts.refused_messages += 1,
            (_, Message::Report(_)) | (Role::Builder, Message::Synchrony(_)) => {}
            (Role::Readout, Message::Announce(announce)) => self.announced(now, from.index, announce),
            (Role::Readout, Message::Ended(ended)) => self.earlier_ended(ended),
            (_, Message::Lumisection(told)) => self.lumisection_told(*told),
            (_, Message::LumisectionEnd(end)) => self.lumisection_end_told(end),
            (Role::Readout, Message::Mask(mask)) => self.masked_before(*mask),
            (Role::Readout, Message::Set(setting)) => self.set_before(*setting),
            (Role::Readout, Message::Follows(follows)) => self.readouts[index].follows = *follows,
            (Role::Readout, Message::StopAt(last)) => self.stopped_before(*last),
            (Role::Readout, Message::Highest(key)) => self.answered(now, from.index, *key),
            (Role::Readout, Message::Finished(_)) => self.readouts[index].finished = true,
            (Role::Builder, Message::Credit(credit)) => self.builders[index].grant(*credit),
            (Role::Builder, Message::Lacking(lacking)) => self.lacking.tell(from.index, lacking),
            (Role::Builder, Message::Acknowledge(acknowledge)) => self.acknowledged(from.index, acknowledge),
            (Role::Builder, Message::Unreleased(unreleased)) => self.unreleased(from.index, unreleased),
            (Role::Builder, Message::Finished(_)) => self.builders[index].finished = true,
            _ => self.counts.refused_messages += 1,
        }
    }

    /// Returns the next action, or `None` until the next input or [`Manager::next_deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<ManagerAction> {
        loop {
            if let Some((to, message)) = self.outbox.pop_front() {
                return Some(ManagerAction::Send { to, message });
            }
            if let Some(end) = self.ended_lumisections.pop_front() {
                return Some(ManagerAction::LumisectionEnded(end));
            }
            if self.tell_what_exists(now) || self.leave_out_the_silent(now) {
                continue;
            }
            if let Some(action) = self.next_assignment(now).or_else(|| self.next_release(now)) {
                return Some(action);
            }
            if self.turn_lumisections(now) {
                continue;
            }
            if self.outbox.is_empty() && !self.advance_run(now) {
                return self.take_run_ended();
            }
        }
    }

    /// When [`Manager::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.phase.deadline(), self.silence_deadline(), self.lumisection_deadline(), self.lost_builder_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The account of events: assigned events and their outcomes; a successor's includes those of its predecessors.
    /// Events in flight are counted from the table.
    pub fn account(&self) -> EventAccount {
        let mut account = self.account;
        account.merge(self.ended.before());
        account.in_flight = self.table.count(&[Stage::Assigned, Stage::Again, Stage::Undecided]);
        account
    }

    /// Counts of what is not in the ledger.
    pub const fn counts(&self) -> &ManagerCounts {
        &self.counts
    }

    /// Events and bytes that a builder unit can still be assigned; zero if there is no such unit.
    pub fn free_credit(&self, builder: u16) -> (u64, u64) {
        self.builders.get(usize::from(builder)).map_or((0, 0), |link| (link.free_events(), link.free_bytes()))
    }

    /// Readout units with an earlier life in the run that only earlier event managers knew, and the first key of the
    /// present life.
    pub fn untold(&self) -> impl Iterator<Item = (NodeId, EventKey)> {
        let links = (0..).zip(&self.readouts);
        links.filter_map(|(index, link)| Some((NodeId::readout(index), link.untold_before?)))
    }

    /// How long the manager waits for a readout unit that it cannot reach.
    pub const fn unreachable_timeout(&self) -> Duration {
        self.config.unreachable_timeout
    }

    /// Readout units that are connected but unreachable: the run waits for them.
    pub fn unreachable(&self) -> impl Iterator<Item = NodeId> {
        let links = (0..).zip(&self.readouts);
        links.filter(|(_, link)| link.present && link.unreachable).map(|(index, _)| NodeId::readout(index))
    }

    /// The state of the run.
    pub const fn state(&self) -> ManagerState {
        self.phase.state()
    }

    /// The oldest key that is not released, except events released by an earlier event manager, and the end of the
    /// closed lumisections, which is at or after it.
    pub fn oldest(&self) -> (EventKey, EventKey) {
        let oldest = self.table.key_at(self.table.tail()).max(self.ended.below());
        (oldest, self.lumisections.closed_below())
    }

    /// The highest key that a readout unit announced in this run.
    pub const fn highest(&self) -> Option<EventKey> {
        self.highest
    }

    /// The last key of the run, if it is fixed.
    pub const fn last(&self) -> Option<EventKey> {
        self.last
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message) {
        self.outbox.push_back((to, message));
    }

    pub(super) fn send_to_readouts(&mut self, message: &Message) {
        for (index, link) in (0..).zip(&self.readouts) {
            if link.present {
                self.outbox.push_back((NodeId::readout(index), message.clone()));
            }
        }
    }

    pub(super) fn send_to_builders(&mut self, message: &Message) {
        for (index, link) in (0..).zip(&self.builders) {
            if link.connected {
                self.outbox.push_back((NodeId::builder(index), message.clone()));
            }
        }
    }

    fn readout_connected(&mut self, now: Instant, node: NodeId, incarnation: Incarnation) {
        // A unit that returns in the same life before it was given up still has its data: builder units still wait for
        // it.
        if self.readouts[usize::from(node.index)].incarnation != Some(incarnation) {
            self.readout_lost(now, node.index);
        }
        let (restart, has_ended) = (self.restart_key(), self.recovered.had_events);
        let link = &mut self.readouts[usize::from(node.index)];
        let before = link.incarnation.replace(incarnation);
        let same_life = before == Some(incarnation);
        let is_untold = has_ended && before.is_none() || link.untold_before.is_some();
        let heard = same_life && link.heard;
        link.present = true;
        link.hear(now);
        link.told = (EventKey::MIN, Instant::ZERO);
        link.quiet_since = link.quiet_since.map(|_| now);
        link.finished = false;
        link.highest = None;
        match self.phase {
            Phase::Idle => {}
            Phase::Recovering { .. } => {
                link.begin(now, self.first);
                self.tell_masks(node);
                self.tell_settings(node);
                self.ask_to_repeat(node);
                self.tell_resyncs(node);
            }
            // It holds events that were released while it was disconnected. It learns of them before it discards
            // everything.
            Phase::Finishing { .. } if heard => self.ask_to_repeat(node),
            Phase::Finishing { .. } => self.send(node, Message::Finish),
            Phase::Running | Phase::Stopping { .. } | Phase::Draining { .. } => {
                if !is_planted(Flaw::MaskForgotten) {
                    self.tell_masks(node);
                }
                self.tell_settings(node);
                let link = &mut self.readouts[usize::from(node.index)];
                if !heard {
                    // A first start of the same life that was lost on the way is sent again unchanged.
                    let first = if same_life { link.settled } else { restart };
                    link.begin(now, first);
                    link.untold_before = is_untold.then_some(first);
                    self.send(node, Message::Start(Start { first, origin: self.first }));
                }
                if same_life || self.recovered.is_successor() {
                    self.ask_to_repeat(node);
                } else if matches!(self.phase, Phase::Stopping { .. }) {
                    self.send(node, Message::QueryHighest);
                }
                self.tell_resyncs(node);
                self.tell_lumisections(node);
                if let Some(last) = self.last {
                    self.send(node, Message::StopAt(last));
                }
                let state = ReadoutState { readout: node.index, present: true };
                self.send_to_builders(&Message::ReadoutState(state));
            }
        }
        self.raise_floor(now);
    }

    /// Sends resynchronisations to a readout unit that may have missed them: its sources wait for them.
    fn tell_resyncs(&mut self, node: NodeId) {
        let known = self.readouts[usize::from(node.index)].settled.resync();
        let resyncs = self.table.resyncs_after(known).map(|first| (node, Message::Resync(Resync { first })));
        self.outbox.extend(resyncs);
    }

    /// Requests that a readout unit announce again what it holds, and then report its highest key.
    pub(super) fn ask_to_repeat(&mut self, node: NodeId) {
        self.readouts[usize::from(node.index)].repeats = Some(EventKey::MIN);
        self.send(node, Message::Recover);
        self.send(node, Message::QueryHighest);
    }

    fn readout_lost(&mut self, now: Instant, readout: u16) {
        let Some(link) = self.readouts.get_mut(usize::from(readout)).filter(|link| link.present) else { return };
        link.present = false;
        link.waiting.clear();
        if self.phase.is_open() {
            self.send_to_builders(&Message::ReadoutState(ReadoutState { readout, present: false }));
        }
        self.raise_floor(now);
    }

    fn builder_connected(&mut self, now: Instant, node: NodeId, incarnation: Incarnation) {
        self.builder_lost(now, node.index);
        let link = &mut self.builders[usize::from(node.index)];
        let same_life = link.incarnation == Some(incarnation);
        link.connect(incarnation);
        self.decide();
        match self.phase {
            Phase::Idle => {}
            Phase::Recovering { .. } => {
                self.tell_settings(node);
                self.send(node, Message::Recover);
            }
            Phase::Finishing { .. } => {
                self.tell_lumisections(node);
                self.send(node, Message::Finish);
            }
            Phase::Running | Phase::Stopping { .. } | Phase::Draining { .. } => {
                // A successor does not know which builder units are new: a start would end the events that one has in
                // work.
                let known = same_life || self.recovered.is_successor();
                let start = Message::Start(Start::of_run(self.first));
                self.tell_settings(node);
                self.send(node, if known { Message::Recover } else { start });
                self.tell_lumisections(node);
                for (readout, link) in (0..).zip(&self.readouts) {
                    let state = ReadoutState { readout, present: link.present };
                    self.outbox.push_back((node, Message::ReadoutState(state)));
                }
                if let (Phase::Draining { .. }, Some(last)) = (self.phase, self.last) {
                    self.send(node, Message::StopAt(last));
                }
            }
        }
    }

    fn builder_lost(&mut self, now: Instant, builder: u16) {
        let Some(link) = self.builders.get_mut(usize::from(builder)).filter(|link| link.connected) else { return };
        link.connected = false;
        if core::mem::take(&mut link.in_work) > 0 {
            link.lost = Some(now);
        }
        self.recovered.forget_work_of(builder);
        self.assign_again(builder);
    }

    /// The first key of a readout unit that starts again during a run.
    pub(super) fn restart_key(&self) -> EventKey {
        if self.floor.cursor < self.table.head() {
            return self.table.key_at(self.floor.cursor);
        }
        self.highest.map_or(self.first, EventKey::next)
    }
}

/// More sources than any system has: a longer list is not valid.
const MOST_MASKS: usize = 1 << 20;

/// Masked sources. The manager tells every readout unit, because only the unit with the source knows it, and tells a
/// unit that starts again.
impl Manager {
    /// Masks or unmasks a source. Before a run this holds from its first event on. During a run the readout unit with
    /// the source chooses the first event, and reports it.
    pub fn mask(&mut self, source: SourceId, is_masked: bool) {
        if self.masks.len() < MOST_MASKS || self.masks.contains_key(&source) {
            self.masks.insert(source, is_masked);
        }
        if !matches!(self.phase, super::run::Phase::Idle) {
            self.send_to_readouts(&Message::Mask(Mask { source, is_masked }));
        }
    }

    /// The masked sources.
    pub fn masked(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.masks.iter().filter(|&(_, is_masked)| *is_masked).map(|(&source, _)| source)
    }

    /// Handles a readout unit's report to a successor of a masked source.
    fn masked_before(&mut self, mask: Mask) {
        if self.masks.len() < MOST_MASKS {
            self.masks.entry(mask.source).or_insert(mask.is_masked);
        }
    }

    /// Sends the masks to a readout unit before its start, and to one that was disconnected.
    pub(super) fn tell_masks(&mut self, node: NodeId) {
        let masks = self.masks.iter().map(|(&source, &is_masked)| (node, Message::Mask(Mask { source, is_masked })));
        self.outbox.extend(masks);
    }
}

/// Parameters that change during a run: the event manager's own, and those that it sends to every node.
impl Manager {
    /// Changes a parameter. Before a run, nodes learn it before they start.
    pub fn set(&mut self, setting: Setting) {
        self.apply(setting);
        self.settings.keep(setting);
        if !matches!(self.phase, Phase::Idle) {
            self.send_to_readouts(&Message::Set(setting));
            self.send_to_builders(&Message::Set(setting));
        }
    }

    /// Does not change the limit of a wait that has already begun.
    fn apply(&mut self, setting: Setting) {
        let time = setting.time();
        match setting.parameter {
            Parameter::ManagerTimeout => self.config.event_timeout = time,
            Parameter::UnreachableTimeout => self.config.unreachable_timeout = time,
            Parameter::DrainTimeout => self.config.drain_timeout = time,
            _ => {}
        }
    }

    /// Handles a readout unit's report of its settings to a successor.
    fn set_before(&mut self, setting: Setting) {
        if self.settings.keep_unless_known(setting) {
            self.apply(setting);
        }
    }

    /// Sends the settings to a node before its start, and to one that was disconnected.
    pub(super) fn tell_settings(&mut self, node: NodeId) {
        let settings = self.settings.all().map(|setting| (node, Message::Set(setting)));
        self.outbox.extend(settings);
    }
}
