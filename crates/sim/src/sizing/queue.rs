//! What happens next: the simulator's queue of steps, ordered by time, and by arrival among equal times.
//!
//! ```text
//!  now --> [ current bucket, a heap ][ bucket ][ bucket ] ... 4 ms ... | far away: a heap
//! ```
//! Nearly every step lies some microseconds ahead. It is put into its bucket without a comparison, and only the steps
//! of the current bucket, a few dozen, are kept in order. Buckets keep their capacity: no allocation per step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A bucket is 2^10 ns wide.
const WIDTH_BITS: u32 = 10;
/// Buckets, a power of two: 4.2 ms ahead.
const BUCKETS: u64 = 4096;

/// What happens.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    Control { unit: u32, message: u32 },
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

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry<S> {
    at: u64,
    /// The order among equal times.
    sequence: u64,
    step: S,
}

/// Steps to come: of a system that pulls, or of one that pushes.
#[derive(Debug)]
pub(super) struct Queue<S = Step> {
    current: BinaryHeap<Reverse<Entry<S>>>,
    /// Number of the current bucket since the beginning.
    tick: u64,
    buckets: Box<[Vec<Reverse<Entry<S>>>]>,
    /// One bit for each bucket that holds something.
    filled: Box<[u64]>,
    far: BinaryHeap<Reverse<Entry<S>>>,
    sequence: u64,
    taken: u64,
}

impl<S: Copy + Ord> Queue<S> {
    pub(super) fn new() -> Self {
        Self {
            current: BinaryHeap::new(),
            tick: 0,
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            filled: vec![0; BUCKETS as usize / 64].into_boxed_slice(),
            far: BinaryHeap::new(),
            sequence: 0,
            taken: 0,
        }
    }

    /// Lets a step happen at a time, in nanoseconds; one in the past happens at once.
    #[inline]
    pub(super) fn push(&mut self, at: u64, step: S) {
        self.sequence += 1;
        self.place(Reverse(Entry { at, sequence: self.sequence, step }));
    }

    fn place(&mut self, entry: Reverse<Entry<S>>) {
        let tick = entry.0.at >> WIDTH_BITS;
        if tick <= self.tick {
            self.current.push(entry);
        } else if tick < self.tick + BUCKETS {
            let bucket = (tick % BUCKETS) as usize;
            self.buckets[bucket].push(entry);
            self.filled[bucket / 64] |= 1 << (bucket % 64);
        } else {
            self.far.push(entry);
        }
    }

    /// The next step and its time.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, S)> {
        loop {
            if let Some(Reverse(entry)) = self.current.pop() {
                self.taken += 1;
                return Some((entry.at, entry.step));
            }
            self.turn_to(self.next_tick()?);
        }
    }

    /// Steps taken so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// The number of the next bucket that holds something.
    fn next_tick(&self) -> Option<u64> {
        let far = self.far.peek().map(|entry| entry.0.at >> WIDTH_BITS);
        let first = (self.tick + 1) % BUCKETS;
        // The word of the first bucket is looked at twice: its lower bits belong to the end of the round.
        let words = self.filled.len() as u64;
        let near = (0..=words).find_map(|offset| {
            let word = (first / 64 + offset) % words;
            let bits = self.filled[word as usize];
            let bits = if offset == 0 { bits & (u64::MAX << (first % 64)) } else { bits };
            (bits != 0).then(|| (word * 64 + u64::from(bits.trailing_zeros()) + BUCKETS - first) % BUCKETS)
        });
        let near = near.map(|ahead| self.tick + 1 + ahead);
        near.into_iter().chain(far).min()
    }

    fn turn_to(&mut self, tick: u64) {
        self.tick = tick;
        let bucket = (tick % BUCKETS) as usize;
        if self.filled[bucket / 64] & (1 << (bucket % 64)) != 0 {
            self.filled[bucket / 64] &= !(1 << (bucket % 64));
            let mut entries = std::mem::take(&mut self.current).into_vec();
            entries.append(&mut self.buckets[bucket]);
            self.current = BinaryHeap::from(entries);
        }
        while self.far.peek().is_some_and(|entry| entry.0.at >> WIDTH_BITS < tick + BUCKETS) {
            if let Some(entry) = self.far.pop() {
                self.place(entry);
            }
        }
    }
}

/// What is on its way, by place; places are used again.
#[derive(Debug)]
pub(super) struct Mail<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Mail<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Keeps something until it is taken.
    pub(super) fn keep(&mut self, what: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[place as usize] = Some(what);
        place
    }

    /// What arrives.
    pub(super) fn read(&self, place: u32) -> &T {
        self.places[place as usize].as_ref().expect("what arrives was kept")
    }

    /// What has arrived: its place is free.
    pub(super) fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize].take().expect("what arrives was kept")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::source::Random;

    fn step(link: u32) -> Step {
        Step::Gather { link }
    }

    #[test]
    fn steps_come_in_the_order_of_their_times_wherever_they_lay() {
        let mut random = Random::new(7, 0);
        let mut queue = Queue::new();
        let (mut now, mut waiting) = (0, 0_u32);
        for round in 0..20_000_u32 {
            // Some at once, most soon, a few beyond all buckets.
            let ahead = [0, 300, 40_000, 5_000_000, 90_000_000][random.below(5) as usize];
            queue.push(now + random.below(ahead + 1), step(round));
            waiting += 1;
            if random.below(2) == 0 {
                let (at, _) = queue.pop().expect("more was pushed than taken");
                assert!(at >= now, "{at} after {now}");
                now = at;
                waiting -= 1;
            }
        }
        while let Some((at, _)) = queue.pop() {
            assert!(at >= now);
            now = at;
            waiting -= 1;
        }
        assert_eq!(waiting, 0);
    }

    #[test]
    fn equal_times_keep_the_order_in_which_they_came() {
        let mut queue = Queue::new();
        for link in 0..100 {
            queue.push(7_000_000, step(link));
        }
        let order: Vec<Step> = std::iter::from_fn(|| queue.pop()).map(|(_, step)| step).collect();
        assert_eq!(order, (0..100).map(step).collect::<Vec<_>>());
        assert_eq!(queue.taken(), 100);
    }
}
