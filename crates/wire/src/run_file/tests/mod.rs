//! Tests of the run file, and the small segment that they and `docs/run-file.md` share.

mod round_trip;

use std::fmt::Write as _;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{append_record, i64_at, u16_at, u32_at, u64_at, *};
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, CAUSES, Cause, EventKey, Incarnation, NodeId, RunNumber, SourceId, Utc,
};

const INCARNATION: Incarnation = Incarnation(1_700_000_000_000_000_000);
const START: Utc = Utc(1_700_000_001_000_000_000);
const END: Utc = Utc(1_700_000_002_000_000_000);
const CHAMBERS: SourceId = SourceId(841);
const COUNTER: SourceId = SourceId(7);

/// Cases of a property: fewer under Miri, which is a thousand times slower.
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

/// CRC-16 of FED fragments, bit by bit: FORMATS section 2. The CRC field must contain zeros.
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

/// The segment that `docs/run-file-example.md` shows: a complete event, a spill (a kind that is skipped), an incomplete
/// event in its second attempt.
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

/// The keys of the readable events.
fn keys(file: &[u8]) -> Vec<EventKey> {
    Items::new(file)
        .filter_map(|item| match item {
            Item::Record { record, .. } => EventView::parse(&record).ok().map(|event| event.key()),
            Item::Damaged { .. } => None,
        })
        .collect()
}

const VERSION_1_0: &[u8] = include_bytes!("../../../golden/run-file-1.0/run000001-bu0-000001.rwk");
const VERSION_1_1: &[u8] = include_bytes!("../../../golden/run-file-1.1/run000001-bu0-physics-000001.rwk");

#[test]
fn version_1_1_is_written_as_released() {
    assert!(segment() == VERSION_1_1, "the layout changed: that needs a new version and a golden file of its own");
}

#[test]
fn version_1_0_is_readable() {
    // There were no streams.
    expect_readable(VERSION_1_0, &SegmentHeader { minor: 0, stream: StreamName::UNNAMED, ..header() });
}

#[test]
fn version_1_1_is_readable() {
    expect_readable(VERSION_1_1, &header());
}

fn expect_readable(file: &[u8], header: &SegmentHeader) {
    let found = records(file);
    assert_eq!(SegmentHeader::decode(&found[0].1).as_ref(), Ok(header));
    let first = EventView::parse(&found[2].1).expect("an event");
    assert_eq!((first.key(), first.head().attempt), (EventKey::new(0, 1), Attempt(1)));
    let payloads: Vec<&[u8]> = first.fragments().map(|fragment| fragment.payload).collect();
    assert_eq!(payloads, [&fed_fragment()[..], b"hello"]);
    let second = EventView::parse(&found[4].1).expect("an event");
    assert!(second.head().flags.contains(EventFlags::INCOMPLETE));
    let missing: Vec<_> = second.missing().map(|missing| (missing.source, missing.cause())).collect();
    assert_eq!(missing, [(CHAMBERS, Some(Cause::TimedOut))]);
    let footer = FooterView::parse(&found[6].1).expect("a footer");
    assert_eq!(footer.entries().map(|entry| entry.offset).collect::<Vec<_>>(), [found[2].0, found[4].0]);
}

// `docs/run-file-example.md` shows a real segment; this test makes the picture again and compares.
//
// After an intended change, `ROPEWALK_BLESS=1 cargo test -p ropewalk-wire page` writes golden file and page.

const PAGE_BEGIN: &str = "<!-- begin of the segment, made by a test -->\n";
const PAGE_END: &str = "<!-- end of the segment -->\n";
const BEGIN_CAUSES: &str = "<!-- begin of the causes, made by a test -->\n";
const END_CAUSES: &str = "<!-- end of the causes -->\n";

/// The growing picture.
struct Picture<'a> {
    file: &'a [u8],
    at: usize,
    text: String,
}

