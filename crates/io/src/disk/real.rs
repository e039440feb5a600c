//! The machine's disk: one thread that writes what it is given, many slices per system call.

use super::{Completion, Disk, DiskCause, FileToken, Outcome};
use crate::clock::{Clock, MonotonicClock};
use crate::wait::{new_bell, ring, silence};
use ropewalk_memory::Slice;
use ropewalk_terms::{Instant, Utc};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// What the thread is asked for.
enum Work {
    Create { file: FileToken, path: PathBuf, preallocate: u64 },
    Append { file: FileToken, cookie: u64, data: Vec<Slice>, bytes: usize },
    Sync { file: FileToken, cookie: u64 },
    Publish { file: FileToken, final_path: PathBuf, sync: bool, cookie: u64 },
    Remove { path: PathBuf, cookie: u64 },
}

/// What the thread answers: a completion, and the vector of an append for the next one.
struct Answer {
    completion: Completion,
    spare: Option<Vec<Slice>>,
}

/// What both sides see.
struct Shared {
    queued: AtomicUsize,
    sleeping: AtomicBool,
    bell: OwnedFd,
}

/// The machine's disk, with a thread of its own.
pub struct RealDisk {
    work: Option<SyncSender<Work>>,
    answers: Receiver<Answer>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    spare: Vec<Vec<Slice>>,
    held: Option<Answer>,
    files: u32,
    cookies: u64,
    clock: MonotonicClock,
}

impl RealDisk {
    /// Starts the thread, which has this name.
    ///
    /// # Errors
    /// Where the system gives no thread or no descriptor.
    pub fn new(name: &str) -> io::Result<Self> {
        // Bounded, so that sending allocates nothing. A writer has a handful of pieces of work under way at most.
        let (work, received) = sync_channel(WORK);
        let (answer, answers) = sync_channel(WORK);
        let shared =
            Arc::new(Shared { queued: AtomicUsize::new(0), sleeping: AtomicBool::new(false), bell: new_bell()? });
        let theirs = Arc::clone(&shared);
        let writer = move || Writer { files: Vec::new(), answer, shared: theirs }.serve(&received);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(writer)?;
        Ok(Self {
            work: Some(work),
            answers,
            shared,
            thread: Some(thread),
            spare: Vec::new(),
            held: None,
            files: 0,
            cookies: 0,
            clock: MonotonicClock,
        })
    }

