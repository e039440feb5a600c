//! The state that a readout unit keeps of one source.

use super::doubt::{Doubt, MOST_HELD, is_unreliable};
use super::masking::Masking;
use super::reading::Strayed;
use super::sequence::Sequence;
use super::table::{NEVER, ORIGIN, Position};
use super::{OnClose, ReadoutConfig, SourceConfig};
use crate::histogram::{Histogram, Histogrammed};
use crate::messages::{FragmentFlags, FragmentMeta, Gap, NumberingAnomaly, NumberingKind, Received, ReportEntry};
use arrayvec::ArrayVec;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, FragmentAccount, Instant, Requirement, SourceId};
use std::collections::VecDeque;

/// The most fragments that a source hands over at once. Fragments that cannot be placed wait in a queue of this size.
pub(super) const MOST_AT_ONCE: usize = 128;

/// How a source's numbering relates to the run's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// They agree.
    Following,
    /// The source started its numbering again and waits for the resynchronisation to be declared or completed.
    Restarted {
        /// When it restarted.
        since: Instant,
        /// Events before this one were present when it restarted.
        held: Position,
    },
    /// The run was resynchronised and the source has not followed yet.
    Behind {
        /// Until when it may follow.
        until: Instant,
    },
    /// They disagree, and the source's fragments are dropped.
    OutOfSync,
}

/// Whether events wait for a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// Events wait for it.
    Awaited,
    /// Events waited for the time-out, and do not wait again until the source delivers.
    GivenUp(Cause),
    /// Its connection was closed, which was the end of the source.
    Ended,
}

/// Values that are reported in addition to the account.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Statistics {
    pub(super) payload_bytes: u64,
    /// Fragments without a payload byte.
    pub(super) empty: u64,
    /// The event number of the last fragment, as received.
    pub(super) last_number: Option<u64>,
    /// Fragments with the number of the fragment before.
    pub(super) repeated: u64,
    /// Fragments with a lower number than the fragment before.
    pub(super) fell: u64,
    /// Fragments whose number is greater than the next one after the fragment before.
    pub(super) jumped: u64,
    /// Fragments that came before the run began.
    pub(super) before_start: u64,
    /// Fragments with each of `FragmentFlags::DOUBTS`.
    pub(super) doubts: [u64; FragmentFlags::DOUBTS.len()],
    pub(super) connections: u64,
    pub(super) disconnections: u64,
    pub(super) garbage_bytes: u64,
    pub(super) filler_bytes: u64,
    pub(super) framing_errors: u64,
    pub(super) frames_missing: u64,
    /// Number of missing frames in the gap found last.
    pub(super) last_gap: u64,
    pub(super) frames_out_of_order: u64,
    /// The same for fragments that are ordered by their times.
    pub(super) times_out_of_order: u64,
    pub(super) frames_divided: u64,
    pub(super) frames_gathered: u64,
    pub(super) back_pressure: Duration,
}

impl Statistics {
    /// Counts the payload of a fragment.
    #[inline]
    pub(super) fn add_payload(&mut self, fragment: &FragmentMeta) {
        self.payload_bytes += u64::from(fragment.length);
        self.empty += u64::from(fragment.length == 0 && fragment.missing_cause().is_none());
    }

    /// Forgives a gap that the source made itself by setting its counter forward by `by`, as its times show: it sent no
    /// frames in between.
    pub(super) fn forgive_jump(&mut self, by: u64) {
        if self.last_gap == by {
            self.frames_missing = self.frames_missing.saturating_sub(by);
            self.last_gap = 0;
        }
    }

    /// Counts how the number of a fragment follows the previous one. For fragments that plainly continue, only the
    /// number is kept.
    pub(super) fn follow_number(&mut self, fragment: &FragmentMeta) {
        if fragment.missing_cause().is_some() {
            return;
        }
        if let Some(last) = self.last_number.replace(fragment.raw_id) {
            self.repeated += u64::from(fragment.raw_id == last);
            self.fell += u64::from(fragment.raw_id < last);
            self.jumped += u64::from(fragment.raw_id > last.saturating_add(1));
        }
    }
}

