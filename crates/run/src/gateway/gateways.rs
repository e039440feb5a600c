//! The gateways, farm nodes and emulated packet sources of this process, and the threads that report the throttle to
//! hardware.

use super::snapshot::GatewaySnapshot;
use crate::summary_sections::LumisectionSummary;
use crate::user_command;
use crate::worker::Worker;
use ropewalk_config::FlowSection;
use ropewalk_engine::gateway::{
    CellsBySource, FarmNodeReport, GatewayHistograms, GatewayReport, LumisectionBoard, Notice, OrderBoard,
    PacketSourceReport, Shown, ThrottleBoard,
};
use ropewalk_flow::messages::Setting;
use ropewalk_flow::source::TriggerGate;
use ropewalk_terms::{Parameter, SourceId};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// An input queue of a gateway.
#[derive(Debug)]
pub(super) struct RunningGateway {
    pub(super) name: String,
    /// Its number among all input queues of the system.
    pub(super) number: u16,
    pub(super) notice: Notice<GatewayReport>,
    /// The histograms of sources.
    pub(super) histograms: Notice<GatewayHistograms>,
    /// Board from which trigger hardware reads the throttle's state.
    pub(super) board: Option<Arc<ThrottleBoard>>,
    /// The last failure of the hardware that `take_hardware_failures` returned.
    pub(super) failure: Option<String>,
}

/// The trigger and sources of a flow.
#[derive(Debug)]
pub(super) struct FlowSource {
    /// The index of the flow.
    pub(super) flow: usize,
    pub(super) notice: Notice<PacketSourceReport>,
}

/// The gateways, farm nodes and emulated sources of a run that are in this process.
#[derive(Debug)]
pub(crate) struct Gateways {
    pub(super) queues: Vec<RunningGateway>,
    pub(super) sources: Vec<FlowSource>,
    pub(super) nodes: Vec<Notice<FarmNodeReport>>,
    /// Threads that report the throttle to hardware.
    pub(crate) hardware: Vec<Hardware>,
    pub(super) nodes_are_over: Arc<AtomicBool>,
    pub(crate) flows: Vec<FlowSection>,
    /// Whether gateways stop the trigger, because the run has not begun or is paused.
    pub(super) is_held: Arc<AtomicBool>,
    /// The ended lumisections.
    pub(super) lumisections: Arc<LumisectionBoard>,
    /// Commands to gateways during the run.
    pub(crate) orders: Arc<OrderBoard>,
    gates: Vec<Arc<TriggerGate>>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Gateways {
    fn drop(&mut self) {
        self.end_hardware();
    }
}

impl Gateways {
    pub(super) fn new(flows: &[FlowSection], gates: Vec<Arc<TriggerGate>>, is_over: Arc<AtomicBool>) -> Self {
        Self {
            queues: Vec::new(),
            sources: Vec::new(),
            nodes: Vec::new(),
            hardware: Vec::new(),
            nodes_are_over: Arc::default(),
            flows: flows.to_vec(),
            is_held: Arc::new(AtomicBool::new(true)),
            lumisections: Arc::default(),
            orders: Arc::default(),
            gates,
            is_over,
        }
    }

    /// Returns their current reports.
    pub(crate) fn snapshot(&self) -> GatewaySnapshot {
        GatewaySnapshot {
            first_unit: self.queues.first().map_or(0, |queue| queue.number),
            gateways: self.queues.iter().map(|one| (one.name.clone(), one.notice.read())).collect(),
            hardware: self.queues.iter().map(|one| one.board.as_deref().map(ThrottleBoard::read)).collect(),
            sources: self.sources.iter().map(|source| (source.flow, source.notice.read())).collect(),
            nodes: self.nodes.iter().map(Notice::read).collect(),
        }
    }

    /// Returns the ended lumisections.
    pub(crate) fn lumisections(&self) -> Vec<LumisectionSummary> {
        let name = |flow: u8| self.flows.get(usize::from(flow)).map(|flow| flow.name.clone());
        let summary = |(flow, end)| LumisectionSummary { flow: name(flow), ..LumisectionSummary::new(&end) };
        self.lumisections.read().into_iter().map(summary).collect()
    }

    /// Returns the counts of all histograms.
    pub(crate) fn histogram_cells(&self) -> CellsBySource {
        let mut all = CellsBySource::new();
        self.queues.iter().for_each(|queue| queue.histograms.read().add_to(&mut all));
        all
    }

    /// Returns whether gateways stop the trigger.
    pub(crate) fn are_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Makes gateways stop the trigger, or release it. Packets in flight are still accepted.
    pub(crate) fn hold(&self, workers: &[Worker], is_held: bool) {
        self.is_held.store(is_held, Ordering::Release);
        workers.iter().for_each(Worker::wake);
    }

    /// Returns whether the sources of a flow have sent their last event.
    pub(crate) fn are_sources_exhausted(&self) -> bool {
        self.gates.iter().any(|gate| gate.last().is_some())
    }

