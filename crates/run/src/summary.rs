//! The account of a run: `run.json` in its directory and the last line of `--json`.
//! `docs/schema/run.json` is generated from the types here.

use super::controlled::FrontEndsSummary;
use super::file_filters::FileBasedSummary;
use super::gateway::{FlowSummary, GatewayAccount, GatewaySummary};
use super::histograms::SourceHistograms;
use super::registry::{ACCOUNT, ConfigurationSummary, TakeoverRecord};
use super::remarks::Remarks;
use super::source_summary::{
    FragmentSummary, GapSummary, InputSummary, MaskedSummary, NumberingSummary, SynchronySummary, SynchronyVerdict,
};
use super::summary_sections::{
    CardSummary, ClockSummary, DeletedSummary, DiskSummary, FilterSummary, LedgerSummary, LumisectionSummary,
    MeasureSummary, UnbalancedSummary, stream_summaries,
};
use super::transfer::TransferSummary;
use crate::whole_file;
use ropewalk_config::fields::Fields;
use ropewalk_engine::gateway::FarmNodeReport;
use ropewalk_engine::{RunSnapshot, Unknown};
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_monitor::synchrony::disagreements;
use ropewalk_terms::{Asked, ByCause, Cause, Counter, EventAccount, Fact, Facts, NodeId, SourceId, StreamAccount, Utc};
use ropewalk_tools::FaultyEvents;
use ropewalk_tools::status::StatusSummary;
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The name and version of the schema. Version 1 had another schema for gateways.
pub const SUMMARY_SCHEMA: &str = "ropewalk-run-2";

/// The state of a run whose stop was forced.
const FORCED: &str = "forced";

