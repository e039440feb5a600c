//! Emulated and recorded front ends. They send the same data as real ones, in the same way.
//!
//! ```text
//!  Content: the frames of the next trigger --+--> Stream: a connection to the readout unit (FED fragments in FEROL blocks)
//!                                            +--> Datagrams: handed to a receiver of a readout unit in this process
//! ```

use super::Drive;
use ropewalk_flow::source::{
    FrameMaker, Frames, PATTERN, PATTERN_BYTES, Piece, Random, SizeDistribution, Trigger, TriggerGate, TriggerRate,
    TriggerSequence,
};
use ropewalk_io::packet::LocalFeed;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Loan, Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::ferol::{self, BlockHeader};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Origin of a source's fragments.
#[derive(Clone, Debug)]
pub enum SourceFeed {
    /// Generated, with this size, rate and seed.
    Emulated {
        /// Generator of the frames.
        frames: Box<FrameMaker>,
        /// Distribution of the sizes.
        size: SizeDistribution,
        /// Trigger rate; equal for all sources of a run.
        rate: TriggerRate,
        /// Seed; equal for all sources of a run.
        seed: u64,
    },
    /// Recorded: a bare S-LINK64 file in memory, and the position of its fragments.
    Recorded {
        /// The file's bytes.
        bytes: Arc<Vec<u8>>,
        /// Ranges of its fragments.
        fragments: Arc<Vec<Range<usize>>>,
    },
}

/// Transport of a source's data to its readout unit.
#[derive(Debug)]
pub enum SourceLine {
    /// Over a connection to this address.
    Stream(String),
    /// In datagrams, to a receiver of the readout unit.
    Datagrams(Box<LocalFeed>),
}

/// Configuration of one source of a drive.
#[derive(Debug)]
pub struct SourceDriveConfig {
    /// The source id.
    pub id: SourceId,
    /// Transport to the readout unit.
    pub line: SourceLine,
    /// Origin of the data.
    pub feed: SourceFeed,
}

/// A source's own account of sent data, for checking the ledger independently.
#[derive(Debug, Default)]
pub struct Sent {
    /// Whole fragments handed to the transport.
    pub fragments: AtomicU64,
    /// Bytes of these fragments, without FEROL headers.
    pub bytes: AtomicU64,
}

impl Sent {
    fn note(&self, frames: &Frames) {
        self.fragments.fetch_add(frames.events(), Ordering::Relaxed);
        self.bytes.fetch_add(frames.length() as u64, Ordering::Relaxed);
    }
}

enum Line {
    Stream(Box<Stream>),
    Datagrams(Box<Datagrams>),
    /// All datagrams were sent. The receiver detects the end by this state.
    Ended,
}

struct Source {
    id: SourceId,
    content: Content,
    line: Line,
    account: Arc<Sent>,
    /// Whether everything was sent.
    has_ended: bool,
    /// Whether, in addition, no data is in transit.
    is_closed: bool,
}

/// Several sources on one thread.
pub struct SourceDrive<S: Dispatcher> {
    endpoints: S,
    memory: Memory,
    sources: Vec<Source>,
    gate: Arc<TriggerGate>,
    started: Option<Instant>,
    events: Vec<Event>,
    message: Vec<Slice>,
    deadline: Option<Instant>,
}

/// Memory for sending streams.
struct Memory {
    pool: Pool,
    /// The pattern of payloads, in memory that can be sent; `None` if there was none.
    pattern: Option<Slice>,
}

/// Returns [`PATTERN`] in a pool of its own, whose only block it keeps.
fn prepared() -> Option<Slice> {
    let mut pool = Pool::new(PoolConfig::heap("pattern", PATTERN_BYTES, 1)).ok()?;
    pool.loan(Owner::SHARED)?.append(&PATTERN)
}

/// Pause before a source checks again whether its readout unit has room for datagrams.
const NO_ROOM: Duration = Duration::from_micros(200);

impl<S: Dispatcher> SourceDrive<S> {
    /// Creates sources that send the triggers that `gate` admits; streams are sent from blocks of `pool`.
    pub fn new(configs: Vec<SourceDriveConfig>, endpoints: S, pool: Pool, gate: Arc<TriggerGate>) -> Self {
        let memory = Memory { pool, pattern: prepared() };
        let by_reference = memory.pattern.is_some();
        let sources = configs.into_iter().map(|config| Source::new(config, by_reference)).collect();
        Self {
            endpoints,
            memory,
            sources,
            gate,
            started: None,
            events: Vec::with_capacity(256),
            message: Vec::with_capacity(PIECES),
            deadline: None,
        }
    }

