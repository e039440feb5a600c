//! From a configuration to running threads: pools, drives, wiring.

use super::cards::{CardToEmulate, ChildSlot};
use super::controlled::FrontEndService;
use super::entrances::Lines;
use super::feeder::{Feed, FeederNotes, RunningFeeder, Saver, save_black_boxes};
use super::file_filters::{self, start_file_filters};
use super::gateway::{SystemPart, prepare_part};
use super::handle::{Builders, RunBase, RunHandle};
use super::pipe::Pipe;
use super::placement::{
    MANAGER, Part, PlacementError, Purpose, SHARED_THREAD, SOURCES, SOURCES_RECEIVE, ThreadPlacement, disk_thread,
    make_room_for_descriptors, pool_of,
};
use super::plugins::{Filters, Watched};
use super::registry::{Registry, RunDirectory, TakeoverRecord};
use super::resolve::{Addresses, Resolved};
use super::run_files::{self, DiskWatch, RunFiles, StartRoom};
use super::transfer::TransferService;
use super::units::{CommandedManager, Managing, Units};
use super::worker::{DriveWithPage, Worker};
use crate::monitoring::Archive;
use ropewalk_config::Configuration;
use ropewalk_engine::pages::{NodePage, PageDirectory};
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{
    BuilderDrive, ClosedRuns, Drive, EmulatedCardDrive, EventSink, FilingConfig, Identity, ManagerDrive, OutputRoom,
    ReadoutDrive, Refusal, SourceDrive, Storage, StorageConfig,
};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::RealDisk;
use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::tcp::{Tcp, TcpConfig, resolve};
use ropewalk_io::{Dispatcher, EndpointError};
use ropewalk_memory::{PoolConfig, PoolError, Staging};
use ropewalk_terms::{Epoch, Incarnation, Instant, NodeId, Role, RunNumber, Utc};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Why a run could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Memory could not be obtained.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// A thread cannot run where the configuration wants it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// An address, a directory, a file or a thread could not be obtained.
    #[error("{0}")]
    System(String),
    /// Another node does not take this one in.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The configuration does not fit what was asked for.
    #[error("{0}")]
    Unfit(String),
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RunError {
    let what = what.into();
    move |error| RunError::System(format!("{what}: {error}"))
}

pub(super) fn endpoint(name: &str) -> impl FnOnce(EndpointError) -> RunError {
    let name = name.to_owned();
    move |error| RunError::System(format!("{name}: {error}"))
}

/// What every node of this process shares.
pub(super) struct Workshop<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) placement: &'a ThreadPlacement,
    pub(super) incarnation: Incarnation,
    /// Where monitoring clients ask for events.
    pub(super) tap: Tap,
    /// Where its nodes have their pages.
    pub(super) pages: PageDirectory,
    /// How much is free where each builder unit writes.
    rooms: Vec<OutputRoom>,
}

impl<'a> Workshop<'a> {
    pub(super) fn new(resolved: &'a Resolved, placement: &'a ThreadPlacement) -> Self {
        let (incarnation, configuration) = (incarnation(), resolved.configuration());
        let pages = PageDirectory::open(&configuration.monitor.pages, &configuration.run.output, incarnation);
        let rooms = configuration.builder.iter().map(|_| OutputRoom::default()).collect();
        Self { resolved, placement, incarnation, tap: Tap::new(resolved.sources.len()), pages, rooms }
    }
}

