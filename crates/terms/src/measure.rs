//! What is measured of every event or batch, the buckets into which values are counted, and the bins of a user's
//! histograms.
//!
//! Buckets are those of an HDR histogram with three significant bits: eight to each doubling, so that a value is known
//! to 12.5 % of itself, from one to the largest there is. Their upper ends belong to them, so that powers of two end
//! one.

use std::sync::Arc;

use crate::Unit;

/// What is measured. The names are stable.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum Measure {
    /// Bytes of an event's payloads.
    EventSize,
    /// From an event's assignment to a builder unit until it is built.
    BuildLatency,
    /// From the time at which a filter has an event until it has decided; of a filter in the builder unit's thread the
    /// mean of a batch.
    FilterTime,
    /// From handing a batch to the disk until it is written.
    DiskWriteTime,
}

/// Every measure, in the order of their numbers.
pub const MEASURES: &[Measure] =
    &[Measure::EventSize, Measure::BuildLatency, Measure::FilterTime, Measure::DiskWriteTime];

impl Measure {
    /// The stable name, in snake case, without its unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EventSize => "event_size",
            Self::BuildLatency => "build_latency",
            Self::FilterTime => "filter",
            Self::DiskWriteTime => "disk_write",
        }
    }

    /// What it measures, for people.
    pub const fn help(self) -> &'static str {
        match self {
            Self::EventSize => "Bytes of the payloads of an event.",
            Self::BuildLatency => "Time from the assignment of an event to a builder unit until it is built.",
            Self::FilterTime => "Time from when a filter has an event until it has decided.",
            Self::DiskWriteTime => "Time from handing a batch to the disk until it is written.",
        }
    }

    /// What its values are in.
    pub const fn unit(self) -> Unit {
        match self {
            Self::EventSize => Unit::Bytes,
            Self::BuildLatency | Self::FilterTime | Self::DiskWriteTime => Unit::Nanoseconds,
        }
    }

    /// The measure with this number, if there is one.
    pub const fn from_u16(number: u16) -> Option<Self> {
        if (number as usize) < MEASURES.len() { Some(MEASURES[number as usize]) } else { None }
    }
}

/// Buckets of a measure.
pub const BUCKETS: usize = 496;
/// Buckets of each doubling are two to the power of this.
const SIGNIFICANT: u32 = 3;

/// The bucket of a value.
#[inline]
pub const fn bucket_of(value: u64) -> u16 {
    let above = value.saturating_sub(1);
    if above < 1 << SIGNIFICANT {
        return above as u16;
    }
    let shift = above.ilog2() - SIGNIFICANT;
    (((shift as u64) << SIGNIFICANT) + (above >> shift)) as u16
}

/// The greatest value of a bucket; for an index that is too high, the greatest value of all.
pub const fn greatest_in(bucket: u16) -> u64 {
    let doubling = (bucket as u32) >> SIGNIFICANT;
    if bucket as usize >= BUCKETS - 1 {
        return u64::MAX;
    }
    if doubling < 2 {
        return bucket as u64 + 1;
    }
    let shift = doubling - 1;
    let first = ((bucket as u64) & ((1 << SIGNIFICANT) - 1)) + (1 << SIGNIFICANT);
    (first + 1) << shift
}

/// Counts values of one measure, on the one thread that measures: an addition each, without memory to be asked for.
#[derive(Clone, Debug)]
pub struct Recorder {
    measure: Measure,
    counts: Box<[u64; BUCKETS]>,
    sum: u64,
}

impl Recorder {
    /// Nothing was measured.
    pub fn new(measure: Measure) -> Self {
        Self { measure, counts: Box::new([0; BUCKETS]), sum: 0 }
    }

    /// What it counts.
    pub const fn measure(&self) -> Measure {
        self.measure
    }

    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value `times` times.
    #[inline]
    pub fn record_many(&mut self, value: u64, times: u64) {
        self.counts[bucket_of(value) as usize] += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
    }

    /// The buckets in which there is something, with how much.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// The sum of all values.
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

// The bins of a histogram that a user describes, and the cells that count its values.
//
// ```text
//  cell   0            1 ... bins                  bins + 1      bins + 2
//         underflow    edges[0] ... edges[bins]    overflow      short: there was no value
// ```

/// The edges of a histogram's bins. Each bin includes its lower edge and not its upper one. Clones share the edges.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Binning {
    edges: Arc<[u64]>,
}

impl Binning {
    /// The most bins that a histogram has.
    pub const MOST_BINS: usize = 256;
    /// Cells beside those of the bins: of values below, of values above, and of what had none.
    pub const BESIDE: usize = 3;
    /// The cell of values that lie below the first bin.
    pub const UNDERFLOW: u16 = 0;

    /// Bins of the same width, as far as whole numbers can have it, from `from` up to `to`. `None` for no bins, for
    /// more than [`Binning::MOST_BINS`], or for more bins than numbers.
    pub fn linear(from: u64, to: u64, bins: usize) -> Option<Self> {
        let width = u128::from(to.checked_sub(from)?);
        let edge = |bin: usize| from + (width * bin as u128 / bins as u128) as u64;
        Self::new(bins, edge)
    }

