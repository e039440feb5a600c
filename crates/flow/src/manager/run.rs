//! The run in the event manager: start, stop, drain, finish.

use super::table::Stage;
use super::{Manager, ManagerAction, ManagerConfig};
use crate::messages::{Batch, Ended, Lumisection, LumisectionEnd, Message, ReadoutState, Release, ReleaseEntry, Start};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventAccount, EventKey, Instant, NodeId, Outcome};
use std::collections::{BTreeMap, VecDeque};

/// The state of the run, for other modules.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ManagerState {
    /// There is no run.
    Idle,
    /// A successor asks readout and builder units what they have.
    Recovering,
    /// Events are opened and assigned.
    Running,
    /// Readout units report their highest key.
    Stopping,
    /// The last key is fixed; events up to it are built and released.
    Draining,
    /// Everything is released; nodes close their files.
    Finishing,
}

/// The phase of the run, with its data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No run.
    Idle,
    /// Until every node has reported what it has, or the deadline.
    Recovering { deadline: Instant },
    /// Between start and stop.
    Running,
    /// Until every readout unit has answered, or the deadline.
    Stopping { deadline: Instant },
    /// Until everything is released. The rest is dropped at the deadline; `dropped` is the cause.
    Draining { deadline: Instant, dropped: Option<Cause> },
    /// Until every node has finished, or the deadline. `refusal` is the cause for what is announced now.
    Finishing { deadline: Instant, refusal: Cause },
}

impl Phase {
    /// The state for other modules.
    pub(super) const fn state(self) -> ManagerState {
        match self {
            Self::Idle => ManagerState::Idle,
            Self::Recovering { .. } => ManagerState::Recovering,
            Self::Running => ManagerState::Running,
            Self::Stopping { .. } => ManagerState::Stopping,
            Self::Draining { .. } => ManagerState::Draining,
            Self::Finishing { .. } => ManagerState::Finishing,
        }
    }

