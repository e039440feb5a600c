//! The rings that packet sockets map (packet(7)): the kernel copies each frame into one, or sends it from there.

mod blocks;
mod receive;
mod spare;
mod transmit;

pub use receive::{RingConfig, RingReceiver};
pub use transmit::TransmitRing;
