//! The nodes of a run and the clock that turns them.

use super::coordination::Contender;
use super::filtering::{Watch, Watched};
use super::front_end::{FrontEnd, mixed};
use super::limits::slow_filter;
use super::referee::Held;
use ropewalk_engine::{
    BuilderDrive, BuilderDriveConfig, Drive, Identity, ManagerDrive, ManagerDriveConfig, RESULT_BYTES, ReadoutDrive,
    ReadoutDriveConfig, RunSnapshot, Storage, StorageConfig,
};
use ropewalk_flow::builder::{BuilderConfig, BuilderSource};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::manager::{AssignPolicy, ManagerConfig};
use ropewalk_flow::readout::{Format, ReadoutConfig, SourceConfig};
use ropewalk_io::Endpoint;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_terms::{AcknowledgementLevel, Epoch, EventKey, Incarnation, Instant, NodeId, RunNumber, SourceId, Utc};
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};
use std::time::Duration;

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) readouts: u16,
    pub(crate) builders: u16,
    /// Of each readout unit.
    pub(crate) sources: u16,
    pub(crate) events: u64,
    pub(crate) network: Faults,
    pub(crate) disk: DiskFaults,
    /// Events are acknowledged when they are synced, not already when they are written.
    pub(crate) synced: bool,
    /// Who looks where builder units receive, and where a filter of theirs sees it.
    pub(crate) watch: Option<Watch>,
    /// Otherwise a filter unit of each builder unit that takes so long for an event.
    pub(crate) slow_filter: Option<Duration>,
    /// Events that a builder unit has in work at most.
    pub(crate) slots: u32,
}

impl Plan {
    /// Two readout units of two sources each, two builder units, 150 events, nothing goes wrong.
    pub(crate) fn new(seed: u64) -> Self {
        let (network, disk) = (Faults::default(), DiskFaults::default());
        Self {
            seed,
            readouts: 2,
            builders: 2,
            sources: 2,
            events: 150,
            network,
            disk,
            synced: false,
            watch: None,
            slow_filter: None,
            slots: 32,
        }
    }

    pub(crate) fn all_sources(&self) -> Vec<SourceId> {
        (0..u32::from(self.readouts * self.sources)).map(|index| SourceId(100 + index)).collect()
    }
}

type Readout = ReadoutDrive<Simulated, Simulated>;
type Builder = BuilderDrive<Watched>;

/// A node and its places on the network.
pub(crate) struct Placed<N> {
    pub(crate) node: N,
    /// Its place among the nodes.
    pub(crate) host: u32,
}

/// A run in virtual time.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) network: Network,
    pub(crate) storage: SimulatedStorage,
    clock: SimulatedClock,
    pub(crate) front_ends: Vec<FrontEnd>,
    pub(crate) readouts: Vec<Placed<Readout>>,
    pub(crate) manager: Placed<ManagerDrive<Simulated>>,
    /// Another one, of an earlier epoch, that does not know it.
    pub(crate) earlier: Option<Placed<ManagerDrive<Simulated>>>,
    /// Event managers of which one has the lease.
    pub(crate) contenders: Vec<Contender>,
    pub(crate) builders: Vec<Option<Placed<Builder>>>,
    /// Mixed from every turn: equal for equal histories.
    pub(crate) trace: u64,
}

/// A run that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(120);
/// Rounds of turns without time going on; more means that nodes keep each other busy for nothing.
const MOST_ROUNDS: u32 = 20_000;
/// A disk that refuses for so long while the run drains is given up; half of the time-out of draining.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(15);
/// Where nodes call an event manager.
pub(crate) const MANAGERS: [&str; 2] = ["manager", "other manager"];
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block, blocks)).expect("memory for a small pool")
}

fn staging(name: &str) -> Staging {
    Staging::new(pool(name, 64 << 10, 8))
}

fn identity(node: NodeId, incarnation: u64) -> Identity {
    Identity { node, incarnation: Incarnation(incarnation), run: RunNumber(0), epoch: Epoch(0) }
}

