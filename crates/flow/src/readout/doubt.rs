//! Decides the meaning of a number that does not continue its source's sequence.
//!
//! ```text
//!   last 1523 |  2548  1525          the old sequence continues: 2548 was a wrong number, one fragment
//!   last 1523 |  1527  1528  1529    a new sequence continues: 1524 to 1526 were lost
//!   last 1523 |     1     2     3    a new sequence behind the old one: the source restarted
//! ```
//! A number is only a claim. A number that does not continue the sequence is held, with those that follow, until the
//! explanation with the least cost ([`Reading`]) leads its rivals by enough, or other sources show how far the run has
//! come. At most [`MOST_HELD`] fragments are held, for at most half the source time-out or a second. A fragment with a
//! wrong checksum proves nothing: it takes the place that its neighbours leave for it, or none.

use super::beginning::Beginning;
use super::machine::Readout;
use super::reading::{KNOWN, Number, Numbers, Reading, Start, WRONG};
use super::sequence::Sequence;
use super::source::{Presence, Source};
use super::table::{ORIGIN, Position};
use crate::messages::{FragmentFlags, NumberingKind, Received};
use arrayvec::ArrayVec;
use core::cmp::Ordering;
use core::time::Duration;
use ropewalk_terms::{Cause, EventKey, Instant};

/// The most fragments of a source that are held while its numbers are in doubt.
pub(super) const MOST_HELD: usize = 8;

/// Lead that proves an explanation with missing numbers in front of its first member. Three consecutive numbers reach
/// it.
const PROOF: i32 = 4;

/// A first number this close to the run's first one means that the source lost the events between.
pub(super) const NEAR: Position = 16;

/// The longest that events wait for a source whose numbers are in doubt, whatever the source time-out.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// How often, during that time, a waiting source is checked for whether the others have come as far.
const LOOKS: u32 = 16;

/// Flags of fragments whose numbers are no evidence: their bytes are known to be damaged, or the framer gave them up.
const UNRELIABLE: u32 = FragmentFlags::CRC_ERROR.0
    | FragmentFlags::MALFORMED.0
    | FragmentFlags::LENGTH_MISMATCH.0
    | FragmentFlags::MISSING.0;

/// Whether a fragment's number is no evidence.
#[inline]
pub(super) fn is_unreliable(fragment: &Received) -> bool {
    fragment.meta.flags.0 & UNRELIABLE != 0
}

/// Whether a fragment is present and has this number.
const fn has_number(fragment: &Received, number: u64) -> bool {
    fragment.meta.raw_id == number && !fragment.meta.flags.contains(FragmentFlags::MISSING)
}

/// The fragments of one source whose numbers are in doubt.
#[derive(Debug)]
pub(super) struct Doubt {
    held: ArrayVec<Received, { MOST_HELD + 1 }>,
    /// Number of fragments after the last event that were given up, here or by the framer.
    gone: u64,
    /// The event after which they came.
    after: Position,
    since: Instant,
    /// The oldest incomplete event when the doubt began, and one past the latest event that any source had shown.
    run_at: (Position, Position),
    /// Whether the time has already been extended once.
    is_second: bool,
    /// The event of the oldest held number, if the time passed without evidence. Events before it no longer wait for
    /// the source.
    tentative: Option<Position>,
    /// Whether the source seems to have restarted its numbering and is not read until other sources show where the run
    /// is.
    awaits_others: bool,
    /// The last number that was given up for lack of time, and how many in a row agreed with it.
    given_up: Option<(u64, u32)>,
}

/// The decision on a source whose numbers are in doubt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Not enough evidence.
    Wait,
    /// Not enough evidence until other sources have come as far.
    AwaitOthers,
    /// The members are right. Fragments held behind the last of them are judged again.
    Right(Reading),
    /// The source restarted its numbering.
    Restart(Reading),
    /// The source restarted its numbering, and the first member belongs to this event.
    Realign(Reading, Position),
    /// The time is over for the events before this one, if one is known. More evidence may still come.
    Perhaps(Option<Position>),
    /// The time is over, and nothing supports any of the numbers.
    Nothing,
}

