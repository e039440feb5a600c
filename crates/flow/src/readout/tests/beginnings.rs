//! Beginning and end of a run: the first number, left-overs, lost first events, late sources, and the forced end.

use super::doubts::{kinds, started, truly, wide, wrong_pairs};
use super::*;

/// Sources that may begin anywhere, in the only readout unit.
fn open(sources: u32) -> ReadoutConfig {
    let mut config = ReadoutConfig { is_alone: true, first_is_open: true, ..wide(sources) };
    config.sources.iter_mut().for_each(|source| source.begins_anywhere = true);
    config
}

#[test]
fn left_overs_in_front_of_the_first_event_are_stale_however_many() {
    for count in [1, 3, 8, 30] {
        let mut rig = started(wide(2));
        rig.feed(0, 1..=20);
        rig.feed(1, 901..901 + count);
        rig.feed(1, 1..=20);
        assert_eq!(rig.account(1).stale, count, "{:?}", rig.account(1));
        assert_eq!(rig.settled, key(20));
        assert!((1..=20).all(|number| rig.missing(key(number)).is_empty()));
    }
}

/// Holds for any number of left-overs, in front of any source.
#[test]
fn left_overs_cost_themselves_alone_where_counting_may_begin_anywhere() {
    let of_sources = |count: u64| [(count, 2, 0), (count, 2, 1), (count, 3, 0), (count, 3, 1), (count, 3, 2)];
    for (count, sources, with) in [1, 7, 8, 20].into_iter().flat_map(of_sources) {
        for (begin, most) in [(0, 1), (1, 1), (1, 8), (1, 2000), (500, 2000)] {
            let mut rig = started(ReadoutConfig { window: 2048, ..open(sources) });
            let made = |source: u32| (1..=1000).map(move |number| truly(source, number, begin + number - 1));
            let mut queues: Vec<Vec<Received>> = (0..sources).map(|source| made(source).collect()).collect();
            queues[with].splice(0..0, (901..901 + count).map(|raw| truly(with as u32, 0, raw)));
            for source in (0..sources as usize).cycle().take(8000) {
                // A driver may have read more fragments than there is room for.
                let take = if rig.readout.room(source) > 0 { most.min(queues[source].len()) } else { 0 };
                rig.feed_fragments(source, queues[source].drain(..take).collect());
            }
            let case = format!("{count} left-overs of source {with} of {sources}, {most} at once from {begin}");
            let full = rig.held.iter().filter(|entry| u32::from(entry.fragments) == sources).count();
            assert_eq!(wrong_pairs(&rig), vec![], "{case}");
            assert_eq!((full, rig.account(with).stale), (1000, count), "{case}: {:?}", kinds(&rig, with));
        }
    }
}

/// Recordings, some of which begin later, or have left-overs in front. It makes no difference whether the first number
/// is known.
#[test]
fn recordings_begin_where_they_say() {
    let begins: [(&[u64], u64); 9] = [
        (&[1, 50], 0),
        (&[50, 1], 0),
        (&[1, 600], 0),
        (&[1, 50, 60], 0),
        (&[1, 1, 50], 0),
        (&[1, 1], 12),
        (&[1, 1, 1], 40),
        (&[1, 1, 1], 8),
        (&[1, 1, 1], 12),
    ];
    let ways = |case| [(case, true, 500, 500), (case, false, 500, 10), (case, true, 0, 10), (case, false, 0, 500)];
    for ((begins, left), is_open, ahead, pause) in begins.into_iter().flat_map(ways) {
        let usual = open(begins.len() as u32);
        let mut config = ReadoutConfig { window: 2048, first_is_open: is_open, ..usual };
        config.sources.iter_mut().for_each(|source| (source.is_recorded, source.on_close) = (true, OnClose::End));
        let mut rig = started(config);
        let made = |source: usize| (begins[source]..=1000).map(move |number| truly(source as u32, number, number));
        let mut queues: Vec<Vec<Received>> = (0..begins.len()).map(|source| made(source).collect()).collect();
        queues[0].splice(0..0, (901..901 + left).map(|raw| truly(0, 0, raw)));
        for source in (0..begins.len()).cycle().take(2000) {
            // A driver reads as long as there is room, and may have read more.
            while rig.readout.room(source) > 0 && !queues[source].is_empty() {
                let take = rig.readout.room(source).max(ahead).min(queues[source].len());
                rig.feed_fragments(source, queues[source].drain(..take).collect());
            }
            rig.wait(Duration::from_micros(pause));
        }
        (0..begins.len()).for_each(|source| rig.disconnect(source));
        let case = format!("{begins:?}, {left} left-overs, {is_open}, {ahead}");
        assert_eq!((wrong_pairs(&rig), rig.numbers().last()), (vec![], Some(&1000)), "{case}");
        for (source, &begin) in begins.iter().enumerate() {
            assert_eq!(rig.account(source).in_flight, 1001 - begin, "{case}: {source}, {:?}", kinds(&rig, source));
        }
    }
}

