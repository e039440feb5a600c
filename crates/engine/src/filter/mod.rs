//! From built events to written ones: a filter decides, streams select, in order if a stream requires it.
//!
//! ```text
//!  EventMachine ---> LocalFilter, in this thread --------------------------+
//!             \---> FilterFarm <--orders, decisions--> FilterLink (units) --> Streams --> to write, or to be let go
//! ```
//! The output of a filter on an event is kept in a separate pool until the event is written. Without a filter all
//! events are accepted. Its histogram entries are added up by lumisection when its decision counts, and go to a
//! [`RecordStore`].

mod link;

use super::BusyTimer;
use super::event_machine::EventMachine;
use super::record::Recorded;
pub use link::{
    FilterLink, FilterSight, LocalFilter, NotBelieved, Offered, RecordStore, RemoteNotes, RemoteUnit, Said,
    UnitDecision,
};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{
    Counted, Decision, FarmAction, FarmConfig, Fills, FilterFarm, HistogramShape, LumisectionRecord, Monitoring,
    Ordering, Streams,
};
use ropewalk_flow::messages::ReportEntry;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{
    Attempt, Cause, Counter, EventKey, Incarnation, Instant, Measure, PoolAccount, Recorder, RunNumber, SourceId,
    StreamAccount, StreamIndex, StreamSet, TriggerBits, Verdict,
};
use ropewalk_wire::filter_result::{FilterResult, HEAD_BYTES, MOST_RESULT_BYTES};
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum number of bytes that are kept of a filter's output on an event.
pub const RESULT_BYTES: usize = HEAD_BYTES + MOST_RESULT_BYTES;

/// Maximum number of events that a filter of this thread decides on in a turn.
const AT_ONCE: usize = 64;

/// The decider.
enum Decider {
    /// No filter: all events are accepted.
    AcceptAll,
    /// A function of this process.
    Here(Box<dyn LocalFilter>),
    /// Filter units.
    Units(Box<FilterFarm>, Vec<Watched>),
}

/// A filter unit.
struct Watched {
    link: Box<dyn FilterLink>,
    /// Indices of its histograms.
    histograms: Vec<Option<u16>>,
    /// Whether its process has ended and not all of its decisions were taken yet.
    has_ended: bool,
    /// Time in which it had events to decide on.
    busy: BusyTimer,
}

impl Watched {
    fn new(link: Box<dyn FilterLink>) -> Self {
        Self { link, histograms: Vec::new(), has_ended: false, busy: BusyTimer::default() }
    }
}

/// The decision on the event in a slot.
#[derive(Clone, Default)]
struct Decided {
    streams: StreamSet,
    result: Option<Slice>,
    is_set_aside: bool,
}

/// Decision on events and their selection; see the picture above.
pub struct FilterStage {
    decider: Decider,
    streams: Streams,
    ordering: Ordering,
    /// Memory for the filters' output; `None` without a filter.
    results: Option<Staging>,
    /// By slot, for events to write.
    decided: Box<[Decided]>,
    to_write: VecDeque<u32>,
    /// Empty between two turns.
    to_let_go: Vec<(u32, Verdict)>,
    /// The last output of a filter.
    said: Said,
    monitor: Monitor,
    /// Failed decisions of [`LocalFilter`]s.
    failed_here: u64,
    /// The signal that ended the filter process that ended last; 0 for none.
    last_signal: u8,
    /// When the wait for decisions ends.
    close_at: Option<Instant>,
    /// Time for which a filter of this thread has worked.
    busy_here: Duration,
    /// By slot, when the event was given to filter units.
    given: Box<[Instant]>,
    /// Decision times.
    times: Recorder,
}

impl FilterStage {
    /// Sets the prescale of a stream: it keeps one of this many of its events from now on.
    pub fn set_prescale(&mut self, stream: u16, prescale: u64) {
        self.streams.set_prescale(stream, prescale);
    }

