//! The writer thread: takes commands in order, writes many appends with one system call.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrayvec::ArrayVec;
use ropewalk_memory::Slice;
use rtrb::{Consumer, Producer};

use super::{DiskCause, FileToken, files, length_of};
use crate::doorbell::Doorbell;

/// Slices in one system call: the kernel's limit (`IOV_MAX`).
const GATHERED: usize = 1024;
/// Files that may be open before memory is asked for.
const FILES: usize = 16;
/// Appends that are looked at for one system call.
const BATCH: usize = 256;

/// What the writer is asked to do.
pub(super) enum Command {
    Create {
        file: FileToken,
        path: PathBuf,
        preallocate: u64,
    },
    Append(Append),
    Sync {
        file: FileToken,
        cookie: u64,
    },
    Publish {
        file: FileToken,
        final_path: PathBuf,
        cookie: u64,
    },
    Remove {
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
    /// The failures of the file that its user knew of: an append that was queued before a failure became
    /// known must not be written after it.
    pub(super) known_failures: u32,
    pub(super) data: Vec<Slice>,
}

/// How a command ended. Appends bring their vector back, empty if it was written, and paths that are of no more use
/// come back too.
pub(super) enum Done {
    Created { file: FileToken, result: Result<(), (DiskCause, PathBuf)> },
    Appended { append: Append, result: Result<u64, DiskCause>, bytes: usize },
    Synced { file: FileToken, cookie: u64, result: Result<(), DiskCause> },
    Published { file: FileToken, cookie: u64, result: Result<(), DiskCause>, paths: [Option<PathBuf>; 2] },
    Removed { cookie: u64, result: Result<(), DiskCause>, path: PathBuf },
}

struct OpenFile {
    token: FileToken,
    descriptor: OwnedFd,
    path: PathBuf,
    /// It has its final name: nothing more is done with it.
    is_published: bool,
    /// Whether its present name survives a power cut.
    name_synced: bool,
    /// The end of the last good append.
    length: u64,
    failures: u32,
    last_failure: DiskCause,
}

/// The thread's state.
pub(super) struct Writer {
    pub(super) commands: Consumer<Command>,
    pub(super) done: Producer<Done>,
    /// Rung when a command comes while this thread sleeps.
    pub(super) own_bell: Arc<Doorbell>,
    /// Rung when something is done while the user's thread sleeps.
    pub(super) user_bell: Arc<Doorbell>,
    pub(super) sync_on_publish: bool,
    files: Vec<OpenFile>,
    batch: Vec<Append>,
}

impl Writer {
    pub(super) fn new(
        commands: Consumer<Command>,
        done: Producer<Done>,
        [own_bell, user_bell]: [Arc<Doorbell>; 2],
        sync_on_publish: bool,
    ) -> Self {
        let (files, batch) = (Vec::with_capacity(FILES), Vec::with_capacity(BATCH));
        Self { commands, done, own_bell, user_bell, sync_on_publish, files, batch }
    }

