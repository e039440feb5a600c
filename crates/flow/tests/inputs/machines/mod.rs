//! Machines fed with anything: bytes become messages, times and failures in an order that no real system would have.
//!
//! ```text
//! bytes --> Choices --> messages from anybody, fragments, lost connections, time --> one machine
//!                                                   after each step: accounts balance, bounds hold, no panic
//! ```
//! A machine trusts no other node: whatever they send, it must neither panic nor lose count nor keep answering for ever.
//! Each function takes any bytes. The fuzz targets call them with bytes that reach new code.

mod choices;
mod control;
mod framing;
mod gateway;
mod nodes;
mod router;

pub use control::{control, front_ends};
pub use framing::{framer, layout, sniff};
pub use gateway::gateway;
pub use nodes::{builder, manager, readout, synchrony};
pub use router::router;

/// Actions that one input may lead to at most: more means that a machine answers itself.
const MOST_ACTIONS: usize = 20_000;
