//! Exports run files to other formats: every key once, in key order.
//!
//! ```text
//!  RunIndex -> OrderedReader -> one event after the other --> FRD   FED raw data, a file for each file's header
//!                                                         --> MDF   MDF records
//!                                                         --> raw   the fragments back to back
//! ```
//! What the other format cannot represent is counted ([`Exported::not_carried`]); an event that does not fit is
//! refused. Files are written under a name that ends in `.part`, and renamed when complete.
//!
//! FRD: an event converted from such a file has its header, and the bytes before and after it, in its envelope. It is
//! exported byte for byte, and a file's header begins a file. Other events get headers, and either one file with a
//! header or several files by number and lumisection, with the documents that filter units need (`file_based`).
//!
//! MDF: fragments that are banks are exported unchanged. Others are wrapped: each becomes one bank of type 255 with the
//! fragment's source. A record converted from such a file has its header in its envelope, and is exported unchanged.

#[cfg(test)]
mod tests;

use super::{OfflineError, RunEvent, RunIndex};
use crate::file_based::documents::{write_legend, write_numbers};
use crate::status::StatusSummary;
use ropewalk_engine::documents::{EndOfLumisection, EndOfRun, RawFile};
use ropewalk_terms::{Asked, EventKey, Fact, RunNumber, SourceId};
use ropewalk_wire::fed;
use ropewalk_wire::foreign::ENVELOPE;
use ropewalk_wire::frd::{
    EventHeader, FILE_HEADER_BYTES, FileHeader, FileKind, FileName, FrdError, Version, encode_event,
};
use ropewalk_wire::mdf::{AboutEvent, LARGEST_BANK_DATA, RecordHeader, encode_record};
use ropewalk_wire::mep::{BANK_MAGIC, Bank, Banks, FRAGMENT_HEADER_BYTES, FragmentHeader, encode_bank};
use ropewalk_wire::run_file::{EventFlags, FragmentFlags, FragmentView, SourceEntry, SourceFormat, run_directory_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
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
    /// This many events of a lumisection are in a file, at most.
    pub events: u32,
    /// This many event numbers are a lumisection.
    pub lumisection_events: u64,
}

/// What was exported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exported {
    /// Events that were written.
    pub events: u64,
    /// Their fragments, without envelopes.
    pub fragments: u64,
    /// Bytes of these.
    pub fragment_bytes: u64,
    /// Fragments with a wrong checksum; they are exported unchanged.
    pub wrong_checksums: u64,
    /// What the format has no place for: its name, and of how many events it is missing.
    pub not_carried: BTreeMap<&'static str, u64>,
    /// The files.
    pub files: Vec<PathBuf>,
    /// The exit status, and why.
    pub status: StatusSummary,
}

