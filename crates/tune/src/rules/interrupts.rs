//! Which CPUs take interrupts and the work behind them.
//!
//! The layout is that of paper 3, Fig. 9, as `ropewalk_host` places threads by it: the queues of a card that feeds
//! interrupt cores in the middle of its node, the threads that read it have the cores on either side, and interrupts of
//! other cards go to the last core of another node.

use std::fmt::Write;

use ropewalk_host::{Card, CpuList, Interrupt, InterruptTask};

use super::irqbalance::irqbalance;
use super::layout::{
    are_far, chosen, cores_of, cpus_of, file_of, free_for_packets, held, near_cores, not_set_apart, own, receiving,
    tickless,
};
use super::running::running_threads;
use super::{Rule, Seen};
use crate::found::{Found, Unread};
use crate::{Feeding, Form, Group, Placed, Setting, Sureness, Wish};

/// Rules on interrupts.
pub(super) const INTERRUPTS: &[Rule] = &[
    Rule {
        name: "interrupt_node",
        group: Group::Interrupts,
        what: "Where the receive queues of a card interrupt. On CPUs of the node that the card is plugged into.",
        why: "The card writes into the caches of its own node; a CPU of another one fetches each packet's header across \
              the sockets, and so does every thread that reads beside it.",
        source: "paper 3, IV-C and Fig. 9; the kernel's core-api/irq/irq-affinity.rst",
        worth: "the rate at 40 Gb/s with and without this and the buffers together is in Fig. 7 of paper 3; no bench \
               of Ropewalk shows it: virtual cards do not interrupt",
        sureness: Sureness::Documented,
        look: interrupt_node,
    },
    Rule {
        name: "interrupt_spread",
        group: Group::Interrupts,
        what: "Whether the receive queues of a card interrupt different cores. As many cores as there are queues, or as \
               the layout has for them.",
        why: "Queues whose interrupts come to one core share that core's time, while others stand idle.",
        source: "the kernel's networking/scaling.rst",
        worth: "up to one more core for the kernel's work with each queue; no bench of Ropewalk shows it: virtual \
               cards do not interrupt (the kernel's networking/scaling.rst)",
        sureness: Sureness::Documented,
        look: interrupt_spread,
    },
    Rule {
        name: "interrupt_layout",
        group: Group::Interrupts,
        what: "For a card that feeds threads of the configuration: its queues interrupt cores in the middle of its node, and \
               the cores on either side are left for the threads that read. `[run] placement = \"auto\"` puts them there. \
               CPUs that rules (`[[thread]]`) give to such threads, and those that are set apart (`isolcpus`, \
               `nohz_full`), are left to them first; cards with the same node share the rest.",
        why: "A thread that shares its core with the interrupts stands still whenever packets come; one on the other socket \
              fetches all data across. Paper 3 found this layout best.",
        source: "paper 3, IV-B, IV-C and Fig. 9; docs/placement.md",
        worth: "as `interrupt_node`; no bench of Ropewalk shows it: virtual cards do not interrupt (paper 3, Fig. 7); \
               `ropewalk topology CONFIG` draws it",
        sureness: Sureness::Documented,
        look: interrupt_layout,
    },
    Rule {
        name: "reader_cores",
        group: Group::Interrupts,
        what: "Where the threads run that read a card. On cores of its node that are theirs: by `[run] placement = \"auto\"`, or \
               by rules (`[[thread]]`). Where there are too few cores to keep some for them, anywhere.",
        why: "A thread that the kernel moves about leaves its cache behind, and comes to the cores that take interrupts and \
              to other nodes.",
        source: "paper 3, IV-B and Fig. 9; paper 1, IV-C; docs/placement.md",
        worth: "`ropewalk bench gateway --case effect=affinity` has threads that stay on their CPUs, and that do not; \
               `ropewalk topology CONFIG` draws who runs where",
        sureness: Sureness::Documented,
        look: reader_cores,
    },
    Rule {
        name: "interrupt_others",
        group: Group::Interrupts,
        what: "Interrupts of other cards on the node of one that feeds. On the last core of another node.",
        why: "Paper 3 kept one core of the other socket aside for them, so that nothing else comes to the cores that read.",
        source: "paper 3, IV-B and Fig. 9",
        worth: "the same rate when the other card is busy, too; no bench of Ropewalk shows it: virtual cards do not \
               interrupt (paper 3, IV-B)",
        sureness: Sureness::Documented,
        look: interrupt_others,
    },
    Rule {
        name: "running_threads",
        group: Group::Interrupts,
        what: "Where the threads of runs that go on may run, for processes named `ropewalk` with threads of the configuration. \
               Where rules put them; otherwise those that read a card each on a core of its own beside the interrupts, and \
               all others away from both, as `placement = \"auto\"` would place a run that began now. Threads of \
               other programs are never touched.",
        why: "Interrupts that are moved while a run goes on may come to the core of a thread that reads; and a run that began \
              without rules may run anywhere. What is changed holds until the run ends: the configuration says where the next \
              one goes.",
        source: "paper 3, IV-B and Fig. 9; sched_setaffinity(2); docs/placement.md",
        worth: "`ropewalk bench gateway --case effect=affinity` has threads that stay on their CPUs, and that do not; \
               `ropewalk topology CONFIG` draws who belongs where",
        sureness: Sureness::Documented,
        look: running_threads,
    },
    Rule {
        name: "irqbalance",
        group: Group::Interrupts,
        what: "Whether a process named irqbalance moves interrupts about. Not those of cards that data comes through \
               (`--banirq`), and none to CPUs that rules give to threads that read (`IRQBALANCE_BANNED_CPULIST`), as its \
               settings in /etc say; or not at all.",
        why: "It moves interrupts every ten seconds, and takes back what the other rules of this group advise: also from \
              CPUs that are banned. Paper 1 found fixed ones faster, and the same every day.",
        source: "paper 1, IV-B; irqbalance(1)",
        worth: "a rate that stays, whatever fixed interrupts are worth; no bench of Ropewalk shows it: virtual cards \
               do not interrupt (paper 1, IV-B)",
        sureness: Sureness::Documented,
        look: irqbalance,
    },
    Rule {
        name: "packet_steering",
        group: Group::Interrupts,
        what: "Whether the kernel hands packets to other CPUs than the one that was interrupted (`rps_cpus`). For a card \
               with one queue that feeds or is fast: to the cores of its node that are neither set apart, nor take the card's \
               interrupts, nor are those of threads that read. Otherwise not.",
        why: "With one queue one core would do all of the kernel's work. With several queues the card has shared it out \
              already, and handing over wakes a core for each packet.",
        source: "the kernel's networking/scaling.rst, RPS",
        worth: "one queue: the kernel's work on more than one core; `ropewalk bench packet`",
        sureness: Sureness::Documented,
        look: packet_steering,
    },
    Rule {
        name: "transmit_steering",
        group: Group::Interrupts,
        what: "Which CPUs send by which transmit queue (`xps_cpus`) of a card with several. Each CPU by one of them.",
        why: "Threads on different cores that send by the same queue wait for its lock.",
        source: "the kernel's networking/scaling.rst, XPS",
        worth: "little at few packets a second; measure before and after with `ropewalk bench packet`",
        sureness: Sureness::Guess,
        look: transmit_steering,
    },
    Rule {
        name: "isolated_cpus",
        group: Group::Interrupts,
        what: "Whether some CPUs are left out by the kernel's scheduler (`isolcpus`). On a machine of eight cores and more \
               that feeds threads: those that read. `placement = \"auto\"` takes isolated CPUs first.",
        why: "No other process ever runs there, so that no reading thread waits for one.",
        source: "the kernel's admin-guide/kernel-parameters.txt; paper 1, IV-C, on daemons",
        worth: "rarely speed, but fewer pauses, which is a guess; no bench of Ropewalk shows it: it takes a start of \
               the kernel with them and without (paper 1, IV-C, is on daemons)",
        sureness: Sureness::Guess,
        look: isolated_cpus,
    },
    Rule {
        name: "tickless_cpus",
        group: Group::Interrupts,
        what: "Whether isolated CPUs have no timer tick while one thread runs (`nohz_full`). The same CPUs as `isolcpus`.",
        why: "The tick interrupts a reading thread up to 1000 times a second for nothing.",
        source: "the kernel's timers/no_hz.rst",
        worth: "little, and every system call costs a little more; no bench of Ropewalk shows it: it takes a start of \
               the kernel with them and without (timers/no_hz.rst)",
        sureness: Sureness::Guess,
        look: tickless_cpus,
    },
];

