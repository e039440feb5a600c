//! One input queue of a gateway, run to completion: packets in, events out, decisions in, accepted events to files.

use super::input::Input;
use super::link::Link;
use super::message::{contiguous, send_bytes, send_over};
use super::report::{GatewayReport, InputReport, Notice};
use super::storing::StoredEvent;
use crate::drive::{Drive, Progress, Storage};
use ropewalk_flow::gateway::{FlowConfig, Gateway, GatewayConfig, GatewayConfigError, Outgoing};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::disk::Disk;
use ropewalk_io::packet::{Packet, Receiver, Refusal, Sender};
use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::{Cause, Instant, RunNumber, SourceId, Utc};
use ropewalk_wire::gateway::{Copying, Frame, Message};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How an event is put together for sending.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Gathering {
    /// The kernel, or the card, gathers it from where its pieces lie.
    Iovec,
    /// It is copied to where it leaves from.
    Copy(Copying),
}

/// What a gateway's drive is told before the run.
#[derive(Debug)]
pub struct GatewayDriveConfig {
    /// The machine's part.
    pub machine: GatewayConfig,
    /// How events are put together.
    pub gathering: Gathering,
    /// Where each flow's trigger listens, if there is one.
    pub triggers: Vec<Option<SocketAddrV4>>,
    /// The trigger waits to be asked for packets.
    pub requests: bool,
    /// The run that it takes.
    pub run: RunNumber,
    /// The time of day when the monotonic clock stood at zero.
    pub epoch: Utc,
    /// How far each flow's trigger has come, where that is known: behind its last event the flow has ended.
    pub gates: Vec<Option<Arc<TriggerGate>>>,
    /// The other flows have ended when this is set.
    pub is_over: Arc<AtomicBool>,
    /// How long it may take to end behind that.
    pub drain: Duration,
    /// Packets that an input hands on at most.
    pub batch: usize,
    /// Memory that the packets of each flow are received into, in bytes: the throttle watches the fullest.
    pub memory: u64,
    /// Above this share of held memory, in percent, packets are copied out of it.
    pub evacuate_above: usize,
}

/// Who a message is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum To {
    Node(SocketAddrV4),
    Trigger(SocketAddrV4),
}

/// How far its end is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Every flow has ended; until then, what is on its way may still come.
    Draining(Instant),
    /// No packet is taken any more; what is queued leaves, if somebody takes it until then.
    Closing(Instant),
    Over,
}

/// A gateway's input queue: see the module's picture.
pub struct GatewayDrive<R: Receiver, L: Link, S: Sender, D: Disk> {
    config: GatewayDriveConfig,
    gateway: Gateway,
    inputs: Vec<Input<R>>,
    /// To and from nodes.
    farm: L,
    /// To triggers.
    triggers: S,
    /// Where each node was heard last.
    nodes: Vec<Option<SocketAddrV4>>,
    storage: Option<Storage<D>>,
    /// What was copied out of the packets' memory, and heads of events that are gathered.
    staging: Staging,
    packets: Vec<Packet>,
    slices: Vec<Slice>,
    /// An encoded message, and to whom it still has to go.
    message: Vec<u8>,
    unsent: Vec<To>,
    scratch: Vec<u8>,
    phase: Phase,
    stopped: Vec<bool>,
    /// Had nothing come by then, nothing more would come.
    quiet_from: Instant,
    /// Accepted events that could not be written.
    not_written: u64,
    /// The ids of each flow's sources.
    sources: Vec<Vec<SourceId>>,
    progress: Vec<(u32, Progress)>,
    notice: Notice<GatewayReport>,
    renew_at: Instant,
    ask_at: Instant,
}

/// How often the report is renewed.
const RENEW: Duration = Duration::from_millis(50);
/// How often the kernel is asked what it lost.
const ASK: Duration = Duration::from_secs(1);
/// What has not come for so long behind the last event is not on its way any more.
const QUIET: Duration = Duration::from_millis(200);
/// Pushes of one turn, so that packets are received again before their socket is full.
const PUSHES: usize = 256;
/// Messages of one turn.
const MESSAGES: usize = 64;
/// Events to storage of one turn.
const STORED: usize = 64;

