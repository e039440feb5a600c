//! Files of the machine, written by one thread of their own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use rtrb::{Consumer, Producer, RingBuffer};

use super::writer::{Append, Command, Done, Writer};
use super::{Completion, Disk, DiskCause, FileToken, QueueFull, files, length_of};
use crate::doorbell::Doorbell;

/// Commands that may be under way between the threads.
const UNDER_WAY: usize = 4096;

/// Vectors laid out at the start, so that appends of so many slices allocate nothing.
const SPARE: usize = 4;
/// Slices for which each of these has room.
const SPARE_SLICES: usize = 16 << 10;
/// Paths that may be under way or belong to open files before memory is asked for.
const SPARE_PATHS: usize = 16;
/// Bytes for which each of these has room.
const PATH_BYTES: usize = 1024;

/// Which way bytes go into files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum WriteMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past the page cache (`O_DIRECT`), where the file system knows that; otherwise through it.
    Direct,
    /// Past it where much is written at once, otherwise through it.
    Auto,
}

/// Settings of a [`RealDisk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealDiskConfig {
    /// The writer thread's name, by which placement rules find it (at most 15 bytes are shown by the system).
    pub thread_name: String,
    /// Bytes of appends that may wait to be written.
    pub queue_bytes: usize,
    /// Whether published files and their names survive a power cut.
    pub sync_on_publish: bool,
    /// Which way bytes go into files.
    pub mode: WriteMode,
}

impl Default for RealDiskConfig {
    fn default() -> Self {
        Self {
            thread_name: "disk".to_owned(),
            queue_bytes: 64 << 20,
            sync_on_publish: false,
            mode: WriteMode::Buffered,
        }
    }
}

/// Files of the machine. Dropping it writes what is queued before it returns.
pub struct RealDisk {
    commands: Producer<Command>,
    done: Consumer<Done>,
    /// Commands for which there was no room under way.
    backlog: VecDeque<Command>,
    /// Commands handed to the writer whose end was not yet taken.
    under_way: usize,
    queued_bytes: usize,
    queue_bytes: usize,
    next_file: u32,
    /// The files that are not published, and the failures of each that the user was told.
    known_failures: Vec<(FileToken, u32)>,
    /// Vectors of written appends, for the next ones.
    spare: Vec<Vec<Slice>>,
    /// Paths of published and deleted files, for the next ones.
    spare_paths: Vec<PathBuf>,
    writer_bell: Arc<Doorbell>,
    own_bell: Arc<Doorbell>,
    armed: bool,
    copied: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl RealDisk {
    /// Starts the writer thread. `on_start` runs on it first, for its placement.
    pub fn new(config: RealDiskConfig, on_start: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (commands, for_writer) = RingBuffer::new(UNDER_WAY);
        let (from_writer, done) = RingBuffer::new(UNDER_WAY);
        let (writer_bell, own_bell) = (Arc::new(Doorbell::new()?), Arc::new(Doorbell::new()?));
        let bells = [Arc::clone(&writer_bell), Arc::clone(&own_bell)];
        let copied = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&copied);
        let writer = Writer::new(for_writer, from_writer, bells, config.sync_on_publish, config.mode, counter);
        let thread = std::thread::Builder::new().name(config.thread_name).spawn(move || {
            on_start();
            writer.run();
        })?;
        Ok(Self {
            commands,
            done,
            backlog: VecDeque::with_capacity(UNDER_WAY),
            under_way: 0,
            queued_bytes: 0,
            queue_bytes: config.queue_bytes,
            next_file: 0,
            known_failures: Vec::with_capacity(SPARE_PATHS),
            spare: (0..SPARE).map(|_| Vec::with_capacity(SPARE_SLICES)).collect(),
            spare_paths: (0..SPARE_PATHS).map(|_| PathBuf::with_capacity(PATH_BYTES)).collect(),
            writer_bell,
            own_bell,
            armed: false,
            copied,
            thread: Some(thread),
        })
    }

    fn command(&mut self, command: Command) {
        self.backlog.push_back(command);
        self.hand_over();
    }

    /// Hands commands to the writer while there is room for their ends.
    fn hand_over(&mut self) {
        let before = self.under_way;
        while self.under_way < UNDER_WAY
            && let Some(command) = self.backlog.pop_front()
        {
            self.under_way += 1;
            // There is room: the ring holds as many as may be under way.
            let _ = self.commands.push(command);
        }
        if self.under_way > before {
            self.writer_bell.notify();
        }
    }

