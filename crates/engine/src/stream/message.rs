//! Messages of a chunk stream. Output: the queue of a subscriber, with chunk heads, and chunk bytes by reference or
//! copied. Input: decoded from a stream of slices.

use ropewalk_flow::stream::{Router, SubscriberId};
use ropewalk_memory::{ByteQueue, Payload, Slice, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::stream::{
    ChunkHead, ChunksView, FRAME_BYTES, Frame, Kind, MOST_CHUNKS, Message, encode_heads, heads_bytes,
};
use std::ops::ControlFlow;

/// Chunks with a smaller average size are copied, because each piece of a scatter-gather list costs the system more
/// than the copy. Over loopback copies were 1.25 times as fast as pieces at 512 B, 1.08 times at 768 B and 1 KB, 1.04
/// at 2 KB and 0.97 at 4 KB (`bench felix --case figure=subscriber` with other sizes, six pairs): beyond a block of 1
/// KiB they gain next to nothing.
const COPIED_BELOW: u64 = 1024;
/// Minimum room of a block in which copies are begun.
const LEAST_COPY: usize = 16 << 10;
/// Initial capacity, in pieces.
const USUAL_PIECES: usize = 4 * MOST_CHUNKS;

/// Result of gathering a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Gathered {
    /// The message is ready.
    Message,
    /// There is no room in the transport now, or no memory for the heads.
    NoRoom,
    /// The oldest chunk must be copied, and there is no memory for the copy.
    Uncopied,
}

/// Makes messages, reusing its memory.
pub(super) struct Gatherer {
    heads: Vec<ChunkHead>,
    encoded: Vec<u8>,
    /// The message.
    pub(super) slices: Vec<Slice>,
    /// Bytes of chunks that were copied.
    pub(super) copied_bytes: u64,
}

impl Gatherer {
    pub(super) fn new() -> Self {
        Self {
            heads: Vec::with_capacity(MOST_CHUNKS),
            encoded: Vec::with_capacity(heads_bytes(MOST_CHUNKS)),
            slices: Vec::with_capacity(USUAL_PIECES),
            copied_bytes: 0,
        }
    }

    /// Gathers a message of at most `room` bytes for a subscriber. A subscriber that may lose chunks must not hold the
    /// card's memory: all its data lies in `staging`.
    pub(super) fn gather(
        &mut self,
        router: &mut Router,
        id: SubscriberId,
        room: usize,
        staging: &mut Staging,
    ) -> Gathered {
        self.heads.clear();
        self.slices.clear();
        let must_copy = router.may_lose(id) && !is_planted(Flaw::MonitorHoldsCard);
        let queued = router.queued(id);
        let heads_bytes = heads_bytes((queued.chunks as usize).min(MOST_CHUNKS));
        if must_copy || queued.bytes < COPIED_BELOW * queued.chunks {
            let least = heads_bytes + LEAST_COPY.min(queued.bytes as usize);
            self.copy(router, id, room, staging, [heads_bytes, least]);
        }
        if self.heads.is_empty() {
            self.refer(router, id, if staging.room(heads_bytes).is_some() { room } else { 0 }, must_copy);
        }
        if !self.heads.is_empty() {
            self.encoded.clear();
            encode_heads(self.heads.iter().copied(), &mut self.encoded);
            let heads = staging.write(&self.encoded).expect("room for the heads was made sure of");
            self.slices.insert(0, heads);
            return Gathered::Message;
        }
        if must_copy { self.copy_large(router, id, room, staging) } else { Gathered::NoRoom }
    }

    /// Copies chunks into one block, leaving room for their heads.
    fn copy(
        &mut self,
        router: &mut Router,
        id: SubscriberId,
        room: usize,
        staging: &mut Staging,
        [heads_bytes, least]: [usize; 2],
    ) {
        let heads = &mut self.heads;
        let copied = staging.write_with(least, |space| {
            let most = space.len() - heads_bytes;
            let mut filled = 0;
            router.take_each(id, room, |chunk| {
                if chunk.is_copy() || filled + chunk.head().length as usize > most {
                    return ControlFlow::Break(());
                }
                heads.push(chunk.head());
                chunk.for_each_piece(|piece| {
                    space[filled..][..piece.len()].copy_from_slice(piece);
                    filled += piece.len();
                });
                ControlFlow::Continue(())
            });
            filled
        });
        self.copied_bytes += copied.as_ref().map_or(0, |copied| copied.len() as u64);
        self.slices.extend(copied);
    }

    /// Adds chunks by reference; with `must_copy`, only chunks that were copied.
    fn refer(&mut self, router: &mut Router, id: SubscriberId, room: usize, must_copy: bool) {
        router.take_each(id, room, |chunk| {
            if must_copy && !chunk.is_copy() {
                return ControlFlow::Break(());
            }
            self.heads.push(chunk.head());
            chunk.append_slices(&mut self.slices);
            ControlFlow::Continue(())
        });
    }

