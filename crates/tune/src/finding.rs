//! What a rule found.

use serde::Serialize;

use crate::{Change, Group};

/// What a rule found: one line of the table that `tune check` prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The rule's name, such as `receive_buffer`; promised to users, and a heading of docs/tuning.md.
    pub rule: &'static str,
    /// To which group of settings it belongs.
    pub group: Group,
    /// What was looked at, such as `net.core.rmem_max` or `eth0: receive ring`.
    pub subject: String,
    /// How it stands.
    pub grade: Grade,
    /// What was found, in the words of whoever typed it there.
    pub found: String,
    /// What is advised; empty for what is good.
    pub advised: String,
    /// Why, in a sentence.
    pub why: &'static str,
    /// The paper's section or the kernel's document that says so.
    pub source: &'static str,
    /// What it is worth, and the command that shows it on this machine.
    pub worth: &'static str,
    /// How sure the advice is.
    pub sureness: Sureness,
    /// What would be changed; none for what is good, and for what no program may change (the firmware's settings, the
    /// kernel's command line, mitigations).
    pub changes: Vec<Change>,
}

/// How a setting stands.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
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
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sureness {
    /// A rule of thumb: measure before and after.
    Guess,
    /// Published measurements or the kernel's documentation say so.
    Documented,
    /// Measured with Ropewalk's benches.
    Measured,
}
