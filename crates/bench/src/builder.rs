//! `bench builder`: from sockets to whole events in one process, nothing written, beside a bare epoll receiver that
//! walks the headers of the same streams.

use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::{Ran, RunPlan, USUAL_POOL_MIB, scratch};
use ropewalk_limits::{SlinkConfig, WalkConfig, tcp_walk};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::Duration;

const NOTE: &str = "limit: bare epoll receiver that walks the headers of the same streams; target: 0.8, with CRC 0.65";
const NOTE_PER_CPU: &str =
    "as above, for each second of processor that the receiving side used: holds on a busy machine";
const NOTE_COPIED: &str = "bytes copied in user space for a hundred bytes of payload; limit: the promise";
/// Percent of the payload that may be copied.
const COPIED: f64 = 2.0;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
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
        if !cases.iter().any(|case| session.wants(case)) {
            continue;
        }
        let cpus = (scale != Scale::Tiny).then_some([0, 1]);
        let interval = Duration::from_millis(scale.choose(100, 1500, 2500));
        let plan = RunPlan {
            sender,
            builders: 1,
            check_crc: crc == "on",
            write: false,
            filter: "",
            warm_up: Duration::from_millis(scale.choose(20, 300, 500)),
            interval,
            cpus,
            pool_mib: USUAL_POOL_MIB,
            output: scratch(&session.options.output, crc),
        };
        let copied = RefCell::new(Series::default());
        let ours = || {
            let Ran { gigabytes_per_second, per_processor_second, copied: part } = plan.run()?;
            copied.borrow_mut().ours.push(part * 100.0);
            copied.borrow_mut().limit.push(COPIED);
            Ok([gigabytes_per_second, per_processor_second])
        };
        let limit = || {
            let config = WalkConfig { sender, duration: interval, cpus, ..WalkConfig::default() };
            let walked = tcp_walk(config).map_err(BenchError::system("bare receiver"))?;
            let per_cpu = walked.fragment_bytes as f64 / walked.cpu_seconds.max(1e-9) / 1e9;
            Ok([walked.gigabytes_per_second(), per_cpu])
        };
        let [rate, per_cpu] = alternate(scale.pairs(), ours, limit)?;
        session.row(Row::of(&cases[0], "GB/s", &rate, NOTE))?;
        session.row(Row::of(&cases[1], "GB/CPU-s", &per_cpu, NOTE_PER_CPU))?;
        session.row(Row::of(&cases[2], "%", &copied.into_inner(), NOTE_COPIED))?;
    }
    Ok(())
}
