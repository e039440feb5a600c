//! One seed: a run and its verdict, and what a checker says when something does not hold.

use super::cluster::{Cluster, Seeded};
use super::recorder::Recorder;
use super::runner::Coverage;
use schemars::JsonSchema;
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What a checker said; nothing where everything holds.
    pub broken: Option<Broken>,
    /// Which faults struck when.
    pub coverage: Coverage,
    /// Mixed from everything that happened: equal for equal histories.
    pub digest: u64,
    /// How long the run took, in nanoseconds of virtual time.
    pub nanoseconds: u64,
    /// Every happening as a line, where that was asked for.
    pub text: String,
}

/// Runs a system to its end and judges it.
pub fn run(scenario: impl Seeded) -> Outcome {
    recorded(scenario, Recorder::default())
}

/// The same, with every happening as a line of text.
pub fn run_with_text(scenario: impl Seeded) -> Outcome {
    recorded(scenario, Recorder { text: Some(String::new()), ..Recorder::default() })
}

fn recorded(scenario: impl Seeded, recorder: Recorder) -> Outcome {
    let mut world = scenario.world(recorder);
    let broken = caught(|| world.go_on().and_then(|()| world.judge()));
    let core = world.core();
    let mut recorder = core.recorder.borrow_mut();
    Outcome {
        broken,
        coverage: core.coverage.clone(),
        digest: recorder.digest,
        nanoseconds: core.now().as_nanoseconds(),
        text: recorder.text.take().unwrap_or_default(),
    }
}

/// What a checker found, or the panic. After a panic only the world's record may be looked at.
fn caught(run: impl FnOnce() -> Result<(), Broken>) -> Option<Broken> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Broken::new(Checker::Panic, words.unwrap_or_default()))
        }
    }
}

/// An enum whose variants have stable names.
macro_rules! named {
    ($(#[$attribute:meta])* $name:ident { $($(#[$what:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$what])* $variant),* }

        impl $name {
            /// All of them, in the order of tables.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.name())
            }
        }
    };
}
pub(super) use named;

named! {
    /// What is checked.
    #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    Checker {
        /// The equations of the ledger, in each machine at every step and for the whole run at its end.
        Ledger = "ledger",
        /// Every block of every pool comes back.
        Pools = "pools",
        /// Credit is neither lost nor made.
        Credits = "credits",
        /// No table and no queue grows over its bound.
        Bounds = "bounds",
        /// Files hold what the sources made, word by word.
        Content = "content",
        /// No key twice after `verify`'s rule, and no key that never was.
        Keys = "keys",
        /// Nothing is lost without a cause.
        Loss = "loss",
        /// No source is given up that was not silent.
        TimeOut = "time_out",
        /// Everything comes to its end, within a bound after the last fault.
        Liveness = "liveness",
        /// No event manager speaks without the lease; an epoch is one event manager's; no node goes back to a lower one.
        Epochs = "epochs",
        /// A readout unit announces in the order of keys, and begins again only when it is asked to.
        Order = "order",
        /// Sources are masked in the events in which the account says so, and in no others.
        Masks = "masks",
        /// Nothing panics.
        Panic = "panic",
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

/// An error with these words unless something holds: `ensure!(Ledger, left == 0; "{left} are left")`.
macro_rules! ensure {
    ($checker:ident, $holds:expr; $($words:tt)+) => {{
        use $crate::campaign::outcome::{Broken, Checker};
        Broken::unless($holds, Checker::$checker, || format!($($words)+))
    }};
}
pub(super) use ensure;
