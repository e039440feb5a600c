//! How each machine is wired into a run, and what must hold of it: event managers, readout and builder units here; front ends,
//! cards, subscribers and filter nodes in a file each.

mod card;
mod filter_node;
mod front_end;
mod subscriber;

pub(super) use card::{Card, Said};
pub(super) use filter_node::{FilterNode, remote_unit};
pub(super) use front_end::{FrontEnd, How, Made, Record, Stranger};
pub(super) use subscriber::{Got, Journal, Subscriber, Visit};

use super::endpoints::{Endpoints, Surroundings};
use super::fault::Place;
use super::filters::Board;
use super::node::{Machine, disk_of};
use super::reign::{Line, SharedService};
use super::runner::{Broken, ensure};
use super::scenario::{End, Managers, Scenario};
use ropewalk_engine::{
    BuilderDrive, BuilderDriveConfig, CoordinatedRun, Drive, EventFiles, EventSink, Identity, ManagerDrive,
    ManagerDriveConfig, ReadoutDrive, ReadoutDriveConfig, StandbyDrive, Storage, StorageConfig, StreamStorage,
};
use ropewalk_flow::builder::{BuilderConfig, BuilderSource};
use ropewalk_flow::manager::{ManagerConfig, ManagerState};
use ropewalk_flow::readout::{Format, ReadoutConfig, SourceConfig};
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::simulated::{Network, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_terms::{
    AcknowledgementLevel, Epoch, EventKey, Incarnation, Instant, NodeId, PoolAccount, RunNumber, Utc,
};
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};

/// A machine has its turns by the drive that is in it.
macro_rules! turned_by {
    ($machine:ty, $drive:ident, $drive_mut:ident) => {
        impl ropewalk_engine::Drive for $machine {
            fn turn(&mut self, now: Instant) -> usize {
                self.$drive_mut().turn(now)
            }

            fn next_deadline(&self) -> Option<Instant> {
                self.$drive().next_deadline()
            }

            fn prepare_wait(&mut self) -> bool {
                self.$drive_mut().prepare_wait()
            }

            fn wait_descriptors<'a>(&'a self, into: &mut Vec<std::os::fd::BorrowedFd<'a>>) {
                self.$drive().wait_descriptors(into);
            }

            fn is_done(&self) -> bool {
                self.$drive().is_done()
            }

            fn refusal(&self) -> Option<&ropewalk_engine::Refusal> {
                self.$drive().refusal()
            }
        }
    };
}
pub(super) use turned_by;

/// All nodes of a run have the same configuration.
const FINGERPRINT: u64 = 7;

/// What machines are wired to.
pub(super) struct Site<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) network: &'a Network,
    /// One for each builder unit.
    pub(super) storages: &'a [SimulatedStorage],
    /// One for each builder unit: what its filter units share.
    pub(super) boards: &'a [Board],
    /// Where event managers have a lease.
    pub(super) coordination: Option<&'a SharedService>,
}

impl Site<'_> {
    /// Endpoints that receive into so many blocks of so many bytes.
    fn endpoints(&self, name: &str, block: usize, blocks: usize, around: &Surroundings) -> Endpoints {
        let config = SimulatedConfig { send_queue_bytes: self.scenario.rooms.send_queue, ..SimulatedConfig::default() };
        Endpoints::new(self.network, config, pool(name, block, blocks), around)
    }

    fn staging(&self, name: &str) -> Staging {
        Staging::new(pool(name, 64 << 10, self.scenario.rooms.staging_blocks))
    }
}

pub(super) fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

/// The identity of a node: its UTC clock numbers its lives, as in the program.
fn identity(node: NodeId, around: &Surroundings) -> Identity {
    let incarnation = Incarnation(around.clock.utc().0.max(1) as u64);
    Identity { node, incarnation, run: RunNumber(0), epoch: Epoch(u32::from(node == NodeId::MANAGER)) }
}

/// The drive on simulated endpoints.
pub(super) enum ManagerMachine {
    /// It needs no lease to speak.
    Free(Box<ManagerDrive<Endpoints>>),
    /// It speaks only while it has the lease.
    Contender(Box<StandbyDrive<Endpoints, Line>>),
}

