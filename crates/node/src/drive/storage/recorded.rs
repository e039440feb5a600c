//! What a record is made of, wherever the event was built.

use ropewalk_flow::builder::EventView;
use ropewalk_flow::messages::{FragmentFlags, FragmentMeta};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Incarnation;
use ropewalk_wire::run_file::{ClockDomain, EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};

/// An event that can be written.
pub trait Recorded {
    /// What is known of it; `incarnation` is the writer's.
    fn head(&self, incarnation: Incarnation) -> EventHead;

    /// Sources without a fragment in it.
    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone;

    /// Its fragments.
    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone;

    /// Shows the fragments' bytes to the encoder and appends them to `pieces`, in the order of the entries: as they lie, or
    /// copied. False where there was no room for a copy; what was appended is then left out again.
    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool;
}

/// An event of a builder unit: its fragments stay where they lie.
impl Recorded for EventView<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        EventHead {
            key: self.key,
            incarnation,
            attempt: self.attempt,
            trigger_type: self.trigger_type(),
            flags: flags(self),
        }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        EventView::missing(self).map(|(source, cause)| MissingSource::new(source, cause))
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        self.fragments().map(|fragment| entry(&fragment.meta))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, _: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        for fragment in self.fragments() {
            for slice in fragment.payload.clone().into_slices() {
                encoder.payload(&slice);
                pieces.push(slice);
            }
        }
        true
    }
}

fn flags(event: &EventView<'_>) -> EventFlags {
    let mut flags = EventFlags::default();
    if !event.complete {
        flags = flags.with(EventFlags::INCOMPLETE);
    }
    if event.fragments().any(|fragment| fragment.meta.flags.has_error()) {
        flags = flags.with(EventFlags::DOUBTFUL);
    }
    flags
}

fn entry(meta: &FragmentMeta) -> FragmentEntry {
    let timed = meta.flags.contains(FragmentFlags::HAS_TIME);
    FragmentEntry {
        source: meta.source,
        flags: meta.flags,
        raw_id: meta.raw_id,
        raw_time: meta.time,
        time: if timed { meta.time as i64 } else { 0 },
        clock: if timed { ClockDomain::SOURCE } else { ClockDomain::NONE },
        bunch_crossing: meta.bunch_crossing,
        trigger_type: meta.trigger_type,
        length: meta.length,
    }
}

/// An iterator whose length was counted beforehand.
pub(super) struct Counted<I> {
    inner: I,
    left: usize,
}

impl<I: Iterator + Clone> Counted<I> {
    pub(super) fn new(inner: I) -> Self {
        Self { left: inner.clone().count(), inner }
    }
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.inner.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}
