//! What every disk must do, over the machine's files and the simulated ones; and what the simulated one may lose.

mod direct;
mod packing;
mod power;
mod suite;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ropewalk_io::SimulatedClock;
use ropewalk_io::disk::{
    DiskFaults, RealDisk, RealDiskConfig, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage, WriteMode,
};

use crate::world::{Medium, Settings};

/// A directory of the machine that goes away with the test.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Default for Directory {
    fn default() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
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

    /// Without the zeros that may stand behind the last append; no test's file ends in some of its own.
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
                    crate::suite::$rule::<super::$medium>();
                }
            )*
        }
    };
}

macro_rules! every_rule_for {
    ($($module:ident = $medium:ident),*) => {$(
        conformance!($module, $medium:
            appends_stand_in_the_file_in_order,
            an_append_may_have_more_slices_than_one_system_call_takes,
            a_published_file_has_its_final_name_alone,
            a_published_file_has_its_checksum_beside_it,
            every_call_completes_once_and_in_order,
            the_queue_is_bounded_in_bytes_but_an_empty_one_takes_any_size,
            a_file_that_cannot_be_created_takes_nothing_and_gives_the_slices_back,
            nothing_is_overwritten,
            a_file_that_is_published_is_not_open,
            publishing_into_nowhere_leaves_the_file_open,
            removed_files_are_gone,
            directories_are_made_and_listed,
            what_somebody_deletes_while_it_is_written_is_written_once_more,
            a_published_file_is_read_as_it_was_written,
            there_is_free_room,
        );
    )*};
}

every_rule_for!(real = Directory, past_the_cache = PastTheCache, simulated = Simulation);
