//! ATLAS fragments (eformat, versions 3 to 5): full events, and the nested fragments that they consist of.
//!
//! ```text
//!  32-bit words  marker | words of the fragment | words of the header | version | source | n | status, n words
//!                from version 4 on: checksum type | then the header's own words | payload | checksum, if there is one
//!  full event 3  how many follow | seconds | global id | run | L1 id | trigger type | ...     (version 3.0; later as 4)
//!  full event 4  seconds | ns | global id | run type | run | lumi block | L1 id | bunch crossing | trigger type | ...
//!  full event 5  seconds | ns | global id, two words | run type | run | lumi block | L1 id | bunch crossing | trigger type | ...
//!  markers       full event 0xAA1234AA > sub-detector 0xBB > ROS 0xCC (both up to version 3) > ROB 0xDD1234DD > ROD 0xEE1234EE
//!  ROD           header of 9 words (see the module rod) | data and status | number of status words | of data words | which is first
//! ```
//! Little-endian. The order of the fields added by version 5 is from memory. Checksums (CRC-16-CCITT or Adler-32 over
//! the payload) are shown and not computed. Data files have their own records (markers 0x1234....) around events: they
//! are skipped, and counted.

use super::headed::{frame, skip_to};
use super::{Describe, Inspector, MOST_FRAME_BYTES, Place, Value};
use crate::framing::{Fields, Framing, Front, Part, Search, Widths, Window};
use crate::message::FragmentFlags;
use crate::rod;
use ropewalk_terms::Cause;

/// Bytes of a word.
const WORD_BYTES: usize = 4;
/// Words of a header before its status.
const FIXED_WORDS: usize = 6;
/// Words of a ROD fragment's header and trailer.
const ROD_HEADER_WORDS: usize = 9;
const ROD_TRAILER_WORDS: usize = 3;

/// Kind of the fragment.
pub const MARKER: Place = Place::little("marker", 0, 4).hex();
/// Words of the fragment.
pub const WORDS: Place = Place::little("words", 4, 4);
/// Words of the header.
pub const HEADER_WORDS: Place = Place::little("header words", 8, 4);
/// The version: 0x05000000 is 5.0.
pub const VERSION: Place = Place::little("version", 12, 4).hex();
/// The source: sub-detector and module.
pub const SOURCE: Place = Place::little("source", 16, 4).hex();
/// Words of status.
pub const STATUS_WORDS: Place = Place::little("status words", 20, 4);
/// The common beginning of all headers.
pub const HEADER: &[Place] = &[MARKER, WORDS, HEADER_WORDS, VERSION, SOURCE, STATUS_WORDS];

/// The marker of a full event.
pub const FULL_EVENT: u32 = 0xAA12_34AA;
/// The marker of a ROB fragment.
pub const ROB: u32 = 0xDD12_34DD;
const SUB_DETECTOR: u32 = 0xBB12_34BB;
const ROS: u32 = 0xCC12_34CC;

/// Names of a full event's own words: of version 3.0, which has their number in front of them; up to version 4; and
/// from 5 on.
const FULL_EVENT_WORDS_3: [&str; 5] = ["seconds", "global id", "run", "L1 id", "trigger type"];
const FULL_EVENT_WORDS_4: [&str; 9] =
    ["seconds", "nanoseconds", "global id", "run type", "run", "lumi block", "L1 id", "bunch crossing", "trigger type"];
const FULL_EVENT_WORDS_5: [&str; 10] = [
    "seconds",
    "nanoseconds",
    "global id",
    "global id, upper half",
    "run type",
    "run",
    "lumi block",
    "L1 id",
    "bunch crossing",
    "trigger type",
];
const ROD_WORDS: [&str; ROD_HEADER_WORDS] = [
    "ROD marker",
    "ROD header words",
    "ROD version",
    "ROD source",
    "run",
    "L1 id",
    "bunch crossing",
    "trigger type",
    "event type",
];

const fn kind_name(marker: u32) -> Option<&'static str> {
    match marker {
        FULL_EVENT => Some("full event"),
        SUB_DETECTOR => Some("sub-detector"),
        ROS => Some("ROS"),
        ROB => Some("ROB"),
        _ => None,
    }
}

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Atlas;

