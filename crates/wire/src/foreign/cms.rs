//! CMS: FED fragments back to back in a file, FEROL blocks, and FED raw data (FRD). [`fed`], [`ferol`] and [`frd`] have the layouts.
//!
//! A bare fragment has its length only in its last word. The end of a fragment is therefore the first word that looks
//! like a trailer, states the length of the bytes before it, and either has the right CRC or is followed by a header.

use fed::{Ends, Header, Trailer, WORD_BYTES};

use super::headed::{frame, skip_to};
use super::{Announced, Describe, Enclosed, ForeignFormat, Inspector, MOST_FRAME_BYTES, Member, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Part, Search, Widths, Window};
use crate::frd::{self, EventHeader, FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, FrdError, Version};
use crate::message::FragmentFlags;
use crate::{fed, ferol, zeros};
use ropewalk_terms::Cause;

/// The first word of a fragment.
pub const HEADER: &[Place] = &[
    Place::little("more headers", 0, 8).bits(3, 1),
    Place::little("version", 0, 8).bits(4, 4),
    Place::little("source", 0, 8).bits(8, 12),
    Place::little("bunch crossing", 0, 8).bits(20, 12),
    Place::little("L1 id", 0, 8).bits(32, 24),
    Place::little("event type", 0, 8).bits(56, 4),
    Place::little("5", 0, 8).bits(60, 4),
];
/// The last word of a fragment.
pub const TRAILER: &[Place] = &[
    Place::little("more trailers", 0, 8).bits(3, 1),
    Place::little("TTS", 0, 8).bits(4, 4),
    Place::little("status", 0, 8).bits(8, 4),
    Place::little("CRC", 0, 8).bits(16, 16).hex(),
    Place::little("words", 0, 8).bits(32, 24),
    Place::little("10", 0, 8).bits(60, 4),
];
/// The header of a FEROL block.
pub const BLOCK_HEADER: &[Place] = &[
    Place::big("words", 0, 8).bits(0, 10),
    Place::big("last", 0, 8).bits(30, 1),
    Place::big("first", 0, 8).bits(31, 1),
    Place::big("packet", 0, 8).bits(32, 11),
    Place::big("signature", 0, 8).bits(48, 16).hex(),
    Place::big("event number", 8, 8).bits(0, 24),
    Place::big("source", 8, 8).bits(48, 12),
];

/// FED fragments back to back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FedFragments;

/// The role of a word in a stream.
enum End {
    /// It ends nothing.
    No,
    /// It ends the fragment at the front.
    OfFrame,
    /// It ends a good fragment that begins later: the bytes before that have lost their end.
    OfLater { start: usize },
    /// Unknown without the word behind it.
    Unknown,
}

impl FedFragments {
    /// Determines the role of the word before `end`.
    fn judge(&self, window: &(impl Window + ?Sized), word: [u8; WORD_BYTES], end: usize) -> End {
        let Ok(trailer) = Trailer::parse(word) else { return End::No };
        let length = trailer.length_in_words() as usize * WORD_BYTES;
        if trailer.more_trailers() || !(fed::MIN_BYTES..=end).contains(&length) {
            return End::No;
        }
        let start = end - length;
        let is_header = |at| window.array(at).map(|word| Header::parse(word).is_ok());
        let is_right = is_header(start) == Some(true) && self.checksum(&Part::new(window, start, length)) == Some(true);
        match (start, is_right) {
            (0, true) => End::OfFrame,
            (_, true) => End::OfLater { start },
            // A wrong checksum does not break the framing: the fragment ends here if another one begins behind it.
            (0, false) => match is_header(end) {
                Some(true) => End::OfFrame,
                Some(false) => End::No,
                None => End::Unknown,
            },
            (_, false) => End::No,
        }
    }
}

/// First and last word of a whole fragment.
fn ends(frame: &(impl Window + ?Sized)) -> Option<Ends> {
    let last = frame.array(frame.len().checked_sub(WORD_BYTES)?)?;
    Ends::parse(frame.array(0)?, last, frame.len()).ok()
}

