//! The writer thread: executes commands in order, and writes successive appends to one file together.
//!
//! A pass over a file takes its appends from an [`Intake`]: appends that arrived together, and those that arrive while
//! it writes. zstd and LZ4 take all of a thread's time, so separate threads pack ([`Packers`]); the writer hands them
//! appends and takes the packed ones back in the same order. A [`Worker`] is such a thread: it does jobs of one kind in
//! order, while the thread that hands them over continues.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::run_file::{Compression, Packer};
use rtrb::{Consumer, Producer, RingBuffer};

use super::helper::Helper;
use super::open_file::{GATHERED, OpenFile, fail};
use super::remover::{Job, Remover};
use super::seal::Seals;
use super::{DiskCause, FileToken, NewFile, RealDiskConfig, WriteMode, length_of, open_file, remover};
use crate::doorbell::Doorbell;

/// Number of open files without an allocation.
const FILES: usize = 16;
/// Number of commands in flight between a disk's user and a writer.
pub(super) const UNDER_WAY: usize = 4096;
/// Maximum number of appends that are written together.
pub(super) const BATCH: usize = 256;

/// A request to the writer.
pub(super) enum Command {
    Create {
        file: FileToken,
        path: PathBuf,
        /// The file system of its directory when that was entered, if it was.
        home: Option<u64>,
        how: NewFile,
    },
    Append(Append),
    Sync {
        file: FileToken,
        cookie: u64,
    },
    Publish {
        file: FileToken,
        final_path: PathBuf,
        /// As for a new file, for the final name.
        home: Option<u64>,
        cookie: u64,
    },
    /// For the thread that deletes.
    Remove(Job),
    LookFor {
        path: PathBuf,
        cookie: u64,
    },
    /// The last command.
    Stop,
}

/// One piece to append.
pub(super) struct Append {
    pub(super) file: FileToken,
    pub(super) cookie: u64,
    /// The number of failures of the file that its user knew: an append that was queued before a failure became known
    /// must not be written after it.
    pub(super) known_failures: u32,
    pub(super) data: Vec<Slice>,
    /// The tails of its records, if the disk seals them.
    pub(super) seals: Seals,
    /// Time of the request, and the time until it was written.
    pub(super) given: Instant,
    pub(super) took: Duration,
    /// The gathered bytes, and the packed bytes that are written instead; both empty if the append is not packed.
    pub(super) gathered: Vec<u8>,
    pub(super) packed: Vec<u8>,
}

impl Append {
    /// Number of requested bytes.
    pub(super) fn bytes(&self) -> usize {
        length_of(&self.data)
    }

    /// The pieces to be written.
    pub(super) fn pieces(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let data = if self.packed.is_empty() { &self.data[..] } else { &[] };
        let written = data.iter().enumerate().map(|(index, slice)| self.seals.written(index, slice));
        written.chain((!self.packed.is_empty()).then_some(&self.packed[..]))
    }

    /// Number of bytes to be written.
    pub(super) fn written_bytes(&self) -> usize {
        if self.packed.is_empty() { self.bytes() } else { self.packed.len() }
    }

    /// Gathers its bytes for packing, with sealed records if `seals`.
    pub(super) fn gather(&mut self, seals: bool) {
        let Self { data, seals: tails, gathered, .. } = self;
        gathered.clear();
        if seals {
            tails.seal(data, |piece| gathered.extend_from_slice(piece));
        } else {
            data.iter().for_each(|slice| gathered.extend_from_slice(slice));
        }
    }

    /// Packs the gathered bytes, which have this offset. False if there is no memory for it.
    pub(super) fn pack(&mut self, packer: &mut Packer, offset: u64) -> bool {
        self.packed.clear();
        packer.pack(offset, &self.gathered, &mut self.packed).is_ok()
    }
}

