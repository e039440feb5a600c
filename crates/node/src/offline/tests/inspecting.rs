//! What people see.

use super::*;
use crate::offline::{InspectOptions, OfflineError, inspect};

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
        "source 841 (chambers): 24 B, raw id 1".to_owned(),
        format!("FED: L1 id 1, BX 100, event type 0, version 0; 3 words, CRC {crc:04x} good, status 0, TTS 0"),
        "         0  00 49 43 06 01 00 00 50 38 20 62 79 74 65 73 20".to_owned(),
        "source 7 (counter): 5 B, raw id 1".to_owned(),
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
