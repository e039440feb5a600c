//! The handle of a run: commands in, snapshots and the account out. The same type serves readout and builder units and
//! gateways.

use super::base::{RunBase, Stopped};
use super::controlled::{FrontEndsOfRun, FrontEndsSummary};
use super::feeder::RunningFeeder;
use super::file_filters::FileBasedSummary;
use super::gateway::{GatewayAccount, GatewaySnapshot, Gateways};
use super::histograms::HistogramDefinition;
use super::plugins::Watched;
use super::registry::{self};
use super::remarks::Remarks;
use super::run_files::{DiskLeft, DiskWatch};
use super::summary::{Durations, Parts, RunSummary};
use super::summary_sections::{ClockReading, ClockSummary, MeasureSummary, ProbedDisk};
use super::transfer::{TransferService, TransferSummary};
use super::units::Units;
use super::worker::{Ending, Worker};
use ropewalk_config::fields::Fields;
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{FrontEndsAccount, Refusal, RunSnapshot, phase_name};
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::Setting;
use ropewalk_io::clock::Clock;
use ropewalk_io::disk::free_bytes;
use ropewalk_monitor::{Beginning, DiskSample, Sample};
use ropewalk_terms::{Counter, Epoch, EventKey, Instant, RunNumber, SourceId, Utc};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The threads of a run. A clone can outlive the handle.
#[derive(Clone, Debug)]
pub struct RunThreads(pub(super) Arc<Ending>);

impl RunThreads {
    /// Returns the names of the threads that have not ended: `ru0`, `bu1` and so on.
    pub fn living(&self) -> Vec<String> {
        self.0.living()
    }
}

/// The builders of a run's events.
#[derive(Debug)]
pub(super) enum Builders {
    Units(Box<Units>),
    Gateways(Box<Gateways>),
}

