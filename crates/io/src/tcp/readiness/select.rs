//! Levels of readiness, from `select`: every socket is a bit in a set, and no socket can have a number of 1,024 or more.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::event::{FdSetElement, FdSetIter, Timespec, fd_set_bound, fd_set_insert, fd_set_num_elements};

use super::{Asked, Epoll, Readiness, Ready};

/// `FD_SETSIZE`: a set has room for so many descriptors.
pub(in crate::tcp) const DESCRIPTORS: usize = 1024;

/// Asks with `select`. A thread that sleeps waits on an epoll descriptor all the same, because it may wait for other
/// dispatchers too.
pub(in crate::tcp) struct Select {
    sleep: Epoll,
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// By descriptor.
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

    #[expect(unsafe_code, reason = "select is told numbers, and cannot know that they are open")]
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
        // every descriptor in them is that of a socket that its connection or listener keeps open during the call.
        let answer =
            unsafe { rustix::event::select(bound, Some(&mut self.read), Some(&mut self.write), None, Some(&at_once)) };
        // An interrupted call is made again at the next poll.
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
