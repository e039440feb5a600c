//! The run of a push system as that of any other, to whoever conducts and watches it.

use super::handle::PushHandle;
use super::observation::{count, observe};
use crate::drive::{RunSnapshot, phase_name};
use crate::fields::Fields;
use crate::run::forecast::{DiskLeft, DiskWatch};
use crate::run::worker::Worker;
use crate::run::{Account, ConductedRun, HistogramDefinition, RunThreads};
use crate::tap::Tap;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::Setting;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::free_bytes;
use ropewalk_monitor::{DiskSample, Sample};
use ropewalk_terms::{EventKey, RunNumber, SourceId};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl ConductedRun for PushHandle {
    fn number(&self) -> RunNumber {
        self.run_number()
    }

    fn directory(&self) -> &Path {
        Self::directory(self)
    }

    fn addresses(&self) -> &[(String, String)] {
        Self::addresses(self)
    }

    fn warnings(&self) -> &[String] {
        Self::warnings(self)
    }

    fn sources(&self) -> usize {
        self.flows().iter().map(|flow| usize::from(flow.sources.count)).sum()
    }

    fn threads(&self) -> RunThreads {
        RunThreads(Arc::clone(self.ending()))
    }

    fn progress(&self) -> (RunPhase, bool) {
        (self.phase(), self.is_paused())
    }

    fn snapshot(&self) -> RunSnapshot {
        let (phase, is_paused) = ConductedRun::progress(self);
        let mut snapshot = RunSnapshot { phase, is_paused, run: self.run_number(), ..RunSnapshot::default() };
        count(&Self::snapshot(self), self.flows(), &mut snapshot);
        snapshot
    }

    fn sample(&self) -> Sample {
        let disk = ConductedRun::disk_left(self);
        let mut sample = Sample {
            time: MonotonicClock.now(),
            utc: MonotonicClock.utc(),
            run: self.run_number(),
            phase: phase_name(self.phase(), self.is_paused()),
            disk: disk.map(|left| DiskSample { free_bytes: left.free_bytes, full_in: left.time }),
            ..Sample::default()
        };
        observe(&Self::snapshot(self), self.flows(), self.counted(), &mut sample);
        sample
    }

    fn age(&self) -> Duration {
        Self::age(self)
    }

    fn describe(&mut self, fields: Fields) {
        Self::describe(self, fields);
    }

    fn fields(&self) -> &Fields {
        Self::fields(self)
    }

    fn leave_word(&mut self, _first: EventKey, _last: Option<EventKey>) -> io::Result<()> {
        Self::leave_word(self)
    }

    /// Flows number their events as they are configured, and end with as many as was known when they were set up.
    fn start(&mut self, _first: EventKey, _last: Option<EventKey>) {
        Self::start(self);
    }

    fn pause(&mut self) {
        Self::pause(self);
    }

    fn resume(&mut self) {
        Self::resume(self);
    }

    fn stop(&mut self) {
        Self::stop(self);
    }

    fn force_stop(&mut self) {
        Self::force_stop(self);
    }

    fn is_ended(&mut self) -> bool {
        Self::is_ended(self)
    }

    fn are_sources_over(
        &self,
        _until_sources_end: bool,
        _has_limit: bool,
        _snapshot: &RunSnapshot,
        _given_up: u64,
    ) -> bool {
        self.is_exhausted()
    }

    fn finish(self: Box<Self>, patience: Duration) -> Account {
        let until = std::time::Instant::now() + patience;
        while !self.workers.iter().all(Worker::is_finished) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        Account::Push(Box::new(Self::finish(*self)))
    }

    fn disk_left(&self) -> Option<DiskLeft> {
        self.disk_watch.as_ref().and_then(DiskWatch::left)
    }

    fn expect_room(&self) -> Result<(), String> {
        self.start_room.expect(|directory| free_bytes(directory).ok())
    }

    fn tap(&self) -> Option<&Tap> {
        (!self.gateways.is_empty()).then_some(&self.tap)
    }

    fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Self::histograms(self)
    }

    fn take_news(&mut self) -> Vec<String> {
        Self::take_news(self)
    }

    fn mask(&self, source: SourceId, is_masked: bool) {
        Self::mask(self, source, is_masked);
    }

    fn set(&self, setting: Setting) {
        Self::set(self, setting);
    }
}
