//! FED fragments: one front end's data for one event, as CMS S-LINK64 carries it (FORMATS section 2).
//!
//! ```text
//!           bit 63    60 59    56 55           32 31        20 19        8 7      4  3   2 0
//! header  |    5    | event  |    L1 id (24)    |    BX (12) | source (12)| version|more|   |
//! payload |  any number of 64-bit words                                                     |
//! trailer |   0xA   |        |   length (24)    | CRC (16)   |  status 8-11 |  TTS  |more|   |
//! ```
//! All words are little-endian. The length counts 64-bit words, header and trailer included; it stands at the end
//! only, so that a stream of bare fragments cannot be cut as it arrives: see [`ferol`](crate::ferol) for streams
//! and [`split_file`] for files. Interior words may look like headers and trailers.
//!
//! The CRC covers the whole fragment, its own field and three bits that the link may set later taken as zero. It is
//! checked over one slice ([`Fragment::check_crc`]) or over pieces ([`Ends::check_crc`]), since a fragment can be
//! larger than a pool block.

mod error;
mod fragment;
mod patch;
mod split;
#[cfg(test)]
mod tests;
mod words;

pub use error::FedError;
pub use fragment::{Ends, Fragment, OwnedFragment, encode, encode_with};
pub use patch::Patch;
pub use split::{Split, split_event, split_file};
pub use words::{Header, Trailer};

/// Bytes of a word, of a header and of a trailer.
pub const WORD_BYTES: usize = 8;

/// The smallest fragment in bytes: a header and a trailer.
pub const MIN_BYTES: usize = 2 * WORD_BYTES;

/// The largest fragment in bytes: the length field has 24 bits.
pub const MAX_BYTES: usize = ((1 << 24) - 1) * WORD_BYTES;
