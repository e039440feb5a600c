//! The place of the event number in a chunk.

use ropewalk_memory::Payload;
use ropewalk_wire::felix::ELink;
use ropewalk_wire::rod;

/// How the header of a chunk is read: each front end has its own format.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum EventRule {
    /// The event number is a field of the header, and nothing else is known.
    Field(NumberField),
    /// The header is that of a ROD fragment ([`rod::Header`]). The number is its level-1 id without the count of
    /// resets, and it has bunch crossing and trigger type. A chunk that does not begin with such a header is malformed.
    Rod,
}

/// A field in the header of a chunk that contains the event number.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct NumberField {
    /// Offset of the field, in bytes.
    pub offset: u16,
    /// Size of the field in bytes, 1 to 8.
    pub bytes: u8,
    /// Whether its first byte is the most significant one.
    pub is_big_endian: bool,
    /// The bits of the field that form the number. They are contiguous, and are shifted down.
    pub mask: u64,
}

/// The contents of a chunk's header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHead {
    /// The event number, as the source counts.
    pub number: u64,
    /// The bunch crossing, if the header has one.
    pub bunch_crossing: Option<u16>,
    /// The trigger type; 0 if the header has none.
    pub trigger_type: u8,
}

impl EventRule {
    /// A field of 32 bits, little-endian, at the beginning.
    pub const USUAL: Self = Self::Field(NumberField::USUAL);

    /// Returns the number of bits of the event number; `None` if the field's size is invalid, or the mask has gaps or
    /// bits beyond it.
    pub const fn bits(self) -> Option<u8> {
        match self {
            Self::Field(field) => field.bits(),
            Self::Rod => Some(24),
        }
    }

    /// Returns the least number of bytes of a chunk whose header can be read.
    pub const fn head_bytes(self) -> usize {
        match self {
            Self::Field(field) => field.offset as usize + field.bytes as usize,
            Self::Rod => rod::HEADER_BYTES,
        }
    }

    /// Reads the header; `None` if the chunk is too short, or does not begin with a valid header.
    #[inline]
    pub fn read(self, chunk: &Payload) -> Option<EventHead> {
        match self {
            Self::Field(field) => {
                Some(EventHead { number: field.number(chunk)?, bunch_crossing: None, trigger_type: 0 })
            }
            Self::Rod => {
                let header = rod::Header::parse(&chunk.read_array(0)?).ok()?;
                let (number, bunch_crossing) = (u64::from(header.level1_id()), Some(header.bunch_crossing()));
                Some(EventHead { number, bunch_crossing, trigger_type: header.trigger_type() })
            }
        }
    }

    /// Reads only the number.
    #[inline]
    pub fn number(self, chunk: &Payload) -> Option<u64> {
        match self {
            Self::Field(field) => field.number(chunk),
            Self::Rod => Some(self.read(chunk)?.number),
        }
    }

    /// Writes this header to a source's chunk. Other bits of the header stay as they are. Nothing is written if the
    /// chunk is too short.
    pub fn write(self, head: EventHead, source: u32, chunk: &mut [u8]) {
        let Some(place) = chunk.get_mut(..self.head_bytes()) else { return };
        match self {
            Self::Field(field) => field.write(head.number, &mut place[usize::from(field.offset)..]),
            Self::Rod => {
                let bunch_crossing = head.bunch_crossing.unwrap_or(0);
                let header = rod::Header::new(source, head.number as u32, bunch_crossing, head.trigger_type);
                place.copy_from_slice(&header.to_bytes());
            }
        }
    }
}

impl NumberField {
    /// 32 bits, little-endian, at the beginning.
    pub const USUAL: Self = Self { offset: 0, bytes: 4, is_big_endian: false, mask: 0xffff_ffff };

