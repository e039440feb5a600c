//! A TCP service point: a listening socket.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ropewalk_terms::Instant;
use rustix::io::Errno;

use crate::tcp::socket;

/// Connections taken from one listener in one poll.
const BATCH: usize = 64;
/// How long to wait before trying again after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// Connections may wait (edges, as with connections).
    pub(super) ready: bool,
    /// Not to be asked before this, because there were no descriptors left.
    pub(super) paused_until: Option<Instant>,
}

impl Listener {
    pub(super) const fn new(socket: OwnedFd, address: SocketAddr) -> Self {
        Self { socket, address, ready: true, paused_until: None }
    }

    /// Whether [`Listener::accept`] would do something.
    pub(super) const fn has_work(&self) -> bool {
        self.ready && self.paused_until.is_none()
    }

    /// Takes the connections that wait.
    pub(super) fn accept(&mut self, now: Instant, mut each: impl FnMut(OwnedFd, SocketAddr)) -> usize {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        let mut taken = 0;
        while self.has_work() && taken < BATCH {
            match socket::accept(&self.socket) {
                Ok((connection, peer)) => {
                    taken += 1;
                    each(connection, peer);
                }
                Err(Errno::AGAIN) => self.ready = false,
                // The peer gave up while it waited, or a signal came: the next one.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                // No descriptors or no memory: the connections wait in the kernel until there are.
                Err(_) => self.paused_until = Some(now.after(PAUSE)),
            }
        }
        taken
    }
}
