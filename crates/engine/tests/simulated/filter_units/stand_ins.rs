//! The surroundings of the real builder unit: the processes of filter units, filter nodes on other machines, and an
//! [`Assigner`] in place of event manager and readout unit.

use super::super::mixed;
use super::super::stand::pool;
use super::super::unless;
use super::{Mishap, Scenario, TIMEOUT};
use ropewalk_engine::{FilterLink, FilterSight, NotBelieved, Offered, Said, UnitDecision};
use ropewalk_flow::builder::{Builder, BuilderAction, EventView};
use ropewalk_flow::filter::{Fill, HistogramShape};
use ropewalk_flow::messages::{
    Assign, AssignEntry, Batch, Fragment, FragmentFlags, FragmentMeta, Message, RequestEntry, SuperFragmentEntry,
};
use ropewalk_flow::source::Random;
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{ByteQueue, Owner, Payload, Pool, Staging};
use ropewalk_terms::{Attempt, Ending, EventKey, Instant, RunNumber, SourceId};
use ropewalk_wire::filter_node::{
    DecisionHead, DeclaredHistogram, EVENT_HEAD, EventHead, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame,
    Kind, decode_event_head, decode_fragment, decode_hello, encode_decision, encode_refuse, encode_welcome,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time from the kill of a process to its end, in which it still works.
const DYING: Duration = Duration::from_millis(3);
/// Room in events; credit does not change it.
const ROOM: usize = 15;

/// Everything that happened to all filter units, for the digest and the referee.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) digest: u64,
    /// How often each event went wrong.
    wrong: BTreeMap<u64, u8>,
    /// By unit: the events that its process holds and may read.
    pub(super) has: BTreeMap<u16, Vec<(u32, EventKey)>>,
    /// Events that a process decided before it was ordered to end.
    pub(super) decided: BTreeSet<u64>,
    /// Maximum processes of one unit at the same time.
    pub(super) most_at_once: usize,
    /// Connections to filter nodes that broke while a process was behind them.
    pub(super) lost_connections: usize,
}

impl Notes {
    /// Locks the shared notes.
    pub(super) fn of(shared: &Arc<Mutex<Self>>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// When it has decided its first held event.
    due: Instant,
    hangs: bool,
    /// Its first held event is overdue, and is decided now.
    is_late: bool,
    ends_at: Option<Instant>,
    is_condemned: bool,
    decided: u64,
}

/// The process of a filter unit. As the scenario determines, it crashes, hangs, or answers wrongly.
pub(super) struct SimulatedUnit {
    scenario: Scenario,
    index: u16,
    deaths: Vec<Instant>,
    now: Instant,
    process: Option<Process>,
    has: VecDeque<(u32, EventKey)>,
    /// Decisions not yet taken; `None` for a lie.
    said: VecDeque<(u32, Option<u64>)>,
    histograms: Vec<HistogramShape>,
    notes: Arc<Mutex<Notes>>,
}

impl SimulatedUnit {
    pub(super) fn new(scenario: &Scenario, index: u16, notes: Arc<Mutex<Notes>>) -> Self {
        let own = scenario.deaths.iter().filter(|(_, unit)| *unit == index);
        let mut deaths: Vec<Instant> = own.map(|(death, _)| Instant::ZERO.after(*death)).collect();
        deaths.sort_by(|one, other| other.cmp(one));
        Self {
            scenario: scenario.clone(),
            index,
            deaths,
            now: Instant::ZERO,
            process: None,
            has: VecDeque::new(),
            said: VecDeque::new(),
            histograms: vec![scenario.histogram()],
            notes,
        }
    }

    fn note(&self, what: u64) {
        let mut notes = Notes::of(&self.notes);
        notes.digest = mixed(notes.digest, what + 10 * u64::from(self.index), self.now.as_nanoseconds());
    }

    /// Notes the events that its process holds in the builder unit's memory; a remote process has copies.
    fn show(&self) {
        if self.scenario.lines.is_some() {
            return;
        }
        Notes::of(&self.notes).has.insert(self.index, self.has.iter().copied().collect());
    }

    /// The mishap of an event at this attempt.
    fn mishap(&self, event: u64) -> Option<Mishap> {
        let mishap = *self.scenario.mishaps.get(&event)?;
        let mut notes = Notes::of(&self.notes);
        let before = notes.wrong.entry(event).or_default();
        if *before >= mishap.times() {
            return None;
        }
        *before += 1;
        Some(mishap)
    }

