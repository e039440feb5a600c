//! A thread that turns drives: busy while there is work, asleep otherwise.

use crate::drive::{Drive, Refusal};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::wait::{Idle, Waiter, Waker};
use ropewalk_terms::Instant;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest sleep: commands and the end are looked for at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// How the threads of a process end together.
#[derive(Debug, Default)]
pub(super) struct Ending {
    halt: AtomicBool,
    refusal: OnceLock<Refusal>,
    /// Threads that have not ended, by name.
    living: Mutex<Vec<String>>,
    /// Threads that panicked, by name.
    panicked: Mutex<Vec<String>>,
}

impl Ending {
    /// Every thread ends after its present round.
    pub(super) fn halt(&self) {
        self.halt.store(true, Ordering::Relaxed);
    }

    /// Who refused a drive of this process for good. All threads end then: a node is of no use without it.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    fn refused(&self, refusal: &Refusal) {
        // The first one is told.
        let _ = self.refusal.set(refusal.clone());
        self.halt();
    }

    /// Threads that panicked, by name. All threads end then: they wait for each other, and one that is gone answers nobody.
    pub(super) fn panicked(&self) -> Vec<String> {
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Threads that have not ended, by name.
    pub(super) fn living(&self) -> Vec<String> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn came(&self, name: &str) {
        self.living.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    fn left(&self, name: &str) {
        let mut living = self.living.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = living.iter().position(|one| one == name) {
            living.remove(place);
        }
    }

    /// Whether every thread is to end.
    pub(super) fn is_halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// Lies on a thread's stack, and is dropped with it, also where that is unwound.
struct Presence<'e> {
    name: &'e str,
    ending: &'e Ending,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let Self { name, ending } = *self;
        ending.left(name);
        if std::thread::panicking() {
            ending.panicked.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
            ending.halt();
        }
    }
}

/// A running thread with its drives.
#[derive(Debug)]
pub(super) struct Worker {
    thread: JoinHandle<()>,
    waker: Waker,
}

impl Worker {
    /// Starts a thread that turns `drives` until all are done or it is to end; `prepare` runs on it first
    /// (placement).
    ///
    /// # Errors
    /// Where the system gives no thread or no descriptor.
    pub(super) fn start(
        name: &str,
        drives: Vec<Box<dyn Drive + Send>>,
        ending: Arc<Ending>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let waiter = Waiter::new()?;
        let waker = waiter.waker();
        ending.came(name);
        let (own, shared) = (name.to_owned(), Arc::clone(&ending));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _presence = Presence { name: &own, ending: &ending };
            prepare();
            turn_all(drives, waiter, &ending);
        });
        let thread = thread.inspect_err(|_| shared.left(name))?;
        Ok(Self { thread, waker })
    }

    /// Ends the present sleep.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// What ends its sleeps from other threads.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The thread has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread's end. Whether it panicked is known to its [`Ending`].
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

fn turn_all(mut drives: Vec<Box<dyn Drive + Send>>, mut waiter: Waiter, ending: &Ending) {
    let clock = MonotonicClock;
    {
        let mut descriptors = Vec::new();
        for drive in &drives {
            drive.wait_descriptors(&mut descriptors);
        }
        for descriptor in descriptors {
            // Where it cannot be watched, the longest sleep bounds what is missed.
            let _ = waiter.watch(descriptor);
        }
    }
    let mut idle = Idle::default();
    while !ending.is_halted() {
        // One clock read per round: everything in it happens at one time.
        let now = clock.now();
        let mut work = 0;
        let mut living = false;
        for drive in &mut drives {
            if !drive.is_done() {
                living = true;
                work += drive.turn(now);
                if let Some(refusal) = drive.refusal() {
                    ending.refused(refusal);
                }
            }
        }
        if !living {
            return;
        }
        if idle.is_long_enough(now, work) {
            sleep(&mut drives, &waiter, now);
        }
    }
}

fn sleep(drives: &mut [Box<dyn Drive + Send>], waiter: &Waiter, now: Instant) {
    let mut ready = false;
    let mut until = now.after(LONGEST_SLEEP);
    for drive in drives.iter_mut().filter(|drive| !drive.is_done()) {
        ready |= !drive.prepare_wait();
        if let Some(deadline) = drive.next_deadline() {
            until = until.min(deadline);
        }
    }
    if !ready && until > now {
        waiter.wait(Some(until.since(now)));
    }
}

/// What panics as soon as it is turned.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Panics;

#[cfg(test)]
impl Drive for Panics {
    fn turn(&mut self, _now: Instant) -> usize {
        panic!("this is a test of threads that panic");
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<std::os::fd::BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

/// What does not come back from a turn until it may.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Hangs(pub(super) Arc<AtomicBool>);

#[cfg(test)]
impl Drive for Hangs {
    fn turn(&mut self, _now: Instant) -> usize {
        while !self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<std::os::fd::BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}
