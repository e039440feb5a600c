//! A ring that somebody else writes: a link card by DMA, or who takes its place, on another thread or in another process.
//!
//! ```text
//!            released           done                 written
//!  ...        │ pages that slices │ pages that the      │ may be written
//!  (positions)│ still refer to    │ reader looks at     │
//!             ▼ never written     ▼                     ▼
//!  RingWriter::space ◄── read pointer            write pointer ──► RingReader::poll, bytes, append
//! ```
//! Places are *positions*: bytes written before, since the ring began; its memory comes round again and again. The ring
//! is cut into pages, the foreign kind of a pool's blocks: each is lent when the write pointer enters it, its bytes leave
//! as ordinary slices, and when the reader is done with it and the last slice was dropped, on whatever thread, it comes
//! home. The read pointer follows the pages that came home in the order of the ring, so the writer never touches a byte
//! that anybody can still see.
//!
//! The two pointers stand on cache lines of their own in front of the first page (`pointers`, which loom checks), so that
//! a ring in a memfd is complete: another process opens the file and writes. What it writes is not trusted, that it
//! keeps to the pointers is: opening such a file is that statement.

mod area;
mod error;
mod pointers;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use error::RingError;
pub use reader::RingReader;
pub use writer::RingWriter;

use self::area::Area;
use self::pointers::{HEAD_BYTES, Head};
use crate::config::{PoolConfig, PoolError};
use crate::mapping::{Mapping, Others, Touch};
use crate::table::MOST_BLOCKS;
use std::sync::Arc;

/// The smallest page: the head needs as much.
const LEAST_PAGE: usize = 1 << 10;

/// Makes a ring: `config.blocks` pages of `config.block_size` bytes, a multiple of 1024. No slice reaches over a page's
/// end, so a page is a multiple of what the writer writes at a time. A
/// [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) can be written by another process ([`RingReader::file`]).
///
/// # Errors
/// As [`Pool::new`](crate::Pool::new).
pub fn ring(config: PoolConfig) -> Result<(RingWriter, RingReader), PoolError> {
    let PoolConfig { blocks, block_size, .. } = config;
    let possible = (1..MOST_BLOCKS).contains(&blocks)
        && block_size.is_multiple_of(LEAST_PAGE)
        && (LEAST_PAGE..=1 << 31).contains(&block_size)
        && block_size.checked_mul(blocks + 1).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if !possible {
        return Err(PoolError::Size { name: config.name, blocks, block_size });
    }
    const { assert!(HEAD_BYTES <= LEAST_PAGE, "the head lies in front of the first page") };
    // One page more: the head's.
    let (mapping, report) =
        Mapping::new(&PoolConfig { blocks: blocks + 1, ..config }, Touch::Everything, Others::Write)?;
    let mapping = Arc::new(mapping);
    let area = Area::lay_out(Arc::clone(&mapping), Head::new(block_size, blocks));
    let reader = RingReader::new(area.clone(), report)?;
    Ok((RingWriter::new(area), reader))
}
