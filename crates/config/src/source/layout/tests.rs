//! Layouts are read as they are documented; wrong ones are shown with their place.

use super::*;
use crate::{Configuration, ConfigurationError, parse};
use ropewalk_wire::framing::{Framing, Widths};
use std::path::Path;

/// A configuration with this source.
fn configuration(source: &str) -> Result<Configuration, ConfigurationError> {
    let rest = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 7\nreadout = \"ru0\"\n";
    parse("test.toml", &format!("{rest}{source}"), &|_| None)
}

fn plan(source: &str) -> Plan {
    let configuration = configuration(source).expect("a good configuration");
    configuration.source[0].plan().expect("a good layout").expect("it has one")
}

/// The key that is wrong, and what the error says.
fn wrong(source: &str) -> (String, String) {
    let error = configuration(source).expect_err(source);
    assert!(error.line > 8, "{error}");
    (error.key.clone(), error.to_string())
}

const DIGITISER: &str = r#"
name = "caen"
connect = "tcp://daqpc2:5000"
frame = { length = { at = 0, type = "u32le", mask = 0x0fffffff, unit = 4 }, max = "1MiB" }
event = { at = 8, type = "u32le", mask = 0xffffff, first = 0 }
time  = { at = 12, type = "u32le", mask = 0x7fffffff, tick = "8ns", clock = "caen" }
"#;

const PULSES: &str = r#"
name = "pulse-readout"
listen = "udp://0.0.0.0:9000"
frame = "datagram"
match = { at = 2, bytes = "ESS" }
demux = { at = "ip.source" }                 # several boards on one port: one source each
event = { fields = [ { at = 10, type = "u32le" }, { at = 14, type = "u32le" } ] }
sequence = { at = 26, type = "u32le" }       # a gap here is a lost packet, by name
"#;

#[test]
fn a_digitiser_is_described_in_three_lines() {
    let plan = plan(DIGITISER);
    assert_eq!(plan.widths(), Widths { event: 24, time: 31, sequence: 64 });
    assert_eq!((plan.least(), plan.most(), plan.tick().nanoseconds_of(1000)), (16, 1 << 20, 8000));
    assert!(!plan.is_of_datagrams());
    let configuration = configuration(DIGITISER).expect("a good configuration");
    assert_eq!(configuration.source[0].first_event(), 0);
}

#[test]
fn the_datagrams_of_a_real_board_are_described_in_five() {
    let plan = plan(PULSES);
    assert_eq!(plan.widths(), Widths { event: 64, time: 64, sequence: 32 });
    assert_eq!((plan.least(), plan.is_of_datagrams()), (30, true));
    let source = &configuration(PULSES).expect("a good configuration").source[0];
    assert!(source.demux.as_ref().is_some_and(|demux| demux.at == PeerOrPlace::Peer));
    assert!(source.numbers_grow(), "seconds and a part of one never count one by one");
    let counter = PULSES.replace("] }\nsequence", "], numbers = \"consecutive\" }\nsequence");
    assert!(!configuration(&counter).expect("a good configuration").source[0].numbers_grow());
}

#[test]
fn whose_a_frame_is_by_its_format_is_asked_where_the_format_knows() {
    let demux = "demux = { at = \"frame.source\"";
    for (source, hint) in [
        (format!("listen = \"udp://0.0.0.0:9000\"\nframe = \"datagram\"\n{demux}, is = 3 }}"), "the place of a number"),
        (format!("input = \"a.raw\"\nformat = \"fed\"\n{demux} }}"), "which ones? `is = 3`"),
        (format!("input = \"a.raw\"\nformat = \"fed\"\n{demux}, is = \"10.0.0.1\" }}"), "`is = 3`"),
        (format!("input = \"a.raw\"\nformat = \"fed\"\n{demux}, is = [] }}"), "or several"),
        (format!("input = \"a.raw\"\nformat = \"fed\"\n{demux}, type = \"u8\", is = 3 }}"), "`at` alone"),
        (format!("listen = \"tcp://0.0.0.0:9000\"\nformat = \"fed\"\n{demux}, is = 3 }}"), "in files (`input`)"),
    ] {
        let (key, text) = wrong(&source);
        assert!(key == "source[0].demux" && text.contains(hint), "{source}: {text}");
    }
}

