//! FED raw data.
//!
//! An event that came out of such a file has its header, and what stood before and behind it, in its envelope: it goes out as it
//! came, byte for byte, and a file's header begins a file. Other events get headers, and all of them one file with a header.

use super::output::Output;
use super::{Exported, Exporter, Parts, named};
use crate::offline::OfflineError;
use ropewalk_terms::RunNumber;
use ropewalk_wire::fed;
use ropewalk_wire::frd::{
    EventHeader, FILE_HEADER_BYTES, FileHeader, FileKind, FileName, FrdError, Version, encode_event,
};
use ropewalk_wire::run_file::SourceFormat;
use std::path::{Path, PathBuf};

/// The lumisection of events that say nothing of one.
const FIRST_LUMISECTION: u32 = 1;

/// Writes files one after the other.
pub(super) struct Frd {
    directory: PathBuf,
    run: RunNumber,
    /// Of events without a header of their own.
    version: Version,
    open: Option<Open>,
    files: Vec<PathBuf>,
    bytes: Vec<u8>,
}

/// The file that is being written.
struct Open {
    output: Output,
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
    pub(super) fn new(directory: &Path, run: Option<RunNumber>, version: Version) -> Self {
        let (directory, run) = (directory.to_owned(), named(run));
        Self { directory, run, version, open: None, files: Vec::new(), bytes: Vec::new() }
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
        Ok(self.open.insert(Open { output, counted }))
    }

    fn close(&mut self) -> Result<(), OfflineError> {
        let Some(Open { mut output, counted }) = self.open.take() else { return Ok(()) };
        if let Some(events) = counted {
            output.begin_with(&FileHeader { events, file_bytes: output.length() }.to_bytes())?;
        }
        self.files.push(output.finish()?);
        Ok(())
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
        if self.open.is_none() {
            self.next_file(self.run.0, FIRST_LUMISECTION, Some(0))?;
        }
        let header = EventHeader {
            version: self.version,
            flags: 0,
            run: self.run.0,
            lumisection: FIRST_LUMISECTION,
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
        match event.envelope.and_then(Envelope::parse) {
            Some(envelope) => self.again(event, &envelope, told),
            None => self.made(event, told),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        self.close()?;
        Ok(self.files)
    }
}
