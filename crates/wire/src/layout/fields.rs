//! Fields of frames: numbers, the heads of pieces, and checksums.

use core::ops::Range;

use arrayvec::ArrayVec;
use crc_fast::{CrcAlgorithm, Digest};

use super::{End, LayoutFault, MOST_PARTS, MOST_PATTERN_BYTES, Number, Pattern, Pieces, Place};
use crate::framing::{PieceHead, Window};

/// A number's place, prepared for reading: one load of eight bytes replaces a loop. The eight bytes end with the field,
/// or are the frame's first ones, so that every frame of eight bytes contains them; shorter frames are read byte by
/// byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// Offset of the eight bytes, from the frame's beginning, or from its end.
    base: usize,
    from_end: bool,
    is_big_endian: bool,
    /// Right shift of the loaded value,
    down: u8,
    /// and the mask of the number's bits after it.
    mask: u64,
    number: Number,
}

impl Field {
    /// Makes a field whose bits are adjacent.
    pub(super) fn new(number: Number) -> Result<Self, LayoutFault> {
        let field = Self::of_any_bits(number)?;
        let mask = number.mask.unwrap_or(u64::MAX);
        let moved = mask >> mask.trailing_zeros();
        if number.mask.is_some() && moved & moved.wrapping_add(1) != 0 {
            return Err(LayoutFault::Mask { mask, bits: 8 * u32::from(number.bytes) });
        }
        Ok(field)
    }

    /// Makes a field of any bits.
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
        // The bytes of the eight that precede the field.
        let before = if at < 0 { 8 - length } else { distance.min(8 - length) };
        let base = if at < 0 { distance + before } else { distance - before };
        let above = if is_big_endian { 64 - 8 * (before + length) } else { 8 * before };
        let down = above as u8 + shift;
        Ok(Self { base, from_end: at < 0, is_big_endian, down, mask: mask >> shift, number })
    }

    /// The mask before the shift.
    fn raw_mask(number: &Number) -> u64 {
        number.mask.unwrap_or(u64::MAX >> (64 - 8 * u32::from(number.bytes.clamp(1, 8))))
    }

    /// Offset of its eight bytes, their right shift, and the mask after it; `None` if the field is counted from the
    /// frame's end.
    pub(super) const fn place_from_begin(&self) -> Option<(usize, u8, u64)> {
        if self.from_end { None } else { Some((self.base, self.down, self.mask)) }
    }

    pub(super) const fn number(&self) -> &Number {
        &self.number
    }

    /// Number of bits of its values.
    pub(super) const fn bits(&self) -> u32 {
        u64::BITS - self.mask.leading_zeros()
    }

    /// The largest value.
    pub(super) const fn largest(&self) -> u64 {
        self.mask
    }

    /// The bits of its `byte`-th byte that belong to the number.
    pub(super) fn bits_of_byte(&self, byte: usize) -> u8 {
        let length = usize::from(self.number.bytes);
        let significance = if self.is_big_endian { length.wrapping_sub(1 + byte) } else { byte };
        if byte < length { (Self::raw_mask(&self.number) >> (8 * significance)) as u8 } else { 0 }
    }

    /// The number in a frame; `None` if the frame is too short.
    pub(super) fn read(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        match frame.array::<8>(self.begin(frame)) {
            Some(bytes) => Some(self.value(bytes)),
            None => self.read_slowly(frame),
        }
    }

    /// The number in a frame that is long enough; 0 in a shorter one.
    #[inline(always)]
    pub(super) fn of(&self, frame: &(impl Window + ?Sized)) -> u64 {
        match frame.array::<8>(self.begin(frame)) {
            Some(bytes) => self.value(bytes),
            None => self.read_slowly(frame).unwrap_or(0),
        }
    }

    /// Offset of the eight bytes; beyond the end of any frame if they would begin before the frame.
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

    /// Writes the number into a frame; the bits around it stay unchanged. Writes nothing if the frame is too short.
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

/// One number composed of several fields, the first the most significant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    first: Field,
    rest: ArrayVec<Field, { MOST_PARTS - 1 }>,
}

