//! CRC-32C, the checksum of records, as it grows piece by piece.

pub(super) use ropewalk_kernels::crc32c;

/// CRC-32C of everything that it was shown, as in iSCSI, SCTP and ext4.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Shows it the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c(self.0, bytes);
    }

    /// The checksum of all bytes so far.
    pub const fn value(self) -> u32 {
        self.0
    }
}
