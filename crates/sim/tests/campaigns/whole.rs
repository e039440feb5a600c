//! Campaigns as a whole: quiet systems lose nothing, and a seed is a run, byte for byte.

use ropewalk_sim::campaign::{
    Campaign, Coverage, FaultKind, Orders, Outcome, Scenario, Situation, push, run, run_with_text,
};
use std::collections::BTreeSet;

#[test]
fn a_quiet_system_keeps_everything() {
    for seed in 0..4 {
        assert_eq!(run(Scenario::quiet(seed)).broken, None);
        assert_eq!(run(push::Scenario::quiet(seed)).broken, None);
    }
}

/// Checks that a seed's history, with its text, is the same each time.
fn is_the_same_run(run: impl Fn(u64) -> Outcome) {
    let mut texts = BTreeSet::new();
    for seed in 0..6 {
        let history = || {
            let Outcome { broken, digest, nanoseconds, text, .. } = run(seed);
            (broken, digest, nanoseconds, text)
        };
        let (first, second) = (history(), history());
        assert!(first == second, "seed {seed} is not the same run twice");
        // A run may be stopped before anything was triggered.
        assert!(first.3.lines().count() > 40, "seed {seed} says too little: {}", first.3);
        texts.insert(first.3);
    }
    assert_eq!(texts.len(), 6, "different seeds are different runs");
}

/// No hash order, no wall clock, no thread: everything that happens follows from the seed.
#[test]
fn the_same_seed_is_the_same_run_byte_for_byte() {
    is_the_same_run(|seed| run_with_text(Scenario::draw(seed)));
    is_the_same_run(|seed| run_with_text(push::Scenario::draw(seed)));
}

#[test]
fn a_schedule_of_faults_is_drawn_from_the_seed_alone_and_can_be_read() {
    let mut kinds = BTreeSet::new();
    for seed in 0..200 {
        let scenario = Scenario::draw(seed);
        assert_eq!(scenario, Scenario::draw(seed));
        for scheduled in &scenario.faults {
            kinds.insert(scheduled.fault.kind);
            let text = scheduled.to_string();
            assert!(text.contains(scheduled.fault.kind.name()), "{text}");
        }
        let scenario = push::Scenario::draw(seed);
        assert_eq!(scenario, push::Scenario::draw(seed));
        for scheduled in &scenario.faults {
            kinds.insert(scheduled.fault.kind);
            let text = scheduled.to_string();
            assert!(text.contains(scheduled.fault.kind.name()), "{text}");
        }
    }
    assert_eq!(kinds.len(), FaultKind::ALL.len(), "each fault is drawn");
}

#[test]
fn coverage_names_the_cells_that_were_not_hit() {
    let mut coverage = Coverage::default();
    let cells = FaultKind::ALL.len() * Situation::ALL.len();
    assert_eq!(coverage.missed().len(), cells);
    coverage.hit(FaultKind::Jump, Situation::Running);
    assert_eq!(coverage.missed().len(), cells - 1);
    assert!(!coverage.missed().contains(&(FaultKind::Jump, Situation::Running)));
}

/// The campaign of every test run. One that is longer runs by hand: `ropewalk simulate --campaign 100000`.
#[test]
fn five_hundred_seeds_lose_nothing_without_a_cause() {
    // Two cores share them.
    let half = |first| Campaign::run(Orders { first, seeds: 250, most_failures: 3 }, |_| ());
    let mut halves = std::thread::scope(|scope| {
        [0, 250].map(|first| scope.spawn(move || half(first))).map(|half| half.join().expect("a campaign"))
    });
    let failures: Vec<String> = halves.iter().flat_map(|half| &half.failures).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(halves.each_ref().map(|half| half.seeds), [250, 250]);
    let [one, other] = &mut halves;
    one.coverage.merge(&other.coverage);
    assert_eq!(one.coverage.missed(), [], "each fault strikes in each situation");
}
