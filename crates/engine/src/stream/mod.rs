//! Chunks to subscribers over endpoints.
//!
//! ```text
//!  card's ring --> StreamInput --> Router --> StreamServer ==Chunks==> StreamClient --> who wants them
//!                                  ^              |  ^                      |
//!                                  | loop-back    |  +----Subscribe, Down---+
//!                                  +-- DownLink <-+
//! ```
//! [`CardServer`] combines `StreamInput` and `StreamServer`. A readout unit that reads the card decodes once for its
//! events and for the subscribers, and has only a `StreamServer`.
//!
//! The heads of a message are staged in one piece. The chunks' bytes follow as slices of the ring, by reference, or are
//! copied into one piece if they are small.

mod client;
mod message;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientConfig, ClientReport, ClientState, StreamClient};
pub use message::{StreamIncoming, StreamReader};
pub use server::{CardServer, ServerConfig, ServerReport, StreamServer};
