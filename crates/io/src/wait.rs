//! Sleeping: one thread waits for several dispatchers, a deadline and other threads at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use ropewalk_terms::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};

use crate::endpoint::Dispatcher;

/// Wakes a [`Waiter`] from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<OwnedFd>,
}

impl Waker {
    /// Ends the present sleep of the waiter, or its next one if it is awake.
    pub fn wake(&self) {
        ring(self.bell.as_fd());
    }
}

/// Number of descriptors that are listed at every sleep, including the bell and the crowd.
const LISTED: usize = 16;

/// A bell that one thread rings to wake another one, whose [`Waiter`] watches it: a card's interrupt.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Makes a bell that was not rung.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(new_bell()?)))
    }

    /// Rings the bell. Several rings before it is silenced count as one.
    pub fn ring(&self) {
        ring(self.0.as_fd());
    }

    /// Silences the bell, so that a sleep can wait for it again.
    pub fn silence(&self) {
        silence(self.0.as_fd());
    }
}

/// A bell that another process made.
impl From<OwnedFd> for Bell {
    fn from(bell: OwnedFd) -> Self {
        Self(Arc::new(bell))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The place where one thread sleeps. Sleeping allocates nothing.
///
/// The first few descriptors are listed at each sleep. An epoll that watches them would avoid that, but then each
/// arriving byte would have to be processed by it while the thread is awake. That takes the sender's time if both are
/// on one machine: 7 % of a stream of 64 KiB sends.
#[derive(Debug)]
pub struct Waiter {
    watched: Vec<OwnedFd>,
    /// An epoll of the descriptors for which there is no room in the list.
    crowd: Option<OwnedFd>,
    bell: Arc<OwnedFd>,
    /// Whether it watches a single dispatcher with an [`OwnWait`](crate::endpoint::OwnWait), which also watches the
    /// bell.
    is_own: bool,
}

impl Waiter {
    /// Makes a waiter that watches nothing but its own [`Waker`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { watched: Vec::with_capacity(LISTED), crowd: None, bell: Arc::new(new_bell()?), is_own: false })
    }

    /// Makes a waiter for a thread that serves only this dispatcher and can also be woken by these bells. The thread
    /// sleeps by [`wait_in`](Self::wait_in).
    pub fn of(dispatcher: &mut dyn Dispatcher, bells: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let mut waiter = Self::new()?;
        for descriptor in dispatcher.wait_descriptor().iter().chain(bells) {
            waiter.watch(*descriptor)?;
        }
        if let Some(own) = dispatcher.own_wait() {
            own.watch(waiter.bell.as_fd())?;
            bells.iter().try_for_each(|bell| own.watch(*bell))?;
            waiter.is_own = true;
        }
        Ok(waiter)
    }

    /// Watches a [`wait_descriptor`](crate::Dispatcher::wait_descriptor) from now on. Watches a duplicate, so that the
    /// original may be closed. Watching a descriptor twice is no error.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // No longer a single dispatcher.
        self.is_own = false;
        let descriptor = descriptor.try_clone_to_owned()?;
        if self.watched.len() + 2 >= LISTED {
            let crowd = match &self.crowd {
                Some(crowd) => crowd,
                None => self.crowd.insert(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            };
            epoll::add(crowd, &descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        self.watched.push(descriptor);
        Ok(())
    }

    /// Returns a handle that wakes this waiter.
    pub fn waker(&self) -> Waker {
        Waker { bell: Arc::clone(&self.bell) }
    }

    /// Sleeps until a watched descriptor is readable, the waker was used, or `timeout` has passed (`None` for no
    /// limit). Returns whether it was woken before the time-out.
    ///
    /// Call [`prepare_wait`](crate::Dispatcher::prepare_wait) of every dispatcher before, and sleep only if all return
    /// true.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(timespec);
        let others = self.crowd.iter().chain(&self.watched);
        let all = core::iter::once(&*self.bell).chain(others);
        let mut listed: ArrayVec<PollFd<'_>, LISTED> =
            all.take(LISTED).map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        // An interrupted sleep counts as woken: the caller checks for work and sleeps again.
        let woken = !matches!(rustix::event::poll(&mut listed, timeout.as_ref()), Ok(0));
        if listed[0].revents().contains(PollFlags::IN) {
            silence(self.bell.as_fd());
        }
        woken
    }

    /// As [`wait`](Self::wait), for a waiter that was made [`of`](Self::of) this dispatcher: in the dispatcher's own
    /// call if it has one and nothing else was watched since.
    pub fn wait_in(&self, dispatcher: &mut dyn Dispatcher, timeout: Option<Duration>) -> bool {
        match dispatcher.own_wait() {
            Some(own) if self.is_own => own.wait(timeout),
            _ => self.wait(timeout),
        }
    }
}

/// How long a thread has had nothing to do: it polls for a while before it sleeps. Waking it costs as much, and the
/// other side pays most of that: a thread that sends to a thread on another processor has to interrupt it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    since: Option<Instant>,
}

impl Idle {
    /// How long the thread polls before it sleeps.
    pub const LOOKS: Duration = Duration::from_micros(20);

