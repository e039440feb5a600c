//! What a number means that does not continue its source's sequence.
//!
//! ```text
//!   last 1523 |  2548  1525          the old sequence goes on: 2548 was a wrong number, one fragment
//!   last 1523 |  1527  1528  1529    a new sequence goes on: 1524 to 1526 were lost
//!   last 1523 |     1     2     3    a new sequence behind the old one: the source restarted
//! ```
//! A number is a claim. One that does not continue is held, with what follows, until there is evidence: the old sequence
//! goes on, the new one does, or other sources show how far the run has come. At most [`MOST_HELD`] fragments are held,
//! for at most half the source time-out or a second. A fragment whose checksum is wrong proves nothing: it takes the place that its
//! neighbours leave for it, or none.

use super::machine::Readout;
use super::realign::{MOST_MARKS, Mark};
use super::sequence::Sequence;
use super::source::Source;
use super::timeline::{ORIGIN, Position};
use crate::messages::{FragmentFlags, NumberingKind, Received};
use arrayvec::ArrayVec;
use core::cmp::Ordering;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant};

/// Fragments of a source that are held while its numbers are in doubt.
pub(super) const MOST_HELD: usize = 8;

/// Equal steps in a row that prove a new sequence where the run has come as far.
const PROOF: u32 = 3;

/// Events wait no longer than this for a source whose numbers are in doubt, whatever the source time-out.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// Growing numbers in a row, in unequal steps, that prove as much.
const LOOSE_PROOF: u32 = 4;

/// Flags of fragments whose numbers are no evidence: their bytes are known to be damaged, or the framer gave them up.
const UNRELIABLE: u32 = FragmentFlags::CRC_ERROR.0
    | FragmentFlags::MALFORMED.0
    | FragmentFlags::LENGTH_MISMATCH.0
    | FragmentFlags::MISSING.0;

/// Whether a fragment's number is no evidence.
#[inline]
pub(super) const fn is_unreliable(fragment: &Received) -> bool {
    fragment.meta.flags.0 & UNRELIABLE != 0
}

/// Whether a fragment is there and has this number.
const fn has_number(fragment: &Received, number: u64) -> bool {
    fragment.meta.raw_id == number && !fragment.meta.flags.contains(FragmentFlags::MISSING)
}

/// The numbers of one source that are in doubt.
#[derive(Debug)]
pub(super) struct Doubt {
    held: ArrayVec<Received, { MOST_HELD + 1 }>,
    /// Fragments that came since the doubt began, those included that were given up meanwhile, here or by the framer.
    seen: u64,
    /// The event after which the doubt began.
    after: Position,
    since: Instant,
    /// The event that the oldest number that is held may stand for, where time has passed without evidence: those before it do not
    /// wait for the source any longer.
    tentative: Option<Position>,
    /// The last number that was given up for lack of time, and how many in a row agreed with it.
    given_up: Option<(u64, u32)>,
}

/// The longest run of numbers at the end of those held that continue each other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Chain {
    /// The place of its first number among those held.
    start: usize,
    first: u64,
    /// Numbers in it, those included that were given up before.
    length: u32,
    /// The step from each to the next; none where steps differ.
    step: Option<u64>,
}

/// What is known of a source whose numbers are in doubt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// Not enough.
    Wait,
    /// The new sequence, from this place among those held, is the source's: it lost what lies between.
    Jump(Chain),
    /// The source started its numbering again.
    Restart(Chain),
    /// It did, and its first fragment since is of this event.
    Realign(Chain, Position),
    /// Time is over for the events before this one.
    Perhaps(Position),
    /// Time is over, and nothing speaks for any of the numbers.
    Nothing,
}

