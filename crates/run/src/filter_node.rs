//! A filter node: filter units for builder units on other machines, served by one thread of a separate process.

use super::error::{RunError, endpoint, system, unfit};
use super::placement::{Part, Purpose, ThreadPlacement, pool_of};
use super::plugins::{Watched, filter_process, fingerprint};
use super::worker::{DriveWithPage, Ending, Worker};
use ropewalk_config::Configuration;
use ropewalk_engine::Drive;
use ropewalk_flow::messages::{Fragment, FragmentMeta};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event};
use ropewalk_memory::{ByteQueue, MemoryKind, PoolConfig, Slice, Staging};
use ropewalk_plugin::filter::FilterEvent;
use ropewalk_plugin::filter::process::{FilterProcess, Offer};
use ropewalk_terms::{Attempt, EventKey, Instant, TriggerBits};
use ropewalk_wire::filter_node::{
    DecisionHead, DeclaredHistogram, EVENT_HEAD, EventHead, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame,
    Kind, LARGEST_CONTROL, decode_begin, decode_event_head, decode_fragment, decode_hello, encode_decision,
    encode_refuse, encode_welcome,
};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The thread's name, and the prefix of its pools' names.
const NAME: &str = "filter-node";
/// Maximum size of a decision in bytes.
const MOST_DECISION: usize = LARGEST_CONTROL;
/// Blocks from which decisions are sent. Each has room for several.
const STAGING_BLOCK: usize = 256 << 10;
const STAGING_BLOCKS: usize = 64;
/// Maximum number of bytes of decisions that wait to be sent.
const QUEUE: usize = 4 << 20;
/// Size of a block into which events are received.
const RECEIVE_BLOCK: usize = 1 << 20;

/// A running filter node.
#[derive(Debug)]
pub struct FilterNodeHandle {
    worker: Worker,
    ending: Arc<Ending>,
    address: String,
    counts: Arc<NodeCounts>,
    watched: Vec<Watched>,
    warnings: Vec<String>,
}

/// Account of a filter node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FilterNodeSummary {
    /// Callers whose filter became ready.
    pub welcomed: u64,
    /// Callers who were refused.
    pub refused: u64,
    /// Decisions that were sent.
    pub decisions: u64,
}

/// Starts a filter node that listens at this address, with the filter of this configuration, which is tried out first.
///
/// # Errors
/// If there is no such filter, or the address, memory or a thread cannot be obtained.
pub fn launch_filter_node(configuration: &Configuration, listen: &str) -> Result<FilterNodeHandle, RunError> {
    let section = configuration.filter.as_ref().filter(|section| section.has_processes());
    let section = section.ok_or_else(|| {
        RunError::Unfit(
            "a filter node needs a [filter] with a `library` that is not trusted, or a `program`".to_owned(),
        )
    })?;
    let placement = ThreadPlacement::new(configuration, Part::Other)?;
    // Twice the number in use at once: a builder unit or gateway that reconnects does not wait for the end of its
    // previous process.
    let queues: usize = configuration.gateway.iter().map(|gateway| usize::from(gateway.queues)).sum();
    let units = 2 * usize::from(section.units) * (configuration.builder.len() + queues).max(1);
    let memory = MemoryKind::Memfd;
    let blocks = (section.node_memory.0 as usize).div_ceil(RECEIVE_BLOCK).max(2 * units);
    let receive =
        PoolConfig { memory, ..PoolConfig::anonymous(&pool_of(NAME, Purpose::Control), RECEIVE_BLOCK, blocks) };
    let receive = placement.pool(receive)?;
    let tcp = TcpConfig { send_queue_bytes: QUEUE, ..TcpConfig::default() };
    let peers = Tcp::new(tcp, receive).map_err(endpoint(NAME))?;
    let staging = PoolConfig::anonymous(&pool_of(NAME, Purpose::Staging), STAGING_BLOCK, STAGING_BLOCKS);
    let staging = Staging::new(placement.untouched_pool(staging)?);
    let mut warnings = Vec::new();
    let mut processes = Vec::new();
    for unit in 0..units {
        let mut one = filter_process(section).map_err(unfit)?;
        if unit == 0 {
            one.try_out(ropewalk_tools::library_process::START).map_err(unfit)?;
            warnings.extend(one.missing().texts().map(|text| format!("{NAME}: {text}")));
        }
        processes.push(one);
    }
    let watched =
        (0..).zip(&processes).map(|(unit, one)| Watched::new(format!("filter {unit}"), one.journal())).collect();
    let drive = FilterNodeDrive::new(listen, fingerprint(section), section.events, peers, staging, processes);
    let drive = drive.map_err(endpoint(NAME))?;
    let (address, counts, ending) = (drive.address().to_owned(), drive.counts(), Arc::new(Ending::default()));
    let prepare = placement.on_start(NAME);
    let worker = Worker::start(NAME, vec![DriveWithPage::new(Box::new(drive), None)], Arc::clone(&ending), prepare);
    let worker = worker.map_err(system(format!("thread {NAME}")))?;
    warnings.extend(placement.finish()?);
    Ok(FilterNodeHandle { worker, ending, address, counts, watched, warnings })
}

