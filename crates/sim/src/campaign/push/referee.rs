//! Who sees every packet, and knows what must follow.

use super::address;
use super::assembly::{Assembly, Finished};
use super::farm::{Farm, Voices};
use super::scenario::{Scenario, source_of};
use crate::campaign::fault::Place;
use crate::campaign::recorder;
use crate::campaign::runner::{Broken, Checker, ensure};
use ropewalk_engine::gateway::{Order, OrderBoard, Read};
use ropewalk_flow::gateway::{FarmAccount, Receiver, Sender};
use ropewalk_io::packet::simulated::Passage;
use ropewalk_io::packet::{Packet, over_v4};
use ropewalk_terms::Instant;
use ropewalk_wire::gateway::{Frame, Kind, Message, PushView};
use ropewalk_wire::mep::MepView;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::sync::Arc;

/// Shared by everybody who takes part.
pub(super) type Shared = Rc<RefCell<Referee>>;

/// What of a gateway had a turn: both halves together, or one of them.
#[derive(Copy, Clone)]
pub(super) struct Turned<'a> {
    pub(super) receiver: Option<&'a Receiver>,
    pub(super) sender: Option<&'a Sender>,
}

/// What happened in a gateway's turn, in this order.
enum Note {
    Packet {
        flow: u8,
        from: SocketAddrV4,
        bytes: Vec<u8>,
    },
    /// So many packets of a flow were taken in one look.
    Looked {
        flow: u8,
        count: usize,
    },
    Heard(Vec<u8>),
    /// Everybody was heard: now time passes.
    AllHeard,
    Sent {
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
}

/// One life of a gateway as it must be.
pub(super) struct Twin {
    pub(super) flows: Vec<Assembly>,
    pub(super) farm: Farm,
    /// Sets that one half has finished and the other one has not taken yet.
    between: VecDeque<(u8, Finished)>,
    notes: Vec<Note>,
    /// How far it has read what is said in mid-run.
    read: Read,
    /// By flow: sets that were begun before this turn.
    opened: Vec<u64>,
    /// By flow: when sets were finished for which something was missing, by the gateway's clock.
    pub(super) closed: BTreeMap<(u8, u64), Instant>,
}

/// Flow, set and source of a packet.
pub(super) type Identity = (u8, u64, u16);

/// What became of the packets of one source for one set.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// When copies that are right arrived, by the world's clock.
    pub(super) arrivals: Vec<Instant>,
    /// Copies that found no room where they arrived.
    pub(super) overflown: usize,
}

/// The referee.
pub(super) struct Referee {
    scenario: Rc<Scenario>,
    orders: Arc<OrderBoard>,
    pub(super) twins: Vec<Twin>,
    /// Lives that are over because their process was killed, with their gateways.
    pub(super) former: Vec<(u16, Twin)>,
    pub(super) voices: Voices,
    /// By gateway, and by what a packet is.
    pub(super) fates: BTreeMap<(u16, Identity), Fate>,
    /// By flow: packets that found no room in front of a gateway.
    pub(super) overflown: Vec<u64>,
    recorder: recorder::Shared,
}

impl Referee {
    pub(super) fn new(scenario: &Rc<Scenario>, orders: &Arc<OrderBoard>, recorder: &recorder::Shared) -> Shared {
        let twin = |gateway| Twin::new(scenario, gateway, 1);
        let referee = Self {
            scenario: Rc::clone(scenario),
            orders: Arc::clone(orders),
            twins: (0..scenario.gateways).map(twin).collect(),
            former: Vec::new(),
            voices: Voices::new(scenario),
            fates: BTreeMap::new(),
            overflown: vec![0; scenario.flows.len()],
            recorder: recorder.clone(),
        };
        Rc::new(RefCell::new(referee))
    }

    /// A gateway begins another life, which knows nothing.
    pub(super) fn begin_life(&mut self, gateway: u16, life: u64) {
        let twin = Twin::new(&self.scenario, gateway, life);
        // What was sent to the former one is lost with it.
        self.fates.retain(|(of, _), _| *of != gateway);
        let former = std::mem::replace(&mut self.twins[usize::from(gateway)], twin);
        self.former.push((gateway, former));
    }

