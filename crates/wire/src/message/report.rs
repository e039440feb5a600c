//! Reports of nodes: the numbers of a run, and the end of a source, a lumisection or a run.

use super::body::flag;
use super::{Batch, FragmentFlags};
use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::{BUCKETS, ByCause, CAUSES, Cause, Counter, EventAccount, EventKey, Measure, Recorder, SourceId};

/// Consecutive, or almost consecutive, events without a source that is required and takes part.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first event without it.
    pub first: EventKey,
    /// The last event without it.
    pub last: EventKey,
    /// Number of these events without it, both included.
    pub missing: u64,
}

/// A part of a [`Gap`] in a report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GapPart {
    /// The bits of its first key.
    First,
    /// The bits of its last key.
    Last,
    /// The number of events.
    Missing,
}

/// Kind of an anomaly in the numbers of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NumberingKind {
    /// Counting began with another number than the configured one, consistently among the sources.
    Begin,
    /// Fragments of an earlier run arrived before the first event.
    LeftOver,
    /// Numbers that the following ones contradicted: one lost fragment each.
    WrongNumber,
    /// Missing numbers.
    Gap,
    /// The source restarted its numbering.
    Restart,
    /// After a restart the place of its fragments in the run was found from their contents.
    Recovered,
    /// After a restart that place is unknown: its fragments are in no event.
    OutOfSync,
}

impl NumberingKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Begin, Self::LeftOver, Self::WrongNumber, Self::Gap, Self::Restart, Self::Recovered, Self::OutOfSync];

    /// Its name in accounts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::LeftOver => "left_over",
            Self::WrongNumber => "wrong_number",
            Self::Gap => "gap",
            Self::Restart => "restart",
            Self::Recovered => "recovered",
            Self::OutOfSync => "out_of_sync",
        }
    }
}

/// One anomaly in the numbers of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NumberingAnomaly {
    /// Its kind.
    pub kind: NumberingKind,
    /// The next expected event of the source.
    pub key: EventKey,
    /// The previous number.
    pub from: u64,
    /// The received number.
    pub to: u64,
    /// Number of events or fragments concerned.
    pub size: u64,
}

/// One cumulative number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReportEntry {
    /// The owner: a source of the RU, a stream of the BU by its index, or `None` for the node itself.
    pub source: Option<SourceId>,
    /// The quantity:
    /// - a counter's number (`terms::Counter`);
    /// - 0x8000 plus a cause's number: data dropped for it;
    /// - 0x4000 plus a cause's number: data that never arrived for it;
    /// - 0x2000 plus a cause's number: datagrams lost for it before they could be taken;
    /// - 0x1000 plus 512 × a measure's number (`terms::Measure`) plus a bucket: the number of values in it; plus 511: the
    ///   sum of all values;
    /// - 0x0800 plus a word's index: a word of the first fragment of a source with a wrong checksum;
    /// - 0x0400: the key at which a readout unit began that began later than the run; the numbers after it: the keys at
    ///   which a source was masked (odd numbers) or took part again (even ones);
    /// - 0x0200 plus 3 × a gap's number: its first key, followed by its last key and the number of events without the
    ///   source;
    /// - 0x0300 plus 4 × an anomaly's number: its kind and size, followed by its key, the previous number and the received
    ///   one;
    /// - 0x0360 plus an index in `FragmentFlags::DOUBTS`: the number of fragments of a source with that flag;
    /// - 0x5000 plus 512 × a histogram's index in the configuration plus a cell (`terms::Binning`): the number of values of
    ///   a source in it.
    pub what: u16,
    /// The value since the node's run began.
    pub value: u64,
}

impl ReportEntry {
    const CAUSES: u16 = 0x8000;
    const MISSING: u16 = 0x4000;
    const LOST: u16 = 0x2000;
    const MEASURED: u16 = 0x1000;
    const CORRUPT: u16 = 0x0800;
    const TURN: u16 = 0x0400;
    const GAP: u16 = 0x0200;
    const ANOMALY: u16 = 0x0300;
    /// Maximum number of numbering anomalies reported for a source.
    pub const MOST_ANOMALIES: usize = 16;
    const DOUBT: u16 = 0x0360;
    /// Maximum number of gaps reported for a source.
    pub const MOST_GAPS: usize = 16;
    /// Maximum number of times that a source can be masked and take part again, together, in one run.
    pub const MOST_TURNS: usize = 64;
    const HISTOGRAMS: u16 = 0x5000;
    /// Number range of each histogram.
    const OF_HISTOGRAM: u16 = 512;
    /// Maximum number of histograms.
    pub const MOST_HISTOGRAMS: usize = 16;
    /// Maximum number of words reported of a corrupt fragment.
    pub const CORRUPT_WORDS: usize = 8;
    /// Number range of each measure; the last number is its sum's.
    const OF_MEASURE: u16 = 512;

