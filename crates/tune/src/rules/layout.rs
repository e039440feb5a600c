//! Which cores of a node take the interrupts of the cards that feed, and which are left to threads.
//!
//! ```text
//!   the cards' node:   | reads | interrupts of eth0 | interrupts of eth1 | reads |
//! ```
//!
//! Cores that rules give to threads that read are left out first, wherever they are. The middle of the rest takes the
//! interrupts, so much of it that each other thread that reads has a core, too; cards with the same node share it.

use std::cmp::Reverse;

use ropewalk_host::{Card, CpuList, Interrupt, InterruptTask};

use crate::found::Found;
use crate::{Placed, Wish};

/// The interrupts of a card, but for those that belong to one that feeds, too: interfaces of one function have the same
/// ones, where the driver does not name them by interface.
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
pub(super) fn cpus_of(interrupts: &[&Interrupt]) -> CpuList {
    interrupts.iter().flat_map(|interrupt| interrupt.cpus.iter()).collect()
}

/// The file by which an interrupt is moved.
pub(super) fn file_of(interrupt: &Interrupt) -> String {
    format!("proc/irq/{}/smp_affinity_list", interrupt.number)
}

/// The first CPU of each core of a card's node that this process may use; of all nodes where the card's is not known.
pub(super) fn near_cores(found: &Found, card: &Card) -> Vec<u32> {
    let node = card.node.and_then(|node| found.machine.node(node));
    let cores = found.machine.cores.iter().filter(|core| node.is_none_or(|node| node.cpus.overlaps(core)));
    cores.filter_map(|core| core.intersection(&found.machine.permitted).first()).collect()
}

/// The CPUs on which no timer ticks while one thread runs.
pub(super) fn tickless(found: &Found) -> CpuList {
    let text = found.text("sys/devices/system/cpu/nohz_full");
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Those of some CPUs whose cores nobody keeps for threads that are put there: `placement = "auto"` reads on isolated
/// ones, and to neither these nor those without a tick does the kernel hand packets over.
pub(super) fn not_set_apart(found: &Found, cpus: &[u32]) -> Vec<u32> {
    outside(cpus, &found.machine.whole_cores(&found.machine.isolated.union(&tickless(found))))
}

fn outside(cpus: &[u32], others: &CpuList) -> Vec<u32> {
    cpus.iter().copied().filter(|&cpu| !others.contains(cpu)).collect()
}

/// The cores, whole, that rules give to threads that read, whatever card it is.
pub(super) fn held(found: &Found, wish: &Wish) -> CpuList {
    let by_rule = wish.feeding.iter().filter_map(|feeding| match &feeding.placed {
        Placed::Rule(cpus) => Some(cpus),
        Placed::Nobody | Placed::Automatic => None,
    });
    found.machine.whole_cores(&by_rule.flat_map(CpuList::iter).collect())
}

/// The cards that feed from the same cores as a card, itself among them; itself alone where it does not feed.
fn sharing<'a>(found: &'a Found, wish: &Wish, card: &'a Card) -> Vec<&'a Card> {
    let feeds = |card: &&Card| found.readers_of(card, wish) > 0;
    if !feeds(&card) {
        return vec![card];
    }
    let near = near_cores(found, card);
    let feeding = found.hardware(wish).into_iter().filter(feeds);
    feeding.filter(|other| near_cores(found, other) == near).collect()
}

/// The cores that a card's queues interrupt: its share of those in the middle of its node, which are so many that each
/// reading thread keeps one.
pub(super) fn chosen(found: &Found, wish: &Wish, card: &Card) -> Vec<u32> {
    let (near, cards) = (near_cores(found, card), sharing(found, wish, card));
    let free_of_rules = outside(&near, &held(found, wish));
    // Where rules spread threads over the whole node, all is shared all the same.
    let (cores, is_held) = if free_of_rules.is_empty() { (near, false) } else { (free_of_rules, true) };
    let open = not_set_apart(found, &cores);
    // A node that is set apart as a whole is still nearer than another one.
    let open = if open.is_empty() { cores.clone() } else { open };
    let readers = found.readers(&cards, wish);
    let needing = readers.iter().filter(|reader| !is_held || !matches!(reader.placed, Placed::Rule(_))).count();
    let free = open.len().saturating_sub(needing.saturating_sub(cores.len() - open.len()));
    // Where there is no other node, everything else that runs needs cores, too.
    let most = if readers.is_empty() || found.machine.nodes.len() > 1 { free } else { free / 2 };
    let queues: Vec<usize> = cards.iter().map(|card| receiving(found, wish, card).len()).collect();
    let count = queues.iter().sum::<usize>().min(most).max(1).min(open.len());
    let first = (open.len() - count) / 2;
    let index = cards.iter().position(|other| other.name == card.name).unwrap_or(0);
    share(&open[first..first + count], &queues, index)
}

/// The cores of one card, of those that some cards with so many queues share: each gets one as long as there are any, then
/// each with more queues another one, and stretches do not mix.
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
pub(super) fn are_far(found: &Found, card: &Card, cpus: &CpuList) -> bool {
    let node = card.node.and_then(|node| found.machine.node(node)).filter(|_| found.machine.nodes.len() > 1);
    node.is_some_and(|node| !cpus.is_within(&node.cpus))
}

/// How many cores some CPUs belong to.
pub(super) fn cores_of(found: &Found, cpus: &CpuList) -> usize {
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

/// The CPUs to which packets of a card may be handed over: those near it that neither take interrupts, nor are set apart,
/// nor are those of threads that read.
pub(super) fn free_for_packets(found: &Found, wish: &Wish, card: &Card) -> CpuList {
    let (near, cards) = (near_cores(found, card), sharing(found, wish, card));
    let interrupted = cards.iter().fold(CpuList::default(), |all, card| all.union(&interrupted(found, wish, card)));
    let interrupted = found.machine.whole_cores(&interrupted);
    let free = outside(&near, &interrupted.union(&held(found, wish)));
    let mut open = not_set_apart(found, &free);
    // `placement = "auto"` takes those that are set apart, then the nearest to the interrupts.
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