    /// All lives of a gateway, the present one last.
    pub(super) fn lives_of(&self, gateway: u16) -> impl DoubleEndedIterator<Item = &Twin> {
        let former = self.former.iter().filter(move |(of, _)| *of == gateway).map(|(_, twin)| twin);
        former.chain([&self.twins[usize::from(gateway)]])
    }

    pub(super) fn keep(&self, result: Result<(), Broken>) {
        self.recorder.borrow_mut().keep(result);
    }

    /// Takes note of a packet.
    fn note(&self, now: Instant, bytes: &[u8], line: impl FnOnce() -> String) {
        let line = || format!("{} {} bytes: {}", line(), bytes.len(), named(bytes));
        self.recorder.borrow_mut().note(now, (bytes.len() as u64, 1), line);
    }

    /// A process took a packet.
    fn taken(&mut self, by: Place, at: SocketAddrV4, from: SocketAddrV4, bytes: Vec<u8>, now: Instant) {
        self.note(now, &bytes, || format!("{by} takes from {from}"));
        match by {
            Place::Gateway(gateway) | Place::Sending(gateway) => {
                let note = match address::input_at(at) {
                    Some((_, flow)) => Note::Packet { flow, from, bytes },
                    None => Note::Heard(bytes),
                };
                self.twins[usize::from(gateway)].notes.push(note);
            }
            Place::Node(node) => self.voices.node_heard(node, &bytes),
            Place::Trigger(flow) => self.voices.trigger_heard(flow, from, &bytes, now),
            // Readers take bytes of connections, and look at them themselves.
            _ => {}
        }
    }

    /// A process looked for packets and took these.
    pub(super) fn looked(&mut self, by: Place, at: SocketAddrV4, packets: &[Packet], now: Instant) {
        for Packet { from, payload, .. } in packets {
            self.taken(by, at, over_v4(*from), payload.to_vec(), now);
        }
        let count = packets.len();
        if let Place::Gateway(gateway) | Place::Sending(gateway) = by {
            let note = address::input_at(at).map_or(Note::AllHeard, |(_, flow)| Note::Looked { flow, count });
            self.twins[usize::from(gateway)].notes.push(note);
        }
    }

    /// A process sends a packet.
    pub(super) fn sent(&mut self, by: Place, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8], now: Instant) {
        self.note(now, bytes, || format!("{by} at {from} sends to {to}"));
        let result = match by {
            Place::Gateway(gateway) | Place::Sending(gateway) => {
                self.twins[usize::from(gateway)].notes.push(Note::Sent { to, bytes: bytes.to_vec() });
                Ok(())
            }
            Place::Node(node) => self.voices.node_said(node, bytes),
            Place::Trigger(flow) => self.voices.source_said(flow, to, bytes, now),
            _ => Ok(()),
        };
        self.keep(result);
    }

    /// What the network did with packets on their way to gateways.
    pub(super) fn on_passages(&mut self, passages: Vec<Passage>) {
        for passage in passages {
            match passage {
                Passage::Sent { from, to, payload, arrivals, .. } => {
                    if let Some(place) = self.identity(from, to, &payload) {
                        self.fates.entry(place).or_default().arrivals.extend(arrivals.into_iter().flatten());
                    }
                }
                Passage::Overflown { from, to, payload } => {
                    if let Some((_, flow)) = address::input_at(to) {
                        self.overflown[usize::from(flow)] += 1;
                    }
                    if let Some(place) = self.identity(from, to, &payload) {
                        self.fates.entry(place).or_default().overflown += 1;
                    }
                }
            }
        }
    }

    /// What a packet is, if it is right.
    fn identity(&self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) -> Option<(u16, Identity)> {
        let (gateway, flow) = address::input_at(to)?;
        let sources = &self.scenario.flows.get(usize::from(flow))?.sources;
        let source = address::source_at(from, flow)?;
        let header = MepView::parse(bytes).ok()?.header();
        let is_right = header.packing == sources.packing && header.partition == sources.partition;
        let since = header.first_event.wrapping_sub(sources.first_event as u32);
        is_right.then_some((gateway, (flow, u64::from(since) / u64::from(sources.packing), source)))
    }

    /// A gateway, or a half of it, had a turn: whether it is as it must be.
    pub(super) fn after_turn(&mut self, gateway: u16, turned: Turned<'_>, now: Instant) -> Result<(), Broken> {
        let Self { scenario, orders, twins, .. } = self;
        let twin = &mut twins[usize::from(gateway)];
        let in_place = |broken: Broken| Broken { words: format!("gw{gateway}: {}", broken.words), ..broken };
        let replayed = twin.replay(turned, scenario.rooms.batch, now);
        if turned.receiver.is_some() {
            twin.read(orders, now);
        }
        replayed.and_then(|()| twin.check(turned)).map_err(in_place)
    }
}

