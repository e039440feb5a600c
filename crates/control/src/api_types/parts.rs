//! What a run has: sources, nodes, addresses, counters.

use super::balance::Fragments;
use super::masks::Taking;
use ropewalk_node::session::SessionView;
use ropewalk_terms::{COUNTERS, Counter, FragmentAccount, Role, SourceCounts};
use serde::Serialize;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

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
    #[serde(flatten)]
    counts: Counts,
}

/// Further counts of a source, in `run.json` too.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Counts(SourceCounts);

impl PartialSchema for Counts {
    fn schema() -> RefOr<Schema> {
        let object = SourceCounts::default().iter().fold(ObjectBuilder::new(), |object, (counter, _)| {
            let count = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
            let name = counter.account_name();
            object.property(name, count.description(Some(counter.help().trim()))).required(name)
        });
        object.into()
    }
}

impl ToSchema for Counts {}

/// All front ends that have been heard of, by id.
pub(crate) fn sources(view: &SessionView) -> Vec<Source> {
    let snapshot = &view.snapshot;
    let source = |(id, account): (&ropewalk_terms::SourceId, &FragmentAccount)| {
        let told = view.sample.source(*id);
        let known = |counter| told.and_then(|told| told.numbers.known(counter));
        Source {
            id: id.0,
            readout: told.map(|told| told.readout.to_string()),
            has_ended: told.is_some_and(ropewalk_monitor::SourceSample::has_ended),
            taking: Taking::of(view, *id),
            last_event: known(Counter::LastEventNumber).filter(|_| account.received > 0),
            silent_s: known(Counter::SilentTime).map(|nanoseconds| nanoseconds as f64 / 1e9),
            is_connected: told.is_some_and(ropewalk_monitor::SourceSample::is_connected),
            fragments: Fragments::of(account),
            counts: Counts(snapshot.counts.get(id).copied().unwrap_or_default()),
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
