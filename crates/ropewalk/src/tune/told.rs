//! What `apply` and `undo` have done, for programs.

use ropewalk_tune::change::{Applied, Fate, History, Trouble, Undone};
use ropewalk_tune::{Change, Setting};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// What `apply --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What was changed on a host: the output of `ropewalk tune apply --json`")]
pub(crate) struct ToldApplied<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The journal of old values.
    journal: &'a Path,
    /// The changes in order, with the value just before as `from`; empty after a failure.
    changed: &'a [Change],
    /// Settings of the plan that already had the wanted value.
    already: usize,
    /// Why nothing was changed; null on success.
    failure: Option<ToldFailure<'a>>,
    /// Settings that could not be brought back after a failure. The journal stays, and `undo` tries again.
    not_brought_back: &'a [Trouble],
}

/// Why nothing was changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToldFailure<'a> {
    /// The setting that failed; null where it was none.
    setting: Option<&'a Setting>,
    /// What happened.
    why: &'a str,
}

impl<'a> ToldApplied<'a> {
    const SCHEMA: &'static str = "ropewalk-tune-apply-1";

    pub(super) fn new(applied: &'a Applied, journal: &'a Path) -> Self {
        let Applied { changed, already, failure } = applied;
        Self {
            schema: Self::SCHEMA,
            journal,
            changed,
            already: *already,
            failure: failure.as_ref().map(|one| ToldFailure { setting: one.setting.as_ref(), why: &one.why }),
            not_brought_back: failure.as_ref().map(|one| one.not_brought_back.as_slice()).unwrap_or_default(),
        }
    }
}

/// What `undo --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What was taken back on a host: the output of `ropewalk tune undo --json`")]
pub(crate) struct ToldUndone<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The journal of old values.
    journal: &'a Path,
    /// The outcome for each setting, in the order of the journal.
    settings: Vec<ToldSetting<'a>>,
    /// Settings that could not be brought back. The journal stays, and `undo` tries again.
    not_brought_back: &'a [Trouble],
    /// The error of the journal; null if none.
    fault: Option<&'a str>,
    /// Whether everything was restored.
    is_put_away: bool,
}

/// The outcome for a setting.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToldSetting<'a> {
    /// The setting.
    setting: &'a Setting,
    /// The value before the change; null if the journal does not contain it.
    old: Option<&'a str>,
    #[serde(flatten)]
    fate: &'a Fate,
}

impl<'a> ToldUndone<'a> {
    const SCHEMA: &'static str = "ropewalk-tune-undo-1";

    pub(super) fn new(undone: &'a Undone, history: &'a History, journal: &'a Path) -> Self {
        let one = |(setting, fate): &'a (Setting, Fate)| ToldSetting { setting, old: history.old(setting), fate };
        Self {
            schema: Self::SCHEMA,
            journal,
            settings: undone.fates.iter().map(one).collect(),
            not_brought_back: &undone.troubles,
            fault: undone.fault.as_deref(),
            is_put_away: undone.is_put_away,
        }
    }
}
