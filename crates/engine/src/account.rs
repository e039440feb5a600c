//! The event manager's state of the whole run, and the ledger derived from it.
//!
//! [`Standing`] is written by the manager's thread. It is flat, and a copy allocates nothing once the target has its
//! size. Readers derive [`RunSnapshot`] from it on their own threads.

#[cfg(test)]
mod tests;

use crate::hearing::Hearing;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::{FragmentFlags, Gap, GapPart, NumberingAnomaly, Report, ReportEntry, SynchronyState};
use ropewalk_terms::{
    ByCause, COUNTERS, Cause, ChunkAccount, Counter, CounterKind, EventAccount, EventKey, FragmentAccount, Incarnation,
    Ledger, NodeId, Role, RunNumber, SourceCounts, SourceId, StreamAccount, StreamIndex,
};
use std::collections::BTreeMap;

type Number = ((Option<SourceId>, u16), u64);

/// Initial capacity, in nodes and in sources.
const ROOM: usize = 1024;
/// Maximum number of ended displacements that are kept individually.
const MOST_HEALED: usize = 64;
/// Initial capacity for the numbers of one node. A readout unit reports about ten for each source.
const NUMBERS: usize = 4096;

/// The latest numbers reported by one incarnation of a node.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Whether the node is connected and the numbers are current. Otherwise they are the last known ones.
    pub connected: bool,
    /// Whether the node has finished: these are its final numbers.
    has_ended: bool,
    /// Ordered by source and number.
    numbers: Vec<Number>,
    /// Entries of a report that is still incomplete. They are applied together, because only the numbers of one moment
    /// balance, and a node may die in the middle of a report.
    pending: Vec<ReportEntry>,
}

impl NodeReport {
    fn new(node: NodeId, incarnation: Incarnation) -> Self {
        let (numbers, pending) = (Vec::with_capacity(NUMBERS), Vec::with_capacity(NUMBERS));
        Self { node, incarnation, connected: true, has_ended: false, numbers, pending }
    }

    /// Adds one part of a report.
    fn take(&mut self, report: &Report) {
        self.pending.extend(&report.entries);
        if report.last {
            let mut pending = core::mem::take(&mut self.pending);
            pending.drain(..).for_each(|entry| self.set(&entry));
            self.pending = pending;
        }
    }

    fn set(&mut self, entry: &ReportEntry) {
        let key = (entry.source, entry.what);
        match self.numbers.binary_search_by_key(&key, |&(key, _)| key) {
            Ok(place) => self.numbers[place].1 = entry.value,
            Err(place) => self.numbers.insert(place, (key, entry.value)),
        }
    }

    /// Returns all reported numbers: those of the node itself, then those of each source.
    pub(super) fn told(&self) -> impl Iterator<Item = Told<'_>> {
        let told = self.numbers.chunk_by(|((one, _), _), ((other, _), _)| one == other);
        told.map(|numbers| Told { source: numbers[0].0.0, connected: self.connected, numbers })
    }

    /// Returns the first event of this incarnation, if it joined a run that had already begun.
    fn begun(&self) -> Option<EventKey> {
        let mut entries = self.told().filter_map(|told| told.entries().find(ReportEntry::is_begun));
        entries.next().map(|entry| EventKey::from_bits(entry.value)).filter(|&key| key > EventKey::MIN)
    }

    fn copy_from(&mut self, other: &Self) {
        (self.node, self.incarnation, self.connected) = (other.node, other.incarnation, other.connected);
        self.has_ended = other.has_ended;
        self.numbers.clone_from(&other.numbers);
    }
}

/// The numbers that one incarnation of a node reported about itself or about one source. A builder unit reports each
/// stream in the same way, by the stream's number.
pub(super) struct Told<'a> {
    pub(super) source: Option<SourceId>,
    /// See [`NodeReport::connected`].
    pub(super) connected: bool,
    numbers: &'a [Number],
}

impl Told<'_> {
    /// Returns the numbers in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        self.numbers.iter().map(|&((source, what), value)| ReportEntry { source, what, value })
    }
}

