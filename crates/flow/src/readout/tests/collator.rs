//! Sources whose event numbers grow, but not by one: their events are numbered together, for any growing numbers.

use super::super::collator::Collator;
use super::super::lane::LaneConfig;
use super::*;
use crate::messages::{FragmentMeta, NumberingKind, Received};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, SourceId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const TIMEOUT: Duration = Duration::from_millis(100);

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(milliseconds))
}

fn lanes(sources: usize, most: usize, config: LaneConfig) -> Collator {
    Collator::new(core::iter::repeat_n(config, sources), most, TIMEOUT)
}

fn collator(sources: usize, most: usize) -> Collator {
    lanes(sources, most, LaneConfig { bits: 64, reorder: 0, reorder_timeout: Duration::ZERO })
}

fn fragment(lane: usize, number: u64) -> Received {
    let meta = FragmentMeta { raw_id: number, ..FragmentMeta::missing(SourceId(lane as u32), Cause::Late) };
    let meta = FragmentMeta { flags: Default::default(), ..meta };
    Received { meta, restarts: false, payload: Payload::default() }
}

fn push(collator: &mut Collator, lane: usize, numbers: &[u64]) {
    push_at(collator, at(0), lane, numbers);
}

fn push_at(collator: &mut Collator, now: Instant, lane: usize, numbers: &[u64]) {
    collator.push(now, lane, &mut numbers.iter().map(|&number| fragment(lane, number)).collect());
}

/// Returns everything that can leave now: its lane and number; `None` for a late fragment.
fn drain(collator: &mut Collator, now: Instant) -> Vec<(usize, Option<u64>)> {
    let next = || collator.next(now, |_| true);
    let numbered = |(lane, fragment): (usize, Received)| {
        (lane, fragment.meta.missing_cause().is_none().then_some(fragment.meta.raw_id))
    };
    core::iter::from_fn(next).map(numbered).collect()
}

#[test]
fn events_are_numbered_in_the_order_of_their_own_numbers() {
    let mut collator = collator(2, 16);
    push(&mut collator, 0, &[70, 90, 100, 110]);
    assert_eq!(drain(&mut collator, at(0)), [], "the other one may have a lower number");
    push(&mut collator, 1, &[70, 95, 110, 120]);
    let all = [(0, 1), (1, 1), (0, 2), (1, 3), (0, 4), (0, 5), (1, 5)].map(|(lane, event)| (lane, Some(event)));
    assert_eq!(drain(&mut collator, at(1)), all);
    assert_eq!(collator.next_deadline(), Some(at(101)));
}

#[test]
fn a_source_that_is_silent_for_too_long_is_not_waited_for_until_it_speaks() {
    let mut collator = collator(2, 16);
    push(&mut collator, 0, &[10, 20, 30, 40]);
    assert_eq!(drain(&mut collator, at(0)), []);
    assert_eq!(collator.next_deadline(), Some(at(50)), "nothing shows yet whether its numbers are right");
    assert_eq!(drain(&mut collator, at(50)), []);
    assert_eq!(drain(&mut collator, at(149)), []);
    assert_eq!(drain(&mut collator, at(150)), [1, 2, 3, 4].map(|event| (0, Some(event))));
    push_at(&mut collator, at(151), 1, &[35, 45]);
    push_at(&mut collator, at(151), 0, &[45]);
    assert_eq!(drain(&mut collator, at(151)), [], "45 is right; whether 35 leads there shows what comes next");
    push_at(&mut collator, at(151), 1, &[55]);
    assert_eq!(drain(&mut collator, at(151)), [(1, None), (0, Some(5)), (1, Some(5))], "35 is late");
}

