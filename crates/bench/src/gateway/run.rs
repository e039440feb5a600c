//! A gateway at work: its source has a window, so that it gets as much as it can receive, and no packet is lost.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_engine::gateway::{
    Datagrams, GatewayDrive, GatewayDriveConfig, GatewayReport, Link, Notice, ReceivingParts, SendingParts, halves,
};
use ropewalk_engine::{Drive, EventOutput};
use ropewalk_flow::filter::Streams;
use ropewalk_flow::gateway::{Address, FarmConfig, Gateway, GatewayConfig, Receiver as Building};
use ropewalk_io::packet::cable::{SINK, SOURCE};
use ropewalk_io::packet::{
    Flow, MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, SendConfig, SocketSender, over_v4,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::{deaf, pin_to_cpu, schedule};
use ropewalk_terms::{Instant, RunNumber, Utc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::farm::{AtOnce, LIFE, NODES, Nodes, datagrams};
use super::setup::{Architecture, Priority, Setup, Towards, staging};
use crate::BenchError;
use crate::cable::{Kernel, Pace, Rig, SINK_CPU, Sent, Sink, Source, Traffic, Work, wait_for};

/// Packets in flight to a gateway: fewer than the kernel queues in front of IP, or at a card that has a thread.
const WINDOW: u64 = 800;
pub(super) const WINDOW_OF_CARD: u64 = 240;
/// Maximum batch of our receivers, in packets.
const BATCH: usize = 64;
/// Sets that a gateway has received and not yet decided.
const SETS: u64 = 8;
/// How often a figure with lost packets is repeated.
const TRIES: usize = 20;

/// The input rate, in payload of UDP or IP.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Intake {
    /// Gb/s.
    pub(super) rate: f64,
    /// Gb per busy second of the gateway's processor, for any thread: the rate if that processor were never idle.
    pub(super) rate_of_processor: f64,
    /// Processor seconds per 10^9 bytes, of all threads of this process: gateway, source and nodes.
    pub(super) process_seconds_per_gigabyte: f64,
}

impl Intake {
    fn of(sent: &Sent, bytes: usize) -> Self {
        let gigabits = sent.received as f64 * bytes as f64 * 8.0 / 1e9;
        // The kernel counts in hundredths of a second.
        Self {
            rate: gigabits / sent.seconds,
            rate_of_processor: gigabits / sent.sink_seconds.max(0.01),
            process_seconds_per_gigabyte: sent.process_seconds / (gigabits / 8.0).max(1e-9),
        }
    }

    /// The two figures of every row.
    pub(super) const fn rate_and_cost(&self) -> [f64; 2] {
        [self.rate, self.process_seconds_per_gigabyte]
    }
}

/// Repeats a measurement until no packet is lost.
fn lossless(bytes: usize, mut run: impl FnMut() -> Result<Sent, BenchError>) -> Result<Intake, BenchError> {
    for _ in 0..TRIES {
        let sent = run()?;
        if sent.lost == 0 && sent.received > 0 {
            return Ok(Intake::of(&sent, bytes));
        }
    }
    Err(BenchError::wrong("packets were lost each time"))
}

fn pace(rig: &Rig) -> Pace {
    Pace::Window(if rig.kernel == Kernel::Thread { WINDOW_OF_CARD } else { WINDOW })
}

/// Warm-up, and measured time of a figure.
pub(super) type Times = (Duration, Duration);

/// The input rate of a gateway.
pub(super) fn gateway(rig: &Rig, setup: &Setup, times: Times) -> Result<Intake, BenchError> {
    lossless(setup.packets.bytes(), || match setup.towards {
        Towards::Discard => building(rig, setup, times),
        _ => forwarding(rig, setup, times),
    })
}

/// The rate at which a bare loop of the same mechanism receives, or receives and sends back. Its source prepares and
/// numbers as many frames as the gateway's, because it is as close to its limit as the receiver.
pub(super) fn bare(rig: &Rig, setup: &Setup, times: Times, is_echo: bool) -> Result<Intake, BenchError> {
    let bytes = setup.packets.bytes();
    lossless(bytes, || {
        let mut sink = rig.bare(setup.receive)?;
        let traffic = Traffic { mechanism: setup.receive, bytes };
        let mut source = rig.source(traffic, setup.packets.ready(), sink.address())?;
        let run = |received: &AtomicU64, is_over: &AtomicBool| {
            if is_echo {
                sink.drive(rig, received, is_over, Sink::echo);
            } else {
                sink.run(rig, Work::NONE, received, is_over);
            }
        };
        measured(rig, &mut source, &mut setup.packets.numbered(), times, run, |_, _| {})
    })
}

/// Sends from the source while the gateway and its nodes work, each on its own thread.
fn measured(
    rig: &Rig,
    source: &mut Source,
    prepare: &mut (dyn FnMut(usize, &mut [u8]) + Send),
    (warm_up, duration): Times,
    gateway: impl FnOnce(&AtomicU64, &AtomicBool) + Send,
    nodes: impl FnOnce(&AtomicU64, &AtomicBool) + Send,
) -> Result<Sent, BenchError> {
    let (taken, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads = [scope.spawn(|| gateway(&taken, &is_over)), scope.spawn(|| nodes(&taken, &is_over))];
        let sent = scope.spawn(|| source.run(pace(rig), warm_up, duration, &taken, prepare)).join();
        is_over.store(true, Ordering::Relaxed);
        let panicked = |_| BenchError::wrong("a thread of the bench panicked");
        threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked))?;
        sent.map_err(panicked)?.map_err(BenchError::system("sending packets"))
    })
}

