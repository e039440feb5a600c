//! Every message of a gateway: its direction, its fields, its bytes. The push protocol in one place.
//!
//! ```text
//!   node -> gateway     Credit      which life, room for so many events; repeated, so it is a heartbeat as well
//!                       Decisions   what was decided: a count, a bitmap, and the decisions themselves, some of them again
//!   gateway -> node     Push        events, or parts of them, each with its sequence number
//!                       Progress    which sequence numbers there are, when nothing is pushed
//!   gateway -> trigger  Throttle    may triggers come? absolute, repeated
//!   gateway -> clients  Stream      decisions in the order of events
//!
//!   frame    "RG" | version (u8) | kind (u8) | body length (u32)        8 bytes, little-endian
//!   Push     frame | gateway (u16) | pieces (u16) | 0 (u32) | incarnation (u64) | floor (u64) | pieces
//!   piece    sequence (u64) | key (u64) | flow (u8) | flags (u8) | attempt (u16) | total (u32) | offset (u32) | length (u32)
//!            | that many bytes of the event
//!   event    raw banks, in the order of the configured sources
//! ```
//! A message is the same in a datagram and in a stream (TCP): its frame says where it ends. Datagrams may be lost, come
//! twice and in any order:
//! - A gateway gives each event that it pushes to a node a *sequence number*, from 0, one more for each. Parts of one event
//!   have the same one, and each says where it lies: they need no order.
//! - A node reports its decisions in three ways: every sequence number below `cumulative`; those behind it in a bitmap;
//!   and the decisions themselves, of which each message repeats the latest earlier ones. So a lost message loses no
//!   credit, and seldom a decision.
//! - A node sees by the numbers that a push was lost, and says so as a decision ([`Verdict::NotReceived`]).
//! - *Floor*: no decision is awaited any more for sequence numbers below it. The node forgets them, and says so: it answers
//!   progress by decisions, with entries or without, since what it may still have counts against its credit.
//! - A node or gateway that restarts has a larger incarnation; messages from an earlier one, or for it, are ignored.
//! - If a node does not answer, its event may go to another one, with the next *attempt*.

#[cfg(test)]
mod tests;

use crate::frame::{FrameError, Reader, Writer, frame, kinds};
use ropewalk_kernels::{copy, short_copy};
use ropewalk_terms::{Attempt, EventKey, Incarnation};

/// The version of these messages. One of another version is refused.
pub const GATEWAY_VERSION: u8 = 1;
/// The longest body, in bytes: as much as a datagram carries.
pub const LARGEST_BODY_BYTES: usize = 0xFFFF;

const MAGIC: [u8; 3] = [b'R', b'G', GATEWAY_VERSION];

kinds! {
    /// Node to gateway: which life, and room for so many events.
    Credit = 1,
    /// Gateway to node: events.
    Push = 2,
    /// Gateway to node: which sequence numbers there are.
    Progress = 3,
    /// Node to gateway: what was decided.
    Decisions = 4,
    /// Gateway to any client that wants them: decisions in the order of events.
    Stream = 5,
    /// Gateway to trigger: may triggers come?
    Throttle = 6,
}

/// The longest body of a message, in bytes.
const fn longest(_: Kind) -> usize {
    LARGEST_BODY_BYTES
}

// Messages of another version have another magic number.
frame!(MAGIC, longest);

impl Frame {
    /// Splits a message off the front of a datagram, or of the received part of a stream: its kind, its body, the rest.
    ///
    /// # Errors
    /// As [`Frame::parse`], and [`FrameError::Short`] where the message is not whole.
    pub fn split(bytes: &[u8]) -> Result<(Kind, &[u8], &[u8]), FrameError> {
        let (head, rest) = bytes.split_first_chunk().ok_or(FrameError::Short)?;
        let frame = Self::parse(head)?;
        let (body, rest) = rest.split_at_checked(frame.body as usize).ok_or(FrameError::Short)?;
        Ok((frame.kind, body, rest))
    }
}

/// Bytes before the pieces of a push, the frame's included.
pub const PUSH_HEAD_BYTES: usize = FRAME_BYTES + 24;
/// Bytes before the bytes of a piece.
pub const PIECE_HEAD_BYTES: usize = 32;

/// What is to be known of an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventFlags(pub u8);

