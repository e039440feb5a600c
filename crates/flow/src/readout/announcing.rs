//! Messages of a readout unit to the event manager: held events, the key up to which everything is settled, and
//! reports.

use super::machine::Readout;
use super::source::Source;
use super::table::{ORIGIN, Position, State};
use crate::messages::{Announce, AnnounceEntry, Batch, Ended, FragmentFlags, Message, ReportEntry};
use crate::run_state::{KnownLumisections, Settings};
use arrayvec::ArrayVec;
use ropewalk_terms::{Cause, Counter, EventKey, FragmentAccount, Instant};
use std::collections::VecDeque;

/// Progress of the announcements.
#[derive(Debug)]
pub(super) struct Announcing {
    /// Events before this one were announced.
    next: Position,
    /// The key up to which the event manager knows everything to be settled; `None` for a new event manager.
    told: Option<EventKey>,
    /// Whether the event manager knows that no more events come at all.
    pub(super) told_all: bool,
    /// The outcomes of events that no node holds any more, as the event manager left them here for its successor.
    ended: Option<Ended>,
    /// Whether no source is awaited, so that events are settled as other readout units show them.
    pub(super) follows: bool,
    /// The value of `follows` that the event manager knows.
    told_follows: bool,
    /// The lumisections that the event manager reported, kept for its successor.
    pub(super) lumisections: KnownLumisections,
    /// Whether a new event manager has not received `ended` yet; the other fields in `_due` are for the lumisections,
    /// the masked sources and changed parameters, and the run's end.
    ended_due: bool,
    lumisections_due: VecDeque<Message>,
    orders_due: VecDeque<Message>,
    /// Changed parameters, kept for the successor of the event manager.
    pub(super) settings: Settings,
    stop_due: bool,
}

impl Default for Announcing {
    fn default() -> Self {
        Self {
            next: ORIGIN,
            told: Some(EventKey::MIN),
            told_all: false,
            ended: None,
            follows: false,
            told_follows: false,
            lumisections: KnownLumisections::default(),
            ended_due: false,
            lumisections_due: VecDeque::new(),
            orders_due: VecDeque::new(),
            settings: Settings::default(),
            stop_due: false,
        }
    }
}

impl Readout {
    /// Returns the next announcement; `None` if the event manager knows everything.
    pub(super) fn next_announce(&mut self) -> Option<Announce> {
        let told = self.announcing.told;
        if self.announcing.next == self.head && told.is_some() && !self.may_announce_end() {
            return None;
        }
        let mut entries = Batch::new();
        let end = self.head.min(self.table.end());
        let mut next = self.announcing.next;
        while next < end && !entries.is_full() {
            if let Some(slot) = self.table.slot(next)
                && slot.state == State::Settled
                && slot.fragments > 0
            {
                let key = self.timeline.key(next);
                let (bytes, fragments, triggered) = (slot.bytes, slot.fragments, slot.triggered);
                entries.push(AnnounceEntry { key, bytes, fragments, triggered });
            }
            next += 1;
        }
        self.announcing.next = if next < end { next } else { self.head };
        let settled = self.settled_key();
        self.announcing.told = told.max(Some(settled));
        let ends = self.note_end_announced();
        (!entries.is_empty() || Some(settled) > told || ends).then_some(Announce { settled, entries })
    }

    /// Returns the key up to which everything was announced: the largest key if nothing more can come.
    fn settled_key(&self) -> EventKey {
        let key = self.timeline.key_before(self.announcing.next);
        match &self.stop {
            None if self.announcing.next == self.head && self.is_exhausted() => EventKey::MAX,
            _ => key,
        }
    }

    /// Whether there is an end that the event manager does not know yet.
    fn may_announce_end(&self) -> bool {
        match &self.stop {
            Some(stop) => !stop.announced && self.head >= stop.end,
            None => !self.announcing.told_all && self.is_exhausted(),
        }
    }

    /// Notes that this announcement reports the end. Returns whether it does.
    fn note_end_announced(&mut self) -> bool {
        if self.announcing.next < self.head || !self.may_announce_end() {
            return false;
        }
        match &mut self.stop {
            Some(stop) => stop.announced = true,
            None => self.announcing.told_all = true,
        }
        true
    }

