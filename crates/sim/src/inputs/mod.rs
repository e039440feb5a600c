//! Machines fed with anything: bytes become messages, times and failures in an order that no real system would have.
//!
//! ```text
//! bytes --> Choices --> messages from anybody, fragments, lost connections, time --> one machine
//!                                                   after each step: accounts balance, bounds hold, no panic
//! ```
//! A machine trusts nobody: whatever other nodes say, it must neither panic nor lose count nor keep answering for ever.
//! Texts that people write are read here as well. Each function takes any bytes. The fuzz targets call them with bytes that reach new code; the tests here call them
//! with random ones, so that they cannot rot.

mod builder;
mod card;
mod choices;
mod control;
mod framer;
mod front_ends;
mod gateway;
mod layout;
mod manager;
mod readout;
mod router;
mod sniff;
mod synchrony;
#[cfg(test)]
mod tests;
mod text;

pub use builder::builder;
pub use control::control;
pub use framer::framer;
pub use front_ends::front_ends;
pub use gateway::gateway;
pub use layout::layout;
pub use manager::manager;
pub use readout::readout;
pub use router::router;
pub use sniff::sniff;
pub use synchrony::synchrony;
pub use text::{configuration, quantity};

/// Actions that one input may lead to at most: more means that a machine answers itself.
const MOST_ACTIONS: usize = 20_000;
