//! What `apply` and `undo` have done, for programs.

use ropewalk_tune::change::{Applied, Fate, History, Trouble, Undone};
use ropewalk_tune::{Change, Setting};
use serde::Serialize;
use std::path::Path;

/// What `apply --json` prints; `docs/schema/tune-apply.json` describes it.
#[derive(Serialize)]
pub(super) struct ToldApplied<'a> {
    schema: &'static str,
    journal: &'a Path,
    changed: &'a [Change],
    /// Of the plan, settings that were as they shall be when they were looked at again.
    already: usize,
    failure: Option<Why<'a>>,
    not_brought_back: &'a [Trouble],
}

#[derive(Serialize)]
struct Why<'a> {
    setting: Option<&'a Setting>,
    why: &'a str,
}

impl<'a> ToldApplied<'a> {
    pub(super) fn new(applied: &'a Applied, journal: &'a Path) -> Self {
        let Applied { changed, already, failure } = applied;
        Self {
            schema: "ropewalk-tune-apply-1",
            journal,
            changed,
            already: *already,
            failure: failure.as_ref().map(|one| Why { setting: one.setting.as_ref(), why: &one.why }),
            not_brought_back: failure.as_ref().map(|one| one.not_brought_back.as_slice()).unwrap_or_default(),
        }
    }
}

/// What `undo --json` prints; `docs/schema/tune-undo.json` describes it.
#[derive(Serialize)]
pub(super) struct ToldUndone<'a> {
    schema: &'static str,
    journal: &'a Path,
    settings: Vec<One<'a>>,
    not_brought_back: &'a [Trouble],
    fault: Option<&'a str>,
    is_put_away: bool,
}

#[derive(Serialize)]
struct One<'a> {
    setting: &'a Setting,
    /// What it was before it was changed; null where the journal does not tell.
    old: Option<&'a str>,
    #[serde(flatten)]
    fate: &'a Fate,
}

impl<'a> ToldUndone<'a> {
    pub(super) fn new(undone: &'a Undone, history: &'a History, journal: &'a Path) -> Self {
        let one = |(setting, fate): &'a (Setting, Fate)| One { setting, old: history.old(setting), fate };
        Self {
            schema: "ropewalk-tune-undo-1",
            journal,
            settings: undone.fates.iter().map(one).collect(),
            not_brought_back: &undone.troubles,
            fault: undone.fault.as_deref(),
            is_put_away: undone.is_put_away,
        }
    }
}
