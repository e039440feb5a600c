//! Decides which times of one source are believed, and puts them in order.
//!
//! ```text
//!   70  80  90 | 5000  100  110          the old times continue: 5000 was wrong, one fragment
//!   70  80  90 | 5000 5010 5020          another source shows 5010, or nothing continues at 90: the source jumped
//!   70  80  90 |   10   20   30          behind its own times, for good: its clock began anew
//!   70  90  80 |  100                    in order again: 80 was overtaken on its way
//! ```
//! A time that continues plausibly is believed at once. Any other time is doubted until later times or other sources
//! decide. A field of known width wraps: times are unwrapped next to the last believed one.

use crate::messages::{FragmentMeta, NumberingKind, Received};
use arrayvec::ArrayVec;
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant};
use std::collections::VecDeque;

/// A time that does not wrap.
pub(super) type Time = i128;

/// Number of doubted times at which a source that is the only one is decided at the latest.
pub(super) const MOST_DOUBTED: usize = 16;

/// Number of times that show where their source is, if they lie close together and are the latest.
pub(super) const PROOF: usize = 4;

/// A step is plausible up to this multiple of the longest recent step.
const PLAUSIBLE: Time = 4;

/// Times belong together if they are at most this multiple of the shorter steps apart.
const TOGETHER: Time = 16;

/// Number of times in the old order, beyond those that may be overtaken, that prove the others wrong.
const RESUMED: u32 = 3;

/// Divisor of the decay of the longest recent step: each step reduces it by this fraction.
const DECAY: Time = 64;

/// How a source counts, and in which order its fragments come.
#[derive(Copy, Clone, Debug)]
pub(super) struct LaneConfig {
    /// Width of its times in bits.
    pub(super) bits: u8,
    /// Number of later fragments that may overtake a fragment.
    pub(super) reorder: u8,
    /// The longest wait for an overtaken fragment.
    pub(super) reorder_timeout: Duration,
}

/// A fragment whose time is believed.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) time: Time,
    /// Whether no other source confirmed the time, so that it is believed only for lack of other sources.
    pub(super) is_weak: bool,
    pub(super) fragment: Received,
    came: Instant,
    order: u64,
}

/// A fragment whose time is not believed yet.
#[derive(Debug)]
pub(super) struct Doubted {
    pub(super) fragment: Received,
    pub(super) came: Instant,
    /// The source's `gone_on` at that time.
    gone_on: u64,
}

/// A fragment with damaged bytes: its time is no evidence.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) fragment: Received,
    pub(super) came: Instant,
    /// Number of believed fragments that came before it.
    order: u64,
}

/// An anomaly of a source's times.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) kind: NumberingKind,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The most notes that are kept until they are taken.
const MOST_NOTES: usize = 32;

/// How a time relates to the earlier ones.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// It continues plausibly.
    GoesOn,
    /// It was overtaken, and its place is still free.
    Overtaken,
    /// The source had jumped by mistake, and continues from its old position.
    Resumes,
    /// It cannot be believed without other evidence.
    Doubtful,
}

/// One source.
#[derive(Debug)]
pub(super) struct Lane {
    config: LaneConfig,
    /// Believed fragments, in the order of their times.
    pub(super) waiting: VecDeque<Entry>,
    /// Doubted fragments, in the order of arrival.
    pub(super) doubted: VecDeque<Doubted>,
    /// Damaged fragments; each gets a place if other sources show its time.
    pub(super) damaged: VecDeque<Damaged>,
    /// Fragments that are in no event.
    pub(super) given_up: VecDeque<Received>,
    /// The highest believed time; `None` before the first one.
    pub(super) top: Option<Time>,
    /// The source's position before an unconfirmed jump, and `gone_on` at that time.
    before_jump: Option<(Time, u64)>,
    /// The longest recent step.
    stride: Time,
    /// Number of believed fragments.
    order: u64,
    /// The `order` of the fragment with the highest time, the number of fragments that it overtook, and the highest
    /// time of those.
    top_order: u64,
    overtaken: u32,
    behind_top: Time,
    /// Number of times that continued.
    gone_on: u64,
    pub(super) notes: ArrayVec<Note, MOST_NOTES>,
    /// Number of fragments that came out of order and were put in order.
    pub(super) disordered: u64,
    /// Whether one of its fragments is in an event.
    pub(super) has_joined: bool,
    /// Whether numbering waits for it.
    pub(super) is_awaited: bool,
    /// Whether it has ended or takes no part.
    pub(super) has_left: bool,
    /// Whether its clock began anew while those of others did not.
    pub(super) is_anew: bool,
    /// Number of consecutive times that were behind its own times and given up.
    pub(super) behind: usize,
    /// Number of consecutive times that were behind the last numbered time of any source.
    pub(super) late: u32,
    /// The last event of which it was said to have no more fragments.
    pub(super) passed: u64,
}

