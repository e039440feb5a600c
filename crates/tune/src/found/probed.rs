//! What no file tells and has to be tried out; a recorded machine has it in its `recorded.json`.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What has to be tried out; what could not be is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// The size of the kernel's pages in bytes.
    pub page_bytes: Option<u64>,
    /// The room in the file systems of the directories that events are written to.
    pub space: Vec<Space>,
    /// The largest packets that came to other machines.
    pub paths: Vec<PathMtu>,
    /// Processes that have the kernel note the time of every packet.
    pub stamping: Vec<Stamping>,
    /// Processes whose sockets this one may not look at.
    pub unseen_processes: u32,
    /// Whether this process may use io_uring.
    pub io_uring: Permission,
    /// Whether this process may open sockets of AF_XDP.
    pub af_xdp: Permission,
}

/// The room in a file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    /// The directory that was asked about.
    pub directory: PathBuf,
    /// What this process may still write there, in bytes.
    pub free_bytes: u64,
    /// What the file system holds, in bytes.
    pub total_bytes: u64,
}

/// The largest packet that came to another machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathMtu {
    /// The interface through which it went.
    pub interface: String,
    /// The other machine.
    pub address: IpAddr,
    /// Its size in bytes, with its headers.
    pub bytes: u32,
}

/// A process that has the kernel note the time of every packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stamping {
    /// Its number.
    pub process: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// The option of its socket, such as `SO_TIMESTAMP`.
    pub option: String,
}

/// Whether something may be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It was used.
    Allowed,
    /// It was refused for lack of rights, or by a filter of system calls.
    Refused,
    /// The kernel has it not.
    Absent,
    /// Nobody tried.
    #[default]
    Unknown,
}
