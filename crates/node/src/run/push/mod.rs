//! A run of a push system: configuration in, a handle out.
//!
//! ```text
//! assemble   configuration -> drives on threads     resolve   sections -> what machines and sockets are told
//! handle     start, pause, stop and snapshots       summary   run.json and the last line of --json
//! observation  the numbers of gateways as those of builder units, for whoever watches
//! conducted  the handle as that of any run
//! ```
//! A thread (or two) for each input queue of a gateway, one for the emulated sources of each flow, one for all emulated nodes.

mod assemble;
mod conducted;
mod farm;
mod flow_summary;
mod gateway_summary;
mod handle;
mod hardware;
mod inputs;
mod observation;
mod queues;
mod resolve;
mod summary;

pub(super) use assemble::packet_error;
pub use assemble::{PushPart, launch_push, prepare_push, push_placement_on, receiving_threads};
pub use flow_summary::{
    FarmSummary, FlowEventSummary, FlowRateSummary, FlowSummary, PacketSourceSummary, PacketSummary, RestartSummary,
    SentSummary, SetSummary,
};
pub use gateway_summary::{
    GatewaySummary, SendingSummary, StopSummary, ThrottleSummary, ToldSummary, WaitingSummary, WritingSummary,
};
pub use handle::{PushHandle, PushSnapshot};
pub use summary::{NodeSummary, PUSH_SUMMARY_SCHEMA, PushState, PushSummary};