impl Lane {
    /// Creates a lane with room for `most` fragments.
    pub(super) fn new(config: LaneConfig, most: usize) -> Self {
        Self {
            config,
            waiting: VecDeque::with_capacity(most),
            doubted: VecDeque::with_capacity(most),
            damaged: VecDeque::with_capacity(MOST_DOUBTED),
            given_up: VecDeque::with_capacity(most),
            top: None,
            before_jump: None,
            stride: 0,
            order: 0,
            top_order: 0,
            overtaken: 0,
            behind_top: 0,
            gone_on: 0,
            notes: ArrayVec::new(),
            disordered: 0,
            has_joined: false,
            is_awaited: true,
            has_left: false,
            is_anew: false,
            behind: 0,
            late: 0,
            passed: 0,
        }
    }

    /// Treats all held fragments as if they had just arrived.
    pub(super) fn restart_clocks(&mut self, now: Instant) {
        self.waiting.iter_mut().for_each(|one| one.came = now);
        self.doubted.iter_mut().for_each(|one| one.came = now);
        self.damaged.iter_mut().for_each(|one| one.came = now);
    }

    /// Returns the number of held fragments.
    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.doubted.len() + self.damaged.len() + self.given_up.len()
    }

    fn bits(&self) -> u32 {
        u32::from(self.config.bits.clamp(1, 64))
    }

    /// Returns the largest value of the field.
    pub(super) fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Returns the distance from one field value to another, the shorter way round.
    fn distance(&self, from: u64, to: u64) -> Time {
        let unused = 64 - self.bits();
        Time::from((to.wrapping_sub(from) << unused) as i64 >> unused)
    }

    /// Returns the time of a field value closest to another time.
    pub(super) fn unwrap(&self, raw: u64, near: Time) -> Time {
        near + self.distance(near as u64 & self.mask(), raw & self.mask())
    }

    /// Returns the most fragments that may come between a fragment and its place before one of them is considered
    /// wrong.
    fn limit(&self) -> u32 {
        u32::from(self.config.reorder).max(RESUMED)
    }

    /// Returns the longest plausible step.
    pub(super) fn plausible(&self) -> Time {
        let steps = PLAUSIBLE + 2 * Time::from(self.config.reorder);
        self.stride * steps
    }

    /// Returns how a time relates to the earlier ones, where all up to `floor` are numbered.
    pub(super) fn claim(&self, time: Time, top: Time, floor: Option<Time>) -> Claim {
        let is_step = |from: Time| time >= from && time - from <= self.plausible();
        if is_step(top) {
            return Claim::GoesOn;
        }
        if time > top {
            return Claim::Doubtful;
        }
        let is_fresh = |since: u64| self.gone_on - since <= MOST_DOUBTED as u64;
        if self.before_jump.is_some_and(|(from, since)| is_step(from) && is_fresh(since)) {
            return Claim::Resumes;
        }
        let above = self.waiting.len() - self.place_of(time);
        let is_near = above <= MOST_DOUBTED.max(self.limit() as usize) && top - time <= self.reach();
        let is_open = floor.is_some_and(|floor| time > floor);
        if is_near && is_open { Claim::Overtaken } else { Claim::Doubtful }
    }

    /// Returns how far back an overtaken time may lie.
    fn reach(&self) -> Time {
        self.plausible().max(1) * (1 + Time::from(self.limit()))
    }

    /// Whether a time is so close behind that it may have been overtaken by more fragments than the lane waits for.
    pub(super) fn is_late(&self, time: Time) -> bool {
        self.top.is_some_and(|top| time <= top && top - time <= self.reach())
    }

    /// Returns the place of a time among the waiting fragments, after equal times.
    fn place_of(&self, time: Time) -> usize {
        match self.waiting.back() {
            Some(last) if last.time > time => self.waiting.partition_point(|entry| entry.time <= time),
            _ => self.waiting.len(),
        }
    }

    /// Believes a fragment, and puts it at its place among the waiting ones.
    pub(super) fn believe(&mut self, now: Instant, time: Time, is_weak: bool, fragment: Received) {
        self.order += 1;
        let entry = Entry { time, is_weak, fragment, came: now, order: self.order };
        match self.top {
            Some(top) if time < top => {
                self.overtaken += 1;
                self.disordered += 1;
                self.behind_top = if self.overtaken == 1 { time } else { self.behind_top.max(time) };
                self.waiting.insert(self.place_of(time), entry);
                self.give_up_jump();
            }
            _ => {
                if self.top == Some(time) && self.overtaken > 0 {
                    self.replace_top();
                }
                if !is_weak || self.stride == 0 {
                    self.learn(self.top.map_or(0, |top| time - top));
                }
                self.set_top(time);
                self.gone_on += 1;
                self.waiting.push_back(entry);
            }
        }
        (self.behind, self.is_anew) = (0, false);
        self.is_awaited = !self.has_left;
    }

    /// Replaces the highest time if the fragment came before lower ones and now the right one arrives: the first one
    /// was wrong.
    fn replace_top(&mut self) {
        if let Some(entry) = self.waiting.pop_back_if(|entry| Some(entry.time) == self.top) {
            self.disordered -= u64::from(self.overtaken);
            self.drop(&entry.fragment, Cause::ImplausibleJump, Some(NumberingKind::WrongNumber));
        }
    }

    fn set_top(&mut self, time: Time) {
        (self.top, self.top_order, self.overtaken) = (Some(time), self.order, 0);
    }

    /// Learns from a believed step.
    fn learn(&mut self, step: Time) {
        self.stride = (self.stride - self.stride / DECAY).max(step);
    }

    /// Gives up the highest time if more fragments came behind it than may be overtaken. It was wrong, and so were the
    /// earlier ones that lie ahead.
    fn give_up_jump(&mut self) {
        if self.overtaken <= self.limit() {
            return;
        }
        self.disordered -= u64::from(self.overtaken);
        self.fall_back(self.behind_top);
    }

    /// Falls back to `time`: earlier fragments that lie ahead of it were wrong, and that includes the highest one.
    pub(super) fn fall_back(&mut self, time: Time) {
        let order = self.top_order;
        if let Some(top) = self.top.filter(|&top| self.waiting.back().is_none_or(|entry| entry.time < top)) {
            self.note(NumberingKind::WrongNumber, top as u64 & self.mask());
        }
        while let Some(entry) = self.waiting.pop_back_if(|entry| entry.time > time && entry.order <= order) {
            self.drop(&entry.fragment, Cause::ImplausibleJump, Some(NumberingKind::WrongNumber));
        }
        self.set_top(time);
        self.before_jump = None;
    }

    /// Believes a time far ahead of the source's position.
    pub(super) fn jump(&mut self, is_weak: bool) {
        self.before_jump = self.top.filter(|_| is_weak).map(|top| (top, self.gone_on));
    }

    /// Gives up a fragment for this cause, and notes the anomaly of its time.
    pub(super) fn drop(&mut self, fragment: &Received, cause: Cause, kind: Option<NumberingKind>) {
        let meta = FragmentMeta::missing(fragment.meta.source, cause);
        self.given_up.push_back(Received { meta, restarts: false, payload: Payload::default() });
        if let Some(kind) = kind {
            self.note(kind, fragment.meta.raw_id);
        }
    }

    /// Keeps a fragment whose time is no evidence.
    pub(super) fn keep_damaged(&mut self, now: Instant, fragment: Received) {
        if self.damaged.len() == MOST_DOUBTED {
            self.drop_damaged();
        }
        self.damaged.push_back(Damaged { fragment, came: now, order: self.order });
    }

    /// Gives up the oldest damaged fragment.
    pub(super) fn drop_damaged(&mut self) {
        let Some(Damaged { mut fragment, .. }) = self.damaged.pop_front() else { return };
        // The error itself is counted on arrival.
        let missing = FragmentMeta::missing(fragment.meta.source, Cause::BadChecksum);
        fragment.meta = FragmentMeta { flags: missing.flags.with(fragment.meta.flags), ..missing };
        self.given_up.push_back(fragment);
    }

    /// Takes the damaged fragment with this time.
    pub(super) fn take_damaged(&mut self, time: Time) -> Option<Received> {
        let is_of = |one: &Damaged| (one.fragment.meta.raw_id ^ time as u64) & self.mask() == 0;
        let place = self.damaged.iter().position(is_of)?;
        self.damaged.remove(place).map(|one| one.fragment)
    }

    /// Takes the first waiting fragment. Damaged fragments that came before it no longer have a place.
    pub(super) fn take_first(&mut self) -> Option<Received> {
        let entry = self.waiting.pop_front()?;
        while self.damaged.front().is_some_and(|one| one.order < entry.order) {
            self.drop_damaged();
        }
        Some(entry.fragment)
    }

    /// Notes an anomaly, with the number that showed it.
    pub(super) fn note(&mut self, kind: NumberingKind, to: u64) {
        let from = self.top.map_or(0, |top| top as u64 & self.mask());
        // More notes than this cannot be reported.
        _ = self.notes.try_push(Note { kind, from, to });
    }

    /// Doubts a fragment, whose time other fragments must decide.
    pub(super) fn doubt(&mut self, now: Instant, fragment: Received) {
        self.doubted.push_back(Doubted { fragment, came: now, gone_on: self.gone_on });
    }

    /// Returns the first doubted fragment if the old times have continued for long enough to disprove it; with
    /// `at_once`, if they have continued at all.
    pub(super) fn next_disproved(&mut self, at_once: bool) -> Option<Doubted> {
        let limit = if at_once { 0 } else { u64::from(self.limit()) };
        let gone_on = self.gone_on;
        let disproved = self.doubted.front().filter(|one| one.gone_on + limit < gone_on).is_some();
        if disproved { self.doubted.pop_front() } else { None }
    }

    /// Restarts the judgement of the doubted times: nothing has disproved them yet.
    pub(super) fn look_again(&mut self) {
        self.doubted.iter_mut().for_each(|one| one.gone_on = u64::MAX >> 1);
    }

    /// Returns when the present doubt began.
    pub(super) fn doubted_since(&self) -> Option<Instant> {
        self.doubted.front().map(|one| one.came)
    }

    /// Whether the latest doubted time lies behind the source's own times.
    pub(super) fn is_off(&self) -> bool {
        let (Some(top), Some(last)) = (self.top, self.doubted.back()) else { return false };
        last.gone_on == self.gone_on && self.unwrap(last.fragment.meta.raw_id, top) < top
    }

    /// Whether the source is awaited but shows nothing, where `lowest` is the lowest time.
    pub(super) fn is_silent(&self, lowest: Time) -> bool {
        let speaks = |entry: &Entry| entry.time == lowest || !entry.is_weak;
        self.is_awaited && !self.waiting.front().is_some_and(speaks)
    }

    /// Whether its times do not contradict a new beginning: they are behind, or there are none.
    pub(super) fn may_begin_anew(&self) -> bool {
        let has_nothing = self.waiting.is_empty() && self.doubted.is_empty() && !self.is_awaited;
        let is_starting = self.top.is_none() && !self.doubted.is_empty();
        self.has_left || self.is_anew || self.is_off() || self.late > 1 || is_starting || has_nothing
    }

    /// Whether no fragment can arrive any more that was overtaken by the first waiting one. If one still can, the error
    /// is the time at which that wait ends.
    pub(super) fn is_in_order(&self, now: Instant) -> Result<(), Instant> {
        let Some(first) = self.waiting.front() else { return Ok(()) };
        if first.is_weak && !self.has_joined && !self.doubted.is_empty() {
            // The fragment may be a left-over of an earlier run.
            return Err(Instant::FAR_FUTURE);
        }
        let until = first.came.after(self.config.reorder_timeout);
        let is_sure = self.has_left || self.waiting.len() > usize::from(self.config.reorder);
        if is_sure || now >= until { Ok(()) } else { Err(until) }
    }

    /// Returns the usual step between doubted fragments: one of the shorter ones, since a wrong number makes two long
    /// steps.
    fn scale(&self) -> Time {
        let mut steps = ArrayVec::<u64, MOST_DOUBTED>::new();
        let from = self.doubted.len().saturating_sub(MOST_DOUBTED + 1);
        let raw = |one: &Doubted| one.fragment.meta.raw_id;
        let pairs = self.doubted.iter().skip(from).zip(self.doubted.iter().skip(from + 1));
        steps.extend(pairs.map(|(one, next)| raw(next).wrapping_sub(raw(one)) & self.mask()).filter(|&step| step > 0));
        steps.sort_unstable();
        steps.get(steps.len().saturating_sub(1) / 4).map_or(0, |&step| Time::from(step))
    }

    /// Returns how far apart two doubted fragments may be to belong together.
    fn together(&self) -> Time {
        let usual = if self.stride > 0 { self.stride.min(self.scale().max(1)) } else { self.scale() };
        TOGETHER * usual
    }

    /// Returns the start and length of a chain of doubted fragments that lie close together, with the fragments in
    /// front of them that rise to it. It is the last chain that is long enough for a proof or, if the source begins,
    /// the first. If none is long enough, it is the last ones that rise.
    pub(super) fn chain(&self) -> Option<(usize, usize)> {
        let together = self.together();
        let raw = |place: usize| self.doubted[place].fragment.meta.raw_id;
        let chain_to = |end: usize| {
            let (mut first, mut length) = (end, 1);
            for place in (0..end).rev() {
                if self.distance(raw(place), raw(first)).abs() <= together {
                    (first, length) = (place, length + 1);
                }
            }
            (first, length)
        };
        let last = self.doubted.len().checked_sub(1)?;
        let mut chains =
            (last.saturating_sub(MOST_DOUBTED)..=last).rev().map(chain_to).filter(|chain| chain.1 >= PROOF);
        let found = if self.top.is_none() { chains.min_by_key(|chain| chain.0) } else { chains.next() };
        let rises = |&place: &usize| self.distance(raw(place), raw(place + 1)) >= 0;
        let risen = |from: usize| (0..from).rev().take_while(rises).last().unwrap_or(from);
        match found {
            Some((first, length)) if self.top.is_none() => Some((risen(first), length)),
            Some((mut first, mut length)) => {
                // Several jumps ahead, such as those of a counter of seconds, with enough fragments for a proof between
                // them.
                let is_ahead = |place: usize| self.top.is_none_or(|top| self.unwrap(raw(place), top) > top);
                while let Some(end) = first.checked_sub(1).filter(|&end| is_ahead(first) && rises(&end)) {
                    let (before, count) = chain_to(end);
                    if count < PROOF || !is_ahead(before) {
                        break;
                    }
                    (first, length) = (before, count);
                }
                Some((first, length))
            }
            None => Some((risen(last), 1)),
        }
    }

    /// Returns the first of the doubted fragments that lead up to a believed one, and its time.
    pub(super) fn before(&self, place: usize, time: Time) -> (usize, Time) {
        let together = self.together();
        let raw = |place: usize| self.doubted[place].fragment.meta.raw_id;
        let (mut first, mut begin) = (place, time);
        for before in (0..place).rev() {
            let step = self.distance(raw(before), raw(first));
            if step > 0 && step <= together && self.top.is_none_or(|top| time <= top || begin - step > top) {
                (first, begin) = (before, begin - step);
            }
        }
        (first, begin)
    }

    /// Learns the usual step from the doubted fragments if none is known and there are enough of them.
    pub(super) fn learn_scale(&mut self) {
        let scale = self.scale();
        if self.stride == 0 && self.doubted.len() >= PROOF && scale <= Time::from(self.mask() >> 2) {
            self.stride = TOGETHER / 2 * scale;
        }
    }

    /// Forgets the source's position: it joins the others, or begins anew.
    pub(super) fn forget(&mut self) {
        (self.top, self.before_jump, self.is_anew) = (None, None, false);
        (self.behind, self.late, self.overtaken) = (0, 0, 0);
    }
}
