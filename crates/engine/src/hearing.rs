//! When the event manager last heard the other nodes. A node that is connected and does not report hangs or is stopped.

use ropewalk_terms::{Instant, NodeId};
use std::time::Duration;

/// When the event manager last heard the other nodes.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// Time of the manager's own last turn.
    pub turned: Option<Instant>,
    /// When each connected node was last heard.
    pub heard: Vec<(NodeId, Instant)>,
    /// Interval at which nodes report; 0 if it was not changed.
    pub interval: Duration,
}

impl Hearing {
    /// Copies `other` into this value. Allocates only where `other` has grown.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        (self.turned, self.interval) = (other.turned, other.interval);
        self.heard.clone_from(&other.heard);
    }
}
