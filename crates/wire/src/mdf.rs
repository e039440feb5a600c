//! MDF records: whole events of raw banks in LHCb's data files.
//!
//! ```text
//!  record  bytes of the record (u32), three times | checksum (u32) | compression (u8) | version << 4 | words of the rest of
//!          the header (u8) | data type (u8): 1 banks, 2 MEP | spare (u8)
//!          versions 1 and 3:  trigger mask (u32 x 4) | run (u32) | orbit (u32) | bunch (u32)
//!          banks, back to back, each padded to 4 B
//! ```
//! Little-endian, after LHCb's `MDFHeader.h` and `RawBank.h` ([`mep`](crate::mep) has the banks). The checksum covers
//! everything behind its own field; 0 means that it was not computed. It is Jenkins' one-at-a-time hash
//! (`hash32Checksum` in LHCb's `RawEventHelpers`), with bytes taken as signed.

use core::ops::Range;

use crate::framing::{Part, Window};
use crate::mep::{BANK_HEADER_BYTES, Bank, Banks, MepError};

/// Jenkins' one-at-a-time hash of these bytes, taken as signed numbers as LHCb's own code does.
pub fn hash32<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hash = 0_u32;
    for &byte in pieces.into_iter().flatten() {
        hash = hash.wrapping_add(byte.cast_signed() as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Bytes of the header that every version has.
pub const FRONT_BYTES: usize = 20;
/// Bytes of the whole header in versions 1 and 3.
pub const HEADER_BYTES: usize = 48;
/// Maximum bytes of data in a bank: a 16-bit length counts them with its header.
pub const LARGEST_BANK_DATA: usize = 0xFFFF - BANK_HEADER_BYTES;

/// Offset of the first byte that the checksum covers.
const CHECKED_FROM: usize = 16;
/// Type of the data: banks.
const BANKS: u8 = 1;

/// An error in a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MdfError {
    /// The bytes end before the record does.
    #[error("the bytes end before the record does: {needed} are needed")]
    Short {
        /// Number of bytes needed to continue.
        needed: usize,
    },
    /// No record begins here: there are no three equal lengths.
    #[error("the record's length does not stand there three times")]
    Lengths,
    /// The record is shorter than its own header.
    #[error("the record is shorter than its header")]
    Header,
    /// The banks are longer than the header can state.
    #[error("{bytes} bytes of banks are more than 32 bits can count")]
    Long {
        /// Their number of bytes.
        bytes: usize,
    },
}

/// The event fields of the header, in versions 1 and 3.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AboutEvent {
    /// The lines of the trigger, and the streams, that selected it.
    pub trigger_mask: [u32; 4],
    /// The run.
    pub run: u32,
    /// The orbit.
    pub orbit: u32,
    /// The bunch crossing.
    pub bunch: u32,
}

/// The header of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Bytes of the record, this header included.
    pub bytes: u32,
    /// The checksum of the bytes behind its field; 0 without one.
    pub checksum: u32,
    /// The compression of the banks; 0 for none.
    pub compression: u8,
    /// The layout of the rest of the header.
    pub version: u8,
    /// Number of 32-bit words of that rest.
    pub words: u8,
    /// Type of the data: 1 banks, 2 multi-event packets.
    pub data_type: u8,
    /// The event fields, if this version is known.
    pub about: Option<AboutEvent>,
}

impl RecordHeader {
    /// The header at the front of `window`.
    ///
    /// # Errors
    /// [`MdfError::Short`] with how many bytes a header needs; [`MdfError::Lengths`]; [`MdfError::Header`].
    pub fn read(window: &(impl Window + ?Sized)) -> Result<Self, MdfError> {
        let front: [u8; FRONT_BYTES] = window.array(0).ok_or(MdfError::Short { needed: FRONT_BYTES })?;
        let [bytes, second, third, checksum] = [0, 4, 8, 12].map(|at| u32_at(&front, at));
        if bytes != second || bytes != third {
            return Err(MdfError::Lengths);
        }
        let [.., compression, layout, data_type, _] = front;
        let (version, words) = (layout >> 4, layout & 0xF);
        let mut header = Self { bytes, checksum, compression, version, words, data_type, about: None };
        if (bytes as usize) < header.header_bytes() {
            return Err(MdfError::Header);
        }
        if matches!(version, 1 | 3) && header.header_bytes() >= HEADER_BYTES {
            let rest = window.array(FRONT_BYTES).ok_or(MdfError::Short { needed: HEADER_BYTES })?;
            header.about = Some(AboutEvent::from_bytes(&rest));
        }
        Ok(header)
    }

