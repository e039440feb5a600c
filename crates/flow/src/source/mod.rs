//! Front ends that are not there: what an emulated source sends, and when.
//!
//! ```text
//! TriggerSequence (seed) -> trigger n: bunch crossing, time ---+
//! FragmentSize (seed, source) -> length of fragment n ---------+-> the drive encodes and sends it
//! TriggerGate: all sources of a run stop after the same trigger
//! ```
//! Every source runs the same sequence from the same seed, so that all agree on each trigger without talking.
//! A link card writes blocks of many e-links: [`card`] from the same triggers, in time, for runs; [`felix`] turn by turn,
//! for tools.

pub mod card;
pub mod felix;
mod gate;
mod random;
mod sequence;
mod size;

pub use gate::TriggerGate;
pub use random::Random;
pub use sequence::{ORBIT, Trigger, TriggerRate, TriggerSequence};
pub use size::FragmentSize;
