//! Placement of threads and pools: ordered rules that match their names by regular expression (paper 3, IV-B), and
//! optionally, if no rule matches, the paper's best layout (`automatic`).

mod automatic;

use std::fmt;
use std::net::IpAddr;

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use self::automatic::Layout;
use crate::{Capability, CpuList, Machine};

/// What is placed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A thread: on CPUs.
    Thread,
    /// A pool of memory: on a NUMA node.
    Pool,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Thread => "thread",
            Self::Pool => "pool",
        })
    }
}

/// A thread or pool that wants a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Thread or pool.
    pub kind: Kind,
    /// Its name, by which rules find it.
    pub name: String,
    /// The origin of the data, for a thread that reads sockets and for a pool that receives.
    pub feed: Option<Feed>,
}

/// Through which card data come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Feed {
    /// Through this one.
    Card(String),
    /// Through the one with this address.
    Address(IpAddr),
    /// Through any of them.
    Any,
}

/// How the kernel's scheduler treats a thread (sched(7)). As text: `other`, `batch`, `idle`, or `fifo` or `rr` with a
/// priority of 1 to 99, such as `fifo 50`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(with = "String")]
pub enum Scheduling {
    /// As all others.
    Other,
    /// As all others, but never ahead of one that just woke up.
    Batch,
    /// When no other thread wants the CPU.
    Idle,
    /// Before all that is not real-time, until it sleeps; with a priority of 1 to 99.
    Fifo(u8),
    /// As `Fifo`, but taking turns with others of its priority.
    RoundRobin(u8),
}

impl fmt::Display for Scheduling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => out.write_str("other"),
            Self::Batch => out.write_str("batch"),
            Self::Idle => out.write_str("idle"),
            Self::Fifo(priority) => write!(out, "fifo {priority}"),
            Self::RoundRobin(priority) => write!(out, "rr {priority}"),
        }
    }
}

/// As people read it.
impl Serialize for Scheduling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One rule of placement. It has to say something: CPUs, a node, scheduling or locking.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// A regular expression that is looked for in the name; `^` and `$` bind it to the name's ends.
    pub pattern: String,
    /// The CPUs a thread may run on. None: those of `node`, or any.
    pub cpus: Option<CpuList>,
    /// The NUMA node of the memory. None: for a thread the node of `cpus`, if they all belong to one.
    pub node: Option<u32>,
    /// Whether the threads that match take one CPU each, in turn, instead of sharing all of them.
    pub in_turn: bool,
    /// The scheduling of the thread. None: unchanged.
    pub scheduling: Option<Scheduling>,
    /// Whether a pool is locked into memory.
    pub lock: bool,
}

/// A rule by its place among those of its kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RuleName {
    /// Whether the rule places threads or pools.
    pub kind: Kind,
    /// The place of the rule among those of its kind, counted from 1.
    pub number: usize,
}

impl fmt::Display for RuleName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} rule {}", self.kind, self.number)
    }
}

/// Why rules cannot be followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The pattern is no regular expression.
    #[error("{rule}: `{pattern}` is no regular expression: {reason}")]
    BadPattern {
        /// Which rule.
        rule: RuleName,
        /// Its pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The rule says nothing.
    #[error("{rule} says nothing: {}", what_a_rule_may_say(rule.kind))]
    Empty {
        /// Which rule.
        rule: RuleName,
    },
    /// The rule names CPUs that are off, absent, or taken away from this process.
    #[error("{rule}: this process may not run on CPU {cpu}; it may run on {permitted}")]
    NoSuchCpu {
        /// Which rule.
        rule: RuleName,
        /// The first such CPU.
        cpu: u32,
        /// The CPUs there are.
        permitted: CpuList,
    },
    /// The rule names a NUMA node that the machine does not have, or that was taken away from this process.
    #[error("{rule}: there is no NUMA node {node} for this process; there are {nodes}")]
    NoSuchNode {
        /// Which rule.
        rule: RuleName,
        /// The node.
        node: u32,
        /// The nodes there are.
        nodes: CpuList,
    },
    /// The rule would run threads on a node none of whose CPUs this process may use.
    #[error("{rule}: no CPU of NUMA node {node} is free for this process: give the rule `cpus` too")]
    NodeWithoutCpu {
        /// Which rule.
        rule: RuleName,
        /// The node.
        node: u32,
    },
    /// Data are to come through a card that the machine does not have.
    #[error("{name}: there is no network card `{card}`; there are: {cards}")]
    NoSuchCard {
        /// The thread or pool that reads from it.
        name: String,
        /// The card.
        card: String,
        /// The cards there are.
        cards: String,
    },
}

