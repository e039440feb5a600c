//! Accepted events of streams that are written in the order of their keys wait here for those before them.

use ropewalk_terms::EventKey;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Puts events into the order of their keys: see the module's text.
#[derive(Debug, Default)]
pub struct Ordering {
    held: BinaryHeap<Reverse<(EventKey, u32)>>,
    /// The highest key that left.
    passed: Option<EventKey>,
    late: u64,
}

impl Ordering {
    /// Room for so many events.
    pub fn new(slots: u32) -> Self {
        Self { held: BinaryHeap::with_capacity(slots as usize), ..Self::default() }
    }

    /// An event waits.
    pub fn hold(&mut self, key: EventKey, slot: u32) {
        self.held.push(Reverse((key, slot)));
    }

    /// The next event in order, where none is awaited any more that comes before it: `oldest` is the lowest key of those that
    /// are.
    pub fn release(&mut self, oldest: Option<EventKey>) -> Option<u32> {
        let &Reverse((key, slot)) = self.held.peek()?;
        if oldest.is_some_and(|oldest| oldest < key) && !is_planted(Flaw::OrderingImpatient) {
            return None;
        }
        self.held.pop();
        self.late += u64::from(self.passed.is_some_and(|passed| key < passed));
        self.passed = self.passed.max(Some(key));
        Some(slot)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Events that were assigned after later ones had left: another builder unit had died with them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// A run begins.
    pub fn restart(&mut self) {
        (self.passed, self.late) = (None, 0);
    }
}
