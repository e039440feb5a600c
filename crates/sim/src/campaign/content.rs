//! What sources make: bytes that follow from source, event and offset alone, so that the referee need not store them.
//!
//! Every word of a payload names where it belongs, so that a word in the wrong place tells where it came from:
//! ```text
//! 63       48 47                 16 15            0
//! source id   event number          word's offset
//! ```

use ropewalk_flow::readout::felix::{EventRule, NumberField};
use ropewalk_terms::SourceId;
use ropewalk_wire::{fed, ferol, generic};

/// Bunch crossings in an orbit of the LHC.
pub(super) const ORBIT: u64 = 3564;

/// How fragments are framed; as the readout unit knows it.
pub use ropewalk_flow::readout::Format;

/// How large fragments are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Words of a usual payload, at most.
    pub usual: u64,
    /// Words of one in sixteen, at most.
    pub largest: u64,
}

/// A well mixed number of three.
pub fn mixed(seed: u64, one: u64, other: u64) -> u64 {
    let mut number = seed ^ one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        number = (number ^ (number >> 30)).wrapping_mul(factor);
    }
    number ^ (number >> 31)
}

/// What all sources of a run have in common.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Decides the sizes.
    pub seed: u64,
    /// How large fragments are.
    pub sizes: Sizes,
}

impl Contents {
    fn words(&self, source: SourceId, event: u64) -> u64 {
        let draw = mixed(self.seed, u64::from(source.0), event);
        let most = if draw.is_multiple_of(16) { self.sizes.largest } else { self.sizes.usual };
        (draw >> 8) % (most + 1)
    }

    fn pattern(&self, source: SourceId, event: u64) -> Vec<u8> {
        let base = u64::from(source.0) << 48 | (event & 0xffff_ffff) << 16;
        (0..self.words(source, event)).flat_map(|word| (base | word & 0xffff).to_le_bytes()).collect()
    }

    /// The fragment of a source for an event, as it stands in run files, with this number in its header: the event's own,
    /// or that of a source whose counter is wrong.
    pub(super) fn fragment_numbered(&self, format: Format, source: SourceId, event: u64, number: u64) -> Vec<u8> {
        let payload = self.pattern(source, event);
        if format == Format::Generic {
            return payload;
        }
        let header = fed::Header::new(source, number as u32 & 0xff_ffff, (event % ORBIT) as u16 + 1);
        let mut fragment = Vec::with_capacity(payload.len() + 16);
        fed::encode(header, &payload, fed::Trailer::new(), &mut fragment).expect("a payload of whole words fits");
        fragment
    }

    /// Bytes of a chunk before its pattern: the event's number is among them, where the rule says.
    pub(super) const fn chunk_head(rule: EventRule) -> usize {
        match rule {
            EventRule::Field(_) => 8,
            EventRule::Rod => 36,
        }
    }

    /// The chunk of an e-link for an event, with this number where the rule looks for it.
    pub(super) fn chunk(&self, rule: EventRule, source: SourceId, event: u64, number: u64) -> Vec<u8> {
        let mut chunk = vec![0xee; Self::chunk_head(rule)];
        let noise = mixed(self.seed, u64::from(source.0), event);
        match rule {
            EventRule::Field(field) => write_number(&mut chunk, field, number, noise),
            EventRule::Rod => {
                // What stands beside the number is how often its counter was reset.
                let level1_id = number as u32 & 0xff_ffff | (noise as u32) << 24;
                let words = [0xee12_34ee, 9, 0x0301_0000, source.0, 1, level1_id, (event % ORBIT) as u32 + 1, 0, 0];
                chunk.chunks_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
            }
        }
        chunk.extend(self.pattern(source, event));
        chunk
    }

    /// A fragment as the source sends it, numbered `number`; where `damaged`, one bit of it is wrong.
    pub fn sent(&self, format: Format, source: SourceId, event: u64, number: u64, damaged: bool) -> Vec<u8> {
        let mut fragment = self.fragment_numbered(format, source, event, number);
        if damaged {
            damage(&mut fragment);
        }
        let mut bytes = Vec::with_capacity(fragment.len() + 64);
        match format {
            Format::Ferol => ferol::encode_fragment(&fragment, source, number as u32 & 0xff_ffff, &mut bytes),
            Format::Generic => {
                let header = generic_header(source, number);
                generic::encode(&header, &fragment, &mut bytes).expect("a payload of a few kilobytes fits");
            }
            // Frames of a layout have nothing around them.
            Format::Described => bytes.extend_from_slice(&fragment),
        }
        bytes
    }
}

/// Writes a number into its field; what stands beside it there is `noise`, and no number.
fn write_number(chunk: &mut [u8], field: NumberField, number: u64, noise: u64) {
    let word = number << field.mask.trailing_zeros() & field.mask | noise & !field.mask;
    let place = &mut chunk[usize::from(field.offset)..][..usize::from(field.bytes)];
    place.copy_from_slice(&word.to_le_bytes()[..place.len()]);
    if field.is_big_endian {
        place.reverse();
    }
}

fn generic_header(source: SourceId, number: u64) -> generic::Header {
    let flags = generic::Flags::default();
    generic::Header { source, flags, event_number: number, timestamp: 0, payload_bytes: 0 }
}

/// One bit of a fragment in the middle, behind its header, is wrong.
pub(super) fn damage(fragment: &mut [u8]) {
    let middle = fragment.len() / 2;
    if let Some(byte) = fragment.get_mut(middle) {
        *byte ^= 1;
    }
}

/// What a connection of a source begins with.
pub(super) fn hello(format: Format, source: SourceId) -> Vec<u8> {
    match format {
        Format::Ferol | Format::Described => Vec::new(),
        Format::Generic => generic::Hello::new(source, generic::HelloFlags::default(), "simulated")
            .map(|hello| hello.to_bytes().to_vec())
            .expect("the name is short"),
    }
}

/// The head of a fragment that claims more bytes than any may have.
pub(super) fn huge(format: Format, source: SourceId, number: u64) -> Vec<u8> {
    match format {
        // A block says at most 8 KiB, and receivers believe only half of that.
        Format::Ferol => (0x475a_0000_c000_03ff_u64.to_be_bytes()).into_iter().chain([0; 8]).collect(),
        Format::Generic => {
            let header = generic::Header { payload_bytes: u32::MAX, ..generic_header(source, number) };
            header.to_bytes().to_vec()
        }
        // Whether anything is longer than allowed is its layout's to say.
        Format::Described => Vec::new(),
    }
}

/// Where a word of a payload belongs: source, event, offset.
pub(super) fn origin_of(word: [u8; 8]) -> (u64, u64, u64) {
    let word = u64::from_le_bytes(word);
    (word >> 48, word >> 16 & 0xffff_ffff, word & 0xffff)
}
