//! FED raw data (FRD): whole events in the files of CMS's file-based high-level trigger.
//!
//! ```text
//!  file    [ header, 22 B: "RAW_" "0001" | 22 (u16) | events (u32) | bytes of the file, these included (u64) ] events
//!  event   header | FED fragments (S-LINK64), back to back | padding
//!  header, u32 each:  version 3:  3 | run | lumisection | event | bytes of data | bytes of padding | Adler-32
//!                     version 4:  4 | run | lumisection | event, lower half | upper half | data | padding | Adler-32
//!                     version 5:  5 | run | lumisection | event | bytes of data | CRC-32C
//!                     version 6:  as 5, with flags in the upper 16 bits of the first word
//! ```
//! Little-endian. Checksums cover the data, neither header nor padding. The layouts are those of cmssw (`FRDEventMessage.h`), the
//! names of the files those of its `FFFNamingSchema.h`. Events of versions 1 and 2 have no length, and are not read.

mod error;
mod event;
mod file;
mod name;
#[cfg(test)]
mod tests;

pub use error::FrdError;
pub use event::{Event, EventHeader, MOST_HEADER_BYTES, Version, checksum_of, encode_event};
pub use file::{FILE_HEADER_BYTES, FILE_MAGIC, FileHeader};
pub use name::{FileKind, FileName, NotAFile};
