//! FELIX blocks from files, pipes and standard input: counting, showing, generating.
//!
//! ```text
//! BlockInput  bytes of any stream --> batches of whole blocks: finds the kind and, behind lost bytes, the next block
//! decode      what each e-link sent, and every fault by its name
//! dump        a walk through blocks for people
//! generate    the blocks of an emulated card, into a file or a pipe
//! ELinks      lists of e-links as people write them: `1,8-15`, `all`
//! ```

mod decode;
mod dump;
#[cfg(test)]
mod tests;

use super::OfflineError;
use super::origin::open_origin;
pub use decode::{DECODE_SCHEMA, DecodeReport, ELinkReport, Fault, decode};
pub use dump::{DumpOptions, dump};
use ropewalk_config::ByteOrigin;
use ropewalk_flow::source::felix::{EmulatedCard, EmulatedCardConfig, FAULTS};
use ropewalk_wire::felix::{BlockFormat, ELINKS, ELink, LARGEST_BLOCK_BYTES};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes that are read at once at most.
const WINDOW_BYTES: usize = 1 << 20;
/// At most this much is read to find out what the blocks are.
const LOOK_BYTES: usize = 4 * LARGEST_BLOCK_BYTES;
/// The number of blocks searched after lost bytes: the next one may begin in the first, and two must follow it.
const SEARCH_BLOCKS: usize = 3;

/// Opens a file, a FIFO, or standard input if the path is `-`.
///
/// # Errors
/// If the file cannot be opened or read, or no block is found in its beginning.
pub fn open(path: &Path) -> Result<BlockInput, OfflineError> {
    let read: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(OfflineError::system("open", path))?)
    };
    BlockInput::new(path, read)
}

/// Successive blocks. After lost bytes it continues where blocks are found again.
pub struct BlockInput {
    path: PathBuf,
    read: Box<dyn Read + Send>,
    format: BlockFormat,
    buffer: Vec<u8>,
    /// What of the buffer was not given out yet.
    start: usize,
    end: usize,
    /// How many bytes of the stream lie before the buffer's beginning.
    before: u64,
    is_over: bool,
    skipped: u64,
    left_over: u64,
}

impl std::fmt::Debug for BlockInput {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("BlockInput").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

impl BlockInput {
    /// Blocks from `read`; `path` is what errors name.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(path: &Path, read: Box<dyn Read + Send>) -> Result<Self, OfflineError> {
        let mut input = Self::of_kind(path, read, BlockFormat::NARROW);
        input.fill(LOOK_BYTES)?;
        let head = &input.buffer[..input.end];
        let (format, start) = detect(head).ok_or_else(|| OfflineError::NoBlocks {
            path: path.to_owned(),
            begin: head.iter().take(8).map(|byte| format!("{byte:02x} ")).collect::<String>().trim_end().to_owned(),
        })?;
        (input.format, input.start, input.skipped) = (format, start, start as u64);
        Ok(input)
    }

    /// Blocks of this kind from `read`, which is not asked for any before they are wanted.
    pub fn of_kind(path: &Path, read: Box<dyn Read + Send>, format: BlockFormat) -> Self {
        Self {
            path: path.to_owned(),
            read,
            format,
            buffer: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            before: 0,
            is_over: false,
            skipped: 0,
            left_over: 0,
        }
    }

    /// The kind of the blocks.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// Bytes between blocks that belong to none: the stream was joined in the middle of one, or bytes were lost.
    pub const fn skipped_bytes(&self) -> u64 {
        self.skipped
    }

    /// Bytes at the end that are no whole block.
    pub const fn left_over_bytes(&self) -> u64 {
        self.left_over
    }

    /// The bytes at the end that are no whole block.
    pub fn left_over(&self) -> &[u8] {
        &self.buffer[self.end - self.left_over as usize..self.end]
    }