impl<R: Receiver, L: Link, S: Sender, D: Disk> GatewayDrive<R, L, S, D> {
    /// A gateway that receives each flow's packets from one of `inputs`, and speaks with nodes and to triggers.
    ///
    /// # Errors
    /// What is wrong with the machine's configuration.
    pub fn new(
        config: GatewayDriveConfig,
        inputs: Vec<R>,
        farm: L,
        triggers: S,
        storage: Option<Storage<D>>,
        staging: Staging,
    ) -> Result<Self, GatewayConfigError> {
        let gateway = Gateway::new(&config.machine)?;
        let flows = inputs.len();
        let ids = |flow: &FlowConfig| flow.sources.iter().map(|source| source.id).collect();
        let sources = config.machine.flows.iter().map(ids).collect();
        let nodes = vec![None; usize::from(config.machine.farm.nodes)];
        let drive = Self {
            gateway,
            inputs: (0..).zip(inputs).map(|(flow, input)| Input::new(input, vec![flow], config.batch)).collect(),
            farm,
            triggers,
            nodes,
            storage,
            staging,
            packets: Vec::with_capacity(1024),
            slices: Vec::with_capacity(1024),
            message: Vec::with_capacity(2048),
            unsent: Vec::with_capacity(2),
            scratch: Vec::with_capacity(2048),
            phase: Phase::Running,
            stopped: vec![false; flows],
            quiet_from: Instant::ZERO,
            not_written: 0,
            sources,
            progress: Vec::with_capacity(1024),
            notice: Notice::default(),
            renew_at: Instant::ZERO,
            ask_at: Instant::ZERO,
            config,
        };
        drive.notice.renew(|report| report.flows.resize(flows, InputReport::default()));
        Ok(drive)
    }

    /// What it tells of itself.
    pub fn notice(&self) -> Notice<GatewayReport> {
        self.notice.clone()
    }

    /// The run's directory is entered.
    pub fn begin(&mut self, now: Instant) {
        if let Some(storage) = &mut self.storage {
            storage.begin(now, self.config.run, self.config.machine.incarnation);
        }
    }

    fn receive(&mut self, now: Instant) -> usize {
        if matches!(self.phase, Phase::Closing(_) | Phase::Over) {
            return 0;
        }
        let (mut work, mut fullest) = (0, 0);
        for input in &mut self.inputs {
            let used = input.receiver.memory_in_use();
            fullest = fullest.max(self.config.memory * used.held as u64 / used.all.max(1) as u64);
            let must_move = used.is_above(self.config.evacuate_above);
            work += input.receive(self.gateway.receiver(), must_move.then_some(&mut self.staging), now);
        }
        self.gateway.receiver().on_pool(fullest, self.config.memory, now);
        if work > 0 {
            self.quiet_from = now.after(QUIET);
        }
        work
    }

    /// What nodes say.
    fn hear(&mut self, now: Instant) -> usize {
        let work = self.farm.receive(now, &mut self.packets);
        for Packet { from, payload, .. } in self.packets.drain(..) {
            let Some(message) = decoded(&payload, &mut self.scratch) else { continue };
            if let Message::Credit(credit) = &message
                && let Some(node) = self.nodes.get_mut(usize::from(credit.node))
            {
                *node = Some(from);
            }
            self.gateway.on_message(&message, now);
        }
        work
    }

    fn push(&mut self, now: Instant) -> usize {
        for pushed in 0..PUSHES {
            let Some(node) = self.gateway.next_push() else { return pushed };
            // A node without an address never had credit.
            let Some(to) = self.nodes.get(usize::from(node)).copied().flatten() else { return pushed };
            match self.send_push(to) {
                Ok(()) => self.gateway.sent(now),
                Err(Refusal::Full) if self.farm.flush(now) > 0 => {}
                Err(_) => return pushed,
            }
        }
        PUSHES
    }

    fn send_push(&mut self, to: SocketAddrV4) -> Result<(), Refusal> {
        let view = self.gateway.push_view();
        match self.config.gathering {
            Gathering::Copy(copying) => {
                let mut fill = |room: &mut [u8]| view.copy_to(room, copying).unwrap_or(0);
                self.farm.send_with(to, view.length(), &mut fill)
            }
            Gathering::Iovec => {
                self.slices.clear();
                if !view.append_slices(&mut self.staging, &mut self.slices) {
                    return Err(Refusal::Full);
                }
                self.farm.send(to, &mut self.slices)
            }
        }
    }

