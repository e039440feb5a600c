//! What happens in a run, as it happens: a digest of everything, on demand a text, and what arrives from each front end, for
//! the referee. A line of the text has the time in nanoseconds, who, and what.

use super::content::mixed;
use super::endpoints::Order;
use super::fault::Place;
use super::runner::Broken;
use ropewalk_terms::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Bytes that a readout unit took from a front end.
#[derive(Copy, Clone, Debug)]
pub(super) struct Delivery {
    /// When.
    pub(super) at: Instant,
    /// Over which connection.
    pub(super) connection: u64,
    /// All bytes of that connection until then.
    pub(super) bytes: u64,
}

/// One connection of a front end, as the network knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Where the fragments end that were sent and have not arrived, in the connection's bytes.
    under_way: VecDeque<u64>,
    /// Whole fragments that arrived.
    pub(super) whole: u64,
    /// Where the last one of them ended.
    end: u64,
    bytes: u64,
    /// The source sent something that ends framing; nothing behind it is a fragment.
    is_ruined: bool,
    /// The host that recognised its source.
    pub(super) host: Option<u32>,
}

impl Line {
    /// A fragment was sent that ends with this byte.
    pub(super) fn send(&mut self, end: u64) {
        if !self.is_ruined {
            self.under_way.push_back(end);
        }
    }

    /// Something was sent that no fragment can be found behind.
    pub(super) const fn ruin(&mut self) {
        self.is_ruined = true;
    }

    fn deliver(&mut self, bytes: u64) {
        self.bytes = bytes;
        while let Some(end) = self.under_way.pop_front_if(|end| *end <= bytes) {
            (self.whole, self.end) = (self.whole + 1, end);
        }
    }

    /// The most fragments that can have been received: one that was cut, or that cost the connection, counts as well.
    pub(super) fn most(&self) -> u64 {
        self.whole + u64::from(self.bytes > self.end)
    }
}

/// What arrived from one front end.
#[derive(Clone, Debug, Default)]
pub(super) struct Inlet {
    /// In the order of time.
    pub(super) deliveries: Vec<Delivery>,
    /// When the readout unit saw the end of each connection, or made it.
    pub(super) ends: BTreeMap<u64, Instant>,
    /// By connection.
    pub(super) lines: BTreeMap<u64, Line>,
    /// Of each connection, from when to when the readout unit did not take what came over it.
    unread: BTreeMap<u64, Vec<(Instant, Instant)>>,
    unread_since: BTreeMap<u64, Instant>,
}

impl Inlet {
    /// Everything that arrives is taken at once.
    pub(super) fn is_read(&self) -> bool {
        self.unread_since.is_empty()
    }

    /// Whether what comes over a connection is taken.
    pub(super) fn set_read(&mut self, now: Instant, connection: u64, read: bool) {
        if !read {
            self.unread_since.entry(connection).or_insert(now);
        } else if let Some(since) = self.unread_since.remove(&connection) {
            self.unread.entry(connection).or_default().push((since, now));
        }
    }

    pub(super) fn deliver(&mut self, at: Instant, connection: u64, bytes: u64) {
        let last = self.deliveries.iter().rev().find(|delivery| delivery.connection == connection);
        let bytes = last.map_or(0, |delivery| delivery.bytes) + bytes;
        self.deliveries.push(Delivery { at, connection, bytes });
        self.lines.entry(connection).or_default().deliver(bytes);
    }

    /// How long, between two times, the readout unit did not take what came over a connection.
    pub(super) fn unread_between(&self, connection: u64, from: Instant, until: Instant) -> Duration {
        let over = self.unread.get(&connection).into_iter().flatten().copied();
        let present = self.unread_since.get(&connection).map(|&since| (since, Instant::FAR_FUTURE));
        over.chain(present).map(|(begin, end)| end.min(until).since(begin.max(from))).sum()
    }
}

/// A connection was refused although a process listens, or none did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub(super) at: Instant,
    pub(super) caller: Place,
    /// Who was called.
    pub(super) address: String,
}

/// The record of a run, as its members share it. Drives may go to another thread, as far as their types say.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<RwLock<Recorder>>);

impl Shared {
    pub(super) fn borrow(&self) -> RwLockReadGuard<'_, Recorder> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn borrow_mut(&self) -> RwLockWriteGuard<'_, Recorder> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of a run.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Mixed from every happening: equal for equal histories.
    pub(super) digest: u64,
    /// Every happening as a line, if these are kept.
    pub(super) text: Option<String>,
    /// By the front end's host.
    pub(super) inlets: BTreeMap<u32, Inlet>,
    /// By host: its address, if it has one.
    pub(super) addresses: BTreeMap<u32, SocketAddrV4>,
    /// Connections that were refused.
    pub(super) refusals: Vec<Refused>,
    /// What readout units announced.
    pub(super) order: Order,
    pub(super) broken: Option<Broken>,
}

impl Recorder {
    /// The record, to be shared.
    pub(super) fn shared(self) -> Shared {
        Shared(Arc::new(RwLock::new(self)))
    }

    /// All hosts that have or had this address.
    pub(super) fn hosts_of(&self, ip: Ipv4Addr) -> Vec<u32> {
        self.addresses.iter().filter(|(_, address)| *address.ip() == ip).map(|(&host, _)| host).collect()
    }

    /// Keeps what was found by a member that cannot say so at once.
    pub(super) fn keep(&mut self, result: Result<(), Broken>) {
        self.broken = self.broken.take().or(result.err());
    }

    /// What was found by members that could not say so at once.
    pub(super) fn verdict(&self) -> Result<(), Broken> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Takes note of what happens: a line, and numbers that distinguish it from others in the digest.
    pub(super) fn note(&mut self, at: Instant, (one, other): (u64, u64), line: impl FnOnce() -> String) {
        let time = at.as_nanoseconds();
        self.digest = mixed(self.digest ^ time, one, other);
        if let Some(text) = &mut self.text {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{time:>12} {}", line());
        }
    }
}
