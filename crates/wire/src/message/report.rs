//! What nodes report: the numbers of a run, and that a source, a lumisection or a run has ended.

use super::body::flag;
use super::{Batch, FragmentFlags};
use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::{BUCKETS, ByCause, CAUSES, Cause, Counter, EventAccount, EventKey, Measure, Recorder, SourceId};

/// Events in a row, or almost, in which a source is missing that is required and takes part.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first one in which it is missing.
    pub first: EventKey,
    /// The last one.
    pub last: EventKey,
    /// In how many of these, both included.
    pub missing: u64,
}

/// A part of a [`Gap`], as it is reported.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GapPart {
    /// The bits of its first key.
    First,
    /// The bits of its last key.
    Last,
    /// The number of events.
    Missing,
}

/// What happened to the numbers of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NumberingKind {
    /// Counting began with another number than the configured one, as the sources agreed.
    Begin,
    /// Fragments of an earlier run came in front of the first event.
    LeftOver,
    /// Numbers that the following ones disproved: one fragment lost for each.
    WrongNumber,
    /// Numbers that are missing.
    Gap,
    /// The source started its numbering again.
    Restart,
    /// After a restart the place of its fragments in the run was found by what they hold.
    Recovered,
    /// After a restart nothing tells that place: its fragments are in no event.
    OutOfSync,
}

impl NumberingKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Begin, Self::LeftOver, Self::WrongNumber, Self::Gap, Self::Restart, Self::Recovered, Self::OutOfSync];

    /// The name in accounts.
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

/// One thing that happened to the numbers of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NumberingAnomaly {
    /// What.
    pub kind: NumberingKind,
    /// The event that the source should have shown next.
    pub key: EventKey,
    /// The number that it showed before.
    pub from: u64,
    /// The number that came.
    pub to: u64,
    /// Events or fragments concerned.
    pub size: u64,
}

