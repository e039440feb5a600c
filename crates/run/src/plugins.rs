//! Filters and splitters from libraries and programs: threads, processes, and their reported faults.

use super::error::{RunError, endpoint, unfit};
use super::placement::{Purpose, ThreadPlacement, pool_of};
use super::workshop::Workshop;
use crate::monitoring::Archive;
use ropewalk_config::{Configuration, FilterSection, SourceSection, SplitterSection};
use ropewalk_engine::{
    FilterLink, FilterSight, FilterStage, LocalFilter, NotBelieved, Offered, ProcessSight, RESULT_BYTES, ReadoutDrive,
    RemoteNotes, RemoteUnit, Said, SplitterLink, UnitDecision,
};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Decision, FarmConfig, HistogramShape};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_memory::{Payload, PoolConfig, Staging};
use ropewalk_plugin::filter::process::{FilterProcess, MOST_EVENTS, Offer, ProcessConfig};
use ropewalk_plugin::filter::{Filter, FilterConfig};
use ropewalk_plugin::process::{self, MOST_FRAMES, SplitterProcess};
use ropewalk_plugin::{Journal, Splitter, SplitterConfig};
use ropewalk_terms::{Cause, Instant, NodeId, RunNumber, SourceId};
use ropewalk_tools::library_process::{COPIES, library_process};
use ropewalk_wire::framing::{Piece, PieceKey};
use std::hash::{Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Command with which this program executes a filter's program. Arguments: memory, the starting process, the program
/// and its arguments.
const PROGRAM: &str = "filter-program";
/// Minimum pause before another process is started or a node is called again.
const LEAST_DELAY: Duration = Duration::from_millis(1);
/// Number of connections to a node lost within a minute at which it would be given up. With that pause there cannot be
/// more, so that a node is never given up.
const CONNECTIONS: u32 = 60_000;
/// Blocks into which the decisions of a filter unit on another machine are received.
const DECISIONS_BLOCK: usize = 64 << 10;
const DECISIONS_BLOCKS: usize = 32;
/// Blocks for the heads of events sent there. The heads of one event lie side by side.
const HEADS_BLOCK: usize = 256 << 10;
const HEADS_BLOCKS: usize = 32;
/// Maximum number of bytes of events that wait to be sent there.
const QUEUE: usize = 16 << 20;

/// Filter units, and the reporters of their faults.
type Units = (Vec<Box<dyn FilterLink>>, Vec<Watched>);

/// Creates the filters of builder units, or of gateways without a farm.
pub(super) struct Filters<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) placement: &'a ThreadPlacement,
}

