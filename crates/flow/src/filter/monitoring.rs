//! What a filter reported on the events of each lumisection: histograms, and the count of each trigger and stream.
//!
//! ```text
//!  declare: shapes --> one list for all filter units
//!  decided, fill: verdict, triggers, streams, fills of a decision that counts --> the open lumisection of the event
//!  close: no more events of it --> next_closed, to be kept
//! ```
//! Decisions that do not count (stale, or of a filter unit that ended during the event) never reach this module.

use ropewalk_terms::{StreamSet, TriggerBits, Verdict};
use std::collections::VecDeque;

/// The decisions on the events of one lumisection in one builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct LumisectionRecord {
    /// The number of the lumisection, from 1.
    pub number: u32,
    /// Events that were accepted, whether or not a stream took them.
    pub accepted: u64,
    /// Events that were rejected.
    pub rejected: u64,
    /// Events without a decision.
    pub quarantined: u64,
    /// Accepted events that passed each trigger.
    pub triggers: Box<[u64]>,
    /// Events that each stream took, after its prescale.
    pub streams: Box<[u64]>,
    /// In the order of their first declaration.
    pub histograms: Vec<Histogram>,
    /// Fills of counted events for which there was no room or no histogram.
    pub dropped_fills: u64,
}

impl LumisectionRecord {
    fn new(streams: usize) -> Self {
        Self {
            number: 0,
            accepted: 0,
            rejected: 0,
            quarantined: 0,
            triggers: vec![0; TriggerBits::COUNT as usize].into_boxed_slice(),
            streams: vec![0; streams].into_boxed_slice(),
            histograms: Vec::with_capacity(MOST_HISTOGRAMS),
            dropped_fills: 0,
        }
    }

    fn clear(&mut self) {
        (self.accepted, self.rejected, self.quarantined, self.dropped_fills) = (0, 0, 0, 0);
        self.triggers.fill(0);
        self.streams.fill(0);
        self.histograms.iter_mut().for_each(Histogram::clear);
    }

    /// Events with a decision, and events without one.
    pub const fn events(&self) -> u64 {
        self.accepted + self.rejected + self.quarantined
    }
}

/// A decision that counts.
#[derive(Copy, Clone, Debug)]
pub struct Counted {
    /// The event's lumisection.
    pub lumisection: u32,
    /// What was decided.
    pub verdict: Verdict,
    /// The triggers that it passed.
    pub triggers: TriggerBits,
    /// The streams that took the event.
    pub streams: StreamSet,
}

/// Adds up the reports of filters: see the module's diagram.
#[derive(Debug)]
pub struct Monitoring {
    streams: usize,
    shapes: Vec<HistogramShape>,
    /// Sorted by number.
    open: Vec<LumisectionRecord>,
    closed: VecDeque<LumisectionRecord>,
    /// Empty records for the next lumisections: created before the run, or returned.
    spare: Vec<LumisectionRecord>,
}

/// Records created before the run: one is filled while others are closed, written or being returned.
const SPARE: usize = 16;

impl Monitoring {
    /// Creates it for this number of streams.
    pub fn new(streams: usize) -> Self {
        let (open, closed) = (Vec::with_capacity(2 * SPARE), VecDeque::with_capacity(2 * SPARE));
        let mut spare = Vec::with_capacity(2 * SPARE);
        spare.resize_with(SPARE, || LumisectionRecord::new(streams));
        Self { streams, shapes: Vec::with_capacity(MOST_HISTOGRAMS), open, closed, spare }
    }

    /// Registers a filter's histograms and returns the place of each. None if there is no room, or if a histogram of
    /// the same name has another shape: its fills are dropped and counted.
    pub fn declare(&mut self, shapes: &[HistogramShape]) -> Vec<Option<u16>> {
        shapes.iter().map(|shape| self.place_of(shape)).collect()
    }