/// One cumulative number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReportEntry {
    /// Whose: a source of the RU, a stream of the BU by its index, or none for the node itself.
    pub source: Option<SourceId>,
    /// What: a counter's number (`terms::Counter`), 0x8000 + a cause's number for what was dropped for it, 0x4000 + that for
    /// what never came for it, 0x2000 + that for datagrams that were lost for it before they could be taken; or 0x1000 + 512 × a
    /// measure's number (`terms::Measure`) + a bucket for so many values in it, or + 511 for the sum of all values;
    /// or 0x0800 + a word's number for that of the first fragment of a source with a wrong checksum; or 0x0400 for the
    /// key at which a readout unit began that began later than the run, and behind that the keys at which a source was masked (odd
    /// numbers) or took part again (even ones);
    /// or 0x0200 + 3 × a gap's number for its first key, and behind that its last key and in how many events it is missing;
    /// or 0x0300 + 4 × an anomaly's number for its kind and size, and behind that its key, the number before and the one that came;
    /// or 0x0360 + a place in `FragmentFlags::DOUBTS` for so many fragments of a source with that flag;
    /// or 0x5000 + 512 × a histogram's place in the configuration + a cell (`terms::Binning`) for so many values of a source in it.
    pub what: u16,
    /// How much since the node's run began.
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
    /// The most numbering anomalies reported for a source.
    pub const MOST_ANOMALIES: usize = 16;
    const DOUBT: u16 = 0x0360;
    /// The most gaps reported for a source.
    pub const MOST_GAPS: usize = 16;
    /// How often a source can be masked and take part again, together, in one run.
    pub const MOST_TURNS: usize = 64;
    const HISTOGRAMS: u16 = 0x5000;
    /// Numbers that each histogram has.
    const OF_HISTOGRAM: u16 = 512;
    /// Histograms that there can be.
    pub const MOST_HISTOGRAMS: usize = 16;
    /// The most words reported of a corrupt fragment.
    pub const CORRUPT_WORDS: usize = 8;
    /// Numbers that each measure has; the last one is its sum's.
    const OF_MEASURE: u16 = 512;

    /// The number for what was dropped for `cause`.
    pub const fn cause(cause: Cause) -> u16 {
        Self::CAUSES + cause as u16
    }

    /// The number for what never came for `cause`.
    pub const fn missing(cause: Cause) -> u16 {
        Self::MISSING + cause as u16
    }

    /// The number for datagrams that were lost for `cause` before they could be taken; of a port that several sources share
    /// they are no source's.
    pub const fn lost(cause: Cause) -> u16 {
        Self::LOST + cause as u16
    }

    /// A word (8 bytes, the first one lowest; zeros behind the end) of the first corrupt fragment of a source.
    pub const fn corrupt(source: SourceId, word: u16, value: u64) -> Self {
        Self { source: Some(source), what: Self::CORRUPT + word, value }
    }

    /// Which word of a corrupt fragment `value` is, if `what` says so.
    pub const fn as_corrupt(&self) -> Option<usize> {
        let is_one = self.what >= Self::CORRUPT && self.what < Self::CORRUPT + Self::CORRUPT_WORDS as u16;
        if is_one { Some((self.what - Self::CORRUPT) as usize) } else { None }
    }

    /// The key at which a readout unit began, where the source took part then; [`EventKey::MIN`] where it began with the run.
    pub const fn begun(source: SourceId, key: EventKey) -> Self {
        Self { source: Some(source), what: Self::TURN, value: key.to_bits() }
    }

    /// Whether `value` is the key at which a readout unit began.
    pub const fn is_begun(&self) -> bool {
        self.what == Self::TURN
    }

    /// The key from which on a source was masked (`turn` is even) or takes part again (odd).
    pub const fn turn(source: SourceId, turn: u16, key: EventKey) -> Self {
        Self { source: Some(source), what: Self::TURN + 1 + turn, value: key.to_bits() }
    }

    /// Which turn of a source `value` is the key of, if `what` says so.
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

    /// Which part of which gap `value` is, if `what` says so.
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

    /// Whether `what` says that this is a part of an anomaly of a source's numbers.
    pub const fn is_anomaly(&self) -> bool {
        self.what >= Self::ANOMALY && self.what < Self::ANOMALY + 4 * Self::MOST_ANOMALIES as u16
    }

    /// Adds a part of an anomaly to those of its source. The parts of each come in order.
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

    /// How many fragments of a source have the flag at this place in [`FragmentFlags::DOUBTS`].
    pub const fn doubt(source: SourceId, doubt: usize, value: u64) -> Self {
        Self { source: Some(source), what: Self::DOUBT + doubt as u16, value }
    }

    /// The place in [`FragmentFlags::DOUBTS`] of the flag that `value` fragments have, if `what` says so.
    pub const fn as_doubt(&self) -> Option<usize> {
        let is_one = self.what >= Self::DOUBT && self.what < Self::DOUBT + FragmentFlags::DOUBTS.len() as u16;
        if is_one { Some((self.what - Self::DOUBT) as usize) } else { None }
    }

    /// What a source's histogram, by its place in the configuration, has in a cell.
    pub const fn histogram(source: SourceId, histogram: u8, cell: u16, value: u64) -> Self {
        Self { source: Some(source), what: Self::HISTOGRAMS + histogram as u16 * Self::OF_HISTOGRAM + cell, value }
    }

    /// The histogram, by its place in the configuration, and its cell, if `what` names one.
    pub const fn as_histogram(&self) -> Option<(u8, u16)> {
        let end = Self::HISTOGRAMS + Self::MOST_HISTOGRAMS as u16 * Self::OF_HISTOGRAM;
        if self.what < Self::HISTOGRAMS || self.what >= end {
            return None;
        }
        let number = self.what - Self::HISTOGRAMS;
        Some(((number / Self::OF_HISTOGRAM) as u8, number % Self::OF_HISTOGRAM))
    }

    /// What a recorder has counted.
    pub fn measured(recorder: &Recorder) -> impl Iterator<Item = Self> + '_ {
        let first = Self::MEASURED + recorder.measure() as u16 * Self::OF_MEASURE;
        let sum = (recorder.sum() > 0).then_some((Self::OF_MEASURE - 1, recorder.sum()));
        let all = recorder.buckets().chain(sum);
        all.map(move |(bucket, value)| Self { source: None, what: first + bucket, value })
    }

    /// The measure and the bucket of values that `what` names, or none for their sum, if it names one.
    pub fn as_measured(&self) -> Option<(Measure, Option<u16>)> {
        let number = self.what.checked_sub(Self::MEASURED)?;
        let (measure, bucket) = (Measure::from_u16(number / Self::OF_MEASURE)?, number % Self::OF_MEASURE);
        if bucket == Self::OF_MEASURE - 1 {
            return Some((measure, None));
        }
        (usize::from(bucket) < BUCKETS).then_some((measure, Some(bucket)))
    }

    /// The cause for which something never came, if `what` names one.
    pub const fn as_missing(&self) -> Option<Cause> {
        self.cause_from(Self::MISSING)
    }

    /// The cause for which datagrams were lost, if `what` names one.
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

    /// The cause whose number is what `what` is beyond `first`.
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

/// RU and BU to EVM: counters, in as many messages as they need. A life sign at the same time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The numbers.
    pub entries: Batch<ReportEntry>,
    /// This message ends the report: all numbers of one moment were sent.
    pub last: bool,
}

/// The outcome of events that no unit holds any more. The event manager stores it at every RU; its successor receives
/// it, and so accounts for events that it never saw. Events that were kept are accepted, unless they are unselected,
/// rejected or quarantined.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Every event below this key has ended and is released, by the event manager that says so or an earlier one.
    pub below: EventKey,
    /// How many of them were built whole.
    pub built: u64,
    /// How many were kept although something was missing.
    pub incomplete_emitted: u64,
    /// How many were assigned and dropped, by cause.
    pub dropped: ByCause,
    /// How many were accepted, and no stream took them.
    pub unselected: u64,
    /// How many were rejected.
    pub rejected: u64,
    /// How many were set aside without a decision.
    pub quarantined: u64,
}

/// EVM to BU and RU: a lumisection begins, said before an event of it is assigned. RU and BU to a new EVM: it had begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lumisection {
    /// Its number, from 1 on.
    pub number: u32,
    /// Its first key: events from there on belong to it, up to the first key of the next one.
    pub first: EventKey,
}

/// EVM to BU and RU: every event of a lumisection has ended, wherever it was. RU and BU to a new EVM: that was said.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LumisectionEnd {
    /// Its number.
    pub number: u32,
    /// How the events before it ended; `before.below` is its first key.
    pub before: Ended,
    /// How the events up to its end did; `ended.below` is the first key of the next one.
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

    /// The account that these numbers are.
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
