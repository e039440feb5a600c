//! From `[run]` and `[storage]` to the writers of run files, for builder units and gateways; and the forecast of the
//! time until the disks are full.

use super::RunError;
use super::disk_loads::DiskLoads;
use super::error::system;
use super::transfer::TransferConfig;
use ropewalk_config::quantity::Bytes;
use ropewalk_config::{Configuration, SyncChoice};
use ropewalk_engine::{OutputRoom, StorageConfig, StreamStorage};
use ropewalk_flow::filter::Streams;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::{RealDiskConfig, free_bytes};
use ropewalk_monitor::{DiskLoad, Sample};
use ropewalk_terms::{Counter, Instant, NodeId, Role, StreamIndex};
use ropewalk_wire::run_file::StreamName;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Settings of the writers of a run: builder units, or input queues of gateways.
pub(super) struct RunFiles<'a> {
    configuration: &'a Configuration,
    /// Number of writers of the run, in all processes: `keep` is divided among them.
    writers: u64,
}

impl<'a> RunFiles<'a> {
    /// Creates the settings of builder units, or of the queues of gateways.
    pub(super) fn of(configuration: &'a Configuration) -> Self {
        let queues: u64 = configuration.gateway.iter().map(|gateway| u64::from(gateway.queues)).sum();
        Self { configuration, writers: configuration.builder.len() as u64 + queues }
    }

    /// Returns the storage configuration of a writer of these streams, without sources.
    pub(super) fn storage_config(&self, writer: NodeId, output: PathBuf, streams: &Streams) -> StorageConfig {
        let Configuration { run, storage, stream: sections, .. } = self.configuration;
        // A farm rejects events, so that no stream of a gateway with a farm has every event.
        let farm_selects = self.configuration.has_gateways() && !self.configuration.decides_itself();
        let stream = |(name, index): (StreamName, _)| {
            let own = sections.iter().find(|stream| stream.name == name.as_str());
            StreamStorage {
                name,
                selected: farm_selects || !streams.takes_all(StreamIndex(index)),
                compression: own.and_then(|stream| stream.compress).unwrap_or(storage.compress),
                outputs: own.map(|stream| stream.outputs.clone()).unwrap_or_default(),
                hand_over: own.and_then(|stream| stream.hand_over.clone()),
            }
        };
        StorageConfig {
            more_outputs: storage.more_outputs.clone(),
            checksums: storage.checksums,
            hand_over: storage.hand_over.clone(),
            taken_away: storage.transfer.is_some(),
            room: storage.room(),
            streams: streams.names().zip(0..).map(stream).collect(),
            sync_batches: run.sync == SyncChoice::Batch,
            segment_bytes: run.segment_bytes.0,
            packing_threads: storage.compress_threads.get(),
            preallocate: storage.preallocate,
            segment_events: run.segment_events.unwrap_or(u64::MAX),
            segment_time: run.segment_time.map(|time| time.0),
            keep: run.keep.map(|keep| keep.0 / self.writers.max(1)),
            // Earlier than the end of draining, so that lost events are counted as `write_failed`.
            give_up_after: self.give_up_after(),
            ..StorageConfig::new(writer, output)
        }
    }

    /// Returns the pipe of the writer of this name. Each has its own.
    pub(super) fn pipe(&self, writer: &str) -> Option<PathBuf> {
        let path = self.configuration.storage.pipe.as_ref()?;
        if self.writers == 1 {
            return Some(path.clone());
        }
        let mut path = path.clone().into_os_string();
        path.push(format!(".{writer}"));
        Some(path.into())
    }

    fn give_up_after(&self) -> Duration {
        self.configuration.timeouts.drain.0 / 2
    }

    /// Returns the disk configuration of a writer.
    pub(super) fn disk_config(&self, thread_name: String, storage: &StorageConfig) -> RealDiskConfig {
        RealDiskConfig {
            thread_name,
            sync_on_publish: self.configuration.run.sync != SyncChoice::Never,
            permissions: self.configuration.storage.file_mode,
            mode: self.configuration.storage.write,
            threads: storage.disk_threads(),
            packing_threads: storage.packing_threads,
            ..RealDiskConfig::default()
        }
    }

