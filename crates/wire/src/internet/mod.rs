//! What carries packets: Ethernet II with a VLAN tag, IPv4 (RFC 791), UDP (RFC 768) and their checksum (RFC 1071).
//!
//! ```text
//!  Ethernet 14, or 18 with a tag │ IPv4 20 to 60 │ UDP 8 │ payload │ padding up to 60 bytes of frame
//! ```
//! Each layer has a view that checks every length before it shows what lies behind it, and a header as an owned value
//! that encodes itself. All numbers are big-endian. Sockets never show these headers; packet rings show nothing else.

mod checksum;
mod error;
mod ethernet;
mod ipv4;
#[cfg(test)]
mod tests;
mod udp;

pub use checksum::{Sum, checksum};
pub use error::InternetError;
pub use ethernet::{EtherType, EthernetFrame, EthernetHeader, MacAddress, VlanTag};
pub use ipv4::{Fragmentation, Ipv4Header, Ipv4Packet, MOST_OPTION_BYTES};
pub use udp::{ChecksumState, UdpDatagram, UdpHeader};

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_BYTES: usize = 14;

/// Bytes that a VLAN tag adds.
pub const VLAN_BYTES: usize = 4;

/// The shortest frame that a cable carries, without its checksum; shorter ones are filled up with zeros.
pub const LEAST_FRAME_BYTES: usize = 60;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;

/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// The protocol number of UDP in an IPv4 header.
pub const UDP_PROTOCOL: u8 = 17;

/// A number for experiments (RFC 3692) that nobody else has, for data straight in IP packets.
pub const EXPERIMENTAL_PROTOCOL: u8 = 253;

/// The two bytes at `at`, which must be there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