impl Doubt {
    pub(super) fn new() -> Self {
        Self { held: ArrayVec::new(), seen: 0, after: 0, since: Instant::ZERO, tentative: None, given_up: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The first event that waits for the source, where that is not the one behind its last one.
    pub(super) const fn tentative(&self) -> Option<Position> {
        self.tentative
    }

    /// Fragments that are held.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing more can be held without giving up the oldest.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MOST_HELD
    }

    /// One more fragment came, behind those up to `last`.
    pub(super) fn count(&mut self, last: Position) {
        if self.held.is_empty() && self.after != last {
            self.seen = 0;
        }
        self.after = last;
        self.seen += 1;
    }

    /// The chain at the end of what is held, of equal steps if that has at least two numbers, of growing numbers if
    /// `is_loose`.
    fn chain(&self, sequence: &Sequence, is_loose: bool) -> Option<Chain> {
        let reliable = self.held.iter().enumerate().rev().filter(|(_, one)| !is_unreliable(one));
        let mut numbers = reliable.map(|(place, one)| (place, one.meta.raw_id)).filter(|(_, raw)| sequence.holds(*raw));
        let (mut start, mut first) = numbers.next()?;
        let (mut length, mut step) = (1, None);
        for (place, raw) in numbers {
            let (apart, places) = (sequence.between(raw, first), (start - place) as u64);
            let is_equal = apart == places * step.unwrap_or(apart / places);
            if apart == 0 || apart > sequence.reach() || !is_loose && !is_equal {
                break;
            }
            // A step of 0 stands for different ones.
            step = Some(if is_equal { apart / places } else { 0 });
            (start, first, length) = (place, raw, length + 1);
        }
        if start == 0
            && let Some((before, count)) = self.given_up
            && sequence.between(before, first) == step.unwrap_or(1)
        {
            length += count;
        }
        Some(Chain { start, first, length, step: step.filter(|&step| step > 0) })
    }

    /// Drops what is held, and says how many fragments those were.
    pub(super) fn clear(&mut self) -> u64 {
        let held = self.held.len() as u64;
        self.held.clear();
        (self.seen, self.tentative, self.given_up) = (0, None, None);
        held
    }
}

impl Readout {
    /// How long events wait for a source whose numbers are in doubt.
    fn patience(&self) -> Duration {
        (self.source_timeout / 2).min(LONGEST_DOUBT)
    }

    /// A fragment came that does not continue its source's sequence, or that is unreliable, or one behind such.
    pub(super) fn hold(&mut self, now: Instant, source: usize, fragment: Received) {
        let patience = self.patience();
        let input = &mut self.sources[source];
        let doubt = &mut input.doubt;
        if doubt.is_empty() {
            doubt.since = now;
            self.doubt_check = self.doubt_check.min(now.after(patience));
        }
        doubt.count(input.sequence.last());
        let raw = fragment.meta.raw_id;
        let is_reliable = !is_unreliable(&fragment);
        // Each of those held may stand for one event of the old sequence, or for none.
        let places = input.sequence.steps_ahead(raw);
        let places = places.filter(|&places| places == doubt.seen || is_reliable && places < doubt.seen);
        // Two numbers that continue each other are better evidence than a count of fragments, in which some may have been given up.
        let last = doubt.held.iter().rev().find(|one| !is_unreliable(one));
        let follows_held = is_reliable && last.is_some_and(|last| input.sequence.after(last.meta.raw_id) == raw);
        if let Some(places) = places.filter(|_| doubt.seen > 1 && !follows_held) {
            self.resume(source, places - 1, fragment);
            return;
        }
        doubt.held.push(fragment);
        if doubt.held.len() > MOST_HELD {
            let oldest = doubt.held.remove(0);
            doubt.given_up = None;
            self.give_up(source, oldest, true);
        }
        self.weigh(now, source, false);
    }