impl Picture<'_> {
    /// Adds a field of `length` bytes with its meaning; eight bytes a line.
    fn field(&mut self, length: usize, meaning: &str) {
        for (line, bytes) in self.file[self.at..self.at + length].chunks(8).enumerate() {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let meaning = if line == 0 { meaning } else { "" };
            let row = format!("{:>5}  {:<25}{meaning}", self.at + 8 * line, hex.join(" "));
            writeln!(self.text, "{}", row.trim_end()).expect("text grows");
        }
        self.at += length;
    }

    /// Adds a field whose meaning is its number.
    fn number(&mut self, length: usize, meaning: &str) {
        let value = match length {
            1 => u64::from(self.file[self.at]),
            2 => u64::from(u16_at(self.file, self.at)),
            4 => u64::from(u32_at(self.file, self.at)),
            _ => u64_at(self.file, self.at),
        };
        self.field(length, &format!("{meaning} {value}"));
    }

    fn time(&mut self, meaning: &str) {
        let value = i64_at(self.file, self.at);
        self.field(8, &format!("{meaning} {value}"));
    }

    /// Adds consecutive fields.
    fn numbers(&mut self, fields: &[(usize, &str)]) {
        for &(length, meaning) in fields {
            self.number(length, meaning);
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        let (start, kind) = (self.at, record.kind());
        writeln!(self.text, "\n## {}\n\n```text", capitalised(kind.name())).expect("text grows");
        self.field(4, "\"RWKR\"");
        self.field(2, &format!("kind {}: {}", kind.0, kind.name()));
        self.numbers(&[(2, "flags"), (4, "length")]);
        self.field(4, "CRC-32C of the 12 bytes before");
        match kind {
            RecordKind::SEGMENT => self.segment_header(),
            RecordKind::BEGIN_OF_RUN => self.begin_of_run(),
            RecordKind::EVENT => self.event(record),
            RecordKind::END_OF_RUN => self.end_of_run(),
            RecordKind::FOOTER => self.footer(),
            _ => self.field(7, "a reserved kind: stepped over"),
        }
        let padding = start + record.length() - 4 - self.at;
        if padding > 0 {
            self.field(padding, "padding");
        }
        self.field(4, "CRC-32C of the whole record");
        self.text.push_str("```\n");
    }

    fn segment_header(&mut self) {
        self.field(8, "\"ROPEWALK\"");
        self.numbers(&[(2, "major version"), (2, "minor version"), (4, "run"), (4, "segment")]);
        self.field(1, "role 2: builder unit");
        self.field(1, "acknowledgement level 3: written");
        self.numbers(&[(2, "index of the node"), (8, "incarnation")]);
        self.time("start, UTC in ns:");
        self.numbers(&[(4, "sources:"), (2, "bytes of the stream's name:"), (2, "flags")]);
        for format in ["2: FED", "1: generic"] {
            self.number(4, "source");
            self.field(2, &format!("format {format}"));
            let length = usize::from(u16_at(self.file, self.at));
            self.number(2, "bytes of the name:");
            let name = String::from_utf8_lossy(&self.file[self.at..self.at + length]).into_owned();
            self.field(length, &format!("\"{name}\""));
            if length % 8 > 0 {
                self.field(8 - length % 8, "padding");
            }
        }
        self.field(7, "the stream: \"physics\"");
        self.field(1, "padding");
    }

    fn begin_of_run(&mut self) {
        self.number(4, "run");
        let length = u32_at(self.file, self.at) as usize;
        self.number(4, "bytes of the text:");
        self.time("start, UTC in ns:");
        self.field(length, "the configuration as text: \"version = 1\\n\"");
    }

    fn event(&mut self, record: &Record<'_>) {
        let event = EventView::parse(record).expect("an event was written");
        self.numbers(&[(8, "event key"), (8, "incarnation")]);
        let incomplete = event.head().flags.contains(EventFlags::INCOMPLETE);
        self.field(4, if incomplete { "flags: incomplete" } else { "flags: none" });
        self.numbers(&[(2, "attempt"), (2, "trigger type"), (4, "missing sources:"), (4, "fragments:")]);
        self.numbers(&[(4, "payload offset"), (4, "payload bytes"), (2, "bytes of a missing source's entry:")]);
        self.numbers(&[(2, "bytes of a fragment's entry:"), (4, "reserved")]);
        for missing in event.missing() {
            self.number(4, "missing: source");
            let cause = missing.cause().expect("the cause is known");
            self.field(1, &format!("cause {}: {cause}", cause as u8));
            self.field(3, "reserved");
        }
        for _ in event.fragments() {
            self.number(4, "fragment: source");
            let flags = u32_at(self.file, self.at);
            self.field(4, &format!("flags {flags:#x}"));
            self.numbers(&[(8, "raw id"), (8, "raw time")]);
            self.time("time in ns:");
            self.numbers(&[(2, "clock domain"), (2, "bunch crossing"), (2, "trigger type"), (2, "reserved")]);
            self.numbers(&[(4, "offset"), (4, "length")]);
        }
        for fragment in event.fragments() {
            self.field(fragment.payload.len(), &format!("payload of source {}", fragment.entry.source));
        }
    }

    fn end_of_run(&mut self) {
        self.numbers(&[(4, "run"), (4, "bytes of the text:")]);
        self.time("end, UTC in ns:");
        self.numbers(&[(8, "last event key"), (8, "event records of this node:")]);
    }

    fn footer(&mut self) {
        let count = u32_at(self.file, self.at);
        self.numbers(&[(4, "events:"), (4, "bytes of an entry:")]);
        self.time("closed, UTC in ns:");
        self.numbers(&[(4, "flags"), (4, "reserved"), (8, "offset of this record")]);
        for _ in 0..count {
            self.numbers(&[(8, "event key"), (8, "offset"), (8, "incarnation"), (4, "length"), (4, "fragments:")]);
            self.numbers(&[(4, "missing sources:"), (2, "attempt"), (2, "flags")]);
        }
        self.number(4, "length of this record");
        self.field(4, "\"RWKF\"");
    }
}

