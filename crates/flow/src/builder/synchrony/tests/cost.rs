//! What watching costs. Run by hand: `cargo test --release -p ropewalk-flow cost -- --ignored --nocapture`.

use super::*;

/// Nanoseconds for each source in each event, the best of several runs.
fn measure(sources: u32, row: impl Fn(&Trigger) -> Observation) -> f64 {
    const EVENTS: usize = 200_000;
    let triggers = random_triggers(60, 4096);
    let observations: Vec<_> = triggers.iter().map(|trigger| vec![row(trigger); sources as usize]).collect();
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let mut machine = machine(config(sources));
        #[allow(clippy::disallowed_methods, reason = "a measurement, not a decision")]
        let begin = std::time::Instant::now();
        for event in 0..EVENTS {
            machine.observe(EventKey::new(0, event as u64), &observations[event % observations.len()]);
        }
        let nanoseconds = begin.elapsed().as_nanos() as f64;
        assert_eq!(machine.statuses().nth(1).map(|status| status.verdict), Some(Verdict::InSync));
        best = best.min(nanoseconds / (EVENTS as f64 * f64::from(sources)));
    }
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
