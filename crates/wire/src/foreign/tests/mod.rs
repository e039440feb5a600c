//! Every format: encoded frames are recognised, read and described.

mod streams;

use core::fmt::{Arguments, Write};
use std::path::Path;

use super::*;
use crate::framing::{Framing, Front, Search};
use crate::mep::{Bank, encode_bank, encode_mep};
use crate::message::FragmentFlags;
use ropewalk_terms::Cause;

/// The reports to an inspector.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    kind: String,
    fields: String,
    parts: Vec<String>,
    faults: Vec<&'static str>,
    /// Maximum end of a reported element.
    end: usize,
}

impl Inspector for Told {
    fn kind(&mut self, name: &str) {
        self.kind = name.to_owned();
    }

    fn field(&mut self, name: &str, at: usize, bytes: usize, value: Value<'_>) {
        write!(self.fields, "{name}={value};").expect("a string takes everything");
        self.end = self.end.max(at + bytes);
    }

    fn part(&mut self, name: Arguments<'_>, at: usize, bytes: usize) {
        self.parts.push(name.to_string());
        self.end = self.end.max(at + bytes);
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn fault(&mut self, _: usize, what: &'static str) {
        self.faults.push(what);
    }
}

fn told(format: ForeignFormat, frame: &[u8]) -> Told {
    let mut told = Told::default();
    format.describe(frame, &mut told);
    told
}

/// Some frames of a format, made by its encoder: of source `source` (below 256), from event `first` on.
fn samples(format: ForeignFormat, source: u8, first: u32, count: u32) -> Vec<Vec<u8>> {
    (first..first + count).flat_map(|event| sample(format, source, event)).collect()
}

/// The frames of an event: one, or several.
fn sample(format: ForeignFormat, source: u8, event: u32) -> Vec<Vec<u8>> {
    let bytes = match format {
        ForeignFormat::Fed | ForeignFormat::Ferol => 8 * (event % 1200),
        ForeignFormat::Ejfat => 200 * (event % 100) + 1,
        _ => event % 50 + 3,
    };
    let payload: Vec<u8> = (0..bytes).map(|index| (index * 7 + event) as u8).collect();
    format.emulate(source.into(), event, &payload).expect("it is short")
}

fn bank(source: u8, data: &[u8]) -> Bank<'_> {
    Bank { kind: 12, version: 3, source: source.into(), data }
}

/// The result of cutting a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cut {
    frames: Vec<Vec<u8>>,
    skipped: usize,
    lost: Option<Cause>,
    left: usize,
}

/// Cuts a stream of which `step` more bytes are available whenever more are needed.
fn cut(format: ForeignFormat, bytes: &[u8], step: usize) -> Cut {
    let (mut cut, mut at, mut there, mut search) = (Cut::default(), 0, bytes.len().min(step), Search::default());
    loop {
        let window = &bytes[at..there];
        let front = match format.front(window, &mut search) {
            front @ Front::Needs { .. } if there == bytes.len() => {
                format.front_at_end(window, &mut search).unwrap_or(front)
            }
            front => front,
        };
        match front {
            Front::Frame { bytes } => {
                assert!((1..=window.len()).contains(&bytes), "{format:?}: a frame is there");
                cut.frames.push(window[..bytes].to_vec());
                at += bytes;
                search = Search::default();
            }
            Front::Skip { bytes, .. } => {
                assert!((1..=window.len()).contains(&bytes), "{format:?}: what is skipped is there");
                (at, cut.skipped) = (at + bytes, cut.skipped + bytes);
            }
            Front::Needs { bytes: needed } => {
                assert!(needed > window.len(), "{format:?}: what is there is not enough");
                assert!(needed <= MOST_FRAME_BYTES + 64, "{format:?}: {needed} bytes would be held");
                if there == bytes.len() {
                    break;
                }
                there = bytes.len().min(there + step);
            }
            Front::Lost { cause } => {
                cut.lost = Some(cause);
                break;
            }
        }
    }
    cut.left = bytes.len() - at;
    cut
}

#[test]
fn every_format_has_a_name_of_its_own_by_which_it_is_found() {
    for &format in ForeignFormat::ALL {
        assert_eq!(ForeignFormat::by_name(format.name()), Some(format));
        assert!(!format.help().is_empty());
    }
    assert_eq!(ForeignFormat::by_name("raw"), None);
}