    /// Returns the message that no source is awaited, or that one is again, if the event manager does not know that
    /// yet.
    pub(super) fn next_follows(&mut self) -> Option<Message> {
        let Announcing { follows, told_follows, told_all, .. } = &mut self.announcing;
        let is_news = *follows != *told_follows && !*told_all;
        *told_follows = *follows;
        is_news.then_some(Message::Follows(*follows))
    }

    /// Keeps the outcomes of events for the successor of the event manager.
    pub(super) fn keep_ended(&mut self, ended: &Ended) {
        if self.announcing.ended.is_none_or(|known| known.below <= ended.below) {
            self.announcing.ended = Some(*ended);
        }
    }

    /// Returns the next message that an earlier event manager left here. A new event manager gets each once: the
    /// outcomes of events, the lumisections, the masked sources, the changed parameters, and the run's end.
    pub(super) fn next_left(&mut self) -> Option<Message> {
        let Announcing { ended, ended_due, lumisections_due, orders_due, stop_due, .. } = &mut self.announcing;
        let ended = ended.filter(|_| core::mem::take(ended_due)).map(Message::Ended);
        ended.or_else(|| lumisections_due.pop_front()).or_else(|| orders_due.pop_front()).or_else(|| {
            let stop = self.stop.as_ref().filter(|_| core::mem::take(stop_due));
            stop.map(|stop| Message::StopAt(stop.last))
        })
    }

    /// Announces everything held again, to a new event manager.
    pub(super) fn announce_again(&mut self) {
        self.announcing.next = self.table.base();
        self.announcing.told = None;
        self.announcing.told_follows = false;
        (self.announcing.ended_due, self.announcing.stop_due) = (true, true);
        self.announcing.lumisections_due = self.announcing.lumisections.told().collect();
        self.announcing.orders_due = self.masks().collect();
        self.announcing.orders_due.extend(self.announcing.settings.all().map(Message::Set));
        if let Some(stop) = &mut self.stop {
            stop.announced = false;
        }
    }
}

/// Number of counters that are reported for every source.
const COUNTERS: usize = 26;

/// Progress of the run's last report.
#[derive(Copy, Clone, Debug)]
pub(super) struct ReportCursor {
    /// Number of entries sent.
    pub(super) sent: usize,
    /// Number of fragments that were held at the end.
    pub(super) in_flight: u64,
}

impl Readout {
    /// Returns every counter, source by source, at `now`.
    pub fn report(&self, now: Instant) -> impl Iterator<Item = ReportEntry> + '_ {
        let any_required = self.has_needed_source();
        (0..self.sources.len()).flat_map(move |source| {
            let input = &self.sources[source];
            // A source that never connected has not ended, although no event waits for it.
            let ended = input.is_done(any_required) && !input.stays_away();
            entries(input, &self.account(source), self.last_number(input), ended, now)
        })
    }

    /// Returns the contents of the users' histograms, source by source, without empty cells.
    pub fn histograms(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        self.sources.iter().flat_map(|source| {
            let id = source.id;
            source.histograms.iter().flat_map(move |histogram| {
                let cells = histogram.cells();
                cells.map(move |(cell, count)| ReportEntry::histogram(id, histogram.index(), cell, count))
            })
        })
    }

    /// Returns the number of the latest event that a source has shown; 0 before the first.
    fn last_number(&self, source: &Source) -> u64 {
        let highest = source.highest();
        if highest < ORIGIN { 0 } else { self.timeline.key(highest).number() }
    }
}

fn entries(
    source: &Source,
    account: &FragmentAccount,
    last_number: u64,
    ended: bool,
    now: Instant,
) -> ArrayVec<
    ReportEntry,
    {
        COUNTERS
            + 2 * Cause::COUNT
            + 4
            + FragmentFlags::DOUBTS.len()
            + ReportEntry::CORRUPT_WORDS
            + 1
            + ReportEntry::MOST_TURNS
            + 3 * ReportEntry::MOST_GAPS
            + 4 * ReportEntry::MOST_ANOMALIES
    },