    /// Returns each source's account of sent data.
    pub fn sent(&self) -> Vec<(SourceId, Arc<Sent>)> {
        self.sources.iter().map(|source| (source.id, Arc::clone(&source.account))).collect()
    }

    fn poll_endpoints(&mut self, now: Instant) -> usize {
        for source in self.sources.iter_mut().filter(|source| !source.is_closed) {
            if let Line::Stream(stream) = &mut source.line {
                stream.connect(now, &mut self.endpoints);
            }
        }
        let mut events = std::mem::take(&mut self.events);
        let work = self.endpoints.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            let of_stream = |source: &&mut Source| match &source.line {
                Line::Stream(stream) => stream.endpoint == Some(endpoint),
                Line::Datagrams(_) | Line::Ended => false,
            };
            let Some(source) = self.sources.iter_mut().find(of_stream) else { continue };
            match event {
                Event::Established { .. } => source.connected(),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    source.disconnected(now)
                }
                Event::ConnectionRequest { .. }
                | Event::Received { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueLow { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
            }
        }
        self.events = events;
        work
    }

    /// Sends the due data of one source. Returns the amount.
    fn feed(&mut self, index: usize, elapsed: Duration) -> usize {
        let source = &mut self.sources[index];
        if source.has_ended {
            return 0;
        }
        let gate = (&*self.gate, elapsed);
        let (work, has_ended) = match &mut source.line {
            Line::Stream(stream) => {
                let to = (&mut self.endpoints, &mut self.memory, &mut self.message);
                stream.feed(&mut source.content, to, gate, &source.account)
            }
            Line::Datagrams(datagrams) => datagrams.feed(&mut source.content, gate, &source.account),
            Line::Ended => return 0,
        };
        source.has_ended = has_ended;
        if has_ended && matches!(source.line, Line::Datagrams(_)) {
            source.line = Line::Ended;
            source.is_closed = true;
        }
        work
    }
}

impl Source {
    fn new(config: SourceDriveConfig, by_reference: bool) -> Self {
        let SourceDriveConfig { id, line, mut feed } = config;
        if let (SourceFeed::Emulated { frames, .. }, SourceLine::Stream(_), true) = (&mut feed, &line, by_reference) {
            **frames = frames.as_ref().clone().by_reference();
        }
        let line = match line {
            SourceLine::Stream(address) => Line::Stream(Box::new(Stream::new(id, address, &feed))),
            SourceLine::Datagrams(feed) => Line::Datagrams(Box::new(Datagrams::new(feed))),
        };
        let content = Content::new(id, feed);
        Self { id, content, line, account: Arc::default(), has_ended: false, is_closed: false }
    }

    fn connected(&mut self) {
        if let Line::Stream(stream) = &mut self.line {
            stream.is_established = true;
        }
    }

    fn disconnected(&mut self, now: Instant) {
        if let Line::Stream(stream) = &mut self.line {
            stream.disconnected(now, &self.content);
        }
        self.is_closed |= self.has_ended;
    }

    /// Returns when it has work again, if that is known; `started` is the beginning of its triggers.
    fn next_deadline(&self, now: Instant, started: Instant) -> Option<Instant> {
        let is_connected = match &self.line {
            Line::Stream(stream) => stream.is_established,
            Line::Datagrams(datagrams) if datagrams.is_blocked => return Some(now.after(NO_ROOM)),
            Line::Datagrams(_) => true,
            Line::Ended => false,
        };
        let next = self.content.next_at().filter(|_| is_connected && !self.has_ended);
        next.map(|at| started.after(at)).filter(|&at| at > now)
    }

    /// Returns when it connects again.
    fn next_attempt(&self) -> Option<Instant> {
        match &self.line {
            Line::Stream(stream) if stream.endpoint.is_none() && !self.is_closed => Some(stream.retry),
            Line::Stream(_) | Line::Datagrams(_) | Line::Ended => None,
        }
    }
}

