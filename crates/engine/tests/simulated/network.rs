//! Connections break, lines are cut: nodes connect again and lose nothing; a source loses what was under way.

use super::referee::Held;
use super::world::{Plan, World};
use ropewalk_io::simulated::Faults;
use ropewalk_terms::Cause;
use std::time::Duration;

/// A run in which something happens to the network at three moments.
fn disturbed(seed: u64, disturb: impl Fn(&mut World, usize)) -> World {
    let mut world = World::new(Plan { network: Faults::bumpy(), ..Plan::new(seed) });
    for (moment, written) in [10, 50, 100].into_iter().enumerate() {
        world.run_until_written(written + seed % 7);
        disturb(&mut world, moment);
    }
    world.run_to_end();
    world
}

#[test]
fn a_builder_unit_whose_connections_break_loses_nothing() {
    for seed in 0..12 {
        let mut world = disturbed(seed, |world, moment| {
            let host = world.builders[moment % 2].as_ref().map_or(0, |builder| builder.host);
            world.reset_connections_of(host);
        });
        world.expect_lossless();
    }
}

#[test]
fn a_readout_unit_whose_connections_break_loses_nothing() {
    for seed in 0..12 {
        let mut world = disturbed(seed, |world, moment| world.reset_connections_of(world.readouts[moment % 2].host));
        world.expect_lossless();
    }
}

#[test]
fn an_event_manager_whose_connections_break_loses_nothing() {
    for seed in 0..12 {
        let mut world = disturbed(seed, |world, _| world.reset_connections_of(world.manager.host));
        world.expect_lossless();
    }
}

/// The ledger balances; whatever is in the files is right, and what is not there has a name in the ledger. (What the
/// files hold may have a name there too: the event manager could not be told.)
fn expect_named(world: &mut World) {
    let snapshot = world.expect_in_order();
    let held = Held::in_storage(&world.storage, world.plan.seed);
    let (events, fragments) = (&snapshot.ledger.events, &snapshot.ledger.fragments);
    assert!(held.events.len() as u64 >= events.built + events.incomplete_emitted, "{}", world.described());
    let present = held.events.values().flat_map(|sources| sources.values()).filter(|one| one.is_none()).count();
    assert!(present as u64 + fragments.lost() >= fragments.received, "{}", world.described());
}

/// A cut that is shorter than anybody's patience: what was held back arrives afterwards.
#[test]
fn a_short_partition_is_sat_out() {
    for seed in 0..8 {
        let mut world = disturbed(seed, |world, moment| {
            let builder = world.builders[0].as_ref().map_or(0, |builder| builder.host);
            let (readout, manager) = (world.readouts[1].host, world.manager.host);
            let (one, other) = [(builder, readout), (readout, manager), (builder, manager)][moment];
            world.network.partition(one, other);
            world.run_for(Duration::from_millis(400));
            world.network.heal(one, other);
        });
        world.expect_lossless();
    }
}

/// A cut that is longer than connections last: they break, are opened again in vain, and stand again afterwards.
#[test]
fn a_partition_that_breaks_connections_is_survived() {
    for seed in 0..8 {
        let impatient = Faults {
            give_up: Duration::from_millis(300),
            connect_timeout: Duration::from_millis(250),
            ..Faults::bumpy()
        };
        let mut world = World::new(Plan { network: impatient, ..Plan::new(seed) });
        let builder = world.builders[0].as_ref().map_or(0, |builder| builder.host);
        let (readout, manager) = (world.readouts[1].host, world.manager.host);
        for (written, (one, other)) in [(10, (builder, readout)), (50, (readout, manager)), (100, (builder, manager))] {
            world.run_until_written(written);
            world.network.partition(one, other);
            world.run_for(Duration::from_millis(800));
            world.network.heal(one, other);
        }
        world.run_to_end();
        expect_named(&mut world);
    }
}

/// A source whose connection breaks goes on with its next event: what was under way is missing, and only that.
#[test]
fn a_source_whose_connection_breaks_loses_what_was_under_way() {
    let mut lost = 0;
    for seed in 0..12 {
        let mut world = disturbed(seed, |world, moment| world.reset_connections_of(world.front_ends[moment].host()));
        let snapshot = world.expect_in_order();
        let held = Held::in_storage(&world.storage, seed);
        held.expect_all(150, &world.plan.all_sources());
        let mut incomplete = std::collections::BTreeSet::new();
        for front_end in &world.front_ends {
            let missing = held.missing(front_end.source);
            incomplete.extend(missing.keys().copied());
            // Bytes arrive in order: what is missing are the last events before a break.
            for (&event, &cause) in &missing {
                let expected = [Cause::Skipped, Cause::CutShort, Cause::Disconnected];
                assert!(expected.contains(&cause), "source {}, event {event}: {cause}", front_end.source);
                assert!(missing.contains_key(&(event + 1)) || front_end.broken.contains(&event), "event {event}");
            }
        }
        assert_eq!(snapshot.ledger.events.incomplete_emitted, incomplete.len() as u64);
        lost += incomplete.len();
    }
    assert!(lost > 0, "no seed broke a connection that carried something");
}

#[test]
fn nodes_survive_a_nasty_network() {
    survive_a_nasty_network(0..6);
}

/// By itself, so that two cores share what is the longest of these tests.
#[test]
fn nodes_survive_a_nasty_network_of_other_seeds() {
    survive_a_nasty_network(6..12);
}

/// Some of everything for a while, for nodes and front ends alike.
fn survive_a_nasty_network(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut world = World::new(Plan { network: Faults::bumpy(), ..Plan::new(seed) });
        world.run_until_written(5);
        let nasty = Faults { reset: 0.01, half_open: 0.002, give_up: Duration::from_millis(500), ..Faults::nasty() };
        world.network.set_faults(nasty);
        world.run_for(Duration::from_secs(2));
        world.network.set_faults(Faults { give_up: Duration::from_millis(500), ..Faults::bumpy() });
        world.run_to_end();
        expect_named(&mut world);
    }
}
