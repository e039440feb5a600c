//! The handle of a run: commands in, snapshots out.

use super::clock_summary::{ClockReading, ClockSummary};
use super::configured::Configured;
use super::feeder::RunningFeeder;
use super::file_filters::FileFilters;
use super::file_summary::FileBasedSummary;
use super::forecast::{DiskLeft, DiskWatch, StartRoom};
use super::front_end_summary::FrontEndsSummary;
use super::front_ends::{Conducted, FrontEndService};
use super::histograms::HistogramDefinition;
use super::measures::MeasureSummary;
use super::registry;
use super::summary::{Durations, Parts, RunSummary};
use super::takeover_record::TakeoverRecord;
use super::transfer::{TransferService, TransferSummary};
use super::watched::Watched;
use super::worker::{Ending, Worker};
use crate::drive::{Drive, FrontEndsAccount, ManagerDrive, Refusal, RunSnapshot, Sent, Standing, observe};
use crate::fields::Fields;
use crate::monitoring::{MergeError, merge};
use crate::pages::NodePage;
use crate::tap::Tap;
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_flow::messages::{LumisectionEnd, Setting};
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::free_bytes;
use ropewalk_io::wait::Waker;
use ropewalk_monitor::{DiskSample, Sample};
use ropewalk_terms::{Counter, Epoch, EventKey, Instant, RunNumber, SourceId, Utc};
use ropewalk_wire::run_file::{StreamName, run_directory_name};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ropewalk_flow::source::TriggerGate;

/// What the manager's thread and the handle share.
#[derive(Debug, Default)]
pub(super) struct Board {
    standing: Mutex<Standing>,
    /// Those that are over, in order.
    lumisections: Mutex<Vec<LumisectionEnd>>,
    /// Whom to wake when the phase changes.
    watcher: OnceLock<Waker>,
}

impl Board {
    /// Wakes this thread at each change of the phase from now on.
    pub(super) fn watch(&self, watcher: Waker) {
        // One thread gives a run's commands.
        let _ = self.watcher.set(watcher);
    }

    /// How far the nodes are.
    pub(super) fn phase(&self) -> RunPhase {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).phase
    }

    /// How far the nodes are, and whether the run is paused.
    fn progress(&self) -> (RunPhase, bool) {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        (standing.phase, standing.is_paused)
    }

    /// The lumisections that are over, in order.
    pub(super) fn lumisections(&self) -> Vec<LumisectionEnd> {
        self.lumisections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_lumisection(&self, end: LumisectionEnd) {
        self.lumisections.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }

    fn observe(&self, time: Instant, utc: Utc, disk: Option<DiskSample>) -> Sample {
        // Copied first: the manager's thread waits for this lock.
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        observe(&standing, time, utc, disk)
    }

    fn read(&self) -> RunSnapshot {
        RunSnapshot::of(&self.standing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Held for a copy of some numbers, twenty times a second.
    fn write(&self, standing: &Standing) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).copy_from(standing);
    }
}

/// The manager's drive with its two lines to the outside.
pub(super) struct CommandedManager<P: Dispatcher> {
    pub(super) drive: ManagerDrive<P>,
    pub(super) commands: Receiver<RunCommand>,
    pub(super) board: Arc<Board>,
    pub(super) publish_due: Instant,
    pub(super) published: RunPhase,
}

/// How often the snapshot is renewed.
const PUBLISH: Duration = Duration::from_millis(50);

impl<P: Dispatcher> Drive for CommandedManager<P> {
    fn turn(&mut self, now: Instant) -> usize {
        while let Ok(command) = self.commands.try_recv() {
            self.drive.command(now, command);
        }
        let work = self.drive.turn(now);
        while let Some(end) = self.drive.next_ended_lumisection() {
            self.board.add_lumisection(end);
        }
        let phase = self.drive.phase();
        if now >= self.publish_due || phase != self.published || self.drive.is_done() {
            self.publish_due = now.after(PUBLISH);
            self.board.write(self.drive.standing());
            if std::mem::replace(&mut self.published, phase) != phase
                && let Some(watcher) = self.board.watcher.get()
            {
                watcher.wake();
            }
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.drive.next_deadline().map_or(self.publish_due, |deadline| deadline.min(self.publish_due)))
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.drive.refusal()
    }

    fn tell(&self, now: Instant, page: &mut NodePage) {
        self.drive.tell(now, page);
    }
}