    /// The old sequence goes on with `fragment`. Those held before it have `places` events, and are in them if they say so.
    fn resume(&mut self, source: usize, mut places: u64, fragment: Received) {
        let input = &self.sources[source];
        let (mut next, end, last) = (input.sequence.next(), fragment.meta.raw_id, input.sequence.last_raw());
        let mut extra = input.doubt.len() as u64 - places.min(input.doubt.len() as u64);
        let mut early = ArrayVec::<Received, MOST_HELD>::new();
        self.each_held(source, |readout, _, one| {
            if extra > 0 && (places == 0 || has_number(&one, last)) {
                extra -= 1;
                early.push(one);
                return;
            }
            if places > 0 && has_number(&one, next) {
                readout.believe(source, one);
            } else {
                readout.give_up(source, one, true);
            }
            places = places.saturating_sub(1);
            next = readout.sources[source].sequence.after(next);
        });
        if is_unreliable(&fragment) {
            // It bears out those before it, and waits for what bears it out.
            let doubt = &mut self.sources[source].doubt;
            doubt.held.push(fragment);
            doubt.seen = 1;
        } else {
            self.believe(source, fragment);
        }
        next = self.sources[source].sequence.after(end);
        // One that was overtaken by those before it came too early, and has its place behind them.
        while let Some(place) = early.iter().position(|one| one.meta.raw_id == next && !is_unreliable(one)) {
            next = self.sources[source].sequence.after(next);
            let one = early.remove(place);
            self.believe(source, one);
        }
        early.into_iter().for_each(|one| self.give_up(source, one, false));
    }

    /// Takes out what is held, oldest first; nothing is in doubt then.
    fn each_held(&mut self, source: usize, mut take: impl FnMut(&mut Self, usize, Received)) {
        let doubt = &mut self.sources[source].doubt;
        (doubt.seen, doubt.tentative, doubt.given_up) = (0, None, None);
        let held = core::mem::take(&mut doubt.held);
        held.into_iter().enumerate().for_each(|(place, one)| take(self, place, one));
    }

    /// Decides what is held of a source, where it can be decided; where `is_last_word`, in any case.
    pub(super) fn weigh(&mut self, now: Instant, source: usize, is_last_word: bool) {
        if self.sources[source].doubt.is_empty() {
            return;
        }
        if self.may_begin_anywhere(source) {
            self.agree_on_first(now, is_last_word);
            if self.first_is_open && is_last_word {
                self.each_held(source, |readout, _, one| readout.give_up(source, one, true));
            }
            return;
        }
        if !self.sources[source].is_following() {
            self.stray_all(now, source);
            return;
        }
        match self.verdict(source, is_last_word) {
            Verdict::Wait => {}
            Verdict::Jump(chain) => self.jump(source, chain),
            Verdict::Restart(chain) => self.restart(now, source, chain),
            Verdict::Realign(chain, position) => self.realign(source, chain, position),
            Verdict::Perhaps(position) if self.sources[source].doubt.tentative.is_none() => {
                self.sources[source].doubt.tentative = Some(position);
            }
            Verdict::Nothing | Verdict::Perhaps(_) => {
                self.believe_none(source);
            }
        }
    }

    /// Nothing speaks for the numbers that are held. A damaged fragment with the right number has its event if others show that; the
    /// others were of events that others show, and are in none.
    fn believe_none(&mut self, source: usize) {
        let shown = self.opened();
        let input = &self.sources[source];
        let (last, next) = (input.sequence.last(), input.sequence.next());
        let chain = input.doubt.chain(&input.sequence, false);
        let given_up = input.doubt.held.iter().rev().find(|one| !is_unreliable(one)).map(|one| one.meta.raw_id);
        let mut passed = 0;
        self.each_held(source, |readout, place, one| {
            let is_shown = last + 1 + passed < shown;
            let input = &mut readout.sources[source];
            if place == 0 && has_number(&one, next) && (is_shown || readout.is_alone && input.is_only) {
                readout.believe(source, one);
                return;
            }
            let is_repeated = one.meta.raw_id == input.sequence.last_raw();
            passed += u64::from(is_shown && !is_repeated && input.has_joined);
            readout.give_up(source, one, true);
        });
        let input = &mut self.sources[source];
        if input.believed == 0 && passed > 0 {
            let raw = (0..passed).fold(input.sequence.last_raw(), |raw, _| input.sequence.after(raw));
            input.sequence.advance(last + input.sequence.between(input.sequence.last_raw(), raw), raw);
        }
        // The next number may agree with the last one.
        input.doubt.given_up = given_up.zip(chain.map(|chain| chain.length));
    }

