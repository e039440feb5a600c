//! NSCLDAQ ring items, version 11 (`DataFormat.h`): the items that readout programs put into rings, and that rings put
//! into event files.
//!
//! ```text
//!  item         bytes of the item (u32) | type (u32) | bytes of the body header, 0 or 20 (u32)
//!  body header  those 4, then timestamp (u64) | source (u32) | barrier (u32)
//!  state (1-5)  run (u32) | seconds since its begin (u32) | seconds since 1970 (u32) | divisor (u32) | title
//!  format (12)  major (u16) | minor (u16)
//!  count (31)   seconds since the begin (u32) | divisor (u32) | seconds since 1970 (u32) | events so far (u64)
//! ```
//! Little-endian here; machines of the other order write theirs. Version 12 writes 4 for no body header. A physics item
//! has no event number; the contents that an event builder put into one are not parsed.

use super::headed::frame;
use super::{Describe, Header, Inspector, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Search, Window};
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes before the body header.
const HEAD_BYTES: usize = 8;
/// Bytes of an item's header without body header.
pub const HEADER_BYTES: usize = 12;
/// Bytes of a body header.
const BODY_HEADER_BYTES: u64 = 20;
/// Bytes of the item.
pub const SIZE: Place = Place::little("bytes", 0, 4);
/// Its type.
pub const TYPE: Place = Place::little("type", 4, 4);
/// Bytes of the body header, 0 for none.
pub const BODY_HEADER: Place = Place::little("body header bytes", 8, 4);
/// The source's clock.
pub const TIMESTAMP: Place = Place::little("timestamp", 12, 8);
/// The source of the item.
pub const SOURCE: Place = Place::little("source", 20, 4);
/// Its synchronisation barrier.
pub const BARRIER: Place = Place::little("barrier", 24, 4);
/// The header, with a body header.
pub const HEADER: &[Place] = &[SIZE, TYPE, BODY_HEADER, TIMESTAMP, SOURCE, BARRIER];

/// The type of a physics event.
pub const PHYSICS: u32 = 30;
/// The type of the item that begins a ring.
pub const FORMAT: u32 = 12;

const fn kind_name(kind: u32) -> &'static str {
    match kind {
        1 => "begin of run",
        2 => "end of run",
        3 => "pause",
        4 => "resume",
        5 => "abnormal end of run",
        10 => "packet types",
        11 => "monitored variables",
        FORMAT => "ring format",
        20 => "scalers",
        PHYSICS => "physics",
        31 => "physics count",
        40 => "fragment",
        41 => "fragment of unknown payload",
        42 => "glom information",
        0x8000.. => "user",
        _ => "unknown type",
    }
}

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Nscldaq;

/// Bytes of header and body header of a whole item.
fn body_at(item: &[u8]) -> usize {
    let bytes = BODY_HEADER.read(item).unwrap_or_default() as usize;
    // The body header's size includes itself, unless it is 0.
    if bytes == 0 { HEADER_BYTES } else { HEAD_BYTES.saturating_add(bytes) }
}

fn has_body_header(item: &(impl Window + ?Sized)) -> bool {
    BODY_HEADER.read(item) >= Some(BODY_HEADER_BYTES)
}

impl Nscldaq {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match SIZE.read(window) {
            None => Front::Needs { bytes: HEADER_BYTES },
            Some(bytes) if bytes < HEADER_BYTES as u64 => Front::Lost { cause: Cause::FramingLost },
            Some(bytes) => frame(window, bytes),
        }
    }
}

impl Framing for Nscldaq {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, item: &(impl Window + ?Sized)) -> Fields {
        let stamped = has_body_header(item);
        Fields {
            time: TIMESTAMP.read(item).filter(|_| stamped),
            source: SOURCE.read(item).filter(|_| stamped).map(|source| source as u32),
            trigger_type: TYPE.read(item).map(|kind| kind as u16),
            ..Fields::default()
        }
    }
}

impl Describe for Nscldaq {
    fn looks_like(&self, first: &[u8]) -> bool {
        // Whether a file begins like this: with an item of a known type, whose body header has a known size.
        let (size, kind) = (SIZE.read(first).unwrap_or_default(), TYPE.read(first).unwrap_or_default() as u32);
        let body_header = BODY_HEADER.read(first);
        (HEADER_BYTES as u64..1 << 24).contains(&size)
            && kind < 0x8000
            && kind_name(kind) != "unknown type"
            && matches!(body_header, Some(0 | 4 | BODY_HEADER_BYTES))
    }

    fn describe(&self, item: &[u8], to: &mut dyn Inspector) {
        let kind = TYPE.read(item).unwrap_or_default() as u32;
        to.kind(kind_name(kind));
        let shown = if has_body_header(item) { HEADER } else { &HEADER[..3] };
        shown.iter().for_each(|place| place.tell(item, to));
        let at = body_at(item);
        let Some(body) = item.get(at..) else {
            return to.fault(BODY_HEADER.offset(), "the body header goes beyond the item");
        };
        let mut number = |name, offset, bytes| {
            if let Some(number) = Place::little(name, offset, bytes).read(body) {
                to.field(name, at + offset, bytes, Value::Number(number));
            }
        };
        match kind {
            1..=5 => {
                number("run", 0, 4);
                number("seconds since the begin", 4, 4);
                number("seconds since 1970", 8, 4);
                number("divisor", 12, 4);
                let title = body.get(16..).unwrap_or_default().split(|&byte| byte == 0).next().unwrap_or_default();
                to.field("title", at + 16, title.len(), Value::Text(&String::from_utf8_lossy(title)));
            }
            FORMAT => {
                number("major", 0, 2);
                number("minor", 2, 2);
            }
            31 => {
                number("seconds since the begin", 0, 4);
                number("divisor", 4, 4);
                number("seconds since 1970", 8, 4);
                number("events", 12, 8);
            }
            _ => {}
        }
        to.part(format_args!("body"), at, body.len());
    }
}

/// Appends an item, with a body header if `header` states one, that is a size of 20.
pub fn encode(header: Header<28>, body: &[u8], out: &mut Vec<u8>) {
    let bytes = if BODY_HEADER.read(&header.0[..]) == Some(BODY_HEADER_BYTES) { 28 } else { HEADER_BYTES };
    let header = header.with(SIZE, (bytes + body.len()) as u64);
    out.extend_from_slice(&header.0[..bytes]);
    out.extend_from_slice(body);
}
