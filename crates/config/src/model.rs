//! What a configuration file contains. The doc comments here are the help texts of `ropewalk config schema` and of the
//! tables in `docs/configuration.md` (`tests/documentation` writes these).

use super::alarms::{AlarmSection, AlarmsSection, ControlSection, LogbookSection, MonitorSection};
use super::error::{Fault, Faults, first_fault};
use super::felix::FelixSection;
use super::file_based::FileBasedSection;
use super::filter::{FilterSection, StreamSection, streams_of};
use super::gateway::{FarmSection, FlowSection, GatewaySection, InputQueue, TriggerSection};
use super::histogram::{HistogramSection, configs};
use super::run::{PlacementChoice, RunSection, StorageSection, any_port};
use super::source::SourceSection;
use super::written::Written;
use crate::quantity::{Bytes, HOST_AND_PORT, Time, UNIT_NAME};
use ropewalk_flow::filter::Streams;
use ropewalk_flow::histogram::HistogramConfig;
use ropewalk_flow::manager::AssignPolicy;
use ropewalk_host::{CpuList, Kind, PlanError, Policy, Rule, Scheduling};
use ropewalk_terms::{Requirement, SourceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A whole configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Version of this form: 1.
    pub version: u32,
    /// Where a run is written, when it ends, and what it checks.
    #[serde(default)]
    pub run: RunSection,
    /// How run files get onto the disk.
    #[serde(default)]
    pub storage: StorageSection,
    /// The readout units.
    #[serde(default)]
    pub readout: Vec<ReadoutSection>,
    /// The builder units.
    #[serde(default)]
    pub builder: Vec<BuilderSection>,
    /// The event manager.
    #[serde(default)]
    pub manager: ManagerSection,
    /// The front ends.
    #[serde(default)]
    pub source: Vec<SourceSection>,
    /// Link cards whose e-links are sources.
    #[serde(default)]
    pub felix: Vec<FelixSection>,
    /// Flows of multi-event packets, 1 to 16. Gateways serve the first flow first.
    #[serde(default)]
    pub flow: Vec<FlowSection>,
    /// Gateways, to which sources push; they take the place of readout and builder units.
    #[serde(default)]
    pub gateway: Vec<GatewaySection>,
    /// The nodes behind the gateways.
    #[serde(default)]
    pub farm: FarmSection,
    /// The emulated trigger of gateways, which names the gateway for the next packets.
    #[serde(default)]
    pub trigger: TriggerSection,
    /// The filter, which decides on built events; without it all events are kept.
    pub filter: Option<FilterSection>,
    /// Builder units write files of events for filter units instead of run files.
    pub file_based: Option<FileBasedSection>,
    /// Streams of accepted events; without any, all events go to the same files.
    #[serde(default)]
    pub stream: Vec<StreamSection>,
    /// How long to wait before something counts as missing.
    #[serde(default)]
    pub timeouts: TimeoutSection,
    /// Detection of sources that are displaced against each other.
    #[serde(default)]
    pub synchrony: SynchronySection,
    /// Placement of threads: ordered rules; the first whose expression matches the name of a thread applies.
    #[serde(default)]
    pub thread: Vec<ThreadRule>,
    /// Placement of memory: ordered rules; the first whose expression matches the name of a pool applies.
    #[serde(default)]
    pub pool: Vec<PoolRule>,
    /// Histograms of the fragments of some sources.
    #[serde(default)]
    pub histogram: Vec<HistogramSection>,
    /// Alarms of this run, besides those of every run.
    #[serde(default)]
    pub alarm: Vec<AlarmSection>,
    /// Receivers of alarms.
    #[serde(default)]
    pub alarms: AlarmsSection,
    /// Receivers of logbook entries.
    #[serde(default)]
    pub logbook: LogbookSection,
    /// Reference run, pages of numbers, and log level.
    #[serde(default)]
    pub monitor: MonitorSection,
    /// The server of run control.
    #[serde(default)]
    pub control: ControlSection,
    /// What the file says, in one form.
    #[serde(skip)]
    pub written: Written,
    /// Warnings about renamed keys.
    #[serde(skip)]
    pub renamed: Vec<String>,
    /// The file that it was read from, if any.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Configuration {
    /// Whether sources push to gateways; otherwise builder units pull from readout units.
    pub const fn has_gateways(&self) -> bool {
        !self.gateway.is_empty() || !self.flow.is_empty()
    }

    /// Whether accepted events go to a disk: as run files, or as files of events.
    pub const fn writes_to_disk(&self) -> bool {
        self.run.write && self.storage.pipe.is_none()
    }

    /// Whether gateways decide on events themselves, without a farm.
    pub fn decides_itself(&self) -> bool {
        self.has_gateways() && self.farm.nodes == 0
    }

    /// The streams of run files: the configured ones, or one that takes everything; and the stream of errors, if there
    /// is a filter. The configuration must have been checked.
    pub fn streams(&self) -> Streams {
        if self.file_based.is_some() {
            // Filter units choose streams; what they choose from is everything.
            return Streams::everything();
        }
        streams_of(&self.stream, self.filter.is_some() && (!self.has_gateways() || self.decides_itself()))
    }

    /// The histograms of its sources, as readout units and gateways need them.
    pub fn histogram_configs(&self) -> Vec<HistogramConfig> {
        configs(&self.histogram, &self.source_ids())
    }

    /// The ids of all sources, without the masked sources of flows.
    pub(super) fn source_ids(&self) -> Vec<SourceId> {
        let pushing = self.flow.iter().flat_map(|flow| flow.sources.entries(false)).map(|(id, _)| SourceId(id));
        self.source.iter().map(|source| SourceId(source.id)).chain(pushing).collect()
    }

    /// All input queues, gateway by gateway.
    pub fn input_queues(&self) -> impl Iterator<Item = InputQueue<'_>> {
        let each = self.gateway.iter().flat_map(|gateway| (0..gateway.queues).map(move |index| (gateway, index)));
        (0..).zip(each).map(|(number, (gateway, index))| InputQueue { gateway, number, index })
    }

    /// A line for each way in which sources' numbers begin: which number, why, and whose.
    pub fn first_lines(&self) -> Vec<String> {
        let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for source in &self.source {
            by_text.entry(source.first_text()).or_default().push(source.name_or_id());
        }
        by_text.into_iter().map(|(text, names)| format!("first event number {text}: {}", some_of(&names))).collect()
    }

    /// Sources whose frames have a `sequence` that is probably the number of the first event in each, which a splitter
    /// divides.
    pub fn sequence_beside_splitter(&self) -> Option<String> {
        let is_odd = |source: &&SourceSection| source.own_splitter().is_some() && source.sequence.is_some();
        let names: Vec<String> = self.source.iter().filter(is_odd).map(SourceSection::name_or_id).collect();
        let why = "must go up by one per frame; if it is the number of the first event in each frame, leave it out";
        (!names.is_empty()).then(|| format!("{}: `sequence` beside a splitter {why}", names.join(", ")))
    }

    /// Sources in which a slip by one event is not detected, and what they lack; `None` if each is compared with the
    /// reference of `[synchrony]`, or the comparison is switched off.
    pub fn unchecked_step(&self) -> Option<String> {
        if self.has_gateways() || self.synchrony.action == SynchronyAction::Off {
            return None;
        }
        let of = |source: &SourceSection| (source.name_or_id(), source.step_keys());
        let sources = self.source.iter().filter(|source| source.requirement != Requirement::Masked);
        let reference = self.synchrony.reference.and_then(|id| sources.clone().find(|source| source.id == id));
        let sources: Vec<_> = sources.map(of).collect();
        if sources.len() < 2 {
            return None;
        }
        let reference = reference.map(of).or_else(|| sources.iter().find(|(_, keys)| keys.contains(&true)).cloned());
        let (name, keys) = reference.unwrap_or_default();
        let shares = |own: &[bool; 2]| own.iter().zip(&keys).any(|(one, other)| *one && *other);
        let names = |is: &dyn Fn(&[bool; 2]) -> bool| -> Vec<String> {
            sources.iter().filter(|(_, own)| is(own)).map(|(name, _)| name.clone()).collect()
        };
        let without = names(&|own| !own.contains(&true));
        let apart = names(&|own| own.contains(&true) && !shares(own));
        let has = |names: &[String]| if names.len() == 1 { "has" } else { "have" };
        let mut parts = Vec::new();
        if !without.is_empty() {
            parts.push(format!("{} {} neither `time` nor a bunch crossing", some_of(&without), has(&without)));
        }
        if !apart.is_empty() && keys.contains(&true) {
            let (names, has) = (some_of(&apart), has(&apart));
            parts.push(format!("{names} {has} no `time` or bunch crossing in common with {name}"));
        }
        (!parts.is_empty()).then(|| format!("step not checked: {}", parts.join("; ")))
    }

    /// Copies the values of renamed keys to their new keys, and warns.
    pub(super) fn adopt_renamed(&mut self) {
        if let Some(drain) = self.run.drain.take() {
            self.timeouts.drain = drain;
            self.renamed.push("`drain` of [run] is `drain` of [timeouts] now".to_owned());
        }
    }
}

