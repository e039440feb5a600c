//! Who wants a place in a run, and where the configuration puts each on a machine.
//!
//! | Thread | What it does |
//! |---|---|
//! | `NAME` of a readout or builder unit | turns that unit |
//! | `NAME-disk` | writes the run files of the builder unit `NAME` |
//! | `manager` | turns the event manager |
//! | `front-ends` | speaks with front ends under run control, |
//! | `front-ends-disk` | and writes what they report |
//! | `sources` | plays emulated and recorded sources |
//! | `CARD` | writes the blocks of the link card `CARD`, emulated or read from somewhere |
//! | `SOURCE` | reads the file or watches the program of a source that has one |
//! | `units` | turns all units and the manager, where there are few cores and no rules |
//!
//! | Pool | What lies in it |
//! |---|---|
//! | `NAME-fragments`, `NAME-evacuation` | what the readout unit `NAME` received; what it moved out of the way |
//! | `SOURCE-datagrams` | what came in datagrams of the source `SOURCE` |
//! | `CARD-ring` | what the link card `CARD` wrote |
//! | `CARD-subscribers`, `CARD-staging` | what subscribers of `CARD` say; what is sent back to them (`loop_back`) |
//! | `NAME-records` | heads and tails of records that the builder unit `NAME` writes |
//! | `NAME-received` | what the builder unit `NAME` received, where it is a process of its own |
//! | `NAME-staging`, `NAME-control` | messages on their way; messages received, where nodes are processes of their own |
//! | `front-ends-control`, `front-ends-staging`, `front-ends-records` | what front ends under run control say, are told and report |
//! | `sources`, `sources-receive` | what emulated and recorded sources send |

use crate::configuration::{self, Configuration, Fault, PlacementChoice, ReadoutSection, SourceSection, ThreadRule};
use ropewalk_host::{Feed, Item, Kind, Machine, MachineError, Plan, PlanError, Policy};
use ropewalk_terms::Role;
use std::net::{IpAddr, ToSocketAddrs};
use std::num::NonZero;
use std::path::Path;

/// The event manager's thread, and the beginning of its pools' names.
pub(crate) const MANAGER: &str = "manager";
/// The thread and the pool of emulated and recorded sources.
pub(super) const SOURCES: &str = "sources";
/// The thread that speaks with front ends under run control, and the beginning of its pools' names.
pub(super) const FRONT_ENDS: &str = "front-ends";
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
        Purpose::Ring => "ring",
        Purpose::Subscribers => "subscribers",
        Purpose::Datagrams => "datagrams",
        Purpose::Results => "results",
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
    Ring,
    Subscribers,
    Datagrams,
    Results,
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

impl<'a> Part<'a> {
    /// The part that a node's process is.
    pub(super) fn of(configuration: &'a Configuration, role: Role, index: u16) -> Self {
        match role {
            Role::Readout => Self::Readout(&configuration.readout[usize::from(index)].address),
            Role::Manager | Role::Builder | Role::Source => Self::Other,
        }
    }
}

/// Where each thread and pool of a run in one process goes on this machine, and who decides that.
///
/// # Errors
/// Where a rule names CPUs or a node that are not there, or that were taken away from this process, and where a readout
/// unit names a card that is not there.
pub fn placement(configuration: &Configuration) -> Result<Plan, PlacementError> {
    Wanted::here(configuration, Part::Whole).map(|wanted| wanted.plan)
}

/// The same of a run whose nodes are processes of their own, as the process of one node sees it.
///
/// # Errors
/// As [`placement`].
pub fn placement_of_node(configuration: &Configuration, role: Role, index: u16) -> Result<Plan, PlacementError> {
    Wanted::here(configuration, Part::of(configuration, role, index)).map(|wanted| wanted.plan)
}

/// The same as [`placement`] on another machine.
///
/// # Errors
/// As [`placement`].
pub fn placement_on(configuration: &Configuration, machine: &Machine) -> Result<Plan, PlacementError> {
    Wanted::new(configuration, machine.clone(), machine.allowed.len(), Part::Whole).map(|wanted| wanted.plan)
}

