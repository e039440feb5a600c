//! Front ends that are not there: emulated ones and recorded ones, sent over real endpoints as FEROL blocks.

use super::Drive;
use ropewalk_flow::source::{Random, SizeDistribution, Trigger, TriggerGate, TriggerRate, TriggerSequence};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::ferol::BlockHeader;
use ropewalk_wire::{fed, ferol};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a source's fragments come from.
#[derive(Clone, Debug)]
pub enum SourceFeed {
    /// Made up: this size, at this rate, from this seed.
    Emulated {
        /// How large.
        size: SizeDistribution,
        /// How often; equal for all sources of a run.
        rate: TriggerRate,
        /// Equal for all sources of a run.
        seed: u64,
    },
    /// Recorded: a bare S-LINK64 file in memory and where its fragments lie.
    Recorded {
        /// The file's bytes.
        bytes: Arc<Vec<u8>>,
        /// Its fragments.
        fragments: Arc<Vec<Range<usize>>>,
    },
}

/// One source of a drive.
#[derive(Clone, Debug)]
pub struct SourceDriveConfig {
    /// Its FED id.
    pub id: SourceId,
    /// The readout unit's address for front ends.
    pub address: String,
    /// What it sends.
    pub feed: SourceFeed,
}

/// What a source says that it sent, for whoever checks the ledger from outside.
#[derive(Debug, Default)]
pub struct Sent {
    /// Whole fragments handed to the transport.
    pub fragments: AtomicU64,
    /// Bytes of these fragments, FEROL headers not counted.
    pub bytes: AtomicU64,
}

struct Source {
    config: SourceDriveConfig,
    endpoint: Option<Endpoint>,
    established: bool,
    retry: Instant,
    triggers: TriggerSequence,
    next: Option<Trigger>,
    random: Random,
    /// The fragment being sent, and how much of it is.
    fragment: Vec<u8>,
    sent: usize,
    packet: u16,
    event: u32,
    loan: Option<Loan>,
    refused: VecDeque<Slice>,
    account: Arc<Sent>,
    ended: bool,
    closed: bool,
}

/// Several sources on one thread.
pub struct SourceDrive<S: Dispatcher> {
    endpoints: S,
    pool: Pool,
    sources: Vec<Source>,
    gate: Arc<TriggerGate>,
    started: Option<Instant>,
    events: Vec<Event>,
    message: Vec<Slice>,
    deadline: Option<Instant>,
}

const RETRY: Duration = Duration::from_millis(100);
/// Bytes that one source may queue in one turn, so that all have their share.
const TURN_BYTES: usize = 512 * 1024;
/// Triggers for which a source asks at once; more would let the run end later than it was told to.
const ADVANCE: u64 = 32;

impl<S: Dispatcher> SourceDrive<S> {
    /// Sources that send what `gate` lets through, from blocks of `pool`.
    pub fn new(configs: Vec<SourceDriveConfig>, endpoints: S, pool: Pool, gate: Arc<TriggerGate>) -> Self {
        let sources = configs.into_iter().map(Source::new).collect();
        Self {
            endpoints,
            pool,
            sources,
            gate,
            started: None,
            events: Vec::with_capacity(256),
            message: Vec::with_capacity(16),
            deadline: None,
        }
    }

    /// What each source says that it sent.
    pub fn sent(&self) -> Vec<(SourceId, Arc<Sent>)> {
        self.sources.iter().map(|source| (source.config.id, Arc::clone(&source.account))).collect()
    }

