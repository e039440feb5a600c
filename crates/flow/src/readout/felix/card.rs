//! Connects one card's ring to the sources of a readout unit.

use super::{
    Chunk, ChunkBatch, ChunkConfig, ChunkDecoder, ChunkFault, ChunkReport, EventHead, EventRule, EventRules, Run,
};
use crate::messages::{FragmentFlags, FragmentMeta, Received};
use crate::readout::Readout;
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::felix::{ELINKS, ELink, Status, SubChunk};

/// Number of fragments that are passed to the readout unit together.
const AT_ONCE: usize = 128;
/// Number of batches decoded in one turn, so that other tasks get their turn: about a megabyte.
const BATCHES_A_TURN: usize = 16;
/// The index of an e-link that is not a source.
const NO_LINK: u16 = u16::MAX;

/// Configuration of a [`CardInput`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardConfig {
    /// The format of its blocks and chunks.
    pub chunks: ChunkConfig,
    /// The place of the event number in its chunks.
    pub rules: EventRules,
    /// The source of each e-link. Sources that do not belong to the readout unit are ignored.
    pub links: Vec<(ELink, SourceId)>,
}

/// Counts of a card, besides the sources' own accounts.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct CardCounts {
    /// The counts of its decoder.
    pub chunks: ChunkReport,
    /// Chunks that were given up after at least one piece had arrived.
    pub given_up: u64,
    /// Chunks, whole or given up, of e-links that are not sources.
    pub nobodys: u64,
    /// How often the card was found without room.
    pub stalls: u64,
    /// Bytes at the end that are not a whole block.
    pub left_over_bytes: u64,
}

#[derive(Copy, Clone, Debug)]
struct Link {
    /// Index in the readout unit.
    source: usize,
    id: SourceId,
    rule: EventRule,
}

/// The place of the next item in a batch.
#[derive(Copy, Clone, Default, Debug)]
struct Cursor {
    run: usize,
    item: usize,
}

impl Cursor {
    /// Returns the cursor `count` items further in a run.
    fn behind(self, count: usize, run: &Run) -> Self {
        let item = self.item + count;
        if item == usize::from(run.count) { Self { run: self.run + 1, item: 0 } } else { Self { item, ..self } }
    }
}

/// A second receiver of a card's chunks, besides the readout unit: each batch is decoded once for both.
pub trait Listener {
    /// Takes a batch whose pieces lie in `ring`. Returns true when it needs nothing more of the batch. Otherwise the
    /// card waits, and the same batch is passed again.
    fn take(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> bool;

    /// Whether it holds pieces of the ring that it must not lose. In that case the sources are not to blame when the
    /// card has no room.
    fn holds(&self) -> bool;
}

/// No listener.
impl Listener for () {
    fn take(&mut self, _: &ChunkBatch, _: &mut RingReader) -> bool {
        true
    }

    fn holds(&self) -> bool {
        false
    }
}

/// Reads the output of a card, block by block. It passes the chunks without a copy to a readout unit as fragments, and
/// to a [`Listener`].
///
/// The card is one stream: while one e-link has no room, those behind it in the ring wait too. They do not wait for
/// long, since a source without room is a window ahead of the source that the oldest event waits for.
#[derive(Debug)]
pub struct CardInput {
    ring: RingReader,
    decoder: ChunkDecoder,
    links: Vec<Link>,
    /// Index in `links` for each e-link.
    places: Box<[u16]>,
    /// The position up to which blocks were decoded.
    position: u64,
    /// The progress in the last batch; `None` when all of it was passed on.
    cursor: Option<Cursor>,
    /// Number of faults of the last batch that were reported.
    told: usize,
    /// Whether the listener still needs the last batch.
    is_listening: bool,
    received: Vec<Received>,
    given_up: u64,
    nobodys: u64,
    stalls: u64,
    left_over_bytes: u64,
    is_full: bool,
    connection: Connection,
    being_read: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Connection {
    Before,
    There,
    Ended,
}

impl CardInput {
    /// Creates the input for the sources of `readout` that `config` names, over the card's `ring`, whose pages contain
    /// whole blocks. Allocates all memory.
    pub fn new(config: &CardConfig, ring: RingReader, readout: &Readout) -> Self {
        let mut links = Vec::with_capacity(config.links.len());
        let mut places = vec![NO_LINK; ELINKS].into_boxed_slice();
        for &(elink, id) in &config.links {
            if let Some(source) = readout.source_index(id) {
                places[elink.index()] = links.len() as u16;
                links.push(Link { source, id, rule: config.rules.of(elink) });
            }
        }
        Self {
            position: ring.released(),
            decoder: ChunkDecoder::new(config.chunks),
            ring,
            links,
            places,
            cursor: None,
            told: 0,
            is_listening: false,
            received: Vec::with_capacity(AT_ONCE),
            given_up: 0,
            nobodys: 0,
            stalls: 0,
            left_over_bytes: 0,
            is_full: false,
            connection: Connection::Before,
            being_read: false,
        }
    }