/// With a change for each interrupt that is not where the layout has it.
fn moved(mut seen: Seen, found: &Found, wish: &Wish, card: &Card) -> Seen {
    let cores = chosen(found, wish, card);
    for (interrupt, cpu) in receiving(found, wish, card).into_iter().zip(cores.iter().cycle()) {
        seen = to(seen, found, interrupt, *cpu);
    }
    seen
}

/// With a change that has one CPU take an interrupt, where it does not.
fn to(seen: Seen, found: &Found, interrupt: &Interrupt, cpu: u32) -> Seen {
    let path = file_of(interrupt);
    let target = CpuList::from_iter([cpu]);
    match found.text(&path) {
        Some(present) if interrupt.cpus != target => {
            let (from, setting) = (present.to_owned(), Setting::File { path, form: Form::CpuList });
            seen.change(setting, from, target.to_string())
        }
        _ => seen,
    }
}

/// Where the interrupts of all cards go when all is as advised: the numbers of those that are moved, and their CPUs.
pub(super) fn moves(found: &Found, wish: &Wish) -> Vec<(u32, CpuList)> {
    let looks = [interrupt_node, interrupt_spread, interrupt_layout, interrupt_others];
    let seen = looks.into_iter().filter_map(|look| look(found, wish).ok()).flatten();
    let moved = seen.flat_map(|seen| seen.changes).filter_map(|(setting, _, to)| {
        let Setting::File { path, .. } = setting else { return None };
        let number = path.strip_prefix("proc/irq/")?.split('/').next()?.parse().ok()?;
        Some((number, to.parse().ok()?))
    });
    moved.collect()
}

