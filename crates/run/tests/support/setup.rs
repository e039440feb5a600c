//! A temporary directory, a configuration, a run in this process, and time-outs.

use ropewalk_config::{Configuration, parse};
use ropewalk_engine::RunSnapshot;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey, SourceId};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time-out of all waits: many times the normal duration on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `look` returns something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a port for a later listener. The system assigns ports from 32,768 on to any process, so that one of them may
/// be taken by then. Each test takes its own of the lower ones.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let here = (Ipv4Addr::LOCALHOST, 10_000 + (number % 20_000) as u16);
        if TcpListener::bind(here).is_ok() && UdpSocket::bind(here).is_ok() {
            return here.1;
        }
    }
}

/// A directory that is removed with everything in it.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropewalk-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A configuration under construction: one readout unit `ru0` and one builder unit `bu0` by default.
#[derive(Debug)]
pub(crate) struct Setup {
    directory: TemporaryDirectory,
    readouts: Vec<String>,
    builders: Vec<String>,
    sources: String,
    rest: String,
}

/// A window that back-pressure reaches within a test, and pools that are soon in full use.
const READOUT: &str = "pool = \"8MiB\"\nblock = \"16KiB\"\nwindow = 256\ncapacity = 1024\n";
/// As many events as one window.
const BUILDER: &str = "bytes = \"4MiB\"\nevents = 256\n";
/// Time-outs longer than a test: actions that must happen immediately cannot depend on one.
const NEVER: &str = "[timeouts]\nreadout = \"100s\"\nbuilder = \"101s\"\nmanager = \"102s\"\ndrain = \"103s\"\n";

impl Setup {
    /// Creates a setup whose events need the fragments of these FED ids.
    pub(crate) fn new(name: &str, ids: &[u32]) -> Self {
        let directory = TemporaryDirectory::new(name);
        let (readouts, builders) = (vec![READOUT.to_owned()], vec![BUILDER.to_owned()]);
        let one = Self { directory, readouts, builders, sources: String::new(), rest: NEVER.to_owned() };
        ids.iter().fold(one, |setup, id| setup.source(&format!("id = {id}\nreadout = \"ru0\"")))
    }

    /// Adds a source with these settings; largest fragment 64 KiB.
    pub(crate) fn source(mut self, settings: &str) -> Self {
        let _ = write!(self.sources, "[[source]]\nmax_fragment = \"64KiB\"\n{settings}\n");
        self
    }

    /// Replaces the settings of the readout unit.
    pub(crate) fn readout(mut self, settings: &str) -> Self {
        self.readouts = vec![settings.to_owned()];
        self
    }

    /// Replaces the settings of the builder unit.
    pub(crate) fn builder(mut self, settings: &str) -> Self {
        self.builders = vec![settings.to_owned()];
        self
    }

    /// Adds a readout unit like the first one.
    pub(crate) fn another_readout(mut self) -> Self {
        self.readouts.push(READOUT.to_owned());
        self
    }

    /// Adds a builder unit like the first one.
    pub(crate) fn another_builder(mut self) -> Self {
        self.builders.push(BUILDER.to_owned());
        self
    }

    /// Sets time-outs that pass within a test: this one for a silent source.
    pub(crate) fn timeout(self, readout: &str) -> Self {
        self.timeouts([readout, "8s", "9s", "10s"])
    }

    /// Sets the time-outs of readout units, builder units, the event manager, and for draining.
    pub(crate) fn timeouts(mut self, [readout, builder, manager, drain]: [&str; 4]) -> Self {
        let section = format!(
            "[timeouts]\nreadout = \"{readout}\"\nbuilder = \"{builder}\"\nmanager = \"{manager}\"\ndrain = \"{drain}\"\n"
        );
        self.rest = self.rest.replace(NEVER, &section);
        self
    }

    /// Adds any other lines to the configuration.
    pub(crate) fn and(mut self, text: &str) -> Self {
        self.rest.push_str(text);
        self
    }

    /// Returns the parent of the run directories.
    pub(crate) fn output(&self) -> PathBuf {
        self.directory.path().join("runs")
    }

    /// Returns the directory for other files of the test.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the configuration as text.
    pub(crate) fn text(&self) -> String {
        let mut text = "version = 1\n".to_owned();
        if !self.rest.contains("[run]") {
            let _ = write!(text, "[run]\noutput = '{}'\nsync = \"never\"\n", self.output().display());
        }
        text.push_str(&self.rest);
        for (index, settings) in self.readouts.iter().enumerate() {
            let _ = write!(text, "[[readout]]\nname = \"ru{index}\"\n{settings}");
        }
        for (index, settings) in self.builders.iter().enumerate() {
            let pool = if settings.contains("pool =") { "" } else { "pool = \"8MiB\"\n" };
            let _ = write!(text, "[[builder]]\nname = \"bu{index}\"\n{pool}{settings}");
        }
        text.push_str(&self.sources);
        text
    }

