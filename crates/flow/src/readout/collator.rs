//! Gives consecutive numbers to events whose own numbers only grow: the times of pulses, say.
//!
//! ```text
//!  source 1:  70 90     100 --+
//!  source 2:  70    95      --+--> the lowest number, once every source has shown one as high, or was silent for too long
//!                                  70 -> 1, 90 -> 2 (without source 2), 95 -> 3 (without source 1), then 100 waits
//! ```
//! Whoever is behind is waited for, so that nothing is out of order behind it; a fragment that comes after all, when higher
//! numbers were given already, is late. A source that goes back behind itself, and goes on from there, has begun anew: it is out
//! of sync and nobody waits for it, until it is where it was, or all that are there have begun anew.

use crate::messages::{FragmentMeta, Received};
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant};
use std::collections::VecDeque;

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
}

impl Lane {
    fn new(most: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(most), is_awaited: true, has_left: false, furthest: 0, behind: 0 }
    }

    /// Its next number is this one.
    fn show(&mut self, number: u64) {
        self.behind = if number < self.furthest { self.behind.saturating_add(1) } else { 0 };
        self.furthest = self.furthest.max(number);
        self.is_awaited = !self.has_left && !self.is_anew();
    }

    /// One number may have been overtaken on its way.
    const fn is_anew(&self) -> bool {
        self.behind > 1
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
    most: usize,
    timeout: Duration,
}

impl Collator {
    /// For so many sources, each with `most` fragments here at once; who has nothing for so long is not waited for.
    pub(super) fn new(sources: usize, most: usize, timeout: Duration) -> Self {
        let lanes = core::iter::repeat_with(|| Lane::new(most)).take(sources).collect();
        Self { lanes, last: None, given: 0, since: None, most, timeout }
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
            let (lane, number) = self.lowest()?;
            if !has_room(lane) {
                // While whose turn it is must wait itself, nobody's silence counts.
                self.since = None;
                return None;
            }
            match (number, self.last) {
                // What was given up on the way has no number.
                (None, _) => return self.take(lane, None),
                (Some(number), Some(last)) if number < last => {
                    self.lanes[lane].show(number);
                    if !self.begins_anew() {
                        return self.take_late(lane);
                    }
                }
                (Some(number), Some(last)) if number == last => {
                    self.lanes[lane].show(number);
                    return self.take(lane, Some(self.given));
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

    /// Whether all sources that are there have begun anew: then their numbers belong together again.
    fn begins_anew(&mut self) -> bool {
        if !self.lanes.iter().all(|lane| lane.is_anew() || lane.has_left) {
            return false;
        }
        for lane in self.lanes.iter_mut().filter(|lane| !lane.has_left) {
            (lane.furthest, lane.behind, lane.is_awaited) = (0, 0, true);
        }
        (self.last, self.since) = (None, None);
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
        let is_behind = |lane: &Lane| lane.is_awaited && lane.waiting.is_empty();
        if !self.lanes.iter().any(is_behind) {
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if now < since.after(self.timeout) {
            return false;
        }
        self.lanes.iter_mut().filter(|lane| is_behind(lane)).for_each(|lane| lane.is_awaited = false);
        true
    }

    fn take(&mut self, lane: usize, number: Option<u64>) -> Option<(usize, Received)> {
        let mut fragment = self.lanes[lane].waiting.pop_front()?;
        fragment.meta.raw_id = number.unwrap_or(fragment.meta.raw_id);
        Some((lane, fragment))
    }

    fn take_late(&mut self, lane: usize) -> Option<(usize, Received)> {
        let one = &mut self.lanes[lane];
        let Received { meta, .. } = one.waiting.pop_front()?;
        let cause = if one.is_anew() { Cause::OutOfSync } else { Cause::Late };
        let meta = FragmentMeta::missing(meta.source, cause);
        Some((lane, Received { meta, restarts: false, payload: Payload::default() }))
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
