//! Every counter of a readout unit, per source, in the form in which the event manager gets them.

use super::machine::Readout;
use super::source::Source;
use super::timeline::ORIGIN;
use crate::messages::{FragmentFlags, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::{Cause, Counter, FragmentAccount, Instant};

/// The counters that are reported of every source.
const COUNTERS: usize = 26;

/// How far the last report of the run has come.
#[derive(Copy, Clone, Debug)]
pub(super) struct ReportCursor {
    /// Entries that were sent.
    pub(super) sent: usize,
    /// Fragments that were held at the end.
    pub(super) in_flight: u64,
}

impl Readout {
    /// Every counter, source by source, as they stand at `now`.
    pub fn report(&self, now: Instant) -> impl Iterator<Item = ReportEntry> + '_ {
        let any_required = self.has_needed_source();
        (0..self.sources.len()).flat_map(move |source| {
            let input = &self.sources[source];
            let ended = input.is_done(any_required);
            entries(input, &self.account(source), self.last_number(input), ended, now)
        })
    }

    /// What users' histograms hold, source by source: cells in which there is nothing are left out.
    pub fn histograms(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        self.sources.iter().flat_map(|source| {
            let id = source.id;
            source.histograms.iter().flat_map(move |histogram| {
                let cells = histogram.cells();
                cells.map(move |(cell, count)| ReportEntry::histogram(id, histogram.index(), cell, count))
            })
        })
    }

    /// The number of the latest event that a source has shown; 0 before the first.
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
            + 1
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

/// Counters that are left out while they are zero, to keep reports short.
fn rare(source: &Source) -> impl Iterator<Item = ReportEntry> {
    let (id, statistics) = (source.id, &source.statistics);
    let before_start = Some(statistics.before_start).filter(|&count| count > 0);
    let what = Counter::FragmentsBeforeStart as u16;
    let before_start = before_start.map(|value| ReportEntry { source: Some(id), what, value });
    let doubts = statistics.doubts.into_iter().enumerate().filter(|&(_, count)| count > 0);
    before_start.into_iter().chain(doubts.map(move |(doubt, count)| ReportEntry::doubt(id, doubt, count)))
}

/// What the source's numbers did that they should not.
fn numbering(source: &Source) -> impl Iterator<Item = ReportEntry> {
    let id = source.id;
    (0..).zip(source.numbering.iter()).flat_map(move |(index, anomaly)| ReportEntry::anomaly(id, index, anomaly))
}
