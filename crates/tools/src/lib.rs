//! What is done with run files when the run is over: count and check, show, close what a crash left open, send again.
//!
//! ```text
//! segment      which segments there are; one segment, record after record, through a window of bounded size; its index, its checksum
//! run_index    where every copy of every event is; one copy per key, in the order of the keys; or all in the order of the files
//! run_writer   run files written without a run
//! verify, inspect, recover, replay
//! faulty       the first events that are incomplete or doubtful, with sources and causes
//! origin       bytes of a file, a FIFO or standard input; packed files (gzip, bzip2, xz, zstd, lz4) read as if they were not
//! felix        blocks of a FELIX card in place of run files: decode, dump, generate
//! export       run files as files of other formats
//! foreign      files of other formats, and captures of network traffic
//! file_based   files of events, and the processes that filter them
//! library_process   the process of a library's filter
//! status       the exit status of commands, and why
//! ```
//! Files are read, never mapped: another process may cut them at any time. Memory holds a window per file being
//! read and 40 bytes per event record.

mod error;
pub mod export;
mod faulty;
pub mod felix;
pub mod file_based;
pub mod foreign;
mod inspect;
pub mod library_process;
mod origin;
mod recover;
mod replay;
mod run_index;
mod run_writer;
mod segment;
pub mod status;
#[cfg(test)]
mod tests;
mod verify;

pub use error::OfflineError;
pub use faulty::{EventFault, FaultyEvent, FaultyEvents, NAMED_EVENTS};
pub use inspect::{InspectOptions, inspect, readings, show_readings};
pub use origin::Packing;
pub use recover::{RECOVER_SCHEMA, RecoverAction, RecoverReport, RecoveredSegment, recover};
pub use replay::{ReplayOptions, Replayed, replay};
pub use run_index::{EventCopy, OrderedReader, RunEvent, RunIndex, RunReader, StreamContent};
pub use segment::checksum_of;
pub use segment::{Footer, FooterState, Found, SegmentFile, SegmentReader, SegmentScan, segment_files};
pub use verify::{Gap, StreamReport, VERIFY_SCHEMA, VerifyReport, verify};
