//! What unknown frames say: which of their bytes count, which are clocks, which hold the length, which are always the same.
//!
//! ```text
//! datagrams -----------------------------------------> frames of each peer --> counters  up by one per frame, per event
//! streams --> cut: length fields that lead from       (their first bytes,      clocks    linear in arrival time
//!             frame to frame, sync words, fixed size   when they came)         lengths   field = frame's length
//!                                                                              constants, and what tells peers apart
//!                                    draft: a Layout of all that, which compiles to a plan
//! ```
//! Everything is a guess with its evidence: in how many of how many frames it holds. Where another reading of a draft fits as
//! well, or too little was seen, that is said ([`Doubt`]): a draft without doubts is right for what was seen. Looked at are the first frames of each
//! peer, as many as [`Limits`] allow; accounts of rates and sizes are of everything that came. Peers that send to one place
//! are taken for boards of one kind.

mod accounts;
mod clocks;
mod constants;
mod counters;
mod cut;
mod doubts;
mod draft;
mod findings;
mod frames;
mod lengths;
mod sniffer;
#[cfg(test)]
mod tests;

pub use accounts::{Limits, Peer, PeerAccount, Transport};
pub use doubts::Doubt;
pub use draft::draft;
pub use findings::{Findings, Group, Guess, Meaning};
pub use sniffer::Sniffer;
