//! Placement of threads and pools by the rules of a configuration, and the number of file descriptors of a process.

use super::error::{PlacementError, RunError};
use ropewalk_config::{
    Architecture, Configuration, Fault, FlowSection, GatewaySection, InputQueue, PlacementChoice, ReadoutSection,
    ReceiveChoice, SourceInput, SourceSection,
};
use ropewalk_engine::{MOST_STRANGERS, MOST_UNKNOWN};
use ropewalk_host::{
    Capability, CpuList, Decision, Feed, Item, Kind, Machine, Placement, Plan, PlanError, Policy, Scheduling,
};
use ropewalk_io::thread;
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Lock, Pool, PoolConfig, PoolError, PoolReport};
use ropewalk_terms::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The event manager's thread, and the beginning of its pools' names.
pub(crate) const MANAGER: &str = "manager";
/// The thread and the pool of emulated and recorded sources.
pub(super) const SOURCES: &str = "sources";
/// The thread that communicates with front ends under run control, and the beginning of its pools' names.
pub(super) const FRONT_ENDS: &str = "front-ends";
/// The pool for receiving on connections where sources get no data.
pub(super) const SOURCES_RECEIVE: &str = "sources-receive";
/// The thread of all units, if they share one.
pub(super) const SHARED_THREAD: &str = "units";

/// The thread of all emulated nodes of a farm.
pub(super) const FARM: &str = "farm";
/// The thread that divides a run of gateways into lumisections.
pub(super) const LUMISECTIONS: &str = "lumisections";
/// The thread that stores the filters' counts.
pub(super) const HISTOGRAMS: &str = "histograms";
/// Returns the thread that writes a builder unit's files.
pub(super) fn disk_thread(builder: &str) -> String {
    format!("{builder}-disk")
}

/// Returns the thread that receives the packets of an input queue, if its gateway has two threads for each queue.
pub(super) fn receiving_thread(queue: &str) -> String {
    format!("{queue}-receive")
}

/// Returns the thread that sends the events of such an input queue.
pub(super) fn sending_thread(queue: &str) -> String {
    format!("{queue}-send")
}

/// Returns the thread of a flow's emulated trigger and sources.
pub(super) fn sources_thread(flow: &FlowSection) -> String {
    format!("sources-{}", flow.name)
}

/// Returns the threads that receive the packets of a gateway, one for each of its input queues.
pub fn receiving_threads(gateway: &GatewaySection) -> Vec<String> {
    let name = |index| InputQueue { gateway, number: index, index }.name();
    let thread = |name: String| match gateway.architecture {
        Architecture::RunToCompletion => name,
        Architecture::Threads => receiving_thread(&name),
    };
    (0..gateway.queues).map(name).map(thread).collect()
}

/// Returns the pool for a flow's packets that arrive at an input queue through a socket.
pub(super) fn packets_pool(queue: &InputQueue<'_>, flow: &FlowSection) -> String {
    format!("{}-{}-packets", queue.name(), flow.name)
}

/// Returns the pool of a unit for one purpose.
pub(super) fn pool_of(unit: &str, purpose: Purpose) -> String {
    let purpose = match purpose {
        Purpose::Fragments => "fragments",
        Purpose::Evacuation => "evacuation",
        Purpose::Records => "records",
        Purpose::Received => "received",
        Purpose::Staging => "staging",
        Purpose::Control => "control",
        Purpose::Ring => "ring",
        Purpose::Subscribers => "subscribers",
        Purpose::Datagrams => "datagrams",
        Purpose::Results => "results",
    };
    format!("{unit}-{purpose}")
}

/// The purpose of a pool; see the table above.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Fragments,
    Evacuation,
    Records,
    Received,
    Staging,
    Control,
    Ring,
    Subscribers,
    Datagrams,
    Results,
}

/// The part of a run that a process is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    /// The whole run.
    Whole,
    /// The readout unit that listens at this address, perhaps with others on its machine.
    Readout(&'a str),
    /// The event manager or a builder unit.
    Other,
}

