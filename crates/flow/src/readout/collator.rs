//! Gives consecutive numbers to events whose own numbers only grow, such as pulse times.
//!
//! ```text
//!  source 1:  70 90     100 --+
//!  source 2:  70    95      --+--> the lowest time, once every source has shown one as high, or was silent for too long
//!                                  70 -> 1, 90 -> 2 (without source 2), 95 -> 3 (without source 1), then 100 waits
//! ```
//! The collator waits for a source that is behind, so that the source does not deliver out of order. A fragment that
//! arrives after higher times were numbered is late. Each source's [`Lane`] decides which times to believe, together
//! with what the other sources show: a time that equals one of theirs is right. A source that falls back behind its own
//! times for good has begun anew. It is out of sync, and events do not wait for it, until it returns to its old times
//! or all connected sources restart.

use super::doubt::is_unreliable;
use super::lane::{Claim, Doubted, Lane, LaneConfig, MOST_DOUBTED, PROOF, Time};
use crate::messages::{NumberingKind, Received};
use core::time::Duration;
use ropewalk_terms::{Cause, Instant};
use std::collections::VecDeque;

/// The longest doubt, whatever the time-out.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// Distance between the times of one beginning and those of the next: more than any field can show, and a multiple of
/// its range.
const MARGIN: Time = 1 << 66;

/// Number of recently numbered times that are kept to recognise lagging fragments.
const MOST_RECENT: usize = 64;

/// The event that was numbered last.
#[derive(Copy, Clone, Debug)]
struct Last {
    time: Time,
    /// The time before, unless it precedes a new beginning of all sources.
    before: Option<Time>,
    /// The only source that has shown the time, if there is one.
    only: Option<usize>,
    /// Whether the time is believed for lack of other evidence.
    is_weak: bool,
}

/// Numbers the events of several sources together, as in the module's diagram.
#[derive(Debug)]
pub(super) struct Collator {
    lanes: Vec<Lane>,
    /// `None` before the first event, and after all sources began anew.
    last: Option<Last>,
    recent: VecDeque<Time>,
    /// The number given last.
    given: u64,
    /// The lowest time of a new beginning.
    origin: Time,
    /// When the lowest number began to wait.
    since: Option<Instant>,
    /// Until when the lowest number waits for fragments that it may have overtaken.
    in_order_at: Option<Instant>,
    /// When silence became the only evidence against a new beginning.
    adrift_since: Option<Instant>,
    most: usize,
    timeout: Duration,
}

impl Collator {
    /// Creates a collator for these sources, each with up to `most` fragments held at once. A source that shows nothing
    /// for `timeout` is no longer waited for.
    pub(super) fn new(lanes: impl IntoIterator<Item = LaneConfig>, most: usize, timeout: Duration) -> Self {
        Self {
            lanes: lanes.into_iter().map(|config| Lane::new(config, most)).collect(),
            last: None,
            recent: VecDeque::with_capacity(MOST_RECENT),
            given: 0,
            origin: 0,
            since: None,
            in_order_at: None,
            adrift_since: None,
            most,
            timeout,
        }
    }

    /// Sets how long a source may show nothing before it is no longer waited for.
    pub(super) const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Restarts all time-outs.
    pub(super) fn restart_clocks(&mut self, now: Instant) {
        self.since = self.since.and(Some(now));
        self.adrift_since = self.adrift_since.and(Some(now));
        self.lanes.iter_mut().for_each(|one| one.restart_clocks(now));
    }

    /// Returns how many more fragments of a source are accepted now; 0 means that it must not be read further.
    pub(super) fn room(&self, lane: usize) -> usize {
        let lane = &self.lanes[lane];
        let is_undecided = lane.doubted.len() >= MOST_DOUBTED;
        if is_undecided { 0 } else { self.most.saturating_sub(lane.held()) }
    }

    /// Takes fragments of a source in their order of arrival, with the source's own numbers. Leaves `fragments` empty.
    pub(super) fn push(&mut self, now: Instant, lane: usize, fragments: &mut Vec<Received>) {
        let one = &mut self.lanes[lane];
        one.is_awaited |= !fragments.is_empty() && !one.is_anew;
        one.has_left &= fragments.is_empty();
        for fragment in fragments.drain(..) {
            if fragment.meta.missing_cause().is_some() {
                self.lanes[lane].given_up.push_back(fragment);
            } else if is_unreliable(&fragment) {
                self.lanes[lane].keep_damaged(now, fragment);
            } else {
                self.take_in(now, lane, fragment);
            }
        }
        self.weigh(now);
    }

