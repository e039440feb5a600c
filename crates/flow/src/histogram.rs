//! Histograms that the user asked for: of fragment sizes, of the time between fragments, of any integer in them.
//!
//! Readout units and gateways fill them when fragments arrive, including fragments that are dropped later, on the only
//! thread that reads the source. Each fill is one addition, in memory that was allocated before the run.

use core::time::Duration;
use ropewalk_terms::{Binning, SourceId};

/// The byte order of an integer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FieldOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// An unsigned integer at a fixed place of each fragment.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct IntegerField {
    /// Offset in the fragment, in bytes.
    pub offset: u32,
    /// Its size in bytes, 1 to 8.
    pub bytes: u8,
    /// The order of these bytes.
    pub order: FieldOrder,
    /// The lowest bit that counts, which becomes bit 0 of the value.
    pub lowest_bit: u8,
    /// Number of bits that count, 1 to 64.
    pub bits: u8,
}

impl IntegerField {
    /// Returns its value in a fragment that consists of these pieces; `None` if the fragment ends before it.
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

/// The quantity that is histogrammed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Histogrammed {
    /// Bytes of its payload.
    Size,
    /// Nanoseconds since the source's previous fragments, as far as a readout unit can tell: fragments that it takes
    /// together have arrived at the same time. A gateway counts each packet once. The first one is not counted.
    Interval,
    /// An integer in it.
    Field(IntegerField),
}

/// A histogram for each of some sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistogramConfig {
    /// Its index among all histograms of the configuration, by which reports name it.
    pub index: u8,
    /// The sources that have this histogram, one each.
    pub sources: Vec<SourceId>,
    /// The quantity.
    pub of: Histogrammed,
    /// The bins.
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
    /// Returns the histograms of a source, usually none.
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

    /// Returns its index among all histograms of the configuration.
    pub(crate) const fn index(&self) -> u8 {
        self.index
    }

    /// Returns its quantity.
    pub(crate) const fn of(&self) -> Histogrammed {
        self.of
    }

    /// Returns the counts of all cells.
    pub(crate) const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the cells that are not empty, with their counts.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Counts a value.
    #[inline]
    pub(crate) fn count(&mut self, value: u64) {
        self.counts[usize::from(self.binning.cell_of(value))] += 1;
    }

    /// Counts the time since the previous fragment.
    #[inline]
    pub(crate) fn count_interval(&mut self, since: Duration) {
        self.count(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts an integer, if it is present.
    #[inline]
    pub(crate) fn count_field(&mut self, value: Option<u64>) {
        match value {
            Some(value) => self.count(value),
            None => self.counts[usize::from(self.binning.short())] += 1,
        }
    }
}
