//! A successor takes over: it asks every node, and rebuilds the table from the answers.
//!
//! Readout units announce again what they hold, builder units tell what they have in work and what they did
//! lately. An event that a builder has or did is not assigned again; all others are, with attempts that no
//! earlier manager can have used.

use super::Manager;
use super::run::Phase;
use super::table::{Place, Row, Stage};
use crate::messages::{AcknowledgeEntry, Ended, Message, ReadoutState, Start, Unreleased, UnreleasedEntry};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Ending, EventAccount, EventKey, Instant, NodeId, Outcome};
use std::collections::VecDeque;

/// A builder unit that lost only its connection is back by then, and has reported what it kept.
pub(super) const RETURN: Duration = Duration::from_secs(1);

/// What builder units reported to a successor, in key order; of one key the highest attempt comes last.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    entries: VecDeque<(u16, UnreleasedEntry)>,
    /// Attempts of a successor begin above this, so that none is used twice.
    attempts_before: u16,
    /// The highest key that builder units reported later. It does not show that readout units have nothing higher.
    pub(super) told_late: Option<EventKey>,
    /// The run's last key, where its end was fixed before.
    stop: Option<EventKey>,
    /// Events had ended before.
    pub(super) had_events: bool,
    /// A stop was commanded meanwhile, with the run's last key or without one.
    stop_after: Option<Option<EventKey>>,
}

impl Recovered {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The run is to be stopped as soon as it is known what there is to be drained.
    pub(super) fn stop_after(&mut self, last: Option<EventKey>) {
        self.stop_after.get_or_insert(last);
    }

    /// Whether this manager took over from another one.
    pub(super) const fn is_successor(&self) -> bool {
        self.attempts_before > 0
    }

    /// The oldest key that a builder reported and that was not met yet.
    pub(super) fn oldest(&self) -> Option<EventKey> {
        self.entries.front().map(|(_, entry)| entry.key)
    }

    /// A builder acknowledges an event that it reported before its key was met. Returns whether it is such an event.
    fn acknowledge(&mut self, builder: u16, entry: UnreleasedEntry) -> bool {
        let told = |&(who, told): &(u16, UnreleasedEntry)| (who, told.key, told.attempt);
        let found = self.entries.iter().position(|one| told(one) == told(&(builder, entry)));
        if let Some(place) = found {
            self.entries[place].1 = entry;
        }
        found.is_some()
    }

    /// A builder is lost, and with it what it had in work.
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

