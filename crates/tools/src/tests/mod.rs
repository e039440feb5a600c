//! Tests of the offline tools, and the little runs that they work on.

mod verifying;

use super::{
    Footer, InspectOptions, OfflineError, RecoverAction, RunEvent, RunIndex, RunReader, VerifyReport, inspect, recover,
    verify,
};
use proptest::prelude::*;
use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, Incarnation, NodeId, RunNumber, SourceId, Utc};
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{
    BeginOfRun, CHECKSUM_EXTENSION, Checksum, ClockDomain, Compression, EndOfRun, EventFlags, EventHead, FragmentEntry,
    FragmentFlags, MINOR_VERSION, MissingSource, Packer, SegmentHeader, SegmentIndex, SegmentName, SourceEntry,
    SourceFormat, StreamName, encode_event,
};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Two FED sources and one of generic fragments.
const FED: SourceId = SourceId(841);
const OTHER_FED: SourceId = SourceId(843);
const GENERIC: SourceId = SourceId(7);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In memory where that exists: recovery syncs, and the tests do it a thousand times.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("ropewalk-offline-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("the temporary directory is writable");
        path
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}; there are {:?}", self.names()))
    }

    /// Every file but checksums, which have a test of their own.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.ends_with(CHECKSUM_EXTENSION));
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An event as a test describes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    key: EventKey,
    attempt: u16,
    incarnation: u64,
    missing: Vec<u32>,
    fragments: Vec<(SourceId, Vec<u8>)>,
}

/// An event with one generic fragment of these bytes.
fn event(number: u64, attempt: u16, payload: &[u8]) -> Event {
    event_of(number, attempt, vec![(GENERIC, payload.to_vec())])
}

fn event_of(number: u64, attempt: u16, fragments: Vec<(SourceId, Vec<u8>)>) -> Event {
    Event { key: EventKey::new(0, number), attempt, incarnation: 1, missing: Vec::new(), fragments }
}

fn fed_fragment(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fed::encode(fed::Header::new(FED, number, 100), payload, fed::Trailer::new(), &mut bytes).expect("whole words");
    bytes
}

/// A segment in memory, and where each of its events lies.
struct Segment {
    bytes: Vec<u8>,
    events: Vec<Range<usize>>,
    index: SegmentIndex,
}

impl Segment {
    fn new(run: u32, segment: u32, events: &[Event]) -> Self {
        Self::of_stream(StreamName::UNNAMED, run, segment, events)
    }

    /// A segment of a stream, which takes a selection of the events where it has a name.
    fn of_stream(stream: StreamName, run: u32, segment: u32, events: &[Event]) -> Self {
        let mut bytes = Vec::new();
        let header = SegmentHeader {
            run: RunNumber(run),
            segment,
            writer: NodeId::builder(0),
            incarnation: Incarnation(1),
            start: Utc(0),
            acknowledgement: AcknowledgementLevel::Written,
            minor: MINOR_VERSION,
            stream,
            selected: !stream.is_unnamed(),
            sources: vec![
                SourceEntry { id: FED, format: SourceFormat::FED, name: "chambers".to_owned() },
                SourceEntry { id: OTHER_FED, format: SourceFormat::FED, name: "more chambers".to_owned() },
                SourceEntry { id: GENERIC, format: SourceFormat::GENERIC, name: "counter".to_owned() },
            ],
        };
        header.encode(&mut bytes).expect("the header is short");
        let begin = BeginOfRun { run: RunNumber(run), start: Utc(0), text: "version = 1".to_owned() };
        begin.encode(&mut bytes).expect("the record is short");
        let mut built = Self { bytes, events: Vec::new(), index: SegmentIndex::with_capacity(events.len()) };
        for event in events {
            built.add(event);
        }
        built
    }

