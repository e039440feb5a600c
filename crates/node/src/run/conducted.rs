//! Runs as whoever conducts them sees them: alike, whether front ends are asked for what they have or push it.

use super::forecast::DiskLeft;
use super::handle::{RunHandle, RunThreads};
use super::histograms::HistogramDefinition;
use super::push::PushSummary;
use super::summary::RunSummary;
use crate::drive::{FrontEndsAccount, Refusal, RunSnapshot};
use crate::fields::Fields;
use crate::status::StatusSummary;
use crate::tap::Tap;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::Setting;
use ropewalk_monitor::Sample;
use ropewalk_terms::{Counter, EventKey, RunNumber, SourceId};
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A run that was set up, and has not been closed. What only one kind of run has is left out by the others.
pub trait ConductedRun: Debug + Send {
    /// Its number.
    fn number(&self) -> RunNumber;

    /// Its directory.
    fn directory(&self) -> &Path;

    /// Names and addresses where something listens.
    fn addresses(&self) -> &[(String, String)];

    /// What was asked of the system, refused, and gone without.
    fn warnings(&self) -> &[String];

    /// How many sources are configured.
    fn sources(&self) -> usize;

    /// Its threads.
    fn threads(&self) -> RunThreads;

    /// How far it is, and whether it is paused: a glance beside [`ConductedRun::snapshot`].
    fn progress(&self) -> (RunPhase, bool);

    /// Its numbers, as they were a moment ago.
    fn snapshot(&self) -> RunSnapshot;

    /// The same by node and source, for those who watch it.
    fn sample(&self) -> Sample;

    /// How long it has gone on since its start.
    fn age(&self) -> Duration;

    /// What is said of it, for its account; before it begins.
    fn describe(&mut self, fields: Fields);

    /// What was said of it.
    fn fields(&self) -> &Fields;

    /// Begins it, with the event `first`; with `last`, up to that one where the run can tell its triggers so.
    fn start(&mut self, first: EventKey, last: Option<EventKey>);

    /// No further event for now.
    fn pause(&mut self);

    /// Goes on after a pause.
    fn resume(&mut self);

    /// Stops it: what was triggered is still built.
    fn stop(&mut self);

    /// Stops it at once: what is not done is dropped and named.
    fn force_stop(&mut self);

    /// It has ended: drained, files closed.
    fn is_ended(&mut self) -> bool;

    /// Nothing more will come of its sources. `until_sources_end`: those that go are not waited for; `has_limit`: so many events are wanted
    /// that sources which have none left are no end.
    /// So many connections that ended with their readout unit are given up: their sources do not come again.
    fn are_sources_over(&self, until_sources_end: bool, has_limit: bool, snapshot: &RunSnapshot, given_up: u64)
    -> bool;

    /// Ends its threads, of which `patience` bounds how long they may take to leave, and gives the final account.
    fn finish(self: Box<Self>, patience: Duration) -> Account;

    /// What there is of its disks.
    fn disk_left(&self) -> Option<DiskLeft> {
        None
    }

    /// Front ends under run control.
    fn front_ends(&self) -> Option<FrontEndsAccount> {
        None
    }

    /// Where copies of its events can be asked for.
    fn tap(&self) -> Option<&Tap> {
        None
    }

    /// What is counted of its sources' fragments.
    fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Arc::default()
    }

    /// What went wrong for the first time since it was asked last, where no counter tells it.
    fn take_news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Who refused this node for good.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// Puts into the run's directory what it begins with: its configuration, and word for whoever may have to take over. The disk may
    /// take its time.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    fn leave_word(&mut self, first: EventKey, last: Option<EventKey>) -> io::Result<()>;

    /// Looks whether there is room on the disks for it. A disk may take its time.
    ///
    /// # Errors
    /// Where there is not, and what to do, for people.
    fn expect_room(&self) -> Result<(), String> {
        Ok(())
    }

    /// Goes on with the run that was taken over; false where there is none.
    fn go_on(&mut self) -> bool {
        false
    }

    /// A source takes part no longer, or again.
    fn mask(&self, _source: SourceId, _is_masked: bool) {}

    /// A parameter has another value.
    fn set(&self, _setting: Setting) {}
}

