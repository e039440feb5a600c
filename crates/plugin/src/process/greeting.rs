//! The messages between the two processes: each is one packet of the socket.
//!
//! ```text
//!  greeting  memory u64 | longest frame u64 | starter's process u32 | length of the path u32 | path | configuration
//!            with the descriptors of both memories                                              -> process
//!  ready     "R" and what the system lacks, 1: seccomp, 2: landlock                             <- process
//!            or "E" and a text that says why not
//!  ask       first u64 | count u64                                                              -> process
//!  done      "D"                                                                                <- process
//! ```
//! Numbers are little-endian: both sides are the same program.

use crate::confinement::{Missing, WORDS_BYTES};
use crate::table::RawPiece;
use ropewalk_wire::framing::MOST_PIECES;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::MOST_FRAMES;

/// The longest greeting, in bytes.
pub(super) const MOST_GREETING: usize = 64 << 10;
/// The longest text that says why the process is not ready.
pub(super) const MOST_TEXT: usize = 4096;

const HEAD: usize = 24;

/// What a process is told first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Greeting {
    /// Bytes of memory that it may take beside the shared ones.
    pub(super) memory: u64,
    pub(super) max_frame: u64,
    /// Who started it.
    pub(super) starter: u32,
    pub(super) library: PathBuf,
    pub(super) configuration: String,
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        let library = self.library.as_os_str().as_bytes();
        let mut out = Vec::with_capacity(HEAD + library.len() + self.configuration.len());
        out.extend_from_slice(&self.memory.to_le_bytes());
        out.extend_from_slice(&self.max_frame.to_le_bytes());
        out.extend_from_slice(&self.starter.to_le_bytes());
        out.extend_from_slice(&(library.len() as u32).to_le_bytes());
        out.extend_from_slice(library);
        out.extend_from_slice(self.configuration.as_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (memory, rest) = bytes.split_first_chunk()?;
        let (max_frame, rest) = rest.split_first_chunk()?;
        let (starter, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (library, configuration) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self {
            memory: u64::from_le_bytes(*memory),
            max_frame: u64::from_le_bytes(*max_frame),
            starter: u32::from_le_bytes(*starter),
            library: Path::new(&OsString::from_vec(library.to_vec())).to_owned(),
            configuration: String::from_utf8(configuration.to_vec()).ok()?,
        })
    }
}

/// The process is ready, and goes without that.
pub(super) fn ready(missing: Missing) -> [u8; 2] {
    [b'R', u8::from(missing.seccomp) | u8::from(missing.landlock) << 1]
}

/// What a process goes without that is ready; `told` is what follows the letter.
pub(super) fn missing_of(told: &[u8]) -> Missing {
    let bits = told.first().copied().unwrap_or(0);
    Missing { seccomp: bits & 1 != 0, landlock: bits & 2 != 0 }
}

/// Where everything lies in the two memories.
#[derive(Copy, Clone, Debug)]
pub(super) struct Places {
    max_frame: usize,
}

/// Bytes of a table: an entry for each frame, and what is counted.
const TABLE: usize = 4096;
const ENTRY: usize = 16;
/// In the answers: how many frames of the batch are done.
pub(super) const DONE: usize = 0;
/// In the answers: why the process ended.
pub(super) const LAST_WORDS: usize = TABLE - WORDS_BYTES;

impl Places {
    /// For frames of at most so many bytes; none where so long ones do not fit into memory.
    pub(super) fn new(max_frame: u64) -> Option<Self> {
        let most = usize::try_from(max_frame).ok()?.max(1).checked_next_multiple_of(64)?;
        most.checked_mul(MOST_FRAMES)?.checked_add(TABLE)?;
        Some(Self { max_frame: most })
    }

    /// Bytes of the memory for frames.
    pub(super) const fn frames_bytes(self) -> usize {
        TABLE + MOST_FRAMES * self.max_frame
    }

    /// Bytes of the memory for answers.
    pub(super) const fn answers_bytes() -> usize {
        TABLE + MOST_FRAMES * MOST_PIECES * size_of::<RawPiece>()
    }

    /// In the frames: where the length of this one stands.
    pub(super) const fn length(index: usize) -> usize {
        ENTRY * index
    }

    /// In the frames: where this one begins.
    pub(super) const fn frame(self, index: usize) -> usize {
        TABLE + index * self.max_frame
    }

    /// In the answers: where it stands what was said of this frame.
    pub(super) const fn said(index: usize) -> usize {
        ENTRY * (index + 1)
    }

    /// In the answers: where this frame's pieces begin.
    pub(super) const fn pieces(index: usize) -> usize {
        TABLE + index * MOST_PIECES * size_of::<RawPiece>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        let (library, configuration) = (PathBuf::from("/lib/a b.so"), "threshold = 7 # \u{e4}".to_owned());
        let greeting = Greeting { memory: 1 << 40, max_frame: 9000, starter: 77, library, configuration };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        assert!((0..35).all(|cut| Greeting::decode(&bytes[..cut]).is_none()), "one that is cut is none");
    }

    #[test]
    fn what_is_missing_is_told() {
        for (seccomp, landlock) in [(false, false), (true, false), (false, true), (true, true)] {
            let missing = Missing { seccomp, landlock };
            assert_eq!(missing_of(&ready(missing)[1..]), missing);
        }
    }

    #[test]
    fn nothing_overlaps() {
        let places = Places::new(1500).expect("that is little");
        assert!(Places::length(MOST_FRAMES) <= TABLE && Places::said(MOST_FRAMES) <= LAST_WORDS);
        assert_eq!(places.frame(1) - places.frame(0), 1536);
        assert_eq!(places.frame(MOST_FRAMES), places.frames_bytes());
        assert_eq!(Places::pieces(MOST_FRAMES), Places::answers_bytes());
        assert!(Places::new(u64::MAX).is_none());
    }
}
