//! Which node has which event, and how it is decided, derived only from what a gateway pushed and from what nodes said.
//!
//! [`Voices`] checks that nodes and triggers say and do no more than they may: a node has told what it calls decided, and a
//! trigger names gateways that want packets.

use super::address;
use super::assembly::Finished;
use super::scenario::{Scenario, source_id};
use crate::campaign::runner::{Broken, Checker, ensure};
use ropewalk_flow::gateway::{DefaultDecision, FarmAccount, Naming, Output};
use ropewalk_terms::{Attempt, Cause, Incarnation, Instant, SourceId};
use ropewalk_wire::gateway::{
    Credit, Decision, Decisions, EventFlags, Frame, Kind, MOST_OUTSTANDING, Message, PieceHead, Progress, PushView,
    Stream, StreamEntry, ThrottleState, Verdict,
};
use ropewalk_wire::mep::{MepRequest, MepView};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::rc::Rc;

/// Flow, set, and which of its events.
type Place = (u8, u64, u16);

/// How an event was decided.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Ruling {
    pub(super) accept: bool,
    pub(super) word: u32,
    by_default: bool,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    pub(super) attempt: u16,
    /// Who has it, under which number.
    with: Option<(u16, u64)>,
    pub(super) ruling: Option<Ruling>,
}

/// A set whose events are decided.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) came: BTreeSet<u16>,
    pub(super) absent: BTreeMap<u16, Cause>,
    opened: Instant,
    deadline: Instant,
    pub(super) events: Vec<Event>,
}

impl Held {
    /// Each source of its flow that was waited for, with the cause of its absence where it is missing.
    pub(super) fn found(&self, flow: u8) -> BTreeMap<SourceId, Option<Cause>> {
        let came = self.came.iter().map(|&source| (source_id(flow, source), None));
        came.chain(self.absent.iter().map(|(&source, &cause)| (source_id(flow, source), Some(cause)))).collect()
    }
}

/// What is under a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Entry {
    Awaited(Place),
    GivenUp(u8),
}

/// A node, as a gateway must know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) incarnation: Option<Incarnation>,
    window: u64,
    heard: Instant,
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

impl Node {
    fn floor(&self) -> u64 {
        self.entries.keys().next().copied().unwrap_or(self.next)
    }

    fn awaited_from(&self) -> u64 {
        let awaited = self.entries.iter().find(|(_, entry)| matches!(entry, Entry::Awaited(_)));
        awaited.map_or(self.next, |(sequence, _)| *sequence)
    }

    fn credit(&self) -> u64 {
        let by_window = self.window.saturating_sub(self.entries.len() as u64);
        let by_span = MOST_OUTSTANDING - (self.next - self.floor());
        if self.incarnation.is_some() { by_window.min(by_span) } else { 0 }
    }
}

/// The farm of one gateway.
pub(super) struct Farm {
    scenario: Rc<Scenario>,
    gateway: u16,
    /// Which life of the gateway.
    pub(super) life: Incarnation,
    /// Sets whose events are to be decided, or are.
    pub(super) sets: BTreeMap<(u8, u64), Held>,
    pub(super) nodes: Vec<Node>,
    pub(super) accounts: Vec<FarmAccount>,
    /// By flow: decisions that left in order.
    pub(super) streamed: Vec<Vec<StreamEntry>>,
    /// Sets with undecided events, and events that wait for a node.
    undecided: BTreeSet<(u8, u64)>,
    waiting: BTreeSet<Place>,
    /// Pushes since the last turn began.
    pushes: usize,
}

impl Farm {
    pub(super) fn new(scenario: &Rc<Scenario>, gateway: u16, life: u64) -> Self {
        let flows = scenario.flows.len();
        Self {
            scenario: Rc::clone(scenario),
            gateway,
            life: Incarnation(life),
            sets: BTreeMap::new(),
            nodes: vec![Node::default(); scenario.nodes.len()],
            accounts: vec![FarmAccount::default(); flows],
            streamed: vec![Vec::new(); flows],
            undecided: BTreeSet::new(),
            waiting: BTreeSet::new(),
            pushes: 0,
        }
    }

