//! A run with threads: configuration in, a handle out.
//!
//! ```text
//! assemble   configuration -> drives          worker    one thread that turns drives
//! registry   run numbers and directories      handle    commands in, snapshots out
//! claim      who manages a run, for whoever takes it over
//! placement  which CPUs the threads may use
//! summary    what the run says of itself: run.json and the last line of --json
//! ```

mod assemble;
mod claim;
mod handle;
mod placement;
mod registry;
mod resolve;
mod summary;
mod worker;

pub use assemble::{RunError, launch, launch_node, take_over};
pub use claim::Claim;
pub use handle::RunHandle;
pub use placement::{PlacementError, placement};
pub use registry::{Registry, RunDirectory};
pub use resolve::Addresses;
pub use summary::{EventSummary, FragmentSummary, RunSummary, SUMMARY_SCHEMA, SynchronySummary, disk_error};