    /// When something happens without further input.
    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Idle | Self::Running | Self::Draining { dropped: Some(_), .. } => None,
            Self::Recovering { deadline }
            | Self::Stopping { deadline }
            | Self::Draining { deadline, .. }
            | Self::Finishing { deadline, .. } => Some(deadline),
        }
    }

    /// Whether announced keys become events.
    pub(super) const fn is_open(self) -> bool {
        match self {
            Self::Recovering { .. } | Self::Running | Self::Stopping { .. } | Self::Draining { dropped: None, .. } => {
                true
            }
            Self::Idle | Self::Draining { .. } | Self::Finishing { .. } => false,
        }
    }

    /// Whether events are assigned: only after it is known which node has which.
    pub(super) const fn assigns(self) -> bool {
        self.is_open() && !matches!(self, Self::Recovering { .. })
    }

    /// Whether nodes are still being asked what they have.
    pub(super) const fn is_recovering(self) -> bool {
        matches!(self, Self::Recovering { .. })
    }

    /// Why announced keys are refused, if they are.
    pub(super) const fn refusal(self) -> Option<Cause> {
        match self {
            Self::Draining { dropped, .. } => dropped,
            Self::Finishing { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

impl Manager {
    /// Starts a run at key `first`. With `last`, exactly the keys from `first` to `last` are opened, and the run ends
    /// by itself. Ignored during another run.
    pub fn start(&mut self, now: Instant, first: EventKey, last: Option<EventKey>) {
        if self.phase != Phase::Idle {
            return;
        }
        self.begin(now, first, last);
        self.phase = Phase::Running;
        for readout in 0..self.config.readouts {
            if self.readouts[usize::from(readout)].present {
                self.tell_masks(NodeId::readout(readout));
                self.tell_settings(NodeId::readout(readout));
            }
        }
        for builder in 0..self.config.builders {
            if self.builders[usize::from(builder)].connected {
                self.tell_settings(NodeId::builder(builder));
            }
        }
        let begin = [Message::Start(Start::of_run(first)), Message::Lumisection(Lumisection { number: 1, first })];
        for message in &begin {
            self.send_to_readouts(message);
            self.send_to_builders(message);
        }
        for readout in 0..self.config.readouts {
            if !self.readouts[usize::from(readout)].present {
                self.send_to_builders(&Message::ReadoutState(ReadoutState { readout, present: false }));
            }
        }
        if let Some(last) = last {
            self.send_to_readouts(&Message::StopAt(last));
        }
        self.raise_floor(now);
    }

    /// Stops the run: the last key is the highest that a readout unit has seen, and everything up to it is drained. A
    /// successor first learns what must be drained. Ignored if there is no run or it is already stopping.
    pub fn stop(&mut self, now: Instant) {
        if self.phase.is_recovering() {
            self.recovered.stop_after(None);
        } else if self.phase == Phase::Running {
            self.is_paused = false;
            for link in &mut self.readouts {
                link.highest = None;
            }
            self.send_to_readouts(&Message::QueryHighest);
            let ManagerConfig { event_timeout, drain_timeout, .. } = self.config;
            let patience = if self.may_know_too_little() { drain_timeout } else { event_timeout };
            self.phase = Phase::Stopping { deadline: now.after(patience) };
        }
    }

    /// Whether a successor still lacks the report of a readout unit on how far the run had come while others could
    /// provide it: these may not know yet that their event manager is dead, and have not connected. Once all readout
    /// units have reported, builder units know nothing more, because they have their events from them.
    fn may_know_too_little(&self) -> bool {
        let is_untold = self.readouts.iter().any(|link| !link.has_told);
        let may_be_told = self.readouts.iter().any(|link| !link.present && !link.has_told)
            || self.builders.iter().any(|link| !link.told_all);
        self.recovered.is_successor() && is_untold && may_be_told
    }

    /// Stops with this last key, which the sources will reach: everything up to it is awaited and drained. Ignored like
    /// [`Manager::stop`].
    pub fn stop_at(&mut self, now: Instant, last: EventKey) {
        if self.phase.is_recovering() {
            self.recovered.stop_after(Some(last));
        } else if self.phase == Phase::Running {
            self.drain_to(now, self.last.map_or(last, |given| given.min(last)));
        }
    }

    /// Stops at once: whatever is not acknowledged is dropped with [`Cause::ForcedStop`]. If nodes are finishing
    /// already, the manager stops waiting for them.
    pub fn force_stop(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Idle | Phase::Draining { dropped: Some(_), .. } => {}
            Phase::Finishing { deadline, .. } => *deadline = now,
            _ => self.drop_the_rest(now, Cause::ForcedStop),
        }
    }

    /// Pauses or resumes assignment. During a pause readout units fill up and hold back their sources; builder units
    /// finish what they have; a stop builds the rest. A pause loses nothing. Ignored without a run.
    pub const fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused && matches!(self.phase, Phase::Running);
    }

    /// Whether the run is paused.
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Prepares table, accounts and links for a run.
    pub(super) fn begin(&mut self, now: Instant, first: EventKey, last: Option<EventKey>) {
        (self.first, self.last, self.highest) = (first, last, None);
        self.is_paused = false;
        self.table.reset(first);
        self.floor = super::announce::Floor { key: first, cursor: 0, watch: 0 };
        self.again.clear();
        self.recovered.clear();
        self.releases.clear();
        self.ended = super::recovery::EndedLog::default();
        self.lacking.clear();
        self.kept.clear();
        self.undecided.clear();
        self.lumisections.begin_run(now, first);
        self.ended_lumisections.clear();
        self.account = EventAccount::default();
        self.counts = super::ManagerCounts::default();
        for link in &mut self.readouts {
            link.begin(now, first);
            link.has_told = false;
            link.untold_before = None;
        }
        for link in &mut self.builders {
            (link.in_work, link.finished, link.told_all, link.lost) = (0, false, false, None);
        }
    }

    /// Advances the run if nothing else is left to do. Returns whether something changed.
    pub(super) fn advance_run(&mut self, now: Instant) -> bool {
        if self.give_up_lost_builders(now) {
            return true;
        }
        self.move_tail(now);
        match self.phase {
            Phase::Idle => return false,
            Phase::Recovering { deadline } => {
                if now < deadline && !self.all_reported() {
                    return false;
                }
                self.complete_recovery(now);
            }
            Phase::Running => {
                // A run that has lost all readout units continues: they may return.
                if self.readouts.iter().all(|link| !link.present) || !self.is_drained() {
                    return false;
                }
                self.finish(now, Cause::AfterStop);
            }
            Phase::Stopping { deadline } => {
                let asked = self.readouts.iter().any(|link| link.present && link.highest.is_none());
                if now < deadline && (asked || self.may_know_too_little()) {
                    return false;
                }
                self.fix_last(now);
            }
            Phase::Draining { dropped: Some(cause), .. } => self.finish(now, cause),
            Phase::Draining { deadline, .. } => {
                if self.is_drained() {
                    self.finish(now, Cause::AfterStop);
                } else if now >= deadline {
                    self.drop_the_rest(now, Cause::DrainTimedOut);
                } else {
                    return false;
                }
            }
            Phase::Finishing { deadline, .. } => {
                let readouts = self.readouts.iter().any(|link| link.present && !link.finished);
                let builders = self.builders.iter().any(|link| link.connected && !link.finished);
                if now < deadline && (readouts || builders) {
                    return false;
                }
                self.dismiss_the_silent(now);
                self.phase = Phase::Idle;
                self.run_ended = true;
                return !self.outbox.is_empty();
            }
        }
        true
    }

    /// Gives up readout units that were to report what they hold and did not.
    fn dismiss_the_silent(&mut self, now: Instant) {
        for readout in 0..self.config.readouts {
            let link = &mut self.readouts[usize::from(readout)];
            if link.present && link.repeats.is_some() {
                link.repeat_is_over(now);
                self.send(NodeId::readout(readout), Message::Finish);
            }
        }
    }

    /// Returns the end of the run, once.
    pub(super) fn take_run_ended(&mut self) -> Option<ManagerAction> {
        core::mem::take(&mut self.run_ended).then_some(ManagerAction::RunEnded)
    }

    /// Whether the last key is known and everything up to it has ended and is released.
    fn is_drained(&self) -> bool {
        self.last.is_some_and(|last| self.floor.key > last)
            && self.floor.cursor == self.table.head()
            && self.table.is_empty()
            && self.releases.is_idle()
    }

    /// Fixes the last key: the highest that the readout units reported.
    fn fix_last(&mut self, now: Instant) {
        let answers = self.readouts.iter().filter(|link| link.present).filter_map(|link| link.highest);
        let seen = answers.max().max(self.highest).max(self.recovered.told_late).unwrap_or(self.first.previous());
        self.drain_to(now, self.last.map_or(seen, |last| last.min(seen)));
    }

    pub(super) fn drain_to(&mut self, now: Instant, last: EventKey) {
        self.is_paused = false;
        self.last = Some(last);
        self.send_to_readouts(&Message::StopAt(last));
        self.send_to_builders(&Message::StopAt(last));
        self.phase = Phase::Draining { deadline: now.after(self.config.drain_timeout), dropped: None };
    }

    /// Drops everything that has not ended, for `cause`.
    fn drop_the_rest(&mut self, now: Instant, cause: Cause) {
        let outcome = Outcome::Dropped(cause);
        self.builders.iter_mut().for_each(|link| link.lost = None);
        self.decide();
        for position in self.table.tail()..self.table.head() {
            if matches!(self.table.row(position).stage, Stage::Open | Stage::Assigned | Stage::Again) {
                self.end(position, outcome);
            }
        }
        self.is_paused = false;
        self.floor.cursor = self.table.head();
        self.floor.watch = self.table.head();
        self.again.clear();
        for (readout, link) in (0..).zip(&mut self.readouts) {
            while !link.waiting.is_empty() {
                let count = link.waiting.len().min(crate::messages::BATCH);
                let refused = link.waiting.drain(..count);
                let entries: Batch<_> =
                    refused.map(|entry| ReleaseEntry { first: entry.key, count: 1, outcome }).collect();
                self.counts.unassigned.add(cause, entries.len() as u64);
                self.outbox.push_back((NodeId::readout(readout), Message::Release(Release { entries })));
            }
        }
        self.phase = Phase::Draining { deadline: now, dropped: Some(cause) };
    }

    fn finish(&mut self, now: Instant, refusal: Cause) {
        self.end_lumisections();
        self.tell_ended_now();
        for (readout, link) in (0..).zip(&self.readouts) {
            // A unit that was disconnected is asked what it holds, and first learns how that ended.
            if link.present && link.repeats.is_none() {
                self.outbox.push_back((NodeId::readout(readout), Message::Finish));
            }
        }
        self.send_to_builders(&Message::Finish);
        self.phase = Phase::Finishing { deadline: now.after(self.config.drain_timeout), refusal };
    }
}

/// The length of a lumisection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum LumisectionLength {
    /// The whole run.
    #[default]
    Run,
    /// This number of assigned events, at least 1.
    Events(u64),
    /// This time, regardless of events.
    Time(Duration),
}

