//! The faults of the simulated network: each one happens, is reported once, and is the same for the same seed.

use std::time::Duration;

use ropewalk_io::simulated::Faults;
use ropewalk_io::{BrokenCause, ConnectCause, Dispatcher, Endpoint, SendError};

use crate::world::{Last, Mechanism, Sizes, World};
use crate::{OnAQuietNetwork, simulated_mechanism};

type Quiet = World<OnAQuietNetwork>;

fn quiet() -> Quiet {
    World::new(&[Sizes::default(); 2])
}

fn connected() -> (Quiet, Endpoint, Endpoint) {
    let mut world = quiet();
    let (here, there) = world.connected_pair(0, 1);
    (world, here, there)
}

fn hosts(world: &Quiet) -> (u32, u32) {
    (world.nodes[0].dispatcher.host(), world.nodes[1].dispatcher.host())
}

/// Lets this much time pass.
fn pass(world: &mut Quiet, time: Duration) {
    let end = world.mechanism.now().after(time);
    while world.mechanism.now() < end {
        if world.step() == 0 {
            let next = world.nodes.iter().filter_map(|node| node.dispatcher.next_deadline()).min();
            world.mechanism.idle(Some(next.map_or(end, |next| next.min(end))));
        }
    }
    world.step();
}

#[test]
fn bytes_arrive_after_the_latency_and_not_before() {
    let (mut world, here, there) = connected();
    world.send(0, here, 100, 100).expect("room in an empty queue");
    pass(&mut world, Duration::from_micros(19));
    assert_eq!(world.seen(1, there).received, 0);
    pass(&mut world, Duration::from_micros(1));
    assert_eq!(world.seen(1, there).received, 100);
    world.finish();
}

#[test]
fn the_bandwidth_is_kept() {
    let (mut world, here, there) = connected();
    let network = world.mechanism.0.network.clone();
    network.set_faults(Faults { bandwidth: Some(100_000_000), ..network.faults() });
    let start = world.mechanism.now();
    world.send_all(0, here, 10_000_000, 100_000, 10_000);
    world.until_received(1, there, 10_000_000);
    let took = world.mechanism.now().since(start);
    assert!((Duration::from_millis(100)..Duration::from_millis(101)).contains(&took), "{took:?}");
    world.finish();
}

#[test]
fn a_partition_holds_everything_back_and_loses_nothing_when_it_heals() {
    let (mut world, here, there) = connected();
    let network = world.mechanism.0.network.clone();
    let (a, b) = hosts(&world);
    network.partition(a, b);
    world.send(0, here, 50_000, 1_000).expect("room in an empty queue");
    pass(&mut world, Duration::from_secs(5));
    assert_eq!(world.seen(1, there).received, 0);
    network.heal(a, b);
    world.until_received(1, there, 50_000);
    world.finish();
}

#[test]
fn a_partition_in_one_way_lets_the_other_pass() {
    let (mut world, here, there) = connected();
    let (a, b) = hosts(&world);
    world.mechanism.0.network.partition_one_way(a, b);
    world.send(0, here, 1_000, 1_000).expect("room in an empty queue");
    world.send(1, there, 1_000, 1_000).expect("room in an empty queue");
    world.until_received(0, here, 1_000);
    assert_eq!(world.seen(1, there).received, 0);
    world.mechanism.0.network.heal(a, b);
    world.until_received(1, there, 1_000);
    world.finish();
}

#[test]
fn a_partition_that_lasts_breaks_both_ends_and_new_connections_time_out() {
    let (mut world, here, there) = connected();
    let address = world.listen(1);
    let (a, b) = hosts(&world);
    world.mechanism.0.network.partition(a, b);
    let late = world.connect(0, &address);
    assert_eq!(world.until_ended(0, late), Last::Failed(ConnectCause::TimedOut));
    pass(&mut world, Duration::from_secs(31));
    assert_eq!(world.until_ended(0, here), Last::Broken(BrokenCause::TimedOut));
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::TimedOut));
    world.mechanism.0.network.heal(a, b);
    world.finish();
}

#[test]
fn a_half_open_connection_is_silent_until_both_give_up() {
    let (mut world, here, there) = connected();
    let network = world.mechanism.0.network.clone();
    network.half_open(hosts(&world).0, here);
    world.send(0, here, 1_000, 1_000).expect("room in an empty queue");
    pass(&mut world, Duration::from_secs(29));
    assert_eq!((world.seen(0, here).last, world.seen(1, there).received), (None, 0));
    pass(&mut world, Duration::from_secs(2));
    assert_eq!(world.until_ended(0, here), Last::Broken(BrokenCause::TimedOut));
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::TimedOut));
    world.finish();
}

