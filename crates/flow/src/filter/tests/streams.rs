//! Which streams take an event, and their accounts.

use crate::filter::{ERROR_STREAM, FilterConfigError, StreamConfig, Streams};
use ropewalk_terms::{StreamIndex, StreamSet, TriggerBits};
use ropewalk_wire::run_file::StreamName;

fn name(name: &str) -> StreamName {
    name.parse().expect("it is a good name")
}

fn stream(name: &str, triggers: &[u32]) -> StreamConfig {
    let triggers = triggers.iter().fold(TriggerBits::default(), |all, &trigger| all.with(TriggerBits::of(trigger)));
    StreamConfig { name: self::name(name), triggers, ..StreamConfig::everything() }
}

fn set(streams: &[u8]) -> StreamSet {
    streams.iter().map(|&stream| StreamIndex(stream)).collect()
}

#[test]
fn a_stream_takes_what_has_one_of_its_triggers_or_trigger_types() {
    let calibration = StreamConfig { trigger_types: vec![9], ..stream("calibration", &[1, 2]) };
    let mut streams = Streams::new(vec![stream("physics", &[]), calibration], true).expect("they are good");
    assert!(streams.names().eq(["physics", "calibration", ERROR_STREAM].map(name)));
    assert_eq!(streams.select(TriggerBits::of(0), 0), set(&[0]));
    assert_eq!(streams.select(TriggerBits::of(2), 0), set(&[0, 1]));
    assert_eq!(streams.select(TriggerBits::of(0), 9), set(&[0, 1]));
    assert_eq!(streams.set_aside(), set(&[2]));
    let selected: Vec<u64> = streams.accounts().map(|(_, account)| account.selected).collect();
    assert_eq!(selected, [3, 2, 1]);
}

#[test]
fn a_prescale_keeps_one_of_so_many_and_the_account_says_so() {
    let third = StreamConfig { prescale: 3, ..stream("monitoring", &[]) };
    let mut streams = Streams::new(vec![third], false).expect("it is good");
    let kept: Vec<bool> = (0..7).map(|_| !streams.select(TriggerBits::of(0), 0).is_empty()).collect();
    assert_eq!(kept, [true, false, false, true, false, false, true]);
    (0..2).for_each(|_| streams.written(set(&[0])));
    streams.failed(set(&[0]));
    let (_, account) = streams.accounts().next().expect("there is one");
    assert_eq!((account.selected, account.prescaled_away, account.written, account.failed), (7, 4, 2, 1));
    assert_eq!(account.selected, account.accounted());
    streams.restart();
    assert_eq!(streams.accounts().next().map(|(_, account)| account.selected), Some(0));
}

#[test]
fn parts_of_a_run_keep_one_of_so_many_together_however_few_events_each_has() {
    for (prescale, events) in [(10, 3), (100, 3), (7, 1), (1, 4), (1000, 10)] {
        let mut streams = Streams::new(vec![StreamConfig { prescale, ..stream("a", &[]) }], false).expect("right");
        let mut kept = |part| {
            streams.begin_part(part);
            let kept: Vec<bool> = (0..events).map(|_| !streams.select(TriggerBits::of(0), 0).is_empty()).collect();
            let (_, account) = streams.accounts().next().expect("a stream");
            let count = kept.iter().filter(|&&is_kept| is_kept).count() as u64;
            assert_eq!((account.selected, account.prescaled_away), (events, events - count));
            (kept, count)
        };
        let parts = 10_000;
        let total: u64 = (0..parts).map(|part| kept(part).1).sum();
        let expected = u64::from(parts) * events / u64::from(prescale);
        assert!(total.abs_diff(expected) <= 3, "{total} of one in {prescale}, and {expected} are due");
        assert_eq!(kept(77), kept(77), "whoever has the part keeps the same");
    }
}

#[test]
fn without_a_filter_there_is_one_nameless_stream_and_none_for_errors() {
    let mut streams = Streams::new(vec![StreamConfig::everything()], false).expect("it is good");
    assert!(streams.names().eq([StreamName::UNNAMED]));
    assert_eq!((streams.set_aside(), streams.select(TriggerBits::default(), 7)), (StreamSet::EMPTY, set(&[0])));
    assert!(streams.takes_all(StreamIndex(0)));
    let streams = Streams::new(vec![StreamConfig::everything()], true).expect("it gets a name");
    assert!(streams.names().eq(["physics", ERROR_STREAM].map(name)));
    assert!(!streams.takes_all(StreamIndex(0)), "the filter may reject");
}

#[test]
fn streams_that_make_no_sense_are_refused() {
    let refused = |streams: Vec<StreamConfig>| Streams::new(streams, true).err();
    let two = |one: &str, other: &str| vec![stream(one, &[]), stream(other, &[])];
    assert_eq!(refused(two("a", "a")), Some(FilterConfigError::StreamTwice(name("a"))));
    assert_eq!(refused(two("a", ERROR_STREAM)), Some(FilterConfigError::StreamTwice(name(ERROR_STREAM))));
    let nameless = vec![stream("a", &[]), StreamConfig::everything()];
    assert_eq!(refused(nameless), Some(FilterConfigError::NoName));
    let none = StreamConfig { prescale: 0, ..stream("a", &[]) };
    assert_eq!(refused(vec![none]), Some(FilterConfigError::NoPrescale(name("a"))));
    let many = (0..32).map(|number| stream(&format!("s{number}"), &[])).collect();
    assert_eq!(refused(many), Some(FilterConfigError::TooManyStreams(33)));
}

#[test]
fn order_is_asked_for_by_the_stream() {
    let ordered = StreamConfig { ordered: true, ..stream("b", &[1]) };
    let streams = Streams::new(vec![stream("a", &[]), ordered], false).expect("they are good");
    assert!(streams.any_ordered() && streams.is_ordered(set(&[0, 1])) && !streams.is_ordered(set(&[0])));
}

#[test]
fn a_prescale_can_be_changed_but_not_that_of_a_stream_that_has_every_event() {
    let some = StreamConfig { prescale: 3, ..stream("some", &[]) };
    let mut streams = Streams::new(vec![stream("all", &[]), some], false).expect("right");
    let kept = |streams: &mut Streams, events: u64| {
        let sets = (0..events).map(|_| streams.select(TriggerBits::default(), 0)).collect::<Vec<_>>();
        [0, 1].map(|index| sets.iter().filter(|set| set.iter().any(|one| one == StreamIndex(index))).count())
    };
    assert_eq!(kept(&mut streams, 6), [6, 2]);
    for (stream, prescale) in [(1, 1), (0, 5), (2, 5), (1, 0), (1, 1 << 32)] {
        streams.set_prescale(stream, prescale);
    }
    assert_eq!(kept(&mut streams, 6), [6, 6], "what makes no sense changes nothing");
    streams.set_prescale(1, 6);
    assert_eq!(kept(&mut streams, 12), [12, 2]);
    let accounts: Vec<_> = streams.accounts().map(|(_, account)| (account.selected, account.prescaled_away)).collect();
    assert_eq!(accounts, [(24, 0), (24, 14)]);
}
