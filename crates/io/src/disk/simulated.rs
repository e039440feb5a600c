//! A disk in virtual time that can be full, slow, wrong, and lose what was not synced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::run_file::{Checksum, DELETED_EXTENSION};

use super::remover::is_segment;
use super::seal::Seals;
use super::{Completion, Disk, DiskCause, FileToken, NewFile, QueueFull, checksum_file, length_of};
use crate::clock::{Clock, SimulatedClock};
use crate::simulated::Random;

/// What goes wrong on a simulated disk, and how often. Rates are probabilities from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskFaults {
    /// The shortest time that a command takes.
    pub least_latency: Duration,
    /// The longest time that a command takes.
    pub most_latency: Duration,
    /// Bytes a second; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that all files may have together.
    pub capacity: u64,
    /// How often an append fails although there is room.
    pub write_error: f64,
    /// How often a file can be neither created nor renamed, as on a file system that has become read-only.
    pub name_error: f64,
    /// How often a sync fails.
    pub sync_error: f64,
    /// How often the append that is under way when the disk is dropped, as with a killed process, is in the file in part.
    pub torn_append: f64,
    /// How often [`SimulatedStorage::read`] fails.
    pub read_error: f64,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            least_latency: Duration::from_micros(50),
            most_latency: Duration::from_micros(50),
            bandwidth: None,
            capacity: u64::MAX,
            write_error: 0.0,
            name_error: 0.0,
            sync_error: 0.0,
            torn_append: 0.0,
            read_error: 0.0,
        }
    }
}

/// Settings of a [`SimulatedDisk`], as of a [`RealDisk`](super::RealDisk).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SimulatedDiskConfig {
    /// Bytes of appends that may wait to be written.
    pub queue_bytes: usize,
    /// Whether published files and their names survive a power cut.
    pub sync_on_publish: bool,
}

impl Default for SimulatedDiskConfig {
    fn default() -> Self {
        Self { queue_bytes: 64 << 20, sync_on_publish: false }
    }
}

/// What the operating system says when a device fails (`EIO`).
const DEVICE_ERROR: DiskCause = DiskCause::System(5);
/// What it says of a file system that must not be changed (`EROFS`).
const READ_ONLY: DiskCause = DiskCause::System(30);

/// The medium: outlives the disks (processes) that write it. Clones are the same medium.
#[derive(Clone)]
pub struct SimulatedStorage {
    state: Arc<Mutex<Medium>>,
}

struct Medium {
    faults: DiskFaults,
    random: Random,
    directories: BTreeSet<PathBuf>,
    /// By present name.
    files: BTreeMap<PathBuf, Content>,
    /// Deleted files, by their former names: they can still be written through a descriptor that was open.
    unlinked: BTreeMap<PathBuf, Content>,
    /// How many of those were written once more.
    restored: u64,
    /// Directories that were entered, which are made again where they are missing.
    entered: BTreeSet<PathBuf>,
    /// How often the power was cut: files opened before are not open any more.
    cuts: u32,
}

struct Content {
    bytes: Vec<u8>,
    /// How many bytes survive a power cut.
    synced: usize,
    /// The name that survives a power cut, if one does.
    durable_name: Option<PathBuf>,
}

impl Medium {
    fn used(&self) -> u64 {
        self.files.values().map(|content| content.bytes.len() as u64).sum()
    }

    /// Whether a file may get a name now.
    fn name_change(&mut self) -> Result<(), DiskCause> {
        // Where it never fails no chance is drawn, so that the history of a seed does not depend on it.
        let fails = self.faults.name_error > 0.0 && self.random.chance(self.faults.name_error);
        if fails { Err(READ_ONLY) } else { Ok(()) }
    }

    /// Whether a file may have this name; a directory that was there once is made again.
    fn has_directory_of(&mut self, path: &Path) -> bool {
        path.parent().is_none_or(|parent| {
            if self.entered.contains(parent) {
                self.directories.insert(parent.to_owned());
            }
            parent.as_os_str().is_empty() || self.directories.contains(parent)
        })
    }

    /// The content of an open file, which gets its name back if it has been deleted.
    fn open_file(&mut self, path: &Path) -> Result<&mut Content, DiskCause> {
        if let Some(content) = self.unlinked.remove(path) {
            if self.name_change().is_err() || !self.has_directory_of(path) {
                self.unlinked.insert(path.to_owned(), content);
                return Err(DiskCause::Deleted);
            }
            self.restored += 1;
            self.files.insert(path.to_owned(), Content { synced: 0, durable_name: None, ..content });
        }
        self.files.get_mut(path).ok_or(DiskCause::NotOpen)
    }
}