    fn place_of(&mut self, shape: &HistogramShape) -> Option<u16> {
        if let Some(place) = self.shapes.iter().position(|known| known.name() == shape.name()) {
            return (self.shapes[place] == *shape).then_some(place as u16);
        }
        if self.shapes.len() == MOST_HISTOGRAMS {
            return None;
        }
        self.shapes.push(shape.clone());
        for record in self.open.iter_mut().chain(&mut self.spare) {
            record.histograms.push(Histogram::new(shape.clone()));
        }
        Some((self.shapes.len() - 1) as u16)
    }

    /// Counts a decision.
    pub fn decided(&mut self, decision: &Counted) {
        let record = self.record(decision.lumisection);
        match decision.verdict {
            Verdict::Rejected => record.rejected += 1,
            Verdict::Quarantined => record.quarantined += 1,
            Verdict::Accepted | Verdict::Unselected => {
                record.accepted += 1;
                for (trigger, count) in (0..).zip(&mut record.triggers) {
                    *count += u64::from(decision.triggers.meets(TriggerBits::of(trigger)));
                }
            }
        }
        decision.streams.iter().for_each(|stream| record.streams[usize::from(stream.0)] += 1);
    }

    /// Adds the fills of a counted decision on an event of this lumisection. `histograms` is what
    /// [`Monitoring::declare`] returned for the unit that decided.
    pub fn fill(&mut self, lumisection: u32, histograms: &[Option<u16>], fills: &Fills) {
        let record = self.record(lumisection);
        record.dropped_fills += fills.dropped();
        for &Fill { histogram, value } in fills.values() {
            let place = histograms.get(usize::from(histogram)).copied().flatten();
            match place {
                Some(place) => record.histograms[usize::from(place)].fill(value),
                None => record.dropped_fills += 1,
            }
        }
    }

    /// Returns the record of an open lumisection; creates it if it does not exist.
    fn record(&mut self, number: u32) -> &mut LumisectionRecord {
        let place = match self.open.binary_search_by_key(&number, |record| record.number) {
            Ok(place) => place,
            Err(place) => {
                let mut record = self.spare.pop().unwrap_or_else(|| LumisectionRecord::new(self.streams));
                let known = record.histograms.len();
                record.histograms.extend(self.shapes[known..].iter().cloned().map(Histogram::new));
                record.number = number;
                self.open.insert(place, record);
                place
            }
        };
        &mut self.open[place]
    }

    /// Closes a lumisection: no more events of it follow. One without events gets a record too, which says so.
    pub fn close(&mut self, number: u32) {
        self.record(number);
        let place = self.open.binary_search_by_key(&number, |record| record.number);
        self.closed.extend(place.map(|place| self.open.remove(place)));
    }

    /// Closes every open lumisection at the end of the run.
    pub fn close_all(&mut self) {
        self.closed.extend(self.open.drain(..));
    }

    /// Returns the next closed record, to be stored. Return it with [`Monitoring::give_back`].
    pub fn next_closed(&mut self) -> Option<LumisectionRecord> {
        self.closed.pop_front()
    }

    /// Takes back a record that is no longer needed.
    pub fn give_back(&mut self, mut record: LumisectionRecord) {
        record.clear();
        self.spare.push(record);
    }

    /// Prepares for another run. Only the shapes of the histograms remain.
    pub fn restart(&mut self) {
        for mut record in self.open.drain(..).chain(self.closed.drain(..)) {
            record.clear();
            self.spare.push(record);
        }
    }
}

/// Most histograms of a run's filter.
pub const MOST_HISTOGRAMS: usize = 64;
/// Most bins of a histogram.
pub const MOST_BINS: u32 = 4096;
/// Most bytes of a histogram's name.
pub const MOST_NAME_BYTES: usize = 64;
/// Most values that a filter fills for one event.
pub const MOST_FILLS: usize = 256;

/// The shape of a histogram: bins of equal width from `low` to `high`, which is outside the last bin.
#[derive(Clone, PartialEq, Debug)]
pub struct HistogramShape {
    name: String,
    bins: u32,
    low: f64,
    high: f64,
}