    /// Handles a source that has ended or disconnected: it is not waited for until it sends something.
    pub(super) fn leave(&mut self, now: Instant, lane: usize) {
        let one = &mut self.lanes[lane];
        (one.is_awaited, one.has_left) = (false, true);
        self.weigh(now);
    }

    /// Takes a fragment with its time.
    fn take_in(&mut self, now: Instant, lane: usize, fragment: Received) {
        let floor = self.floor(lane);
        let one = &self.lanes[lane];
        let raw = fragment.meta.raw_id;
        let Some(top) = one.top else {
            return self.lanes[lane].doubt(now, fragment);
        };
        let time = one.unwrap(raw, top);
        let claim = match one.claim(time, top, floor) {
            // Times that are already in doubt may lead up to this one.
            Claim::Doubtful if time > top && one.doubted.is_empty() && self.shown(lane, raw) == Some(time) => {
                Claim::GoesOn
            }
            Claim::Doubtful if time < top && self.is_awaited(lane, raw, time) => Claim::Overtaken,
            claim => claim,
        };
        let one = &mut self.lanes[lane];
        match claim {
            Claim::GoesOn => one.believe(now, time, false, fragment),
            _ if one.is_anew => self.take_astray(now, lane, fragment),
            Claim::Overtaken => one.believe(now, time, false, fragment),
            Claim::Resumes => {
                one.fall_back(time);
                one.believe(now, time, false, fragment);
            }
            Claim::Doubtful => one.doubt(now, fragment),
        }
        // Little evidence is enough when there is no room for more.
        let is_full = self.lanes[lane].doubted.len() >= MOST_DOUBTED;
        self.drop_disproved(lane, is_full);
    }

    /// Takes a fragment of a source that began anew while others did not.
    fn take_astray(&mut self, now: Instant, lane: usize, fragment: Received) {
        if self.begins_anew(now) {
            self.begin_anew();
            self.lanes[lane].doubt(now, fragment);
        } else {
            self.lanes[lane].drop(&fragment, Cause::OutOfSync, None);
        }
    }

    /// Returns the time up to which everything is numbered, as far as a source can tell.
    fn floor(&self, lane: usize) -> Option<Time> {
        let Some(last) = self.last else { return Some(Time::MIN) };
        if last.only.is_some_and(|only| only == lane || last.is_weak) { last.before } else { Some(last.time) }
    }

    /// Returns the time that a source's number means, if another source has shown it or has just come as far.
    fn shown(&self, lane: usize, raw: u64) -> Option<Time> {
        let own = &self.lanes[lane];
        let others = self.lanes.iter().enumerate().filter(|&(other, _)| other != lane);
        let mut found = others.filter_map(|(_, other)| {
            let time = own.unwrap(raw, other.top?);
            other.waiting.binary_search_by_key(&time, |entry| entry.time).is_ok().then_some(time)
        });
        found.next().or_else(|| self.numbered(lane, raw)).or_else(|| {
            let extent = self.lanes.iter().filter_map(|one| one.top).max()?;
            let time = own.unwrap(raw, extent);
            if own.top.is_some_and(|top| time <= top) {
                return None;
            }
            ((time - extent).abs() <= own.plausible()).then_some(time)
        })
    }

    /// Whether a source may have a fragment with this time, which is not numbered yet and which another source has
    /// shown.
    fn is_awaited(&self, lane: usize, raw: u64, time: Time) -> bool {
        self.floor(lane).is_some_and(|floor| time > floor) && self.shown(lane, raw) == Some(time)
    }

    /// Returns the time of a number whose event was numbered recently.
    fn numbered(&self, lane: usize, raw: u64) -> Option<Time> {
        let time = self.lanes[lane].unwrap(raw, self.last?.time);
        self.recent.contains(&time).then_some(time)
    }

