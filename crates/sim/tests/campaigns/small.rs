//! Campaigns of a part of the system each: one or two machines as they are, and simulated surroundings.

use ropewalk_sim::campaign::Broken;
use std::fmt::Debug;

/// As many seeds as every test run looks through. `ROPEWALK_INPUTS` sets another number, for a longer look by hand.
fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// What a seed comes to, whose runs are equal.
fn equal_runs<T: PartialEq + Debug>(seed: u64, run: impl Fn() -> Result<T, Broken>) -> T {
    let result = run();
    assert_eq!(result, run(), "seed {seed}");
    result.expect("nothing is broken")
}

/// Campaigns of filter units in processes of their own.
mod filtering {
    use super::{equal_runs, seeds};
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
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
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
}

/// Campaigns of front ends under run control.
mod front_ends {
    use super::{equal_runs, seeds};
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
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
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
        assert!(
            paused > 30 && (1..20).contains(&old),
            "{paused} with pauses, {old} with a trigger source that knows none"
        );
        assert!([Kind::Hold, Kind::Release].iter().any(|&kind| deaf.contains(&(kind as u8))), "{deaf:?}");
    }
}
