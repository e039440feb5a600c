//! The account of fragments and of single sources: `fragments`, `by_source`, `gaps`, `numbering`, `masked`, `synchrony`
//! and `inputs`.

use ropewalk_config::ByteOrigin;
use ropewalk_engine::{Doubts, MaskRecord, MaskedInterval, RunSnapshot};
use ropewalk_flow::messages::{FragmentFlags, Gap, NumberingAnomaly, NumberingKind, SynchronyState};
use ropewalk_monitor::synchrony::Relation;
use ropewalk_terms::{Cause, Counter, EventKey, Fact, Facts, FragmentAccount, SourceCounts, SourceId};
use ropewalk_tools::Packing;
use ropewalk_tools::foreign::{CutOff, HoleReport, Passed};
use ropewalk_tools::status::named;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Where fragments went: received = in_complete_events + in_incomplete_events + duplicate + late + corrupt + stale +
/// after_stop + the sum of dropped + in_flight.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FragmentSummary {
    /// Where they went.
    #[serde(flatten)]
    pub account: FragmentAccount,
    /// Doubtful fragments in events, by flag. Wrong checksums are in `crc_errors`.
    #[schemars(with = "BTreeMap<String, NonZeroU64>")]
    pub flagged: BTreeMap<&'static str, u64>,
    /// Times at which a source began to count anew, whether its fragments found their events again or not.
    pub restarts: u64,
    /// Further counts.
    #[serde(flatten)]
    pub counts: SourceCounts,
}

/// Returns the doubtful fragments of all sources.
fn doubts(snapshot: &RunSnapshot) -> Doubts {
    let mut sums = Doubts::default();
    for of_source in snapshot.doubts.values() {
        sums.iter_mut().zip(of_source).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// Returns them by name, without wrong checksums, which have their own count.
fn flagged(doubts: &Doubts) -> BTreeMap<&'static str, u64> {
    let by_flag = FragmentFlags::DOUBTS.into_iter().zip(*doubts);
    by_flag
        .filter(|((flag, _), count)| *flag != FragmentFlags::CRC_ERROR && *count > 0)
        .map(|((_, name), count)| (name, count))
        .collect()
}

/// Returns how often a source with these anomalies began to count anew.
fn restarts(numbering: &[NumberingAnomaly]) -> u64 {
    let is_restart = |one: &&NumberingAnomaly| matches!(one.kind, NumberingKind::Restart | NumberingKind::OutOfSync);
    numbering.iter().filter(is_restart).count() as u64
}

impl std::ops::Deref for FragmentSummary {
    type Target = FragmentAccount;

    fn deref(&self) -> &FragmentAccount {
        &self.account
    }
}

impl FragmentSummary {
    /// Creates the summary of all sources together.
    pub(super) fn of_all(snapshot: &RunSnapshot) -> Self {
        let counts = SourceCounts::of(|counter| snapshot.counter(counter));
        let restarts = snapshot.numbering.values().map(|all| restarts(all)).sum();
        Self { restarts, ..Self::new(snapshot.ledger.fragments, counts, &doubts(snapshot)) }
    }

    /// Creates the summary of each source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Self> {
        let summary = |(id, account): (&SourceId, &FragmentAccount)| {
            let counts = snapshot.counts.get(id).copied().unwrap_or_default();
            let doubts = snapshot.doubts.get(id).copied().unwrap_or_default();
            let restarts = snapshot.numbering.get(id).map_or(0, |all| restarts(all));
            (id.to_string(), Self { restarts, ..Self::new(*account, counts, &doubts) })
        };
        snapshot.sources.iter().map(summary).collect()
    }

    fn new(account: FragmentAccount, counts: SourceCounts, doubts: &Doubts) -> Self {
        Self { account, flagged: flagged(doubts), restarts: 0, counts }
    }

    /// Returns the facts for the exit status.
    pub(super) fn facts(&self) -> Facts {
        let account = &self.account;
        let dropped = account.dropped.total() - account.dropped.get(Cause::Masked);
        let flagged = self.flagged.iter().map(|(name, count)| (*name, *count));
        let before_start = self.counts.get(Counter::FragmentsBeforeStart);
        Facts::default().with(named(flagged)).with([
            (Fact::Late, account.late),
            (Fact::Duplicate, account.duplicate),
            (Fact::Corrupt, account.corrupt),
            (Fact::Stale, account.stale.saturating_sub(before_start)),
            (Fact::BeforeStart, before_start),
            (Fact::Dropped, dropped),
            (Fact::Missing, account.never_came()),
            (Fact::InFlight, account.in_flight),
            (Fact::CrcErrors, self.counts.get(Counter::CrcErrors)),
            (Fact::FramesMissing, self.counts.get(Counter::FramesMissing)),
            (Fact::OutOfOrder, self.counts.get(Counter::FramesOutOfOrder)),
            (Fact::Restarts, self.restarts),
            (Fact::AfterStop, account.after_stop),
            (Fact::Masked, account.dropped.get(Cause::Masked)),
        ])
    }
}

