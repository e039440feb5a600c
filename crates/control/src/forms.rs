//! What leaves as JSON. Names are part of the interface, `/api/v1`.

use crate::lookout::Lookout;
use ropewalk_monitor::bottleneck::Finding;
use ropewalk_node::session::{Answer, Command, Entry, SessionView, Told};
use ropewalk_terms::{COUNTERS, Counter, EventAccount, FragmentAccount, Ledger, Role};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Where a sequence of runs is.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct State {
    /// When it was so, in nanoseconds since 1970 UTC.
    pub(crate) at_ns: i64,
    /// `initial`, `configured`, `running`, `paused`, `draining`, `error`, `over`.
    pub(crate) state: &'static str,
    /// Since when, in nanoseconds since 1970 UTC.
    pub(crate) since_ns: i64,
    /// What is being done: `prepare`, `begin`, `pause`, `resume`, `drain`, `force`, `close`, `discard`; null where nothing is.
    pub(crate) task: Option<&'static str>,
    /// Commands that can be given now.
    pub(crate) allowed: Vec<&'static str>,
    /// What was wrong last; null where nothing was.
    pub(crate) trouble: Option<String>,
    /// The run that is set up or under way.
    pub(crate) run: Option<u32>,
    /// Its directory.
    pub(crate) directory: Option<String>,
    /// How long it has gone on, in seconds.
    pub(crate) age_s: f64,
    /// The number of the last entry in the journal.
    pub(crate) last_entry: u64,
}

impl State {
    pub(crate) fn of(view: &SessionView) -> Self {
        Self {
            at_ns: view.at.0,
            state: view.state.name(),
            since_ns: view.since.0,
            task: view.task.map(ropewalk_node::session::Task::name),
            allowed: view.allowed().iter().map(|command| command.name()).collect(),
            trouble: view.trouble.clone(),
            run: view.run.map(|run| run.0),
            directory: view.directory.as_ref().map(|directory| directory.display().to_string()),
            age_s: view.age.as_secs_f64(),
            last_entry: view.last_entry,
        }
    }
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Reply {
    /// The command.
    pub(crate) command: &'static str,
    /// `done`, `already_so`, `not_now`, `refused`, `failed`, `overtaken`.
    pub(crate) answer: &'static str,
    /// The state now.
    pub(crate) state: &'static str,
    /// What there is to say beside it.
    pub(crate) text: Option<String>,
    /// Commands that can be given now.
    pub(crate) allowed: Vec<&'static str>,
}

impl Reply {
    pub(crate) fn of(told: Told) -> Self {
        let Told { command, answer, state, text } = told;
        let allowed = state.allowed().iter().map(|command| command.name()).collect();
        Self { command: command.name(), answer: answer.name(), state: state.name(), text, allowed }
    }

    /// The status that says the same.
    pub(crate) const fn status(answer: Answer) -> u16 {
        match answer {
            Answer::Done | Answer::AlreadySo => 200,
            Answer::NotNow(_) | Answer::Refused | Answer::Overtaken => 409,
            Answer::Failed(_) => 500,
        }
    }
}

/// Something that cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What, why, and what would have been right.
    pub(crate) error: String,
}

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
    /// Those that are in no event and will not be.
    lost: u64,
    /// By cause.
    dropped: BTreeMap<&'static str, u64>,
    /// Those that never came, by cause.
    missing: BTreeMap<&'static str, u64>,
}

impl Fragments {
    fn of(account: &FragmentAccount) -> Self {
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
            lost: account.lost(),
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

/// An equation that does not hold now. While a run goes on its numbers are of different moments.
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
            fragments: Fragments::of(&ledger.fragments),
            events: Events::of(&ledger.events),
            pools: Pools {
                loans: ledger.pools.loans,
                returned: ledger.pools.returned,
                held: ledger.pools.held,
                blocks: view.snapshot.counter(Counter::PoolBlocks),
            },
            unbalanced: ledger.imbalances().into_iter().map(unbalanced).collect(),
        }
    }
}