/// A run on its own threads. Dropping it ends them.
#[derive(Debug)]
pub struct RunHandle {
    pub(super) base: RunBase,
    pub(super) builders: Builders,
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl RunHandle {
    /// Returns the recent state of the run.
    pub fn snapshot(&self) -> RunSnapshot {
        match &self.builders {
            Builders::Units(units) => units.board.read(),
            Builders::Gateways(gateways) => {
                let (phase, is_paused) = self.progress();
                let empty = RunSnapshot { phase, is_paused, run: self.base.run, ..RunSnapshot::default() };
                gateways.snapshot().run_snapshot(&gateways.flows, empty)
            }
        }
    }

    /// Returns the phase, and whether the run is paused. Cheaper than [`RunHandle::snapshot`], which takes time for
    /// each source.
    pub fn progress(&self) -> (RunPhase, bool) {
        match &self.builders {
            Builders::Units(units) => units.board.progress(),
            Builders::Gateways(gateways) => {
                let phase = self.base.phase();
                (phase, phase.is_running() && gateways.are_held())
            }
        }
    }

    /// Returns the reports of gateways, farm nodes and emulated sources of this process; empty without them.
    pub fn gateways(&self) -> GatewaySnapshot {
        match &self.builders {
            Builders::Units(_) => GatewaySnapshot::default(),
            Builders::Gateways(gateways) => gateways.snapshot(),
        }
    }

    /// Returns the tap for copies of events; `None` without a builder unit or gateway in this process.
    pub const fn tap(&self) -> Option<&Tap> {
        self.base.tap.as_ref()
    }

    /// Returns the numbers of each node and source, for monitoring. It allocates, so that it must not be called on
    /// threads that carry data.
    pub fn sample(&self) -> Sample {
        let disk = self.disk_left().map(|left| DiskSample { free_bytes: left.free_bytes, full_in: left.time });
        let (time, utc) = (self.base.clock.now(), self.base.clock.utc());
        let sample = match &self.builders {
            Builders::Units(units) => units.board.observe(time, utc, disk),
            Builders::Gateways(gateways) => {
                let (phase, is_paused) = self.progress();
                let phase = phase_name(phase, is_paused);
                let (run, report_interval) = (self.base.run, gateways.orders.interval());
                let empty = Sample { time, utc, run, phase, disk, report_interval, ..Sample::default() };
                gateways.snapshot().sample(&gateways.flows, gateways.histogram_cells(), empty)
            }
        };
        if let Some(watch) = &self.base.disk_watch {
            let deleted = sample.total(Counter::BytesDeleted);
            watch.note_written(sample.total(Counter::BytesWritten).saturating_sub(deleted));
        }
        let (node_names, outputs) = (Arc::clone(&self.base.node_names), Arc::clone(&self.base.outputs));
        let disk_loads = Arc::new(self.base.disk_watch.as_ref().map(DiskWatch::loads).unwrap_or_default());
        Sample { node_names, outputs, disk_loads, ..self.base.known.describe(sample) }
    }

    /// Returns the free space of the disks that this process writes to; `None` without such a disk.
    pub fn disk_left(&self) -> Option<DiskLeft> {
        self.base.disk_left()
    }

    /// Returns its threads.
    pub fn threads(&self) -> RunThreads {
        RunThreads(Arc::clone(&self.base.ending))
    }

    /// Adds a thread that does nothing and does not end before `may_end` is set.
    #[cfg(test)]
    pub(crate) fn add_hanging_thread(&mut self, name: &str, may_end: Arc<std::sync::atomic::AtomicBool>) {
        self.add_thread(name, Box::new(super::worker::Hangs(may_end)));
    }

    #[cfg(test)]
    fn add_thread(&mut self, name: &str, drive: Box<dyn ropewalk_engine::Drive + Send>) {
        let worker = Worker::start(
            name,
            vec![super::worker::DriveWithPage::new(drive, None)],
            Arc::clone(&self.base.ending),
            || (),
        )
        .expect("a thread");
        self.base.workers.push(worker);
    }

    /// Returns the run's number; 0 in a process that only emulates sources or farm nodes.
    pub const fn run_number(&self) -> RunNumber {
        self.base.run
    }

    /// Returns the run's directory; empty in a process without one.
    pub fn directory(&self) -> &Path {
        &self.base.directory
    }

    /// Returns the names and addresses of the listening points: front ends of `ru0`, nodes of the event manager, and so
    /// on.
    pub fn addresses(&self) -> &[(String, String)] {
        &self.base.addresses
    }

    /// Returns the epoch of the event manager, if it has its own process.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match &self.builders {
            Builders::Units(units) => units.epoch(),
            Builders::Gateways(_) => None,
        }
    }

    /// Returns the histograms of sources (`[[histogram]]`). A sample has their counts.
    pub fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Arc::clone(&self.base.histograms)
    }

    /// Returns the refused requests for threads and pools that the run does without, and old names of keys.
    pub fn warnings(&self) -> &[String] {
        &self.base.warnings
    }

    /// Returns new kinds of faults of splitters, filters or trigger hardware since the last call, and why nodes have no
    /// pages.
    pub fn take_news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.base.news);
        if let Builders::Gateways(gateways) = &mut self.builders {
            news.extend(gateways.take_hardware_failures());
        }
        news.extend(self.base.watched.iter_mut().flat_map(Watched::take_news));
        news
    }

    /// Returns the number of configured sources.
    pub const fn sources(&self) -> usize {
        self.base.sources
    }

    /// Returns the number of fragments and bytes that each emulated or played source of a readout unit sent.
    pub fn sent(&self) -> Vec<(SourceId, u64, u64)> {
        match &self.builders {
            Builders::Units(units) => units.sent(),
            Builders::Gateways(_) => Vec::new(),
        }
    }

    /// Returns whether the emulated sources have sent their last event.
    pub fn sources_ended(&self) -> bool {
        match &self.builders {
            Builders::Units(_) => self.base.have_emulators_ended(),
            Builders::Gateways(gateways) => gateways.are_sources_exhausted(),
        }
    }

    /// Returns whether no more data of the sources will come. `until_sources_end`: sources that disconnect end the run.
    /// `has_limit`: a number of events is requested, so that sources without further events are no end. `given_up`
    /// connections ended with their readout unit and will not return.
    pub fn are_sources_over(
        &self,
        until_sources_end: bool,
        has_limit: bool,
        snapshot: &RunSnapshot,
        given_up: u64,
    ) -> bool {
        match &self.builders {
            Builders::Units(units) => {
                units.are_sources_over(&self.base, (until_sources_end, has_limit), snapshot, given_up)
            }
            Builders::Gateways(gateways) => gateways.are_sources_exhausted(),
        }
    }

    /// Writes the configuration into the run's directory, and the takeover record of an event manager in its own
    /// process. To be called before [`RunHandle::start`].
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn leave_word(&mut self, first: EventKey, last: Option<EventKey>) -> std::io::Result<()> {
        registry::begins(&self.base.directory, self.base.run)?;
        self.base.warnings.extend(self.base.configured.keep(&self.base.directory)?);
        match &self.builders {
            Builders::Units(units) => units.leave_word(&self.base, first, last),
            Builders::Gateways(_) => Ok(()),
        }
    }

    /// Checks that the disks have enough space for the run. A disk may take time to answer.
    ///
    /// # Errors
    /// If they have not: which one, and what to do.
    pub fn expect_room(&self) -> Result<(), String> {
        self.base.start_room.expect(|directory| free_bytes(directory).ok())?;
        self.base.start_room.expect_told(|| self.sample())
    }

    /// Sets the fields of the run, for its account. Call it before [`RunHandle::leave_word`].
    pub fn describe(&mut self, fields: Fields) {
        self.base.fields = fields;
    }

    /// Returns the fields of the run.
    pub const fn fields(&self) -> &Fields {
        &self.base.fields
    }

    /// Continues the run that was taken over. Returns false if there was none.
    pub fn go_on(&mut self) -> bool {
        let Builders::Units(units) = &self.builders else { return false };
        let Some(before) = units.go_on(&self.base) else { return false };
        let started = self.base.clock.now().as_nanoseconds().saturating_sub(before.as_nanos() as u64);
        self.base.started = Some(Instant::from_nanoseconds(started));
        // The run continues in any case.
        let failed = |error| Some(format!("{}: the configuration is not kept: {error}", self.base.directory.display()));
        let kept = self.base.configured.keep(&self.base.directory).unwrap_or_else(failed);
        self.base.warnings.extend(kept);
        true
    }

    /// Returns the time since the run's start, including the time under earlier event managers.
    pub fn age(&self) -> Duration {
        self.base.started.map_or(Duration::ZERO, |started| self.base.clock.now().since(started))
    }

    /// Starts the run as soon as all nodes are connected. Units take exactly the keys from `first` to `last`. Flows of
    /// gateways use their configured event numbers.
    pub fn start(&mut self, first: EventKey, last: Option<EventKey>) {
        self.base.clock_at_start = ClockReading::now();
        self.base.started = Some(self.base.clock.now());
        match &self.builders {
            Builders::Units(units) => units.start(&self.base, first, last),
            Builders::Gateways(gateways) => gateways.hold(&self.base.workers, false),
        }
    }

    /// Stops the trigger of emulated sources, then the run: everything up to the last trigger is still built.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.base.is_stopping, true) {
            return;
        }
        let are_units = matches!(self.builders, Builders::Units(_));
        // Nodes close their connections before their last report.
        let sample = self.sample();
        let idle = sample.sources.iter().filter(|source| sample.may_be_connected(source));
        self.base.idle = idle.map(|source| source.source).collect();
        // If the sources of units have ended, their last event ends the running interval.
        if !(are_units && self.sources_ended()) {
            self.note_stop();
        }
        match &self.builders {
            Builders::Units(units) => units.stop(&self.base),
            Builders::Gateways(gateways) => gateways.stop(&self.base.workers),
        }
    }

    /// Masks or unmasks a source from now on, or, before the run begins, from its first event on. During the run the
    /// source's readout unit or gateway chooses the event, and the account contains it.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        match &self.builders {
            Builders::Units(units) => units.mask(&self.base.workers, source, is_masked),
            Builders::Gateways(gateways) => gateways.mask(&self.base.workers, source, is_masked),
        }
    }

    /// Changes a parameter.
    pub fn set(&self, setting: Setting) {
        match &self.builders {
            Builders::Units(units) => units.set(&self.base.workers, setting),
            Builders::Gateways(gateways) => gateways.set(&self.base.workers, setting),
        }
    }

    /// Pauses event building. A stop ends a pause.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Resumes after a pause.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) {
        match &self.builders {
            Builders::Units(units) => units.pause(&self.base.workers, is_paused),
            Builders::Gateways(gateways) => gateways.hold(&self.base.workers, is_paused),
        }
    }

    /// Stops immediately: unfinished events are dropped and named.
    pub fn force_stop(&mut self) {
        self.note_stop();
        self.base.is_forced = true;
        match &self.builders {
            Builders::Units(units) => units.force_stop(&self.base.workers),
            Builders::Gateways(gateways) => {
                gateways.stop(&self.base.workers);
                self.base.ending.halt();
            }
        }
    }

    fn note_stop(&mut self) {
        if self.base.stopped.is_none() {
            self.base.stopped = Some(Stopped::new(self.base.clock.now(), &self.snapshot()));
        }
    }

    /// Returns the recent state of the front ends under run control; `None` without them.
    pub fn front_ends(&self) -> Option<FrontEndsAccount> {
        match &self.builders {
            Builders::Units(units) => units.front_ends.as_ref().map(FrontEndsOfRun::account),
            Builders::Gateways(_) => None,
        }
    }

    /// Returns whether the run has ended: drained, with its files closed.
    pub fn is_ended(&mut self) -> bool {
        let (is_ended, is_over) = match &self.builders {
            Builders::Units(units) => {
                // Checked first: the results of ended threads are then complete.
                let has_left = self.base.workers.iter().all(Worker::is_finished);
                let nodes_ended = units.board.phase().is_final();
                let ended = nodes_ended && units.front_ends.as_ref().is_none_or(FrontEndsOfRun::is_at_rest);
                // If threads ended before the run did, there is nothing to wait for.
                (ended, ended || has_left && !nodes_ended)
            }
            Builders::Gateways(gateways) => {
                let ended = gateways.have_ended(&self.base.workers, self.base.stopped.is_some());
                (ended, ended)
            }
        };
        if is_ended {
            self.base.ended.get_or_insert_with(|| self.base.clock.now());
        }
        is_over
    }

    /// Returns the final refusal by another node, if any. The threads then end.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.base.ending.refusal()
    }

    /// Waits for the threads for up to `patience`, ends them and returns the final account.
    pub fn finish(mut self, patience: Duration) -> RunSummary {
        let until = self.base.clock.now().after(patience);
        while !self.have_threads_ended() && self.base.clock.now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.end_threads();
        let is_forced = self.base.is_forced;
        self.base.warnings.extend(self.base.merge_histograms());
        // A forced end does not wait for commands that transfer files.
        if let Some(transfer) = self.base.transfer.as_mut().filter(|_| !is_forced) {
            transfer.finish();
        }
        self.base.file_filters.iter_mut().for_each(|filters| filters.finish(is_forced));
        self.summary().with_faulty_events()
    }

    /// Returns whether the threads that end by themselves have ended. Farm nodes do not.
    fn have_threads_ended(&self) -> bool {
        let mut workers = self.base.workers.iter();
        match &self.builders {
            Builders::Units(_) => workers.chain(&self.base.emulators).all(Worker::is_finished),
            Builders::Gateways(_) => workers.all(Worker::is_finished),
        }
    }

    fn end_threads(&mut self) {
        if let Builders::Gateways(gateways) = &self.builders {
            gateways.end_nodes();
        }
        self.base.halt();
        self.base.end_feeders();
        self.base.end_threads();
        if let Builders::Gateways(gateways) = &mut self.builders {
            gateways.end_hardware();
        }
    }

    /// Records, for the account, since when sources were silent that stopped before others, and which ones began later
    /// than the first.
    pub(crate) fn note_activity(&mut self, since: BTreeMap<SourceId, Utc>, began_late: BTreeMap<SourceId, Beginning>) {
        (self.base.silent_since, self.base.began_late) = (since, began_late);
    }

    /// Returns the current account.
    pub fn summary(&self) -> RunSummary {
        let base = &self.base;
        let (snapshot, sample, times) = (self.snapshot(), self.sample(), self.durations());
        let lumisections = match &self.builders {
            Builders::Units(units) => units.board.lumisections(),
            Builders::Gateways(_) => Vec::new(),
        };
        let transfer = base.transfer.as_ref().map(TransferService::summary);
        let parts = Parts { sources: base.sources, streams: &base.streams, lumisections: &lumisections };
        let mut summary = RunSummary::new(&snapshot, base.directory.clone(), parts, base.is_forced, times);
        if base.started.is_some() {
            let (known, silent_since, idle) = (&base.known, &base.silent_since, &base.idle);
            let (snapshot, sample, began_late) = (&snapshot, &sample, &base.began_late);
            summary.add_remarks(&Remarks { known, snapshot, sample, silent_since, began_late, idle });
        }
        summary.names = base.known.names.iter().map(|(id, name)| (id.to_string(), name.clone())).collect();
        summary.fields = base.fields.clone();
        summary.configuration = base.configured.summary.clone();
        summary.clock = ClockSummary { at_start: base.clock_at_start, at_end: ClockReading::now() };
        summary.histograms = base.histograms.iter().map(|one| one.read(&sample, None)).collect();
        summary.measures = MeasureSummary::all(&sample);
        summary.disk = summary.disk.with_left(base.disk_left());
        let outputs = base.disk_watch.as_ref().map(DiskWatch::directories).unwrap_or_default();
        summary.disk.probes = outputs.iter().filter_map(|output| ProbedDisk::of(output)).collect();
        summary.warnings.clone_from(&base.warnings);
        summary.inputs = base.feeders.iter().filter_map(RunningFeeder::input).collect();
        summary.warnings.extend(base.feeders.iter().flat_map(RunningFeeder::remarks));
        summary.warnings.extend(base.watched.iter().flat_map(Watched::remarks));
        match &self.builders {
            Builders::Units(_) => self.add_front_ends(&mut summary, &snapshot),
            Builders::Gateways(gateways) => {
                summary.lumisections = gateways.lumisections();
                let running = Duration::from_secs_f64(times.running);
                summary.add_gateways(GatewayAccount::new(&gateways.snapshot(), &gateways.flows, running));
            }
        }
        if let Some(file_based) = FileBasedSummary::new(&base.file_filters, summary.events.written) {
            summary.add_file_based(file_based);
        }
        // Files that wait for their transfer are no fault before the end.
        let left = transfer.as_ref().filter(|_| base.workers.is_empty()).and_then(TransferSummary::remark);
        summary.warnings.extend(left);
        summary.transfer = transfer;
        summary.with_panicked(&base.ending.panicked())
    }

    fn add_front_ends(&self, summary: &mut RunSummary, snapshot: &RunSnapshot) {
        if let Some(account) = self.front_ends() {
            let started = self.base.started.unwrap_or_else(|| self.base.clock.now());
            let settings = &self.base.configured.settings;
            summary.add_front_ends(FrontEndsSummary::new(&account, snapshot, started, settings));
        }
    }

    fn durations(&self) -> Durations {
        let base = &self.base;
        let now = base.clock.now();
        let started = base.started.unwrap_or(now);
        let ended = base.ended.unwrap_or(now);
        let stopped = base.stopped.unwrap_or_else(|| Stopped::new(ended, &self.snapshot()));
        let age = base.started.map(|started| now.since(started));
        Durations {
            started: age.map(|age| Utc(base.clock.utc().0.saturating_sub(age.as_nanos() as i64))),
            whole: ended.since(started).as_secs_f64(),
            running: stopped.at.since(started).as_secs_f64(),
            events_when_stopped: stopped.events,
            bytes_when_stopped: stopped.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Hardware, SystemPart, Way};
    use crate::launch_part;
    use crate::worker::Panics;
    use ropewalk_config::parse;
    use ropewalk_engine::gateway::ThrottleBoard;

    fn units(output: &Path) -> RunHandle {
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
             [[source]]\nid = 1\nreadout = \"ru0\"\n",
            output.display().to_string()
        );
        let configuration = parse("handle", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        super::super::launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Nodes of a farm, without gateways.
    fn nodes() -> RunHandle {
        let text = "version = 1\n[[flow]]\nname = \"hlt\"\npacking = 5\n\
                    sources = { count = 2, first = 0, address = \"127.0.0.1:23000\" }\n[farm]\nnodes = 1\nemulate = {}\n\
                    [[gateway]]\nname = \"gw0\"\ncontrol = \"127.0.0.1:22999\"\nlisten = { hlt = \"127.0.0.1:22998\" }\n";
        let configuration = parse("handle", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        launch_part(&configuration, &SystemPart::Nodes(0..1), None).unwrap_or_else(|error| panic!("{error}"))
    }

    fn panicked(mut handle: RunHandle, thread: &str) -> Option<String> {
        handle.add_thread(thread, Box::new(Panics));
        while !handle.base.ending.is_halted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let summary = handle.finish(Duration::ZERO);
        assert!(!summary.is_balanced());
        summary.ledger.unbalanced[0].thread.clone()
    }

    #[test]
    fn the_account_names_a_thread_that_panicked_and_is_not_balanced() {
        let output = std::env::temp_dir().join(format!("ropewalk-handle-{}", std::process::id()));
        let mut handle = units(&output);
        assert!(!handle.is_ended());
        assert_eq!(panicked(handle, "bu1").as_deref(), Some("bu1"));
        std::fs::remove_dir_all(&output).expect("the run's own");
        assert!(nodes().summary().is_balanced());
        assert_eq!(panicked(nodes(), "gw0").as_deref(), Some("gw0"));
        assert!(nodes().finish(Duration::ZERO).is_balanced());
    }

    #[test]
    fn a_dropped_handle_ends_its_threads() {
        let mut handle = nodes();
        let board = Arc::<ThrottleBoard>::default();
        let way = Way::Command(vec!["true".to_owned()]);
        let hardware = Hardware::start("gw0", way, Arc::clone(&board)).expect("a thread");
        let Builders::Gateways(gateways) = &mut handle.builders else { panic!("no gateways") };
        gateways.hardware.push(hardware);
        let ending = Arc::clone(&handle.base.ending);
        drop(handle);
        assert!(board.read().is_over && ending.is_halted());
        assert_eq!((Arc::strong_count(&board), Arc::strong_count(&ending)), (1, 1), "a thread still has it");
    }
}
