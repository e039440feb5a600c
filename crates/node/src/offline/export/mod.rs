//! Run files as files of other formats: every key once, in the order of the keys.
//!
//! ```text
//!  RunIndex -> OrderedReader -> one event after the other --> frd   FED raw data, a file for each file's header
//!                                                         --> mdf   MDF records
//!                                                         --> raw   the fragments back to back
//! ```
//! What other formats cannot say of an event is counted ([`Exported::not_carried`]); what does not fit into one at all is
//! refused. Files are written under a name that ends in `.part`, and renamed when they are whole.

mod frd;
mod mdf;
mod output;
mod raw;
#[cfg(test)]
mod tests;

use super::{OfflineError, RunEvent, RunIndex};
use crate::status::StatusSummary;
use ropewalk_terms::{Asked, EventKey, Fact, RunNumber, SourceId};
use ropewalk_wire::foreign::ENVELOPE;
use ropewalk_wire::frd::Version;
use ropewalk_wire::run_file::{EventFlags, FragmentFlags, FragmentView, SourceEntry, SourceFormat};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is made of the run files.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// FED raw data.
    Frd(FrdOptions),
    /// MDF records.
    Mdf,
    /// Fragments back to back, of each event in the order of the run's sources.
    Raw,
}

/// How events that were no FED raw data before become some.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FrdOptions {
    /// The version of their headers.
    pub version: Version,
    /// Files of a run as builder units write them for filter units: in a directory of the run's own, with documents.
    pub files: Option<RunFiles>,
}

/// How events are divided among files. Both are 1 or more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RunFiles {
    /// So many events of a lumisection are in a file, at most.
    pub events: u32,
    /// So many event numbers are a lumisection.
    pub lumisection_events: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exported {
    /// Events that were written.
    pub events: u64,
    /// Their fragments; envelopes are none.
    pub fragments: u64,
    /// Bytes of these.
    pub fragment_bytes: u64,
    /// Fragments whose own checksum is wrong; they are there as they are.
    pub wrong_checksums: u64,
    /// What the format has no place for: its name, and of how many events it is missing.
    pub not_carried: BTreeMap<&'static str, u64>,
    /// The files.
    pub files: Vec<PathBuf>,
    /// The exit status, and why.
    pub status: StatusSummary,
}

/// Makes files of another format of the run in these directories or files; they come into `directory`, which is there.
///
/// # Errors
/// Where a file cannot be read or written, there are segments of several runs, or an event does not fit into the format.
pub fn export<P: AsRef<Path>>(places: &[P], format: ExportFormat, directory: &Path) -> Result<Exported, OfflineError> {
    let index = RunIndex::build(places)?;
    let sources = Sources::of(&index);
    let mut writer: Box<dyn Exporter> = match format {
        ExportFormat::Frd(options) => Box::new(frd::Frd::new(directory, index.run(), options)?),
        ExportFormat::Mdf => Box::new(mdf::Mdf::new(directory, index.run())?),
        ExportFormat::Raw => Box::new(raw::Raw::new(directory, index.run())?),
    };
    let (mut exported, mut reader) = (Exported::default(), index.reader());
    while let Some(event) = reader.next_event()? {
        let parts = Parts::of(&event, &sources);
        exported.events += 1;
        exported.fragments += parts.fragments.len() as u64;
        exported.fragment_bytes += parts.bytes();
        exported.note(&event, &parts);
        writer.event(&parts, &mut exported)?;
    }
    exported.files = writer.finish()?;
    let facts = index.facts().with([
        (Fact::Nothing, u64::from(exported.events == 0)),
        (Fact::CrcErrors, exported.wrong_checksums),
        (Fact::NotCarried, exported.not_carried.values().sum()),
    ]);
    exported.status = StatusSummary::of(&facts, Asked::Taken);
    Ok(exported)
}

/// Writes events of a format.
trait Exporter {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError>;

    /// Closes what is open, and says which files there are.
    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError>;
}

/// The run's sources.
struct Sources {
    /// In the order of the run's configuration.
    entries: Vec<SourceEntry>,
}

impl Sources {
    fn of(index: &RunIndex) -> Self {
        Self { entries: index.sources() }
    }

    /// What a source's fragments are, and its place in the configuration; unknown ones come last.
    fn format_and_rank(&self, source: SourceId) -> (SourceFormat, usize) {
        let rank = self.entries.iter().position(|entry| entry.id == source).unwrap_or(self.entries.len());
        (self.entries.get(rank).map_or(SourceFormat::OPAQUE, |entry| entry.format), rank)
    }
}

/// An event: its fragments, each with what it is, and what it had around them in another format.
struct Parts<'a> {
    key: EventKey,
    /// In the order of the record.
    fragments: Vec<Part<'a>>,
    has_result: bool,
    envelope: Option<&'a [u8]>,
}

/// A fragment.
struct Part<'a> {
    view: FragmentView<'a>,
    format: SourceFormat,
    rank: usize,
}

impl<'a> Parts<'a> {
    fn of(event: &RunEvent<'a>, sources: &Sources) -> Self {
        let (mut fragments, mut has_result, mut envelope) = (Vec::new(), false, None);
        for view in event.event.fragments() {
            if view.entry.source == ENVELOPE {
                envelope = Some(view.payload);
                continue;
            }
            let (format, rank) = sources.format_and_rank(view.entry.source);
            if format == SourceFormat::FILTER_RESULT {
                has_result = true;
                continue;
            }
            fragments.push(Part { view, format, rank });
        }
        Self { key: event.event.head().key, fragments, has_result, envelope }
    }

    /// Bytes of all fragments.
    fn bytes(&self) -> u64 {
        self.fragments.iter().map(|part| part.view.payload.len() as u64).sum()
    }

    /// The error that this event does not fit.
    fn refused(&self, why: String) -> OfflineError {
        OfflineError::DoesNotFit { key: self.key, why }
    }
}

impl Exported {
    fn miss(&mut self, what: &'static str, is_missed: bool) {
        if is_missed {
            *self.not_carried.entry(what).or_default() += 1;
        }
    }

    /// Counts what is left out of an event that was none of this format before, so that its envelope means nothing here.
    fn note_made(&mut self, parts: &Parts<'_>) {
        self.miss("headers of the format that they came in", parts.envelope.is_some());
    }

    /// Counts what no other format has a place for.
    fn note(&mut self, event: &RunEvent<'_>, parts: &Parts<'_>) {
        let head = event.event.head();
        let has_time = |part: &Part<'_>| part.view.entry.flags.contains(FragmentFlags::HAS_TIME);
        self.miss("what a filter said", parts.has_result);
        self.miss("why sources are missing", event.event.missing().len() > 0);
        self.miss("resync counts", head.key.resync() > 0);
        self.miss("marks of doubt or quarantine", head.flags.0 & !EventFlags::INCOMPLETE.0 != 0);
        self.miss("trigger types", head.trigger_type != 0 && parts.envelope.is_none());
        self.miss("times", parts.fragments.iter().any(has_time));
    }
}

/// A run's number in names of files.
fn named(run: Option<RunNumber>) -> RunNumber {
    run.unwrap_or_default()
}
