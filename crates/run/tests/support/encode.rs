//! Encoding of a front end's data, written from the description of the formats.

/// Size of an S-LINK64 word, in bytes.
pub(crate) const SLINK_WORD: usize = 8;

/// Payload bytes in one FEROL block.
const FEROL_PAYLOAD: usize = 4080;

/// Pseudo-random numbers that are the same in every run of the test (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The effect of every byte on the checksum: bit by bit, unoptimised tests would slow down a fast source.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x8005 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Returns the CRC-16: polynomial 0x8005, most significant bit first.
fn crc16(start: u16, bytes: impl IntoIterator<Item = u8>) -> u16 {
    bytes.into_iter().fold(start, |crc, byte| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// Returns a FED fragment of `bytes` bytes (a multiple of 8, at least 16) whose payload is derived from source and
/// event.
pub(crate) fn fed_fragment(source: u32, event: u64, bytes: usize) -> Vec<u8> {
    fed_fragment_with(source, event, event % 3564 + 1, bytes)
}

/// Returns the same with another bunch crossing.
pub(crate) fn fed_fragment_with(source: u32, event: u64, bunch_crossing: u64, bytes: usize) -> Vec<u8> {
    let words = bytes / SLINK_WORD;
    let header = 5 << 60 | (event & 0xff_ffff) << 32 | bunch_crossing << 20 | u64::from(source & 0xfff) << 8;
    let mut random = Random::new(u64::from(source) << 32 ^ event);
    let mut fragment: Vec<u64> = (0..words).map(|_| random.next()).collect();
    fragment[0] = header;
    // The checksum is computed with its own field, and two bits that links may change, at zero, as here.
    fragment[words - 1] = 0xa << 60 | (words as u64) << 32;
    let crc = fragment.iter().fold(0xffff, |crc, word| crc16(crc, word.to_be_bytes()));
    fragment[words - 1] |= u64::from(crc) << 16;
    fragment.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns one FEROL block around a part of a fragment.
pub(crate) fn ferol_block(source: u32, event: u64, packet: usize, first: bool, last: bool, part: &[u8]) -> Vec<u8> {
    let marks = u64::from(first) << 31 | u64::from(last) << 30;
    let words = (part.len() / SLINK_WORD) as u64;
    let word0 = 0x475a << 48 | (packet as u64 & 0x7ff) << 32 | marks | words;
    let word1 = u64::from(source & 0xfff) << 48 | event & 0xff_ffff;
    let mut block = Vec::with_capacity(16 + part.len());
    block.extend_from_slice(&word0.to_be_bytes());
    block.extend_from_slice(&word1.to_be_bytes());
    block.extend_from_slice(part);
    block
}

/// Returns a whole fragment in FEROL blocks.
pub(crate) fn ferol_blocks(source: u32, event: u64, fragment: &[u8]) -> Vec<u8> {
    let count = fragment.len().div_ceil(FEROL_PAYLOAD);
    let parts = fragment.chunks(FEROL_PAYLOAD).enumerate();
    parts.flat_map(|(index, part)| ferol_block(source, event, index, index == 0, index + 1 == count, part)).collect()
}

/// Returns the hello of a connection with generic fragments.
pub(crate) fn generic_hello(source: u32) -> Vec<u8> {
    let mut hello = vec![0; 64];
    hello[..5].copy_from_slice(b"RWHI\x01");
    hello[8..12].copy_from_slice(&source.to_le_bytes());
    hello[16..20].copy_from_slice(b"test");
    hello
}

/// Returns the header of a generic fragment that claims `claimed` bytes of payload.
pub(crate) fn generic_header(source: u32, event: u64, claimed: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(32);
    header.extend_from_slice(b"RWFR\x01\0\0\0");
    header.extend_from_slice(&source.to_le_bytes());
    header.extend_from_slice(&claimed.to_le_bytes());
    header.extend_from_slice(&event.to_le_bytes());
    header.extend_from_slice(&(event * 1000).to_le_bytes());
    header
}

/// Returns a payload for a generic fragment, derived from source and event.
pub(crate) fn generic_payload(source: u32, event: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(u64::from(source) << 40 ^ event);
    let mut payload: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    payload.truncate(bytes);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values in the catalogue of CRCs for `123456789` (CRC-16/CMS) and for an empty input.
    #[test]
    fn the_referee_computes_the_published_checksum() {
        assert_eq!(crc16(0xffff, *b"123456789"), 0xaee7);
        assert_eq!(crc16(0xffff, []), 0xffff);
    }

    #[test]
    fn a_fragment_is_whole_words_between_header_and_trailer() {
        let fragment = fed_fragment(841, 7, 48);
        assert_eq!(fragment.len(), 48);
        assert_eq!(fragment[7] >> 4, 5);
        assert_eq!(fragment[47] >> 4, 0xa);
        assert_eq!(fragment[44], 6, "six words");
        assert_eq!(ferol_blocks(841, 7, &fragment).len(), 64);
        assert_eq!(ferol_blocks(841, 7, &fed_fragment(841, 7, 4088)).len(), 4088 + 32);
    }
}
