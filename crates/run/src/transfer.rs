//! Transfer of closed run files to their destination, by a command of the user.
//!
//! ```text
//! places   which closed run files of this process's builder units lie on the disks, and are not transferred yet
//! queue    which of them is next, and when one that failed is tried again
//! command  runs the command for one file, and takes the checksum that it prints
//! ```
//! A transfer counts when the command succeeds and prints the checksum of the local file. Only then is the file
//! deleted, if configured, or a mark put beside it. The disk holds all the state: unconfirmed files are found again by
//! the next start, of any run.

use super::error::{RunError, system};
use crate::user_command;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Instant, NodeId};
use ropewalk_tools::checksum_of;
use ropewalk_wire::run_file::{CHECKSUM_EXTENSION, SegmentName};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The service's thread. The threads of commands have its name and a number.
const THREAD: &str = "transfer";
/// How often to search directories.
const LOOK: Duration = Duration::from_millis(500);
/// How often to check whether the run is over.
const TURN: Duration = Duration::from_millis(20);

/// Configuration of the transfer of closed run files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransferConfig {
    /// The command and its arguments, with placeholders.
    pub(crate) command: Vec<String>,
    /// A second command, which prints the checksum of the transferred file; `None` if the first one does.
    pub(crate) checksum: Option<Vec<String>>,
    /// Whether confirmed files are deleted.
    pub(crate) delete: bool,
    /// Time-out of a command. At the end of the run it is also the time-out for all of them.
    pub(crate) timeout: Duration,
    /// Maximum number of concurrent commands.
    pub(crate) at_once: usize,
    /// Parents of run directories, each with the directory to which closed files are moved.
    pub(crate) places: Vec<(PathBuf, Option<PathBuf>)>,
    /// Writers of the files: the builder units of this process.
    pub(crate) writers: Vec<NodeId>,
}

/// Transfers of run files since this process started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct TransferSummary {
    /// Run files whose checksum was confirmed.
    pub transferred: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Those of them that were deleted.
    pub deleted: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Closed run files, of any run, that are not transferred yet.
    pub left: u64,
    /// The error of the latest failed attempt; null if none.
    pub last_failure: Option<String>,
}

impl TransferSummary {
    /// Returns the remark at the end of the run.
    pub fn remark(&self) -> Option<String> {
        let why = self.last_failure.as_ref().map(|why| format!(" (the latest: {why})")).unwrap_or_default();
        let text = format!(
            "{} closed run files are not transferred{why}; the next start that writes to the same place tries them again",
            self.left
        );
        (self.left > 0).then_some(text)
    }
}

/// Transfers closed run files during the run.
#[derive(Debug)]
pub(super) struct TransferService {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the service's thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    summary: Mutex<TransferSummary>,
    /// Set at the end of the run: the remaining files are tried once more.
    is_ending: AtomicBool,
    /// Set to start no further command and end the running ones.
    is_halted: AtomicBool,
}

