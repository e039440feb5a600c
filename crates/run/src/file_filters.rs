//! File-based filter units of a run, and their account of its event files.

use super::error::{RunError, system, unfit};
use super::placement::{Purpose, ThreadPlacement, disk_thread, pool_of};
use super::summary_sections::UnbalancedSummary;
use ropewalk_config::{Configuration, FileBasedSection};
use ropewalk_engine::{EventFiles, EventFilesConfig};
use ropewalk_flow::files::BrokerConfig;
use ropewalk_io::disk::{RealDisk, RealDiskConfig};
use ropewalk_memory::{PoolConfig, Staging};
use ropewalk_terms::{AcknowledgementLevel, RunNumber};
use ropewalk_tools::file_based::{
    BrokerOptions, FilesError, FilesSummary, Place, StreamSummary, UnitFilter, UnitTask, serve_files,
};
use ropewalk_tools::library_process::{START, library_process};
use ropewalk_wire::frd::FileName;
use ropewalk_wire::run_file::run_directory_name;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Blocks for headers and documents of the files that are being gathered or with the disk.
const HEADERS_BLOCK: usize = 256 << 10;
const HEADERS_BLOCKS: usize = 32;
/// Interval of the checks whether units without work have ended.
const LOOK: Duration = Duration::from_millis(2);

/// Returns the configuration of the event files of a builder unit or of an input queue of a gateway; `None` without
/// `[file_based]`. With several writers each has its `own` directory.
pub(super) fn event_files_config(
    configuration: &Configuration,
    number: u16,
    output: &Path,
    own: Option<&str>,
    level: AcknowledgementLevel,
) -> Option<EventFilesConfig> {
    let section = configuration.file_based.as_ref()?;
    let place = section.directory.as_deref().unwrap_or(output);
    Some(EventFilesConfig {
        writer: format!("BU-{number}"),
        directory: own.map_or_else(|| place.to_owned(), |own| place.join(own)),
        version: section.version()?,
        file_events: section.file_events,
        file_bytes: section.file_bytes.0,
        file_time: section.file_time.0,
        // A file has its final name only once it is written.
        level: level.max(AcknowledgementLevel::Written),
        room: section.room(),
        // Before the event manager drops the remaining events, so that the loss has the right cause.
        give_up_after: configuration.timeouts.drain.0 / 2,
    })
}

/// Creates the writer of event files.
pub(super) fn event_files(
    config: EventFilesConfig,
    name: &str,
    placement: &ThreadPlacement,
) -> Result<EventFiles<RealDisk>, RunError> {
    let disk = RealDiskConfig {
        thread_name: disk_thread(name),
        sync_on_publish: config.level == AcknowledgementLevel::Synced,
        ..RealDiskConfig::default()
    };
    let disk = RealDisk::with_threads(disk, |thread| placement.on_start(thread));
    let disk = disk.map_err(system(format!("{name}: disk thread")))?;
    let pool = PoolConfig::anonymous(&pool_of(name, Purpose::Records), HEADERS_BLOCK, HEADERS_BLOCKS);
    Ok(EventFiles::new(disk, config, Staging::new(placement.untouched_pool(pool)?)))
}

/// Checks that the directories of a run's files are free. If files lie outside of run directories, a run number may be
/// repeated, and files of another run would be mistaken for this one's.
fn check_directories(configs: &[EventFilesConfig], run: RunNumber) -> Result<(), RunError> {
    for config in configs {
        let directory = config.directory.join(run_directory_name(run));
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_file = |name: &str| name.parse::<FileName>().is_ok();
        if entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_file(&name)) {
            let message = format!(
                "{}: files of another run with this number lie there: remove them, or choose another \
                 `directory` in [file_based]",
                directory.display()
            );
            return Err(RunError::Unfit(message));
        }
    }
    Ok(())
}

