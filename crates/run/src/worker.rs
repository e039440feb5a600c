//! A thread that turns drives. Drives publish their counters in a page; the event manager's drive publishes them on a
//! board.

use super::placement::MANAGER;
use super::workshop::Workshop;
use ropewalk_engine::pages::{NodePage, OwnerLabel, PageRole};
use ropewalk_engine::{Drive, ManagerDrive, Refusal, RunSnapshot, Standing, observe};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::wait::{Idle, Waiter, Waker};
use ropewalk_monitor::{DiskSample, Sample};
use ropewalk_terms::{Instant, NodeId, Role, SourceId, StreamIndex, Utc};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum sleep: commands and the end are checked at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// The common end of the threads of a process.
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
    /// Ends every thread after its present round.
    pub(super) fn halt(&self) {
        self.halt.store(true, Ordering::Relaxed);
    }

    /// Returns the final refusal of a drive of this process. All threads then end, because a node is useless without
    /// the refusing one.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    fn refused(&self, refusal: &Refusal) {
        // Only the first one is reported.
        let _ = self.refusal.set(refusal.clone());
        self.halt();
    }

    /// Returns the threads that panicked, by name. All threads then end: they wait for each other, and a panicked one
    /// does not answer.
    pub(super) fn panicked(&self) -> Vec<String> {
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the threads that have not ended, by name.
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

    /// Returns whether every thread is to end.
    pub(super) fn is_halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// Marks the thread as alive. It lies on the thread's stack and is dropped with it, also on unwinding.
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
    /// If the system gives no thread or no descriptor.
    pub(super) fn start(
        name: &str,
        drives: Vec<DriveWithPage>,
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

    /// Interrupts the present sleep.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Returns the waker that interrupts its sleeps from other threads.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns whether the thread has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread's end. Its [`Ending`] knows whether it panicked.
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

fn turn_all(mut drives: Vec<DriveWithPage>, mut waiter: Waiter, ending: &Ending) {
    let clock = MonotonicClock;
    {
        let mut descriptors = Vec::new();
        for drive in &drives {
            drive.drive.wait_descriptors(&mut descriptors);
        }
        for descriptor in descriptors {
            // If it cannot be watched, the maximum sleep bounds the delay.
            let _ = waiter.watch(descriptor);
        }
    }
    let mut idle = Idle::default();
    while !ending.is_halted() {
        // One clock read per round: everything in it happens at one time.
        let now = clock.now();
        let mut work = 0;
        let mut living = false;
        for one in &mut drives {
            if !one.drive.is_done() {
                living = true;
                work += one.turn(now);
                if let Some(refusal) = one.drive.refusal() {
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

fn sleep(drives: &mut [DriveWithPage], waiter: &Waiter, now: Instant) {
    let mut ready = false;
    let mut until = now.after(LONGEST_SLEEP);
    for DriveWithPage { drive, .. } in drives.iter_mut().filter(|one| !one.drive.is_done()) {
        ready |= !drive.prepare_wait();
        if let Some(deadline) = drive.next_deadline() {
            until = until.min(deadline);
        }
    }
    if !ready && until > now {
        waiter.wait(Some(until.since(now)));
    }
}

/// A drive that panics when it is turned.
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

/// A drive that does not return from a turn until it may.
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

/// Interval at which all numbers are written, if that takes next to no time.
const USUAL: Duration = Duration::from_millis(100);
/// Maximum age of the numbers, however long it takes to write them.
const LONGEST: Duration = Duration::from_secs(1);
/// Minimum pause between two writes, as a multiple of the time that a write took. Writing therefore costs a thousandth
/// of one thread, and more only if it takes more than a millisecond.
const PAUSE: u32 = 1000;

/// A drive with its page, if it has one.
pub(super) struct DriveWithPage {
    drive: Box<dyn Drive + Send>,
    page: Option<NodePage>,
    due: Instant,
}

impl DriveWithPage {
    /// Creates a drive with an empty page.
    pub(super) const fn new(drive: Box<dyn Drive + Send>, page: Option<NodePage>) -> Self {
        Self { drive, page, due: Instant::ZERO }
    }

    /// Turns the drive. Numbers change only in turns with work, so that they need no turn of their own.
    fn turn(&mut self, now: Instant) -> usize {
        let Self { drive, page: Some(page), due } = self else { return self.drive.turn(now) };
        page.turn_begins(now);
        let work = drive.turn(now);
        // A drive that is done is not turned again: its counts are complete.
        if now >= *due || drive.is_done() {
            let begun = MonotonicClock.now();
            drive.tell(now, page);
            page.told(now);
            let took = MonotonicClock.now().since(begun);
            *due = now.after(took.saturating_mul(PAUSE).clamp(USUAL, LONGEST));
        }
        page.turn_ends(work);
        work
    }
}

/// State shared by the event manager's thread and the handle.
#[derive(Debug, Default)]
pub(super) struct Board {
    standing: Mutex<Standing>,
    /// Closed lumisections, in order.
    lumisections: Mutex<Vec<LumisectionEnd>>,
    /// The thread to wake when the phase changes.
    watcher: OnceLock<Waker>,
}

impl Board {
    /// Wakes this thread at each change of the phase.
    pub(super) fn watch(&self, watcher: Waker) {
        // Only one thread commands a run.
        let _ = self.watcher.set(watcher);
    }

    /// Returns the phase of the nodes.
    pub(super) fn phase(&self) -> RunPhase {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).phase
    }

    /// Returns the phase of the nodes, and whether the run is paused.
    pub(super) fn progress(&self) -> (RunPhase, bool) {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        (standing.phase, standing.is_paused)
    }

    /// Returns the closed lumisections, in order.
    pub(super) fn lumisections(&self) -> Vec<LumisectionEnd> {
        self.lumisections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_lumisection(&self, end: LumisectionEnd) {
        self.lumisections.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }

    pub(super) fn observe(&self, time: Instant, utc: Utc, disk: Option<DiskSample>) -> Sample {
        // Copied first: the event manager's thread waits for this lock.
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        observe(&standing, time, utc, disk)
    }

    pub(super) fn read(&self) -> RunSnapshot {
        RunSnapshot::of(&self.standing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the standing. The lock is held for a copy of some numbers, twenty times a second.
    fn write(&self, standing: &Standing) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).copy_from(standing);
    }
}

/// The event manager's drive with its command queue and its board.
pub(super) struct CommandedManager<P: Dispatcher> {
    pub(super) drive: ManagerDrive<P>,
    pub(super) commands: Receiver<RunCommand>,
    pub(super) board: Arc<Board>,
    pub(super) publish_due: Instant,
    pub(super) published: RunPhase,
}

/// Interval at which the snapshot is updated.
const PUBLISH: Duration = Duration::from_millis(50);

impl<P: Dispatcher> Drive for CommandedManager<P> {
    fn turn(&mut self, now: Instant) -> usize {
        while let Ok(command) = self.commands.try_recv() {
            self.drive.command(now, command);
        }
        let work = self.drive.turn(now);
        while let Some(end) = self.drive.next_ended_lumisection() {
            self.board.add_lumisection(end);
        }
        let phase = self.drive.phase();
        if now >= self.publish_due || phase != self.published || self.drive.is_done() {
            self.publish_due = now.after(PUBLISH);
            self.board.write(self.drive.standing());
            if std::mem::replace(&mut self.published, phase) != phase
                && let Some(watcher) = self.board.watcher.get()
            {
                watcher.wake();
            }
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.drive.next_deadline().map_or(self.publish_due, |deadline| deadline.min(self.publish_due)))
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.drive.refusal()
    }

    fn tell(&self, now: Instant, page: &mut NodePage) {
        self.drive.tell(now, page);
    }
}

impl Workshop<'_> {
    /// Returns a readout or builder unit with its page.
    pub(super) fn with_page(&self, node: NodeId, drive: impl Drive + Send + 'static) -> DriveWithPage {
        let (configuration, index) = (self.resolved.configuration(), usize::from(node.index));
        let page = if node.role == Role::Readout {
            let name = &configuration.readout[index].name;
            let sources = configuration.source.iter().filter(|source| source.readout == *name);
            self.pages.page(name, PageRole::Readout, sources.map(|source| OwnerLabel::source(SourceId(source.id))))
        } else {
            let streams = self.resolved.streams();
            let rows = (0..).zip(&streams).map(|(index, name)| OwnerLabel::stream(StreamIndex(index), name.as_str()));
            self.pages.page(&configuration.builder[index].name, PageRole::Builder, rows)
        };
        DriveWithPage::new(Box::new(drive), page)
    }

    /// Returns the page of an event manager, by its index among all possible event managers.
    pub(super) fn manager_page(&self, index: u16) -> Option<NodePage> {
        let name = if index == 0 { MANAGER.to_owned() } else { format!("{MANAGER}{}", index + 1) };
        self.pages.page(&name, PageRole::Manager, [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_engine::pages::PagesChoice;
    use ropewalk_engine::pages::{PageDirectory, PageReading, PageState, find};
    use ropewalk_flow::control::RunPhase;
    use ropewalk_flow::messages::ReportEntry;
    use ropewalk_terms::{Counter, Incarnation, RunNumber};
    use std::os::fd::BorrowedFd;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Returns the page of one node in a separate directory of a test.
    fn page(test: &str) -> (PathBuf, Option<NodePage>) {
        let path = std::env::temp_dir().join(format!("ropewalk-stats-page-{test}-{}", std::process::id()));
        let directory = PageDirectory::open(&PagesChoice::In(path.clone()), Path::new("/data"), Incarnation(1));
        (path, directory.page("bu0", PageRole::Builder, []))
    }

    fn read(directory: &PathBuf) -> (PageReading, Instant) {
        let mut found = find(std::slice::from_ref(directory));
        (found.pages.pop().expect("it is there"), found.at)
    }

    /// Counts its turns, and is done after this many.
    struct Counts {
        turns: u64,
        last: u64,
    }

    impl Drive for Counts {
        fn turn(&mut self, _now: Instant) -> usize {
            self.turns += 1;
            2
        }

        fn next_deadline(&self) -> Option<Instant> {
            None
        }

        fn prepare_wait(&mut self) -> bool {
            true
        }

        fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

        fn is_done(&self) -> bool {
            self.turns == self.last
        }

        fn tell(&self, _now: Instant, page: &mut NodePage) {
            page.stands(RunNumber(3), if self.is_done() { RunPhase::Ended } else { RunPhase::Running });
            page.count(&ReportEntry { source: None, what: Counter::EventsBuilt as u16, value: self.turns });
        }
    }

    #[test]
    fn turns_are_in_the_page_at_once_numbers_now_and_then_and_the_last_ones_always() {
        let (directory, page) = page("counts");
        let mut published = DriveWithPage::new(Box::new(Counts { turns: 0, last: 5 }), page);
        let built = |page: &PageReading| page.numbers(None).first().map(|one| (one.number.name.clone(), one.value));
        let begun = MonotonicClock.now();
        for turn in 1..=4 {
            assert_eq!(published.turn(begun), 2);
            let (page, _) = read(&directory);
            assert_eq!((page.turns(), page.phase()), ((turn, 2 * turn), "running"));
            assert_eq!(built(&page), Some(("events_built".to_owned(), 1)), "it is not time yet");
        }
        published.turn(begun);
        let (last, at) = read(&directory);
        assert_eq!((built(&last), last.state(at)), (Some(("events_built".to_owned(), 5)), PageState::Ended));
        drop(published);
        std::fs::remove_dir(&directory).expect("nothing is in it any more");
    }

    #[test]
    fn a_thread_that_does_not_come_back_from_a_turn_is_seen_from_outside() {
        let (directory, page) = page("hangs");
        let (may_end, ending) = (Arc::<AtomicBool>::default(), Arc::<Ending>::default());
        let drive = DriveWithPage::new(Box::new(Hangs(Arc::clone(&may_end))), page);
        let worker = Worker::start("bu0", vec![drive], Arc::clone(&ending), || ()).expect("a thread");
        let until = MonotonicClock.now().after(Duration::from_secs(60));
        let wait_for = |what: fn(PageState) -> bool| {
            let (mut page, mut at) = read(&directory);
            while !what(page.state(at)) {
                assert!(at < until, "{:?}", page.state(at));
                std::thread::sleep(Duration::from_millis(5));
                (page, at) = read(&directory);
            }
            page
        };
        let hung = wait_for(|state| matches!(state, PageState::Hangs(_)));
        assert_eq!(hung.turns().0, 1);
        may_end.store(true, Ordering::Relaxed);
        wait_for(|state| state == PageState::Turns);
        ending.halt();
        worker.wake();
        worker.join();
        std::fs::remove_dir(&directory).expect("nothing is in it any more");
    }
}
