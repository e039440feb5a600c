//! How the values of a measure are distributed, as readers see it.

use ropewalk_terms::{bucket_of, greatest_in};

/// Values of a measure, counted in its buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Distribution {
    /// By bucket, in order; where there are none, it is not there.
    buckets: Vec<(u16, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// Adds to a bucket.
    pub fn add(&mut self, bucket: u16, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |&(known, _)| known) {
            Ok(place) => self.buckets[place].1 = self.buckets[place].1.saturating_add(count),
            Err(place) if count > 0 => self.buckets.insert(place, (bucket, count)),
            Err(_) => {}
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        other.buckets.iter().for_each(|&(bucket, count)| self.add(bucket, count));
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// How many values are at most this. Exact at the powers of two; elsewhere those of a bucket in which it lies do not count.
    pub fn at_most(&self, value: u64) -> u64 {
        let whole = self.buckets.iter().filter(|&&(bucket, _)| greatest_in(bucket) <= value);
        whole.map(|&(_, count)| count).sum()
    }

    /// The value that this part of all does not exceed, 0 to 1, rounded up to the end of its bucket; none where there are no values.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let mut reaches = |&&(_, count): &&(u16, u64)| {
            seen += count;
            seen >= wanted
        };
        self.buckets.iter().find(|bucket| reaches(bucket)).map(|&(bucket, _)| greatest_in(bucket))
    }

    /// The mean of all values; none where there are none.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// What came since it was `before`. Where it has fallen it began anew: then all of it came since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let has_fallen = |&(bucket, count): &(u16, u64)| self.of(bucket) < count;
        if before.buckets.iter().any(has_fallen) {
            return self.clone();
        }
        let buckets = self.buckets.iter().map(|&(bucket, count)| (bucket, count - before.of(bucket)));
        Self { buckets: buckets.filter(|&(_, count)| count > 0).collect(), sum: self.sum.saturating_sub(before.sum) }
    }

    fn of(&self, bucket: u16) -> u64 {
        let place = self.buckets.binary_search_by_key(&bucket, |&(known, _)| known).ok();
        place.map_or(0, |place| self.buckets[place].1)
    }
}

impl FromIterator<u64> for Distribution {
    fn from_iter<T: IntoIterator<Item = u64>>(values: T) -> Self {
        let mut all = Self::default();
        for value in values {
            all.add(bucket_of(value), 1);
            all.sum = all.sum.saturating_add(value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ends_of_buckets_that_so_many_values_do_not_exceed() {
        let all: Distribution = (1..=1_000).collect();
        for (part, value) in [(0.0, 1), (0.5, 512), (0.9, 960), (0.99, 1_024), (1.0, 1_024)] {
            assert_eq!(all.quantile(part), Some(value), "{part}");
        }
        assert_eq!((all.count(), all.mean(), all.at_most(256)), (1_000, Some(500.5), 256));
        assert_eq!((Distribution::default().quantile(0.5), Distribution::default().mean()), (None, None));
    }

    #[test]
    fn what_came_since_is_the_difference_unless_it_began_anew() {
        let before: Distribution = [1, 5, 5].into_iter().collect();
        let mut now = before.clone();
        now.merge(&[5, 900].into_iter().collect());
        assert_eq!(now.since(&before), [5, 900].into_iter().collect());
        let anew: Distribution = [5, 900].into_iter().collect();
        assert_eq!(anew.since(&before), anew);
        assert_eq!(now.since(&now).count(), 0);
    }
}