    /// What the gateway's own account must be, but for what storage has done.
    pub(super) fn account(&self, flow: u8) -> FarmAccount {
        let mut account = self.accounts[usize::from(flow)];
        let held = self.undecided.iter().filter(|(of, _)| *of == flow).map(|place| &self.sets[place]);
        let open = held.flat_map(|held| &held.events).filter(|event| event.ruling.is_none());
        account.events.in_flight = open.count() as u64;
        account
    }

    /// How many more events a node may have.
    pub(super) fn credit(&self, node: u16) -> u64 {
        self.nodes[usize::from(node)].credit()
    }

    /// A set is finished.
    pub(super) fn add(&mut self, flow: u8, finished: Finished, now: Instant) {
        let setting = &self.scenario.flows[usize::from(flow)];
        let (key, packing) = (setting.key_of(finished.number), setting.sources.packing);
        let account = &mut self.accounts[usize::from(flow)];
        account.events.assigned += u64::from(packing);
        let has_passed = self.streamed[usize::from(flow)].last().is_some_and(|last| key < last.key);
        let late = (setting.gateway.output == Output::Stream && has_passed).then_some(Cause::Late);
        if let Some(cause) = finished.dropped.or(late) {
            account.events.incomplete_dropped.add(cause, u64::from(packing));
            return;
        }
        let deadline = now.after(setting.gateway.decision_timeout);
        let events = vec![Event::default(); usize::from(packing)];
        let set = finished.set;
        let held = Held { came: set.came, absent: set.absent, opened: set.opened, deadline, events };
        self.sets.insert((flow, finished.number), held);
        self.undecided.insert((flow, finished.number));
        self.waiting.extend((0..packing).map(|event| (flow, finished.number, event)));
    }

    /// Time passes: events without a decision in time are decided by default, and a node that is silent for too long
    /// loses its events.
    pub(super) fn pass(&mut self, now: Instant) {
        self.pushes = 0;
        let overdue = self.undecided.iter().filter(|place| self.sets[place].deadline <= now);
        let open = |&(flow, set): &(u8, u64)| {
            let open = (0..).zip(&self.sets[&(flow, set)].events).filter(|(_, event)| event.ruling.is_none());
            open.map(|(event, _)| (flow, set, event)).collect::<Vec<Place>>()
        };
        for place in overdue.flat_map(open).collect::<Vec<_>>() {
            let setting = &self.scenario.flows[usize::from(place.0)];
            let DefaultDecision { accept, word } = setting.gateway.default_decision;
            let ruling = Ruling { accept, word, by_default: true };
            if let Some((node, sequence)) = self.event(place).with {
                self.nodes[usize::from(node)].entries.insert(sequence, Entry::GivenUp(place.0));
            }
            self.rule(place, ruling, now);
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if node.incarnation.is_some() && node.heard.after(self.scenario.farm.silence) <= now {
                node.incarnation = None;
                self.take_back(index);
            }
        }
    }

    fn event(&mut self, (flow, set, event): Place) -> &mut Event {
        let held = self.sets.get_mut(&(flow, set)).expect("events are in sets that are there");
        &mut held.events[usize::from(event)]
    }

    fn rule(&mut self, place: Place, ruling: Ruling, now: Instant) {
        let event = self.event(place);
        (event.ruling, event.with) = (Some(ruling), None);
        self.waiting.remove(&place);
        let held = &self.sets[&(place.0, place.1)];
        if held.events.iter().all(|event| event.ruling.is_some()) {
            self.undecided.remove(&(place.0, place.1));
        }
        let setting = &self.scenario.flows[usize::from(place.0)];
        let account = &mut self.accounts[usize::from(place.0)];
        let is_whole = held.absent.is_empty();
        *(if is_whole { &mut account.events.built } else { &mut account.events.incomplete_emitted }) += 1;
        *(if ruling.accept { &mut account.events.accepted } else { &mut account.events.rejected }) += 1;
        account.decided += 1;
        account.by_default += u64::from(ruling.by_default);
        account.in_budget += u64::from(now.since(held.opened) <= setting.gateway.budget);
    }

    /// An event waits for a node again.
    fn wait(&mut self, place: Place) {
        self.event(place).with = None;
        self.waiting.insert(place);
    }

