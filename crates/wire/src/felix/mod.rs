//! FELIX blocks: what a link card of ATLAS writes into a host's memory (paper 4, section 2.1; later versions as in
//! FORMATS section 1, from the headers of FELIX' `ftools`).
//!
//! ```text
//!          31            16 15      11 10                  0
//! header  | start of block | sequence | e-link              |   4 bytes, little-endian
//! then    | data, padded | trailer | data, padded | trailer | ...  up to the block's last byte
//!
//!          15    13   12      11    10    9                0
//! trailer | type   | trunc | error | CRC | length           |   16 bits: blocks of 0xABCD
//!          31    29   28      27    26    25     15        0
//! trailer | type   | trunc | error | CRC | busy | length    |   32 bits: blocks of 0xABCE and 0xC0CE + size
//! ```
//! A card packs the *chunks* of one *e-link* into blocks of fixed size; what of a chunk lies in one block is a
//! *sub-chunk*. Data are padded to a multiple of the trailer's size, and the length does not count that. The trailer
//! comes behind the data, so a block is read from its end:
//!
//! ```text
//!  Encoder: chunks, signals, time-outs --> blocks          one per e-link
//!  Walk: one block, from its end       --> sub-chunks      checked: no step leaves the block
//!  Walker: many blocks at once         --> the same        the fast one, from `kernels`
//!  Assembly: sub-chunks of one e-link  --> begins, continues, ends; or what was given up and why
//!  Decoder: blocks of all e-links      --> chunks with bytes of their own: plain, for tools and as the measure of
//!                                          what is fast
//! ```
//! Three things that the sources leave open are settled here. A null trailer takes no data with it, so the rest of a
//! block is filled with null trailers, which are zeros. A time-out trailer takes the filler with it; with the
//! truncation bit its data are real: they end the chunk that is open, or are one of their own. Whether the padding is
//! right shows where the walk ends: at the header's end if it is; inside the header if one piece was padded too far.

mod assembly;
mod decoder;
mod encoder;
mod error;
mod format;
mod header;
#[cfg(test)]
mod tests;
mod trailer;
mod walk;

pub use assembly::{Accepted, Assembly, Place};
pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;
pub use error::{BlockError, ChunkError};
pub use format::{BlockFormat, HEADER_BYTES, LARGEST_BLOCK_BYTES};
pub use header::{BlockHeader, ELINKS, ELink, SEQUENCES};
pub use ropewalk_kernels::felix::{BlockWalk, Rest, SubChunk, Walked, Walker};
pub use trailer::{Status, SubChunkType, Trailer};
pub use walk::{Walk, walk};
