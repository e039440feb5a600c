//! Growing files: created, appended to, synced, published under their final name; all asynchronously.
//!
//! Every queued call ends in exactly one [`Completion`], in the order of the calls. Slices are not copied when they
//! are queued, and return to their pool after they are written.
//!
//! A file that another program deletes or moves while it is written is not lost. Before a disk reports an append, a
//! sync or a publication as successful, it looks up the file, and if the file is gone, writes its content once more. A
//! directory that was entered and is gone is made again, unless its whole file system is gone: the data must not fill
//! another disk instead.

mod helper;
mod open_file;
mod probe;
mod real;
mod remover;
mod seal;
mod simulated;
mod writer;

use core::fmt;
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::run_file::{CHECKSUM_EXTENSION, Checksum, Compression};
use rustix::io::Errno;

pub use self::open_file::free_bytes;
pub use self::probe::{WriteProbe, probe_writes, write_probe};
pub use self::real::{RealDisk, RealDiskConfig, WriteMode};
pub use self::simulated::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};

/// A file that a [`Disk`] is writing. Never used twice by one disk.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileToken(pub u32);

/// Settings of a new file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NewFile {
    /// Bytes to preallocate, if the file system can; 0 for none.
    pub preallocate: u64,
    /// Whether to write its CRC-32C into a file next to it when it is published: a file of the same name with
    /// [`CHECKSUM_EXTENSION`], which contains eight hexadecimal digits, two spaces and the name.
    pub checksum: bool,
    /// Compression of the appended bytes: each append becomes one packed stretch or several.
    pub compression: Compression,
    /// Whether the disk computes the checksums of open records
    /// ([`EventRecordEncoder::begin_open`](ropewalk_wire::run_file::EventRecordEncoder::begin_open)) while it copies
    /// them. Each append then consists of whole records of a run file, and the tail of an open record is a separate
    /// slice.
    pub seals: bool,
    /// Index of the disk's thread that writes it, counted from 0.
    pub thread: u8,
}

/// Cause of a failed disk operation.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DiskCause {
    /// No space left (or the user's or the file's limit is reached): try again when there is.
    Full,
    /// The directory or the file does not exist.
    NotFound,
    /// The file exists already.
    Exists,
    /// Missing permission.
    Denied,
    /// The file was never created, or has been published.
    NotOpen,
    /// Another program deleted or moved the file while it was written, and it could not be written once more.
    Deleted,
    /// Any other error of the operating system, by its number (`errno`).
    System(i32),
}

impl DiskCause {
    /// The operating system's number of the error (`errno`).
    pub const fn number(self) -> i32 {
        let error = match self {
            Self::Full => Errno::NOSPC,
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::Denied => Errno::ACCESS,
            Self::NotOpen => Errno::BADF,
            Self::Deleted => Errno::STALE,
            Self::System(number) => return number,
        };
        error.raw_os_error()
    }
}

impl fmt::Display for DiskCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("no room left on the disk"),
            Self::NotFound => out.write_str("no such file or directory"),
            Self::Exists => out.write_str("the file exists already"),
            Self::Denied => out.write_str("permission denied"),
            Self::NotOpen => out.write_str("the file is not open"),
            Self::Deleted => out.write_str("the file was deleted, and it cannot be written once more"),
            Self::System(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
        }
    }
}

/// The queue has no room for the append; nothing was taken. There is room after appends have completed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk's queue is full")]
pub struct QueueFull;