    /// Returns the transfer of closed files; `None` without a transfer command or writers.
    pub(super) fn transfer_config(&self, writers: &[StorageConfig]) -> Option<TransferConfig> {
        let section = self.configuration.storage.transfer.as_ref()?;
        let places = places(writers);
        if places.is_empty() {
            return None;
        }
        Some(TransferConfig {
            command: section.command.clone(),
            checksum: section.checksum.clone(),
            delete: section.delete,
            timeout: section.timeout.0,
            at_once: section.at_once,
            places,
            writers: writers.iter().map(|storage| storage.writer).collect(),
        })
    }
}

/// Returns the output directories of these writers, without duplicates, each with the directory to which closed files
/// are moved.
fn places(writers: &[StorageConfig]) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut places = Vec::new();
    for storage in writers {
        for (outputs, hand_over) in storage.streams.iter().map(|stream| storage.places_of(stream)) {
            places.extend(outputs.into_iter().map(|output| (output.clone(), hand_over.cloned())));
        }
    }
    places.sort();
    places.dedup();
    places
}

/// Returns the output directory of each of these writers, as text.
pub(super) fn outputs_by_node(writers: &[StorageConfig]) -> BTreeMap<NodeId, String> {
    let text = |output: &PathBuf| std::path::absolute(output).as_ref().unwrap_or(output).display().to_string();
    let of = |writer: &StorageConfig| outputs(std::slice::from_ref(writer)).iter().map(text).collect::<Vec<_>>();
    writers.iter().map(|writer| (writer.writer, of(writer).join(", "))).collect()
}

/// Returns the output directories of each of these writers.
pub(super) fn directories_by_node(writers: &[StorageConfig]) -> BTreeMap<NodeId, Vec<PathBuf>> {
    writers.iter().map(|writer| (writer.writer, outputs(std::slice::from_ref(writer)))).collect()
}

/// Returns the output directories of these writers, without duplicates.
pub(super) fn outputs(writers: &[StorageConfig]) -> Vec<PathBuf> {
    let mut outputs: Vec<_> = places(writers).into_iter().map(|(output, _)| output).collect();
    outputs.dedup();
    outputs
}

/// The thread that queries the free space of the disks. A network disk that does not answer delays no other thread.
const THREAD: &str = "disks";
/// Interval of the queries.
const INTERVAL: Duration = Duration::from_secs(1);
/// Size of /proc/diskstats, with some hundred disks.
const STATISTICS: usize = 64 << 10;

/// The rate is averaged over about this time: files come and go, and space may be reserved for a whole file.
const AVERAGED: Duration = Duration::from_secs(60);
/// Time for which the rate is measured before it is reported.
const FIRST: Duration = Duration::from_secs(10);
/// The longest forecast: a year. A longer one is not useful.
const LONGEST_SECONDS: f64 = 3.2e7;

/// Remaining space of a run's disks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DiskLeft {
    /// Bytes that can still be written to the disk that is full first.
    pub free_bytes: u64,
    /// Time until it is full at the recent rate. Only the growth of this run's files counts, if that is less.
    /// `None` while it is not filling, or if `keep` is reached before.
    pub time: Option<Duration>,
}

/// Space that is required at the start of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct StartRoom {
    /// A directory on each disk.
    directories: Vec<PathBuf>,
    /// Required free bytes on each disk.
    least: u64,
    /// Whether builder units are other processes, which report their free space.
    is_told: bool,
}

impl StartRoom {
    /// Requires this many free bytes on each disk with one of these directories.
    pub(super) const fn here(directories: Vec<PathBuf>, least: u64) -> Self {
        Self { directories, least, is_told: false }
    }

    /// Requires this many free bytes from each builder unit in another process.
    pub(super) const fn elsewhere(least: u64) -> Self {
        Self { directories: Vec::new(), least, is_told: true }
    }

    /// Checks the free space of the disks. A disk with unknown free space counts as sufficient: writing will report its
    /// problem.
    ///
    /// # Errors
    /// A readable description of the disk and the remedy.
    pub(super) fn expect(&self, free: impl Fn(&Path) -> Option<u64>) -> Result<(), String> {
        let mut rooms = self.directories.iter().filter_map(|directory| Some((directory, free(directory)?)));
        rooms
            .find(|&(_, free)| free < self.least)
            .map_or(Ok(()), |(short, free)| Err(self.refusal(short.display(), free)))
    }