/// Makes files of another format of the run in these directories or files; they come into `directory`, which exists.
///
/// # Errors
/// If a file cannot be read or written, there are segments of several runs, or an event does not fit into the format.
pub fn export<P: AsRef<Path>>(places: &[P], format: ExportFormat, directory: &Path) -> Result<Exported, OfflineError> {
    let index = RunIndex::build(places)?;
    let sources = Sources::of(&index);
    let mut writer: Box<dyn Exporter> = match format {
        ExportFormat::Frd(options) => Box::new(Frd::new(directory, index.run(), options)?),
        ExportFormat::Mdf => Box::new(Mdf::new(directory, index.run())?),
        ExportFormat::Raw => Box::new(Raw::new(directory, index.run())?),
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

    /// Closes the open file, and returns all files.
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

/// An event: its fragments with their formats, and the bytes around them in another format.
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

    /// Counts what is left out of an event that was none of this format before, so that its envelope means nothing
    /// here.
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

/// A file being written. It is removed unless it is finished.
struct Output {
    /// The name that it will have.
    path: PathBuf,
    part: PathBuf,
    file: Option<BufWriter<File>>,
    length: u64,
}

impl Output {
    /// Begins a file.
    fn create(directory: &Path, name: &str) -> Result<Self, OfflineError> {
        let (path, part) = (directory.join(name), directory.join(format!("{name}.part")));
        if path.exists() {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(OfflineError::system("create", &path)(exists));
        }
        let file = File::create_new(&part).map_err(OfflineError::system("create", &part))?;
        Ok(Self { path, part, file: Some(BufWriter::new(file)), length: 0 })
    }

    /// Bytes so far.
    const fn length(&self) -> u64 {
        self.length
    }

    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(OfflineError::system("write", &self.part))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes over the file's first bytes.
    fn begin_with(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(bytes));
        let written = written.and_then(|()| file.seek(SeekFrom::End(0)));
        written.map(|_| ()).map_err(OfflineError::system("write", &self.part))
    }

    /// The file is whole.
    fn finish(mut self) -> Result<PathBuf, OfflineError> {
        let written = self.file.take().map_or(Ok(()), |mut file| file.flush().and_then(|()| file.get_ref().sync_all()));
        written.map_err(OfflineError::system("write", &self.part))?;
        std::fs::rename(&self.part, &self.path).map_err(OfflineError::system("rename", &self.part))?;
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Nothing is left under the final name; if the partial file cannot be removed, its name says what it is.
        let _ = std::fs::remove_file(&self.part);
    }
}

/// The first lumisection, and that of events that say nothing of one.
const FIRST_LUMISECTION: u32 = 1;
/// This many lumisections without events may follow each other: each has a document.
const MOST_EMPTY: u32 = 100_000;
/// Who writes documents.
const SOURCE: &str = "convert";

/// Writes files one after the other.
struct Frd {
    directory: PathBuf,
    run: RunNumber,
    options: FrdOptions,
    open: Option<Open>,
    files: Vec<PathBuf>,
    /// By lumisection, where documents are written.
    lumisections: BTreeMap<u32, EndOfLumisection>,
    bytes: Vec<u8>,
}

/// The file that is being written.
struct Open {
    output: Output,
    name: FileName,
    /// The number of its events, if its header is still to be written.
    counted: Option<u32>,
}

/// What an envelope says.
struct Envelope<'a> {
    /// The headers of the files that end or begin before the event.
    file_headers: &'a [u8],
    header: EventHeader,
    header_bytes: &'a [u8],
    padding: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// `None` if the bytes are not such an envelope: the event came in another format.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let is_file_header = |rest: &[u8]| rest.first_chunk().is_some_and(|first| FileHeader::parse(first).is_ok());
        let mut at = 0;
        while is_file_header(&bytes[at..]) {
            at += FILE_HEADER_BYTES;
        }
        let (file_headers, rest) = bytes.split_at(at);
        let header = EventHeader::read(rest).ok()?;
        let (header_bytes, padding) = rest.split_at_checked(header.version.header_bytes())?;
        (padding.len() == header.padding_bytes as usize).then_some(Self { file_headers, header, header_bytes, padding })
    }
}

