//! What decides on events, as the drive of a builder unit sees it.

use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{BuiltinFilter, Decision, Fills, HistogramShape, LumisectionRecord};
use ropewalk_terms::{Instant, RunNumber};
use std::os::fd::BorrowedFd;

/// What a filter says of an event beside its decision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Said {
    /// Its own data, which are stored with the event.
    pub result: Vec<u8>,
    /// What it fills into its histograms.
    pub fills: Fills,
}

impl Said {
    /// Nothing is said.
    pub fn clear(&mut self) {
        self.result.clear();
        self.fills.clear();
    }
}

/// Who keeps what was counted of each lumisection. It is never waited for.
pub trait RecordKeeper: Send {
    /// Keeps the record of a lumisection of a run, which is closed; gives it back where there is no room now.
    ///
    /// # Errors
    /// The record, which is offered again.
    fn keep(&mut self, run: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord>;

    /// A record that was kept and is not needed any more.
    fn give_back(&mut self) -> Option<LumisectionRecord> {
        None
    }
}

/// A filter that is a function of this process: it answers at once, and what it does wrong it does to the run.
pub trait LocalFilter: Send {
    /// A run begins.
    fn begin(&mut self, _run: RunNumber) {}

    /// The histograms that it fills: what it says names them by their places here.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// Decides on an event; what else it says of it is appended to `said`, which is empty. None where no decision could be had.
    fn decide(&mut self, event: &EventView<'_>, said: &mut Said) -> Option<Decision>;

    /// The run has ended.
    fn end(&mut self) {}

    /// What the clock says, to tell how long decisions take; none where nobody wants to know.
    fn time(&self) -> Option<Instant> {
        None
    }

    /// Bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl LocalFilter for BuiltinFilter {
    fn decide(&mut self, event: &EventView<'_>, _: &mut Said) -> Option<Decision> {
        Some(Self::decide(self, event))
    }
}

/// What can be seen of a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterSight {
    /// It has become ready.
    pub is_ready: bool,
    /// It was there, and has ended: that is certain.
    pub has_ended: bool,
    /// How many events it takes in all, in this life of it.
    pub granted: u64,
    /// How many decisions it has made in all, in this life of it, taken or not.
    pub decided: u64,
}

/// A decision as it came from a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitDecision {
    /// The event, as it was offered.
    pub slot: u32,
    /// What was decided; none where it says that it cannot decide.
    pub decision: Option<Decision>,
}

/// What became of an offer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The filter unit has the event.
    Taken,
    /// There is no room for it now.
    Full,
    /// There will never be room for it.
    TooLarge,
}

/// A filter unit in another process or elsewhere, or what stands for it. It is never waited for.
pub trait FilterLink: Send {
    /// Starts a process; that this failed is seen as its end.
    fn start(&mut self);

    /// Ends the process; when that is certain it is seen.
    fn kill(&mut self);

    /// A run begins. It is told to every process that is there and to those that follow.
    fn begin(&mut self, run: RunNumber);

    /// The run has ended.
    fn end(&mut self);

    /// Looks at it.
    fn look(&mut self, now: Instant) -> FilterSight;

    /// Offers an event. What it lies in must be there until it was decided, or the filter unit has ended.
    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered;

    /// Lets the filter unit know of what was offered.
    fn flush(&mut self);

    /// The histograms that it fills, once it is ready: what it says names them by their places here.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// The next decision; what else was said of the event replaces `said`. An error where what it says cannot be true.
    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>>;

    /// Bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64;

    /// When it is to be looked at even if nothing becomes readable.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// To be called before the thread sleeps: false if there is something to look at right now.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Appends what becomes readable when there is something to look at.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
}

/// What a filter unit says cannot be true; why is its own to tell.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotBelieved;
