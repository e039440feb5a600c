//! Gives consecutive numbers to events whose own numbers only grow: the times of pulses, say.
//!
//! ```text
//!  source 1:  70 90     100 --+
//!  source 2:  70    95      --+--> the lowest number, once every source has shown one as high, or was silent for too long
//!                                  70 -> 1, 90 -> 2 (without source 2), 95 -> 3 (without source 1), then 100 waits
//! ```
//! Whoever is behind is waited for, so that nothing is out of order behind it; a fragment that comes after all, when higher
//! numbers were given already, is late. A source that goes back behind itself, and goes on from there, has begun anew: it is out
//! of sync and nobody waits for it, until it is where it was, or all that are there are behind. A number ahead from which its source
//! goes back to where it was is implausible.

use crate::messages::{FragmentMeta, Received};
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Instant};
use std::collections::VecDeque;

/// No number waits for others longer than so many time-outs: they may fall silent one after the other.
const LONGEST_WAIT: u32 = 3;

/// One source.
#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Received>,
    /// Numbers wait for it.
    is_awaited: bool,
    /// It is done, or takes no part.
    has_left: bool,
    /// The highest of its numbers.
    furthest: u64,
    /// How many of its numbers, the last ones, were behind that.
    behind: u32,
    /// How many of them were behind what was numbered last, of whichever source.
    late: u32,
    /// It was said to have nothing more of the events up to this one.
    passed: u64,
    /// Since when the first one that waits has been in doubt.
    doubted_since: Option<Instant>,
}

impl Lane {
    fn new(most: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(most),
            is_awaited: true,
            has_left: false,
            furthest: 0,
            behind: 0,
            late: 0,
            passed: 0,
            doubted_since: None,
        }
    }

    /// Its next number is this one, where `last` was numbered last.
    fn show(&mut self, number: u64, last: u64) {
        self.behind = if number < self.furthest { self.behind.saturating_add(1) } else { 0 };
        self.late = if number < last { self.late.saturating_add(1) } else { 0 };
        self.furthest = self.furthest.max(number);
        self.is_awaited = !self.has_left && !self.is_anew();
    }

    /// One number may have been overtaken on its way.
    const fn is_anew(&self) -> bool {
        self.behind > 1
    }

    /// Whether it says nothing although it is awaited.
    fn is_silent(&self) -> bool {
        self.is_awaited && self.waiting.is_empty()
    }

    /// Whether its numbers tell nothing against a new beginning: they are behind, or there are none.
    fn may_begin_anew(&self) -> bool {
        self.has_left || self.is_anew() || self.late > 1 || self.waiting.is_empty() && !self.is_awaited
    }

    /// Whether the first one that waits is far ahead by mistake: the two behind it go on from where the source was, or have been
    /// lower for longer than the first one can wait for others.
    fn has_jumped(&mut self, now: Instant, timeout: Duration) -> bool {
        let has_number = |one: &&Received| one.meta.missing_cause().is_none();
        let mut numbers = self.waiting.iter().filter(has_number).map(|one| one.meta.raw_id);
        let (Some(first), Some(next), Some(third)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        if next.max(third) >= first {
            return false;
        }
        let since = *self.doubted_since.get_or_insert(now);
        self.furthest < next.min(third) || now >= since.after(timeout * LONGEST_WAIT)
    }

    fn pop(&mut self) -> Option<Received> {
        self.doubted_since = None;
        self.waiting.pop_front()
    }
}

/// Numbers the events of several sources together: see the module's picture.
#[derive(Debug)]
pub(super) struct Collator {
    lanes: Vec<Lane>,
    /// The source's number that was given a number last; none where no one was since all began, or began anew.
    last: Option<u64>,
    /// The number that was given last.
    given: u64,
    /// Since when the lowest number waits.
    since: Option<Instant>,
    /// Since when nothing but silence is against a new beginning.
    adrift_since: Option<Instant>,
    most: usize,
    timeout: Duration,
}

impl Collator {
    /// For so many sources, each with `most` fragments here at once; who has nothing for so long is not waited for.
    pub(super) fn new(sources: usize, most: usize, timeout: Duration) -> Self {
        let lanes = core::iter::repeat_with(|| Lane::new(most)).take(sources).collect();
        Self { lanes, last: None, given: 0, since: None, adrift_since: None, most, timeout }
    }

    /// Who has nothing for so long is not waited for.
    pub(super) const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// How many more fragments of a source are taken now; 0 means that it must not be read further.
    pub(super) fn room(&self, lane: usize) -> usize {
        self.most.saturating_sub(self.lanes[lane].waiting.len())
    }