/// One source.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) id: SourceId,
    pub(super) requirement: Requirement,
    on_close: OnClose,
    /// Whether its bytes are a recording.
    pub(super) is_recorded: bool,
    /// Whether it is the trigger source.
    pub(super) triggers: bool,
    pub(super) sequence: Sequence,
    /// Whether none of its numbers is doubted, since they were given here.
    pub(super) trusts_numbers: bool,
    /// Whether counting may begin with another number than the configured one.
    pub(super) begins_anywhere: bool,
    /// Width of the narrower counter that showed its first number, in bits. The source itself has yet to show the upper
    /// bits.
    pub(super) first_bits: Option<u32>,
    /// Whether its counter is free-running.
    pub(super) runs_free: bool,
    /// Whether it has shown where its counter begins.
    pub(super) has_begun: bool,
    /// Whether it sends an event in several frames. Late frames become a fragment of their own.
    pub(super) may_repeat: bool,
    /// Whether it is the only source of its readout unit.
    pub(super) is_only: bool,
    /// Whether it has joined the run: at least one of its fragments was placed.
    pub(super) has_joined: bool,
    /// Whether the run began before this readout unit did, so that the source may be at any later event by now.
    pub(super) resumes: bool,
    /// Before it joins: one past the latest event that any source had shown when its last fragments came.
    pub(super) opened_then: Position,
    /// Fragments whose numbers are in doubt.
    pub(super) doubt: Doubt,
    /// Evidence from the fragments that came while its numbering disagreed with the run's.
    pub(super) strayed: Strayed,
    /// Anomalies of its numbering.
    pub(super) numbering: Numbering,
    pub(super) standing: Standing,
    /// The resync count of its ids.
    pub(super) resync: u16,
    pub(super) presence: Presence,
    pub(super) connected: bool,
    /// Whether nothing has arrived over its connection yet.
    pub(super) fresh: bool,
    /// The events in which it is masked.
    pub(super) masking: Masking,
    /// The events in which it is missing.
    pub(super) gaps: Gaps,
    /// Every event before this one was delivered or will not come; [`NEVER`] if no event waits for the source.
    pub(super) frontier: Position,
    pub(super) clock: AbsenceClock,
    /// How long it has been awaited in the old resync count.
    pub(super) resync_clock: AbsenceClock,
    /// Fragments that cannot be placed yet: beyond the window, or of the next resync count.
    pub(super) waiting: VecDeque<Received>,
    /// Number of waiting fragments, from the front, whose numbers are no longer in doubt.
    pub(super) believed: usize,
    /// Whether the readout unit counts it as waiting.
    pub(super) counts_as_waiting: bool,
    /// The event of the first waiting fragment; [`NEVER`] if none waits or its event is not known.
    pub(super) waiting_at: Position,
    pub(super) account: FragmentAccount,
    pub(super) statistics: Statistics,
    /// When it became connected without being read.
    unread_since: Option<Instant>,
    /// When something last arrived from it.
    pub(super) last_came: Option<Instant>,
    /// The first words of the first fragment with a wrong checksum.
    pub(super) corrupt: Option<[u64; ReportEntry::CORRUPT_WORDS]>,
    /// The histograms that the user asked for; usually none.
    pub(super) histograms: Box<[Histogram]>,
}

