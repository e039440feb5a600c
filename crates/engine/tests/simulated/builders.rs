//! A builder unit dies in mid-run: what it had not acknowledged is built by another one, or by its next life.

use super::world::{Plan, World};
use ropewalk_engine::Drive;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::Incarnation;
use ropewalk_wire::message::RefuseReason;
use std::time::Duration;

fn world(seed: u64) -> World {
    let disk = DiskFaults { most_latency: Duration::from_millis(2), ..DiskFaults::default() };
    World::new(Plan { network: Faults::bumpy(), disk, ..Plan::new(seed) })
}

#[test]
fn what_a_dead_builder_unit_had_is_built_by_the_other() {
    for seed in 0..12 {
        let mut world = world(seed);
        world.run_until_written(20 + seed % 60);
        let dead = seed as usize % 2;
        world.kill_builder(dead);
        world.run_to_end();
        let held = world.expect_lossless();
        let left_open = held.open_files.iter().all(|name| name.contains(&format!("-bu{dead}-")));
        assert!(left_open, "the other one has closed its files: {:?}", held.open_files);
    }
}

#[test]
fn a_builder_unit_that_comes_back_takes_part_again() {
    for seed in 0..12 {
        let mut world = world(seed);
        world.run_until_written(20 + seed % 40);
        world.kill_builder(1);
        world.run_for(Duration::from_millis(seed * 30));
        world.start_builder(1, 2);
        world.run_to_end();
        world.expect_lossless();
    }
}

/// With the only builder unit dead the run waits; its next life goes on.
#[test]
fn the_only_builder_unit_may_die_and_come_back() {
    for seed in 0..8 {
        let disk = DiskFaults { most_latency: Duration::from_millis(2), ..DiskFaults::default() };
        let mut world = World::new(Plan { builders: 1, network: Faults::bumpy(), disk, ..Plan::new(seed) });
        for life in 2..5 {
            world.run_until_written(30 * (life - 1));
            world.kill_builder(0);
            // What it had acknowledged may be on the line still.
            world.run_for(Duration::from_millis(200));
            let written = world.written();
            world.run_for(Duration::from_millis(500));
            assert_eq!(world.written(), written, "nobody is there to build");
            world.start_builder(0, life);
        }
        world.run_to_end();
        world.expect_lossless();
    }
}

/// The machine under a builder unit loses its power: the network says nothing, until the connections give up.
#[test]
fn a_builder_unit_that_vanishes_without_a_word_is_replaced() {
    for seed in 0..8 {
        let network = Faults { give_up: Duration::from_millis(400), ..Faults::bumpy() };
        let mut world = World::new(Plan { network, ..Plan::new(seed) });
        world.run_until_written(30);
        let host = world.builders[1].as_ref().map_or(0, |builder| builder.host);
        world.network.power_off(host);
        world.kill_builder(1);
        world.run_to_end();
        world.expect_lossless();
    }
}

/// The UTC clock was set back between two lives.
#[test]
fn a_builder_unit_whose_next_life_looks_older_takes_part_again() {
    let mut world = World::new(Plan { builders: 1, ..Plan::new(1) });
    for life in [9, 3, 3] {
        world.run_until_written(world.written() + 30);
        world.kill_builder(0);
        world.start_builder(0, life);
    }
    world.run_to_end();
    world.expect_lossless();
}

/// Whoever was taken in once is the life that it is.
#[test]
fn an_old_life_that_was_asleep_stays_refused() {
    for dies in [false, true] {
        let mut world = World::new(Plan { events: 400, builders: 1, ..Plan::new(2) });
        world.front_ends.iter_mut().for_each(|front_end| front_end.pace = Duration::from_millis(5));
        world.run_until_written(30);
        let asleep = world.builders[0].take();
        world.start_builder(0, 2);
        world.run_until_written(60);
        if dies {
            world.kill_builder(0);
            world.run_for(Duration::from_secs(2));
        }
        world.builders.push(asleep);
        world.run_until("the old life is refused", |world| {
            world.builders[1].as_ref().is_some_and(|old| old.node.refusal().is_some())
        });
        let reason = world.builders[1].take().and_then(|old| Some(old.node.refusal()?.reason));
        let expected = if dies { RefuseReason::LateIncarnation(Incarnation(2)) } else { RefuseReason::OldIncarnation };
        assert_eq!(reason, Some(expected));
        world.start_builder(0, 3);
        world.run_to_end();
        world.expect_lossless();
    }
}

/// Nobody knows yet which of the two is dead: the younger one is connected.
#[test]
fn a_life_that_looks_older_waits_as_long_as_the_younger_one_is_there() {
    let mut world = World::new(Plan { events: 2000, builders: 1, ..Plan::new(3) });
    world.run_until_written(30);
    let younger = world.builders[0].take();
    world.start_builder(0, 0);
    let older = std::mem::replace(&mut world.builders[0], younger);
    world.builders.push(older);
    let is_refused = |world: &World, index: usize| world.builders[index].as_ref().is_some_and(|one| one.node.is_done());
    let written = world.written();
    world.run_until_written(written + 100);
    assert!(!is_refused(&world, 0) && !is_refused(&world, 1), "the younger one works, the older one calls again");
    world.kill_builder(0);
    world.run_to_end();
    assert!(world.builders[1].as_ref().is_some_and(|older| older.node.machine().account().built > 0));
    world.expect_lossless();
}

/// Two are started as one node, or somebody else says that it is this node.
#[test]
fn a_later_life_does_not_displace_one_that_works() {
    let mut world = World::new(Plan { events: 2000, builders: 1, ..Plan::new(4) });
    world.run_until_written(30);
    let first = world.builders[0].take();
    world.start_builder(0, 9);
    let later = std::mem::replace(&mut world.builders[0], first);
    world.builders.push(later);
    let written = world.written();
    world.run_until_written(written + 100);
    let built = |world: &World, index: usize| {
        world.builders[index].as_ref().map(|one| (one.node.is_done(), one.node.machine().account().built > 0))
    };
    assert_eq!((built(&world, 0), built(&world, 1)), (Some((false, true)), Some((false, false))));
    world.kill_builder(0);
    world.run_to_end();
    assert_eq!(built(&world, 1).map(|(_, built)| built), Some(true), "it takes the place of one that is dead");
    world.expect_lossless();
}