    fn poll_endpoints(&mut self, now: Instant) -> usize {
        for source in &mut self.sources {
            if source.endpoint.is_none() && !source.closed && now >= source.retry {
                source.retry = now.after(RETRY);
                source.endpoint = self.endpoints.connect(&source.config.address).ok();
            }
        }
        let mut events = std::mem::take(&mut self.events);
        let work = self.endpoints.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            let Some(source) = self.sources.iter_mut().find(|source| source.endpoint == Some(endpoint)) else {
                continue;
            };
            match event {
                Event::Established { .. } => source.established = true,
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

    /// Fills and queues blocks of one source; returns the bytes queued.
    fn feed(&mut self, index: usize, elapsed: Duration) -> usize {
        let source = &mut self.sources[index];
        let (Some(endpoint), true, false) = (source.endpoint, source.established, source.ended) else { return 0 };
        let mut queued = 0;
        while queued < TURN_BYTES {
            if source.refused.is_empty() {
                let Some(slice) = source.fill(&mut self.pool, &self.gate, elapsed) else { break };
                source.refused.push_back(slice);
            }
            self.message.extend(source.refused.drain(..));
            let bytes: usize = self.message.iter().map(|slice| slice.len()).sum();
            if self.endpoints.send(endpoint, &mut self.message).is_err() {
                source.refused.extend(self.message.drain(..));
                break;
            }
            queued += bytes;
        }
        if source.is_exhausted(&self.gate) {
            source.ended = true;
            source.loan = None;
            self.endpoints.close(endpoint);
        }
        queued
    }
}

impl Source {
    fn new(config: SourceDriveConfig) -> Self {
        let (rate, seed) = match config.feed {
            SourceFeed::Emulated { rate, seed, .. } => (rate, seed),
            SourceFeed::Recorded { .. } => (TriggerRate::Unlimited, 0),
        };
        Self {
            endpoint: None,
            established: false,
            retry: Instant::ZERO,
            triggers: TriggerSequence::new(seed, rate),
            next: None,
            random: Random::new(seed, u64::from(config.id.0) + 1),
            fragment: Vec::new(),
            sent: 0,
            packet: 0,
            event: 0,
            loan: None,
            refused: VecDeque::new(),
            account: Arc::default(),
            ended: false,
            closed: false,
            config,
        }
    }

    fn disconnected(&mut self, now: Instant) {
        self.endpoint = None;
        self.established = false;
        self.retry = now.after(RETRY);
        self.closed |= self.ended;
        // A fragment that was under way is lost with the connection; the next connection begins with a whole one.
        self.refused.clear();
        self.loan = None;
        self.sent = self.fragment.len();
    }

    /// A slice of whole FEROL blocks; none where nothing is due or no block of memory is free.
    fn fill(&mut self, pool: &mut Pool, gate: &TriggerGate, elapsed: Duration) -> Option<Slice> {
        loop {
            if self.sent == self.fragment.len() && !self.next_fragment(gate, elapsed) {
                break;
            }
            if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < ferol::MAX_BLOCK_BYTES) {
                if let Some(slice) = self.loan.take().and_then(|mut full| full.split_committed()) {
                    return Some(slice);
                }
                self.loan = Some(pool.loan(Owner::SHARED)?);
            }
            self.write_block();
        }
        self.loan.as_mut()?.split_committed()
    }

    /// Appends the next FEROL block of the fragment to the loan.
    fn write_block(&mut self) {
        let Some(loan) = &mut self.loan else { return };
        let part = (self.fragment.len() - self.sent).min(ferol::MAX_PAYLOAD_BYTES);
        let header = BlockHeader {
            source: self.config.id,
            event_number: self.event,
            packet: self.packet,
            first: self.sent == 0,
            last: self.sent + part == self.fragment.len(),
            payload_bytes: part as u16,
        };
        let spare = loan.spare();
        spare[..ferol::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let to = ferol::HEADER_BYTES..ferol::HEADER_BYTES + part;
        ropewalk_kernels::copy(&mut spare[to], &self.fragment[self.sent..self.sent + part]);
        loan.commit(ferol::HEADER_BYTES + part);
        self.sent += part;
        self.packet += 1;
        if self.sent == self.fragment.len() {
            self.account.fragments.fetch_add(1, Ordering::Relaxed);
            self.account.bytes.fetch_add(self.fragment.len() as u64, Ordering::Relaxed);
        }
    }

    /// Puts the next fragment together; false where none is due.
    fn next_fragment(&mut self, gate: &TriggerGate, elapsed: Duration) -> bool {
        let trigger = *self.next.get_or_insert_with(|| self.triggers.next_trigger());
        if trigger.at > elapsed {
            return false;
        }
        // With a rate the gate is asked trigger by trigger, or the end would lie in the future.
        let ahead = if trigger.at == Duration::ZERO { ADVANCE } else { 0 };
        if gate.advance_to(trigger.number) < trigger.number {
            return false;
        }
        if trigger.number.is_multiple_of(ADVANCE) {
            gate.advance_to(trigger.number + ahead);
        }
        match &self.config.feed {
            SourceFeed::Emulated { size, .. } => {
                let bytes = size.next_fragment(&mut self.random) as usize;
                let header =
                    fed::Header::new(self.config.id, trigger.number as u32 & 0xff_ffff, trigger.bunch_crossing);
                encode_pattern(header, trigger.number, bytes, &mut self.fragment);
            }
            SourceFeed::Recorded { bytes, fragments } => {
                let Some(range) = fragments.get(trigger.number as usize - 1) else { return false };
                self.fragment.clear();
                self.fragment.extend_from_slice(&bytes[range.clone()]);
            }
        }
        self.event = trigger.number as u32 & 0xff_ffff;
        self.sent = 0;
        self.packet = 0;
        self.next = None;
        true
    }

    /// Nothing more comes: the gate is closed behind the last trigger, or the recording is at its end.
    fn is_exhausted(&self, gate: &TriggerGate) -> bool {
        if self.sent < self.fragment.len() || !self.refused.is_empty() {
            return false;
        }
        let next = self.next.map_or(1, |trigger| trigger.number);
        let recorded = match &self.config.feed {
            SourceFeed::Recorded { fragments, .. } => next > fragments.len() as u64,
            SourceFeed::Emulated { .. } => false,
        };
        recorded || gate.last().is_some_and(|last| next > last)
    }
}

/// A FED fragment whose payload words name its source and event, so that a mix-up shows in the bytes.
fn encode_pattern(header: fed::Header, number: u64, bytes: usize, out: &mut Vec<u8>) {
    let base = (u64::from(header.source().0) << 48) ^ (number << 16);
    out.clear();
    // Written where it belongs: copied from a buffer of its own it took six times as long for fragments of 4,096 bytes,
    // whose two buffers then lay 4 KiB apart, which this kind of processor mistakes for the same place.
    // Sizes of emulated fragments are multiples of 8 within what a FED fragment may have.
    let encoded = fed::encode_with(header, bytes - fed::MIN_BYTES, fed::Trailer::new(), out, |payload| {
        for (place, word) in payload.as_chunks_mut::<{ fed::WORD_BYTES }>().0.iter_mut().zip(0..) {
            *place = (base ^ word).to_le_bytes();
        }
    });
    debug_assert!(encoded.is_ok(), "an emulated fragment of {bytes} bytes is refused");
}

impl<S: Dispatcher> Drive for SourceDrive<S> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.poll_endpoints(now);
        let started = *self.started.get_or_insert(now);
        for index in 0..self.sources.len() {
            work += self.feed(index, now.since(started));
        }
        let due =
            self.sources.iter().filter(|source| source.established && !source.ended).filter_map(|source| source.next);
        self.deadline = due.map(|trigger| started.after(trigger.at)).filter(|&at| at > now).min();
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retries =
            self.sources.iter().filter(|source| source.endpoint.is_none() && !source.closed).map(|source| source.retry);
        retries.chain(self.deadline).chain(self.endpoints.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.endpoints.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.sources.iter().all(|source| source.closed)
    }
}