#[test]
fn every_format_is_recognised_by_its_first_bytes_and_taken_for_no_other_one() {
    for &format in ForeignFormat::ALL {
        let stream = samples(format, 5, 1, 40).concat();
        if format == ForeignFormat::Midas {
            // Events of equipments have no special beginning: a file begins with the begin of a run.
            let header = Header::<16>::new().with(midas::ID, 0x8000).with(midas::MASK, 0x494D);
            assert_eq!(ForeignFormat::recognise(&[&header.0[..], &stream].concat()), Some(format));
        } else if format.needs_datagrams() {
            let first = &samples(format, 5, 2, 1)[0];
            assert_eq!(ForeignFormat::recognise_datagram(first), Some(format));
        } else {
            assert_eq!(ForeignFormat::recognise(&stream), Some(format));
        }
    }
    for nothing in [&b""[..], b"\0", &[0; 4096], &[0xFF; 4096], b"#!/bin/sh\necho a text of some length\n"] {
        assert_eq!(ForeignFormat::recognise(nothing), None, "{nothing:x?}");
        assert_eq!(ForeignFormat::recognise_datagram(nothing), None, "{nothing:x?}");
    }
}

#[test]
fn frames_say_whose_they_are_and_which_event() {
    for &format in ForeignFormat::ALL {
        for (source, event) in [(0, 1), (200, 70_000)] {
            let frame = &sample(format, source, event)[0];
            let fields = format.fields(&frame[..]);
            let (_, widths) = (fields, format.widths());
            if let Some(whole) = format.enclosed(frame) {
                // An event of several sources.
                let sources: Vec<u32> = whole.members.iter().map(|member| member.source.0 & 0xFFFF).collect();
                assert_eq!((fields.source, sources), (None, vec![source.into(), u32::from(source) + 1]), "{format:?}");
                assert_eq!(fields.event, (format == ForeignFormat::Frd).then_some(event.into()));
                continue;
            }
            let expected = match format {
                ForeignFormat::Srs => source & 0xF,
                ForeignFormat::Caen => source & 0x1F,
                _ => source,
            };
            assert_eq!(fields.source, Some(expected.into()), "{format:?}");
            let step = match format {
                ForeignFormat::LhcbMep => 4,
                _ => 1,
            };
            let number = match (format.counting(), format) {
                (Counting::Frames, _) => (fields.sequence, widths.sequence),
                (_, ForeignFormat::LhcbBanks | ForeignFormat::Nscldaq) => continue,
                _ => (fields.event, widths.event),
            };
            let mask = u64::MAX >> (64 - number.1);
            assert_eq!(number.0, Some(u64::from(event * step) & mask), "{format:?}");
            assert!(!fields.flags.has_error(), "{format:?}");
        }
    }
}

#[test]
fn frames_of_an_encoder_are_described_without_a_fault() {
    for &format in ForeignFormat::ALL {
        for frame in samples(format, 3, 1, 60) {
            let told = told(format, &frame);
            assert_eq!(told.faults, [""; 0], "{format:?}: {told:?}");
            assert!(!told.kind.is_empty() && !told.fields.is_empty() && !told.parts.is_empty(), "{format:?}: {told:?}");
            assert!(told.end <= frame.len(), "{format:?}: everything lies in the frame");
        }
    }
}

#[test]
fn parts_are_reported_by_name() {
    let parts = |format, event| told(format, &sample(format, 3, event)[0]).parts;
    assert_eq!(parts(ForeignFormat::Midas, 1), ["bank ADC0", "bank TDC"]);
    assert_eq!(parts(ForeignFormat::Eudaq, 1), ["block 0", "block 1", "sub-event", "block 3", "sub-event", "block 3"]);
    assert_eq!(parts(ForeignFormat::Atlas, 1), ["ROB", "ROD", "ROB", "ROD"]);
    assert_eq!(parts(ForeignFormat::Ess, 1), ["readout", "readout"]);
    assert_eq!(parts(ForeignFormat::Srs, 1), ["hit", "hit", "hit", "marker", "hit"]);
    assert_eq!(parts(ForeignFormat::Artdaq, 1), ["metadata", "payload"]);
    assert_eq!(parts(ForeignFormat::LhcbMep, 1), ["event", "bank of type 12"].repeat(4));
    assert_eq!(parts(ForeignFormat::Fed, 1), ["payload"]);
    assert_eq!(parts(ForeignFormat::Frd, 1), ["FED fragment"; 2]);
    assert_eq!(parts(ForeignFormat::Caen, 1), ["channel 0", "channel 1"]);
    assert_eq!(parts(ForeignFormat::Mdf, 1), ["bank of type 12"; 3]);
}

