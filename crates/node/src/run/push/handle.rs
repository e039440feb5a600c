//! The handle of a push system's run: start, pause, stop and snapshots.

use super::hardware::Hardware;
use super::summary::{PushState, PushSummary};
use crate::configuration::{Configuration, FlowSection};
use crate::drive::gateway::{
    CellsBySource, FarmNodeReport, GatewayHistograms, GatewayReport, Notice, OrderBoard, PacketSourceReport, Shown,
    ThrottleBoard,
};
use crate::fields::Fields;
use crate::run::ConductedRun;
use crate::run::clock_summary::{ClockReading, ClockSummary};
use crate::run::configured::Configured;
use crate::run::forecast::{DiskWatch, StartRoom};
use crate::run::histograms::HistogramDefinition;
use crate::run::registry;
use crate::run::transfer::{TransferService, TransferSummary};
use crate::run::worker::{Ending, Worker};
use crate::tap::Tap;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::Setting;
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Counter, Instant, Parameter, RunNumber, SourceId};
use ropewalk_wire::run_file::StreamName;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A gateway of this process.
#[derive(Debug)]
pub(super) struct RunningGateway {
    pub(super) name: String,
    /// Its number among all input queues of the system.
    pub(super) number: u16,
    pub(super) notice: Notice<GatewayReport>,
    /// What users' histograms hold.
    pub(super) histograms: Notice<GatewayHistograms>,
    /// Where hardware reads the throttle's state.
    pub(super) board: Option<Arc<ThrottleBoard>>,
    /// Why hardware could not be told, as far as it was said.
    pub(super) failure: Option<String>,
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
    /// The number of the first gateway of this process among all input queues of the system; those that are here follow it.
    pub first_unit: u16,
    /// The gateways of this process, by name.
    pub gateways: Vec<(String, GatewayReport)>,
    /// What hardware was told of each of them, if it is.
    pub hardware: Vec<Option<Shown>>,
    /// The emulated sources of this process: of which flow, and what they did.
    pub sources: Vec<(usize, PacketSourceReport)>,
    /// The emulated nodes of this process.
    pub nodes: Vec<FarmNodeReport>,
}

impl PushSnapshot {
    /// The sum of a counter over the gateways of this process.
    pub fn counter(&self, counter: Counter) -> u64 {
        let numbers = self.gateways.iter().flat_map(|(_, gateway)| gateway.numbers());
        numbers.filter(|&(known, _)| known == counter).map(|(_, count)| count).sum()
    }
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
    /// What nobody was told yet.
    pub(super) news: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) run: RunNumber,
    pub(super) disk_watch: Option<DiskWatch>,
    pub(super) start_room: StartRoom,
    /// Transfers closed run files.
    pub(super) transfer: Option<TransferService>,
    /// Where copies of its gateways' events are asked for.
    pub(super) tap: Tap,
    gates: Vec<Arc<TriggerGate>>,
    /// Gateways let no trigger come: the run has not begun, or is paused.
    is_held: Arc<AtomicBool>,
    /// What is said to gateways while the run goes on.
    orders: Arc<OrderBoard>,
    is_over: Arc<AtomicBool>,
    ending: Arc<Ending>,
    flows: Vec<FlowSection>,
    /// The names of the streams.
    streams: Vec<StreamName>,
    /// What is counted of sources' fragments.
    histograms: Arc<[HistogramDefinition]>,
    fields: Fields,
    configured: Configured,
    clock: MonotonicClock,
    clock_at_start: Option<ClockReading>,
    started: Option<Instant>,
    stopped: Option<Instant>,
    ended: Option<Instant>,
    forced: bool,
}

