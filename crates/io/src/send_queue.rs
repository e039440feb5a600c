//! The bounded send queue that every mechanism keeps for each endpoint.

use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::VecDeque;

use ropewalk_memory::Slice;

use crate::endpoint::SendError;

/// Slices, or other items, to send, bounded in bytes. Bytes count until they are *settled*: taken by the kernel, the
/// network or the peer, which may be later than when their item left the queue.
pub(crate) struct SendQueue<T = Slice> {
    items: VecDeque<T>,
    unsettled: usize,
    bound: usize,
    /// The size of the message that was refused last, until the user is told that there is room for it.
    refused: Option<usize>,
}

impl<T> SendQueue<T> {
    pub(crate) fn new(bound: usize) -> Self {
        Self { items: VecDeque::new(), unsettled: 0, bound, refused: None }
    }

    /// The same with room for so many items from the start.
    pub(crate) fn with_room(bound: usize, items: usize) -> Self {
        Self { items: VecDeque::with_capacity(items), ..Self::new(bound) }
    }

    /// Counts a message of so many bytes, or refuses it. An empty queue takes any size.
    pub(crate) fn admit(&mut self, bytes: usize) -> Result<(), SendError> {
        if self.unsettled > 0 && self.unsettled + bytes > self.bound {
            self.refused = Some(bytes);
            return Err(SendError::Full);
        }
        self.unsettled += bytes;
        Ok(())
    }

    /// Puts an item in that was admitted.
    pub(crate) fn put(&mut self, item: T) {
        self.items.push_back(item);
    }

    /// The next item, out of the queue but not settled.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// How many items are still here.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether every item left the queue (not all of them need be settled).
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Counts bytes as taken that left the queue before.
    pub(crate) fn settle(&mut self, bytes: usize) {
        self.unsettled -= bytes;
    }

    /// Bytes not yet settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Bytes that a message may have without being refused.
    pub(crate) fn room(&self) -> usize {
        if self.unsettled == 0 { usize::MAX } else { self.bound.saturating_sub(self.unsettled) }
    }

    /// Whether a message was refused and the user was not yet told that there is room.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether the user is to be told that there is room: when the queue is at most half full and the
    /// message that was refused fits.
    pub(crate) fn is_low(&self) -> bool {
        self.refused.is_some_and(|bytes| {
            self.unsettled == 0 || (self.unsettled <= self.bound / 2 && self.unsettled + bytes <= self.bound)
        })
    }

    /// Like [`SendQueue::is_low`], but true only once for each refusal.
    pub(crate) fn take_low(&mut self) -> bool {
        let low = self.is_low();
        if low {
            self.refused = None;
        }
        low
    }
}

impl<T: From<Slice>> SendQueue<T> {
    /// Takes the whole message or nothing.
    pub(crate) fn push(&mut self, message: &mut Vec<Slice>) -> Result<(), SendError> {
        self.admit(message.iter().map(|slice| slice.len()).sum())?;
        self.items.extend(message.drain(..).filter(|slice| !slice.is_empty()).map(T::from));
        Ok(())
    }
}

impl SendQueue<Slice> {
    /// The slices still here, first to send first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slice> {
        self.items.iter()
    }

    /// Drops and settles the first `bytes` bytes, cutting the slice in which they end.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let Some(first) = self.items.front_mut() else { break };
            if first.len() > left && !is_planted(Flaw::PartialSendForgotten) {
                drop(first.split_to(left));
                left = 0;
            } else {
                left = left.saturating_sub(first.len());
                self.items.pop_front();
            }
        }
        self.settle(bytes - left);
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_memory::{Owner, Pool, PoolConfig};

    use super::*;

    fn message(length: usize, cut: usize) -> Vec<Slice> {
        let mut pool = Pool::new(PoolConfig::heap("source", 1000, 1)).expect("memory for a test");
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        loan.commit(length);
        let Some(mut rest) = loan.split_committed() else { return Vec::new() };
        let mut slices = Vec::new();
        while rest.len() > cut {
            slices.push(rest.split_to(cut));
        }
        slices.push(rest);
        slices
    }

    #[test]
    fn a_message_is_taken_whole_or_not_at_all_and_an_empty_queue_takes_any() {
        let mut queue = SendQueue::new(100);
        assert_eq!((queue.push(&mut message(500, 40)), queue.unsettled(), queue.len()), (Ok(()), 500, 13));
        let mut refused = message(1, 1);
        assert_eq!((queue.push(&mut refused), refused.len()), (Err(SendError::Full), 1));
        queue.advance(500);
        assert_eq!((queue.unsettled(), queue.is_empty(), queue.room()), (0, true, usize::MAX));
    }

    #[test]
    fn what_was_sent_in_part_goes_on_at_the_cut() {
        let mut queue = SendQueue::new(100);
        assert_eq!(queue.push(&mut message(90, 40)), Ok(()));
        queue.advance(50);
        let lengths: Vec<usize> = queue.iter().map(|slice| slice.len()).collect();
        assert_eq!((lengths, queue.unsettled(), queue.room()), (vec![30, 10], 40, 60));
    }

    #[test]
    fn each_refusal_is_followed_by_one_call_to_go_on_when_the_message_fits() {
        let mut queue = SendQueue::new(100);
        assert_eq!(queue.push(&mut message(90, 40)), Ok(()));
        assert!(!queue.take_low(), "nothing was refused");
        assert_eq!(queue.push(&mut message(80, 40)), Err(SendError::Full));
        queue.advance(45);
        assert!(!queue.take_low(), "half full, but the message would be refused again");
        queue.advance(25);
        assert!(queue.has_refused() && queue.take_low() && !queue.take_low());
        assert_eq!(queue.push(&mut message(80, 40)), Ok(()));
    }
}
