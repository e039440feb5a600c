//! Chunks for subscribers: the messages, their directions and layouts.
//!
//! ```text
//!   subscriber -> server   Hello, Subscribe (replaces what was asked for before), Down
//!   server -> subscriber   Welcome or Refuse (first), Subscribed, Chunks, Loss, DownRefused, End
//!
//!   frame    "RWF" | kind | body length (u32)                                  8 bytes, little-endian
//!   Chunks   count (u32) | count x head | the chunks' bytes, one after the other
//!   head     e-link (u16) | status (u8) | block sequence (u8) | length (u32)   8 bytes
//! ```
//! The heads of a message precede its bytes, so that a server writes them in one piece and gathers the bytes from the
//! card's memory. Hello is the first message and contains the version; a server refuses other versions.

use crate::felix::{ELINKS, ELink, SEQUENCES, Status};
use crate::frame::{FrameError, NAME_BYTES, Reader, Writer, frame, kinds, padded_name, unpadded_name};

/// The version of these messages. A hello with another version is refused.
pub const STREAM_VERSION: u16 = 1;

/// The longest body of a message other than chunks, in bytes.
pub const LARGEST_CONTROL_BYTES: usize = 64 * 1024 + 64;

const MAGIC: [u8; 3] = *b"RWF";

kinds! {
    /// The subscriber's identity and version.
    Hello = 1,
    /// The hello is accepted.
    Welcome = 2,
    /// The hello or the subscription is refused; the connection closes.
    Refuse = 3,
    /// The requested e-links, and the way of delivery.
    Subscribe = 4,
    /// The subscription is active: chunks follow.
    Subscribed = 5,
    /// Chunks.
    Chunks = 6,
    /// Chunks were dropped because the subscriber was too slow.
    Loss = 7,
    /// No further chunks follow.
    End = 8,
    /// Bytes for an e-link.
    Down = 9,
    /// Bytes for an e-link were refused; the connection continues.
    DownRefused = 10,
}

/// Maximum length of a message's body, in bytes: unlimited for chunks.
const fn longest(kind: Kind) -> usize {
    if matches!(kind, Kind::Chunks) { usize::MAX } else { LARGEST_CONTROL_BYTES }
}

frame!(MAGIC, longest);

/// Maximum number of ranges of a subscription.
pub const MOST_RANGES: usize = 64;
/// Maximum bytes that can be sent to an e-link at once.
pub const LARGEST_DOWN_BYTES: usize = 64 * 1024;

const HELLO_MAGIC: [u8; 8] = *b"RWCHUNKS";

/// First message of a subscriber.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`STREAM_VERSION`] of the sender.
    pub version: u16,
    /// Its name, for people; padded with zeros.
    pub name: [u8; NAME_BYTES],
}

impl Hello {
    /// Makes a hello in this version; a longer name is truncated.
    pub fn new(name: &str) -> Self {
        Self { version: STREAM_VERSION, name: padded_name(name) }
    }

    /// The name up to its first zero; bytes that are not UTF-8 are replaced.
    pub fn name(&self) -> String {
        unpadded_name(&self.name)
    }
}

/// Reason why a subscriber is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The versions differ; this is the server's.
    Version(u16),
    /// The server has its maximum number of subscribers.
    Full,
    /// Another member of the group uses another way of sharing.
    Share,
}

/// A range of e-links.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub first: ELink,
    /// The last, not before the first.
    pub last: ELink,
}

/// The handling of chunks for which the subscriber's queue has no room.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// The card waits, so that none is lost.
    BackPressure = 0,
    /// They are dropped and counted.
    Drop = 1,
}

/// The way of choosing the member of a group that gets a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Balance {
    /// In turn; a member without room is skipped.
    RoundRobin = 0,
    /// All chunks of an event go to the same member.
    ByEvent = 1,
}

