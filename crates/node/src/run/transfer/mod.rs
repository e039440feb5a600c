//! Closed run files are taken to where they are kept, by a command of the user's.
//!
//! ```text
//! places   which closed run files of this process's builder units lie on the disks, and are not transferred yet
//! queue    which of them is next, and when one that failed is tried again
//! command  runs the command for one file, and takes the checksum that it tells
//! ```
//! A transfer counts when the command ends well and tells the checksum that the file has here. Only then is the file deleted,
//! where that is wanted, or a mark put beside it. What is on the disk is all the state there is: whatever was not confirmed
//! is found again by the next start, whichever run it is of.

mod command;
mod places;
mod queue;

use super::assemble::RunError;
use command::{Failure, Order};
pub(super) use places::is_transferred;
use places::{Found, Places};
use queue::Queue;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::NodeId;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The service's thread; those of commands have its name and a number.
const THREAD: &str = "transfer";
/// How often directories are looked through.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is looked whether the run is over.
const TURN: Duration = Duration::from_millis(20);

/// What is to be done with closed run files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransferConfig {
    /// The command and its arguments, with placeholders.
    pub(crate) command: Vec<String>,
    /// A second one, which tells the checksum of what has arrived; none where the first one does.
    pub(crate) checksum: Option<Vec<String>>,
    /// Confirmed files are deleted.
    pub(crate) delete: bool,
    /// A command that takes longer is ended. At the end of the run it also is how long is waited for all of them.
    pub(crate) timeout: Duration,
    /// Commands at once.
    pub(crate) at_once: usize,
    /// Where run directories are, and where closed files are moved from there.
    pub(crate) places: Vec<(PathBuf, Option<PathBuf>)>,
    /// Whose files they are: the builder units of this process.
    pub(crate) writers: Vec<NodeId>,
}

/// What became of run files, since this process started.
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
    /// What people should know at the end.
    pub fn remark(&self) -> Option<String> {
        let why = self.last_failure.as_ref().map(|why| format!(" (the latest: {why})")).unwrap_or_default();
        let text = format!(
            "{} closed run files are not transferred{why}; the next start that writes to the same place tries them again",
            self.left
        );
        (self.left > 0).then_some(text)
    }
}

/// Takes closed run files away while the run goes on.
#[derive(Debug)]
pub(super) struct TransferService {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the service's thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    summary: Mutex<TransferSummary>,
    /// The run is over: what is left is tried once more.
    is_ending: AtomicBool,
    /// Nothing more is begun, and what is under way is ended.
    is_halted: Arc<AtomicBool>,
}

impl TransferService {
    /// Starts the service's thread.
    pub(super) fn start(config: TransferConfig) -> Result<Self, RunError> {
        let shared = Arc::new(Shared::default());
        let service = Service::new(config, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || service.run());
        let thread = thread.map_err(super::assemble::system(format!("thread {THREAD}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What became of run files so far.
    pub(super) fn summary(&self) -> TransferSummary {
        self.shared.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The run is over: waits until each file that is left was tried once more, for as long as one command may take.
    pub(super) fn finish(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on its own.
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

/// How an attempt ended.
struct Ended {
    file: PathBuf,
    /// Its bytes, and whether it was deleted.
    result: Result<(u64, bool), Failure>,
}

/// The thread's state.
struct Service {
    order: Arc<Order>,
    places: Places,
    queue: Queue,
    timeout: Duration,
    ended: (Sender<Ended>, Receiver<Ended>),
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Service {
    fn new(config: TransferConfig, shared: Arc<Shared>) -> Self {
        let TransferConfig { command, checksum, delete, timeout, at_once, places, writers } = config;
        let order = Order { command, checksum, delete, timeout, is_halted: Arc::clone(&shared.is_halted) };
        Self {
            order: Arc::new(order),
            places: Places::new(places, writers),
            queue: Queue::new(at_once),
            timeout,
            ended: channel(),
            threads: Vec::new(),
            shared,
        }
    }

    fn run(mut self) {
        let mut until = None;
        let mut look_due = Instant::now();
        while !self.shared.is_halted.load(Ordering::Acquire) {
            let is_ending = self.shared.is_ending.load(Ordering::Acquire) && until.is_none();
            if is_ending || Instant::now() >= look_due {
                self.look();
                look_due = Instant::now() + LOOK;
            }
            if is_ending {
                self.queue.try_everything_once_more();
                until = Some(Instant::now() + self.timeout);
            }
            self.turn();
            if until.is_some_and(|until| self.queue.is_tried() || Instant::now() >= until) {
                break;
            }
            std::thread::sleep(TURN);
        }
        self.shared.is_halted.store(true, Ordering::Release);
        // The run's account has what ended last, too.
        for thread in std::mem::take(&mut self.threads) {
            // A thread that panicked has said so on its own.
            let _ = thread.join();
        }
        self.take_ends();
    }

    /// Takes note of files that were closed since, and forgets those that somebody took away.
    fn look(&mut self) {
        self.queue.found(self.places.list());
        self.tell(|summary, left| summary.left = left);
    }

    /// Takes what has ended, and begins what may begin.
    fn turn(&mut self) {
        self.take_ends();
        while let Some(file) = self.queue.next(MonotonicClock.now()) {
            let (order, sender) = (Arc::clone(&self.order), self.ended.0.clone());
            let name = format!("{THREAD}.{}", self.threads.len());
            let work = move || {
                let result = transfer(&order, &file);
                // Whoever ended the service does not want to know.
                let _ = sender.send(Ended { file: file.path, result });
            };
            // Without a thread the file is tried again with the next look.
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

/// Transfers a file; returns its bytes and whether it was deleted.
fn transfer(order: &Order, file: &Found) -> Result<(u64, bool), Failure> {
    let (checksum, bytes) = places::checksum(&file.path).map_err(Failure::File)?;
    let told = order.carry_out(file)?;
    if told != checksum {
        return Err(Failure::WrongChecksum { here: checksum, there: told });
    }
    confirmed(&file.path, checksum, order.delete).map_err(Failure::File)?;
    Ok((bytes, order.delete))
}

/// The file is safe elsewhere.
fn confirmed(path: &Path, checksum: u32, delete: bool) -> std::io::Result<()> {
    if delete { places::delete(path) } else { places::mark(path, checksum) }
}
