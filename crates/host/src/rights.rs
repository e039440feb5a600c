//! The permissions of this process: capabilities and resource limits.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::files;

/// A capability of Linux by which a process may do what others may not (capabilities(7)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Capability {
    /// Settings of the network.
    NetAdmin = 12,
    /// Packets past the protocols.
    NetRaw = 13,
    /// Memory is locked beyond the limit.
    IpcLock = 14,
    /// Many settings of the system.
    SysAdmin = 21,
    /// Real-time scheduling beyond the limit; in most containers also the NUMA policy of memory.
    SysNice = 23,
    /// Programs for the kernel, such as the one that AF_XDP puts before a card's packets.
    Bpf = 39,
}

impl Capability {
    /// Its name as manuals and tools write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// What this process may do, as far as /proc tells.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Rights {
    /// The effective capabilities as a bit mask by number; null if unknown.
    pub capabilities: Option<u64>,
    /// The limit of locked memory in bytes; null if there is no limit, or if it is unknown.
    pub locked_bytes: Option<u64>,
    /// The highest real-time priority; null if there is no limit, or if it is unknown.
    pub realtime_priority: Option<u64>,
}

impl Rights {
    /// Those of a process, by its directory in /proc.
    pub fn read(process: &Path) -> Self {
        let capabilities = files::field(&process.join("status"), "CapEff");
        let limits = files::text(&process.join("limits")).unwrap_or_default();
        Self {
            capabilities: capabilities.and_then(|mask| u64::from_str_radix(&mask, 16).ok()),
            locked_bytes: limit(&limits, "Max locked memory"),
            realtime_priority: limit(&limits, "Max realtime priority"),
        }
    }

    /// Whether the process is known not to have this capability.
    pub fn lacks(&self, capability: Capability) -> bool {
        let has = |mask: u64, capability: Capability| mask >> (capability as u8) & 1 == 1;
        // The one is a part of the other, and the kernel takes either (capabilities(7)).
        let instead = |mask| capability == Capability::Bpf && has(mask, Capability::SysAdmin);
        self.capabilities.is_some_and(|mask| !has(mask, capability) && !instead(mask))
    }

    /// The capabilities for AF_XDP that the process lacks: for the socket, and for the program that is
    /// put before the card's packets.
    pub fn missing_for_xdp(&self) -> Vec<Capability> {
        let needed = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];
        needed.into_iter().filter(|&one| self.lacks(one)).collect()
    }

    /// Whether real-time scheduling of this priority will be refused.
    pub fn forbids_realtime(&self, priority: u8) -> bool {
        self.lacks(Capability::SysNice) && self.realtime_priority.is_some_and(|most| most < u64::from(priority))
    }

    /// Whether the kernel will refuse to lock this many bytes in all.
    pub fn forbids_locking(&self, bytes: u64) -> bool {
        self.lacks(Capability::IpcLock) && self.locked_bytes.is_some_and(|most| most < bytes)
    }
}

/// The present limit in a line such as `Max locked memory   8388608   8388608   bytes`.
fn limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}
