//! Sending messages of the pull protocol: headers and small bodies are encoded into staging blocks, payloads
//! follow as they lie in the pool.

use ropewalk_flow::messages::{FragmentMeta, Message, SuperFragmentEntry};
use ropewalk_io::{Dispatcher, Endpoint, SendError};
use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::{Epoch, Incarnation, NodeId, PoolAccount, RunNumber};
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind, SuperFragmentsEncoder};

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
    const fn header(&self, kind: Kind, body: u32) -> Header {
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
        Self { identity, staging, bytes: Vec::with_capacity(64 * 1024), slices: Vec::with_capacity(4096) }
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
        // The body is encoded behind room for the header, whose length field needs the body's length.
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        message.encode(&mut self.bytes);
        let body = (self.bytes.len() - HEADER_BYTES) as u32;
        self.put_header(message.kind(), body);
        let slice = self.staging.write(&self.bytes).ok_or(Unsent::NoRoom)?;
        self.slices.push(slice);
        let result = to.send(endpoint, &mut self.slices);
        self.slices.clear();
        Ok(result?)
    }

    /// Queues what `answers` gathered and empties it.
    ///
    /// # Errors
    /// Nothing was queued and `answers` is as it was: see [`Unsent`].
    pub fn send_answers(
        &mut self,
        to: &mut impl Dispatcher,
        endpoint: Endpoint,
        answers: &mut Answers,
    ) -> Result<(), Unsent> {
        if answers.slices.is_empty() {
            self.bytes.clear();
            self.bytes.resize(HEADER_BYTES, 0);
            answers.encoder.encode(&mut self.bytes);
            self.put_header(Kind::SuperFragments, answers.encoder.body_bytes() as u32);
            let head = self.staging.write(&self.bytes).ok_or(Unsent::NoRoom)?;
            answers.slices.push(head);
            answers.slices.append(&mut answers.payloads);
        }
        // A refused message stays encoded in `answers.slices` for the next attempt.
        to.send(endpoint, &mut answers.slices)?;
        answers.clear();
        Ok(())
    }

    fn put_header(&mut self, kind: Kind, body: u32) {
        let mut header = self.identity.header(kind, body).to_bytes();
        if let Some(place) = self.bytes.first_chunk_mut::<HEADER_BYTES>() {
            std::mem::swap(place, &mut header);
        }
    }
}

/// The account of the receive pool, where there is one, those blocks included that came home by now.
pub(super) fn received(endpoints: &mut impl Dispatcher) -> Option<PoolAccount> {
    let pool = endpoints.pool_mut()?;
    pool.collect();
    Some(pool.account())
}

/// Super-fragments on their way to one builder unit, gathered until they are worth a message.
#[derive(Debug)]
pub struct Answers {
    encoder: SuperFragmentsEncoder,
    /// The payloads' slices; nobody needs to know any more where one ends.
    payloads: Vec<Slice>,
    slices: Vec<Slice>,
}

impl Default for Answers {
    fn default() -> Self {
        // Room for a full message, and for the event of many sources that fills the last of it.
        let payloads = 2 * Self::FRAGMENTS;
        Self {
            encoder: SuperFragmentsEncoder::default(),
            payloads: Vec::with_capacity(payloads),
            slices: Vec::with_capacity(2 * payloads),
        }
    }
}

impl Answers {
    /// A message of this many bytes is sent without waiting for more.
    pub const BUDGET: u64 = 512 * 1024;
    /// A message holds at most this many super-fragments.
    const SUPER_FRAGMENTS: u32 = 64;
    /// A message holds at most this many fragments, so that its tables stay within what receivers believe; one that
    /// lies in several slices counts as several.
    const FRAGMENTS: usize = 1024;

    /// Adds a super-fragment: its description, the entries of its fragments, and the payloads of those that are there.
    pub fn add<'a>(
        &mut self,
        entry: SuperFragmentEntry,
        metas: impl ExactSizeIterator<Item = FragmentMeta> + Clone,
        payloads: impl Iterator<Item = &'a Payload>,
    ) {
        self.encoder.add(entry, metas);
        payloads.for_each(|payload| self.payloads.extend(payload.slices().cloned()));
    }

    /// Nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.encoder.is_empty()
    }

    /// Nothing should be added before it was sent.
    pub fn is_full(&self) -> bool {
        !self.slices.is_empty()
            || self.encoder.payload() >= Self::BUDGET
            || self.encoder.len() >= Self::SUPER_FRAGMENTS
            || self.payloads.len() >= Self::FRAGMENTS
    }

    /// Forgets everything: the builder is gone.
    pub fn clear(&mut self) {
        self.encoder.clear();
        self.payloads.clear();
        self.slices.clear();
    }
}
