//! What was found, in words.

use super::accounts::PeerAccount;
use super::doubts::Doubt;
use core::fmt;
use ropewalk_wire::layout::{Counts, Frame, Length, Number};

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// By the place that was sent to.
    pub groups: Vec<Group>,
    /// Packets of peers that were too many to be looked at.
    pub unheard: u64,
}

/// Peers that send to one place.
#[derive(Clone, Debug)]
pub struct Group {
    /// Who they are.
    pub peers: Vec<PeerAccount>,
    /// Frames that were looked at.
    pub frames: u64,
    /// Bytes of the shortest of them.
    pub least_frame: usize,
    /// Bytes of the longest of them.
    pub most_frame: usize,
    /// How a stream's frames are found; none of datagrams, and where nothing was found.
    pub framing: Option<Frame>,
    /// What their bytes mean.
    pub guesses: Vec<Guess>,
    /// Why the draft may be wrong; without any it is right for all frames that were looked at.
    pub doubts: Vec<Doubt>,
    /// Bytes of streams that belong to no frame: of a file, those behind the last one.
    pub unframed_bytes: u64,
}

/// What some bytes mean, and why that is believed.
#[derive(Clone, PartialEq, Debug)]
pub struct Guess {
    /// What.
    pub meaning: Meaning,
    /// In how many frames, or pairs of frames that follow each other, it holds
    pub holds: u64,
    /// of so many.
    pub of: u64,
}

/// What bytes may mean.
#[derive(Clone, PartialEq, Debug)]
pub enum Meaning {
    /// How long the frame is.
    Length(Length),
    /// One more in each frame of a peer.
    FrameCounter {
        /// Where.
        number: Number,
        /// Several peers have the same values: it may be the event's number.
        is_shared: bool,
    },
    /// One more now and then, otherwise the same.
    SlowCounter {
        /// Where.
        number: Number,
        /// Several peers have the same values.
        is_shared: bool,
        /// Frames with the same value, on average.
        frames_each: f64,
    },
    /// Goes on with time.
    Clock {
        /// Where.
        number: Number,
        /// How long a tick is, in nanoseconds.
        tick: f64,
        /// By how much that may be wrong, in nanoseconds (one standard deviation).
        error: f64,
        /// What is one more whenever the clock begins anew: its wraps, or whole seconds.
        wraps: Option<Wraps>,
        /// Several peers have the same values, as frames of one event do.
        is_shared: bool,
    },
    /// What another number was in the frame before.
    Before {
        /// Where.
        number: Number,
        /// The other one.
        of: Number,
    },
    /// Always the same bytes.
    Constant {
        /// Where.
        at: usize,
        /// What they are.
        bytes: Vec<u8>,
    },
    /// The same in each frame of a peer, and different in those of others.
    Peer {
        /// Where.
        number: Number,
        /// Its values, in the order of the peers.
        values: Vec<u64>,
    },
}

/// A field that is one more whenever a clock begins anew.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Wraps {
    /// Where.
    pub number: Number,
    /// What lies between, in nanoseconds.
    pub period: f64,
}

impl Wraps {
    /// Whether it counts seconds.
    pub fn are_seconds(&self) -> bool {
        (self.period / 1e9 - 1.0).abs() < 0.02
    }
}

impl Guess {
    /// How much it is worth, 0 to 1.
    pub fn score(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.holds as f64 / self.of as f64 }
    }

    /// The number that it is about; none for constant bytes.
    pub const fn number(&self) -> Option<&Number> {
        match &self.meaning {
            Meaning::Length(length) => Some(&length.number),
            Meaning::FrameCounter { number, .. }
            | Meaning::SlowCounter { number, .. }
            | Meaning::Clock { number, .. }
            | Meaning::Before { number, .. }
            | Meaning::Peer { number, .. } => Some(number),
            Meaning::Constant { .. } => None,
        }
    }
}

/// A number as a configuration names it: `u32be at 26`, with its mask.
pub(super) struct Named<'a>(pub(super) &'a Number);

impl fmt::Display for Named<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number { at, bytes, is_big_endian, mask, .. } = *self.0;
        let order = match (bytes, is_big_endian) {
            (1, _) => "",
            (_, true) => "be",
            (_, false) => "le",
        };
        write!(out, "u{}{order} at {at}", 8 * u32::from(bytes))?;
        mask.map_or(Ok(()), |mask| write!(out, " (mask {mask:#x})"))
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holds, of) = (self.holds, self.of);
        let shared = |is_shared: bool| if is_shared { ", and peers have the same numbers" } else { "" };
        match &self.meaning {
            Meaning::Length(length) => {
                write!(out, "{} is the length of {}", Named(&length.number), counted(length))?;
                write!(out, ": {holds} of {of} frames")
            }
            Meaning::FrameCounter { number, is_shared } => {
                let shared = shared(*is_shared);
                write!(out, "{} counts up by one per frame: {holds} of {of} times{shared}", Named(number))
            }
            Meaning::SlowCounter { number, is_shared, frames_each } => {
                write!(out, "{} counts up by one after {frames_each:.1} frames on average", Named(number))?;
                write!(out, ": {holds} of {of} times{}", shared(*is_shared))
            }
            Meaning::Clock { number, tick, error, wraps, is_shared } => {
                write!(out, "{} is a clock with a tick of {} ns", Named(number), Figure(*tick, *error))?;
                write!(out, ": {holds} of {of} times{}", shared(*is_shared))?;
                let Some(wraps) = wraps else { return Ok(()) };
                let what = if wraps.are_seconds() { "whole seconds" } else { "how often it began anew" };
                write!(out, "; {} counts {what} beside it", Named(&wraps.number))
            }
            Meaning::Before { number, of: other } => {
                write!(out, "{} is what {} was in the frame before: {holds} of {of} times", Named(number), Named(other))
            }
            Meaning::Constant { at, bytes } => {
                let text: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
                write!(out, "bytes {at} to {} are always{text}", at + bytes.len() - 1)?;
                if bytes.len() > 2 && bytes.iter().all(u8::is_ascii_graphic) {
                    write!(out, " (\"{}\")", String::from_utf8_lossy(bytes))?;
                }
                write!(out, ": {of} frames")
            }
            Meaning::Peer { number, values } => {
                let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
                write!(out, "{} tells peers apart: {}", Named(number), values.join(", "))
            }
        }
    }
}

/// What a length counts, in words.
fn counted(length: &Length) -> String {
    let unit = match length.unit {
        1 => String::new(),
        unit => format!(" in units of {unit} bytes"),
    };
    let what = match length.counts {
        Counts::Frame => "the frame".to_owned(),
        Counts::AfterField => "what follows it".to_owned(),
        Counts::Payload { header } => format!("what follows the first {header} bytes"),
    };
    let add = match length.add {
        0 => String::new(),
        add => format!(", {add:+} bytes"),
    };
    format!("{what}{unit}{add}")
}

/// A figure with as many digits as its error allows: `11.3569 +- 0.0003`.
struct Figure(f64, f64);

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, error) = *self;
        let digits = if error > 0.0 { (1.0 - error.log10()).ceil().clamp(0.0, 9.0) as usize } else { 9 };
        write!(out, "{value:.digits$} +- {error:.digits$}")
    }
}
