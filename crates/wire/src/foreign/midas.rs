//! MIDAS: events of several equipments, each with banks (`midas.h`: `EVENT_HEADER`, `BANK_HEADER`, `BANK`, `BANK32`, `BANK32A`).
//!
//! ```text
//!  event   id (u16) | trigger mask (u16) | serial (u32) | time, s since 1970 (u32) | bytes that follow (u32)
//!  banks   bytes of all banks (u32) | flags (u32), then each bank, padded to 8:
//!          flags bit 4 clear    name (4) | type (u16) | bytes (u16)
//!          bit 4 set            name (4) | type (u32) | bytes (u32)
//!          bits 4 and 5 set     name (4) | type (u32) | bytes (u32) | 0 (u32)
//! ```
//! Little-endian. Ids from 0x8000 on belong to the system: begin of run, end of run (the serial is then the run's
//! number, the contents are a dump of all settings) and messages. Checked on a real run of 8,227 events with banks of
//! the first two kinds.

use super::headed::frame;
use super::{Describe, Header, Inspector, MOST_FRAME_BYTES, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Search, Tick, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;

/// Bytes of an event's header.
pub const HEADER_BYTES: usize = 16;
/// The equipment.
pub const ID: Place = Place::little("id", 0, 2).hex();
/// The trigger.
pub const MASK: Place = Place::little("trigger mask", 2, 2).hex();
/// The number of the event within its id; for begin and end of run the run's number.
pub const SERIAL: Place = Place::little("serial", 4, 4);
/// Seconds since 1970.
pub const TIME: Place = Place::little("time", 8, 4);
/// Bytes behind the header.
pub const SIZE: Place = Place::little("bytes", 12, 4);
/// Bytes of all banks.
pub const BANK_BYTES: Place = Place::little("bank bytes", 16, 4);
/// The layout of the banks.
pub const BANK_FLAGS: Place = Place::little("bank flags", 20, 4).hex();
/// The header of an event, then that of its banks.
pub const HEADER: &[Place] = &[ID, MASK, SERIAL, TIME, SIZE, BANK_BYTES, BANK_FLAGS];

/// The id of a run's beginning.
pub const BEGIN_OF_RUN: u16 = 0x8000;
/// The id of a run's end.
pub const END_OF_RUN: u16 = 0x8001;
/// The id of a message.
pub const MESSAGE: u16 = 0x8002;
/// The trigger mask of the system's own events: the letters "MI".
const SYSTEM_MASK: u64 = 0x494D;

/// The flag of banks with 32-bit headers, and of banks that are also multiples of 8 bytes.
const WIDE: u32 = 0x10;
const ALIGNED: u32 = 0x20;
const BANKS_AT: usize = HEADER_BYTES + 8;

/// The names of types, from 1 on.
const TYPES: [&str; 18] = [
    "u8", "i8", "char", "u16", "i16", "u32", "i32", "bool", "f32", "f64", "bits", "string", "array", "struct", "key",
    "link", "i64", "u64",
];

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Midas;

/// Whether it is the header of an event, followed by that of its banks, or of the begin or end of a run.
pub(super) fn is_header(window: &(impl Window + ?Sized)) -> bool {
    let (size, flags) = (SIZE.read(window).unwrap_or_default(), BANK_FLAGS.read(window).unwrap_or_default() as u32);
    if ID.read(window) >= Some(BEGIN_OF_RUN.into()) {
        return ID.read(window) <= Some(MESSAGE.into())
            && MASK.read(window) == Some(SYSTEM_MASK)
            && size <= MOST_FRAME_BYTES as u64;
    }
    BANK_BYTES.read(window).is_some_and(|bytes| bytes + 8 == size)
        && matches!(flags, 1 | 0x11 | 0x31)
        && size <= MOST_FRAME_BYTES as u64
}

impl Midas {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match SIZE.read(window) {
            Some(bytes) => frame(window, HEADER_BYTES as u64 + bytes),
            None => Front::Needs { bytes: HEADER_BYTES },
        }
    }
}

impl Framing for Midas {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let banks = BANK_BYTES.read(frame).zip(SIZE.read(frame));
        let is_system = ID.read(frame) >= Some(BEGIN_OF_RUN.into());
        // An event without a header of banks is truncated, or no event.
        let fits = is_system || banks.is_some_and(|(banks, size)| banks + 8 == size);
        Fields {
            event: SERIAL.read(frame).filter(|_| !is_system),
            time: TIME.read(frame),
            source: ID.read(frame).map(|id| id as u32),
            trigger_type: MASK.read(frame).map(|mask| mask as u16),
            run: SERIAL.read(frame).filter(|_| is_system).map(|run| run as u32),
            flags: if fits { FragmentFlags::default() } else { FragmentFlags::MALFORMED },
            ..Fields::default()
        }
    }

    /// Events of each id have separate serial numbers, and begin and end of a run have none.
    fn counts_together(&self) -> bool {
        false
    }

    fn widths(&self) -> Widths {
        Widths { event: 32, time: 32, ..Widths::default() }
    }

    fn tick(&self) -> Tick {
        Tick::of_attoseconds(1_000_000_000_000_000_000)
    }
}

