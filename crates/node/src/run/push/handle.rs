//! The handle of a push system's run: stop and snapshots.

use super::hardware::Hardware;
use super::summary::PushSummary;
use crate::configuration::push::{FlowSection, PushConfiguration};
use crate::drive::gateway::{FarmNodeReport, GatewayReport, Notice, PacketSourceReport, Shown, ThrottleBoard};
use crate::run::worker::{Ending, Worker};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Instant, RunNumber};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A gateway of this process.
#[derive(Debug)]
pub(super) struct RunningGateway {
    pub(super) name: String,
    pub(super) notice: Notice<GatewayReport>,
    /// Where hardware reads the throttle's state.
    pub(super) board: Option<Arc<ThrottleBoard>>,
}

/// Trigger and sources of a flow.
#[derive(Debug)]
pub(super) struct FlowSource {
    /// Which flow.
    pub(super) flow: usize,
    pub(super) notice: Notice<PacketSourceReport>,
}

/// What can be seen of a run from outside.
#[derive(Clone, Debug, Default)]
pub struct PushSnapshot {
    /// The gateways of this process, by name.
    pub gateways: Vec<(String, GatewayReport)>,
    /// What hardware was told of each of them, if it is.
    pub hardware: Vec<Option<Shown>>,
    /// The emulated sources of this process: of which flow, and what they did.
    pub sources: Vec<(usize, PacketSourceReport)>,
    /// The emulated nodes of this process.
    pub nodes: Vec<FarmNodeReport>,
}

/// A run that goes on on its own threads.
#[derive(Debug)]
pub struct PushHandle {
    pub(super) gateways: Vec<RunningGateway>,
    /// Their threads.
    pub(super) workers: Vec<Worker>,
    pub(super) sources: Vec<FlowSource>,
    pub(super) nodes: Vec<Notice<FarmNodeReport>>,
    /// Threads of sources and nodes.
    pub(super) emulators: Vec<Worker>,
    /// Threads that tell hardware.
    pub(super) hardware: Vec<Hardware>,
    pub(super) nodes_are_over: Arc<AtomicBool>,
    pub(super) addresses: Vec<(String, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) run: RunNumber,
    gates: Vec<Arc<TriggerGate>>,
    is_over: Arc<AtomicBool>,
    ending: Arc<Ending>,
    flows: Vec<FlowSection>,
    clock: MonotonicClock,
    started: Instant,
    stopped: Option<Instant>,
    ended: Option<Instant>,
    forced: bool,
}

impl PushHandle {
    pub(super) fn new(
        configuration: &PushConfiguration,
        gates: Vec<Arc<TriggerGate>>,
        is_over: &Arc<AtomicBool>,
        ending: &Arc<Ending>,
    ) -> Self {
        Self {
            gateways: Vec::new(),
            workers: Vec::new(),
            sources: Vec::new(),
            nodes: Vec::new(),
            emulators: Vec::new(),
            hardware: Vec::new(),
            nodes_are_over: Arc::default(),
            addresses: Vec::new(),
            warnings: Vec::new(),
            directory: PathBuf::new(),
            run: RunNumber(0),
            gates,
            is_over: Arc::clone(is_over),
            ending: Arc::clone(ending),
            flows: configuration.flow.clone(),
            clock: MonotonicClock,
            started: MonotonicClock.now(),
            stopped: None,
            ended: None,
            forced: false,
        }
    }

    /// All threads have started.
    pub(super) fn begin(&mut self) {
        self.started = self.clock.now();
    }

    /// Names and addresses where something listens.
    pub fn addresses(&self) -> &[(String, String)] {
        &self.addresses
    }

    /// What was refused, so that the run goes without.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The run's directory; empty where this process has no gateway.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The run as it was a moment ago.
    pub fn snapshot(&self) -> PushSnapshot {
        PushSnapshot {
            gateways: self.gateways.iter().map(|one| (one.name.clone(), one.notice.read())).collect(),
            hardware: self.gateways.iter().map(|one| one.board.as_deref().map(ThrottleBoard::read)).collect(),
            sources: self.sources.iter().map(|source| (source.flow, source.notice.read())).collect(),
            nodes: self.nodes.iter().map(Notice::read).collect(),
        }
    }

    /// How long the run has gone on.
    pub fn age(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// The sources of a flow have sent the last event that they were to send.
    pub fn is_exhausted(&self) -> bool {
        self.gates.iter().any(|gate| gate.last().is_some())
    }

    /// Vetoes the trigger: everything up to the last one is still built and decided.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(|| self.clock.now());
        for gate in &self.gates {
            gate.close();
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Stops at once: what is not done is named.
    pub fn force_stop(&mut self) {
        self.forced = true;
        self.stop();
        self.ending.halt();
    }

    /// The gateways have ended; where there is none, what this process emulates was told to stop and has.
    pub fn is_ended(&mut self) -> bool {
        let is_ended = if self.gateways.is_empty() {
            self.stopped.is_some() && self.sources.iter().all(|source| source.notice.read().is_over)
        } else {
            self.workers.iter().all(Worker::is_finished)
        };
        if is_ended {
            self.ended.get_or_insert_with(|| self.clock.now());
        }
        is_ended
    }

    /// Ends all threads and gives the final account.
    pub fn finish(mut self) -> PushSummary {
        self.nodes_are_over.store(true, Ordering::Relaxed);
        self.ending.halt();
        for worker in self.workers.drain(..).chain(self.emulators.drain(..)) {
            worker.wake();
            worker.join();
        }
        self.hardware.drain(..).for_each(Hardware::finish);
        self.summary()
    }

    /// The account as it is known now.
    pub fn summary(&self) -> PushSummary {
        let now = self.clock.now();
        let running = self.stopped.unwrap_or(now).since(self.started);
        let whole = self.ended.unwrap_or(now).since(self.started);
        let state = match (self.forced, self.ended) {
            (true, _) => "forced",
            (false, Some(_)) => "ended",
            (false, None) => "running",
        };
        PushSummary::new(&self.snapshot(), &self.flows, state, self.run, &self.directory, (running, whole))
    }
}