    /// Time is over for what is held of a source: for events to wait for it, and where `is_over`, for good.
    pub(super) fn decide(&mut self, now: Instant, source: usize, is_over: bool) {
        self.weigh(now, source, true);
        if is_over && !self.sources[source].doubt.is_empty() {
            self.weigh(now, source, true);
        }
        self.admit_believed(now, source);
        self.note_frontier(source);
    }

    /// What speaks for the new sequence.
    fn verdict(&self, source: usize, is_last_word: bool) -> Verdict {
        let input = &self.sources[source];
        let (doubt, sequence) = (&input.doubt, &input.sequence);
        let nothing = if is_last_word { Verdict::Nothing } else { Verdict::Wait };
        let (Some(strict), Some(loose)) = (doubt.chain(sequence, false), doubt.chain(sequence, true)) else {
            return nothing;
        };
        let shown = self.opened();
        let is_first = !input.has_joined && shown == ORIGIN;
        let ahead = |chain: Chain| sequence.position_ahead(chain.first, self.head);
        let is_reached = |position: Position| {
            self.is_alone && input.is_only || position < shown || is_first && self.agrees(source, position)
        };
        let is_believed = |chain: Chain, proof| {
            // Before its first event a source may bring what is left of an earlier run.
            let is_long = doubt.is_full() && chain.start == 0 && chain.length >= LOOSE_PROOF && input.has_joined;
            chain.length >= proof && ahead(chain).is_some_and(is_reached) || is_long && ahead(chain).is_some()
        };
        let is_proved = is_believed(strict, PROOF);
        if is_believed(loose, if is_proved { PROOF } else { LOOSE_PROOF }) {
            return Verdict::Jump(loose);
        }
        if is_proved {
            return Verdict::Jump(strict);
        }
        if let Some(position) = self.realigned(source, strict) {
            return Verdict::Realign(strict, position);
        }
        if self.is_restart(source, strict, is_last_word) {
            return Verdict::Restart(strict);
        }
        if !is_last_word {
            return Verdict::Wait;
        }
        let is_now = |position: Position| position + 1 == shown || is_first || self.agrees(source, position);
        let is_likely = |chain: Chain| {
            ahead(chain).is_some_and(|position| is_now(position) || chain.length > 1 && is_reached(position))
        };
        // One number is enough where it says what the others have just come to.
        match [loose, strict].into_iter().find(|&chain| is_likely(chain)) {
            Some(chain) => Verdict::Jump(chain),
            None => {
                // Other sources that are held back cannot show this event.
                let is_blocked = shown >= self.room_end() || input.is_unread();
                let place = ahead(loose).filter(|&position| is_blocked || is_reached(position));
                place.map_or(Verdict::Nothing, Verdict::Perhaps)
            }
        }
    }

    /// The event that the first number of a chain stands for, where a source started its numbering again without a word and what its
    /// fragments hold says where they belong.
    fn realigned(&self, source: usize, chain: Chain) -> Option<Position> {
        let input = &self.sources[source];
        let is_behind = input.sequence.position_ahead(chain.first, self.head).is_none();
        if !input.has_joined || !is_behind || !self.declared.is_empty() || chain.step != Some(1) {
            return None;
        }
        let marks: ArrayVec<Mark, MOST_MARKS> =
            input.doubt.held[chain.start..].iter().map(|one| Mark::of(&one.meta)).take(MOST_MARKS).collect();
        self.place_of(source, &marks, input.sequence.last() + 1)
    }

    /// Whether another source shows the event of this number too, and is in doubt itself.
    fn agrees(&self, source: usize, position: Position) -> bool {
        let shows = |other: &Source| {
            let is_it = |one: &Received| other.sequence.position_ahead(one.meta.raw_id, self.head) == Some(position);
            other.doubt.held.iter().any(|one| !is_unreliable(one) && is_it(one))
        };
        self.sources.iter().enumerate().any(|(index, other)| index != source && shows(other))
    }

