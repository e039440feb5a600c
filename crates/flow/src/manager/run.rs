//! The run as the manager sees it: start, stop, drain, finish.

use super::table::Stage;
use super::{Manager, ManagerAction, ManagerConfig};
use crate::messages::{Batch, Lumisection, Message, ReadoutState, Release, ReleaseEntry, Start};
use ropewalk_terms::{Cause, EventAccount, EventKey, Instant, NodeId, Outcome};

/// How far a run has come, for others.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ManagerState {
    /// There is no run.
    Idle,
    /// A successor asks what readout and builder units have.
    Recovering,
    /// Events are opened and assigned.
    Running,
    /// Readout units are asked for their highest key.
    Stopping,
    /// The last key is fixed; what is up to it is built and released.
    Draining,
    /// Everything is released; nodes close what they have open.
    Finishing,
}

/// How far the run has come, with what that needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No run. `ended` until the end of the last one was told.
    Idle,
    /// Until every node has told what it has, at latest until the deadline.
    Recovering { deadline: Instant },
    /// Between start and stop.
    Running,
    /// Until every readout unit has answered, at latest until the deadline.
    Stopping { deadline: Instant },
    /// Until everything is released. What is left at the deadline is dropped; `dropped` names why it was.
    Draining { deadline: Instant, dropped: Option<Cause> },
    /// Until every node has finished, at latest until the deadline. `refusal` ends what is announced now.
    Finishing { deadline: Instant, refusal: Cause },
}

impl Phase {
    /// The name of the phase.
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

    /// When something happens even if nothing comes in.
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

    /// Whether events are assigned: not before it is known who has which.
    pub(super) const fn assigns(self) -> bool {
        self.is_open() && !matches!(self, Self::Recovering { .. })
    }

    /// Whether it is still being asked who has what.
    pub(super) const fn is_recovering(self) -> bool {
        matches!(self, Self::Recovering { .. })
    }

    /// Why announced keys are refused, where they are.
    pub(super) const fn refusal(self) -> Option<Cause> {
        match self {
            Self::Draining { dropped, .. } => dropped,
            Self::Finishing { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

impl Manager {
    /// Starts a run with the key `first`; with `last`, exactly the keys from `first` to `last` are opened and the
    /// run then ends by itself. Ignored while another run goes on.
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

    /// Stops the run: the last key is the highest that a readout unit has seen, and everything up to it is drained.
    /// A successor first hears what there is to be drained. Ignored where there is no run or it stops already.
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

    /// A successor that has not heard from some readout unit how far the run had come, while others could still tell: they do
    /// not know yet, perhaps, that their event manager is dead, and have not called. Where all readout units have told,
    /// builder units know nothing more, for they have their events from them.
    fn may_know_too_little(&self) -> bool {
        let is_untold = self.readouts.iter().any(|link| !link.has_told);
        let may_be_told = self.readouts.iter().any(|link| !link.present && !link.has_told)
            || self.builders.iter().any(|link| !link.told_all);
        self.recovered.is_successor() && is_untold && may_be_told
    }

    /// Stops with this last key, which somebody knows that the sources will reach: everything up to it is waited
    /// for and drained. Ignored as [`Manager::stop`].
    pub fn stop_at(&mut self, now: Instant, last: EventKey) {
        if self.phase.is_recovering() {
            self.recovered.stop_after(Some(last));
        } else if self.phase == Phase::Running {
            self.drain_to(now, self.last.map_or(last, |given| given.min(last)));
        }
    }

    /// Stops at once: whatever is not acknowledged is dropped with [`Cause::ForcedStop`]. While nodes finish,
    /// they are not waited for any longer.
    pub fn force_stop(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Idle | Phase::Draining { dropped: Some(_), .. } => {}
            Phase::Finishing { deadline, .. } => *deadline = now,
            _ => self.drop_the_rest(now, Cause::ForcedStop),
        }
    }

    /// While it is paused no further event is assigned, so that readout units fill up and hold their sources back. What builder
    /// units have is finished, and a stop has the rest built: nothing is lost by a pause. Ignored where no run goes on.
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
        self.ended = super::ended::EndedLog::default();
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

    /// Goes on with the run where nothing else is left to be done. Whether something changed.
    pub(super) fn advance_run(&mut self, now: Instant) -> bool {
        if self.give_up_lost_builders(now) {
            return true;
        }
        self.move_tail(now);
        match self.phase {
            Phase::Idle => return false,
            Phase::Recovering { deadline } => {
                if now < deadline && !self.everybody_told() {
                    return false;
                }
                self.complete_recovery(now);
            }
            Phase::Running => {
                // A run whose readout units are all lost goes on: they may come back.
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

    /// Readout units that were to say what they hold and did not are not waited for any longer.
    fn dismiss_the_silent(&mut self, now: Instant) {
        for readout in 0..self.config.readouts {
            let link = &mut self.readouts[usize::from(readout)];
            if link.present && link.repeats.is_some() {
                link.repeat_is_over(now);
                self.send(NodeId::readout(readout), Message::Finish);
            }
        }
    }

    /// The end of the run, once.
    pub(super) fn take_run_ended(&mut self) -> Option<ManagerAction> {
        core::mem::take(&mut self.run_ended).then_some(ManagerAction::RunEnded)
    }

    /// Whether the last key is known, and everything up to it has ended and is released.
    fn is_drained(&self) -> bool {
        self.last.is_some_and(|last| self.floor.key > last)
            && self.floor.cursor == self.table.head()
            && self.table.is_empty()
            && self.releases.is_idle()
    }

    /// The readout units have said what they saw: the last key is the highest of that.
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

    /// Everything that has not ended ends here for `cause`.
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
            // Who was away is asked what it holds, and first told how that ended.
            if link.present && link.repeats.is_none() {
                self.outbox.push_back((NodeId::readout(readout), Message::Finish));
            }
        }
        self.send_to_builders(&Message::Finish);
        self.phase = Phase::Finishing { deadline: now.after(self.config.drain_timeout), refusal };
    }
}