impl Doubt {
    pub(super) fn new() -> Self {
        Self {
            held: ArrayVec::new(),
            gone: 0,
            after: 0,
            since: Instant::ZERO,
            run_at: (0, 0),
            is_second: false,
            tentative: None,
            awaits_others: false,
            given_up: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the first event that waits for the source, unless that is the one after its last event.
    pub(super) const fn tentative(&self) -> Option<Position> {
        self.tentative
    }

    /// Returns the number of held fragments.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the source must not be read until more is known.
    pub(super) fn awaits_others(&self) -> bool {
        self.awaits_others && self.is_full()
    }

    /// Whether nothing more can be held without giving up the oldest.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MOST_HELD
    }

    /// Counts a fragment after `last` that was given up.
    pub(super) const fn count_gone(&mut self, last: Position) {
        self.keep_up(last);
        self.gone += 1;
    }

    /// Notes that the source has come to `last`.
    const fn keep_up(&mut self, last: Position) {
        if self.after != last {
            (self.after, self.gone) = (last, 0);
        }
    }

    fn numbers<'a>(&self, sequence: &'a Sequence, may_repeat: bool) -> Numbers<'a> {
        let number = |one: &Received| match one.meta.raw_id {
            _ if one.meta.flags.contains(FragmentFlags::MISSING) => Number::Unknown,
            raw if !sequence.holds(raw) => Number::Unknown,
            raw if is_unreliable(one) => Number::Damaged(raw),
            raw => Number::Says(raw),
        };
        Numbers { held: self.held.iter().map(number).collect(), sequence, may_repeat }
    }

    /// Evaluates the numbers of a source that may begin anywhere. Returns the first right number, how many are right,
    /// and how many fragments precede it.
    pub(super) fn beginning(&self, sequence: &Sequence) -> Option<(u64, u32, u64)> {
        let reading = self.numbers(sequence, false).best(Start::Anew, |_| true, |_| true);
        let place = reading.members().next()?;
        Some((self.held[place].meta.raw_id, reading.len(), place as u64))
    }

    /// Whether an explanation accepts the fragment at this place, or another one with its number.
    fn is_member(&self, place: usize, reading: Reading) -> bool {
        reading.members().any(|one| has_number(&self.held[place], self.raw(one)))
    }

    /// Returns the number of fragments that are not members of an explanation but repeat one.
    fn twins(&self, reading: Reading) -> i32 {
        (0..self.held.len()).filter(|&place| !reading.has(place) && self.is_member(place, reading)).count() as i32
    }

    /// Removes and returns the oldest held fragment.
    pub(super) fn take_oldest(&mut self) -> Received {
        self.held.remove(0)
    }

    /// Iterates over the held fragments, oldest first.
    pub(super) fn held(&self) -> impl Iterator<Item = &Received> {
        self.held.iter()
    }

    /// Returns the held fragment at this place.
    pub(super) fn fragment(&self, place: usize) -> &Received {
        &self.held[place]
    }

    /// Returns the number of the held fragment at this place.
    pub(super) fn raw(&self, place: usize) -> u64 {
        self.held[place].meta.raw_id
    }

    /// Returns one fragment of each event from the first to the last member of an explanation without a gap.
    pub(super) fn row(&self, row: Reading) -> impl Iterator<Item = &Received> {
        let places = row.members().next().zip(row.members().next_back());
        let is_repeated = move |place: usize| {
            let is_same = |member| has_number(&self.held[place], self.raw(member));
            !row.has(place) && row.members().any(is_same)
        };
        let places = places.into_iter().flat_map(|(first, last)| first..=last);
        places.filter(move |&place| !is_repeated(place)).map(|place| &self.held[place])
    }

    /// Drops all held fragments. Returns how many there were.
    pub(super) fn clear(&mut self) -> u64 {
        let held = self.held.len() as u64;
        self.held.clear();
        (self.gone, self.tentative, self.awaits_others, self.given_up) = (0, None, false, None);
        held
    }
}

