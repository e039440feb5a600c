//! `bench packet`: how many packets come over each way to receive them, and how many of those that were sent (paper 2,
//! Fig. 6); and whether a receiver stumbles when more is offered than it can take.
//!
//! ```text
//!  namespace                  cable     namespace
//!  sender, AF_XDP, CPU 0 ───────────────► the kernel's part (RPS) and the receiver, CPU 1
//! ```
//! Nobody here can send as fast as the rings receive, so each packet costs the receiver a fixed time more, as an event
//! builder would.

mod rig;

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::rig::{Mechanism, Rig};
use crate::pairs::{Series, median};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};

/// Bytes of payload: with its headers the shortest frame, and those of paper 2's figure.
const SIZES: [usize; 4] = [18, 256, 1024, 1472];
/// Offered, in parts of the most that the mechanism received.
const OFFERED: [f64; 8] = [0.2, 0.5, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0];
/// What the receiver does with a packet beside receiving it.
const WORK: Duration = Duration::from_nanos(1000);
/// Bytes of payload where the offered rate is swept.
const SWEPT: usize = 256;

const RATES: &str = "received while as much is offered as the sender can; limit: what it sent";
const STUMBLE: &str = "received while a part of the most is offered, or as near to that as the sender comes; limit: what it sent; \
                       target: behind 1.0 never below 0.9 of the most";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    for mechanism in Mechanism::ALL {
        for bytes in SIZES {
            let case = describe("rates", mechanism, bytes, None);
            if session.wants(&case) {
                let Some(mut rig) = lay(session, &case, mechanism, bytes)? else { continue };
                let series = repeat(&mut rig, session.options.scale, None)?;
                session.row(Row::of(&case, "packets/s", &series, RATES))?;
            }
        }
        sweep(session, mechanism)?;
    }
    Ok(())
}

/// One mechanism from little to far too much.
fn sweep(session: &mut Session<'_>, mechanism: Mechanism) -> Result<(), BenchError> {
    let cases = OFFERED.map(|offered| (offered, describe("stumble", mechanism, SWEPT, Some(offered))));
    let wanted: Vec<_> = cases.into_iter().filter(|(_, case)| session.wants(case)).collect();
    let Some((_, first)) = wanted.first() else { return Ok(()) };
    let Some(mut rig) = lay(session, first, mechanism, SWEPT)? else { return Ok(()) };
    let most = median(repeat(&mut rig, session.options.scale, None)?.ours);
    for (offered, case) in &wanted {
        let series = repeat(&mut rig, session.options.scale, Some(offered * most))?;
        session.row(Row::of(case, "packets/s", &series, STUMBLE))?;
    }
    Ok(())
}

fn describe(figure: &str, mechanism: Mechanism, bytes: usize, offered: Option<f64>) -> Map<String, Value> {
    let mut case = case([
        ("figure", json!(figure)),
        ("mechanism", json!(mechanism.name())),
        ("payload_bytes", json!(bytes)),
        ("work_nanoseconds", json!(WORK.as_nanos() as u64)),
    ]);
    if let Some(offered) = offered {
        case.insert("offered".to_owned(), json!(offered));
    }
    case
}

/// Two hosts for a mechanism; none, and that is told, where the right to make them is missing.
fn lay(
    session: &mut Session<'_>,
    case: &Map<String, Value>,
    mechanism: Mechanism,
    bytes: usize,
) -> Result<Option<Rig>, BenchError> {
    match Rig::lay(mechanism, bytes, WORK) {
        Ok(rig) => Ok(Some(rig)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            session.skip(case, "network namespaces are for the administrator")?;
            Ok(None)
        }
        Err(source) => Err(BenchError::System { what: "a cable between two namespaces", source }),
    }
}

/// Received and sent packets a second, as often as the scale says.
fn repeat(rig: &mut Rig, scale: Scale, rate: Option<f64>) -> Result<Series, BenchError> {
    let interval = Duration::from_millis(scale.choose(20, 120, 1000));
    let mut series = Series::default();
    for _ in 0..scale.pairs() {
        let measured = rig.run(rate, interval).map_err(BenchError::wrong)?;
        series.ours.push(measured.received);
        series.limit.push(measured.sent);
    }
    Ok(series)
}
