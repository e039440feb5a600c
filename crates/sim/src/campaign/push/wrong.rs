//! What can be wrong with a source's packet.

use crate::campaign::fault::FaultKind;

/// How a packet is spoilt on its way out of its source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Its end is missing: so many bytes are left at most.
    CutShort(usize),
    /// It says that it has one event more.
    Packing,
    /// It says that it belongs to another partition.
    Partition,
    /// This bit of its first event's number is wrong.
    Misnumbered(u8),
    /// Its first fragment names another event.
    Malformed,
}

impl Wrong {
    /// Its row in the table of faults.
    pub const fn kind(self) -> FaultKind {
        match self {
            Self::CutShort(_) => FaultKind::PacketCutShort,
            Self::Packing => FaultKind::PacketWrongPacking,
            Self::Partition => FaultKind::PacketWrongPartition,
            Self::Misnumbered(_) => FaultKind::PacketMisnumbered,
            Self::Malformed => FaultKind::PacketMalformed,
        }
    }

    /// Spoils the packet at the front of `bytes`, which has `length` bytes, and says how many it has afterwards.
    pub(super) fn spoil(self, bytes: &mut [u8], length: usize) -> usize {
        // The layout is `wire::mep`'s: first event, packing, length, partition, then the first fragment's event.
        let mut change = |range: core::ops::Range<usize>, with: [u8; 4]| {
            let room = bytes.get_mut(range).unwrap_or_default();
            room.iter_mut().zip(with).for_each(|(byte, with)| *byte = byte.wrapping_add(with));
        };
        match self {
            Self::CutShort(left) => return left.min(length.saturating_sub(1)),
            Self::Packing => change(4..5, [1; 4]),
            Self::Partition => change(8..9, [1; 4]),
            Self::Misnumbered(bit) => {
                let place = usize::from(bit / 8);
                bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            Self::Malformed => change(12..13, [1; 4]),
        }
        length
    }
}
