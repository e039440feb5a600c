//! How many fragments of an e-link must, and how many may, count as received.

/// Ends of chunks and pieces in the present ring, in the order of writing.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Where each whole chunk ends.
    whole: Vec<u64>,
    /// Where the first piece ends of each chunk that began. Each counts once: as a fragment, or as given up.
    begun: Vec<u64>,
    /// Where something ends that may count or not: a piece without a beginning, a time-out after a loss.
    perhaps: Vec<u64>,
    /// From where to where each chunk was open for the reader; of those that never end, where they begin.
    spans: Vec<(u64, u64)>,
    endless: Vec<u64>,
}

impl Tally {
    pub(super) fn begins(&mut self, end: u64) {
        self.begun.push(end);
    }

    pub(super) fn is_whole(&mut self, end: u64) {
        self.whole.push(end);
    }

    pub(super) fn is_perhaps(&mut self, end: u64) {
        self.perhaps.push(end);
    }

    /// A chunk that began at `start` was open until the block that ends at `end`.
    pub(super) fn was_open(&mut self, start: u64, end: u64) {
        self.spans.push((start, end));
    }

    /// A chunk that began at `start` has no end: the next good block of the e-link shows that.
    pub(super) fn stays_open(&mut self, start: u64) {
        self.endless.push(start);
    }

    /// A good block that ends at `end`.
    pub(super) fn goes_on(&mut self, end: u64) {
        self.spans.extend(self.endless.drain(..).map(|start| (start, end)));
    }

    /// Where the oldest chunk begins that is open for who has read so far.
    pub(super) fn oldest_open(&self, handed_on: u64) -> Option<u64> {
        let spans = self.spans.iter().filter(|&&(_, end)| end > handed_on).map(|&(start, _)| start);
        spans.chain(self.endless.iter().copied()).filter(|&start| start < handed_on).min()
    }

    /// The fewest and the most fragments that count as received where everything was handed on up to the first position,
    /// and decoded up to the second; and the fewest where the ring has ended there.
    pub(super) fn bounds(&self, handed_on: u64, decoded: u64) -> (u64, u64, u64) {
        let until = |ends: &[u64], position: u64| ends.partition_point(|&end| end <= position) as u64;
        let most = until(&self.begun, decoded) + until(&self.perhaps, decoded);
        (until(&self.whole, handed_on), most, until(&self.begun, handed_on))
    }
}
