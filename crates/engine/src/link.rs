//! Connections between the nodes of the pull protocol: messages in both directions, the node at the other end, and
//! final refusals.
//!
//! Messages are encoded into staging blocks, and received as a stream of slices. Control messages are small and decoded
//! as a whole. Super-fragments are handed on one by one when the payloads of their message have arrived, cut from the
//! stream without a copy.

use ropewalk_flow::messages::{Batch, Fragment, Message, Report, ReportEntry, SuperFragmentEntry};
use ropewalk_io::{Dispatcher, Endpoint, SendError};
use ropewalk_memory::{ByteQueue, Payload, Slice, Staging};
use ropewalk_terms::{Epoch, Incarnation, Instant, NodeId, PoolAccount, RunNumber};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::message::{
    HEADER_BYTES, Header, Kind, MAX_CONTROL_BODY, PROTOCOL_VERSION, RefuseReason, SuperFragmentsEncoder,
    SuperFragmentsView,
};
use std::collections::VecDeque;

/// The sender's identity in every header.
#[derive(Copy, Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its current run; 0 before the first.
    pub run: RunNumber,
    /// The epoch of the event manager that it obeys.
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
    /// Content of the headers.
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
    /// The endpoint has ended; the message has no receiver.
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
    /// Creates an outbox that encodes into blocks of `staging`.
    pub fn new(identity: Identity, staging: Staging) -> Self {
        Self { identity, staging, bytes: Vec::with_capacity(64 * 1024), slices: Vec::with_capacity(1) }
    }

    /// Returns the account of the blocks for encoding, after collecting those that have been returned.
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

    /// Sends messages in order. Messages for a closed or absent connection are lost. Returns false if some have no
    /// room.
    pub(super) fn flush(
        &mut self,
        to: &mut impl Dispatcher,
        endpoint: Option<Endpoint>,
        unsent: &mut VecDeque<Message>,
    ) -> bool {
        let Some(endpoint) = endpoint else {
            unsent.clear();
            return true;
        };
        while let Some(message) = unsent.front() {
            if self.send(to, endpoint, message) == Err(Unsent::NoRoom) {
                return false;
            }
            unsent.pop_front();
        }
        true
    }

    /// Makes sure that the next message can be staged, if its header and the encoded part of its body have at most this
    /// many bytes.
    ///
    /// # Errors
    /// [`Unsent::NoRoom`] if no staging block is free.
    pub(super) fn make_room(&mut self, bytes: usize) -> Result<(), Unsent> {
        self.staging.room(bytes).filter(|&room| room >= bytes).map(|_| ()).ok_or(Unsent::NoRoom)
    }

    /// Encodes a message's header and the bytes that `write` appends to it. Other slices send the `following` bytes of
    /// the body.
    ///
    /// # Errors
    /// [`Unsent::NoRoom`] if no staging block is free.
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

/// Appends a report to a queue of messages, in batches.
pub(super) fn push_report(unsent: &mut VecDeque<Message>, entries: impl Iterator<Item = ReportEntry>) {
    let mut batch = Batch::new();
    for entry in entries {
        if batch.is_full() {
            unsent.push_back(Message::Report(Report { entries: std::mem::take(&mut batch), last: false }));
        }
        batch.push(entry);
    }
    unsent.push_back(Message::Report(Report { entries: batch, last: true }));
}

/// Returns the account of the receive pool, if there is one, after collecting the blocks that have been returned.
pub(super) fn received(endpoints: &mut impl Dispatcher) -> Option<PoolAccount> {
    let pool = endpoints.pool_mut()?;
    pool.collect();
    Some(pool.account())
}

/// A received message or super-fragment.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken from the reader and used at once; never stored")]
pub enum Incoming {
    /// A control message and its header.
    Control(Header, Message),
    /// A super-fragment; its fragments are [`MessageReader::fragments`].
    SuperFragment(Header, SuperFragmentEntry),
}

/// Capacity, in slices, that waits without an allocation. Within one process each fragment of a poll is one slice.
const SLICES: usize = 1024;

