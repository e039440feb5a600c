//! Endpoint state common to all mechanisms: the table ([`Slots`]), the block that an endpoint receives into
//! ([`ReceiveBlock`]), its bounded send queue ([`SendQueue`]), and the ends of its two directions ([`Ends`]).
//!
//! ```text
//!            own: Open --finish--> Wanted --all is sent--> Shut
//!   the peer's ends:   half-close: reported, sending continues  both have ended: the endpoint's end
//!                      otherwise: the endpoint's end, unless the queue is still to be sent
//! ```

use std::collections::VecDeque;

use ropewalk_memory::{Loan, Owner, Pool, Slice};

use crate::endpoint::{Endpoint, Event, NO_GENERATION, SendError, SendLimits};

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values indexed by [`Endpoint`]. Freed indices are reused, last freed first, with the next generation.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Makes a table with room for `values` values.
    pub(crate) fn with_capacity(values: usize) -> Self {
        Self { slots: Vec::with_capacity(values), free: Vec::with_capacity(values) }
    }

    pub(crate) fn insert(&mut self, value: T) -> Endpoint {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Endpoint::new(index, slot.generation);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        // Reserves room for every index now, so that removing never allocates.
        self.free.reserve(self.slots.len());
        Endpoint::new(index, 0)
    }

    pub(crate) fn get(&self, endpoint: Endpoint) -> Option<&T> {
        let slot = self.slots.get(endpoint.index())?;
        if slot.generation == endpoint.generation() { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        let slot = self.slots.get_mut(endpoint.index())?;
        if slot.generation == endpoint.generation() { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        let slot = self.slots.get_mut(endpoint.index())?;
        if slot.generation != endpoint.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % NO_GENERATION;
        self.free.push(endpoint.0);
        Some(value)
    }

    /// The endpoint that uses this index now.
    pub(crate) fn at(&self, index: usize) -> Option<Endpoint> {
        let slot = self.slots.get(index)?;
        slot.value.as_ref().map(|_| Endpoint::new(index as u32, slot.generation))
    }

    /// One more than the largest index ever used.
    pub(crate) fn bound(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Endpoint, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (Endpoint::new(index as u32, slot.generation), value))
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

/// An endpoint's present block, and the source of the next one.
pub(crate) struct ReceiveBlock {
    loan: Option<Loan>,
    owner: Owner,
    /// Blocks that the user posted; `None` if blocks come from the pool.
    posted: Option<VecDeque<Loan>>,
    /// Whether there was no block at the last attempt.
    dry: bool,
}

impl ReceiveBlock {
    pub(crate) const fn new() -> Self {
        Self { loan: None, owner: Owner::SHARED, posted: None, dry: false }
    }

    /// Takes its blocks from this owner's quota, from the next one on.
    pub(crate) const fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
        // A block may be available now; if not, the next attempt shows it.
        self.dry = false;
    }

    /// Receives into this block, behind the blocks posted before, and no longer into blocks of the pool.
    pub(crate) fn post(&mut self, block: Loan) {
        if self.posted.is_none() {
            self.loan = None;
        }
        self.posted.get_or_insert_default().push_back(block);
        self.dry = false;
    }

    /// Whether the user posts the blocks.
    pub(crate) const fn is_posted(&self) -> bool {
        self.posted.is_some()
    }

    /// Returns the block to receive into: a new one of the pool if the present one's tail is smaller than `smallest`
    /// bytes, or the first posted one that is not full. `None` if the quota is used up or no posted block is left.
    pub(crate) fn get(&mut self, pool: &mut Pool, smallest: usize) -> Option<&mut Loan> {
        let smallest = if self.posted.is_some() { 1 } else { smallest.max(1) };
        if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < smallest) {
            // The old block is dropped first: it may be the last one of the quota.
            self.loan = None;
            self.loan = match &mut self.posted {
                Some(posted) => posted.pop_front(),
                None => pool.loan(self.owner),
            };
            self.dry = self.loan.is_none();
        }
        self.loan.as_mut()
    }

    /// Releases a full posted block, for which its user waits. Call it after each receive.
    pub(crate) fn release_full(&mut self) {
        if self.is_posted() && self.loan.as_ref().is_some_and(|loan| loan.spare_len() == 0) {
            self.loan = None;
        }
    }

    pub(crate) const fn is_dry(&self) -> bool {
        self.dry
    }

    /// Returns the blocks: nothing is received any more.
    pub(crate) fn give_back(&mut self) {
        self.loan = None;
        if let Some(posted) = &mut self.posted {
            posted.clear();
        }
        self.dry = false;
    }
}