impl SimulatedStorage {
    /// An empty medium whose chances all come from `seed`, with the directory `/`.
    pub fn new(seed: u64, faults: DiskFaults) -> Self {
        let (random, directories) = (Random::new(seed), BTreeSet::from([PathBuf::from("/")]));
        let medium = Medium {
            faults,
            random,
            directories,
            files: BTreeMap::new(),
            unlinked: BTreeMap::new(),
            restored: 0,
            entered: BTreeSet::new(),
            cuts: 0,
        };
        Self { state: Arc::new(Mutex::new(medium)) }
    }

    fn lock(&self) -> MutexGuard<'_, Medium> {
        // A poisoned medium belongs to a test that has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk that writes this medium.
    pub fn disk(&self, config: SimulatedDiskConfig, clock: SimulatedClock) -> SimulatedDisk {
        let (storage, busy_until) = (self.clone(), Instant::ZERO);
        SimulatedDisk {
            storage,
            config,
            clock,
            files: Vec::new(),
            queue: VecDeque::new(),
            removals: VecDeque::new(),
            queued_bytes: 0,
            busy_until,
            local: None,
        }
    }

    /// Adds a directory.
    pub fn add_directory(&self, path: &Path) {
        self.lock().directories.insert(path.to_owned());
    }

    /// Removes a directory with everything in it, as another program would.
    pub fn remove_directory(&self, path: &Path) {
        let medium = &mut *self.lock();
        medium.directories.retain(|directory| !directory.starts_with(path));
        let removed = medium.files.extract_if(.., |name, _| name.starts_with(path)).collect::<Vec<_>>();
        medium.unlinked.extend(removed);
    }

    /// The present faults.
    pub fn faults(&self) -> DiskFaults {
        self.lock().faults.clone()
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// A file's bytes.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, DiskCause> {
        let medium = &mut *self.lock();
        let content = medium.files.get(path).ok_or(DiskCause::NotFound)?;
        if medium.random.chance(medium.faults.read_error) { Err(DEVICE_ERROR) } else { Ok(content.bytes.clone()) }
    }

    /// The names of all files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock().files.keys().cloned().collect()
    }

    /// Cuts the power: of each file what was synced stays, and of the rest any part from its beginning, whose
    /// last sector may be zeros; names that were not synced may be the old ones, or gone.
    pub fn cut_power(&self) {
        let medium = &mut *self.lock();
        medium.cuts += 1;
        medium.unlinked.clear();
        for (name, mut content) in core::mem::take(&mut medium.files) {
            let random = &mut medium.random;
            let kept = content.synced + random.below((content.bytes.len() - content.synced) as u64 + 1) as usize;
            content.bytes.truncate(kept);
            if random.chance(0.25) {
                let torn = kept.saturating_sub(512).max(content.synced);
                content.bytes[torn..].fill(0);
            }
            content.synced = kept;
            let survives = content.durable_name.as_ref() == Some(&name) || random.chance(0.5);
            if let Some(name) = if survives { Some(name) } else { content.durable_name.clone() } {
                content.durable_name = Some(name.clone());
                medium.files.insert(name, content);
            }
        }
    }
}

/// What the disk is asked to do.
enum Command {
    Create { file: FileToken, path: PathBuf },
    Append { file: FileToken, cookie: u64, known_failures: u32, data: Vec<Slice> },
    Sync { file: FileToken, cookie: u64 },
    Publish { file: FileToken, final_path: PathBuf, cookie: u64 },
    Remove { path: PathBuf, cookie: u64 },
    LookFor { path: PathBuf, cookie: u64 },
}

/// A file that is being deleted.
struct Removal {
    /// Its hidden name; `None` if it was not there.
    hidden: Option<PathBuf>,
    cookie: u64,
}

/// The name that a file has while it is deleted.
fn hidden(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(DELETED_EXTENSION);
    name.into()
}

/// A file as its disk knows it.
#[derive(Default)]
struct Open {
    /// Its present name and the power cuts before it was opened; `None` if it is not open.
    place: Option<(PathBuf, u32)>,
    failures: u32,
    last_failure: Option<DiskCause>,
    /// Its checksum is written beside it.
    has_checksum: bool,
    /// Open records are sealed.
    seals: bool,
}

