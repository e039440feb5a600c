//! What decides on events, as the drive of a builder unit sees it: a function in its thread, or filter units behind a link.
//!
//! A filter unit on another machine is reached over a connection: events leave as they lie, gathered by the endpoint, and
//! decisions come back. Each connection is one life of the filter unit. What it had when the connection was lost goes to
//! others, and what it may still say of that is ignored. A node that is not there yet is called again and again, which counts
//! against no event.

use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{BuiltinFilter, Decision, Fill, Fills, HistogramShape, LumisectionRecord};
use ropewalk_flow::messages::FragmentMeta;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{ByteQueue, Slice, Staging};
use ropewalk_terms::{Attempt, EventKey, Instant, RunNumber};
use ropewalk_wire::filter_node::{
    EventHead, FRAME_BYTES, Frame, Kind, LARGEST_EVENT, MOST_FRAGMENTS, decode_decision, decode_welcome, encode_begin,
    encode_end, encode_event, encode_hello,
};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a filter says of an event beside its decision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Said {
    /// Its own data, which are stored with the event.
    pub result: Vec<u8>,
    /// What it fills into its histograms.
    pub fills: Fills,
}

impl Said {
    /// Nothing is said.
    pub fn clear(&mut self) {
        self.result.clear();
        self.fills.clear();
    }
}

/// Stores the counts of each closed lumisection, and never blocks.
pub trait RecordStore: Send {
    /// Keeps the record of a lumisection of a run, which is closed; gives it back if there is no room now.
    ///
    /// # Errors
    /// The record, which is offered again.
    fn keep(&mut self, run: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord>;

    /// A record that was kept and is not needed any more.
    fn give_back(&mut self) -> Option<LumisectionRecord> {
        None
    }
}

/// A filter that is a function of this process: it answers at once, and what it does wrong it does to the run.
pub trait LocalFilter: Send {
    /// A run begins.
    fn begin(&mut self, _run: RunNumber) {}

    /// The histograms that it fills: what it says names them by their places here.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// Decides on an event; what else it says of it is appended to `said`, which is empty. `None` if no decision could
    /// be had.
    fn decide(&mut self, event: &EventView<'_>, said: &mut Said) -> Option<Decision>;

    /// The run has ended.
    fn end(&mut self) {}

    /// Reads the clock to measure how long decisions take; `None` if that is not measured.
    fn time(&self) -> Option<Instant> {
        None
    }

    /// Bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl LocalFilter for BuiltinFilter {
    fn decide(&mut self, event: &EventView<'_>, _: &mut Said) -> Option<Decision> {
        Some(Self::decide(self, event))
    }
}

/// What can be seen of a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterSight {
    /// It has become ready.
    pub is_ready: bool,
    /// It was there, and has ended: that is certain.
    pub has_ended: bool,
    /// The signal that ended it, unless it was ended for what it did; 0 for none, or where that is not known.
    pub signal: u8,
    /// How many events it takes in all, in this life of it.
    pub granted: u64,
    /// How many decisions it has made in all, in this life of it, taken or not.
    pub decided: u64,
}

/// A decision as it came from a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitDecision {
    /// The event, as it was offered.
    pub slot: u32,
    /// What was decided; `None` if it says that it cannot decide.
    pub decision: Option<Decision>,
}

/// What became of an offer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The filter unit has the event.
    Taken,
    /// There is no room for it now.
    Full,
    /// There will never be room for it.
    TooLarge,
}

/// A filter unit in another process or elsewhere, or a substitute for one. It is never waited for.
pub trait FilterLink: Send {
    /// Starts a process; that this failed is seen as its end.
    fn start(&mut self);

    /// Ends the process; when that is certain it is seen.
    fn kill(&mut self);

    /// The same, of a process that did nothing wrong.
    fn dismiss(&mut self) {
        self.kill();
    }

    /// A run begins. Every process that is there gets this, and every later one.
    fn begin(&mut self, run: RunNumber);

    /// The run has ended.
    fn end(&mut self);

