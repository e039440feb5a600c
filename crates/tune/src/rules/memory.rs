//! Huge pages, nodes, swapping.

use std::collections::BTreeMap;

use super::{Rule, Seen, bytes};
use crate::found::{Found, Unread, kibibytes_of};
use crate::{Form, Grade, Group, Setting, Sureness, Wish};

/// Rules on memory.
pub(super) const MEMORY: &[Rule] = &[
    Rule {
        name: "huge_pages",
        group: Group::Memory,
        what: "Pages of 2 MiB that are reserved on each node. As many as the pools of the configuration take there: where rules \
               (`[[pool]]`) and `placement = \"auto\"` put them, or on the node of the card that feeds.",
        why: "With small pages the processor looks up a page for each 4 KiB, and the first touch of each costs a fault. \
              Paper 1 saw the same in 2005.",
        source: "paper 1, III-B; the kernel's admin-guide/mm/hugetlbpage.rst; measured with Ropewalk",
        worth: "scanning 1 GiB: 23 GB/s with small pages, 41 with huge ones; copying: 12.6 and 20.7; `ropewalk bench \
               felix --case figure=8` has both",
        sureness: Sureness::Measured,
        look: huge_pages,
    },
    Rule {
        name: "gigantic_pages",
        group: Group::Memory,
        what: "Pages of 1 GiB that are reserved. None: pools take those of 2 MiB.",
        why: "What is reserved so is lost to everything else; in steps of 2 MiB the lookups are seldom enough.",
        source: "the kernel's admin-guide/mm/hugetlbpage.rst",
        worth: "the memory itself; no bench of Ropewalk shows it: it is what /proc/meminfo has less",
        sureness: Sureness::Documented,
        look: gigantic_pages,
    },
    Rule {
        name: "transparent_huge_pages",
        group: Group::Memory,
        what: "Whether the kernel makes huge pages by itself (`transparent_hugepage/enabled`): `madvise` or `always`, not \
               `never`. Whether it stops a thread to make them (`defrag`): not `always`.",
        why: "Where no huge pages are reserved, pools ask for these. To make one while a thread waits takes up to some \
              milliseconds.",
        source: "the kernel's admin-guide/mm/transhuge.rst; measured with Ropewalk",
        worth: "scanning 1 GiB: 23 GB/s with small pages, 27 with transparent huge ones; random reads 493 and 170 ns; \
               `ropewalk bench felix --case figure=8` has small pages and huge ones, transparent where none are \
               reserved",
        sureness: Sureness::Measured,
        look: transparent_huge_pages,
    },
    Rule {
        name: "numa_memory",
        group: Group::Memory,
        what: "Free memory of each node, against the pools of the configuration that lie there. More, by a tenth.",
        why: "What a node lacks comes from another one without a word, and every packet then crosses the sockets.",
        source: "paper 3, IV-B and Fig. 9; numa(7)",
        worth: "as `interrupt_node`; no bench of Ropewalk shows it: it takes two nodes (paper 3, Fig. 7)",
        sureness: Sureness::Documented,
        look: numa_memory,
    },
    Rule {
        name: "zone_reclaim",
        group: Group::Memory,
        what: "`vm.zone_reclaim_mode`, whether a node that is full throws out cached files before it takes memory of another \
               node. 0.",
        why: "A thread that needs memory then waits for the disk, although there is free memory.",
        source: "the kernel's admin-guide/sysctl/vm.rst",
        worth: "no pauses of milliseconds while files are written; no bench of Ropewalk shows it: it takes a node \
               that is full (admin-guide/sysctl/vm.rst)",
        sureness: Sureness::Documented,
        look: zone_reclaim,
    },
    Rule {
        name: "swappiness",
        group: Group::Memory,
        what: "`vm.swappiness`, how readily the kernel swaps memory out for cached files, on machines with swap. 10 at most.",
        why: "Run files fill the cache as fast as they are written; pools that are quiet for a while would go to the disk.",
        source: "the kernel's admin-guide/sysctl/vm.rst",
        worth: "no event waits for a page from the disk; no bench of Ropewalk shows it: it takes a machine whose \
               memory is full (admin-guide/sysctl/vm.rst)",
        sureness: Sureness::Documented,
        look: swappiness,
    },
];

const HUGE: u64 = 2 << 20;

/// The node that receives data, if there is one; otherwise the only node.
fn feeding_node(found: &Found, wish: &Wish) -> Option<u32> {
    let feeding = found.hardware(wish).into_iter().filter(|card| found.readers_of(card, wish) > 0);
    let of_card = feeding.filter_map(|card| card.node).next();
    of_card.or_else(|| (found.machine.nodes.len() == 1).then(|| found.machine.nodes[0].number))
}

/// The memory of the configuration's pools on each node, in bytes; unplaced memory counts for the first receiving node.
fn memory_of_nodes(found: &Found, wish: &Wish) -> BTreeMap<u32, u64> {
    let placed = wish.memory_by_node.iter().filter(|(node, _)| found.machine.node(**node).is_some());
    let mut nodes: BTreeMap<u32, u64> = placed.map(|(node, bytes)| (*node, *bytes)).collect();
    let placed = nodes.values().copied().fold(0, u64::saturating_add);
    let rest = wish.memory_bytes.saturating_sub(placed);
    if let Some(node) = feeding_node(found, wish).filter(|_| rest > 0) {
        let share = nodes.entry(node).or_default();
        *share = share.saturating_add(rest);
    }
    nodes.retain(|_, bytes| *bytes > 0);
    nodes
}

