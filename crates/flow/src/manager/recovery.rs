//! Takeover by a successor: it asks every node and rebuilds the table from the answers.
//!
//! Readout units announce again what they hold. Builder units report the events they have in work and those they
//! finished lately. Such events are not assigned again. All others are, with attempts that no earlier manager can have
//! used.

use super::Manager;
use super::run::Phase;
use super::table::{Place, Row, Stage};
use crate::messages::{AcknowledgeEntry, Ended, Message, ReadoutState, Start, Unreleased, UnreleasedEntry};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Ending, EventAccount, EventKey, Instant, NodeId, Outcome};
use std::collections::VecDeque;

/// A builder unit that lost only its connection has returned by then and reported what it kept.
pub(super) const RETURN: Duration = Duration::from_secs(1);

/// What builder units reported to a successor, in key order; of one key the highest attempt comes last.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    entries: VecDeque<(u16, UnreleasedEntry)>,
    /// Attempts of a successor begin above this, so that none is used twice.
    attempts_before: u16,
    /// The highest key that builder units reported later. Readout units may still have higher ones.
    pub(super) told_late: Option<EventKey>,
    /// The run's last key, if it was fixed before.
    stop: Option<EventKey>,
    /// Whether events had ended before.
    pub(super) had_events: bool,
    /// A stop was commanded meanwhile, with or without the run's last key.
    stop_after: Option<Option<EventKey>>,
}

impl Recovered {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Stops the run as soon as it is known what must be drained.
    pub(super) fn stop_after(&mut self, last: Option<EventKey>) {
        self.stop_after.get_or_insert(last);
    }

    /// Whether this manager took over from another one.
    pub(super) const fn is_successor(&self) -> bool {
        self.attempts_before > 0
    }

    /// The oldest key that a builder unit reported and the cursor has not reached.
    pub(super) fn oldest(&self) -> Option<EventKey> {
        self.entries.front().map(|(_, entry)| entry.key)
    }

    /// Handles an acknowledgement of an event that was reported before the cursor reached its key. Returns whether it
    /// is such an event.
    fn acknowledge(&mut self, builder: u16, entry: UnreleasedEntry) -> bool {
        let told = |&(who, told): &(u16, UnreleasedEntry)| (who, told.key, told.attempt);
        let found = self.entries.iter().position(|one| told(one) == told(&(builder, entry)));
        if let Some(place) = found {
            self.entries[place].1 = entry;
        }
        found.is_some()
    }

    /// Removes the events that a lost builder unit had in work.
    pub(super) fn forget_work_of(&mut self, builder: u16) {
        self.entries.retain(|(who, entry)| *who != builder || entry.ending.is_some());
    }

    fn sort(&mut self) {
        self.entries.make_contiguous().sort_by_key(|(_, entry)| (entry.key, entry.attempt));
    }

    /// The report on `key` with the highest attempt.
    fn of(&self, key: EventKey) -> Option<(u16, UnreleasedEntry)> {
        let end = self.entries.partition_point(|(_, entry)| entry.key <= key);
        self.entries.get(end.checked_sub(1)?).copied().filter(|(_, entry)| entry.key == key)
    }

    /// The ending of `key`, if a builder unit remembers it, with that unit and its attempt.
    fn ending_of(&self, key: EventKey) -> Option<(u16, Attempt, Ending)> {
        let begin = self.entries.partition_point(|(_, entry)| entry.key < key);
        let mut told = self.entries.iter().skip(begin).take_while(|(_, entry)| entry.key == key);
        told.find_map(|(builder, entry)| Some((*builder, entry.attempt, entry.ending?)))
    }

    fn forget_through(&mut self, key: EventKey) {
        while self.oldest().is_some_and(|oldest| oldest <= key) {
            self.entries.pop_front();
        }
    }
}

impl Manager {
    /// Takes over a run that an event manager with a lower epoch started at `first`. Continues when every configured
    /// node has reported, or after the event time-out. Ignored during a run.
    pub fn recover(&mut self, now: Instant, first: EventKey, last: Option<EventKey>) {
        if self.phase != Phase::Idle {
            return;
        }
        self.begin(now, first, last);
        // A builder unit that died with its manager may have written in any attempt below the epoch's own range.
        self.recovered.attempts_before = ((self.config.epoch.0 & 0xff).max(1) << 8) as u16;
        self.phase = Phase::Recovering { deadline: now.after(self.config.event_timeout) };
        for readout in 0..self.config.readouts {
            if self.readouts[usize::from(readout)].present {
                self.ask_to_repeat(NodeId::readout(readout));
            }
        }
        self.send_to_builders(&Message::Recover);
        self.raise_floor(now);
    }