/// The state of the run as the manager knows it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Phase of the run.
    pub phase: RunPhase,
    /// Whether event building is paused.
    pub is_paused: bool,
    /// Run number; 0 before the first run.
    pub run: RunNumber,
    /// Configured nodes, each with whether it is connected.
    pub nodes: Vec<(NodeId, bool)>,
    /// When each node was last heard.
    pub hearing: Hearing,
    /// The manager's own account of the events.
    pub events: EventAccount,
    /// Whether an acknowledgement means that the event is in a file.
    pub is_written_when_acknowledged: bool,
    /// The latest synchrony verdict about each source, as reported by builder units.
    pub synchrony: Vec<SynchronyState>,
    /// The builder unit that reported each verdict of `synchrony`.
    judges: Vec<NodeId>,
    /// Verdicts about sources that were displaced, each with the first event in which the source was in step again.
    pub healed: Vec<(SynchronyState, EventKey)>,
    /// Why the run stopped, if a node requested it.
    pub stopped_by: Option<Cause>,
    /// Readout units whose earlier incarnation reported only to other event managers, each with the first event of the
    /// current incarnation.
    pub untold: Vec<(NodeId, EventKey)>,
    reports: Vec<NodeReport>,
}

/// Verdicts of [`SynchronyState`]; higher ones are displacements.
const CANNOT_TELL: u8 = 0;
const IN_SYNC: u8 = 1;

impl Default for Standing {
    fn default() -> Self {
        Self {
            phase: RunPhase::default(),
            is_paused: false,
            run: RunNumber(0),
            nodes: Vec::new(),
            hearing: Hearing::default(),
            events: EventAccount::default(),
            is_written_when_acknowledged: false,
            synchrony: Vec::with_capacity(ROOM),
            judges: Vec::with_capacity(ROOM),
            healed: Vec::with_capacity(MOST_HEALED),
            stopped_by: None,
            untold: Vec::new(),
            reports: Vec::with_capacity(ROOM),
        }
    }
}

const fn has_begun(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::Running | RunPhase::Draining | RunPhase::Ended)
}

impl Standing {
    /// Records a new incarnation of a node. The numbers of earlier incarnations are kept beside it.
    pub(super) fn node_connected(&mut self, node: NodeId, incarnation: Incarnation) {
        match self.report_of(node, incarnation) {
            Some(report) => {
                report.connected = true;
                report.pending.clear();
            }
            None => self.reports.push(NodeReport::new(node, incarnation)),
        }
    }

    /// Records that a node is lost. Its numbers are kept.
    pub(super) fn node_lost(&mut self, node: NodeId, incarnation: Incarnation) {
        let has_begun = has_begun(self.phase);
        if let Some(report) = self.report_of(node, incarnation) {
            report.connected = false;
            // Anything before the beginning of the run is not part of it.
            report.has_ended |= !has_begun;
        }
    }

    /// Records that a node has reported everything.
    pub(super) fn node_finished(&mut self, node: NodeId, incarnation: Incarnation) {
        if let Some(report) = self.report_of(node, incarnation) {
            report.has_ended = true;
        }
    }

    /// Returns the gaps in the knowledge about readout units, per incarnation. If one died, its counts since its last
    /// report are unknown. If its event manager died as well, everything reported to that manager is unknown.
    fn unknown(&self) -> Vec<(NodeId, Unknown)> {
        let mut unknown = Vec::new();
        let nodes = self.nodes.iter().filter(|(node, _)| node.role == Role::Readout);
        for &(node, _) in nodes.filter(|_| has_begun(self.phase) && self.run != RunNumber(0)) {
            let lives = || self.reports.iter().filter(|report| report.node == node);
            match lives().min_by_key(|report| report.incarnation) {
                None => unknown.push((node, Unknown::Everything)),
                Some(first) => {
                    let untold = self.untold.iter().find(|(untold, _)| *untold == node).map(|(_, key)| *key);
                    unknown.extend(untold.or_else(|| first.begun()).map(|key| (node, Unknown::Before(key))));
                }
            }
            let died = lives().filter(|report| !report.connected && !report.has_ended);
            unknown.extend(died.map(|_| (node, Unknown::SinceLastReport)));
        }
        unknown
    }

    /// Records a node's report.
    pub(super) fn reported(&mut self, node: NodeId, incarnation: Incarnation, report: &Report) {
        if let Some(known) = self.report_of(node, incarnation) {
            known.take(report);
        }
    }

    /// Records a number of a node that the node does not report itself.
    pub(super) fn noted(&mut self, node: NodeId, incarnation: Incarnation, entry: &ReportEntry) {
        if let Some(known) = self.report_of(node, incarnation) {
            known.set(entry);
        }
    }

