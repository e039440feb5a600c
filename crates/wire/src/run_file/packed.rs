//! Packed segments: stretches of a segment, compressed, each in a record of its own.
//!
//! ```text
//! 16 u64 offset of the stretch's first byte in the segment     24 u32 bytes of the stretch     28 u32 packed bytes
//! 32 u16 codec: 1 zstd, a frame    2 LZ4, a block               34 u16 0, u32 0                 40 packed bytes
//! ```
//! A packed segment is nothing but such records. Unpacked one behind the other they are a segment as any other: offsets in
//! its footer are those of the unpacked bytes. What a killed writer leaves can be unpacked up to the last whole stretch.

use super::fields::{Fill, u16_at, u32_at, u64_at};
use super::record::{RECORD_HEADER_BYTES, Record, RecordError, RecordKind, append_record};
use core::fmt;
use core::str::FromStr;
use std::io::Cursor;
use zstd::bulk::Compressor;

/// Bytes in front of the packed ones in their record.
pub const PACKED_HEAD_BYTES: usize = 40;
/// Bytes of a stretch at most: whoever unpacks one needs as much memory.
pub const MAX_STRETCH_BYTES: usize = 16 << 20;
/// Bytes of a stretch that is written, at least, where so many are appended at once; fewer than twice as many. Shorter ones stay
/// nearer to the core, but zstd packs them more slowly: it takes other tables for 256 KiB (measured: 0.36 and 0.40 GB/s).
pub const STRETCH_BYTES: usize = 1 << 20;

const ZSTD: u16 = 1;
const LZ4: u16 = 2;

/// How segments are packed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By zstd at this level, 1 (fast) to 19 (small).
    Zstd(u8),
    /// By LZ4.
    Lz4,
}

/// The text names no compression.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are `none`, `lz4`, and `zstd:1` to `zstd:19`")]
pub struct NoCompression;

impl FromStr for Compression {
    type Err = NoCompression;

    fn from_str(text: &str) -> Result<Self, NoCompression> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            _ => {
                let level = text.strip_prefix("zstd:").and_then(|level| level.parse().ok());
                level.filter(|level| (1..=19).contains(level)).map(Self::Zstd).ok_or(NoCompression)
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Zstd(level) => write!(out, "zstd:{level}"),
            Self::Lz4 => out.write_str("lz4"),
        }
    }
}

/// Packs the stretches of one segment, or of several that are packed alike.
pub struct Packer {
    /// None for LZ4.
    zstd: Option<Compressor<'static>>,
}

impl Packer {
    /// A packer; none where nothing is to be packed, or the library has no memory for it.
    pub fn new(compression: Compression) -> Option<Self> {
        let zstd = match compression {
            Compression::None => return None,
            Compression::Lz4 => None,
            Compression::Zstd(level) => Some(Compressor::new(level.into()).ok()?),
        };
        Some(Self { zstd })
    }

    /// Appends records that hold these bytes, which stand in the segment from `offset` on: in stretches of the same length, so
    /// that no short one is left over.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the library finds no room, which it is given enough of.
    pub fn pack(&mut self, mut offset: u64, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let stretches = (bytes.len() / STRETCH_BYTES).max(1);
        for stretch in bytes.chunks(bytes.len().div_ceil(stretches).max(1)) {
            self.pack_stretch(offset, stretch, out)?;
            offset += stretch.len() as u64;
        }
        Ok(())
    }

    /// Appends the record of a stretch that begins at `offset`.
    fn pack_stretch(&mut self, offset: u64, stretch: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let (start, mut compressed) = (out.len(), Ok(()));
        append_record(out, RecordKind::PACKED, |out| {
            let head = out.len();
            out.extend_from_slice(&[0; PACKED_HEAD_BYTES - RECORD_HEADER_BYTES]);
            let packed = out.len();
            compressed = self.compress(stretch, out);
            let codec = if self.zstd.is_some() { ZSTD } else { LZ4 };
            let packed_length = (out.len() - packed) as u32;
            Fill::new(&mut out[head..packed]).u64(offset).u32(stretch.len() as u32).u32(packed_length).u16(codec);
        })?;
        compressed.inspect_err(|_| out.truncate(start))
    }

    /// Appends a stretch, compressed, right where it stays: a copy less.
    fn compress(&mut self, stretch: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let begin = out.len();
        match &mut self.zstd {
            Some(zstd) => {
                out.reserve(zstd::zstd_safe::compress_bound(stretch.len()));
                let mut end = Cursor::new(out);
                end.set_position(begin as u64);
                zstd.compress_to_buffer(stretch, &mut end).map_err(|_| RecordError::Room)?;
            }
            None => {
                out.resize(begin + lz4_flex::block::get_maximum_output_size(stretch.len()), 0);
                let length = lz4_flex::block::compress_into(stretch, &mut out[begin..]);
                out.truncate(begin + length.map_err(|_| RecordError::Room)?);
            }
        }
        Ok(())
    }
}

/// A packed stretch.
#[derive(Copy, Clone, Debug)]
pub struct PackedStretch<'a> {
    /// Where its first byte stands in the segment.
    pub offset: u64,
    /// Its bytes, unpacked: [`MAX_STRETCH_BYTES`] at most.
    pub length: usize,
    codec: u16,
    packed: &'a [u8],
}

impl<'a> PackedStretch<'a> {
    /// Where in the segment a packed stretch lies, and how many bytes it has, by the front of its record. Only the checksum of the
    /// record's header was looked at.
    pub fn place(front: &[u8; PACKED_HEAD_BYTES]) -> (u64, u64) {
        (u64_at(front, 16), u32_at(front, 24).into())
    }

    /// The stretch in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], [`RecordError::Content`].
    pub fn parse(record: &Record<'a>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::PACKED, PACKED_HEAD_BYTES)?;
        let (offset, length, packed) =
            (u64_at(content, 16), u32_at(content, 24) as usize, u32_at(content, 28) as usize);
        let packed = content[PACKED_HEAD_BYTES..].get(..packed).ok_or(RecordError::Content)?;
        if length > MAX_STRETCH_BYTES {
            return Err(RecordError::Content);
        }
        Ok(Self { offset, length, codec: u16_at(content, 32), packed })
    }

    /// Puts the bytes into `out`, and nothing else.
    ///
    /// # Errors
    /// [`RecordError::Content`] where they cannot be unpacked, or are not as many as they should be.
    pub fn unpack(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        out.resize(self.length, 0);
        let length = match self.codec {
            ZSTD => {
                let unpacked = zstd::bulk::Decompressor::new()
                    .and_then(|mut zstd| zstd.decompress_to_buffer(self.packed, &mut out[..]));
                unpacked.map_err(|_| RecordError::Content)?
            }
            LZ4 => lz4_flex::block::decompress_into(self.packed, out).map_err(|_| RecordError::Content)?,
            _ => return Err(RecordError::Content),
        };
        if length == self.length { Ok(()) } else { Err(RecordError::Content) }
    }
}