/// The first few names, and the number of the others.
fn some_of(names: &[String]) -> String {
    const MOST_NAMES: usize = 4;
    let more = names.len().saturating_sub(MOST_NAMES);
    let named = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{named}{more}")
}

/// A readout unit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadoutSection {
    /// Name of the unit: 1 to 32 letters, digits, `-` or `_`. No other unit or link card may have it.
    #[schemars(regex(pattern = UNIT_NAME))]
    pub name: String,
    /// Address to which its front ends connect. `0.0.0.0:5000` admits other machines. If the address is taken, the
    /// program ends with status 4.
    #[serde(default = "any_port")]
    #[schemars(regex(pattern = HOST_AND_PORT))]
    pub listen: String,
    /// Address to which builder units connect if the unit is a separate process (`ropewalk node`).
    #[serde(default = "any_port")]
    #[schemars(regex(pattern = HOST_AND_PORT))]
    pub address: String,
    /// Memory for fragments. The sources of the unit share it in equal parts. Each needs room for `max_fragment` and
    /// two blocks; too little is an error that states the size needed. A connection takes nothing of it before it has
    /// said which source it is. More memory bridges longer pauses of the disk.
    #[serde(default = "readout_pool")]
    pub pool: Bytes,
    /// Size of the blocks in the pool, a power of two, 4 KiB to 16 MiB. With many sources choose smaller blocks;
    /// fragments may span blocks.
    #[serde(default = "readout_block")]
    pub block: Bytes,
    /// No source is read further than this many events past the oldest incomplete one, at most half of `capacity`. With
    /// a small window a source that lags soon holds up the others. A large window needs more memory.
    #[serde(default = "window")]
    pub window: u32,
    /// Number of events held at once, a power of two, at least 64.
    #[serde(default = "capacity")]
    pub capacity: u32,
    /// Network card through which its front ends send, such as `"eth2"`; used with `placement = "auto"`. Without it:
    /// the card with the address of `listen`. If the card does not exist, the error names those that do.
    pub card: Option<String>,
}

