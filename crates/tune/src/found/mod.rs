//! A host as rules see it: read once and never changed. Rules ask it in the terms of their subject, and get an error
//! for a value that could not be read. Small files of the kernel are read once: what rules say afterwards depends only
//! on what was read.

mod probe;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ropewalk_host::{Card, CardKind, CpuList, Machine, MachineError};

use crate::cards::CardReport;
use crate::{Feeding, Place, Process, Property, SettingError, Transport, Wish};

pub use self::probe::{PathMtu, Permission, Probed, Space, Stamping};

/// A host as rules see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Cores, nodes, cards with their interrupts, huge pages, rights.
    pub machine: Machine,
    /// The reports of network cards' drivers, by interface.
    pub cards: BTreeMap<String, CardReport>,
    /// What has to be tried out.
    pub probed: Probed,
    /// The processes of ours that run there.
    pub processes: Vec<Process>,
    files: Files,
}

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// Not even its CPUs could be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The user named an interface that does not exist.
    #[error("there is no network interface `{name}`; there are {there}")]
    UnknownInterface {
        /// The name.
        name: String,
        /// The interfaces that exist.
        there: String,
    },
    /// The record of a recorded machine is damaged.
    #[error(transparent)]
    Record(#[from] SettingError),
}

impl Found {
    /// Reads the host in `place`: files, reports of drivers, and what has to be tried out.
    ///
    /// # Errors
    /// If its CPUs cannot be read, if its record is damaged, or if the wish names an interface that it does
    /// not have. The rule that wanted it reports everything else that is missing or damaged.
    pub fn read(place: &mut Place, wish: &Wish) -> Result<Self, FoundError> {
        let machine = Machine::read(place.root())?;
        let named = wish.interfaces.iter().chain(wish.feeding.iter().map(|feeding| &feeding.interface));
        for name in named {
            if machine.card(name).is_none() {
                let there = machine.cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(FoundError::UnknownInterface { name: name.clone(), there });
            }
        }
        let hardware = machine.cards.iter().filter(|card| card.kind == CardKind::Physical);
        // A driver that does not answer has no report; the other rules continue.
        let cards = hardware.filter_map(|card| Some((card.name.clone(), place.card(&card.name).ok()?))).collect();
        let probed =
            if place.is_live() { Probed::live(&machine, wish) } else { place.record("probed")?.unwrap_or_default() };
        let processes = Process::all(place.root());
        Ok(Self { cards, probed, processes, files: Files::read(place.root()), machine })
    }
}

/// What could not be read, as the table names it: a sysctl by its name, anything else by its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unread(pub(crate) String);

