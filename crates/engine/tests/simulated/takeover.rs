//! The event manager dies or stands still in mid-run, and another one takes the run over: nodes find it by themselves,
//! obey it and nobody of before, and nothing is lost or there twice.

use super::referee::Held;
use super::world::{MANAGERS, Plan, World};
use ropewalk_engine::Drive;
use ropewalk_flow::manager::ManagerState;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::Instant;
use ropewalk_wire::message::RefuseReason;
use std::time::Duration;

const EVENTS: u64 = 150;

fn world(seed: u64) -> World {
    let disk = DiskFaults { most_latency: Duration::from_millis(2), ..DiskFaults::default() };
    World::new(Plan { network: Faults::bumpy(), disk, events: EVENTS, ..Plan::new(seed) })
}

/// Everything is in the files once, and the account of the last event manager is the account of the whole run.
fn expect_once(world: &mut World) {
    world.run_to_end();
    let held = world.expect_lossless();
    assert_eq!((held.copies, held.open_files), (0, Vec::new()));
}

#[test]
fn a_killed_event_manager_is_replaced_and_nothing_is_lost() {
    for seed in 0..24 {
        let mut world = world(seed);
        world.run_until_written(5 + 6 * seed);
        drop(world.take_manager_out());
        world.run_for(Duration::from_millis(50 * (seed % 8)));
        world.take_over(MANAGERS[0], 2, Some(EVENTS));
        expect_once(&mut world);
    }
}

/// The nodes know two addresses, and the successor is at the other one.
#[test]
fn a_successor_may_be_elsewhere() {
    for seed in 0..8 {
        let mut world = world(seed);
        world.run_until_written(20 + 10 * seed);
        drop(world.take_manager_out());
        world.take_over(MANAGERS[1], 2, Some(EVENTS));
        expect_once(&mut world);
    }
}

#[test]
fn successors_die_too() {
    for seed in 0..8 {
        let mut world = world(seed);
        for epoch in 2..6 {
            world.run_until_written(25 * u64::from(epoch - 1) + seed);
            drop(world.take_manager_out());
            world.take_over(MANAGERS[epoch as usize % 2], epoch, Some(EVENTS));
        }
        expect_once(&mut world);
    }
}

/// Longer than any time-out of a source, a readout unit or a builder unit: what is in work is built meanwhile, the rest
/// waits. Nobody is thought absent.
#[test]
fn a_long_time_without_an_event_manager_is_sat_out() {
    for seed in 0..8 {
        let mut world = world(seed);
        world.run_until_written(10 + 15 * seed);
        drop(world.take_manager_out());
        world.run_for(Duration::from_secs(20));
        world.take_over(MANAGERS[0], 2, Some(EVENTS));
        expect_once(&mut world);
    }
}

/// It thinks that nothing has happened. Its orders are obeyed by nobody; when it hears of the other one it ends.
#[test]
fn an_event_manager_that_wakes_up_when_another_has_taken_over_does_no_harm() {
    for seed in 0..12 {
        let mut world = world(seed);
        world.run_until_written(20 + seed);
        let asleep = world.take_manager_out();
        world.run_for(Duration::from_millis(100));
        world.take_over(MANAGERS[1], 2, Some(EVENTS));
        world.run_until_written(50 + seed);
        world.earlier = Some(asleep);
        expect_once(&mut world);
        let earlier = world.earlier.as_ref().expect("it was woken up");
        let refused = earlier.node.refusal().map(|refusal| refusal.reason);
        assert_eq!(refused, Some(RefuseReason::OldEpoch), "seed {seed}");
        assert!(earlier.node.is_done());
    }
}

