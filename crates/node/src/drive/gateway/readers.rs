//! Readers of a flow's decisions.

use super::connections::Connections;
use super::link::Link;
use ropewalk_io::Dispatcher;

/// A link to the readers of a flow's decisions, who connect when they like, and of whom nothing is heard.
pub trait DecisionReaders: Link {
    /// Sends the message to everybody who is connected. Who takes so little that it does not fit into his queue is cut off:
    /// a stream with a gap would be worse than its end.
    fn tell(&mut self, message: &[u8]);

    /// How many were cut off.
    fn cut_off(&self) -> u64;
}

impl<D: Dispatcher> DecisionReaders for Connections<D> {
    fn tell(&mut self, message: &[u8]) {
        self.send_to_all(message);
    }

    fn cut_off(&self) -> u64 {
        self.cut_off()
    }
}
