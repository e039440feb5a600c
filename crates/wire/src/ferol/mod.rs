//! FEROL blocks: how a FED fragment travels over TCP (FORMATS section 2; paper 3 calls their sender FEROL, the
//! front-end read-out optical link).
//!
//! ```text
//!         63        48 47     43 42        32  31    30   29      10 9           0
//! word 0 | 0x475A     |         | packet (11)|first|last |          | length (10) |   big-endian
//!         63   60 59         48 47                    24 23                      0
//! word 1 |       | source (12) |                        | event number (24)       |   big-endian
//! then   | at most 4,080 bytes of the fragment, a multiple of 8                   |
//! ```
//! The length counts the 8-byte words behind the header. A fragment larger than that spans several blocks: the first
//! and the last are marked, the packet number counts from 0 (modulo 2^11), source and event number stay the same.
//!
//! FORMATS states the positions of `first` and of the packet number from memory; both are written and checked here.

mod assembly;
mod block;
#[cfg(test)]
mod tests;

pub use assembly::{Accepted, Assembly, FragmentError, Place};
pub use block::{Block, BlockError, BlockHeader, blocks_of, encode_fragment};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 16;

/// The most bytes of a fragment in one block.
pub const MAX_PAYLOAD_BYTES: usize = 4080;

/// The largest block, header included.
pub const MAX_BLOCK_BYTES: usize = HEADER_BYTES + MAX_PAYLOAD_BYTES;