impl<S: Dispatcher> Drive for SourceDrive<S> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.poll_endpoints(now);
        let started = *self.started.get_or_insert(now);
        for index in 0..self.sources.len() {
            work += self.feed(index, now.since(started));
        }
        self.deadline = self.sources.iter().filter_map(|source| source.next_deadline(now, started)).min();
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let attempts = self.sources.iter().filter_map(Source::next_attempt);
        attempts.chain(self.deadline).chain(self.endpoints.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.endpoints.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.sources.iter().all(|source| source.is_closed)
    }
}

/// Number of triggers that a source requests at once. More would delay the end of the run.
const ADVANCE: u64 = 32;

/// The frames of successive triggers.
struct Content {
    feed: SourceFeed,
    triggers: TriggerSequence,
    next: Option<Trigger>,
    random: Random,
    /// The frames of the last trigger.
    frames: Frames,
    /// The last trigger's number as in FED headers.
    event: u32,
}

impl Content {
    fn new(id: SourceId, feed: SourceFeed) -> Self {
        let (rate, seed) = match feed {
            SourceFeed::Emulated { rate, seed, .. } => (rate, seed),
            SourceFeed::Recorded { .. } => (TriggerRate::Unlimited, 0),
        };
        Self {
            feed,
            triggers: TriggerSequence::new(seed, rate),
            next: None,
            random: Random::new(seed, u64::from(id.0) + 1),
            frames: Frames::default(),
            event: 0,
        }
    }

    /// Makes the next frames. Returns false if none are due.
    fn advance(&mut self, gate: &TriggerGate, elapsed: Duration) -> bool {
        while let Some(trigger) = self.due(gate, elapsed) {
            self.next = None;
            match &mut self.feed {
                SourceFeed::Emulated { frames, size, .. } => {
                    let bytes = size.next_fragment(&mut self.random) as usize;
                    self.event = frames.number(&trigger) as u32 & 0xff_ffff;
                    if frames.add(&trigger, bytes, &mut self.frames) {
                        return true;
                    }
                }
                SourceFeed::Recorded { bytes, fragments } => {
                    self.frames.put(&bytes[fragments[trigger.number as usize - 1].clone()]);
                    self.event = trigger.number as u32 & 0xff_ffff;
                    return true;
                }
            }
        }
        let is_over = self.has_no_more_triggers(gate);
        match &mut self.feed {
            SourceFeed::Emulated { frames, .. } if is_over => frames.send_rest(&mut self.frames),
            _ => false,
        }
    }

    /// Returns the next trigger, if it is due.
    fn due(&mut self, gate: &TriggerGate, elapsed: Duration) -> Option<Trigger> {
        let trigger = *self.next.get_or_insert_with(|| self.triggers.next_trigger());
        let recorded = match &self.feed {
            SourceFeed::Recorded { fragments, .. } => fragments.len() as u64,
            SourceFeed::Emulated { .. } => u64::MAX,
        };
        if trigger.at > elapsed || trigger.number > recorded {
            return None;
        }
        // With a rate the gate is asked for each trigger, or the end would lie in the future.
        let ahead = if trigger.at == Duration::ZERO { ADVANCE } else { 0 };
        if gate.advance_to(trigger.number) < trigger.number {
            return None;
        }
        if trigger.number.is_multiple_of(ADVANCE) {
            gate.advance_to(trigger.number + ahead);
        }
        Some(trigger)
    }

    /// Returns whether no trigger will follow: the gate is closed behind the last trigger, or the recording is at its
    /// end.
    fn is_exhausted(&self, gate: &TriggerGate) -> bool {
        let holds_back = match &self.feed {
            SourceFeed::Emulated { frames, .. } => frames.holds_back(),
            SourceFeed::Recorded { .. } => false,
        };
        !holds_back && self.has_no_more_triggers(gate)
    }

    fn has_no_more_triggers(&self, gate: &TriggerGate) -> bool {
        let next = self.next.map_or(1, |trigger| trigger.number);
        let recorded = match &self.feed {
            SourceFeed::Recorded { fragments, .. } => next > fragments.len() as u64,
            SourceFeed::Emulated { .. } => false,
        };
        recorded || gate.last().is_some_and(|last| next > last)
    }

    /// Returns when the next trigger comes, relative to the start.
    fn next_at(&self) -> Option<Duration> {
        self.next.map(|trigger| trigger.at)
    }
}