/// The way in which a subscriber shares its chunks with others.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Share {
    /// With no other subscriber: it gets every chunk of its e-links.
    Alone,
    /// With the other members of this group: each chunk goes to one of them.
    Group(u16, Balance),
}

/// The requested e-links, and the way of delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscribe {
    /// At most [`MOST_RANGES`].
    pub ranges: Vec<Range>,
    /// The handling of chunks that exceed its queue.
    pub policy: Policy,
    /// The way of sharing.
    pub share: Share,
    /// Sampling: it gets one of this many chunks; 1 for all, more for a monitor. Not 0.
    pub one_in: u32,
}

/// The subscription is active.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Subscribed {
    /// Number of its e-links.
    pub elinks: u16,
}

/// The number of chunks dropped so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// Number of chunks since the connection began.
    pub chunks: u64,
    /// Number of their bytes.
    pub bytes: u64,
}

/// No further chunks follow; includes the account of the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Number of chunks for the subscriber.
    pub offered: u64,
    /// Number of chunks that were sent.
    pub sent: u64,
    /// Number of chunks that were dropped.
    pub dropped: u64,
}

/// Bytes for an e-link, sent as one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// The e-link.
    pub elink: ELink,
    /// At most [`LARGEST_DOWN_BYTES`].
    pub bytes: Vec<u8>,
}

/// Reason why bytes for an e-link are refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DownRefusal {
    /// The card has no down-link.
    NoDownLink = 1,
    /// The down-link has no room for them now.
    NoRoom = 2,
}

/// Bytes for an e-link were refused and dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DownRefused {
    /// The e-link.
    pub elink: ELink,
    /// The reason.
    pub why: DownRefusal,
}

/// A message other than chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "see its type and its kind")]
pub enum Message {
    Hello(Hello),
    Welcome,
    Refuse(RefuseReason),
    Subscribe(Subscribe),
    Subscribed(Subscribed),
    Loss(Loss),
    End(End),
    Down(Down),
    DownRefused(DownRefused),
}

impl Message {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::Subscribed(_) => Kind::Subscribed,
            Self::Loss(_) => Kind::Loss,
            Self::End(_) => Kind::End,
            Self::Down(_) => Kind::Down,
            Self::DownRefused(_) => Kind::DownRefused,
        }
    }

    /// Appends the message with its frame. Ranges and bytes beyond their maximum are dropped.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = out.len();
        out.extend_from_slice(&Frame { kind: self.kind(), body: 0 }.to_bytes());
        let start = out.len();
        self.encode_body(&mut Writer(out));
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Frame { kind: self.kind(), body }.to_bytes());
    }

    fn encode_body(&self, to: &mut Writer<'_>) {
        match self {
            Self::Hello(hello) => {
                to.bytes(&HELLO_MAGIC);
                to.u16(hello.version);
                to.bytes(&hello.name);
            }
            Self::Welcome => {}
            Self::Refuse(reason) => {
                let (number, version) = match *reason {
                    RefuseReason::Version(version) => (1, version),
                    RefuseReason::Full => (2, 0),
                    RefuseReason::Share => (3, 0),
                };
                to.u8(number);
                to.u16(version);
            }
            Self::Subscribe(subscribe) => subscribe.encode(to),
            Self::Subscribed(subscribed) => to.u16(subscribed.elinks),
            Self::Loss(Loss { chunks, bytes }) => [*chunks, *bytes].into_iter().for_each(|number| to.u64(number)),
            Self::End(End { offered, sent, dropped }) => {
                [*offered, *sent, *dropped].into_iter().for_each(|number| to.u64(number));
            }
            Self::Down(down) => {
                to.u16(down.elink.number());
                to.bytes(&down.bytes[..down.bytes.len().min(LARGEST_DOWN_BYTES)]);
            }
            Self::DownRefused(DownRefused { elink, why }) => {
                to.u16(elink.number());
                to.u8(*why as u8);
            }
        }
    }

    /// Decodes the body of a message of this kind.
    ///
    /// # Errors
    /// If the body is not one of this kind, or the kind is chunks.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Hello => {
                if from.bytes()? != HELLO_MAGIC {
                    return Err(FrameError::Magic);
                }
                Self::Hello(Hello { version: from.u16()?, name: from.bytes()? })
            }
            Kind::Welcome => Self::Welcome,
            Kind::Refuse => {
                let (number, version) = (from.u8()?, from.u16()?);
                Self::Refuse(match number {
                    1 => RefuseReason::Version(version),
                    2 if version == 0 => RefuseReason::Full,
                    3 if version == 0 => RefuseReason::Share,
                    _ => return Err(FrameError::Meaning),
                })
            }
            Kind::Subscribe => Self::Subscribe(Subscribe::decode(&mut from)?),
            Kind::Subscribed => Self::Subscribed(Subscribed { elinks: from.u16()? }),
            Kind::Loss => Self::Loss(Loss { chunks: from.u64()?, bytes: from.u64()? }),
            Kind::End => Self::End(End { offered: from.u64()?, sent: from.u64()?, dropped: from.u64()? }),
            Kind::Down => {
                let (elink, bytes) = (from.elink()?, from.0.to_vec());
                from.0 = &[];
                if bytes.len() > LARGEST_DOWN_BYTES {
                    return Err(FrameError::Long);
                }
                Self::Down(Down { elink, bytes })
            }
            Kind::DownRefused => {
                let (elink, why) = (from.elink()?, from.u8()?);
                let why = match why {
                    1 => DownRefusal::NoDownLink,
                    2 => DownRefusal::NoRoom,
                    _ => return Err(FrameError::Meaning),
                };
                Self::DownRefused(DownRefused { elink, why })
            }
            Kind::Chunks => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(message)
    }
}