fn config(setup: &Setup) -> GatewayConfig {
    let nodes = if setup.towards == Towards::Nodes { NODES } else { 1 };
    let farm = FarmConfig { largest_push: setup.largest_push(), most_outstanding: 256, ..FarmConfig::new(nodes) };
    GatewayConfig { incarnation: LIFE, ..GatewayConfig::new(0, vec![setup.packets.flow(setup.receive.flow())], farm) }
}

/// Receives and builds sets of events, and drops them.
fn building(rig: &Rig, setup: &Setup, times: Times) -> Result<Sent, BenchError> {
    let (mut receiver, _) = rig.cable.sink.inside(|| setup.open()).map_err(BenchError::wrong)?;
    let mut source = setup.packets.open(rig, setup.receive.flow(), &[receiver.address_v4()])?;
    let (mut building, _) = Gateway::new(&config(setup)).map_err(BenchError::wrong)?.split();
    let work =
        |taken: &AtomicU64, is_over: &AtomicBool| build(rig, setup, &mut *receiver, &mut building, taken, is_over);
    let beside = |_: &AtomicU64, is_over: &AtomicBool| compute(setup, is_over);
    let sent = measured(rig, &mut source, &mut setup.packets.numbered(), times, work, beside)?;
    let account = building.account(0);
    if account.complete == 0 {
        return Err(BenchError::wrong(format!("no set is whole: {account:?}")));
    }
    Ok(Sent { lost: sent.lost + account.packets.dropped.total() + account.missing.total(), ..sent })
}

/// Computes on the gateway's processor at the usual priority, unless the gateway runs alone.
fn compute(setup: &Setup, is_over: &AtomicBool) {
    if setup.priority == Priority::Alone {
        return;
    }
    // Without permission the thread runs unpinned.
    let _ = (pin_to_cpu(SINK_CPU), schedule(None));
    while !is_over.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
}

