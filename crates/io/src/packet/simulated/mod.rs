//! Packets on a simulated network: virtual time, one seed, and what networks do to packets.
//!
//! Time is what the calls are told. A driver serves everybody at one instant until nobody has work, then moves to the
//! earliest [`next_deadline`](crate::packet::Receiver::next_deadline).

mod network;
mod path;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use network::{NetworkCounters, PacketNetwork};
pub use path::{PacketPath, Passage};
pub use receiver::SimulatedReceiver;
pub use sender::SimulatedSender;

/// What goes wrong with packets, and how often. Rates are probabilities from 0 to 1.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct PacketFaults {
    /// How often a packet is lost on its way.
    pub loss: f64,
    /// How often it arrives a second time.
    pub duplication: f64,
    /// How often it is held up, so that later ones overtake it.
    pub disorder: f64,
    /// How long it is held up at most.
    pub held_up: Duration,
    /// How long a packet is under way.
    pub latency: Duration,
    /// Packets that wait at a receiver; further ones are lost there, and counted by it.
    pub queue: usize,
}

impl Default for PacketFaults {
    /// None.
    fn default() -> Self {
        let (latency, held_up) = (Duration::from_micros(20), Duration::from_millis(1));
        Self { loss: 0.0, duplication: 0.0, disorder: 0.0, held_up, latency, queue: 4096 }
    }
}

impl PacketFaults {
    /// Some of everything.
    pub fn nasty() -> Self {
        Self { loss: 0.01, duplication: 0.01, disorder: 0.05, queue: 256, ..Self::default() }
    }
}