/// Blocks of a staging pool: enough for a head or a control message on the way to every node, many times over.
const STAGING_BLOCKS: usize = 64;
/// Bytes of a send queue between nodes: bounded by credit, so that a queue that is full means a node that hangs.
const PEER_QUEUE: usize = 256 << 20;
/// Blocks into which the control messages of other nodes are received: a connection fills one, and what waits to be read
/// is short.
const CONTROL_BLOCK: usize = 64 << 10;
const CONTROL_BLOCKS: usize = 128;
/// Blocks for heads and tails of the records that are gathered or with the disk: of small fragments the descriptions
/// take more room than they do.
const RECORDS_BLOCK: usize = 256 << 10;
const RECORDS_BLOCKS: usize = 128;
/// A block of emulated and played sources: fragments are sent in pieces of this size, which costs few system calls.
const SOURCE_BLOCK: usize = 128 << 10;
/// Of these each source needs one that is being filled, one on its way, four in its queue, and two to spare.
const SOURCE_BLOCKS: usize = 8;
/// How many blocks a source's queue may hold.
const SOURCE_QUEUE_BLOCKS: usize = 4;
/// The thread that keeps what filters count.
pub(super) const HISTOGRAMS: &str = "histograms";
/// Sources get no answers: a small block for each connection is the least that an endpoint takes.
const UNUSED_BLOCK: usize = 4096;
/// What is queued when a source ends is sent, however long the run is held up, by a full disk for example.
const SOURCE_PATIENCE: Duration = Duration::from_secs(24 * 3600);

