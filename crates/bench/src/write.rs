//! `bench write`: from sockets to run files, beside a bare loop that writes to the same device: one thread, in order, past the page
//! cache.

use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::storing::{BareFiles, takes_direct_writes};
use ropewalk_doctor::run::{RunPlan, scratch};
use ropewalk_io::disk::WriteMode;
use ropewalk_limits::SlinkConfig;
use ropewalk_memory::HugePages;
use serde_json::json;
use std::time::Instant;

/// Bytes of one bare write: what the builder unit gathers at most.
const BATCH: usize = 8 << 20;
const NOTE: &str =
    "limit: the device, which one thread writes in order with O_DIRECT, 8 MiB at a time; both without sync";
/// Where the limit is not the device.
const CACHED: &str =
    "this file system takes no O_DIRECT: the limit is a loop of buffered writes, the page cache and not the device";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let sender = SlinkConfig::default();
    let case = case([("sources", json!(sender.streams)), ("fragment_bytes", json!(sender.fragment_bytes))]);
    session.measure(&case, |session| {
        let scale = session.options.scale;
        // The thread of the disk must not share the nodes' processor.
        let usual = session.plan(sender, [100, 1500, 3000], "write");
        let plan = RunPlan { check_crc: true, write: true, cpus: None, ..usual };
        let directory = scratch(&session.options.output, "write-bare");
        let is_direct = takes_direct_writes(&directory)?;
        let mode = if is_direct { WriteMode::Direct } else { WriteMode::Buffered };
        let bare = BareFiles { mode, huge_pages: HugePages::Auto, block: scale.choose(64 << 10, BATCH, BATCH) };
        let ours = || {
            let ran = plan.run()?;
            Ok([ran.gigabytes_per_second, ran.cpu_seconds_per_gigabyte])
        };
        let limit = || {
            let begin = Instant::now();
            let written = bare.write(&directory, |_| begin.elapsed() >= plan.interval);
            // What is left behind is this process's own directory; the figure is good all the same.
            let _ = std::fs::remove_dir_all(&directory);
            written.map_err(BenchError::system("bare writing"))
        };
        let [rate, all] = alternate(scale.pairs(), ours, limit)?;
        let row = Row::of(&case, "GB/s", &rate, NOTE).with_process_cpu(&all);
        session.row(row.with_remark((!is_direct).then(|| CACHED.to_owned())))
    })
}
