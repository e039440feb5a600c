//! What a checker says when something does not hold.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// Who found it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checker {
    /// The equations of the ledger, in each machine at every step and for the whole run at its end.
    Ledger,
    /// Every block of every pool comes back.
    Pools,
    /// Credit is neither lost nor made.
    Credits,
    /// No table and no queue grows over its bound.
    Bounds,
    /// Files hold what the sources made, word by word.
    Content,
    /// No key twice after `verify`'s rule, and no key that never was.
    Keys,
    /// Nothing is lost without a cause.
    Loss,
    /// No source is given up that was not silent.
    TimeOut,
    /// Everything comes to its end, within a bound after the last fault.
    Liveness,
    /// Nobody speaks without the lease; an epoch is one event manager's; no node goes back to a lower one.
    Epochs,
    /// A readout unit announces in the order of keys, and begins again only when it is asked to.
    Order,
    /// Sources are masked in the events in which the account says so, and in no others.
    Masks,
    /// Nobody panics.
    Panic,
}

impl Checker {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Pools => "pools",
            Self::Credits => "credits",
            Self::Bounds => "bounds",
            Self::Content => "content",
            Self::Keys => "keys",
            Self::Loss => "loss",
            Self::TimeOut => "time_out",
            Self::Liveness => "liveness",
            Self::Epochs => "epochs",
            Self::Order => "order",
            Self::Masks => "masks",
            Self::Panic => "panic",
        }
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Something that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{checker}: {words}")]
pub struct Broken {
    /// Who found it.
    pub checker: Checker,
    /// What does not hold.
    pub words: String,
}

impl Broken {
    /// Something that does not hold.
    pub fn new(checker: Checker, words: impl Into<String>) -> Self {
        Self { checker, words: words.into() }
    }

    /// An error with these words unless something holds.
    ///
    /// # Errors
    /// The words, where it does not.
    pub fn unless(holds: bool, checker: Checker, words: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(checker, words())) }
    }
}
