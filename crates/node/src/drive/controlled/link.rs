//! One connection of a front end: words in, commands out.

use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_memory::{ByteQueue, Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::front_end::{Command, FRAME_BYTES, Frame, LARGEST_BODY_BYTES, Word};

/// Commands that may wait for a front end that does not read, in bytes: settings, and what follows them.
const MOST_OUTGOING: usize = 4 * LARGEST_BODY_BYTES;

/// What is known of a connection.
pub(super) struct Link {
    /// Whose it is; none before its hello.
    pub(super) place: Option<usize>,
    /// When it came to stand.
    pub(super) since: Instant,
    /// It is closed as soon as what was said has left.
    pub(super) is_ending: bool,
    bytes: ByteQueue,
    scratch: Vec<u8>,
    outgoing: Vec<u8>,
    slices: Vec<Slice>,
}

impl Link {
    pub(super) fn new(since: Instant) -> Self {
        Self {
            place: None,
            since,
            is_ending: false,
            bytes: ByteQueue::new(),
            scratch: Vec::new(),
            outgoing: Vec::new(),
            slices: Vec::with_capacity(1),
        }
    }

    pub(super) fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// The next word that came whole.
    ///
    /// # Errors
    /// Where the bytes are none: the connection is of no more use.
    pub(super) fn next_word(&mut self) -> Result<Option<Word>, FrameError> {
        let Some(head) = self.bytes.peek_array::<FRAME_BYTES>(0) else { return Ok(None) };
        let frame = Frame::parse(&head)?;
        let length = frame.body as usize;
        self.scratch.resize(length, 0);
        if self.bytes.len() < FRAME_BYTES + length || !self.bytes.copy_to(FRAME_BYTES, &mut self.scratch) {
            return Ok(None);
        }
        self.bytes.skip(FRAME_BYTES + length);
        Word::decode(frame.kind, &self.scratch).map(Some)
    }

    /// Sends a command as soon as there is room. False where too much waits already: nobody reads there.
    pub(super) fn say(&mut self, command: &Command) -> bool {
        command.encode(&mut self.outgoing);
        self.outgoing.len() <= MOST_OUTGOING
    }

    /// Sends what was said, as far as there is room; true when nothing of it waits any more.
    pub(super) fn flush(&mut self, endpoint: Endpoint, to: &mut impl Dispatcher, staging: &mut Staging) -> bool {
        while !self.outgoing.is_empty() {
            let length = self.outgoing.len().min(staging.largest());
            let Some(slice) = staging.write(&self.outgoing[..length]) else { return false };
            self.slices.push(slice);
            let is_sent = to.send(endpoint, &mut self.slices).is_ok();
            self.slices.clear();
            if !is_sent {
                return false;
            }
            self.outgoing.drain(..length);
        }
        true
    }
}
