//! What this machine can do with Ropewalk, what limits it, and what to change first: one page, in half a minute.
//!
//! ```text
//!  tune's findings ─────────────┐
//!  host's machine, Features ────┼─► Diagnosis ─► verdict ─► a page, or JSON
//!  Measured: memory, TCP, packets, disk, whole runs ─┘
//! ```

#![forbid(unsafe_code)]

mod disk;
pub mod emulated;
mod features;
mod measure;
pub mod memory;
mod page;
pub mod processor;
pub mod run;
#[cfg(test)]
mod tests;
mod verdict;

use ropewalk_tune::rules::check;
use ropewalk_tune::{Finding, Found, Place, Wish};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::path::Path;

pub use features::{Feature, features};
pub use measure::{Built, Measured, measure};
pub use verdict::{Limit, Verdict};

/// How much is measured.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scale {
    /// The minimum that shows that it works, for tests.
    Tiny,
    /// Of a bench, at most 50 s.
    Quick,
    /// For the doctor, twenty seconds; for a bench, at least nine pairs: most take less than 20 min, but those of
    /// packets and the gateway two hours; their many cases are better selected one by one.
    Full,
}

impl Scale {
    /// Selects one of three values.
    pub const fn choose<T: Copy>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// Pairs of our figure and its limit that a bench measures.
    pub const fn pairs(self) -> usize {
        self.choose(1, 3, 9)
    }
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The system refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The measured code did not work correctly, so that its speed is meaningless.
    #[error("{what}: no figure, because the result is wrong")]
    Wrong {
        /// What is wrong.
        what: String,
    },
}

impl DoctorError {
    /// An error of the system in this operation.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// A wrong result.
    pub fn wrong(what: impl ToString) -> Self {
        Self::Wrong { what: what.to_string() }
    }
}

/// Everything that is known of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(title = "What a machine can do with Ropewalk: the output of `ropewalk doctor --json`")]
pub struct Diagnosis {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    pub schema: &'static str,
    /// A summary of the machine in one or two lines.
    pub machine: Vec<String>,
    /// Cores, hardware threads, memory and cards of each NUMA node: the lines of `ropewalk topology`.
    pub topology: Vec<String>,
    /// What the kernel can do for Ropewalk.
    pub features: Vec<Feature>,
    /// The measurements; null with `--look`.
    pub measured: Option<Measured>,
    /// The bottleneck and the expected rates; null with `--look`.
    pub verdict: Option<Verdict>,
    /// Host settings that are not good, the worst first. docs/tuning.md describes each rule.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The name and version of this form.
    pub const SCHEMA: &'static str = "ropewalk-doctor-1";

    /// Examines the machine without measuring.
    ///
    /// # Errors
    /// If /proc and /sys cannot be read, or a requested interface does not exist.
    pub fn look(wish: &Wish) -> Result<Self, DoctorError> {
        let found = Found::read(&mut Place::live(), wish).map_err(DoctorError::wrong)?;
        let findings = check(&found, wish);
        let features = features(&found);
        let (machine, topology) = (page::described(&found.machine), page::topology(&found.machine));
        let (measured, verdict, findings) = (None, None, page::ordered(findings));
        Ok(Self { schema: Self::SCHEMA, machine, topology, features, measured, verdict, findings })
    }

    /// Examines the machine and measures for about twenty seconds; files are written below `output`, and removed.
    ///
    /// # Errors
    /// If the machine cannot be read, or refuses a measurement that every machine permits.
    pub fn examine(wish: &Wish, output: &Path, scale: Scale) -> Result<Self, DoctorError> {
        let looked = Self::look(wish)?;
        let measured = measure(output, scale)?;
        let verdict = Verdict::of(&measured, &looked.findings);
        Ok(Self { measured: Some(measured), verdict: Some(verdict), ..looked })
    }
}
