//! Drives of a push system: they connect `flow::gateway`'s state machines to `io::packet`.
//!
//! ```text
//!  PacketSourceDrive --multi-event packets--> GatewayDrive --events--> FarmNodeDrive
//!   trigger, sources  <--throttle, requests,    |    ^  <--credit, decisions--
//!   of one flow          decision stream--------+    |
//!                                               accepted events -> EventSink -> io::disk
//! ```
//! All messages are datagrams that may be lost, which the state machines expect. TCP between gateways and nodes
//! ([`Connections`]) therefore gives no stronger guarantee. Nodes need not be configured: a gateway replies to the
//! address from which a node's credit came.
//!
//! An input queue of a gateway has two halves. `receiving` assembles sets of events from packets. `sending` sends them
//! to nodes, receives decisions, stores events, and copies events for viewers; without a farm it decides through an
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
    /// Returns how an event is copied into the send buffer, if it is.
    const fn copying(self) -> Option<Copying> {
        match self {
            Self::Iovec => None,
            Self::Memcpy => Some(Copying::Library),
            Self::ShortCopy => Some(Copying::Short),
        }
    }
}

/// Configuration of the drives of an input queue.
#[derive(Debug)]
pub struct GatewayDriveConfig {
    /// Configuration of the state machine.
    pub machine: GatewayConfig,
    /// How events are assembled.
    pub gathering: Gathering,
    /// Address of each flow's trigger, if it has one.
    pub triggers: Vec<Option<SocketAddrV4>>,
    /// Whether the trigger waits for requests for packets.
    pub requests: bool,
    /// The current run.
    pub run: RunNumber,
    /// Time of day at zero of the monotonic clock.
    pub epoch: Utc,
    /// Progress of each flow's trigger, if it is known. After its last event the flow has ended.
    pub gates: Vec<Option<Arc<TriggerGate>>>,
    /// Whether run control holds the trigger: before the run begins, and while it is paused.
    pub is_held: Arc<AtomicBool>,
    /// Orders of run control during the run.
    pub orders: Arc<OrderBoard>,
    /// Report of the contents of users' histograms.
    pub histograms: Notice<GatewayHistograms>,
    /// Set when the other flows have ended.
    pub is_over: Arc<AtomicBool>,
    /// Time-out for the end after that.
    pub drain: Duration,
    /// Maximum number of packets that an input hands on at once.
    pub batch: usize,
    /// Receive memory of each input, in bytes. The throttle watches the fullest.
    pub memory: u64,
    /// Share of held memory, in percent, above which packets are copied out of it.
    pub evacuate_above: usize,
}