/// A life of the event manager with this index; one without a lease speaks in `epoch`.
pub(super) fn manager(site: &Site<'_>, around: &Surroundings, index: u16, epoch: Epoch) -> (ManagerMachine, Vec<u32>) {
    let scenario = site.scenario;
    let Scenario { readouts, builders, assign, batch, time_outs, rooms, .. } = *scenario;
    let peers = site.endpoints("manager receives", 4 << 10, rooms.peer_blocks, around);
    let hosts = vec![peers.host()];
    let own = identity(NodeId::MANAGER, around);
    let config = ManagerDriveConfig {
        manager: ManagerConfig {
            capacity: rooms.table,
            policy: assign,
            batch,
            event_timeout: time_outs.manager,
            drain_timeout: time_outs.drain,
            trigger_readout: scenario.trigger.map(|source| scenario.readout_of(source.into())),
            lumisection: scenario.lumisection,
            epoch,
            ..ManagerConfig::new(readouts, builders)
        },
        // Two that are started at one moment are two all the same.
        identity: Identity { epoch, incarnation: Incarnation(own.incarnation.0 + u64::from(index)), ..own },
        fingerprint: FINGERPRINT,
        address: Place::Manager(index).to_string(),
        level: scenario.level,
    };
    let drive = ManagerDrive::new(config, peers, site.staging("manager")).expect("the address is free");
    let machine = match (scenario.managers, site.coordination) {
        (Managers::Standby(lease), Some(service)) => {
            let line = Line::new(service, index, &around.clock);
            ManagerMachine::Contender(Box::new(StandbyDrive::new(drive, lease, line, run_of(scenario))))
        }
        _ => ManagerMachine::Free(Box::new(drive)),
    };
    (machine, hosts)
}

/// The run of a scenario.
pub(super) fn run_of(scenario: &Scenario) -> CoordinatedRun {
    let last = (scenario.end == End::Last).then_some(scenario.key_of(scenario.events));
    CoordinatedRun { run: RunNumber(1), first: EventKey::new(0, 1), last }
}

impl ManagerMachine {
    /// The drive itself.
    pub(super) const fn drive(&self) -> &ManagerDrive<Endpoints> {
        match self {
            Self::Free(drive) => drive,
            Self::Contender(drive) => drive.manager(),
        }
    }

    pub(super) fn drive_mut(&mut self) -> &mut ManagerDrive<Endpoints> {
        match self {
            Self::Free(drive) => drive,
            Self::Contender(drive) => drive.manager_mut(),
        }
    }

    /// The epoch in which it spoke in its last turn.
    pub(super) fn speaks(&self) -> Option<Epoch> {
        self.drive().speaks()
    }

    /// Whether it is the one that speaks now; one that has slept may think so in vain.
    pub(super) fn is_in_charge(&self) -> bool {
        match self {
            Self::Free(drive) => drive.speaks().is_some(),
            Self::Contender(drive) => drive.leads().is_some() && drive.coordination().held() == drive.leads(),
        }
    }

    fn turned(&self) -> &dyn Drive {
        match self {
            Self::Free(drive) => drive.as_ref(),
            Self::Contender(drive) => drive.as_ref(),
        }
    }

    fn turned_mut(&mut self) -> &mut dyn Drive {
        match self {
            Self::Free(drive) => drive.as_mut(),
            Self::Contender(drive) => drive.as_mut(),
        }
    }
}

turned_by!(ManagerMachine, turned, turned_mut);

impl Machine for ManagerMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        self.drive_mut().pools()
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        if let Self::Contender(drive) = self
            && let Some(epoch) = drive.leads()
        {
            let held = drive.coordination().held();
            ensure!(Epochs, held == Some(epoch); "it speaks in epoch {epoch}, and the lease that it has is {held:?}")?;
        }
        let machine = self.drive().machine();
        let account = machine.account();
        ensure!(Ledger, account.assigned == account.accounted();
            "events assigned are not those ended and in flight: {account:?}")?;
        let is_open =
            matches!(machine.state(), ManagerState::Running | ManagerState::Stopping | ManagerState::Draining);
        let (oldest, closed_below) = machine.oldest();
        ensure!(Keys, !is_open || closed_below <= oldest;
            "a lumisection is over up to {closed_below}, and {oldest} is not released")?;
        for builder in 0..scenario.builders {
            let (events, _) = machine.free_credit(builder);
            ensure!(Credits, events <= u64::from(scenario.rooms.slots);
                "bu{builder} can be given {events} events and has {} slots", scenario.rooms.slots)?;
        }
        ensure!(Bounds, account.in_flight <= u64::from(scenario.rooms.table);
            "{} events are in flight", account.in_flight)
    }
}