/// Minimum number of bytes of a queued item, in most queues.
const USUAL_ITEM_BYTES: usize = 256;
/// Maximum number of items for which room is reserved at once.
const MOST_RESERVED: usize = 4096;

/// Slices, or other items, to send, bounded in bytes. Bytes count until they are *settled*: taken by the kernel, the
/// network or the peer, which may be later than their item left the queue.
pub(crate) struct SendQueue<T = Slice> {
    items: VecDeque<T>,
    unsettled: usize,
    limits: SendLimits,
    /// Whether it was high and has not been low since.
    is_above: bool,
    /// Whether the user does not know yet that it is high.
    is_untold: bool,
    /// Bytes of the last refused message, until the user learns that there is room for it.
    refused: Option<usize>,
}

impl<T> SendQueue<T> {
    pub(crate) fn new(bound: usize) -> Self {
        let limits = SendLimits::up_to(bound);
        Self { items: VecDeque::new(), unsettled: 0, limits, is_above: false, is_untold: false, refused: None }
    }

    /// Makes a queue with room for `items` items.
    pub(crate) fn with_room(bound: usize, items: usize) -> Self {
        Self { items: VecDeque::with_capacity(items), ..Self::new(bound) }
    }

    /// Sets other limits from now on. A user that sets limits sends much: the queue grows here, not while it sends.
    pub(crate) fn set_limits(&mut self, limits: SendLimits) {
        self.limits = limits;
        self.items.reserve((limits.bound / USUAL_ITEM_BYTES).min(MOST_RESERVED).saturating_sub(self.items.len()));
        self.look_up();
    }

    fn look_up(&mut self) {
        if !self.is_above && self.unsettled >= self.limits.high {
            (self.is_above, self.is_untold) = (true, true);
        }
    }

    /// Counts a message of `bytes` bytes, or refuses it. An empty queue accepts any size.
    pub(crate) fn admit(&mut self, bytes: usize) -> Result<(), SendError> {
        let is_full = self.unsettled > 0 && self.unsettled + bytes > self.limits.bound;
        if is_full {
            self.refused = Some(bytes);
            return Err(SendError::Full);
        }
        self.unsettled += bytes;
        self.look_up();
        Ok(())
    }

    /// Adds an item that was admitted.
    pub(crate) fn put(&mut self, item: T) {
        self.items.push_back(item);
    }

    /// Takes out the next item without settling it.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Number of remaining items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether all items have left the queue (not all of them need be settled).
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Settles bytes that left the queue before.
    pub(crate) fn settle(&mut self, bytes: usize) {
        self.unsettled -= bytes;
    }

    /// Bytes not yet settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Maximum bytes of a message that is not refused.
    pub(crate) fn room(&self) -> usize {
        if self.unsettled == 0 { usize::MAX } else { self.limits.bound.saturating_sub(self.unsettled) }
    }

    /// Whether [`SendQueue::tell`] has something to report.
    pub(crate) fn has_news(&self) -> bool {
        self.is_untold || self.is_low()
    }

    /// Whether there is room: the queue is low, and the refused message, if there is one, fits.
    fn is_low(&self) -> bool {
        let SendLimits { bound, low, .. } = self.limits;
        match self.refused {
            Some(bytes) => self.unsettled == 0 || (self.unsettled <= low && self.unsettled + bytes <= bound),
            None => self.is_above && self.unsettled <= low,
        }
    }

    /// Whether the user waits for the queue to become low.
    pub(crate) fn is_awaited(&self) -> bool {
        self.refused.is_some() || self.is_above
    }

    /// Reports that the queue is high, and that it is low, each once.
    pub(crate) fn tell(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) {
        if core::mem::take(&mut self.is_untold) {
            events.push(Event::SendQueueHigh { endpoint });
        }
        if self.is_low() {
            (self.refused, self.is_above) = (None, false);
            events.push(Event::SendQueueLow { endpoint });
        }
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
    /// The remaining slices in sending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slice> {
        self.items.iter()
    }

    /// Drops and settles the first `bytes` bytes, cutting the slice in which they end.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let Some(first) = self.items.front_mut() else { break };
            if first.len() > left {
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

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum OwnEnd {
    Open,
    /// [`Dispatcher::finish`](crate::Dispatcher::finish) was called: the queue is sent first.
    Wanted,
    Shut,
}

/// The ends of an endpoint's directions.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ends {
    half_close: bool,
    own: OwnEnd,
    /// Whether everything of the peer's direction was received.
    peer_finished: bool,
}

impl Ends {
    pub(crate) const fn new() -> Self {
        Self { half_close: false, own: OwnEnd::Open, peer_finished: false }
    }

