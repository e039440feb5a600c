//! FED fragments: one front end's data for one event, as CMS S-LINK64 carries it (FORMATS section 2).
//!
//! ```text
//!           bit 63    60 59    56 55           32 31        20 19        8 7      4  3   2 0
//! header  |    5    | event  |    L1 id (24)    |    BX (12) | source (12)| version|more|   |
//! payload |  any number of 64-bit words                                                     |
//! trailer |   0xA   |        |   length (24)    | CRC (16)   |  status 8-11 |  TTS  |more|   |
//! ```
//! All words are little-endian. The length counts 64-bit words, header and trailer included. It is only stated at the
//! end, so a stream of bare fragments cannot be cut as it arrives: see [`ferol`](crate::ferol) for streams and
//! [`split_file`] for files. Interior words may look like headers and trailers.
//!
//! The CRC covers the whole fragment, with its own field and three bits that the link may set later taken as zero. It
//! is checked over one slice ([`Fragment::check_crc`]) or over pieces ([`Ends::check_crc`]), since a fragment can be
//! larger than a pool block.

#[cfg(test)]
mod tests;

use core::ops::Range;

use ropewalk_kernels::{Crc16, crc16_of_bits, crc16_of_change};
use ropewalk_terms::{Cause, SourceId};

/// Bytes of a word, of a header and of a trailer.
pub const WORD_BYTES: usize = 8;

/// The smallest fragment in bytes: a header and a trailer.
pub const MIN_BYTES: usize = 2 * WORD_BYTES;

/// The largest fragment in bytes: the length field has 24 bits.
pub const MAX_BYTES: usize = ((1 << 24) - 1) * WORD_BYTES;

/// An error in a FED fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FedError {
    /// Shorter than a header and a trailer, longer than the length field allows, or no whole number of words.
    #[error("the fragment's size is not that of a FED fragment")]
    Size,
    /// The first word is no header.
    #[error("the first word is no FED header")]
    Header,
    /// The last word is no trailer, or it announces another trailer behind it.
    #[error("the last word is no FED trailer")]
    Trailer,
    /// The trailer's length differs from the fragment's.
    #[error("the trailer states another length")]
    Length,
    /// The header's source differs from the expected one.
    #[error("the header names another source")]
    Source,
    /// The trailer's CRC does not match the bytes.
    #[error("the CRC does not match the bytes")]
    Crc,
}

impl FedError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Size | Self::Header | Self::Trailer => Cause::Malformed,
            Self::Length => Cause::LengthMismatch,
            Self::Source => Cause::WrongSource,
            Self::Crc => Cause::CrcError,
        }
    }
}

/// The bits `low .. low + width` of a word.
const fn field(word: u64, low: u32, width: u32) -> u64 {
    word >> low & ((1 << width) - 1)
}

/// The word with the bits `low .. low + width` replaced; excess bits of `value` are cut off.
const fn with_field(word: u64, low: u32, width: u32, value: u64) -> u64 {
    let mask = ((1 << width) - 1) << low;
    word & !mask | value << low & mask
}

/// The first word of a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header(u64);

impl Header {
    const NIBBLE: u64 = 5;
    /// The largest L1 id; the next is 0.
    pub const MAX_LEVEL1_ID: u32 = (1 << 24) - 1;

    /// A header of version 0 and event type 0. Of `source` and `bunch_crossing` 12 bits are used, of `level1_id` 24.
    pub const fn new(source: SourceId, level1_id: u32, bunch_crossing: u16) -> Self {
        Self(with_field(Self::NIBBLE << 60, 8, 12, source.0 as u64))
            .with_level1_id(level1_id)
            .with_bunch_crossing(bunch_crossing)
    }

    /// The header in the first bytes of a fragment.
    ///
    /// # Errors
    /// [`FedError::Header`] if the highest four bits are not 5.
    pub const fn parse(bytes: [u8; 8]) -> Result<Self, FedError> {
        let word = u64::from_le_bytes(bytes);
        if word >> 60 == Self::NIBBLE { Ok(Self(word)) } else { Err(FedError::Header) }
    }