/// The result of a command. Appends return their vector, empty if it was written, and unneeded paths are returned too.
pub(super) enum Done {
    Created { file: FileToken, result: Result<(), (DiskCause, PathBuf)> },
    Appended { append: Append, result: Result<u64, DiskCause>, bytes: usize },
    Synced { file: FileToken, cookie: u64, result: Result<(), DiskCause> },
    Published { file: FileToken, cookie: u64, result: Result<(), DiskCause>, paths: [Option<PathBuf>; 2] },
    Removed { cookie: u64, result: Result<(), DiskCause>, path: PathBuf },
    CleanedUp { path: PathBuf },
    LookedFor { cookie: u64, result: Result<(), DiskCause>, path: PathBuf },
}

/// Counters shared by the writers of one disk.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Number of bytes copied for writing.
    copied: AtomicU64,
    /// Number of files written once more.
    restored: AtomicU64,
}

impl Tally {
    pub(super) fn copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn restored(&self, is_restored: bool) {
        self.restored.fetch_add(is_restored.into(), Ordering::Relaxed);
    }

    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    pub(super) fn restored_files(&self) -> u64 {
        self.restored.load(Ordering::Relaxed)
    }
}

/// The thread's state.
pub(super) struct Writer {
    pub(super) commands: Consumer<Command>,
    pub(super) done: Producer<Done>,
    /// Rung when a command arrives while this thread sleeps.
    pub(super) own_bell: Arc<Doorbell>,
    /// Rung when a command completes while the user's thread sleeps.
    pub(super) user_bell: Arc<Doorbell>,
    config: RealDiskConfig,
    tally: Arc<Tally>,
    /// Writes past the page cache, and packed appends; `None` if it is not needed or cannot be started. Dropped before
    /// the files.
    helper: Option<Helper>,
    /// The packing threads; `None` if they are not needed or cannot be started.
    packers: Option<Packers>,
    /// The thread that deletes; `None` if it was not needed yet or cannot be started.
    remover: Option<Remover>,
    files: Vec<OpenFile>,
    batch: Vec<Append>,
}

impl Writer {
    pub(super) fn new(
        commands: Consumer<Command>,
        done: Producer<Done>,
        [own_bell, user_bell]: [Arc<Doorbell>; 2],
        config: RealDiskConfig,
        tally: Arc<Tally>,
    ) -> Self {
        let (files, batch) = (Vec::with_capacity(FILES), Vec::with_capacity(BATCH));
        Self {
            commands,
            done,
            own_bell,
            user_bell,
            config,
            tally,
            helper: None,
            packers: None,
            remover: None,
            files,
            batch,
        }
    }

    /// Works until it gets the stop command or its user is gone.
    pub(super) fn run(mut self) {
        if self.config.mode != WriteMode::Buffered {
            self.start_helper();
        }
        loop {
            self.report_removed();
            match self.commands.pop() {
                Ok(Command::Stop) => return,
                Ok(command) => {
                    self.carry_out(command);
                    self.user_bell.notify();
                }
                Err(_) if self.commands.is_abandoned() => return,
                Err(_) => self.sleep(),
            }
        }
    }

    /// Starts the helper. If there is no thread left, this thread writes through the page cache.
    fn start_helper(&mut self) {
        if self.helper.is_none() {
            self.helper = Helper::start(Arc::clone(&self.own_bell)).ok();
        }
    }

    /// Starts the packing threads. If there are no threads left, this thread packs.
    fn start_packers(&mut self) {
        if self.packers.is_none() {
            self.packers = Packers::start(self.config.packing_threads, &self.own_bell).ok();
        }
    }

    fn sleep(&self) {
        self.own_bell.arm();
        let has_removed = self.remover.as_ref().is_some_and(|remover| !remover.is_idle());
        if self.commands.is_empty() && !self.commands.is_abandoned() && !has_removed {
            self.own_bell.wait();
        }
        self.own_bell.disarm();
        self.own_bell.silence();
    }

    fn report(&mut self, done: Done) {
        // There is room: the user never has more commands in flight than fit.
        let _ = self.done.push(done);
    }