    /// The number for data dropped for `cause`.
    pub const fn cause(cause: Cause) -> u16 {
        Self::CAUSES + cause as u16
    }

    /// The number for data that never arrived for `cause`.
    pub const fn missing(cause: Cause) -> u16 {
        Self::MISSING + cause as u16
    }

    /// The number for datagrams lost for `cause` before they could be taken. On a port shared by several sources they
    /// belong to no source.
    pub const fn lost(cause: Cause) -> u16 {
        Self::LOST + cause as u16
    }

    /// A word (8 bytes, the first one lowest; zeros behind the end) of the first corrupt fragment of a source.
    pub const fn corrupt(source: SourceId, word: u16, value: u64) -> Self {
        Self { source: Some(source), what: Self::CORRUPT + word, value }
    }

    /// The index of the word of a corrupt fragment that `value` is, if `what` says so.
    pub const fn as_corrupt(&self) -> Option<usize> {
        let is_one = self.what >= Self::CORRUPT && self.what < Self::CORRUPT + Self::CORRUPT_WORDS as u16;
        if is_one { Some((self.what - Self::CORRUPT) as usize) } else { None }
    }

    /// The key at which a readout unit began, if the source took part then; [`EventKey::MIN`] if it began with the run.
    pub const fn begun(source: SourceId, key: EventKey) -> Self {
        Self { source: Some(source), what: Self::TURN, value: key.to_bits() }
    }

    /// Whether `value` is the key at which a readout unit began.
    pub const fn is_begun(&self) -> bool {
        self.what == Self::TURN
    }

    /// The key from which a source was masked (`turn` is even) or takes part again (odd).
    pub const fn turn(source: SourceId, turn: u16, key: EventKey) -> Self {
        Self { source: Some(source), what: Self::TURN + 1 + turn, value: key.to_bits() }
    }

    /// The index of the turn of a source whose key `value` is, if `what` says so.
    pub const fn as_turn(&self) -> Option<usize> {
        let is_one = self.what > Self::TURN && self.what <= Self::TURN + Self::MOST_TURNS as u16;
        if is_one { Some((self.what - Self::TURN - 1) as usize) } else { None }
    }

    /// All entries for a gap of a source.
    pub const fn gap(source: SourceId, index: u16, gap: Gap) -> [Self; 3] {
        let (what, source) = (Self::GAP + 3 * index, Some(source));
        [
            Self { source, what, value: gap.first.to_bits() },
            Self { source, what: what + 1, value: gap.last.to_bits() },
            Self { source, what: what + 2, value: gap.missing },
        ]
    }

    /// The index of the gap, and the part of it that `value` is, if `what` says so.
    pub const fn as_gap(&self) -> Option<(usize, GapPart)> {
        if self.what < Self::GAP || self.what >= Self::GAP + 3 * Self::MOST_GAPS as u16 {
            return None;
        }
        let number = self.what - Self::GAP;
        let part = match number % 3 {
            0 => GapPart::First,
            1 => GapPart::Last,
            _ => GapPart::Missing,
        };
        Some(((number / 3) as usize, part))
    }

    /// The report entries of one numbering anomaly.
    pub fn anomaly(source: SourceId, index: u16, anomaly: NumberingAnomaly) -> [Self; 4] {
        let NumberingAnomaly { kind, key, from, to, size } = anomaly;
        let values = [(kind as u64) << 56 | size.min(u64::MAX >> 8), key.to_bits(), from, to];
        let mut what = Self::ANOMALY + 4 * index;
        values.map(|value| {
            what += 1;
            Self { source: Some(source), what: what - 1, value }
        })
    }

    /// Whether `what` means a part of an anomaly of a source's numbers.
    pub const fn is_anomaly(&self) -> bool {
        self.what >= Self::ANOMALY && self.what < Self::ANOMALY + 4 * Self::MOST_ANOMALIES as u16
    }

