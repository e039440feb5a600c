//! Drives of a push system: what connects `flow::gateway`'s machines to `io::packet`.
//!
//! ```text
//!  PacketSourceDrive --multi-event packets--> GatewayDrive --events--> FarmNodeDrive
//!   trigger, sources  <--throttle, requests,    |    ^  <--credit, decisions--
//!   of one flow          decision stream--------+    |
//!                                               accepted events -> Storage -> io::disk
//! ```
//! Everything travels in datagrams that may be lost; the machines know that. Nodes need not be configured: a gateway
//! answers where a node's credit came from.

mod farm_node;
mod filter;
mod queue;
mod report;
mod sources;
mod storing;

pub use farm_node::{FarmNodeDrive, FarmNodeDriveConfig, FarmNodeReport};
pub use filter::{EmulatedFilter, FilterConfig};
pub use queue::{GatewayDrive, GatewayDriveConfig, Gathering};
pub use report::{GatewayReport, InputReport, Notice};
pub use sources::{PacketSourceDrive, PacketSourceDriveConfig, PacketSourceReport};
