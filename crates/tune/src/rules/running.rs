//! The placement of the threads of current runs: reading threads beside the interrupts of their card, the others away
//! from them (paper 3, Fig. 9).
//!
//! ```text
//!  machine, its interrupts as they are advised --+
//!                                                +--> the placement of `ropewalk_host`: what a run would do that began then
//!  threads of the configuration that run --------+                  |
//!                                                                   +--> a thread that may run elsewhere is put there
//! ```

use ropewalk_host::{Card, CpuList, Decision, Feed, InterruptTask, Item, Kind, Machine, Placement, Plan, Policy, Rule};

use super::Seen;
use super::interrupts::{moves, own, receiving};
use crate::found::{Found, Unread};
use crate::{Placed, Process, Setting, Thread, Wish};

/// Bytes of a thread's name that the kernel keeps.
const NAME: usize = 15;

/// A thread of the configuration that runs.
struct Running<'a> {
    process: &'a Process,
    thread: &'a Thread,
    /// Its name in the configuration.
    name: &'a str,
    /// The interface that it reads, if it does.
    reads: Option<&'a str>,
}

/// The rule.
pub(super) fn running_threads(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let mut seen = Vec::new();
    let running = running(found, wish, &mut seen);
    // If one thread turns several units, the names of the reading threads are unknown.
    let are_known = wish.feeding.iter().all(|feeding| wish.threads.contains_key(&feeding.thread));
    let machine = as_advised(found, wish);
    let Some(plan) = placement(&machine, wish, &running).filter(|_| are_known) else { return Ok(seen) };
    let goals = Goals::new(&machine, &plan, &running);
    for process in &found.processes {
        let own: Vec<&Running> = running.iter().filter(|one| one.process.number == process.number).collect();
        let wrong: Vec<Seen> = own.iter().filter_map(|one| goals.judge(one)).collect();
        if wrong.is_empty() && !own.is_empty() {
            let names = own.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
            seen.push(Seen::good(format!("ropewalk {}: threads", process.number), format!("as placed: {names}")));
        }
        seen.extend(wrong);
    }
    Ok(seen)
}

/// The configuration's threads that run, reading threads first. A name that threads of several processes have is
/// skipped: it does not say which of them the configuration means.
fn running<'a>(found: &'a Found, wish: &'a Wish, seen: &mut Vec<Seen>) -> Vec<Running<'a>> {
    let mut names: Vec<(&str, Option<&str>)> = Vec::new();
    let reading = wish.feeding.iter().map(|feeding| (feeding.thread.as_str(), Some(feeding.interface.as_str())));
    for (name, reads) in reading.chain(wish.threads.keys().map(|name| (name.as_str(), None))) {
        if names.iter().all(|(other, _)| *other != name) {
            names.push((name, reads));
        }
    }
    let mut running = Vec::new();
    for &(name, reads) in &names {
        let first =
            |process: &'a Process| Some((process, process.threads.iter().find(|one| one.id.name == cut(name))?));
        let found: Vec<_> = found.processes.iter().filter_map(first).collect();
        let is_alone = names.iter().filter(|(other, _)| cut(other) == cut(name)).count() == 1;
        match found[..] {
            [(process, thread)] if is_alone => running.push(Running { process, thread, name, reads }),
            [_, _, ..] => {
                let numbers: Vec<_> = found.iter().map(|(process, _)| process.number.to_string()).collect();
                let told = format!("in ropewalk {}", numbers.join(", "));
                let advised = "nothing is planned for it: of which of them the configuration is cannot be seen";
                seen.push(Seen::told(format!("thread {name}"), told, advised));
            }
            _ => {}
        }
    }
    running
}

