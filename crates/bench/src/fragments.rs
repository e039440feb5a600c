//! Fragments in memory as they come from sockets: FEROL blocks back to back in pool blocks.

use crate::BenchError;
use ropewalk_limits::SlinkStream;
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::SourceId;
use ropewalk_wire::fed::Header;
use ropewalk_wire::ferol::{self, BlockHeader};

/// Bytes of a pool block, as in a readout unit.
pub(crate) const BLOCK: usize = 256 << 10;

pub(crate) struct Prepared {
    /// Each source's stream, in the order of the source ids.
    pub(crate) streams: Vec<Vec<Slice>>,
    /// Fragments of each stream: events 1 to this.
    pub(crate) events: u32,
    /// Owns the memory of the slices.
    _pool: Pool,
}

impl Prepared {
    /// Writes the first `events` fragments of this many sources, each `fragment_bytes` long, into a pool.
    pub(crate) fn new(sources: u16, fragment_bytes: usize, events: u32) -> Result<Self, BenchError> {
        Self::in_blocks(sources, fragment_bytes, events, BLOCK)
    }

    /// The same in pool blocks of another size.
    pub(crate) fn in_blocks(
        sources: u16,
        fragment_bytes: usize,
        events: u32,
        block: usize,
    ) -> Result<Self, BenchError> {
        let mut feeds: Vec<SlinkStream> =
            (0..sources).map(|source| SlinkStream::new(SourceId(source.into()), fragment_bytes, 128)).collect();
        let each = feeds.first().map_or(0, SlinkStream::wire_bytes) * events as usize;
        let blocks = usize::from(sources) * each.div_ceil(block);
        let config = PoolConfig::anonymous("bench fragments", block, blocks.max(1));
        let mut pool = Pool::new(config).map_err(BenchError::wrong)?;
        let streams = feeds.iter_mut().map(|feed| fill(&mut pool, feed, events)).collect::<Result<_, _>>()?;
        Ok(Self { streams, events, _pool: pool })
    }

    /// Fragments of all streams.
    pub(crate) fn fragments(&self) -> u64 {
        self.streams.len() as u64 * u64::from(self.events)
    }

    /// The least possible work: reads every fragment's headers, alternating between the streams' blocks in order of
    /// arrival. Returns the sum of the event numbers.
    pub(crate) fn walk(&self) -> Result<u64, BenchError> {
        let mut places = vec![0; self.streams.len()];
        let longest = self.streams.iter().map(Vec::len).max().unwrap_or(0);
        let mut sum = 0;
        for index in 0..longest {
            for (stream, place) in self.streams.iter().zip(&mut places) {
                let Some(slice) = stream.get(index) else { continue };
                let mut at = *place;
                // A header cut by a block's end is skipped: at most one fragment in a hundred.
                while let Some((header, word)) = headers(slice, at) {
                    let block = BlockHeader::parse(header).map_err(|_| BenchError::wrong("a block's header"))?;
                    if block.first {
                        let header = Header::parse(*word).map_err(|_| BenchError::wrong("a fragment's header"))?;
                        sum += u64::from(header.level1_id());
                    }
                    at += block.block_bytes();
                }
                *place = behind(slice, stream.get(index + 1), at)?;
            }
        }
        Ok(sum)
    }
}

/// The headers at an offset of a slice: the block's, and the fragment's after it.
fn headers(slice: &[u8], at: usize) -> Option<(&[u8; ferol::HEADER_BYTES], &[u8; 8])> {
    let (header, rest) = slice.get(at..)?.split_first_chunk()?;
    Some((header, rest.first_chunk()?))
}

/// The offset of the first whole block in the next slice, when the walk through this one ended at `at`.
fn behind(slice: &[u8], next: Option<&Slice>, at: usize) -> Result<usize, BenchError> {
    let Some(rest) = slice.get(at..) else { return Ok(at - slice.len()) };
    let Some(next) = next else { return Ok(0) };
    if rest.is_empty() {
        return Ok(0);
    }
    let mut header = [0; ferol::HEADER_BYTES];
    let here = rest.len().min(header.len());
    header[..here].copy_from_slice(&rest[..here]);
    header[here..].copy_from_slice(&next[..ferol::HEADER_BYTES - here]);
    let block = BlockHeader::parse(&header).map_err(|_| BenchError::wrong("a header at a block's end"))?;
    Ok(block.block_bytes() - rest.len())
}

/// Writes a stream into pool blocks, without regard to fragment boundaries, as a socket would.
fn fill(pool: &mut Pool, feed: &mut SlinkStream, events: u32) -> Result<Vec<Slice>, BenchError> {
    let dry = || BenchError::wrong("the pool is too small");
    let mut slices = Vec::new();
    let mut loan = pool.loan(Owner::SHARED).ok_or_else(dry)?;
    loop {
        let mut bytes = feed.next_fragments(events);
        if bytes.is_empty() {
            slices.extend(loan.split_committed());
            return Ok(slices);
        }
        while !bytes.is_empty() {
            if loan.spare_len() == 0 {
                slices.extend(loan.split_committed());
                loan = pool.loan(Owner::SHARED).ok_or_else(dry)?;
            }
            let here = bytes.len().min(loan.spare_len());
            loan.spare()[..here].copy_from_slice(&bytes[..here]);
            loan.commit(here);
            bytes = &bytes[here..];
        }
    }
}

/// A stream in blocks of a pool; all but the last are full.
pub(crate) fn in_blocks(pool: &mut Pool, stream: &[u8]) -> Result<Vec<Slice>, BenchError> {
    let slice = |chunk: &[u8]| {
        let mut loan = pool.loan(Owner::SHARED)?;
        loan.append(chunk)
    };
    let slices: Option<Vec<Slice>> = stream.chunks(BLOCK).map(slice).collect();
    slices.ok_or_else(|| BenchError::wrong("the pool is too small for the stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_sees_nearly_every_fragment() {
        for bytes in [2048, 9000] {
            let prepared = Prepared::new(3, bytes, 500).expect("memory");
            let sum = prepared.walk().expect("right headers");
            let all = 3 * 500 * 501 / 2;
            assert!(sum <= all && sum > all * 97 / 100, "{sum} of {all}");
            assert_eq!(prepared.fragments(), 1500);
        }
    }
}
