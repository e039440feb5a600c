//! Places threads and pools as planned: each thread places itself when it starts.
//!
//! The launch fails if the machine cannot do it. If this process lacks a permission, or no rule asks for the place, the run continues
//! with a warning.

use super::placement::{Part, PlacementError, Wanted};
use crate::configuration::{Configuration, ThreadRule};
use ropewalk_host::{Capability, CpuList, Decision, Kind, Placement, Scheduling};
use ropewalk_io::thread;
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Lock, Pool, PoolConfig, PoolError, PoolReport};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a thread says of its place: what it was refused and goes on without, or why it cannot.
type Report = Result<Vec<String>, PlacementError>;

/// Gives each thread and pool its place, and hears from it whether it got it.
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

    /// Of a run that has these threads.
    pub(super) fn of_threads(rules: &[ThreadRule], names: &[String]) -> Result<Self, PlacementError> {
        Ok(Self::over(Wanted::of_threads(rules, names)?))
    }

    fn over(wanted: Wanted) -> Self {
        let (awaited, warnings) = (Cell::new(0), RefCell::new(Vec::new()));
        Self { wanted, reports: channel(), awaited, warnings }
    }

    /// Whether all units share one thread.
    pub(super) fn is_shared(&self) -> bool {
        self.wanted.is_shared
    }

    /// What the thread of this name does first.
    pub(super) fn on_start(&self, name: &str) -> impl FnOnce() + Send + use<> {
        let placement = self.wanted.plan.of(Kind::Thread, name).filter(|placement| placement.is_placed()).cloned();
        let place = placement.map(|placement| (self.memory_of_another_node(&placement), placement));
        let reports = self.reports.0.clone();
        self.awaited.set(self.awaited.get() + usize::from(place.is_some()));
        move || {
            if let Some((memory, placement)) = place {
                // Whoever launches the run waits for this; where it has given up, nobody needs to know.
                let _ = reports.send(take_place(&placement, memory));
            }
        }
    }

    /// The node of a thread's memory where it is not the one it runs on, from which Linux takes memory by itself.
    fn memory_of_another_node(&self, placement: &Placement) -> Option<u32> {
        let runs_on = self.wanted.machine.as_ref().and_then(|machine| machine.common_node(&placement.cpus));
        placement.node.filter(|_| placement.node != runs_on)
    }

    /// A pool whose memory is present.
    pub(super) fn pool(&self, config: PoolConfig) -> Result<Pool, PoolError> {
        self.make(config, Pool::new)
    }

    /// A pool whose memory is present only where it was used.
    pub(super) fn untouched_pool(&self, config: PoolConfig) -> Result<Pool, PoolError> {
        self.make(config, Pool::new_untouched)
    }

    /// A ring that somebody else writes.
    pub(super) fn ring(&self, config: PoolConfig) -> Result<(RingWriter, RingReader), PoolError> {
        self.place(config, ring, |(_, reader)| reader.report())
    }

    fn make(
        &self,
        config: PoolConfig,
        make: impl Fn(PoolConfig) -> Result<Pool, PoolError>,
    ) -> Result<Pool, PoolError> {
        self.place(config, make, Pool::report)
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

    /// Something is refused, and gone without.
    pub(super) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Waits until every thread that was started is where it should be; what was refused and is gone without.
    pub(super) fn finish(&self) -> Report {
        let mut warnings = self.warnings.take();
        for report in self.reports.1.iter().take(self.awaited.replace(0)) {
            warnings.extend(report?);
        }
        Ok(warnings)
    }
}

/// Whether a pool may do without its node: nobody asked for it by a rule, or a container does not allow the call.
fn may_lie_anywhere(error: &PoolError, placement: &Placement) -> bool {
    let is_forbidden =
        |source: &io::Error| matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported);
    let is_automatic = matches!(placement.by, Decision::Automatic(_));
    is_automatic || matches!(error, PoolError::NoSuchNode { source, .. } if is_forbidden(source))
}

/// Done by the thread itself.
fn take_place(placement: &Placement, memory: Option<u32>) -> Report {
    let Placement { name, cpus, by, .. } = placement;
    let is_automatic = matches!(by, Decision::Automatic(_));
    let refused = |what: String, source: io::Error| PlacementError::Refused { thread: name.clone(), what, source };
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
        Err(error) => Err(refused(what, error)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(by: Decision) -> Placement {
        let (cpus, name) = (CpuList::default(), "ru0-fragments".to_owned());
        Placement { kind: Kind::Pool, name, by, cpus, node: Some(1), scheduling: None, lock: false }
    }

    fn no_node(kind: io::ErrorKind) -> PoolError {
        PoolError::NoSuchNode { name: "ru0-fragments".to_owned(), node: 1, source: kind.into() }
    }

    /// Docker's usual filter forbids `mbind` without `CAP_SYS_NICE`; a kernel without NUMA does not know it.
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
    fn a_thread_that_cannot_have_its_cpus_says_so_unless_nobody_asked() {
        let away = |by| Placement { kind: Kind::Thread, cpus: [8191].into_iter().collect(), ..placement(by) };
        let by_rule = away(Decision::Rule(ropewalk_host::RuleName { kind: Kind::Thread, number: 1 }));
        let error = take_place(&by_rule, None).expect_err("there is no such CPU");
        assert!(error.to_string().starts_with("thread ru0-fragments: running on CPU 8191 was refused"), "{error}");
        let warnings = take_place(&away(Decision::Automatic("why".to_owned())), None).expect("it goes without");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}
