//! The decision on a built event: the triggers it passed, and the streams that take it.

use core::fmt;

/// The triggers that an event passed, as its filter names them: bit n is trigger n, 0 to 127.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TriggerBits(pub u128);

impl TriggerBits {
    /// The number of triggers that there can be.
    pub const COUNT: u32 = u128::BITS;

    /// One trigger alone; no trigger if the number is too high.
    pub const fn of(trigger: u32) -> Self {
        Self(if trigger < Self::COUNT { 1 << trigger } else { 0 })
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a trigger is in both sets.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for TriggerBits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#034x}", self.0)
    }
}

/// The number of a stream of a run, in the order of its configuration.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamIndex(pub u8);

impl StreamIndex {
    /// How many streams a run can have.
    pub const MOST: usize = 32;
}

/// Streams of a run.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamSet(u32);

impl StreamSet {
    /// No stream.
    pub const EMPTY: Self = Self(0);

    /// A single stream.
    ///
    /// # Panics
    /// If it is not below [`StreamIndex::MOST`].
    pub const fn of(stream: StreamIndex) -> Self {
        assert!((stream.0 as usize) < StreamIndex::MOST, "a run has at most so many streams");
        Self(1 << stream.0)
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as bits: bit n is stream n.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The set of these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether the stream is in it.
    pub const fn contains(self, stream: StreamIndex) -> bool {
        self.0 >> stream.0 & 1 != 0
    }

    /// Whether no stream is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Each of them, in their order.
    pub fn iter(self) -> impl Iterator<Item = StreamIndex> {
        (0..StreamIndex::MOST as u8).map(StreamIndex).filter(move |&stream| self.contains(stream))
    }
}

impl FromIterator<StreamIndex> for StreamSet {
    fn from_iter<I: IntoIterator<Item = StreamIndex>>(streams: I) -> Self {
        streams.into_iter().fold(Self::EMPTY, |set, stream| set.with(Self::of(stream)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let streams = [StreamIndex(0), StreamIndex(7), StreamIndex(31)];
        let set: StreamSet = streams.into_iter().collect();
        assert!(set.iter().eq(streams));
        assert_eq!((set.len(), set.is_empty(), StreamSet::EMPTY.is_empty()), (3, false, true));
        assert!(!set.contains(StreamIndex(6)));
    }

    #[test]
    fn triggers_meet_where_one_is_in_both() {
        let both = TriggerBits::of(0).with(TriggerBits::of(127));
        assert!(both.meets(TriggerBits::of(127)) && !both.meets(TriggerBits::of(126)));
        assert_eq!(TriggerBits::of(128), TriggerBits::default());
    }
}
