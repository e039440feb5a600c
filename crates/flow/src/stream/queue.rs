//! The queue of one subscriber: runs of chunks as the decoder describes them, and separate chunks.
//!
//! ```text
//!  runs     | block's items: 3 | apart: 1 | block's items: 2 | ...      a word for each block, not for each chunk
//!  items    | short  scattered  short     | short  short     | ...      8 bytes each, as they came from the batch
//!  scattered, pieces    of the items that are scattered, in their order
//!  apart    | a chunk with bytes of its own | ...                       copies, and what a rule chose chunk by chunk
//! ```
//! The bytes of a run are given by a position in the ring; [`Pages`] keeps the pages while any queue needs them.

use super::RouterConfig;
use crate::readout::felix::{ChunkBatch, Piece, Run, Scattered};
use ropewalk_memory::ring::RingReader;
use ropewalk_memory::{Payload, PoolId, Slice};
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{ELink, SubChunk, SubChunkType, Trailer};
use ropewalk_wire::stream::{CHUNK_HEAD_BYTES, ChunkHead, MOST_CHUNKS, heads_bytes};
use std::collections::{VecDeque, vec_deque};
use std::ops::ControlFlow;

/// Number of bytes per additional piece for which there is room, besides two pieces per chunk.
const BYTES_OF_PIECE: u64 = 512;

/// Adjacent entries of the queue: items of one block, or separate chunks.
#[derive(Copy, Clone, Debug)]
struct QueuedRun {
    /// The position of the beginning of its batch.
    position: u64,
    /// The lowest position of the ring that this run, or one behind it, needs; `u64::MAX` if none does.
    needs_from: u64,
    since: Instant,
    /// Bytes of all its chunks.
    bytes: u64,
    count: u32,
    elink: ELink,
    sequence: u8,
    is_apart: bool,
}

/// The origin of items.
#[derive(Copy, Clone, Debug)]
pub(super) struct Origin<'a> {
    pub(super) batch: &'a ChunkBatch,
    pub(super) run: &'a Run,
    /// The lowest position of the ring that they need.
    pub(super) needs_from: u64,
    pub(super) now: Instant,
}

/// Limits of a message.
#[derive(Copy, Clone, Debug)]
pub(super) struct MessageLimits {
    /// The most bytes, including headers.
    pub(super) most_bytes: usize,
    /// The most payload bytes, if there are several chunks.
    pub(super) most_payload: u64,
}

/// A number of chunks and their bytes.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Amount {
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
}

impl Amount {
    /// Adds one chunk.
    #[inline]
    pub(super) const fn add(&mut self, bytes: u64) {
        self.chunks += 1;
        self.bytes += bytes;
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    runs: VecDeque<QueuedRun>,
    items: VecDeque<SubChunk>,
    scattered: VecDeque<Scattered>,
    pieces: VecDeque<Piece>,
    apart: VecDeque<StreamChunk>,
    amount: Amount,
}

/// A position in the arrays of a queue.
#[derive(Copy, Clone, Default, Debug)]
struct Places {
    items: usize,
    scattered: usize,
    pieces: usize,
    apart: usize,
}

impl Queue {
    pub(super) fn new(config: &RouterConfig) -> Self {
        let chunks = config.queue_chunks.max(1);
        Self {
            runs: VecDeque::with_capacity(chunks),
            items: VecDeque::with_capacity(chunks),
            scattered: VecDeque::with_capacity(chunks),
            pieces: VecDeque::with_capacity(2 * chunks + (config.queue_bytes / BYTES_OF_PIECE) as usize),
            apart: VecDeque::with_capacity(chunks),
            amount: Amount::default(),
        }
    }

    /// Returns the amount that waits.
    pub(super) const fn amount(&self) -> Amount {
        self.amount
    }

    /// Returns when the oldest chunk began to wait.
    pub(super) fn since(&self) -> Option<Instant> {
        Some(self.runs.front()?.since)
    }

    /// Returns the lowest position of the ring that is needed; `u64::MAX` if none is.
    pub(super) fn needs_from(&self) -> u64 {
        self.runs.front().map_or(u64::MAX, |run| run.needs_from)
    }

