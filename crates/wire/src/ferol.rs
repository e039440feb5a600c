//! FEROL blocks: how a FED fragment travels over TCP (FORMATS section 2; paper 3 calls their sender FEROL, the
//! front-end read-out optical link).
//!
//! ```text
//!         63        48 47     43 42        32  31    30   29      10 9           0
//! word 0 | 0x475A     |         | packet (11)|first|last |          | length (10) |   big-endian
//!         63   60 59         48 47                    24 23                      0
//! word 1 |       | source (12) |                        | event number (24)       |   big-endian
//! then   | at most 4,080 bytes of the fragment, a multiple of 8                   |
//! ```
//! The length counts the 8-byte words behind the header. A larger fragment spans several blocks: the first and the last
//! are marked, the packet number counts from 0 (modulo 2^11), and source and event number stay the same.
//!
//! FORMATS states the positions of `first` and of the packet number from memory; both are written and checked here.

use core::ops::Range;

use ropewalk_terms::{Cause, SourceId};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 16;

/// The most bytes of a fragment in one block.
pub const MAX_PAYLOAD_BYTES: usize = 4080;

/// The largest block, header included.
pub const MAX_BLOCK_BYTES: usize = HEADER_BYTES + MAX_PAYLOAD_BYTES;

const SIGNATURE: u64 = 0x475A;
const WORD_BYTES: usize = 8;

/// Modulus of packet numbers.
const PACKET_NUMBERS: u16 = 1 << 11;

/// Reason why no block begins here. The boundary of the next block is then unknown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// The bytes do not begin with a block's signature.
    #[error("no FEROL block begins here (wrong signature)")]
    Signature,
    /// The block is empty or longer than blocks may be.
    #[error("the FEROL block states an impossible length")]
    Length,
}

impl BlockError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        Cause::FramingLost
    }
}

/// The header of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// The bytes of the fragment in this block: a multiple of 8, from 8 to [`MAX_PAYLOAD_BYTES`].
    pub payload_bytes: u16,
    /// Whether the fragment begins in this block.
    pub first: bool,
    /// Whether the fragment ends in this block.
    pub last: bool,
    /// The block's number within its fragment, from 0, modulo 2^11.
    pub packet: u16,
    /// The FED id (12 bits).
    pub source: SourceId,
    /// The event number (24 bits), the same as the L1 id in the fragment.
    pub event_number: u32,
}

impl BlockHeader {
    /// Decodes a header. Bits without a name are ignored.
    ///
    /// # Errors
    /// If no block begins here, or its length is impossible: the stream's framing is lost.
    pub const fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BlockError> {
        let both = u128::from_be_bytes(*bytes);
        let (word0, word1) = ((both >> 64) as u64, both as u64);
        if word0 >> 48 != SIGNATURE {
            return Err(BlockError::Signature);
        }
        let payload_bytes = (word0 & 0x3FF) as usize * WORD_BYTES;
        if payload_bytes == 0 || payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(BlockError::Length);
        }
        Ok(Self {
            payload_bytes: payload_bytes as u16,
            first: word0 >> 31 & 1 == 1,
            last: word0 >> 30 & 1 == 1,
            packet: (word0 >> 32) as u16 & (PACKET_NUMBERS - 1),
            source: SourceId((word1 >> 48 & 0xFFF) as u32),
            event_number: (word1 & 0xFF_FFFF) as u32,
        })
    }

    /// Whether a header can begin with these bytes: a wrong format is detected earlier than a right one.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        let signature = (SIGNATURE as u16).to_be_bytes();
        bytes.iter().zip(signature).all(|(&byte, expected)| byte == expected)
    }

    /// Encodes the header. Excess bits of a field are cut off.
    pub const fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let word0 = SIGNATURE << 48
            | ((self.packet & (PACKET_NUMBERS - 1)) as u64) << 32
            | (self.first as u64) << 31
            | (self.last as u64) << 30
            | (self.payload_bytes as usize / WORD_BYTES) as u64 & 0x3FF;
        let word1 = (self.source.0 as u64 & 0xFFF) << 48 | self.event_number as u64 & 0xFF_FFFF;
        ((word0 as u128) << 64 | word1 as u128).to_be_bytes()
    }

    /// Bytes of the whole block, header included.
    pub const fn block_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

/// A view of a block at the front of some bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// The block's header.
    pub header: BlockHeader,
    /// The block's piece of the fragment.
    pub payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// Splits off the first block of `bytes`, and returns the bytes behind it too; `None` while the block is
    /// incomplete.
    ///
    /// # Errors
    /// As [`BlockHeader::parse`].
    pub fn split_first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, BlockError> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let header = BlockHeader::parse(header)?;
        Ok(rest
            .split_at_checked(usize::from(header.payload_bytes))
            .map(|(payload, rest)| (Self { header, payload }, rest)))
    }
}

