//! Datagrams that were received, as a capture: with the headers that they came with, as far as a socket tells.

use ropewalk_terms::Utc;
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::internet::{Ipv4Header, UDP_BYTES, UDP_PROTOCOL, UdpHeader};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of the headers of IP and UDP.
const HEADER_BYTES: usize = 28;

/// What the payloads that were received came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SavedAs {
    /// Datagrams of UDP that went here.
    Datagrams(SocketAddrV4),
    /// Straight in IP, to this address and with this protocol number.
    Packets(Ipv4Addr, u8),
}

impl SavedAs {
    /// Appends a payload that `from` sent, as a packet of a capture; nothing where it is longer than there are packets.
    pub fn encode(self, time: Utc, from: SocketAddrV4, payload: &[u8], out: &mut Vec<u8>) {
        let mut packet = [0; HEADER_BYTES];
        let headers = match self {
            Self::Datagrams(to) => {
                let ip = Ipv4Header::new(*from.ip(), *to.ip(), UDP_PROTOCOL);
                let udp = UdpHeader { source: from, destination: to };
                let start = ip.write(UDP_BYTES + payload.len(), &mut packet);
                start.and_then(|start| Some(start + udp.write_unchecked(payload.len(), &mut packet[start..])?))
            }
            Self::Packets(to, protocol) => Ipv4Header::new(*from.ip(), to, protocol).write(payload.len(), &mut packet),
        };
        if let Some(bytes) = headers {
            encode_packet(time, &[&packet[..bytes], payload].concat(), out);
        }
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
    packets: impl Iterator<Item = (Utc, SocketAddrV4, Vec<u8>)>,
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
