//! Captures that we write: pcapng, little-endian, with nanoseconds.

use super::LinkType;
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