/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum number of bytes that one source may queue in one turn, so that all have their share.
const TURN_BYTES: usize = 512 * 1024;
/// Approximate size of a message in bytes: enough for a system call.
const MESSAGE_BYTES: usize = 128 * 1024;
/// Maximum number of pieces of a message: two for each payload that is not copied.
const PIECES: usize = 256;

/// A connection to a readout unit.
struct Stream {
    source: SourceId,
    address: String,
    endpoint: Option<Endpoint>,
    is_established: bool,
    retry: Instant,
    /// Whether FED fragments are sent in FEROL blocks.
    in_blocks: bool,
    /// The greeting of a connection, and whether it was sent on this one.
    greeting: Vec<u8>,
    has_greeted: bool,
    /// Number of bytes of the frames that were sent.
    sent: usize,
    packet: u16,
    loan: Option<Loan>,
    /// The message that is being assembled, or was refused.
    pieces: VecDeque<Slice>,
}

impl Stream {
    fn new(source: SourceId, address: String, feed: &SourceFeed) -> Self {
        let (in_blocks, greeting) = match feed {
            SourceFeed::Emulated { frames, .. } => (frames.is_fed(), frames.greeting()),
            SourceFeed::Recorded { .. } => (true, Vec::new()),
        };
        Self {
            source,
            address,
            endpoint: None,
            is_established: false,
            retry: Instant::ZERO,
            in_blocks,
            greeting,
            has_greeted: false,
            sent: 0,
            packet: 0,
            loan: None,
            pieces: VecDeque::with_capacity(PIECES),
        }
    }

    /// Connects if the retry is due.
    fn connect(&mut self, now: Instant, endpoints: &mut impl Dispatcher) {
        if self.endpoint.is_none() && now >= self.retry {
            self.retry = now.after(RETRY);
            self.endpoint = endpoints.connect(&self.address).ok();
        }
    }

    /// Handles the end of the connection, or a failed attempt to connect.
    fn disconnected(&mut self, now: Instant, content: &Content) {
        self.endpoint = None;
        self.is_established = false;
        self.has_greeted = false;
        self.retry = now.after(RETRY);
        // A fragment in transit is lost with the connection. The next connection begins with a whole one.
        self.pieces.clear();
        self.loan = None;
        self.sent = content.frames.length();
    }

    /// Fills and queues blocks of memory. Returns the number of bytes queued, and whether everything was sent.
    fn feed<S: Dispatcher>(
        &mut self,
        content: &mut Content,
        to: (&mut S, &mut Memory, &mut Vec<Slice>),
        gate: (&TriggerGate, Duration),
        account: &Sent,
    ) -> (usize, bool) {
        let (endpoints, memory, message) = to;
        let (Some(endpoint), true) = (self.endpoint, self.is_established) else { return (0, false) };
        let mut queued = 0;
        while queued < TURN_BYTES {
            if self.pieces.is_empty() && !self.fill(content, memory, gate, account) {
                break;
            }
            message.extend(self.pieces.drain(..));
            let bytes: usize = message.iter().map(|slice| slice.len()).sum();
            if endpoints.send(endpoint, message).is_err() {
                self.pieces.extend(message.drain(..));
                break;
            }
            queued += bytes;
        }
        let is_done = self.sent == content.frames.length() && self.pieces.is_empty();
        if is_done && content.is_exhausted(gate.0) {
            self.loan = None;
            endpoints.close(endpoint);
            return (queued, true);
        }
        (queued, false)
    }

