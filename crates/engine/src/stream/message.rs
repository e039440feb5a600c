//! Messages of a chunk stream. Out: what waits for a subscriber, its heads, and its bytes by reference or copied. In: received
//! from a stream of slices.

use ropewalk_flow::stream::{Router, SubscriberId};
use ropewalk_memory::{ByteQueue, Payload, Slice, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::stream::{
    ChunkHead, ChunksView, FRAME_BYTES, Frame, Kind, MOST_CHUNKS, Message, encode_heads, heads_bytes,
};
use std::ops::ControlFlow;

/// Chunks that are smaller on average are copied: each piece of a list of pieces costs the system more than that. Over
/// loopback copies were 1.25 times as fast as pieces at 512 B, 1.08 times at 768 B and 1 KB, 1.04 at 2 KB and 0.97 at 4 KB
/// (`bench felix --case figure=subscriber` with other sizes, six pairs): beyond a block of 1 KiB they gain next to nothing.
const COPIED_BELOW: u64 = 1024;
/// A block with less room is not begun to fill with copies.
const LEAST_COPY: usize = 16 << 10;
/// For this many pieces there is room from the start.
const USUAL_PIECES: usize = 4 * MOST_CHUNKS;

/// What came of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Gathered {
    /// It is there.
    Message,
    /// Not now: there is no room in the transport, or nowhere to write the heads.
    NoRoom,
    /// The oldest chunk must be copied, and there is nowhere to copy it to.
    Uncopied,
}

/// Makes messages; the memory for it is used again.
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

    /// Takes a message of at most `room` bytes for a subscriber. If it may lose chunks it must not hold the card's memory:
    /// all that it is sent lies in `staging`.
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

    /// Copies chunks into one block, and leaves room for their heads there.
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

    /// Takes chunks where they lie; with `must_copy`, only chunks that were copied.
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

/// One thing that came.
#[derive(Debug)]
pub enum StreamIncoming {
    /// A message that is not chunks.
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

/// Reads the messages of one connection. A chunk is cut from the stream where it lies.
pub struct StreamReader {
    bytes: ByteQueue,
    state: State,
    scratch: Vec<u8>,
    heads: Vec<ChunkHead>,
    next: usize,
    most_chunk_bytes: u32,
}

impl StreamReader {
    /// A reader of a new connection. A longer chunk is malformed.
    pub fn new(most_chunk_bytes: u32) -> Self {
        let (bytes, scratch, heads) = (ByteQueue::new(), Vec::new(), Vec::new());
        Self { bytes, state: State::Frame, scratch, heads, next: 0, most_chunk_bytes }
    }

    /// Adds received bytes.
    pub fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// The next message or chunk; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are no messages: the connection is of no more use.
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

    /// The first `length` bytes in one piece, if they all came.
    fn gather(&mut self, length: usize) -> Option<&[u8]> {
        if self.bytes.front().len() < length {
            self.scratch.resize(length, 0);
            return self.bytes.copy_to(0, &mut self.scratch).then_some(&self.scratch[..]);
        }
        self.bytes.front().get(..length)
    }
}