    fn take_back(&mut self, node: usize) {
        for entry in std::mem::take(&mut self.nodes[node].entries).into_values() {
            if let Entry::Awaited(place) = entry {
                self.wait(place);
                self.accounts[usize::from(place.0)].taken_back += 1;
            }
        }
    }

    /// A node said that it is there.
    pub(super) fn on_credit(&mut self, credit: &Credit, now: Instant) {
        let most = u64::from(self.scenario.farm.most_outstanding);
        let Some(node) = self.nodes.get_mut(usize::from(credit.node)) else { return };
        if node.incarnation.is_some_and(|known| known > credit.incarnation) {
            return;
        }
        (node.window, node.heard) = (u64::from(credit.window).min(most), now);
        if node.incarnation.replace(credit.incarnation) != Some(credit.incarnation) {
            self.take_back(usize::from(credit.node));
        }
    }

    /// A node said what it decided.
    pub(super) fn on_decisions(&mut self, decisions: &Decisions, now: Instant) {
        let index = usize::from(decisions.node);
        let is_ours = decisions.gateway == self.gateway && decisions.gateway_incarnation == self.life;
        let Some(node) = self.nodes.get_mut(index).filter(|_| is_ours) else { return };
        if node.incarnation != Some(decisions.incarnation) || decisions.cumulative > node.next {
            return;
        }
        node.heard = now;
        for decision in &decisions.entries {
            self.on_decision(index, decision, now);
        }
        let covered = self.nodes[index].entries.keys().copied().filter(|&sequence| decisions.covers(sequence));
        for sequence in covered.collect::<Vec<_>>() {
            if let Some(Entry::Awaited(place)) = self.nodes[index].entries.remove(&sequence) {
                self.wait(place);
                self.accounts[usize::from(place.0)].lost += 1;
            }
        }
    }

    fn on_decision(&mut self, node: usize, decision: &Decision, now: Instant) {
        match self.nodes[node].entries.remove(&decision.sequence) {
            None => self.accounts[0].ignored += 1,
            Some(Entry::GivenUp(flow)) => self.accounts[usize::from(flow)].late += 1,
            Some(Entry::Awaited(place)) if decision.verdict == Verdict::NotReceived => {
                self.wait(place);
                self.accounts[usize::from(place.0)].not_received += 1;
            }
            Some(Entry::Awaited(place)) => {
                let accept = decision.verdict == Verdict::Accept;
                self.rule(place, Ruling { accept, word: decision.word, by_default: false }, now);
            }
        }
    }

    /// The gateway pushed something to a node.
    pub(super) fn on_push(&mut self, node: u16, push: &PushView<'_>) -> Result<(), Broken> {
        self.pushes += 1;
        let head = push.head();
        ensure!(Content, (head.gateway, head.incarnation) == (self.gateway, self.life);
            "a push says that it is another gateway's: {head:?}")?;
        for (piece, bytes) in push.pieces() {
            self.on_piece(node, &piece, bytes)?;
        }
        self.check_floor(node, head.floor)
    }

    fn check_floor(&self, node: u16, floor: u64) -> Result<(), Broken> {
        let awaited = self.nodes[usize::from(node)].awaited_from();
        ensure!(Credits, floor == awaited; "node{node} hears of the floor {floor}, and {awaited} is awaited")
    }

    fn on_piece(&mut self, node: u16, piece: &PieceHead, bytes: &[u8]) -> Result<(), Broken> {
        let unknown =
            || Broken::new(Checker::Keys, format!("node{node} gets {piece:?}: no such event is to be decided"));
        let place = self.place_of(piece).ok_or_else(unknown)?;
        let known = &mut self.nodes[usize::from(node)];
        if piece.sequence == known.next {
            ensure!(Credits, known.credit() > 0; "node{node} gets {piece:?}: it has no credit")?;
            known.next += 1;
            known.entries.insert(piece.sequence, Entry::Awaited(place));
            let event = self.event(place);
            ensure!(Keys, event.ruling.is_none() && event.with.is_none(); "node{node} gets {piece:?}, and {event:?}")?;
            event.with = Some((node, piece.sequence));
            event.attempt += 1;
            let attempt = event.attempt;
            self.waiting.remove(&place);
            let account = &mut self.accounts[usize::from(place.0)];
            account.pushed_bytes += u64::from(piece.total);
            *(if attempt == 1 { &mut account.pushed } else { &mut account.pushed_again }) += 1;
        } else {
            let is_its = known.entries.get(&piece.sequence) == Some(&Entry::Awaited(place));
            ensure!(Keys, is_its; "node{node} gets {piece:?}: this number is not the event's")?;
        }
        let attempt = self.event(place).attempt;
        let is_whole = self.sets[&(place.0, place.1)].absent.is_empty();
        let flags = (piece.flags.has(EventFlags::INCOMPLETE), piece.flags.has(EventFlags::SENT_AGAIN));
        ensure!(Content, piece.attempt == Attempt(attempt) && flags == (!is_whole, attempt > 1);
            "node{node} gets {piece:?}: another attempt, or other flags, than it has")?;
        let expected = self.bytes_of(place);
        let range = piece.offset as usize..(piece.offset + piece.length) as usize;
        ensure!(Content, expected.len() == piece.total as usize && expected.get(range) == Some(bytes);
            "node{node} gets {piece:?}: it is not what the sources sent")
    }

