//! Writes past the page cache (`O_DIRECT`): bytes are gathered in aligned buffers, which helper threads write, several at
//! once, while the next one is filled.
//!
//! ```text
//!   slices --counted copy--> buffer --> helper 0 --pwrite--> file
//!                            buffer --> helper 1 --pwrite-->
//! ```
//! Such a write has to begin and end at a multiple of [`ALIGNMENT`]. So what stands in a file's last, unfinished piece is kept
//! in memory and written again in front of what comes next; behind the last byte zeros are written up to the next multiple, and
//! cut off when the file is closed.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rtrb::{Consumer, Producer, RingBuffer};

use super::{DiskCause, files};
use crate::doorbell::Doorbell;

/// Where such writes begin and end: a multiple of every device's block.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes of one write. Longer ones are no faster, and leave less to overlap with the copy.
const BLOCK: usize = 1 << 20;
/// Writes under way at once.
const HELPERS: usize = 4;
/// One for each helper, and one that is being filled.
const BUFFERS: usize = HELPERS + 1;

/// A block of memory that begins at a multiple of [`ALIGNMENT`].
struct Buffer {
    memory: Vec<u8>,
    begin: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; BLOCK + ALIGNMENT];
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, begin }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + BLOCK]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + BLOCK]
    }
}

/// A buffer's first `length` bytes are to be written.
struct Job {
    /// Stays open until the job has ended: see [`Helpers::write`].
    file: RawFd,
    buffer: Buffer,
    length: usize,
    offset: u64,
}

struct Ended {
    buffer: Buffer,
    result: Result<(), DiskCause>,
}

/// A helper thread as the writer sees it.
struct Helper {
    jobs: Producer<Job>,
    ended: Consumer<Ended>,
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

/// The helper threads and their buffers. Dropping it ends them, after what they have to do.
pub(super) struct Helpers {
    /// They take turns.
    helpers: Vec<Helper>,
    turn: usize,
    /// Rung when a helper has done something while the writer sleeps.
    bell: Arc<Doorbell>,
    idle: Vec<Buffer>,
    in_flight: usize,
    failure: Option<DiskCause>,
}

impl Helpers {
    /// Starts the threads; they run where the calling thread may.
    pub(super) fn start() -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let bell = Arc::new(Doorbell::new()?);
        let start = |number| Helper::start(format!("{name}.{number}"), Arc::clone(&bell));
        let helpers = (0..HELPERS).map(start).collect::<io::Result<_>>()?;
        let idle = (0..BUFFERS).map(|_| Buffer::new()).collect();
        Ok(Self { helpers, turn: 0, bell, idle, in_flight: 0, failure: None })
    }

    /// Writes the slices behind `tail`, which stands in the file from `offset` on, a multiple of [`ALIGNMENT`]. Returns how
    /// many bytes were copied.
    ///
    /// # Errors
    /// Why something was not written. Any part may stand in the file then.
    pub(super) fn write<'a>(
        &mut self,
        file: &OwnedFd,
        tail: &[u8],
        mut offset: u64,
        slices: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u64, DiskCause> {
        let mut buffer = self.buffer();
        let mut filled = tail.len();
        let mut copied = filled as u64;
        buffer.bytes_mut()[..filled].copy_from_slice(tail);
        for mut slice in slices {
            copied += slice.len() as u64;
            while !slice.is_empty() {
                let (now, later) = slice.split_at(slice.len().min(BLOCK - filled));
                buffer.bytes_mut()[filled..filled + now.len()].copy_from_slice(now);
                (slice, filled) = (later, filled + now.len());
                if filled == BLOCK {
                    let next = self.buffer();
                    let full = std::mem::replace(&mut buffer, next);
                    self.submit(Job { file: file.as_raw_fd(), buffer: full, length: BLOCK, offset });
                    (offset, filled) = (offset + BLOCK as u64, 0);
                }
            }
        }
        let length = filled.next_multiple_of(ALIGNMENT);
        buffer.bytes_mut()[filled..length].fill(0);
        if length > 0 {
            self.submit(Job { file: file.as_raw_fd(), buffer, length, offset });
        } else {
            self.idle.push(buffer);
        }
        // The file may be closed when nobody writes it any more.
        while self.in_flight > 0 {
            self.wait();
        }
        self.failure.take().map_or(Ok(copied), Err)
    }

    /// A buffer to fill; waits for one.
    fn buffer(&mut self) -> Buffer {
        loop {
            match self.idle.pop() {
                Some(buffer) => return buffer,
                None if self.in_flight == 0 => return Buffer::new(),
                None => self.wait(),
            }
        }
    }

    fn submit(&mut self, job: Job) {
        let count = self.helpers.len();
        let helper = &mut self.helpers[self.turn % count];
        self.turn += 1;
        // There is room: no helper ever has more than there are buffers.
        match helper.jobs.push(job) {
            Ok(()) => {
                self.in_flight += 1;
                helper.bell.notify();
            }
            Err(_) => self.failure = Some(DiskCause::NotOpen),
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
            while let Ok(Ended { buffer, result }) = helper.ended.pop() {
                self.idle.push(buffer);
                self.failure = self.failure.or(result.err());
                self.in_flight -= 1;
            }
        }
    }
}

impl Helper {
    fn start(name: String, done: Arc<Doorbell>) -> io::Result<Self> {
        let (jobs, mut queue) = RingBuffer::<Job>::new(BUFFERS);
        let (mut end, ended) = RingBuffer::new(BUFFERS);
        let bell = Arc::new(Doorbell::new()?);
        let own = Arc::clone(&bell);
        let work = move || {
            loop {
                match queue.pop() {
                    Ok(job) => {
                        // There is room: there are no more buffers than that.
                        let _ = end.push(job.carry_out());
                        done.notify();
                    }
                    Err(_) if queue.is_abandoned() => return,
                    Err(_) => {
                        own.arm();
                        if queue.is_empty() && !queue.is_abandoned() {
                            own.wait();
                        }
                        own.disarm();
                        own.silence();
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Self { jobs, ended, bell, thread: Some(thread) })
    }
}

impl Job {
    fn carry_out(self) -> Ended {
        let Self { file, buffer, length, offset } = self;
        // SAFETY: whoever submitted the job holds the file open, by reference, until it has taken its end; and where it
        // panics in between, this thread is joined before any file is closed, because the helpers are dropped first.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let result = write_all(file, &buffer.bytes()[..length], offset);
        Ended { buffer, result }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        for Helper { jobs, bell, thread, .. } in self.helpers.drain(..) {
            drop(jobs);
            bell.notify();
            if let Some(thread) = thread {
                // A helper that panicked has said so on its own.
                let _ = thread.join();
            }
        }
    }
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), DiskCause> {
    while !bytes.is_empty() {
        let written = files::write(file, &[io::IoSlice::new(bytes)], offset)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}
