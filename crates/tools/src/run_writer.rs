//! Writes run files without a run: segments of bounded size, with their final name when complete.

use super::OfflineError;
use ropewalk_terms::{AcknowledgementLevel, EventKey, Incarnation, NodeId, RunNumber, Utc};
use ropewalk_wire::run_file::{
    BeginOfRun, EndOfRun, EventHead, FragmentEntry, MINOR_VERSION, MissingSource, OPEN_EXTENSION, RecordError,
    SegmentHeader, SegmentIndex, SegmentName, SourceEntry, StreamName, encode_event,
};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A segment is closed at this size.
const SEGMENT_BYTES: u64 = 512 << 20;
/// Or after this many events.
const SEGMENT_EVENTS: usize = 1 << 17;

/// Writes the segments of one run.
pub(super) struct RunWriter {
    directory: PathBuf,
    header: SegmentHeader,
    text: String,
    open: Option<Open>,
    last: Option<EventKey>,
    events: u64,
    record: Vec<u8>,
}

struct Open {
    name: SegmentName,
    path: PathBuf,
    file: BufWriter<File>,
    length: u64,
    index: SegmentIndex,
}

impl RunWriter {
    /// A run of these sources, whose begin says this `text`, in a directory that is there.
    pub(super) fn new(directory: &Path, run: RunNumber, start: Utc, sources: Vec<SourceEntry>, text: String) -> Self {
        let header = SegmentHeader {
            run,
            segment: 0,
            writer: NodeId::builder(0),
            incarnation: Incarnation(start.0.max(1) as u64),
            start,
            acknowledgement: AcknowledgementLevel::Synced,
            minor: MINOR_VERSION,
            stream: StreamName::UNNAMED,
            selected: false,
            sources,
        };
        let (directory, record) = (directory.to_owned(), Vec::new());
        Self { directory, header, text, open: None, last: None, events: 0, record }
    }

    /// The writer's life, as the heads of its events have it.
    pub(super) const fn incarnation(&self) -> Incarnation {
        self.header.incarnation
    }

    /// Appends an event.
    pub(super) fn event(
        &mut self,
        head: &EventHead,
        missing: &[MissingSource],
        fragments: &[(FragmentEntry, &[u8])],
    ) -> Result<(), OfflineError> {
        let is_full = |open: &Open| open.length >= SEGMENT_BYTES || open.index.entries().len() >= SEGMENT_EVENTS;
        if self.open.as_ref().is_some_and(is_full) {
            self.close()?;
        }
        if self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        self.record.clear();
        let entry = encode_event(&mut self.record, open.length, head, missing, fragments);
        open.index.push(entry.map_err(|error| failed(&open.path, error))?);
        open.write(&self.record)?;
        (self.last, self.events) = (self.last.max(Some(head.key)), self.events + 1);
        Ok(())
    }

    /// Closes the last segment. A run without events has one, too.
    pub(super) fn finish(mut self) -> Result<(), OfflineError> {
        if self.open.is_none() && self.header.segment == 0 {
            self.open = Some(self.begin()?);
        }
        self.close()
    }

    fn begin(&mut self) -> Result<Open, OfflineError> {
        self.header.segment += 1;
        let SegmentHeader { run, writer, stream, segment, .. } = self.header;
        let name = SegmentName { run, writer, stream, segment };
        let path = self.directory.join(format!("{name}{OPEN_EXTENSION}"));
        let file = BufWriter::new(File::create_new(&path).map_err(OfflineError::system("create", &path))?);
        let mut open = Open { name, path, file, length: 0, index: SegmentIndex::with_capacity(SEGMENT_EVENTS) };
        self.record.clear();
        self.header.encode(&mut self.record).map_err(|error| failed(&open.path, error))?;
        let begin = BeginOfRun { run: self.header.run, start: self.header.start, text: self.text.clone() };
        begin.encode(&mut self.record).map_err(|error| failed(&open.path, error))?;
        open.write(&self.record)?;
        Ok(open)
    }

    fn close(&mut self) -> Result<(), OfflineError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let end = self.header.start;
        self.record.clear();
        let last = EndOfRun { run: self.header.run, end, last: self.last, events: self.events, text: String::new() };
        last.encode(&mut self.record).map_err(|error| failed(&open.path, error))?;
        let at = open.length + self.record.len() as u64;
        open.index.encode(&mut self.record, at, end, false).map_err(|error| failed(&open.path, error))?;
        open.write(&self.record)?;
        open.file.flush().map_err(OfflineError::system("write", &open.path))?;
        open.file.get_ref().sync_all().map_err(OfflineError::system("sync", &open.path))?;
        let closed = self.directory.join(open.name.to_string());
        std::fs::rename(&open.path, &closed).map_err(OfflineError::system("rename", &open.path))
    }
}

impl Open {
    fn write(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        self.file.write_all(bytes).map_err(OfflineError::system("write", &self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn failed(path: &Path, error: RecordError) -> OfflineError {
    OfflineError::system("write an event into", path)(std::io::Error::other(error))
}
