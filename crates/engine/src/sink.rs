//! Where accepted events go: what [`EventOutput`](crate::EventOutput) gives to a sink, and what it hears of it.

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
    /// Of a builder unit, with what its filter decided.
    Built(DecidedEvent<'a>),
    /// Of a gateway.
    Gathered(GatewayEvent<'a>),
}

/// Takes accepted events. A sink never blocks: [`EventSink::poll`] moves its work on, and [`EventSink::prepare_wait`],
/// [`EventSink::next_deadline`] and [`EventSink::wait_descriptor`] say when to call it again.
pub trait EventSink: Send {
    /// A run begins, in this life of the node.
    fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation);

    /// Takes an event, for all of these streams or for none. `slot` is the caller's name for it.
    fn add_event(&mut self, now: Instant, slot: u32, event: &SinkEvent<'_>, streams: StreamSet) -> Filed;

    /// No event of this lumisection comes any more.
    fn end_lumisection(&mut self, _lumisection: u32, _total: LumisectionTotal) {}

    /// Passes on what has been gathered.
    fn flush(&mut self, now: Instant);

    /// Does what can be done now. Appends the slots of events whose state changed. Returns how much happened.
    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize;

    /// The run drains: from here on a disk that refuses everything is given up after a time.
    fn drain(&mut self, now: Instant);

    /// No event comes any more. To be called until [`EventSink::is_closed`].
    fn finish(&mut self, now: Instant);

    /// Everything is written and closed, or will never be.
    fn is_closed(&self) -> bool;

    /// The disk was given up: what it has not taken, and what comes now, will not be written.
    fn has_given_up(&self) -> bool;

    /// What was written.
    fn counts(&self) -> StorageCounts;

    /// Bytes that were copied to be written; what is staged does not count.
    fn copied_bytes(&self) -> u64;

    /// Whether there is something to write.
    fn is_writing(&self) -> bool;

    /// How long writing took, where that is measured.
    fn times(&self) -> Option<&Recorder> {
        None
    }

    /// Reports the blocks in which data are staged, including returned ones.
    fn pool(&mut self) -> PoolAccount;

    /// When to call [`EventSink::poll`] even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Before the thread sleeps: false if there is something to do now.
    fn prepare_wait(&mut self) -> bool;

    /// Becomes readable when there is something to do.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// What became of an event that was added; the lesser one is what can be said of several copies.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Progress {
    /// The disk was given up: it is not written.
    Failed,
    /// It has come so far.
    Reached(AcknowledgementLevel),
}

/// What was written and deleted: of one stream, or of all together.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageCounts {
    /// Event records that the disk has taken. An event has one in each of its streams.
    pub events: u64,
    /// Bytes that the disk has taken, counted before they are packed.
    pub bytes: u64,
    /// Segments closed and renamed.
    pub segments: u64,
    /// Segments deleted to stay within `keep`.
    pub deleted_segments: u64,
    /// Event records in them.
    pub deleted_events: u64,
    /// Bytes in them.
    pub deleted_bytes: u64,
    /// Event records that the disk had taken, in files that were deleted and that could not be written once more.
    pub gone_events: u64,
    /// Files that were deleted or moved while they were written, and that were written once more.
    pub restored_files: u64,
    /// Pieces of work that the disk refused; each is offered again.
    pub refusals: u64,
    /// Why the disk refuses what is offered now, or that it is fuller than it should be; `None` if it works.
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

/// What all builder units made of a lumisection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionTotal {
    /// Events that they wrote.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
}

impl LumisectionTotal {
    /// Of a lumisection that is over.
    pub fn of(end: &LumisectionEnd) -> Self {
        let account = end.account();
        Self { events: account.built + account.incomplete_emitted, lost: account.incomplete_dropped.total() }
    }
}

/// An event of a set. When it is written its fragments are copied one after another: each is so small that its place in
/// a list of pieces would cost more, and the packets that they lie in are free at once.
#[derive(Copy, Clone)]
pub struct GatewayEvent<'a> {
    event: GatheredEvent<'a>,
    /// The ids of its flow's sources.
    sources: &'a [SourceId],
}

impl<'a> GatewayEvent<'a> {
    pub(crate) fn new(event: GatheredEvent<'a>, sources: &'a [Vec<SourceId>]) -> Self {
        let flow = usize::from(event.head().flow);
        Self { event, sources: sources.get(flow).map(Vec::as_slice).unwrap_or_default() }
    }

    /// The word with which the farm accepted it.
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
        // The lower half of the word is all that a run file has room for.
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