impl PlanError {
    /// The rule that cannot be followed, if it is a rule.
    pub fn rule(&self) -> Option<RuleName> {
        match self {
            Self::BadPattern { rule, .. } | Self::Empty { rule } | Self::NoSuchCpu { rule, .. } => Some(*rule),
            Self::NoSuchNode { rule, .. } | Self::NodeWithoutCpu { rule, .. } => Some(*rule),
            Self::NoSuchCard { .. } => None,
        }
    }
}

fn what_a_rule_may_say(kind: Kind) -> &'static str {
    match kind {
        Kind::Thread => "give it `cpus` (for example \"2-5\"), `node`, or `scheduling`",
        Kind::Pool => "give it `node`, or `lock = true`",
    }
}

/// Rules in the order in which they are tried; the first that matches a name decides.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    threads: Vec<(Rule, Regex)>,
    pools: Vec<(Rule, Regex)>,
    is_automatic: bool,
}

/// The place of one thread or pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Placement {
    /// What is placed.
    pub kind: Kind,
    /// The name of the thread or pool.
    pub name: String,
    /// Who decided.
    pub by: Decision,
    /// The CPUs that a thread may run on; of a pool those next to its memory.
    pub cpus: CpuList,
    /// The NUMA node of the memory; null if the kernel decides.
    pub node: Option<u32>,
    /// The scheduling of the thread; null if unchanged.
    pub scheduling: Option<Scheduling>,
    /// Whether a pool is locked into memory.
    pub lock: bool,
}

/// Who decided about a placement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// No rule: the kernel decides.
    Nobody,
    /// This rule.
    Rule(RuleName),
    /// The layout of the paper, for this reason.
    Automatic(String),
}

/// What a policy means on one machine for given threads and pools.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Plan {
    /// One placement for each thread and pool, in their order.
    pub placements: Vec<Placement>,
    /// Rules that decided for nothing: most often a slip in a pattern.
    pub unused_rules: Vec<RuleName>,
    /// Remarks for the reader: what was not possible, and what the kernel will refuse.
    pub remarks: Vec<String>,
}

impl Policy {
    /// A policy of these rules for threads and pools. The kernel places what no rule matches.
    ///
    /// # Errors
    /// If a pattern is not a regular expression, or a rule has no effect.
    pub fn new(threads: Vec<Rule>, pools: Vec<Rule>) -> Result<Self, PlanError> {
        Self::checked(threads, pools).map_err(|mut wrong| wrong.swap_remove(0))
    }

    /// As [`Policy::new`].
    ///
    /// # Errors
    /// The faults of all rules.
    pub fn checked(threads: Vec<Rule>, pools: Vec<Rule>) -> Result<Self, Vec<PlanError>> {
        let mut wrong = Vec::new();
        let [threads, pools] =
            [(Kind::Thread, threads), (Kind::Pool, pools)].map(|(kind, rules)| compiled(kind, rules, &mut wrong));
        if wrong.is_empty() { Ok(Self { threads, pools, is_automatic: false }) } else { Err(wrong) }
    }

    /// The same policy, with the paper's layout for what no rule matches.
    #[must_use]
    pub fn automatic(self) -> Self {
        Self { is_automatic: true, ..self }
    }

    /// The place of each of `items` on `machine`. Equal inputs give equal plans; nothing is changed.
    ///
    /// # Errors
    /// If a rule, used or not, names a CPU or node that the machine does not have, or an item a card that it does not
    /// have: the configuration is for another machine.
    pub fn plan(&self, machine: &Machine, items: &[Item]) -> Result<Plan, PlanError> {
        let mut threads = Ordered::resolve(Kind::Thread, &self.threads, machine)?;
        let mut pools = Ordered::resolve(Kind::Pool, &self.pools, machine)?;
        let mut plan = Plan::default();
        for item in items {
            let rules = if item.kind == Kind::Thread { &mut threads } else { &mut pools };
            let placed = rules.place(item);
            plan.placements.push(placed.unwrap_or_else(|| Placement::unplaced(item, machine)));
        }
        if self.is_automatic {
            Layout::new(machine, items, &mut plan)?.arrange();
        }
        plan.unused_rules = threads.unused().chain(pools.unused()).collect();
        let remarks: Vec<String> = plan.placements.iter().flat_map(|one| remarks(one, machine)).collect();
        plan.remarks.extend(remarks);
        Ok(plan)
    }
}

