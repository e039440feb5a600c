//! Crashes, simulated by what they leave.

use super::*;
use crate::offline::{RecoverAction, RecoverReport, RecoveredSegment, recover, verify};

fn events() -> [Event; 3] {
    [event(1, 1, b"one"), Event { missing: vec![841], ..event(2, 1, b"two, longer") }, event(4, 1, b"")]
}

fn recovered(directory: &Directory) -> RecoverReport {
    recover(directory.path()).expect("the directory is writable")
}

fn only_segment(directory: &Directory) -> RecoveredSegment {
    let report = recovered(directory);
    assert_eq!(report.segments.len(), 1, "{report:?}");
    report.segments[0].clone()
}

/// Nothing is left to do, and nothing is done.
fn expect_settled(directory: &Directory) {
    let contents = |directory: &Directory| -> Vec<(String, Vec<u8>)> {
        directory.names().into_iter().map(|name| (name.clone(), directory.read(&name))).collect()
    };
    let before = contents(directory);
    assert_eq!(recovered(directory).segments, []);
    assert!(contents(directory) == before, "a second recovery changed something");
}

#[test]
fn a_cut_at_any_byte_keeps_exactly_the_complete_records() {
    let segment = Segment::new(1, 1, &events());
    let file = segment.closed();
    let head = segment.events[0].start;
    let records_end = segment.bytes.len();
    for cut in 0..file.len() {
        let directory = Directory::new();
        directory.write(&open_name(0, 1), &file[..cut]);
        let found = only_segment(&directory);
        let whole = segment.events.iter().filter(|event| event.end <= cut).count();
        assert_eq!((found.events, found.damaged_bytes), (whole as u64, 0), "cut at {cut}");
        assert_eq!(found.last_key.as_deref(), [None, Some("1"), Some("2"), Some("4")][whole], "cut at {cut}");
        let kept = cut - found.cut_bytes as usize;
        if kept == 0 {
            assert_eq!((found.action, directory.names()), (RecoverAction::Empty, vec![]), "cut at {cut}");
        } else {
            assert_eq!(directory.names(), [name(0, 1)], "cut at {cut}");
            let kept_of_events = kept.min(records_end);
            assert!(directory.read(&name(0, 1))[..kept_of_events] == file[..kept_of_events], "cut at {cut}");
            let report = verify(&[directory.path()]).expect("the segment was closed");
            assert_eq!((report.events, report.wrong_footers, report.damaged_bytes), (whole as u64, 0, 0));
            assert!(kept >= head || !found.header || whole == 0);
        }
        expect_settled(&directory);
    }
}

/// As a writer leaves it beside a file that it closes itself; what stood there before speaks of another file.
#[test]
fn a_file_that_was_closed_has_its_checksum_beside_it() {
    let segment = Segment::new(1, 1, &events());
    let file = segment.closed();
    for cut in [file.len(), segment.events[1].end] {
        let directory = Directory::new();
        directory.write(&open_name(0, 1), &file[..cut]);
        let checksum_name = format!("{}.crc32c", name(0, 1));
        directory.write(&checksum_name, b"00000000  other\n");
        recovered(&directory);
        let mut checksum = Checksum::default();
        checksum.update(&directory.read(&name(0, 1)));
        let checksum = checksum.value();
        let text = format!("{checksum:08x}  {}\n", name(0, 1));
        assert_eq!(String::from_utf8(directory.read(&checksum_name)), Ok(text), "cut at {cut}");
        expect_settled(&directory);
    }
}

#[test]
fn a_whole_file_only_gets_its_name() {
    let directory = Directory::new();
    let file = Segment::new(1, 1, &events()).closed();
    directory.write(&open_name(0, 1), &file);
    assert_eq!(only_segment(&directory).action, RecoverAction::Closed);
    assert!(directory.read(&name(0, 1)) == file);
    expect_settled(&directory);
}

