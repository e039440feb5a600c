//! Campaigns of files between builder units and filter units.

use crate::seeds;
use ropewalk_sim::campaign::filing::{Scenario, World};
use ropewalk_sim::campaign::run_filing;
use std::collections::BTreeSet;

#[test]
fn every_event_of_every_file_has_one_fate_whoever_dies() {
    for seed in 0..seeds(1000) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_filing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut units) = (BTreeSet::new(), BTreeSet::new());
    let (mut deaths, mut hangs, mut broker_deaths, mut refusals) = (0, 0, 0, 0);
    for seed in 0..60 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let scenario = Scenario::draw(seed);
        units.insert(scenario.units);
        deaths += u32::from(scenario.deaths > 0);
        hangs += u32::from(scenario.hangs > 0);
        broker_deaths += u32::from(scenario.broker_deaths > 0);
        refusals += u32::from(scenario.refusals > 0);
    }
    assert!(digests.len() > 50, "different seeds are different runs");
    assert_eq!(units, (1..=4).collect());
    assert!([deaths, hangs, broker_deaths, refusals].iter().all(|&count| (10..60).contains(&count)));
}
