//! Lumisections: stretches of a run, by a number of events or by time, the same for all builder units. Each is closed with
//! its account when every event of it has ended, wherever it was built.
//!
//! ```text
//!             first key of 3          first key of 4                 cursor
//!  ... 2 ------|--------- 3 -----------|----------- 4 ----------------|  next to assign
//!        tail -->  passes it: 2 is over
//! ```
//! One begins before an event of it is assigned, and builder units are told first. Events that are assigned again stay where
//! they were, for a lumisection is a range of keys.

use super::Manager;
use super::table::Stage;
use crate::messages::{Ended, Lumisection, LumisectionEnd, Message};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{EventAccount, EventKey, Instant, NodeId};
use std::collections::{BTreeMap, VecDeque};

/// How long a lumisection is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum LumisectionLength {
    /// As long as the run.
    #[default]
    Run,
    /// So many assigned events, at least 1.
    Events(u64),
    /// So long, whatever comes.
    Time(Duration),
}

/// The lumisections of a run.
#[derive(Debug, Default)]
pub(super) struct Lumisections {
    /// Those that have begun and are not over, the oldest first.
    open: VecDeque<Lumisection>,
    /// How the events before the oldest one ended.
    before: Ended,
    /// Events of the newest one that were assigned, and when it began.
    assigned: u64,
    began: Instant,
    /// Those that are over, until everybody was told.
    over: VecDeque<LumisectionEnd>,
    /// The last ones that are, for whoever was away.
    told: VecDeque<LumisectionEnd>,
    /// What others knew of them when this manager took over, by number.
    recovered: BTreeMap<u32, EventKey>,
}

impl Lumisections {
    /// So many are open at most. While events of the oldest one do not end the newest one grows.
    const OPEN: usize = 8;
    /// So many ends are told again.
    const TOLD: usize = 16;

    /// A run begins.
    pub(super) fn begin_run(&mut self, now: Instant, first: EventKey) {
        let (mut open, before) = (core::mem::take(&mut self.open), Ended { below: first, ..Ended::default() });
        open.clear();
        open.push_back(Lumisection { number: 1, first });
        *self = Self { open, before, began: now, ..Self::default() };
    }

    /// An event is assigned for the first time by this manager. To a successor it may be one of an older lumisection.
    pub(super) fn count(&mut self, key: EventKey) {
        self.assigned += u64::from(self.open.back().is_some_and(|newest| newest.first <= key));
    }

    /// Whether the next event that is assigned begins another one.
    pub(super) fn is_full(&self, length: LumisectionLength) -> bool {
        matches!(length, LumisectionLength::Events(events) if self.assigned >= events.max(1)) && self.may_begin()
    }

    /// When another one begins whatever comes.
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

    /// All events before `key` have ended, in this way: those that lie before it are over.
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

    /// Every event below this key has ended, as far as lumisections were closed.
    pub(super) const fn closed_below(&self) -> EventKey {
        self.before.below
    }

    /// What somebody says who is to know it, in order.
    fn known(&self) -> impl Iterator<Item = Message> {
        let told = self.told.iter().map(|end| Message::LumisectionEnd(*end));
        told.chain(self.open.iter().map(|one| Message::Lumisection(*one)))
    }

    /// Goes on where the one ended that others know of as the last, and with those that they know to have begun.
    fn take_over(&mut self, now: Instant) {
        let Some(&last) = self.told.back() else { return self.take_over_from(now, 0, self.before.below) };
        self.before = last.ended;
        self.take_over_from(now, last.number, last.ended.below);
    }

    fn take_over_from(&mut self, now: Instant, over: u32, mut first: EventKey) {
        self.open.clear();
        let newest = self.recovered.last_key_value().map_or(over + 1, |(&number, _)| number.max(over + 1));
        // One that nobody knows any more has no event of its own. Whoever is too far ahead is not believed.
        for number in over + 1..=newest.min(over + Self::OPEN as u32) {
            first = self.recovered.get(&number).map_or(first, |&told| told.max(first));
            self.open.push_back(Lumisection { number, first });
        }
        self.recovered.clear();
        (self.assigned, self.began) = (0, now);
    }
}

impl Manager {
    /// Begins another lumisection with the next event to be assigned.
    pub(super) fn begin_lumisection(&mut self, now: Instant) {
        let first = self.restart_key();
        let next = self.lumisections.begin_next(now, first);
        self.send_to_readouts(&Message::Lumisection(next));
        self.send_to_builders(&Message::Lumisection(next));
    }

    /// Begins one whose time has come, and says which are over. Whether there was one.
    pub(super) fn turn_lumisections(&mut self, now: Instant) -> bool {
        let due = self.lumisection_deadline().is_some_and(|deadline| now >= deadline);
        if due {
            self.begin_lumisection(now);
        }
        due | self.close_lumisections()
    }

    /// When a lumisection begins whatever comes.
    pub(super) fn lumisection_deadline(&self) -> Option<Instant> {
        self.lumisections.deadline(self.config.lumisection).filter(|_| self.phase.assigns())
    }

    /// Says which lumisections are over. Whether there is one.
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

    /// The run is over and everything has ended: so has every lumisection.
    pub(super) fn end_lumisections(&mut self) {
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

    /// Tells a node that has come which lumisections there are.
    pub(super) fn tell_lumisections(&mut self, node: NodeId) {
        self.outbox.extend(self.lumisections.known().map(|message| (node, message)));
    }

    /// A node tells a successor of a lumisection that has begun.
    pub(super) fn lumisection_told(&mut self, told: Lumisection) {
        if self.phase.is_recovering() {
            let known = self.lumisections.recovered.entry(told.number).or_insert(told.first);
            *known = told.first.min(*known);
        }
    }

    /// A node tells a successor of one that is over: it says how everything up to there ended, too.
    pub(super) fn lumisection_end_told(&mut self, end: &LumisectionEnd) {
        if self.phase.is_recovering() {
            self.earlier_ended(&end.ended);
            if self.lumisections.told.back().is_none_or(|known| known.number < end.number) {
                self.lumisections.told.push_back(*end);
            }
        }
    }

    /// Everybody has told what they know: it goes on from there.
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
