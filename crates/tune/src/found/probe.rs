//! What no file tells and has to be tried out, on the machine that this runs on. Nothing is written, and what is opened
//! is closed. A recorded machine has it in its `recorded.json`.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ropewalk_host::{Machine, Rights};
use ropewalk_io::packet::{path_mtu, stamping_of};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::Wish;

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

/// Whether an operation is permitted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It was used.
    Allowed,
    /// It was refused for lack of rights, or by a filter of system calls.
    Refused,
    /// The kernel does not have it.
    Absent,
    /// It was not tried.
    #[default]
    Unknown,
}

/// Other machines that are asked, at most: one that is silent takes some seconds.
const MOST_PEERS: usize = 8;

impl Probed {
    /// Tries out what can be tried without a trace. Each of the configuration's other machines gets a few datagrams,
    /// which it discards.
    pub(super) fn live(machine: &Machine, wish: &Wish) -> Self {
        let (stamping, unseen_processes) = stamping(Path::new("/proc"));
        Self {
            page_bytes: Some(rustix::param::page_size() as u64),
            space: wish.outputs.iter().filter_map(|directory| space(directory)).collect(),
            paths: wish.peers.iter().take(MOST_PEERS).filter_map(|&address| path(machine, address)).collect(),
            stamping,
            unseen_processes,
            io_uring: permission(ropewalk_io::tcp::try_io_uring()),
            af_xdp: af_xdp(
                socket(AddressFamily::XDP, SocketType::RAW, None).map(drop).map_err(io::Error::from),
                &machine.rights,
            ),
        }
    }
}

/// The free space in the file system of a directory, or of its nearest existing ancestor.
fn space(directory: &Path) -> Option<Space> {
    let there = directory.ancestors().find(|above| above.exists())?;
    let told = rustix::fs::statvfs(there).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Some(Space { directory: directory.to_owned(), free_bytes: bytes(told.f_bavail), total_bytes: bytes(told.f_blocks) })
}

/// The largest packet that came to another machine, by the interface that leads there.
fn path(machine: &Machine, address: IpAddr) -> Option<PathMtu> {
    let card = machine.card_at(address).filter(|_| !address.is_loopback())?;
    let bytes = path_mtu(address, card.mtu?).ok()??;
    Some(PathMtu { interface: card.name.clone(), address, bytes })
}

/// Only the socket can be tried without a trace; the program is not attached to a card just to test the permission.
fn af_xdp(socket: io::Result<()>, rights: &Rights) -> Permission {
    match permission(socket) {
        Permission::Allowed if !rights.missing_for_xdp().is_empty() => Permission::Refused,
        told => told,
    }
}

fn permission(tried: io::Result<()>) -> Permission {
    let Err(error) = tried else { return Permission::Allowed };
    match (error.kind(), Errno::from_io_error(&error)) {
        (io::ErrorKind::PermissionDenied, _) => Permission::Refused,
        (io::ErrorKind::Unsupported, _) | (_, Some(Errno::AFNOSUPPORT | Errno::INVAL)) => Permission::Absent,
        // Too many open files, no memory: that says nothing of a right.
        _ => Permission::Unknown,
    }
}

