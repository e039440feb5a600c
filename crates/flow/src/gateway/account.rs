//! What became of packets and of events.

use super::sources::Recount;
use ropewalk_terms::{ByCause, EventAccount, FragmentAccount, account};
use schemars::JsonSchema;
use serde::Serialize;

account! {
    /// The account of a flow's packets and of the sets that they made.
    ///
    /// A packet is counted as one: all of its fragments share its fate. `packets` balances at any time, with what is in
    /// flight counted from the table of open sets.
    pub struct FlowAccount {
        /// Where the packets went. Refused ones are in `dropped`, by cause.
        pub packets: FragmentAccount,
        /// Bytes of all packets, headers included.
        pub bytes: u64,
        /// Sets that were begun.
        pub opened: u64,
        /// Sets that had every source that took part in them.
        pub complete: u64,
        /// Sets that had not, and go to nodes nevertheless.
        pub incomplete: u64,
        /// Sets that were dropped by policy, or because the run had ended, by cause.
        pub dropped: ByCause,
        /// Sets that were not begun, though a packet of theirs came, by cause.
        pub refused: ByCause,
        /// Sets in assembly, counted from the table.
        pub open: u64,
        /// Packets that were missing in finished sets, by cause.
        pub missing: ByCause,
    }
}

impl FlowAccount {
    /// Whether every packet and every set is where it should be.
    pub fn is_balanced(&self) -> bool {
        let ended = self.complete + self.incomplete + self.dropped.total() + self.open;
        self.packets.received == self.packets.accounted() && self.opened == ended
    }
}

/// What became of the packets of one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceAccount {
    /// Packets that became part of a set.
    pub packets: u64,
    /// Bytes of them, headers included.
    pub bytes: u64,
    /// Finished sets that lack its packet.
    pub missing: u64,
    /// Packets that were let go, since it was masked in mid-run and took no part in their sets.
    pub masked: u64,
    /// Packets that were dropped, since it had started its numbering again.
    pub out_of_sync: u64,
    /// How often it did, and the last time.
    pub restarts: u64,
    /// See `restarts`.
    pub last_restart: Recount,
    /// Packets whose header, length or fragments were wrong; the account of the flow has their causes.
    pub corrupt: u64,
    /// Complete sets in which it took no part.
    pub left_out_of_complete: u64,
    /// Other finished sets in which it took no part.
    pub left_out_of_incomplete: u64,
}

impl SourceAccount {
    /// Adds another account.
    pub const fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.missing += other.missing;
        self.masked += other.masked;
        self.out_of_sync += other.out_of_sync;
        self.corrupt += other.corrupt;
        // Each gateway sees the same ones.
        if other.restarts > self.restarts {
            (self.restarts, self.last_restart) = (other.restarts, other.last_restart);
        }
        self.left_out_of_complete += other.left_out_of_complete;
        self.left_out_of_incomplete += other.left_out_of_incomplete;
    }
}

account! {
    /// A flow's events at the nodes of the farm. Balances at any time, with what is in flight counted from the table.
    #[derive(Serialize, JsonSchema)]
    #[schemars(rename = "FarmSummary")]
    pub struct FarmAccount {
        /// Where the events went. `assigned` are those of all sets that came; `built` and `incomplete_emitted` count at the
        /// decision.
        #[serde(skip)]
        pub events: EventAccount,
        /// Decided events on which no node decided in time.
        pub by_default: u64,
        /// Events on which a node or the default decided.
        pub decided: u64,
        /// Repeated decisions, and decisions of an earlier attempt. The first flow has those of all flows.
        pub ignored: u64,
        /// Decisions within the flow's budget.
        pub in_budget: u64,
        /// Decisions that came after their event was decided by default.
        pub late: u64,
        /// Decisions whose message was lost; the event is sent again.
        #[serde(rename = "lost_decisions")]
        pub lost: u64,
        /// Events that a node received in part, and that are sent again.
        pub not_received: u64,
        /// Events that were pushed for the first time.
        pub pushed: u64,
        /// Events that were pushed again, each time.
        pub pushed_again: u64,
        /// Bytes of events pushed, heads left out.
        pub pushed_bytes: u64,
        /// Accepted events that storage got.
        pub stored: u64,
        /// Their size in bytes.
        pub stored_bytes: u64,
        /// Decisions that left in the order of events.
        pub streamed: u64,
        /// Events of a silent node, which are sent again.
        pub taken_back: u64,
    }
}

impl FarmAccount {
    /// Whether every event is where it should be.
    pub fn is_balanced(&self) -> bool {
        let events = &self.events;
        let decided = events.built + events.incomplete_emitted;
        events.assigned == events.accounted()
            && decided == events.accepted + events.rejected + events.quarantined
            && decided == self.decided
            && self.by_default <= self.decided
    }
}
