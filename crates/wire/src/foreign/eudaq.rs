//! EUDAQ2 events as in its native files (`Event.cc`, `Serializer.hh`). They have no length, so that an event is parsed
//! through to its end.
//!
//! ```text
//!  event   type | version | flags | stream | run | event | trigger | extend word (u32 each)
//!          begin (u64) | end (u64) | description (text) | tags | blocks | sub-events (u32), then each as an event
//!  text    length (u32), then its bytes
//!  tags    how many (u32), then each: key (text), value (text)
//!  blocks  how many (u32), then each: id (u32), length (u32), bytes
//! ```
//! Little-endian. The type is a hash of the class's name ("RawEvent"). Sub-events may have sub-events: at most
//! [`MOST_DEPTH`] levels here, while EUDAQ2 has no limit.

use super::{Describe, Header, Inspector, MOST_FRAME_BYTES, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes of an event before its description.
pub const HEADER_BYTES: usize = 48;
/// Maximum nesting depth of events.
pub const MOST_DEPTH: usize = 8;
/// The hash of the class's name.
pub const TYPE: Place = Place::little("type", 0, 4).hex();
/// The version, 2.
pub const VERSION: Place = Place::little("version", 4, 4);
/// 1 begin of run, 2 end of run, 4 fake, 8 packet, 16 has a trigger number, 32 has times.
pub const FLAGS: Place = Place::little("flags", 8, 4).hex();
/// The stream (device).
pub const STREAM: Place = Place::little("stream", 12, 4);
/// The run.
pub const RUN: Place = Place::little("run", 16, 4);
/// Index of the event in the stream.
pub const EVENT: Place = Place::little("event", 20, 4);
/// The trigger number, if the flags say so.
pub const TRIGGER: Place = Place::little("trigger", 24, 4);
/// The hash of the description.
pub const EXTEND: Place = Place::little("extend word", 28, 4).hex();
/// Time of its beginning, if the flags say so.
pub const BEGIN: Place = Place::little("begin", 32, 8);
/// Time of its end.
pub const END: Place = Place::little("end", 40, 8);
/// The header.
pub const HEADER: &[Place] = &[TYPE, VERSION, FLAGS, STREAM, RUN, EVENT, TRIGGER, EXTEND, BEGIN, END];

/// The description of an event; empty if the event is cut off before it.
pub(crate) fn description(event: &[u8]) -> &[u8] {
    let length = event.get(HEADER_BYTES..).and_then(|rest| rest.first_chunk());
    let length = length.map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let begin = HEADER_BYTES + 4;
    event.get(begin..).and_then(|rest| rest.get(..length)).unwrap_or_default()
}

const FLAG_BEGIN: u64 = 1;
const FLAG_END: u64 = 2;
const FLAG_TIMES: u64 = 32;

/// The hash by which EUDAQ2 names types and descriptions.
pub const fn hash(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let (mut hash, mut left) = (5381_u32, bytes.len());
    while left > 0 {
        left -= 1;
        hash = hash.wrapping_mul(33) ^ bytes[left] as u32;
    }
    hash
}

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Eudaq;

/// Reason why a walk ended before the event did.
enum Stop {
    /// This many bytes are needed.
    Needs(usize),
    /// It cannot be an event.
    Wrong(Cause),
}

/// A walk through an event, from front to end.
struct Walk<'a, W: ?Sized> {
    window: &'a W,
    at: usize,
}

impl<W: Window + ?Sized> Walk<'_, W> {
    fn skip(&mut self, bytes: usize) -> Result<usize, Stop> {
        let start = self.at;
        let end = start.saturating_add(bytes);
        if end > MOST_FRAME_BYTES {
            return Err(Stop::Wrong(Cause::Oversize));
        }
        if end > self.window.len() {
            return Err(Stop::Needs(end));
        }
        self.at = end;
        Ok(start)
    }

    fn number(&mut self) -> Result<usize, Stop> {
        let at = self.skip(4)?;
        self.window.array(at).map(|bytes| u32::from_le_bytes(bytes) as usize).ok_or(Stop::Needs(at + 4))
    }

    /// Reads a length and that many bytes; returns their range.
    fn bytes(&mut self) -> Result<core::ops::Range<usize>, Stop> {
        let length = self.number()?;
        let start = self.skip(length)?;
        Ok(start..start + length)
    }

    /// Reads an event with all its contents. Reports its parts to `tell`.
    fn event(&mut self, depth: usize, tell: &mut impl FnMut(Item)) -> Result<(), Stop> {
        if depth > MOST_DEPTH {
            return Err(Stop::Wrong(Cause::FramingLost));
        }
        tell(Item::Event { at: self.skip(HEADER_BYTES)?, depth });
        tell(Item::Description(self.bytes()?));
        for _ in 0..self.number()? {
            tell(Item::Tag { key: self.bytes()?, value: self.bytes()? });
        }
        for _ in 0..self.number()? {
            let id = self.number()?;
            tell(Item::Block { id, data: self.bytes()? });
        }
        for _ in 0..self.number()? {
            self.event(depth + 1, tell)?;
        }
        Ok(())
    }
}

