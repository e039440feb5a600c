//! Blocks of chunks in memory, far more than any cache holds.

use crate::BenchError;
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder};
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::felix::{EmulatedCard, EmulatedCardConfig};
use ropewalk_limits::touch::{touch_every_line, touch_lines};
use ropewalk_memory::{HugePages, Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::felix::{BlockFormat, BlockHeader, ELink, HEADER_BYTES, Trailer, Walk};
use std::hint::black_box;

/// The blocks of the paper.
pub(super) const FORMAT: BlockFormat = BlockFormat::NARROW;
pub(super) const BLOCK: usize = FORMAT.block_bytes();
/// The paper's links.
const LINKS: u16 = 24;
/// Bytes that are encoded; the rest of the memory repeats them.
const PATTERN: usize = 16 << 20;
const LINE: usize = 64;

/// The sizes of chunks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Sizes {
    /// All equal.
    Equal(usize),
    /// Uniform from 1 to twice this mean.
    Random(usize),
}

impl Sizes {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Equal(_) => "equal",
            Self::Random(_) => "random",
        }
    }

    pub(super) const fn mean(self) -> usize {
        match self {
            Self::Equal(bytes) | Self::Random(bytes) => bytes,
        }
    }
}

/// Memory that is filled repeatedly, because allocating it is slow.
pub(super) struct Memory {
    pool: Pool,
    owner: Owner,
}

impl Memory {
    pub(super) fn new(bytes: usize, huge_pages: HugePages) -> Result<Self, BenchError> {
        let config = PoolConfig { huge_pages, ..PoolConfig::anonymous("bench felix", bytes, 1) };
        let mut pool = Pool::new(config).map_err(BenchError::wrong)?;
        let owner = pool.reserve(1).map_err(BenchError::wrong)?;
        Ok(Self { pool, owner })
    }

    /// The whole memory after `fill`. The previous slice must have been dropped.
    pub(super) fn filled(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<Slice, BenchError> {
        self.pool.collect();
        let mut loan = self.pool.loan(self.owner).ok_or_else(|| BenchError::wrong("the memory is still in use"))?;
        fill(loan.spare());
        loan.commit(loan.spare_len());
        loan.split_committed().ok_or_else(|| BenchError::wrong("no memory"))
    }
}

/// Blocks of all links in turn, and their contents.
pub(super) struct Blocks {
    pub(super) bytes: Slice,
    /// Chunks in all blocks.
    pub(super) chunks: u64,
    /// Cache lines that hold a header or a trailer, each as the number of lines from the one before.
    pub(super) needed: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(memory: &mut Memory, sizes: Sizes) -> Result<Self, BenchError> {
        let bytes = memory.filled(|bytes| fill(sizes, bytes))?;
        let needed = needed(&bytes)?;
        let mut decoder = ChunkDecoder::new(ChunkConfig::new(FORMAT));
        let mut position = 0;
        while position < bytes.len() {
            position += decoder.decode(&bytes[position..], position as u64);
        }
        let report = decoder.report();
        if report.block_errors.iter().chain(&report.chunk_errors).any(|&errors| errors > 0) {
            return Err(BenchError::wrong("blocks that we encoded are damaged"));
        }
        Ok(Self { chunks: report.chunks, bytes, needed })
    }