/// The blocks of a fragment of `length` bytes: each with its header and its part of the fragment.
///
/// A length that is no multiple of 8 is taken as the next lower one: FED fragments are whole words.
pub fn blocks_of(
    length: usize,
    source: SourceId,
    event_number: u32,
) -> impl ExactSizeIterator<Item = (BlockHeader, Range<usize>)> {
    let length = length / WORD_BYTES * WORD_BYTES;
    let blocks = length.div_ceil(MAX_PAYLOAD_BYTES);
    (0..blocks).map(move |index| {
        let start = index * MAX_PAYLOAD_BYTES;
        let end = length.min(start + MAX_PAYLOAD_BYTES);
        let header = BlockHeader {
            payload_bytes: (end - start) as u16,
            first: index == 0,
            last: index + 1 == blocks,
            packet: (index % usize::from(PACKET_NUMBERS)) as u16,
            source,
            event_number,
        };
        (header, start..end)
    })
}

/// Appends a whole FED fragment to `out` as blocks.
pub fn encode_fragment(fragment: &[u8], source: SourceId, event_number: u32, out: &mut Vec<u8>) {
    for (header, range) in blocks_of(fragment.len(), source, event_number) {
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(&fragment[range]);
    }
}

/// Reason for dropping an incomplete fragment. Block boundaries are still known, so the stream continues.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// Another fragment begins before this one ended.
    #[error("the next fragment begins before this one ended")]
    CutShort,
    /// A block continues a fragment that never began.
    #[error("the block continues a fragment that never began")]
    NoBeginning,
    /// The packet number is not the next one.
    #[error("a block of the fragment is missing or comes twice")]
    Packet,
    /// The block belongs to another source than the one before.
    #[error("the source changes within a fragment")]
    Source,
    /// The block belongs to another event than the one before.
    #[error("the event number changes within a fragment")]
    EventNumber,
    /// The fragment is larger than allowed.
    #[error("the fragment is larger than allowed")]
    Oversize,
}

impl FragmentError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::CutShort => Cause::CutShort,
            Self::Source => Cause::WrongSource,
            Self::NoBeginning | Self::Packet | Self::EventNumber => Cause::Malformed,
            Self::Oversize => Cause::Oversize,
        }
    }
}

/// The destination of a block's payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// It begins a fragment.
    Begins,
    /// It continues the fragment.
    Continues,
    /// Not used: it belongs to a dropped fragment.
    Skipped,
}

/// The result for a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// First step: a fragment is dropped for this reason, reported once for each fragment. Its kept bytes are returned.
    pub gives_up: Option<FragmentError>,
    /// Second step: the destination of the payload.
    pub place: Place,
    /// Third step: the fragment is complete, with this length in bytes.
    pub completes: Option<usize>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Between two fragments.
    Between,
    /// Within a fragment: the expected fields of its next block, and the bytes so far.
    Within { source: SourceId, event_number: u32, packet: u16, bytes: usize },
    /// Within a dropped fragment: waits for the next beginning.
    Lost,
}

/// Follows one stream's blocks and determines the pieces of each fragment. Holds no bytes.
#[derive(Clone, Debug)]
pub struct Assembly {
    state: State,
    max_bytes: usize,
}

impl Assembly {
    /// Makes the state between two fragments. Fragments may have at most `max_bytes` bytes, or [`MAX_PAYLOAD_BYTES`] if
    /// that is more: a beginning is never too large, so no block can make two fragments be dropped at once.
    pub const fn new(max_bytes: usize) -> Self {
        let max_bytes = if max_bytes > MAX_PAYLOAD_BYTES { max_bytes } else { MAX_PAYLOAD_BYTES };
        Self { state: State::Between, max_bytes }
    }

    /// Whether the next block must begin a fragment.
    pub const fn is_between(&self) -> bool {
        matches!(self.state, State::Between)
    }

    /// Bytes of the unfinished fragment, if there is one. At the end of a connection such a fragment is cut short.
    pub const fn unfinished_bytes(&self) -> Option<usize> {
        match self.state {
            State::Within { bytes, .. } => Some(bytes),
            State::Between | State::Lost => None,
        }
    }

    /// Takes the next block's header.
    pub fn accept(&mut self, block: &BlockHeader) -> Accepted {
        if block.first {
            return self.begin(block);
        }
        match self.state {
            State::Between => self.give_up(block, FragmentError::NoBeginning),
            State::Lost => self.skip(block, None),
            State::Within { source, event_number, packet, bytes } => {
                if block.source != source {
                    self.give_up(block, FragmentError::Source)
                } else if block.event_number != event_number {
                    self.give_up(block, FragmentError::EventNumber)
                } else if block.packet != packet {
                    self.give_up(block, FragmentError::Packet)
                } else {
                    self.take(block, Place::Continues, bytes)
                }
            }
        }
    }