    /// Appends a chunk with its own bytes.
    pub(super) fn push(&mut self, chunk: StreamChunk, since: Instant) {
        let bytes = u64::from(chunk.head.length);
        match self.runs.back_mut().filter(|run| run.is_apart && run.since == since) {
            Some(run) => (run.count, run.bytes) = (run.count + 1, run.bytes + bytes),
            None => self.runs.push_back(apart(1, bytes, since)),
        }
        self.apart.push_back(chunk);
        self.amount.add(bytes);
    }

    /// Whether a scattered chunk of `pieces` pieces can wait as it is.
    pub(super) fn has_room_for_pieces(&self, pieces: u32) -> bool {
        self.pieces.len() + pieces as usize <= self.pieces.capacity()
            && self.scattered.len() < self.scattered.capacity()
    }

    /// Appends items of a run that are all chunks; only the first one may be scattered.
    #[inline]
    pub(super) fn push_items(&mut self, from: Origin<'_>, items: &[SubChunk], bytes: u64) {
        if let Some(&first) = items.first().filter(|first| is_scattered(**first)) {
            self.push_pieces(from.batch, first);
        }
        self.items.extend(items);
        self.begin_run(from, items.len() as u32, bytes);
    }

    /// Appends one chunk; it is merged with the last run if it is adjacent to it.
    pub(super) fn push_item(&mut self, from: Origin<'_>, item: SubChunk, bytes: u64, is_neighbour: bool) {
        if is_scattered(item) {
            self.push_pieces(from.batch, item);
        }
        self.items.push_back(item);
        match self.runs.back_mut().filter(|run| is_neighbour && !run.is_apart) {
            Some(run) => {
                (run.count, run.bytes) = (run.count + 1, run.bytes + bytes);
                self.amount.add(bytes);
            }
            None => self.begin_run(from, 1, bytes),
        }
    }

    fn push_pieces(&mut self, batch: &ChunkBatch, item: SubChunk) {
        let scattered = &batch.scattered()[item.offset as usize];
        self.scattered.push_back(*scattered);
        self.pieces.extend(batch.pieces(scattered));
    }

    #[inline]
    fn begin_run(&mut self, from: Origin<'_>, count: u32, bytes: u64) {
        let Origin { batch, run: &Run { elink, sequence, .. }, needs_from, now } = from;
        // The first run's requirement must be the lowest.
        if self.runs.back().is_some_and(|last| last.needs_from > needs_from) {
            self.lower(needs_from);
        }
        let position = batch.position();
        self.runs.push_back(QueuedRun {
            position,
            needs_from,
            since: now,
            bytes,
            count,
            elink,
            sequence,
            is_apart: false,
        });
        self.amount.chunks += u64::from(count);
        self.amount.bytes += bytes;
    }

    #[cold]
    fn lower(&mut self, needs_from: u64) {
        let later = self.runs.iter_mut().rev().take_while(|run| run.needs_from > needs_from);
        later.for_each(|run| run.needs_from = needs_from);
    }

