//! A fragment: 32 bytes of header, then the payload.

use super::{GenericError, HEADER_BYTES, VERSION, array_at};
use ropewalk_terms::SourceId;

const MAGIC: [u8; 4] = *b"RWFR";

/// What a header says besides numbers. Bits without a meaning are kept and ignored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// The source's numbering starts again with this fragment: a resynchronisation.
    pub const RESYNC: Self = Self(1);

    /// Whether the source's numbering starts again with this fragment.
    pub const fn has_resync(self) -> bool {
        self.0 & Self::RESYNC.0 != 0
    }
}

/// The header of a fragment.
///
/// ```text
///  0 "RWFR"   4 version u8   5 zero   6 flags u16   8 source id u32   12 payload length u32
/// 16 event number u64                              24 timestamp u64
/// ```
/// Receivers ignore what is to be zero: later versions may use it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose fragment it is; the same as in the hello.
    pub source: SourceId,
    /// What else there is to say.
    pub flags: Flags,
    /// The event's number: grows by one from trigger to trigger and is the same in all sources. Below 2^48.
    pub event_number: u64,
    /// When the trigger was, in nanoseconds of the clock that the hello names; 0 where the source has no clock.
    pub timestamp: u64,
    /// Bytes of payload behind this header.
    pub payload_bytes: u32,
}

impl Header {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`GenericError::Magic`] or [`GenericError::Version`]: the stream's framing is lost.
    pub const fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, GenericError> {
        if u32::from_le_bytes(array_at(bytes, 0)) != u32::from_le_bytes(MAGIC) {
            return Err(GenericError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(GenericError::Version);
        }
        Ok(Self {
            source: SourceId(u32::from_le_bytes(array_at(bytes, 8))),
            flags: Flags(u16::from_le_bytes(array_at(bytes, 6))),
            event_number: u64::from_le_bytes(array_at(bytes, 16)),
            timestamp: u64::from_le_bytes(array_at(bytes, 24)),
            payload_bytes: u32::from_le_bytes(array_at(bytes, 12)),
        })
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.event_number.to_le_bytes());
        bytes[24..].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes
    }

    /// Checks that the fragment may be taken over a connection of `source`, with at most `max_payload_bytes`.
    ///
    /// # Errors
    /// [`GenericError::Oversize`] (first, since it decides whether the stream can go on) or [`GenericError::Source`].
    pub const fn check(&self, source: SourceId, max_payload_bytes: u32) -> Result<(), GenericError> {
        if self.payload_bytes > max_payload_bytes {
            return Err(GenericError::Oversize);
        }
        if self.source.0 != source.0 {
            return Err(GenericError::Source);
        }
        Ok(())
    }

    /// Bytes of the whole fragment, header included.
    pub const fn fragment_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

/// A view over the first fragment of some bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    /// The fragment's header.
    pub header: Header,
    /// The source's data.
    pub payload: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// The fragment that `bytes` begin with, and the bytes behind it; nothing while some of it is missing.
    ///
    /// # Errors
    /// As [`Header::parse`].
    pub fn split_first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, GenericError> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let header = Header::parse(header)?;
        Ok(rest.split_at_checked(header.payload_bytes as usize).map(|(payload, rest)| (Self { header, payload }, rest)))
    }

    /// The fragment as a value of its own.
    pub fn to_value(&self) -> OwnedFragment {
        OwnedFragment { header: self.header, payload: self.payload.to_vec() }
    }
}

/// A fragment as a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFragment {
    /// The header; [`OwnedFragment::encode`] sets its payload length.
    pub header: Header,
    /// The source's data.
    pub payload: Vec<u8>,
}

impl OwnedFragment {
    /// Appends the fragment's bytes; see [`encode`].
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), GenericError> {
        encode(&self.header, &self.payload, out)
    }
}

/// Appends a fragment to `out`: the header, with the length of the payload, then the payload.
///
/// # Errors
/// [`GenericError::Oversize`] where the length does not fit into 32 bits; nothing is appended then.
pub fn encode(header: &Header, payload: &[u8], out: &mut Vec<u8>) -> Result<(), GenericError> {
    let payload_bytes = u32::try_from(payload.len()).map_err(|_| GenericError::Oversize)?;
    out.extend_from_slice(&Header { payload_bytes, ..*header }.to_bytes());
    out.extend_from_slice(payload);
    Ok(())
}
