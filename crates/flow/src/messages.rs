//! What the rooms of flow say to each other, and nothing else.
//!
//! The messages between nodes are wire's; here are the values that travel inside one node with their bytes.

use ropewalk_memory::Payload;
pub use ropewalk_wire::message::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, BATCH, Batch, Credit, Ended, Finished,
    FragmentFlags, FragmentMeta, Gap, GapPart, Lacking, LackingEntry, Lumisection, LumisectionEnd, Mask, Message,
    NumberingAnomaly, NumberingKind, ReadoutState, Release, ReleaseEntry, Report, ReportEntry, Request, RequestEntry,
    Resync, Setting, Start, SuperFragmentEntry, SynchronyState, Unreleased, UnreleasedEntry,
};

/// One source's data for one event, with the bytes as they lie in the pool: as large as a line of the cache.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Whose it is and what is known about it; `meta.length` is the payload's length.
    pub meta: FragmentMeta,
    /// The bytes, without transport framing: a whole FED fragment, or a generic fragment's payload.
    pub payload: Payload,
}

const _: () = assert!(size_of::<Fragment>() == 64, "a fragment is a line of the cache");

/// A fragment as the framer found it, before its counter was unwrapped to a key.
#[derive(Clone, Debug)]
pub struct Received {
    /// Whose it is and what is known about it; `meta.raw_id` is the source's own counter.
    pub meta: FragmentMeta,
    /// The source says that its numbering starts again here (a resynchronisation).
    pub restarts: bool,
    /// The bytes, without transport framing.
    pub payload: Payload,
}

impl Received {
    /// Takes it out; what is left has no bytes.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self { payload: core::mem::take(&mut self.payload), ..*self }
    }
}
