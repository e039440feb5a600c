//! Whether an overloaded receiver receives less than its maximum.

use std::time::Duration;

use serde_json::json;

use super::{Kernel, MTU, Mechanism, Pace, Pair, Sent, Traffic, Work, describe, is_possible, rate, times};
use ropewalk_limits::Depth;

use crate::cable::{LongBacklog, Rig, dropped_on_the_way};
use crate::pairs::{Series, alternate, take_turns};
use crate::session::{Row, Session};
use crate::{BenchError, Scale};

/// Bytes of payload.
const BYTES: usize = 256;
/// Offered rates, as parts of the mechanism's maximum.
const OFFERED: [f64; 9] = [0.2, 0.5, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0];
/// Rates at which the maximum is searched, as parts of the bound that the work alone sets.
const LOOKED_AT: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

const CURVE: &str = "received while a part of the most is offered, or as near to that as the sender comes, 3 us of work for each \
                     packet; limit: a bare receiver of the same mechanism";
const REACHED: &str =
    "what the sender reached of the most where three times as much was wanted; limit: beside a bare receiver";
const LEAST: &str = "the least that was received of the most, while the most or more was offered; limit: of a bare receiver of the \
                     same mechanism; target for the best mechanism: 0.9";
/// A sender that reaches this share of the requested rate counts as having sent it.
const SATURATES: f64 = 0.9;
/// Packets that may wait for a processor that is away.
const BACKLOG: u32 = 1 << 17;
/// Pieces of the minute in which loss is counted.
const PIECES: usize = 12;

const LOSS: &str = "packets lost of those sent in a minute at 90 % of the most, with room for a quarter of a second; limit: of a bare \
                    receiver; target: 0";
const EARLY: &str = "of them lost on the way to the receiver: in the backlog of a processor that was away, in the cable's ring of 256 packets";
const OFFERED_THEN: &str = "sent in that minute: 90 % of the most that was received just before each twelfth of it";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let work = Work::of(super::WORK);
    for kernel in Kernel::ALL {
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism)) {
            let traffic = Traffic { mechanism, bytes: BYTES };
            let case = describe("stumble", kernel, traffic);
            session.measure(&case, |session| match Rig::of_case(session, &case, kernel, MTU)? {
                Some(rig) => curve(session, &rig, traffic, work),
                None => Ok(()),
            })?;
        }
    }
    Ok(())
}

/// Both receivers, from light load to heavy overload.
fn curve(session: &mut Session<'_>, rig: &Rig, traffic: Traffic, work: Work) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let offered = scale.choose(&OFFERED[4..5], &[1.0, 1.5, 3.0][..], &OFFERED[..]);
    // After the points: the worst of them as a share of the maximum, and the rate sent at the last one.
    let mut series = vec![Series::default(); offered.len() + 2];
    let figures = |pair: Result<Pair, BenchError>| swept(&mut pair?, rig, work, scale, offered);
    take_turns(scale.pairs(), &mut series, || figures(Pair::ours(rig, traffic)), || figures(Pair::bare(rig, traffic)))?;
    for (part, series) in offered.iter().zip(&series) {
        let mut case = describe("stumble", rig.kernel, traffic);
        case.insert("offered".to_owned(), json!(part));
        session.row(Row::of(&case, "packets/s", series, CURVE).or_nothing())?;
    }
    let case = describe("stumble", rig.kernel, traffic);
    session.row(Row::of(&case, "of the most", &series[offered.len()], LEAST).or_nothing())?;
    let reached = Row::of(&case, "times the most, sent", &series[offered.len() + 1], REACHED);
    let (sent, wanted) = (reached.median, offered[offered.len() - 1]);
    let remark = (sent < SATURATES * wanted)
        .then(|| format!("NOT SATURATED as wanted: the sender reached {sent:.2} times the most, not {wanted}"));
    session.row(reached.with_remark(remark))
}