    /// Returns the ring, for its account, its bell and its file.
    pub const fn ring(&self) -> &RingReader {
        &self.ring
    }

    /// Returns the ring, to collect returned memory.
    pub const fn ring_mut(&mut self) -> &mut RingReader {
        &mut self.ring
    }

    /// Returns the counts.
    pub const fn counts(&self) -> CardCounts {
        CardCounts {
            chunks: *self.decoder.report(),
            given_up: self.given_up,
            nobodys: self.nobodys,
            stalls: self.stalls,
            left_over_bytes: self.left_over_bytes,
        }
    }

    /// Passes the rest of the last batch to the listener after the readout unit has ended. Returns whether it has all
    /// of it.
    pub fn hand_rest_to(&mut self, listener: &mut impl Listener) -> bool {
        if self.is_listening {
            self.is_listening = !listener.take(self.decoder.batch(), &mut self.ring);
            if !self.has_batch() {
                self.done();
            }
        }
        !self.is_listening
    }

    /// Whether the listener has the whole last batch.
    pub const fn is_heard(&self) -> bool {
        !self.is_listening
    }

    /// Returns the position up to which the readout unit has taken all blocks, for checkers.
    pub fn handed_on(&self) -> u64 {
        let Some(cursor) = self.cursor else { return self.position };
        let batch = self.decoder.batch();
        let block = batch.runs().get(cursor.run).map_or(0, |run| u64::from(run.block));
        batch.position() + block * self.decoder.block_bytes() as u64
    }

    /// Whether the card has ended and all of its output was passed on.
    pub fn is_ended(&self) -> bool {
        self.connection == Connection::Ended
    }

    /// Whether the card waits for room although all of its output was processed: references still hold its pages.
    pub fn is_starved(&self) -> bool {
        self.ring.is_full() && !self.has_batch() && self.undecoded() == 0
    }

    /// Whether less than a quarter of the ring is left for the card, so that waiting data should not stay in it.
    pub const fn is_tight(&self) -> bool {
        self.ring.written() - self.ring.released() > self.ring.capacity() / 4 * 3
    }

    /// Passes on the output of the card, as far as the readout unit and the listener have room for it. Returns the
    /// amount of work done.
    pub fn turn(&mut self, now: Instant, readout: &mut Readout, listener: &mut impl Listener) -> usize {
        match self.connection {
            Connection::Ended => return 0,
            Connection::Before => self.connect(now, readout),
            Connection::There => {}
        }
        // A writer with an impossible state is no longer trusted: its sources have ended.
        if self.ring.poll().is_err() {
            self.end(now, readout);
            return 1;
        }
        let was_full = std::mem::replace(&mut self.is_full, self.ring.is_full());
        self.stalls += u64::from(self.is_full && !was_full);
        let mut work = 0;
        for _ in 0..BATCHES_A_TURN {
            if !self.has_batch() && !self.decode() {
                break;
            }
            work += self.hand_on(now, readout);
            self.is_listening = self.is_listening && !listener.take(self.decoder.batch(), &mut self.ring);
            if self.has_batch() {
                break;
            }
            work += 1;
            self.done();
        }
        self.watch(now, readout, listener);
        if self.ring.is_closed() && !self.has_batch() && self.undecoded() == 0 {
            self.end(now, readout);
        }
        work
    }

