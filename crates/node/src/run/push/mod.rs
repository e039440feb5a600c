//! A run of a push system: configuration in, a handle out.
//!
//! ```text
//! assemble   configuration -> drives on threads     resolve   sections -> what machines and sockets are told
//! handle     stop and snapshots                     summary   run.json and the last line of --json
//! ```
//! A thread (or two) for each input queue of a gateway, one for the emulated sources of each flow, one for all emulated nodes.

mod assemble;
mod farm;
mod handle;
mod hardware;
mod inputs;
mod queues;
mod resolve;
mod summary;

pub(super) use assemble::packet_error;
pub use assemble::{PushPart, launch_push};
pub use handle::{PushHandle, PushSnapshot};
pub use summary::{FlowSummary, PUSH_SUMMARY_SCHEMA, PushSummary};