/// The lumisections of a run: ranges of keys, bounded by a number of events or by time, the same for all builder units.
/// A lumisection is closed, with its account, when all of its events have ended in all builder units.
///
/// ```text
///             first key of 3          first key of 4                 cursor
///  ... 2 ------|--------- 3 -----------|----------- 4 ----------------|  next to assign
///        tail -->  passes it: 2 is over
/// ```
/// A lumisection begins before its first event is assigned, and builder units learn of it first. An event that is
/// assigned again stays in its lumisection, because that is a range of keys.
#[derive(Debug, Default)]
pub(super) struct Lumisections {
    /// Lumisections that have begun and are not over, the oldest first.
    open: VecDeque<Lumisection>,
    /// The outcomes of the events before the oldest one.
    before: Ended,
    /// Assigned events of the newest one, and when it began.
    assigned: u64,
    began: Instant,
    /// Ends of lumisections that some node has not received.
    over: VecDeque<LumisectionEnd>,
    /// The last of them, repeated for nodes that were disconnected.
    told: VecDeque<LumisectionEnd>,
    /// The lumisections that nodes knew at the takeover, by number.
    recovered: BTreeMap<u32, EventKey>,
}

impl Lumisections {
    /// The most open lumisections. While events of the oldest do not end, the newest one grows.
    const OPEN: usize = 8;
    /// The number of ends that are repeated.
    const TOLD: usize = 16;