    /// Fragments of a source came, in its order, with the numbers that it gives them; `fragments` is left empty.
    pub(super) fn push(&mut self, lane: usize, fragments: &mut Vec<Received>) {
        let lane = &mut self.lanes[lane];
        lane.is_awaited |= !fragments.is_empty();
        lane.has_left &= fragments.is_empty();
        lane.waiting.extend(fragments.drain(..));
    }

    /// A source is done, or has gone: nobody waits for it until it says something.
    pub(super) fn leave(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        (lane.is_awaited, lane.has_left) = (false, true);
    }

    /// The next fragment, with its event's number from 1 on, and whose it is; none while something must be waited for, or where
    /// there is no room (`has_room`) for whose turn it is.
    pub(super) fn next(&mut self, now: Instant, has_room: impl Fn(usize) -> bool) -> Option<(usize, Received)> {
        loop {
            let timeout = self.timeout;
            let (lane, number) = self.lowest()?;
            if number.is_some()
                && let Some(lane) = self.lanes.iter_mut().position(|lane| lane.has_jumped(now, timeout))
            {
                return self.drop_first(lane, Cause::ImplausibleJump);
            }
            if !has_room(lane) {
                // While whose turn it is must wait itself, nobody's silence counts.
                self.since = None;
                return None;
            }
            match (number, self.last) {
                // What was given up on the way has no number.
                (None, _) => return self.take(lane, None),
                (Some(number), Some(last)) if number < last => {
                    self.lanes[lane].show(number, last);
                    if is_planted(Flaw::BehindIsNow) {
                        return self.take(lane, Some(self.given));
                    }
                    if !self.begins_anew(now) {
                        let is_anew = self.lanes[lane].is_anew();
                        return self.drop_first(lane, if is_anew { Cause::OutOfSync } else { Cause::Late });
                    }
                }
                (Some(number), Some(last)) if number == last => {
                    self.lanes[lane].show(number, last);
                    self.adrift_since = None;
                    // What it had shown before was a jump.
                    let is_late = self.lanes[lane].passed >= self.given;
                    return if is_late {
                        self.drop_first(lane, Cause::Late)
                    } else {
                        self.take(lane, Some(self.given))
                    };
                }
                (Some(number), _) => {
                    if !self.may_number(now) {
                        return None;
                    }
                    (self.last, self.since) = (Some(number), None);
                    self.given += 1;
                }
            }
        }
    }

    /// Whether some source has begun anew, and all others that are there are behind, too: then their numbers belong together again.
    fn begins_anew(&mut self, now: Instant) -> bool {
        let may_begin = self.lanes.iter().all(|lane| lane.may_begin_anew() || lane.is_silent());
        if !may_begin || is_planted(Flaw::NeverAnew) || !self.lanes.iter().any(Lane::is_anew) {
            self.adrift_since = None;
            return false;
        }
        let since = *self.adrift_since.get_or_insert(now);
        if now < since.after(self.timeout) && self.lanes.iter().any(|lane| !lane.may_begin_anew()) {
            return false;
        }
        for lane in self.lanes.iter_mut().filter(|lane| !lane.has_left) {
            // Who was silent is not waited for until it speaks.
            lane.is_awaited = lane.is_anew() || lane.late > 1 || !lane.waiting.is_empty();
            (lane.furthest, lane.behind, lane.late) = (0, 0, 0);
        }
        (self.last, self.since, self.adrift_since) = (None, None, None);
        true
    }

