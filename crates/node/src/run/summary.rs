//! What a run says of itself: `run.json` in its directory and the last line of `--json`.
//! `docs/schema/run.json` describes it.

use super::claim::{ACCOUNT, Claim};
use super::clock_summary::ClockSummary;
use super::configured::ConfigurationSummary;
use super::file_summary::FileBasedSummary;
use super::filter_summary::{self, FilterSummary, StreamSummary};
use super::forecast::DiskLeft;
use super::front_end_summary::FrontEndsSummary;
use super::histograms::SourceHistograms;
use super::input_summary::InputSummary;
use super::lumisections::LumisectionSummary;
use super::measures::MeasureSummary;
use super::transfer::TransferSummary;
use crate::drive::{Doubts, MaskRecord, MaskedInterval, RunSnapshot, Seen, Unknown};
use crate::fields::Fields;
use crate::status::{StatusSummary, named};
use crate::whole_file;
use ropewalk_flow::messages::{FragmentFlags, Gap, LumisectionEnd, NumberingAnomaly};
use ropewalk_terms::{
    Asked, ByCause, Cause, Counter, EventAccount, Fact, Facts, FragmentAccount, NodeId, SourceId, Utc,
};
use ropewalk_wire::run_file::StreamName;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The form's name and version.
pub const SUMMARY_SCHEMA: &str = "ropewalk-run-1";

/// A run's account. The names of the fields are part of the contract in `docs/cli.md`.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// [`SUMMARY_SCHEMA`].
    pub schema: &'static str,
    /// The run's number.
    pub run: u32,
    /// `ended`, `forced` where the stop was forced, otherwise the phase in which it was left.
    pub state: String,
    /// The run's directory.
    pub directory: PathBuf,
    /// When it began, in nanoseconds since 1970 UTC; null where it never did.
    pub started_ns: Option<i64>,
    /// What was said of it when it was started.
    pub fields: Fields,
    /// With which configuration it was taken.
    pub configuration: ConfigurationSummary,
    /// How far the times in it can be believed.
    pub clock: ClockSummary,
    /// From start to the end of draining.
    pub duration_s: f64,
    /// Configured sources.
    pub sources: usize,
    /// The account of fragments.
    pub fragments: FragmentSummary,
    /// The account of events.
    pub events: EventSummary,
    /// Bytes received and written.
    pub bytes: Value,
    /// Over the running interval, draining left out.
    pub rate: Value,
    /// Datagrams that became nobody's fragment.
    pub datagrams: Value,
    /// Bytes copied in user space.
    pub copies: Value,
    /// What link cards brought, and what their subscribers got: all cards together.
    pub cards: CardSummary,
    /// Sources that were found displaced or lost.
    pub synchrony: Vec<SynchronySummary>,
    /// Run files deleted to stay within `keep`, and how many events were in them.
    pub deleted: Value,
    /// How often a disk refused what was written, which ones fail now, and which files were deleted while they were written.
    pub disk: Value,
    /// What became of closed run files that are taken away by a command of the user's; null where none is configured.
    pub transfer: Option<TransferSummary>,
    /// Whether every equation holds.
    pub ledger: Value,
    /// The exit status, and why.
    pub status: StatusSummary,
    /// The account of each source.
    pub by_source: Map<String, Value>,
    /// What is not known, because readout units died: the account is partial. Empty where it is whole.
    pub partial: Vec<PartialSummary>,
    /// In which events a source is missing that is required and takes part, by its id; sources that always were there are left out.
    pub gaps: Map<String, Value>,
    /// What the numbers of each source did that they should not, by its id.
    pub numbering: Map<String, Value>,
    /// In which events a source took no part because it was masked, by its id; sources that always took part are left out.
    pub masked: Map<String, Value>,
    /// How sizes of events and the times that things took are distributed, by the measure's name; one without values is left out.
    pub measures: BTreeMap<String, MeasureSummary>,
    /// What was counted of sources' fragments, as the configuration asks for.
    pub histograms: Vec<SourceHistograms>,
    /// Files that were read in the place of sources.
    pub inputs: Vec<InputSummary>,
    /// Front ends under run control; null where there are none.
    pub front_ends: Option<FrontEndsSummary>,
    /// What became of filter units and of what they had.
    pub filter: FilterSummary,
    /// What became of events that went to filter units as files; null where none did.
    pub file_based: Option<FileBasedSummary>,
    /// The account of each stream that has a name.
    pub streams: BTreeMap<String, StreamSummary>,
    /// The lumisections that are over, in order.
    pub lumisections: Vec<LumisectionSummary>,
    /// Why the run stopped, where it was not asked to.
    pub stopped_by: Option<&'static str>,
    /// What this process asked of the system for its threads and pools, was refused, and went without; what was wrong with the
    /// writers of cards and with splitters.
    pub warnings: Vec<String>,
}

