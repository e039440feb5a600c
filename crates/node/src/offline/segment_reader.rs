//! One segment, record after record, through a window.

use super::OfflineError;
use super::segment_bytes::SegmentBytes;
use ropewalk_wire::run_file::{Damage, Record, RecordError, SegmentHeader, Step, scan};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes that are read at once. Small enough to be still in the cache when the checksum looks at them.
const WINDOW_BYTES: usize = 1 << 20;

/// What was found at the reader's place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A whole record with the right checksum: [`SegmentReader::record`] shows it.
    Record {
        /// Where it begins in the file, in bytes.
        offset: u64,
    },
    /// Bytes that belong to no readable record.
    Damaged {
        /// Where they begin in the file, in bytes.
        offset: u64,
        /// How many they are.
        bytes: u64,
        /// Why.
        damage: Damage,
    },
}

/// Reads a segment from its begin to its end.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    file: SegmentBytes,
    window: Vec<u8>,
    /// What of the window was read from the file and not stepped over.
    filled: Range<usize>,
    /// Where the first of those bytes lies in the file.
    offset: u64,
    at_end: bool,
    record: Range<usize>,
    header: Option<SegmentHeader>,
}

impl SegmentReader {
    /// Opens a segment and reads its header.
    ///
    /// # Errors
    /// Where the file cannot be read or is of another major version. A header that is damaged is no error.
    pub fn open(path: &Path) -> Result<Self, OfflineError> {
        let file = SegmentBytes::open(path).map_err(OfflineError::system("open", path))?;
        let mut reader = Self {
            path: path.to_owned(),
            file,
            window: vec![0; WINDOW_BYTES],
            filled: 0..0,
            offset: 0,
            at_end: false,
            record: 0..0,
            header: None,
        };
        if let Step::Record { length } = reader.look()? {
            match Record::parse_unchecked(&reader.window[..length]).and_then(|record| SegmentHeader::decode(&record)) {
                Ok(header) => reader.header = Some(header),
                Err(error @ RecordError::Version { .. }) => {
                    return Err(OfflineError::Version { path: reader.path, error });
                }
                Err(_) => {}
            }
        }
        Ok(reader)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The segment's header, where it is readable.
    pub const fn header(&self) -> Option<&SegmentHeader> {
        self.header.as_ref()
    }

    /// Bytes of a packed segment's file that nothing can be unpacked from.
    pub fn unreadable(&self) -> u64 {
        self.file.unreadable()
    }

    /// Goes to another place in the file, in bytes from its begin.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn seek(&mut self, offset: u64) -> Result<(), OfflineError> {
        self.file.seek(SeekFrom::Start(offset)).map_err(OfflineError::system("read", &self.path))?;
        (self.filled, self.record) = (0..0, 0..0);
        (self.offset, self.at_end) = (offset, false);
        Ok(())
    }

    /// Steps to the next record or damaged stretch; none at the end of the file.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn advance(&mut self) -> Result<Option<Found>, OfflineError> {
        let step = self.look()?;
        let offset = self.offset;
        match step {
            Step::Record { length } => {
                self.record = self.filled.start..self.filled.start + length;
                self.step_over(length);
                Ok(Some(Found::Record { offset }))
            }
            Step::Damaged { skip, damage } => {
                self.record = 0..0;
                self.step_over(skip);
                Ok(Some(Found::Damaged { offset, bytes: skip as u64, damage }))
            }
            Step::End | Step::NeedMore { .. } => Ok(None),
        }
    }

    /// The record that [`SegmentReader::advance`] found last; none where that was damage.
    pub fn record(&self) -> Option<Record<'_>> {
        Record::parse_unchecked(&self.window[self.record.clone()]).ok()
    }

    /// What stands at the reader's place, after reading as much of the file as it takes to know.
    fn look(&mut self) -> Result<Step, OfflineError> {
        loop {
            match scan(&self.window[self.filled.clone()], self.at_end) {
                Step::NeedMore { bytes } => self.fill(bytes)?,
                step => return Ok(step),
            }
        }
    }

    fn step_over(&mut self, bytes: usize) {
        self.filled.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads until the window holds `bytes` or the file ends.
    fn fill(&mut self, bytes: usize) -> Result<(), OfflineError> {
        self.window.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        self.record = 0..0;
        while self.filled.end < bytes && !self.at_end {
            if self.filled.end == self.window.len() {
                // Grows with what is really there, not with what a header claims.
                self.window.resize(bytes.min(2 * self.window.len()), 0);
            }
            let read = self.file.read(&mut self.window[self.filled.end..]);
            match read {
                Ok(0) => self.at_end = true,
                Ok(count) => self.filled.end += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(OfflineError::system("read", &self.path)(error)),
            }
        }
        Ok(())
    }
}
