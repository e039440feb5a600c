//! What became of the chunks that were meant for a subscriber.

use ropewalk_terms::ByCause;

/// Counts of one subscriber since it joined, or of many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriberAccount {
    /// Chunks of its e-links that its sample left out. They are in no other count.
    pub passed_over: u64,
    /// Chunks that were meant for it.
    pub offered: u64,
    /// Chunks that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Chunks that were dropped, by cause.
    pub dropped: ByCause,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Chunks that others of its group took over when it went.
    pub moved: u64,
    /// Chunks that wait: counted from the queue.
    pub queued: u64,
}

impl SubscriberAccount {
    /// Whether every chunk is where it should be.
    pub fn is_balanced(&self) -> bool {
        self.offered == self.sent + self.dropped.total() + self.moved + self.queued
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        self.passed_over += other.passed_over;
        self.offered += other.offered;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.dropped.merge(&other.dropped);
        self.dropped_bytes += other.dropped_bytes;
        self.moved += other.moved;
        self.queued += other.queued;
    }
}
