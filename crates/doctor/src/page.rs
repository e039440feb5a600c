//! The diagnosis as a page of text.

use crate::Diagnosis;
use ropewalk_host::{CardKind, Machine, Picture, Plan};
use ropewalk_terms::counted;
use ropewalk_tune::{Finding, Grade};
use std::fmt;

/// A machine in a few lines.
pub(crate) fn described(machine: &Machine) -> Vec<String> {
    let memory: u64 = machine.nodes.iter().filter_map(|node| node.memory_bytes).sum();
    let mut lines = vec![format!(
        "{}, Linux {}: {}, {}, {}, {:.0} GiB of memory",
        machine.cpu_model.as_deref().unwrap_or("an unknown processor"),
        machine.kernel,
        counted(machine.sockets.len(), "socket"),
        counted(machine.cores.len(), "core"),
        counted(machine.nodes.len(), "NUMA node"),
        memory as f64 / (1u64 << 30) as f64
    )];
    if machine.permitted != machine.online {
        lines.push(format!("this process may use CPUs {} of {}", machine.permitted, machine.online));
    }
    for card in machine.cards.iter().filter(|card| card.kind == CardKind::Physical) {
        let speed = card
            .megabits_per_second
            .map_or_else(|| "speed unknown".to_owned(), |speed| format!("{} Gb/s", f64::from(speed) / 1e3));
        let node = card.node.map_or_else(|| "node unknown".to_owned(), |node| format!("node {node}"));
        let (driver, queues) = (card.driver.as_deref().unwrap_or("?"), counted(card.receive_queues, "receive queue"));
        let state = if card.is_up { "up" } else { "down" };
        lines.push(format!("{}: {state}, {driver}, {speed}, {queues}, {node}", card.name));
    }
    lines
}

/// The lines of `ropewalk topology`, without what [`described`] already contains.
pub(crate) fn topology(machine: &Machine) -> Vec<String> {
    let picture = Picture { machine, plan: &Plan::default() }.to_string();
    picture.lines().skip(1).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The findings that are not good, the worst first.
pub(crate) fn ordered(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(|finding| finding.grade >= Grade::CouldBeBetter);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    findings
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out, "\nWhere everything is (ropewalk topology)")?;
        self.topology.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\nWhat the kernel can do for it")?;
        for feature in &self.features {
            let there = if feature.is_there { "yes" } else { "no" };
            writeln!(out, "  {:<24} {there:<4} {}", feature.name, feature.remark)?;
        }
        self.figures(out)?;
        self.settings(out)?;
        let Some(verdict) = &self.verdict else { return Ok(()) };
        writeln!(out, "\nWhat this machine can do with Ropewalk")?;
        verdict.can_do.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\nWhat limits it\n  {}", verdict.why)?;
        writeln!(out, "\nWhat to change first")?;
        if verdict.change_first.is_empty() {
            writeln!(out, "  nothing that is known here would help")?;
        }
        verdict.change_first.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\n{}", verdict.not_shown)
    }
}

impl Diagnosis {
    fn figures(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(measured) = &self.measured else { return Ok(()) };
        writeln!(out, "\nWhat was measured")?;
        let mut line = |name: &str, text: String| writeln!(out, "  {name:<24} {text}");
        line("two CPUs do", format!("{:.2} times what one does", measured.two_cpus_do))?;
        line("waking a thread", format!("{:.1} us", measured.wake_up_us))?;
        line("memory", format!("{:.1} GB/s copied, {:.1} GB/s read", measured.memory_copy, measured.memory_scan))?;
        line("TCP over loopback", format!("{:.2} GB/s, one connection, 64 KiB a send", measured.loopback))?;
        let (rate, kept) = (measured.datagrams / 1e6, measured.datagrams_kept * 100.0);
        line("datagrams of 1 KiB", format!("{rate:.2} million a second sent by one thread, {kept:.1} % received"))?;
        line("disk", format!("{:.2} GB/s; a record is safe after {:.2} ms", measured.disk, measured.disk_sync_ms))?;
        if let Some(says) = &measured.disk_says {
            line("", says.clone())?;
        }
        let Some((direct, buffered)) = measured.disk_direct.zip(measured.disk_buffered) else { return Ok(()) };
        line("", format!("a short probe: {direct:.2} GB/s past the page cache, {buffered:.2} GB/s through it"))
    }

    fn settings(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |grade| self.findings.iter().filter(|finding| finding.grade == grade).count();
        let (harmful, better) = (count(Grade::Harmful), count(Grade::CouldBeBetter));
        writeln!(out, "\nSettings (ropewalk tune check): {harmful} harmful, {better} could be better")?;
        for finding in &self.findings {
            let grade = if finding.grade == Grade::Harmful { "harmful" } else { "better" };
            writeln!(out, "  {grade:<8} {}: {} -> {}", finding.subject, finding.found, finding.advised)?;
        }
        Ok(())
    }
}
