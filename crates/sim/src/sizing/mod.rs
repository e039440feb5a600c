//! Sizing: a system described by numbers, run for some seconds of virtual time.
//!
//! ```text
//!  triggers --> FrontEndModel ==front network==> ReadoutUnit ==event network==> BuilderUnit --> filter --> disk
//!     ^            |  lengths, no bytes       [Readout]                      [Builder]
//!     +-- pause ---+                              \----- messages ----- ManagerUnit [Manager]
//! ```
//! In brackets are the real machines of flow; around them are hosts whose work takes time, and networks whose switches
//! have finite buffers. Fragments have a length and no bytes, so that 200 GB/s fit into one core. Everything follows
//! from the file and its seed; time is that of the queue of steps. Systems in which sources push are in [`push`].

mod front_end;
mod network;
mod outcome;
pub mod push;
mod queue;
mod system;
#[cfg(test)]
mod tests;
mod units;
mod world;

pub use outcome::{
    Buffer, Events, FlowOutcome, Latencies, Latency, Limit, NetworkCounts, Outcome, Reached, Resource, Unit,
};
pub use system::{
    BuilderSection, DiskSection, FilterSection, FormatChoice, FramingChoice, FrontEndSection, FullChoice, GroupSection,
    HostSection, ManagerSection, NetworkSection, Placement, ReadoutSection, SizingFile, System, TriggerSection,
};

/// Simulates a system. Equal systems give equal outcomes.
pub fn simulate(system: &System) -> Outcome {
    world::World::new(system).run()
}
