//! Random worlds: whatever dies and breaks, nothing is lost, nothing is built twice in one attempt, every account
//! balances at every step, and no credit leaks.

use super::world::World;
use proptest::prelude::*;
use ropewalk_terms::NodeId;

const TRIGGERS: u64 = 400;
const STEPS: u64 = 900;

/// Every key of the run is complete on a disk. The copy with the highest attempt is, unless an event manager died
/// with its builder in the middle of a release: then a successor builds again what the others still hold.
fn assert_all_written(world: &World, last: u64, successors: bool) {
    for number in 1..=last {
        let copies = world.disk.get(&number).unwrap_or_else(|| panic!("{number} of 1..={last} is on no disk"));
        let best = copies.iter().max_by_key(|copy| (copy.complete && successors, copy.attempt));
        assert!(best.is_some_and(|copy| copy.complete), "{number}: {copies:?}");
    }
    assert!(world.disk.keys().all(|&number| (1..=last).contains(&number)), "something beyond the last key");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_quiet_world_builds_everything_once(seed: u64, readouts in 1..4_u16, builders in 1..4_u16) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
        }
        let last = world.finish();
        prop_assert!(last > 0);
        assert_all_written(&world, last, false);
        prop_assert!(world.disk.values().all(|copies| copies.len() == 1));
        prop_assert_eq!(world.manager.as_ref().expect("a manager").account().built, last);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn builders_die_and_connections_break_and_nothing_is_lost(
        seed: u64, readouts in 1..4_u16, builders in 2..4_u16, deaths in 1..12_u64
    ) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
            if world.chance.below(STEPS) < deaths {
                let victim = NodeId::builder(world.chance.below(u64::from(builders)) as u16);
                if world.chance.below(2) == 0 {
                    world.kill(victim);
                } else {
                    world.cut(victim);
                }
            }
        }
        let last = world.finish();
        assert_all_written(&world, last, false);
        prop_assert_eq!(world.manager.as_ref().expect("a manager").account().built, last);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn readout_units_die_and_the_run_goes_on(seed: u64, readouts in 2..4_u16, deaths in 1..6_u64) {
        let mut world = World::new(seed, readouts, 2, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
            if world.chance.below(STEPS) < deaths {
                let victim = NodeId::readout(world.chance.below(u64::from(readouts)) as u16);
                if world.chance.below(2) == 0 {
                    world.kill(victim);
                } else {
                    world.cut(victim);
                }
            }
        }
        let last = world.finish();
        prop_assert!(last > 0);
        // What every readout unit held of an event may be lost with it; the rest is on disk, flagged.
        let (newest, _) = world.disk.last_key_value().expect("something was built");
        prop_assert!(*newest <= last);
        prop_assert!(world.disk.len() as u64 > last / 2);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn a_successor_goes_on_and_nothing_is_built_twice_in_one_attempt(
        seed: u64, readouts in 1..4_u16, builders in 1..4_u16, successors in 1..4_u64, deaths in 0..4_u64
    ) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for step in 0..STEPS {
            world.step();
            if step % (STEPS / (successors + 1)) == STEPS / (successors + 2) {
                world.replace_manager();
            }
            if world.chance.below(STEPS) < deaths && world.builders_alive() > 1 {
                let victim = world.chance.below(u64::from(builders)) as u16;
                world.kill(NodeId::builder(victim));
            }
        }
        let last = world.finish();
        assert_all_written(&world, last, true);
        let account = world.manager.as_ref().expect("a manager").account();
        if deaths == 0 {
            // Nobody died who had done something that only the old event manager knew of.
            prop_assert_eq!((account.assigned, account.built), (last, last));
        }
        world.assert_no_credit_leaked();
    }
}