impl FilterNodeHandle {
    /// Returns the address on which it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the requests that the system refused and that the node does without.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the new kinds of faults of filters since the last call.
    pub fn take_news(&mut self) -> Vec<String> {
        self.watched.iter_mut().flat_map(Watched::take_news).collect()
    }

    /// Returns whether its thread has ended, which it does after a panic.
    pub fn has_ended(&self) -> bool {
        self.worker.is_finished()
    }

    /// Returns its account so far.
    pub fn summary(&self) -> FilterNodeSummary {
        let NodeCounts { welcomed, refused, decisions } = &*self.counts;
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        FilterNodeSummary { welcomed: read(welcomed), refused: read(refused), decisions: read(decisions) }
    }

    /// Ends it with its processes.
    pub fn finish(self) -> FilterNodeSummary {
        self.ending.halt();
        self.worker.wake();
        let summary = self.summary();
        self.worker.join();
        summary
    }
}

/// Why a connection is no longer usable.
#[derive(Debug)]
enum Wrong {
    /// The connection or the process has ended.
    Lost,
    /// The filter cannot be obtained.
    NotReady(String),
    /// The caller sent an invalid message.
    Said(String),
}

/// An event of a builder unit on another machine.
#[derive(Debug)]
struct RemoteEvent {
    head: EventHead,
    fragments: Vec<Fragment>,
}

impl FilterEvent for RemoteEvent {
    fn key(&self) -> EventKey {
        self.head.key
    }

    fn attempt(&self) -> Attempt {
        self.head.attempt
    }

    fn is_complete(&self) -> bool {
        self.head.is_complete
    }

    fn trigger_type(&self) -> u16 {
        self.head.trigger_type
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Not identified.
    Unknown,
    /// Identified; start the process next.
    Greeted,
    /// The process was started.
    Started,
    /// The welcome was sent: the filter is ready.
    Welcome,
}

/// The caller of a filter unit: a builder unit on another machine.
#[derive(Debug)]
struct Caller {
    filter: u64,
    window: u32,
    state: State,
    bytes: ByteQueue,
    /// Undecided events. Their bytes are referenced until then.
    held: VecDeque<RemoteEvent>,
    /// Number of these that the process has, from the first one on.
    given: usize,
    /// The sequence number of the next event.
    next: u64,
    /// Whether the first of these events will never fit into the memory shared with the process.
    is_too_large: bool,
}

impl Caller {
    /// Creates a connection before its hello. `filter` is the fingerprint of this node's filter, `window` the number of
    /// events decided at once.
    fn new(filter: u64, window: u32) -> Self {
        Self {
            filter,
            window,
            state: State::Unknown,
            bytes: ByteQueue::with_capacity(1024),
            held: VecDeque::with_capacity(window as usize),
            given: 0,
            next: 1,
            is_too_large: false,
        }
    }

