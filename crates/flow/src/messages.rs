//! The messages between the modules of flow. No other types pass between them.
//!
//! Messages between nodes are defined in wire. This module adds the values that carry their bytes within one node, and
//! the functions that move them.

pub use ropewalk_wire::message::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, BATCH, Batch, Credit, Ended, Finished,
    FragmentFlags, FragmentMeta, Gap, GapPart, Lacking, LackingEntry, Lumisection, LumisectionEnd, Mask, Message,
    NumberingAnomaly, NumberingKind, ReadoutState, Release, ReleaseEntry, Report, ReportEntry, Request, RequestEntry,
    Resync, Setting, Start, SuperFragmentEntry, SynchronyState, Unreleased, UnreleasedEntry,
};

use ropewalk_memory::Payload;

/// The data of one source for one event, with its bytes in the pool. Its size is one cache line.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Source and metadata; `meta.length` is the payload's length.
    pub meta: FragmentMeta,
    /// The bytes, without transport framing: a whole FED fragment, or a generic fragment's payload.
    pub payload: Payload,
}

const _: () = assert!(size_of::<Fragment>() == 64, "a fragment is a line of the cache");

/// A fragment as the framer found it, before its counter was unwrapped to a key.
#[derive(Clone, Debug)]
pub struct Received {
    /// Source and metadata; `meta.raw_id` is the source's own counter.
    pub meta: FragmentMeta,
    /// Whether the source restarts its numbering here (a resynchronisation).
    pub restarts: bool,
    /// The bytes, without transport framing.
    pub payload: Payload,
}

impl Received {
    /// Takes the fragment out and leaves one without bytes.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self { payload: core::mem::take(&mut self.payload), ..*self }
    }
}

// Moves of fragments directly to their destination. If a value may have to be dropped on the way (the vector must grow,
// or the destination is occupied), the compiler builds it on the stack first. It is then read in other pieces than it
// was written in, and the resulting processor stall takes longer than the rest of the move.

/// Appends a value for which the vector has room.
///
/// # Panics
/// If there is no room: the caller must reserve it first.
#[inline(always)]
pub(crate) fn append<T>(out: &mut Vec<T>, value: T) {
    if out.len() < out.capacity() {
        out.push(value);
    } else {
        core::mem::forget(value);
        unreachable!("room is reserved before");
    }
}

/// Overwrites a value that needs no drop. If it did, its memory would be lost for its pool.
#[inline(always)]
pub(crate) fn overwrite<T>(vacant: &mut T, value: T) {
    core::mem::forget(core::mem::replace(vacant, value));
}
