//! Filter units on other machines: a node that speaks the messages of real filter nodes in front of a simulated process, and the
//! builder unit's end of the connection.

use super::super::endpoints::{Endpoints, Surroundings};
use super::super::fault::Place;
use super::super::filters::{Board, FilterUnit, Filters, Given, sum_of};
use super::super::node::{Machine, NodeClock, forward};
use super::super::runner::{Broken, Checker, ensure};
use super::super::scenario::Scenario;
use super::{Site, pool};
use ropewalk_engine::{Drive, FilterLink, RemoteUnit, Said};
use ropewalk_io::simulated::{Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{ByteQueue, Slice, Staging};
use ropewalk_terms::{EventKey, Instant, PoolAccount, TriggerBits};
use ropewalk_wire::filter_node::{
    DecisionHead, EVENT_HEAD, EventHead, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame, Kind,
    decode_event_head, decode_fragment, decode_hello, encode_decision, encode_refuse, encode_welcome,
};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The fingerprint of the filter.
const FILTER: u64 = 4711;
/// Pause before a message for which there was no room is sent again.
const RETRY: Duration = Duration::from_millis(1);

/// The builder unit's end of the connection, with the clock of the builder unit.
struct Line {
    inner: Simulated,
    clock: NodeClock,
}

impl Dispatcher for Line {
    ropewalk_io::pass_on!(
        inner:
        listen, address_of, connect, accept, reject, set_owner, pool, pool_mut, post_block, set_reading, is_dry, has_waiting,
        peer_has_ended, peek, send, set_send_limits, send_room, queued, set_half_close, finish, close, abort, prepare_wait,
        wait_descriptor
    );

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>) -> usize {
        // The network uses the world's time.
        self.inner.poll(self.clock.world(), events)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.clock.local_from(world))
    }
}

/// The link of a builder unit to a filter unit on another machine, and its place on the network.
pub(in super::super) fn remote_unit(
    site: &Site<'_>,
    around: &Surroundings,
    builder: u16,
    unit: u16,
) -> (Box<dyn FilterLink>, u32) {
    let inner = site.network.dispatcher(SimulatedConfig::default(), pool("decisions", 8 << 10, 64));
    let host = inner.host();
    let line = Line { inner, clock: around.clock.clone() };
    let heads = Staging::new(pool("heads", 8 << 10, 64));
    (Box::new(RemoteUnit::new(Place::Filter(builder, unit).to_string(), FILTER, line, heads)), host)
}

/// The builder unit, while its connection lives.
struct Caller {
    endpoint: Endpoint,
    bytes: ByteQueue,
    /// The node has reported that the filter is ready.
    is_welcome: bool,
    /// The process has ended: the connection is closed after the last message.
    is_ending: bool,
    /// Events without a decision, in their order.
    held: VecDeque<EventHead>,
    /// The sequence number of the next event.
    next: u64,
    /// Messages for which there was no room.
    unsent: VecDeque<Vec<u8>>,
}

/// A filter node with one filter unit.
pub(in super::super) struct FilterNode {
    peers: Endpoints,
    staging: Staging,
    filters: Filters,
    board: Board,
    unit: FilterUnit,
    has_process: bool,
    caller: Option<Caller>,
    /// Builder units that it still refuses, although it could serve them.
    refusals: u64,
    events: Vec<Event>,
    said: Said,
    message: Vec<Slice>,
    retry: Option<Instant>,
    broken: Option<Broken>,
}

impl FilterNode {
    /// The node of a filter unit, and its place on the network.
    pub(in super::super) fn new(
        site: &Site<'_>,
        around: &Surroundings,
        filters: &Filters,
        (builder, unit): (u16, u16),
    ) -> (Self, Vec<u32>) {
        let mut peers = site.endpoints("events", 16 << 10, 64, around);
        let hosts = vec![peers.host()];
        peers.listen(&around.place.to_string()).expect("the address is free");
        let board = site.boards[usize::from(builder)].clone();
        let node = Self {
            peers,
            staging: Staging::new(pool("decisions", 8 << 10, 64)),
            unit: FilterUnit::new(filters, &board, unit),
            refusals: filters.refusals,
            filters: filters.clone(),
            board,
            has_process: false,
            caller: None,
            events: Vec::new(),
            said: Said::default(),
            message: Vec::new(),
            retry: None,
            broken: None,
        };
        (node, hosts)
    }

