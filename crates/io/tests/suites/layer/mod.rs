//! The layer over every mechanism: posted work is returned once, messages have boundaries, no end point is held back.

mod rules;
mod threads;

use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::layer::{Completion, Cookie, Ended, Event, EventDispatcher, InterfaceAdapter, Requests, WorkRequest};
use ropewalk_io::simulated::{Faults, Network, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism, TcpConfig};
use ropewalk_io::{Clock, Endpoint, MonotonicClock};
use ropewalk_memory::{Owner, Payload, Pool, PoolConfig};
use ropewalk_terms::Instant;

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

/// TCP with greetings on both sides.
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
                every_message_is_sent_and_received_whole_and_its_cookie_comes_back_once
                a_message_that_is_cut_by_the_end_is_reported_as_such
                bytes_without_a_message_end_the_connection_and_earlier_messages_are_reported
                without_a_framer_bytes_are_received_with_the_turn_or_after_the_deadline
                a_rejected_connection_is_reported_with_its_cookie
                an_event_of_the_users_own_comes_in_order
                every_posted_buffer_comes_back_once
                a_half_filled_buffer_does_not_hold_back_a_slow_source
                a_boundary_ends_a_report_and_the_buffer_goes_on
                what_is_posted_comes_back_however_the_connection_ends
                a_closed_end_point_gives_requests_back
            );
        }
    )*};
    (@rules $($rule:ident)*) => {$(
        #[test]
        fn $rule() {
            super::rules::$rule(scene());
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

#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Time {
    Real,
    Virtual,
}

/// The dispatchers under test.
pub(crate) struct Scene {
    pub(crate) nodes: [EventDispatcher; 2],
    /// Events that were not examined.
    pub(crate) events: [VecDeque<Event>; 2],
    pub(crate) has_buffers: bool,
    pub(crate) tells_rejection: bool,
    pub(crate) time: Time,
    pub(crate) now: Instant,
    pub(crate) source: Pool,
}

pub(crate) fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block, blocks)).expect("memory for a test")
}

impl Scene {
    pub(crate) fn new(adapter: InterfaceAdapter, time: Time) -> Self {
        let node = || adapter.event_dispatcher(pool("receive", 5_000, 64)).expect("a dispatcher");
        let now = if time == Time::Real { MonotonicClock.now() } else { Instant::ZERO };
        let (nodes, events) = ([node(), node()], Default::default());
        Self { nodes, events, has_buffers: true, tells_rejection: false, time, now, source: pool("source", 1 << 20, 4) }
    }

    /// Bytes to send.
    pub(crate) fn payload(&mut self, bytes: &[u8]) -> Payload {
        let mut loan = self.source.loan(Owner::SHARED).expect("few messages at once");
        let mut payload = Payload::default();
        if let Some(slice) = loan.append(bytes) {
            payload.push(slice);
        }
        payload
    }

    /// A turn of both; events are kept.
    pub(crate) fn step(&mut self) {
        let mut work = 0;
        for (node, events) in self.nodes.iter_mut().zip(&mut self.events) {
            work += node.turn(self.now);
            while let Some(event) = node.next_event() {
                events.push_back(event);
            }
        }
        match self.time {
            Time::Real => self.now = MonotonicClock.now(),
            Time::Virtual if work > 0 => {}
            Time::Virtual => {
                let next = self.nodes.iter().filter_map(EventDispatcher::next_deadline).min();
                let soon = self.now.after(Duration::from_micros(100));
                self.now = next.unwrap_or(soon).max(self.now.after(Duration::from_nanos(1)));
            }
        }
    }

    /// Continues until `wanted` returns a value for an event of the node; others before it are dropped.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, node: usize, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let limit = self.now.after(Duration::from_secs(20));
        loop {
            while let Some(event) = self.events[node].pop_front() {
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
            assert!(self.now < limit, "what was waited for did not happen");
            self.step();
        }
    }

    pub(crate) fn listen(&mut self, node: usize) -> String {
        let service_point = self.nodes[node].listen("0").expect("a free port");
        self.nodes[node].address_of(service_point).expect("the address of a service point that exists")
    }

    pub(crate) fn post(&mut self, node: usize, request: WorkRequest) {
        self.nodes[node].post(request).expect("a request that can be carried out");
    }

    /// Connects node 0 to node 1; returns both end points.
    pub(crate) fn connect(&mut self) -> (Endpoint, Endpoint) {
        let address = self.listen(1);
        self.post(0, WorkRequest::Connect { address, cookie: Cookie(99) });
        let there = self.until(1, |event| match event {
            Event::ConnectionRequested { endpoint, .. } => Some(endpoint),
            _ => None,
        });
        self.post(1, WorkRequest::Accept { endpoint: there });
        let here = self.until(0, |event| match event {
            Event::Established { endpoint, cookie } => {
                assert_eq!(cookie, Some(Cookie(99)));
                Some(endpoint)
            }
            _ => None,
        });
        self.until(1, |event| matches!(event, Event::Established { cookie: None, .. }).then_some(()));
        (here, there)
    }

    pub(crate) fn send(&mut self, node: usize, endpoint: Endpoint, bytes: &[u8], cookie: u64) {
        let message = self.payload(bytes);
        self.post(node, WorkRequest::Send { endpoint, message, cookie: Cookie(cookie) });
    }

    #[track_caller]
    pub(crate) fn until_ended(&mut self, node: usize) -> Ended {
        self.until(node, |event| match event {
            Event::Ended { how, .. } => Some(how),
            _ => None,
        })
    }
}

/// The completion in an event.
pub(crate) fn completion(event: Event) -> Option<Completion> {
    match event {
        Event::Completed { completion, .. } => Some(completion),
        _ => None,
    }
}
