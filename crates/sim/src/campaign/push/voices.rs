//! Nodes and triggers say and do no more than they may: what a node calls decided it has told, and a trigger names gateways
//! that want packets.

use super::address;
use super::scenario::Scenario;
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_flow::gateway::Naming;
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{Decision, Frame, Kind, Message, PushView, Stream, ThrottleState, Verdict};
use ropewalk_wire::mep::{MepRequest, MepView};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::rc::Rc;

/// What a node, in its present life, heard from one gateway and said to it.
#[derive(Clone, Debug, Default)]
struct Talk {
    /// Which life of the gateway.
    life: Incarnation,
    /// No decision is awaited below this number, as far as it was told.
    floor: u64,
    /// Numbers below this one exist, as far as it was told.
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

/// Everybody but gateways.
#[derive(Debug)]
pub(super) struct Voices {
    scenario: Rc<Scenario>,
    /// By node, then by gateway.
    talks: Vec<Vec<Talk>>,
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

    /// A node begins another life.
    pub(super) fn forget_node(&mut self, node: u16) {
        self.talks[usize::from(node)].fill(Talk::default());
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
            Broken::unless(before == (verdict, word) && sequence < talk.next, Checker::Keys, || {
                format!("node{node} says {verdict:?} of number {sequence} of gw{gateway}, and said {before:?}")
            })?;
        }
        let unsaid = (talk.floor..talk.next).find(|&one| decisions.covers(one) && !talk.said.contains_key(&one));
        Broken::unless(unsaid.is_none(), Checker::Credits, || {
            format!("node{node} calls number {unsaid:?} of gw{gateway} decided, and never said how: {decisions:?}")
        })
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
            return Broken::unless(before == gateway, Checker::Keys, || {
                format!("set {set} of flow {flow} goes to gw{before} and to gw{gateway}")
            });
        }
        let known = &mut self.known[usize::from(flow)][usize::from(gateway)];
        known.named += 1;
        // Packets that come later than their trigger say nothing of what that knew.
        let is_at_once = setting.sources.jitter.is_zero() && setting.sources.reordered == 0.0;
        let asked = if is_at_once { known.asked } else { known.asked + known.left };
        let is_asked = self.scenario.naming == Naming::RoundRobin || known.named <= asked;
        Broken::unless(is_asked, Checker::Credits, || {
            format!("flow {flow}: gw{gateway} asked for {} sets and gets {}", known.asked, known.named)
        })?;
        let is_heard = known.heard.is_some_and(|heard| now < heard.after(self.scenario.trigger_silence));
        Broken::unless(!is_at_once || (is_heard && known.state.is_open()), Checker::Bounds, || {
            format!("flow {flow}: gw{gateway} is {:?}, heard at {:?}, and gets set {set}", known.state, known.heard)
        })
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