    /// Returns the time of a doubted number that another source shows and doubts as well. Both sources are ahead of
    /// their earlier times, or are joining the others.
    fn shared(&self, lane: usize, raw: u64) -> Option<Time> {
        let own = &self.lanes[lane];
        let ahead = |one: &Lane| match one.top {
            Some(top) => Some(one.unwrap(raw, top)).filter(|&time| time > top).map(Some),
            None => Some(None),
        };
        let mut time = ahead(own)?;
        let is_same = |other: &Lane| {
            let mask = own.mask() & other.mask();
            other.doubted.iter().any(|one| (one.fragment.meta.raw_id ^ raw) & mask == 0)
        };
        let others = self.lanes.iter().enumerate().filter(|&(other, one)| other != lane && is_same(one));
        let theirs = others.filter_map(|(_, other)| ahead(other)).next()?;
        time = time.or(theirs);
        Some(time.unwrap_or_else(|| self.first_time(lane, raw)))
    }

    /// Returns the time of a source's first number since all sources began.
    fn first_time(&self, lane: usize, raw: u64) -> Time {
        let near = self.lanes.iter().find_map(|one| one.top);
        near.map_or(self.origin + Time::from(raw & self.lanes[lane].mask()), |near| self.lanes[lane].unwrap(raw, near))
    }

    /// Returns the first doubted number of a source that others confirm, and its time. If the source is joining the
    /// others, enough numbers must follow to judge those in front, unless `is_over`. A single number behind the
    /// source's own times may have been sent twice.
    fn borne_out(&self, lane: usize, is_over: bool) -> Option<(usize, Time)> {
        let own = &self.lanes[lane];
        let mut behind = None;
        for (place, one) in own.doubted.iter().enumerate() {
            let raw = one.fragment.meta.raw_id;
            let Some(time) = self.shown(lane, raw).or_else(|| self.shared(lane, raw)) else { continue };
            match own.top {
                None if place > 0 && own.doubted.len() < place + 2 && !is_over => return None,
                Some(top) if time <= top => match behind {
                    _ if !own.is_off() => {}
                    Some((_, before)) if before < time => return behind,
                    _ => behind = Some((place, time)),
                },
                _ => return Some((place, time)),
            }
        }
        behind.filter(|_| is_over && own.waiting.is_empty())
    }

    /// Decides the numbers in doubt, as far as the present evidence allows.
    fn weigh(&mut self, now: Instant) {
        if self.adrift_since.is_some() && self.begins_anew(now) {
            self.begin_anew();
        }
        if self.lanes.iter().all(|one| one.doubted.is_empty()) {
            return;
        }
        let mut goes_on = true;
        while core::mem::take(&mut goes_on) {
            for lane in 0..self.lanes.len() {
                if !self.lanes[lane].doubted.is_empty()
                    && let Some((place, time)) = self.borne_out(lane, false)
                {
                    self.accept(now, lane, place, time, false);
                    goes_on = true;
                }
            }
            if !goes_on && self.is_shared_behind() && self.begins_anew(now) {
                self.begin_anew();
                goes_on = true;
            }
        }
        for lane in 0..self.lanes.len() {
            while self.is_due(now, lane) && self.decide(now, lane) {}
        }
    }

    /// Whether sources have fallen back behind their own times with the same numbers, and these were not numbered just
    /// now.
    fn is_shared_behind(&self) -> bool {
        let off = || self.lanes.iter().enumerate().filter(|(_, one)| one.is_off());
        off().any(|(lane, one)| {
            let raws = one.doubted.iter().map(|one| one.fragment.meta.raw_id);
            let mut raws = raws.filter(|&raw| self.numbered(lane, raw).is_none());
            raws.any(|raw| {
                off().any(|(other, two)| other != lane && two.doubted.iter().any(|two| two.fragment.meta.raw_id == raw))
            })
        })
    }

    /// Whether a source's doubted numbers must be decided now.
    fn is_due(&self, now: Instant, lane: usize) -> bool {
        let own = &self.lanes[lane];
        let Some(since) = own.doubted_since() else { return false };
        let mut others = self.lanes.iter().enumerate().filter(|&(other, _)| other != lane);
        let mut is_alone = || others.all(|(_, other)| other.has_left);
        // The source may still begin anew while other sources are awaited that may do so, too.
        let is_over = self.adrift_since.is_none() && now >= since.after(self.patience());
        own.has_left || is_over || own.doubted.len() >= MOST_DOUBTED && is_alone()
    }

    fn patience(&self) -> Duration {
        (self.timeout / 2).min(LONGEST_DOUBT)
    }

