//! Announcements: which keys become events, and when a key is settled.

use super::Manager;
use super::links::ReadoutLink;
use super::run::Phase;
use super::table::{Place, Stage};
use crate::messages::{Announce, AnnounceEntry, Batch, Message, Release, ReleaseEntry, Resync};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, NodeId, Outcome};

/// A node that sends nothing for this part of the event time-out counts as unreachable.
const SIGN_OF_LIFE: u32 = 2;
/// A readout unit learns that others wait for it after this part of the event time-out.
const HASTE: u32 = 8;

/// How long the manager waits for a readout unit that reports nothing about an event.
#[derive(Copy, Clone)]
struct Patience {
    /// A unit that sends other messages.
    event: Duration,
    /// A unit that sends nothing.
    unreachable: Duration,
}

impl Patience {
    /// Whether the node or the network hangs: nodes report several times a second, and nothing has come.
    fn is_unreachable(self, link: &ReadoutLink, now: Instant) -> bool {
        self.unreachable > self.event && now >= link.last_heard.after(self.event / SIGN_OF_LIFE)
    }

    /// When the manager stops waiting for it, if the event has waited since `since` and nothing more comes from it.
    fn ends(self, link: &ReadoutLink, since: Instant) -> Option<Instant> {
        let begin = link.quiet_since?.max(since);
        let end = begin.after(self.event);
        Some(if self.is_unreachable(link, end) { begin.after(self.unreachable) } else { end })
    }
}

/// The marks that move over the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Floor {
    /// Every present readout unit has settled everything below this key, or the manager does not wait for it.
    pub(super) key: EventKey,
    /// Every position before it was assigned, dropped or is a gap.
    pub(super) cursor: u64,
    /// The first open row at or behind the cursor, or the head.
    pub(super) watch: u64,
}

impl Manager {
    /// Handles a readout unit's announcement of events and of how far it is settled.
    pub(super) fn announced(&mut self, now: Instant, readout: u16, announce: &Announce) {
        let index = usize::from(readout);
        if !self.phase.is_open() {
            return self.announced_too_late(readout, announce);
        }
        let mut refused = Batch::new();
        for entry in &announce.entries {
            // The largest key carries no event: a readout unit that waits for it would have no key to continue with.
            if entry.key == EventKey::MAX {
                let outcome = Outcome::Dropped(Cause::ImplausibleJump);
                refused.push(ReleaseEntry { first: entry.key, count: 1, outcome });
                continue;
            }
            self.highest = self.highest.max(Some(entry.key));
            let overtakes = self.readouts[index].waiting.front().is_some_and(|first| first.key <= entry.key);
            if overtakes || !self.place(now, readout, entry, &mut refused) {
                self.readouts[index].keep(now, *entry);
            }
        }
        self.refuse(readout, refused);
        let oldest = self.table.key_at(self.table.tail());
        let link = &mut self.readouts[index];
        link.heard = true;
        if let Some(entry) = announce.entries.last() {
            link.announced = link.announced.max(entry.key.next());
        }
        link.settle(now, announce.settled);
        link.note_quiet(now, oldest);
        self.raise_floor(now);
    }

    /// Handles a readout unit's answer to the request for its highest key.
    pub(super) fn answered(&mut self, now: Instant, readout: u16, highest: EventKey) {
        let oldest = self.table.key_at(self.table.tail());
        let link = &mut self.readouts[usize::from(readout)];
        let repeated = link.repeats.is_some();
        link.answer(now, highest);
        link.note_quiet(now, oldest);
        self.raise_floor(now);
        if repeated && matches!(self.phase, Phase::Finishing { .. }) {
            // By now it knows the outcome of every event that it held.
            self.send(NodeId::readout(readout), Message::Finish);
        }
    }

    /// Puts an announced event into the table. Returns false if it must wait until the table reaches that far.
    fn place(&mut self, now: Instant, readout: u16, entry: &AnnounceEntry, refused: &mut Batch<ReleaseEntry>) -> bool {
        let mut refuse = |cause| {
            let outcome = Outcome::Dropped(cause);
            refused.push(ReleaseEntry { first: entry.key, count: 1, outcome });
        };
        if entry.key < self.first {
            refuse(Cause::Stale);
            return true;
        }
        if self.last.is_some_and(|last| entry.key > last) {
            refuse(Cause::AfterStop);
            return true;
        }
        match self.table.find(entry.key) {
            Place::Inside(position) => {
                if let Some(outcome) = self.open(now, readout, position, entry) {
                    refused.push(ReleaseEntry { first: entry.key, count: 1, outcome });
                }
            }
            Place::Behind(position) => {
                let outcome = self.remembered_outcome(readout, position, entry.key);
                refused.push(ReleaseEntry { first: entry.key, count: 1, outcome });
            }
            Place::Nowhere => refuse(Cause::NoTrigger),
            Place::Ahead => return false,
            Place::NewResync => {
                if !self.may_resync(readout) {
                    return false;
                }
                self.begin_resync(readout, entry.key);
                return self.place(now, readout, entry, refused);
            }
        }
        true
    }

