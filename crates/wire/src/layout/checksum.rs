//! Checksums by name, over the pieces of a frame.

use super::number::Field;
use crate::framing::Window;
use core::ops::Range;
use crc_fast::{CrcAlgorithm, Digest};

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

            /// How many bits it has.
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
    Crc32c = "crc32c", 32, Way::Crc(CrcAlgorithm::Crc32Iscsi);
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

    /// The checksum of these pieces, one after the other. Words that the last bytes do not fill are filled with zeros.
    pub fn of<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let value = match self.way() {
            Way::Crc(algorithm) => {
                let mut digest = Digest::new(algorithm);
                pieces.into_iter().for_each(|piece| digest.update(piece));
                digest.finalize()
            }
            Way::Adler => adler(pieces),
            Way::Internet => internet(lanes(pieces, |sum, byte| sum + byte)),
            Way::Sum(words) => words.put_together(lanes(pieces, |sum, byte| sum + byte), u64::wrapping_add),
            Way::Xor(words) => words.put_together(lanes(pieces, |all, byte| all ^ byte), |one, other| one ^ other),
        };
        value & u64::MAX >> (64 - self.bits())
    }
}

/// How it is computed.
#[derive(Copy, Clone)]
enum Way {
    Crc(CrcAlgorithm),
    Adler,
    Internet,
    Sum(Words),
    Xor(Words),
}

/// Words of so many bytes: 1, 2 or 4.
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
    /// From what was found at each fourth byte.
    fn put_together(self, lanes: [u64; 4], put: impl Fn(u64, u64) -> u64) -> u64 {
        let place = |lane: usize| {
            let byte = lane % self.bytes;
            8 * if self.is_big_endian { self.bytes - 1 - byte } else { byte }
        };
        lanes.iter().enumerate().fold(0, |value, (lane, &sum)| put(value, sum << place(lane)))
    }
}

/// Every fourth byte put together with `put`, from each of the first four on.
fn lanes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, put: impl Fn(u64, u64) -> u64) -> [u64; 4] {
    let (mut lanes, mut next) = ([0; 4], 0);
    for &byte in pieces.into_iter().flatten() {
        lanes[next] = put(lanes[next], u64::from(byte));
        next = (next + 1) % lanes.len();
    }
    lanes
}

/// The carries of 16 bits are added again.
fn internet(lanes: [u64; 4]) -> u64 {
    let mut sum = BIG_16.put_together(lanes, u64::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum
}

fn adler<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    // So many bytes can be added up before the sums must be taken modulo the prime.
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

/// A checksum of frames, ready to be compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) kind: ChecksumKind,
    pub(super) field: Field,
    pub(super) from: i32,
    pub(super) to: i32,
}

impl Check {
    /// Whether a frame's checksum is right; false as well where the frame is too short to have one.
    pub(super) fn is_right(&self, frame: &(impl Window + ?Sized)) -> bool {
        match (self.field.read(frame), self.compute(frame)) {
            (Some(stated), Some(found)) => stated == found,
            _ => false,
        }
    }

    /// Writes the right one.
    pub(super) fn write(&self, frame: &mut [u8]) {
        if let Some(value) = self.compute(frame) {
            self.field.write(value, frame);
        }
    }

    /// What it should be.
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

/// Where a place is in a frame of this length.
fn place(at: i32, length: usize) -> Option<usize> {
    let distance = at.unsigned_abs() as usize;
    if at < 0 { length.checked_sub(distance) } else { Some(distance).filter(|&at| at <= length) }
}

/// The pieces of a part of a frame.
fn part(frame: &(impl Window + ?Sized), range: Range<usize>) -> impl Iterator<Item = &[u8]> {
    let mut left = range.len();
    frame.pieces(range.start).map_while(move |piece| {
        let here = &piece[..piece.len().min(left)];
        left -= here.len();
        (!here.is_empty()).then_some(here)
    })
}
