//! FED raw data (FRD): whole events in the files of CMS's file-based high-level trigger.
//!
//! ```text
//!  file    [ header, 22 B: "RAW_" "0001" | 22 (u16) | events (u32) | bytes of the file, these included (u64) ] events
//!  event   header | FED fragments (S-LINK64), back to back | padding
//!  header, u32 each:  version 3:  3 | run | lumisection | event | bytes of data | bytes of padding | Adler-32
//!                     version 4:  4 | run | lumisection | event, lower half | upper half | data | padding | Adler-32
//!                     version 5:  5 | run | lumisection | event | bytes of data | CRC-32C
//!                     version 6:  as 5, with flags in the upper 16 bits of the first word
//! ```
//! Little-endian. Checksums cover the data, but neither header nor padding. The layouts are those of cmssw
//! (`FRDEventMessage.h`), the names of the files those of its `FFFNamingSchema.h`. Events of versions 1 and 2 have no
//! length, and are not read.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use crate::fed;
use crate::framing::{Part, Window};
use crate::layout::ChecksumKind;
use ropewalk_terms::RunNumber;

/// An error in an event or a file header.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrdError {
    /// The bytes end before the header or the event does.
    #[error("the bytes end before the event does: {needed} are needed")]
    Short {
        /// Number of bytes needed to continue.
        needed: usize,
    },
    /// The first word is no version known to this reader.
    #[error("FRD version {version}, and versions 3 to 6 are read")]
    Version {
        /// The first word.
        version: u32,
    },
    /// The file's header is not of version 1.
    #[error("the file's header is not the one of version 1, with 22 bytes")]
    FileHeader,
    /// The event's number does not fit into the header of its version.
    #[error("event number {event} does not fit into 32 bits; version 4 has room for 64")]
    EventNumber {
        /// The number.
        event: u64,
    },
    /// The data are longer than the header can state.
    #[error("{bytes} bytes of data are more than 32 bits can count")]
    Long {
        /// Number of bytes.
        bytes: usize,
    },
}

/// Bytes of a file's header.
pub const FILE_HEADER_BYTES: usize = 22;
/// The beginning of all its versions; no event begins like this.
pub const FILE_MAGIC: [u8; 4] = *b"RAW_";
/// Version 1.
const VERSION: [u8; 4] = *b"0001";

/// The header of a file, version 1.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FileHeader {
    /// Events in it.
    pub events: u32,
    /// Bytes of the file, this header included.
    pub file_bytes: u64,
}

impl FileHeader {
    /// The header in these bytes.
    ///
    /// # Errors
    /// [`FrdError::FileHeader`] if they are not a header of version 1.
    pub fn parse(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, FrdError> {
        let [m0, m1, m2, m3, v0, v1, v2, v3, s0, s1, e0, e1, e2, e3, size @ ..] = *bytes;
        let is_first = [m0, m1, m2, m3] == FILE_MAGIC && [v0, v1, v2, v3] == VERSION;
        if !is_first || usize::from(u16::from_le_bytes([s0, s1])) != FILE_HEADER_BYTES {
            return Err(FrdError::FileHeader);
        }
        Ok(Self { events: u32::from_le_bytes([e0, e1, e2, e3]), file_bytes: u64::from_le_bytes(size) })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..4].copy_from_slice(&FILE_MAGIC);
        bytes[4..8].copy_from_slice(&VERSION);
        bytes[8..10].copy_from_slice(&(FILE_HEADER_BYTES as u16).to_le_bytes());
        bytes[10..14].copy_from_slice(&self.events.to_le_bytes());
        bytes[14..].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes
    }
}

/// Bytes of the longest header.
pub const MOST_HEADER_BYTES: usize = 32;
/// Bytes of a word.
const WORD: usize = 4;

/// The layout of an event's header.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// 28 bytes, with padding and Adler-32.
    V3 = 3,
    /// 32 bytes: as version 3, with event numbers of 64 bits.
    V4 = 4,
    /// 24 bytes, without padding, with CRC-32C.
    V5 = 5,
    /// As version 5, with flags next to the version.
    V6 = 6,
}

impl Version {
    /// Bytes of its header.
    pub const fn header_bytes(self) -> usize {
        WORD * match self {
            Self::V3 => 7,
            Self::V4 => 8,
            Self::V5 | Self::V6 => 6,
        }
    }

    /// Whether padding may follow the data.
    pub const fn has_padding(self) -> bool {
        matches!(self, Self::V3 | Self::V4)
    }

