//! What became of the events of a run that went to filter units as files.

use super::file_filters::FileFilters;
use super::ledger_summary::UnbalancedSummary;
use crate::file_based::{FilesSummary, StreamSummary};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What filter units that work on files made of a run: of all builder units together.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FileBasedSummary {
    /// Where the files are, a directory for each builder unit.
    pub directories: Vec<PathBuf>,
    /// Files of events.
    pub files: u64,
    /// Files on which filter units crashed; they are in the directory `error`.
    pub files_set_aside: u64,
    /// How often a file went to another filter unit.
    pub given_back: u64,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units accepted.
    pub accepted: u64,
    /// Events that they rejected.
    pub rejected: u64,
    /// Events in files that were set aside: written = accepted + rejected + set_aside.
    pub set_aside: u64,
    /// What streams took of accepted events, by name.
    pub streams: BTreeMap<String, FiledStream>,
    /// Lumisections of which every file is decided, in order, over all builder units.
    pub lumisections: Vec<FiledLumisection>,
    /// Why files were given back.
    #[serde(skip)]
    pub(super) failures: Vec<String>,
    /// Why what does not hold does not.
    #[serde(skip)]
    pub(super) unbalanced: Vec<UnbalancedSummary>,
}

/// What a stream took of files: selected = prescaled_away + written.
#[derive(Copy, Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FiledStream {
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Those that its prescale left out.
    pub prescaled_away: u64,
    /// Those in its files.
    pub written: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// What filter units made of the events of a lumisection: of all builder units together.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FiledLumisection {
    /// Its number, from 1.
    pub number: u32,
    /// Events that builder units wrote: events = accepted + rejected + set_aside.
    pub events: u64,
    /// Those that filter units accepted.
    pub accepted: u64,
    /// Those that they rejected.
    pub rejected: u64,
    /// Those in files that were set aside.
    pub set_aside: u64,
    /// What streams took of them, by name.
    pub streams: BTreeMap<String, FiledStream>,
}

/// Adds what streams took elsewhere.
fn add(sums: &mut BTreeMap<String, FiledStream>, others: &[StreamSummary]) {
    for StreamSummary { stream, selected, prescaled_away, written, bytes } in others {
        let sum = sums.entry(stream.clone()).or_default();
        sum.selected += selected;
        sum.prescaled_away += prescaled_away;
        sum.written += written;
        sum.bytes += bytes;
    }
}

impl FileBasedSummary {
    /// Of a run in which so many events were written; none where there were no filter units, or they are not done.
    pub(super) fn new(filters: &[FileFilters], written: u64) -> Option<Self> {
        let outcomes: Vec<_> = filters.iter().filter_map(FileFilters::outcome).collect();
        if outcomes.is_empty() {
            return None;
        }
        let (mut summary, mut lumisections) = (Self::default(), BTreeMap::new());
        for (directory, outcome) in outcomes {
            summary.directories.push(directory.to_owned());
            match outcome {
                Ok(told) => summary.add(told, &mut lumisections),
                Err(why) => summary.unbalanced.push(UnbalancedSummary::because("every file was decided", why)),
            }
        }
        summary.lumisections = lumisections.into_values().collect();
        let decided = summary.accepted + summary.rejected + summary.set_aside;
        if decided != written {
            let equation = "written = accepted + rejected + set aside by filter units that work on files";
            summary.unbalanced.push(UnbalancedSummary::sides(equation, written, decided));
        }
        Some(summary)
    }

    fn add(&mut self, told: &FilesSummary, lumisections: &mut BTreeMap<u32, FiledLumisection>) {
        add(&mut self.streams, &told.streams);
        for one in &told.lumisections {
            let sum = lumisections.entry(one.lumisection).or_default();
            sum.number = one.lumisection;
            sum.events += one.processed + one.set_aside;
            sum.accepted += one.accepted;
            sum.rejected += one.processed.saturating_sub(one.accepted);
            sum.set_aside += one.set_aside;
            add(&mut sum.streams, &one.streams);
        }
        self.files += told.files;
        self.files_set_aside += told.set_aside;
        self.given_back += told.given_back;
        self.restarts += told.restarts;
        self.accepted += told.accepted;
        self.rejected += told.processed.saturating_sub(told.accepted);
        self.set_aside += told.lumisections.iter().map(|lumisection| lumisection.set_aside).sum::<u64>();
        self.failures.extend(told.failures.iter().cloned());
        let equation = "each lumisection's files = what filter units made of them";
        self.unbalanced.extend(told.unbalanced.iter().map(|why| UnbalancedSummary::because(equation, why)));
    }
}
