//! The limits of real runs, provoked on this machine, and the sentences that report them. Simulated runs provoke the
//! others (`crates/sim/src/campaign/tests.rs`).

use crate::support::{FrontEnd, OwnDisk, PATIENCE, Run, Setup};
use ropewalk_monitor::bottleneck::{Finder, Finding, Limit};
use ropewalk_terms::Counter;
use std::time::{Duration, Instant};

/// Examines the run as the control server does, until it reports this limit.
fn wait_for(run: &Run, limit: Limit) -> Finding {
    let (mut finder, begun) = (Finder::default(), Instant::now());
    loop {
        finder.observe(run.sample());
        if let Some(finding) = finder.finding().filter(|finding| finding.limit == limit) {
            return finding.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "it is never {limit:?}, but {:?}", finder.finding());
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn emulated(id: u32, rate: &str) -> String {
    format!("id = {id}\nreadout = \"ru0\"\nemulate = {{ rate = \"{rate}\", fragment_size = \"1KiB\" }}")
}

#[test]
fn a_run_that_takes_what_its_sources_send_is_not_limited_and_the_slow_one_of_two_is_named() {
    let even = Setup::new("even", &[]).source(&emulated(1, "300Hz")).source(&emulated(2, "300Hz"));
    let mut run = even.start(None);
    let finding = wait_for(&run, Limit::Sources);
    assert!(finding.sentence.starts_with("not limited: sources send "), "{}", finding.sentence);
    run.stop();
    run.end();
    let uneven = Setup::new("uneven", &[]).source(&emulated(1, "5kHz")).source(&emulated(2, "100Hz"));
    let mut run = uneven.start(None);
    assert_eq!(wait_for(&run, Limit::SourceSlow).subject, "source 2");
    // The slow source would take minutes to reach the trigger's position.
    run.handle.force_stop();
    run.end();
}

#[test]
fn a_disk_that_stands_still_is_named_with_its_builder_unit() {
    const TEST: &str = "limits::a_disk_that_stands_still_is_named_with_its_builder_unit";
    let setup = Setup::new("still", &[]).source(&emulated(1, "20kHz"));
    let Some(disk) = OwnDisk::mount(&setup.output()) else {
        return ropewalk_tidy::skipped(TEST, "may not mount");
    };
    let mut run = setup.start(None);
    run.wait_for_count(Counter::EventsWritten, 100);
    if !disk.freeze() {
        return ropewalk_tidy::skipped(TEST, "may not freeze a file system");
    }
    let finding = wait_for(&run, Limit::Disk);
    assert!(disk.thaw(), "it was frozen above");
    assert!(finding.sentence.starts_with("rate limited by builder unit bu0: disk writing "), "{}", finding.sentence);
    run.stop();
    run.end();
}

/// Regression test: it was called silent two seconds after it had announced its end.
#[test]
fn a_source_that_has_ended_in_order_is_not_called_silent() {
    let setup =
        Setup::new("ended", &[]).source("id = 1\nreadout = \"ru0\"\non_close = \"end\"").source(&emulated(2, "300Hz"));
    let mut run = setup.start(None);
    let mut front_end = FrontEnd::ferol(&run.address(), 1);
    front_end.send(1..=50);
    run.wait_for_fragments(1, 50);
    front_end.disconnect();
    let (mut finder, begun) = (Finder::default(), Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        finder.observe(run.sample());
        let limit = finder.finding().map(|finding| finding.limit);
        assert_ne!(limit, Some(Limit::SourceSilent), "{:?}", finder.finding());
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(run.sample().source(ropewalk_terms::SourceId(1)).is_some_and(|source| source.has_ended()));
    run.stop();
    run.end();
}
