//! What a run has: sources, nodes, addresses, counters.

use super::balance::Fragments;
use super::masks::Taking;
use ropewalk_node::session::SessionView;
use ropewalk_terms::{COUNTERS, Counter, FragmentAccount, Role};
use serde::Serialize;
use utoipa::ToSchema;

/// A front end.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Source {
    /// Its id.
    id: u32,
    /// The readout unit that receives it; null where none has told of it.
    readout: Option<String>,
    /// A connection of it is open. Always false for sources that send datagrams.
    is_connected: bool,
    /// Nothing more is expected of it: it has ended in order, or is masked.
    has_ended: bool,
    /// Whether it takes part in the run that goes on.
    taking: Taking,
    /// The number of the latest event that it has shown; null where none has come.
    last_event: Option<u64>,
    /// Seconds since something came of it; null where nobody told.
    silent_s: Option<f64>,
    #[serde(flatten)]
    fragments: Fragments,
    crc_errors: u64,
    frames_missing: u64,
    garbage_bytes: u64,
}

/// All front ends that have been heard of, by id.
pub(crate) fn sources(view: &SessionView) -> Vec<Source> {
    let snapshot = &view.snapshot;
    let source = |(id, account): (&ropewalk_terms::SourceId, &FragmentAccount)| {
        let told = view.sample.source(*id);
        let known = |counter| told.and_then(|told| told.numbers.known(counter));
        let seen = snapshot.seen.get(id).copied().unwrap_or_default();
        Source {
            id: id.0,
            readout: told.map(|told| told.readout.to_string()),
            has_ended: told.is_some_and(ropewalk_monitor::SourceSample::has_ended),
            taking: Taking::of(view, *id),
            last_event: known(Counter::LastEventNumber).filter(|_| account.received > 0),
            silent_s: known(Counter::SilentTime).map(|nanoseconds| nanoseconds as f64 / 1e9),
            is_connected: told.is_some_and(ropewalk_monitor::SourceSample::is_connected),
            fragments: Fragments::of(account),
            crc_errors: seen.crc_errors,
            frames_missing: seen.frames_missing,
            garbage_bytes: seen.garbage_bytes,
        }
    };
    snapshot.sources.iter().map(source).collect()
}

/// Where something of the run that is set up or under way listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Address {
    /// Whose it is: `ru0`, for front ends of that readout unit, `front-ends`, ...
    name: String,
    /// Host and port.
    address: String,
}

/// Everything that listens.
pub(crate) fn addresses(view: &SessionView) -> Vec<Address> {
    let address = |(name, address): &(String, String)| Address { name: name.clone(), address: address.clone() };
    view.addresses.iter().map(address).collect()
}

/// A node of the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Node {
    /// `ru0`, `bu1`: its name in messages.
    name: String,
    /// `readout` or `builder`.
    role: &'static str,
    /// Its number among those of its role.
    index: u16,
    /// Whether it is there.
    connected: bool,
}

/// All readout and builder units.
pub(crate) fn nodes(view: &SessionView) -> Vec<Node> {
    let role = |role| match role {
        Role::Readout => "readout",
        Role::Builder => "builder",
        Role::Manager => "manager",
        Role::Source => "source",
    };
    let nodes = view.snapshot.nodes.iter();
    nodes
        .map(|&(node, connected)| Node { name: node.to_string(), role: role(node.role), index: node.index, connected })
        .collect()
}

/// A sum over all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Count {
    name: &'static str,
    help: &'static str,
    value: u64,
}

/// Every counter.
pub(crate) fn counters(view: &SessionView) -> Vec<Count> {
    let count = |&counter: &Counter| Count {
        name: counter.name(),
        help: counter.help().trim(),
        value: view.snapshot.counter(counter),
    };
    COUNTERS.iter().map(count).collect()
}