#[test]
fn a_whole_event_is_its_fragments_and_an_envelope() {
    for format in [ForeignFormat::Frd, ForeignFormat::Mdf] {
        let frame = sample(format, 3, 20).concat();
        let whole = format.enclosed(&frame).expect("an event");
        let ends: Vec<usize> = whole.members.iter().map(|member| member.place.end).collect();
        let starts: Vec<usize> = whole.members.iter().map(|member| member.place.start).collect();
        assert_eq!((starts[0], ends[1]), (whole.data.start, whole.data.end), "{format:?}");
        assert_eq!(starts[1], ends[0], "{format:?}: there is no gap");
        for member in &whole.members {
            let bytes = &frame[member.place.clone()];
            assert_eq!(member.format.fields(bytes).source, Some(member.source.0 & 0xFFFF), "{format:?}");
        }
        // Data that cannot be divided are one piece.
        let mut damaged = frame.clone();
        damaged[whole.data.end - 1] = 0;
        damaged[whole.data.start] = 0;
        let undivided = format.enclosed(&damaged).expect("an event");
        assert_eq!(undivided, Enclosed::broken(format, whole.data.clone()), "{format:?}");
        assert_eq!(format.enclosed(&frame[..frame.len() - 1]), None, "{format:?}");
    }
    assert_eq!(ForeignFormat::Midas.enclosed(&sample(ForeignFormat::Midas, 3, 20).concat()), None);
}

#[test]
fn a_file_of_raw_data_says_what_it_holds() {
    let events = samples(ForeignFormat::Frd, 3, 1, 5);
    let file_bytes = 22 + events.concat().len() as u64;
    let header = crate::frd::FileHeader { events: 5, file_bytes }.to_bytes().to_vec();
    let file = [header.clone(), events.concat()].concat();
    assert_eq!(ForeignFormat::recognise(&file), Some(ForeignFormat::Frd));
    assert_eq!(cut(ForeignFormat::Frd, &file, 7).frames, [vec![header.clone()], events.clone()].concat());
    assert_eq!(ForeignFormat::Frd.announces(&header), Some(Announced { frames: 5, bytes: file_bytes }));
    assert_eq!(ForeignFormat::Frd.announces(&events[0]), None);
    assert_eq!((ForeignFormat::Frd.checksum(&header[..]), ForeignFormat::Frd.enclosed(&header)), (None, None));
    assert_eq!(told(ForeignFormat::Frd, &header).kind, "file header");
}

#[test]
fn kinds_and_fields_are_reported_by_name() {
    let fields = |format| told(format, &sample(format, 3, 7)[0]).fields;
    assert!(fields(ForeignFormat::Midas).contains("serial=7;time=7;"));
    assert!(fields(ForeignFormat::Midas).contains("bank=ADC0;bank type=u16;bank=TDC;bank type=u32;"));
    assert!(fields(ForeignFormat::Eudaq).contains("description=Telescope;Run=7;=;"));
    assert!(fields(ForeignFormat::Atlas).contains("global id=7;"));
    assert!(fields(ForeignFormat::Atlas).contains("L1 id=7;bunch crossing=77;trigger type=5;"));
    let hit = "hit=chip 9, channel 8, ADC 252, bunch crossing 4000, TDC 63;marker=chip 3, time 4394056963704;";
    assert!(fields(ForeignFormat::Srs).contains(hit), "{}", fields(ForeignFormat::Srs));
    assert!(fields(ForeignFormat::Fed).contains("source=3;bunch crossing=77;L1 id=7;"));
    assert!(fields(ForeignFormat::Frd).starts_with("version=5;flags=0x0;run=7;lumisection=1;event=7;data bytes=48;"));
    assert!(fields(ForeignFormat::Mdf).contains("version=3;data type=1;"));
    assert!(fields(ForeignFormat::Mdf).ends_with("run=7;orbit=7;bunch=77;"));
    let begin = Header::<16>::new().with(midas::ID, 0x8000).with(midas::SERIAL, 407);
    assert_eq!(told(ForeignFormat::Midas, &begin.0).kind, "begin of run");
    assert_eq!(ForeignFormat::Midas.fields(&begin.0[..]).run, Some(407));
    let page = Header::<64>::new().with(alice::MEMORY, 64).with(alice::OFFSET, 64).with(alice::STOP, 1);
    assert_eq!(told(ForeignFormat::Alice, &page.0).kind, "end of heartbeat frame");
}

