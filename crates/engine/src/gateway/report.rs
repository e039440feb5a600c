//! Reports of a running gateway, and the content of users' histograms of an input queue.

use super::GatewayDriveConfig;
use super::queue::Phase;
use crate::pages::NodePage;
use crate::sink::StorageCounts;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::gateway::{FarmAccount, FlowAccount, FlowConfig, GatewayConfig, Masking, Receiver, SourceAccount};
use ropewalk_flow::messages::ReportEntry;
use ropewalk_io::disk::DiskCause;
use ropewalk_io::packet::{QueueInUse, ReceiveCounters, SendCounters};
use ropewalk_terms::{
    Cause, Counter, EventAccount, EventKey, Instant, RunNumber, SourceId, StreamAccount, StreamIndex,
};
use ropewalk_wire::gateway::ThrottleState;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A source that was masked during the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskedSource {
    /// Its place in the configuration.
    pub source: u16,
    /// The events at which it was masked and unmasked, alternating.
    pub turns: Vec<EventKey>,
}

impl MaskedSource {
    /// Returns whether it is masked now.
    pub const fn is_out(&self) -> bool {
        self.turns.len() % 2 == 1
    }
}

/// Report on one flow of a gateway.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Account of its packets.
    pub packets: FlowAccount,
    /// Account of the packets of each source, in the order of the configuration.
    pub by_source: Vec<SourceAccount>,
    /// Its sources that were ever masked during the run.
    pub masked: Vec<MaskedSource>,
    /// Number of changes in `masked`.
    turns: usize,
    /// Account of its events.
    pub events: FarmAccount,
    /// Finished sets that the sending half had not received when it reported.
    pub unclaimed: u64,
    /// Finished sets that the sending half has received, by its own count; 0 if one thread does both.
    pub(super) claimed: u64,
}

impl FlowReport {
    /// Returns whether every finished set has been passed to the sending half, or is on its way there.
    pub fn is_handed_over(&self, packing: u16) -> bool {
        let packets = &self.packets;
        let finished = packets.complete + packets.incomplete + packets.dropped.total();
        self.events.events.assigned + self.unclaimed * u64::from(packing) == finished * u64::from(packing)
    }

    /// Reports which sources were masked, if that has changed since the last report.
    pub(super) fn tell_masks(&mut self, masking: &Masking) {
        if self.turns != masking.said() {
            self.turns = masking.said();
            let masked = masking.turns().map(|(source, turns)| MaskedSource { source, turns: turns.collect() });
            self.masked = masked.collect();
        }
    }

    /// Returns whether a source, by its place in the configuration, is masked now.
    fn is_out(&self, source: u16) -> bool {
        self.masked.iter().any(|one| one.source == source && one.is_out())
    }
}

/// Report of a gateway, or of one of its input queues.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    /// Its flows.
    pub flows: Vec<FlowReport>,
    /// Counters of its inputs: one for each flow, or one for all of them together.
    pub received: Vec<ReceiveCounters>,
    /// Counters of the events and messages sent to nodes.
    pub sent: SendCounters,
    /// Counts of written data; `None` if this node writes no data.
    pub storage: Option<StorageCounts>,
    /// Accepted events that could not be written: the disk was given up.
    pub not_written: u64,
    /// Accepted events in files, in all their streams.
    pub written: u64,
    /// Accepted events that no stream takes.
    pub left_out: u64,
    /// The account of each stream, by its index.
    pub streams: Vec<StreamAccount>,
    /// Counters of the filter, if the gateway decides itself.
    pub filter: Vec<(Counter, u64)>,
    /// State of the throttle.
    pub state: ThrottleState,
    /// Time in which triggers could come.
    pub live: Duration,
    /// Time in which they could not.
    pub dead: Duration,
    /// Time for which each level stopped the trigger, and number of stops: the flows, the memory, the queue in front of
    /// it, out of sync, error, run control.
    pub stops: Vec<(Duration, u64)>,
    /// Sets of events in use now, of all flows, and their total number.
    pub sets: (u64, u64),
    /// Maximum of the queue in front of an input, and its capacity.
    pub most_waiting: QueueInUse,
    /// Packets that were copied because too much of their memory was held.
    pub evacuated: u64,
    /// Readers of decisions that were disconnected because they read too slowly.
    pub cut_off: u64,
    /// Nodes of the farm that were connected and fell silent.
    pub nodes_away: u64,
    /// Time of the last report. With two threads, that of the thread that has been silent for longer.
    pub at: Option<Instant>,
    /// Whether it has ended: nothing is in flight, files are closed.
    pub is_over: bool,
}

