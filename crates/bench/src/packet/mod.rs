//! `bench packet`: how many packets come over each way to receive them (paper 2), and what a packet costs (paper 1, Figs. 5
//! and 6).
//!
//! ```text
//!  figure=6        received, of what the sender can send at most, against the frame's size                rates.rs
//!  figure=stumble  received, at a fifth to three times what the receiver can take; and at the lowest      stumble.rs
//!  figure=loss     what is lost at 90 % of that, for a minute                                              stumble.rs
//!  figure=cost     time of processor for a packet, of the whole machine                                   cost.rs
//! ```
//! No sender here is as fast as rings receive. So each packet costs its receiver a fixed time of work, as an event
//! builder would, and the kernel's part of receiving is done on the receiver's processor: `kernel=interrupt` before
//! everything else, as cards do it, or `kernel=thread`, behind the receiver.

mod cost;
mod rates;
mod stumble;

use crate::cable::{Kernel, Mechanism, Pace, Rig, Sink, Source, Traffic, Work};
use crate::session::{Session, case};
use crate::{BenchError, Scale};
use serde_json::{Map, Value, json};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use crate::cable::Sent;

/// What the receiver does with a packet beside receiving it: more than twice the time in which the sender sends one.
const WORK: Duration = Duration::from_micros(3);

/// Frames of a source, which all look alike.
const READY: usize = 256;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    rates::bench(session)?;
    stumble::bench(session)?;
    stumble::loss(session)?;
    cost::bench(session)
}

/// What a card of these days takes at once.
const MTU: u32 = 1500;

/// A case of this bench.
fn describe(figure: &str, kernel: Kernel, traffic: Traffic) -> Map<String, Value> {
    case([
        ("figure", json!(figure)),
        ("kernel", json!(kernel.name())),
        ("mechanism", json!(traffic.mechanism.name())),
        ("payload_bytes", json!(traffic.bytes)),
    ])
}

/// How long a figure is measured, and the time before.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 120, 500));
    (duration / 4, duration)
}

/// Who takes part in a measurement.
struct Pair {
    sink: Sink,
    source: Source,
}

impl Pair {
    fn ours(rig: &Rig, traffic: Traffic) -> Result<Self, BenchError> {
        let sink = rig.ours(traffic.mechanism)?;
        Ok(Self { source: rig.source(traffic, READY, sink.address())?, sink })
    }

    fn bare(rig: &Rig, traffic: Traffic) -> Result<Self, BenchError> {
        let sink = rig.bare(traffic.mechanism)?;
        Ok(Self { source: rig.source(traffic, READY, sink.address())?, sink })
    }

    /// Sends and receives for a while.
    fn run(
        &mut self,
        rig: &Rig,
        pace: Pace,
        work: Work,
        (warm_up, duration): (Duration, Duration),
    ) -> Result<Sent, BenchError> {
        self.turn(rig, work, |source, received| source.run(pace, warm_up, duration, received, &mut |_, _| {}))
    }

    /// The same, all of which is waited for: what is not received then is lost.
    fn run_to_the_end(&mut self, rig: &Rig, pace: Pace, work: Work, duration: Duration) -> Result<Sent, BenchError> {
        self.turn(rig, work, |source, received| {
            let before = settled(received);
            let sent = source.run(pace, Duration::ZERO, duration, received, &mut |_, _| {})?;
            Ok(Sent { received: settled(received) - before, ..sent })
        })
    }

    /// The sink receives while something is done with the source.
    fn turn(
        &mut self,
        rig: &Rig,
        work: Work,
        what: impl FnOnce(&mut Source, &AtomicU64) -> io::Result<Sent> + Send,
    ) -> Result<Sent, BenchError> {
        let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let Self { sink, source } = self;
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| sink.run(rig, work, &received, &is_over));
            let sent = scope.spawn(|| what(source, &received)).join();
            is_over.store(true, Ordering::Relaxed);
            let panicked = |_| BenchError::wrong("a thread of the bench panicked");
            receiving.join().map_err(panicked)?;
            sent.map_err(panicked)?.map_err(BenchError::system("sending packets"))
        })
    }
}

/// What was received when nothing has come for a while.
fn settled(received: &AtomicU64) -> u64 {
    const QUIET: Duration = Duration::from_millis(300);
    let mut seen = received.load(Ordering::Relaxed);
    loop {
        std::thread::sleep(QUIET);
        match received.load(Ordering::Relaxed) {
            same if same == seen => return same,
            more => seen = more,
        }
    }
}

/// Packets a second that were received.
fn rate(sent: &Sent) -> f64 {
    sent.received as f64 / sent.seconds
}

/// The part of what was sent that came.
fn kept(sent: &Sent) -> f64 {
    sent.received as f64 / (sent.sent as f64).max(1.0)
}

/// Whether GRO has something to put together is decided by the kernel's thread alone.
fn is_possible(kernel: Kernel, mechanism: Mechanism) -> bool {
    kernel == Kernel::Thread || mechanism != Mechanism::Gro
}