impl Found {
    /// A file's text, if it exists and can be read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.text(path)
    }

    /// A file's number, if it exists and holds one.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The files whose paths begin and end so, ascending, with their texts.
    pub(crate) fn each<'a, 'b>(&'a self, first: &'b str, last: &'b str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.each(first, last)
    }

    /// A file's text.
    ///
    /// # Errors
    /// If it is missing or cannot be read.
    pub(crate) fn must(&self, path: &str) -> Result<&str, Unread> {
        self.text(path).filter(|text| !text.is_empty()).ok_or_else(|| Unread(format!("/{path}")))
    }

    /// The text below /proc/sys with this name.
    ///
    /// # Errors
    /// If it is missing or cannot be read.
    pub(crate) fn sysctl_text(&self, name: &str) -> Result<&str, Unread> {
        self.must(&format!("proc/sys/{}", name.replace('.', "/"))).map_err(|_| Unread(name.to_owned()))
    }

    /// The number below /proc/sys with this name.
    ///
    /// # Errors
    /// If it is missing or no number.
    pub(crate) fn sysctl(&self, name: &str) -> Result<i64, Unread> {
        self.sysctl_text(name)?.parse().map_err(|_| Unread(name.to_owned()))
    }

    /// The three numbers below /proc/sys with this name: smallest, usual, largest; or low, pressure, high.
    ///
    /// # Errors
    /// If they are missing or not three numbers.
    pub(crate) fn sysctl_three(&self, name: &str) -> Result<[u64; 3], Unread> {
        let wrong = || Unread(name.to_owned());
        let numbers = self.sysctl_text(name)?.split_ascii_whitespace().map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        numbers.try_into().map_err(|_| wrong())
    }

    /// The directories of the control groups that this process is in for a controller, from its own outwards.
    pub(crate) fn control_groups(&self, controller: &str) -> Vec<String> {
        self.files.control_groups(controller)
    }

    /// The hardware that data comes through or that the user named; without either, all that is up.
    pub(crate) fn hardware(&self, wish: &Wish) -> Vec<&Card> {
        let named = wish.feeding.iter().map(|feeding| &feeding.interface).chain(&wish.interfaces);
        let mut cards: Vec<&Card> = Vec::new();
        for name in named {
            let made_of = self.machine.card(name).map(|card| self.machine.hardware_of(card)).unwrap_or_default();
            for card in made_of {
                if !cards.iter().any(|other| other.name == card.name) {
                    cards.push(card);
                }
            }
        }
        if wish.feeding.is_empty() && wish.interfaces.is_empty() {
            cards.extend(self.machine.cards.iter().filter(|card| card.is_usable()));
        }
        cards
    }

    /// That hardware with its drivers' reports; interfaces without a report are left out.
    pub(crate) fn reports(&self, wish: &Wish) -> Vec<(&Card, &CardReport)> {
        let hardware = self.hardware(wish).into_iter();
        hardware.filter_map(|card| Some((card, self.cards.get(&card.name)?))).collect()
    }

    /// Whether a card takes values of a property that its driver reports. virtio_net reports how long interrupts wait
    /// even if the host's card lacks the feature: a time needs the feature NOTF_COAL, an adaptive one VQ_NOTF_COAL
    /// (bits 53 and 52; the virtio specification, 5.1.3).
    pub(crate) fn takes(&self, card: &Card, property: &Property) -> bool {
        let bit = match property {
            Property::AdaptiveReceive => 52,
            Property::ReceiveMicroseconds | Property::ReceiveFrames => 53,
            _ => return true,
        };
        let features = self.text(&format!("sys/class/net/{}/device/features", card.name));
        let is_virtio = card.driver.as_deref() == Some("virtio_net");
        !is_virtio || features.is_none_or(|bits| bits.as_bytes().get(bit) == Some(&b'1'))
    }

    /// The physical cores of the node that a card is plugged into; all if the machine does not say.
    fn cores_of(&self, card: &Card) -> usize {
        let node = card.node.and_then(|node| self.machine.node(node));
        let is_near = |core: &&CpuList| node.is_none_or(|node| node.cpus.overlaps(core));
        self.machine.cores.iter().filter(is_near).count()
    }

    /// The CPUs of the node that a card is plugged into; all if the machine does not say.
    pub(crate) fn cpus_near(&self, card: &Card) -> CpuList {
        let node = card.node.and_then(|node| self.machine.node(node));
        node.map_or_else(|| self.machine.online.clone(), |node| node.cpus.clone())
    }

    /// The threads of the configuration that read one of some cards, also through a bond or a VLAN; each once, by what
    /// it reads first.
    pub(crate) fn readers<'a>(&self, cards: &[&Card], wish: &'a Wish) -> Vec<&'a Feeding> {
        let is_behind = |feeding: &&Feeding| {
            let hardware = self.machine.card(&feeding.interface).map(|card| self.machine.hardware_of(card));
            hardware.is_some_and(|behind| behind.iter().any(|one| cards.iter().any(|card| card.name == one.name)))
        };
        let mut readers: Vec<&Feeding> = Vec::new();
        for feeding in wish.feeding.iter().filter(is_behind) {
            if readers.iter().all(|reader| reader.thread != feeding.thread) {
                readers.push(feeding);
            }
        }
        readers
    }

    /// How many threads of the configuration read a card, also through a bond or a VLAN.
    pub(crate) fn readers_of(&self, card: &Card, wish: &Wish) -> usize {
        self.readers(&[card], wish).len()
    }

    /// How many combined queues a card has once the advice is followed, if its driver reports them. Queues that go take
    /// files and interrupts with them, so rules give no advice on those.
    pub(crate) fn queues_after(&self, card: &Card, wish: &Wish) -> Option<usize> {
        let report = self.cards.get(&card.name)?;
        let present: usize = report.value(&Property::CombinedChannels)?.parse().ok()?;
        let most = report.most_combined_channels.map_or(present, |most| most as usize);
        let (cores, readers) = (self.cores_of(card).max(1), self.readers_of(card, wish));
        Some(match present {
            _ if present > cores => cores,
            // As many as reading threads; if those are unknown, as many as cores, less one for work.
            1 => most.min(if readers > 0 { readers } else { cores.saturating_sub(1) }.max(1)).min(cores),
            _ => present,
        })
    }

    /// One file of each receive (`rx`) or transmit (`tx`) queue of a card, by queue number: `rx-10` is the eleventh.
    /// The last ones go first when the number of queues is lowered.
    pub(crate) fn queues(&self, card: &Card, direction: &str, file: &str) -> Vec<(&str, &str)> {
        let (first, last) = (format!("sys/class/net/{}/queues/{direction}-", card.name), format!("/{file}"));
        let mut queues: Vec<(&str, &str)> = self.files.each(&first, &last).collect();
        queues.sort_by_key(|&(path, _)| (path.len(), path));
        queues
    }

    /// Whether the data come from this machine itself.
    pub(crate) fn is_fed_by_itself(&self, wish: &Wish) -> bool {
        let card = |name: &str| self.machine.card(name);
        wish.feeding.iter().any(|feeding| card(&feeding.interface).is_some_and(|card| card.kind == CardKind::Loopback))
    }

    /// The bytes per second of the fastest interface that matters, if its driver reports it.
    pub(crate) fn bytes_per_second(&self, wish: &Wish) -> Option<u64> {
        let speeds = self.hardware(wish).into_iter().filter_map(|card| card.megabits_per_second);
        speeds.max().map(|megabits| u64::from(megabits) * 125_000)
    }

    /// Whether it is a virtual machine, as its processor says (the flag `hypervisor` on x86).
    pub(crate) fn is_virtual(&self) -> bool {
        let flags = self.text("proc/cpuinfo").unwrap_or_default().lines().find_map(|line| line.strip_prefix("flags"));
        flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
    }

    /// Memory of the machine in bytes, if the kernel reports it.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        kibibytes_of(self.text("proc/meminfo")?, "MemTotal")
    }
}