/// A part of an event.
enum Item {
    Event { at: usize, depth: usize },
    Description(core::ops::Range<usize>),
    Tag { key: core::ops::Range<usize>, value: core::ops::Range<usize> },
    Block { id: usize, data: core::ops::Range<usize> },
}

impl Eudaq {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        let mut walk = Walk { window, at: 0 };
        match walk.event(0, &mut |_| {}) {
            Ok(()) => Front::Frame { bytes: walk.at },
            Err(Stop::Needs(bytes)) => Front::Needs { bytes },
            Err(Stop::Wrong(cause)) => Front::Lost { cause },
        }
    }
}

impl Framing for Eudaq {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let has_times = FLAGS.read(frame).is_some_and(|flags| flags & FLAG_TIMES != 0);
        Fields {
            event: EVENT.read(frame),
            time: BEGIN.read(frame).filter(|_| has_times),
            source: STREAM.read(frame).map(|stream| stream as u32),
            run: RUN.read(frame).map(|run| run as u32),
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 32, ..Widths::default() }
    }
}

impl Describe for Eudaq {
    fn looks_like(&self, first: &[u8]) -> bool {
        let known = [hash("RawEvent"), hash("RawDataEvent"), hash("Event")].map(|hash| Some(hash.into()));
        known.contains(&TYPE.read(first)) && matches!(VERSION.read(first), Some(1..=3))
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        let flags = FLAGS.read(frame).unwrap_or_default();
        to.kind(if flags & FLAG_BEGIN != 0 {
            "begin of run"
        } else if flags & FLAG_END != 0 {
            "end of run"
        } else {
            "event"
        });
        HEADER.iter().for_each(|place| place.tell(frame, to));
        let text = |range: core::ops::Range<usize>| String::from_utf8_lossy(&frame[range]);
        let mut walk = Walk { window: frame, at: 0 };
        let walked = walk.event(0, &mut |item| match item {
            Item::Event { depth: 0, .. } => {}
            Item::Event { at, .. } => to.part(format_args!("sub-event"), at, HEADER_BYTES),
            Item::Description(range) => to.field("description", range.start, range.len(), Value::Text(&text(range))),
            Item::Tag { key, value } => to.field(&text(key), value.start, value.len(), Value::Text(&text(value))),
            Item::Block { id, data } => to.part(format_args!("block {id}"), data.start, data.len()),
        });
        if walked.is_err() || walk.at != frame.len() {
            to.fault(walk.at, "the event does not end where its bytes do");
        }
    }
}

/// An event to be encoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event<'a> {
    /// The header; type and version are set.
    pub header: Header<HEADER_BYTES>,
    /// The description.
    pub description: &'a str,
    /// Keys with their values.
    pub tags: &'a [(&'a str, &'a str)],
    /// Data with their ids.
    pub blocks: &'a [(u32, &'a [u8])],
    /// The nested events.
    pub sub_events: Vec<Event<'a>>,
}

/// Appends an event.
pub fn encode(event: &Event<'_>, out: &mut Vec<u8>) {
    fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    let header = event.header.with(TYPE, hash("RawEvent").into()).with(VERSION, 2);
    out.extend_from_slice(&header.with(EXTEND, hash(event.description).into()).0);
    bytes(event.description.as_bytes(), out);
    out.extend_from_slice(&(event.tags.len() as u32).to_le_bytes());
    for (key, value) in event.tags {
        bytes(key.as_bytes(), out);
        bytes(value.as_bytes(), out);
    }
    out.extend_from_slice(&(event.blocks.len() as u32).to_le_bytes());
    for (id, data) in event.blocks {
        out.extend_from_slice(&id.to_le_bytes());
        bytes(data, out);
    }
    out.extend_from_slice(&(event.sub_events.len() as u32).to_le_bytes());
    event.sub_events.iter().for_each(|event| encode(event, out));
}