fn list(cpus: &[u32]) -> CpuList {
    cpus.iter().copied().collect()
}

fn interrupt_node(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let node = found.machine.node(card.node?).filter(|_| found.machine.nodes.len() > 1)?;
        let interrupts = receiving(found, wish, card);
        let cpus = cpus_of(&interrupts);
        let name = format!("{}: node of interrupts", card.name);
        if !are_far(found, card, &cpus) {
            return Some(Seen::good(name, format!("CPU {cpus}, on node {}", node.number)));
        }
        let advised = format!("node {}: CPU {}", node.number, list(&chosen(found, wish, card)));
        let told = format!("CPU {cpus}, not all on node {}", node.number);
        Some(moved(Seen::better(name, told, advised), found, wish, card))
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn interrupt_spread(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let interrupts = receiving(found, wish, card);
        if interrupts.len() < 2 {
            return None;
        }
        let cpus = cpus_of(&interrupts);
        let (cores, wanted) = (cores_of(found, &cpus), chosen(found, wish, card));
        let name = format!("{}: spread of interrupts", card.name);
        let told = format!("{} queues interrupt {cores} cores (CPU {cpus})", interrupts.len());
        Some(if cores >= wanted.len() {
            Seen::good(name, told)
        } else {
            moved(Seen::better(name, told, format!("CPU {}", list(&wanted))), found, wish, card)
        })
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn interrupt_layout(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let interrupts = receiving(found, wish, card);
        if found.readers_of(card, wish) == 0 || interrupts.is_empty() {
            return None;
        }
        let (wanted, cpus) = (chosen(found, wish, card), cpus_of(&interrupts));
        let name = format!("{}: layout of interrupts", card.name);
        let told = format!("CPU {cpus}");
        let seen = Seen::better(&name, &told, format!("CPU {}, threads that read beside them", list(&wanted)));
        let seen = moved(seen, found, wish, card);
        Some(if seen.changes.is_empty() { Seen::good(name, told) } else { seen })
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn reader_cores(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    /// Cores beside those of threads that read: one for interrupts, one for all else.
    const OTHERS: usize = 2;
    let one = |card: &Card| {
        let readers = found.readers(&[card], wish);
        let is_away = |reader: &&&Feeding| match (&reader.placed, found.machine.card(&reader.interface)) {
            // A bond may be made of cards of several nodes.
            (Placed::Rule(cpus), Some(interface)) => {
                found.machine.hardware_of(interface).iter().all(|card| are_far(found, card, cpus))
            }
            _ => false,
        };
        let names = |readers: &[&&Feeding]| -> String {
            readers.iter().map(|reader| reader.thread.as_str()).collect::<Vec<_>>().join(", ")
        };
        let loose: Vec<_> = readers.iter().filter(|reader| reader.placed == Placed::Nobody).collect();
        let away: Vec<_> = readers.iter().filter(is_away).collect();
        let name = format!("{}: cores of threads that read", card.name);
        let near = near_cores(found, card);
        if readers.is_empty() {
            None
        } else if let (false, Some(node)) = (away.is_empty(), card.node) {
            let told = format!("not all on node {node}: {}", names(&away));
            Some(Seen::better(name, told, format!("CPU {}: change the rules", list(&near))))
        } else if loose.is_empty() {
            Some(Seen::good(name, "as they are placed"))
        } else if near.len() < readers.len() + OTHERS {
            Some(Seen::good(name, format!("{} are too few to keep some apart", near.len())))
        } else {
            let advised = "a core for each: `placement = \"auto\"` for readout units, or a rule (`[[thread]]`)";
            Some(Seen::better(name, format!("wherever the kernel puts them: {}", names(&loose)), advised))
        }
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn interrupt_others(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let feeding: Vec<&Card> =
        found.hardware(wish).into_iter().filter(|card| found.readers_of(card, wish) > 0).collect();
    let nodes: Vec<u32> = feeding.iter().filter_map(|card| card.node).collect();
    let free = found.machine.nodes.iter().rfind(|node| !nodes.contains(&node.number) && !node.cpus.is_empty());
    let (Some(free), false) = (free, nodes.is_empty()) else { return Ok(Vec::new()) };
    let cores = found.machine.cores.iter().filter(|core| core.overlaps(&free.cpus));
    let cores: Vec<u32> = cores.filter_map(CpuList::first).collect();
    let held = held(found, wish);
    let last = not_set_apart(found, &cores).into_iter().rfind(|&cpu| !held.contains(cpu));
    let Some(last) = last else { return Ok(Vec::new()) };
    let busy: CpuList =
        nodes.iter().filter_map(|&node| found.machine.node(node)).flat_map(|node| node.cpus.iter()).collect();
    let others = found.machine.cards.iter().filter(|card| feeding.iter().all(|other| other.name != card.name));
    let one = |card: &Card| {
        let name = format!("{}: interrupts", card.name);
        let own = own(found, wish, card);
        if own.is_empty() {
            return None;
        }
        let near = own.into_iter().filter(|interrupt| interrupt.cpus.overlaps(&busy));
        let near: Vec<&Interrupt> = near.filter(|interrupt| interrupt.task != InterruptTask::Other).collect();
        let told = format!("CPU {}", cpus_of(&near));
        let seen = Seen::better(&name, told, format!("CPU {last}, on node {}", free.number));
        let seen = near.iter().fold(seen, |seen, interrupt| to(seen, found, interrupt, last));
        Some(if near.is_empty() { Seen::good(name, "away from those that feed") } else { seen })
    };
    Ok(others.filter_map(one).collect())
}

/// A set of CPUs as the kernel writes masks, without the commas.
fn mask(cpus: &CpuList) -> String {
    let digits = cpus.iter().max().map_or(1, |most| most / 4 + 1);
    let digit = |place: u32| (0..4).map(|bit| u32::from(cpus.contains(place * 4 + bit)) << bit).sum::<u32>();
    (0..digits).rev().fold(String::new(), |mut text, place| {
        let _ = write!(text, "{:x}", digit(place));
        text
    })
}

fn is_empty_mask(text: &str) -> bool {
    text.chars().all(|letter| letter == '0' || letter == ',')
}

fn packet_steering(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const FAST: u32 = 10_000;
    let mut seen = Vec::new();
    for card in found.hardware(wish) {
        let queues = found.queues(card, "rx", "rps_cpus");
        let name = format!("{}: packets handed over", card.name);
        let setting = |path: &str| Setting::File { path: path.to_owned(), form: Form::CpuMask };
        let matters = found.readers_of(card, wish) > 0 || card.megabits_per_second.is_some_and(|speed| speed >= FAST);
        // One that `channels` gives company is looked at as one of several.
        let stays_alone = queues.len() == 1 && found.queues_after(card, wish).is_none_or(|queues| queues < 2);
        match queues[..] {
            [] => {}
            [(path, present)] if stays_alone && is_empty_mask(present) && matters => {
                let others = free_for_packets(found, wish, card);
                if others.is_empty() {
                    seen.push(Seen::good(name, "no: there is no other core"));
                } else {
                    let one = Seen::better(name, "to no CPU, and the card has one queue", format!("to CPU {others}"));
                    seen.push(one.change(setting(path), present, mask(&others)));
                }
            }
            [_] if stays_alone => seen.push(Seen::good(name, "as it should be with one queue")),
            _ => {
                let kept = queues.iter().take(found.queues_after(card, wish).unwrap_or(usize::MAX));
                let given: Vec<_> = kept.filter(|(_, present)| !is_empty_mask(present)).collect();
                if given.is_empty() {
                    seen.push(Seen::good(name, "no: the card shares its work out by queues"));
                } else {
                    let told = format!("by {} of {} queues", given.len(), queues.len());
                    let one = Seen::better(name, told, "no: the card shares its work out by queues");
                    seen.push(given.iter().fold(one, |one, (path, present)| one.change(setting(path), *present, "0")));
                }
            }
        }
    }
    Ok(seen)
}

fn transmit_steering(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let mut seen = Vec::new();
    for card in found.hardware(wish) {
        let mut queues = found.queues(card, "tx", "xps_cpus");
        queues.truncate(found.queues_after(card, wish).unwrap_or(usize::MAX));
        let name = format!("{}: CPUs of transmit queues", card.name);
        if queues.len() < 2 {
            continue;
        }
        if queues.iter().any(|(_, present)| !is_empty_mask(present)) {
            seen.push(Seen::good(name, "each has its own"));
            continue;
        }
        let count = queues.len() as u32;
        let mut one = Seen::better(name, "all CPUs for each", "each CPU by one queue");
        for (index, (path, present)) in (0..).zip(queues) {
            let cpus: CpuList = found.machine.online.iter().filter(|cpu| cpu % count == index).collect();
            if !cpus.is_empty() {
                one = one.change(Setting::File { path: path.to_owned(), form: Form::CpuMask }, present, mask(&cpus));
            }
        }
        seen.push(one);
    }
    Ok(seen)
}

fn isolated_cpus(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "isolated CPUs";
    const MANY: usize = 8;
    let isolated = &found.machine.isolated;
    let readers: usize = found.hardware(wish).iter().map(|card| found.readers_of(card, wish)).sum();
    Ok(vec![if !isolated.is_empty() {
        Seen::good(SUBJECT, isolated.to_string())
    } else if readers > 0 && found.machine.cores.len() >= MANY {
        let advised = "the CPUs of threads that read: `isolcpus=managed_irq,domain,CPUS` on the kernel's command line";
        Seen::told(SUBJECT, "none", advised)
    } else {
        Seen::good(SUBJECT, "none")
    }])
}

fn tickless_cpus(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "CPUs without a tick";
    let isolated = &found.machine.isolated;
    let tickless = tickless(found);
    let told = if tickless.is_empty() { "none".to_owned() } else { tickless.to_string() };
    Ok(vec![if isolated.is_within(&tickless) {
        Seen::good(SUBJECT, told)
    } else {
        Seen::told(SUBJECT, told, format!("`nohz_full={isolated}` on the kernel's command line"))
    }])
}
