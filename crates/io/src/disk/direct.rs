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

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::{DiskCause, files};

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
    file: Arc<OwnedFd>,
    buffer: Buffer,
    length: usize,
    offset: u64,
}

struct Ended {
    buffer: Buffer,
    result: Result<(), DiskCause>,
}

/// The helper threads and their buffers. Dropping it ends them.
pub(super) struct Helpers {
    /// One queue for each thread; they take turns.
    jobs: Vec<Sender<Job>>,
    turn: usize,
    ended: Receiver<Ended>,
    idle: Vec<Buffer>,
    in_flight: usize,
    failure: Option<DiskCause>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    /// Starts the threads; they run where the calling thread may.
    pub(super) fn start() -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let (done, ended) = channel();
        let idle = (0..BUFFERS).map(|_| Buffer::new()).collect();
        let (jobs, threads) = (Vec::new(), Vec::new());
        let mut helpers = Self { jobs, turn: 0, ended, idle, in_flight: 0, failure: None, threads };
        for helper in 0..HELPERS {
            let (queue, jobs) = channel::<Job>();
            let done = done.clone();
            let work = move || {
                for Job { file, buffer, length, offset } in jobs {
                    let result = write_all(&file, &buffer.bytes()[..length], offset);
                    // Whoever asked is gone: nobody wants to know.
                    let _ = done.send(Ended { buffer, result });
                }
            };
            helpers.threads.push(std::thread::Builder::new().name(format!("{name}.{helper}")).spawn(work)?);
            helpers.jobs.push(queue);
        }
        Ok(helpers)
    }

    /// Writes the slices behind `tail`, which stands in the file from `offset` on, a multiple of [`ALIGNMENT`]. Returns how
    /// many bytes were copied.
    ///
    /// # Errors
    /// Why something was not written. Any part may stand in the file then.
    pub(super) fn write<'a>(
        &mut self,
        file: &Arc<OwnedFd>,
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
                    self.submit(Job { file: Arc::clone(file), buffer: full, length: BLOCK, offset });
                    (offset, filled) = (offset + BLOCK as u64, 0);
                }
            }
        }
        let length = filled.next_multiple_of(ALIGNMENT);
        buffer.bytes_mut()[filled..length].fill(0);
        if length > 0 {
            self.submit(Job { file: Arc::clone(file), buffer, length, offset });
        } else {
            self.idle.push(buffer);
        }
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
        let queue = &self.jobs[self.turn % self.jobs.len()];
        self.turn += 1;
        match queue.send(job) {
            Ok(()) => self.in_flight += 1,
            // The thread is gone, by a panic that it has told of.
            Err(_) => self.failure = Some(DiskCause::NotOpen),
        }
    }

    /// Waits until a write has ended.
    fn wait(&mut self) {
        match self.ended.recv() {
            Ok(Ended { buffer, result }) => {
                self.idle.push(buffer);
                self.failure = self.failure.or(result.err());
                self.in_flight -= 1;
            }
            Err(_) => (self.failure, self.in_flight) = (Some(DiskCause::NotOpen), 0),
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.jobs.clear();
        for thread in self.threads.drain(..) {
            // A helper that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), DiskCause> {
    while !bytes.is_empty() {
        let written = files::write(file, &[io::IoSlice::new(bytes)], offset)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}
