//! From a configuration to running threads: sockets, pools, drives and their connections.

use super::farm::{Farm, decision_readers, gateway_link, messages};
use super::gateways::{FlowSource, Gateways, Hardware, RunningGateway, Way};
use super::inputs::{self, Inputs, carrier};
use crate::base::RunBase;
use crate::error::{RunError, packet_error, system};
use crate::file_filters::{event_files_config, start_file_filters};
use crate::monitoring::Archive;
use crate::placement::{
    FARM, LUMISECTIONS, Part, Purpose, ThreadPlacement, pool_of, receiving_thread, sending_thread, sources_thread,
};
use crate::plugins::Filters;
use crate::resolve::lumisection_length;
use crate::run_files::RunFiles;
use crate::worker::DriveWithPage;
use crate::workshop::{epoch, incarnation, nowhere, run_directory, sink};
use ropewalk_config::{Architecture, Configuration, FlowSection, InputQueue};
use ropewalk_engine::gateway::{
    DecisionReaders, GatewayDrive, GatewayDriveConfig, GatewayReport, Link, LumisectionDrive, LumisectionLine, Notice,
    PacketSourceDrive, PacketSourceDriveConfig, ReceivingParts, SendingParts, ThrottleBoard, halves,
};
use ropewalk_engine::pages::{OwnerLabel, PageDirectory, PageRole};
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{Drive, EventFilesConfig, EventOutput, EventSink, StorageConfig};
use ropewalk_flow::gateway::Output;
use ropewalk_flow::manager::LumisectionLength;
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::packet::{Flow, Receiver, SendConfig, Sender, SocketReceiver, SocketSender};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_terms::{AcknowledgementLevel, Incarnation, NodeId, SourceId};
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The part of a system with gateways that runs in this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SystemPart {
    /// Everything, including emulators.
    Whole,
    /// One gateway, by its name.
    Gateway(String),
    /// The emulated sources of these flows, given by name; of all flows if none is named.
    Sources(Vec<String>),
    /// These emulated nodes, given by number.
    Nodes(core::ops::Range<u16>),
}

impl SystemPart {
    const fn has_gateways(&self) -> bool {
        matches!(self, Self::Whole | Self::Gateway(_))
    }

    fn has_gateway(&self, gateway: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Gateway(name) => name == gateway,
            Self::Sources(_) | Self::Nodes(_) => false,
        }
    }
}

/// Memory for messages of nodes and for sent data: block size and number of blocks.
pub(super) const CONTROL_MEMORY: (usize, usize) = (64 << 10, 32);
/// Memory of a gateway's or a node's sender.
pub(super) const SEND_MEMORY: (usize, usize) = (256 << 10, 16);
/// Memory of an emulated source's sender. There is one for each source, and there may be hundreds.
const SOURCE_MEMORY: (usize, usize) = (32 << 10, 4);
/// Number of packets that a source queues before it calls the system.
const SOURCE_BATCH: usize = 16;
/// Memory for records on their way to the disk, and for packets that are moved.
const RECORDS_MEMORY: (usize, usize) = (256 << 10, 128);
/// Number of its blocks for the batch that is gathered meanwhile.
const SPARE_RECORDS: usize = 16;
/// Maximum number of packets in one receive or send call.
pub(super) const BATCH: usize = 256;
/// Size of the kernel's buffer for a receiver of messages.
pub(super) const SOCKET_BUFFER: usize = 32 << 20;
/// Share of held memory, in percent, above which packets are copied out of it.
///
/// It is above the mark at which the throttle stops the trigger: it is meant for packets that the trigger can no longer
/// stop.
const EVACUATE_ABOVE: usize = 90;

/// The addresses of all parts.
struct Places {
    /// By input queue: address for nodes.
    control: Vec<SocketAddrV4>,
    /// By input queue, by flow.
    listen: Vec<Vec<SocketAddrV4>>,
    /// By flow.
    triggers: Vec<Option<SocketAddrV4>>,
}

pub(super) fn pool(name: &str, (block, blocks): (usize, usize)) -> Result<Pool, RunError> {
    Ok(Pool::new_untouched(PoolConfig::anonymous(name, block, blocks))?)
}

