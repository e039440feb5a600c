//! The output of a builder unit or a gateway: events are filtered, selected by streams and written, and the machine is
//! informed of their progress. An [`EventSink`] writes run files, or files for filter units. The events of a gateway
//! have already been filtered by the farm.
//!
//! ```text
//!  Builder --next event--> FilterStage --to write--> EventSink --progress--> Builder: acknowledged, let go
//!                              \--rejected, taken by no stream---------^
//! ```
//! An event waits in one of three places: in the machine until it can be decided on, in [`FilterStage`] until the sink
//! has room, or in a batch of the sink until it is on disk. In addition, filter processes and ordered streams hold
//! events of their own.

use super::BusyTimer;
use super::event_machine::EventMachine;
use super::filter::FilterStage;
use super::record::Filed;
use super::sink::{EventSink, GatewayEvent, LumisectionTotal, Progress, SinkEvent, StorageCounts};
use super::storage::OutputRoom;
use crate::tap::Tap;
use ropewalk_flow::filter::Streams;
use ropewalk_flow::gateway::{Farm, LocalCounts};
use ropewalk_flow::messages::{LumisectionEnd, ReportEntry};
use ropewalk_io::disk::DiskCause;
use ropewalk_terms::{
    AcknowledgementLevel, Cause, Counter, Incarnation, Instant, Measure, NodeId, PoolAccount, Recorder, RunNumber,
    SourceId, StreamAccount, StreamIndex, StreamSet, TriggerBits,
};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The output of built events; see the picture above.
pub struct EventOutput {
    filter: FilterStage,
    /// `None` if events are only built and checked.
    sink: Option<Box<dyn EventSink>>,
    /// Scratch list, empty between two turns.
    progress: Vec<(u32, Progress)>,
    /// Maximum wait for decisions while the run drains.
    filter_patience: Duration,
    /// Time in which the disk had something to write.
    disk_busy: BusyTimer,
    /// Time in which events waited for room in the sink.
    disk_wait: BusyTimer,
    sizes: Recorder,
    latencies: Recorder,
    /// The monitoring tap, and the unit in whose name events are shown.
    tap: Option<(NodeId, Tap)>,
    /// Free space of the output.
    room: OutputRoom,
    /// Events that a farm has accepted.
    accepted: Accepted,
}

/// Events that a farm has accepted. They are released as soon as the sink has copied them.
#[derive(Default)]
struct Accepted {
    counts: LocalCounts,
    /// The streams of the next event, if the sink had no room for it when they were selected.
    selected: Option<StreamSet>,
    /// Number of events that the sink has taken and not reported yet, by stream.
    in_flight: Vec<u64>,
}

impl Accepted {
    /// Handles events that the sink has reported. Each has the set of its streams instead of a slot.
    fn ended(&mut self, streams: &mut Streams, progress: impl Iterator<Item = (u32, Progress)>) {
        for (of, progress) in progress {
            let of = StreamSet::from_bits(of);
            of.iter().for_each(|stream| self.in_flight[usize::from(stream.0)] -= 1);
            if progress == Progress::Failed {
                self.counts.failed += 1;
                streams.failed(of);
            } else {
                self.counts.written += 1;
                streams.written(of);
            }
        }
    }

    /// Gives an event to the sink. Returns whether the gateway may release it: the sink has copied it, or will never
    /// have it.
    fn add(&mut self, now: Instant, streams: &mut Streams, event: GatewayEvent<'_>, sink: &mut dyn EventSink) -> bool {
        let word = event.word();
        // Select once per event: each selection advances the prescale counters.
        let select = || streams.select(TriggerBits(word.into()), word as u16);
        let of = self.selected.take().unwrap_or_else(select);
        if of.is_empty() {
            self.counts.left_out += 1;
            return true;
        }
        match sink.add_event(now, of.to_bits(), &SinkEvent::Gathered(event), of) {
            Filed::Taken => of.iter().for_each(|stream| self.in_flight[usize::from(stream.0)] += 1),
            Filed::NoRoom => {
                self.selected = Some(of);
                return false;
            }
            Filed::Refused(_) => {
                self.counts.failed += 1;
                streams.failed(of);
            }
        }
        true
    }

    /// Returns the number of events on their way to the files of a stream.
    fn in_flight(&self, stream: StreamIndex) -> u64 {
        let waits = self.selected.is_some_and(|streams| streams.contains(stream));
        self.in_flight.get(usize::from(stream.0)).copied().unwrap_or_default() + u64::from(waits)
    }
}

impl EventOutput {
    /// Creates an output for a machine with this many slots. All events are accepted, and written if there is a sink.
    pub fn new(sink: Option<Box<dyn EventSink>>, slots: u32) -> Self {
        Self {
            filter: FilterStage::none(Streams::everything(), slots),
            sink,
            progress: Vec::with_capacity(slots.max(1024) as usize),
            filter_patience: Duration::MAX,
            disk_busy: BusyTimer::default(),
            disk_wait: BusyTimer::default(),
            sizes: Recorder::new(Measure::EventSize),
            latencies: Recorder::new(Measure::BuildLatency),
            tap: None,
            room: OutputRoom::default(),
            accepted: Accepted::default(),
        }
    }