/// The processes that have a socket with times of packets, and how many there are that this one may not look at: root
/// sees all.
fn stamping(processes: &Path) -> (Vec<Stamping>, u32) {
    let entries = std::fs::read_dir(processes).into_iter().flatten().flatten();
    let numbers: BTreeSet<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let (mut found, mut unseen) = (Vec::new(), 0);
    for number in numbers {
        match stamping_process(processes, number) {
            Ok(stamping) => found.extend(stamping),
            // Threads of the kernel, which have no arguments, have no sockets that count, either.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOSYS) if has_arguments(processes, number) => unseen += 1,
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    (found, unseen)
}

fn has_arguments(processes: &Path, number: i32) -> bool {
    std::fs::read(processes.join(number.to_string()).join("cmdline")).is_ok_and(|text| !text.is_empty())
}

/// The first socket of a process that asks for times.
fn stamping_process(processes: &Path, number: i32) -> Result<Option<Stamping>, Errno> {
    let directory = processes.join(number.to_string());
    let mut handle = None;
    let listed = std::fs::read_dir(directory.join("fd"));
    for entry in listed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?.flatten() {
        let is_socket = std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_socket)
        else {
            continue;
        };
        if handle.is_none() {
            handle = Some(pidfd_open(Pid::from_raw(number).ok_or(Errno::SRCH)?, PidfdFlags::empty())?);
        }
        let Some(process) = &handle else { continue };
        // A copy of the other process' descriptor, which is closed at once: the socket does not notice.
        let copy = match pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()) {
            Ok(copy) => copy,
            // It has closed it meanwhile.
            Err(Errno::BADF) => continue,
            Err(error) => return Err(error),
        };
        if let Ok(Some(option)) = stamping_of(copy.as_fd()) {
            let name = std::fs::read_to_string(directory.join("comm")).unwrap_or_default().trim().to_owned();
            return Ok(Some(Stamping { process: number.unsigned_abs(), name, option: option.to_owned() }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn refusals_and_what_the_kernel_lacks_are_told_apart() {
        for (errno, expected) in [
            (Errno::PERM, Permission::Refused),
            (Errno::NOSYS, Permission::Absent),
            (Errno::AFNOSUPPORT, Permission::Absent),
            (Errno::MFILE, Permission::Unknown),
        ] {
            assert_eq!(permission(Err(errno.into())), expected, "{errno}");
        }
        assert_eq!(permission(Ok(())), Permission::Allowed);
        let too_old = io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring lacks something");
        assert_eq!(permission(Err(too_old)), Permission::Absent);
    }

    /// A socket is not enough: the program has to be put before the card's packets.
    #[test]
    fn af_xdp_takes_more_than_a_socket() {
        let rights =
            |bits: &[u8]| Rights { capabilities: Some(bits.iter().map(|bit| 1_u64 << bit).sum()), ..Rights::default() };
        let (raw, admin, system, bpf) = (13, 12, 21, 39);
        assert_eq!(af_xdp(Ok(()), &rights(&[raw])), Permission::Refused);
        assert_eq!(af_xdp(Ok(()), &rights(&[raw, admin])), Permission::Refused);
        assert_eq!(af_xdp(Ok(()), &rights(&[raw, admin, bpf])), Permission::Allowed);
        assert_eq!(af_xdp(Ok(()), &rights(&[raw, admin, system])), Permission::Allowed, "it holds the other one");
        assert_eq!(af_xdp(Err(Errno::AFNOSUPPORT.into()), &rights(&[])), Permission::Absent);
    }

    #[test]
    fn room_is_that_of_the_nearest_directory_that_there_is() {
        let there = std::env::temp_dir();
        let missing = there.join("ropewalk-no-such-directory/run");
        let (own, below) = (space(&there).expect("a file system"), space(&missing).expect("a file system"));
        assert_eq!((below.directory, below.total_bytes), (missing, own.total_bytes));
        assert!(own.free_bytes <= own.total_bytes && own.total_bytes > 0);
    }

    /// This process itself, since a process may always look at itself.
    #[test]
    fn a_process_that_wants_times_is_named() {
        let own = std::process::id();
        let is_own = |stamping: &[Stamping]| stamping.iter().any(|one| one.process == own);
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("loopback");
        let number = i32::try_from(own).expect("processes have small numbers");
        if pidfd_open(Pid::from_raw(number).expect("not 0"), PidfdFlags::empty()).is_err() {
            return ropewalk_tidy::skipped("probe::a_process_that_wants_times_is_named", "the kernel has no pidfd");
        }
        assert!(!is_own(&stamping(Path::new("/proc")).0));
        ropewalk_io::packet::stamp(&socket).expect("it needs no rights");
        assert!(is_own(&stamping(Path::new("/proc")).0));
    }
}
