//! An event whose bytes follow from its number.

use super::super::content::mixed;
use ropewalk_memory::{Slice, Staging};
use ropewalk_node::drive::Recorded;
use ropewalk_terms::{Attempt, EventKey, Incarnation, SourceId};
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};

/// The longest payload, in bytes.
pub(super) const MOST_BYTES: u64 = 700;

/// An event with one fragment.
pub(super) struct MadeEvent {
    number: u64,
    payload: Vec<u8>,
}

impl MadeEvent {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Self { number, payload: payload(seed, number) }
    }
}

/// What the fragment of an event holds.
pub(super) fn payload(seed: u64, number: u64) -> Vec<u8> {
    let length = mixed(seed, number, 1) % MOST_BYTES;
    (0..length).map(|place| mixed(seed, number, 2 + place) as u8).collect()
}

impl Recorded for MadeEvent {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let (key, flags) = (EventKey::new(0, self.number), EventFlags::default());
        EventHead { key, incarnation, attempt: Attempt(1), trigger_type: 0, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        std::iter::empty()
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        std::iter::once(FragmentEntry::bare(SourceId(1), self.number, self.payload.len() as u32))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        encoder.payload(&self.payload);
        staging.write(&self.payload).map(|slice| pieces.push(slice)).is_some()
    }
}