    /// Passes the oldest chunks to a callback one by one, as many as fit into a message. Removes the accepted ones,
    /// before the first break.
    #[inline]
    pub(super) fn take(
        &mut self,
        limits: MessageLimits,
        pages: &Pages,
        mut visit: impl FnMut(QueuedChunk<'_>) -> ControlFlow<()>,
    ) -> Amount {
        let (mut taken, mut at, mut runs) = (Amount::default(), Places::default(), 0);
        while let Some(run) = self.runs.get(runs).copied() {
            let fitting = self.fitting(&run, at, taken, limits);
            let seen = self.show(&run, &mut at, fitting, pages, &mut visit);
            taken.chunks += seen.chunks;
            taken.bytes += seen.bytes;
            if seen.chunks < u64::from(run.count) {
                let run = &mut self.runs[runs];
                run.count -= seen.chunks as u32;
                run.bytes -= seen.bytes;
                break;
            }
            runs += 1;
        }
        self.forget(runs, at);
        self.amount.chunks -= taken.chunks;
        self.amount.bytes -= taken.bytes;
        taken
    }

    /// Returns how many chunks of a run fit into a message after the ones already taken.
    #[inline]
    fn fitting(&self, run: &QueuedRun, at: Places, mut taken: Amount, limits: MessageLimits) -> usize {
        let fits = |all: Amount| {
            let message = heads_bytes(0) as u64 + all.chunks * CHUNK_HEAD_BYTES as u64 + all.bytes;
            let is_enough = all.chunks > MOST_CHUNKS as u64 || (all.chunks > 1 && all.bytes > limits.most_payload);
            !is_enough && message <= limits.most_bytes as u64
        };
        let all = Amount { chunks: taken.chunks + u64::from(run.count), bytes: taken.bytes + run.bytes };
        if fits(all) {
            return run.count as usize;
        }
        let mut scattered = at.scattered;
        for count in 0..run.count as usize {
            taken.add(if run.is_apart {
                u64::from(self.apart[at.apart + count].head.length)
            } else if is_scattered(self.items[at.items + count]) {
                scattered += 1;
                self.scattered[scattered - 1].bytes
            } else {
                u64::from(Trailer(self.items[at.items + count].trailer).data_bytes())
            });
            if !fits(taken) {
                return count;
            }
        }
        run.count as usize
    }

    /// Passes this many chunks of a run to a callback. Returns how many were accepted.
    #[inline]
    fn show(
        &self,
        run: &QueuedRun,
        at: &mut Places,
        count: usize,
        pages: &Pages,
        visit: &mut impl FnMut(QueuedChunk<'_>) -> ControlFlow<()>,
    ) -> Amount {
        let mut seen = Amount::default();
        if run.is_apart {
            for chunk in self.apart.range(at.apart..at.apart + count) {
                if visit(QueuedChunk(Kind::Apart(chunk))).is_break() {
                    break;
                }
                at.apart += 1;
                seen.add(u64::from(chunk.head.length));
            }
            return seen;
        }
        let &QueuedRun { elink, sequence, position, .. } = run;
        for &item in self.items.range(at.items..at.items + count) {
            let trailer = Trailer(item.trailer);
            let mut next = *at;
            next.items += 1;
            let (chunk, length) = if is_scattered(item) {
                let scattered = &self.scattered[at.scattered];
                (next.scattered, next.pieces) = (at.scattered + 1, at.pieces + scattered.pieces as usize);
                let head = ChunkHead { elink, status: scattered.status, sequence, length: scattered.bytes as u32 };
                let pieces = self.pieces.range(at.pieces..next.pieces);
                (Kind::Scattered { head, pieces, pages }, scattered.bytes)
            } else {
                let length = trailer.data_bytes();
                let head = ChunkHead { elink, status: trailer.status(), sequence, length };
                let piece = Piece { position: position + u64::from(item.offset), length };
                (Kind::Short { head, piece, pages }, u64::from(length))
            };
            if visit(QueuedChunk(chunk)).is_break() {
                break;
            }
            *at = next;
            seen.add(length);
        }
        seen
    }

    /// Removes the accepted chunks.
    #[inline]
    fn forget(&mut self, runs: usize, at: Places) {
        if runs == self.runs.len() {
            // Starts again at the beginning, in the memory that is in the cache.
            self.runs.clear();
            self.items.clear();
            self.scattered.clear();
            self.pieces.clear();
            self.apart.clear();
            return;
        }
        self.runs.drain(..runs);
        self.items.drain(..at.items);
        self.scattered.drain(..at.scattered);
        self.pieces.drain(..at.pieces);
        self.apart.drain(..at.apart);
    }

    /// Removes and returns the oldest chunk.
    pub(super) fn pop(&mut self, pages: &Pages) -> Option<StreamChunk> {
        let mut popped = None;
        let limits = MessageLimits { most_bytes: usize::MAX, most_payload: u64::MAX };
        self.take(limits, pages, |chunk| {
            if popped.is_some() {
                return ControlFlow::Break(());
            }
            popped = Some(chunk.to_stream_chunk());
            ControlFlow::Continue(())
        });
        popped
    }

    /// Copies the waiting chunks, so that they need nothing of the ring. Chunks that cannot be copied are passed to
    /// `lose`.
    pub(super) fn relieve(
        &mut self,
        pages: &Pages,
        mut copy: impl FnMut(&Payload) -> Option<Payload>,
        mut lose: impl FnMut(&StreamChunk),
    ) {
        if self.needs_from() == u64::MAX && self.apart.iter().all(|chunk| chunk.is_copy) {
            return;
        }
        // Each chunk moves from the front to the back once: the order stays the same, and there is room.
        for _ in 0..self.amount.chunks {
            let Some((since, mut chunk)) = self.since().and_then(|since| Some((since, self.pop(pages)?))) else {
                return;
            };
            if !chunk.is_copy {
                let Some(copied) = copy(&chunk.payload) else {
                    lose(&chunk);
                    continue;
                };
                (chunk.payload, chunk.is_copy) = (copied, true);
            }
            self.push(chunk, since);
        }
    }
}

/// Returns a run of separate chunks.
const fn apart(count: u32, bytes: u64, since: Instant) -> QueuedRun {
    let (elink, sequence) = (ELink::new(0), 0);
    QueuedRun { position: 0, needs_from: u64::MAX, since, bytes, count, elink, sequence, is_apart: true }
}

#[inline]
fn is_scattered(item: SubChunk) -> bool {
    Trailer(item.trailer).kind() == SubChunkType::Last
}

/// A chunk with its own bytes, which it keeps when it is moved.
#[derive(Clone, Debug)]
pub struct StreamChunk {
    /// Its header.
    pub head: ChunkHead,
    /// Its event, for groups that share by event; 0 if no group does.
    pub event: u64,
    /// Its bytes, where the card wrote them.
    pub payload: Payload,
    /// Whether the bytes are a copy, which does not hold the card's memory.
    pub is_copy: bool,
}

/// A waiting chunk. Reading its header does not touch its bytes.
#[derive(Clone, Debug)]
pub struct QueuedChunk<'a>(Kind<'a>);

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    /// One piece in the ring.
    Short { head: ChunkHead, piece: Piece, pages: &'a Pages },
    /// Several pieces in the ring.
    Scattered { head: ChunkHead, pieces: vec_deque::Iter<'a, Piece>, pages: &'a Pages },
    /// A chunk with its own bytes.
    Apart(&'a StreamChunk),
}

impl QueuedChunk<'_> {
    /// Returns its header.
    #[inline]
    pub const fn head(&self) -> ChunkHead {
        match &self.0 {
            Kind::Short { head, .. } | Kind::Scattered { head, .. } => *head,
            Kind::Apart(chunk) => chunk.head,
        }
    }

    /// Whether it holds none of the card's memory.
    #[inline]
    pub const fn is_copy(&self) -> bool {
        matches!(&self.0, Kind::Apart(chunk) if chunk.is_copy)
    }

    /// Passes its bytes in order, piece by piece, to a callback, without a copy.
    pub fn for_each_piece(&self, mut tell: impl FnMut(&[u8])) {
        match &self.0 {
            Kind::Short { piece, pages, .. } => tell(pages.bytes(piece.position, piece.length)),
            Kind::Scattered { pieces, pages, .. } => {
                pieces.clone().for_each(|piece| tell(pages.bytes(piece.position, piece.length)));
            }
            Kind::Apart(chunk) => chunk.payload.pieces().for_each(tell),
        }
    }

    /// Appends its bytes by reference. They are kept as long as any of the slices.
    pub fn append_slices(&self, into: &mut Vec<Slice>) {
        self.slices(|slice| into.push(slice));
    }

    /// Returns the chunk with its own references.
    pub fn to_stream_chunk(&self) -> StreamChunk {
        if let Kind::Apart(chunk) = self.0 {
            return chunk.clone();
        }
        let mut payload = Payload::default();
        self.slices(|slice| payload.push(slice));
        StreamChunk { head: self.head(), event: 0, payload, is_copy: false }
    }

    fn slices(&self, mut tell: impl FnMut(Slice)) {
        let mut piece_of = |pages: &Pages, piece: &Piece| {
            if piece.length > 0 {
                tell(pages.slice(piece.position, piece.length));
            }
        };
        match &self.0 {
            Kind::Short { piece, pages, .. } => piece_of(pages, piece),
            Kind::Scattered { pieces, pages, .. } => pieces.clone().for_each(|piece| piece_of(pages, piece)),
            Kind::Apart(chunk) => chunk.payload.clone().into_slices().for_each(tell),
        }
    }
}

/// Number of pages for which there is room from the start: a ring of a gigabyte.
const USUAL_PAGES: usize = 16 << 10;
/// Chunks that began more pages ago are held one by one, since holding all pages from there on would cost more.
const PAGES_BACK: u64 = 64;

/// A page, or the part of it that was lent.
#[derive(Debug)]
struct Held {
    /// The position of the beginning of the page.
    start: u64,
    slice: Slice,
}

/// One slice of each page that contains chunks of any queue: one reference per page instead of one per chunk. A waiting
/// queue provides only its first position. That suffices, since a ring's pages are returned in order, and a needed page
/// keeps all behind it.
#[derive(Debug)]
pub(super) struct Pages {
    /// The owner of the pages: the first ring from which a batch came.
    ring: Option<PoolId>,
    page_bytes: u64,
    /// The held pages, in the order of the ring.
    held: VecDeque<Held>,
    /// From this position up to `end` all pages are held.
    tail: u64,
    /// The position up to which the last page was lent.
    end: u64,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self { ring: None, page_bytes: 1, held: VecDeque::with_capacity(USUAL_PAGES), tail: 0, end: 0 }
    }

