//! Frames that come in the bodies of several datagrams.

use super::number::Field;
use super::specification::{End, Pieces, Place};
use crate::framing::{PieceHead, Window};

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
        let body = datagram.len().checked_sub(header)? as u64;
        let (place, end) = (self.place.read(datagram)?, self.end.read(datagram)?);
        let whole = match self.specification.end {
            End::Length(_) | End::Count(_) => Some(end),
            End::Last(_) if end != 0 => Some(place.saturating_add(1)),
            End::Last(_) => None,
        };
        let is_in_bytes = matches!(self.specification.place, Place::Offset(_));
        // With offsets the last body says where the whole ends.
        let whole = match self.specification.end {
            End::Last(_) if is_in_bytes => whole.map(|_| place.saturating_add(body)),
            _ => whole,
        };
        Some(PieceHead { frame: self.frame.read(datagram)?, place, whole, header, is_in_bytes })
    }
}
