//! Campaigns of filter units in processes of their own.

use crate::seeds;
use ropewalk_sim::campaign::filtering::{Mishap, Scenario, World};
use ropewalk_sim::campaign::run_filtering;
use std::collections::BTreeSet;

#[test]
fn every_event_is_decided_once_whatever_becomes_of_filter_units() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_filtering(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn every_event_is_decided_once_whatever_becomes_of_filter_units_on_other_machines() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw_remote(seed);
        assert_eq!(run_filtering(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn connections_are_lost_in_many_seeds_and_in_no_quiet_one() {
    let lost = |seed| {
        let mut world = World::new(Scenario::draw_remote(seed));
        world.run().map(|()| world.lost_connections()).expect("nothing is broken")
    };
    let lost: Vec<usize> = (0..60).map(lost).collect();
    assert_eq!(lost.iter().step_by(4).sum::<usize>(), 0);
    assert!(lost.iter().filter(|&&lost| lost > 0).count() > 25, "{lost:?}");
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
        kinds.extend(Scenario::draw(seed).mishaps.into_values().map(|mishap| match mishap {
            Mishap::Crash(_) => "crash",
            Mishap::Hang(_) => "hang",
            Mishap::Slow(_) => "slow",
            Mishap::Lie(_) => "lie",
            Mishap::Undecided => "undecided",
        }));
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(kinds.len(), 5);
}
