//! Whether a receiver that is offered more than it can take takes less than it could.

use std::time::Duration;

use serde_json::json;

use super::{Kernel, MTU, Mechanism, Pace, Pair, Traffic, Work, describe, is_possible, rate, times};
use crate::cable::Rig;
use crate::pairs::{Series, alternate, take_turns};
use crate::session::{Row, Session};
use crate::{BenchError, Scale};

/// Bytes of payload.
const BYTES: usize = 256;
/// Offered, in parts of the most that the mechanism takes.
const OFFERED: [f64; 9] = [0.2, 0.5, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0];
/// The parts of the time that receiving and working on a packet may take, at which the most is looked for.
const LOOKED_AT: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

const CURVE: &str = "received while a part of the most is offered, or as near to that as the sender comes, 3 us of work for each \
                     packet; limit: a bare receiver of the same mechanism";
const LEAST: &str = "the least that was received of the most, while the most or more was offered; limit: of a bare receiver of the \
                     same mechanism; target for the best mechanism: 0.9";
const LOSS: &str = "packets lost of those sent in a minute at 90 % of the most; limit: of a bare receiver; target: 0";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let work = Work::of(super::WORK);
    for kernel in Kernel::ALL {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            let traffic = Traffic { mechanism, bytes: BYTES };
            let case = describe("stumble", kernel, traffic);
            if session.wants(&case)
                && let Some(rig) = Rig::of_case(session, &case, kernel, MTU)?
            {
                curve(session, &rig, traffic, work)?;
            }
        }
    }
    Ok(())
}

/// Both receivers from little to far too much.
fn curve(session: &mut Session<'_>, rig: &Rig, traffic: Traffic, work: Work) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let offered = scale.choose(&OFFERED[4..5], &[1.0, 1.5, 3.0][..], &OFFERED[..]);
    // Behind the points stands what the worst of them is of the most.
    let mut series = vec![Series::default(); offered.len() + 1];
    let figures = |pair: Result<Pair, BenchError>| swept(&mut pair?, rig, work, scale, offered);
    take_turns(scale.pairs(), &mut series, || figures(Pair::ours(rig, traffic)), || figures(Pair::bare(rig, traffic)))?;
    for (part, series) in offered.iter().zip(&series) {
        let mut case = describe("stumble", rig.kernel, traffic);
        case.insert("offered".to_owned(), json!(part));
        session.row(Row::of(&case, "packets/s", series, CURVE))?;
    }
    session.row(Row::of(&describe("stumble", rig.kernel, traffic), "of the most", &series[offered.len()], LEAST))
}

/// What was received at each part of the most; and then the least of what was received with the most or more on offer, as a
/// part of the most.
fn swept(pair: &mut Pair, rig: &Rig, work: Work, scale: Scale, offered: &[f64]) -> Result<Vec<f64>, BenchError> {
    let most = most(pair, rig, work, scale)?;
    let at = |part: &f64| pair.run(rig, Pace::Rate(part * most), work, times(scale)).map(|sent| rate(&sent));
    let mut received = offered.iter().map(at).collect::<Result<Vec<f64>, _>>()?;
    let peak = received.iter().copied().fold(most, f64::max);
    let beyond = offered.iter().zip(&received).filter(|(part, _)| **part > 1.0 || offered.len() == 1);
    let least = beyond.map(|(_, received)| *received).fold(f64::INFINITY, f64::min);
    received.push(least / peak.max(1.0));
    Ok(received)
}

/// The most that is received at any rate: that of packets for which receiving costs as much as their work, and fewer.
fn most(pair: &mut Pair, rig: &Rig, work: Work, scale: Scale) -> Result<f64, BenchError> {
    let bound = 1.0 / super::WORK.as_secs_f64();
    let parts = scale.choose(&LOOKED_AT[2..3], &[0.5, 0.7, 0.9][..], &LOOKED_AT[..]);
    parts.iter().try_fold(0.0, |most: f64, part| {
        let sent = pair.run(rig, Pace::Rate(part * bound), work, times(scale))?;
        Ok(most.max(rate(&sent)))
    })
}

/// What is lost at 90 % of the most, for a minute: of a full run alone.
pub(super) fn loss(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let minute = Duration::from_secs(if scale == Scale::Full { 60 } else { 1 });
    let work = Work::of(super::WORK);
    for kernel in Kernel::ALL {
        for mechanism in [Mechanism::RecvMmsg, Mechanism::Ring, Mechanism::Xdp] {
            let traffic = Traffic { mechanism, bytes: BYTES };
            let mut case = describe("loss", kernel, traffic);
            case.insert("seconds".to_owned(), json!(minute.as_secs()));
            let is_asked_for = scale == Scale::Full || session.options.case.is_some();
            if !is_asked_for || !session.wants(&case) {
                continue;
            }
            let Some(rig) = Rig::of_case(session, &case, kernel, MTU)? else { continue };
            let figures = |pair: Result<Pair, BenchError>| {
                let mut pair = pair?;
                let most = most(&mut pair, &rig, work, scale)?;
                let sent = pair.run(&rig, Pace::Rate(0.9 * most), work, (minute / 20, minute))?;
                Ok([sent.sent.saturating_sub(sent.received) as f64, sent.sent as f64])
            };
            let [lost, _] = alternate(1, || figures(Pair::ours(&rig, traffic)), || figures(Pair::bare(&rig, traffic)))?;
            session.row(Row::of(&case, "packets", &lost, LOSS))?;
        }
    }
    Ok(())
}