/// Compiles the rules and appends the faults of invalid ones to `wrong`.
fn compiled(kind: Kind, rules: Vec<Rule>, wrong: &mut Vec<PlanError>) -> Vec<(Rule, Regex)> {
    let compile = |(index, rule): (usize, Rule)| {
        let name = RuleName { kind, number: index + 1 };
        let places = rule.node.is_some() || rule.cpus.as_ref().is_some_and(|cpus| !cpus.is_empty());
        if !places && rule.scheduling.is_none() && !rule.lock {
            return Err(PlanError::Empty { rule: name });
        }
        match Regex::new(&rule.pattern) {
            Ok(pattern) => Ok((rule, pattern)),
            Err(error) => Err(PlanError::BadPattern { rule: name, pattern: rule.pattern, reason: error.to_string() }),
        }
    };
    rules.into_iter().enumerate().filter_map(|rule| compile(rule).map_err(|error| wrong.push(error)).ok()).collect()
}

/// The rules of one kind, the meaning of each on the machine, and the number of matches.
struct Ordered<'a> {
    kind: Kind,
    rules: Vec<(&'a Rule, &'a Regex, Place, usize)>,
}

impl<'a> Ordered<'a> {
    fn resolve(kind: Kind, rules: &'a [(Rule, Regex)], machine: &Machine) -> Result<Self, PlanError> {
        let resolve = |(index, (rule, pattern)): (usize, &'a (Rule, Regex))| {
            let place = Place::resolve(RuleName { kind, number: index + 1 }, rule, machine)?;
            Ok((rule, pattern, place, 0))
        };
        Ok(Self { kind, rules: rules.iter().enumerate().map(resolve).collect::<Result<_, _>>()? })
    }

    /// The placement of an item by the first rule that matches.
    fn place(&mut self, item: &Item) -> Option<Placement> {
        let index = self.rules.iter().position(|(_, pattern, ..)| pattern.is_match(&item.name))?;
        let (rule, _, place, matched) = &mut self.rules[index];
        let placement = Placement {
            kind: item.kind,
            name: item.name.clone(),
            by: Decision::Rule(RuleName { kind: self.kind, number: index + 1 }),
            cpus: place.cpus_for(*matched, rule.in_turn),
            node: place.node,
            scheduling: rule.scheduling,
            lock: rule.lock,
        };
        *matched += 1;
        Some(placement)
    }

    fn unused(&self) -> impl Iterator<Item = RuleName> + '_ {
        let rules = self.rules.iter().enumerate().filter(|(_, (.., matched))| *matched == 0);
        rules.map(|(index, _)| RuleName { kind: self.kind, number: index + 1 })
    }
}

/// What a rule means on a machine.
struct Place {
    cpus: CpuList,
    node: Option<u32>,
}

impl Place {
    fn resolve(name: RuleName, rule: &Rule, machine: &Machine) -> Result<Self, PlanError> {
        let node = rule.node.and_then(|number| machine.node(number)).filter(|node| node.is_allowed);
        if let (Some(number), None) = (rule.node, node) {
            let nodes = machine.nodes.iter().filter(|node| node.is_allowed).map(|node| node.number).collect();
            return Err(PlanError::NoSuchNode { rule: name, node: number, nodes });
        }
        let named = rule.cpus.as_ref().filter(|cpus| !cpus.is_empty());
        let cpus = match (named, node) {
            (Some(cpus), _) => cpus.clone(),
            // A node of memory alone: its memory, run anywhere. And memory does not run.
            (None, Some(node)) if node.cpus.is_empty() || name.kind == Kind::Pool => node.cpus.clone(),
            (None, Some(node)) => node.cpus.intersection(&machine.permitted),
            (None, None) => machine.allowed.clone(),
        };
        if let (true, Some(node)) = (cpus.is_empty(), node.filter(|node| !node.cpus.is_empty())) {
            return Err(PlanError::NodeWithoutCpu { rule: name, node: node.number });
        }
        if name.kind == Kind::Thread
            && let Some(cpu) = cpus.iter().find(|&cpu| !machine.permitted.contains(cpu))
        {
            return Err(PlanError::NoSuchCpu { rule: name, cpu, permitted: machine.permitted.clone() });
        }
        let cpus = if cpus.is_empty() { machine.allowed.clone() } else { cpus };
        let common = named.and_then(|cpus| machine.common_node(cpus));
        Ok(Self { cpus, node: rule.node.or(common) })
    }