/// Events, both ends included, in some of which a source is missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GapSummary {
    /// The first event in which it is missing: `17`, or `2:17` after two resynchronisations.
    pub first: String,
    /// The last one.
    pub last: String,
    /// The number of these events in which it is missing.
    #[schemars(range(min = 1))]
    pub missing: u64,
}

/// An irregularity in the numbers of a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NumberingSummary {
    /// The event that was expected next.
    pub event: String,
    /// The number before.
    pub from: u64,
    /// `begin`: counting began with this number, as the sources agreed. `left_over`: fragments of an earlier run.
    /// `wrong_number`: the following numbers disproved it. `gap`: numbers are missing. `restart`: numbering began
    /// again. `recovered`: after a restart the place in the run was found by bunch crossings or time stamps.
    /// `out_of_sync`: nothing tells it, and its fragments are in no event.
    #[schemars(extend("enum" = NumberingKind::ALL.map(NumberingKind::name)))]
    pub kind: &'static str,
    /// Events or fragments concerned.
    pub size: u64,
    /// The number received.
    pub to: u64,
}

/// Events in which a source took no part because it was masked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MaskedSummary {
    /// The first of them: `17`, or `2:17` after two resynchronisations.
    pub from: String,
    /// The first event in which it took part again; null if it did not.
    pub to: Option<String>,
}

/// Whether the numbers of a source fit those of the reference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SynchronySummary {
    /// The source's id.
    pub source: u32,
    /// The verdict.
    pub verdict: SynchronyVerdict,
    /// Events by which it is displaced; positive: early.
    pub offset: i16,
    /// The first displaced event.
    pub since: String,
    /// Slips that ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub healed: Vec<HealedSlip>,
}

/// A range of events in which a source was out of step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HealedSlip {
    /// Events by which it was displaced; positive: early; `null` if it had no fixed relation to the reference.
    pub offset: Option<i16>,
    /// The first displaced event.
    pub since: String,
    /// The first event in which it was in step again.
    pub until: String,
}

/// The verdict about one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SynchronyVerdict {
    /// It fits.
    InSync,
    /// It is displaced by a fixed number of events.
    Offset,
    /// There is no fixed relation to the reference.
    Lost,
    /// Too little is known.
    CannotTell,
}

impl GapSummary {
    /// Returns the gaps of each source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        snapshot.gaps.iter().map(|(id, gaps)| (id.to_string(), gaps.iter().map(Self::from).collect())).collect()
    }
}

impl From<&Gap> for GapSummary {
    fn from(gap: &Gap) -> Self {
        Self { first: gap.first.to_string(), last: gap.last.to_string(), missing: gap.missing }
    }
}

impl NumberingSummary {
    /// Returns the anomalies of each source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        snapshot.numbering.iter().map(|(id, all)| (id.to_string(), all.iter().map(Self::from).collect())).collect()
    }

    /// Returns the last restart of a source, among all its anomalies, after which its place in the run was not found.
    pub fn out_of_sync(all: &[Self]) -> Option<&Self> {
        let last = all.iter().rfind(|one| one.is(NumberingKind::OutOfSync) || one.is(NumberingKind::Recovered))?;
        Some(last).filter(|last| last.is(NumberingKind::OutOfSync))
    }

    /// Returns whether it is of this kind.
    pub fn is(&self, kind: NumberingKind) -> bool {
        self.kind == kind.name()
    }
}

impl From<&NumberingAnomaly> for NumberingSummary {
    fn from(&NumberingAnomaly { kind, key, from, to, size }: &NumberingAnomaly) -> Self {
        Self { event: key.to_string(), from, kind: kind.name(), size, to }
    }
}