impl Source {
    pub(super) fn new(config: &SourceConfig, readout: &ReadoutConfig) -> Self {
        let masked = config.requirement == Requirement::Masked;
        // Numbers of sources whose own numbers grow are given by this readout unit.
        let (bits, first) = if config.numbers_grow { (64, 1) } else { (config.counter_bits, config.first) };
        let mut sequence = Sequence::new(bits, first, readout.plausibility, ORIGIN - 1);
        let trusts_numbers = config.trusts_numbers || config.numbers_grow;
        if trusts_numbers {
            sequence.trust();
        }
        Self {
            id: config.id,
            requirement: config.requirement,
            on_close: config.on_close,
            is_recorded: config.is_recorded,
            triggers: readout.trigger == Some(config.id),
            sequence,
            trusts_numbers,
            begins_anywhere: config.begins_anywhere,
            first_bits: None,
            runs_free: config.runs_free,
            has_begun: false,
            may_repeat: config.gather.is_some(),
            is_only: readout.sources.len() == 1,
            has_joined: false,
            resumes: false,
            opened_then: 0,
            doubt: Doubt::new(),
            strayed: Strayed::default(),
            numbering: Numbering::default(),
            standing: Standing::Following,
            resync: 0,
            presence: Presence::Awaited,
            connected: false,
            fresh: true,
            masking: Masking::new(masked),
            gaps: Gaps::default(),
            frontier: NEVER,
            clock: AbsenceClock::default(),
            resync_clock: AbsenceClock::default(),
            waiting: VecDeque::with_capacity(MOST_AT_ONCE + MOST_HELD + 1),
            believed: 0,
            counts_as_waiting: false,
            waiting_at: NEVER,
            account: FragmentAccount::default(),
            statistics: Statistics::default(),
            unread_since: None,
            last_came: None,
            corrupt: None,
            histograms: Histogram::all_of(&readout.histograms, config.id),
        }
    }

