//! Events of CAEN digitizers of the families 720 to 751 with waveform firmware (user manual UM3148, "Event Structure"):
//! the output of `CAEN_DGTZ_ReadData`, which is usually written unchanged.
//!
//! ```text
//!  header  0b1010 (4 bits) | words of the event (28)
//!          board id (5) | board fail (1) | reserved (1) | event format (1) | trigger options (16) | channels 0-7 (8)
//!          channels 8-15 (8) | event counter (24)
//!          trigger time tag (32): 31 bits, and a flag that they have wrapped
//!  data    the samples of each channel in the mask, one after the other, the same number for each
//! ```
//! Words of 32 bits, little-endian. The mask names groups of channels in families whose channels share a memory (740, 742).
//! Samples of up to 14 bits never look like the first word of a header, so a stream is resumed behind damage.

use super::headed::frame;
use super::{Describe, Header, Inspector, MOST_FRAME_BYTES, Place, headed};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
const WORD_BYTES: usize = 4;
/// The four bits that begin an event.
pub const MARKER: Place = Place::little("marker", 0, 4).bits(28, 4).hex();
/// Words of the event, the header included.
pub const WORDS: Place = Place::little("words", 0, 4).bits(0, 28);
/// The board: its slot, or the value written to its register.
pub const BOARD: Place = Place::little("board id", 4, 4).bits(27, 5);
/// Whether the board has a fault, for example a clock that is not locked.
pub const BOARD_FAIL: Place = Place::little("board fail", 4, 4).bits(26, 1);
/// 1 for zero suppression.
pub const EVENT_FORMAT: Place = Place::little("event format", 4, 4).bits(24, 1);
/// The cause of the trigger, or the upper 16 bits of the time, depending on the board's settings.
pub const TRIGGER_OPTIONS: Place = Place::little("trigger options", 4, 4).bits(8, 16).hex();
/// The channels 0 to 7, or groups, in the event.
pub const CHANNELS: Place = Place::little("channels 0-7", 4, 4).bits(0, 8).hex();
/// The channels 8 to 15 in the event.
pub const MORE_CHANNELS: Place = Place::little("channels 8-15", 8, 4).bits(24, 8).hex();
/// Increases by one for each event.
pub const EVENT: Place = Place::little("event counter", 8, 4).bits(0, 24);
/// The trigger's time, in the board's own ticks.
pub const TIME: Place = Place::little("trigger time tag", 12, 4).bits(0, 31);
/// Whether the time has wrapped.
pub const WRAPPED: Place = Place::little("time has wrapped", 12, 4).bits(31, 1);
/// The header.
pub const HEADER: &[Place] =
    &[WORDS, MARKER, CHANNELS, TRIGGER_OPTIONS, EVENT_FORMAT, BOARD_FAIL, BOARD, EVENT, MORE_CHANNELS, TIME, WRAPPED];

const MARKER_VALUE: u64 = 0xA;
const HEADER_WORDS: u64 = (HEADER_BYTES / WORD_BYTES) as u64;

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Caen;

/// Whether a header may begin here: the marker, and a length that an event can have.
pub(super) fn is_header(window: &(impl Window + ?Sized)) -> bool {
    const MOST_WORDS: u64 = (MOST_FRAME_BYTES / WORD_BYTES) as u64;
    MARKER.read(window) == Some(MARKER_VALUE)
        && WORDS.read(window).is_some_and(|words| (HEADER_WORDS..=MOST_WORDS).contains(&words))
}

/// Whether the header in `rest` can follow the event in `frame`: it continues the counter of the same board.
pub(super) fn may_follow(frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
    let next = EVENT.read(frame).map(|event| (event + 1) & 0xFF_FFFF);
    is_header(rest) && (BOARD.read(rest) != BOARD.read(frame) || EVENT.read(rest) == next)
}

impl Caen {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match WORDS.read(window) {
            None => Front::Needs { bytes: HEADER_BYTES },
            Some(_) if !is_header(window) => Front::Lost { cause: Cause::FramingLost },
            Some(words) => frame(window, words * WORD_BYTES as u64),
        }
    }
}

/// The channels, or groups, with samples in an event.
fn channels(event: &(impl Window + ?Sized)) -> impl Iterator<Item = u32> + Clone {
    let masks = CHANNELS.read(event).zip(MORE_CHANNELS.read(event));
    let mask = masks.map_or(0, |(low, high)| high << 8 | low);
    (0..16).filter(move |channel| mask >> channel & 1 == 1)
}

impl Framing for Caen {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        match headed::front(self, window, search) {
            Front::Lost { cause } => search.skip(WORD_BYTES, cause),
            front => front,
        }
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, event: &(impl Window + ?Sized)) -> Fields {
        let has_failed = BOARD_FAIL.read(event) == Some(1);
        Fields {
            event: EVENT.read(event),
            time: TIME.read(event),
            source: BOARD.read(event).map(|board| board as u32),
            flags: if has_failed { FragmentFlags::STATUS_ERROR } else { FragmentFlags::default() },
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 24, time: 31, ..Widths::default() }
    }
}

impl Describe for Caen {
    fn looks_like(&self, first: &[u8]) -> bool {
        const MOST_LIKELY_WORDS: u64 = 1 << 20;
        let words = WORDS.read(first).unwrap_or_default();
        // A marker of four bits is weak evidence: the next header, if present, has to agree.
        is_header(first)
            && words <= MOST_LIKELY_WORDS
            && first
                .get(words as usize * WORD_BYTES..)
                .is_none_or(|rest| rest.len() < HEADER_BYTES || may_follow(first, rest))
    }

    fn describe(&self, event: &[u8], to: &mut dyn Inspector) {
        to.kind("event");
        HEADER.iter().for_each(|place| place.tell(event, to));
        if BOARD_FAIL.read(event) == Some(1) {
            to.fault(BOARD_FAIL.offset(), "the board reports a fault");
        }
        let (channels, bytes) = (channels(event), event.len().saturating_sub(HEADER_BYTES));
        let count = channels.clone().count();
        let each = bytes.checked_div(count).unwrap_or_default();
        // With zero suppression, and in families with groups, the channels' parts have different lengths.
        if EVENT_FORMAT.read(event) != Some(0) || each * count != bytes || !each.is_multiple_of(WORD_BYTES) {
            return to.part(format_args!("data"), HEADER_BYTES, bytes);
        }
        for (place, channel) in channels.enumerate() {
            to.part(format_args!("channel {channel}"), HEADER_BYTES + place * each, each);
        }
    }
}

/// Appends an event of `channels` parts (at most 16), each padded to whole words; marker, length and mask are set.
pub fn encode(header: Header<HEADER_BYTES>, channels: &[&[u8]], out: &mut Vec<u8>) {
    let channels = &channels[..channels.len().min(16)];
    let mask = (1_u64 << channels.len()) - 1;
    let words: usize = channels.iter().map(|data| data.len().div_ceil(WORD_BYTES)).sum();
    let header = header.with(MARKER, MARKER_VALUE).with(WORDS, HEADER_WORDS + words as u64);
    out.extend_from_slice(&header.with(CHANNELS, mask).with(MORE_CHANNELS, mask >> 8).0);
    for data in channels {
        out.extend_from_slice(data);
        out.resize(out.len() + data.len().next_multiple_of(WORD_BYTES) - data.len(), 0);
    }
}
