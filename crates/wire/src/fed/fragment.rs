//! A whole fragment: as a view over one slice, in pieces, and as an owned value.

use super::{FedError, Header, MAX_BYTES, MIN_BYTES, Trailer, WORD_BYTES};
use ropewalk_kernels::Crc16;
use ropewalk_terms::SourceId;

/// The first and the last word of a fragment whose size is known: what can be checked without touching the payload.
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

    /// Checks whose fragment it is.
    ///
    /// # Errors
    /// [`FedError::Source`] where the header names another source than `expected`.
    pub fn check_source(&self, expected: SourceId) -> Result<(), FedError> {
        if self.header.source() == expected { Ok(()) } else { Err(FedError::Source) }
    }

    /// Checks the CRC over the whole fragment in pieces of any size (header and trailer included), in their order.
    ///
    /// # Errors
    /// [`FedError::Length`] where the pieces are not as long as the fragment, [`FedError::Crc`] where their CRC is
    /// not the trailer's.
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

/// A view over the bytes of a whole fragment whose first and last word and length were checked, its CRC not yet.
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

    /// What stands between the first and the last word. Further header and trailer words are part of it.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[WORD_BYTES..self.bytes.len() - WORD_BYTES]
    }

    /// The header words behind the first: each must be announced by the one before it and look like a header.
    pub fn further_headers(&self) -> impl Iterator<Item = Header> + use<'a> {
        let mut before = self.header();
        self.payload().as_chunks().0.iter().map_while(move |&word| {
            let next = Header::parse(word).ok().filter(|_| before.more_headers())?;
            before = next;
            Some(next)
        })
    }

    /// The trailer words before the last, from the back to the front: each must look like a trailer and announce
    /// the one behind it. Payload may look the same by chance.
    pub fn further_trailers(&self) -> impl Iterator<Item = Trailer> + use<'a> {
        let words = self.payload().as_chunks().0;
        words.iter().rev().map_while(|&word| Trailer::parse(word).ok().filter(|trailer| trailer.more_trailers()))
    }

    /// Checks whose fragment it is.
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

    /// The fragment as a value of its own.
    pub fn to_value(&self) -> OwnedFragment {
        OwnedFragment { header: self.header(), payload: self.payload().to_vec(), trailer: self.trailer() }
    }
}

/// A fragment as a value. Length and CRC of its trailer are those that came; [`OwnedFragment::encode`] sets them.
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
/// [`FedError::Size`] where the payload is no whole number of 64-bit words or too long; nothing is appended then.
pub fn encode(header: Header, payload: &[u8], trailer: Trailer, out: &mut Vec<u8>) -> Result<(), FedError> {
    encode_with(header, payload.len(), trailer, out, |place| place.copy_from_slice(payload))
}

/// As [`encode`], with a payload of so many bytes that `fill` writes where it belongs: all of them, which are 0 before.
///
/// # Errors
/// As [`encode`]; nothing is filled then.
pub fn encode_with(
    header: Header,
    payload_bytes: usize,
    trailer: Trailer,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), FedError> {
    let length = payload_bytes.saturating_add(MIN_BYTES);
    if length > MAX_BYTES || !length.is_multiple_of(WORD_BYTES) {
        return Err(FedError::Size);
    }
    let trailer = trailer.with_length_in_words((length / WORD_BYTES) as u32).with_crc(0);
    let start = out.len();
    out.reserve(length);
    out.extend_from_slice(&header.to_bytes());
    let payload = out.len()..out.len() + payload_bytes;
    out.resize(payload.end, 0);
    fill(&mut out[payload]);
    out.extend_from_slice(&trailer.to_bytes());
    let mut crc = Crc16::new();
    crc.update(&out[start..]);
    out.truncate(start + length - WORD_BYTES);
    out.extend_from_slice(&trailer.with_crc(trailer.covered(crc)).to_bytes());
    Ok(())
}
