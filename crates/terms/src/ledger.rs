//! The ledger: the account of every fragment, event and buffer.
//!
//! What is in flight is **counted from tables**, never computed as the remainder; that is what makes an
//! imbalance visible.

use crate::{CAUSES, Cause, Ending, Outcome, Verdict};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One number per cause.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ByCause([u64; Cause::COUNT]);

impl Default for ByCause {
    fn default() -> Self {
        Self([0; Cause::COUNT])
    }
}

impl ByCause {
    /// Counts `count` more for `cause`.
    pub const fn add(&mut self, cause: Cause, count: u64) {
        self.0[cause as usize] += count;
    }

    /// The number of `cause`.
    pub const fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Sets the number of `cause`.
    pub const fn set(&mut self, cause: Cause, count: u64) {
        self.0[cause as usize] = count;
    }

    /// The sum over all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The causes that happened, with their numbers, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        CAUSES.iter().map(|&cause| (cause, self.get(cause))).filter(|&(_, count)| count > 0)
    }

    /// The causes that happened, by name.
    pub fn names(&self) -> BTreeMap<&'static str, u64> {
        self.iter().map(|(cause, count)| (cause.name(), count)).collect()
    }

    /// Adds each number of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The increase of these numbers since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        since.0.iter_mut().zip(before.0).for_each(|(mine, earlier)| *mine = mine.saturating_sub(earlier));
        since
    }
}

/// Serialised as [`ByCause::names`].
impl Serialize for ByCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.names().serialize(serializer)
    }
}

impl JsonSchema for ByCause {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByCause".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, u64>::json_schema(generator)
    }
}

/// A field of an [`account!`](crate::account).
pub trait Sum {
    /// Adds another number.
    fn merge(&mut self, other: &Self);

    /// The increase since `before`.
    #[must_use]
    fn since(&self, before: &Self) -> Self;
}

impl Sum for u64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }

    fn since(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }
}

/// Declares an account: a struct of numbers that are added up field by field ([`Sum`]). With a name alone, makes that
/// struct a field of accounts.
#[macro_export]
macro_rules! account {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$help:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$help])* pub $field: $kind,)*
        }

        impl $name {
            /// Adds another account.
            pub fn merge(&mut self, other: &Self) {
                $($crate::Sum::merge(&mut self.$field, &other.$field);)*
            }

            /// The increase of this account since `before`.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: $crate::Sum::since(&self.$field, &before.$field),)* }
            }
        }

        $crate::account!($name);
    };
    ($name:ident) => {
        impl $crate::Sum for $name {
            fn merge(&mut self, other: &Self) {
                Self::merge(self, other);
            }

            fn since(&self, before: &Self) -> Self {
                Self::since(self, before)
            }
        }
    };
}

account!(ByCause);

account! {
    /// The account of fragments, of one source or of many.
    #[derive(Serialize, JsonSchema)]
    pub struct FragmentAccount {
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
        pub dropped: ByCause,
        /// Fragments that were held when the account was made, counted from tables.
        pub in_flight: u64,
        /// Fragments that ended in events that were dropped as a whole; `dropped` has them, too.
        pub in_dropped_events: u64,
        /// Missing fragments of finished events that needed them, by cause.
        pub missing: ByCause,
    }
}

impl FragmentAccount {
    /// The sum of all outcomes of fragments, including those in flight.
    pub fn accounted(&self) -> u64 {
        self.in_complete_events
            + self.in_incomplete_events
            + self.duplicate
            + self.late
            + self.corrupt
            + self.stale
            + self.after_stop
            + self.dropped.total()
            + self.in_flight
    }

    /// Fragments that arrived and were lost: they are in no event although the run wanted them, neither masked nor sent
    /// after the stop.
    pub fn lost(&self) -> u64 {
        let dropped = self.dropped.total() - self.dropped.get(Cause::Masked);
        self.duplicate + self.late + self.corrupt + self.stale + dropped
    }

    /// Fragments that never came although their events needed them, without those of masked sources.
    pub fn never_came(&self) -> u64 {
        self.missing.total() - self.missing.get(Cause::Masked)
    }

