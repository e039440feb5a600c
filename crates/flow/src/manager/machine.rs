//! The event manager's machine: what it knows, what goes in, what comes out.

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

/// What the manager wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "batches live in the message so that none needs an allocation")]
pub enum ManagerAction {
    /// Send a message. Nodes that are not connected any more are skipped.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Every event of a lumisection has ended. Readout and builder units get a message, too.
    LumisectionEnded(LumisectionEnd),
    /// Every node has finished or is not waited for any more: the run is over, a next one may be started.
    RunEnded,
}

/// What happened beside the ledger.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ManagerCounts {
    /// Events assigned again after a builder unit was lost.
    pub reassigned: u64,
    /// Acknowledgements of an older attempt, or repeated ones: ignored.
    pub stale_acknowledgements: u64,
    /// Messages from nodes that are not configured or not connected, or in the wrong direction: ignored.
    pub refused_messages: u64,
    /// Events for which a silent readout unit was not waited for.
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
    /// Events that a builder unit kept in an earlier attempt than the present one, by position: its index, the attempt,
    /// the ending.
    pub(super) kept: BTreeMap<u64, (u16, Attempt, Ending)>,
    /// Positions of events that were dropped, and that a lost builder unit may have kept.
    pub(super) undecided: Vec<u64>,
    pub(super) lumisections: Lumisections,
    /// Lumisections that ended and are not reported to the caller yet.
    pub(super) ended_lumisections: VecDeque<LumisectionEnd>,
    pub(super) outbox: VecDeque<(NodeId, Message)>,
    pub(super) account: EventAccount,
    pub(super) counts: ManagerCounts,
    pub(super) run_ended: bool,
    /// No further event is assigned for now.
    pub(super) is_paused: bool,
    /// Parameters that were changed.
    pub(super) settings: Settings,
    /// Sources that were masked or unmasked.
    masks: BTreeMap<SourceId, bool>,
}

impl Manager {
    /// A manager without nodes and without a run. Settings outside their limits
    /// ([`ManagerConfig::check`]) are moved to the nearest ones inside.
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

    /// A node has connected and said in which life. A node that is connected already has lost that connection.
    pub fn node_connected(&mut self, now: Instant, node: NodeId, incarnation: Incarnation) {
        match node.role {
            Role::Readout if node.index < self.config.readouts => self.readout_connected(now, node, incarnation),
            Role::Builder if node.index < self.config.builders => self.builder_connected(now, node, incarnation),
            _ => self.counts.refused_messages += 1,
        }
    }

    /// A node's connection is lost. Nothing is waited for from it; what a builder unit had is assigned again.
    pub fn node_lost(&mut self, now: Instant, node: NodeId) {
        match node.role {
            Role::Readout => self.readout_lost(now, node.index),
            Role::Builder => self.builder_lost(now, node.index),
            _ => {}
        }
    }

    /// A message has come.
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

    /// The next thing to do; `None` when everything is done until the next input or [`Manager::next_deadline`].
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

    /// When [`Manager::poll`] must be called even if nothing comes in.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.phase.deadline(), self.silence_deadline(), self.lumisection_deadline(), self.lost_builder_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The account of events: what was assigned, and how it was acknowledged; a successor's holds what its predecessors
    /// did. In flight is counted from the table.
    pub fn account(&self) -> EventAccount {
        let mut account = self.account;
        account.merge(self.ended.before());
        account.in_flight = self.table.count(&[Stage::Assigned, Stage::Again, Stage::Undecided]);
        account
    }

    /// What happened beside the ledger.
    pub const fn counts(&self) -> &ManagerCounts {
        &self.counts
    }

    /// Events and bytes that a builder unit can still be assigned; nothing where there is no such unit.
    pub fn free_credit(&self, builder: u16) -> (u64, u64) {
        self.builders.get(usize::from(builder)).map_or((0, 0), |link| (link.free_events(), link.free_bytes()))
    }

    /// Readout units of which an earlier life took part that only earlier event managers knew, and where the present
    /// life began.
    pub fn untold(&self) -> impl Iterator<Item = (NodeId, EventKey)> {
        let links = (0..).zip(&self.readouts);
        links.filter_map(|(index, link)| Some((NodeId::readout(index), link.untold_before?)))
    }

    /// How long a readout unit is waited for that cannot be reached.
    pub const fn unreachable_timeout(&self) -> Duration {
        self.config.unreachable_timeout
    }

