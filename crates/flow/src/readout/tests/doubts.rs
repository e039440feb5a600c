//! Numbers that do not continue their sequence: the following numbers and other sources determine their meaning.

use super::*;
use proptest::prelude::*;

const WINDOW: u32 = 64;

pub(super) fn wide(sources: u32) -> ReadoutConfig {
    ReadoutConfig { window: WINDOW, capacity: 4096, ..config(sources) }
}

pub(super) fn started(config: ReadoutConfig) -> Rig {
    Rig::doubting(config).start()
}

/// A fragment with a possibly wrong number, whose time is the number of its true event.
pub(super) fn truly(source: u32, number: u64, raw: u64) -> Received {
    let mut one = fragment(source, raw);
    (one.meta.time, one.meta.flags) = (number, FragmentFlags::HAS_TIME);
    one
}

fn release_settled(rig: &mut Rig) {
    rig.release(key(1), rig.settled.number() as u32, Outcome::Complete);
}

/// Returns the events in which a source has a fragment of another event.
pub(super) fn wrong_pairs(rig: &Rig) -> Vec<(EventKey, u64)> {
    let all = rig.held.iter().flat_map(|entry| rig.fragments(entry.key).into_iter().map(|one| (entry.key, one.meta)));
    let wrong = all.filter(|(key, meta)| meta.missing_cause().is_none() && meta.time != key.number());
    wrong.map(|(key, meta)| (key, meta.time)).collect()
}

pub(super) fn kinds(rig: &Rig, source: usize) -> Vec<(NumberingKind, u64, u64, u64)> {
    rig.readout.sources[source].numbering.iter().map(|one| (one.kind, one.from, one.to, one.size)).collect()
}

#[test]
fn one_wrong_number_costs_one_fragment() {
    for wrong in [5, 3, 499, 501, 600, 500 + 3000, 500 ^ 1 << 10, 500 ^ 1 << 20, 0, 1] {
        let mut rig = started(wide(2));
        for number in 1..=1000 {
            rig.feed(0, [number]);
            rig.feed(1, [if number == 500 { wrong } else { number }]);
        }
        assert_eq!(rig.numbers(), (1..=1000).collect::<Vec<_>>(), "{wrong}");
        let full = rig.held.iter().filter(|entry| rig.missing(entry.key).is_empty()).count();
        assert_eq!(full, 999, "{wrong}: {:?}", rig.account(1));
        assert_eq!(rig.missing(key(500)).len(), 1, "{wrong}");
        assert!(kinds(&rig, 1).len() <= 1, "{wrong}: {:?}", kinds(&rig, 1));
    }
}

#[test]
fn a_damaged_fragment_moves_nothing_and_is_in_its_event_if_it_says_so() {
    for (raw, full) in [(5, true), (5 ^ 1 << 14, false), (4, false), (6, false), (1, false)] {
        let mut rig = started(wide(2));
        rig.feed(0, 1..=9);
        rig.feed(1, 1..=4);
        rig.feed_fragments(1, vec![damaged(1, raw)]);
        assert_eq!(rig.settled, key(4), "what a damaged fragment says is no evidence");
        rig.feed(1, 6..=9);
        assert_eq!(rig.settled, key(9), "{raw}");
        assert_eq!(rig.missing(key(5)).is_empty(), full, "{raw}");
        assert_eq!(rig.account(1).corrupt, u64::from(!full), "{raw}");
        assert!((6..=9).all(|number| rig.missing(key(number)).is_empty()), "{raw}");
    }
}

#[test]
fn fragments_that_are_all_damaged_have_their_events() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=20);
    for number in 1..=20 {
        rig.feed_fragments(1, vec![damaged(1, number)]);
    }
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.account(1).corrupt, rig.account(1).in_flight), (0, 20));
}

#[test]
fn a_damaged_fragment_opens_no_event() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=3);
    rig.feed_fragments(0, vec![damaged(0, 4)]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.numbers(), rig.account(0).corrupt), (vec![1, 2, 3], 1));
}

