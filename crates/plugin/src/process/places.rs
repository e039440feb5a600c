//! Where everything lies in the memories that a splitter's process and the one who reads share.

use super::MOST_FRAMES;
use crate::confinement::WORDS_BYTES;
use crate::table::RawPiece;
use ropewalk_wire::framing::MOST_PIECES;

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
    fn nothing_overlaps() {
        let places = Places::new(1500).expect("that is little");
        assert!(Places::length(MOST_FRAMES) <= TABLE && Places::said(MOST_FRAMES) <= LAST_WORDS);
        assert_eq!(places.frame(1) - places.frame(0), 1536);
        assert_eq!(places.frame(MOST_FRAMES), places.frames_bytes());
        assert_eq!(Places::pieces(MOST_FRAMES), Places::answers_bytes());
        assert!(Places::new(u64::MAX).is_none());
    }
}