    /// Adds a part of an anomaly to those of its source. The parts of each arrive in order.
    pub fn add_to(&self, anomalies: &mut Vec<NumberingAnomaly>) {
        match (self.what.wrapping_sub(Self::ANOMALY) % 4, anomalies.last_mut()) {
            (0, _) => {
                let kind = NumberingKind::ALL.get((self.value >> 56) as usize).copied();
                let size = self.value & u64::MAX >> 8;
                let new = |kind| NumberingAnomaly { kind, key: EventKey::MIN, from: 0, to: 0, size };
                anomalies.extend(kind.map(new));
            }
            (1, Some(last)) => last.key = EventKey::from_bits(self.value),
            (2, Some(last)) => last.from = self.value,
            (3, Some(last)) => last.to = self.value,
            _ => {}
        }
    }

    /// The number of fragments of a source with the flag at this index in [`FragmentFlags::DOUBTS`].
    pub const fn doubt(source: SourceId, doubt: usize, value: u64) -> Self {
        Self { source: Some(source), what: Self::DOUBT + doubt as u16, value }
    }

    /// The index in [`FragmentFlags::DOUBTS`] of the flag that `value` fragments have, if `what` says so.
    pub const fn as_doubt(&self) -> Option<usize> {
        let is_one = self.what >= Self::DOUBT && self.what < Self::DOUBT + FragmentFlags::DOUBTS.len() as u16;
        if is_one { Some((self.what - Self::DOUBT) as usize) } else { None }
    }

    /// The contents of a cell of a source's histogram, by its index in the configuration.
    pub const fn histogram(source: SourceId, histogram: u8, cell: u16, value: u64) -> Self {
        Self { source: Some(source), what: Self::HISTOGRAMS + histogram as u16 * Self::OF_HISTOGRAM + cell, value }
    }

    /// The histogram, by its index in the configuration, and its cell, if `what` names one.
    pub const fn as_histogram(&self) -> Option<(u8, u16)> {
        let end = Self::HISTOGRAMS + Self::MOST_HISTOGRAMS as u16 * Self::OF_HISTOGRAM;
        if self.what < Self::HISTOGRAMS || self.what >= end {
            return None;
        }
        let number = self.what - Self::HISTOGRAMS;
        Some(((number / Self::OF_HISTOGRAM) as u8, number % Self::OF_HISTOGRAM))
    }

    /// The counts of a recorder.
    pub fn measured(recorder: &Recorder) -> impl Iterator<Item = Self> + '_ {
        let first = Self::MEASURED + recorder.measure() as u16 * Self::OF_MEASURE;
        let sum = (recorder.sum() > 0).then_some((Self::OF_MEASURE - 1, recorder.sum()));
        let all = recorder.buckets().chain(sum);
        all.map(move |(bucket, value)| Self { source: None, what: first + bucket, value })
    }

    /// The measure and the bucket of values, or `None` for their sum, if `what` names a measure.
    pub fn as_measured(&self) -> Option<(Measure, Option<u16>)> {
        let number = self.what.checked_sub(Self::MEASURED)?;
        let (measure, bucket) = (Measure::from_u16(number / Self::OF_MEASURE)?, number % Self::OF_MEASURE);
        if bucket == Self::OF_MEASURE - 1 {
            return Some((measure, None));
        }
        (usize::from(bucket) < BUCKETS).then_some((measure, Some(bucket)))
    }

    /// The cause for data that never arrived, if `what` names one.
    pub const fn as_missing(&self) -> Option<Cause> {
        self.cause_from(Self::MISSING)
    }

    /// The cause for lost datagrams, if `what` names one.
    pub const fn as_lost(&self) -> Option<Cause> {
        self.cause_from(Self::LOST)
    }

    /// The counter that `what` names, if it names one.
    pub const fn as_counter(&self) -> Option<Counter> {
        Counter::from_u16(self.what)
    }

    /// The cause that `what` names, if it names one.
    pub const fn as_cause(&self) -> Option<Cause> {
        self.cause_from(Self::CAUSES)
    }

    /// The cause whose number is the difference of `what` and `first`.
    const fn cause_from(&self, first: u16) -> Option<Cause> {
        if self.what < first || self.what > first + u8::MAX as u16 {
            return None;
        }
        Cause::from_u8((self.what - first) as u8)
    }

    pub(super) fn encode(self, to: &mut Writer<'_>) {
        to.u8(self.source.is_some().into());
        to.u32(self.source.map_or(0, |source| source.0));
        to.u16(self.what);
        to.u64(self.value);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (of_source, source) = (flag(from)?, SourceId(from.u32()?));
        let (what, value) = (from.u16()?, from.u64()?);
        Ok(Self { source: of_source.then_some(source), what, value })
    }
}

