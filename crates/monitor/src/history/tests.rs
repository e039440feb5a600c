//! What is kept, for how long, and how several looks become one.

use super::{History, SERIES, Stretch};
use crate::made_up::{sample, source};
use crate::{Distribution, Sample};
use ropewalk_terms::{Counter, Measure, Utc};

/// A time of 2001 that begins a minute and an hour.
const START: i64 = 1_000_000_800;

/// A history that saw a run with so many events built in each of these seconds after [`START`].
fn seen(seconds: impl IntoIterator<Item = (i64, u64)>) -> History {
    let mut history = History::default();
    let mut built = 0;
    for (second, events) in seconds {
        built += events;
        history.observe(look(second, built, 0));
    }
    history
}

/// A look in a second after [`START`].
fn look(second: i64, built: u64, held: u64) -> Sample {
    // The monotonic clock began before the first of them.
    let mut look = sample((second + 10_000) as u64, vec![source(1, built)]);
    look.utc = Utc((START + second) * 1_000_000_000);
    look.events.built = built;
    look.nodes[0].numbers.add(Counter::PoolHeld, held);
    look
}

fn series<'a>(stretch: &'a Stretch, name: &str) -> &'a [Option<f32>] {
    let place = SERIES.iter().position(|series| series.name == name).expect("there is one of this name");
    &stretch.series[place]
}

#[test]
fn each_second_has_what_was_seen_in_it_and_one_without_a_look_has_nothing() {
    let history = seen([(0, 0), (1, 10), (2, 20), (4, 80), (5, 30)]);
    let stretch = history.stretch(0, 1);
    assert_eq!(
        (stretch.step_seconds, stretch.times.as_slice()),
        (1, &[1, 2, 3, 4, 5].map(|second| START + second)[..])
    );
    assert_eq!(series(&stretch, "events_per_second"), [Some(10.0), Some(20.0), None, Some(40.0), Some(30.0)]);
    assert_eq!(series(&stretch, "bytes_in_per_second")[0], Some(1_000.0));
    let part = history.stretch(START + 4, 1);
    assert_eq!(series(&part, "events_per_second"), [Some(40.0), Some(30.0)]);
}

#[test]
fn longer_steps_have_the_mean_of_rates_and_the_greatest_occupancy() {
    let mut history = History::default();
    for (second, built, held) in [(0, 0, 0), (1, 10, 50), (2, 40, 90), (3, 50, 20)] {
        history.observe(look(second, built, held));
    }
    let stretch = history.stretch(0, 4);
    assert_eq!((stretch.step_seconds, stretch.times.as_slice()), (4, &[START][..]));
    let rates = series(&stretch, "events_per_second")[0].expect("it was seen");
    assert!((rates - 50.0 / 3.0).abs() < 1e-3, "{rates}");
    assert_eq!(series(&stretch, "pool_share"), [Some(0.9)]);
}

#[test]
fn latencies_are_those_of_what_was_built_since_the_last_look() {
    let mut history = History::default();
    let mut latencies = Distribution::default();
    for (second, latency) in [(0, 1_000_000_000), (1, 1 << 10), (2, 1 << 20)] {
        latencies.merge(&[latency].into_iter().collect());
        let mut look = look(second, 10 * second as u64, 0);
        look.nodes[1].distributions.insert(Measure::BuildLatency, latencies.clone());
        history.observe(look);
    }
    let stretch = history.stretch(0, 1);
    let seconds = |shift: u32| Some((f64::from(1 << shift) / 1e9) as f32);
    assert_eq!(series(&stretch, "build_latency_p99_seconds"), [seconds(10), seconds(20)]);
    assert_eq!(series(&stretch, "disk_write_p99_seconds"), [None, None]);
}

#[test]
fn an_hour_is_kept_by_seconds_and_a_week_by_minutes() {
    let week = 7 * 24 * 3_600;
    // A look each ten seconds for a week and an hour.
    let history = seen((0..(week + 3_600) / 10).map(|tens| (10 * tens, 100)));
    let seconds = history.stretch(0, 10);
    assert_eq!((seconds.times.len(), seconds.times[0]), (360, START + week));
    let minutes = history.stretch(0, 60);
    assert_eq!((minutes.step_seconds, minutes.times.len(), minutes.times[0]), (60, 10_080, START + 3_600));
    assert!(series(&minutes, "events_per_second").iter().all(|rate| *rate == Some(10.0)));
    assert_eq!(history.stretch(0, 61).step_seconds, 120, "whole minutes");
}

#[test]
fn a_clock_that_was_set_back_writes_over_what_stands_there() {
    let mut history = seen([(0, 0), (1, 10), (2, 10), (3, 10)]);
    let mut back = look(4, 1_030, 0);
    back.utc = Utc((START + 1) * 1_000_000_000);
    history.observe(back);
    let stretch = history.stretch(0, 1);
    assert_eq!(stretch.times, [START + 1]);
    // The second that came twice has the mean of both.
    assert_eq!(series(&stretch, "events_per_second"), [Some(505.0)]);
}

#[test]
fn nothing_is_known_before_two_looks_and_the_same_look_twice_is_one() {
    let mut history = seen([(1, 10)]);
    assert!(history.stretch(0, 1).times.is_empty());
    history.observe(look(1, 10, 0));
    assert!(history.stretch(i64::MIN, 60).times.is_empty());
    assert!(history.stretch(i64::MAX, u32::MAX).times.is_empty());
}

/// A file as whoever keeps one has it after these looks.
fn kept(history: &mut History, looks: impl IntoIterator<Item = Sample>) -> Vec<u8> {
    let mut file = vec![0; History::FILE_BYTES];
    file[..History::header().len()].copy_from_slice(&History::header());
    for look in looks {
        history.observe(look);
        for (at, record) in history.changed() {
            file[at as usize..at as usize + record.len()].copy_from_slice(&record);
        }
    }
    file
}

#[test]
fn what_was_kept_in_a_file_is_there_again() {
    let mut history = History::default();
    // More than the hour that is kept by seconds.
    let file = kept(&mut history, (0..4_000).map(|second| look(second, 10 * second as u64, 7)));
    let mut again = History::restore(&file);
    for step in [1, 60] {
        assert_eq!(again.stretch(0, step), history.stretch(0, step));
    }
    assert_eq!(again.stretch(0, 1).times.len(), 3_600);
    // It goes on: the minute under way takes in what comes.
    [look(4_000, 40_000, 7), look(4_001, 40_010, 7)].into_iter().for_each(|look| again.observe(look));
    assert_eq!(again.stretch(0, 1).times.last(), Some(&(START + 4_001)));
}

#[test]
fn a_file_that_was_cut_damaged_or_is_of_another_kind_gives_what_is_whole_in_it() {
    let mut history = History::default();
    let mut file = kept(&mut history, (0..100).map(|second| look(second, 10 * second as u64, 7)));
    let all = history.stretch(0, 1).times.len();
    // A place of the middle is torn.
    let (at, _) = history.changed().next().expect("there are some");
    file[at as usize + 3] ^= 1;
    assert_eq!(History::restore(&file).stretch(0, 1).times.len(), all - 1);
    assert!(History::restore(&file[..at as usize - 1]).stretch(0, 1).times.len() < all);
    file[9] ^= 1;
    assert!(History::restore(&file).stretch(0, 1).times.is_empty(), "these are other series");
    assert!(History::restore(&[]).stretch(0, 1).times.is_empty());
}
