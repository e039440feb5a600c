//! Disk: what a writer of run files may ask for, without ever waiting for it.
//!
//! ```text
//! create -> append*, sync* -> publish (sync, close, rename)        every piece of work ends in one completion
//! ```
//! Work on one file is done in the order in which it was given. [`RealDisk`] is a thread with a queue; the
//! simulated twin lives in virtual time.

mod real;

pub use real::RealDisk;

use ropewalk_memory::Slice;
use ropewalk_terms::{Instant, Utc};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A file that a disk has open.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileToken(pub u32);

/// Why the disk refused.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DiskCause {
    /// No room is left: the same work may succeed later.
    Full,
    /// Any other error of the operating system, by its number; 0 where it has none.
    System(i32),
}

/// How a piece of work ended.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is not done, and the file is as it was before. What was to be appended comes back.
    Failed {
        /// Why.
        cause: DiskCause,
        /// The slices of a refused append, in their order; empty for other work.
        data: Vec<Slice>,
    },
}

/// A piece of work that ended.
#[derive(Debug)]
pub struct Completion {
    /// The number that the work was given with.
    pub cookie: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// A disk. No call waits for it; results come from [`Disk::poll`].
pub trait Disk {
    /// Makes the directory where it is not there, and returns the names of what is in it. Between runs only: it
    /// waits. An error shows at the first file.
    fn enter_directory(&mut self, path: &Path) -> Vec<String>;

    /// Creates a file that must not be there yet; `preallocate` bytes are set aside where the file system can.
    /// An error comes with the first append.
    fn create(&mut self, path: &Path, preallocate: u64) -> FileToken;

    /// Appends the slices, whole or not at all; the vector is left empty with its capacity, or another's.
    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>);

    /// Makes everything appended so far survive a power cut.
    fn sync(&mut self, file: FileToken, cookie: u64);

    /// Closes the file and gives it its final name; with `sync`, file and directory are synced around that.
    fn publish(&mut self, file: FileToken, final_path: &Path, sync: bool, cookie: u64);

    /// Removes a file.
    fn remove(&mut self, path: &Path, cookie: u64);

    /// A cookie that was not given out before.
    fn next_cookie(&mut self) -> u64;

    /// Bytes that wait to be written.
    fn queued_bytes(&self) -> usize;

    /// Takes what has ended since the last call; returns how much that was.
    fn poll(&mut self, now: Instant, completions: &mut Vec<Completion>) -> usize;

    /// The time of day, for records.
    fn utc(&self, now: Instant) -> Utc;

    /// When [`Disk::poll`] has something to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;

    /// Before the thread sleeps: false if there is something to take right now; arms the wake-up otherwise.
    fn prepare_wait(&mut self) -> bool;

    /// Becomes readable when something has ended.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;
}
