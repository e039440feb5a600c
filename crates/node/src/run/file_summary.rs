//! What became of the events of a run that went to filter units as files.

use super::file_filters::FileFilters;
use crate::file_based::FilesSummary;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What filter units that work on files made of a run: of all builder units together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileBasedSummary {
    /// Where the files are, a directory for each builder unit.
    pub directories: Vec<PathBuf>,
    /// Files of events.
    pub files: u64,
    /// Files that filter units ended over: they are in the directory `error`.
    pub files_set_aside: u64,
    /// How often a file went to another filter unit.
    pub given_back: u64,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units accepted.
    pub accepted: u64,
    /// Events that they rejected.
    pub rejected: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// Why files were given back.
    #[serde(skip)]
    pub(super) failures: Vec<String>,
    /// Why what does not hold does not.
    #[serde(skip)]
    pub(super) unbalanced: Vec<Value>,
}

impl FileBasedSummary {
    /// Of a run in which so many events were written; none where there were no filter units, or they are not done.
    pub(super) fn new(filters: &[FileFilters], written: u64) -> Option<Self> {
        let outcomes: Vec<_> = filters.iter().filter_map(FileFilters::outcome).collect();
        if outcomes.is_empty() {
            return None;
        }
        let mut summary = Self::default();
        for (directory, outcome) in outcomes {
            summary.directories.push(directory.to_owned());
            match outcome {
                Ok(told) => summary.add(told),
                Err(why) => summary.unbalanced.push(json!({ "equation": "every file was decided", "why": why })),
            }
        }
        let decided = summary.accepted + summary.rejected + summary.set_aside;
        if decided != written {
            let equation = "written = accepted + rejected + set aside by filter units that work on files";
            summary.unbalanced.push(json!({ "equation": equation, "left": written, "right": decided }));
        }
        Some(summary)
    }

    fn add(&mut self, told: &FilesSummary) {
        self.files += told.files;
        self.files_set_aside += told.set_aside;
        self.given_back += told.given_back;
        self.restarts += told.restarts;
        self.accepted += told.accepted;
        self.rejected += told.processed.saturating_sub(told.accepted);
        self.set_aside += told.lumisections.iter().map(|lumisection| lumisection.set_aside).sum::<u64>();
        self.failures.extend(told.failures.iter().cloned());
        let equation = "each lumisection's files = what filter units made of them";
        self.unbalanced.extend(told.unbalanced.iter().map(|why| json!({ "equation": equation, "why": why })));
    }
}