impl Filters<'_> {
    /// Creates the filter of a builder unit or an input queue, sized by the events in work, and the reporter of its
    /// faults.
    pub(super) fn stage(
        &self,
        builder: &str,
        slots: u32,
        (node, output): (NodeId, &Path),
        watched: &mut Vec<Watched>,
        archive: &mut Archive,
    ) -> Result<FilterStage, RunError> {
        let Some(section) = &self.configuration.filter else {
            return Ok(FilterStage::none(self.configuration.streams(), slots));
        };
        let (stage, own) = self.filter(section, builder, slots)?;
        watched.extend(own);
        if !self.configuration.run.write {
            return Ok(stage);
        }
        let names = self.configuration.streams().names().collect();
        Ok(stage.with_record_store(Box::new(archive.line(node, output.to_owned(), names))))
    }

    fn filter(
        &self,
        section: &FilterSection,
        builder: &str,
        slots: u32,
    ) -> Result<(FilterStage, Vec<Watched>), RunError> {
        let streams = self.configuration.streams();
        let results = self.results(builder, slots)?;
        if section.has_processes() {
            let is_remote = !section.nodes.is_empty();
            let (links, watched) =
                if is_remote { self.remote_units(builder, section)? } else { self.units(builder, section)? };
            let supervision = SupervisorConfig {
                timeout: section.timeout.0,
                // An unreachable node is awaited: it is not a fault of the events.
                start_timeout: if is_remote { Duration::MAX } else { START },
                restart_delay: section.restart_delay.0.max(LEAST_DELAY),
                restarts: if is_remote { CONNECTIONS } else { section.restarts },
            };
            let config = FarmConfig { units: section.units, slots, supervision };
            return Ok((FilterStage::units(config, links, streams, results), watched));
        }
        let (filter, watched): (Box<dyn LocalFilter>, _) = match library(section) {
            None => (Box::new(section.builtin_filter()), Vec::new()),
            Some(config) => {
                let filter = Filter::new(&config).map_err(unfit)?;
                let watched = Watched::new(format!("{builder}: filter"), filter.journal());
                (Box::new(Trusted(filter)), vec![watched])
            }
        };
        Ok((FilterStage::here(filter, streams, results, slots), watched))
    }

    /// Creates the filter units of a builder unit.
    fn units(&self, builder: &str, section: &FilterSection) -> Result<Units, RunError> {
        let (mut links, mut watched): (Vec<Box<dyn FilterLink>>, _) = (Vec::new(), Vec::new());
        for unit in 0..section.units {
            let mut process = filter_process(section).map_err(unfit)?;
            if unit == 0 {
                process.try_out(START).map_err(unfit)?;
                process.missing().texts().for_each(|text| self.placement.warn(format!("{builder}: filter: {text}")));
            }
            watched.push(Watched::new(format!("{builder}: filter {unit}"), process.journal()));
            links.push(Box::new(LinkedFilter { process, events: section.events, taken: 0 }));
        }
        Ok((links, watched))
    }

    /// Creates the filter units of a builder unit on other machines, distributed over the nodes in turn.
    fn remote_units(&self, builder: &str, section: &FilterSection) -> Result<Units, RunError> {
        let (mut links, mut watched): (Vec<Box<dyn FilterLink>>, _) = (Vec::new(), Vec::new());
        for (unit, address) in (0..section.units).zip(section.nodes.iter().cycle()) {
            let name = format!("{builder}-filter{unit}");
            let pool = |purpose, block, blocks| PoolConfig::anonymous(&pool_of(&name, purpose), block, blocks);
            let decisions = self.placement.pool(pool(Purpose::Control, DECISIONS_BLOCK, DECISIONS_BLOCKS))?;
            let mechanism = self.configuration.run.tcp;
            let tcp = TcpConfig { send_queue_bytes: QUEUE, mechanism, ..TcpConfig::default() };
            let peers = Tcp::new(tcp, decisions).map_err(endpoint(&name))?;
            let heads = self.pool(pool(Purpose::Staging, HEADS_BLOCK, HEADS_BLOCKS))?;
            let link = RemoteUnit::new(address.clone(), fingerprint(section), peers, heads);
            watched.push(Watched::remote(format!("{builder}: filter {unit}"), link.notes()));
            links.push(Box::new(link));
        }
        Ok((links, watched))
    }

    /// Creates the memory for the filters' output on events, large enough for each event in work.
    fn results(&self, builder: &str, slots: u32) -> Result<Staging, RunError> {
        let name = pool_of(builder, Purpose::Results);
        self.pool(PoolConfig::anonymous(&name, RESULT_BYTES.next_multiple_of(4096), slots as usize + 1))
    }

    fn pool(&self, config: PoolConfig) -> Result<Staging, RunError> {
        Ok(Staging::new(self.placement.untouched_pool(config)?))
    }
}

/// Returns the library, if there is one.
fn library(section: &FilterSection) -> Option<FilterConfig> {
    let library = section.library.clone()?;
    Some(FilterConfig { library, configuration: section.configuration.clone() })
}

/// Returns the first filter library that cannot be used on this machine, with its key, if the configuration runs it
/// here. Each library is loaded and created in a separate process, which is then ended.
pub fn unusable_library(configuration: &Configuration) -> Option<(&'static str, String)> {
    let in_run = configuration.filter.as_ref().filter(|section| section.nodes.is_empty());
    let in_run = in_run.and_then(|section| Some(("filter.library", library(section)?, section.memory.0)));
    let of_files = configuration.file_based.as_ref().and_then(|section| {
        let (library, configuration) = (section.library.clone()?, section.configuration.clone());
        Some(("file_based.library", FilterConfig { library, configuration }, section.memory.0))
    });
    [in_run, of_files].into_iter().flatten().find_map(|(key, filter, memory)| {
        let wrong = library_process(filter, memory).and_then(|mut process| process.try_out(START)).err()?;
        Some((key, wrong.to_string()))
    })
}

