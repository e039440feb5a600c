//! Tests of the run file, and the little segment that they and `docs/run-file.md` share.

mod damage;
mod golden;
mod packed;
mod page;
mod round_trip;

use super::record::append_record;
use super::*;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, EventKey, Incarnation, NodeId, RunNumber, SourceId, Utc};

const INCARNATION: Incarnation = Incarnation(1_700_000_000_000_000_000);
const START: Utc = Utc(1_700_000_001_000_000_000);
const END: Utc = Utc(1_700_000_002_000_000_000);
const CHAMBERS: SourceId = SourceId(841);
const COUNTER: SourceId = SourceId(7);

/// Cases of a property: Miri is a thousand times slower, and tries a few of them.
const fn cases(native: u32) -> u32 {
    if cfg!(miri) { 2 } else { native }
}

/// A FED fragment of three words: source 841, L1 id 1, BX 100, one word of data.
fn fed_fragment() -> [u8; 24] {
    let mut words = [0x5100_0001_0643_4900_u64, 0x0011_2233_4455_6677, 0xa000_0003_0000_0000];
    words[2] |= u64::from(fed_crc(&words)) << 16;
    let mut bytes = [0; 24];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// CRC-16 of FED fragments, bit by bit: FORMATS section 2. The CRC's own place must hold zeros.
fn fed_crc(words: &[u64]) -> u16 {
    words.iter().flat_map(|word| word.to_be_bytes()).fold(0xffff, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x8005 })
    })
}

fn header() -> SegmentHeader {
    SegmentHeader {
        run: RunNumber(1),
        segment: 1,
        writer: NodeId::builder(0),
        incarnation: INCARNATION,
        start: START,
        acknowledgement: AcknowledgementLevel::Written,
        minor: MINOR_VERSION,
        stream: "physics".parse().expect("a stream's name"),
        selected: false,
        sources: vec![
            SourceEntry { id: CHAMBERS, format: SourceFormat::FED, name: "chambers".to_owned() },
            SourceEntry { id: COUNTER, format: SourceFormat::GENERIC, name: "counter".to_owned() },
        ],
    }
}

fn fragment(source: SourceId, number: u64) -> FragmentEntry {
    FragmentEntry {
        source,
        flags: FragmentFlags::default(),
        raw_id: number,
        raw_time: 0,
        time: 0,
        clock: ClockDomain::NONE,
        bunch_crossing: 0,
        trigger_type: 0,
        length: 0,
    }
}

fn head(number: u64, attempt: u16, flags: EventFlags) -> EventHead {
    EventHead {
        key: EventKey::new(0, number),
        incarnation: INCARNATION,
        attempt: Attempt(attempt),
        trigger_type: 1,
        flags,
    }
}

/// The segment that `docs/run-file.md` shows: a complete event, a spill (a kind that is stepped over), an
/// incomplete event in its second attempt.
fn segment() -> Vec<u8> {
    let mut file = Vec::new();
    let mut index = SegmentIndex::with_capacity(2);
    header().encode(&mut file).expect("the header is short");
    let begin = BeginOfRun { run: RunNumber(1), start: START, text: "version = 1\n".to_owned() };
    begin.encode(&mut file).expect("the record is short");

    let fed = fed_fragment();
    let chambers = FragmentEntry {
        flags: FragmentFlags::CRC_CHECKED.with(FragmentFlags::HAS_BUNCH_CROSSING),
        bunch_crossing: 100,
        trigger_type: 1,
        ..fragment(CHAMBERS, 1)
    };
    let time = START.0 + 250;
    let counter = FragmentEntry {
        flags: FragmentFlags::HAS_TIME,
        raw_time: time as u64,
        time,
        clock: ClockDomain::UTC,
        ..fragment(COUNTER, 1)
    };
    let offset = file.len() as u64;
    let complete = head(1, 1, EventFlags::default());
    let first: [(_, &[u8]); 2] = [(chambers, &fed), (counter, b"hello")];
    index.push(encode_event(&mut file, offset, &complete, &[], &first).expect("the event is short"));

    append_record(&mut file, RecordKind::SPILL, |out| out.extend_from_slice(b"spill 1")).expect("the record is short");

    let offset = file.len() as u64;
    let incomplete = head(2, 2, EventFlags::INCOMPLETE);
    let missing = [MissingSource::new(CHAMBERS, Cause::TimedOut)];
    let second: [(_, &[u8]); 1] = [(fragment(COUNTER, 2), b"bye")];
    index.push(encode_event(&mut file, offset, &incomplete, &missing, &second).expect("the event is short"));

    let end = EndOfRun { run: RunNumber(1), end: END, last: Some(EventKey::new(0, 2)), events: 2, text: String::new() };
    end.encode(&mut file).expect("the record is short");
    let offset = file.len() as u64;
    index.encode(&mut file, offset, END, false).expect("the footer is short");
    file
}

/// The records of a file without damage.
fn records(file: &[u8]) -> Vec<(u64, Record<'_>)> {
    Items::new(file)
        .map(|item| match item {
            Item::Record { offset, record } => (offset, record),
            damaged => panic!("{damaged:?}"),
        })
        .collect()
}

/// The keys of the events that can be read.
fn keys(file: &[u8]) -> Vec<EventKey> {
    Items::new(file)
        .filter_map(|item| match item {
            Item::Record { record, .. } => EventView::parse(&record).ok().map(|event| event.key()),
            Item::Damaged { .. } => None,
        })
        .collect()
}
