//! Who writes built events: run files, files of events for filter units, or nobody.

use super::filing::{Filing, FilingCounts};
use super::storage::{Progress, Storage, StorageCounts};
use ropewalk_io::disk::Disk;
use ropewalk_terms::{Cause, Incarnation, Instant, PoolAccount, Recorder, RunNumber};
use std::os::fd::BorrowedFd;

/// Whether an event was taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Filed {
    /// It will be told how far it has come.
    Taken,
    /// There is no room now.
    NoRoom,
    /// It cannot be written at all, for this cause.
    Refused(Cause),
}

/// Who writes.
pub enum Writer<D: Disk> {
    /// Nobody: events are built and checked only.
    Nobody,
    /// Run files, one series for each stream.
    RunFiles(Storage<D>),
    /// Files of events for filter units that work on files.
    EventFiles(Filing<D>),
}

/// The same call to whoever writes.
macro_rules! either {
    ($writer:expr, $otherwise:expr, $one:ident => $call:expr) => {
        match $writer {
            Writer::Nobody => $otherwise,
            Writer::RunFiles($one) => $call,
            Writer::EventFiles($one) => $call,
        }
    };
}

impl<D: Disk> Writer<D> {
    /// A run begins.
    pub(super) fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation) {
        match self {
            Self::Nobody => {}
            Self::RunFiles(storage) => storage.begin(now, run, incarnation),
            Self::EventFiles(filing) => filing.begin(run),
        }
    }

    pub(super) fn drain(&mut self, now: Instant) {
        either!(self, (), one => one.drain(now));
    }

    pub(super) fn flush(&mut self, now: Instant) {
        either!(self, (), one => one.flush(now));
    }

    pub(super) fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        either!(self, 0, one => one.poll(now, progress))
    }

    /// Nothing more comes: files are closed. Whether they are.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        either!(self, true, one => {
            one.finish(now);
            one.is_closed()
        })
    }

    pub(super) fn pool(&mut self) -> Option<PoolAccount> {
        either!(self, None, one => Some(one.pool()))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        either!(self, None, one => one.next_deadline())
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        either!(self, true, one => one.prepare_wait())
    }

    pub(super) fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, None, one => one.wait_descriptor())
    }

    /// How long batches took to be written.
    pub(super) const fn times(&self) -> Option<&Recorder> {
        if let Self::RunFiles(storage) = self { Some(storage.times()) } else { None }
    }

    /// Whether the disk has something to write.
    pub(super) fn is_writing(&self) -> bool {
        either!(self, false, one => one.is_writing())
    }

    pub(super) fn copied_bytes(&self) -> u64 {
        either!(self, 0, one => one.copied_bytes())
    }

    pub(super) fn restored_files(&self) -> u64 {
        either!(self, 0, one => one.restored_files())
    }

    /// What was written; files of events are counted as closed segments.
    pub(super) fn counts(&self) -> StorageCounts {
        match self {
            Self::Nobody => StorageCounts::default(),
            Self::RunFiles(storage) => storage.counts(),
            Self::EventFiles(filing) => {
                let FilingCounts { events, files, bytes, refusals, refused, .. } = filing.counts();
                StorageCounts { events, bytes, segments: files, refusals, refused, ..StorageCounts::default() }
            }
        }
    }
}
