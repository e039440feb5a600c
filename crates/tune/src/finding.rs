//! What a rule found.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Change, Group};

/// What a rule found: one line of the table that `tune check` prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// The rule's name, such as `receive_buffer`; promised to users, and a heading of docs/tuning.md.
    pub rule: &'static str,
    /// The group of settings that it belongs to.
    pub group: Group,
    /// What was looked at, such as `net.core.rmem_max` or `eth0: receive ring`.
    pub subject: String,
    /// How the setting stands.
    pub grade: Grade,
    /// The current value, in the form in which a person would set it.
    pub found: String,
    /// The advice; empty if the setting is good.
    pub advised: String,
    /// Why that is advised, in a sentence.
    pub why: &'static str,
    /// The paper's section or the kernel's document that says so.
    pub source: &'static str,
    /// What it is worth, and the command that shows it on this machine.
    pub worth: &'static str,
    /// How sure the advice is.
    pub sureness: Sureness,
    /// What `tune plan` would change for it; empty for what is good, and for what no program may change: settings of
    /// the firmware, the kernel's command line, mitigations.
    pub changes: Vec<Change>,
}

/// How a setting stands.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Nothing to do.
    Good,
    /// Told, and neither good nor bad: security mitigations, what could not be read.
    Told,
    /// It works, and could do better.
    CouldBeBetter,
    /// It loses data, or most of the speed.
    Harmful,
}

/// How sure an advice is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sureness {
    /// A rule of thumb: measure before and after.
    Guess,
    /// Published measurements or the kernel's documentation say so.
    Documented,
    /// Measured with Ropewalk's benches.
    Measured,
}
