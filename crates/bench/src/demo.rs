//! `bench demo`: the demo as users start it, alternating with its limits: the device, written in order by one thread
//! past the page cache, and a copy that gathers the fragments of one event after the other.
//!
//! `bench start`: from exec to the first event built, beside the same program with `--version`.

use crate::BenchError;
use crate::pairs::{Series, alternate, take_turns};
use crate::session::{Row, Session, case};
use crate::storing::{BareFiles, Stretch, takes_direct_writes};
use ropewalk_doctor::run::scratch;
use ropewalk_io::disk::WriteMode;
use ropewalk_memory::{HugePages, Owner, Pool, PoolConfig};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The demo's fragments per event, and bytes per fragment.
const SOURCES: usize = 16;
const FRAGMENT_BYTES: usize = 2048;
/// Bytes of memory to gather from, as in the demo's pool; more than a cache holds.
const POOL_BYTES: usize = 128 << 20;
/// Bytes gathered for one write.
const BLOCK: usize = 1 << 20;
const NOTE: &str = "limit: the slower one of the device, written in order, and a gathering copy; target: 0.8";
const NOTE_DISK: &str = "the device: one thread, in order, O_DIRECT, 1 MiB at a time; without sync";
const NOTE_COPY: &str = "one thread, 128 MiB of memory, fragments of 2 KiB from all over it, into blocks of 1 MiB";
/// The note if the device is not measured.
const CACHED: &str =
    "this file system takes no O_DIRECT: the limit is a loop of buffered writes, the page cache and not the device";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let case_of = |figure: &str| {
        let sizes = [("sources", json!(SOURCES)), ("fragment_bytes", json!(FRAGMENT_BYTES))];
        case([("figure", json!(figure)), sizes[0].clone(), sizes[1].clone()])
    };
    let cases = ["rate", "disk", "copy"].map(case_of);
    if !cases.iter().any(|case| session.wants(case)) {
        return Ok(());
    }
    session.attempt(&cases[0], |session| {
        let options = &session.options;
        let duration = Duration::from_millis(options.scale.choose(50, 3000, 10_000));
        let program = options.program()?;
        let (output, bare_output) = (scratch(&options.output, "demo"), scratch(&options.output, "demo-bare"));
        let is_direct = takes_direct_writes(&bare_output)?;
        let mode = if is_direct { WriteMode::Direct } else { WriteMode::Buffered };
        let ours = || demo(program, &output, duration).map(|[rate, cost]| vec![rate, cost, rate, rate]);
        let mut copier = Copier::new()?;
        let limit = || {
            let bare = BareFiles { mode, huge_pages: HugePages::Auto, block: BLOCK };
            let begin = Instant::now();
            let written = bare.write(&bare_output, |_| begin.elapsed() >= duration);
            // Ignored: what remains is this process's own directory, and the figure is valid.
            let _ = std::fs::remove_dir_all(&bare_output);
            let [disk, disk_cost] = written.map_err(BenchError::system("bare writing"))?;
            let [copy, copy_cost] = copier.copy(duration / 4);
            Ok(vec![disk.min(copy), disk_cost + copy_cost, disk, copy])
        };
        let mut series = vec![Series::default(); 4];
        take_turns(options.scale.pairs(), &mut series, ours, limit)?;
        let [rate, cost, disk, copy] = &series[..] else { return Err(BenchError::wrong("four figures")) };
        let remark = (!is_direct).then(|| CACHED.to_owned());
        session.row(Row::of(&cases[0], "GB/s", rate, NOTE).with_process_cpu(cost).with_remark(remark.clone()))?;
        session.row(Row::of(&cases[1], "GB/s", &alone(disk), NOTE_DISK).with_remark(remark))?;
        session.row(Row::of(&cases[2], "GB/s", &alone(copy), NOTE_COPY))
    })
}

/// A limit as a figure without a limit.
fn alone(series: &Series) -> Series {
    Series { ours: series.limit.clone(), limit: Vec::new() }
}