/// A disk that writes a [`SimulatedStorage`]. Dropping it loses what is queued, as a killed process would; of the append that
/// is under way a part may be in the file.
pub struct SimulatedDisk {
    storage: SimulatedStorage,
    config: SimulatedDiskConfig,
    clock: SimulatedClock,
    files: Vec<Open>,
    /// Each with the time at which it is done.
    queue: VecDeque<(Instant, Command)>,
    /// Files that are being deleted one after the other, each with the time at which it is gone.
    removals: VecDeque<(Instant, Removal)>,
    queued_bytes: usize,
    busy_until: Instant,
    /// Converts a time of the disk to the clock of the node that writes.
    local: Option<Box<dyn Fn(Instant) -> Instant + Send>>,
}

impl SimulatedDisk {
    /// Returns the disk of a node whose clock shows `local(t)` at time `t` of the disk. Deadlines are times of the node's clock.
    pub fn with_local_time(mut self, local: impl Fn(Instant) -> Instant + Send + 'static) -> Self {
        self.local = Some(Box::new(local));
        self
    }

    fn command(&mut self, bytes: usize, command: Command) {
        let medium = &mut *self.storage.lock();
        let faults = &medium.faults;
        let takes = medium.random.between(faults.least_latency, faults.most_latency);
        let transfer = faults.bandwidth.map_or(0, |rate| bytes as u64 * 1_000_000_000 / rate.max(1));
        self.busy_until = self.busy_until.max(self.clock.now()).after(takes).after(Duration::from_nanos(transfer));
        self.queue.push_back((self.busy_until, command));
    }

    /// Does what was asked for; `None` where that has only begun.
    fn carry_out(&mut self, command: Command, now: Instant) -> Option<Completion> {
        Some(match command {
            Command::Create { file, path } => Completion::Created { file, result: self.carry_out_create(file, path) },
            Command::Append { file, cookie, known_failures, data } => {
                self.queued_bytes -= length_of(&data);
                match self.carry_out_append(file, known_failures, &data) {
                    Ok(offset) => Completion::Appended { file, cookie, offset },
                    Err(cause) => Completion::AppendFailed { file, cookie, cause, data },
                }
            }
            Command::Sync { file, cookie } => Completion::Synced { file, cookie, result: self.carry_out_sync(file) },
            Command::Publish { file, final_path, cookie } => {
                Completion::Published { file, cookie, result: self.carry_out_publish(file, final_path) }
            }
            Command::Remove { path, cookie } if is_segment(&path) => {
                self.begin_removal(&path, cookie, now);
                return None;
            }
            Command::Remove { path, cookie } => {
                let removed = self.storage.lock().files.remove(&path);
                Completion::Removed { cookie, result: removed.map(drop).ok_or(DiskCause::NotFound) }
            }
            Command::LookFor { path, cookie } => {
                let is_there = self.storage.lock().files.contains_key(&path);
                Completion::LookedFor { cookie, result: is_there.then_some(()).ok_or(DiskCause::NotFound) }
            }
        })
    }

    /// Hides the file; it is gone a while later, and nothing waits for that.
    fn begin_removal(&mut self, path: &Path, cookie: u64, now: Instant) {
        let medium = &mut *self.storage.lock();
        let hidden = medium.files.remove(path).map(|content| {
            let hidden = hidden(path);
            medium.files.insert(hidden.clone(), content);
            hidden
        });
        let takes = medium.random.between(medium.faults.least_latency, medium.faults.most_latency);
        let begins = self.removals.back().map_or(now, |&(before, _)| before.max(now));
        self.removals.push_back((begins.after(takes), Removal { hidden, cookie }));
    }

    /// A file that was hidden is gone.
    fn end_removal(&mut self, Removal { hidden, cookie }: Removal) -> Completion {
        let gone = hidden.map(|hidden| drop(self.storage.lock().files.remove(&hidden)));
        Completion::Removed { cookie, result: gone.ok_or(DiskCause::NotFound) }
    }

    /// When the next thing ends.
    fn next(&self) -> Option<Instant> {
        let (commands, removals) = (self.queue.front(), self.removals.front());
        commands.map(|&(done, _)| done).into_iter().chain(removals.map(|&(done, _)| done)).min()
    }

