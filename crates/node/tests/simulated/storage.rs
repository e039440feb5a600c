//! The disk is full, slow, or fails for a while: the run waits, and loses nothing.

use super::world::{Plan, World};
use ropewalk_io::disk::DiskFaults;
use ropewalk_terms::Counter;
use std::time::Duration;

#[test]
fn a_full_disk_pauses_the_run_until_there_is_room() {
    for seed in 0..8 {
        let disk = DiskFaults { capacity: 40 << 10, ..DiskFaults::default() };
        let mut world = World::new(Plan { disk, ..Plan::new(seed) });
        world.run_for(Duration::from_secs(4));
        let (paused, snapshot) = (world.written(), world.snapshot());
        assert!(paused < 150, "the run did not fit");
        assert!(snapshot.counter(Counter::DiskFull) > 0 && snapshot.phase.is_running(), "{snapshot:#?}");
        assert_eq!(snapshot.ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.written(), paused, "nothing is written on a full disk");
        world.storage.set_faults(DiskFaults::default());
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn a_slow_disk_slows_the_run_down() {
    for seed in 0..8 {
        let (least_latency, most_latency) = (Duration::from_millis(5), Duration::from_millis(60));
        let disk = DiskFaults { least_latency, most_latency, bandwidth: Some(100 << 10), ..DiskFaults::default() };
        let mut world = World::new(Plan { disk, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}

#[test]
fn a_disk_that_fails_now_and_then_is_written_again() {
    for seed in 0..8 {
        let disk = DiskFaults { write_error: 0.3, sync_error: 0.3, ..DiskFaults::default() };
        let mut world = World::new(Plan { disk, synced: seed % 2 == 0, ..Plan::new(seed) });
        world.run_to_end();
        let held = world.expect_lossless();
        assert_eq!(held.copies, 0);
    }
}

#[test]
fn events_that_must_be_synced_are() {
    for seed in 0..6 {
        let mut world = World::new(Plan { synced: true, ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
    }
}