    /// Records a builder unit's verdict about a source. Each builder unit judges from the events that it builds. It may
    /// therefore report later than another one, about an earlier event.
    pub(super) fn judged(&mut self, judge: NodeId, state: SynchronyState) {
        let Some(place) = self.synchrony.iter().position(|known| known.source == state.source) else {
            self.synchrony.push(state);
            self.judges.push(judge);
            return;
        };
        let known = self.synchrony[place];
        let is_known = known.verdict != CANNOT_TELL && state.verdict != CANNOT_TELL;
        if is_known && (known.verdict, known.offset) == (state.verdict, state.offset) {
            self.synchrony[place].since = known.since.min(state.since);
            return;
        }
        if is_known && self.judges[place] != judge && state.since < known.since {
            return;
        }
        if known.verdict > IN_SYNC && state.verdict == IN_SYNC && self.healed.len() < MOST_HEALED {
            self.healed.push((known, state.since));
        }
        (self.synchrony[place], self.judges[place]) = (state, judge);
    }

    /// Returns the latest known incarnation of the node.
    pub(super) fn youngest(&self, node: NodeId) -> Option<Incarnation> {
        self.reports.iter().filter(|report| report.node == node).map(|report| report.incarnation).max()
    }

    /// Returns the reports of all incarnations of all nodes, in the order in which they were first seen.
    pub(super) fn reports(&self) -> &[NodeReport] {
        &self.reports
    }

    fn report_of(&mut self, node: NodeId, incarnation: Incarnation) -> Option<&mut NodeReport> {
        self.reports.iter_mut().find(|report| report.node == node && report.incarnation == incarnation)
    }

    /// Copies `other` into this value. Allocates only where `other` has grown.
    pub fn copy_from(&mut self, other: &Self) {
        (self.phase, self.run, self.stopped_by, self.events) = (other.phase, other.run, other.stopped_by, other.events);
        self.is_paused = other.is_paused;
        self.is_written_when_acknowledged = other.is_written_when_acknowledged;
        self.hearing.copy_from(&other.hearing);
        self.nodes.clone_from(&other.nodes);
        self.untold.clone_from(&other.untold);
        self.synchrony.clone_from(&other.synchrony);
        self.judges.clone_from(&other.judges);
        self.healed.clone_from(&other.healed);
        self.reports.truncate(other.reports.len());
        for (mine, theirs) in self.reports.iter_mut().zip(&other.reports) {
            mine.copy_from(theirs);
        }
        for theirs in &other.reports[self.reports.len()..] {
            // Not a clone: a clone would have no spare capacity.
            let mut mine = NodeReport::new(theirs.node, theirs.incarnation);
            mine.copy_from(theirs);
            self.reports.push(mine);
        }
    }
}

/// What is unknown about a node that died.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// Everything: the nodes that knew about it died as well, and it did not return.
    Everything,
    /// Everything before it returned at this event: its event manager died as well.
    Before(EventKey),
    /// Its counts between its last report and its death.
    SinceLastReport,
}

impl core::fmt::Display for Unknown {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Everything => {
                out.write_str("everything: it died with the event manager that knew of it, and did not come back")
            }
            Self::Before(key) => {
                write!(out, "everything before event {key}: it died with the event manager that knew of it")
            }
            Self::SinceLastReport => out.write_str("what it counted between its last report and its end"),
        }
    }
}

/// Number of fragments with each of [`FragmentFlags::DOUBTS`].
pub type Doubts = [u64; FragmentFlags::DOUBTS.len()];

