//! The configuration of a gateway, and what can be wrong with it.

use super::sources::Address;
use super::throttle::{ThrottleConfig, headroom};
use crate::histogram::HistogramConfig;
use core::time::Duration;
use ropewalk_terms::{Incarnation, SourceId};
use ropewalk_wire::gateway::{FRAME_BYTES, LARGEST_BODY_BYTES, MOST_OUTSTANDING, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// One source of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PacketSource {
    /// Its id, for people and accounts.
    pub id: SourceId,
    /// From where its packets come.
    pub address: Address,
}

/// What becomes of events of which something is missing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Incomplete {
    /// They go to nodes as they are, flagged.
    #[default]
    Emit,
    /// They are dropped and counted.
    Drop,
}

/// Where the decisions of a flow lead.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// The decisions leave in the order of events, to all readers (first level of LHCb).
    Stream,
    /// Accepted events are written to run files (high-level trigger of LHCb). The lower 16 bits of the trigger word are
    /// their trigger type.
    #[default]
    Storage,
}

/// The decision where no node decided in time.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct DefaultDecision {
    /// Whether the event is wanted.
    pub accept: bool,
    /// The trigger word.
    pub word: u32,
}

/// A flow: events whose fragments come from the same sources, so many in a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowConfig {
    /// Its sources, in the order in which their banks stand in an event.
    pub sources: Vec<PacketSource>,
    /// Senders like the sources that are not wanted: no event waits for them, their packets are counted as masked and
    /// dropped.
    pub masked: Vec<Address>,
    /// Events in a packet, and so in a set.
    pub packing: u16,
    /// The partition of its packets.
    pub partition: u32,
    /// The first event of the run; a set begins there and every `packing` events after it.
    pub first_event: u64,
    /// Number of sets held at once: in assembly, waiting for nodes, waiting for decisions.
    pub sets: u16,
    /// Number of sets in assembly at once; one more closes the oldest. At most `sets`.
    pub assembling: u16,
    /// Number of sets before the newest one for which duplicate packets are distinguished from late ones; packets of
    /// older sets are late. Sets of other gateways count. Rounded up to a power of two.
    pub window: u32,
    /// Time-out of a set in assembly.
    pub timeout: Duration,
    /// Policy for incomplete sets.
    pub incomplete: Incomplete,
    /// Use of decisions.
    pub output: Output,
    /// Time-out for the decisions on the events of a finished set.
    pub decision_timeout: Duration,
    /// The decision after this time-out.
    pub default_decision: DefaultDecision,
    /// Latency budget from an event's first packet to its decision; decisions within it are counted.
    pub budget: Duration,
    /// Histograms of sources' fragments that the user configured; unknown sources are ignored.
    pub histograms: Vec<HistogramConfig>,
}

impl FlowConfig {
    /// Creates a flow with these sources and settings for a small system: 256 sets, 64 of them in assembly, time-outs
    /// of 100 ms and 1 s, incomplete events emitted, accepted events to storage, rejection by default, a budget of 50
    /// ms.
    pub const fn new(sources: Vec<PacketSource>, packing: u16) -> Self {
        Self {
            sources,
            masked: Vec::new(),
            packing,
            partition: 0,
            first_event: 0,
            sets: 256,
            assembling: 64,
            window: 4096,
            timeout: Duration::from_millis(100),
            incomplete: Incomplete::Emit,
            output: Output::Storage,
            decision_timeout: Duration::from_secs(1),
            default_decision: DefaultDecision { accept: false, word: 0 },
            budget: Duration::from_millis(50),
            histograms: Vec::new(),
        }
    }

    /// Returns the addresses of its sources, then of the masked ones.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        self.sources.iter().map(|source| source.address).chain(self.masked.iter().copied())
    }

    /// Returns an address that two sources have.
    fn doubled_address(&self) -> Option<Address> {
        let by_port = Address::tells_ports(self.addresses());
        let mut known = HashSet::new();
        self.addresses().find(|address| !known.insert(address.number(by_port)))
    }

    fn check(&self, flow: usize) -> Result<(), GatewayConfigError> {
        if self.sources.is_empty() || self.sources.len() >= usize::from(u16::MAX) {
            return Err(GatewayConfigError::Sources { flow, sources: self.sources.len() });
        }
        if let Some(address) = self.doubled_address() {
            return Err(GatewayConfigError::Twice { flow, address });
        }
        if self.packing == 0 {
            return Err(GatewayConfigError::Packing { flow });
        }
        if self.assembling == 0 || self.assembling > self.sets || self.sets == u16::MAX {
            return Err(GatewayConfigError::Sets { flow, assembling: self.assembling, sets: self.sets });
        }
        if self.window < u32::from(self.assembling) {
            return Err(GatewayConfigError::Window { flow, window: self.window, assembling: self.assembling });
        }
        Ok(())
    }
}

/// The nodes of the farm and how they are fed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmConfig {
    /// Number of nodes; 0 if the gateway decides itself.
    pub nodes: u16,
    /// Number of events in work at once if the gateway itself decides.
    pub local_events: u32,
    /// Maximum size of a push, in bytes of a datagram's payload, as the sending MTU allows.
    pub largest_push: usize,
    /// Maximum number of undecided events of one node, whatever credit it grants.
    pub most_outstanding: u16,
    /// A node that sends nothing for this time has no credit, and its events go to others.
    pub silence: Duration,
    /// Interval at which a node gets the range of sequence numbers while nothing is pushed to it.
    pub heartbeat: Duration,
}

impl FarmConfig {
    /// Creates a farm of this many nodes behind Ethernet's usual MTU (1,500 bytes less IPv4 and UDP): 64 events
    /// outstanding each, silent after 1 s.
    pub const fn new(nodes: u16) -> Self {
        let (silence, heartbeat) = (Duration::from_secs(1), Duration::from_millis(100));
        Self { nodes, local_events: 0, largest_push: 1472, most_outstanding: 64, silence, heartbeat }
    }