    /// Records a turn at `now` with this amount of work; returns whether the thread may sleep. After a sleep without
    /// work it may sleep again at once.
    pub fn is_long_enough(&mut self, now: Instant, work: usize) -> bool {
        if work > 0 {
            self.since = None;
            return false;
        }
        now.since(*self.since.get_or_insert(now)) >= Self::LOOKS
    }
}

/// Converts a time-out for the kernel; no limit if it is too long for that.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX), tv_nsec: timeout.subsec_nanos().into() }
}

/// An event counter that does not block.
pub(crate) fn new_bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes the bell readable.
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // The only possible failure is a full counter: the bell is then readable already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes the bell unreadable.
pub(crate) fn silence(bell: BorrowedFd<'_>) {
    // Fails if the bell was not rung, which is the wanted state.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_just_had_work_looks_again_before_it_sleeps() {
        let (mut idle, at) = (Idle::default(), |nanoseconds| Instant::ZERO.after(Duration::from_nanos(nanoseconds)));
        let looks = Idle::LOOKS.as_nanos() as u64;
        let mut turn = |nanoseconds, work| idle.is_long_enough(at(nanoseconds), work);
        assert!(!turn(0, 1));
        assert!(!turn(500_000, 0), "however long the work took");
        assert!(!turn(500_000 + looks - 1, 0));
        assert!(turn(500_000 + looks, 0));
        assert!(turn(900_000, 0), "nothing has come: it sleeps on");
        assert!(!turn(900_001, 3));
        assert!(!turn(900_002, 0));
    }

    #[test]
    fn sleeps_until_the_time_is_over() {
        let waiter = Waiter::new().expect("an eventfd and an epoll");
        assert!(!waiter.wait(Some(Duration::from_millis(2))));
    }

    #[test]
    fn is_woken_once_for_any_number_of_wakes_also_before_it_sleeps() {
        let waiter = Waiter::new().expect("an eventfd and an epoll");
        waiter.waker().wake();
        waiter.waker().wake();
        assert!(waiter.wait(None));
        assert!(!waiter.wait(Some(Duration::ZERO)));
    }

    #[test]
    fn is_woken_by_another_thread() {
        let waiter = Waiter::new().expect("an eventfd");
        let waker = waiter.waker();
        std::thread::spawn(move || waker.wake());
        assert!(waiter.wait(Some(Duration::from_secs(10))));
    }

    #[test]
    fn is_woken_by_each_watched_descriptor_however_many_there_are() {
        let mut waiter = Waiter::new().expect("an eventfd");
        let bells: Vec<_> = (0..3 * LISTED).map(|_| new_bell().expect("an eventfd")).collect();
        for bell in bells.iter().chain(&bells[..2]) {
            waiter.watch(bell.as_fd()).expect("watching an eventfd, or watching it twice");
        }
        for bell in &bells {
            assert!(!waiter.wait(Some(Duration::ZERO)));
            ring(bell.as_fd());
            assert!(waiter.wait(Some(Duration::from_secs(10))));
            silence(bell.as_fd());
        }
        drop(bells);
        assert!(!waiter.wait(Some(Duration::ZERO)), "what is closed is silent");
    }
}