/// Returns the splitters that cannot be used on this machine, with the index of their source. Each is tried out like a
/// filter.
pub fn unusable_splitters(configuration: &Configuration) -> Vec<(usize, String)> {
    let tried = |(index, source): (usize, &SourceSection)| {
        let section = source.own_splitter()?;
        let wrong = splitter_process(splitter(source, section), section).err()?;
        Some((index, wrong.to_string()))
    };
    configuration.source.iter().enumerate().filter_map(tried).collect()
}

/// Identifies a filter that runs on another machine: both sides must have the same configuration.
pub(super) fn fingerprint(section: &FilterSection) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (&section.library, &section.program, &section.configuration).hash(&mut hasher);
    hasher.finish()
}

/// Creates a process that is not started yet.
pub(super) fn filter_process(section: &FilterSection) -> std::io::Result<FilterProcess> {
    let memory = section.memory.0;
    match (library(section), &section.program) {
        (Some(filter), _) => library_process(filter, memory),
        (None, program) => {
            let limits = [memory.to_string(), std::process::id().to_string()];
            let begin = [std::env::current_exe()?, PathBuf::from(PROGRAM)].into_iter().chain(limits.map(PathBuf::from));
            let command = begin.chain(program.iter().flatten().map(PathBuf::from)).collect();
            // A program only gets the text.
            let filter = FilterConfig { library: PathBuf::new(), configuration: section.configuration.clone() };
            FilterProcess::new(ProcessConfig { filter, memory, copies: COPIES, command })
        }
    }
}

/// A library's filter in this thread.
struct Trusted(Filter);

impl LocalFilter for Trusted {
    fn begin(&mut self, run: RunNumber) {
        self.0.begin_run(run);
    }

    fn histograms(&self) -> &[HistogramShape] {
        self.0.histograms()
    }

    fn decide(&mut self, event: &EventView<'_>, said: &mut Said) -> Option<Decision> {
        let decision = self.0.process(event).ok()??;
        said.result.extend_from_slice(decision.result);
        said.fills.copy_from(decision.fills);
        Some(Decision { accept: decision.accept, triggers: decision.bits })
    }

    fn end(&mut self) {
        self.0.end_run();
    }

    fn time(&self) -> Option<Instant> {
        Some(MonotonicClock.now())
    }
}

/// A process, as seen by the drive.
struct LinkedFilter {
    process: FilterProcess,
    /// Number of events that it has at once.
    events: u32,
    /// Number of decisions of this incarnation that were taken.
    taken: u64,
}

impl FilterLink for LinkedFilter {
    fn start(&mut self) {
        self.taken = 0;
        self.process.start();
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn dismiss(&mut self) {
        self.process.dismiss();
    }

    fn begin(&mut self, run: RunNumber) {
        self.process.begin_run(run);
    }

    fn end(&mut self) {
        self.process.end_run();
    }

    fn look(&mut self, _: Instant) -> FilterSight {
        let seen = self.process.look();
        let granted = self.taken + (self.events as usize).min(MOST_EVENTS) as u64;
        let decided = self.process.decided();
        let signal = self.process.last_signal();
        FilterSight { is_ready: seen.is_ready, has_ended: seen.has_ended, signal, granted, decided }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        match self.process.offer(slot, event) {
            Offer::Taken => Offered::Taken,
            Offer::Full => Offered::Full,
            Offer::TooLarge => Offered::TooLarge,
        }
    }

    fn flush(&mut self) {
        self.process.flush();
    }

    fn histograms(&self) -> &[HistogramShape] {
        self.process.histograms()
    }

    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        Some(match self.process.next_decision()? {
            Err(_) => Err(NotBelieved),
            Ok((slot, decision)) => {
                self.taken += 1;
                said.clear();
                if let Some(decision) = decision {
                    said.result.extend_from_slice(decision.result);
                    said.fills.copy_from(decision.fills);
                }
                let decision = decision.map(|said| Decision { accept: said.accept, triggers: said.bits });
                Ok(UnitDecision { slot, decision })
            }
        })
    }

    fn copied_bytes(&self) -> u64 {
        self.process.copied_bytes()
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.process.descriptors());
    }
}

