//! artdaq fragments (artdaq-core, `RawFragmentHeader` version 2): 64-bit words, of which the first four are the header.
//!
//! The length counts words, header and metadata included. Types below 225 belong to the experiment, those from 225 on
//! to the system. Versions 0 and 1 have a header of three words and are not read.

use super::headed::frame;
use super::{Describe, Header, Inspector, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// Words of the fragment.
pub const WORDS: Place = Place::little("words", 0, 4);
/// The header's version.
pub const VERSION: Place = Place::little("version", 4, 2);
/// The type of the data.
pub const TYPE: Place = Place::little("type", 6, 1);
/// Words of metadata behind the header.
pub const METADATA_WORDS: Place = Place::little("metadata words", 7, 1);
/// The event number.
pub const SEQUENCE: Place = Place::little("sequence id", 8, 8).bits(0, 48);
/// The piece of hardware.
pub const FRAGMENT: Place = Place::little("fragment id", 8, 8).bits(48, 16);
/// The experiment's clock.
pub const TIMESTAMP: Place = Place::little("timestamp", 16, 8);
/// Whether it passed through the system correctly.
pub const VALID: Place = Place::little("valid", 24, 8).bits(0, 1);
/// Whether it has all data of its hardware for the event.
pub const COMPLETE: Place = Place::little("complete", 24, 8).bits(1, 1);
/// Time of the last access: nanoseconds.
pub const ACCESS_NANOSECONDS: Place = Place::little("access time, ns", 24, 8).bits(2, 30);
/// Time of the last access: seconds since 1970.
pub const ACCESS_SECONDS: Place = Place::little("access time, s", 24, 8).bits(32, 32);
/// The header.
pub const HEADER: &[Place] = &[
    WORDS,
    VERSION,
    TYPE,
    METADATA_WORDS,
    SEQUENCE,
    FRAGMENT,
    TIMESTAMP,
    VALID,
    COMPLETE,
    ACCESS_NANOSECONDS,
    ACCESS_SECONDS,
];

const VERSION_VALUE: u64 = 2;

/// The system's own types, from 225 on.
const SYSTEM_TYPES: [&str; 8] =
    ["end of data", "data", "init", "end of run", "end of subrun", "shutdown", "empty", "container"];

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Artdaq;

impl Artdaq {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        let fields = (WORDS.read(window), VERSION.read(window), METADATA_WORDS.read(window));
        let (Some(words), Some(version), Some(metadata)) = fields else { return Front::Needs { bytes: WORD_BYTES } };
        if version != VERSION_VALUE || words < 4 + metadata {
            return Front::Lost { cause: Cause::FramingLost };
        }
        frame(window, words * WORD_BYTES as u64)
    }
}

impl Framing for Artdaq {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let is_good = VALID.read(frame) == Some(1) && COMPLETE.read(frame) == Some(1);
        Fields {
            event: SEQUENCE.read(frame),
            time: TIMESTAMP.read(frame),
            source: FRAGMENT.read(frame).map(|source| source as u32),
            trigger_type: TYPE.read(frame).map(|kind| kind as u16),
            flags: if is_good { FragmentFlags::default() } else { FragmentFlags::MALFORMED },
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 48, ..Widths::default() }
    }
}

impl Describe for Artdaq {
    fn looks_like(&self, first: &[u8]) -> bool {
        let (words, metadata) = (WORDS.read(first).unwrap_or_default(), METADATA_WORDS.read(first).unwrap_or_default());
        VERSION.read(first) == Some(VERSION_VALUE)
            && words >= 4 + metadata
            && words * 8 <= super::MOST_FRAME_BYTES as u64
            && TYPE.read(first) > Some(0)
            && COMPLETE.read(first).is_some()
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        let kind = TYPE.read(frame).unwrap_or_default() as usize;
        let system = kind.checked_sub(225).and_then(|index| SYSTEM_TYPES.get(index));
        to.kind(system.copied().unwrap_or("fragment"));
        HEADER.iter().for_each(|place| place.tell(frame, to));
        if let Some(name) = system {
            to.field("type's name", TYPE.offset(), 1, Value::Text(name));
        }
        for (place, fault) in [(VALID, "not marked valid"), (COMPLETE, "not marked complete")] {
            if place.read(frame) != Some(1) {
                to.fault(place.offset(), fault);
            }
        }
        let metadata = METADATA_WORDS.read(frame).unwrap_or_default() as usize * WORD_BYTES;
        if metadata > 0 {
            to.part(format_args!("metadata"), HEADER_BYTES, metadata);
        }
        to.part(format_args!("payload"), HEADER_BYTES + metadata, frame.len().saturating_sub(HEADER_BYTES + metadata));
    }
}

/// Appends a fragment, its payload padded to whole words; length, version and metadata words are set. Metadata beyond
/// 255 words are cut off.
pub fn encode(header: Header<HEADER_BYTES>, metadata: &[[u8; 8]], payload: &[u8], out: &mut Vec<u8>) {
    let metadata = &metadata[..metadata.len().min(255)];
    let words = 4 + metadata.len() + payload.len().div_ceil(WORD_BYTES);
    let header = header.with(WORDS, words as u64).with(VERSION, VERSION_VALUE);
    out.extend_from_slice(&header.with(METADATA_WORDS, metadata.len() as u64).0);
    out.extend_from_slice(metadata.as_flattened());
    out.extend_from_slice(payload);
    out.resize(out.len() + payload.len().next_multiple_of(WORD_BYTES) - payload.len(), 0);
}
