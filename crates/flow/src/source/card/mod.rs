//! A link card that is not there: what the e-links of an emulated FELIX card say, and when, as blocks.
//!
//! ```text
//! TriggerSequence -> trigger n --+--> EmulatedLink 0: chunk n, perhaps with a fault --> wire's Encoder --+
//!                                +--> EmulatedLink 1: ...                                                +--> blocks
//!                                +--> the TTC link: a short chunk per trigger                            |
//! ```
//! As with every emulated source all links run the same sequence from the same seed. A link has a speed of its own and
//! can fail and come back; a chunk can be lost or spoilt in every way in which a card reports it.

mod config;
mod link;
mod machine;
mod pattern;
#[cfg(test)]
mod tests;

pub use config::{EmulatedCardConfig, EmulatedLinkConfig, Faults, Outage};
pub use link::Injected;
pub use machine::EmulatedCard;
pub use pattern::{ChunkOrigin, LEAST_CHUNK, fill_chunk, origin_of_chunk};
