//! The layer over every mechanism: what is posted comes back once, messages have boundaries, nobody is held back.

mod hello;
mod messages;
mod posted;
mod threads;
mod world;

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::layer::InterfaceAdapter;
use ropewalk_io::simulated::{Faults, Network, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism, TcpConfig};

use crate::world::{Scene, Time};

fn tcp(mechanism: Mechanism) -> Scene {
    Scene::new(InterfaceAdapter::tcp("127.0.0.1", TcpConfig { mechanism, ..TcpConfig::default() }), Time::Real)
}

fn in_process() -> Scene {
    let adapter = InterfaceAdapter::in_process("node", InProcessNetwork::new(), InProcessConfig::default());
    Scene { has_buffers: false, tells_rejection: true, ..Scene::new(adapter, Time::Real) }
}

fn simulated() -> Scene {
    let adapter = InterfaceAdapter::simulated("node", Network::new(1, Faults::bumpy()), SimulatedConfig::default());
    Scene { tells_rejection: true, ..Scene::new(adapter, Time::Virtual) }
}

/// TCP where both sides greet.
fn greeting() -> Scene {
    let adapter = InterfaceAdapter::tcp("127.0.0.1", TcpConfig::default()).with_hello();
    Scene { tells_rejection: true, ..Scene::new(adapter, Time::Real) }
}

macro_rules! every_rule_over {
    ($($module:ident: $scene:expr;)*) => {$(
        mod $module {
            use super::*;

            fn scene() -> Scene {
                $scene
            }

            every_rule_over!(@rules
                messages::every_message_is_sent_and_received_whole_and_its_cookie_comes_back_once
                messages::a_message_that_is_cut_by_the_end_is_told_as_such
                messages::bytes_without_a_message_end_the_connection_and_what_came_before_is_told
                messages::without_a_framer_bytes_are_received_with_the_turn_or_after_the_deadline
                messages::a_rejected_connection_is_told_with_its_cookie
                messages::an_event_of_the_users_own_comes_in_order
                posted::every_posted_buffer_comes_back_once
                posted::a_half_filled_buffer_does_not_hold_back_a_slow_source
                posted::a_boundary_ends_what_is_told_and_the_buffer_goes_on
                posted::what_is_posted_comes_back_when_the_connection_ends_in_whatever_way
                posted::a_closed_end_point_gives_requests_back
            );
        }
    )*};
    (@rules $($file:ident::$rule:ident)*) => {$(
        #[test]
        fn $rule() {
            crate::$file::$rule(scene());
        }
    )*};
}

every_rule_over! {
    epoll: tcp(Mechanism::Epoll);
    poll: tcp(Mechanism::Poll);
    select: tcp(Mechanism::Select);
    io_uring: tcp(Mechanism::IoUring);
    with_a_hello: greeting();
    within_a_process: in_process();
    on_a_simulated_network: simulated();
}