    /// Whether the endpoint outlives the end of the peer's direction.
    pub(crate) const fn set_half_close(&mut self, half_close: bool) {
        self.half_close = half_close;
    }

    /// Marks the present queue as the last data to send.
    pub(crate) fn finish(&mut self) {
        if self.own == OwnEnd::Open {
            self.own = OwnEnd::Wanted;
        }
    }

    /// Whether messages are accepted.
    pub(crate) fn may_send(&self) -> bool {
        self.own == OwnEnd::Open
    }

    /// Whether bytes can still arrive.
    pub(crate) const fn may_receive(&self) -> bool {
        !self.peer_finished
    }

    /// Whether to end the own direction now, given whether everything is sent.
    pub(crate) fn must_shut(&self, is_sent: bool) -> bool {
        self.own == OwnEnd::Wanted && is_sent
    }

    /// Records that the own direction has been ended.
    pub(crate) const fn shut(&mut self) {
        self.own = OwnEnd::Shut;
    }

    /// Records that the peer's direction was received to its end. Reports that if the endpoint continues.
    pub(crate) fn peer_ended(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) {
        if !self.peer_finished && self.half_close && self.own == OwnEnd::Open {
            events.push(Event::Finished { endpoint });
        }
        self.peer_finished = true;
    }

    /// Whether both directions have ended, or the peer's has and the own one is not to continue.
    pub(crate) fn are_over(&self) -> bool {
        self.peer_finished
            && match self.own {
                OwnEnd::Open => !self.half_close,
                OwnEnd::Wanted => false,
                OwnEnd::Shut => true,
            }
    }
}

#[cfg(test)]
mod tests {

    use ropewalk_memory::{Owner, Pool, PoolConfig};

    use super::*;

    #[test]
    fn an_ended_endpoint_never_reaches_its_successor() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(second.index(), first.index());
        assert_ne!(second, first);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&'b')));
        assert_eq!((slots.remove(first), slots.at(0)), (None, Some(second)));
        assert_eq!((slots.bound(), slots.values().count()), (1, 1));
    }

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

    /// The reports that the user gets now: true for a high queue, false for a low one.
    fn told(queue: &mut SendQueue) -> Vec<bool> {
        let mut events = Vec::new();
        let has_news = queue.has_news();
        queue.tell(Endpoint::new(0, 0), &mut events);
        assert_eq!((has_news, queue.has_news()), (!events.is_empty(), false));
        events.iter().map(|event| matches!(event, Event::SendQueueHigh { .. })).collect()
    }

    #[test]
    fn each_refusal_is_followed_by_one_call_to_go_on_when_the_message_fits() {
        let mut queue = SendQueue::new(100);
        assert_eq!(queue.push(&mut message(90, 40)), Ok(()));
        assert_eq!(told(&mut queue), [false; 0], "nothing was refused");
        assert_eq!(queue.push(&mut message(80, 40)), Err(SendError::Full));
        queue.advance(45);
        assert_eq!(told(&mut queue), [false; 0], "half full, but the message would be refused again");
        queue.advance(25);
        assert!(queue.is_awaited());
        assert_eq!((told(&mut queue), told(&mut queue)), (vec![false], vec![]));
        assert_eq!(queue.push(&mut message(80, 40)), Ok(()));
    }

    #[test]
    fn a_queue_that_passes_its_high_mark_says_so_once_until_it_is_low() {
        let mut queue = SendQueue::new(100);
        queue.set_limits(SendLimits { bound: 100, high: 60, low: 10 });
        assert_eq!(queue.push(&mut message(59, 59)), Ok(()));
        assert_eq!(told(&mut queue), [false; 0]);
        assert_eq!(queue.push(&mut message(1, 1)), Ok(()));
        assert_eq!(told(&mut queue), [true]);
        assert_eq!(queue.push(&mut message(10, 10)), Ok(()));
        queue.advance(59);
        assert_eq!(told(&mut queue), [false; 0], "neither higher nor low");
        queue.advance(1);
        assert_eq!(told(&mut queue), [false]);
        assert_eq!(queue.push(&mut message(80, 80)), Ok(()));
        queue.advance(90);
        assert_eq!(told(&mut queue), [true, false], "also where it was high only between two looks");
    }
}
