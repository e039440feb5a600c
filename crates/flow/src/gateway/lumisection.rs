//! Lumisections of a flow: ranges of its event numbers, each closed and accounted for as one.
//!
//! ```text
//!  input queue:  set enters --> held by the farm --> leaves with its counts --> none held, nothing earlier to come: closed here
//!  process:      closed by every input queue --> over
//! ```
//! [`Lumisections`] is the part of one input queue, [`LumisectionTotals`] adds them up. The caller decides which events
//! a lumisection contains, in the same way for all input queues.

use crate::messages::{Ended, LumisectionEnd};
use ropewalk_terms::{EventAccount, EventKey};
use std::collections::{BTreeMap, VecDeque};

/// A lumisection that an input queue has closed. Numbers without an event there may be left out.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ClosedLumisection {
    /// Index of the flow in the configuration.
    pub flow: u8,
    /// Its number, from 1.
    pub number: u32,
    /// The account of its events at this input queue.
    pub account: EventAccount,
}

/// A lumisection that is not closed.
#[derive(Debug)]
struct Open {
    number: u32,
    /// Number of its sets in the farm.
    held: u32,
    account: EventAccount,
}

/// The lumisections of a flow at one input queue.
#[derive(Debug)]
pub(super) struct Lumisections {
    /// Open lumisections with events, the oldest first.
    open: VecDeque<Open>,
    /// Maximum number of open lumisections.
    most: usize,
    /// Number of the last closed one.
    closed: u32,
}

/// Additional closed lumisections that may wait.
const SPARE: usize = 64;

impl Lumisections {
    /// Creates the lumisections for this many sets at once.
    pub(super) fn new(sets: usize) -> Self {
        let most = sets + SPARE;
        Self { open: VecDeque::with_capacity(most), most, closed: 0 }
    }

    /// Enters a set of this lumisection. Returns the lumisection in which it is counted: a set whose lumisection is
    /// closed already belongs to the oldest open one. If there is no room for another one, the nearest earlier one
    /// grows.
    pub(super) fn enter(&mut self, number: u32) -> u32 {
        let number = number.max(self.closed + 1);
        let place = self.open.partition_point(|open| open.number < number);
        let is_known = self.open.get(place).is_some_and(|open| open.number == number);
        let place = if !is_known && self.open.len() == self.most { place.saturating_sub(1) } else { place };
        if !is_known && self.open.len() < self.most {
            self.open.insert(place, Open { number, held: 0, account: EventAccount::default() });
        }
        let open = &mut self.open[place];
        open.held += 1;
        open.number
    }

    /// Removes a set, whose events ended like this.
    pub(super) fn leave(&mut self, number: u32, ended: &EventAccount) {
        let place = self.open.partition_point(|open| open.number < number);
        let open =
            self.open.get_mut(place).filter(|open| open.number == number).expect("it is open while a set is held");
        open.held -= 1;
        open.account.merge(ended);
    }

    /// Returns the next closed lumisection, where no event before lumisection `below` comes any more.
    pub(super) fn next_closed(&mut self, below: u32) -> Option<(u32, EventAccount)> {
        let oldest = self.open.front().map_or(below, |open| open.number.min(below));
        if oldest < below {
            let Open { number, account, .. } = self.open.pop_front_if(|open| open.held == 0)?;
            self.closed = number;
            return Some((number, account));
        }
        // The last lumisection without events here.
        let last = below.saturating_sub(1);
        let is_new = last > self.closed;
        self.closed = self.closed.max(last);
        is_new.then(|| (last, EventAccount::default()))
    }
}

/// Maximum number of consecutive lumisections without events in the account: numbers jump where a run does.
const MOST_EMPTY: u32 = 1000;

/// The lumisections of a flow, summed over all input queues.
#[derive(Debug)]
pub struct LumisectionTotals {
    /// The last closed lumisection by input queue.
    closed: Box<[u32]>,
    /// Lumisections that have not ended, by number.
    open: BTreeMap<u32, EventAccount>,
    /// Number of the last one that is over.
    over: u32,
    /// Sum of the accounts of all finished lumisections.
    before: Ended,
    account: EventAccount,
}

