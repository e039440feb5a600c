//! Where whoever controls a run says to gateways what changes while it goes on.

use ropewalk_terms::SourceId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far somebody has read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Read {
    changes: u64,
    masks: usize,
}

/// What was said since the run was set up.
#[derive(Debug, Default)]
struct Said {
    /// Each source that takes part no longer, or again, one behind the other: who was away in between has as many turns to record as
    /// everybody else. So many are allowed of each source that this stays short.
    masks: Vec<(SourceId, bool)>,
}

/// A board that all input queues of a process read. Each looks in its turns whether anything was said since, and takes the lock only if so.
#[derive(Debug, Default)]
pub struct OrderBoard {
    changes: AtomicU64,
    said: Mutex<Said>,
}

impl OrderBoard {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was written: who looks from now on sees it.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A source takes part no longer, or again.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        self.lock().masks.push((source, is_masked));
        self.changed();
    }

    /// Whether anything was said since.
    #[inline]
    pub fn has_news(&self, read: &Read) -> bool {
        self.changes.load(Ordering::Acquire) != read.changes
    }

    /// Reads on: `mask` hears of each source that takes part no longer, or again.
    pub fn read(&self, read: &mut Read, mut mask: impl FnMut(SourceId, bool)) {
        // Before what is read: what comes behind it is looked at once more.
        read.changes = self.changes.load(Ordering::Acquire);
        let said = self.lock();
        let news = said.masks.get(read.masks..).unwrap_or_default();
        news.iter().for_each(|&(source, is_masked)| mask(source, is_masked));
        read.masks = said.masks.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_everything_once_and_in_order() {
        let board = OrderBoard::default();
        let mut readers = [Read::default(); 2];
        assert!(!board.has_news(&readers[0]));
        let read = |reader: &mut Read| {
            let mut masks = Vec::new();
            board.read(reader, |source, is_masked| masks.push((source.0, is_masked)));
            masks
        };
        board.mask(SourceId(3), true);
        assert!(board.has_news(&readers[0]));
        assert_eq!(read(&mut readers[0]), [(3, true)]);
        assert!(!board.has_news(&readers[0]) && board.has_news(&readers[1]));
        board.mask(SourceId(3), false);
        board.mask(SourceId(3), true);
        assert_eq!(read(&mut readers[0]), [(3, false), (3, true)]);
        assert_eq!(read(&mut readers[1]), [(3, true), (3, false), (3, true)], "though it was away in between");
        assert_eq!(readers[0], readers[1]);
    }
}