    /// Counts fragments that arrived at `now`, and fills them into histograms if they are taken.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Instant, fragments: &[Received], are_taken: bool) {
        self.account.received += fragments.len() as u64;
        if fragments.is_empty() {
            return;
        }
        let before = self.last_came.replace(now);
        if are_taken {
            let since = before.map(|before| now.since(before));
            self.histograms.iter_mut().for_each(|histogram| fill_histogram(histogram, since, fragments));
        }
    }

    /// Counts the flags and contents of fragments that arrived.
    pub(super) fn note_contents(&mut self, fragments: &[Received]) {
        let mut flags = FragmentFlags::default();
        for fragment in fragments {
            flags = flags.with(fragment.meta.flags);
            self.statistics.add_payload(&fragment.meta);
        }
        if flags.has_error() {
            self.note_doubts(fragments);
        }
    }

    #[cold]
    fn note_doubts(&mut self, fragments: &[Received]) {
        for fragment in fragments {
            fragment.meta.flags.doubts().for_each(|doubt| self.statistics.doubts[doubt] += 1);
            if fragment.meta.flags.contains(FragmentFlags::CRC_ERROR) {
                self.corrupt.get_or_insert_with(|| first_words(fragment));
            }
        }
    }

    /// Whether its fragments are placed in the order of their arrival.
    #[inline]
    pub(super) fn is_going_on(&self) -> bool {
        self.standing == Standing::Following && self.waiting.is_empty() && self.doubt.is_empty()
    }

    /// Whether a fragment has the number of the last one, and nothing is in doubt. It was sent twice, or has a wrong
    /// number instead of the next one.
    pub(super) fn repeats(&mut self, fragment: &Received) -> bool {
        let is_same = fragment.meta.raw_id == self.sequence.last_raw() && !is_unreliable(fragment);
        let repeats = is_same && self.has_joined && self.doubt.is_empty() && !self.trusts_numbers;
        if repeats {
            self.doubt.count_gone(self.sequence.last());
        }
        repeats
    }

    /// Whether a number belongs to an event in which the source is masked, or to the first event in which it takes part
    /// again. Its numbers continued meanwhile.
    pub(super) fn passes_mask(&self, raw: u64, head: Position) -> bool {
        let (last, next) = (self.sequence.last(), self.masking.first_wanted(self.sequence.last() + 1));
        next > last + 1 && self.sequence.position_ahead(raw, head).is_some_and(|position| position <= next)
    }

    /// Whether a run of numbers ahead shows the source's position in the run. Before its first event such numbers may
    /// be left-overs of an earlier run, unless this run was under way already.
    pub(super) const fn has_place(&self) -> bool {
        self.has_joined || self.resumes
    }

    /// Whether its counter is free-running and has not shown where it begins.
    #[inline]
    pub(super) const fn is_yet_to_begin(&self) -> bool {
        self.runs_free && !self.has_begun
    }

    /// Counts a fragment that the framer gave up.
    pub(super) fn count_given_up(&mut self, cause: Cause) {
        match cause {
            Cause::Late => self.account.late += 1,
            // The bytes of one whose number grows.
            Cause::BadChecksum => self.account.corrupt += 1,
            _ => self.account.dropped.add(cause, 1),
        }
    }

    /// Whether its numbering agrees with the run's.
    pub(super) fn is_following(&self) -> bool {
        self.standing == Standing::Following
    }

    /// Whether it restarted its numbering and waits for the outcome.
    pub(super) const fn is_restarted(&self) -> bool {
        matches!(self.standing, Standing::Restarted { .. })
    }

    /// Returns the event before which all were delivered or will not come; [`NEVER`] if no event waits for the source.
    pub(super) fn current_frontier(&self) -> Position {
        if self.requirement == Requirement::Masked || self.standing != Standing::Following {
            return NEVER;
        }
        let next = match self.doubt.tentative() {
            _ if self.waiting_at != NEVER => self.waiting_at,
            Some(position) => position,
            None => self.sequence.last() + 1,
        };
        let awaited = self.presence == Presence::Awaited || !self.waiting.is_empty() || !self.doubt.is_empty();
        if awaited { self.masking.first_wanted(next) } else { NEVER }
    }

    /// Returns why the source delivers nothing: its connection ended, or it is silent. A source that was never
    /// connected counts as silent.
    pub(super) const fn silence(&self) -> Cause {
        let has_left = !self.connected && self.statistics.connections > 0;
        if has_left { Cause::Disconnected } else { Cause::TimedOut }
    }

    /// Returns the latest event that the source has shown, whether or not it could be placed.
    pub(super) fn highest(&self) -> Position {
        if self.waiting_at == NEVER { self.sequence.last() } else { self.waiting_at }
    }

    /// Returns why the source has no fragment in an event that was settled without it; `None` if it needs none.
    pub(super) fn missing_cause(&self, position: Position) -> Option<Cause> {
        if self.requirement != Requirement::Required {
            return None;
        }
        if self.masking.covers(position) {
            return (!is_planted(Flaw::MaskUntold)).then_some(Cause::Masked);
        }
        Some(match (self.standing, self.presence) {
            (Standing::Behind { .. } | Standing::OutOfSync, _) => Cause::OutOfSync,
            _ if self.highest() > position => Cause::Skipped,
            (Standing::Restarted { .. }, _) => Cause::Skipped,
            (Standing::Following, Presence::GivenUp(cause)) => cause,
            (Standing::Following, Presence::Ended) => Cause::Disconnected,
            (Standing::Following, Presence::Awaited) => Cause::Skipped,
        })
    }

    /// Whether the source delivers nothing more. A source that never connected is done if it is masked, or if it is
    /// optional and `any_required` says that a required source takes part in this readout unit.
    pub(super) fn is_done(&self, any_required: bool) -> bool {
        let is_masked = self.masking.is_open() && self.ends_on_close();
        let may_stay_away = is_masked || any_required && self.requirement == Requirement::Optional;
        let never_came = may_stay_away && self.statistics.connections == 0;
        self.requirement == Requirement::Masked
            || self.waiting.is_empty()
                && self.doubt.is_empty()
                && (self.presence == Presence::Ended && !self.connected || never_came)
    }

    /// Whether it is optional and never connected.
    pub(super) const fn stays_away(&self) -> bool {
        matches!(self.requirement, Requirement::Optional) && self.statistics.connections == 0
    }

    /// Whether it is required and takes part.
    pub(super) const fn is_needed(&self) -> bool {
        matches!(self.requirement, Requirement::Required) && !self.masking.is_open()
    }

    /// Notes a new connection. Its data is compared with what came before.
    pub(super) fn connect(&mut self) {
        self.connected = true;
        self.fresh = true;
        self.statistics.connections += 1;
    }

    /// Whether the end of its connection is the end of the source.
    pub(super) fn ends_on_close(&self) -> bool {
        self.on_close == OnClose::End
    }

    /// Notes the end of the connection.
    pub(super) fn disconnect(&mut self) {
        self.connected = false;
        self.statistics.disconnections += 1;
        if self.on_close == OnClose::End {
            self.presence = Presence::Ended;
        }
    }

    /// Notes that the source is present, so that events wait for it (again), if it has advanced beyond `last`.
    pub(super) fn note_delivery(&mut self, last: Position) {
        if self.sequence.last() != last && self.connected {
            self.presence = Presence::Awaited;
        }
    }

    /// Notes whether its bytes are taken from the connection. The time in which they are not is counted.
    pub(super) fn set_read(&mut self, now: Instant, read: bool) {
        if read || !self.connected {
            if let Some(since) = self.unread_since.take() {
                self.statistics.back_pressure += now.since(since);
            }
        } else if self.unread_since.is_none() {
            self.unread_since = Some(now);
        }
    }

    /// Whether it is connected and not read.
    pub(super) const fn is_unread(&self) -> bool {
        self.unread_since.is_some()
    }

    /// Returns how long it was connected and not read, up to now.
    pub(super) fn back_pressure(&self, now: Instant) -> Duration {
        self.statistics.back_pressure + self.unread_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Drops all waiting fragments, counted under `cause`.
    pub(super) fn drop_waiting(&mut self, cause: Cause) {
        let count = self.waiting.len() as u64 + self.doubt.clear();
        match cause {
            Cause::AfterStop => self.account.after_stop += count,
            _ => self.account.dropped.add(cause, count),
        }
        self.waiting.clear();
        self.believed = 0;
        self.waiting_at = NEVER;
    }
}