/// A run's account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(
    title = "The account of a run: run.json, and the last line of `--json` of `run`, `demo`, `node`, `source mep` and `farm-node`"
)]
pub struct RunSummary {
    /// The name and version of the schema.
    #[schemars(extend("const" = SUMMARY_SCHEMA))]
    pub schema: &'static str,
    /// The run's number; 0 in a process that only emulates packet sources or farm nodes.
    pub run: u32,
    /// `ended`; `forced` after a forced stop; otherwise the phase in which the run was left.
    #[schemars(extend("enum" = states()))]
    pub state: &'static str,
    /// The run's directory; empty in a process that only emulates packet sources or farm nodes.
    pub directory: PathBuf,
    /// When it began, in nanoseconds since 1970 UTC; null if it never did.
    pub started_ns: Option<i64>,
    /// Fields given at the start, by name (`--field beam=120GeV`).
    pub fields: Fields,
    /// The configuration; a copy is in `configuration.toml` beside the account.
    pub configuration: ConfigurationSummary,
    /// The accuracy of the times in the account: the clock state of the event manager's machine, from its kernel.
    pub clock: ClockSummary,
    /// Seconds from start to the end of draining.
    #[schemars(range(min = 0))]
    pub duration_s: f64,
    /// Configured sources.
    pub sources: usize,
    /// Configured names of sources, by their ids; sources without a name are left out.
    pub names: BTreeMap<String, String>,
    /// The account of fragments, of all sources. In runs with gateways a packet counts as one fragment.
    pub fragments: FragmentSummary,
    /// The account of events.
    pub events: EventSummary,
    /// Bytes received and written.
    pub bytes: ByteSummary,
    /// Rates over the running interval, without draining. The time before the first data counts, too.
    pub rate: RateSummary,
    /// Datagrams that became no fragment.
    pub datagrams: DatagramSummary,
    /// Copies in user space.
    pub copies: CopySummary,
    /// What link cards brought, and what their subscribers got: all cards together.
    pub cards: CardSummary,
    /// The synchrony of each source that was compared with the reference.
    pub synchrony: Vec<SynchronySummary>,
    /// Run files deleted to stay within `keep`.
    pub deleted: DeletedSummary,
    /// Disk errors, failing disks, run files deleted while they were written, and free space.
    pub disk: DiskSummary,
    /// Transfers of closed run files since this process started; null if no transfer is configured.
    pub transfer: Option<TransferSummary>,
    /// Whether the account adds up.
    pub ledger: LedgerSummary,
    /// The exit status, and why.
    pub status: StatusSummary,
    /// The account of fragments of each source, by its id. In runs with gateways what has no source, is late or comes twice counts for the
    /// flow only.
    pub by_source: BTreeMap<String, FragmentSummary>,
    /// What is unknown because readout units died before they reported it; empty if the account is complete.
    pub partial: Vec<PartialSummary>,
    /// The ranges of events in which a required source is missing, by its id, for each life of its readout unit. Outside
    /// these ranges it has a fragment in every event. Sources without gaps are left out. Gateways do not record gaps.
    pub gaps: BTreeMap<String, Vec<GapSummary>>,
    /// Irregular numbers of a source, by its id, the first 16 in each life of its readout unit.
    pub numbering: BTreeMap<String, Vec<NumberingSummary>>,
    /// In which events a source took no part because it was masked, by its id; sources that always took part are left out.
    pub masked: BTreeMap<String, Vec<MaskedSummary>>,
    /// Distributions over all nodes, by name: `event_size`, `build_latency`, `filter`, `disk_write`. Empty ones are left
    /// out.
    pub measures: BTreeMap<String, MeasureSummary>,
    /// The histograms of sources (`[[histogram]]`).
    pub histograms: Vec<SourceHistograms>,
    /// Files that were read in the place of sources.
    pub inputs: Vec<InputSummary>,
    /// Front ends under run control; null if there are none.
    pub front_ends: Option<FrontEndsSummary>,
    /// The account of filter units and their events.
    pub filter: FilterSummary,
    /// The account of file-based filter units; null without them, or before they have finished.
    pub file_based: Option<FileBasedSummary>,
    /// The account of each named stream, as last reported by builder units: selected = prescaled_away + written +
    /// failed + in_flight.
    pub streams: BTreeMap<String, StreamAccount>,
    /// Each flow of packets, by name: all gateways of this process together. Empty without gateways.
    pub flows: BTreeMap<String, FlowSummary>,
    /// Each input queue of the gateways of this process, by name.
    pub gateways: BTreeMap<String, GatewaySummary>,
    /// The farm nodes of this process; null without them.
    pub farm: Option<FarmNodeReport>,
    /// Closed lumisections, in order. A succeeding event manager knows only the lumisections that it closed.
    pub lumisections: Vec<LumisectionSummary>,
    /// Why the run stopped by itself: a cause.
    pub stopped_by: Option<&'static str>,
    /// The first events in the run files of this account's directory that are incomplete, doubtful or quarantined, with their sources
    /// and causes. Empty if the run files lie elsewhere; `ropewalk verify` names them there.
    pub faulty_events: FaultyEvents,
    /// Sentences on single sources: missing in events, masked, silent in the whole run, or with numbers that restarted or do not
    /// fit the run.
    pub remarks: Vec<String>,
    /// What this process asked of the system for its threads and pools, was refused, and went without; what was wrong with the
    /// writers of cards and with splitters.
    pub warnings: Vec<String>,
    /// Required sources that sent nothing although data was expected.
    #[serde(skip)]
    never_sent: u64,
    /// Sources that were too late for most of their events, by id: the delay after the first source, and a sentence on
    /// it.
    #[serde(skip)]
    pub(super) began_late: BTreeMap<String, (Duration, String)>,
    /// In runs with gateways, facts about packets and events: they count sets where `events` counts events.
    #[serde(skip)]
    of_gateways: Option<Facts>,
}

/// What is not known of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PartialSummary {
    /// The readout unit.
    pub node: String,
    /// What is unknown, as text.
    pub unknown: String,
}