#[test]
fn a_gap_is_believed_when_three_numbers_go_on_behind_it() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=60);
    rig.feed(1, 1..=9);
    rig.feed(1, [20, 21]);
    assert_eq!(rig.settled, key(9), "two may be mistakes");
    rig.feed(1, [22]);
    assert_eq!(rig.settled, key(22));
    assert_eq!(kinds(&rig, 1), [(NumberingKind::Gap, 9, 20, 10)]);
    assert_eq!(rig.gaps(1), [(10, 19, 10)]);
}

#[test]
fn a_gap_is_believed_although_numbers_behind_it_come_twice() {
    let mut rig = started(wide(1));
    rig.feed(0, [1, 2, 3, 4, 6, 7, 8, 8, 9, 9, 10, 10]);
    assert_eq!((kinds(&rig, 0), rig.settled), (vec![(NumberingKind::Gap, 4, 6, 1)], key(10)));
    assert_eq!(rig.account(0).duplicate, 3);
    rig.feed(0, [25; 12]);
    assert_eq!(rig.settled, key(10), "a counter that stands still shows nothing");
}

#[test]
fn a_gap_longer_than_the_window_is_believed_when_eight_numbers_go_on() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=60);
    rig.feed(1, 1..=9);
    rig.feed(1, 500..=506);
    assert_eq!(rig.settled, key(9));
    rig.feed(1, 507..=510);
    for number in 61..=512 {
        rig.feed(0, [number]);
    }
    rig.feed(1, 511..=512);
    assert_eq!(rig.settled, key(512));
    assert!((500..=512).all(|number| rig.missing(key(number)).is_empty()));
}

#[test]
fn a_gap_at_a_low_rate_is_believed_where_the_run_is_just_there() {
    let mut rig = started(wide(2));
    for number in [1, 2, 3, 7, 8, 9] {
        rig.feed(0, [number]);
        rig.wait(SOURCE_TIMEOUT / 4);
        rig.feed(1, [number]);
        rig.wait(SOURCE_TIMEOUT * 3);
    }
    assert_eq!(rig.numbers(), [1, 2, 3, 7, 8, 9]);
    assert!(rig.held.iter().all(|entry| entry.fragments == 2), "{:?}", rig.held);
}

#[test]
fn a_wrong_number_at_a_low_rate_opens_nothing() {
    let mut rig = started(wide(2));
    for number in 1..=9 {
        rig.feed(0, [number]);
        rig.feed(1, [if number == 5 { 13 } else { number }]);
        rig.wait(SOURCE_TIMEOUT * 3);
    }
    assert_eq!(rig.numbers(), (1..=9).collect::<Vec<_>>());
    assert_eq!(rig.held.iter().filter(|entry| entry.fragments == 2).count(), 8);
    assert_eq!(rig.account(1).dropped.get(Cause::ImplausibleJump), 1);
}

#[test]
fn what_comes_behind_numbers_that_were_believed_without_it_is_late() {
    for is_released in [false, true] {
        let mut rig = started(wide(2));
        rig.feed(0, 1..=20);
        rig.feed(1, (1..=20).filter(|number| ![5, 12].contains(number)));
        if is_released {
            release_settled(&mut rig);
        }
        rig.feed(1, [12, 5, 21, 22, 23]);
        let account = rig.account(1);
        assert_eq!((account.late, account.dropped.get(Cause::ImplausibleJump)), (2, 0), "{account:?}");
        rig.feed(1, [6, 24, 25, 26]);
        assert_eq!(rig.account(1).late, 2, "that was there");
    }
}

#[test]
fn two_that_change_places_are_put_in_order() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=9);
    rig.feed(1, [1, 2, 3, 5, 4, 6, 7, 8, 9]);
    assert_eq!(rig.settled, key(9));
    assert!((1..=9).all(|number| rig.missing(key(number)).is_empty()));
}

#[test]
fn numbers_with_a_fixed_step_go_on_plainly() {
    let mut rig = started(wide(2));
    for number in 1..=200 {
        rig.feed(0, [10 * number]);
        rig.feed(1, [10 * number]);
        release_settled(&mut rig);
    }
    rig.wait(SOURCE_TIMEOUT);
    for source in 0..2 {
        let account = rig.account(source);
        assert_eq!(account.in_flight + account.in_complete_events, 200, "{account:?}");
    }
}