impl Workshop<'_> {
    const fn identity(&self, node: NodeId) -> Identity {
        Identity { node, incarnation: self.incarnation, run: RunNumber(0), epoch: Epoch(0) }
    }

    /// Memory beyond what was configured: room for the worst case, of which a run uses a few blocks again and again.
    /// The rest is never touched, so that the process stays near its configured size.
    pub(super) fn spare_pool(&self, config: PoolConfig) -> Result<Staging, RunError> {
        Ok(Staging::new(self.placement.untouched_pool(config)?))
    }

    fn staging(&self, unit: &str) -> Result<Staging, RunError> {
        let name = pool_of(unit, Purpose::Staging);
        self.spare_pool(PoolConfig::anonymous(&name, self.resolved.staging_block, STAGING_BLOCKS))
    }

    fn manager<P: Dispatcher>(&self, index: u16, peers: P) -> Result<ManagerDrive<P>, RunError> {
        let mut identity = self.identity(NodeId::MANAGER);
        identity.epoch = self.resolved.manager.epoch;
        let config = self.resolved.manager_drive(index, identity);
        ManagerDrive::new(config, peers, self.staging(MANAGER)?).map_err(endpoint(MANAGER))
    }

    fn readout<P: Dispatcher>(&self, index: u16, peers: P) -> Result<ReadoutDrive<Tcp, P>, RunError> {
        let node = NodeId::readout(index);
        let config = self.resolved.readout_drive(index, self.identity(node));
        let name = config.name.clone();
        let pool = self.placement.pool(self.resolved.readout_pool(index))?;
        // Before it is known whose connection it is, it fills no more than its share of what all connections share.
        let usual = self.resolved.tcp();
        let tcp = TcpConfig { receive_batch_bytes: usual.receive_batch_bytes.min(pool.block_size()), ..usual };
        let sources = Tcp::new(tcp, pool).map_err(endpoint(&name))?;
        let evacuation = self.spare_pool(self.resolved.evacuation_pool(index))?;
        ReadoutDrive::new(config, sources, peers, self.staging(&name)?, evacuation).map_err(endpoint(&name))
    }

    fn builder<P: Dispatcher>(
        &self,
        index: u16,
        peers: P,
        watched: &mut Vec<Watched>,
        archive: &mut Archive,
    ) -> Result<BuilderDrive<P>, RunError> {
        let (node, resolved) = (NodeId::builder(index), self.resolved);
        let config = resolved.builder_drive(index, self.identity(node));
        let name = config.name.clone();
        let records = |_: &_| {
            self.spare_pool(PoolConfig::anonymous(&pool_of(&name, Purpose::Records), RECORDS_BLOCK, RECORDS_BLOCKS))
        };
        let storage = resolved.writer(index, epoch());
        let sink = sink(resolved.configuration(), &name, (storage, resolved.filing(index)), self.placement, records)?;
        let filters = Filters { configuration: resolved.configuration(), placement: self.placement };
        let output = resolved.output(index);
        let filtering = filters.filtering(&name, config.builder.slots, (node, output), watched, archive)?;
        let drive = BuilderDrive::new(config, peers, sink, self.staging(&name)?).map_err(endpoint(&name))?;
        // In good time before the event manager's drain time-out ends what is left.
        let drive = drive.with_filtering(filtering, resolved.configuration().timeouts.drain.0 / 2);
        Ok(drive.with_tap(self.tap.clone()).with_room(self.rooms[usize::from(index)].clone()))
    }

    /// What feeds a readout unit beside connections.
    fn inputs<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        events: Option<u64>,
        inputs: &mut Inputs,
    ) -> Result<(), RunError> {
        let cards = self.cards(index, readout, events)?;
        let entrances = self.entrances(index, readout)?;
        inputs.lines.extend(self.emulated(index, readout)?);
        inputs.watched.extend(self.splitters(index, readout)?);
        inputs.savers.extend(self.black_boxes(index, readout, &entrances));
        inputs.cards.extend(cards.emulated);
        inputs.feeds.extend(cards.feeds);
        inputs.feeds.extend(entrances.feeds);
        inputs.addresses.extend(cards.addresses);
        inputs.addresses.extend(entrances.addresses);
        Ok(())
    }

    /// Emulated and played sources of the readout units in `addresses`, those with a line of their own by that.
    fn sources(&self, addresses: &[String], inputs: &mut Inputs, events: Option<u64>) -> Result<Sources, RunError> {
        let gate = Arc::new(TriggerGate::new(events.unwrap_or(u64::MAX)));
        let feeds = self.resolved.feeds(addresses, std::mem::take(&mut inputs.lines))?;
        if feeds.is_empty() {
            return Ok((None, gate));
        }
        let blocks = (feeds.len() + 1) * SOURCE_BLOCKS;
        let pool = self.placement.pool(PoolConfig::anonymous(SOURCES, SOURCE_BLOCK, blocks))?;
        let nothing = self.placement.pool(PoolConfig::anonymous(SOURCES_RECEIVE, UNUSED_BLOCK, feeds.len() + 1))?;
        let tcp = TcpConfig {
            send_queue_bytes: SOURCE_QUEUE_BLOCKS * SOURCE_BLOCK,
            close_timeout: SOURCE_PATIENCE,
            ..self.resolved.tcp()
        };
        let endpoints = Tcp::new(tcp, nothing).map_err(endpoint("sources"))?;
        Ok((Some(SourceDrive::new(feeds, endpoints, pool, Arc::clone(&gate))), gate))
    }

    /// For a node that sends no more than messages.
    fn control_tcp(&self, name: &str) -> Result<Tcp, RunError> {
        let pool = pool_of(name, Purpose::Control);
        self.peer_tcp(name, PoolConfig::anonymous(&pool, CONTROL_BLOCK, CONTROL_BLOCKS))
    }

    fn peer_tcp(&self, name: &str, pool: PoolConfig) -> Result<Tcp, RunError> {
        let tcp = TcpConfig { send_queue_bytes: PEER_QUEUE, ..self.resolved.tcp() };
        Tcp::new(tcp, self.placement.pool(pool)?).map_err(endpoint(name))
    }
}

/// Sets up a run with all nodes in this process, emulated and played sources included: units, or gateways. With `events`, sources of this
/// process end after exactly this many triggers.
///
/// # Errors
/// If memory, an address, a directory or a thread cannot be obtained.
pub fn launch(configuration: &Configuration, events: Option<u64>) -> Result<RunHandle, RunError> {
    launch_with(configuration, events, None)
}