impl GatewayReport {
    /// Creates the report of a new gateway with these flows.
    pub fn new(flows: &[FlowConfig]) -> Self {
        let report = |flow: &FlowConfig| {
            let by_source = vec![SourceAccount::default(); flow.sources.len()];
            FlowReport { by_source, ..FlowReport::default() }
        };
        let (reports, flows) = (flows.iter().map(report).collect(), flows.len());
        Self {
            flows: reports,
            received: vec![ReceiveCounters::default(); flows],
            stops: Vec::with_capacity(flows + 5),
            streams: Vec::with_capacity(StreamIndex::MOST),
            filter: Vec::with_capacity(16),
            ..Self::default()
        }
    }

    /// Returns the counters of one flow's input; `None` if one input serves all flows.
    pub fn received_apart(&self, flow: usize) -> Option<ReceiveCounters> {
        self.received.get(flow).copied().filter(|_| self.received.len() == self.flows.len())
    }

    /// Returns the counters of the common input of all flows; `None` if each has its own.
    pub fn received_together(&self) -> Option<ReceiveCounters> {
        self.received.first().copied().filter(|_| self.received.len() != self.flows.len())
    }

    /// Returns its overall counters, including the filter.
    pub fn all_numbers(&self) -> impl Iterator<Item = (Counter, u64)> {
        self.numbers().into_iter().chain(self.filter.iter().copied())
    }

    /// Returns its overall counters.
    pub fn numbers(&self) -> [(Counter, u64); 29] {
        let mut events = EventAccount::default();
        self.flows.iter().for_each(|flow| events.merge(&flow.events.events));
        let farm = |count: fn(&FarmAccount) -> u64| -> u64 { self.flows.iter().map(|flow| count(&flow.events)).sum() };
        let storage = self.storage.unwrap_or_default();
        let is_full = storage.refused == Some(DiskCause::Full);
        // After the sets of each flow: the memory, the queue, out of sync, error.
        let (sets, others) = self.stops.split_at(self.flows.len().min(self.stops.len()));
        let stopped = |time: Option<&(Duration, u64)>| time.map_or(0, |(time, _)| time.as_nanos() as u64);
        [
            (Counter::EventsBuilt, events.built),
            (Counter::EventsIncompleteEmitted, events.incomplete_emitted),
            (Counter::EventsAccepted, events.accepted),
            (Counter::EventsRejected, events.rejected),
            (Counter::EventsInFlight, events.in_flight),
            (Counter::EventsWritten, self.written),
            (Counter::BytesWritten, storage.bytes),
            (Counter::SegmentsClosed, storage.segments),
            (Counter::SegmentsDeleted, storage.deleted_segments),
            (Counter::EventsDeleted, storage.deleted_events),
            (Counter::BytesDeleted, storage.deleted_bytes),
            (Counter::EventsGone, storage.gone_events),
            (Counter::FilesRestored, storage.restored_files),
            (Counter::DiskRefusals, storage.refusals),
            (Counter::DiskFull, u64::from(is_full)),
            (Counter::DiskFailing, self.disk_error().map_or(0, |error| error.unsigned_abs().into())),
            (Counter::PoolHeld, self.sets.0),
            (Counter::PoolBlocks, self.sets.1),
            (Counter::BytesCopied, self.sent.bytes_copied),
            (Counter::DatagramsLost, self.received.iter().map(|input| input.lost.total()).sum()),
            (Counter::ThrottleTime, self.dead.as_nanos() as u64),
            (Counter::ThrottleSetsTime, stopped(sets.iter().max())),
            (Counter::ThrottleMemoryTime, stopped(others.first())),
            (Counter::ThrottleQueueTime, stopped(others.get(1))),
            (Counter::ThrottleErrorTime, stopped(others.get(3))),
            (Counter::SetsIncomplete, self.flows.iter().map(|flow| flow.packets.incomplete).sum()),
            (Counter::DecidedByDefault, farm(|account| account.by_default)),
            (Counter::PushedAgain, farm(|account| account.pushed_again)),
            (Counter::FarmNodesAway, self.nodes_away),
        ]
    }

    /// Returns the error number of a failing disk. A full disk does not count as failing.
    pub fn disk_error(&self) -> Option<i32> {
        let cause = self.storage?.refused.filter(|&cause| cause != DiskCause::Full)?;
        Some(cause.number())
    }

    /// Copies the numbers on nodes, decisions and files from another report.
    pub(super) fn take_sent(&mut self, other: &Self) {
        for (own, other) in self.flows.iter_mut().zip(&other.flows) {
            (own.events, own.claimed) = (other.events, other.claimed);
        }
        (self.sent, self.storage) = (other.sent, other.storage);
        (self.written, self.not_written, self.left_out) = (other.written, other.not_written, other.left_out);
        (self.cut_off, self.nodes_away, self.at) = (other.cut_off, other.nodes_away, other.at);
        self.streams.clone_from(&other.streams);
        self.filter.clone_from(&other.filter);
    }
}

/// Writes a report to a gateway's page.
#[derive(Debug)]
pub(super) struct Telling {
    run: RunNumber,
    /// The sources of all flows, in the order of the report.
    sources: Vec<SourceId>,
}

