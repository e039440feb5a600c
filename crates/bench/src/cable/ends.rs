//! The two ends of the cable: a source that sends prepared frames in a cycle, and a sink that receives them with one of
//! our receivers or a bare one, and does fixed work for each packet.

use super::{Frame, Rig, SINK_CPU, SOURCE_CPU, Usage};
use ropewalk_io::packet::cable::CARD;
use ropewalk_io::packet::{Packet, Receiver};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::{BareReceiver, Flood, pin_to_cpu, process_cpu_seconds, thread_cpu_seconds};
use std::hint::black_box;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The pace of a source.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Pace {
    /// As fast as possible.
    Flood,
    /// This many packets a second at most. Packets that the source could not send in time, because it was descheduled,
    /// are dropped from the schedule: sent later, they would arrive as a burst.
    Rate(f64),
    /// As fast as the sink receives them: at most this many are in flight.
    Window(u64),
}

pub(crate) struct Source {
    flood: Flood,
    payload: usize,
    frames: usize,
    next: usize,
    /// Prevents the kernel from answering what is sent back.
    _home: Option<OwnedFd>,
}

/// Frames handed to the kernel at a time.
const BATCH: u64 = 32;
/// How long a source sleeps when nothing is due.
const PAUSE: Duration = Duration::from_micros(30);
/// After this time, packets in flight count as lost: longer than any thread is descheduled.
const LOST: Duration = Duration::from_millis(200);
/// Maximum backlog of a source, in packets: a pause, and what falls due together after it.
const LATE: u64 = 4 * BATCH;
/// At the end, packets in flight without progress for this long count as lost as well.
const STUCK: Duration = Duration::from_millis(20);

/// What happens between two readings.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct Sent {
    /// Packets that the kernel accepted, and that the sink counted meanwhile.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// The elapsed time.
    pub(crate) seconds: f64,
    /// Processor seconds that the whole machine used in it.
    pub(crate) used_seconds: f64,
    /// Of these, the seconds of the sink's processor.
    pub(crate) sink_seconds: f64,
    /// And those of all threads of this process, without the kernel's interrupts.
    pub(crate) process_seconds: f64,
    /// Packets that did not arrive.
    pub(crate) lost: u64,
}

impl Source {
    /// Prepares frames, in the calling thread's namespace. `home` keeps their source address.
    pub(crate) fn open(frames: &[Frame], home: Option<OwnedFd>) -> io::Result<Self> {
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        let payload = frames.first().map_or(0, |frame| frame.payload);
        Ok(Self { flood: Flood::open(CARD, &bytes)?, payload, frames: frames.len(), next: 0, _home: home })
    }

    /// From now on, addresses everything to a card that does not exist, so that it is lost as early as possible.
    pub(crate) fn go_astray(&mut self) {
        for index in 0..self.frames {
            self.flood.frame(index)[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        }
    }

    /// Sends for `warm_up` and then `duration`. Returns what was sent, and what the sink counted, in `duration`.
    pub(crate) fn run(
        &mut self,
        pace: Pace,
        warm_up: Duration,
        duration: Duration,
        received: &AtomicU64,
        prepare: &mut dyn FnMut(usize, &mut [u8]),
    ) -> io::Result<Sent> {
        let _ = pin_to_cpu(SOURCE_CPU);
        let first = self.flood.sent();
        let mut ledger = Ledger { begin: Instant::now(), gone: 0, left_out: 0, progress: (0, Instant::now()) };
        let mut from = None;
        loop {
            let (passed, taken) = (ledger.begin.elapsed(), received.load(Ordering::Relaxed));
            let sent = self.flood.sent() - first;
            if passed >= warm_up && from.is_none() {
                from = Some((sent, taken, passed, Usage::look(), process_cpu_seconds()));
            }
            if let Some((sent_before, taken_before, at, usage, process)) = &from
                && passed >= *at + duration
            {
                let now = Usage::look();
                return Ok(Sent {
                    sent: sent - sent_before,
                    received: taken - taken_before,
                    seconds: (passed - *at).as_secs_f64(),
                    used_seconds: now.used_since(usage),
                    sink_seconds: now.used_by(SINK_CPU, usage),
                    process_seconds: process_cpu_seconds() - process,
                    lost: ledger.lost(pace, sent, taken),
                });
            }
            match ledger.due(pace, sent, taken) {
                0 => std::thread::sleep(PAUSE),
                due => self.send(due.min(BATCH), prepare)?,
            }
        }
    }

    fn send(&mut self, count: u64, prepare: &mut dyn FnMut(usize, &mut [u8])) -> io::Result<()> {
        for _ in 0..count {
            let index = self.next;
            prepare(index, &mut self.flood.frame(index)[self.payload..]);
            if !self.flood.put(index) {
                break;
            }
            self.next = if index + 1 == self.frames { 0 } else { index + 1 };
        }
        self.flood.flush()
    }
}

/// Packets in flight.
struct Ledger {
    begin: Instant,
    /// Packets counted as lost.
    gone: u64,
    /// Packets whose time passed while the source was away.
    left_out: u64,
    /// The sink's count when it last changed, and when that was.
    progress: (u64, Instant),
}

impl Ledger {
    /// The number of lost packets, as far as they are waited for.
    fn lost(&self, pace: Pace, sent: u64, taken: u64) -> u64 {
        let is_stuck = matches!(pace, Pace::Window(_)) && self.progress.1.elapsed() > STUCK;
        if is_stuck { sent - taken.min(sent) } else { self.gone }
    }

