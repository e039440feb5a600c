//! Throughput of one connection against message size (paper 3, Fig. 7), and the gain of coalescing.

use super::ours::{OurPair, our_pair};
use super::{Tuning, bare, missing};
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_io::tcp::Mechanism;
use ropewalk_limits::{BareMechanism, MID_PAGE, PairConfig, PairFigures, bare_pair};
use serde_json::{Map, Value, json};
use std::time::Duration;

const NOTE: &str = "ours: each message posted, framed and told of; limit: bare pair, as many bytes a send, of the same \
                    mechanism (for poll, select: epoll); target for epoll, io_uring from 16 KiB on: 0.95";
const NOTE_COALESCING: &str = "ours: messages gathered into sends of 64 KiB; limit: bare pair of the same mechanism, one \
                               send for each; target: 3";
const NOTE_PLACE: &str = "bare epoll pair whose message begins at this byte of a page; limit: the same from the middle of a page, \
                          as all other figures";
const NOTE_AUTO: &str = "ours: what `auto` takes; limit: the better of ours over epoll and over io_uring; target: 0.95";

/// Bytes of the message whose place is varied.
const PLACED: usize = 256 << 10;
/// In the order of measurement.
const MECHANISMS: [Mechanism; 4] = [Mechanism::Epoll, Mechanism::IoUring, Mechanism::Poll, Mechanism::Select];

pub(super) fn figure_7(session: &mut Session<'_>) -> Result<(), BenchError> {
    let all: &[usize] = &[64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    let some: &[usize] = &[64, 2 << 10, 16 << 10, 256 << 10];
    for mechanism in MECHANISMS {
        for tuning in [Tuning::Untuned, Tuning::Tuned] {
            for &bytes in session.options.scale.choose(&[2 << 10][..], some, all) {
                let case = case_of("7", mechanism, tuning, bytes);
                let sends = tuning.messages_per_send(bytes);
                measure(session, &case, (mechanism, tuning, bytes), sends, NOTE)?;
            }
        }
    }
    Ok(())
}

pub(super) fn coalescing(session: &mut Session<'_>) -> Result<(), BenchError> {
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        for &bytes in session.options.scale.choose(&[2048][..], &[64, 512, 2048], &[64, 128, 256, 512, 1024, 2048]) {
            let case = case_of("coalescing", mechanism, Tuning::Tuned, bytes);
            measure(session, &case, (mechanism, Tuning::Tuned, bytes), 1, NOTE_COALESCING)?;
        }
    }
    Ok(())
}

fn case_of(figure: &str, mechanism: Mechanism, tuning: Tuning, message_bytes: usize) -> Map<String, Value> {
    case([
        ("figure", json!(figure)),
        ("mechanism", json!(mechanism.name())),
        ("message_bytes", json!(message_bytes)),
        ("tuning", json!(tuning.name())),
    ])
}

/// `auto`, beside the better of the two mechanisms that it chooses from.
pub(super) fn auto(session: &mut Session<'_>) -> Result<(), BenchError> {
    let mechanisms: Vec<_> = MECHANISMS[..2].iter().copied().filter(|it| missing(*it).is_none()).collect();
    for &bytes in session.options.scale.choose(&[2048][..], &[2 << 10, 64 << 10], &[64, 2 << 10, 16 << 10, 256 << 10]) {
        let case = case_of("auto", Mechanism::Auto, Tuning::Tuned, bytes);
        session.measure(&case, |session| {
            let scale = session.options.scale;
            let rate = |mechanism| our_pair(pair_of(scale, (mechanism, Tuning::Tuned, bytes))).map(figures);
            let best = || {
                let all: Result<Vec<_>, _> = mechanisms.iter().map(|mechanism| rate(*mechanism)).collect();
                all?.into_iter()
                    .max_by(|one, other| one[0].total_cmp(&other[0]))
                    .ok_or_else(|| BenchError::wrong("none"))
            };
            let [rate, sender, receiver, all] = alternate(scale.pairs(), || rate(Mechanism::Auto), best)?;
            session.row(Row::of(&case, "GB/s", &rate, NOTE_AUTO).with_cpu(&sender, &receiver).with_process_cpu(&all))
        })?;
    }
    Ok(())
}