impl<'a> Part<'a> {
    /// Returns the part of a node's process.
    pub(super) fn of(configuration: &'a Configuration, role: Role, index: u16) -> Self {
        match role {
            Role::Readout => Self::Readout(&configuration.readout[usize::from(index)].address),
            Role::Manager | Role::Builder | Role::Source => Self::Other,
        }
    }
}

/// Returns the placement of each thread and pool of a single-process run on this machine, with the reasons.
///
/// # Errors
/// If a rule names CPUs or a node that do not exist, or that this process may not use, and if a readout unit names a
/// card that does not exist.
pub fn placement(configuration: &Configuration) -> Result<Plan, PlacementError> {
    Wanted::here(configuration, Part::Whole).map(|wanted| wanted.plan)
}

/// Returns the placement of a run whose nodes are separate processes, as seen by the process of one node.
///
/// # Errors
/// As [`placement`].
pub fn placement_of_node(configuration: &Configuration, role: Role, index: u16) -> Result<Plan, PlacementError> {
    Wanted::here(configuration, Part::of(configuration, role, index)).map(|wanted| wanted.plan)
}

/// Returns the placement as [`placement`] does, for another machine.
///
/// # Errors
/// As [`placement`].
pub fn placement_on(configuration: &Configuration, machine: &Machine) -> Result<Plan, PlacementError> {
    Wanted::new(configuration, machine.clone(), machine.allowed.len(), Part::Whole).map(|wanted| wanted.plan)
}

/// The placement of a process's threads and pools.
pub(super) struct Wanted {
    /// `None` if nothing is configured: the machine is not examined then.
    pub(super) machine: Option<Machine>,
    pub(super) plan: Plan,
    /// Whether all units share one thread: on few cores, because waking another core costs more than taking turns
    /// (paper 1, III-A: run to completion beats producer and consumer). With rules for threads each unit has its own,
    /// because the user wants to place them.
    pub(super) is_shared: bool,
}

impl Wanted {
    /// Determines the placement that the configuration requests on this machine. If it requests nothing, the machine is
    /// not examined.
    pub(super) fn of(configuration: &Configuration, part: Part<'_>) -> Result<Self, PlacementError> {
        if configuration.thread.is_empty() && configuration.pool.is_empty() && !is_automatic(configuration) {
            let is_shared = part == Part::Whole && are_few(configuration, cores());
            return Ok(Self { machine: None, plan: Plan::default(), is_shared });
        }
        Self::here(configuration, part)
    }

    fn here(configuration: &Configuration, part: Part<'_>) -> Result<Self, PlacementError> {
        Self::new(configuration, Machine::read(Path::new("/"))?, cores(), part)
    }

    fn new(
        configuration: &Configuration,
        machine: Machine,
        mut cores: usize,
        part: Part<'_>,
    ) -> Result<Self, PlacementError> {
        if is_automatic(configuration) {
            // The system does not count isolated CPUs; the layout runs readers there.
            cores += machine.permitted.without(&machine.allowed).len();
        }
        let is_shared = part == Part::Whole && are_few(configuration, cores) && configuration.thread.is_empty();
        let policy: Policy = ropewalk_config::policy(configuration).map_err(PlacementError::Unfit)?;
        let items = items(configuration, part, is_shared);
        let plan = policy.plan(&machine, &items);
        let mut plan = plan.map_err(|error| PlacementError::Unfit(fault(configuration, &error)))?;
        if part == Part::Whole {
            // They were planned all the same: a rule for them is not an error in a configuration that nodes read too.
            let absent = between_nodes(configuration);
            plan.placements.retain(|one| one.kind == Kind::Thread || !absent.contains(&one.name));
        }
        Ok(Self { machine: Some(machine), plan, is_shared })
    }
}

fn is_automatic(configuration: &Configuration) -> bool {
    configuration.run.placement == PlacementChoice::Auto
}

/// Returns the number of CPUs that this process may use at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns whether there are too few cores for separate threads: one for the sources and one for each unit are needed.
fn are_few(configuration: &Configuration, cores: usize) -> bool {
    cores < 1 + configuration.readout.len() + configuration.builder.len()
}

