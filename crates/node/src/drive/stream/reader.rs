//! Receiving messages of a chunk stream from a stream of slices.

use ropewalk_memory::{ByteQueue, Payload, Slice};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::stream::{ChunkHead, ChunksView, FRAME_BYTES, Frame, Kind, Message};

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

    /// The next message or chunk; none where more bytes are needed.
    ///
    /// # Errors
    /// Where the bytes are no messages: the connection is of no more use.
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
