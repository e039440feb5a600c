//! A broker at work: looks into the directory, listens to filter units, and does what its machines say.

use super::children::{Children, LEAST_START, UnitCommand};
use super::documents::{FilteredFile, read_numbers, read_whole, write_whole};
use super::place::{FilesError, Outputs, Place};
use super::unit::{FromUnit, ToUnit};
use ropewalk_engine::documents::EndOfLumisection;
use ropewalk_flow::files::{
    Broker, BrokerAction, BrokerConfig, BrokerCounts, Closed, Decided, FileId, Merger, StreamCounts, UnitId, Work,
    Written,
};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Attempt, Imbalance, Instant, RunNumber};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// This many reasons of units that could not filter a file are kept.
const MOST_FAILURES: usize = 10;
/// The interval of directory scans.
const LOOK: Duration = Duration::from_millis(50);

/// How a broker works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerOptions {
    /// Its patience.
    pub broker: BrokerConfig,
    /// This many filter units are started, and started again when they end.
    pub units: u32,
    /// The program that is one, with its arguments. Without it units come by themselves.
    pub unit: Option<(PathBuf, Vec<String>)>,
}

/// Something that a connection brought.
enum Heard {
    Joined(UnitId),
    Said(UnitId, FromUnit),
    Gone(UnitId),
}

/// Serves the files of a run until the run is closed and everything is decided, or until `stop` is set.
///
/// # Errors
/// If the directory cannot be read or written, another broker serves it, or its own units do not work.
pub fn serve_files(
    place: &Place,
    options: &BrokerOptions,
    stop: impl Fn() -> bool,
) -> Result<FilesSummary, FilesError> {
    place.prepare()?;
    let (said, heard) = channel();
    let entrance = Entrance::open(place, said)?;
    let command = options.unit.clone().map(|(program, arguments)| UnitCommand { program, arguments });
    let mut service = Service {
        place,
        clock: MonotonicClock,
        broker: Broker::new(options.broker),
        merger: Merger::default(),
        children: Children::new(command, options.units, options.broker.time_out.max(LEAST_START)),
        connections: Arc::clone(&entrance.connections),
        next_look: Some(Instant::ZERO),
        lumisections: BTreeSet::new(),
        of_other_runs: BTreeSet::new(),
        failures: Vec::new(),
        closed: Vec::new(),
    };
    service.begin()?;
    while !service.is_over() && !stop() {
        service.turn(&heard)?;
    }
    drop(entrance);
    let Service { broker, merger, children, closed, .. } = &service;
    let summary = FilesSummary::new(place.run(), broker.counts(), children.restarts(), merger, closed);
    Ok(FilesSummary { of_other_runs: service.of_other_runs, failures: service.failures, ..summary })
}

/// The connections that are open.
type Connections = Arc<Mutex<BTreeMap<UnitId, UnixStream>>>;

/// Where units come in. Its threads read lines, and end with their connections.
struct Entrance {
    socket: PathBuf,
    is_closed: Arc<AtomicBool>,
    connections: Connections,
}

impl Entrance {
    fn open(place: &Place, said: Sender<Heard>) -> Result<Self, FilesError> {
        let socket = place.socket();
        if UnixStream::connect(&socket).is_ok() {
            return Err(FilesError::Served { path: socket });
        }
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FilesError::system("remove", &socket)(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&socket).map_err(FilesError::system("listen at", &socket))?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let connections = Connections::default();
        let (closed, open) = (Arc::clone(&is_closed), Arc::clone(&connections));
        thread::spawn(move || {
            for (connection, number) in listener.incoming().zip(0..) {
                let Ok(connection) = connection else { continue };
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                welcome(UnitId(number), connection, &open, said.clone());
            }
        });
        Ok(Self { socket, is_closed, connections })
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the accepting thread. If that fails, the thread has ended.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        // Units that still wait for an answer see that none comes.
        locked(&self.connections).values().for_each(close);
    }
}

/// No thread panics while holding the lock, and the content would be valid all the same.
fn locked(connections: &Connections) -> MutexGuard<'_, BTreeMap<UnitId, UnixStream>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(connection: &UnixStream) {
    // It may be closed already.
    let _ = connection.shutdown(Shutdown::Both);
}

