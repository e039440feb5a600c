//! The bins of a histogram that a user has described, and the cells in which its values are counted.
//!
//! ```text
//!  cell   0            1 ... bins                  bins + 1      bins + 2
//!         underflow    edges[0] ... edges[bins]    overflow      short: there was no value
//! ```

use std::sync::Arc;

/// Where the bins of a histogram begin and end. Each has its lower edge and not its upper one. Clones share the edges.
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

    /// Bins of the same width, as far as whole numbers can have it, from `from` up to `to`. None where there are none or more than
    /// [`Binning::MOST_BINS`] bins, or where there are not as many numbers as bins.
    pub fn linear(from: u64, to: u64, bins: usize) -> Option<Self> {
        let width = u128::from(to.checked_sub(from)?);
        let edge = |bin: usize| from + (width * bin as u128 / bins as u128) as u64;
        Self::new(bins, edge)
    }

    /// Bins whose edges grow by the same factor, from `from`, 1 or more, up to `to`. None where that cannot be with whole numbers, each
    /// bin having one at least, or with so many bins.
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

    /// Where bins begin, and where the last one ends.
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
