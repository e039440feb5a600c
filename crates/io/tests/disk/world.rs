//! One disk of one medium and a pool to write from.

use std::path::{Path, PathBuf};

use ropewalk_io::disk::{Completion, Disk, FileToken};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

pub(crate) struct Settings {
    pub(crate) queue_bytes: usize,
    pub(crate) sync_on_publish: bool,
}

/// What a disk under test writes.
pub(crate) trait Medium: Default {
    type D: Disk;

    fn disk(&mut self, settings: Settings) -> Self::D;
    /// An existing directory.
    fn directory(&self) -> PathBuf;
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
    /// Somebody else removes a directory with everything in it.
    fn remove_directory(&self, path: &Path);
    /// Nothing was done: lets time go on.
    fn idle(&mut self);
}

/// A pool of 64 KiB and what was written from it.
pub(crate) struct Source {
    pool: Pool,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self { pool: Pool::new(PoolConfig::heap("source", 1 << 10, 64)).expect("memory for a test") }
    }

    /// These bytes (at most 1 KiB) in slices of at most `cut`.
    pub(crate) fn slices(&mut self, bytes: &[u8], cut: usize) -> Vec<Slice> {
        let mut loan = self.pool.loan(Owner::SHARED).expect("blocks come back");
        loan.spare()[..bytes.len()].copy_from_slice(bytes);
        loan.commit(bytes.len());
        let Some(mut rest) = loan.split_committed() else { return Vec::new() };
        let mut slices = Vec::new();
        while rest.len() > cut {
            slices.push(rest.split_to(cut));
        }
        slices.push(rest);
        slices
    }

    pub(crate) fn assert_full(&mut self) {
        self.pool.collect();
        assert_eq!(self.pool.held(), 0, "a slice is held for ever");
    }
}

/// What a completion says, without the slices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Created(FileToken, Result<(), String>),
    Appended(u64, u64),
    Failed(u64, String),
    Synced(u64, Result<(), String>),
    Published(u64, Result<(), String>),
    Removed(u64, Result<(), String>),
    LookedFor(u64, Result<(), String>),
}

pub(crate) struct World<M: Medium> {
    pub(crate) disk: M::D,
    pub(crate) medium: M,
    pub(crate) source: Source,
    pub(crate) said: Vec<Said>,
    /// Slices that came back, with their cookies.
    pub(crate) back: Vec<(u64, Vec<Slice>)>,
    completions: Vec<Completion>,
}

impl<M: Medium> World<M> {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::over(M::default(), settings)
    }

    pub(crate) fn over(mut medium: M, settings: Settings) -> Self {
        let disk = medium.disk(settings);
        let (said, back, completions) = (Vec::new(), Vec::new(), Vec::new());
        Self { disk, medium, source: Source::new(), said, back, completions }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.medium.directory().join(name)
    }

    pub(crate) fn append(&mut self, file: FileToken, cookie: u64, bytes: &[u8]) {
        let mut data = self.source.slices(bytes, 100);
        self.disk.append(file, cookie, &mut data).expect("room in the queue");
        assert!(data.is_empty());
    }

    /// Waits until so many completions have come in all.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, count: usize) {
        for _ in 0..1_000_000 {
            if self.said.len() >= count {
                assert_eq!(self.said.len(), count);
                return;
            }
            if self.disk.poll(&mut self.completions) == 0 {
                self.medium.idle();
            }
            for completion in self.completions.drain(..) {
                self.said.push(said(completion, &mut self.back));
            }
        }
        panic!("{count} completions expected, but only {:?}", self.said);
    }

    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.medium.read(&self.path(name))
    }

    #[track_caller]
    pub(crate) fn finish(mut self) {
        assert_eq!(self.disk.queued_bytes(), 0);
        self.back.clear();
        self.source.assert_full();
    }
}

fn said(completion: Completion, back: &mut Vec<(u64, Vec<Slice>)>) -> Said {
    let words = |result: Result<(), ropewalk_io::disk::DiskCause>| result.map_err(|cause| cause.to_string());
    match completion {
        Completion::Created { file, result } => Said::Created(file, words(result)),
        Completion::Appended { cookie, offset, .. } => Said::Appended(cookie, offset),
        Completion::AppendFailed { cookie, cause, data, .. } => {
            back.push((cookie, data));
            Said::Failed(cookie, cause.to_string())
        }
        Completion::Synced { cookie, result, .. } => Said::Synced(cookie, words(result)),
        Completion::Published { cookie, result, .. } => Said::Published(cookie, words(result)),
        Completion::Removed { cookie, result } => Said::Removed(cookie, words(result)),
        Completion::LookedFor { cookie, result } => Said::LookedFor(cookie, words(result)),
    }
}
