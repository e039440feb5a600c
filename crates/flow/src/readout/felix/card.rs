//! One card's ring up to a readout unit's sources.

use super::{
    Chunk, ChunkBatch, ChunkConfig, ChunkDecoder, ChunkFault, ChunkReport, EventHead, EventRule, EventRules, Run,
};
use crate::messages::{FragmentFlags, FragmentMeta, Received};
use crate::readout::Readout;
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::felix::{ELINKS, ELink, Status, SubChunk};

/// Fragments handed to the readout unit at once.
const AT_ONCE: usize = 128;
/// Batches decoded in one turn, so that others have theirs: about a megabyte.
const BATCHES_A_TURN: usize = 16;
/// No e-link of this number is a source.
const NO_LINK: u16 = u16::MAX;

/// What a [`CardInput`] is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardConfig {
    /// Its blocks and chunks.
    pub chunks: ChunkConfig,
    /// Where its chunks say to which event they belong.
    pub rules: EventRules,
    /// Which of its e-links is which source; sources that the readout unit does not have are left out.
    pub links: Vec<(ELink, SourceId)>,
}

/// What is counted of a card beside the sources' own accounts.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct CardCounts {
    /// What its decoder has seen.
    pub chunks: ChunkReport,
    /// Chunks of which a piece came, and that were given up.
    pub given_up: u64,
    /// Chunks, whole or given up, of e-links that are no source.
    pub nobodys: u64,
    /// How often the card was found without room.
    pub stalls: u64,
    /// Bytes at the end that are no whole block.
    pub left_over_bytes: u64,
}

#[derive(Copy, Clone, Debug)]
struct Link {
    /// Its index in the readout unit.
    source: usize,
    id: SourceId,
    rule: EventRule,
}

/// Where in a batch the next item stands.
#[derive(Copy, Clone, Default, Debug)]
struct Cursor {
    run: usize,
    item: usize,
}

impl Cursor {
    /// The item that lies so many behind this one of a run.
    fn behind(self, count: usize, run: &Run) -> Self {
        let item = self.item + count;
        if item == usize::from(run.count) { Self { run: self.run + 1, item: 0 } } else { Self { item, ..self } }
    }
}