    /// A run begins.
    fn begin_run(&mut self, now: Instant, first: EventKey) {
        let (mut open, before) = (core::mem::take(&mut self.open), Ended { below: first, ..Ended::default() });
        open.clear();
        open.push_back(Lumisection { number: 1, first });
        *self = Self { open, before, began: now, ..Self::default() };
    }

    /// Counts an event that this manager assigns for the first time. In a successor it may be in an older lumisection.
    pub(super) fn count(&mut self, key: EventKey) {
        self.assigned += u64::from(self.open.back().is_some_and(|newest| newest.first <= key));
    }

    /// Whether the next assigned event begins another lumisection.
    pub(super) fn is_full(&self, length: LumisectionLength) -> bool {
        matches!(length, LumisectionLength::Events(events) if self.assigned >= events.max(1)) && self.may_begin()
    }

    /// When another one begins by time.
    fn deadline(&self, length: LumisectionLength) -> Option<Instant> {
        match length {
            LumisectionLength::Time(time) if self.may_begin() => Some(self.began.after(time)),
            _ => None,
        }
    }

    fn may_begin(&self) -> bool {
        self.open.len() < Self::OPEN
    }

    fn begin_next(&mut self, now: Instant, first: EventKey) -> Lumisection {
        let newest = self.open.back().copied().unwrap_or(Lumisection { number: 0, first });
        let next = Lumisection { number: newest.number + 1, first: first.max(newest.first) };
        self.open.push_back(next);
        (self.assigned, self.began) = (0, now);
        next
    }

    /// Closes the lumisections before `key`: all events before it have ended, with this account.
    pub(super) fn pass(&mut self, key: EventKey, ended: &EventAccount) {
        while let Some(next) = self.open.get(1).filter(|next| next.first <= key) {
            self.close(next.first, ended);
        }
    }

    fn close(&mut self, below: EventKey, ended: &EventAccount) {
        let Some(Lumisection { number, .. }) = self.open.pop_front() else { return };
        let ended = Ended::of(below, ended);
        self.over.push_back(LumisectionEnd { number, before: self.before, ended });
        self.before = ended;
    }

    /// Every event below this key has ended, as far as lumisections are closed.
    pub(super) const fn closed_below(&self) -> EventKey {
        self.before.below
    }

    /// The messages, in order, for a node that must learn the present state.
    fn known(&self) -> impl Iterator<Item = Message> {
        let told = self.told.iter().map(|end| Message::LumisectionEnd(*end));
        told.chain(self.open.iter().map(|one| Message::Lumisection(*one)))
    }

    /// Continues after the last lumisection whose end a node reports, with those that nodes report to have begun.
    fn take_over(&mut self, now: Instant) {
        let Some(&last) = self.told.back() else { return self.take_over_from(now, 0, self.before.below) };
        self.before = last.ended;
        self.take_over_from(now, last.number, last.ended.below);
    }

