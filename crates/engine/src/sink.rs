//! Event sinks: the interface between [`EventOutput`](crate::EventOutput) and the destination of accepted events.

use crate::filter::DecidedEvent;
use crate::record::{Filed, Recorded};
use crate::tap::Sampled;
use ropewalk_flow::gateway::GatheredEvent;
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_io::disk::DiskCause;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{
    AcknowledgementLevel, Incarnation, Instant, PoolAccount, Recorder, RunNumber, SourceId, StreamSet,
};
use ropewalk_wire::gateway::EventFlags as PushFlags;
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};
use std::ops::AddAssign;
use std::os::fd::BorrowedFd;

/// An accepted event on its way to a sink.
pub enum SinkEvent<'a> {
    /// An event of a builder unit, with the decision of its filter.
    Built(DecidedEvent<'a>),
    /// An event of a gateway.
    Gathered(GatewayEvent<'a>),
}

/// Takes accepted events. A sink never blocks: [`EventSink::poll`] advances its work, and [`EventSink::prepare_wait`],
/// [`EventSink::next_deadline`] and [`EventSink::wait_descriptor`] say when to call it again.
pub trait EventSink: Send {
    /// Begins a run, in this incarnation of the node.
    fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation);

    /// Takes an event, for all of these streams or for none. `slot` is the caller's identifier of the event.
    fn add_event(&mut self, now: Instant, slot: u32, event: &SinkEvent<'_>, streams: StreamSet) -> Filed;

    /// Ends a lumisection: no further event of it will be added.
    fn end_lumisection(&mut self, _lumisection: u32, _total: LumisectionTotal) {}

    /// Passes on the gathered data.
    fn flush(&mut self, now: Instant);

    /// Does the work that is possible now. Appends the slots of events whose state changed. Returns the amount of work
    /// done.
    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize;

    /// Drains the run: from here on a disk that rejects everything is given up after a time.
    fn drain(&mut self, now: Instant);

    /// Ends the input. To be called until [`EventSink::is_closed`].
    fn finish(&mut self, now: Instant);

    /// Returns whether everything is written and closed, or will never be.
    fn is_closed(&self) -> bool;

    /// Returns whether the disk was given up: unwritten and further events will not be written.
    fn has_given_up(&self) -> bool;

    /// Returns the counts of written data.
    fn counts(&self) -> StorageCounts;

    /// Returns the number of bytes that were copied to be written, without staged ones.
    fn copied_bytes(&self) -> u64;

    /// Returns whether there is something to write.
    fn is_writing(&self) -> bool;

    /// Returns the times of writes, if they are measured.
    fn times(&self) -> Option<&Recorder> {
        None
    }

    /// Reports the blocks in which data are staged, including returned ones.
    fn pool(&mut self) -> PoolAccount;

    /// Returns when to call [`EventSink::poll`] even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Prepares the thread's sleep. Returns false if there is work to do now.
    fn prepare_wait(&mut self) -> bool;

    /// Returns a descriptor that becomes readable when there is work to do.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Progress of an added event. For several copies, the lesser value holds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Progress {
    /// It will not be written: the disk was given up.
    Failed,
    /// It has reached this level.
    Reached(AcknowledgementLevel),
}

/// Counts of written and deleted data, of one stream or of all together.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageCounts {
    /// Event records written to the disk. An event has one in each of its streams.
    pub events: u64,
    /// Bytes written to the disk, counted before compression.
    pub bytes: u64,
    /// Segments closed and renamed.
    pub segments: u64,
    /// Segments deleted to stay within `keep`.
    pub deleted_segments: u64,
    /// Event records in them.
    pub deleted_events: u64,
    /// Bytes in them.
    pub deleted_bytes: u64,
    /// Event records that had been written to files that were then deleted and could not be written again.
    pub gone_events: u64,
    /// Files that were deleted or moved while they were written, and that were written again.
    pub restored_files: u64,
    /// Operations that the disk rejected; each is retried.
    pub refusals: u64,
    /// Why the disk rejects the current operations, or that it is fuller than it should be; `None` if it works.
    pub refused: Option<DiskCause>,
}

impl AddAssign for StorageCounts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.segments += other.segments;
        self.deleted_segments += other.deleted_segments;
        self.deleted_events += other.deleted_events;
        self.deleted_bytes += other.deleted_bytes;
        self.gone_events += other.gone_events;
        self.restored_files += other.restored_files;
        self.refusals += other.refusals;
        self.refused = self.refused.or(other.refused);
    }
}

/// Totals of a lumisection over all builder units.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionTotal {
    /// Written events.
    pub events: u64,
    /// Lost events.
    pub lost: u64,
}

impl LumisectionTotal {
    /// Returns the totals of a lumisection that is over.
    pub fn of(end: &LumisectionEnd) -> Self {
        let account = end.account();
        Self { events: account.built + account.incomplete_emitted, lost: account.incomplete_dropped.total() }
    }
}

/// An event of a set. When it is written its fragments are copied one after another. Each is so small that an entry in
/// a list of pieces would cost more, and the copy frees the packets immediately.
#[derive(Copy, Clone)]
pub struct GatewayEvent<'a> {
    event: GatheredEvent<'a>,
    /// The source ids of its flow.
    sources: &'a [SourceId],
}

impl<'a> GatewayEvent<'a> {
    pub(crate) fn new(event: GatheredEvent<'a>, sources: &'a [Vec<SourceId>]) -> Self {
        let flow = usize::from(event.head().flow);
        Self { event, sources: sources.get(flow).map(Vec::as_slice).unwrap_or_default() }
    }

    /// Returns the word with which the farm accepted it.
    pub(crate) fn word(&self) -> u32 {
        self.event.word()
    }

    fn id(&self, source: u16) -> SourceId {
        self.sources.get(usize::from(source)).copied().unwrap_or(SourceId(u32::from(source)))
    }
}

impl Recorded for GatewayEvent<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let head = self.event.head();
        let is_incomplete = head.flags.has(PushFlags::INCOMPLETE);
        let flags = if is_incomplete { EventFlags::INCOMPLETE } else { EventFlags::default() };
        // A run file has room only for the lower half of the word.
        EventHead { key: head.key, incarnation, attempt: head.attempt, trigger_type: self.event.word() as u16, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        self.event.missing().map(|(source, cause)| MissingSource::new(self.id(source), cause))
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        let raw_id = self.event.head().key.number();
        self.event
            .fragments()
            .map(move |(source, length)| FragmentEntry::bare(self.id(source), raw_id & 0xFFFF_FFFF, u32::from(length)))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        for piece in self.event.pieces() {
            encoder.payload(piece);
            let Some(copy) = staging.write(piece) else { return false };
            let apart = match pieces.last_mut() {
                Some(last) => last.join(copy).err(),
                None => Some(copy),
            };
            pieces.extend(apart);
        }
        true
    }
}

impl Sampled for GatewayEvent<'_> {
    fn lumisection(&self) -> u32 {
        self.event.lumisection()
    }

    fn pieces_of_each(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
        self.event.pieces_of_each()
    }
}
