//! Sources that take part, the operator who has control, and parameters that can change during a run.

use std::collections::BTreeSet;

use ropewalk_engine::Part;
use ropewalk_run::session::{self, RestartOutcome, RestartTold, SessionView};
use ropewalk_terms::{EventKey, SourceId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a source takes part in the current run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Taking {
    /// It does, or no run has reported it.
    TakesPart,
    /// It is masked.
    Masked,
    /// It is to take part again, but has sent nothing yet that continues the run's numbers.
    AskedBack,
}

impl Taking {
    /// What the run's own numbers say of it.
    pub(crate) fn of(view: &SessionView, source: SourceId) -> Self {
        match view.snapshot.masks.get(&source).map(|record| record.part) {
            Some(Part::Masked) => Self::Masked,
            Some(Part::AskedBack) => Self::AskedBack,
            Some(Part::Takes) | None => Self::TakesPart,
        }
    }
}

/// Events in which a source took no part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct MaskedEvents {
    /// The first one: `17`, or `2:17` after two resynchronisations.
    from: String,
    /// The first one in which it took part again; null if it has not.
    to: Option<String>,
}

/// A source that is masked, or was in this run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Mask {
    /// Its id.
    source: u32,
    /// An operator has taken it out: of this run and of the following ones.
    is_masked: bool,
    /// The effect of that in the current run.
    in_run: Taking,
    /// Its intervals in the current run, in the order of events.
    events: Vec<MaskedEvents>,
}

/// All sources that are masked, or were in this run, by id.
pub(crate) fn masks(view: &SessionView) -> Vec<Mask> {
    let in_run = view.snapshot.masks.keys().copied();
    let sources: BTreeSet<SourceId> = in_run.chain(view.masked.iter().copied()).collect();
    let mask = |source: SourceId| {
        let intervals = view.snapshot.masks.get(&source).map(|record| record.intervals.as_slice()).unwrap_or_default();
        let events = intervals
            .iter()
            .map(|one| MaskedEvents { from: one.from.to_string(), to: one.to.as_ref().map(EventKey::to_string) });
        Mask {
            source: source.0,
            is_masked: view.masked.contains(&source),
            in_run: Taking::of(view, source),
            events: events.collect(),
        }
    };
    sources.into_iter().map(mask).collect()
}

/// The change.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Masking {
    /// The sources' ids.
    pub(crate) sources: Vec<u32>,
    /// They take part no longer; otherwise again.
    pub(crate) is_masked: bool,
}

/// The sources to restart.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restarting {
    /// The sources' ids.
    pub(crate) sources: Vec<u32>,
}

/// A source that was begun anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct RestartedSource {
    /// Its id.
    source: u32,
    /// From which event on it is out, until it sends again; null if its readout unit has not said.
    out_from: Option<String>,
}

/// What became of a restart. With any answer the sources take part again as soon as they send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Restarted {
    /// `done`; `late`: not every readout unit said in time from which event on its source is out; `run_over`: the run
    /// ended before.
    pub(crate) answer: &'static str,
    /// The same in words.
    text: String,
    /// By id.
    restarted: Vec<RestartedSource>,
}

impl Restarted {
    pub(crate) fn of(told: &RestartTold) -> Self {
        let source = |one: &ropewalk_run::session::Restarted| RestartedSource {
            source: one.source.0,
            out_from: one.from.map(|key| key.to_string()),
        };
        let (answer, text) = match told.outcome {
            RestartOutcome::Done => {
                let words = if told.sources.len() == 1 { ["it takes", "its"] } else { ["they take", "their"] };
                let [take, their] = words;
                ("done", format!("{take} part again with {their} first fragment that continues the run's event numbers"))
            }
            RestartOutcome::Late => (
                "late",
                "not every readout unit said in time from which event on its source is out: is it connected? All were taken in again; \
                 /api/v1/masks says what comes of them"
                    .to_owned(),
            ),
            RestartOutcome::RunOver => {
                ("run_over", "the run ended before it was known from which event on they were out".to_owned())
            }
        };
        Self { answer, text, restarted: told.sources.iter().map(source).collect() }
    }
}

/// The operator who has control: commands of other operators are refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Holder {
    /// The name that the operator gave.
    name: String,
    /// Time at which the operator took control, in nanoseconds since 1970 UTC.
    since_ns: i64,
}

impl Holder {
    pub(crate) fn of(holder: &session::Holder) -> Self {
        Self { name: holder.name.clone(), since_ns: holder.since.0 }
    }
}

/// The operator who has control.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Operator {
    /// Null if control is free: every operator may send commands.
    pub(crate) operator: Option<Holder>,
}

/// A parameter with its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Parameter {
    /// Its name: `timeouts.readout`, or `stream.physics.prescale`.
    name: String,
    /// Its value now, as in a configuration: `2s`, `10`.
    value: String,
    /// Its configured value.
    configured: String,
    /// Its description.
    help: &'static str,
}

/// Returns all parameters that can be changed during a run.
pub(crate) fn parameters(view: &SessionView) -> Vec<Parameter> {
    let parameter = |one: &ropewalk_run::session::LiveParameter| Parameter {
        name: one.name.clone(),
        value: one.text(one.value),
        configured: one.text(one.configured),
        help: explanation(one.subject.help()),
    };
    view.parameters.iter().map(parameter).collect()
}

/// Returns the description of a parameter without the internal unit, since values are shown with their own unit.
fn explanation(help: &'static str) -> &'static str {
    help.trim().trim_end_matches("In nanoseconds.").trim_end()
}

#[cfg(test)]
mod tests {

    use ropewalk_run::session::Subject;
    use ropewalk_terms::Parameter as Known;

    use super::*;

    #[test]
    fn times_in_seconds_are_not_said_to_be_in_nanoseconds() {
        let subjects = Known::ALL.iter().map(|&parameter| Subject::Nodes(parameter)).chain([Subject::Log]);
        for subject in subjects {
            let help = explanation(subject.help());
            assert!(help.ends_with('.') && !help.contains("nanoseconds"), "{subject:?}: {help}");
        }
    }
}