/// The externally visible state of a run, live and at its end.
#[derive(Clone, Debug, Default)]
pub struct RunSnapshot {
    /// Phase of the run.
    pub phase: RunPhase,
    /// Whether event building is paused.
    pub is_paused: bool,
    /// Run number; 0 before the first run.
    pub run: RunNumber,
    /// Configured nodes, each with whether it is connected.
    pub nodes: Vec<(NodeId, bool)>,
    /// The account of every source, as last reported.
    pub sources: BTreeMap<SourceId, FragmentAccount>,
    /// Further counts of each source.
    pub counts: BTreeMap<SourceId, SourceCounts>,
    /// Doubtful fragments of each source. Sources without any are left out.
    pub doubts: BTreeMap<SourceId, Doubts>,
    /// Ranges of events in which a required, participating source is missing, per incarnation of its readout unit, in
    /// order. In all other events that this incarnation settled, the source has a fragment.
    pub gaps: BTreeMap<SourceId, Vec<Gap>>,
    /// Numbering anomalies of each source, per incarnation of its readout unit.
    pub numbering: BTreeMap<SourceId, Vec<NumberingAnomaly>>,
    /// What is unknown about readout units that died. If not empty, the account is partial.
    pub unknown: Vec<(NodeId, Unknown)>,
    /// Effects of masks on each source that was ever masked.
    pub masks: BTreeMap<SourceId, MaskRecord>,
    /// Datagrams that were lost before the readout unit received them, by source; `None` if several sources send to one
    /// port.
    pub lost_datagrams: BTreeMap<Option<SourceId>, ByCause>,
    /// The account of every stream, as last reported by builder units.
    pub streams: BTreeMap<StreamIndex, StreamAccount>,
    /// Sums over all sources, events, pools and streams.
    pub ledger: Ledger,
    /// The sum of each counter over all nodes.
    pub counters: BTreeMap<Counter, u64>,
    /// Nodes whose disk rejects writes for a reason other than lack of space, each with the error number of the
    /// operating system.
    pub failing_disks: Vec<(NodeId, i32)>,
    /// The latest synchrony verdict about each source.
    pub synchrony: Vec<SynchronyState>,
    /// Verdicts about sources that were displaced, each with the first event in which the source was in step again.
    pub healed: Vec<(SynchronyState, EventKey)>,
    /// Source connections that ended together with an incarnation of their readout unit, which therefore could not
    /// report the end. Sources that have reconnected are left out.
    pub orphans: BTreeMap<SourceId, u64>,
    /// Why the run stopped, if the stop was not requested.
    pub stopped_by: Option<Cause>,
}