    const fn bits(self) -> Option<u8> {
        if self.bytes == 0 || self.bytes > 8 || self.mask == 0 {
            return None;
        }
        let moved = self.mask >> self.mask.trailing_zeros();
        let fits = 64 - self.mask.leading_zeros() <= 8 * self.bytes as u32;
        if fits && moved & moved.wrapping_add(1) == 0 { Some(moved.count_ones() as u8) } else { None }
    }

    #[inline]
    fn number(self, chunk: &Payload) -> Option<u64> {
        let mut field = [0; 8];
        let place = usize::from(self.offset);
        match chunk.contiguous().and_then(|bytes| bytes.get(place..)?.first_chunk::<8>()) {
            Some(eight) => field = *eight,
            None if chunk.copy_to(place, field.get_mut(..usize::from(self.bytes))?) => {}
            None => return None,
        }
        Some((self.word(field) & self.mask) >> self.mask.trailing_zeros())
    }

    /// Returns the field in these bytes.
    const fn word(self, bytes: [u8; 8]) -> u64 {
        if self.is_big_endian {
            u64::from_be_bytes(bytes) >> (64 - 8 * self.bytes as u32)
        } else {
            u64::from_le_bytes(bytes)
        }
    }

    fn write(self, number: u64, field: &mut [u8]) {
        let mut bytes = [0; 8];
        let Some(place) = bytes.get_mut(..field.len()) else { return };
        place.copy_from_slice(field);
        let word = self.word(bytes) & !self.mask | number << self.mask.trailing_zeros() & self.mask;
        field.copy_from_slice(&word.to_le_bytes()[..field.len()]);
        if self.is_big_endian {
            field.reverse();
        }
    }
}

/// The rules of a card's e-links: a default, and individual rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRules {
    usual: EventRule,
    /// Individual rules, in the order of the e-links.
    own: Vec<(ELink, EventRule)>,
}

impl EventRules {
    /// Returns the rule of an e-link.
    pub fn of(&self, elink: ELink) -> EventRule {
        match self.own.binary_search_by_key(&elink, |&(own, _)| own) {
            Ok(place) => self.own[place].1,
            Err(_) => self.usual,
        }
    }

    /// Adds an individual rule for one e-link.
    #[must_use]
    pub fn with(mut self, elink: ELink, rule: EventRule) -> Self {
        match self.own.binary_search_by_key(&elink, |&(own, _)| own) {
            Ok(place) => self.own[place].1 = rule,
            Err(place) => self.own.insert(place, (elink, rule)),
        }
        self
    }
}

impl From<EventRule> for EventRules {
    /// Creates a default rule for all e-links.
    fn from(usual: EventRule) -> Self {
        Self { usual, own: Vec::new() }
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
        pieces.iter().filter(|piece| !piece.is_empty()).map(&mut slice).collect()
    }

    fn field(offset: u16, bytes: u8, is_big_endian: bool, mask: u64) -> EventRule {
        EventRule::Field(NumberField { offset, bytes, is_big_endian, mask })
    }

