//! Numbers and patterns, ready to be read.

use super::specification::{Number, Pattern};
use super::{LayoutFault, MOST_PARTS, MOST_PATTERN_BYTES};
use crate::framing::Window;
use arrayvec::ArrayVec;

/// A number, ready to be read: eight bytes are loaded at once, so that it needs no loop. Those that end with the field, or
/// the frame's first ones, are there in every frame of eight bytes; shorter ones are read byte by byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// Where the eight bytes begin: from the frame's begin, or from its end.
    base: usize,
    from_end: bool,
    is_big_endian: bool,
    /// By how much what was loaded is moved down,
    down: u8,
    /// and which of the bits that are then the lowest are the number.
    mask: u64,
    number: Number,
}

impl Field {
    /// A field whose bits are neighbours.
    pub(super) fn new(number: Number) -> Result<Self, LayoutFault> {
        let field = Self::of_any_bits(number)?;
        let mask = number.mask.unwrap_or(u64::MAX);
        let moved = mask >> mask.trailing_zeros();
        if number.mask.is_some() && moved & moved.wrapping_add(1) != 0 {
            return Err(LayoutFault::Mask { mask, bits: 8 * u32::from(number.bytes) });
        }
        Ok(field)
    }

    /// A field of which any bits may be looked at.
    pub(super) fn of_any_bits(number: Number) -> Result<Self, LayoutFault> {
        let Number { at, bytes, is_big_endian, .. } = number;
        if !(1..=8).contains(&bytes) {
            return Err(LayoutFault::Width(bytes));
        }
        let (bits, length) = (8 * u32::from(bytes), usize::from(bytes));
        let mask = Self::raw_mask(&number);
        if mask == 0 || mask > u64::MAX >> (64 - bits) {
            return Err(LayoutFault::Mask { mask, bits });
        }
        let shift = number.shift.unwrap_or(mask.trailing_zeros() as u8);
        if mask.checked_shr(shift.into()).unwrap_or(0) == 0 {
            return Err(LayoutFault::Shift(shift));
        }
        let distance = at.unsigned_abs() as usize;
        if at < 0 && distance < length {
            return Err(LayoutFault::Outside { end: (length - distance) as u64, frame: 0 });
        }
        // The bytes of the eight that are before the field.
        let before = if at < 0 { 8 - length } else { distance.min(8 - length) };
        let base = if at < 0 { distance + before } else { distance - before };
        let above = if is_big_endian { 64 - 8 * (before + length) } else { 8 * before };
        let down = above as u8 + shift;
        Ok(Self { base, from_end: at < 0, is_big_endian, down, mask: mask >> shift, number })
    }

    /// The mask before anything is moved.
    fn raw_mask(number: &Number) -> u64 {
        number.mask.unwrap_or(u64::MAX >> (64 - 8 * u32::from(number.bytes.clamp(1, 8))))
    }

    /// Where its eight bytes begin, by how much they are moved down, and which bits count then; none where it is counted
    /// from the frame's end.
    pub(super) const fn place_from_begin(&self) -> Option<(usize, u8, u64)> {
        if self.from_end { None } else { Some((self.base, self.down, self.mask)) }
    }

    pub(super) const fn number(&self) -> &Number {
        &self.number
    }

    /// How many bits its values have.
    pub(super) const fn bits(&self) -> u32 {
        u64::BITS - self.mask.leading_zeros()
    }

    /// The largest value.
    pub(super) const fn largest(&self) -> u64 {
        self.mask
    }

    /// Which bits of its `byte`-th byte are the number's.
    pub(super) fn bits_of_byte(&self, byte: usize) -> u8 {
        let length = usize::from(self.number.bytes);
        let significance = if self.is_big_endian { length.wrapping_sub(1 + byte) } else { byte };
        if byte < length { (Self::raw_mask(&self.number) >> (8 * significance)) as u8 } else { 0 }
    }

    /// The number in a frame; none where the frame is too short.
    pub(super) fn read(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        match frame.array::<8>(self.begin(frame)) {
            Some(bytes) => Some(self.value(bytes)),
            None => self.read_slowly(frame),
        }
    }

    /// The number in a frame that is long enough; 0 in any other.
    #[inline(always)]
    pub(super) fn of(&self, frame: &(impl Window + ?Sized)) -> u64 {
        match frame.array::<8>(self.begin(frame)) {
            Some(bytes) => self.value(bytes),
            None => self.read_slowly(frame).unwrap_or(0),
        }
    }

    /// Where the eight bytes begin; beyond everything where they would begin before the frame.
    #[inline(always)]
    fn begin(&self, frame: &(impl Window + ?Sized)) -> usize {
        if self.from_end { frame.len().wrapping_sub(self.base) } else { self.base }
    }

    #[inline(always)]
    fn value(&self, bytes: [u8; 8]) -> u64 {
        let word = if self.is_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        word >> self.down & self.mask
    }

    #[cold]
    fn read_slowly(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        let distance = self.number.at.unsigned_abs() as usize;
        let at = if self.from_end { frame.len().checked_sub(distance)? } else { distance };
        let length = usize::from(self.number.bytes);
        let before = if self.from_end { 8 - length } else { distance.min(8 - length) };
        let mut bytes = [0; 8];
        frame.read(at, bytes.get_mut(before..before + length)?).then(|| self.value(bytes))
    }

