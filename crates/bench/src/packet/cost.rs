//! What a packet costs (paper 1, Figs. 5 and 6): time of processor of the whole machine, without what it takes to send it.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Kernel, MTU, Mechanism, Pace, Pair, Traffic, Work, describe, is_possible};
use crate::cable::{Rig, Sent, Usage};
use crate::pairs::{Series, alternate, take_turns};
use crate::session::{Row, Session};
use crate::{BenchError, Scale};

/// Bytes of payload.
const SIZES: [usize; 3] = [18, 210, 1472];
/// Packets a second: few enough for every receiver.
const RATE: f64 = 150_000.0;

const COST: &str = "ns of processor for a packet, of the whole machine, without those of packets that are lost at the card; limit: a \
                    bare receiver of the same mechanism; paper 1: a raw socket takes 39.5 % of the processors, 35.5 % without its \
                    useless copy of each descriptor";
const RECYCLED: &str = "the same; limit: a raw socket of ours, for which the kernel makes and frees each packet; target: at most 0.5 \
                        up to 256 B";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    // A quick run leaves the kernel's thread out.
    let kernels = session.options.scale.choose(&Kernel::ALL[..1], &Kernel::ALL[..1], &Kernel::ALL[..]);
    for &kernel in kernels {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            for bytes in session.options.scale.choose(&SIZES[1..2], &SIZES[1..2], &SIZES[..]) {
                let traffic = Traffic { mechanism, bytes: *bytes };
                let case = describe("cost", kernel, traffic);
                session.measure(&case, |session| {
                    if session.options.scale != Scale::Tiny && is_busy() {
                        return session
                            .skip(&case, "others use the processors, whose idle time says what a packet costs");
                    }
                    match Rig::of_case(session, &case, kernel, MTU)? {
                        Some(rig) => measure(session, &case, &rig, traffic),
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

fn measure(
    session: &mut Session<'_>,
    case: &Map<String, Value>,
    rig: &Rig,
    traffic: Traffic,
) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let times = times(scale);
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

/// The processors' idle time is counted in hundredths of a second.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(50, 300, 3000));
    (duration / 10, duration)
}

/// Nanoseconds of processor for a packet that is received, beyond those for a packet without a receiver.
fn cost(rig: &Rig, pair: Result<Pair, BenchError>, times: (Duration, Duration)) -> Result<f64, BenchError> {
    let each = |sent: &Sent| sent.used_seconds * 1e9 / (sent.sent as f64).max(1.0);
    let mut pair = pair?;
    let received = pair.run(rig, Pace::Rate(RATE), Work::NONE, times)?;
    pair.source.go_astray();
    let stray = pair.run(rig, Pace::Rate(RATE), Work::NONE, times)?;
    Ok((each(&received) - each(&stray)).max(1.0))
}
