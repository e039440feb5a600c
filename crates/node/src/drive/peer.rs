//! Who is connected to a readout unit: event managers and builder units.

use super::reader::MessageReader;
use ropewalk_io::Endpoint;
use ropewalk_terms::{Incarnation, Instant, NodeId};

/// What is at the other end of an endpoint between nodes.
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) reader: MessageReader,
    pub(super) node: Option<NodeId>,
    /// Of a builder unit: in which life it said hello.
    pub(super) life: Option<Incarnation>,
    /// When it spoke last.
    pub(super) heard: Instant,
}

impl Peer {
    pub(super) fn new(now: Instant, endpoint: Endpoint, node: Option<NodeId>) -> Self {
        Self { endpoint, reader: MessageReader::default(), node, life: None, heard: now }
    }

    /// Since when it says nothing that makes it known; nothing of one that is.
    pub(super) fn unknown_since(&self) -> Option<Instant> {
        self.node.is_none().then_some(self.heard)
    }
}
