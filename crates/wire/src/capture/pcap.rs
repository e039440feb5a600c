//! The older kind of capture: one header, then records.
//!
//! ```text
//!  header  magic (u32) | version (u16, u16) | zone, accuracy (u32, u32) | longest packet (u32) | link type (u32)
//!  record  seconds (u32) | micro- or nanoseconds (u32) | bytes kept (u32) | bytes there were (u32) | the packet
//! ```

use super::{ByteOrder, CaptureError, Found, LinkType, MOST_BLOCK_BYTES, Packet};
use ropewalk_terms::Utc;

/// Bytes of a file's header.
pub(super) const HEADER_BYTES: usize = 24;
/// Bytes before a packet.
const RECORD_BYTES: usize = 16;
/// The magic number of files with microseconds.
const MICROSECONDS: u32 = 0xA1B2_C3D4;
/// The magic number of files with nanoseconds.
const NANOSECONDS: u32 = 0xA1B2_3C4D;

/// What a header says.
#[derive(Clone, Debug)]
pub(super) struct File {
    order: ByteOrder,
    /// Nanoseconds of the second number of a time.
    unit: i64,
    link: LinkType,
}

/// What a magic number says of byte order and unit of time.
pub(super) fn order_and_unit(magic: [u8; 4]) -> Option<(ByteOrder, i64)> {
    let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
    let unit = |magic| match magic {
        MICROSECONDS => Some(1000),
        NANOSECONDS => Some(1),
        _ => None,
    };
    unit(little).map(|unit| (ByteOrder::Little, unit)).or_else(|| Some((ByteOrder::Big, unit(big)?)))
}

impl File {
    pub(super) fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, CaptureError> {
        let [a, b, c, d, ..] = *header;
        let (order, unit) = order_and_unit([a, b, c, d]).ok_or(CaptureError::Magic)?;
        let half = |at| order.u16(header, at).unwrap_or_default();
        // 2.4 has been the version since 1998.
        if half(4) != 2 {
            return Err(CaptureError::Version(half(4), half(6)));
        }
        // The upper bits say how long a frame's checksum is, if frames were captured with one.
        let link = LinkType(order.u32(header, 20).unwrap_or_default() as u16);
        Ok(Self { order, unit, link })
    }

    pub(super) fn next<'a>(&self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        let number = |at| self.order.u32(bytes, at);
        let Some(((seconds, fraction), (kept, original_bytes))) =
            number(0).zip(number(4)).zip(number(8).zip(number(12)))
        else {
            return Ok(Found::Needs(RECORD_BYTES));
        };
        let kept = kept as usize;
        if kept > MOST_BLOCK_BYTES {
            return Err(CaptureError::Oversize);
        }
        let Some(packet) = bytes.get(RECORD_BYTES..RECORD_BYTES + kept) else {
            return Ok(Found::Needs(RECORD_BYTES + kept));
        };
        let time = Utc(i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.unit);
        let packet = Packet { time: Some(time), interface: 0, link: self.link, bytes: packet, original_bytes };
        Ok(Found::Packet { bytes: RECORD_BYTES + kept, packet })
    }
}
