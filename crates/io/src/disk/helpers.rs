//! Writes that others do: bytes are gathered in aligned buffers, which helper threads write, several at once, while the next one is
//! filled. So are writes past the page cache (`O_DIRECT`) done, and those of packed bytes, whose packing takes all of a thread's time.
//!
//! ```text
//!   slices --counted copy--> buffer --> helper 0 --pwrite--> file
//!                            buffer --> helper 1 --pwrite-->
//! ```
//! What follows is gathered while earlier blocks are on their way, as long as there is more; what is complete is known block by
//! block. A write past the page cache has to begin and end at a multiple of [`ALIGNMENT`]. So what stands in a file's last, unfinished piece is kept
//! in memory and written again in front of what comes next; behind the last byte zeros are written up to the next multiple, and
//! cut off when the file is closed.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Pool, PoolConfig};

use super::worker::Worker;
use super::{DiskCause, files};
use crate::doorbell::Doorbell;

/// Where such writes begin and end: a multiple of every device's block.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes of one write. Longer ones are no faster, and leave less to overlap with the copy.
const BLOCK: usize = 1 << 20;
/// Writes under way at once: while the disk does one it has the next. With more of them more memory is filled in turn, and what
/// is copied last lies in no cache any more when it is written (measured: docs/performance.md, "Storing").
const HELPERS: usize = 2;
/// One for each helper, and one that is being filled.
const BUFFERS: usize = HELPERS + 1;

/// A buffer's first `length` bytes are to be written.
struct Job {
    /// Stays open until the job has ended: see [`Helpers::end`].
    file: RawFd,
    /// Which block of those that follow each other it is.
    number: u64,
    buffer: Loan,
    length: usize,
    offset: u64,
}

struct Ended {
    number: u64,
    buffer: Loan,
    result: Result<(), DiskCause>,
}

/// The helper threads and their buffers. Dropping it ends them, after what they have to do.
pub(super) struct Helpers {
    helpers: Vec<Worker<Job, Ended>>,
    /// The writer's, which is rung when a helper has done something while it sleeps.
    bell: Arc<Doorbell>,
    idle: Vec<Loan>,
    in_flight: usize,
    failure: Option<DiskCause>,
    /// The block that is being filled, how far, and where it will stand; none between two passes.
    filling: Option<Loan>,
    filled: usize,
    offset: u64,
    /// This pass ends at a multiple of this.
    granule: usize,
    /// The blocks of this pass.
    blocks: Blocks,
    /// What the buffers lie in.
    _memory: Pool,
}

/// Which blocks of a pass have ended: those before one of them, and behind it some, since writes do not end in their order.
#[derive(Default)]
struct Blocks {
    /// So many were submitted.
    submitted: u64,
    /// Every one before this has ended.
    all_ended_before: u64,
    /// Whether those behind have: one bit each.
    ended: u64,
}

impl Blocks {
    /// Whether the oldest one that has not ended must end before another one is submitted: the others went on without it for
    /// as long as there is a place to remember that.
    const fn is_full(&self) -> bool {
        self.submitted - self.all_ended_before == u64::BITS as u64
    }

    /// The number of a block that is submitted.
    const fn submit(&mut self) -> u64 {
        self.submitted += 1;
        self.submitted - 1
    }

    /// This block has ended.
    const fn end(&mut self, number: u64) {
        self.ended |= 1 << (number - self.all_ended_before);
        let in_order = self.ended.trailing_ones();
        self.all_ended_before += in_order as u64;
        self.ended = if in_order == u64::BITS { 0 } else { self.ended >> in_order };
    }

    /// Those that were submitted behind those that have all ended.
    const fn behind(&self) -> u64 {
        self.submitted - self.all_ended_before
    }
}

