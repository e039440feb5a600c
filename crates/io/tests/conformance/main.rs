//! One conformance suite for every mechanism behind [`ropewalk_io::Dispatcher`].

mod buffers;
mod half_close;
mod network_faults;
mod own_wait;
mod pools;
mod sleeping;
mod suite;
mod tcp_only;
mod world;

use std::time::Duration;

use ropewalk_io::in_process::{InProcess, InProcessConfig, InProcessNetwork};
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism as TcpMechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, MonotonicClock, SimulatedClock};
use ropewalk_terms::Instant;

use crate::world::{Mechanism, Sizes};

/// Real time goes on by itself; the kernel may have to do something meanwhile.
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
            // The discard port, below the ephemeral range: nobody listens there on a machine of this century.
            const NOBODY: &'static str = "127.0.0.1:9";
            const HAS_POOL: bool = true;
            const TELLS_REJECTION: bool = false;

            fn dispatcher(&mut self, sizes: Sizes) -> Tcp {
                let (send_queue_bytes, receive_batch_bytes) = (sizes.send_queue, sizes.receive_batch);
                let config = TcpConfig { send_queue_bytes, receive_batch_bytes, ..$config };
                Tcp::new(config, pools::pool("receive", sizes.block, sizes.blocks)).expect("an epoll descriptor")
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
    /// The kernel keeps what is sent until the peer has it.
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
    const NOBODY: &'static str = "nobody";
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

/// Virtual time: goes to whatever happens next.
pub(crate) struct OnASimulatedNetwork {
    pub(crate) network: Network,
    clock: SimulatedClock,
}

impl OnASimulatedNetwork {
    fn new(faults: Faults) -> Self {
        Self { network: Network::new(1, faults), clock: SimulatedClock::default() }
    }

    /// Begins anew with another seed.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.network = Network::new(seed, self.network.faults());
    }

    pub(crate) fn simulated(&self, sizes: Sizes) -> Simulated {
        let config = SimulatedConfig {
            send_queue_bytes: sizes.send_queue,
            receive_batch_bytes: sizes.receive_batch,
            smallest_receive: 1,
        };
        self.network.dispatcher(config, pools::pool("receive", sizes.block, sizes.blocks))
    }

    fn go_on(&self, deadline: Option<Instant>) {
        let next = deadline.unwrap_or(self.clock.now().after(Duration::from_millis(1)));
        self.clock.set(next.max(self.clock.now().after(Duration::from_nanos(1))));
    }
}

macro_rules! simulated_mechanism {
    ($name:ident, $faults:expr) => {
        pub(crate) struct $name(pub(crate) $crate::OnASimulatedNetwork);

        impl Default for $name {
            fn default() -> Self {
                Self($crate::OnASimulatedNetwork::new($faults))
            }
        }

        impl Mechanism for $name {
            type D = ropewalk_io::simulated::Simulated;

            const ANY_ADDRESS: &'static str = "node:0";
            const NOBODY: &'static str = "nobody";
            const HAS_POOL: bool = true;
            const TELLS_REJECTION: bool = true;

            fn dispatcher(&mut self, sizes: $crate::world::Sizes) -> Self::D {
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

pub(crate) use simulated_mechanism;

macro_rules! conformance {
    ($mechanism:ident, $module:ident: $($rule:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $rule() {
                    crate::suite::$rule::<super::$mechanism>();
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
            nobody_listening_is_refused,
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
            first_bytes_can_be_looked_at_without_a_block_and_come_to_whoever_has_one,
            the_end_of_a_connection_shows_where_there_is_no_block,
            the_end_of_a_connection_shows_ahead_of_bytes_that_wait,
            closing_sends_what_is_queued_first,
            closing_while_the_peer_sends_ends_in_order,
            an_aborted_connection_breaks_at_the_peer_only,
            a_sender_whose_peer_aborts_is_told_once,
            a_peer_that_dies_ends_every_endpoint_once,
            objects_stay_in_order_with_bytes_or_come_back_untouched,
            objects_count_as_their_weight_until_they_are_taken,
            nothing_is_handed_over_where_nobody_is,
            a_side_that_has_finished_still_receives,
            whoever_does_not_care_for_half_a_connection_ends_with_the_peer,
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