/// The account of events: assigned = built + incomplete_emitted + incomplete_dropped + in_flight; built +
/// incomplete_emitted = accepted + rejected + quarantined.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EventSummary {
    /// Event keys given to builder units, each once however often it was assigned.
    pub assigned: u64,
    /// Events built with every required source.
    pub built: u64,
    /// Built events with a fragment in doubt. Gateways do not count them.
    pub doubtful: u64,
    /// Incomplete events that were kept.
    pub incomplete_emitted: u64,
    /// Events that were dropped.
    pub incomplete_dropped: u64,
    /// The same by cause.
    pub incomplete_dropped_by_cause: ByCause,
    /// Events kept by the decision.
    pub accepted: u64,
    /// Accepted events that no stream took because of prescales. They are in no file.
    pub unselected: u64,
    /// Events thrown away by the decision.
    pub rejected: u64,
    /// Events set aside without a decision.
    pub quarantined: u64,
    /// Events in run files, each once. Exact if events are acknowledged as `written` or `synced`; otherwise as last
    /// reported by builder units.
    pub written: u64,
    /// Second copies of a key, written because a builder unit died between write and acknowledgement.
    pub rebuilt_duplicate: u64,
    /// Events in progress, counted from tables.
    pub in_flight: u64,
}

/// Bytes received and written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ByteSummary {
    /// Bytes of fragments, without transport framing.
    pub payload_received: u64,
    /// Bytes taken from sockets, framing included.
    pub wire_received: u64,
    /// Bytes written to run files.
    pub written: u64,
}

/// Rates while the run was running.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct RateSummary {
    /// Payload received in a second, in bytes.
    #[schemars(range(min = 0))]
    pub bytes_per_s: f64,
    /// Events built in a second, incomplete ones included.
    #[schemars(range(min = 0))]
    pub events_per_s: f64,
}

/// Copies in user space.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct CopySummary {
    /// Bytes that were copied in user space.
    pub bytes: u64,
}

/// Datagrams that became no fragment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DatagramSummary {
    /// Datagrams lost by the kernel or the receiver.
    pub lost: u64,
    /// The same by cause.
    pub lost_by_cause: ByCause,
    /// The same by cause, of each source that has a port of its own, by its id.
    pub lost_by_source: BTreeMap<String, ByCause>,
    /// Datagrams of senders that are no source.
    pub nobodys: u64,
}

/// The components of a run, as far as an account names them.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Parts<'a> {
    /// Number of sources.
    pub(super) sources: usize,
    /// The streams, in order.
    pub(super) streams: &'a [StreamName],
    /// The ended lumisections, in order.
    pub(super) lumisections: &'a [LumisectionEnd],
}

/// Start of a run, and the duration of its parts in seconds.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Durations {
    /// Start time; `None` if it never started.
    pub(super) started: Option<Utc>,
    /// From start to the end of draining.
    pub(super) whole: f64,
    /// From start to stop.
    pub(super) running: f64,
    /// Events finished when the stop was given.
    pub(super) events_when_stopped: u64,
    /// Payload received when the stop was given, in bytes.
    pub(super) bytes_when_stopped: u64,
}

/// Returns the values of `state`.
fn states() -> Vec<&'static str> {
    RunPhase::ALL.map(RunPhase::name).into_iter().chain([FORCED]).collect()
}

/// Returns what is unknown about nodes that died.
fn partial(snapshot: &RunSnapshot) -> Vec<PartialSummary> {
    let of =
        |(node, unknown): &(NodeId, Unknown)| PartialSummary { node: node.to_string(), unknown: unknown.to_string() };
    snapshot.unknown.iter().map(of).collect()
}

impl DatagramSummary {
    fn new(snapshot: &RunSnapshot) -> Self {
        let mut lost = ByCause::default();
        snapshot.lost_datagrams.values().for_each(|one| lost.merge(one));
        let by_source = snapshot.lost_datagrams.iter().filter_map(|(id, lost)| Some(((*id)?.to_string(), *lost)));
        Self {
            lost: snapshot.counter(Counter::DatagramsLost),
            lost_by_cause: lost,
            lost_by_source: by_source.collect(),
            nobodys: snapshot.counter(Counter::DatagramsNobodys),
        }
    }
}

