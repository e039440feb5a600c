//! A measured run: the nodes as a user starts them, fed at full speed by cheap emulated front ends, each half on its
//! own processor. The doctor and benches use such runs.

use crate::DoctorError;
use crate::emulated::{SlinkConfig, SlinkSender};
use crate::processor::{pin, process_cpu_seconds};
use ropewalk_config::{Configuration, parse};
use ropewalk_run::{RunHandle, launch};
use ropewalk_terms::{Counter, EventKey};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// What the front ends send.
    pub sender: SlinkConfig,
    /// Builder units.
    pub builders: usize,
    /// Whether the checksums of fragments are computed.
    pub check_crc: bool,
    /// Whether run files are written.
    pub write: bool,
    /// Further sections, such as `[filter]`.
    pub filter: &'static str,
    /// Unmeasured time at the beginning.
    pub warm_up: Duration,
    /// Measured time.
    pub interval: Duration,
    /// Memory of the readout unit, in MiB.
    pub pool_mib: usize,
    /// The processors of nodes and front ends; `None` leaves both to the scheduler.
    pub cpus: Option<[usize; 2]>,
    /// The directory for run directories; removed at the end.
    pub output: PathBuf,
}

/// The result of a run.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Ran {
    /// 10^9 bytes of fragments received a second.
    pub gigabytes_per_second: f64,
    /// The same per processor second of the nodes' threads.
    pub per_processor_second: f64,
    /// Bytes copied in user space per byte of payload.
    pub copied: f64,
    /// Processor seconds per 10^9 bytes, of all threads of this process, including the front ends.
    pub cpu_seconds_per_gigabyte: f64,
}

/// Default memory of a readout unit, in MiB.
pub const USUAL_POOL_MIB: usize = 128;

/// Time-out of everything that is not measured.
const PATIENCE: Duration = Duration::from_secs(30);

/// Work beside a run, until the flag is set.
pub type Beside<'a> = dyn Fn(&RunHandle, &AtomicBool) + Sync + 'a;

impl RunPlan {
    /// Runs, and measures in the middle of the run.
    ///
    /// # Errors
    /// If the system refuses an operation, the run's account does not balance, or anything is lost.
    pub fn run(&self) -> Result<Ran, DoctorError> {
        self.run_beside(&|_, _| ())
    }

    /// The same, with `beside` running until the front ends stop.
    ///
    /// # Errors
    /// As [`RunPlan::run`].
    pub fn run_beside(&self, beside: &Beside<'_>) -> Result<Ran, DoctorError> {
        let ran = std::thread::scope(|scope| {
            // The nodes' threads inherit the processor of the thread that launches them.
            let launching = scope.spawn(|| {
                pin(self.cpus.map(|[nodes, _]| nodes));
                let before = threads();
                let handle = launch(&self.configuration()?, None).map_err(DoctorError::wrong)?;
                Ok((handle, threads().difference(&before).cloned().collect()))
            });
            let (handle, nodes) = launching.join().unwrap_or_else(|_| Err(DoctorError::wrong("a panic")))?;
            self.feed(handle, &nodes, beside)
        });
        // Ignored: a directory that cannot be removed was written to, and the figure is valid.
        let _ = std::fs::remove_dir_all(&self.output);
        ran
    }

    fn configuration(&self) -> Result<Configuration, DoctorError> {
        let mut configuration = parse("bench", &self.text(false), &|_| None).map_err(DoctorError::wrong)?;
        configuration.run.output.clone_from(&self.output);
        Ok(configuration)
    }

    /// The run as a configuration file; the run ends with the front ends, or when it is stopped.
    pub fn text(&self, until_sources_end: bool) -> String {
        let mut text = format!(
            "version = 1\n[run]\nwrite = {}\nacknowledge = \"{}\"\nsync = \"never\"\ncheck_crc = {}\nkeep = \"1GiB\"\n\
             until_sources_end = {until_sources_end}\n[[readout]]\nname = \"ru0\"\npool = \"{}MiB\"\n",
            self.write,
            if self.write { "written" } else { "built" },
            self.check_crc,
            self.pool_mib,
        );
        text.push_str(self.filter);
        for builder in 0..self.builders {
            let _ = write!(text, "[[builder]]\nname = \"bu{builder}\"\n");
        }
        for stream in 0..self.sender.streams {
            let id = self.sender.first_source.0 + stream as u32;
            let _ = write!(text, "[[source]]\nid = {id}\nreadout = \"ru0\"\non_close = \"end\"\n");
        }
        text
    }

