//! The header of a file.

use super::FrdError;

/// Bytes of a file's header.
pub const FILE_HEADER_BYTES: usize = 22;
/// What every version of it begins with: no event does.
pub const FILE_MAGIC: [u8; 4] = *b"RAW_";
/// Version 1.
const VERSION: [u8; 4] = *b"0001";

/// The header of a file, version 1: what the file holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FileHeader {
    /// Events in it.
    pub events: u32,
    /// Bytes of it, this header included.
    pub file_bytes: u64,
}

impl FileHeader {
    /// The header in these bytes.
    ///
    /// # Errors
    /// [`FrdError::FileHeader`] where they are none of version 1.
    pub fn parse(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, FrdError> {
        let [m0, m1, m2, m3, v0, v1, v2, v3, s0, s1, e0, e1, e2, e3, size @ ..] = *bytes;
        let is_first = [m0, m1, m2, m3] == FILE_MAGIC && [v0, v1, v2, v3] == VERSION;
        if !is_first || usize::from(u16::from_le_bytes([s0, s1])) != FILE_HEADER_BYTES {
            return Err(FrdError::FileHeader);
        }
        Ok(Self { events: u32::from_le_bytes([e0, e1, e2, e3]), file_bytes: u64::from_le_bytes(size) })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..4].copy_from_slice(&FILE_MAGIC);
        bytes[4..8].copy_from_slice(&VERSION);
        bytes[8..10].copy_from_slice(&(FILE_HEADER_BYTES as u16).to_le_bytes());
        bytes[10..14].copy_from_slice(&self.events.to_le_bytes());
        bytes[14..].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes
    }
}