    /// Makes a frame say this; the bits around the number stay as they are. Nothing is written where it is too short.
    pub(super) fn write(&self, value: u64, frame: &mut [u8]) {
        let distance = self.number.at.unsigned_abs() as usize;
        let at = if self.from_end { frame.len().checked_sub(distance) } else { Some(distance) };
        let length = usize::from(self.number.bytes);
        let Some(place) = at.and_then(|at| frame.get_mut(at..at.checked_add(length)?)) else { return };
        let mask = Self::raw_mask(&self.number);
        let shift = self.number.shift.map_or(mask.trailing_zeros(), u32::from);
        let word = value << shift & mask;
        for (index, byte) in place.iter_mut().enumerate() {
            let significance = if self.is_big_endian { length - 1 - index } else { index };
            let bits = self.bits_of_byte(index);
            *byte = *byte & !bits | (word >> (8 * significance)) as u8 & bits;
        }
    }
}

/// One number of several fields, the first the most significant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    first: Field,
    rest: ArrayVec<Field, { MOST_PARTS - 1 }>,
}

impl Joined {
    /// None where there are no fields.
    pub(super) fn new(numbers: &[Number]) -> Result<Option<Self>, LayoutFault> {
        if numbers.len() > MOST_PARTS {
            return Err(LayoutFault::Parts(numbers.len()));
        }
        let mut fields = numbers.iter().map(|&number| Field::new(number));
        let Some(first) = fields.next().transpose()? else { return Ok(None) };
        let rest = fields.collect::<Result<_, _>>()?;
        Ok(Some(Self { first, rest }))
    }

    /// The field, where it is one alone.
    pub(super) fn alone(&self) -> Option<&Field> {
        self.rest.is_empty().then_some(&self.first)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    /// How many bits its values have.
    pub(super) fn bits(&self) -> u32 {
        self.fields().map(Field::bits).sum()
    }

    pub(super) fn read(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        self.fields().all(|field| field.read(frame).is_some()).then(|| self.of(frame))
    }

    /// The number in a frame that is long enough.
    #[inline(always)]
    pub(super) fn of(&self, frame: &(impl Window + ?Sized)) -> u64 {
        let mut value = self.first.of(frame);
        for field in &self.rest {
            value = value << field.bits() | field.of(frame);
        }
        value
    }

    pub(super) fn write(&self, value: u64, frame: &mut [u8]) {
        let mut left = value;
        for field in self.rest.iter().rev() {
            field.write(left, frame);
            left = left.checked_shr(field.bits()).unwrap_or(0);
        }
        self.first.write(left, frame);
    }
}

/// Bytes at a place of a frame, ready to be compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Constant {
    field: Field,
    /// The value that the field must have; its bits are those of the bytes, the first the most significant.
    value: u64,
}

impl Constant {
    pub(super) fn new(pattern: &Pattern) -> Result<Self, LayoutFault> {
        let length = pattern.bytes.len();
        if !(1..=MOST_PATTERN_BYTES).contains(&length) {
            return Err(LayoutFault::Pattern(length));
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let mask = pattern.mask.as_deref().map(number);
        if pattern.mask.as_ref().is_some_and(|mask| mask.len() != length) || mask == Some(0) {
            return Err(LayoutFault::PatternMask);
        }
        let place = Number { mask, shift: Some(0), ..Number::big_endian(pattern.at, length as u8) };
        let field = Field::of_any_bits(place)?;
        Ok(Self { field, value: number(&pattern.bytes) & field.mask })
    }

    pub(super) const fn field(&self) -> &Field {
        &self.field
    }

    /// What the field must be.
    pub(super) const fn value(&self) -> u64 {
        self.value
    }

    /// Bytes from the frame's begin to its own end; 0 where it stands at the frame's end.
    pub(super) const fn end(&self) -> usize {
        let number = &self.field.number;
        if number.at < 0 { 0 } else { number.at as usize + number.bytes as usize }
    }

    /// Whether a frame has it.
    #[inline]
    pub(super) fn is_in(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.field.read(frame) == Some(self.value)
    }

    /// Whether a frame that is long enough has it.
    #[inline(always)]
    pub(super) fn stands_in(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.field.of(frame) == self.value
    }

    /// The first place from `from` on where a frame that has it may begin. It must be one that stands at the begin.
    pub(super) fn find(&self, window: &(impl Window + ?Sized), from: usize) -> Option<usize> {
        let Number { at, bytes, .. } = self.field.number;
        let (at, length) = (at.unsigned_abs() as usize, usize::from(bytes));
        let (mut last, mut place) = (0, from);
        let mut missing = length;
        for piece in window.pieces(from.checked_add(at)?) {
            for &byte in piece {
                last = last << 8 | u64::from(byte);
                missing = missing.saturating_sub(1);
                if missing > 0 {
                    continue;
                }
                if last & self.field.mask == self.value {
                    return Some(place);
                }
                place += 1;
            }
        }
        None
    }

    /// Makes a frame have it.
    pub(super) fn write(&self, frame: &mut [u8]) {
        self.field.write(self.value, frame);
    }
}
