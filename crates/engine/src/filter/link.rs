//! The deciders on events as seen by the drive of a builder unit: a function in its thread, or filter units behind a
//! link.
//!
//! A filter unit on another machine is reached over a connection: events are sent by reference, gathered by the
//! endpoint, and decisions are received. Each connection is one incarnation of the filter unit. When it is lost, its
//! events go to other units, and late decisions on them are ignored. A node that is not reachable is called again and
//! again, which does not count against any event.

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

/// The output of a filter on an event, beside its decision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Said {
    /// The filter's own data, which is stored with the event.
    pub result: Vec<u8>,
    /// Entries for its histograms.
    pub fills: Fills,
}

impl Said {
    /// Clears the output.
    pub fn clear(&mut self) {
        self.result.clear();
        self.fills.clear();
    }
}

/// Stores the counts of each closed lumisection, and never blocks.
pub trait RecordStore: Send {
    /// Stores the record of a closed lumisection of a run. Returns it if there is no room now.
    ///
    /// # Errors
    /// The record, which is offered again.
    fn keep(&mut self, run: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord>;

    /// Returns a stored record that is no longer needed.
    fn give_back(&mut self) -> Option<LumisectionRecord> {
        None
    }
}

/// A filter that is a function of this process. It answers immediately, and its faults affect the run.
pub trait LocalFilter: Send {
    /// Begins a run.
    fn begin(&mut self, _run: RunNumber) {}

    /// Returns the histograms that it fills. Its output identifies them by their place in this list.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// Decides on an event. Other output on it is appended to `said`, which is empty. `None` if the decision failed.
    fn decide(&mut self, event: &EventView<'_>, said: &mut Said) -> Option<Decision>;

    /// Ends the run.
    fn end(&mut self) {}

    /// Reads the clock to measure decision times; `None` if they are not measured.
    fn time(&self) -> Option<Instant> {
        None
    }

    /// Returns the number of bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl LocalFilter for BuiltinFilter {
    fn decide(&mut self, event: &EventView<'_>, _: &mut Said) -> Option<Decision> {
        Some(Self::decide(self, event))
    }
}

/// Observed state of a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterSight {
    /// Whether it has become ready.
    pub is_ready: bool,
    /// Whether it existed and has certainly ended.
    pub has_ended: bool,
    /// The signal that ended it, unless it was ended for its own fault; 0 for none, or if it is not known.
    pub signal: u8,
    /// Total number of events that this incarnation accepts.
    pub granted: u64,
    /// Total number of decisions of this incarnation, taken or not.
    pub decided: u64,
}

/// A decision of a filter unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitDecision {
    /// The slot of the offered event.
    pub slot: u32,
    /// The decision; `None` if the unit reports that it cannot decide.
    pub decision: Option<Decision>,
}

/// Result of an offer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The filter unit has the event.
    Taken,
    /// There is no room for it now.
    Full,
    /// There will never be room for it.
    TooLarge,
}

/// A filter unit in another process or elsewhere, or a substitute for one. No call waits for it.
pub trait FilterLink: Send {
    /// Starts a process. A failure to start appears as the process's end.
    fn start(&mut self);

    /// Kills the process. Its end becomes visible once it is certain.
    fn kill(&mut self);

    /// Ends a process that has no fault.
    fn dismiss(&mut self) {
        self.kill();
    }

    /// Begins a run. Every existing process and every later one is informed.
    fn begin(&mut self, run: RunNumber);

    /// Ends the run.
    fn end(&mut self);

    /// Returns the state of the unit.
    fn look(&mut self, now: Instant) -> FilterSight;

    /// Offers an event. Its memory must stay valid until it is decided, or the filter unit has ended.
    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered;

    /// Informs the filter unit of the offered events.
    fn flush(&mut self);

    /// Returns the histograms that it fills, once it is ready. Its output identifies them by their place in this list.
    fn histograms(&self) -> &[HistogramShape] {
        &[]
    }

    /// Returns the next decision. Other output on the event replaces `said`. An error if the decision is invalid.
    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>>;

    /// Returns the number of bytes of events that were copied for it.
    fn copied_bytes(&self) -> u64;

    /// Returns when to look at it even if nothing becomes readable.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Prepares the thread's sleep. Returns false if there is something to look at right now.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Appends the descriptors that become readable when there is something to look at.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
}

/// A filter unit's message cannot be valid. The link reports the reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotBelieved;

/// Pause before a node that is not reachable is called again.
const RETRY: Duration = Duration::from_millis(200);
/// Maximum number of notes that are kept.
const MOST_NOTES: usize = 10;

/// Readable reasons why connections ended: each text once.
#[derive(Clone, Debug, Default)]
pub struct RemoteNotes(Arc<Mutex<Vec<String>>>);

impl RemoteNotes {
    fn note(&self, text: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Returns all notes.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A filter unit on another machine; see the module documentation.
pub struct RemoteUnit<P> {
    peers: P,
    address: String,
    /// Fingerprint of the required filter.
    filter: u64,
    /// Memory for heads of events and other messages in transit.
    staging: Staging,
    notes: RemoteNotes,
    endpoint: Option<Endpoint>,
    /// Whether this builder unit's hello was sent.
    is_greeted: bool,
    /// Whether the filter unit is wanted.
    is_wanted: bool,
    retry: Instant,
    /// Number of events that it accepts at once; `None` before it is ready.
    window: Option<u32>,
    has_ended: bool,
    histograms: Vec<HistogramShape>,
    run: Option<RunNumber>,
    /// The events that it has, in the order of sending.
    offered: VecDeque<(u32, EventKey, Attempt)>,
    taken: u64,
    /// Received data that was not taken: this many whole decisions, in this many bytes.
    bytes: ByteQueue,
    whole: u64,
    scanned: usize,
    /// Scratch lists, kept for their capacity.
    events: Vec<Event>,
    metas: Vec<FragmentMeta>,
    text: Vec<u8>,
    slices: Vec<Slice>,
}

impl<P: Dispatcher> RemoteUnit<P> {
    /// Creates the link to the filter unit at this address, which must run the filter with this fingerprint. Its
    /// receive pool is for this one connection.
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

    /// Returns the reasons why connections ended.
    pub fn notes(&self) -> RemoteNotes {
        self.notes.clone()
    }

    /// Gives up an unusable connection.
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

    /// Queues the encoded message. Returns false if that fails: the connection is then unusable.
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
                    // Its earlier messages count.
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

    /// Copies the body of the first message, which is complete, to the text.
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

    // Queued messages are sent at the next look.
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
