//! What happened, in the order in which it did: state changes, runs, incidents.

use crate::configuration::LogLevel;
use ropewalk_terms::{RunNumber, Utc};
use std::collections::VecDeque;

/// What kind of thing happened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// The state changed.
    State,
    /// Somebody gave a command, or the controls changed hands.
    Command,
    /// A command could not be carried out, or nothing goes on.
    Fault,
    /// Something is not as it should be, and the run goes on.
    Incident,
}

impl EntryKind {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Command => "command",
            Self::Fault => "fault",
            Self::Incident => "incident",
        }
    }

    /// From which level on it is told.
    const fn level(self) -> LogLevel {
        match self {
            Self::Fault => LogLevel::Error,
            Self::Incident => LogLevel::Warning,
            Self::State | Self::Command => LogLevel::Info,
        }
    }
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// They are numbered from 1.
    pub number: u64,
    /// When, in nanoseconds since 1970 UTC.
    pub at_ns: i64,
    /// What kind of thing.
    pub kind: EntryKind,
    /// During which run; null outside of runs.
    pub run: Option<u32>,
    /// Who gave the command, as they call themselves; none where the program did it.
    pub by: Option<String>,
    /// For people.
    pub text: String,
    /// The log level that held then has it.
    pub is_told: bool,
}

/// Entries that are kept; older ones are forgotten.
const MOST: usize = 1000;

/// The last entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    last: u64,
    level: LogLevel,
}

impl Journal {
    /// What is told of what is added from now on.
    pub(super) const fn set_level(&mut self, level: LogLevel) {
        self.level = level;
    }

    pub(super) fn add(&mut self, at: Utc, kind: EntryKind, run: Option<RunNumber>, by: Option<&str>, text: String) {
        self.last += 1;
        let (run, by) = (run.map(|run| run.0), by.filter(|by| !by.is_empty()).map(str::to_owned));
        let is_told = kind.level() <= self.level;
        self.entries.push_back(Entry { number: self.last, at_ns: at.0, kind, run, by, text, is_told });
        if self.entries.len() > MOST {
            self.entries.pop_front();
        }
    }

    /// The number of the last entry.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Those behind the one with this number, the oldest first.
    pub(super) fn after(&self, number: u64) -> Vec<Entry> {
        let known = self.entries.iter().rev().take_while(|entry| entry.number > number).count();
        self.entries.iter().skip(self.entries.len() - known).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_forgotten_and_numbers_go_on() {
        let mut journal = Journal::default();
        for number in 1..=MOST as i64 + 5 {
            journal.add(Utc(number), EntryKind::State, None, None, number.to_string());
        }
        let all = journal.after(0);
        assert_eq!((all.len(), all[0].number, journal.last()), (MOST, 6, MOST as u64 + 5));
        let last: Vec<_> = journal.after(MOST as u64 + 3).into_iter().map(|entry| entry.text).collect();
        assert_eq!(last, ["1004", "1005"]);
        assert_eq!(journal.after(u64::MAX), []);
    }
}