impl ConductedRun for RunHandle {
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
        Self::sources(self)
    }

    fn threads(&self) -> RunThreads {
        Self::threads(self)
    }

    fn progress(&self) -> (RunPhase, bool) {
        Self::progress(self)
    }

    fn snapshot(&self) -> RunSnapshot {
        Self::snapshot(self)
    }

    fn sample(&self) -> Sample {
        Self::sample(self)
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

    fn start(&mut self, first: EventKey, last: Option<EventKey>) {
        Self::start(self, first, last);
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
        until_sources_end: bool,
        has_limit: bool,
        snapshot: &RunSnapshot,
        given_up: u64,
    ) -> bool {
        let opened = snapshot.counter(Counter::SourceConnections);
        let have_come = opened >= Self::sources(self) as u64;
        let have_come_and_gone = have_come && opened == snapshot.counter(Counter::SourceDisconnections) + given_up;
        (until_sources_end || !has_limit) && self.sources_ended()
            || (until_sources_end || self.is_fed()) && have_come_and_gone
    }

    fn finish(self: Box<Self>, patience: Duration) -> Account {
        Account::Pull(Box::new(Self::finish(*self, patience)))
    }

    fn disk_left(&self) -> Option<DiskLeft> {
        Self::disk_left(self)
    }

    fn front_ends(&self) -> Option<FrontEndsAccount> {
        Self::front_ends(self)
    }

    fn tap(&self) -> Option<&Tap> {
        Self::tap(self)
    }

    fn histograms(&self) -> Arc<[HistogramDefinition]> {
        Self::histograms(self)
    }

    fn take_news(&mut self) -> Vec<String> {
        Self::take_news(self)
    }

    fn refusal(&self) -> Option<&Refusal> {
        Self::refusal(self)
    }

    fn leave_word(&mut self, first: EventKey, last: Option<EventKey>) -> io::Result<()> {
        Self::leave_word(self, first, last)
    }

    fn expect_room(&self) -> Result<(), String> {
        Self::expect_room(self)
    }

    fn go_on(&mut self) -> bool {
        Self::go_on(self)
    }

    fn mask(&self, source: SourceId, is_masked: bool) {
        Self::mask(self, source, is_masked);
    }

    fn set(&self, setting: Setting) {
        Self::set(self, setting);
    }
}

/// The account of a run that was closed.
#[derive(Clone, Debug)]
pub enum Account {
    /// Of a system whose readout units ask for nothing that they have no room for.
    Pull(Box<RunSummary>),
    /// Of one whose sources push.
    Push(Box<PushSummary>),
}

impl Account {
    /// The run's number.
    pub const fn run(&self) -> u32 {
        match self {
            Self::Pull(summary) => summary.run,
            Self::Push(summary) => summary.run,
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Pull(summary) => &summary.directory,
            Self::Push(summary) => &summary.directory,
        }
    }

    /// When it began, in nanoseconds since 1970 UTC; none where it never did.
    pub const fn started_ns(&self) -> Option<i64> {
        match self {
            Self::Pull(summary) => summary.started_ns,
            Self::Push(summary) => summary.started_ns,
        }
    }

    /// From its start to the end of draining, in seconds.
    pub const fn duration_s(&self) -> f64 {
        match self {
            Self::Pull(summary) => summary.duration_s,
            Self::Push(summary) => summary.duration_s,
        }
    }

    /// Every equation of its ledger holds.
    pub fn is_balanced(&self) -> bool {
        match self {
            Self::Pull(summary) => summary.is_balanced(),
            Self::Push(summary) => summary.is_balanced(),
        }
    }

    /// The exit status, and why.
    pub const fn status(&self) -> &StatusSummary {
        match self {
            Self::Pull(summary) => &summary.status,
            Self::Push(summary) => &summary.status,
        }
    }

    /// What it says beside the numbers: what was asked of the system, refused, and gone without.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Pull(summary) => &summary.warnings,
            Self::Push(summary) => &summary.warnings,
        }
    }

    /// That of a system which pulls; none of another one.
    pub fn pull(&self) -> Option<&RunSummary> {
        match self {
            Self::Pull(summary) => Some(summary),
            Self::Push(_) => None,
        }
    }

    /// Writes it into the run's directory.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn keep(&self) -> io::Result<()> {
        match self {
            Self::Pull(summary) => summary.keep(),
            Self::Push(summary) => summary.keep(),
        }
    }
}