/// A front end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Source {
    /// Its id.
    id: u32,
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
        let seen = snapshot.seen.get(id).copied().unwrap_or_default();
        Source {
            id: id.0,
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
    nodes.map(|&(node, connected)| Node { role: role(node.role), index: node.index, connected }).collect()
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

/// What limits the run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Limited {
    /// The kind: `sources`, `pool_full`, `disk_full`, ...
    kind: String,
    /// Which node or source it is; empty where it is none.
    subject: String,
    /// For people.
    sentence: String,
    /// The numbers that say so.
    evidence: BTreeMap<String, f64>,
}

impl Limited {
    pub(crate) fn of(finding: &Finding) -> Self {
        Self {
            kind: name_of(&finding.limit),
            subject: finding.subject.clone(),
            sentence: finding.sentence.clone(),
            evidence: finding.evidence.iter().map(|one| (one.what.clone(), one.value)).collect(),
        }
    }
}

/// The stable name of a variant, as it is written.
fn name_of(variant: &impl Serialize) -> String {
    let name = serde_json::to_value(variant).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An alarm as it is.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Alarm {
    /// Its name.
    name: String,
    /// `info`, `warning`, `critical`.
    severity: String,
    /// `normal`, `pending`, `active`, `acknowledged`, `latched`.
    state: String,
    /// The value that it looked at last.
    value: Option<f64>,
    /// Whether it is shelved: not shown for a while.
    is_shelved: bool,
}

impl Alarm {
    pub(crate) fn of(alarm: &ropewalk_monitor::alarms::Alarm) -> Self {
        Self {
            name: alarm.rule.name.clone(),
            severity: name_of(&alarm.rule.severity),
            state: name_of(&alarm.state),
            value: alarm.value,
            is_shelved: alarm.shelved_until.is_some(),
        }
    }
}

/// What happens several times a second.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    #[serde(flatten)]
    pub(crate) state: State,
    pub(crate) ledger: Balance,
    pub(crate) sources: Vec<Source>,
    pub(crate) nodes: Vec<Node>,
    /// What limits the run; null where that is not known yet.
    limit: Option<Limited>,
    /// Alarms that somebody should see.
    alarms: Vec<Alarm>,
    /// Bytes of fragments that came.
    bytes_received: u64,
    /// Bytes that were written.
    bytes_written: u64,
    /// Free bytes on the disks; null where nothing is known.
    disk_free_bytes: Option<u64>,
    /// How long they last at the present rate, in seconds; null where that is not known.
    disk_left_s: Option<u64>,
}

impl Live {
    pub(crate) fn of(view: &SessionView, lookout: &Lookout) -> Self {
        Self {
            state: State::of(view),
            ledger: Balance::of(view),
            sources: sources(view),
            nodes: nodes(view),
            limit: lookout.limit(),
            alarms: lookout.shown(),
            bytes_received: view.snapshot.counter(Counter::PayloadBytesReceived),
            bytes_written: view.snapshot.counter(Counter::BytesWritten),
            disk_free_bytes: view.disk_left.map(|left| left.free_bytes),
            disk_left_s: view.disk_left.and_then(|left| left.time).map(|time| time.as_secs()),
        }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct JournalEntry {
    /// They are numbered from 1.
    number: u64,
    /// When, in nanoseconds since 1970 UTC.
    at_ns: i64,
    /// `state`, `command`, `fault`, `incident`.
    kind: &'static str,
    /// During which run.
    run: Option<u32>,
    /// For people.
    text: String,
}

impl JournalEntry {
    pub(crate) fn of(entry: Entry) -> Self {
        Self { number: entry.number, at_ns: entry.at_ns, kind: entry.kind.name(), run: entry.run, text: entry.text }
    }
}

/// The names that a command may have.
pub(crate) fn command_names() -> String {
    let names: Vec<_> = Command::ALL.iter().map(|command| command.name()).collect();
    names.join(", ")
}