#[test]
fn every_kind_of_framing_has_its_words() {
    for frame in [
        r#"{ fixed = "24B" }"#,
        r#"{ sync = [0xca, 0xfe], length = { at = 4, type = "u16be", counts = "after-field" } }"#,
        r#"{ sync = "GO", fixed = "24B" }"#,
        r#"{ delimiter = "\r\n", max = "200B" }"#,
        r#"{ datagram = true, max = "9000B" }"#,
        r#"{ several = true, length = { at = 0, type = "u16be", counts = "payload", header = 8 } }"#,
        r#"{ pieces = { header = 20, frame = { at = 12, type = "u64be" }, offset = { at = 4, type = "u32be" }, length = { at = 8, type = "u32be" } } }"#,
        r#"{ pieces = { header = 20, frame = { at = 12, type = "u64be" }, index = { at = 4, type = "u8" }, count = { at = 5, type = "u8" }, timeout = "1s" } }"#,
    ] {
        assert!(plan(&format!("input = \"board.raw\"\nframe = {frame}")).most() > 0, "{frame}");
    }
    let trailed = plan(
        r#"input = "fed.raw"
frame.trailer = { length = { at = -4, type = "u32le", mask = 0xffffff, unit = 8 }, mark = { at = -1, bytes = [0xa0], mask = [0xf0] }, step = 8 }
match = { at = 7, bytes = [0x50], mask = [0xf0] }
event = { at = 4, type = "u32le", mask = 0xffffff }
trigger_type = { at = 7, type = "u8", mask = 0x0f }
board = { at = 1, type = "u16le", mask = 0x0fff, is = 841 }
status = { at = -7, type = "u8", mask = 0x0f, error = 0x8 }
checksum = { kind = "crc16-cms", at = -6, type = "u16le" }
"#,
    );
    assert_eq!((trailed.least(), trailed.board(), trailed.widths().event), (16, Some(841), 24));
}

/// Fields of 14 bytes and a checksum of 4, which may be among the 16 bytes that the length does not count.
#[test]
fn a_longest_frame_without_room_for_header_and_checksum_is_blamed() {
    let with = |max: &str| {
        format!(
            "connect = \"tcp://a:1\"\nframe = {{ length = {{ at = 5, type = \"u16le\", counts = \"payload\", header = 16 }}, max = {max:?} }}\n\
             match = {{ at = 0, bytes = [0xa5, 0xc3] }}\ntime = {{ at = 8, type = \"u48le\", tick = \"25ns\" }}\n\
             checksum = {{ kind = \"crc32\", at = -4, type = \"u32le\" }}\n"
        )
    };
    for max in ["10B", "17B"] {
        let (key, text) = wrong(&with(max));
        assert_eq!(key, "source[0].frame.max", "{text}");
        let needed = "frames have at least 18 bytes (14 at the beginning, 4 at the end), and `max` allows ";
        assert!(text.contains(needed), "{text}");
    }
    assert!(configuration(&with("18B")).is_ok());
}

#[test]
fn bytes_written_as_a_text_of_digits_are_meant_as_numbers() {
    let (_, text) = wrong(&PULSES.replace("bytes = \"ESS\"", "bytes = \"0xa5c3\""));
    assert!(text.contains("\"0xa5c3\" is a text; for these bytes write [0xa5, 0xc3]"), "{text}");
}

/// The drawing has whole bytes: which bits of them a number has stands below it.
#[test]
fn masks_are_written_below_the_drawing() {
    let text = plan(DIGITISER).to_string();
    assert!(text.contains("time: bits 0 to 30 of the 4 bytes at 12 (mask 0x7fffffff)"), "{text}");
    assert!(!text.contains("event: bits"), "whole bytes are drawn: {text}");
    let even = DIGITISER.replace("mask = 0xffffff", "mask = 0xfffffffe");
    assert!(plan(&even).to_string().contains("event: bits 1 to 31 of the 4 bytes at 8"), "{}", plan(&even));
}

#[test]
fn what_contradicts_itself_is_shown_with_its_place() {
    let changed = |from: &str, to: &str| wrong(&DIGITISER.replace(from, to));
    let (key, text) = changed("at = 8,", "at = 10,");
    assert_eq!(key, "source[0].time");
    assert!(text.contains("it shares bits with `event`") && text.contains("^^^"), "{text}");
    let (key, text) = changed("unit = 4", "unit = 0");
    assert_eq!(key, "source[0].frame.length.unit");
    assert!(text.contains("test.toml:12:72:") && text.contains("^\n"), "{text}");
    assert_eq!(changed("max = \"1MiB\"", "max = \"2GiB\"").0, "source[0].frame.max");
    assert_eq!(changed("\"8ns\"", "\"20s\"").0, "source[0].time.tick");
    assert_eq!(changed("max = \"1MiB\"", "delimiter = \"x\"").0, "source[0].frame.length");
    assert_eq!(changed("max = \"1MiB\"", "fixed = \"8B\"").0, "source[0].frame.fixed");
    assert_eq!(changed("max = \"1MiB\"", "several = true, sync = \"x\"").0, "source[0].frame.several");
    assert_eq!(changed("unit = 4", "counts = \"payload\"").0, "source[0].frame.length.counts");
    assert_eq!(changed("unit = 4", "header = 4").0, "source[0].frame.length.header");
    assert_eq!(changed("first = 0", "fields = []").0, "source[0].event");
    assert_eq!(changed("frame = {", "# frame = {").0, "source[0].event");
    let (_, text) = changed("\"u32le\", mask = 0xffffff,", "\"u31le\", mask = 0xffffff,");
    assert!(text.contains("`u31le` is not the type of a number"), "{text}");
    let (_, text) = changed("unit = 4", "units = 4");
    assert!(text.contains("did you mean `unit`?"), "{text}");
    assert_eq!(wrong("frame = {}").0, "source[0].frame");
    assert_eq!(wrong("frame = { sync = \"GO\" }").0, "source[0].frame");
}

