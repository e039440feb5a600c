//! Campaigns of front ends under run control.

use crate::seeds;
use ropewalk_sim::campaign::controlled::{Mishap, Scenario, World};
use ropewalk_sim::campaign::run_controlled;
use ropewalk_wire::front_end::{CONTROL_VERSION, Kind};
use std::collections::BTreeSet;

#[test]
fn every_run_begins_and_ends_in_order_whatever_happens_to_programs() {
    for seed in 0..seeds(500) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_controlled(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_each_mishap_is_drawn() {
    let mut digests = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let (mut paused, mut old, mut deaf) = (0, 0, BTreeSet::new());
    for seed in 0..60 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let scenario = Scenario::draw(seed);
        paused += usize::from(!scenario.pauses.is_empty());
        old += usize::from(scenario.programs[0].version < CONTROL_VERSION);
        deaf.extend(scenario.programs.iter().filter_map(|program| program.deaf_to).map(|kind| kind as u8));
        kinds.extend(scenario.mishaps.into_iter().map(|(_, _, _, mishap)| match mishap {
            Mishap::Reset => "reset",
            Mishap::HalfOpen => "half open",
            Mishap::Kill(_) => "kill",
        }));
    }
    assert!(digests.len() > 55, "different seeds are different runs");
    assert_eq!(kinds.len(), 3);
    assert!(paused > 30 && (1..20).contains(&old), "{paused} with pauses, {old} with a trigger source that knows none");
    assert!([Kind::Hold, Kind::Release].iter().any(|&kind| deaf.contains(&(kind as u8))), "{deaf:?}");
}
