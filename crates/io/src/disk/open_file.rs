//! A file that is being written, and the two ways of its appends: through the page cache, many slices with one system
//! call, or past it. The system calls of files, and the meaning of their errors, are at the end.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use arrayvec::ArrayVec;
use ropewalk_wire::run_file::{Checksum, Compression, Packer};
use rtrb::Producer;
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::helper::{ALIGNMENT, Helper};
use super::writer::{Append, BATCH, Done, Intake, Tally, Vigil};
use super::{DiskCause, FileToken, NewFile, WriteMode, checksum_file, probe};
use crate::clock::{Clock, MonotonicClock};

/// Number of slices in one system call: the kernel's limit (`IOV_MAX`).
pub(super) const GATHERED: usize = 1024;
/// With [`WriteMode::Auto`], a file that gets at least this number of bytes at once is written past the page cache.
/// Waiting for the device costs less there than the page cache's own copy and its write-back; with fewer bytes it is
/// the other way round.
const DIRECT_FROM: u64 = 1 << 20;
/// Number of bytes of records that are sealed before they go into the page cache; they are then still in the
/// processor's cache.
const SEALED: u64 = 256 << 10;
/// A file that gets fewer bytes at once up to this length stays in the page cache to its end.
const UNDECIDED: u64 = 8 << 20;

pub(super) struct OpenFile {
    pub(super) token: FileToken,
    descriptor: OwnedFd,
    /// For writes past the page cache; `None` if they are not wanted, or the file system does not support them.
    direct: Option<Direct>,
    /// Packs appends; `None` if they are written unpacked.
    packing: Option<Packing>,
    /// Checksum of the whole file, if requested.
    checksum: Option<Checksum>,
    /// Whether open records are sealed.
    seals: bool,
    pub(super) path: PathBuf,
    /// The file system of its directory when that was entered; `None` if it was not.
    home: Option<u64>,
    /// Whether it has its final name: nothing more is done with it.
    pub(super) is_published: bool,
    /// Whether its present name survives a power cut.
    name_synced: bool,
    /// The end of the last good append.
    pub(super) length: u64,
    failures: u32,
    last_failure: DiskCause,
    /// Whether to probe its device.
    wants_probe: bool,
}

/// State of packing.
struct Packing {
    compression: Compression,
    /// Whether open records are sealed before they are packed.
    seals: bool,
    /// The writer's own packer, for use without packing threads.
    packer: Packer,
    /// Number of bytes in the file before packing.
    length: u64,
    /// Like `length`, including packed appends that will be in the file if nothing fails.
    prepared: u64,
    /// Buffers of earlier appends for gathered and packed bytes.
    spare: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The way past the page cache.
struct Direct {
    descriptor: OwnedFd,
    /// Whether all appends go this way. Otherwise none has, and [`OpenFile::is_past_cache`] decides.
    is_chosen: bool,
    /// The bytes behind the last multiple of [`ALIGNMENT`].
    tail: ArrayVec<u8, ALIGNMENT>,
}

impl OpenFile {
    /// Creates the file.
    pub(super) fn create(
        token: FileToken,
        path: PathBuf,
        home: Option<u64>,
        how: NewFile,
        mode: WriteMode,
    ) -> Result<Self, (DiskCause, PathBuf)> {
        let descriptor = match create(&path, home, how.preallocate) {
            Ok(descriptor) => descriptor,
            Err(cause) => return Err((cause, path)),
        };
        let descriptor_past_cache = if mode == WriteMode::Buffered { None } else { open_direct(&path) };
        let is_chosen = mode == WriteMode::Direct;
        let direct = descriptor_past_cache.map(|descriptor| Direct { descriptor, is_chosen, tail: ArrayVec::new() });
        let compression = how.compression;
        let packing = Packer::new(compression).map(|packer| Packing {
            compression,
            seals: how.seals,
            packer,
            length: 0,
            prepared: 0,
            spare: Vec::new(),
        });
        Ok(Self {
            token,
            descriptor,
            direct,
            packing,
            checksum: how.checksum.then(Checksum::default),
            seals: how.seals,
            path,
            home,
            is_published: false,
            name_synced: false,
            length: 0,
            failures: 0,
            last_failure: DiskCause::Full,
            wants_probe: false,
        })
    }