/// A fragment's header after its checks.
struct View {
    marker: u32,
    version: u32,
    bytes: usize,
    /// Offset of the header's own words.
    own_at: usize,
    /// Number of own words before those with names: up to version 3 their count, in some files.
    names_at: usize,
    payload_at: usize,
    /// End of the payload: before the checksum, if there is one.
    payload_end: usize,
}

impl View {
    fn of(fragment: &(impl Window + ?Sized)) -> Option<Self> {
        let word = |place: Place| place.read(fragment).map(|number| number as u32);
        let marker = word(MARKER).filter(|&marker| kind_name(marker).is_some())?;
        let (words, header_words) = (word(WORDS)? as usize, word(HEADER_WORDS)? as usize);
        let (version, status_words) = (word(VERSION)? >> 24, word(STATUS_WORDS)? as usize);
        let has_checksum_type = version >= 4;
        let own = FIXED_WORDS.checked_add(status_words)?.checked_add(usize::from(has_checksum_type))?;
        if own > header_words || header_words > words || words > MOST_FRAME_BYTES / WORD_BYTES {
            return None;
        }
        let counted = (header_words - own).checked_sub(1).filter(|_| !has_checksum_type);
        let names_at = usize::from(counted.is_some() && number(fragment, own).map(|count| count as usize) == counted);
        let checksum_type = has_checksum_type.then(|| number(fragment, own - 1)).flatten();
        let payload_end = words - usize::from(checksum_type > Some(0) && words > header_words);
        let bytes = |words: usize| words * WORD_BYTES;
        let (own_at, payload_at, payload_end) = (bytes(own), bytes(header_words), bytes(payload_end));
        Some(Self { marker, version, bytes: bytes(words), own_at, names_at, payload_at, payload_end })
    }

    /// Whether the payload consists of fragments, down to the ROB fragments: a lost page hides the start of the next
    /// one.
    fn is_nested(&self, fragment: &(impl Window + ?Sized)) -> bool {
        let (mut at, end) = (self.payload_at, self.payload_end.min(fragment.len()));
        while at < end {
            let rest = Part::new(fragment, at, end - at);
            let Some(child) = Self::of(&rest).filter(|child| child.bytes <= end - at) else { return false };
            at += if child.marker == ROB { child.bytes } else { child.payload_at };
        }
        true
    }

    /// The names of its own words, if it is a full event.
    const fn full_event(&self) -> &'static [&'static str] {
        match (self.marker, self.version) {
            (FULL_EVENT, ..=3) if self.names_at > 0 => &FULL_EVENT_WORDS_3,
            (FULL_EVENT, ..=4) => &FULL_EVENT_WORDS_4,
            (FULL_EVENT, _) => &FULL_EVENT_WORDS_5,
            _ => &[],
        }
    }
}

/// The word with this index.
fn number(window: &(impl Window + ?Sized), word: usize) -> Option<u32> {
    window.array(word * WORD_BYTES).map(u32::from_le_bytes)
}

fn is_marker(bytes: [u8; 4]) -> bool {
    kind_name(u32::from_le_bytes(bytes)).is_some()
}

/// Whether this marker begins a record of a data file: its start, its names, the run's parameters, an event's
/// separator, its end.
const fn is_record(marker: u32) -> bool {
    matches!(marker, 0x1234_AAAA | NAMES | 0x1234_BBBB | 0x1234_CCCC | 0x1234_DDDD | END_OF_FILE)
}

/// The record with a file's names: two texts, each with its length in bytes before it and padded to whole words.
const NAMES: u32 = 0x1234_AABB;
/// The last word of a file.
const END_OF_FILE: u32 = 0x1234_EEEE;
/// Maximum length of a text or record.
const MOST_RECORD_BYTES: usize = 1 << 16;