/// A builder unit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuilderSection {
    /// Name of the unit, with the same rules as for readout units.
    #[schemars(regex(pattern = UNIT_NAME))]
    pub name: String,
    /// Directory for the run directories of this unit, such as one on another disk. Without it: `output` of `[run]`.
    /// Give all directories of a run to `ropewalk verify`.
    pub output: Option<PathBuf>,
    /// Memory for received super-fragments if the unit is a separate process.
    #[serde(default = "readout_pool")]
    pub pool: Bytes,
    /// Number of events in work at once, 1 to 1048576.
    #[serde(default = "slots")]
    pub events: u32,
    /// Bytes in work at once; at most half of `pool` is used. An event that is larger than this is built alone.
    #[serde(default = "credit_bytes")]
    pub bytes: Bytes,
}

/// The event manager.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ManagerSection {
    /// Address to which the other nodes connect if the event manager is a separate process.
    #[schemars(regex(pattern = HOST_AND_PORT))]
    pub address: String,
    /// Addresses of further event managers, such as `["host2:4000"]`. Each needs an address of its own with a fixed
    /// port. Nodes connect to them too, and obey the youngest that admits them. Their names are `manager2`, `manager3`
    /// and so on (`--name`, `--at`). Without it a successor must listen where the last event manager did.
    pub standby: Vec<String>,
    /// Which builder unit gets the next events, among those with credit.
    pub policy: AssignPolicy,
    /// Number of consecutive events given to one builder unit, 1 to 64. Small values cost more messages. The synchrony
    /// check works on consecutive events.
    pub batch: u32,
    /// Epoch with which a run begins. An event manager that takes over
    /// ([recover.md](how-to/recover.md)) takes the next epoch by itself, so that no node obeys the old one.
    pub epoch: u32,
}

