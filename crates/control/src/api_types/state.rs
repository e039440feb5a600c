//! Where the sequence of runs is, and what was done to it.

use super::Holder;
use ropewalk_node::session::{Answer, Command, Entry, SessionView, Told};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Where a sequence of runs is.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct State {
    /// When it was so, in nanoseconds since 1970 UTC.
    pub(crate) at_ns: i64,
    /// `initial`, `configured`, `running`, `paused`, `draining`, `error`, `over`.
    pub(crate) state: &'static str,
    /// Since when, in nanoseconds since 1970 UTC.
    pub(crate) since_ns: i64,
    /// What is being done: `prepare`, `begin`, `pause`, `resume`, `drain`, `force`, `close`, `discard`; null where nothing is.
    pub(crate) task: Option<&'static str>,
    /// Commands that can be given now.
    pub(crate) allowed: Vec<&'static str>,
    /// What was wrong last; null where nothing was.
    pub(crate) trouble: Option<String>,
    /// The run that is set up or under way.
    pub(crate) run: Option<u32>,
    /// Its directory.
    pub(crate) directory: Option<String>,
    /// How long it has gone on, in seconds.
    pub(crate) age_s: f64,
    /// The operator whose commands alone are heard; null where everybody's are.
    pub(crate) operator: Option<Holder>,
    /// What has to be said of a run when it is started, with `field=NAME=VALUE`.
    pub(crate) required_fields: Vec<String>,
    /// What was said of the run that is under way.
    pub(crate) fields: BTreeMap<String, String>,
    /// The number of the last entry in the journal.
    pub(crate) last_entry: u64,
}

impl State {
    pub(crate) fn of(view: &SessionView) -> Self {
        Self {
            at_ns: view.at.0,
            state: view.state.name(),
            since_ns: view.since.0,
            task: view.task.map(ropewalk_node::session::Task::name),
            allowed: view.allowed().iter().map(|command| command.name()).collect(),
            trouble: view.trouble.clone(),
            run: view.run.map(|run| run.0),
            directory: view.directory.as_ref().map(|directory| directory.display().to_string()),
            age_s: view.age.as_secs_f64(),
            operator: view.operator.as_ref().map(Holder::of),
            required_fields: view.required_fields.to_vec(),
            fields: view.fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            last_entry: view.last_entry,
        }
    }
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Reply {
    /// The command.
    pub(crate) command: &'static str,
    /// `done`, `already_so`, `not_now`, `refused`, `failed`, `overtaken`, `held_by_another`.
    pub(crate) answer: &'static str,
    /// The state now.
    pub(crate) state: &'static str,
    /// What there is to say beside it.
    pub(crate) text: Option<String>,
    /// Commands that can be given now.
    pub(crate) allowed: Vec<&'static str>,
}

impl Reply {
    pub(crate) fn of(told: Told) -> Self {
        let Told { command, answer, state, text } = told;
        let allowed = state.allowed().iter().map(|command| command.name()).collect();
        Self { command: command.name(), answer: answer.name(), state: state.name(), text, allowed }
    }

    /// The status that says the same.
    pub(crate) const fn status(answer: Answer) -> u16 {
        match answer {
            Answer::Done | Answer::AlreadySo => 200,
            Answer::NotNow(_) | Answer::Refused | Answer::Overtaken | Answer::HeldByAnother => 409,
            Answer::Failed(_) => 500,
        }
    }
}

/// Something that cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What, why, and what would have been right.
    pub(crate) error: String,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct JournalEntry {
    /// They are numbered from 1.
    number: u64,
    /// When, in nanoseconds since 1970 UTC.
    at_ns: i64,
    /// `state`, `command`, `fault`, `incident`.
    kind: &'static str,
    /// During which run.
    run: Option<u32>,
    /// For people.
    text: String,
}

impl JournalEntry {
    pub(crate) fn of(entry: Entry) -> Self {
        Self { number: entry.number, at_ns: entry.at_ns, kind: entry.kind.name(), run: entry.run, text: entry.text }
    }
}

/// The names that a command may have.
pub(crate) fn command_names() -> String {
    let names: Vec<_> = Command::ALL.iter().map(|command| command.name()).collect();
    names.join(", ")
}
