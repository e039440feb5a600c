//! From a configuration to running threads: pools, drives and their connections.

use super::base::RunBase;
use super::cards::CardToEmulate;
use super::controlled::FrontEndService;
use super::entrances::Lines;
use super::error::{RunError, endpoint, system};
use super::feeder::{Feed, Saver, save_black_boxes};
use super::file_filters::start_file_filters;
use super::gateway::{self, SystemPart};
use super::handle::{Builders, RunHandle};
use super::placement::{
    MANAGER, Part, Purpose, SHARED_THREAD, SOURCES, SOURCES_RECEIVE, ThreadPlacement, make_room_for_descriptors,
    pool_of,
};
use super::plugins::{Filters, Watched};
use super::registry::{Registry, RunDirectory, TakeoverRecord};
use super::resolve::{Addresses, Resolved};
use super::run_files::{self, StartRoom};
use super::units::{Managing, Units};
use super::worker::{CommandedManager, DriveWithPage};
use super::workshop::{Workshop, epoch, in_output, nowhere, run_directory, sink};
use crate::monitoring::Archive;
use ropewalk_config::Configuration;
use ropewalk_engine::pages::NodePage;
use ropewalk_engine::{
    BuilderDrive, ClosedRuns, Drive, EmulatedCardDrive, Identity, ManagerDrive, ReadoutDrive, SourceDrive,
};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::tcp::{Tcp, TcpConfig, resolve};
use ropewalk_memory::{PoolConfig, Staging};
use ropewalk_terms::{Epoch, EventKey, Instant, NodeId, Role, RunNumber, Utc};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Number of blocks of a staging pool: many times the need of one head or control message to every node.
const STAGING_BLOCKS: usize = 64;
/// Size of a send queue between nodes. Credit bounds it, so that a full queue means a hanging node.
const PEER_QUEUE: usize = 256 << 20;
/// Blocks for receiving the control messages of other nodes. A connection fills one, and unread data is short.
const CONTROL_BLOCK: usize = 64 << 10;
const CONTROL_BLOCKS: usize = 128;
/// Blocks for heads and tails of records that are being gathered or with the disk. For small fragments the descriptions
/// are larger than the fragments.
const RECORDS_BLOCK: usize = 256 << 10;
const RECORDS_BLOCKS: usize = 128;
/// Block size of emulated and played sources. Fragments are sent in pieces of this size, which needs few system calls.
const SOURCE_BLOCK: usize = 128 << 10;
/// Number of blocks of a source: one being filled, one in transit, four in its queue, and two spare.
const SOURCE_BLOCKS: usize = 8;
/// Maximum number of blocks in a source's queue.
const SOURCE_QUEUE_BLOCKS: usize = 4;
/// Block size for unused receive pools: sources get no answers, but an endpoint needs a small block for each
/// connection.
const UNUSED_BLOCK: usize = 4096;
/// Time-out for queued data when a source ends. It is long, because the run may be held up, for example by a full disk.
const SOURCE_PATIENCE: Duration = Duration::from_secs(24 * 3600);

impl Workshop<'_> {
    const fn identity(&self, node: NodeId) -> Identity {
        Identity { node, incarnation: self.incarnation, run: RunNumber(0), epoch: Epoch(0) }
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
        // While its source is unknown, a connection fills no more than its share of the common memory.
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
        let sink =
            sink(resolved.configuration(), &name, (storage, resolved.event_files(index)), self.placement, records)?;
        let filters = Filters { configuration: resolved.configuration(), placement: self.placement };
        let output = resolved.output(index);
        let filter = filters.stage(&name, config.builder.slots, (node, output), watched, archive)?;
        let drive = BuilderDrive::new(config, peers, sink, self.staging(&name)?).map_err(endpoint(&name))?;
        // Before the event manager's drain time-out ends the remaining events.
        let drive = drive.with_filter(filter, resolved.configuration().timeouts.drain.0 / 2);
        Ok(drive.with_tap(self.tap.clone()).with_room(self.rooms[usize::from(index)].clone()))
    }

    /// Creates the inputs of a readout unit other than connections.
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
        inputs.savers.extend(self.black_boxes(index, readout, &entrances.addresses));
        inputs.cards.extend(cards.emulated);
        inputs.feeds.extend(cards.feeds);
        inputs.feeds.extend(entrances.feeds);
        inputs.addresses.extend(cards.addresses);
        inputs.addresses.extend(entrances.addresses);
        Ok(())
    }

    /// Creates the emulated and played sources of the readout units in `addresses`; sources with a line of their own
    /// use that.
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

    /// Creates the TCP endpoints of a node that only sends messages.
    fn control_tcp(&self, name: &str) -> Result<Tcp, RunError> {
        let pool = pool_of(name, Purpose::Control);
        self.peer_tcp(name, PoolConfig::anonymous(&pool, CONTROL_BLOCK, CONTROL_BLOCKS))
    }

    fn peer_tcp(&self, name: &str, pool: PoolConfig) -> Result<Tcp, RunError> {
        let tcp = TcpConfig { send_queue_bytes: PEER_QUEUE, ..self.resolved.tcp() };
        Tcp::new(tcp, self.placement.pool(pool)?).map_err(endpoint(name))
    }
}

/// Sets up a run with all nodes in this process: units or gateways, including emulated and played sources. With
/// `events`, sources of this process end after exactly this many triggers.
///
/// # Errors
/// If memory, an address, a directory or a thread cannot be obtained.
pub fn launch(configuration: &Configuration, events: Option<u64>) -> Result<RunHandle, RunError> {
    launch_with(configuration, events, None)
}