    fn cpus_for(&self, turn: usize, in_turn: bool) -> CpuList {
        if in_turn { self.cpus.iter().nth(turn % self.cpus.len()).into_iter().collect() } else { self.cpus.clone() }
    }
}

impl Placement {
    fn unplaced(item: &Item, machine: &Machine) -> Self {
        Self {
            kind: item.kind,
            name: item.name.clone(),
            by: Decision::Nobody,
            cpus: machine.allowed.clone(),
            node: None,
            scheduling: None,
            lock: false,
        }
    }

    /// Whether a rule or the layout decided about it.
    pub fn is_placed(&self) -> bool {
        self.by != Decision::Nobody
    }
}

/// What will not come about as it was wanted.
fn remarks(placement: &Placement, machine: &Machine) -> Vec<String> {
    let Placement { kind, name, cpus, .. } = placement;
    let mut remarks = Vec::new();
    if let Some(scheduling @ (Scheduling::Fifo(priority) | Scheduling::RoundRobin(priority))) = placement.scheduling
        && machine.rights.forbids_realtime(priority)
    {
        let capability = Capability::SysNice.name();
        remarks.push(format!(
            "{kind} {name}: this process lacks {capability}: real-time scheduling ({scheduling}) will be refused"
        ));
    }
    if let Some(most) =
        machine.rights.locked_bytes.filter(|_| placement.lock && machine.rights.forbids_locking(u64::MAX))
    {
        let (capability, most) = (Capability::IpcLock.name(), most / 1024);
        remarks.push(format!(
            "{kind} {name}: this process lacks {capability}: it may lock {most} KiB in all, more will be refused"
        ));
    }
    let isolated = cpus.intersection(&machine.isolated);
    if *kind == Kind::Thread && placement.is_placed() && !isolated.is_empty() && cpus.len() > 1 {
        remarks.push(format!(
            "{kind} {name}: CPU {isolated} are isolated: the kernel moves no thread between them, so that a thread \
             stays where it begins; give each one CPU (`in_turn = true`)"
        ));
    }
    remarks
}

impl Plan {
    /// The placement of the thread or pool with this name.
    pub fn of(&self, kind: Kind, name: &str) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.kind == kind && placement.name == name)
    }
}

impl fmt::Display for Plan {
    /// One line for each thread and pool, then the rules that were not used, then the remarks.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.placements.iter().map(|one| one.name.len()).max().unwrap_or(0);
        for placement in &self.placements {
            let place = place(placement);
            let by = match &placement.by {
                Decision::Nobody => "no rule".to_owned(),
                Decision::Rule(rule) => rule.to_string(),
                Decision::Automatic(why) => format!("auto: {why}"),
            };
            writeln!(out, "{:<6} {:<width$}  {place:<24}  {by}", placement.kind, placement.name)?;
        }
        for rule in &self.unused_rules {
            writeln!(out, "{rule} matches nothing")?;
        }
        for remark in &self.remarks {
            writeln!(out, "note: {remark}")?;
        }
        Ok(())
    }
}

/// The place of a thread or pool as text.
fn place(placement: &Placement) -> String {
    let mut words = Vec::new();
    if placement.kind == Kind::Thread {
        words.push(format!("CPU {}", placement.cpus));
    }
    match placement.node {
        Some(node) => words.push(format!("node {node}")),
        None if placement.kind == Kind::Pool => words.push("any node".to_owned()),
        None => {}
    }
    words.extend(placement.scheduling.map(|scheduling| scheduling.to_string()));
    words.extend(placement.lock.then(|| "locked".to_owned()));
    words.join(", ")
}
