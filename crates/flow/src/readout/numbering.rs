//! What a source's numbers did that they should not: named with place and size, for the account of the run.

use crate::messages::{NumberingAnomaly, NumberingKind, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::EventKey;

/// What happened to the numbers of one source, in order; of more than can be reported the first ones.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    list: ArrayVec<NumberingAnomaly, { ReportEntry::MOST_ANOMALIES }>,
}

impl Numbering {
    /// Takes note of something. Wrong numbers and left-overs in a row are one.
    pub(super) fn note(&mut self, kind: NumberingKind, key: EventKey, from: u64, to: u64, size: u64) {
        use NumberingKind::{LeftOver, OutOfSync, WrongNumber};
        // The operator may have to act on this one.
        if kind == OutOfSync && self.list.is_full() {
            self.list.pop();
        }
        match self.list.last_mut() {
            Some(last) if last.kind == kind && last.key == key && matches!(kind, LeftOver | WrongNumber) => {
                last.size += size;
            }
            _ => _ = self.list.try_push(NumberingAnomaly { kind, key, from, to, size }),
        }
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = NumberingAnomaly> + '_ {
        self.list.iter().copied()
    }
}