    /// How many events there were that need a fragment, as this account has it: each had one, or none for a cause.
    pub fn expected(&self) -> u64 {
        let in_events = self.in_complete_events + self.in_incomplete_events + self.in_dropped_events;
        in_events + self.in_flight + self.missing.total()
    }
}

account! {
    /// The account of events.
    pub struct EventAccount {
        /// Keys given to builder units (each key once, however often it was assigned).
        pub assigned: u64,
        /// Built with every required source.
        pub built: u64,
        /// Kept although something was missing.
        pub incomplete_emitted: u64,
        /// Dropped for a named cause.
        pub incomplete_dropped: ByCause,
        /// Kept by the decision.
        pub accepted: u64,
        /// Of these, events that no stream took: their prescales left them out. They are in no file.
        pub unselected: u64,
        /// Thrown away by the decision.
        pub rejected: u64,
        /// Set aside because no decision could be had.
        pub quarantined: u64,
        /// Events in run files: exact, each event once, if acknowledgements report it; otherwise as builder units last
        /// reported it, without what one of them wrote before it died.
        pub written: u64,
        /// Second copies of a key, written because a builder died between write and acknowledgement.
        pub rebuilt_duplicate: u64,
        /// Assigned and not finished, counted from tables.
        pub in_flight: u64,
    }
}

impl EventAccount {
    /// The sum of all outcomes of the assigned events, including those in flight.
    pub fn accounted(&self) -> u64 {
        self.built + self.incomplete_emitted + self.incomplete_dropped.total() + self.in_flight
    }

    /// An event ends: counted by what was built, and by what was decided of that.
    pub const fn end(&mut self, ending: Ending) {
        match ending.outcome {
            Outcome::Complete => self.built += 1,
            Outcome::IncompleteEmitted => self.incomplete_emitted += 1,
            Outcome::Dropped(cause) => return self.incomplete_dropped.add(cause, 1),
        }
        match ending.verdict {
            Verdict::Accepted => self.accepted += 1,
            Verdict::Unselected => {
                self.accepted += 1;
                self.unselected += 1;
            }
            Verdict::Rejected => self.rejected += 1,
            Verdict::Quarantined => self.quarantined += 1,
        }
    }

    /// Events that are or will be in run files.
    pub const fn to_be_written(&self) -> u64 {
        self.accepted - self.unselected + self.quarantined
    }
}

/// The account of a pool's blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolAccount {
    /// Blocks lent since the start.
    pub loans: u64,
    /// Blocks that came back.
    pub returned: u64,
    /// Blocks held now, counted from the table of blocks.
    pub held: u64,
}

/// The account of chunks that were meant for subscribers of link cards, once for each.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ChunkAccount {
    /// Meant for a subscriber.
    pub offered: u64,
    /// Sent to it.
    pub sent: u64,
    /// Dropped: the subscriber had no room, or it left and no other one took over.
    pub dropped: u64,
    /// Taken over by others of its group when it went, to which they are offered anew.
    pub moved: u64,
    /// Waiting now, counted from the queues.
    pub queued: u64,
}

account! {
    /// The account of a stream: selected = prescaled_away + written + failed + in_flight.
    #[derive(Serialize, JsonSchema)]
    #[schemars(rename = "StreamSummary")]
    pub struct StreamAccount {
        /// Events that its triggers or trigger types select.
        pub selected: u64,
        /// Events that its prescale left out.
        pub prescaled_away: u64,
        /// Events in its files.
        pub written: u64,
        /// Events that could not be written.
        pub failed: u64,
        /// Events on their way to its files, counted from the table.
        pub in_flight: u64,
    }
}

impl StreamAccount {
    /// The sum of all outcomes of the selected events, including those in flight.
    pub const fn accounted(&self) -> u64 {
        self.prescaled_away + self.written + self.failed + self.in_flight
    }
}

/// An equation of the ledger that does not hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Imbalance {
    /// Which equation, for example `fragments`.
    pub equation: &'static str,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