/// Left-overs of a short earlier run are close to the first number of this one, and so are fragments after lost ones.
#[test]
fn left_overs_close_to_the_first_number_are_no_lost_events() {
    for (sources, with) in [(2, 0), (2, 1), (3, 1), (3, 2)] {
        for (first, count, most) in [(2, 1), (2, 3), (2, 7), (2, 8), (2, 9), (9, 2), (5, 12), (14, 30), (2, 40)]
            .into_iter()
            .flat_map(|(first, count)| [1, 3, 500].map(|most| (first, count, most)))
        {
            for (is_open, is_recorded) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut config = ReadoutConfig { window: 2048, first_is_open: is_open, ..open(sources) };
                config.sources.iter_mut().for_each(|source| source.is_recorded = is_recorded);
                let mut rig = started(config);
                let made = |source: u32| (1..=200).map(move |number| truly(source, number, number));
                let mut queues: Vec<Vec<Received>> = (0..sources).map(|source| made(source).collect()).collect();
                queues[with].splice(0..0, (first..first + count).map(|raw| truly(with as u32, 0, raw)));
                for source in (0..sources as usize).cycle().take(3000) {
                    let take = if rig.readout.room(source) > 0 { most.min(queues[source].len()) } else { 0 };
                    rig.feed_fragments(source, queues[source].drain(..take).collect());
                    rig.wait(Duration::from_micros(200));
                }
                let case =
                    format!("{first}, {count} of source {with} of {sources}, {most} at once, {is_open}, {is_recorded}");
                let full = rig.held.iter().filter(|entry| u32::from(entry.fragments) == sources).count();
                assert_eq!(wrong_pairs(&rig), vec![], "{case}: {:?}", kinds(&rig, with));
                assert_eq!((full, rig.account(with).stale), (200, count), "{case}: {:?}", kinds(&rig, with));
            }
        }
    }
}

/// Without left-overs they are lost events, wherever the numbers continue.
#[test]
fn lost_first_events_are_no_left_overs() {
    for (sources, with, begin) in [(2, 0, 2), (2, 1, 2), (2, 1, 9), (3, 2, 15)] {
        for (most, is_open) in [(1, false), (7, false), (500, false), (1, true), (500, true)] {
            let mut rig = started(ReadoutConfig { window: 2048, first_is_open: is_open, ..open(sources) });
            let begin = |source: u32| if source as usize == with { begin } else { 1 };
            let made = |source: u32| (begin(source)..=200).map(move |number| truly(source, number, number));
            let mut queues: Vec<Vec<Received>> = (0..sources).map(|source| made(source).collect()).collect();
            for source in (0..sources as usize).cycle().take(3000) {
                let take = if rig.readout.room(source) > 0 { most.min(queues[source].len()) } else { 0 };
                rig.feed_fragments(source, queues[source].drain(..take).collect());
                rig.wait(Duration::from_micros(200));
            }
            let case = format!("source {with} of {sources}, {most} at once, {is_open}");
            assert_eq!((wrong_pairs(&rig), rig.numbers().last()), (vec![], Some(&200)), "{case}");
            assert_eq!(rig.account(with).in_flight, 201 - begin(with as u32), "{case}: {:?}", kinds(&rig, with));
        }
    }
}

