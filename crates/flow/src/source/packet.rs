//! A board that gathers: the events of several triggers leave in one multi-event packet ([`ropewalk_wire::mep`]).

use super::frames::Frames;
use ropewalk_terms::SourceId;
use ropewalk_wire::mep::{
    BANK_HEADER_BYTES, Bank, FRAGMENT_HEADER_BYTES, LARGEST_MEP_BYTES, MEP_HEADER_BYTES, encode_bank, encode_mep,
};

/// The partition that the packets name.
const PARTITION: u32 = 1;

/// The packet that a board fills.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    source: SourceId,
    /// Events that it holds at most.
    packing: usize,
    /// Bytes that it has at most.
    most: usize,
    first: u64,
    /// The bank of each event, one behind the other, and where each ends.
    banks: Vec<u8>,
    ends: Vec<usize>,
}

impl Packet {
    /// An empty one, of at most `packing` events and `most` bytes.
    pub(super) fn new(source: SourceId, packing: u16, most: usize) -> Self {
        let (packing, most) = (packing.max(1).into(), most.min(LARGEST_MEP_BYTES));
        Self { source, packing, most, first: 0, banks: Vec::new(), ends: Vec::with_capacity(packing) }
    }

    /// How many bytes of data the bank of a fragment of so many bytes has: what it may have at most, if that is less.
    pub(super) fn data_bytes(&self, fragment_bytes: usize) -> usize {
        let most = self.most.saturating_sub(MEP_HEADER_BYTES) / 4 * 4;
        fragment_bytes.min(most).saturating_sub(FRAGMENT_HEADER_BYTES + BANK_HEADER_BYTES)
    }

    /// No event is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// It holds as many events as it may.
    pub(super) const fn is_full(&self) -> bool {
        self.ends.len() == self.packing
    }

    /// Whether an event with so much data would make it too long.
    pub(super) const fn is_too_short_for(&self, data_bytes: usize) -> bool {
        let events = self.ends.len() + 1;
        let bank = (BANK_HEADER_BYTES + data_bytes).next_multiple_of(4);
        MEP_HEADER_BYTES + events * FRAGMENT_HEADER_BYTES + self.banks.len() + bank > self.most
    }

    /// Puts the next event into it.
    pub(super) fn put(&mut self, number: u64, data: &[u8]) {
        if self.is_empty() {
            self.first = number;
        }
        let bank = Bank { kind: 1, version: 1, source: self.source.0 as i16, data };
        let encoded = encode_bank(&bank, &mut self.banks);
        debug_assert!(encoded.is_ok(), "a bank of {} bytes is refused", data.len());
        self.ends.push(self.banks.len());
    }

    /// Sends it: `frames` are replaced by it, and the next one begins.
    pub(super) fn send(&mut self, frames: &mut Frames) {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        let banks = starts.zip(&self.ends).map(|(start, &end)| &self.banks[start..end]);
        frames.put_events(self.ends.len() as u64, |bytes| {
            let encoded = encode_mep(self.first as u32, PARTITION, banks, bytes);
            debug_assert!(encoded.is_ok(), "a packet of {} events is refused", self.ends.len());
        });
        self.banks.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::mep::MepView;

    #[test]
    fn a_packet_holds_what_was_put_into_it_and_is_no_longer_than_it_may_be() {
        let mut packet = Packet::new(SourceId(7), 3, 100);
        let mut frames = Frames::default();
        assert_eq!((packet.data_bytes(20), packet.data_bytes(1000)), (8, 76));
        for event in 40..42 {
            assert!(!packet.is_full() && !packet.is_too_short_for(8));
            packet.put(event, &[event as u8; 8]);
        }
        // 12 of the packet, 20 of each event.
        assert!(packet.is_too_short_for(37) && !packet.is_too_short_for(36));
        packet.put(42, &[]);
        assert!(packet.is_full());
        packet.send(&mut frames);
        assert!(packet.is_empty());
        assert_eq!(frames.events(), 3);
        let view = MepView::parse(frames.bytes()).expect("a packet");
        let events: Vec<_> =
            view.fragments().map(|(event, bank)| (event, bank[BANK_HEADER_BYTES..].to_vec())).collect();
        assert_eq!(events, [(40, vec![40; 8]), (41, vec![41; 8]), (42, vec![])]);
        assert_eq!(view.header().first_event, 40);
    }
}