/// Why a histogram is not possible.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum HistogramError {
    /// The name is not permitted.
    #[error("a histogram is called {0:?}: its name has 1 to {MOST_NAME_BYTES} bytes, without control characters")]
    Name(String),
    /// No bins, or too many.
    #[error("histogram `{name}` has {bins} bins: there can be 1 to {MOST_BINS}")]
    Bins {
        /// The name of the histogram.
        name: String,
        /// The number of bins.
        bins: u32,
    },
    /// The lower end is not below the upper end.
    #[error("histogram `{name}` goes from {low} to {high}: both are finite, and the second one is larger")]
    Range {
        /// The name of the histogram.
        name: String,
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
}

impl HistogramShape {
    /// Creates the shape of a histogram.
    ///
    /// # Errors
    /// If a value is outside the limits of this module's constants.
    pub fn new(name: &str, bins: u32, low: f64, high: f64) -> Result<Self, HistogramError> {
        let name = name.to_owned();
        if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(HistogramError::Name(name));
        }
        if bins == 0 || bins > MOST_BINS {
            return Err(HistogramError::Bins { name, bins });
        }
        // The product with the width must be finite as well, which it is not for two ends far apart.
        if !(low < high && ((high - low) * f64::from(bins)).is_finite()) {
            return Err(HistogramError::Range { name, low, high });
        }
        Ok(Self { name, bins, low, high })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of bins.
    pub const fn bins(&self) -> u32 {
        self.bins
    }

    /// The lower end of the first bin.
    pub const fn low(&self) -> f64 {
        self.low
    }

    /// The upper end of the last bin, exclusive.
    pub const fn high(&self) -> f64 {
        self.high
    }
}

/// A value that a filter fills.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Fill {
    /// The index of the histogram in the order in which the filter declared them.
    pub histogram: u16,
    /// The value.
    pub value: f64,
}

/// The fills of one event: up to [`MOST_FILLS`] values, and the number of values beyond.
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
    /// Prepares for another event.
    pub fn clear(&mut self) {
        self.values.clear();
        self.dropped = 0;
    }

    /// Copies another one into the existing memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.values.clone_from(&other.values);
        self.dropped = other.dropped;
    }

    /// Adds a value, or drops it if there are [`MOST_FILLS`] already.
    pub fn push(&mut self, fill: Fill) {
        if self.values.len() < MOST_FILLS { self.values.push(fill) } else { self.dropped += 1 }
    }

    /// Counts values that were dropped earlier.
    pub const fn drop_more(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// The values, in the order of filling.
    pub fn values(&self) -> &[Fill] {
        &self.values
    }

    /// The number of dropped values.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The counts of a histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    shape: HistogramShape,
    /// Entries of each bin.
    pub counts: Box<[u64]>,
    /// Entries below the first bin.
    pub underflow: u64,
    /// Entries above the last bin.
    pub overflow: u64,
    /// Entries that are not a number.
    pub not_a_number: u64,
}

impl Histogram {
    /// Creates a histogram without entries.
    pub fn new(shape: HistogramShape) -> Self {
        let counts = vec![0; shape.bins as usize].into_boxed_slice();
        Self { shape, counts, underflow: 0, overflow: 0, not_a_number: 0 }
    }

    /// The shape.
    pub const fn shape(&self) -> &HistogramShape {
        &self.shape
    }

    /// Adds a value.
    pub fn fill(&mut self, value: f64) {
        let HistogramShape { low, high, .. } = self.shape;
        let count = if value.is_nan() {
            &mut self.not_a_number
        } else if value < low {
            &mut self.underflow
        } else if value >= high {
            &mut self.overflow
        } else {
            // The order matters: with a whole-number width, a value at the lower end of a bin is not rounded into the
            // bin before.
            let bin = ((value - low) * self.counts.len() as f64 / (high - low)) as usize;
            // A value just below the upper end may be rounded up to it.
            let last = self.counts.len() - 1;
            &mut self.counts[bin.min(last)]
        };
        *count += 1;
    }

    /// The number of entries.
    pub fn entries(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.underflow + self.overflow + self.not_a_number
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.underflow, self.overflow, self.not_a_number) = (0, 0, 0);
    }

    /// Adds the counts of another histogram. Returns false and adds nothing if its shape differs.
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
