//! Sending messages of the pull protocol: they are encoded into staging blocks.

use ropewalk_flow::messages::Message;
use ropewalk_io::{Dispatcher, Endpoint, SendError};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Epoch, Incarnation, NodeId, PoolAccount, RunNumber};
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind};

/// Who sends: what every header says.
#[derive(Copy, Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The run it is in; 0 before the first.
    pub run: RunNumber,
    /// The event manager it obeys.
    pub epoch: Epoch,
}

impl Identity {
    pub(super) const fn header(&self, kind: Kind, body: u32) -> Header {
        Header { kind, body, run: self.run, epoch: self.epoch, sender: self.node, incarnation: self.incarnation }
    }
}

/// Encodes messages and queues them at endpoints. Its buffers keep their capacity.
#[derive(Debug)]
pub struct Outbox {
    /// What the headers say.
    pub identity: Identity,
    staging: Staging,
    bytes: Vec<u8>,
    slices: Vec<Slice>,
}

/// Why a message could not be queued now. Try again after the next poll of the endpoints.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// No room in the send queue, or no staging block free.
    NoRoom,
    /// The endpoint has ended; the message is for nobody.
    Closed,
}

impl From<SendError> for Unsent {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Full => Self::NoRoom,
            SendError::Closed => Self::Closed,
        }
    }
}

impl Outbox {
    /// An outbox that encodes into blocks of `staging`.
    pub fn new(identity: Identity, staging: Staging) -> Self {
        Self { identity, staging, bytes: Vec::with_capacity(64 * 1024), slices: Vec::with_capacity(1) }
    }

    /// The account of the blocks that messages are encoded in, those included that came home by now.
    pub(super) fn pool(&mut self) -> PoolAccount {
        self.staging.pool_mut().collect();
        self.staging.pool().account()
    }

    /// Queues a control message.
    ///
    /// # Errors
    /// Nothing was queued: see [`Unsent`].
    pub fn send(&mut self, to: &mut impl Dispatcher, endpoint: Endpoint, message: &Message) -> Result<(), Unsent> {
        let slice = self.stage(message.kind(), 0, |out| message.encode(out))?;
        self.slices.push(slice);
        let result = to.send(endpoint, &mut self.slices);
        self.slices.clear();
        Ok(result?)
    }

    /// Makes sure that the next message is staged, if its header and what is encoded of its body have at most so many bytes.
    ///
    /// # Errors
    /// [`Unsent::NoRoom`] where no staging block is free.
    pub(super) fn make_room(&mut self, bytes: usize) -> Result<(), Unsent> {
        self.staging.room(bytes).filter(|&room| room >= bytes).map(|_| ()).ok_or(Unsent::NoRoom)
    }

    /// Encodes a message's header and what `write` appends to it; `following` bytes of its body are sent by other
    /// slices.
    ///
    /// # Errors
    /// [`Unsent::NoRoom`] where no staging block is free.
    pub(super) fn stage(
        &mut self,
        kind: Kind,
        following: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Slice, Unsent> {
        // The body is encoded behind room for the header, whose length field needs the body's length.
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        write(&mut self.bytes);
        let body = (self.bytes.len() - HEADER_BYTES) as u64 + following;
        let header = self.identity.header(kind, body as u32).to_bytes();
        if let Some(place) = self.bytes.first_chunk_mut::<HEADER_BYTES>() {
            *place = header;
        }
        self.staging.write(&self.bytes).ok_or(Unsent::NoRoom)
    }
}

/// The account of the receive pool, where there is one, those blocks included that came home by now.
pub(super) fn received(endpoints: &mut impl Dispatcher) -> Option<PoolAccount> {
    let pool = endpoints.pool_mut()?;
    pool.collect();
    Some(pool.account())
}