    /// Cuts off bytes that are not part of the file.
    pub(super) fn cut(&self) {
        truncate(&self.descriptor, self.length);
    }

    /// Writes the checksum file next to the final path, if a checksum is requested.
    pub(super) fn write_checksum(&self, final_path: &Path, sync: bool) -> Result<(), DiskCause> {
        let Some(checksum) = self.checksum else { return Ok(()) };
        let (path, text) = checksum_file(final_path, checksum);
        write_small(&path, &text, sync)
    }

    /// Sets its permissions. The umask does not apply.
    pub(super) fn set_permissions(&self, permissions: u32) -> Result<(), DiskCause> {
        fs::fchmod(&self.descriptor, Mode::from_raw_mode(permissions)).map_err(cause)
    }

    /// Makes the bytes survive a power cut.
    pub(super) fn sync_bytes(&self) -> Result<(), DiskCause> {
        sync(&self.descriptor)
    }

    /// Checks that the file is still where it was created; otherwise writes its first bytes there once more. Returns
    /// whether that was necessary.
    pub(super) fn make_sure(&mut self, length: u64) -> Result<bool, DiskCause> {
        if is_at(&self.descriptor, &self.path) {
            return Ok(false);
        }
        let again = create(&self.path, self.home, 0).map_err(|_| DiskCause::Deleted)?;
        if copy(&self.descriptor, &again, length).is_err() {
            // A partial copy would block the next attempt.
            let _ = remove(&self.path);
            return Err(DiskCause::Deleted);
        }
        // The program that moved the file keeps one that ends with its last good append.
        self.cut();
        self.descriptor = again;
        self.name_synced = false;
        match self.direct.take().zip(open_direct(&self.path)) {
            Some((direct, descriptor)) => self.direct = Some(Direct { descriptor, ..direct }),
            None => self.direct = None,
        }
        Ok(true)
    }

    /// Makes the bytes survive a power cut, and the name too, since they are of no use without it.
    pub(super) fn sync(&mut self) -> Result<(), DiskCause> {
        self.sync_bytes()?;
        if !self.name_synced {
            sync_directory_of(&self.path)?;
            self.name_synced = true;
        }
        Ok(())
    }

    /// Writes appends in order, including those that arrive meanwhile; if one fails, the appends behind it fail too.
    /// Reports the cost to `tally`.
    pub(super) fn append(
        &mut self,
        mut intake: Intake<'_>,
        helper: Option<&mut Helper>,
        done: &mut Producer<Done>,
        tally: &Tally,
    ) {
        if let Some(packing) = &mut self.packing {
            packing.prepared = packing.length;
        }
        let total: u64 = intake.first.as_slice().iter().map(|append| append.bytes() as u64).sum();
        let is_past_cache = total > 0 && self.is_past_cache(total);
        match helper.filter(|_| is_past_cache || self.packing.is_some()) {
            Some(helper) => self.append_by_helper(intake, helper, is_past_cache, done, tally),
            None => {
                let mut waiting = ArrayVec::new();
                self.take_rest(&mut intake, &mut waiting, done, tally);
                self.append_through_cache(waiting, done, tally);
            }
        }
    }

    /// The directory whose device is to be probed now: once for each device.
    pub(super) fn take_probe(&mut self) -> Option<PathBuf> {
        core::mem::take(&mut self.wants_probe).then(|| probe::directory_of(&self.path))
    }

    /// Whether the next `total` bytes go past the page cache. Decided once for the whole file: with both ways in turn,
    /// its end would lie in the page cache each time and be written back out of order.
    fn is_past_cache(&mut self, total: u64) -> bool {
        let Some(direct) = &mut self.direct else { return false };
        if direct.is_chosen {
            return true;
        }
        if total >= DIRECT_FROM {
            let (probe, is_unknown) = probe::of_file(&self.descriptor);
            self.wants_probe = is_unknown;
            if probe.is_some_and(|probe| !probe.prefers_direct()) {
                self.direct = None;
                return false;
            }
            direct.is_chosen = true;
            if self.length > direct.tail.len() as u64 {
                // Bytes in the page cache are written first. An error shows again in the next sync, if one is
                // requested.
                let _ = sync(&self.descriptor);
            }
            return true;
        }
        if self.length + total > UNDECIDED {
            self.direct = None;
        }
        false
    }