impl Twin {
    fn new(scenario: &Rc<Scenario>, gateway: u16, life: u64) -> Self {
        Self {
            flows: scenario.flows.iter().map(Assembly::new).collect(),
            farm: Farm::new(scenario, gateway, life),
            between: VecDeque::new(),
            notes: Vec::new(),
            read: Read::default(),
            opened: vec![0; scenario.flows.len()],
            closed: BTreeMap::new(),
        }
    }

    /// Goes through the turn.
    fn replay(&mut self, turned: Turned<'_>, batch: usize, now: Instant) -> Result<(), Broken> {
        if let Some(receiver) = turned.receiver {
            self.begin_turn(receiver, now);
        }
        for note in std::mem::take(&mut self.notes) {
            match note {
                Note::Packet { flow, from, bytes } => {
                    let source = address::source_at(from, flow);
                    self.flows[usize::from(flow)].take(source, bytes, now);
                }
                Note::Looked { flow, count } => self.flows[usize::from(flow)].look(count < batch, now),
                Note::Heard(bytes) => self.hear(&bytes, now),
                Note::AllHeard => self.pass(turned, now),
                Note::Sent { to, bytes } => self.say(to, &bytes)?,
            }
        }
        if turned.sender.is_none() {
            self.finish_sets(now);
        }
        Ok(())
    }

    /// Behind the packets of its turn a gateway reads who takes part, and how long sets wait.
    fn read(&mut self, orders: &OrderBoard, now: Instant) {
        let Self { flows, read, .. } = self;
        orders.read(read, |order| match order {
            Order::Mask(source, is_masked) => {
                let (flow, source) = source_of(source);
                flows[usize::from(flow)].mask(source, is_masked);
            }
            Order::SetTimeout(flow, timeout) => flows[usize::from(flow)].set_timeout(timeout, now),
            // Simulated gateways have one stream for all events.
            Order::SetPrescale(..) => {}
        });
    }

    fn begin_turn(&mut self, receiver: &Receiver, now: Instant) {
        for (flow, assembly) in (0..).zip(&mut self.flows) {
            let opened = receiver.account(flow).opened;
            let before = std::mem::replace(&mut self.opened[usize::from(flow)], opened);
            assembly.begin_turn(opened - before, now);
        }
    }

    fn hear(&mut self, bytes: &[u8], now: Instant) {
        match Frame::split(bytes).and_then(|(kind, body, _)| Message::decode(kind, body)) {
            Ok(Message::Credit(credit)) => self.farm.on_credit(&credit, now),
            Ok(Message::Decisions(decisions)) => self.farm.on_decisions(&decisions, now),
            _ => {}
        }
    }

    /// Time passes in the half that sends; then it takes what the other one has finished.
    fn pass(&mut self, turned: Turned<'_>, now: Instant) {
        self.farm.pass(now);
        if turned.receiver.is_some() && turned.sender.is_some() {
            self.finish_sets(now);
        }
        for (flow, finished) in self.between.drain(..) {
            self.farm.add(flow, finished, now);
        }
    }

    /// Time passes in the half that receives.
    fn finish_sets(&mut self, now: Instant) {
        for (flow, assembly) in (0..).zip(&mut self.flows) {
            assembly.pass(now);
            for finished in std::mem::take(&mut assembly.finished) {
                if !finished.set.is_complete() {
                    self.closed.insert((flow, finished.number), now);
                }
                self.between.push_back((flow, finished));
            }
        }
    }