    /// Copies a chunk that is larger than the room in a block, as a message of its own.
    fn copy_large(&mut self, router: &mut Router, id: SubscriberId, room: usize, staging: &mut Staging) -> Gathered {
        let mut gathered = Gathered::NoRoom;
        router.take_each(id, room, |chunk| {
            if gathered == Gathered::Message {
                return ControlFlow::Break(());
            }
            self.encoded.clear();
            encode_heads(std::iter::once(chunk.head()), &mut self.encoded);
            let copied = staging.write(&self.encoded).zip(chunk.to_stream_chunk().payload.evacuate(staging));
            let Some((heads, payload)) = copied else {
                gathered = Gathered::Uncopied;
                return ControlFlow::Break(());
            };
            self.copied_bytes += payload.len() as u64;
            self.slices.push(heads);
            self.slices.extend(payload.into_slices());
            gathered = Gathered::Message;
            ControlFlow::Continue(())
        });
        gathered
    }
}

/// A received message or chunk.
#[derive(Debug)]
pub enum StreamIncoming {
    /// A message other than chunks.
    Control(Message),
    /// A chunk.
    Chunk(ChunkHead, Payload),
}

enum State {
    Frame,
    Control(Frame),
    Prefix(Frame),
    Table(Frame, usize),
    Chunks,
}

/// Reads the messages of one connection. A chunk is cut from the stream in place.
pub struct StreamReader {
    bytes: ByteQueue,
    state: State,
    scratch: Vec<u8>,
    heads: Vec<ChunkHead>,
    next: usize,
    most_chunk_bytes: u32,
}

impl StreamReader {
    /// Creates a reader of a new connection. A longer chunk is malformed.
    pub fn new(most_chunk_bytes: u32) -> Self {
        let (bytes, scratch, heads) = (ByteQueue::new(), Vec::new(), Vec::new());
        Self { bytes, state: State::Frame, scratch, heads, next: 0, most_chunk_bytes }
    }

    /// Adds received bytes.
    pub fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// Returns the next message or chunk; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are not messages. The connection is then unusable.
    pub fn next_incoming(&mut self) -> Result<Option<StreamIncoming>, FrameError> {
        loop {
            match self.state {
                State::Frame => {
                    let Some(bytes) = self.bytes.peek_array::<FRAME_BYTES>(0) else { return Ok(None) };
                    let frame = Frame::parse(&bytes)?;
                    self.bytes.skip(FRAME_BYTES);
                    self.state = if frame.kind == Kind::Chunks { State::Prefix(frame) } else { State::Control(frame) };
                }
                State::Control(frame) => {
                    let Some(body) = self.gather(frame.body as usize) else { return Ok(None) };
                    let message = Message::decode(frame.kind, body)?;
                    self.bytes.skip(frame.body as usize);
                    self.state = State::Frame;
                    return Ok(Some(StreamIncoming::Control(message)));
                }
                State::Prefix(frame) => {
                    if self.bytes.len() < ropewalk_wire::stream::PREFIX_BYTES {
                        return if frame.body == 0 { Err(FrameError::Short) } else { Ok(None) };
                    }
                    let prefix = self.bytes.peek_array(0).ok_or(FrameError::Short)?;
                    self.state = State::Table(frame, ChunksView::table_bytes(prefix, frame.body)?);
                }
                State::Table(frame, length) => {
                    let Some(table) = self.gather(length) else { return Ok(None) };
                    let view = ChunksView::parse(table, frame.body)?;
                    let (heads, mut longest) = (view.heads(), 0);
                    let heads: Vec<ChunkHead> = heads.inspect(|head| longest = longest.max(head.length)).collect();
                    if longest > self.most_chunk_bytes {
                        return Err(FrameError::Long);
                    }
                    self.heads = heads;
                    self.next = 0;
                    self.bytes.skip(length);
                    self.state = State::Chunks;
                }
                State::Chunks => match self.heads.get(self.next).copied() {
                    None => self.state = State::Frame,
                    Some(head) if self.bytes.len() < head.length as usize => return Ok(None),
                    Some(head) => {
                        self.next += 1;
                        return Ok(Some(StreamIncoming::Chunk(head, self.bytes.take(head.length as usize))));
                    }
                },
            }
        }
    }

    /// Returns the first `length` bytes in one piece, if all of them have arrived.
    fn gather(&mut self, length: usize) -> Option<&[u8]> {
        if self.bytes.front().len() < length {
            self.scratch.resize(length, 0);
            return self.bytes.copy_to(0, &mut self.scratch).then_some(&self.scratch[..]);
        }
        self.bytes.front().get(..length)
    }
}