/// The effect of a message's place in its page on a bare pair: see `ropewalk_doctor::memory::MID_PAGE`.
pub(super) fn place(session: &mut Session<'_>) -> Result<(), BenchError> {
    let (warm_up, duration) = times(session.options.scale);
    let cpus = Tuning::Tuned.cpus().filter(|_| session.options.scale != Scale::Tiny);
    for &place in session.options.scale.choose(&[4080][..], &[0, 4080], &[0, 1024, 4064, 4080]) {
        let case = case([("figure", json!("place")), ("message_bytes", json!(PLACED)), ("place", json!(place))]);
        session.measure(&case, |session| {
            let pair = |place| {
                let (mechanism, sockets) = (BareMechanism::Epoll, Tuning::Tuned.sockets());
                let pair = PairConfig {
                    mechanism,
                    send_bytes: PLACED,
                    place,
                    sockets,
                    no_delay: true,
                    warm_up,
                    duration,
                    cpus,
                };
                bare_pair(pair).map(figures).map_err(BenchError::system("bare pair"))
            };
            let [rate, sender, receiver, all] =
                alternate(session.options.scale.pairs(), || pair(place), || pair(MID_PAGE))?;
            session.row(Row::of(&case, "GB/s", &rate, NOTE_PLACE).with_cpu(&sender, &receiver).with_process_cpu(&all))
        })?;
    }
    Ok(())
}

fn pair_of(scale: Scale, (mechanism, tuning, message_bytes): (Mechanism, Tuning, usize)) -> OurPair {
    let (warm_up, duration) = times(scale);
    OurPair {
        mechanism,
        message_bytes,
        messages_per_send: tuning.messages_per_send(message_bytes),
        sockets: tuning.sockets(),
        warm_up,
        duration,
        cpus: tuning.cpus().filter(|_| scale != Scale::Tiny),
    }
}

/// Pairs of ours and the bare mechanism, which hands this many messages to the kernel at once.
fn measure(
    session: &mut Session<'_>,
    case: &Map<String, Value>,
    what: (Mechanism, Tuning, usize),
    messages_per_send: usize,
    note: &'static str,
) -> Result<(), BenchError> {
    session.measure(case, |session| {
        let (mechanism, tuning, message_bytes) = what;
        if let Some(why) = missing(mechanism) {
            return session.skip(case, &why);
        }
        let pair = pair_of(session.options.scale, what);
        let probe = PairConfig {
            mechanism: bare(mechanism),
            send_bytes: message_bytes * messages_per_send,
            place: MID_PAGE,
            sockets: tuning.sockets(),
            no_delay: true,
            warm_up: pair.warm_up,
            duration: pair.duration,
            cpus: pair.cpus,
        };
        let ours = || our_pair(pair).map(figures);
        let limit = || bare_pair(probe).map(figures).map_err(BenchError::system("bare pair"));
        let [rate, sender, receiver, all] = alternate(session.options.scale.pairs(), ours, limit)?;
        session.row(Row::of(case, "GB/s", &rate, note).with_cpu(&sender, &receiver).with_process_cpu(&all))
    })
}

/// Warm-up and measured time of one figure.
pub(super) fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(10, 60, 400));
    (duration / 4, duration)
}

/// Throughput, and the processor seconds per 10^9 bytes of sender, receiver and all threads.
fn figures(figures: PairFigures) -> [f64; 4] {
    let [sender, receiver] = figures.cpu_seconds_per_gigabyte();
    [figures.gigabytes_per_second(), sender, receiver, figures.process_seconds_per_gigabyte()]
}