/// The received rate at each part of the maximum; then, as shares of the highest rate: the lowest received rate under
/// overload, and the rate sent at the last part.
fn swept(pair: &mut Pair, rig: &Rig, work: Work, scale: Scale, offered: &[f64]) -> Result<Vec<f64>, BenchError> {
    let most = most(pair, rig, work, scale)?;
    let at = |part: &f64| pair.run(rig, Pace::Rate(part * most), work, times(scale));
    let sent = offered.iter().map(at).collect::<Result<Vec<Sent>, _>>()?;
    let mut received: Vec<f64> = sent.iter().map(rate).collect();
    let peak = received.iter().copied().fold(most, f64::max);
    let beyond = offered.iter().zip(&received).filter(|(part, _)| **part > 1.0 || offered.len() == 1);
    let least = beyond.map(|(_, received)| *received).fold(f64::INFINITY, f64::min);
    let reached = sent.last().map_or(0.0, |last| last.sent as f64 / last.seconds);
    received.extend([least, reached].map(|figure| figure / peak.max(1.0)));
    Ok(received)
}

/// The highest received rate. `LOOKED_AT` covers packets for which receiving costs as much as their work, or less.
fn most(pair: &mut Pair, rig: &Rig, work: Work, scale: Scale) -> Result<f64, BenchError> {
    let parts = scale.choose(&LOOKED_AT[2..3], &[0.5, 0.7, 0.9][..], &LOOKED_AT[..]);
    most_at(pair, rig, work, parts, times(scale))
}

/// The same, searched at `parts`, for the given times.
fn most_at(
    pair: &mut Pair,
    rig: &Rig,
    work: Work,
    parts: &[f64],
    times: (Duration, Duration),
) -> Result<f64, BenchError> {
    let bound = 1.0 / super::WORK.as_secs_f64();
    parts.iter().try_fold(0.0, |most: f64, part| {
        let sent = pair.run(rig, Pace::Rate(part * bound), work, times)?;
        Ok(most.max(rate(&sent)))
    })
}

/// Packets lost in a minute at 90 % of the maximum: only in a full run, or if a case is requested.
pub(super) fn loss(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let pieces = if scale == Scale::Full { PIECES } else { 1 };
    let piece = scale.choose(Duration::from_millis(200), Duration::from_secs(5), Duration::from_secs(5));
    let work = Work::of(super::WORK);
    for kernel in Kernel::ALL {
        for mechanism in [Mechanism::RecvMmsg, Mechanism::Ring, Mechanism::Xdp] {
            let traffic = Traffic { mechanism, bytes: BYTES };
            let mut case = describe("loss", kernel, traffic);
            case.insert("seconds".to_owned(), json!(pieces as f64 * piece.as_secs_f64()));
            let is_asked_for = scale == Scale::Full || session.options.case.is_some();
            if !is_asked_for {
                continue;
            }
            session.measure(&case, |session| {
                let Some(mut rig) = Rig::of_case(session, &case, kernel, MTU)? else { return Ok(()) };
                rig.depth = Depth::LONG;
                let figures = |pair: Result<Pair, BenchError>| lost(&mut pair?, &rig, work, scale, piece);
                let [lost, early, rate] =
                    alternate(pieces, || figures(Pair::ours(&rig, traffic)), || figures(Pair::bare(&rig, traffic)))?;
                session.row(Row::of(&case, "packets", &lost.total(), LOSS).or_nothing())?;
                session.row(Row::of(&case, "packets on their way", &early.total(), EARLY).or_nothing())?;
                session.row(Row::of(&case, "packets/s", &rate, OFFERED_THEN))
            })?;
        }
    }
    Ok(())
}

/// Packets lost in a piece of the minute, those of them that never reached the receiver, and packets sent per second.
/// The highest rate is measured before each piece: within a minute, a machine with other users can become slower by a
/// third.
fn lost(pair: &mut Pair, rig: &Rig, work: Work, scale: Scale, piece: Duration) -> Result<[f64; 3], BenchError> {
    let dropped = || dropped_on_the_way(&rig.cable).map_err(BenchError::system("reading what was dropped"));
    let _backlog = LongBacklog::of(BACKLOG).map_err(BenchError::system("a longer backlog"))?;
    let most = most_at(pair, rig, work, &LOOKED_AT, times(scale.choose(Scale::Tiny, Scale::Quick, Scale::Quick)))?;
    let before = dropped()?;
    let sent = pair.run_to_the_end(rig, Pace::Rate(0.9 * most), work, piece)?;
    let early = dropped()? - before;
    Ok([sent.sent as f64 - sent.received as f64, early as f64, sent.sent as f64 / sent.seconds])
}
