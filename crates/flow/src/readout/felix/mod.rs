//! FELIX blocks in, chunks out, without a copy: the machine between a link card's buffer and who wants its chunks.
//!
//! ```text
//!  blocks of the card's buffer --> ChunkDecoder --> ChunkBatch: runs       whose chunks, and which
//!       |    (a walk by wire, then one Assembly per e-link)     items      short chunks; where scattered ones stand
//!       |                                                       scattered  a range of pieces
//!       |                                                       pieces     position and length in the card's stream
//!       v
//!  Retention: which blocks the card may write again: none that a batch refers to that is not done, and none that
//!  an open chunk lies in
//! ```
//! `CardInput` is all of that over one ring of memory, up to the fragments that a readout unit takes: an `EventRule`
//! finds the event's number in a chunk, whose bytes stay where the card wrote them. A `Listener` gets the same batches.
//!
//! As in paper 4 (section 2.4) a *short* chunk is one piece, described by 8 bytes where the walk put them; a
//! *scattered* one is a range in a flat array of pieces. All arrays are made at the start and used again.
//!
//! Places are *positions*: bytes that the card wrote before, since it began. Whoever owns the buffer turns them into
//! addresses (position modulo its size), the machine never does.

mod batch;
mod card;
mod config;
mod decoder;
mod event_rule;
mod links;
mod report;
mod retention;
#[cfg(test)]
mod tests;

pub use batch::{Chunk, ChunkBatch, Piece, Run, Scattered};
pub use card::{CardConfig, CardCounts, CardInput, Listener};
pub use config::ChunkConfig;
pub use decoder::ChunkDecoder;
pub use event_rule::{EventHead, EventRule, EventRules, NumberField};
pub use report::{ChunkFault, ChunkReport};
pub use retention::{Retention, SpanId};
