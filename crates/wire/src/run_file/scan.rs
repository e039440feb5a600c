//! Finding records in bytes that may be cut or damaged.
//!
//! A header whose own checksum holds is believed: its length leads to the next record even where the content is
//! damaged, and nothing inside the record (payloads may hold anything, run files included) is taken for a record.
//! Only where no such header stands are the bytes searched for the next one.

use super::record::{RECORD_HEADER_BYTES, RECORD_MAGIC, Record, RecordError, RecordHeader};

/// Why bytes belong to no readable record.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Damage {
    /// A record stands here, but its checksum is wrong.
    Checksum,
    /// A record begins here, but the file ends before it does: the writer was stopped in the middle. Or zeros fill the last
    /// piece of a file that was written past the page cache, and not closed.
    Cut,
    /// No record's header can be read here.
    NoHeader,
}

/// What stands at the front of a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A whole record of `length` bytes, its checksum right: take it with [`Record::parse_unchecked`].
    Record {
        /// Bytes of the record.
        length: usize,
    },
    /// Call again with a window that begins at the same place and holds at least `bytes` bytes, or all that
    /// there are and `at_end`.
    NeedMore {
        /// Bytes from the window's begin.
        bytes: usize,
    },
    /// `skip` bytes belong to no readable record; go on behind them.
    Damaged {
        /// Bytes to step over, at least 1.
        skip: usize,
        /// Why.
        damage: Damage,
    },
    /// The window is empty and nothing follows.
    End,
}

/// Fewer zeros than this may stand behind the last record of a file that was not closed.
const FILLED: usize = 4096;

/// Looks at the front of `window`; `at_end` says that nothing follows it.
pub fn scan(window: &[u8], at_end: bool) -> Step {
    if window.is_empty() && at_end {
        return Step::End;
    }
    match Record::parse(window) {
        Ok(record) => Step::Record { length: record.length() },
        Err(RecordError::Short) if at_end => Step::Damaged { skip: window.len(), damage: Damage::Cut },
        Err(RecordError::Short) => {
            let length = RecordHeader::decode(window).map_or(RECORD_HEADER_BYTES, |header| header.length as usize);
            Step::NeedMore { bytes: length }
        }
        Err(RecordError::Checksum) => {
            let length = RecordHeader::decode(window).map_or(RECORD_HEADER_BYTES, |header| header.length as usize);
            Step::Damaged { skip: length, damage: Damage::Checksum }
        }
        Err(_) if window.len() < FILLED && window.iter().all(|&byte| byte == 0) => {
            if at_end {
                Step::Damaged { skip: window.len(), damage: Damage::Cut }
            } else {
                Step::NeedMore { bytes: FILLED }
            }
        }
        Err(_) => Step::Damaged { skip: bytes_to_next_header(window, at_end), damage: Damage::NoHeader },
    }
}

/// How far the next header whose checksum holds lies behind the front; where there is none, all bytes in which
/// none can begin.
fn bytes_to_next_header(window: &[u8], at_end: bool) -> usize {
    let mut from = 1;
    while let Some(found) = window[from..].windows(RECORD_MAGIC.len()).position(|bytes| bytes == RECORD_MAGIC) {
        let at = from + found;
        match RecordHeader::decode(&window[at..]) {
            Ok(_) => return at,
            // Cut by the window's end: wait for the rest of it.
            Err(RecordError::Short) if !at_end => return at,
            Err(_) => from = at + 1,
        }
    }
    if at_end { window.len() } else { from.max((window.len() + 1).saturating_sub(RECORD_MAGIC.len())) }
}

/// A record or a damaged stretch, with its place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A whole record, its checksum right.
    Record {
        /// Where it begins, in bytes from the file's begin.
        offset: u64,
        /// The record.
        record: Record<'a>,
    },
    /// Bytes that belong to no readable record.
    Damaged {
        /// Where they begin, in bytes from the file's begin.
        offset: u64,
        /// How many they are.
        bytes: u64,
        /// Why.
        damage: Damage,
    },
}

/// Everything in a segment that lies in memory as a whole.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    /// Items of the whole file `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let window = &self.bytes[self.at..];
        let offset = self.at as u64;
        match scan(window, true) {
            Step::Record { length } => {
                self.at += length;
                Record::parse_unchecked(window).ok().map(|record| Item::Record { offset, record })
            }
            Step::Damaged { skip, damage } => {
                self.at += skip;
                Some(Item::Damaged { offset, bytes: skip as u64, damage })
            }
            Step::End | Step::NeedMore { .. } => None,
        }
    }
}