    /// Says what is to be said to nodes and triggers.
    fn tell(&mut self, now: Instant) -> usize {
        for told in 0..MESSAGES {
            while let Some(&to) = self.unsent.last() {
                let sent = match to {
                    To::Node(to) => send_over(&mut self.farm, to, &self.message, now),
                    To::Trigger(to) => send_bytes(&mut self.triggers, to, &self.message, now),
                };
                match sent {
                    Err(Refusal::Full) => return told,
                    Ok(()) | Err(Refusal::TooLarge) => drop(self.unsent.pop()),
                }
            }
            self.message.clear();
            if !self.next_message(now) {
                return told;
            }
        }
        MESSAGES
    }

    /// Encodes the next message; false where there is none.
    fn next_message(&mut self, now: Instant) -> bool {
        if let Some(outgoing) = self.gateway.next_message(now) {
            match outgoing {
                Outgoing::Progress(node, progress) => {
                    self.unsent.extend(self.nodes.get(usize::from(node)).copied().flatten().map(To::Node));
                    Message::Progress(progress).encode(&mut self.message);
                }
                Outgoing::Stream(stream) => {
                    let trigger = self.config.triggers.get(usize::from(stream.flow)).copied().flatten();
                    self.unsent.extend(trigger.map(To::Trigger));
                    Message::Stream(stream).encode(&mut self.message);
                }
                Outgoing::Throttle(throttle) => {
                    self.unsent.extend(self.config.triggers.iter().flatten().copied().map(To::Trigger));
                    Message::Throttle(throttle).encode(&mut self.message);
                }
            }
            return true;
        }
        self.config.requests && self.next_request(now)
    }

    fn next_request(&mut self, now: Instant) -> bool {
        let utc = Duration::from_nanos(self.config.epoch.0.saturating_add_unsigned(now.as_nanoseconds()) as u64);
        for (flow, trigger) in (0..).zip(&self.config.triggers) {
            let Some(trigger) = trigger else { continue };
            if let Some(request) = self.gateway.next_request(flow, utc, now) {
                self.unsent.push(To::Trigger(*trigger));
                self.message.extend_from_slice(&request.to_bytes());
                return true;
            }
        }
        false
    }

    /// Whether all flows have ended; each is told its last event once that is known.
    fn have_stopped(&mut self) -> bool {
        for (flow, gate) in (0u8..).zip(&self.config.gates) {
            let stopped = &mut self.stopped[usize::from(flow)];
            if *stopped {
                continue;
            }
            let Some(gate) = gate else {
                *stopped = self.config.is_over.load(Ordering::Relaxed);
                continue;
            };
            if let Some(issued) = gate.last() {
                *stopped = true;
                let first = self.config.machine.flows[usize::from(flow)].first_event;
                self.gateway.receiver().stop_after(flow, (first + issued).saturating_sub(1));
            }
        }
        self.stopped.iter().all(|stopped| *stopped)
    }

    /// Goes through the end: flows stop, what is open drains, files close.
    fn end(&mut self, now: Instant) {
        match self.phase {
            Phase::Running => {
                if self.have_stopped() {
                    self.phase = Phase::Draining(now.after(self.config.drain));
                }
            }
            Phase::Draining(until) => {
                let in_flight = self.gateway.ledger();
                let is_waiting = self.inputs.iter().any(Input::is_waiting);
                let is_empty = !is_waiting && in_flight.fragments.in_flight == 0 && in_flight.events.in_flight == 0;
                if now >= until {
                    self.gateway.receiver().close_all(Cause::DrainTimedOut);
                    for input in &mut self.inputs {
                        input.offer_waiting(self.gateway.receiver(), now);
                    }
                    self.phase = Phase::Closing(now.after(self.config.drain));
                } else if is_empty && now >= self.quiet_from {
                    self.phase = Phase::Closing(now.after(self.config.drain));
                }
            }
            Phase::Closing(until) => {
                let in_flight = self.gateway.ledger().events.in_flight;
                let has_stored = in_flight == 0 && self.gateway.next_stored().is_none();
                let is_closed = self.storage.as_mut().is_none_or(|storage| {
                    if has_stored {
                        storage.finish(now);
                    }
                    storage.is_closed() || storage.has_given_up()
                });
                let is_queued = !self.unsent.is_empty() || self.farm.is_queued() || self.triggers.queued() > 0;
                if has_stored && is_closed && (!is_queued || now >= until) {
                    self.phase = Phase::Over;
                    self.ask_at = now;
                    self.renew(now);
                }
            }
            Phase::Over => {}
        }
    }