/// A restart cannot be distinguished from wrong numbers at once. Once it can, the source is no longer waited for. Back
/// in its old order it takes part again.
#[test]
fn a_source_that_begins_anew_alone_is_out_of_sync_and_holds_up_no_other() {
    let mut collator = collator(2, 16);
    (0..2).for_each(|lane| push(&mut collator, lane, &[10, 20]));
    assert_eq!(drain(&mut collator, at(0)).len(), 4);
    push_at(&mut collator, at(1), 1, &[1, 2, 3, 4]);
    push_at(&mut collator, at(1), 0, &[21]);
    assert_eq!(drain(&mut collator, at(50)), []);
    let all = [(1, None), (1, None), (1, None), (1, None), (0, Some(3))];
    assert_eq!(drain(&mut collator, at(51)), all);
    for number in 1..=4 {
        push_at(&mut collator, at(60), 1, &[10 + number]);
        let (lane, fragment) = collator.next(at(60), |_| true).expect("it is taken");
        assert_eq!((lane, fragment.meta.missing_cause()), (1, Some(Cause::OutOfSync)));
        push_at(&mut collator, at(60), 0, &[21 + number]);
        assert_eq!(drain(&mut collator, at(60)), [(0, Some(3 + number))], "at once");
    }
    push_at(&mut collator, at(61), 1, &[30]);
    assert_eq!(drain(&mut collator, at(61)), [], "it is waited for again, and waits for the other one");
    push_at(&mut collator, at(61), 0, &[30]);
    assert_eq!(drain(&mut collator, at(61)), [(0, Some(8)), (1, Some(8))]);
    let mut notes = Vec::new();
    collator.take_notes(1, |kind, from, to| notes.push((kind, from, to)));
    assert_eq!(notes, [(NumberingKind::Restart, 20, 1), (NumberingKind::OutOfSync, 20, 1)]);
}

#[test]
fn when_all_have_begun_anew_their_events_are_numbered_on() {
    let mut collator = collator(3, 16);
    collator.leave(at(0), 2);
    (0..2).for_each(|lane| push(&mut collator, lane, &[100, 110]));
    assert_eq!(drain(&mut collator, at(0)).len(), 4);
    push_at(&mut collator, at(1), 0, &[5, 6, 7]);
    assert_eq!(drain(&mut collator, at(1)), []);
    push_at(&mut collator, at(1), 1, &[7, 8, 9]);
    push_at(&mut collator, at(1), 0, &[8, 9, 10]);
    let all = [(0, 3), (0, 4), (0, 5), (1, 5), (0, 6), (1, 6), (0, 7), (1, 7)].map(|(lane, event)| (lane, Some(event)));
    assert_eq!(drain(&mut collator, at(1)), all, "none is lost");
}

/// The clock of the pulses was set back while a source was absent. If its silence blocked the others, they would stay
/// out of step.
#[test]
fn a_silent_source_holds_up_a_new_beginning_for_the_time_out_and_no_longer() {
    let mut collator = collator(3, 16);
    (0..3).for_each(|lane| push(&mut collator, lane, &[100]));
    assert_eq!(drain(&mut collator, at(0)).len(), 3);
    for lane in [0, 1] {
        push_at(&mut collator, at(1), lane, &[5, 6]);
        assert_eq!(drain(&mut collator, at(1)), []);
    }
    assert_eq!(drain(&mut collator, at(100)), [], "the third one may yet say that nothing has changed");
    assert_eq!(collator.next_deadline(), Some(at(101)));
    let all = [(0, 2), (1, 2), (0, 3), (1, 3)].map(|(lane, event)| (lane, Some(event)));
    assert_eq!(drain(&mut collator, at(101)), all);
    push_at(&mut collator, at(102), 2, &[7]);
    (0..2).for_each(|lane| push_at(&mut collator, at(102), lane, &[7]));
    assert_eq!(drain(&mut collator, at(102)).len(), 3, "it joins them");
}

#[test]
fn a_source_that_goes_on_in_the_old_count_is_heard_however_seldom_it_speaks() {
    let mut collator = collator(2, 32);
    (0..2).for_each(|lane| push(&mut collator, lane, &[90, 100]));
    assert_eq!(drain(&mut collator, at(0)).len(), 4);
    let mut all = Vec::new();
    for step in 1..20 {
        push_at(&mut collator, at(40 * step), 0, &[step]);
        all.extend(drain(&mut collator, at(40 * step)));
        push_at(&mut collator, at(40 * step), 1, &[100 + step]);
        all.extend(drain(&mut collator, at(40 * step)));
    }
    all.extend(drain(&mut collator, at(900)));
    let of = |wanted: usize| {
        all.iter().filter(move |(lane, _)| *lane == wanted).map(|(_, event)| *event).collect::<Vec<_>>()
    };
    assert_eq!(of(1), (3..22).map(Some).collect::<Vec<_>>());
    assert_eq!(of(0), [None; 19]);
}