#[test]
fn nscldaq_items_say_what_they_are() {
    let told = |kind: u32, body: &[u8]| {
        let mut item = Vec::new();
        nscldaq::encode(Header::new().with(nscldaq::TYPE, kind.into()), body, &mut item);
        assert_eq!(cut(ForeignFormat::Nscldaq, &item, 3).frames, [item.clone()]);
        assert_eq!(ForeignFormat::Nscldaq.fields(&item[..]).time, None, "there is no body header");
        told(ForeignFormat::Nscldaq, &item)
    };
    let begin = told(1, b"\x07\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0first run\0\0\0");
    assert_eq!(begin.kind, "begin of run");
    assert!(begin.fields.contains("run=7;") && begin.fields.contains("title=first run;"), "{begin:?}");
    let count = told(31, b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\x00\x01\0\0\0\0\0\0");
    assert!(count.fields.contains("events=256;"), "{count:?}");
    assert_eq!(told(12, b"\x0b\0\0\0").kind, "ring format");
    assert_eq!(told(999, b"").kind, "unknown type");
}

#[test]
fn only_what_begins_an_event_counts_it() {
    let blocks = sample(ForeignFormat::Ferol, 3, 1199);
    let goes_on: Vec<bool> = blocks.iter().map(|block| ForeignFormat::Ferol.goes_on(block)).collect();
    assert_eq!(goes_on, [false, true, true]);
    let segments = sample(ForeignFormat::Ejfat, 3, 99);
    let goes_on: Vec<bool> = segments.iter().map(|segment| ForeignFormat::Ejfat.goes_on(segment)).collect();
    assert_eq!(goes_on, [false, true, true]);
}

#[test]
fn a_multi_event_packet_falls_apart_into_its_events() {
    use crate::framing::{Piece, PieceKey, Splitter};
    let packet = &sample(ForeignFormat::LhcbMep, 3, 5)[0];
    let mut pieces = Vec::new();
    assert_eq!(ForeignFormat::LhcbMep.split(&packet[..], &mut pieces), Ok(()));
    let length = (packet.len() - 12) / 4;
    let expected = (0..4).map(|n| Piece { key: PieceKey::Event(20 + n as u64), offset: 12 + n * length, length });
    assert_eq!(pieces, expected.collect::<Vec<_>>());
    assert_eq!(ForeignFormat::LhcbMep.events_in(packet), 4);
    assert_eq!(ForeignFormat::LhcbMep.split(&packet[1..], &mut pieces), Err(Cause::LengthMismatch));
    let event = &sample(ForeignFormat::Midas, 3, 5)[0];
    pieces.clear();
    assert_eq!(ForeignFormat::Midas.split(&event[..], &mut pieces), Ok(()));
    assert_eq!(pieces, [Piece { key: PieceKey::Event(5), offset: 0, length: event.len() }]);
}

#[test]
fn a_number_is_put_and_read_at_its_place_in_either_order() {
    let (little, big) = (Place::little("l", 1, 4).bits(4, 24), Place::big("b", 1, 4).bits(4, 24));
    for place in [little, big] {
        let header = Header::<6>([0xFF; 6]).with(place, 0x12_3456);
        assert_eq!(place.read(&header.0[..]), Some(0x12_3456));
        assert_eq!(Place::little("others", 0, 1).read(&header.0[..]), Some(0xFF));
        let ones: u32 = header.0.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 48 - 24 + 0x12_3456_u32.count_ones(), "the bits around it stay");
        assert_eq!(header.with(place, 0xF012_3456), header, "what does not fit is cut off");
        assert_eq!(place.read(&header.0[..4]), None);
    }
    assert_eq!(Header::<6>::new().with(big, 1).0, [0, 0, 0, 0, 16, 0]);
    assert_eq!((little.type_text(), Place::big("x", 0, 1).type_text()), ("u32le, bits 4-27".into(), "u8".into()));
}

#[test]
fn what_fits_no_frame_is_not_emulated() {
    for format in
        [ForeignFormat::LhcbBanks, ForeignFormat::Mdf, ForeignFormat::LhcbMep, ForeignFormat::Ess, ForeignFormat::Alice]
    {
        assert_eq!(format.emulate(1, 1, &[0; 65_530]), None, "{format:?}");
    }
}

#[test]
fn segments_say_which_piece_of_which_event_they_are() {
    use crate::framing::PieceHead;
    for (event, header) in [(98, 36), (99, 20)] {
        let segments = sample(ForeignFormat::Ejfat, 3, event);
        let whole = Some(200 * u64::from(event) + 1);
        let frame = u64::from(event) ^ 3 << 48;
        for (segment, place) in segments.iter().zip((0..).step_by(8192)) {
            let expected = PieceHead { frame, place, whole, header, is_in_bytes: true };
            assert_eq!(ForeignFormat::Ejfat.piece(&segment[..]), Some(expected));
        }
        assert_eq!(segments.len(), 3);
        assert_eq!(ForeignFormat::Ejfat.piece(&segments[0][..header - 1]), None);
    }
    assert!(ForeignFormat::Ejfat.comes_in_pieces() && !ForeignFormat::Srs.comes_in_pieces());
}