fn build(
    rig: &Rig,
    setup: &Setup,
    receiver: &mut (dyn Receiver + Send),
    building: &mut Building,
    taken: &AtomicU64,
    is_over: &AtomicBool,
) {
    setup.place(false);
    let mut packets = Vec::with_capacity(1024);
    while !is_over.load(Ordering::Relaxed) {
        let now = MonotonicClock.now();
        let came = receiver.receive(now, &mut packets);
        for Packet { from, payload, .. } in packets.drain(..) {
            let from = over_v4(from);
            let from = Address { ip: *from.ip(), port: from.port() };
            let back = building.on_packet(0, from, payload, now);
            assert!(back.is_none(), "sets come back at once, so that there is one");
        }
        if came < BATCH {
            building.on_drained(0, now);
        }
        building.on_time(now);
        while let Some(set) = building.take_set() {
            building.give_back(set);
        }
        taken.fetch_add(came as u64, Ordering::Relaxed);
        match rig.patience() {
            (pause, true) if came == 0 => wait_for(receiver, pause),
            (pause, false) if came == 0 => std::thread::sleep(pause),
            _ => {}
        }
    }
}

/// Receives, builds, and sends events on.
fn forwarding(rig: &Rig, setup: &Setup, times: Times) -> Result<Sent, BenchError> {
    let counts = Counts::default();
    let home = rig.cable.source.inside(|| deaf(SocketAddrV4::new(SOURCE, 0), false));
    let home = home.map_err(BenchError::system("an address for events"))?;
    let queues = if setup.architecture == Architecture::TwoQueues { 2 } else { 1 };
    let (mut nodes, mut queue_addresses, mut notices, mut drives) = (None, Vec::new(), Vec::new(), Vec::new());
    for _ in 0..queues {
        let (receiver, sender) = rig.cable.sink.inside(|| setup.open()).map_err(BenchError::wrong)?;
        queue_addresses.push(receiver.address_v4());
        let farm: Farm = if setup.towards == Towards::Nodes {
            let control = rig.cable.sink.inside(|| datagrams(SINK, 2048)).map_err(BenchError::wrong)?;
            nodes = Some(Nodes::open(rig, control.address_v4())?);
            Box::new(Datagrams { receiver: control, sender })
        } else {
            let sender = Some(sender).filter(|_| setup.towards == Towards::Card);
            Box::new(AtOnce::new(sender, home.1, Arc::clone(&counts.decided)).map_err(BenchError::wrong)?)
        };
        let counted = Counted { receiver, received: Arc::clone(&counts.received) };
        let (own, notice) = rig.cable.sink.inside(|| drives_of(setup, counted, farm))?;
        drives.extend(own);
        notices.push(notice);
    }
    let mut source = setup.packets.open(rig, setup.receive.flow(), &queue_addresses)?;
    let mut drives = drives.into_iter();
    let (first, second) = (drives.next(), drives.next());
    let work = |taken: &AtomicU64, is_over: &AtomicBool| {
        setup.place(false);
        first.into_iter().for_each(|drive| turn(rig, drive, is_over, || counts.tell(setup, taken)));
    };
    let beside = |taken: &AtomicU64, is_over: &AtomicBool| {
        setup.place(true);
        second.into_iter().for_each(|drive| turn(rig, drive, is_over, || counts.tell(setup, taken)));
        nodes.iter_mut().for_each(|nodes| nodes.run(&counts.decided, is_over));
    };
    let sent = measured(rig, &mut source, &mut setup.packets.numbered(), times, work, beside)?;
    drop(home);
    Ok(Sent { lost: sent.lost + notices.iter().map(missed).sum::<u64>(), ..sent })
}

/// The counts of all queues of a gateway.
#[derive(Default)]
struct Counts {
    received: Arc<AtomicU64>,
    decided: Arc<AtomicU64>,
}

impl Counts {
    /// Stores what the source may count as received: at most `SETS` sets beyond what is decided.
    fn tell(&self, setup: &Setup, taken: &AtomicU64) {
        let (sources, packing) = (u64::from(setup.packets.sources), u64::from(setup.packets.packing));
        let done = self.decided.load(Ordering::Relaxed) * sources / packing;
        taken.fetch_max(self.received.load(Ordering::Relaxed).min(done + SETS * sources), Ordering::Relaxed);
    }
}

