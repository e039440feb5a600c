//! DUNE fragments: one data source's answer to one trigger (daqdataformats, `FragmentHeader` version 4, `SourceID` version 2).
//!
//! The header has 72 bytes; the size counts them. Version 5 has the same fields and uses the unused half-word for the
//! detector's id (from memory). DUNE itself stores fragments in HDF5 files; this module reads fragments back to back,
//! as they are sent. Times count 16 ns (62.5 MHz) since 1970.

use super::headed::{frame, skip_to};
use super::{Describe, Header, Inspector, MOST_FRAME_BYTES, Place};
use crate::framing::{Fields, Framing, Front, Search, Tick, Widths, Window};
use crate::message::FragmentFlags;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 72;
/// The marker of every fragment.
pub const MARKER: Place = Place::little("marker", 0, 4).hex();
/// The header's version.
pub const VERSION: Place = Place::little("version", 4, 4);
/// Bytes of the fragment, header included.
pub const SIZE: Place = Place::little("bytes", 8, 8);
/// Number of the trigger.
pub const TRIGGER_NUMBER: Place = Place::little("trigger number", 16, 8);
/// Time of the trigger.
pub const TRIGGER_TIME: Place = Place::little("trigger time", 24, 8);
/// The first tick of the data.
pub const WINDOW_BEGIN: Place = Place::little("window begin", 32, 8);
/// The tick behind the data.
pub const WINDOW_END: Place = Place::little("window end", 40, 8);
/// The run.
pub const RUN: Place = Place::little("run", 48, 4);
/// The errors.
pub const ERROR_BITS: Place = Place::little("error bits", 52, 4).hex();
/// The type of the data.
pub const TYPE: Place = Place::little("type", 56, 4);
/// Index in a long trigger record.
pub const SEQUENCE: Place = Place::little("sequence", 60, 2);
/// The detector, from version 5 on.
pub const DETECTOR: Place = Place::little("detector", 62, 2);
/// The version of the source's id.
pub const SOURCE_VERSION: Place = Place::little("source id version", 64, 2);
/// 1 readout, 2 hardware signals, 3 trigger, 4 event builder.
pub const SUBSYSTEM: Place = Place::little("subsystem", 66, 2);
/// The source of the subsystem.
pub const SOURCE: Place = Place::little("source", 68, 4);
/// The header.
pub const HEADER: &[Place] = &[
    MARKER,
    VERSION,
    SIZE,
    TRIGGER_NUMBER,
    TRIGGER_TIME,
    WINDOW_BEGIN,
    WINDOW_END,
    RUN,
    ERROR_BITS,
    TYPE,
    SEQUENCE,
    DETECTOR,
    SOURCE_VERSION,
    SUBSYSTEM,
    SOURCE,
];

const MARKER_VALUE: u32 = 0x1111_2222;

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dune;

impl Framing for Dune {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        let is_marker = |bytes| u32::from_le_bytes(bytes) == MARKER_VALUE;
        match (window.array(0), SIZE.read(window)) {
            (Some(bytes), _) if !is_marker(bytes) => skip_to(window, search, 1, is_marker),
            (_, None) => Front::Needs { bytes: SIZE.offset() + 8 },
            // An impossible length is as good as no marker.
            (_, Some(bytes)) if !(HEADER_BYTES as u64..=MOST_FRAME_BYTES as u64).contains(&bytes) => {
                skip_to(window, search, 1, is_marker)
            }
            (_, Some(bytes)) => frame(window, bytes),
        }
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let is_good = ERROR_BITS.read(frame) == Some(0);
        Fields {
            event: TRIGGER_NUMBER.read(frame),
            time: TRIGGER_TIME.read(frame),
            source: SOURCE.read(frame).map(|source| source as u32),
            trigger_type: TYPE.read(frame).map(|kind| kind as u16),
            run: RUN.read(frame).map(|run| run as u32),
            place: SEQUENCE.read(frame).map(|place| place as u32),
            flags: if is_good { FragmentFlags::default() } else { FragmentFlags::MALFORMED },
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths::default()
    }

    fn tick(&self) -> Tick {
        Tick::of_attoseconds(16_000_000_000)
    }
}

impl Describe for Dune {
    fn looks_like(&self, first: &[u8]) -> bool {
        MARKER.read(first) == Some(MARKER_VALUE.into()) && matches!(VERSION.read(first), Some(4 | 5))
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        to.kind(match SUBSYSTEM.read(frame) {
            Some(1) => "readout",
            Some(2) => "hardware signals",
            Some(3) => "trigger",
            Some(4) => "event builder",
            _ => "other",
        });
        HEADER.iter().for_each(|place| place.tell(frame, to));
        if ERROR_BITS.read(frame) != Some(0) {
            to.fault(ERROR_BITS.offset(), "the sender set error bits");
        }
        to.part(format_args!("payload"), HEADER_BYTES, frame.len().saturating_sub(HEADER_BYTES));
    }
}

/// Appends a fragment; marker, version 4 and size are set.
pub fn encode(header: Header<HEADER_BYTES>, payload: &[u8], out: &mut Vec<u8>) {
    let bytes = (HEADER_BYTES + payload.len()) as u64;
    let header = header.with(MARKER, MARKER_VALUE.into()).with(VERSION, 4).with(SIZE, bytes).with(SOURCE_VERSION, 2);
    out.extend_from_slice(&header.0);
    out.extend_from_slice(payload);
}