#[derive(Copy, Clone)]
enum State {
    Header,
    Control(Header),
    Prefix(Header),
    /// Reading tables; the number of bytes of them and their prefix.
    Tables(Header, usize),
    /// Waiting for this many bytes of payloads.
    Payloads(Header, u32),
    /// Every payload is cut.
    HandOn(Header),
}

/// Reads the messages of one connection.
pub struct MessageReader {
    bytes: ByteQueue,
    state: State,
    scratch: Vec<u8>,
    /// The super-fragments of a message, in its order.
    entries: Vec<SuperFragmentEntry>,
    /// Their fragments, grouped by super-fragment. The payloads are cut when all have arrived.
    fragments: Vec<Fragment>,
    /// Where each fragment's payload begins.
    offsets: Vec<u32>,
    /// The super-fragment that is handed on next, and its first fragment.
    next_entry: usize,
    next_fragment: usize,
}

impl Default for MessageReader {
    fn default() -> Self {
        Self {
            bytes: ByteQueue::with_capacity(SLICES),
            state: State::Header,
            scratch: Vec::with_capacity(16 * 1024),
            entries: Vec::with_capacity(64),
            fragments: Vec::with_capacity(1024),
            offsets: Vec::with_capacity(1024),
            next_entry: 0,
            next_fragment: 0,
        }
    }
}

impl MessageReader {
    /// Adds received bytes.
    pub fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// Returns the next complete message or super-fragment; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are not messages. The connection is then unusable.
    pub fn next_incoming(&mut self) -> Result<Option<Incoming>, FrameError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(bytes) = self.bytes.peek_array::<HEADER_BYTES>(0) else { return Ok(None) };
                    let header = Header::decode(&bytes)?;
                    self.bytes.skip(HEADER_BYTES);
                    self.state = match header.kind {
                        Kind::SuperFragments => State::Prefix(header),
                        _ if header.body as usize > MAX_CONTROL_BODY => return Err(FrameError::Long),
                        _ => State::Control(header),
                    };
                }
                State::Control(header) => {
                    let length = header.body as usize;
                    if self.bytes.len() < length {
                        return Ok(None);
                    }
                    let message = self.decode_control(header.kind, length)?;
                    self.state = State::Header;
                    return Ok(Some(Incoming::Control(header, message)));
                }
                State::Prefix(header) => {
                    let Some(prefix) = self.bytes.peek_array(0) else { return Ok(None) };
                    self.state = State::Tables(header, SuperFragmentsView::table_bytes(prefix)?);
                }
                State::Tables(header, length) => {
                    let head = SuperFragmentsEncoder::PREFIX + length;
                    if self.bytes.len() < head {
                        return Ok(None);
                    }
                    let payloads = self.read_tables(header, head)?;
                    self.state = State::Payloads(header, payloads);
                }
                State::Payloads(_, length) if self.bytes.len() < length as usize => return Ok(None),
                State::Payloads(header, length) => {
                    self.cut_payloads(length)?;
                    self.state = State::HandOn(header);
                }
                State::HandOn(header) => match self.entries.get(self.next_entry).copied() {
                    None => self.state = State::Header,
                    Some(entry) => {
                        self.next_entry += 1;
                        self.next_fragment += usize::from(entry.fragments);
                        return Ok(Some(Incoming::SuperFragment(header, entry)));
                    }
                },
            }
        }
    }

    /// Returns the fragments of the latest super-fragment. The caller takes the payloads that it needs and drops the
    /// rest with [`MessageReader::drop_fragments`].
    pub fn fragments(&mut self) -> &mut [Fragment] {
        let last = self.next_entry.checked_sub(1).and_then(|last| self.entries.get(last));
        let count = last.map_or(0, |entry| usize::from(entry.fragments));
        &mut self.fragments[self.next_fragment - count..self.next_fragment]
    }

    /// Drops the rest of the latest super-fragment.
    pub fn drop_fragments(&mut self) {
        self.fragments().iter_mut().for_each(|fragment| fragment.payload.clear());
    }

    fn decode_control(&mut self, kind: Kind, length: usize) -> Result<Message, FrameError> {
        let message = match self.bytes.front().get(..length) {
            Some(body) => Message::decode(kind, body),
            None => {
                self.copy_out(length);
                Message::decode(kind, &self.scratch)
            }
        };
        self.bytes.skip(length);
        message
    }

    /// Copies the first `length` bytes, which lie in several slices, to the scratch buffer.
    fn copy_out(&mut self, length: usize) {
        self.scratch.clear();
        self.scratch.resize(length, 0);
        self.bytes.copy_to(0, &mut self.scratch);
    }

    /// Reads prefix and tables. Returns the number of payload bytes that follow.
    fn read_tables(&mut self, header: Header, head: usize) -> Result<u32, FrameError> {
        // Nearly always they lie in one staging block, and are read in place.
        if self.bytes.front().len() < head {
            self.copy_out(head);
        }
        let Self { bytes, scratch, entries, fragments, offsets, .. } = self;
        entries.clear();
        fragments.clear();
        offsets.clear();
        let mut view = SuperFragmentsView::new(bytes.front().get(..head).unwrap_or(scratch))?;
        while let Some(entry) = view.next_super_fragment()? {
            entries.push(entry);
            while let Some(fragment) = view.next_fragment()? {
                fragments.push(Fragment { meta: fragment.meta, payload: Payload::default() });
                offsets.push(fragment.offset);
            }
        }
        bytes.skip(head);
        (self.next_entry, self.next_fragment) = (0, 0);
        (header.body as usize).checked_sub(head).map(|payloads| payloads as u32).ok_or(FrameError::Short)
    }

    /// Cuts every payload from the next `length` bytes: the first fragment's of each super-fragment, then the second's
    /// of each, and so on. A body that does not match its tables would misalign every later message.
    fn cut_payloads(&mut self, length: u32) -> Result<(), FrameError> {
        let Self { bytes, entries, fragments, offsets, .. } = self;
        let (mut at, most) = (0, entries.iter().map(|entry| entry.fragments).max().unwrap_or(0));
        for row in 0..most {
            let mut first = 0;
            for entry in entries.iter() {
                let (place, has_one) = (first + usize::from(row), row < entry.fragments);
                first += usize::from(entry.fragments);
                if !has_one || fragments[place].meta.length == 0 {
                    continue;
                }
                let Fragment { meta, payload } = &mut fragments[place];
                let (gap, end) = (offsets[place].checked_sub(at), offsets[place].checked_add(meta.length));
                let (Some(gap), Some(end)) = (gap, end.filter(|&end| end <= length)) else {
                    return Err(FrameError::Meaning);
                };
                *payload = take_behind(bytes, gap as usize, meta.length as usize);
                at = end;
            }
        }
        bytes.skip((length - at) as usize);
        Ok(())
    }
}

