//! Receiving messages of the pull protocol from a stream of slices.
//!
//! Control messages are small and decoded whole. Super-fragments are handed on one by one as their payloads
//! arrive, cut from the stream without a copy, so that a message may be larger than the receive pool's blocks.

use ropewalk_flow::messages::{Fragment, FragmentMeta, Message, SuperFragmentEntry};
use ropewalk_memory::{ByteQueue, Payload, Slice};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind, MAX_CONTROL_BODY, SuperFragmentsEncoder, SuperFragmentsView};

/// One thing that came.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken from the reader and used at once; never stored")]
pub enum Incoming {
    /// A control message and its header.
    Control(Header, Message),
    /// A super-fragment; its fragments lie in [`MessageReader::fragments`].
    SuperFragment(Header, SuperFragmentEntry),
}

/// Slices that wait without an allocation: in one process each fragment of a poll is one.
const SLICES: usize = 1024;

enum State {
    Header,
    Control(Header),
    Prefix(Header),
    Tables(Header, usize),
    Payloads(Header),
}

/// Reads the messages of one connection.
pub struct MessageReader {
    bytes: ByteQueue,
    state: State,
    scratch: Vec<u8>,
    entries: Vec<SuperFragmentEntry>,
    metas: Vec<FragmentMeta>,
    next_entry: usize,
    next_meta: usize,
    /// Fragments of the super-fragment that came last, in the order of the message. Whoever takes the
    /// super-fragment empties this.
    pub fragments: Vec<Fragment>,
}

impl Default for MessageReader {
    fn default() -> Self {
        Self {
            bytes: ByteQueue::with_capacity(SLICES),
            state: State::Header,
            scratch: Vec::with_capacity(16 * 1024),
            entries: Vec::with_capacity(64),
            metas: Vec::with_capacity(1024),
            next_entry: 0,
            next_meta: 0,
            fragments: Vec::with_capacity(64),
        }
    }
}

impl MessageReader {
    /// Adds received bytes.
    pub fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// The next complete message or super-fragment; none where more bytes are needed.
    ///
    /// # Errors
    /// Where the bytes are no messages: the connection is of no more use.
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
                    self.read_tables(header, head)?;
                    self.state = State::Payloads(header);
                }
                State::Payloads(header) => match self.entries.get(self.next_entry).copied() {
                    None => self.state = State::Header,
                    Some(entry) if self.take_payloads(&entry) => {
                        self.next_entry += 1;
                        return Ok(Some(Incoming::SuperFragment(header, entry)));
                    }
                    Some(_) => return Ok(None),
                },
            }
        }
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

    fn read_tables(&mut self, header: Header, head: usize) -> Result<(), FrameError> {
        // Nearly always they lie in one staging block, and are read where they lie.
        if self.bytes.front().len() < head {
            self.copy_out(head);
        }
        let Self { bytes, scratch, entries, metas, .. } = self;
        entries.clear();
        metas.clear();
        let mut payload = 0_u64;
        let mut view = SuperFragmentsView::new(bytes.front().get(..head).unwrap_or(scratch))?;
        while let Some(entry) = view.next_super_fragment()? {
            entries.push(entry);
            while let Some(meta) = view.next_fragment()? {
                payload += u64::from(meta.length);
                metas.push(meta);
            }
        }
        bytes.skip(head);
        (self.next_entry, self.next_meta) = (0, 0);
        self.fragments.clear();
        // A body that is not what its tables say would put every later message out of step.
        if u64::from(header.body) == head as u64 + payload { Ok(()) } else { Err(FrameError::Long) }
    }

    /// Cuts the payloads of one super-fragment, as far as they are there; true when all are.
    fn take_payloads(&mut self, entry: &SuperFragmentEntry) -> bool {
        while self.fragments.len() < usize::from(entry.fragments) {
            let Some(meta) = self.metas.get(self.next_meta).copied() else { return false };
            let length = meta.length as usize;
            if self.bytes.len() < length {
                return false;
            }
            let payload = if length > 0 { self.bytes.take(length) } else { Payload::default() };
            self.fragments.push(Fragment { meta, payload });
            self.next_meta += 1;
        }
        true
    }
}
