//! A full disk stops nobody for ever and costs nothing.

use crate::support::{FrontEnd, Held, Setup, SmallDisk, expect_everything};
use ropewalk_terms::Counter;
use std::fs;
use std::time::Duration;

/// The disk is full in mid-run: nothing more is acknowledged, so that back-pressure reaches the front ends; when
/// there is room again the run goes on. The pause lasts longer than the time-out of silent sources, and none of them
/// is called silent for it.
#[test]
fn a_full_disk_pauses_the_run_until_there_is_room() {
    let setup = Setup::new("disk", &[841, 843]).timeout("300ms");
    let output = setup.output();
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("disk_full::a_full_disk_pauses_the_run_until_there_is_room", "may not mount");
    };
    let filler = output.join("filler");
    fs::write(&filler, vec![1; 7 << 20]).expect("the file fits");
    let mut run = setup.start(Some(2000));
    let (mut one, mut other) =
        (FrontEnd::ferol(&run.address(), 841).with_size(1024), FrontEnd::ferol(&run.address(), 843).with_size(1024));
    std::thread::scope(|scope| {
        scope.spawn(|| one.send(1..=2000));
        scope.spawn(|| other.send(1..=2000));
        let is_full = |count: Option<&u64>| count.is_some_and(|&count| count > 0);
        run.wait_until("the disk is full", |snapshot| is_full(snapshot.counters.get(&Counter::DiskFull)));
        std::thread::sleep(Duration::from_millis(200));
        let paused = run.counter(Counter::EventsWritten);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(run.counter(Counter::EventsWritten), paused, "nothing is written while the disk is full");
        assert!(paused < 2000, "the run did not fit");
        assert!(run.snapshot().phase.is_running(), "the run waits");
        assert_eq!(run.snapshot().ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
        fs::remove_file(&filler).expect("it is ours");
    });
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!(summary.events.written, 2000);
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 2000);
}