/// The drive on simulated endpoints.
pub(super) type ReadoutMachine = ReadoutDrive<Endpoints, Endpoints>;

/// A life of the readout unit with this index.
pub(super) fn readout(site: &Site<'_>, around: &Surroundings, index: u16) -> (ReadoutMachine, Vec<u32>) {
    let Scenario { builders, time_outs, rooms, report_interval, .. } = *site.scenario;
    let scenario = site.scenario;
    let mine = (0..scenario.sources.len()).filter(|&source| scenario.readout_of(source) == index);
    let source = |source| match scenario.card_of(source) {
        Some((card, link)) => {
            let bits = scenario.cards[card].rule_of(link).bits().expect("the rules of scenarios are rules");
            SourceConfig::of_card(scenario.source_id(source), bits)
        }
        None => SourceConfig::new(scenario.source_id(source), scenario.sources[source]),
    };
    let begins_anywhere = |source| SourceConfig { begins_anywhere: true, ..source };
    let sources: Vec<SourceConfig> = mine.map(source).map(begins_anywhere).collect();
    let blocks = rooms.blocks_each * sources.len();
    let front_ends = site.endpoints("front ends", rooms.block_bytes, blocks, around).for_front_ends();
    let peers = site.endpoints("readout receives", 4 << 10, rooms.peer_blocks, around);
    let hosts = vec![front_ends.host(), peers.host()];
    let node = NodeId::readout(index);
    let trigger = scenario.trigger.map(usize::from);
    let is_mine = trigger.is_some_and(|source| scenario.readout_of(source) == index);
    let config = ReadoutDriveConfig {
        readout: ReadoutConfig {
            builders,
            is_alone: scenario.readout_of(scenario.sources.len() - 1) == 0,
            window: rooms.window,
            capacity: rooms.capacity,
            source_timeout: time_outs.source,
            resync_timeout: time_outs.source * 2,
            trigger: trigger.filter(|_| is_mine).map(|source| scenario.source_id(source)),
            trigger_elsewhere: trigger.is_some() && !is_mine,
            ..ReadoutConfig::new(index, sources)
        },
        identity: identity(node, around),
        name: node.to_string(),
        fingerprint: FINGERPRINT,
        descriptions: Vec::new(),
        listen: listen_address(index),
        address: node.to_string(),
        managers: scenario.manager_places().map(|place| place.to_string()).collect(),
        builders,
        report_interval,
    };
    let evacuation = Staging::new(pool("evacuation", 16 << 10, 16));
    let drive = ReadoutDrive::new(config, front_ends, peers, site.staging("readout"), evacuation);
    (drive.expect("the addresses are free"), hosts)
}

/// Where front ends connect to.
fn listen_address(index: u16) -> String {
    format!("{} front ends", NodeId::readout(index))
}

impl Machine for ReadoutMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Self::pools(self)
    }

    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        Self::obeyed(self)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let (machine, capacity) = (self.machine(), scenario.rooms.capacity.next_power_of_two() as usize);
        for source in 0..scenario.sources_each() {
            let account = machine.account(source);
            ensure!(Ledger, account.received == account.accounted();
                "source {source} of it: fragments received are not accounted for: {account:?}")?;
        }
        for (served, absent) in self.served() {
            ensure!(Bounds, absent == 0; "{absent} subscribers of its card are kept whose connections are gone")?;
            let all = served.subscribers;
            ensure!(Ledger, all.is_balanced(); "chunks for subscribers are not accounted for: {all:?}")?;
        }
        let window = u64::from(scenario.rooms.window);
        ensure!(Bounds, machine.lead() <= window;
            "a source was read {} events past the oldest one, {window} are allowed", machine.lead())?;
        ensure!(Bounds, machine.held() <= capacity; "{} events are held, {capacity} are allowed", machine.held())
    }
}

/// The drive on simulated endpoints and a simulated disk.
pub(super) type BuilderMachine = BuilderDrive<Endpoints>;

