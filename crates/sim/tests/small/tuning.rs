//! Campaigns of settings of a host that are changed and taken back.

use crate::seeds;
use ropewalk_sim::campaign::run_tuning;
use ropewalk_sim::campaign::tuning::{Act, Scenario, World};
use std::collections::BTreeSet;

#[test]
fn whatever_happens_the_old_values_come_back() {
    for seed in 0..seeds(3000) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_tuning(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn everything_is_drawn_and_a_seed_is_a_run() {
    let (mut sum, mut drawn) = ([0; 6], BTreeSet::new());
    for seed in 0..300 {
        let counts = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.counts())
        };
        assert_eq!(counts(1), counts(2), "seed {seed}");
        sum.iter_mut().zip(counts(3).expect("nothing is broken")).for_each(|(sum, count)| *sum += count);
        drawn.extend(Scenario::draw(seed).acts.iter().map(|act| match act {
            Act::Apply { .. } => "apply",
            Act::Undo { .. } => "undo",
            Act::Foreign(..) => "foreign",
            Act::Restart(None) => "restart",
            Act::Restart(Some(_)) => "surprise",
        }));
    }
    assert!(sum.iter().all(|&count| count > 10), "{sum:?}");
    assert_eq!(drawn.len(), 5);
}