    /// The next append of a pass, packed if the file is; `waiting` appends are written before it. `None` if no append
    /// has arrived or is packed. Reports as failed the appends that must not be written.
    fn next(
        &mut self,
        intake: &mut Intake<'_>,
        waiting: usize,
        done: &mut Producer<Done>,
        tally: &Tally,
    ) -> Option<Append> {
        loop {
            let (append, is_packed) = match &mut self.packing {
                None => (intake.take()?, true),
                Some(packing) => packing.next(intake, waiting, self.failures)?,
            };
            if !is_packed && append.known_failures == self.failures {
                (self.failures, self.last_failure) = (self.failures.wrapping_add(1), DiskCause::System(NO_MEMORY));
            }
            if append.known_failures == self.failures {
                tally.copied(if self.packing.is_some() { append.bytes() as u64 } else { 0 });
                return Some(append);
            }
            fail(append, self.last_failure, done);
        }
    }

    /// Takes the appends that arrived in this pass, and none that arrive now.
    fn take_rest(
        &mut self,
        intake: &mut Intake<'_>,
        waiting: &mut ArrayVec<Append, BATCH>,
        done: &mut Producer<Done>,
        tally: &Tally,
    ) {
        intake.close();
        let mut vigil = Vigil::new(intake.own_bell);
        loop {
            if let Some(append) = self.next(intake, waiting.len(), done, tally) {
                vigil.awake();
                waiting.push(append);
            } else if intake.is_packing() {
                vigil.nothing_to_do();
            } else {
                return;
            }
        }
    }

    fn append_through_cache(&mut self, mut waiting: ArrayVec<Append, BATCH>, done: &mut Producer<Done>, tally: &Tally) {
        let seals = self.seals && self.packing.is_none();
        let (mut begin, mut bytes, mut failure) = (0, 0, None);
        while begin < waiting.len() && failure.is_none() {
            let (mut end, mut total) = (begin, 0);
            while end < waiting.len() && (!seals || total < SEALED) {
                let append = &mut waiting[end];
                if seals {
                    append.seals.seal(&append.data, |_| ());
                }
                total += append.written_bytes() as u64;
                end += 1;
            }
            let pieces = || waiting[begin..end].iter().flat_map(Append::pieces);
            let (written, why) = write_all(&self.descriptor, self.length + bytes, total, pieces);
            (begin, bytes, failure) = (end, bytes + written, why);
        }
        self.conclude(waiting, bytes, failure, done, tally);
    }

    /// Reports the first appends as written while others are still packed or in flight, so that a user with more data
    /// can append it before the disk runs out of work.
    fn append_by_helper(
        &mut self,
        mut intake: Intake<'_>,
        helper: &mut Helper,
        is_past_cache: bool,
        done: &mut Producer<Done>,
        tally: &Tally,
    ) {
        let mut pending: ArrayVec<Append, BATCH> = ArrayVec::new();
        match self.direct.as_ref().filter(|_| is_past_cache) {
            Some(Direct { tail, .. }) => {
                helper.begin(tail, self.length - tail.len() as u64, ALIGNMENT);
                tally.copied(tail.len() as u64);
            }
            None => helper.begin(&[], self.length, 1),
        }
        let mut vigil = Vigil::new(intake.own_bell);
        while !pending.is_full() && !helper.has_failed() {
            let next = self.next(&mut intake, pending.len(), done, tally);
            let has_next = next.is_some();
            if let Some(mut append) = next {
                vigil.awake();
                let way = self.way(is_past_cache);
                if self.seals && self.packing.is_none() {
                    append.seals.seal(&append.data, |piece| helper.add(way, piece));
                } else {
                    append.pieces().for_each(|piece| helper.add(way, piece));
                }
                tally.copied(append.written_bytes() as u64);
                pending.push(append);
            }
            let is_accepted = self.accept_written(&mut pending, helper.written_to(), done);
            if is_accepted {
                // A waiting user may have more data as soon as it learns of written appends.
                intake.user_bell.notify();
            }
            if has_next || is_accepted {
                continue;
            }
            if !intake.is_packing() && !helper.is_at_work() {
                break;
            }
            vigil.nothing_to_do();
        }
        drop(vigil);
        self.take_rest(&mut intake, &mut pending, done, tally);
        let ended = helper.end(self.way(is_past_cache));
        match ended {
            Ok(()) => self.conclude(pending, u64::MAX, None, done, tally),
            // The file system reports only now that it does not support such writes.
            Err(DiskCause::System(INVALID)) if is_past_cache => {
                self.direct = None;
                self.append_through_cache(pending, done, tally);
            }
            Err(cause) => self.conclude(pending, 0, Some(cause), done, tally),
        }
    }

