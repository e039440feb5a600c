//! What filters counted, as it stands in documents.

use ropewalk_flow::filter::{Histogram, LumisectionRecord};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of events, how often each trigger and stream took one, and what was filled into histograms.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Events that were accepted, whether or not a stream took them.
    pub accepted: u64,
    /// Events that were rejected.
    pub rejected: u64,
    /// Events of which no decision could be had: they are in the stream `error`.
    pub quarantined: u64,
    /// Accepted events that passed each trigger, by its number; triggers that none passed are left out.
    pub triggers: BTreeMap<u8, u64>,
    /// Events that each stream took, after its prescale, by its name.
    pub streams: BTreeMap<String, u64>,
    /// Histograms by their names.
    pub histograms: BTreeMap<String, HistogramCounts>,
    /// Fills for which there was no room or no histogram.
    pub dropped_fills: u64,
}

/// A histogram: bins of equal width from `low` on up to `high`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HistogramCounts {
    /// Where the first bin begins.
    pub low: f64,
    /// Where the last bin ends.
    pub high: f64,
    /// All entries: those of the bins, and the three that follow.
    pub entries: u64,
    /// Values below the first bin.
    pub underflow: u64,
    /// Values behind the last bin.
    pub overflow: u64,
    /// What was no number.
    pub not_a_number: u64,
    /// The entries of each bin, all of equal width.
    pub bins: Vec<u64>,
}

impl Counts {
    /// Those of a record, whose streams have these names.
    pub(super) fn of(record: &LumisectionRecord, streams: &[StreamName]) -> Self {
        let named = streams.iter().zip(&record.streams).map(|(name, &count)| (name.to_string(), count));
        let passed = (0..).zip(&record.triggers).filter(|(_, count)| **count > 0);
        let histogram = |one: &Histogram| (one.shape().name().to_owned(), HistogramCounts::of(one));
        Self {
            accepted: record.accepted,
            rejected: record.rejected,
            quarantined: record.quarantined,
            triggers: passed.map(|(trigger, &count)| (trigger, count)).collect(),
            streams: named.collect(),
            histograms: record.histograms.iter().map(histogram).collect(),
            dropped_fills: record.dropped_fills,
        }
    }

    /// Events that were decided on, or could not be.
    pub const fn events(&self) -> u64 {
        self.accepted + self.rejected + self.quarantined
    }

    /// Adds others. An error is the name of a histogram that is not like the one of that name here; nothing of it is added.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), String> {
        for (name, more) in &other.histograms {
            let known = self.histograms.entry(name.clone()).or_insert_with(|| more.without_entries());
            if !known.add(more) {
                return Err(name.clone());
            }
        }
        for (sum, more) in [
            (&mut self.accepted, other.accepted),
            (&mut self.rejected, other.rejected),
            (&mut self.quarantined, other.quarantined),
            (&mut self.dropped_fills, other.dropped_fills),
        ] {
            add(sum, more);
        }
        other.triggers.iter().for_each(|(trigger, &count)| add(self.triggers.entry(*trigger).or_default(), count));
        other.streams.iter().for_each(|(name, &count)| add(self.streams.entry(name.clone()).or_default(), count));
        Ok(())
    }
}

/// Adds to a number that a file may say whatever it likes of.
const fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl HistogramCounts {
    fn of(histogram: &Histogram) -> Self {
        Self {
            low: histogram.shape().low(),
            high: histogram.shape().high(),
            entries: histogram.entries(),
            underflow: histogram.underflow,
            overflow: histogram.overflow,
            not_a_number: histogram.not_a_number,
            bins: histogram.counts.to_vec(),
        }
    }

    fn without_entries(&self) -> Self {
        let bins = vec![0; self.bins.len()];
        Self { entries: 0, underflow: 0, overflow: 0, not_a_number: 0, bins, ..*self }
    }

    /// Adds another one; false, and nothing is added, where that is not like it.
    fn add(&mut self, other: &Self) -> bool {
        if (self.low, self.high, self.bins.len()) != (other.low, other.high, other.bins.len()) {
            return false;
        }
        self.bins.iter_mut().zip(&other.bins).for_each(|(count, &more)| add(count, more));
        for (sum, more) in [
            (&mut self.entries, other.entries),
            (&mut self.underflow, other.underflow),
            (&mut self.overflow, other.overflow),
            (&mut self.not_a_number, other.not_a_number),
        ] {
            add(sum, more);
        }
        true
    }

    /// The mean of the values in bins, each taken for the middle of its bin; none without any.
    pub fn mean(&self) -> Option<f64> {
        let inside: u64 = self.bins.iter().sum();
        let width = (self.high - self.low) / self.bins.len() as f64;
        let middle = |bin: usize| (bin as f64 + 0.5).mul_add(width, self.low);
        let sum: f64 = self.bins.iter().enumerate().map(|(bin, &count)| middle(bin) * count as f64).sum();
        (inside > 0).then(|| sum / inside as f64)
    }
}
