//! Histograms that filters fill: what one is, and the counts of one lumisection.

/// Histograms that the filter of a run has at most.
pub const MOST_HISTOGRAMS: usize = 64;
/// Bins of a histogram, at most.
pub const MOST_BINS: u32 = 4096;
/// Bytes of a histogram's name, at most.
pub const MOST_NAME_BYTES: usize = 64;
/// Values that a filter fills in for one event at most.
pub const MOST_FILLS: usize = 256;

/// What a histogram is like: bins of equal width from `low` on, up to `high`, which lies behind the last one.
#[derive(Clone, PartialEq, Debug)]
pub struct HistogramShape {
    name: String,
    bins: u32,
    low: f64,
    high: f64,
}

/// Why there is no such histogram.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum HistogramError {
    /// A name that cannot be one.
    #[error("a histogram is called {0:?}: its name has 1 to {MOST_NAME_BYTES} bytes, without control characters")]
    Name(String),
    /// Too many bins, or none.
    #[error("histogram `{name}` has {bins} bins: there can be 1 to {MOST_BINS}")]
    Bins {
        /// Its name.
        name: String,
        /// Its bins.
        bins: u32,
    },
    /// It begins where it ends, or behind that.
    #[error("histogram `{name}` goes from {low} to {high}: both are finite, and the second one is larger")]
    Range {
        /// Its name.
        name: String,
        /// Where it begins.
        low: f64,
        /// Where it ends.
        high: f64,
    },
}

impl HistogramShape {
    /// A histogram of this name with so many bins.
    ///
    /// # Errors
    /// Where there can be none: see the constants of this module.
    pub fn new(name: &str, bins: u32, low: f64, high: f64) -> Result<Self, HistogramError> {
        let name = name.to_owned();
        if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(HistogramError::Name(name));
        }
        if bins == 0 || bins > MOST_BINS {
            return Err(HistogramError::Bins { name, bins });
        }
        // What is computed with the width has to be a number as well, which of two ends far apart it is not.
        if !(low < high && ((high - low) * f64::from(bins)).is_finite()) {
            return Err(HistogramError::Range { name, low, high });
        }
        Ok(Self { name, bins, low, high })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many bins it has.
    pub const fn bins(&self) -> u32 {
        self.bins
    }

    /// Where the first bin begins.
    pub const fn low(&self) -> f64 {
        self.low
    }

    /// Where the last bin ends, which does not have this value itself.
    pub const fn high(&self) -> f64 {
        self.high
    }
}

/// A value that a filter fills in.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Fill {
    /// The histogram, by its place in the order in which the filter declared them.
    pub histogram: u16,
    /// The value.
    pub value: f64,
}

/// What a filter fills in for one event: [`MOST_FILLS`] values, and how many more there were.
#[derive(Clone, PartialEq, Debug)]
pub struct Fills {
    values: Vec<Fill>,
    dropped: u64,
}

impl Default for Fills {
    fn default() -> Self {
        Self { values: Vec::with_capacity(MOST_FILLS), dropped: 0 }
    }
}

impl Fills {
    /// Another event.
    pub fn clear(&mut self) {
        self.values.clear();
        self.dropped = 0;
    }

    /// The same as another one, in the memory that this one has.
    pub fn copy_from(&mut self, other: &Self) {
        self.values.clone_from(&other.values);
        self.dropped = other.dropped;
    }

    /// A value is filled in, or dropped where there are [`MOST_FILLS`] already.
    pub fn push(&mut self, fill: Fill) {
        if self.values.len() < MOST_FILLS { self.values.push(fill) } else { self.dropped += 1 }
    }

    /// So many were dropped before they came here.
    pub const fn drop_more(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// The values, in the order in which they were filled in.
    pub fn values(&self) -> &[Fill] {
        &self.values
    }

    /// How many there were no room for.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The counts of a histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    shape: HistogramShape,
    /// How often a value of each bin was filled in.
    pub counts: Box<[u64]>,
    /// How often one below the first bin was.
    pub underflow: u64,
    /// How often one behind the last bin was.
    pub overflow: u64,
    /// How often something was that is no number.
    pub not_a_number: u64,
}

impl Histogram {
    /// Without any entry.
    pub fn new(shape: HistogramShape) -> Self {
        let counts = vec![0; shape.bins as usize].into_boxed_slice();
        Self { shape, counts, underflow: 0, overflow: 0, not_a_number: 0 }
    }

    /// What it is like.
    pub const fn shape(&self) -> &HistogramShape {
        &self.shape
    }

    /// Fills in a value.
    pub fn fill(&mut self, value: f64) {
        let HistogramShape { low, high, .. } = self.shape;
        let count = if value.is_nan() {
            &mut self.not_a_number
        } else if value < low {
            &mut self.underflow
        } else if value >= high {
            &mut self.overflow
        } else {
            // In this order: a value at a bin's beginning is not rounded to the one before where the width is a whole number.
            let bin = ((value - low) * self.counts.len() as f64 / (high - low)) as usize;
            // What is just below the end may be rounded up to it.
            let last = self.counts.len() - 1;
            &mut self.counts[bin.min(last)]
        };
        *count += 1;
    }

    /// How often something was filled in.
    pub fn entries(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.underflow + self.overflow + self.not_a_number
    }

    /// No entries any more.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.underflow, self.overflow, self.not_a_number) = (0, 0, 0);
    }

    /// Adds the counts of another one of the same shape; false, and nothing is added, where it has another one.
    pub fn add(&mut self, other: &Self) -> bool {
        if self.shape != other.shape {
            return false;
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.underflow += other.underflow;
        self.overflow += other.overflow;
        self.not_a_number += other.not_a_number;
        true
    }
}
