//! Chunks to subscribers over endpoints.
//!
//! ```text
//!  card's ring --> StreamInput --> Router --> StreamServer ==Chunks==> StreamClient --> who wants them
//!                                  ^              |  ^                      |
//!                                  | loop-back    |  +----Subscribe, Down---+
//!                                  +-- DownLink <-+
//! ```
//! The heads of a message are staged in one piece; the chunks' bytes follow as slices of the ring, by reference.

mod client;
mod connection;
mod reader;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientConfig, ClientReport, ClientState, StreamClient};
pub use reader::{StreamIncoming, StreamReader};
pub use server::{ServerConfig, ServerReport, StreamServer};