#[test]
fn numbers_with_irregular_steps_are_all_taken() {
    let mut rig = started(wide(2));
    let numbers: Vec<u64> = (1..400_u64).filter(|number| number * 7919 % 5 < 2 || number % 11 == 3).collect();
    for chunk in numbers.chunks(4) {
        rig.feed(0, chunk.iter().copied());
        rig.feed(1, chunk.iter().copied());
        release_settled(&mut rig);
    }
    rig.wait(SOURCE_TIMEOUT);
    assert!(rig.held.iter().all(|entry| entry.fragments == 2), "{:?}", rig.held.iter().find(|one| one.fragments != 2));
    assert_eq!(rig.held.len(), numbers.len());
}

/// Returns a fragment with the bunch crossing and time stamp of this event's trigger.
fn marked(source: u32, number: u64, raw: u64) -> Received {
    let mut one = fragment(source, raw);
    one.meta.flags = FragmentFlags::HAS_BUNCH_CROSSING.with(FragmentFlags::HAS_TIME);
    one.meta.bunch_crossing = (number * 7919 % 3564) as u16;
    one.meta.time = (1 + u64::from(source)) * (number * 1000 + number * number * 37 % 901);
    one
}

/// Source 1 restarts its numbering at event 31 while source 0 continues. The contents of its fragments show its
/// position.
fn restarted_at_31(mark: impl Fn(u32, u64, u64) -> Received) -> Rig {
    let mut rig = started(wide(2));
    for number in 1..=60 {
        rig.feed_fragments(0, vec![mark(0, number, number)]);
    }
    for number in 1..=60 {
        rig.feed_fragments(1, vec![mark(1, number, if number > 30 { number - 30 } else { number })]);
    }
    rig.wait(SOURCE_TIMEOUT);
    rig
}

#[test]
fn after_a_restart_bunch_crossings_or_times_tell_where_a_source_is() {
    let both = restarted_at_31(marked);
    let crossings = restarted_at_31(|source, number, raw| {
        let mut one = marked(source, number, raw);
        one.meta.flags = FragmentFlags::HAS_BUNCH_CROSSING;
        one
    });
    let times = restarted_at_31(|source, number, raw| {
        let mut one = marked(source, number, raw);
        one.meta.flags = FragmentFlags::HAS_TIME;
        one
    });
    for rig in [both, crossings, times] {
        assert_eq!((rig.settled, rig.account(1).in_flight), (key(60), 60), "{:?}", rig.account(1));
        let expected = [(NumberingKind::Restart, 30, 1, 0), (NumberingKind::Recovered, 30, 1, 0)];
        assert_eq!(kinds(&rig, 1), expected);
    }
}

#[test]
fn after_a_restart_of_which_nothing_tells_the_place_a_source_is_out_of_sync() {
    let rig = restarted_at_31(|source, _, raw| fragment(source, raw));
    assert_eq!(rig.account(1).dropped.get(Cause::OutOfSync), 30);
    let expected = [NumberingKind::Restart, NumberingKind::OutOfSync].map(|kind| (kind, 30, 1, 0));
    assert_eq!((rig.settled, kinds(&rig, 1)), (key(60), expected.to_vec()));
    let rig = restarted_at_31(|source, _, raw| Received {
        meta: FragmentMeta { bunch_crossing: 7, ..marked(source, 1, raw).meta },
        ..fragment(source, raw)
    });
    assert_eq!(rig.account(1).dropped.get(Cause::OutOfSync), 30, "what is the same everywhere tells nothing");
}

/// Source 1 loses `lost` events after event 20, or its numbers continue that much higher.
fn jumped_at_21(lost: u64, is_loss: bool, mark: impl Fn(u32, u64, u64) -> Received) -> Rig {
    let mut rig = started(wide(2));
    for number in 1..=40 {
        rig.feed_fragments(0, vec![mark(0, number, number)]);
        let event = if is_loss && number > 20 { number + lost } else { number };
        rig.feed_fragments(1, vec![mark(1, event, if number > 20 { number + lost } else { number })]);
    }
    for number in 41..=40 + lost * u64::from(is_loss) {
        rig.feed_fragments(0, vec![mark(0, number, number)]);
    }
    rig.wait(SOURCE_TIMEOUT);
    rig
}

