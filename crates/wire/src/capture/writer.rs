//! Captures that we write: pcapng, little-endian, with nanoseconds.

use super::LinkType;
use super::packet::IPV6_BYTES;
use crate::internet::{Sum, UDP_BYTES, UDP_PROTOCOL};
use core::net::SocketAddrV6;
use ropewalk_terms::Utc;

/// A number that is always there.
fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// A block of this type around a body.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out, kind);
    put(out, 0);
    body(out);
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    let length = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    put(out, length);
}

/// Appends what a capture begins with: a section with one interface, which keeps packets whole.
pub fn encode_interface(link: LinkType, out: &mut Vec<u8>) {
    block(0x0A0D_0D0A, out, |out| {
        put(out, 0x1A2B_3C4D);
        put(out, 1);
        // The section's length: not said, so that packets can be added.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    });
    block(1, out, |out| {
        put(out, link.0.into());
        put(out, 0);
        // Option 9: times count units of 10^-9 s.
        out.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0]);
        put(out, 0);
    });
}

/// Appends a packet of the section's interface. Times before 1970 become 1970.
pub fn encode_packet(time: Utc, packet: &[u8], out: &mut Vec<u8>) {
    block(6, out, |out| {
        let ticks = time.0.max(0) as u64;
        put(out, 0);
        put(out, (ticks >> 32) as u32);
        put(out, ticks as u32);
        put(out, packet.len() as u32);
        put(out, packet.len() as u32);
        out.extend_from_slice(packet);
    });
}

/// An IPv6 packet with a datagram (RFC 8200), whose checksum is right. None where the datagram is longer than there are.
pub fn ipv6_datagram(source: SocketAddrV6, destination: SocketAddrV6, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_BYTES + payload.len()).ok()?.to_be_bytes();
    let addresses = [source.ip().octets(), destination.ip().octets()].concat();
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let pseudo = Sum::default().with(&addresses).with(&length).with_u16(UDP_PROTOCOL.into());
    // 0 in its place would say that there is none.
    let checksum = match pseudo.with(&ports).with(&length).with(payload).checksum() {
        0 => u16::MAX,
        checksum => checksum,
    };
    let mut packet = Vec::with_capacity(IPV6_BYTES + UDP_BYTES + payload.len());
    packet.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], UDP_PROTOCOL, 64]);
    packet.extend_from_slice(&addresses);
    packet.extend_from_slice(&ports);
    packet.extend_from_slice(&length);
    packet.extend_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(payload);
    Some(packet)
}