    /// How `key` ended, where a builder remembers that: which one, in which attempt.
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
    /// Takes over a run that an event manager with a lower epoch began at `first`, and goes on when every
    /// configured node has reported what it has, or after the event time-out. Ignored while a run goes on.
    pub fn recover(&mut self, now: Instant, first: EventKey, last: Option<EventKey>) {
        if self.phase != Phase::Idle {
            return;
        }
        self.begin(now, first, last);
        // A builder that died with its manager may have written in any attempt below the epoch's own range.
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

    /// The attempt in which this manager assigns an event that it has not assigned before.
    pub(super) const fn first_attempt(&self) -> Attempt {
        Attempt(self.recovered.attempts_before + 1)
    }

    /// A builder unit tells what it has, to a successor or after a lost connection.
    pub(super) fn unreleased(&mut self, builder: u16, unreleased: &Unreleased) {
        // The readout units that held them may have died: the run ends behind them all the same.
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

    /// An acknowledgement of an event without a row: was it reported by the builder, and not met yet?
    pub(super) fn acknowledged_early(&mut self, builder: u16, entry: &AcknowledgeEntry) -> bool {
        let AcknowledgeEntry { key, attempt, ending } = *entry;
        self.recovered.acknowledge(builder, UnreleasedEntry { key, attempt, ending: Some(ending) })
    }

    /// Whether every configured node is there and has reported what it has.
    pub(super) fn all_reported(&self) -> bool {
        self.readouts.iter().all(|link| link.present && link.repeats.is_none())
            && self.builders.iter().all(|link| link.connected && link.told_all)
    }

    /// Goes on with what is known.
    pub(super) fn complete_recovery(&mut self, now: Instant) {
        self.recovered.sort();
        // Every readout unit had taken part then.
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

    /// A readout unit knows the run's last key: an earlier event manager had stopped the run.
    pub(super) fn stopped_before(&mut self, last: EventKey) {
        if self.phase.is_recovering() {
            self.recovered.stop = Some(self.recovered.stop.map_or(last, |known| known.min(last)));
        }
    }

    /// Readout units that did not answer are taken as they are. One that has been silent may know of no run, and
    /// begins where the others are; one that is in the run already ignores the start.
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

    /// An announced event: did it end already, or does a builder have it?
    pub(super) fn adopt_recovered(&mut self, position: u64) {
        let key = self.table.row(position).key;
        if !self.phase.assigns() {
            return;
        }
        if key < self.ended.below() {
            // It is in an earlier manager's account; here its release was lost with that manager.
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

    /// Gives rows to settled keys that builder units reported and no readout unit announced, so that the cursor meets
    /// them.
    pub(super) fn reach_recovered(&mut self) {
        while let Some(oldest) = self.recovered.oldest().filter(|&key| key < self.floor.key && self.phase.assigns()) {
            match self.table.find(oldest) {
                Place::Inside(position) => return self.table.extend_to(position),
                Place::Ahead | Place::NewResync => return,
                Place::Behind(_) | Place::Nowhere => self.recovered.forget_through(oldest),
            }
        }
    }

    /// The cursor passes a key that no readout unit announced: its holder is lost, but a builder unit may have it in
    /// work.
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

    /// A builder unit finished an event that no readout unit holds any more, and that no earlier manager accounted for:
    /// it is counted here.
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

    /// A builder kept an event whose acknowledgement was lost, and another attempt was made meanwhile: should that be
    /// dropped, the event is in a file all the same.
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

    /// Events that were dropped end so where no lost builder unit is waited for that may have kept them.
    pub(super) fn decide(&mut self) {
        for position in core::mem::take(&mut self.undecided) {
            let ending = self.table.row(position).ending;
            self.end(position, ending);
        }
    }

    /// Until when lost builder units are waited for.
    pub(super) fn lost_builder_deadline(&self) -> Option<Instant> {
        let lost = self.builders.iter().filter_map(|link| link.lost).min();
        lost.filter(|_| !self.undecided.is_empty()).map(|lost| lost.after(RETURN))
    }

    /// Takes a builder's word for an event that this manager did not assign, or that it thought lost with the
    /// builder and did not assign again.
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
    /// That, and what has left this manager's own table.
    all: EventAccount,
    /// Events that left the table since the last report to the readout units.
    untold: u64,
}

impl EndedLog {
    /// A released row leaves the table. One that was never assigned here is no event of this account.
    pub(super) fn pass(&mut self, row: &Row) {
        if row.attempt.0 == 0 {
            return;
        }
        self.all.end(row.ending);
        self.untold += 1;
    }

    /// Readout units report to a successor; the one with the newest information knows most.
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

    /// How the events behind the table ended.
    pub(super) const fn all(&self) -> &EventAccount {
        &self.all
    }

    /// What earlier managers accounted for.
    pub(super) const fn before(&self) -> &EventAccount {
        &self.before
    }
}

impl Manager {
    /// A readout unit tells what an earlier event manager left there.
    pub(super) fn earlier_ended(&mut self, ended: &Ended) {
        if self.phase.is_recovering() {
            self.ended.learn(ended);
        }
    }

    /// Leaves word with the readout units. Builder units remember what they did lately, a whole table and twice as many
    /// events as they can have in work: where word is left more often than that, nothing falls between.
    pub(super) fn tell_ended(&mut self) {
        let smallest = self.builders.iter().filter(|link| link.connected).map(|link| link.most_free_events()).min();
        if self.ended.untold >= smallest.unwrap_or(0) / 4 {
            self.tell_ended_now();
        }
    }

    /// Leaves word with the readout units, where there is something new. At the end of the run builder units leave, and
    /// with them goes what they remember.
    pub(super) fn tell_ended_now(&mut self) {
        if core::mem::take(&mut self.ended.untold) == 0 {
            return;
        }
        let ended = Ended::of(self.table.key_at(self.table.tail()), self.ended.all());
        self.send_to_readouts(&Message::Ended(ended));
    }
}