#[test]
fn numbers_that_go_on_elsewhere_are_where_crossings_or_times_say() {
    for lost in [30, 40] {
        let rig = jumped_at_21(lost, false, marked);
        assert_eq!((rig.settled, rig.account(1).in_flight), (key(40), 40), "{lost}: {:?}", rig.account(1));
        let expected = [(NumberingKind::Restart, 20, 21 + lost, 0), (NumberingKind::Recovered, 20, 21 + lost, 0)];
        assert_eq!(kinds(&rig, 1), expected);
    }
}

/// Source 1 counts from 1 again for a while, `lag` behind the others, and then returns to the right numbers.
#[test]
fn a_counter_that_is_right_again_is_where_crossings_say() {
    for (wrong, lag) in [(6, 0), (6, 1), (12, 1), (12, 20), (30, 3)] {
        let mut rig = started(wide(2));
        for number in 1..=80_u64 {
            rig.feed_fragments(0, vec![marked(0, number, number)]);
            if let Some(number) = number.checked_sub(lag).filter(|&number| number > 0) {
                let raw = if (21..21 + wrong).contains(&number) { number - 20 } else { number };
                rig.feed_fragments(1, vec![marked(1, number, raw)]);
            }
        }
        rig.wait(SOURCE_TIMEOUT);
        let all =
            rig.held.iter().flat_map(|entry| rig.fragments(entry.key).into_iter().map(|one| (entry.key, one.meta)));
        let all = all.filter(|(_, meta)| meta.missing_cause().is_none());
        let wrong_pairs: Vec<_> =
            all.filter(|(key, meta)| meta.bunch_crossing != marked(0, key.number(), 0).meta.bunch_crossing).collect();
        assert_eq!(wrong_pairs, [], "{wrong} wrong, {lag} behind");
        assert_eq!(rig.account(1).in_flight, 80 - lag, "{wrong} wrong, {lag} behind: {:?}", kinds(&rig, 1));
    }
}

/// Source 1 counts from 1 again in events 21 to 32 and is right after them. Source 0 shows `shown` of the events after
/// 32.
fn right_again_at_33(shown: std::ops::RangeInclusive<u64>, last: u64, mark: impl Fn(u32, u64, u64) -> Received) -> Rig {
    let mut rig = started(wide(2));
    (1..=32).chain(shown).for_each(|number| rig.feed_fragments(0, vec![mark(0, number, number)]));
    for number in 1..=last {
        let raw = if (21..33).contains(&number) { number - 20 } else { number };
        rig.feed_fragments(1, vec![mark(1, number, raw)]);
    }
    rig.wait(SOURCE_TIMEOUT);
    rig
}

#[test]
fn a_few_numbers_of_a_counter_that_is_right_again_are_where_two_crossings_say() {
    // Held numbers, events that the other source shows, and how many of the held ones get a place.
    for (shown, last, placed) in
        [(33..=80, 35, 3), (33..=80, 33, 0), (33..=34, 40, 8), (37..=39, 40, 8), (33..=33, 40, 0)]
    {
        let rig = right_again_at_33(shown.clone(), last, marked);
        let dropped = rig.account(1).dropped.get(Cause::ImplausibleJump);
        assert_eq!((rig.account(1).in_flight, dropped), (32 + placed, last - 32 - placed), "{shown:?} and {last}");
    }
}

#[test]
fn a_counter_that_is_right_again_and_sends_twice_is_where_crossings_say() {
    let mut rig = started(wide(2));
    (1..=60).for_each(|number| rig.feed_fragments(0, vec![marked(0, number, number)]));
    for number in 1..=40 {
        let raw = if (21..33).contains(&number) { number - 20 } else { number };
        (0..if number > 32 { 2 } else { 1 }).for_each(|_| rig.feed_fragments(1, vec![marked(1, number, raw)]));
    }
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.account(1).in_flight, rig.account(1).duplicate), (40, 8), "{:?}", kinds(&rig, 1));
}