    /// The way into the file.
    fn way(&self, is_past_cache: bool) -> &OwnedFd {
        self.direct.as_ref().filter(|_| is_past_cache).map_or(&self.descriptor, |direct| &direct.descriptor)
    }

    /// Reports the first appends of `pending` as written that end at or before `end`; returns whether there are any.
    fn accept_written(&mut self, pending: &mut ArrayVec<Append, BATCH>, end: u64, done: &mut Producer<Done>) -> bool {
        let is_written = |file: &Self, append: &Append| file.length + append.written_bytes() as u64 <= end;
        let before = pending.len();
        // A lost file is handled when no write is in flight any more.
        while pending.first().is_some_and(|append| is_written(self, append)) && is_at(&self.descriptor, &self.path) {
            self.accept(pending.remove(0), done);
        }
        pending.len() < before
    }

    /// Accepts an append as part of the file.
    fn accept(&mut self, mut append: Append, done: &mut Producer<Done>) {
        let (bytes, written_bytes) = (append.bytes(), append.written_bytes() as u64);
        self.keep_tail(&append);
        if let Some(checksum) = &mut self.checksum {
            append.pieces().for_each(|piece| checksum.update(piece));
        }
        append.data.clear();
        append.took = MonotonicClock.now().since(append.given);
        let memory = (core::mem::take(&mut append.gathered), core::mem::take(&mut append.packed));
        let _ = done.push(Done::Appended { append, result: Ok(self.length), bytes });
        self.length += written_bytes;
        if let Some(packing) = &mut self.packing {
            packing.length += bytes as u64;
            packing.spare.push(memory);
        }
    }

    /// Reports the result of each append: `bytes` bytes behind the end are in the file, and no write is in flight.
    fn conclude(
        &mut self,
        waiting: ArrayVec<Append, BATCH>,
        bytes: u64,
        mut failure: Option<DiskCause>,
        done: &mut Producer<Done>,
        tally: &Tally,
    ) {
        let total: u64 = waiting.iter().map(|append| append.written_bytes() as u64).sum();
        let mut reached = self.length + bytes.min(total);
        match self.make_sure(reached) {
            Ok(is_restored) => tally.restored(is_restored),
            Err(cause) => (reached, failure) = (self.length, Some(cause)),
        }
        for append in waiting {
            let (bytes, written_bytes) = (append.bytes(), append.written_bytes() as u64);
            match failure {
                Some(cause) if self.length + written_bytes > reached => {
                    // Counted once for all of them: a user that knows the new number knows that they are returned.
                    if self.failures == append.known_failures {
                        self.failures = self.failures.wrapping_add(1);
                        self.last_failure = cause;
                        self.cut();
                    }
                    let _ = done.push(Done::Appended { append, result: Err(cause), bytes });
                }
                _ => self.accept(append, done),
            }
        }
    }

    /// Keeps the bytes behind the last multiple of the alignment after this append.
    fn keep_tail(&mut self, append: &Append) {
        let Some(Direct { tail, .. }) = &mut self.direct else { return };
        let end = self.length + append.written_bytes() as u64;
        let wanted = (end % ALIGNMENT as u64) as usize;
        // From the last piece backwards, until there are enough bytes.
        let (mut before, mut bytes) = (append.pieces().count(), 0);
        for piece in append.pieces().rev() {
            if bytes >= wanted {
                break;
            }
            (before, bytes) = (before - 1, bytes + piece.len());
        }
        if bytes >= wanted {
            tail.clear();
        }
        for piece in append.pieces().skip(before) {
            let skip = bytes.saturating_sub(wanted).min(piece.len());
            bytes -= skip;
            tail.extend(piece[skip..].iter().copied());
        }
    }
}

impl Packing {
    /// The next append of a pass, packed, with `waiting` appends ahead of it, and whether it could be packed.
    fn next(&mut self, intake: &mut Intake<'_>, waiting: usize, failures: u32) -> Option<(Append, bool)> {
        let Some(packers) = intake.packers.take() else {
            let (mut append, offset) = self.prepare(intake.take()?, failures);
            let is_packed = append.pack(&mut self.packer, offset);
            return Some((append, is_packed));
        };
        while waiting + packers.under_way() < BATCH
            && packers.has_room()
            && let Some(append) = intake.take()
        {
            let (append, offset) = self.prepare(append, failures);
            packers.give(append, offset, self.compression);
        }
        let packed = packers.take();
        intake.packers = Some(packers);
        packed
    }