/// Returns the first words of a fragment; zeros if it has none.
#[cold]
fn first_words(fragment: &Received) -> [u64; ReportEntry::CORRUPT_WORDS] {
    let mut words = [0; ReportEntry::CORRUPT_WORDS];
    let bytes = fragment.payload.pieces().flatten().take(8 * words.len());
    bytes.enumerate().for_each(|(place, byte)| words[place / 8] |= u64::from(*byte) << (8 * (place % 8)));
    words
}

/// Timing of the oldest incomplete event.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Oldest {
    /// Incremented each time another event becomes the oldest.
    generation: u64,
    /// When the event became the oldest; `None` while no event waits for any source.
    since: Option<Instant>,
}

impl Oldest {
    /// Notes that another event is the oldest from now on.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.generation += 1;
        self.since = Some(now);
    }

    /// Notes that no event waits for any source.
    pub(super) const fn end(&mut self) {
        self.since = None;
    }

    /// Whether an event waits.
    pub(super) const fn is_waiting(&self) -> bool {
        self.since.is_some()
    }
}

/// How long the oldest incomplete event has waited for one source.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct AbsenceClock {
    /// When it was started; `None` while the source is not read.
    running_since: Option<Instant>,
    /// Its reading when it stopped, for the event of `generation`.
    shown: Duration,
    generation: u64,
}

impl AbsenceClock {
    /// Starts or stops the clock.
    pub(super) fn set_running(&mut self, now: Instant, running: bool, oldest: &Oldest) {
        match (self.running_since, running) {
            (None, true) => self.running_since = Some(now),
            (Some(_), false) => {
                self.shown = self.shows(now, oldest);
                self.generation = oldest.generation;
                self.running_since = None;
            }
            _ => {}
        }
    }