fn capitalised(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

fn picture(file: &[u8]) -> String {
    let mut picture = Picture { file, at: 0, text: String::new() };
    for (offset, record) in records(file) {
        assert_eq!(picture.at, offset as usize, "the picture left bytes out");
        picture.record(&record);
    }
    picture.text.push('\n');
    picture.text
}

/// The numbers of the causes, as in a missing source's entry.
fn causes() -> String {
    let row = |&cause: &Cause| {
        format!("| {} | `{cause}` | {} |\n", cause as u8, cause.help().trim().replace(". It ", "; it "))
    };
    let rows = CAUSES.iter().map(row);
    format!("\n| Number | Name | Meaning |\n|---|---|---|\n{}\n", rows.collect::<String>())
}

/// The page with new text between two marks.
fn renewed(page: &str, [begin, end]: [&str; 2], made: &str) -> String {
    let (before, rest) = page.split_once(begin).expect("the page marks where the part begins");
    let (_, after) = rest.split_once(end).expect("the page marks where the part ends");
    [before, begin, made, end, after].concat()
}

#[test]
fn the_page_shows_the_segment_as_it_is() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = segment();
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        let golden = here.join("golden/run-file-1.1/run000001-bu0-physics-000001.rwk");
        std::fs::write(golden, &file).expect("the golden file can be written");
    }
    let parts = [
        ("docs/run-file-example.md", [PAGE_BEGIN, PAGE_END], picture(&file)),
        ("docs/run-file.md", [BEGIN_CAUSES, END_CAUSES], causes()),
    ];
    for (name, marks, part) in parts {
        let page = std::fs::read_to_string(here.join("../..").join(name)).expect("the page is part of the repository");
        let made = renewed(&page, marks, &part);
        assert!(ropewalk_tidy::is_current(name, &made), "{name} differs: see the head of this test on how to renew it");
    }
}

const ALL: [Compression; 3] = [Compression::Zstd(1), Compression::Zstd(9), Compression::Lz4];

/// The unpacked stretches of a file, concatenated.
fn unpacked(file: &[u8]) -> Vec<u8> {
    let (mut all, mut stretch) = (Vec::new(), Vec::new());
    for (_, record) in records(file) {
        let packed = PackedStretch::parse(&record).expect("a packed stretch");
        assert_eq!(packed.offset, all.len() as u64);
        packed.unpack(&mut stretch).expect("what was packed");
        all.extend_from_slice(&stretch);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn what_is_packed_is_unpacked(pieces in vec(vec(0_u8..4, 0..3000), 1..5), which in 0..ALL.len()) {
        let mut packer = Packer::new(ALL[which]).expect("it packs");
        let (mut file, mut whole) = (Vec::new(), Vec::new());
        for piece in pieces {
            packer.pack(whole.len() as u64, &piece, &mut file).expect("it fits");
            whole.extend(piece);
        }
        prop_assert_eq!(unpacked(&file), whole);
    }

    #[test]
    fn no_bytes_make_unpacking_panic(bytes in vec(any::<u8>(), 24..200), codec in 0_u16..4, length in 0_u32..5000) {
        let mut file = Vec::new();
        let content = [&bytes[..8], &length.to_le_bytes(), &(bytes.len() as u32 - 24).to_le_bytes(), &codec.to_le_bytes(),
            &[0; 6], &bytes[24..]].concat();
        append_record(&mut file, RecordKind::PACKED, |out| out.extend_from_slice(&content)).expect("it is short");
        let record = records(&file)[0].1;
        let mut out = Vec::new();
        if let Ok(packed) = PackedStretch::parse(&record) && packed.unpack(&mut out).is_ok() {
            prop_assert_eq!(out.len(), length as usize);
        }
    }
}

#[test]
fn what_is_long_falls_apart_into_stretches_of_one_length() {
    let bytes: Vec<u8> = (0..2 * STRETCH_BYTES + 5).map(|place| (place / 1000) as u8).collect();
    let mut file = Vec::new();
    Packer::new(Compression::Lz4).expect("it packs").pack(0, &bytes, &mut file).expect("it fits");
    let places: Vec<_> = records(&file)
        .iter()
        .map(|(offset, _)| {
            let front = file[*offset as usize..][..PACKED_HEAD_BYTES].try_into().expect("a record's front");
            PackedStretch::place(front)
        })
        .collect();
    let stretch = STRETCH_BYTES as u64;
    assert_eq!(places, [(0, stretch + 3), (stretch + 3, stretch + 2)]);
    assert_eq!(unpacked(&file), bytes);
}

#[test]
fn compressions_have_names() {
    for (text, compression) in
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd:3", Compression::Zstd(3))]
    {
        assert_eq!((text.parse(), compression.to_string().as_str()), (Ok(compression), text));
    }
    for wrong in ["zstd", "zstd:0", "zstd:20", "gzip", ""] {
        assert_eq!(wrong.parse::<Compression>(), Err(NoCompression), "{wrong}");
    }
    assert!(Packer::new(Compression::None).is_none());
}
