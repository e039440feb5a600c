//! Writes on a separate thread: bytes are gathered in aligned buffers, and a helper thread writes one buffer while the
//! next one is filled. Used for writes past the page cache (`O_DIRECT`), and for packed bytes, so that writing does not
//! delay packing.
//!
//! ```text
//!   slices --counted copy--> buffer --> helper --pwrite--> file
//! ```
//! A file is written by one thread, from front to back. Several writes of one file at once overtake each other, and a
//! file system is slow when it is written out of order behind a file's end: ext4 with `discard` discards many small
//! pieces.
//!
//! A write past the page cache has to begin and end at a multiple of [`ALIGNMENT`]. The file's last, unfinished piece
//! is therefore kept in memory and written again in front of the next bytes. Zeros are written behind the last byte up
//! to the next multiple, and cut off when the file is closed.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Pool, PoolConfig};

use super::writer::Worker;
use super::{DiskCause, open_file};
use crate::doorbell::Doorbell;

/// Alignment of such writes: a multiple of every device's block.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes of one write. On a busy machine the helper waits for a processor after each write, so that shorter writes leave the
/// device idle more often; longer ones are no faster (docs/performance.md, "Storing").
const BLOCK: usize = 4 << 20;
/// One buffer that is written, one that is filled, and one in reserve for a copy that takes longer than a write.
const BUFFERS: usize = 3;

/// A request to write a buffer's first `length` bytes.
struct Job {
    /// Stays open until the job has ended: see [`Helper::end`].
    file: RawFd,
    buffer: Loan,
    length: usize,
    offset: u64,
}

struct Ended {
    buffer: Loan,
    result: Result<(), DiskCause>,
}

/// The helper thread and its buffers. Dropping it ends the thread after its pending jobs.
pub(super) struct Helper {
    worker: Worker<Job, Ended>,
    /// The writer's bell, rung when the helper has done something while the writer sleeps.
    bell: Arc<Doorbell>,
    idle: Vec<Loan>,
    failure: Option<DiskCause>,
    /// The block that is being filled, its fill level, and its offset in the file; `None` between two passes.
    filling: Option<Loan>,
    filled: usize,
    offset: u64,
    /// The end of this pass is a multiple of this, in bytes.
    granule: usize,
    /// The memory of the buffers.
    _memory: Pool,
}

