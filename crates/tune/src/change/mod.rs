//! Changing the settings of a machine, and undoing the change.
//!
//! The state machines only decide: actions are polled, answers are inputs. If the process is killed between two
//! actions, the journal lets [`Undoing`] restore the old values.
//!
//! ```text
//! Plan --> Application --+                    +--> the settings (Place)
//!                        +--> Action <-Answer-+
//! History --> Undoing ---+                    +--> the journal (JournalFile)
//!    ^                                                  |
//!    +--------------------------------------------------+
//! ```
//!
//! A driver ([`apply`], [`undo`]) runs the state machines on real settings and a real journal.

mod application;
mod journal;
#[cfg(test)]
mod tests;
mod undoing;

use std::path::Path;
use std::time::SystemTime;

use crate::{Identity, Plan, Setting, Settings};
use ropewalk_terms::Utc;

pub use self::application::{Application, Applied, Failure, Trouble};
pub use self::journal::{JournalError, JournalFile};
pub use self::undoing::{Entry, Fate, Foreign, Held, History, Undoing, Undone};

/// What a machine wants to be done. Each is answered before the next one is polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The present value, in its normal form.
    Read(Setting),
    /// A value is written.
    Write(Setting, String),
    /// Lines are added to the journal, and are on the disk before this is answered.
    Journal(Vec<Entry>),
    /// Close the journal: nothing in it remains to be undone.
    PutAway,
}

/// How an action went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// What was read; `None` if the setting does not exist.
    Value(Option<String>),
    /// It is done.
    Done,
    /// It was refused, and why.
    Refused(String),
}

/// Something that decides what is done next.
pub trait Machine {
    /// The final result.
    type Outcome;

    /// The next action; `None` when it has finished.
    fn poll(&mut self) -> Option<Action>;

    /// How the last action went.
    fn on_answer(&mut self, answer: Answer);

    /// The result.
    fn outcome(self) -> Self::Outcome;
}

/// Called before each action is done, with the action and its number, from 1.
pub type Watch<'a> = &'a mut dyn FnMut(usize, &Action);

/// Applies a plan to a machine. A journal that is open is gone on with.
///
/// # Errors
/// When the journal cannot be used; then nothing was changed.
pub fn apply(
    plan: &Plan,
    place: &mut dyn Settings,
    identity: &Identity,
    file: &Path,
    now: SystemTime,
    watch: Watch<'_>,
) -> Result<Applied, JournalError> {
    let time = utc(now);
    let mut journal = JournalFile::open(file, identity, &time)?;
    let machine = Application::new(plan, identity, &time, journal.history().cloned());
    Ok(turn(machine, place, &mut journal, &time, watch))
}

/// Takes back what a journal holds. `None` if there is no journal.
///
/// # Errors
/// When the journal cannot be used; then nothing was taken back.
pub fn undo(
    place: &mut dyn Settings,
    identity: &Identity,
    file: &Path,
    now: SystemTime,
    foreign: Foreign,
    watch: Watch<'_>,
) -> Result<Option<Undone>, JournalError> {
    if history(file, identity)?.is_none() {
        return Ok(None);
    }
    let time = utc(now);
    let mut journal = JournalFile::open(file, identity, &time)?;
    let Some(history) = journal.history().cloned() else { return Ok(None) };
    let machine = Undoing::new(history, identity, &time, foreign);
    Ok(Some(turn(machine, place, &mut journal, &time, watch)))
}

/// What an open journal says; `None` if there is no journal. Locks and writes nothing.
///
/// # Errors
/// When the journal cannot be used.
pub fn history(file: &Path, identity: &Identity) -> Result<Option<History>, JournalError> {
    journal::look(file, identity)
}

fn turn<M: Machine>(
    mut machine: M,
    place: &mut dyn Settings,
    journal: &mut JournalFile,
    time: &str,
    watch: Watch<'_>,
) -> M::Outcome {
    let mut count = 0;
    while let Some(action) = machine.poll() {
        count += 1;
        watch(count, &action);
        let answer = match &action {
            Action::Read(setting) => place.read(setting).map(Answer::Value).map_err(|error| error.to_string()),
            Action::Write(setting, value) => done(place.write(setting, value)),
            Action::Journal(entries) => done(journal.append(entries)),
            Action::PutAway => done(journal.put_away(time)),
        };
        machine.on_answer(answer.unwrap_or_else(Answer::Refused));
    }
    machine.outcome()
}

fn done<E: std::error::Error>(result: Result<(), E>) -> Result<Answer, String> {
    result.map(|()| Answer::Done).map_err(|error| error.to_string())
}

/// A time such as 2026-11-23T16:20:05Z.
fn utc(time: SystemTime) -> String {
    let utc = Utc::from(time);
    format!("{}T{}Z", utc.date(), utc.time_of_day())
}