impl Readout {
    /// Returns how long events wait for a source whose numbers are in doubt.
    fn patience(&self) -> Duration {
        (self.source_timeout / 2).min(LONGEST_DOUBT)
    }

    /// Holds a fragment that does not continue its source's sequence, that is unreliable, or that follows such a
    /// fragment.
    pub(super) fn hold(&mut self, now: Instant, source: usize, fragment: Received) {
        let (patience, run_at) = (self.patience(), (self.head, self.opened()));
        let input = &mut self.sources[source];
        let (doubt, last) = (&mut input.doubt, input.sequence.last());
        doubt.keep_up(last);
        if doubt.is_empty() {
            (doubt.since, doubt.run_at, doubt.is_second) = (now, run_at, false);
            self.doubt_check = self.doubt_check.min(now.after(patience));
        }
        doubt.held.push(fragment);
        self.weigh(now, source, false);
        if self.sources[source].doubt.held.len() > MOST_HELD
            && !self.may_begin_anywhere(source)
            && self.may_join_soon(source)
            && let Verdict::Right(reading) = self.verdict(source, true)
        {
            // The source cannot be held back until the others are known, and it shows events near the run's first.
            self.follow(source, reading, false);
        }
        let doubt = &mut self.sources[source].doubt;
        if doubt.held.len() > MOST_HELD {
            let oldest = doubt.take_oldest();
            doubt.given_up = None;
            doubt.count_gone(last);
            self.give_up(source, oldest);
        }
    }

    /// Takes out the held fragments, oldest first. Afterwards nothing is in doubt.
    fn each_held(&mut self, source: usize, mut take: impl FnMut(&mut Self, usize, Received)) {
        let doubt = &mut self.sources[source].doubt;
        (doubt.gone, doubt.tentative, doubt.awaits_others, doubt.given_up) = (0, None, false, None);
        let held = core::mem::take(&mut doubt.held);
        held.into_iter().enumerate().for_each(|(place, one)| take(self, place, one));
    }

    /// Decides the held fragments of a source if the evidence allows; with `is_last_word`, in any case.
    pub(super) fn weigh(&mut self, now: Instant, source: usize, is_last_word: bool) {
        if self.sources[source].doubt.is_empty() {
            return;
        }
        if self.sources[source].is_yet_to_begin() && !self.begin_free(source, is_last_word) {
            return;
        }
        if self.may_begin_anywhere(source) {
            self.agree_on_first(now, is_last_word);
            if self.first_is_open && is_last_word {
                self.each_held(source, |readout, _, one| readout.give_up(source, one));
            }
            return;
        }
        if !self.sources[source].is_following() {
            self.stray_all(now, source);
            return;
        }
        self.complete_first(source, is_last_word);
        self.drop_left_overs(source, is_last_word);
        if self.sources[source].doubt.is_empty() {
            return;
        }
        let verdict = self.verdict(source, is_last_word);
        self.sources[source].doubt.awaits_others = verdict == Verdict::AwaitOthers;
        match verdict {
            Verdict::Wait => {}
            Verdict::AwaitOthers => self.doubt_check = self.doubt_check.min(now.after(self.patience() / LOOKS)),
            Verdict::Right(reading) => self.follow(source, reading, is_last_word && !self.has_more(source)),
            Verdict::Restart(reading) => self.restart(now, source, reading),
            Verdict::Realign(reading, position) => self.realign(source, reading, position, is_last_word),
            Verdict::Perhaps(position) if !self.sources[source].doubt.is_second => {
                let doubt = &mut self.sources[source].doubt;
                (doubt.tentative, doubt.is_second) = (position, true);
            }
            Verdict::Nothing | Verdict::Perhaps(_) => self.believe_none(source),
        }
    }