impl Framing for FedFragments {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        let is_header = |word| Header::parse(word).is_ok();
        match window.array(0) {
            None => return Front::Needs { bytes: WORD_BYTES },
            Some(word) if !is_header(word) => return skip_to(window, search, WORD_BYTES, is_header),
            Some(_) => {}
        }
        let mut at = search.seen.max(WORD_BYTES);
        while let Some(word) = window.array(at) {
            search.seen = at;
            match self.judge(window, word, at + WORD_BYTES) {
                End::No => at += WORD_BYTES,
                End::OfFrame => return Front::Frame { bytes: at + WORD_BYTES },
                End::OfLater { start } => return search.skip(start, Cause::FramingLost),
                End::Unknown => return Front::Needs { bytes: at + 2 * WORD_BYTES },
            }
        }
        search.seen = at;
        match at {
            ..=MOST_FRAME_BYTES => Front::Needs { bytes: at + WORD_BYTES },
            _ => Front::Lost { cause: Cause::Oversize },
        }
    }

    /// Nothing follows the last fragment, so a fragment with a wrong checksum cannot be distinguished from wrong
    /// framing.
    fn front_at_end(&self, window: &(impl Window + ?Sized), _search: &mut Search) -> Option<Front> {
        ends(window).map(|_| Front::Frame { bytes: window.len() })
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let header = frame.array(0).and_then(|word| Header::parse(word).ok());
        let Some((header, _)) = header.zip(ends(frame)) else {
            return Fields { flags: FragmentFlags::MALFORMED, ..Fields::default() };
        };
        Fields {
            event: Some(header.level1_id().into()),
            source: Some(header.source().0),
            trigger_type: Some(header.event_type().into()),
            bunch_crossing: Some(header.bunch_crossing()),
            ..Fields::default()
        }
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        Some(ends(frame)?.check_crc(frame.pieces(0)).is_ok())
    }

    fn widths(&self) -> Widths {
        Widths { event: 24, ..Widths::default() }
    }
}

impl Describe for FedFragments {
    fn looks_like(&self, first: &[u8]) -> bool {
        // Whether a fragment ends within these bytes.
        matches!(self.front(first, &mut Search::default()), Front::Frame { .. })
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        to.kind("fragment");
        HEADER.iter().for_each(|place| place.tell(frame, to));
        let fragment = match fed::Fragment::parse(frame) {
            Ok(fragment) => fragment,
            Err(_) => return to.fault(0, "header, trailer and length do not belong together"),
        };
        let last = frame.len() - WORD_BYTES;
        for place in TRAILER {
            let number = place.read(&frame[last..]).unwrap_or_default();
            to.field(place.name(), last, WORD_BYTES, Value::Number(number));
        }
        to.part(format_args!("payload"), WORD_BYTES, fragment.payload().len());
    }
}

/// FEROL blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FerolBlocks;

fn block(window: &(impl Window + ?Sized)) -> Option<Result<ferol::BlockHeader, ferol::BlockError>> {
    Some(ferol::BlockHeader::parse(&window.array(0)?))
}

impl FerolBlocks {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match block(window) {
            None => Front::Needs { bytes: ferol::HEADER_BYTES },
            Some(Err(error)) => Front::Lost { cause: error.cause() },
            Some(Ok(header)) => super::headed::frame(window, header.block_bytes() as u64),
        }
    }
}

impl Framing for FerolBlocks {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        let header = block(frame).and_then(Result::ok);
        Fields {
            event: header.map(|header| header.event_number.into()),
            source: header.map(|header| header.source.0),
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 24, ..Widths::default() }
    }
}

impl Describe for FerolBlocks {
    fn looks_like(&self, first: &[u8]) -> bool {
        matches!(block(first), Some(Ok(_)))
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        to.kind("block");
        BLOCK_HEADER.iter().for_each(|place| place.tell(frame, to));
        to.part(format_args!("payload"), ferol::HEADER_BYTES, frame.len().saturating_sub(ferol::HEADER_BYTES));
    }

    fn goes_on(&self, frame: &[u8]) -> bool {
        matches!(block(frame), Some(Ok(header)) if !header.first)
    }
}

// FED raw data, the files of the file-based high-level trigger; `crate::frd` has the layout.
//
// A file's header is a separate frame. Events have no marker: after damage the next one cannot be found.

/// The header of a file.
pub const FRD_FILE_HEADER: &[Place] = &[
    Place::big("magic", 0, 8).hex(),
    Place::little("header bytes", 8, 2),
    Place::little("events", 10, 4),
    Place::little("file bytes", 14, 8),
];
const FLAGS: Place = Place::little("flags", 0, 4).bits(16, 16).hex();
const VERSION: Place = Place::little("version", 0, 4).bits(0, 16);
const RUN: Place = Place::little("run", 4, 4);
const LUMISECTION: Place = Place::little("lumisection", 8, 4);
const EVENT: Place = Place::little("event", 12, 4);
/// The header of an event of version 3.
pub const FRD_VERSION_3: &[Place] = &[
    VERSION,
    RUN,
    LUMISECTION,
    EVENT,
    Place::little("data bytes", 16, 4),
    Place::little("padding bytes", 20, 4),
    Place::little("Adler-32", 24, 4).hex(),
];
/// The header of an event of version 4.
pub const FRD_VERSION_4: &[Place] = &[
    VERSION,
    RUN,
    LUMISECTION,
    Place::little("event", 12, 8),
    Place::little("data bytes", 20, 4),
    Place::little("padding bytes", 24, 4),
    Place::little("Adler-32", 28, 4).hex(),
];
/// The header of an event of version 5 or 6.
pub const FRD_VERSION_5: &[Place] = &[
    VERSION,
    FLAGS,
    RUN,
    LUMISECTION,
    EVENT,
    Place::little("data bytes", 16, 4),
    Place::little("CRC-32C", 20, 4).hex(),
];