    /// Creates an output for events that a farm has accepted, which these streams select.
    pub fn of_farm(sink: Option<Box<dyn EventSink>>, streams: Streams) -> Self {
        let accepted = Accepted { in_flight: vec![0; streams.names().count()], ..Accepted::default() };
        Self { filter: FilterStage::none(streams, 0), accepted, ..Self::new(sink, 0) }
    }

    /// Adds a filter stage. While the run drains, decisions are awaited for up to `filter_patience`.
    #[must_use]
    pub fn with_filter(self, filter: FilterStage, filter_patience: Duration) -> Self {
        Self { filter, filter_patience, ..self }
    }

    /// Adds a tap that passes some of this unit's events to monitoring.
    #[must_use]
    pub fn with_tap(self, unit: NodeId, tap: Tap) -> Self {
        Self { tap: Some((unit, tap)), ..self }
    }

    /// Adds the free space of the output to the reports.
    #[must_use]
    pub fn with_room(self, room: OutputRoom) -> Self {
        Self { room, ..self }
    }

    /// Returns the filter stage.
    pub const fn filter(&self) -> &FilterStage {
        &self.filter
    }

    /// Sets the prescale of a stream: it keeps one of this many of its events.
    pub fn set_prescale(&mut self, stream: u16, prescale: u64) {
        self.filter.set_prescale(stream, prescale);
    }