/// Length of the record at the front; the error is the number of bytes needed to determine it. `None` if there is no
/// record.
fn record_bytes(window: &(impl Window + ?Sized)) -> Option<Result<usize, usize>> {
    let marker = number(window, 0).filter(|&marker| is_record(marker))?;
    if marker == END_OF_FILE {
        return Some(Ok(WORD_BYTES));
    }
    let Some(length) = number(window, 1).map(|length| length as usize) else { return Some(Err(2 * WORD_BYTES)) };
    if length > MOST_RECORD_BYTES || length < 2 && marker != NAMES {
        return None;
    }
    if marker != NAMES {
        return Some(Ok(length * WORD_BYTES));
    }
    let second = 2 * WORD_BYTES + length.next_multiple_of(WORD_BYTES);
    let Some(length) = number(window, second / WORD_BYTES) else { return Some(Err(second + WORD_BYTES)) };
    let bytes = second + WORD_BYTES + (length as usize).next_multiple_of(WORD_BYTES);
    (length as usize <= MOST_RECORD_BYTES).then_some(Ok(bytes))
}

/// Whether these bytes begin an element of a file.
fn is_begin(bytes: [u8; 4]) -> bool {
    is_marker(bytes) || is_record(u32::from_le_bytes(bytes))
}

impl Framing for Atlas {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        match record_bytes(window) {
            Some(Ok(bytes)) if bytes <= window.len() => return search.skip(bytes, Cause::FramingLost),
            Some(Ok(bytes) | Err(bytes)) => return Front::Needs { bytes },
            None => {}
        }
        match window.array(0) {
            Some(bytes) if !is_marker(bytes) => return skip_to(window, search, WORD_BYTES, is_begin),
            Some(_) if window.len() >= FIXED_WORDS * WORD_BYTES => {}
            _ => return Front::Needs { bytes: FIXED_WORDS * WORD_BYTES },
        }
        match View::of(window) {
            None => skip_to(window, search, WORD_BYTES, is_begin),
            Some(view) => frame(window, view.bytes as u64),
        }
    }

    fn fields(&self, fragment: &(impl Window + ?Sized)) -> Fields {
        let Some(view) = View::of(fragment) else {
            return Fields { flags: FragmentFlags::MALFORMED, ..Fields::default() };
        };
        let source = SOURCE.read(fragment).map(|source| source as u32);
        let own = |index: usize| number(fragment, view.own_at / WORD_BYTES + index);
        if view.marker == FULL_EVENT {
            let words = view.full_event();
            let of =
                |name: &str| words.iter().position(|word| *word == name).and_then(|index| own(view.names_at + index));
            let high = of("global id, upper half").unwrap_or_default();
            let flags = if view.is_nested(fragment) { FragmentFlags::default() } else { FragmentFlags::FRAMES_MISSING };
            let nanoseconds = of("nanoseconds").unwrap_or_default();
            return Fields {
                event: of("global id").map(|low| u64::from(high) << 32 | u64::from(low)),
                time: of("seconds").map(|seconds| u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)),
                source,
                run: of("run"),
                bunch_crossing: of("bunch crossing").map(|crossing| crossing as u16),
                trigger_type: of("trigger type").map(|kind| kind as u16),
                is_whole_event: true,
                flags,
                ..Fields::default()
            };
        }
        let payload = Part::new(fragment, view.payload_at, view.payload_end - view.payload_at);
        let header = payload.array(0).and_then(|bytes| rod::Header::parse(&bytes).ok());
        Fields {
            event: header.and_then(|_| number(&payload, 5)).map(u64::from),
            source,
            run: header.and_then(|_| number(&payload, 4)),
            bunch_crossing: header.map(|header| header.bunch_crossing()),
            trigger_type: header.map(|header| header.trigger_type().into()),
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths::default()
    }
}

impl Describe for Atlas {
    fn looks_like(&self, first: &[u8]) -> bool {
        // Whether a file begins like this: with a fragment, or with a record of a data file.
        MARKER.read(first) == Some(0x1234_AAAA) || View::of(first).is_some()
    }

