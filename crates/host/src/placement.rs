//! Where threads and pools go: ordered rules that match their names by regular expression (paper 3, IV-B).

use std::fmt;

use regex_lite::Regex;

use crate::{CpuList, Machine};

/// One rule of placement. For a thread `cpus` counts, for a pool `node`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// A regular expression that is looked for in the name; `^` and `$` bind it to the name's ends.
    pub pattern: String,
    /// The CPUs a thread may run on. None: those of `node`.
    pub cpus: Option<CpuList>,
    /// The NUMA node memory comes from. None: that of `cpus`, if they all belong to one.
    pub node: Option<u32>,
    /// Whether the names that match take one CPU each, in turn, instead of sharing all of them.
    pub in_turn: bool,
}

/// Why rules cannot be followed. `rule` counts from one, as people do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The pattern is no regular expression.
    #[error("placement rule {rule}: `{pattern}` is no regular expression: {reason}")]
    BadPattern {
        /// Which rule.
        rule: usize,
        /// Its pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The rule says neither where to run nor where memory comes from.
    #[error("placement rule {rule}: give it `cpus` (for example \"2-5\"), `node`, or both")]
    Empty {
        /// Which rule.
        rule: usize,
    },
    /// The rule names CPUs that are off, absent, or taken away from this process.
    #[error("placement rule {rule}: this process may not run on CPU {cpu}; it may run on {allowed}")]
    NoSuchCpu {
        /// Which rule.
        rule: usize,
        /// The first such CPU.
        cpu: u32,
        /// The CPUs there are.
        allowed: CpuList,
    },
    /// The rule names a NUMA node that the machine does not have.
    #[error("placement rule {rule}: there is no NUMA node {node}; there are {nodes:?}")]
    NoSuchNode {
        /// Which rule.
        rule: usize,
        /// The node.
        node: u32,
        /// The nodes there are.
        nodes: Vec<u32>,
    },
    /// The rule would run threads on a node none of whose CPUs this process may use.
    #[error("placement rule {rule}: no CPU of NUMA node {node} is free for this process: give the rule `cpus` too")]
    NodeWithoutCpu {
        /// Which rule.
        rule: usize,
        /// The node.
        node: u32,
    },
}

/// Rules in the order in which they are tried; the first that matches a name decides.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<(Rule, Regex)>,
}

/// Where one thread or pool goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The thread's or pool's name.
    pub name: String,
    /// The rule that decided, counted from one; none: no rule matched.
    pub rule: Option<usize>,
    /// The CPUs the thread may run on.
    pub cpus: CpuList,
    /// The NUMA node memory comes from; none: the kernel decides.
    pub node: Option<u32>,
}

/// What a policy means on one machine for given names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// One placement per name, in the order of the names.
    pub placements: Vec<Placement>,
    /// Rules that decided for no name, counted from one: most often a slip in a pattern.
    pub unused_rules: Vec<usize>,
}

impl Policy {
    /// A policy of these rules.
    ///
    /// # Errors
    /// When a pattern is no regular expression or a rule says nothing.
    pub fn new(rules: Vec<Rule>) -> Result<Self, PlanError> {
        let compile = |(index, rule): (usize, Rule)| {
            if rule.node.is_none() && rule.cpus.as_ref().is_none_or(CpuList::is_empty) {
                return Err(PlanError::Empty { rule: index + 1 });
            }
            match Regex::new(&rule.pattern) {
                Ok(pattern) => Ok((rule, pattern)),
                Err(error) => {
                    Err(PlanError::BadPattern { rule: index + 1, pattern: rule.pattern, reason: error.to_string() })
                }
            }
        };
        Ok(Self { rules: rules.into_iter().enumerate().map(compile).collect::<Result<_, _>>()? })
    }

    /// Where each of `names` goes on `machine`. Equal inputs give equal plans; nothing is changed.
    ///
    /// # Errors
    /// When a rule, used or not, names a CPU or node that is not there: a configuration for another machine.
    pub fn plan<'a>(&self, machine: &Machine, names: impl IntoIterator<Item = &'a str>) -> Result<Plan, PlanError> {
        let rules = self.rules.iter().enumerate();
        let places: Vec<Place> =
            rules.map(|(index, (rule, _))| Place::resolve(index + 1, rule, machine)).collect::<Result<_, _>>()?;
        let mut matched = vec![0; places.len()];
        let placements = names.into_iter().map(|name| {
            let Some(index) = self.rules.iter().position(|(_, pattern)| pattern.is_match(name)) else {
                return Placement { name: name.to_owned(), rule: None, cpus: machine.allowed.clone(), node: None };
            };
            let cpus = places[index].cpus_for(matched[index], self.rules[index].0.in_turn);
            matched[index] += 1;
            Placement { name: name.to_owned(), rule: Some(index + 1), cpus, node: places[index].node }
        });
        let placements = placements.collect();
        let unused_rules = (1..=matched.len()).filter(|rule| matched[rule - 1] == 0).collect();
        Ok(Plan { placements, unused_rules })
    }
}

/// What a rule means on a machine.
struct Place {
    cpus: CpuList,
    node: Option<u32>,
}

impl Place {
    fn resolve(number: usize, rule: &Rule, machine: &Machine) -> Result<Self, PlanError> {
        if let Some(node) = rule.node.filter(|&node| machine.node(node).is_none()) {
            let nodes = machine.nodes.iter().map(|node| node.number).collect();
            return Err(PlanError::NoSuchNode { rule: number, node, nodes });
        }
        let cpus = match (&rule.cpus, rule.node.and_then(|node| machine.node(node))) {
            (Some(cpus), _) => cpus.clone(),
            // A node of memory alone: its memory, run anywhere.
            (None, Some(node)) if node.cpus.is_empty() => machine.allowed.clone(),
            (None, Some(node)) => node.cpus.intersection(&machine.allowed),
            (None, None) => return Err(PlanError::Empty { rule: number }),
        };
        if let Some(cpu) = cpus.iter().find(|&cpu| !machine.allowed.contains(cpu)) {
            return Err(PlanError::NoSuchCpu { rule: number, cpu, allowed: machine.allowed.clone() });
        }
        if let (true, Some(node)) = (cpus.is_empty(), rule.node) {
            return Err(PlanError::NodeWithoutCpu { rule: number, node });
        }
        let first = cpus.iter().next().and_then(|cpu| machine.node_of(cpu));
        let common = first.filter(|_| cpus.iter().all(|cpu| machine.node_of(cpu) == first));
        Ok(Self { cpus, node: rule.node.or(common) })
    }

    fn cpus_for(&self, turn: usize, in_turn: bool) -> CpuList {
        if in_turn { self.cpus.iter().nth(turn % self.cpus.len()).into_iter().collect() } else { self.cpus.clone() }
    }
}

impl Plan {
    /// The placement of `name`.
    pub fn of(&self, name: &str) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.name == name)
    }
}

impl fmt::Display for Plan {
    /// One line for each name, then one for each rule that was not used.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Placement { name, rule, cpus, node } in &self.placements {
            let node = node.map_or("any".to_owned(), |node| node.to_string());
            let rule = rule.map_or("no rule".to_owned(), |rule| format!("rule {rule}"));
            writeln!(out, "{name}: CPU {cpus}, node {node} ({rule})")?;
        }
        for rule in &self.unused_rules {
            writeln!(out, "rule {rule} matches nothing")?;
        }
        Ok(())
    }
}