    fn add(&mut self, event: &Event) {
        let flags = if event.missing.is_empty() { EventFlags::default() } else { EventFlags::INCOMPLETE };
        let head = EventHead {
            key: event.key,
            incarnation: Incarnation(event.incarnation),
            attempt: Attempt(event.attempt),
            trigger_type: 0,
            flags,
        };
        let missing: Vec<MissingSource> =
            event.missing.iter().map(|&source| MissingSource { source: SourceId(source), cause: 14 }).collect();
        let fragments: Vec<(FragmentEntry, &[u8])> =
            event.fragments.iter().map(|(source, payload)| (fragment(*source, event), &payload[..])).collect();
        let offset = self.bytes.len();
        let entry = encode_event(&mut self.bytes, offset as u64, &head, &missing, &fragments).expect("it is short");
        self.index.push(entry);
        self.events.push(offset..self.bytes.len());
    }

    /// The segment without a footer, as a writer leaves it that is killed between two records.
    fn open(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// The segment with the end of the run and a footer.
    fn closed(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let last = self.index.entries().iter().map(|entry| entry.key).max();
        let end =
            EndOfRun { run: RunNumber(1), end: Utc(5), last, events: self.events.len() as u64, text: String::new() };
        end.encode(&mut bytes).expect("the record is short");
        let offset = bytes.len() as u64;
        self.index.encode(&mut bytes, offset, Utc(5), false).expect("the footer is short");
        bytes
    }
}

fn fragment(source: SourceId, event: &Event) -> FragmentEntry {
    FragmentEntry {
        source,
        flags: FragmentFlags::default(),
        raw_id: event.key.number(),
        raw_time: 0,
        time: 0,
        clock: ClockDomain::NONE,
        bunch_crossing: 0,
        trigger_type: 0,
        length: 0,
    }
}

fn name(writer: u16, segment: u32) -> String {
    stream_name(StreamName::UNNAMED, writer, segment)
}

fn stream_name(stream: StreamName, writer: u16, segment: u32) -> String {
    SegmentName { run: RunNumber(1), writer: NodeId::builder(writer), stream, segment }.to_string()
}

fn open_name(writer: u16, segment: u32) -> String {
    name(writer, segment) + ".open"
}

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

fn shown(path: &Path, options: &InspectOptions) -> Result<String, OfflineError> {
    let mut out = Vec::new();
    inspect(path, options, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn run() -> Directory {
    let directory = Directory::new();
    let fed = fed_fragment(1, b"8 bytes ");
    let first = event_of(1, 1, vec![(FED, fed), (GENERIC, b"hello".to_vec())]);
    let second = Event { missing: vec![841], ..event(2, 3, &[0xab; 300]) };
    let events = [first, second];
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    directory.write(&open_name(0, 2), &Segment::new(1, 2, &[event(3, 1, b"three")]).open());
    directory
}

#[test]
fn a_directory_is_listed_record_by_record() {
    let text = shown(run().path(), &InspectOptions::default()).expect("there are segments");
    for expected in [
        "run000001-bu0-000001.rwk: 2 events, closed 1970-01-01T00:00:00.000000005Z",
        "  run 1, segment 1, version 1.1, written by bu0 (incarnation 1), acknowledged when written",
        "  source        841  fed      chambers",
        "segment header (kind 1)",
        "begin of run    run 1 at 1970-01-01T00:00:00.000000000Z, 11 B of configuration",
        "event           1, attempt 1, 2 fragments, 29 B\n",
        "event           2, attempt 3, 1 fragments, 300 B, missing 841 (timed_out), incomplete\n",
        "end of run      run 1 at 1970-01-01T00:00:00.000000005Z, last event 2, 2 events written",
        "footer          2 events",
        "run000001-bu0-000002.rwk.open: not closed",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn the_list_ends_after_so_many_records() {
    let directory = run();
    let text = shown(directory.path(), &InspectOptions { records: 3, ..Default::default() }).expect("segments");
    assert_eq!(text.matches("  event  ").count(), 1, "{text}");
    assert_eq!(text.matches("more records follow").count(), 2, "one for each file:\n{text}");
}

#[test]
fn an_event_is_shown_whole_with_its_headers_decoded() {
    let options = InspectOptions { event: Some(EventKey::new(0, 1)), ..Default::default() };
    let text = shown(run().path(), &options).expect("the event is there");
    let crc = fed::Fragment::parse(&fed_fragment(1, b"8 bytes ")).expect("whole").trailer().crc();
    for expected in [
        "event 1, attempt 1, 2 fragments, 29 B at ".to_owned(),
        "source 841 (chambers): 24 B, number 1 in its frame (raw id)".to_owned(),
        format!("FED: L1 id 1, BX 100, event type 0, version 0; 3 words, CRC {crc:04x} good, status 0, TTS 0"),
        "         0  00 49 43 06 01 00 00 50 38 20 62 79 74 65 73 20".to_owned(),
        "source 7 (counter): 5 B, number 1 in its frame (raw id)".to_owned(),
        "         0  68 65 6c 6c 6f".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn long_fragments_are_shown_in_part() {
    let options = InspectOptions { event: Some(EventKey::new(0, 2)), ..Default::default() };
    let text = shown(run().path(), &options).expect("the event is there");
    assert!(text.contains("missing source 841 (timed_out)"), "{text}");
    assert!(text.contains("... 44 more bytes"), "{text}");
}

#[test]
fn events_in_open_files_are_found_and_unknown_ones_are_errors() {
    let directory = run();
    let options = |number| InspectOptions { event: Some(EventKey::new(0, number)), ..Default::default() };
    assert!(shown(directory.path(), &options(3)).expect("the event is there").contains("74 68 72 65 65"));
    assert!(matches!(shown(directory.path(), &options(9)), Err(OfflineError::NoSuchEvent { .. })));
}

#[test]
fn damage_is_shown_where_it_is() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &[event(1, 1, b"one"), event(2, 1, b"two")]);
    let mut file = segment.open();
    file[segment.events[0].start + 115] ^= 1;
    file.truncate(segment.events[1].end - 1);
    let path = directory.write("any-name", &file);
    let text = shown(&path, &InspectOptions::default()).expect("a file that is named by hand");
    assert!(text.contains("damaged: a record with a wrong checksum"), "{text}");
    assert!(text.contains("damaged: a record that was cut: the writer stopped here"), "{text}");
}

/// The same segment, packed in stretches of this many bytes.
fn packed(segment: &[u8], stretch: usize) -> Vec<u8> {
    let (mut packer, mut file) = (Packer::new(Compression::Zstd(1)).expect("it packs"), Vec::new());
    for (number, bytes) in segment.chunks(stretch).enumerate() {
        packer.pack((number * stretch) as u64, bytes, &mut file).expect("it fits");
    }
    file
}

fn events() -> Vec<Event> {
    (1..=40).map(|number| event(number, 1, &vec![number as u8; 500])).collect()
}

fn verified(directory: &Directory) -> VerifyReport {
    verify(&[directory.path()]).expect("there is a segment")
}

#[test]
fn a_packed_segment_holds_what_it_would_hold_unpacked() {
    let (plain, small) = (Directory::new(), Directory::new());
    let segment = Segment::new(1, 1, &events()).closed();
    plain.write(&name(0, 1), &segment);
    for stretch in [100, 3000, 1 << 20] {
        let file = packed(&segment, stretch);
        assert!(stretch < 3000 || file.len() < segment.len() / 2, "it is packed");
        small.write(&name(0, 1), &file);
        assert_eq!(verified(&small), verified(&plain), "in stretches of {stretch} B");
        let index = RunIndex::build(&[small.path()]).expect("there is a segment");
        let mut reader = index.reader();
        for number in 1..=40 {
            let event = reader.next_event().expect("it is readable").expect("it is there");
            assert_eq!(event.event.key(), EventKey::new(0, number));
        }
    }
    let report = recover(small.path()).expect("it is readable");
    assert_eq!((report.untouched, report.segments.len()), (1, 0), "whole and closed: nothing is done to it");
}

#[test]
fn a_torn_packed_segment_is_recovered_up_to_its_last_whole_stretch() {
    let segment = Segment::new(1, 1, &events());
    let (bytes, file) = (segment.open(), packed(&segment.open(), 3000));
    for cut in (0..file.len()).step_by(97) {
        let directory = Directory::new();
        directory.write(&open_name(0, 1), &file[..cut]);
        let report = recover(directory.path()).expect("it is readable");
        // This many bytes of the segment can be unpacked, and this many of its events are whole.
        let mut unpacked = 0;
        while unpacked < bytes.len() && packed(&bytes[..(unpacked + 3000).min(bytes.len())], 3000).len() <= cut {
            unpacked = (unpacked + 3000).min(bytes.len());
        }
        let whole = segment.events.iter().filter(|event| event.end <= unpacked).count() as u64;
        if unpacked == 0 {
            continue;
        }
        let [recovered] = &report.segments[..] else { panic!("{report:?}") };
        assert_eq!((recovered.action, recovered.events), (RecoverAction::Rebuilt, whole), "cut at {cut}");
        let report = verified(&directory);
        assert!(report.is_intact() && report.events == whole, "cut at {cut}: {report:?}");
    }
}

#[test]
fn a_damaged_stretch_costs_its_events_alone() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &events());
    let mut file = packed(&segment.closed(), 3000);
    let second = packed(&segment.closed()[..3000], 3000).len();
    file[second + 60] ^= 1;
    directory.write(&name(0, 1), &file);
    let report = verified(&directory);
    let hit = segment.events.iter().filter(|event| event.start < 6000 && event.end > 3000).count() as u64;
    assert_eq!(report.events, 40 - hit);
    assert!(report.damaged_bytes >= 2000 && !report.is_intact(), "{report:?}");
}

const SHA256: &str = "cf4275b12a06f72972b35441c8941c7d0460f286e608d498625993de0f1b180f";

/// The fragments of one of the files, in their order.
fn fragments(directory: &Path, file: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(directory.join(file)).expect("the file belongs to the data");
    let split = fed::split_file(&bytes);
    assert!(split.gap.is_empty(), "the whole file is fragments");
    split.fragments.into_iter().map(|range| bytes[range].to_vec()).collect()
}

#[test]
fn events_of_two_builder_units_give_the_data_back() {
    let test = "offline::tests::cms::events_of_two_builder_units_give_the_data_back";
    let Some(data) = ropewalk_tidy::real_data(test, "cms_csc") else { return };
    let first = fragments(&data, "csc_00307511_EmuRUI01_Local_000.raw");
    let second = fragments(&data, "csc_00307511_EmuRUI03_Local_000.raw");
    let events: Vec<Event> = (1..)
        .zip(first.into_iter().zip(second))
        .map(|(number, (first, second))| event_of(number, 1, vec![(OTHER_FED, second), (FED, first)]))
        .collect();
    let directory = Directory::new();
    let (even, odd): (Vec<Event>, Vec<Event>) =
        events.iter().cloned().partition(|event| event.key.number().is_multiple_of(2));
    directory.write(&name(0, 1), &Segment::new(1, 1, &even).closed());
    // The other builder unit was killed, and ten of its events had been written before by the first.
    let mut killed = Segment::new(1, 1, &odd);
    events[..20].iter().filter(|event| event.key.number() % 2 == 0).for_each(|event| killed.add(event));
    directory.write(&open_name(1, 1), &[&killed.open(), &b"RWKR and no more"[..]].concat());
    recover(directory.path()).expect("the directory is writable");

    let report = verify(&[directory.path()]).expect("there are segments");
    assert_eq!((report.events, report.fragments, report.payload_bytes), (4685, 9370, 4_327_200));
    assert_eq!((report.crc_errors, report.gaps, report.malformed, report.duplicates), (0, 0, 0, 10));
    assert_eq!(report.payload_sha256, SHA256);
    assert_eq!((report.first_key.as_deref(), report.last_key.as_deref()), (Some("1"), Some("4685")));
}
