//! The request for packets: a gateway's credit at the trigger.

use super::MepError;

/// Bytes of a request.
pub const MEP_REQUEST_BYTES: usize = 44;

/// A gateway has room for so many more packets of every source.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MepRequest {
    /// How many multi-event packets, of every source, it wants.
    pub count: u8,
    /// Counts the requests of this gateway, from 1: so that one that comes twice counts once.
    pub sequence: u32,
    /// The run.
    pub run: u32,
    /// When it was sent: whole seconds of UTC.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u64,
}

impl MepRequest {
    /// Encodes the request.
    pub fn to_bytes(self) -> [u8; MEP_REQUEST_BYTES] {
        let mut bytes = [0; MEP_REQUEST_BYTES];
        bytes[0] = self.count;
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.run.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.nanoseconds.to_le_bytes());
        bytes
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`MepError::Short`] and [`MepError::Length`] for another number of bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, MepError> {
        let (bytes, rest) = bytes.split_first_chunk::<MEP_REQUEST_BYTES>().ok_or(MepError::Short)?;
        let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let wide = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let (sequence, run, seconds, nanoseconds) = (number(4), number(8), wide(12), wide(20));
        let request = Self { count: bytes[0], sequence, run, seconds, nanoseconds };
        if rest.is_empty() { Ok(request) } else { Err(MepError::Length) }
    }
}
