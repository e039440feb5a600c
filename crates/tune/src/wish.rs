//! What a configuration needs of the host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ropewalk_host::CpuList;
use schemars::JsonSchema;
use serde::Serialize;

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
    /// Memory of all pools in bytes: those of builder units as if each were a process of its own.
    pub memory_bytes: u64,
    /// What of that memory belongs on which NUMA node, in bytes by the number of the node: where rules or
    /// `placement = "auto"` put it, or beside the card that it is filled from. The rest may be anywhere.
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
    /// Bytes a second that come through the interface to this thread; null where the configuration does not say how
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
    /// `placement = "auto"`: the thread has a core of its own beside those that take the interrupts of its card,
    /// wherever these are.
    Automatic,
    /// A rule: it runs on these CPUs.
    Rule(CpuList),
}

/// How data comes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Connections: whoever has no room makes the other side wait.
    Tcp,
    /// Datagrams by sockets: whoever has no room loses them.
    Datagrams,
    /// Packets by rings that the kernel or the card writes (TPACKET, AF_XDP).
    Rings,
}