    /// Gathers the bytes of an append and returns it with its offset in the file before packing. An append that knows
    /// another number of failures of the file will not be part of it.
    fn prepare(&mut self, mut append: Append, failures: u32) -> (Append, u64) {
        if append.packed.capacity() == 0 {
            (append.gathered, append.packed) = self.spare.pop().unwrap_or_default();
        }
        append.gather(self.seals);
        let offset = self.prepared;
        self.prepared += if append.known_failures == failures { append.bytes() as u64 } else { 0 };
        (append, offset)
    }
}

/// Creates a file. Its directory is made again if it existed before.
fn create(path: &Path, home: Option<u64>, preallocate: u64) -> Result<OwnedFd, DiskCause> {
    match (create_file(path, preallocate), home) {
        (Err(DiskCause::NotFound), Some(home)) => {
            restore_directory_of(path, home)?;
            create_file(path, preallocate)
        }
        (result, _) => result,
    }
}

/// Fails an append to a file that is not open.
pub(super) fn fail(append: Append, cause: DiskCause, done: &mut Producer<Done>) {
    let bytes = append.bytes();
    let _ = done.push(Done::Appended { append, result: Err(cause), bytes });
}

/// Writes all slices from `offset` on, with as many calls as needed. Returns how many bytes reached the file, and the
/// error if not all did.
fn write_all<'a, I: Iterator<Item = &'a [u8]>>(
    descriptor: &OwnedFd,
    offset: u64,
    total: u64,
    slices: impl Fn() -> I,
) -> (u64, Option<DiskCause>) {
    let mut written = 0;
    while written < total {
        let mut skip = written;
        let mut gathered: ArrayVec<IoSlice<'_>, GATHERED> = ArrayVec::new();
        for slice in slices() {
            let length = slice.len() as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            gathered.push(IoSlice::new(&slice[skip as usize..]));
            skip = 0;
            if gathered.is_full() {
                break;
            }
        }
        match write(descriptor, &gathered, offset + written) {
            Ok(more) => written += more as u64,
            Err(cause) => return (written, Some(cause)),
        }
    }
    (written, None)
}

/// The magic number of a file system in memory (`TMPFS_MAGIC`).
const TMPFS: fs::FsWord = 0x0102_1994;

pub(super) const fn cause(error: Errno) -> DiskCause {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DiskCause::Full,
        Errno::NOENT | Errno::NOTDIR => DiskCause::NotFound,
        Errno::EXIST => DiskCause::Exists,
        Errno::ACCESS | Errno::PERM => DiskCause::Denied,
        other => DiskCause::System(other.raw_os_error()),
    }
}

/// Makes a directory and lists its entries.
pub(super) fn enter_directory(path: &Path) -> Vec<String> {
    // An error shows again, with its cause, when the first file is created.
    let _ = std::fs::create_dir_all(path);
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns the number (`st_dev`) of the file system of a path.
pub(super) fn file_system(path: &Path) -> Option<u64> {
    fs::stat(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok().map(|found| found.st_dev)
}

/// Makes the directory of a file again, if it would be on the same file system as before.
pub(super) fn restore_directory_of(path: &Path, wanted: u64) -> Result<(), DiskCause> {
    let directory = path.parent().ok_or(DiskCause::NotFound)?;
    if directory.ancestors().find_map(file_system) != Some(wanted) {
        return Err(DiskCause::NotFound);
    }
    std::fs::create_dir_all(directory).map_err(|error| Errno::from_io_error(&error).map_or(DiskCause::NotFound, cause))
}

/// Whether this path leads to this file. True if that cannot be found out.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    match (fs::fstat(file), fs::stat(path)) {
        (Ok(open), Ok(named)) => (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino),
        (Ok(_), Err(Errno::NOENT | Errno::NOTDIR)) => false,
        _ => true,
    }
}

