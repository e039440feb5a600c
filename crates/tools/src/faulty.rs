//! The incomplete and doubtful events of a run: the first ones, with their sources and causes.
//!
//! Lists are short for any run: a reader of 10⁸ events keeps ten of them.

use super::{Footer, OfflineError, RunEvent, SegmentFile, SegmentReader, segment_files};
use ropewalk_terms::{Cause, EventKey};
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{EventFlags, EventView, FragmentFlags, IndexEntry, SourceEntry, SourceFormat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The most events that a list names.
pub const NAMED_EVENTS: usize = 10;
/// The most faults that it names of an event.
const NAMED_FAULTS: usize = 4;

/// The most files whose indexes are read at the end of a run.
const INDEXED_FILES: usize = 256;
/// No further index is read after this many entries.
const INDEXED_EVENTS: usize = 4 << 20;

/// An event with a fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FaultyEvent {
    /// Its key: `17`, or `2:17` after two resynchronisations.
    pub event: String,
    /// Its faults, the first 4.
    pub faults: Vec<EventFault>,
    /// Number of its further faults.
    pub further_faults: u64,
}

/// What is wrong with an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct EventFault {
    /// The source; null if the fault concerns the whole event.
    pub source: Option<u32>,
    /// The configured name of the source; null if it has none.
    pub name: Option<String>,
    /// `missing`: the source has no fragment in the event. `quarantined`: no filter decided on the event. Otherwise the
    /// flag that puts the fragment in doubt, such as `crc_errors`.
    pub fault: String,
    /// The cause for which the source is missing; null for other faults.
    pub cause: Option<String>,
}

/// The first events of a run with a fault, from the indexes of its closed files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FaultyEvents {
    /// The first of them, in the order of their keys, 10 at most.
    pub first: Vec<FaultyEvent>,
    /// Number of further ones; null if it was not counted, because the run has many files or several streams.
    pub further: Option<u64>,
}

impl FaultyEvent {
    /// The faults of an event; `None` if it has none.
    pub fn of(event: &EventView<'_>, sources: &[SourceEntry]) -> Option<Self> {
        let flags = event.head().flags;
        let mut found = Self { event: event.key().to_string(), faults: Vec::new(), further_faults: 0 };
        if flags.contains(EventFlags::INCOMPLETE) {
            // Masked sources are left out on purpose.
            let missing = event.missing().filter(|missing| missing.cause() != Some(Cause::Masked));
            for missing in missing {
                let cause =
                    missing.cause().map_or_else(|| format!("cause {}", missing.cause), |cause| cause.to_string());
                found.add(EventFault::of_source(missing.source.0, sources, "missing", Some(cause)));
            }
        }
        for fragment in event.fragments() {
            let source = fragment.entry.source;
            let mut doubts: Vec<_> =
                fragment.entry.flags.doubts().map(|doubt| FragmentFlags::DOUBTS[doubt].1).collect();
            let is_fed = sources.iter().any(|entry| entry.id == source && entry.format == SourceFormat::FED);
            let fault = if is_fed { fault_of(fragment.payload) } else { None };
            doubts.extend(fault.filter(|fault| !doubts.contains(fault)));
            doubts.into_iter().for_each(|doubt| found.add(EventFault::of_source(source.0, sources, doubt, None)));
        }
        if flags.contains(EventFlags::QUARANTINED) {
            found.add(EventFault { source: None, name: None, fault: "quarantined".to_owned(), cause: None });
        }
        let is_faulty = !found.faults.is_empty() || has_fault(flags.0 as u16);
        is_faulty.then_some(found)
    }

    fn add(&mut self, fault: EventFault) {
        if self.faults.len() < NAMED_FAULTS { self.faults.push(fault) } else { self.further_faults += 1 }
    }
}

/// The fault of a FED fragment as stored in the file.
fn fault_of(payload: &[u8]) -> Option<&'static str> {
    match fed::Fragment::parse(payload) {
        Ok(parsed) => parsed.check_crc().is_err().then_some("crc_errors"),
        Err(_) => Some("malformed"),
    }
}

/// Whether an event with these flags is incomplete, doubtful or quarantined.
const fn has_fault(flags: u16) -> bool {
    let faults = EventFlags::INCOMPLETE.0 | EventFlags::DOUBTFUL.0 | EventFlags::QUARANTINED.0;
    flags as u32 & faults != 0
}