/// The result of a call.
#[derive(Debug)]
pub enum Completion {
    /// Of [`Disk::create`]. After an error, everything else with the file fails as [`DiskCause::NotOpen`].
    Created {
        /// The file.
        file: FileToken,
        /// Whether it was created.
        result: Result<(), DiskCause>,
    },
    /// Of [`Disk::append`]: the bytes are with the operating system; they survive the end of the process.
    Appended {
        /// The file.
        file: FileToken,
        /// As passed.
        cookie: u64,
        /// Offset of the bytes in the file, packed or not.
        offset: u64,
        /// Time from the call until they were written, by the disk's own clock.
        took: Duration,
    },
    /// Of [`Disk::append`]: nothing of it is in the file, which ends with the last good append. Every append to the
    /// file that was queued behind it fails too, so that none overtakes another. Append again, in order, after all of
    /// them have been returned and the cause is gone.
    AppendFailed {
        /// The file.
        file: FileToken,
        /// As passed.
        cookie: u64,
        /// The cause.
        cause: DiskCause,
        /// The slices, complete.
        data: Vec<Slice>,
    },
    /// Of [`Disk::sync`]: the bytes appended before survive a power cut.
    Synced {
        /// The file.
        file: FileToken,
        /// As passed.
        cookie: u64,
        /// Whether the sync succeeded.
        result: Result<(), DiskCause>,
    },
    /// Of [`Disk::publish`]: the file is closed and has its final name. After an error it is still open.
    Published {
        /// The file.
        file: FileToken,
        /// As passed.
        cookie: u64,
        /// Whether it was published.
        result: Result<(), DiskCause>,
    },
    /// Of [`Disk::remove`].
    Removed {
        /// As passed.
        cookie: u64,
        /// Whether the file was removed.
        result: Result<(), DiskCause>,
    },
    /// Of [`Disk::look_for`].
    LookedFor {
        /// As passed.
        cookie: u64,
        /// Whether the file exists; [`DiskCause::NotFound`] if it does not.
        result: Result<(), DiskCause>,
    },
}

/// Writes files. Calls never block, except [`free_bytes`](Disk::free_bytes); results are completions.
pub trait Disk: Send {
    /// Makes the directory and its parents if missing, and returns the names of its entries. Waits for the operating
    /// system: between runs only. An error shows at the first file.
    fn enter_directory(&mut self, path: &Path) -> Vec<String>;

    /// Returns the bytes of a small file. Waits for the operating system: between runs only.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, DiskCause>;

    /// Creates a file, which must not exist yet: nothing is ever overwritten.
    fn create(&mut self, path: &Path, how: NewFile) -> FileToken;

    /// Appends the slices as one piece. They are taken out of the vector, whose capacity stays with the caller. An
    /// empty queue accepts any size. Until the file is published there may be zeros behind its last append, up to the
    /// next multiple of 4,096 bytes.
    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) -> Result<(), QueueFull>;

    /// Makes the bytes appended so far survive a power cut.
    fn sync(&mut self, file: FileToken, cookie: u64);

    /// Closes the file and gives it its final name, in the same file system. With the sync policy on, file and
    /// name survive a power cut.
    fn publish(&mut self, file: FileToken, final_path: &Path, cookie: u64);

    /// Deletes a file. A segment is deleted in the background, so that no other call waits for it. A large segment has
    /// another name meanwhile ([`DELETED_EXTENSION`](ropewalk_wire::run_file::DELETED_EXTENSION)); such leftovers of a
    /// killed process are deleted when a run directory next to it is entered.
    fn remove(&mut self, path: &Path, cookie: u64);

    /// Checks whether the file exists.
    fn look_for(&mut self, path: &Path, cookie: u64);

    /// Returns the free bytes below this path. Asks the operating system: not for every batch.
    fn free_bytes(&mut self, path: &Path) -> Result<u64, DiskCause>;

    /// Appends the completed calls to `completions`; returns their number.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Bytes of appends that have not completed.
    fn queued_bytes(&self) -> usize;

    /// Bytes that were copied for writing since the disk was made.
    fn copied_bytes(&self) -> u64;

    /// Number of files that were deleted or moved while they were written, and that were written once more.
    fn restored_files(&self) -> u64;

    /// Prepares the thread for sleep. False if [`poll`](Self::poll) has something to do right now; otherwise arms the
    /// wake-up of [`wait_descriptor`](Self::wait_descriptor).
    fn prepare_wait(&mut self) -> bool;

    /// Becomes readable when `poll` has something to do; `None` for a simulated disk.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Time at which `poll` has something to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;
}

/// Path and text of the checksum file of a file.
pub fn checksum_file(path: &Path, checksum: Checksum) -> (PathBuf, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!("{name}{CHECKSUM_EXTENSION}"));
    (beside, format!("{:08x}  {name}\n", checksum.value()))
}

fn length_of(data: &[Slice]) -> usize {
    data.iter().map(|slice| slice.len()).sum()
}