    /// The next blocks and where in the stream they begin; nothing at the end. One block with a wrong beginning among
    /// good ones is given out as well: it is damaged, and takes the place of one.
    ///
    /// How many bytes a read brings decides how many blocks are given out at once, and nothing else.
    ///
    /// # Errors
    /// If reading fails.
    pub fn next_blocks(&mut self) -> Result<Option<(u64, &[u8])>, OfflineError> {
        let block = self.format.block_bytes();
        loop {
            // A complete block does not wait for the following ones, unless its beginning is wrong.
            self.fill(block)?;
            if !self.is_block(&self.buffer[self.start..self.end]) {
                self.fill(SEARCH_BLOCKS * block)?;
            }
            let rest = &self.buffer[self.start..self.end];
            if rest.len() < block {
                // The end: `fill` would have got more.
                self.left_over = rest.len() as u64;
                self.start = self.end;
                return Ok(None);
            }
            let count = rest.chunks_exact(block).take_while(|block| self.is_block(block)).count();
            let given = if count > 0 { Ok(count * block) } else { self.behind_loss(rest) };
            match given {
                Ok(given) => {
                    let (at, from) = (self.before + self.start as u64, self.start);
                    self.start += given;
                    return Ok(Some((at, &self.buffer[from..from + given])));
                }
                Err(skipped) => {
                    self.skipped += skipped as u64;
                    self.start += skipped;
                }
            }
        }
    }

    /// No block begins here: the bytes of a damaged one that takes a place among others, or as an error the bytes that
    /// belong to none.
    fn behind_loss(&self, rest: &[u8]) -> Result<usize, usize> {
        let block = self.format.block_bytes();
        let rest = &rest[..rest.len().min(SEARCH_BLOCKS * block)];
        let is_followed = rest.get(block..).is_some_and(|behind| self.is_block(behind));
        if is_followed {
            return Ok(block);
        }
        if let Some(found) = self.format.find(&rest[1..]) {
            return Err(found + 1);
        }
        if rest.len() >= 2 * block {
            return Err(block);
        }
        // No more blocks can follow: the last one ends with the stream.
        let last = rest.len() - block;
        if last > 0 && self.is_block(&rest[last..]) { Err(last) } else { Ok(block) }
    }

    fn is_block(&self, bytes: &[u8]) -> bool {
        BlockFormat::detect(bytes) == Some(self.format)
    }

    /// Makes sure that this many bytes are there, as far as the stream has them, and moves the rest to the beginning.
    fn fill(&mut self, least: usize) -> Result<(), OfflineError> {
        if self.is_over || self.end - self.start >= least {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.before += self.start as u64;
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < least {
            match self.read.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.is_over = true;
                    break;
                }
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(OfflineError::system("read", &self.path)(error)),
            }
        }
        Ok(())
    }
}

/// The format of the blocks in these bytes, and the offset of the first whole one.
fn detect(bytes: &[u8]) -> Option<(BlockFormat, usize)> {
    let is_whole = |format: BlockFormat, start: usize| bytes.len() >= start + format.block_bytes();
    if let Some(format) = BlockFormat::detect(bytes).filter(|&format| is_whole(format, 0)) {
        return Some((format, 0));
    }
    let sized = (1..=64).filter_map(BlockFormat::sized);
    let formats = [BlockFormat::NARROW, BlockFormat::WIDE].into_iter().chain(sized);
    let found = formats.filter_map(|format| Some((format, format.find(bytes)?)));
    found.filter(|&(format, start)| is_whole(format, start)).min_by_key(|&(_, start)| start)
}

/// The blocks of an origin, whose format is detected from the first ones, after a wait for them. They end at the latest
/// when `is_over` is set.
///
/// # Errors
/// If it cannot be opened or read, or has no blocks.
pub fn blocks(origin: &ByteOrigin, is_over: &Arc<AtomicBool>) -> Result<BlockInput, OfflineError> {
    BlockInput::new(origin.path(), open_origin(origin, is_over)?)
}