    /// Decides a source's doubted numbers with the present evidence. Returns whether there may be more to decide.
    fn decide(&mut self, now: Instant, lane: usize) -> bool {
        if let Some((place, time)) = self.borne_out(lane, true) {
            self.accept(now, lane, place, time, false);
            return true;
        }
        self.drop_disproved(lane, true);
        let own = &self.lanes[lane];
        let Some((place, length)) = own.chain() else { return false };
        let raw = own.doubted[place].fragment.meta.raw_id;
        let Some(top) = own.top else {
            let time = self.first_time(lane, raw);
            self.accept(now, lane, place, time, true);
            return true;
        };
        let time = own.unwrap(raw, top);
        if time > top {
            self.accept(now, lane, place, time, true);
            return true;
        }
        let own = &mut self.lanes[lane];
        if !own.has_joined {
            // Before its first event a source may send left-overs of an earlier run.
            self.start_over(lane);
            return true;
        }
        own.behind += own.doubted.len();
        if length < PROOF && own.behind < PROOF {
            while let Some(one) = self.lanes[lane].doubted.pop_front() {
                self.disprove(lane, one);
            }
            return false;
        }
        (own.is_anew, own.is_awaited) = (true, false);
        if self.begins_anew(now) {
            self.begin_anew();
            return true;
        }
        let own = &mut self.lanes[lane];
        if let Some(first) = own.doubted.front().map(|one| one.fragment.meta.raw_id) {
            own.note(NumberingKind::Restart, first);
            own.note(NumberingKind::OutOfSync, first);
        }
        while let Some(one) = own.doubted.pop_front() {
            own.drop(&one.fragment, Cause::OutOfSync, None);
        }
        false
    }

    /// Accepts the doubted numbers of a source from this place on, with this time, and those that lead up to it. The
    /// later ones are judged again.
    fn accept(&mut self, now: Instant, lane: usize, place: usize, time: Time, is_weak: bool) {
        let (place, time) = self.lanes[lane].before(place, time);
        self.lanes[lane].learn_scale();
        for _ in 0..place {
            if let Some(one) = self.lanes[lane].doubted.pop_front() {
                self.disprove(lane, one);
            }
        }
        let one = &mut self.lanes[lane];
        let Some(first) = one.doubted.pop_front() else { return };
        match one.top {
            Some(top) if time < top => one.fall_back(time),
            _ => one.jump(is_weak),
        }
        one.believe(now, time, is_weak, first.fragment);
        one.look_again();
        for _ in 0..one.doubted.len() {
            if let Some(next) = self.lanes[lane].doubted.pop_front() {
                self.take_in(next.came, lane, next.fragment);
            }
        }
    }

    /// Drops a source's numbers that the following ones have disproved.
    fn drop_disproved(&mut self, lane: usize, at_once: bool) {
        while let Some(one) = self.lanes[lane].next_disproved(at_once) {
            self.disprove(lane, one);
        }
    }

    /// Gives up a fragment whose number is wrong or too late, unless the others have only just passed its place.
    fn disprove(&mut self, lane: usize, one: Doubted) {
        let floor = self.floor(lane);
        let own = &self.lanes[lane];
        let Doubted { fragment, came, .. } = one;
        if let Some(top) = own.top {
            let time = own.unwrap(fragment.meta.raw_id, top);
            let is_overtaken = own.claim(time, top, floor) == Claim::Overtaken;
            if is_overtaken || time < top && self.is_awaited(lane, fragment.meta.raw_id, time) {
                return self.lanes[lane].believe(came, time, false, fragment);
            }
            if own.is_late(time) {
                return self.lanes[lane].drop(&fragment, Cause::Late, None);
            }
        }
        let own = &mut self.lanes[lane];
        let kind = if own.has_joined { NumberingKind::WrongNumber } else { NumberingKind::LeftOver };
        own.drop(&fragment, Cause::ImplausibleJump, Some(kind));
    }

    /// Treats the source's numbers so far as those of an earlier run, and the doubted ones as those of this run.
    fn start_over(&mut self, lane: usize) {
        let own = &mut self.lanes[lane];
        while let Some(entry) = own.waiting.pop_front() {
            own.drop(&entry.fragment, Cause::ImplausibleJump, Some(NumberingKind::LeftOver));
        }
        own.forget();
    }

