//! Who wants a place in a run, and where the configuration puts each on a machine.
//!
//! | Thread | What it does |
//! |---|---|
//! | `NAME` of a readout or builder unit | turns that unit |
//! | `NAME-disk` | writes the run files of the builder unit `NAME` |
//! | `manager` | turns the event manager |
//! | `sources` | plays emulated and recorded sources |
//! | `units` | turns all units and the manager, where there are few cores and no rules |
//!
//! | Pool | What lies in it |
//! |---|---|
//! | `NAME-fragments`, `NAME-evacuation` | what the readout unit `NAME` received; what it moved out of the way |
//! | `NAME-records` | heads and tails of records that the builder unit `NAME` writes |
//! | `NAME-received` | what the builder unit `NAME` received, where it is a process of its own |
//! | `NAME-staging`, `NAME-control` | messages on their way; messages received, where nodes are processes of their own |
//! | `sources`, `sources-receive` | what emulated and recorded sources send |

use crate::configuration::{self, Configuration, Fault, PlacementChoice, ReadoutSection};
use ropewalk_host::{Feed, Item, Kind, Machine, MachineError, Plan, PlanError, Policy};
use std::net::{IpAddr, ToSocketAddrs};
use std::num::NonZero;
use std::path::Path;

/// The event manager's thread, and the beginning of its pools' names.
pub(super) const MANAGER: &str = "manager";
/// The thread and the pool of emulated and recorded sources.
pub(super) const SOURCES: &str = "sources";
/// The pool of what nobody sends to sources.
pub(super) const SOURCES_RECEIVE: &str = "sources-receive";
/// The thread of all units, where they share one.
pub(super) const SHARED_THREAD: &str = "units";

/// The thread that writes a builder unit's files.
pub(super) fn disk_thread(builder: &str) -> String {
    format!("{builder}-disk")
}

/// The pool of a unit for one purpose.
pub(super) fn pool_of(unit: &str, purpose: Purpose) -> String {
    let purpose = match purpose {
        Purpose::Fragments => "fragments",
        Purpose::Evacuation => "evacuation",
        Purpose::Records => "records",
        Purpose::Received => "received",
        Purpose::Staging => "staging",
        Purpose::Control => "control",
    };
    format!("{unit}-{purpose}")
}

/// What a pool is for: see the table above.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Fragments,
    Evacuation,
    Records,
    Received,
    Staging,
    Control,
}

