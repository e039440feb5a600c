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
//! hears decisions, stores events, and copies events for viewers; without a farm it decides through an
//! [`EventOutput`](super::EventOutput), as a builder unit does. `queue` runs both to completion on one thread,
//! `threads` gives each a thread.

mod boards;
mod farm_node;
mod link;
mod lumisections;
mod queue;
mod receiving;
mod report;
mod sending;
mod sources;
mod threads;

pub use boards::{Order, OrderBoard, Read, Shown, ThrottleBoard};
pub use farm_node::{
    EmulatedFilterConfig, FarmNodeDrive, FarmNodeDriveConfig, FarmNodeReport, NodeFilterConfig, Outage,
};
pub use link::{Callers, Connections, Datagrams, DecisionReaders, Link};
pub use lumisections::{LumisectionBoard, LumisectionDrive, LumisectionLine};
pub use queue::GatewayDrive;
pub use receiving::ReceivingParts;
pub use report::{CellsBySource, FlowReport, GatewayHistograms, GatewayReport, MaskedSource, Notice};
use ropewalk_flow::gateway::GatewayConfig;
use ropewalk_flow::source::TriggerGate;
use ropewalk_terms::{RunNumber, Utc};
use ropewalk_wire::gateway::Copying;
use schemars::JsonSchema;
pub use sending::SendingParts;
use serde::{Deserialize, Serialize};
pub use sources::{PacketSourceDrive, PacketSourceDriveConfig, PacketSourceReport};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
pub use threads::{Halves, HalvesError, ReceivingDrive, SendingDrive, halves};

/// How an event is assembled for sending (paper 1, Table III).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gathering {
    /// The kernel gathers it from a list of places.
    Iovec,
    /// It is copied by the copy routine of the library.
    Memcpy,
    /// It is copied by a routine for fragments of about 32 to 100 bytes.
    #[default]
    ShortCopy,
}

impl Gathering {
    /// How an event is copied to where it leaves from, if it is.
    const fn copying(self) -> Option<Copying> {
        match self {
            Self::Iovec => None,
            Self::Memcpy => Some(Copying::Library),
            Self::ShortCopy => Some(Copying::Short),
        }
    }
}

/// What the drives of an input queue get before the run.
#[derive(Debug)]
pub struct GatewayDriveConfig {
    /// The machine's part.
    pub machine: GatewayConfig,
    /// How events are put together.
    pub gathering: Gathering,
    /// Where each flow's trigger listens, if there is one.
    pub triggers: Vec<Option<SocketAddrV4>>,
    /// The trigger waits to be asked for packets.
    pub requests: bool,
    /// The run that it takes.
    pub run: RunNumber,
    /// The time of day when the monotonic clock stood at zero.
    pub epoch: Utc,
    /// How far each flow's trigger has come, where that is known: behind its last event the flow has ended.
    pub gates: Vec<Option<Arc<TriggerGate>>>,
    /// Run control holds the trigger while this is set: before the run begins, and while it is paused.
    pub is_held: Arc<AtomicBool>,
    /// Orders of run control during the run.
    pub orders: Arc<OrderBoard>,
    /// Where the contents of users' histograms are reported.
    pub histograms: Notice<GatewayHistograms>,
    /// The other flows have ended when this is set.
    pub is_over: Arc<AtomicBool>,
    /// How long it may take to end behind that.
    pub drain: Duration,
    /// Packets that an input hands on at most.
    pub batch: usize,
    /// Memory of each input that packets are received into, in bytes: the throttle watches the fullest.
    pub memory: u64,
    /// Above this share of held memory, in percent, packets are copied out of it.
    pub evacuate_above: usize,
}
