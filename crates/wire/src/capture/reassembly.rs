//! Datagrams of several IP fragments, put together.

use super::{IpPacket, Part};
use core::net::IpAddr;

/// Datagrams that are put together at the same time; the oldest gives way.
const MOST_OPEN: usize = 64;
/// The longest datagram.
const MOST_BYTES: usize = 0xFFFF;

/// What the parts of a datagram have in common.
type Whose = (IpAddr, IpAddr, u8, u32);

/// Datagrams of which some parts have come.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// In the order of their first parts.
    open: Vec<Open>,
    /// The datagram that became whole last.
    whole: Vec<u8>,
    given_up: u64,
}

#[derive(Debug)]
struct Open {
    whose: Whose,
    bytes: Vec<u8>,
    /// What has come, as ranges in order that do not touch each other: at most one for each 8 bytes.
    come: Vec<(usize, usize)>,
    /// How long it is, as soon as its last part has come.
    length: Option<usize>,
}

impl Reassembly {
    /// Takes a part. The datagram, where this was its last missing part.
    pub(super) fn accept(&mut self, packet: &IpPacket<'_>, part: Part) -> Option<&[u8]> {
        let whose = (packet.source, packet.destination, packet.protocol, part.identification);
        let start = usize::from(part.offset);
        let end = start + packet.payload.len();
        let ends_within = part.has_more && !packet.payload.len().is_multiple_of(8);
        if end > MOST_BYTES || ends_within || packet.payload.is_empty() {
            return None;
        }
        let index = match self.open.iter().position(|open| open.whose == whose) {
            Some(index) => index,
            None => self.begin(whose),
        };
        let open = &mut self.open[index];
        open.put(start, packet.payload);
        if !part.has_more {
            open.length = Some(end);
        }
        if open.length.is_none_or(|length| open.come != [(0, length)]) {
            return None;
        }
        self.whole = self.open.remove(index).bytes;
        Some(&self.whole)
    }

    fn begin(&mut self, whose: Whose) -> usize {
        if self.open.len() == MOST_OPEN {
            self.open.remove(0);
            self.given_up += 1;
        }
        self.open.push(Open { whose, bytes: Vec::new(), come: Vec::new(), length: None });
        self.open.len() - 1
    }

    /// Datagrams whose other parts did not come, those that are still waited for included.
    pub(super) fn unfinished(&self) -> u64 {
        self.given_up + self.open.len() as u64
    }
}

impl Open {
    fn put(&mut self, start: usize, payload: &[u8]) {
        let end = start + payload.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(payload);
        self.come.push((start, end));
        self.come.sort_unstable();
        self.come.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
    }
}