/// Returns the fault, with the key that requests what the machine cannot provide.
fn fault(configuration: &Configuration, error: &PlanError) -> Fault {
    let mut fault = ropewalk_config::fault_of(error);
    if let PlanError::NoSuchCard { card: missing, .. } = error {
        let readout = configuration.readout.iter().position(|readout| readout.card.as_ref() == Some(missing));
        fault.key = readout.map(|index| format!("readout[{index}].card")).unwrap_or_default();
    }
    fault
}

/// Returns all threads and pools of a run, in whichever process: the placement of one depends on the others.
fn items(configuration: &Configuration, part: Part<'_>, shared: bool) -> Vec<Item> {
    if configuration.has_gateways() {
        return items_of_gateways(configuration);
    }
    let mut items = Vec::new();
    let thread = |name: String, feed: Option<Feed>| Item { kind: Kind::Thread, name, feed };
    let pool = |name: String, feed: Option<Feed>| Item { kind: Kind::Pool, name, feed };
    let feeds = configuration.readout.iter().map(|readout| is_here(readout, part).then(|| feed(readout)));
    let feeds: Vec<Option<Feed>> = feeds.collect();
    if shared {
        items.push(thread(SHARED_THREAD.to_owned(), feeds[0].clone()));
    } else {
        let readouts = configuration.readout.iter().zip(&feeds);
        items.extend(readouts.map(|(readout, feed)| thread(readout.name.clone(), feed.clone())));
        items.push(thread(MANAGER.to_owned(), None));
    }
    for builder in &configuration.builder {
        items.extend((!shared).then(|| thread(builder.name.clone(), None)));
        items.extend(configuration.writes_to_disk().then(|| thread(disk_thread(&builder.name), None)));
    }
    let has_sources = configuration.source.iter().any(SourceSection::is_made_here);
    items.extend(has_sources.then(|| thread(SOURCES.to_owned(), None)));
    let has_front_ends = configuration.source.iter().any(SourceSection::is_under_run_control);
    items.extend(has_front_ends.then(|| thread(FRONT_ENDS.to_owned(), None)));
    items.extend((has_front_ends && configuration.run.write).then(|| thread(disk_thread(FRONT_ENDS), None)));
    let written = configuration.felix.iter().filter(|card| card.emulate.is_some() || card.input.is_some());
    items.extend(written.map(|card| thread(card.name.clone(), None)));

    let fed = configuration.source.iter().filter(|source| source.is_read() && source.emulate.is_none());
    items.extend(fed.map(|source| thread(source.name_or_id(), None)));

    let mut pools = |unit: &str, feed: Option<&Feed>, purposes: &[Purpose]| {
        items.extend(purposes.iter().map(|purpose| pool(pool_of(unit, *purpose), feed.cloned())));
    };
    for (readout, feed) in configuration.readout.iter().zip(&feeds) {
        pools(&readout.name, feed.as_ref(), &[Purpose::Fragments, Purpose::Evacuation, Purpose::Staging]);
    }
    for card in &configuration.felix {
        let purposes = [Purpose::Ring, Purpose::Subscribers, Purpose::Staging];
        pools(&card.name, None, if card.serve.is_some() { &purposes } else { &purposes[..1] });
    }
    for source in configuration.source.iter().filter(|source| source.comes_in_datagrams() && source.emulate.is_none()) {
        pools(&source.name_or_id(), None, &[Purpose::Datagrams]);
    }
    pools(MANAGER, None, &[Purpose::Staging]);
    if has_front_ends {
        let purposes = [Purpose::Control, Purpose::Staging, Purpose::Records];
        pools(FRONT_ENDS, None, if configuration.run.write { &purposes } else { &purposes[..2] });
    }
    for builder in &configuration.builder {
        let purposes = [Purpose::Records, Purpose::Staging];
        pools(&builder.name, None, if configuration.run.write { &purposes } else { &purposes[1..] });
        if configuration.filter.is_some() {
            pools(&builder.name, None, &[Purpose::Results]);
        }
    }
    items.extend(between_nodes(configuration).into_iter().map(|name| pool(name, None)));
    if has_sources {
        items.extend([SOURCES, SOURCES_RECEIVE].map(|name| pool(name.to_owned(), None)));
    }
    items
}

