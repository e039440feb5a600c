//! Frames that come in the bodies of several datagrams.

use super::number::Field;
use super::specification::{End, Pieces, Place};
use crate::framing::Window;

/// What the header of a datagram says that carries a piece of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PieceHead {
    /// Which frame it belongs to.
    pub frame: u64,
    /// Where in it: bytes of other bodies before it, or how many other bodies (see [`Pieces::place`]).
    pub place: u64,
    /// The whole: bytes of all bodies or how many bodies; none where that is not known yet.
    pub whole: Option<u64>,
    /// Bytes of the header.
    pub header: usize,
    /// Places and the whole are counted in bytes, not in bodies.
    pub is_in_bytes: bool,
}

/// The header, ready to be read.
#[derive(Copy, Clone, Debug)]
pub(super) struct PieceFields {
    pub(super) specification: Pieces,
    pub(super) frame: Field,
    pub(super) place: Field,
    pub(super) end: Field,
}

impl PieceFields {
    pub(super) fn read(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        let header = self.specification.header as usize;
        let (place, end) = (self.place.read(datagram)?, self.end.read(datagram)?);
        let whole = match self.specification.end {
            End::Length(_) | End::Count(_) => Some(end),
            End::Last(_) if end != 0 => Some(place.saturating_add(1)),
            End::Last(_) => None,
        };
        let is_in_bytes = matches!(self.specification.place, Place::Offset(_));
        // With offsets the last body says where the whole ends.
        let whole = match self.specification.end {
            End::Last(_) if is_in_bytes => whole.map(|_| place.saturating_add((datagram.len() - header) as u64)),
            _ => whole,
        };
        (datagram.len() >= header).then_some(PieceHead {
            frame: self.frame.read(datagram)?,
            place,
            whole,
            header,
            is_in_bytes,
        })
    }
}
