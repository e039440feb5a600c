//! Counts and checks, against what the tests know; and crashes, simulated by what they leave.

use super::*;
use crate::{
    FaultyEvents, OfflineError, RecoverAction, RecoverReport, RecoveredSegment, RunIndex, StreamReport, VerifyReport,
    recover, verify,
};
use sha2::{Digest, Sha256};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn verified(directory: &Directory) -> VerifyReport {
    verify(&[directory.path()]).expect("there are segments")
}

#[test]
fn two_directories_are_one_run_and_every_key_counts_once() {
    let (left, right) = (Directory::new(), Directory::new());
    let first = [event(1, 1, b"one"), event(3, 1, b"three, first attempt"), event(4, 1, b"four")];
    left.write(&name(0, 1), &Segment::new(1, 1, &first).closed());
    let again = Event { incarnation: 2, ..event(4, 1, b"four, later life") };
    let second = [event(3, 2, b"three"), event(2, 1, b"two"), again];
    right.write(&name(1, 1), &Segment::new(1, 1, &second).closed());

    let report = verify(&[left.path(), right.path()]).expect("there are segments");
    let payload = b"onetwothreefour, later life";
    assert_eq!((report.events, report.fragments, report.duplicates), (4, 4, 2));
    assert_eq!((report.payload_bytes, &report.payload_sha256), (payload.len() as u64, &sha256(payload)));
    assert_eq!((report.run, report.segments, report.gaps), (Some(1), 2, 0));
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.end_of_run_key.as_deref(), Some("4"));

    let twice = verify(&[left.path(), left.path()]).expect("there are segments");
    assert_eq!((twice.events, twice.duplicates), (3, 0), "one directory named twice");
}

#[test]
fn an_event_in_two_streams_is_one_event_and_no_repetition() {
    let directory = Directory::new();
    let [physics, calibration] = ["physics", "calibration"].map(|name| name.parse().expect("a stream's name"));
    let (first, second) = (event(1, 1, b"one"), event(5, 1, b"five"));
    let write = |stream, segment, events: &[Event]| {
        let file = Segment::of_stream(stream, 1, segment, events).closed();
        directory.write(&stream_name(stream, 0, segment), &file);
    };
    write(physics, 1, &[first.clone(), second.clone()]);
    write(physics, 2, &[Event { attempt: 2, ..first.clone() }]);
    write(calibration, 1, &[first]);

    let report = verified(&directory);
    assert_eq!((report.events, report.duplicates, report.gaps), (2, 1, 3));
    assert_eq!(report.payload_sha256, sha256(b"onefive"), "each event once");
    assert!(report.selected && report.is_intact(), "keys that no stream took are meant to be missing");
    let stream = |name: &str, events, duplicates| StreamReport { name: name.to_owned(), events, duplicates };
    assert_eq!(report.streams, [stream("calibration", 1, 0), stream("physics", 2, 1)]);
    let index = RunIndex::build(&[directory.path()]).expect("there are segments");
    assert_eq!((index.events().count(), index.copies().len()), (2, 4));
}

#[test]
fn the_digest_goes_by_key_and_then_by_source() {
    let directory = Directory::new();
    let big = vec![0x5a; 2_500_000];
    let fed = [fed_fragment(1, b"8 bytes "), fed_fragment(2, b"")];
    let events = [
        event_of(2, 1, vec![(FED, fed[1].clone()), (GENERIC, big.clone())]),
        event_of(1, 1, vec![(FED, fed[0].clone()), (GENERIC, b"odd".to_vec())]),
    ];
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    let report = verified(&directory);
    let payload = [b"odd", &fed[0][..], &big, &fed[1]].concat();
    assert_eq!((report.payload_bytes, report.payload_sha256), (payload.len() as u64, sha256(&payload)));
    assert_eq!((report.events, report.fragments, report.crc_errors, report.malformed), (2, 4, 0, 0));
}

#[test]
fn gaps_are_counted_within_a_resync_count() {
    let directory = Directory::new();
    let key = |resync, number| Event { key: EventKey::new(resync, number), ..event(0, 1, b"") };
    let events = [key(0, 5), key(0, 6), key(0, 9), key(1, 1), key(1, 3), key(3, 100)];
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    let report = verified(&directory);
    assert_eq!((report.gaps, report.is_intact()), (3, false));
    let gaps: Vec<(&str, &str)> = report.first_gaps.iter().map(|gap| (&gap.first[..], &gap.last[..])).collect();
    assert_eq!(gaps, [("7", "8"), ("1:2", "1:2")]);
    assert_eq!((report.first_key.as_deref(), report.last_key.as_deref()), (Some("5"), Some("3:100")));
}

