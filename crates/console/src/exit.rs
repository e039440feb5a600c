//! Exit statuses and errors, as promised in `docs/cli.md`. `terms::status` has those of runs and files.

use crate::grouped;
use ropewalk_config::ConfigurationError;
use ropewalk_run::{RunError, StreamRunError};
use ropewalk_tools::OfflineError;
use ropewalk_tools::file_based::FilesError;
use ropewalk_tools::status::{StatusSummary, unit};
use ropewalk_tune::change::JournalError;
use ropewalk_tune::{Forbidden, FoundError, SettingError};
use std::fmt;
use std::io::ErrorKind;

/// Nothing was lost, misplaced or doubtful.
pub const GOOD: u8 = 0;
/// The ledger does not balance, or a file is damaged.
pub const UNBALANCED: u8 = 1;
/// Error in usage or configuration.
pub const USAGE: u8 = 2;
/// Something was lost, misplaced or is doubtful.
pub const LOST: u8 = 3;
/// Error of the environment: port, disk, permissions.
pub const ENVIRONMENT: u8 = 4;
/// The stop was forced.
pub const FORCED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The user can correct it in the command or the configuration.
    Usage(String),
    /// The machine does not permit it.
    Environment(String),
}

impl Failure {
    /// The exit status.
    pub const fn status(&self) -> u8 {
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

impl From<ConfigurationError> for Failure {
    fn from(error: ConfigurationError) -> Self {
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

impl From<OfflineError> for Failure {
    fn from(error: OfflineError) -> Self {
        use OfflineError as Error;
        let text = error.to_string();
        match error {
            Error::NoSegments { .. }
            | Error::NoRunFile { .. }
            | Error::SeveralRuns { .. }
            | Error::NoSuchEvent { .. } => Self::Usage(text),
            Error::NoSuchSource { .. } | Error::NoTimes => Self::Usage(text),
            Error::NoBlocks { .. } | Error::NoSuchBlock { .. } => Self::Usage(text),
            Error::UnknownFormat { .. } | Error::NothingKnown { .. } => Self::Usage(text),
            Error::DoesNotFit { .. }
            | Error::NeedsCapture { .. }
            | Error::Unreadable { .. }
            | Error::Recording { .. } => Self::Usage(text),
            Error::System { error, .. } if names_no_file(error.kind()) => Self::Usage(text),
            _ => Self::Environment(text),
        }
    }
}

impl From<StreamRunError> for Failure {
    fn from(error: StreamRunError) -> Self {
        let text = error.to_string();
        match error {
            StreamRunError::File(error) => error.into(),
            StreamRunError::Unfit(_) => Self::Usage(text),
            _ => Self::Environment(text),
        }
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        let text = error.to_string();
        match error {
            FilesError::Document { .. } | FilesError::Served { .. } => Self::Usage(text),
            FilesError::System { error, .. } if error.kind() == std::io::ErrorKind::NotFound => Self::Usage(text),
            _ => Self::Environment(text),
        }
    }
}

impl From<FoundError> for Failure {
    fn from(error: FoundError) -> Self {
        match error {
            FoundError::UnknownInterface { .. } => Self::Usage(error.to_string()),
            _ => Self::Environment(error.to_string()),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::Environment(error.to_string())
    }
}

impl From<Forbidden> for Failure {
    fn from(error: Forbidden) -> Self {
        Self::Environment(error.to_string())
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Environment(error.to_string())
    }
}

/// Whether the path does not exist, or is not a file.
const fn names_no_file(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory)
}

/// Prints the reasons on standard error, and returns the exit status.
pub fn with_reasons(status: &StatusSummary) -> u8 {
    with_remarks(status, &[])
}

/// The same, followed by the first of these remarks on single sources.
pub fn with_remarks(status: &StatusSummary, remarks: &[String]) -> u8 {
    if !status.is_good() {
        let more = remarks.len().saturating_sub(1);
        let more = if more > 0 { format!(" (and {more} more above)") } else { String::new() };
        let remark = remarks.first().map_or_else(String::new, |remark| format!("; {remark}{more}"));
        crate::tell!("{}{remark}", reasons(status));
    }
    status.code
}

/// `exit status 3: late 1,234 fragments, frames_missing 7`.
pub fn reasons(status: &StatusSummary) -> String {
    let reason = |(name, count): (&&str, &u64)| {
        let unit = unit(name);
        let unit = if *count == 1 { unit.trim_end_matches('s') } else { unit };
        format!("{name} {} {unit}", grouped(*count)).trim_end().to_owned()
    };
    let reasons: Vec<_> = status.reasons.iter().map(reason).collect();
    format!("exit status {}: {}", status.code, reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Asked, FACTS};

    /// To update the page: `ROPEWALK_BLESS=1 cargo test -p ropewalk-console`.
    #[test]
    fn the_table_of_the_manual_is_the_list_of_facts() {
        let manual = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md"));
        let row = |fact: &ropewalk_terms::Fact| {
            let (taken, checked) = (fact.status(Asked::Taken) as u8, fact.status(Asked::Checked) as u8);
            format!("| `{}` | {taken} | {checked} | {} |\n", fact.name(), fact.help().trim().trim_end_matches('.'))
        };
        let (before, rest) = manual.split_once("| Found | ").expect("the manual has the table");
        let head = rest.split_inclusive('\n').take(2).collect::<String>();
        let (_, after) = rest.split_once("|\n\n").expect("text follows the table");
        let rows: String = FACTS.iter().map(row).collect();
        let made = format!("{before}| Found | {head}{rows}\n{after}");
        assert!(
            ropewalk_tidy::is_current("docs/cli.md", &made),
            "docs/cli.md differs: ROPEWALK_BLESS=1 writes its table"
        );
    }

    #[test]
    fn a_status_is_reported_with_its_reasons() {
        let status = StatusSummary { code: 3, reasons: [("late", 1234), ("wrong_source", 1)].into() };
        assert_eq!(reasons(&status), "exit status 3: late 1,234 fragments, wrong_source 1 fragment");
    }
}