    /// The attempt with which this manager assigns an event for the first time.
    pub(super) const fn first_attempt(&self) -> Attempt {
        Attempt(self.recovered.attempts_before + 1)
    }

    /// Handles a builder unit's report of its events, to a successor or after a lost connection.
    pub(super) fn unreleased(&mut self, builder: u16, unreleased: &Unreleased) {
        // The readout units that held them may have died. The run must still end after them.
        let highest = unreleased.entries.iter().map(|entry| entry.key).max();
        if self.phase.is_recovering() {
            self.highest = self.highest.max(highest);
            self.recovered.entries.extend(unreleased.entries.iter().map(|&entry| (builder, entry)));
        } else if self.phase.is_open() {
            self.recovered.told_late = self.recovered.told_late.max(highest);
            for entry in &unreleased.entries {
                let Place::Inside(position) = self.table.find(entry.key) else { continue };
                if position < self.table.head() {
                    self.adopt(position, builder, *entry);
                    self.keep_earlier(position, builder, entry);
                }
                if position < self.floor.cursor && self.recovered.is_successor() {
                    self.adopt_ended(position, builder, *entry);
                }
            }
        }
        if !unreleased.more {
            let link = &mut self.builders[usize::from(builder)];
            (link.told_all, link.lost) = (true, None);
            self.decide();
        }
    }

    /// Handles an acknowledgement of an event without a row. Returns whether the builder unit reported the event and
    /// the cursor has not reached it.
    pub(super) fn acknowledged_early(&mut self, builder: u16, entry: &AcknowledgeEntry) -> bool {
        let AcknowledgeEntry { key, attempt, ending } = *entry;
        self.recovered.acknowledge(builder, UnreleasedEntry { key, attempt, ending: Some(ending) })
    }

    /// Whether every configured node is connected and has reported.
    pub(super) fn all_reported(&self) -> bool {
        self.readouts.iter().all(|link| link.present && link.repeats.is_none())
            && self.builders.iter().all(|link| link.connected && link.told_all)
    }

    /// Continues with the reports received so far.
    pub(super) fn complete_recovery(&mut self, now: Instant) {
        self.recovered.sort();
        // Every readout unit took part before.
        self.recovered.had_events = self.ended.below() > self.first || self.recovered.oldest().is_some();
        self.phase = Phase::Running;
        for position in self.table.tail()..self.table.head() {
            if self.table.row(position).stage == Stage::Open {
                self.adopt_recovered(position);
            }
        }
        self.recover_lumisections(now);
        self.start_the_silent(now);
        for (readout, link) in (0..).zip(&self.readouts) {
            let state = Message::ReadoutState(ReadoutState { readout, present: link.present });
            for (builder, _) in (0..).zip(&self.builders).filter(|(_, link)| link.connected) {
                self.outbox.push_back((NodeId::builder(builder), state.clone()));
            }
        }
        match (self.recovered.stop, self.last) {
            (Some(stop), last) if last.is_none_or(|last| stop < last) => self.drain_to(now, stop),
            (_, Some(last)) => self.send_to_readouts(&Message::StopAt(last)),
            (_, None) => {}
        }
        match self.recovered.stop_after.take() {
            Some(Some(last)) => self.stop_at(now, last),
            Some(None) => self.stop(now),
            None => {}
        }
        self.raise_floor(now);
    }

    /// Handles a readout unit's report of the run's last key: an earlier event manager had stopped the run.
    pub(super) fn stopped_before(&mut self, last: EventKey) {
        if self.phase.is_recovering() {
            self.recovered.stop = Some(self.recovered.stop.map_or(last, |known| known.min(last)));
        }
    }