    /// The header's bytes in a fragment.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The header as a number.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The source (12 bits, the FED id).
    pub const fn source(self) -> SourceId {
        SourceId(field(self.0, 8, 12) as u32)
    }

    /// The trigger's number, modulo 2^24.
    pub const fn level1_id(self) -> u32 {
        field(self.0, 32, 24) as u32
    }

    /// The bunch crossing of the trigger within its orbit (12 bits).
    pub const fn bunch_crossing(self) -> u16 {
        field(self.0, 20, 12) as u16
    }

    /// The kind of event, for example physics or calibration (4 bits).
    pub const fn event_type(self) -> u8 {
        field(self.0, 56, 4) as u8
    }

    /// The version of the payload's format (4 bits).
    pub const fn version(self) -> u8 {
        field(self.0, 4, 4) as u8
    }

    /// The same header with another trigger number, modulo 2^24.
    pub const fn with_level1_id(self, level1_id: u32) -> Self {
        Self(with_field(self.0, 32, 24, level1_id as u64))
    }

    /// The same header with another bunch crossing, modulo 2^12.
    pub const fn with_bunch_crossing(self, bunch_crossing: u16) -> Self {
        Self(with_field(self.0, 20, 12, bunch_crossing as u64))
    }
}

/// The last word of a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trailer(u64);

impl Default for Trailer {
    fn default() -> Self {
        Self::new()
    }
}

impl Trailer {
    const NIBBLE: u64 = 0xA;
    /// Offset of the two bytes of the CRC.
    const CRC_BYTE: usize = 2;
    /// The bits that the CRC does not cover: its own field, and the bits 2, 14 and 15 that the link sets by itself.
    const OUTSIDE_CRC: u64 = 0xFFFF_C004;

    /// A trailer of length 0, status 0 and TTS state 0, without CRC: [`encode`] fills in the rest.
    pub const fn new() -> Self {
        Self(Self::NIBBLE << 60)
    }

    /// The trailer in the last bytes of a fragment.
    ///
    /// # Errors
    /// [`FedError::Trailer`] if the highest four bits are not 0xA.
    pub const fn parse(bytes: [u8; 8]) -> Result<Self, FedError> {
        let word = u64::from_le_bytes(bytes);
        if word >> 60 == Self::NIBBLE { Ok(Self(word)) } else { Err(FedError::Trailer) }
    }

    /// The trailer's bytes in a fragment.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The trailer as a number.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The length of the fragment in 64-bit words, header and trailer included (24 bits).
    pub const fn length_in_words(self) -> u32 {
        field(self.0, 32, 24) as u32
    }

    /// The CRC of the fragment.
    pub const fn crc(self) -> u16 {
        field(self.0, 16, 16) as u16
    }

    /// The event fragment's status (4 bits).
    pub const fn status(self) -> u8 {
        field(self.0, 8, 4) as u8
    }

    /// The state of the trigger throttling system (TTS) in the front end (4 bits).
    pub const fn tts(self) -> u8 {
        field(self.0, 4, 4) as u8
    }

    /// Whether another trailer word follows.
    pub const fn more_trailers(self) -> bool {
        field(self.0, 3, 1) == 1
    }

    /// The same trailer with another length in words, modulo 2^24.
    pub const fn with_length_in_words(self, words: u32) -> Self {
        Self(with_field(self.0, 32, 24, words as u64))
    }

    /// The same trailer with another CRC.
    pub const fn with_crc(self, crc: u16) -> Self {
        Self(with_field(self.0, 16, 16, crc as u64))
    }

    /// Whether the trailer has the right CRC, given the CRC `crc` over all bytes of the fragment including this
    /// trailer.
    fn matches(self, crc: Crc16) -> bool {
        self.covered(crc) == self.crc()
    }