/// The blocks of an origin of a known format, without a wait.
///
/// # Errors
/// If it cannot be opened.
pub fn blocks_of_kind(
    origin: &ByteOrigin,
    format: BlockFormat,
    is_over: &Arc<AtomicBool>,
) -> Result<BlockInput, OfflineError> {
    Ok(BlockInput::of_kind(origin.path(), open_origin(origin, is_over)?, format))
}

/// Some e-links of a card: ranges in order, which do not touch each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ELinks(Vec<(u16, u16)>);

/// A text that is no list of e-links.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no list of e-links; they are numbers from 0 to 2047, such as 5, 1,8-15 or all")]
pub struct NoELinks(String);

impl ELinks {
    const LAST: u16 = ELINKS as u16 - 1;

    /// All e-links that there can be.
    pub fn all() -> Self {
        Self(vec![(0, Self::LAST)])
    }

    /// First and last of each range, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (ELink, ELink)> {
        self.0.iter().map(|&(first, last)| (ELink::new(first), ELink::new(last)))
    }

    /// Every e-link, in order.
    pub fn iter(&self) -> impl Iterator<Item = ELink> {
        self.0.iter().flat_map(|&(first, last)| first..=last).map(ELink::new)
    }

    fn of_ranges(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut().filter(|before| first <= before.1 + 1) {
                Some(before) => before.1 = before.1.max(last),
                None => joined.push((first, last)),
            }
        }
        Self(joined)
    }
}

impl FromStr for ELinks {
    type Err = NoELinks;

    fn from_str(text: &str) -> Result<Self, NoELinks> {
        if text.trim() == "all" {
            return Ok(Self::all());
        }
        let wrong = || NoELinks(text.to_owned());
        let number = |part: &str| part.trim().parse().ok().filter(|&number| number <= Self::LAST).ok_or_else(wrong);
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        Ok(Self::of_ranges(ranges))
    }
}

impl fmt::Display for ELinks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return out.write_str("all");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if first == last { write!(out, "{comma}{first}")? } else { write!(out, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

/// Blocks are written in pieces of about this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The card.
    pub card: EmulatedCardConfig,
    /// Ends when every e-link has said this many chunks.
    pub chunks: Option<u64>,
    /// Ends when this many bytes are written.
    pub bytes: Option<u64>,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Generated {
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Chunks of each e-link.
    pub chunks_per_elink: u64,
    /// Bytes of all chunks, those with faults included.
    pub payload_bytes: u64,
    /// Faults that struck, by their names.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Writes blocks to `out`.
///
/// # Errors
/// If `out` takes nothing more.
pub fn generate(options: &GenerateOptions, out: &mut dyn Write) -> Result<Generated, OfflineError> {
    let mut card = EmulatedCard::new(options.card.clone());
    let (mut piece, mut bytes) = (Vec::with_capacity(2 * PIECE_BYTES), 0);
    let mut write = |piece: &mut Vec<u8>| -> Result<u64, OfflineError> {
        out.write_all(piece)?;
        let written = piece.len() as u64;
        piece.clear();
        Ok(written)
    };
    let is_enough = |card: &EmulatedCard, bytes: u64| {
        options.chunks.is_some_and(|chunks| card.turns() >= chunks) || options.bytes.is_some_and(|most| bytes >= most)
    };
    while !is_enough(&card, bytes + piece.len() as u64) {
        card.turn(&mut piece);
        if piece.len() >= PIECE_BYTES {
            bytes += write(&mut piece)?;
        }
    }
    card.finish(&mut piece);
    bytes += write(&mut piece)?;
    let injected = card.injected_by_all();
    let struck = FAULTS.iter().map(|&fault| (fault.name(), injected.struck(fault)));
    Ok(Generated {
        bytes,
        chunks_per_elink: card.turns(),
        payload_bytes: injected.bytes,
        faults: struck.filter(|&(_, count)| count > 0).collect(),
    })
}