impl Joined {
    /// `None` without fields.
    pub(super) fn new(numbers: &[Number]) -> Result<Option<Self>, LayoutFault> {
        if numbers.len() > MOST_PARTS {
            return Err(LayoutFault::Parts(numbers.len()));
        }
        let mut fields = numbers.iter().map(|&number| Field::new(number));
        let Some(first) = fields.next().transpose()? else { return Ok(None) };
        let rest = fields.collect::<Result<_, _>>()?;
        Ok(Some(Self { first, rest }))
    }

    /// The field, if there is only one.
    pub(super) fn alone(&self) -> Option<&Field> {
        self.rest.is_empty().then_some(&self.first)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    /// Number of bits of its values.
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

/// Fixed bytes at a place of a frame, prepared for comparison.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Constant {
    field: Field,
    /// The required value of the field; its bits are those of the bytes, the first the most significant.
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

    /// The required value.
    pub(super) const fn value(&self) -> u64 {
        self.value
    }

    /// Bytes from the frame's beginning to its own end; 0 if its place is counted from the frame's end.
    pub(super) const fn end(&self) -> usize {
        let number = &self.field.number;
        if number.at < 0 { 0 } else { number.at as usize + number.bytes as usize }
    }

    /// Whether a frame contains it.
    #[inline]
    pub(super) fn is_in(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.field.read(frame) == Some(self.value)
    }

    /// Whether a frame that is long enough contains it.
    #[inline(always)]
    pub(super) fn stands_in(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.field.of(frame) == self.value
    }

    /// The first offset from `from` on at which a frame with these bytes may begin. Its place must be counted from the
    /// beginning.
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

    /// Writes the bytes into a frame.
    pub(super) fn write(&self, frame: &mut [u8]) {
        self.field.write(self.value, frame);
    }
}

/// The header of a piece, prepared for reading.
#[derive(Copy, Clone, Debug)]
pub(super) struct PieceFields {
    pub(super) specification: Pieces,
    pub(super) frame: Field,
    pub(super) place: Field,
    pub(super) end: Field,
}

impl PieceFields {
    pub(super) fn read(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        let header = self.specification.header as usize;
        let body = datagram.len().checked_sub(header)? as u64;
        let (place, end) = (self.place.read(datagram)?, self.end.read(datagram)?);
        let whole = match self.specification.end {
            End::Length(_) | End::Count(_) => Some(end),
            End::Last(_) if end != 0 => Some(place.saturating_add(1)),
            End::Last(_) => None,
        };
        let is_in_bytes = matches!(self.specification.place, Place::Offset(_));
        // With offsets the last body gives the end of the whole.
        let whole = match self.specification.end {
            End::Last(_) if is_in_bytes => whole.map(|_| place.saturating_add(body)),
            _ => whole,
        };
        Some(PieceHead { frame: self.frame.read(datagram)?, place, whole, header, is_in_bytes })
    }

    /// Number of body bytes per datagram for a frame whose bodies have `bodies` bytes together, if `most` are wanted:
    /// more, if the header cannot count as many datagrams.
    pub(super) fn body_bytes(&self, bodies: usize, most: usize) -> usize {
        let index = matches!(self.specification.place, Place::Index(_)).then(|| self.place.largest().saturating_add(1));
        let count = matches!(self.specification.end, End::Count(_)).then(|| self.end.largest());
        let datagrams = index.into_iter().chain(count).min().map_or(usize::MAX, |most| most.min(1 << 32) as usize);
        most.max(bodies.div_ceil(datagrams.max(1))).max(1)
    }