    /// Creates a stage that accepts all events, up to `slots` at a time, which the streams then select.
    pub fn none(streams: Streams, slots: u32) -> Self {
        Self::with(Decider::AcceptAll, streams, None, slots)
    }

    /// Creates a stage with a filter in this thread. Its output is kept in `results`, whose blocks have
    /// [`RESULT_BYTES`] or more. If a stream is ordered, there must be one block for each event in work, and one that
    /// is being filled: events that wait for earlier ones hold theirs.
    pub fn here(filter: Box<dyn LocalFilter>, streams: Streams, results: Staging, slots: u32) -> Self {
        let shapes = filter.histograms().to_vec();
        let mut this = Self::with(Decider::Here(filter), streams, Some(results), slots);
        this.monitor.declare_here(&shapes);
        this
    }

    /// Creates a stage with these filter units, as many as in the farm's configuration. For `results` see
    /// [`FilterStage::here`].
    ///
    /// # Panics
    /// If their number differs.
    pub fn units(config: FarmConfig, links: Vec<Box<dyn FilterLink>>, streams: Streams, results: Staging) -> Self {
        let farm = FilterFarm::new(config);
        assert_eq!(farm.units(), links.len(), "each filter unit has a link");
        let links = links.into_iter().map(Watched::new).collect();
        Self::with(Decider::Units(Box::new(farm), links), streams, Some(results), config.slots)
    }

    fn with(decider: Decider, streams: Streams, results: Option<Staging>, slots: u32) -> Self {
        let room = slots as usize;
        Self {
            decider,
            ordering: Ordering::new(if streams.any_ordered() { slots } else { 0 }),
            monitor: Monitor::new(streams.names().count()),
            streams,
            results,
            decided: vec![Decided::default(); room].into_boxed_slice(),
            to_write: VecDeque::with_capacity(room),
            to_let_go: Vec::with_capacity(room),
            said: Said { result: Vec::with_capacity(MOST_RESULT_BYTES), ..Said::default() },
            failed_here: 0,
            last_signal: 0,
            close_at: None,
            busy_here: Duration::ZERO,
            given: vec![Instant::ZERO; room].into_boxed_slice(),
            times: Recorder::new(Measure::FilterTime),
        }
    }

    /// Begins a run.
    pub fn begin(&mut self, run: RunNumber) {
        self.streams.restart();
        self.ordering.restart();
        self.monitor.begin(run);
        self.close_at = None;
        match &mut self.decider {
            Decider::AcceptAll => {}
            Decider::Here(filter) => filter.begin(run),
            Decider::Units(farm, links) => {
                farm.open();
                links.iter_mut().for_each(|unit| unit.link.begin(run));
            }
        }
    }

    /// Drains the run: after `patience` events without a decision are set aside, so that they are ended.
    pub(super) fn drain(&mut self, now: Instant, patience: Duration) {
        self.close_at.get_or_insert(now.after(patience));
    }

    /// Ends the run: all events were decided.
    pub fn end(&mut self) {
        self.monitor.end();
        match &mut self.decider {
            Decider::AcceptAll => {}
            Decider::Here(filter) => filter.end(),
            Decider::Units(_, links) => links.iter_mut().for_each(|unit| unit.link.end()),
        }
    }

    /// Closes a lumisection, all of whose events have ended. Its filter counts are handed over.
    pub fn close_lumisection(&mut self, number: u32) {
        self.monitor.close(number);
    }