    pub(super) fn count(&self) -> usize {
        self.bytes.len() / BLOCK
    }
}

/// Fills memory with blocks.
pub(super) fn fill(sizes: Sizes, bytes: &mut [u8]) {
    repeat(&pattern(sizes), bytes);
}

/// Blocks in which every chunk ends, so that they can be written repeatedly; padded to a multiple of `multiple` bytes
/// with empty blocks.
pub(super) fn whole(sizes: Sizes, multiple: usize) -> Vec<u8> {
    let mut pattern = pattern(sizes);
    pattern.resize(pattern.len().next_multiple_of(multiple), 0);
    let mut bytes = vec![0; pattern.len()];
    repeat(&pattern, &mut bytes);
    bytes
}

/// Some MiB of blocks in which every chunk ends.
fn pattern(sizes: Sizes) -> Vec<u8> {
    let size = match sizes {
        Sizes::Equal(bytes) => SizeDistribution::Fixed(bytes as u32),
        Sizes::Random(mean) => SizeDistribution::Uniform { least: 1, most: 2 * mean as u32 - 1 },
    };
    let elinks = (0..LINKS).map(|link| ELink::of(link, 0, 0));
    let mut card = EmulatedCard::new(EmulatedCardConfig::new(FORMAT, elinks, size, 1));
    let mut out = Vec::with_capacity(PATTERN + usize::from(LINKS) * 64 * BLOCK);
    while out.len() < PATTERN {
        card.turn(&mut out);
    }
    card.finish(&mut out);
    out
}

/// Repeats the pattern and continues the sequence numbers. A pattern that does not fit is cut: chunks open at the cut
/// stay open.
fn repeat(pattern: &[u8], bytes: &mut [u8]) {
    for part in bytes.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
    let mut sequences = [0_u8; LINKS as usize];
    for block in bytes.chunks_exact_mut(BLOCK) {
        let (head, _) = block.split_first_chunk_mut::<HEADER_BYTES>().expect("a block is larger than its header");
        let mut header = BlockHeader::of_word(u32::from_le_bytes(*head));
        let sequence = &mut sequences[usize::from(header.elink.link())];
        header.sequence = *sequence;
        *sequence = sequence.wrapping_add(1);
        *head = header.to_bytes(FORMAT);
    }
}

/// The cache lines that every decoder of these blocks must read.
fn needed(bytes: &[u8]) -> Result<Vec<u8>, BenchError> {
    let (mut steps, mut before) = (Vec::new(), 0);
    let mut lines = Vec::new();
    for (index, block) in bytes.chunks_exact(BLOCK).enumerate() {
        lines.clear();
        let mut end = BLOCK;
        for sub_chunk in Walk::new(block, FORMAT).map_err(BenchError::wrong)? {
            let sub_chunk = sub_chunk.map_err(BenchError::wrong)?;
            let trailer = Trailer(sub_chunk.trailer);
            lines.push((index * BLOCK + end - 1) / LINE);
            debug_assert!(trailer.data_bytes() as usize <= end);
            end = sub_chunk.offset as usize;
        }
        lines.push(index * BLOCK / LINE);
        lines.reverse();
        lines.dedup();
        for &line in &lines {
            steps.push((line - before) as u8);
            before = line;
        }
    }
    Ok(steps)
}

// ---- the limit of a decoder: it reads cache lines, writes records and reads them again

/// Bytes of blocks between two reads of the output, as in our batches.
const BATCH: usize = 32 << 10;
/// Bytes of a record, which describes a short chunk.
const RECORD: usize = 8;

/// Which lines are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Lines {
    Every,
    /// Lines with a header or a trailer.
    Needed,
}

impl Lines {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Every => "every line",
            Self::Needed => "needed lines",
        }
    }

    /// Reads every line of a part of the blocks, with the same output per batch as for all of them.
    pub(super) fn touch_part(part: &[u8], blocks: &Blocks) -> u64 {
        let records = (blocks.chunks as usize + blocks.count()).div_ceil(blocks.bytes.len().div_ceil(BATCH));
        let mut output = vec![0; records * RECORD / size_of::<u64>()];
        part.chunks(BATCH).fold(0, |sum, batch| write_and_read(&mut output, sum.wrapping_add(touch_every_line(batch))))
    }

    /// Reads the lines of all blocks, batch by batch, and writes and reads the same amount of output as a decoder.
    pub(super) fn touch(self, blocks: &Blocks) -> u64 {
        let batches = blocks.bytes.len().div_ceil(BATCH);
        let records = (blocks.chunks as usize + blocks.count()).div_ceil(batches);
        let mut output = vec![0_u64; records * RECORD / size_of::<u64>()];
        let mut sum = 0_u64;
        let mut steps = &blocks.needed[..];
        let each = blocks.needed.len().div_ceil(batches);
        let mut place = 0;
        for batch in blocks.bytes.chunks(BATCH) {
            sum = sum.wrapping_add(match self {
                Self::Every => touch_every_line(batch),
                Self::Needed => {
                    let (mine, rest) = steps.split_at(each.min(steps.len()));
                    steps = rest;
                    // Each part begins where the last one ended.
                    let from = place;
                    place += mine.iter().map(|&step| usize::from(step)).sum::<usize>();
                    let first = mine.first().map_or(0, |&step| usize::from(step));
                    touch_lines(&blocks.bytes[(from + first) * 64..], mine.get(1..).unwrap_or_default())
                }
            });
            sum = write_and_read(&mut output, sum);
        }
        sum
    }
}

/// The output of a batch, and its consumer.
fn write_and_read(output: &mut [u64], value: u64) -> u64 {
    output.iter_mut().enumerate().for_each(|(index, record)| *record = value ^ index as u64);
    black_box(&*output).iter().fold(value, |sum, record| sum.wrapping_add(*record))
}
