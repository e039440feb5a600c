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
    /// The partition that its packets belong to.
    pub partition: u32,
    /// The first event of the run; sets begin there and every `packing` events behind.
    pub first_event: u64,
    /// Sets of events held at once: in assembly, waiting for nodes, waiting for decisions.
    pub sets: u16,
    /// Sets in assembly at once; one more closes the oldest. At most `sets`.
    pub assembling: u16,
    /// Sets behind the newest one that are still told apart, so that a duplicate is known from a late packet; older ones are
    /// late. Those of other gateways count. Rounded up to a power of two.
    pub window: u32,
    /// How long a set waits for its packets.
    pub timeout: Duration,
    /// What becomes of incomplete sets.
    pub incomplete: Incomplete,
    /// Where decisions lead.
    pub output: Output,
    /// How long a finished set waits for the decisions on its events.
    pub decision_timeout: Duration,
    /// And what is decided then.
    pub default_decision: DefaultDecision,
    /// Within this time from an event's first packet its decision should be there; how many were is counted.
    pub budget: Duration,
    /// What is counted of sources' fragments, as a user has asked for; sources that are none of its own count for nothing.
    pub histograms: Vec<HistogramConfig>,
}

impl FlowConfig {
    /// A flow with these sources and settings that fit a small system: 256 sets, 64 of them in assembly, time-outs of 100 ms
    /// and 1 s, incomplete events emitted, accepted events to storage, rejected by default, a budget of 50 ms.
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

    /// The addresses of its sources, then of the masked ones.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        self.sources.iter().map(|source| source.address).chain(self.masked.iter().copied())
    }

    /// An address that two sources have.
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

/// The nodes and how they are fed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmConfig {
    /// Number of nodes; 0 if the gateway decides itself.
    pub nodes: u16,
    /// Events that the gateway itself has in work at once, if it decides.
    pub local_events: u32,
    /// The longest push, in bytes of a datagram's payload: what the sending MTU leaves.
    pub largest_push: usize,
    /// The most events that one node may have without a decision, however much room it says it has.
    pub most_outstanding: u16,
    /// A node that says nothing for so long has no credit, and its events go to others.
    pub silence: Duration,
    /// How often a node hears which sequence numbers there are, when nothing is pushed to it.
    pub heartbeat: Duration,
}

impl FarmConfig {
    /// So many nodes behind Ethernet's usual MTU (1,500 bytes less IPv4 and UDP): 64 events outstanding each, silent after 1 s.
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
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The run, for requests to the trigger.
    pub run: u32,
    /// Its flows; the first one is served first.
    pub flows: Vec<FlowConfig>,
    /// Its nodes.
    pub farm: FarmConfig,
    /// When it asks for fewer triggers.
    pub throttle: ThrottleConfig,
}

impl GatewayConfig {
    /// A gateway with these flows and nodes.
    pub fn new(gateway: u16, flows: Vec<FlowConfig>, farm: FarmConfig) -> Self {
        Self { gateway, incarnation: Incarnation(1), run: 1, flows, farm, throttle: ThrottleConfig::default() }
    }

    /// What a receive queue should have room for when the trigger is asked to stop: packets of these flows, each of which is counted
    /// as `packet`, until no more comes, also if the trigger stops only because it does not hear the gateway any more. None
    /// where it is not known how often they come.
    pub fn wanted_queue(&self, flows: &[u8], packet: u64) -> Option<u64> {
        let throttle = &self.throttle;
        let packets = |flow: &u8| {
            let index = usize::from(*flow);
            let (known, rate) =
                (self.flows.get(index)?, throttle.event_rates_hz.get(index).filter(|rate| **rate > 0.0)?);
            let sources = (known.sources.len() + known.masked.len()) as u64;
            let sets = headroom(throttle.latency + throttle.silence, *rate, 1.0 / f64::from(known.packing));
            // One set more: one that is only begun is sent whole.
            Some((sets + 1) * sources)
        };
        let all: Option<u64> = flows.iter().map(packets).sum();
        all.map(|packets| packets.saturating_mul(packet))
    }

    /// Checks what [`Gateway::new`](super::Gateway::new) relies on.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