impl Default for ManagerSection {
    fn default() -> Self {
        Self { address: any_port(), standby: Vec::new(), policy: AssignPolicy::default(), batch: 32, epoch: 1 }
    }
}

/// How long to wait before something counts as missing: readout < builder < manager < drain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSection {
    /// A source that is read and sends nothing for the oldest incomplete event counts as missing in it. The trigger may
    /// pause longer than this: time counts only while other sources have the event.
    pub readout: Time,
    /// A readout unit that does not answer a request, but answers later ones, counts as missing.
    pub builder: Time,
    /// A reachable readout unit that says nothing about an event that others hold counts as missing.
    pub manager: Time,
    /// The run no longer waits for a readout unit that is unreachable and not known to be dead. The unit still holds
    /// its data, therefore the run waits. Meanwhile the run pauses, sources are held back, and the unit is shown as not
    /// connected (`node_lost`). To wait less, set it during the run (`ropewalk ctl set timeouts.unreachable=10s`). If
    /// `manager` is longer, `manager` applies.
    pub unreachable: Time,
    /// After the stop of a run, what is left is dropped and named.
    pub drain: Time,
    /// A source restarted its numbering and the trigger source did not declare it: the new numbers are refused.
    pub resync: Time,
    /// A front end under run control has not answered a command. Before the nodes run, the command is sent again.
    /// Afterwards the front end is named, and the run goes on, or ends, without it. A trigger source that does not
    /// answer a pause is named, and the run is paused all the same.
    pub front_end: Time,
    /// The preparation of a run under [run control](control.md#how-long-it-may-take) is given up if memory, threads or
    /// addresses are missing.
    pub prepare: Time,
    /// Under run control, a run that was started and has not begun is ended. A node or a front end is not ready then.
    pub begin: Time,
    /// Under run control, threads and programs that have not ended with their run are named and left behind.
    pub close: Time,
    /// An operator who has control and gave no command for so long loses it. Taking control again counts as a command
    /// ([access.md](access.md#one-operator-at-a-time)).
    pub operator: Time,
}

impl Default for TimeoutSection {
    fn default() -> Self {
        Self {
            readout: Time(Duration::from_secs(2)),
            builder: Time(Duration::from_secs(5)),
            manager: Time(Duration::from_secs(10)),
            unreachable: Time(Duration::from_secs(600)),
            drain: Time(Duration::from_secs(20)),
            resync: Time(Duration::from_secs(1)),
            front_end: Time(Duration::from_secs(10)),
            prepare: Time(Duration::from_secs(600)),
            begin: Time(Duration::from_secs(120)),
            close: Time(Duration::from_secs(600)),
            operator: Time(Duration::from_secs(1800)),
        }
    }
}

