//! Files of the machine, written by one or several separate threads; a [`Lane`] connects to one of them.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::run_file::is_run_directory;
use rtrb::{Consumer, Producer, RingBuffer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::remover::Job;
use super::seal::Seals;
use super::writer::{Append, Command, Done, Tally, UNDER_WAY, Writer};
use super::{Completion, Disk, DiskCause, FileToken, NewFile, QueueFull, length_of, open_file};
use crate::clock::{Clock, MonotonicClock};
use crate::doorbell::Doorbell;

/// Vectors allocated at the start, so that appends with that many slices allocate nothing: enough for the batches of
/// two segments.
const SPARE: usize = 8;
/// Number of slices for which each of these has room.
const SPARE_SLICES: usize = 16 << 10;
/// Number of records of an append whose tails have room without an allocation.
const SPARE_SEALS: usize = 4096;
/// Number of paths that may be in flight or belong to open files without an allocation.
const SPARE_PATHS: usize = 16;
/// Number of bytes for which each of these has room.
const PATH_BYTES: usize = 1024;

/// How bytes get into files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// Through the page cache.
    Buffered,
    /// Past the page cache (`O_DIRECT`), after one copy that `run.json` counts. On a file system without `O_DIRECT`,
    /// such as one in memory, everything is buffered.
    Direct,
    /// Past the page cache from the moment on that 1 MiB or more is written at once within the first 8 MiB of a file, to the file's end.
    /// Otherwise the whole file goes through the page cache. The first time that a file on a disk is written fast, the thread
    /// `-disk.remove` probes the disk beside the run: up to 32 MiB each way, in turn, for 100 ms. Later files of the process go through
    /// the page cache if that was more than four times as fast; less says nothing of a whole run. `run.json` has the result
    /// (`disk.probes`). File systems in memory or over the network are not probed, nor those with less than 1 GiB of room.
    #[default]
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
    /// Permissions of published files (`st_mode & 0o777`). Without them the umask decides.
    pub permissions: Option<u32>,
    /// The way in which bytes get into files.
    pub mode: WriteMode,
    /// Number of writing threads. Each file is written by one of them. The others are named like the first, plus their
    /// number.
    pub threads: u8,
    /// Number of packing threads for each writing thread with packed files, at least one. Named like the writing thread,
    /// plus `.pack` and their number, and placed on the same CPUs.
    pub packing_threads: u8,
}

impl Default for RealDiskConfig {
    fn default() -> Self {
        Self {
            thread_name: "disk".to_owned(),
            queue_bytes: 64 << 20,
            sync_on_publish: false,
            permissions: None,
            mode: WriteMode::Buffered,
            threads: 1,
            packing_threads: 1,
        }
    }
}

/// Files of the machine. Dropping it writes the queue before it returns.
pub struct RealDisk {
    /// One for each writer thread.
    lanes: Vec<Lane>,
    queued_bytes: usize,
    queue_bytes: usize,
    next_file: u32,
    /// The files that are not published.
    known: Vec<Known>,
    /// Vectors of written appends, for reuse.
    spare: Vec<(Vec<Slice>, Seals)>,
    /// Paths of published and deleted files, for reuse.
    spare_paths: Vec<PathBuf>,
    own_bell: Arc<Doorbell>,
    armed: bool,
    tally: Arc<Tally>,
    /// The directories that were entered, each with its file system.
    homes: Vec<(PathBuf, u64)>,
    /// The outputs whose run directories have been searched for partly deleted files.
    cleaned_up: Vec<PathBuf>,
}

/// The user thread's state of a file.
struct Known {
    file: FileToken,
    /// The number of failures known to the user.
    failures: u32,
    /// Index of the thread that writes it.
    lane: usize,
}

impl RealDisk {
    /// Starts the writer threads. `on_start` runs on the first of them first, for its placement.
    ///
    /// # Errors
    /// If the system has no thread or no descriptor left.
    pub fn new(config: RealDiskConfig, on_start: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let mut on_start = Some(on_start);
        Self::with_threads(config, |_| {
            let on_start = on_start.take();
            move || on_start.into_iter().for_each(|on_start| on_start())
        })
    }