    /// Hands a job to the thread that deletes, except small files, which are deleted in order. Without such a thread,
    /// this one deletes.
    fn remove(&mut self, job: Job) {
        match job {
            Job::Remove { path, cookie } if !remover::is_segment(&path) => {
                self.report(Done::Removed { cookie, result: open_file::remove(&path), path });
            }
            job => self.beside(job),
        }
    }

    fn beside(&mut self, job: Job) {
        let sync = self.config.sync_on_publish;
        if self.remover.is_none() {
            self.remover = Remover::start(Arc::clone(&self.own_bell), sync).ok();
        }
        match &mut self.remover {
            Some(remover) => remover.give(job),
            None => {
                if let Some(done) = job.carry_out(sync) {
                    self.report(done);
                }
            }
        }
    }

    /// Reports the files deleted meanwhile.
    fn report_removed(&mut self) {
        while let Some(ended) = self.remover.as_mut().and_then(Remover::take) {
            if let Some(done) = ended {
                self.report(done);
                self.user_bell.notify();
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Create { file, path, home, how } => {
                if how.compression != Compression::None {
                    self.start_helper();
                    self.start_packers();
                }
                let created = OpenFile::create(file, path, home, how, self.config.mode);
                let result = created.map(|created| self.files.push(created));
                self.report(Done::Created { file, result });
            }
            Command::Append(append) => self.append(append),
            Command::Sync { file, cookie } => {
                let result = self.sync(file);
                self.report(Done::Synced { file, cookie, result });
            }
            Command::Publish { file, final_path, home, cookie } => {
                let result = self.publish(file, &final_path, home);
                // Once renamed, it is no longer needed, even if the renaming may not survive a power cut.
                let published = self.files.extract_if(.., |open| open.token == file && open.is_published).next();
                let paths = [Some(final_path), published.map(|open| open.path)];
                self.report(Done::Published { file, cookie, result, paths });
            }
            Command::Remove(job) => self.remove(job),
            Command::LookFor { path, cookie } => {
                self.report(Done::LookedFor { cookie, result: open_file::look_for(&path), path });
            }
            Command::Stop => {}
        }
    }

    /// Returns the file after checking that it is in its place.
    fn file_in_place(&mut self, token: FileToken) -> Result<&mut OpenFile, DiskCause> {
        let file = self.files.iter_mut().find(|file| file.token == token).ok_or(DiskCause::NotOpen)?;
        self.tally.restored(file.make_sure(file.length)?);
        Ok(file)
    }

    fn sync(&mut self, token: FileToken) -> Result<(), DiskCause> {
        self.file_in_place(token)?.sync()
    }

    fn publish(&mut self, token: FileToken, final_path: &Path, home: Option<u64>) -> Result<(), DiskCause> {
        let RealDiskConfig { sync_on_publish: sync, permissions, .. } = self.config;
        let file = self.file_in_place(token)?;
        file.cut();
        if let Some(home) = home
            && final_path.parent().and_then(open_file::file_system).is_none()
        {
            open_file::restore_directory_of(final_path, home)?;
        }
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        if sync {
            file.sync_bytes()?;
        }
        // A reader that finds the file also finds its checksum.
        file.write_checksum(final_path, sync)?;
        open_file::rename(&file.path, final_path)?;
        file.is_published = true;
        if sync { open_file::sync_directory_of(final_path) } else { Ok(()) }
    }

    /// Writes this append and those to the same file that wait directly behind it.
    fn append(&mut self, first: Append) {
        let mut batch = core::mem::take(&mut self.batch);
        let token = first.file;
        let mut slices = first.data.len();
        batch.push(first);
        while batch.len() < BATCH && slices < GATHERED {
            match self.commands.peek() {
                Ok(Command::Append(next)) if next.file == token => slices += next.data.len(),
                _ => break,
            }
            if let Ok(Command::Append(next)) = self.commands.pop() {
                batch.push(next);
            }
        }
        match self.files.iter_mut().find(|file| file.token == token) {
            Some(file) => {
                let intake = Intake {
                    first: batch.drain(..),
                    file: token,
                    commands: Some(&mut self.commands),
                    packers: self.packers.as_mut(),
                    own_bell: &self.own_bell,
                    user_bell: &self.user_bell,
                };
                file.append(intake, self.helper.as_mut(), &mut self.done, &self.tally);
                if let Some(directory) = file.take_probe() {
                    self.remove(Job::Probe { directory });
                }
            }
            None => batch.drain(..).for_each(|append| fail(append, DiskCause::NotOpen, &mut self.done)),
        }
        self.batch = batch;
    }
}

/// Appends that arrived together.
pub(super) type Batch<'a> = std::vec::Drain<'a, Append>;

/// The source of a pass's appends, and its bells.
pub(super) struct Intake<'a> {
    pub(super) first: Batch<'a>,
    pub(super) file: FileToken,
    /// Source of further appends; `None` if later ones are left to the next pass.
    pub(super) commands: Option<&'a mut Consumer<Command>>,
    /// The packing threads; `None` if they are not needed or cannot be started.
    pub(super) packers: Option<&'a mut Packers>,
    /// Rung for the writer when there is a command, a packed append, or a completed write.
    pub(super) own_bell: &'a Doorbell,
    /// Rung for its user.
    pub(super) user_bell: &'a Doorbell,
}

