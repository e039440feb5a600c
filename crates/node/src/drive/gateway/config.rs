//! What a gateway's drives are told before the run.

use super::histograms::GatewayHistograms;
use super::order_board::OrderBoard;
use super::report::Notice;
use ropewalk_flow::gateway::GatewayConfig;
use ropewalk_flow::source::TriggerGate;
use ropewalk_terms::{RunNumber, Utc};
use ropewalk_wire::gateway::Copying;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How an event is put together for sending.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Gathering {
    /// The kernel, or the card, gathers it from where its pieces lie.
    Iovec,
    /// It is copied to where it leaves from.
    Copy(Copying),
}

/// What the drives of an input queue are told before the run.
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
    /// Whoever controls the run holds the trigger while this is set: before it begins, and while it is paused.
    pub is_held: Arc<AtomicBool>,
    /// What is said while the run goes on.
    pub orders: Arc<OrderBoard>,
    /// Where is told what users' histograms hold.
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
