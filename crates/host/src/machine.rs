//! What /proc and /sys say about the machine.

use std::net::IpAddr;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::card::{self, Card, CardKind};
use crate::rights::Rights;
use crate::{CpuList, MachineError, files};

/// The machine as found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Machine {
    /// The kernel's version, for example `6.1.0-18-amd64`.
    pub kernel: String,
    /// The CPU's model; null where /proc/cpuinfo does not tell it (x86 does, most others do not).
    pub cpu_model: Option<String>,
    /// The CPUs that are switched on.
    pub online: CpuList,
    /// The CPUs that are there and switched off.
    pub offline: CpuList,
    /// The online CPUs on which the kernel runs nothing unless told to (`isolcpus`).
    pub isolated: CpuList,
    /// The online CPUs that this process may use, without isolated ones. A container or `taskset` may restrict them.
    pub allowed: CpuList,
    /// The online CPUs that may be used: the allowed ones, and the isolated ones of the container.
    pub permitted: CpuList,
    /// The sockets, ascending; one socket 0 with every CPU if the kernel does not report them.
    pub sockets: Vec<Socket>,
    /// The physical cores: for each, the hardware threads (logical CPUs) that share it. In order of their first CPU.
    pub cores: Vec<CpuList>,
    /// The caches, from the innermost outwards.
    pub caches: Vec<Cache>,
    /// The NUMA nodes, ascending; one node 0 with every CPU if the kernel does not report them.
    pub nodes: Vec<Node>,
    /// The network cards and what else looks like one, in the order of their names.
    pub cards: Vec<Card>,
    /// Reserved huge pages, smallest size first.
    pub huge_pages: Vec<HugePages>,
    /// When the kernel makes huge pages by itself.
    pub transparent_huge_pages: TransparentHugePages,
    /// The permissions of this process.
    pub rights: Rights,
}

/// A socket: one processor package.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Socket {
    /// The number of the socket, as the kernel counts (`physical_package_id`).
    pub number: u32,
    /// The online CPUs of the socket.
    pub cpus: CpuList,
}

/// A cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Cache {
    /// The level: 1 for the cache next to the core.
    pub level: u32,
    /// What it keeps, as the kernel says it: `Data`, `Instruction`, `Unified`.
    pub kind: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The online CPUs that share it.
    pub cpus: CpuList,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Node {
    /// The number of the node.
    pub number: u32,
    /// The online CPUs of the node; empty for a node that has memory alone.
    pub cpus: CpuList,
    /// The memory of the node in bytes; null if the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// Whether this process may take memory from the node; a container may have taken that away.
    pub is_allowed: bool,
}

/// The reserved huge pages of one size.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HugePages {
    /// The size of a page in bytes.
    pub page_bytes: u64,
    /// How many pages are reserved.
    pub total: u64,
    /// Reserved pages that are still free.
    pub free: u64,
}

/// When the kernel makes huge pages by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransparentHugePages {
    /// For every large mapping.
    Always,
    /// For mappings that ask for it.
    Advised,
    /// Not at all, or the kernel cannot.
    Never,
}

impl Machine {
    /// Reads the machine whose `proc` and `sys` are in `root`: `/` for the one that runs this.
    ///
    /// # Errors
    /// If the list of online CPUs or the kernel's version cannot be read, or a list of CPUs cannot be parsed.
    /// Everything else has a meaning when it is missing: no NUMA, no hyper-threads, no huge pages, no cards, rights not
    /// known.
    pub fn read(root: &Path) -> Result<Self, MachineError> {
        let (cpu, process) = (root.join("sys/devices/system/cpu"), root.join("proc/self"));
        let online = files::list(&cpu.join("online"))?;
        let present = files::list_if_there(&cpu.join("present"))?.unwrap_or_else(|| online.clone());
        let isolated = files::list_if_there(&cpu.join("isolated"))?.unwrap_or_default().intersection(&online);
        let allowed = files::list_field(&process.join("status"), "Cpus_allowed_list")?;
        let allowed = allowed.map_or_else(|| online.clone(), |list| list.intersection(&online));
        let container = container_cpus(root, &process)?.unwrap_or_else(|| online.clone());
        let memory_nodes = files::list_field(&process.join("status"), "Mems_allowed_list")?;
        Ok(Self {
            kernel: files::text(&root.join("proc/sys/kernel/osrelease"))?,
            cpu_model: files::field(&root.join("proc/cpuinfo"), "model name"),
            permitted: isolated.intersection(&container).union(&allowed),
            offline: present.without(&online),
            sockets: sockets(&cpu, &online),
            cores: cores(&cpu, &online)?,
            caches: caches(&cpu, &online)?,
            nodes: nodes(&root.join("sys/devices/system/node"), &online, memory_nodes.as_ref())?,
            cards: card::read(root)?,
            huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
            transparent_huge_pages: transparent_huge_pages(&root.join("sys/kernel/mm/transparent_hugepage/enabled")),
            rights: Rights::read(&process),
            online,
            isolated,
            allowed,
        })
    }