    /// Whether positions refer to this ring; those of another ring have no pages here.
    pub(super) fn are_of(&mut self, ring: &RingReader) -> bool {
        if self.held.is_empty() {
            (self.ring, self.page_bytes) = (Some(ring.id()), ring.page_bytes());
        }
        self.ring == Some(ring.id())
    }

    /// Holds the pages from `needs_from`, or as many as are worthwhile, up to `end`. The batch begins at `position`;
    /// the reader is not done with any of it. Returns the position from which on all needed pages are held.
    pub(super) fn hold(&mut self, ring: &mut RingReader, needs_from: u64, position: u64, end: u64) -> u64 {
        let page = self.page_bytes;
        let from = needs_from.max(position.saturating_sub(PAGES_BACK * page)) / page * page;
        let from = from.max(ring.done());
        if self.held.is_empty() || self.end < ring.done() {
            // No queue needed the pages since then, and the reader is done with them.
            (self.tail, self.end) = (from, from);
        }
        while self.tail > from && self.held.front().is_some_and(|first| first.start == self.tail) {
            self.tail -= page;
            self.held.push_front(Held { start: self.tail, slice: ring.slice(self.tail, page as u32) });
        }
        while self.end < end {
            let start = self.end / page * page;
            let length = (start + page).min(end) - self.end;
            let slice = ring.slice(self.end, length as u32);
            match self.held.back_mut().filter(|last| last.start == start) {
                Some(last) => last.slice.join(slice).expect("it follows in the same page"),
                None => self.held.push_back(Held { start, slice }),
            }
            self.end += length;
        }
        self.tail.max(needs_from)
    }

    /// Releases all pages before this position.
    pub(super) fn release_before(&mut self, position: u64) {
        while self.held.front().is_some_and(|first| position >= first.start + self.page_bytes) {
            self.held.pop_front();
        }
        if let Some(first) = self.held.front() {
            self.tail = self.tail.max(first.start);
        }
    }

    /// Returns the bytes of a held piece.
    pub(super) fn bytes(&self, position: u64, length: u32) -> &[u8] {
        let (slice, offset) = self.find(position);
        &slice[offset..][..length as usize]
    }

    /// Returns the same with its own reference.
    fn slice(&self, position: u64, length: u32) -> Slice {
        let (slice, offset) = self.find(position);
        let mut slice = slice.clone();
        slice.skip(offset);
        slice.truncate(length as usize);
        slice
    }

    fn find(&self, position: u64) -> (&Slice, usize) {
        let behind = self.held.partition_point(|held| held.start <= position);
        let held = &self.held[behind.checked_sub(1).expect("what waits is held")];
        (&held.slice, (position - held.start) as usize)
    }
}