/// Returns all threads and pools of a system with gateways.
fn items_of_gateways(configuration: &Configuration) -> Vec<Item> {
    let (mut threads, mut pools) = (Vec::new(), Vec::new());
    let has_filter = configuration.decides_itself() && configuration.filter.is_some();
    for queue in configuration.input_queues() {
        let name = queue.name();
        threads.extend(configuration.writes_to_disk().then(|| disk_thread(&name)));
        pools.extend(configuration.writes_to_disk().then(|| pool_of(&name, Purpose::Records)));
        pools.extend([Purpose::Evacuation, Purpose::Staging].map(|purpose| pool_of(&name, purpose)));
        pools.extend(has_filter.then(|| pool_of(&name, Purpose::Results)));
        // Rings and the frames of a card are not pools.
        if !matches!(queue.gateway.receive, ReceiveChoice::Tpacket | ReceiveChoice::AfXdp) {
            pools.extend(configuration.flow.iter().map(|flow| packets_pool(&queue, flow)));
        }
        match queue.gateway.architecture {
            Architecture::RunToCompletion => threads.push(name),
            Architecture::Threads => threads.extend([receiving_thread(&name), sending_thread(&name)]),
        }
    }
    threads.extend(configuration.flow.iter().map(sources_thread));
    threads.push(FARM.to_owned());
    threads.extend(has_filter.then(|| HISTOGRAMS.to_owned()));
    threads.push(LUMISECTIONS.to_owned());
    let item = |kind| move |name| Item { kind, name, feed: None };
    threads.into_iter().map(item(Kind::Thread)).chain(pools.into_iter().map(item(Kind::Pool))).collect()
}

/// Returns the pools that exist only if nodes are separate processes.
fn between_nodes(configuration: &Configuration) -> Vec<String> {
    let control = configuration.readout.iter().map(|readout| readout.name.as_str()).chain([MANAGER]);
    let control = control.map(|unit| pool_of(unit, Purpose::Control));
    let received = configuration.builder.iter().map(|builder| pool_of(&builder.name, Purpose::Received));
    control.chain(received).collect()
}

/// Returns whether a readout unit is on the machine of this process: units with the same host in their addresses share
/// a machine.
fn is_here(readout: &ReadoutSection, part: Part<'_>) -> bool {
    let host = |address: &str| address.rsplit_once(':').map_or(address.to_owned(), |(host, _)| host.to_owned());
    match part {
        Part::Whole => true,
        Part::Readout(address) => host(&readout.address) == host(address),
        Part::Other => false,
    }
}

/// Returns the origin of a readout unit's fragments.
fn feed(readout: &ReadoutSection) -> Feed {
    if let Some(card) = &readout.card {
        return Feed::Card(card.clone());
    }
    let address = readout.listen.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    match address.map(|address| address.ip()) {
        Some(address) if !IpAddr::is_unspecified(&address) => Feed::Address(address),
        _ => Feed::Any,
    }
}

/// Report of a thread on its placement: refused requests that it does without, or why it cannot run.
type Report = Result<Vec<String>, PlacementError>;

/// Places each thread and pool, and collects the results.
pub(super) struct ThreadPlacement {
    wanted: Wanted,
    reports: (Sender<Report>, Receiver<Report>),
    awaited: Cell<usize>,
    warnings: RefCell<Vec<String>>,
}

impl ThreadPlacement {
    pub(super) fn new(configuration: &Configuration, part: Part<'_>) -> Result<Self, PlacementError> {
        Ok(Self::over(Wanted::of(configuration, part)?))
    }

    fn over(wanted: Wanted) -> Self {
        let (awaited, warnings) = (Cell::new(0), RefCell::new(Vec::new()));
        Self { wanted, reports: channel(), awaited, warnings }
    }

