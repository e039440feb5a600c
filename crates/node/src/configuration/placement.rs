//! The rules of placement in the words of `host`.

use super::model::{Configuration, PoolRule, SchedulingChoice, ThreadRule};
use super::parse::Fault;
use super::run::PlacementChoice;
use ropewalk_host::{CpuList, CpuListError, Kind, PlanError, Policy, Rule, Scheduling};

/// The policy of a configuration.
///
/// # Errors
/// Where a rule says nothing, or what no machine could follow.
pub(crate) fn policy(configuration: &Configuration) -> Result<Policy, Fault> {
    let pools = configuration.pool.iter().map(pool_rule).collect();
    let policy = Policy::new(rules(&configuration.thread)?, pools).map_err(|error| fault_of(&error))?;
    Ok(match configuration.run.placement {
        PlacementChoice::Rules => policy,
        PlacementChoice::Auto => policy.automatic(),
    })
}

/// The policy of rules for threads alone.
///
/// # Errors
/// As [`policy`].
pub(crate) fn policy_of(threads: &[ThreadRule]) -> Result<Policy, Fault> {
    Policy::new(rules(threads)?, Vec::new()).map_err(|error| fault_of(&error))
}

fn rules(threads: &[ThreadRule]) -> Result<Vec<Rule>, Fault> {
    threads.iter().enumerate().map(|(index, rule)| thread_rule(index, rule)).collect()
}

fn thread_rule(index: usize, rule: &ThreadRule) -> Result<Rule, Fault> {
    let fault = |field: &str, message: &str| Fault::new(format!("thread[{index}].{field}"), message);
    let list = |text: &String| text.parse().map_err(|error: CpuListError| fault("cpus", &error.to_string()));
    let cpus: Option<CpuList> = rule.cpus.as_ref().map(list).transpose()?;
    if cpus.as_ref().is_some_and(CpuList::is_empty) {
        return Err(fault("cpus", "name at least one CPU, such as 0 or 2-5,8"));
    }
    if rule.in_turn && cpus.is_none() && rule.node.is_none() {
        return Err(fault("in_turn", "CPUs are given out in turn: name them with `cpus` or `node`"));
    }
    if rule.priority.is_some_and(|priority| !(1..=99).contains(&priority)) {
        return Err(fault("priority", "a real-time priority is 1 to 99"));
    }
    let priority = rule.priority.unwrap_or(1);
    let scheduling = rule.scheduling.map(|choice| match choice {
        SchedulingChoice::Other => Scheduling::Other,
        SchedulingChoice::Batch => Scheduling::Batch,
        SchedulingChoice::Idle => Scheduling::Idle,
        SchedulingChoice::Fifo => Scheduling::Fifo(priority),
        SchedulingChoice::Rr => Scheduling::RoundRobin(priority),
    });
    let is_real_time = matches!(scheduling, Some(Scheduling::Fifo(_) | Scheduling::RoundRobin(_)));
    if rule.priority.is_some() && !is_real_time {
        return Err(fault("priority", "threads with scheduling `fifo` and `rr` alone have a priority"));
    }
    Ok(Rule { pattern: rule.pattern.clone(), cpus, node: rule.node, in_turn: rule.in_turn, scheduling, lock: false })
}

fn pool_rule(rule: &PoolRule) -> Rule {
    Rule { pattern: rule.pattern.clone(), node: rule.node, lock: rule.lock, ..Rule::default() }
}

/// What `host` cannot follow, at the key where it stands.
pub(crate) fn fault_of(error: &PlanError) -> Fault {
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