/// Packets that the gateway dropped or missed, and events decided by default or sent more than once.
fn missed(notice: &Notice<GatewayReport>) -> u64 {
    let report = notice.read();
    let (packets, events) = (&report.flows[0].packets, &report.flows[0].events);
    packets.packets.dropped.total() + packets.missing.total() + events.by_default + events.pushed_again
}

type Farm = Box<dyn Link + Send>;
type Drives = Vec<Box<dyn Drive + Send>>;

/// The drives of one input queue, one thread each, and their reports.
fn drives_of(setup: &Setup, input: Counted, farm: Farm) -> Result<(Drives, Notice<GatewayReport>), BenchError> {
    let triggers = || {
        let config = SendConfig::new(Flow::Udp, SocketAddrV4::new(SINK, 0));
        staging().and_then(|staging| SocketSender::new(config, staging)).map_err(BenchError::wrong)
    };
    let config = GatewayDriveConfig {
        machine: config(setup),
        gathering: setup.gathering,
        triggers: vec![None],
        requests: false,
        run: RunNumber(1),
        epoch: Utc(0),
        gates: vec![None],
        is_held: Arc::default(),
        orders: Arc::default(),
        histograms: Notice::default(),
        is_over: Arc::default(),
        drain: Duration::from_secs(1),
        batch: BATCH,
        memory: 64 << 20,
        evacuate_above: 75,
    };
    let evacuated = staging().map_err(BenchError::wrong)?;
    let receiving = ReceivingParts { inputs: vec![input], triggers: triggers()?, board: None, evacuated };
    let heads = staging().map_err(BenchError::wrong)?;
    let readers = vec![None];
    let sending = SendingParts {
        farm,
        triggers: triggers()?,
        readers,
        heads,
        tap: None,
        lumisections: None,
        output: EventOutput::of_farm(None, Streams::everything()),
    };
    if setup.architecture == Architecture::ProducerConsumer {
        let (receiving, sending) = halves(config, receiving, sending).map_err(BenchError::wrong)?;
        let notice = receiving.notice();
        return Ok((vec![Box::new(receiving), Box::new(sending)], notice));
    }
    let drive = GatewayDrive::new(config, receiving, sending).map_err(BenchError::wrong)?;
    let notice = drive.notice();
    Ok((vec![Box::new(drive)], notice))
}

/// Turns a drive until `is_over`, and calls `tell` after each turn.
fn turn(rig: &Rig, mut drive: Box<dyn Drive + Send>, is_over: &AtomicBool, tell: impl Fn()) {
    while !is_over.load(Ordering::Relaxed) {
        let work = drive.turn(MonotonicClock.now());
        tell();
        match rig.patience() {
            (pause, true) if work == 0 => sleep(&mut *drive, pause),
            (pause, false) if work == 0 => std::thread::sleep(pause),
            _ => {}
        }
    }
}

/// Sleeps until there is something to do, or for `at_most`.
fn sleep(drive: &mut dyn Drive, at_most: Duration) {
    if !drive.prepare_wait() {
        return;
    }
    let mut descriptors = Vec::with_capacity(4);
    drive.wait_descriptors(&mut descriptors);
    let mut watched: Vec<PollFd<'_>> =
        descriptors.into_iter().map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    let at_most = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    // The result does not matter: the caller looks again.
    let _ = poll(&mut watched, Some(&at_most));
}

/// A receiver with a shared count.
struct Counted {
    receiver: Box<dyn Receiver + Send>,
    received: Arc<AtomicU64>,
}

impl Receiver for Counted {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let came = self.receiver.receive(now, packets);
        self.received.fetch_add(came as u64, Ordering::Relaxed);
        came
    }

    fn address(&self) -> SocketAddr {
        self.receiver.address()
    }

    fn prepare_wait(&mut self) -> bool {
        self.receiver.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.receiver.next_deadline()
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.receiver.counters()
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.receiver.memory_in_use()
    }

    fn queue_in_use(&mut self) -> QueueInUse {
        self.receiver.queue_in_use()
    }
}