    /// Drops the deleted files that this disk had open.
    fn forget_unlinked(&mut self) {
        let medium = &mut *self.storage.lock();
        for (path, _) in self.files.iter().filter_map(|open| open.place.as_ref()) {
            medium.unlinked.remove(path);
        }
    }

    fn carry_out_create(&mut self, file: FileToken, path: PathBuf) -> Result<(), DiskCause> {
        let medium = &mut *self.storage.lock();
        medium.name_change()?;
        if !medium.has_directory_of(&path) {
            return Err(DiskCause::NotFound);
        }
        if medium.files.contains_key(&path) {
            return Err(DiskCause::Exists);
        }
        medium.files.insert(path.clone(), Content { bytes: Vec::new(), synced: 0, durable_name: None });
        self.files[file.0 as usize].place = Some((path, medium.cuts));
        Ok(())
    }

    fn carry_out_append(&mut self, file: FileToken, known: u32, data: &[Slice]) -> Result<u64, DiskCause> {
        let medium = &mut *self.storage.lock();
        let open = self.files.get_mut(file.0 as usize).ok_or(DiskCause::NotOpen)?;
        let path = open.path(medium.cuts)?;
        let free = medium.faults.capacity.saturating_sub(medium.used());
        let failure = if open.failures != known {
            open.last_failure
        } else if medium.random.chance(medium.faults.write_error) {
            Some(DEVICE_ERROR)
        } else {
            (free < length_of(data) as u64).then_some(DiskCause::Full)
        };
        if let Some(cause) = failure {
            if open.failures == known {
                open.failures += 1;
                open.last_failure = Some(cause);
            }
            return Err(cause);
        }
        let content = match medium.open_file(path) {
            Ok(content) => content,
            Err(cause) => {
                (open.failures, open.last_failure) = (open.failures + 1, Some(cause));
                return Err(cause);
            }
        };
        let offset = content.bytes.len() as u64;
        if open.seals {
            Seals::default().seal(data, |piece| content.bytes.extend_from_slice(piece));
        } else {
            data.iter().for_each(|slice| content.bytes.extend_from_slice(slice));
        }
        Ok(offset)
    }

    fn carry_out_sync(&mut self, file: FileToken) -> Result<(), DiskCause> {
        let medium = &mut *self.storage.lock();
        let open = self.files.get(file.0 as usize).ok_or(DiskCause::NotOpen)?;
        let path = open.path(medium.cuts)?;
        if medium.random.chance(medium.faults.sync_error) {
            return Err(DEVICE_ERROR);
        }
        let content = medium.open_file(path)?;
        content.synced = content.bytes.len();
        content.durable_name = Some(path.clone());
        Ok(())
    }

    fn carry_out_publish(&mut self, file: FileToken, final_path: PathBuf) -> Result<(), DiskCause> {
        if self.config.sync_on_publish {
            self.carry_out_sync(file)?;
        }
        let medium = &mut *self.storage.lock();
        let open = self.files.get_mut(file.0 as usize).ok_or(DiskCause::NotOpen)?;
        let path = open.path(medium.cuts)?;
        medium.name_change()?;
        medium.open_file(path)?;
        if !medium.has_directory_of(&final_path) {
            return Err(DiskCause::NotFound);
        }
        let mut content = medium.files.remove(path).ok_or(DiskCause::NotOpen)?;
        if self.config.sync_on_publish {
            content.durable_name = Some(final_path.clone());
        }
        if open.has_checksum {
            let mut checksum = Checksum::default();
            checksum.update(&content.bytes);
            let (path, text) = checksum_file(&final_path, checksum);
            let durable_name = content.durable_name.is_some().then(|| path.clone());
            let synced = if durable_name.is_some() { text.len() } else { 0 };
            medium.files.insert(path, Content { bytes: text.into_bytes(), synced, durable_name });
        }
        medium.files.insert(final_path, content);
        open.place = None;
        Ok(())
    }
}

