//! One subscriber's connection, at the server.

use super::StreamReader;
use ropewalk_flow::stream::SubscriberId;
use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_wire::stream::{LARGEST_CONTROL_BYTES, Message};

/// Bytes of what is said while chunks flow.
const USUAL_BYTES: usize = 256;

/// What a server knows about a connection.
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    /// Where its heads, messages and copies are staged.
    pub(super) staging: Staging,
    pub(super) reader: StreamReader,
    /// When it came to stand.
    pub(super) since: Instant,
    pub(super) is_welcome: bool,
    /// From its first subscription on.
    pub(super) id: Option<SubscriberId>,
    /// Drops that it was told of.
    pub(super) told: u64,
    /// The transport had no room for its next message: so much it had.
    pub(super) blocked_with: Option<usize>,
    /// It was told of the end, or refused: it is closed as soon as that has left.
    pub(super) is_ending: bool,
    /// Encoded messages that wait for room.
    outgoing: Vec<u8>,
    /// Their slice on its way; empty, and made once.
    slices: Vec<Slice>,
}

impl Connection {
    pub(super) fn new(endpoint: Endpoint, since: Instant, staging: Staging) -> Self {
        Self {
            endpoint,
            staging,
            reader: StreamReader::new(0),
            since,
            is_welcome: false,
            id: None,
            told: 0,
            blocked_with: None,
            is_ending: false,
            outgoing: Vec::with_capacity(USUAL_BYTES),
            slices: Vec::with_capacity(1),
        }
    }

    /// Sends a message as soon as there is room. False where too much waits already: nobody reads there.
    pub(super) fn say(&mut self, message: &Message) -> bool {
        message.encode(&mut self.outgoing);
        self.outgoing.len() <= LARGEST_CONTROL_BYTES
    }

    /// Sends what was said; true when nothing of it waits any more.
    pub(super) fn flush(&mut self, to: &mut impl Dispatcher) -> bool {
        if self.outgoing.is_empty() {
            return true;
        }
        let Some(slice) = self.staging.write(&self.outgoing) else { return false };
        self.slices.push(slice);
        let is_sent = to.send(self.endpoint, &mut self.slices).is_ok();
        self.slices.clear();
        if is_sent {
            self.outgoing.clear();
        }
        is_sent
    }
}