/// A damaged number that is close to the run's first one does not show where a recording begins.
#[test]
fn a_recording_does_not_begin_with_a_damaged_number() {
    let mut config = ReadoutConfig { window: 2048, ..open(2) };
    config.sources.iter_mut().for_each(|source| (source.is_recorded, source.on_close) = (true, OnClose::End));
    let mut rig = started(config);
    let made = |source: u32, begin| (begin..=400).map(move |number| truly(source, number, number));
    let mut queues: [Vec<Received>; 2] = [made(0, 1).collect(), made(1, 50).collect()];
    queues[1][20] = damaged(1, 3);
    for source in (0..2).cycle().take(2000) {
        let take = rig.readout.room(source).min(queues[source].len());
        rig.feed_fragments(source, queues[source].drain(..take).collect());
        rig.wait(Duration::from_micros(500));
    }
    (0..2).for_each(|source| rig.disconnect(source));
    assert_eq!((wrong_pairs(&rig), rig.numbers().last()), (vec![], Some(&400)));
    assert_eq!(rig.account(1).in_flight, 350, "{:?}", kinds(&rig, 1));
}

#[test]
fn a_source_that_comes_later_joins_where_the_others_are() {
    let mut rig = started(wide(2));
    for number in 1..=200 {
        rig.feed(0, [number]);
        if number == 1 {
            rig.wait(SOURCE_TIMEOUT);
        }
    }
    rig.feed(1, 198..=203);
    rig.feed(0, 201..=203);
    assert_eq!(rig.missing(key(203)), []);
    assert_eq!(rig.settled, key(203));
}

#[test]
fn counting_begins_where_the_sources_agree() {
    for first in [0, 1, 2, 5000, 0xff_fff0] {
        let mut rig = started(open(3));
        for number in 0..30 {
            (0..3).for_each(|source| rig.feed(source, [(first + number) & 0xff_ffff]));
        }
        assert_eq!(rig.numbers(), (1..=30).collect::<Vec<_>>(), "from {first}");
        assert!(rig.held.iter().all(|entry| entry.fragments == 3), "from {first}");
    }
}

/// The same triggers, counted in 16 and in 32 bits. One of the boards connects after the other one has sent for a
/// while.
#[test]
fn a_narrow_and_a_wide_counter_that_are_connected_one_after_the_other_agree_in_the_bits_of_both() {
    for (first, late) in [0, 1, 5, 40, 89].into_iter().flat_map(|late| [(0, late), (1, late)]) {
        let mut config = ReadoutConfig { window: 2048, ..open(2) };
        (config.sources[0].counter_bits, config.sources[1].counter_bits) = (16, 32);
        let mut rig = started(config);
        let one = |source: u32, event: u64| truly(source, event, if source == 0 { event & 0xffff } else { event });
        for event in 70_608..70_608 + late {
            rig.feed_fragments(first, vec![one(first as u32, event)]);
            rig.wait(Duration::from_millis(5));
        }
        for event in 70_608 + late..71_000 {
            (0..2).for_each(|source| rig.feed_fragments(source as usize, vec![one(source, event)]));
            rig.wait(Duration::from_millis(5));
        }
        rig.wait(SOURCE_TIMEOUT);
        let case = format!("{late} later than source {first}");
        let full = rig.held.iter().filter(|entry| entry.fragments == 2).count() as u64;
        let times = |entry: &AnnounceEntry| -> Vec<u64> {
            let fragments = rig.fragments(entry.key).into_iter();
            fragments.filter(|one| one.meta.missing_cause().is_none()).map(|one| one.meta.time).collect()
        };
        assert!(rig.held.iter().map(times).all(|times| times.windows(2).all(|pair| pair[0] == pair[1])), "{case}");
        assert!(full >= 392 - late - 8, "{case}: {full}, {:?}", kinds(&rig, 1 - first));
    }
}

#[test]
fn a_wide_counter_of_other_triggers_is_not_placed_by_its_lower_bits() {
    let mut config = ReadoutConfig { window: 2048, ..open(2) };
    (config.sources[0].counter_bits, config.sources[1].counter_bits) = (16, 32);
    let mut rig = started(config);
    (0..40).for_each(|event| rig.feed(0, [5072 + event]));
    rig.wait(SOURCE_TIMEOUT);
    for event in 40..200 {
        rig.feed(0, [5072 + event]);
        rig.feed(1, [70_608 + 30_000 + event]);
    }
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.held.iter().filter(|entry| entry.fragments == 2).count(), 0);
}