    /// Appends received bytes.
    fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// Returns whether to start its process now.
    fn wants_process(&mut self) -> bool {
        let wants = self.state == State::Greeted;
        if wants {
            self.state = State::Started;
        }
        wants
    }

    /// Returns whether the welcome was sent.
    fn is_welcome(&self) -> bool {
        self.state == State::Welcome
    }

    /// Encodes the welcome: the filter is ready.
    fn welcome(&mut self, process: &FilterProcess, out: &mut Vec<u8>) {
        let declared = process.histograms().iter().map(|shape| DeclaredHistogram {
            name: shape.name().to_owned(),
            bins: shape.bins(),
            low: shape.low(),
            high: shape.high(),
        });
        encode_welcome(self.window, &declared.collect::<Vec<_>>(), out);
        self.state = State::Welcome;
    }

    /// Handles received messages, and passes events on to the process. Returns how many messages were handled.
    fn hear(&mut self, process: &mut FilterProcess) -> Result<usize, Wrong> {
        let mut heard = 0;
        while let Some(head) = self.bytes.peek_array::<FRAME_BYTES>(0) {
            let frame = Frame::parse(&head).map_err(|error| Wrong::Said(error.to_string()))?;
            if self.bytes.len() < FRAME_BYTES + frame.body as usize {
                break;
            }
            self.bytes.skip(FRAME_BYTES);
            self.message(frame, process)?;
            heard += 1;
        }
        while self.state == State::Welcome && self.given < self.held.len() && !self.is_too_large {
            match process.offer(0, &self.held[self.given]) {
                Offer::Taken => self.given += 1,
                Offer::Full => break,
                Offer::TooLarge => self.is_too_large = true,
            }
        }
        process.flush();
        Ok(heard)
    }

    /// Handles a message whose body is complete.
    fn message(&mut self, frame: Frame, process: &mut FilterProcess) -> Result<(), Wrong> {
        let length = frame.body as usize;
        if frame.kind == Kind::Event && self.state == State::Welcome {
            return self.event(length);
        }
        let mut body = vec![0; length];
        self.bytes.copy_to(0, &mut body);
        self.bytes.skip(length);
        match (frame.kind, self.state) {
            (Kind::Hello, State::Unknown) => self.hello(&body),
            (Kind::Begin, State::Greeted | State::Started | State::Welcome) => {
                process.begin_run(decode_begin(&body).map_err(|error| Wrong::Said(error.to_string()))?);
                Ok(())
            }
            (Kind::End, State::Greeted | State::Started | State::Welcome) => {
                process.end_run();
                Ok(())
            }
            (kind, _) => Err(Wrong::Said(format!("{kind:?} has no place here"))),
        }
    }

    fn hello(&mut self, body: &[u8]) -> Result<(), Wrong> {
        let (version, filter) = decode_hello(body).map_err(|error| Wrong::Said(error.to_string()))?;
        if version != FILTER_NODE_VERSION {
            let why = format!("version {version} of the messages, and this node speaks version {FILTER_NODE_VERSION}");
            return Err(Wrong::Said(why));
        }
        if filter != self.filter {
            let why = "this node has another filter: `library`, `program` and `configuration` are to be the same";
            return Err(Wrong::Said(why.to_owned()));
        }
        self.state = State::Greeted;
        Ok(())
    }

