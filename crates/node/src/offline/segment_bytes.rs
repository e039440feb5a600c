//! The bytes of a segment, whether they lie in their file as they are or packed.

use ropewalk_wire::run_file::{PACKED_HEAD_BYTES, PackedStretch, Record, RecordHeader, RecordKind};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Records begin at multiples of so many bytes.
const RECORD_ALIGNMENT: u64 = 8;

/// A segment's bytes, to be read as those of a file.
#[derive(Debug)]
pub(super) struct SegmentBytes {
    file: File,
    packed: Option<Packed>,
    /// Where [`Read`] goes on.
    at: u64,
}

/// Where the stretches of a packed segment lie, and the one that was read last.
#[derive(Debug, Default)]
struct Packed {
    /// In the order of the segment; none overlaps another.
    stretches: Vec<Stretch>,
    /// Bytes of the file that belong to none.
    unreadable: u64,
    held: Option<usize>,
    bytes: Vec<u8>,
    record: Vec<u8>,
}

#[derive(Copy, Clone, Debug)]
struct Stretch {
    /// In the segment.
    offset: u64,
    length: u64,
    /// Its record in the file.
    place: u64,
    record_bytes: u32,
}

impl SegmentBytes {
    /// Opens a segment's file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let packed = if front_at(&file, 0)?.is_some() { Some(Packed::index(&file)?) } else { None };
        Ok(Self { file, packed, at: 0 })
    }

    /// How many there are.
    pub(super) fn length(&self) -> io::Result<u64> {
        match &self.packed {
            Some(packed) => Ok(packed.stretches.last().map_or(0, |stretch| stretch.offset + stretch.length)),
            None => Ok(self.file.metadata()?.len()),
        }
    }

    /// Bytes of the file in which nothing packed can be found: behind the last whole stretch, or damaged.
    pub(super) fn unreadable(&self) -> u64 {
        self.packed.as_ref().map_or(0, |packed| packed.unreadable)
    }

    /// Reads from a place in the segment; 0 bytes at its end. What cannot be unpacked is read as zeros.
    pub(super) fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &mut self.packed {
            Some(packed) => packed.read_at(&self.file, into, offset),
            None => self.file.read_at(into, offset),
        }
    }

    /// Reads as many bytes as there is room for.
    pub(super) fn read_exact_at(&mut self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            match self.read_at(into, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => (into, offset) = (&mut into[count..], offset + count as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for SegmentBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for SegmentBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(distance) => self.at.checked_add_signed(distance),
            SeekFrom::End(distance) => self.length()?.checked_add_signed(distance),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The front of a packed stretch's record, where one stands there.
fn front_at(file: &File, place: u64) -> io::Result<Option<(RecordHeader, [u8; PACKED_HEAD_BYTES])>> {
    let mut front = [0; PACKED_HEAD_BYTES];
    match file.read_exact_at(&mut front, place) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let header = RecordHeader::decode(&front).ok().filter(|header| header.kind == RecordKind::PACKED);
    Ok(header.map(|header| (header, front)))
}

impl Packed {
    /// Finds all whole stretches.
    fn index(file: &File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let (mut packed, mut place, mut next) = (Self::default(), 0, 0);
        while place < end {
            let found = front_at(file, place)?.filter(|(header, front)| {
                place + u64::from(header.length) <= end && PackedStretch::place(front).0 >= next
            });
            let Some((header, front)) = found else {
                let skipped = RECORD_ALIGNMENT.min(end - place);
                (packed.unreadable, place) = (packed.unreadable + skipped, place + skipped);
                continue;
            };
            let (offset, length) = PackedStretch::place(&front);
            packed.stretches.push(Stretch { offset, length, place, record_bytes: header.length });
            (place, next) = (place + u64::from(header.length), offset + length);
        }
        Ok(packed)
    }

    fn read_at(&mut self, file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let stretch = self.stretches.partition_point(|stretch| stretch.offset + stretch.length <= offset);
        let Some(&Stretch { offset: begin, .. }) = self.stretches.get(stretch) else { return Ok(0) };
        if offset < begin {
            let count = into.len().min((begin - offset) as usize);
            into[..count].fill(0);
            return Ok(count);
        }
        if self.held != Some(stretch) {
            self.hold(file, stretch)?;
        }
        let rest = &self.bytes[(offset - begin) as usize..];
        let count = into.len().min(rest.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Unpacks a stretch; what cannot be unpacked is as many zeros.
    fn hold(&mut self, file: &File, place: usize) -> io::Result<()> {
        let stretch = self.stretches[place];
        self.held = None;
        self.record.resize(stretch.record_bytes as usize, 0);
        file.read_exact_at(&mut self.record, stretch.place)?;
        let unpacked =
            Record::parse(&self.record).and_then(|record| PackedStretch::parse(&record)?.unpack(&mut self.bytes));
        if unpacked.is_err() {
            self.bytes.clear();
            self.bytes.resize(stretch.length as usize, 0);
        }
        self.held = Some(place);
        Ok(())
    }
}
