//! Where a chunk says to which event it belongs.

use ropewalk_memory::Payload;

/// The place of the event's number in a chunk, which is whatever the front end's designers made it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct EventRule {
    /// Bytes before the field.
    pub offset: u16,
    /// Bytes of the field, 1 to 8.
    pub bytes: u8,
    /// Whether its first byte is the most significant one.
    pub is_big_endian: bool,
    /// Which bits of the field are the number: neighbours. They are moved down.
    pub mask: u64,
}

impl EventRule {
    /// A field of 32 bits, little-endian, at the beginning.
    pub const USUAL: Self = Self { offset: 0, bytes: 4, is_big_endian: false, mask: 0xffff_ffff };

    /// How many bits the number has; none where the field has no such size, or the mask has gaps or bits beyond it.
    pub const fn bits(self) -> Option<u8> {
        if self.bytes == 0 || self.bytes > 8 || self.mask == 0 {
            return None;
        }
        let moved = self.mask >> self.mask.trailing_zeros();
        let fits = 64 - self.mask.leading_zeros() <= 8 * self.bytes as u32;
        if fits && moved & moved.wrapping_add(1) == 0 { Some(moved.count_ones() as u8) } else { None }
    }

    /// The number; none where the chunk is too short for it.
    #[inline]
    pub fn number(self, chunk: &Payload) -> Option<u64> {
        let mut field = [0; 8];
        let place = usize::from(self.offset);
        match chunk.contiguous().and_then(|bytes| bytes.get(place..)?.first_chunk::<8>()) {
            Some(eight) => field = *eight,
            None if chunk.copy_to(place, field.get_mut(..usize::from(self.bytes))?) => {}
            None => return None,
        }
        let word = if self.is_big_endian {
            u64::from_be_bytes(field) >> (64 - 8 * u32::from(self.bytes))
        } else {
            u64::from_le_bytes(field)
        };
        Some((word & self.mask) >> self.mask.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_memory::{Owner, Pool, PoolConfig};

    fn payload(pieces: &[&[u8]]) -> Payload {
        let mut pool = Pool::new(PoolConfig::heap("test", 64, 64)).expect("a small pool");
        let mut slice = |bytes: &&[u8]| pool.loan(Owner::SHARED).expect("a block").append(bytes).expect("it fits");
        pieces.iter().map(&mut slice).collect()
    }

    #[test]
    fn a_number_is_found_wherever_the_rule_says_that_it_stands() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99];
        let rule = |offset, bytes, is_big_endian, mask| EventRule { offset, bytes, is_big_endian, mask };
        for (rule, number) in [
            (EventRule::USUAL, 0x4433_2211),
            (rule(1, 2, true, 0xffff), 0x2233),
            (rule(1, 3, false, 0xff_fff0), 0x4_4332),
            (rule(1, 8, true, u64::MAX), 0x2233_4455_6677_8899),
            (rule(8, 1, false, 0x0f), 0x09),
        ] {
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(rule.number(&payload(&[front, back])), Some(number), "{rule:?} cut at {cut}");
            }
            let short = &bytes[..usize::from(rule.offset) + usize::from(rule.bytes) - 1];
            assert_eq!(rule.number(&payload(&[short])), None);
        }
    }

    #[test]
    fn a_mask_with_a_gap_or_beyond_its_field_is_no_rule() {
        let bits = |bytes, mask| EventRule { bytes, mask, ..EventRule::USUAL }.bits();
        assert_eq!(EventRule::USUAL.bits(), Some(32));
        assert_eq!((bits(8, u64::MAX), bits(3, 0xff_f000), bits(1, 0x80)), (Some(64), Some(12), Some(1)));
        assert_eq!(
            (bits(4, 0xff00_00ff), bits(2, 0x1_0000), bits(4, 0), bits(0, 1), bits(9, 1)),
            (None, None, None, None, None)
        );
    }

    proptest! {
        #[test]
        fn no_chunk_makes_a_number_larger_than_its_bits(
            chunk in prop::collection::vec(any::<u8>(), 0..30), offset in 0..30_u16, bytes in 1..=8_u8,
            is_big_endian: bool, low in 0..64_u32, width in 1..=64_u32,
        ) {
            let mask = u64::MAX >> (64 - width) << low;
            let rule = EventRule { offset, bytes, is_big_endian, mask };
            let number = rule.number(&payload(&[&chunk]));
            prop_assert_eq!(number.is_some(), usize::from(offset) + usize::from(bytes) <= chunk.len());
            if let (Some(number), Some(bits)) = (number, rule.bits()) {
                prop_assert!(bits == 64 || number >> bits == 0);
            }
        }
    }
}
