//! Records round-trip; damaged ones are reported, and those behind them are found.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::*;
use super::{cases, head, header, keys, records, segment};
use ropewalk_terms::{Attempt, EventKey, Incarnation, NodeId, Role, RunNumber, SourceId, Utc};

type OwnedEvent = (EventHead, Vec<MissingSource>, Vec<(FragmentEntry, Vec<u8>)>);

prop_compose! {
    fn event_head()(key: u64, incarnation: u64, attempt: u16, trigger_type: u16, flags: u32) -> EventHead {
        EventHead {
            key: EventKey::from_bits(key),
            incarnation: Incarnation(incarnation),
            attempt: Attempt(attempt),
            trigger_type,
            flags: EventFlags(flags),
        }
    }
}

prop_compose! {
    fn fragment()(
        source: u32, flags: u32, raw_id: u64, raw_time: u64, time: i64, clock: u16, bunch_crossing: u16,
        trigger_type: u16, payload in vec(any::<u8>(), 0..70),
    ) -> (FragmentEntry, Vec<u8>) {
        let (source, flags, clock) = (SourceId(source), FragmentFlags(flags), ClockDomain(clock));
        let length = payload.len() as u32;
        let entry =
            FragmentEntry { source, flags, raw_id, raw_time, time, clock, bunch_crossing, trigger_type, length };
        (entry, payload)
    }
}

fn event() -> impl Strategy<Value = OwnedEvent> {
    let missing = any::<(u32, u8)>().prop_map(|(source, cause)| MissingSource { source: SourceId(source), cause });
    (event_head(), vec(missing, 0..5), vec(fragment(), 0..9))
}

fn owned(record: &Record<'_>) -> OwnedEvent {
    let view = EventView::parse(record).expect("an event was written");
    let fragments = view.fragments().map(|fragment| (fragment.entry, fragment.payload.to_vec()));
    (view.head(), view.missing().collect(), fragments.collect())
}