    /// Whether the numbers that are held begin the numbering again.
    fn is_restart(&self, source: usize, chain: Chain, is_last_word: bool) -> bool {
        let input = &self.sources[source];
        if !input.has_joined || chain.length > 1 && chain.step != Some(1) {
            return false;
        }
        let is_behind = input.sequence.position_ahead(chain.first, self.head).is_none();
        let is_first = input.sequence.is_near_first(chain.first);
        match chain.length {
            _ if !is_behind => false,
            // The trigger source has said that numbering starts again.
            1 => is_first && (is_last_word || !self.declared.is_empty()),
            2 => is_first && (is_last_word || !self.declared.is_empty()),
            // Without a declaration, wait until there are enough fragments to compare bunch crossings and times.
            _ if !is_last_word && !self.resync_declared && !input.doubt.is_full() => false,
            // What a source sends once more, after it was connected anew, is no new numbering: it ends where it began.
            length => is_first || is_last_word && length as usize >= MOST_HELD && input.doubt.is_full(),
        }
    }

    /// The source's numbers go on further ahead.
    fn jump(&mut self, source: usize, chain: Chain) {
        let key = self.key_of_next(source);
        let input = &mut self.sources[source];
        let lost = input.sequence.steps_ahead(chain.first).map_or(0, |steps| steps - 1);
        let from = input.sequence.last_raw();
        input.sequence.learn_step(chain.first, chain.step.unwrap_or(0), chain.length);
        if input.has_joined || lost > 0 {
            input.numbering.note(NumberingKind::Gap, key, from, chain.first, lost);
        }
        self.follow(source, chain);
    }

    /// What is held from the beginning of a chain on is believed; what is before it is not.
    fn follow(&mut self, source: usize, chain: Chain) {
        self.each_held(source, |readout, place, one| {
            let behind = place.wrapping_sub(chain.start) as u64;
            let sequence = &readout.sources[source].sequence;
            let is_right =
                || chain.step.is_some_and(|step| has_number(&one, sequence.plus(chain.first, behind * step)));
            if place >= chain.start && (!is_unreliable(&one) || is_right()) {
                readout.believe(source, one);
            } else {
                readout.give_up(source, one, true);
            }
        });
    }

    /// The source started its numbering again: what is held goes on as that says.
    fn restart(&mut self, now: Instant, source: usize, chain: Chain) {
        let key = self.key_of_next(source);
        let input = &mut self.sources[source];
        let from = input.sequence.last_raw();
        input.numbering.note(NumberingKind::Restart, key, from, chain.first, 0);
        self.each_held(source, |readout, place, one| {
            let left = match place.cmp(&chain.start) {
                Ordering::Less => return readout.give_up(source, one, true),
                Ordering::Equal => readout.restarted(now, source, one),
                Ordering::Greater => readout.judge_strayed(now, source, one),
            };
            readout.sources[source].waiting.extend(left);
        });
        self.note_waiting(source);
    }

    /// The source started its numbering again, and goes on with the event at `position`.
    fn realign(&mut self, source: usize, chain: Chain, position: Position) {
        let key = self.timeline.key(position);
        let input = &mut self.sources[source];
        let from = input.sequence.last_raw();
        input.numbering.note(
            NumberingKind::Restart,
            self.timeline.key(input.sequence.last() + 1),
            from,
            chain.first,
            0,
        );
        input.numbering.note(NumberingKind::Recovered, key, from, chain.first, position - 1 - input.sequence.last());
        input.sequence.renumber(position, chain.first);
        self.follow(source, chain);
    }

    /// What is held of a source goes where its numbering's disagreement with the run's leads it.
    pub(super) fn stray_all(&mut self, now: Instant, source: usize) {
        self.each_held(source, |readout, _, one| {
            let left = readout.judge(now, source, one);
            readout.sources[source].waiting.extend(left);
        });
        self.note_waiting(source);
    }