    /// Includes readout units that did not answer. A silent one may know of no run, and starts where the others are;
    /// one that is in the run already ignores the start.
    fn start_the_silent(&mut self, now: Instant) {
        let (first, has_ended) = (self.restart_key(), self.recovered.had_events);
        for readout in 0..self.config.readouts {
            let link = &mut self.readouts[usize::from(readout)];
            let knows_no_run = link.highest == Some(EventKey::MIN);
            if link.present && link.repeats.is_some() && link.heard {
                link.repeat_is_over(now);
            } else if link.present && (link.repeats.is_some() || knows_no_run) {
                link.begin(now, first);
                link.untold_before = has_ended.then_some(first);
                self.send(NodeId::readout(readout), Message::Start(Start { first, origin: self.first }));
            }
        }
    }

    /// Checks whether an announced event has ended already, or is in work in a builder unit.
    pub(super) fn adopt_recovered(&mut self, position: u64) {
        let key = self.table.row(position).key;
        if !self.phase.assigns() {
            return;
        }
        if key < self.ended.below() {
            // It is in an earlier manager's account, but its release was lost with that manager.
            let told = self.recovered.ending_of(key);
            self.end(position, told.map_or(Outcome::Complete.into(), |(_, _, ending)| ending));
            if let Some((builder, attempt, _)) = told {
                self.lacking.settle(position, builder, key, attempt);
            }
        } else if let Some((builder, entry)) = self.recovered.of(key)
            && !is_planted(Flaw::AssignmentForgotten)
        {
            self.adopt(position, builder, entry);
        }
    }

    /// Creates rows for settled keys that builder units reported and no readout unit announced, so that the cursor
    /// reaches them.
    pub(super) fn reach_recovered(&mut self) {
        while let Some(oldest) = self.recovered.oldest().filter(|&key| key < self.floor.key && self.phase.assigns()) {
            match self.table.find(oldest) {
                Place::Inside(position) => return self.table.extend_to(position),
                Place::Ahead | Place::NewResync => return,
                Place::Behind(_) | Place::Nowhere => self.recovered.forget_through(oldest),
            }
        }
    }

    /// Handles a key that no readout unit announced: its holder is lost, but a builder unit may have it in work.
    pub(super) fn adopt_unannounced(&mut self, position: u64) {
        let key = self.table.row(position).key;
        if self.recovered.oldest().is_none_or(|oldest| oldest > key) {
            return;
        }
        match self.recovered.of(key).filter(|_| key >= self.ended.below()) {
            Some((builder, entry)) if entry.ending.is_none() => {
                self.table.row_mut(position).stage = Stage::Open;
                self.adopt(position, builder, entry);
            }
            Some((builder, entry)) => self.adopt_ended(position, builder, entry),
            None => {}
        }
        self.recovered.forget_through(key);
    }

    /// Counts an event that a builder unit finished, that no readout unit holds any more, and that no earlier manager
    /// counted.
    fn adopt_ended(&mut self, position: u64, builder: u16, entry: UnreleasedEntry) {
        let row = self.table.row_mut(position);
        let Some(ending) = entry.ending.filter(|_| row.stage == Stage::Empty && row.key >= self.ended.below()) else {
            return;
        };
        (row.stage, row.builder, row.attempt, row.ending) = (Stage::Released, builder, entry.attempt, ending);
        self.lacking.settle(position, builder, entry.key, entry.attempt);
        self.account.assigned += 1;
        self.account.end(ending);
    }

    /// Remembers an event that a builder unit kept but whose acknowledgement was lost, after another attempt began. If
    /// that attempt is dropped, the event is still in a file.
    fn keep_earlier(&mut self, position: u64, builder: u16, entry: &UnreleasedEntry) {
        let row = self.table.row_mut(position);
        let is_other = (row.builder, row.attempt) != (builder, entry.attempt);
        let is_kept = |ending: &Ending| ending.outcome.dropped().is_none();
        let Some(ending) = entry.ending.filter(|ending| is_other && is_kept(ending)) else { return };
        if matches!(row.stage, Stage::Assigned | Stage::Again | Stage::Undecided) {
            self.kept.insert(position, (builder, entry.attempt, ending));
        }
    }

    /// Gives up lost builder units that have had time to report what they kept. Returns whether that decided anything.
    pub(super) fn give_up_lost_builders(&mut self, now: Instant) -> bool {
        let undecided = self.undecided.len();
        if undecided == 0 {
            return false;
        }
        for link in &mut self.builders {
            link.lost = link.lost.filter(|lost| now < lost.after(RETURN));
        }
        self.decide();
        self.undecided.len() < undecided
    }