#[test]
fn a_stream_and_datagrams_are_told_apart() {
    // Boards that share an address differ in their datagrams, and a connection has one board.
    let (_, text) = wrong(&PULSES.replace("udp://", "tcp://"));
    assert!(text.contains("source[0].demux: one board sends over a connection"), "{text}");
    let (key, text) = wrong(&DIGITISER.replace("connect = \"tcp://daqpc2:5000\"", "listen = \"udp://0.0.0.0:5000\""));
    assert_eq!(key, "source[0].frame");
    assert!(text.contains("frame = \"datagram\""), "{text}");
    assert_eq!(wrong(&PULSES.replace("\"ip.source\"", "4")).0, "source[0].demux");
}

#[test]
fn the_pieces_of_a_frame_have_one_place_and_one_end() {
    let pieces = |rest: &str| {
        wrong(&format!("listen = \"udp://0.0.0.0:1\"\nframe = {{ pieces = {{ header = 8, frame = {{ at = 0, type = \"u8\" }}{rest} }} }}")).0
    };
    let (one, other) = (", index = { at = 1, type = \"u8\" }", ", last = { at = 2, type = \"u8\" }");
    assert_eq!(pieces(""), "source[0].frame.pieces");
    assert_eq!(pieces(one), "source[0].frame.pieces");
    assert_eq!(pieces(other), "source[0].frame.pieces");
    let length = ", length = { at = 3, type = \"u8\" }";
    assert_eq!(pieces(&format!("{one}{length}")), "source[0].frame.pieces.length");
}

/// The pages show layouts with their drawings. After a change that was meant:
/// `ROPEWALK_BLESS=1 cargo test -p ropewalk-config --lib layout`.
#[test]
fn every_layout_of_the_documentation_is_good_and_drawn_as_it_is() {
    let mut count = 0;
    for name in ["layouts.md", "layout-fields.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let page = std::fs::read_to_string(&path).expect("the page");
        let (mut made, mut rest) = (String::new(), page.as_str());
        while let Some((before, behind)) = rest.split_once("```toml\n") {
            let (source, behind) = behind.split_once("```\n```text\n").expect("a drawing behind each layout");
            let (_, behind) = behind.split_once("```\n").expect("the drawing's end");
            made.push_str(&format!("{before}```toml\n{source}```\n```text\n{}```\n", plan(source)));
            (rest, count) = (behind, count + 1);
        }
        made.push_str(rest);
        if std::env::var_os("ROPEWALK_BLESS").is_some() {
            std::fs::write(&path, &made).expect("the page can be written");
        }
        assert_eq!(made, std::fs::read_to_string(&path).expect("the page"), "see above how to make it anew");
    }
    assert!(count > 8, "{count} layouts");
}

#[test]
fn types_of_numbers_are_read() {
    let read = |text: &str| text.parse::<NumberType>().map(|kind| (kind.bytes, kind.is_big_endian)).ok();
    assert_eq!([read("u8"), read("u24be"), read("u64le")], [Some((1, false)), Some((3, true)), Some((8, false))]);
    assert_eq!(["u7", "u32", "i32le", "u08le", "u72be", "ule", ""].map(read), [None; 7]);
}

#[test]
fn ticks_are_times_or_frequencies() {
    let read = |text: &str| text.parse::<Tick>().map(|tick| tick.0).ok();
    assert_eq!(read("8ns"), Some(8_000_000_000));
    assert_eq!(read("125MHz"), Some(8_000_000_000));
    assert_eq!(read("88.0525MHz"), Some(11_356_860_964));
    assert_eq!(read("1s"), Some(1_000_000_000_000_000_000));
    assert_eq!(["", "8", "0ns", "-1ns", "0Hz", "8 furlongs"].map(read), [None; 6]);
}

#[test]
fn an_unknown_checksum_is_refused_with_the_known_ones() {
    assert!("crc7".parse::<ChecksumName>().is_err_and(|error| error.contains("crc16-ccitt")));
}

#[test]
fn everything_that_is_wrong_with_a_layout_is_shown_at_once() {
    let source = "connect = \"tcp://daqpc2:5000\"\nframe = { length = { at = 0, type = \"u32le\", header = 3 } }\n\
                  event = { at = 8 }\ntime = { at = 1, tick = \"8ns\" }\ndemux = { at = 4 }";
    let error = configuration(source).expect_err("four things");
    let keys: Vec<&str> = error.each().map(|one| one.key.as_str()).collect();
    assert_eq!(
        keys,
        ["frame.length.header", "event", "time", "demux"].map(|key| format!("source[0].{key}")),
        "{error}"
    );
    let error =
        configuration("match = { at = 0, bytes = \"a\" }\nevent = { at = 8, type = \"u8\" }").expect_err("two things");
    assert_eq!(error.each().count(), 2, "{error}");
}