/// What is not known of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PartialSummary {
    /// The readout unit.
    pub node: String,
    /// What, for people.
    pub unknown: String,
}

/// The account of fragments.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of terms::FragmentAccount, documented there")]
pub struct FragmentSummary {
    pub received: u64,
    pub in_complete_events: u64,
    pub in_incomplete_events: u64,
    pub duplicate: u64,
    pub late: u64,
    pub corrupt: u64,
    pub stale: u64,
    pub after_stop: u64,
    pub dropped: Map<String, Value>,
    pub in_flight: u64,
    pub in_dropped_events: u64,
    pub missing: Map<String, Value>,
    /// How many are in doubt, by flag; wrong checksums are `crc_errors`.
    pub flagged: Map<String, Value>,
    /// What was seen beside them.
    #[serde(flatten)]
    pub seen: Seen,
}

/// The account of events.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of terms::EventAccount and documented there")]
pub struct EventSummary {
    pub assigned: u64,
    pub built: u64,
    pub incomplete_emitted: u64,
    pub incomplete_dropped: u64,
    pub incomplete_dropped_by_cause: Map<String, Value>,
    pub accepted: u64,
    pub unselected: u64,
    pub rejected: u64,
    pub quarantined: u64,
    pub written: u64,
    pub rebuilt_duplicate: u64,
    pub in_flight: u64,
}

/// What link cards brought.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CardSummary {
    /// Blocks, good and bad.
    pub blocks: u64,
    /// Blocks of which nothing could be believed.
    pub blocks_damaged: u64,
    /// Blocks that their e-links' numbers show to be missing.
    pub blocks_missing: u64,
    /// Chunks that came whole, flagged ones and those of e-links that are no source included.
    pub chunks: u64,
    /// Chunks of which a piece came, and that were given up.
    pub given_up: u64,
    /// Flags that cards gave to chunks.
    pub flagged: u64,
    /// Chunks, whole or given up, of e-links that are no source.
    pub nobodys: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// How often a card was found without room.
    pub stalls: u64,
    /// Bytes at cards' ends that are no whole block.
    pub left_over_bytes: u64,
    /// Chunks for subscribers, once for each.
    pub subscribers: SubscriberSummary,
}

/// What subscribers of link cards got.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are those of terms::ChunkAccount and documented there")]
pub struct SubscriberSummary {
    /// Subscribers that came.
    pub joined: u64,
    pub offered: u64,
    pub sent: u64,
    pub dropped: u64,
    pub moved: u64,
    pub queued: u64,
    /// Bytes that were copied for those who may lose chunks.
    pub copied_bytes: u64,
    /// Messages to e-links that were refused.
    pub down_refused: u64,
}

/// The verdict about one source.
#[derive(Clone, Debug, Serialize)]
pub struct SynchronySummary {
    /// The source's id.
    pub source: u32,
    /// `in_sync`, `offset`, `lost` or `cannot_tell`.
    pub verdict: &'static str,
    /// Events by which it is displaced; positive: early.
    pub offset: i16,
    /// The first displaced event.
    pub since: String,
}

/// What a run consists of, as far as an account names it.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Parts<'a> {
    /// How many sources there are.
    pub(super) sources: usize,
    /// The streams, in order.
    pub(super) streams: &'a [StreamName],
    /// Those that are over, in order.
    pub(super) lumisections: &'a [LumisectionEnd],
}

/// When a run began, and the duration of its parts in seconds.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Durations {
    /// None where it never did.
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

/// A disk's error in the operating system's own words.
pub fn disk_error(number: i32) -> String {
    std::io::Error::from_raw_os_error(number).to_string()
}

