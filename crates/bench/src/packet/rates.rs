//! Received, of what the sender can send at most, against the frame's size (paper 2, Fig. 6).

use super::{Kernel, MTU, Mechanism, Pace, Pair, Traffic, Work, describe, is_possible, kept, rate, times};
use crate::BenchError;
use crate::cable::Rig;
use crate::pairs::alternate;
use crate::session::{Row, Session};

/// Bytes of payload: with its headers the shortest frame, and so on to the longest of paper 2's figure.
const SIZES: [usize; 5] = [18, 64, 256, 1024, 1472];

const RATES: &str = "received while as much is sent as the sender can, 3 us of work for each packet; limit: a bare receiver of the \
                     same mechanism, as much work; paper: recycled descriptors brought 40 % more of small packets";
const KEPT: &str = "of them, the part that was received; limit: of the bare receiver";
/// A receiver of this much of a flood could take more.
const ALL_OF_IT: f64 = 0.98;

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let work = Work::of(super::WORK);
    for kernel in Kernel::ALL {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            for bytes in session.options.scale.choose(&SIZES[..1], &[18, 1472][..], &SIZES[..]) {
                let traffic = Traffic { mechanism, bytes: *bytes };
                let case = describe("6", kernel, traffic);
                session.measure(&case, |session| match Rig::of_case(session, &case, kernel, MTU)? {
                    Some(rig) => measure(session, &case, &rig, traffic, work),
                    None => Ok(()),
                })?;
            }
        }
    }
    Ok(())
}

fn measure(
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
