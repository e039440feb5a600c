//! What a configuration needs of the host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ropewalk_host::CpuList;
use serde::Serialize;

/// What a configuration needs of the host; without one, the needs of any data taking.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Wish {
    /// Interfaces to look at, by name, besides those that feed something; where none is named and nothing feeds, all
    /// that have hardware behind them and are up.
    pub interfaces: Vec<String>,
    /// What data comes through.
    pub feeding: Vec<Feeding>,
    /// All threads of the configuration's processes by their names, and who decides on which CPUs each runs.
    pub threads: BTreeMap<String, Placed>,
    /// The directories that events are written to.
    pub outputs: Vec<PathBuf>,
    /// Memory that the configuration's pools take, in bytes: those of builder units as if each were a process of its own.
    pub memory_bytes: u64,
    /// What of it belongs on which NUMA node, in bytes: where rules or `placement = "auto"` put it, or beside the card that
    /// it is filled from. The rest may be anywhere.
    pub memory_by_node: BTreeMap<u32, u64>,
    /// Connections and files that are open at once, at most.
    pub files: u64,
    /// Other machines that the configuration names by their addresses.
    pub peers: Vec<IpAddr>,
    /// The highest real-time priority that a rule for threads asks for.
    pub realtime_priority: Option<u8>,
}

/// A thread that is fed by an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feeding {
    /// The interface's name.
    pub interface: String,
    /// The thread that reads it, such as `ru0`.
    pub thread: String,
    /// How the data comes.
    pub transport: Transport,
    /// Streams that come through it to this thread.
    pub streams: u32,
    /// The receive buffer of each of their sockets in bytes, where the configuration says one.
    pub receive_buffer_bytes: Option<u64>,
    /// Bytes that come through it to this thread in a second, where the configuration says how often events come and how
    /// large they are.
    pub bytes_per_second: Option<u64>,
    /// Who decides on which CPUs that thread runs.
    pub placed: Placed,
}

/// Who decides on which CPUs a thread runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placed {
    /// The kernel, now so and then otherwise.
    #[default]
    Nobody,
    /// `placement = "auto"`: it has a core of its own beside those that take the interrupts of its card, wherever these are.
    Automatic,
    /// A rule: on these.
    Rule(CpuList),
}

/// How data comes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Connections: whoever has no room makes the other side wait.
    Tcp,
    /// Datagrams by sockets: whoever has no room loses them.
    Datagrams,
    /// Packets by rings that the kernel or the card writes (TPACKET, AF_XDP).
    Rings,
}