/// State shared during the setup.
struct Assembly<'a> {
    configuration: &'a Configuration,
    incarnation: Incarnation,
    gates: Vec<Option<Arc<TriggerGate>>>,
    is_over: Arc<AtomicBool>,
    placement: ThreadPlacement,
    pages: PageDirectory,
    base: RunBase,
    running: Gateways,
    /// Tap for copies of events.
    tap: Tap,
    /// By input queue of this process.
    lumisections: std::vec::IntoIter<LumisectionLine>,
    /// Stores the counts of filters.
    archive: Archive,
    /// Threads that are started once all of them can be. Sources are last, so that every receiver exists before.
    gateways: Vec<Unit>,
    emulators: Vec<Unit>,
}

/// A thread's name and its drives.
type Unit = (String, Vec<DriveWithPage>);

/// Sets up a part of a system with gateways, which stop the trigger until the run starts.
pub(crate) fn prepare(
    configuration: &Configuration,
    part: &SystemPart,
    events: Option<u64>,
) -> Result<(RunBase, Gateways), RunError> {
    let gates = gates(configuration, part, events);
    let is_over = Arc::<AtomicBool>::default();
    let of_triggers = gates.iter().flatten().cloned().collect();
    let running = Gateways::new(&configuration.flow, of_triggers, Arc::clone(&is_over));
    let base = RunBase::new(configuration, nowhere());
    // An event has fragments of one flow.
    let sources = configuration.flow.iter().map(|flow| usize::from(flow.sources.count)).max();
    let incarnation = incarnation();
    let mut assembly = Assembly {
        configuration,
        incarnation,
        gates,
        is_over,
        placement: ThreadPlacement::new(configuration, Part::Whole)?,
        pages: PageDirectory::open(&configuration.monitor.pages, &configuration.run.output, incarnation),
        base,
        running,
        tap: Tap::new(sources.unwrap_or_default()),
        lumisections: Vec::new().into_iter(),
        archive: Archive::new(),
        gateways: Vec::new(),
        emulators: Vec::new(),
    };
    assembly.assemble(part)?;
    assembly.base.news.extend(assembly.pages.trouble());
    assembly.start()
}

/// Returns the gate of each flow's trigger, if it is in this process.
fn gates(configuration: &Configuration, part: &SystemPart, events: Option<u64>) -> Vec<Option<Arc<TriggerGate>>> {
    let events = events.or(configuration.run.events);
    let gate = |(index, flow): (usize, &FlowSection)| {
        flow.emulate.as_ref()?;
        match part {
            SystemPart::Gateway(_) | SystemPart::Nodes(_) => return None,
            SystemPart::Sources(names) if !names.is_empty() && !names.contains(&flow.name) => return None,
            SystemPart::Sources(_) | SystemPart::Whole => {}
        }
        // Packets are sent whole.
        let packing = u64::from(flow.packing);
        let limit = events.filter(|_| index == 0).map(|events| events.div_ceil(packing) * packing);
        Some(Arc::new(TriggerGate::new(limit.unwrap_or(u64::MAX))))
    };
    configuration.flow.iter().enumerate().map(gate).collect()
}

