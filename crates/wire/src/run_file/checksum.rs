//! CRC-32C, the checksum of records, as it grows piece by piece.

pub(super) use ropewalk_kernels::crc32c;

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Checksum(u32);

impl Checksum {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c(self.0, bytes);
    }

    pub(super) const fn value(self) -> u32 {
        self.0
    }
}