impl TransferService {
    /// Starts the service's thread.
    pub(super) fn start(config: TransferConfig) -> Result<Self, RunError> {
        let shared = Arc::new(Shared::default());
        let service = Service::new(config, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || service.run());
        let thread = thread.map_err(system(format!("thread {THREAD}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the transfers of run files so far.
    pub(super) fn summary(&self) -> TransferSummary {
        self.shared.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits at the end of the run until each remaining file was tried once more, up to the time-out of one command.
    pub(super) fn finish(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for TransferService {
    fn drop(&mut self) {
        self.shared.is_halted.store(true, Ordering::Release);
        self.join();
    }
}

/// The end of an attempt.
struct Ended {
    file: PathBuf,
    /// The file's size in bytes, and whether it was deleted.
    result: Result<(u64, bool), String>,
}

/// The thread's state.
struct Service {
    config: Arc<TransferConfig>,
    queue: Queue,
    ended: (Sender<Ended>, Receiver<Ended>),
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Service {
    fn new(config: TransferConfig, shared: Arc<Shared>) -> Self {
        let queue = Queue::new(config.at_once);
        Self { config: Arc::new(config), queue, ended: channel(), threads: Vec::new(), shared }
    }

    fn run(mut self) {
        let mut until = None;
        let mut look_due = std::time::Instant::now();
        while !self.shared.is_halted.load(Ordering::Acquire) {
            let is_ending = self.shared.is_ending.load(Ordering::Acquire) && until.is_none();
            if is_ending || std::time::Instant::now() >= look_due {
                self.look();
                look_due = std::time::Instant::now() + LOOK;
            }
            if is_ending {
                self.queue.try_everything_once_more();
                until = Some(std::time::Instant::now() + self.config.timeout);
            }
            self.turn();
            if until.is_some_and(|until| self.queue.is_tried() || std::time::Instant::now() >= until) {
                break;
            }
            std::thread::sleep(TURN);
        }
        self.shared.is_halted.store(true, Ordering::Release);
        // The run's account includes the attempts that ended last.
        for thread in std::mem::take(&mut self.threads) {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
        self.take_ends();
    }

    /// Records files that were closed since the last search, and drops removed ones.
    fn look(&mut self) {
        self.queue.found(self.config.closed_files());
        self.tell(|summary, left| summary.left = left);
    }

    /// Handles finished attempts, and starts new ones.
    fn turn(&mut self) {
        self.take_ends();
        while let Some(file) = self.queue.next(MonotonicClock.now()) {
            let (config, shared, sender) = (Arc::clone(&self.config), Arc::clone(&self.shared), self.ended.0.clone());
            let name = format!("{THREAD}.{}", self.threads.len());
            let work = move || {
                let result = config.transfer(&file, &shared.is_halted);
                // If the service has ended, the result is not needed.
                let _ = sender.send(Ended { file: file.path, result });
            };
            // Without a thread the file is tried again after the next search.
            if let Ok(thread) = std::thread::Builder::new().name(name).spawn(work) {
                self.threads.push(thread);
            }
        }
        self.threads.retain(|thread| !thread.is_finished());
    }

    fn take_ends(&mut self) {
        while let Ok(Ended { file, result }) = self.ended.1.try_recv() {
            match result {
                Ok((bytes, is_deleted)) => {
                    self.queue.succeeded(&file);
                    self.tell(|summary, left| {
                        summary.transferred += 1;
                        summary.bytes += bytes;
                        summary.deleted += u64::from(is_deleted);
                        summary.left = left;
                    });
                }
                Err(failure) => {
                    self.queue.failed(MonotonicClock.now(), &file);
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    let text = format!("{name}: {failure}");
                    self.tell(|summary, left| {
                        summary.failures += 1;
                        summary.left = left;
                        summary.last_failure = Some(text);
                    });
                }
            }
        }
    }

    fn tell(&self, change: impl FnOnce(&mut TransferSummary, u64)) {
        let mut summary = self.shared.summary.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut summary, self.queue.len() as u64);
    }
}

/// Pause after the first failure of a file. Each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// State of a file that is not transferred.
#[derive(Debug)]
struct Waiting {
    found: Found,
    failures: u32,
    /// Earliest time of the next attempt.
    due: Instant,
    is_under_way: bool,
    /// Whether it was tried since the final retry of all files.
    is_tried: bool,
}

/// The files that are not transferred, in the order of their paths.
#[derive(Debug)]
struct Queue {
    files: BTreeMap<PathBuf, Waiting>,
    at_once: usize,
}

impl Queue {
    /// Creates an empty queue. `at_once` files may be in transfer at once, at least one.
    fn new(at_once: usize) -> Self {
        Self { files: BTreeMap::new(), at_once: at_once.max(1) }
    }

    /// Replaces the list of files. Files not in it were removed.
    fn found(&mut self, files: impl IntoIterator<Item = Found>) {
        let mut gone = std::mem::take(&mut self.files);
        for found in files {
            let known = gone.remove(&found.path);
            let path = found.path.clone();
            let fresh = Waiting { found, failures: 0, due: Instant::ZERO, is_under_way: false, is_tried: false };
            self.files.insert(path, known.unwrap_or(fresh));
        }
        // Their ends are still reported.
        self.files.extend(gone.into_iter().filter(|(_, file)| file.is_under_way));
    }

    /// Returns the next file to transfer, if one is due and may begin.
    fn next(&mut self, now: Instant) -> Option<Found> {
        if self.files.values().filter(|file| file.is_under_way).count() >= self.at_once {
            return None;
        }
        let file = self.files.values_mut().find(|file| !file.is_under_way && file.due <= now)?;
        file.is_under_way = true;
        Some(file.found.clone())
    }

    /// Records a successful transfer.
    fn succeeded(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Records a failed attempt. The file is tried again after a growing pause.
    fn failed(&mut self, now: Instant, path: &Path) {
        let Some(file) = self.files.get_mut(path) else { return };
        (file.is_under_way, file.is_tried) = (false, true);
        let doublings = file.failures.min(16);
        file.failures += 1;
        file.due = now.after(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE));
    }

    /// Makes every file due at once, even one that pauses.
    fn try_everything_once_more(&mut self) {
        for file in self.files.values_mut() {
            (file.due, file.is_tried) = (Instant::ZERO, false);
        }
    }

    /// Returns whether each remaining file was tried since then.
    fn is_tried(&self) -> bool {
        self.files.values().all(|file| file.is_tried && !file.is_under_way)
    }

    /// Returns the number of files that are not transferred.
    fn len(&self) -> usize {
        self.files.len()
    }
}

/// Time-out for the last line of a command that has ended: a process that it started may keep its output open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Lines are cut after this many bytes.
const LINE_BYTES: u64 = 4096;

impl TransferConfig {
    /// Transfers a file. Returns its size in bytes and whether it was deleted, or why it was not transferred.
    fn transfer(&self, file: &Found, is_halted: &AtomicBool) -> Result<(u64, bool), String> {
        let of_file = |error: io::Error| format!("the run file cannot be read, marked or deleted: {error}");
        let (here, bytes) = checksum(&file.path).map_err(of_file)?;
        let there = self.carry_out(file, is_halted)?;
        if there != here {
            return Err(format!("the file has the checksum {here:08x}, and what has arrived {there:08x}"));
        }
        // The transfer is confirmed.
        if self.delete { delete(&file.path) } else { mark(&file.path, here) }.map_err(of_file)?;
        Ok((bytes, self.delete))
    }

    /// Runs the command, and the one for the checksum if there is another one. Returns the checksum.
    fn carry_out(&self, file: &Found, is_halted: &AtomicBool) -> Result<u32, String> {
        let mut said = self.run(&self.command, file, is_halted)?;
        let mut teller = &self.command;
        if let Some(checksum) = &self.checksum {
            (said, teller) = (self.run(checksum, file, is_halted)?, checksum);
        }
        read_checksum(&said).ok_or_else(|| {
            format!(
                "the last line of `{}` is `{said}`: it should begin with the file's CRC-32C in eight hexadecimal digits",
                program_of(teller)
            )
        })
    }

    /// Runs a command. Returns the last line of its output.
    fn run(&self, words: &[String], file: &Found, is_halted: &AtomicBool) -> Result<String, String> {
        let (program, timeout) = (program_of(words), self.timeout);
        let filled = words.iter().skip(1).map(|word| filled(word, file));
        let words: Vec<_> = words.iter().take(1).cloned().chain(filled).collect();
        let mut command = user_command::of_words(words.iter().map(String::as_str));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child
            .map_err(|error| format!("`{program}` cannot be started: {error}; see `command` of [storage.transfer]"))?;
        let said = [child.stdout.take().map(last_line), child.stderr.take().map(last_line)];
        let ended = user_command::wait(&mut child, timeout, is_halted);
        let [out, errors] =
            said.map(|line| line.and_then(|line| line.recv_timeout(LAST_WORDS).ok()).unwrap_or_default());
        match ended {
            Some(status) if status.success() => Ok(out),
            Some(status) => {
                Err(format!("`{program}` ended with {status}: {}", if errors.is_empty() { out } else { errors }))
            }
            None if is_halted.load(Ordering::Acquire) => Err(format!("`{program}` was ended with the run")),
            None => Err(format!(
                "`{program}` was ended: it took longer than {timeout:?}; see `timeout` of [storage.transfer]"
            )),
        }
    }

    /// Returns the closed run files of these writers, of any run, whose transfer is not confirmed. An unreadable
    /// directory counts as empty.
    fn closed_files(&self) -> Vec<Found> {
        let mut directories = Vec::new();
        for (output, hand_over) in &self.places {
            match hand_over {
                // An absolute path is used unchanged.
                Some(place) => directories.push(output.join(place)),
                None => directories.extend(entries(output).filter(|path| path.is_dir())),
            }
        }
        directories.sort();
        directories.dedup();
        directories.iter().flat_map(|directory| entries(directory)).filter_map(|path| self.found(path)).collect()
    }

    fn found(&self, path: PathBuf) -> Option<Found> {
        let name: SegmentName = path.file_name()?.to_str()?.parse().ok()?;
        let is_wanted = self.writers.contains(&name.writer) && !is_transferred(&path);
        is_wanted.then_some(Found { path, run: name.run.0 })
    }
}

fn program_of(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}

/// Returns a word of the command with its placeholders filled for this file.
fn filled(word: &str, file: &Found) -> String {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    word.replace("{file}", &file.path.display().to_string())
        .replace("{name}", &name)
        .replace("{run}", &format!("{:06}", file.run))
}

/// Returns the checksum at the beginning of a line.
fn read_checksum(line: &str) -> Option<u32> {
    let word = line.split_whitespace().next()?;
    (word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u32::from_str_radix(word, 16).ok())?
}

/// Reads a command's output on a separate thread, so that the caller does not wait for it. The receiver gets the last
/// line at the end.
fn last_line(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, line) = channel();
    std::thread::spawn(move || {
        let (mut stream, mut last, mut next) = (BufReader::new(stream), String::new(), Vec::new());
        while (&mut stream).take(LINE_BYTES).read_until(b'\n', &mut next).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&next);
            if !text.trim().is_empty() {
                text.trim().clone_into(&mut last);
            }
            next.clear();
        }
        // The receiver may have been dropped.
        let _ = sender.send(last);
    });
    line
}

/// Extension that is appended to the name of a run file to mark it as transferred.
const MARK_EXTENSION: &str = ".transferred";

/// A closed run file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    path: PathBuf,
    /// The number of its run.
    run: u32,
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the path with this extension appended.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(extension);
    path.with_file_name(name)
}

/// Returns a file's CRC-32C and size in bytes. If its writer recorded a checksum beside it, that one is used: a copy of
/// bytes that have changed since they were written is not a good one.
fn checksum(path: &Path) -> io::Result<(u32, u64)> {
    if let Some(noted) = noted(&beside(path, CHECKSUM_EXTENSION))? {
        return Ok((noted, fs::metadata(path)?.len()));
    }
    let (checksum, bytes) = checksum_of(path)?;
    Ok((checksum.value(), bytes))
}

/// Returns the checksum in a checksum file; `None` if there is no such file.
fn noted(path: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(path) {
        Ok(text) => read_checksum(&text)
            .map(Some)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{} has no checksum", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a mark beside the file says that it was transferred.
pub(super) fn is_transferred(path: &Path) -> bool {
    beside(path, MARK_EXTENSION).exists()
}

/// Marks the file as transferred.
fn mark(path: &Path, checksum: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    fs::write(beside(path, MARK_EXTENSION), format!("{checksum:08x}  {name}\n"))
}

/// Deletes the file, and the checksum beside it.
fn delete(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    match fs::remove_file(beside(path, CHECKSUM_EXTENSION)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Found {
        Found { path: name.into(), run: 1 }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn next(queue: &mut Queue, seconds: u64) -> Option<String> {
        queue.next(at(seconds)).map(|found| found.path.display().to_string())
    }

    #[test]
    fn a_file_that_fails_waits_twice_as_long_each_time() {
        let mut queue = Queue::new(1);
        queue.found([found("a")]);
        let mut now = at(0);
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(queue.next(now).is_some());
            queue.failed(now, Path::new("a"));
            let almost = now.after(Duration::from_millis(pause * 1000 - 1));
            assert!(queue.next(almost).is_none(), "not before {pause} s have passed");
            queue.found([found("a")]);
            assert!(queue.next(almost).is_none(), "finding a file again does not make it due sooner");
            now = now.after(Duration::from_secs(pause));
        }
    }

    #[test]
    fn one_that_fails_does_not_hold_up_the_others() {
        let mut queue = Queue::new(1);
        queue.found(["a", "b"].map(found));
        assert_eq!(next(&mut queue, 0).as_deref(), Some("a"));
        assert_eq!(next(&mut queue, 0), None, "one at a time");
        queue.failed(at(0), Path::new("a"));
        assert_eq!(next(&mut queue, 0).as_deref(), Some("b"));
        queue.succeeded(Path::new("b"));
        assert_eq!((next(&mut queue, 0), queue.len()), (None, 1));
        queue.try_everything_once_more();
        assert!(!queue.is_tried());
        assert_eq!(next(&mut queue, 0).as_deref(), Some("a"), "no pause is kept at the end");
        queue.failed(at(0), Path::new("a"));
        assert!(queue.is_tried());
    }

    #[test]
    fn so_many_at_once_and_what_is_taken_away_is_forgotten() {
        let mut queue = Queue::new(2);
        queue.found(["a", "b", "c"].map(found));
        let both = [next(&mut queue, 0), next(&mut queue, 0), next(&mut queue, 0)];
        assert_eq!(both.map(Option::unwrap_or_default), ["a", "b", ""]);
        queue.found(["b"].map(found));
        assert_eq!(queue.len(), 2, "c was taken away, and of a it is not known yet how it ends");
        queue.failed(at(0), Path::new("a"));
        queue.found(["b"].map(found));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_word_is_filled_with_what_the_file_is() {
        let file = Found { path: "/data/run000007/run000007-bu0-000002.rwk".into(), run: 7 };
        let filled = ["{file}", "host:/{run}/{name}", "-a"].map(|word| filled(word, &file));
        let expected = ["/data/run000007/run000007-bu0-000002.rwk", "host:/000007/run000007-bu0-000002.rwk", "-a"];
        assert_eq!(filled, expected);
    }

    #[test]
    fn a_checksum_is_eight_digits_and_nothing_less() {
        assert_eq!(read_checksum("e3069283  file"), Some(0xe306_9283));
        assert_eq!(read_checksum("E3069283"), Some(0xe306_9283));
        for line in ["", "e306928", "e30692833", "+3069283", "sent e3069283"] {
            assert_eq!(read_checksum(line), None, "{line}");
        }
    }
}