    /// Returns whether all units share one thread.
    pub(super) fn is_shared(&self) -> bool {
        self.wanted.is_shared
    }

    /// Returns the function that the thread of this name calls first.
    pub(super) fn on_start(&self, name: &str) -> impl FnOnce() + Send + use<> {
        let placement = self.wanted.plan.of(Kind::Thread, name).filter(|placement| placement.is_placed()).cloned();
        let place = placement.map(|placement| (self.memory_of_another_node(&placement), placement));
        let reports = self.reports.0.clone();
        self.awaited.set(self.awaited.get() + usize::from(place.is_some()));
        move || {
            if let Some((memory, placement)) = place {
                // The launch waits for this report. If it has given up, the report is not needed.
                let _ = reports.send(take_place(&placement, memory));
            }
        }
    }

    /// Returns the memory node of a thread if it differs from the one it runs on, from which Linux allocates by
    /// default.
    fn memory_of_another_node(&self, placement: &Placement) -> Option<u32> {
        let runs_on = self.wanted.machine.as_ref().and_then(|machine| machine.common_node(&placement.cpus));
        placement.node.filter(|_| placement.node != runs_on)
    }

    /// Creates a pool with preallocated memory.
    pub(super) fn pool(&self, config: PoolConfig) -> Result<Pool, PoolError> {
        self.place(config, Pool::new, Pool::report)
    }

    /// Creates a pool whose memory is allocated on first use.
    pub(super) fn untouched_pool(&self, config: PoolConfig) -> Result<Pool, PoolError> {
        self.place(config, Pool::new_untouched, Pool::report)
    }

    /// Creates a ring written by another process.
    pub(super) fn ring(&self, config: PoolConfig) -> Result<(RingWriter, RingReader), PoolError> {
        self.place(config, ring, |(_, reader)| reader.report())
    }

    fn place<M>(
        &self,
        config: PoolConfig,
        make: impl Fn(PoolConfig) -> Result<M, PoolError>,
        report: impl Fn(&M) -> &PoolReport,
    ) -> Result<M, PoolError> {
        let Some(placement) = self.wanted.plan.of(Kind::Pool, &config.name).filter(|placement| placement.is_placed())
        else {
            return make(config);
        };
        let numa_node = placement.node.and_then(|node| u16::try_from(node).ok());
        let wanted = PoolConfig { numa_node, lock: placement.lock, ..config };
        let pool = match make(wanted.clone()) {
            Err(error) if numa_node.is_some() && may_lie_anywhere(&error, placement) => {
                self.warn(format!("{error}; it lies where the kernel puts it"));
                make(PoolConfig { numa_node: None, ..wanted })?
            }
            made => made?,
        };
        if report(&pool).lock == Lock::Refused {
            let capability = Capability::IpcLock.name();
            self.warn(format!(
                "pool {}: locking it into memory was refused: this process lacks {capability}, and its limit of locked \
                 memory (`ulimit -l`) is too low; it is used unlocked",
                placement.name
            ));
        }
        Ok(pool)
    }

    /// Records a refused request that the run does without.
    pub(super) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Waits until every started thread is placed. Returns the refused requests that the run does without.
    pub(super) fn finish(&self) -> Report {
        let mut warnings = self.warnings.take();
        for report in self.reports.1.iter().take(self.awaited.replace(0)) {
            warnings.extend(report?);
        }
        Ok(warnings)
    }
}

/// Returns whether a pool may do without its node: it was chosen automatically, or a container forbids the call.
fn may_lie_anywhere(error: &PoolError, placement: &Placement) -> bool {
    let is_forbidden =
        |source: &io::Error| matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported);
    let is_automatic = matches!(placement.by, Decision::Automatic(_));
    is_automatic || matches!(error, PoolError::NoSuchNode { source, .. } if is_forbidden(source))
}

