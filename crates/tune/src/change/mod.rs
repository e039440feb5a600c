//! Changing a machine, and taking it back.
//!
//! The machines decide and do nothing else: actions are polled out, answers go in. Whoever is killed between two of
//! them leaves a journal by which [`Undoing`] brings back what was there before.
//!
//! ```text
//! Plan --> Application --+                    +--> the settings (Place)
//!                        +--> Action <-Answer-+
//! History --> Undoing ---+                    +--> the journal (JournalFile)
//!    ^                                                  |
//!    +--------------------------------------------------+
//! ```

mod application;
mod bringing;
mod driver;
mod history;
mod journal;
#[cfg(test)]
mod tests;
mod undoing;

pub use application::{Application, Applied, Failure};
pub use bringing::Trouble;
pub use driver::{Watch, apply, history, undo};
pub use history::{Entry, Held, History};
pub use journal::{JournalError, JournalFile};
pub use undoing::{Fate, Foreign, Undoing, Undone};

use crate::Setting;

/// What a machine wants to be done. Each is answered before the next one is polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The present value, in its normal form.
    Read(Setting),
    /// A value is written.
    Write(Setting, String),
    /// Lines are added to the journal, and are on the disk before this is answered.
    Journal(Vec<Entry>),
    /// The journal is put away: nothing in it has to be taken back any more.
    PutAway,
}

/// How an action went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// What was read; none where there is no such setting.
    Value(Option<String>),
    /// It is done.
    Done,
    /// It was refused, and why.
    Refused(String),
}

/// Something that decides what is done next.
pub trait Machine {
    /// What it has come to at its end.
    type Outcome;

    /// What is to be done next; none when it has finished.
    fn poll(&mut self) -> Option<Action>;

    /// How the last action went.
    fn on_answer(&mut self, answer: Answer);

    /// What it has come to.
    fn outcome(self) -> Self::Outcome;
}