impl Drop for PushHandle {
    /// No thread outlives the run: neither one that was not finished in order, nor one that could not be launched whole.
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl PushHandle {
    pub(super) fn new(
        configuration: &Configuration,
        gates: Vec<Arc<TriggerGate>>,
        is_over: &Arc<AtomicBool>,
        ending: &Arc<Ending>,
    ) -> Self {
        // An event has fragments of one flow.
        let sources = configuration.flow.iter().map(|flow| usize::from(flow.sources.count)).max();
        Self {
            gateways: Vec::new(),
            workers: Vec::new(),
            sources: Vec::new(),
            nodes: Vec::new(),
            emulators: Vec::new(),
            hardware: Vec::new(),
            nodes_are_over: Arc::default(),
            addresses: Vec::new(),
            warnings: configuration.renamed.clone(),
            news: Vec::new(),
            directory: PathBuf::new(),
            run: RunNumber(0),
            disk_watch: None,
            start_room: StartRoom::default(),
            transfer: None,
            tap: Tap::new(sources.unwrap_or_default()),
            gates,
            is_held: Arc::new(AtomicBool::new(true)),
            orders: Arc::default(),
            is_over: Arc::clone(is_over),
            ending: Arc::clone(ending),
            flows: configuration.flow.clone(),
            streams: configuration.streams().names().collect(),
            histograms: HistogramDefinition::all(&configuration.histogram, configuration.histogram_configs()).into(),
            fields: Fields::default(),
            configured: Configured::new(configuration),
            clock: MonotonicClock,
            clock_at_start: None,
            started: None,
            stopped: None,
            ended: None,
            forced: false,
        }
    }

    /// What says to gateways whether triggers may come.
    pub(super) const fn held(&self) -> &Arc<AtomicBool> {
        &self.is_held
    }

    /// What is said to gateways while the run goes on.
    pub(super) const fn orders(&self) -> &Arc<OrderBoard> {
        &self.orders
    }

    /// Its flows, as they are configured.
    pub(super) fn flows(&self) -> &[FlowSection] {
        &self.flows
    }

    /// How its threads end.
    pub(super) const fn ending(&self) -> &Arc<Ending> {
        &self.ending
    }

    /// The run's number; 0 where this process has no gateway.
    pub const fn run_number(&self) -> RunNumber {
        self.run
    }

    /// What is said of the run, for its account.
    pub fn describe(&mut self, fields: Fields) {
        self.fields = fields;
    }

    /// What was said of it.
    pub const fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How far it is.
    pub const fn phase(&self) -> RunPhase {
        match (self.started, self.stopped, self.ended) {
            (_, _, Some(_)) => RunPhase::Ended,
            (_, Some(_), None) => RunPhase::Draining,
            (Some(_), None, None) => RunPhase::Running,
            (None, None, None) => RunPhase::Configured,
        }
    }

    /// Whether no trigger is to come, though the run has begun.
    pub fn is_paused(&self) -> bool {
        self.phase().is_running() && self.is_held.load(Ordering::Relaxed)
    }

    /// Puts the configuration of the run that is to begin into its directory.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub(super) fn leave_word(&mut self) -> std::io::Result<()> {
        registry::begins(&self.directory, self.run)?;
        self.warnings.extend(self.configured.keep(&self.directory)?);
        Ok(())
    }

    /// Lets triggers come: the run begins.
    pub fn start(&mut self) {
        self.clock_at_start = ClockReading::now();
        self.started = Some(self.clock.now());
        self.resume();
    }

    /// Has no trigger come for now: gateways tell theirs that they are busy, and take what is on its way. A stop ends a pause.
    pub fn pause(&self) {
        self.is_held.store(true, Ordering::Release);
        self.wake();
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        self.is_held.store(false, Ordering::Release);
        self.wake();
    }