    /// Accepted events to storage.
    fn store(&mut self, now: Instant) -> usize {
        let Some(storage) = &mut self.storage else {
            // Nothing is written: the events are counted and let go.
            while self.gateway.next_stored().is_some() {
                self.gateway.stored();
            }
            return 0;
        };
        let mut work = storage.poll(now, &mut self.progress);
        self.not_written +=
            self.progress.drain(..).filter(|(_, progress)| *progress == Progress::Failed).count() as u64;
        for _ in 0..STORED {
            if self.gateway.next_stored().is_none() {
                break;
            }
            let Some(event) = self.gateway.stored_view() else { break };
            if !storage.add(now, 0, &StoredEvent::new(event, &self.sources)) {
                if !storage.has_given_up() {
                    break;
                }
                self.not_written += 1;
            }
            self.gateway.stored();
            work += 1;
        }
        storage.flush(now);
        work
    }

    fn renew(&mut self, now: Instant) {
        self.renew_at = now.after(RENEW);
        let asks = now >= self.ask_at;
        if asks {
            self.ask_at = now.after(ASK);
        }
        let Self { gateway, inputs, farm, storage, notice, not_written, phase, .. } = self;
        let evacuated = inputs.iter().map(|input| input.evacuated).sum();
        notice.renew(|report| {
            for ((flow, input), known) in (0..).zip(inputs).zip(&mut report.flows) {
                (known.packets, known.events) = gateway.account(flow);
                if asks {
                    known.received = input.receiver.counters();
                }
            }
            report.sent = farm.sent();
            report.storage = storage.as_ref().map(Storage::counts);
            let throttle = gateway.throttle();
            (report.state, (report.live, report.dead)) = (throttle.state(), throttle.live_and_dead());
            report.stops.clear();
            report.stops.extend(throttle.levels().map(|level| (level.dead, level.stops)));
            (report.evacuated, report.not_written, report.is_over) = (evacuated, *not_written, *phase == Phase::Over);
        });
    }
}

impl<R: Receiver, L: Link, S: Sender, D: Disk> Drive for GatewayDrive<R, L, S, D> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.receive(now) + self.hear(now);
        self.gateway.turn(now, |_| ());
        work += self.push(now) + self.tell(now) + self.store(now);
        work += self.farm.flush(now) + self.triggers.flush(now);
        self.end(now);
        if now >= self.renew_at {
            self.renew(now);
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let inputs =
            self.inputs.iter().filter_map(|input| input.receiver.next_deadline()).chain(self.farm.next_deadline());
        let storage = self.storage.as_ref().and_then(Storage::next_deadline);
        inputs.chain(storage).chain([self.gateway.next_deadline(), self.renew_at]).min()
    }

    fn prepare_wait(&mut self) -> bool {
        let mut may_sleep = self.unsent.is_empty() && self.triggers.queued() == 0 && self.farm.prepare_wait();
        for input in &mut self.inputs {
            may_sleep &= input.receiver.prepare_wait();
        }
        may_sleep && self.storage.as_mut().is_none_or(Storage::prepare_wait)
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.inputs.iter().filter_map(|input| input.receiver.wait_descriptor()));
        into.extend(self.farm.wait_descriptor());
        into.extend(self.storage.as_ref().and_then(Storage::wait_descriptor));
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Over
    }
}

/// A message in a datagram; none where it is no whole message of a kind that gateways hear.
fn decoded(payload: &Payload, scratch: &mut Vec<u8>) -> Option<Message> {
    let bytes = contiguous(payload, scratch);
    let (kind, body, _) = Frame::split(bytes).ok()?;
    Message::decode(kind, body).ok()
}
