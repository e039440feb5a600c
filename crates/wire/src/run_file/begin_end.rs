//! The records that say when the run began and how it ended.
//!
//! ```text
//! begin of run:  16 u32 run    20 u32 bytes of the text    24 i64 start, UTC ns    32 text in UTF-8
//! end of run:    16 u32 run    20 u32 bytes of the text    24 i64 end, UTC ns      32 u64 last event key, all ones: none
//!                40 u64 event records that this node wrote    48 text in UTF-8
//! ```

use super::fields::{Fill, i64_at, u32_at, u64_at};
use super::record::{Record, RecordError, RecordKind, append_record};
use ropewalk_terms::{EventKey, RunNumber, Utc};

const BEGIN_BYTES: usize = 32;
const END_BYTES: usize = 48;

/// The run began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeginOfRun {
    /// The run.
    pub run: RunNumber,
    /// When it began.
    pub start: Utc,
    /// With which configuration, as text; may be empty.
    pub text: String,
}

impl BeginOfRun {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; BEGIN_BYTES - 16];
        Fill::new(&mut head).u32(self.run.0).u32(self.text.len() as u32).i64(self.start.0);
        append_record(out, RecordKind::BEGIN_OF_RUN, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(self.text.as_bytes());
        })
    }

    /// What a record says.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] where the text reaches beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::BEGIN_OF_RUN, BEGIN_BYTES)?;
        Ok(Self {
            run: RunNumber(u32_at(content, 16)),
            start: Utc(i64_at(content, 24)),
            text: text_at(content, BEGIN_BYTES, u32_at(content, 20))?,
        })
    }
}

/// The run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndOfRun {
    /// The run.
    pub run: RunNumber,
    /// When it ended.
    pub end: Utc,
    /// The run's last event, if there was one.
    pub last: Option<EventKey>,
    /// Event records that the writing node wrote in all its segments.
    pub events: u64,
    /// A summary as text; may be empty.
    pub text: String,
}

impl EndOfRun {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; END_BYTES - 16];
        Fill::new(&mut head)
            .u32(self.run.0)
            .u32(self.text.len() as u32)
            .i64(self.end.0)
            .u64(self.last.unwrap_or(EventKey::MAX).to_bits())
            .u64(self.events);
        append_record(out, RecordKind::END_OF_RUN, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(self.text.as_bytes());
        })
    }

    /// What a record says.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] where the text reaches beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::END_OF_RUN, END_BYTES)?;
        Ok(Self {
            run: RunNumber(u32_at(content, 16)),
            end: Utc(i64_at(content, 24)),
            last: Some(EventKey::from_bits(u64_at(content, 32))).filter(|&key| key != EventKey::MAX),
            events: u64_at(content, 40),
            text: text_at(content, END_BYTES, u32_at(content, 20))?,
        })
    }
}

/// The text of `length` bytes at a place; bytes that are no UTF-8 are replaced.
fn text_at(content: &[u8], at: usize, length: u32) -> Result<String, RecordError> {
    let text = content[at..].get(..length as usize).ok_or(RecordError::Content)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}