    fn describe(&self, fragment: &[u8], to: &mut dyn Inspector) {
        let kind = number(fragment, 0).and_then(kind_name);
        to.kind(kind.unwrap_or("no fragment"));
        HEADER.iter().for_each(|place| place.tell(fragment, to));
        let Some(view) = View::of(fragment) else { return to.fault(4, "the header's lengths contradict each other") };
        let tell = |name: &str, word: usize, to: &mut dyn Inspector| {
            if let Some(number) = number(fragment, word) {
                to.field(name, word * WORD_BYTES, WORD_BYTES, Value::Number(number.into()));
            }
        };
        let own = view.own_at / WORD_BYTES;
        for word in FIXED_WORDS..own - usize::from(view.version >= 4) {
            tell("status", word, to);
        }
        if view.version >= 4 {
            tell("checksum type", own - 1, to);
        }
        if view.names_at > 0 {
            tell("words that follow", own, to);
        }
        let words = view.full_event().iter().zip(own + view.names_at..view.payload_at / WORD_BYTES);
        words.for_each(|(name, word)| tell(name, word, to));
        if view.payload_end < view.bytes {
            tell("checksum", view.payload_end / WORD_BYTES, to);
        }
        tell_payload(fragment, &view, to);
    }

    fn is_filler(&self, skipped: &[u8]) -> bool {
        number(skipped, 0).is_some_and(is_record)
    }
}

/// Reports the fragments in a fragment, nested to any depth: the markers nest, so a walk over them ends.
fn tell_payload(fragment: &[u8], view: &View, to: &mut dyn Inspector) {
    let end = view.payload_end.min(fragment.len());
    let mut at = view.payload_at;
    if view.marker == ROB {
        return tell_rod(&fragment[..end], at, to);
    }
    while at < end {
        let Some(child) = View::of(&fragment[at..end]).filter(|child| child.bytes <= end - at) else {
            return to.fault(at, "no fragment where one should begin");
        };
        to.part(format_args!("{}", kind_name(child.marker).unwrap_or_default()), at, child.bytes);
        match child.marker {
            ROB => {
                tell_rod(&fragment[..at + child.payload_end], at + child.payload_at, to);
                at += child.bytes;
            }
            // A fragment with children is entered: its header has been read, and its checksum is behind its last child.
            _ => at += child.payload_at,
        }
    }
}

/// Reports the ROD fragment that begins at `at` and fills the rest of `fragment`.
fn tell_rod(fragment: &[u8], at: usize, to: &mut dyn Inspector) {
    let rod = fragment.get(at..).unwrap_or_default();
    if rod.is_empty() {
        return;
    }
    let words = rod.len() / WORD_BYTES;
    let is_rod = rod.first_chunk().is_some_and(|header| rod::Header::parse(header).is_ok());
    if !is_rod || words < ROD_HEADER_WORDS + ROD_TRAILER_WORDS {
        return to.fault(at, "no ROD fragment in a ROB fragment");
    }
    to.part(format_args!("ROD"), at, rod.len());
    for (word, name) in ROD_WORDS.iter().enumerate() {
        let value = number(rod, word).unwrap_or_default();
        to.field(name, at + word * WORD_BYTES, WORD_BYTES, Value::Number(value.into()));
    }
    let trailer = |word: usize| number(rod, words - ROD_TRAILER_WORDS + word).unwrap_or_default();
    if (ROD_HEADER_WORDS + ROD_TRAILER_WORDS) as u64 + u64::from(trailer(0)) + u64::from(trailer(1)) != words as u64 {
        to.fault(at + (words - ROD_TRAILER_WORDS) * WORD_BYTES, "the ROD trailer counts other words than there are");
    }
}

/// Appends a fragment of version 4 with one status word and no checksum around these own words and this payload.
pub fn encode(marker: u32, source: u32, own: &[u32], payload: &[u8], out: &mut Vec<u8>) {
    let header_words = (FIXED_WORDS + 2 + own.len()) as u32;
    let words = header_words + payload.len().div_ceil(WORD_BYTES) as u32;
    let fixed = [marker, words, header_words, 0x0400_0000, source, 1, 0, 0];
    fixed.iter().chain(own).for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(WORD_BYTES), 0);
}

/// Appends a ROD fragment around these data words, with one status word behind them.
pub fn encode_rod(header: &rod::Header, data: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&header.to_bytes());
    let trailer = [0, 1, data.len() as u32, 1];
    data.iter().chain(&trailer).for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}
