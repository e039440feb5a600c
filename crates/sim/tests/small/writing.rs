//! Campaigns of files of events as a builder unit writes them.

use crate::seeds;
use ropewalk_sim::campaign::run_writing;
use ropewalk_sim::campaign::writing::{Scenario, World};
use std::collections::BTreeSet;

#[test]
fn every_event_is_in_a_file_that_is_whole_whenever_the_process_dies() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_writing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let mut digests = BTreeSet::new();
    let (mut deaths, mut torn, mut refused) = (0, 0, 0);
    for seed in 0..60 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let Scenario { deaths: died, faults, .. } = Scenario::draw(seed);
        deaths += u32::from(!died.is_empty());
        torn += u32::from(faults.torn_append > 0.0);
        refused += u32::from(faults.write_error + faults.name_error > 0.0);
    }
    assert!(digests.len() > 50, "different seeds are different runs");
    assert!([deaths, torn, refused].iter().all(|&count| (10..60).contains(&count)), "{deaths} {torn} {refused}");
}