/// How this process manages its run.
#[derive(Clone, Debug)]
pub(super) enum Managing {
    /// From its beginning.
    First {
        /// Which event manager it is.
        epoch: Epoch,
        /// Where it listens.
        address: String,
    },
    /// It took over.
    Successor {
        /// The run's first key.
        first: EventKey,
        /// Its last one, where it was known from the start.
        last: Option<EventKey>,
        /// Which event manager it is.
        epoch: Epoch,
        /// How long the run had gone on.
        before: Duration,
    },
}

/// The threads of a run, also where its handle is somewhere else.
#[derive(Clone, Debug)]
pub struct RunThreads(pub(super) Arc<Ending>);

impl RunThreads {
    /// Those that have not ended, by name: `ru0`, `bu1` and so on.
    pub fn living(&self) -> Vec<String> {
        self.0.living()
    }
}

/// A run that goes on on its own threads.
#[derive(Debug)]
pub struct RunHandle {
    pub(super) workers: Vec<Worker>,
    pub(super) source_workers: Vec<Worker>,
    pub(super) feeders: Vec<RunningFeeder>,
    /// Where builder units of this process keep what their filters count.
    pub(super) histograms: Vec<PathBuf>,
    /// All sources are e-links of cards whose blocks come from outside of this process.
    pub(super) is_fed: bool,
    pub(super) commands: Sender<RunCommand>,
    pub(super) board: Arc<Board>,
    pub(super) gate: Option<Arc<TriggerGate>>,
    pub(super) sent: Vec<(SourceId, Arc<Sent>)>,
    pub(super) ending: Arc<Ending>,
    pub(super) directory: PathBuf,
    pub(super) run: RunNumber,
    pub(super) sources: usize,
    pub(super) streams: Vec<StreamName>,
    pub(super) addresses: Vec<(String, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) watched: Vec<Watched>,
    /// What nobody was told yet.
    pub(super) news: Vec<String>,
    pub(super) tap: Option<Tap>,
    pub(super) transfer: Option<TransferService>,
    /// What filters files of events, for each builder unit.
    pub(super) file_filters: Vec<FileFilters>,
    pub(super) disk_watch: Option<DiskWatch>,
    pub(super) start_room: StartRoom,
    /// Front ends under run control, and their service where it is this run's alone.
    pub(super) front_ends: Option<Conducted>,
    pub(super) own_service: Option<FrontEndService>,
    pub(super) clock: MonotonicClock,
    /// Who manages the run, where that is a process of its own; of one that takes over, as it was before.
    pub(super) manager: Option<Managing>,
    pub(super) started: Option<Instant>,
    pub(super) stopped: Option<(Instant, u64, u64)>,
    pub(super) ended: Option<Instant>,
    pub(super) stopping: bool,
    pub(super) forced: bool,
    /// What was said of the run when it was started.
    pub(super) fields: Fields,
    pub(super) configured: Configured,
    /// What is counted of sources' fragments.
    pub(super) histogram_definitions: Arc<[HistogramDefinition]>,
    pub(super) clock_at_start: Option<ClockReading>,
}

impl RunHandle {
    /// The run as it was a moment ago.
    pub fn snapshot(&self) -> RunSnapshot {
        self.board.read()
    }

    /// How far it is, and whether it is paused: a glance beside the whole [`RunHandle::snapshot`], which takes as long as there are sources.
    pub fn progress(&self) -> (RunPhase, bool) {
        self.board.progress()
    }