/// Files of a few frames: no further fragments can prove the held ones.
#[test]
fn sources_that_end_are_decided_at_once() {
    for (sources, count) in (1..4).flat_map(|sources| (1..12).map(move |count| (sources, count))) {
        let mut config = open(sources);
        config.sources.iter_mut().for_each(|source| source.on_close = OnClose::End);
        let mut rig = started(config);
        for source in 0..sources as usize {
            rig.feed(source, 7..7 + count);
            rig.disconnect(source);
        }
        assert_eq!(rig.numbers(), (1..=count).collect::<Vec<_>>(), "{sources} sources, {count} fragments");
        assert!(rig.held.iter().all(|entry| u32::from(entry.fragments) == sources));
    }
}

/// Source 0 usually begins with 0, source 1 with 1.
#[test]
fn sources_that_usually_begin_elsewhere_agree_too() {
    for (begin, is_off) in [([0, 0], true), ([0, 1], false), ([1, 1], true), ([7, 7], true), ([6, 7], true)] {
        let mut config = open(2);
        config.sources[0].first = 0;
        let mut rig = started(config);
        for number in 0..20 {
            (0..2).for_each(|source| rig.feed(source, [begin[source] + number]));
        }
        assert_eq!(rig.numbers(), (1..=20).collect::<Vec<_>>(), "from {begin:?}");
        assert!(rig.held.iter().all(|entry| entry.fragments == 2), "from {begin:?}");
        let notes = kinds(&rig, 0).into_iter().chain(kinds(&rig, 1));
        assert!(notes.clone().all(|(kind, ..)| kind == NumberingKind::Begin), "from {begin:?}");
        assert_eq!(notes.count() > 0, is_off, "from {begin:?}");
    }
}

/// Two of four sources have lost their first number, and one has left-overs in front: a majority can have begun with 1.
#[test]
fn wrong_numbers_at_the_beginning_do_not_move_it() {
    let mut rig = started(open(4));
    for number in 1..=30 {
        let raw = |source: u32| if source == 3 && number == 1 { 1 << 20 | 1 } else { number };
        if number == 1 {
            rig.feed(0, 978..=984);
        }
        for source in 0..4 {
            let one = if source == 2 && number == 1 { damaged(2, 3) } else { fragment(source, raw(source)) };
            rig.feed_fragments(source as usize, vec![one]);
        }
    }
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.numbers(), (1..=30).collect::<Vec<_>>());
    assert_eq!((rig.account(0).in_flight, rig.account(1).in_flight), (30, 30), "{:?}", rig.account(0));
}

/// The eighth held number follows a gap. The fragments after it show whether it is right.
#[test]
fn a_second_wrong_number_among_the_first_ones_is_paired_with_nothing() {
    for (sources, wrong) in [2, 3, 4].into_iter().flat_map(|sources| (6..=12).map(move |wrong| (sources, wrong))) {
        for is_open in [true, false] {
            let mut rig = started(ReadoutConfig { first_is_open: is_open, window: 256, ..open(sources) });
            for event in 1..=52 {
                for source in 0..sources {
                    let raw = match event {
                        1 if source == 1 => 65,
                        _ if source == 1 && event == wrong => event ^ 32,
                        _ => event,
                    };
                    rig.feed_fragments(source as usize, vec![truly(source, event, raw)]);
                }
                rig.wait(Duration::from_micros(200));
            }
            rig.wait(Duration::from_secs(3));
            let case = format!("{wrong} of {sources}, {is_open}: {:?}", kinds(&rig, 1));
            assert_eq!(wrong_pairs(&rig), vec![], "{case}");
            assert_eq!(rig.account(1).received - rig.account(1).in_flight, 2, "{case}");
        }
    }
}

