//! ALICE raw data pages, header version 7 (O2, `RAWDataHeader.h`), which a readout card writes for one link.
//!
//! The header has 64 bytes. The length of a page is its offset to the next one; the memory size is the used part,
//! header included. Version 6 has the same fields except the data format. The packet counter counts the pages of all
//! links of a card's end point, modulo 256, so it cannot show a loss on one link. Pages of one heartbeat frame have the
//! same orbit and count from 0; the last one has its stop bit set.

use super::headed::frame;
use super::{Describe, Header, Inspector, Place, headed};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::Cause;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// The header's version.
pub const VERSION: Place = Place::little("version", 0, 1);
/// Bytes of the header.
pub const HEADER_SIZE: Place = Place::little("header bytes", 1, 1);
/// The front end.
pub const FEE: Place = Place::little("FEE id", 2, 2);
/// Its priority.
pub const PRIORITY: Place = Place::little("priority", 4, 1);
/// The detector.
pub const SYSTEM: Place = Place::little("system", 5, 1);
/// Bytes to the next page.
pub const OFFSET: Place = Place::little("offset to next", 8, 2);
/// Bytes that are used.
pub const MEMORY: Place = Place::little("memory bytes", 10, 2);
/// The link of the card.
pub const LINK: Place = Place::little("link", 12, 1);
/// One more for each page of the card's end point.
pub const PACKET_COUNTER: Place = Place::little("packet counter", 13, 1);
/// The card.
pub const CARD: Place = Place::little("card", 14, 2).bits(0, 12);
/// The half of the card.
pub const WRAPPER: Place = Place::little("wrapper", 14, 2).bits(12, 4);
/// The bunch crossing.
pub const BUNCH_CROSSING: Place = Place::little("bunch crossing", 16, 4).bits(0, 12);
/// The orbit.
pub const ORBIT: Place = Place::little("orbit", 20, 4);
/// Layout of the payload: 0 padded to 128 bits, 2 not.
pub const DATA_FORMAT: Place = Place::little("data format", 24, 1);
/// The trigger bits.
pub const TRIGGER: Place = Place::little("trigger", 32, 4).hex();
/// Index of the page in its heartbeat frame.
pub const PAGE: Place = Place::little("page", 36, 2);
/// Whether it is the last page of its heartbeat frame.
pub const STOP: Place = Place::little("stop", 38, 1);
/// The detector's own field.
pub const DETECTOR: Place = Place::little("detector field", 48, 4).hex();
/// The header.
pub const HEADER: &[Place] = &[
    VERSION,
    HEADER_SIZE,
    FEE,
    PRIORITY,
    SYSTEM,
    OFFSET,
    MEMORY,
    LINK,
    PACKET_COUNTER,
    CARD,
    WRAPPER,
    BUNCH_CROSSING,
    ORBIT,
    DATA_FORMAT,
    TRIGGER,
    PAGE,
    STOP,
    DETECTOR,
];

/// Triggers that determine the kind of a page; the first set one counts.
const KINDS: [(u64, &str); 5] = [
    (1 << 9, "start of continuous data"),
    (1 << 7, "start of triggered data"),
    (1 << 10, "end of continuous data"),
    (1 << 8, "end of triggered data"),
    (1 << 4, "physics"),
];

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Alice;

fn is_header(bytes: [u8; 2]) -> bool {
    matches!(bytes, [6 | 7, 64])
}

/// Whether a page's sizes agree and its reserved fields are 0: 64 bytes are enough to recognise a header.
pub(super) fn is_sound(header: &(impl Window + ?Sized)) -> bool {
    const MOST_CROSSINGS: u64 = 3564;
    MEMORY.read(header) <= OFFSET.read(header)
        && BUNCH_CROSSING.read(header) < Some(MOST_CROSSINGS)
        && header.array(6) == Some([0; 2])
        && header.array(25) == Some([0; 7])
}

impl Alice {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match (window.array(0), OFFSET.read(window)) {
            (Some(bytes), _) if !is_header(bytes) => Front::Lost { cause: Cause::FramingLost },
            (_, Some(bytes)) if bytes < HEADER_BYTES as u64 => Front::Lost { cause: Cause::FramingLost },
            (_, Some(bytes)) => frame(window, bytes),
            (_, None) => Front::Needs { bytes: HEADER_BYTES },
        }
    }
}

impl Framing for Alice {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, page: &(impl Window + ?Sized)) -> Fields {
        let used = MEMORY.read(page).zip(OFFSET.read(page));
        let fits = used.is_some_and(|(used, offset)| (HEADER_BYTES as u64..=offset).contains(&used));
        Fields {
            event: ORBIT.read(page),
            source: FEE.read(page).map(|source| source as u32),
            trigger_type: TRIGGER.read(page).map(|trigger| trigger as u16),
            bunch_crossing: BUNCH_CROSSING.read(page).map(|crossing| crossing as u16),
            place: PAGE.read(page).map(|place| place as u32),
            is_last: STOP.read(page).map(|stop| stop > 0),
            flags: if fits { FragmentFlags::default() } else { FragmentFlags::LENGTH_MISMATCH },
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 32, ..Widths::default() }
    }
}

impl Describe for Alice {
    fn looks_like(&self, first: &[u8]) -> bool {
        first.first_chunk().is_some_and(|&bytes| is_header(bytes))
            && OFFSET.read(first) >= Some(HEADER_BYTES as u64)
            && MEMORY.read(first) >= Some(HEADER_BYTES as u64)
    }

    fn describe(&self, page: &[u8], to: &mut dyn Inspector) {
        let trigger = TRIGGER.read(page).unwrap_or_default();
        let kind = KINDS.iter().find(|(bit, _)| trigger & bit != 0).map(|(_, name)| *name);
        to.kind(if STOP.read(page) > Some(0) { "end of heartbeat frame" } else { kind.unwrap_or("page") });
        HEADER.iter().for_each(|place| place.tell(page, to));
        let used = MEMORY.read(page).unwrap_or_default() as usize;
        if !(HEADER_BYTES..=page.len()).contains(&used) {
            return to.fault(MEMORY.offset(), "more memory is used than the page has");
        }
        to.part(format_args!("payload"), HEADER_BYTES, used - HEADER_BYTES);
    }
}

/// Appends a page; version, sizes and data format are set. `None`, and nothing is appended, if it would exceed 65,535
/// bytes.
pub fn encode(header: Header<HEADER_BYTES>, payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let used = u16::try_from(HEADER_BYTES + payload.len()).ok()?;
    let offset = u64::from(used).next_multiple_of(16);
    let header = header.with(VERSION, 7).with(HEADER_SIZE, HEADER_BYTES as u64).with(MEMORY, used.into());
    let offset = u16::try_from(offset).ok()?;
    out.extend_from_slice(&header.with(OFFSET, offset.into()).0);
    out.extend_from_slice(payload);
    out.resize(out.len() + usize::from(offset - used), 0);
    Some(())
}
