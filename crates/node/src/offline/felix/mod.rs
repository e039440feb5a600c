//! FELIX blocks from files, pipes and standard input: counted, shown, made.
//!
//! ```text
//! input     bytes of any stream --> batches of whole blocks: finds the kind and, behind lost bytes, the next block
//! origin    where blocks come from, read without being stuck where none come
//! decode    what each e-link sent, and every fault by its name
//! dump      a walk through blocks for people
//! generate  the blocks of an emulated card
//! elinks    lists of e-links as people write them
//! ```

mod decode;
mod dump;
mod elinks;
mod generate;
mod input;
mod origin;
#[cfg(test)]
mod tests;

pub use decode::{DECODE_SCHEMA, DecodeReport, ELinkReport, Fault, decode};
pub use dump::{DumpOptions, dump};
pub use elinks::ELinks;
pub use generate::{GenerateOptions, Generated, generate};
pub use input::{BlockInput, open};
