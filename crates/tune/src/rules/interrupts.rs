//! The CPUs of interrupts and of the work that follows them.
//!
//! The layout is that of paper 3, Fig. 9, by which `ropewalk_host` places threads: the queues of a card that receives
//! data interrupt cores in the middle of its node, its reading threads have the cores on either side, and interrupts of
//! other cards go to the last core of another node.
//!
//! ```text
//!   the cards' node:   | reads | interrupts of eth0 | interrupts of eth1 | reads |
//! ```
//!
//! Cores that rules give to reading threads are left out first, wherever they are. The middle of the rest takes the
//! interrupts, and leaves a core for each other reading thread; cards on the same node share it. The process irqbalance
//! would move interrupts elsewhere.

use std::cmp::Reverse;
use std::fmt::Write;

use ropewalk_host::{Card, CpuList, Interrupt, InterruptTask};

use super::running::running_threads;
use super::{Rule, Seen};
use crate::found::{Found, Unread};
use crate::{Feeding, Form, Group, Placed, Plan, Setting, Sureness, Wish};

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
               CPUs that rules (`[[thread]]`) give to such threads, and CPUs set apart (`isolcpus`, \
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
               Where rules put them; otherwise reading threads each on a core of its own beside their card's \
               interrupts, and all others away from both, as `placement = \"auto\"` would place a run that began now. \
               Threads of other programs are never touched.",
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
        worth: "a steady rate, besides the worth of fixed interrupts; no bench of Ropewalk shows it: virtual cards \
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
               that feeds threads: the cores of reading threads. `placement = \"auto\"` takes isolated CPUs first.",
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

/// Adds a change for each interrupt that is not in the place of the layout.
fn moved(mut seen: Seen, found: &Found, wish: &Wish, card: &Card) -> Seen {
    let cores = chosen(found, wish, card);
    for (interrupt, cpu) in receiving(found, wish, card).into_iter().zip(cores.iter().cycle()) {
        seen = to(seen, found, interrupt, *cpu);
    }
    seen
}

/// Adds a change that moves an interrupt to one CPU, if it is not there.
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

/// The interrupts that move when the advice is followed, for all cards: their numbers and their CPUs.
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
            // A bond may have cards of several nodes.
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
        Some(if near.is_empty() { Seen::good(name, "away from the feeding cards") } else { seen })
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

/// The interrupts of a card, without those shared with a card that feeds: interfaces of one function share them if the
/// driver does not name them by interface.
pub(super) fn own<'a>(found: &Found, wish: &Wish, card: &'a Card) -> Vec<&'a Interrupt> {
    let feeds = |card: &&Card| found.readers_of(card, wish) > 0;
    let others: Vec<&Card> = found.machine.cards.iter().filter(feeds).collect();
    let is_shared = |number: u32| others.iter().flat_map(|card| &card.interrupts).any(|other| other.number == number);
    let own = card.interrupts.iter().filter(|interrupt| feeds(&card) || !is_shared(interrupt.number));
    own.collect()
}

/// The interrupts of a card's receive queues, as far as they stay when its queues become as many as advised.
pub(super) fn receiving<'a>(found: &Found, wish: &Wish, card: &'a Card) -> Vec<&'a Interrupt> {
    let queues = found.queues_after(card, wish);
    let receiving = own(found, wish, card).into_iter().filter(|interrupt| interrupt.task == InterruptTask::Receive);
    receiving.take(queues.unwrap_or(usize::MAX)).collect()
}

/// The CPUs that take some interrupts.
fn cpus_of(interrupts: &[&Interrupt]) -> CpuList {
    interrupts.iter().flat_map(|interrupt| interrupt.cpus.iter()).collect()
}

/// The file by which an interrupt is moved.
pub(super) fn file_of(interrupt: &Interrupt) -> String {
    format!("proc/irq/{}/smp_affinity_list", interrupt.number)
}

/// The first CPU of each core of a card's node that this process may use; of all nodes if the card's is unknown.
fn near_cores(found: &Found, card: &Card) -> Vec<u32> {
    let node = card.node.and_then(|node| found.machine.node(node));
    let cores = found.machine.cores.iter().filter(|core| node.is_none_or(|node| node.cpus.overlaps(core)));
    cores.filter_map(|core| core.intersection(&found.machine.permitted).first()).collect()
}