/// Starts the filter units of a run's files: one service for the directory of each of these writers.
///
/// # Errors
/// If files of another run lie there, a library cannot be used, or the system gives no thread.
pub(super) fn start_file_filters(
    configuration: &Configuration,
    configs: &[EventFilesConfig],
    placement: &ThreadPlacement,
    run: RunNumber,
) -> Result<Vec<FileFilters>, RunError> {
    check_directories(configs, run)?;
    let Some(section) = configuration.file_based.as_ref().filter(|section| section.units > 0) else {
        return Ok(Vec::new());
    };
    let task = UnitTask::of(section, &configuration.stream);
    if let UnitFilter::Library { filter, memory } = &task.filter {
        // A fault of the library is found before the run.
        let mut process = library_process(filter.clone(), *memory).map_err(unfit)?;
        process.try_out(START).map_err(unfit)?;
        process.missing().texts().for_each(|text| placement.warn(format!("[file_based] library: {text}")));
    }
    configs.iter().map(|config| FileFilters::start(config, section, &task, run)).collect()
}

/// A broker and its filter units, which work until the run is closed and every event is decided.
#[derive(Debug)]
pub(super) struct FileFilters {
    directory: PathBuf,
    thread: Option<JoinHandle<Result<FilesSummary, FilesError>>>,
    /// Set when no more files are written.
    is_left: Arc<AtomicBool>,
    /// Set to leave the undecided events undecided.
    is_forced: Arc<AtomicBool>,
    outcome: Option<Result<FilesSummary, String>>,
}

impl FileFilters {
    fn start(
        config: &EventFilesConfig,
        section: &FileBasedSection,
        task: &UnitTask,
        run: RunNumber,
    ) -> Result<Self, RunError> {
        let directory = config.directory.join(run_directory_name(run));
        let what = || format!("{}: the directory of the run", directory.display());
        std::fs::create_dir_all(&directory).map_err(system(what()))?;
        let program = std::env::current_exe().map_err(system("this program"))?;
        let place = Place::open(&directory).map_err(|error| RunError::Unfit(error.to_string()))?;
        let arguments = task.arguments(&directory);
        let broker = BrokerConfig { time_out: section.timeout.0, tries: section.tries, ..BrokerConfig::default() };
        let options = BrokerOptions { broker, units: section.units, unit: Some((program, arguments)) };
        let (is_left, is_forced) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (left, forced) = (Arc::clone(&is_left), Arc::clone(&is_forced));
        let name = format!("files-{}", config.writer);
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            // A run that was left without an end will not get one.
            let stop = || forced.load(Ordering::Relaxed) || left.load(Ordering::Relaxed) && !place.is_closed();
            serve_files(&place, &options, stop)
        });
        let thread = Some(thread.map_err(system(format!("thread {name}")))?);
        Ok(Self { directory, thread, is_left, is_forced, outcome: None })
    }

    /// Waits until every event of a file is decided, unless the end is forced. No more files are written by then.
    pub(super) fn finish(&mut self, is_forced: bool) {
        self.is_forced.store(is_forced, Ordering::Relaxed);
        self.is_left.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            std::thread::sleep(LOOK);
        }
        let outcome = thread.join().unwrap_or_else(|_| Err(FilesError::Panicked { path: self.directory.clone() }));
        self.outcome = Some(outcome.map_err(|error| error.to_string()));
    }

    /// Returns the directory, and the account of its files, once it is known.
    pub(super) fn outcome(&self) -> Option<(&Path, &Result<FilesSummary, String>)> {
        Some((&self.directory, self.outcome.as_ref()?))
    }
}