/// Front-end cards with free-running frame counters.
#[test]
fn counters_that_run_free_begin_with_their_first_number() {
    for is_alone in [true, false] {
        for begins in [[88_123, 5], [0, 1], [0xff_fffc, 70_000], [1, 1]] {
            let mut config = ReadoutConfig { is_alone, first_is_open: is_alone, ..wide(2) };
            config.sources.iter_mut().for_each(|source| (source.runs_free, source.begins_anywhere) = (true, true));
            let mut rig = started(config);
            // One number of source 0 is lost, one of source 1 is wrong.
            let number = |source: usize, index: u64| (begins[source] + index) & 0xff_ffff;
            for index in (0..30).filter(|index| *index != 12) {
                rig.feed(0, [number(0, index)]);
            }
            for index in 0..30 {
                rig.feed(1, [if index == 20 { 0x0f_1234 } else { number(1, index) }]);
            }
            rig.wait(SOURCE_TIMEOUT);
            assert_eq!(rig.numbers(), (1..=30).collect::<Vec<_>>(), "from {begins:?}");
            let missing: Vec<u64> = (1..=30).filter(|&event| !rig.missing(key(event)).is_empty()).collect();
            assert_eq!(missing, [13, 21], "from {begins:?}");
        }
    }
}

/// The first number is wrong, as the following ones show.
#[test]
fn a_counter_that_runs_free_does_not_begin_with_a_wrong_number() {
    let mut config = wide(2);
    config.sources.iter_mut().for_each(|source| (source.runs_free, source.begins_anywhere) = (true, true));
    let mut rig = started(config);
    rig.feed(0, 500..530);
    rig.feed(1, [1 << 19 | 9]);
    rig.feed(1, 10..38);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.account(1).received - rig.account(1).in_flight, 1, "{:?}", rig.account(1));
}

#[test]
fn counting_begins_where_most_agree_behind_any_other_numbers() {
    let mut rig = started(open(3));
    rig.feed(0, 5000..=5007);
    rig.feed(1, [77, 78]);
    rig.feed(1, 5000..=5005);
    assert_eq!([0, 1, 2].map(|source| rig.readout.room(source)), [0, 0, 8]);
    rig.feed(2, 5002..=5009);
    rig.feed(0, 5008..=5009);
    rig.feed(1, 5006..=5009);
    // Source 2 may still send 5000.
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.numbers(), (1..=10).collect::<Vec<_>>());
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(rig.account(1).stale, 2);
}

#[test]
fn the_highest_key_is_reported() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others, [Message::Highest(key(0))], "before the first event");
    rig.feed(0, 1..=7);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others[1], Message::Highest(key(7)));
    rig.feed(1, [300]);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others[2], Message::Highest(key(300)), "though it waits beyond the window");
}

#[test]
fn what_comes_after_the_last_event_is_not_wanted() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=7);
    rig.feed(1, 1..=2);
    rig.tell(Message::StopAt(key(4)));
    assert_eq!(rig.account(0).after_stop, 3, "what is held of later events goes at once");
    rig.feed(1, 3..=8);
    assert_eq!(rig.account(1).after_stop, 4);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 2, 3, 4], key(4)));
    assert!(!rig.readout.is_drained());
    rig.release(key(1), 4, Outcome::Complete);
    assert!(rig.readout.is_drained());
    assert!(rig.readout.room(0) > 0, "sources are still read");
}

#[test]
fn sources_that_lag_behind_the_last_event_are_waited_for() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=2);
    rig.feed(1, 1..=2);
    rig.tell(Message::StopAt(key(5)));
    assert_eq!(rig.settled, key(2));
    rig.feed(0, 3..=4);
    rig.feed(1, 3..=5);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.settled, key(5));
    assert_eq!(rig.missing(key(5)), [(0, Cause::TimedOut)]);
}

/// The run has three planned events, and triggers are rare: not even the sources are known before the first one.
#[test]
fn what_no_source_has_shown_is_not_missing_although_the_run_s_end_is_known() {
    let mut rig = Rig::started(config(2));
    rig.disconnect(0);
    rig.tell(Message::StopAt(key(3)));
    for number in 1..=3 {
        rig.wait(5 * SOURCE_TIMEOUT);
        assert_eq!(rig.settled, key(number - 1));
        if number == 1 {
            rig.connect(0);
        }
        rig.feed(0, [number]);
        rig.feed(1, [number]);
    }
    assert_eq!((rig.settled, rig.numbers()), (key(3), vec![1, 2, 3]));
}