impl EventFault {
    fn of_source(source: u32, sources: &[SourceEntry], fault: &str, cause: Option<String>) -> Self {
        let entry = sources.iter().find(|entry| entry.id.0 == source);
        // The file names a source without a configured name by its id.
        let name = entry.map(|entry| entry.name.clone()).filter(|name| *name != format!("source-{source}"));
        Self { source: Some(source), name, fault: fault.to_owned(), cause }
    }
}

/// `2001: adc (source 1) missing: skipped`.
impl fmt::Display for FaultyEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.event)?;
        for (place, fault) in self.faults.iter().enumerate() {
            write!(out, "{} {fault}", if place == 0 { "" } else { "," })?;
        }
        match (self.faults.is_empty(), self.further_faults) {
            (true, _) => write!(out, " incomplete or doubtful"),
            (false, 0) => Ok(()),
            (false, further) => write!(out, " and {further} more"),
        }
    }
}

impl fmt::Display for EventFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.source) {
            (Some(name), Some(source)) => write!(out, "{name} (source {source}) ")?,
            (None, Some(source)) => write!(out, "source {source} ")?,
            (_, None) => {}
        }
        match (&*self.fault, &self.cause) {
            (fault, Some(cause)) => write!(out, "{fault}: {}", cause.replace('_', " ")),
            ("crc_errors", None) => out.write_str("has a wrong checksum"),
            ("malformed", None) => out.write_str("is malformed"),
            ("status_error", None) => out.write_str("reports an error"),
            ("fragment_incomplete", None) => out.write_str("lacks frames"),
            ("displaced", None) => out.write_str("is displaced"),
            ("quarantined" | "missing", None) => out.write_str(&self.fault),
            (flag, None) => write!(out, "has a {}", flag.replace('_', " ")),
        }
    }
}

impl FaultyEvents {
    /// Those in a directory of run files. Files without an index are left out.
    ///
    /// # Errors
    /// If there is no run file, or one cannot be read.
    pub fn in_directory(directory: &Path) -> Result<Self, OfflineError> {
        let mut files = segment_files(&[directory])?;
        // All writers of a run begin with its first events.
        files.sort_by_key(|file| file.name.map(|name| (name.segment, name.writer, name.stream)));
        let are_streams = files.iter().any(|file| file.name.is_some_and(|name| !name.stream.is_unnamed()));
        let (mut first, mut found, mut looked, mut is_all) = (BTreeMap::new(), 0, 0, files.len() <= INDEXED_FILES);
        for file in files.iter().take(INDEXED_FILES) {
            if looked > INDEXED_EVENTS {
                is_all = false;
                break;
            }
            // Old files may be deleted at any time.
            let Ok(Some(footer)) = Footer::read(&file.path) else { continue };
            looked += footer.events.len();
            for entry in footer.events.iter().filter(|entry| has_fault(entry.flags)) {
                found += 1;
                keep_first(&mut first, (file, *entry));
            }
        }
        let more = found - first.len() as u64;
        let further = if more == 0 && is_all { Some(0) } else { Some(more).filter(|_| is_all && !are_streams) };
        Ok(Self { first: first.values().filter_map(|(file, entry)| read(file, entry)).collect(), further })
    }
}

/// Adds an event and leaves out the last one of too many.
fn keep_first<'a>(
    first: &mut BTreeMap<EventKey, (&'a SegmentFile, IndexEntry)>,
    (file, entry): (&'a SegmentFile, IndexEntry),
) {
    first.entry(entry.key).or_insert((file, entry));
    if first.len() > NAMED_EVENTS {
        first.pop_last();
    }
}

fn read(file: &SegmentFile, entry: &IndexEntry) -> Option<FaultyEvent> {
    let mut reader = SegmentReader::open(&file.path).ok()?;
    reader.seek(entry.offset).ok()?;
    reader.advance().ok()?;
    let record = reader.record()?;
    let event = EventView::parse(&record).ok().filter(|event| event.key() == entry.key)?;
    FaultyEvent::of(&event, reader.header().map_or(&[][..], |header| &header.sources))
}

/// The first faulty events of a reader, and how many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    pub(super) first: Vec<FaultyEvent>,
    pub(super) count: u64,
}

impl Noted {
    /// Notes an event that was found to be at fault.
    pub(super) fn add(&mut self, event: &RunEvent<'_>) {
        self.count += 1;
        if self.first.len() < NAMED_EVENTS {
            self.first.extend(FaultyEvent::of(&event.event, event.sources));
        }
    }
}
