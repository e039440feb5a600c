//! What a board sent.

use super::intervals::Intervals;
use super::numbers::Numbers;
use core::fmt;
use core::net::IpAddr;
use ropewalk_terms::Utc;

/// Which board: by its address, and by the number that tells boards apart.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Board {
    /// The address; none of a file.
    pub from: Option<IpAddr>,
    /// The number in its frames; none where they have none.
    pub number: Option<u64>,
}

/// The board of a source, where several boards send to one place or into one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnBoard {
    /// It has one of these numbers.
    Numbers(Vec<u64>),
    /// It has one of these addresses.
    Addresses(Vec<IpAddr>),
    /// It is the one that appears after so many others.
    InOrder(usize),
}

impl OwnBoard {
    /// Whether this is the board, which appeared after `others` others.
    pub fn is(&self, board: &Board, others: usize) -> bool {
        match self {
            Self::Numbers(numbers) => board.number.is_some_and(|number| numbers.contains(&number)),
            Self::Addresses(addresses) => board.from.is_some_and(|from| addresses.contains(&from)),
            Self::InOrder(order) => *order == others,
        }
    }
}

impl fmt::Display for Board {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.number) {
            (None, None) => out.write_str("all"),
            (Some(from), None) => from.fmt(out),
            (None, Some(number)) => write!(out, "board {number}"),
            (Some(from), Some(number)) => write!(out, "{from}, board {number}"),
        }
    }
}

/// What a board sent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BoardAccount {
    /// Whole frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: usize,
    /// Bytes of the longest one.
    pub most_bytes: usize,
    /// The frames' own numbers.
    pub sequence: Numbers,
    /// The events' numbers.
    pub event: Numbers,
    /// How far apart frames are by the board's clock.
    pub intervals: Intervals,
    /// When the first and the last frame came.
    pub arrivals: Option<(Utc, Utc)>,
    /// Frames whose checksum is right.
    pub right_checksums: u64,
    /// Frames whose checksum is wrong.
    pub wrong_checksums: u64,
}

impl BoardAccount {
    pub(super) fn add(&mut self, length: usize, time: Option<Utc>) {
        self.least_bytes = if self.frames == 0 { length } else { self.least_bytes.min(length) };
        self.most_bytes = self.most_bytes.max(length);
        self.frames += 1;
        self.bytes += length as u64;
        if let Some(time) = time {
            let (first, _) = self.arrivals.unwrap_or((time, time));
            self.arrivals = Some((first, time));
        }
    }

    /// The numbers that should be one more each time: those of frames before those of events.
    pub fn counted(&self) -> Option<&Numbers> {
        [&self.sequence, &self.event].into_iter().find(|numbers| numbers.first.is_some())
    }
}