    fn place_of(&self, piece: &PieceHead) -> Option<Place> {
        let setting = self.scenario.flows.get(usize::from(piece.flow))?;
        let (set, event) = setting.place_of(piece.key)?;
        self.sets.contains_key(&(piece.flow, set)).then_some((piece.flow, set, event))
    }

    /// An event as its sources sent it, without those that are missing.
    fn bytes_of(&self, (flow, set, event): Place) -> Vec<u8> {
        let (setting, held) = (&self.scenario.flows[usize::from(flow)], &self.sets[&(flow, set)]);
        let number = setting.key_of(set).number() + u64::from(event);
        let mut bytes = Vec::new();
        held.came.iter().for_each(|&source| setting.sources.append_banks(source, number, &mut bytes));
        bytes
    }

    /// The gateway said how far a node's numbers have come.
    pub(super) fn on_progress(&self, node: u16, progress: &Progress) -> Result<(), Broken> {
        let next = self.nodes[usize::from(node)].next;
        ensure!(Credits, progress.next == next;
            "node{node} hears of numbers up to {}, and there are {next}", progress.next)?;
        self.check_floor(node, progress.floor)
    }

    /// Decisions left in the order of events.
    pub(super) fn on_stream(&mut self, stream: &Stream) -> Result<(), Broken> {
        let left = &self.streamed[usize::from(stream.flow)];
        let (total, mut last) = (left.len() as u64, left.last().map(|entry| entry.key));
        ensure!(Order, stream.before == total;
            "flow {}: {} decisions went before, and {total} did", stream.flow, stream.before)?;
        for entry in &stream.entries {
            let (key, flow) = (entry.key, stream.flow);
            ensure!(Order, last.is_none_or(|last| last < key);
                "flow {flow}: the decision on {key} leaves behind that on {last:?}")?;
            last = Some(key);
            let place = self.scenario.flows[usize::from(flow)].place_of(key);
            let held = place.and_then(|(set, event)| self.sets.get(&(flow, set))?.events.get(usize::from(event)));
            let ruling = held.and_then(|event| event.ruling);
            let said = Ruling { accept: entry.accept, word: entry.word, by_default: entry.by_default };
            ensure!(Keys, ruling == Some(said);
                "flow {flow}: {said:?} leaves for {key}, and the ruling is {ruling:?}")?;
        }
        let entries = stream.entries.len() as u64;
        self.accounts[usize::from(stream.flow)].streamed += entries;
        self.streamed[usize::from(stream.flow)].extend(stream.entries.iter().copied());
        Ok(())
    }

    /// Checks that no event waits for a node while one has room, at the end of a turn with fewer pushes than allowed.
    pub(super) fn check_rest(&self) -> Result<(), Broken> {
        let willing = self.nodes.iter().position(|node| node.credit() > 0);
        let both = willing.zip(self.waiting.first()).filter(|_| self.pushes < PUSHES);
        ensure!(Liveness, both.is_none(); "a node has credit, and an event (flow, set, place) waits: {both:?}")
    }
}

/// At most so many pushes in a turn, beside what it flushes; the rest follow in the next turn.
const PUSHES: usize = 250;