impl Subscribe {
    fn encode(&self, to: &mut Writer<'_>) {
        let (share, group) = match self.share {
            Share::Alone => (0, 0),
            Share::Group(group, balance) => (1 + balance as u8, group),
        };
        let ranges = &self.ranges[..self.ranges.len().min(MOST_RANGES)];
        to.bytes(&[self.policy as u8, share]);
        to.u16(group);
        to.u32(self.one_in);
        for number in ranges.iter().flat_map(|range| [range.first, range.last]).map(ELink::number) {
            to.u16(number);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let [policy, share] = from.bytes()?;
        let (group, one_in) = (from.u16()?, from.u32()?);
        let policy = match policy {
            0 => Policy::BackPressure,
            1 => Policy::Drop,
            _ => return Err(FrameError::Meaning),
        };
        let share = match share {
            0 if group == 0 => Share::Alone,
            1 => Share::Group(group, Balance::RoundRobin),
            2 => Share::Group(group, Balance::ByEvent),
            _ => return Err(FrameError::Meaning),
        };
        let mut ranges = Vec::new();
        while !from.0.is_empty() {
            let range = Range { first: from.elink()?, last: from.elink()? };
            if range.last < range.first {
                return Err(FrameError::Meaning);
            }
            if ranges.len() == MOST_RANGES {
                return Err(FrameError::Long);
            }
            ranges.push(range);
        }
        if one_in == 0 { Err(FrameError::Meaning) } else { Ok(Self { ranges, policy, share, one_in }) }
    }
}

impl Reader<'_> {
    fn elink(&mut self) -> Result<ELink, FrameError> {
        let number = self.u16()?;
        if (number as usize) < ELINKS { Ok(ELink::new(number)) } else { Err(FrameError::Meaning) }
    }
}

/// Bytes of a chunk's head.
pub const CHUNK_HEAD_BYTES: usize = 8;
/// Bytes of the number of heads, which precedes them.
pub const PREFIX_BYTES: usize = 4;
/// Maximum number of chunks of a message.
pub const MOST_CHUNKS: usize = 1024;