    fn happened(&mut self, event: Event) {
        let is_callers = self.caller.as_ref().is_some_and(|caller| caller.endpoint == event.endpoint());
        match event {
            Event::ConnectionRequest { endpoint, .. } => self.called(endpoint),
            Event::Received { slice, .. } if is_callers => {
                self.caller.iter_mut().for_each(|caller| caller.bytes.push(slice.clone()));
            }
            Event::Disconnected { .. } | Event::Finished { .. } | Event::Broken { .. } if is_callers => self.lose(),
            _ => {}
        }
    }

    /// A builder unit connects. Its earlier connection ends, even if that end was not noticed. Until the process behind
    /// the earlier connection has ended, the new connection is rejected.
    fn called(&mut self, endpoint: Endpoint) {
        if let Some(before) = &self.caller {
            self.peers.abort(before.endpoint);
            self.lose();
        }
        if self.has_process {
            return self.peers.reject(endpoint);
        }
        self.peers.accept(endpoint);
        let (is_welcome, is_ending, next) = (false, false, 1);
        let (bytes, held, unsent) = (ByteQueue::with_capacity(64), VecDeque::new(), VecDeque::new());
        self.caller = Some(Caller { endpoint, bytes, is_welcome, is_ending, held, next, unsent });
    }

    fn lose(&mut self) {
        self.caller = None;
        if self.has_process {
            self.board.lose_connection();
            self.unit.kill();
        }
    }

    fn hear(&mut self, now: Instant) -> Result<usize, Broken> {
        let mut heard = 0;
        while let Some(caller) = &mut self.caller {
            let Some(head) = caller.bytes.peek_array::<FRAME_BYTES>(0) else { break };
            let frame = Frame::parse(&head).map_err(not_understood)?;
            let length = frame.body as usize;
            if caller.bytes.len() < FRAME_BYTES + length {
                break;
            }
            let mut body = vec![0; length];
            caller.bytes.copy_to(FRAME_BYTES, &mut body);
            caller.bytes.skip(FRAME_BYTES + length);
            match frame.kind {
                Kind::Hello => self.hello(&body)?,
                Kind::Begin | Kind::End => {}
                Kind::Event => self.event(now, &body)?,
                kind => return Err(not_understood(format!("a builder unit sent {kind:?}"))),
            }
            heard += 1;
        }
        Ok(heard)
    }

    fn hello(&mut self, body: &[u8]) -> Result<(), Broken> {
        let said = decode_hello(body).map_err(not_understood)?;
        ensure!(Content, said == (FILTER_NODE_VERSION, FILTER); "a hello says {said:?}")?;
        if self.refusals > 0 {
            self.refusals -= 1;
            let mut text = Vec::new();
            encode_refuse("not now", &mut text);
            self.say(text);
            self.caller.iter_mut().for_each(|caller| caller.is_ending = true);
        } else {
            self.unit.start();
            self.has_process = true;
        }
        Ok(())
    }

    /// Takes an event: the next one, whole, and within the credit.
    fn event(&mut self, now: Instant, body: &[u8]) -> Result<(), Broken> {
        let Some(caller) = &mut self.caller else { return Ok(()) };
        let short = || not_understood("an event without its end");
        let (head, mut heads) = body.split_first_chunk::<EVENT_HEAD>().ok_or_else(short)?;
        let head = decode_event_head(head).map_err(not_understood)?;
        let heads_bytes = usize::from(head.fragments) * FRAGMENT_HEAD;
        let mut payloads = heads.get(heads_bytes..).ok_or_else(short)?;
        let mut sum = 0;
        for _ in 0..head.fragments {
            let (fragment, rest) = heads.split_first_chunk::<FRAGMENT_HEAD>().ok_or_else(short)?;
            let fragment = decode_fragment(fragment).map_err(not_understood)?;
            let (payload, behind) = payloads.split_at_checked(fragment.length as usize).ok_or_else(short)?;
            sum = sum_of(sum, fragment.source, payload.iter().copied());
            (heads, payloads) = (rest, behind);
        }
        ensure!(Content, payloads.is_empty(); "event {}: {} bytes too many came", head.key, payloads.len())?;
        let is_next = caller.is_welcome && head.sequence == caller.next;
        ensure!(Order, is_next; "{head:?} came to a filter node, and {} was due", caller.next)?;
        caller.next += 1;
        caller.held.push_back(head);
        let (held, credit) = (caller.held.len() as u64, self.filters.credit);
        ensure!(Credits, held <= credit; "a filter node has {held} events, and its credit is {credit}")?;
        self.unit.give(now, Given { slot: 0, key: head.key, attempt: head.attempt, sum });
        Ok(())
    }