    /// Returns the configuration, parsed and checked.
    pub(crate) fn configuration(&self) -> Configuration {
        parse("test.toml", &self.text(), &|_| None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Writes the configuration to a file.
    pub(crate) fn file(&self) -> PathBuf {
        let path = self.directory.path().join("test.toml");
        std::fs::write(&path, self.text()).expect("a file can be written");
        path
    }

    /// Launches all nodes in this process and starts a run of the keys from 1 on; up to `events` if given.
    pub(crate) fn start(&self, events: Option<u64>) -> Run {
        let mut handle = launch(&self.configuration(), None).unwrap_or_else(|error| panic!("{error}"));
        handle.start(EventKey::new(0, 1), events.map(|last| EventKey::new(0, last)));
        let mut run = Run { handle };
        run.wait_until("the run goes on", |snapshot| snapshot.phase.is_running());
        run
    }
}

/// Returns a short description of a snapshot: its non-zero numbers.
fn described(snapshot: &RunSnapshot) -> String {
    let events = &snapshot.ledger.events;
    let mut text = format!("{}, events {} assigned", snapshot.phase.name(), events.assigned);
    let _ = write!(
        text,
        ", {} built, {} incomplete, {} in flight",
        events.built, events.incomplete_emitted, events.in_flight
    );
    for (source, account) in &snapshot.sources {
        let _ = write!(text, "\nsource {source}: received {}, in flight {}", account.received, account.in_flight);
        let _ = write!(text, ", lost {}", account.lost());
        account.dropped.iter().for_each(|(cause, count)| _ = write!(text, ", {cause} {count}"));
    }
    let counters = snapshot.counters.iter().filter(|&(_, &count)| count > 0);
    counters.for_each(|(counter, count)| _ = write!(text, "\n{} {count}", counter.name()));
    text
}

/// A run in this process.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) handle: RunHandle,
}

impl Run {
    /// Returns the address that front ends connect to.
    pub(crate) fn address(&self) -> String {
        self.handle.addresses()[0].1.clone()
    }

    /// Returns the recent snapshot of the run.
    pub(crate) fn snapshot(&self) -> RunSnapshot {
        self.handle.snapshot()
    }

    /// Returns the sample for monitoring.
    pub(crate) fn sample(&self) -> ropewalk_monitor::Sample {
        self.handle.sample()
    }

    /// Returns a counter's sum over all nodes, as last reported.
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.snapshot().counters.get(&counter).copied().unwrap_or(0)
    }

    /// Waits until a snapshot fulfils a condition.
    pub(crate) fn wait_until(&mut self, what: &str, condition: impl Fn(&RunSnapshot) -> bool) {
        let begin = Instant::now();
        while !condition(&self.snapshot()) {
            assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}: {}", described(&self.snapshot()));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until this many fragments of a source have arrived.
    pub(crate) fn wait_for_fragments(&mut self, source: u32, count: u64) {
        self.wait_until("the fragments have come", |snapshot| {
            snapshot.sources.get(&SourceId(source)).is_some_and(|account| account.received == count)
        });
    }

    /// Waits until a counter has reached this value.
    pub(crate) fn wait_for_count(&mut self, counter: Counter, count: u64) {
        self.wait_until(&format!("{} is {count}", counter.name()), |snapshot| {
            snapshot.counters.get(&counter).is_some_and(|&now| now >= count)
        });
    }

    /// Stops the run. Everything received so far is still built.
    pub(crate) fn stop(&mut self) {
        self.handle.stop();
    }

    /// Waits for the end of the run. Returns its account, which must balance.
    pub(crate) fn end(mut self) -> RunSummary {
        let begin = Instant::now();
        while !self.handle.is_ended() {
            assert!(begin.elapsed() < PATIENCE, "the run does not end: {}", described(&self.snapshot()));
            std::thread::sleep(Duration::from_millis(2));
        }
        let summary = self.handle.finish(Duration::from_secs(5));
        assert!(summary.is_balanced(), "the ledger does not balance: {summary:#?}");
        assert_eq!((summary.fragments.in_flight, summary.events.in_flight), (0, 0), "in flight after the end");
        summary
    }
}
