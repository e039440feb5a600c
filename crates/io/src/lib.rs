//! The only data-path system calls of Ropewalk: endpoints (the TCP layer of paper 3, section III), disk,
//! sleeping and clocks, and a simulated twin of each.
//!
//! ```text
//!      layer: posted work, cookies, framers, handlers, threads by task (paper 3, for programs of one's own)
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
//! Packets, which may be lost and have no connection, have an interface of their own: [`packet`].
//!
//! Everything that decides stays out of here: the machines of `flow` get what these mechanisms report.
//! One conformance suite (`tests/conformance`) runs over every mechanism.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/endpoints.md")]
struct EndpointsPage;

pub mod clock;
pub mod disk;
mod doorbell;
pub mod endpoint;
mod ends;
pub mod in_process;
pub mod layer;
pub mod packet;
mod parcel;
mod pass_on;
mod receive_block;
mod send_queue;
pub mod simulated;
mod sleeper;
mod slots;
pub mod tcp;
pub mod thread;
pub mod wait;

pub use clock::{Clock, MonotonicClock, SimulatedClock};
pub use doorbell::Doorbell;
pub use endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Peer, SendError, SendLimits, ServicePoint,
};
pub use parcel::Parcel;