    /// Writes a header for the `index`-th of `count` bodies, of `each` bytes (the last one has the rest of `bodies`),
    /// of the frame with this number.
    pub(super) fn write(
        &self,
        number: u64,
        index: usize,
        count: usize,
        (each, bodies): (usize, usize),
        out: &mut [u8],
    ) {
        let place = match self.specification.place {
            Place::Offset(_) => index * each,
            Place::Index(_) => index,
        };
        let end = match self.specification.end {
            End::Length(_) => bodies,
            End::Count(_) => count,
            End::Last(_) => usize::from(index + 1 == count),
        };
        for (field, value) in [(&self.frame, number), (&self.place, place as u64), (&self.end, end as u64)] {
            field.write(value, out);
        }
    }
}

macro_rules! kinds {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal, $bits:literal, $way:expr;)*) => {
        /// What a checksum is. The names are those of a configuration; those of CRCs are those of the usual catalogue.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
        pub enum ChecksumKind { $($(#[doc = $help])* $name),* }

        /// Every kind, in the order of the documentation.
        pub const CHECKSUM_KINDS: &[ChecksumKind] = &[$(ChecksumKind::$name),*];

        impl ChecksumKind {
            /// The name in a configuration.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Number of its bits.
            pub const fn bits(self) -> u32 {
                match self { $(Self::$name => $bits),* }
            }

            const fn way(self) -> Way {
                match self { $(Self::$name => $way),* }
            }
        }
    };
}

kinds! {
    /// CRC-16/ARC: polynomial 0x8005, reflected, from 0.
    Crc16Arc = "crc16-arc", 16, Way::Crc(CrcAlgorithm::Crc16Arc);
    /// CRC-16/CMS: polynomial 0x8005, from 0xFFFF.
    Crc16Cms = "crc16-cms", 16, Way::Crc(CrcAlgorithm::Crc16Cms);
    /// CRC-16/MODBUS: polynomial 0x8005, reflected, from 0xFFFF.
    Crc16Modbus = "crc16-modbus", 16, Way::Crc(CrcAlgorithm::Crc16Modbus);
    /// CRC-16/USB: polynomial 0x8005, reflected, from 0xFFFF, inverted.
    Crc16Usb = "crc16-usb", 16, Way::Crc(CrcAlgorithm::Crc16Usb);
    /// CRC-16/UMTS: polynomial 0x8005, from 0.
    Crc16Umts = "crc16-umts", 16, Way::Crc(CrcAlgorithm::Crc16Umts);
    /// CRC-16/IBM-3740, known as CCITT-FALSE: polynomial 0x1021, from 0xFFFF.
    Crc16Ccitt = "crc16-ccitt", 16, Way::Crc(CrcAlgorithm::Crc16Ibm3740);
    /// CRC-16/XMODEM: polynomial 0x1021, from 0.
    Crc16Xmodem = "crc16-xmodem", 16, Way::Crc(CrcAlgorithm::Crc16Xmodem);
    /// CRC-16/KERMIT: polynomial 0x1021, reflected, from 0.
    Crc16Kermit = "crc16-kermit", 16, Way::Crc(CrcAlgorithm::Crc16Kermit);
    /// CRC-16/IBM-SDLC, known as X-25: polynomial 0x1021, reflected, from 0xFFFF, inverted.
    Crc16X25 = "crc16-x25", 16, Way::Crc(CrcAlgorithm::Crc16IbmSdlc);
    /// CRC-16/GENIBUS: polynomial 0x1021, from 0xFFFF, inverted.
    Crc16Genibus = "crc16-genibus", 16, Way::Crc(CrcAlgorithm::Crc16Genibus);
    /// CRC-16/DNP: polynomial 0x3D65, reflected, from 0, inverted.
    Crc16Dnp = "crc16-dnp", 16, Way::Crc(CrcAlgorithm::Crc16Dnp);
    /// CRC-16/T10-DIF: polynomial 0x8BB7, from 0.
    Crc16T10Dif = "crc16-t10-dif", 16, Way::Crc(CrcAlgorithm::Crc16T10Dif);
    /// CRC-32/ISO-HDLC, that of Ethernet and zip: polynomial 0x04C11DB7, reflected, from all ones, inverted.
    Crc32 = "crc32", 32, Way::Crc(CrcAlgorithm::Crc32IsoHdlc);
    /// CRC-32/ISCSI, known as CRC-32C: polynomial 0x1EDC6F41, reflected, from all ones, inverted.
    Crc32c = "crc32c", 32, Way::Crc32c;
    /// CRC-32/BZIP2: polynomial 0x04C11DB7, from all ones, inverted.
    Crc32Bzip2 = "crc32-bzip2", 32, Way::Crc(CrcAlgorithm::Crc32Bzip2);
    /// CRC-32/MPEG-2: polynomial 0x04C11DB7, from all ones.
    Crc32Mpeg2 = "crc32-mpeg2", 32, Way::Crc(CrcAlgorithm::Crc32Mpeg2);
    /// CRC-32/CKSUM: polynomial 0x04C11DB7, from 0, inverted.
    Crc32Cksum = "crc32-cksum", 32, Way::Crc(CrcAlgorithm::Crc32Cksum);
    /// CRC-32/JAMCRC: polynomial 0x04C11DB7, reflected, from all ones.
    Crc32Jamcrc = "crc32-jamcrc", 32, Way::Crc(CrcAlgorithm::Crc32Jamcrc);
    /// CRC-32/AUTOSAR: polynomial 0xF4ACFB13, reflected, from all ones, inverted.
    Crc32Autosar = "crc32-autosar", 32, Way::Crc(CrcAlgorithm::Crc32Autosar);
    /// Adler-32, as in zlib.
    Adler32 = "adler32", 32, Way::Adler;
    /// The ones' complement of the ones' complement sum of 16-bit words, most significant byte first, as in IP.
    Internet = "internet", 16, Way::Internet;
    /// The sum of the bytes.
    Sum8 = "sum8", 8, Way::Sum(BYTES);
    /// The sum of 16-bit words, least significant byte first.
    Sum16Le = "sum16le", 16, Way::Sum(LITTLE_16);
    /// The sum of 16-bit words, most significant byte first.
    Sum16Be = "sum16be", 16, Way::Sum(BIG_16);
    /// The sum of 32-bit words, least significant byte first.
    Sum32Le = "sum32le", 32, Way::Sum(LITTLE_32);
    /// The sum of 32-bit words, most significant byte first.
    Sum32Be = "sum32be", 32, Way::Sum(BIG_32);
    /// The exclusive or of the bytes.
    Xor8 = "xor8", 8, Way::Xor(BYTES);
    /// The exclusive or of 16-bit words, least significant byte first.
    Xor16Le = "xor16le", 16, Way::Xor(LITTLE_16);
    /// The exclusive or of 16-bit words, most significant byte first.
    Xor16Be = "xor16be", 16, Way::Xor(BIG_16);
    /// The exclusive or of 32-bit words, least significant byte first.
    Xor32Le = "xor32le", 32, Way::Xor(LITTLE_32);
    /// The exclusive or of 32-bit words, most significant byte first.
    Xor32Be = "xor32be", 32, Way::Xor(BIG_32);
}

impl ChecksumKind {
    /// The kind with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        CHECKSUM_KINDS.iter().copied().find(|kind| kind.name() == name)
    }

    /// The checksum of these pieces in order. An incomplete last word is padded with zeros.
    pub fn of<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let value = match self.way() {
            Way::Crc(algorithm) => {
                let mut digest = Digest::new(algorithm);
                pieces.into_iter().for_each(|piece| digest.update(piece));
                digest.finalize()
            }
            Way::Crc32c => pieces.into_iter().fold(0, ropewalk_kernels::crc32c).into(),
            Way::Adler => adler(pieces),
            Way::Internet => internet(lanes(pieces, |sum, byte| sum + byte)),
            Way::Sum(words) => words.put_together(lanes(pieces, |sum, byte| sum + byte), u64::wrapping_add),
            Way::Xor(words) => words.put_together(lanes(pieces, |all, byte| all ^ byte), |one, other| one ^ other),
        };
        value & u64::MAX >> (64 - self.bits())
    }
}