    /// Works until it is told to stop or its user is gone.
    pub(super) fn run(mut self) {
        loop {
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

    fn sleep(&self) {
        self.own_bell.arm();
        if self.commands.is_empty() && !self.commands.is_abandoned() {
            self.own_bell.wait();
        }
        self.own_bell.disarm();
        self.own_bell.silence();
    }

    fn report(&mut self, done: Done) {
        // There is room: the user never has more commands under way than fit.
        let _ = self.done.push(done);
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Create { file, path, preallocate } => {
                let result = match files::create(&path, preallocate) {
                    Ok(descriptor) => {
                        self.files.push(OpenFile::new(file, descriptor, path));
                        Ok(())
                    }
                    Err(cause) => Err((cause, path)),
                };
                self.report(Done::Created { file, result });
            }
            Command::Append(append) => self.append(append),
            Command::Sync { file, cookie } => {
                let result = self.file(file).ok_or(DiskCause::NotOpen).and_then(OpenFile::sync);
                self.report(Done::Synced { file, cookie, result });
            }
            Command::Publish { file, final_path, cookie } => {
                let result = self.publish(file, &final_path);
                // Renamed, it is no longer needed even where that may not survive a power cut.
                let published = self.files.extract_if(.., |open| open.token == file && open.is_published).next();
                let paths = [Some(final_path), published.map(|open| open.path)];
                self.report(Done::Published { file, cookie, result, paths });
            }
            Command::Remove { path, cookie } => {
                self.report(Done::Removed { cookie, result: files::remove(&path), path });
            }
            Command::Stop => {}
        }
    }

    fn file(&mut self, token: FileToken) -> Option<&mut OpenFile> {
        self.files.iter_mut().find(|file| file.token == token)
    }

    fn publish(&mut self, token: FileToken, final_path: &Path) -> Result<(), DiskCause> {
        let sync = self.sync_on_publish;
        let file = self.file(token).ok_or(DiskCause::NotOpen)?;
        files::truncate(&file.descriptor, file.length);
        if sync {
            files::sync(&file.descriptor)?;
        }
        files::rename(&file.path, final_path)?;
        file.is_published = true;
        if sync { files::sync_directory_of(final_path) } else { Ok(()) }
    }

    /// Writes this append and those to the same file that wait right behind it.
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
            Some(file) => write_batch(file, batch.drain(..), &mut self.done),
            None => batch.drain(..).for_each(|append| fail(append, DiskCause::NotOpen, &mut self.done)),
        }
        self.batch = batch;
    }
}

impl OpenFile {
    const fn new(token: FileToken, descriptor: OwnedFd, path: PathBuf) -> Self {
        Self {
            token,
            descriptor,
            path,
            is_published: false,
            name_synced: false,
            length: 0,
            failures: 0,
            last_failure: DiskCause::Full,
        }
    }

    /// Makes the bytes survive a power cut; what use are they without the name, so that too.
    fn sync(&mut self) -> Result<(), DiskCause> {
        files::sync(&self.descriptor)?;
        if !self.name_synced {
            files::sync_directory_of(&self.path)?;
            self.name_synced = true;
        }
        Ok(())
    }
}

fn fail(append: Append, cause: DiskCause, done: &mut Producer<Done>) {
    let bytes = length_of(&append.data);
    let _ = done.push(Done::Appended { append, result: Err(cause), bytes });
}

/// Writes appends in order; those behind one that fails fail too.
fn write_batch(file: &mut OpenFile, batch: impl Iterator<Item = Append>, done: &mut Producer<Done>) {
    let mut waiting: ArrayVec<Append, BATCH> = ArrayVec::new();
    for append in batch {
        if append.known_failures == file.failures {
            waiting.push(append);
        } else {
            fail(append, file.last_failure, done);
        }
    }
    let total: u64 = waiting.iter().map(|append| length_of(&append.data) as u64).sum();
    let slices = || waiting.iter().flat_map(|append| append.data.iter()).map(|slice| &**slice);
    let (written, failure) = write_all(&file.descriptor, file.length, total, slices);
    let reached = file.length + written;
    for mut append in waiting {
        let bytes = length_of(&append.data);
        match failure {
            Some(cause) if file.length + bytes as u64 > reached => {
                // Counted once for all of them: whoever knows the new number knows that they come back.
                if file.failures == append.known_failures {
                    file.failures = file.failures.wrapping_add(1);
                    file.last_failure = cause;
                    files::truncate(&file.descriptor, file.length);
                }
                let _ = done.push(Done::Appended { append, result: Err(cause), bytes });
            }
            _ => {
                append.data.clear();
                let _ = done.push(Done::Appended { append, result: Ok(file.length), bytes });
                file.length += bytes as u64;
            }
        }
    }
}

/// Writes all slices from `offset` on, with as many calls as it takes; returns how many bytes reached the
/// file, and why not all.
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
        match files::write(descriptor, &gathered, offset + written) {
            Ok(more) => written += more as u64,
            Err(cause) => return (written, Some(cause)),
        }
    }
    (written, None)
}