    /// Rejects all held numbers, which nothing supports. A damaged fragment with the right number gets its event if
    /// others show that event. The remaining fragments belonged to events that others show, and are in none.
    fn believe_none(&mut self, source: usize) {
        let shown = self.opened();
        let input = &self.sources[source];
        let (last, next) = (input.sequence.last(), input.sequence.next());
        let reading = input.doubt.numbers(&input.sequence, input.may_repeat).best(Start::Anew, |_| true, |_| true);
        let given_up = reading.members().next_back().map(|last| input.doubt.held[last].meta.raw_id);
        // Fragments that were given up earlier belonged to events, too.
        let gone = input.doubt.gone.min(shown.saturating_sub(last + 1));
        let mut passed = if input.has_joined { gone } else { 0 };
        self.each_held(source, |readout, place, one| {
            let is_shown = last + 1 + passed < shown;
            let input = &mut readout.sources[source];
            if place == 0 && has_number(&one, next) && (is_shown || readout.is_alone && input.is_only) {
                readout.believe(source, one);
                return;
            }
            let is_repeated = one.meta.raw_id == input.sequence.last_raw();
            passed += u64::from(is_shown && !is_repeated && input.has_joined);
            readout.give_up(source, one);
        });
        let input = &mut self.sources[source];
        if input.believed == 0 && passed > 0 {
            let raw = (0..passed).fold(input.sequence.last_raw(), |raw, _| input.sequence.after(raw));
            input.sequence.advance(last + input.sequence.between(input.sequence.last_raw(), raw), raw);
        }
        // The next number may agree with the last one.
        input.doubt.given_up = given_up.zip(Some(reading.len()));
    }

    /// Ends the wait of events for the held fragments of a source; with `is_over`, decides them for good.
    pub(super) fn decide(&mut self, now: Instant, source: usize, is_over: bool) {
        for _ in 0..=MOST_HELD {
            self.weigh(now, source, true);
            self.admit_believed(now, source);
            if !is_over || self.sources[source].doubt.is_empty() {
                break;
            }
        }
        self.note_frontier(source);
    }

    /// Weighs the evidence for the held numbers.
    fn verdict(&self, source: usize, is_last_word: bool) -> Verdict {
        let input = &self.sources[source];
        let (doubt, sequence) = (&input.doubt, &input.sequence);
        let numbers = doubt.numbers(sequence, input.may_repeat);
        let position = |place: usize| sequence.position_ahead(doubt.held[place].meta.raw_id, self.head);
        let gone = if input.has_joined { doubt.gone } else { 0 };
        let beginning = self.beginning(source, is_last_word);
        if matches!(beginning, Beginning::Open | Beginning::LeftOvers(_)) {
            return Verdict::AwaitOthers;
        }
        let has_place = beginning == Beginning::Anywhere;
        let may_begin = |place| position(place).is_some_and(|at| has_place || self.may_join_at(source, at));
        let is_ahead = |place| position(place).is_some();
        let forward = numbers.best(Start::Last { gone }, may_begin, is_ahead);
        let is_other = |place| is_ahead(place) && !doubt.is_member(place, forward);
        let rival = numbers.best(Start::Last { gone }, may_begin, is_other);
        // A number that was sent twice proves no more than one sent once.
        let rival = rival.cost - doubt.twins(forward) * (WRONG - KNOWN);
        let anew = numbers.anew(forward, |place| position(place).is_none());
        // With a trigger source that declares restarts, counters do restart.
        let other = if self.resync_declared && anew.len() > 1 { anew.cost.min(rival) } else { rival };
        let Some(first) = forward.members().next() else {
            return self.verdict_on_new_count(source, anew, forward.cost, is_last_word);
        };
        if !forward.has_gap_before(first) && other > forward.cost {
            return self.right(source, forward, is_last_word);
        }
        let agreed = doubt.given_up.filter(|&(raw, _)| first == 0 && sequence.after(raw) == doubt.held[0].meta.raw_id);
        let lead = other - forward.cost + WRONG * agreed.map_or(0, |(_, count)| count as i32);
        let reached = |place| position(place).is_some_and(|position| self.is_reached(source, position));
        // Before its first event a source may send left-overs of an earlier run.
        let is_long = doubt.is_full() && (has_place || input.begins_anywhere)
            // No other source here can confirm it, or the others are late themselves.
            || is_last_word && has_place && (self.is_only_speaker(source) || forward.missing() <= NEAR);
        let is_shown = reached(first) && !input.sequence.is_renumbered();
        if lead >= PROOF && is_shown && (is_last_word || !self.may_be_left_over(source, position(first))) {
            return self.right(source, forward, is_last_word);
        }
        if lead >= PROOF && (is_long || input.sequence.is_renumbered()) {
            return self.verdict_on_jump(source, forward, is_last_word);
        }
        let restart = self.verdict_on_restart(source, anew, forward.cost, is_last_word);
        if !is_last_word || !matches!(restart, Verdict::Wait | Verdict::Nothing) {
            return restart;
        }
        let shown = self.opened();
        let is_now = |position: Position| {
            // The run's newest event, or the next one.
            let is_newest = position + 1 == shown || position == shown;
            is_newest || self.may_be_first(source, position) || self.agrees(source, position)
        };
        // A single number is enough if it shows the event that the others have just reached. If the run has long passed
        // the event, nothing has contradicted the number since it was held.
        let is_proved = forward.len() > 1 || doubt.is_second;
        let is_likely =
            position(first).is_some_and(is_now) || is_proved && reached(first) || self.shares(source, forward);
        if is_likely && !self.is_elsewhere(source) {
            return Verdict::Right(forward);
        }
        // Other sources that are held back cannot show this event.
        let is_blocked = shown >= self.room_end() || input.is_unread();
        let may_join = |position| has_place || self.may_be_first(source, position);
        let place = position(first).filter(|&at| is_blocked && may_join(at) || reached(first));
        // Other sources advance, and may come as far.
        let is_moving = has_place && (self.head, shown) != doubt.run_at;
        if place.is_some() || is_moving { Verdict::Perhaps(place) } else { Verdict::Nothing }
    }

