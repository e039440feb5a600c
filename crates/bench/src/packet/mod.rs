//! `bench packet`: how many packets each receive mechanism takes (paper 2), and what a packet costs (paper 1, Figs. 5
//! and 6).
//!
//! ```text
//!  figure=6        received, of what the sender can send at most, against the frame's size
//!  figure=stumble  received, at a fifth to three times what the receiver can take; and at the lowest      stumble.rs
//!  figure=loss     what is lost at 90 % of that, for a minute                                              stumble.rs
//!  figure=cost     time of processor for a packet, of the whole machine
//! ```
//! No sender here is as fast as rings receive. So each packet costs its receiver fixed work, as in an event builder,
//! and the kernel's part of receiving runs on the receiver's processor: with `kernel=interrupt` at a higher priority,
//! as with cards, or with `kernel=thread` after the receiver.

mod stumble;

use crate::cable::{Kernel, Mechanism, Pace, Rig, Sent, Sink, Source, Traffic, Usage, Work};
use crate::pairs::{Series, alternate, take_turns};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use serde_json::{Map, Value, json};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The receiver's work per packet besides receiving it: more than twice the time in which the sender sends one.
const WORK: Duration = Duration::from_micros(3);

/// Prepared frames of a source, all alike.
const READY: usize = 256;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    rates(session)?;
    stumble::bench(session)?;
    stumble::loss(session)?;
    costs(session)
}

/// The usual MTU of a card.
const MTU: u32 = 1500;

fn describe(figure: &str, kernel: Kernel, traffic: Traffic) -> Map<String, Value> {
    case([
        ("figure", json!(figure)),
        ("kernel", json!(kernel.name())),
        ("mechanism", json!(traffic.mechanism.name())),
        ("payload_bytes", json!(traffic.bytes)),
    ])
}

/// Warm-up, and measured time of a figure.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 120, 500));
    (duration / 4, duration)
}

/// The two ends of a measurement.
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

    /// The same, but waits for all packets: those not received then are lost.
    fn run_to_the_end(&mut self, rig: &Rig, pace: Pace, work: Work, duration: Duration) -> Result<Sent, BenchError> {
        self.turn(rig, work, |source, received| {
            let before = settled(received);
            let sent = source.run(pace, Duration::ZERO, duration, received, &mut |_, _| {})?;
            Ok(Sent { received: settled(received) - before, ..sent })
        })
    }

    /// The sink receives while `what` runs with the source.
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

/// Waits until nothing has arrived for a while. Returns the number of received packets.
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

/// Received packets a second.
fn rate(sent: &Sent) -> f64 {
    sent.received as f64 / sent.seconds
}

/// The received share of the sent packets.
fn kept(sent: &Sent) -> f64 {
    sent.received as f64 / (sent.sent as f64).max(1.0)
}

/// Only with the kernel's thread does GRO have packets to coalesce.
fn is_possible(kernel: Kernel, mechanism: Mechanism) -> bool {
    kernel == Kernel::Thread || mechanism != Mechanism::Gro
}

/// Bytes of payload: from the shortest frame to the longest in paper 2's figure.
const RATE_SIZES: [usize; 5] = [18, 64, 256, 1024, 1472];

const RATES: &str = "received while as much is sent as the sender can, 3 us of work for each packet; limit: a bare receiver of the \
                     same mechanism, as much work; paper: recycled descriptors brought 40 % more of small packets";
const KEPT: &str = "of them, the part that was received; limit: of the bare receiver";
/// A receiver of at least this share of a flood could receive more.
const ALL_OF_IT: f64 = 0.98;

fn rates(session: &mut Session<'_>) -> Result<(), BenchError> {
    let work = Work::of(WORK);
    for kernel in Kernel::ALL {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            for bytes in session.options.scale.choose(&RATE_SIZES[..1], &[18, 1472][..], &RATE_SIZES[..]) {
                let traffic = Traffic { mechanism, bytes: *bytes };
                let case = describe("6", kernel, traffic);
                session.measure(&case, |session| match Rig::of_case(session, &case, kernel, MTU)? {
                    Some(rig) => measure_rates(session, &case, &rig, traffic, work),
                    None => Ok(()),
                })?;
            }
        }
    }
    Ok(())
}

