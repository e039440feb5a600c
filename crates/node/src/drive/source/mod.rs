//! Front ends that are not there: emulated ones and recorded ones, in the way in which they would come.
//!
//! ```text
//!  Content: the frames of the next trigger --+--> Stream: a connection to the readout unit (FED fragments in FEROL blocks)
//!                                            +--> Datagrams: handed to a receiver of a readout unit in this process
//! ```

mod content;
mod datagrams;
mod stream;

use super::Drive;
use content::Content;
use datagrams::Datagrams;
use ropewalk_flow::source::{FrameMaker, Frames, SizeDistribution, TriggerGate, TriggerRate};
use ropewalk_io::packet::LocalFeed;
use ropewalk_io::{Dispatcher, Event};
use ropewalk_memory::{Pool, Slice};
use ropewalk_terms::{Instant, SourceId};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stream::Stream;

/// Where a source's fragments come from.
#[derive(Clone, Debug)]
pub enum SourceFeed {
    /// Made up: this size, at this rate, from this seed.
    Emulated {
        /// What makes its frames.
        frames: Box<FrameMaker>,
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

/// How a source's bytes come to its readout unit.
#[derive(Debug)]
pub enum SourceLine {
    /// Over a connection to this address.
    Stream(String),
    /// In datagrams, to a receiver that the readout unit has.
    Datagrams(Box<LocalFeed>),
}

/// One source of a drive.
#[derive(Debug)]
pub struct SourceDriveConfig {
    /// Its id.
    pub id: SourceId,
    /// How its bytes come to the readout unit.
    pub line: SourceLine,
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

impl Sent {
    fn note(&self, frames: &Frames) {
        self.fragments.fetch_add(frames.events(), Ordering::Relaxed);
        self.bytes.fetch_add(frames.bytes().len() as u64, Ordering::Relaxed);
    }
}

enum Line {
    Stream(Box<Stream>),
    Datagrams(Box<Datagrams>),
    /// Everything was said in datagrams: the receiver knows it by this.
    Ended,
}

struct Source {
    id: SourceId,
    content: Content,
    line: Line,
    account: Arc<Sent>,
    /// It has said everything.
    has_ended: bool,
    /// And nothing of it is under way any more.
    is_closed: bool,
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

/// How long a source waits whose readout unit has no room for datagrams, before it looks again.
const NO_ROOM: Duration = Duration::from_micros(200);

impl<S: Dispatcher> SourceDrive<S> {
    /// Sources that send what `gate` lets through, streams from blocks of `pool`.
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

    /// Sends what is due of one source; returns how much that was.
    fn feed(&mut self, index: usize, elapsed: Duration) -> usize {
        let source = &mut self.sources[index];
        if source.has_ended {
            return 0;
        }
        let gate = (&*self.gate, elapsed);
        let (work, has_ended) = match &mut source.line {
            Line::Stream(stream) => {
                let to = (&mut self.endpoints, &mut self.pool, &mut self.message);
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
    fn new(config: SourceDriveConfig) -> Self {
        let SourceDriveConfig { id, line, feed } = config;
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

    /// When it has something to do again, where that is known; `started` is the begin of its triggers.
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

    /// When it connects again.
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