    /// Returns the CRC that a fragment should have, given the CRC `crc` over all of its bytes. The bits that the CRC
    /// does not cover are taken out afterwards, so that the whole fragment is read in one pass.
    pub fn covered(self, crc: Crc16) -> u16 {
        crc.value() ^ crc16_of_change(self.0 & Self::OUTSIDE_CRC)
    }
}

/// The first and the last word of a fragment whose size is known: the parts that can be checked without reading the
/// payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    header: Header,
    trailer: Trailer,
}

impl Ends {
    /// Checks the first and the last word of a fragment of `length` bytes, wherever the bytes between them are.
    ///
    /// # Errors
    /// [`FedError::Size`], [`FedError::Header`], [`FedError::Trailer`] or [`FedError::Length`], in this order.
    pub fn parse(first: [u8; 8], last: [u8; 8], length: usize) -> Result<Self, FedError> {
        if !(MIN_BYTES..=MAX_BYTES).contains(&length) || !length.is_multiple_of(WORD_BYTES) {
            return Err(FedError::Size);
        }
        let (header, trailer) = (Header::parse(first)?, Trailer::parse(last)?);
        if trailer.more_trailers() {
            return Err(FedError::Trailer);
        }
        let ends = Self { header, trailer };
        if ends.length() == length { Ok(ends) } else { Err(FedError::Length) }
    }

    /// The first word.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The last word.
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }

    /// The whole fragment's length in bytes.
    pub fn length(&self) -> usize {
        self.trailer.length_in_words() as usize * WORD_BYTES
    }

    /// Checks the source of the fragment.
    ///
    /// # Errors
    /// [`FedError::Source`] if the header has another source than `expected`.
    pub fn check_source(&self, expected: SourceId) -> Result<(), FedError> {
        if self.header.source() == expected { Ok(()) } else { Err(FedError::Source) }
    }

    /// Checks the CRC over the whole fragment in pieces of any size (header and trailer included), in order.
    ///
    /// # Errors
    /// [`FedError::Length`] if the pieces are not as long as the fragment, [`FedError::Crc`] if their CRC differs from
    /// the trailer's.
    pub fn check_crc<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(), FedError> {
        let mut crc = Crc16::new();
        let mut total = 0;
        for piece in pieces {
            total += piece.len();
            crc.update(piece);
        }
        if total != self.length() {
            return Err(FedError::Length);
        }
        if self.trailer.matches(crc) { Ok(()) } else { Err(FedError::Crc) }
    }
}

/// A view of a whole fragment whose first and last word and length were checked, but not its CRC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    bytes: &'a [u8],
    ends: Ends,
}

impl<'a> Fragment<'a> {
    /// Checks everything but CRC and source.
    ///
    /// # Errors
    /// As [`Ends::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FedError> {
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
            return Err(FedError::Size);
        };
        Ok(Self { bytes, ends: Ends::parse(*first, *last, bytes.len())? })
    }

    /// First and last word.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// The first word.
    pub fn header(&self) -> Header {
        self.ends.header
    }

    /// The last word.
    pub fn trailer(&self) -> Trailer {
        self.ends.trailer
    }

    /// The whole fragment.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes between the first and the last word. Further header and trailer words are part of it.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[WORD_BYTES..self.bytes.len() - WORD_BYTES]
    }

    /// Checks the source of the fragment.
    ///
    /// # Errors
    /// [`FedError::Source`].
    pub fn check_source(&self, expected: SourceId) -> Result<(), FedError> {
        self.ends.check_source(expected)
    }

    /// Checks the CRC.
    ///
    /// # Errors
    /// [`FedError::Crc`].
    pub fn check_crc(&self) -> Result<(), FedError> {
        self.ends.check_crc([self.bytes])
    }

    /// Copies the fragment into an owned value.
    pub fn to_value(&self) -> OwnedFragment {
        OwnedFragment { header: self.header(), payload: self.payload().to_vec(), trailer: self.trailer() }
    }
}

