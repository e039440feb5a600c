//! The state of the run sequence, command replies and the journal; sources, nodes, addresses and counters of a run; and
//! the live view, which combines them for clients that poll.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ropewalk_monitor::quality::Quality;
use ropewalk_monitor::{Rates, Sample};
use ropewalk_run::session::{Answer, Command, Entry, SessionView, Told};
use ropewalk_terms::{COUNTERS, Counter, FragmentAccount, NodeId, Role, SourceCounts};
use serde::Serialize;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::balance::Fragments;
use super::operating::Taking;
use super::{Alarm, Balance, Holder, Incidents, Limited};

/// The state of the run sequence.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct State {
    /// Time of this state, in nanoseconds since 1970 UTC.
    pub(crate) at_ns: i64,
    /// `initial`, `configured`, `running`, `paused`, `draining`, `error`, `over`.
    pub(crate) state: &'static str,
    /// Time of the last state change, in nanoseconds since 1970 UTC.
    pub(crate) since_ns: i64,
    /// The task in progress: `prepare`, `begin`, `pause`, `resume`, `drain`, `force`, `close`, `discard`; null between
    /// tasks.
    pub(crate) task: Option<&'static str>,
    /// Commands that are allowed now.
    pub(crate) allowed: Vec<&'static str>,
    /// The last error; null if there was none.
    pub(crate) trouble: Option<String>,
    /// The run that is set up or under way.
    pub(crate) run: Option<u32>,
    /// Its directory.
    pub(crate) directory: Option<String>,
    /// Its age, in seconds.
    pub(crate) age_s: f64,
    /// The operator who has control; null if every operator may send commands.
    pub(crate) operator: Option<Holder>,
    /// Fields that a start command must set, with `field=NAME=VALUE`.
    pub(crate) required_fields: Vec<String>,
    /// The fields of the current run.
    pub(crate) fields: BTreeMap<String, String>,
    /// Ids of the masked sources: events are built without them, in the following runs too.
    pub(crate) masked: Vec<u32>,
    /// The number of the last entry in the journal.
    pub(crate) last_entry: u64,
}

impl State {
    pub(crate) fn of(view: &SessionView) -> Self {
        Self {
            at_ns: view.at.0,
            state: view.state.name(),
            since_ns: view.since.0,
            task: view.task.map(ropewalk_run::session::Task::name),
            allowed: view.allowed().iter().map(|command| command.name()).collect(),
            trouble: view.trouble.clone(),
            run: view.run.map(|run| run.0),
            directory: view.directory.as_ref().map(|directory| absolute(directory).display().to_string()),
            age_s: view.age.as_secs_f64(),
            operator: view.operator.as_ref().map(Holder::of),
            required_fields: view.required_fields.to_vec(),
            fields: view.fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            masked: view.masked.iter().map(|source| source.0).collect(),
            last_entry: view.last_entry,
        }
    }
}

/// The whole path, which also says to a client on another machine which program answers.
fn absolute(directory: &Path) -> PathBuf {
    std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned())
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Reply {
    /// The command.
    pub(crate) command: &'static str,
    /// `done`, `already_so`, `not_now`, `refused`, `failed`, `overtaken`, `held_by_another`.
    pub(crate) answer: &'static str,
    /// The state now.
    pub(crate) state: &'static str,
    /// Explains the value; null without an explanation.
    pub(crate) text: Option<String>,
    /// Commands that are allowed now.
    pub(crate) allowed: Vec<&'static str>,
}

impl Reply {
    pub(crate) fn of(told: Told) -> Self {
        let Told { command, answer, state, text } = told;
        let allowed = state.allowed().iter().map(|command| command.name()).collect();
        Self { command: command.name(), answer: answer.name(), state: state.name(), text, allowed }
    }