/// The header of UM3148, table 9.3, for a board with 8 of 16 channels, whose clock has lost its lock.
#[test]
fn a_digitizers_header_has_its_numbers_where_the_manual_has_them() {
    let words = [0xA000_000C_u32, 0x1C00_02F0, 0x0F12_3456, 0x8000_0007, 1, 2, 3, 4, 5, 6, 7, 8];
    let event: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let fields = ForeignFormat::Caen.fields(&event[..]);
    assert_eq!((fields.source, fields.event, fields.time), (Some(3), Some(0x12_3456), Some(7)));
    assert_eq!(fields.flags, FragmentFlags::STATUS_ERROR);
    let told = told(ForeignFormat::Caen, &event);
    assert!(told.fields.contains("channels 0-7=0xf0;trigger options=0x2;event format=0;board fail=1;board id=3;"));
    assert!(told.fields.ends_with("channels 8-15=0xf;trigger time tag=7;time has wrapped=1;"), "{}", told.fields);
    assert_eq!(told.faults, ["the board reports a fault"]);
    assert_eq!(told.parts, [4, 5, 6, 7, 8, 9, 10, 11].map(|channel| format!("channel {channel}")));
    // Zero suppression: the channels' parts have different lengths.
    let mut suppressed = event;
    suppressed[7] |= 1;
    assert_eq!(self::told(ForeignFormat::Caen, &suppressed).parts, ["data"]);
}

/// As in the files of BES III: version 3.0, with the number of its own words in front of them.
#[test]
fn a_full_event_of_version_3_says_what_it_is() {
    let own = [10_u32, 1_775_621_020, 199_781, 91_668, 199_782, 4, 0, 16, 51, 65_536, 7];
    let fixed = [0xAA12_34AA, 18, 18, 0x0300_0000, 0x79_5001, 1, 0];
    let event: Vec<u8> = fixed.iter().chain(&own).flat_map(|word| word.to_le_bytes()).collect();
    let fields = ForeignFormat::Atlas.fields(&event[..]);
    assert_eq!((fields.event, fields.run, fields.trigger_type), (Some(199_781), Some(91_668), Some(4)));
    assert_eq!(fields.time, Some(1_775_621_020_000_000_000));
    let told = told(ForeignFormat::Atlas, &event);
    for field in ["seconds=1775621020;", "global id=199781;", "run=91668;", "L1 id=199782;", "trigger type=4;"] {
        assert!(told.fields.contains(field), "{field} {}", told.fields);
    }
}

// `docs/formats-*.md` have the tables of every format; this test makes them anew and compares.
//
// After an intended change, `ROPEWALK_BLESS=1 cargo test -p ropewalk-wire --lib page` writes them.

/// The headers of a format, a line for each field.
fn tables(format: ForeignFormat) -> String {
    let mut text = String::new();
    for (title, places) in format.headers() {
        write!(text, "\n| {title}: byte | type | field |\n|---:|---|---|\n").expect("a string takes everything");
        for place in *places {
            let (at, kind, name) = (place.offset(), place.type_text(), place.name());
            writeln!(text, "| {at} | {kind} | {name} |").expect("a string takes everything");
        }
    }
    text + "\n"
}

#[test]
fn the_pages_have_the_tables_of_every_format() {
    let mut missing: Vec<&str> = ForeignFormat::ALL.iter().map(|format| format.name()).collect();
    for page in ["docs/formats-events.md", "docs/formats-boards.md", "docs/formats-frames.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let mut made = std::fs::read_to_string(path).expect("the page is there");
        for &format in ForeignFormat::ALL {
            let name = format.name();
            let begin = format!("<!-- begin of {name}, made by a test -->\n");
            let place = made.find(&begin).zip(made.find(&format!("<!-- end of {name} -->")));
            let Some((start, end)) = place else { continue };
            made.replace_range(start + begin.len()..end, &tables(format));
            missing.retain(|one| *one != name);
        }
        assert!(ropewalk_tidy::is_current(page, &made), "{page} and the formats differ: ROPEWALK_BLESS=1 writes it");
    }
    assert_eq!(missing, [""; 0], "no page has a place for them");
}