    /// Returns the number of whole blocks that wait.
    fn undecoded(&self) -> usize {
        self.ring.bytes(self.position).len() / self.decoder.block_bytes()
    }

    /// Whether the last batch is still in use.
    const fn has_batch(&self) -> bool {
        self.cursor.is_some() || self.is_listening
    }

    /// Lets the memory before the oldest open chunk be overwritten as soon as no reference to it is left.
    fn done(&mut self) {
        let open = self.decoder.oldest_open();
        self.ring.done_to(self.position.min(open.unwrap_or(u64::MAX)));
    }

    fn connect(&mut self, now: Instant, readout: &mut Readout) {
        self.connection = Connection::There;
        self.links.iter().for_each(|link| readout.source_connected(now, link.source));
    }

    /// Ends the input. Chunks that had begun are cut short.
    fn end(&mut self, now: Instant, readout: &mut Readout) {
        self.connection = Connection::Ended;
        self.tell_faults(now, readout, u32::MAX, 0);
        self.left_over_bytes = self.ring.written() - self.position;
        self.given_up += self.decoder.give_up_before(u64::MAX);
        for (place, link) in self.links.iter().enumerate() {
            let is_open = |fault: &ChunkFault| usize::from(self.places[fault.elink.index()]) == place;
            readout.source_disconnected(now, link.source, self.decoder.faults().iter().any(is_open));
        }
        self.ring.done_to(self.position);
    }

    /// Decodes the next batch. Returns false if there is no whole block.
    fn decode(&mut self) -> bool {
        let taken = self.decoder.decode(self.ring.bytes(self.position), self.position);
        if taken == 0 {
            return false;
        }
        self.position += taken as u64;
        (self.cursor, self.told) = (Some(Cursor::default()), 0);
        self.is_listening = true;
        true
    }

    /// Reports chunks that were given up in front of an item to their source's account: their place shows which number
    /// they had.
    fn tell_faults(&mut self, now: Instant, readout: &mut Readout, block: u32, items: usize) {
        while let Some(fault) = self.decoder.faults().get(self.told)
            && (fault.block, usize::from(fault.items)) <= (block, items)
        {
            self.told += 1;
            if !fault.was_open {
                continue;
            }
            self.given_up += 1;
            match self.links.get(usize::from(self.places[fault.elink.index()])) {
                Some(link) => {
                    self.received.push(given_up(link.id, fault.error.cause()));
                    readout.receive(now, link.source, &mut self.received);
                    self.received.clear();
                }
                None => self.nobodys += 1,
            }
        }
    }

    /// Passes on the chunks of the batch, run by run, until a source has no room.
    fn hand_on(&mut self, now: Instant, readout: &mut Readout) -> usize {
        let Some(mut cursor) = self.cursor else { return 0 };
        let mut work = 0;
        while let Some(&run) = self.decoder.batch().runs().get(cursor.run) {
            self.tell_faults(now, readout, run.block, cursor.item);
            let Self { decoder, ring, links, places, received, nobodys, told, .. } = self;
            let batch = decoder.batch();
            let next_fault = decoder.faults().get(*told).filter(|fault| fault.block == run.block);
            let end = next_fault.map_or(run.count, |fault| fault.items.min(run.count));
            let items = &batch.items(&run)[cursor.item..usize::from(end)];
            let chunks = |items: &[SubChunk]| {
                items.iter().filter(|&&item| !matches!(batch.chunk(item), Chunk::Signal(_))).count()
            };
            let Some(link) = links.get(usize::from(places[run.elink.index()])) else {
                *nobodys += chunks(items) as u64;
                cursor = cursor.behind(items.len(), &run);
                continue;
            };
            let room = readout.room(link.source).min(AT_ONCE);
            if room == 0 {
                self.cursor = Some(cursor);
                return work;
            }
            let now_taken = &items[..items.len().min(room)];
            let fragments = now_taken.iter().filter_map(|&item| fragment(batch.chunk(item), ring, link));
            received.extend(fragments);
            work += now_taken.len();
            if !received.is_empty() {
                readout.receive(now, link.source, received);
                received.clear();
            }
            cursor = cursor.behind(now_taken.len(), &run);
        }
        self.tell_faults(now, readout, u32::MAX, 0);
        self.cursor = None;
        work
    }

