//! The ledger: the account of every fragment, event and buffer.
//!
//! What is in flight is **counted from tables**, never computed as the remainder; that is what makes an
//! imbalance visible.

use crate::{CAUSES, Cause, Ending, Outcome, Verdict};

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

    /// Adds each number of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// What came to these numbers since they were `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (mine, earlier) in since.0.iter_mut().zip(before.0) {
            *mine = mine.saturating_sub(earlier);
        }
        since
    }
}

/// The account of fragments, of one source or of many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FragmentAccount {
    /// Fragments whose end was found.
    pub received: u64,
    /// Ended in complete events.
    pub in_complete_events: u64,
    /// Ended in incomplete events that were kept.
    pub in_incomplete_events: u64,
    /// Were there already.
    pub duplicate: u64,
    /// Came after their event was finished.
    pub late: u64,
    /// Had no usable identity.
    pub corrupt: u64,
    /// Came before the run's start.
    pub stale: u64,
    /// Came after the run's last event.
    pub after_stop: u64,
    /// Lost for a named cause.
    pub dropped: ByCause,
    /// Held now, counted from tables.
    pub in_flight: u64,
    /// Ended in events that were dropped as a whole: `dropped` has them, too, by cause.
    pub in_dropped_events: u64,
    /// Never came: events that were settled without one, although they need it. Not a part of what was received.
    pub missing: ByCause,
}

impl FragmentAccount {
    /// Where the fragments went, in flight included.
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

    /// Fragments that are in no event: everything but complete, incomplete and in flight.
    pub fn lost(&self) -> u64 {
        self.duplicate + self.late + self.corrupt + self.stale + self.after_stop + self.dropped.total()
    }

    /// Adds another account.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.in_complete_events += other.in_complete_events;
        self.in_incomplete_events += other.in_incomplete_events;
        self.duplicate += other.duplicate;
        self.late += other.late;
        self.corrupt += other.corrupt;
        self.stale += other.stale;
        self.after_stop += other.after_stop;
        self.dropped.merge(&other.dropped);
        self.in_flight += other.in_flight;
        self.in_dropped_events += other.in_dropped_events;
        self.missing.merge(&other.missing);
    }

    /// How many events there were that need a fragment, as this account has it: each had one, or none for a cause.
    pub fn expected(&self) -> u64 {
        let in_events = self.in_complete_events + self.in_incomplete_events + self.in_dropped_events;
        in_events + self.in_flight + self.missing.total()
    }
}

/// The account of events.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
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
    /// Known to be in run files: exact, each event once, where an acknowledgement says so; otherwise as builder units
    /// reported it last, without what one of them wrote before it died.
    pub written: u64,
    /// Second copies of a key, written because a builder died between write and acknowledgement.
    pub rebuilt_duplicate: u64,
    /// Assigned and not finished, counted from tables.
    pub in_flight: u64,
}

impl EventAccount {
    /// Where the assigned events went, in flight included.
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

    /// Events that are in run files, once they are known to have come as far.
    pub const fn to_be_written(&self) -> u64 {
        self.accepted - self.unselected + self.quarantined
    }

    /// Adds another account.
    pub fn merge(&mut self, other: &Self) {
        self.assigned += other.assigned;
        self.built += other.built;
        self.incomplete_emitted += other.incomplete_emitted;
        self.incomplete_dropped.merge(&other.incomplete_dropped);
        self.accepted += other.accepted;
        self.unselected += other.unselected;
        self.rejected += other.rejected;
        self.quarantined += other.quarantined;
        self.written += other.written;
        self.rebuilt_duplicate += other.rebuilt_duplicate;
        self.in_flight += other.in_flight;
    }

    /// What came to this account since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            assigned: self.assigned.saturating_sub(before.assigned),
            built: self.built.saturating_sub(before.built),
            incomplete_emitted: self.incomplete_emitted.saturating_sub(before.incomplete_emitted),
            incomplete_dropped: self.incomplete_dropped.since(&before.incomplete_dropped),
            accepted: self.accepted.saturating_sub(before.accepted),
            unselected: self.unselected.saturating_sub(before.unselected),
            rejected: self.rejected.saturating_sub(before.rejected),
            quarantined: self.quarantined.saturating_sub(before.quarantined),
            written: self.written.saturating_sub(before.written),
            rebuilt_duplicate: self.rebuilt_duplicate.saturating_sub(before.rebuilt_duplicate),
            in_flight: self.in_flight.saturating_sub(before.in_flight),
        }
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
    /// Dropped: it had no room, or it went and nobody took over.
    pub dropped: u64,
    /// Taken over by others of its group when it went, to which they are offered anew.
    pub moved: u64,
    /// Waiting now, counted from the queues.
    pub queued: u64,
}

/// The account of a stream, or of many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamAccount {
    /// Events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Left out by its prescale.
    pub prescaled_away: u64,
    /// In its files.
    pub written: u64,
    /// Could not be written.
    pub failed: u64,
    /// On their way to its files, counted from the table.
    pub in_flight: u64,
}

impl StreamAccount {
    /// Where the selected events went, in flight included.
    pub const fn accounted(&self) -> u64 {
        self.prescaled_away + self.written + self.failed + self.in_flight
    }

    /// Adds another account.
    pub const fn merge(&mut self, other: &Self) {
        self.selected += other.selected;
        self.prescaled_away += other.prescaled_away;
        self.written += other.written;
        self.failed += other.failed;
        self.in_flight += other.in_flight;
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
    fn a_fragment_that_nobody_counted_is_found() {
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
    fn an_event_that_nobody_counted_is_found() {
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
    fn a_chunk_for_a_subscriber_that_nobody_counted_is_found() {
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
