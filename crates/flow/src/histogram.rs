//! Histograms that a user has asked for: of fragments' sizes, of the time between them, of any integer in them.
//!
//! They are filled where fragments come in, by readout units and by gateways, also for fragments that are dropped later,
//! on the one thread that reads the source: an addition each, in memory that was laid out before the run.

use core::time::Duration;
use ropewalk_terms::{Binning, SourceId};

/// In which order the bytes of an integer lie.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FieldOrder {
    /// The lowest one first.
    Little,
    /// The highest one first.
    Big,
}

/// An integer without a sign at a fixed place of each fragment.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct IntegerField {
    /// Bytes of the fragment before it.
    pub offset: u32,
    /// Its size in bytes, 1 to 8.
    pub bytes: u8,
    /// In which order these lie.
    pub order: FieldOrder,
    /// The lowest of its bits that counts, which then counts one; 0 is the lowest there is.
    pub lowest_bit: u8,
    /// How many bits count, 1 to 64.
    pub bits: u8,
}

impl IntegerField {
    /// Its value in a fragment that lies in these pieces; `None` if the fragment ends before it.
    #[inline]
    pub fn read<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
        let (offset, length) = (self.offset as usize, usize::from(self.bytes.min(8)));
        let mut bytes = [0_u8; 8];
        let mut before = 0;
        let mut found = 0;
        for piece in pieces {
            let skipped = offset.saturating_sub(before).min(piece.len());
            if found < length && skipped < piece.len() {
                let part = &piece[skipped..piece.len().min(skipped + length - found)];
                bytes[found..found + part.len()].copy_from_slice(part);
                found += part.len();
            }
            if found == length {
                return Some(self.number(bytes));
            }
            before += piece.len();
        }
        None
    }

    fn number(&self, bytes: [u8; 8]) -> u64 {
        let number = match self.order {
            FieldOrder::Little => u64::from_le_bytes(bytes),
            FieldOrder::Big => u64::from_be_bytes(bytes) >> (8 * (8 - u32::from(self.bytes.clamp(1, 8)))),
        };
        let mask = u64::MAX.checked_shr(64 - u32::from(self.bits.clamp(1, 64))).unwrap_or(0);
        number.checked_shr(self.lowest_bit.into()).unwrap_or(0) & mask
    }
}

/// What is counted of each fragment.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Histogrammed {
    /// Bytes of its payload.
    Size,
    /// Nanoseconds since the source's previous fragments came, as far as a readout unit can tell: fragments that it
    /// takes at once came at the same time. A gateway counts packets, each once. The first one is not counted.
    Interval,
    /// An integer in it.
    Field(IntegerField),
}

/// A histogram for each of some sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistogramConfig {
    /// Its place among all of the configuration, by which reports name it.
    pub index: u8,
    /// The sources that have this histogram, one each.
    pub sources: Vec<SourceId>,
    /// What is counted.
    pub of: Histogrammed,
    /// Into which bins.
    pub binning: Binning,
}

/// The histogram of one source.
#[derive(Debug)]
pub(crate) struct Histogram {
    index: u8,
    of: Histogrammed,
    binning: Binning,
    counts: Box<[u64]>,
}

impl Histogram {
    /// The histograms of a source, mostly none.
    pub(crate) fn all_of(configs: &[HistogramConfig], source: SourceId) -> Box<[Self]> {
        let has_one = configs.iter().filter(|config| config.sources.contains(&source));
        let new = |config: &HistogramConfig| Self {
            index: config.index,
            of: config.of,
            binning: config.binning.clone(),
            counts: vec![0; config.binning.cells()].into_boxed_slice(),
        };
        has_one.map(new).collect()
    }

    /// Its place among all of the configuration.
    pub(crate) const fn index(&self) -> u8 {
        self.index
    }

    /// What it counts.
    pub(crate) const fn of(&self) -> Histogrammed {
        self.of
    }

    /// What every cell holds.
    pub(crate) const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The cells in which there is something, with how much.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Counts a value.
    #[inline]
    pub(crate) fn count(&mut self, value: u64) {
        self.counts[usize::from(self.binning.cell_of(value))] += 1;
    }

    /// Counts the time since the fragment before.
    #[inline]
    pub(crate) fn count_interval(&mut self, since: Duration) {
        self.count(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts an integer, if it was there.
    #[inline]
    pub(crate) fn count_field(&mut self, value: Option<u64>) {
        match value {
            Some(value) => self.count(value),
            None => self.counts[usize::from(self.binning.short())] += 1,
        }
    }
}
