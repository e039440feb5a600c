//! Disks that are full, whose files are deleted, that stall, and that become read-only during a run.

use crate::support::{
    FrontEnd, Held, OwnDisk, Run, Setup, SmallDisk, TemporaryDirectory, expect_everything, replace_with_file,
};
use ropewalk_terms::{Cause, Counter, NodeId, SourceId};
use ropewalk_tools::recover;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EVENTS: u64 = 300;
/// Number of events written before the fault.
const BEFORE: u64 = 100;
const SOURCE: u32 = 841;
/// Error number of a write to a read-only file system (`EROFS`).
const READ_ONLY: i32 = 30;
/// Duration of a disk's stall.
const STALL: Duration = Duration::from_secs(5);

/// Starts a run, and waits until its first events are written.
fn begun(setup: &Setup) -> (Run, FrontEnd) {
    let mut run = setup.start(Some(EVENTS));
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE).with_size(2000);
    front_end.send(1..=BEFORE);
    run.wait_for_count(Counter::EventsWritten, BEFORE);
    (run, front_end)
}

/// Returns the run's directory.
fn directory_of(output: &Path) -> PathBuf {
    output.join("run000001")
}

/// Acknowledged events are in a file that has no name any more: they are written again.
#[test]
fn a_removed_run_directory_is_made_again_with_what_was_written() {
    let setup = Setup::new("removed", &[SOURCE]);
    let (run, mut front_end) = begun(&setup);
    fs::remove_dir_all(setup.output()).expect("it is ours");
    front_end.send(BEFORE + 1..=EVENTS);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.disk.files_restored, summary.disk.events_gone), (1, 0));
    expect_everything(&[&front_end], &Held::in_directories(&[directory_of(&setup.output())]), EVENTS);
}

/// They were acknowledged as written.
#[test]
fn deleted_closed_files_are_counted_by_their_events() {
    let setup = Setup::new("closed-gone", &[SOURCE]);
    let output = setup.output();
    let text = format!("[run]\noutput = '{}'\nsync = \"never\"\nsegment_bytes = \"64KiB\"\n", output.display());
    let setup = setup.and(&text);
    let (run, mut front_end) = begun(&setup);
    let directory = directory_of(&output);
    let entries = fs::read_dir(&directory).expect("it is there").map(|entry| entry.expect("it can be read").path());
    let closed: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "rwk")).collect();
    assert!(closed.len() > 1, "{closed:?}");
    fs::remove_file(&closed[0]).expect("it is ours");
    front_end.send(BEFORE + 1..=EVENTS);
    let summary = run.end();
    assert!(!summary.is_lossless(), "{summary:#?}");
    let (gone, held) = (summary.disk.events_gone, Held::in_directories(&[directory]).events.len() as u64);
    assert!(gone > 0 && gone + held == EVENTS, "{gone} {held}");
}

/// The directory is removed and cannot be created again: the run ends, and its account names the loss.
#[test]
fn what_is_deleted_for_good_is_counted() {
    let setup = Setup::new("gone", &[SOURCE]).timeout("300ms");
    let (mut run, mut front_end) = begun(&setup);
    replace_with_file(&setup.output());
    front_end.send(BEFORE + 1..=EVENTS);
    run.wait_until("the disk fails", |snapshot| !snapshot.failing_disks.is_empty());
    assert!(run.snapshot().phase.is_running(), "the run waits");
    run.wait_for_fragments(SOURCE, EVENTS);
    run.stop();
    let summary = run.end();
    assert!(!summary.is_lossless());
    assert_eq!(summary.disk.events_gone, BEFORE, "{summary:#?}");
    assert_eq!(summary.events.incomplete_dropped_by_cause.get(Cause::WriteFailed), EVENTS - BEFORE);
}

/// A disk that is stalled for a while, like a network disk: it causes back-pressure, and nothing is lost.
#[test]
fn a_disk_that_stalls_holds_the_run_up_and_loses_nothing() {
    const TEST: &str = "disks::a_disk_that_stalls_holds_the_run_up_and_loses_nothing";
    let setup = Setup::new("stalls", &[SOURCE]).timeout("300ms");
    let Some(disk) = OwnDisk::mount(&setup.output()) else {
        return ropewalk_tidy::skipped(TEST, "may not mount");
    };
    let (run, mut front_end) = begun(&setup);
    if !disk.freeze() {
        return ropewalk_tidy::skipped(TEST, "may not freeze a file system");
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| front_end.send(BEFORE + 1..=EVENTS));
        std::thread::sleep(STALL);
        let snapshot = run.snapshot();
        assert_eq!(run.counter(Counter::EventsWritten), BEFORE, "nothing is acknowledged before it is written");
        assert!(snapshot.phase.is_running() && snapshot.failing_disks.is_empty(), "slow is not broken");
        assert_eq!(snapshot.ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
        assert!(disk.thaw(), "it was frozen above");
    });
    let summary = run.end();
    assert!(begin.elapsed() >= STALL && summary.is_lossless(), "{summary:#?}");
    expect_everything(&[&front_end], &Held::in_directories(&[summary.directory]), EVENTS);
}

