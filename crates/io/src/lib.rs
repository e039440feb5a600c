//! The only data-path system calls of Ropewalk: endpoints (the TCP layer of paper 3, section III), disk,
//! sleeping and clocks, and a simulated twin of each.
//!
//! ```text
//!                         Dispatcher (endpoint.rs): events out, slices in
//!          ┌──────────────────────────┼──────────────────────────┐
//!     tcp::Tcp                in_process::InProcess       simulated::Simulated
//!  epoll, receives in       hands slices over between    virtual time, one seed,
//!  place, gathered sends    threads of one process       the project's fault model
//!
//!     wait::Waiter sleeps on all of them · disk: RealDisk and SimulatedDisk · clock: real and simulated
//! ```
//!
//! Everything that decides stays out of here: the machines of `flow` get what these mechanisms report.
//! One conformance suite (`tests/conformance`) runs over every mechanism.

pub mod clock;
pub mod disk;
mod doorbell;
pub mod endpoint;
mod ends;
pub mod in_process;
pub mod layer;
mod parcel;
mod receive_block;
mod send_queue;
pub mod simulated;
mod sleeper;
mod slots;
pub mod tcp;
pub mod wait;

pub use clock::{Clock, MonotonicClock, SimulatedClock};
pub use endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Peer, SendError, SendLimits, ServicePoint,
};
pub use parcel::Parcel;
