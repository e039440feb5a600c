//! Datagrams of the Scalable Readout System with VMM3a chips (UDP port 6006), sent by a front-end card (FEC).
//!
//! ```text
//!  datagram  frame counter (u32) | "VM3" and the FEC's id times 16 (u32) | time (u32) | overflow (u32), then words of 6 bytes
//!  hit       trigger offset (5 bits) | chip (5) | ADC (10) | bunch counter, Gray (12) | 1 | over threshold (1) | channel (6) | TDC (8)
//!  marker    the chip's time, its upper 32 bits (u32) | 0 | chip (5 bits) | its lower 10 bits
//! ```
//! Big-endian (ESS event formation unit, `ParserSRS`). A frame counter of 0xFAFAFAFA ends a cycle. Checked on a real capture of two FECs.

use super::{Describe, Header, Inspector, Place, Value};
use crate::framing::{Fields, Framing, Front, Search, Widths, Window};
use crate::message::FragmentFlags;
use ropewalk_terms::Cause;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a hit or a marker.
pub const WORD_BYTES: usize = 6;
/// Increases by one for each datagram of a FEC.
pub const FRAME_COUNTER: Place = Place::big("frame counter", 0, 4);
/// The letters "VM3".
pub const DATA_ID: Place = Place::big("data id", 4, 4).bits(8, 24).hex();
/// The front-end card.
pub const FEC: Place = Place::big("FEC", 4, 4).bits(4, 4);
/// The card's clock.
pub const TIME: Place = Place::big("time", 8, 4);
/// The hits behind the end of the clock's cycle.
pub const OVERFLOW: Place = Place::big("overflow", 12, 4).hex();
/// The header.
pub const HEADER: &[Place] = &[FRAME_COUNTER, DATA_ID, FEC, TIME, OVERFLOW];

const DATA_ID_VALUE: u64 = 0x56_4D33;
const END_OF_CYCLE: u64 = 0xFAFA_FAFA;

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Srs;

fn is_frame(datagram: &(impl Window + ?Sized)) -> bool {
    datagram.len() >= HEADER_BYTES && DATA_ID.read(datagram) == Some(DATA_ID_VALUE)
}

impl Framing for Srs {
    fn front(&self, window: &(impl Window + ?Sized), _: &mut Search) -> Front {
        match window.len() {
            0 => Front::Needs { bytes: HEADER_BYTES },
            bytes if is_frame(window) => Front::Frame { bytes },
            bytes => Front::Skip { bytes, cause: Cause::Malformed },
        }
    }

    fn fields(&self, datagram: &(impl Window + ?Sized)) -> Fields {
        let whole = datagram.len().saturating_sub(HEADER_BYTES).is_multiple_of(WORD_BYTES);
        Fields {
            time: TIME.read(datagram),
            source: FEC.read(datagram).map(|fec| fec as u32),
            sequence: FRAME_COUNTER.read(datagram).filter(|&counter| counter != END_OF_CYCLE),
            flags: if whole { FragmentFlags::default() } else { FragmentFlags::LENGTH_MISMATCH },
            ..Fields::default()
        }
    }

    /// A FEC counts its frames since it was switched on.
    fn runs_free(&self) -> bool {
        true
    }

    fn widths(&self) -> Widths {
        // Its frames are also its events.
        Widths { event: 32, time: 32, sequence: 32 }
    }
}

/// The contents of a word of six bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// A hit of a channel.
    Hit {
        /// Trigger within the chip's cycle (5 bits).
        trigger_offset: u8,
        /// The chip (5 bits).
        chip: u8,
        /// The channel (6 bits).
        channel: u8,
        /// Amplitude (10 bits).
        adc: u16,
        /// Time in bunch crossings (12 bits), decoded from Gray code.
        bunch_crossing: u16,
        /// Time within the crossing.
        tdc: u8,
        /// Whether the amplitude was above the threshold.
        over_threshold: bool,
    },
    /// The time of a chip, 42 bits.
    Marker {
        /// The chip (5 bits).
        chip: u8,
        /// Its time.
        time: u64,
    },
}