    /// The hardware threads of the core that `cpu` belongs to, `cpu` included; `None` if `cpu` is not online.
    pub fn siblings(&self, cpu: u32) -> Option<&CpuList> {
        self.cores.iter().find(|core| core.contains(cpu))
    }

    /// The node of `cpu`, if it is online.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.number)
    }

    /// The node with this number.
    pub fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// The node that all these CPUs belong to, if there is one.
    pub fn common_node(&self, cpus: &CpuList) -> Option<u32> {
        let first = cpus.first().and_then(|cpu| self.node_of(cpu));
        first.filter(|_| cpus.iter().all(|cpu| self.node_of(cpu) == first))
    }

    /// These CPUs and the hardware threads that share a core with one of them.
    pub fn whole_cores(&self, cpus: &CpuList) -> CpuList {
        let cores = self.cores.iter().filter(|core| core.overlaps(cpus));
        cores.flat_map(CpuList::iter).collect()
    }

    /// Whether some core runs more than one hardware thread.
    pub fn has_hardware_threads(&self) -> bool {
        self.cores.iter().any(|core| core.len() > 1)
    }

    /// The interface with this name.
    pub fn card(&self, name: &str) -> Option<&Card> {
        self.cards.iter().find(|card| card.name == name)
    }

    /// The interface through which an address of this machine is reached.
    pub fn card_at(&self, address: IpAddr) -> Option<&Card> {
        if address.is_loopback() {
            return self.cards.iter().find(|card| card.kind == CardKind::Loopback);
        }
        let longest = |card: &Card| {
            let networks = card.networks.iter().filter(|network| network.contains(address));
            networks.map(|network| network.prefix).max()
        };
        let mut best = None;
        for card in &self.cards {
            if let Some(prefix) = longest(card).filter(|&prefix| best.is_none_or(|(most, _)| prefix > most)) {
                best = Some((prefix, card));
            }
        }
        best.map(|(_, card)| card)
    }

    /// An interface and all that it consists of, lower layers first.
    pub fn made_of<'a>(&'a self, card: &'a Card) -> Vec<&'a Card> {
        let (mut found, mut looked_at) = (vec![card], 0);
        while let Some(card) = found.get(looked_at) {
            for below in card.lower.iter().filter_map(|name| self.card(name)) {
                if !found.iter().any(|other| other.name == below.name) {
                    found.push(below);
                }
            }
            looked_at += 1;
        }
        found.reverse();
        found
    }

    /// The hardware of an interface: itself, or the members of a bond or VLAN.
    pub fn hardware_of<'a>(&'a self, card: &'a Card) -> Vec<&'a Card> {
        // A card is made of others a few times at most: a VLAN on a bond of two.
        let mut found = vec![card];
        for _ in 0..4 {
            let below = |card: &'a Card| card.lower.iter().filter_map(|name| self.card(name)).collect::<Vec<_>>();
            found = found
                .into_iter()
                .flat_map(|card| if card.lower.is_empty() { vec![card] } else { below(card) })
                .collect();
        }
        found.retain(|card| card.kind == CardKind::Physical);
        found
    }
}

/// The CPUs of a process's control group, if the kernel reports them (version 2 only); `process` is its directory in
/// `proc`.
///
/// # Errors
/// If a list of CPUs cannot be parsed.
pub fn container_cpus(root: &Path, process: &Path) -> Result<Option<CpuList>, MachineError> {
    let Some(group) =
        files::field(&process.join("cgroup"), "0").and_then(|path| path.strip_prefix(":/").map(str::to_owned))
    else {
        return Ok(None);
    };
    let groups = root.join("sys/fs/cgroup");
    // A group without a list of its own has that of the nearest ancestor with one.
    for directory in groups.join(group).ancestors().take_while(|directory| directory.starts_with(&groups)) {
        if let Some(cpus) = files::list_if_there(&directory.join("cpuset.cpus.effective"))? {
            return Ok(Some(cpus));
        }
    }
    Ok(None)
}