    /// Assembles a message, of whole FEROL blocks or of the data made so far. Returns false if nothing is due or no
    /// block of memory is free.
    fn fill(
        &mut self,
        content: &mut Content,
        memory: &mut Memory,
        gate: (&TriggerGate, Duration),
        account: &Sent,
    ) -> bool {
        let least = if self.in_blocks { ferol::MAX_BLOCK_BYTES } else { self.greeting.len().max(1) };
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES {
            if self.sent == content.frames.length() {
                if !content.advance(gate.0, gate.1) {
                    break;
                }
                (self.sent, self.packet) = (0, 0);
            }
            if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < least) {
                self.cut();
                self.loan = memory.pool.loan(Owner::SHARED);
                if self.loan.is_none() {
                    break;
                }
            }
            self.greet();
            bytes += if self.in_blocks {
                self.write_block(content, memory.pattern.as_ref())
            } else {
                self.write_piece(content, memory.pattern.as_ref(), usize::MAX)
            };
            if self.sent == content.frames.length() {
                account.note(&content.frames);
            }
        }
        self.cut();
        !self.pieces.is_empty()
    }

    /// Turns the written bytes into a piece of the message.
    fn cut(&mut self) {
        self.pieces.extend(self.loan.as_mut().and_then(Loan::split_committed));
    }

    fn greet(&mut self) {
        let Some(loan) = &mut self.loan else { return };
        if !std::mem::replace(&mut self.has_greeted, true) {
            loan.spare()[..self.greeting.len()].copy_from_slice(&self.greeting);
            loan.commit(self.greeting.len());
        }
    }

    /// Appends the next FEROL block of the fragment. Returns its number of bytes.
    fn write_block(&mut self, content: &Content, pattern: Option<&Slice>) -> usize {
        let Some(loan) = &mut self.loan else { return 0 };
        let length = content.frames.length();
        let part = (length - self.sent).min(ferol::MAX_PAYLOAD_BYTES);
        let header = BlockHeader {
            source: self.source,
            event_number: content.event,
            packet: self.packet,
            first: self.sent == 0,
            last: self.sent + part == length,
            payload_bytes: part as u16,
        };
        loan.spare()[..ferol::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        loan.commit(ferol::HEADER_BYTES);
        self.packet += 1;
        let end = self.sent + part;
        while self.sent < end {
            self.write_piece(content, pattern, end - self.sent);
        }
        ferol::HEADER_BYTES + part
    }

    /// Appends the next piece of the frames, of at most `most` bytes. The piece is written if there is room for it, or
    /// lies in the pattern. Returns its number of bytes.
    fn write_piece(&mut self, content: &Content, pattern: Option<&Slice>, most: usize) -> usize {
        let Some(loan) = &mut self.loan else { return 0 };
        let written = match (content.frames.piece(self.sent, most), pattern) {
            (Piece::Pattern(place), Some(pattern)) => {
                let mut piece = pattern.clone();
                piece.skip(place.start);
                piece.truncate(place.len());
                if let Some(written) = loan.split_committed() {
                    self.pieces.push_back(written);
                }
                self.pieces.push_back(piece);
                place.len()
            }
            (Piece::Pattern(place), None) => append(loan, &PATTERN[place]),
            (Piece::Bytes(bytes), _) => append(loan, bytes),
        };
        self.sent += written;
        written
    }
}

/// Appends as many of these bytes as there is room for.
fn append(loan: &mut Loan, bytes: &[u8]) -> usize {
    let part = bytes.len().min(loan.spare_len());
    ropewalk_kernels::copy(&mut loan.spare()[..part], &bytes[..part]);
    loan.commit(part);
    part
}

/// Maximum number of datagrams of one turn.
const AT_ONCE: usize = 512;
/// Apparent sender of the datagrams: no network address.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The transport to a readout unit's receiver.
struct Datagrams {
    feed: Box<LocalFeed>,
    /// Number of datagrams of the frames that were sent.
    sent: usize,
    /// Whether there was no room for the next one.
    is_blocked: bool,
}

impl Datagrams {
    const fn new(feed: Box<LocalFeed>) -> Self {
        Self { feed, sent: 0, is_blocked: false }
    }

    /// Sends the datagrams that are due. Returns their number, and whether the source is done: everything is sent, or
    /// the receiver is gone.
    fn feed(
        &mut self,
        content: &mut Content,
        (gate, elapsed): (&TriggerGate, Duration),
        account: &Sent,
    ) -> (usize, bool) {
        let mut count = 0;
        self.is_blocked = false;
        while count < AT_ONCE {
            let Some(range) = content.frames.range(self.sent) else {
                if !content.advance(gate, elapsed) {
                    break;
                }
                self.sent = 0;
                continue;
            };
            if !self.feed.send(NOWHERE, None, &content.frames.bytes()[range]) {
                self.is_blocked = true;
                break;
            }
            self.sent += 1;
            count += 1;
            if content.frames.range(self.sent).is_none() {
                account.note(&content.frames);
            }
        }
        let is_done = content.frames.range(self.sent).is_none() && content.is_exhausted(gate);
        (count, is_done || self.feed.is_abandoned())
    }
}