    /// Returns how long the oldest event has waited for this source while it was read.
    pub(super) fn shows(&self, now: Instant, oldest: &Oldest) -> Duration {
        let Some(oldest_since) = oldest.since else { return Duration::ZERO };
        let before = if self.generation == oldest.generation { self.shown } else { Duration::ZERO };
        before + self.running_since.map_or(Duration::ZERO, |since| now.since(since.max(oldest_since)))
    }

    /// Returns when the clock will show `timeout` if it keeps running; never if it is stopped.
    pub(super) fn deadline(&self, timeout: Duration, oldest: &Oldest) -> Instant {
        match (oldest.since, self.running_since) {
            (Some(oldest_since), Some(since)) => {
                let from = since.max(oldest_since);
                from.after(timeout.saturating_sub(self.shows(from, oldest)))
            }
            _ => Instant::FAR_FUTURE,
        }
    }
}

#[derive(Copy, Clone, Debug)]
struct Stretch {
    first: Position,
    last: Position,
    gap: Gap,
}

impl Stretch {
    /// Extends the stretch to this event, in which the source is missing.
    fn take(&mut self, position: Position, key: EventKey) {
        if position < self.first {
            (self.first, self.gap.first) = (position, key);
        }
        if position > self.last {
            (self.last, self.gap.last) = (position, key);
        }
        self.gap.missing += 1;
    }
}

/// The stretches of a source. Outside of them the source has a fragment in the record of every settled event in which
/// it takes part.
#[derive(Debug, Default)]
pub(super) struct Gaps(ArrayVec<Stretch, { ReportEntry::MOST_GAPS }>);

impl Gaps {
    /// Notes that the source is missing in this event, unless that was noted before: its fragment did not come, or the
    /// event was recorded without it, which is known only later. Without room for one more stretch, the nearest earlier
    /// stretch is extended, over events in which the source is not missing as well. Adjacent stretches stay separate,
    /// so that each keeps its number in reports.
    pub(super) fn note(&mut self, position: Position, key: EventKey) {
        let behind = self.0.partition_point(|stretch| stretch.first <= position);
        let before = behind.checked_sub(1);
        let touches_before = before.is_some_and(|index| position <= self.0[index].last + 1);
        let touches_behind = self.0.get(behind).is_some_and(|stretch| stretch.first == position + 1);
        let grows = match before {
            Some(index) if touches_before || self.0.is_full() && !touches_behind => Some(index),
            _ if touches_behind || self.0.is_full() => Some(behind),
            _ => None,
        };
        match grows {
            Some(index) => self.0[index].take(position, key),
            None => {
                let gap = Gap { first: key, last: key, missing: 1 };
                self.0.insert(behind, Stretch { first: position, last: position, gap });
            }
        }
    }

    /// Whether the source was noted as missing in this event.
    pub(super) fn has(&self, position: Position) -> bool {
        self.0.iter().any(|stretch| (stretch.first..=stretch.last).contains(&position))
    }

    /// Iterates over the gaps in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Gap> + '_ {
        self.0.iter().map(|stretch| stretch.gap)
    }
}

/// Anomalies of one source's numbers, in order. If there are more than can be reported, the first ones are kept.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    list: ArrayVec<NumberingAnomaly, { ReportEntry::MOST_ANOMALIES }>,
}

impl Numbering {
    /// Notes an anomaly. Consecutive wrong numbers or left-overs are merged into one.
    pub(super) fn note(&mut self, kind: NumberingKind, key: EventKey, from: u64, to: u64, size: u64) {
        use NumberingKind::{LeftOver, OutOfSync, WrongNumber};
        // The operator may have to act on this one.
        if kind == OutOfSync && self.list.is_full() {
            self.list.pop();
        }
        match self.list.last_mut() {
            Some(last) if last.kind == kind && last.key == key && matches!(kind, LeftOver | WrongNumber) => {
                last.size += size;
            }
            _ => _ = self.list.try_push(NumberingAnomaly { kind, key, from, to, size }),
        }
    }

    /// Iterates over the anomalies in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = NumberingAnomaly> + '_ {
        self.list.iter().copied()
    }
}

