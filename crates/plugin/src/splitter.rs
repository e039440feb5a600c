//! A splitter of a loaded library, called in the reading thread, and the check of the pieces that it returns.
#![allow(unsafe_code)]

use core::ffi::c_void;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal::{End, Journal, Nonsense};
use crate::library::{Destroy, EVENT, Library, PluginError, RawPiece, Split, SplitterTable, TIME, Text, text};
use ropewalk_flow::readout::Divides;
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece, PieceKey};

/// A splitter and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitterConfig {
    /// The library.
    pub library: PathBuf,
    /// Passed to its `create`.
    pub configuration: String,
    /// How pieces are assigned to events.
    pub keys: Keys,
    /// Maximum frame size, in bytes.
    pub max_frame: usize,
}

/// A splitter's answer for a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Number of pieces.
    Pieces(u64),
    /// The frame cannot be divided.
    Malformed,
}

/// A created splitter: calls the functions without checking the answers.
#[derive(Debug)]
pub(crate) struct Created {
    state: *mut c_void,
    split: Split,
    error: Option<Text>,
    destroy: Option<Destroy>,
    /// Keeps the functions in memory.
    _library: Library,
}

// SAFETY: calls for one state may come from changing threads, one after the other (ropewalk_splitter.h); they need `&mut`.
unsafe impl Send for Created {}

impl Created {
    /// Creates the splitter of a library.
    pub(crate) fn new(library: Library, configuration: &str) -> Result<Self, PluginError> {
        let table = library.table::<SplitterTable>()?;
        let missing = || PluginError::Missing { path: library.path().to_owned(), function: "split" };
        let split = table.split.ok_or_else(missing)?;
        let state = match table.create {
            // SAFETY: both texts are there during the call, and the second one has that much room.
            Some(create) => library.state(configuration, |text, error, room| unsafe { create(text, error, room) })?,
            None => core::ptr::null_mut(),
        };
        Ok(Self { state, split, error: table.error, destroy: table.destroy, _library: library })
    }

    /// Calls the splitter, which writes the pieces of a frame to `pieces`; the answer is not checked.
    pub(crate) fn split(&mut self, frame: &[u8], pieces: &mut [RawPiece]) -> Said {
        // SAFETY: the state is the one that this table's `create` returned, and is not destroyed before `self`; frame and
        // pieces are there during the call, with these lengths.
        let said = unsafe { (self.split)(self.state, frame.as_ptr(), frame.len(), pieces.as_mut_ptr(), pieces.len()) };
        u64::try_from(said).map_or(Said::Malformed, Said::Pieces)
    }

    /// Why the last frame could not be divided; empty if the splitter does not say.
    pub(crate) fn why(&mut self) -> String {
        // SAFETY: the state is there, as in `split`.
        self.error.map_or_else(String::new, |error| text(unsafe { error(self.state) }))
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the state is there, as in `split`, and is not used again.
            unsafe { destroy(self.state) }
        }
    }
}

/// A trusted splitter: see the module documentation.
#[derive(Debug)]
pub struct Splitter {
    created: Created,
    keys: Keys,
    /// Buffer for its pieces.
    written: Vec<RawPiece>,
    /// Buffer for frames that lie in several slices.
    scratch: Vec<u8>,
    copied: u64,
    journal: Journal,
}

impl Splitter {
    /// Loads the library and creates the splitter.
    ///
    /// # Errors
    /// If the library has no splitter of this version, or the splitter refuses its configuration.
    pub fn new(config: &SplitterConfig) -> Result<Self, PluginError> {
        let created = Created::new(Library::open(&config.library)?, &config.configuration)?;
        Ok(Self {
            created,
            keys: config.keys,
            written: vec![RawPiece::default(); MOST_PIECES],
            scratch: Vec::with_capacity(config.max_frame),
            copied: 0,
            journal: Journal::default(),
        })
    }