impl LumisectionTotals {
    /// Creates the totals for this many input queues and a flow that begins with this event.
    pub fn new(queues: usize, first: EventKey) -> Self {
        Self {
            closed: vec![0; queues].into_boxed_slice(),
            open: BTreeMap::new(),
            over: 0,
            before: Ended { below: first, ..Ended::default() },
            account: EventAccount::default(),
        }
    }

    /// Records that an input queue closed a lumisection and all earlier ones.
    pub fn closed(&mut self, queue: usize, number: u32, account: &EventAccount) {
        if let Some(closed) = self.closed.get_mut(queue) {
            *closed = number.max(*closed);
            self.open.entry(number).or_default().merge(account);
        }
    }

    /// Returns the next lumisection that is over; `first` returns the first event of a lumisection.
    pub fn next_over(&mut self, first: impl Fn(u32) -> EventKey) -> Option<LumisectionEnd> {
        let closed = self.closed.iter().copied().min().unwrap_or_default();
        let (&next, _) = self.open.first_key_value().filter(|(next, _)| **next <= closed)?;
        let number = if next - self.over > MOST_EMPTY { next } else { self.over + 1 };
        if number == next
            && let Some((_, account)) = self.open.pop_first()
        {
            self.account.merge(&account);
        }
        self.over = number;
        let before = Ended { below: first(number).max(self.before.below), ..self.before };
        let ended = Ended::of(first(number + 1).max(before.below), &self.account);
        self.before = ended;
        Some(LumisectionEnd { number, before, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(built: u64, rejected: u64) -> EventAccount {
        EventAccount { assigned: built, built, accepted: built - rejected, rejected, ..EventAccount::default() }
    }

    #[test]
    fn a_lumisection_is_closed_when_no_set_of_it_is_held_and_nothing_earlier_comes() {
        let mut known = Lumisections::new(4);
        assert_eq!([1, 2, 1].map(|number| known.enter(number)), [1, 2, 1]);
        known.leave(1, &ended(5, 2));
        assert_eq!(known.next_closed(2), None, "a set of it is held");
        known.leave(1, &ended(5, 0));
        assert_eq!(known.next_closed(1), None, "sets of it may come");
        assert_eq!(known.next_closed(2), Some((1, ended(10, 2))));
        assert_eq!(known.next_closed(2), None, "once");
        assert_eq!(known.enter(1), 2, "a late event belongs to the oldest open lumisection");
        [2, 2].into_iter().for_each(|number| known.leave(number, &ended(5, 0)));
        assert_eq!(known.next_closed(9), Some((2, ended(10, 0))));
        assert_eq!(known.next_closed(9), Some((8, EventAccount::default())), "those without events");
        assert_eq!((known.next_closed(9), known.enter(3)), (None, 9));
    }

    #[test]
    fn without_room_for_another_one_the_nearest_earlier_one_grows() {
        let mut known = Lumisections::new(1);
        let most = 1 + SPARE as u32;
        for number in (1..=most).map(|number| 2 * number) {
            assert_eq!(known.enter(number), number);
        }
        assert_eq!([1000, 7, 1].map(|number| known.enter(number)), [2 * most, 6, 2]);
        let all: u32 = known.open.iter().map(|open| open.held).sum();
        assert_eq!(all, most + 3);
    }

    #[test]
    fn a_lumisection_is_over_when_every_input_queue_has_closed_it() {
        let first = |number: u32| EventKey::new(0, 100 + u64::from(number - 1) * 10);
        let mut totals = LumisectionTotals::new(2, first(1));
        totals.closed(0, 1, &ended(6, 1));
        totals.closed(0, 3, &ended(1, 1));
        assert_eq!(totals.next_over(first), None);
        totals.closed(1, 3, &ended(2, 0));
        let ends: Vec<_> = std::iter::from_fn(|| totals.next_over(first)).collect();
        let told: Vec<_> = ends.iter().map(|end| (end.number, end.before.below, end.account())).collect();
        let wanted = [(1, first(1), ended(6, 1)), (2, first(2), ended(0, 0)), (3, first(3), ended(3, 1))];
        assert_eq!(told, wanted);
        for queue in [0, 1] {
            totals.closed(queue, 5_000_000, &ended(1, 0));
        }
        let ends: Vec<_> = std::iter::from_fn(|| totals.next_over(first)).collect();
        assert_eq!((ends.len(), ends[0].number, ends[0].account()), (1, 5_000_000, ended(2, 0)), "the run has jumped");
    }
}