impl EventSummary {
    fn new(events: &EventAccount, doubtful: u64) -> Self {
        Self {
            doubtful,
            assigned: events.assigned,
            built: events.built,
            incomplete_emitted: events.incomplete_emitted,
            incomplete_dropped: events.incomplete_dropped.total(),
            incomplete_dropped_by_cause: events.incomplete_dropped,
            accepted: events.accepted,
            unselected: events.unselected,
            rejected: events.rejected,
            quarantined: events.quarantined,
            written: events.written,
            rebuilt_duplicate: events.rebuilt_duplicate,
            in_flight: events.in_flight,
        }
    }
}

impl RunSummary {
    /// Returns the name of a source with its id: `boardA (source 7)`; `source 7` if it has no configured name.
    pub fn name_of(&self, id: &str) -> String {
        self.names.get(id).map_or_else(|| format!("source {id}"), |name| format!("{name} (source {id})"))
    }

    /// Creates the summary of the current state.
    pub(super) fn new(
        snapshot: &RunSnapshot,
        directory: PathBuf,
        parts: Parts<'_>,
        forced: bool,
        times: Durations,
    ) -> Self {
        let counter = |counter| snapshot.counter(counter);
        let events = &snapshot.ledger.events;
        let per_second = |count: u64| if times.running > 0.0 { count as f64 / times.running } else { 0.0 };
        let [bytes_per_s, events_per_s] = [times.bytes_when_stopped, times.events_when_stopped].map(per_second);
        let state = if forced { FORCED } else { snapshot.phase.name() };
        Self {
            schema: SUMMARY_SCHEMA,
            run: snapshot.run.0,
            state,
            directory,
            started_ns: times.started.map(|started| started.0),
            fields: Fields::default(),
            configuration: ConfigurationSummary::default(),
            clock: ClockSummary::default(),
            duration_s: times.whole,
            sources: parts.sources,
            names: BTreeMap::new(),
            fragments: FragmentSummary::of_all(snapshot),
            events: EventSummary::new(events, counter(Counter::EventsDoubtful)),
            bytes: ByteSummary {
                payload_received: counter(Counter::PayloadBytesReceived),
                wire_received: counter(Counter::WireBytesReceived),
                written: counter(Counter::BytesWritten),
            },
            rate: RateSummary { bytes_per_s, events_per_s },
            datagrams: DatagramSummary::new(snapshot),
            copies: CopySummary { bytes: counter(Counter::BytesCopied) },
            cards: CardSummary::new(snapshot),
            synchrony: snapshot.synchrony.iter().map(|state| SynchronySummary::new(snapshot, state)).collect(),
            deleted: DeletedSummary::new(|counter| snapshot.counter(counter)),
            disk: DiskSummary::new(
                |counter| snapshot.counter(counter),
                snapshot.failing_disks.iter().map(|(node, error)| (node.to_string(), *error)),
            ),
            transfer: None,
            ledger: LedgerSummary::new(UnbalancedSummary::of_run(snapshot)),
            status: StatusSummary::default(),
            by_source: FragmentSummary::by_source(snapshot),
            partial: partial(snapshot),
            gaps: GapSummary::by_source(snapshot),
            numbering: NumberingSummary::by_source(snapshot),
            masked: MaskedSummary::by_source(snapshot),
            measures: BTreeMap::new(),
            histograms: Vec::new(),
            inputs: Vec::new(),
            front_ends: None,
            filter: FilterSummary::new(snapshot),
            file_based: None,
            streams: stream_summaries(snapshot, parts.streams),
            lumisections: parts.lumisections.iter().map(LumisectionSummary::new).collect(),
            flows: BTreeMap::new(),
            gateways: BTreeMap::new(),
            farm: None,
            stopped_by: snapshot.stopped_by.map(Cause::name),
            faulty_events: FaultyEvents::default(),
            remarks: Vec::new(),
            warnings: Vec::new(),
            never_sent: 0,
            began_late: BTreeMap::new(),
            of_gateways: None,
        }
        .judged()
    }

