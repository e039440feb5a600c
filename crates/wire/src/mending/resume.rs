//! Where frames go on in a stream from which bytes are missing.
//!
//! ```text
//! ... frame | frame | fra[ bytes that are missing ]me | frame | frame ...
//!                                                   ^ what stands here may be the middle of a frame
//! ```
//! A frame is believed to begin where others follow it, and where something in them proves it: bytes that all frames of the source have, right
//! checksums, or numbers that go on one by one.

use crate::description::Description;
use crate::foreign::{Describe, ForeignFormat, Inspector, Value};
use crate::framing::{Fields, Framing, Front, Search};
use crate::generic;
use crate::message::FragmentFlags;
use core::fmt::Arguments;

/// So many frames that follow each other are believed.
const FRAMES: usize = 3;

/// What follows missing bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// Behind so many bytes a frame begins.
    Behind(usize),
    /// None begins within so many bytes; what is behind them needs more bytes to tell.
    Unknown(usize),
}

/// The frames of a stream, as far as it takes to find where one begins.
#[derive(Clone, Debug)]
pub enum StreamFrames {
    /// They are described.
    Described(Description),
    /// Generic fragments behind a hello.
    Generic,
}

impl From<Description> for StreamFrames {
    fn from(description: Description) -> Self {
        Self::Described(description)
    }
}

impl StreamFrames {
    /// What stands at the front of some bytes.
    pub fn front(&self, bytes: &[u8], search: &mut Search) -> Front {
        match self {
            Self::Described(description) => description.front(bytes, search),
            Self::Generic => generic::front(bytes),
        }
    }

    /// What a frame is, as a number to be compared: frames of some formats hold others, which are frames as well.
    pub fn kind_of(&self, frame: &[u8]) -> Option<u64> {
        let Self::Described(Description::Format(format) | Description::Board(format, _)) = self else { return None };
        let mut kind = Kind(0);
        format.describe(frame, &mut kind);
        if *format == ForeignFormat::Eudaq {
            crate::foreign::eudaq::description(frame).iter().for_each(|byte| kind.add(*byte));
        }
        Some(kind.0)
    }

    /// Looks for a place behind missing bytes at which frames go on; none is longer than `most`, and the first is of one of the kinds that are
    /// known, where some are. `is_over`: no more bytes will come.
    pub fn resume(&self, bytes: &[u8], is_over: bool, most: usize, kinds: &[u64]) -> Resumed {
        if let Self::Described(Description::Layout(plan)) = self
            && plan.is_delimited()
        {
            // Bytes before the first end of a frame are the rest of one.
            return match plan.front(bytes, &mut Search { seen: 0, adrift: true }) {
                Front::Skip { bytes, .. } => Resumed::Behind(bytes),
                _ => Resumed::Unknown(0),
            };
        }
        for at in 0..bytes.len() {
            match self.judge(&bytes[at..], is_over, most, kinds) {
                Place::Begin => return Resumed::Behind(at),
                Place::Open => return Resumed::Unknown(at),
                Place::Other => {}
            }
        }
        Resumed::Unknown(bytes.len())
    }

    fn judge(&self, bytes: &[u8], is_over: bool, most: usize, kinds: &[u64]) -> Place {
        let (mut at, mut proof) = (0, Proof::default());
        while proof.frames < FRAMES {
            let rest = &bytes[at..];
            match self.front(rest, &mut Search::default()) {
                Front::Frame { bytes } if bytes <= most && self.agrees(&rest[..bytes]) => {
                    if at == 0
                        && !kinds.is_empty()
                        && self.kind_of(&rest[..bytes]).is_some_and(|kind| !kinds.contains(&kind))
                    {
                        return Place::Other;
                    }
                    proof.add(self, &rest[..bytes]);
                    at += bytes;
                }
                Front::Skip { bytes, .. } if proof.frames > 0 && self.is_filler(&rest[..bytes]) => at += bytes,
                Front::Needs { bytes } if bytes <= most.saturating_add(rest.len()) => {
                    if !is_over && rest.len() <= most {
                        return Place::Open;
                    }
                    break;
                }
                _ => return Place::Other,
            }
        }
        if self.is_proven(&proof) { Place::Begin } else { Place::Other }
    }