/// Counts fragments that arrived together, `since` after the previous ones.
fn fill_histogram(histogram: &mut Histogram, since: Option<Duration>, fragments: &[Received]) {
    let came = fragments.iter().filter(|fragment| !fragment.meta.flags.contains(FragmentFlags::MISSING));
    match histogram.of() {
        Histogrammed::Size => came.for_each(|fragment| histogram.count(u64::from(fragment.meta.length))),
        Histogrammed::Interval => {
            // Only the first of them arrived after an interval; the others came with it.
            let mut since = since;
            for _ in came {
                since.into_iter().for_each(|since| histogram.count_interval(since));
                since = Some(Duration::ZERO);
            }
        }
        Histogrammed::Field(field) => {
            came.for_each(|fragment| histogram.count_field(field.read(fragment.payload.pieces())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_nanos(100);

    fn at(nanoseconds: u64) -> Instant {
        Instant::from_nanoseconds(nanoseconds)
    }

    #[test]
    fn counts_from_when_the_event_became_the_oldest() {
        let (mut clock, mut oldest) = (AbsenceClock::default(), Oldest::default());
        clock.set_running(at(0), true, &oldest);
        assert_eq!(clock.shows(at(50), &oldest), Duration::ZERO);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), Instant::FAR_FUTURE);
        oldest.begin(at(50));
        assert_eq!(clock.shows(at(80), &oldest), Duration::from_nanos(30));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(150));
        oldest.begin(at(90));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(190), "the next event has its own clock");
    }

    #[test]
    fn stands_still_while_the_source_is_not_read() {
        let (mut clock, mut oldest) = (AbsenceClock::default(), Oldest::default());
        clock.set_running(at(0), true, &oldest);
        oldest.begin(at(0));
        clock.set_running(at(60), false, &oldest);
        assert_eq!(clock.shows(at(500), &oldest), Duration::from_nanos(60));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), Instant::FAR_FUTURE);
        clock.set_running(at(1000), true, &oldest);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1040));
        clock.set_running(at(1010), false, &oldest);
        clock.set_running(at(1010), true, &oldest);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1040));
        oldest.begin(at(1020));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1120), "what an earlier event waited does not count");
    }

    fn of(positions: impl IntoIterator<Item = Position>) -> Vec<(u64, u64, u64)> {
        let mut gaps = Gaps::default();
        positions.into_iter().for_each(|position| gaps.note(position, EventKey::new(0, position)));
        gaps.iter().map(|gap| (gap.first.number(), gap.last.number(), gap.missing)).collect()
    }

    #[test]
    fn events_in_a_row_are_one_stretch() {
        assert_eq!(of([]), []);
        assert_eq!(of([7]), [(7, 7, 1)]);
        assert_eq!(of([7, 8, 9, 11, 13, 14]), [(7, 9, 3), (11, 11, 1), (13, 14, 2)]);
    }

    #[test]
    fn what_is_known_later_finds_its_place_and_no_stretch_vanishes() {
        assert_eq!(of([20, 21, 3, 5, 4, 22, 19, 6]), [(3, 4, 2), (5, 6, 2), (19, 22, 4)]);
        assert_eq!(of([9, 8, 7]), [(7, 9, 3)]);
    }

    #[test]
    fn what_finds_no_room_makes_the_stretch_before_it_longer_so_that_outside_nothing_is_missing() {
        let most = ReportEntry::MOST_GAPS as u64;
        let gaps = of((0..most + 5).map(|index| 2 * index));
        assert_eq!(gaps.len() as u64, most);
        assert_eq!(gaps.last(), Some(&(2 * (most - 1), 2 * (most + 4), 6)));
        assert_eq!(gaps.iter().map(|gap| gap.2).sum::<u64>(), most + 5);
        let gaps = of((1..=most).map(|index| 10 * index).chain([15, 3]));
        assert_eq!((gaps[0], gaps[1], gaps.len() as u64), ((3, 15, 3), (20, 20, 1), most));
    }
}
