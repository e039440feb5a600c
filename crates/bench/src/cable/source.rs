//! The sending side: prepared frames, one after the other.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_io::packet::cable::CARD;
use ropewalk_limits::{Flood, pin_to_cpu, process_cpu_seconds};

use super::{Frame, SINK_CPU, SOURCE_CPU, Usage};

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

    /// Sends for a while, and says what was sent and what the sink has counted in that time, the first `warm_up` left out.
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
