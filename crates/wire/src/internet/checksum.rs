//! The internet checksum: the complement of the ones' complement sum of 16-bit words (RFC 1071).

/// A sum under way, over pieces of any length.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Of the machine's own 16-bit words; the order of bytes is put right at the end, since the sum does not care.
    words: u64,
    /// Whether the next byte is the second one of a word.
    is_odd: bool,
}

impl Sum {
    /// The sum with a piece more.
    #[inline]
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (mut words, mut rest) = (self.words, bytes);
        if self.is_odd {
            let Some((&second, behind)) = bytes.split_first() else { return self };
            words += u64::from(u16::from_ne_bytes([0, second]));
            rest = behind;
        }
        // A sum of 32-bit words folds to the same 16 bits.
        let (quads, rest) = rest.as_chunks::<4>();
        words += quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum::<u64>();
        let (pairs, rest) = rest.as_chunks::<2>();
        words += pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
        words += rest.first().map_or(0, |&first| u64::from(u16::from_ne_bytes([first, 0])));
        Self { words: fold(words), is_odd: !rest.is_empty() }
    }

    /// The sum with a 16-bit word more. Only between whole words.
    #[must_use]
    pub fn with_u16(self, word: u16) -> Self {
        self.with(&word.to_be_bytes())
    }

    /// The sum itself, folded to 16 bits.
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.words) as u16)
    }

    /// The checksum: what is to stand in the header. Over a header that has its right checksum it is 0.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// Adds the carries back in until 16 bits are left.
const fn fold(mut words: u64) -> u64 {
    while words >> 16 != 0 {
        words = (words & 0xFFFF) + (words >> 16);
    }
    words
}

/// The checksum of bytes in one piece.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).checksum()
}
