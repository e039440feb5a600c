//! What a plug-in did wrong, and why its processes ended: written by the thread that uses it, read by the thread that
//! reports it.

use crate::confinement::Ending;
use ropewalk_terms::{Attempt, EventKey};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends of different sorts that are kept; the others are counted.
const MOST_KEPT: usize = 10;

/// Why a process has ended, or what went wrong before there was one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It could not be started.
    NotStarted(String),
    /// It said that it cannot work.
    NotReady(String),
    /// It was not ready in time, and was ended.
    SlowStart,
    /// It took too long over a frame or an event, and was ended.
    Slow,
    /// What it said of a frame cannot be true, and its process was ended.
    Nonsense(Nonsense),
    /// What it decided on an event cannot be true, and its process was ended.
    Decision(WrongDecision),
    /// It closed what is spoken to it over, and was ended.
    Deaf,
    /// It ended.
    Ended(Ending),
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => write!(out, "it cannot be started: {why}"),
            Self::NotReady(why) => out.write_str(why),
            Self::SlowStart => out.write_str("it was not ready in time"),
            Self::Slow => out.write_str("it took longer than `timeout`"),
            Self::Nonsense(nonsense) => write!(out, "what it said cannot be true: {nonsense}"),
            Self::Decision(nonsense) => write!(out, "what it decided cannot be true: {nonsense}"),
            Self::Deaf => out.write_str("it closed the socket over which it is spoken to"),
            Self::Ended(ending) => ending.fmt(out),
        }
    }
}

/// Why what a splitter said of a frame cannot be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nonsense {
    /// More pieces than there was room for.
    #[error("it says that it wrote {said} pieces, and there was room for {capacity}")]
    Count {
        /// What it returned.
        said: u64,
        /// The room.
        capacity: usize,
    },
    /// A piece that does not lie in the frame, or not behind the one before it.
    #[error("piece {index} does not lie in the frame, or begins before the end of the one before it")]
    Place {
        /// Which one, from 0 on.
        index: usize,
    },
    /// A piece with a key of another sort than the configuration says.
    #[error("piece {index} has a key of kind {kind}, and the key `keys` of the source says another one")]
    Kind {
        /// Which one, from 0 on.
        index: usize,
        /// Its kind.
        kind: u32,
    },
}

/// Why what a filter decided cannot be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WrongDecision {
    /// It did not answer in the order in which it was asked.
    #[error("where the decision on its event {expected} belongs it wrote one on event {found}")]
    Order {
        /// Which decision was due, counted from 1 on since the process began.
        expected: u64,
        /// Which one it said it is.
        found: u64,
    },
    /// It decided though it was not asked.
    #[error("it decided on an event that it was not given")]
    Unasked,
    /// The decision is on another event than was due.
    #[error("it decided on event {said}, attempt {said_attempt}, and event {due}, attempt {attempt}, was due")]
    Event {
        /// The event that was due.
        due: EventKey,
        /// Its attempt.
        attempt: Attempt,
        /// The event that it decided on.
        said: EventKey,
        /// Its attempt.
        said_attempt: u32,
    },
    /// A result that is longer than it may be, or does not lie where results lie.
    #[error("it says that its result has {length} bytes from {at} on, and there is room for 65536 of them")]
    Result {
        /// Where it begins.
        at: u64,
        /// Its bytes.
        length: u32,
    },
    /// More fills than there may be, or where none lie.
    #[error("it says that it filled in {count} values behind the result at {at}, and there is room for 256 of them")]
    Fills {
        /// Where its result begins.
        at: u64,
        /// How many they are.
        count: u16,
    },
    /// An answer of no sort that there is.
    #[error("it answered with the flags {flags:#x}, which mean nothing")]
    Flags {
        /// What it answered.
        flags: u32,
    },
}

#[derive(Debug, Default)]
struct Kept {
    /// In the order in which they happened first, each with how often.
    ends: Vec<(End, u64)>,
    beyond: u64,
}

/// What is kept of the ends. Its copies are the same journal.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Kept>>);

impl Journal {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, end: End) {
        let mut kept = self.kept();
        if let Some((_, times)) = kept.ends.iter_mut().find(|(known, _)| *known == end) {
            *times += 1;
        } else if kept.ends.len() < MOST_KEPT {
            kept.ends.push((end, 1));
        } else {
            kept.beyond += 1;
        }
    }

    /// The ends, each sort once with how often it happened, in the order in which they happened first.
    pub fn ends(&self) -> Vec<(End, u64)> {
        self.kept().ends.clone()
    }

    /// Ends for whose sort there was no room.
    pub fn beyond(&self) -> u64 {
        self.kept().beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_end_is_kept_once_and_of_others_no_more_than_there_is_room_for() {
        let journal = Journal::default();
        let reader = journal.clone();
        for _ in 0..3 {
            journal.note(End::Slow);
        }
        for index in 0..12 {
            journal.note(End::Nonsense(Nonsense::Place { index }));
        }
        let ends = reader.ends();
        assert_eq!((&ends[0], ends.len(), reader.beyond()), (&(End::Slow, 3), 10, 3));
    }
}
