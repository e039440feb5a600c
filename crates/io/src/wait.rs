//! Sleeping: one thread waits for several dispatchers, a deadline and other threads at once.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

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

/// What the epoll says of the bell, and of everything else.
const BELL: u64 = 1;
const OTHER: u64 = 0;

/// Where one thread sleeps. Descriptors are registered once; sleeping allocates nothing.
#[derive(Debug)]
pub struct Waiter {
    // An epoll of the dispatchers' descriptors: registered once instead of listed at every sleep.
    epoll: OwnedFd,
    bell: Arc<OwnedFd>,
}

impl Waiter {
    /// A waiter that watches nothing but its own [`Waker`].
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(new_bell()?);
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { epoll, bell })
    }

    /// Watches a [`wait_descriptor`](crate::Dispatcher::wait_descriptor) from now on, until it is closed.
    /// Watching one twice is no error.
    pub fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(OTHER);
        match epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut ready = [const { MaybeUninit::<epoll::Event>::uninit() }; 8];
        match epoll::wait(&self.epoll, &mut ready, timeout.as_ref()) {
            Ok((ready, _)) => {
                // A bell that is not among the first few is heard at the next sleep, which it ends at once.
                if ready.iter().any(|event| event.data.u64() == BELL) {
                    silence(self.bell.as_fd());
                }
                !ready.is_empty()
            }
            // Linux before 5.11 waits for whole milliseconds here.
            Err(Errno::NOSYS) => self.wait_as_of_old(timeout.as_ref()),
            // An interrupted sleep counts as woken: the caller looks around and sleeps again.
            Err(_) => true,
        }
    }

    fn wait_as_of_old(&self, timeout: Option<&Timespec>) -> bool {
        let mut descriptors = [PollFd::new(&self.epoll, PollFlags::IN)];
        let woken = !matches!(rustix::event::poll(&mut descriptors, timeout), Ok(0));
        if woken {
            silence(self.bell.as_fd());
        }
        woken
    }
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
    // Fails if nobody rang, which is what is wanted.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        waiter.waker().wake();
        assert!(waiter.wait_as_of_old(None));
        assert!(!waiter.wait_as_of_old(Some(&Timespec { tv_sec: 0, tv_nsec: 100 })));
    }

    #[test]
    fn is_woken_by_a_watched_descriptor_and_by_another_thread() {
        let waiter = Waiter::new().expect("an eventfd and an epoll");
        let bell = new_bell().expect("an eventfd");
        waiter.watch(bell.as_fd()).expect("watching an eventfd");
        waiter.watch(bell.as_fd()).expect("watching it twice");
        ring(bell.as_fd());
        assert!(waiter.wait(None));
        silence(bell.as_fd());
        assert!(!waiter.wait(Some(Duration::ZERO)));
        let waker = waiter.waker();
        std::thread::spawn(move || waker.wake());
        assert!(waiter.wait(Some(Duration::from_secs(10))));
    }
}
