//! Changes of readiness, from epoll: the kernel tells each once, however many sockets there are.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Asked, BATCH, Readiness, Ready};

pub(in crate::tcp) struct Epoll(OwnedFd);

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
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call finds its changes at the next poll.
        let Ok((changes, _)) = epoll::wait(&self.0, &mut buffer, Some(&at_once)) else { return };
        ready.extend(changes.iter().map(|change| {
            let flags = change.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            let hung_up = broken || flags.contains(EventFlags::RDHUP);
            let readable = hung_up || flags.contains(EventFlags::IN);
            let writable = broken || flags.contains(EventFlags::OUT);
            (change.data.u64(), Ready { readable, writable, hung_up })
        }));
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
}