    /// Bins whose edges grow by the same factor, from `from`, 1 or more, up to `to`. `None` if some bin would
    /// contain no whole number, or if `bins` is too large.
    pub fn logarithmic(from: u64, to: u64, bins: usize) -> Option<Self> {
        if from == 0 {
            return None;
        }
        let factor = to as f64 / from as f64;
        let edge = |bin: usize| match bin {
            0 => from,
            bin if bin == bins => to,
            bin => (from as f64 * factor.powf(bin as f64 / bins as f64)).round() as u64,
        };
        Self::new(bins, edge)
    }

    fn new(bins: usize, edge: impl Fn(usize) -> u64) -> Option<Self> {
        if !(1..=Self::MOST_BINS).contains(&bins) {
            return None;
        }
        let edges: Arc<[u64]> = (0..=bins).map(edge).collect();
        edges.is_sorted_by(|one, next| one < next).then_some(Self { edges })
    }

    /// How many bins there are.
    pub fn bins(&self) -> usize {
        self.edges.len() - 1
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.bins() + Self::BESIDE
    }

    /// The lower edges of the bins, and the upper edge of the last one.
    pub fn edges(&self) -> &[u64] {
        &self.edges
    }

    /// The cell of values that lie in or above the end of the last bin.
    pub fn overflow(&self) -> u16 {
        self.edges.len() as u16
    }

    /// The cell of what had no value.
    pub fn short(&self) -> u16 {
        self.edges.len() as u16 + 1
    }

    /// The cell of a value.
    #[inline]
    pub fn cell_of(&self, value: u64) -> u16 {
        self.edges.partition_point(|&edge| edge <= value) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap_and_each_ends_with_its_greatest_value() {
        for bucket in 0..BUCKETS as u16 - 1 {
            let greatest = greatest_in(bucket);
            assert_eq!((bucket_of(greatest), bucket_of(greatest + 1)), (bucket, bucket + 1), "{bucket} {greatest}");
        }
        assert_eq!((bucket_of(u64::MAX), greatest_in(BUCKETS as u16 - 1)), (BUCKETS as u16 - 1, u64::MAX));
        assert_eq!((bucket_of(0), bucket_of(1), greatest_in(0)), (0, 0, 1));
    }

    #[test]
    fn a_value_is_known_to_an_eighth_and_powers_of_two_end_a_bucket() {
        for power in 4..63 {
            let value = 1_u64 << power;
            assert_eq!(greatest_in(bucket_of(value)), value);
            let next = greatest_in(bucket_of(value + 1));
            assert!(next > value && next <= value + value / 8, "{value} {next}");
        }
    }

    #[test]
    fn names_and_numbers_of_measures_are_unique() {
        for (number, &measure) in MEASURES.iter().enumerate() {
            assert_eq!((measure as usize, Measure::from_u16(number as u16)), (number, Some(measure)));
            assert_eq!(MEASURES.iter().filter(|other| other.name() == measure.name()).count(), 1);
        }
        assert_eq!(Measure::from_u16(MEASURES.len() as u16), None);
    }

    #[test]
    fn values_are_counted_in_their_buckets() {
        let mut recorder = Recorder::new(Measure::EventSize);
        recorder.record(4_096);
        recorder.record_many(4_000, 2);
        recorder.record(u64::MAX);
        let buckets: Vec<_> = recorder.buckets().collect();
        assert_eq!(buckets, [(bucket_of(4_096), 3), (BUCKETS as u16 - 1, 1)]);
        assert_eq!(recorder.sum(), u64::MAX, "it does not wrap");
    }

    #[test]
    fn each_bin_has_its_lower_edge_and_not_its_upper_one() {
        let binning = Binning::linear(10, 20, 4).expect("it can be");
        assert_eq!(binning.edges(), [10, 12, 15, 17, 20]);
        let cells = [0, 9, 10, 11, 12, 14, 15, 19, 20, u64::MAX].map(|value| binning.cell_of(value));
        assert_eq!(cells, [0, 0, 1, 1, 2, 2, 3, 4, 5, 5]);
        assert_eq!((binning.bins(), binning.cells(), binning.overflow(), binning.short()), (4, 7, 5, 6));
    }

    #[test]
    fn logarithmic_bins_grow_by_the_same_factor_and_end_where_they_are_said_to() {
        let binning = Binning::logarithmic(1, 1_000_000, 6).expect("it can be");
        assert_eq!(binning.edges(), [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]);
        let widest = Binning::logarithmic(1, u64::MAX, 64).expect("it can be");
        assert_eq!((widest.edges()[64], widest.cell_of(u64::MAX)), (u64::MAX, 65));
    }

    #[test]
    fn bins_without_a_number_in_them_are_refused() {
        assert_eq!(Binning::linear(0, 3, 4), None);
        assert_eq!(Binning::linear(5, 5, 1), None);
        assert_eq!(Binning::linear(6, 5, 1), None);
        assert_eq!(Binning::linear(0, 100, 0), None);
        assert_eq!(Binning::linear(0, 1_000, 257), None);
        assert_eq!(Binning::logarithmic(0, 100, 4), None);
        assert_eq!(Binning::logarithmic(1, 8, 10), None);
        assert!(Binning::linear(0, u64::MAX, 256).is_some());
    }
}