fn node_text(found: &Found, node: u32) -> &str {
    found.text(&format!("sys/devices/system/node/node{node}/meminfo")).unwrap_or_default()
}

fn pages_of_node(node: u32, size: &str) -> String {
    format!("sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages")
}

/// The number of pages of a size as text, with those of each node if there are several.
fn told_by_node(found: &Found, total: u64, size: &str) -> String {
    let one = |node: u32| Some(format!("{} on node {node}", found.number(&pages_of_node(node, size))?));
    let nodes: Vec<String> = found.machine.nodes.iter().filter_map(|node| one(node.number)).collect();
    if nodes.len() > 1 { format!("{total}: {}", nodes.join(", ")) } else { total.to_string() }
}

fn huge_pages(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let nodes = memory_of_nodes(found, wish);
    if !nodes.is_empty() {
        return nodes.into_iter().map(|(node, bytes)| huge_pages_of(found, node, bytes)).collect();
    }
    let all = found.machine.huge_pages.iter().find(|pages| pages.page_bytes == HUGE).map_or(0, |pages| pages.total);
    let (subject, told) = ("huge pages of 2 MiB", told_by_node(found, all, "2048kB"));
    Ok(vec![if all > 0 && all >= wish.memory_bytes.div_ceil(HUGE) {
        Seen::good(subject, told)
    } else {
        Seen::told(subject, told, "as many as the configuration's pools take")
    }])
}

fn huge_pages_of(found: &Found, node: u32, wanted_bytes: u64) -> Result<Seen, Unread> {
    let (wanted, path) = (wanted_bytes.div_ceil(HUGE), pages_of_node(node, "2048kB"));
    let subject = format!("huge pages of 2 MiB on node {node}");
    let present = found.number(&path).ok_or_else(|| Unread(format!("/{path}")))?;
    if present >= wanted {
        return Ok(Seen::good(subject, present.to_string()));
    }
    let free = kibibytes_of(node_text(found, node), "MemFree").unwrap_or(0);
    let more = (wanted - present).saturating_mul(HUGE);
    // What is in use cannot be reserved, and the rest of the machine needs some memory, too.
    Ok(if more > free / 10 * 9 {
        let advised = format!("{wanted}, for which there is no memory: {} are free", bytes(free));
        Seen::better(subject, present.to_string(), advised)
    } else {
        let setting = Setting::File { path, form: Form::Plain };
        let seen = Seen::better(subject, present.to_string(), wanted.to_string());
        seen.change(setting, present.to_string(), wanted.to_string())
    })
}

fn gigantic_pages(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "huge pages of 1 GiB";
    let pages = found.machine.huge_pages.iter().find(|pages| pages.page_bytes == 1 << 30);
    Ok(vec![match pages.map_or(0, |pages| pages.total) {
        0 => Seen::good(SUBJECT, "0"),
        total => Seen::told(SUBJECT, told_by_node(found, total, "1048576kB"), "0, unless another program uses them"),
    }])
}

fn transparent_huge_pages(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const DIRECTORY: &str = "sys/kernel/mm/transparent_hugepage";
    let chosen = |text: &str| text.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
    let mut seen = Vec::new();
    for (file, bad, wanted) in [("enabled", "never", "madvise"), ("defrag", "always", "madvise")] {
        let path = format!("{DIRECTORY}/{file}");
        let text = found.must(&path)?;
        let (present, subject) = (chosen(text), format!("transparent huge pages: {file}"));
        if present.is_empty() {
            return Err(Unread(format!("/{path}")));
        }
        seen.push(if present == bad {
            let setting = Setting::File { path, form: Form::Choice };
            Seen::better(subject, present, wanted).change(setting, text, wanted)
        } else {
            Seen::good(subject, present)
        });
    }
    Ok(seen)
}

fn numa_memory(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    memory_of_nodes(found, wish).into_iter().map(|(node, bytes)| memory_of(found, node, bytes)).collect()
}

fn memory_of(found: &Found, node: u32, wanted_bytes: u64) -> Result<Seen, Unread> {
    let subject = format!("memory of node {node}");
    let text = node_text(found, node);
    let free = kibibytes_of(text, "MemFree").ok_or_else(|| Unread(subject.clone()))?;
    // Cached files are thrown out when the memory is wanted; reserved huge pages are not free, and are for pools.
    let cached = kibibytes_of(text, "FilePages").unwrap_or(0);
    let reserved = found.number(&pages_of_node(node, "2048kB")).unwrap_or(0);
    let there = free.saturating_add(cached).saturating_add(reserved.saturating_mul(HUGE));
    let wanted = wanted_bytes.saturating_add(wanted_bytes / 10);
    let told = format!("{} free or cached", bytes(there));
    Ok(if there >= wanted {
        Seen::good(subject, told)
    } else {
        Seen::harmful(subject, told, format!("{}, or smaller pools", bytes(wanted)))
    })
}

fn zone_reclaim(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "vm.zone_reclaim_mode";
    Ok(vec![match found.sysctl(NAME)? {
        0 => Seen::good(NAME, "0"),
        present => Seen::sysctl(Grade::CouldBeBetter, NAME, present, 0),
    }])
}

fn swappiness(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "vm.swappiness";
    const MOST: i64 = 10;
    let has_swap = found.text("proc/swaps").is_some_and(|text| text.lines().count() > 1);
    let present = found.sysctl(NAME)?;
    Ok(vec![if present <= MOST || !has_swap {
        Seen::good(NAME, if has_swap { present.to_string() } else { format!("{present}; there is no swap") })
    } else {
        Seen::sysctl(Grade::CouldBeBetter, NAME, present, MOST)
    }])
}