/// As [`launch`], with the service that the front ends under run control are connected to: they stay there from run to run.
/// Without it the run has one of its own, where it needs one.
///
/// # Errors
/// As [`launch`].
pub fn launch_with(
    configuration: &Configuration,
    events: Option<u64>,
    front_ends: Option<&FrontEndService>,
) -> Result<RunHandle, RunError> {
    if configuration.has_gateways() {
        return prepare_part(configuration, &SystemPart::Whole, events);
    }
    make_room_for_descriptors(configuration, None)?;
    let placement = ThreadPlacement::new(configuration, Part::Whole)?;
    let resolved = Resolved::new(configuration, Addresses::in_process(configuration));
    let workshop = Workshop::new(&resolved, &placement);
    let network = InProcessNetwork::new();
    let config = InProcessConfig { send_queue_bytes: PEER_QUEUE, ..InProcessConfig::default() };
    let peers = || network.dispatcher(config).map_err(system("in-process endpoints"));

    let manager = workshop.manager(0, peers()?)?;
    let (mut inputs, mut archive, mut addresses) = (Inputs::default(), Archive::new(), Vec::new());
    let (mut readouts, mut builders) = (Vec::new(), Vec::new());
    for index in 0..resolved.manager.readouts {
        let mut readout = workshop.readout(index, peers()?)?;
        let name = configuration.readout[usize::from(index)].name.clone();
        inputs.addresses.push((name.clone(), readout.source_address()));
        workshop.inputs(index, &mut readout, events, &mut inputs)?;
        addresses.push(readout.source_address());
        readouts.push((name, workshop.with_page(NodeId::readout(index), readout)));
    }
    for index in 0..resolved.manager.builders {
        let name = configuration.builder[usize::from(index)].name.clone();
        let builder = workshop.builder(index, peers()?, &mut inputs.watched, &mut archive)?;
        builders.push((name, workshop.with_page(NodeId::builder(index), builder)));
    }
    let sources = workshop.sources(&addresses, &mut inputs, events)?;
    let own = if front_ends.is_some() { None } else { FrontEndService::of(&workshop)? };
    let mut start = Start::new(run_directory(&configuration.run.output)?, &resolved, &placement);
    start.names = std::mem::take(&mut inputs.addresses);
    start.base.tap = Some(workshop.tap.clone());
    let filings: Vec<_> = (0..resolved.manager.builders).filter_map(|index| resolved.filing(index)).collect();
    start.base.file_filters =
        start_file_filters(resolved.configuration(), &filings, workshop.placement, start.base.run)?;
    start.front_ends(front_ends, own, resolved.data_addresses(&addresses));
    let manager = (MANAGER.to_owned(), start.manager(manager, workshop.manager_page(0)));
    // In the order in which data pass.
    let units = readouts.into_iter().chain([manager]).chain(builders);
    if placement.is_shared() {
        start.worker(SHARED_THREAD, units.map(|(_, drive)| drive).collect())?;
    } else {
        units.into_iter().try_for_each(|(name, drive)| start.worker(&name, vec![drive]))?;
    }
    start.inputs(inputs, sources, &configuration.run.output)?;
    start.base.archive(archive, &placement)?;
    start.keep_files(0..resolved.manager.builders, &workshop)?;
    start.finish(&workshop)
}

