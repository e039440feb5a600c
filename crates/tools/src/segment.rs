//! Segment files of runs: finding them, reading their bytes, records and checksums.
//!
//! The bytes are read through a window, whether the file is compressed or not. [`SegmentReader`] reads one record after
//! another. [`SegmentScan`] reads a whole segment once and reports its content and what cannot be read. [`Footer`]
//! reads the index at the end of a closed segment, without the rest of the file.

use super::OfflineError;
use ropewalk_io::disk::checksum_file;
use ropewalk_terms::Utc;
use ropewalk_wire::run_file::{
    Checksum, Damage, END_MARK_BYTES, EndOfRun, EventView, FooterView, IndexEntry, MAX_RECORD_BYTES, OPEN_EXTENSION,
    PACKED_HEAD_BYTES, PackedStretch, RECORD_HEADER_BYTES, Record, RecordError, RecordHeader, RecordKind,
    SegmentHeader, SegmentName, Step, StreamName, scan,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file that is a segment by its name, or that was named by hand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SegmentFile {
    /// What its name says; `None` for a file that was named by hand and is called something else.
    pub name: Option<SegmentName>,
    /// Whether it was never closed: it is being written, or the process that wrote it died.
    pub open: bool,
    /// The path.
    pub path: PathBuf,
}

impl SegmentFile {
    /// What the path's name says.
    fn named(path: PathBuf) -> Self {
        let text = path.file_name().unwrap_or_default().to_string_lossy();
        let closed = text.strip_suffix(OPEN_EXTENSION);
        let name = closed.unwrap_or(&text).parse().ok();
        Self { name, open: closed.is_some(), path }
    }

    /// A file that is not named like a segment must hold a record, damaged or not; otherwise it is not a segment.
    fn expect_records(&self) -> Result<(), OfflineError> {
        if self.name.is_some() {
            return Ok(());
        }
        let mut reader = SegmentReader::open(&self.path)?;
        while let Some(found) = reader.advance()? {
            if matches!(found, Found::Record { .. }) {
                return Ok(());
            }
        }
        Err(OfflineError::NoRunFile { path: self.path.clone(), begin: first_bytes(&self.path)? })
    }
}

/// The first bytes of a file for display: as numbers, and as text if they are printable.
fn first_bytes(path: &Path) -> Result<String, OfflineError> {
    let mut begin = Vec::new();
    let file = File::open(path).map_err(OfflineError::system("open", path))?;
    file.take(8).read_to_end(&mut begin).map_err(OfflineError::system("read", path))?;
    let numbers = begin.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    Ok(match std::str::from_utf8(&begin) {
        Ok("") => "nothing".to_owned(),
        Ok(text) if !text.contains(char::is_control) => format!("`{numbers}` ({text:?})"),
        _ => format!("`{numbers}`"),
    })
}

/// The segments in run directories, and files that are named themselves: each once, in the order of their names.
///
/// # Errors
/// If a directory cannot be listed, if there is no segment at all, or if a file that is named is not one.
pub fn segment_files<P: AsRef<Path>>(places: &[P]) -> Result<Vec<SegmentFile>, OfflineError> {
    let (mut files, mut listed) = (BTreeSet::new(), Vec::new());
    for place in places {
        let place = place.as_ref();
        // Two ways to one directory must not make a duplicate of every event.
        let place = place.canonicalize().map_err(OfflineError::system("find", place))?;
        if !place.is_dir() {
            let file = SegmentFile::named(place);
            file.expect_records()?;
            files.insert(file);
            continue;
        }
        for entry in place.read_dir().map_err(OfflineError::system("list", &place))? {
            let entry = entry.map_err(OfflineError::system("list", &place))?;
            let file = SegmentFile::named(entry.path());
            if file.name.is_some() {
                files.insert(file);
            } else {
                listed.push(file.path);
            }
        }
    }
    if files.is_empty() {
        let places: Vec<String> = places.iter().map(|place| place.as_ref().display().to_string()).collect();
        let has_account = listed.iter().any(|path| path.ends_with("run.json"));
        return Err(OfflineError::NoSegments {
            places: places.join(", "),
            known: run_directories(&listed),
            has_account,
        });
    }
    Ok(files.into_iter().collect())
}

/// The names of the first and the last run directory among these paths.
fn run_directories(paths: &[PathBuf]) -> Option<String> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let is_run = |name: &String| name.strip_prefix("run").is_some_and(|number| number.parse::<u32>().is_ok());
    let names: BTreeSet<String> = paths.iter().filter(|path| path.is_dir()).filter_map(name).filter(is_run).collect();
    let (first, last) = (names.first()?, names.last()?);
    Some(if first == last { first.clone() } else { format!("{first} to {last}") })
}

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A file's CRC-32C, and how many bytes it has.
pub fn checksum_of(path: &Path) -> io::Result<(Checksum, u64)> {
    let mut file = File::open(path)?;
    let (mut checksum, mut chunk, mut bytes) = (Checksum::default(), vec![0; CHUNK], 0);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((checksum, bytes)),
            read => {
                checksum.update(&chunk[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Writes the checksum of a file beside the future place of the file.
pub(super) fn note_checksum(file: &Path, target: &Path) -> io::Result<()> {
    let (checksum, _) = checksum_of(file)?;
    let (beside, text) = checksum_file(target, checksum);
    fs::write(&beside, text)?;
    File::open(&beside)?.sync_all()
}

/// Records begin at multiples of this many bytes.
const RECORD_ALIGNMENT: u64 = 8;

/// A segment's bytes, to be read as those of a file.
#[derive(Debug)]
pub(super) struct SegmentBytes {
    file: File,
    packed: Option<Packed>,
    /// The position of [`Read`].
    at: u64,
}

/// The places of the blocks of a compressed segment, and the last block that was read.
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

    /// Bytes of the file that are not in a whole block: after the last one, or damaged.
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
    fn read_exact_at(&mut self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
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

/// Reads the front of a packed stretch's record; `None` if no such record starts here.
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

/// Bytes that are read at once. Small enough to be still in the cache when the checksum looks at them.
const WINDOW_BYTES: usize = 1 << 20;

/// What was found at the reader's place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A whole record with the right checksum: [`SegmentReader::record`] shows it.
    Record {
        /// Its offset in the file, in bytes.
        offset: u64,
    },
    /// Bytes that belong to no readable record.
    Damaged {
        /// Their offset in the file, in bytes.
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
    /// The offset of the first of those bytes in the file.
    offset: u64,
    at_end: bool,
    record: Range<usize>,
    header: Option<SegmentHeader>,
}

impl SegmentReader {
    /// Opens a segment and reads its header.
    ///
    /// # Errors
    /// If the file cannot be read or is of another major version. A header that is damaged is no error.
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

    /// The segment's header, if it is readable.
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
    /// If the file cannot be read.
    pub fn seek(&mut self, offset: u64) -> Result<(), OfflineError> {
        self.file.seek(SeekFrom::Start(offset)).map_err(OfflineError::system("read", &self.path))?;
        (self.filled, self.record) = (0..0, 0..0);
        (self.offset, self.at_end) = (offset, false);
        Ok(())
    }

    /// Steps to the next record or damaged stretch; `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
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

    /// The record that [`SegmentReader::advance`] found last; `None` for damage.
    pub fn record(&self) -> Option<Record<'_>> {
        Record::parse_unchecked(&self.window[self.record.clone()]).ok()
    }

    /// Examines the data at the reader's position, and reads as much of the file as that takes.
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
    /// Its header, if it is readable.
    pub header: Option<SegmentHeader>,
    /// Its event records, in the order of the file.
    pub events: Vec<IndexEntry>,
    /// Its writer's account at the end of the run, if this segment has it.
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
    /// If the file cannot be read or is of another major version. Damage is no error.
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
            // A footer is valid only if nothing follows it.
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

    /// The stream of the segment, from its header, or from its name if the header cannot be read.
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

/// What a footer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// When the segment was closed; 0 if it is unknown.
    pub closed: Utc,
    /// Whether the footer was made by scanning, by `ropewalk recover`.
    pub rebuilt: bool,
    /// The event records, in the order of the file.
    pub events: Vec<IndexEntry>,
}

impl Footer {
    /// The footer of a segment; `None` if it does not end in one.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, OfflineError> {
        let mut bytes = SegmentBytes::open(path).map_err(OfflineError::system("open", path))?;
        Self::read_end(&mut bytes).map_err(OfflineError::system("read", path))
    }

    /// How many event records a segment has, according to its footer, without reading anything else; `None` if it does
    /// not end in one.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn count_events(path: &Path) -> io::Result<Option<u32>> {
        let mut segment = SegmentBytes::open(path)?;
        let Some((offset, _)) = Self::find(&mut segment)? else { return Ok(None) };
        let mut front = [0; RECORD_HEADER_BYTES + 4];
        segment.read_exact_at(&mut front, offset)?;
        let is_footer = RecordHeader::decode(&front).is_ok_and(|header| header.kind == RecordKind::FOOTER);
        let count = front.last_chunk().copied().map(u32::from_le_bytes);
        Ok(count.filter(|_| is_footer))
    }

    /// The offset and length of a segment's footer.
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
