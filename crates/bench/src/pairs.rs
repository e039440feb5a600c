//! Ours and the limit in turns, and the statistics of a row of figures.

use crate::BenchError;

/// Figures of ours and of the limit, pair by pair.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Series {
    pub(crate) ours: Vec<f64>,
    pub(crate) limit: Vec<f64>,
}

impl Series {
    /// The median of the pairs' ratios, ours to the limit: what disturbs both figures of a pair cancels.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.ratios())
    }

    /// The smallest and the largest ratio of a pair.
    pub(crate) fn ratio_spread(&self) -> [f64; 2] {
        let least = self.ratios().fold(f64::INFINITY, f64::min);
        [if least.is_finite() { least } else { 0.0 }, self.ratios().fold(0.0, f64::max)]
    }

    /// The sum over all pairs.
    pub(crate) fn total(&self) -> Self {
        Self { ours: vec![self.ours.iter().sum()], limit: vec![self.limit.iter().sum()] }
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.ours.iter().zip(&self.limit).map(|(ours, limit)| if *limit > 0.0 { ours / limit } else { 0.0 })
    }
}

/// The median; 0 without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// Measures this many pairs, `N` figures of each side at once. Every second pair begins with the limit, so that no side
/// always has the warmer machine.
pub(crate) fn alternate<const N: usize>(
    pairs: usize,
    mut ours: impl FnMut() -> Result<[f64; N], BenchError>,
    mut limit: impl FnMut() -> Result<[f64; N], BenchError>,
) -> Result<[Series; N], BenchError> {
    let mut series: [Series; N] = std::array::from_fn(|_| Series::default());
    take_turns(pairs, &mut series, || ours().map(Vec::from), || limit().map(Vec::from))?;
    Ok(series)
}

/// The same, for sides that give as many figures as there are series.
pub(crate) fn take_turns(
    pairs: usize,
    series: &mut [Series],
    mut ours: impl FnMut() -> Result<Vec<f64>, BenchError>,
    mut limit: impl FnMut() -> Result<Vec<f64>, BenchError>,
) -> Result<(), BenchError> {
    for pair in 0..pairs {
        let (mine, bare) = if pair % 2 == 0 {
            let mine = ours()?;
            (mine, limit()?)
        } else {
            let bare = limit()?;
            (ours()?, bare)
        };
        for (series, (mine, bare)) in series.iter_mut().zip(mine.into_iter().zip(bare)) {
            series.ours.push(mine);
            series.limit.push(bare);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_ratios() {
        let series = Series { ours: vec![1.0, 9.0, 4.0], limit: vec![2.0, 10.0, 5.0] };
        assert!((series.ratio() - 0.8).abs() < 1e-9);
        let [least, most] = series.ratio_spread();
        assert!((least - 0.5).abs() < 1e-9 && (most - 0.9).abs() < 1e-9, "{least} {most}");
        assert!((median([4.0, 1.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).abs() < 1e-9);
    }

    #[test]
    fn every_second_pair_begins_with_the_limit() {
        let order = std::cell::RefCell::new(String::new());
        let take = |letter: char| order.borrow_mut().push(letter);
        let series = alternate(
            3,
            || {
                take('o');
                Ok([1.0])
            },
            || {
                take('l');
                Ok([2.0])
            },
        );
        assert_eq!(series.expect("no errors").map(|series| series.ours.len()), [3]);
        assert_eq!(*order.borrow(), "olloo".to_owned() + "l");
    }
}