/// A life of the builder unit with this index.
pub(super) fn builder(site: &Site<'_>, around: &Surroundings, index: u16) -> (BuilderMachine, Vec<u32>) {
    let scenario = site.scenario;
    let node = NodeId::builder(index);
    let peers = site.endpoints("builder receives", 16 << 10, scenario.rooms.peer_blocks, around);
    let mut hosts = vec![peers.host()];
    let identity = identity(node, around);
    let config = BuilderDriveConfig {
        builder: machine_config(scenario, index),
        identity,
        name: node.to_string(),
        fingerprint: FINGERPRINT,
        managers: scenario.manager_places().map(|place| place.to_string()).collect(),
        readouts: (0..scenario.readouts).map(|index| NodeId::readout(index).to_string()).collect(),
        report_interval: scenario.report_interval,
    };
    let entry = |(index, format): (usize, &Format)| {
        let id = scenario.source_id(index);
        let format = if *format == Format::Ferol { SourceFormat::FED } else { SourceFormat::GENERIC };
        SourceEntry { id, format, name: format!("source-{id}") }
    };
    let disk = disk_of(&site.storages[usize::from(index)], &around.clock);
    let utc = around.clock.utc().0.saturating_sub_unsigned(around.clock.now().as_nanoseconds());
    let storage = StorageConfig {
        epoch: Utc(utc),
        sources: scenario.sources.iter().enumerate().map(entry).collect(),
        streams: streams(scenario),
        level: scenario.level,
        sync_batches: scenario.level == AcknowledgementLevel::Synced,
        segment_bytes: 64 << 10,
        batch_bytes: 16 << 10,
        segment_events: scenario.rooms.segment_events,
        give_up_after: scenario.time_outs.drain / 2,
        ..StorageConfig::new(node, "/data")
    };
    let records = site.staging("records");
    let sink: Box<dyn EventSink> = match scenario.event_files {
        None => Box::new(Storage::new(disk, storage, records)),
        Some(limits) => Box::new(EventFiles::new(disk, limits.config(scenario, index), records)),
    };
    let drive = BuilderDrive::new(config, peers, Some(sink), site.staging("builder")).expect("no address is wrong");
    let drive = match &scenario.filters {
        None => drive,
        Some(filters) => {
            let filter = filters.filter(site, around, index, &mut hosts);
            drive.with_filter(filter, scenario.time_outs.drain / 2)
        }
    };
    (drive, hosts)
}

/// The streams that accepted events are written to.
fn streams(scenario: &Scenario) -> Vec<StreamStorage> {
    let Some(filters) = &scenario.filters else { return vec![StreamStorage::default()] };
    let stream = |name| StreamStorage { name, selected: true, ..StreamStorage::default() };
    filters.streams().names().map(stream).collect()
}

fn machine_config(scenario: &Scenario, index: u16) -> BuilderConfig {
    let sources = (0..scenario.sources.len()).map(|source| BuilderSource {
        bunch_crossing_mask: if scenario.sources[source] == Format::Ferol { 0xfff } else { 0 },
        ..BuilderSource::new(scenario.source_id(source), scenario.readout_of(source))
    });
    BuilderConfig {
        slots: scenario.rooms.slots,
        table: scenario.rooms.table,
        credit_bytes: scenario.rooms.credit_bytes,
        event_timeout: scenario.time_outs.builder,
        incomplete: scenario.incomplete,
        level: scenario.level,
        check_bunch_crossing: scenario.bunch_crossings,
        ..BuilderConfig::new(index, scenario.readouts, sources.collect())
    }
}

impl Machine for BuilderMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Self::pools(self)
    }

    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        Self::obeyed(self)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let account = self.machine().account();
        ensure!(Ledger, account.assigned == account.accounted();
            "events assigned are not those ended and in flight: {account:?}")?;
        let misplaced = self.machine().misplaced().filter(|_| scenario.managers == Managers::Alone);
        ensure!(Keys, misplaced.is_none(); "{misplaced:?} is taken for an event of another lumisection")?;
        ensure!(Bounds, self.machine().in_work() <= scenario.rooms.slots as usize;
            "{} events are in work, {} are allowed", self.machine().in_work(), scenario.rooms.slots)
    }
}
