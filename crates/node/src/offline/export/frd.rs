//! FED raw data.
//!
//! An event that came out of such a file has its header, and what stood before and behind it, in its envelope: it goes out as it
//! came, byte for byte, and a file's header begins a file. Other events get headers, and all of them one file with a header; or
//! several files by number and lumisection, with the documents that filter units want beside them (`file_based`).

use super::output::Output;
use super::{Exported, Exporter, FrdOptions, Parts, RunFiles, named};
use crate::file_based::documents::{EndOfLumisection, EndOfRun, RawFile, write_legend, write_numbers};
use crate::offline::OfflineError;
use ropewalk_terms::RunNumber;
use ropewalk_wire::fed;
use ropewalk_wire::frd::{EventHeader, FILE_HEADER_BYTES, FileHeader, FileKind, FileName, FrdError, encode_event};
use ropewalk_wire::run_file::{SourceFormat, run_directory_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The first lumisection, and that of events that say nothing of one.
const FIRST_LUMISECTION: u32 = 1;
/// So many lumisections without events may follow each other: each has a document.
const MOST_EMPTY: u32 = 100_000;
/// Who writes documents.
const SOURCE: &str = "convert";

/// Writes files one after the other.
pub(super) struct Frd {
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
    /// Events in it, where its header is still to be written.
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
    /// None where the bytes are no such envelope: the event came in another format.
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
    pub(super) fn new(directory: &Path, run: Option<RunNumber>, options: FrdOptions) -> Result<Self, OfflineError> {
        let (mut directory, run) = (directory.to_owned(), named(run));
        if options.files.is_some() {
            directory.push(run_directory_name(run));
            std::fs::create_dir(&directory).map_err(OfflineError::system("make", &directory))?;
        }
        let (files, lumisections, bytes) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Self { directory, run, options, open: None, files, lumisections, bytes })
    }

    /// Closes the open file and begins the next one; `counted` where its header says what is written from now on.
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
            // Those between that are empty are closed as well: whoever counts lumisections finds them all.
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

    /// An event as it was in its file, as far as its fragments are those that it had.
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
                    event.refused(format!("source {source} sends {name} fragments, and FRD holds FED fragments alone"))
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