impl Telling {
    /// Creates it for a gateway with this configuration.
    pub(super) fn new(config: &GatewayDriveConfig) -> Self {
        let sources =
            config.machine.flows.iter().flat_map(|flow| flow.sources.iter().map(|source| source.id)).collect();
        Self { run: config.run, sources }
    }

    /// Writes the phase of the run.
    pub(super) fn stands(&self, phase: Phase, page: &NodePage) {
        let phase = match phase {
            Phase::Running => RunPhase::Running,
            Phase::Draining(_) | Phase::Closing(_) => RunPhase::Draining,
            Phase::Over => RunPhase::Ended,
        };
        page.stands(self.run, phase);
    }

    /// Writes all numbers of the report.
    pub(super) fn tell(&self, report: &GatewayReport, page: &mut NodePage) {
        let mut count = |source, what, value| page.count(&ReportEntry { source, what, value });
        report.all_numbers().for_each(|(counter, value)| count(None, counter as u16, value));
        for &cause in ropewalk_terms::CAUSES {
            let dropped = report.flows.iter().map(|flow| flow.packets.packets.dropped.get(cause)).sum();
            count(None, ReportEntry::cause(cause), dropped);
            let lost = report.received.iter().map(|input| input.lost.get(cause)).sum();
            count(None, ReportEntry::lost(cause), lost);
        }
        let mut sources = self.sources.iter();
        for (flow, place) in
            report.flows.iter().flat_map(|flow| (0..flow.by_source.len()).map(move |place| (flow, place)))
        {
            let (Some(&source), account) = (sources.next(), &flow.by_source[place]) else { return };
            let is_out = flow.is_out(place as u16);
            count(Some(source), Counter::FragmentsReceived as u16, account.packets);
            count(Some(source), Counter::PayloadBytesReceived as u16, account.bytes);
            count(Some(source), ReportEntry::missing(Cause::TimedOut), account.missing);
            count(Some(source), ReportEntry::cause(Cause::Masked), account.masked);
            count(Some(source), Counter::SourceMasked as u16, is_out.into());
        }
    }
}

/// A value that one thread updates and others read.
#[derive(Debug, Default)]
pub struct Notice<T>(Arc<Mutex<T>>);

impl<T> Clone for Notice<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Notice<GatewayReport> {
    /// Creates the notice of a new gateway.
    pub(super) fn of_gateway(config: &GatewayDriveConfig) -> Self {
        Self(Arc::new(Mutex::new(GatewayReport::new(&config.machine.flows))))
    }
}

impl<T: Clone> Notice<T> {
    /// Returns the latest value.
    pub fn read(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls `look` with a reference to the content.
    pub(super) fn look(&self, look: impl FnOnce(&T)) {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Updates the value in place. The lock is held for a copy of some numbers, twenty times a second.
    pub(super) fn renew(&self, renew: impl FnOnce(&mut T)) {
        renew(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The histograms of each source, by their place in the configuration: the non-empty cells with their content.
pub type CellsBySource = BTreeMap<SourceId, BTreeMap<u8, BTreeMap<u16, u64>>>;

/// The histogram of one source.
#[derive(Clone, Debug)]
struct ToldHistogram {
    source: SourceId,
    index: u8,
    counts: Box<[u64]>,
}

/// All histograms of an input queue as of their last report. They are separate from the report, which is read more
/// often and is much smaller.
#[derive(Clone, Debug, Default)]
pub struct GatewayHistograms(Vec<ToldHistogram>);

impl GatewayHistograms {
    /// Creates the histograms of a state machine, with room for all their future content.
    pub(super) fn of(config: &GatewayConfig, machine: &Receiver) -> Self {
        let told = (0..).zip(&config.flows).flat_map(|(flow, known)| {
            machine.histograms(flow).map(move |(source, index, counts)| ToldHistogram {
                source: known.sources[usize::from(source)].id,
                index,
                counts: counts.into(),
            })
        });
        Self(told.collect())
    }

    /// Updates the histograms, if there are any.
    pub(super) fn renew(told: &Notice<Self>, flows: u8, machine: &Receiver) {
        let now = || (0..flows).flat_map(|flow| machine.histograms(flow));
        if now().next().is_some() {
            told.renew(|told| {
                told.0.iter_mut().zip(now()).for_each(|(told, (.., now))| told.counts.copy_from_slice(now))
            });
        }
    }

    /// Adds them to those of other queues.
    pub fn add_to(&self, all: &mut CellsBySource) {
        for told in &self.0 {
            let cells = all.entry(told.source).or_default().entry(told.index).or_default();
            for (cell, &count) in (0..).zip(&told.counts).filter(|(_, count)| **count > 0) {
                *cells.entry(cell).or_default() += count;
            }
        }
    }
}
