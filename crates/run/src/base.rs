//! The common parts of a run of units or of gateways: threads, directories, services.

use super::error::{RunError, system};
use super::feeder::{ChildSlot, Feed, FeederNotes, RunningFeeder};
use super::file_filters::FileFilters;
use super::histograms::HistogramDefinition;
use super::monitoring::{Archive, MergeError, merge};
use super::placement::{HISTOGRAMS, ThreadPlacement};
use super::plugins::Watched;
use super::registry::{Configured, RunDirectory};
use super::remarks::KnownSources;
use super::run_files::{self, DiskLeft, DiskWatch, RunFiles, StartRoom};
use super::summary_sections::ClockReading;
use super::transfer::TransferService;
use super::worker::{DriveWithPage, Ending, Worker};
use ropewalk_config::Configuration;
use ropewalk_config::fields::Fields;
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{EventFilesConfig, OutputRoom, RunSnapshot, StorageConfig};
use ropewalk_flow::control::RunPhase;
use ropewalk_io::clock::MonotonicClock;
use ropewalk_monitor::Beginning;
use ropewalk_terms::{Counter, Instant, NodeId, RunNumber, SourceId, Utc};
use ropewalk_wire::run_file::{StreamName, run_directory_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time of the stop, and the state of the run at that time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stopped {
    pub(super) at: Instant,
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// The common parts of a run of units or of gateways.
#[derive(Debug)]
pub(super) struct RunBase {
    /// Threads of units or gateways.
    pub(super) workers: Vec<Worker>,
    /// Threads of emulated sources and farm nodes.
    pub(super) emulators: Vec<Worker>,
    /// Threads that feed sources and cards, and the thread that writes the filters' histograms.
    pub(super) feeders: Vec<RunningFeeder>,
    /// Directories of the filters' counts.
    pub(super) counted: Vec<PathBuf>,
    pub(super) watched: Vec<Watched>,
    pub(super) file_filters: Vec<FileFilters>,
    pub(super) ending: Arc<Ending>,
    pub(super) directory: PathBuf,
    pub(super) run: RunNumber,
    /// Configured sources.
    pub(super) sources: usize,
    pub(super) known: KnownSources,
    /// Configured names of nodes.
    pub(super) node_names: Arc<BTreeMap<NodeId, String>>,
    /// Directories to which the nodes of this process write.
    pub(super) outputs: Arc<BTreeMap<NodeId, String>>,
    /// The time at which each source fell silent, for sources that stopped before others.
    pub(super) silent_since: BTreeMap<SourceId, Utc>,
    /// The delay of each source relative to the first one.
    pub(super) began_late: BTreeMap<SourceId, Beginning>,
    /// Sources that were connected and had sent nothing when the run was stopped.
    pub(super) idle: BTreeSet<SourceId>,
    pub(super) streams: Vec<StreamName>,
    pub(super) histograms: Arc<[HistogramDefinition]>,
    pub(super) addresses: Vec<(String, String)>,
    pub(super) warnings: Vec<String>,
    /// News that `take_news` has not returned yet.
    pub(super) news: Vec<String>,
    pub(super) tap: Option<Tap>,
    pub(super) transfer: Option<TransferService>,
    pub(super) disk_watch: Option<DiskWatch>,
    pub(super) start_room: StartRoom,
    pub(super) clock: MonotonicClock,
    pub(super) fields: Fields,
    pub(super) configured: Configured,
    pub(super) clock_at_start: Option<ClockReading>,
    pub(super) started: Option<Instant>,
    pub(super) stopped: Option<Stopped>,
    pub(super) ended: Option<Instant>,
    pub(super) is_stopping: bool,
    pub(super) is_forced: bool,
}

/// Returns the configured names of readout units, builder units and input queues of gateways, if they differ from their
/// ids.
fn node_names(configuration: &Configuration) -> BTreeMap<NodeId, String> {
    let readouts = configuration.readout.iter().map(|readout| readout.name.clone());
    let builders = configuration.builder.iter().map(|builder| builder.name.clone());
    let builders = builders.chain(configuration.input_queues().map(|queue| queue.name()));
    let all = (0..).map(NodeId::readout).zip(readouts).chain((0..).map(NodeId::builder).zip(builders));
    all.filter(|(node, name)| node.to_string() != *name).collect()
}

/// Ends the threads of a run that could not be set up completely.
impl Drop for RunBase {
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl RunBase {
    /// Creates a run without threads.
    pub(super) fn new(configuration: &Configuration, directory: RunDirectory) -> Self {
        let of_flows: usize = configuration.flow.iter().map(|flow| usize::from(flow.sources.count)).sum();
        Self {
            workers: Vec::new(),
            emulators: Vec::new(),
            feeders: Vec::new(),
            counted: Vec::new(),
            watched: Vec::new(),
            file_filters: Vec::new(),
            ending: Arc::default(),
            directory: directory.path,
            run: directory.run,
            sources: configuration.source.len() + of_flows,
            known: KnownSources::of(configuration),
            node_names: Arc::new(node_names(configuration)),
            outputs: Arc::default(),
            silent_since: BTreeMap::new(),
            began_late: BTreeMap::new(),
            idle: BTreeSet::new(),
            streams: configuration.streams().names().collect(),
            histograms: HistogramDefinition::all(&configuration.histogram, configuration.histogram_configs()).into(),
            addresses: Vec::new(),
            warnings: configuration.renamed.clone(),
            news: Vec::new(),
            tap: None,
            transfer: None,
            disk_watch: None,
            start_room: StartRoom::default(),
            clock: MonotonicClock,
            fields: Fields::default(),
            configured: Configured::new(configuration),
            clock_at_start: None,
            started: None,
            stopped: None,
            ended: None,
            is_stopping: false,
            is_forced: false,
        }
    }

    pub(super) fn halt(&self) {
        self.ending.halt();
        self.workers.iter().chain(&self.emulators).for_each(Worker::wake);
    }

    /// Ends recordings that replace connections and cards.
    pub(super) fn end_feeders(&self) {
        self.feeders.iter().for_each(|feeder| feeder.is_over.store(true, Ordering::Relaxed));
        while !self.feeders.iter().all(|feeder| feeder.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Adds up the counts of the filters of this process. Returns a description of the failure, if any.
    pub(super) fn merge_histograms(&self) -> Option<String> {
        if self.counted.is_empty() || self.directory.as_os_str().is_empty() {
            return None;
        }
        let name = run_directory_name(self.run);
        let directories: Vec<_> = self.counted.iter().map(|output| output.join(&name)).collect();
        let kept = match merge(&directories) {
            // Without a lumisection there is nothing to add up.
            Err(MergeError::Nothing { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(sum) => sum.keep(&self.directory).map_err(|error| format!("{}: {error}", self.directory.display())),
        };
        kept.err().map(|error| format!("what filters counted is not added up: {error}"))
    }

    pub(super) fn end_threads(&mut self) {
        self.halt();
        self.workers.drain(..).chain(self.emulators.drain(..)).for_each(Worker::join);
    }

    /// Returns whether all emulated and played sources have sent everything.
    pub(super) fn have_emulators_ended(&self) -> bool {
        !self.emulators.is_empty() && self.emulators.iter().all(Worker::is_finished)
    }

    /// Returns the phase of a run of gateways, which has no event manager.
    pub(super) const fn phase(&self) -> RunPhase {
        match (self.started, self.stopped, self.ended) {
            (_, _, Some(_)) => RunPhase::Ended,
            (_, Some(_), None) => RunPhase::Draining,
            (Some(_), None, None) => RunPhase::Running,
            (None, None, None) => RunPhase::Configured,
        }
    }

    pub(super) fn disk_left(&self) -> Option<DiskLeft> {
        self.disk_watch.as_ref().and_then(DiskWatch::left)
    }

    fn thread(&self, name: &str, drives: Vec<DriveWithPage>, placement: &ThreadPlacement) -> Result<Worker, RunError> {
        Worker::start(name, drives, Arc::clone(&self.ending), placement.on_start(name))
            .map_err(system(format!("thread {name}")))
    }

    /// Starts a thread that ends with the run.
    pub(super) fn worker(
        &mut self,
        name: &str,
        drives: Vec<DriveWithPage>,
        placement: &ThreadPlacement,
    ) -> Result<(), RunError> {
        self.workers.push(self.thread(name, drives, placement)?);
        Ok(())
    }

    /// Starts a thread of a front-end substitute.
    pub(super) fn emulator(
        &mut self,
        name: &str,
        drives: Vec<DriveWithPage>,
        placement: &ThreadPlacement,
    ) -> Result<(), RunError> {
        self.emulators.push(self.thread(name, drives, placement)?);
        Ok(())
    }

    /// Starts the thread that stores the filters' counts. It ends with the last drive that counts.
    pub(super) fn archive(&mut self, archive: Archive, placement: &ThreadPlacement) -> Result<(), RunError> {
        if archive.is_empty() {
            return Ok(());
        }
        self.counted = archive.outputs();
        self.feed(Feed::new(HISTOGRAMS, move |_, notes, _| notes.leave(archive.write_all())), placement)
    }

    /// Watches the disks of run files and event files, and transfers closed run files if configured.
    pub(super) fn keep_files(
        &mut self,
        configuration: &Configuration,
        writers: &[StorageConfig],
        event_files: &[EventFilesConfig],
        rooms: Vec<(Vec<PathBuf>, OutputRoom)>,
    ) -> Result<(), RunError> {
        let (section, outputs) = (&configuration.storage, run_files::outputs(writers));
        let directories =
            event_files.iter().map(|files| files.directory.clone()).chain(outputs.iter().cloned()).collect();
        self.start_room = StartRoom::here(directories, section.start_room());
        self.outputs = Arc::new(run_files::outputs_by_node(writers));
        let keep = configuration.run.keep.map(|keep| keep.0);
        if !outputs.is_empty() || !rooms.is_empty() {
            self.disk_watch = Some(DiskWatch::start(
                outputs,
                run_files::directories_by_node(writers),
                (section.least_free_bytes(), keep),
                rooms,
            )?);
        }
        let transfer = RunFiles::of(configuration).transfer_config(writers);
        self.transfer = transfer.map(TransferService::start).transpose()?;
        Ok(())
    }

    /// Starts the thread of a feed.
    pub(super) fn feed(&mut self, feed: Feed, placement: &ThreadPlacement) -> Result<(), RunError> {
        let Feed { name, is_over, work } = feed;
        let (notes, child) = (Arc::new(FeederNotes::default()), ChildSlot::default());
        let prepare = placement.on_start(&name);
        let (told, slot, over) = (Arc::clone(&notes), child.clone(), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            prepare();
            work(&slot, &told, &over);
        });
        let thread = thread.map_err(system(format!("thread {name}")))?;
        self.feeders.push(RunningFeeder { name, thread, is_over, notes, child });
        Ok(())
    }
}

impl Stopped {
    pub(super) fn new(at: Instant, snapshot: &RunSnapshot) -> Self {
        let events = &snapshot.ledger.events;
        let bytes = snapshot.counter(Counter::PayloadBytesReceived);
        Self { at, events: events.built + events.incomplete_emitted, bytes }
    }
}
