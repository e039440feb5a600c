//! The newer kind of capture: blocks, in sections, each section with a byte order and interfaces of its own.
//!
//! ```text
//!  block      type (u32) | length of the block (u32) | body, padded to 4 | the length again (u32)
//!  section    0x0A0D0D0A, body: 0x1A2B3C4D (u32), version (u16, u16), length (u64), options
//!  interface  1, body: link type (u16), 0 (u16), longest packet (u32), options (9: unit of time, 14: seconds to add)
//!  packet     6, body: interface (u32), time (high u32, low u32), bytes kept (u32), bytes there were (u32), the packet, options
//!  packet     2 (obsolete), as 6, but interface (u16), packets lost (u16)
//!  packet     3, body: bytes there were (u32), the packet as far as the interface keeps it
//! ```

use super::{ByteOrder, CaptureError, Found, LinkType, MOST_BLOCK_BYTES, MOST_INTERFACES, Packet};
use ropewalk_terms::Utc;

const SECTION: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

/// Bytes before a block's body.
const HEAD_BYTES: usize = 8;
/// Bytes around a block's body.
const AROUND_BYTES: usize = HEAD_BYTES + 4;
/// Bytes of a packet's body before the packet.
const PACKET_HEAD_BYTES: usize = 20;

/// The unit of an interface's times, and how far they are from UTC.
const OPTION_UNIT: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// What was said of the section so far.
#[derive(Clone, Debug)]
pub(super) struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

impl Default for Section {
    fn default() -> Self {
        Self { order: ByteOrder::Little, interfaces: Vec::new() }
    }
}

#[derive(Copy, Clone, Debug)]
struct Interface {
    link: LinkType,
    longest: u32,
    /// Ticks per second: a power of ten, or of two where the highest bit is set.
    unit: u8,
    /// Seconds to add to times.
    offset: i64,
}

/// Whether a block of this type begins a section: the same bytes in both orders.
pub(super) const fn is_magic(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) == SECTION
}

impl Section {
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        let Some(&kind) = bytes.first_chunk::<4>() else { return Ok(Found::Needs(AROUND_BYTES)) };
        if is_magic(kind) {
            let Some(&order) = bytes.get(HEAD_BYTES..).and_then(|body| body.first_chunk()) else {
                return Ok(Found::Needs(AROUND_BYTES));
            };
            self.order = match (u32::from_le_bytes(order), u32::from_be_bytes(order)) {
                (BYTE_ORDER, _) => ByteOrder::Little,
                (_, BYTE_ORDER) => ByteOrder::Big,
                _ => return Err(CaptureError::Magic),
            };
        }
        let Some(length) = self.order.u32(bytes, 4) else { return Ok(Found::Needs(AROUND_BYTES)) };
        let length = length as usize;
        if length > MOST_BLOCK_BYTES {
            return Err(CaptureError::Oversize);
        }
        if length < AROUND_BYTES || !length.is_multiple_of(4) {
            return Err(CaptureError::Length);
        }
        let Some(block) = bytes.get(..length) else { return Ok(Found::Needs(length)) };
        if self.order.u32(block, length - 4) != Some(length as u32) {
            return Err(CaptureError::Length);
        }
        let kind = self.order.u32(block, 0).unwrap_or_default();
        let body = &block[HEAD_BYTES..length - 4];
        match self.body(kind, body) {
            Ok(Some(packet)) => Ok(Found::Packet { bytes: length, packet }),
            Ok(None) => Ok(Found::Other { bytes: length }),
            Err(error @ CaptureError::Version(..)) => Err(error),
            Err(error) => Ok(Found::Damaged { bytes: length, error }),
        }
    }

    /// What a block holds; a packet, or nothing that is shown.
    fn body<'a>(&mut self, kind: u32, body: &'a [u8]) -> Result<Option<Packet<'a>>, CaptureError> {
        match kind {
            SECTION => self.begin(body).map(|()| None),
            INTERFACE => self.interface(body).map(|()| None),
            PACKET => {
                let interface = self.order.u32(body, 0).ok_or(CaptureError::Packet)?;
                self.packet(interface, body).map(Some)
            }
            OLD_PACKET => {
                let interface = self.order.u16(body, 0).ok_or(CaptureError::Packet)?;
                self.packet(interface.into(), body).map(Some)
            }
            SIMPLE_PACKET => self.simple_packet(body).map(Some),
            _ => Ok(None),
        }
    }

    fn begin(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        self.interfaces.clear();
        match (self.order.u16(body, 4), self.order.u16(body, 6)) {
            // 1.2 was written by some programs, and is the same.
            (Some(1), Some(_)) => Ok(()),
            (Some(major), Some(minor)) => Err(CaptureError::Version(major, minor)),
            _ => Err(CaptureError::Length),
        }
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        if self.interfaces.len() == MOST_INTERFACES {
            return Err(CaptureError::Interfaces);
        }
        let link = self.order.u16(body, 0).map(LinkType).ok_or(CaptureError::Length)?;
        let longest = self.order.u32(body, 4).ok_or(CaptureError::Length)?;
        let mut interface = Interface { link, longest, unit: 6, offset: 0 };
        let mut options = &body[8..];
        while let (Some(code @ 1..), Some(length)) = (self.order.u16(options, 0), self.order.u16(options, 2)) {
            let padded = 4 + usize::from(length).next_multiple_of(4);
            match code {
                OPTION_UNIT => interface.unit = options.get(4).copied().unwrap_or(6),
                OPTION_OFFSET => interface.offset = self.order.u64(options, 4).unwrap_or_default() as i64,
                _ => {}
            }
            options = options.get(padded..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet<'a>(&self, number: u32, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        let field = |at| self.order.u32(body, at).ok_or(CaptureError::Packet);
        let interface = self.interfaces.get(number as usize).ok_or(CaptureError::Interface)?;
        let ticks = u64::from(field(4)?) << 32 | u64::from(field(8)?);
        let (kept, original_bytes) = (field(12)? as usize, field(16)?);
        let end = PACKET_HEAD_BYTES.saturating_add(kept);
        let bytes = body.get(PACKET_HEAD_BYTES..end).ok_or(CaptureError::Packet)?;
        let time = Some(interface.time(ticks));
        Ok(Packet { time, interface: number, link: interface.link, bytes, original_bytes })
    }

    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        let interface = self.interfaces.first().ok_or(CaptureError::Interface)?;
        let original_bytes = self.order.u32(body, 0).ok_or(CaptureError::Packet)?;
        // 0 says that packets are kept whole.
        let longest = if interface.longest == 0 { u32::MAX } else { interface.longest };
        let kept = original_bytes.min(longest) as usize;
        let bytes = body.get(4..).and_then(|packet| packet.get(..kept)).ok_or(CaptureError::Packet)?;
        Ok(Packet { time: None, interface: 0, link: interface.link, bytes, original_bytes })
    }
}

impl Interface {
    /// When it was, so many ticks after 1970 began. What no number of 64 bits holds is the last time that one does.
    fn time(&self, ticks: u64) -> Utc {
        const NANOSECONDS: u128 = 1_000_000_000;
        let exponent = u32::from(self.unit & 0x7F);
        let ticks = u128::from(ticks) * NANOSECONDS;
        let nanoseconds = if self.unit & 0x80 != 0 {
            ticks.checked_shr(exponent).unwrap_or(0)
        } else {
            10_u128.checked_pow(exponent).map_or(0, |unit| ticks / unit)
        };
        let offset = i128::from(self.offset) * NANOSECONDS as i128;
        let time = (nanoseconds.min(i128::MAX as u128 >> 1) as i128).saturating_add(offset);
        Utc(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}
