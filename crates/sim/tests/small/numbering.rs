//! Campaigns of boards whose event numbers are wrong.

use crate::seeds;
use ropewalk_sim::campaign::numbering::{Mishap, Scenario, World};
use ropewalk_sim::campaign::run_numbering;
use std::collections::BTreeSet;

/// The same failure with as few mishaps as possible.
fn shrunk(mut scenario: Scenario) -> Scenario {
    let fails = |scenario: &Scenario| run_numbering(scenario.clone()).is_some();
    for board in 0..scenario.boards.len() {
        let mut smaller = scenario.clone();
        smaller.boards[board].left_over = None;
        if fails(&smaller) {
            scenario = smaller;
        }
        for event in scenario.boards[board].mishaps.keys().copied().collect::<Vec<_>>() {
            let mut smaller = scenario.clone();
            smaller.boards[board].mishaps.remove(&event);
            if fails(&smaller) {
                scenario = smaller;
            }
        }
    }
    for board in (0..scenario.boards.len()).rev() {
        let mut smaller = scenario.clone();
        smaller.boards.remove(board);
        // Left-overs are known by what most boards show.
        if scenario.is_first_given && !smaller.boards.is_empty() && fails(&smaller) {
            scenario = smaller;
        }
    }
    scenario
}

#[test]
fn bad_numbers_cost_one_fragment_each_and_pair_nothing_wrongly() {
    let failed = (0..seeds(400)).filter(|&seed| run_numbering(Scenario::draw(seed)).is_some());
    let words: Vec<String> = failed
        .map(|seed| {
            let scenario = shrunk(Scenario::draw(seed));
            let broken = run_numbering(scenario.clone()).map(|broken| broken.to_string());
            format!("seed {seed}: {}\n{scenario:?}", broken.unwrap_or_default())
        })
        .collect();
    assert!(words.is_empty(), "{} seeds failed:\n{}", words.len(), words.join("\n"));
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut widths, mut mishaps) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let scenario = Scenario::draw(seed);
        widths.insert(scenario.width);
        mishaps.extend(scenario.boards.iter().flat_map(|board| board.mishaps.values()).map(|mishap| match mishap {
            Mishap::Flip { is_shown: true, .. } => "flip with a checksum",
            Mishap::Flip { .. } => "flip",
            Mishap::Damage => "damage",
            Mishap::Gap(_) => "gap",
            Mishap::Twice => "twice",
            Mishap::Swap => "swap",
            Mishap::Restart => "restart",
        }));
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!((widths.len(), mishaps.len()), (4, 7));
}