/// An owned fragment. Its trailer has the received length and CRC; [`OwnedFragment::encode`] sets them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFragment {
    /// The first word.
    pub header: Header,
    /// The words between header and trailer.
    pub payload: Vec<u8>,
    /// The last word.
    pub trailer: Trailer,
}

impl OwnedFragment {
    /// Appends the fragment's bytes; see [`encode`].
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FedError> {
        encode(self.header, &self.payload, self.trailer, out)
    }
}

/// Appends a fragment to `out`: header, payload and trailer, with the right length and CRC in the trailer.
///
/// # Errors
/// [`FedError::Size`] if the payload is no whole number of 64-bit words or too long; nothing is appended then.
pub fn encode(header: Header, payload: &[u8], trailer: Trailer, out: &mut Vec<u8>) -> Result<(), FedError> {
    let header = header.to_bytes();
    let trailer = trailer_of(trailer, [&header[..], payload].into_iter())?;
    out.reserve(MIN_BYTES + payload.len());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    out.extend_from_slice(&trailer.to_bytes());
    Ok(())
}

/// Computes the trailer of a fragment, with length and CRC, from the pieces before it, the header first.
///
/// # Errors
/// [`FedError::Size`] if the pieces are no whole number of 64-bit words, or too long.
pub fn trailer_of<'a>(trailer: Trailer, pieces: impl Iterator<Item = &'a [u8]>) -> Result<Trailer, FedError> {
    let (mut crc, mut length) = (Crc16::new(), WORD_BYTES);
    for piece in pieces {
        crc.update(piece);
        length = length.saturating_add(piece.len());
    }
    if !(MIN_BYTES..=MAX_BYTES).contains(&length) || !length.is_multiple_of(WORD_BYTES) {
        return Err(FedError::Size);
    }
    let trailer = trailer.with_length_in_words((length / WORD_BYTES) as u32).with_crc(0);
    crc.update(&trailer.to_bytes());
    Ok(trailer.with_crc(trailer.covered(crc)))
}

/// Changes the header of fragments of one length, and their CRC with it, without touching the payload.
///
/// The CRC is linear: the effect of each changed bit of the header depends only on the fragment's length. An emulated
/// source thus makes a new fragment of an old one in some nanoseconds, at any size.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The change of the CRC for each value of each four bits of the header, the lowest four bits first.
    changes: [[u16; 16]; 16],
}

impl Patch {
    /// Makes a patch for fragments of `length` bytes (a multiple of 8, at least 16).
    pub fn for_length(length: usize) -> Self {
        let bits = crc16_of_bits((length / WORD_BYTES).saturating_sub(1) as u64);
        let mut changes = [[0; 16]; 16];
        for (changes, bits) in changes.iter_mut().zip(bits.as_chunks::<4>().0) {
            for (value, change) in changes.iter_mut().enumerate() {
                *change = (0..4).filter(|bit| value >> bit & 1 == 1).fold(0, |crc, bit| crc ^ bits[bit]);
            }
        }
        Self { changes }
    }

    /// The change of the CRC (exclusive or) when the first word changes by `change`.
    pub fn change(&self, mut change: u64) -> u16 {
        let mut crc = 0;
        for changes in &self.changes {
            crc ^= changes[(change & 15) as usize];
            change >>= 4;
        }
        crc
    }

