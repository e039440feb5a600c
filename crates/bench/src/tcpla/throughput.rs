//! Throughput of one connection against message size (paper 3, Fig. 7), and what coalescing gives.

use super::ours::{OurPair, our_pair};
use super::{SEND, Tuning, bare};
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_io::tcp::Mechanism;
use ropewalk_limits::{PairConfig, PairFigures, bare_pair};
use serde_json::{Map, Value, json};
use std::time::Duration;

const NOTE: &str = "ours: each message posted, framed and told of; limit: bare pair, as many bytes a send, of the same \
                    mechanism (for poll, select: epoll); target for epoll, io_uring from 16 KiB on: 0.95";
const NOTE_COALESCING: &str = "ours: messages gathered into sends of 64 KiB; limit: bare pair of the same mechanism, one \
                               send for each; target: 3";

/// In the order in which they are measured.
const MECHANISMS: [Mechanism; 5] =
    [Mechanism::Auto, Mechanism::Epoll, Mechanism::IoUring, Mechanism::Poll, Mechanism::Select];

pub(super) fn figure_7(session: &mut Session<'_>) -> Result<(), BenchError> {
    let all: &[usize] = &[64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    let some: &[usize] = &[64, 2 << 10, 16 << 10, 256 << 10];
    for mechanism in MECHANISMS {
        for tuning in [Tuning::Untuned, Tuning::Tuned] {
            for &bytes in session.options.scale.choose(&[2 << 10][..], some, all) {
                let case = case_of("7", mechanism, tuning, bytes);
                let sends = tuning.messages_per_send(bytes);
                measure(session, &case, (mechanism, tuning, bytes), [sends, sends], NOTE)?;
            }
        }
    }
    Ok(())
}

pub(super) fn coalescing(session: &mut Session<'_>) -> Result<(), BenchError> {
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        for &bytes in session.options.scale.choose(&[2048][..], &[64, 512, 2048], &[64, 128, 256, 512, 1024, 2048]) {
            let case = case_of("coalescing", mechanism, Tuning::Tuned, bytes);
            measure(session, &case, (mechanism, Tuning::Tuned, bytes), [SEND / bytes, 1], NOTE_COALESCING)?;
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

/// Pairs of ours and bare, which hand so many messages at once to the kernel.
fn measure(
    session: &mut Session<'_>,
    case: &Map<String, Value>,
    (mechanism, tuning, message_bytes): (Mechanism, Tuning, usize),
    [ours, limit]: [usize; 2],
    note: &'static str,
) -> Result<(), BenchError> {
    if !session.wants(case) {
        return Ok(());
    }
    let scale = session.options.scale;
    let (warm_up, duration) = times(scale);
    let cpus = tuning.cpus().filter(|_| scale != Scale::Tiny);
    let pair = OurPair {
        mechanism,
        message_bytes,
        messages_per_send: ours,
        sockets: tuning.sockets(),
        warm_up,
        duration,
        cpus,
    };
    let probe = PairConfig {
        mechanism: bare(mechanism),
        send_bytes: message_bytes * limit,
        sockets: tuning.sockets(),
        no_delay: true,
        warm_up,
        duration,
        cpus,
    };
    let ours = || our_pair(pair).map(figures);
    let limit = || bare_pair(probe).map(figures).map_err(BenchError::system("bare pair"));
    let [rate, sender, receiver] = alternate(scale.pairs(), ours, limit)?;
    session.row(Row::of(case, "GB/s", &rate, note).with_cpu(&sender, &receiver))
}

/// Warm-up and measured time of one figure.
pub(super) fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(10, 60, 400));
    (duration / 4, duration)
}

/// Throughput, and the seconds of processor that sender and receiver take for 10^9 bytes.
fn figures(figures: PairFigures) -> [f64; 3] {
    let [sender, receiver] = figures.cpu_seconds_per_gigabyte();
    [figures.gigabytes_per_second(), sender, receiver]
}
