//! The only data-path system calls of Ropewalk: endpoints (the TCP layer of paper 3, section III), disk,
//! sleeping and clocks, and a simulated twin of each.
//!
//! ```text
//!      layer: posted work, cookies, framers, handlers, threads by task (paper 3, for user programs)
//!                                     │
//!                         Dispatcher (endpoint.rs): events out, slices in
//!          ┌──────────────────────────┼──────────────────────────┐
//!     tcp::Tcp                in_process::InProcess       simulated::Simulated
//!  epoll, poll, select or   hands slices over between    virtual time, one seed,
//!  io_uring, in place       threads of one process       the project's fault model
//!
//!     wait::Waiter sleeps on all of them · disk: RealDisk and SimulatedDisk · clock: real and simulated ·
//!     thread: where and how the calling thread runs
//! ```
//!
//! Packets, which may be lost and have no connection, have a separate interface: [`packet`].
//!
//! Decisions are made elsewhere: the machines of `flow` get the reports of these mechanisms. One conformance suite
//! (`tests/suites/conformance`) runs over every mechanism.

pub mod clock;
pub mod disk;
mod doorbell;
pub mod endpoint;
mod endpoint_state;
pub mod in_process;
pub mod layer;
pub mod packet;
pub mod simulated;
pub mod tcp;
pub mod thread;
pub mod wait;

pub use self::clock::{Clock, MonotonicClock, SimulatedClock};
pub use self::doorbell::Doorbell;
pub use self::endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Parcel, Peer, SendError, SendLimits,
    ServicePoint,
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/endpoints.md")]
struct EndpointsPage;