#[test]
fn a_number_far_ahead_that_nothing_follows_costs_one_fragment() {
    let mut collator = collator(2, 16);
    push(&mut collator, 0, &[10, 1 << 50, 20, 30]);
    push(&mut collator, 1, &[10, 20, 30]);
    let all = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)].map(|(lane, event)| (lane, Some(event)));
    assert_eq!(drain(&mut collator, at(0)), all);
    let (lane, fragment) = collator.next(at(50), |_| true).expect("the jump");
    assert_eq!((lane, fragment.meta.missing_cause()), (0, Some(Cause::ImplausibleJump)));
    let mut notes = Vec::new();
    collator.take_notes(0, |kind, _, to| notes.push((kind, to)));
    assert_eq!(notes, [(NumberingKind::WrongNumber, 1 << 50)]);
}

/// After the number the source counts anew for a moment.
#[test]
fn numbers_far_ahead_and_behind_hold_up_no_source() {
    let mut collator = collator(2, 16);
    (0..2).for_each(|lane| push(&mut collator, lane, &[10_090, 10_100]));
    push(&mut collator, 0, &[1 << 50, 1, 2, 10_110]);
    push(&mut collator, 1, &[10_105]);
    let numbered = drain(&mut collator, at(0));
    assert_eq!(numbered.len(), 5);
    assert_eq!(numbered.last(), Some(&(1, Some(3))));
    push(&mut collator, 1, &[10_110]);
    assert_eq!(drain(&mut collator, at(1)), [(0, Some(4)), (1, Some(4))]);
    assert_eq!(drain(&mut collator, at(50)), [(0, None); 3]);
}

/// The number had to be believed while the others were silent.
#[test]
fn a_number_far_ahead_that_was_believed_leaves_no_source_behind() {
    let mut collator = collator(2, 16);
    (0..2).for_each(|lane| push(&mut collator, lane, &[0, 10]));
    push(&mut collator, 0, &[1 << 50]);
    assert_eq!(drain(&mut collator, at(0)).len(), 4);
    assert_eq!(drain(&mut collator, at(50)), []);
    assert_eq!(drain(&mut collator, at(150)), [(0, Some(3))]);
    for number in [20, 30] {
        push_at(&mut collator, at(151), 1, &[number]);
        push_at(&mut collator, at(151), 0, &[number]);
    }
    let all = [(0, 4), (1, 4), (0, 5), (1, 5)].map(|(lane, event)| (lane, Some(event)));
    assert_eq!(drain(&mut collator, at(151)), all);
}

#[test]
fn a_source_that_has_left_is_not_waited_for() {
    let mut collator = collator(2, 16);
    push(&mut collator, 0, &[10]);
    collator.leave(at(0), 1);
    assert_eq!(drain(&mut collator, at(50)), [(0, Some(1))]);
}

#[test]
fn what_was_given_up_passes_and_what_comes_twice_has_the_same_number_twice() {
    let mut collator = collator(1, 16);
    push(&mut collator, 0, &[10, 10]);
    let given_up = FragmentMeta::missing(SourceId(0), Cause::ShortPacket);
    collator.push(at(0), 0, &mut vec![Received { meta: given_up, restarts: false, payload: Payload::default() }]);
    push(&mut collator, 0, &[11]);
    collator.leave(at(0), 0);
    assert_eq!(drain(&mut collator, at(0)), [(0, None), (0, Some(1)), (0, Some(1)), (0, Some(2))]);
}

