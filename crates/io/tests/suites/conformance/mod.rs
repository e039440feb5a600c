//! One conformance suite for every mechanism behind [`ropewalk_io::Dispatcher`], and the faults of the simulated
//! network: each one happens, is reported once, and is the same for the same seed.

mod rules;
mod sleeping;
mod tcp_only;
mod world;

use std::time::Duration;

use ropewalk_io::in_process::{InProcess, InProcessConfig, InProcessNetwork};
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism as TcpMechanism, Tcp, TcpConfig};
use ropewalk_io::{BrokenCause, Clock, ConnectCause, Dispatcher, Endpoint, MonotonicClock, SendError, SimulatedClock};
use ropewalk_terms::Instant;

use self::world::{Last, Mechanism, Sizes, World};

/// Real time passes by itself; the kernel may have work to do meanwhile.
fn idle_in_real_time() {
    std::thread::sleep(Duration::from_micros(50));
}

macro_rules! tcp_mechanism {
    ($(#[$comment:meta])* $name:ident, $config:expr) => {
        $(#[$comment])*
        #[derive(Default)]
        struct $name;

        impl Mechanism for $name {
            type D = Tcp;

            const ANY_ADDRESS: &'static str = "127.0.0.1:0";
            // The discard port, below the ephemeral range: no modern machine listens there.
            const NO_LISTENER: &'static str = "127.0.0.1:9";
            const HAS_POOL: bool = true;
            const TELLS_REJECTION: bool = false;

            fn dispatcher(&mut self, sizes: Sizes) -> Tcp {
                let (send_queue_bytes, receive_batch_bytes) = (sizes.send_queue, sizes.receive_batch);
                let config = TcpConfig { send_queue_bytes, receive_batch_bytes, ..$config };
                Tcp::new(config, world::pool("receive", sizes.block, sizes.blocks)).expect("an epoll descriptor")
            }

            fn now(&self) -> Instant {
                MonotonicClock.now()
            }

            fn idle(&mut self, _deadline: Option<Instant>) {
                idle_in_real_time();
            }
        }
    };
}

/// Small socket buffers: nearly every write is short.
fn narrow(mechanism: TcpMechanism) -> TcpConfig {
    TcpConfig { mechanism, socket_send_buffer: 16 << 10, socket_receive_buffer: 16 << 10, ..TcpConfig::default() }
}

fn wide(mechanism: TcpMechanism) -> TcpConfig {
    TcpConfig { mechanism, ..TcpConfig::default() }
}

tcp_mechanism!(OverEpoll, wide(TcpMechanism::Epoll));
tcp_mechanism!(OverNarrowEpoll, narrow(TcpMechanism::Epoll));
tcp_mechanism!(OverPoll, wide(TcpMechanism::Poll));
tcp_mechanism!(OverNarrowPoll, narrow(TcpMechanism::Poll));
tcp_mechanism!(OverSelect, wide(TcpMechanism::Select));
tcp_mechanism!(OverNarrowSelect, narrow(TcpMechanism::Select));
tcp_mechanism!(OverIoUring, wide(TcpMechanism::IoUring));
tcp_mechanism!(OverNarrowIoUring, narrow(TcpMechanism::IoUring));
tcp_mechanism!(
    /// The kernel keeps sent data until the peer has it.
    OverLendingIoUring,
    TcpConfig { zero_copy_bytes: 1, ..wide(TcpMechanism::IoUring) }
);

#[derive(Default)]
struct InOneProcess {
    network: InProcessNetwork,
}

impl Mechanism for InOneProcess {
    type D = InProcess;

    const ANY_ADDRESS: &'static str = "node:0";
    const NO_LISTENER: &'static str = "absent";
    const HAS_POOL: bool = false;
    const TELLS_REJECTION: bool = true;

    fn dispatcher(&mut self, sizes: Sizes) -> InProcess {
        let receive_batch_slices = sizes.receive_batch.min(512);
        let config = InProcessConfig { send_queue_bytes: sizes.send_queue, ring_slices: 64, receive_batch_slices };
        self.network.dispatcher(config).expect("an eventfd")
    }

    fn now(&self) -> Instant {
        MonotonicClock.now()
    }

    fn idle(&mut self, _deadline: Option<Instant>) {
        idle_in_real_time();
    }
}

/// Virtual time: moves to the time of the next event.
pub(crate) struct OnASimulatedNetwork {
    pub(crate) network: Network,
    clock: SimulatedClock,
}

impl OnASimulatedNetwork {
    fn new(faults: Faults) -> Self {
        Self { network: Network::new(1, faults), clock: SimulatedClock::default() }
    }

    /// Starts again with another seed.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.network = Network::new(seed, self.network.faults());
    }

    pub(crate) fn simulated(&self, sizes: Sizes) -> Simulated {
        let config = SimulatedConfig {
            send_queue_bytes: sizes.send_queue,
            receive_batch_bytes: sizes.receive_batch,
            smallest_receive: 1,
        };
        self.network.dispatcher(config, world::pool("receive", sizes.block, sizes.blocks))
    }

    fn go_on(&self, deadline: Option<Instant>) {
        let next = deadline.unwrap_or(self.clock.now().after(Duration::from_millis(1)));
        self.clock.set(next.max(self.clock.now().after(Duration::from_nanos(1))));
    }
}

macro_rules! simulated_mechanism {
    ($name:ident, $faults:expr) => {
        pub(crate) struct $name(pub(crate) OnASimulatedNetwork);

        impl Default for $name {
            fn default() -> Self {
                Self(OnASimulatedNetwork::new($faults))
            }
        }

        impl Mechanism for $name {
            type D = ropewalk_io::simulated::Simulated;

            const ANY_ADDRESS: &'static str = "node:0";
            const NO_LISTENER: &'static str = "absent";
            const HAS_POOL: bool = true;
            const TELLS_REJECTION: bool = true;

            fn dispatcher(&mut self, sizes: world::Sizes) -> Self::D {
                self.0.simulated(sizes)
            }

            fn now(&self) -> ropewalk_terms::Instant {
                ropewalk_io::Clock::now(&self.0.clock)
            }

            fn idle(&mut self, deadline: Option<ropewalk_terms::Instant>) {
                self.0.go_on(deadline);
            }
        }
    };
}

simulated_mechanism!(OnAQuietNetwork, Faults::default());
simulated_mechanism!(OnABumpyNetwork, Faults::bumpy());

macro_rules! conformance {
    ($mechanism:ident, $module:ident: $($rule:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $rule() {
                    crate::conformance::rules::$rule::<super::$mechanism>();
                }
            )*
        }
    };
}

