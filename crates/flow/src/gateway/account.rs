//! Accounts of packets and events.

use super::sources::Recount;
use ropewalk_terms::{ByCause, EventAccount, FragmentAccount, account};
use schemars::JsonSchema;
use serde::Serialize;

account! {
    /// The account of a flow's packets and of the sets that they made.
    ///
    /// All fragments of a packet share its fate, so it counts as one. `packets` balances at any time; packets in flight
    /// are counted from the table of open sets.
    pub struct FlowAccount {
        /// The fate of the packets. Refused packets are in `dropped`, by cause.
        pub packets: FragmentAccount,
        /// Bytes of all packets, headers included.
        pub bytes: u64,
        /// Sets that were opened.
        pub opened: u64,
        /// Sets with a packet of every participating source.
        pub complete: u64,
        /// Incomplete sets that were passed to nodes.
        pub incomplete: u64,
        /// Sets that were dropped by policy or at the end of the run, by cause.
        pub dropped: ByCause,
        /// Sets that were refused although one of their packets came, by cause.
        pub refused: ByCause,
        /// Sets in assembly, counted from the table.
        pub open: u64,
        /// Missing packets of finished sets, by cause.
        pub missing: ByCause,
    }
}

impl FlowAccount {
    /// Whether all packets and sets are accounted for.
    pub fn is_balanced(&self) -> bool {
        let ended = self.complete + self.incomplete + self.dropped.total() + self.open;
        self.packets.received == self.packets.accounted() && self.opened == ended
    }
}

/// The account of one source's packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceAccount {
    /// Packets that became parts of sets.
    pub packets: u64,
    /// Their size in bytes, headers included.
    pub bytes: u64,
    /// Finished sets that lack its packet.
    pub missing: u64,
    /// Packets that were dropped because the source was masked during the run.
    pub masked: u64,
    /// Packets that were dropped because the source had restarted its numbering.
    pub out_of_sync: u64,
    /// Number of restarts, and the last one.
    pub restarts: u64,
    /// See `restarts`.
    pub last_restart: Recount,
    /// Packets with a wrong header, length or fragments; the account of the flow has their causes.
    pub corrupt: u64,
    /// Complete sets in which it did not participate.
    pub left_out_of_complete: u64,
    /// Other finished sets in which it did not participate.
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
        // All gateways see the same restarts.
        if other.restarts > self.restarts {
            (self.restarts, self.last_restart) = (other.restarts, other.last_restart);
        }
        self.left_out_of_complete += other.left_out_of_complete;
        self.left_out_of_incomplete += other.left_out_of_incomplete;
    }
}

account! {
    /// The account of a flow's events in the farm. It balances at any time; events in flight are counted from the
    /// table.
    #[derive(Serialize, JsonSchema)]
    #[schemars(rename = "FarmSummary")]
    pub struct FarmAccount {
        /// The fate of the events. `assigned` are the events of all received sets; `built` and `incomplete_emitted`
        /// count at the decision.
        #[serde(skip)]
        pub events: EventAccount,
        /// Events decided by default because no node decided in time.
        pub by_default: u64,
        /// Events decided by a node or by default.
        pub decided: u64,
        /// Repeated decisions, and decisions of an earlier attempt. The first flow counts these for all flows.
        pub ignored: u64,
        /// Decisions within the flow's latency budget.
        pub in_budget: u64,
        /// Decisions that arrived after the default decision.
        pub late: u64,
        /// Decisions whose message was lost; the event is sent again.
        #[serde(rename = "lost_decisions")]
        pub lost: u64,
        /// Events that a node received only in part; they are sent again.
        pub not_received: u64,
        /// Events that were pushed for the first time.
        pub pushed: u64,
        /// Repeated pushes of events.
        pub pushed_again: u64,
        /// Bytes of pushed events, without heads.
        pub pushed_bytes: u64,
        /// Accepted events that were passed to storage.
        pub stored: u64,
        /// Their size in bytes.
        pub stored_bytes: u64,
        /// Decisions sent in the order of events.
        pub streamed: u64,
        /// Events taken back from a silent node and sent again.
        pub taken_back: u64,
    }
}

impl FarmAccount {
    /// Whether all events are accounted for.
    pub fn is_balanced(&self) -> bool {
        let events = &self.events;
        let decided = events.built + events.incomplete_emitted;
        events.assigned == events.accounted()
            && decided == events.accepted + events.rejected + events.quarantined
            && decided == self.decided
            && self.by_default <= self.decided
    }
}
