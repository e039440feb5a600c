//! What a gateway reports while it runs, and what users' histograms of an input queue hold.

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

/// A source that was masked in mid-run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskedSource {
    /// Which one, by its place in the configuration.
    pub source: u16,
    /// The events at which it was masked and took part again, in turns.
    pub turns: Vec<EventKey>,
}

impl MaskedSource {
    /// Whether it takes no part now.
    pub const fn is_out(&self) -> bool {
        self.turns.len() % 2 == 1
    }
}

/// One flow of a gateway.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// What became of its packets.
    pub packets: FlowAccount,
    /// And of those of each source, in the order of the configuration.
    pub by_source: Vec<SourceAccount>,
    /// Its sources that were ever masked in mid-run.
    pub masked: Vec<MaskedSource>,
    /// How many turns these had.
    turns: usize,
    /// What became of its events.
    pub events: FarmAccount,
    /// Finished sets that the sending half had not got when it reported.
    pub unclaimed: u64,
    /// The finished sets that the sending half has got, by its own count; 0 if one thread does both.
    pub(super) claimed: u64,
}

impl FlowReport {
    /// Whether every set that is finished has come to the half that sends, or is on its way there.
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

    /// Whether a source takes no part now, by its place in the configuration.
    fn is_out(&self, source: u16) -> bool {
        self.masked.iter().any(|one| one.source == source && one.is_out())
    }
}

/// A gateway, or one input queue of it.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    /// Its flows.
    pub flows: Vec<FlowReport>,
    /// What its inputs counted: one for each flow, or one for all of them together.
    pub received: Vec<ReceiveCounters>,
    /// What was sent to nodes: events and messages.
    pub sent: SendCounters,
    /// What was written; `None` if nothing is to be written.
    pub storage: Option<StorageCounts>,
    /// Accepted events that could not be written: the disk was given up.
    pub not_written: u64,
    /// Accepted events in files, in all their streams.
    pub written: u64,
    /// Accepted events that no stream takes.
    pub left_out: u64,
    /// The account of each stream, by its index.
    pub streams: Vec<StreamAccount>,
    /// What the filter of a gateway that decides itself counts.
    pub filter: Vec<(Counter, u64)>,
    /// What the throttle says.
    pub state: ThrottleState,
    /// How long triggers could come.
    pub live: Duration,
    /// How long they could not.
    pub dead: Duration,
    /// How long each level stopped the trigger, and how often: the flows, the memory, the queue in front of it, out of
    /// sync, error, run control.
    pub stops: Vec<(Duration, u64)>,
    /// Sets of events in use now, of all flows, and how many there are.
    pub sets: (u64, u64),
    /// In front of an input: the most that was ever found waiting there, and how much room there was.
    pub most_waiting: QueueInUse,
    /// Packets that were copied because too much of their memory was held.
    pub evacuated: u64,
    /// Readers of decisions that were cut off because they took too little.
    pub cut_off: u64,
    /// Nodes of the farm that were connected and fell silent.
    pub nodes_away: u64,
    /// When it reported last; of two threads the one that has been silent for longer.
    pub at: Option<Instant>,
    /// It has ended: nothing is in flight, files are closed.
    pub is_over: bool,
}

impl GatewayReport {
    /// Of a gateway with these flows, which has done nothing.
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

    /// What the input of one flow counted; `None` if one input serves all flows.
    pub fn received_apart(&self, flow: usize) -> Option<ReceiveCounters> {
        self.received.get(flow).copied().filter(|_| self.received.len() == self.flows.len())
    }

    /// What the input of all flows counted; `None` if each has its own.
    pub fn received_together(&self) -> Option<ReceiveCounters> {
        self.received.first().copied().filter(|_| self.received.len() != self.flows.len())
    }

    /// What it counts as a whole, and its filter.
    pub fn all_numbers(&self) -> impl Iterator<Item = (Counter, u64)> {
        self.numbers().into_iter().chain(self.filter.iter().copied())
    }

    /// What it counts as a whole.
    pub fn numbers(&self) -> [(Counter, u64); 29] {
        let mut events = EventAccount::default();
        self.flows.iter().for_each(|flow| events.merge(&flow.events.events));
        let farm = |count: fn(&FarmAccount) -> u64| -> u64 { self.flows.iter().map(|flow| count(&flow.events)).sum() };
        let storage = self.storage.unwrap_or_default();
        let is_full = storage.refused == Some(DiskCause::Full);
        // Behind the sets of each flow: the memory, the queue, out of sync, error.
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

    /// The number of the error of a disk that fails; a full one does not.
    pub fn disk_error(&self) -> Option<i32> {
        let cause = self.storage?.refused.filter(|&cause| cause != DiskCause::Full)?;
        Some(cause.number())
    }

    /// Takes over what another one says of nodes, decisions and files.
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

/// How a gateway's page shows a report.
#[derive(Debug)]
pub(super) struct Telling {
    run: RunNumber,
    /// The sources of all flows, in the order of the report.
    sources: Vec<SourceId>,
}

impl Telling {
    /// Of a gateway with this configuration.
    pub(super) fn new(config: &GatewayDriveConfig) -> Self {
        let sources =
            config.machine.flows.iter().flat_map(|flow| flow.sources.iter().map(|source| source.id)).collect();
        Self { run: config.run, sources }
    }

    /// How far the run is.
    pub(super) fn stands(&self, phase: Phase, page: &NodePage) {
        let phase = match phase {
            Phase::Running => RunPhase::Running,
            Phase::Draining(_) | Phase::Closing(_) => RunPhase::Draining,
            Phase::Over => RunPhase::Ended,
        };
        page.stands(self.run, phase);
    }

    /// All numbers of the report.
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

/// A value that a thread renews and others read.
#[derive(Debug, Default)]
pub struct Notice<T>(Arc<Mutex<T>>);

impl<T> Clone for Notice<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Notice<GatewayReport> {
    /// Of a gateway that has done nothing.
    pub(super) fn of_gateway(config: &GatewayDriveConfig) -> Self {
        Self(Arc::new(Mutex::new(GatewayReport::new(&config.machine.flows))))
    }
}

impl<T: Clone> Notice<T> {
    /// What was said last.
    pub fn read(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls `look` with a reference to the content.
    pub(super) fn look(&self, look: impl FnOnce(&T)) {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Renews it in place: held for a copy of some numbers, twenty times a second.
    pub(super) fn renew(&self, renew: impl FnOnce(&mut T)) {
        renew(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Of each source its histograms, by their place in the configuration: the cells in which there is something, with how much.
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
    /// Those of a machine, with room for all that they will ever hold.
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

    /// Tells them anew, if there are any.
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
