//! Fragments back to back, of each event in the order of the run's sources.

use super::output::Output;
use super::{Exported, Exporter, Part, Parts, named};
use crate::offline::OfflineError;
use ropewalk_terms::RunNumber;
use ropewalk_wire::run_file::run_directory_name;
use std::path::{Path, PathBuf};

/// One file of all fragments.
pub(super) struct Raw {
    output: Output,
}

impl Raw {
    pub(super) fn new(directory: &Path, run: Option<RunNumber>) -> Result<Self, OfflineError> {
        let name = format!("{}.raw", run_directory_name(named(run)));
        Ok(Self { output: Output::create(directory, &name)? })
    }
}

impl Exporter for Raw {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        told.note_made(event);
        let mut fragments: Vec<&Part<'_>> = event.fragments.iter().collect();
        fragments.sort_by_key(|part| part.rank);
        fragments.iter().try_for_each(|part| self.output.write(part.view.payload))
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        Ok(vec![self.output.finish()?])
    }
}