/// Reads what a unit says, on a thread that ends with the connection.
fn welcome(unit: UnitId, connection: UnixStream, connections: &Connections, said: Sender<Heard>) {
    let Ok(reader) = connection.try_clone() else { return };
    let connections = Arc::clone(connections);
    locked(&connections).insert(unit, connection);
    // The receiver is gone if the broker has ended.
    let _ = said.send(Heard::Joined(unit));
    thread::spawn(move || {
        for line in BufReader::new(reader).lines() {
            // A unit that sends an unknown line is no longer read.
            let Some(word) = line.ok().and_then(|text| text.parse().ok()) else { break };
            if said.send(Heard::Said(unit, word)).is_err() {
                break;
            }
        }
        if let Some(connection) = locked(&connections).remove(&unit) {
            close(&connection);
        }
        let _ = said.send(Heard::Gone(unit));
    });
}

struct Service<'a> {
    place: &'a Place,
    clock: MonotonicClock,
    broker: Broker,
    merger: Merger,
    children: Children,
    connections: Connections,
    /// When to read the directory again; never after the run's end was found.
    next_look: Option<Instant>,
    /// Those whose end the merger has.
    lumisections: BTreeSet<u32>,
    closed: Vec<Closed>,
    /// Files of events that are not given to a unit.
    of_other_runs: BTreeSet<String>,
    /// Why units could not filter a file, the first few.
    failures: Vec<String>,
}

