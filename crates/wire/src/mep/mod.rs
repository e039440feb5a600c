//! Multi-event packets (MEP) of LHCb: one source's fragments of consecutive events, which travel as one IP packet.
//!
//! ```text
//!  packet    first event (u32) | packing factor (u16) | length with these 12 bytes (u16) | partition (u32) | fragments
//!  fragment  low half of the event's id (u16) | length of its banks (u16) | banks          one for each event
//!  bank      0xCBCB (u16) | length with these 8 bytes (u16) | type (u8) | version (u8) | source (i16) | data, padded to 4
//!  request   MEPs wanted (u8) | 0 (3) | sequence (u32) | run (u32) | seconds, nanoseconds (u64, u64) | 0 (16)
//! ```
//! Little-endian. The layouts are those of LHCb's online software (`MEPHdr.h`, `RawBank.h`). A request is 44 bytes long
//! there; what its last 16 are for is not known here: they are zero when sent and not looked at when read.

mod bank;
mod error;
mod packet;
mod request;
#[cfg(test)]
mod tests;

pub use bank::{BANK_HEADER_BYTES, BANK_MAGIC, Bank, Banks, bank_ranges, encode_bank};
pub use error::MepError;
pub use packet::{
    FRAGMENT_HEADER_BYTES, FragmentHeader, Fragments, LARGEST_MEP_BYTES, MEP_HEADER_BYTES, MepEncoder, MepHeader,
    MepView, check_fragments, encode_mep,
};
pub use request::{MEP_REQUEST_BYTES, MepRequest};