#[test]
fn a_reset_breaks_both_ends_also_where_nothing_is_read() {
    let (mut world, here, there) = connected();
    world.nodes[1].dispatcher.set_reading(there, false);
    world.mechanism.0.network.reset(hosts(&world).1, there);
    assert_eq!(world.until_ended(0, here), Last::Broken(BrokenCause::Reset));
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::Reset));
    assert_eq!(world.send(0, here, 1, 1), Err(SendError::Closed));
    world.finish();
}

#[test]
fn a_host_without_power_says_nothing() {
    let (mut world, here, _) = connected();
    let address = world.listen(1);
    world.mechanism.0.network.power_off(hosts(&world).1);
    drop(world.nodes.pop());
    pass(&mut world, Duration::from_secs(29));
    assert_eq!(world.seen(0, here).last, None);
    pass(&mut world, Duration::from_secs(2));
    assert_eq!(world.until_ended(0, here), Last::Broken(BrokenCause::TimedOut));
    let late = world.connect(0, &address);
    assert_eq!(world.until_ended(0, late), Last::Failed(ConnectCause::Refused));
    world.finish();
}

#[test]
fn refusals_happen_as_often_as_they_are_set() {
    let mut world = quiet();
    let network = world.mechanism.0.network.clone();
    network.set_faults(Faults { refuse: 0.5, ..network.faults() });
    let address = world.listen(1);
    let endpoints: Vec<_> = (0..200).map(|_| world.connect(0, &address)).collect();
    pass(&mut world, Duration::from_millis(1));
    let refused = |endpoint: &&Endpoint| world.seen(0, **endpoint).last == Some(Last::Failed(ConnectCause::Refused));
    let count = endpoints.iter().filter(refused).count();
    assert!((70..130).contains(&count), "{count} of 200");
    assert!(
        endpoints.iter().filter(|endpoint| !refused(endpoint)).all(|&endpoint| world.seen(0, endpoint).established)
    );
    world.finish();
}

simulated_mechanism!(OnANastyNetwork, Faults { reset: 0.002, half_open: 0.002, ..Faults::nasty() });

/// What happened in a run, in the order in which it happened.
fn nasty_run(seed: u64) -> Vec<String> {
    let mut world = World::<OnANastyNetwork>::new(&[Sizes { block: 10_000, ..Sizes::default() }; 3]);
    world.mechanism.0.reseed(seed);
    for node in &mut world.nodes {
        node.dispatcher = world.mechanism.0.simulated(Sizes { block: 10_000, ..Sizes::default() });
    }
    let address = world.listen(2);
    let endpoints: Vec<(usize, Endpoint)> =
        (0..20).map(|number| (number % 2, world.connect(number % 2, &address))).collect();
    let mut trace = Vec::new();
    for round in 0..400 {
        for &(node, endpoint) in &endpoints {
            let _ = world.send(node, endpoint, 1 + (round * 997) % 20_000, 3_000);
        }
        world.go_on();
        let received: Vec<usize> = world.nodes[2].seen.values().map(|seen| seen.received).collect();
        trace.push(format!("{:?} {received:?}", world.mechanism.now()));
    }
    let silence = world.mechanism.now().after(Duration::from_secs(3));
    world.run_until("those that give up have given up", |world| world.mechanism.now() > silence);
    let ends: Vec<_> = endpoints.iter().map(|&(node, endpoint)| world.seen(node, endpoint).last).collect();
    trace.push(format!("{ends:?}"));
    world.finish();
    trace
}

#[test]
fn the_same_seed_is_the_same_run_and_nothing_is_lost_but_by_an_end() {
    // Order, contents, single ends and the return of every block are judged by the world in every run.
    for seed in 0..3 {
        let trace = nasty_run(seed);
        assert_eq!(trace, nasty_run(seed), "seed {seed}");
        assert_ne!(trace, nasty_run(seed + 100), "seed {seed}");
    }
}

#[test]
fn the_nasty_network_breaks_connections_in_every_way() {
    let ends: String = (0..6).filter_map(|seed| nasty_run(seed).pop()).collect();
    for kind in ["Refused", "Broken(Reset)", "Broken(TimedOut)", "None"] {
        assert!(ends.contains(kind), "{kind} never happened: {ends}");
    }
}
