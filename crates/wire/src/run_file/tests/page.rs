//! `docs/run-file.md` shows a real segment; this test makes the picture anew and compares.
//!
//! After a change that was meant: `ROPEWALK_BLESS=1 cargo test -p ropewalk-wire page` writes golden file and page.

use super::super::fields::{i64_at, u16_at, u32_at, u64_at};
use super::super::*;
use super::{records, segment};
use ropewalk_terms::CAUSES;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- begin of the segment, made by a test -->\n";
const END: &str = "<!-- end of the segment -->\n";
const BEGIN_CAUSES: &str = "<!-- begin of the causes, made by a test -->\n";
const END_CAUSES: &str = "<!-- end of the causes -->\n";

/// The picture as it grows.
struct Picture<'a> {
    file: &'a [u8],
    at: usize,
    text: String,
}

impl Picture<'_> {
    /// A field of `length` bytes and what it says; eight bytes a line.
    fn field(&mut self, length: usize, meaning: &str) {
        for (line, bytes) in self.file[self.at..self.at + length].chunks(8).enumerate() {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let meaning = if line == 0 { meaning } else { "" };
            let row = format!("{:>5}  {:<25}{meaning}", self.at + 8 * line, hex.join(" "));
            writeln!(self.text, "{}", row.trim_end()).expect("text grows");
        }
        self.at += length;
    }

    /// A field whose meaning is its number.
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

    /// Fields of one length after the other.
    fn numbers(&mut self, fields: &[(usize, &str)]) {
        for &(length, meaning) in fields {
            self.number(length, meaning);
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        let (start, kind) = (self.at, record.kind());
        writeln!(self.text, "\n### {}\n\n```text", capitalised(kind.name())).expect("text grows");
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

/// The numbers of the causes, as a missing source's entry holds them.
fn causes() -> String {
    let rows = CAUSES.iter().map(|&cause| format!("| {} | `{cause}` | {} |\n", cause as u8, cause.help().trim()));
    format!("\n| Number | Name | Meaning |\n|---|---|---|\n{}\n", rows.collect::<String>())
}

/// The page with what stands between two marks made anew.
fn renewed(page: &str, [begin, end]: [&str; 2], made: &str) -> String {
    let (before, rest) = page.split_once(begin).expect("the page marks where the part begins");
    let (_, after) = rest.split_once(end).expect("the page marks where the part ends");
    [before, begin, made, end, after].concat()
}

#[test]
fn the_page_shows_the_segment_as_it_is() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = here.join("../../docs/run-file.md");
    let page = std::fs::read_to_string(&path).expect("docs/run-file.md is part of the repository");
    let file = segment();
    let made = renewed(&page, [BEGIN, END], &picture(&file));
    let made = renewed(&made, [BEGIN_CAUSES, END_CAUSES], &causes());
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        let golden = here.join("golden/run-file-1.1/run000001-bu0-physics-000001.rwk");
        std::fs::write(golden, &file).expect("the golden file can be written");
        std::fs::write(&path, made).expect("the page can be written");
    } else {
        assert!(page == made, "docs/run-file.md shows another segment: see the head of this test on how to renew it");
    }
}
