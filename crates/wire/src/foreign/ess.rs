//! Readout packets of the European Spallation Source (UDP port 9000): the data of one pulse from a readout master.
//!
//! ```text
//!  packet   0 (u8) | version, 0 or 1 (u8) | "ESS" | type (u8) | bytes (u16) | output queue (u8) | time source (u8)
//!           pulse: s (u32), ticks (u32) | pulse before: s (u32), ticks (u32) | sequence (u32) | version 1: padding (u16)
//!  readout  ring or fibre (u8) | front-end node (u8) | bytes, these included (u16), then what its type says
//! ```
//! Little-endian (ESS event formation unit, `ReadoutParser.h`). Ticks are of 88.0525 MHz. The header's length is 30 bytes, 32 from version
//! 1 on. Checked on a real capture of two readout masters, version 0.

use super::headed::frame;
use super::{Describe, Header, Inspector, Place, headed};
use crate::framing::{Fields, Framing, Front, Search, Tick, Widths, Window};
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes of a header of version 0.
pub const HEADER_BYTES: usize = 30;
/// Bytes before a readout's own data.
pub const READOUT_HEADER_BYTES: usize = 4;
/// The version.
pub const VERSION: Place = Place::little("version", 1, 1);
/// The letters "ESS".
pub const COOKIE: Place = Place::little("cookie", 2, 3).hex();
/// The instrument of the data.
pub const TYPE: Place = Place::little("type", 5, 1).hex();
/// Bytes of the packet.
pub const SIZE: Place = Place::little("bytes", 6, 2);
/// The master's output.
pub const QUEUE: Place = Place::little("output queue", 8, 1);
/// The source of its time.
pub const TIME_SOURCE: Place = Place::little("time source", 9, 1).hex();
/// The pulse's second since 1970.
pub const PULSE_SECONDS: Place = Place::little("pulse, s", 10, 4);
/// The pulse's tick in it.
pub const PULSE_TICKS: Place = Place::little("pulse, ticks", 14, 4);
/// The second of the previous pulse.
pub const PREVIOUS_SECONDS: Place = Place::little("previous pulse, s", 18, 4);
/// The tick of the previous pulse.
pub const PREVIOUS_TICKS: Place = Place::little("previous pulse, ticks", 22, 4);
/// Increases by one for each packet of a queue.
pub const SEQUENCE: Place = Place::little("sequence", 26, 4);
/// The header.
pub const HEADER: &[Place] = &[
    VERSION,
    COOKIE,
    TYPE,
    SIZE,
    QUEUE,
    TIME_SOURCE,
    PULSE_SECONDS,
    PULSE_TICKS,
    PREVIOUS_SECONDS,
    PREVIOUS_TICKS,
    SEQUENCE,
];

const COOKIE_VALUE: u64 = 0x53_5345;
const TICKS_PER_SECOND: u64 = 88_052_500;

const fn header_bytes(version: u64) -> usize {
    HEADER_BYTES + if version == 0 { 0 } else { 2 }
}

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ess;

impl Ess {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match (COOKIE.read(window), VERSION.read(window), SIZE.read(window)) {
            (Some(cookie), ..) if cookie != COOKIE_VALUE => Front::Lost { cause: Cause::FramingLost },
            (Some(_), Some(version), Some(bytes)) if bytes < header_bytes(version) as u64 => {
                Front::Lost { cause: Cause::FramingLost }
            }
            (Some(_), Some(_), Some(bytes)) => frame(window, bytes),
            _ => Front::Needs { bytes: SIZE.offset() + 2 },
        }
    }
}

impl Framing for Ess {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, packet: &(impl Window + ?Sized)) -> Fields {
        let pulse = PULSE_SECONDS.read(packet).zip(PULSE_TICKS.read(packet));
        Fields {
            event: pulse.map(|(seconds, ticks)| seconds << 32 | ticks),
            time: pulse.map(|(seconds, ticks)| seconds * TICKS_PER_SECOND + ticks),
            source: QUEUE.read(packet).map(|queue| queue as u32),
            trigger_type: TYPE.read(packet).map(|kind| kind as u16),
            sequence: SEQUENCE.read(packet),
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { sequence: 32, ..Widths::default() }
    }

    fn tick(&self) -> Tick {
        Tick::of_attoseconds(1_000_000_000_000_000_000 / TICKS_PER_SECOND)
    }
}

/// A readout.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Readout<'a> {
    /// The ring or fibre.
    pub ring: u8,
    /// Its front-end node.
    pub node: u8,
    /// Offset in the packet.
    pub at: usize,
    /// The node's data.
    pub data: &'a [u8],
}

/// Iterator over the readouts of a packet; ends with the first that extends beyond it.
#[derive(Clone, Debug)]
pub struct Readouts<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Readouts<'a> {
    /// The readouts of a whole packet.
    pub fn of(packet: &'a [u8]) -> Self {
        Self { packet, at: header_bytes(VERSION.read(packet).unwrap_or_default()) }
    }

    fn take(&mut self) -> Option<Readout<'a>> {
        let at = self.at;
        let [ring, node, low, high] = *self.packet.get(at..)?.first_chunk()?;
        let end = at + usize::from(u16::from_le_bytes([low, high]));
        let data = self.packet.get(at + READOUT_HEADER_BYTES..end)?;
        self.at = end;
        Some(Readout { ring, node, at, data })
    }
}

impl<'a> Iterator for Readouts<'a> {
    type Item = Result<Readout<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.packet.len() {
            return None;
        }
        let readout = self.take().ok_or("a readout goes beyond its packet");
        if readout.is_err() {
            self.at = self.packet.len();
        }
        Some(readout)
    }
}

impl Describe for Ess {
    fn looks_like(&self, datagram: &[u8]) -> bool {
        COOKIE.read(datagram) == Some(COOKIE_VALUE) && datagram.len() >= HEADER_BYTES
    }

    fn describe(&self, packet: &[u8], to: &mut dyn Inspector) {
        to.kind("readouts");
        HEADER.iter().for_each(|place| place.tell(packet, to));
        for readout in Readouts::of(packet) {
            match readout {
                Ok(readout) => to.part(format_args!("readout"), readout.at, readout.data.len() + READOUT_HEADER_BYTES),
                Err(fault) => to.fault(packet.len(), fault),
            }
        }
    }
}

/// Appends a packet of version 0; cookie and size are set. A readout is ring, node and data.
///
/// Nothing is appended, and false returned, if the packet would exceed 65,535 bytes.
pub fn encode(header: Header<HEADER_BYTES>, readouts: &[(u8, u8, &[u8])], out: &mut Vec<u8>) -> bool {
    let readout_bytes: usize = readouts.iter().map(|(_, _, data)| READOUT_HEADER_BYTES + data.len()).sum();
    let Ok(bytes) = u16::try_from(HEADER_BYTES + readout_bytes) else { return false };
    out.extend_from_slice(&header.with(VERSION, 0).with(COOKIE, COOKIE_VALUE).with(SIZE, bytes.into()).0);
    for (ring, node, data) in readouts {
        out.extend_from_slice(&[*ring, *node]);
        out.extend_from_slice(&((READOUT_HEADER_BYTES + data.len()) as u16).to_le_bytes());
        out.extend_from_slice(data);
    }
    true
}
