//! Nothing goes wrong, or nothing that a stream of bytes does not hide.

use super::world::{Plan, World};
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use std::time::Duration;

/// Every byte of every read and write alone, in half of the cases.
fn one_byte_at_a_time() -> Faults {
    Faults { short_read: 0.9, short_write: 0.9, window: 3000, segment: 1000, ..Faults::default() }
}

#[test]
fn a_quiet_run_builds_and_writes_every_byte() {
    for seed in 0..8 {
        let mut world = World::new(Plan { events: 300, ..Plan::new(seed) });
        world.run_to_end();
        let held = world.expect_lossless();
        assert_eq!((held.copies, held.open_files), (0, Vec::new()));
        assert_eq!(world.snapshot().ledger.events.written, 300);
    }
}

#[test]
fn one_of_each_is_a_run_too() {
    for seed in 0..8 {
        let mut world = World::new(Plan { readouts: 1, builders: 1, sources: 1, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn three_readout_units_and_three_builder_units_share_a_run() {
    for seed in 0..6 {
        let mut world = World::new(Plan { readouts: 3, builders: 3, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn short_reads_and_writes_cost_nothing_but_time() {
    for seed in 0..8 {
        let mut world = World::new(Plan { events: 60, network: one_byte_at_a_time(), ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn latency_and_narrow_lines_cost_nothing_but_time() {
    for seed in 0..8 {
        let slow = Faults {
            most_latency: Duration::from_millis(3),
            outlier: 0.02,
            outlier_latency: Duration::from_millis(200),
            bandwidth: Some(2 << 20),
            ..Faults::bumpy()
        };
        let mut world = World::new(Plan { network: slow, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn connections_that_are_refused_at_first_are_tried_again() {
    for seed in 0..8 {
        let mut world = World::new(Plan { network: Faults { refuse: 0.5, ..Faults::default() }, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

/// What a seed brings about, it brings about again: nodes have no source of chance of their own.
#[test]
fn the_same_seed_is_the_same_run() {
    let history = |seed| {
        let disk = DiskFaults { most_latency: Duration::from_millis(5), ..DiskFaults::default() };
        let mut world = World::new(Plan { network: Faults::bumpy(), disk, ..Plan::new(seed) });
        world.run_until_written(60);
        let builder = world.builders[1].as_ref().map_or(0, |builder| builder.host);
        world.reset_connections_of(builder);
        world.run_to_end();
        world.expect_lossless();
        let files: Vec<_> = world.storage.paths().into_iter().map(|path| world.storage.read(&path)).collect();
        (world.trace, world.now(), files)
    };
    for seed in 0..6 {
        assert_eq!(history(seed), history(seed));
    }
    assert_ne!(history(0).0, history(1).0);
}