/// What disks refused, and which ones do so now.
fn disks(snapshot: &RunSnapshot) -> Value {
    let failing = snapshot.failing_disks.iter();
    let failing = failing.map(|(node, error)| json!({ "node": node.to_string(), "error": disk_error(*error) }));
    json!({
        "refusals": snapshot.counter(Counter::DiskRefusals),
        "failing": failing.collect::<Vec<_>>(),
        "files_restored": snapshot.counter(Counter::FilesRestored),
        "events_gone": snapshot.counter(Counter::EventsGone),
    })
}

/// Datagrams that became nobody's fragment, and why.
fn datagrams(snapshot: &RunSnapshot) -> Value {
    let mut lost = ByCause::default();
    snapshot.lost_datagrams.values().for_each(|one| lost.merge(one));
    let by_source = snapshot.lost_datagrams.iter().filter_map(|(id, lost)| Some(((*id)?.to_string(), causes(lost))));
    json!({
        "lost": snapshot.counter(Counter::DatagramsLost),
        "lost_by_cause": causes(&lost),
        "lost_by_source": by_source.map(|(id, lost)| (id, Value::Object(lost))).collect::<Map<_, _>>(),
        "nobodys": snapshot.counter(Counter::DatagramsNobodys),
    })
}

fn by_source(snapshot: &RunSnapshot) -> Map<String, Value> {
    let account = |(id, account): (&SourceId, &FragmentAccount)| {
        let seen = snapshot.seen.get(id).copied().unwrap_or_default();
        let doubts = snapshot.doubts.get(id).copied().unwrap_or_default();
        (id.to_string(), json!(FragmentSummary::new(account, seen, &doubts)))
    };
    snapshot.sources.iter().map(account).collect()
}

/// What is not known of nodes that died.
fn partial(snapshot: &RunSnapshot) -> Vec<PartialSummary> {
    let of =
        |(node, unknown): &(NodeId, Unknown)| PartialSummary { node: node.to_string(), unknown: unknown.to_string() };
    snapshot.unknown.iter().map(of).collect()
}

fn gaps(snapshot: &RunSnapshot) -> Map<String, Value> {
    let gap =
        |one: &Gap| json!({ "first": one.first.to_string(), "last": one.last.to_string(), "missing": one.missing });
    let all = |gaps: &Vec<Gap>| gaps.iter().map(gap).collect();
    snapshot.gaps.iter().map(|(id, gaps)| (id.to_string(), Value::Array(all(gaps)))).collect()
}

fn numbering(snapshot: &RunSnapshot) -> Map<String, Value> {
    let anomaly = |one: &NumberingAnomaly| {
        let NumberingAnomaly { kind, key, from, to, size } = one;
        json!({ "kind": kind.name(), "event": key.to_string(), "from": from, "to": to, "size": size })
    };
    let all = |anomalies: &Vec<NumberingAnomaly>| anomalies.iter().map(anomaly).collect();
    snapshot.numbering.iter().map(|(id, one)| (id.to_string(), Value::Array(all(one)))).collect()
}

fn masked(snapshot: &RunSnapshot) -> Map<String, Value> {
    let interval =
        |one: &MaskedInterval| json!({ "from": one.from.to_string(), "to": one.to.map(|to| to.to_string()) });
    let intervals = |record: &MaskRecord| record.intervals.iter().map(interval).collect();
    snapshot.masks.iter().map(|(id, record)| (id.to_string(), Value::Array(intervals(record)))).collect()
}

/// What was seen of all sources together.
fn seen(snapshot: &RunSnapshot) -> Seen {
    Seen {
        crc_errors: snapshot.counter(Counter::CrcErrors),
        before_start: snapshot.counter(Counter::FragmentsBeforeStart),
        frames_missing: snapshot.counter(Counter::FramesMissing),
        frames_out_of_order: snapshot.counter(Counter::FramesOutOfOrder),
        garbage_bytes: snapshot.counter(Counter::GarbageBytes),
        filler_bytes: snapshot.counter(Counter::FillerBytes),
        frames_divided: snapshot.counter(Counter::FramesDivided),
        frames_gathered: snapshot.counter(Counter::FramesGathered),
        splitter_restarts: snapshot.counter(Counter::SplitterRestarts),
    }
}

