//! Drives of a push system: what connects `flow::gateway`'s machines to `io::packet`.
//!
//! ```text
//!  PacketSourceDrive --multi-event packets--> GatewayDrive --events--> FarmNodeDrive
//!   trigger, sources  <--throttle, requests,    |    ^  <--credit, decisions--
//!   of one flow          decision stream--------+    |
//!                                               accepted events -> EventSink -> io::disk
//! ```
//! Everything travels in datagrams that may be lost; the machines know that. So nothing else is promised where gateways and
//! nodes speak over TCP ([`Connections`]). Nodes need not be configured: a gateway answers where a node's credit came from.
//!
//! An input queue of a gateway has two halves: `receiving` makes sets of events out of packets, `sending` takes them to nodes,
//! hears decisions and stores events; those who watch get copies there (`watching`). `queue` runs both to completion on one thread, `threads` gives each a thread, with
//! `handover` between them.

mod config;
mod connections;
mod event;
mod farm_node;
mod filter;
mod handover;
mod histograms;
mod input;
mod link;
mod message;
mod order_board;
mod queue;
mod readers;
mod receiving;
mod report;
mod sending;
mod sources;
mod threads;
mod throttle_board;
mod watching;

pub use config::{GatewayDriveConfig, Gathering};
pub use connections::{Callers, Connections};
pub use event::GatewayEvent;
pub use farm_node::{FarmNodeDrive, FarmNodeDriveConfig, FarmNodeReport, Outage};
pub use filter::{EmulatedFilterConfig, NodeFilterConfig};
pub use histograms::{CellsBySource, GatewayHistograms};
pub use link::{Datagrams, Link};
pub use order_board::{Order, OrderBoard, Read};
pub use queue::GatewayDrive;
pub use readers::DecisionReaders;
pub use receiving::ReceivingParts;
pub use report::{FlowReport, GatewayReport, MaskedSource, Notice};
pub use sending::SendingParts;
pub use sources::{PacketSourceDrive, PacketSourceDriveConfig, PacketSourceReport};
pub use threads::{Halves, HalvesError, ReceivingDrive, SendingDrive, halves};
pub use throttle_board::{Shown, ThrottleBoard};