/// Why threads and pools cannot be placed as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The machine cannot be looked at.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The configuration does not fit the machine; the fault names the key.
    #[error("{}", .0.message)]
    Unfit(Fault),
    /// The system refused what the machine should allow.
    #[error("thread {thread}: {what} was refused: {source}")]
    Refused {
        /// The thread.
        thread: String,
        /// What it asked for.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Which part of a run a process is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    /// All of it.
    Whole,
    /// The readout unit that listens at this address, perhaps beside others on its machine.
    Readout(&'a str),
    /// The event manager or a builder unit.
    Other,
}

/// Where each thread and pool of a run in one process goes on this machine, and who decides that.
///
/// # Errors
/// Where a rule names CPUs or a node that are not there, or that were taken away from this process, and where a readout
/// unit names a card that is not there.
pub fn placement(configuration: &Configuration) -> Result<Plan, PlacementError> {
    plan(configuration, &Machine::read(Path::new("/"))?, cores(), Part::Whole)
}

/// The same on another machine.
///
/// # Errors
/// As [`placement`].
pub fn placement_on(configuration: &Configuration, machine: &Machine) -> Result<Plan, PlacementError> {
    plan(configuration, machine, machine.allowed.len(), Part::Whole)
}

/// What a process has to do about it; nothing where nobody asked for anything.
pub(super) fn wanted(configuration: &Configuration, part: Part<'_>) -> Result<Option<(Machine, Plan)>, PlacementError> {
    let is_automatic = configuration.run.placement == PlacementChoice::Auto;
    if configuration.thread.is_empty() && configuration.pool.is_empty() && !is_automatic {
        return Ok(None);
    }
    let machine = Machine::read(Path::new("/"))?;
    let plan = plan(configuration, &machine, cores(), part)?;
    Ok(Some((machine, plan)))
}

/// As many CPUs as this process may use at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Whether all units share one thread: on few cores, because waking another core costs more than taking turns (paper 1,
/// III-A: run to completion beats producer and consumer). Who gives rules for threads wants to place units, so that each
/// has its own then.
pub(super) fn share_a_thread(configuration: &Configuration) -> bool {
    share(configuration, cores())
}

fn share(configuration: &Configuration, cores: usize) -> bool {
    // A core for the sources, one for each unit, or there is nothing to be gained.
    cores < 1 + configuration.readout.len() + configuration.builder.len() && configuration.thread.is_empty()
}

fn plan(
    configuration: &Configuration,
    machine: &Machine,
    cores: usize,
    part: Part<'_>,
) -> Result<Plan, PlacementError> {
    let policy: Policy = configuration::policy(configuration).map_err(PlacementError::Unfit)?;
    let items = items(configuration, part, part == Part::Whole && share(configuration, cores));
    policy.plan(machine, &items).map_err(|error| PlacementError::Unfit(fault(configuration, &error)))
}

/// The key at which it stands what the machine cannot give.
fn fault(configuration: &Configuration, error: &PlanError) -> Fault {
    let mut fault = configuration::fault_of(error);
    if let PlanError::NoSuchCard { card: missing, .. } = error {
        let readout = configuration.readout.iter().position(|readout| readout.card.as_ref() == Some(missing));
        fault.key = readout.map(|index| format!("readout[{index}].card")).unwrap_or_default();
    }
    fault
}

/// All threads and pools of a run, whichever process they are in: what one gets depends on the others.
fn items(configuration: &Configuration, part: Part<'_>, shared: bool) -> Vec<Item> {
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
        items.extend(configuration.run.write.then(|| thread(disk_thread(&builder.name), None)));
    }
    let has_sources = configuration.source.iter().any(|source| source.emulate.is_some() || source.play.is_some());
    items.extend(has_sources.then(|| thread(SOURCES.to_owned(), None)));

    let is_node = part != Part::Whole;
    let mut pools = |unit: &str, feed: Option<&Feed>, purposes: &[(Purpose, bool)]| {
        let there = purposes.iter().filter(|(_, is_there)| *is_there);
        items.extend(there.map(|(purpose, _)| pool(pool_of(unit, *purpose), feed.cloned())));
    };
    for (readout, feed) in configuration.readout.iter().zip(&feeds) {
        let purposes = [Purpose::Fragments, Purpose::Evacuation, Purpose::Staging].map(|purpose| (purpose, true));
        pools(&readout.name, feed.as_ref(), &purposes);
        pools(&readout.name, None, &[(Purpose::Control, is_node)]);
    }
    pools(MANAGER, None, &[(Purpose::Staging, true), (Purpose::Control, is_node)]);
    for builder in &configuration.builder {
        let records = (Purpose::Records, configuration.run.write);
        pools(&builder.name, None, &[(Purpose::Received, is_node), records, (Purpose::Staging, true)]);
    }
    if has_sources {
        items.extend([SOURCES, SOURCES_RECEIVE].map(|name| pool(name.to_owned(), None)));
    }
    items
}

/// Whether a readout unit is on the machine of this process: units with one host in their addresses share a machine.
fn is_here(readout: &ReadoutSection, part: Part<'_>) -> bool {
    let host = |address: &str| address.rsplit_once(':').map_or(address.to_owned(), |(host, _)| host.to_owned());
    match part {
        Part::Whole => true,
        Part::Readout(address) => host(&readout.address) == host(address),
        Part::Other => false,
    }
}

/// Where the fragments of a readout unit come from.
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