/// Starts a readout or builder unit; the other nodes are processes of their own. Only the event manager makes a run directory and
/// takes commands: the handle of a unit ends when that says so.
///
/// # Errors
/// As [`launch`], and if the node is neither.
pub fn launch_unit(
    configuration: &Configuration,
    addresses: Addresses,
    role: Role,
    index: u16,
    events: Option<u64>,
) -> Result<RunHandle, RunError> {
    make_room_for_descriptors(configuration, Some((role, index)))?;
    let mut called = addresses.readouts.iter().filter(|_| role == Role::Builder).chain(&addresses.managers);
    called.try_for_each(|address| resolve(address).map(drop)).map_err(endpoint("another node"))?;
    let placement = ThreadPlacement::new(configuration, Part::of(configuration, role, index))?;
    let resolved = Resolved::new(configuration, addresses);
    let workshop = Workshop::new(&resolved, &placement);
    match role {
        Role::Readout => {
            let name = &configuration.readout[usize::from(index)].name;
            let mut readout = workshop.readout(index, workshop.control_tcp(name)?)?;
            let mut inputs = Inputs::default();
            inputs.addresses.push((name.clone(), readout.builder_address()));
            inputs.addresses.push((format!("{name} front ends"), readout.source_address()));
            workshop.inputs(index, &mut readout, events, &mut inputs)?;
            let mut start = Start::new(nowhere(), &resolved, &placement);
            start.names = std::mem::take(&mut inputs.addresses);
            let mut own = vec![String::new(); usize::from(resolved.manager.readouts)];
            own[usize::from(index)] = readout.source_address();
            start.worker(name, vec![workshop.with_page(NodeId::readout(index), readout)])?;
            let sources = workshop.sources(&own, &mut inputs, events)?;
            start.inputs(inputs, sources, &configuration.run.output)?;
            start.finish(&workshop)
        }
        Role::Builder => {
            let section = &configuration.builder[usize::from(index)];
            let pool = resolved.builder_pool(index);
            let (mut archive, peers) = (Archive::new(), workshop.peer_tcp(&section.name, pool)?);
            let mut start = Start::new(nowhere(), &resolved, &placement);
            let builder = workshop.builder(index, peers, &mut start.base.watched, &mut archive)?;
            start.base.tap = Some(workshop.tap.clone());
            start.worker(&section.name, vec![workshop.with_page(NodeId::builder(index), builder)])?;
            start.base.archive(archive, &placement)?;
            start.keep_files(index..index + 1, &workshop)?;
            start.finish(&workshop)
        }
        Role::Manager | Role::Source => Err(RunError::Unfit(
            "an event manager begins with its runs, and sources are started with their readout unit".to_owned(),
        )),
    }
}

/// Starts the event manager of a run whose other nodes are processes of their own. The front ends under run control are connected to the
/// service, where there are any, and stay there from run to run.
///
/// # Errors
/// As [`launch`].
pub(crate) fn launch_manager(
    configuration: &Configuration,
    addresses: Addresses,
    index: u16,
    front_ends: Option<&FrontEndService>,
) -> Result<RunHandle, RunError> {
    make_room_for_descriptors(configuration, Some((Role::Manager, index)))?;
    let placement = ThreadPlacement::new(configuration, Part::of(configuration, Role::Manager, index))?;
    let resolved = Resolved::new(configuration, addresses);
    let workshop = Workshop::new(&resolved, &placement);
    let mut manager = workshop.manager(index, workshop.control_tcp(MANAGER)?)?;
    let managing = Managing::First { epoch: resolved.manager.epoch, address: manager.address() };
    let output = &configuration.run.output;
    let directory = run_directory(output)?;
    let run = directory.run;
    let lost = Registry::open(output).and_then(|registry| registry.unfinished()).map_err(system(looking(output)))?;
    let lost = lost.map(|(lost, _)| lost.run);
    manager.closed(ClosedRuns { before: Some(run), but: lost });
    let mut start = Start::new(directory, &resolved, &placement);
    // Warn once: an operator who starts one more run has seen the warning.
    start.base.warnings.extend(lost.filter(|lost| lost.0 + 1 == run.0).map(|lost| {
        format!(
            "run {lost} in {} has lost its event manager; if its nodes still wait, end this one, and go on with that run: --take-over",
            output.display()
        )
    }));
    start.front_ends(front_ends, None, resolved.fixed_data_addresses()?);
    start.manage(manager, managing, workshop.manager_page(index))?;
    start.base.start_room = StartRoom::elsewhere(configuration.storage.start_room());
    start.finish(&workshop)
}