    /// Returns the next fragment, with its event's number from 1 on, and its lane. Returns `None` if something must be
    /// waited for, or if the source whose turn it is has no room (`has_room`).
    pub(super) fn next(&mut self, now: Instant, has_room: impl Fn(usize) -> bool) -> Option<(usize, Received)> {
        self.in_order_at = None;
        self.weigh(now);
        loop {
            let damaged = self.take_damaged(now, &has_room);
            if damaged.is_some() {
                return damaged;
            }
            // Fragments that were given up have no number.
            let given_up = self.lanes.iter().position(|one| !one.given_up.is_empty());
            if let Some(lane) = given_up.filter(|&lane| has_room(lane)) {
                return self.lanes[lane].given_up.pop_front().map(|fragment| (lane, fragment));
            }
            let Some((lane, time)) = self.lowest() else {
                if self.drop_damaged_of_ended() {
                    continue;
                }
                return None;
            };
            if !has_room(lane) {
                // If the source whose turn it is must wait itself, the silence of others does not count.
                self.since = None;
                return None;
            }
            match self.last {
                Some(last) if time == last.time => return self.take_same(lane, last),
                Some(last) if time < last.time && self.floor(lane).is_none_or(|floor| time <= floor) => {
                    let own = &mut self.lanes[lane];
                    own.late = own.late.saturating_add(1);
                    if let Some(entry) = own.waiting.pop_front() {
                        own.drop(&entry.fragment, Cause::Late, None);
                    }
                }
                last => {
                    if !self.may_number(now, time) {
                        return None;
                    }
                    self.number(lane, time, last);
                    return self.take(lane);
                }
            }
        }
    }

    /// Returns a damaged fragment of the event that was numbered last; gives up damaged fragments that no other source
    /// has confirmed in time.
    fn take_damaged(&mut self, now: Instant, has_room: impl Fn(usize) -> bool) -> Option<(usize, Received)> {
        let patience = self.patience();
        for lane in 0..self.lanes.len() {
            let own = &mut self.lanes[lane];
            if own.damaged.is_empty() {
                continue;
            }
            let time = self.last.filter(|_| own.passed < self.given).map(|last| last.time);
            if let Some(mut fragment) = time.filter(|_| has_room(lane)).and_then(|time| own.take_damaged(time)) {
                fragment.meta.raw_id = self.given;
                return Some((lane, fragment));
            }
            while own.damaged.front().is_some_and(|one| now >= one.came.after(patience)) {
                own.drop_damaged();
            }
        }
        None
    }

    /// Gives up what ended sources held when nothing is left that could confirm it. Returns whether they held any.
    fn drop_damaged_of_ended(&mut self) -> bool {
        let ended = self.lanes.iter_mut().filter(|one| one.has_left && !one.damaged.is_empty());
        ended
            .map(|one| {
                while !one.damaged.is_empty() {
                    one.drop_damaged()
                }
            })
            .count()
            > 0
    }

    /// Numbers the next event, which has this time and is shown by the source of `lane`.
    fn number(&mut self, lane: usize, time: Time, last: Option<Last>) {
        let before = last.map(|last| if time > last.time { last.time } else { last.before.unwrap_or(time) });
        let is_weak = self.lanes[lane].waiting.front().is_some_and(|entry| entry.is_weak);
        self.last = Some(Last { time, before, only: Some(lane), is_weak });
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(time);
        self.since = None;
        self.given += 1;
    }

    /// Returns a fragment of the event that was numbered last.
    fn take_same(&mut self, lane: usize, last: Last) -> Option<(usize, Received)> {
        self.adrift_since = None;
        // What the source had shown before was a jump.
        if self.lanes[lane].passed >= self.given {
            let own = &mut self.lanes[lane];
            let entry = own.waiting.pop_front()?;
            own.drop(&entry.fragment, Cause::Late, None);
            return own.given_up.pop_front().map(|fragment| (lane, fragment));
        }
        let only = last.only.filter(|&only| only == lane);
        self.last = Some(Last { only, ..last });
        self.take(lane)
    }

    /// Whether some source has begun anew and all other sources present are behind, too. Their numbers then belong
    /// together again.
    fn begins_anew(&mut self, now: Instant) -> bool {
        let is_silent = |one: &Lane| one.is_awaited && one.waiting.is_empty() && one.doubted.is_empty();
        let may_begin = self.lanes.iter().all(|one| one.may_begin_anew() || is_silent(one));
        let is_shown = self.lanes.iter().any(|one| one.is_anew) || self.is_shared_behind();
        if !may_begin || !is_shown {
            self.adrift_since = None;
            return false;
        }
        let since = *self.adrift_since.get_or_insert(now);
        now >= since.after(self.timeout) || self.lanes.iter().all(Lane::may_begin_anew)
    }