    /// Marks the key at `position` as an event. Returns the outcome if the readout unit is too late.
    fn open(&mut self, now: Instant, readout: u16, position: u64, entry: &AnnounceEntry) -> Option<Outcome> {
        self.table.extend_to(position);
        let again = entry.key < self.readouts[usize::from(readout)].settled;
        let passed = position < self.floor.cursor;
        let row = self.table.row_mut(position);
        match row.stage {
            Stage::Empty if passed => return Some(Outcome::Dropped(Cause::Late)),
            Stage::Empty => {
                row.stage = Stage::Open;
                row.since = now;
                row.bytes = entry.bytes;
                row.triggered = entry.triggered;
                self.floor.watch = self.floor.watch.min(position);
                self.adopt_recovered(position);
            }
            Stage::Open => {
                if !again {
                    row.bytes = row.bytes.saturating_add(entry.bytes);
                }
                row.triggered |= entry.triggered;
            }
            Stage::Assigned | Stage::Again | Stage::Undecided | Stage::Done => {}
            Stage::Released => return Some(self.remembered_outcome(readout, position, entry.key)),
        }
        None
    }

    /// The outcome of a released event for a readout unit that announces it (again): the common outcome if the unit had
    /// answered the builder unit, even if its announcement was not received before; too late if no builder unit
    /// requested it.
    fn remembered_outcome(&self, readout: u16, position: u64, key: EventKey) -> Outcome {
        let announced_before = key < self.readouts[usize::from(readout)].settled;
        let Some(row) = self.table.remembered(position, key) else { return Outcome::Dropped(Cause::OutcomeUnknown) };
        match row.ending.outcome {
            _ if row.stage != Stage::Released => Outcome::Dropped(Cause::Late),
            Outcome::Dropped(_) if !announced_before => Outcome::Dropped(Cause::Late),
            outcome => self.lacking.outcome_for(readout, position, outcome),
        }
    }

    /// The same after the end of the run. A dropped event was dropped for all readout units. What never became an event
    /// ends for the reason for which the run ended.
    fn outcome_of_the_past(&self, readout: u16, key: EventKey, refusal: Cause) -> Outcome {
        let (position, is_behind) = match self.table.find(key) {
            Place::Behind(position) => (position, true),
            Place::Inside(position) => (position, false),
            _ => return Outcome::Dropped(refusal),
        };
        match self.table.remembered(position, key) {
            None if is_behind => Outcome::Dropped(Cause::OutcomeUnknown),
            Some(row) if row.stage == Stage::Released => match row.ending.outcome {
                dropped @ Outcome::Dropped(_) => dropped,
                _ => self.remembered_outcome(readout, position, key),
            },
            _ => Outcome::Dropped(refusal),
        }
    }

    /// Whether this announcement may declare a resynchronisation: only the trigger source may, while it is present.
    fn may_resync(&self, readout: u16) -> bool {
        self.config.trigger_readout.is_none_or(|trigger| {
            let present = self.readouts.get(usize::from(trigger)).is_some_and(|link| link.present);
            trigger == readout || !present
        })
    }

    fn begin_resync(&mut self, declared_by: u16, first: EventKey) {
        self.table.begin_segment(first);
        for (readout, link) in (0..).zip(&self.readouts) {
            if link.present && readout != declared_by {
                self.outbox.push_back((NodeId::readout(readout), Message::Resync(Resync { first })));
            }
        }
    }

    /// Refuses what is announced after the run's end was fixed. A unit that was disconnected when the last events were
    /// released learns their outcome.
    fn announced_too_late(&mut self, readout: u16, announce: &Announce) {
        let Some(refusal) = self.phase.refusal() else { return };
        let refused = announce.entries.iter().map(|entry| ReleaseEntry {
            first: entry.key,
            count: 1,
            outcome: self.outcome_of_the_past(readout, entry.key, refusal),
        });
        let refused = refused.collect();
        self.refuse(readout, refused);
    }

    fn refuse(&mut self, readout: u16, entries: Batch<ReleaseEntry>) {
        if !entries.is_empty() {
            self.send(NodeId::readout(readout), Message::Release(Release { entries }));
        }
    }