/// What is done where a run without an event manager is looked for.
fn looking(output: &Path) -> String {
    format!("{}: cannot look for a run to take over", output.display())
}

/// Starts the event manager of a run that has lost its own: the newest run in the output directory that has no
/// account. It listens at its own address, or where that has port 0 where the last one did. `index` says which of the
/// configured event managers it is.
///
/// # Errors
/// As [`launch_manager`], and if there is no such run or another event manager takes it over at this moment.
pub(crate) fn take_over(
    configuration: &Configuration,
    mut addresses: Addresses,
    index: u16,
    front_ends: Option<&FrontEndService>,
) -> Result<RunHandle, RunError> {
    let output = &configuration.run.output;
    let found = Registry::open(output).and_then(|registry| registry.unfinished()).map_err(system(looking(output)))?;
    let Some((directory, last)) = found else {
        let message = format!(
            "{}: no run in it has lost its event manager; name the directory with --output, or leave out --take-over",
            output.display()
        );
        return Err(RunError::Unfit(message));
    };
    let address = &mut addresses.managers[usize::from(index)];
    if address.ends_with(":0") {
        address.clone_from(&last.address);
    }
    let mut configuration = configuration.clone();
    configuration.manager.epoch = last.epoch.0 + 1;
    let placement = ThreadPlacement::new(&configuration, Part::Other)?;
    let resolved = Resolved::new(&configuration, addresses);
    let workshop = Workshop::new(&resolved, &placement);
    let mut manager = workshop.manager(index, workshop.control_tcp(MANAGER)?)?;
    manager.closed(ClosedRuns { before: Some(directory.run), but: None });
    let record = TakeoverRecord { epoch: resolved.manager.epoch, address: manager.address(), ..last };
    let claimed = || format!("{}: cannot be claimed by another event manager", directory.path.display());
    record.make(&directory.path).map_err(system(claimed()))?;
    let before = Duration::from_nanos(MonotonicClock.utc().0.saturating_sub(record.started.0).max(0) as u64);
    let epoch = record.epoch;
    let managing = Managing::Successor { first: record.first, last: record.last, epoch, before };
    let news = format!("took over run {} (epoch {epoch})", directory.run);
    let mut start = Start::new(directory, &resolved, &placement);
    start.front_ends(front_ends, None, resolved.fixed_data_addresses()?);
    start.manage(manager, managing, workshop.manager_page(index))?;
    let mut handle = start.finish(&workshop)?;
    handle.base.news.push(news);
    handle.describe(record.fields);
    Ok(handle)
}

/// Takes a run number. This comes last: a run that could not be set up leaves nothing behind.
pub(super) fn run_directory(output: &Path) -> Result<RunDirectory, RunError> {
    let what = || format!("{}: cannot make a run directory here, choose another with --output", output.display());
    Registry::open(output).and_then(|registry| registry.next_run()).map_err(system(what()))
}

pub(super) fn nowhere() -> RunDirectory {
    RunDirectory { run: RunNumber(0), path: Path::new("").to_owned() }
}

/// The time of day when the monotonic clock stood at zero.
pub(super) fn epoch() -> Utc {
    Utc(MonotonicClock.utc().0 - MonotonicClock.now().as_nanoseconds() as i64)
}

/// A life that is younger than every one before on this machine.
pub(super) fn incarnation() -> Incarnation {
    Incarnation(MonotonicClock.utc().0.max(1) as u64)
}

/// What feeds readout units of this process beside connections.
#[derive(Default)]
struct Inputs {
    cards: Vec<CardToEmulate>,
    feeds: Vec<Feed>,
    lines: Lines,
    savers: Vec<Saver>,
    watched: Vec<Watched>,
    /// What listens where.
    addresses: Vec<(String, String)>,
}

/// Emulated and played sources, and the gate at which those and emulated cards stop.
type Sources = (Option<SourceDrive<Tcp>>, Arc<TriggerGate>);