fn measure_rates(
    session: &mut Session<'_>,
    case: &serde_json::Map<String, serde_json::Value>,
    rig: &Rig,
    traffic: Traffic,
    work: Work,
) -> Result<(), BenchError> {
    let times = times(session.options.scale);
    let figures = |pair: Result<Pair, BenchError>| {
        let sent = pair?.run(rig, Pace::Flood, work, times)?;
        Ok([rate(&sent), kept(&sent)])
    };
    let [rates, parts] = alternate(
        session.options.scale.pairs(),
        || figures(Pair::ours(rig, traffic)),
        || figures(Pair::bare(rig, traffic)),
    )?;
    // A flood may leave a receiver no time at all.
    session.row(Row::of(case, "packets/s", &rates, RATES).or_nothing())?;
    let kept = Row::of(case, "of 1", &parts, KEPT).or_nothing();
    let remark = (kept.median >= ALL_OF_IT)
        .then(|| "NOT SATURATED: what the sender can send is received; the rate is the sender's".to_owned());
    session.row(kept.with_remark(remark))
}

/// Bytes of payload.
const COST_SIZES: [usize; 3] = [18, 210, 1472];
/// Packets a second: few enough for every receiver.
const RATE: f64 = 150_000.0;

const COST: &str = "ns of processor for a packet, of the whole machine, without those of packets that are lost at the card; limit: a \
                    bare receiver of the same mechanism; paper 1: a raw socket takes 39.5 % of the processors, 35.5 % without its \
                    useless copy of each descriptor";
const RECYCLED: &str = "the same; limit: a raw socket of ours, for which the kernel makes and frees each packet; target: at most 0.5 \
                        up to 256 B";

fn costs(session: &mut Session<'_>) -> Result<(), BenchError> {
    // A quick run omits the kernel's thread.
    let kernels = session.options.scale.choose(&Kernel::ALL[..1], &Kernel::ALL[..1], &Kernel::ALL[..]);
    for &kernel in kernels {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            for bytes in session.options.scale.choose(&COST_SIZES[1..2], &COST_SIZES[1..2], &COST_SIZES[..]) {
                let traffic = Traffic { mechanism, bytes: *bytes };
                let case = describe("cost", kernel, traffic);
                session.measure(&case, |session| {
                    if session.options.scale != Scale::Tiny && is_busy() {
                        return session
                            .skip(&case, "others use the processors, whose idle time says what a packet costs");
                    }
                    match Rig::of_case(session, &case, kernel, MTU)? {
                        Some(rig) => measure_cost(session, &case, &rig, traffic),
                        None => Ok(()),
                    }
                })?;
            }
        }
    }
    Ok(())
}

/// Whether other programs use a quarter of a processor or more.
fn is_busy() -> bool {
    const MOMENT: Duration = Duration::from_millis(200);
    let before = Usage::look();
    std::thread::sleep(MOMENT);
    Usage::look().used_since(&before) > MOMENT.as_secs_f64() / 4.0
}

fn measure_cost(
    session: &mut Session<'_>,
    case: &Map<String, Value>,
    rig: &Rig,
    traffic: Traffic,
) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let times = cost_times(scale);
    let ours = || cost(rig, Pair::ours(rig, traffic), times);
    let bare = || cost(rig, Pair::bare(rig, traffic), times);
    let [cost_of_ours] = alternate(scale.pairs(), || Ok([ours()?]), || Ok([bare()?]))?;
    session.row(Row::of(case, "ns", &cost_of_ours, COST))?;
    if traffic.mechanism.recycles() {
        let sockets = Traffic { mechanism: Mechanism::RawIp, ..traffic };
        let raw = || cost(rig, Pair::ours(rig, sockets), times);
        let mut series = [Series::default()];
        take_turns(scale.pairs(), &mut series, || Ok(vec![ours()?]), || Ok(vec![raw()?]))?;
        session.row(Row::of(case, "ns, beside a raw socket", &series[0], RECYCLED))?;
    }
    Ok(())
}

/// Warm-up and measured time: the processors' idle time is counted in hundredths of a second.
fn cost_times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(50, 300, 3000));
    (duration / 10, duration)
}

/// Processor nanoseconds per received packet, minus those per packet without a receiver.
fn cost(rig: &Rig, pair: Result<Pair, BenchError>, times: (Duration, Duration)) -> Result<f64, BenchError> {
    let each = |sent: &Sent| sent.used_seconds * 1e9 / (sent.sent as f64).max(1.0);
    let mut pair = pair?;
    let received = pair.run(rig, Pace::Rate(RATE), Work::NONE, times)?;
    pair.source.go_astray();
    let stray = pair.run(rig, Pace::Rate(RATE), Work::NONE, times)?;
    Ok((each(&received) - each(&stray)).max(1.0))
}
