//! What watching costs, and how soon it finds. Run by hand:
//! `cargo test --release -p ropewalk-flow figures -- --ignored --nocapture`.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "measurements, not decisions")]

use super::*;

/// Nanoseconds for each source in each event, the best of many short runs: other programs disturb most of them.
fn measure(sources: u32, row: impl Fn(&Trigger) -> Observation) -> f64 {
    const RUNS: usize = 200;
    let events = 128_000 / sources as usize;
    let triggers = random_triggers(60, 256);
    let observations: Vec<_> = triggers.iter().map(|trigger| vec![row(trigger); sources as usize]).collect();
    let mut machine = machine(config(sources));
    let mut best = f64::INFINITY;
    for run in 0..RUNS {
        let begin = std::time::Instant::now();
        for event in run * events..(run + 1) * events {
            machine.observe(EventKey::new(0, event as u64), &observations[event % observations.len()]);
        }
        let nanoseconds = begin.elapsed().as_nanos() as f64;
        best = best.min(nanoseconds / (events as f64 * f64::from(sources)));
    }
    assert_eq!(machine.statuses().nth(1).map(|status| status.verdict), Some(Verdict::InSync));
    best
}

#[test]
#[ignore = "a measurement"]
fn cost_of_sources_in_sync() {
    for sources in [2, 16, 128] {
        let tag = measure(sources, |trigger| Observation::MISSING.with_trigger_tag(trigger.tag));
        let crossing = measure(sources, |trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing));
        let time = measure(sources, |trigger| Observation::MISSING.with_time(trigger.time as u64));
        println!(
            "{sources} sources, ns per source and event: tag {tag:.1}, bunch crossing {crossing:.1}, time {time:.1}"
        );
    }
}

/// How many events after a slip by `offset` it is told, for each of many slips, in order.
fn latencies(offset: i16, row: impl Fn(&Trigger) -> Observation) -> Vec<usize> {
    let size = usize::from(offset.unsigned_abs());
    let found = |seed| {
        let at = 500 + seed as usize % 64;
        let triggers = random_triggers(seed, 1100);
        let carried = in_step(1100);
        let carried = if offset > 0 { losing(carried, at, size) } else { doubling(carried, at, size) };
        let mut machine = machine(config(2));
        let changes = feed(&mut machine, 1000, |event| vec![row(&triggers[event]), row(&triggers[carried[event]])]);
        let (verdict, _, told) = *verdicts(&changes, 1).last().expect("there is a verdict");
        assert_eq!(verdict, Verdict::Offset(offset));
        told as usize - at
    };
    let mut all: Vec<_> = (0..2000).map(found).collect();
    all.sort_unstable();
    all
}

#[test]
#[ignore = "a measurement"]
fn events_until_a_slip_is_told() {
    for offset in [1, -1, 2, -2, 10, -10, 50, -50] {
        let crossings = latencies(offset, |trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing));
        let times = latencies(offset, |trigger| Observation::MISSING.with_time((trigger.time / 25.0) as u64));
        for (key, all) in [("bunch crossing", crossings), ("time", times)] {
            println!("{offset:4} by {key}: median {}, longest {} events", all[all.len() / 2], all[all.len() - 1]);
        }
    }
}