    /// Bytes of the header.
    pub const fn header_bytes(&self) -> usize {
        FRONT_BYTES + 4 * self.words as usize
    }

    /// Range of the banks, in bytes from the header's beginning.
    pub const fn data(&self) -> Range<usize> {
        self.header_bytes()..self.bytes as usize
    }

    /// Whether the data are uncompressed banks.
    pub const fn has_plain_banks(&self) -> bool {
        self.compression == 0 && self.data_type == BANKS
    }

    /// Whether the checksum matches the record at the front of `window`; `None` if the record has none.
    pub fn is_right(&self, window: &(impl Window + ?Sized)) -> Option<bool> {
        let checked = Part::new(window, CHECKED_FROM, (self.bytes as usize).saturating_sub(CHECKED_FROM));
        (self.checksum != 0).then(|| self.checksum == hash32(checked.pieces(0)))
    }
}

impl AboutEvent {
    fn from_bytes(bytes: &[u8; HEADER_BYTES - FRONT_BYTES]) -> Self {
        let word = |index: usize| u32_at(bytes, 4 * index);
        Self { trigger_mask: [0, 1, 2, 3].map(word), run: word(4), orbit: word(5), bunch: word(6) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Self { trigger_mask: [m0, m1, m2, m3], run, orbit, bunch } = *self;
        [m0, m1, m2, m3, run, orbit, bunch].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |&word| u32::from_le_bytes(word))
}

/// A view of a whole record, whose checksum is not checked yet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    header: RecordHeader,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses the record at the front of `bytes`; ignores the bytes behind it.
    ///
    /// # Errors
    /// As [`RecordHeader::read`]; [`MdfError::Short`] if the record is longer than the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MdfError> {
        let header = RecordHeader::read(bytes)?;
        let length = header.bytes as usize;
        let bytes = bytes.get(..length).ok_or(MdfError::Short { needed: length })?;
        Ok(Self { header, bytes })
    }

    /// Its header.
    pub const fn header(&self) -> RecordHeader {
        self.header
    }

    /// The whole record.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes behind the header.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.header.data()]
    }

    /// Whether the checksum is right; `None` if there is none.
    pub fn is_right(&self) -> Option<bool> {
        self.header.is_right(self.bytes)
    }

    /// Iterates over the banks; ends with the first error. For records whose data are no banks
    /// ([`RecordHeader::has_plain_banks`]) the first item is an error.
    pub fn banks(&self) -> impl Iterator<Item = Result<Bank<'a>, MepError>> + use<'a> {
        Banks::new(self.data())
    }
}

