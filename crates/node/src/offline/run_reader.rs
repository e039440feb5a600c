//! The events of many segments, in the order of the files.

use super::{Found, OfflineError, SegmentFile, SegmentReader, segment_files};
use ropewalk_wire::run_file::{EventView, SourceEntry};
use std::path::Path;
use std::vec;

/// An event where it lies.
#[derive(Debug)]
pub struct RunEvent<'a> {
    /// The event.
    pub event: EventView<'a>,
    /// The file.
    pub path: &'a Path,
    /// Where its record begins in the file, in bytes.
    pub offset: u64,
    /// The run's sources, where the segment's header is readable.
    pub sources: &'a [SourceEntry],
}

/// Reads every event record of some run directories or files.
///
/// The order is that of the files, and a key may come twice: [`RunIndex`](super::RunIndex) gives one copy per key in
/// the order of the keys. Damaged bytes are stepped over and counted.
#[derive(Debug)]
pub struct RunReader {
    files: vec::IntoIter<SegmentFile>,
    segment: Option<SegmentReader>,
    damaged_bytes: u64,
}

impl RunReader {
    /// A reader of everything in these directories or files.
    ///
    /// # Errors
    /// Where there is no segment.
    pub fn open<P: AsRef<Path>>(places: &[P]) -> Result<Self, OfflineError> {
        Ok(Self { files: segment_files(places)?.into_iter(), segment: None, damaged_bytes: 0 })
    }

    /// Bytes that were stepped over because no record could be read there.
    pub const fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// The next event; none behind the last.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn next_event(&mut self) -> Result<Option<RunEvent<'_>>, OfflineError> {
        let offset = loop {
            let Some(segment) = &mut self.segment else {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.segment = Some(SegmentReader::open(&file.path)?);
                continue;
            };
            match segment.advance()? {
                None => self.segment = None,
                Some(Found::Damaged { bytes, .. }) => self.damaged_bytes += bytes,
                Some(Found::Record { offset }) => {
                    if segment.record().is_some_and(|record| EventView::parse(&record).is_ok()) {
                        break offset;
                    }
                }
            }
        };
        Ok(self.segment.as_ref().and_then(|segment| {
            let event = EventView::parse(&segment.record()?).ok()?;
            let sources = segment.header().map_or(&[][..], |header| &header.sources);
            Some(RunEvent { event, path: segment.path(), offset, sources })
        }))
    }
}