    /// Gives it an event.
    pub(super) fn give(&mut self, slot: u32, key: EventKey) {
        if self.has.is_empty() {
            let due = self.now.after(self.scenario.each);
            self.process.iter_mut().for_each(|process| process.due = due);
        }
        self.has.push_back((slot, key));
        self.show();
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        loop {
            let Some(&(slot, key)) = self.has.front() else { return };
            let Some(process) = &self.process else { return };
            let end = process.ends_at.unwrap_or(Instant::FAR_FUTURE);
            if process.hangs || now < process.due || end <= process.due {
                return;
            }
            let (due, is_late) = (process.due, process.is_late);
            let mishap = if is_late { None } else { self.mishap(key.number()) };
            let process = self.process.as_mut().expect("it was looked at above");
            match mishap {
                Some(Mishap::Crash(_)) => {
                    process.ends_at = Some(due);
                    return self.note(1);
                }
                Some(Mishap::Hang(_)) => {
                    process.hangs = true;
                    return self.note(2);
                }
                Some(Mishap::Slow(_)) => {
                    (process.due, process.is_late) = (due.after(TIMEOUT + DYING / 2), true);
                    self.note(6);
                    continue;
                }
                _ => {}
            }
            (process.due, process.is_late) = (due.after(self.scenario.each), false);
            process.decided += 1;
            if !process.is_condemned {
                Notes::of(&self.notes).decided.insert(key.number());
            }
            self.has.pop_front();
            let said = if matches!(mishap, Some(Mishap::Lie(_))) { None } else { Some(key.number()) };
            self.said.push_back((slot, said));
            self.show();
        }
    }
}

impl FilterLink for SimulatedUnit {
    fn start(&mut self) {
        self.note(3);
        let mut notes = Notes::of(&self.notes);
        notes.most_at_once = notes.most_at_once.max(1 + usize::from(self.process.is_some()));
        drop(notes);
        self.has.clear();
        self.said.clear();
        let ready_at = self.now.after(self.scenario.start);
        let due = Instant::ZERO;
        let (is_ready, hangs, is_late) = (false, false, false);
        let (is_condemned, ends_at, decided) = (false, None, 0);
        self.process = Some(Process { ready_at, is_ready, due, hangs, is_late, ends_at, is_condemned, decided });
    }

    fn kill(&mut self) {
        self.note(4);
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| (process.ends_at, process.is_condemned) = (Some(at), true));
    }

    fn begin(&mut self, _: RunNumber) {}

    fn end(&mut self) {}

    fn look(&mut self, now: Instant) -> FilterSight {
        self.now = now;
        self.work(now);
        if self.deaths.pop_if(|death| now >= *death).is_some() {
            self.note(5);
            self.process.iter_mut().for_each(|process| process.ends_at = Some(now));
        }
        let Some(process) = &mut self.process else { return FilterSight::default() };
        let has_ended = process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        let decided = process.decided;
        if has_ended {
            self.process = None;
            self.has.clear();
            self.show();
        }
        FilterSight { is_ready, has_ended, granted: decided + self.scenario.credit, decided, ..FilterSight::default() }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        if self.has.len() >= ROOM {
            return Offered::Full;
        }
        self.give(slot, event.key);
        Offered::Taken
    }

    fn flush(&mut self) {}

    fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    fn next_decision(&mut self, into: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        let (slot, said) = self.said.pop_front()?;
        let Some(event) = said else { return Some(Err(NotBelieved)) };
        into.clear();
        into.result.extend(self.scenario.result(event));
        into.fills.push(Fill { histogram: 0, value: event as f64 });
        let is_undecided = self.scenario.mishaps.get(&event) == Some(&Mishap::Undecided);
        let decision = (!is_undecided).then(|| self.scenario.decision(event));
        Some(Ok(UnitDecision { slot, decision }))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        let ready = Some(process.ready_at).filter(|_| !process.is_ready);
        let due = Some(process.due).filter(|_| !self.has.is_empty() && !process.hangs);
        process.ends_at.or(ready).or(due)
    }

    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}

/// The filter that builder units and nodes agree on.
pub(super) const FILTER: u64 = 4711;

/// The builder unit, while its connection stands.
struct Caller {
    endpoint: Endpoint,
    bytes: ByteQueue,
    /// Whether the node has reported that the filter is ready.
    is_welcome: bool,
    /// The process has ended: its output is sent, then the connection is closed.
    is_ending: bool,
    /// Events without a decision, in order.
    held: VecDeque<EventHead>,
    /// The sequence of the next event.
    next: u64,
    /// Messages that found no room.
    unsent: VecDeque<Vec<u8>>,
}

/// A filter node behind a connection: it has a [`SimulatedUnit`] and uses the messages of real nodes.
pub(super) struct SimulatedNode {
    peers: Simulated,
    staging: Staging,
    scenario: Scenario,
    notes: Arc<Mutex<Notes>>,
    unit: SimulatedUnit,
    has_process: bool,
    caller: Option<Caller>,
    /// Valid callers that it will still refuse.
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

    /// Its host on the network.
    pub(super) const fn host(&self) -> u32 {
        self.peers.host()
    }

