//! A TCP service point: a listening socket whose connections the kernel accepts by itself.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ropewalk_terms::Instant;
use rustix::io::Errno;

use super::ring::Ring;

/// How long to wait before trying again after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// Whether the kernel accepts.
    accepting: bool,
    /// Not to be asked before this, because there were no descriptors left.
    pub(super) paused_until: Option<Instant>,
}

impl Listener {
    pub(super) const fn new(socket: OwnedFd, address: SocketAddr) -> Self {
        Self { socket, address, accepting: false, paused_until: None }
    }

    /// Whether [`Listener::prepare`] would do something, however late it is.
    pub(super) const fn has_work(&self) -> bool {
        !self.accepting && self.paused_until.is_none()
    }

    /// Lets the kernel accept.
    pub(super) fn prepare(&mut self, index: u32, now: Instant, ring: &mut Ring) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        if self.has_work() {
            self.accepting = ring.accept(&self.socket, index);
        }
    }

    /// The kernel accepts no more, for this reason if there is one.
    pub(super) fn stopped(&mut self, why: Option<Errno>, now: Instant) {
        self.accepting = false;
        match why {
            // The peer gave up while it waited, or a signal came: the next one.
            None | Some(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::AGAIN | Errno::CANCELED) => {}
            // No descriptors or no memory: the connections wait in the kernel until there are.
            Some(_) => self.paused_until = Some(now.after(PAUSE)),
        }
    }
}
