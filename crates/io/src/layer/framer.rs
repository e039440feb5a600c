//! Framers: user-defined ends of messages in a stream of bytes.
//!
//! A framer sees every byte once, in order and in place; it copies only headers that were cut. Nearly all messages have
//! a header with their length ([`ByHeader`]). There are framers for common cases: lengths in front, fixed sizes, and
//! the formats of this field.

use ropewalk_wire::{ferol, generic, message};

/// The bytes are no message. The end point ends, since the start of the next message is unknown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FramingError {
    /// The header is invalid.
    #[error("no message begins here: {0}")]
    Malformed(&'static str),
    /// The message states more bytes than allowed.
    #[error("a message of {bytes} bytes, where {most} are allowed")]
    TooLong {
        /// The stated number.
        bytes: u64,
        /// The allowed number.
        most: u64,
    },
}

/// Finds the ends of messages.
pub trait Framer: Send {
    /// Examines bytes that follow those of the last call. `Some(n)`: the message ends with the `n`-th of them (1 or
    /// more), and the next call begins with the next message. `None`: all of them belong to an unfinished message.
    ///
    /// # Errors
    /// If there is no message here.
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError>;
}

/// A part of a message that a header describes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Number of bytes, including the header.
    pub bytes: u64,
    /// Whether the message ends with this part; otherwise another header follows.
    pub is_last: bool,
}

/// The rule that interprets headers.
pub trait HeaderRule: Send {
    /// Bytes of the next header, 1 to [`ByHeader::MOST_HEADER_BYTES`].
    fn header_bytes(&self) -> usize;

    /// Interprets a header of that many bytes.
    ///
    /// # Errors
    /// If it is not a valid header.
    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError>;
}

/// A framer that interprets headers.
#[derive(Debug)]
pub struct ByHeader<R> {
    rule: R,
    most: u64,
    /// The received bytes of the header.
    header: [u8; 64],
    have: usize,
    /// Remaining bytes of the present part, behind its header.
    left: u64,
    is_last: bool,
    /// Bytes of the present message, according to the headers so far.
    message: u64,
}

impl<R: HeaderRule> ByHeader<R> {
    /// Longer headers are not supported.
    pub const MOST_HEADER_BYTES: usize = 64;

    /// Uses this rule, and rejects messages of more than `most` bytes, headers included.
    pub const fn new(rule: R, most: u64) -> Self {
        Self { rule, most, header: [0; 64], have: 0, left: 0, is_last: false, message: 0 }
    }

    /// Takes bytes of the header; returns their number.
    fn read_header(&mut self, bytes: &[u8]) -> Result<usize, FramingError> {
        let length = self.rule.header_bytes().clamp(1, Self::MOST_HEADER_BYTES);
        let taken = (length - self.have).min(bytes.len());
        self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        if self.have == length {
            let Part { bytes, is_last } = self.rule.part(&self.header[..length])?;
            let behind = bytes.checked_sub(length as u64);
            let behind = behind.ok_or(FramingError::Malformed("it states fewer bytes than its header has"))?;
            self.message = self.message.saturating_add(bytes);
            if self.message > self.most {
                return Err(FramingError::TooLong { bytes: self.message, most: self.most });
            }
            (self.have, self.left, self.is_last) = (0, behind, is_last);
        }
        Ok(taken)
    }

