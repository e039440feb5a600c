//! CMS: FED raw data, the files of the file-based high-level trigger. Their layout stands in [`frd`].
//!
//! A file's header is a frame of its own. Nothing marks an event: behind damage nobody knows where the next one begins.

use super::search::frame;
use super::{Announced, Describe, Enclosed, ForeignFormat, Inspector, Member, Place, headed};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::frd::{self, EventHeader, FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, FrdError, Version};
use crate::message::FragmentFlags;
use crate::zeros;
use crate::{fed, framing::Part};
use ropewalk_terms::Cause;

/// The header of a file.
pub const FILE_HEADER: &[Place] = &[
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
pub const VERSION_3: &[Place] = &[
    VERSION,
    RUN,
    LUMISECTION,
    EVENT,
    Place::little("data bytes", 16, 4),
    Place::little("padding bytes", 20, 4),
    Place::little("Adler-32", 24, 4).hex(),
];
/// The header of an event of version 4.
pub const VERSION_4: &[Place] = &[
    VERSION,
    RUN,
    LUMISECTION,
    Place::little("event", 12, 8),
    Place::little("data bytes", 20, 4),
    Place::little("padding bytes", 24, 4),
    Place::little("Adler-32", 28, 4).hex(),
];
/// The header of an event of version 5 or 6.
pub const VERSION_5: &[Place] = &[
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

/// Whether a file's header begins here; none where that takes more bytes.
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
        // An event begins with nothing special, but its data do with a FED header, and end with a trailer.
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
            return FILE_HEADER.iter().for_each(|place| place.tell(frame, to));
        }
        to.kind("event");
        let Ok(event) = frd::Event::parse(frame) else {
            return to.fault(0, "no event of a version that is known, or less than a whole one");
        };
        let places = match event.header().version {
            Version::V3 => VERSION_3,
            Version::V4 => VERSION_4,
            Version::V5 | Version::V6 => VERSION_5,
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

/// What an event encloses; nothing where the frame is none.
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