#[test]
fn records_behind_damage_are_kept_and_so_is_the_damaged_file() {
    for open in [true, false] {
        let directory = Directory::new();
        let segment = Segment::new(1, 1, &events());
        let mut file = if open { segment.open() } else { segment.closed() };
        file[segment.events[1].start + 3] ^= 0xff;
        let found_as = if open { open_name(0, 1) } else { name(0, 1) };
        directory.write(&found_as, &file);
        let found = only_segment(&directory);
        assert_eq!((found.action, &found.file), (RecoverAction::Rebuilt, &found_as));
        assert_eq!((found.events, found.last_key.as_deref()), (2, Some("4")));
        assert_eq!((found.damaged_bytes, found.cut_bytes), (segment.events[1].len() as u64, 0));
        let original = found.original.expect("the damaged file is kept");
        assert!(directory.read(&original) == file);
        let report = verify(&[directory.path()]).expect("the segment was closed");
        assert_eq!((report.events, report.gaps, report.damaged_bytes, report.wrong_footers), (2, 2, 0, 0));
        expect_settled(&directory);
    }
}

#[test]
fn a_wrong_index_is_made_anew() {
    let directory = Directory::new();
    let mut segment = Segment::new(1, 1, &events());
    let right = segment.index.clone();
    segment.index.clear();
    segment.index.push(right.entries()[0]);
    directory.write(&name(0, 1), &segment.closed());
    assert_eq!(verify(&[directory.path()]).expect("a segment").wrong_footers, 1);
    let found = only_segment(&directory);
    assert_eq!((found.action, found.events, found.original), (RecoverAction::Rebuilt, 3, None));
    assert_eq!(verify(&[directory.path()]).expect("a segment").wrong_footers, 0);
    expect_settled(&directory);
}

#[test]
fn an_interrupted_recovery_is_started_again_or_finished() {
    let segment = Segment::new(1, 1, &events());
    let whole = || {
        let directory = Directory::new();
        directory.write(&open_name(0, 1), &segment.open());
        recovered(&directory);
        directory.read(&name(0, 1))
    };
    let copy = name(0, 1) + ".recovering";

    let directory = Directory::new();
    directory.write(&open_name(0, 1), &segment.open());
    directory.write(&copy, &segment.open()[..77]);
    assert_eq!(only_segment(&directory).action, RecoverAction::Rebuilt, "killed while the copy was written");
    assert!(directory.names() == [name(0, 1)] && directory.read(&name(0, 1)) == whole());

    let directory = Directory::new();
    directory.write(&open_name(0, 1), &segment.open());
    directory.write(&name(0, 1), &whole());
    assert_eq!(only_segment(&directory).action, RecoverAction::Finished, "killed before the open file was removed");
    assert_eq!(directory.names(), [name(0, 1)]);
    expect_settled(&directory);

    let directory = Directory::new();
    directory.write(&(name(0, 1) + ".damaged"), b"what was put aside");
    directory.write(&copy, &whole());
    assert_eq!(recovered(&directory).untouched, 1, "killed between putting aside and renaming");
    assert_eq!(directory.names(), [name(0, 1), name(0, 1) + ".damaged"]);
}

#[test]
fn files_of_one_name_and_different_events_are_left_alone() {
    let directory = Directory::new();
    directory.write(&name(0, 1), &Segment::new(1, 1, &[event(1, 1, b"one")]).closed());
    directory.write(&open_name(0, 1), &Segment::new(1, 1, &[event(2, 1, b"two")]).open());
    assert_eq!(only_segment(&directory).action, RecoverAction::Conflict);
    assert_eq!(directory.names(), [name(0, 1), open_name(0, 1)]);
}

#[test]
fn what_somebody_writes_is_left_alone() {
    let directory = Directory::new();
    let path = directory.write(&open_name(0, 1), &Segment::new(1, 1, &events()).open());
    let writer = fs::File::options().append(true).open(&path).expect("the file is there");
    writer.try_lock().expect("nobody else has it");
    assert_eq!(only_segment(&directory).action, RecoverAction::InUse);
    assert_eq!(directory.names(), [open_name(0, 1)]);
    drop(writer);
    assert_eq!(only_segment(&directory).action, RecoverAction::Rebuilt);
}

#[test]
fn garbage_is_put_aside() {
    let directory = Directory::new();
    directory.write(&open_name(0, 1), &[0x5a; 500]);
    let found = only_segment(&directory);
    assert_eq!((found.action, found.damaged_bytes, found.header), (RecoverAction::Empty, 500, false));
    assert_eq!(directory.names(), [name(0, 1) + ".damaged"]);
    expect_settled(&directory);
}