/// The whole account of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Fragments of all sources.
    pub fragments: FragmentAccount,
    /// Events.
    pub events: EventAccount,
    /// Blocks of all pools.
    pub pools: PoolAccount,
    /// Chunks for subscribers.
    pub chunks: ChunkAccount,
    /// Events of all streams, once for each stream.
    pub streams: StreamAccount,
}

impl Ledger {
    /// The equations that do not hold; empty when the ledger balances.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        let Self { fragments, events, pools, chunks, streams } = self;
        [
            Imbalance { equation: "fragments", left: fragments.received, right: fragments.accounted() },
            Imbalance { equation: "events", left: events.assigned, right: events.accounted() },
            Imbalance {
                equation: "decisions",
                left: events.built + events.incomplete_emitted,
                right: events.accepted + events.rejected + events.quarantined,
            },
            Imbalance { equation: "pools", left: pools.loans, right: pools.returned + pools.held },
            Imbalance { equation: "streams", left: streams.selected, right: streams.accounted() },
            Imbalance {
                equation: "chunks",
                left: chunks.offered,
                right: chunks.sent + chunks.dropped + chunks.moved + chunks.queued,
            },
        ]
        .into_iter()
        .filter(|equation| equation.left != equation.right)
        .collect()
    }

    /// Whether every equation holds.
    pub fn is_balanced(&self) -> bool {
        self.imbalances().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_ledger_balances() {
        assert!(Ledger::default().is_balanced());
    }

    #[test]
    fn an_uncounted_fragment_is_found() {
        let mut ledger = Ledger::default();
        ledger.fragments.received = 10;
        ledger.fragments.in_complete_events = 8;
        ledger.fragments.dropped.add(Cause::TimedOut, 1);
        let imbalances = ledger.imbalances();
        assert_eq!(imbalances, [Imbalance { equation: "fragments", left: 10, right: 9 }]);
        ledger.fragments.late = 1;
        assert!(ledger.is_balanced());
    }

    #[test]
    fn an_uncounted_event_is_found() {
        let mut ledger = Ledger::default();
        ledger.events = EventAccount { assigned: 10, built: 5, incomplete_emitted: 1, accepted: 6, ..ledger.events };
        ledger.events.incomplete_dropped.add(Cause::TimedOut, 2);
        ledger.events.in_flight = 1;
        assert_eq!(ledger.imbalances(), [Imbalance { equation: "events", left: 10, right: 9 }]);
        ledger.events.in_flight = 2;
        assert!(ledger.is_balanced());
    }

    #[test]
    fn an_event_ends_by_what_was_built_and_what_was_decided() {
        let mut events = EventAccount { assigned: 5, ..EventAccount::default() };
        for verdict in [Verdict::Accepted, Verdict::Unselected, Verdict::Rejected, Verdict::Quarantined] {
            events.end(Ending { outcome: Outcome::Complete, verdict });
        }
        events.end(Ending { outcome: Outcome::Dropped(Cause::TimedOut), verdict: Verdict::Rejected });
        let decided = (events.accepted, events.unselected, events.rejected, events.quarantined);
        assert_eq!((events.built, decided, events.to_be_written()), (4, (2, 1, 1, 1), 2));
        assert!(Ledger { events, ..Ledger::default() }.is_balanced());
    }

    #[test]
    fn an_uncounted_chunk_for_a_subscriber_is_found() {
        let chunks = ChunkAccount { offered: 10, sent: 5, dropped: 2, moved: 1, queued: 1 };
        let mut ledger = Ledger { chunks, ..Ledger::default() };
        assert_eq!(ledger.imbalances(), [Imbalance { equation: "chunks", left: 10, right: 9 }]);
        ledger.chunks.queued = 2;
        assert!(ledger.is_balanced());
    }

    #[test]
    fn accounts_add_up_by_cause() {
        let mut one = ByCause::default();
        one.add(Cause::Masked, 2);
        let mut two = one;
        two.merge(&one);
        assert_eq!(two.iter().collect::<Vec<_>>(), [(Cause::Masked, 4)]);
        assert_eq!(two.total(), 4);
    }
}