    fn give(&self, work: Work) {
        if let Some(sender) = &self.work {
            // The thread lives as long as this sender: it ends only when the sender is dropped.
            let _ = sender.send(work);
        }
    }
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        // What was given is still written: the thread ends when its queue is empty.
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Disk for RealDisk {
    fn enter_directory(&mut self, path: &Path) -> Vec<String> {
        // An error shows again, with its cause, when the first file is created.
        let _ = fs::create_dir_all(path);
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn create(&mut self, path: &Path, preallocate: u64) -> FileToken {
        let file = FileToken(self.files);
        self.files += 1;
        self.give(Work::Create { file, path: path.to_owned(), preallocate });
        file
    }

    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) {
        let bytes = data.iter().map(|slice| slice.len()).sum();
        self.shared.queued.fetch_add(bytes, Ordering::Relaxed);
        let data = std::mem::replace(data, self.spare.pop().unwrap_or_default());
        self.give(Work::Append { file, cookie, data, bytes });
    }

    fn sync(&mut self, file: FileToken, cookie: u64) {
        self.give(Work::Sync { file, cookie });
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, sync: bool, cookie: u64) {
        self.give(Work::Publish { file, final_path: final_path.to_owned(), sync, cookie });
    }

    fn remove(&mut self, path: &Path, cookie: u64) {
        self.give(Work::Remove { path: path.to_owned(), cookie });
    }

    fn next_cookie(&mut self) -> u64 {
        self.cookies += 1;
        self.cookies
    }

    fn queued_bytes(&self) -> usize {
        self.shared.queued.load(Ordering::Relaxed)
    }

    fn poll(&mut self, _now: Instant, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        while let Some(answer) = self.held.take().or_else(|| self.answers.try_recv().ok()) {
            self.spare.extend(answer.spare);
            completions.push(answer.completion);
        }
        completions.len() - before
    }

    fn utc(&self, _now: Instant) -> Utc {
        self.clock.utc()
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn prepare_wait(&mut self) -> bool {
        silence(self.shared.bell.as_fd());
        // First the flag, then the look: an answer that comes in between rings the bell.
        self.shared.sleeping.store(true, Ordering::SeqCst);
        self.held = self.held.take().or_else(|| self.answers.try_recv().ok());
        if self.held.is_some() {
            self.shared.sleeping.store(false, Ordering::SeqCst);
        }
        self.held.is_none()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.bell.as_fd())
    }
}

/// A file as the thread knows it.
struct OpenFile {
    /// The file, or why it could not be created.
    file: Result<File, DiskCause>,
    path: PathBuf,
    /// Bytes appended whole: where a refused append is cut off.
    length: u64,
}

struct Writer {
    files: Vec<Option<OpenFile>>,
    answer: SyncSender<Answer>,
    shared: Arc<Shared>,
}

impl Writer {
    fn serve(mut self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            self.carry_out(work);
        }
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Create { file, path, preallocate } => self.create(file, path, preallocate),
            Work::Append { file, cookie, data, bytes } => {
                let result = self.append(file, &data);
                self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
                self.end(cookie, result, data);
            }
            Work::Sync { file, cookie } => {
                let result = self
                    .open(file)
                    .and_then(|open| open.file.as_ref().map_err(|&cause| cause)?.sync_data().map_err(cause));
                self.end(cookie, result, Vec::new());
            }
            Work::Publish { file, final_path, sync, cookie } => {
                let result = self.publish(file, &final_path, sync);
                self.end(cookie, result, Vec::new());
            }
            Work::Remove { path, cookie } => {
                let result = fs::remove_file(path).map_err(cause);
                self.end(cookie, result, Vec::new());
            }
        }
    }

    fn end(&self, cookie: u64, result: Result<(), DiskCause>, mut data: Vec<Slice>) {
        let answer = match result {
            Ok(()) => {
                data.clear();
                Answer { completion: Completion { cookie, outcome: Outcome::Done }, spare: Some(data) }
            }
            Err(cause) => {
                Answer { completion: Completion { cookie, outcome: Outcome::Failed { cause, data } }, spare: None }
            }
        };
        // Nobody listens any more where the disk was dropped: then the answer is of no use.
        let _ = self.answer.send(answer);
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            ring(self.shared.bell.as_fd());
        }
    }

    fn open(&mut self, file: FileToken) -> Result<&mut OpenFile, DiskCause> {
        self.files.get_mut(file.0 as usize).and_then(Option::as_mut).ok_or(DiskCause::System(0))
    }

    fn create(&mut self, file: FileToken, path: PathBuf, preallocate: u64) {
        let created = create_file(&path, preallocate);
        let place = file.0 as usize;
        if self.files.len() <= place {
            self.files.resize_with(place + 1, || None);
        }
        self.files[place] = Some(OpenFile { file: created, path, length: 0 });
    }

    fn append(&mut self, file: FileToken, data: &[Slice]) -> Result<(), DiskCause> {
        let open = self.open(file)?;
        if open.file.is_err() {
            // The directory may have come, or room: the creation is tried again with the data.
            open.file = create_file(&open.path, 0);
        }
        let target = open.file.as_mut().map_err(|cause| *cause)?;
        match write_all(target, data) {
            Ok(written) => {
                open.length += written;
                Ok(())
            }
            Err(error) => {
                // Half a batch would put every later record out of place.
                let _ = target.set_len(open.length);
                let _ = io::Seek::seek(target, io::SeekFrom::Start(open.length));
                Err(cause(error))
            }
        }
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, sync: bool) -> Result<(), DiskCause> {
        let open = self.open(file)?;
        let target = open.file.as_ref().map_err(|cause| *cause)?;
        if sync {
            target.sync_all().map_err(cause)?;
        }
        fs::rename(&open.path, final_path).map_err(cause)?;
        if let (true, Some(directory)) = (sync, final_path.parent()) {
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(cause)?;
        }
        self.files[file.0 as usize] = None;
        Ok(())
    }
}

fn create_file(path: &Path, preallocate: u64) -> Result<File, DiskCause> {
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(cause)?;
    if preallocate > 0 {
        // A file system that cannot set room aside writes all the same.
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, preallocate);
    }
    Ok(file)
}

fn cause(error: io::Error) -> DiskCause {
    match error.raw_os_error() {
        Some(number) if number == Errno::NOSPC.raw_os_error() || number == Errno::DQUOT.raw_os_error() => {
            DiskCause::Full
        }
        number => DiskCause::System(number.unwrap_or(0)),
    }
}

/// Pieces of work, and answers, that may be on their way.
const WORK: usize = 256;
/// The most slices of one system call (IOV_MAX).
const SLICES: usize = 1024;

/// Writes everything; returns how many bytes that were.
fn write_all(file: &mut File, data: &[Slice]) -> io::Result<u64> {
    let mut written = 0;
    let mut vectors = [IoSlice::new(&[]); SLICES];
    for slices in data.chunks(SLICES) {
        for (vector, slice) in vectors.iter_mut().zip(slices) {
            *vector = IoSlice::new(slice);
        }
        let mut left = &mut vectors[..slices.len()];
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    written += bytes as u64;
                    IoSlice::advance_slices(&mut left, bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(written)
}
