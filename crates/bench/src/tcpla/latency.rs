//! Latency of a message of 2 KiB under load, including the slowest ones.
//!
//! The sender is an open loop: each message is due at a time drawn beforehand, as from a front end that does not wait,
//! and its latency counts from then. So waiting behind others in the sender counts too. All times are kept and sorted,
//! some millions at most; the quantiles are exact.

use super::ours::{Messages, OurPair, Side, Told, close, our_pair, sides};
use super::{SEND, Tuning, missing, throughput};
use crate::pairs::{Series, alternate, median};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_flow::source::{TriggerRate, TriggerSequence};
use ropewalk_io::tcp::Mechanism;
use ropewalk_limits::{Paced, PairSockets, paced_pair, pin};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const NOTE: &str = "from when a message was due to when it had come; less is better; both sides wait in the kernel; \
                    limit: bare epoll pair at the same times, which gathers what is due into sends of 64 KiB";
const MESSAGE: usize = 2048;
/// Quantiles of latency, in thousandths of the messages.
pub(crate) const QUANTILES: [(&str, usize); 4] = [("50 %", 500), ("99 %", 990), ("99.9 %", 999), ("most", 1000)];
/// Maximum messages of one figure.
const MOST: f64 = 2e6;

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        let loads: &[u64] = scale.choose(&[50], &[10, 50, 90], &[10, 50, 90]);
        let wanted = |&load: &u64| QUANTILES.iter().any(|(name, _)| session.wants(&case_of(mechanism, load, name)));
        let loads: Vec<u64> = loads.iter().copied().filter(wanted).collect();
        if loads.is_empty() {
            continue;
        }
        if let Some(why) = missing(mechanism) {
            session.skip(&case_of(mechanism, loads[0], "any"), &why)?;
            continue;
        }
        let cpus = Tuning::Tuned.cpus().filter(|_| scale != Scale::Tiny);
        session.attempt(&case_of(mechanism, loads[0], "any"), |session| {
            let most = saturation(scale, mechanism, cpus)?;
            loads.iter().try_for_each(|&load| {
                let due = schedule(most * load as f64 / 100.0, scale, load);
                let case = case_of(mechanism, load, "any");
                session.attempt(&case, |session| measure(session, (mechanism, load), &due, cpus))
            })
        })?;
    }
    Ok(())
}

fn case_of(mechanism: Mechanism, load: u64, quantile: &str) -> Map<String, Value> {
    case([
        ("figure", json!("latency")),
        ("mechanism", json!(mechanism.name())),
        ("load_percent", json!(load)),
        ("quantile", json!(quantile)),
    ])
}

fn measure(
    session: &mut Session<'_>,
    (mechanism, load): (Mechanism, u64),
    due: &[Duration],
    cpus: Option<[usize; 2]>,
) -> Result<(), BenchError> {
    let sockets = Tuning::Tuned.sockets();
    let ours = || quantiles(our_times(mechanism, sockets, due, cpus)?, due);
    let paced = Paced { message_bytes: MESSAGE, due, most_bytes: SEND, sockets, cpus };
    let limit = || quantiles(paced_pair(paced).map_err(BenchError::system("bare pair"))?, due);
    // A single run already has many messages in a quantile.
    let pairs = session.options.scale.choose(1, 1, 5);
    let series: [Series; QUANTILES.len()] = alternate(pairs, ours, limit)?;
    for ((name, _), series) in QUANTILES.iter().zip(&series) {
        let case = case_of(mechanism, load, name);
        if session.wants(&case) {
            session.row(Row::of(&case, "us", series, NOTE))?;
        }
    }
    Ok(())
}

/// Maximum messages a second.
fn saturation(scale: Scale, mechanism: Mechanism, cpus: Option<[usize; 2]>) -> Result<f64, BenchError> {
    let (warm_up, duration) = throughput::times(scale);
    let pair = OurPair {
        mechanism,
        message_bytes: MESSAGE,
        messages_per_send: SEND / MESSAGE,
        sockets: Tuning::Tuned.sockets(),
        warm_up,
        duration,
        cpus,
    };
    let rates: Result<Vec<f64>, _> = (0..3).map(|_| our_pair(pair).map(|pair| pair.gigabytes_per_second())).collect();
    Ok(median(rates?) * 1e9 / MESSAGE as f64)
}

