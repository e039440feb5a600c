//! What came of a trial.

use super::board::{Board, BoardAccount};
use core::ops::Range;
use std::collections::BTreeMap;

/// Boards that are told apart; what further ones send is told with the last of them.
const MOST_BOARDS: usize = 4096;

/// What came of a trial.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrialAccount {
    /// Datagrams, where there were any.
    pub datagrams: u64,
    /// Bytes that belong to no frame.
    pub skipped_bytes: u64,
    /// Bytes that the format means to stand between frames.
    pub filler_bytes: u64,
    /// Bytes at the end that are no whole frame.
    pub left_over_bytes: u64,
    /// Frames of which only some of their datagrams came.
    pub unfinished_frames: u64,
    /// What was lost, by the cause's name.
    pub faults: BTreeMap<&'static str, u64>,
    /// What each board sent.
    pub boards: Vec<(Board, BoardAccount)>,
    /// Frames of boards that are not the source's.
    pub other_frames: u64,
    /// Places where something was not as the description wants it.
    pub bad_places: u64,
    /// The first of them.
    pub first_bad: Option<BadPlace>,
}

/// Where something was not as the description wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPlace {
    /// The key of the rule that failed, such as `frame.length`; `format` where a format has a name.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// Where the frame, or what should be one, begins in the input.
    pub offset: u64,
    /// Bytes around it.
    pub bytes: Vec<u8>,
    /// How many of them stand before it.
    pub before: usize,
    /// Which bytes the rule looks at, counted from where the frame begins; none where it looks at all of them.
    pub marked: Option<Range<usize>>,
}

impl TrialAccount {
    /// Whole frames.
    pub fn frames(&self) -> u64 {
        self.boards.iter().map(|(_, account)| account.frames).sum()
    }

    /// Whether every byte belongs to a frame whose checksum, if it has one, is right.
    pub fn is_intact(&self) -> bool {
        let wrong = self.boards.iter().map(|(_, account)| account.wrong_checksums).sum::<u64>();
        self.faults.is_empty() && self.skipped_bytes + self.left_over_bytes + wrong == 0
    }

    /// Whether no frame is missing, doubled or out of its order.
    pub fn is_complete(&self) -> bool {
        self.unfinished_frames == 0
            && self.boards.iter().all(|(_, account)| account.counted().is_none_or(|numbers| numbers.is_gapless()))
    }

    pub(super) fn board(&mut self, board: Board) -> &mut BoardAccount {
        let index = match self.boards.iter().position(|(known, _)| *known == board) {
            Some(index) => index,
            None if self.boards.len() == MOST_BOARDS => MOST_BOARDS - 1,
            None => {
                self.boards.push((board, BoardAccount::default()));
                self.boards.len() - 1
            }
        };
        &mut self.boards[index].1
    }
}