    /// Takes up to `at_most` events of the machine and advances decisions. `see` is called with each event that is
    /// taken. Returns the amount of work done.
    pub fn turn<M: EventMachine>(
        &mut self,
        now: Instant,
        machine: &mut M,
        at_most: usize,
        see: impl FnMut(&M, u32),
    ) -> usize {
        let is_over = self.close_at.is_some_and(|at| now >= at);
        let mut work = self.take(machine, at_most, is_over, see);
        if let Decider::Units(farm, _) = &mut self.decider {
            if is_over {
                farm.close();
            }
            work += self.look_at_units(now, machine) + self.give_out(now, machine);
        }
        if let Decider::Units(farm, links) = &mut self.decider {
            (0..).zip(links).for_each(|(unit, watched)| watched.busy.look(now, farm.is_busy(unit)));
        }
        self.monitor.hand_over();
        if !self.ordering.is_empty() {
            let of_units = if let Decider::Units(farm, _) = &self.decider { farm.oldest() } else { None };
            let oldest = [machine.oldest_unemitted(), of_units].into_iter().flatten().min();
            while let Some(slot) = self.ordering.release(oldest) {
                self.to_write.push_back(slot);
                work += 1;
            }
        }
        work
    }

    /// Takes events of the machine. A filter in this thread decides immediately; filter units get the events. An event
    /// stays in the machine while that filter has no time for it, or there is no room for its output. Once the run is
    /// over that filter is not called.
    fn take<M: EventMachine>(
        &mut self,
        machine: &mut M,
        at_most: usize,
        is_over: bool,
        mut see: impl FnMut(&M, u32),
    ) -> usize {
        let (mut taken, mut begun) = (0, None);
        while taken < at_most
            && self.may_take(taken)
            && let Some(slot) = machine.next_event()
        {
            see(machine, slot);
            let event = machine.event(slot);
            match &mut self.decider {
                Decider::AcceptAll => {
                    let streams = self.streams.select(TriggerBits::default(), event.trigger_type());
                    self.choose(slot, event.key, Decided { streams, ..Decided::default() });
                }
                Decider::Here(filter) => {
                    // One clock read before all of them and one after, if there is something to decide.
                    if taken == 0 {
                        begun = filter.time();
                    }
                    self.decide_here(slot, &event, is_over);
                }
                Decider::Units(farm, _) => farm.add(slot, event.key, event.attempt),
            }
            taken += 1;
        }
        if let (Some(begun), Decider::Here(filter)) = (begun, &self.decider)
            && let Some(ended) = filter.time()
        {
            let time = ended.since(begun);
            self.busy_here += time;
            self.times.record_many(time.as_nanos() as u64 / taken as u64, taken as u64);
        }
        taken
    }

    /// Returns whether another event can be taken in this turn.
    fn may_take(&mut self, taken: usize) -> bool {
        !matches!(self.decider, Decider::Here(_)) || taken < AT_ONCE && self.has_room()
    }

    /// Returns whether a filter's output can be kept. Without room no decision is requested.
    fn has_room(&mut self) -> bool {
        self.results.as_mut().is_some_and(|results| results.room(RESULT_BYTES).is_some())
    }

    fn decide_here(&mut self, slot: u32, event: &EventView<'_>, is_over: bool) {
        let Decider::Here(filter) = &mut self.decider else { return };
        self.said.clear();
        let decision = if is_over { None } else { filter.decide(event, &mut self.said) };
        let decision = decision.filter(|_| self.said.result.len() <= MOST_RESULT_BYTES);
        self.failed_here += u64::from(decision.is_none());
        if decision.is_some() {
            self.monitor.fill_here(event, &self.said.fills);
        }
        self.settle(slot, event, decision);
    }

    /// Takes the decisions of filter units, and handles their state.
    fn look_at_units(&mut self, now: Instant, builder: &impl EventMachine) -> usize {
        let mut work = 0;
        for index in 0.. {
            let Decider::Units(farm, links) = &mut self.decider else { break };
            let (unit, Some(watched)) = (index as u16, links.get_mut(index)) else { break };
            let sight = watched.link.look(now);
            if sight.is_ready {
                farm.ready(unit);
                watched.histograms = self.monitor.declare(watched.link.histograms());
            }
            farm.progressed(now, unit, sight.decided);
            farm.granted(unit, sight.granted);
            watched.has_ended |= sight.has_ended;
            if sight.has_ended && !farm.is_closed() {
                self.last_signal = sight.signal;
            }
            work += usize::from(sight.is_ready || sight.has_ended);
            // Its decisions before its end count, and are taken first.
            let (taken, are_all) = self.take_decisions(now, index, builder);
            work += taken;
            if let Decider::Units(farm, links) = &mut self.decider
                && are_all
                && std::mem::take(&mut links[index].has_ended)
            {
                farm.ended(now, unit);
            }
        }
        while self.has_room()
            && let Decider::Units(farm, _) = &mut self.decider
            && let Some(slot) = farm.next_failed()
        {
            self.settle(slot, &builder.event(slot), None);
            work += 1;
        }
        work
    }