    fn check(&self) -> Result<(), GatewayConfigError> {
        let least = PUSH_HEAD_BYTES + PIECE_HEAD_BYTES + 1;
        if !(least..=FRAME_BYTES + LARGEST_BODY_BYTES).contains(&self.largest_push) {
            return Err(GatewayConfigError::Push { bytes: self.largest_push, least });
        }
        if (self.nodes == 0) != (self.local_events > 0) || self.nodes == u16::MAX {
            return Err(GatewayConfigError::Nodes(self.nodes));
        }
        if self.most_outstanding == 0 || u64::from(self.most_outstanding) > MOST_OUTSTANDING {
            return Err(GatewayConfigError::Outstanding(self.most_outstanding));
        }
        if self.heartbeat.is_zero() || self.silence <= self.heartbeat {
            return Err(GatewayConfigError::Silence);
        }
        Ok(())
    }
}

/// One input queue of a gateway.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayConfig {
    /// Its number among all gateways and their queues.
    pub gateway: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The run, for requests to the trigger.
    pub run: u32,
    /// Its flows; the first one is served first.
    pub flows: Vec<FlowConfig>,
    /// Its nodes.
    pub farm: FarmConfig,
    /// Settings of the throttle.
    pub throttle: ThrottleConfig,
}

impl GatewayConfig {
    /// A gateway with these flows and nodes.
    pub fn new(gateway: u16, flows: Vec<FlowConfig>, farm: FarmConfig) -> Self {
        Self { gateway, incarnation: Incarnation(1), run: 1, flows, farm, throttle: ThrottleConfig::default() }
    }

    /// Returns the headroom that a receive queue needs when the trigger is asked to stop: packets of these flows, each
    /// counted as `packet`, until no more come, also if the trigger stops only because it no longer hears the gateway.
    /// `None` if the event rates are unknown.
    pub fn wanted_queue(&self, flows: &[u8], packet: u64) -> Option<u64> {
        let throttle = &self.throttle;
        let packets = |flow: &u8| {
            let index = usize::from(*flow);
            let (known, rate) =
                (self.flows.get(index)?, throttle.event_rates_hz.get(index).filter(|rate| **rate > 0.0)?);
            let sources = (known.sources.len() + known.masked.len()) as u64;
            let sets = headroom(throttle.latency + throttle.silence, *rate, 1.0 / f64::from(known.packing));
            // One more set, because a set that has only begun is sent whole.
            Some((sets + 1) * sources)
        };
        let all: Option<u64> = flows.iter().map(packets).sum();
        all.map(|packets| packets.saturating_mul(packet))
    }

    /// Checks what [`Gateway::new`](super::Gateway::new) requires.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), GatewayConfigError> {
        if self.flows.is_empty() || self.flows.len() > usize::from(u8::MAX) {
            return Err(GatewayConfigError::Flows(self.flows.len()));
        }
        self.flows.iter().enumerate().try_for_each(|(index, flow)| flow.check(index))?;
        if self.flows.iter().map(|flow| usize::from(flow.sets)).sum::<usize>() >= usize::from(u16::MAX) {
            return Err(GatewayConfigError::AllSets);
        }
        self.farm.check()?;
        self.throttle.check()
    }
}

/// A fault of a gateway's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GatewayConfigError {
    /// No flow, or too many.
    #[error("a gateway has 1 to 255 flows, not {0}")]
    Flows(usize),
    /// No source, or too many.
    #[error("flow {flow} has {sources} sources: 1 to 65,534 can be")]
    Sources {
        /// Index of the flow.
        flow: usize,
        /// Number of its sources.
        sources: usize,
    },
    /// Two sources cannot be told apart.
    #[error("flow {flow} has two sources at {address}: give each an address, or ports to all of them")]
    Twice {
        /// Index of the flow.
        flow: usize,
        /// Their common address.
        address: Address,
    },
    /// A packet without events.
    #[error("the packing factor of flow {flow} must be at least 1")]
    Packing {
        /// Index of the flow.
        flow: usize,
    },
    /// The sets do not fit together.
    #[error(
        "flow {flow}: {assembling} sets in assembly and {sets} in all: at least 1, and not more than in all (below 65,535)"
    )]
    Sets {
        /// Index of the flow.
        flow: usize,
        /// In assembly.
        assembling: u16,
        /// In all.
        sets: u16,
    },
    /// All flows together have too many sets.
    #[error("all flows together have 65,535 sets or more")]
    AllSets,
    /// The window is smaller than the number of sets in assembly.
    #[error("flow {flow}: the window of {window} sets must be at least the {assembling} in assembly")]
    Window {
        /// Index of the flow.
        flow: usize,
        /// The configured window, in sets.
        window: u32,
        /// Sets in assembly.
        assembling: u16,
    },
    /// Nothing fits into a push.
    #[error("pushes of {bytes} bytes: at least {least}, at most 65,543")]
    Push {
        /// The configured size in bytes.
        bytes: usize,
        /// The minimum.
        least: usize,
    },
    /// No node, or too many.
    #[error("a farm has 1 to 65,534 nodes, not {0}")]
    Nodes(u16),
    /// More outstanding events than decisions can name.
    #[error("a node has 1 to 256 events without a decision, not {0}")]
    Outstanding(u16),
    /// A node would count as silent before it could be heard.
    #[error("the silence must be longer than the heartbeat, and that longer than nothing")]
    Silence,
    /// The throttle would never be repeated, or would come too late.
    #[error("the throttle's state must be repeated after some time, and rates and sizes must not be negative")]
    Throttle,
}
