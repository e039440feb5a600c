//! Who is told what a frame consists of.

use crate::framing::Framing;
use core::fmt::{Arguments, Display, Formatter, Result};

/// What a field holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A count, an id, a time.
    Number(u64),
    /// A pattern of bits.
    Hex(u64),
    /// A text, or the name that a number stands for.
    Text(&'a str),
}

impl Display for Value<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Hex(number) => write!(out, "{number:#x}"),
            Self::Text(text) => write!(out, "{}", text.escape_debug()),
        }
    }
}

/// Is told what stands in a frame, from its front to its end.
pub trait Inspector {
    /// What the frame is: `event`, `begin of run`.
    fn kind(&mut self, name: &str);

    /// A field of a header: its name, where it stands in the frame, how long it is, and what it holds.
    fn field(&mut self, name: &str, at: usize, bytes: usize, value: Value<'_>);

    /// A part: what it is called (parts of one kind are counted together), where it stands and how long it is.
    fn part(&mut self, name: Arguments<'_>, at: usize, bytes: usize);

    /// Whether a text for every small part is wanted: putting them together takes time.
    fn wants_details(&self) -> bool {
        false
    }

    /// The frame contradicts itself there.
    fn fault(&mut self, at: usize, what: &'static str);
}

/// What a frame says of those that follow it in its file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// How many there are, to the file's end or to the next frame that says so.
    pub frames: u64,
    /// How many bytes there are until then, those of the frame that says so included.
    pub bytes: u64,
}

/// A format that can say what a frame consists of.
pub trait Describe: Framing {
    /// Whether bytes begin as this format does. Some kilobytes from a file's beginning are enough; a datagram should be whole.
    fn looks_like(&self, first: &[u8]) -> bool;

    /// Tells everything that a frame holds. Any bytes may be shown: what contradicts itself is a fault, and ends the telling
    /// where nothing behind it can be trusted.
    fn describe(&self, frame: &[u8], to: &mut dyn Inspector);

    /// Whether the frame only goes on with what an earlier one began: then its event number is no new one.
    fn goes_on(&self, frame: &[u8]) -> bool {
        self.fields(frame).goes_on()
    }

    /// Whether bytes that belong to no frame are something that the format's files put between frames.
    fn is_filler(&self, skipped: &[u8]) -> bool {
        let _ = skipped;
        false
    }

    /// What a frame says of the file that it begins, where it is a file's header and no event.
    fn announces(&self, frame: &[u8]) -> Option<Announced> {
        let _ = frame;
        None
    }
}