    /// Readout units that are connected and cannot be reached: the run waits for them.
    pub fn unreachable(&self) -> impl Iterator<Item = NodeId> {
        let links = (0..).zip(&self.readouts);
        links.filter(|(_, link)| link.present && link.unreachable).map(|(index, _)| NodeId::readout(index))
    }

    /// How far the run has come.
    pub const fn state(&self) -> ManagerState {
        self.phase.state()
    }

    /// The oldest key that is not released, disregarding events that an earlier event manager released; and the end of
    /// the closed lumisections, which is at or after it.
    pub fn oldest(&self) -> (EventKey, EventKey) {
        let oldest = self.table.key_at(self.table.tail()).max(self.ended.below());
        (oldest, self.lumisections.closed_below())
    }

    /// The highest key that a readout unit announced in this run.
    pub const fn highest(&self) -> Option<EventKey> {
        self.highest
    }

    /// The last key of the run, where it is fixed.
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
        // A unit that comes back in the same life before it was given up still has its data: builders go on waiting for
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
            // It still holds events that were released while it was away; it learns of them before it discards
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
                    // A first start of the same life that was lost on the way is sent again as it was.
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

    /// A readout unit may have been away when resynchronisations were declared, and its sources wait for that.
    fn tell_resyncs(&mut self, node: NodeId) {
        let known = self.readouts[usize::from(node.index)].settled.resync();
        let resyncs = self.table.resyncs_after(known).map(|first| (node, Message::Resync(Resync { first })));
        self.outbox.extend(resyncs);
    }

    /// Asks a readout unit to announce again what it holds. It answers the question for its highest key after that.
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
                // A successor does not know which builders are new: a start would end what the builder has in work.
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

    /// The key at which a readout unit that starts again in mid-run begins.
    pub(super) fn restart_key(&self) -> EventKey {
        if self.floor.cursor < self.table.head() {
            return self.table.key_at(self.floor.cursor);
        }
        self.highest.map_or(self.first, EventKey::next)
    }
}

/// More sources than any system has: a longer list is not genuine.
const MOST_MASKS: usize = 1 << 20;

/// Sources that are masked: said to every readout unit, since only the one that has the source knows it; and said again
/// to one that begins anew.
impl Manager {
    /// From now on a source takes part no longer, or again. Before a run this holds from its first event on; during a
    /// run the readout unit that has the source chooses from which event on, and reports it.
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

    /// A readout unit reports to a successor which sources are masked.
    fn masked_before(&mut self, mask: Mask) {
        if self.masks.len() < MOST_MASKS {
            self.masks.entry(mask.source).or_insert(mask.is_masked);
        }
    }

    /// To be said to a readout unit before its start, and to one that was away: what was said meanwhile it did not
    /// hear.
    pub(super) fn tell_masks(&mut self, node: NodeId) {
        let masks = self.masks.iter().map(|(&source, &is_masked)| (node, Message::Mask(Mask { source, is_masked })));
        self.outbox.extend(masks);
    }
}

/// Parameters that change during a run: the event manager's own, and those that it sends to every node.
impl Manager {
    /// A parameter has another value from now on. Before a run nodes hear of it before they begin.
    pub fn set(&mut self, setting: Setting) {
        self.apply(setting);
        self.settings.keep(setting);
        if !matches!(self.phase, Phase::Idle) {
            self.send_to_readouts(&Message::Set(setting));
            self.send_to_builders(&Message::Set(setting));
        }
    }

    /// What a limit was when something began to wait is not changed by it.
    fn apply(&mut self, setting: Setting) {
        let time = setting.time();
        match setting.parameter {
            Parameter::ManagerTimeout => self.config.event_timeout = time,
            Parameter::UnreachableTimeout => self.config.unreachable_timeout = time,
            Parameter::DrainTimeout => self.config.drain_timeout = time,
            _ => {}
        }
    }

    /// A readout unit reports to a successor the settings it has.
    fn set_before(&mut self, setting: Setting) {
        if self.settings.keep_unless_known(setting) {
            self.apply(setting);
        }
    }

    /// To be said to a node before its start, and to one that was away.
    pub(super) fn tell_settings(&mut self, node: NodeId) {
        let settings = self.settings.all().map(|setting| (node, Message::Set(setting)));
        self.outbox.extend(settings);
    }
}