/// Runs the demo. Returns its payload rate in 10^9 bytes a second, and the processor seconds per 10^9 bytes.
fn demo(program: &Path, output: &Path, duration: Duration) -> Result<[f64; 2], BenchError> {
    let mut command = Command::new(program);
    command.args(["demo", "--json", "--control", "127.0.0.1:0", "--duration"]);
    command.arg(format!("{}ms", duration.as_millis())).arg("--output").arg(output);
    let stretch = Stretch::begin();
    let ran = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    // Ignored, as above.
    let _ = std::fs::remove_dir_all(output);
    let ran = ran.map_err(BenchError::system("starting the program"))?;
    if !ran.status.success() {
        return Err(BenchError::wrong(ran.status));
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let account: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .map_err(|error| BenchError::wrong(error.to_string()))?;
    let figures = (account["rate"]["bytes_per_s"].as_f64(), account["bytes"]["payload_received"].as_u64());
    let (Some(rate), Some(bytes)) = figures else { return Err(BenchError::wrong("an account without a rate")) };
    Ok([rate / 1e9, stretch.figures(bytes)[1]])
}

/// Gathers events whose fragments are scattered over a pool.
struct Copier {
    memory: Pool,
    from: Vec<ropewalk_memory::Loan>,
}

impl Copier {
    fn new() -> Result<Self, BenchError> {
        let failed = |error: ropewalk_memory::PoolError| BenchError::wrong(error.to_string());
        let blocks = POOL_BYTES / BLOCK;
        let mut memory = Pool::new(PoolConfig::anonymous("gathering", BLOCK, blocks + 1)).map_err(failed)?;
        let mut from: Vec<_> = (0..blocks).filter_map(|_| memory.loan(Owner::SHARED)).collect();
        from.iter_mut().for_each(|block| block.spare().fill(0x5a));
        Ok(Self { memory, from })
    }

    /// Copies for `duration`. Returns 10^9 bytes a second, and the processor seconds per 10^9 bytes.
    fn copy(&mut self, duration: Duration) -> [f64; 2] {
        let Some(mut to) = self.memory.loan(Owner::SHARED) else { return [0.0; 2] };
        let (stretch, begin) = (Stretch::begin(), Instant::now());
        let (mut bytes, mut event) = (0, 0);
        let (blocks, fragments) = (self.from.len(), BLOCK / FRAGMENT_BYTES);
        while bytes == 0 || begin.elapsed() < duration {
            for (place, to) in to.spare().chunks_exact_mut(FRAGMENT_BYTES).enumerate() {
                // Each source has its own blocks, which it fills from front to back.
                let (source, number) = (place % SOURCES, event + place / SOURCES);
                let block = (source + SOURCES * (number / fragments)) % blocks;
                let begin = number % fragments * FRAGMENT_BYTES;
                to.copy_from_slice(&self.from[block].spare()[begin..begin + FRAGMENT_BYTES]);
            }
            event += fragments / SOURCES;
            bytes += BLOCK as u64;
            std::hint::black_box(to.spare());
        }
        stretch.figures(bytes)
    }
}

const NOTE_START: &str =
    "from exec to the end of a demo of one event: built, written, drained, closed; target: 0.3 s; limit: --version";

pub(crate) fn bench_start(session: &mut Session<'_>) -> Result<(), BenchError> {
    let case = case([("command", json!("demo --events 1"))]);
    session.measure(&case, |session| {
        let options = &session.options;
        let program = options.program()?;
        let output = scratch(&options.output, "start");
        let demo = || {
            let mut command = Command::new(program);
            command.args(["demo", "--events", "1", "--json", "--output"]).arg(&output);
            seconds(&mut command).map(|seconds| [seconds])
        };
        let version = || seconds(Command::new(program).arg("--version")).map(|seconds| [seconds]);
        let series = alternate(options.scale.choose(1, 9, 25), demo, version);
        // Ignored: what remains is this process's own directory, and the figure is valid.
        let _ = std::fs::remove_dir_all(&output);
        let [series] = series?;
        session.row(Row::of(&case, "s", &series, NOTE_START))
    })
}

/// The time from the start of a program to its successful end.
fn seconds(command: &mut Command) -> Result<f64, BenchError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status().map_err(BenchError::system("starting the program"))?;
    let seconds = begin.elapsed().as_secs_f64();
    if status.success() { Ok(seconds) } else { Err(BenchError::wrong(status)) }
}