/// Whether an event belongs to the system, or has banks that fill it.
pub(crate) fn has_banks(event: &[u8]) -> bool {
    let (size, banks) = (SIZE.read(event).unwrap_or_default(), BANK_BYTES.read(event).unwrap_or_default());
    match ID.read(event) {
        Some(id) if id >= BEGIN_OF_RUN.into() => MASK.read(event) == Some(SYSTEM_MASK),
        _ => size >= 8 && size == banks + 8,
    }
}

/// A bank.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bank<'a> {
    /// Its name, padded with zeros.
    pub name: [u8; 4],
    /// The type of its data: 6 is `u32`.
    pub kind: u32,
    /// The offset of its header in the event.
    pub at: usize,
    /// Its data, without padding.
    pub data: &'a [u8],
}

/// Iterator over the banks of an event; ends with the first that extends beyond it.
#[derive(Clone, Debug)]
pub struct Banks<'a> {
    event: &'a [u8],
    at: usize,
    flags: u32,
}

impl<'a> Banks<'a> {
    /// The banks of an event that does not belong to the system.
    pub fn of(event: &'a [u8]) -> Self {
        Self { event, at: BANKS_AT, flags: BANK_FLAGS.read(event).unwrap_or_default() as u32 }
    }

    fn take(&mut self) -> Option<Bank<'a>> {
        let header = self.event.get(self.at..)?;
        let name = *header.first_chunk()?;
        let (is_wide, is_aligned) = (self.flags & WIDE != 0, self.flags & ALIGNED != 0);
        let (width, header_bytes) = match (is_wide, is_aligned) {
            (false, _) => (2, 8),
            (true, false) => (4, 12),
            (true, true) => (4, 16),
        };
        let kind = Place::little("type", 4, width).read(header)? as u32;
        let bytes = Place::little("bytes", 4 + width, width).read(header)? as usize;
        let data = header.get(header_bytes..)?.get(..bytes)?;
        let at = self.at;
        // The last bank's padding may be cut off.
        self.at = self.event.len().min(at + header_bytes + bytes.next_multiple_of(8));
        Some(Bank { name, kind, at, data })
    }
}

impl<'a> Iterator for Banks<'a> {
    type Item = Result<Bank<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.event.len() {
            return None;
        }
        let bank = self.take().ok_or("a bank goes beyond its event");
        if bank.is_err() {
            self.at = self.event.len();
        }
        Some(bank)
    }
}

impl Describe for Midas {
    fn looks_like(&self, first: &[u8]) -> bool {
        // Whether a file begins like this: with the begin of a run.
        ID.read(first) == Some(BEGIN_OF_RUN.into()) && MASK.read(first) == Some(SYSTEM_MASK)
    }

    fn describe(&self, event: &[u8], to: &mut dyn Inspector) {
        let id = ID.read(event).unwrap_or_default() as u16;
        to.kind(match id {
            BEGIN_OF_RUN => "begin of run",
            END_OF_RUN => "end of run",
            MESSAGE => "message",
            0x8003.. => "system",
            _ => "event",
        });
        let (event_fields, bank_fields) = HEADER.split_at(5);
        event_fields.iter().for_each(|place| place.tell(event, to));
        if id >= BEGIN_OF_RUN || event.len() < BANKS_AT {
            return;
        }
        bank_fields.iter().for_each(|place| place.tell(event, to));
        if BANK_BYTES.read(event).map(|bytes| bytes + 8) != SIZE.read(event) {
            to.fault(BANK_BYTES.offset(), "the banks do not fill the event");
        }
        for bank in Banks::of(event) {
            match bank {
                Ok(bank) => tell_bank(&bank, to),
                Err(fault) => to.fault(BANKS_AT, fault),
            }
        }
    }
}

fn tell_bank(bank: &Bank<'_>, to: &mut dyn Inspector) {
    let end = bank.name.iter().position(|&byte| byte == 0).unwrap_or(4);
    let name = String::from_utf8_lossy(&bank.name[..end]);
    let kind = (bank.kind as usize).checked_sub(1).and_then(|index| TYPES.get(index)).unwrap_or(&"unknown type");
    to.field("bank", bank.at, 4, Value::Text(&name));
    to.field("bank type", bank.at + 4, 4, Value::Text(kind));
    to.part(format_args!("bank {}", name.escape_debug()), bank.at, bank.data.len());
}

/// Appends an event with banks of the last kind. The header's size is set.
pub fn encode_event(header: Header<HEADER_BYTES>, banks: &[([u8; 4], u32, &[u8])], out: &mut Vec<u8>) {
    let bytes: usize = banks.iter().map(|(_, _, data)| 16 + data.len().next_multiple_of(8)).sum();
    let header = header.with(SIZE, bytes as u64 + 8);
    out.extend_from_slice(&header.0);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&(WIDE | ALIGNED | 1).to_le_bytes());
    for (name, kind, data) in banks {
        out.extend_from_slice(name);
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(data);
        out.resize(out.len() + data.len().next_multiple_of(8) - data.len(), 0);
    }
}