/// A builder unit that has heard of the old event manager alone is answered as any other: what it builds is whole, and it
/// tells the new one, which waits for it.
#[test]
fn what_a_unit_is_told_by_the_old_one_alone_is_built_whole() {
    for seed in 0..12 {
        let mut world = world(seed);
        world.run_until_written(30 + seed);
        let asleep = world.take_manager_out();
        world.take_over(MANAGERS[1], 2, Some(EVENTS));
        let [builder, other] = [0, 1].map(|index| world.builders[index].as_ref().map_or(0, |builder| builder.host));
        let mut cuts = vec![(world.manager.host, builder), (asleep.host, other)];
        cuts.extend(world.readouts.iter().map(|readout| (asleep.host, readout.host)));
        cuts.iter().for_each(|&(one, other)| world.network.partition(one, other));
        world.run_for(Duration::from_millis(400));
        world.earlier = Some(asleep);
        world.run_for(Duration::from_millis(600));
        cuts.iter().for_each(|&(one, other)| world.network.heal(one, other));
        world.run_to_end();
        world.expect_in_order();
        // The account may know of less: nobody was there with whom the old one could have left word of what it did.
        let held = Held::in_storage(&world.storage, seed);
        let sources = world.plan.all_sources();
        held.expect_all(EVENTS, &sources);
        assert!(sources.iter().all(|&source| held.missing(source).is_empty()), "seed {seed}");
    }
}

/// A readout unit with a lot to say to nobody goes on answering.
#[test]
fn builder_units_are_answered_while_there_is_no_event_manager() {
    for seed in 0..12 {
        // Events come one by one, and are announced so.
        let trickle = Faults { short_read: 0.9, short_write: 0.9, window: 3000, segment: 1000, ..Faults::default() };
        let mut world = World::new(Plan { network: trickle, ..Plan::new(seed) });
        world.run_until_written(10 + seed);
        let (readout, builder) = (world.readouts[0].host, world.builders[0].as_ref().map_or(0, |builder| builder.host));
        world.network.partition(readout, builder);
        drop(world.take_manager_out());
        world.run_for(Duration::from_secs(1));
        world.network.heal(readout, builder);
        world.run_for(Duration::from_secs(5));
        world.take_over(MANAGERS[0], 2, Some(EVENTS));
        expect_once(&mut world);
    }
}

/// Some nodes have heard of the run, others have not.
#[test]
fn a_run_that_has_hardly_begun_is_taken_over_at_once() {
    for seed in 0..24 {
        let mut world = world(seed);
        world.run_for(Duration::from_micros(100 + 50 * seed));
        drop(world.take_manager_out());
        world.take_over(MANAGERS[0], 2, Some(EVENTS));
        expect_once(&mut world);
        // A connection that has not said who it is when its event manager dies is given up after five seconds.
        let (now, limit) = (world.now(), Instant::ZERO.after(Duration::from_secs(6)));
        assert!(now < limit, "seed {seed}: nobody was thought silent: {now:?}");
    }
}

/// Only the readout units know that it was stopped.
#[test]
fn a_run_that_was_being_stopped_when_its_event_manager_died_still_stops() {
    for seed in 0..8 {
        let mut world = world(seed);
        world.run_until_written(20 + 10 * seed);
        drop(world.take_manager_out());
        world.take_over(MANAGERS[0], 2, None);
        expect_once(&mut world);
    }
}

/// Nodes have finished and perhaps said so; as long as they are not dismissed they say it again.
#[test]
fn an_event_manager_that_dies_at_the_very_end_is_replaced_too() {
    let mut tried = 0;
    for seed in 0..12 {
        let mut world = world(seed);
        world.run_until_written(EVENTS - 20);
        world.run_until("the end", |world| world.manager.node.machine().state() == ManagerState::Finishing);
        for _ in 0..seed {
            if world.manager.node.machine().state() == ManagerState::Finishing {
                world.step();
            }
        }
        if world.manager.node.machine().state() == ManagerState::Idle {
            continue;
        }
        tried += 1;
        drop(world.take_manager_out());
        world.take_over(MANAGERS[0], 2, Some(EVENTS));
        expect_once(&mut world);
    }
    assert!(tried > 6, "{tried} seeds");
}