    /// A beginning is accepted with any packet number: the following blocks count on from there.
    fn begin(&mut self, block: &BlockHeader) -> Accepted {
        let gives_up = matches!(self.state, State::Within { .. }).then_some(FragmentError::CutShort);
        Accepted { gives_up, ..self.take(block, Place::Begins, 0) }
    }

    fn take(&mut self, block: &BlockHeader, place: Place, before: usize) -> Accepted {
        let bytes = before + usize::from(block.payload_bytes);
        if bytes > self.max_bytes {
            return self.give_up(block, FragmentError::Oversize);
        }
        let BlockHeader { source, event_number, packet, last, .. } = *block;
        self.state = if last {
            State::Between
        } else {
            State::Within { source, event_number, packet: (packet + 1) % PACKET_NUMBERS, bytes }
        };
        Accepted { gives_up: None, place, completes: last.then_some(bytes) }
    }

    fn give_up(&mut self, block: &BlockHeader, error: FragmentError) -> Accepted {
        self.skip(block, Some(error))
    }

    fn skip(&mut self, block: &BlockHeader, gives_up: Option<FragmentError>) -> Accepted {
        self.state = if block.last { State::Between } else { State::Lost };
        Accepted { gives_up, place: Place::Skipped, completes: None }
    }
}

#[cfg(test)]
mod tests {
    //! FEROL blocks: round trips, arbitrary bytes, and every way in which blocks can fail to make a fragment.

    use proptest::prelude::*;

    use super::*;
    use ropewalk_terms::{Cause, SourceId};

    fn any_block_header() -> impl Strategy<Value = BlockHeader> {
        let words = 1..=(MAX_PAYLOAD_BYTES / 8) as u16;
        (words, any::<bool>(), any::<bool>(), 0..1_u16 << 11, 0..1_u32 << 12, 0..1_u32 << 24).prop_map(
            |(words, first, last, packet, source, event_number)| BlockHeader {
                payload_bytes: 8 * words,
                first,
                last,
                packet,
                source: SourceId(source),
                event_number,
            },
        )
    }

    /// The headers of a fragment's blocks.
    fn headers(length: usize) -> Vec<BlockHeader> {
        blocks_of(length, SourceId(843), 17).map(|(header, _)| header).collect()
    }

    /// The result of a new assembly for these blocks: the errors, and the lengths of the completed fragments.
    fn assemble(blocks: &[BlockHeader]) -> (Vec<FragmentError>, Vec<usize>) {
        let mut assembly = Assembly::new(1 << 20);
        let accepted: Vec<Accepted> = blocks.iter().map(|block| assembly.accept(block)).collect();
        (
            accepted.iter().filter_map(|accepted| accepted.gives_up).collect(),
            accepted.iter().filter_map(|accepted| accepted.completes).collect(),
        )
    }

    #[test]
    fn the_fields_are_where_the_format_puts_them() {
        let header = BlockHeader {
            payload_bytes: 4080,
            first: true,
            last: false,
            packet: 0x123,
            source: SourceId(0x34B),
            event_number: 0xAB_CDEF,
        };
        let bytes = [0x47, 0x5A, 0x01, 0x23, 0x80, 0, 0x01, 0xFE, 0x03, 0x4B, 0, 0, 0, 0xAB, 0xCD, 0xEF];
        assert_eq!(header.to_bytes(), bytes);
        let last = BlockHeader { first: false, last: true, ..header };
        assert_eq!(last.to_bytes()[4], 0x40);
    }

    #[test]
    fn lost_framing_has_its_names() {
        let good = headers(8)[0].to_bytes();
        let mut bad = good;
        bad[0] ^= 1;
        assert_eq!(BlockHeader::parse(&bad), Err(BlockError::Signature));
        for words in [0_u16, 511, 1023] {
            let mut bad = good;
            bad[6..8].copy_from_slice(&words.to_be_bytes());
            assert_eq!(BlockHeader::parse(&bad), Err(BlockError::Length));
        }
        assert_eq!(BlockError::Signature.cause(), Cause::FramingLost);
        assert_eq!(BlockError::Length.cause(), Cause::FramingLost);
    }

    #[test]
    fn fragments_are_cut_at_4080_bytes() {
        let blocks: Vec<_> = blocks_of(23_104, SourceId(843), 17).collect();
        assert_eq!(blocks.len(), 6);
        assert_eq!(blocks[5].1, 20_400..23_104);
        assert!(blocks[0].0.first && !blocks[0].0.last && !blocks[5].0.first && blocks[5].0.last);
        assert_eq!(headers(4080).len(), 1);
        assert_eq!(headers(4088).len(), 2);
        assert_eq!(headers(0).len(), 0);
        assert_eq!(headers(16 + 7), headers(16));
    }

