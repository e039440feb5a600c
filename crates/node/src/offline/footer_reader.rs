//! The index of a closed segment, read from its end: without looking at the rest of the file.

use super::OfflineError;
use super::segment_bytes::SegmentBytes;
use ropewalk_terms::Utc;
use ropewalk_wire::run_file::{
    END_MARK_BYTES, FooterView, IndexEntry, MAX_RECORD_BYTES, RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind,
};
use std::io;
use std::path::Path;

/// What a footer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// When the segment was closed; 0 where it is unknown.
    pub closed: Utc,
    /// Whether the footer was made by scanning, by `ropewalk recover`.
    pub rebuilt: bool,
    /// The event records, in the order of the file.
    pub events: Vec<IndexEntry>,
}

impl Footer {
    /// The footer of a segment; none where it does not end in one.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, OfflineError> {
        let mut bytes = SegmentBytes::open(path).map_err(OfflineError::system("open", path))?;
        Self::read_end(&mut bytes).map_err(OfflineError::system("read", path))
    }

    /// How many event records a segment has, as its footer says, of which nothing else is read; none where it does not end in one.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub(crate) fn count_events(path: &Path) -> io::Result<Option<u32>> {
        let mut segment = SegmentBytes::open(path)?;
        let Some((offset, _)) = Self::find(&mut segment)? else { return Ok(None) };
        let mut front = [0; RECORD_HEADER_BYTES + 4];
        segment.read_exact_at(&mut front, offset)?;
        let is_footer = RecordHeader::decode(&front).is_ok_and(|header| header.kind == RecordKind::FOOTER);
        let count = front.last_chunk().copied().map(u32::from_le_bytes);
        Ok(count.filter(|_| is_footer))
    }

    /// Where a segment's footer begins, and how long it is.
    fn find(segment: &mut SegmentBytes) -> io::Result<Option<(u64, usize)>> {
        let length = segment.length()?;
        let mut mark = [0; END_MARK_BYTES];
        let Some(mark_offset) = length.checked_sub(END_MARK_BYTES as u64) else { return Ok(None) };
        segment.read_exact_at(&mut mark, mark_offset)?;
        let Some(bytes) = FooterView::length_from_end(&mark) else { return Ok(None) };
        let Some(offset) = length.checked_sub(u64::from(bytes)) else { return Ok(None) };
        let is_record = (RECORD_HEADER_BYTES + 4..=MAX_RECORD_BYTES).contains(&(bytes as usize));
        Ok(is_record.then_some((offset, bytes as usize)))
    }

    fn read_end(segment: &mut SegmentBytes) -> io::Result<Option<Self>> {
        let Some((offset, bytes)) = Self::find(segment)? else { return Ok(None) };
        let mut record = vec![0; bytes];
        segment.read_exact_at(&mut record, offset)?;
        let parsed = Record::parse(&record).and_then(|record| {
            let footer = FooterView::parse(&record)?;
            Ok(Self { closed: footer.closed(), rebuilt: footer.is_rebuilt(), events: footer.entries().collect() })
        });
        Ok(parsed.ok())
    }
}
