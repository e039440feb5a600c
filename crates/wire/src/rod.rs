//! The header of an ATLAS ROD fragment, at the beginning of the data of read-out drivers and of front ends on FULL-mode
//! links.
//!
//! ```text
//!  32-bit words, little-endian (ATLAS raw event format, versions 3 to 5)
//!  0  marker 0xEE1234EE       3  source          6  bunch crossing (12 bits)
//!  1  words of the header, 9  4  run             7  level-1 trigger type (8 bits)
//!  2  version                 5  level-1 id      8  event type of the detector
//!                                resets of the event counter (8 bits), the counter (24 bits)
//! ```
//! Before version 3 there was no run, the header had 8 words, and the level-1 id was in word 4: such a header is
//! rejected by its length. The header is followed by data of the detector, in any format, and three words behind them.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 4 * WORDS;
/// The first word of every fragment.
pub const MARKER: u32 = 0xee12_34ee;

const WORDS: usize = 9;
const VERSION: u32 = 0x0301_0000;
/// The largest level-1 id; the next is 0.
const MAX_LEVEL1_ID: u32 = (1 << 24) - 1;

/// Reason why bytes are no header.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RodError {
    /// The first word is another one.
    #[error("the fragment does not begin with the marker of a ROD fragment")]
    Marker,
    /// The header has another length than those of version 3 and later.
    #[error("the header has {0} words, not nine")]
    HeaderSize(u32),
}

/// A header. Undefined bits are kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header([u32; WORDS]);

impl Header {
    /// A header of version 3.1 and run 0. Of `level1_id` 24 bits are used, of `bunch_crossing` 12.
    pub const fn new(source: u32, level1_id: u32, bunch_crossing: u16, trigger_type: u8) -> Self {
        let (level1_id, bunch_crossing) = (level1_id & MAX_LEVEL1_ID, bunch_crossing as u32 & 0xfff);
        Self([MARKER, WORDS as u32, VERSION, source, 0, level1_id, bunch_crossing, trigger_type as u32, 0])
    }

    /// The header at the beginning of a fragment.
    ///
    /// # Errors
    /// If it is not such a header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, RodError> {
        let (words, _) = bytes.as_chunks::<4>();
        let header = Self(std::array::from_fn(|word| u32::from_le_bytes(words[word])));
        match header.0 {
            [MARKER, size, ..] if size == WORDS as u32 => Ok(header),
            [MARKER, size, ..] => Err(RodError::HeaderSize(size)),
            _ => Err(RodError::Marker),
        }
    }

    /// The header as in a fragment.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.0).for_each(|(place, word)| *place = word.to_le_bytes());
        bytes
    }

    /// The event counter, 24 bits.
    pub const fn level1_id(&self) -> u32 {
        self.0[5] & MAX_LEVEL1_ID
    }

    /// Number of resets of the event counter, modulo 256.
    pub const fn resets(&self) -> u8 {
        (self.0[5] >> 24) as u8
    }

    /// The bunch crossing, 12 bits.
    pub const fn bunch_crossing(&self) -> u16 {
        (self.0[6] & 0xfff) as u16
    }

    /// The level-1 trigger type.
    pub const fn trigger_type(&self) -> u8 {
        self.0[7] as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_field_stands_in_its_word() {
        let mut bytes = Header::new(0x0076_0001, 0x00ab_cdef, 0x123, 0x84).to_bytes();
        assert_eq!(bytes[..8], [0xee, 0x34, 0x12, 0xee, 9, 0, 0, 0]);
        assert_eq!((&bytes[12..16], &bytes[20..24]), (&[1, 0, 0x76, 0][..], &[0xef, 0xcd, 0xab, 0][..]));
        assert_eq!((&bytes[24..28], &bytes[28..32]), (&[0x23, 1, 0, 0][..], &[0x84, 0, 0, 0][..]));
        bytes[23] = 7;
        let header = Header::parse(&bytes).expect("a header");
        assert_eq!((header.level1_id(), header.resets()), (0x00ab_cdef, 7));
        assert_eq!((header.bunch_crossing(), header.trigger_type()), (0x123, 0x84));
    }

    #[test]
    fn another_marker_or_length_is_no_header() {
        let good = Header::new(1, 2, 3, 4).to_bytes();
        let with = |place: usize, byte: u8| {
            let mut bytes = good;
            bytes[place] = byte;
            Header::parse(&bytes)
        };
        assert_eq!(with(3, 0xdd), Err(RodError::Marker));
        assert_eq!(with(4, 8), Err(RodError::HeaderSize(8)), "of version 2");
        assert!(with(8, 0xff).is_ok());
    }

    proptest! {
        #[test]
        fn a_header_comes_back_bit_by_bit(words: [u32; WORDS]) {
            let mut bytes = [0; HEADER_BYTES];
            let words = [&[MARKER, 9], &words[2..]].concat();
            bytes.chunks_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
            let header = Header::parse(&bytes).expect("marker and length are right");
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }
}