    /// The kind of the data's checksum.
    pub const fn checksum(self) -> ChecksumKind {
        if self.has_padding() { ChecksumKind::Adler32 } else { ChecksumKind::Crc32c }
    }
}

/// The header of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHeader {
    /// Its layout.
    pub version: Version,
    /// Flags, only in version 6.
    pub flags: u16,
    /// The run.
    pub run: u32,
    /// The lumisection, counted from 1.
    pub lumisection: u32,
    /// The event's number: 32 bits, except in version 4.
    pub event: u64,
    /// Bytes of the data.
    pub data_bytes: u32,
    /// Bytes of padding behind them; 0 in versions without.
    pub padding_bytes: u32,
    /// The checksum of the data.
    pub checksum: u32,
}

impl EventHeader {
    /// The header at the front of `window`.
    ///
    /// # Errors
    /// [`FrdError::Short`] with how many bytes a header needs, [`FrdError::Version`].
    pub fn read(window: &(impl Window + ?Sized)) -> Result<Self, FrdError> {
        let first = u32::from_le_bytes(window.array(0).ok_or(FrdError::Short { needed: WORD })?);
        let (version, flags) = match (first & 0xFFFF, (first >> 16) as u16) {
            (3, 0) => (Version::V3, 0),
            (4, 0) => (Version::V4, 0),
            (5, 0) => (Version::V5, 0),
            (6, flags) => (Version::V6, flags),
            _ => return Err(FrdError::Version { version: first }),
        };
        let mut bytes = [0; MOST_HEADER_BYTES];
        let needed = version.header_bytes();
        if !window.read(0, &mut bytes[..needed]) {
            return Err(FrdError::Short { needed });
        }
        let mut words = bytes.as_chunks().0.iter().skip(1).map(|&word| u32::from_le_bytes(word));
        let mut next = || words.next().unwrap_or_default();
        let (run, lumisection, low) = (next(), next(), next());
        let high = if version == Version::V4 { next() } else { 0 };
        let data_bytes = next();
        let padding_bytes = if version.has_padding() { next() } else { 0 };
        let event = u64::from(high) << 32 | u64::from(low);
        Ok(Self { version, flags, run, lumisection, event, data_bytes, padding_bytes, checksum: next() })
    }

    /// Appends the header.
    ///
    /// # Errors
    /// [`FrdError::EventNumber`] if the number does not fit; nothing is appended then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrdError> {
        let high = (self.event >> 32) as u32;
        if high != 0 && self.version != Version::V4 {
            return Err(FrdError::EventNumber { event: self.event });
        }
        let first = self.version as u32 | u32::from(self.flags) << 16;
        let mut word = |word: u32| out.extend_from_slice(&word.to_le_bytes());
        [first, self.run, self.lumisection, self.event as u32].into_iter().for_each(&mut word);
        if self.version == Version::V4 {
            word(high);
        }
        word(self.data_bytes);
        if self.version.has_padding() {
            word(self.padding_bytes);
        }
        word(self.checksum);
        Ok(())
    }

    /// Range of the data, in bytes from the header's beginning.
    pub const fn data(&self) -> Range<usize> {
        let begin = self.version.header_bytes();
        begin..begin + self.data_bytes as usize
    }

    /// Bytes of the event: header, data and padding.
    pub const fn event_bytes(&self) -> u64 {
        self.version.header_bytes() as u64 + self.data_bytes as u64 + self.padding_bytes as u64
    }

    /// Whether the checksum matches the data of the event at the front of `window`.
    pub fn is_right(&self, window: &(impl Window + ?Sized)) -> bool {
        let data = Part::new(window, self.data().start, self.data_bytes as usize);
        data.len() == self.data_bytes as usize && self.checksum == checksum_of(self.version, data.pieces(0))
    }
}

/// Computes the header's checksum of these pieces of data.
pub fn checksum_of<'a>(version: Version, data: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    version.checksum().of(data) as u32
}

/// A view of a whole event, whose checksum is not checked yet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    header: EventHeader,
    bytes: &'a [u8],
}