    /// Checks the free space of builder units in other processes, as recently reported.
    ///
    /// # Errors
    /// A readable description of the disk and the remedy.
    pub(super) fn expect_told(&self, sample: impl FnOnce() -> Sample) -> Result<(), String> {
        if !self.is_told {
            return Ok(());
        }
        let nodes = sample().nodes;
        let builders = nodes.iter().filter(|node| node.is_connected && node.node.role == Role::Builder);
        let mut rooms = builders.filter_map(|unit| Some((unit.node, unit.numbers.known(Counter::OutputRoom)?)));
        let short = rooms.find(|&(_, free)| free < self.least);
        short.map_or(Ok(()), |(unit, free)| Err(self.refusal(format_args!("builder unit {unit}"), free)))
    }

    fn refusal(&self, place: impl fmt::Display, free: u64) -> String {
        format!(
            "{place}: {} are free, and with less than {} no run starts (start_free and least_free of [storage]): delete or move files, or \
             write elsewhere",
            Bytes(free),
            Bytes(self.least)
        )
    }
}

/// A thread that watches disks. It ends by itself after its owner.
#[derive(Debug)]
pub(super) struct DiskWatch {
    left: Arc<Mutex<Option<DiskLeft>>>,
    /// Load of the disks of builder units.
    loads: Arc<Mutex<DiskLoads>>,
    /// Bytes in the run's files.
    written: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    directories: Vec<PathBuf>,
}

impl DiskWatch {
    /// Watches the disks that hold these directories. With less than `least_free` bytes a run waits, and its files have
    /// at most `keep` bytes. Each builder unit gets the free space of its output. The load is measured for the disks of
    /// the nodes in `by_node`.
    pub(super) fn start(
        directories: Vec<PathBuf>,
        by_node: BTreeMap<NodeId, Vec<PathBuf>>,
        (least_free, keep): (u64, Option<u64>),
        rooms: Vec<(Vec<PathBuf>, OutputRoom)>,
    ) -> Result<Self, RunError> {
        let (left, is_over) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (told, over) = (Arc::clone(&left), Arc::clone(&is_over));
        let loads = Arc::<Mutex<DiskLoads>>::default();
        let told_loads = Arc::clone(&loads);
        let written = Arc::new(AtomicU64::new(0));
        let size = Arc::clone(&written);
        let mut forecast = Forecast::new(directories.iter().cloned(), least_free, keep);
        let work = move || {
            let lock = || told_loads.lock().unwrap_or_else(PoisonError::into_inner);
            *lock() = DiskLoads::of(&by_node);
            // Read repeatedly into the same memory.
            let mut statistics = String::with_capacity(STATISTICS);
            while !over.load(Ordering::Relaxed) {
                let written = size.load(Ordering::Relaxed);
                forecast.look(MonotonicClock.now(), written, |directory| free_bytes(directory).ok());
                *told.lock().unwrap_or_else(PoisonError::into_inner) = forecast.left();
                for (places, room) in &rooms {
                    room.tell(places.iter().filter_map(|place| free_bytes(place).ok()).min());
                }
                statistics.clear();
                let read = File::open("/proc/diskstats").and_then(|mut file| file.read_to_string(&mut statistics));
                lock().look(MonotonicClock.now(), if read.is_ok() { &statistics } else { "" });
                std::thread::sleep(INTERVAL);
            }
        };
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(work);
        thread.map_err(system(format!("thread {THREAD}")))?;
        Ok(Self { left, loads, written, is_over, directories })
    }

    /// Sets the total size of the run's files.
    pub(super) fn note_written(&self, bytes: u64) {
        self.written.store(bytes, Ordering::Relaxed);
    }

