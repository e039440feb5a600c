//! Front ends that are not there: what an emulated source sends, and when.
//!
//! ```text
//! TriggerSequence (seed) -> trigger n: bunch crossing, time ------+
//! SizeDistribution (seed, source) -> length of fragment n --------+-> FrameMaker: the front end's own frames
//! TriggerGate: all sources of a run stop after the same trigger   |
//!                                                                 +-> felix::EmulatedCard: blocks of many e-links
//! ```
//! Every source runs the same sequence from the same seed, so that all agree on each trigger without talking.
//! A front end with a connection of its own needs no more than these; a link card, which writes blocks of many e-links,
//! has a room: [`felix`]. So have the sources of packets that carry several events: [`mep`].

pub mod felix;
mod frames;
mod gate;
pub mod mep;
mod packet;
mod random;
mod sequence;
mod size;

pub use frames::{FrameKind, FrameMaker, Frames};
pub use gate::TriggerGate;
pub use random::Random;
pub use sequence::{ORBIT, Trigger, TriggerRate, TriggerSequence};
pub use size::SizeDistribution;
