//! The messages of a gateway: their directions, fields and bytes. The whole push protocol.
//!
//! ```text
//!   node -> gateway     Credit      incarnation, room in events; repeated, so it is a heartbeat as well
//!                       Decisions   a count, a bitmap, and the decisions themselves, some of them repeated
//!   gateway -> node     Push        events, or parts of them, each with its sequence number
//!                       Progress    the sequence numbers in use, when nothing is pushed
//!   gateway -> trigger  Throttle    whether triggers may be issued; absolute, repeated
//!   gateway -> clients  Stream      decisions in the order of events
//!
//!   frame    "RG" | version (u8) | kind (u8) | body length (u32)        8 bytes, little-endian
//!   Push     frame | gateway (u16) | pieces (u16) | 0 (u32) | incarnation (u64) | floor (u64) | pieces
//!   piece    sequence (u64) | key (u64) | flow (u8) | flags (u8) | attempt (u16) | total (u32) | offset (u32) | length (u32)
//!            | that many bytes of the event
//!   event    raw banks, in the order of the configured sources
//! ```
//! A message is the same in a datagram and in a stream (TCP): its frame states its length. Datagrams may be lost,
//! duplicated and reordered:
//! - A gateway gives each event that it pushes to a node a *sequence number*, counting up from 0. Parts of one event
//!   have the same number, and each states its offset: they need no order.
//! - A node reports its decisions in three ways: every sequence number below `cumulative`; later ones in a bitmap; and
//!   the decisions themselves. Each message repeats the latest earlier decisions, so a lost message loses no credit,
//!   and rarely a decision.
//! - A node detects a lost push by the numbers, and reports it as a decision ([`Verdict::NotReceived`]).
//! - *Floor*: decisions for sequence numbers below it are no longer expected. The node drops these events and confirms
//!   it: it answers progress with decisions, with or without entries, because events that it may still hold count
//!   against its credit.
//! - A node or gateway that restarts has a larger incarnation; messages from or to an earlier one are ignored.
//! - If a node does not answer, its event may go to another one, with the next *attempt*.

#[cfg(test)]
mod tests;

use crate::frame::{FrameError, Reader, Writer, frame, kinds};
use ropewalk_kernels::{copy, short_copy};
use ropewalk_terms::{Attempt, EventKey, Incarnation};

/// The version of these messages. Messages of another version are refused.
pub const GATEWAY_VERSION: u8 = 1;
/// Maximum length of a body, in bytes: the capacity of a datagram.
pub const LARGEST_BODY_BYTES: usize = 0xFFFF;

const MAGIC: [u8; 3] = [b'R', b'G', GATEWAY_VERSION];

kinds! {
    /// Node to gateway: its incarnation, and its room for events.
    Credit = 1,
    /// Gateway to node: events.
    Push = 2,
    /// Gateway to node: the sequence numbers in use.
    Progress = 3,
    /// Node to gateway: its decisions.
    Decisions = 4,
    /// Gateway to any subscribed client: decisions in the order of events.
    Stream = 5,
    /// Gateway to trigger: whether triggers may be issued.
    Throttle = 6,
}

/// The longest body of a message, in bytes.
const fn longest(_: Kind) -> usize {
    LARGEST_BODY_BYTES
}

// Messages of another version have another magic number.
frame!(MAGIC, longest);

impl Frame {
    /// Splits a message off the front of a datagram, or of the received part of a stream. Returns its kind, its body,
    /// and the rest.
    ///
    /// # Errors
    /// As [`Frame::parse`], and [`FrameError::Short`] if the message is incomplete.
    pub fn split(bytes: &[u8]) -> Result<(Kind, &[u8], &[u8]), FrameError> {
        let (head, rest) = bytes.split_first_chunk().ok_or(FrameError::Short)?;
        let frame = Self::parse(head)?;
        let (body, rest) = rest.split_at_checked(frame.body as usize).ok_or(FrameError::Short)?;
        Ok((frame.kind, body, rest))
    }
}

/// Bytes before the pieces of a push, including the frame's.
pub const PUSH_HEAD_BYTES: usize = FRAME_BYTES + 24;
/// Bytes before the bytes of a piece.
pub const PIECE_HEAD_BYTES: usize = 32;

/// Properties of an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventFlags(pub u8);

impl EventFlags {
    /// Fragments of some sources are missing.
    pub const INCOMPLETE: Self = Self(1);
    /// The event was sent to this or another node before.
    pub const SENT_AGAIN: Self = Self(2);

    /// All flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The beginning of a push.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PushHead {
    /// The gateway, or one of its input queues.
    pub gateway: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Number of pieces that follow.
    pub pieces: u16,
    /// Decisions for sequence numbers below this one are no longer expected.
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

/// The beginning of an event, or of a part of one. Accepted events are stored behind the same head.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PieceHead {
    /// The number under which the event was pushed to this node.
    pub sequence: u64,
    /// The event.
    pub key: EventKey,
    /// The flow.
    pub flow: u8,
    /// Properties of the event.
    pub flags: EventFlags,
    /// Number of pushes of the event, including this one.
    pub attempt: Attempt,
    /// Bytes of the whole event.
    pub total: u32,
    /// Offset of this piece in the event.
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

