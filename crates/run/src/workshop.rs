//! The resources of the nodes of a process: memory, placement, identities, directories and sinks.

use super::error::{RunError, system};
use super::file_filters;
use super::pipe::Pipe;
use super::placement::{ThreadPlacement, disk_thread};
use super::registry::{Registry, RunDirectory};
use super::resolve::Resolved;
use super::run_files::RunFiles;
use ropewalk_config::Configuration;
use ropewalk_engine::pages::PageDirectory;
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{EventFilesConfig, EventSink, OutputRoom, Storage, StorageConfig};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::RealDisk;
use ropewalk_memory::{PoolConfig, Staging};
use ropewalk_terms::{Incarnation, RunNumber, Utc};
use std::io;
use std::path::Path;

/// Resources shared by all nodes of this process.
pub(super) struct Workshop<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) placement: &'a ThreadPlacement,
    pub(super) incarnation: Incarnation,
    /// Tap for the monitoring clients.
    pub(super) tap: Tap,
    /// Directory of its nodes' pages.
    pub(super) pages: PageDirectory,
    /// Free space of each builder unit's output.
    pub(super) rooms: Vec<OutputRoom>,
}

impl<'a> Workshop<'a> {
    pub(super) fn new(resolved: &'a Resolved, placement: &'a ThreadPlacement) -> Self {
        let (incarnation, configuration) = (incarnation(), resolved.configuration());
        let pages = PageDirectory::open(&configuration.monitor.pages, &configuration.run.output, incarnation);
        let rooms = configuration.builder.iter().map(|_| OutputRoom::default()).collect();
        Self { resolved, placement, incarnation, tap: Tap::new(resolved.sources.len()), pages, rooms }
    }

    /// Creates a pool beyond the configured memory: room for the worst case, of which a run reuses a few blocks. The
    /// rest is never touched, so that the process stays near its configured size.
    pub(super) fn spare_pool(&self, config: PoolConfig) -> Result<Staging, RunError> {
        Ok(Staging::new(self.placement.untouched_pool(config)?))
    }
}

/// Takes a run number. To be called last, so that a run that could not be set up leaves nothing behind.
/// Uses the registry of an output directory, to make a run directory.
pub(super) fn in_output<T>(output: &Path, use_it: impl FnOnce(&Registry) -> io::Result<T>) -> Result<T, RunError> {
    let what = || format!("{}: cannot make a run directory here, choose another with --output", output.display());
    Registry::open(output).and_then(|registry| use_it(&registry)).map_err(system(what()))
}

pub(super) fn run_directory(output: &Path) -> Result<RunDirectory, RunError> {
    in_output(output, Registry::next_run)
}

pub(super) fn nowhere() -> RunDirectory {
    RunDirectory { run: RunNumber(0), path: Path::new("").to_owned() }
}

/// Returns the time of day at zero of the monotonic clock.
pub(super) fn epoch() -> Utc {
    Utc(MonotonicClock.utc().0 - MonotonicClock.now().as_nanoseconds() as i64)
}

/// Returns an incarnation newer than all earlier ones on this machine.
pub(super) fn incarnation() -> Incarnation {
    Incarnation(MonotonicClock.utc().0.max(1) as u64)
}

/// Returns the sink of a writer: a pipe, files for filter units, or run files. `None` if the run writes nothing.
pub(super) fn sink(
    configuration: &Configuration,
    name: &str,
    (config, event_files): (StorageConfig, Option<EventFilesConfig>),
    placement: &ThreadPlacement,
    records: impl FnOnce(&StorageConfig) -> Result<Staging, RunError>,
) -> Result<Option<Box<dyn EventSink>>, RunError> {
    if !configuration.run.write {
        return Ok(None);
    }
    if let Some(config) = event_files {
        return Ok(Some(Box::new(file_filters::event_files(config, name, placement)?)));
    }
    let (files, records) = (RunFiles::of(configuration), records(&config)?);
    if let Some(path) = files.pipe(name) {
        let error = system(format!("{name}: {}", path.display()));
        return Ok(Some(Box::new(Pipe::new(path, config, records).map_err(error)?)));
    }
    let disk = files.disk_config(disk_thread(name), &config);
    let disk = RealDisk::with_threads(disk, |thread| placement.on_start(thread));
    let disk = disk.map_err(system(format!("{name}: disk thread")))?;
    Ok(Some(Box::new(Storage::new(disk, config, records))))
}
