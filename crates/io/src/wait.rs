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

/// Descriptors that are listed at every sleep, the bell and the crowd among them.
const LISTED: usize = 16;

/// What one thread rings and another one, whose [`Waiter`] watches it, wakes up by: a card's interrupt.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell that was not rung.
    ///
    /// # Errors
    /// Where the system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(new_bell()?)))
    }

    /// Rings it, however often before it is heard.
    pub fn ring(&self) {
        ring(self.0.as_fd());
    }

    /// It was heard, and can be slept on again.
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

/// Where one thread sleeps. Sleeping allocates nothing.
///
/// The first few descriptors are listed at each sleep. An epoll that watches them would save that, but each byte that
/// comes would have to climb through it while the thread is awake, in the sender's time where both are on one machine:
/// 7 % of a stream of 64 KiB sends.
#[derive(Debug)]
pub struct Waiter {
    watched: Vec<OwnedFd>,
    /// An epoll of those for which there is no room in the list.
    crowd: Option<OwnedFd>,
    bell: Arc<OwnedFd>,
    /// What is watched is a single dispatcher with an [`OwnWait`](crate::endpoint::OwnWait), which hears the bell too.
    is_own: bool,
}

impl Waiter {
    /// A waiter that watches nothing but its own [`Waker`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { watched: Vec::with_capacity(LISTED), crowd: None, bell: Arc::new(new_bell()?), is_own: false })
    }

    /// A waiter for a thread that serves this dispatcher alone, which may be woken by these bells too. The thread sleeps
    /// by [`wait_in`](Self::wait_in).
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

    /// Watches a [`wait_descriptor`](crate::Dispatcher::wait_descriptor) from now on: a duplicate of it, so that it may be
    /// closed. Watching one twice is no error.
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

    /// What wakes this waiter.
    pub fn waker(&self) -> Waker {
        Waker { bell: Arc::clone(&self.bell) }
    }

    /// Sleeps until a watched descriptor is readable, the waker was used, or `timeout` is over (`None` for
    /// no end). Returns whether it was woken before the time was over.
    ///
    /// Call [`prepare_wait`](crate::Dispatcher::prepare_wait) of every dispatcher before, and sleep only if
    /// all of them agree.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(timespec);
        let others = self.crowd.iter().chain(&self.watched);
        let all = core::iter::once(&*self.bell).chain(others);
        let mut listed: ArrayVec<PollFd<'_>, LISTED> =
            all.take(LISTED).map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        // An interrupted sleep counts as woken: the caller looks around and sleeps again.
        let woken = !matches!(rustix::event::poll(&mut listed, timeout.as_ref()), Ok(0));
        if listed[0].revents().contains(PollFlags::IN) {
            silence(self.bell.as_fd());
        }
        woken
    }

    /// As [`wait`](Self::wait), at a waiter that was made [`of`](Self::of) this dispatcher: in the dispatcher's own call if
    /// it has one and nothing else was watched since.
    pub fn wait_in(&self, dispatcher: &mut dyn Dispatcher, timeout: Option<Duration>) -> bool {
        match dispatcher.own_wait() {
            Some(own) if self.is_own => own.wait(timeout),
            _ => self.wait(timeout),
        }
    }
}

/// How long a thread has had nothing to do: it looks again for a while before it sleeps. To wake it costs as much, and
/// most of that is paid by the other side: a thread that sends to one on another processor has to interrupt it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    since: Option<Instant>,
}

impl Idle {
    /// For so long it looks again.
    pub const LOOKS: Duration = Duration::from_micros(20);

    /// Takes note of a turn at `now` with so much work; whether the thread may sleep. After a sleep that brought nothing
    /// it may sleep again at once.
    pub fn is_long_enough(&mut self, now: Instant, work: usize) -> bool {
        if work > 0 {
            self.since = None;
            return false;
        }
        now.since(*self.since.get_or_insert(now)) >= Self::LOOKS
    }
}

/// As the kernel wants it; for ever if it is longer than that.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX), tv_nsec: timeout.subsec_nanos().into() }
}

/// An event counter that does not block.
pub(crate) fn new_bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes the bell readable.
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // The only possible failure is a counter that is full: then it is readable already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes the bell unreadable.
pub(crate) fn silence(bell: BorrowedFd<'_>) {
    // Fails if the bell was not rung, which is what is wanted.
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