fn append(file: &mut Vec<u8>, (head, missing, fragments): &OwnedEvent) -> IndexEntry {
    let borrowed: Vec<(FragmentEntry, &[u8])> = fragments.iter().map(|(entry, bytes)| (*entry, &bytes[..])).collect();
    let offset = file.len() as u64;
    encode_event(file, offset, head, missing, &borrowed).expect("the event is short")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn events_and_their_index_are_read_as_written(events in vec(event(), 0..8)) {
        let mut file = Vec::new();
        header().encode(&mut file).expect("the header is short");
        let mut index = SegmentIndex::with_capacity(events.len());
        for event in &events {
            index.push(append(&mut file, event));
        }
        let offset = file.len() as u64;
        index.encode(&mut file, offset, Utc(7), true).expect("the footer is short");

        let found = records(&file);
        prop_assert!(found.iter().all(|(offset, record)| offset % 8 == 0 && record.length() % 8 == 0));
        let read: Vec<OwnedEvent> = found[1..=events.len()].iter().map(|(_, record)| owned(record)).collect();
        prop_assert_eq!(&read, &events);

        let end = file.last_chunk::<END_MARK_BYTES>().expect("the footer is longer");
        let length = FooterView::length_from_end(end).expect("the file is closed") as usize;
        let record = Record::parse(&file[file.len() - length..]).expect("the footer is there");
        let footer = FooterView::parse(&record).expect("it is a footer");
        prop_assert_eq!((footer.closed(), footer.is_rebuilt(), footer.offset()), (Utc(7), true, offset));
        let entries: Vec<IndexEntry> = footer.entries().collect();
        prop_assert_eq!(&entries, index.entries());
        let scanned: Vec<IndexEntry> = found[1..=events.len()]
            .iter()
            .map(|(offset, record)| {
                let view = EventView::parse(record).expect("an event was written");
                IndexEntry::of(&view, *offset, record.length())
            })
            .collect();
        prop_assert_eq!(&entries, &scanned);
    }

    #[test]
    fn pieces_may_be_cut_anywhere(event in event(), cut in 0usize..200) {
        let mut whole = Vec::new();
        append(&mut whole, &event);
        let (head, missing, fragments) = &event;
        let payload = fragments.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect::<Vec<u8>>();
        let mut buffer = [0xaa; 4096];
        let entries = fragments.iter().map(|(entry, _)| *entry);
        let mut encoder = EventRecordEncoder::begin(&mut buffer, head, missing.iter().copied(), entries)
            .expect("the buffer is long enough");
        let (front, back) = payload.split_at(cut.min(payload.len()));
        let mut gathered = buffer[..encoder.head_length()].to_vec();
        for piece in [front, back] {
            encoder.payload(piece);
            gathered.extend_from_slice(piece);
        }
        prop_assert_eq!(encoder.record_length(), whole.len());
        let tail = encoder.finish().expect("all of the payload was fed");
        prop_assert!(tail.as_bytes().len() <= 16);
        gathered.extend_from_slice(tail.as_bytes());
        prop_assert_eq!(gathered, whole);
    }

    #[test]
    fn headers_are_read_as_written(
        run: u32, segment: u32, index: u16, start: i64, sources in vec((any::<u32>(), any::<u16>(), ".{0,20}"), 0..9),
        stream in stream_names(), selected: bool,
    ) {
        let sources = sources
            .into_iter()
            .map(|(id, format, name)| SourceEntry { id: SourceId(id), format: SourceFormat(format), name })
            .collect();
        let writer = NodeId { role: Role::Builder, index };
        let (run, start) = (RunNumber(run), Utc(start));
        let written = SegmentHeader { run, segment, writer, start, sources, stream, selected, ..header() };
        let mut file = Vec::new();
        written.encode(&mut file).expect("the header is short");
        prop_assert_eq!(SegmentHeader::decode(&records(&file)[0].1), Ok(written));
    }

    #[test]
    fn names_are_read_as_written(run: u32, index: u16, segment: u32, stream in stream_names()) {
        let name = SegmentName { run: RunNumber(run), writer: NodeId::builder(index), stream, segment };
        prop_assert_eq!(name.to_string().parse(), Ok(name));
    }

    #[test]
    fn no_text_makes_names_panic(text in ".{0,40}", tail in "run[0-9a-z_-]{0,30}\\.rwk") {
        prop_assert!(text.parse::<SegmentName>().is_err());
        if let Ok(name) = tail.parse::<SegmentName>() {
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}

/// Possible names of a stream.
fn stream_names() -> impl Strategy<Value = StreamName> {
    "[a-z0-9_]{0,32}".prop_map(|text| text.parse().unwrap_or_default())
}

#[test]
fn streams_have_names_that_every_file_system_takes() {
    for name in ["a", "error_2", "0", "a234567890123456789012345678901_"] {
        assert_eq!(name.parse::<StreamName>().map(|known| known.to_string()), Ok(name.to_owned()));
    }
    for wrong in ["", "A", "a-b", "a/b", "a.b", "größe", "a2345678901234567890123456789012_"] {
        assert_eq!(wrong.parse::<StreamName>(), Err(NotAStreamName), "{wrong}");
    }
}

#[test]
fn run_file_names_follow_the_convention() {
    let (writer, stream) = (NodeId::builder(0), StreamName::UNNAMED);
    let name = SegmentName { run: RunNumber(1), writer, stream, segment: 1 };
    assert_eq!(name.to_string(), "run000001-bu0-000001.rwk");
    let named = SegmentName { stream: "physics".parse().expect("a stream's name"), ..name };
    assert_eq!(named.to_string(), "run000001-bu0-physics-000001.rwk");
    assert!(name < named, "streams order by their names, the one without a name first");
    let wrong_streams = ["run1-bu0-Physics-1.rwk", "run1-bu0--1.rwk", "run1-bu0-a-1-1.rwk"];
    let wrong = ["run1-bu0-1.rwk.open", "run1-bu0.rwk", "run+1-bu0-1.rwk", "run1-bu99999-1.rwk"];
    for wrong in wrong.into_iter().chain(wrong_streams) {
        assert_eq!(wrong.parse::<SegmentName>().map_err(|error| error.to_string()).ok(), None, "{wrong}");
    }
}

#[test]
fn the_runs_begin_and_end_are_read_as_written() {
    let begin = BeginOfRun { run: RunNumber(9), start: Utc(-3), text: "größer als ASCII".to_owned() };
    let end = EndOfRun { run: RunNumber(9), end: Utc(5), last: None, events: 0, text: "{}".to_owned() };
    let mut file = Vec::new();
    begin.encode(&mut file).expect("the record is short");
    end.encode(&mut file).expect("the record is short");
    let found = records(&file);
    assert_eq!(BeginOfRun::decode(&found[0].1), Ok(begin));
    assert_eq!(EndOfRun::decode(&found[1].1), Ok(end));
    assert_eq!(EndOfRun::decode(&found[0].1), Err(RecordError::Kind));
}

#[test]
fn what_does_not_fit_is_refused() {
    let head = head(1, 1, EventFlags::default());
    let entry = FragmentEntry { length: MAX_RECORD_BYTES as u32, ..super::fragment(super::COUNTER, 1) };
    let none = || std::iter::empty::<MissingSource>();
    let begin = |buffer: &mut [u8], fragments: &[FragmentEntry]| {
        EventRecordEncoder::begin(buffer, &head, none(), fragments.iter().copied()).map(|encoder| encoder.finish())
    };
    assert_eq!(begin(&mut [0; 63], &[]), Err(RecordError::Room));
    assert_eq!(begin(&mut [0; 500], &[entry]), Err(RecordError::Room));
    assert_eq!(begin(&mut [0; 500], &[FragmentEntry { length: u32::MAX, ..entry }; 2]), Err(RecordError::Room));
    let short = FragmentEntry { length: 4, ..entry };
    assert_eq!(begin(&mut [0; 500], &[short]), Ok(Err(RecordError::Payload)), "no payload was fed");
}

#[test]
fn unknown_kinds_are_stepped_over_and_versions_are_checked() {
    let file = segment();
    let kinds: Vec<&str> = records(&file).iter().map(|(_, record)| record.kind().name()).collect();
    assert_eq!(kinds, ["segment header", "begin of run", "event", "spill", "event", "end of run", "footer"]);

    let newer = |place: usize, version: u16| {
        let mut content = file[16..].to_vec();
        content[place - 16..place - 14].copy_from_slice(&version.to_le_bytes());
        let mut changed = Vec::new();
        super::append_record(&mut changed, RecordKind::SEGMENT, |out| out.extend_from_slice(&content[..88]))
            .expect("the header is short");
        SegmentHeader::decode(&records(&changed)[0].1).map(|header| header.minor)
    };
    assert_eq!(newer(24, 2), Err(RecordError::Version { major: 2, minor: MINOR_VERSION }));
    assert_eq!(newer(26, 9), Ok(9), "a higher minor version is readable");
}

/// Reads everything in the bytes.
fn read_all(bytes: &[u8]) -> usize {
    let mut covered = 0;
    for item in Items::new(bytes) {
        match item {
            Item::Damaged { offset, bytes, .. } => {
                assert_eq!(offset as usize, covered);
                covered += bytes as usize;
            }
            Item::Record { offset, record } => {
                assert_eq!(offset as usize, covered);
                covered += record.length();
                read_contents(&record);
            }
        }
    }
    covered
}

fn read_contents(record: &Record<'_>) {
    let _ = SegmentHeader::decode(record);
    let _ = BeginOfRun::decode(record);
    let _ = EndOfRun::decode(record);
    if let Ok(event) = EventView::parse(record) {
        let payload: usize = event.fragments().map(|fragment| fragment.payload.len()).sum();
        assert!(event.missing().len() + payload < usize::MAX);
    }
    if let Ok(footer) = FooterView::parse(record) {
        assert_eq!(footer.entries().count(), footer.entries().len());
    }
}

/// Scans through a window that grows only when the scanner asks, `step` bytes at a time.
fn scan_in_windows(file: &[u8], step: usize) -> Vec<(usize, Step)> {
    let (mut at, mut end) = (0, step.min(file.len()));
    let mut found = Vec::new();
    loop {
        let outcome = scan(&file[at..end], end == file.len());
        match outcome {
            Step::Record { length } => {
                found.push((at, outcome));
                at += length;
            }
            Step::Damaged { skip, .. } => at += skip,
            Step::NeedMore { bytes } => {
                assert!(bytes > end - at, "a record that is there was not found");
                assert!(end < file.len(), "nothing more can come");
                end = (at + bytes).max(end + step).min(file.len());
            }
            Step::End => return found,
        }
        // A stretch without a header may reach to the window's end.
        end = end.max((at + step).min(file.len()));
    }
}

/// Gives every record a right checksum again, so that the checks of the content are reached.
fn seal(bytes: &mut [u8], places: &[(usize, usize)]) {
    for &(start, length) in places {
        let record = &mut bytes[start..start + length];
        let kind = RecordKind(u16::from_le_bytes([record[4], record[5]]));
        record[..16].copy_from_slice(&RecordHeader { kind, flags: 0, length: length as u32 }.encode());
        let checksum = super::super::crc32c(0, &record[..length - 4]);
        record[length - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(read_all(&bytes), bytes.len());
    }

    #[test]
    fn arbitrary_contents_never_panic(kind in 0u16..7, content in vec(any::<u8>(), 0..300)) {
        let mut file = Vec::new();
        super::append_record(&mut file, RecordKind(kind), |out| out.extend_from_slice(&content))
            .expect("the record is short");
        read_contents(&records(&file)[0].1);
    }

    #[test]
    fn changed_files_never_panic(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let mut file = segment();
        let places: Vec<(usize, usize)> =
            records(&file).iter().map(|(offset, record)| (*offset as usize, record.length())).collect();
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        prop_assert_eq!(read_all(&file), file.len());
        seal(&mut file, &places);
        prop_assert_eq!(read_all(&file), file.len());
    }

    #[test]
    fn one_changed_byte_costs_one_record(place: prop::sample::Index, change in 1u8..) {
        let mut file = segment();
        let place = place.index(file.len());
        let whole: Vec<Vec<u8>> = records(&file)
            .iter()
            .filter(|(offset, record)| !(*offset as usize..*offset as usize + record.length()).contains(&place))
            .map(|(_, record)| record.bytes().to_vec())
            .collect();
        file[place] ^= change;
        let found: Vec<Vec<u8>> = Items::new(&file)
            .filter_map(|item| match item {
                Item::Record { record, .. } => Some(record.bytes().to_vec()),
                Item::Damaged { .. } => None,
            })
            .collect();
        prop_assert_eq!(found, whole);
    }

    #[test]
    fn windows_of_any_size_find_the_same(
        step in 1usize..200, place: prop::sample::Index, garbage in vec(any::<u8>(), 0..80),
    ) {
        let mut file = segment();
        let place = place.index(file.len());
        file.splice(place..place, garbage);
        let whole: Vec<usize> = Items::new(&file)
            .filter_map(|item| match item {
                Item::Record { offset, .. } => Some(offset as usize),
                Item::Damaged { .. } => None,
            })
            .collect();
        let windows: Vec<usize> = scan_in_windows(&file, step).into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(windows, whole);
    }
}

#[test]
fn a_cut_anywhere_leaves_the_whole_records_before_it() {
    let file = segment();
    let ends: Vec<usize> = records(&file).iter().map(|(offset, record)| *offset as usize + record.length()).collect();
    // Miri tries cuts in all records and at all offsets modulo 8, but not at all offsets.
    for cut in (0..file.len()).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let items: Vec<Item<'_>> = Items::new(&file[..cut]).collect();
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let rest = cut - whole.checked_sub(1).map_or(0, |last| ends[last]);
        assert_eq!(items.len(), whole + usize::from(rest > 0), "cut at {cut}");
        if rest > 0 {
            let Some(Item::Damaged { bytes, damage, .. }) = items.last() else { panic!("cut at {cut}: {items:?}") };
            assert_eq!((*bytes as usize, *damage), (rest, Damage::Cut));
        }
    }
}

#[test]
fn a_payload_that_looks_like_a_run_file_is_no_run_file() {
    let inner = segment();
    let mut file = Vec::new();
    header().encode(&mut file).expect("the header is short");
    let start = file.len();
    let entry = super::fragment(super::COUNTER, 9);
    encode_event(&mut file, start as u64, &head(9, 1, EventFlags::default()), &[], &[(entry, &inner)])
        .expect("the event is short");
    let end = file.len();
    encode_event(&mut file, end as u64, &head(10, 1, EventFlags::default()), &[], &[(entry, b"next")])
        .expect("the event is short");
    let key = |number| ropewalk_terms::EventKey::new(0, number);
    assert_eq!(keys(&file), [key(9), key(10)]);
    assert_eq!(keys(&file[..end - 8]), [], "cut inside the event");
    file[end - 1] ^= 1;
    assert_eq!(keys(&file), [key(10)], "the event's checksum is wrong");
}

#[test]
fn bytes_between_records_are_searched_for_the_next_header() {
    let file = segment();
    let mut damaged = file.clone();
    damaged.splice(0..0, *b"RWKR, but no header");
    let items: Vec<Item<'_>> = Items::new(&damaged).collect();
    assert_eq!(items[0], Item::Damaged { offset: 0, bytes: 19, damage: Damage::NoHeader });
    assert_eq!(items.len(), 1 + records(&file).len());
}

#[test]
fn a_length_beyond_the_limit_is_not_believed() {
    let header = RecordHeader { kind: RecordKind::EVENT, flags: 0, length: (MAX_RECORD_BYTES + 8) as u32 };
    assert_eq!(RecordHeader::decode(&header.encode()), Err(RecordError::Length));
    let header = RecordHeader { length: 28, ..header };
    assert_eq!(RecordHeader::decode(&header.encode()), Err(RecordError::Length));
    let header = RecordHeader { length: 16, ..header };
    assert_eq!(scan(&header.encode(), false), Step::Damaged { skip: 13, damage: Damage::NoHeader });
}

#[test]
fn zeros_that_fill_the_last_piece_of_a_file_are_what_its_writer_left() {
    for (zeros, expected) in [(8, Damage::Cut), (4095, Damage::Cut), (4096, Damage::NoHeader)] {
        let mut file = segment();
        let length = file.len();
        file.resize(length + zeros, 0);
        let found: Vec<_> = Items::new(&file).skip(records(&file[..length]).len()).collect();
        let damage = Item::Damaged { offset: length as u64, bytes: zeros as u64, damage: expected };
        assert_eq!(found, [damage], "{zeros} zeros");
        let step = scan(&file[length..length + zeros.min(2000)], false);
        assert!(zeros < 100 || matches!(step, Step::NeedMore { .. }), "whether they end is not seen yet: {step:?}");
    }
}
