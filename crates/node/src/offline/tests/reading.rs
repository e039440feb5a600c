//! Readers find what was written, whatever its size and order.

use super::*;
use crate::offline::{Footer, OfflineError, RunEvent, RunIndex, RunReader};
use proptest::prelude::*;

fn owned(event: &RunEvent<'_>) -> Event {
    let head = event.event.head();
    Event {
        key: head.key,
        attempt: head.attempt.0,
        incarnation: head.incarnation.0,
        missing: event.event.missing().map(|missing| missing.source.0).collect(),
        fragments: event.event.fragments().map(|fragment| (fragment.entry.source, fragment.payload.to_vec())).collect(),
    }
}

fn in_file_order(directory: &Directory) -> Vec<Event> {
    let mut reader = RunReader::open(&[directory.path()]).expect("there are segments");
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().expect("files are readable") {
        found.push(owned(&event));
    }
    found
}

fn in_key_order(directory: &Directory) -> Vec<Event> {
    let index = RunIndex::build(&[directory.path()]).expect("there are segments");
    let mut reader = index.reader();
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().expect("files are readable") {
        found.push(owned(&event));
    }
    found
}

/// Bytes that differ from event to event.
fn payload(number: u64, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place as u64).wrapping_mul(number).to_le_bytes()[1]).collect()
}

#[test]
fn records_of_any_size_pass_through_the_window() {
    let lengths = [0, 1, 100_000, 3_000_000, 7, 1 << 20, 900_000, 900_000, 5];
    let events: Vec<Event> =
        (1..).zip(lengths).map(|(number, length)| event(number, 1, &payload(number, length))).collect();
    let directory = Directory::new();
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    assert!(in_file_order(&directory) == events, "in the order of the file");
    assert!(in_key_order(&directory) == events, "in the order of the keys");
}

#[test]
fn the_order_of_keys_does_not_need_the_order_of_files() {
    let all: Vec<Event> = (1..=60).map(|number| event(number, 1, &payload(number, 40_000))).collect();
    let directory = Directory::new();
    for part in 0..3 {
        let mut events: Vec<Event> = all.iter().filter(|event| event.key.number() % 3 == part).cloned().collect();
        match part {
            0 => events.reverse(),
            1 => events.rotate_left(7),
            _ => events.swap(0, 19),
        }
        directory.write(&name(part as u16, 1), &Segment::new(1, 1, &events).closed());
    }
    assert!(in_key_order(&directory) == all);
}

#[test]
fn many_files_take_turns() {
    let all: Vec<Event> = (0..200).map(|number| event(number, 1, &payload(number, 30))).collect();
    let directory = Directory::new();
    for part in 0..50u64 {
        let events: Vec<Event> = all.iter().filter(|event| event.key.number() % 50 == part).cloned().collect();
        directory.write(&name(part as u16, 1), &Segment::new(1, 1, &events).closed());
    }
    assert_eq!(in_key_order(&directory), all);
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_an_error() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &[event(1, 1, b"one"), event(2, 1, b"two")]);
    let path = directory.write(&name(0, 1), &segment.closed());
    let index = RunIndex::build(&[directory.path()]).expect("there is a segment");
    fs::write(&path, &segment.bytes[..segment.events[0].end + 20]).expect("the file is writable");
    let mut reader = index.reader();
    assert!(reader.next_event().expect("the first is still there").is_some());
    assert!(matches!(reader.next_event(), Err(OfflineError::Changed { .. })));
}

#[test]
fn a_newer_major_version_is_refused() {
    let directory = Directory::new();
    let bytes = Segment::new(1, 1, &[]).closed();
    directory.write(&name(0, 1), &resealed(&bytes, 24, 2));
    let refused = RunReader::open(&[directory.path()]).and_then(|mut reader| reader.next_event().map(|_| ()));
    assert!(matches!(refused, Err(OfflineError::Version { .. })), "{refused:?}");
}

/// The file with one byte of its first record changed and that record's checksum made right again.
fn resealed(file: &[u8], place: usize, value: u8) -> Vec<u8> {
    let length = u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as usize;
    let mut changed = file.to_vec();
    changed[place] = value;
    let checksum = ropewalk_kernels::crc32c(0, &changed[..length - 4]);
    changed[length - 4..length].copy_from_slice(&checksum.to_le_bytes());
    changed
}

#[test]
fn the_footer_is_found_from_the_end() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &[event(1, 1, b"one"), event(2, 1, b"two")]);
    let closed = directory.write(&name(0, 1), &segment.closed());
    let footer = Footer::read(&closed).expect("readable").expect("closed");
    assert_eq!((footer.closed, footer.rebuilt, &footer.events[..]), (Utc(5), false, segment.index.entries()));
    let open = directory.write(&open_name(0, 2), &segment.open());
    assert_eq!(Footer::read(&open).expect("readable"), None);
    let tiny = directory.write(&open_name(0, 3), b"tiny");
    assert_eq!(Footer::read(&tiny).expect("readable"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_written_is_read_and_of_several_copies_the_best(
        numbers in prop::collection::vec((0u64..40, 1u16..3, any::<bool>(), 0usize..300), 1..60), cuts in (0usize..60, 0usize..60),
    ) {
        let events: Vec<Event> = numbers
            .iter()
            .enumerate()
            .map(|(place, &(number, attempt, complete, length))| {
                let missing = if complete { Vec::new() } else { vec![FED.0] };
                Event { incarnation: place as u64, missing, ..event(number, attempt, &payload(number + 1, length)) }
            })
            .collect();
        let (first, second) = (cuts.0.min(cuts.1).min(events.len()), cuts.0.max(cuts.1).min(events.len()));
        let directory = Directory::new();
        for (segment, part) in (1..).zip([&events[..first], &events[first..second], &events[second..]]) {
            directory.write(&name(0, segment), &Segment::new(1, segment, part).closed());
        }
        prop_assert_eq!(in_file_order(&directory), events.clone());
        let mut expected = events;
        // A later attempt that lacks a source is worth less than an earlier one that is whole.
        expected.sort_by_key(|event| {
            let worth = (event.missing.is_empty(), event.attempt, event.incarnation);
            (event.key, std::cmp::Reverse(worth))
        });
        expected.dedup_by_key(|event| event.key);
        prop_assert_eq!(in_key_order(&directory), expected);
    }
}
