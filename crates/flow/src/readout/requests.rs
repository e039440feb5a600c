//! What the builder units want: one queue each, answered in turn, so that none waits behind another's backlog.

use super::super::messages::RequestEntry;
use std::collections::VecDeque;

/// The most requests of one builder unit that wait for their answer; its credit keeps it far below.
const MOST: usize = 1 << 16;

/// Room that is laid out for each builder unit before the run.
const USUAL: usize = 1024;

/// Whether a request can be answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ready<T> {
    /// It can, with this.
    Now(T),
    /// Its event is not settled.
    Later,
}

#[derive(Debug)]
struct Queue {
    ready: VecDeque<RequestEntry>,
    /// Their events were not settled when their turn came.
    unsettled: VecDeque<RequestEntry>,
}

impl Queue {
    fn new() -> Self {
        Self { ready: VecDeque::with_capacity(USUAL), unsettled: VecDeque::with_capacity(USUAL) }
    }

    fn len(&self) -> usize {
        self.ready.len() + self.unsettled.len()
    }
}

/// Requests of all builder units.
#[derive(Debug)]
pub(super) struct Requests {
    queues: Vec<Queue>,
    /// Whose turn it is.
    turn: usize,
    /// Requests in all `ready` queues.
    ready: usize,
    /// Requests that are waiting for their event.
    unsettled: usize,
    /// Requests that a builder unit had no right to.
    refused: u64,
}

impl Requests {
    /// No requests, with room for those of `builders` builder units.
    pub(super) fn new(builders: u16) -> Self {
        let queues = (0..builders).map(|_| Queue::new()).collect();
        Self { queues, turn: 0, ready: 0, unsettled: 0, refused: 0 }
    }

    /// Requests that were refused: of a builder unit that is not configured, or had far too many.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// A builder unit wants this.
    pub(super) fn add(&mut self, builder: u16, entry: RequestEntry) {
        let queue = self.queues.get_mut(usize::from(builder)).filter(|queue| queue.len() < MOST);
        let Some(queue) = queue else {
            self.refused += 1;
            return;
        };
        queue.ready.push_back(entry);
        self.ready += 1;
    }

    /// Nobody asks for anything.
    pub(super) const fn is_empty(&self) -> bool {
        self.ready + self.unsettled == 0
    }

    /// A builder unit is gone, and its requests with it.
    pub(super) fn forget(&mut self, builder: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(builder)) {
            self.ready -= queue.ready.len();
            self.unsettled -= queue.unsettled.len();
            queue.ready.clear();
            queue.unsettled.clear();
        }
    }

    /// More events are settled: what waited may be looked at again.
    pub(super) fn look_again(&mut self) {
        if self.unsettled == 0 {
            return;
        }
        for queue in &mut self.queues {
            self.ready += queue.unsettled.len();
            self.unsettled -= queue.unsettled.len();
            // What waited came first.
            while let Some(entry) = queue.unsettled.pop_back() {
                queue.ready.push_front(entry);
            }
        }
    }

    /// The next request that `judge` finds ready, the builder units taking turns.
    pub(super) fn next<T>(&mut self, judge: impl Fn(&RequestEntry) -> Ready<T>) -> Option<(u16, RequestEntry, T)> {
        while self.ready > 0 {
            let turn = self.turn;
            self.turn = (turn + 1) % self.queues.len();
            let queue = &mut self.queues[turn];
            let Some(entry) = queue.ready.pop_front() else { continue };
            self.ready -= 1;
            match judge(&entry) {
                Ready::Now(answer) => return Some((turn as u16, entry, answer)),
                Ready::Later => {
                    queue.unsettled.push_back(entry);
                    self.unsettled += 1;
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Attempt, EventKey};

    fn entry(number: u64) -> RequestEntry {
        RequestEntry { key: EventKey::new(0, number), slot: number as u32, attempt: Attempt(1) }
    }

    fn drain(requests: &mut Requests, settled: u64) -> Vec<(u16, u64)> {
        let judge = |entry: &RequestEntry| if entry.key.number() <= settled { Ready::Now(()) } else { Ready::Later };
        core::iter::from_fn(|| requests.next(judge)).map(|(builder, entry, ())| (builder, entry.key.number())).collect()
    }

    #[test]
    fn builders_take_turns() {
        let mut requests = Requests::new(3);
        for number in 1..=3 {
            requests.add(0, entry(number));
        }
        requests.add(2, entry(10));
        requests.add(2, entry(11));
        assert_eq!(drain(&mut requests, 100), [(0, 1), (2, 10), (0, 2), (2, 11), (0, 3)]);
    }

    #[test]
    fn what_is_not_settled_waits_and_keeps_its_place() {
        let mut requests = Requests::new(2);
        for number in [7, 1, 6, 2] {
            requests.add(1, entry(number));
        }
        assert_eq!(drain(&mut requests, 5), [(1, 1), (1, 2)]);
        requests.add(1, entry(3));
        requests.look_again();
        assert_eq!(drain(&mut requests, 7), [(1, 7), (1, 6), (1, 3)]);
    }

    #[test]
    fn a_builder_that_is_gone_is_forgotten() {
        let mut requests = Requests::new(2);
        requests.add(0, entry(1));
        requests.add(1, entry(9));
        requests.add(1, entry(2));
        assert_eq!(drain(&mut requests, 1), [(0, 1)]);
        requests.add(0, entry(1));
        requests.forget(1);
        requests.forget(7);
        requests.look_again();
        assert_eq!(drain(&mut requests, 100), [(0, 1)]);
    }

    #[test]
    fn nobody_may_ask_for_ever() {
        let mut requests = Requests::new(1);
        for number in 0..MOST as u64 + 5 {
            requests.add(0, entry(number));
        }
        assert_eq!(requests.refused(), 5);
        assert_eq!(drain(&mut requests, u64::MAX).len(), MOST);
    }
}