impl Wish {
    /// Streams that come so.
    pub(crate) fn streams(&self, is_wanted: impl Fn(Transport) -> bool) -> u64 {
        let feeding = self.feeding.iter().filter(|feeding| is_wanted(feeding.transport));
        feeding.map(|feeding| u64::from(feeding.streams)).sum()
    }

    /// The largest receive buffer that a socket of such streams asks for, in bytes.
    pub(crate) fn most_receive_buffer(&self, is_wanted: impl Fn(Transport) -> bool) -> Option<u64> {
        let feeding = self.feeding.iter().filter(|feeding| is_wanted(feeding.transport));
        feeding.filter_map(|feeding| feeding.receive_buffer_bytes).max()
    }

    /// Whether something comes so.
    pub(crate) fn has(&self, transport: Transport) -> bool {
        self.feeding.iter().any(|feeding| feeding.transport == transport)
    }
}

/// The bytes in the first line `name:  number kB`, with any text before the name.
pub(crate) fn kibibytes_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.split_ascii_whitespace().last() == Some(name)).then_some(value)
    })?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What no file of the kernel that is read here is longer than, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The files that rules look at, below the root; a star matches any part of one name.
const PATTERNS: &[&str] = &[
    "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
    "proc/*/comm",
    "proc/cpuinfo",
    "proc/irq/*/smp_affinity_list",
    "proc/meminfo",
    "proc/net/softnet_stat",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/mountinfo",
    "proc/swaps",
    "proc/sys/kernel/io_uring_disabled",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/net/core/busy_poll",
    "proc/sys/net/core/busy_read",
    "proc/sys/net/core/netdev_budget",
    "proc/sys/net/core/netdev_budget_usecs",
    "proc/sys/net/core/netdev_max_backlog",
    "proc/sys/net/core/rmem_max",
    "proc/sys/net/core/rps_sock_flow_entries",
    "proc/sys/net/core/wmem_max",
    "proc/sys/net/ipv4/tcp_*",
    "proc/sys/net/ipv4/udp_mem",
    "proc/sys/vm/swappiness",
    "proc/sys/vm/zone_reclaim_mode",
    "sys/block/*/*/dev",
    "sys/block/*/dev",
    "sys/block/*/queue/rotational",
    "sys/block/*/queue/scheduler",
    "sys/block/*/slaves/*/dev",
    "sys/class/net/*/carrier",
    "sys/class/net/*/device/current_link_speed",
    "sys/class/net/*/device/current_link_width",
    "sys/class/net/*/device/features",
    "sys/class/net/*/device/max_link_speed",
    "sys/class/net/*/device/max_link_width",
    "sys/class/net/*/duplex",
    "sys/class/net/*/queues/*/rps_cpus",
    "sys/class/net/*/queues/*/rps_flow_cnt",
    "sys/class/net/*/queues/*/xps_cpus",
    "sys/class/net/*/statistics/*",
    "sys/devices/system/clocksource/clocksource0/*_clocksource",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/latency",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/name",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_available_governors",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/devices/system/cpu/cpuidle/current_driver",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/vulnerabilities/*",
    "sys/devices/system/node/node*/hugepages/*/nr_hugepages",
    "sys/devices/system/node/node*/meminfo",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/module/haltpoll/parameters/guest_halt_poll_ns",
];

