//! Captured network traffic: the files of packet analysers, and what their packets carry.
//!
//! ```text
//!  file ──reader──> packets ──link──> IP packets ──traffic──> UDP datagrams            whole, also of several IP fragments
//!  (pcap, pcapng)   time, interface   Ethernet, VLAN,         TCP segments ──streams──> bytes in order
//!                                     Linux cooked, raw IP    everything else, told apart by name
//! ```
//! Layouts: pcap as in the IETF draft `draft-ietf-opsawg-pcap`, pcapng as in `draft-ietf-opsawg-pcapng`, link types as
//! tcpdump.org lists them, IPv6 RFC 8200. Files of both byte orders, with micro- or nanoseconds or any other unit of time,
//! of several sections and interfaces; unknown blocks are passed over. A parser of our own, because a capture is input like any
//! other: nothing in it may panic or take memory without a bound, and packets are looked at where they lie.

mod error;
mod link;
mod packet;
mod pcap;
mod pcapng;
mod reader;
mod reassembly;
mod streams;
#[cfg(test)]
mod tests;
mod traffic;
mod writer;

pub use error::CaptureError;
pub use link::{LinkType, Network, network};
pub use packet::{IpPacket, Part};
pub use reader::{CaptureReader, Found, Packet};
pub use streams::{Segment, StreamPiece, Streams, Stretches};
pub use traffic::{Aside, Carried, Datagram, Traffic};
pub use writer::{encode_interface, encode_packet, ipv6_datagram};

/// The largest block or record that is read. Larger ones are taken for damage.
pub const MOST_BLOCK_BYTES: usize = 16 << 20;

/// The most interfaces of a section.
pub const MOST_INTERFACES: usize = 1024;

/// The order of the bytes of numbers, which the machine that captured chose.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The number of 16 bits at `at`, if it is there.
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) })
    }

    /// The number of 32 bits at `at`, if it is there.
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u32::from_le_bytes(number) } else { u32::from_be_bytes(number) })
    }

    /// The number of 64 bits at `at`, if it is there.
    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u64::from_le_bytes(number) } else { u64::from_be_bytes(number) })
    }
}
