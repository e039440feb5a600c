//! Sizing: a system described by numbers, run for some seconds of virtual time.
//!
//! ```text
//!  triggers --> FrontEnds ==front network==> ReadoutUnit ==event network==> BuilderUnit --> filter --> disk
//!     ^            |  lengths, no bytes       [Readout]                      [Builder]
//!     +-- pause ---+                              \----- messages ----- ManagerUnit [Manager]
//! ```
//! In brackets are the real machines of flow; around them are hosts whose work takes time, and networks whose switches
//! have finite buffers. Fragments have a length and no bytes, so that 200 GB/s fit into one core. Everything follows
//! from the file and its seed; time is that of the queue of steps. Systems in which sources push are in [`push`].

mod builder;
mod check;
mod file;
mod front_end;
mod histogram;
mod host;
mod manager;
mod network;
mod outcome;
mod plot;
pub mod push;
mod queue;
mod readout;
mod system;
#[cfg(test)]
mod tests;
mod verdict;
mod world;

pub use file::SizingFile;
pub use outcome::{Buffer, Events, FlowOutcome, Latencies, Latency, NetworkCounts, Outcome, Reached, Resource, Unit};
pub use plot::{Chart, Curve};
pub use system::{
    BuilderSection, DiskSection, FilterSection, FormatChoice, FramingChoice, FrontEndSection, FullChoice, GroupSection,
    HostSection, ManagerSection, NetworkSection, Placement, ReadoutSection, System, TriggerSection,
};
pub use verdict::Limit;

/// Simulates a system. Equal systems give equal outcomes.
pub fn simulate(system: &System) -> Outcome {
    world::World::new(system).run()
}