impl Frd {
    fn new(directory: &Path, run: Option<RunNumber>, options: FrdOptions) -> Result<Self, OfflineError> {
        let (mut directory, run) = (directory.to_owned(), named(run));
        if options.files.is_some() {
            directory.push(run_directory_name(run));
            std::fs::create_dir(&directory).map_err(OfflineError::system("make", &directory))?;
        }
        let (files, lumisections, bytes) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Self { directory, run, options, open: None, files, lumisections, bytes })
    }

    /// Closes the open file and begins the next one; `counted` if the header counts the events written from now on.
    fn next_file(&mut self, run: u32, lumisection: u32, counted: Option<u32>) -> Result<&mut Open, OfflineError> {
        self.close()?;
        let kind = FileKind::Raw { index: self.files.len() as u32 };
        let name = FileName { run: RunNumber(run), lumisection, kind };
        let mut output = Output::create(&self.directory, &name.to_string())?;
        if counted.is_some() {
            output.write(&FileHeader::default().to_bytes())?;
        }
        Ok(self.open.insert(Open { output, name, counted }))
    }

    fn close(&mut self) -> Result<(), OfflineError> {
        let Some(Open { mut output, name, counted }) = self.open.take() else { return Ok(()) };
        let (bytes, events) = (output.length(), u64::from(counted.unwrap_or_default()));
        if let Some(events) = counted {
            output.begin_with(&FileHeader { events, file_bytes: bytes }.to_bytes())?;
        }
        if let (Some(_), FileKind::Raw { index }) = (self.options.files, name.kind) {
            // What is in a file is known before the file is there.
            let document = FileName { kind: FileKind::Account { index }, ..name };
            write_numbers(&self.directory.join(document.to_string()), &RawFile { events, bytes }, SOURCE)?;
            let sum = self.lumisections.entry(name.lumisection).or_default();
            (sum.events, sum.total_events) = (sum.events + events, sum.total_events + events);
            (sum.files, sum.bytes) = (sum.files + 1, sum.bytes + bytes);
        }
        self.files.push(output.finish()?);
        Ok(())
    }

    /// Closes lumisections and run.
    fn close_run(&self) -> Result<(), OfflineError> {
        let path = |lumisection, kind| self.directory.join(FileName { run: self.run, lumisection, kind }.to_string());
        let mut end = EndOfRun { lumisections: self.lumisections.len() as u64, ..EndOfRun::default() };
        let first = self.lumisections.keys().next().copied().unwrap_or(FIRST_LUMISECTION);
        let last = self.lumisections.keys().next_back().copied().unwrap_or_default();
        for lumisection in first..=last {
            // Empty lumisections in between are closed as well: a reader that counts lumisections finds them all.
            let sum = self.lumisections.get(&lumisection).copied().unwrap_or_default();
            write_numbers(&path(lumisection, FileKind::EndOfLumisection), &sum, SOURCE)?;
            (end.events, end.files) = (end.events + sum.events, end.files + sum.files);
        }
        end.last_lumisection = last.into();
        write_legend::<RawFile>(&self.directory)?;
        write_legend::<EndOfLumisection>(&self.directory)?;
        write_legend::<EndOfRun>(&self.directory)?;
        Ok(write_numbers(&path(0, FileKind::EndOfRun), &end, SOURCE)?)
    }

    /// The file that an event of this number belongs into.
    fn file_for(&mut self, event: &Parts<'_>) -> Result<u32, OfflineError> {
        // As in a run, whose first event is number 1.
        let number = event.key.number().saturating_sub(1);
        let of_number = |files: RunFiles| {
            let lumisection = u32::try_from(number / files.lumisection_events).ok()?;
            lumisection.checked_add(FIRST_LUMISECTION)
        };
        let Some(lumisection) = self.options.files.map_or(Some(FIRST_LUMISECTION), of_number) else {
            return Err(
                event.refused("its lumisection's number has more than 32 bits: let lumisections be longer".to_owned())
            );
        };
        let before = self.open.as_ref().map_or(lumisection, |open| open.name.lumisection);
        if lumisection.saturating_sub(before) > MOST_EMPTY {
            let why = format!("lumisections {} to {} would be empty", before + 1, lumisection - 1);
            return Err(event.refused(format!("{why}, each with a document: let lumisections be longer")));
        }
        let is_full = |open: &Open| {
            let most = self.options.files.map_or(u32::MAX, |files| files.events);
            open.name.lumisection != lumisection || open.counted >= Some(most)
        };
        if self.open.as_ref().is_none_or(is_full) {
            self.next_file(self.run.0, lumisection, Some(0))?;
        }
        Ok(lumisection)
    }

    /// Writes an event as it was in its original file, if it still has the same fragments.
    fn again(&mut self, event: &Parts<'_>, envelope: &Envelope<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        let header = envelope.header;
        for file_header in envelope.file_headers.chunks(FILE_HEADER_BYTES) {
            self.next_file(header.run, header.lumisection, None)?.output.write(file_header)?;
        }
        if self.open.is_none() {
            self.next_file(header.run, header.lumisection, None)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if event.bytes() == u64::from(header.data_bytes) {
            open.output.write(envelope.header_bytes)?;
            event.fragments.iter().try_for_each(|part| open.output.write(part.view.payload))?;
            return open.output.write(envelope.padding);
        }
        told.miss("the event's length, which is another one now", true);
        self.encode(event, header)
    }

    /// An event that was none of this format.
    fn made(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        told.note_made(event);
        for part in &event.fragments {
            let source = part.view.entry.source;
            if part.format != SourceFormat::FED {
                let name = part.format.name();
                return Err(
                    event.refused(format!("source {source} sends {name} fragments, and FRD holds only FED fragments"))
                );
            }
            let fragment = fed::Fragment::parse(part.view.payload);
            let fragment =
                fragment.map_err(|error| event.refused(format!("the fragment of source {source}: {error}")))?;
            told.wrong_checksums += u64::from(fragment.check_crc().is_err());
        }
        let lumisection = self.file_for(event)?;
        let header = EventHeader {
            version: self.options.version,
            flags: 0,
            run: self.run.0,
            lumisection,
            event: event.key.number(),
            data_bytes: 0,
            padding_bytes: 0,
            checksum: 0,
        };
        self.encode(event, header)
    }

    fn encode(&mut self, event: &Parts<'_>, header: EventHeader) -> Result<(), OfflineError> {
        let pieces: Vec<&[u8]> = event.fragments.iter().map(|part| part.view.payload).collect();
        self.bytes.clear();
        encode_event(header, &pieces, &mut self.bytes).map_err(|error| {
            let advice = if matches!(error, FrdError::EventNumber { .. }) { " (--frd-version 4)" } else { "" };
            event.refused(format!("{error}{advice}"))
        })?;
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Some(events) = &mut open.counted {
            *events += 1;
        }
        open.output.write(&self.bytes)
    }
}

impl Exporter for Frd {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        // The files of a run's directory say what is in them: they are made anew.
        match event.envelope.and_then(Envelope::parse).filter(|_| self.options.files.is_none()) {
            Some(envelope) => self.again(event, &envelope, told),
            None => self.made(event, told),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        self.close()?;
        if self.options.files.is_some() {
            self.close_run()?;
        }
        Ok(self.files)
    }
}

/// The type of banks whose data are fragments of another kind.
const WRAPPED: u8 = 255;