/// Command with which this program becomes a splitter's process.
const COMMAND: &str = "splitter-process";
/// Time-out for a splitter to become ready.
const START: Duration = Duration::from_secs(10);

impl Workshop<'_> {
    /// Gives the sources of a readout unit their splitters, if configured. Their receivers must exist. Returns the
    /// reporters of their faults.
    pub(super) fn splitters<S: Dispatcher, P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<S, P>,
    ) -> Result<Vec<Watched>, RunError> {
        let mut watched = Vec::new();
        for source in self.resolved.sources_of(index) {
            let Some(section) = source.own_splitter() else { continue };
            let unfit = |error: &dyn std::fmt::Display| {
                RunError::Unfit(format!("{}: its splitter cannot be used: {error}", source.name_or_id()))
            };
            let config = splitter(source, section);
            let (id, name) = (SourceId(source.id), source.name_or_id());
            let journal = if section.trusted {
                let splitter = Splitter::new(&config).map_err(|error| unfit(&error))?;
                let journal = splitter.journal();
                readout.add_splitter(id, Box::new(splitter));
                journal
            } else {
                let process = splitter_process(config, section).map_err(|error| unfit(&error))?;
                process.missing().texts().for_each(|text| self.placement.warn(format!("{name}: splitter: {text}")));
                let journal = process.journal();
                readout.add_splitter_process(id, Box::new(LinkedSplitter(process)), supervision(section));
                journal
            };
            watched.push(Watched::new(format!("{name}: splitter"), journal));
        }
        Ok(watched)
    }
}

fn splitter(source: &SourceSection, section: &SplitterSection) -> SplitterConfig {
    SplitterConfig {
        library: section.library.clone(),
        configuration: section.configuration.clone(),
        keys: section.keys,
        max_frame: source.max_fragment.0.min(u64::from(u32::MAX)) as usize,
    }
}

fn supervision(section: &SplitterSection) -> SupervisorConfig {
    SupervisorConfig {
        timeout: section.timeout.0,
        start_timeout: START,
        restart_delay: section.restart_delay.0,
        restarts: section.restarts,
    }
}

/// Creates a process of a splitter that was tried out; it is not started yet.
fn splitter_process(splitter: SplitterConfig, section: &SplitterSection) -> std::io::Result<SplitterProcess> {
    let command = vec![std::env::current_exe()?, PathBuf::from(COMMAND)];
    let mut process = SplitterProcess::new(process::ProcessConfig { splitter, memory: section.memory.0, command })?;
    process.try_out(START)?;
    Ok(process)
}

/// The splitter of a source, tried frame by frame without a run.
#[derive(Debug)]
pub struct SplitterTrial {
    process: SplitterProcess,
    timeout: Duration,
    most: usize,
    /// Whether the process has reported that it is ready, which it does once.
    is_ready: bool,
}

impl SplitterTrial {
    /// Starts the splitter of this source; `None` if it has none.
    ///
    /// # Errors
    /// A description of why the splitter cannot be used.
    pub fn new(source: &SourceSection) -> Result<Option<Self>, RunError> {
        let Some(section) = source.own_splitter() else { return Ok(None) };
        let config = splitter(source, section);
        let most = config.max_frame;
        let mut process = splitter_process(config, section).map_err(|error| {
            RunError::Unfit(format!("{}: its splitter cannot be used: {error}", source.name_or_id()))
        })?;
        process.start();
        Ok(Some(Self { process, timeout: section.timeout.0, most, is_ready: false }))
    }

    /// Returns the numbers or times of the events in a frame.
    ///
    /// # Errors
    /// A description of why it cannot be divided.
    pub fn divide(&mut self, frame: &[u8]) -> Result<Vec<u64>, String> {
        if frame.len() > self.most {
            return Err(format!(
                "the frame has more than {} bytes, which a splitter may get (`max_fragment`)",
                self.most
            ));
        }
        if !self.is_ready {
            self.wait(START, |sight| sight.is_ready).map_err(|why| format!("the splitter did not start: {why}"))?;
            self.is_ready = true;
        }
        self.process.clear();
        self.process.put_bytes(frame);
        self.process.ask(0, 1);
        self.wait(self.timeout, |sight| sight.done > 0)?;
        let mut pieces = Vec::new();
        match self.process.answer(0, &mut pieces) {
            Ok(Ok(())) => Ok(pieces.iter().map(|piece| key_of(piece.key)).collect()),
            Ok(Err(_)) => Err("the splitter cannot divide this frame".to_owned()),
            Err(nonsense) => {
                self.restart();
                Err(format!("the splitter: {nonsense}"))
            }
        }
    }