#[test]
fn a_source_has_so_much_room_and_no_more_and_others_wait_for_whose_turn_it_is() {
    let mut collator = collator(2, 2);
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
    /// For any interleaving of the sources: each event has one number, in the order of the events, and no fragment is
    /// late.
    #[test]
    fn numbers_do_not_depend_on_who_was_first(
        seen in proptest::collection::vec(proptest::collection::btree_set(0u64..16, 1..14), 3),
        order in proptest::collection::vec(0usize..3, 0..120),
    ) {
        let mut collator = collator(3, 64);
        let mut rest: Vec<_> = seen.iter().map(|numbers| numbers.iter().copied().collect::<VecDeque<u64>>()).collect();
        let mut found = Vec::new();
        for lane in order.into_iter().chain((0..3).flat_map(|lane| [lane; 64])) {
            if let Some(number) = rest[lane].pop_front() {
                push(&mut collator, lane, &[number]);
            }
            if rest[lane].is_empty() {
                collator.leave(at(0), lane);
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

/// The stream of one source: each number has its true pulse, or `None` if it is wrong.
#[derive(Clone, Debug)]
struct Shown {
    number: u64,
    pulse: Option<u64>,
}

/// Feeds the sources in an order, each to its end. Returns the event of each fragment, by source and place in its
/// stream.
fn numbered(collator: &mut Collator, streams: &[Vec<Shown>], order: &[usize]) -> Vec<BTreeMap<usize, u64>> {
    let mut next = vec![0; streams.len()];
    let mut events = vec![BTreeMap::new(); streams.len()];
    let mut turns = 0;
    let at = |turns: u64| Instant::ZERO.after(Duration::from_micros(10 * turns));
    let mut take = |collator: &mut Collator, now| {
        while let Some((lane, fragment)) = collator.next(now, |_| true) {
            if fragment.meta.missing_cause().is_none() {
                // The place in the stream, which the collator ignores.
                events[lane].insert(fragment.meta.time as usize, fragment.meta.raw_id);
            }
        }
    };
    let all = (0..streams.len()).flat_map(|lane| core::iter::repeat_n(lane, streams[lane].len()));
    for lane in order.iter().copied().filter(|&lane| lane < streams.len()).chain(all) {
        let place = next[lane];
        if let Some(shown) = streams[lane].get(place).filter(|_| collator.room(lane) > 0) {
            let mut one = fragment(lane, shown.number);
            one.meta.time = place as u64;
            collator.push(at(turns), lane, &mut vec![one]);
            next[lane] += 1;
        } else {
            turns += 1;
        }
        take(collator, at(turns));
    }
    while next.iter().zip(streams).any(|(&next, stream)| next < stream.len()) {
        for lane in 0..streams.len() {
            if next[lane] < streams[lane].len() && collator.room(lane) > 0 {
                let mut one = fragment(lane, streams[lane][next[lane]].number);
                one.meta.time = next[lane] as u64;
                collator.push(at(turns), lane, &mut vec![one]);
                next[lane] += 1;
            }
        }
        turns += 1;
        take(collator, at(turns));
    }
    (0..streams.len()).for_each(|lane| collator.leave(at(turns), lane));
    take(collator, at(turns + 10_000));
    take(collator, at(turns + 100_000));
    events
}

/// Checks that all right numbers but `lost` are in the event of their pulse, and that no other numbers are.
fn judge(streams: &[Vec<Shown>], events: &[BTreeMap<usize, u64>], lost: usize) -> Result<(), TestCaseError> {
    let mut pulses = BTreeMap::new();
    let mut missing = 0;
    for (lane, stream) in streams.iter().enumerate() {
        for (place, shown) in stream.iter().enumerate() {
            let Some(&event) = events[lane].get(&place) else {
                missing += usize::from(shown.pulse.is_some());
                continue;
            };
            let what = shown.pulse.ok_or((lane, place));
            let known = *pulses.entry(event).or_insert(what);
            prop_assert_eq!(known, what, "event {} of source {}, place {}", event, lane, place);
        }
    }
    let distinct: BTreeSet<_> = pulses.values().collect();
    prop_assert_eq!(distinct.len(), pulses.len(), "a pulse is in two events");
    prop_assert!(missing <= lost, "{} good fragments are in no event, {} may", missing, lost);
    Ok(())
}

/// Returns pulse times with uneven steps, from `begin` on.
fn times(begin: u64, steps: &[u64]) -> Vec<u64> {
    steps
        .iter()
        .scan(begin, |time, step| {
            *time = time.wrapping_add(*step);
            Some(*time)
        })
        .collect()
}

fn stream(times: &[u64], bits: u32) -> Vec<Shown> {
    let mask = u64::MAX >> (64 - bits);
    let shown = |(pulse, &time): (usize, &u64)| Shown { number: time & mask, pulse: Some(pulse as u64) };
    times.iter().enumerate().map(shown).collect()
}

/// Inserts wrong numbers in front of a place of a stream.
fn spoil(stream: &mut Vec<Shown>, place: usize, numbers: impl IntoIterator<Item = u64>) {
    let place = place.min(stream.len());
    stream.splice(place..place, numbers.into_iter().map(|number| Shown { number, pulse: None }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Outliers, ahead or behind, one or ten in a row, at the start or later: no other fragment is lost or in a wrong
    /// event.
    #[test]
    fn outliers_cost_themselves_alone(
        steps in proptest::collection::vec(50u64..100, 60..120), sources in 1usize..4, bits in 40u32..=64,
        runs in proptest::collection::vec((0usize..3, 0usize..100, 1u64..=10, 0u64..1 << 38, any::<bool>()), 0..3),
        order in proptest::collection::vec(0usize..3, 0..300), reorder in 0u8..9,
    ) {
        let begin = 1 << 39;
        let all = times(begin, &steps);
        let mut streams = vec![stream(&all, bits); sources];
        let mut spoiled: Vec<(usize, usize)> = Vec::new();
        for (run, (lane, place, count, number, is_ahead)) in runs.into_iter().enumerate() {
            // Two runs with a few good fragments between them would form one run longer than ten.
            if spoiled.iter().any(|&(other, at)| other == lane % sources && at.abs_diff(place) < 20) {
                continue;
            }
            spoiled.push((lane % sources, place));
            let count = if run == 0 { count } else { count.min(3) };
            // Distinct from the numbers of the pulses.
            let number = number / 8192 * 8192 + 1000 * lane as u64 + 8 * run as u64;
            let first = if is_ahead { begin + (1 << 20) + number } else { (begin - (1 << 20)).saturating_sub(number) };
            spoil(&mut streams[lane % sources], place, (0..count).map(|one| first.saturating_add(80 * one)));
        }
        let config = LaneConfig { bits: bits as u8, reorder, reorder_timeout: Duration::from_millis(3) };
        let mut collator = lanes(sources, 64, config);
        let events = numbered(&mut collator, &streams, &order);
        judge(&streams, &events, 0)?;
    }

    /// Flipped bits in some numbers, of sources that do not see each pulse, cost one fragment each.
    #[test]
    fn flipped_bits_cost_one_fragment_each(
        steps in proptest::collection::vec(50u64..100, 60..120), sources in 1usize..4, bits in 24u32..=64, reorder in 0u8..9,
        seen in proptest::collection::vec(any::<u8>(), 360), flips in proptest::collection::vec((0usize..3, 0usize..110, 0u32..64), 0..8),
        order in proptest::collection::vec(0usize..3, 0..300), begin: u64,
    ) {
        let all = times(begin, &steps);
        let mut streams = vec![stream(&all, bits); sources];
        let mut shown: BTreeSet<u64> = streams[0].iter().map(|shown| shown.number).collect();
        for (lane, stream) in streams.iter_mut().enumerate() {
            let mut place = 0;
            stream.retain(|_| { place += 1; seen[120 * lane + place - 1] > 30 });
        }
        let mut wrong = 0;
        for (lane, place, bit) in flips {
            let stream = &mut streams[lane % sources];
            if let Some(one) = stream.get_mut(place) && shown.insert(one.number ^ 1 << (bit % bits)) {
                *one = Shown { number: one.number ^ 1 << (bit % bits), pulse: None };
                wrong += 1;
            }
        }
        let config = LaneConfig { bits: bits as u8, reorder, reorder_timeout: Duration::from_millis(3) };
        let events = numbered(&mut lanes(sources, 64, config), &streams, &order);
        // If few fragments are waited for, a wrong number slightly ahead makes the fragments late that it seems to have
        // overtaken: up to 16 steps of 100 (`TOGETHER`), which contain 32 steps of 50.
        judge(&streams, &events, if reorder < 8 { 32 * wrong } else { 0 })?;
    }

    /// A field wraps anywhere; sources that do not see each pulse wrap at different ones.
    #[test]
    fn times_that_wrap_are_unwrapped(
        steps in proptest::collection::vec(50u64..100, 30..90), sources in 1usize..4, bits in 16u32..=64, before in 0u64..3000,
        seen in proptest::collection::vec(any::<u8>(), 270), order in proptest::collection::vec(0usize..3, 0..200),
        outlier in proptest::option::of((0usize..3, 0usize..90)),
    ) {
        let all = times((u64::MAX >> (64 - bits)).wrapping_sub(before), &steps);
        let mut streams = vec![stream(&all, bits); sources];
        for (lane, stream) in streams.iter_mut().enumerate() {
            let mut place = 0;
            stream.retain(|_| { place += 1; seen[90 * lane + place - 1] > 30 });
        }
        if let Some((lane, place)) = outlier {
            let number = all[0].wrapping_add(1 << (bits - 2)) & (u64::MAX >> (64 - bits));
            spoil(&mut streams[lane % sources], place, [number]);
        }
        let config = LaneConfig { bits: bits as u8, reorder: 0, reorder_timeout: Duration::ZERO };
        let events = numbered(&mut lanes(sources, 64, config), &streams, &order);
        judge(&streams, &events, 0)?;
    }

    /// Fragments that are out of order within the window are in their events, and events are in the order of their
    /// times.
    #[test]
    fn shuffled_times_are_put_in_order(
        steps in proptest::collection::vec(50u64..100, 30..90), sources in 1usize..4, reorder in 1u8..9,
        keys in proptest::collection::vec(any::<u32>(), 270), order in proptest::collection::vec(0usize..3, 0..200),
    ) {
        let all = times(1 << 30, &steps);
        let mut streams = vec![stream(&all, 64); sources];
        for (lane, stream) in streams.iter_mut().enumerate() {
            // After the first ones, whose places are not known yet.
            for (block, part) in stream[20..].chunks_mut(usize::from(reorder)).enumerate() {
                part.sort_by_key(|shown| keys[(90 * lane + block * 9 + shown.pulse.unwrap_or(0) as usize) % 270]);
            }
        }
        let config = LaneConfig { bits: 64, reorder, reorder_timeout: Duration::from_millis(50) };
        let mut collator = lanes(sources, 64, config);
        let events = numbered(&mut collator, &streams, &order);
        judge(&streams, &events, 0)?;
        for (lane, stream) in streams.iter().enumerate() {
            for (place, shown) in stream.iter().enumerate() {
                prop_assert_eq!(events[lane][&place], 1 + shown.pulse.unwrap_or(0));
            }
            let is_shuffled = stream.windows(2).any(|two| two[0].number > two[1].number);
            prop_assert_eq!(is_shuffled, collator.take_notes(lane, |_, _, _| {}) > 0);
        }
    }

    /// Left-overs of another run precede each source's numbers, and belong to no event.
    #[test]
    fn left_overs_are_dropped_by_name(
        steps in proptest::collection::vec(50u64..100, 40..90), lefts in proptest::collection::vec((0u64..12, 1u64..1 << 30, any::<bool>()), 1..4),
        order in proptest::collection::vec(0usize..3, 0..200),
    ) {
        let begin = 1 << 45;
        let all = times(begin, &steps);
        let mut streams = vec![stream(&all, 64); lefts.len()];
        for (lane, &(count, apart, is_ahead)) in lefts.iter().enumerate() {
            // All left-overs differ.
            let apart = 3 * apart * 4096 + 1000 * lane as u64;
            // A single source cannot distinguish left-overs of an earlier run from pulses before a pause.
            let is_ahead = is_ahead || streams.len() == 1;
            let first = if is_ahead { begin + (1 << 30) + apart } else { begin - (1 << 30) - apart };
            spoil(&mut streams[lane], 0, (0..count).map(|one| first + 90 * one));
        }
        let mut collator = collator(lefts.len(), 64);
        let events = numbered(&mut collator, &streams, &order);
        judge(&streams, &events, 0)?;
        for (lane, &(count, ..)) in lefts.iter().enumerate() {
            let in_events = (0..count as usize).filter(|place| events[lane].contains_key(place)).count();
            prop_assert_eq!(in_events, 0, "left-overs of source {} are in events", lane);
            let mut noted = 0;
            collator.take_notes(lane, |kind, _, _| noted += u64::from(kind == NumberingKind::LeftOver));
            prop_assert_eq!(noted, count);
        }
    }
}

/// Pulses at 14 Hz, numbered by seconds and ticks of 88 MHz, of two boards whose packets are delayed by a loaded
/// machine.
#[test]
fn late_fragments_on_a_loaded_machine_are_no_wrong_numbers() {
    let pulse = |index: u64| {
        let ticks = 1_619_617 + index * 6_289_466;
        ((67_484 + ticks / 88_052_500) << 32) | (ticks % 88_052_500)
    };
    for seed in 0..5_000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let config = LaneConfig { bits: 64, reorder: 8, reorder_timeout: Duration::from_millis(5) };
        let mut collator = lanes(2, 64, config);
        let (mut next, mut now, mut lost, mut left) = ([0_u64; 2], 0, Vec::new(), [false; 2]);
        let pauses = [0, 1, 4, 30, 60, 90, 130][random(7) as usize];
        while next.iter().any(|&next| next < 100) || left.iter().any(|left| !left) {
            let lane = random(2) as usize;
            let room = collator.room(lane).min(1 + random(80) as usize).min((100 - next[lane]) as usize) as u64;
            if room > 0 {
                let numbers: Vec<u64> = (next[lane]..next[lane] + room).map(pulse).collect();
                push_at(&mut collator, at(now), lane, &numbers);
                next[lane] += room;
            } else if next[lane] == 100 && !left[lane] {
                collator.leave(at(now), lane);
                left[lane] = true;
            }
            if random(3) == 0 {
                now += random(pauses + 1);
            }
            for _ in 0..300 {
                let Some((lane, fragment)) = collator.next(at(now), |_| true) else { break };
                lost.extend(fragment.meta.missing_cause().map(|cause| (lane, cause)));
            }
        }
        // A source that is silent for longer than the time-out comes too late.
        let is_late = lost.iter().any(|(_, cause)| *cause == Cause::Late);
        assert!(lost.is_empty() || is_late, "seed {seed}, pauses up to {pauses} ms: {lost:?}");
    }
}

fn growing(sources: u32) -> ReadoutConfig {
    let mut config = config(sources);
    config.sources.iter_mut().for_each(|source| source.numbers_grow = true);
    config
}

/// The others would have no room until it is settled that the source has nothing of the oldest events, which would last
/// until its time-out.
#[test]
fn a_source_that_sees_one_event_of_many_holds_up_no_other() {
    let mut rig = Rig::started(growing(2));
    rig.feed(1, [10]);
    rig.feed(0, (1..=20).map(|event| 10 * event));
    rig.feed(1, [200, 210]);
    rig.feed(0, [210]);
    assert_eq!(rig.settled, key(21), "without waiting");
    assert_eq!(rig.held.iter().filter(|entry| entry.fragments == 2).count(), 3);
    let account = rig.readout.account(1);
    assert_eq!((account.missing.get(Cause::Skipped), account.missing.total()), (18, 18));
}

/// A damaged fragment gives no time: it gets the place that others show, or none.
#[test]
fn damaged_times_are_no_times() {
    // The right time, one within a plausible step, one far ahead, one behind.
    for (time, is_placed) in [(500, true), (505, false), (1 << 40, false), (30, false)] {
        for (leader, window) in [(0, 1024), (1, 1024), (1, 4)] {
            let mut rig = Rig::started(ReadoutConfig { window, capacity: 4096, ..growing(2) });
            for event in 1..=100 {
                for source in [leader, 1 - leader] {
                    let is_damaged = source == 1 && event == 50;
                    rig.feed_fragments(
                        source,
                        vec![if is_damaged { damaged(1, time) } else { super::fragment(source as u32, 10 * event) }],
                    );
                }
            }
            rig.wait(SOURCE_TIMEOUT);
            rig.wait(SOURCE_TIMEOUT);
            let account = rig.readout.account(1);
            assert_eq!(rig.settled, key(100), "{time}");
            let full = rig.held.iter().filter(|entry| entry.fragments == 2).count();
            assert_eq!(full, if is_placed { 100 } else { 99 }, "{time}: {account:?}");
            assert_eq!(account.corrupt, u64::from(!is_placed), "{time}: {account:?}");
            assert_eq!(rig.missing(key(50)).len(), usize::from(!is_placed), "{time}");
        }
    }
}

/// Nothing shows the place of these fragments: at the beginning, at the end, or of a single source.
#[test]
fn damaged_times_of_one_source_open_no_event() {
    let mut rig = Rig::started(growing(1));
    rig.feed_fragments(0, vec![damaged(0, 5)]);
    rig.feed(0, (1..=20).map(|event| 10 * event));
    rig.feed_fragments(0, vec![damaged(0, 210), damaged(0, 211)]);
    rig.readout.source_disconnected(rig.now, 0, false);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.settled, rig.account(0).corrupt), (key(20), 3), "{:?}", rig.account(0));
}

/// If two sources show the same event, one may have no room, and only the other one's fragment can make room.
#[test]
fn a_source_that_shows_the_same_event_as_one_without_room_is_heard() {
    let mut rig = Rig::started(ReadoutConfig { window: 4, capacity: 8, ..growing(3) });
    rig.feed(2, [10]);
    rig.feed(0, (1..=5).map(|event| 10 * event));
    rig.feed(1, [10, 60, 70]);
    rig.feed(0, [60, 70]);
    rig.feed(2, [60, 70]);
    assert_eq!(rig.settled, key(7), "without waiting");
    assert_eq!(rig.readout.account(2).missing.get(Cause::Skipped), 4);
}

/// Its earlier fragments still wait for the others when it reconnects, and when it leaves again.
#[test]
fn a_source_that_comes_back_before_its_last_words_are_numbered_is_there() {
    let mut rig = Rig::started(growing(2));
    rig.feed(1, [10, 20]);
    for _ in 0..2 {
        rig.readout.source_disconnected(rig.now, 1, true);
        rig.connect(1);
    }
    rig.feed(0, [10, 20, 30]);
    assert_eq!(rig.settled, key(2));
    rig.wait(SOURCE_TIMEOUT);
    rig.wait(SOURCE_TIMEOUT);
    let account = rig.readout.account(1);
    assert_eq!(account.dropped.get(Cause::CutShort), 2, "each cut frame counts");
    assert_eq!((account.missing.get(Cause::TimedOut), account.missing.total()), (1, 1), "it was there, and silent");
}

/// The run ends while other sources are still waited for: fragments without a number came after its end.
#[test]
fn fragments_that_wait_for_a_number_when_the_run_ends_are_counted() {
    let mut rig = Rig::started(growing(2));
    rig.feed(0, [10, 20, 30]);
    rig.feed(1, [10]);
    let before = rig.account(0);
    rig.tell(Message::Finish);
    let account = rig.readout.account(0);
    assert_eq!((before.after_stop, account.received, account.after_stop), (0, 3, 2), "{account:?}");
    assert_eq!(account.received, account.accounted(), "{account:?}");
}