/// Copies the first bytes of a file, which may have lost its name, into another one.
fn copy(from: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<(), DiskCause> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).map_or(DiskCause::NotFound, cause);
    // It was opened for writing; the system lets its owner open it once more for reading.
    let from = std::fs::File::open(format!("/proc/self/fd/{}", from.as_raw_fd())).map_err(failed)?;
    let mut to = std::fs::File::from(to.try_clone().map_err(failed)?);
    let copied = std::io::copy(&mut std::io::Read::take(from, bytes), &mut to).map_err(failed)?;
    if copied == bytes { Ok(()) } else { Err(DiskCause::NotFound) }
}

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, DiskCause> {
    std::fs::read(path).map_err(|error| {
        error.raw_os_error().map_or(DiskCause::NotFound, |number| cause(Errno::from_raw_os_error(number)))
    })
}

/// Creates a new, empty file.
fn create_file(path: &Path, preallocate: u64) -> Result<OwnedFd, DiskCause> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(cause)?;
    // Tells programs that recover files that this file has a running writer. Without locks there is no such sign.
    let _ = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    if preallocate > 0 {
        // Keeps the size at the written bytes, so that a reader never sees zeros at the end. If preallocation fails,
        // the file grows as it is written; if there is no room, the first append reports that.
        let _ = fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, preallocate);
    }
    Ok(file)
}

/// The error of a write that the file system or the device does not support (`EINVAL`).
const INVALID: i32 = Errno::INVAL.raw_os_error();

/// The error of a call for which there is no memory (`ENOMEM`).
const NO_MEMORY: i32 = Errno::NOMEM.raw_os_error();

/// Opens a second descriptor of a file, past the page cache; `None` if the file system offers none or has no use for
/// it.
fn open_direct(path: &Path) -> Option<OwnedFd> {
    let file = fs::open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()?;
    (!is_in_memory(&file)).then_some(file)
}

/// Whether a file lies in the page cache only, although its file system may accept `O_DIRECT`.
pub(super) fn is_in_memory(file: &OwnedFd) -> bool {
    fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

/// Writes slices at an offset; returns the number of bytes, or the error if there are none.
pub(super) fn write(file: impl AsFd, gathered: &[IoSlice<'_>], offset: u64) -> Result<usize, DiskCause> {
    loop {
        match rustix::io::pwritev(&file, gathered, offset) {
            Ok(0) => return Err(DiskCause::Full),
            Ok(written) => return Ok(written),
            Err(Errno::INTR) => {}
            Err(error) => return Err(cause(error)),
        }
    }
}

/// Writes a small file with this text; replaces an existing one.
fn write_small(path: &Path, text: &str, durable: bool) -> Result<(), DiskCause> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(cause)?;
    let written = write(&file, &[IoSlice::new(text.as_bytes())], 0)?;
    if written < text.len() {
        return Err(DiskCause::Full);
    }
    if durable { sync(&file) } else { Ok(()) }
}

/// Cuts the file back to its good part, and frees preallocated space behind it.
fn truncate(file: &OwnedFd, length: u64) {
    // If it fails, the next append overwrites the rest, and readers check records anyway.
    let _ = fs::ftruncate(file, length);
}

pub(super) fn sync(file: &OwnedFd) -> Result<(), DiskCause> {
    fs::fdatasync(file).map_err(cause)
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DiskCause> {
    fs::rename(from, to).map_err(cause)
}

/// Makes the names in a file's directory survive a power cut.
pub(super) fn sync_directory_of(path: &Path) -> Result<(), DiskCause> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(directory, flags, Mode::empty()).map_err(cause)?;
    fs::fsync(&directory).map_err(cause)
}

pub(super) fn remove(path: &Path) -> Result<(), DiskCause> {
    fs::unlink(path).map_err(cause)
}

/// Checks whether a file exists. Not found too if a directory of its path is no longer a directory.
pub(super) fn look_for(path: &Path) -> Result<(), DiskCause> {
    match fs::stat(path) {
        Ok(_) => Ok(()),
        Err(Errno::NOTDIR) => Err(DiskCause::NotFound),
        Err(error) => Err(cause(error)),
    }
}

/// Returns the free bytes below this path. Asks the operating system.
///
/// # Errors
/// If there is no such path, or the system does not report it.
pub fn free_bytes(path: &Path) -> Result<u64, DiskCause> {
    let state = fs::statvfs(path).map_err(cause)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}
