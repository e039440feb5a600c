//! The two ends of the cable: a source that sends prepared frames in turn, and a sink that receives them with one of
//! our receivers or a bare one, and works for a fixed time on each packet.

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

/// How fast.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Pace {
    /// As fast as it goes.
    Flood,
    /// This many packets a second, and never faster: what a source could not send in its time, because it was away, is
    /// not sent behind it, where it would come as a flood.
    Rate(f64),
    /// As fast as the sink takes them: at most this many are in flight.
    Window(u64),
}

/// A sender of frames.
pub(crate) struct Source {
    flood: Flood,
    payload: usize,
    frames: usize,
    next: usize,
    /// Keeps what is sent back from being answered.
    _home: Option<OwnedFd>,
}

/// Frames that the kernel is given at a time.
const BATCH: u64 = 32;
/// How long a source sleeps for which nothing is due.
const PAUSE: Duration = Duration::from_micros(30);
/// How long it waits for packets in flight before it counts them as lost: longer than any thread is away.
const LOST: Duration = Duration::from_millis(200);
/// What a source is late by at most, in packets: a pause and what comes together behind it.
const LATE: u64 = 4 * BATCH;
/// What has made no progress for this long when the time is over is taken for lost as well.
const STUCK: Duration = Duration::from_millis(20);

/// What happens between two looks.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct Sent {
    /// Packets that the kernel took, and that the sink counted meanwhile.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// The time it took.
    pub(crate) seconds: f64,
    /// Seconds of processor that the whole machine used in it.
    pub(crate) used_seconds: f64,
    /// Of them, those of the sink's processor.
    pub(crate) sink_seconds: f64,
    /// And those of all threads of this process, which are not those of the kernel's interrupts.
    pub(crate) process_seconds: f64,
    /// Packets that did not come.
    pub(crate) lost: u64,
}

impl Source {
    /// Lays frames ready, in the calling thread's namespace. `home` keeps the address that they come from.
    pub(crate) fn open(frames: &[Frame], home: Option<OwnedFd>) -> io::Result<Self> {
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        let payload = frames.first().map_or(0, |frame| frame.payload);
        Ok(Self { flood: Flood::open(CARD, &bytes)?, payload, frames: frames.len(), next: 0, _home: home })
    }

    /// Sends everything to a card that is not there from now on: it is lost as early as can be.
    pub(crate) fn go_astray(&mut self) {
        for index in 0..self.frames {
            self.flood.frame(index)[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        }
    }

    /// Sends for a while, and says what was sent and what the sink has counted in that time, the first `warm_up` left
    /// out.
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
    /// Taken for lost.
    gone: u64,
    /// Packets whose time passed while the source was away.
    left_out: u64,
    /// What had been taken when something was taken last, and when.
    progress: (u64, Instant),
}

impl Ledger {
    /// What did not come, so far as it is waited for.
    fn lost(&self, pace: Pace, sent: u64, taken: u64) -> u64 {
        let is_stuck = matches!(pace, Pace::Window(_)) && self.progress.1.elapsed() > STUCK;
        if is_stuck { sent - taken.min(sent) } else { self.gone }
    }

    /// How many may be sent now.
    fn due(&mut self, pace: Pace, sent: u64, taken: u64) -> u64 {
        match pace {
            Pace::Flood => BATCH,
            Pace::Rate(rate) => {
                let due = ((self.begin.elapsed().as_secs_f64() * rate) as u64).saturating_sub(sent + self.left_out);
                let late = LATE.max((PAUSE.as_secs_f64() * 4.0 * rate) as u64);
                self.left_out += due.saturating_sub(late);
                // Few at a time would cost a call each.
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

/// A receiver.
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

    /// Takes a batch and lets it go.
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

    /// Takes a batch and sends it back; only bare receivers do.
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

    /// Receives until it is over, and counts where others see it; with some work for each packet. Returns the seconds
    /// of processor that its thread has used since `is_over` was looked at first.
    pub(crate) fn run(&mut self, rig: &Rig, work: Work, received: &AtomicU64, is_over: &AtomicBool) -> f64 {
        self.drive(rig, received, is_over, |sink| {
            let came = sink.receive();
            work.spend(came);
            came
        })
    }

    /// The same, with work that is repeated until the end.
    pub(crate) fn drive(
        &mut self,
        rig: &Rig,
        received: &AtomicU64,
        is_over: &AtomicBool,
        mut turn: impl FnMut(&mut Self) -> u64,
    ) -> f64 {
        // Without the right to choose it must do as it is.
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

/// Sleeps until a receiver has something, or the time is over.
pub(crate) fn wait_for(receiver: &mut (dyn Receiver + Send), at_most: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !receiver.prepare_wait() {
        return;
    }
    let at_most = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    let Some(descriptor) = receiver.wait_descriptor() else { return };
    // With any result, the next step is to look.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_most));
}

/// What is done with a packet beside receiving it: arithmetic that takes a fixed time of processor, for time in which
/// another process has the processor is no work done.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Work {
    steps: u64,
}

impl Work {
    pub(crate) const NONE: Self = Self { steps: 0 };

    /// As many steps as take this long here.
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

/// Each step waits for the one before.
fn spend(steps: u64) {
    let mut number = black_box(1_u64);
    for _ in 0..steps {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(number);
}
