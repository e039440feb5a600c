//! The pages of the ring that chunks in queues lie in.

use ropewalk_memory::ring::RingReader;
use ropewalk_memory::{PoolId, Slice};
use std::collections::VecDeque;

/// For so many pages there is room from the start: a ring of a gigabyte.
const USUAL_PAGES: usize = 16 << 10;
/// Chunks that began more pages ago are held one by one: to hold all pages from there on would cost more.
const PAGES_BACK: u64 = 64;

/// A page, or as much of it as was lent.
#[derive(Debug)]
struct Held {
    /// Where the page begins.
    start: u64,
    slice: Slice,
}

/// One slice of each page that chunks in any queue lie in: a reference for a page, not for a chunk. Who waits says from
/// where on; for a ring's pages come home in their order, and one that is needed keeps all behind it anyway.
#[derive(Debug)]
pub(super) struct Pages {
    /// Whose pages they are: the first ring from which a batch came.
    ring: Option<PoolId>,
    page_bytes: u64,
    /// In the order of the ring.
    held: VecDeque<Held>,
    /// From here to `end` nothing is missing.
    tail: u64,
    /// Up to where the last page was lent.
    end: u64,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self { ring: None, page_bytes: 1, held: VecDeque::with_capacity(USUAL_PAGES), tail: 0, end: 0 }
    }

    /// Whether positions of this ring are meant here: those of another one have no pages here.
    pub(super) fn are_of(&mut self, ring: &RingReader) -> bool {
        if self.held.is_empty() {
            (self.ring, self.page_bytes) = (Some(ring.id()), ring.page_bytes());
        }
        self.ring == Some(ring.id())
    }

    /// Holds what lies from `needs_from`, or as much of it as pays, up to `end`; a batch, of which the reader is not done
    /// with anything, begins at `position`. Returns from where on nothing that it
    /// needs is missing.
    pub(super) fn hold(&mut self, ring: &mut RingReader, needs_from: u64, position: u64, end: u64) -> u64 {
        let page = self.page_bytes;
        let from = needs_from.max(position.saturating_sub(PAGES_BACK * page)) / page * page;
        let from = from.max(ring.done());
        if self.held.is_empty() || self.end < ring.done() {
            // What came since was nobody's, and the reader is done with it.
            (self.tail, self.end) = (from, from);
        }
        while self.tail > from && self.held.front().is_some_and(|first| first.start == self.tail) {
            self.tail -= page;
            self.held.push_front(Held { start: self.tail, slice: ring.slice(self.tail, page as u32) });
        }
        while self.end < end {
            let start = self.end / page * page;
            let length = (start + page).min(end) - self.end;
            let slice = ring.slice(self.end, length as u32);
            match self.held.back_mut().filter(|last| last.start == start) {
                Some(last) => last.slice.join(slice).expect("it follows in the same page"),
                None => self.held.push_back(Held { start, slice }),
            }
            self.end += length;
        }
        self.tail.max(needs_from)
    }

    /// Nobody needs what lies before this position.
    pub(super) fn release_before(&mut self, position: u64) {
        while self.held.front().is_some_and(|first| position >= first.start + self.page_bytes) {
            self.held.pop_front();
        }
        if let Some(first) = self.held.front() {
            self.tail = self.tail.max(first.start);
        }
    }

    /// The bytes of a piece that is held.
    pub(super) fn bytes(&self, position: u64, length: u32) -> &[u8] {
        let (slice, offset) = self.find(position);
        &slice[offset..][..length as usize]
    }

    /// The same, with a reference of its own.
    pub(super) fn slice(&self, position: u64, length: u32) -> Slice {
        let (slice, offset) = self.find(position);
        let mut slice = slice.clone();
        slice.skip(offset);
        slice.truncate(length as usize);
        slice
    }

    fn find(&self, position: u64) -> (&Slice, usize) {
        let behind = self.held.partition_point(|held| held.start <= position);
        let held = &self.held[behind.checked_sub(1).expect("what waits is held")];
        (&held.slice, (position - held.start) as usize)
    }
}