    /// Keeps a stalled e-link from blocking the others, and keeps sources that cannot be read from timing out.
    fn watch(&mut self, now: Instant, readout: &mut Readout, listener: &impl Listener) {
        if self.is_starved() {
            // An e-link that began a chunk a whole ring ago and did not continue it must not hold the memory behind it.
            let oldest = self.ring.released() + self.ring.page_bytes();
            if self.decoder.oldest_open().is_some_and(|open| open < oldest) {
                self.decoder.give_up_before(oldest);
                self.told = 0;
                self.tell_faults(now, readout, u32::MAX, 0);
                self.done();
            }
        }
        // Back-pressure is not absence. While events are held that only need to be released, the missing fragments of
        // later events may be queued behind them; otherwise only their time-out would let anything advance. Sources are
        // not absent either if a listener that must not lose data holds theirs up.
        let is_held_up = self.cursor.is_some() || self.ring.is_full();
        let is_heard_out = self.is_listening || self.ring.is_full() && listener.holds();
        let being_read = !is_heard_out && (!is_held_up || !readout.holds_settled());
        if being_read != self.being_read {
            self.being_read = being_read;
            self.links.iter().for_each(|link| readout.set_being_read(now, link.source, being_read));
        }
    }
}

/// Converts a chunk to a fragment; `None` for a signal.
#[inline]
fn fragment(chunk: Chunk<'_>, ring: &mut RingReader, link: &Link) -> Option<Received> {
    let mut payload = Payload::default();
    let status = match chunk {
        Chunk::Short { piece, status } => {
            ring.append(piece.position, piece.length, &mut payload);
            status
        }
        Chunk::Scattered { pieces, status, .. } => {
            pieces.iter().for_each(|piece| ring.append(piece.position, piece.length, &mut payload));
            status
        }
        Chunk::Signal(_) => return None,
    };
    let Some(head) = link.rule.read(&payload) else {
        return Some(given_up(link.id, Cause::Malformed));
    };
    let EventHead { number, bunch_crossing, trigger_type } = head;
    let known = match bunch_crossing {
        Some(_) => FragmentFlags::HAS_BUNCH_CROSSING,
        None => FragmentFlags::default(),
    };
    let meta = FragmentMeta {
        source: link.id,
        length: payload.len() as u32,
        flags: if status.is_good() { known } else { known.with(flags(status)) },
        bunch_crossing: bunch_crossing.unwrap_or(0),
        trigger_type: trigger_type.into(),
        raw_id: number,
        time: 0,
    };
    Some(Received { meta, restarts: false, payload })
}

/// Converts the status of a chunk to the flags of a fragment.
#[cold]
fn flags(status: Status) -> FragmentFlags {
    [
        (Status::BUSY, FragmentFlags::BUSY),
        (Status::CRC, FragmentFlags::CRC_CHECKED.with(FragmentFlags::CRC_ERROR)),
        (Status::ERROR, FragmentFlags::MALFORMED),
        (Status::TRUNCATED, FragmentFlags::LENGTH_MISMATCH),
        (Status::TIMED_OUT, FragmentFlags::LENGTH_MISMATCH),
    ]
    .into_iter()
    .filter(|&(flag, _)| status.has(flag))
    .fold(FragmentFlags::default(), |all, (_, flag)| all.with(flag))
}

/// Returns the entry for a chunk that was given up for this cause.
fn given_up(source: SourceId, cause: Cause) -> Received {
    Received { meta: FragmentMeta::missing(source, cause), restarts: false, payload: Payload::default() }
}