/// The method of computation.
#[derive(Copy, Clone)]
enum Way {
    Crc(CrcAlgorithm),
    /// By the same kernel as for run files.
    Crc32c,
    Adler,
    Internet,
    Sum(Words),
    Xor(Words),
}

/// Words of 1, 2 or 4 bytes.
#[derive(Copy, Clone)]
struct Words {
    bytes: usize,
    is_big_endian: bool,
}

const LITTLE_16: Words = Words { bytes: 2, is_big_endian: false };
const BIG_16: Words = Words { bytes: 2, is_big_endian: true };
const LITTLE_32: Words = Words { bytes: 4, is_big_endian: false };
const BIG_32: Words = Words { bytes: 4, is_big_endian: true };
const BYTES: Words = Words { bytes: 1, is_big_endian: false };

impl Words {
    /// Combines the results for every fourth byte.
    fn put_together(self, lanes: [u64; 4], put: impl Fn(u64, u64) -> u64) -> u64 {
        let place = |lane: usize| {
            let byte = lane % self.bytes;
            8 * if self.is_big_endian { self.bytes - 1 - byte } else { byte }
        };
        lanes.iter().enumerate().fold(0, |value, (lane, &sum)| put(value, sum << place(lane)))
    }
}

/// Combines every fourth byte with `put`, for each of the four first bytes.
fn lanes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, put: impl Fn(u64, u64) -> u64) -> [u64; 4] {
    let (mut lanes, mut next) = ([0; 4], 0);
    for &byte in pieces.into_iter().flatten() {
        lanes[next] = put(lanes[next], u64::from(byte));
        next = (next + 1) % lanes.len();
    }
    lanes
}