    /// Starts the writer threads; `on_start` gets the name of each, and what it returns runs on that thread first.
    ///
    /// # Errors
    /// If the system has no thread or no descriptor left.
    pub fn with_threads<S: FnOnce() + Send + 'static>(
        config: RealDiskConfig,
        mut on_start: impl FnMut(&str) -> S,
    ) -> io::Result<Self> {
        let (own_bell, tally) = (Arc::new(Doorbell::new()?), Arc::new(Tally::default()));
        let mut lanes = Vec::with_capacity(config.threads.into());
        for thread in 0..config.threads.max(1) {
            let name = if thread == 0 { config.thread_name.clone() } else { format!("{}{thread}", config.thread_name) };
            let first = on_start(&name);
            lanes.push(Lane::start(&config, name, &own_bell, &tally, first)?);
        }
        Ok(Self {
            lanes,
            queued_bytes: 0,
            queue_bytes: config.queue_bytes,
            next_file: 0,
            known: Vec::with_capacity(SPARE_PATHS),
            spare: (0..SPARE + 4 * usize::from(config.packing_threads))
                .map(|_| (Vec::with_capacity(SPARE_SLICES), Seals::with_capacity(SPARE_SEALS)))
                .collect(),
            spare_paths: (0..SPARE_PATHS).map(|_| PathBuf::with_capacity(PATH_BYTES)).collect(),
            own_bell,
            armed: false,
            tally,
            homes: Vec::new(),
            cleaned_up: Vec::new(),
        })
    }

    /// Sends a command to the thread that writes the file; a command for an unknown file goes to any of them.
    fn command(&mut self, file: FileToken, command: Command) {
        let lane = self.known_of(file).map_or(0, |known| known.lane);
        self.lanes[lane].command(command);
    }

    fn known_of(&mut self, file: FileToken) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.file == file)
    }

    /// A copy of the path, for the other thread.
    fn own(&mut self, path: &Path) -> PathBuf {
        let mut own = self.spare_paths.pop().unwrap_or_default();
        own.clear();
        own.push(path);
        own
    }

    /// The file system of a file's directory when it was entered.
    fn home_of(&self, path: &Path) -> Option<u64> {
        self.homes.iter().find(|(home, _)| Some(home.as_path()) == path.parent()).map(|&(_, file_system)| file_system)
    }

    /// Deletes the partly deleted files of a killed process, in this run directory and those next to it, once.
    fn clean_up(&mut self, directory: &Path) {
        let is_run = directory.file_name().and_then(OsStr::to_str).is_some_and(is_run_directory);
        let Some(output) = directory.parent().filter(|_| is_run) else { return };
        if !self.cleaned_up.iter().any(|known| known == output) {
            self.cleaned_up.push(output.to_owned());
            let output = if output.as_os_str().is_empty() { PathBuf::from(".") } else { output.to_owned() };
            self.lanes[0].command(Command::Remove(Job::CleanUp { output }));
        }
    }

    fn complete(&mut self, done: Done) -> Option<Completion> {
        Some(match done {
            Done::Created { file, result } => {
                let result = result.map_err(|(cause, path)| {
                    self.spare_paths.push(path);
                    cause
                });
                Completion::Created { file, result }
            }
            Done::Appended { append, result, bytes } => {
                self.queued_bytes -= bytes;
                let Append { file, cookie, known_failures, data, seals, took, .. } = append;
                match result {
                    Ok(offset) => {
                        self.spare.push((data, seals));
                        Completion::Appended { file, cookie, offset, took }
                    }
                    Err(cause) => {
                        // The first of a file's failed appends; those behind it carry the same number.
                        if let Some(known) = self.known_of(file)
                            && known.failures == known_failures
                            && cause != DiskCause::NotOpen
                        {
                            known.failures = known_failures.wrapping_add(1);
                        }
                        Completion::AppendFailed { file, cookie, cause, data }
                    }
                }
            }
            Done::Synced { file, cookie, result } => Completion::Synced { file, cookie, result },
            Done::Published { file, cookie, result, paths } => {
                if result.is_ok() {
                    self.known.retain(|known| known.file != file);
                }
                self.spare_paths.extend(paths.into_iter().flatten());
                Completion::Published { file, cookie, result }
            }
            Done::Removed { cookie, result, path } => {
                self.spare_paths.push(path);
                Completion::Removed { cookie, result }
            }
            Done::CleanedUp { path } => {
                self.spare_paths.push(path);
                return None;
            }
            Done::LookedFor { cookie, result, path } => {
                self.spare_paths.push(path);
                Completion::LookedFor { cookie, result }
            }
        })
    }
}

impl Disk for RealDisk {
    fn enter_directory(&mut self, path: &Path) -> Vec<String> {
        let names = open_file::enter_directory(path);
        if let Some(file_system) = open_file::file_system(path) {
            self.homes.retain(|(home, _)| home != path);
            self.homes.push((path.to_owned(), file_system));
        }
        self.clean_up(path);
        names
    }

    fn read(&mut self, path: &Path) -> Result<Vec<u8>, DiskCause> {
        open_file::read(path)
    }