impl Intake<'_> {
    /// Takes the next append that has arrived.
    pub(super) fn take(&mut self) -> Option<Append> {
        self.first.next().or_else(|| {
            let commands = self.commands.as_deref_mut()?;
            match commands.peek() {
                Ok(Command::Append(next)) if next.file == self.file => {}
                _ => return None,
            }
            if let Ok(Command::Append(next)) = commands.pop() { Some(next) } else { None }
        })
    }

    /// Whether a packing append was not taken back.
    pub(super) fn is_packing(&self) -> bool {
        self.packers.as_deref().is_some_and(|packers| packers.under_way() > 0)
    }

    /// Ends the intake: later appends do not belong to this pass.
    pub(super) fn close(&mut self) {
        self.commands = None;
    }
}

/// Sleep of a thread that found nothing to do: before it sleeps it checks once more, so that it misses nothing that
/// happens in between.
pub(super) struct Vigil<'a> {
    bell: &'a Doorbell,
    is_armed: bool,
}

impl<'a> Vigil<'a> {
    pub(super) const fn new(bell: &'a Doorbell) -> Self {
        Self { bell, is_armed: false }
    }

    /// Notes that there was nothing to do: sleeps at the second such call in a row.
    pub(super) fn nothing_to_do(&mut self) {
        if self.is_armed {
            self.bell.wait();
            self.awake();
        } else {
            self.bell.arm();
            self.is_armed = true;
        }
    }

    /// Notes that there was something to do.
    pub(super) fn awake(&mut self) {
        if self.is_armed {
            self.bell.disarm();
            self.bell.silence();
            self.is_armed = false;
        }
    }
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        self.awake();
    }
}

/// Maximum number of appends of a packing thread: the one that it packs, and the next one.
const ROOM: usize = 2;

/// An append whose bytes begin at `offset` in its file before packing.
struct PackingJob {
    append: Append,
    offset: u64,
    compression: Compression,
}

/// The packing threads, used in turn. Dropping it ends them.
pub(super) struct Packers {
    workers: Vec<Worker<PackingJob, (Append, bool)>>,
    /// Number of appends ever given, and ever taken back.
    given: usize,
    taken: usize,
}

