//! Waking another thread at the price of one fence as long as it is awake.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::sleeper::Sleeper;
use crate::wait::{new_bell, ring, silence};

/// Wakes one thread, but only if it said that it sleeps: a running one is never disturbed.
#[derive(Debug)]
pub struct Doorbell {
    sleeper: Sleeper,
    bell: OwnedFd,
}

impl Doorbell {
    /// A doorbell of a thread that is awake.
    ///
    /// # Errors
    /// Where the system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self { sleeper: Sleeper::new(), bell: new_bell()? })
    }

    /// To be called after something was published.
    pub fn notify(&self) {
        if self.sleeper.must_be_woken() {
            ring(self.bell.as_fd());
        }
    }

    /// Says that the thread is about to sleep. What it waits for must be looked at *after* this.
    pub fn arm(&self) {
        self.sleeper.fall_asleep();
    }

    /// Says that the thread is awake. A ring that comes at this moment costs one sleep that ends at once.
    pub fn disarm(&self) {
        self.sleeper.wake();
    }

    /// Forgets the ring that ended a sleep.
    pub fn silence(&self) {
        silence(self.bell.as_fd());
    }

    /// Sleeps until the bell is rung.
    pub fn wait(&self) {
        self.wait_for(None);
    }

    /// The same, until the time is over.
    pub fn wait_for(&self, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut descriptors = [PollFd::new(&self.bell, PollFlags::IN)];
        // An interrupted sleep ends early: whoever sleeps looks around and sleeps again.
        let _ = rustix::event::poll(&mut descriptors, timeout.as_ref());
    }

    /// Whether a sleep would end at once.
    pub fn has_rung(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.bell, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Readable when the bell was rung.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
