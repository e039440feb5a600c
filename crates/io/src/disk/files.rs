//! The system calls of files, and what their errors mean here.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::DiskCause;

/// What a file system in memory calls itself (`TMPFS_MAGIC`).
const TMPFS: fs::FsWord = 0x0102_1994;

pub(super) const fn cause(error: Errno) -> DiskCause {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DiskCause::Full,
        Errno::NOENT | Errno::NOTDIR => DiskCause::NotFound,
        Errno::EXIST => DiskCause::Exists,
        Errno::ACCESS | Errno::PERM => DiskCause::Denied,
        other => DiskCause::System(other.raw_os_error()),
    }
}

/// Makes a directory and lists what is in it.
pub(super) fn enter_directory(path: &Path) -> Vec<String> {
    // An error shows again, with its cause, when the first file is created.
    let _ = std::fs::create_dir_all(path);
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// On which file system a path lies, by its number (`st_dev`).
pub(super) fn file_system(path: &Path) -> Option<u64> {
    fs::stat(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok().map(|found| found.st_dev)
}

/// Makes the directory of a file again, if this file system still is what carries it.
pub(super) fn restore_directory_of(path: &Path, wanted: u64) -> Result<(), DiskCause> {
    let directory = path.parent().ok_or(DiskCause::NotFound)?;
    if directory.ancestors().find_map(file_system) != Some(wanted) {
        return Err(DiskCause::NotFound);
    }
    std::fs::create_dir_all(directory).map_err(|error| Errno::from_io_error(&error).map_or(DiskCause::NotFound, cause))
}

/// Whether this path leads to this file. What cannot be found out is believed.
pub(super) fn is_at(file: &OwnedFd, path: &Path) -> bool {
    match (fs::fstat(file), fs::stat(path)) {
        (Ok(open), Ok(named)) => (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino),
        (Ok(_), Err(Errno::NOENT | Errno::NOTDIR)) => false,
        _ => true,
    }
}

/// Copies the first bytes of a file, which may have lost its name, into another one.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<(), DiskCause> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).map_or(DiskCause::NotFound, cause);
    // It was opened to be written; the system lets its owner open it once more, to be read.
    let from = std::fs::File::open(format!("/proc/self/fd/{}", from.as_raw_fd())).map_err(failed)?;
    let mut to = std::fs::File::from(to.try_clone().map_err(failed)?);
    let copied = std::io::copy(&mut std::io::Read::take(from, bytes), &mut to).map_err(failed)?;
    if copied == bytes { Ok(()) } else { Err(DiskCause::NotFound) }
}

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, DiskCause> {
    std::fs::read(path).map_err(|error| {
        error.raw_os_error().map_or(DiskCause::NotFound, |number| cause(Errno::from_raw_os_error(number)))
    })
}

/// A new, empty file.
pub(super) fn create(path: &Path, preallocate: u64) -> Result<OwnedFd, DiskCause> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(cause)?;
    // Says to whoever recovers files that this one has a living writer; where locks are unknown, nothing does.
    let _ = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    if preallocate > 0 {
        // The size stays what was written, so that a reader never sees zeros at the end. Where it cannot be
        // done the file grows as it is written; where there is no room the first append will say so.
        let _ = fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, preallocate);
    }
    Ok(file)
}

/// The error of a write that the file system or the device does not know (`EINVAL`).
pub(super) const INVALID: i32 = Errno::INVAL.raw_os_error();

/// The error of whoever finds no memory (`ENOMEM`).
pub(super) const NO_MEMORY: i32 = Errno::NOMEM.raw_os_error();

/// A second way into a file, past the page cache; none where the file system has no such way, or no use for it.
pub(super) fn open_direct(path: &Path) -> Option<OwnedFd> {
    let file = fs::open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Files in memory are their own page cache, whatever their file system says.
    let is_memory = fs::fstatfs(&file).is_ok_and(|system| system.f_type == TMPFS);
    (!is_memory).then_some(file)
}

/// Writes slices at an offset; returns how many bytes, or why none.
pub(super) fn write(file: impl AsFd, gathered: &[IoSlice<'_>], offset: u64) -> Result<usize, DiskCause> {
    loop {
        match rustix::io::pwritev(&file, gathered, offset) {
            Ok(0) => return Err(DiskCause::Full),
            Ok(written) => return Ok(written),
            Err(Errno::INTR) => {}
            Err(error) => return Err(cause(error)),
        }
    }
}

/// A small file with this text, whatever was there before.
pub(super) fn write_small(path: &Path, text: &str, durable: bool) -> Result<(), DiskCause> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(cause)?;
    let written = write(&file, &[IoSlice::new(text.as_bytes())], 0)?;
    if written < text.len() {
        return Err(DiskCause::Full);
    }
    if durable { sync(&file) } else { Ok(()) }
}

/// Cuts the file back to what is good, and frees what was set aside behind.
pub(super) fn truncate(file: &OwnedFd, length: u64) {
    // If it fails, the next append overwrites what is too much, and readers check records anyway.
    let _ = fs::ftruncate(file, length);
}

pub(super) fn sync(file: &OwnedFd) -> Result<(), DiskCause> {
    fs::fdatasync(file).map_err(cause)
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DiskCause> {
    fs::rename(from, to).map_err(cause)
}

/// Makes the names in a file's directory survive a power cut.
pub(super) fn sync_directory_of(path: &Path) -> Result<(), DiskCause> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(directory, flags, Mode::empty()).map_err(cause)?;
    fs::fsync(&directory).map_err(cause)
}

pub(super) fn remove(path: &Path) -> Result<(), DiskCause> {
    fs::unlink(path).map_err(cause)
}

/// Whether there is a file; none either where a directory of its path is something else by now.
pub(super) fn look_for(path: &Path) -> Result<(), DiskCause> {
    match fs::stat(path) {
        Ok(_) => Ok(()),
        Err(Errno::NOTDIR) => Err(DiskCause::NotFound),
        Err(error) => Err(cause(error)),
    }
}

/// Bytes that can still be written below this path. Asks the operating system.
///
/// # Errors
/// Where there is no such path, or the system does not say.
pub fn free_bytes(path: &Path) -> Result<u64, DiskCause> {
    let state = fs::statvfs(path).map_err(cause)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}