/// What filter units that work on files made of a run: of all builder units together.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FileBasedSummary {
    /// Where the files are, a directory for each builder unit.
    pub directories: Vec<PathBuf>,
    /// Files of events.
    pub files: u64,
    /// Files on which filter units crashed; they are in the directory `error`.
    pub files_set_aside: u64,
    /// How often a file went to another filter unit.
    pub given_back: u64,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units accepted.
    pub accepted: u64,
    /// Events that they rejected.
    pub rejected: u64,
    /// Events in files that were set aside: written = accepted + rejected + set_aside.
    pub set_aside: u64,
    /// What streams took of accepted events, by name.
    pub streams: BTreeMap<String, FiledStream>,
    /// Lumisections of which every file is decided, in order, over all builder units.
    pub lumisections: Vec<FiledLumisection>,
    /// Why files were given back.
    #[serde(skip)]
    pub(super) failures: Vec<String>,
    /// Why what does not hold does not.
    #[serde(skip)]
    pub(super) unbalanced: Vec<UnbalancedSummary>,
}

/// What a stream took of files: selected = prescaled_away + written.
#[derive(Copy, Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FiledStream {
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Selected events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its files.
    pub written: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// What filter units made of the events of a lumisection: of all builder units together.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FiledLumisection {
    /// Its number, from 1.
    pub number: u32,
    /// Events that builder units wrote: events = accepted + rejected + set_aside.
    pub events: u64,
    /// Events that filter units accepted.
    pub accepted: u64,
    /// Events that filter units rejected.
    pub rejected: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// What streams took of them, by name.
    pub streams: BTreeMap<String, FiledStream>,
}

/// Adds what streams took in another directory.
fn add(sums: &mut BTreeMap<String, FiledStream>, others: &[StreamSummary]) {
    for StreamSummary { stream, selected, prescaled_away, written, bytes } in others {
        let sum = sums.entry(stream.clone()).or_default();
        sum.selected += selected;
        sum.prescaled_away += prescaled_away;
        sum.written += written;
        sum.bytes += bytes;
    }
}

impl FileBasedSummary {
    /// Creates the summary of a run in which this many events were written; `None` if there were no filter units, or
    /// they are not done.
    pub(super) fn new(filters: &[FileFilters], written: u64) -> Option<Self> {
        let outcomes: Vec<_> = filters.iter().filter_map(FileFilters::outcome).collect();
        if outcomes.is_empty() {
            return None;
        }
        let (mut summary, mut lumisections) = (Self::default(), BTreeMap::new());
        for (directory, outcome) in outcomes {
            summary.directories.push(directory.to_owned());
            match outcome {
                Ok(told) => summary.add(told, &mut lumisections),
                Err(why) => summary.unbalanced.push(UnbalancedSummary::because("every file was decided", why)),
            }
        }
        summary.lumisections = lumisections.into_values().collect();
        let decided = summary.accepted + summary.rejected + summary.set_aside;
        if decided != written {
            let equation = "written = accepted + rejected + set aside by filter units that work on files";
            summary.unbalanced.push(UnbalancedSummary::sides(equation, written, decided));
        }
        Some(summary)
    }

    fn add(&mut self, told: &FilesSummary, lumisections: &mut BTreeMap<u32, FiledLumisection>) {
        add(&mut self.streams, &told.streams);
        for one in &told.lumisections {
            let sum = lumisections.entry(one.lumisection).or_default();
            sum.number = one.lumisection;
            sum.events += one.processed + one.set_aside;
            sum.accepted += one.accepted;
            sum.rejected += one.processed.saturating_sub(one.accepted);
            sum.set_aside += one.set_aside;
            add(&mut sum.streams, &one.streams);
        }
        self.files += told.files;
        self.files_set_aside += told.set_aside;
        self.given_back += told.given_back;
        self.restarts += told.restarts;
        self.accepted += told.accepted;
        self.rejected += told.processed.saturating_sub(told.accepted);
        self.set_aside += told.lumisections.iter().map(|lumisection| lumisection.set_aside).sum::<u64>();
        self.failures.extend(told.failures.iter().cloned());
        let equation = "each lumisection's files = what filter units made of them";
        self.unbalanced.extend(told.unbalanced.iter().map(|why| UnbalancedSummary::because(equation, why)));
    }
}
