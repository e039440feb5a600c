//! The disk is full, slow, or fails for a while: the run waits, and loses nothing.

use super::referee::Held;
use super::world::{GIVE_UP_AFTER, Plan, World};
use ropewalk_flow::control::RunCommand;
use ropewalk_io::disk::DiskFaults;
use ropewalk_terms::{Cause, Counter, NodeId};
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

/// What the operating system says of a device that fails, and of a file system that must not be changed.
const DEVICE_ERROR: i32 = 5;
const READ_ONLY: i32 = 30;

#[test]
fn a_failing_disk_pauses_the_run_and_is_not_called_full() {
    let write_errors = DiskFaults { write_error: 1.0, ..DiskFaults::default() };
    let name_errors = DiskFaults { name_error: 1.0, ..DiskFaults::default() };
    for (faults, number) in [(write_errors, DEVICE_ERROR), (name_errors, READ_ONLY)] {
        for seed in 0..6 {
            let mut world = World::new(Plan::new(seed));
            world.run_until_written(seed * 10);
            world.storage.set_faults(faults.clone());
            world.run_for(Duration::from_secs(4));
            let (paused, snapshot) = (world.written(), world.snapshot());
            assert!(paused < 150 && snapshot.phase.is_running(), "{}", world.described());
            assert_eq!(snapshot.counter(Counter::DiskFull), 0, "there is room");
            assert_eq!(snapshot.failing_disks, [0, 1].map(|index| (NodeId::builder(index), number)));
            assert!(snapshot.counter(Counter::DiskRefusals) > 0);
            assert_eq!(snapshot.ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
            world.storage.set_faults(DiskFaults::default());
            world.run_to_end();
            world.expect_lossless();
            assert_eq!(world.snapshot().failing_disks, []);
        }
    }
}

/// As long as the run goes on somebody may mend the disk; while it drains the end comes first, and what the disk never
/// took has its name.
#[test]
fn a_disk_that_fails_for_good_is_given_up_while_the_run_drains() {
    let dead = DiskFaults { write_error: 1.0, ..DiskFaults::default() };
    let full = DiskFaults { capacity: 0, ..DiskFaults::default() };
    for faults in [dead, full] {
        for seed in 0..6 {
            let mut world = World::new(Plan::new(seed));
            world.run_until_written(20 + seed);
            world.storage.set_faults(faults.clone());
            world.run_for(Duration::from_secs(2));
            let (written, now) = (world.written(), world.now());
            world.manager.node.command(now, RunCommand::Stop { last: None });
            world.run_to_end();
            assert!(world.now().since(now) < 2 * GIVE_UP_AFTER, "{}", world.described());
            let snapshot = world.expect_in_order();
            let dropped = &snapshot.ledger.events.incomplete_dropped;
            assert!(dropped.get(Cause::WriteFailed) > 0, "{}", world.described());
            assert_eq!(dropped.total(), dropped.get(Cause::WriteFailed), "{}", world.described());
            let held = Held::in_storage(&world.storage, seed);
            assert_eq!((held.events.len() as u64, world.written()), (written, written));
        }
    }
}

/// Every event is in a file; only the files' last names cannot be given to them. `recover` does that later.
#[test]
fn files_that_cannot_be_closed_stay_open_and_the_run_ends() {
    for seed in 0..6 {
        let mut world = World::new(Plan::new(seed));
        world.run_until_written(149);
        world.storage.set_faults(DiskFaults { name_error: 1.0, ..DiskFaults::default() });
        world.run_to_end();
        let held = world.expect_lossless();
        assert!(!held.open_files.is_empty());
        assert_eq!(world.snapshot().failing_disks.len(), 2, "{}", world.described());
    }
}
