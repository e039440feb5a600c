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

/// The bytes of a range of a packet: one piece, unless the packet itself lies in several.
#[inline]
pub(super) fn range_of(packet: &Payload, start: usize, length: usize) -> impl Iterator<Item = &[u8]> {
    let whole = packet.contiguous().and_then(|bytes| bytes.get(start..start + length));
    let pieces = whole.is_none().then(|| range_of_pieces(packet, start, length));
    whole.into_iter().chain(pieces.into_iter().flatten())
}

fn range_of_pieces(packet: &Payload, start: usize, length: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skip, mut left) = (start, length);
    packet.pieces().filter_map(move |piece| {
        let from = skip.min(piece.len());
        let part = &piece[from..][..left.min(piece.len() - from)];
        (skip, left) = (skip - from, left - part.len());
        (!part.is_empty()).then_some(part)
    })
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
            let found: Vec<u8> = range_of(&packet, start, end - start).flatten().copied().collect();
            prop_assert_eq!(&found, &bytes[start..end]);
            let mut slices = Vec::new();
            append_range(&packet, start, end - start, &mut slices);
            prop_assert_eq!(slices.iter().flat_map(|slice| slice.iter()).copied().collect::<Vec<_>>(), found);
        }
    }
}
