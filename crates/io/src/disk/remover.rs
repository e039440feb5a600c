//! Deletes files on a thread that writes nothing: freeing a large file may take seconds (ext4 with `discard` waits for
//! the device), and appends must not wait for it.
//!
//! ```text
//!   NAME --rename--> NAME.deleted --cut, STEP by STEP--> short --unlink--> gone
//! ```
//! After the renaming no reader finds the file, so that a process that is killed in between leaves no damaged run. Its
//! leftovers are deleted when a directory next to it is entered ([`Job::CleanUp`]).
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_wire::run_file::{DELETED_EXTENSION, SegmentName, is_run_directory};
use rustix::fs::{self, Mode, OFlags};

use super::writer::{Done, UNDER_WAY, Worker};
use super::{DiskCause, open_file, probe};
use crate::doorbell::Doorbell;

/// Bytes that are freed at once: few enough that other work of the file system is done in between.
const STEP: u64 = 64 << 20;

/// Maximum number of devices that wait to be probed.
const PROBES: usize = 64;

/// A request to the thread.
pub(super) enum Job {
    Remove {
        path: PathBuf,
        cookie: u64,
    },
    CleanUp {
        output: PathBuf,
    },
    /// See [`probe`]: done next to the run, so that it delays nothing.
    Probe {
        directory: PathBuf,
    },
}

/// The thread. Dropping it ends it after its pending jobs.
pub(super) struct Remover(Worker<Job, Option<Done>>);

impl Remover {
    /// Starts the thread, which rings this bell after each job; it runs on the CPUs of the calling thread. With `sync`
    /// a shortened file does not get its name back after a power cut.
    pub(super) fn start(bell: Arc<Doorbell>, sync: bool) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        Worker::start(format!("{name}.remove"), UNDER_WAY + PROBES, bell, move |job: Job| job.carry_out(sync)).map(Self)
    }

    /// Hands over a job. There is room for it: the user never has more commands in flight. A probe without room is
    /// dropped.
    pub(super) fn give(&mut self, job: Job) {
        self.0.give(job);
    }

    /// The result of the oldest job, if it has ended; `Some(None)` for a job that is no command.
    pub(super) fn take(&mut self) -> Option<Option<Done>> {
        self.0.take()
    }

    /// Whether no job has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

impl Job {
    /// Carries out the job; `None` if no command of the user has ended with it.
    pub(super) fn carry_out(self, sync: bool) -> Option<Done> {
        match self {
            Self::Remove { path, cookie } => Some(Done::Removed { cookie, result: remove(&path, sync), path }),
            Self::CleanUp { output } => {
                clean_up(&output);
                Some(Done::CleanedUp { path: output })
            }
            Self::Probe { directory } => {
                probe::probe_and_remember(&directory);
                None
            }
        }
    }
}

/// Whether a file of this path is a segment, which may be large. Others are small, and may be recreated right
/// afterwards.
pub(super) fn is_segment(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<SegmentName>().is_ok())
}

/// Deletes a file, in steps if it is large.
fn remove(path: &Path, sync: bool) -> Result<(), DiskCause> {
    let found = fs::lstat(path).map_err(open_file::cause)?;
    // A file with a second name keeps its content.
    let is_plain = fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::RegularFile && found.st_nlink == 1;
    if !is_plain || found.st_size as u64 <= STEP {
        return open_file::remove(path);
    }
    let mut hidden = OsString::from(path);
    hidden.push(DELETED_EXTENSION);
    let hidden = PathBuf::from(hidden);
    open_file::rename(path, &hidden)?;
    if sync && open_file::sync_directory_of(&hidden).is_err() {
        // A shortened file could get its old name back after a power cut.
        return open_file::remove(&hidden);
    }
    finish(&hidden)
}

/// Frees a hidden file step by step and deletes it. Another process may do the same.
fn finish(hidden: &Path) -> Result<(), DiskCause> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(file) = fs::open(hidden, flags, Mode::empty())
        && is_alone(&file)
    {
        let mut length = fs::fstat(&file).map_or(0, |found| found.st_size as u64);
        while length > STEP {
            length -= STEP;
            if fs::ftruncate(&file, length).is_err() {
                break;
            }
        }
    }
    match open_file::remove(hidden) {
        Err(DiskCause::NotFound) => Ok(()),
        result => result,
    }
}

/// Whether no other descriptor of the file is open: a program that still reads it must not see it shrink. Only then
/// does the kernel give a write lease. A file system without leases never gives one, and there the file is deleted at
/// once.
fn is_alone(file: &OwnedFd) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: the descriptor is open, and this call reads and writes no memory of this process.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // Without the lease none of its signals can arrive. No program opens the file by its hidden name.
    lease(libc::F_WRLCK) && lease(libc::F_UNLCK)
}

/// Deletes the hidden files in the run directories of an output, left by a killed process.
fn clean_up(output: &Path) {
    let names = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_run = |name: &OsString| name.to_str().is_some_and(is_run_directory);
    for directory in names(output).filter(|entry| is_run(&entry.file_name())) {
        for file in names(&directory.path()).filter(|entry| entry.file_name().to_str().is_some_and(is_left_behind)) {
            // A file that cannot be deleted takes space, but does no other harm.
            let _ = finish(&file.path());
        }
    }
}

/// Whether a file of this name was a segment being deleted.
fn is_left_behind(name: &str) -> bool {
    name.strip_suffix(DELETED_EXTENSION).is_some_and(|segment| segment.parse::<SegmentName>().is_ok())
}
