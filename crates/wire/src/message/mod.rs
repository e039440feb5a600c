//! Every message between nodes: its direction, its fields, its bytes. The pull protocol in one place.
//!
//! ```text
//!              Hello, Welcome/Refuse          (every connection, both ways, first)
//!   RU  -> EVM  Announce, Highest, Ended, Lumisection, LumisectionEnd, Mask, Follows, StopAt, Finished,
//!               Report
//!   EVM -> RU   Start, QueryHighest, Highest, StopAt, Resync, Release, Ended, Recover, Finish, Finished,
//!               Lumisection, LumisectionEnd, Mask
//!   BU  -> EVM  Credit, Lacking, Acknowledge, Unreleased, Lumisection, LumisectionEnd, Synchrony, StopRequest, Finished,
//!               Report
//!   EVM -> BU   Start, Assign, ReadoutState, Lumisection, LumisectionEnd, StopAt (when the run drains), Recover, Finish, Finished
//!   BU  -> RU   Request            (data connection, opened by the BU)
//!   RU  -> BU   SuperFragments     (data connection; head, then the payloads as they lie in the RU's pool)
//! ```
//! A message is a [`Header`] of 32 bytes, then a body of the length that it states. All numbers are
//! little-endian. Every header carries run, epoch and the sender's incarnation; who receives decides by them
//! whether the message still counts. Lists are bounded by [`BATCH`], so that no message needs an allocation.
//! Control connections carry only small messages; payloads travel on data connections alone.

mod body;
mod ended;
mod header;
mod report;
mod super_fragments;
#[cfg(test)]
mod tests;

pub use body::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, Credit, Finished, Hello, Lacking,
    LackingEntry, Mask, Message, ReadoutState, RefuseReason, Release, ReleaseEntry, Request, RequestEntry, Resync,
    Setting, Start, SynchronyState, Unreleased, UnreleasedEntry,
};
pub use ended::{Ended, Lumisection, LumisectionEnd};
pub use header::{HEADER_BYTES, Header, Kind, MAGIC};
pub use report::{Gap, GapPart, NumberingAnomaly, NumberingKind, Report, ReportEntry};
pub use super_fragments::{
    FRAGMENT_ENTRY_BYTES, FragmentEntry, FragmentFlags, FragmentMeta, SUPER_FRAGMENT_ENTRY_BYTES, SuperFragmentEntry,
    SuperFragmentsEncoder, SuperFragmentsView,
};

/// The version of the protocol. A hello with another one is refused.
pub const PROTOCOL_VERSION: u16 = 7;

/// The most entries that a message carries.
pub const BATCH: usize = 64;

/// A list in a message: at most [`BATCH`] entries, no allocation.
pub type Batch<T> = arrayvec::ArrayVec<T, BATCH>;

/// The longest body of a control message, in bytes; a longer one is malformed.
pub const MAX_CONTROL_BODY: usize = 64 * 1024;