/// A source that is absent for a while loses the events that others showed meanwhile, not the rest of the run.
#[test]
fn a_known_end_settles_no_event_that_no_source_has_shown() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(6)));
    rig.feed(0, 1..=2);
    rig.feed(1, [1]);
    rig.disconnect(0);
    rig.wait(2 * SOURCE_TIMEOUT);
    assert_eq!(rig.missing(key(2)), [(1, Cause::TimedOut)]);
    assert_eq!(rig.settled, key(2));
    rig.connect(0);
    rig.feed(0, 3..=6);
    rig.feed(1, 3..=6);
    assert_eq!((rig.settled, rig.numbers()), (key(6), vec![1, 2, 3, 4, 5, 6]));
}

/// A successor of the event manager asks for the run's last event. The answer must not be the planned one.
#[test]
fn a_run_that_is_stopped_before_its_known_end_ends_there() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(39)));
    rig.feed(0, 1..=6);
    rig.feed(1, 1..=4);
    rig.tell(Message::StopAt(key(4)));
    assert_eq!((rig.account(0).after_stop, rig.settled), (2, key(4)));
    rig.tell(Message::StopAt(key(39)));
    rig.feed(1, 5..=6);
    assert_eq!(rig.account(1).after_stop, 2, "nothing makes it end later");
    rig.release(key(1), 4, Outcome::Complete);
    assert!(rig.readout.is_drained());
    rig.others.clear();
    rig.tell(Message::Recover);
    assert!(rig.others.contains(&Message::StopAt(key(4))), "{:?}", rig.others);
}

#[test]
fn an_end_before_the_first_event_drains_at_once() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(0)));
    assert!(rig.readout.is_drained());
    rig.feed(0, [1]);
    assert_eq!(rig.account(0).after_stop, 1);
}

#[test]
fn the_end_is_announced_even_if_all_sources_have_ended() {
    let mut settings = config(1);
    settings.sources[0].on_close = OnClose::End;
    let mut rig = Rig::started(settings);
    rig.feed(0, 1..=3);
    rig.disconnect(0);
    assert_eq!(rig.settled, EventKey::MAX);
    rig.settled = EventKey::MIN;
    rig.tell(Message::StopAt(key(3)));
    assert_eq!(rig.settled, key(3));
}

#[test]
fn fragments_that_waited_beyond_the_end_are_after_it() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=20);
    rig.tell(Message::StopAt(key(10)));
    assert_eq!((rig.account(0).after_stop, rig.account(0).in_flight), (10, 10));
}

#[test]
fn a_restart_after_the_last_event_is_after_the_end() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.feed(0, 1..=3);
    rig.feed(1, [1, 2, 3, 1]);
    rig.tell(Message::StopAt(key(3)));
    rig.feed(0, [1, 2]);
    rig.feed(1, [2]);
    assert_eq!((rig.account(0).after_stop, rig.account(1).after_stop), (2, 2));
    rig.release(key(1), 3, Outcome::Complete);
    assert!(rig.readout.is_drained());
}

#[test]
fn a_restart_that_is_not_declared_yet_is_after_the_end_too() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.feed(0, 1..=3);
    rig.tell(Message::StopAt(key(3)));
    rig.feed(0, [1, 2]);
    assert_eq!(rig.account(0).after_stop, 2);
}

#[test]
fn exactly_the_last_event_is_announced_as_settled() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=8);
    rig.feed(1, 1..=4);
    rig.tell(Message::StopAt(key(6)));
    rig.feed(1, 5..=8);
    assert_eq!(rig.settled, key(6));
}

#[test]
fn the_end_is_not_reached_before_it_was_announced() {
    let mut rig = Rig::started(config(1));
    rig.readout.message(rig.now, NodeId::MANAGER, &Message::StopAt(key(0)));
    assert!(!rig.readout.is_drained());
    rig.poll();
    assert!(rig.readout.is_drained());
}