/// RU and BU to EVM: counters, in as many messages as needed. Also the heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The numbers.
    pub entries: Batch<ReportEntry>,
    /// Whether this message ends the report: all numbers of one time were sent.
    pub last: bool,
}

/// The outcome of events that no unit holds any more. The event manager stores it at every RU; its successor receives
/// it, and so accounts for events that it never saw. Kept events are accepted, unless they are unselected, rejected or
/// quarantined.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Every event below this key has ended and is released, by the reporting event manager or an earlier one.
    pub below: EventKey,
    /// Number of them that were built completely.
    pub built: u64,
    /// Number of them that were kept incomplete.
    pub incomplete_emitted: u64,
    /// Number of them that were assigned and dropped, by cause.
    pub dropped: ByCause,
    /// Number of them that were accepted, but taken by no stream.
    pub unselected: u64,
    /// Number of them that were rejected.
    pub rejected: u64,
    /// Number of them that were set aside without a decision.
    pub quarantined: u64,
}

/// EVM to BU and RU: a lumisection begins, sent before an event of it is assigned. RU and BU to a new EVM: it had
/// begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lumisection {
    /// Its number, from 1 on.
    pub number: u32,
    /// Its first key: events from there on belong to it, up to the first key of the next one.
    pub first: EventKey,
}

/// EVM to BU and RU: every event of a lumisection has ended on every unit. RU and BU to a new EVM: this was reported.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LumisectionEnd {
    /// Its number.
    pub number: u32,
    /// The outcome of the events before it; `before.below` is its first key.
    pub before: Ended,
    /// The outcome of the events up to its end; `ended.below` is the first key of the next one.
    pub ended: Ended,
}

impl Ended {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.key(self.below);
        to.u64(self.built);
        to.u64(self.incomplete_emitted);
        let causes = || CAUSES.iter().map(|&cause| (cause, self.dropped.get(cause))).filter(|&(_, count)| count > 0);
        to.u8(causes().count() as u8);
        for (cause, count) in causes() {
            to.u8(cause as u8);
            to.u64(count);
        }
        [self.unselected, self.rejected, self.quarantined].into_iter().for_each(|count| to.u64(count));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (below, built, incomplete_emitted) = (from.key()?, from.u64()?, from.u64()?);
        let mut dropped = ByCause::default();
        for _ in 0..from.u8()? {
            let cause = Cause::from_u8(from.u8()?).ok_or(FrameError::Meaning)?;
            dropped.set(cause, from.u64()?);
        }
        let (unselected, rejected, quarantined) = (from.u64()?, from.u64()?, from.u64()?);
        Ok(Self { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined })
    }

    /// The account of the events below `below`, all of which have ended.
    pub const fn of(below: EventKey, account: &EventAccount) -> Self {
        let EventAccount { built, incomplete_emitted, incomplete_dropped: dropped, .. } = *account;
        let EventAccount { unselected, rejected, quarantined, .. } = *account;
        Self { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined }
    }

    /// Converts these numbers to an account.
    pub fn account(&self) -> EventAccount {
        let Self { built, incomplete_emitted, dropped, unselected, rejected, quarantined, .. } = *self;
        let kept = built + incomplete_emitted;
        EventAccount {
            assigned: kept + dropped.total(),
            built,
            incomplete_emitted,
            incomplete_dropped: dropped,
            accepted: kept.saturating_sub(rejected + quarantined),
            unselected,
            rejected,
            quarantined,
            ..EventAccount::default()
        }
    }
}

impl Lumisection {
    pub(super) fn encode(self, to: &mut Writer<'_>) {
        to.u32(self.number);
        to.key(self.first);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { number: from.u32()?, first: from.key()? })
    }
}

impl LumisectionEnd {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u32(self.number);
        self.before.encode(to);
        self.ended.encode(to);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { number: from.u32()?, before: Ended::decode(from)?, ended: Ended::decode(from)? })
    }

    /// The account of its own events.
    pub fn account(&self) -> EventAccount {
        self.ended.account().since(&self.before.account())
    }
}