impl Assembly<'_> {
    fn start(mut self) -> Result<(RunBase, Gateways), RunError> {
        // One by one: if a thread cannot be started, the base ends the ones before it.
        for (name, drives) in self.gateways {
            self.base.worker(&name, drives, &self.placement)?;
        }
        for (name, drives) in self.emulators {
            self.base.emulator(&name, drives, &self.placement)?;
        }
        self.base.archive(self.archive, &self.placement)?;
        self.base.warnings.extend(self.placement.finish()?);
        Ok((self.base, self.running))
    }

    fn assemble(&mut self, part: &SystemPart) -> Result<(), RunError> {
        let controls = self.trigger_receivers(part)?;
        let mut places = Places { control: Vec::new(), listen: Vec::new(), triggers: Vec::new() };
        for (flow, control) in self.configuration.flow.iter().zip(&controls) {
            let configured = self.configuration.trigger.listen.get(&flow.name).map(|address| address.0);
            places.triggers.push(control.as_ref().map(Receiver::address_v4).or(configured));
        }
        if part.has_gateways() {
            let directory = run_directory(&self.configuration.run.output)?;
            (self.base.run, self.base.directory) = (directory.run, directory.path);
            self.base.tap = Some(self.tap.clone());
            self.keep_files(part)?;
            self.divide(part)?;
        }
        let queues: Vec<InputQueue<'_>> = self.configuration.input_queues().collect();
        for queues in queues.chunk_by(|one, other| one.gateway.name == other.gateway.name) {
            if part.has_gateway(&queues[0].gateway.name) {
                let inputs = inputs::inputs(self.configuration, queues, &self.placement)?;
                for (queue, inputs) in queues.iter().zip(inputs) {
                    self.queue(queue, inputs, &mut places)?;
                }
            } else {
                let transport = self.configuration.farm.transport;
                places.control.extend(queues.iter().map(|queue| queue.control(transport)));
                let listen =
                    |queue: &InputQueue<'_>| self.configuration.flow.iter().map(|flow| queue.listen(flow)).collect();
                places.listen.extend(queues.iter().map(listen));
            }
        }
        self.nodes(part, &places)?;
        for (flow, control) in controls.into_iter().enumerate() {
            if let Some(control) = control {
                self.sources(flow, control, &places)?;
            }
        }
        Ok(())
    }

    /// Creates the receivers of messages from gateways for the triggers of this process.
    fn trigger_receivers(&self, part: &SystemPart) -> Result<Vec<Option<SocketReceiver>>, RunError> {
        let receiver = |(gate, flow): (&Option<Arc<TriggerGate>>, &FlowSection)| {
            if gate.is_none() {
                return Ok(None);
            }
            let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
            let configured = self.configuration.trigger.listen.get(&flow.name).map(|address| address.0);
            if configured.is_none() && *part != SystemPart::Whole {
                let message =
                    format!("trigger.listen does not say where the trigger of `{}` hears gateways", flow.name);
                return Err(RunError::Unfit(message));
            }
            let name = format!("trigger-{}", flow.name);
            messages(&name, Flow::Udp, configured.unwrap_or(any)).map(Some)
        };
        self.gates.iter().zip(&self.configuration.flow).map(receiver).collect()
    }

    /// Sets up the division of the run into lumisections.
    fn divide(&mut self, part: &SystemPart) -> Result<(), RunError> {
        let length = lumisection_length(self.configuration);
        if *part != SystemPart::Whole && self.configuration.gateway.len() > 1 {
            if length == LumisectionLength::Run && self.configuration.file_based.is_none() {
                return Ok(());
            }
            let message = "lumisections end when all gateways have stored their events: with run.lumisection or [file_based] all \
                           gateways must be in one process; start them with `ropewalk run`";
            return Err(RunError::Unfit(message.to_owned()));
        }
        let flows = inputs::flows(self.configuration);
        let queues = self.writers_here(part).count();
        let (drive, lines) = LumisectionDrive::new(&flows, length, queues, Arc::clone(&self.running.is_held));
        self.running.lumisections = drive.board();
        self.lumisections = lines.into_iter();
        self.gateways.push((LUMISECTIONS.to_owned(), vec![DriveWithPage::new(Box::new(drive), None)]));
        Ok(())
    }

    /// Sets up the thread that watches the disks and the transfer of closed files.
    fn keep_files(&mut self, part: &SystemPart) -> Result<(), RunError> {
        if !self.configuration.writes_to_disk() {
            return Ok(());
        }
        let (mut writers, mut event_files) = (Vec::new(), Vec::new());
        for queue in self.writers_here(part) {
            match self.event_files_config(&queue) {
                Some(files) => event_files.push(files),
                None => writers.push(self.storage_config(&queue)),
            }
        }
        self.base.file_filters = start_file_filters(self.configuration, &event_files, &self.placement, self.base.run)?;
        self.base.keep_files(self.configuration, &writers, &event_files, Vec::new())
    }

    /// Sets up an input queue of a gateway.
    fn queue(&mut self, queue: &InputQueue<'_>, mut inputs: Inputs, places: &mut Places) -> Result<(), RunError> {
        let (section, name, number) = (queue.gateway, queue.name(), queue.number);
        for (flow, address) in self.configuration.flow.iter().zip(&inputs.addresses) {
            self.base.addresses.push((format!("{name} {}", flow.name), address.to_string()));
        }
        places.listen.push(std::mem::take(&mut inputs.addresses));
        let (farm, control) = gateway_link(self.configuration, queue, inputs.transmit.take())?;
        self.base.addresses.push((format!("{name} control"), control.to_string()));
        places.control.push(control);
        let sink = self.sink(queue)?;
        let output = if self.configuration.decides_itself() {
            self.output(queue, sink)?
        } else {
            EventOutput::of_farm(sink, self.configuration.streams())
        };
        let machine = inputs::machine(self.configuration, number, section, self.incarnation, self.base.run);
        self.base.warnings.extend(inputs.short_queues(&name, section, &machine));
        let histograms = Notice::default();
        let config = GatewayDriveConfig {
            machine,
            gathering: section.gather,
            triggers: places.triggers.clone(),
            requests: inputs::trigger(self.configuration).naming == ropewalk_flow::gateway::Naming::Request,
            run: self.base.run,
            epoch: epoch(),
            gates: self.gates.clone(),
            is_held: Arc::clone(&self.running.is_held),
            orders: Arc::clone(&self.running.orders),
            histograms: histograms.clone(),
            is_over: Arc::clone(&self.is_over),
            drain: self.configuration.timeouts.drain.0,
            batch: BATCH,
            memory: inputs.memory,
            evacuate_above: EVACUATE_ABOVE,
        };
        let (block, blocks) = RECORDS_MEMORY;
        let evacuated = PoolConfig::anonymous(&pool_of(&name, Purpose::Evacuation), block, blocks);
        let memory = inputs::memory_kind(self.configuration);
        let evacuated = Staging::new(self.placement.untouched_pool(PoolConfig { memory, ..evacuated })?);
        let (block, blocks) = SEND_MEMORY;
        let heads = PoolConfig::anonymous(&pool_of(&name, Purpose::Staging), block, blocks);
        let heads = Staging::new(self.placement.untouched_pool(heads)?);
        let board = self.hardware(queue)?;
        let triggers = trigger_sender(&name)?;
        let receiving = ReceivingParts { inputs: inputs.receivers, triggers, board: board.clone(), evacuated };
        let readers = self.readers(queue)?;
        let unit = NodeId::builder(number);
        let tap = Some((unit, self.tap.clone()));
        let sending = SendingParts {
            farm,
            triggers: trigger_sender(&name)?,
            readers,
            heads,
            tap,
            lumisections: self.lumisections.next(),
            output,
        };
        let notice = self.turn_on(section.architecture, &name, config, receiving, sending)?;
        self.running.queues.push(RunningGateway { name, number, notice, histograms, board, failure: None });
        Ok(())
    }

    /// Sets up the links for readers of a queue's decisions, by flow.
    fn readers(&mut self, queue: &InputQueue<'_>) -> Result<Vec<Option<Box<dyn DecisionReaders + Send>>>, RunError> {
        let mut readers = Vec::new();
        for flow in &self.configuration.flow {
            let name = format!("{} decisions of {}", queue.name(), flow.name);
            let bound = queue.decisions(flow).map(|address| decision_readers(&name, address)).transpose()?;
            readers.push(bound.map(|(readers, bound)| {
                self.base.addresses.push((name, bound));
                readers
            }));
        }
        Ok(readers)
    }

    /// Sets up the report of the throttle's state to hardware, if `tell` is configured.
    fn hardware(&mut self, queue: &InputQueue<'_>) -> Result<Option<Arc<ThrottleBoard>>, RunError> {
        let Some(tell) = &queue.gateway.throttle.tell else { return Ok(None) };
        let name = queue.name();
        let board = Arc::<ThrottleBoard>::default();
        let datagrams = tell.udp.map(|address| Way::Datagrams(address.0, tell.repeat.0));
        let command = (!tell.command.is_empty()).then(|| Way::Command(tell.command.clone()));
        for way in datagrams.into_iter().chain(command) {
            let hardware = Hardware::start(&name, way, Arc::clone(&board));
            self.running.hardware.push(hardware.map_err(system(format!("{name}: throttle.tell")))?);
        }
        Ok(Some(board))
    }

    /// Assigns the work of an input queue to one thread, or to two.
    fn turn_on<R, L, S>(
        &mut self,
        architecture: Architecture,
        name: &str,
        config: GatewayDriveConfig,
        receiving: ReceivingParts<R, S>,
        sending: SendingParts<L, S>,
    ) -> Result<Notice<GatewayReport>, RunError>
    where
        R: Receiver + Send + 'static,
        L: Link + Send + 'static,
        S: Sender + Send + 'static,
    {
        let (now, unfit) = (MonotonicClock.now(), |error: String| RunError::Unfit(format!("{name}: {error}")));
        match architecture {
            Architecture::RunToCompletion => {
                let drive = GatewayDrive::new(config, receiving, sending);
                let mut drive = drive.map_err(|error| unfit(error.to_string()))?;
                drive.begin(now);
                let notice = drive.notice();
                self.gateways.push((name.to_owned(), vec![self.with_page(name, drive)]));
                Ok(notice)
            }
            Architecture::Threads => {
                let drives = halves(config, receiving, sending);
                let (receiving, mut sending) = drives.map_err(|error| unfit(error.to_string()))?;
                sending.begin(now);
                let notice = receiving.notice();
                let (receiver, sender) = (receiving_thread(name), sending_thread(name));
                let receiving = self.with_page(&receiver, receiving);
                // The other half reports its counts.
                let sending = DriveWithPage::new(Box::new(sending), self.pages.page(&sender, PageRole::Gateway, []));
                self.gateways.push((receiver, vec![receiving]));
                self.gateways.push((sender, vec![sending]));
                Ok(notice)
            }
        }
    }

    /// Returns an input queue with its page.
    fn with_page(&self, name: &str, drive: impl Drive + Send + 'static) -> DriveWithPage {
        let sources = self.configuration.flow.iter().flat_map(|flow| flow.sources.entries(false));
        let page = self.pages.page(name, PageRole::Gateway, sources.map(|(id, _)| OwnerLabel::source(SourceId(id))));
        DriveWithPage::new(Box::new(drive), page)
    }

    /// Returns the input queues of the gateways in this process.
    fn writers_here(&self, part: &SystemPart) -> impl Iterator<Item = InputQueue<'_>> {
        self.configuration.input_queues().filter(move |queue| part.has_gateway(&queue.gateway.name))
    }

    /// Returns the storage configuration of an input queue.
    fn storage_config(&self, queue: &InputQueue<'_>) -> StorageConfig {
        let stored = self.configuration.flow.iter().filter(|flow| flow.output == Output::Storage);
        let entries = stored.flat_map(|flow| {
            flow.sources.entries(false).map(|(id, _)| SourceEntry {
                id: SourceId(id),
                format: SourceFormat::BANKS,
                name: format!("{}-{}", flow.name, id - flow.sources.first),
            })
        });
        let decides = self.configuration.decides_itself() && self.configuration.filter.is_some();
        let of_filter = decides.then(|| SourceEntry {
            id: SourceId::FILTER,
            format: SourceFormat::FILTER_RESULT,
            name: "filter".to_owned(),
        });
        let files = RunFiles::of(self.configuration);
        StorageConfig {
            epoch: epoch(),
            sources: entries.chain(of_filter).collect(),
            ..files.storage_config(
                NodeId::builder(queue.number),
                self.configuration.run.output.clone(),
                &self.configuration.streams(),
            )
        }
    }

    /// Creates the output of an input queue that decides itself.
    fn output(&mut self, queue: &InputQueue<'_>, sink: Option<Box<dyn EventSink>>) -> Result<EventOutput, RunError> {
        let Self { configuration, placement, archive, base, .. } = self;
        let slots = inputs::local_events(configuration);
        let of_unit = (NodeId::builder(queue.number), configuration.run.output.as_path());
        let filters = Filters { configuration, placement };
        let filter = filters.stage(&queue.name(), slots, of_unit, &mut base.watched, archive)?;
        // Before the drive gives up the remaining events.
        let patience = configuration.timeouts.drain.0 / 2;
        Ok(EventOutput::new(sink, slots).with_filter(filter, patience))
    }

    /// Returns how an input queue writes event files; `None` without `[file_based]`.
    fn event_files_config(&self, queue: &InputQueue<'_>) -> Option<EventFilesConfig> {
        let (configuration, name) = (self.configuration, queue.name());
        let own = (configuration.input_queues().count() > 1).then_some(name.as_str());
        event_files_config(configuration, queue.number, &configuration.run.output, own, AcknowledgementLevel::Written)
    }

    /// Creates the sink of its accepted events; `None` if nothing is written.
    fn sink(&self, queue: &InputQueue<'_>) -> Result<Option<Box<dyn EventSink>>, RunError> {
        let name = queue.name();
        let records = |config: &StorageConfig| {
            // Fragments are copied into records. Data on its way to the disk lies here.
            let (block, least) = RECORDS_MEMORY;
            let blocks = least.max((config.batched_bytes() as usize).div_ceil(block) + SPARE_RECORDS);
            let config = PoolConfig::anonymous(&pool_of(&name, Purpose::Records), block, blocks);
            Ok(Staging::new(self.placement.untouched_pool(config)?))
        };
        let configs = (self.storage_config(queue), self.event_files_config(queue));
        sink(self.configuration, &name, configs, &self.placement, records)
    }

    /// Sets up the nodes of this process, on one thread.
    fn nodes(&mut self, part: &SystemPart, places: &Places) -> Result<(), RunError> {
        let farm = Farm {
            section: &self.configuration.farm,
            filter: self.configuration.filter.as_ref(),
            incarnation: self.incarnation,
            gateways: &places.control,
            is_over: &self.running.nodes_are_over,
        };
        let (drives, notices) = farm.nodes(part)?;
        self.running.nodes = notices;
        if !drives.is_empty() {
            self.emulators.push((FARM.to_owned(), drives));
        }
        Ok(())
    }

    /// Sets up the emulated trigger and sources of a flow, on one thread.
    fn sources(&mut self, flow: usize, control: SocketReceiver, places: &Places) -> Result<(), RunError> {
        let section = &self.configuration.flow[flow];
        let (Some((sources, rate)), Some(gate)) = (inputs::sources(section), self.gates[flow].clone()) else {
            return Ok(());
        };
        let name = sources_thread(section);
        let mut senders = Vec::new();
        for number in 0..u32::from(section.sources.count) {
            let Some(address) = section.sources.address.of(number) else { continue };
            let address = SocketAddrV4::new(address.ip, address.port);
            let config = SendConfig { batch: SOURCE_BATCH, ..SendConfig::new(carrier(section), address) };
            // From the heap: there may be hundreds, and a separate mapping takes the system a millisecond.
            let (block, blocks) = SOURCE_MEMORY;
            let staging = Staging::new(Pool::new_untouched(PoolConfig::heap(&name, block, blocks))?);
            senders.push(SocketSender::new(config, staging).map_err(packet_error(&name))?);
        }
        let gateways = places.listen.iter().map(|flows| flows[flow]).collect();
        let trigger = inputs::trigger(self.configuration);
        let config = PacketSourceDriveConfig { sources, trigger, rate, gateways, gate };
        let drive = PacketSourceDrive::new(config, control, senders);
        let source = FlowSource { flow, notice: drive.notice() };
        self.running.sources.push(source);
        self.emulators.push((name, vec![DriveWithPage::new(Box::new(drive), None)]));
        Ok(())
    }
}

/// Creates a socket for a gateway's messages to triggers.
fn trigger_sender(name: &str) -> Result<SocketSender, RunError> {
    let staging = Staging::new(pool(&format!("{name}-triggers"), CONTROL_MEMORY)?);
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    SocketSender::new(SendConfig::new(Flow::Udp, any), staging).map_err(packet_error(name))
}
