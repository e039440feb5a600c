//! Readers of a flow's decisions.

use super::connections::Connections;
use super::link::Link;
use ropewalk_io::Dispatcher;
use ropewalk_io::packet::Packet;
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;

/// Readers of a flow's decisions, who connect when they like.
pub trait DecisionReaders {
    /// Sends the message to everybody who is connected. Who takes so little that it does not fit into his queue is cut off:
    /// a stream with a gap would be worse than its end.
    fn tell(&mut self, message: &[u8]);

    /// Takes and ends connections, and sends what is queued.
    fn turn(&mut self, now: Instant) -> usize;

    /// Whether somebody has not got all of it yet.
    fn is_queued(&self) -> bool;

    /// To be called before the thread sleeps: false if there is something to do right now.
    fn prepare_wait(&mut self) -> bool;

    /// Readable when there is something to do.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// When there is something to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;

    /// How many were cut off.
    fn cut_off(&self) -> u64;
}

impl<D: Dispatcher> DecisionReaders for Connections<D> {
    fn tell(&mut self, message: &[u8]) {
        self.send_to_all(message);
    }

    fn turn(&mut self, now: Instant) -> usize {
        // They have nothing to say.
        let mut said: Vec<Packet> = Vec::new();
        self.receive(now, &mut said) + self.flush(now)
    }

    fn is_queued(&self) -> bool {
        Link::is_queued(self)
    }

    fn prepare_wait(&mut self) -> bool {
        Link::prepare_wait(self)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Link::wait_descriptor(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        Link::next_deadline(self)
    }

    fn cut_off(&self) -> u64 {
        self.cut_off()
    }
}