impl Service<'_> {
    /// Adopts the content of the directory.
    fn begin(&mut self) -> Result<(), FilesError> {
        let (contents, outputs) = (self.place.contents()?, self.place.outputs()?);
        for &file in &outputs.decided {
            let told = self.place.filtered(file)?;
            self.merger.decided(file, &self.decided(file, &told)?);
            let counts = Work { file, attempt: Attempt(told.attempt) };
            let others = outputs.tries.iter().filter(|(work, _)| work.file == file && **work != counts);
            others.for_each(|(_, paths)| remove(paths));
        }
        for &file in &outputs.set_aside {
            self.merger.set_aside(file, events_in(&self.place.aside(file))?);
        }
        for &file in &contents.raw {
            match outputs.decided.contains(&file) {
                true => self.broker.add_decided(file),
                false => self.broker.add(file, latest(&outputs, file)),
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.broker.is_done() && self.children.are_gone()
    }

    /// Scans the directory, performs the actions that are due, and waits for messages.
    fn turn(&mut self, heard: &Receiver<Heard>) -> Result<(), FilesError> {
        let now = self.clock.now();
        if self.next_look.is_some_and(|next| now >= next) {
            self.look(now)?;
        }
        while let Some(action) = self.broker.poll(now) {
            self.act(now, action)?;
        }
        while let Some(closed) = self.merger.poll() {
            self.write_sums(&LumisectionSummary::of(&closed))?;
            self.closed.push(closed);
        }
        if self.next_look.is_none() && self.broker.undecided() == 0 {
            self.children.finish();
        }
        self.children.tend()?;
        match heard.recv_timeout(LOOK) {
            Ok(first) => {
                self.hear(first);
                heard.try_iter().for_each(|next| self.hear(next));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        Ok(())
    }

    /// Adds files and lumisections that were closed since the last scan.
    fn look(&mut self, now: Instant) -> Result<(), FilesError> {
        self.next_look = Some(now.after(LOOK));
        let mut contents = self.place.contents()?;
        if contents.is_over {
            // A file renamed during the scan may be missing in the list; after the run's end no file is renamed.
            contents = self.place.contents()?;
        }
        contents.raw.iter().for_each(|&file| self.broker.add(file, Attempt(0)));
        for &lumisection in contents.lumisections.iter().filter(|lumisection| !self.lumisections.contains(lumisection))
        {
            let end: EndOfLumisection = read_numbers(&self.place.end_of_lumisection(lumisection))?;
            self.merger.written(lumisection, Written { files: end.files, events: end.events });
        }
        self.lumisections.extend(contents.lumisections);
        self.of_other_runs.extend(contents.of_other_runs);
        if contents.is_over {
            self.broker.no_more_files();
            self.next_look = None;
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) {
        let now = self.clock.now();
        match heard {
            Heard::Joined(unit) => {
                self.broker.joined(now, unit);
                if let Some(pid) = locked(&self.connections).get(&unit).and_then(peer) {
                    self.children.connected(pid);
                }
            }
            Heard::Said(unit, FromUnit::Want) => self.broker.request(unit),
            Heard::Said(unit, FromUnit::Failed(work, why)) => {
                if !why.is_empty() && self.failures.len() < MOST_FAILURES {
                    self.failures.push(format!("{why} (try {})", work.attempt.0));
                }
                self.broker.failed(now, unit, work);
            }
            Heard::Said(unit, FromUnit::Done(work)) if self.is_written(work) => self.broker.done(now, unit, work),
            Heard::Said(unit, FromUnit::Done(work)) => self.broker.failed(now, unit, work),
            Heard::Gone(unit) => self.broker.lost(unit),
        }
    }

    /// Whether a unit that reports a file as done has written its outcome, and the outcome is plausible.
    fn is_written(&self, work: Work) -> bool {
        let Ok(told) = read_whole::<FilteredFile>(&self.place.draft(work)) else { return false };
        told.attempt == work.attempt.0
            && told.decided().is_ok_and(|decided| decided.imbalances().next().is_none())
            && told.streams.iter().all(|stream| self.place.is_there(work, stream))
    }

    /// What is added up of a document that has its name.
    fn decided(&self, file: FileId, told: &FilteredFile) -> Result<Decided, FilesError> {
        let path = || self.place.document(file);
        told.decided().map_err(|error| FilesError::Document { path: path(), why: error.to_string() })
    }

    /// Writes the sum of a lumisection, and that of each stream in it for the consumer of the stream.
    fn write_sums(&self, sum: &LumisectionSummary) -> Result<(), FilesError> {
        let lumisection = sum.lumisection;
        sum.streams
            .iter()
            .try_for_each(|stream| write_whole(&self.place.stream_sum(lumisection, &stream.stream), stream))?;
        write_whole(&self.place.sum(lumisection), sum)
    }

    fn act(&mut self, now: Instant, action: BrokerAction) -> Result<(), FilesError> {
        match action {
            BrokerAction::Give { unit, work } => {
                self.children.work();
                self.say(unit, ToUnit::Give(work));
            }
            BrokerAction::Finish { unit } => self.say(unit, ToUnit::Finish),
            BrokerAction::Dismiss { unit } => self.dismiss(unit),
            BrokerAction::Discard { work } => {
                let outputs = self.place.outputs()?;
                outputs.tries.get(&work).into_iter().for_each(|paths| remove(paths));
            }
            BrokerAction::Commit { work } => {
                match std::fs::rename(self.place.draft(work), self.place.document(work.file)) {
                    Ok(()) => {
                        self.broker.committed(work.file);
                        let decided = self.decided(work.file, &self.place.filtered(work.file)?)?;
                        self.merger.decided(work.file, &decided);
                    }
                    Err(_) => self.broker.not_committed(now, work.file),
                }
            }
            BrokerAction::Delete { file } => {
                let path = self.place.raw(file);
                std::fs::remove_file(&path).map_err(FilesError::system("delete", &path))?;
                self.broker.gone(file);
            }
            BrokerAction::SetAside { file } => {
                let (from, to) = (self.place.raw(file), self.place.aside(file));
                std::fs::rename(&from, &to).map_err(FilesError::system("set aside", &from))?;
                self.merger.set_aside(file, events_in(&to)?);
                self.broker.gone(file);
            }
        }
        Ok(())
    }

    fn say(&self, unit: UnitId, word: ToUnit) {
        // A unit that cannot be reached has gone; its reader sees that.
        let _ = locked(&self.connections).get_mut(&unit).map(|connection| writeln!(connection, "{word}"));
    }

    /// Ends a connection, and the process at the other end if it is one of this broker's.
    fn dismiss(&mut self, unit: UnitId) {
        let Some(connection) = locked(&self.connections).remove(&unit) else { return };
        if let Some(pid) = peer(&connection) {
            self.children.kill(pid);
        }
        close(&connection);
    }
}

/// The process at the other end of a connection.
fn peer(connection: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(connection).ok()?;
    Some(peer.pid.as_raw_nonzero().get().unsigned_abs())
}

fn remove(paths: &[PathBuf]) {
    for path in paths {
        // What cannot be removed does not count all the same.
        let _ = std::fs::remove_file(path);
    }
}

fn latest(outputs: &Outputs, file: FileId) -> Attempt {
    outputs.tries.keys().filter(|work| work.file == file).map(|work| work.attempt).max().unwrap_or(Attempt(0))
}

/// How many events a file holds: as its header says, or as there are.
fn events_in(path: &Path) -> Result<u64, FilesError> {
    let bytes = std::fs::read(path).map_err(FilesError::system("read", path))?;
    let header = bytes.first_chunk().and_then(|first| FileHeader::parse(first).ok());
    if let Some(header) = header {
        return Ok(header.events.into());
    }
    let (mut at, mut events) = (0, 0);
    while let Ok(event) = Event::parse(&bytes[at..]) {
        (at, events) = (at + event.bytes().len(), events + 1);
    }
    debug_assert!(bytes.len() < FILE_HEADER_BYTES || at <= bytes.len(), "events lie in the file");
    Ok(events)
}

/// The form's name and version: `docs/schema/files.json`.
pub const FILES_SCHEMA: &str = "ropewalk-files-1";

/// Results of filtering the files of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(title = "Results of filtering the files of a run: the output of `ropewalk filter-files RUNDIR --json`")]
pub struct FilesSummary {
    /// The form's name and version.
    #[schemars(extend("const" = FILES_SCHEMA))]
    pub schema: &'static str,
    /// The run's number.
    pub run: u32,
    /// Files of events.
    pub files: u64,
    /// Those whose events are all decided.
    pub decided: u64,
    /// Files on which filter units crashed; they are in the directory `error`.
    pub set_aside: u64,
    /// The number of times that a file went to another filter unit.
    pub given_back: u64,
    /// Why units said that they cannot filter a file: the first ten.
    pub failures: Vec<String>,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units looked at.
    pub processed: u64,
    /// Events that they accepted.
    pub accepted: u64,
    /// Whether each lumisection is closed and adds up: what was written is what was looked at and set aside, and in
    /// each stream selected = prescaled_away + written.
    pub balanced: bool,
    /// What does not hold, in words; empty if all does.
    pub unbalanced: Vec<String>,
    /// Files of events of other runs in the directory. They are not filtered.
    pub of_other_runs: BTreeSet<String>,
    /// What streams took.
    pub streams: Vec<StreamSummary>,
    /// Each lumisection that is closed.
    pub lumisections: Vec<LumisectionSummary>,
}

/// What went to a stream: selected = prescaled_away + written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct StreamSummary {
    /// The stream's name.
    pub stream: String,
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Selected events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its files.
    pub written: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Results of filtering a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct LumisectionSummary {
    /// Its number.
    pub lumisection: u32,
    /// Files of events.
    pub files: u64,
    /// Events that were looked at.
    pub processed: u64,
    /// Events that were accepted.
    pub accepted: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// Whether that is what was written, and each stream adds up.
    pub balanced: bool,
    /// What streams took.
    pub streams: Vec<StreamSummary>,
}

impl LumisectionSummary {
    pub(super) fn of(closed: &Closed) -> Self {
        let Closed { lumisection, account, .. } = closed;
        Self {
            lumisection: *lumisection,
            files: account.files,
            processed: account.decided.processed,
            accepted: account.decided.accepted,
            set_aside: account.set_aside,
            balanced: closed.imbalances().next().is_none(),
            streams: streams(&account.decided),
        }
    }
}

impl FilesSummary {
    /// The summary of a run's files: the merger's sums, and the equations that do not hold.
    pub(super) fn new(run: RunNumber, counts: BrokerCounts, restarts: u64, merger: &Merger, closed: &[Closed]) -> Self {
        let unbalanced: Vec<String> =
            closed.iter().flat_map(unbalanced).chain(merger.open_lumisections().map(open)).collect();
        let total = &merger.total().decided;
        Self {
            schema: FILES_SCHEMA,
            run: run.0,
            files: counts.files,
            decided: counts.decided,
            set_aside: counts.set_aside,
            given_back: counts.given_back,
            restarts,
            processed: total.processed,
            accepted: total.accepted,
            balanced: unbalanced.is_empty(),
            unbalanced,
            of_other_runs: BTreeSet::new(),
            failures: Vec::new(),
            streams: streams(total),
            lumisections: closed.iter().map(LumisectionSummary::of).collect(),
        }
    }
}

/// What does not hold of a lumisection.
fn unbalanced(closed: &Closed) -> impl Iterator<Item = String> {
    closed.imbalances().map(|(stream, Imbalance { equation, left, right })| {
        let stream = stream.map_or_else(String::new, |stream| format!(", stream {stream}"));
        format!("lumisection {}{stream}: {equation}: {left} and {right}", closed.lumisection)
    })
}

/// Why a lumisection is not closed.
fn open((lumisection, files, written): (u32, u64, Option<Written>)) -> String {
    match written {
        None => format!("lumisection {lumisection}: {files} files were decided, and its EoLS.jsn is missing"),
        Some(Written { files: all, .. }) => {
            format!(
                "lumisection {lumisection}: {all} files were written as its EoLS.jsn says, and {files} of them were decided"
            )
        }
    }
}

fn streams(decided: &Decided) -> Vec<StreamSummary> {
    let summary = |(name, counts): (&StreamName, &StreamCounts)| StreamSummary {
        stream: name.to_string(),
        selected: counts.selected,
        prescaled_away: counts.prescaled_away,
        written: counts.written,
        bytes: counts.bytes,
    };
    decided.streams.iter().map(summary).collect()
}