/// The files of a control group that rules look at, by its controller: those of version 2, then those of version 1.
const GROUP_FILES: [(&str, &[&str]); 2] = [
    ("cpu", &["cpu.max", "cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"]),
    ("memory", &["memory.max", "memory.limit_in_bytes"]),
];

/// The text of each file by its path without the leading slash; `None` if it exists but could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Files(BTreeMap<String, Option<String>>);

impl Files {
    /// Reads all that rules look at below `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut files = Self::default();
        for pattern in PATTERNS {
            files.collect(root, String::new(), pattern);
        }
        for (controller, names) in GROUP_FILES {
            for directory in files.control_groups(controller) {
                names.iter().for_each(|name| files.add(root, format!("{directory}/{name}")));
            }
        }
        files
    }

    /// The text of a file without surrounding space, if it could be read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.as_deref().map(str::trim)
    }

    /// The paths that begin with `first` and end with `last`, ascending, with their texts.
    pub(crate) fn each<'a, 'b>(&'a self, first: &'b str, last: &'b str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let behind = self.0.range(first.to_owned()..).take_while(move |(path, _)| path.starts_with(first));
        behind
            .filter(move |(path, _)| path.len() >= first.len() + last.len() && path.ends_with(last))
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?.trim())))
    }

    /// The directories of the control groups that this process is in for a controller, from its own outwards. Groups of
    /// version 2 have one tree for all controllers, those of version 1 have one for each; a machine may have both.
    pub(crate) fn control_groups(&self, controller: &str) -> Vec<String> {
        let mut directories = Vec::new();
        for line in self.text("proc/self/cgroup").unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(own)) = (parts.next(), parts.next()) else { continue };
            let mut names = vec!["sys/fs/cgroup"];
            match controllers {
                "" => {}
                _ if controllers.split(',').any(|name| name == controller) => names.push(controller),
                _ => continue,
            }
            let top = names.len();
            names.extend(own.split('/').filter(|name| !name.is_empty() && *name != ".."));
            directories.extend((top..=names.len()).rev().map(|length| names[..length].join("/")));
        }
        directories
    }

    /// Follows the rest of a pattern from a directory on.
    fn collect(&mut self, root: &Path, directory: String, pattern: &str) {
        let (part, rest) = pattern.split_once('/').map_or((pattern, None), |(part, rest)| (part, Some(rest)));
        let join = |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        let found = match part.split_once('*') {
            None => vec![join(part)],
            Some((first, last)) => {
                let fits = |name: &String| {
                    name.len() >= first.len() + last.len() && name.starts_with(first) && name.ends_with(last)
                };
                let entries = std::fs::read_dir(root.join(&directory)).into_iter().flatten().flatten();
                let names = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(fits);
                names.map(|name| join(&name)).collect()
            }
        };
        for path in found {
            match rest {
                Some(rest) => self.collect(root, path, rest),
                None => self.add(root, path),
            }
        }
    }

    fn add(&mut self, root: &Path, path: String) {
        let full = root.join(&path);
        if !std::fs::metadata(&full).is_ok_and(|about| about.is_file()) {
            return;
        }
        let mut bytes = Vec::new();
        let read = File::open(&full).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
        self.0.insert(path, read.ok().map(|_| String::from_utf8_lossy(&bytes).into_owned()));
    }
}