    /// Replaces the first word `header` of a fragment by `new`, and the CRC in its last word `trailer`.
    pub fn apply(&self, header: &mut [u8; 8], trailer: &mut [u8; 8], new: Header) {
        let crc = u16::from_le_bytes([trailer[Trailer::CRC_BYTE], trailer[Trailer::CRC_BYTE + 1]]);
        let crc = crc ^ self.change(u64::from_le_bytes(*header) ^ new.to_word());
        *header = new.to_bytes();
        trailer[Trailer::CRC_BYTE..Trailer::CRC_BYTE + 2].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The places of the fragments in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Split {
    /// The fragments, in the order of the file, as ranges of bytes.
    pub fragments: Vec<Range<usize>>,
    /// The range that could not be cut: empty, unless the file is damaged or its end is missing.
    pub gap: Range<usize>,
}

/// Cuts a file of bare fragments.
///
/// Forwards, a fragment ends at the first word that looks like a trailer, states the right length, and has either the
/// right CRC or a header (or the file's end) behind it. The look of a word is not enough: in the CMS files 1,366
/// interior words look like trailers. If there is no such word, the rest is cut backwards from the file's end by the
/// lengths in the trailers, by the same rule. The range that neither way reaches is the gap. The time is linear in the
/// file's size.
pub fn split_file(bytes: &[u8]) -> Split {
    let mut split = Split::default();
    let mut start = 0;
    while let Some(end) = end_of_fragment(bytes, start) {
        split.fragments.push(start..end);
        start = end;
    }
    split.gap = start..bytes.len();
    let mut backwards = Vec::new();
    while let Some(begin) = begin_of_fragment(&bytes[..split.gap.end], start) {
        backwards.push(begin..split.gap.end);
        split.gap.end = begin;
    }
    split.fragments.extend(backwards.into_iter().rev());
    split
}

/// Cuts bytes that consist only of fragments back to back, like an event's data, by the lengths in the trailers. `None`
/// if the lengths do not lead back to the beginning. CRCs are not checked.
pub fn split_event(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut fragments, mut end) = (Vec::new(), bytes.len());
    while end > 0 {
        let trailer = Trailer::parse(*bytes[..end].last_chunk()?).ok()?;
        let begin = end.checked_sub(trailer.length_in_words() as usize * WORD_BYTES)?;
        Fragment::parse(&bytes[begin..end]).ok()?;
        fragments.push(begin..end);
        end = begin;
    }
    fragments.reverse();
    Some(fragments)
}

/// The end of the fragment that begins at `start`, if there is one.
fn end_of_fragment(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = &bytes[start..];
    let (words, _) = rest.as_chunks::<WORD_BYTES>();
    Header::parse(*words.first()?).ok()?;
    let (mut crc, mut covered) = (Crc16::new(), 0);
    for (index, &word) in words.iter().enumerate().take(MAX_BYTES / WORD_BYTES).skip(1) {
        let Ok(trailer) = Trailer::parse(word) else { continue };
        if trailer.length_in_words() as usize != index + 1 || trailer.more_trailers() {
            continue;
        }
        let end = (index + 1) * WORD_BYTES;
        // Continues at the last candidate, so that many candidates cost no more than one.
        crc.update(&rest[covered..end]);
        covered = end;
        if trailer.matches(crc) || ends_or_goes_on_with_a_header(&rest[end..]) {
            return Some(start + end);
        }
    }
    None
}

fn ends_or_goes_on_with_a_header(rest: &[u8]) -> bool {
    rest.is_empty() || rest.first_chunk().is_some_and(|&word| Header::parse(word).is_ok())
}

/// The beginning of the fragment that ends at the end of `bytes`, if there is one and it does not begin before
/// `lowest`.
fn begin_of_fragment(bytes: &[u8], lowest: usize) -> Option<usize> {
    let trailer = Trailer::parse(*bytes.last_chunk()?).ok()?;
    let begin = bytes.len().checked_sub(trailer.length_in_words() as usize * WORD_BYTES)?;
    let fragment = Fragment::parse(bytes.get(begin..).filter(|_| begin >= lowest)?).ok()?;
    let before = &bytes[..begin];
    let follows_a_trailer = before.last_chunk().is_some_and(|&word| Trailer::parse(word).is_ok());
    (begin == lowest || follows_a_trailer || fragment.check_crc().is_ok()).then_some(begin)
}