/// Drops `gap` bytes and takes the `length` behind them, at least one.
#[inline]
fn take_behind(bytes: &mut ByteQueue, gap: usize, length: usize) -> Payload {
    match bytes.front_slice() {
        Some(mut front) if gap + length < front.bytes().len() => front.take_behind(gap, length),
        _ => {
            bytes.skip(gap);
            bytes.take(length)
        }
    }
}

/// The peer of an endpoint between nodes.
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) reader: MessageReader,
    pub(super) node: Option<NodeId>,
    /// For a builder unit: the incarnation in its hello.
    pub(super) life: Option<Incarnation>,
    /// When it was last heard.
    pub(super) heard: Instant,
}

impl Peer {
    pub(super) fn new(now: Instant, endpoint: Endpoint, node: Option<NodeId>) -> Self {
        Self { endpoint, reader: MessageReader::default(), node, life: None, heard: now }
    }

    /// Returns since when it has been unidentified; `None` once it is identified.
    pub(super) fn unknown_since(&self) -> Option<Instant> {
        self.node.is_none().then_some(self.heard)
    }
}

/// A final refusal: which node refused this one, and why. Calling again is useless.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{} refuses this node: {}", who(*.by), at(.address), advice(*.reason))]
pub struct Refusal {
    /// The refusing node.
    pub by: NodeId,
    /// The address at which that node was called; empty if it called this one.
    pub address: String,
    /// The reason.
    pub reason: RefuseReason,
}

