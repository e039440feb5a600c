//! A full disk stops nobody for ever and costs nothing.

use crate::support::{FrontEnd, Held, Setup, SmallDisk, expect_everything};
use ropewalk_terms::{Counter, SourceId};
use std::fs;
use std::time::Duration;

const EVENTS: u64 = 300;
/// The first source's quota holds about a hundred of these.
const LARGE: usize = 16 << 10;

/// The disk is full in mid-run: nothing more is acknowledged, so that back-pressure reaches the front ends; when
/// there is room again the run goes on. The source with the larger fragments has used up its memory long before the
/// other, whose events then wait for it for longer than the time-out: but it is not read, which is not silence.
#[test]
fn a_full_disk_pauses_the_run_until_there_is_room() {
    let readout = "pool = \"4MiB\"\nblock = \"16KiB\"\nwindow = 256\ncapacity = 1024\n";
    let setup = Setup::new("disk", &[841, 843]).timeout("300ms").readout(readout);
    let output = setup.output();
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("disk_full::a_full_disk_pauses_the_run_until_there_is_room", "may not mount");
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