impl World {
    /// All nodes and front ends, and the command to start; nobody has had a turn yet.
    pub(crate) fn new(plan: Plan) -> Self {
        eprintln!("seed {}", plan.seed);
        let network = Network::new(plan.seed, plan.network.clone());
        let storage = SimulatedStorage::new(plan.seed, plan.disk.clone());
        let readouts: Vec<_> = (0..plan.readouts).map(|index| readout(&plan, &network, index)).collect();
        let front_ends = plan.all_sources().into_iter().enumerate().map(|(index, source)| {
            let address = readouts[index / usize::from(plan.sources)].node.source_address();
            FrontEnd::new(&network, &address, source, plan.seed, plan.events)
        });
        let mut world = Self {
            clock: SimulatedClock::new(Utc(1_700_000_000_000_000_000)),
            front_ends: front_ends.collect(),
            readouts,
            manager: manager(&plan, &network, MANAGERS[0], 1),
            earlier: None,
            contenders: Vec::new(),
            builders: Vec::new(),
            trace: 0,
            plan,
            network,
            storage,
        };
        world.builders = (0..world.plan.builders).map(|index| Some(world.builder(index, 1))).collect();
        let last = Some(EventKey::new(0, world.plan.events));
        let start = RunCommand::Start { run: RunNumber(1), first: EventKey::new(0, 1), last };
        world.manager.node.command(Instant::ZERO, start);
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A builder unit of this life.
    fn builder(&self, index: u16, incarnation: u64) -> Placed<Builder> {
        let node = NodeId::builder(index);
        let inner = self.network.dispatcher(SimulatedConfig::default(), pool("builder receives", 16 << 10, 128));
        let host = inner.host();
        let watch = self.plan.watch.clone();
        let slots = self.plan.slots;
        let results = || Staging::new(pool("results", RESULT_BYTES.next_multiple_of(4096), slots as usize + 1));
        let slow = self.plan.slow_filter.map(|time| slow_filter(time, slots, results()));
        let filtering = watch.as_ref().map(|watch| watch.filtering(self.plan.seed, slots)).or(slow);
        let peers = Watched { inner, watch };
        let config = BuilderDriveConfig {
            builder: builder_config(&self.plan, index),
            identity: identity(node, incarnation),
            name: node.to_string(),
            fingerprint: 7,
            managers: MANAGERS.map(str::to_owned).into(),
            readouts: (0..self.plan.readouts).map(|index| NodeId::readout(index).to_string()).collect(),
            report_interval: REPORT_INTERVAL,
        };
        let source = |id| SourceEntry { id, format: SourceFormat::FED, name: format!("source-{id}") };
        let storage = StorageConfig {
            epoch: self.clock.utc(),
            sources: self.plan.all_sources().into_iter().map(source).collect(),
            level: config.builder.level,
            sync_batches: self.plan.synced,
            segment_bytes: 64 << 10,
            batch_bytes: 16 << 10,
            segment_events: 40,
            give_up_after: GIVE_UP_AFTER,
            ..StorageConfig::new(node, "/data")
        };
        let disk = self.storage.disk(SimulatedDiskConfig::default(), self.clock.clone());
        let storage = Storage::new(disk, storage, staging("records"));
        let node =
            BuilderDrive::new(config, peers, Some(Box::new(storage)), staging("builder")).expect("no address is wrong");
        let node = match filtering {
            Some(filtering) => node.with_filtering(filtering, GIVE_UP_AFTER),
            None => node,
        };
        Placed { node, host }
    }

    /// A builder unit's process dies: what it had queued is lost, its connections break.
    pub(crate) fn kill_builder(&mut self, index: usize) {
        self.builders[index] = None;
    }

    /// It is started again.
    pub(crate) fn start_builder(&mut self, index: u16, incarnation: u64) {
        self.builders[usize::from(index)] = Some(self.builder(index, incarnation));
    }

    /// Takes the event manager out: dropped, it is killed; kept, it stands still. Until there is another one nobody
    /// listens where the nodes call.
    pub(crate) fn take_manager_out(&mut self) -> Placed<ManagerDrive<Simulated>> {
        let nobody = manager(&self.plan, &self.network, "nowhere", 1);
        std::mem::replace(&mut self.manager, nobody)
    }

    /// An event manager of this epoch takes the run over.
    pub(crate) fn take_over(&mut self, address: &str, epoch: u32, last: Option<u64>) {
        self.manager = manager(&self.plan, &self.network, address, epoch);
        let (first, last) = (EventKey::new(0, 1), last.map(|last| EventKey::new(0, last)));
        let take_over = RunCommand::TakeOver { run: RunNumber(1), first, last };
        self.manager.node.command(self.clock.now(), take_over);
    }

    /// Breaks every connection of a host.
    pub(crate) fn reset_connections_of(&self, host: u32) {
        for (index, generation) in (0..16).flat_map(|index| (0..16).map(move |generation| (index, generation))) {
            self.network.reset(host, Endpoint::new(index, generation));
        }
    }

    /// Events that are acknowledged: the files hold them.
    pub(crate) fn written(&self) -> u64 {
        let account = self.manager.node.machine().account();
        account.built + account.incomplete_emitted
    }

    fn turn(&mut self) -> usize {
        let now = self.now();
        let mut work = 0;
        for front_end in &mut self.front_ends {
            work += front_end.turn(now);
        }
        for readout in &mut self.readouts {
            work += readout.node.turn(now);
        }
        work += self.manager.node.turn(now);
        if let Some(earlier) = self.earlier.as_mut().filter(|earlier| !earlier.node.is_done()) {
            work += earlier.node.turn(now);
        }
        for contender in self.contenders.iter_mut().filter(|one| !one.asleep && !one.drive.is_done()) {
            work += contender.drive.turn(now);
        }
        for builder in self.builders.iter_mut().flatten() {
            work += builder.node.turn(now);
        }
        self.trace = mixed(self.trace, now.as_nanoseconds(), work as u64);
        work
    }

    /// Turns everybody until nobody has work, then moves the clock to when somebody has.
    pub(crate) fn step(&mut self) {
        let mut rounds = 0;
        while self.turn() > 0 {
            rounds += 1;
            assert!(rounds < MOST_ROUNDS, "nodes do not come to rest: {}", self.described());
        }
        let now = self.now();
        let readouts = self.readouts.iter().filter(|one| !one.node.is_done()).map(|one| one.node.next_deadline());
        let builders = self.builders.iter().flatten().filter(|one| !one.node.is_done());
        let next = readouts
            .chain(builders.map(|one| one.node.next_deadline()))
            .chain([self.manager.node.next_deadline()])
            .chain(
                self.contenders
                    .iter()
                    .filter(|one| !one.asleep && !one.drive.is_done())
                    .map(|one| one.drive.next_deadline()),
            )
            .chain(self.earlier.iter().filter(|one| !one.node.is_done()).map(|one| one.node.next_deadline()))
            .chain(self.front_ends.iter().map(|one| one.next_deadline(now)))
            .flatten()
            .min();
        // A deadline that is over means a turn at once; in this world that is a microsecond later.
        self.clock.set(next.unwrap_or(now).max(now.after(Duration::from_micros(1))));
    }

    /// Goes on until this is so.
    pub(crate) fn run_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            assert!(self.now().since(Instant::ZERO) < LONGEST, "waiting for {what}: {}", self.described());
            self.step();
        }
    }

    /// Goes on for this long.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now().after(duration);
        self.run_until("the time to pass", |world| world.now() >= end);
    }

    /// Goes on until so many events are released.
    pub(crate) fn run_until_written(&mut self, events: u64) {
        self.run_until("events to be written", |world| {
            assert!(!world.manager.node.phase().is_final(), "the run ended after {} events", world.written());
            world.written() >= events
        });
    }

    /// Goes on until every node has ended in order.
    pub(crate) fn run_to_end(&mut self) {
        self.run_until("the end of the run", |world| {
            world.manager.node.is_done()
                && world.readouts.iter().all(|one| one.node.is_done())
                && world.builders.iter().flatten().all(|one| one.node.is_done())
        });
    }

    pub(crate) fn snapshot(&mut self) -> RunSnapshot {
        RunSnapshot::of(self.manager.node.standing())
    }

    pub(crate) fn described(&mut self) -> String {
        let snapshot = self.snapshot();
        let next: Vec<u64> = self.front_ends.iter().map(|one| one.next).collect();
        let (fragments, events) = (snapshot.ledger.fragments, snapshot.ledger.events);
        let dropped: Vec<_> = fragments.dropped.iter().chain(events.incomplete_dropped.iter()).collect();
        format!(
            "seed {}, at {} us, front ends are at {next:?}, phase {:?}, nodes {:?}, files {:?}, \
             {} fragments received, {} complete, {} not, {} late, {} in flight, \
             {} events assigned, {} built, {} incomplete, {} in flight, dropped {dropped:?}, pools {:?}",
            self.plan.seed,
            self.now().as_nanoseconds() / 1000,
            snapshot.phase,
            snapshot.nodes.iter().map(|(node, connected)| format!("{node} {connected}")).collect::<Vec<_>>(),
            self.storage.paths(),
            fragments.received,
            fragments.in_complete_events,
            fragments.in_incomplete_events,
            fragments.late,
            fragments.in_flight,
            events.assigned,
            events.built,
            events.incomplete_emitted,
            events.in_flight,
            snapshot.ledger.pools,
        )
    }

    /// The run is over: the ledger balances, and every block of every pool is back, but for those that are being
    /// filled: one for what is staged, or one for each connection that still stands.
    pub(crate) fn expect_in_order(&mut self) -> RunSnapshot {
        let snapshot = self.snapshot();
        let ledger = &snapshot.ledger;
        assert_eq!(ledger.imbalances(), [], "{}", self.described());
        assert_eq!((ledger.fragments.in_flight, ledger.events.in_flight), (0, 0), "{}", self.described());
        let readouts = self.readouts.iter_mut().flat_map(|one| one.node.pools());
        let pools = readouts.chain(self.manager.node.pools());
        let pools = pools.chain(self.builders.iter_mut().flatten().flat_map(|one| one.node.pools()));
        let connections = u64::from(self.plan.readouts.max(self.plan.builders));
        for (index, pool) in pools.enumerate() {
            assert!(pool.held <= connections, "pool {index} has {} blocks out", pool.held);
            assert_eq!(pool.loans, pool.returned + pool.held);
        }
        snapshot
    }

    /// As [`World::expect_in_order`], and nothing is lost: the files hold every event with every fragment, and the
    /// account says so.
    pub(crate) fn expect_lossless(&mut self) -> Held {
        let snapshot = self.expect_in_order();
        let (events, sources) = (self.plan.events, self.plan.all_sources());
        let held = Held::in_storage(&self.storage, self.plan.seed);
        held.expect_all(events, &sources);
        for &source in &sources {
            assert_eq!(held.missing(source), [].into(), "source {source}");
        }
        let ledger = &snapshot.ledger;
        assert_eq!((ledger.events.built, ledger.events.incomplete_emitted), (events, 0));
        assert_eq!(ledger.events.written, events);
        assert_eq!(ledger.fragments.lost(), 0, "{}", self.described());
        held
    }
}