    #[test]
    fn a_number_is_found_wherever_the_rule_says_that_it_is() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99];
        for (rule, number) in [
            (EventRule::USUAL, 0x4433_2211),
            (field(1, 2, true, 0xffff), 0x2233),
            (field(1, 3, false, 0xff_fff0), 0x4_4332),
            (field(1, 8, true, u64::MAX), 0x2233_4455_6677_8899),
            (field(8, 1, false, 0x0f), 0x09),
        ] {
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(rule.number(&payload(&[front, back])), Some(number), "{rule:?} cut at {cut}");
            }
            assert_eq!(rule.number(&payload(&[&bytes[..rule.head_bytes() - 1]])), None);
        }
    }

    #[test]
    fn the_header_of_a_rod_fragment_says_number_crossing_and_type_however_it_is_cut() {
        let mut chunk = rod::Header::new(0x0076_0001, 0x00ab_cdef, 0x123, 0x84).to_bytes().to_vec();
        // The event counter was reset three times, which is not part of the number.
        chunk[23] = 3;
        chunk.extend([1, 2, 3, 4]);
        let head = EventHead { number: 0x00ab_cdef, bunch_crossing: Some(0x123), trigger_type: 0x84 };
        for cut in 0..=chunk.len() {
            let (front, back) = chunk.split_at(cut);
            assert_eq!(EventRule::Rod.read(&payload(&[front, back])), Some(head), "cut at {cut}");
        }
        assert_eq!((EventRule::Rod.bits(), EventRule::Rod.head_bytes()), (Some(24), 36));
        assert_eq!(EventRule::Rod.read(&payload(&[&chunk[..35]])), None, "too short");
        chunk[0] ^= 1;
        assert_eq!(EventRule::Rod.read(&payload(&[&chunk])), None, "without the marker");
    }

    #[test]
    fn an_e_link_without_a_rule_of_its_own_has_the_rule_of_all() {
        let [first, second, third] = [5, 9, 2].map(ELink::new);
        let rules = EventRules::from(EventRule::USUAL).with(first, EventRule::Rod).with(third, field(1, 2, true, 0xff));
        assert_eq!((rules.of(first), rules.of(second)), (EventRule::Rod, EventRule::USUAL));
        assert_eq!(rules.with(third, EventRule::Rod).of(third), EventRule::Rod);
    }

    #[test]
    fn a_mask_with_a_gap_or_beyond_its_field_is_no_rule() {
        let bits = |bytes, mask| field(0, bytes, false, mask).bits();
        assert_eq!(EventRule::USUAL.bits(), Some(32));
        assert_eq!((bits(8, u64::MAX), bits(3, 0xff_f000), bits(1, 0x80)), (Some(64), Some(12), Some(1)));
        assert_eq!(
            (bits(4, 0xff00_00ff), bits(2, 0x1_0000), bits(4, 0), bits(0, 1), bits(9, 1)),
            (None, None, None, None, None)
        );
    }

    fn any_rule() -> impl Strategy<Value = EventRule> {
        let fields = (0..30_u16, 1..=8_u8, any::<bool>(), 0..64_u32, 1..=64_u32);
        let fields = fields.prop_map(|(offset, bytes, is_big_endian, low, width)| {
            field(offset, bytes, is_big_endian, u64::MAX >> (64 - width) << low)
        });
        prop_oneof![4 => fields, 1 => Just(EventRule::Rod)]
    }

    proptest! {
        #[test]
        fn no_chunk_makes_a_number_larger_than_its_bits(
            chunk in prop::collection::vec(any::<u8>(), 0..50), rule in any_rule(),
        ) {
            let number = rule.number(&payload(&[&chunk]));
            let is_long_enough = rule.head_bytes() <= chunk.len();
            prop_assert!(number.is_none() || is_long_enough);
            prop_assert!(number.is_some() || !is_long_enough || rule == EventRule::Rod);
            if let (Some(number), Some(bits)) = (number, rule.bits()) {
                prop_assert!(bits == 64 || number >> bits == 0);
            }
        }

        #[test]
        fn what_is_written_into_a_head_is_read_from_it(
            chunk in prop::collection::vec(any::<u8>(), 0..50), rule in any_rule(), number: u64, crossing in 0..0xfff_u16,
        ) {
            prop_assume!(rule.bits().is_some());
            let number = rule.bits().map_or(0, |bits| number & u64::MAX >> (64 - bits));
            let bunch_crossing = (rule == EventRule::Rod).then_some(crossing);
            let head = EventHead { number, bunch_crossing, trigger_type: 0 };
            let mut written = chunk.clone();
            rule.write(head, 7, &mut written);
            if rule.head_bytes() > chunk.len() {
                prop_assert_eq!(written, chunk);
            } else {
                prop_assert_eq!(rule.read(&payload(&[&written])), Some(head));
                prop_assert_eq!(&written[rule.head_bytes()..], &chunk[rule.head_bytes()..]);
            }
        }
    }
}