    /// Returns the HTTP status of an answer.
    pub(crate) const fn status(answer: Answer) -> u16 {
        match answer {
            Answer::Done | Answer::AlreadySo => 200,
            Answer::NotNow(_) | Answer::Refused | Answer::Overtaken | Answer::HeldByAnother => 409,
            Answer::Failed(_) => 500,
        }
    }
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What is wrong, why, and what would be right.
    pub(crate) error: String,
}

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct JournalEntry {
    /// Its number, counted from 1.
    number: u64,
    /// Its time, in nanoseconds since 1970 UTC.
    at_ns: i64,
    /// `note`, `state`, `command`, `fault`, `incident`.
    kind: &'static str,
    /// The run during which it was written.
    run: Option<u32>,
    /// The message.
    text: String,
}

impl JournalEntry {
    pub(crate) fn of(entry: Entry) -> Self {
        Self { number: entry.number, at_ns: entry.at_ns, kind: entry.kind.name(), run: entry.run, text: entry.text }
    }
}

/// Returns the names of all commands.
pub(crate) fn command_names() -> String {
    let names: Vec<_> = Command::ALL.iter().map(|command| command.name()).collect();
    names.join(", ")
}

/// A front end.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Source {
    /// Its id.
    id: u32,
    /// Its configured name; null without one.
    name: Option<String>,
    /// The readout unit that receives it; null if none has reported it.
    readout: Option<String>,
    /// That unit by its configured name, with the id: `crate-1 (ru0)`.
    unit: Option<String>,
    /// Whether it has an open connection. Always false for sources that send datagrams.
    is_connected: bool,
    /// Whether no more data is expected: the source has ended in order, or is masked.
    has_ended: bool,
    /// Whether events are complete without it.
    is_optional: bool,
    /// Whether it sends datagrams, so that it never has a connection.
    sends_datagrams: bool,
    /// Whether it takes part in the current run.
    taking: Taking,
    /// The number of its latest event; null if none has arrived.
    last_event: Option<u64>,
    /// Events by which its latest event is behind the latest one of all sources of its readout unit; null if none has
    /// arrived, or it has ended.
    behind: Option<u64>,
    /// Seconds since its last data; null if none has arrived, or no readout unit has reported that.
    silent_s: Option<f64>,
    #[serde(flatten)]
    fragments: Fragments,
    #[serde(flatten)]
    counts: Counts,
}

/// Further counts of a source, in `run.json` too.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
struct Counts(SourceCounts);

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

/// Returns all front ends known so far, by id.
pub(crate) fn sources(view: &SessionView) -> Vec<Source> {
    let snapshot = &view.snapshot;
    let newest = newest_events(&view.sample);
    let source = |(id, account): (&ropewalk_terms::SourceId, &FragmentAccount)| {
        let told = view.sample.source(*id);
        let counts = snapshot.counts.get(id).copied().unwrap_or_default();
        let known = |counter| told.and_then(|told| told.numbers.known(counter));
        let last_event = known(Counter::LastEventNumber).filter(|_| account.received > 0);
        let newest = told.filter(|told| !told.has_ended()).and_then(|told| newest.get(&told.readout));
        Source {
            id: id.0,
            name: view.sample.names.get(id).cloned(),
            readout: told.map(|told| told.readout.to_string()),
            unit: told.map(|told| view.sample.name_of_node(told.readout)),
            has_ended: told.is_some_and(ropewalk_monitor::SourceSample::has_ended),
            is_optional: view.sample.optional.contains(id),
            taking: Taking::of(view, *id),
            last_event,
            behind: newest.zip(last_event).map(|(newest, last)| newest.saturating_sub(last)),
            silent_s: known(Counter::SilentTime)
                .filter(|_| account.received > 0)
                .map(|nanoseconds| nanoseconds as f64 / 1e9),
            is_connected: told.is_some_and(ropewalk_monitor::SourceSample::is_connected),
            sends_datagrams: told.is_some_and(|told| told.sends_datagrams),
            fragments: Fragments::of(account, counts.get(Counter::FragmentsBeforeStart)),
            counts: Counts(counts),
        }
    };
    snapshot.sources.iter().map(source).collect()
}