/// The kernel's reaction to a damaged file system: all acknowledged events can still be read, the run waits and names
/// the reason, and events that were never written are named when the run is stopped.
#[test]
fn a_disk_that_becomes_read_only_pauses_the_run_and_is_named() {
    let setup = Setup::new("read-only", &[SOURCE]).timeout("300ms");
    let Some(disk) = OwnDisk::mount(&setup.output()) else {
        let test = "disks::a_disk_that_becomes_read_only_pauses_the_run_and_is_named";
        return ropewalk_tidy::skipped(test, "may not mount");
    };
    let (mut run, mut front_end) = begun(&setup);
    // A directory that is being written to the disk at that moment could not be read afterwards.
    let directory = fs::File::open(directory_of(&setup.output())).expect("it is there");
    directory.sync_all().expect("the disk is good");
    assert!(disk.abort(), "who may mount may do that");
    front_end.send(BEFORE + 1..=EVENTS);
    run.wait_until("the disk fails", |snapshot| !snapshot.failing_disks.is_empty());
    let snapshot = run.snapshot();
    assert_eq!(snapshot.failing_disks, [(NodeId::builder(0), READ_ONLY)]);
    assert!(snapshot.phase.is_running(), "the run waits");
    run.wait_for_fragments(SOURCE, EVENTS);
    run.stop();
    let summary = run.end();
    assert_eq!((summary.events.written, summary.is_lossless()), (BEFORE, false), "{summary:#?}");
    assert_eq!(summary.events.incomplete_dropped_by_cause.get(Cause::WriteFailed), EVENTS - BEFORE);
    assert_eq!(summary.disk.events_gone, 0);
    // The remaining files are recovered if that is permitted.
    let saved = TemporaryDirectory::new("saved");
    for entry in fs::read_dir(directory_of(&setup.output())).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        fs::copy(&path, saved.path().join(path.file_name().expect("it has a name"))).expect("there is room");
    }
    recover(saved.path()).expect("everything can be recovered");
    Held::in_directories(&[saved.path()]).expect_keys_up_to(BEFORE);
}

// ---- full disks: the run waits and loses nothing

/// The first source's quota holds about a hundred fragments of this size.
const LARGE: usize = 16 << 10;

/// The disk fills up during the run: nothing is acknowledged, so that back-pressure reaches the front ends. When there
/// is room again the run continues. The source with the larger fragments has used up its memory long before the other
/// one, whose events then wait for it for longer than the time-out. But it is not read, which does not count as
/// silence.
#[test]
fn a_full_disk_pauses_the_run_until_there_is_room() {
    let readout = "pool = \"4MiB\"\nblock = \"16KiB\"\nwindow = 256\ncapacity = 1024\n";
    let setup = Setup::new("disk", &[841, 843]).timeout("300ms").readout(readout);
    let output = setup.output();
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("disks::a_full_disk_pauses_the_run_until_there_is_room", "may not mount");
    };
    let filler = output.join("filler");
    fs::write(&filler, vec![1; 7 << 20]).expect("the file fits");
    let mut run = setup.start(Some(EVENTS));
    let mut large = FrontEnd::ferol(&run.address(), 841).with_size(LARGE);
    let mut small = FrontEnd::ferol(&run.address(), 843).with_size(64);
    std::thread::scope(|scope| {
        scope.spawn(|| large.send(1..=EVENTS));
        scope.spawn(|| small.send(1..=EVENTS));
        run.wait_for_count(Counter::DiskFull, 1);
        std::thread::sleep(Duration::from_millis(200));
        let paused = run.counter(Counter::EventsWritten);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(run.counter(Counter::EventsWritten), paused, "nothing is written while the disk is full");
        let snapshot = run.snapshot();
        let received = |source| snapshot.sources[&SourceId(source)].received;
        assert!(received(841) < received(843), "the first source has used up its memory");
        assert!(snapshot.phase.is_running(), "the run waits");
        assert_eq!(snapshot.ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
        fs::remove_file(&filler).expect("it is ours");
    });
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!(summary.events.written, EVENTS);
    expect_everything(&[&large, &small], &Held::in_directories(&[&summary.directory]), EVENTS);
}
