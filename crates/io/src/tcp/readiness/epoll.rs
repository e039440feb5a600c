//! Changes of readiness, from epoll: the kernel tells each once, however many sockets there are.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{Asked, BATCH, BELL, Readiness, Ready, ReadyTcp};
use crate::wait::{self, OwnWait};

pub(in crate::tcp) struct Epoll(OwnedFd);

/// From here on it does not matter that epoll counts in whole milliseconds, and sleeps until the next one.
const COARSE: Duration = Duration::from_millis(10);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Epoll {
    /// Appends what has changed, after a sleep of at most `timeout` if nothing has; false if the time was over.
    fn ask(&self, timeout: Option<&Timespec>, ready: &mut Vec<(u64, Ready)>) -> bool {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        // An interrupted call finds its changes the next time.
        let Ok((changes, _)) = epoll::wait(&self.0, &mut buffer, timeout) else { return true };
        ready.extend(changes.iter().map(|change| {
            let flags = change.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            let hung_up = broken || flags.contains(EventFlags::RDHUP);
            let readable = hung_up || flags.contains(EventFlags::IN);
            let writable = broken || flags.contains(EventFlags::OUT);
            (change.data.u64(), Ready { readable, writable, hung_up })
        }));
        !changes.is_empty()
    }

    /// The same, to the nanosecond.
    fn ask_until(&self, timeout: Option<Duration>, ready: &mut Vec<(u64, Ready)>) -> bool {
        let fine = timeout.filter(|timeout| *timeout < COARSE && timeout.subsec_nanos() % 1_000_000 > 0);
        if fine.is_none() {
            return self.ask(timeout.map(wait::timespec).as_ref(), ready);
        }
        // Interrupted or not: it is asked.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], fine.map(wait::timespec).as_ref());
        self.ask(Some(&AT_ONCE), ready)
    }
}

/// Bells are told once for each time that they are rung, as sockets are: nobody has to silence them here.
impl OwnWait for ReadyTcp<Epoll> {
    fn watch(&mut self, bell: BorrowedFd<'_>) -> io::Result<()> {
        let rung = EventFlags::IN | EventFlags::ET;
        match epoll::add(&self.readiness.0, bell, EventData::new_u64(BELL), rung) {
            // It is heard already.
            Err(Errno::EXIST) => Ok(()),
            added => Ok(added?),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        // A poll may have heard the bell: epoll tells it once.
        if core::mem::take(&mut self.is_rung) {
            return true;
        }
        let woken = self.readiness.ask_until(timeout, &mut self.answers);
        self.take_answers();
        (self.has_slept, self.is_rung) = (true, false);
        woken
    }
}

impl Readiness for Epoll {
    const LEVELS: bool = false;

    fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    fn add(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let changes = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, socket, EventData::new_u64(token), changes)?)
    }

    fn take<'a>(&mut self, _asked: impl Iterator<Item = Asked<'a>>, ready: &mut Vec<(u64, Ready)>) {
        self.ask(Some(&AT_ONCE), ready);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn silence(&mut self) {
        let mut unwanted = Vec::new();
        while {
            unwanted.clear();
            self.take(std::iter::empty(), &mut unwanted);
            unwanted.len() == BATCH
        } {}
    }

    fn own_wait(tcp: &mut ReadyTcp<Self>) -> Option<&mut dyn OwnWait> {
        Some(tcp)
    }
}
