//! MDF records: whole events of raw banks in LHCb's data files.
//!
//! ```text
//!  record  bytes of the record (u32), three times | checksum (u32) | compression (u8) | version << 4 | words of the rest of
//!          the header (u8) | data type (u8): 1 banks, 2 MEP | spare (u8)
//!          versions 1 and 3:  trigger mask (u32 x 4) | run (u32) | orbit (u32) | bunch (u32)
//!          banks, back to back, each padded to 4 B
//! ```
//! Little-endian, after LHCb's `MDFHeader.h` and `RawBank.h` ([`mep`](crate::mep) has the banks). The checksum covers everything
//! behind its own field; 0 says that nobody computed one. It is Jenkins' one-at-a-time hash (`hash32Checksum` in LHCb's
//! `RawEventHelpers`), with bytes taken as signed.

mod checksum;
mod record;
#[cfg(test)]
mod tests;

pub use checksum::hash32;
pub use record::{
    AboutEvent, FRONT_BYTES, HEADER_BYTES, LARGEST_BANK_DATA, MdfError, Record, RecordHeader, encode_record,
};
