//! Systems in which sources push: gateways, the nodes of their farm, triggers with their sources, and packets between them
//! that may be lost, duplicated, late and in any order.
//!
//! ```text
//!   PacketSourceDrive --> PacketSender --> PacketNetwork --> PacketReceiver --> GatewayDrive --> ... --> FarmNodeDrive
//!        |  tampering on demand               |  loss, duplicates,  |      real drives, each with its clock
//!        v                                    v  disorder by path   v
//!   Referee: what each member sent and took ---> twins: what must follow from it, for packets, events, credit and order
//! ```
//! The referee sees only packets. From what a gateway took and when, `assembly` derives which sets there must be and what is
//! missing in them. From what nodes said, `farm` derives which node has which event and how it is decided, and checks that nodes
//! and triggers say no more than they may. After every turn the gateway's own account must be the same. `readers` checks what
//! users see: samples, histograms and decisions.

mod address;
mod assembly;
mod farm;
mod fault;
mod judge;
mod member;
mod referee;
mod scenario;
mod wires;
mod world;

pub use scenario::{FlowSetting, NodeSetting, Rooms, Scenario};
