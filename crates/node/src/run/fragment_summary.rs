//! The account of fragments, of all sources or of one: `fragments` and `by_source` of an account.

use crate::drive::{Doubts, RunSnapshot};
use crate::status::named;
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_terms::{ByCause, Cause, Counter, Fact, Facts, FragmentAccount, SourceCounts, SourceId};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Where fragments went: received = in_complete_events + in_incomplete_events + duplicate + late + corrupt + stale +
/// after_stop + the sum of dropped + in_flight.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FragmentSummary {
    /// Fragments whose end was found.
    pub received: u64,
    /// Fragments that ended in complete events.
    pub in_complete_events: u64,
    /// Fragments that ended in incomplete events that were kept.
    pub in_incomplete_events: u64,
    /// Repeated fragments.
    pub duplicate: u64,
    /// Fragments that came after their event was finished.
    pub late: u64,
    /// Fragments without a usable source or number.
    pub corrupt: u64,
    /// Fragments that came before the run's start, or are left over from an earlier run.
    pub stale: u64,
    /// Fragments that came after the run's last event.
    pub after_stop: u64,
    /// Fragments that were lost for a named cause, by cause.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Fragments that were held when the account was made, counted from tables.
    pub in_flight: u64,
    /// Fragments that ended in events that were dropped as a whole; `dropped` has them, too.
    pub in_dropped_events: u64,
    /// Missing fragments of finished events that needed them, by cause.
    pub missing: BTreeMap<&'static str, u64>,
    /// Doubtful fragments in events, by flag. Wrong checksums are in `crc_errors`.
    #[schemars(with = "BTreeMap<String, NonZeroU64>")]
    pub flagged: BTreeMap<&'static str, u64>,
    /// Further counts.
    #[serde(flatten)]
    pub counts: SourceCounts,
}

/// Counts that are not 0, by the name of their cause.
pub(super) fn causes(by_cause: &ByCause) -> BTreeMap<&'static str, u64> {
    by_cause.iter().map(|(cause, count)| (cause.name(), count)).collect()
}

/// Doubtful fragments of all sources.
fn doubts(snapshot: &RunSnapshot) -> Doubts {
    let mut sums = Doubts::default();
    for of_source in snapshot.doubts.values() {
        sums.iter_mut().zip(of_source).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// The same by name, without wrong checksums, which have their own count.
fn flagged(doubts: &Doubts) -> BTreeMap<&'static str, u64> {
    let by_flag = FragmentFlags::DOUBTS.into_iter().zip(*doubts);
    by_flag
        .filter(|((flag, _), count)| *flag != FragmentFlags::CRC_ERROR && *count > 0)
        .map(|((_, name), count)| (name, count))
        .collect()
}

impl FragmentSummary {
    /// Of all sources together.
    pub(super) fn of_all(snapshot: &RunSnapshot) -> Self {
        let counts = SourceCounts::of(|counter| snapshot.counter(counter));
        Self::new(&snapshot.ledger.fragments, counts, &doubts(snapshot))
    }

    /// Of each source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Self> {
        let summary = |(id, account): (&SourceId, &FragmentAccount)| {
            let counts = snapshot.counts.get(id).copied().unwrap_or_default();
            let doubts = snapshot.doubts.get(id).copied().unwrap_or_default();
            (id.to_string(), Self::new(account, counts, &doubts))
        };
        snapshot.sources.iter().map(summary).collect()
    }

    fn new(account: &FragmentAccount, counts: SourceCounts, doubts: &Doubts) -> Self {
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
            flagged: flagged(doubts),
            counts,
        }
    }

    /// Facts for the exit status.
    pub(super) fn facts(&self) -> Facts {
        let masked = Cause::Masked.name();
        let of_masked = |by_cause: &BTreeMap<&str, u64>| by_cause.get(masked).copied().unwrap_or(0);
        let but_masked = |by_cause: &BTreeMap<&str, u64>| by_cause.values().sum::<u64>() - of_masked(by_cause);
        let flagged = self.flagged.iter().map(|(name, count)| (*name, *count));
        let before_start = self.counts.get(Counter::FragmentsBeforeStart);
        Facts::default().with(named(flagged)).with([
            (Fact::Late, self.late),
            (Fact::Duplicate, self.duplicate),
            (Fact::Corrupt, self.corrupt),
            (Fact::Stale, self.stale.saturating_sub(before_start)),
            (Fact::BeforeStart, before_start),
            (Fact::Dropped, but_masked(&self.dropped)),
            (Fact::Missing, but_masked(&self.missing)),
            (Fact::InFlight, self.in_flight),
            (Fact::CrcErrors, self.counts.get(Counter::CrcErrors)),
            (Fact::FramesMissing, self.counts.get(Counter::FramesMissing)),
            (Fact::OutOfOrder, self.counts.get(Counter::FramesOutOfOrder)),
            (Fact::AfterStop, self.after_stop),
            (Fact::Masked, of_masked(&self.dropped)),
        ])
    }
}