/// Places the calling thread.
fn take_place(placement: &Placement, memory: Option<u32>) -> Report {
    let Placement { name, cpus, by, .. } = placement;
    let is_automatic = matches!(by, Decision::Automatic(_));
    let refused = |what: String, error: io::Error| format!("thread {name}: {what} was refused: {error}");
    let mut warnings = Vec::new();
    let mut judge = |what: String, result: io::Result<()>, lacking: Capability| match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let lacking = lacking.name();
            warnings.push(format!("thread {name}: {what} was refused: this process lacks {lacking}; it goes without"));
            Ok(())
        }
        Err(error) if is_automatic => {
            warnings.push(format!("{}; it goes without", refused(what, error)));
            Ok(())
        }
        Err(error) => Err(PlacementError::Refused(refused(what, error))),
    };
    judge(format!("running on CPU {cpus}"), run_on(cpus), Capability::SysNice)?;
    if let Some(node) = memory {
        judge(format!("memory of node {node}"), thread::prefer_memory_of(node), Capability::SysNice)?;
    }
    if let Some(scheduling) = placement.scheduling {
        judge(format!("scheduling `{scheduling}`"), schedule(scheduling), Capability::SysNice)?;
    }
    Ok(warnings)
}

fn run_on(cpus: &CpuList) -> io::Result<()> {
    thread::run_on(cpus.iter())
}

fn schedule(scheduling: Scheduling) -> io::Result<()> {
    thread::schedule(match scheduling {
        Scheduling::Other => thread::Scheduling::Other,
        Scheduling::Batch => thread::Scheduling::Batch,
        Scheduling::Idle => thread::Scheduling::Idle,
        Scheduling::Fifo(priority) => thread::Scheduling::Fifo(priority),
        Scheduling::RoundRobin(priority) => thread::Scheduling::RoundRobin(priority),
    })
}

/// Descriptors of a process: standard streams, the logbook, pages, libraries, queries of the system, and some spare.
const PROCESS: u64 = 40;
/// Descriptors of a node: those a thread waits on and is woken by, and a listening socket.
const NODE: u64 = 8;
/// Descriptors of a source: a connection, and the next one while the first has not ended.
const SOURCE: u64 = 2;
/// Descriptors of the feed of a source with its own entrance, or of its splitter's process.
const FEED: u64 = 6;
/// Descriptors of a stream: the file being written, the next one, the last one while it is closed, and a directory.
const STREAM: u64 = 4;
/// Descriptors of a filter: its process with its memories and bells.
const FILTER: u64 = 8;

/// Raises the soft limit of descriptors to the hard one. Fails if that is too low for the nodes of this process: all of
/// them, or this one.
pub(super) fn make_room_for_descriptors(
    configuration: &Configuration,
    node: Option<(Role, u16)>,
) -> Result<(), RunError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If it may not be raised, the present limit is checked.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let (needed, most) = (needed(configuration, node), getrlimit(Resource::Nofile).current);
    match most {
        Some(most) if most < needed => Err(RunError::Unfit(format!(
            "files and connections: this process needs {needed} descriptors and may have {most}; raise the hard limit, \
             as `ulimit -Hn {needed}` does for root, `nofile` in limits.conf or `LimitNOFILE=` of a systemd unit"
        ))),
        _ => Ok(()),
    }
}

/// Returns the maximum number of descriptors that the nodes of this process need at a time.
fn needed(configuration: &Configuration, node: Option<(Role, u16)>) -> u64 {
    let is_here = |role, index: usize| node.is_none_or(|node| node == (role, index as u16));
    let others = node.map_or(0, |_| (configuration.readout.len() + configuration.builder.len()) as u64);
    let streams = configuration.stream.len().max(1) as u64;
    let filters = configuration.filter.iter().map(|filter| u64::from(filter.units)).sum::<u64>();
    let mut needed = PROCESS + NODE;
    let readouts = configuration.readout.iter().enumerate();
    for (_, readout) in readouts.filter(|(index, _)| is_here(Role::Readout, *index)) {
        needed += 2 * NODE + MOST_UNKNOWN as u64 + if others > 0 { MOST_STRANGERS as u64 } else { 0 };
        needed +=
            configuration.source.iter().filter(|source| source.readout == readout.name).map(of_source).sum::<u64>();
    }
    let builders = (0..configuration.builder.len()).filter(|&index| is_here(Role::Builder, index)).count() as u64;
    needed += builders * (NODE + streams * STREAM + filters * FILTER);
    let managers = if node.is_some_and(|(role, _)| role == Role::Manager) { MOST_STRANGERS as u64 } else { 0 };
    needed + managers + SOURCE * others
}