    /// A copy of the path, for the other thread.
    fn own(&mut self, path: &Path) -> PathBuf {
        let mut own = self.spare_paths.pop().unwrap_or_default();
        own.clear();
        own.push(path);
        own
    }

    fn complete(&mut self, done: Done) -> Completion {
        match done {
            Done::Created { file, result } => {
                let result = result.map_err(|(cause, path)| {
                    self.spare_paths.push(path);
                    cause
                });
                Completion::Created { file, result }
            }
            Done::Appended { append, result, bytes } => {
                self.queued_bytes -= bytes;
                let Append { file, cookie, known_failures, data } = append;
                match result {
                    Ok(offset) => {
                        self.spare.push(data);
                        Completion::Appended { file, cookie, offset }
                    }
                    Err(cause) => {
                        // The first of a file's failed appends; those behind it name the same number.
                        if let Some((_, known)) = self.known_failures.iter_mut().find(|(known, _)| *known == file)
                            && *known == known_failures
                            && cause != DiskCause::NotOpen
                        {
                            *known = known.wrapping_add(1);
                        }
                        Completion::AppendFailed { file, cookie, cause, data }
                    }
                }
            }
            Done::Synced { file, cookie, result } => Completion::Synced { file, cookie, result },
            Done::Published { file, cookie, result, paths } => {
                if result.is_ok() {
                    self.known_failures.retain(|(known, _)| *known != file);
                }
                self.spare_paths.extend(paths.into_iter().flatten());
                Completion::Published { file, cookie, result }
            }
            Done::Removed { cookie, result, path } => {
                self.spare_paths.push(path);
                Completion::Removed { cookie, result }
            }
        }
    }

    /// Whether the writer ended although nobody asked it to.
    fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Disk for RealDisk {
    fn enter_directory(&mut self, path: &Path) -> Vec<String> {
        files::enter_directory(path)
    }

    fn create(&mut self, path: &Path, preallocate: u64) -> FileToken {
        let file = FileToken(self.next_file);
        self.next_file += 1;
        self.known_failures.push((file, 0));
        let path = self.own(path);
        self.command(Command::Create { file, path, preallocate });
        file
    }

    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) -> Result<(), QueueFull> {
        let bytes = length_of(data);
        if self.queued_bytes > 0 && self.queued_bytes + bytes > self.queue_bytes {
            return Err(QueueFull);
        }
        self.queued_bytes += bytes;
        let mut taken = self.spare.pop().unwrap_or_default();
        taken.append(data);
        let known = self.known_failures.iter().find(|(known, _)| *known == file);
        let known_failures = known.map_or(0, |(_, failures)| *failures);
        self.command(Command::Append(Append { file, cookie, known_failures, data: taken }));
        Ok(())
    }

    fn sync(&mut self, file: FileToken, cookie: u64) {
        self.command(Command::Sync { file, cookie });
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, cookie: u64) {
        let final_path = self.own(final_path);
        self.command(Command::Publish { file, final_path, cookie });
    }

    fn remove(&mut self, path: &Path, cookie: u64) {
        let path = self.own(path);
        self.command(Command::Remove { path, cookie });
    }

    fn free_bytes(&mut self, path: &Path) -> Result<u64, DiskCause> {
        files::free_bytes(path)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if core::mem::take(&mut self.armed) {
            self.own_bell.disarm();
            self.own_bell.silence();
        }
        let before = completions.len();
        while let Ok(done) = self.done.pop() {
            self.under_way -= 1;
            let completion = self.complete(done);
            completions.push(completion);
        }
        self.hand_over();
        completions.len() - before
    }

    fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn copied_bytes(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    fn prepare_wait(&mut self) -> bool {
        self.own_bell.arm();
        self.armed = true;
        let idle = self.done.is_empty();
        if !idle {
            self.own_bell.disarm();
            self.armed = false;
        }
        idle
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.own_bell.descriptor())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        self.command(Command::Stop);
        let mut completions = Vec::new();
        while !self.backlog.is_empty() && !self.is_dead() {
            if self.poll(&mut completions) == 0 && self.prepare_wait() {
                self.own_bell.wait();
            }
            completions.clear();
        }
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}