    /// Determines the status from everything that was added.
    #[must_use]
    fn judged(mut self) -> Self {
        self.status = StatusSummary::of(&self.facts(), Asked::Taken);
        self
    }

    /// Adds the sentences on sources.
    pub(super) fn add_remarks(&mut self, remarks: &Remarks<'_>) {
        self.never_sent = remarks.never_sent().len() as u64;
        let late = |id: &String| Some((id.clone(), remarks.began_late(SourceId(id.parse().ok()?))?));
        self.began_late = self.by_source.keys().filter_map(late).collect();
        self.remarks = remarks.sentences();
    }

    /// Names the events with faults in the closed files of the run's directory.
    #[must_use]
    pub(super) fn with_faulty_events(mut self) -> Self {
        // Most runs have no such events, and reading the indexes of many files takes time.
        let may_have = !self.is_lossless() || self.events.quarantined > 0;
        if may_have && self.run != 0 && !self.directory.as_os_str().is_empty() {
            // Builder units may write to other directories or to none.
            self.faulty_events = FaultyEvents::in_directory(&self.directory).unwrap_or_default();
        }
        self
    }

    /// Adds front ends under run control. Their equations join the ledger.
    pub(super) fn add_front_ends(&mut self, front_ends: FrontEndsSummary) {
        self.ledger.add(front_ends.unbalanced.iter().cloned());
        self.front_ends = Some(front_ends);
    }

    /// Adds file-based filter units. Their equations join the ledger.
    pub(super) fn add_file_based(&mut self, mut file_based: FileBasedSummary) {
        self.ledger.add(file_based.unbalanced.drain(..));
        self.warnings.append(&mut file_based.failures);
        self.file_based = Some(file_based);
    }

    /// Adds flows, gateways and farm. Their equations join the ledger.
    pub(super) fn add_gateways(&mut self, account: GatewayAccount) {
        let GatewayAccount { flows, gateways, farm, failing_disks, unbalanced, facts } = account;
        self.ledger.add(unbalanced);
        (self.flows, self.gateways, self.farm) = (flows, gateways, farm);
        self.disk.failing = failing_disks;
        self.of_gateways = Some(facts);
    }

    /// Adds the threads that panicked, whose last counts are missing, and determines the status.
    #[must_use]
    pub(super) fn with_panicked(mut self, threads: &[String]) -> Self {
        self.ledger.add(UnbalancedSummary::panicked(threads));
        self.judged()
    }

