//! The ledger.

use ropewalk_run::session::SessionView;
use ropewalk_terms::{Counter, EventAccount, FragmentAccount, Ledger};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The account of fragments, of one source or of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Fragments {
    received: u64,
    in_complete_events: u64,
    in_incomplete_events: u64,
    duplicate: u64,
    late: u64,
    corrupt: u64,
    stale: u64,
    after_stop: u64,
    in_dropped_events: u64,
    in_flight: u64,
    /// Fragments that arrived and were lost: neither masked, nor from before the start or after the stop.
    lost: u64,
    /// By cause.
    dropped: BTreeMap<&'static str, u64>,
    /// Fragments that never came, by cause.
    missing: BTreeMap<&'static str, u64>,
}

impl Fragments {
    /// Of this account; `before_start` of its stale fragments came before the start.
    pub(super) fn of(account: &FragmentAccount, before_start: u64) -> Self {
        let by_cause = |by: &ropewalk_terms::ByCause| by.iter().map(|(cause, count)| (cause.name(), count)).collect();
        Self {
            received: account.received,
            in_complete_events: account.in_complete_events,
            in_incomplete_events: account.in_incomplete_events,
            duplicate: account.duplicate,
            late: account.late,
            corrupt: account.corrupt,
            stale: account.stale,
            after_stop: account.after_stop,
            in_dropped_events: account.in_dropped_events,
            in_flight: account.in_flight,
            lost: account.lost().saturating_sub(before_start),
            dropped: by_cause(&account.dropped),
            missing: by_cause(&account.missing),
        }
    }
}

/// The account of events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Events {
    assigned: u64,
    built: u64,
    incomplete_emitted: u64,
    accepted: u64,
    rejected: u64,
    quarantined: u64,
    written: u64,
    in_flight: u64,
}

impl Events {
    const fn of(account: &EventAccount) -> Self {
        Self {
            assigned: account.assigned,
            built: account.built,
            incomplete_emitted: account.incomplete_emitted,
            accepted: account.accepted,
            rejected: account.rejected,
            quarantined: account.quarantined,
            written: account.written,
            in_flight: account.in_flight,
        }
    }
}

/// An equation that does not hold now. During a run its numbers are of different moments.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Unbalanced {
    equation: &'static str,
    left: u64,
    right: u64,
}

/// The balance of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Balance {
    fragments: Fragments,
    events: Events,
    /// Blocks of pools.
    pools: Pools,
    /// Empty where everything holds.
    unbalanced: Vec<Unbalanced>,
    /// What is not known of readout units that died, each as `NODE: WHAT`; empty if the account is whole.
    partial: Vec<String>,
}

/// The account of pool blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Pools {
    loans: u64,
    returned: u64,
    held: u64,
    /// How many there are.
    blocks: u64,
}

impl Balance {
    pub(crate) fn of(view: &SessionView) -> Self {
        let ledger: &Ledger = &view.snapshot.ledger;
        let unbalanced = |imbalance: ropewalk_terms::Imbalance| Unbalanced {
            equation: imbalance.equation,
            left: imbalance.left,
            right: imbalance.right,
        };
        Self {
            fragments: Fragments::of(&ledger.fragments, view.snapshot.counter(Counter::FragmentsBeforeStart)),
            events: Events::of(&ledger.events),
            pools: Pools {
                loans: ledger.pools.loans,
                returned: ledger.pools.returned,
                held: ledger.pools.held,
                blocks: view.snapshot.counter(Counter::PoolBlocks),
            },
            unbalanced: ledger.imbalances().into_iter().map(unbalanced).collect(),
            partial: view.snapshot.unknown.iter().map(|(node, unknown)| format!("{node}: {unknown}")).collect(),
        }
    }
}