    fn feed(&self, mut handle: RunHandle, nodes: &BTreeSet<String>, beside: &Beside<'_>) -> Result<Ran, DoctorError> {
        let address = handle.addresses().iter().find(|(name, _)| name == "ru0").and_then(|(_, at)| at.parse().ok());
        let address = address.ok_or_else(|| DoctorError::wrong("the readout unit has no address"))?;
        let stop = AtomicBool::new(false);
        let (measured, sent) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                pin(self.cpus.map(|[_, sender]| sender));
                SlinkSender::connect(&[address], self.sender)?.run(&stop)
            });
            handle.start(EventKey::new(0, 1), None);
            scope.spawn(|| beside(&handle, &stop));
            let measured = self.measure(&handle, nodes);
            stop.store(true, Ordering::Relaxed);
            (measured, sending.join())
        });
        let sent = sent.map_err(|_| DoctorError::wrong("a panic"))?.map_err(DoctorError::system("front ends"))?;
        let received = |handle: &RunHandle| handle.snapshot().counter(Counter::PayloadBytesReceived);
        // If the run were stopped before the last byte arrived, that byte would count as after the stop.
        wait(|| received(&handle) == sent.fragment_bytes);
        handle.stop();
        wait(|| handle.is_ended());
        let snapshot = handle.snapshot();
        let summary = handle.finish(Duration::from_secs(5));
        let payload = snapshot.counter(Counter::PayloadBytesReceived);
        let whole = payload == sent.fragment_bytes && snapshot.ledger.events.built == u64::from(sent.events);
        if !whole || !summary.is_balanced() || !summary.is_lossless() {
            return Err(DoctorError::wrong(format!("the run's account: {:?} of {sent:?}", summary.fragments)));
        }
        let copied = snapshot.counter(Counter::BytesCopied) as f64 / payload.max(1) as f64;
        Ok(Ran { copied, ..measured? })
    }

    fn measure(&self, handle: &RunHandle, nodes: &BTreeSet<String>) -> Result<Ran, DoctorError> {
        let first = next_count(handle, nodes, self.warm_up)?;
        let second = next_count(handle, nodes, self.interval)?;
        let bytes = (second.bytes - first.bytes) as f64 / 1e9;
        let cpu = second.cpu_seconds - first.cpu_seconds;
        Ok(Ran {
            gigabytes_per_second: bytes / (second.at - first.at).as_secs_f64(),
            per_processor_second: if cpu > 0.0 { bytes / cpu } else { 0.0 },
            copied: 0.0,
            cpu_seconds_per_gigabyte: (second.process_seconds - first.process_seconds) / bytes.max(1e-9),
        })
    }
}

/// Waits until `over`, for a bounded time. Returns whether it is.
pub fn wait(mut over: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !over() {
        if began.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

struct Count {
    at: Instant,
    bytes: u64,
    /// Of the nodes' threads, and of all threads.
    cpu_seconds: f64,
    process_seconds: f64,
}

/// The next change of the number of received bytes, after a pause: numbers are published twenty times a second, and
/// only a new one belongs to the time at which it is read.
fn next_count(handle: &RunHandle, nodes: &BTreeSet<String>, after: Duration) -> Result<Count, DoctorError> {
    let received = || handle.snapshot().counter(Counter::PayloadBytesReceived);
    std::thread::sleep(after);
    let (begin, before) = (Instant::now(), received());
    while begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
        let bytes = received();
        if bytes != before {
            let (cpu_seconds, process_seconds) = (cpu_seconds(nodes.iter()), process_cpu_seconds());
            return Ok(Count { at: Instant::now(), bytes, cpu_seconds, process_seconds });
        }
    }
    Err(DoctorError::wrong("nothing is received"))
}

/// The thread ids of this process.
fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).collect()
}

/// Processor seconds of these threads; 0 if the kernel does not report them.
fn cpu_seconds<'a>(threads: impl Iterator<Item = &'a String>) -> f64 {
    let used = threads.filter_map(|thread| {
        let times = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        times.split(' ').next()?.parse::<f64>().ok()
    });
    used.sum::<f64>() * 1e-9
}

/// The path of a directory that belongs to this process alone.
pub fn scratch(below: &Path, name: &str) -> PathBuf {
    below.join(format!("bench-{name}-{}", std::process::id()))
}