#[test]
fn a_counter_that_is_right_again_behind_a_gap_is_where_crossings_say() {
    for skipped in [34..43, 33..43, 35..36] {
        let mut rig = started(wide(2));
        (1..=60).for_each(|number| rig.feed_fragments(0, vec![marked(0, number, number)]));
        for number in (1..=47).filter(|number| !skipped.contains(number)) {
            let raw = if (21..33).contains(&number) { number - 20 } else { number };
            rig.feed_fragments(1, vec![marked(1, number, raw)]);
        }
        rig.wait(SOURCE_TIMEOUT);
        let there = 47 - (skipped.end - skipped.start);
        assert_eq!(rig.account(1).in_flight, there, "{skipped:?}: {:?}", rig.account(1).dropped);
    }
}

/// The other source's crossings contradict both places of these numbers.
#[test]
fn numbers_of_which_crossings_say_that_they_belong_nowhere_are_in_no_event() {
    let strange =
        |source, number, raw| marked(source, if source == 1 && number > 32 { number + 1000 } else { number }, raw);
    let rig = right_again_at_33(33..=80, 40, strange);
    assert_eq!((rig.account(1).in_flight, rig.account(1).dropped.get(Cause::ImplausibleJump)), (32, 8));
}

#[test]
fn a_new_numbering_ends_with_its_connection() {
    let mut rig = started(wide(1));
    rig.feed(0, (1..=18).chain(1..=5));
    rig.disconnect(0);
    rig.connect(0);
    rig.feed(0, 25..=40);
    assert_eq!((rig.account(0).in_flight, rig.account(0).dropped.get(Cause::OutOfSync)), (34, 5));
}

/// The other sources are in other readout units, and no more fragments than these arrive in time.
#[test]
fn a_gap_of_the_only_source_here_is_believed_when_time_is_over() {
    let mut rig = started(wide(1));
    rig.feed(0, 1..=6);
    rig.feed(0, 8..=12);
    rig.wait(SOURCE_TIMEOUT / 2);
    assert_eq!((rig.account(0).in_flight, kinds(&rig, 0)), (11, vec![(NumberingKind::Gap, 6, 8, 1)]));
}

#[test]
fn a_short_gap_is_believed_when_time_is_over_although_others_are_late() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=3);
    rig.feed(1, (1..=8).chain(10..=12));
    rig.wait(SOURCE_TIMEOUT / 2);
    assert_eq!(kinds(&rig, 1), [(NumberingKind::Gap, 8, 10, 1)]);
    rig.feed(0, 4..=12);
    assert_eq!((rig.settled, rig.missing(key(9)), rig.missing(key(10))), (key(12), vec![(1, Cause::Skipped)], vec![]));
}

/// Both sources lost the same events, and one of them a few more. No third source shows this.
#[test]
fn a_long_gap_that_two_sources_share_is_believed_when_time_is_over() {
    // Within the window, and beyond it.
    for (one, other) in [(48..=50, 50..=52), (48..=49, 49..=50), (40..=41, 48..=50), (88..=90, 90..=92)] {
        let mut rig = started(wide(2));
        rig.feed(0, (1..=9).chain(one.clone()));
        rig.feed(1, (1..=12).chain(other.clone()));
        rig.wait(SOURCE_TIMEOUT);
        let dropped = [0, 1].map(|source| rig.account(source).dropped.get(Cause::ImplausibleJump));
        let is_shared = one.end() >= other.start();
        assert_eq!(dropped == [0, 0], is_shared, "{one:?} and {other:?}: {dropped:?}");
    }
}

#[test]
fn what_waits_for_room_shows_its_event() {
    let mut rig = started(config(2));
    rig.feed(0, 1..=17);
    rig.feed(1, [17, 18, 19]);
    assert_eq!(kinds(&rig, 1), [(NumberingKind::Gap, 0, 17, 16)]);
}

#[test]
fn a_gap_is_a_gap_with_any_crossings_and_times() {
    let constant = |source, _, raw| Received {
        meta: FragmentMeta { bunch_crossing: 7, ..marked(source, 1, raw).meta },
        ..fragment(source, raw)
    };
    for mark in [marked, constant] {
        let rig = jumped_at_21(30, true, mark);
        assert_eq!((rig.settled, kinds(&rig, 1)), (key(70), vec![(NumberingKind::Gap, 20, 51, 30)]));
        assert_eq!(rig.account(1).in_flight, 40);
    }
}

