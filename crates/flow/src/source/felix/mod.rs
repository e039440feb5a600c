//! A link card that is not there: the chunks of many e-links in blocks, with faults where they are wanted.
//!
//! ```text
//! ChunkSize (seed) -> length of the next chunk --+
//! CardFaults (seed) -> which fault strikes ------+-> BlockSource: one encoder per e-link -> blocks
//! ```
//! Every e-link says one chunk per turn, as front ends do that share a trigger. A chunk tells its number and its e-link,
//! so that whoever receives it can say what is missing.

mod chunk;
mod fault;
mod machine;
#[cfg(test)]
mod tests;

pub use chunk::{CHUNK_HEAD_BYTES, ChunkSize, chunk_bytes, read_chunk_head};
pub use fault::{CARD_FAULTS, CardFault, CardFaults};
pub use machine::{BlockSource, BlockSourceConfig};