impl RunBase {
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

    /// Starts a thread of what takes the place of front ends.
    pub(super) fn emulator(
        &mut self,
        name: &str,
        drives: Vec<DriveWithPage>,
        placement: &ThreadPlacement,
    ) -> Result<(), RunError> {
        self.emulators.push(self.thread(name, drives, placement)?);
        Ok(())
    }

    /// Starts the thread that keeps what filters count. It ends when the last drive has that counts.
    pub(super) fn archive(&mut self, archive: Archive, placement: &ThreadPlacement) -> Result<(), RunError> {
        if archive.is_empty() {
            return Ok(());
        }
        self.counted = archive.outputs();
        self.feed(Feed::new(HISTOGRAMS, move |_, notes, _| notes.leave(archive.write_all())), placement)
    }

    /// Watches the disks to which run files and files of events are written, and takes closed run files away where that is wanted.
    pub(super) fn keep_files(
        &mut self,
        configuration: &Configuration,
        writers: &[StorageConfig],
        filings: &[FilingConfig],
        rooms: Vec<(Vec<PathBuf>, OutputRoom)>,
    ) -> Result<(), RunError> {
        let (section, outputs) = (&configuration.storage, run_files::outputs(writers));
        let directories =
            filings.iter().map(|filing| filing.directory.clone()).chain(outputs.iter().cloned()).collect();
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
    fn feed(&mut self, feed: Feed, placement: &ThreadPlacement) -> Result<(), RunError> {
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

/// The sink of a writer: a pipe, files for filter units, or run files. `None` if the run writes nothing.
pub(super) fn sink(
    configuration: &Configuration,
    name: &str,
    (config, filing): (StorageConfig, Option<FilingConfig>),
    placement: &ThreadPlacement,
    records: impl FnOnce(&StorageConfig) -> Result<Staging, RunError>,
) -> Result<Option<Box<dyn EventSink>>, RunError> {
    if !configuration.run.write {
        return Ok(None);
    }
    if let Some(config) = filing {
        return Ok(Some(Box::new(file_filters::filing(config, name, placement)?)));
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

/// A handle in the making.
struct Start<'a> {
    base: RunBase,
    units: Units,
    placement: &'a ThreadPlacement,
    names: Vec<(String, String)>,
    commands: Option<std::sync::mpsc::Receiver<ropewalk_flow::control::RunCommand>>,
}

impl<'a> Start<'a> {
    fn new(directory: RunDirectory, resolved: &Resolved, placement: &'a ThreadPlacement) -> Self {
        ropewalk_memory::prepare_chains(resolved.chain_nodes());
        let (units, commands) = Units::new(resolved.is_fed());
        let base = RunBase::new(resolved.configuration(), directory);
        Self { base, units, placement, names: Vec::new(), commands: Some(commands) }
    }

    fn manager<P: Dispatcher + Send + 'static>(
        &mut self,
        drive: ManagerDrive<P>,
        page: Option<NodePage>,
    ) -> DriveWithPage {
        let manager = CommandedManager {
            drive,
            commands: self.commands.take().expect("a process has one event manager"),
            board: Arc::clone(&self.units.board),
            publish_due: Instant::ZERO,
            published: RunPhase::default(),
        };
        DriveWithPage::new(Box::new(manager), page)
    }

    /// Front ends under run control: over a service that serves other runs too, or over one of this run's own.
    fn front_ends(&mut self, shared: Option<&FrontEndService>, own: Option<FrontEndService>, addresses: Vec<String>) {
        let service = shared.or(own.as_ref());
        self.names.extend(service.map(|service| ("front-ends".to_owned(), service.address().to_owned())));
        self.units.front_ends = service.map(|service| service.of_run(addresses));
        self.units.own_service = own;
    }

    /// The event manager alone, in a process of its own.
    fn manage<P: Dispatcher + Send + 'static>(
        &mut self,
        drive: ManagerDrive<P>,
        managing: Managing,
        page: Option<NodePage>,
    ) -> Result<(), RunError> {
        self.names.insert(0, (MANAGER.to_owned(), drive.address()));
        if let Managing::Successor { first, last, .. } = managing {
            // It knows which run it goes on with before it hears the first node, which tells what it has once.
            self.units.command(&self.base.workers, RunCommand::TakeOver { run: self.base.run, first, last });
        }
        self.units.manager = Some(managing);
        let manager = self.manager(drive, page);
        self.worker(MANAGER, vec![manager])
    }

    fn worker(&mut self, name: &str, drives: Vec<DriveWithPage>) -> Result<(), RunError> {
        self.base.addresses =
            std::mem::take(&mut self.names).into_iter().chain(self.base.addresses.drain(..)).collect();
        self.base.worker(name, drives, self.placement)
    }

    /// What takes the place of front ends, each until the gate is closed, and what writes in the place of connections.
    fn inputs(&mut self, inputs: Inputs, (sources, gate): Sources, output: &Path) -> Result<(), RunError> {
        self.base.watched.extend(inputs.watched);
        if let Some(drive) = sources {
            self.units.sent.extend(drive.sent());
            self.source_worker(SOURCES, Box::new(drive), &gate)?;
        }
        for CardToEmulate { name, config, ring, bell } in inputs.cards {
            let drive = EmulatedCardDrive::new(config, ring, bell, Arc::clone(&gate));
            self.units.sent.extend(drive.sent());
            self.source_worker(&name, Box::new(drive), &gate)?;
        }
        inputs.feeds.into_iter().try_for_each(|feed| self.base.feed(feed, self.placement))?;
        self.savers(inputs.savers, output)
    }

    /// What saves the recordings of black boxes: in the run's directory, or in `output` where that is another process's.
    fn savers(&mut self, savers: Vec<Saver>, output: &Path) -> Result<(), RunError> {
        if savers.is_empty() {
            return Ok(());
        }
        let has_none = self.base.directory.as_os_str().is_empty();
        let directory = if has_none { output.to_owned() } else { self.base.directory.clone() };
        let save = move |_: &_, notes: &_, is_over: &Arc<_>| save_black_boxes(savers, &directory, is_over, notes);
        self.base.feed(Feed::new("black-box", save), self.placement)
    }

    fn source_worker(
        &mut self,
        name: &str,
        drive: Box<dyn Drive + Send>,
        gate: &Arc<TriggerGate>,
    ) -> Result<(), RunError> {
        self.units.gate = Some(Arc::clone(gate));
        self.base.emulator(name, vec![DriveWithPage::new(drive, None)], self.placement)
    }

    /// Watches the disks of these builder units, and passes to each unit how much room it has.
    fn keep_files(&mut self, builders: Range<u16>, workshop: &Workshop<'_>) -> Result<(), RunError> {
        let (mut writers, mut filings, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
        for index in builders {
            let (storage, filing) = (workshop.resolved.storage(index, Utc(0)), workshop.resolved.filing(index));
            let mut places = run_files::outputs(storage.as_slice());
            places.extend(filing.iter().map(|filing| filing.directory.clone()));
            if !places.is_empty() {
                rooms.push((places, workshop.rooms[usize::from(index)].clone()));
            }
            writers.extend(storage);
            filings.extend(filing);
        }
        self.base.keep_files(workshop.resolved.configuration(), &writers, &filings, rooms)
    }

    /// The handle, once every thread is in its place.
    fn finish(mut self, workshop: &Workshop<'_>) -> Result<RunHandle, RunError> {
        self.base.news.extend(workshop.pages.trouble());
        self.base.warnings.extend(self.placement.finish()?);
        Ok(RunHandle { base: self.base, builders: Builders::Units(Box::new(self.units)) })
    }
}
