//! The least that a decoder must do: read some lines, write records into a cache, read them again.

use super::blocks::Blocks;
use ropewalk_limits::touch::{touch_every_line, touch_lines};
use std::hint::black_box;

/// Bytes of blocks between two looks at the output, as in a batch of ours.
const BATCH: usize = 32 << 10;
/// Bytes of a record: what describes a short chunk.
const RECORD: usize = 8;

/// Which lines are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Lines {
    /// All of them.
    Every,
    /// Those that hold a header or a trailer.
    Needed,
}

impl Lines {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Every => "every line",
            Self::Needed => "needed lines",
        }
    }

    /// Reads every line of some of the blocks, with as much output as theirs.
    pub(super) fn touch_part(part: &[u8], blocks: &Blocks) -> u64 {
        let records = (blocks.chunks as usize + blocks.count()).div_ceil(blocks.bytes.len().div_ceil(BATCH));
        let mut output = vec![0; records * RECORD / size_of::<u64>()];
        part.chunks(BATCH).fold(0, |sum, batch| write_and_read(&mut output, sum.wrapping_add(touch_every_line(batch))))
    }

    /// Reads the lines of all blocks, batch by batch, and writes and reads as much output as there is.
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

/// The output of a batch, and who takes it.
fn write_and_read(output: &mut [u64], value: u64) -> u64 {
    output.iter_mut().enumerate().for_each(|(index, record)| *record = value ^ index as u64);
    black_box(&*output).iter().fold(value, |sum, record| sum.wrapping_add(*record))
}
