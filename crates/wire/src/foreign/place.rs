//! Numbers at fixed places of headers.

use super::{Inspector, Value};
use crate::framing::Window;

/// A number in a header: where it stands, and what people call it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    name: &'static str,
    at: usize,
    /// Bytes of the word that holds it, 1 to 8.
    bytes: usize,
    is_big_endian: bool,
    /// The lowest of its bits in that word, and how many there are.
    low: u32,
    bits: u32,
    is_hex: bool,
}

impl Place {
    /// A number of `bytes` (1 to 8), lowest byte first.
    pub const fn little(name: &'static str, at: usize, bytes: usize) -> Self {
        assert!(0 < bytes && bytes <= 8, "a number has one to eight bytes");
        Self { name, at, bytes, is_big_endian: false, low: 0, bits: 8 * bytes as u32, is_hex: false }
    }

    /// A number of `bytes` (1 to 8), highest byte first.
    pub const fn big(name: &'static str, at: usize, bytes: usize) -> Self {
        Self { is_big_endian: true, ..Self::little(name, at, bytes) }
    }

    /// The bits `low .. low + bits` of the word alone.
    pub const fn bits(self, low: u32, bits: u32) -> Self {
        assert!(bits > 0 && low + bits <= 8 * self.bytes as u32, "the bits lie in the word");
        Self { low, bits, ..self }
    }

    /// Shown in hexadecimal: a pattern of bits, and no count.
    pub const fn hex(self) -> Self {
        Self { is_hex: true, ..self }
    }

    /// What people call it.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its word stands, in bytes from the header's beginning.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The number; none where the bytes end before it.
    #[inline]
    pub fn read(&self, window: &(impl Window + ?Sized)) -> Option<u64> {
        let mut bytes = [0; 8];
        let word = if self.is_big_endian {
            window.read(self.at, &mut bytes[8 - self.bytes..]).then(|| u64::from_be_bytes(bytes))?
        } else {
            window.read(self.at, &mut bytes[..self.bytes]).then(|| u64::from_le_bytes(bytes))?
        };
        Some(word >> self.low & self.mask())
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Tells an inspector about it, if it is there.
    pub(super) fn tell(&self, frame: &[u8], to: &mut dyn Inspector) {
        if let Some(number) = self.read(frame) {
            let value = if self.is_hex { Value::Hex(number) } else { Value::Number(number) };
            to.field(self.name, self.at, self.bytes, value);
        }
    }

    /// How its word is written in the documentation: bytes, order, bits.
    pub fn type_text(&self) -> String {
        let order = match (self.bytes, self.is_big_endian) {
            (1, _) => "",
            (_, true) => "be",
            (_, false) => "le",
        };
        let bits = match (self.bits, self.bits as usize == 8 * self.bytes) {
            (_, true) => String::new(),
            (1, false) => format!(", bit {}", self.low),
            _ => format!(", bits {}-{}", self.low, self.low + self.bits - 1),
        };
        format!("u{}{order}{bits}", 8 * self.bytes)
    }
}

/// A header of `N` bytes as a value, to be encoded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Header<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Header<N> {
    /// Zeros.
    pub const fn new() -> Self {
        Self([0; N])
    }

    /// The same header with another number there; what does not fit of it is cut off.
    ///
    /// # Panics
    /// Where the place lies behind the header.
    #[must_use]
    pub const fn with(mut self, place: Place, number: u64) -> Self {
        let mut index = 0;
        let mask = place.mask() << place.low;
        let number = number << place.low & mask;
        while index < place.bytes {
            let shift = 8 * if place.is_big_endian { place.bytes - 1 - index } else { index };
            let byte = &mut self.0[place.at + index];
            *byte = *byte & !((mask >> shift) as u8) | (number >> shift) as u8;
            index += 1;
        }
        self
    }
}
