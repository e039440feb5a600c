//! Records what a plug-in did wrong and why its processes ended. The thread that uses the plug-in writes it; the thread that
//! reports reads it.

use crate::confinement::Ending;
use ropewalk_terms::{Attempt, EventKey};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of distinct ends that are kept; further ones are only counted.
const MOST_KEPT: usize = 10;

/// Why a process ended, or what failed before it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It could not be started.
    NotStarted(String),
    /// It reported that it cannot work.
    NotReady(String),
    /// It was not ready in time and was killed.
    SlowStart,
    /// It took too long for a frame or an event and was killed.
    Slow,
    /// Its answer for a frame is impossible; it was killed.
    Nonsense(Nonsense),
    /// Its decision on an event is impossible; it was killed.
    Decision(WrongDecision),
    /// It closed its connection and was killed.
    Deaf,
    /// It ended by itself.
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

/// Why a splitter's answer for a frame is impossible.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nonsense {
    /// More pieces than there was room for.
    #[error("it says that it wrote {said} pieces, and there was room for {capacity}")]
    Count {
        /// The number that it returned.
        said: u64,
        /// The capacity.
        capacity: usize,
    },
    /// A piece outside the frame, or not after the piece before it.
    #[error("piece {index} does not lie in the frame, or begins before the end of the one before it")]
    Place {
        /// Index of the piece, from 0.
        index: usize,
    },
    /// A piece whose key is not of the configured kind.
    #[error("piece {index} has a key of kind {kind}, and the key `keys` of the source says another one")]
    Kind {
        /// Index of the piece, from 0.
        index: usize,
        /// Its kind.
        kind: u32,
    },
}

/// Why a filter's decision is impossible.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WrongDecision {
    /// The answers are not in the order of the requests.
    #[error("where the decision on its event {expected} belongs it wrote one on event {found}")]
    Order {
        /// Sequence number of the expected decision, from 1 since the process started.
        expected: u64,
        /// Sequence number in the answer.
        found: u64,
    },
    /// A decision without a request.
    #[error("it decided on an event that it was not given")]
    Unasked,
    /// The decision concerns another event than the expected one.
    #[error("it decided on event {said}, attempt {said_attempt}, and event {due}, attempt {attempt}, was due")]
    Event {
        /// The expected event.
        due: EventKey,
        /// Its attempt.
        attempt: Attempt,
        /// The event in the decision.
        said: EventKey,
        /// Its attempt.
        said_attempt: u32,
    },
    /// A result that is too long or lies outside the memory for results.
    #[error("it says that its result has {length} bytes from {at} on, and there is room for 65536 of them")]
    Result {
        /// Offset of the result.
        at: u64,
        /// Its length in bytes.
        length: u32,
    },
    /// Too many histogram fills, or fills outside the memory for results.
    #[error("it says that it filled in {count} values behind the result at {at}, and there is room for 256 of them")]
    Fills {
        /// Offset of the result.
        at: u64,
        /// Number of fills.
        count: u16,
    },
    /// Unknown flags in the answer.
    #[error("it answered with the flags {flags:#x}, which mean nothing")]
    Flags {
        /// The flags.
        flags: u32,
    },
}

#[derive(Debug, Default)]
struct Kept {
    /// In the order of their first occurrence, each with its number of occurrences.
    ends: Vec<(End, u64)>,
    beyond: u64,
}

/// A shared journal: copies refer to the same entries.
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

    /// Returns the distinct ends with their numbers of occurrences, in the order of their first occurrence.
    pub fn ends(&self) -> Vec<(End, u64)> {
        self.kept().ends.clone()
    }

    /// Returns the number of ends that were counted but not kept.
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