impl Helper {
    /// Starts the thread, which rings this bell after each job; it runs on the CPUs of the calling thread.
    pub(super) fn start(bell: Arc<Doorbell>) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let worker = Worker::start(format!("{name}.write"), BUFFERS, Arc::clone(&bell), Job::carry_out)?;
        // In huge pages, if possible: a device takes a third more bytes a second from them than from pages of 4 KiB
        // (measured: docs/performance.md, "Storing").
        let mut memory = Pool::new(PoolConfig::anonymous(&name, BLOCK, BUFFERS)).map_err(io::Error::other)?;
        let idle = (0..BUFFERS).filter_map(|_| memory.loan(Owner::SHARED)).collect();
        Ok(Self {
            worker,
            bell,
            idle,
            failure: None,
            filling: None,
            filled: 0,
            offset: 0,
            granule: ALIGNMENT,
            _memory: memory,
        })
    }

    /// Begins a pass: added bytes follow `tail`, which belongs to the file from `offset` on, a multiple of `granule`.
    /// Zeros behind the last byte make the pass's end a multiple too: of [`ALIGNMENT`], or of 1 if the page cache takes
    /// any length.
    pub(super) fn begin(&mut self, tail: &[u8], offset: u64, granule: usize) {
        (self.filled, self.offset, self.granule) = (tail.len(), offset, granule);
        self.filling = self.buffer();
        if let Some(buffer) = &mut self.filling {
            buffer.spare()[..tail.len()].copy_from_slice(tail);
        }
    }

    /// Copies a slice behind the bytes added before, and starts writing full blocks. The file stays open until
    /// [`Helper::end`].
    pub(super) fn add(&mut self, file: &OwnedFd, mut slice: &[u8]) {
        while !slice.is_empty() {
            let Some(mut buffer) = self.filling.take().or_else(|| self.buffer()) else { return };
            let (now, later) = slice.split_at(slice.len().min(BLOCK - self.filled));
            buffer.spare()[self.filled..self.filled + now.len()].copy_from_slice(now);
            (slice, self.filled) = (later, self.filled + now.len());
            if self.filled == BLOCK {
                self.submit(file, buffer, BLOCK);
                (self.offset, self.filled) = (self.offset + BLOCK as u64, 0);
            } else {
                self.filling = Some(buffer);
            }
        }
    }

    /// Offset up to which all bytes of this pass have been written without an error. Call it before [`Helper::end`].
    pub(super) fn written_to(&mut self) -> u64 {
        self.take();
        // Blocks complete in order, and all but a pass's last one are full.
        let under_way = (self.worker.under_way() * BLOCK) as u64;
        if self.failure.is_some() { 0 } else { self.offset - under_way }
    }

    /// Whether a block is being written.
    pub(super) const fn is_at_work(&self) -> bool {
        self.worker.under_way() > 0
    }

    /// Whether a write has failed, so that adding more is of no use.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Ends the pass: writes the rest, and waits for everything.
    ///
    /// # Errors
    /// Cause of a failed write. Any part behind [`Helper::written_to`] may then be in the file.
    pub(super) fn end(&mut self, file: &OwnedFd) -> Result<(), DiskCause> {
        if let Some(mut buffer) = self.filling.take() {
            let length = self.filled.next_multiple_of(self.granule);
            buffer.spare()[self.filled..length].fill(0);
            if length > 0 {
                self.submit(file, buffer, length);
            } else {
                self.idle.push(buffer);
            }
        }
        // The file may be closed once no write is in flight.
        while self.is_at_work() {
            self.wait();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Returns a buffer to fill; waits for one. `None`, which fails the pass, if a helper that panicked had them.
    fn buffer(&mut self) -> Option<Loan> {
        loop {
            match self.idle.pop() {
                Some(buffer) => return Some(buffer),
                None if !self.is_at_work() => {
                    self.failure = Some(DiskCause::NotOpen);
                    return None;
                }
                None => self.wait(),
            }
        }
    }

    fn submit(&mut self, file: &OwnedFd, buffer: Loan, length: usize) {
        if self.has_failed() {
            // Bytes behind a failed write are not part of the file.
            self.idle.push(buffer);
            return;
        }
        // There is room: the helper never has more jobs than there are buffers.
        if !self.worker.give(Job { file: file.as_raw_fd(), buffer, length, offset: self.offset }) {
            self.failure = Some(DiskCause::NotOpen);
        }
    }

    /// Takes completed writes; sleeps until there is one.
    fn wait(&mut self) {
        let before = self.worker.under_way();
        self.take();
        while self.worker.under_way() == before {
            self.bell.arm();
            self.take();
            if self.worker.under_way() == before {
                self.bell.wait();
            }
            self.bell.disarm();
            self.bell.silence();
            self.take();
        }
    }

    fn take(&mut self) {
        while let Some(Ended { buffer, result }) = self.worker.take() {
            self.idle.push(buffer);
            self.failure = self.failure.or(result.err());
        }
    }
}

impl Job {
    fn carry_out(self) -> Ended {
        let Self { file, mut buffer, length, offset } = self;
        // SAFETY: the thread that submitted the job holds the file open, by reference, until it has taken its end; if
        // it panics in between, this thread is joined before any file is closed, because the helper is dropped first.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let result = write_all(file, &buffer.spare()[..length], offset);
        Ended { buffer, result }
    }
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), DiskCause> {
    while !bytes.is_empty() {
        let written = open_file::write(file, &[io::IoSlice::new(bytes)], offset)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}
