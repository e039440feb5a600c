//! From a configuration to running threads: pools, drives, wiring.

use super::cards::{CardToStart, CardWriter, ChildSlot};
use super::entrances::{Fed, Lines};
use super::feeder::{FeederNotes, RunningFeeder, Saver, save_black_boxes};
use super::file_filters::{filing, start_file_filters};
use super::front_ends::FrontEndService;
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
use super::run_files::{DiskWatch, StartRoom};
use super::transfer::TransferService;
use super::units::{CommandedManager, Managing, Units};
use super::worker::{Ending, StatsPage, Worker};
use crate::monitoring::Archive;
use ropewalk_config::Configuration;
use ropewalk_engine::pages::{NodePage, PageDirectory};
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{
    BuilderDrive, ClosedRuns, Drive, EmulatedCardDrive, EventSink, Identity, ManagerDrive, OutputRoom, ReadoutDrive,
    Refusal, SourceDrive, Storage,
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
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Why a run could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// A thread cannot run where the configuration wants it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// An address, a directory, a file or a thread could not be had.
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
    /// Where those who watch ask for events.
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
        let node = NodeId::builder(index);
        let config = self.resolved.builder_drive(index, self.identity(node));
        let name = config.name.clone();
        let sink = self.sink(index, &name)?;
        let filters = Filters { configuration: self.resolved.configuration(), placement: self.placement };
        let (mut filtering, others) = filters.filtering(&name, config.builder.slots)?;
        if let Some(output) = self.resolved.monitoring_output(index) {
            filtering = filtering.with_keeper(Box::new(archive.line(node, output, self.resolved.streams())));
        }
        watched.extend(others);
        let drive = BuilderDrive::new(config, peers, sink, self.staging(&name)?).map_err(endpoint(&name))?;
        // In good time before the event manager drops what is left.
        let drive = drive.with_filtering(filtering, self.resolved.configuration().timeouts.drain.0 / 2);
        Ok(drive.with_tap(self.tap.clone()).with_room(self.rooms[usize::from(index)].clone()))
    }

    /// The sink for the accepted events of a builder unit; `None` if they are only built.
    fn sink(&self, index: u16, name: &str) -> Result<Option<Box<dyn EventSink>>, RunError> {
        let records =
            || self.spare_pool(PoolConfig::anonymous(&pool_of(name, Purpose::Records), RECORDS_BLOCK, RECORDS_BLOCKS));
        if let Some((path, config)) = self.resolved.pipe(index, epoch()) {
            let error = system(format!("{name}: {}", path.display()));
            return Ok(Some(Box::new(Pipe::new(path, config, records()?).map_err(error)?)));
        }
        let Some(storage) = self.resolved.storage(index, epoch()) else {
            let Some(config) = self.resolved.filing(index) else { return Ok(None) };
            return Ok(Some(Box::new(filing(config, name, self.placement)?)));
        };
        let config = self.resolved.run_files().disk_config(disk_thread(name), &storage);
        let disk = RealDisk::with_threads(config, |thread| self.placement.on_start(thread));
        let disk = disk.map_err(system(format!("{name}: disk thread")))?;
        Ok(Some(Box::new(Storage::new(disk, storage, records()?))))
    }

    /// Emulated and played sources of the readout units in `addresses`, those with a line of their own by that.
    fn sources(
        &self,
        addresses: &[String],
        lines: Lines,
        gate: &Arc<TriggerGate>,
    ) -> Result<Option<SourceDrive<Tcp>>, RunError> {
        let feeds = self.resolved.feeds(addresses, lines)?;
        if feeds.is_empty() {
            return Ok(None);
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
        Ok(Some(SourceDrive::new(feeds, endpoints, pool, Arc::clone(gate))))
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
/// process end after exactly so many triggers.
///
/// # Errors
/// Where memory, an address, a directory or a thread cannot be had.
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
    let mut addresses = Vec::new();
    let mut names = Vec::new();
    let mut groups = Groups::new(&placement);
    let (mut cards, mut fed, mut lines, mut savers) = (Vec::new(), Vec::new(), Lines::new(), Vec::new());
    let (mut watched, mut archive) = (Vec::new(), Archive::new());
    for index in 0..resolved.manager.readouts {
        let mut readout = workshop.readout(index, peers()?)?;
        let own = workshop.cards(index, &mut readout, events)?;
        cards.extend(own.to_start);
        let entrances = workshop.entrances(index, &mut readout)?;
        lines.extend(workshop.emulated(index, &mut readout)?);
        watched.extend(workshop.splitters(index, &mut readout)?);
        savers.extend(workshop.black_boxes(index, &mut readout, &entrances));
        fed.extend(entrances.to_start);
        addresses.push(readout.source_address());
        let name = configuration.readout[usize::from(index)].name.clone();
        names.push((name.clone(), readout.source_address()));
        names.extend(own.addresses);
        names.extend(entrances.addresses);
        groups.readouts.push((name, Box::new(workshop.paged(NodeId::readout(index), readout))));
    }
    for index in 0..resolved.manager.builders {
        let name = configuration.builder[usize::from(index)].name.clone();
        let builder = workshop.builder(index, peers()?, &mut watched, &mut archive)?;
        groups.builders.push((name, Box::new(workshop.paged(NodeId::builder(index), builder))));
    }
    let gate = Arc::new(TriggerGate::new(events.unwrap_or(u64::MAX)));
    let sources = workshop.sources(&addresses, lines, &gate)?;
    let own = if front_ends.is_some() { None } else { FrontEndService::of(&workshop)? };
    let mut start = Start::new(run_directory(&configuration.run.output)?, &resolved, &placement);
    start.names = names;
    start.units.watched = watched;
    start.base.tap = Some(workshop.tap.clone());
    let filings: Vec<_> = (0..resolved.manager.builders).filter_map(|index| resolved.filing(index)).collect();
    start.units.file_filters =
        start_file_filters(resolved.configuration(), &filings, workshop.placement, start.base.run)?;
    start.front_ends(front_ends, own, resolved.data_addresses(&addresses));
    start.manager(manager, workshop.manager_page(0), &mut groups);
    for (name, drives) in groups.into_threads() {
        start.worker(&name, drives)?;
    }
    start.sources(sources, cards, &gate)?;
    start.fed(fed)?;
    start.savers(savers, &configuration.run.output)?;
    start.archive(archive)?;
    start.keep_files(0..resolved.manager.builders, &workshop)?;
    start.finish(&workshop)
}

/// Starts a readout or builder unit; the other nodes are processes of their own. Only the event manager makes a run directory and
/// takes commands: the handle of a unit ends when that says so.
///
/// # Errors
/// As [`launch`], and where the node is neither.
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
            let cards = workshop.cards(index, &mut readout, events)?;
            let entrances = workshop.entrances(index, &mut readout)?;
            let lines = workshop.emulated(index, &mut readout)?;
            let watched = workshop.splitters(index, &mut readout)?;
            let savers = workshop.black_boxes(index, &mut readout, &entrances);
            let mut start = Start::new(nowhere(), &resolved, &placement);
            start.units.watched = watched;
            start.names = vec![
                (name.clone(), readout.builder_address()),
                (format!("{name} front ends"), readout.source_address()),
            ];
            start.names.extend(cards.addresses);
            start.names.extend(entrances.addresses);
            let mut own = vec![String::new(); usize::from(resolved.manager.readouts)];
            own[usize::from(index)] = readout.source_address();
            start.worker(name, vec![Box::new(workshop.paged(NodeId::readout(index), readout))])?;
            let gate = Arc::new(TriggerGate::new(events.unwrap_or(u64::MAX)));
            let sources = workshop.sources(&own, lines, &gate)?;
            start.sources(sources, cards.to_start, &gate)?;
            start.fed(entrances.to_start)?;
            start.savers(savers, &configuration.run.output)?;
            start.finish(&workshop)
        }
        Role::Builder => {
            let section = &configuration.builder[usize::from(index)];
            let pool = resolved.builder_pool(index);
            let (mut watched, mut archive) = (Vec::new(), Archive::new());
            let peers = workshop.peer_tcp(&section.name, pool)?;
            let builder = workshop.builder(index, peers, &mut watched, &mut archive)?;
            let mut start = Start::new(nowhere(), &resolved, &placement);
            start.units.watched = watched;
            start.base.tap = Some(workshop.tap.clone());
            start.worker(&section.name, vec![Box::new(workshop.paged(NodeId::builder(index), builder))])?;
            start.archive(archive)?;
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

/// Starts the event manager of a run that goes on without one: the newest run in the output directory that has no
/// account. It listens at its own address, or where that has port 0 where the last one did. `index` says which of the
/// configured event managers it is.
///
/// # Errors
/// As [`launch_manager`], and where there is no such run or another event manager takes it over at this moment.
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
    let mut start = Start::new(directory, &resolved, &placement);
    start.front_ends(front_ends, None, resolved.fixed_data_addresses()?);
    start.manage(manager, managing, workshop.manager_page(index))?;
    let mut handle = start.finish(&workshop)?;
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

/// A thread's name and what it turns.
type Unit = (String, Box<dyn Drive + Send>);

/// Which drives share a thread: all of them, or each has its own.
struct Groups {
    together: bool,
    readouts: Vec<Unit>,
    builders: Vec<Unit>,
    manager: Option<Unit>,
}

impl Groups {
    fn new(placement: &ThreadPlacement) -> Self {
        Self { together: placement.is_shared(), readouts: Vec::new(), builders: Vec::new(), manager: None }
    }

    /// Thread names and their drives, in the order in which data pass.
    fn into_threads(self) -> Vec<(String, Vec<Box<dyn Drive + Send>>)> {
        let units = self.readouts.into_iter().chain(self.manager).chain(self.builders);
        if self.together {
            return vec![(SHARED_THREAD.to_owned(), units.map(|(_, drive)| drive).collect())];
        }
        units.map(|(name, drive)| (name, vec![drive])).collect()
    }
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
        let base = RunBase::new(resolved.configuration(), directory, Arc::new(Ending::default()));
        Self { base, units, placement, names: Vec::new(), commands: Some(commands) }
    }

    fn manager<P: Dispatcher + Send + 'static>(
        &mut self,
        drive: ManagerDrive<P>,
        page: Option<NodePage>,
        groups: &mut Groups,
    ) {
        let Some(commands) = self.commands.take() else { return };
        let manager = CommandedManager {
            drive,
            commands,
            board: Arc::clone(&self.units.board),
            publish_due: Instant::ZERO,
            published: RunPhase::default(),
        };
        groups.manager = Some((MANAGER.to_owned(), Box::new(StatsPage::new(manager, page))));
    }

    /// Front ends under run control: over a service that serves other runs too, or over one of this run's own.
    fn front_ends(&mut self, shared: Option<&FrontEndService>, own: Option<FrontEndService>, addresses: Vec<String>) {
        let service = shared.or(own.as_ref());
        self.names.extend(service.map(|service| ("front-ends".to_owned(), service.address().to_owned())));
        self.units.front_ends = service.map(|service| service.conducted(addresses));
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
        let mut groups = Groups { together: false, readouts: Vec::new(), builders: Vec::new(), manager: None };
        self.manager(drive, page, &mut groups);
        groups.into_threads().into_iter().try_for_each(|(name, drives)| self.worker(&name, drives))
    }

    fn worker(&mut self, name: &str, drives: Vec<Box<dyn Drive + Send>>) -> Result<(), RunError> {
        self.base.addresses =
            std::mem::take(&mut self.names).into_iter().chain(self.base.addresses.drain(..)).collect();
        let worker = Worker::start(name, drives, Arc::clone(&self.base.ending), self.placement.on_start(name))
            .map_err(system(format!("thread {name}")))?;
        self.base.workers.push(worker);
        Ok(())
    }

    /// What takes the place of front ends: each runs until the gate is closed.
    fn sources(
        &mut self,
        sources: Option<SourceDrive<Tcp>>,
        cards: Vec<CardToStart>,
        gate: &Arc<TriggerGate>,
    ) -> Result<(), RunError> {
        if let Some(drive) = sources {
            self.units.sent.extend(drive.sent());
            self.source_worker(SOURCES, Box::new(drive), gate)?;
        }
        for card in cards {
            let CardToStart { name, writer } = card;
            match writer {
                CardWriter::Emulated { config, ring, bell } => {
                    let drive = EmulatedCardDrive::new(*config, ring, bell, Arc::clone(gate));
                    self.units.sent.extend(drive.sent());
                    self.source_worker(&name, Box::new(drive), gate)?;
                }
                CardWriter::Feeder(feeder) => {
                    let is_over = Arc::clone(&feeder.is_over);
                    self.feeder(name, is_over, move |_, notes, _| {
                        // The notes have the error as well.
                        let _ = feeder.feed(notes);
                    })?;
                }
                CardWriter::Process(process) => {
                    self.feeder(name, Arc::default(), move |child, notes, is_over| {
                        process.watch(child, is_over, notes)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// What writes in the place of connections.
    fn fed(&mut self, fed: Vec<Fed>) -> Result<(), RunError> {
        for source in fed {
            self.feeder(source.name.clone(), Arc::default(), move |child, notes, is_over| {
                source.feed(child, notes, is_over);
            })?;
        }
        Ok(())
    }

    /// What saves the recordings of black boxes: in the run's directory, or in `output` where that is another process's.
    fn savers(&mut self, savers: Vec<Saver>, output: &Path) -> Result<(), RunError> {
        if savers.is_empty() {
            return Ok(());
        }
        let has_none = self.base.directory.as_os_str().is_empty();
        let directory = if has_none { output.to_owned() } else { self.base.directory.clone() };
        self.feeder("black-box".to_owned(), Arc::default(), move |_, notes, is_over| {
            save_black_boxes(savers, &directory, is_over, notes);
        })
    }

    /// Starts the thread that keeps what filters count. It ends when the last drive has that counts.
    fn archive(&mut self, archive: Archive) -> Result<(), RunError> {
        if archive.is_empty() {
            return Ok(());
        }
        self.units.histograms = archive.outputs();
        self.feeder(HISTOGRAMS.to_owned(), Arc::default(), move |_, notes, _| notes.leave(archive.write_all()))
    }

    /// Starts a thread that sees that a source or a card's ring is written, until `is_over` is set.
    fn feeder(
        &mut self,
        name: String,
        is_over: Arc<AtomicBool>,
        feed: impl FnOnce(&ChildSlot, &FeederNotes, &Arc<AtomicBool>) + Send + 'static,
    ) -> Result<(), RunError> {
        let (notes, child) = (Arc::new(FeederNotes::default()), ChildSlot::default());
        let prepare = self.placement.on_start(&name);
        let (told, slot, over) = (Arc::clone(&notes), child.clone(), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            prepare();
            feed(&slot, &told, &over);
        });
        let thread = thread.map_err(system(format!("thread {name}")))?;
        self.units.feeders.push(RunningFeeder { name, thread, is_over, notes, child });
        Ok(())
    }

    fn source_worker(
        &mut self,
        name: &str,
        drive: Box<dyn Drive + Send>,
        gate: &Arc<TriggerGate>,
    ) -> Result<(), RunError> {
        self.units.gate = Some(Arc::clone(gate));
        let on_start = self.placement.on_start(name);
        let worker = Worker::start(name, vec![drive], Arc::clone(&self.base.ending), on_start)
            .map_err(system(format!("thread {name}")))?;
        self.base.emulators.push(worker);
        Ok(())
    }

    /// The disks of these builder units are watched, and closed run files taken away where that is wanted.
    fn keep_files(&mut self, builders: Range<u16>, workshop: &Workshop<'_>) -> Result<(), RunError> {
        let resolved = workshop.resolved;
        let outputs = resolved.outputs(builders.clone());
        self.base.start_room = resolved.start_room(builders.clone());
        let room_of = |index: u16| {
            (resolved.start_room(index..index + 1).directories(), workshop.rooms[usize::from(index)].clone())
        };
        let rooms: Vec<_> = builders.clone().map(room_of).filter(|(places, _)| !places.is_empty()).collect();
        if !rooms.is_empty() {
            self.base.disk_watch =
                Some(DiskWatch::start(outputs, resolved.configuration().storage.least_free_bytes(), rooms)?);
        }
        self.base.transfer = resolved.transfer(builders).map(TransferService::start).transpose()?;
        Ok(())
    }

    /// The handle, once every thread is in its place.
    fn finish(mut self, workshop: &Workshop<'_>) -> Result<RunHandle, RunError> {
        self.base.news.extend(workshop.pages.trouble());
        self.base.warnings.extend(self.placement.finish()?);
        Ok(RunHandle { base: self.base, builders: Builders::Units(Box::new(self.units)) })
    }
}
