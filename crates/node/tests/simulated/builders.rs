//! A builder unit dies in mid-run: what it had not acknowledged is built by another one, or by its next life.

use super::world::{Plan, World};
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
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
            let written = world.written();
            world.run_for(Duration::from_millis(700));
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