/// Detection of sources that are displaced against each other.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SynchronySection {
    /// What a displaced source leads to.
    pub action: SynchronyAction,
    /// Id of the source with which the others are compared. Without it: the first source with a usable key.
    pub reference: Option<u32>,
    /// Number of events over which a relation is judged, 64 to 4096.
    pub window: u32,
}

impl Default for SynchronySection {
    fn default() -> Self {
        Self { action: SynchronyAction::default(), reference: None, window: 128 }
    }
}

/// What a displaced source leads to.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SynchronyAction {
    /// There is no check.
    Off,
    /// Its fragments are flagged, and the verdict is reported.
    #[default]
    Flag,
    /// As `"flag"`, and the run pauses: builder units take no new events, and sources wait until you stop the run.
    Pause,
    /// As `"flag"`, and the run stops.
    Stop,
}

/// Placement of threads.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadRule {
    /// Regular expression for the name of the thread; `^` and `$` match the ends of the name.
    #[serde(rename = "match")]
    pub pattern: String,
    /// CPUs on which the thread may run, such as `"0"` or `"2-5,8"`. Without it: the CPUs of `node`. If a CPU does not
    /// exist or a container took it away, that is an error at launch and in `config check`.
    pub cpus: Option<String>,
    /// NUMA node for the thread's own memory, and for its CPUs if `cpus` names none. If it does not exist, that is an
    /// error as for `cpus`.
    pub node: Option<u32>,
    /// Each matching thread takes one of the CPUs in turn: the first thread the first CPU, and so on.
    #[serde(default)]
    pub in_turn: bool,
    /// Scheduling policy. If the right is missing, the thread is scheduled as all others, and a warning names the
    /// right. Without it: the policy that the thread has.
    pub scheduling: Option<SchedulingChoice>,
    /// Priority for `"fifo"` and `"rr"`, 1 (lowest) to 99. Without it: 1.
    pub priority: Option<u8>,
}

/// Scheduling policy of a thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingChoice {
    /// As all other threads.
    Other,
    /// As all other threads, but never ahead of one that just woke up.
    Batch,
    /// Only when no other thread wants the CPU.
    Idle,
    /// Real-time: before all others, until it sleeps.
    Fifo,
    /// Real-time, in turn with other threads of the same priority.
    Rr,
}

/// Placement of memory.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolRule {
    /// Regular expression for the name of the pool; `^` and `$` match the ends of the name.
    #[serde(rename = "match")]
    pub pattern: String,
    /// NUMA node for all memory of the pool. If it does not exist or has too little memory, that is an error.
    pub node: Option<u32>,
    /// Lock the pages in memory, so that they are never swapped out. If the right is missing, the pool is used
    /// unlocked, and a warning names the right.
    #[serde(default)]
    pub lock: bool,
}

const fn readout_pool() -> Bytes {
    Bytes(128 << 20)
}

const fn readout_block() -> Bytes {
    Bytes(256 << 10)
}

const fn window() -> u32 {
    4096
}

const fn capacity() -> u32 {
    1 << 15
}

const fn slots() -> u32 {
    2048
}

const fn credit_bytes() -> Bytes {
    Bytes(64 << 20)
}

/// The policy of a configuration.
///
/// # Errors
/// If a rule says nothing, or what no machine could follow.
pub fn policy(configuration: &Configuration) -> Result<Policy, Fault> {
    first_fault(|faults| checked_policy(configuration, faults))
}