    /// Looks at it.
    fn look(&mut self, now: Instant) -> FilterSight;

    /// Offers an event. What it lies in must be there until it was decided, or the filter unit has ended.
    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered;

    /// Lets the filter unit know of what was offered.
    fn flush(&mut self);

    /// The histograms that it fills, once it is ready: what it says names them by their places here.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// The next decision; what else was said of the event replaces `said`. An error where what it says cannot be true.
    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>>;

    /// Bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64;

    /// When it is to be looked at even if nothing becomes readable.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// To be called before the thread sleeps: false if there is something to look at right now.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Appends what becomes readable when there is something to look at.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
}

/// What a filter unit says cannot be true; why is its own to tell.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotBelieved;

/// The pause before a node that is not there is called again.
const RETRY: Duration = Duration::from_millis(200);
/// Texts that are kept for people.
const MOST_NOTES: usize = 10;

/// Why connections ended, for people: each text once.
#[derive(Clone, Debug, Default)]
pub struct RemoteNotes(Arc<Mutex<Vec<String>>>);

impl RemoteNotes {
    fn note(&self, text: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// See the module's text.
pub struct RemoteUnit<P> {
    peers: P,
    address: String,
    /// Which filter it is to be.
    filter: u64,
    /// Heads of events, and other messages, on their way.
    staging: Staging,
    notes: RemoteNotes,
    endpoint: Option<Endpoint>,
    /// Whether this builder unit's hello was sent.
    is_greeted: bool,
    /// Whether the filter unit is wanted.
    is_wanted: bool,
    retry: Instant,
    /// Events that it takes at once; `None` before it is ready.
    window: Option<u32>,
    has_ended: bool,
    histograms: Vec<HistogramShape>,
    run: Option<RunNumber>,
    /// What it has, in the order in which it got them.
    offered: VecDeque<(u32, EventKey, Attempt)>,
    taken: u64,
    /// What it said that was not taken: this many whole decisions, in this many bytes.
    bytes: ByteQueue,
    whole: u64,
    scanned: usize,
    /// Kept for their capacity.
    events: Vec<Event>,
    metas: Vec<FragmentMeta>,
    text: Vec<u8>,
    slices: Vec<Slice>,
}

impl<P: Dispatcher> RemoteUnit<P> {
    /// The filter unit at this address, which is to be the filter with this fingerprint. Its receive pool is for this one connection.
    pub fn new(address: String, filter: u64, peers: P, staging: Staging) -> Self {
        Self {
            peers,
            address,
            filter,
            staging,
            notes: RemoteNotes::default(),
            endpoint: None,
            is_greeted: false,
            is_wanted: false,
            retry: Instant::ZERO,
            window: None,
            has_ended: false,
            histograms: Vec::new(),
            run: None,
            offered: VecDeque::new(),
            taken: 0,
            bytes: ByteQueue::with_capacity(1024),
            whole: 0,
            scanned: 0,
            events: Vec::with_capacity(64),
            metas: Vec::new(),
            text: Vec::with_capacity(64 << 10),
            slices: Vec::new(),
        }
    }

    /// Why connections ended.
    pub fn notes(&self) -> RemoteNotes {
        self.notes.clone()
    }

    /// The connection is of no more use.
    fn lose(&mut self, now: Instant, why: Option<&str>) {
        if let Some(why) = why {
            self.notes.note(format!("{}: {why}", self.address));
        }
        self.hang_up();
        if self.window.take().is_some() {
            (self.is_wanted, self.has_ended) = (false, true);
        } else {
            self.bytes.clear();
            self.retry = now.after(RETRY);
        }
    }

    fn hang_up(&mut self) {
        self.is_greeted = false;
        if let Some(endpoint) = self.endpoint.take() {
            self.peers.abort(endpoint);
        }
    }

    /// Queues what was encoded; false if it cannot be, and the connection is of no use then.
    fn say(&mut self) -> bool {
        let Some(endpoint) = self.endpoint else { return false };
        self.slices.extend(self.staging.write(&self.text));
        let is_sent = !self.slices.is_empty() && self.peers.send(endpoint, &mut self.slices).is_ok();
        self.slices.clear();
        is_sent
    }

    fn call(&mut self, now: Instant) {
        if self.is_wanted && self.endpoint.is_none() && now >= self.retry {
            match self.peers.connect(&self.address) {
                Ok(endpoint) => self.endpoint = Some(endpoint),
                Err(error) => self.lose(now, Some(&error.to_string())),
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        let mut events = std::mem::take(&mut self.events);
        self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            if Some(event.endpoint()) != self.endpoint {
                continue;
            }
            match event {
                Event::Established { .. } => self.greet(now),
                Event::Received { slice, .. } => self.bytes.push(slice),
                Event::ConnectFailed { cause, .. } => self.lose(now, Some(&format!("cannot be reached: {cause:?}"))),
                Event::Disconnected { .. } | Event::Finished { .. } | Event::Broken { .. } => {
                    // What it said before counts.
                    self.hear_all(now);
                    self.lose(now, self.window.map(|_| "the connection was lost"));
                }
                _ => {}
            }
        }
        self.events = events;
    }

    fn greet(&mut self, now: Instant) {
        self.text.clear();
        encode_hello(self.filter, &mut self.text);
        if let Some(run) = self.run {
            encode_begin(run, &mut self.text);
        }
        self.is_greeted = self.say();
        if !self.is_greeted {
            self.lose(now, Some("there is no room to send anything"));
        }
    }

    /// Handles received messages. Returns whether the filter unit has become ready.
    fn hear_all(&mut self, now: Instant) -> bool {
        let was_ready = self.window.is_some();
        if let Err(why) = self.hear() {
            self.lose(now, Some(&why));
        }
        !was_ready && self.window.is_some()
    }

    fn hear(&mut self) -> Result<(), String> {
        while let Some(head) = self.bytes.peek_array::<FRAME_BYTES>(self.scanned) {
            let frame =
                Frame::parse(&head).map_err(|error| format!("what it says is not to be understood: {error}"))?;
            let length = FRAME_BYTES + frame.body as usize;
            if self.bytes.len() < self.scanned + length {
                return Ok(());
            }
            match (frame.kind, self.window) {
                (Kind::Decision, Some(_)) => {
                    self.scanned += length;
                    self.whole += 1;
                }
                (Kind::Welcome, None) => {
                    self.take_message(length);
                    self.welcome()?;
                }
                (Kind::Refuse, None) => {
                    self.take_message(length);
                    return Err(format!("it refuses: {}", String::from_utf8_lossy(&self.text)));
                }
                (kind, _) => return Err(format!("it sent {kind:?} where that has no place")),
            }
        }
        Ok(())
    }

    /// The body of the first message, which has come whole, becomes the text.
    fn take_message(&mut self, length: usize) {
        self.bytes.skip(FRAME_BYTES);
        let body = length - FRAME_BYTES;
        self.text.clear();
        self.text.resize(body, 0);
        self.bytes.copy_to(0, &mut self.text);
        self.bytes.skip(body);
    }

    fn welcome(&mut self) -> Result<(), String> {
        let (window, histograms) =
            decode_welcome(&self.text).map_err(|error| format!("its welcome is not valid: {error}"))?;
        let shapes = histograms.iter().map(|one| HistogramShape::new(&one.name, one.bins, one.low, one.high));
        self.histograms = shapes.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        self.window = Some(window);
        Ok(())
    }

    /// Decodes the received decision; `None` if it cannot belong to the event that is due.
    fn checked(&mut self, said: &mut Said) -> Option<UnitDecision> {
        said.clear();
        let fills = &mut said.fills;
        let fill = |histogram, value| fills.push(Fill { histogram, value });
        let (head, result) = decode_decision(&self.text, fill).ok()?;
        let &(slot, key, attempt) = self.offered.front()?;
        if (head.sequence, head.key, head.attempt) != (self.taken + 1, key, attempt) {
            return None;
        }
        said.fills.drop_more(head.dropped_fills.into());
        said.result.extend_from_slice(result);
        let decision = head.accept.map(|accept| Decision { accept, triggers: head.triggers });
        self.offered.pop_front();
        self.taken += 1;
        Some(UnitDecision { slot, decision })
    }
}

impl<P: Dispatcher + Send> FilterLink for RemoteUnit<P> {
    fn start(&mut self) {
        (self.is_wanted, self.retry) = (true, Instant::ZERO);
        self.offered.clear();
        self.bytes.clear();
        (self.taken, self.whole, self.scanned) = (0, 0, 0);
    }

    fn kill(&mut self) {
        self.hang_up();
        // Its messages are ignored from now on: for this run it has ended.
        (self.is_wanted, self.window, self.has_ended) = (false, None, true);
    }

    fn begin(&mut self, run: RunNumber) {
        self.run = Some(run);
        self.text.clear();
        encode_begin(run, &mut self.text);
        if self.is_greeted && !self.say() {
            self.kill();
        }
    }

    fn end(&mut self) {
        self.run = None;
        self.text.clear();
        encode_end(&mut self.text);
        if self.is_greeted && !self.say() {
            self.kill();
        }
    }

    fn look(&mut self, now: Instant) -> FilterSight {
        self.call(now);
        self.poll(now);
        let is_ready = self.hear_all(now);
        let has_ended = std::mem::take(&mut self.has_ended);
        let decided = self.taken + self.whole;
        let granted = self.window.map_or(0, |window| self.taken + u64::from(window));
        FilterSight { is_ready, has_ended, granted, decided, ..FilterSight::default() }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        let Some(endpoint) = self.endpoint.filter(|_| self.window.is_some()) else { return Offered::Full };
        self.metas.clear();
        // The lengths sent are the real ones, even if the fragment says otherwise.
        let meta = |fragment: &ropewalk_flow::messages::Fragment| FragmentMeta {
            length: fragment.payload.len() as u32,
            ..fragment.meta
        };
        self.metas.extend(event.fragments().map(meta));
        let payloads: usize = self.metas.iter().map(|meta| meta.length as usize).sum();
        let head = EventHead {
            sequence: self.taken + self.offered.len() as u64 + 1,
            key: event.key,
            attempt: event.attempt,
            trigger_type: event.trigger_type(),
            is_complete: event.complete,
            fragments: self.metas.len() as u16,
        };
        self.text.clear();
        encode_event(&head, self.metas.iter(), &mut self.text);
        let is_large = self.text.len() + payloads > LARGEST_EVENT || self.text.len() > self.staging.largest();
        if self.metas.len() > MOST_FRAGMENTS || is_large {
            return Offered::TooLarge;
        }
        let Some(head) = self.staging.write(&self.text) else { return Offered::Full };
        self.slices.push(head);
        self.slices.extend(event.fragments().flat_map(|fragment| fragment.payload.clone().into_slices()));
        let is_sent = self.peers.send(endpoint, &mut self.slices).is_ok();
        self.slices.clear();
        if !is_sent {
            return Offered::Full;
        }
        self.offered.push_back((slot, event.key, event.attempt));
        Offered::Taken
    }

    // What was queued leaves with the next look.
    fn flush(&mut self) {}

    fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        self.whole = self.whole.checked_sub(1)?;
        let head = self.bytes.peek_array::<FRAME_BYTES>(0)?;
        let length = FRAME_BYTES + Frame::parse(&head).ok()?.body as usize;
        self.take_message(length);
        self.scanned -= length;
        let checked = self.checked(said);
        if checked.is_none() {
            self.notes.note(format!("{}: it decided on something else than was due", self.address));
        }
        Some(checked.ok_or(NotBelieved))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = Some(self.retry).filter(|_| self.is_wanted && self.endpoint.is_none());
        self.peers.next_deadline().into_iter().chain(retry).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.peers.prepare_wait()
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
    }
}
