//! Systems in which sources push: gateways, the nodes of their farm, triggers with their sources, and packets between them
//! that may be lost, come twice, late and in any order.
//!
//! ```text
//!   PacketSourceDrive --> Outlet --> PacketNetwork --> Inlet --> GatewayDrive --> Outlet --> ... --> FarmNodeDrive
//!        |  tampering on demand         |  loss, duplicates,  |      real drives, each with a clock of its own
//!        v                              v  disorder by path   v
//!   Referee: what everybody sent and took -----> twins: what must follow from it, for packets, events, credit and order
//! ```
//! The referee sees packets alone. From what a gateway took and when, `assembly` says which sets there must be and what is
//! missing in them; from what nodes said, `farm` says who has which event and how it is decided; `voices` looks whether
//! nodes and triggers say no more than they may. After every turn the gateway's own account must be the same. `samples` watches
//! every gateway all the time, and must be shown what sources sent; what users have counted of it is counted once more by `histograms`.

mod address;
mod assembly;
mod farm;
mod fault;
mod files;
mod histograms;
mod inject;
mod judge;
mod lines;
mod machine;
mod member;
mod readers;
mod recount;
mod referee;
mod samples;
mod scenario;
mod schedule;
mod setup;
mod voices;
mod wires;
mod world;
mod wrong;

pub use fault::{Fault, Scheduled, Trouble, Way};
pub use member::Place;
pub use scenario::{FarmSetting, FlowSetting, Masking, NodeSetting, Rooms, Scenario, Timing};
pub use world::World;
pub use wrong::Wrong;
