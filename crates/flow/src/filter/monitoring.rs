//! What a filter said of the events of each lumisection: histograms, and how often each trigger and stream took one.
//!
//! ```text
//!  declare: shapes --> one list for all filter units
//!  decided, fill: verdict, triggers, streams, fills of a decision that counts --> the open lumisection of the event
//!  close: no more events of it --> next_closed, to be kept
//! ```
//! A decision that does not count (of a filter unit that ended over the event, or stale) never comes here, and leaves
//! nothing.

use ropewalk_terms::{StreamSet, TriggerBits, Verdict};
use std::collections::VecDeque;

/// What became of the events of a lumisection in one builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct LumisectionRecord {
    /// Which lumisection, from 1 on.
    pub number: u32,
    /// Events that were accepted, whether or not a stream took them.
    pub accepted: u64,
    /// Events that were rejected.
    pub rejected: u64,
    /// Events of which no decision could be had.
    pub quarantined: u64,
    /// Accepted events that passed each trigger.
    pub triggers: Box<[u64]>,
    /// Events that each stream took, after its prescale.
    pub streams: Box<[u64]>,
    /// In the order in which they were declared first.
    pub histograms: Vec<Histogram>,
    /// Fills of events that count for which there was no room, or no histogram.
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

    /// Events that were decided on, or could not be.
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
    /// The streams that took it.
    pub streams: StreamSet,
}

/// Adds up what filters say: see the module's picture.
#[derive(Debug)]
pub struct Monitoring {
    streams: usize,
    shapes: Vec<HistogramShape>,
    /// By their numbers.
    open: Vec<LumisectionRecord>,
    closed: VecDeque<LumisectionRecord>,
    /// Records for the next lumisections: made before the run, or taken and come back.
    spare: Vec<LumisectionRecord>,
}

/// Records that are made before the run: one is filled while others are closed, written, or on their way back.
const SPARE: usize = 16;

impl Monitoring {
    /// For so many streams.
    pub fn new(streams: usize) -> Self {
        let (open, closed) = (Vec::with_capacity(2 * SPARE), VecDeque::with_capacity(2 * SPARE));
        let mut spare = Vec::with_capacity(2 * SPARE);
        spare.resize_with(SPARE, || LumisectionRecord::new(streams));
        Self { streams, shapes: Vec::with_capacity(MOST_HISTOGRAMS), open, closed, spare }
    }

    /// What a filter declares, in its order: where each of its histograms is found here. None for one for which there
    /// is no place, or whose name another one has that is not like it: its fills are dropped, and counted.
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

    /// A decision counts.
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

    /// What came with a decision that counts, on an event of this lumisection. `histograms` is what
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

    /// The record of an open lumisection; creates it if it does not exist.
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

    /// No more events of this lumisection follow. One without any event here is closed too: that it had none is known
    /// then.
    pub fn close(&mut self, number: u32) {
        self.record(number);
        let place = self.open.binary_search_by_key(&number, |record| record.number);
        self.closed.extend(place.map(|place| self.open.remove(place)));
    }

    /// The run ends: every lumisection that is open is closed.
    pub fn close_all(&mut self) {
        self.closed.extend(self.open.drain(..));
    }

    /// The next one that is closed, to be kept. Give it back with [`Monitoring::give_back`].
    pub fn next_closed(&mut self) -> Option<LumisectionRecord> {
        self.closed.pop_front()
    }

    /// A record that is not needed any more.
    pub fn give_back(&mut self, mut record: LumisectionRecord) {
        record.clear();
        self.spare.push(record);
    }

    /// A run begins: nothing is left of another one but the histograms' shapes.
    pub fn restart(&mut self) {
        for mut record in self.open.drain(..).chain(self.closed.drain(..)) {
            record.clear();
            self.spare.push(record);
        }
    }
}

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
            // In this order: a value at a bin's beginning is not rounded to the one before where the width is a whole
            // number.
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
