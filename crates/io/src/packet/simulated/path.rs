//! Networks are not the same everywhere: faults between some hosts, and what somebody who watches sees.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;

use ropewalk_terms::Instant;

use super::PacketFaults;

/// The way from some hosts to others.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketPath {
    /// Who sends.
    pub from: RangeInclusive<Ipv4Addr>,
    /// Who receives.
    pub to: RangeInclusive<Ipv4Addr>,
    /// What goes wrong between them; the room at receivers is of no account here.
    pub faults: PacketFaults,
}

/// What became of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It was sent.
    Sent {
        /// When.
        at: Instant,
        /// By whom.
        from: SocketAddrV4,
        /// To whom.
        to: SocketAddrV4,
        /// What was in it.
        payload: Vec<u8>,
        /// When it arrives, and when a second time: never where it is lost, or nobody receives there.
        arrivals: [Option<Instant>; 2],
    },
    /// It arrived where too many waited already, and was lost.
    Overflown {
        /// By whom it was sent.
        from: SocketAddrV4,
        /// Where there was no room.
        to: SocketAddrV4,
        /// What was in it.
        payload: Vec<u8>,
    },
}

/// Paths with faults of their own; the first that a packet belongs to counts.
#[derive(Default)]
pub(super) struct Rules(pub(super) Vec<PacketPath>);

impl Rules {
    /// The faults between two hosts, where they are others than elsewhere.
    pub(super) fn of(&self, from: Ipv4Addr, to: Ipv4Addr) -> Option<PacketFaults> {
        self.0.iter().find(|path| path.from.contains(&from) && path.to.contains(&to)).map(|path| path.faults)
    }
}