fn sockets(cpu: &Path, online: &CpuList) -> Vec<Socket> {
    let number =
        |number: u32| files::value(&cpu.join(format!("cpu{number}/topology/physical_package_id"))).unwrap_or(0);
    let mut sockets: Vec<Socket> = Vec::new();
    for (number, one) in online.iter().map(|cpu| (number(cpu), [cpu].into_iter().collect::<CpuList>())) {
        match sockets.iter_mut().find(|socket| socket.number == number) {
            Some(socket) => socket.cpus = socket.cpus.union(&one),
            None => sockets.push(Socket { number, cpus: one }),
        }
    }
    sockets.sort_by_key(|socket| socket.number);
    sockets
}

fn cores(cpu: &Path, online: &CpuList) -> Result<Vec<CpuList>, MachineError> {
    let mut cores: Vec<CpuList> = Vec::new();
    for number in online.iter() {
        if cores.iter().any(|core| core.contains(number)) {
            continue;
        }
        let siblings = files::list_if_there(&cpu.join(format!("cpu{number}/topology/thread_siblings_list")))?;
        let core = siblings.unwrap_or_default().intersection(online);
        // Without a topology, or with a list that does not contain the CPU itself, it is a core of its own.
        cores.push(if core.contains(number) { core } else { [number].into_iter().collect() });
    }
    Ok(cores)
}

fn caches(cpu: &Path, online: &CpuList) -> Result<Vec<Cache>, MachineError> {
    let mut caches: Vec<Cache> = Vec::new();
    for number in online.iter() {
        let directory = cpu.join(format!("cpu{number}/cache"));
        for index in files::names(&directory).into_iter().filter(|name| name.starts_with("index")) {
            let directory = directory.join(index);
            let shared = files::list_if_there(&directory.join("shared_cpu_list"))?.unwrap_or_default();
            let (level, bytes) = (files::value(&directory.join("level")), kibibytes(&directory.join("size")));
            let (Some(level), Some(bytes)) = (level, bytes) else { continue };
            let kind = files::text(&directory.join("type")).unwrap_or_default();
            let cache = Cache { level, kind, bytes, cpus: shared.intersection(online) };
            if !caches.contains(&cache) {
                caches.push(cache);
            }
        }
    }
    caches.sort_by_key(|cache| (cache.level, cache.cpus.first()));
    Ok(caches)
}

/// A size such as `20480K`, in bytes.
fn kibibytes(path: &Path) -> Option<u64> {
    files::text(path).ok()?.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}

fn nodes(directory: &Path, online: &CpuList, memory: Option<&CpuList>) -> Result<Vec<Node>, MachineError> {
    let Some(numbers) = files::list_if_there(&directory.join("online"))? else {
        return Ok(vec![Node { number: 0, cpus: online.clone(), memory_bytes: None, is_allowed: true }]);
    };
    let node = |number| {
        let directory = directory.join(format!("node{number}"));
        Ok(Node {
            number,
            cpus: files::list(&directory.join("cpulist"))?.intersection(online),
            memory_bytes: node_memory(&directory.join("meminfo"), number),
            is_allowed: memory.is_none_or(|nodes| nodes.contains(number)),
        })
    };
    numbers.iter().map(node).collect()
}

/// The line `Node 0 MemTotal:   16384 kB`, in bytes.
fn node_memory(path: &Path, number: u32) -> Option<u64> {
    let total = files::field(path, &format!("Node {number} MemTotal"))?;
    total.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
    Some(HugePages {
        page_bytes: kibibytes.checked_mul(1024)?,
        total: files::value(&directory.join("nr_hugepages"))?,
        free: files::value(&directory.join("free_hugepages"))?,
    })
}

/// The kernel writes every choice and puts the present one into brackets.
fn transparent_huge_pages(path: &Path) -> TransparentHugePages {
    let text = files::text(path).unwrap_or_default();
    match text.split(['[', ']']).nth(1) {
        Some("always") => TransparentHugePages::Always,
        Some("madvise") => TransparentHugePages::Advised,
        _ => TransparentHugePages::Never,
    }
}