    /// Where copies of its events can be asked for; none where no builder unit is in this process.
    pub const fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref()
    }

    /// The run as it was a moment ago, with the numbers of each node and source, for those who watch it. Asks for memory:
    /// not for threads that carry data.
    pub fn sample(&self) -> Sample {
        let disk = self.disk_left().map(|left| DiskSample { free_bytes: left.free_bytes, full_in: left.time });
        self.board.observe(self.clock.now(), self.clock.utc(), disk)
    }

    /// What is left of the disks that builder units of this process write to, as it was a moment ago; none where there are none.
    pub fn disk_left(&self) -> Option<DiskLeft> {
        self.disk_watch.as_ref().and_then(DiskWatch::left)
    }

    /// Its threads.
    pub fn threads(&self) -> RunThreads {
        RunThreads(Arc::clone(&self.ending))
    }

    /// Adds a thread that neither does anything nor ends before it may.
    #[cfg(test)]
    pub(crate) fn add_hanging_thread(&mut self, name: &str, may_end: Arc<std::sync::atomic::AtomicBool>) {
        let drives: Vec<Box<dyn Drive + Send>> = vec![Box::new(super::worker::Hangs(may_end))];
        self.workers.push(Worker::start(name, drives, Arc::clone(&self.ending), || ()).expect("a thread"));
    }

    /// The run's number.
    pub const fn run_number(&self) -> RunNumber {
        self.run
    }

    /// The run's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Names and addresses where something listens: front ends of `ru0`, nodes of the manager, and so on.
    pub fn addresses(&self) -> &[(String, String)] {
        &self.addresses
    }

    /// Which event manager of the run this is, where that is a process of its own.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.manager.as_ref().map(|managing| match managing {
            Managing::First { epoch, .. } | Managing::Successor { epoch, .. } => *epoch,
        })
    }

    /// What is counted of sources' fragments (`[[histogram]]`); a sample has the numbers.
    pub fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Arc::clone(&self.histogram_definitions)
    }

    /// What was asked of the system for threads and pools, refused, and gone without.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What splitters and filters did wrong for the first time since it was asked last; and once that nodes have no pages.
    pub fn take_news(&mut self) -> Vec<String> {
        self.news.drain(..).chain(self.watched.iter_mut().flat_map(Watched::take_news)).collect()
    }

    /// How many front ends are configured.
    pub const fn sources(&self) -> usize {
        self.sources
    }

    /// What each emulated or played source says that it sent: fragments and bytes.
    pub fn sent(&self) -> Vec<(SourceId, u64, u64)> {
        let read = |sent: &Sent| (sent.fragments.load(Ordering::Relaxed), sent.bytes.load(Ordering::Relaxed));
        self.sent.iter().map(|(id, sent)| (*id, read(sent).0, read(sent).1)).collect()
    }

    /// All sources are e-links of cards whose blocks come from files, pipes or other processes: the run ends with these.
    pub const fn is_fed(&self) -> bool {
        self.is_fed
    }

    /// Every emulated and played source has sent all that it had.
    pub fn sources_ended(&self) -> bool {
        !self.source_workers.is_empty() && self.source_workers.iter().all(Worker::is_finished)
    }

    /// Keeps the configuration in the run's directory, and where the event manager is a process of its own leaves word there for one that
    /// may have to take over; to be done before [`RunHandle::start`].
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub fn leave_word(&mut self, first: EventKey, last: Option<EventKey>) -> std::io::Result<()> {
        registry::begins(&self.directory, self.run)?;
        self.warnings.extend(self.configured.keep(&self.directory)?);
        let Some(Managing::First { epoch, address }) = &self.manager else { return Ok(()) };
        let (epoch, address) = (*epoch, address.clone());
        let record = TakeoverRecord {
            run: self.run,
            epoch,
            first,
            last,
            address,
            started: self.clock.utc(),
            fields: self.fields.clone(),
        };
        record.make(&self.directory)
    }

    /// Looks whether there is room for it where builder units of this process write to, or have told that they write to. The disk may take its
    /// time.
    ///
    /// # Errors
    /// Where there is not, and what to do, for people.
    pub fn expect_room(&self) -> Result<(), String> {
        self.start_room.expect(|directory| free_bytes(directory).ok())?;
        self.start_room.expect_told(|| self.sample())
    }

    /// What is said of the run, for its account. Before it begins: [`RunHandle::leave_word`] hands it on.
    pub fn describe(&mut self, fields: Fields) {
        self.fields = fields;
    }

    /// What was said of it.
    pub const fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Goes on with the run that was taken over, of which the event manager knows since it was launched; false where there is none.
    pub fn go_on(&mut self) -> bool {
        let Some(Managing::Successor { first, last, before, .. }) = self.manager else { return false };
        let started = self.clock.now().as_nanoseconds().saturating_sub(before.as_nanos() as u64);
        self.started = Some(Instant::from_nanoseconds(started));
        // The run goes on in any case.
        let failed = |error| Some(format!("{}: the configuration is not kept: {error}", self.directory.display()));
        let kept = self.configured.keep(&self.directory).unwrap_or_else(failed);
        self.warnings.extend(kept);
        if let Some(front_ends) = &self.front_ends {
            front_ends.start(self.run, first, last, true, self);
        }
        true
    }

    /// How long the run has gone on since its start, the time under earlier event managers included.
    pub fn age(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| self.clock.now().since(started))
    }

    /// Starts the run as soon as all nodes are connected; with `last`, exactly the keys up to it are taken.
    pub fn start(&mut self, first: EventKey, last: Option<EventKey>) {
        self.clock_at_start = ClockReading::now();
        self.started = Some(self.clock.now());
        match &self.front_ends {
            // The nodes begin when every front end is ready.
            Some(front_ends) => front_ends.start(self.run, first, last, false, self),
            None => self.command(RunCommand::Start { run: self.run, first, last }),
        }
    }

    /// Vetoes the trigger of emulated sources, then stops: everything up to the last trigger is still built.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        // Sources that have ended by themselves end the running interval when the last event is done.
        if !self.sources_ended() {
            self.note_stop();
        }
        for feeder in &self.feeders {
            feeder.child.stop();
        }
        let last = self.gate.as_ref().map(|gate| EventKey::new(0, gate.close()));
        match &self.front_ends {
            Some(front_ends) => front_ends.stop(last),
            None => self.command(RunCommand::Stop { last }),
        }
    }

    /// From now on a source takes part no longer, or again; before the run begins, from its first event on. In mid-run the readout unit that
    /// has it chooses from which event on, and reports it. The run is told of both by its account.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        if let Some(front_ends) = &self.front_ends {
            front_ends.mask(source, is_masked);
        }
        self.command(RunCommand::Mask { source, is_masked });
    }

    /// From now on a parameter has another value.
    pub fn set(&self, setting: Setting) {
        self.command(RunCommand::Set(setting));
    }

    /// Has no further event built for now: a trigger source under run control is held first; otherwise readout units fill up and hold their
    /// sources back. A stop ends a pause.
    pub fn pause(&self) {
        match &self.front_ends {
            Some(front_ends) => front_ends.pause(true),
            None => self.command(RunCommand::Pause),
        }
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        match &self.front_ends {
            Some(front_ends) => front_ends.pause(false),
            None => self.command(RunCommand::Resume),
        }
    }

    /// Stops at once: what is not done is dropped and named.
    pub fn force_stop(&mut self) {
        self.note_stop();
        self.forced = true;
        if let Some(gate) = &self.gate {
            gate.close();
        }
        match &self.front_ends {
            Some(front_ends) => front_ends.force_stop(),
            None => self.command(RunCommand::ForceStop),
        }
    }

    fn note_stop(&mut self) {
        let snapshot = self.snapshot();
        let bytes = snapshot.counter(Counter::PayloadBytesReceived);
        let events = &snapshot.ledger.events;
        self.stopped.get_or_insert((self.clock.now(), events.built + events.incomplete_emitted, bytes));
    }

    pub(super) fn command(&self, command: RunCommand) {
        // Only a manager that has ended no longer listens; then there is nothing to command.
        let _ = self.commands.send(command);
        for worker in &self.workers {
            worker.wake();
        }
    }

    /// Front ends under run control, as they were a moment ago; none where there are none.
    pub fn front_ends(&self) -> Option<FrontEndsAccount> {
        self.front_ends.as_ref().map(Conducted::account)
    }

    /// The run has ended: drained, files closed.
    pub fn is_ended(&mut self) -> bool {
        // Looked at first: what threads that have ended left behind is then all there.
        let has_left = self.workers.iter().all(Worker::is_finished);
        let nodes_ended = self.board.phase().is_final();
        let ended = nodes_ended && self.front_ends.as_ref().is_none_or(Conducted::is_at_rest);
        if ended {
            self.ended.get_or_insert_with(|| self.clock.now());
        }
        // Threads that have ended before the run did leave nothing to wait for.
        ended || has_left && !nodes_ended
    }

    /// Who refused this node for good, where somebody did: then its threads end.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.ending.refusal()
    }

    /// Waits for the threads and gives the final account. `patience` bounds how long nodes may take to leave.
    pub fn finish(mut self, patience: Duration) -> RunSummary {
        let until = self.clock.now().after(patience);
        while !self.workers.iter().chain(&self.source_workers).all(Worker::is_finished) && self.clock.now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.ending.halt();
        for worker in self.workers.iter().chain(&self.source_workers) {
            worker.wake();
        }
        for feeder in &self.feeders {
            feeder.is_over.store(true, Ordering::Relaxed);
        }
        while !self.feeders.iter().all(|feeder| feeder.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.workers.drain(..).chain(self.source_workers.drain(..)).for_each(Worker::join);
        self.merge_histograms();
        // Whoever forces an end does not wait for others' programs.
        if let Some(transfer) = self.transfer.as_mut().filter(|_| !self.forced) {
            transfer.finish();
        }
        self.file_filters.iter_mut().for_each(|filters| filters.finish(self.forced));
        self.summary()
    }

    /// Adds up what the filters of this process counted, once all of it is kept. Builder units that are processes of their own keep theirs,
    /// wherever that is.
    fn merge_histograms(&mut self) {
        if self.histograms.is_empty() || self.directory.as_os_str().is_empty() {
            return;
        }
        let name = run_directory_name(self.run);
        let directories: Vec<_> = self.histograms.iter().map(|output| output.join(&name)).collect();
        let kept = match merge(&directories) {
            // A run that was never begun has counted nothing.
            Err(MergeError::Nothing { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(sum) => sum.keep(&self.directory).map_err(|error| format!("{}: {error}", self.directory.display())),
        };
        self.warnings.extend(kept.err().map(|error| format!("what filters counted is not added up: {error}")));
    }

    /// The account as it is known now.
    pub fn summary(&self) -> RunSummary {
        let now = self.clock.now();
        let started = self.started.unwrap_or(now);
        let ended = self.ended.unwrap_or(now);
        let snapshot = self.snapshot();
        let (stopped, events, bytes) = self.stopped.unwrap_or_else(|| {
            let bytes = snapshot.counter(Counter::PayloadBytesReceived);
            let events = &snapshot.ledger.events;
            (ended, events.built + events.incomplete_emitted, bytes)
        });
        let age = self.started.map(|started| now.since(started));
        let times = Durations {
            started: age.map(|age| Utc(self.clock.utc().0.saturating_sub(age.as_nanos() as i64))),
            whole: ended.since(started).as_secs_f64(),
            running: stopped.since(started).as_secs_f64(),
            events_when_stopped: events,
            bytes_when_stopped: bytes,
        };
        let remarks = self.feeders.iter().flat_map(RunningFeeder::remarks);
        let of_others = self.watched.iter().flat_map(Watched::remarks);
        let transfer = self.transfer.as_ref().map(TransferService::summary);
        // Before the end there is nothing wrong with what is left.
        let left = transfer.as_ref().filter(|_| self.workers.is_empty()).and_then(TransferSummary::remark);
        let warnings = self.warnings.iter().cloned().chain(remarks).chain(of_others).chain(left).collect();
        let lumisections = self.board.lumisections();
        let parts = Parts { sources: self.sources, streams: &self.streams, lumisections: &lumisections };
        let summary = RunSummary::new(&snapshot, self.directory.clone(), parts, self.forced, times);
        let (fields, configuration) = (self.fields.clone(), self.configured.summary.clone());
        let clock = ClockSummary { at_start: self.clock_at_start, at_end: ClockReading::now() };
        let sample = self.sample();
        let histograms = self.histogram_definitions.iter().map(|one| one.read(&sample, None)).collect();
        let measures = MeasureSummary::all(&sample);
        let inputs = self.feeders.iter().filter_map(RunningFeeder::input).collect();
        let summary =
            RunSummary { inputs, warnings, transfer, fields, configuration, clock, histograms, measures, ..summary }
                .with_disk_left(self.disk_left())
                .with_panicked(&self.ending.panicked());
        let summary = match FileBasedSummary::new(&self.file_filters, summary.events.written) {
            None => summary,
            Some(file_based) => summary.with_file_based(file_based),
        };
        match self.front_ends() {
            None => summary,
            Some(account) => {
                summary.with_front_ends(FrontEndsSummary::new(&account, &snapshot, started, &self.configured.settings))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::parse;
    use crate::run::worker::Panics;

    #[test]
    fn a_thread_that_panicked_ends_the_run_and_is_named_in_the_account_which_does_not_balance() {
        let output = std::env::temp_dir().join(format!("ropewalk-handle-{}", std::process::id()));
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
             [[source]]\nid = 1\nreadout = \"ru0\"\n",
            output.display().to_string()
        );
        let configuration = parse("handle", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let mut handle = super::super::launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
        assert!(!handle.is_ended());
        let drives: Vec<Box<dyn Drive + Send>> = vec![Box::new(Panics)];
        handle.workers.push(Worker::start("bu1", drives, Arc::clone(&handle.ending), || ()).expect("a thread"));
        while !handle.is_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let summary = handle.finish(Duration::ZERO);
        std::fs::remove_dir_all(&output).expect("the run's own");
        assert!(!summary.is_balanced());
        assert_eq!(summary.ledger.unbalanced[0].thread.as_deref(), Some("bu1"), "{:?}", summary.ledger);
    }
}