/// Adds the carries beyond 16 bits.
fn internet(lanes: [u64; 4]) -> u64 {
    let mut sum = BIG_16.put_together(lanes, u64::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum
}

fn adler<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    // This many bytes can be added up before the sums must be taken modulo the prime.
    const BYTES_AT_ONCE: usize = 5552;
    const PRIME: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for chunk in pieces.into_iter().flat_map(|piece| piece.chunks(BYTES_AT_ONCE)) {
        for &byte in chunk {
            low += u32::from(byte);
            high += low;
        }
        (low, high) = (low % PRIME, high % PRIME);
    }
    u64::from(high) << 16 | u64::from(low)
}

/// A checksum of frames, prepared for comparison.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) kind: ChecksumKind,
    pub(super) field: Field,
    pub(super) from: i32,
    pub(super) to: i32,
}

impl Check {
    /// Whether a frame's checksum is right; also false if the frame is too short to have one.
    pub(super) fn is_right(&self, frame: &(impl Window + ?Sized)) -> bool {
        match (self.field.read(frame), self.compute(frame)) {
            (Some(stated), Some(found)) => stated == found,
            _ => false,
        }
    }

    /// Writes the right checksum.
    pub(super) fn write(&self, frame: &mut [u8]) {
        if let Some(value) = self.compute(frame) {
            self.field.write(value, frame);
        }
    }

    /// Computes the right checksum.
    fn compute(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        let length = frame.len();
        let end =
            if self.to > 0 { Some(self.to as usize) } else { length.checked_sub(self.to.unsigned_abs() as usize) };
        let range = place(self.from, length)?..end.filter(|&end| end <= length)?;
        let number = self.field.number();
        let own = place(number.at, length)?;
        let own = own..own + usize::from(number.bytes);
        const ZEROS: [u8; 8] = [0; 8];
        // Its own bytes count as zero.
        let hole = own.start.clamp(range.start, range.end.max(range.start))
            ..own.end.clamp(range.start, range.end.max(range.start));
        let zeros = core::iter::once(&ZEROS[..hole.len()]);
        let before = part(frame, range.start..hole.start);
        let behind = part(frame, hole.end..range.end);
        (range.start <= range.end).then(|| self.kind.of(before.chain(zeros).chain(behind)))
    }
}

/// Offset of a place in a frame of this length.
fn place(at: i32, length: usize) -> Option<usize> {
    let distance = at.unsigned_abs() as usize;
    if at < 0 { length.checked_sub(distance) } else { Some(distance).filter(|&at| at <= length) }
}

/// The pieces of a range of a frame.
fn part(frame: &(impl Window + ?Sized), range: Range<usize>) -> impl Iterator<Item = &[u8]> {
    let mut left = range.len();
    frame.pieces(range.start).map_while(move |piece| {
        let here = &piece[..piece.len().min(left)];
        left -= here.len();
        (!here.is_empty()).then_some(here)
    })
}