    const fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

impl<R: HeaderRule> Framer for ByHeader<R> {
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                at += self.read_header(&bytes[at..])?;
            } else {
                let taken = self.left.min((bytes.len() - at) as u64);
                self.left -= taken;
                at += taken as usize;
            }
            if self.is_between() && self.is_last {
                (self.is_last, self.message) = (false, 0);
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// Every message has the same size.
#[derive(Debug)]
pub struct FixedSize {
    bytes: usize,
    left: usize,
}

impl FixedSize {
    /// Makes a framer for messages of `bytes` bytes; at least 1.
    pub const fn new(bytes: usize) -> Self {
        let bytes = if bytes == 0 { 1 } else { bytes };
        Self { bytes, left: bytes }
    }
}

impl Framer for FixedSize {
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        if bytes.len() < self.left {
            self.left -= bytes.len();
            return Ok(None);
        }
        Ok(Some(core::mem::replace(&mut self.left, self.bytes)))
    }
}

/// A length field in the header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LengthField {
    /// Bytes of the header, 1 to 64.
    pub header: usize,
    /// Offset of the length in the header.
    pub at: usize,
    /// Bytes of the length: 1 to 8.
    pub width: usize,
    /// Whether the most significant byte comes first.
    pub is_big_endian: bool,
    /// Number of bytes per unit of the length.
    pub unit: u64,
    /// Whether the length includes the header.
    pub counts_header: bool,
}

impl LengthField {
    /// A length of 32 bits, the least significant byte first, followed by that many bytes.
    pub const U32: Self = Self { header: 4, at: 0, width: 4, is_big_endian: false, unit: 1, counts_header: false };

    /// A framer for messages of at most `most` bytes.
    pub const fn framer(self, most: u64) -> ByHeader<Self> {
        ByHeader::new(self, most)
    }
}

impl HeaderRule for LengthField {
    fn header_bytes(&self) -> usize {
        self.header
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let end = self.at.saturating_add(self.width);
        let field = header.get(self.at..end).filter(|field| (1..=8).contains(&field.len()));
        let field = field.ok_or(FramingError::Malformed("the length does not lie in the header"))?;
        let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = if self.is_big_endian { field.iter().fold(0, digit) } else { field.iter().rev().fold(0, digit) };
        let beside = if self.counts_header { 0 } else { self.header as u64 };
        Ok(Part { bytes: number.saturating_mul(self.unit).saturating_add(beside), is_last: true })
    }
}

/// I2O private frames (FORMATS section 2): the upper half of the first 32-bit word is the size in 32-bit words.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct I2o;

impl I2o {
    /// A framer for frames of any size that can be stated: up to 65,535 words.
    pub const fn framer() -> ByHeader<Self> {
        ByHeader::new(Self, 4 * 65_535)
    }
}

impl HeaderRule for I2o {
    fn header_bytes(&self) -> usize {
        4
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let words = header.get(2..4).and_then(|size| size.try_into().ok()).map_or(0, u16::from_le_bytes);
        Ok(Part { bytes: 4 * u64::from(words), is_last: true })
    }
}

/// FED fragments in FEROL blocks: a message is all blocks of a fragment, headers included.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ferol;

impl Ferol {
    /// A framer for fragments of at most `most` bytes, headers of blocks included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self, most)
    }
}

impl HeaderRule for Ferol {
    fn header_bytes(&self) -> usize {
        ferol::HEADER_BYTES
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let header = header.first_chunk().ok_or(FramingError::Malformed("a FEROL header that was cut"))?;
        let block = ferol::BlockHeader::parse(header);
        let block = block.map_err(|_| FramingError::Malformed("not the header of a FEROL block"))?;
        Ok(Part { bytes: block.block_bytes() as u64, is_last: block.last })
    }
}

/// Generic fragments (`docs/generic-fragment.md`): the hello, and then each fragment, is a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Generic {
    has_greeted: bool,
}

impl Generic {
    /// A framer for fragments of at most `most` bytes, headers included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self { has_greeted: false }, most)
    }
}