#[test]
fn incomplete_events_are_counted_and_no_damage() {
    let directory = Directory::new();
    let events = [event(1, 1, b"one"), Event { missing: vec![841], ..event(2, 1, b"two") }];
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    let report = verified(&directory);
    assert_eq!((report.events, report.incomplete, report.is_intact()), (2, 1, true));
}

#[test]
fn the_first_events_with_a_fault_are_named_with_their_sources_and_causes() {
    let directory = Directory::new();
    let mut wrong = fed_fragment(3, b"8 bytes ");
    wrong[10] ^= 1;
    let many = (20..40).map(|number| Event { missing: vec![841], ..event(number, 1, b"") });
    let mut events = vec![
        event(1, 1, b"one"),
        Event { missing: vec![841, 999], ..event(2, 1, b"two") },
        event_of(3, 1, vec![(FED, wrong)]),
    ];
    events.extend(many);
    // The order of the files is not that of the keys.
    let (early, late) = events.split_at(10);
    directory.write(&name(0, 1), &Segment::new(1, 1, late).closed());
    directory.write(&name(1, 1), &Segment::new(1, 1, early).closed());
    let report = verified(&directory);
    assert_eq!((report.faulty, report.first_faulty.len()), (22, 10));
    let texts: Vec<_> = report.first_faulty.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "2: chambers (source 841) missing: timed out, source 999 missing: timed out");
    assert_eq!(texts[1], "3: chambers (source 841) has a wrong checksum");
    assert_eq!(
        (&*texts[2], &*texts[9]),
        ("20: chambers (source 841) missing: timed out", "27: chambers (source 841) missing: timed out")
    );
    let listed = FaultyEvents::in_directory(directory.path()).expect("there are segments");
    // The index has no checksums of fragments.
    assert_eq!((&listed.first[0], listed.first[1].event.as_str()), (&report.first_faulty[0], "20"));
    assert_eq!((listed.first.len(), listed.further), (10, Some(11)));
}

#[test]
fn an_event_with_many_faults_names_the_first_of_them() {
    let directory = Directory::new();
    let events = [Event { missing: (1..=300).collect(), ..event(5, 1, b"") }];
    let whole = Segment::new(1, 1, &events).closed();
    directory.write(&name(0, 1), &packed(&whole, 1000));
    let report = verified(&directory);
    let text = report.first_faulty[0].to_string();
    assert!(text.starts_with("5: source 1 missing: timed out, source 2 ") && text.ends_with(" and 296 more"), "{text}");
    let listed = FaultyEvents::in_directory(directory.path()).expect("there are segments");
    assert_eq!((listed.first, listed.further), (report.first_faulty, Some(0)), "packed files have the same index");
}

#[test]
fn a_flipped_bit_costs_its_event_and_is_named() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &[event(1, 1, b"one"), event(2, 1, b"two"), event(3, 1, b"three")]);
    let mut bytes = segment.closed();
    bytes[segment.events[1].start + 115] ^= 1;
    directory.write(&name(0, 1), &bytes);
    let report = verified(&directory);
    assert_eq!((report.events, report.crc_errors, report.gaps), (2, 1, 1));
    assert_eq!(report.damaged_bytes, segment.events[1].len() as u64);
    assert_eq!(report.wrong_footers, 1, "the index names an event that is not there");
}

#[test]
fn front_end_checksums_are_checked_anew() {
    let directory = Directory::new();
    let mut wrong = fed_fragment(1, b"8 bytes ");
    wrong[10] ^= 1;
    let events = [
        event_of(1, 1, vec![(FED, wrong)]),
        event_of(2, 1, vec![(FED, b"no FED fragment".to_vec())]),
        event(3, 1, b"no FED fragment, and of a source that sends none"),
    ];
    directory.write(&name(0, 1), &Segment::new(1, 1, &events).closed());
    let report = verified(&directory);
    assert_eq!((report.events, report.crc_errors, report.malformed), (3, 1, 1));
}