impl MaskedSummary {
    /// Returns the masked ranges of each source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        let of = |record: &MaskRecord| record.intervals.iter().map(Self::from).collect();
        snapshot.masks.iter().map(|(id, record)| (id.to_string(), of(record))).collect()
    }
}

impl From<&MaskedInterval> for MaskedSummary {
    fn from(interval: &MaskedInterval) -> Self {
        Self { from: interval.from.to_string(), to: interval.to.map(|to| to.to_string()) }
    }
}

impl SynchronySummary {
    pub(super) fn new(snapshot: &RunSnapshot, state: &SynchronyState) -> Self {
        let verdict = match state.verdict {
            1 => SynchronyVerdict::InSync,
            2 => SynchronyVerdict::Offset,
            3 => SynchronyVerdict::Lost,
            _ => SynchronyVerdict::CannotTell,
        };
        let offset = if verdict == SynchronyVerdict::Offset { state.offset } else { 0 };
        let healed = snapshot.healed.iter().filter(|(slip, _)| slip.source == state.source).map(HealedSlip::from);
        Self { source: state.source.0, verdict, offset, since: state.since.to_string(), healed: healed.collect() }
    }

    /// Returns its relation to the reference; `None` while too little is known.
    pub(super) fn relation(&self) -> Option<(SourceId, Relation)> {
        let offset = match self.verdict {
            SynchronyVerdict::InSync => Some(0),
            SynchronyVerdict::Offset => Some(self.offset),
            SynchronyVerdict::Lost => None,
            SynchronyVerdict::CannotTell => return None,
        };
        Some((SourceId(self.source), Relation { offset, since: self.since.parse().ok()? }))
    }

    /// Returns sentences on its ended slips: `calo was one event late from event 5105 on, and in step again from event
    /// 5635 on`.
    pub(super) fn healed(&self, name: &str) -> impl Iterator<Item = String> {
        self.healed.iter().map(move |HealedSlip { offset, since, until }| {
            let how = match offset {
                Some(offset) => {
                    let by =
                        if offset.abs() == 1 { "one event".to_owned() } else { format!("{} events", offset.abs()) };
                    format!("was {by} {}", if *offset > 0 { "early" } else { "late" })
                }
                None => "had no fixed relation to the other sources".to_owned(),
            };
            format!("{name} {how} from event {since} on, and is in step again from event {until} on")
        })
    }

    /// Returns whether it is or was displaced or lost.
    pub(super) const fn is_displaced(&self) -> bool {
        matches!(self.verdict, SynchronyVerdict::Offset | SynchronyVerdict::Lost) || !self.healed.is_empty()
    }
}

impl From<&(SynchronyState, EventKey)> for HealedSlip {
    fn from((slip, until): &(SynchronyState, EventKey)) -> Self {
        let offset = (slip.verdict == 2).then_some(slip.offset);
        Self { offset, since: slip.since.to_string(), until: until.to_string() }
    }
}

/// A file that was read instead of a source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InputSummary {
    /// The source, or the first of the sources that share it.
    pub source: String,
    /// Where it is.
    pub path: String,
    /// The bytes read.
    pub state: InputState,
    /// What is wrong, where it breaks off or is unreadable.
    pub why: Option<String>,
    /// How it is packed.
    pub packing: Packing,
    /// Whether it is a capture.
    pub is_capture: bool,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Packets of a capture that were the source's.
    pub packets: u64,
    /// Packets of a capture that were none of the source, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Unreadable packets of a capture: truncated, damaged, or with wrong lengths or checksums.
    pub unreadable_packets: u64,
    /// Places at which a capture misses bytes of the source's connection.
    pub holes: u64,
    /// How many bytes it misses there.
    pub missed_bytes: u64,
    /// Bytes around these places that belong to no whole frame.
    pub dropped_bytes: u64,
    /// The first of these places.
    pub first_holes: Vec<HoleReport>,
    /// Datagrams of a capture of which some IP fragments are missing.
    pub unfinished_datagrams: u64,
    #[serde(skip)]
    has_some: bool,
}

/// How far a file was read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputState {
    /// To its end.
    Read,
    /// Until the run was stopped.
    Stopped,
    /// Until it broke off.
    CutOff,
    /// Not at all.
    Unreadable,
}