    /// Handles an event. Its payloads are cut from the received data in place.
    fn event(&mut self, length: usize) -> Result<(), Wrong> {
        let wrong = |what: &str| Wrong::Said(format!("an event {what}"));
        let meaning = |error: ropewalk_wire::frame::FrameError| Wrong::Said(error.to_string());
        let head = self.bytes.peek_array::<EVENT_HEAD>(0).filter(|_| length >= EVENT_HEAD);
        let head = decode_event_head(&head.ok_or_else(|| wrong("without its head"))?).map_err(meaning)?;
        if head.sequence != self.next {
            return Err(wrong("out of order"));
        }
        if self.held.len() == self.window as usize {
            return Err(wrong("beyond the window of undecided events"));
        }
        let count = usize::from(head.fragments);
        let payloads = length.checked_sub(EVENT_HEAD + count * FRAGMENT_HEAD);
        let mut left = payloads.ok_or_else(|| wrong("shorter than its heads"))?;
        let mut metas = Vec::with_capacity(count);
        for index in 0..count {
            let bytes = self.bytes.peek_array::<FRAGMENT_HEAD>(EVENT_HEAD + index * FRAGMENT_HEAD);
            let meta = decode_fragment(&bytes.ok_or_else(|| wrong("without its heads"))?).map_err(meaning)?;
            left = left.checked_sub(meta.length as usize).ok_or_else(|| wrong("shorter than its fragments"))?;
            metas.push(meta);
        }
        if left > 0 {
            return Err(wrong("longer than its fragments"));
        }
        self.bytes.skip(EVENT_HEAD + count * FRAGMENT_HEAD);
        let bytes = &mut self.bytes;
        let fragment = |meta: FragmentMeta| Fragment { meta, payload: bytes.take(meta.length as usize) };
        let fragments = metas.into_iter().map(fragment).collect();
        self.held.push_back(RemoteEvent { head, fragments });
        self.next += 1;
        Ok(())
    }

    /// Writes the next decision to `out`; false if no decision waits.
    fn next_decision(&mut self, process: &mut FilterProcess, out: &mut Vec<u8>) -> Result<bool, Wrong> {
        if self.given == 0 {
            if !std::mem::take(&mut self.is_too_large) {
                return Ok(false);
            }
            // The best that a builder unit can do with it is to set it aside.
            let Some(event) = self.held.pop_front() else { return Ok(false) };
            let head = decision_head(&event.head, None, TriggerBits::default(), 0);
            encode_decision(&head, [].into_iter(), &[], out);
            return Ok(true);
        }
        match process.next_decision() {
            None => Ok(false),
            Some(Err(_)) => Err(Wrong::Lost),
            Some(Ok((_, decision))) => {
                let Some(event) = self.held.pop_front() else { return Err(Wrong::Lost) };
                self.given -= 1;
                match decision {
                    None => {
                        let head = decision_head(&event.head, None, TriggerBits::default(), 0);
                        encode_decision(&head, [].into_iter(), &[], out);
                    }
                    Some(said) => {
                        let dropped = said.fills.dropped().try_into().unwrap_or(u32::MAX);
                        let head = decision_head(&event.head, Some(said.accept), said.bits, dropped);
                        let fills = said.fills.values().iter().map(|fill| (fill.histogram, fill.value));
                        encode_decision(&head, fills, said.result, out);
                    }
                }
                Ok(true)
            }
        }
    }
}

const fn decision_head(
    event: &EventHead,
    accept: Option<bool>,
    triggers: TriggerBits,
    dropped_fills: u32,
) -> DecisionHead {
    let EventHead { sequence, key, attempt, .. } = *event;
    DecisionHead { sequence, key, attempt, accept, triggers, dropped_fills }
}

/// Counters of a filter node.
#[derive(Debug, Default)]
struct NodeCounts {
    /// Callers whose filter became ready.
    welcomed: AtomicU64,
    /// Callers of another version, with another filter, or with invalid messages.
    refused: AtomicU64,
    /// Decisions that were sent.
    decisions: AtomicU64,
}

/// A filter unit: a process, and its caller.
struct Unit {
    process: FilterProcess,
    caller: Option<(Endpoint, Caller)>,
    /// Whether its process was started, and it is not yet free for another caller.
    is_running: bool,
    /// Whether the process has certainly ended. Its earlier decisions may not all be sent.
    has_ended: bool,
}

/// The drive of a filter node; see the module documentation.
struct FilterNodeDrive<P> {
    peers: P,
    staging: Staging,
    address: String,
    /// Fingerprint of its filter.
    filter: u64,
    /// Number of events that a unit takes at once.
    window: u32,
    units: Vec<Unit>,
    counts: Arc<NodeCounts>,
    events: Vec<Event>,
    text: Vec<u8>,
    slices: Vec<Slice>,
}

impl<P: Dispatcher> FilterNodeDrive<P> {
    /// Creates a node that listens at this address, with these processes, none of which was started.
    ///
    /// # Errors
    /// If the address cannot be obtained.
    fn new(
        listen: &str,
        filter: u64,
        window: u32,
        mut peers: P,
        staging: Staging,
        processes: Vec<FilterProcess>,
    ) -> Result<Self, EndpointError> {
        let point = peers.listen(listen)?;
        let address = peers.address_of(point).unwrap_or_default();
        let unit = |process| Unit { process, caller: None, is_running: false, has_ended: false };
        Ok(Self {
            peers,
            staging,
            address,
            filter,
            window,
            units: processes.into_iter().map(unit).collect(),
            counts: Arc::default(),
            events: Vec::with_capacity(256),
            text: Vec::with_capacity(128 << 10),
            slices: Vec::with_capacity(1),
        })
    }

