//! A stream of bytes as batches of whole blocks.

use crate::offline::OfflineError;
use ropewalk_wire::felix::{BlockFormat, LARGEST_BLOCK_BYTES};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Bytes that are read at once at most.
const WINDOW_BYTES: usize = 1 << 20;
/// So much is looked at to find out what the blocks are, where there is as much.
const LOOK_BYTES: usize = 4 * LARGEST_BLOCK_BYTES;

/// Opens a file, a FIFO, or standard input where the path is `-`.
///
/// # Errors
/// Where the file cannot be opened or read, or no block is found in its beginning.
pub fn open(path: &Path) -> Result<BlockInput, OfflineError> {
    let read: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(OfflineError::system("open", path))?)
    };
    BlockInput::new(path, read)
}

/// Blocks that lie one behind the other. Where bytes were lost the next place is found where blocks follow again.
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
    /// # Errors
    /// Where reading fails.
    pub fn next_blocks(&mut self) -> Result<Option<(u64, &[u8])>, OfflineError> {
        let block = self.format.block_bytes();
        loop {
            // A block that has come does not wait for others behind it, unless it begins wrongly.
            self.fill(block)?;
            if !self.is_block(&self.buffer[self.start..self.end]) {
                self.fill(3 * block)?;
            }
            let rest = &self.buffer[self.start..self.end];
            let count = rest.chunks_exact(block).take_while(|block| self.is_block(block)).count();
            let at = self.before + self.start as u64;
            // A block that begins wrongly stands where one should, if another one follows it, or nothing.
            let behind = rest.get((count + 1) * block..).unwrap_or_default();
            let is_one = rest.len() >= (count + 1) * block && (behind.len() < block || self.is_block(behind));
            let given = (count + usize::from(is_one && count == 0)) * block;
            if given > 0 {
                let from = self.start;
                self.start += given;
                return Ok(Some((at, &self.buffer[from..from + given])));
            }
            if rest.len() < block {
                // The end: `fill` would have got more.
                self.left_over = rest.len() as u64;
                self.start = self.end;
                return Ok(None);
            }
            let skipped = self.format.find(&rest[1..]).map_or(rest.len() - block + 1, |found| found + 1);
            self.skipped += skipped as u64;
            self.start += skipped;
        }
    }

    fn is_block(&self, bytes: &[u8]) -> bool {
        BlockFormat::detect(bytes) == Some(self.format)
    }

    /// Makes sure that so many bytes are there, as far as the stream has them, and moves the rest to the beginning.
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

/// The kind of the blocks in these bytes, and where the first whole one begins.
fn detect(bytes: &[u8]) -> Option<(BlockFormat, usize)> {
    let is_whole = |format: BlockFormat, start: usize| bytes.len() >= start + format.block_bytes();
    if let Some(format) = BlockFormat::detect(bytes).filter(|&format| is_whole(format, 0)) {
        return Some((format, 0));
    }
    let sized = (1..=64).filter_map(BlockFormat::sized);
    let formats = [BlockFormat::NARROW, BlockFormat::WIDE].into_iter().chain(sized);
    let found = formats.filter_map(|format| Some((format, format.find(bytes)?)));
    // One symbol in the middle of data proves nothing: another block has to follow.
    found.filter(|&(format, start)| is_whole(format, start + format.block_bytes())).min_by_key(|&(_, start)| start)
}