    /// The number of this fragment is right: it goes on, behind others of which that is known.
    fn believe(&mut self, source: usize, fragment: Received) {
        let input = &mut self.sources[source];
        input.waiting.insert(input.believed, fragment);
        input.believed += 1;
    }

    /// A fragment that is in no event, counted by what its number says; `is_wrong` where that is known to be wrong.
    fn give_up(&mut self, source: usize, fragment: Received, is_wrong: bool) {
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
                input.account.duplicate += u64::from(!is_planted(Flaw::DuplicateUncounted));
            }
            Some(_) if !is_wrong => input.account.late += u64::from(!is_planted(Flaw::LateUncounted)),
            _ => {
                input.account.dropped.add(Cause::ImplausibleJump, 1);
                input.numbering.note(NumberingKind::WrongNumber, key, input.sequence.last_raw(), raw, 1);
            }
        }
    }

    /// Whether the run's first number is not known yet, and this source helps to find it.
    pub(super) fn may_begin_anywhere(&self, source: usize) -> bool {
        self.first_is_open && !self.sources[source].trusts_numbers
    }

    /// At the start of a run counting may begin anywhere, where the sources agree: at the trigger source's first number, or
    /// the one that most sources show. Waits until all that are awaited have shown theirs, unless `is_last_word`.
    fn agree_on_first(&mut self, now: Instant, is_last_word: bool) {
        let mut votes: Option<(bool, usize, u64)> = None;
        for source in 0..self.sources.len() {
            let input = &self.sources[source];
            let chain = input.doubt.chain(&input.sequence, false);
            let is_shown = chain.is_some_and(|chain| chain.length >= PROOF) || input.doubt.is_full();
            if !is_last_word && !input.masking.is_open() && !is_shown {
                return;
            }
            let Some(chain) = chain else { continue };
            let first = |other: &Source| other.doubt.chain(&other.sequence, false).map(|chain| chain.first);
            let count = self.sources.iter().filter(|other| first(other) == Some(chain.first)).count();
            let is_better = |&(triggers, most, first): &(bool, usize, u64)| {
                (input.triggers, count, first) > (triggers, most, chain.first)
            };
            if votes.as_ref().is_none_or(is_better) {
                votes = Some((input.triggers, count, chain.first));
            }
        }
        let Some((.., first)) = votes else { return };
        self.begin_at(now, first);
    }

    /// The run's first event has this number at all sources.
    fn begin_at(&mut self, now: Instant, first: u64) {
        self.first_is_open = false;
        let key = self.timeline.key(ORIGIN);
        for source in 0..self.sources.len() {
            let input = &mut self.sources[source];
            if input.trusts_numbers {
                continue;
            }
            input.sequence.begin_at(first);
            let place = input.doubt.held.iter().position(|one| one.meta.raw_id == first && !is_unreliable(one));
            if let Some(start) = place {
                input.numbering.note(NumberingKind::Begin, key, first, first, 0);
                let chain = Chain { start, first, length: 1, step: Some(1) };
                // What is behind it continues it, or is in doubt once more.
                self.follow(source, chain);
            }
        }
        for source in 0..self.sources.len() {
            self.admit_believed(now, source);
            self.weigh(now, source, false);
            self.admit_believed(now, source);
        }
    }

    /// The event that a source should show next.
    fn key_of_next(&self, source: usize) -> EventKey {
        self.timeline.key(self.sources[source].sequence.last() + 1)
    }

    /// Sources whose numbers were in doubt for too long are decided with what is known.
    pub(super) fn end_doubts(&mut self, now: Instant) {
        self.doubt_check = Instant::FAR_FUTURE;
        let patience = self.patience();
        for source in 0..self.sources.len() {
            let input = &self.sources[source];
            if input.doubt.is_empty() {
                continue;
            }
            let deadline = |doubt: &Doubt| doubt.since.after(patience * (1 + u32::from(doubt.tentative.is_some())));
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