    /// Returns the address on which it listens.
    fn address(&self) -> &str {
        &self.address
    }

    /// Returns its counters.
    fn counts(&self) -> Arc<NodeCounts> {
        Arc::clone(&self.counts)
    }

    fn unit_of(&mut self, endpoint: Endpoint) -> Option<&mut Unit> {
        self.units.iter_mut().find(|unit| unit.caller.as_ref().is_some_and(|(known, _)| *known == endpoint))
    }

    fn poll(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut work = self.peers.poll(now, &mut events);
        work += events.len();
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.peers.accept(endpoint),
                Event::Established { endpoint } => self.take_in(endpoint),
                Event::Received { endpoint, slice } => {
                    if let Some((_, caller)) = self.unit_of(endpoint).and_then(|unit| unit.caller.as_mut()) {
                        caller.push(slice);
                    }
                }
                Event::Disconnected { endpoint } | Event::Finished { endpoint } | Event::Broken { endpoint, .. } => {
                    if let Some(unit) = self.unit_of(endpoint) {
                        unit.caller = None;
                        unit.process.kill();
                    }
                }
                _ => {}
            }
        }
        self.events = events;
        work
    }

    /// Gives a new connection a free unit, or refuses it.
    fn take_in(&mut self, endpoint: Endpoint) {
        match self.units.iter_mut().find(|unit| unit.caller.is_none() && !unit.is_running) {
            Some(unit) => unit.caller = Some((endpoint, Caller::new(self.filter, self.window))),
            None => self.refuse(endpoint, "every filter unit of this node is in use"),
        }
    }

    fn refuse(&mut self, endpoint: Endpoint, why: &str) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.text.clear();
        encode_refuse(why, &mut self.text);
        self.slices.extend(self.staging.write(&self.text));
        let _ = self.peers.send(endpoint, &mut self.slices);
        self.slices.clear();
        self.peers.close(endpoint);
    }

    /// Does the work of a unit and its caller. Returns the amount of work done.
    fn turn_unit(&mut self, index: usize) -> usize {
        let Some(unit) = self.units.get_mut(index) else { return 0 };
        let seen = unit.process.look();
        unit.has_ended |= seen.has_ended;
        let work = usize::from(seen.is_ready || seen.has_ended);
        let Some((endpoint, _)) = unit.caller else {
            if std::mem::take(&mut unit.has_ended) {
                unit.is_running = false;
                unit.process.clear();
            }
            return work;
        };
        let is_deaf = unit.has_ended && !seen.is_ready;
        let heard = if is_deaf { Ok(0) } else { self.hear(index, seen.is_ready) };
        match heard.and_then(|heard| Ok(heard + self.send_decisions(index)?)) {
            Ok(done) => work + done,
            Err(wrong) => {
                self.give_up(index, endpoint, &wrong);
                work + 1
            }
        }
    }

    /// Handles a caller's messages, starts its process when it is wanted, and sends the welcome when it is ready.
    fn hear(&mut self, index: usize, is_ready: bool) -> Result<usize, Wrong> {
        let Self { peers, staging, counts, text, slices, .. } = self;
        let unit = &mut self.units[index];
        let Some((endpoint, caller)) = &mut unit.caller else { return Ok(0) };
        let heard = caller.hear(&mut unit.process)?;
        if caller.wants_process() {
            unit.process.start();
            unit.is_running = true;
        }
        if is_ready {
            counts.welcomed.fetch_add(1, Ordering::Relaxed);
            text.clear();
            caller.welcome(&unit.process, text);
            say(peers, staging, *endpoint, text, slices)?;
        }
        Ok(heard)
    }

    /// Sends decisions, as far as there is room. Reports the end after the last decision of a process that has ended.
    fn send_decisions(&mut self, index: usize) -> Result<usize, Wrong> {
        let Self { peers, staging, counts, text, slices, .. } = self;
        let unit = &mut self.units[index];
        let Some((endpoint, caller)) = &mut unit.caller else { return Ok(0) };
        let mut sent = 0;
        while staging.room(MOST_DECISION).is_some() {
            // Only a decision that can certainly be sent is taken from the process.
            if peers.send_room(*endpoint) < MOST_DECISION && peers.queued(*endpoint) > 0 {
                break;
            }
            text.clear();
            if !caller.next_decision(&mut unit.process, text)? {
                return if unit.has_ended { Err(ended(unit)) } else { Ok(sent) };
            }
            say(peers, staging, *endpoint, text, slices)?;
            counts.decisions.fetch_add(1, Ordering::Relaxed);
            sent += 1;
        }
        Ok(sent)
    }

    /// Gives up an unusable connection.
    fn give_up(&mut self, index: usize, endpoint: Endpoint, wrong: &Wrong) {
        let unit = &mut self.units[index];
        unit.caller = None;
        unit.process.kill();
        match wrong {
            Wrong::Lost => self.peers.close(endpoint),
            Wrong::NotReady(why) => self.refuse(endpoint, why),
            Wrong::Said(why) => self.refuse(endpoint, why),
        }
    }
}