    /// Decodes the head.
    ///
    /// # Errors
    /// [`FrameError::Meaning`] if its numbers contradict each other.
    pub fn from_bytes(bytes: &[u8; PIECE_HEAD_BYTES]) -> Result<Self, FrameError> {
        Self::read(&mut Reader(bytes))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (sequence, key) = (from.u64()?, from.key()?);
        let (flow, flags, attempt) = (from.u8()?, EventFlags(from.u8()?), Attempt(from.u16()?));
        let (total, offset, length) = (from.u32()?, from.u32()?, from.u32()?);
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= total);
        // An empty event has an empty piece; a part of another event is not empty.
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
    /// If a head is invalid, or the pieces do not fill the body.
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

/// Iterator over the pieces of a push.
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

/// The way in which bytes are copied into a transmit buffer (paper 1, Table III).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Copying {
    /// By the library's copy function.
    Library,
    /// By a copy optimised for fragments of 32 to 100 bytes.
    #[default]
    Short,
}

/// Copies a piece to the front of a buffer and returns the rest of the buffer; `None` if it does not fit.
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

/// Maximum number of decisions of a message.
pub const MOST_DECISIONS: usize = 64;
/// 64-bit words of the bitmap.
pub const BITMAP_WORDS: usize = 4;
/// Maximum number of sequence numbers from the oldest without a decision to the latest one, both included.
pub const MOST_OUTSTANDING: u64 = 64 * BITMAP_WORDS as u64;

/// A list of decisions, without allocation.
type List<T> = arrayvec::ArrayVec<T, MOST_DECISIONS>;

/// Reports that a node is present and has room.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Credit {
    /// The node.
    pub node: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Maximum number of events without a decision at a time: at most [`MOST_OUTSTANDING`] count.
    pub window: u16,
}

/// A node's verdict on an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Verdict {
    /// Not wanted.
    #[default]
    Reject = 0,
    /// Wanted.
    Accept = 1,
    /// The event did not arrive completely: it must be sent again.
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
    /// The trigger word: the reason.
    pub word: u32,
}

/// The decisions of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// The node.
    pub node: u16,
    /// The gateway of the events.
    pub gateway: u16,
    /// The node's incarnation.
    pub incarnation: Incarnation,
    /// The gateway's incarnation.
    pub gateway_incarnation: Incarnation,
    /// Every event with a sequence number below this one was decided, or its decision is no longer expected.
    pub cumulative: u64,
    /// Bit *n*, counted through all words, states the same for `cumulative + n`.
    pub bitmap: [u64; BITMAP_WORDS],
    /// Decisions: new ones and, as far as there is room, the latest ones of earlier messages.
    pub entries: List<Decision>,
}

/// A decision to be published.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamEntry {
    /// The event.
    pub key: EventKey,
    /// Whether it is accepted.
    pub accept: bool,
    /// The trigger word.
    pub word: u32,
    /// Whether no node decided in time, so that this is the configured default.
    pub by_default: bool,
}

/// Decisions in the order of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// The gateway.
    pub gateway: u16,
    /// The flow.
    pub flow: u8,
    /// The gateway's incarnation.
    pub incarnation: Incarnation,
    /// Number of earlier decisions of this flow: a reader can detect missed ones.
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
    /// Whether `cumulative` and the bitmap mark this one as decided.
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

/// Reads `count` entries.
fn list<T>(count: u32, mut read: impl FnMut() -> Result<T, FrameError>) -> Result<List<T>, FrameError> {
    let mut entries = List::new();
    for _ in 0..count {
        entries.try_push(read()?).map_err(|_| FrameError::Long)?;
    }
    Ok(entries)
}

/// The sequence numbers that a gateway gave to events of this node.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// The gateway.
    pub gateway: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The number of the next event.
    pub next: u64,
    /// Decisions for numbers below this one are no longer expected.
    pub floor: u64,
}

/// Whether triggers may be issued: the states of trigger throttling systems.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ThrottleState {
    /// Triggers may be issued.
    #[default]
    Ready = 0,
    /// Triggers may be issued, but a lower rate would be better.
    Warning = 1,
    /// No triggers: there is only room for events in flight.
    Busy = 2,
    /// No triggers: events do not follow one another as they should; a resynchronisation is needed.
    OutOfSync = 3,
    /// No triggers: an error.
    Error = 4,
}

impl ThrottleState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Warning, Self::Busy, Self::OutOfSync, Self::Error];

    /// Whether triggers may be issued.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Warning)
    }

    /// Its stable name, used by users.
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

/// State of a gateway. Absolute and repeated: a lost message does no harm.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Throttle {
    /// The gateway.
    pub gateway: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Counts these messages, from 1: older ones are ignored.
    pub sequence: u64,
    /// The state.
    pub state: ThrottleState,
}

/// A message other than a push.
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

    /// Decodes the body of a message of this kind.
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