    /// Has a source of the gateways of this process take no part from the next set on that each of their queues begins, or take part again:
    /// the snapshot says from which event on.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        self.orders.mask(source, is_masked);
        self.wake();
    }

    /// Gives a parameter of the gateways of this process another value.
    pub fn set(&self, setting: Setting) {
        match setting.parameter {
            Parameter::SetTimeout => self.orders.set_timeout(setting.of, setting.time()),
            Parameter::ReportInterval => self.orders.set_interval(setting.time()),
            Parameter::Prescale => self.orders.set_prescale(setting.of, setting.value),
            // Those of systems that pull.
            _ => return,
        }
        self.wake();
    }

    fn wake(&self) {
        self.workers.iter().for_each(Worker::wake);
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
            first_unit: self.gateways.first().map_or(0, |gateway| gateway.number),
            gateways: self.gateways.iter().map(|one| (one.name.clone(), one.notice.read())).collect(),
            hardware: self.gateways.iter().map(|one| one.board.as_deref().map(ThrottleBoard::read)).collect(),
            sources: self.sources.iter().map(|source| (source.flow, source.notice.read())).collect(),
            nodes: self.nodes.iter().map(Notice::read).collect(),
        }
    }

    /// What is counted of sources' fragments (`[[histogram]]`); a sample has the numbers.
    pub fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Arc::clone(&self.histograms)
    }

    /// What was counted of them, over all gateways of this process.
    pub(super) fn counted(&self) -> CellsBySource {
        let mut all = CellsBySource::new();
        self.gateways.iter().for_each(|gateway| gateway.histograms.read().add_to(&mut all));
        all
    }

    /// How long the run has gone on since its start.
    pub fn age(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| self.clock.now().since(started))
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
        // Triggers that are elsewhere have no gate here: they hear that nobody wants more.
        self.pause();
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Stops at once: what is not done is named.
    pub fn force_stop(&mut self) {
        self.forced = true;
        self.stop();
        self.ending.halt();
    }

    /// What hardware could not be told, and was not said before; and once that gateways have no pages.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        for gateway in &mut self.gateways {
            let failure = gateway.board.as_deref().and_then(|board| board.read().failure);
            if failure.is_some() && failure != gateway.failure {
                news.extend(failure.iter().map(|why| format!("{}: hardware cannot be told: {why}", gateway.name)));
                gateway.failure = failure;
            }
        }
        news
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
        self.end_threads();
        // A forced end does not wait for transfer commands.
        if let Some(transfer) = self.transfer.as_mut().filter(|_| !self.forced) {
            transfer.finish();
        }
        self.summary()
    }

    fn end_threads(&mut self) {
        self.nodes_are_over.store(true, Ordering::Relaxed);
        self.ending.halt();
        for worker in self.workers.drain(..).chain(self.emulators.drain(..)) {
            worker.wake();
            worker.join();
        }
        self.hardware.drain(..).for_each(Hardware::finish);
    }

    /// The account as it is known now.
    pub fn summary(&self) -> PushSummary {
        let now = self.clock.now();
        let started = self.started.unwrap_or(now);
        let running = self.stopped.unwrap_or(now).since(started);
        let whole = self.ended.unwrap_or(now).since(started);
        let state = match (self.forced, self.ended) {
            (true, _) => PushState::Forced,
            (false, Some(_)) => PushState::Ended,
            (false, None) => PushState::Running,
        };
        let age = self.started.map(|started| now.since(started));
        let sample = ConductedRun::sample(self);
        let summary =
            PushSummary::new(&self.snapshot(), &self.flows, state, self.run, &self.directory, (running, whole));
        let transfer = self.transfer.as_ref().map(TransferService::summary);
        // Before the end there is nothing wrong with what is left.
        let left = transfer.as_ref().filter(|_| self.workers.is_empty()).and_then(TransferSummary::remark);
        PushSummary {
            started_ns: age.map(|age| self.clock.utc().0.saturating_sub(age.as_nanos() as i64)),
            fields: self.fields.clone(),
            configuration: self.configured.summary.clone(),
            clock: ClockSummary { at_start: self.clock_at_start, at_end: ClockReading::now() },
            histograms: self.histograms.iter().map(|one| one.read(&sample, None)).collect(),
            warnings: self.warnings.iter().cloned().chain(left).collect(),
            transfer,
            ..summary
        }
        .with_streams(&self.streams, &self.snapshot())
        .with_disk_left(ConductedRun::disk_left(self))
        .with_panicked(&self.ending.panicked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::parse;
    use crate::drive::Drive;
    use crate::run::push::{PushPart, launch_push};
    use crate::run::worker::Panics;

    /// Nodes of a farm, which need nobody to be there.
    fn nodes() -> PushHandle {
        let text = "version = 1\n[[flow]]\nname = \"hlt\"\npacking = 5\n\
                    sources = { count = 2, first = 0, address = \"127.0.0.1:23000\" }\n[farm]\nnodes = 1\nemulate = {}\n\
                    [[gateway]]\nname = \"gw0\"\ncontrol = \"127.0.0.1:22999\"\nlisten = { hlt = \"127.0.0.1:22998\" }\n";
        let configuration = parse("handle", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        launch_push(&configuration, &PushPart::Nodes(0..1), None).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_thread_that_panicked_is_named_in_the_account_which_does_not_balance() {
        let mut handle = nodes();
        assert!(handle.summary().is_balanced());
        let drives: Vec<Box<dyn Drive + Send>> = vec![Box::new(Panics)];
        handle.workers.push(Worker::start("gw0", drives, Arc::clone(&handle.ending), || ()).expect("a thread"));
        while !handle.ending.is_halted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let summary = handle.finish();
        assert!(!summary.is_balanced());
        assert_eq!(summary.ledger.unbalanced[0].thread.as_deref(), Some("gw0"), "{:?}", summary.ledger);
        assert!(nodes().finish().is_balanced());
    }

    #[test]
    fn the_threads_of_a_run_that_is_let_go_end_with_it() {
        let mut handle = nodes();
        let board = Arc::<ThrottleBoard>::default();
        let way = crate::run::push::hardware::Way::Command(vec!["true".to_owned()]);
        handle.hardware.push(Hardware::start("gw0", way, Arc::clone(&board)).expect("a thread"));
        let ending = Arc::clone(&handle.ending);
        // As where what is launched behind it cannot be.
        drop(handle);
        assert!(board.read().is_over && ending.is_halted());
        assert_eq!((Arc::strong_count(&board), Arc::strong_count(&ending)), (1, 1), "a thread still has it");
    }
}