impl<'a> Event<'a> {
    /// Parses the event at the front of `bytes`; ignores the bytes behind it.
    ///
    /// # Errors
    /// As [`EventHeader::read`]; [`FrdError::Short`] if the event is longer than the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrdError> {
        let header = EventHeader::read(bytes)?;
        let length = usize::try_from(header.event_bytes()).unwrap_or(usize::MAX);
        let bytes = bytes.get(..length).ok_or(FrdError::Short { needed: length })?;
        Ok(Self { header, bytes })
    }

    /// Its header.
    pub const fn header(&self) -> EventHeader {
        self.header
    }

    /// The whole event.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// FED fragments, back to back.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.header.data()]
    }

    /// The bytes after the data.
    pub fn padding(&self) -> &'a [u8] {
        &self.bytes[self.header.data().end..]
    }

    /// Whether the checksum is right.
    pub fn is_right(&self) -> bool {
        self.header.is_right(self.bytes)
    }

    /// The fragments, each as a range of [`Event::data`]; `None` if the data cannot be divided into fragments.
    pub fn fragments(&self) -> Option<Vec<Range<usize>>> {
        fed::split_event(self.data())
    }
}

/// Appends an event of these pieces of data, without padding; lengths and checksum in `header` are set to theirs.
///
/// # Errors
/// [`FrdError::EventNumber`] or [`FrdError::Long`]; nothing is appended then.
pub fn encode_event(header: EventHeader, data: &[&[u8]], out: &mut Vec<u8>) -> Result<(), FrdError> {
    let bytes = data.iter().map(|piece| piece.len()).sum();
    let data_bytes = u32::try_from(bytes).map_err(|_| FrdError::Long { bytes })?;
    let checksum = checksum_of(header.version, data.iter().copied());
    EventHeader { data_bytes, padding_bytes: 0, checksum, ..header }.encode(out)?;
    data.iter().for_each(|piece| out.extend_from_slice(piece));
    Ok(())
}

// The names of files in a run's directory.
//
// ```text
//  run000042_ls0001_index000007.raw    events        run000042_ls0001_index000007.jsn    how many and how long
//  run000042_ls0001_EoLS.jsn           a lumisection is closed
//  run000042_ls0000_EoR.jsn            the run is closed
// ```

const RAW: &str = ".raw";
const DOCUMENT: &str = ".jsn";

/// The kind of a file.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// Events of a lumisection.
    Raw {
        /// Index of the file in the run, counted from 0.
        index: u32,
    },
    /// The description of the file of events with this index.
    Account {
        /// The index of the described file.
        index: u32,
    },
    /// The summary of a closed lumisection.
    EndOfLumisection,
    /// The summary of the closed run.
    EndOfRun,
}

/// The name of a file. Ordered by run, then by lumisection.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName {
    /// The run.
    pub run: RunNumber,
    /// The lumisection, counted from 1; 0 for [`FileKind::EndOfRun`].
    pub lumisection: u32,
    /// The kind.
    pub kind: FileKind,
}

impl fmt::Display for FileName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run{:06}_ls{:04}_", self.run, self.lumisection)?;
        match self.kind {
            FileKind::Raw { index } => write!(out, "index{index:06}{RAW}"),
            FileKind::Account { index } => write!(out, "index{index:06}{DOCUMENT}"),
            FileKind::EndOfLumisection => write!(out, "EoLS{DOCUMENT}"),
            FileKind::EndOfRun => write!(out, "EoR{DOCUMENT}"),
        }
    }
}

/// The text is not the name of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the name of a file, such as run000042_ls0001_index000007.raw")]
pub struct NotAFile;

impl FromStr for FileName {
    type Err = NotAFile;

    /// Parses the output of [`Display`](fmt::Display); any number of leading zeros is accepted.
    fn from_str(text: &str) -> Result<Self, NotAFile> {
        Self::read(text).ok_or(NotAFile)
    }
}

impl FileName {
    fn read(text: &str) -> Option<Self> {
        let (run, rest) = text.strip_prefix("run")?.split_once("_ls")?;
        let (lumisection, rest) = rest.split_once('_')?;
        let kind = match rest.strip_prefix("index") {
            Some(rest) => match (rest.strip_suffix(RAW), rest.strip_suffix(DOCUMENT)) {
                (Some(index), _) => FileKind::Raw { index: number(index)? },
                (_, Some(index)) => FileKind::Account { index: number(index)? },
                _ => return None,
            },
            None => match rest.strip_suffix(DOCUMENT)? {
                "EoLS" => FileKind::EndOfLumisection,
                "EoR" => FileKind::EndOfRun,
                _ => return None,
            },
        };
        Some(Self { run: RunNumber(number(run)?), lumisection: number(lumisection)?, kind })
    }
}