    /// Looks whether the process is ready, or has ended.
    fn look(&mut self, now: Instant) {
        let sight = self.unit.look(now);
        if sight.is_ready && self.caller.is_some() {
            let mut text = Vec::new();
            encode_welcome(self.filters.credit as u32, &[], &mut text);
            self.say(text);
            self.caller.iter_mut().for_each(|caller| caller.is_welcome = true);
        }
        if sight.has_ended {
            self.has_process = false;
            self.caller.iter_mut().for_each(|caller| caller.is_ending = true);
        }
    }

    /// Sends the decisions of the process.
    fn answer(&mut self) -> usize {
        let mut work = 0;
        while self.caller.as_ref().is_some_and(|caller| caller.is_welcome)
            && let Some(decided) = self.unit.next_decision(&mut self.said)
            && let Some(event) = self.caller.as_mut().and_then(|caller| caller.held.pop_front())
        {
            let EventHead { sequence, key, attempt, .. } = event;
            let (accept, triggers) = (None, TriggerBits::default());
            let head = DecisionHead { sequence, key, attempt, accept, triggers, dropped_fills: 0 };
            let mut text = Vec::new();
            match decided {
                Ok(decided) => {
                    let accept = decided.decision.map(|decision| decision.accept);
                    let triggers = decided.decision.map(|decision| decision.triggers).unwrap_or_default();
                    let head = DecisionHead { accept, triggers, ..head };
                    encode_decision(&head, [].into_iter(), &self.said.result, &mut text);
                }
                // A lie: on an event that it does not have.
                Err(_) => {
                    let key = EventKey::new(key.resync(), key.number() + 1);
                    let lie = DecisionHead { key, accept: Some(true), ..head };
                    encode_decision(&lie, [].into_iter(), &[], &mut text);
                }
            }
            self.say(text);
            work += 1;
        }
        work
    }

    fn say(&mut self, text: Vec<u8>) {
        self.caller.iter_mut().for_each(|caller| caller.unsent.push_back(text.clone()));
    }

    /// Sends what there is room for, and closes the connection after the last message.
    fn send(&mut self, now: Instant) {
        self.retry = None;
        let Some(caller) = &mut self.caller else { return };
        while let Some(text) = caller.unsent.front() {
            self.message.extend(self.staging.write(text));
            if self.message.is_empty() || self.peers.send(caller.endpoint, &mut self.message).is_err() {
                self.message.clear();
                self.retry = Some(now.after(RETRY));
                return;
            }
            self.message.clear();
            caller.unsent.pop_front();
        }
        if caller.is_ending {
            self.peers.close(caller.endpoint);
            self.caller = None;
        }
    }
}

fn not_understood(what: impl std::fmt::Display) -> Broken {
    Broken::new(Checker::Content, format!("a filter node received: {what}"))
}

impl Drive for FilterNode {
    fn turn(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            self.happened(event);
        }
        self.events = events;
        match self.hear(now) {
            Ok(heard) => work += heard,
            Err(broken) => self.broken = Some(broken),
        }
        self.look(now);
        work += self.answer();
        self.send(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.peers.next_deadline().into_iter().chain(self.unit.next_deadline()).chain(self.retry).min()
    }

    forward!(mut peers: prepare_wait -> bool);

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

impl Machine for FilterNode {
    fn pools(&mut self) -> Vec<PoolAccount> {
        self.peers.pool_mut().map(|pool| pool.account()).into_iter().collect()
    }

    fn check(&self, _scenario: &Scenario) -> Result<(), Broken> {
        self.broken.clone().map_or(Ok(()), Err)
    }
}
