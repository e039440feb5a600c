//! Writes on a thread of their own: bytes are gathered in aligned buffers, and a helper thread writes one buffer while the next one
//! is filled. Writes past the page cache (`O_DIRECT`) go this way, and those of packed bytes, so that packing is not held up.
//!
//! ```text
//!   slices --counted copy--> buffer --> helper --pwrite--> file
//! ```
//! A file is written by one thread, from front to back. Several writes of one file at once overtake each other, and a file system
//! that is written out of order behind its end is slow: ext4 with `discard` discards many small pieces.
//!
//! A write past the page cache has to begin and end at a multiple of [`ALIGNMENT`]. So the file's last, unfinished piece is kept in
//! memory and written again in front of what comes next; behind the last byte zeros are written up to the next multiple, and cut
//! off when the file is closed.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Pool, PoolConfig};

use super::writer::Worker;
use super::{DiskCause, open_file};
use crate::doorbell::Doorbell;

/// Where such writes begin and end: a multiple of every device's block.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes of one write. On a busy machine the helper waits for a processor after each write, so that shorter writes leave the
/// device idle more often; longer ones are no faster (docs/performance.md, "Storing").
const BLOCK: usize = 4 << 20;
/// One buffer that is written, one that is filled, and one in reserve for a copy that takes longer than a write.
const BUFFERS: usize = 3;

/// A buffer's first `length` bytes are to be written.
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

/// The helper thread and its buffers. Dropping it ends the thread, after what it has to do.
pub(super) struct Helper {
    worker: Worker<Job, Ended>,
    /// The writer's, which is rung when the helper has done something while it sleeps.
    bell: Arc<Doorbell>,
    idle: Vec<Loan>,
    failure: Option<DiskCause>,
    /// The block that is being filled, how far, and where it will stand; `None` between two passes.
    filling: Option<Loan>,
    filled: usize,
    offset: u64,
    /// This pass ends at a multiple of this.
    granule: usize,
    /// What the buffers lie in.
    _memory: Pool,
}

impl Helper {
    /// Starts the thread, which rings this bell when it has done something; it runs where the calling thread may.
    pub(super) fn start(bell: Arc<Doorbell>) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let worker = Worker::start(format!("{name}.write"), BUFFERS, Arc::clone(&bell), Job::carry_out)?;
        // In huge pages, if it may be: a device is given a third more a second from them than from pages of 4 KiB (measured:
        // docs/performance.md, "Storing").
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

    /// Begins a pass: what is added follows `tail`, which belongs to the file from `offset` on, a multiple of
    /// `granule`. Zeros behind the last byte make its end one too: [`ALIGNMENT`], or 1 where the page cache takes any.
    pub(super) fn begin(&mut self, tail: &[u8], offset: u64, granule: usize) {
        (self.filled, self.offset, self.granule) = (tail.len(), offset, granule);
        self.filling = self.buffer();
        if let Some(buffer) = &mut self.filling {
            buffer.spare()[..tail.len()].copy_from_slice(tail);
        }
    }

    /// Copies a slice behind what was added before; full blocks are on their way. The file stays open until [`Helper::end`].
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

    /// Up to which offset everything of this pass has been written without an error. To be asked before [`Helper::end`].
    pub(super) fn written_to(&mut self) -> u64 {
        self.take();
        // Blocks end in their order, and all but a pass's last one are full.
        let under_way = (self.worker.under_way() * BLOCK) as u64;
        if self.failure.is_some() { 0 } else { self.offset - under_way }
    }

    /// Whether a block is on its way.
    pub(super) const fn is_at_work(&self) -> bool {
        self.worker.under_way() > 0
    }

    /// Whether something could not be written, so that there is no use in adding more.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The pass ends: the rest is written, and everything is waited for.
    ///
    /// # Errors
    /// Why something was not written. Any part behind what [`Helper::written_to`] said may stand in the file then.
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
        // The file may be closed once it is no longer written.
        while self.is_at_work() {
            self.wait();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A buffer to fill; waits for one. None, which fails the pass, where they went with a helper that panicked.
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
            // Nothing behind what failed is part of the file.
            self.idle.push(buffer);
            return;
        }
        // There is room: the helper never has more than there are buffers.
        if !self.worker.give(Job { file: file.as_raw_fd(), buffer, length, offset: self.offset }) {
            self.failure = Some(DiskCause::NotOpen);
        }
    }

    /// Takes what has ended; sleeps until something has.
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
