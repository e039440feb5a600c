//! Sizing of systems in which sources push: how many gateways does an experiment need?
//!
//! ```text
//!  triggers --> Sources ==packets==> switch port --> GatewayHost --pushes--> Node: cores that decide
//!  [Trigger]      |  a link each     finite buffer   [Gateway]               [FarmNode]
//!     ^                              and link         |    ^                   |
//!     +------- throttle: ready, busy -----------------+    +--- decisions -----+
//! ```
//! In brackets are the real machines of flow; around them are links, a switch that loses what does not fit, and computers
//! whose work takes time. All sources of a set of events send the same bytes, which are there once: so little memory holds
//! what a whole detector sends.

mod gateway;
mod sources;
mod system;
mod world;

#[cfg(test)]
mod tests;

pub use system::{FarmSection, FlowSection, GatewaySection, NetworkSection, PushHostSection, PushSystem};

use super::Outcome;

/// Simulates a push system. Equal systems give equal outcomes.
pub fn simulate(system: &PushSystem) -> Outcome {
    world::World::new(system).run()
}