impl Refusal {
    /// Returns whether only the run is over: the node is welcome in the next one.
    pub const fn is_of_run(&self) -> bool {
        matches!(self.reason, RefuseReason::RunOver)
    }

    /// Returns the refusal if it holds for the whole lifetime of this process; `None` if the reason is temporary, so
    /// that the node calls again.
    pub(super) fn timer(by: NodeId, address: &str, reason: RefuseReason) -> Option<Self> {
        let passes = match reason {
            // The node learns of the newer event manager from that manager.
            RefuseReason::OldEpoch => true,
            // It may become the active one soon, or another one is active.
            RefuseReason::StandBy => true,
            RefuseReason::Version
            | RefuseReason::Configuration
            | RefuseReason::UnknownNode
            | RefuseReason::OldIncarnation
            | RefuseReason::LateIncarnation(_)
            | RefuseReason::RunOver
            | RefuseReason::Taken => false,
        };
        (!passes).then(|| Self { by, address: address.to_owned(), reason })
    }
}

fn who(node: NodeId) -> String {
    if node == NodeId::MANAGER { "the event manager".to_owned() } else { node.to_string() }
}

fn at(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}

fn advice(reason: RefuseReason) -> String {
    match reason {
        RefuseReason::Version => format!(
            "it speaks another version of the protocol than this one, {PROTOCOL_VERSION}; \
             start every node from the same version of ropewalk"
        ),
        RefuseReason::Configuration => {
            "its configuration is another one; start every node from the same file".to_owned()
        }
        RefuseReason::UnknownNode => {
            "its configuration has no such node; start every node from the same file, and give addresses to the nodes \
             that they belong to"
                .to_owned()
        }
        RefuseReason::OldIncarnation => {
            "this node was started again elsewhere, and the later start counts; run each node once".to_owned()
        }
        RefuseReason::LateIncarnation(_) => {
            "this node was started again elsewhere after it, and that one is gone; start it again".to_owned()
        }
        RefuseReason::RunOver => {
            "the run that it is in is over, and was closed without what it still has; start it again, with `--then next` \
             where runs follow each other"
                .to_owned()
        }
        RefuseReason::Taken => {
            "a node of this name is connected, and works; run each node once, or end the other one first".to_owned()
        }
        RefuseReason::StandBy => "it stands by".to_owned(),
        RefuseReason::OldEpoch => {
            "it obeys a younger event manager, which goes on with the run and accounts for it".to_owned()
        }
    }
}

/// A table indexed by endpoint, which rejects endpoints of an earlier generation.
///
/// A connection may end before all its data is processed, and its index is reused immediately. The entry of the earlier
/// connection is then kept beside the table until it is taken out.
#[derive(Debug)]
pub(super) struct EndpointTable<T> {
    places: Vec<Option<(Endpoint, T)>>,
    outlived: Vec<(Endpoint, T)>,
}

/// Initial capacity, in connections.
const ROOM: usize = 256;

impl<T> Default for EndpointTable<T> {
    fn default() -> Self {
        // A connection that returns during data taking allocates nothing.
        Self { places: Vec::with_capacity(ROOM), outlived: Vec::with_capacity(ROOM) }
    }
}

impl<T> EndpointTable<T> {
    /// Enters the state of `endpoint`.
    pub(super) fn insert(&mut self, endpoint: Endpoint, entry: T) {
        if self.places.len() <= endpoint.index() {
            self.places.resize_with(endpoint.index() + 1, || None);
        }
        let before = self.places[endpoint.index()].replace((endpoint, entry));
        self.outlived.extend(before.filter(|(found, _)| *found != endpoint));
    }

    /// Returns the state of `endpoint`.
    pub(super) fn get(&self, endpoint: Endpoint) -> Option<&T> {
        let place = self.places.get(endpoint.index())?.as_ref();
        let mut all = place.into_iter().chain(&self.outlived);
        all.find(|(found, _)| *found == endpoint).map(|(_, entry)| entry)
    }