    fn create(&mut self, path: &Path, how: NewFile) -> FileToken {
        let file = FileToken(self.next_file);
        self.next_file += 1;
        let lane = usize::from(how.thread) % self.lanes.len();
        self.known.push(Known { file, failures: 0, lane });
        let (path, home) = (self.own(path), self.home_of(path));
        self.command(file, Command::Create { file, path, home, how });
        file
    }

    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) -> Result<(), QueueFull> {
        let bytes = length_of(data);
        if self.queued_bytes > 0 && self.queued_bytes + bytes > self.queue_bytes {
            return Err(QueueFull);
        }
        self.queued_bytes += bytes;
        let (mut taken, seals) = self.spare.pop().unwrap_or_default();
        taken.append(data);
        let known_failures = self.known_of(file).map_or(0, |known| known.failures);
        self.command(
            file,
            Command::Append(Append {
                file,
                cookie,
                known_failures,
                data: taken,
                seals,
                given: MonotonicClock.now(),
                took: Duration::ZERO,
                gathered: Vec::new(),
                packed: Vec::new(),
            }),
        );
        Ok(())
    }

    fn sync(&mut self, file: FileToken, cookie: u64) {
        self.command(file, Command::Sync { file, cookie });
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, cookie: u64) {
        let (final_path, home) = (self.own(final_path), self.home_of(final_path));
        self.command(file, Command::Publish { file, final_path, home, cookie });
    }

    fn remove(&mut self, path: &Path, cookie: u64) {
        let path = self.own(path);
        self.lanes[0].command(Command::Remove(Job::Remove { path, cookie }));
    }

    fn look_for(&mut self, path: &Path, cookie: u64) {
        let path = self.own(path);
        self.lanes[0].command(Command::LookFor { path, cookie });
    }

    fn free_bytes(&mut self, path: &Path) -> Result<u64, DiskCause> {
        open_file::free_bytes(path)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if core::mem::take(&mut self.armed) {
            self.own_bell.disarm();
            self.own_bell.silence();
        }
        let before = completions.len();
        for lane in 0..self.lanes.len() {
            while let Some(done) = self.lanes[lane].take() {
                let completion = self.complete(done);
                completions.extend(completion);
            }
            self.lanes[lane].hand_over();
        }
        completions.len() - before
    }

    fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn copied_bytes(&self) -> u64 {
        self.tally.copied_bytes()
    }

    fn restored_files(&self) -> u64 {
        self.tally.restored_files()
    }

    fn prepare_wait(&mut self) -> bool {
        self.own_bell.arm();
        self.armed = true;
        let idle = self.lanes.iter().all(Lane::is_idle);
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
        self.lanes.iter_mut().for_each(|lane| lane.command(Command::Stop));
        let mut completions = Vec::new();
        while !self.lanes.iter().all(Lane::is_handed_over) {
            if self.poll(&mut completions) == 0 && self.prepare_wait() {
                self.own_bell.wait();
            }
            completions.clear();
        }
        self.lanes.iter_mut().for_each(Lane::join);
    }
}

/// The connection to a writer thread.
struct Lane {
    commands: Producer<Command>,
    done: Consumer<Done>,
    /// Commands that did not fit in the ring.
    backlog: VecDeque<Command>,
    /// Number of commands handed to the writer whose result was not yet taken.
    under_way: usize,
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread. `on_start` runs on it first, for its placement.
    pub(super) fn start(
        config: &RealDiskConfig,
        name: String,
        user_bell: &Arc<Doorbell>,
        tally: &Arc<Tally>,
        on_start: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, for_writer) = RingBuffer::new(UNDER_WAY);
        let (from_writer, done) = RingBuffer::new(UNDER_WAY);
        let bell = Arc::new(Doorbell::new()?);
        let bells = [Arc::clone(&bell), Arc::clone(user_bell)];
        let tally = Arc::clone(tally);
        let writer = Writer::new(for_writer, from_writer, bells, config.clone(), tally);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            on_start();
            writer.run();
        })?;
        let backlog = VecDeque::with_capacity(UNDER_WAY);
        Ok(Self { commands, done, backlog, under_way: 0, bell, thread: Some(thread) })
    }

    pub(super) fn command(&mut self, command: Command) {
        self.backlog.push_back(command);
        self.hand_over();
    }

    /// Hands commands to the writer while there is room for their results.
    pub(super) fn hand_over(&mut self) {
        let before = self.under_way;
        while self.under_way < UNDER_WAY
            && let Some(command) = self.backlog.pop_front()
        {
            self.under_way += 1;
            // There is room: the ring holds as many as may be in flight.
            let _ = self.commands.push(command);
        }
        if self.under_way > before {
            self.bell.notify();
        }
    }

    /// Returns the result of the next completed command.
    pub(super) fn take(&mut self) -> Option<Done> {
        let done = self.done.pop().ok()?;
        self.under_way -= 1;
        Some(done)
    }

    /// Whether no command has completed.
    pub(super) fn is_idle(&self) -> bool {
        self.done.is_empty()
    }

    /// Whether the writer has taken every command, or has ended by itself and takes no more.
    fn is_handed_over(&self) -> bool {
        self.backlog.is_empty() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the writer, which was told to stop.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}
