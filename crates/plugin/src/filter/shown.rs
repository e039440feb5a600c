//! An event as C sees it: structs that point to each other and to the bytes, made anew for each event in memory that is kept.

use super::interface::{RawBytes, RawEvent, RawFragment};
use ropewalk_terms::{Attempt, EventKey, RunNumber};

/// What is known of an event beside its fragments.
#[derive(Copy, Clone, Debug)]
pub(super) struct Head {
    pub(super) run: RunNumber,
    pub(super) key: EventKey,
    pub(super) attempt: Attempt,
    pub(super) flags: u32,
    pub(super) trigger_type: u16,
}

/// The structs of one event.
#[derive(Debug, Default)]
pub(super) struct Shown {
    fragments: Vec<RawFragment>,
    pieces: Vec<RawBytes>,
}

impl Shown {
    /// Another event begins.
    pub(super) fn clear(&mut self) {
        self.fragments.clear();
        self.pieces.clear();
    }

    /// The pieces of the fragment that comes next.
    pub(super) fn piece(&mut self, start: *const u8, length: usize) {
        self.pieces.push(RawBytes { start, length });
    }

    /// A fragment, after all of its pieces; where those lie is filled in at the end.
    pub(super) fn fragment(&mut self, fragment: RawFragment) {
        self.fragments.push(fragment);
    }

    /// The whole event. What it points to is there until this is changed.
    pub(super) fn event(&mut self, head: Head) -> RawEvent {
        let mut first = 0;
        for fragment in &mut self.fragments {
            // Only now: they moved while there came more of them.
            fragment.pieces = self.pieces[first..].as_ptr();
            first += fragment.piece_count;
        }
        RawEvent {
            size: size_of::<RawEvent>() as u32,
            run: head.run.0,
            key: head.key.to_bits(),
            number: head.key.number(),
            resync: head.key.resync().into(),
            attempt: head.attempt.0.into(),
            flags: head.flags,
            trigger_type: head.trigger_type.into(),
            fragments: self.fragments.as_ptr(),
            fragment_count: self.fragments.len(),
        }
    }
}