    /// Whether the run has reached this event, or nothing else can show that.
    fn is_reached(&self, source: usize, position: Position) -> bool {
        let (input, shown) = (&self.sources[source], self.opened());
        let is_first = self.may_be_first(source, position);
        self.is_lone(source) && (input.has_place() || is_first)
            || position < shown
            || is_first && self.agrees(source, position)
    }

    /// Whether events wait for no other source in any readout unit.
    pub(super) fn is_lone(&self, source: usize) -> bool {
        self.is_alone && self.is_only_speaker(source)
    }

    /// Whether events wait for no other source of this readout unit.
    fn is_only_speaker(&self, source: usize) -> bool {
        let may_show = |input: &Source| input.is_following() && input.presence == Presence::Awaited;
        let others = || self.sources.iter().enumerate().filter(|&(other, _)| other != source);
        self.sources[source].is_only || !others().any(|(_, input)| may_show(input) && !input.masking.is_open())
    }

    /// Returns the certain part of an explanation. Its last member must not be damaged or follow missing numbers,
    /// unless a later number confirms it.
    pub(super) fn right(&self, source: usize, mut reading: Reading, is_last_word: bool) -> Verdict {
        let held = &self.sources[source].doubt.held;
        let Some(end) = reading.members().next_back() else { return Verdict::Wait };
        let may_tell = !is_last_word || self.has_more(source);
        let is_lonely = reading.has_gap_before(end) && reading.len() > 1 && may_tell;
        if is_lonely || is_unreliable(&held[end]) {
            reading.without(end);
        }
        match reading.len() {
            0 if is_last_word => Verdict::Nothing,
            0 => Verdict::Wait,
            _ => Verdict::Right(reading),
        }
    }

    /// Whether more fragments have arrived behind the held ones. They show whether the last held number is right.
    fn has_more(&self, source: usize) -> bool {
        self.sources[source].waiting.len() > self.sources[source].believed
    }

    /// Whether several numbers continue the sequence, and another source also shows the event of one of them.
    fn shares(&self, source: usize, forward: Reading) -> bool {
        let input = &self.sources[source];
        let position = |place| input.sequence.position_ahead(input.doubt.raw(place), self.head);
        let mut positions = forward.members().filter_map(position);
        forward.len() > 1 && input.has_joined && positions.any(|at| self.agrees(source, at))
    }