impl RunSnapshot {
    /// Returns the sources with more fragments in complete events than there are complete events, and the difference.
    /// The event manager does not know some of these events, because it took over from a manager that left no record of
    /// them. Valid once the run is over.
    pub fn beyond_events(&self) -> impl Iterator<Item = (SourceId, u64)> + '_ {
        let built = self.ledger.events.built;
        let beyond =
            move |account: &FragmentAccount| account.in_complete_events.checked_sub(built).filter(|more| *more > 0);
        self.sources.iter().filter_map(move |(&id, account)| Some((id, beyond(account)?)))
    }

    /// Derives a snapshot from a standing.
    pub fn of(standing: &Standing) -> Self {
        let mut snapshot = Self {
            phase: standing.phase,
            is_paused: standing.is_paused,
            run: standing.run,
            nodes: standing.nodes.clone(),
            synchrony: standing.synchrony.clone(),
            healed: standing.healed.clone(),
            stopped_by: standing.stopped_by,
            unknown: standing.unknown(),
            ..Self::default()
        };
        snapshot.synchrony.sort_by_key(|state| state.source);
        let mut sums = Sums([None; Counter::COUNT]);
        for report in &standing.reports {
            for told in report.told() {
                match (told.source, report.node.role) {
                    (None, _) => snapshot.count_node(report.node, &told, &mut sums),
                    (Some(source), Role::Readout) => snapshot.count_source(source, &told, &mut sums),
                    (Some(stream), Role::Builder) => {
                        // The doubts of a source, or the numbers of a stream: their ids may coincide.
                        let (doubts, numbers): (Vec<_>, Vec<_>) =
                            told.entries().partition(|entry| entry.as_doubt().is_some());
                        doubts.iter().for_each(|entry| snapshot.count_doubt(stream, entry));
                        let stream = StreamIndex(stream.0 as u8);
                        numbers.iter().for_each(|entry| snapshot.count_stream(told.connected, stream, entry));
                    }
                    _ => {}
                }
            }
        }
        snapshot.counters = sums.told();
        for account in snapshot.sources.values() {
            snapshot.ledger.fragments.merge(account);
        }
        snapshot.streams.values().for_each(|account| snapshot.ledger.streams.merge(account));
        snapshot.ledger.pools.loans = snapshot.counter(Counter::PoolLoans);
        snapshot.ledger.pools.returned = snapshot.counter(Counter::PoolReturns);
        snapshot.ledger.pools.held = snapshot.counter(Counter::PoolHeld);
        snapshot.ledger.chunks = ChunkAccount {
            offered: snapshot.counter(Counter::ChunksOffered),
            sent: snapshot.counter(Counter::ChunksSent),
            dropped: snapshot.counter(Counter::ChunksDropped),
            moved: snapshot.counter(Counter::ChunksMoved),
            queued: snapshot.counter(Counter::ChunksQueued),
        };
        let written = if standing.is_written_when_acknowledged {
            standing.events.to_be_written()
        } else {
            // As last reported. For a builder unit that died this is less than its files hold; `verify` has the full
            // number.
            snapshot.counter(Counter::EventsWritten)
        };
        snapshot.ledger.events = EventAccount { written, ..standing.events };
        snapshot
    }

    /// Returns the sum of a counter over all nodes.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&counter).copied().unwrap_or(0)
    }

    fn count_doubt(&mut self, source: SourceId, entry: &ReportEntry) {
        if let Some(doubt) = entry.as_doubt() {
            self.doubts.entry(source).or_default()[doubt] += entry.value;
        }
    }

    /// Counts the numbers that a node reported about itself.
    fn count_node(&mut self, node: NodeId, told: &Told<'_>, sums: &mut Sums) {
        for entry in told.entries() {
            if let Some(cause) = entry.as_lost() {
                self.lost_datagrams.entry(None).or_default().add(cause, entry.value);
            } else if entry.as_counter() == Some(Counter::DiskFailing) {
                let error = i32::try_from(entry.value).ok().filter(|&error| error > 0);
                self.failing_disks.extend(error.map(|error| (node, error)));
            } else if let Some(counter) = entry.as_counter() {
                sums.add(counter, entry.value);
            }
        }
    }

    /// Counts the numbers that a readout unit reported about a source. Each map is looked up only once, because about a
    /// dozen numbers for each of hundreds of sources are read ten times a second.
    fn count_source(&mut self, source: SourceId, told: &Told<'_>, sums: &mut Sums) {
        let Self { sources, counts, gaps, numbering, masks, lost_datagrams, doubts, orphans, .. } = self;
        let (account, counts) = (sources.entry(source).or_default(), counts.entry(source).or_default());
        let (mut opened, mut closed) = (0, 0);
        for entry in told.entries() {
            let (value, key) = (entry.value, EventKey::from_bits(entry.value));
            if let Some(counter) = entry.as_counter() {
                let is_asked_back = value != 1;
                match counter {
                    Counter::SourceMasked if value == 0 || !told.connected => {}
                    Counter::SourceMasked => {
                        let part = if is_asked_back { Part::AskedBack } else { Part::Masked };
                        masks.entry(source).or_default().part = part;
                    }
                    _ if count_fragments(account, counter, value, told.connected) => {}
                    _ => {
                        match counter {
                            Counter::SourceConnections => opened = value,
                            Counter::SourceDisconnections => closed = value,
                            _ => {}
                        }
                        counts.add(counter, value);
                        if counter.kind() != CounterKind::State {
                            sums.add(counter, value);
                        }
                    }
                }
            } else if let Some(cause) = entry.as_cause() {
                account.dropped.add(cause, value);
            } else if let Some(cause) = entry.as_missing() {
                account.missing.add(cause, value);
            } else if let Some(cause) = entry.as_lost() {
                lost_datagrams.entry(Some(source)).or_default().add(cause, value);
            } else if let Some(doubt) = entry.as_doubt() {
                doubts.entry(source).or_default()[doubt] += value;
            } else if entry.is_begun() {
                masks.get_mut(&source).into_iter().for_each(|record| record.begin(key));
            } else if let Some(turn) = entry.as_turn() {
                masks.entry(source).or_default().turn(turn, key);
            } else if let Some((_, part)) = entry.as_gap() {
                count_gap(gaps.entry(source).or_default(), part, value);
            } else if entry.is_anomaly() {
                entry.add_to(numbering.entry(source).or_default());
            }
        }
        // A source that has reconnected has left the previous incarnation.
        let before = if opened > 0 { orphans.remove(&source) } else { None };
        before.into_iter().for_each(|left| sums.add(Counter::SourceDisconnections, left));
        if !told.connected && opened > closed {
            orphans.insert(source, opened - closed);
        }
    }

    fn count_stream(&mut self, connected: bool, stream: StreamIndex, entry: &ReportEntry) {
        let account = self.streams.entry(stream).or_default();
        match entry.as_counter() {
            Some(Counter::StreamSelected) => account.selected += entry.value,
            Some(Counter::StreamPrescaledAway) => account.prescaled_away += entry.value,
            Some(Counter::StreamWritten) => account.written += entry.value,
            Some(Counter::StreamFailed) => account.failed += entry.value,
            Some(Counter::StreamInFlight) if connected => account.in_flight += entry.value,
            // Events that a builder unit had in flight when it was last heard are lost with it, and selected again
            // elsewhere. The number is 0 if it ended in order.
            Some(Counter::StreamInFlight) => account.failed += entry.value,
            _ => {}
        }
    }
}