/// Fragments in doubt of all sources together.
fn doubts(snapshot: &RunSnapshot) -> Doubts {
    let mut sums = Doubts::default();
    for of_source in snapshot.doubts.values() {
        sums.iter_mut().zip(of_source).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// The same by name, but for wrong checksums, which have a count of their own.
fn flagged(doubts: &Doubts) -> impl Iterator<Item = (&'static str, u64)> {
    let by_flag = FragmentFlags::DOUBTS.into_iter().zip(*doubts);
    by_flag
        .filter(|((flag, _), count)| *flag != FragmentFlags::CRC_ERROR && *count > 0)
        .map(|((_, name), count)| (name, count))
}

pub(super) fn causes(by_cause: &ByCause) -> Map<String, Value> {
    by_cause.iter().map(|(cause, count)| (cause.name().to_owned(), count.into())).collect()
}

impl FragmentSummary {
    fn new(account: &FragmentAccount, seen: Seen, doubts: &Doubts) -> Self {
        Self {
            received: account.received,
            in_complete_events: account.in_complete_events,
            in_incomplete_events: account.in_incomplete_events,
            duplicate: account.duplicate,
            late: account.late,
            corrupt: account.corrupt,
            stale: account.stale,
            after_stop: account.after_stop,
            dropped: causes(&account.dropped),
            in_flight: account.in_flight,
            in_dropped_events: account.in_dropped_events,
            missing: causes(&account.missing),
            flagged: flagged(doubts).map(|(name, count)| (name.to_owned(), count.into())).collect(),
            seen,
        }
    }
}

impl FragmentSummary {
    fn facts(&self) -> Facts {
        let masked = Cause::Masked.name();
        let but_masked = |by_cause: &Map<String, Value>| -> u64 {
            by_cause.iter().filter(|(cause, _)| *cause != masked).filter_map(|(_, count)| count.as_u64()).sum()
        };
        let flagged = self.flagged.iter().filter_map(|(name, count)| Some((name.as_str(), count.as_u64()?)));
        Facts::default().with(named(flagged)).with([
            (Fact::Late, self.late),
            (Fact::Duplicate, self.duplicate),
            (Fact::Corrupt, self.corrupt),
            (Fact::Stale, self.stale.saturating_sub(self.seen.before_start)),
            (Fact::BeforeStart, self.seen.before_start),
            (Fact::Dropped, but_masked(&self.dropped)),
            (Fact::Missing, but_masked(&self.missing)),
            (Fact::InFlight, self.in_flight),
            (Fact::CrcErrors, self.seen.crc_errors),
            (Fact::FramesMissing, self.seen.frames_missing),
            (Fact::OutOfOrder, self.seen.frames_out_of_order),
            (Fact::AfterStop, self.after_stop),
            (Fact::Masked, self.dropped.get(masked).and_then(Value::as_u64).unwrap_or(0)),
        ])
    }
}

impl EventSummary {
    fn new(events: &EventAccount) -> Self {
        Self {
            assigned: events.assigned,
            built: events.built,
            incomplete_emitted: events.incomplete_emitted,
            incomplete_dropped: events.incomplete_dropped.total(),
            incomplete_dropped_by_cause: causes(&events.incomplete_dropped),
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
    /// The summary of what is known now.
    pub(super) fn new(
        snapshot: &RunSnapshot,
        directory: PathBuf,
        parts: Parts<'_>,
        forced: bool,
        times: Durations,
    ) -> Self {
        let counter = |counter| snapshot.counter(counter);
        let events = &snapshot.ledger.events;
        let imbalances: Vec<Value> = (snapshot.ledger.imbalances().iter())
            .map(|one| json!({ "equation": one.equation, "left": one.left, "right": one.right }))
            .collect();
        let per_second = |count: u64| if times.running > 0.0 { count as f64 / times.running } else { 0.0 };
        let state = if forced { "forced".to_owned() } else { snapshot.phase.name().to_owned() };
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
            fragments: FragmentSummary::new(&snapshot.ledger.fragments, seen(snapshot), &doubts(snapshot)),
            events: EventSummary::new(events),
            bytes: json!({
                "payload_received": counter(Counter::PayloadBytesReceived),
                "wire_received": counter(Counter::WireBytesReceived),
                "written": counter(Counter::BytesWritten),
            }),
            rate: json!({
                "events_per_s": per_second(times.events_when_stopped),
                "bytes_per_s": per_second(times.bytes_when_stopped),
            }),
            datagrams: datagrams(snapshot),
            copies: json!({ "bytes": counter(Counter::BytesCopied) }),
            cards: CardSummary::new(snapshot),
            synchrony: snapshot.synchrony.iter().map(SynchronySummary::new).collect(),
            deleted: json!({
                "cause": ropewalk_terms::Cause::KeptNewest.name(),
                "segments": counter(Counter::SegmentsDeleted),
                "events": counter(Counter::EventsDeleted),
                "bytes": counter(Counter::BytesDeleted),
            }),
            disk: disks(snapshot),
            transfer: None,
            ledger: json!({ "balanced": imbalances.is_empty(), "unbalanced": imbalances }),
            status: StatusSummary::default(),
            by_source: by_source(snapshot),
            partial: partial(snapshot),
            gaps: gaps(snapshot),
            numbering: numbering(snapshot),
            masked: masked(snapshot),
            measures: BTreeMap::new(),
            histograms: Vec::new(),
            inputs: Vec::new(),
            front_ends: None,
            filter: FilterSummary::new(snapshot),
            file_based: None,
            streams: filter_summary::streams(snapshot, parts.streams),
            lumisections: parts.lumisections.iter().map(LumisectionSummary::new).collect(),
            stopped_by: snapshot.stopped_by.map(ropewalk_terms::Cause::name),
            warnings: Vec::new(),
        }
        .judged()
    }

    /// The same with its status, after whatever was added to it.
    #[must_use]
    pub(super) fn judged(mut self) -> Self {
        self.status = StatusSummary::of(&self.facts(), Asked::Taken);
        self
    }

    /// The same with what front ends under run control say, whose equations join the ledger.
    #[must_use]
    pub(super) fn with_front_ends(mut self, front_ends: FrontEndsSummary) -> Self {
        add_unbalanced(&mut self.ledger, front_ends.unbalanced.iter().cloned());
        self.front_ends = Some(front_ends);
        self.judged()
    }

    /// The same with what filter units made of files of events, whose equations join the ledger.
    #[must_use]
    pub(super) fn with_file_based(mut self, mut file_based: FileBasedSummary) -> Self {
        add_unbalanced(&mut self.ledger, file_based.unbalanced.drain(..));
        self.warnings.append(&mut file_based.failures);
        self.file_based = Some(file_based);
        self.judged()
    }

    /// The same, where these threads panicked: what they had counted is what they told of themselves before.
    #[must_use]
    pub(super) fn with_panicked(mut self, threads: &[String]) -> Self {
        add_unbalanced(&mut self.ledger, panicked(threads));
        self.judged()
    }

    /// The same with what is left of the disks of this process.
    #[must_use]
    pub(super) fn with_disk_left(mut self, left: Option<DiskLeft>) -> Self {
        self.disk["free_bytes"] = json!(left.map(|left| left.free_bytes));
        self.disk["seconds_left"] = json!(left.and_then(|left| left.time).map(|time| time.as_secs()));
        self
    }

    /// Keeps the account in the run's directory, in the place of event managers' claims.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        whole_file::write(&self.directory.join(ACCOUNT), (text + "\n").as_bytes())?;
        Claim::forget(&self.directory)
    }

    /// Every equation of the ledger holds.
    pub fn is_balanced(&self) -> bool {
        self.ledger["balanced"] == true
    }

    /// Nothing was lost, misplaced or doubtful.
    pub const fn is_lossless(&self) -> bool {
        self.status.is_good()
    }

    /// What its exit status depends on.
    fn facts(&self) -> Facts {
        let (events, cards) = (&self.events, &self.cards);
        let decided_away = events.rejected + events.unselected;
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
        let unbalanced = self.ledger["unbalanced"].as_array().map_or(0, Vec::len);
        let displaced = self.synchrony.iter().filter(|state| matches!(state.verdict, "offset" | "lost")).count();
        let without_event = |front_ends: &FrontEndsSummary| front_ends.without_event();
        // What strangers sent that makes no sense is no source's, and no loss.
        let garbage = self.by_source.values().map(|source| number(source, "garbage_bytes")).sum();
        self.fragments.facts().and(&InputSummary::facts(&self.inputs)).with([
            (Fact::GarbageBytes, garbage),
            (Fact::Forced, u64::from(self.state == "forced")),
            (Fact::Unbalanced, unbalanced as u64),
            (Fact::Partial, self.partial.len() as u64),
            (Fact::DatagramsLost, number(&self.datagrams, "lost")),
            (Fact::DatagramsNobodys, number(&self.datagrams, "nobodys")),
            (Fact::CardBlocksDamaged, cards.blocks_damaged),
            (Fact::CardBlocksMissing, cards.blocks_missing),
            (Fact::CardChunksGivenUp, cards.given_up),
            // What was in the rest of such a block nobody knows.
            (Fact::CardBytesLeftOver, cards.left_over_bytes),
            (Fact::Synchrony, displaced as u64),
            (Fact::Incomplete, events.incomplete_emitted),
            (Fact::EventsDropped, events.incomplete_dropped),
            (Fact::EventsInFlight, events.in_flight),
            // At levels below `written` an event may be released that no file will ever hold.
            (Fact::Unwritten, events.built.saturating_sub(events.written + decided_away)),
            (Fact::Quarantined, events.quarantined),
            (Fact::StreamFailed, self.streams.values().map(|stream| stream.failed).sum()),
            (Fact::EventsOutOfOrder, self.filter.out_of_order),
            (Fact::EventsGone, number(&self.disk, "events_gone")),
            (Fact::FilesSetAside, self.file_based.as_ref().map_or(0, |files| files.set_aside)),
            (Fact::TriggersWithoutEvent, self.front_ends.as_ref().map_or(0, without_event)),
            (Fact::Rejected, decided_away),
            (Fact::KeptNewest, number(&self.deleted, "events")),
            (Fact::SecondCopies, events.rebuilt_duplicate),
        ])
    }
}

impl CardSummary {
    fn new(snapshot: &RunSnapshot) -> Self {
        let counter = |counter| snapshot.counter(counter);
        let chunks = &snapshot.ledger.chunks;
        Self {
            blocks: counter(Counter::CardBlocks),
            blocks_damaged: counter(Counter::CardBlocksDamaged),
            blocks_missing: counter(Counter::CardBlocksMissing),
            chunks: counter(Counter::CardChunks),
            given_up: counter(Counter::CardChunksGivenUp),
            flagged: counter(Counter::CardChunksFlagged),
            nobodys: counter(Counter::CardChunksNobodys),
            signals: counter(Counter::CardSignals),
            stalls: counter(Counter::CardStalls),
            left_over_bytes: counter(Counter::CardBytesLeftOver),
            subscribers: SubscriberSummary {
                joined: counter(Counter::SubscribersJoined),
                offered: chunks.offered,
                sent: chunks.sent,
                dropped: chunks.dropped,
                moved: chunks.moved,
                queued: chunks.queued,
                copied_bytes: counter(Counter::ChunkBytesCopied),
                down_refused: counter(Counter::DownLinkRefused),
            },
        }
    }
}

impl SynchronySummary {
    fn new(state: &ropewalk_flow::messages::SynchronyState) -> Self {
        let verdict = match state.verdict {
            1 => "in_sync",
            2 => "offset",
            3 => "lost",
            _ => "cannot_tell",
        };
        Self { source: state.source.0, verdict, offset: state.offset, since: state.since.to_string() }
    }
}

/// More that does not hold joins an account's ledger.
pub(super) fn add_unbalanced(ledger: &mut Value, more: impl IntoIterator<Item = Value>) {
    if let Some(unbalanced) = ledger["unbalanced"].as_array_mut() {
        unbalanced.extend(more);
        ledger["balanced"] = unbalanced.is_empty().into();
    }
}

/// Threads that panicked, as something that does not hold.
pub(super) fn panicked(threads: &[String]) -> impl Iterator<Item = Value> {
    threads.iter().map(|thread| json!({ "equation": "every thread ended by itself", "thread": thread }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let told = datagrams(&snapshot);
        assert_eq!(told["lost_by_cause"], json!({ "truncated": 2, "socket_queue_full": 2 }));
        assert_eq!(told["lost_by_source"], json!({ "8": { "truncated": 2 } }));
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
        assert_eq!(summary.by_source["8"]["flagged"], json!({ "wrong_source": 4, "bunch_crossing_mismatch": 3 }));
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
