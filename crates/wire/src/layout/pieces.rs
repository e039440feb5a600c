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

    /// Into how many bytes of body a frame's bodies are cut that are so long together, where `most` are wanted: more, where
    /// the header cannot count as many datagrams.
    pub(super) fn body_bytes(&self, bodies: usize, most: usize) -> usize {
        let index = matches!(self.specification.place, Place::Index(_)).then(|| self.place.largest().saturating_add(1));
        let count = matches!(self.specification.end, End::Count(_)).then(|| self.end.largest());
        let datagrams = index.into_iter().chain(count).min().map_or(usize::MAX, |most| most.min(1 << 32) as usize);
        most.max(bodies.div_ceil(datagrams.max(1))).max(1)
    }

    /// Makes a header say that its body is the `index`-th of `count`, of `each` bytes (the last one of what is left of
    /// `bodies`), of the frame with this number.
    pub(super) fn write(
        &self,
        number: u64,
        index: usize,
        count: usize,
        (each, bodies): (usize, usize),
        out: &mut [u8],
    ) {
        let place = match self.specification.place {
            Place::Offset(_) => index * each,
            Place::Index(_) => index,
        };
        let end = match self.specification.end {
            End::Length(_) => bodies,
            End::Count(_) => count,
            End::Last(_) => usize::from(index + 1 == count),
        };
        for (field, value) in [(&self.frame, number), (&self.place, place as u64), (&self.end, end as u64)] {
            field.write(value, out);
        }
    }
}