/// What a process does about the places of its threads and pools.
pub(super) struct Wanted {
    /// None where nobody asked for anything, so that nobody looked.
    pub(super) machine: Option<Machine>,
    pub(super) plan: Plan,
    /// All units share one thread: on few cores, because waking another core costs more than taking turns (paper 1,
    /// III-A: run to completion beats producer and consumer). Who gives rules for threads wants to place units, so that
    /// each has its own then.
    pub(super) is_shared: bool,
}

impl Wanted {
    /// What the configuration asks for on this machine; nothing is looked at where it asks for nothing.
    pub(super) fn of(configuration: &Configuration, part: Part<'_>) -> Result<Self, PlacementError> {
        if configuration.thread.is_empty() && configuration.pool.is_empty() && !is_automatic(configuration) {
            let is_shared = part == Part::Whole && are_few(configuration, cores());
            return Ok(Self { machine: None, plan: Plan::default(), is_shared });
        }
        Self::here(configuration, part)
    }

    /// What rules ask for of threads with these names; nothing is looked at where there is no rule.
    pub(super) fn of_threads(rules: &[ThreadRule], names: &[String]) -> Result<Self, PlacementError> {
        if rules.is_empty() {
            return Ok(Self { machine: None, plan: Plan::default(), is_shared: false });
        }
        let machine = Machine::read(Path::new("/"))?;
        let plan = plan_of_threads(rules, names, &machine)?;
        Ok(Self { machine: Some(machine), plan, is_shared: false })
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
            // The system counts no isolated CPU; the layout has readers run there.
            cores += machine.permitted.without(&machine.allowed).len();
        }
        let is_shared = part == Part::Whole && are_few(configuration, cores) && configuration.thread.is_empty();
        let policy: Policy = configuration::policy(configuration).map_err(PlacementError::Unfit)?;
        let plan = policy.plan(&machine, &items(configuration, part, is_shared));
        let mut plan = plan.map_err(|error| PlacementError::Unfit(fault(configuration, &error)))?;
        if part == Part::Whole {
            // They were planned all the same: a rule for them is no slip in a configuration that nodes read too.
            let absent = between_nodes(configuration);
            plan.placements.retain(|one| one.kind == Kind::Thread || !absent.contains(&one.name));
        }
        Ok(Self { machine: Some(machine), plan, is_shared })
    }
}

/// Where rules put threads with these names on a machine.
pub(super) fn plan_of_threads(
    rules: &[ThreadRule],
    names: &[String],
    machine: &Machine,
) -> Result<Plan, PlacementError> {
    let policy = configuration::policy_of(rules).map_err(PlacementError::Unfit)?;
    let thread = |name: &String| Item { kind: Kind::Thread, name: name.clone(), feed: None };
    let plan = policy.plan(machine, &names.iter().map(thread).collect::<Vec<_>>());
    plan.map_err(|error| PlacementError::Unfit(configuration::fault_of(&error)))
}

fn is_automatic(configuration: &Configuration) -> bool {
    configuration.run.placement == PlacementChoice::Auto
}

/// As many CPUs as this process may use at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A core for the sources, one for each unit, or there is nothing to be gained by threads of their own.
fn are_few(configuration: &Configuration, cores: usize) -> bool {
    cores < 1 + configuration.readout.len() + configuration.builder.len()
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

/// The pools that there are only where nodes are processes of their own.
fn between_nodes(configuration: &Configuration) -> Vec<String> {
    let control = configuration.readout.iter().map(|readout| readout.name.as_str()).chain([MANAGER]);
    let control = control.map(|unit| pool_of(unit, Purpose::Control));
    let received = configuration.builder.iter().map(|builder| pool_of(&builder.name, Purpose::Received));
    control.chain(received).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What another machine's readout units read must not take cores away here.
    #[test]
    fn units_with_one_host_in_their_addresses_are_placed_beside_each_other() {
        let readout = |name: &str, address: &str| {
            format!("[[readout]]\nname = \"{name}\"\nlisten = \"0.0.0.0:0\"\naddress = \"{address}\"\n")
        };
        let readouts = [readout("ru0", "one:4000"), readout("ru1", "two:4000"), readout("ru2", "one:4001")].concat();
        let rest = "[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n";
        let text = format!("version = 1\n{readouts}{rest}");
        let configuration = configuration::parse("test.toml", &text, &|_| None).expect("a good configuration");
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
}