    /// Returns the journal of its impossible answers.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }
}

impl Divides for Splitter {
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        let bytes = match frame.contiguous() {
            Some(bytes) => bytes,
            None => {
                self.scratch.clear();
                frame.pieces().for_each(|piece| self.scratch.extend_from_slice(piece));
                self.copied += self.scratch.len() as u64;
                &self.scratch
            }
        };
        let checked = match self.created.split(bytes, &mut self.written) {
            Said::Malformed => return Some(Err(Cause::Malformed)),
            Said::Pieces(said) => match self.written.get(..usize::try_from(said).unwrap_or(usize::MAX)) {
                Some(written) => check(written.iter().copied(), frame.len(), self.keys, pieces),
                None => Err(Nonsense::Count { said, capacity: self.written.len() }),
            },
        };
        Some(checked.map_err(|nonsense| {
            self.journal.note(End::Nonsense(nonsense));
            Cause::SplitterFailed
        }))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}

/// How the pieces of a frame are identified.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// By event number.
    #[default]
    Events,
    /// By time; pieces with the same time form one event.
    Times,
}

/// Appends the pieces of a frame of this many bytes.
pub(crate) fn check(
    raw: impl Iterator<Item = RawPiece>,
    frame_bytes: usize,
    keys: Keys,
    pieces: &mut Vec<Piece>,
) -> Result<(), Nonsense> {
    let mut behind_last = 0;
    for (index, piece) in raw.enumerate() {
        let key = match (piece.kind, keys) {
            (EVENT, Keys::Events) => PieceKey::Event(piece.key),
            (TIME, Keys::Times) => PieceKey::Time(piece.key),
            (kind, _) => return Err(Nonsense::Kind { index, kind }),
        };
        let end = piece.offset.checked_add(piece.length).filter(|&end| end <= frame_bytes as u64);
        let Some(end) = end.filter(|_| piece.offset >= behind_last) else { return Err(Nonsense::Place { index }) };
        behind_last = end;
        pieces.push(Piece { key, offset: piece.offset as usize, length: piece.length as usize });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pieces: &[(u32, u64, u64)], keys: Keys) -> Result<Vec<Piece>, Nonsense> {
        let raw = pieces.iter().map(|&(kind, offset, length)| RawPiece { key: 5, offset, length, kind, reserved: 0 });
        let mut out = Vec::new();
        check(raw, 100, keys, &mut out).map(|()| out)
    }

    #[test]
    fn pieces_lie_one_behind_the_other_in_the_frame() {
        let good = checked(&[(0, 0, 10), (0, 10, 0), (0, 50, 50)], Keys::Events).expect("nothing is wrong");
        assert_eq!(good[2], Piece { key: PieceKey::Event(5), offset: 50, length: 50 });
        let wrong: [&[_]; 5] = [
            &[(0, 0, 101)],
            &[(0, 10, 10), (0, 19, 1)],
            &[(0, 10, 10), (0, 0, 5)],
            &[(0, u64::MAX, 2)],
            &[(0, 2, u64::MAX)],
        ];
        for pieces in wrong {
            let index = pieces.len() - 1;
            assert_eq!(checked(pieces, Keys::Events), Err(Nonsense::Place { index }), "{pieces:?}");
        }
    }

    #[test]
    fn keys_are_of_the_sort_that_is_configured() {
        assert_eq!(checked(&[(1, 0, 1)], Keys::Times).map(|all| all[0].key), Ok(PieceKey::Time(5)));
        assert_eq!(checked(&[(1, 0, 1)], Keys::Events), Err(Nonsense::Kind { index: 0, kind: 1 }));
        assert_eq!(checked(&[(0, 0, 1)], Keys::Times), Err(Nonsense::Kind { index: 0, kind: 0 }));
        assert_eq!(checked(&[(7, 0, 1)], Keys::Events), Err(Nonsense::Kind { index: 0, kind: 7 }));
    }
}
