//! Exit statuses and errors, as `docs/cli.md` promises them.

use ropewalk_node::run::{Account, RunError};
use std::fmt;

/// Everything is good. Fragments that came with a wrong checksum are neither lost nor missing.
pub(crate) const GOOD: u8 = 0;
/// The ledger does not balance, or a file holds damage.
pub(crate) const UNBALANCED: u8 = 1;
/// Usage or configuration.
pub(crate) const USAGE: u8 = 2;
/// Balanced, but events were lost or are incomplete.
pub(crate) const LOST: u8 = 3;
/// Port, disk, rights.
pub(crate) const ENVIRONMENT: u8 = 4;
/// The stop was forced.
pub(crate) const FORCED: u8 = 130;

/// Why a command could not do what it was asked for.
pub(crate) enum Failure {
    /// The user can mend it in the command or the configuration.
    Usage(String),
    /// The machine does not allow it.
    Environment(String),
}

impl Failure {
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Environment(_) => ENVIRONMENT,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Environment(text) => out.write_str(text),
        }
    }
}

impl From<ropewalk_node::configuration::ConfigurationError> for Failure {
    fn from(error: ropewalk_node::configuration::ConfigurationError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Placement(_) | RunError::Unfit(_) | RunError::Refused(_) => Self::Usage(error.to_string()),
            _ => Self::Environment(error.to_string()),
        }
    }
}

/// The status of a run that has ended.
pub(crate) fn of_run(account: &Account) -> u8 {
    if account.is_forced() {
        FORCED
    } else if !account.is_balanced() {
        UNBALANCED
    } else if !account.is_lossless() {
        LOST
    } else {
        GOOD
    }
}