    /// Stops the triggers. Everything up to the last one is still built and decided.
    pub(crate) fn stop(&self, workers: &[Worker]) {
        for gate in &self.gates {
            gate.close();
        }
        // Triggers of other processes have no gate here: gateways send them their busy state.
        self.hold(workers, true);
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Masks or unmasks a source from the next set on that each queue begins. The snapshot has the event.
    pub(crate) fn mask(&self, workers: &[Worker], source: SourceId, is_masked: bool) {
        self.orders.mask(source, is_masked);
        workers.iter().for_each(Worker::wake);
    }

    /// Changes a parameter.
    pub(crate) fn set(&self, workers: &[Worker], setting: Setting) {
        match setting.parameter {
            Parameter::SetTimeout => self.orders.set_timeout(setting.of, setting.time()),
            Parameter::ReportInterval => self.orders.set_interval(setting.time()),
            Parameter::Prescale => self.orders.set_prescale(setting.of, setting.value),
            // Parameters of readout and builder units.
            _ => return,
        }
        workers.iter().for_each(Worker::wake);
    }

    /// Returns new failures of the hardware that stops the trigger.
    pub(crate) fn take_hardware_failures(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        for queue in &mut self.queues {
            let failure = queue.board.as_deref().and_then(|board| board.read().failure);
            if failure.is_some() && failure != queue.failure {
                news.extend(failure.iter().map(|why| format!("{}: cannot notify the hardware: {why}", queue.name)));
                queue.failure = failure;
            }
        }
        news
    }

    /// Returns whether the gateways have ended. A process without one has ended when it was stopped and its sources
    /// have sent everything.
    pub(crate) fn have_ended(&self, workers: &[Worker], is_stopped: bool) -> bool {
        if self.queues.is_empty() {
            is_stopped && self.sources.iter().all(|source| source.notice.read().is_over)
        } else {
            workers.iter().all(Worker::is_finished)
        }
    }

    /// Ends the farm nodes.
    pub(crate) fn end_nodes(&self) {
        self.nodes_are_over.store(true, Ordering::Relaxed);
    }

    /// Ends the threads that report to hardware, after those of the gateways.
    pub(crate) fn end_hardware(&mut self) {
        self.hardware.drain(..).for_each(Hardware::finish);
    }
}

/// Time-out of a command, after which it is killed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum sleep of a thread that has nothing to send.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How the throttle state is sent to the hardware.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Datagrams to this address, at each change and repeated after this time.
    Datagrams(SocketAddrV4, Duration),
    /// A command with its arguments, at each change.
    Command(Vec<String>),
}

/// A thread that passes the throttle to hardware until the board is closed.
#[derive(Debug)]
pub(crate) struct Hardware {
    thread: JoinHandle<()>,
    board: Arc<ThrottleBoard>,
}

impl Hardware {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system provides no socket or no thread.
    pub(crate) fn start(gateway: &str, way: Way, board: Arc<ThrottleBoard>) -> io::Result<Self> {
        let (gateway, read) = (gateway.to_owned(), Arc::clone(&board));
        let builder = std::thread::Builder::new().name(format!("{gateway}-tts"));
        let thread = match way {
            Way::Datagrams(to, repeat) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                builder.spawn(move || tell(&read, repeat, |shown, _| Some(send(&socket, to, &gateway, shown))))
            }
            // Of the states during a call only the last one is reported.
            Way::Command(words) => builder.spawn(move || {
                tell(&read, LONGEST_WAIT, |shown, is_new| is_new.then(|| call(&words, &gateway, shown)));
            }),
        };
        Ok(Self { thread: thread?, board })
    }

    /// Closes the board, and waits until the final state is sent.
    pub(super) fn finish(self) {
        self.board.close();
        // A thread that panicked has nothing more to report.
        let _ = self.thread.join();
    }
}

/// Sends the state on the board when it changes or is due to be repeated, until the board is closed.
fn tell(board: &ThrottleBoard, repeat: Duration, mut tell: impl FnMut(&Shown, bool) -> Option<Result<(), String>>) {
    let mut told = 0;
    loop {
        let shown = board.wait(told, repeat);
        if let Some(outcome) = tell(&shown, shown.changes != told) {
            board.note(outcome);
        }
        told = shown.changes;
        if shown.is_over {
            return;
        }
    }
}

fn send(socket: &UdpSocket, to: SocketAddrV4, gateway: &str, shown: &Shown) -> Result<(), String> {
    let text = format!("{gateway} {} {}\n", shown.state.name(), shown.changes);
    socket.send_to(text.as_bytes(), to).map(drop).map_err(|error| format!("{to}: {error}"))
}

/// Runs the command with `{gateway}` and `{state}` filled in, and waits for its end.
fn call(words: &[String], gateway: &str, shown: &Shown) -> Result<(), String> {
    let fill = |word: &String| word.replace("{gateway}", gateway).replace("{state}", shown.state.name());
    let words: Vec<String> = words.iter().map(fill).collect();
    let Some(program) = words.first() else { return Ok(()) };
    let failed = |what: String| format!("{program}: {what}");
    let mut command = user_command::of_words(words.iter().map(String::as_str));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| failed(format!("cannot be called: {error}")))?;
    match user_command::wait(&mut child, PATIENCE, &AtomicBool::new(false)) {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(failed(format!("ended with {status}"))),
        None => Err(failed(format!("took longer than {} s and was killed", PATIENCE.as_secs()))),
    }
}