/// The latest event of all sources of each readout unit: those report at the same time.
fn newest_events(sample: &Sample) -> BTreeMap<NodeId, u64> {
    let mut newest: BTreeMap<NodeId, u64> = BTreeMap::new();
    for source in sample.sources.iter().filter(|source| source.account.received > 0) {
        let last = source.numbers.get(Counter::LastEventNumber);
        newest.entry(source.readout).and_modify(|known| *known = last.max(*known)).or_insert(last);
    }
    newest
}

/// An address on which the run that is set up or under way listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Address {
    /// Its name: `ru0`, for front ends of that readout unit, `front-ends`, ...
    name: String,
    /// Host and port.
    address: String,
}

/// Returns all listening addresses.
pub(crate) fn addresses(view: &SessionView) -> Vec<Address> {
    let address = |(name, address): &(String, String)| Address { name: name.clone(), address: address.clone() };
    view.addresses.iter().map(address).collect()
}

/// A node of the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Node {
    /// `ru0`, `bu1`: its id.
    name: String,
    /// Its configured name, with the id: `crate-1 (ru0)`.
    label: String,
    /// `readout` or `builder`.
    role: &'static str,
    /// Its number among those of its role.
    index: u16,
    /// Whether it is connected.
    connected: bool,
    /// Whether it is connected and has not reported for seconds: it hangs or is stopped.
    silent: bool,
}

/// Returns all readout and builder units. Those in `silent` do not report.
pub(crate) fn nodes(view: &SessionView, silent: &[NodeId]) -> Vec<Node> {
    let role = |role| match role {
        Role::Readout => "readout",
        Role::Builder => "builder",
        Role::Manager => "manager",
        Role::Source => "source",
    };
    let nodes = view.snapshot.nodes.iter();
    nodes
        .map(|&(node, connected)| Node {
            name: node.to_string(),
            label: view.sample.name_of_node(node),
            role: role(node.role),
            index: node.index,
            connected,
            silent: connected && silent.contains(&node),
        })
        .collect()
}

/// A sum over all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Count {
    name: &'static str,
    help: &'static str,
    value: u64,
}

/// Returns every counter.
pub(crate) fn counters(view: &SessionView) -> Vec<Count> {
    let count = |&counter: &Counter| Count {
        name: counter.name(),
        help: counter.help().trim(),
        value: view.snapshot.counter(counter),
    };
    COUNTERS.iter().map(count).collect()
}

/// The live view, sent several times a second.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    #[serde(flatten)]
    pub(crate) state: State,
    pub(crate) ledger: Balance,
    pub(crate) sources: Vec<Source>,
    pub(crate) nodes: Vec<Node>,
    /// Rates during the last second; null before the second sample of a run.
    #[schema(value_type = Option<Object>)]
    pub(crate) rates: Option<Rates>,
    /// What limits the run; null while that is not known.
    pub(crate) limit: Option<Limited>,
    /// The quality of the run's data.
    #[schema(value_type = Object)]
    pub(crate) quality: Quality,
    /// Alarms to show to the operator.
    pub(crate) alarms: Vec<Alarm>,
    /// Alarms that operators shelved: these are not among `alarms`.
    pub(crate) shelved: Vec<Alarm>,
    /// The latest incidents.
    pub(crate) incidents: Incidents,
    /// Received fragment bytes.
    pub(crate) bytes_received: u64,
    /// Written bytes.
    pub(crate) bytes_written: u64,
    /// Free bytes on the disk of a builder unit that has least; null if unknown.
    pub(crate) disk_free_bytes: Option<u64>,
    /// Seconds until the first disk is full at the present rate; null if unknown.
    pub(crate) disk_left_s: Option<u64>,
}
