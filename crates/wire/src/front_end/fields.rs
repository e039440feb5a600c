//! Texts and lists in message bodies, each with its bound.

use crate::frame::{FrameError, Reader, Writer};

/// The most bytes of a reading's, a counter's or a cause's name, and of a unit.
pub const LARGEST_NAME_BYTES: usize = 64;
/// The most bytes of a text for people, and of an address.
pub const LARGEST_TEXT_BYTES: usize = 1024;
/// The most bytes of the settings.
pub const LARGEST_SETTINGS_BYTES: usize = 60 * 1024;
/// The most entries of a list of named numbers.
pub const MOST_NUMBERS: usize = 32;

/// A number with its name: a counter, or how often a cause vetoed a trigger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// At most [`LARGEST_NAME_BYTES`].
    pub name: String,
    /// How often.
    pub count: u64,
}

impl Writer<'_> {
    /// A text; what is longer than allowed is cut at a character's end.
    pub(super) fn text(&mut self, text: &str, most: usize) {
        let kept = &text[..text.floor_char_boundary(most)];
        self.u16(kept.len() as u16);
        self.bytes(kept.as_bytes());
    }

    /// Named numbers; those beyond [`MOST_NUMBERS`] are left out.
    pub(super) fn numbers(&mut self, numbers: &[Named]) {
        let kept = &numbers[..numbers.len().min(MOST_NUMBERS)];
        self.u16(kept.len() as u16);
        for number in kept {
            self.text(&number.name, LARGEST_NAME_BYTES);
            self.u64(number.count);
        }
    }
}

impl Reader<'_> {
    pub(super) fn text(&mut self, most: usize) -> Result<String, FrameError> {
        let length = usize::from(self.u16()?);
        if length > most {
            return Err(FrameError::Long);
        }
        let (text, rest) = self.0.split_at_checked(length).ok_or(FrameError::Short)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| FrameError::Meaning)
    }

    pub(super) fn numbers(&mut self) -> Result<Vec<Named>, FrameError> {
        let count = usize::from(self.u16()?);
        if count > MOST_NUMBERS {
            return Err(FrameError::Long);
        }
        (0..count).map(|_| Ok(Named { name: self.text(LARGEST_NAME_BYTES)?, count: self.u64()? })).collect()
    }
}
