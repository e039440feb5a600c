//! Turns the machines on real settings and a real journal.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::journal::{self, JournalError, JournalFile};
use super::{Action, Answer, Application, Applied, Foreign, History, Machine, Undoing, Undone};
use crate::{Identity, Plan, Settings};

/// Whoever wants to see each action before it is done: its number from 1, and what it is.
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

/// Takes back what a journal holds. None where there is no journal.
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

/// What an open journal says; none where there is none. Nothing is locked and nothing is written.
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
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Counted in eras of 400 years that begin with March, so that leap days come last.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_219_199), "2026-11-20T23:59:59Z");
    }
}
