//! What takes accepted events: run files, files for filter units. Builder units and gateways write to the same sinks.

use super::filing::LumisectionTotal;
use super::filtering::DecidedEvent;
use super::gateway::GatewayEvent;
use super::storage::{Progress, StorageCounts};
use ropewalk_terms::{Cause, Incarnation, Instant, PoolAccount, Recorder, RunNumber, StreamSet};
use std::os::fd::BorrowedFd;

/// An accepted event on its way to a sink.
pub enum SinkEvent<'a> {
    /// Of a builder unit, with what its filter decided.
    Built(DecidedEvent<'a>),
    /// Of a gateway.
    Gathered(GatewayEvent<'a>),
}

/// The answer of a sink to an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Filed {
    /// The sink has taken it, and will report how far it has come ([`EventSink::poll`]).
    Taken,
    /// There is no room now; offer it again.
    NoRoom,
    /// It cannot be written at all, for this cause.
    Refused(Cause),
}

/// Takes accepted events. A sink never blocks: [`EventSink::poll`] moves its work on, and [`EventSink::prepare_wait`],
/// [`EventSink::next_deadline`] and [`EventSink::wait_descriptor`] say when to call it again.
pub trait EventSink: Send {
    /// A run begins, in this life of the node.
    fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation);

    /// Takes an event, for all of these streams or for none. `slot` is the caller's name for it.
    fn add_event(&mut self, now: Instant, slot: u32, event: &SinkEvent<'_>, streams: StreamSet) -> Filed;

    /// No event of this lumisection comes any more.
    fn end_lumisection(&mut self, _lumisection: u32, _total: LumisectionTotal) {}

    /// Passes on what has been gathered.
    fn flush(&mut self, now: Instant);

    /// Does what can be done now. Appends the slots of events whose state changed. Returns how much happened.
    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize;

    /// The run drains: from here on a disk that refuses everything is given up after a time.
    fn drain(&mut self, now: Instant);

    /// No event comes any more. To be called until [`EventSink::is_closed`].
    fn finish(&mut self, now: Instant);

    /// Everything is written and closed, or will never be.
    fn is_closed(&self) -> bool;

    /// The disk was given up: what it has not taken, and what comes now, will not be written.
    fn has_given_up(&self) -> bool;

    /// What was written.
    fn counts(&self) -> StorageCounts;

    /// Bytes that were copied to be written; what is staged does not count.
    fn copied_bytes(&self) -> u64;

    /// Whether there is something to write.
    fn is_writing(&self) -> bool;

    /// How long writing took, where that is measured.
    fn times(&self) -> Option<&Recorder> {
        None
    }

    /// The account of the blocks in which data are staged, including those that were returned.
    fn pool(&mut self) -> PoolAccount;

    /// When to call [`EventSink::poll`] even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Before the thread sleeps: false if there is something to do now.
    fn prepare_wait(&mut self) -> bool;

    /// Becomes readable when there is something to do.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;
}