    fn is_filler(&self, bytes: &[u8]) -> bool {
        matches!(self, Self::Described(description) if description.is_filler(bytes))
    }

    /// Whether a frame has nothing in it that contradicts being one.
    fn agrees(&self, frame: &[u8]) -> bool {
        if frame.iter().all(|byte| *byte == 0) {
            return false;
        }
        match self {
            Self::Generic => true,
            Self::Described(Description::Layout(plan)) => plan.is_matched(frame) && plan.checksum(frame) != Some(false),
            Self::Described(Description::Format(format) | Description::Board(format, _)) => is_plain(*format, frame),
        }
    }

    /// Whether so many frames that agree are more than chance.
    fn is_proven(&self, proof: &Proof) -> bool {
        const ENOUGH_BITS: usize = 16;
        let bits = match self {
            Self::Generic | Self::Described(Description::Format(_) | Description::Board(..)) => ENOUGH_BITS,
            Self::Described(Description::Layout(plan)) => plan.mark_bits() as usize,
        };
        proof.frames > 0
            && (bits * proof.frames >= ENOUGH_BITS || proof.right == proof.frames || proof.counts && proof.frames > 1)
    }
}

enum Place {
    Begin,
    Other,
    /// More bytes are needed to tell.
    Open,
}

/// What frames that follow each other say together.
#[derive(Debug, Default)]
struct Proof {
    frames: usize,
    /// Frames with right checksums.
    right: usize,
    /// Their numbers go on one by one.
    counts: bool,
    number: Option<u64>,
}

impl Proof {
    fn add(&mut self, stream: &StreamFrames, frame: &[u8]) {
        if let StreamFrames::Described(description) = stream {
            let Fields { event, sequence, .. } = description.fields(frame);
            let (number, bits) = match sequence {
                Some(number) => (Some(number), description.widths().sequence),
                None => (event, description.widths().event),
            };
            let follows = self.number.zip(number).is_some_and(|(before, number)| {
                number.wrapping_sub(before.wrapping_add(1)) << (64 - u32::from(bits.clamp(1, 64))) == 0
            });
            self.counts = if self.frames == 0 { number.is_some() } else { self.counts && follows };
            self.number = number;
            self.right += usize::from(description.checksum(frame) == Some(true));
        }
        self.frames += 1;
    }
}

/// Whether a frame of a format with a name is what the format demands of one.
fn is_plain(format: ForeignFormat, frame: &[u8]) -> bool {
    let is_plain = match format {
        // Little else in its header is always the same.
        ForeignFormat::Nscldaq => format.looks_like(frame),
        ForeignFormat::Midas => crate::foreign::midas::has_banks(frame),
        _ => true,
    };
    let mut faults = Faults(0);
    let flags = format.fields(frame).flags;
    let is_whole = |flag: FragmentFlags| flags.0 & flag.0 == 0;
    if !is_plain || !is_whole(FragmentFlags::MALFORMED) || format.checksum(frame) == Some(false) {
        return false;
    }
    format.describe(frame, &mut faults);
    faults.0 == 0
}

/// The name of what a frame is, as a number.
struct Kind(u64);

impl Kind {
    fn add(&mut self, byte: u8) {
        self.0 = self.0.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte);
    }
}

impl Inspector for Kind {
    fn kind(&mut self, name: &str) {
        name.bytes().for_each(|byte| self.add(byte));
    }

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, _: usize, _: &'static str) {}
}

/// Counts what contradicts itself.
struct Faults(usize);

impl Inspector for Faults {
    fn kind(&mut self, _: &str) {}

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, _: usize, _: &'static str) {
        self.0 += 1;
    }
}