/// The policy, or everything that is wrong with its rules.
pub(super) fn checked_policy(configuration: &Configuration, faults: &mut Faults) -> Option<Policy> {
    let threads = &configuration.thread;
    let rules: Vec<Option<Rule>> = (0..).zip(threads).map(|(index, rule)| thread_rule(index, rule, faults)).collect();
    let is_right = rules.iter().all(Option::is_some);
    // A stand-in for a wrong rule, so that its pattern is checked, too.
    let stand_in = |rule: &ThreadRule| Rule { pattern: rule.pattern.clone(), lock: true, ..Rule::default() };
    let rules = rules.into_iter().zip(threads).map(|(made, rule)| made.unwrap_or_else(|| stand_in(rule))).collect();
    let policy = match Policy::checked(rules, configuration.pool.iter().map(pool_rule).collect()) {
        Ok(policy) => policy,
        Err(wrong) => {
            wrong.iter().for_each(|error| _ = faults.keep::<()>(Err(fault_of(error))));
            return None;
        }
    };
    is_right.then(|| match configuration.run.placement {
        PlacementChoice::Rules => policy,
        PlacementChoice::Auto => policy.automatic(),
    })
}

fn thread_rule(index: usize, rule: &ThreadRule, faults: &mut Faults) -> Option<Rule> {
    let mut wrong = Vec::new();
    let cpus: Option<CpuList> = match rule.cpus.as_ref().map(|text| text.parse::<CpuList>()).transpose() {
        Ok(cpus) => cpus,
        Err(error) => {
            wrong.push(("cpus", error.to_string()));
            None
        }
    };
    let mut refuse = |is_wrong: bool, field, message: &str| {
        if is_wrong {
            wrong.push((field, message.to_owned()));
        }
    };
    let is_empty = cpus.as_ref().is_some_and(CpuList::is_empty);
    refuse(is_empty, "cpus", "name at least one CPU, such as 0 or 2-5,8");
    let has_place = rule.cpus.is_some() || rule.node.is_some();
    refuse(rule.in_turn && !has_place, "in_turn", "CPUs are given out in turn: name them with `cpus` or `node`");
    let is_beyond = rule.priority.is_some_and(|priority| !(1..=99).contains(&priority));
    refuse(is_beyond, "priority", "a real-time priority is 1 to 99");
    let priority = rule.priority.unwrap_or(1);
    let scheduling = rule.scheduling.map(|choice| match choice {
        SchedulingChoice::Other => Scheduling::Other,
        SchedulingChoice::Batch => Scheduling::Batch,
        SchedulingChoice::Idle => Scheduling::Idle,
        SchedulingChoice::Fifo => Scheduling::Fifo(priority),
        SchedulingChoice::Rr => Scheduling::RoundRobin(priority),
    });
    let is_real_time = matches!(scheduling, Some(Scheduling::Fifo(_) | Scheduling::RoundRobin(_)));
    let is_needless = rule.priority.is_some() && !is_real_time;
    refuse(is_needless, "priority", "threads with scheduling `fifo` and `rr` alone have a priority");
    let is_right = wrong.is_empty();
    wrong.into_iter().for_each(|(field, message)| faults.add(format!("thread[{index}].{field}"), message));
    let pattern = rule.pattern.clone();
    is_right.then_some(Rule { pattern, cpus, node: rule.node, in_turn: rule.in_turn, scheduling, lock: false })
}

fn pool_rule(rule: &PoolRule) -> Rule {
    Rule { pattern: rule.pattern.clone(), node: rule.node, lock: rule.lock, ..Rule::default() }
}

/// The rules of `host` that cannot be followed, at their keys.
pub fn fault_of(error: &PlanError) -> Fault {
    let field = match error {
        PlanError::BadPattern { .. } => ".match",
        PlanError::NoSuchCpu { .. } => ".cpus",
        PlanError::NoSuchNode { .. } | PlanError::NodeWithoutCpu { .. } => ".node",
        PlanError::Empty { .. } | PlanError::NoSuchCard { .. } => "",
    };
    let section = |rule: ropewalk_host::RuleName| match rule.kind {
        Kind::Thread => format!("thread[{}]{field}", rule.number - 1),
        Kind::Pool => format!("pool[{}]{field}", rule.number - 1),
    };
    Fault::new(error.rule().map(section).unwrap_or_default(), error.to_string())
}
