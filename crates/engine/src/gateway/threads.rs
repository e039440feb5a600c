//! One input queue of a gateway as producer and consumer: a thread for each half, queues of sets between them (paper 1,
//! section III-A).
//!
//! ```text
//!  packets --> ReceivingDrive == sets ==> SendingDrive --> events, decisions, files
//!                            <== empty ==
//! ```
//! A finished set is passed on, and returned empty: nothing is shared at the rate of packets. A bell wakes a half that
//! sleeps.

use super::GatewayDriveConfig;
use super::link::Link;
use super::queue::Phase;
use super::receiving::{Receiving, ReceivingParts};
use super::report::{GatewayReport, Notice, Telling};
use super::sending::{Sending, SendingParts};
use crate::Drive;
use crate::pages::NodePage;
use ropewalk_flow::gateway as machine;
use ropewalk_flow::gateway::{EventSet, Gateway, GatewayConfigError};
use ropewalk_io::Doorbell;
use ropewalk_io::packet::{MemoryInUse, Receiver, Sender};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use rtrb::{Consumer, Producer, RingBuffer};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Why a gateway's halves cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum HalvesError {
    /// The configuration of the state machine is invalid.
    #[error(transparent)]
    Machine(#[from] GatewayConfigError),
    /// The system cannot provide a bell.
    #[error("no bell between two threads: {0}")]
    Bell(#[from] io::Error),
}

/// The drives of a gateway's input queue.
pub type Halves<R, L, S> = (ReceivingDrive<R, S>, SendingDrive<L, S>);

/// Creates the two halves of a gateway's input queue, each for a thread of its own.
///
/// # Errors
/// [`HalvesError`].
pub fn halves<R: Receiver, L: Link, S: Sender>(
    config: GatewayDriveConfig,
    receiving: ReceivingParts<R, S>,
    sending: SendingParts<L, S>,
) -> Result<Halves<R, L, S>, HalvesError> {
    let (receiver, sender) = Gateway::new(&config.machine)?.split();
    let sets = config.machine.flows.iter().map(|flow| usize::from(flow.sets)).sum();
    let (here, there) = line(sets)?;
    let (drain, notice, told) = (config.drain, Notice::of_gateway(&config), Notice::of_gateway(&config));
    let [telling, telling_there] = [(); 2].map(|()| Telling::new(&config));
    let config = Arc::new(config);
    let flows = config.machine.flows.len();
    let receiving = ReceivingDrive {
        half: Receiving::new(Arc::clone(&config), receiver, receiving),
        end: here,
        handed: vec![0; flows],
        drain,
        phase: Phase::Running,
        told: told.clone(),
        notice,
        telling,
        renew_at: Instant::ZERO,
    };
    let half = Sending::new(config, sender, sending);
    let (taken, phase) = (vec![0; flows], Phase::Running);
    let (telling, renew_at) = (telling_there, Instant::ZERO);
    Ok((receiving, SendingDrive { half, end: there, taken, drain, phase, told, telling, renew_at }))
}

/// The receiving half. It gives the account of both halves: what the other half reported some time ago, and its own
/// current state, so that every set is found on one side or between them.
pub struct ReceivingDrive<R: Receiver, S: Sender> {
    half: Receiving<R, S>,
    end: End,
    /// Number of sets of each flow that were passed on.
    handed: Vec<u64>,
    drain: Duration,
    phase: Phase,
    /// The report of the other half.
    told: Notice<GatewayReport>,
    notice: Notice<GatewayReport>,
    telling: Telling,
    renew_at: Instant,
}

impl<R: Receiver, S: Sender> ReceivingDrive<R, S> {
    /// Returns the receiving half of the state machine, for observers.
    pub const fn machine(&self) -> &machine::Receiver {
        self.half.machine()
    }

    /// Returns the use of each input's memory, for observers.
    pub fn memory_in_use(&mut self) -> impl Iterator<Item = MemoryInUse> {
        self.half.memory_in_use()
    }

    /// Returns, while its thread would sleep, whether something has woken it. For callers that turn it without a
    /// thread, after [`Drive::prepare_wait`].
    pub fn is_woken(&mut self) -> bool {
        self.end.has_rung() || !self.half.prepare_wait()
    }

    /// Returns the gateway's report, of both halves.
    pub fn notice(&self) -> Notice<GatewayReport> {
        self.notice.clone()
    }

    fn take_back(&mut self) -> usize {
        let Self { half, end, .. } = self;
        core::iter::from_fn(|| end.take()).map(|set| half.give_back(set)).count()
    }

    fn hand_over(&mut self) -> usize {
        let mut count = 0;
        while let Some(set) = self.half.take_set() {
            self.handed[usize::from(set.flow())] += u64::from(!is_planted(Flaw::HandoverUncounted));
            self.end.give(set);
            count += 1;
        }
        if count > 0 {
            self.end.ring();
        }
        count
    }

    fn end(&mut self, now: Instant) {
        match self.phase {
            // The other half closes first only if its thread panicked. Nothing is returned from there any more.
            Phase::Running | Phase::Draining(_) if self.end.is_closed() => self.close(now),
            Phase::Running => {
                if self.half.have_stopped(now) {
                    self.end.set_draining();
                    self.phase = Phase::Draining(now.after(self.drain));
                }
            }
            Phase::Draining(until) => {
                let is_empty = (self.half.is_empty() && self.half.is_quiet(now)) || is_planted(Flaw::ClosedTooEarly);
                if now >= until || is_empty {
                    self.close(now);
                }
            }
            Phase::Closing(until) => {
                // The other half closes after it has returned everything and made its last report.
                if self.end.is_closed() && (self.half.has_told() || now >= until) {
                    self.take_back();
                    self.phase = Phase::Over;
                    self.renew(now);
                }
            }
            Phase::Over => {}
        }
    }

    /// Stops receiving: incomplete sets are passed on as they are, and nothing after them.
    fn close(&mut self, now: Instant) {
        self.half.close(now);
        self.hand_over();
        self.end.close();
        self.phase = Phase::Closing(now.after(self.drain));
    }

    fn renew(&mut self, now: Instant) {
        self.renew_at = self.half.renews(now);
        let Self { half, handed, told, notice, phase, .. } = self;
        let is_over = *phase == Phase::Over;
        notice.renew(|report| {
            // The other half's report first: everything in it was passed on before.
            told.renew(|told| report.take_sent(told));
            half.report(report, is_over, now);
            for (known, handed) in report.flows.iter_mut().zip(handed) {
                known.unclaimed += *handed - known.claimed;
            }
            // The other half may end first.
            report.at = if *phase == Phase::Running { report.at.map(|at| at.min(now)) } else { Some(now) };
            report.is_over = is_over;
        });
    }
}

impl<R: Receiver, S: Sender> Drive for ReceivingDrive<R, S> {
    fn turn(&mut self, now: Instant) -> usize {
        self.end.wake();
        let mut work = if self.phase.receives() { self.half.receive(now) } else { 0 };
        work += self.take_back();
        self.half.on_time(self.end.has_nodes(), now);
        work += self.hand_over() + self.half.tell(now) + self.half.flush(now);
        self.end(now);
        if now >= self.renew_at {
            self.renew(now);
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.half.next_deadline().min(self.renew_at))
    }

    fn prepare_wait(&mut self) -> bool {
        let may_sleep = self.half.prepare_wait();
        self.end.fall_asleep() && may_sleep
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.half.wait_descriptors(into);
        into.push(self.end.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Over
    }

    fn tell(&self, _now: Instant, page: &mut NodePage) {
        self.telling.stands(self.phase, page);
        self.notice.look(|report| self.telling.tell(report, page));
    }
}

/// The sending half.
pub struct SendingDrive<L: Link, S: Sender> {
    half: Sending<L, S>,
    end: End,
    /// Number of sets of each flow that were taken.
    taken: Vec<u64>,
    drain: Duration,
    phase: Phase,
    /// Its report to the other half.
    told: Notice<GatewayReport>,
    telling: Telling,
    renew_at: Instant,
}

impl<L: Link, S: Sender> SendingDrive<L, S> {
    /// Returns the sending half of the state machine, for observers.
    pub const fn machine(&self) -> &machine::Sender {
        self.half.machine()
    }

    /// Returns, while its thread would sleep, whether something has woken it. For callers that turn it without a
    /// thread, after [`Drive::prepare_wait`].
    pub fn is_woken(&mut self) -> bool {
        self.end.has_rung() || !self.half.prepare_wait()
    }

    /// Begins the run: enters its directory.
    pub fn begin(&mut self, now: Instant) {
        self.half.begin(now);
    }

    fn take_over(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(set) = self.end.take() {
            self.taken[usize::from(set.flow())] += 1;
            self.half.on_set(set, now);
            count += 1;
        }
        count
    }

    fn give_back(&mut self) {
        let mut count = 0;
        while let Some(set) = self.half.take_empty() {
            self.end.give(set);
            count += 1;
        }
        if count > 0 {
            self.end.ring();
        }
    }

    fn renew(&mut self, now: Instant) {
        self.renew_at = self.half.renews(now);
        let Self { half, taken, told, .. } = self;
        told.renew(|report| {
            report.at = Some(now);
            half.report(report);
            report.flows.iter_mut().zip(taken).for_each(|(known, taken)| known.claimed = *taken);
        });
    }
}

impl<L: Link, S: Sender> Drive for SendingDrive<L, S> {
    fn turn(&mut self, now: Instant) -> usize {
        self.end.wake();
        if self.phase == Phase::Running && (self.end.is_draining() || self.end.is_closed()) {
            self.phase = Phase::Draining(now);
            self.half.drain(now);
        }
        // Checked before the queue is read: nothing follows the closing.
        if matches!(self.phase, Phase::Draining(_)) && self.end.is_closed() {
            self.phase = Phase::Closing(now.after(self.drain));
        }
        let mut work = self.half.hear(now);
        self.half.on_time(now);
        work += self.take_over(now) + self.half.push(now) + self.half.tell(now) + self.half.store(now);
        work += self.half.flush(now);
        self.end.set_has_nodes(self.half.has_nodes());
        self.give_back();
        if let Phase::Closing(until) = self.phase
            && self.half.finish(until, now)
        {
            self.phase = Phase::Over;
            self.renew(now);
            self.end.close();
        } else if now >= self.renew_at {
            self.renew(now);
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.half.next_deadline().min(self.renew_at))
    }

    fn prepare_wait(&mut self) -> bool {
        let may_sleep = self.half.prepare_wait();
        self.end.fall_asleep() && may_sleep
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.half.wait_descriptors(into);
        into.push(self.end.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Over
    }

    fn tell(&self, _now: Instant, page: &mut NodePage) {
        // The other half gives the account of both.
        self.telling.stands(self.phase, page);
    }
}

/// State that one end publishes to the other one in addition to its sets.
#[derive(Debug, Default)]
struct Word {
    /// Whether nothing more will be given.
    is_closed: AtomicBool,
    /// Whether a node is connected.
    has_nodes: AtomicBool,
    /// Whether every flow has stopped.
    is_draining: AtomicBool,
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct End {
    to: Producer<EventSet>,
    from: Consumer<EventSet>,
    own_bell: Arc<Doorbell>,
    other_bell: Arc<Doorbell>,
    own_word: Arc<Word>,
    other_word: Arc<Word>,
    /// The other end's state when this turn began: closed, nodes, draining.
    seen: (bool, bool, bool),
    /// Whether it announced that it sleeps.
    is_asleep: bool,
}

/// Creates a line with room for all sets of the gateway, `sets`, in each direction.
pub(super) fn line(sets: usize) -> io::Result<(End, End)> {
    let ((to_there, from_here), (to_here, from_there)) = (RingBuffer::new(sets), RingBuffer::new(sets));
    let bells = [Arc::new(Doorbell::new()?), Arc::new(Doorbell::new()?)];
    let words = [Arc::<Word>::default(), Arc::<Word>::default()];
    let end = |to, from, own: usize| End {
        to,
        from,
        own_bell: Arc::clone(&bells[own]),
        other_bell: Arc::clone(&bells[1 - own]),
        own_word: Arc::clone(&words[own]),
        other_word: Arc::clone(&words[1 - own]),
        seen: (false, false, false),
        is_asleep: false,
    };
    Ok((end(to_there, from_there, 0), end(to_here, from_here, 1)))
}

impl End {
    /// Gives the other end a set. To be followed by [`End::ring`].
    pub(super) fn give(&mut self, set: EventSet) {
        self.to.push(set).expect("there is room for all sets that there are");
    }

    /// Wakes the other end if it sleeps.
    pub(super) fn ring(&self) {
        if !is_planted(Flaw::BellForgotten) {
            self.other_bell.notify();
        }
    }

    /// Returns the next set that the other end gave.
    pub(super) fn take(&mut self) -> Option<EventSet> {
        self.from.pop().ok()
    }

    /// Closes this end: everything was given.
    pub(super) fn close(&self) {
        self.own_word.is_closed.store(true, Ordering::Release);
        self.ring();
    }

    /// Returns whether the other end has closed: everything it gave is available.
    pub(super) fn is_closed(&self) -> bool {
        self.other_word.is_closed.load(Ordering::Acquire)
    }

    /// Tells the other end whether a node is connected.
    fn set_has_nodes(&self, has_nodes: bool) {
        if !has_nodes && is_planted(Flaw::NodesGoneUntold) {
            return;
        }
        if self.own_word.has_nodes.swap(has_nodes, Ordering::Relaxed) != has_nodes {
            self.ring();
        }
    }

    /// Returns whether a node is connected, according to the other end.
    pub(super) fn has_nodes(&self) -> bool {
        self.other_word.has_nodes.load(Ordering::Relaxed)
    }

    /// Tells the other end that every flow has stopped.
    fn set_draining(&self) {
        self.own_word.is_draining.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Returns whether every flow has stopped, according to the other end.
    fn is_draining(&self) -> bool {
        self.other_word.is_draining.load(Ordering::Relaxed)
    }

    /// Returns the other end's published state.
    fn said(&self) -> (bool, bool, bool) {
        (self.is_closed(), self.has_nodes(), self.is_draining())
    }

    /// Prepares the thread's sleep. Returns false if a set is available, or the other end's state has changed since
    /// this turn began.
    fn fall_asleep(&mut self) -> bool {
        self.own_bell.arm();
        self.is_asleep = true;
        // Checked again after arming the bell: the other end rings for anything that it hands over or publishes later.
        self.from.is_empty() && self.said() == self.seen
    }

    /// Begins the turn of the awake thread.
    pub(super) fn wake(&mut self) {
        self.seen = self.said();
        if core::mem::take(&mut self.is_asleep) {
            self.own_bell.disarm();
            self.own_bell.silence();
        }
    }

    /// Returns whether the other end has rung since this one fell asleep.
    fn has_rung(&self) -> bool {
        self.own_bell.has_rung()
    }

    /// Returns a descriptor that becomes readable when the other end has rung.
    pub(super) fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.own_bell.descriptor()
    }
}

impl Drop for End {
    /// Closes the line even if the thread panicked without a notice: the other half must not wait for it.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventOutput;
    use crate::gateway::{Datagrams, Gathering, OrderBoard};
    use ropewalk_flow::filter::Streams;
    use ropewalk_flow::gateway::{Address, FarmConfig, FlowConfig, GatewayConfig, PacketSource};
    use ropewalk_io::packet::simulated::{PacketFaults, PacketNetwork, SimulatedReceiver, SimulatedSender};
    use ropewalk_io::packet::{Flow, ReceiveConfig, SendConfig};
    use ropewalk_memory::{Pool, PoolConfig, Staging};
    use ropewalk_terms::{RunNumber, SourceId, Utc};
    use ropewalk_wire::mep::encode_mep;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::gateway::link::send_bytes;

    type Parts = Halves<SimulatedReceiver, Datagrams<SimulatedReceiver, SimulatedSender>, SimulatedSender>;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn memory() -> Pool {
        Pool::new_untouched(PoolConfig::heap("halves", 4096, 16)).expect("a little memory")
    }

    const fn place(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    /// Returns a gateway of one source without any data, which ends when `is_over` is set.
    fn gateway(network: &PacketNetwork, is_over: &Arc<AtomicBool>) -> Parts {
        gateway_with(network, is_over, Arc::default())
    }

    /// Returns the same gateway, with this board.
    fn gateway_with(network: &PacketNetwork, is_over: &Arc<AtomicBool>, orders: Arc<OrderBoard>) -> Parts {
        let hears = |port| network.receiver(ReceiveConfig::new(Flow::Udp, place(port)), memory()).expect("it is free");
        let speaks = || network.sender(SendConfig::new(Flow::Udp, place(3)), Staging::new(memory()));
        let source = PacketSource { id: SourceId(1), address: Address::of(Ipv4Addr::LOCALHOST) };
        let flows = vec![FlowConfig::new(vec![source], 4)];
        let config = GatewayDriveConfig {
            machine: GatewayConfig::new(0, flows, FarmConfig::new(1)),
            gathering: Gathering::Iovec,
            triggers: vec![None],
            requests: false,
            run: RunNumber(1),
            epoch: Utc(0),
            gates: vec![None],
            is_held: Arc::default(),
            orders,
            histograms: Notice::default(),
            is_over: Arc::clone(is_over),
            drain: Duration::from_secs(1),
            batch: 64,
            memory: 1 << 16,
            evacuate_above: 90,
        };
        let evacuated = Staging::new(memory());
        let receiving = ReceivingParts { inputs: vec![hears(1)], triggers: speaks(), board: None, evacuated };
        let farm = Datagrams { receiver: hears(2), sender: speaks() };
        let heads = Staging::new(memory());
        let sending = SendingParts {
            farm,
            triggers: speaks(),
            readers: vec![None],
            heads,
            tap: None,
            lumisections: None,
            output: EventOutput::of_farm(None, Streams::everything()),
        };
        halves(config, receiving, sending).expect("it can be")
    }

    #[test]
    fn each_half_ends_when_the_other_one_is_gone_without_a_word() {
        let (network, is_over) = (PacketNetwork::new(1, PacketFaults::default()), Arc::default());
        let (mut receiving, mut sending) = gateway(&network, &is_over);
        for now in 0..300 {
            receiving.turn(at(now));
            sending.turn(at(now));
        }
        assert!(!receiving.is_done() && !sending.is_done(), "they were not stopped");
        drop(sending);
        for now in 300..310 {
            receiving.turn(at(now));
        }
        assert!(receiving.is_done() && receiving.notice().read().is_over);

        let network = PacketNetwork::new(1, PacketFaults::default());
        let (receiving, mut sending) = gateway(&network, &is_over);
        drop(receiving);
        for now in 0..10 {
            sending.turn(at(now));
        }
        assert!(sending.is_done());
    }

    #[test]
    fn a_gateway_reports_as_often_as_configured() {
        let (network, is_over) = (PacketNetwork::new(1, PacketFaults::default()), Arc::default());
        for (interval, told) in [(None, vec![0, 50, 100, 150, 200, 250]), (Some(100), vec![0, 100, 200])] {
            let orders = Arc::<OrderBoard>::default();
            interval.into_iter().for_each(|interval| orders.set_interval(Duration::from_millis(interval)));
            let (mut receiving, mut sending) = gateway_with(&network, &is_over, orders);
            let mut times = Vec::new();
            let mut dead = None;
            for now in 0..300 {
                receiving.turn(at(now));
                sending.turn(at(now));
                // Without nodes its triggers are stopped, and each report gives the duration.
                let said = receiving.notice().read().dead;
                if dead.replace(said) != Some(said) {
                    times.push(now);
                }
            }
            assert_eq!(times, told);
        }
    }

    /// Nothing has arrived for a long time when the end is known, and the last packet is in flight.
    #[test]
    fn what_was_triggered_last_still_comes_after_a_long_silence() {
        let (network, is_over) = (PacketNetwork::new(1, PacketFaults::default()), Arc::<AtomicBool>::default());
        let (mut receiving, mut sending) = gateway(&network, &is_over);
        let mut source = network.sender(SendConfig::new(Flow::Udp, place(9)), Staging::new(memory()));
        let mut packet = Vec::new();
        encode_mep(0, 0, [[7; 8].as_slice(); 4].into_iter(), &mut packet).expect("it is short");
        for now in 0..1000 {
            is_over.store(now >= 500, Ordering::Relaxed);
            if now == 505 {
                send_bytes(&mut source, place(1), &packet, at(now)).expect("there is room");
                source.flush(at(now));
            }
            receiving.turn(at(now));
            sending.turn(at(now));
        }
        assert_eq!(receiving.machine().account(0).complete, 1, "{:?}", receiving.machine().account(0));
    }

    #[test]
    fn an_end_that_goes_without_a_word_has_closed_and_wakes_the_other_one() {
        let (mut here, there) = line(2).expect("bells");
        assert!(here.fall_asleep() && !here.has_rung() && !here.is_closed());
        drop(there);
        assert!(here.has_rung() && here.is_closed());
        here.wake();
        assert!(!here.has_rung());
    }

    #[test]
    fn what_is_said_between_a_turn_and_sleep_keeps_the_end_awake() {
        let (mut here, there) = line(2).expect("bells");
        here.wake();
        there.set_has_nodes(true);
        assert!(!here.has_rung() && !here.fall_asleep(), "an awake end is not rung");
        here.wake();
        assert!(here.has_nodes() && here.fall_asleep());
    }
}