/// As [`launch`], with the service that the front ends under run control are connected to. They stay connected from run
/// to run. Without this service the run creates its own if it needs one.
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
    let event_files: Vec<_> = (0..resolved.manager.builders).filter_map(|index| resolved.event_files(index)).collect();
    start.base.file_filters =
        start_file_filters(resolved.configuration(), &event_files, workshop.placement, start.base.run)?;
    start.front_ends(front_ends, own, resolved.data_addresses(&addresses));
    let manager = (MANAGER.to_owned(), start.manager(manager, workshop.manager_page(0)));
    // In the order of the data flow.
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

/// Starts a part of a system with gateways. With `events`, the sources of the first flow end after this many.
///
/// # Errors
/// If memory, an address, a directory or a thread cannot be obtained.
pub fn launch_part(
    configuration: &Configuration,
    part: &SystemPart,
    events: Option<u64>,
) -> Result<RunHandle, RunError> {
    let mut handle = prepare_part(configuration, part, events)?;
    handle.start(EventKey::new(0, 1), None);
    Ok(handle)
}

/// As [`launch_part`], but gateways stop the trigger until [`RunHandle::start`].
///
/// # Errors
/// As [`launch_part`].
pub(crate) fn prepare_part(
    configuration: &Configuration,
    part: &SystemPart,
    events: Option<u64>,
) -> Result<RunHandle, RunError> {
    let (base, gateways) = gateway::prepare(configuration, part, events)?;
    Ok(RunHandle { base, builders: Builders::Gateways(Box::new(gateways)) })
}

/// Starts a readout or builder unit whose run has its other nodes in other processes. Only the event manager makes a
/// run directory and takes commands; the handle of a unit ends on its order.
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

/// Starts the event manager of a run whose other nodes are separate processes. Front ends under run control are
/// connected to the service, if there are any, and stay connected from run to run.
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
    let output = &configuration.run.output;
    let last = in_output(output, Registry::last_epoch)?;
    let mut configuration = configuration.clone();
    configuration.manager.epoch = configuration.manager.epoch.max(last.0);
    let configuration = &configuration;
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

/// Returns the description of a search for a run without an event manager, for errors.
fn looking(output: &Path) -> String {
    format!("{}: cannot look for a run to take over", output.display())
}

/// Starts the event manager of a run that has lost its own: the newest run in the output directory without an account.
/// It listens at its own address; if that has port 0, at the address of its predecessor. `index` is its index among the
/// configured event managers.
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

/// Inputs of the readout units of this process other than connections.
#[derive(Default)]
struct Inputs {
    cards: Vec<CardToEmulate>,
    feeds: Vec<Feed>,
    lines: Lines,
    savers: Vec<Saver>,
    watched: Vec<Watched>,
    /// Names and addresses of the listening points.
    addresses: Vec<(String, String)>,
}

/// Emulated and played sources, and the gate that stops them and emulated cards.
type Sources = (Option<SourceDrive<Tcp>>, Arc<TriggerGate>);

/// A handle under construction.
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

    /// Adds front ends under run control, through a service shared with other runs, or through the run's own one.
    fn front_ends(&mut self, shared: Option<&FrontEndService>, own: Option<FrontEndService>, addresses: Vec<String>) {
        let service = shared.or(own.as_ref());
        self.names.extend(service.map(|service| ("front-ends".to_owned(), service.address().to_owned())));
        self.units.front_ends = service.map(|service| service.of_run(addresses));
        self.units.own_service = own;
    }

    /// Starts the event manager alone, in its own process.
    fn manage<P: Dispatcher + Send + 'static>(
        &mut self,
        drive: ManagerDrive<P>,
        managing: Managing,
        page: Option<NodePage>,
    ) -> Result<(), RunError> {
        self.names.insert(0, (MANAGER.to_owned(), drive.address()));
        if let Managing::Successor { first, last, .. } = managing {
            // It must know which run it continues before the first node connects, because that node sends its state
            // only once.
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

    /// Starts the substitutes for front ends, which run until the gate is closed, and the writers that replace
    /// connections.
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

    /// Starts the thread that saves the recordings of black boxes: in the run's directory, or in `output` if that is
    /// another process's.
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

    /// Watches the disks of these builder units, and reports to each unit its free space.
    fn keep_files(&mut self, builders: Range<u16>, workshop: &Workshop<'_>) -> Result<(), RunError> {
        let (mut writers, mut event_files, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
        for index in builders {
            let (storage, files) = (workshop.resolved.storage(index, Utc(0)), workshop.resolved.event_files(index));
            let mut places = run_files::outputs(storage.as_slice());
            places.extend(files.iter().map(|files| files.directory.clone()));
            if !places.is_empty() {
                rooms.push((places, workshop.rooms[usize::from(index)].clone()));
            }
            writers.extend(storage);
            event_files.extend(files);
        }
        self.base.keep_files(workshop.resolved.configuration(), &writers, &event_files, rooms)
    }

    /// Returns the handle, once every thread is placed.
    fn finish(mut self, workshop: &Workshop<'_>) -> Result<RunHandle, RunError> {
        self.base.news.extend(workshop.pages.trouble());
        self.base.warnings.extend(self.placement.finish()?);
        Ok(RunHandle { base: self.base, builders: Builders::Units(Box::new(self.units)) })
    }
}