/// Only digits: `parse` would accept a sign too.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    //! Events, file headers and names: encoded and parsed again, every fault, and random bytes.

    use proptest::prelude::*;

    use super::*;
    use crate::fed;
    use ropewalk_terms::{RunNumber, SourceId};

    fn header(version: Version, event: u64) -> EventHeader {
        EventHeader { version, flags: 0, run: 42, lumisection: 3, event, data_bytes: 0, padding_bytes: 0, checksum: 0 }
    }

    fn fragment(source: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        fed::encode(fed::Header::new(SourceId(source), 17, 99), payload, fed::Trailer::new(), &mut bytes)
            .expect("words");
        bytes
    }

    fn any_version() -> impl Strategy<Value = Version> {
        prop::sample::select(vec![Version::V3, Version::V4, Version::V5, Version::V6])
    }

    /// Bytes as little-endian words, as in an event's header.
    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    }

    #[test]
    fn the_fields_are_where_the_format_puts_them() {
        let encoded = |version| {
            let mut out = Vec::new();
            encode_event(header(version, 17), &[b"1234", b"56789"], &mut out).expect("it fits");
            out
        };
        // The check values of both checksums are those of "123456789".
        assert_eq!(words(&encoded(Version::V3)[..28]), [3, 42, 3, 17, 9, 0, 0x091E_01DE]);
        assert_eq!(words(&encoded(Version::V4)[..32]), [4, 42, 3, 17, 0, 9, 0, 0x091E_01DE]);
        assert_eq!(words(&encoded(Version::V5)[..24]), [5, 42, 3, 17, 9, 0xE306_9283]);
        assert_eq!(&encoded(Version::V5)[24..], b"123456789");
        let flagged = EventHeader { flags: 1, ..header(Version::V6, 17) };
        let mut out = Vec::new();
        flagged.encode(&mut out).expect("it fits");
        assert_eq!(words(&out)[0], 0x0001_0006);
        assert_eq!(EventHeader::read(&out[..]), Ok(flagged));
    }

    #[test]
    fn the_header_of_a_file_is_22_bytes_packed() {
        let header = FileHeader { events: 0x0102_0304, file_bytes: 0x0A0B_0C0D_0E0F_1011 };
        let bytes = header.to_bytes();
        assert_eq!(&bytes, b"RAW_0001\x16\x00\x04\x03\x02\x01\x11\x10\x0F\x0E\x0D\x0C\x0B\x0A");
        assert_eq!(FileHeader::parse(&bytes), Ok(header));
        for at in [0, 7, 8] {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(FileHeader::parse(&wrong), Err(FrdError::FileHeader));
        }
    }

    #[test]
    fn an_event_number_beyond_32_bits_fits_version_4_alone() {
        let mut out = Vec::new();
        for version in [Version::V3, Version::V5, Version::V6] {
            let refused = encode_event(header(version, 1 << 32), &[], &mut out);
            assert_eq!(refused, Err(FrdError::EventNumber { event: 1 << 32 }));
            assert!(out.is_empty());
        }
        encode_event(header(Version::V4, 5 << 32 | 7), &[], &mut out).expect("it fits");
        assert_eq!(Event::parse(&out).expect("an event").header().event, 5 << 32 | 7);
    }

    #[test]
    fn other_versions_are_none() {
        for version in [0, 1, 2, 7, 5 | 1 << 16] {
            let bytes = [&u32::to_le_bytes(version)[..], &[0; 40]].concat();
            assert_eq!(EventHeader::read(&bytes[..]), Err(FrdError::Version { version }));
        }
        assert_eq!(EventHeader::read(&[5, 0, 0][..]), Err(FrdError::Short { needed: 4 }));
        assert_eq!(EventHeader::read(&[5, 0, 0, 0][..]), Err(FrdError::Short { needed: 24 }));
        assert_eq!(EventHeader::read(&[4, 0, 0, 0][..]), Err(FrdError::Short { needed: 32 }));
    }

    #[test]
    fn padding_is_no_part_of_the_data() {
        let data = fragment(841, &[7; 16]);
        let mut out = Vec::new();
        encode_event(header(Version::V3, 1), &[&data], &mut out).expect("it fits");
        out[20..24].copy_from_slice(&5_u32.to_le_bytes());
        assert_eq!(Event::parse(&out), Err(FrdError::Short { needed: 28 + 32 + 5 }));
        out.extend_from_slice(b"paddmore");
        let event = Event::parse(&out).expect("an event");
        assert_eq!((event.data(), event.padding(), event.is_right()), (&data[..], &b"paddm"[..], true));
        assert_eq!(event.bytes().len(), out.len() - 3);
    }

    #[test]
    fn data_fall_apart_into_fragments_or_not_at_all() {
        let parts = [fragment(841, &[]), fragment(843, &[1; 24]), fragment(7, &[0xA0; 8])];
        let mut out = Vec::new();
        encode_event(header(Version::V5, 1), &[&parts[0], &parts[1], &parts[2]], &mut out).expect("it fits");
        let event = Event::parse(&out).expect("an event");
        let fragments = event.fragments().expect("they are whole");
        assert_eq!(fragments.iter().map(|place| &event.data()[place.clone()]).collect::<Vec<_>>(), parts);
        // A header, a trailer or a length is damaged.
        for at in [24 + 7, 24 + 15, 24 + 16 + 40 - 4] {
            let mut wrong = out.clone();
            wrong[at] ^= 0xF0 | 3;
            assert_eq!(Event::parse(&wrong).expect("an event").fragments(), None, "{at}");
        }
        assert_eq!(fed::split_event(&[]), Some(vec![]));
        assert_eq!(fed::split_event(&[0; 8]), None);
    }

    #[test]
    fn names_are_those_of_the_schema() {
        let name = |lumisection, kind| FileName { run: RunNumber(42), lumisection, kind };
        for (text, name) in [
            ("run000042_ls0001_index000007.raw", name(1, FileKind::Raw { index: 7 })),
            ("run000042_ls0001_index000007.jsn", name(1, FileKind::Account { index: 7 })),
            ("run000042_ls12345_EoLS.jsn", name(12_345, FileKind::EndOfLumisection)),
            ("run000042_ls0000_EoR.jsn", name(0, FileKind::EndOfRun)),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        for text in [
            "",
            "run42",
            "run_ls0001_EoLS.jsn",
            "run1_ls_EoR.jsn",
            "run1_ls1_index.raw",
            "run1_ls1_index+1.raw",
            "run1_ls1_index1.dat",
            "run1_ls1_BoLS.jsn",
            "run1_ls1_EoLS.raw",
            "run1_ls1_index99999999999.raw",
            "run000042_ls0001_index000007.jsn.tmp",
        ] {
            assert_eq!(text.parse::<FileName>(), Err(NotAFile), "{text:?}");
        }
        assert!(name(1, FileKind::EndOfRun) < name(2, FileKind::Raw { index: 0 }), "names order by lumisection");
    }

    proptest! {
        #[test]
        fn an_event_comes_back_as_it_was_written(
            version in any_version(),
            (run, lumisection, event) in any::<(u32, u32, u32)>(),
            data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..4),
            flipped in any::<prop::sample::Index>(),
        ) {
            let header = EventHeader { run, lumisection, ..header(version, event.into()) };
            let pieces: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut out = Vec::new();
            encode_event(header, &pieces, &mut out).expect("it fits");
            let found = Event::parse(&out).expect("an event");
            prop_assert_eq!(found.data(), data.concat());
            prop_assert!(found.is_right());
            let mut again = Vec::new();
            found.header().encode(&mut again).expect("it fits");
            prop_assert_eq!(&again[..], &out[..version.header_bytes()]);
            // A part of it is no event, and a changed bit of the data changes the checksum.
            for length in 0..out.len() {
                let needs_more = matches!(Event::parse(&out[..length]), Err(FrdError::Short { needed }) if needed > length);
                prop_assert!(needs_more, "of {} bytes {length}", out.len());
            }
            if !found.data().is_empty() {
                let bit = flipped.index(8 * found.data().len());
                let at = version.header_bytes() + bit / 8;
                out[at] ^= 1 << (bit % 8);
                prop_assert!(!Event::parse(&out).expect("an event").is_right());
            }
        }

        #[test]
        fn any_bytes_may_be_asked(bytes in prop::collection::vec(any::<u8>(), 0..80), version in any_version(), text in ".*") {
            let bytes = [&(version as u32).to_le_bytes()[..], &bytes].concat();
            for bytes in [&bytes[..], &bytes[4..]] {
                if let Ok(event) = Event::parse(bytes) {
                    let _ = (event.is_right(), event.fragments(), event.padding());
                }
            }
            let _ = text.parse::<FileName>();
        }

        #[test]
        fn any_name_comes_back(run in any::<u32>(), lumisection in any::<u32>(), index in any::<u32>()) {
            for kind in [FileKind::Raw { index }, FileKind::Account { index }, FileKind::EndOfLumisection, FileKind::EndOfRun] {
                let name = FileName { run: RunNumber(run), lumisection, kind };
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }
    }
}
