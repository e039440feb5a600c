//! What /proc and /sys say about the machine.

use std::io;
use std::path::{Path, PathBuf};

use crate::{CpuList, CpuListError};

/// The machine as found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The kernel's version, for example `6.1.0-18-amd64`.
    pub kernel: String,
    /// The CPU's model, where /proc/cpuinfo tells it (x86 does, most others do not).
    pub cpu_model: Option<String>,
    /// The CPUs that are switched on.
    pub online: CpuList,
    /// The online CPUs that this process may run on (a container or `taskset` may have taken some away).
    pub allowed: CpuList,
    /// The physical cores: for each, the hardware threads (logical CPUs) that share it. In order of their first CPU.
    pub cores: Vec<CpuList>,
    /// The NUMA nodes, ascending; one node 0 with every CPU where the kernel has no notion of nodes.
    pub nodes: Vec<Node>,
    /// Reserved huge pages, smallest size first.
    pub huge_pages: Vec<HugePages>,
    /// When the kernel makes huge pages by itself.
    pub transparent_huge_pages: TransparentHugePages,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its online CPUs; none for a node that has memory alone.
    pub cpus: CpuList,
}

/// The reserved huge pages of one size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HugePages {
    /// The size of a page in bytes.
    pub page_bytes: u64,
    /// Pages reserved.
    pub total: u64,
    /// Pages that nobody uses yet.
    pub free: u64,
}

/// When the kernel makes huge pages by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TransparentHugePages {
    /// For every large mapping.
    Always,
    /// For mappings that ask for it.
    Advised,
    /// Not at all, or the kernel cannot.
    Never,
}

/// Why the machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file that every Linux has is not there or cannot be read.
    #[error("cannot read {}: {source}; are /proc and /sys mounted?", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file says something that is no list of CPUs.
    #[error("{}: {source}", path.display())]
    NoCpuList {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: CpuListError,
    },
}

impl Machine {
    /// Reads the machine whose `proc` and `sys` are in `root`: `/` for the one that runs this.
    ///
    /// # Errors
    /// When the list of online CPUs or the kernel's version cannot be read. Everything else has a meaning
    /// when it is missing: no NUMA, no hyper-threads, no huge pages.
    pub fn read(root: &Path) -> Result<Self, MachineError> {
        let cpu = root.join("sys/devices/system/cpu");
        let online = cpu_list(&cpu.join("online"))?;
        let allowed =
            allowed(&root.join("proc/self/status"))?.map_or(online.clone(), |list| list.intersection(&online));
        Ok(Self {
            kernel: text(&root.join("proc/sys/kernel/osrelease"))?,
            cpu_model: field(&root.join("proc/cpuinfo"), "model name"),
            cores: cores(&cpu, &online)?,
            nodes: nodes(&root.join("sys/devices/system/node"), &online)?,
            huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
            transparent_huge_pages: transparent_huge_pages(&root.join("sys/kernel/mm/transparent_hugepage/enabled")),
            online,
            allowed,
        })
    }

    /// The hardware threads of the core that `cpu` belongs to, `cpu` included; none where `cpu` is not online.
    pub fn siblings(&self, cpu: u32) -> Option<&CpuList> {
        self.cores.iter().find(|core| core.contains(cpu))
    }

    /// The node of `cpu`, where it is online.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.number)
    }

    /// The node with this number.
    pub fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// Whether some core runs more than one hardware thread.
    pub fn has_hardware_threads(&self) -> bool {
        self.cores.iter().any(|core| core.len() > 1)
    }
}

fn text(path: &Path) -> Result<String, MachineError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(MachineError::Unreadable { path: path.to_owned(), source }),
    }
}

fn cpu_list(path: &Path) -> Result<CpuList, MachineError> {
    text(path)?.parse().map_err(|source| MachineError::NoCpuList { path: path.to_owned(), source })
}

/// The value of the first line `name : value`.
fn field(path: &Path, name: &str) -> Option<String> {
    let text = text(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn allowed(status: &Path) -> Result<Option<CpuList>, MachineError> {
    let Some(list) = field(status, "Cpus_allowed_list") else { return Ok(None) };
    list.parse().map(Some).map_err(|source| MachineError::NoCpuList { path: status.to_owned(), source })
}

fn cores(cpu: &Path, online: &CpuList) -> Result<Vec<CpuList>, MachineError> {
    let mut cores: Vec<CpuList> = Vec::new();
    for number in online.iter() {
        if cores.iter().any(|core| core.contains(number)) {
            continue;
        }
        let siblings = cpu.join(format!("cpu{number}/topology/thread_siblings_list"));
        let core = if siblings.exists() { cpu_list(&siblings)?.intersection(online) } else { CpuList::default() };
        // A kernel without topology, or a list that leaves out its own CPU, means a core of its own.
        cores.push(if core.contains(number) { core } else { [number].into_iter().collect() });
    }
    Ok(cores)
}

fn nodes(directory: &Path, online: &CpuList) -> Result<Vec<Node>, MachineError> {
    if !directory.join("online").exists() {
        return Ok(vec![Node { number: 0, cpus: online.clone() }]);
    }
    let numbers = cpu_list(&directory.join("online"))?;
    let cpus = |number| Ok(cpu_list(&directory.join(format!("node{number}/cpulist")))?.intersection(online));
    numbers.iter().map(|number| Ok(Node { number, cpus: cpus(number)? })).collect()
}

fn huge_pages(directory: &Path) -> Vec<HugePages> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sizes: Vec<HugePages> = entries.filter_map(|entry| huge_pages_of_one_size(&entry.path())).collect();
    sizes.sort_by_key(|pages| pages.page_bytes);
    sizes
}

/// Reads a directory such as `hugepages-2048kB`.
fn huge_pages_of_one_size(directory: &Path) -> Option<HugePages> {
    let kibibytes: u64 =
        directory.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let number = |name: &str| text(&directory.join(name)).ok()?.parse().ok();
    Some(HugePages {
        page_bytes: kibibytes.checked_mul(1024)?,
        total: number("nr_hugepages")?,
        free: number("free_hugepages")?,
    })
}

/// The kernel writes every choice and puts the present one into brackets.
fn transparent_huge_pages(path: &Path) -> TransparentHugePages {
    let text = text(path).unwrap_or_default();
    match text.split(['[', ']']).nth(1) {
        Some("always") => TransparentHugePages::Always,
        Some("madvise") => TransparentHugePages::Advised,
        _ => TransparentHugePages::Never,
    }
}
