//! Receiving messages of the pull protocol from a stream of slices.
//!
//! Control messages are small and decoded whole. Super-fragments are handed on one by one when the payloads of their
//! message have come, cut from the stream without a copy.

use ropewalk_flow::messages::{Fragment, Message, SuperFragmentEntry};
use ropewalk_memory::{ByteQueue, Payload, Slice};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind, MAX_CONTROL_BODY, SuperFragmentsEncoder, SuperFragmentsView};

/// One thing that came.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken from the reader and used at once; never stored")]
pub enum Incoming {
    /// A control message and its header.
    Control(Header, Message),
    /// A super-fragment; its fragments are [`MessageReader::fragments`].
    SuperFragment(Header, SuperFragmentEntry),
}

/// Slices that wait without an allocation: in one process each fragment of a poll is one.
const SLICES: usize = 1024;

#[derive(Copy, Clone)]
enum State {
    Header,
    Control(Header),
    Prefix(Header),
    /// Tables, with so many bytes of them and their prefix.
    Tables(Header, usize),
    /// So many bytes of payloads are to come.
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
    /// Their fragments, one super-fragment's behind the other's; the payloads are cut when all have come.
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

    /// Fragments of the super-fragment that came last. Whoever takes it takes the payloads that it wants; what is left is
    /// to be dropped: [`MessageReader::drop_fragments`].
    pub fn fragments(&mut self) -> &mut [Fragment] {
        let last = self.next_entry.checked_sub(1).and_then(|last| self.entries.get(last));
        let count = last.map_or(0, |entry| usize::from(entry.fragments));
        &mut self.fragments[self.next_fragment - count..self.next_fragment]
    }

    /// Drops what was left of the super-fragment that came last.
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

    /// Reads prefix and tables; returns how many bytes of payloads follow.
    fn read_tables(&mut self, header: Header, head: usize) -> Result<u32, FrameError> {
        // Nearly always they lie in one staging block, and are read where they lie.
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

    /// Cuts every payload from the next `length` bytes: the first fragment's of each super-fragment, then the second's of
    /// each, and so on. A body that is not what its tables say would put every later message out of step.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::FragmentMeta;
    use ropewalk_memory::{Pool, PoolConfig, Staging};
    use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, Incarnation, NodeId, RunNumber, SourceId};
    use ropewalk_wire::message::FragmentEntry;

    /// What the reader says of a message of one super-fragment for each list of fragments, given by offset and length, and
    /// so many bytes of payloads.
    fn read(super_fragments: &[&[(u32, u32)]], payloads: usize, body: Option<u32>) -> Result<usize, FrameError> {
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
        let mut pool = Staging::new(Pool::new(PoolConfig::heap("received", 4096, 2)).expect("memory"));
        let (mut reader, mut count) = (MessageReader::default(), 0);
        reader.push(pool.write(&bytes).expect("room"));
        while reader.next_incoming()?.is_some() {
            count += 1;
        }
        Ok(count)
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
}
