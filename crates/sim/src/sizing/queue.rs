//! What happens next: the simulator's queue of steps, ordered by time, and by arrival among equal times.

use ropewalk_flow::messages::Message;
use ropewalk_terms::NodeId;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A control message and its sender.
pub(super) type Letter = Box<(NodeId, Message)>;

/// What happens.
pub(super) enum Step {
    /// A front-end link looks whether its sources were triggered.
    Gather { link: u32 },
    /// The last bit of a sender's packet is in the switch.
    Sent { network: Side, sender: u32 },
    /// The last bit of a packet has left a port of the switch.
    Forwarded { network: Side, port: u32 },
    /// So many bytes of a flow are in the receiver's memory.
    Arrived { network: Side, flow: u32, bytes: u32 },
    /// The sender of a flow hears that the receiver has room again.
    Opened { network: Side, flow: u32 },
    /// The sender of a flow has waited long enough for what was lost.
    Resend { network: Side, flow: u32 },
    /// A control message arrives at a unit.
    Control { unit: u32, letter: Letter },
    /// A host has done the work of its turn.
    TurnEnd { host: u32 },
    /// A filter unit has decided about an event.
    Filtered { builder: u32, slot: u32 },
    /// An event is on the disk.
    Written { builder: u32, slot: u32 },
}

/// Which of the two networks.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    /// From the front ends to the readout units.
    Front,
    /// From the readout units to the builder units.
    Event,
}

/// A step to come, ordered by time and arrival alone.
struct Entry<S> {
    at: u64,
    sequence: u64,
    step: S,
}

impl<S> Ord for Entry<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<S> PartialOrd for Entry<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> PartialEq for Entry<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S> Eq for Entry<S> {}

/// Steps to come: of a system that pulls, or of one that pushes.
pub(super) struct Queue<S = Step> {
    steps: BinaryHeap<Reverse<Entry<S>>>,
    sequence: u64,
    taken: u64,
}

impl<S> Queue<S> {
    pub(super) const fn new() -> Self {
        Self { steps: BinaryHeap::new(), sequence: 0, taken: 0 }
    }

    /// Lets a step happen at a time, in nanoseconds; one in the past happens at once.
    pub(super) fn push(&mut self, at: u64, step: S) {
        self.sequence += 1;
        self.steps.push(Reverse(Entry { at, sequence: self.sequence, step }));
    }

    /// The next step and its time.
    pub(super) fn pop(&mut self) -> Option<(u64, S)> {
        let Reverse(Entry { at, step, .. }) = self.steps.pop()?;
        self.taken += 1;
        Some((at, step))
    }

    /// Steps taken so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_the_order_of_their_times_and_equal_times_in_the_order_of_arrival() {
        let mut queue = Queue::new();
        for (number, at) in [700, 300, 700, 40_000_000, 300, 0].into_iter().enumerate() {
            queue.push(at, number);
        }
        let order: Vec<(u64, usize)> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(0, 5), (300, 1), (300, 4), (700, 0), (700, 2), (40_000_000, 3)]);
        assert_eq!(queue.taken(), 6);
    }
}
