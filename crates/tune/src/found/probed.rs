//! What no file tells and has to be tried out; a recorded machine has it in its `recorded.json`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Wish;

/// What has to be tried out; what could not be is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// The room in the file systems of the directories that events are written to.
    pub space: Vec<Space>,
    /// The largest packets that came to other machines.
    pub paths: Vec<PathMtu>,
    /// Processes that have the kernel note the time of every packet.
    pub stamping: Vec<Stamping>,
    /// Whether this process may use io_uring.
    pub io_uring: Permission,
    /// Whether this process may open sockets of AF_XDP.
    pub af_xdp: Permission,
}

impl Probed {
    /// Tries out what can be tried without a trace: nothing is written, and no packet goes beyond what is asked about.
    pub(super) fn live(wish: &Wish) -> Self {
        Self { space: wish.outputs.iter().filter_map(|directory| space(directory)).collect(), ..Self::default() }
    }
}

/// The room in the file system of a directory, or of the nearest one above it that there is.
fn space(directory: &Path) -> Option<Space> {
    let there = directory.ancestors().find(|above| above.exists())?;
    let told = rustix::fs::statvfs(there).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Some(Space { directory: directory.to_owned(), free_bytes: bytes(told.f_bavail), total_bytes: bytes(told.f_blocks) })
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