/// The CPUs on which no timer ticks while one thread runs.
fn tickless(found: &Found) -> CpuList {
    let text = found.text("sys/devices/system/cpu/nohz_full");
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Those of some CPUs that are not set apart: `placement = "auto"` reads on isolated cores, and the kernel hands
/// packets over neither to these nor to CPUs without a tick.
fn not_set_apart(found: &Found, cpus: &[u32]) -> Vec<u32> {
    outside(cpus, &found.machine.whole_cores(&found.machine.isolated.union(&tickless(found))))
}

fn outside(cpus: &[u32], others: &CpuList) -> Vec<u32> {
    cpus.iter().copied().filter(|&cpu| !others.contains(cpu)).collect()
}

/// The whole cores that rules give to reading threads of any card.
fn held(found: &Found, wish: &Wish) -> CpuList {
    let by_rule = wish.feeding.iter().filter_map(|feeding| match &feeding.placed {
        Placed::Rule(cpus) => Some(cpus),
        Placed::Nobody | Placed::Automatic => None,
    });
    found.machine.whole_cores(&by_rule.flat_map(CpuList::iter).collect())
}

/// The cards that use the same cores as a card, including itself; only itself if it receives no data.
fn sharing<'a>(found: &'a Found, wish: &Wish, card: &'a Card) -> Vec<&'a Card> {
    let feeds = |card: &&Card| found.readers_of(card, wish) > 0;
    if !feeds(&card) {
        return vec![card];
    }
    let near = near_cores(found, card);
    let feeding = found.hardware(wish).into_iter().filter(feeds);
    feeding.filter(|other| near_cores(found, other) == near).collect()
}

/// The cores of a card's queue interrupts: its share of those in the middle of its node, which leave one core for each
/// reading thread.
fn chosen(found: &Found, wish: &Wish, card: &Card) -> Vec<u32> {
    let (near, cards) = (near_cores(found, card), sharing(found, wish, card));
    let free_of_rules = outside(&near, &held(found, wish));
    // Where rules spread threads over the whole node, all is shared all the same.
    let (cores, is_held) = if free_of_rules.is_empty() { (near, false) } else { (free_of_rules, true) };
    let open = not_set_apart(found, &cores);
    // A node that is isolated as a whole is still nearer than another one.
    let open = if open.is_empty() { cores.clone() } else { open };
    let readers = found.readers(&cards, wish);
    let needing = readers.iter().filter(|reader| !is_held || !matches!(reader.placed, Placed::Rule(_))).count();
    let free = open.len().saturating_sub(needing.saturating_sub(cores.len() - open.len()));
    // If there is no other node, everything else needs cores too.
    let most = if readers.is_empty() || found.machine.nodes.len() > 1 { free } else { free / 2 };
    let queues: Vec<usize> = cards.iter().map(|card| receiving(found, wish, card).len()).collect();
    let count = queues.iter().sum::<usize>().min(most).max(1).min(open.len());
    let first = (open.len() - count) / 2;
    let index = cards.iter().position(|other| other.name == card.name).unwrap_or(0);
    share(&open[first..first + count], &queues, index)
}

/// The share of one card in the cores of several cards with these numbers of queues: each card gets one core while
/// there are any, then each with more queues another one. The shares are contiguous.
fn share(cores: &[u32], queues: &[usize], index: usize) -> Vec<u32> {
    let (mut shares, mut left) = (vec![0; queues.len()], cores.len());
    for turn in 0..queues.iter().max().copied().unwrap_or(0) {
        for (share, _) in shares.iter_mut().zip(queues).filter(|(_, queues)| **queues > turn) {
            let more = left.min(1);
            *share += more;
            left -= more;
        }
    }
    let first: usize = shares[..index].iter().sum();
    match shares[index] {
        // More cards than cores.
        0 => cores.get(index % cores.len().max(1)).copied().into_iter().collect(),
        share => cores[first..first + share].to_vec(),
    }
}

/// Whether some of these CPUs are on another node than the card.
fn are_far(found: &Found, card: &Card, cpus: &CpuList) -> bool {
    let node = card.node.and_then(|node| found.machine.node(node)).filter(|_| found.machine.nodes.len() > 1);
    node.is_some_and(|node| !cpus.is_within(&node.cpus))
}

/// How many cores some CPUs belong to.
fn cores_of(found: &Found, cpus: &CpuList) -> usize {
    found.machine.cores.iter().filter(|core| core.overlaps(cpus)).count()
}

/// The CPUs that take the interrupts of a card's receive queues when all is as advised.
fn interrupted(found: &Found, wish: &Wish, card: &Card) -> CpuList {
    let interrupts = receiving(found, wish, card);
    let (present, wanted) = (cpus_of(&interrupts), chosen(found, wish, card));
    let is_crowded = interrupts.len() > 1 && cores_of(found, &present) < wanted.len();
    if found.readers_of(card, wish) == 0 && !are_far(found, card, &present) && !is_crowded {
        return present;
    }
    let after = |(interrupt, cpu): (&&Interrupt, &u32)| match found.text(&file_of(interrupt)) {
        Some(_) => CpuList::from_iter([*cpu]),
        None => interrupt.cpus.clone(),
    };
    let after = interrupts.iter().zip(wanted.iter().cycle()).map(after);
    after.fold(CpuList::default(), |all, cpus| all.union(&cpus))
}

/// The CPUs that may process packets of a card: those near it without interrupts and reading threads that are not
/// isolated.
fn free_for_packets(found: &Found, wish: &Wish, card: &Card) -> CpuList {
    let (near, cards) = (near_cores(found, card), sharing(found, wish, card));
    let interrupted = cards.iter().fold(CpuList::default(), |all, card| all.union(&interrupted(found, wish, card)));
    let interrupted = found.machine.whole_cores(&interrupted);
    let free = outside(&near, &interrupted.union(&held(found, wish)));
    let mut open = not_set_apart(found, &free);
    // `placement = "auto"` takes cores that are set apart first, then the nearest to the interrupts.
    let readers = found.readers(&cards, wish);
    let automatic = readers.iter().filter(|reader| reader.placed == Placed::Automatic).count();
    let taking: Vec<usize> = (0..near.len()).filter(|&index| interrupted.contains(near[index])).collect();
    let place = |cpu: u32| near.iter().position(|&other| other == cpu).unwrap_or(0);
    let distance = |cpu: u32| taking.iter().map(|&index| index.abs_diff(place(cpu))).min().unwrap_or(0);
    let reading = automatic.saturating_sub(free.len() - open.len());
    open.sort_by_key(|&cpu| Reverse((distance(cpu), place(cpu))));
    open.truncate(open.len().saturating_sub(reading));
    open.into_iter().collect()
}

/// What becomes of the interrupts that a plan moves, where irqbalance runs and may move them, too.
pub fn moved_back(found: &Found, plan: &Plan) -> Option<String> {
    let number = process(found)?;
    let planned = plan.changes.iter().filter_map(|change| match &change.setting {
        Setting::File { path, .. } => path.strip_prefix("proc/irq/")?.split('/').next()?.parse::<u32>().ok(),
        Setting::Mtu { .. } | Setting::Card { .. } | Setting::Thread(_) => None,
    });
    let moved = CpuList::from_iter(planned).without(&Banned::read(found).interrupts);
    (!moved.is_empty()).then(|| {
        format!(
            "irqbalance runs as process {number} and moves interrupts {moved} again within seconds: stop it first \
             (`systemctl disable --now irqbalance`), or have it leave them alone (`--banirq`)"
        )
    })
}

/// The number of the process, if there is one.
fn process(found: &Found) -> Option<&str> {
    let (path, _) = found.each("proc/", "/comm").find(|(_, name)| *name == "irqbalance")?;
    path.strip_prefix("proc/")?.split('/').next()
}

/// The rule.
fn irqbalance(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "irqbalance";
    const FAST: u32 = 10_000;
    let Some(number) = process(found) else { return Ok(vec![Seen::good(SUBJECT, "does not run")]) };
    let Banned { cpus, interrupts } = Banned::read(found);
    let banned: Vec<String> = [("CPU", &cpus), ("interrupts", &interrupts)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(what, list)| format!("{what} {list} banned"))
        .collect();
    let banned = if banned.is_empty() { "no CPU banned".to_owned() } else { banned.join(", ") };
    let told = format!("runs as process {number}, with {banned}");
    let is_fast = |card: &&Card| card.megabits_per_second.is_some_and(|speed| speed >= FAST);
    let hardware = found.hardware(wish).into_iter();
    let taking: Vec<&Card> = hardware.filter(|card| found.readers_of(card, wish) > 0 || is_fast(card)).collect();
    if taking.is_empty() {
        return Ok(vec![Seen::good(SUBJECT, told)]);
    }
    let of_cards = taking.iter().flat_map(|card| receiving(found, wish, card)).map(|interrupt| interrupt.number);
    let (moved, coming) = (CpuList::from_iter(of_cards).without(&interrupts), held(found, wish).without(&cpus));
    let ways = [
        (!moved.is_empty()).then(|| format!("`--banirq` for {moved}")),
        (!coming.is_empty()).then(|| format!("`IRQBALANCE_BANNED_CPULIST` with CPU {coming}")),
    ];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    Ok(vec![if ways.is_empty() {
        Seen::good(SUBJECT, told)
    } else {
        let advised = format!("`systemctl disable --now irqbalance`, or ban from it: {}", ways.join(" and "));
        Seen::better(SUBJECT, told, advised)
    }])
}

/// What irqbalance leaves alone, as far as its files of settings say it.
#[derive(Default)]
struct Banned {
    /// To these CPUs no interrupts are moved.
    cpus: CpuList,
    /// These interrupts are not moved.
    interrupts: CpuList,
}

impl Banned {
    fn read(found: &Found) -> Self {
        let files = ["etc/default/irqbalance", "etc/sysconfig/irqbalance"];
        let lines = files.into_iter().filter_map(|path| found.text(path)).flat_map(str::lines);
        let mut banned = Self::default();
        for (key, value) in lines.filter_map(|line| line.trim().split_once('=')) {
            let value = value.trim().trim_matches(['"', '\'']);
            match key.trim_start_matches("export ").trim() {
                "IRQBALANCE_BANNED_CPULIST" => banned.cpus = value.parse().unwrap_or_default(),
                "IRQBALANCE_BANNED_CPUS" => banned.cpus = cpus_in(value),
                // Under which name the options stand is a matter of the distribution.
                key if !key.starts_with('#') => banned.interrupts = banned.interrupts.union(&banned_interrupts(value)),
                _ => {}
            }
        }
        banned
    }
}

/// The interrupts of `--banirq=N`, `--banirq N`, `-i N` and `-iN` among options.
fn banned_interrupts(options: &str) -> CpuList {
    let (mut banned, mut words) = (Vec::new(), options.split([' ', '\t', '=']));
    while let Some(word) = words.next() {
        let number = if ["-i", "--banirq"].contains(&word) { words.next() } else { word.strip_prefix("-i") };
        banned.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    banned.into_iter().collect()
}

/// The CPUs of a mask, which may have commas in it.
fn cpus_in(mask: &str) -> CpuList {
    let digits = mask.trim_start_matches("0x").chars().rev().filter(|letter| *letter != ',');
    let cpus = (0..).zip(digits).flat_map(|(place, letter): (u32, char)| {
        let digit = letter.to_digit(16).unwrap_or(0);
        (0..4).filter(move |bit| (digit >> bit) & 1 == 1).map(move |bit| place * 4 + bit)
    });
    cpus.collect()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn cores_are_shared_out_by_queues() {
        let shares = |cores: &[u32], queues: &[usize]| -> Vec<Vec<u32>> {
            (0..queues.len()).map(|index| share(cores, queues, index)).collect()
        };
        assert_eq!(shares(&[5, 6], &[2, 4]), [[5], [6]]);
        assert_eq!(shares(&[4, 5, 6, 7], &[1, 4]), [vec![4], vec![5, 6, 7]]);
        assert_eq!(shares(&[4], &[1, 4]), [[4], [4]], "there is one for both");
        assert_eq!(shares(&[4, 5], &[1, 1, 1]), [[4], [5], [4]]);
        assert_eq!(shares(&[4], &[0]), [[4]], "its interrupts are not known");
    }
}