    /// Takes decisions of a filter unit. Returns their number, and whether there are no more.
    fn take_decisions(&mut self, now: Instant, index: usize, builder: &impl EventMachine) -> (usize, bool) {
        let mut work = 0;
        while self.has_room() {
            let Decider::Units(farm, links) = &mut self.decider else { break };
            match links[index].link.next_decision(&mut self.said) {
                None => return (work, true),
                Some(Err(NotBelieved)) => {
                    farm.disbelieve(index as u16);
                    return (work, true);
                }
                Some(Ok(UnitDecision { slot, decision })) => {
                    work += 1;
                    let attempt = farm.attempt_of(slot).unwrap_or(Attempt(0));
                    let counts = farm.decided(index as u16, slot, attempt);
                    if counts && decision.is_some() {
                        self.monitor.fill(&builder.event(slot), &links[index].histograms, &self.said.fills);
                    }
                    if counts {
                        self.times.record(now.since(self.given[slot as usize]).as_nanos() as u64);
                        self.settle(slot, &builder.event(slot), decision);
                    }
                }
            }
        }
        (work, false)
    }

    fn give_out(&mut self, now: Instant, builder: &impl EventMachine) -> usize {
        let Decider::Units(farm, links) = &mut self.decider else { return 0 };
        let mut work = 0;
        while let Some(action) = farm.poll(now) {
            let mut is_work = true;
            match action {
                FarmAction::Start { unit } => links[usize::from(unit)].link.start(),
                FarmAction::Kill { unit } => links[usize::from(unit)].link.kill(),
                FarmAction::Dismiss { unit } => links[usize::from(unit)].link.dismiss(),
                FarmAction::Offer { unit, slot } => {
                    let watched = &mut links[usize::from(unit)];
                    // A unit that has ended gets no further events while its last decisions wait.
                    let offered =
                        if watched.has_ended { Offered::Full } else { watched.link.offer(slot, &builder.event(slot)) };
                    match offered {
                        Offered::Taken => self.given[slot as usize] = now,
                        // Decisions show that there is room again. Until then nothing keeps the thread from sleeping.
                        Offered::Full => {
                            farm.not_taken(unit);
                            is_work = false;
                        }
                        Offered::TooLarge => farm.too_large(unit),
                    }
                }
            }
            work += usize::from(is_work);
        }
        if work > 0 {
            links.iter_mut().for_each(|unit| unit.link.flush());
        }
        work
    }

    /// Handles the decision on an event, or its failure.
    fn settle(&mut self, slot: u32, event: &EventView<'_>, decision: Option<Decision>) {
        let (verdict, streams) = match decision {
            Some(Decision { accept: false, .. }) => {
                self.monitor.decided(event, Verdict::Rejected, TriggerBits::default(), StreamSet::EMPTY);
                return self.to_let_go.push((slot, Verdict::Rejected));
            }
            Some(Decision { triggers, .. }) => (Verdict::Accepted, self.streams.select(triggers, event.trigger_type())),
            None => {
                self.said.clear();
                (Verdict::Quarantined, self.streams.set_aside())
            }
        };
        let is_set_aside = verdict == Verdict::Quarantined;
        let triggers = decision.map(|decision| decision.triggers).unwrap_or_default();
        self.monitor.decided(event, verdict, triggers, streams);
        let cause = is_set_aside.then_some(Cause::FilterFailed);
        let said = FilterResult { verdict, cause, triggers, streams };
        let own = &self.said.result;
        let write = |results: &mut Staging| results.write_with(HEAD_BYTES + own.len(), |to| said.encode(own, to));
        let result = self.results.as_mut().filter(|_| !streams.is_empty()).and_then(write);
        self.choose(slot, event.key, Decided { streams, result, is_set_aside });
    }