/// Events in a file, and its header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Frd;

/// Whether a file's header begins here; `None` if more bytes are needed.
pub(super) fn begins_a_file(window: &(impl Window + ?Sized)) -> Option<bool> {
    window.array(0).map(|magic: [u8; 4]| magic == FILE_MAGIC)
}

fn file_header(window: &(impl Window + ?Sized)) -> Option<Result<FileHeader, FrdError>> {
    Some(FileHeader::parse(&window.array(0)?))
}

impl Frd {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        if begins_a_file(window) == Some(true) {
            return match file_header(window) {
                None => Front::Needs { bytes: FILE_HEADER_BYTES },
                Some(Ok(_)) => Front::Frame { bytes: FILE_HEADER_BYTES },
                Some(Err(_)) => Front::Lost { cause: Cause::FramingLost },
            };
        }
        match EventHeader::read(window) {
            Ok(header) => frame(window, header.event_bytes()),
            Err(FrdError::Short { needed }) => Front::Needs { bytes: needed },
            Err(_) => Front::Lost { cause: Cause::FramingLost },
        }
    }
}

impl Framing for Frd {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        if begins_a_file(frame) == Some(true) {
            return Fields::default();
        }
        match EventHeader::read(frame) {
            Ok(header) => Fields { event: Some(header.event), run: Some(header.run), ..Fields::default() },
            Err(_) => Fields { flags: FragmentFlags::MALFORMED, ..Fields::default() },
        }
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        EventHeader::read(frame).ok().map(|header| header.is_right(frame))
    }

    fn widths(&self) -> Widths {
        Widths { event: 32, ..Widths::default() }
    }
}

impl Describe for Frd {
    fn looks_like(&self, first: &[u8]) -> bool {
        if begins_a_file(first) == Some(true) {
            return matches!(file_header(first), Some(Ok(_)));
        }
        // An event has no special beginning, but its data begin with a FED header, and end with a trailer.
        EventHeader::read(first).is_ok_and(|header| {
            let data = Part::new(first, header.data().start, header.data_bytes as usize);
            let is_whole = data.len() == header.data_bytes as usize;
            let last = data.len().checked_sub(fed::WORD_BYTES).and_then(|last| data.array(last));
            data.array(0).is_some_and(|word| fed::Header::parse(word).is_ok())
                && (!is_whole || last.is_some_and(|word| fed::Trailer::parse(word).is_ok()))
        })
    }

    fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
        if begins_a_file(frame) == Some(true) {
            to.kind("file header");
            return FRD_FILE_HEADER.iter().for_each(|place| place.tell(frame, to));
        }
        to.kind("event");
        let Ok(event) = frd::Event::parse(frame) else {
            return to.fault(0, "no event of a version that is known, or less than a whole one");
        };
        let places = match event.header().version {
            Version::V3 => FRD_VERSION_3,
            Version::V4 => FRD_VERSION_4,
            Version::V5 | Version::V6 => FRD_VERSION_5,
        };
        places.iter().for_each(|place| place.tell(frame, to));
        let data = event.header().data();
        match event.fragments() {
            None => to.fault(data.start, "the data do not fall apart into FED fragments"),
            Some(fragments) => fragments.iter().for_each(|fragment| {
                to.part(format_args!("FED fragment"), data.start + fragment.start, fragment.len());
            }),
        }
        if !event.padding().is_empty() {
            to.part(format_args!("padding"), data.end, event.padding().len());
        }
    }

    fn announces(&self, frame: &[u8]) -> Option<Announced> {
        let header = file_header(frame)?.ok()?;
        Some(Announced { frames: header.events.into(), bytes: header.file_bytes })
    }
}

/// The fragments in an event; `None` if the frame is not an event.
pub(super) fn enclosed(frame: &[u8]) -> Option<Enclosed> {
    let event = frd::Event::parse(frame).ok()?;
    let data = event.header().data();
    let Some(fragments) = event.fragments() else { return Some(Enclosed::broken(ForeignFormat::Frd, data)) };
    let member = |fragment: core::ops::Range<usize>| {
        let place = data.start + fragment.start..data.start + fragment.end;
        let header = fed::Header::parse(*frame.get(place.clone())?.first_chunk()?).ok()?;
        Some(Member { source: header.source(), format: ForeignFormat::Fed, place })
    };
    let members = fragments.into_iter().map(member).collect::<Option<_>>()?;
    Some(Enclosed { data, members, is_broken: false })
}
