//! What makes a gateway's configuration useless.

use super::sources::Address;

/// What is wrong with a gateway's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GatewayConfigError {
    /// No flow, or too many.
    #[error("a gateway has 1 to 255 flows, not {0}")]
    Flows(usize),
    /// No source, or too many.
    #[error("flow {flow} has {sources} sources: 1 to 65,534 can be")]
    Sources {
        /// Which flow, from 0.
        flow: usize,
        /// How many it has.
        sources: usize,
    },
    /// Two sources cannot be told apart.
    #[error("flow {flow} has two sources at {address}: give each an address, or ports to all of them")]
    Twice {
        /// Which flow, from 0.
        flow: usize,
        /// Where both are.
        address: Address,
    },
    /// A packet without events.
    #[error("the packing factor of flow {flow} must be at least 1")]
    Packing {
        /// Which flow, from 0.
        flow: usize,
    },
    /// The sets do not fit together.
    #[error(
        "flow {flow}: {assembling} sets in assembly and {sets} in all: at least 1, and not more than in all (below 65,535)"
    )]
    Sets {
        /// Which flow, from 0.
        flow: usize,
        /// In assembly.
        assembling: u16,
        /// In all.
        sets: u16,
    },
    /// All flows together have too many sets.
    #[error("all flows together have 65,535 sets or more")]
    AllSets,
    /// The window is smaller than what is assembled.
    #[error("flow {flow}: the window of {window} sets must be at least the {assembling} in assembly")]
    Window {
        /// Which flow, from 0.
        flow: usize,
        /// The configured window, in sets.
        window: u32,
        /// Sets in assembly.
        assembling: u16,
    },
    /// Nothing fits into a push.
    #[error("pushes of {bytes} bytes: at least {least}, at most 65,543")]
    Push {
        /// The configured length.
        bytes: usize,
        /// The least that makes sense.
        least: usize,
    },
    /// No node, or too many.
    #[error("a farm has 1 to 65,534 nodes, not {0}")]
    Nodes(u16),
    /// More than decisions can name.
    #[error("a node has 1 to 256 events without a decision, not {0}")]
    Outstanding(u16),
    /// A node would be silent before it could be heard.
    #[error("the silence must be longer than the heartbeat, and that longer than nothing")]
    Silence,
    /// The throttle would never be repeated, or come too late.
    #[error("the throttle's state must be repeated after some time, and rates and sizes must not be negative")]
    Throttle,
}