impl Drop for SimulatedDisk {
    fn drop(&mut self) {
        self.forget_unlinked();
        let Some((_, Command::Append { file, known_failures, data, .. })) = self.queue.front() else { return };
        let medium = &mut *self.storage.lock();
        // Where it never happens no chance is drawn, so that the history of a seed does not depend on it.
        if medium.faults.torn_append == 0.0 || !medium.random.chance(medium.faults.torn_append) {
            return;
        }
        let Some(open) = self.files.get(file.0 as usize).filter(|open| open.failures == *known_failures) else {
            return;
        };
        let part = medium.random.below(length_of(data) as u64 + 1) as usize;
        if let Some(content) = open.path(medium.cuts).ok().and_then(|path| medium.files.get_mut(path)) {
            content.bytes.extend(data.iter().flat_map(|slice| slice.iter()).take(part));
        }
    }
}

impl Open {
    fn path(&self, cuts: u32) -> Result<&PathBuf, DiskCause> {
        match &self.place {
            Some((path, before)) if *before == cuts => Ok(path),
            _ => Err(DiskCause::NotOpen),
        }
    }
}

impl Disk for SimulatedDisk {
    fn enter_directory(&mut self, path: &Path) -> Vec<String> {
        let medium = &mut *self.storage.lock();
        medium.directories.extend(path.ancestors().map(Path::to_owned));
        medium.entered.insert(path.to_owned());
        // What a killed process has left of files that it was deleting.
        let is_hidden =
            |name: &Path| name.parent() == Some(path) && name.to_string_lossy().ends_with(DELETED_EXTENSION);
        medium.files.retain(|name, _| !is_hidden(name));
        let inside = medium.files.keys().filter(|name| name.parent() == Some(path));
        inside.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect()
    }

    fn read(&mut self, path: &Path) -> Result<Vec<u8>, DiskCause> {
        self.storage.read(path)
    }

    /// Nothing is packed: what is written can be looked at.
    fn create(&mut self, path: &Path, how: NewFile) -> FileToken {
        let file = FileToken(self.files.len() as u32);
        self.files.push(Open { has_checksum: how.checksum, seals: how.seals, ..Open::default() });
        self.command(0, Command::Create { file, path: path.to_owned() });
        file
    }

    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) -> Result<(), QueueFull> {
        let bytes = length_of(data);
        if self.queued_bytes > 0 && self.queued_bytes + bytes > self.config.queue_bytes {
            return Err(QueueFull);
        }
        self.queued_bytes += bytes;
        // Failures come to be known when their completions are taken, which is when they happen here.
        let known_failures = self.files.get(file.0 as usize).map_or(0, |open| open.failures);
        let mut taken = Vec::with_capacity(data.len());
        taken.append(data);
        self.command(bytes, Command::Append { file, cookie, known_failures, data: taken });
        Ok(())
    }

    fn sync(&mut self, file: FileToken, cookie: u64) {
        self.command(0, Command::Sync { file, cookie });
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, cookie: u64) {
        self.command(0, Command::Publish { file, final_path: final_path.to_owned(), cookie });
    }

    /// That of a segment takes no time of the others.
    fn remove(&mut self, path: &Path, cookie: u64) {
        if !is_segment(path) {
            return self.command(0, Command::Remove { path: path.to_owned(), cookie });
        }
        let begins = self.busy_until.max(self.clock.now());
        self.queue.push_back((begins, Command::Remove { path: path.to_owned(), cookie }));
    }

    /// Costs no time, so that a schedule of faults meets what it would have met without it.
    fn look_for(&mut self, path: &Path, cookie: u64) {
        let done = self.busy_until.max(self.clock.now());
        self.queue.push_back((done, Command::LookFor { path: path.to_owned(), cookie }));
    }

    fn free_bytes(&mut self, _path: &Path) -> Result<u64, DiskCause> {
        let medium = self.storage.lock();
        Ok(medium.faults.capacity.saturating_sub(medium.used()))
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let (now, before) = (self.clock.now(), completions.len());
        while let Some(time) = self.next().filter(|&time| time <= now) {
            if let Some((_, command)) = self.queue.pop_front_if(|(done, _)| *done <= time) {
                completions.extend(self.carry_out(command, time));
            } else if let Some((_, removal)) = self.removals.pop_front() {
                completions.push(self.end_removal(removal));
            }
        }
        completions.len() - before
    }

    fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn restored_files(&self) -> u64 {
        self.storage.lock().restored
    }

    fn prepare_wait(&mut self) -> bool {
        self.next().is_none_or(|done| done > self.clock.now())
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let done = self.next()?;
        Some(self.local.as_ref().map_or(done, |local| local(done)))
    }
}