    /// Handles the selection of the streams.
    fn choose(&mut self, slot: u32, key: EventKey, decided: Decided) {
        if decided.streams.is_empty() {
            return self.to_let_go.push((slot, Verdict::Unselected));
        }
        if self.streams.is_ordered(decided.streams) {
            self.ordering.hold(key, slot);
        } else {
            self.to_write.push_back(slot);
        }
        self.decided[slot as usize] = decided;
    }

    /// Takes the events that are not written, with their verdicts.
    pub fn let_go(&mut self) -> impl ExactSizeIterator<Item = (u32, Verdict)> {
        self.to_let_go.drain(..)
    }

    /// Returns the next event to be written.
    pub fn next_to_write(&self) -> Option<u32> {
        self.to_write.front().copied()
    }

    /// Records that storage has taken the next event to be written. Returns its verdict.
    pub fn taken(&mut self) -> Verdict {
        let slot = self.to_write.pop_front();
        let is_set_aside = slot.is_some_and(|slot| self.decided[slot as usize].is_set_aside);
        if is_set_aside { Verdict::Quarantined } else { Verdict::Accepted }
    }

    /// Returns the streams that an event goes to.
    pub fn streams_of(&self, slot: u32) -> StreamSet {
        self.decided[slot as usize].streams
    }

    /// Returns an event with its decision.
    pub(super) fn decided<'a>(&'a self, slot: u32, event: EventView<'a>) -> DecidedEvent<'a> {
        let Decided { result, is_set_aside, .. } = &self.decided[slot as usize];
        DecidedEvent { event, result: result.as_ref(), is_set_aside: *is_set_aside }
    }

    /// Ends the event in a slot: it is written in all its streams, or could not be.
    pub fn ended(&mut self, slot: u32, is_written: bool) {
        let Decided { streams, .. } = std::mem::take(&mut self.decided[slot as usize]);
        if is_written {
            self.streams.written(streams);
        } else {
            self.streams.failed(streams);
        }
    }

    /// Sets the store of the counts of each lumisection.
    #[must_use]
    pub fn with_record_store(mut self, store: Box<dyn RecordStore>) -> Self {
        self.monitor.set_record_store(store);
        self
    }

    /// Returns the decision times; `None` without a filter.
    pub(super) const fn times(&self) -> Option<&Recorder> {
        if let Decider::AcceptAll = self.decider { None } else { Some(&self.times) }
    }

    /// Returns the streams, for the selection of events that were decided elsewhere.
    pub(super) const fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Returns the account of each stream, in order.
    pub fn accounts(&self) -> impl Iterator<Item = StreamAccount> {
        self.streams.accounts().map(|(index, account)| StreamAccount { in_flight: self.in_flight(index), ..account })
    }

    /// Returns whether no event waits for a decision or for its turn.
    pub fn is_idle(&self) -> bool {
        let is_decided = match &self.decider {
            Decider::AcceptAll | Decider::Here(_) => true,
            Decider::Units(farm, _) => farm.in_work() == 0,
        };
        is_decided && self.ordering.is_empty() && self.to_write.is_empty() && self.to_let_go.is_empty()
    }

    /// Returns the account of the pool of filter output.
    pub(super) fn pool(&mut self) -> Option<PoolAccount> {
        let pool = self.results.as_mut()?.pool_mut();
        pool.collect();
        Some(pool.account())
    }

