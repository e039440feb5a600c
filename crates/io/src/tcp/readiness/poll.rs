//! Levels of readiness, from `poll`: every socket is named each time, so that the cost grows with their number.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Asked, Epoll, Readiness, Ready};

/// Asks with `poll`. A thread that sleeps waits on an epoll descriptor all the same, because it may wait for other
/// dispatchers too.
pub(in crate::tcp) struct Poll {
    sleep: Epoll,
    /// In the order of the last question.
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
        // An interrupted call is made again at the next poll.
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

/// An empty vector with the same memory, for descriptors that are borrowed for another time.
fn reuse<'a>(mut descriptors: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    descriptors.clear();
    descriptors.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
