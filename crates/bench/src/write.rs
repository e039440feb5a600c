//! `bench write`: from sockets to run files, beside a bare loop that writes as many bytes with the same calls.

use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::{RunPlan, scratch};
use ropewalk_limits::SlinkConfig;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one bare write: what the builder unit gathers at most.
const BATCH: usize = 8 << 20;
/// Bytes after which the bare loop begins its next file and removes the last but one, as a run with `keep` does.
const FILE: usize = 512 << 20;
const NOTE: &str = "limit: bare buffered writes of 8 MiB without a source; both without sync: memory and file system";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let sender = SlinkConfig::default();
    let case = case([("sources", json!(sender.streams)), ("fragment_bytes", json!(sender.fragment_bytes))]);
    if !session.wants(&case) {
        return Ok(());
    }
    // The thread of the disk must not share the nodes' processor.
    let usual = session.plan(sender, [100, 1500, 3000], "write");
    let plan = RunPlan { check_crc: true, write: true, cpus: None, ..usual };
    let bare = scratch(&session.options.output, "write-bare");
    let ours = || Ok([plan.run()?.gigabytes_per_second]);
    let limit = || {
        let written = write_bare(&bare, plan.interval, scale).map_err(BenchError::system("bare writing"));
        // What is left behind is this process's own directory; the figure is good all the same.
        let _ = std::fs::remove_dir_all(&bare);
        Ok([written?])
    };
    let [series] = alternate(scale.pairs(), ours, limit)?;
    session.row(Row::of(&case, "GB/s", &series, NOTE))
}

/// Writes until the time is over; 10^9 bytes a second.
fn write_bare(directory: &Path, duration: Duration, scale: Scale) -> std::io::Result<f64> {
    std::fs::create_dir_all(directory)?;
    let batch = vec![0x5a; scale.choose(64 << 10, BATCH, BATCH)];
    let (begin, mut bytes, mut number) = (Instant::now(), 0, 0);
    let mut file = File::create(directory.join("0"))?;
    while begin.elapsed() < duration {
        if bytes / FILE > number {
            number = bytes / FILE;
            file = File::create(directory.join(number.to_string()))?;
            if number >= 2 {
                std::fs::remove_file(directory.join((number - 2).to_string()))?;
            }
        }
        file.write_all(&batch)?;
        bytes += batch.len();
    }
    Ok(bytes as f64 / begin.elapsed().as_secs_f64() / 1e9)
}