    /// The source with the lowest number; one whose next entry has none comes first.
    fn lowest(&self) -> Option<(usize, Option<u64>)> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(lane, one)| {
            let meta = &one.waiting.front()?.meta;
            Some((lane, meta.missing_cause().is_none().then_some(meta.raw_id)))
        });
        fronts.min_by_key(|(_, number)| *number)
    }

    /// Whether no source can show a lower number any more than the lowest one that is here.
    fn may_number(&mut self, now: Instant) -> bool {
        if !self.lanes.iter().any(Lane::is_silent) {
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if now < since.after(self.timeout) || is_planted(Flaw::SilentAwaited) {
            return false;
        }
        self.lanes.iter_mut().filter(|lane| lane.is_silent()).for_each(|lane| lane.is_awaited = false);
        true
    }

    fn take(&mut self, lane: usize, number: Option<u64>) -> Option<(usize, Received)> {
        let mut fragment = self.lanes[lane].pop()?;
        fragment.meta.raw_id = number.unwrap_or(fragment.meta.raw_id);
        Some((lane, fragment))
    }

    /// The first fragment that waits of a source is in no event, for this cause.
    fn drop_first(&mut self, lane: usize, cause: Cause) -> Option<(usize, Received)> {
        let Received { meta, .. } = self.lanes[lane].pop()?;
        let meta = FragmentMeta::missing(meta.source, cause);
        Some((lane, Received { meta, restarts: false, payload: Payload::default() }))
    }

    /// The last event of which a source has nothing more, as what it shows next tells; none where that tells nothing. It is taken at
    /// its word.
    pub(super) fn passed_by(&mut self, lane: usize) -> Option<u64> {
        let (meta, last) = (&self.lanes[lane].waiting.front()?.meta, self.last?);
        let is_later = meta.missing_cause().is_none() && meta.raw_id >= last;
        let passed = self.given - u64::from(meta.raw_id == last);
        self.lanes[lane].passed = if is_later { passed } else { self.lanes[lane].passed };
        is_later.then_some(passed)
    }

    /// When [`Collator::next`] must be asked again even if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.since.map(|since| since.after(self.timeout))
    }

    /// Fragments of a source that are here.
    pub(super) fn held_of(&self, lane: usize) -> usize {
        self.lanes[lane].waiting.len()
    }

    /// Lets go of what is here of a source; says how many fragments those were.
    pub(super) fn clear(&mut self, lane: usize) -> usize {
        let held = self.held_of(lane);
        self.lanes[lane].waiting.clear();
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_terms::SourceId;
    use std::collections::BTreeSet;

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn fragment(lane: usize, number: u64) -> Received {
        let meta = FragmentMeta { raw_id: number, ..FragmentMeta::missing(SourceId(lane as u32), Cause::Late) };
        let meta = FragmentMeta { flags: Default::default(), ..meta };
        Received { meta, restarts: false, payload: Payload::default() }
    }

    fn push(collator: &mut Collator, lane: usize, numbers: &[u64]) {
        collator.push(lane, &mut numbers.iter().map(|&number| fragment(lane, number)).collect());
    }

    /// Everything that can leave now: whose it is, and its number, or none where it is late.
    fn drain(collator: &mut Collator, now: Instant) -> Vec<(usize, Option<u64>)> {
        let next = || collator.next(now, |_| true);
        let numbered = |(lane, fragment): (usize, Received)| {
            (lane, fragment.meta.missing_cause().is_none().then_some(fragment.meta.raw_id))
        };
        core::iter::from_fn(next).map(numbered).collect()
    }

    #[test]
    fn events_are_numbered_in_the_order_of_their_own_numbers() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        push(&mut collator, 0, &[70, 90, 100]);
        assert_eq!(drain(&mut collator, at(0)), [], "the other one may have a lower number");
        push(&mut collator, 1, &[70, 95]);
        assert_eq!(drain(&mut collator, at(1)), [(0, Some(1)), (1, Some(1)), (0, Some(2)), (1, Some(3))]);
        assert_eq!(collator.next_deadline(), Some(at(101)));
    }

    #[test]
    fn who_is_silent_for_too_long_is_not_waited_for_until_it_speaks() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        push(&mut collator, 0, &[10, 20]);
        assert_eq!(drain(&mut collator, at(0)), []);
        assert_eq!(drain(&mut collator, at(99)), []);
        assert_eq!(drain(&mut collator, at(100)), [(0, Some(1)), (0, Some(2))]);
        push(&mut collator, 1, &[15, 25]);
        assert_eq!(drain(&mut collator, at(101)), [(1, None)], "it is late, and then waits for the first");
        push(&mut collator, 0, &[25]);
        assert_eq!(drain(&mut collator, at(102)), [(0, Some(3)), (1, Some(3))]);
    }

    /// One that was overtaken on its way is late; from the second one on the source is out of sync. Nobody waits for it, and in
    /// its own old order it takes part again.
    #[test]
    fn who_begins_anew_alone_is_out_of_sync_and_holds_up_nobody() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        push(&mut collator, 0, &[10, 20]);
        push(&mut collator, 1, &[10, 20]);
        assert_eq!(drain(&mut collator, at(0)).len(), 4);
        push(&mut collator, 1, &[1]);
        let late = |collator: &mut Collator| {
            let (lane, fragment) = collator.next(at(1), |_| true).expect("it is taken");
            (lane, fragment.meta.missing_cause())
        };
        assert_eq!(late(&mut collator), (1, Some(Cause::Late)));
        for number in 1..=4 {
            push(&mut collator, 1, &[1 + number]);
            assert_eq!(late(&mut collator), (1, Some(Cause::OutOfSync)));
            push(&mut collator, 0, &[20 + number]);
            assert_eq!(drain(&mut collator, at(1)), [(0, Some(2 + number))], "at once");
        }
        push(&mut collator, 1, &[30]);
        assert_eq!(drain(&mut collator, at(2)), [], "it is waited for again, and waits for the other one");
        push(&mut collator, 0, &[30]);
        assert_eq!(drain(&mut collator, at(2)), [(0, Some(7)), (1, Some(7))]);
    }

    #[test]
    fn when_all_have_begun_anew_their_events_are_numbered_on() {
        let mut collator = Collator::new(3, 16, TIMEOUT);
        collator.leave(2);
        for lane in [0, 1] {
            push(&mut collator, lane, &[100, 110]);
        }
        assert_eq!(drain(&mut collator, at(0)).len(), 4);
        push(&mut collator, 0, &[5, 6, 7]);
        assert_eq!(drain(&mut collator, at(0)), [(0, None); 3]);
        push(&mut collator, 1, &[7, 8, 9]);
        assert_eq!(drain(&mut collator, at(0)), [(1, None)], "the other one is waited for again");
        push(&mut collator, 0, &[8, 9]);
        assert_eq!(drain(&mut collator, at(0)), [(0, Some(3)), (1, Some(3)), (0, Some(4)), (1, Some(4))]);
    }

    /// The clock of the pulses was set back while a source was away: without it nobody would ever be in step again.
    #[test]
    fn who_is_silent_holds_up_a_new_beginning_for_so_long_and_no_longer() {
        let mut collator = Collator::new(3, 16, TIMEOUT);
        (0..3).for_each(|lane| push(&mut collator, lane, &[100]));
        assert_eq!(drain(&mut collator, at(0)).len(), 3);
        for lane in [0, 1] {
            push(&mut collator, lane, &[5, 6]);
            assert_eq!(drain(&mut collator, at(1)), [(lane, None); 2]);
        }
        push(&mut collator, 0, &[7]);
        assert_eq!(drain(&mut collator, at(100)), [(0, None)], "the third one may yet say that nothing has changed");
        for lane in [0, 1] {
            push(&mut collator, lane, &[8, 9]);
        }
        assert_eq!(drain(&mut collator, at(101)), [(0, Some(2)), (1, Some(2)), (0, Some(3)), (1, Some(3))]);
        push(&mut collator, 2, &[10]);
        assert_eq!(drain(&mut collator, at(102)), [], "it is waited for again");
    }

    #[test]
    fn who_goes_on_in_the_old_count_is_heard_however_seldom_he_speaks() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        (0..2).for_each(|lane| push(&mut collator, lane, &[100]));
        assert_eq!(drain(&mut collator, at(0)).len(), 2);
        push(&mut collator, 0, &[1, 2]);
        assert_eq!(drain(&mut collator, at(1)), [(0, None); 2]);
        for step in 1..20 {
            push(&mut collator, 0, &[2 + step]);
            assert_eq!(drain(&mut collator, at(40 * step)), [(0, None)]);
            push(&mut collator, 1, &[100 + step]);
            assert_eq!(drain(&mut collator, at(40 * step)).last(), Some(&(1, Some(1 + step))));
        }
    }

    #[test]
    fn a_number_far_ahead_that_nothing_follows_costs_one_fragment() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        push(&mut collator, 0, &[10, 1 << 50, 20, 30]);
        push(&mut collator, 1, &[10, 20, 30]);
        let mut next = || collator.next(at(0), |_| true);
        let (first, jumped) = (next().expect("the first"), next().expect("the jump"));
        assert_eq!((first.0, jumped.0), (0, 0));
        assert_eq!(jumped.1.meta.missing_cause(), Some(Cause::ImplausibleJump));
        let rest = [(1, Some(1)), (0, Some(2)), (1, Some(2)), (0, Some(3)), (1, Some(3))];
        assert_eq!(drain(&mut collator, at(0)), rest);
    }

    /// Behind it the source counts anew, which it does not show before that is out of the way.
    #[test]
    fn a_number_far_ahead_stands_in_the_way_for_so_long_and_no_longer() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        (0..2).for_each(|lane| push(&mut collator, lane, &[100]));
        push(&mut collator, 0, &[1 << 50, 1, 2, 110]);
        push(&mut collator, 1, &[105]);
        assert_eq!(drain(&mut collator, at(0)), [(0, Some(1)), (1, Some(1)), (1, Some(2))]);
        push(&mut collator, 1, &[110]);
        assert_eq!(drain(&mut collator, at(299)), [(1, Some(3))]);
        assert_eq!(drain(&mut collator, at(300)), [(0, None), (0, None), (0, None), (0, Some(3))]);
    }

    /// While the others were silent it had to be believed.
    #[test]
    fn a_number_far_ahead_that_was_believed_leaves_nobody_behind_for_ever() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        (0..2).for_each(|lane| push(&mut collator, lane, &[10]));
        push(&mut collator, 0, &[1 << 50]);
        assert_eq!(drain(&mut collator, at(0)), [(0, Some(1)), (1, Some(1))]);
        assert_eq!(drain(&mut collator, at(100)), [(0, Some(2))]);
        for number in [20, 30] {
            push(&mut collator, 1, &[number]);
            push(&mut collator, 0, &[number]);
        }
        assert_eq!(drain(&mut collator, at(101)), [(0, None), (1, None), (0, None)]);
        push(&mut collator, 0, &[40]);
        push(&mut collator, 1, &[40]);
        assert_eq!(drain(&mut collator, at(102)), [(1, Some(3)), (0, Some(4)), (1, Some(4))]);
    }

    #[test]
    fn who_has_left_is_not_waited_for() {
        let mut collator = Collator::new(2, 16, TIMEOUT);
        push(&mut collator, 0, &[10]);
        collator.leave(1);
        assert_eq!(drain(&mut collator, at(0)), [(0, Some(1))]);
    }

    #[test]
    fn what_was_given_up_passes_and_what_comes_twice_has_the_same_number_twice() {
        let mut collator = Collator::new(1, 16, TIMEOUT);
        push(&mut collator, 0, &[10, 10]);
        let given_up = FragmentMeta::missing(SourceId(0), Cause::ShortPacket);
        collator.push(0, &mut vec![Received { meta: given_up, restarts: false, payload: Payload::default() }]);
        push(&mut collator, 0, &[11]);
        assert_eq!(drain(&mut collator, at(0)), [(0, Some(1)), (0, Some(1)), (0, None), (0, Some(2))]);
    }

    #[test]
    fn a_source_has_so_much_room_and_no_more_and_others_wait_for_whose_turn_it_is() {
        let mut collator = Collator::new(2, 2, TIMEOUT);
        push(&mut collator, 0, &[1, 2]);
        assert_eq!((collator.room(0), collator.room(1), collator.held_of(0)), (0, 2, 2));
        push(&mut collator, 1, &[2]);
        assert!(collator.next(at(0), |lane| lane == 1).is_none());
        collator.clear(1);
        assert!(collator.next(at(0), |_| true).is_none(), "the other one is waited for");
        assert!(collator.next(at(500), |_| false).is_none());
        assert_eq!(collator.next_deadline(), None, "there is nothing to be done at a time that is over");
        push(&mut collator, 1, &[2]);
        assert_eq!(drain(&mut collator, at(0)).len(), 3);
        push(&mut collator, 0, &[3]);
        assert_eq!((collator.clear(0), collator.clear(0)), (1, 0));
    }

    proptest! {
        /// However the sources' words interleave: each event has one number, in the order of the events, and nobody is late.
        #[test]
        fn numbers_do_not_depend_on_who_was_first(
            seen in proptest::collection::vec(proptest::collection::btree_set(0u64..60, 1..30), 3),
            order in proptest::collection::vec(0usize..3, 0..120),
        ) {
            let mut collator = Collator::new(3, 64, TIMEOUT);
            let mut rest: Vec<_> = seen.iter().map(|numbers| numbers.iter().copied().collect::<VecDeque<u64>>()).collect();
            let mut found = Vec::new();
            for lane in order.into_iter().chain((0..3).flat_map(|lane| [lane; 64])) {
                if let Some(number) = rest[lane].pop_front() {
                    push(&mut collator, lane, &[number]);
                }
                if rest[lane].is_empty() {
                    collator.leave(lane);
                }
                found.extend(drain(&mut collator, at(0)));
            }
            let all: BTreeSet<u64> = seen.iter().flatten().copied().collect();
            let number_of = |number: &u64| 1 + all.range(..number).count() as u64;
            let wanted: usize = seen.iter().map(BTreeSet::len).sum();
            prop_assert_eq!(found.len(), wanted);
            for (lane, numbers) in seen.iter().enumerate() {
                let own: Vec<_> = found.iter().filter(|(of, _)| *of == lane).map(|(_, number)| *number).collect();
                prop_assert_eq!(own, numbers.iter().map(|number| Some(number_of(number))).collect::<Vec<_>>());
            }
        }
    }
}