    #[test]
    fn each_fault_gives_up_one_fragment_and_the_next_is_whole() {
        let long = headers(3 * MAX_PAYLOAD_BYTES);
        let (first, middle, last) = (long[0], long[1], long[2]);
        let single = headers(48)[0];
        let of_source = |source| BlockHeader { source: SourceId(source), ..middle };
        let of_event = |event_number| BlockHeader { event_number, ..middle };
        let cases: [(&[BlockHeader], FragmentError, Cause); 8] = [
            (&[first, middle], FragmentError::CutShort, Cause::CutShort),
            (&[first], FragmentError::CutShort, Cause::CutShort),
            (&[middle, last], FragmentError::NoBeginning, Cause::Malformed),
            (&[last], FragmentError::NoBeginning, Cause::Malformed),
            (&[first, last], FragmentError::Packet, Cause::Malformed),
            (&[first, middle, middle, last], FragmentError::Packet, Cause::Malformed),
            (&[first, of_source(1), last], FragmentError::Source, Cause::WrongSource),
            (&[first, of_event(18), last], FragmentError::EventNumber, Cause::Malformed),
        ];
        for (blocks, error, cause) in cases {
            assert_eq!(assemble(&[blocks, &[single], &long].concat()), (vec![error], vec![48, 12_240]), "{error}");
            assert_eq!(error.cause(), cause);
        }
    }

    #[test]
    fn a_fragment_that_grows_too_large_is_given_up_once() {
        let mut assembly = Assembly::new(10_000);
        let blocks = headers(5 * MAX_PAYLOAD_BYTES);
        let accepted: Vec<Accepted> = blocks.iter().map(|block| assembly.accept(block)).collect();
        assert_eq!(accepted[1].place, Place::Continues);
        assert_eq!(accepted[2].gives_up, Some(FragmentError::Oversize));
        assert_eq!(FragmentError::Oversize.cause(), Cause::Oversize);
        for later in &accepted[3..] {
            assert_eq!(*later, Accepted { gives_up: None, place: Place::Skipped, completes: None });
        }
        assert_eq!(assembly.accept(&headers(48)[0]).completes, Some(48));
    }

    #[test]
    fn packet_numbers_wrap() {
        let length = 2050 * MAX_PAYLOAD_BYTES;
        let mut assembly = Assembly::new(length);
        let completes: Vec<usize> =
            headers(length).iter().filter_map(|block| assembly.accept(block).completes).collect();
        assert_eq!(completes, [length]);
    }

    #[test]
    fn the_end_of_a_stream_shows_what_is_unfinished() {
        let mut assembly = Assembly::new(1 << 20);
        assert_eq!(assembly.unfinished_bytes(), None);
        assembly.accept(&headers(8000)[0]);
        assert_eq!(assembly.unfinished_bytes(), Some(4080));
        assembly.accept(&headers(8000)[1]);
        assert_eq!(assembly.unfinished_bytes(), None);
    }

    proptest! {
        #[test]
        fn headers_come_back(header in any_block_header()) {
            prop_assert_eq!(BlockHeader::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn fragments_come_back(words in 1..3000_usize, source in 0..1_u32 << 12, event_number in 0..1_u32 << 24) {
            let fragment: Vec<u8> = (0..8 * words).map(|index| (index * 7 / 8) as u8).collect();
            let mut stream = Vec::new();
            encode_fragment(&fragment, SourceId(source), event_number, &mut stream);
            let (mut assembly, mut rest, mut again) = (Assembly::new(1 << 20), &stream[..], Vec::new());
            while let Some((block, behind)) = Block::split_first(rest).expect("blocks") {
                let accepted = assembly.accept(&block.header);
                prop_assert_eq!(accepted.gives_up, None);
                prop_assert_eq!(accepted.completes.is_some(), behind.is_empty());
                prop_assert_eq!(block.header.block_bytes(), rest.len() - behind.len());
                again.extend_from_slice(block.payload);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!(again, fragment);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
            let mut bytes = bytes;
            if signed && bytes.len() >= 2 {
                bytes[..2].copy_from_slice(&[0x47, 0x5A]);
            }
            let _ = Block::split_first(&bytes);
        }

        #[test]
        fn any_order_of_blocks_gives_up_or_completes_what_began(blocks in prop::collection::vec(any_block_header(), 0..200)) {
            let mut assembly = Assembly::new(20_000);
            let (mut begun, mut ended) = (0, 0);
            for block in &blocks {
                let accepted = assembly.accept(block);
                ended += u32::from(accepted.completes.is_some());
                ended += u32::from(accepted.gives_up.is_some_and(|error| error != FragmentError::NoBeginning));
                begun += u32::from(accepted.place == Place::Begins);
            }
            prop_assert_eq!(begun, ended + u32::from(assembly.unfinished_bytes().is_some()));
        }
    }
}