> {
    let statistics = &source.statistics;
    let silent = source.last_came.map_or(0, |last| now.since(last).as_nanos() as u64);
    let counters: [(Counter, u64); COUNTERS] = [
        (Counter::FragmentsReceived, account.received),
        (Counter::FragmentsComplete, account.in_complete_events),
        (Counter::FragmentsIncomplete, account.in_incomplete_events),
        (Counter::FragmentsDuplicate, account.duplicate),
        (Counter::FragmentsLate, account.late),
        (Counter::FragmentsCorrupt, account.corrupt),
        (Counter::FragmentsStale, account.stale),
        (Counter::FragmentsAfterStop, account.after_stop),
        (Counter::FragmentsInFlight, account.in_flight),
        (Counter::FragmentsInDroppedEvents, account.in_dropped_events),
        (Counter::PayloadBytesReceived, statistics.payload_bytes),
        (Counter::CrcErrors, statistics.doubts[0]),
        (Counter::SourceConnections, statistics.connections),
        (Counter::SourceDisconnections, statistics.disconnections),
        (Counter::ConnectionsRefused, statistics.framing_errors),
        (Counter::GarbageBytes, statistics.garbage_bytes),
        (Counter::FillerBytes, statistics.filler_bytes),
        (Counter::FramesMissing, statistics.frames_missing),
        (Counter::FramesOutOfOrder, statistics.frames_out_of_order + statistics.times_out_of_order),
        (Counter::FramesDivided, statistics.frames_divided),
        (Counter::FramesGathered, statistics.frames_gathered),
        (Counter::BackPressureTime, source.back_pressure(now).as_nanos() as u64),
        (Counter::LastEventNumber, last_number),
        (Counter::SilentTime, silent),
        (Counter::SourcesEnded, u64::from(ended)),
        (Counter::SourceMasked, source.masking.state()),
    ];
    let entry = |what, value| ReportEntry { source: Some(source.id), what, value };
    let counters = counters.into_iter().map(|(counter, value)| entry(counter as u16, value));
    let causes = account.dropped.iter().map(|(cause, count)| entry(ReportEntry::cause(cause), count));
    let missing = account.missing.iter().map(|(cause, count)| entry(ReportEntry::missing(cause), count));
    let corrupt = (0..).zip(source.corrupt.into_iter().flatten());
    let corrupt = corrupt.map(|(word, value)| ReportEntry::corrupt(source.id, word, value));
    let turns = (0..).zip(source.masking.turns()).map(|(turn, key)| ReportEntry::turn(source.id, turn, key));
    let begun = source.masking.begun().map(|key| ReportEntry::begun(source.id, key));
    let gaps = (0..).zip(source.gaps.iter()).flat_map(|(index, gap)| ReportEntry::gap(source.id, index, gap));
    counters
        .chain(causes)
        .chain(missing)
        .chain(rare(source))
        .chain(corrupt)
        .chain(begun)
        .chain(turns)
        .chain(gaps)
        .chain(numbering(source))
        .collect()
}

/// Returns the counters that are left out while they are zero, to keep reports short.
fn rare(source: &Source) -> impl Iterator<Item = ReportEntry> {
    let (id, statistics) = (source.id, &source.statistics);
    let counters = [
        (Counter::FragmentsBeforeStart, statistics.before_start),
        (Counter::FragmentsEmpty, statistics.empty),
        (Counter::NumbersRepeated, statistics.repeated),
        (Counter::NumbersFell, statistics.fell),
        (Counter::NumbersJumped, statistics.jumped),
    ];
    let counters = counters.into_iter().filter(|&(_, count)| count > 0);
    let counters = counters.map(move |(counter, value)| ReportEntry { source: Some(id), what: counter as u16, value });
    let doubts = statistics.doubts.into_iter().enumerate().filter(|&(_, count)| count > 0);
    counters.chain(doubts.map(move |(doubt, count)| ReportEntry::doubt(id, doubt, count)))
}

/// Returns the anomalies of the source's numbering.
fn numbering(source: &Source) -> impl Iterator<Item = ReportEntry> {
    let id = source.id;
    (0..).zip(source.numbering.iter()).flat_map(move |(index, anomaly)| ReportEntry::anomaly(id, index, anomaly))
}