/// Adds a counter to a source's account. Returns false if the account does not contain this counter.
fn count_fragments(account: &mut FragmentAccount, counter: Counter, value: u64, connected: bool) -> bool {
    match counter {
        Counter::FragmentsReceived => account.received += value,
        Counter::FragmentsComplete => account.in_complete_events += value,
        Counter::FragmentsIncomplete => account.in_incomplete_events += value,
        Counter::FragmentsDuplicate => account.duplicate += value,
        Counter::FragmentsLate => account.late += value,
        Counter::FragmentsCorrupt => account.corrupt += value,
        Counter::FragmentsStale => account.stale += value,
        Counter::FragmentsAfterStop => account.after_stop += value,
        Counter::FragmentsInDroppedEvents => account.in_dropped_events += value,
        Counter::FragmentsInFlight if connected => account.in_flight += value,
        // Fragments that a readout unit held when it was last heard are lost with it. The number is 0 if it ended in
        // order.
        Counter::FragmentsInFlight => account.dropped.add(Cause::ReadoutLost, value),
        _ => return false,
    }
    true
}

/// Adds one part of a gap. The parts of a gap arrive in order.
fn count_gap(gaps: &mut Vec<Gap>, part: GapPart, value: u64) {
    let key = EventKey::from_bits(value);
    match (part, gaps.last_mut()) {
        (GapPart::First, _) => gaps.push(Gap { first: key, last: key, missing: 1 }),
        (GapPart::Last, Some(gap)) => gap.last = key,
        (GapPart::Missing, Some(gap)) => gap.missing = value,
        (GapPart::Last | GapPart::Missing, None) => {}
    }
}

/// The sum of each reported counter.
struct Sums([Option<u64>; Counter::COUNT]);

impl Sums {
    fn add(&mut self, counter: Counter, value: u64) {
        *self.0[counter as usize].get_or_insert(0) += value;
    }

    fn told(self) -> BTreeMap<Counter, u64> {
        COUNTERS.iter().zip(self.0).filter_map(|(&counter, sum)| Some((counter, sum?))).collect()
    }
}

/// A range of events in which a source did not take part, because it was masked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MaskedInterval {
    /// The first event of the range.
    pub from: EventKey,
    /// The first event in which the source took part again; `None` if it did not.
    pub to: Option<EventKey>,
}

/// Whether a source takes part in the current run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// The source takes part.
    #[default]
    Takes,
    /// The source is masked.
    Masked,
    /// The source is to take part again, but has not yet sent any data that continues the run's numbers.
    AskedBack,
}

/// Effects of masks on a source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MaskRecord {
    /// Whether the source takes part now.
    pub part: Part,
    /// Ranges of events in which it did not take part, in order.
    pub intervals: Vec<MaskedInterval>,
}

impl MaskRecord {
    /// Begins another incarnation of the readout unit, in which the source takes part. The previous incarnation may not
    /// have reported its last changes.
    pub(super) fn begin(&mut self, key: EventKey) {
        self.intervals.retain(|interval| interval.from < key);
        if let Some(open) = self.intervals.last_mut() {
            open.to.get_or_insert(key);
        }
    }

    /// Applies the source's next change within one incarnation of its readout unit. If the previous incarnation ended
    /// while the source was masked, the new one continues that range.
    pub(super) fn turn(&mut self, turn: usize, key: EventKey) {
        let last = self.intervals.last_mut();
        match last.filter(|last| last.to.is_none()) {
            Some(last) if turn % 2 == 1 => last.to = Some(key),
            None if turn.is_multiple_of(2) => self.intervals.push(MaskedInterval { from: key, to: None }),
            _ => {}
        }
    }
}