#[test]
fn a_source_that_was_out_of_sync_by_mistake_comes_back() {
    let mut rig = started(wide(2));
    for number in 1..=20 {
        rig.feed(0, [number]);
        rig.feed(1, [if number == 5 { 1 } else { number }]);
        rig.wait(SOURCE_TIMEOUT * 3);
    }
    assert!(rig.account(1).dropped.total() <= 4, "{:?}", rig.account(1));
    assert!((9..=20).all(|number| rig.missing(key(number)).is_empty()));
}

#[test]
fn numbers_that_are_zero_are_no_restart() {
    for (zeros, wrong) in [(2, 0), (3, 0), (5, 0), (2, 1), (3, 7), (7, 0)] {
        let mut settings = wide(2);
        settings.trigger = Some(settings.sources[0].id);
        let mut rig = started(settings);
        rig.feed(0, 1..=300);
        rig.feed(1, 1..=128);
        rig.feed(1, (0..zeros).map(|_| wrong));
        rig.feed(1, 129 + zeros..=300);
        rig.wait(SOURCE_TIMEOUT * 3);
        let account = rig.account(1);
        assert_eq!(account.in_flight + zeros, 300, "{zeros} of {wrong}: {account:?} {:?}", kinds(&rig, 1));
    }
}

/// The event rate is so low that the time is over before the next event.
#[test]
fn a_wrong_number_near_the_first_one_is_no_restart_at_a_low_rate() {
    for (wrong, restarts) in [(0, false), (1, false), (5, false), (1, true)] {
        let mut rig = started(wide(2));
        for number in 1..=40 {
            rig.feed(0, [number]);
            let counted = if restarts && number > 20 { number - 19 } else { number };
            rig.feed(1, [if number == 20 { wrong } else { counted }]);
            rig.wait(SOURCE_TIMEOUT * 2);
        }
        let good = rig.held.iter().filter(|entry| entry.fragments == 2).count();
        let is_named = kinds(&rig, 1).iter().any(|&(kind, ..)| kind == NumberingKind::Restart);
        assert_eq!((good, is_named), if restarts { (19, true) } else { (39, false) }, "{wrong}: {:?}", kinds(&rig, 1));
    }
}

#[test]
fn a_restart_is_named_when_it_is_proved() {
    let mut rig = started(ReadoutConfig { trigger_elsewhere: true, ..wide(2) });
    rig.feed(0, 1..=30);
    rig.feed(1, 1..=10);
    rig.feed(1, 1..=3);
    assert_eq!(kinds(&rig, 1), [(NumberingKind::Restart, 10, 1, 0)]);
    assert_eq!(rig.settled, key(30));
}

#[test]
fn what_is_sent_once_more_is_no_restart() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=60);
    rig.feed(1, 1..=40);
    rig.feed(1, 21..=60);
    assert_eq!((rig.settled, rig.account(1).duplicate), (key(60), 20));
    assert!((1..=60).all(|number| rig.missing(key(number)).is_empty()));
}

#[test]
fn doubt_is_bounded_in_fragments_and_time() {
    let mut rig = started(wide(1));
    rig.feed(0, 1..=4);
    rig.feed(0, (0..40).map(|number| 100_000 + 7001 * (number % 3) + number));
    assert!(rig.readout.sources[0].doubt.len() <= 8);
    rig.wait(SOURCE_TIMEOUT / 2);
    assert!(rig.readout.sources[0].doubt.is_empty());
}

#[test]
fn a_fragment_that_the_framer_gave_up_has_a_place() {
    let mut rig = started(wide(2));
    rig.feed(0, 1..=9);
    let lost = || Received { meta: FragmentMeta::missing(SourceId(1), Cause::CutShort), ..fragment(1, 0) };
    rig.feed_fragments(1, vec![fragment(1, 1), lost(), fragment(1, 3), lost(), lost(), fragment(1, 6), fragment(1, 7)]);
    assert_eq!(rig.settled, key(7));
    rig.feed_fragments(1, vec![lost(), fragment(1, 8), fragment(1, 10)]);
    assert_eq!(rig.settled, key(8), "one was given up before event 8, and none behind it");
}

