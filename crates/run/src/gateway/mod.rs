//! Gateways in a run: configuration in, running threads out.
//!
//! ```text
//! assemble   configuration -> drives on threads     inputs    sections -> input queues: state machines, sockets, rings
//! gateways   the running gateways, farm nodes and emulated sources
//! snapshot   their reports, in the terms of every run
//! account    gateways and farm in run.json          flow_summary   flows in run.json
//! ```
//! There are one or two threads for each input queue of a gateway, one for the emulated sources of each flow, and one
//! for all farm nodes.

mod account;
mod assemble;
mod farm;
mod flow_summary;
mod gateways;
mod inputs;
mod snapshot;

pub(super) use account::GatewayAccount;
pub use account::{
    GatewaySummary, SendingSummary, StopSummary, ThrottleSummary, ToldSummary, WaitingSummary, WritingSummary,
};
pub use assemble::SystemPart;
pub(super) use assemble::prepare;
pub use flow_summary::{
    FlowEventSummary, FlowRateSummary, FlowSummary, PacketSourceSummary, PacketSummary, RestartSummary, SentSummary,
    SetSummary,
};
pub(super) use gateways::Gateways;
#[cfg(test)]
pub(super) use gateways::{Hardware, Way};
pub use snapshot::GatewaySnapshot;