impl Packers {
    /// Starts `count` threads, which ring this bell after each packed append; they run on the CPUs of the calling
    /// thread.
    pub(super) fn start(count: u8, bell: &Arc<Doorbell>) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let start = |number| {
            let mut packing = Packing::default();
            let pack = move |job: PackingJob| packing.carry_out(job);
            Worker::start(format!("{name}.pack{number}"), ROOM, Arc::clone(bell), pack)
        };
        let workers = (0..count.max(1)).map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, given: 0, taken: 0 })
    }

    /// Number of appends that were not taken back.
    pub(super) const fn under_way(&self) -> usize {
        self.given - self.taken
    }

    /// Whether there is room for one more.
    pub(super) fn has_room(&self) -> bool {
        self.workers[self.given % self.workers.len()].under_way() < ROOM
    }

    /// Hands over an append, for which there must be room.
    pub(super) fn give(&mut self, append: Append, offset: u64, compression: Compression) {
        let turn = self.given % self.workers.len();
        self.given += usize::from(self.workers[turn].give(PackingJob { append, offset, compression }));
    }

    /// Takes the oldest append, once it is packed, and whether it could be.
    pub(super) fn take(&mut self) -> Option<(Append, bool)> {
        let turn = self.taken % self.workers.len();
        let packed = self.workers[turn].take()?;
        self.taken += 1;
        Some(packed)
    }
}

/// State of one packing thread.
#[derive(Default)]
struct Packing {
    /// One for each compression seen so far: one or two for a writer's files.
    packers: Vec<(Compression, Packer)>,
}

impl Packing {
    fn carry_out(&mut self, PackingJob { mut append, offset, compression }: PackingJob) -> (Append, bool) {
        let is_packed = self.packer(compression).is_some_and(|packer| append.pack(packer, offset));
        (append, is_packed)
    }

    /// `None` if the library has no memory.
    fn packer(&mut self, compression: Compression) -> Option<&mut Packer> {
        let known = self.packers.iter().position(|(known, _)| *known == compression);
        let place = match known {
            Some(place) => place,
            None => {
                self.packers.push((compression, Packer::new(compression)?));
                self.packers.len() - 1
            }
        };
        Some(&mut self.packers[place].1)
    }
}

/// A worker thread, as seen by the thread that gives it jobs. Dropping it ends the thread after its pending jobs.
pub(super) struct Worker<J, E> {
    /// `None` once the thread is to end.
    jobs: Option<Producer<J>>,
    ended: Consumer<E>,
    /// Rung when there is a job while the worker sleeps.
    bell: Arc<Doorbell>,
    /// Number of jobs whose result was not taken.
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static, E: Send + 'static> Worker<J, E> {
    /// Starts the thread, which accepts up to `room` jobs and rings `done` after each of them. It runs on the CPUs of
    /// the calling thread.
    pub(super) fn start(
        name: String,
        room: usize,
        done: Arc<Doorbell>,
        mut work: impl FnMut(J) -> E + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, mut queue) = RingBuffer::<J>::new(room);
        let (mut end, ended) = RingBuffer::new(room);
        let bell = Arc::new(Doorbell::new()?);
        let own = Arc::clone(&bell);
        let run = move || {
            loop {
                match queue.pop() {
                    Ok(job) => {
                        // There is room: there are no more jobs than that.
                        let _ = end.push(work(job));
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
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { jobs: Some(jobs), ended, bell, under_way: 0, thread: Some(thread) })
    }

    /// Number of jobs whose result was not taken.
    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether no result can be taken now.
    pub(super) fn is_idle(&self) -> bool {
        self.ended.is_empty()
    }

    /// Hands over a job. False if there is no room for it.
    pub(super) fn give(&mut self, job: J) -> bool {
        let is_given = self.jobs.as_mut().is_some_and(|jobs| jobs.push(job).is_ok());
        self.under_way += usize::from(is_given);
        self.bell.notify();
        is_given
    }

    /// The result of the oldest job, if it has ended.
    pub(super) fn take(&mut self) -> Option<E> {
        let end = self.ended.pop().ok()?;
        self.under_way -= 1;
        Some(end)
    }
}

impl<J, E> Drop for Worker<J, E> {
    fn drop(&mut self) {
        self.jobs = None;
        self.bell.notify();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}