fn of_source(source: &SourceSection) -> u64 {
    let has_entrance = source.is_read() || matches!(source.input, SourceInput::Listen(_) | SourceInput::Connect(_));
    let feeds = u64::from(has_entrance) + u64::from(source.splitter.is_some());
    SOURCE + feeds * FEED + u64::from(source.emulate.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs of another machine's readout units must not take cores away here.
    #[test]
    fn units_with_one_host_in_their_addresses_are_placed_beside_each_other() {
        let readout = |name: &str, address: &str| {
            format!("[[readout]]\nname = \"{name}\"\nlisten = \"0.0.0.0:0\"\naddress = \"{address}\"\n")
        };
        let readouts = [readout("ru0", "one:4000"), readout("ru1", "two:4000"), readout("ru2", "one:4001")].concat();
        let rest = "[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n";
        let text = format!("version = 1\n{readouts}{rest}");
        let configuration = ropewalk_config::parse("test.toml", &text, &|_| None).expect("a good configuration");
        let fed = |part| {
            let items = items(&configuration, part, false).into_iter();
            let fed = items.filter(|item| item.kind == Kind::Thread && item.feed == Some(Feed::Any));
            fed.map(|item| item.name).collect::<Vec<_>>()
        };
        assert_eq!(fed(Part::of(&configuration, Role::Readout, 2)), ["ru0", "ru2"]);
        assert_eq!(fed(Part::of(&configuration, Role::Readout, 1)), ["ru1"]);
        assert_eq!(fed(Part::Whole), ["ru0", "ru1", "ru2"]);
        assert!(fed(Part::of(&configuration, Role::Builder, 0)).is_empty());
    }

    fn placement(by: Decision) -> Placement {
        let (cpus, name) = (CpuList::default(), "ru0-fragments".to_owned());
        Placement { kind: Kind::Pool, name, by, cpus, node: Some(1), scheduling: None, lock: false }
    }

    fn no_node(kind: io::ErrorKind) -> PoolError {
        PoolError::NoSuchNode { name: "ru0-fragments".to_owned(), node: 1, source: kind.into() }
    }

    /// Docker's default filter forbids `mbind` without `CAP_SYS_NICE`; a kernel without NUMA does not have it.
    #[test]
    fn only_a_rule_that_could_be_followed_insists_on_its_node() {
        let rule = Decision::Rule(ropewalk_host::RuleName { kind: Kind::Pool, number: 1 });
        for (kind, by_rule) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::Unsupported, true),
            (io::ErrorKind::InvalidInput, false),
        ] {
            assert_eq!(may_lie_anywhere(&no_node(kind), &placement(rule.clone())), by_rule, "{kind:?}");
            assert!(may_lie_anywhere(&no_node(kind), &placement(Decision::Automatic("why".to_owned()))));
        }
    }

    #[test]
    fn a_thread_that_cannot_have_its_cpus_fails_by_a_rule_and_warns_otherwise() {
        let away = |by| Placement { kind: Kind::Thread, cpus: [8191].into_iter().collect(), ..placement(by) };
        let by_rule = away(Decision::Rule(ropewalk_host::RuleName { kind: Kind::Thread, number: 1 }));
        let error = take_place(&by_rule, None).expect_err("there is no such CPU");
        assert!(error.to_string().starts_with("thread ru0-fragments: running on CPU 8191 was refused"), "{error}");
        let warnings = take_place(&away(Decision::Automatic("why".to_owned())), None).expect("it goes without");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}
