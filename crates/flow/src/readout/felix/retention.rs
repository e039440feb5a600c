//! Which blocks of a card's buffer may be written again.

use std::collections::VecDeque;

/// A batch that somebody refers to.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct SpanId(u64);

#[derive(Copy, Clone, Debug)]
struct Span {
    /// The least position that it needs.
    from: u64,
    /// What is behind it.
    end: u64,
    references: u32,
}

/// Counts who still refers to which batch, so that blocks go back in the order in which the card wrote them: up to the
/// first one that anything needs.
///
/// A reference is charged for each chunk, or for any number of them at once; they come back in any order.
#[derive(Clone, Debug)]
pub struct Retention {
    spans: VecDeque<Span>,
    /// The number of the first span in the queue.
    first: u64,
    most: usize,
    /// Where the next span begins.
    end: u64,
}

impl Retention {
    /// Nothing was decoded before `position`; at most `most` batches may be referred to at once.
    pub fn new(position: u64, most: usize) -> Self {
        let most = most.max(1);
        Self { spans: VecDeque::with_capacity(most), first: 0, most, end: position }
    }

    /// Whether another batch may be taken: if not, the card must wait until one is done.
    pub fn has_room(&self) -> bool {
        self.spans.len() < self.most
    }

    /// A batch was decoded that ends at `end` and needs everything from `needs_from` on. It holds so many references;
    /// with none it is done at once.
    ///
    /// # Panics
    /// If there is no room for it, or it ends before the last one.
    pub fn take(&mut self, needs_from: u64, end: u64, references: u32) -> SpanId {
        assert!(self.has_room(), "who takes a batch asks for room first");
        assert!(end >= self.end, "batches are taken in the order of their positions");
        self.end = end;
        self.spans.push_back(Span { from: needs_from, end, references });
        let id = SpanId(self.first + self.spans.len() as u64 - 1);
        self.tidy();
        id
    }

    /// So many references to a batch are done with.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn give_back(&mut self, id: SpanId, references: u32) {
        let index = id.0.checked_sub(self.first).expect("the batch is not done with");
        let span = self.spans.get_mut(index as usize).expect("the batch was taken");
        span.references = span.references.checked_sub(references).expect("no more come back than were given");
        self.tidy();
    }

    /// The position up to which the card may write again, if the oldest open chunk begins at `oldest_open`.
    pub fn released_to(&self, oldest_open: Option<u64>) -> u64 {
        let held = self.spans.iter().filter(|span| span.references > 0).map(|span| span.from);
        held.chain(oldest_open).fold(self.end, u64::min)
    }

    /// References that have not come back.
    pub fn references(&self) -> u64 {
        self.spans.iter().map(|span| u64::from(span.references)).sum()
    }

    fn tidy(&mut self) {
        while self.spans.front().is_some_and(|span| span.references == 0) {
            let span = self.spans.pop_front();
            self.first += 1;
            debug_assert!(span.is_some_and(|span| span.end <= self.end));
        }
    }
}