/// Queues the encoded message, or returns that the connection is no longer usable.
fn say<P: Dispatcher>(
    peers: &mut P,
    staging: &mut Staging,
    endpoint: Endpoint,
    text: &[u8],
    slices: &mut Vec<Slice>,
) -> Result<(), Wrong> {
    slices.extend(staging.write(text));
    let is_sent = !slices.is_empty() && peers.send(endpoint, slices).is_ok();
    slices.clear();
    if is_sent { Ok(()) } else { Err(Wrong::Lost) }
}

/// Returns why a caller is refused whose process has ended.
fn ended(unit: &Unit) -> Wrong {
    let is_welcome = unit.caller.as_ref().is_some_and(|(_, caller)| caller.is_welcome());
    let why = || unit.process.journal().ends().pop().map_or_else(String::new, |(end, _)| end.to_string());
    if is_welcome { Wrong::Lost } else { Wrong::NotReady(why()) }
}

impl<P: Dispatcher> Drive for FilterNodeDrive<P> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.poll(now);
        let of_units: usize = (0..self.units.len()).map(|index| self.turn_unit(index)).sum();
        work + of_units
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.peers.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        self.peers.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
        self.units.iter().for_each(|unit| into.extend(unit.process.descriptors()));
    }

    fn is_done(&self) -> bool {
        false
    }
}