#[test]
fn what_was_never_closed_is_counted_too() {
    let directory = Directory::new();
    directory.write(&name(0, 1), &Segment::new(1, 1, &[event(1, 1, b"one")]).closed());
    let open = Segment::new(1, 2, &[event(2, 1, b"two"), event(3, 1, b"three")]);
    directory.write(&open_name(0, 2), &open.open()[..open.events[1].end - 5]);
    let report = verified(&directory);
    assert_eq!((report.events, report.segments, report.unfinished_segments), (2, 2, 1));
    assert_eq!((report.damaged_bytes, report.crc_errors), (open.events[1].len() as u64 - 5, 0));
    assert!(!report.is_intact());
}

#[test]
fn a_missing_footer_is_named() {
    let directory = Directory::new();
    directory.write(&name(0, 1), &Segment::new(1, 1, &[event(1, 1, b"one")]).open());
    let report = verified(&directory);
    assert_eq!((report.events, report.wrong_footers, report.is_intact()), (1, 1, false));
}

#[test]
fn a_directory_of_run_directories_is_refused_by_their_names() {
    let directory = Directory::new();
    assert!(recover(directory.path()).is_ok_and(|report| report.segments.is_empty()));
    for run in ["run000007", "run000012"] {
        std::fs::create_dir(directory.path().join(run)).expect("a directory can be made");
    }
    let refused = [verify(&[directory.path()]).map(drop), recover(directory.path()).map(drop)];
    for error in refused.map(|refused| refused.expect_err("no run files").to_string()) {
        assert!(error.contains("name one of its run directories: run000007 to run000012"), "{error}");
    }
}

#[test]
fn a_directory_with_only_the_account_says_where_the_run_files_are() {
    let directory = Directory::new();
    directory.write("run.json", b"{}");
    let error = verify(&[directory.path()]).map(drop).expect_err("no run files").to_string();
    assert!(error.contains("the run files are in the output directories of the builder units"), "{error}");
    assert!(!error.contains("run000001"), "{error}");
}

#[test]
fn one_run_at_a_time() {
    let directory = Directory::new();
    assert!(matches!(verify(&[directory.path()]), Err(OfflineError::NoSegments { .. })));
    directory.write(&name(0, 1), &Segment::new(1, 1, &[]).closed());
    directory.write("run000002-bu0-000001.rwk", &Segment::new(2, 1, &[]).closed());
    assert!(matches!(verify(&[directory.path()]), Err(OfflineError::SeveralRuns { .. })));
    assert!(matches!(verify(&[directory.path().join("nowhere")]), Err(OfflineError::System { .. })));
}

#[test]
fn the_report_is_json_with_the_promised_names() {
    let directory = Directory::new();
    directory.write(&name(0, 1), &Segment::new(1, 1, &[event(1, 1, b"one")]).closed());
    let json = serde_json::to_value(verified(&directory)).expect("a report is JSON");
    assert_eq!(json["schema"], "ropewalk-verify-1");
    for field in ["events", "fragments", "payload_bytes", "crc_errors", "gaps", "duplicates", "incomplete"] {
        assert!(json[field].is_u64(), "{field}");
    }
    assert_eq!(json["payload_sha256"], sha256(b"one"));
}

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
fn a_segment_that_was_being_deleted_is_no_damage_and_is_deleted() {
    let directory = Directory::new();
    directory.write(&name(0, 2), &Segment::new(1, 2, &events()).closed());
    let hidden = name(0, 1) + ".deleted";
    directory.write(&hidden, &Segment::new(1, 1, &events()).closed()[..100]);
    directory.write("notes.deleted", b"not Ropewalk's");
    let report = verify(&[directory.path()]).expect("a segment");
    assert_eq!((report.events, report.gaps, report.malformed), (3, 1, 0), "the one that is left");
    assert_eq!(recovered(&directory).untouched, 1);
    assert_eq!(directory.names(), ["notes.deleted".to_owned(), name(0, 2)]);
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
fn a_segment_with_a_writer_is_left_alone() {
    let directory = Directory::new();
    let path = directory.write(&open_name(0, 1), &Segment::new(1, 1, &events()).open());
    let writer = fs::File::options().append(true).open(&path).expect("the file is there");
    writer.try_lock().expect("the file is not locked");
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