    /// Returns the state of `endpoint`, mutably.
    pub(super) fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        let place = self.places.get_mut(endpoint.index())?.as_mut();
        let mut all = place.into_iter().chain(&mut self.outlived);
        all.find(|(found, _)| *found == endpoint).map(|(_, entry)| entry)
    }

    /// Takes out the state of `endpoint`.
    pub(super) fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        let place = self.places.get_mut(endpoint.index())?;
        if let Some((_, entry)) = place.take_if(|(found, _)| *found == endpoint) {
            return Some(entry);
        }
        let outlived = self.outlived.iter().position(|(found, _)| *found == endpoint)?;
        Some(self.outlived.remove(outlived).1)
    }

    /// Returns the number of places, free or taken. Each can be read by [`EndpointTable::at`].
    pub(super) const fn places(&self) -> usize {
        self.places.len() + self.outlived.len()
    }

    /// Returns each endpoint with its state.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Endpoint, &T)> {
        self.places.iter().flatten().chain(&self.outlived).map(|(endpoint, entry)| (*endpoint, entry))
    }

    /// Returns the state of each endpoint.
    pub(super) fn entries(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().chain(&self.outlived).map(|(_, entry)| entry)
    }

    /// Returns the entry at a place.
    pub(super) fn at(&mut self, index: usize) -> Option<(Endpoint, &mut T)> {
        let entry = match index.checked_sub(self.places.len()) {
            None => self.places[index].as_mut(),
            Some(outlived) => self.outlived.get_mut(outlived),
        };
        entry.map(|(endpoint, entry)| (*endpoint, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::FragmentMeta;
    use ropewalk_memory::{Pool, PoolConfig, Staging};
    use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, Incarnation, NodeId, RunNumber, SourceId};
    use ropewalk_wire::message::FragmentEntry;

    /// A message of one super-fragment for each list of fragments, given by offset and length, with `payloads` bytes of
    /// payload; and the number of bytes before the payloads.
    fn message(super_fragments: &[&[(u32, u32)]], payloads: usize, body: Option<u32>) -> (Vec<u8>, usize) {
        let mut head = Vec::new();
        let mut encoder = SuperFragmentsEncoder::new(&mut head);
        for (number, fragments) in (0..).zip(super_fragments) {
            let (key, attempt, not_held) = (EventKey::new(0, number), Attempt(1), None);
            let entry = SuperFragmentEntry { key, slot: 0, attempt, fragments: 0, bytes: 0, not_held };
            let fragment = |&(offset, length): &(u32, u32)| {
                let meta = FragmentMeta { length, ..FragmentMeta::missing(SourceId(1), Cause::TimedOut) };
                FragmentEntry { meta, offset }
            };
            encoder.add(entry, fragments.iter().map(fragment));
        }
        encoder.finish();
        let (kind, body) = (Kind::SuperFragments, body.unwrap_or((head.len() + payloads) as u32));
        let (sender, run, epoch, incarnation) = (NodeId::readout(0), RunNumber(1), Epoch(1), Incarnation(1));
        let header = Header { kind, body, run, epoch, sender, incarnation };
        let bytes = [&header.to_bytes()[..], &head, &vec![7; payloads]].concat();
        let before = bytes.len() - payloads;
        (bytes, before)
    }

    fn staging() -> Staging {
        Staging::new(Pool::new(PoolConfig::heap("received", 4096, 2)).expect("memory"))
    }

    /// Returns the number of messages and super-fragments that the reader decodes from such a message.
    fn read(super_fragments: &[&[(u32, u32)]], payloads: usize, body: Option<u32>) -> Result<usize, FrameError> {
        let (bytes, _) = message(super_fragments, payloads, body);
        let (mut reader, mut count) = (MessageReader::default(), 0);
        reader.push(staging().write(&bytes).expect("room"));
        while reader.next_incoming()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Nothing is moved between the endpoint and a filter of the builder unit.
    #[test]
    fn payloads_lie_where_they_were_received_in_however_many_pieces() {
        let payloads = [(0, 500), (510, 40), (560, 900)];
        let (bytes, before) = message(&[&payloads], 1500, None);
        for piece in [bytes.len(), 300, 61, 1] {
            let (mut pool, mut reader, mut addresses) = (staging(), MessageReader::default(), Vec::new());
            for part in bytes.chunks(piece) {
                let slice = pool.write(part).expect("room");
                let start = slice.as_ptr().addr();
                addresses.extend(start..start + part.len());
                reader.push(slice);
            }
            assert!(matches!(reader.next_incoming(), Ok(Some(Incoming::SuperFragment(..)))));
            for (fragment, (offset, length)) in reader.fragments().iter().zip(payloads) {
                let at = |piece: &[u8]| (piece.as_ptr().addr()..).take(piece.len()).collect::<Vec<_>>();
                let lies: Vec<usize> = fragment.payload.pieces().flat_map(at).collect();
                assert_eq!(lies, addresses[before + offset as usize..][..length as usize]);
            }
        }
    }

    #[test]
    fn payloads_may_have_gaps_between_them_and_behind_them() {
        assert_eq!(read(&[&[(0, 10), (30, 10)], &[(10, 10)]], 40, None), Ok(2));
        assert_eq!(read(&[&[(5, 10), (30, 10)], &[(17, 10)]], 100, None), Ok(2));
        assert_eq!(read(&[&[], &[(99, 0)], &[(0, 40)]], 40, None), Ok(3), "what has no bytes lies nowhere");
        assert_eq!(read(&[], 40, None), Ok(0));
    }

    #[test]
    fn payloads_that_lie_in_each_other_or_outside_are_refused() {
        let refused = Err(FrameError::Meaning);
        assert_eq!(read(&[&[(0, 10)], &[(9, 10)]], 40, None), refused);
        assert_eq!(read(&[&[(20, 10)], &[(0, 10)]], 40, None), refused, "not in their order");
        assert_eq!(read(&[&[(31, 10)]], 40, None), refused);
        assert_eq!(read(&[&[(u32::MAX, 10)]], 40, None), refused);
        assert_eq!(read(&[&[(0, 10)]], 40, Some(20)), Err(FrameError::Short), "a body shorter than its tables");
    }

    #[test]
    fn a_reason_that_passes_by_itself_ends_no_node() {
        let timer = |reason| Refusal::timer(NodeId::MANAGER, "host:1", reason).is_some();
        assert!(!timer(RefuseReason::OldEpoch) && !timer(RefuseReason::StandBy));
        for reason in [
            RefuseReason::Version,
            RefuseReason::Configuration,
            RefuseReason::UnknownNode,
            RefuseReason::OldIncarnation,
            RefuseReason::LateIncarnation(Incarnation(1)),
            RefuseReason::RunOver,
            RefuseReason::Taken,
        ] {
            assert!(timer(reason), "{reason:?}");
        }
    }

    #[test]
    fn a_refusal_says_who_refused_why_and_what_to_do() {
        let told = |by, reason| Refusal { by, address: "host:1".to_owned(), reason }.to_string();
        assert_eq!(
            told(NodeId::MANAGER, RefuseReason::Configuration),
            "the event manager at host:1 refuses this node: its configuration is another one; \
             start every node from the same file"
        );
        let superseded = Refusal { by: NodeId::builder(1), address: String::new(), reason: RefuseReason::OldEpoch };
        assert!(superseded.to_string().starts_with("bu1 refuses this node: it obeys a younger event manager"));
        assert!(told(NodeId::readout(3), RefuseReason::Version).starts_with("ru3 at host:1 refuses this node: "));
    }

    /// A source that sent everything before the run began has closed its connection, and another one connects.
    #[test]
    fn a_connection_that_ended_is_remembered_although_its_index_is_used_again() {
        let (one, other) = (Endpoint::new(0, 0), Endpoint::new(0, 1));
        let mut table = EndpointTable::default();
        table.insert(one, "one");
        table.insert(other, "other");
        assert_eq!((table.get_mut(one).copied(), table.get_mut(other).copied()), (Some("one"), Some("other")));
        let mut seen = Vec::new();
        for index in 0..table.places() {
            seen.extend(table.at(index).map(|(_, entry)| *entry));
        }
        assert_eq!(seen, ["other", "one"]);
        assert_eq!((table.remove(one), table.remove(one), table.remove(other)), (Some("one"), None, Some("other")));
        assert_eq!(table.get_mut(other), None);
        assert_eq!(table.places(), 1);
        assert!(table.at(0).is_none() && table.at(1).is_none());
    }
}