    /// Begins a run.
    pub fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation) {
        self.filter.begin(run);
        if let Some(sink) = &mut self.sink {
            sink.begin(now, run, incarnation);
        }
    }

    /// Drains the run. Sets time limits for a disk that rejects all writes, and for a filter that makes no decision.
    pub fn drain(&mut self, now: Instant) {
        self.filter.drain(now, self.filter_patience);
        if let Some(sink) = &mut self.sink {
            sink.drain(now);
        }
    }

    /// Takes up to `at_most` events of the machine, advances earlier ones, and informs the machine of their progress.
    /// Returns the amount of work done.
    pub fn turn(&mut self, now: Instant, machine: &mut impl EventMachine, at_most: usize) -> usize {
        let Self { filter, tap, sizes, latencies, .. } = self;
        let work = filter.turn(now, machine, at_most, |machine, slot| {
            if let Some((size, age)) = machine.size_and_age(now, slot) {
                sizes.record(size);
                latencies.record(age.as_nanos() as u64);
            }
            if let Some((unit, tap)) = tap {
                tap.offer(*unit, &machine.event(slot));
            }
        });
        machine.discard(now, filter.let_go());
        self.write(now, machine);
        let work = work + self.acknowledge(now, machine);
        self.disk_busy.look(now, self.sink.as_ref().is_some_and(|sink| sink.is_writing()));
        self.disk_wait.look(now, self.filter.next_to_write().is_some());
        work
    }

    /// Gives up to `at_most` events that the farm has accepted to the sink. Returns the amount of work done. `sources`
    /// are the source ids of each flow. Without a sink the events are counted and released.
    pub(super) fn store(&mut self, now: Instant, farm: &mut Farm, sources: &[Vec<SourceId>], at_most: usize) -> usize {
        let Self { sink, filter, progress, accepted, .. } = self;
        let Some(sink) = sink else {
            while farm.next_stored().is_some() {
                farm.stored();
            }
            return 0;
        };
        let mut work = sink.poll(now, progress);
        accepted.ended(filter.streams_mut(), progress.drain(..));
        for _ in 0..at_most {
            if farm.next_stored().is_none() {
                break;
            }
            let Some(event) = farm.stored_view() else { break };
            let left_out = accepted.counts.left_out;
            if !accepted.add(now, filter.streams_mut(), GatewayEvent::new(event, sources), sink.as_mut()) {
                break;
            }
            if accepted.counts.left_out > left_out {
                farm.unselected();
            }
            farm.stored();
            work += 1;
        }
        sink.flush(now);
        work
    }

    /// Returns the counts of the events that a farm has accepted.
    pub(super) const fn accepted(&self) -> LocalCounts {
        self.accepted.counts
    }

    /// Returns the account of each stream, in order.
    pub fn stream_accounts(&self) -> impl Iterator<Item = StreamAccount> {
        let accounts = (0..).map(StreamIndex).zip(self.filter.accounts());
        accounts.map(|(stream, account)| StreamAccount {
            in_flight: account.in_flight + self.accepted.in_flight(stream),
            ..account
        })
    }

    /// Gives events to the sink, as long as it has room. Without a sink they end here.
    fn write(&mut self, now: Instant, machine: &mut impl EventMachine) {
        let Self { sink, filter, progress, .. } = self;
        while let Some(slot) = filter.next_to_write() {
            let Some(sink) = sink else {
                machine.decided(now, slot, filter.taken());
                progress.push((slot, Progress::Reached(AcknowledgementLevel::Written)));
                continue;
            };
            let event = SinkEvent::Built(filter.decided(slot, machine.event(slot)));
            match sink.add_event(now, slot, &event, filter.streams_of(slot)) {
                Filed::Taken => {
                    machine.decided(now, slot, filter.taken());
                    machine.all_reached(now, [slot], AcknowledgementLevel::Handed);
                }
                Filed::NoRoom => break,
                Filed::Refused(cause) => {
                    filter.taken();
                    filter.ended(slot, false);
                    machine.failed(now, slot, cause);
                }
            }
        }
    }

    /// Informs the machine of the progress of its events.
    fn acknowledge(&mut self, now: Instant, machine: &mut impl EventMachine) -> usize {
        let Self { sink, filter, progress, .. } = self;
        let work = match sink {
            Some(sink) => {
                sink.flush(now);
                sink.poll(now, progress)
            }
            None => progress.len(),
        };
        for &(slot, progress) in progress.iter() {
            filter.ended(slot, matches!(progress, Progress::Reached(_)));
        }
        for alike in progress.chunk_by(|(_, one), (_, other)| one == other) {
            let slots = alike.iter().map(|&(slot, _)| slot);
            match alike[0].1 {
                Progress::Reached(level) => machine.all_reached(now, slots, level),
                Progress::Failed => slots.for_each(|slot| machine.failed(now, slot, Cause::WriteFailed)),
            }
        }
        progress.clear();
        work
    }

    /// Closes a lumisection: all its events have ended, here and elsewhere, and its selected events are written.
    pub fn end_lumisection(&mut self, end: &LumisectionEnd) {
        self.filter.close_lumisection(end.number);
        if let Some(sink) = &mut self.sink {
            sink.end_lumisection(end.number, LumisectionTotal::of(end));
        }
    }

    /// Returns the counts of the sink's output; `None` without a sink.
    pub(super) fn storage(&self) -> Option<StorageCounts> {
        self.sink.as_ref().map(|sink| sink.counts())
    }

    /// Returns whether every event so far has been passed to the sink.
    pub fn is_idle(&self) -> bool {
        self.filter.is_idle()
    }

    /// Closes the files at the end. Returns whether they are closed.
    pub fn close(&mut self, now: Instant) -> bool {
        self.sink.as_mut().is_none_or(|sink| {
            sink.finish(now);
            sink.is_closed()
        })
    }

    /// Returns whether the sink has given up the disk.
    pub(super) fn has_given_up(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.has_given_up())
    }

    /// Ends the run.
    pub fn end(&mut self) {
        self.filter.end();
    }

    /// Returns the accounts of its pools.
    pub(super) fn pools(&mut self) -> impl Iterator<Item = PoolAccount> {
        self.sink.as_mut().map(|sink| sink.pool()).into_iter().chain(self.filter.pool())
    }

    /// Returns the measurements of its events and batches.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Recorder> {
        let of_events = [&self.sizes, &self.latencies].into_iter().chain(self.filter.times());
        of_events.chain(self.sink.as_ref().and_then(|sink| sink.times()))
    }

    /// Returns the numbers for the event manager.
    pub fn report(&self) -> impl Iterator<Item = ReportEntry> {
        let sink = self.sink.as_ref();
        let counts = sink.map(|sink| sink.counts()).unwrap_or_default();
        let own = [
            (Counter::BytesWritten, counts.bytes),
            (Counter::BytesCopied, sink.map_or(0, |sink| sink.copied_bytes())),
            (Counter::SegmentsClosed, counts.segments),
            (Counter::SegmentsDeleted, counts.deleted_segments),
            (Counter::EventsDeleted, counts.deleted_events),
            (Counter::BytesDeleted, counts.deleted_bytes),
            (Counter::FilesRestored, counts.restored_files),
            (Counter::EventsGone, counts.gone_events),
            (Counter::DiskRefusals, counts.refusals),
            (Counter::DiskFull, u64::from(counts.refused == Some(DiskCause::Full))),
            (Counter::DiskFailing, counts.refused.map_or(0, failing)),
            (Counter::DiskBusyTime, self.disk_busy.nanoseconds()),
            (Counter::DiskWaitTime, self.disk_wait.nanoseconds()),
        ];
        let room = self.room.bytes().map(|free| (Counter::OutputRoom, free));
        let own = own.into_iter().chain(room).map(|(counter, value)| ReportEntry {
            source: None,
            what: counter as u16,
            value,
        });
        own.chain(self.filter.report())
    }

    /// Returns when the next turn is due even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.sink.as_ref().and_then(|sink| sink.next_deadline()).into_iter().chain(self.filter.next_deadline()).min()
    }

    /// Returns false if there is work to do immediately.
    pub(super) fn prepare_wait(&mut self) -> bool {
        let may_sleep = self.sink.as_mut().is_none_or(|sink| sink.prepare_wait());
        self.filter.prepare_wait() && may_sleep
    }

    /// Appends the descriptors that become readable when something happens.
    pub(super) fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.sink.as_ref().and_then(|sink| sink.wait_descriptor()));
        self.filter.descriptors(into);
    }
}

/// Returns the error number of a failing disk; 0 for a full one, which does not count as failing.
fn failing(cause: DiskCause) -> u64 {
    if cause == DiskCause::Full { 0 } else { cause.number().unsigned_abs().into() }
}
