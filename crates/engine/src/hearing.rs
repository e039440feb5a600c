//! When the event manager heard the other nodes: one that is connected and does not report hangs or is stopped.

use ropewalk_terms::{Instant, NodeId};
use std::time::Duration;

/// When the event manager heard the other nodes.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// When it had its last turn itself.
    pub turned: Option<Instant>,
    /// When it heard each connected node last.
    pub heard: Vec<(NodeId, Instant)>,
    /// How often nodes report; 0 if that was not changed.
    pub interval: Duration,
}

impl Hearing {
    /// Becomes equal to `other`; allocates only where that has grown.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        (self.turned, self.interval) = (other.turned, other.interval);
        self.heard.clone_from(&other.heard);
    }
}