    /// Returns the output directories.
    pub(super) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the recent load of the disks.
    pub(super) fn loads(&self) -> BTreeMap<NodeId, DiskLoad> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).by_node()
    }

    /// Returns the recent remaining space.
    pub(super) fn left(&self) -> Option<DiskLeft> {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The calculation of the forecast, from given measurements.
#[derive(Clone, Debug)]
struct Forecast {
    disks: Vec<Disk>,
    /// Bytes that are to stay free.
    least_free: u64,
    /// Maximum total size of the run's files.
    keep: Option<u64>,
    /// Growth of the run's files, on all disks together.
    growth: Rate,
}

#[derive(Clone, Debug)]
struct Disk {
    path: PathBuf,
    /// Rate at which it fills; below 0 if it empties.
    filling: Rate,
    left: Option<DiskLeft>,
}

/// Averaged growth of a number of bytes per second.
#[derive(Clone, Debug, Default)]
struct Rate {
    began: Option<Instant>,
    before: (Instant, f64),
    per_second: f64,
}

impl Rate {
    fn look(&mut self, now: Instant, bytes: f64) {
        let began = *self.began.get_or_insert(now);
        let (then, before) = std::mem::replace(&mut self.before, (now, bytes));
        let passed = now.since(then).as_secs_f64();
        if now > began && passed > 0.0 {
            // In the beginning all measurements have the same weight.
            let seen = now.since(began).as_secs_f64().min(AVERAGED.as_secs_f64());
            self.per_second += ((bytes - before) / passed - self.per_second) * (passed / seen).min(1.0);
        }
    }

    /// Returns the rate, once it has been measured for long enough.
    fn known(&self, now: Instant) -> Option<f64> {
        self.began.filter(|began| now.since(*began) >= FIRST).map(|_| self.per_second)
    }
}

impl Forecast {
    /// Disks by a directory on each, none of them twice. With less than `least_free` bytes a run waits.
    fn new(directories: impl IntoIterator<Item = PathBuf>, least_free: u64, keep: Option<u64>) -> Self {
        let disk = |path| Disk { path, filling: Rate::default(), left: None };
        Self { disks: directories.into_iter().map(disk).collect(), least_free, keep, growth: Rate::default() }
    }

    /// Evaluates the free space of the disks: the writable bytes as given by `free`, `None` if they are not known. The
    /// run's files have `written` bytes. Files of other programs alone do not cause a forecast of a full disk.
    fn look(&mut self, now: Instant, written: u64, mut free: impl FnMut(&Path) -> Option<u64>) {
        self.growth.look(now, written as f64);
        let growth = self.growth.known(now);
        let most = self.keep.map_or(u64::MAX, |keep| keep.saturating_sub(written));
        for disk in &mut self.disks {
            let Some(free) = free(&disk.path) else {
                disk.left = None;
                continue;
            };
            let free = free.saturating_sub(self.least_free);
            disk.filling.look(now, -(free as f64));
            let rate = disk.filling.known(now).zip(growth).map_or(0.0, |(filling, growth)| filling.min(growth));
            let seconds = free as f64 / rate;
            let will_fill = rate > 0.0 && free < most && seconds < LONGEST_SECONDS;
            let time = will_fill.then(|| Duration::from_secs_f64(seconds));
            disk.left = Some(DiskLeft { free_bytes: free, time });
        }
    }

    /// Returns the remaining space of the disk that is full first. If none is filling, of the one with the least space.
    fn left(&self) -> Option<DiskLeft> {
        let disks = self.disks.iter().filter_map(|disk| disk.left);
        disks.min_by_key(|left| (left.time.unwrap_or(Duration::MAX), left.free_bytes))
    }
}

impl fmt::Display for DiskLeft {
    /// Writes the remaining time as text.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.time else { return write!(out, "{} free", Bytes(self.free_bytes)) };
        match time.as_secs() {
            0..120 => write!(out, "full in about {} s", time.as_secs()),
            120..7200 => write!(out, "full in about {} min", time.as_secs() / 60),
            7200..172_800 => write!(out, "full in about {:.1} h", time.as_secs_f64() / 3600.0),
            _ => write!(out, "full in about {} days", time.as_secs() / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABYTE: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(1000 + seconds))
    }

    fn forecast(directories: &[&str], least_free: u64) -> Forecast {
        Forecast::new(directories.iter().map(PathBuf::from), least_free, None)
    }

    #[test]
    fn a_disk_lasts_as_long_as_its_room_at_the_present_rate() {
        let mut forecast = forecast(&["/data"], 100 * GIGABYTE);
        assert_eq!(forecast.left(), None, "no disk was examined yet");
        for second in 0..=600 {
            forecast.look(at(second), second * GIGABYTE, |_| Some((3700 - second) * GIGABYTE));
            let time = forecast.left().and_then(|left| left.time);
            assert_eq!(time.is_some(), second >= 10, "after {second} s");
        }
        let left = forecast.left().expect("it was looked at");
        assert_eq!(left.free_bytes, 3000 * GIGABYTE, "what is to stay free is not there");
        assert_eq!(left.time.map(|time| time.as_secs()), Some(3000));
    }

    #[test]
    fn a_disk_without_room_is_named_and_one_that_says_nothing_is_not() {
        let directories = ["/first", "/gone", "/second"].map(PathBuf::from).to_vec();
        let room = StartRoom::here(directories, 64 << 20);
        let free = |second: u64| {
            move |path: &Path| match path.to_str() {
                Some("/first") => Some(64 << 20),
                Some("/second") => Some(second),
                _ => None,
            }
        };
        assert_eq!(room.expect(free(1 << 30)), Ok(()));
        let why = room.expect(free(12 << 20)).expect_err("there is too little");
        assert!(why.starts_with("/second: 12.0 MiB are free, and with less than 64.0 MiB no run starts"), "{why}");
        assert_eq!(StartRoom::default().expect(|_| Some(0)), Ok(()));
    }

    #[test]
    fn a_new_rate_counts_after_a_minute_or_two_and_a_step_does_not() {
        let mut forecast = forecast(&["/data"], 0);
        let free = |second: u64| 10_000 - second - second.saturating_sub(600) * 9;
        for second in 0..=900 {
            forecast.look(at(second), (10_000 - free(second)) * GIGABYTE, |_| Some(free(second) * GIGABYTE));
        }
        // 10 GB a second for 300 s.
        let time = forecast.left().and_then(|left| left.time).expect("it is being filled").as_secs_f64();
        assert!((600.0..660.0).contains(&time), "{time}");
        forecast.look(at(901), (10_000 - free(901)) * GIGABYTE, |_| Some((free(901) - 1) * GIGABYTE));
        let after = forecast.left().and_then(|left| left.time).expect("it is being filled").as_secs_f64();
        assert!((time - after) / time < 0.02, "a file that was set aside: {after} after {time}");
    }

    #[test]
    fn what_other_programs_write_and_what_keep_deletes_fill_no_disk() {
        let time = |keep: Option<u64>, growth: u64| {
            let mut forecast = Forecast::new([PathBuf::from("/data")], 0, keep);
            // Another program writes 20 GB a second.
            for second in 0..=60 {
                forecast.look(at(second), growth * second, |_| Some((50_000 - 20 * second) * GIGABYTE));
            }
            forecast.left().and_then(|left| left.time).map(|time| time.as_secs())
        };
        assert_eq!(time(None, 0), None);
        assert_eq!(time(None, GIGABYTE), Some(48_800), "at the rate of the run");
        assert_eq!(time(None, 100 * GIGABYTE), Some(2_440), "no faster than the disk is filled");
        assert_eq!(time(Some(40_000 * GIGABYTE), GIGABYTE), None, "files are deleted before");
        assert_eq!(time(Some(60_000 * GIGABYTE), GIGABYTE), Some(48_800));
    }

    #[test]
    fn the_disk_that_is_full_first_counts() {
        let mut forecast = forecast(&["/fast", "/slow", "/full", "/gone"], 0);
        for second in 0..=60 {
            forecast.look(at(second), 10 * second * GIGABYTE, |path| match path.to_str()? {
                "/fast" => Some((1000 - 10 * second) * GIGABYTE),
                "/slow" => Some((500 - second) * GIGABYTE),
                "/full" => Some(GIGABYTE),
                _ => None,
            });
        }
        let left = forecast.left().expect("there are disks");
        assert_eq!((left.free_bytes, left.time.map(|time| time.as_secs())), (400 * GIGABYTE, Some(40)));
        assert_eq!(left.to_string(), "full in about 40 s");
        let said = |seconds| DiskLeft { time: Some(Duration::from_secs(seconds)), ..left }.to_string();
        let words = [7199, 9000, 200_000].map(said);
        assert_eq!(words, ["full in about 119 min", "full in about 2.5 h", "full in about 2 days"]);
        forecast.look(at(61), 0, |_| None);
        assert_eq!(forecast.left(), None, "the free space is unknown");
    }
}
