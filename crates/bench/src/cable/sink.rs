//! The receiving side: a receiver of ours or a bare one, with some work for each packet.

use std::hint::black_box;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_io::packet::{Packet, Receiver};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::{BareReceiver, pin_to_cpu, thread_cpu_seconds};

use super::{Rig, SINK_CPU};

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

    /// Receives until it is over, and counts where others see it; with some work for each packet. Returns the seconds of
    /// processor that its thread has used since `is_over` was looked at first.
    pub(crate) fn run(&mut self, rig: &Rig, work: Work, received: &AtomicU64, is_over: &AtomicBool) -> f64 {
        self.drive(rig, received, is_over, |sink| {
            let came = sink.receive();
            work.spend(came);
            came
        })
    }

    /// The same with what is to be done again and again until it is over.
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