pub(crate) fn manager(plan: &Plan, network: &Network, address: &str, epoch: u32) -> Placed<ManagerDrive<Simulated>> {
    let peers = network.dispatcher(SimulatedConfig::default(), pool("manager receives", 4 << 10, 64));
    let host = peers.host();
    let config = ManagerDriveConfig {
        manager: ManagerConfig {
            capacity: 256,
            policy: AssignPolicy::RoundRobin,
            batch: 8,
            event_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
            epoch: Epoch(epoch),
            ..ManagerConfig::new(plan.readouts, plan.builders)
        },
        identity: Identity { epoch: Epoch(epoch), ..identity(NodeId::MANAGER, 1) },
        fingerprint: 7,
        address: address.to_owned(),
        level: level(plan),
    };
    Placed { node: ManagerDrive::new(config, peers, staging("manager")).expect("the address is free"), host }
}

fn readout(plan: &Plan, network: &Network, index: u16) -> Placed<Readout> {
    let name = NodeId::readout(index).to_string();
    let mine = plan.all_sources().into_iter().skip(usize::from(index * plan.sources)).take(plan.sources.into());
    let sources: Vec<SourceConfig> = mine.map(|id| SourceConfig::new(id, Format::Ferol)).collect();
    let receive = pool("front ends", 4 << 10, 26 * sources.len());
    let peers = network.dispatcher(SimulatedConfig::default(), pool("readout receives", 4 << 10, 64));
    let host = peers.host();
    let config = ReadoutDriveConfig {
        readout: ReadoutConfig {
            builders: plan.builders,
            window: 64,
            capacity: 128,
            source_timeout: Duration::from_secs(1),
            resync_timeout: Duration::from_secs(2),
            ..ReadoutConfig::new(index, sources)
        },
        identity: identity(NodeId::readout(index), 1),
        name: name.clone(),
        fingerprint: 7,
        descriptions: Vec::new(),
        listen: format!("{name} front ends"),
        address: name,
        managers: MANAGERS.map(str::to_owned).into(),
        builders: plan.builders,
        report_interval: REPORT_INTERVAL,
    };
    let front_ends = network.dispatcher(SimulatedConfig::default(), receive);
    let evacuation = Staging::new(pool("evacuation", 8 << 10, 16));
    let node =
        ReadoutDrive::new(config, front_ends, peers, staging("readout"), evacuation).expect("the addresses are free");
    Placed { node, host }
}

fn level(plan: &Plan) -> AcknowledgementLevel {
    if plan.synced { AcknowledgementLevel::Synced } else { AcknowledgementLevel::Written }
}

fn builder_config(plan: &Plan, index: u16) -> BuilderConfig {
    let sources = plan
        .all_sources()
        .into_iter()
        .enumerate()
        .map(|(place, id)| BuilderSource::new(id, place as u16 / plan.sources));
    BuilderConfig {
        slots: plan.slots,
        table: 256,
        credit_bytes: 512 << 10,
        event_timeout: Duration::from_secs(3),
        level: level(plan),
        ..BuilderConfig::new(index, plan.readouts, sources.collect())
    }
}
