//! A link card that is not there: what the e-links of an emulated FELIX card say, as blocks.
//!
//! ```text
//! TriggerSequence -> trigger n --+--> EmulatedLink 0: chunk n, perhaps with a Fault --> wire's Encoder --+
//!                                +--> EmulatedLink 1: ...                                                +--> blocks
//!                                +--> the TTC link: a short chunk per trigger                            |
//!
//! EmulatedCard::fill   what is due by now: a card of a run writes it into its ring
//! EmulatedCard::turn   the next trigger's chunks, whatever the time: `felix generate`, figures, tests
//! ```
//! As with every emulated source all links run the same sequence from the same seed. A link has a speed of its own and
//! can fail and come back; chunks and blocks can be lost or spoilt in every way in which a card or a decoder reports it
//! ([`Fault`]). A chunk tells whose it is and which ([`ChunkOrigin`]), so that whoever receives it can say what is
//! missing or mixed up.

mod card;
mod config;
mod fault;
mod link;
mod pattern;
#[cfg(test)]
mod tests;

pub use card::{BLOCK_TIMEOUT, EmulatedCard};
pub use config::{EmulatedCardConfig, EmulatedLinkConfig, Outage};
pub use fault::{FAULTS, Fault, FaultError, FaultShare, Faults};
pub use link::Injected;
pub use pattern::{CHUNK_HEAD_BYTES, ChunkOrigin};