/// What a node, in its present life, heard from one gateway and said to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Talk {
    /// Which life of the gateway.
    life: Incarnation,
    /// The gateway has said that no decision is awaited below this number.
    floor: u64,
    /// The gateway has said that numbers below this one exist.
    next: u64,
    said: BTreeMap<u64, (Verdict, u32)>,
}

/// What a trigger knows of one gateway.
#[derive(Copy, Clone, Debug, Default)]
struct Known {
    life: Incarnation,
    sequence: u64,
    state: ThrottleState,
    heard: Option<Instant>,
    request: u32,
    /// Sets that were asked for, and sets that it was given, in this life.
    asked: u64,
    named: u64,
    /// Sets that were asked for in the life before, and had not been seen to be given.
    left: u64,
}

impl Talk {
    /// The gateway speaks in this life: with a new one everything begins again. Whether it is the one that is known.
    fn is_in(&mut self, life: Incarnation) -> bool {
        if life > self.life {
            *self = Self { life, ..Self::default() };
        }
        life == self.life
    }
}

/// Decisions that a trigger heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Decided {
    pub(super) came: u64,
    pub(super) missed: u64,
    /// By gateway: which life of it, and how many it has told.
    told: Vec<(Incarnation, u64)>,
}

/// Nodes, triggers and readers of decisions: every member but the gateways.
pub(super) struct Voices {
    scenario: Rc<Scenario>,
    /// By node, then by gateway.
    pub(super) talks: Vec<Vec<Talk>>,
    /// By flow, then by gateway.
    known: Vec<Vec<Known>>,
    /// By flow.
    pub(super) decisions: Vec<Decided>,
    /// By flow: the gateway of each set that was triggered.
    pub(super) named: Vec<BTreeMap<u64, u16>>,
}

impl Voices {
    pub(super) fn new(scenario: &Rc<Scenario>) -> Self {
        let gateways = usize::from(scenario.gateways);
        Self {
            scenario: Rc::clone(scenario),
            talks: vec![vec![Talk::default(); gateways]; scenario.nodes.len()],
            known: vec![vec![Known::default(); gateways]; scenario.flows.len()],
            decisions: vec![
                Decided { told: vec![Default::default(); gateways], ..Decided::default() };
                scenario.flows.len()
            ],
            named: vec![BTreeMap::new(); scenario.flows.len()],
        }
    }

    /// A node took a message.
    pub(super) fn node_heard(&mut self, node: u16, bytes: &[u8]) {
        let Ok((kind, body, _)) = Frame::split(bytes) else { return };
        let talks = &mut self.talks[usize::from(node)];
        if kind == Kind::Push {
            let Ok(push) = PushView::parse(body) else { return };
            let Some(talk) = talks.get_mut(usize::from(push.head().gateway)) else { return };
            if !talk.is_in(push.head().incarnation) {
                return;
            }
            talk.floor = talk.floor.max(push.head().floor);
            let numbers = push.pieces().map(|(piece, _)| piece.sequence + 1);
            talk.next = numbers.fold(talk.next, u64::max);
        } else if let Ok(Message::Progress(progress)) = Message::decode(kind, body) {
            let Some(talk) = talks.get_mut(usize::from(progress.gateway)) else { return };
            if !talk.is_in(progress.incarnation) {
                return;
            }
            (talk.floor, talk.next) = (talk.floor.max(progress.floor), talk.next.max(progress.next));
        }
    }

    /// A node says something.
    pub(super) fn node_said(&mut self, node: u16, bytes: &[u8]) -> Result<(), Broken> {
        let message = Frame::split(bytes).and_then(|(kind, body, _)| Message::decode(kind, body));
        let Ok(Message::Decisions(decisions)) = message else { return Ok(()) };
        let gateway = decisions.gateway;
        let talk = &mut self.talks[usize::from(node)][usize::from(gateway)];
        if decisions.gateway_incarnation < talk.life {
            // Said before it heard of the next life, and only sent now.
            return Ok(());
        }
        for &Decision { sequence, verdict, word } in &decisions.entries {
            let before = *talk.said.entry(sequence).or_insert((verdict, word));
            ensure!(Keys, before == (verdict, word) && sequence < talk.next;
                "node{node} says {verdict:?} of number {sequence} of gw{gateway}, and said {before:?}")?;
        }
        let unsaid = (talk.floor..talk.next).find(|&one| decisions.covers(one) && !talk.said.contains_key(&one));
        ensure!(Credits, unsaid.is_none();
            "node{node} calls number {unsaid:?} of gw{gateway} decided, and never said how: {decisions:?}")
    }