    /// Begins anew with all sources: their new times follow all earlier ones.
    fn begin_anew(&mut self) {
        let highest = self.lanes.iter().filter_map(|one| one.top).max();
        let highest = highest.unwrap_or(0).max(self.last.map_or(0, |last| last.time));
        self.origin = (highest / MARGIN + 1) * MARGIN;
        self.adrift_since = None;
        for lane in 0..self.lanes.len() {
            // Numbers that no other source confirms belong to an earlier run.
            if self.given == 0 && self.lanes[lane].waiting.front().is_some_and(|entry| entry.is_weak) {
                self.start_over(lane);
            }
            let own = &mut self.lanes[lane];
            let first = own.doubted.front().map(|one| one.fragment.meta.raw_id);
            if let (true, Some(to)) = (own.is_off() && own.has_joined, first) {
                own.note(NumberingKind::Restart, to);
            }
            // A source that was silent is not waited for until it sends something.
            own.is_awaited = !own.has_left && (own.is_anew || own.late > 1 || own.held() > 0);
            own.forget();
        }
    }

    /// Returns the source with the lowest time, and that time.
    fn lowest(&self) -> Option<(usize, Time)> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(lane, one)| Some((lane, one.waiting.front()?.time)));
        fronts.min_by_key(|(_, time)| *time)
    }

    /// Whether no source can still show a time lower than `time`, the lowest one held.
    fn may_number(&mut self, now: Instant, time: Time) -> bool {
        self.in_order_at = self.lanes.iter().filter_map(|one| one.is_in_order(now).err()).min();
        if self.in_order_at.is_some() {
            return false;
        }
        if !self.lanes.iter().any(|one| one.is_silent(time)) {
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if now < since.after(self.timeout) {
            return false;
        }
        self.lanes.iter_mut().filter(|one| one.is_silent(time)).for_each(|one| one.is_awaited = false);
        true
    }

    /// Takes the source's first waiting fragment into the event that was numbered last.
    fn take(&mut self, lane: usize) -> Option<(usize, Received)> {
        let own = &mut self.lanes[lane];
        let mut fragment = own.take_first()?;
        (own.has_joined, own.late) = (true, 0);
        fragment.meta.raw_id = self.given;
        Some((lane, fragment))
    }

    /// Returns the last event for which a source has no more fragments, judging by its next fragment; `None` if that
    /// shows nothing. The fragment's time is believed.
    pub(super) fn passed_by(&mut self, now: Instant, lane: usize) -> Option<u64> {
        let (own, last) = (&mut self.lanes[lane], self.last?.time);
        let first = own.waiting.front().filter(|entry| !entry.is_weak && entry.time >= last)?;
        let passed = self.given - u64::from(first.time == last);
        if own.is_in_order(now).is_err() {
            return None;
        }
        own.passed = passed;
        Some(passed)
    }

    /// Returns when [`Collator::next`] must be called again even without input.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let silent = self.since.map(|since| since.after(self.timeout));
        let adrift = self.adrift_since.map(|since| since.after(self.timeout));
        let doubted = self.lanes.iter().filter_map(Lane::doubted_since).min().filter(|_| adrift.is_none());
        let doubted = doubted.map(|since| since.after(self.patience()));
        let damaged = self.lanes.iter().filter_map(|one| one.damaged.front()).map(|one| one.came).min();
        let damaged = damaged.map(|came| came.after(self.patience()));
        [silent, adrift, doubted, damaged, self.in_order_at].into_iter().flatten().min()
    }

    /// Takes the notes of a source's numbering anomalies. Returns how many of its fragments came out of order.
    pub(super) fn take_notes(&mut self, lane: usize, mut note: impl FnMut(NumberingKind, u64, u64)) -> u64 {
        let own = &mut self.lanes[lane];
        own.notes.drain(..).for_each(|one| note(one.kind, one.from, one.to));
        own.disordered
    }

    /// Returns the number of a source's fragments held here.
    pub(super) fn held_of(&self, lane: usize) -> usize {
        self.lanes[lane].held()
    }

    /// Drops a source's fragments. Returns how many there were.
    pub(super) fn clear(&mut self, lane: usize) -> usize {
        let own = &mut self.lanes[lane];
        let held = own.held();
        own.waiting.clear();
        own.doubted.clear();
        own.damaged.clear();
        own.given_up.clear();
        held
    }
}