    fn say(&mut self, to: SocketAddrV4, bytes: &[u8]) -> Result<(), Broken> {
        let Ok((kind, body, _)) = Frame::split(bytes) else { return Ok(()) };
        match (kind, address::node_at(to)) {
            (Kind::Push, Some(node)) => {
                let push = PushView::parse(body)
                    .map_err(|error| Broken::new(Checker::Content, format!("node{node} gets no push: {error}")))?;
                self.farm.on_push(node, &push)
            }
            (_, node) => match (Message::decode(kind, body), node) {
                (Ok(Message::Progress(progress)), Some(node)) => self.farm.on_progress(node, &progress),
                (Ok(Message::Stream(stream)), None) => self.farm.on_stream(&stream),
                (Ok(_), _) => Ok(()),
                (Err(error), _) => Err(Broken::new(Checker::Content, format!("{kind:?} to {to}: {error}"))),
            },
        }
    }

    /// Whether the gateway's accounts are those that follow from its packets.
    fn check(&mut self, turned: Turned<'_>) -> Result<(), Broken> {
        if let Some(receiver) = turned.receiver {
            self.check_packets(receiver)?;
        }
        if let Some(sender) = turned.sender {
            self.check_events(sender)?;
            self.check_credit(sender)?;
            self.farm.check_rest()?;
        }
        turned.receiver.filter(|_| turned.sender.is_some()).map_or(Ok(()), |receiver| self.check_alarm(receiver))
    }

    fn check_packets(&mut self, receiver: &Receiver) -> Result<(), Broken> {
        for (flow, assembly) in (0u8..).zip(&mut self.flows) {
            let packets = receiver.account(flow);
            if packets.packets.in_flight == 0 {
                assembly.rest();
            }
            let taken = assembly.account();
            ensure!(Ledger, packets.is_balanced(); "flow {flow}: {packets:?}")?;
            ensure!(Ledger, taken == packets; "flow {flow}: the account is {packets:?}, and must be {taken:?}")?;
            let (sources, due) = (receiver.by_source(flow), &assembly.by_source[..]);
            ensure!(Ledger, sources == due; "flow {flow}: its sources' accounts are {sources:?}, and must be {due:?}")?;
            assembly.check_turns(flow, receiver.masking(flow))?;
        }
        Ok(())
    }

    fn check_events(&self, sender: &Sender) -> Result<(), Broken> {
        for flow in 0..self.flows.len() as u8 {
            let events = sender.account(flow);
            ensure!(Ledger, events.is_balanced(); "flow {flow}: {events:?}")?;
            let FarmAccount { stored, stored_bytes, .. } = events;
            let farm = FarmAccount { stored, stored_bytes, ..self.farm.account(flow) };
            ensure!(Ledger, farm == events; "flow {flow}: the account is {events:?}, and must be {farm:?}")?;
        }
        Ok(())
    }

    /// Without a node triggers are told of an error, and of none otherwise.
    pub(super) fn check_alarm(&self, receiver: &Receiver) -> Result<(), Broken> {
        // Behind the flows: memory, the queue in front of it, out of sync.
        let error = receiver.throttle().levels().nth(self.flows.len() + 3).map(|level| level.used);
        let has_nodes = self.farm.nodes.iter().any(|node| node.incarnation.is_some());
        ensure!(Bounds, error == Some(u64::from(!has_nodes));
            "the farm has a node: {has_nodes}, and the throttle's error is {error:?}")
    }

    fn check_credit(&self, sender: &Sender) -> Result<(), Broken> {
        (0..self.farm.nodes.len() as u16).try_for_each(|node| {
            let (given, due) = (sender.credit(node), self.farm.credit(node));
            ensure!(Credits, given == due; "node{node} may have {given} more events, and should have {due}")
        })
    }
}

/// What a packet is, for people.
fn named(bytes: &[u8]) -> String {
    match Frame::split(bytes) {
        Ok((Kind::Push, body, _)) => match PushView::parse(body) {
            Ok(push) => format!("{:?} {:?}", push.head(), push.pieces().map(|(piece, _)| piece).collect::<Vec<_>>()),
            Err(error) => error.to_string(),
        },
        Ok((kind, body, _)) => format!("{:?}", Message::decode(kind, body)),
        Err(_) => MepView::parse(bytes).map_or_else(|error| error.to_string(), |view| format!("{:?}", view.header())),
    }
}