/// The header of a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChunkHead {
    /// The e-link of the chunk.
    pub elink: ELink,
    /// The card's flags.
    pub status: Status,
    /// The sequence number of the block in which it ended, modulo [`SEQUENCES`].
    pub sequence: u8,
    /// Number of its bytes.
    pub length: u32,
}

impl ChunkHead {
    /// Encodes the head.
    pub const fn to_bytes(self) -> [u8; CHUNK_HEAD_BYTES] {
        let ([a, b], [c, d, e, f]) = (self.elink.number().to_le_bytes(), self.length.to_le_bytes());
        [a, b, self.status.0, self.sequence, c, d, e, f]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FrameError::Meaning`] for an invalid e-link, flag or sequence number.
    pub fn parse(bytes: &[u8; CHUNK_HEAD_BYTES]) -> Result<Self, FrameError> {
        let [a, b, status, sequence, c, d, e, f] = *bytes;
        let number = u16::from_le_bytes([a, b]);
        let elink = ELink::new(number);
        if elink.number() != number || status >= 2 * Status::TIMED_OUT.0 || sequence >= SEQUENCES {
            return Err(FrameError::Meaning);
        }
        Ok(Self { elink, status: Status(status), sequence, length: u32::from_le_bytes([c, d, e, f]) })
    }
}

/// Bytes that [`encode_heads`] writes for `chunks` chunks.
pub const fn heads_bytes(chunks: usize) -> usize {
    FRAME_BYTES + PREFIX_BYTES + chunks * CHUNK_HEAD_BYTES
}

/// Appends a message of chunks without their bytes, which must follow in the order of the heads.
///
/// # Panics
/// If there are more than [`MOST_CHUNKS`], or more than 4 GiB.
pub fn encode_heads(heads: impl ExactSizeIterator<Item = ChunkHead> + Clone, out: &mut Vec<u8>) {
    let count = heads.len();
    assert!(count <= MOST_CHUNKS, "a message has at most {MOST_CHUNKS} chunks");
    let data: u64 = heads.clone().map(|head| u64::from(head.length)).sum();
    let body = (PREFIX_BYTES + count * CHUNK_HEAD_BYTES) as u64 + data;
    let body = u32::try_from(body).expect("messages are cut long before 4 GiB");
    out.extend_from_slice(&Frame { kind: Kind::Chunks, body }.to_bytes());
    out.extend_from_slice(&(count as u32).to_le_bytes());
    heads.for_each(|head| out.extend_from_slice(&head.to_bytes()));
}

/// A checked view of the heads in the body of a message of chunks; their bytes may arrive later.
#[derive(Copy, Clone, Debug)]
pub struct ChunksView<'a> {
    heads: &'a [u8],
}

impl<'a> ChunksView<'a> {
    /// Number of bytes of the prefix and the heads, computed from the prefix.
    ///
    /// # Errors
    /// [`FrameError::Long`] if there are more chunks than allowed, or than the body has room for.
    pub fn table_bytes(prefix: [u8; PREFIX_BYTES], body: u32) -> Result<usize, FrameError> {
        let count = u32::from_le_bytes(prefix) as usize;
        let bytes = PREFIX_BYTES + count.min(MOST_CHUNKS) * CHUNK_HEAD_BYTES;
        if count > MOST_CHUNKS || bytes > body as usize { Err(FrameError::Long) } else { Ok(bytes) }
    }

    /// Checks prefix and heads, which `table` must contain completely; the body has `body` bytes.
    ///
    /// # Errors
    /// If a head is invalid, or the chunks are not as long as the body states.
    pub fn parse(table: &'a [u8], body: u32) -> Result<Self, FrameError> {
        let prefix = table.first_chunk().ok_or(FrameError::Short)?;
        let bytes = Self::table_bytes(*prefix, body)?;
        let heads = table.get(PREFIX_BYTES..bytes).ok_or(FrameError::Short)?;
        let mut total = bytes as u64;
        for head in heads.as_chunks().0 {
            total += u64::from(ChunkHead::parse(head)?.length);
        }
        match total.cmp(&u64::from(body)) {
            core::cmp::Ordering::Less => Err(FrameError::Long),
            core::cmp::Ordering::Greater => Err(FrameError::Short),
            core::cmp::Ordering::Equal => Ok(Self { heads }),
        }
    }

    /// The heads, in the order of the chunks' bytes.
    pub fn heads(&self) -> impl ExactSizeIterator<Item = ChunkHead> + use<'a> {
        let heads = self.heads.as_chunks().0.iter();
        heads.map(|head| ChunkHead::parse(head).expect("every head was checked when the view was made"))
    }
}

#[cfg(test)]
mod tests {
    //! Round trips of every message, and robustness against any bytes.

    use proptest::prelude::*;

    use super::*;
    use crate::felix::{ELink, SEQUENCES, Status};
    use crate::frame::FrameError;

    fn elink() -> impl Strategy<Value = ELink> {
        any::<u16>().prop_map(ELink::new)
    }

    fn range() -> impl Strategy<Value = Range> {
        (elink(), elink()).prop_map(|(a, b)| Range { first: a.min(b), last: a.max(b) })
    }

    fn subscribe() -> impl Strategy<Value = Subscribe> {
        let policy = prop_oneof![Just(Policy::BackPressure), Just(Policy::Drop)];
        let balance = prop_oneof![Just(Balance::RoundRobin), Just(Balance::ByEvent)];
        let share =
            prop_oneof![Just(Share::Alone), (any::<u16>(), balance).prop_map(|(group, by)| Share::Group(group, by))];
        (prop::collection::vec(range(), 0..=MOST_RANGES), policy, share, 1_u32..)
            .prop_map(|(ranges, policy, share, one_in)| Subscribe { ranges, policy, share, one_in })
    }

    fn message() -> impl Strategy<Value = Message> {
        let reason = prop_oneof![
            any::<u16>().prop_map(RefuseReason::Version),
            Just(RefuseReason::Full),
            Just(RefuseReason::Share)
        ];
        prop_oneof![
            ("[a-z]{0,40}", any::<u16>())
                .prop_map(|(name, version)| Message::Hello(Hello { version, ..Hello::new(&name) })),
            Just(Message::Welcome),
            reason.prop_map(Message::Refuse),
            subscribe().prop_map(Message::Subscribe),
            any::<u16>().prop_map(|elinks| Message::Subscribed(Subscribed { elinks })),
            any::<(u64, u64)>().prop_map(|(chunks, bytes)| Message::Loss(Loss { chunks, bytes })),
            any::<(u64, u64, u64)>().prop_map(|(offered, sent, dropped)| Message::End(End { offered, sent, dropped })),
            (elink(), prop::collection::vec(any::<u8>(), 0..300))
                .prop_map(|(elink, bytes)| Message::Down(Down { elink, bytes })),
            (elink(), prop_oneof![Just(DownRefusal::NoDownLink), Just(DownRefusal::NoRoom)])
                .prop_map(|(elink, why)| Message::DownRefused(DownRefused { elink, why })),
        ]
    }

    fn head() -> impl Strategy<Value = ChunkHead> {
        (elink(), 0_u8..32, 0..SEQUENCES, 0_u32..5000).prop_map(|(elink, status, sequence, length)| ChunkHead {
            elink,
            status: Status(status),
            sequence,
            length,
        })
    }

    fn split(bytes: &[u8]) -> (Frame, &[u8]) {
        let (head, body) = bytes.split_first_chunk().expect("a frame");
        (Frame::parse(head).expect("a frame"), body)
    }

    proptest! {
        #[test]
        fn every_message_comes_back(message in message()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let (frame, body) = split(&bytes);
            prop_assert_eq!((frame.kind, frame.body as usize), (message.kind(), body.len()));
            prop_assert_eq!(Message::decode(frame.kind, body), Ok(message));
            // A byte less is another message, and a byte more is an error.
            for cut in 0..body.len() {
                if let Ok(other) = Message::decode(frame.kind, &body[..cut]) {
                    prop_assert!(matches!(other, Message::Down(_) | Message::Subscribe(_)), "{:?}", other);
                }
            }
        }

        #[test]
        fn every_head_comes_back(heads in prop::collection::vec(head(), 0..50)) {
            let mut bytes = Vec::new();
            encode_heads(heads.iter().copied(), &mut bytes);
            prop_assert_eq!(bytes.len(), heads_bytes(heads.len()));
            let (frame, table) = split(&bytes);
            let data: u32 = heads.iter().map(|head| head.length).sum();
            prop_assert_eq!((frame.kind, frame.body), (Kind::Chunks, table.len() as u32 + data));
            let view = ChunksView::parse(table, frame.body).expect("it was encoded");
            prop_assert_eq!(view.heads().collect::<Vec<_>>(), heads.clone());
            prop_assert_eq!(ChunksView::parse(table, frame.body + 1).err(), Some(FrameError::Long));
            if data > 0 {
                prop_assert_eq!(ChunksView::parse(table, frame.body - 1).err(), Some(FrameError::Short));
            }
            for cut in 0..table.len() {
                prop_assert!(ChunksView::parse(&table[..cut], frame.body).is_err());
            }
        }

        #[test]
        fn anything_is_refused_or_means_the_same_again(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..12) {
            if let Some(head) = bytes.first_chunk() {
                let _ = Frame::parse(head);
                let _ = ChunkHead::parse(head).map(|chunk| assert_eq!(&chunk.to_bytes(), head));
            }
            let _ = ChunksView::parse(&bytes, bytes.len() as u32).map(|view| view.heads().count());
            let Some(kind) = Kind::from_u8(kind) else { return Ok(()) };
            if let Ok(message) = Message::decode(kind, &bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(&again[FRAME_BYTES..], &bytes[..]);
            }
        }
    }

    #[test]
    fn what_a_field_cannot_mean_is_refused() {
        let mut bytes = Vec::new();
        let range = Range { first: ELink::new(5), last: ELink::new(9) };
        let (policy, share) = (Policy::Drop, Share::Group(3, Balance::ByEvent));
        Message::Subscribe(Subscribe { ranges: vec![range], policy, share, one_in: 1 }).encode(&mut bytes);
        let body = &bytes[FRAME_BYTES..];
        for (place, value, error) in [
            (0, 2, FrameError::Meaning),
            (1, 3, FrameError::Meaning),
            (4, 0, FrameError::Meaning),
            (8, 10, FrameError::Meaning),
            (9, 8, FrameError::Meaning),
        ] {
            let mut wrong = body.to_vec();
            wrong[place] = value;
            assert_eq!(Message::decode(Kind::Subscribe, &wrong), Err(error), "{place}");
        }
        let many = [body, &[0; 4 * MOST_RANGES]].concat();
        assert_eq!(Message::decode(Kind::Subscribe, &many), Err(FrameError::Long));
        assert_eq!(Message::decode(Kind::DownRefused, &[5, 0, 3]), Err(FrameError::Meaning), "no such reason");
        assert_eq!(Message::decode(Kind::Hello, b"RWSOMETHING"), Err(FrameError::Magic));
        assert_eq!(Frame::parse(b"GET / HT"), Err(FrameError::Magic));
        assert_eq!(Frame::parse(b"RWF\x0B\0\0\0\0"), Err(FrameError::Meaning));
        assert_eq!(Frame::parse(b"RWF\x01\0\0\xFF\0"), Err(FrameError::Long));
        let many = (MOST_CHUNKS as u32 + 1).to_le_bytes();
        assert_eq!(ChunksView::table_bytes(many, u32::MAX), Err(FrameError::Long));
        assert_eq!(ChunksView::table_bytes(2_u32.to_le_bytes(), 19), Err(FrameError::Long));
    }
}