/// A fault of one number.
#[derive(Copy, Clone, Debug)]
enum Fault {
    Flip { bit: u32, is_checked: bool },
    Garbage(u64),
}

fn fault(bits: u32) -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..bits, any::<bool>()).prop_map(|(bit, is_checked)| Fault::Flip { bit, is_checked }),
        (0..1_u64 << bits).prop_map(Fault::Garbage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// The promise: k bad numbers cost at most k fragments, pair nothing wrongly, and block nothing.
    #[test]
    fn bad_numbers_cost_no_more_than_themselves(
        bits in prop_oneof![Just(16_u32), Just(24), Just(32)],
        faults in prop::collection::btree_map((0..3_usize, 1_u64..300), fault(16), 0..12),
        lag in 0_u64..40,
        rest in 0_u64..3,
    ) {
        const EVENTS: u64 = 320;
        let mut settings = wide(3);
        settings.sources.iter_mut().for_each(|source| source.counter_bits = bits as u8);
        let mut rig = started(settings);
        let mask = (1_u64 << bits) - 1;
        let made = |source: usize, number: u64| {
            let (raw, is_checked) = match faults.get(&(source, number)) {
                Some(Fault::Flip { bit, is_checked }) => (number ^ 1 << (bit % bits), *is_checked),
                Some(Fault::Garbage(raw)) => (*raw, false),
                None => (number, false),
            };
            let mut one = truly(source as u32, number, raw & mask);
            if is_checked {
                one.meta.flags = one.meta.flags.with(FragmentFlags::CRC_ERROR);
            }
            one
        };
        for number in 1..=EVENTS + 2 * lag {
            for (source, behind) in [(0, 0), (1, lag), (2, lag / 2)] {
                let Some(number) = number.checked_sub(behind).filter(|&number| number > 0 && number <= EVENTS) else { continue };
                rig.feed_fragments(source, vec![made(source, number)]);
            }
        }
        rig.wait(SOURCE_TIMEOUT * (1 + rest as u32));
        // Two wrong numbers may look like fragments in exchanged places.
        let is_exchanged = |&(key, number): &(EventKey, u64)| {
            (0..3).any(|source| [key.number(), number].iter().all(|&one| faults.contains_key(&(source, one))))
        };
        let wrong: Vec<_> = wrong_pairs(&rig).into_iter().filter(|pair| !is_exchanged(pair)).collect();
        prop_assert_eq!(wrong, vec![]);
        prop_assert_eq!(rig.settled, key(EVENTS));
        for source in 0..3 {
            let bad = faults.keys().filter(|(whose, _)| *whose == source).count() as u64;
            let account = rig.account(source);
            prop_assert!(account.in_flight + bad >= EVENTS, "source {}: {:?} {:?}", source, account, kinds(&rig, source));
        }
    }
}

/// A counter that is set forward looks like a loss until the times show the position.
#[test]
fn numbers_between_the_counts_of_a_board_that_was_set_forward_are_no_missing_frames() {
    for lost in [0, 3] {
        let mut rig = started(wide(2));
        let time = |number: u64| number * 1000 + number * number * 7 % 900;
        for number in 1..=200 {
            let jumps = number == 100;
            let raw = if number < 100 { number } else { number + 90_000 };
            for missing in [lost * u64::from(number == 50), 90_000 * u64::from(jumps)] {
                rig.readout.note_frames(rig.now, 1, FrameCounts { missing, ..FrameCounts::NONE });
            }
            rig.feed_fragments(0, vec![truly(0, time(number), number)]);
            rig.feed_fragments(1, vec![truly(1, time(number), raw)]);
        }
        rig.wait(SOURCE_TIMEOUT);
        assert!(kinds(&rig, 1).iter().any(|(kind, ..)| *kind == NumberingKind::Recovered), "{:?}", kinds(&rig, 1));
        assert_eq!(rig.readout.sources[1].statistics.frames_missing, lost);
        assert_eq!(rig.account(1).in_flight, 200);
    }
}