impl EventFlags {
    /// Fragments of some sources are missing.
    pub const INCOMPLETE: Self = Self(1);
    /// Another node, or this one, was sent the event before.
    pub const SENT_AGAIN: Self = Self(2);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a push begins with.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PushHead {
    /// Which gateway, or which input queue of one.
    pub gateway: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// How many pieces follow.
    pub pieces: u16,
    /// No decision is awaited for sequence numbers below this one.
    pub floor: u64,
}

impl PushHead {
    /// Encodes frame and head; `pieces_bytes` is the length of all pieces with their heads.
    pub fn to_bytes(self, pieces_bytes: usize) -> [u8; PUSH_HEAD_BYTES] {
        let mut bytes = [0; PUSH_HEAD_BYTES];
        let body = (PUSH_HEAD_BYTES - FRAME_BYTES + pieces_bytes) as u32;
        bytes[..FRAME_BYTES].copy_from_slice(&Frame { kind: Kind::Push, body }.to_bytes());
        bytes[8..10].copy_from_slice(&self.gateway.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.pieces.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.floor.to_le_bytes());
        bytes
    }
}

/// What an event, or a part of one, begins with. Accepted events are stored behind the same head.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PieceHead {
    /// The number under which the event was pushed to this node.
    pub sequence: u64,
    /// Which event.
    pub key: EventKey,
    /// Which flow.
    pub flow: u8,
    /// What is to be known of it.
    pub flags: EventFlags,
    /// How often the event was pushed, this time included.
    pub attempt: Attempt,
    /// Bytes of the whole event.
    pub total: u32,
    /// Where this piece begins in it.
    pub offset: u32,
    /// Bytes of this piece.
    pub length: u32,
}

impl PieceHead {
    /// Encodes the head.
    pub fn to_bytes(self) -> [u8; PIECE_HEAD_BYTES] {
        let mut bytes = [0; PIECE_HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_bits().to_le_bytes());
        bytes[16] = self.flow;
        bytes[17] = self.flags.0;
        bytes[18..20].copy_from_slice(&self.attempt.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.total.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.offset.to_le_bytes());
        bytes[28..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`FrameError::Meaning`] where its numbers contradict each other.
    pub fn from_bytes(bytes: &[u8; PIECE_HEAD_BYTES]) -> Result<Self, FrameError> {
        Self::read(&mut Reader(bytes))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (sequence, key) = (from.u64()?, from.key()?);
        let (flow, flags, attempt) = (from.u8()?, EventFlags(from.u8()?), Attempt(from.u16()?));
        let (total, offset, length) = (from.u32()?, from.u32()?, from.u32()?);
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= total);
        // An empty event has an empty piece; a part of another one has something.
        if !is_inside || (length == 0 && total > 0) || flags.0 > 3 {
            return Err(FrameError::Meaning);
        }
        Ok(Self { sequence, key, flow, flags, attempt, total, offset, length })
    }
}

/// A checked view of a push.
#[derive(Copy, Clone, Debug)]
pub struct PushView<'a> {
    head: PushHead,
    pieces: &'a [u8],
}

impl<'a> PushView<'a> {
    /// Checks the body of a push, every piece's head included.
    ///
    /// # Errors
    /// Where a head has no meaning, or the pieces do not fill the body.
    pub fn parse(body: &'a [u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let (gateway, pieces, _) = (from.u16()?, from.u16()?, from.u32()?);
        let (incarnation, floor) = (Incarnation(from.u64()?), from.u64()?);
        let view = Self { head: PushHead { gateway, incarnation, pieces, floor }, pieces: from.0 };
        for _ in 0..pieces {
            let head = PieceHead::read(&mut from)?;
            from.0 = from.0.get(head.length as usize..).ok_or(FrameError::Short)?;
        }
        from.end()?;
        Ok(view)
    }

    /// The head.
    pub const fn head(&self) -> PushHead {
        self.head
    }

    /// The pieces in their order.
    pub const fn pieces(&self) -> Pieces<'a> {
        Pieces { rest: self.pieces }
    }
}

/// Goes through the pieces of a push.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (PieceHead, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut from = Reader(self.rest);
        let head = PieceHead::read(&mut from).ok()?;
        let (bytes, rest) = from.0.split_at_checked(head.length as usize)?;
        self.rest = rest;
        Some((head, bytes))
    }
}

/// How bytes get into a transmit buffer (paper 1, Table III).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Copying {
    /// As the library does it.
    Library,
    /// As is best for fragments of 32 to 100 bytes.
    #[default]
    Short,
}

/// Copies a piece to the front of a buffer and returns the rest of that; `None` if it does not fit.
#[inline]
pub fn copy_piece<'a>(to: &'a mut [u8], from: &[u8], copying: Copying) -> Option<&'a mut [u8]> {
    if from.len() > to.len() {
        return None;
    }
    match copying {
        Copying::Short => short_copy(to, from),
        Copying::Library => copy(&mut to[..from.len()], from),
    }
    Some(&mut to[from.len()..])
}

