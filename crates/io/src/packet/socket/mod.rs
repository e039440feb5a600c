//! Packets over the kernel's sockets: UDP, and IP with a protocol number of one's own.
//!
//! ```text
//!  card -> driver -> IP (puts fragments together) -> UDP or raw IP -> the socket's queue -> copy -> PacketMemory
//! ```
//! The kernel makes a buffer for each packet and frees it when the packet was copied out: the price that paper 2 is about.

mod address;
mod header;
mod membership;
pub(super) mod open;
mod receive;
mod send;

pub use membership::{Membership, MembershipChange};
pub use receive::SocketReceiver;
pub use send::SocketSender;
