//! The machine and what is placed on it, as a picture in text.
//!
//! ```text
//! socket 1, node 1: 16.0 GiB, L3 20.0 MiB
//!   core 8-9    CPU 8-9,24-25
//!   core 10     CPU 10,26            ru0
//!   core 11     CPU 11,27            interrupts of eth2
//!   core 12     CPU 12,28            ru1
//!   core 13-15  CPU 13-15,29-31
//!   memory      ru0-fragments, ru1-fragments
//!   card eth2   mlx4_core, up, 40 Gb/s, 1 receive queue: interrupt 84 to CPU 11
//! ```

use std::fmt;

use crate::card::{Card, CardKind, InterruptTask};
use crate::placement::{Kind, Plan};
use crate::{CpuList, Machine};

/// A machine and a plan, to be shown side by side.
#[derive(Debug)]
pub struct Picture<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What is placed on it.
    pub plan: &'a Plan,
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(out)?;
        for node in &self.machine.nodes {
            writeln!(out)?;
            self.node(out, node.number)?;
        }
        let nowhere = |card: &&Card| self.node_of_card(card).is_none();
        let mut elsewhere = self.machine.cards.iter().filter(nowhere).peekable();
        if elsewhere.peek().is_some() {
            writeln!(out, "\non no node in particular")?;
        }
        elsewhere.try_for_each(|card| writeln!(out, "  {}", described_card(card)))?;
        self.without_place(out)
    }
}

