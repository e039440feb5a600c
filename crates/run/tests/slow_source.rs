//! One source a thousand times slower than the others. Alone in its process, because it measures that process.

#[path = "support/mod.rs"]
mod support;

use ropewalk_monitor::Rates;
use ropewalk_terms::SourceId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{FrontEnd, Held, Setup, expect_everything};

const EVENTS: u64 = 250;
const WINDOW: u64 = 128;
/// Size of the fast sources' fragments: far more in total than the pools hold.
const FAST_BYTES: usize = 60 << 10;
/// Pause between two fragments of the slow source; the fast ones send theirs in microseconds.
const PAUSE: Duration = Duration::from_millis(20);
/// Lead of the fast sources, in events, at which the slow one sends, however slow the machine is; at the end it sends
/// regardless.
const LEAD: u64 = 16;

/// Returns the peak memory of this process, in bytes.
fn high_water_mark() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

/// The fast sources wait for the slow one: they never lead by more than the window, memory stays within the configured
/// size, and nothing dead-locks. The slow source, which is behind the others for longer than the time-out all the time,
/// is never called silent.
#[test]
fn fast_sources_wait_for_a_slow_one() {
    let pool = 32_u64 << 20;
    let readout = format!("pool = \"{pool}\"\nblock = \"64KiB\"\nwindow = {WINDOW}\ncapacity = 256\n");
    let setup = Setup::new("slow", &[1, 2, 3]).readout(&readout).timeout("2s");
    let run = setup.start(Some(EVENTS));
    let address = run.address();
    let mut slow = FrontEnd::ferol(&address, 1).with_size(64);
    let mut fast = [2, 3].map(|id| FrontEnd::ferol(&address, id).with_size(FAST_BYTES));
    let (mut furthest, mut samples) = (0, Vec::new());
    let of_the_fast = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            for event in 1..=EVENTS {
                while of_the_fast.load(Ordering::Relaxed) < (event + LEAD).min(EVENTS) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                slow.send_slowly([event], PAUSE);
            }
        });
        let fast = fast.each_mut().map(|fast| scope.spawn(|| fast.send(1..=EVENTS)));
        let mut all = fast.into_iter().chain([slow]).collect::<Vec<_>>();
        while !all.iter().all(|thread| thread.is_finished()) {
            let snapshot = run.snapshot();
            let received = |id| snapshot.sources.get(&SourceId(id)).map_or(0, |account| account.received);
            let lead = received(2).max(received(3)).saturating_sub(received(1));
            furthest = furthest.max(lead);
            of_the_fast.store(received(2).min(received(3)), Ordering::Relaxed);
            if received(1) > 10 {
                samples.push(run.sample());
            }
            assert!(lead <= WINDOW, "a fast source leads by {lead} events, the window is {WINDOW}");
            std::thread::sleep(Duration::from_millis(10));
        }
        for thread in all.drain(..) {
            thread.join().expect("the front end could send all");
        }
    });
    let (first, last) = (samples.first().expect("it took a while"), samples.last().expect("it took a while"));
    let rates = Rates::between(first, last).expect("time has gone on");
    // Which source is held back depends on how fast this build checks the large fragments; but all of the rates are
    // known.
    assert!([1, 2, 3].iter().all(|&id| rates.source(SourceId(id)).is_some_and(|rates| rates.fragments_hz > 0.0)));
    assert!(
        rates.events_hz > 0.0 && rates.bytes_in_per_second > 0.0 && rates.bytes_to_disk_per_second > 0.0,
        "{rates:#?}"
    );
    let summary = run.end();
    assert!(furthest > 8, "the fast sources were not fast: they never led by more than {furthest}");
    assert!(summary.is_lossless(), "{summary:#?}");
    let (most, allowed) = (high_water_mark(), pool + (64 << 20));
    assert!(most < allowed, "{most} bytes of memory at most, allowed are {allowed}");
    let fast: Vec<&FrontEnd> = fast.iter().chain([&slow]).collect();
    expect_everything(&fast, &Held::in_directories(&[&summary.directory]), EVENTS);
}
