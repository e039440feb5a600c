//! One look over a whole segment: what is in it, and what cannot be read.

use super::{Found, OfflineError, SegmentFile, SegmentReader};
use ropewalk_wire::run_file::{
    Damage, EndOfRun, EventView, FooterView, IndexEntry, Record, RecordKind, SegmentHeader, StreamName,
};
use std::ops::Range;
use std::path::Path;

/// Whether a segment was closed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FooterState {
    /// It does not end in a footer.
    Missing,
    /// Its footer says something else than its event records.
    Wrong,
    /// Its footer agrees with its event records.
    Right,
}

/// What a segment holds.
#[derive(Clone, PartialEq, Debug)]
pub struct SegmentScan {
    /// Its header, where it is readable.
    pub header: Option<SegmentHeader>,
    /// Its event records, in the order of the file.
    pub events: Vec<IndexEntry>,
    /// What its writer said at the end of the run, where it stands in this segment.
    pub end_of_run: Option<EndOfRun>,
    /// Where whole records lie in the file, footers left out; neighbours are one stretch.
    pub whole: Vec<Range<u64>>,
    /// Whether it was closed.
    pub footer: FooterState,
    /// Records with a readable header and a wrong checksum.
    pub crc_errors: u64,
    /// Event records with a right checksum and a content that contradicts itself.
    pub malformed: u64,
    /// Bytes that belong to no readable record, the cut record at the end included.
    pub damaged_bytes: u64,
    /// Bytes of the record at the end that was cut: what the writer was writing when it stopped.
    pub cut_bytes: u64,
}

impl SegmentScan {
    /// Reads the whole segment.
    ///
    /// # Errors
    /// Where the file cannot be read or is of another major version. Damage is no error.
    pub fn of(path: &Path) -> Result<Self, OfflineError> {
        let mut reader = SegmentReader::open(path)?;
        let mut scan = Self {
            header: reader.header().cloned(),
            events: Vec::new(),
            end_of_run: None,
            whole: Vec::new(),
            footer: FooterState::Missing,
            crc_errors: 0,
            malformed: 0,
            damaged_bytes: 0,
            cut_bytes: 0,
        };
        while let Some(found) = reader.advance()? {
            // A footer counts only where nothing follows it.
            scan.footer = FooterState::Missing;
            match found {
                Found::Damaged { bytes, damage, .. } => scan.add_damage(bytes, damage),
                Found::Record { offset } => {
                    if let Some(record) = reader.record() {
                        scan.add_record(offset, &record);
                    }
                }
            }
        }
        // What a writer was writing when it stopped cannot be unpacked.
        scan.cut_bytes += reader.unreadable();
        scan.damaged_bytes += reader.unreadable();
        Ok(scan)
    }

    /// The stream that the segment belongs to: its header says so, or where that cannot be read its name.
    pub fn stream(&self, file: &SegmentFile) -> StreamName {
        let named = file.name.map(|name| name.stream);
        self.header.as_ref().map(|header| header.stream).or(named).unwrap_or_default()
    }

    /// Whether nothing is wrong with it.
    pub fn is_whole(&self) -> bool {
        self.footer == FooterState::Right && self.damaged_bytes == 0
    }

    fn add_damage(&mut self, bytes: u64, damage: Damage) {
        self.damaged_bytes += bytes;
        match damage {
            Damage::Checksum => self.crc_errors += 1,
            Damage::Cut => self.cut_bytes += bytes,
            Damage::NoHeader => {}
        }
    }

    fn add_record(&mut self, offset: u64, record: &Record<'_>) {
        match record.kind() {
            RecordKind::FOOTER => {
                self.footer = match FooterView::parse(record) {
                    Ok(footer) if footer.offset() == offset && footer.entries().eq(self.events.iter().copied()) => {
                        FooterState::Right
                    }
                    _ => FooterState::Wrong,
                };
                return;
            }
            RecordKind::EVENT => match EventView::parse(record) {
                Ok(event) => self.events.push(IndexEntry::of(&event, offset, record.length())),
                Err(_) => self.malformed += 1,
            },
            RecordKind::END_OF_RUN => self.end_of_run = EndOfRun::decode(record).ok(),
            _ => {}
        }
        let end = offset + record.length() as u64;
        match self.whole.last_mut() {
            Some(stretch) if stretch.end == offset => stretch.end = end,
            _ => self.whole.push(offset..end),
        }
    }
}