    /// A trigger took a message.
    pub(super) fn trigger_heard(&mut self, flow: u8, from: SocketAddrV4, bytes: &[u8], now: Instant) {
        let message = Frame::split(bytes).and_then(|(kind, body, _)| Message::decode(kind, body));
        let known = &mut self.known[usize::from(flow)];
        if let Ok(Message::Throttle(throttle)) = message {
            let Some(known) = known.get_mut(usize::from(throttle.gateway)) else { return };
            if throttle.incarnation > known.life {
                let left = known.asked.saturating_sub(known.named);
                *known = Known { life: throttle.incarnation, left, ..Known::default() };
            }
            if throttle.incarnation == known.life && throttle.sequence > known.sequence {
                (known.sequence, known.state, known.heard) = (throttle.sequence, throttle.state, Some(now));
            }
        } else if let Ok(Message::Stream(stream)) = message {
            self.count_decisions(flow, &stream);
        } else if let (Ok(request), Some(gateway)) = (MepRequest::parse(bytes), address::gateway_at(from)) {
            let Some(known) = known.get_mut(usize::from(gateway)) else { return };
            // Whose a request is a trigger knows from the state that came before.
            if request.sequence > known.request && known.sequence > 0 {
                (known.request, known.asked) = (request.sequence, known.asked + u64::from(request.count));
            }
        }
    }

    /// Decisions that came in the order of events, as the trigger must count them.
    fn count_decisions(&mut self, flow: u8, stream: &Stream) {
        let counts = &mut self.decisions[usize::from(flow)];
        let Some((life, told)) = counts.told.get_mut(usize::from(stream.gateway)) else { return };
        if stream.incarnation > *life {
            (*life, *told) = (stream.incarnation, 0);
        }
        if stream.incarnation == *life && stream.before >= *told {
            counts.missed += stream.before - *told;
            counts.came += stream.entries.len() as u64;
            *told = stream.before + stream.entries.len() as u64;
        }
    }

    /// A source sends a packet: with the first right one of a set its gateway is named.
    pub(super) fn source_said(&mut self, flow: u8, to: SocketAddrV4, bytes: &[u8], now: Instant) -> Result<(), Broken> {
        let setting = &self.scenario.flows[usize::from(flow)];
        let Some(gateway) = address::gateway_at(to) else { return Ok(()) };
        let Some(set) = set_of(setting, bytes) else { return Ok(()) };
        let before = self.named[usize::from(flow)].insert(set, gateway);
        if let Some(before) = before {
            return ensure!(Keys, before == gateway; "set {set} of flow {flow} goes to gw{before} and to gw{gateway}");
        }
        let known = &mut self.known[usize::from(flow)][usize::from(gateway)];
        known.named += 1;
        // Packets that come later than their trigger say nothing of what that knew.
        let is_at_once = setting.sources.jitter.is_zero() && setting.sources.reordered == 0.0;
        let asked = if is_at_once { known.asked } else { known.asked + known.left };
        let is_asked = self.scenario.naming == Naming::RoundRobin || known.named <= asked;
        ensure!(Credits, is_asked; "flow {flow}: gw{gateway} asked for {} sets and gets {}", known.asked, known.named)?;
        let is_heard = known.heard.is_some_and(|heard| now < heard.after(self.scenario.trigger_silence));
        ensure!(Bounds, !is_at_once || (is_heard && known.state.is_open());
            "flow {flow}: gw{gateway} is {:?}, heard at {:?}, and gets set {set}", known.state, known.heard)
    }
}

/// The set that a packet says it belongs to, if it is right and the set is one of the run's.
fn set_of(setting: &super::scenario::FlowSetting, bytes: &[u8]) -> Option<u64> {
    let header = MepView::parse(bytes).ok()?.header();
    let first = setting.sources.first_event;
    let since = u64::from(header.first_event.wrapping_sub(first as u32));
    let set = since / u64::from(setting.sources.packing);
    (set < setting.sets).then_some(set)
}
