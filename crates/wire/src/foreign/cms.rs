//! CMS: FED fragments back to back in a file, and FEROL blocks. Their layouts stand in [`fed`] and [`ferol`].
//!
//! A bare fragment says how long it is in its last word alone. So its end is searched: the first word that looks like a
//! trailer and states the length that lies before it, with the right CRC, or with a header behind it.

use super::search::skip_to;
use super::{Describe, Inspector, MOST_FRAME_BYTES, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, Part, Search, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use crate::{fed, ferol};
use fed::{Ends, Header, Trailer, WORD_BYTES};
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

/// What a word of a stream ends.
enum End {
    /// Nothing.
    No,
    /// The fragment at the front.
    OfFrame,
    /// A good fragment that begins later: what is before it has lost its end.
    OfLater { start: usize },
    /// That cannot be said without the word behind it.
    Unknown,
}

impl FedFragments {
    /// What the word before `end` ends.
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
            // A wrong checksum is none of the framing: the fragment ends here if another one begins behind it.
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

    /// Nothing can begin behind the last fragment that would show that a wrong checksum is none of the framing.
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
        // A fragment that ends within these bytes.
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
            Some(Ok(header)) => super::search::frame(window, header.block_bytes() as u64),
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