/// Times at which messages are due: this many a second on average, with random gaps (Poisson), the same for each seed.
pub(crate) fn schedule(rate_hz: f64, scale: Scale, seed: u64) -> Vec<Duration> {
    let seconds = scale.choose(0.02, 0.3, 1.5_f64);
    let count = (rate_hz * seconds).clamp(1.0, MOST) as usize;
    let mut triggers = TriggerSequence::new(seed, TriggerRate::Poisson { hertz: rate_hz });
    (0..count).map(|_| triggers.next_trigger().at).collect()
}

/// Converts nanoseconds to quantiles in microseconds; an error unless every message has arrived.
pub(crate) fn quantiles(mut late: Vec<u64>, due: &[Duration]) -> Result<[f64; QUANTILES.len()], BenchError> {
    if late.len() != due.len() {
        return Err(BenchError::wrong(format!("{} of {} messages have come", late.len(), due.len())));
    }
    late.sort_unstable();
    Ok(QUANTILES.map(|(_, part)| late[(late.len() * part).div_ceil(1000).max(1) - 1] as f64 / 1000.0))
}

/// Like `paced_pair` of the limits, with our end points.
fn our_times(
    mechanism: Mechanism,
    sockets: PairSockets,
    due: &[Duration],
    cpus: Option<[usize; 2]>,
) -> Result<Vec<u64>, BenchError> {
    let [receiver, sender] = sides(mechanism, sockets)?;
    let begin = OnceLock::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pin(cpus.map(|[_, sender]| sender));
            send_when_due(sender, due, &begin)
        });
        let receiving = scope.spawn(|| {
            pin(cpus.map(|[receiver, _]| receiver));
            receive(receiver, due, &begin)
        });
        let late = receiving.join().map_err(|_| BenchError::wrong("a panic"))?;
        sending.join().map_err(|_| BenchError::wrong("a panic"))??;
        Ok(late)
    })
}

fn receive(mut side: Side, due: &[Duration], begin: &OnceLock<Instant>) -> Vec<u64> {
    let (mut told, mut late) = (Told::of(MESSAGE), Vec::with_capacity(due.len()));
    while told.ended.is_none() {
        side.turn(&mut told, true);
        // Set before anything is sent.
        let Some(begin) = begin.get().filter(|_| told.messages > late.len() as u64) else { continue };
        let now = begin.elapsed();
        for due in due.iter().take(told.messages as usize).skip(late.len()) {
            late.push(now.saturating_sub(*due).as_nanos() as u64);
        }
    }
    late
}

fn send_when_due(mut side: Side, due: &[Duration], begin: &OnceLock<Instant>) -> Result<(), BenchError> {
    let mut messages = Messages::new(MESSAGE, SEND / MESSAGE)?;
    let mut told = Told::of(MESSAGE);
    let endpoint = loop {
        side.turn(&mut told, true);
        match (told.endpoint, told.ended) {
            (Some(endpoint), None) => break endpoint,
            (_, Some(how)) => return Err(BenchError::wrong(format!("the connection ended: {how:?}"))),
            _ => {}
        }
    };
    let begin = *begin.get_or_init(Instant::now);
    let mut posted = 0;
    while posted < due.len() {
        let now = begin.elapsed();
        let room = SEND / MESSAGE - (posted - told.completed as usize);
        for _ in due[posted..].iter().take(room).take_while(|due| **due <= now) {
            messages.post(&mut side, endpoint)?;
            posted += 1;
        }
        // The sender never sleeps while something is due, or about to be.
        side.turn(&mut told, false);
        if let Some(how) = told.ended {
            return Err(BenchError::wrong(format!("the connection ended: {how:?}")));
        }
    }
    close(&mut side, &mut told, endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_random_times_of_the_right_rate() {
        let due = schedule(100_000.0, Scale::Full, 1);
        let last = due.last().expect("messages").as_secs_f64();
        assert!((last - 1.5).abs() < 0.03, "{last}");
        assert!(due.is_sorted() && due != schedule(100_000.0, Scale::Full, 2));
    }

    #[test]
    fn quantiles_are_of_all_messages() {
        let late: Vec<u64> = (1..=1000).rev().map(|nanoseconds| nanoseconds * 1000).collect();
        let due = vec![Duration::ZERO; 1000];
        let found = quantiles(late.clone(), &due).expect("all have come");
        assert!(found.iter().zip([500.0, 990.0, 999.0, 1000.0]).all(|(is, should)| (is - should).abs() < 1e-9));
        assert!(quantiles(late, &due[1..]).is_err());
    }
}