/// One file of all events.
struct Mdf {
    run: RunNumber,
    output: Output,
    bytes: Vec<u8>,
}

impl Mdf {
    fn new(directory: &Path, run: Option<RunNumber>) -> Result<Self, OfflineError> {
        let run = named(run);
        let output = Output::create(directory, &format!("{}.mdf", run_directory_name(run)))?;
        Ok(Self { run, output, bytes: Vec::new() })
    }

    /// A record that was none before.
    fn made(&mut self, event: &Parts<'_>, about: &AboutEvent) -> Result<(), OfflineError> {
        let banks = event.fragments.iter().map(|part| banks_of(event, part)).collect::<Result<Vec<_>, _>>()?;
        let pieces: Vec<&[u8]> = banks.iter().map(|bank| &bank[..]).collect();
        self.bytes.clear();
        encode_record(about, &pieces, &mut self.bytes).map_err(|error| event.refused(error.to_string()))?;
        self.output.write(&self.bytes)
    }

    fn about(&self, event: &Parts<'_>) -> AboutEvent {
        let entries = event.fragments.iter().map(|part| &part.view.entry);
        let crossing = entries.clone().find(|entry| entry.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING));
        let bunch = crossing.map_or(0, |entry| entry.bunch_crossing.into());
        // Like LHCb's own writer without trigger information: every trigger wanted the event.
        AboutEvent { trigger_mask: [u32::MAX; 4], run: self.run.0, orbit: 0, bunch }
    }
}

/// A fragment as banks.
fn banks_of<'a>(event: &Parts<'_>, part: &Part<'a>) -> Result<Cow<'a, [u8]>, OfflineError> {
    let (source, payload) = (part.view.entry.source, part.view.payload);
    if part.format == SourceFormat::BANKS {
        let banks = without_header(payload);
        return match Banks::new(banks).all(|bank| bank.is_ok()) {
            true => Ok(Cow::Borrowed(banks)),
            false => Err(event.refused(format!("the fragment of source {source} does not consist of whole banks"))),
        };
    }
    let Ok(id) = u16::try_from(source.0) else {
        return Err(event.refused(format!("source {source} does not fit into the 16 bits that a bank has for it")));
    };
    if payload.len() > LARGEST_BANK_DATA {
        let bytes = payload.len();
        let why = format!("the fragment of source {source} has {bytes} B, and a bank holds {LARGEST_BANK_DATA} B");
        return Err(event.refused(why));
    }
    let mut bank = Vec::new();
    let encoded = encode_bank(&Bank { kind: WRAPPED, version: 0, source: id.cast_signed(), data: payload }, &mut bank);
    encoded.map_err(|error| event.refused(error.to_string()))?;
    Ok(Cow::Owned(bank))
}

/// Banks without the header that a fragment has in a multi-event packet.
fn without_header(payload: &[u8]) -> &[u8] {
    let is_bank = |bytes: &[u8]| bytes.starts_with(&BANK_MAGIC.to_le_bytes());
    match payload.split_first_chunk::<FRAGMENT_HEADER_BYTES>() {
        Some((&header, rest))
            if !is_bank(payload) && usize::from(FragmentHeader::from_bytes(header).length) == rest.len() =>
        {
            rest
        }
        _ => payload,
    }
}

impl Exporter for Mdf {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        let header = event.envelope.and_then(|bytes| Some((bytes, RecordHeader::read(bytes).ok()?)));
        let own = header.filter(|(bytes, header)| bytes.len() == header.header_bytes());
        let Some((bytes, header)) = own else {
            told.note_made(event);
            told.miss("event numbers", true);
            return self.made(event, &self.about(event));
        };
        if header.header_bytes() as u64 + event.bytes() != u64::from(header.bytes) {
            told.miss("the event's length, which is another one now", true);
            return self.made(event, &header.about.unwrap_or_else(|| self.about(event)));
        }
        self.output.write(bytes)?;
        event.fragments.iter().try_for_each(|part| self.output.write(part.view.payload))
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        Ok(vec![self.output.finish()?])
    }
}

/// One file of all fragments.
struct Raw {
    output: Output,
}

impl Raw {
    fn new(directory: &Path, run: Option<RunNumber>) -> Result<Self, OfflineError> {
        let name = format!("{}.raw", run_directory_name(named(run)));
        Ok(Self { output: Output::create(directory, &name)? })
    }
}

impl Exporter for Raw {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        told.note_made(event);
        told.miss("event numbers", true);
        let mut fragments: Vec<&Part<'_>> = event.fragments.iter().collect();
        fragments.sort_by_key(|part| part.rank);
        fragments.iter().try_for_each(|part| self.output.write(part.view.payload))
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        Ok(vec![self.output.finish()?])
    }
}