impl InputSummary {
    /// Creates the summary of a file that was read. `is_over`: the run was stopped before.
    pub(super) fn new(source: &str, origin: &ByteOrigin, read: &Result<Passed, String>, is_over: bool) -> Self {
        let (passed, failed) = match read {
            Ok(passed) => (passed.clone(), None),
            Err(error) => (Passed::default(), Some(error.clone())),
        };
        let state = match (&failed, &passed.cut_off) {
            (Some(_), _) => InputState::Unreadable,
            (None, Some(_)) => InputState::CutOff,
            (None, None) if is_over => InputState::Stopped,
            (None, None) => InputState::Read,
        };
        Self {
            source: source.to_owned(),
            path: origin.path().display().to_string(),
            state,
            has_some: passed.has_some(),
            unreadable_packets: passed.unreadable_packets(),
            why: failed.or(passed.cut_off.map(|CutOff { why, .. }| why)),
            packing: passed.packing,
            is_capture: passed.is_capture,
            bytes: passed.bytes,
            packets: passed.taken,
            aside: passed.aside,
            holes: passed.mended.holes,
            missed_bytes: passed.mended.missing_bytes,
            dropped_bytes: passed.mended.dropped_bytes,
            first_holes: HoleReport::all(&passed.mended),
            unfinished_datagrams: passed.unfinished_datagrams,
        }
    }

    /// Returns the facts for the exit status. A file that several sources read counts once.
    pub(super) fn facts(inputs: &[Self]) -> Facts {
        let mut packets = BTreeMap::new();
        for input in inputs {
            let most = packets.entry(&input.path).or_insert((0, 0));
            *most = (most.0.max(input.unreadable_packets), most.1.max(input.unfinished_datagrams));
        }
        let count = |is: fn(&Self) -> bool| inputs.iter().filter(|input| is(input)).count() as u64;
        let sum = |of: fn(&Self) -> u64| inputs.iter().map(of).sum();
        Facts::default().with([
            (Fact::MissedBytes, sum(|input| input.missed_bytes + input.dropped_bytes)),
            (Fact::InputsCutOff, count(|input| input.state == InputState::CutOff)),
            (Fact::InputsUnread, count(|input| input.state == InputState::Unreadable)),
            (Fact::Nothing, count(|input| input.state == InputState::Read && !input.has_some)),
            (Fact::PacketsUnreadable, packets.values().map(|most| most.0).sum()),
            (Fact::DatagramsUnfinished, packets.values().map(|most| most.1).sum()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Asked, Status};
    use std::path::PathBuf;

    fn input(read: Result<Passed, String>, is_over: bool) -> InputSummary {
        InputSummary::new("board", &ByteOrigin::File(PathBuf::from("x.pcap")), &read, is_over)
    }

    fn read(taken: u64) -> Passed {
        Passed { is_capture: true, bytes: 100, taken, ..Passed::default() }
    }

    #[test]
    fn only_what_was_read_to_its_end_and_had_something_of_the_source_leaves_the_status_0() {
        let cut_off = Some(CutOff { bytes: 7, why: "it ends".to_owned() });
        for (input, fact) in [
            (input(Ok(read(3)), false), None),
            (input(Ok(read(3)), true), None),
            (input(Ok(read(0)), true), None),
            (input(Ok(read(0)), false), Some(Fact::Nothing)),
            (input(Ok(Passed { cut_off, ..read(3) }), false), Some(Fact::InputsCutOff)),
            (input(Err("no such file".to_owned()), false), Some(Fact::InputsUnread)),
            (input(Ok(Passed { damaged: 1, ..read(3) }), false), Some(Fact::PacketsUnreadable)),
            (input(Ok(Passed { unfinished_datagrams: 1, ..read(3) }), false), Some(Fact::DatagramsUnfinished)),
        ] {
            let facts = InputSummary::facts(std::slice::from_ref(&input));
            assert_eq!(facts.reasons(Asked::Taken).collect::<Vec<_>>(), Vec::from_iter(fact.map(|fact| (fact, 1))));
            let status = if fact.is_some() { Status::Lost } else { Status::Good };
            assert_eq!(facts.status(Asked::Taken), status, "{input:?}");
        }
    }

    #[test]
    fn what_several_sources_read_of_one_file_counts_once() {
        let both = [(); 2].map(|()| input(Ok(Passed { damaged: 2, ..read(1) }), false));
        assert_eq!(InputSummary::facts(&both).get(Fact::PacketsUnreadable), 2);
    }
}
