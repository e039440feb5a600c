//! Payloads that are written for every event by the front ends, and checked by the readout unit, as in the published
//! figures of flesnet: two inputs, one builder, over loopback, nothing written to disk.

use super::SEND;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::{RunPlan, USUAL_POOL_MIB, scratch};
use ropewalk_limits::{SlinkConfig, WalkConfig, tcp_walk};
use serde_json::json;
use std::time::Duration;

const NOTE: &str = "every payload written word by word with its checksum, and checked; limit: bare receiver that walks the \
                    headers of the same streams; flesnet, on a machine like this one: 1.3, 1.7 and 2.1 at 1, 10 and 100 \
                    KiB; target: twice that";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for &bytes in scale.choose(&[1 << 10][..], &[1 << 10, 10 << 10, 100 << 10], &[1 << 10, 10 << 10, 100 << 10]) {
        let case = case([("figure", json!("checked")), ("streams", json!(2)), ("fragment_bytes", json!(bytes))]);
        if !session.wants(&case) {
            continue;
        }
        let sender = SlinkConfig {
            streams: 2,
            fragment_bytes: bytes,
            fragments_per_send: (SEND / bytes).max(1),
            written: true,
            ..SlinkConfig::default()
        };
        let plan = RunPlan {
            sender,
            builders: 1,
            check_crc: true,
            write: false,
            filter: "",
            warm_up: Duration::from_millis(scale.choose(20, 150, 400)),
            interval: Duration::from_millis(scale.choose(100, 300, 1000)),
            cpus: (scale != Scale::Tiny).then_some([0, 1]),
            pool_mib: USUAL_POOL_MIB,
            output: scratch(&session.options.output, "checked"),
        };
        let limit = || {
            let config = WalkConfig { sender, duration: plan.interval, cpus: plan.cpus, ..WalkConfig::default() };
            Ok([tcp_walk(config).map_err(BenchError::system("bare receiver"))?.gigabytes_per_second()])
        };
        let [series] = alternate(scale.pairs(), || Ok([plan.run()?.gigabytes_per_second]), limit)?;
        session.row(Row::of(&case, "GB/s", &series, NOTE))?;
    }
    Ok(())
}