    /// Writes the account into the run's directory, if this process has one, and replaces the takeover record.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        if self.directory.as_os_str().is_empty() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(self)?;
        whole_file::write(&self.directory.join(ACCOUNT), (text + "\n").as_bytes())?;
        TakeoverRecord::forget(&self.directory)
    }

    /// Returns whether every equation of the ledger holds.
    pub const fn is_balanced(&self) -> bool {
        self.ledger.balanced
    }

    /// Returns whether nothing was lost, misplaced or doubtful.
    pub const fn is_lossless(&self) -> bool {
        self.status.is_good()
    }

    /// Returns sentences on sources that are out of step.
    pub fn out_of_step(&self) -> Vec<String> {
        let relations: Vec<_> = self.synchrony.iter().filter_map(SynchronySummary::relation).collect();
        let found = disagreements(&relations, |source| self.name_of(&source.to_string()));
        let mut sentences: Vec<_> = found.into_iter().map(|(_, sentence)| sentence).collect();
        sentences.dedup();
        sentences
    }

    /// Returns sentences on sources that were out of step and are no longer.
    pub fn healed(&self) -> Vec<String> {
        let of = |state: &SynchronySummary| state.healed(&self.name_of(&state.source.to_string())).collect::<Vec<_>>();
        self.synchrony.iter().flat_map(of).collect()
    }

    /// Returns the name of the reference source, or of one that is in step with it.
    pub fn reference(&self) -> Option<String> {
        let in_sync = self.synchrony.iter().find(|state| state.verdict == SynchronyVerdict::InSync)?;
        Some(self.name_of(&in_sync.source.to_string()))
    }

    /// Returns the facts for the exit status.
    fn facts(&self) -> Facts {
        let of_data = self.of_gateways.unwrap_or_else(|| self.facts_of_units());
        of_data.with([
            (Fact::Forced, u64::from(self.state == FORCED)),
            (Fact::Nothing, self.never_sent),
            (Fact::Unbalanced, self.ledger.unbalanced.len() as u64),
            (Fact::StreamFailed, self.streams.values().map(|stream| stream.failed).sum()),
            (Fact::FiltersGivenUp, self.filter.given_up),
            (Fact::EventsGone, self.disk.events_gone),
            (Fact::KeptNewest, self.deleted.events),
        ])
    }

    fn facts_of_units(&self) -> Facts {
        let (events, cards) = (&self.events, &self.cards);
        let decided_away = events.rejected + events.unselected;
        let displaced = self.synchrony.iter().filter(|state| state.is_displaced()).count();
        let without_event = |front_ends: &FrontEndsSummary| front_ends.without_event();
        // Garbage from senders other than sources is not a loss.
        let garbage = self.by_source.values().map(|source| source.counts.get(Counter::GarbageBytes)).sum();
        self.fragments.facts().and(&InputSummary::facts(&self.inputs)).with([
            (Fact::GarbageBytes, garbage),
            (Fact::Partial, self.partial.len() as u64),
            (Fact::DatagramsLost, self.datagrams.lost),
            (Fact::DatagramsNobodys, self.datagrams.nobodys),
            (Fact::CardBlocksDamaged, cards.blocks_damaged),
            (Fact::CardBlocksMissing, cards.blocks_missing),
            (Fact::CardChunksGivenUp, cards.given_up),
            // The contents of the rest of such a block are unknown.
            (Fact::CardBytesLeftOver, cards.left_over_bytes),
            (Fact::Synchrony, displaced as u64),
            (Fact::Incomplete, events.incomplete_emitted),
            (Fact::EventsDropped, events.incomplete_dropped),
            (Fact::EventsInFlight, events.in_flight),
            // At levels below `written` an event may be released that no file will ever hold.
            (Fact::Unwritten, events.built.saturating_sub(events.written + decided_away)),
            (Fact::Quarantined, events.quarantined),
            (Fact::EventsOutOfOrder, self.filter.out_of_order),
            (Fact::FilesSetAside, self.file_based.as_ref().map_or(0, |files| files.set_aside)),
            (Fact::TriggersWithoutEvent, self.front_ends.as_ref().map_or(0, without_event)),
            (Fact::Rejected, decided_away),
            (Fact::SecondCopies, events.rebuilt_duplicate),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::FragmentFlags;
    use ropewalk_terms::FragmentAccount;

    fn summary(events: EventAccount) -> RunSummary {
        let mut snapshot = RunSnapshot::default();
        snapshot.ledger.events = events;
        RunSummary::new(&snapshot, PathBuf::new(), Parts::default(), false, Durations::default())
    }

    #[test]
    fn a_run_that_lost_packets_on_the_way_to_it_says_so_by_name_and_is_not_good() {
        let mut snapshot = RunSnapshot::default();
        let is_lossless = |snapshot: &RunSnapshot| {
            RunSummary::new(snapshot, PathBuf::new(), Parts::default(), false, Durations::default()).is_lossless()
        };
        snapshot.counters.insert(Counter::DatagramsNobodys, 7);
        snapshot.counters.insert(Counter::FramesOutOfOrder, 7);
        assert!(is_lossless(&snapshot), "strangers and doubles are no loss");
        for counter in [Counter::FramesMissing, Counter::DatagramsLost] {
            snapshot.counters.insert(counter, 3);
            assert!(!is_lossless(&snapshot), "{counter:?}");
            snapshot.counters.remove(&counter);
        }
        for (source, cause) in [(Some(SourceId(8)), Cause::Truncated), (None, Cause::SocketQueueFull)] {
            snapshot.lost_datagrams.entry(source).or_default().add(cause, 2);
        }
        let told = DatagramSummary::new(&snapshot);
        assert_eq!(told.lost_by_cause.names(), [("truncated", 2), ("socket_queue_full", 2)].into());
        assert_eq!((told.lost_by_source.len(), told.lost_by_source["8"].names()), (1, [("truncated", 2)].into()));
    }

    #[test]
    fn an_event_that_was_acknowledged_in_memory_and_never_written_is_lost() {
        let events = EventAccount { assigned: 9, built: 9, accepted: 9, written: 8, ..EventAccount::default() };
        assert!(summary(events).is_balanced() && !summary(events).is_lossless());
        assert!(summary(EventAccount { written: 9, ..events }).is_lossless());
        assert!(
            summary(EventAccount { accepted: 8, rejected: 1, ..events }).is_lossless(),
            "what is rejected is not lost"
        );
    }

    /// As after an event manager took over from one that left no record of the last event.
    #[test]
    fn fragments_of_more_complete_events_than_there_are_do_not_hold() {
        let mut snapshot = RunSnapshot { phase: RunPhase::Ended, ..RunSnapshot::default() };
        snapshot.ledger.events =
            EventAccount { assigned: 9, built: 9, accepted: 9, written: 9, ..EventAccount::default() };
        for (fragments, holds) in [(9, true), (10, false)] {
            let account =
                FragmentAccount { received: fragments, in_complete_events: fragments, ..FragmentAccount::default() };
            snapshot.sources.insert(SourceId(7), account);
            snapshot.ledger.fragments = account;
            let summary = RunSummary::new(&snapshot, PathBuf::new(), Parts::default(), false, Durations::default());
            assert_eq!((summary.is_balanced(), summary.is_lossless()), (holds, holds), "{:?}", summary.ledger);
        }
    }

    #[test]
    fn a_run_with_exchanged_cables_says_so_of_each_source_and_ends_with_3() {
        let mut snapshot = RunSnapshot::default();
        let place = |name| FragmentFlags::DOUBTS.iter().position(|(_, known)| *known == name).expect("it has a name");
        for (source, name, count) in [(7, "wrong_source", 5), (8, "wrong_source", 4), (8, "bunch_crossing_mismatch", 3)]
        {
            snapshot.sources.entry(SourceId(source)).or_default();
            snapshot.doubts.entry(SourceId(source)).or_default()[place(name)] = count;
        }
        let summary = RunSummary::new(&snapshot, PathBuf::new(), Parts::default(), false, Durations::default());
        assert_eq!(summary.by_source["8"].flagged, [("wrong_source", 4), ("bunch_crossing_mismatch", 3)].into());
        let reasons = [("wrong_source", 9), ("bunch_crossing_mismatch", 3)].into();
        assert_eq!(summary.status, StatusSummary { code: 3, reasons });
    }

    #[test]
    fn what_an_operator_asked_for_is_no_loss() {
        let mut snapshot = RunSnapshot::default();
        let fragments = &mut snapshot.ledger.fragments;
        fragments.received = 7;
        fragments.after_stop = 4;
        fragments.dropped.add(Cause::Masked, 3);
        fragments.missing.add(Cause::Masked, 9);
        let status = |snapshot: &RunSnapshot, forced| {
            RunSummary::new(snapshot, PathBuf::new(), Parts::default(), forced, Durations::default()).status.code
        };
        assert_eq!((status(&snapshot, false), status(&snapshot, true)), (0, 130));
        snapshot.ledger.fragments.received = 8;
        snapshot.ledger.fragments.stale = 1;
        assert_eq!(status(&snapshot, false), 3, "a first number that is not expected may be a lost event");
    }
}
