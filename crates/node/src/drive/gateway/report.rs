//! What a gateway tells of itself while it runs.

use crate::drive::StorageCounts;
use ropewalk_flow::gateway::{FarmAccount, FlowAccount};
use ropewalk_io::packet::{ReceiveCounters, SendCounters};
use ropewalk_wire::gateway::ThrottleState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One flow of a gateway.
#[derive(Copy, Clone, Debug, Default)]
pub struct InputReport {
    /// What its sockets counted.
    pub received: ReceiveCounters,
    /// What became of its packets.
    pub packets: FlowAccount,
    /// What became of its events.
    pub events: FarmAccount,
}

/// A gateway, or one input queue of it.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    /// Its flows.
    pub flows: Vec<InputReport>,
    /// What was sent to nodes: events and messages.
    pub sent: SendCounters,
    /// What was written; none where nothing is to be.
    pub storage: Option<StorageCounts>,
    /// Accepted events that could not be written: the disk was given up.
    pub not_written: u64,
    /// What the throttle says.
    pub state: ThrottleState,
    /// How long triggers could come.
    pub live: Duration,
    /// How long they could not.
    pub dead: Duration,
    /// How long each level stopped the trigger, and how often: the flows, the memory, out of sync, error.
    pub stops: Vec<(Duration, u64)>,
    /// Packets that were copied because too much of their memory was held.
    pub evacuated: u64,
    /// It has ended: nothing is in flight, files are closed.
    pub is_over: bool,
}

/// A value that a thread renews and others read.
#[derive(Debug, Default)]
pub struct Notice<T>(Arc<Mutex<T>>);

impl<T> Clone for Notice<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Notice<T> {
    /// What was said last.
    pub fn read(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renews it in place: held for a copy of some numbers, twenty times a second.
    pub(super) fn renew(&self, renew: impl FnOnce(&mut T)) {
        renew(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