    /// Whether another source also shows the event of this number, and is in doubt itself or waits for room.
    pub(super) fn agrees(&self, source: usize, position: Position) -> bool {
        let shows = |other: &Source| {
            let is_it = |one: &Received| other.sequence.position_ahead(one.meta.raw_id, self.head) == Some(position);
            let mut shown = other.doubt.held.iter().chain(other.waiting.iter().take(other.believed));
            shown.any(|one| !is_unreliable(one) && is_it(one))
        };
        self.sources.iter().enumerate().any(|(index, other)| index != source && shows(other))
    }

    /// Whether the held numbers restart the numbering; `forward` is the cost of the explanation that they do not.
    fn verdict_on_restart(&self, source: usize, anew: Reading, forward: i32, is_last_word: bool) -> Verdict {
        let nothing = if is_last_word { Verdict::Nothing } else { Verdict::Wait };
        let input = &self.sources[source];
        let Some(first) = anew.members().next().filter(|_| input.has_joined) else { return nothing };
        let even = anew.until_gap();
        if let Some(position) = self.realigned(source, even) {
            return Verdict::Realign(even, position);
        }
        let is_first = input.sequence.is_near_first(input.doubt.held[first].meta.raw_id);
        let is_declared = !self.declared.is_empty();
        let is_second = |raw: u64| input.doubt.given_up.is_some_and(|(before, _)| input.sequence.after(before) == raw);
        let is_restart = match anew.len() {
            // The trigger source has declared a restart.
            1 if !is_declared && !self.resync_declared && !is_second(input.doubt.raw(first)) => false,
            1 | 2 => is_first && (is_last_word || is_declared) && forward > anew.cost,
            // Without a declaration, wait until there are enough fragments to compare bunch crossings and times.
            _ if !is_last_word && !self.resync_declared && (!input.doubt.is_full() || self.others_lag(source)) => {
                return Verdict::AwaitOthers;
            }
            _ if forward - anew.cost < PROOF && !(self.resync_declared && forward > anew.cost) => false,
            // Fragments that a source sends again after it reconnected are no new numbering: it ends where it began.
            length => is_first || is_last_word && length as usize >= MOST_HELD && input.doubt.is_full(),
        };
        if is_restart { Verdict::Restart(anew) } else { nothing }
    }

    /// Decides the same where a trigger source may declare a new count. A single first number either begins the count
    /// or was sent twice, and the next number decides.
    fn verdict_on_new_count(&self, source: usize, anew: Reading, forward: i32, is_last_word: bool) -> Verdict {
        let input = &self.sources[source];
        let is_lone = self.resync_declared && input.has_joined && anew.len() == 1 && input.doubt.held.len() == 1;
        match self.verdict_on_restart(source, anew, forward, is_last_word) {
            Verdict::Nothing if is_lone && input.sequence.is_first(input.doubt.raw(0), false) => Verdict::Perhaps(None),
            verdict => verdict,
        }
    }

    /// Whether other sources lag behind this one, counting its held fragments.
    pub(super) fn others_lag(&self, source: usize) -> bool {
        let end = self.sources[source].sequence.last() + MOST_HELD as Position;
        let others = self.sources.iter().enumerate().filter(|&(other, _)| other != source);
        let mut awaited = others.filter(|(_, input)| input.is_following() && input.presence == Presence::Awaited);
        awaited.any(|(_, input)| input.highest() < end)
    }

