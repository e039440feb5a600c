//! What a plug-in did wrong, and why its processes ended: written by the thread that uses it, read by the thread that
//! reports it.

use crate::confinement::Ending;
use crate::filter;
use crate::splitter::Nonsense;
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
    Decision(filter::Nonsense),
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