    /// Returns its overall counters.
    pub(super) fn numbers(&self) -> [(Counter, u64); 10] {
        let (units, busy) = match &self.decider {
            Decider::AcceptAll => (0, 0),
            Decider::Here(..) => (1, self.busy_here.as_nanos() as u64),
            Decider::Units(farm, links) => {
                (farm.living() as u64, links.iter().map(|unit| unit.busy.nanoseconds()).sum())
            }
        };
        let (farm, copied) = match &self.decider {
            Decider::AcceptAll => (None, 0),
            Decider::Here(filter) => (None, filter.copied_bytes()),
            Decider::Units(farm, links) => (Some(&**farm), links.iter().map(|unit| unit.link.copied_bytes()).sum()),
        };
        let counts = farm.map(|farm| *farm.counts()).unwrap_or_default();
        [
            (Counter::FilterFailures, counts.failed + self.failed_here),
            (Counter::FilterReturned, counts.returned),
            (Counter::FilterStaleDecisions, counts.stale),
            (Counter::FilterRestarts, farm.map_or(0, FilterFarm::restarted)),
            (Counter::FilterUnitsGivenUp, farm.map_or(0, |farm| farm.given_up() as u64)),
            (Counter::FilterBytesCopied, copied),
            (Counter::FilterUnits, units),
            (Counter::FilterBusyTime, busy),
            (Counter::EventsOutOfOrder, self.ordering.late()),
            (Counter::FilterLastSignal, u64::from(self.last_signal)),
        ]
    }

    /// Returns the numbers for the event manager. Those of a stream have its index in place of a source.
    pub(super) fn report(&self) -> impl Iterator<Item = ReportEntry> {
        let own = |(counter, value): (Counter, u64)| ReportEntry { source: None, what: counter as u16, value };
        let numbers = self.numbers();
        let streams = (0..).map(StreamIndex).zip(self.accounts()).flat_map(|(index, account)| {
            let numbers = [
                (Counter::StreamSelected, account.selected),
                (Counter::StreamPrescaledAway, account.prescaled_away),
                (Counter::StreamWritten, account.written),
                (Counter::StreamFailed, account.failed),
                (Counter::StreamInFlight, account.in_flight),
            ];
            let stream = Some(SourceId(u32::from(index.0)));
            numbers.map(|(counter, value)| ReportEntry { source: stream, what: counter as u16, value })
        });
        numbers.into_iter().map(own).chain(streams)
    }

    /// Returns the number of events that were selected for a stream and are not in its files yet, counted from the
    /// table.
    fn in_flight(&self, stream: StreamIndex) -> u64 {
        self.decided.iter().filter(|decided| decided.streams.contains(stream)).count() as u64
    }

    /// Returns when the next turn is due even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let Decider::Units(farm, links) = &self.decider else { return None };
        let links = links.iter().filter_map(|unit| unit.link.next_deadline());
        // Once closed it only waits for descriptors.
        let close = self.close_at.filter(|_| !farm.is_closed());
        farm.next_deadline().into_iter().chain(links).chain(close).min()
    }

    /// Returns false if there is work to do immediately.
    pub(super) fn prepare_wait(&mut self) -> bool {
        let Decider::Units(_, links) = &mut self.decider else { return true };
        // Every link is asked, without a short cut.
        links.iter_mut().filter_map(|unit| (!unit.link.prepare_wait()).then_some(())).count() == 0
    }

    /// Appends the descriptors that become readable when something happens.
    pub(super) fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        if let Decider::Units(_, links) = &self.decider {
            links.iter().for_each(|unit| unit.link.descriptors(into));
        }
    }
}

/// An event and its decision.
#[derive(Copy, Clone)]
pub struct DecidedEvent<'a> {
    event: EventView<'a>,
    /// The filter's output, as it is stored (`wire::filter_result`); `None` without a filter.
    result: Option<&'a Slice>,
    /// Whether no decision could be made.
    is_set_aside: bool,
}