    /// The number of packets that may be sent now.
    fn due(&mut self, pace: Pace, sent: u64, taken: u64) -> u64 {
        match pace {
            Pace::Flood => BATCH,
            Pace::Rate(rate) => {
                let due = ((self.begin.elapsed().as_secs_f64() * rate) as u64).saturating_sub(sent + self.left_out);
                let late = LATE.max((PAUSE.as_secs_f64() * 4.0 * rate) as u64);
                self.left_out += due.saturating_sub(late);
                // A small batch would cost a call for few packets.
                Some(due.min(late)).filter(|due| *due >= BATCH / 2).unwrap_or(0)
            }
            Pace::Window(most) => {
                if taken != self.progress.0 {
                    self.progress = (taken, Instant::now());
                }
                let on_its_way = (sent - self.gone).saturating_sub(taken);
                if on_its_way > 0 && on_its_way >= most && self.progress.1.elapsed() > LOST {
                    self.gone += on_its_way;
                    return BATCH;
                }
                Some(most.saturating_sub(on_its_way)).filter(|room| *room >= BATCH.min(most)).unwrap_or(0)
            }
        }
    }
}

pub(crate) enum Sink {
    Ours(Box<dyn Receiver + Send>, Vec<Packet>),
    Bare(BareReceiver),
}

impl Sink {
    pub(crate) fn ours(receiver: Box<dyn Receiver + Send>) -> Self {
        Self::Ours(receiver, Vec::with_capacity(1024))
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        match self {
            Self::Ours(receiver, _) => receiver.address_v4(),
            Self::Bare(receiver) => receiver.address(),
        }
    }

    /// Receives a batch and drops it.
    fn receive(&mut self) -> u64 {
        match self {
            Self::Ours(receiver, packets) => {
                let came = receiver.receive(MonotonicClock.now(), packets);
                packets.clear();
                came as u64
            }
            Self::Bare(receiver) => receiver.receive(),
        }
    }

    /// Receives a batch and sends it back; only bare receivers do.
    pub(crate) fn echo(&mut self) -> u64 {
        match self {
            Self::Ours(..) => 0,
            Self::Bare(receiver) => receiver.echo(),
        }
    }

    fn wait(&mut self, at_most: Duration) {
        match self {
            Self::Ours(receiver, _) => wait_for(&mut **receiver, at_most),
            Self::Bare(receiver) => receiver.wait(at_most),
        }
    }

    /// Receives until `is_over`, adds each batch to the shared count, and does some work for each packet. Returns the
    /// processor seconds that its thread has used since the first check of `is_over`.
    pub(crate) fn run(&mut self, rig: &Rig, work: Work, received: &AtomicU64, is_over: &AtomicBool) -> f64 {
        self.drive(rig, received, is_over, |sink| {
            let came = sink.receive();
            work.spend(came);
            came
        })
    }

    /// The same, with a work function that is called until the end.
    pub(crate) fn drive(
        &mut self,
        rig: &Rig,
        received: &AtomicU64,
        is_over: &AtomicBool,
        mut turn: impl FnMut(&mut Self) -> u64,
    ) -> f64 {
        // Without permission the thread runs unpinned.
        let _ = pin_to_cpu(SINK_CPU);
        let (pause, is_woken) = rig.patience();
        let begin = thread_cpu_seconds();
        while !is_over.load(Ordering::Relaxed) {
            match turn(self) {
                0 if is_woken => self.wait(pause),
                0 => std::thread::sleep(pause),
                came => drop(received.fetch_add(came, Ordering::Relaxed)),
            }
        }
        thread_cpu_seconds() - begin
    }
}

/// Sleeps until a receiver has packets, or for `at_most`.
pub(crate) fn wait_for(receiver: &mut (dyn Receiver + Send), at_most: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !receiver.prepare_wait() {
        return;
    }
    let at_most = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    let Some(descriptor) = receiver.wait_descriptor() else { return };
    // The result does not matter: the caller looks again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_most));
}

/// Work on a packet besides receiving it: arithmetic that takes a fixed processor time. A fixed elapsed time would
/// count time in which another process has the processor.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Work {
    steps: u64,
}

impl Work {
    pub(crate) const NONE: Self = Self { steps: 0 };

    /// As many steps as take this long on this machine.
    pub(crate) fn of(each: Duration) -> Self {
        const STEPS: u64 = 1 << 20;
        let best = (0..5).map(|_| {
            let begin = thread_cpu_seconds();
            spend(STEPS);
            thread_cpu_seconds() - begin
        });
        let seconds = best.fold(f64::INFINITY, f64::min).max(1e-9);
        Self { steps: (each.as_secs_f64() / seconds * STEPS as f64) as u64 }
    }

    fn spend(self, packets: u64) {
        spend(self.steps * packets);
    }
}

/// Each step depends on the one before.
fn spend(steps: u64) {
    let mut number = black_box(1_u64);
    for _ in 0..steps {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(number);
}
