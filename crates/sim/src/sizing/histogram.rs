//! How long something took, many times: counts by time, in steps of 1/32 of the time, so that any percentile is known
//! within 3 % and nothing is allocated.

/// Steps within one doubling of the time.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
const BUCKETS: usize = 64 << FINE_BITS;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    total: u64,
    most: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, total: 0, most: 0 }
    }

    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.total += nanoseconds;
        self.most = self.most.max(nanoseconds);
    }

    /// Adds what another one counted.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        (self.count, self.total) = (self.count + other.count, self.total + other.total);
        self.most = self.most.max(other.most);
    }

    pub(super) fn clear(&mut self) {
        *self = Self { counts: std::mem::take(&mut self.counts), count: 0, total: 0, most: 0 };
        self.counts.fill(0);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The mean in nanoseconds; 0 where nothing was counted.
    pub(super) fn mean(&self) -> f64 {
        self.total as f64 / self.count.max(1) as f64
    }

    /// The longest time in nanoseconds.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// The time that this part (0 to 1) of all stayed within, in nanoseconds.
    pub(super) fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(bucket).min(self.most);
            }
        }
        self.most
    }

    /// The upper ends of the steps that hold something, in nanoseconds, and their counts.
    pub(super) fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, &count)| (upper(bucket), count))
    }
}

const fn bucket(value: u64) -> usize {
    if value < FINE {
        return value as usize;
    }
    let shift = value.ilog2() - FINE_BITS;
    (((shift + 1) as u64 * FINE) + (value >> shift) - FINE) as usize
}

/// The largest value of a bucket.
const fn upper(bucket: usize) -> u64 {
    let (row, column) = (bucket as u64 / FINE, bucket as u64 % FINE);
    if row == 0 { column } else { ((column + FINE + 1) << (row - 1)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain([1 << 20, (1 << 40) + 12_345, 1 << 62]) {
            let end = upper(bucket(value));
            assert!(end >= value && end - value <= value / FINE, "{value} {end}");
        }
    }

    #[test]
    fn percentiles_are_within_three_percent() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|value| histogram.add(value));
        for part in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let found = histogram.quantile(part) as f64 / (part * 100_000.0);
            assert!((0.97..1.04).contains(&found), "{part}: {found}");
        }
        assert_eq!((histogram.quantile(1.0), histogram.most(), histogram.count()), (100_000, 100_000, 100_000));
        assert!((histogram.mean() - 50_000.5).abs() < 0.01);
        let (before, mut other) = (histogram.quantile(0.5), Histogram::new());
        other.merge(&histogram);
        histogram.merge(&other);
        assert_eq!((histogram.count(), histogram.quantile(0.5), histogram.most()), (200_000, before, 100_000));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.steps().count(), histogram.quantile(0.5)), (0, 0, 0));
    }
}
