//! The mechanisms that ask the kernel which sockets are ready.
//!
//! - epoll: changes of readiness. The kernel reports each change once, however many sockets there are.
//! - `poll`: levels. Every call lists every socket, so that the cost grows with their number.
//! - `select`: levels. Every socket is a bit in a set, and no socket can have a number of 1,024 or more.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{
    FdSetElement, FdSetIter, PollFd, PollFlags, Timespec, fd_set_bound, fd_set_insert, fd_set_num_elements,
};
use rustix::io::Errno;

use super::{Asked, BATCH, BELL, Readiness, Ready, ReadyTcp};
use crate::endpoint::OwnWait;
use crate::wait;

pub(in crate::tcp) struct Epoll(OwnedFd);

/// From this time-out on it does not matter that epoll counts in whole milliseconds and rounds up.
const COARSE: Duration = Duration::from_millis(10);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Epoll {
    /// Appends the changes, after a sleep of at most `timeout` if there are none. False if the time-out passed.
    fn ask(&self, timeout: Option<&Timespec>, ready: &mut Vec<(u64, Ready)>) -> bool {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        // An interrupted call reports its changes the next time.
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

    /// Like [`ask`](Self::ask), but precise to the nanosecond.
    fn ask_until(&self, timeout: Option<Duration>, ready: &mut Vec<(u64, Ready)>) -> bool {
        let fine = timeout.filter(|timeout| *timeout < COARSE && timeout.subsec_nanos() % 1_000_000 > 0);
        if fine.is_none() {
            return self.ask(timeout.map(wait::timespec).as_ref(), ready);
        }
        // Whether interrupted or not: ask.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], fine.map(wait::timespec).as_ref());
        self.ask(Some(&AT_ONCE), ready)
    }
}

/// As for sockets, each ring of a bell is reported once: no bell has to be silenced here.
impl OwnWait for ReadyTcp<Epoll> {
    fn watch(&mut self, bell: BorrowedFd<'_>) -> io::Result<()> {
        let rung = EventFlags::IN | EventFlags::ET;
        match epoll::add(&self.readiness.0, bell, EventData::new_u64(BELL), rung) {
            // It is watched already.
            Err(Errno::EXIST) => Ok(()),
            added => Ok(added?),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        // A poll may have seen the bell: epoll reports it once.
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

/// Asks with `poll`. A sleeping thread still waits on an epoll descriptor, because it may wait for other dispatchers
/// too.
pub(in crate::tcp) struct Poll {
    sleep: Epoll,
    /// In the order of the last call.
    tokens: Vec<u64>,
    /// Kept for its capacity.
    asked: Vec<PollFd<'static>>,
}

impl Readiness for Poll {
    const LEVELS: bool = true;

    fn new() -> io::Result<Self> {
        Ok(Self { sleep: Epoll::new()?, tokens: Vec::new(), asked: Vec::new() })
    }

    fn add(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.sleep.add(socket, token)
    }

    fn take<'a>(&mut self, asked: impl Iterator<Item = Asked<'a>>, ready: &mut Vec<(u64, Ready)>) {
        let Self { tokens, .. } = self;
        tokens.clear();
        let mut descriptors = reuse(core::mem::take(&mut self.asked));
        descriptors.extend(asked.map(|Asked { socket, token, read, write }| {
            tokens.push(token);
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN | PollFlags::RDHUP, read);
            flags.set(PollFlags::OUT, write);
            PollFd::from_borrowed_fd(socket, flags)
        }));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call is repeated at the next poll.
        if !descriptors.is_empty() && rustix::event::poll(&mut descriptors, Some(&at_once)).is_ok() {
            let answers = descriptors.iter().map(PollFd::revents).zip(tokens);
            ready.extend(answers.filter(|(flags, _)| !flags.is_empty()).map(|(flags, &mut token)| {
                let broken = flags.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
                let hung_up = broken || flags.contains(PollFlags::RDHUP);
                let readable = hung_up || flags.contains(PollFlags::IN);
                (token, Ready { readable, writable: broken || flags.contains(PollFlags::OUT), hung_up })
            }));
        }
        self.asked = reuse(descriptors);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.descriptor()
    }

    fn silence(&mut self) {
        self.sleep.silence();
    }
}

/// Returns an empty vector with the same memory, for descriptors with another lifetime.
fn reuse<'a>(mut descriptors: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    descriptors.clear();
    descriptors.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}

/// `FD_SETSIZE`: number of descriptors in a set.
const DESCRIPTORS: usize = 1024;

/// Asks with `select`. A sleeping thread still waits on an epoll descriptor, because it may wait for other dispatchers
/// too.
pub(in crate::tcp) struct Select {
    sleep: Epoll,
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// Indexed by descriptor.
    tokens: Vec<u64>,
}

impl Readiness for Select {
    const LEVELS: bool = true;

    fn new() -> io::Result<Self> {
        let set = || vec![FdSetElement::default(); fd_set_num_elements(DESCRIPTORS, DESCRIPTORS as RawFd)];
        Ok(Self { sleep: Epoll::new()?, read: set(), write: set(), tokens: vec![0; DESCRIPTORS] })
    }

    fn add(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let number = socket.as_raw_fd();
        if number < DESCRIPTORS as RawFd {
            return self.sleep.add(socket, token);
        }
        let words = "select serves descriptors below 1024 alone";
        Err(io::Error::other(format!("{words}, and this one is {number}: choose epoll, or fewer connections")))
    }

    #[expect(unsafe_code, reason = "select takes numbers, and cannot know that they are open")]
    fn take<'a>(&mut self, asked: impl Iterator<Item = Asked<'a>>, ready: &mut Vec<(u64, Ready)>) {
        self.read.fill(FdSetElement::default());
        self.write.fill(FdSetElement::default());
        for Asked { socket, token, read, write } in asked {
            let socket = socket.as_raw_fd();
            self.tokens[socket as usize] = token;
            if read {
                fd_set_insert(&mut self.read, socket);
            }
            if write {
                fd_set_insert(&mut self.write, socket);
            }
        }
        let bound = fd_set_bound(&self.read).max(fd_set_bound(&self.write));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both sets have room for 1,024 descriptors, no descriptor of that number or above is ever added, and
        // every descriptor in them belongs to a socket that its connection or listener keeps open during the call.
        let answer =
            unsafe { rustix::event::select(bound, Some(&mut self.read), Some(&mut self.write), None, Some(&at_once)) };
        // An interrupted call is repeated at the next poll.
        if !matches!(answer, Ok(1..)) {
            return;
        }
        let token = |socket: RawFd| self.tokens[socket as usize];
        let readable = Ready { readable: true, ..Ready::default() };
        ready.extend(FdSetIter::new(&self.read).map(|socket| (token(socket), readable)));
        let writable = Ready { writable: true, ..Ready::default() };
        ready.extend(FdSetIter::new(&self.write).map(|socket| (token(socket), writable)));
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.descriptor()
    }

    fn silence(&mut self) {
        self.sleep.silence();
    }
}