    fn take_over_from(&mut self, now: Instant, over: u32, mut first: EventKey) {
        self.open.clear();
        let newest = self.recovered.last_key_value().map_or(over + 1, |(&number, _)| number.max(over + 1));
        // A lumisection that no node knows has no event. Numbers too far ahead are not believed.
        for number in over + 1..=newest.min(over + Self::OPEN as u32) {
            first = self.recovered.get(&number).map_or(first, |&told| told.max(first));
            self.open.push_back(Lumisection { number, first });
        }
        self.recovered.clear();
        (self.assigned, self.began) = (0, now);
    }
}

impl Manager {
    /// Begins another lumisection with the next assigned event.
    pub(super) fn begin_lumisection(&mut self, now: Instant) {
        let first = self.restart_key();
        let next = self.lumisections.begin_next(now, first);
        self.send_to_readouts(&Message::Lumisection(next));
        self.send_to_builders(&Message::Lumisection(next));
    }

    /// Begins a lumisection by time, and closes finished ones. Returns whether there was one.
    pub(super) fn turn_lumisections(&mut self, now: Instant) -> bool {
        let due = self.lumisection_deadline().is_some_and(|deadline| now >= deadline);
        if due {
            self.begin_lumisection(now);
        }
        due | self.close_lumisections()
    }

    /// When a lumisection begins by time.
    pub(super) fn lumisection_deadline(&self) -> Option<Instant> {
        self.lumisections.deadline(self.config.lumisection).filter(|_| self.phase.assigns())
    }

    /// Closes finished lumisections. Returns whether there was one.
    fn close_lumisections(&mut self) -> bool {
        if self.phase.assigns() {
            let mut passed = self.table.key_at(self.table.tail());
            if is_planted(Flaw::LumisectionClosedEarly) {
                passed = self.restart_key();
            }
            self.lumisections.pass(passed, self.ended.all());
        }
        let Some(end) = self.lumisections.over.pop_front() else { return false };
        self.send_to_readouts(&Message::LumisectionEnd(end));
        self.send_to_builders(&Message::LumisectionEnd(end));
        self.ended_lumisections.push_back(end);
        let told = &mut self.lumisections.told;
        if told.len() == Lumisections::TOLD {
            told.pop_front();
        }
        told.push_back(end);
        true
    }

    /// Closes every lumisection at the end of the run, when everything has ended.
    fn end_lumisections(&mut self) {
        let mut ended = *self.ended.all();
        for position in self.table.tail()..self.table.head() {
            let row = self.table.row(position);
            if matches!(row.stage, Stage::Done | Stage::Released) && row.attempt.0 > 0 && row.key >= self.ended.below()
            {
                self.lumisections.pass(row.key, &ended);
                ended.end(row.ending);
            }
        }
        let end = self.restart_key();
        self.lumisections.pass(end, &ended);
        while !self.lumisections.open.is_empty() {
            let below = self.lumisections.open.get(1).map_or(end, |next| next.first);
            self.lumisections.close(below, &ended);
        }
        while self.close_lumisections() {}
    }

    /// Tells a newly connected node which lumisections there are.
    pub(super) fn tell_lumisections(&mut self, node: NodeId) {
        self.outbox.extend(self.lumisections.known().map(|message| (node, message)));
    }

    /// Handles a node's report to a successor of a lumisection that has begun.
    pub(super) fn lumisection_told(&mut self, told: Lumisection) {
        if self.phase.is_recovering() {
            let known = self.lumisections.recovered.entry(told.number).or_insert(told.first);
            *known = told.first.min(*known);
        }
    }

    /// Handles a node's report to a successor of a closed one, with the account up to its end.
    pub(super) fn lumisection_end_told(&mut self, end: &LumisectionEnd) {
        if self.phase.is_recovering() {
            self.earlier_ended(&end.ended);
            if self.lumisections.told.back().is_none_or(|known| known.number < end.number) {
                self.lumisections.told.push_back(*end);
            }
        }
    }

    /// Continues the lumisections after every node has reported what it knows.
    pub(super) fn recover_lumisections(&mut self, now: Instant) {
        if !is_planted(Flaw::LumisectionsForgotten) {
            self.lumisections.take_over(now);
        }
        let known: Vec<_> = self.lumisections.known().collect();
        for message in known {
            self.send_to_readouts(&message);
            self.send_to_builders(&message);
        }
    }
}
