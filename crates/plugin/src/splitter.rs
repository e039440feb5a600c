//! A splitter of a loaded library, called in the thread that reads.
#![allow(unsafe_code)]

use crate::error::PluginError;
use crate::journal::{End, Journal};
use crate::library::{Library, text};
use crate::pieces::{Keys, Nonsense, check};
use crate::table::{Destroy, RawPiece, Split, SplitterTable, Text};
use core::ffi::c_void;
use ropewalk_flow::readout::Divides;
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece};
use std::path::PathBuf;

/// Which splitter, and what it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitterConfig {
    /// The library.
    pub library: PathBuf,
    /// Handed to its `create`.
    pub configuration: String,
    /// What its pieces are kept apart by.
    pub keys: Keys,
    /// The longest frame that it gets, in bytes.
    pub max_frame: usize,
}

/// What a splitter said of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// So many pieces.
    Pieces(u64),
    /// It cannot be divided.
    Malformed,
}

/// A splitter that was created and not yet destroyed: the functions alone, without a look at what they say.
#[derive(Debug)]
pub(crate) struct Created {
    state: *mut c_void,
    split: Split,
    error: Option<Text>,
    destroy: Option<Destroy>,
    /// Holds the functions in memory.
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

    /// Lets it write the pieces of a frame to `pieces`; what it says is not checked.
    pub(crate) fn split(&mut self, frame: &[u8], pieces: &mut [RawPiece]) -> Said {
        // SAFETY: the state is the one that this table's `create` returned, and is not destroyed before `self`; frame and
        // pieces are there during the call, with these lengths.
        let said = unsafe { (self.split)(self.state, frame.as_ptr(), frame.len(), pieces.as_mut_ptr(), pieces.len()) };
        u64::try_from(said).map_or(Said::Malformed, Said::Pieces)
    }

    /// Why the last frame could not be divided; empty where it does not say it.
    pub(crate) fn why(&mut self) -> String {
        // SAFETY: the state is there, as in `split`.
        self.error.map_or_else(String::new, |error| text(unsafe { error(self.state) }))
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the state is there, as in `split`, and nobody uses it again.
            unsafe { destroy(self.state) }
        }
    }
}

/// A trusted splitter: see the module's text.
#[derive(Debug)]
pub struct Splitter {
    created: Created,
    keys: Keys,
    /// Where it writes.
    written: Vec<RawPiece>,
    /// For frames that do not lie in one piece.
    scratch: Vec<u8>,
    copied: u64,
    journal: Journal,
}

impl Splitter {
    /// Loads and creates it.
    ///
    /// # Errors
    /// Where the library is no splitter of this version, or does not want to.
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

    /// What it said of frames that cannot be true.
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