/// What the kernel keeps of a name.
fn cut(name: &str) -> &str {
    let end = (0..=name.len().min(NAME)).rfind(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

/// The machine when its queues and interrupts are as the other rules advise.
fn as_advised(found: &Found, wish: &Wish) -> Machine {
    let (mut machine, moves) = (found.machine.clone(), moves(found, wish));
    for card in found.hardware(wish).into_iter().filter(|card| found.readers_of(card, wish) > 0) {
        let kept: Vec<u32> = receiving(found, wish, card).iter().map(|interrupt| interrupt.number).collect();
        let all = own(found, wish, card).into_iter().filter(|interrupt| interrupt.task == InterruptTask::Receive);
        let gone: Vec<u32> = all.map(|interrupt| interrupt.number).filter(|number| !kept.contains(number)).collect();
        for other in machine.cards.iter_mut().filter(|other| other.name == card.name) {
            other.interrupts.retain(|interrupt| !gone.contains(&interrupt.number));
            other.receive_queues = found.queues_after(card, wish).unwrap_or(other.receive_queues);
        }
    }
    for interrupt in machine.cards.iter_mut().flat_map(|card| &mut card.interrupts) {
        if let Some((_, cpus)) = moves.iter().find(|(number, _)| *number == interrupt.number) {
            interrupt.cpus = cpus.clone();
        }
    }
    machine
}

/// The placement of these threads on that machine by a run. `None` if it would leave all of them to the kernel, or if
/// its rules cannot be followed there.
fn placement(machine: &Machine, wish: &Wish, running: &[Running]) -> Option<Plan> {
    let rule = |one: &Running| match wish.threads.get(one.name) {
        Some(Placed::Rule(cpus)) => {
            Some(Rule { pattern: pattern(one.name), cpus: Some(cpus.clone()), ..Rule::default() })
        }
        _ => None,
    };
    let item = |one: &Running| Item {
        kind: Kind::Thread,
        name: one.name.to_owned(),
        feed: one.reads.map(|interface| Feed::Card(interface.to_owned())),
    };
    let policy = Policy::new(running.iter().filter_map(rule).collect(), Vec::new()).ok()?;
    let plan = policy.automatic().plan(machine, &running.iter().map(item).collect::<Vec<_>>()).ok()?;
    plan.placements.iter().any(Placement::is_placed).then_some(plan)
}

/// A regular expression that finds this name alone.
fn pattern(name: &str) -> String {
    let one = |letter: char| match letter {
        _ if letter.is_ascii_alphanumeric() => letter.to_string(),
        _ => format!("\\x{{{:x}}}", u32::from(letter)),
    };
    format!("^{}$", name.chars().map(one).collect::<String>())
}

/// Where threads belong, and which cores are kept for reading threads and for interrupts.
struct Goals<'a> {
    plan: &'a Plan,
    /// The cores, whole, of threads that read.
    reading: CpuList,
    /// Those and the ones that take the interrupts of the cards that they read.
    kept: CpuList,
    /// Whether each reading thread already has its own, equally good core.
    are_apart: bool,
}

impl<'a> Goals<'a> {
    fn new(machine: &Machine, plan: &'a Plan, running: &[Running]) -> Self {
        let readers: Vec<&Running> = running.iter().filter(|one| one.reads.is_some()).collect();
        let cards = readers.iter().filter_map(|one| machine.card(one.reads?));
        let cards: Vec<_> = cards.flat_map(|card| machine.hardware_of(card)).collect();
        let interrupts = machine
            .whole_cores(&cards.iter().flat_map(|card| card.receive_cpus().iter().collect::<Vec<_>>()).collect());
        let near = |card: &Card| card.node.and_then(|node| machine.node(node)).map(|node| node.cpus.clone());
        let near = cards.iter().map(|card| near(card).unwrap_or_else(|| machine.online.clone()));
        let near = near.fold(CpuList::default(), |all, cpus| all.union(&cpus));
        let placed = |one: &&&Running| plan.of(Kind::Thread, one.name).filter(|one| one.is_placed());
        let is_by_rule = |one: &&&Running| placed(one).is_some_and(|one| matches!(one.by, Decision::Rule(_)));
        let cores_of =
            |placed: Vec<&Placement>| machine.whole_cores(&placed.iter().flat_map(|one| one.cpus.iter()).collect());
        // What rules say of one says nothing of the others.
        let mut apart = cores_of(readers.iter().filter(is_by_rule).filter_map(|one| placed(&one)).collect());
        let are_apart = readers.iter().filter(|one| !is_by_rule(one)).all(|one| {
            let cpus = &one.thread.cpus;
            let core = machine.whole_cores(cpus);
            let is_one = cpus.first().and_then(|cpu| machine.siblings(cpu)).is_some_and(|one| *one == core);
            let is_good = is_one && cpus.is_within(&near) && !core.overlaps(&interrupts) && !core.overlaps(&apart);
            apart = apart.union(&core);
            is_good
        });
        let planned = cores_of(readers.iter().filter_map(|one| placed(&one)).collect());
        let reading = if are_apart { apart } else { planned };
        Self { plan, kept: reading.union(&interrupts), reading, are_apart }
    }

    /// The fault of the CPUs of a thread.
    fn judge(&self, one: &Running) -> Option<Seen> {
        let placement = self.plan.of(Kind::Thread, one.name).filter(|placement| placement.is_placed())?;
        let present = &one.thread.cpus;
        let (goal, why, is_good) = match (&placement.by, one.reads) {
            (Decision::Rule(_), _) => (placement.cpus.clone(), "as its rule has it".to_owned(), false),
            (Decision::Automatic(why), Some(_)) => (placement.cpus.clone(), why.clone(), self.are_apart),
            (Decision::Automatic(why), None) => {
                (placement.cpus.without(&self.reading), why.clone(), !present.overlaps(&self.kept))
            }
            (Decision::Nobody, _) => return None,
        };
        if is_good || goal == *present || goal.is_empty() {
            return None;
        }
        let (subject, told) =
            (format!("ropewalk {}: {}", one.process.number, one.name), format!("may run on CPU {present}"));
        let goal = match &one.process.container {
            Some(container) => goal.intersection(container),
            None => goal,
        };
        Some(if goal.is_empty() {
            Seen::told(subject, told, format!("CPU {}, {why}: its container has none of them", placement.cpus))
        } else if goal == *present {
            Seen::told(subject, told, format!("CPU {}, {why}: its container has no more of them", placement.cpus))
        } else {
            let seen = Seen::better(subject, told, format!("CPU {goal}, {why}"));
            seen.change(Setting::Thread(one.thread.id.clone()), present.to_string(), goal.to_string())
        })
    }
}