/// A second receiver of a card's chunks, beside the readout unit: each batch is decoded once for both.
pub trait Listener {
    /// A batch, whose pieces lie in `ring`. True when it needs nothing more of it; otherwise the card waits, and it is
    /// given the same batch again.
    fn take(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> bool;

    /// Whether it holds pieces of the ring that it must not lose: then the sources are not to blame where the card has no
    /// room.
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

/// Takes what a card wrote, block by block, and hands its chunks to a readout unit as fragments that lie where they
/// were written, and to a [`Listener`].
///
/// The card is one stream: while one e-link has no room, those behind it in the ring wait too. That does not hold them
/// up for long, for a source without room is a window ahead of the one that the oldest event waits for.
#[derive(Debug)]
pub struct CardInput {
    ring: RingReader,
    decoder: ChunkDecoder,
    links: Vec<Link>,
    /// By e-link: its place in `links`.
    places: Box<[u16]>,
    /// Up to where blocks were decoded.
    position: u64,
    /// How far the last batch was handed on; `None` when all of it was.
    cursor: Option<Cursor>,
    /// Faults of the last batch that were reported.
    told: usize,
    /// The listener wants more of the last batch.
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
    /// The sources of `readout` that `config` names, over the card's `ring`, whose pages hold whole blocks. All memory
    /// is got here.
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

    /// The ring, for its account, its bell and its file.
    pub const fn ring(&self) -> &RingReader {
        &self.ring
    }

    /// The same, to look for what came home.
    pub const fn ring_mut(&mut self) -> &mut RingReader {
        &mut self.ring
    }

    /// What was counted.
    pub const fn counts(&self) -> CardCounts {
        CardCounts {
            chunks: *self.decoder.report(),
            given_up: self.given_up,
            nobodys: self.nobodys,
            stalls: self.stalls,
            left_over_bytes: self.left_over_bytes,
        }
    }

    /// The readout unit has ended: the listener takes the rest of the last batch. Whether it has all of it.
    pub fn hand_rest_to(&mut self, listener: &mut impl Listener) -> bool {
        if self.is_listening {
            self.is_listening = !listener.take(self.decoder.batch(), &mut self.ring);
            if !self.has_batch() {
                self.done();
            }
        }
        !self.is_listening
    }

    /// Whether the listener has all of the last batch.
    pub const fn is_heard(&self) -> bool {
        !self.is_listening
    }

    /// Up to where the readout unit has taken all blocks, for checkers.
    pub fn handed_on(&self) -> u64 {
        let Some(cursor) = self.cursor else { return self.position };
        let batch = self.decoder.batch();
        let block = batch.runs().get(cursor.run).map_or(0, |run| u64::from(run.block));
        batch.position() + block * self.decoder.block_bytes() as u64
    }

    /// Whether the card will say nothing more, and everything that it said was handed on.
    pub fn is_ended(&self) -> bool {
        self.connection == Connection::Ended
    }

    /// Whether the card waits for room although everything that it wrote was looked at: what is held keeps its pages.
    pub fn is_starved(&self) -> bool {
        self.ring.is_full() && !self.has_batch() && self.undecoded() == 0
    }

    /// Whether less than a quarter of the ring is left for the card: what waits elsewhere should not stay in it.
    pub const fn is_tight(&self) -> bool {
        self.ring.written() - self.ring.released() > self.ring.capacity() / 4 * 3
    }

    /// Takes what the card has written, as far as the readout unit and the listener have room for it. Returns how much
    /// was done.
    pub fn turn(&mut self, now: Instant, readout: &mut Readout, listener: &mut impl Listener) -> usize {
        match self.connection {
            Connection::Ended => return 0,
            Connection::Before => self.connect(now, readout),
            Connection::There => {}
        }
        // A writer that says what cannot be is believed no more: its sources are gone.
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

    /// Whole blocks that wait.
    fn undecoded(&self) -> usize {
        self.ring.bytes(self.position).len() / self.decoder.block_bytes()
    }

    /// Whether the last batch is not done with.
    const fn has_batch(&self) -> bool {
        self.cursor.is_some() || self.is_listening
    }

    /// Memory before the oldest open chunk may be written again, as soon as no reference to it is left.
    fn done(&mut self) {
        let open = self.decoder.oldest_open();
        self.ring.done_to(self.position.min(open.unwrap_or(u64::MAX)));
    }

    fn connect(&mut self, now: Instant, readout: &mut Readout) {
        self.connection = Connection::There;
        self.links.iter().for_each(|link| readout.source_connected(now, link.source));
    }

    /// Nothing more comes. Chunks that had begun are cut short.
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

    /// Decodes the next batch; false where there is no whole block.
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

    /// Chunks that were given up in front of an item stand in their source's account: where they were shows which number is theirs.
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

    /// Hands the chunks of the batch on, run by run, until a source has no room.
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

    /// Keeps a stalled e-link from holding up the others, and keeps sources that cannot be read from timing out.
    fn watch(&mut self, now: Instant, readout: &mut Readout, listener: &impl Listener) {
        if self.is_starved() {
            // An e-link that began a chunk a whole ring ago and did not go on must not keep what lies behind it.
            let oldest = self.ring.released() + self.ring.page_bytes();
            if self.decoder.oldest_open().is_some_and(|open| open < oldest) {
                self.decoder.give_up_before(oldest);
                self.told = 0;
                self.tell_faults(now, readout, u32::MAX, 0);
                self.done();
            }
        }
        // Back-pressure is no absence: while events are held that only need to be released, the missing fragments of
        // later events may be queued behind them. Otherwise only their time-out would let anything move. Nor are
        // sources absent whose data a listener holds up because it must not lose any.
        let is_held_up = self.cursor.is_some() || self.ring.is_full();
        let is_heard_out = self.is_listening || self.ring.is_full() && listener.holds();
        let being_read = !is_heard_out && (!is_held_up || !readout.holds_settled());
        if being_read != self.being_read {
            self.being_read = being_read;
            self.links.iter().for_each(|link| readout.set_being_read(now, link.source, being_read));
        }
    }
}

/// A chunk as a fragment; `None` for a signal.
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

/// What the card says of a chunk, in the words of fragments.
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

/// In place of a chunk that was given up for this cause.
fn given_up(source: SourceId, cause: Cause) -> Received {
    Received { meta: FragmentMeta::missing(source, cause), restarts: false, payload: Payload::default() }
}
