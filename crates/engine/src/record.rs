//! Event records: the common view of an event, whichever machine built it, for run files, pipes and taps.

use ropewalk_flow::builder::EventView;
use ropewalk_flow::messages::{FragmentFlags, FragmentMeta};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Cause, Incarnation};
use ropewalk_wire::run_file::{
    ClockDomain, EventFlags, EventHead, EventRecordEncoder, FragmentEntry, IndexEntry, MissingSource,
};

/// An event that can be written.
pub trait Recorded {
    /// Returns its head; `incarnation` is the writer's.
    fn head(&self, incarnation: Incarnation) -> EventHead;

    /// Returns the sources without a fragment in it.
    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone;

    /// Returns its fragments.
    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone;

    /// Passes the fragments' bytes to the encoder and appends them to `pieces`, in the order of the entries, by
    /// reference or copied. Returns false if there was no room for a copy; the appended pieces are then removed again.
    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool;
}

/// An event of a builder unit. Its fragments are referenced in place.
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

/// The answer of a sink to an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Filed {
    /// The sink has taken it, and will report its progress ([`EventSink::poll`](crate::EventSink::poll)).
    Taken,
    /// There is no room now; offer it again.
    NoRoom,
    /// It cannot be written at all, for this cause.
    Refused(Cause),
}

/// When a record's checksum is computed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sealing {
    /// When it is encoded.
    Now,
    /// By the disk that writes it ([`NewFile::seals`](ropewalk_io::disk::NewFile::seals)).
    ByDisk,
}

/// Encodes an event as a record of a run file into `pieces`, which are replaced: head and tail are staged, payloads
/// referenced or copied, depending on the event. `scratch` grows to the longest head. Returns the record's length in
/// bytes and its index entry, as if the record were at offset 0.
///
/// # Errors
/// [`Filed::NoRoom`] if the staging pool is empty; [`Filed::Refused`] if the event is longer than a record may be.
/// `pieces` is then empty.
pub fn encode_record(
    event: &impl Recorded,
    incarnation: Incarnation,
    sealing: Sealing,
    scratch: &mut Vec<u8>,
    staging: &mut Staging,
    pieces: &mut Vec<Slice>,
) -> Result<(u64, IndexEntry), Filed> {
    pieces.clear();
    let head = event.head(incarnation);
    let (missing, entries) = (Counted::new(event.missing()), Counted::new(event.entries()));
    let needed = EventRecordEncoder::head_bytes(missing.len(), entries.len());
    if scratch.len() < needed {
        scratch.resize(needed, 0);
    }
    // An event that has room in the buffer and cannot be encoded is longer than a record may be.
    let encoder = match sealing {
        Sealing::Now => EventRecordEncoder::begin(scratch, &head, missing, entries),
        Sealing::ByDisk => EventRecordEncoder::begin_open(scratch, &head, missing, entries),
    };
    let mut encoder = encoder.map_err(|_| Filed::Refused(Cause::TooLarge))?;
    let head_length = encoder.head_length();
    if stage(staging, &scratch[..head_length], pieces) && event.payloads(&mut encoder, staging, pieces) {
        let encoded = (encoder.record_length() as u64, encoder.index_entry(0));
        if let Some(tail) = encoder.finish().ok().and_then(|tail| staging.write(tail.as_bytes())) {
            pieces.push(tail);
            return Ok(encoded);
        }
    }
    pieces.clear();
    Err(Filed::NoRoom)
}

/// Stages bytes of any length in pieces. Returns false, with `pieces` unusable, if the staging pool is empty.
pub(super) fn stage(staging: &mut Staging, bytes: &[u8], pieces: &mut Vec<Slice>) -> bool {
    pieces.clear();
    bytes.chunks(staging.largest()).all(|chunk| staging.write(chunk).map(|slice| pieces.push(slice)).is_some())
}

/// An iterator whose length was counted beforehand.
struct Counted<I> {
    inner: I,
    left: usize,
}

impl<I: Iterator + Clone> Counted<I> {
    fn new(inner: I) -> Self {
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