    fn wait(&mut self, time: Duration, is_done: impl Fn(&process::Sight) -> bool) -> Result<(), String> {
        let end = std::time::Instant::now() + time;
        loop {
            let sight = self.process.look();
            if is_done(&sight) {
                return Ok(());
            }
            if sight.has_ended {
                self.restart();
                return Err("the splitter ended while it divided this frame".to_owned());
            }
            if std::time::Instant::now() >= end {
                self.restart();
                return Err(format!("the splitter took longer than {} ms", time.as_millis()));
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Ends the process and starts another one.
    fn restart(&mut self) {
        self.is_ready = false;
        self.process.kill();
        let end = std::time::Instant::now() + START;
        while !self.process.look().has_ended && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.process.start();
    }
}

const fn key_of(key: PieceKey) -> u64 {
    match key {
        PieceKey::Event(number) | PieceKey::Time(number) => number,
    }
}

/// A process, as seen by the drive.
struct LinkedSplitter(SplitterProcess);

impl SplitterLink for LinkedSplitter {
    fn most_frames(&self) -> usize {
        MOST_FRAMES
    }

    fn start(&mut self) {
        self.0.start();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn put(&mut self, frame: &Payload) {
        self.0.put(frame);
    }

    fn ask(&mut self, first: usize, count: usize) {
        self.0.ask(first, count);
    }

    fn look(&mut self, _: Instant) -> ProcessSight {
        let seen = self.0.look();
        ProcessSight { is_ready: seen.is_ready, done: seen.done, has_ended: seen.has_ended }
    }

    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        self.0.answer(index, pieces).ok()
    }

    fn copied_bytes(&self) -> u64 {
        self.0.copied_bytes()
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.0.descriptors());
    }
}

/// A splitter or a filter whose journal is read.
#[derive(Debug)]
pub(super) struct Watched {
    /// The unit and what it is: the prefix of its messages.
    name: String,
    tells: Tells,
    /// How many kinds of ends were reported.
    told: usize,
}

/// The reporter of faults.
#[derive(Debug)]
enum Tells {
    Journal(Journal),
    Remote(RemoteNotes),
}

impl Watched {
    /// Creates a watcher that has not reported anything yet.
    pub(super) const fn new(name: String, journal: Journal) -> Self {
        Self { name, tells: Tells::Journal(journal), told: 0 }
    }

    /// Creates the watcher of a filter unit on another machine.
    pub(super) const fn remote(name: String, notes: RemoteNotes) -> Self {
        Self { name, tells: Tells::Remote(notes), told: 0 }
    }

    /// Returns the faults, each kind once.
    fn all(&self) -> Vec<String> {
        match &self.tells {
            Tells::Journal(journal) => journal.ends().into_iter().map(|(end, _)| end.to_string()).collect(),
            Tells::Remote(notes) => notes.all(),
        }
    }

    /// Returns the new kinds of faults since the last call.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let all = self.all();
        let news = all[self.told..].iter().map(|text| format!("{}: {text}", self.name)).collect();
        self.told = all.len();
        news
    }

    /// Returns the faults in the run, and their number.
    pub(super) fn remarks(&self) -> Vec<String> {
        let times = |times| if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let of = |what: &str, count| format!("{}: {what} ({})", self.name, times(count));
        match &self.tells {
            Tells::Remote(notes) => notes.all().iter().map(|text| format!("{}: {text}", self.name)).collect(),
            Tells::Journal(journal) => {
                let remarks = journal.ends().into_iter().map(|(end, count)| of(&end.to_string(), count));
                let beyond = Some(journal.beyond()).filter(|&beyond| beyond > 0);
                remarks.chain(beyond.map(|beyond| of("something else", beyond))).collect()
            }
        }
    }
}