/// Appends a record of version 3 with these banks, which are whole and padded, and the right checksum.
///
/// # Errors
/// [`MdfError::Long`]; nothing is appended then.
pub fn encode_record(about: &AboutEvent, banks: &[&[u8]], out: &mut Vec<u8>) -> Result<(), MdfError> {
    const VERSION: u8 = 3;
    const WORDS: u8 = ((HEADER_BYTES - FRONT_BYTES) / 4) as u8;
    let bytes: usize = banks.iter().map(|bank| bank.len()).sum();
    let length = u32::try_from(HEADER_BYTES + bytes).map_err(|_| MdfError::Long { bytes })?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    [length, length, length, 0].iter().for_each(|word| header.extend_from_slice(&word.to_le_bytes()));
    header.extend_from_slice(&[0, VERSION << 4 | WORDS, BANKS, 0]);
    about.encode(&mut header);
    let checksum = hash32(core::iter::once(&header[CHECKED_FROM..]).chain(banks.iter().copied()));
    header[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&header);
    banks.iter().for_each(|bank| out.extend_from_slice(bank));
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Records: encoded and parsed again, every fault, and random bytes.

    use proptest::prelude::*;

    use super::*;
    use crate::mep::{Bank, encode_bank};

    const ABOUT: AboutEvent = AboutEvent { trigger_mask: [1, 2, 3, 4], run: 42, orbit: 5, bunch: 6 };

    fn banks(data: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (data, source) in data.iter().zip(0..) {
            encode_bank(&Bank { kind: 12, version: 3, source, data }, &mut out).expect("it is short");
        }
        out
    }

    fn record(banks: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_record(&ABOUT, &[banks], &mut out).expect("it is short");
        out
    }

    #[test]
    fn the_fields_are_where_the_format_puts_them() {
        let record = record(&banks(&[b"abcde".to_vec()]));
        assert_eq!(record.len(), 48 + 8 + 8);
        let words: Vec<u32> = record.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        assert_eq!(words[..3], [64, 64, 64]);
        assert_eq!(record[16..20], [0, 3 << 4 | 7, 1, 0]);
        assert_eq!(words[5..12], [1, 2, 3, 4, 42, 5, 6]);
        assert_eq!(&record[48..], b"\xCB\xCB\x0D\x00\x0C\x03\x00\x00abcde\x00\x00\x00");
        assert_eq!(words[3], hash32([&record[16..]]));
    }

    #[test]
    fn the_hash_is_jenkins_one_at_a_time_over_signed_bytes() {
        // The first two are the algorithm's published check values.
        assert_eq!(hash32([&b"a"[..]]), 0xCA2E_9442);
        assert_eq!(hash32([&b"The quick brown fox jumps over "[..], b"the lazy dog"]), 0x519E_91F5);
        // 0xFF counts as -1.
        assert_eq!(hash32([&[0xFF][..]]), 0xAE65_A494);
    }

    #[test]
    fn a_record_without_a_checksum_has_none() {
        let mut record = record(&banks(&[b"abc".to_vec()]));
        assert_eq!(Record::parse(&record).expect("a record").is_right(), Some(true));
        record[50] ^= 1;
        assert_eq!(Record::parse(&record).expect("a record").is_right(), Some(false));
        record[12..16].fill(0);
        assert_eq!(Record::parse(&record).expect("a record").is_right(), None);
    }

    #[test]
    fn lengths_that_disagree_are_none() {
        let good = record(&[]);
        for at in [0, 4, 8] {
            let mut wrong = good.clone();
            wrong[at] += 1;
            assert_eq!(Record::parse(&wrong), Err(MdfError::Lengths));
        }
        let mut short = good.clone();
        [0, 4, 8].iter().for_each(|&at| short[at] = 47);
        assert_eq!(Record::parse(&short), Err(MdfError::Header));
        assert_eq!(Record::parse(&good[..19]), Err(MdfError::Short { needed: FRONT_BYTES }));
        assert_eq!(Record::parse(&good[..47]), Err(MdfError::Short { needed: HEADER_BYTES }));
    }

    #[test]
    fn what_an_unknown_version_says_of_the_event_is_left_alone() {
        let mut record = record(&banks(&[b"abc".to_vec()]));
        record[17] = 1 << 4 | 7;
        assert_eq!(Record::parse(&record).expect("a record").header().about, Some(ABOUT));
        record[17] = 2 << 4 | 7;
        let found = Record::parse(&record).expect("a record");
        assert_eq!((found.header().about, found.header().data()), (None, 48..60));
        record[16] = 4;
        assert!(!Record::parse(&record).expect("a record").header().has_plain_banks());
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was_written(
            data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut record = record(&banks(&data));
            let found = Record::parse(&record).expect("a record");
            prop_assert_eq!(found.header().about, Some(ABOUT));
            let found_data: Vec<Vec<u8>> = found.banks().map(|bank| bank.expect("a bank").data.to_vec()).collect();
            prop_assert_eq!(found_data, data);
            prop_assert_eq!(found.is_right(), Some(true));
            for length in 0..record.len() {
                let needs_more = matches!(Record::parse(&record[..length]), Err(MdfError::Short { needed }) if needed > length);
                prop_assert!(needs_more, "of {} bytes {length}", record.len());
            }
            // A flipped bit causes a wrong checksum, another layout, or no record.
            let bit = bit.index(8 * record.len());
            record[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = Record::parse(&record) {
                prop_assert!(found.is_right() != Some(true));
                let _ = found.banks().count();
            }
        }

        #[test]
        fn any_bytes_may_be_asked(mut bytes in prop::collection::vec(any::<u8>(), 0..120), length in 20..120_u32) {
            for at in [0, 4, 8] {
                if let Some(word) = bytes.get_mut(at..at + 4) {
                    word.copy_from_slice(&length.to_le_bytes());
                }
            }
            if let Ok(record) = Record::parse(&bytes) {
                let _ = (record.is_right(), record.banks().count());
            }
        }
    }
}