impl HeaderRule for Generic {
    fn header_bytes(&self) -> usize {
        if self.has_greeted { generic::HEADER_BYTES } else { generic::HELLO_BYTES }
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        if let (false, Some(hello)) = (self.has_greeted, header.first_chunk()) {
            generic::Hello::parse(hello).map_err(|_| FramingError::Malformed("no hello of generic fragments"))?;
            self.has_greeted = true;
            return Ok(Part { bytes: generic::HELLO_BYTES as u64, is_last: true });
        }
        let header = header.first_chunk().ok_or(FramingError::Malformed("a header that was cut"))?;
        let header = generic::Header::parse(header);
        let header = header.map_err(|_| FramingError::Malformed("not the header of a generic fragment"))?;
        Ok(Part { bytes: header.fragment_bytes() as u64, is_last: true })
    }
}

/// Messages between nodes (`wire::message`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeMessages;

impl NodeMessages {
    /// A framer for messages of at most `most` bytes, headers included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self, most)
    }
}

impl HeaderRule for NodeMessages {
    fn header_bytes(&self) -> usize {
        message::HEADER_BYTES
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let header = header.first_chunk().ok_or(FramingError::Malformed("a header that was cut"))?;
        let header = message::Header::decode(header);
        let header = header.map_err(|_| FramingError::Malformed("not the header of a node message"))?;
        Ok(Part { bytes: message::HEADER_BYTES as u64 + u64::from(header.body), is_last: true })
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use ropewalk_terms::SourceId;
    use ropewalk_wire::{fed, ferol, generic, message};

    use super::*;

    /// Passes the stream to the framer in pieces of these lengths, repeated; returns the ends of messages.
    fn ends(framer: &mut dyn Framer, stream: &[u8], cuts: &[usize]) -> Result<Vec<usize>, FramingError> {
        let (mut ends, mut at) = (Vec::new(), 0);
        for &cut in cuts.iter().cycle() {
            let mut piece = &stream[at..stream.len().min(at + cut)];
            if piece.is_empty() {
                break;
            }
            while let Some(end) = framer.boundary(piece)? {
                assert!((1..=piece.len()).contains(&end));
                at += end;
                piece = &piece[end..];
                ends.push(at);
                if piece.is_empty() {
                    break;
                }
            }
            at += piece.len();
        }
        Ok(ends)
    }

    /// The stream of all messages, and the end of each.
    fn joined(messages: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let mut stream = Vec::new();
        let ends = messages.iter().map(|message| {
            stream.extend_from_slice(message);
            stream.len()
        });
        let ends = ends.collect();
        (stream, ends)
    }

    fn any_cuts() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1_usize..200, 1..8)
    }

    fn field(header: usize, at: usize, width: usize, is_big_endian: bool, counts_header: bool) -> LengthField {
        LengthField { header, at, width, is_big_endian, unit: 1, counts_header }
    }

    proptest! {
        #[test]
        fn a_length_in_front_is_found_wherever_it_stands(
            lengths in prop::collection::vec(0_usize..300, 1..20),
            header in 2_usize..20,
            is_big_endian: bool,
            counts_header: bool,
            cuts in any_cuts(),
        ) {
            let at = header - 2;
            let messages: Vec<Vec<u8>> = lengths.iter().map(|&length| {
                let mut message = vec![0xee; header + length];
                let stated = (if counts_header { header + length } else { length }) as u16;
                message[at..].first_chunk_mut::<2>().expect("two bytes")
                    .copy_from_slice(&if is_big_endian { stated.to_be_bytes() } else { stated.to_le_bytes() });
                message
            }).collect();
            let (stream, expected) = joined(&messages);
            let mut framer = field(header, at, 2, is_big_endian, counts_header).framer(1000);
            prop_assert_eq!(ends(&mut framer, &stream, &cuts), Ok(expected));
        }

        #[test]
        fn messages_of_one_size_end_at_its_multiples(size in 1_usize..300, count in 1_usize..20, cuts in any_cuts()) {
            let (stream, expected) = joined(&vec![vec![1; size]; count]);
            prop_assert_eq!(ends(&mut FixedSize::new(size), &stream, &cuts), Ok(expected));
        }

        #[test]
        fn a_fragment_in_ferol_blocks_is_one_message(
            words in prop::collection::vec(0_usize..1500, 1..6),
            cuts in any_cuts(),
        ) {
            let messages: Vec<Vec<u8>> = words.iter().map(|&words| {
                let (mut fragment, mut blocks) = (Vec::new(), Vec::new());
                let header = fed::Header::new(SourceId(843), 7, 1);
                fed::encode(header, &vec![5; 8 * words], fed::Trailer::new(), &mut fragment).expect("an allowed length");
                ferol::encode_fragment(&fragment, SourceId(843), 7, &mut blocks);
                blocks
            }).collect();
            let (stream, expected) = joined(&messages);
            prop_assert_eq!(ends(&mut Ferol::framer(1 << 20), &stream, &cuts), Ok(expected));
        }

        #[test]
        fn any_bytes_are_cut_or_refused_and_never_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), cuts in any_cuts()) {
            let mut framers: Vec<Box<dyn Framer>> = vec![
                Box::new(FixedSize::new(0)),
                Box::new(LengthField::U32.framer(1 << 20)),
                Box::new(field(64, 60, 8, true, true).framer(u64::MAX)),
                Box::new(I2o::framer()),
                Box::new(Ferol::framer(1 << 20)),
                Box::new(Generic::framer(1 << 20)),
                Box::new(NodeMessages::framer(1 << 20)),
            ];
            for framer in &mut framers {
                let _ = ends(framer.as_mut(), &bytes, &cuts);
            }
        }
    }

    #[test]
    fn a_generic_stream_begins_with_its_hello() {
        let source = SourceId(17);
        let hello = generic::Hello::new(source, generic::HelloFlags::default(), "telescope").expect("a good name");
        let mut fragment = Vec::new();
        let flags = generic::Flags::default();
        let header = generic::Header { source, flags, event_number: 1, timestamp: 0, payload_bytes: 100 };
        generic::encode(&header, &[9; 100], &mut fragment).expect("an allowed length");
        let (stream, expected) = joined(&[hello.to_bytes().to_vec(), fragment.clone(), fragment]);
        for cut in 1..stream.len() {
            assert_eq!(ends(&mut Generic::framer(1000), &stream, &[cut]).as_ref(), Ok(&expected));
        }
    }

    #[test]
    fn i2o_frames_state_their_size_in_words() {
        let frame =
            |words: u16| [[1, 0].as_slice(), &words.to_le_bytes(), &vec![3; 4 * usize::from(words) - 4]].concat();
        let (stream, expected) = joined(&[frame(1), frame(200), frame(2)]);
        assert_eq!(ends(&mut I2o::framer(), &stream, &[3, 50]), Ok(expected));
        let nothing = [1, 0, 0, 0];
        assert_eq!(
            I2o::framer().boundary(&nothing),
            Err(FramingError::Malformed("it states fewer bytes than its header has"))
        );
    }

    #[test]
    fn a_node_message_ends_with_its_body() {
        use ropewalk_terms::{Epoch, Incarnation, NodeId, RunNumber};
        let message = |body: u32| {
            let (kind, sender) = (message::Kind::Welcome, NodeId::builder(3));
            let (run, epoch, incarnation) = (RunNumber(1), Epoch(1), Incarnation(1));
            let header = message::Header { kind, body, run, epoch, sender, incarnation };
            [header.to_bytes().as_slice(), &vec![0; body as usize]].concat()
        };
        let (stream, expected) = joined(&[message(0), message(77), message(0)]);
        assert_eq!(ends(&mut NodeMessages::framer(1000), &stream, &[31]), Ok(expected));
    }

    #[test]
    fn a_message_that_claims_too_much_is_refused_by_its_header() {
        let mut framer = LengthField::U32.framer(1000);
        assert_eq!(framer.boundary(&[0xff; 4]), Err(FramingError::TooLong { bytes: (1 << 32) + 3, most: 1000 }));
    }
}