impl Picture<'_> {
    fn heading(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine;
        let model = machine.cpu_model.as_deref().unwrap_or("a processor without a name");
        let counts = [
            counted(machine.sockets.len(), "socket"),
            counted(machine.nodes.len(), "NUMA node"),
            counted(machine.cores.len(), "core"),
            counted(machine.online.len(), "CPU"),
        ];
        writeln!(out, "Linux {}, {model}: {}", machine.kernel, counts.join(", "))?;
        if !machine.offline.is_empty() {
            writeln!(out, "switched off: CPU {}", machine.offline)?;
        }
        if !machine.isolated.is_empty() {
            writeln!(out, "isolated: CPU {}", machine.isolated)?;
        }
        if machine.permitted != machine.online {
            writeln!(out, "this process may run on: CPU {}", machine.permitted)?;
        }
        let pages =
            |pages: &crate::HugePages| format!("{} of {} ({} free)", pages.total, bytes(pages.page_bytes), pages.free);
        let reserved = machine.huge_pages.iter().filter(|pages| pages.total > 0).map(pages).collect::<Vec<_>>();
        if !reserved.is_empty() {
            writeln!(out, "huge pages: {}", reserved.join(", "))?;
        }
        Ok(())
    }

    fn node(&self, out: &mut fmt::Formatter<'_>, number: u32) -> fmt::Result {
        let machine = self.machine;
        let Some(node) = machine.node(number) else { return Ok(()) };
        let sockets = machine.sockets.iter().filter(|socket| socket.cpus.overlaps(&node.cpus));
        let mut words: Vec<String> = sockets.map(|socket| format!("socket {}", socket.number)).collect();
        words.push(format!("node {number}"));
        let mut details: Vec<String> = node.memory_bytes.map(bytes).into_iter().collect();
        details.extend(self.caches(&node.cpus));
        if !node.is_allowed {
            details.push("no memory for this process".to_owned());
        }
        let colon = if details.is_empty() { "" } else { ": " };
        writeln!(out, "{}{colon}{}", words.join(", "), details.join(", "))?;
        self.cores(out, &node.cpus)?;
        let pools = self.plan.placements.iter().filter(|one| one.kind == Kind::Pool && one.node == Some(number));
        let pools: Vec<&str> = pools.map(|one| one.name.as_str()).collect();
        if !pools.is_empty() {
            writeln!(out, "  memory      {}", pools.join(", "))?;
        }
        let cards = machine.cards.iter().filter(|card| self.node_of_card(card) == Some(number));
        cards.into_iter().try_for_each(|card| writeln!(out, "  {}", described_card(card)))
    }

    /// The outermost caches of these CPUs: `L3 20.0 MiB`, `4 L3 of 16.0 MiB`.
    fn caches(&self, cpus: &CpuList) -> Option<String> {
        let here = || self.machine.caches.iter().filter(|cache| cache.cpus.overlaps(cpus));
        let level = here().map(|cache| cache.level).max().filter(|&level| level > 1)?;
        let outermost: Vec<u64> = here().filter(|cache| cache.level == level).map(|cache| cache.bytes).collect();
        let size = bytes(*outermost.first()?);
        Some(match outermost.len() {
            1 => format!("L{level} {size}"),
            several => format!("{several} L{level} of {size}"),
        })
    }

    /// One line for each core, or for several neighbours with the same text.
    fn cores(&self, out: &mut fmt::Formatter<'_>, cpus: &CpuList) -> fmt::Result {
        let cores = self.machine.cores.iter().enumerate().filter(|(_, core)| core.overlaps(cpus));
        let cores: Vec<(usize, &CpuList, String)> =
            cores.map(|(index, core)| (index, core, self.on_core(core))).collect();
        for alike in cores.chunk_by(|one, next| one.0 + 1 == next.0 && one.2 == next.2) {
            let indices: CpuList = alike.iter().map(|(index, ..)| *index as u32).collect();
            let cpus: CpuList = alike.iter().flat_map(|(_, core, _)| core.iter()).collect();
            let line = format!("  core {indices:<6} CPU {cpus:<16} {}", alike[0].2);
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// What happens on a core: threads placed there, interrupts, and what is special about it.
    fn on_core(&self, core: &CpuList) -> String {
        let threads = self.plan.placements.iter().filter(|one| one.kind == Kind::Thread && one.is_placed());
        let mut words: Vec<String> =
            threads.filter(|one| one.cpus.overlaps(core)).map(|one| one.name.clone()).collect();
        for card in self.machine.cards.iter().filter(|card| card.receive_cpus().overlaps(core)) {
            words.push(format!("interrupts of {}", card.name));
        }
        if core.overlaps(&self.machine.isolated) {
            words.push("(isolated)".to_owned());
        }
        if !core.overlaps(&self.machine.permitted) {
            words.push("(not for this process)".to_owned());
        }
        words.join(", ")
    }

    /// The node of a card; hardware of a machine with one node is on that.
    fn node_of_card(&self, card: &Card) -> Option<u32> {
        let only = self.machine.nodes.first().filter(|_| self.machine.nodes.len() == 1);
        let only = only.filter(|_| card.kind == CardKind::Physical).map(|node| node.number);
        card.node.filter(|&node| self.machine.node(node).is_some()).or(only)
    }

    /// The threads and pools that the kernel places.
    fn without_place(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in [Kind::Thread, Kind::Pool] {
            let open = |one: &&crate::Placement| {
                one.kind == kind && (!one.is_placed() || kind == Kind::Pool && one.node.is_none())
            };
            let open: Vec<&str> = self.plan.placements.iter().filter(open).map(|one| one.name.as_str()).collect();
            if !open.is_empty() {
                writeln!(out, "\n{kind}s that go where the kernel puts them: {}", open.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A card in a line, its interrupts in the order of their numbers.
fn described_card(card: &Card) -> String {
    let mut words: Vec<String> = card.driver.iter().cloned().collect();
    match card.kind {
        CardKind::Physical => {}
        CardKind::Loopback => words.push("this machine itself".to_owned()),
        CardKind::Virtual if card.lower.is_empty() => words.push("no hardware".to_owned()),
        CardKind::Virtual => words.push(format!("made of {}", card.lower.join(" and "))),
    }
    words.push(if card.is_up { "up" } else { "down" }.to_owned());
    words.extend(card.megabits_per_second.map(speed));
    if card.kind == CardKind::Physical {
        words.push(counted(card.receive_queues, "receive queue"));
    }
    let taken = |task| {
        let of_task = card.interrupts.iter().filter(move |interrupt| interrupt.task == task);
        of_task.map(|interrupt| format!("{} to CPU {}", interrupt.number, interrupt.cpus))
    };
    let receiving: Vec<String> = taken(InterruptTask::Receive).collect();
    let interrupts = match receiving.len() {
        0 => String::new(),
        1 => format!(": interrupt {}", receiving[0]),
        _ => format!(": interrupts {}", receiving.join(", ")),
    };
    format!("card {:<6} {}{interrupts}", card.name, words.join(", "))
}

/// `40 Gb/s`.
fn speed(megabits: u32) -> String {
    if megabits.is_multiple_of(1000) { format!("{} Gb/s", megabits / 1000) } else { format!("{megabits} Mb/s") }
}

/// `16.0 GiB`.
fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0x4000_0000.. => (1 << 30, "GiB"),
        0x10_0000.. => (1 << 20, "MiB"),
        _ => (1 << 10, "KiB"),
    };
    format!("{:.1} {name}", bytes as f64 / f64::from(unit))
}

/// `1 core`, `2 cores`.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
