//! Where the fragments of an event lie in the packets of its set.

use ropewalk_memory::{Payload, Slice};

/// The banks of one source for an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct FragmentPlace {
    /// Whose.
    pub(super) source: u16,
    /// Where they begin in its packet.
    pub(super) start: u16,
    /// How many bytes they have.
    pub(super) length: u16,
}

/// A range of a packet.
#[derive(Copy, Clone, Debug)]
pub(super) struct Range<'a> {
    packet: &'a Payload,
    start: usize,
    length: usize,
}

impl<'a> Range<'a> {
    pub(super) const fn new(packet: &'a Payload, start: usize, length: usize) -> Self {
        Self { packet, start, length }
    }

    /// Whether all of it was taken.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the bytes off the front that lie in one piece: all of them, unless the packet itself lies in several.
    #[inline]
    pub(super) fn take_piece(&mut self) -> Option<&'a [u8]> {
        let (start, length) = (self.start, core::mem::take(&mut self.length));
        match self.packet.contiguous() {
            Some(bytes) => bytes.get(start..start + length).filter(|bytes| !bytes.is_empty()),
            None => self.take_of_several(start, length),
        }
    }

    #[cold]
    fn take_of_several(&mut self, start: usize, length: usize) -> Option<&'a [u8]> {
        let mut before = 0;
        let here = self.packet.pieces().find_map(|piece| {
            let part = piece.get(start - before..).filter(|part| !part.is_empty());
            before += if part.is_none() { piece.len() } else { 0 };
            part
        })?;
        let part = &here[..length.min(here.len())];
        (self.start, self.length) = (start + part.len(), length - part.len());
        (!part.is_empty()).then_some(part)
    }
}

/// Goes through ranges, piece by piece.
#[derive(Clone, Debug)]
pub(super) struct InPieces<'a, I> {
    ranges: I,
    rest: Option<Range<'a>>,
}

impl<'a, I> InPieces<'a, I> {
    pub(super) const fn new(ranges: I) -> Self {
        Self { ranges, rest: None }
    }
}

impl<'a, I: Iterator<Item = Bytes<'a>>> Iterator for InPieces<'a, I> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Some(rest) = &mut self.rest {
                let piece = rest.take_piece();
                if rest.length == 0 {
                    self.rest = None;
                }
                if piece.is_some() {
                    return piece;
                }
                self.rest = None;
            }
            match self.ranges.next()? {
                Bytes::Here(bytes) => return Some(bytes),
                Bytes::In(mut range) => {
                    let piece = range.take_piece();
                    if range.length > 0 {
                        self.rest = Some(range);
                    }
                    if piece.is_some() {
                        return piece;
                    }
                }
            }
        }
    }
}

/// Bytes that are to be sent: of a head, or in a packet.
#[derive(Copy, Clone, Debug)]
pub(super) enum Bytes<'a> {
    Here(&'a [u8]),
    In(Range<'a>),
}

/// Appends a range of a packet as slices, where it lies.
pub(super) fn append_range(packet: &Payload, start: usize, length: usize, out: &mut Vec<Slice>) {
    let (mut skip, mut left) = (start, length);
    for mut slice in packet.clone().into_slices() {
        let from = skip.min(slice.len());
        let length = left.min(slice.len() - from);
        (skip, left) = (skip - from, left - length);
        if length > 0 {
            slice.skip(from);
            slice.truncate(length);
            out.push(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_memory::{Pool, PoolConfig, Staging};

    proptest! {
        #[test]
        fn a_range_is_found_however_the_packet_lies(cuts in prop::collection::vec(1_usize..20, 1..6), a in 0_usize..40, b in 0_usize..40) {
            let bytes: Vec<u8> = (0..cuts.iter().sum::<usize>() as u8).collect();
            let mut staging = Staging::new(Pool::new(PoolConfig::heap("gather", 20, 8)).expect("memory"));
            let mut rest = &bytes[..];
            let mut packet = Payload::default();
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut);
                packet.push(staging.write(piece).expect("room"));
                rest = behind;
            }
            let (start, end) = (a.min(b).min(bytes.len()), a.max(b).min(bytes.len()));
            let ranges = [Bytes::In(Range::new(&packet, start, end - start)), Bytes::Here(&[7, 7])];
            let found: Vec<u8> = InPieces::new(ranges.into_iter()).flatten().copied().collect();
            prop_assert_eq!(found, [&bytes[start..end], &[7, 7]].concat());
            let mut slices = Vec::new();
            append_range(&packet, start, end - start, &mut slices);
            let sliced: Vec<u8> = slices.iter().flat_map(|slice| slice.iter()).copied().collect();
            prop_assert_eq!(&sliced, &bytes[start..end]);
        }
    }
}