impl<'a> DecidedEvent<'a> {
    /// Returns the event as it was built.
    pub const fn event(&self) -> &EventView<'a> {
        &self.event
    }
}

impl Recorded for DecidedEvent<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let head = self.event.head(incarnation);
        let more = if self.is_set_aside { EventFlags::QUARANTINED } else { EventFlags::default() };
        EventHead { flags: head.flags.with(more), ..head }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        Recorded::missing(&self.event)
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        let raw_id = self.event.key.number();
        let result = self.result.map(|result| FragmentEntry::bare(SourceId::FILTER, raw_id, result.len() as u32));
        self.event.entries().chain(result)
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        let whole = self.event.payloads(encoder, staging, pieces);
        if let Some(result) = self.result {
            encoder.payload(result);
            pieces.push(result.clone());
        }
        whole
    }
}

/// The counts of a builder unit, and their store. Without a store nothing is counted.
struct Monitor {
    monitoring: Monitoring,
    /// Indices of the histograms of the filter of this thread.
    here: Vec<Option<u16>>,
    store: Option<Box<dyn RecordStore>>,
    run: RunNumber,
    /// A closed lumisection for which the store had no room.
    refused: Option<LumisectionRecord>,
}

impl Monitor {
    /// Creates a monitor for this many streams.
    fn new(streams: usize) -> Self {
        let (here, store, refused) = (Vec::new(), None, None);
        Self { monitoring: Monitoring::new(streams), here, store, run: RunNumber::default(), refused }
    }

    fn set_record_store(&mut self, store: Box<dyn RecordStore>) {
        self.store = Some(store);
    }

    /// Declares a filter unit's histograms. Returns their indices.
    fn declare(&mut self, shapes: &[HistogramShape]) -> Vec<Option<u16>> {
        self.monitoring.declare(shapes)
    }

    /// Declares the histograms of the filter of this thread.
    fn declare_here(&mut self, shapes: &[HistogramShape]) {
        self.here = self.monitoring.declare(shapes);
    }

    /// Begins a run.
    fn begin(&mut self, run: RunNumber) {
        self.monitoring.restart();
        (self.run, self.refused) = (run, None);
    }

    /// Counts the decision on an event, or its failure.
    fn decided(&mut self, event: &EventView<'_>, verdict: Verdict, triggers: TriggerBits, streams: StreamSet) {
        if self.store.is_some() {
            self.monitoring.decided(&Counted { lumisection: event.lumisection, verdict, triggers, streams });
        }
    }

    /// Adds the histogram entries of a decision that counts, of a filter unit whose histograms have these indices.
    fn fill(&mut self, event: &EventView<'_>, histograms: &[Option<u16>], fills: &Fills) {
        if self.store.is_some() {
            self.monitoring.fill(event.lumisection, histograms, fills);
        }
    }

    /// Adds the histogram entries of the filter of this thread.
    fn fill_here(&mut self, event: &EventView<'_>, fills: &Fills) {
        if self.store.is_some() {
            self.monitoring.fill(event.lumisection, &self.here, fills);
        }
    }

    /// Closes a lumisection: no more events of it follow.
    fn close(&mut self, lumisection: u32) {
        if self.store.is_some() {
            self.monitoring.close(lumisection);
            self.hand_over();
        }
    }

    /// Ends the run. Lumisections that are still open belong to a run that was ended by force.
    fn end(&mut self) {
        self.monitoring.close_all();
        self.hand_over();
    }

    /// Hands over closed lumisections, as far as there is room.
    fn hand_over(&mut self) {
        let Some(store) = &mut self.store else { return };
        while let Some(record) = self.refused.take().or_else(|| self.monitoring.next_closed()) {
            if let Err(record) = store.keep(self.run, record) {
                self.refused = Some(record);
                break;
            }
        }
        while let Some(record) = store.give_back() {
            self.monitoring.give_back(record);
        }
    }
}