    /// Believes the members of an explanation, in the order of numbers. Fragments held behind the last member are
    /// judged again, unless `is_last_word`.
    pub(super) fn follow(&mut self, source: usize, reading: Reading, is_last_word: bool) {
        let key = self.key_of_next(source);
        let input = &mut self.sources[source];
        let (sequence, doubt) = (input.sequence, &input.doubt);
        let from = sequence.last_raw();
        let raws: ArrayVec<(usize, u64), { MOST_HELD + 1 }> =
            reading.members().map(|place| (place, sequence.between(from, doubt.held[place].meta.raw_id))).collect();
        let (Some(&(last_place, end)), Some(&(_, first))) = (raws.last(), raws.first()) else { return };
        // Equal steps may be the source's way of counting.
        let steps = core::iter::once(0).chain(raws.iter().map(|&(_, raw)| raw)).zip(raws.iter().map(|&(_, raw)| raw));
        let step = raws.get(1).map_or(first, |&(_, second)| second - first);
        let is_even = steps.skip(1).all(|(one, other)| other - one == step) && raws.len() == last_place + 1;
        let gaps = reading.members().zip(&raws).filter(|(place, _)| reading.has_gap_before(*place));
        let gaps: ArrayVec<u64, { MOST_HELD + 1 }> = gaps.map(|(_, &(_, raw))| raw).collect();
        if !gaps.is_empty() {
            input.sequence.learn_step(sequence.plus(from, first), if is_even { step } else { 0 }, reading.len());
        }
        let mut right = ArrayVec::<(u64, bool, Received), { MOST_HELD + 1 }>::new();
        let mut again = 0;
        self.each_held(source, |readout, place, one| {
            let (is_member, ahead) = (reading.has(place), sequence.between(from, one.meta.raw_id));
            let is_known = ahead > 0 && ahead <= end && !one.meta.flags.contains(FragmentFlags::MISSING);
            let fits = || {
                let before = raws.iter().rev().find(|(other, _)| *other < place).map_or(0, |&(_, raw)| raw);
                let behind = raws.iter().find(|(other, _)| *other > place).map_or(0, |&(_, raw)| raw);
                is_unreliable(&one) && before < ahead && ahead < behind
            };
            let is_late = !is_unreliable(&one) && sequence.holds(one.meta.raw_id);
            if !is_last_word && place > last_place && !(is_known && is_late) {
                let input = &mut readout.sources[source];
                input.waiting.insert(input.believed + again, one);
                again += 1;
            } else if is_member || is_known && (is_late || fits()) {
                right.push((ahead, !is_member, one));
            } else {
                readout.give_up(source, one);
            }
        });
        self.note_gaps(source, key, &gaps, &right.iter().map(|&(raw, ..)| raw).collect::<ArrayVec<_, 9>>());
        right.sort_by_key(|&(ahead, is_other, _)| (ahead, is_other));
        right.into_iter().for_each(|(.., one)| self.believe(source, one));
        self.note_waiting(source);
    }

    /// Notes missing numbers in front of each of `gaps`, counted from the last number. The numbers in `there` are not
    /// missing.
    fn note_gaps(&mut self, source: usize, key: EventKey, gaps: &[u64], there: &[u64]) {
        let input = &mut self.sources[source];
        let (step, from) = (input.sequence.step_length(), input.sequence.last_raw());
        for &end in gaps {
            let before = there.iter().copied().filter(|&one| one < end).max().unwrap_or(0);
            let lost = ((end - before) / step).saturating_sub(1);
            if lost > 0 && (input.has_joined || before == 0) {
                let (from, to) = (input.sequence.plus(from, before), input.sequence.plus(from, end));
                input.numbering.note(NumberingKind::Gap, key, from, to, lost);
            }
        }
    }

    /// Restarts the source's numbering with the held fragments.
    fn restart(&mut self, now: Instant, source: usize, anew: Reading) {
        let key = self.key_of_next(source);
        let Some(start) = anew.members().next() else { return };
        let input = &mut self.sources[source];
        let (from, to) = (input.sequence.last_raw(), input.doubt.held[start].meta.raw_id);
        input.numbering.note(NumberingKind::Restart, key, from, to, 0);
        self.each_held(source, |readout, place, one| {
            let left = match place.cmp(&start) {
                Ordering::Less => return readout.give_up(source, one),
                Ordering::Equal => readout.restarted(now, source, one),
                Ordering::Greater => readout.judge_strayed(now, source, one),
            };
            readout.sources[source].waiting.extend(left);
        });
        self.note_waiting(source);
    }

