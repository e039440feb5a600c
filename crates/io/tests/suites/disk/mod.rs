//! Rules for every disk, over the machine's files and the simulated ones; and the losses that the simulated one may
//! have.

mod file_systems;
mod files;
mod removal;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ropewalk_io::SimulatedClock;
use ropewalk_io::disk::{
    Completion, Disk, DiskFaults, FileToken, RealDisk, RealDiskConfig, SimulatedDisk, SimulatedDiskConfig,
    SimulatedStorage, WriteMode,
};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

/// A directory of the machine, removed at the end of the test.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Default for Directory {
    fn default() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = file_systems::present().unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into()).join(name);
        std::fs::create_dir_all(&path).expect("a directory for tests");
        Self { path }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Such a directory, whose files are written past the page cache.
#[derive(Default)]
pub(crate) struct PastTheCache(Directory);

impl Medium for PastTheCache {
    type D = RealDisk;

    fn disk(&mut self, settings: Settings) -> RealDisk {
        let Settings { queue_bytes, sync_on_publish } = settings;
        let config =
            RealDiskConfig { queue_bytes, sync_on_publish, mode: WriteMode::Direct, ..RealDiskConfig::default() };
        RealDisk::new(config, || {}).expect("a thread and two eventfds")
    }

    fn directory(&self) -> PathBuf {
        self.0.directory()
    }

    /// Without the zeros that may follow the last append; no test's file ends with its own zeros.
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let mut bytes = self.0.read(path)?;
        let filled = bytes.len();
        while filled.is_multiple_of(4096) && bytes.last() == Some(&0) {
            bytes.pop();
        }
        Some(bytes)
    }

    fn remove_directory(&self, path: &Path) {
        self.0.remove_directory(path);
    }

    fn idle(&mut self) {
        self.0.idle();
    }
}

impl Medium for Directory {
    type D = RealDisk;

    fn disk(&mut self, settings: Settings) -> RealDisk {
        let Settings { queue_bytes, sync_on_publish } = settings;
        let config = RealDiskConfig { queue_bytes, sync_on_publish, ..RealDiskConfig::default() };
        RealDisk::new(config, || {}).expect("a thread and two eventfds")
    }

    fn directory(&self) -> PathBuf {
        self.path.clone()
    }

    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        std::fs::read(path).ok()
    }

    fn remove_directory(&self, path: &Path) {
        std::fs::remove_dir_all(path).expect("it is ours");
    }

    fn idle(&mut self) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A medium in virtual time.
pub(crate) struct Simulation {
    pub(crate) storage: SimulatedStorage,
    pub(crate) clock: SimulatedClock,
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Self {
        let storage = SimulatedStorage::new(seed, DiskFaults::default());
        storage.add_directory(Path::new("/data"));
        Self { storage, clock: SimulatedClock::default() }
    }
}

impl Default for Simulation {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Medium for Simulation {
    type D = SimulatedDisk;

    fn disk(&mut self, settings: Settings) -> SimulatedDisk {
        let Settings { queue_bytes, sync_on_publish } = settings;
        self.storage.disk(SimulatedDiskConfig { queue_bytes, sync_on_publish }, self.clock.clone())
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from("/data")
    }

    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.storage.read(path).ok()
    }

    fn remove_directory(&self, path: &Path) {
        self.storage.remove_directory(path);
    }

    fn idle(&mut self) {
        self.clock.advance(Duration::from_micros(10));
    }
}

macro_rules! conformance {
    ($module:ident, $medium:ident: $($rule:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $rule() {
                    crate::disk::rules::$rule::<super::$medium>();
                }
            )*
        }
    };
}

macro_rules! every_rule_for {
    ($($module:ident = $medium:ident),*) => {$(
        with_every_rule!(conformance!($module, $medium));
    )*};
}

/// Passes all rules to another macro, after its given arguments.
macro_rules! with_every_rule {
    ($other:ident!($($given:ident),*)) => {
        $other!($($given),*:
            appends_stand_in_the_file_in_order,
            an_append_may_have_more_slices_than_one_system_call_takes,
            a_published_file_has_its_final_name_alone,
            a_published_file_has_its_checksum_beside_it,
            open_records_are_sealed_and_others_stay_as_they_are,
            every_call_completes_once_and_in_order,
            the_queue_is_bounded_in_bytes_but_an_empty_one_takes_any_size,
            a_file_that_cannot_be_created_takes_nothing_and_gives_the_slices_back,
            nothing_is_overwritten,
            a_file_that_is_published_is_not_open,
            publishing_into_nowhere_leaves_the_file_open,
            removed_files_are_gone,
            directories_are_made_and_listed,
            a_file_that_is_deleted_while_it_is_written_is_written_once_more,
            a_published_file_is_read_as_it_was_written,
            there_is_free_room,
        );
    };
}

pub(crate) use with_every_rule;

every_rule_for!(real = Directory, past_the_cache = PastTheCache, simulated = Simulation);

pub(crate) struct Settings {
    pub(crate) queue_bytes: usize,
    pub(crate) sync_on_publish: bool,
}

/// The storage of a disk under test.
pub(crate) trait Medium: Default {
    type D: Disk;

    fn disk(&mut self, settings: Settings) -> Self::D;
    /// An existing directory.
    fn directory(&self) -> PathBuf;
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
    /// Another program removes a directory with everything in it.
    fn remove_directory(&self, path: &Path);
    /// Lets time pass after an idle round.
    fn idle(&mut self);
}

/// A pool of 64 KiB and the data written from it.
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

/// A completion without its slices.
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
    /// Returned slices, with their cookies.
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

    /// Waits until `count` completions have arrived in all.
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