#[test]
fn a_second_start_changes_nothing_and_a_second_stop_is_answered_again() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=3);
    rig.tell(Message::Start(Start::of_run(key(100))));
    rig.tell(Message::StopAt(key(3)));
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 2, 3], key(3)));
    rig.settled = EventKey::MIN;
    rig.tell(Message::StopAt(key(3)));
    assert_eq!(rig.settled, key(3));
}

#[test]
fn the_end_may_lie_in_a_count_that_has_not_begun() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.feed(0, [1, 2, 1, 2, 3]);
    rig.tell(Message::StopAt(EventKey::new(1, 2)));
    assert!(!rig.readout.is_drained());
    rig.tell(Message::Resync(Resync { first: EventKey::new(1, 1) }));
    assert_eq!((rig.settled, rig.account(0).after_stop), (EventKey::new(1, 2), 1));
    rig.release(key(1), 2, Outcome::Complete);
    rig.release(EventKey::new(1, 1), 2, Outcome::Complete);
    assert!(rig.readout.is_drained());
}

#[test]
fn the_farewell_is_a_report_and_then_nothing_in_flight() {
    let mut rig = Rig::started(config(5));
    (0..5).for_each(|source| rig.feed(source, [1]));
    rig.tell(Message::StopAt(key(1)));
    rig.release(key(1), 1, Outcome::Complete);
    rig.tell(Message::Finish);
    let Some((Message::Finished(finished), reports)) = rig.others.split_last() else { panic!("finished comes last") };
    assert_eq!(finished.in_flight, 0);
    let lasts: Vec<_> =
        reports.iter().map(|message| matches!(message, Message::Report(Report { last: true, .. }))).collect();
    assert_eq!(lasts, [false, false, true], "five sources do not fit into one message");
}

#[test]
fn what_is_held_when_the_run_ends_by_force_is_dropped_by_name() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=20);
    rig.feed(1, [1]);
    rig.tell(Message::Finish);
    assert_eq!(rig.others.last(), Some(&Message::Finished(Finished { in_flight: 21 })));
    let total = rig.readout.total();
    assert_eq!((total.dropped.get(Cause::ForcedStop), total.in_flight), (21, 0));
    rig.feed(1, [2]);
    assert_eq!(rig.account(1).dropped.get(Cause::ForcedStop), 2);
}

/// The readout unit restarted in mid-run, and its sources continue to count.
#[test]
fn a_readout_unit_that_begins_later_than_the_run_numbers_events_as_the_others() {
    let mut rig = Rig::new(config(2));
    rig.connect(0);
    rig.connect(1);
    rig.tell(Message::Start(Start { first: key(40), origin: key(1) }));
    rig.feed(0, 38..=42);
    rig.feed(1, 41..=42);
    assert_eq!((rig.numbers(), rig.settled), (vec![40, 41, 42], key(42)));
    assert_eq!((rig.account(0).stale, rig.missing(key(40))), (2, vec![(1, Cause::Skipped)]));
}

/// The sources lost different amounts of data while the readout unit was away.
#[test]
fn sources_join_a_readout_unit_that_begins_later_than_the_run_wherever_they_are() {
    for begins in [[40, 40, 40], [40, 57, 140], [57, 40, 40], [300, 60, 61], [3000, 2990, 2800], [200, 5000, 201]] {
        let mut rig = Rig::doubting(ReadoutConfig { window: 64, capacity: 4096, plausibility: 100_000, ..config(3) });
        (0..3).for_each(|source| rig.connect(source));
        rig.tell(Message::Start(Start { first: key(40), origin: key(1) }));
        let mut next = begins;
        let end = begins[0].max(begins[1]).max(begins[2]) + 1000;
        for turn in 0..20_000 {
            for (source, next) in next.iter_mut().enumerate() {
                let room = rig.readout.room(source).min(3 + turn % 5).min((end - *next) as usize);
                rig.feed(source, *next..*next + room as u64);
                *next += room as u64;
            }
            rig.wait(Duration::from_micros(200));
            rig.release(key(40), (rig.settled.number().max(39) - 39) as u32, Outcome::Complete);
        }
        assert_eq!(next, [end; 3], "{begins:?}");
        for account in (0..3).map(|source| rig.account(source)) {
            assert_eq!(account.stale + account.late + account.dropped.total(), 0, "{begins:?}: {account:?}");
        }
    }
}
