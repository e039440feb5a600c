//! Every counter of a readout unit, per source, in the form in which the event manager gets them.

use super::machine::Readout;
use super::source::Source;
use crate::messages::ReportEntry;
use arrayvec::ArrayVec;
use ropewalk_terms::{Cause, Counter, FragmentAccount};

/// The counters that are reported of every source.
const COUNTERS: usize = 21;

/// How far the last report of the run has come.
#[derive(Copy, Clone, Debug)]
pub(super) struct ReportCursor {
    /// Entries that were sent.
    pub(super) sent: usize,
    /// Fragments that were held at the end.
    pub(super) in_flight: u64,
}

impl Readout {
    /// Every counter, source by source, as they stand now.
    pub fn report(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        (0..self.sources.len()).flat_map(|source| entries(&self.sources[source], &self.account(source)))
    }
}

fn entries(source: &Source, account: &FragmentAccount) -> ArrayVec<ReportEntry, { COUNTERS + 2 * Cause::COUNT }> {
    let statistics = &source.statistics;
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
        (Counter::CrcErrors, statistics.crc_errors),
        (Counter::SourceConnections, statistics.connections),
        (Counter::SourceDisconnections, statistics.disconnections),
        (Counter::ConnectionsRefused, statistics.framing_errors),
        (Counter::GarbageBytes, statistics.garbage_bytes),
        (Counter::FramesMissing, statistics.frames_missing),
        (Counter::FramesOutOfOrder, statistics.frames_out_of_order),
        (Counter::FramesDivided, statistics.frames_divided),
        (Counter::FramesGathered, statistics.frames_gathered),
        (Counter::BackPressureTime, statistics.back_pressure.as_nanos() as u64),
    ];
    let entry = |what, value| ReportEntry { source: Some(source.id), what, value };
    let counters = counters.into_iter().map(|(counter, value)| entry(counter as u16, value));
    let causes = account.dropped.iter().map(|(cause, count)| entry(ReportEntry::cause(cause), count));
    let missing = account.missing.iter().map(|(cause, count)| entry(ReportEntry::missing(cause), count));
    counters.chain(causes).chain(missing).collect()
}