    /// Computes the floor again, after a readout unit settled more, joined, left or was given up.
    pub(super) fn raise_floor(&mut self, now: Instant) {
        loop {
            self.place_waiting(now);
            let bounds = self.readouts.iter().filter(|link| link.present).map(ReadoutLink::bound);
            self.floor.key = bounds.min().unwrap_or(EventKey::MAX);
            if !self.skip_gap() {
                break;
            }
        }
        self.reach_recovered();
        self.advance_watch();
    }

    /// Lets an empty table jump over keys that no readout unit announced. Returns whether it jumped.
    fn skip_gap(&mut self) -> bool {
        if !self.phase.assigns() {
            return false;
        }
        let bound = self.recovered.oldest().map_or(self.floor.key, |key| self.floor.key.min(key));
        let before = self.table.head();
        if self.table.is_empty() {
            self.table.skip_to(self.table.position_before(bound));
        }
        let skipped = self.table.head() > before;
        if skipped {
            (self.floor.cursor, self.floor.watch) = (self.table.head(), self.table.head());
        }
        skipped
    }

    /// Puts waiting announcements into the table as far as it now reaches.
    fn place_waiting(&mut self, now: Instant) {
        for readout in 0..self.config.readouts {
            let mut refused = Batch::new();
            while let Some(entry) = self.readouts[usize::from(readout)].waiting.front().copied() {
                if refused.is_full() {
                    self.refuse(readout, core::mem::take(&mut refused));
                }
                if !self.place(now, readout, &entry, &mut refused) {
                    break;
                }
                let link = &mut self.readouts[usize::from(readout)];
                link.waiting.pop_front();
                link.waiting_since = now;
            }
            self.refuse(readout, refused);
        }
    }

    /// The oldest event that waits for a readout unit, and the start of the wait.
    fn oldest_blocked(&self) -> Option<(EventKey, Instant)> {
        if self.floor.watch < self.table.head() {
            let row = self.table.row(self.floor.watch);
            return (row.key >= self.floor.key).then_some((row.key, row.since));
        }
        let waiting = self.readouts.iter().filter_map(|link| link.waiting.front().map(|entry| (entry.key, link)));
        waiting.min_by_key(|(key, _)| *key).map(|(key, link)| (key, link.waiting_since))
    }

    /// Tells readout units which events exist when others wait for them, so that a unit whose sources sent nothing
    /// starts its own time-out for them. Returns whether it sent anything.
    pub(super) fn tell_what_exists(&mut self, now: Instant) -> bool {
        let Some((key, since)) = self.oldest_blocked().filter(|_| self.phase.assigns()) else { return false };
        let Some(highest) = self.highest.map(|highest| self.last.map_or(highest, |last| highest.min(last))) else {
            return false;
        };
        let before = self.outbox.len();
        for (readout, link) in (0..).zip(&mut self.readouts) {
            let due = link.told_next(since, self.config.event_timeout / HASTE);
            if link.present && link.bound() <= key && link.told.0 < highest && now >= due {
                link.told = (highest, now);
                self.outbox.push_back((NodeId::readout(readout), Message::Highest(highest)));
            }
        }
        self.outbox.len() > before
    }

    /// Leaves readout units out of an event that others hold if they reported nothing about it for too long.
    /// Returns whether it left one out.
    pub(super) fn leave_out_the_silent(&mut self, now: Instant) -> bool {
        if !self.phase.is_open() {
            return false;
        }
        let Some((key, since)) = self.oldest_blocked() else { return false };
        let (mut left_out, patience) = (0, self.patience());
        for link in self.readouts.iter_mut().filter(|link| link.present && link.bound() <= key) {
            link.unreachable = patience.is_unreachable(link, now);
            if patience.ends(link, since).is_some_and(|deadline| now >= deadline) {
                link.left_out = key.next();
                left_out += 1;
            }
        }
        self.counts.left_out += left_out;
        if left_out > 0 {
            self.raise_floor(now);
        }
        left_out > 0
    }

    fn patience(&self) -> Patience {
        let event = if is_planted(Flaw::SilentLeftOutAtOnce) { Duration::ZERO } else { self.config.event_timeout };
        Patience { event, unreachable: self.config.unreachable_timeout }
    }

    /// When the next readout unit exceeds its time, or must learn that others wait for it.
    pub(super) fn silence_deadline(&self) -> Option<Instant> {
        let (key, since) = self.oldest_blocked().filter(|_| self.phase.is_open())?;
        let behind = || self.readouts.iter().filter(|link| link.present && link.bound() <= key);
        let patience = self.patience();
        let silent = behind().filter_map(|link| patience.ends(link, since));
        let highest = self.last.map_or(self.highest, |last| self.highest.min(Some(last)));
        let untold = behind().filter(|link| self.phase.assigns() && Some(link.told.0) < highest);
        silent.chain(untold.map(|link| link.told_next(since, self.config.event_timeout / HASTE))).min()
    }
}