/// The most decisions of a message.
pub const MOST_DECISIONS: usize = 64;
/// 64-bit words of the bitmap.
pub const BITMAP_WORDS: usize = 4;
/// The most sequence numbers between the oldest without decision and the latest one, both included.
pub const MOST_OUTSTANDING: u64 = 64 * BITMAP_WORDS as u64;

/// A list of decisions: no allocation.
type List<T> = arrayvec::ArrayVec<T, MOST_DECISIONS>;

/// A node is there and has room.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Credit {
    /// Which node.
    pub node: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// How many events it may have without a decision at a time: at most [`MOST_OUTSTANDING`] count.
    pub window: u16,
}

/// What a node says of an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Verdict {
    /// Not wanted.
    #[default]
    Reject = 0,
    /// Wanted.
    Accept = 1,
    /// The event did not arrive, or not whole: it must be sent again.
    NotReceived = 2,
}

impl Verdict {
    const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Reject),
            1 => Some(Self::Accept),
            2 => Some(Self::NotReceived),
            _ => None,
        }
    }
}

/// One decision.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Decision {
    /// The number under which the event was pushed.
    pub sequence: u64,
    /// The node's verdict on it.
    pub verdict: Verdict,
    /// The trigger word: why.
    pub word: u32,
}

/// What a node decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// Which node.
    pub node: u16,
    /// Which gateway's events.
    pub gateway: u16,
    /// Which life of the node.
    pub incarnation: Incarnation,
    /// Which life of the gateway.
    pub gateway_incarnation: Incarnation,
    /// Every event with a sequence number below this one was decided, or is not awaited.
    pub cumulative: u64,
    /// And bit *n* of these, of all words in their order, says it of `cumulative + n`.
    pub bitmap: [u64; BITMAP_WORDS],
    /// Decisions: new ones and, as far as there is room, the latest ones of earlier messages.
    pub entries: List<Decision>,
}

/// A decision on its way out.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamEntry {
    /// Which event.
    pub key: EventKey,
    /// Whether it is wanted.
    pub accept: bool,
    /// The trigger word.
    pub word: u32,
    /// No node decided in time: this is what was configured for that.
    pub by_default: bool,
}

/// Decisions in the order of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// Which gateway.
    pub gateway: u16,
    /// Which flow.
    pub flow: u8,
    /// Which life of the gateway.
    pub incarnation: Incarnation,
    /// How many decisions of this flow went before these: a reader sees what it missed.
    pub before: u64,
    /// The decisions.
    pub entries: List<StreamEntry>,
}

impl Credit {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.node);
        to.u16(self.window);
        to.u32(0);
        to.u64(self.incarnation.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (node, window, _) = (from.u16()?, from.u16()?, from.u32()?);
        Ok(Self { node, incarnation: Incarnation(from.u64()?), window })
    }
}

impl Decisions {
    /// Whether `cumulative` and the bitmap say that this one is decided.
    pub fn covers(&self, sequence: u64) -> bool {
        let Some(bit) = sequence.checked_sub(self.cumulative) else { return true };
        bit < MOST_OUTSTANDING && self.bitmap[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.node);
        to.u16(self.gateway);
        to.u32(self.entries.len() as u32);
        to.u64(self.incarnation.0);
        to.u64(self.gateway_incarnation.0);
        to.u64(self.cumulative);
        self.bitmap.iter().for_each(|word| to.u64(*word));
        for entry in &self.entries {
            to.u64(entry.sequence);
            to.u32(entry.word);
            to.u32(entry.verdict as u32);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (node, gateway, count) = (from.u16()?, from.u16()?, from.u32()?);
        let (incarnation, gateway_incarnation) = (Incarnation(from.u64()?), Incarnation(from.u64()?));
        let cumulative = from.u64()?;
        let mut bitmap = [0; BITMAP_WORDS];
        for word in &mut bitmap {
            *word = from.u64()?;
        }
        let entries = list(count, || {
            let (sequence, word, verdict) = (from.u64()?, from.u32()?, from.u32()?);
            let verdict = u8::try_from(verdict).ok().and_then(Verdict::from_u8).ok_or(FrameError::Meaning)?;
            Ok(Decision { sequence, verdict, word })
        })?;
        Ok(Self { node, gateway, incarnation, gateway_incarnation, cumulative, bitmap, entries })
    }
}

impl Stream {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u8(self.flow);
        to.u8(self.entries.len() as u8);
        to.u32(0);
        to.u64(self.incarnation.0);
        to.u64(self.before);
        for entry in &self.entries {
            to.key(entry.key);
            to.u32(entry.word);
            to.u32(u32::from(entry.accept) | u32::from(entry.by_default) << 1);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, flow, count, _) = (from.u16()?, from.u8()?, from.u8()?, from.u32()?);
        let (incarnation, before) = (Incarnation(from.u64()?), from.u64()?);
        let entries = list(u32::from(count), || {
            let (key, word, flags) = (from.key()?, from.u32()?, from.u32()?);
            let entry = StreamEntry { key, accept: flags & 1 == 1, word, by_default: flags & 2 == 2 };
            if flags > 3 { Err(FrameError::Meaning) } else { Ok(entry) }
        })?;
        Ok(Self { gateway, flow, incarnation, before, entries })
    }
}

