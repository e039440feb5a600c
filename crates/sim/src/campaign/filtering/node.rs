//! A filter node: what stands for a filter unit's process, behind a connection, with the messages of real nodes.

use super::super::broken::{Broken, Checker};
use super::super::stand::pool;
use super::assigner::{SOURCES, payload};
use super::scenario::Scenario;
use super::unit::{Notes, SimulatedUnit};
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{ByteQueue, Staging};
use ropewalk_node::drive::{FilterLink, Said};
use ropewalk_terms::{EventKey, Instant};
use ropewalk_wire::filter_node::{
    DecisionHead, DeclaredHistogram, EVENT_HEAD, EventHead, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame,
    Kind, decode_event_head, decode_fragment, decode_hello, encode_decision, encode_refuse, encode_welcome,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Which filter builder units and nodes agree on.
pub(super) const FILTER: u64 = 4711;

/// The builder unit, as long as its connection stands.
struct Caller {
    endpoint: Endpoint,
    bytes: ByteQueue,
    /// It was told that the filter is ready.
    is_welcome: bool,
    /// The process has ended: what it said is sent, and the connection closed.
    is_ending: bool,
    /// Events without a decision, in their order.
    held: VecDeque<EventHead>,
    /// The sequence of the event that comes next.
    next: u64,
    /// Messages for which there was no room.
    unsent: VecDeque<Vec<u8>>,
}

/// See the module's text.
pub(super) struct SimulatedNode {
    peers: Simulated,
    staging: Staging,
    scenario: Scenario,
    notes: Arc<Mutex<Notes>>,
    unit: SimulatedUnit,
    has_process: bool,
    caller: Option<Caller>,
    /// Callers that it still refuses, although nothing is wrong with them.
    refusals: u8,
    events: Vec<Event>,
    said: Said,
}

impl SimulatedNode {
    /// A node that listens at this address.
    pub(super) fn new(
        mut peers: Simulated,
        address: &str,
        scenario: &Scenario,
        unit: SimulatedUnit,
        notes: Arc<Mutex<Notes>>,
    ) -> Self {
        peers.listen(address).expect("the address is free");
        Self {
            peers,
            staging: Staging::new(pool("decisions", 8 << 10, 64)),
            scenario: scenario.clone(),
            notes,
            unit,
            has_process: false,
            caller: None,
            refusals: scenario.lines.as_ref().map_or(0, |lines| lines.refusals),
            events: Vec::new(),
            said: Said::default(),
        }
    }

    /// Its place on the network.
    pub(super) const fn host(&self) -> u32 {
        self.peers.host()
    }

    /// Takes what has come, works, and says what was decided.
    ///
    /// # Errors
    /// Where a builder unit says what it must not.
    pub(super) fn turn(&mut self, now: Instant) -> Result<usize, Broken> {
        let mut events = std::mem::take(&mut self.events);
        let mut work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            self.happened(event);
        }
        self.events = events;
        work += self.hear()?;
        self.look(now);
        work += self.answer();
        self.send();
        Ok(work)
    }

    /// When it has something to do even if nobody says anything.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.peers.next_deadline().into_iter().chain(self.unit.next_deadline()).min()
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

    /// Somebody calls. Who called before is gone then, whether or not that was heard; its process must have ended first.
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
            Notes::of(&self.notes).lost_connections += 1;
            self.unit.kill();
        }
    }

    fn hear(&mut self) -> Result<usize, Broken> {
        let mut heard = 0;
        while let Some(caller) = &mut self.caller {
            let Some(head) = caller.bytes.peek_array::<FRAME_BYTES>(0) else { break };
            let frame = Frame::parse(&head).map_err(nonsense)?;
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
                Kind::Event => self.event(&body)?,
                kind => return Err(nonsense(format!("a builder unit sent {kind:?}"))),
            }
            heard += 1;
        }
        Ok(heard)
    }

    fn hello(&mut self, body: &[u8]) -> Result<(), Broken> {
        let said = decode_hello(body).map_err(nonsense)?;
        Broken::unless(said == (FILTER_NODE_VERSION, FILTER), Checker::Content, || format!("a hello says {said:?}"))?;
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

    /// An event has come: it is the next one, whole, and one of those that there is credit for.
    fn event(&mut self, body: &[u8]) -> Result<(), Broken> {
        let Some(caller) = &mut self.caller else { return Ok(()) };
        let (head, mut rest) =
            body.split_first_chunk::<EVENT_HEAD>().ok_or_else(|| nonsense("an event without head"))?;
        let head = decode_event_head(head).map_err(nonsense)?;
        let mut expected = Vec::new();
        for source in SOURCES {
            let (fragment, behind) =
                rest.split_first_chunk::<FRAGMENT_HEAD>().ok_or_else(|| nonsense("an event without fragments"))?;
            let fragment = decode_fragment(fragment).map_err(nonsense)?;
            let bytes = payload(source, head.key.number());
            let is_right = fragment.source == source && fragment.length as usize == bytes.len();
            Broken::unless(is_right, Checker::Content, || format!("event {}: {fragment:?} came", head.key))?;
            expected.extend(bytes);
            rest = behind;
        }
        Broken::unless(rest == expected, Checker::Content, || format!("event {} came as another one", head.key))?;
        let is_next = caller.is_welcome && head.sequence == caller.next;
        Broken::unless(is_next, Checker::Order, || format!("{head:?} came and {} was due", caller.next))?;
        caller.next += 1;
        caller.held.push_back(head);
        let (held, credit) = (caller.held.len() as u64, self.scenario.credit);
        Broken::unless(held <= credit, Checker::Credits, || format!("a node has {held} events, and credit {credit}"))?;
        self.unit.give(0, head.key);
        Ok(())
    }

    /// What has become of the process.
    fn look(&mut self, now: Instant) {
        let sight = self.unit.look(now);
        if sight.is_ready && self.caller.is_some() {
            let histogram = self.scenario.histogram();
            let (bins, low, high) = (histogram.bins(), histogram.low(), histogram.high());
            let declared = DeclaredHistogram { name: histogram.name().to_owned(), bins, low, high };
            let mut text = Vec::new();
            encode_welcome(self.scenario.credit as u32, &[declared], &mut text);
            self.say(text);
            self.caller.iter_mut().for_each(|caller| caller.is_welcome = true);
        }
        if sight.has_ended {
            self.has_process = false;
            self.caller.iter_mut().for_each(|caller| caller.is_ending = true);
        }
    }

    /// Says what the process has decided.
    fn answer(&mut self) -> usize {
        let mut work = 0;
        while self.caller.as_ref().is_some_and(|caller| caller.is_welcome)
            && let Some(decided) = self.unit.next_decision(&mut self.said)
            && let Some(event) = self.caller.as_mut().and_then(|caller| caller.held.pop_front())
        {
            let EventHead { sequence, key, attempt, .. } = event;
            let fills = self.said.fills.values().iter().map(|fill| (fill.histogram, fill.value));
            let head = DecisionHead {
                sequence,
                key,
                attempt,
                accept: None,
                triggers: ropewalk_terms::TriggerBits::default(),
                dropped_fills: 0,
            };
            let mut text = Vec::new();
            match decided {
                Ok(decided) => {
                    let accept = decided.decision.map(|decision| decision.accept);
                    let triggers = decided.decision.map(|decision| decision.triggers).unwrap_or_default();
                    encode_decision(&DecisionHead { accept, triggers, ..head }, fills, &self.said.result, &mut text);
                }
                // A lie: on an event that it does not have.
                Err(_) => {
                    let key = EventKey::new(0, key.number() + 1);
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

    /// Sends what there is room for, and closes where that was all.
    fn send(&mut self) {
        let Some(caller) = &mut self.caller else { return };
        while let Some(text) = caller.unsent.front() {
            let Some(slice) = self.staging.write(text) else { return };
            if self.peers.send(caller.endpoint, &mut vec![slice]).is_err() {
                return;
            }
            caller.unsent.pop_front();
        }
        if caller.is_ending {
            self.peers.close(caller.endpoint);
            self.caller = None;
        }
    }
}

fn nonsense(what: impl std::fmt::Display) -> Broken {
    Broken::new(Checker::Content, format!("what a filter node hears: {what}"))
}