    /// Handles received messages, works, and sends the decisions.
    pub(super) fn turn(&mut self, now: Instant) -> Result<usize, String> {
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

    /// Its next deadline, even if no message arrives.
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

    /// A builder unit connects. The previous connection ends, even if its end was not noticed. The new one is rejected
    /// until the process behind the previous one has ended.
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

    fn hear(&mut self) -> Result<usize, String> {
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

    fn hello(&mut self, body: &[u8]) -> Result<(), String> {
        let said = decode_hello(body).map_err(nonsense)?;
        unless(said == (FILTER_NODE_VERSION, FILTER), || format!("a hello says {said:?}"))?;
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

    /// Checks a received event: it is the next one, whole, and within the credit.
    fn event(&mut self, body: &[u8]) -> Result<(), String> {
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
            unless(is_right, || format!("event {}: {fragment:?} came", head.key))?;
            expected.extend(bytes);
            rest = behind;
        }
        unless(rest == expected, || format!("event {} came as another one", head.key))?;
        let is_next = caller.is_welcome && head.sequence == caller.next;
        unless(is_next, || format!("{head:?} came and {} was due", caller.next))?;
        caller.next += 1;
        caller.held.push_back(head);
        let (held, credit) = (caller.held.len() as u64, self.scenario.credit);
        unless(held <= credit, || format!("a node has {held} events, and credit {credit}"))?;
        self.unit.give(0, head.key);
        Ok(())
    }

    /// Checks whether the process is ready, or has ended.
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

    /// Sends the decisions of the process.
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

    /// Sends as much as there is room for, and closes if that was everything.
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

fn nonsense(what: impl std::fmt::Display) -> String {
    format!("what a filter node hears: {what}")
}

pub(super) const SOURCES: [SourceId; 2] = [SourceId(1), SourceId(2)];

/// The bytes of a source's fragment.
pub(super) fn payload(source: SourceId, event: u64) -> Vec<u8> {
    let length = 8 + (event * 5 + u64::from(source.0)) % 40;
    (0..length).map(|place| (event * place + u64::from(source.0)) as u8).collect()
}

/// Replaces event manager and readout unit: it assigns events, answers requests in its own order, and receives
/// acknowledgements.
pub(super) struct Assigner {
    draw: Random,
    events: u64,
    slots: u64,
    assigned: u64,
    /// Unanswered requests.
    asked: Vec<RequestEntry>,
    /// The ending of each event.
    pub(super) ended: BTreeMap<u64, Ending>,
    fragments: Pool,
}

impl Assigner {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            draw: Random::new(scenario.seed, 61),
            events: scenario.events,
            slots: scenario.slots.into(),
            assigned: 0,
            asked: Vec::new(),
            ended: BTreeMap::new(),
            fragments: pool("fragments", 256, 4 * scenario.slots as usize),
        }
    }

    /// Whether every event has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.len() as u64 == self.events
    }

    /// Blocks of held fragments.
    pub(super) fn held(&mut self) -> usize {
        self.fragments.collect();
        self.fragments.held()
    }

    /// Assigns and answers a few events.
    pub(super) fn turn(&mut self, now: Instant, builder: &mut Builder) -> usize {
        let room = self.slots - (self.assigned - self.ended.len() as u64);
        let count = self.draw.below(4).min(room).min(self.events - self.assigned);
        let entry = |number| AssignEntry { key: EventKey::new(0, number), bytes: 100, attempt: Attempt(1) };
        let entries: Batch<AssignEntry> = (self.assigned + 1..=self.assigned + count).map(entry).collect();
        self.assigned += count;
        if count > 0 {
            builder.message(now, &Message::Assign(Assign { entries }));
        }
        let mut work = count as usize;
        // Readout units answer at any time.
        for _ in 0..self.draw.below(4) {
            if self.asked.is_empty() {
                break;
            }
            let which = self.draw.below(self.asked.len() as u64) as usize;
            let request = self.asked.swap_remove(which);
            self.answer(now, request, builder);
            work += 1;
        }
        work
    }

    fn answer(&mut self, now: Instant, request: RequestEntry, builder: &mut Builder) {
        let RequestEntry { key, slot, attempt } = request;
        let mut fragments: Vec<Fragment> = SOURCES.map(|source| self.fragment(source, key.number())).into();
        let entry = SuperFragmentEntry { key, slot, attempt, fragments: 2, bytes: 100, not_held: None };
        builder.super_fragment(now, 0, &entry, &mut fragments);
    }

    fn fragment(&mut self, source: SourceId, event: u64) -> Fragment {
        let bytes = payload(source, event);
        let mut loan = self.fragments.loan(Owner::SHARED).expect("as many as there are slots for");
        loan.spare()[..bytes.len()].copy_from_slice(&bytes);
        loan.commit(bytes.len());
        let mut payload = Payload::default();
        payload.push(loan.split_committed().expect("it was filled"));
        let meta = FragmentMeta {
            source,
            length: bytes.len() as u32,
            flags: FragmentFlags::default(),
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: event,
            time: 0,
        };
        Fragment { meta, payload }
    }

    /// Handles an action of the machine.
    ///
    /// # Errors
    /// If an event ends twice.
    pub(super) fn hear(&mut self, action: BuilderAction) -> Result<(), String> {
        match action {
            BuilderAction::ToManager(Message::Acknowledge(said)) => {
                for entry in &said.entries {
                    let before = self.ended.insert(entry.key.number(), entry.ending);
                    unless(before.is_none(), || format!("event {} ended twice", entry.key))?;
                }
            }
            BuilderAction::ToReadout { message: Message::Request(request), .. } => self.asked.extend(&request.entries),
            _ => {}
        }
        Ok(())
    }
}