impl Word {
    /// Parses a word; any bytes are valid.
    pub const fn parse(bytes: [u8; WORD_BYTES]) -> Self {
        let [a, b, c, d, e, f] = bytes;
        let (first, second) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        if second >> 15 == 0 {
            let time = (first as u64) << 10 | (second & 0x3FF) as u64;
            return Self::Marker { chip: (second >> 10 & 0x1F) as u8, time };
        }
        Self::Hit {
            trigger_offset: (first >> 27) as u8,
            chip: (first >> 22 & 0x1F) as u8,
            channel: (second >> 8 & 0x3F) as u8,
            adc: (first >> 12 & 0x3FF) as u16,
            bunch_crossing: from_gray((first & 0xFFF) as u16),
            tdc: second as u8,
            over_threshold: second >> 14 & 1 == 1,
        }
    }

    /// Encodes the word. Excess bits of a field are cut off.
    pub const fn to_bytes(self) -> [u8; WORD_BYTES] {
        let (first, second) = match self {
            Self::Marker { chip, time } => ((time >> 10) as u32, (chip as u16 & 0x1F) << 10 | (time & 0x3FF) as u16),
            Self::Hit { trigger_offset, chip, channel, adc, bunch_crossing, tdc, over_threshold } => {
                let gray = bunch_crossing & 0xFFF ^ (bunch_crossing & 0xFFF) >> 1;
                let first = (trigger_offset as u32) << 27 | (chip as u32 & 0x1F) << 22 | (adc as u32 & 0x3FF) << 12;
                let second = 1 << 15 | (over_threshold as u16) << 14 | (channel as u16 & 0x3F) << 8 | tdc as u16;
                (first | gray as u32, second)
            }
        };
        let ([a, b, c, d], [e, f]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d, e, f]
    }
}

/// The number that a Gray code of at most 16 bits encodes.
const fn from_gray(mut gray: u16) -> u16 {
    gray ^= gray >> 8;
    gray ^= gray >> 4;
    gray ^= gray >> 2;
    gray ^ gray >> 1
}

impl Describe for Srs {
    fn looks_like(&self, datagram: &[u8]) -> bool {
        is_frame(datagram)
    }

    fn describe(&self, datagram: &[u8], to: &mut dyn Inspector) {
        to.kind(if FRAME_COUNTER.read(datagram) == Some(END_OF_CYCLE) { "end of cycle" } else { "hits" });
        HEADER.iter().for_each(|place| place.tell(datagram, to));
        let (words, rest) = datagram.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<WORD_BYTES>();
        for (index, &word) in words.iter().enumerate() {
            let at = HEADER_BYTES + WORD_BYTES * index;
            match Word::parse(word) {
                Word::Hit { chip, channel, adc, bunch_crossing, tdc, .. } => {
                    let text = || {
                        format!("chip {chip}, channel {channel}, ADC {adc}, bunch crossing {bunch_crossing}, TDC {tdc}")
                    };
                    to.part(format_args!("hit"), at, WORD_BYTES);
                    if to.wants_details() {
                        to.field("hit", at, WORD_BYTES, Value::Text(&text()));
                    }
                }
                Word::Marker { chip, time } => {
                    to.part(format_args!("marker"), at, WORD_BYTES);
                    if to.wants_details() {
                        to.field("marker", at, WORD_BYTES, Value::Text(&format!("chip {chip}, time {time}")));
                    }
                }
            }
        }
        if !rest.is_empty() {
            to.fault(datagram.len() - rest.len(), "the datagram ends within a word");
        }
    }
}

/// Appends a datagram; the data id is set.
pub fn encode(header: Header<HEADER_BYTES>, words: &[Word], out: &mut Vec<u8>) {
    out.extend_from_slice(&header.with(DATA_ID, DATA_ID_VALUE).0);
    words.iter().for_each(|word| out.extend_from_slice(&word.to_bytes()));
}
