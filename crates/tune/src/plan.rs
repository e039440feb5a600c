//! What a configuration needs of the host ([`Wish`]), what rules found ([`Finding`]), and what would be changed, in
//! order ([`Plan`]): pure, and printable.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ropewalk_host::CpuList;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Setting;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The value that was found, in its normal form.
    pub from: String,
    /// The value that it shall have, in its normal form.
    pub to: String,
    /// The group that it belongs to.
    pub group: Group,
    /// The name of the rule that asks for it.
    pub rule: String,
}

/// A group of settings that may be changed without the others (`tune apply --only GROUP`). Changes follow this order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Sockets and protocols: what is below /proc/sys/net.
    Network,
    /// Network cards: rings, queues, coalescing, offloads, pause frames, MTU.
    Card,
    /// Which CPUs take interrupts and their work.
    Interrupts,
    /// Frequencies, idle states, scheduling.
    Processor,
    /// Huge pages, NUMA, swapping.
    Memory,
    /// Where events are written to.
    Storage,
    /// Limits of processes and containers.
    Limits,
}

impl Group {
    /// All of them, in the order in which they are changed.
    pub const ALL: [Self; 7] =
        [Self::Network, Self::Card, Self::Interrupts, Self::Processor, Self::Memory, Self::Storage, Self::Limits];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Card => "card",
            Self::Interrupts => "interrupts",
            Self::Processor => "processor",
            Self::Memory => "memory",
            Self::Storage => "storage",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What would be changed, in order; each setting once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
}

impl Plan {
    /// What these findings ask for: group after group, and within a group in the order of the findings. Where two ask
    /// for the same setting the first one is taken; what is already as it shall be is left out.
    pub fn of(findings: &[Finding]) -> Self {
        let mut changes: Vec<Change> = Vec::new();
        for group in Group::ALL {
            let asked = findings.iter().flat_map(|finding| &finding.changes).filter(|change| change.group == group);
            for change in asked.filter(|change| change.from != change.to) {
                if !changes.iter().any(|other| other.setting == change.setting) {
                    changes.push(change.clone());
                }
            }
        }
        Self { changes }
    }

    /// Only what belongs to these groups; all of it if none is named.
    pub fn only(mut self, groups: &[Group]) -> Self {
        self.changes.retain(|change| groups.is_empty() || groups.contains(&change.group));
        self
    }

    /// The commands by which a person would do the same, one a line.
    pub fn commands(&self) -> Vec<String> {
        self.changes.iter().map(|change| change.setting.command(&change.to)).collect()
    }
}

/// What a rule found: one line of the table that `tune check` prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// The rule's name, such as `receive_buffer`; promised to users, and a heading of docs/tuning-GROUP.md.
    pub rule: &'static str,
    /// The group of settings that it belongs to.
    pub group: Group,
    /// What was looked at, such as `net.core.rmem_max` or `eth0: receive ring`.
    pub subject: String,
    /// How the setting stands.
    pub grade: Grade,
    /// The current value, in the form in which a person would set it.
    pub found: String,
    /// The advice; empty if the setting is good.
    pub advised: String,
    /// Why that is advised, in a sentence.
    pub why: &'static str,
    /// The source: a section of the paper, or a document of the kernel.
    pub source: &'static str,
    /// The benefit, and the command that shows it on this machine.
    pub worth: &'static str,
    /// How sure the advice is.
    pub sureness: Sureness,
    /// What `tune plan` would change for it; empty for what is good, and for what no program may change: settings of
    /// the firmware, the kernel's command line, mitigations.
    pub changes: Vec<Change>,
}

/// How a setting stands.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Nothing to do.
    Good,
    /// Told, and neither good nor bad: security mitigations, what could not be read.
    Told,
    /// It works, and could do better.
    CouldBeBetter,
    /// It loses data, or most of the speed.
    Harmful,
}

/// How sure an advice is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sureness {
    /// A rule of thumb: measure before and after.
    Guess,
    /// Published measurements or the kernel's documentation say so.
    Documented,
    /// Measured with Ropewalk's benches.
    Measured,
}

/// What a configuration needs of the host; without one, the needs of any data taking.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Wish {
    /// Interfaces named by the user, besides those that receive data. Without either, all interfaces with hardware that
    /// are up.
    pub interfaces: Vec<String>,
    /// What data comes through.
    pub feeding: Vec<Feeding>,
    /// All threads of the configuration's processes by their names, and who decides on which CPUs each runs.
    pub threads: BTreeMap<String, Placed>,
    /// The directories that events are written to.
    pub outputs: Vec<PathBuf>,
    /// Memory of all pools in bytes: those of builder units as if each were its own process.
    pub memory_bytes: u64,
    /// The part of that memory on each NUMA node, in bytes by node number: as placed by rules or `placement = "auto"`,
    /// or beside the card that fills it. The rest may be anywhere.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub memory_by_node: BTreeMap<u32, u64>,
    /// The most connections and files that are open at once.
    pub files: u64,
    /// The addresses of other machines that the configuration names.
    pub peers: Vec<IpAddr>,
    /// The highest real-time priority in a rule for threads; null if none.
    #[schemars(range(min = 1, max = 99))]
    pub realtime_priority: Option<u8>,
}

/// A thread that is fed by an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Feeding {
    /// The name of the interface.
    pub interface: String,
    /// The thread that reads it, such as `ru0`.
    pub thread: String,
    /// How the data comes.
    pub transport: Transport,
    /// How many streams come through the interface to this thread.
    pub streams: u32,
    /// The receive buffer of each of their sockets in bytes; null if not configured.
    pub receive_buffer_bytes: Option<u64>,
    /// Bytes a second that come through the interface to this thread; null if the configuration does not say how
    /// often events come and how large they are. It does so of emulated flows of multi-event packets.
    pub bytes_per_second: Option<u64>,
    /// How the CPUs of the thread are chosen.
    pub placed: Placed,
}

/// Who decides on which CPUs a thread runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placed {
    /// The kernel, which may move it.
    #[default]
    Nobody,
    /// `placement = "auto"`: the thread has its own core beside those that take the interrupts of its card, wherever
    /// these are.
    Automatic,
    /// A rule: it runs on these CPUs.
    Rule(CpuList),
}

/// How data comes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Connections: a full receiver makes the sender wait.
    Tcp,
    /// Datagrams by sockets: a full receiver loses them.
    Datagrams,
    /// Packets by rings that the kernel or the card writes (TPACKET, AF_XDP).
    Rings,
}
