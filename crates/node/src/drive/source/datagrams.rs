//! A source's frames in datagrams, handed to a readout unit of this process.

use super::{Content, Sent};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::packet::LocalFeed;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Datagrams of one turn.
const AT_ONCE: usize = 512;
/// From where they seem to come: from no network.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The line to a readout unit's receiver.
pub(super) struct Datagrams {
    feed: Box<LocalFeed>,
    /// How many datagrams of the frames were sent.
    sent: usize,
    /// There was no room for the next one.
    pub(super) is_blocked: bool,
}

impl Datagrams {
    pub(super) const fn new(feed: Box<LocalFeed>) -> Self {
        Self { feed, sent: 0, is_blocked: false }
    }

    /// Sends what is due; returns how much that was, and whether everything is said, or nobody listens any more.
    pub(super) fn feed(
        &mut self,
        content: &mut Content,
        (gate, elapsed): (&TriggerGate, Duration),
        account: &Sent,
    ) -> (usize, bool) {
        let mut count = 0;
        self.is_blocked = false;
        while count < AT_ONCE {
            let Some(range) = content.frames.range(self.sent) else {
                if !content.advance(gate, elapsed) {
                    break;
                }
                self.sent = 0;
                continue;
            };
            if !self.feed.send(NOWHERE, None, &content.frames.bytes()[range]) {
                self.is_blocked = true;
                break;
            }
            self.sent += 1;
            count += 1;
            if content.frames.range(self.sent).is_none() {
                account.note(&content.frames);
            }
        }
        let is_done = content.frames.range(self.sent).is_none() && content.is_exhausted(gate);
        (count, is_done || self.feed.is_abandoned())
    }
}