    /// Ends, at a new connection, the apparent new numbering over the previous connection.
    pub(super) fn end_restart(&mut self, now: Instant, source: usize) {
        let input = &self.sources[source];
        let is_in_doubt = !input.doubt.is_empty() && input.is_following() && input.has_joined;
        if is_in_doubt
            && !self.resync_declared
            && let Verdict::Restart(reading) = self.verdict(source, true)
        {
            self.restart(now, source, reading);
        }
    }

    /// Handles all held fragments of a source as the disagreement of its numbering with the run's requires.
    pub(super) fn stray_all(&mut self, now: Instant, source: usize) {
        self.each_held(source, |readout, _, one| {
            let left = readout.judge(now, source, one);
            readout.sources[source].waiting.extend(left);
        });
        self.note_waiting(source);
    }

    /// Accepts the number of this fragment and queues it behind other accepted ones.
    fn believe(&mut self, source: usize, fragment: Received) {
        let input = &mut self.sources[source];
        input.waiting.insert(input.believed, fragment);
        input.believed += 1;
    }

    /// Gives up a fragment, which is in no event. It is counted according to its number.
    pub(super) fn give_up(&mut self, source: usize, fragment: Received) {
        let key = self.key_of_next(source);
        let input = &mut self.sources[source];
        let raw = fragment.meta.raw_id;
        if let Some(cause) = fragment.meta.missing_cause() {
            input.count_given_up(cause);
            return;
        }
        if is_unreliable(&fragment) {
            input.account.corrupt += 1;
            input.numbering.note(NumberingKind::WrongNumber, key, input.sequence.last_raw(), raw, 1);
            return;
        }
        let behind = input.sequence.position_behind(raw);
        match behind {
            _ if !input.has_joined => {
                input.account.stale += 1;
                input.numbering.note(NumberingKind::LeftOver, key, input.sequence.next(), raw, 1);
            }
            Some(position) if position < ORIGIN => input.account.stale += 1,
            Some(position) if position == input.sequence.last() || self.table.has_fragment(source, position) => {
                input.account.duplicate += 1;
            }
            // The event lacks the fragment.
            Some(position) if position >= self.head || input.gaps.has(position) => {
                input.account.late += 1;
            }
            _ => {
                input.account.dropped.add(Cause::ImplausibleJump, 1);
                input.numbering.note(NumberingKind::WrongNumber, key, input.sequence.last_raw(), raw, 1);
            }
        }
    }

    /// Returns the key of the event that a source should show next.
    pub(super) fn key_of_next(&self, source: usize) -> EventKey {
        self.timeline.key(self.sources[source].sequence.last() + 1)
    }

    /// Restarts the time-outs of all doubts.
    pub(super) fn restart_doubts(&mut self, now: Instant) {
        if self.doubt_check < Instant::FAR_FUTURE {
            self.sources.iter_mut().for_each(|input| input.doubt.since = now);
            self.doubt_check = now.after(self.patience());
        }
    }

    /// Decides, with the present evidence, sources whose numbers were in doubt for too long.
    pub(super) fn end_doubts(&mut self, now: Instant) {
        self.doubt_check = Instant::FAR_FUTURE;
        let patience = self.patience();
        for source in 0..self.sources.len() {
            if self.sources[source].doubt.awaits_others() {
                self.weigh(now, source, false);
                self.admit_believed(now, source);
                self.admit_waiting(now);
                self.moved(now, source);
            }
            let input = &self.sources[source];
            if input.doubt.is_empty() {
                continue;
            }
            let deadline = |doubt: &Doubt| doubt.since.after(patience * (1 + u32::from(doubt.is_second)));
            if now >= deadline(&input.doubt) {
                self.decide(now, source, now >= input.doubt.since.after(2 * patience));
                self.moved(now, source);
            }
            let doubt = &self.sources[source].doubt;
            if !doubt.is_empty() {
                self.doubt_check = self.doubt_check.min(deadline(doubt));
            }
        }
    }
}