/// Reads so many entries.
fn list<T>(count: u32, mut read: impl FnMut() -> Result<T, FrameError>) -> Result<List<T>, FrameError> {
    let mut entries = List::new();
    for _ in 0..count {
        entries.try_push(read()?).map_err(|_| FrameError::Long)?;
    }
    Ok(entries)
}

/// Which sequence numbers a gateway gave to events of this node.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// Which gateway.
    pub gateway: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The number that the next event will have.
    pub next: u64,
    /// No decision is awaited for numbers below this one.
    pub floor: u64,
}

/// May triggers come? The states of trigger throttling systems.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ThrottleState {
    /// Yes.
    #[default]
    Ready = 0,
    /// Yes, but slower would be better.
    Warning = 1,
    /// No: there is only room for what is on its way.
    Busy = 2,
    /// No: events do not follow one another as they should; a resynchronisation is needed.
    OutOfSync = 3,
    /// No: something is broken.
    Error = 4,
}

impl ThrottleState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Warning, Self::Busy, Self::OutOfSync, Self::Error];

    /// Whether triggers may come.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Warning)
    }

    /// The name that is promised to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Warning => "warning",
            Self::Busy => "busy",
            Self::OutOfSync => "out_of_sync",
            Self::Error => "error",
        }
    }
}

/// How a gateway is. Absolute and repeated: one that is lost costs nothing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Throttle {
    /// Which gateway.
    pub gateway: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Counts these messages, from 1: an older one is ignored.
    pub sequence: u64,
    /// The state.
    pub state: ThrottleState,
}

/// A message that is not events.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "see its type and its kind")]
pub enum Message {
    Credit(Credit),
    Progress(Progress),
    Decisions(Decisions),
    Stream(Stream),
    Throttle(Throttle),
}

impl Message {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Credit(_) => Kind::Credit,
            Self::Progress(_) => Kind::Progress,
            Self::Decisions(_) => Kind::Decisions,
            Self::Stream(_) => Kind::Stream,
            Self::Throttle(_) => Kind::Throttle,
        }
    }

    /// Appends the message with its frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = out.len();
        out.extend_from_slice(&Frame { kind: self.kind(), body: 0 }.to_bytes());
        let start = out.len();
        let to = &mut Writer(out);
        match self {
            Self::Credit(credit) => credit.encode(to),
            Self::Progress(progress) => progress.encode(to),
            Self::Decisions(decisions) => decisions.encode(to),
            Self::Stream(stream) => stream.encode(to),
            Self::Throttle(throttle) => throttle.encode(to),
        }
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Frame { kind: self.kind(), body }.to_bytes());
    }

    /// Reads the body of a message of this kind.
    ///
    /// # Errors
    /// If the body is not one of this kind; a push is not a message.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Credit => Self::Credit(Credit::decode(&mut from)?),
            Kind::Progress => Self::Progress(Progress::decode(&mut from)?),
            Kind::Decisions => Self::Decisions(Decisions::decode(&mut from)?),
            Kind::Stream => Self::Stream(Stream::decode(&mut from)?),
            Kind::Throttle => Self::Throttle(Throttle::decode(&mut from)?),
            Kind::Push => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(message)
    }
}

impl Progress {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u16(0);
        to.u32(0);
        [self.incarnation.0, self.next, self.floor].into_iter().for_each(|number| to.u64(number));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, _, _) = (from.u16()?, from.u16()?, from.u32()?);
        let (incarnation, next, floor) = (Incarnation(from.u64()?), from.u64()?, from.u64()?);
        if floor > next { Err(FrameError::Meaning) } else { Ok(Self { gateway, incarnation, next, floor }) }
    }
}

impl Throttle {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u16(0);
        to.u32(self.state as u32);
        to.u64(self.incarnation.0);
        to.u64(self.sequence);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, _, state) = (from.u16()?, from.u16()?, from.u32()?);
        let state = ThrottleState::ALL.get(state as usize).copied().ok_or(FrameError::Meaning)?;
        Ok(Self { gateway, incarnation: Incarnation(from.u64()?), sequence: from.u64()?, state })
    }
}
