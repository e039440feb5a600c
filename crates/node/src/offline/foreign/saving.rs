//! Datagrams that were received, as a capture: with the headers that they came with, as far as a socket tells.

use ropewalk_terms::Utc;
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet, ipv6_datagram};
use ropewalk_wire::internet::{Ipv4Header, UDP_BYTES, UDP_PROTOCOL, UdpHeader};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the headers of IP and UDP.
const HEADER_BYTES: usize = 28;

/// What the payloads that were received came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SavedAs {
    /// Datagrams of UDP that went here.
    Datagrams(SocketAddr),
    /// Straight in IP, to this address and with this protocol number.
    Packets(Ipv4Addr, u8),
}

impl SavedAs {
    /// Appends a payload that `from` sent, as a packet of a capture; nothing where it is longer than there are packets.
    pub fn encode(self, time: Utc, from: SocketAddr, payload: &[u8], out: &mut Vec<u8>) {
        let mut packet = [0; HEADER_BYTES];
        let headers = match (self, from) {
            (Self::Datagrams(to), SocketAddr::V6(source)) => {
                let datagram = ipv6_datagram(source, v6(to), payload);
                return datagram.into_iter().for_each(|packet| encode_packet(time, &packet, out));
            }
            (Self::Datagrams(to), SocketAddr::V4(source)) => {
                let destination = SocketAddrV4::new(v4(to.ip()), to.port());
                let ip = Ipv4Header::new(*source.ip(), *destination.ip(), UDP_PROTOCOL);
                let udp = UdpHeader { source, destination };
                let start = ip.write(UDP_BYTES + payload.len(), &mut packet);
                start.and_then(|start| Some(start + udp.write_unchecked(payload.len(), &mut packet[start..])?))
            }
            (Self::Packets(to, protocol), from) => {
                Ipv4Header::new(v4(from.ip()), to, protocol).write(payload.len(), &mut packet)
            }
        };
        if let Some(bytes) = headers {
            encode_packet(time, &[&packet[..bytes], payload].concat(), out);
        }
    }
}

/// The address; of a socket that hears both versions of IP, any one.
const fn v4(address: IpAddr) -> Ipv4Addr {
    if let IpAddr::V4(address) = address { address } else { Ipv4Addr::UNSPECIFIED }
}

/// The same the other way round.
const fn v6(address: SocketAddr) -> SocketAddrV6 {
    match address {
        SocketAddr::V6(address) => address,
        SocketAddr::V4(address) => SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, address.port(), 0, 0),
    }
}

/// What a capture of such packets begins with.
pub(super) fn capture_begin() -> Vec<u8> {
    let mut begin = Vec::new();
    encode_interface(LinkType::RAW, &mut begin);
    begin
}

/// Writes a capture of these payloads: when each came, from where, and its bytes.
///
/// # Errors
/// Where they cannot be written.
pub fn encode_capture(
    saved_as: SavedAs,
    packets: impl Iterator<Item = (Utc, SocketAddr, Vec<u8>)>,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(&capture_begin())?;
    let mut block = Vec::new();
    for (time, from, payload) in packets {
        block.clear();
        saved_as.encode(time, from, &payload, &mut block);
        out.write_all(&block)?;
    }
    Ok(())
}
