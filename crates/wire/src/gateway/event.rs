//! Events on their way to a node: the heads, a checked view, and how bytes get into a transmit buffer.

use super::{FRAME_BYTES, Frame, Kind};
use crate::frame::{FrameError, Reader};
use ropewalk_kernels::{copy, short_copy};
use ropewalk_terms::{Attempt, EventKey, Incarnation};

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

/// Copies a piece to the front of a buffer and returns the rest of that; none where it does not fit.
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
