//! What is done with run files when the run is over: count and check, show, close what a crash left open, send again.
//!
//! ```text
//! files            which segments there are
//! segment_reader   one segment, record after record, through a window of bounded size
//! run_reader       the events of many segments, in the order of the files
//! run_index        where every copy of every event lies; one copy per key, in the order of the keys
//! footer_reader    the index at a segment's end
//! run_writer       run files written without a run
//! verify, inspect, recover, replay
//! checksum         of a run file, and the file beside it in which it stands
//! origin           bytes of a file, a FIFO or standard input
//! unpack           packed files (gzip, bzip2, xz, zstd, lz4) read as if they were not
//! felix            blocks of a FELIX card in place of run files: decode, dump, generate
//! export           run files as files of other formats
//! foreign          files of other people's formats, and captures of network traffic
//! ```
//! Files are read, never mapped: somebody else may cut them at any time. Memory holds a window per file being
//! read and 40 bytes per event record.

mod checksum;
mod error;
pub mod export;
pub mod felix;
mod files;
mod footer_reader;
pub mod foreign;
mod inspect;
mod origin;
mod readings;
mod recover;
mod replay;
mod run_index;
mod run_reader;
mod run_writer;
mod segment_bytes;
mod segment_reader;
mod segment_scan;
#[cfg(test)]
mod tests;
mod unpack;
mod utc;
mod verify;

pub(crate) use checksum::checksum_of;
pub use error::OfflineError;
pub use files::{SegmentFile, segment_files};
pub use footer_reader::Footer;
pub use inspect::{InspectOptions, inspect};
pub use origin::ByteOrigin;
pub use readings::{readings, show_readings};
pub use recover::{RECOVER_SCHEMA, RecoverAction, RecoverReport, RecoveredSegment, recover};
pub use replay::{ReplayOptions, Replayed, replay};
pub use run_index::{EventCopy, OrderedReader, RunIndex, StreamContent};
pub use run_reader::{RunEvent, RunReader};
pub use segment_reader::{Found, SegmentReader};
pub use segment_scan::{FooterState, SegmentScan};
pub use unpack::Packing;
pub use verify::{Gap, StreamReport, VERIFY_SCHEMA, VerifyReport, verify};
