//! `bench builder`: from sockets to whole events in one process, nothing written, beside a bare epoll receiver that
//! walks the headers of the same streams.

use crate::BenchError;
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, bare_receiver, case};
use ropewalk_doctor::run::{Ran, RunPlan};
use ropewalk_limits::SlinkConfig;
use serde_json::{Map, Value, json};
use std::cell::RefCell;

const NOTE: &str = "limit: bare epoll receiver that walks the headers of the same streams; target: 0.8, with CRC 0.65";
const NOTE_PER_CPU: &str =
    "as above, for each second of processor that the receiving side used: holds on a busy machine";
const NOTE_COPIED: &str = "bytes copied in user space for a hundred bytes of payload; limit: the promise";
/// Maximum share of the payload that may be copied, in percent.
const COPIED: f64 = 2.0;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let sender = SlinkConfig::default();
    for crc in ["off", "on"] {
        let case_of = |figure: &str| {
            case([
                ("crc", json!(crc)),
                ("sources", json!(sender.streams)),
                ("fragment_bytes", json!(sender.fragment_bytes)),
                ("figure", Value::from(figure)),
            ])
        };
        let cases = ["rate", "per_cpu", "copied"].map(case_of);
        if cases.iter().any(|case| session.wants(case)) {
            session.attempt(&cases[0], |session| measure(session, &cases, sender, crc))?;
        }
    }
    Ok(())
}

fn measure(
    session: &mut Session<'_>,
    cases: &[Map<String, Value>; 3],
    sender: SlinkConfig,
    crc: &str,
) -> Result<(), BenchError> {
    let plan = RunPlan { check_crc: crc == "on", ..session.plan(sender, [100, 1500, 2500], crc) };
    let copied = RefCell::new(Series::default());
    let ours = || {
        let Ran { gigabytes_per_second, per_processor_second, copied: part, cpu_seconds_per_gigabyte } = plan.run()?;
        copied.borrow_mut().ours.push(part * 100.0);
        copied.borrow_mut().limit.push(COPIED);
        Ok([gigabytes_per_second, per_processor_second, cpu_seconds_per_gigabyte])
    };
    let [rate, per_cpu, all] = alternate(session.options.scale.pairs(), ours, || bare_receiver(&plan))?;
    session.row(Row::of(&cases[0], "GB/s", &rate, NOTE).by_processor(&per_cpu).with_process_cpu(&all))?;
    session.row(Row::of(&cases[1], "GB/CPU-s", &per_cpu, NOTE_PER_CPU))?;
    session.row(Row::of(&cases[2], "%", &copied.into_inner(), NOTE_COPIED).or_nothing())
}
