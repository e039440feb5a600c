//! Campaigns of splitters in processes of their own.

use crate::seeds;
use ropewalk_sim::campaign::dividing::{Mishap, Scenario, World};
use ropewalk_sim::campaign::run_dividing;
use std::collections::BTreeSet;

#[test]
fn what_is_lost_follows_from_what_went_wrong_and_nobody_waits_for_ever() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_dividing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_each_mishap_is_drawn() {
    let mut digests = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for seed in 0..40 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let mishaps = Scenario::draw(seed).boards.into_iter().flat_map(|board| board.mishaps.into_values());
        kinds.extend(mishaps.map(|mishap| match mishap {
            Mishap::Crash(_) => "crash",
            Mishap::Hang(_) => "hang",
            Mishap::Lie(_) => "lie",
            Mishap::Malformed => "malformed",
        }));
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(kinds.len(), 4);
}
