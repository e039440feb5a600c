//! Which CPUs the threads of a run may use: the rules of the configuration, which each thread applies to itself as
//! it starts.
//!
//! | Thread | What it does |
//! |---|---|
//! | `NAME` of a readout or builder unit | turns that unit |
//! | `NAME-disk` | writes the run files of the builder unit `NAME` |
//! | `manager` | turns the event manager |
//! | `sources` | plays emulated and recorded sources |
//! | `units` | turns all units and the manager, where there are few cores and no rules |

use crate::configuration::Configuration;
use ropewalk_host::{CpuList, CpuListError, Machine, MachineError, Plan, PlanError, Policy, Rule};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The event manager's thread.
pub(super) const MANAGER_THREAD: &str = "manager";
/// The thread of emulated and recorded sources.
pub(super) const SOURCES_THREAD: &str = "sources";
/// The thread of all units, where they share one.
pub(super) const SHARED_THREAD: &str = "units";

/// The thread that writes a builder unit's files.
pub(super) fn disk_thread(builder: &str) -> String {
    format!("{builder}-disk")
}

/// Why threads cannot be placed as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The machine cannot be looked at.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A rule cannot be followed on this machine.
    #[error("[[thread]]: {0}")]
    Rule(#[from] PlanError),
    /// A rule's CPUs cannot be read.
    #[error("[[thread]]: {0}")]
    Cpus(#[from] CpuListError),
    /// The system refused.
    #[error("thread {thread} may not run on CPU {cpus}: {source}")]
    Refused {
        /// The thread.
        thread: String,
        /// Where it should have run.
        cpus: CpuList,
        /// What the system said.
        source: Errno,
    },
}

/// Where each thread of a run goes on this machine, by the rules of the configuration; empty where there are none.
///
/// # Errors
/// Where a rule names CPUs that are not there, or that were taken away from this process.
pub fn placement(configuration: &Configuration) -> Result<Plan, PlacementError> {
    if configuration.thread.is_empty() {
        return Ok(Plan::default());
    }
    let rule = |rule: &crate::configuration::ThreadRule| -> Result<Rule, CpuListError> {
        Ok(Rule { pattern: rule.pattern.clone(), cpus: Some(rule.cpus.parse()?), ..Rule::default() })
    };
    let rules = configuration.thread.iter().map(rule).collect::<Result<_, _>>()?;
    let names = thread_names(configuration);
    Ok(Policy::new(rules)?.plan(&Machine::read(Path::new("/"))?, names.iter().map(String::as_str))?)
}

/// The names of all threads that carry data, whichever process they are in.
fn thread_names(configuration: &Configuration) -> Vec<String> {
    let mut names: Vec<String> = configuration.readout.iter().map(|readout| readout.name.clone()).collect();
    names.push(MANAGER_THREAD.to_owned());
    for builder in &configuration.builder {
        names.push(builder.name.clone());
        if configuration.run.write {
            names.push(disk_thread(&builder.name));
        }
    }
    if configuration.source.iter().any(|source| source.emulate.is_some() || source.play.is_some()) {
        names.push(SOURCES_THREAD.to_owned());
    }
    names
}

type Report = Result<(), PlacementError>;

/// Gives each thread its place, and hears from it whether it got it.
pub(super) struct Placer {
    plan: Plan,
    reports: (Sender<Report>, Receiver<Report>),
    awaited: std::cell::Cell<usize>,
}

impl Placer {
    pub(super) fn new(configuration: &Configuration) -> Result<Self, PlacementError> {
        Ok(Self { plan: placement(configuration)?, reports: channel(), awaited: std::cell::Cell::new(0) })
    }

    /// What the thread of this name does first.
    pub(super) fn on_start(&self, thread: &str) -> impl FnOnce() + Send + 'static {
        let placement = self.plan.of(thread).filter(|placement| placement.rule.is_some()).cloned();
        let reports = self.reports.0.clone();
        self.awaited.set(self.awaited.get() + usize::from(placement.is_some()));
        move || {
            if let Some(place) = placement {
                let refused = |source| PlacementError::Refused { thread: place.name, cpus: place.cpus.clone(), source };
                // Whoever launches the run waits for this; where it has given up, nobody needs to know.
                let _ = reports.send(bind(&place.cpus).map_err(refused));
            }
        }
    }

    /// Waits until every thread that was started is where it should be.
    pub(super) fn finish(&self) -> Report {
        self.reports.1.iter().take(self.awaited.replace(0)).collect()
    }
}

/// Lets the calling thread run on these CPUs alone.
fn bind(cpus: &CpuList) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(Errno::INVAL);
        }
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set)
}
