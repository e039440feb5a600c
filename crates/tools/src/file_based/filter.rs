//! The filters for files of events: built-in triggers, or a C library in a confined process, as in builder units. A
//! [`UnitTask`] selects the filter of a filter unit.

use super::unit::FilterUnit;
use crate::library_process::{START, library_process};
use ropewalk_config::{FileBasedSection, StreamSection, TriggerChoice, unit_streams};
use ropewalk_flow::filter::{BuiltinFilter, Decision, FilterConfigError, Streams, TriggerView};
use ropewalk_flow::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_memory::{HugePages, MemoryKind, Payload, Pool, PoolConfig, Staging};
use ropewalk_plugin::filter::process::{FilterProcess, Offer};
use ropewalk_plugin::filter::{FilterConfig, FilterEvent};
use ropewalk_terms::{Attempt, EventKey, RunNumber, SourceId};
use ropewalk_wire::mep::bank_ranges;
use ropewalk_wire::{fed, frd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Decides on events.
pub trait EventFilter {
    /// Decides on the events of a file, in order, and appends the decisions: whether each is accepted, and the triggers
    /// it passed. The decision should depend only on the event: another process may have to decide again.
    ///
    /// # Errors
    /// If the event after those with appended decisions cannot be decided: the file is then given back.
    fn decide(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided>;

    /// What the system lacks for it, for people.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a filter cannot decide.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);

/// Triggers that are built in, the same ones as a `[filter]` has.
impl EventFilter for BuiltinFilter {
    fn decide(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided> {
        decisions.extend(events.iter().map(|event| Self::decide(self, event)));
        Ok(())
    }
}

/// An event of a file, with its fragments.
#[derive(Clone, Debug)]
pub struct FileEvent<'a> {
    event: frd::Event<'a>,
    /// `None` if the data cannot be divided into fragments.
    fragments: Option<Vec<FileFragment<'a>>>,
}

/// A fragment of an event of a file.
#[derive(Copy, Clone, Debug)]
pub enum FileFragment<'a> {
    /// Of a FED.
    Fed(fed::Fragment<'a>),
    /// The raw banks of a source, which follow each other; a source is known by the number in their headers.
    Banks(SourceId, &'a [u8]),
}

impl<'a> FileFragment<'a> {
    fn source(&self) -> SourceId {
        match self {
            Self::Fed(fragment) => fragment.header().source(),
            Self::Banks(source, _) => *source,
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Fed(fragment) => fragment.bytes(),
            Self::Banks(_, bytes) => bytes,
        }
    }

    fn event_type(&self) -> u16 {
        if let Self::Fed(fragment) = self { fragment.header().event_type().into() } else { 0 }
    }

    /// Its metadata, as a readout unit or gateway would know them.
    fn meta(&self) -> FragmentMeta {
        let (source, length) = (self.source(), self.bytes().len() as u32);
        let Self::Fed(fragment) = self else {
            let flags = FragmentFlags(0);
            return FragmentMeta { source, length, flags, bunch_crossing: 0, trigger_type: 0, raw_id: 0, time: 0 };
        };
        let header = fragment.header();
        let known = FragmentFlags::CRC_CHECKED.0 | FragmentFlags::HAS_BUNCH_CROSSING.0;
        let wrong = if fragment.check_crc().is_err() { FragmentFlags::CRC_ERROR.0 } else { 0 };
        FragmentMeta {
            source,
            length,
            flags: FragmentFlags(known | wrong),
            bunch_crossing: header.bunch_crossing(),
            trigger_type: self.event_type(),
            raw_id: header.level1_id().into(),
            time: 0,
        }
    }
}

/// The fragments of an event of a gateway: consecutive banks of a source form one fragment. `None` if the data is not
/// made of banks.
fn banks(data: &[u8]) -> Option<Vec<FileFragment<'_>>> {
    let (mut fragments, mut end): (Vec<(SourceId, Range<usize>)>, _) = (Vec::new(), 0);
    for (source, range) in bank_ranges(data) {
        end = range.end;
        match fragments.last_mut() {
            Some((last, own)) if last.0 == u32::from(source) => own.end = range.end,
            _ => fragments.push((SourceId(source.into()), range)),
        }
    }
    let is_whole = end == data.len();
    is_whole.then(|| fragments.into_iter().map(|(source, own)| FileFragment::Banks(source, &data[own])).collect())
}

impl<'a> FileEvent<'a> {
    /// Finds the fragments of an event.
    pub fn new(event: frd::Event<'a>) -> Self {
        let fragment = |place| fed::Fragment::parse(&event.data()[place]).ok().map(FileFragment::Fed);
        let feds = event.fragments().and_then(|places| places.into_iter().map(fragment).collect());
        Self { fragments: feds.or_else(|| banks(event.data())), event }
    }

    /// The event as stored in the file.
    pub const fn event(&self) -> &frd::Event<'a> {
        &self.event
    }

    /// Its fragments; `None` if its data cannot be divided into fragments.
    pub fn fragments(&self) -> Option<&[FileFragment<'a>]> {
        self.fragments.as_deref()
    }

    /// The event type of the first fragment that has one; 0 if none has.
    pub fn trigger_type(&self) -> u16 {
        let types = self.fragments.iter().flatten().map(FileFragment::event_type);
        types.into_iter().find(|&kind| kind != 0).unwrap_or(0)
    }
}

impl TriggerView for FileEvent<'_> {
    fn key(&self) -> EventKey {
        // Resync counts have no place in FRD.
        EventKey::new(0, self.event.header().event)
    }

    fn payload_bytes(&self) -> u64 {
        self.event.data().len() as u64
    }

    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>> {
        let fragment = self.fragments.iter().flatten().find(|fragment| fragment.source() == source)?;
        Some(fragment.bytes().iter().copied())
    }
}

/// Memory for the fragments of events that the process has: this many blocks of this many bytes.
const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 256;
/// The longest single wait for the process.
const WAIT: Duration = Duration::from_millis(100);

/// A library's filter, which is shown the events of one file after the other.
#[derive(Debug)]
pub struct LibraryFilter {
    process: FilterProcess,
    /// It has become ready, and has not ended.
    is_ready: bool,
    memory: Staging,
    /// The events that the process has, the oldest first. They stay in place until it has decided, or has ended.
    shown: VecDeque<Shown>,
}

impl LibraryFilter {
    /// Starts a process with the library, which may take this many bytes of memory, and tells its filter that the run
    /// begins.
    ///
    /// # Errors
    /// If the library is no filter, or does not want to, or there is no memory.
    pub fn new(config: FilterConfig, memory: u64, run: RunNumber) -> Result<Self, Undecided> {
        // Memory that the process can be given to read.
        let (kind, huge_pages) = (MemoryKind::Memfd, HugePages::Never);
        let pool = PoolConfig { memory: kind, huge_pages, ..PoolConfig::anonymous("fragments", BLOCK, BLOCKS) };
        let pool = Pool::new_untouched(pool).map_err(undecided)?;
        let mut process = library_process(config, memory).map_err(undecided)?;
        process.begin_run(run);
        let mut filter = Self { process, is_ready: false, memory: Staging::new(pool), shown: VecDeque::new() };
        filter.start()?;
        Ok(filter)
    }

    /// Starts the process, and waits until it is ready.
    fn start(&mut self) -> Result<(), Undecided> {
        self.process.start();
        let latest = Instant::now() + START;
        while !self.is_ready {
            if Instant::now() > latest {
                self.end();
                return Err(Undecided("the filter was not ready in time".to_owned()));
            }
            if self.look()? {
                return Err(self.ended());
            }
        }
        Ok(())
    }

    /// Waits until there is something to look at, and looks: whether the process has ended.
    fn look(&mut self) -> Result<bool, Undecided> {
        let mut waits: Vec<_> =
            self.process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: WAIT.as_nanos() as i64 };
        match poll(&mut waits, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(undecided(error)),
        }
        let seen = self.process.look();
        self.is_ready = (self.is_ready || seen.is_ready) && !seen.has_ended;
        Ok(seen.has_ended)
    }

    /// Why its process has ended.
    fn ended(&mut self) -> Undecided {
        self.shown.clear();
        let why = self.process.journal().ends().pop().map_or_else(String::new, |(end, _)| format!(": {end}"));
        Undecided(format!("the filter's process has ended{why}"))
    }

    /// Kills the process. It no longer reads the events that it was shown.
    fn end(&mut self) {
        self.process.kill();
        // It cannot but end.
        while !self.look().unwrap_or(true) {}
        self.is_ready = false;
        self.shown.clear();
    }

    /// Shows the process as many of these events as there is room for; how many.
    fn show(&mut self, events: &[FileEvent<'_>]) -> Result<usize, Undecided> {
        self.memory.pool_mut().collect();
        for (place, event) in events.iter().enumerate() {
            match self.offer(event) {
                Ok(true) => {}
                Ok(false) => return Ok(place),
                // The earlier events are decided first: then there may be room, and otherwise this event is known to be
                // the cause.
                Err(_) if !self.shown.is_empty() => return Ok(place),
                Err(why) => return Err(why),
            }
        }
        Ok(events.len())
    }

    /// Shows the process an event; whether there was room for it.
    fn offer(&mut self, event: &FileEvent<'_>) -> Result<bool, Undecided> {
        let too_long = || Undecided("it is too long for a filter's process, or has too many fragments".to_owned());
        let fragments =
            event.fragments().ok_or_else(|| Undecided("its data are neither FED fragments nor banks".to_owned()))?;
        let fragments = self.copy(fragments).ok_or_else(too_long)?;
        let shown = Shown { key: event.key(), trigger_type: event.trigger_type(), fragments };
        match self.process.offer(0, &shown) {
            Offer::Taken => self.shown.push_back(shown),
            Offer::Full => return Ok(false),
            Offer::TooLarge => return Err(too_long()),
        }
        Ok(true)
    }

    /// Fragments in memory that the process reads; `None` if there is no room for them.
    fn copy(&mut self, fragments: &[FileFragment<'_>]) -> Option<Vec<Fragment>> {
        let mut copies = Vec::with_capacity(fragments.len());
        for fragment in fragments {
            let mut payload = Payload::default();
            for piece in fragment.bytes().chunks(self.memory.largest()) {
                payload.push(self.memory.write(piece)?);
            }
            copies.push(Fragment { meta: fragment.meta(), payload });
        }
        Some(copies)
    }

    /// Takes new decisions. Returns whether there were any.
    fn take(&mut self, decisions: &mut Vec<Decision>) -> Result<bool, Undecided> {
        let before = decisions.len();
        while let Some(decided) = self.process.next_decision() {
            let (_, decision) = decided.map_err(undecided)?;
            self.shown.pop_front();
            let decision =
                decision.ok_or_else(|| Undecided("the filter says that it cannot decide on it".to_owned()))?;
            decisions.push(Decision { accept: decision.accept, triggers: decision.bits });
        }
        Ok(decisions.len() > before)
    }

    fn work(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided> {
        let mut offered = 0;
        while decisions.len() < events.len() {
            offered += self.show(&events[offered..])?;
            self.process.flush();
            if self.take(decisions)? {
                continue;
            }
            if self.look()? {
                // What it decided before it ended counts.
                self.take(decisions)?;
                return Err(self.ended());
            }
        }
        Ok(())
    }
}

impl EventFilter for LibraryFilter {
    fn decide(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided> {
        if !self.is_ready {
            self.start()?;
        }
        let worked = self.work(events, decisions);
        if worked.is_err() && self.is_ready {
            // The process holds events whose decisions are no longer awaited.
            self.end();
        }
        worked
    }

    fn warnings(&self) -> Vec<String> {
        self.process.missing().texts().map(str::to_owned).collect()
    }
}

fn undecided(error: impl std::error::Error) -> Undecided {
    Undecided(error.to_string())
}

/// An event of a file, as filters see it: FRD tells neither attempts nor what is missing.
#[derive(Debug)]
struct Shown {
    key: EventKey,
    trigger_type: u16,
    fragments: Vec<Fragment>,
}

impl FilterEvent for Shown {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        Attempt(1)
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn trigger_type(&self) -> u16 {
        self.trigger_type
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

/// Who decides in a filter unit.
#[derive(Clone, PartialEq, Debug)]
pub enum UnitFilter {
    /// Triggers that are built in: the first sets trigger 0, and so on.
    Triggers(Vec<TriggerChoice>),
    /// A library in its own process.
    Library {
        /// The library and its configuration text.
        filter: FilterConfig,
        /// Bytes of memory that its process may take.
        memory: u64,
    },
}

/// The task of the filter units of a run: all have the same one.
#[derive(Clone, PartialEq, Debug)]
pub struct UnitTask {
    /// Who decides.
    pub filter: UnitFilter,
    /// The streams that take accepted events. Without any, one stream called `selected` takes everything.
    pub streams: Vec<StreamSection>,
}

impl UnitTask {
    /// Uses the library if there is one, whose process may use this many bytes of memory; otherwise triggers. Without
    /// both, every event is accepted.
    pub fn new(triggers: &[TriggerChoice], library: Option<(FilterConfig, u64)>, streams: &[StreamSection]) -> Self {
        let filter = match library {
            Some((filter, memory)) => UnitFilter::Library { filter, memory },
            None if triggers.is_empty() => UnitFilter::Triggers(vec![TriggerChoice::All]),
            None => UnitFilter::Triggers(triggers.to_vec()),
        };
        Self { filter, streams: streams.to_vec() }
    }

    /// As a configuration says it.
    pub fn of(section: &FileBasedSection, streams: &[StreamSection]) -> Self {
        let configuration = section.configuration.clone();
        let filter = section.library.clone().map(|library| FilterConfig { library, configuration });
        Self::new(&section.triggers, filter.map(|filter| (filter, section.memory.0)), streams)
    }

    /// The arguments of this program as a unit with this task, for the files of a run's directory.
    pub fn arguments(&self, directory: &Path) -> Vec<String> {
        let mut arguments = vec!["filter-unit".to_owned(), directory.display().to_string()];
        match &self.filter {
            UnitFilter::Triggers(triggers) => {
                arguments.extend(triggers.iter().map(|trigger| format!("--trigger={trigger}")));
            }
            UnitFilter::Library { filter: FilterConfig { library, configuration }, memory } => {
                arguments.extend(["--library".to_owned(), library.display().to_string()]);
                arguments.extend([format!("--configuration={configuration}"), format!("--memory={memory}")]);
            }
        }
        arguments.extend(self.streams.iter().map(|stream| format!("--stream={stream}")));
        arguments
    }

    /// The streams.
    ///
    /// # Errors
    /// If they make no sense together.
    pub fn streams(&self) -> Result<Streams, FilterConfigError> {
        unit_streams(&self.streams)
    }

    /// The unit, for events of a run.
    ///
    /// # Errors
    /// If streams make no sense, or as [`LibraryFilter::new`].
    pub fn load(&self, run: RunNumber) -> Result<FilterUnit, Undecided> {
        for stream in &self.streams {
            stream.check().map_err(|(field, why)| Undecided(format!("stream {:?}, {field}: {why}", stream.name)))?;
        }
        let filter: Box<dyn EventFilter> = match &self.filter {
            UnitFilter::Triggers(triggers) => {
                Box::new(BuiltinFilter::new(triggers.iter().map(TriggerChoice::builtin).collect()))
            }
            UnitFilter::Library { filter, memory } => Box::new(LibraryFilter::new(filter.clone(), *memory, run)?),
        };
        Ok(FilterUnit::new(filter, self.streams().map_err(|error| Undecided(error.to_string()))?))
    }
}