macro_rules! every_rule_for {
    ($($module:ident = $mechanism:ident),*) => {$(
        conformance!($mechanism, $module:
            both_sides_are_established_and_closed_in_order,
            both_sides_may_close_at_once,
            connecting_without_a_listener_is_refused,
            a_rejected_connection_ends,
            nothing_is_sent_before_it_is_established_or_after_it_has_ended,
            an_ended_endpoint_never_touches_its_successor,
            closing_before_it_is_established_ends_it_once,
            wrong_addresses_are_refused_with_words,
            bytes_arrive_in_order_however_they_are_cut,
            one_byte_at_a_time_is_enough,
            a_message_larger_than_the_queue_goes_through,
            a_full_queue_says_when_there_is_room,
            a_hundred_endpoints_at_once,
            an_endpoint_that_is_not_read_holds_back_only_its_peer,
            a_quota_that_is_used_up_stops_its_endpoint_alone,
            first_bytes_can_be_looked_at_without_a_block_and_come_to_an_owner_with_blocks,
            the_end_of_a_connection_shows_where_there_is_no_block,
            the_end_of_a_connection_shows_ahead_of_bytes_that_wait,
            closing_sends_what_is_queued_first,
            closing_while_the_peer_sends_ends_in_order,
            an_aborted_connection_breaks_at_the_peer_only,
            a_sender_whose_peer_aborts_learns_it_once,
            a_peer_that_dies_ends_every_endpoint_once,
            objects_stay_in_order_with_bytes_or_come_back_untouched,
            objects_count_as_their_weight_until_they_are_taken,
            a_closing_endpoint_hands_nothing_over,
            a_side_that_has_finished_still_receives,
            an_endpoint_without_half_close_ends_with_the_peer,
            both_sides_may_finish_at_once_and_everything_arrives,
            closing_after_half_a_connection_ended_sends_what_is_queued,
            a_peer_that_finished_and_then_aborts_breaks_the_connection,
            a_queue_tells_once_that_it_is_high_and_once_that_it_is_low,
            posted_blocks_of_every_size_are_filled_in_order_to_the_last_byte,
            an_ended_endpoint_takes_no_block,
            an_endpoint_that_floods_does_not_starve_another,
            what_came_before_reading_stopped_is_delivered_when_it_goes_on,
            endpoints_that_have_become_quiet_leave_the_pool_to_the_others,
        );
    )*};
}

every_rule_for!(
    epoll = OverEpoll,
    epoll_narrow = OverNarrowEpoll,
    poll = OverPoll,
    poll_narrow = OverNarrowPoll,
    select = OverSelect,
    select_narrow = OverNarrowSelect,
    io_uring = OverIoUring,
    io_uring_narrow = OverNarrowIoUring,
    io_uring_lending = OverLendingIoUring,
    in_process = InOneProcess,
    simulated = OnAQuietNetwork,
    simulated_bumpy = OnABumpyNetwork
);

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

/// The events of a run, in order.
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
    world.run_until("time-outs have expired", |world| world.mechanism.now() > silence);
    let ends: Vec<_> = endpoints.iter().map(|&(node, endpoint)| world.seen(node, endpoint).last).collect();
    trace.push(format!("{ends:?}"));
    world.finish();
    trace
}

#[test]
fn the_same_seed_is_the_same_run_and_nothing_is_lost_but_by_an_end() {
    // In every run the world checks the order, the contents, the single end of each endpoint, and the return of every
    // block.
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