impl Helpers {
    /// Starts the threads, which ring this bell when they have done something; they run where the calling thread may.
    pub(super) fn start(bell: Arc<Doorbell>) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let start = |number| Worker::start(format!("{name}.{number}"), BUFFERS, Arc::clone(&bell), Job::carry_out);
        let helpers = (0..HELPERS).map(start).collect::<io::Result<_>>()?;
        // In huge pages, if it may be: a device is given a third more a second from them than from pages of 4 KiB (measured:
        // docs/performance.md, "Storing").
        let mut memory = Pool::new(PoolConfig::anonymous(&name, BLOCK, BUFFERS)).map_err(io::Error::other)?;
        let idle = (0..BUFFERS).filter_map(|_| memory.loan(Owner::SHARED)).collect();
        Ok(Self {
            helpers,
            bell,
            idle,
            in_flight: 0,
            failure: None,
            filling: None,
            filled: 0,
            offset: 0,
            granule: ALIGNMENT,
            blocks: Blocks::default(),
            _memory: memory,
        })
    }

    /// A pass begins: what is added follows `tail`, which stands in the file from `offset` on, a multiple of `granule`. So is where
    /// it ends, by zeros behind the last byte: [`ALIGNMENT`], or 1 where the page cache takes any.
    pub(super) fn begin(&mut self, tail: &[u8], offset: u64, granule: usize) {
        (self.filled, self.offset, self.granule, self.blocks) = (tail.len(), offset, granule, Blocks::default());
        self.filling = self.buffer();
        if let Some(buffer) = &mut self.filling {
            buffer.spare()[..tail.len()].copy_from_slice(tail);
        }
    }

    /// Copies a slice behind what was added before; full blocks are on their way. The file stays open until [`Helpers::end`].
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

    /// Up to which offset everything of this pass has been written without an error.
    pub(super) fn written_to(&mut self) -> u64 {
        self.take();
        let behind = self.blocks.behind() * BLOCK as u64;
        if self.failure.is_some() { 0 } else { self.offset - behind }
    }

    /// Whether a block is on its way.
    pub(super) const fn is_at_work(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether something could not be written, so that there is no use in adding more.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The pass ends: the rest is written, and everything is waited for.
    ///
    /// # Errors
    /// Why something was not written. Any part behind what [`Helpers::written_to`] said may stand in the file then.
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
        // The file may be closed when nobody writes it any more.
        while self.in_flight > 0 {
            self.wait();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A buffer to fill; waits for one. None, which fails the pass, where they went with helpers that panicked.
    fn buffer(&mut self) -> Option<Loan> {
        loop {
            match self.idle.pop() {
                Some(buffer) => return Some(buffer),
                None if self.in_flight == 0 => {
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
        while self.blocks.is_full() && self.in_flight > 0 {
            self.wait();
        }
        let number = self.blocks.submit();
        let job = Job { file: file.as_raw_fd(), number, buffer, length, offset: self.offset };
        // Writes do not end in their order: whoever has least to do takes it. There is room: no helper ever has more than there
        // are buffers.
        let helper = self.helpers.iter_mut().min_by_key(|helper| helper.under_way());
        if helper.is_some_and(|helper| helper.give(job)) {
            self.in_flight += 1;
        } else {
            self.failure = Some(DiskCause::NotOpen);
        }
    }

    /// Takes what has ended; sleeps until something has.
    fn wait(&mut self) {
        let before = self.in_flight;
        self.take();
        while self.in_flight == before {
            self.bell.arm();
            self.take();
            if self.in_flight == before {
                self.bell.wait();
            }
            self.bell.disarm();
            self.bell.silence();
            self.take();
        }
    }

    fn take(&mut self) {
        for helper in &mut self.helpers {
            while let Some(Ended { number, buffer, result }) = helper.take() {
                self.idle.push(buffer);
                self.blocks.end(number);
                self.failure = self.failure.or(result.err());
                self.in_flight -= 1;
            }
        }
    }
}

impl Job {
    fn carry_out(self) -> Ended {
        let Self { file, number, mut buffer, length, offset } = self;
        // SAFETY: whoever submitted the job holds the file open, by reference, until it has taken its end; and where it
        // panics in between, this thread is joined before any file is closed, because the helpers are dropped first.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let result = write_all(file, &buffer.spare()[..length], offset);
        Ended { number, buffer, result }
    }
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), DiskCause> {
    while !bytes.is_empty() {
        let written = files::write(file, &[io::IoSlice::new(bytes)], offset)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn the_others_go_on_without_a_block_that_takes_long_but_not_for_ever() {
        let mut blocks = Blocks::default();
        let slow = blocks.submit();
        for others in 1..64 {
            assert!(!blocks.is_full(), "after {others}");
            let number = blocks.submit();
            blocks.end(number);
            assert_eq!(blocks.behind(), others + 1);
        }
        assert!(blocks.is_full());
        blocks.end(slow);
        assert!(!blocks.is_full());
        assert_eq!((blocks.behind(), blocks.submit()), (0, 64));
    }

    #[test]
    fn blocks_that_end_out_of_order_count_when_those_before_them_have() {
        let mut blocks = Blocks::default();
        let [first, second, third] = [(); 3].map(|()| blocks.submit());
        blocks.end(third);
        assert_eq!(blocks.behind(), 3);
        blocks.end(first);
        assert_eq!(blocks.behind(), 2);
        blocks.end(second);
        assert_eq!(blocks.behind(), 0);
    }
}