    /// Drops undecided events that no awaited builder unit can have kept.
    pub(super) fn decide(&mut self) {
        for position in core::mem::take(&mut self.undecided) {
            let ending = self.table.row(position).ending;
            self.end(position, ending);
        }
    }

    /// When to stop waiting for lost builder units.
    pub(super) fn lost_builder_deadline(&self) -> Option<Instant> {
        let lost = self.builders.iter().filter_map(|link| link.lost).min();
        lost.filter(|_| !self.undecided.is_empty()).map(|lost| lost.after(RETURN))
    }

    /// Accepts a builder unit's report of an event that this manager did not assign, or thought lost with the unit and
    /// did not assign again.
    fn adopt(&mut self, position: u64, builder: u16, entry: UnreleasedEntry) {
        let row = self.table.row_mut(position);
        let same = row.builder == builder && row.attempt == entry.attempt;
        match row.stage {
            Stage::Open if row.attempt == Attempt(0) => {
                self.account.assigned += 1;
                row.builder = builder;
                row.attempt = entry.attempt;
            }
            Stage::Again if same => {}
            Stage::Assigned if same && entry.ending.is_some() => {}
            _ => return,
        }
        let connected = self.builders[usize::from(builder)].connected;
        if row.stage != Stage::Assigned {
            row.stage = if connected { Stage::Assigned } else { Stage::Again };
            if connected {
                self.builders[usize::from(builder)].in_work += 1;
            } else {
                self.again.push(position);
                self.again.sort_unstable_by(|one, other| other.cmp(one));
            }
        }
        if let Some(ending) = entry.ending {
            self.end(position, ending);
        }
    }
}

/// The account of events that have left the table. The manager sends it to the readout units from time to time. A
/// successor asks them for it and continues the account from there.
#[derive(Debug, Default)]
pub(super) struct EndedLog {
    /// Every event below this key is in an earlier event manager's account.
    below: EventKey,
    /// That account; empty for the first one.
    before: EventAccount,
    /// The account before, plus the events that left this manager's own table.
    all: EventAccount,
    /// Events that left the table since the last report to the readout units.
    untold: u64,
}

impl EndedLog {
    /// Counts a released row that leaves the table. A row that was never assigned here is not in this account.
    pub(super) fn pass(&mut self, row: &Row) {
        if row.attempt.0 == 0 {
            return;
        }
        self.all.end(row.ending);
        self.untold += 1;
    }

    /// Handles a readout unit's report to a successor. The newest report is the most complete.
    fn learn(&mut self, ended: &Ended) {
        if ended.below > self.below {
            self.below = ended.below;
            self.before = ended.account();
            self.all = self.before;
        }
    }

    /// Every event below this key is in an earlier manager's account.
    pub(super) const fn below(&self) -> EventKey {
        self.below
    }

    /// The account of the events that left the table.
    pub(super) const fn all(&self) -> &EventAccount {
        &self.all
    }

    /// The account of earlier managers.
    pub(super) const fn before(&self) -> &EventAccount {
        &self.before
    }
}

impl Manager {
    /// Handles a readout unit's report of an earlier event manager's account.
    pub(super) fn earlier_ended(&mut self, ended: &Ended) {
        if self.phase.is_recovering() {
            self.ended.learn(ended);
        }
    }

    /// Sends the account to the readout units. Builder units remember one table's width and twice the events that they
    /// can have in work: reports more frequent than that leave no gap.
    pub(super) fn tell_ended(&mut self) {
        let smallest = self.builders.iter().filter(|link| link.connected).map(|link| link.most_free_events()).min();
        if self.ended.untold >= smallest.unwrap_or(0) / 4 {
            self.tell_ended_now();
        }
    }

    /// Sends the account to the readout units if it has changed. At the end of the run builder units exit, and what
    /// they remember is lost.
    pub(super) fn tell_ended_now(&mut self) {
        if core::mem::take(&mut self.ended.untold) == 0 {
            return;
        }
        let ended = Ended::of(self.table.key_at(self.table.tail()), self.ended.all());
        self.send_to_readouts(&Message::Ended(ended));
    }
}
