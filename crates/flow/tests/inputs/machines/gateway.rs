//! A gateway with random input: any packets, any decisions, nodes that come and go.

use super::Choices;
use super::MOST_ACTIONS;
use ropewalk_flow::gateway::{
    Address, DefaultDecision, FarmConfig, FarmNode, FarmNodeConfig, FlowConfig, Gateway, GatewayConfig, Incomplete,
    Outgoing, Output, PacketSource,
};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{EventKey, Incarnation, Instant, SourceId};
use ropewalk_wire::gateway::{Copying, Credit, Decision, Decisions, Frame, Message, PushView, Verdict};
use ropewalk_wire::mep::MepEncoder;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const SOURCES: u16 = 3;
const PACKING: u16 = 4;
const NODES: u16 = 2;
/// The first event of the run; the 32 bits of its ids soon overflow.
const FIRST: u64 = 0xFFFF_FFE0;

/// The memory of the referee.
struct Known {
    gateway: Gateway,
    staging: Staging,
    node: FarmNode,
    /// The last event whose decision was sent.
    streamed: Option<EventKey>,
    stored: BTreeSet<EventKey>,
    largest_push: usize,
}

fn config(choices: &mut Choices<'_>) -> GatewayConfig {
    let source = |id: u16| PacketSource { id: SourceId(id.into()), address: address(id) };
    let flow = |choices: &mut Choices<'_>, output| FlowConfig {
        first_event: FIRST,
        sets: 1 + choices.below(6) as u16,
        assembling: 1,
        window: 8,
        timeout: Duration::from_millis(20),
        incomplete: if choices.chance() { Incomplete::Emit } else { Incomplete::Drop },
        output,
        decision_timeout: Duration::from_millis(100),
        default_decision: DefaultDecision { accept: choices.chance(), word: 7 },
        ..FlowConfig::new((0..SOURCES).map(source).collect(), PACKING)
    };
    let mut flows = vec![flow(choices, Output::Stream), flow(choices, Output::Storage)];
    for flow in &mut flows {
        flow.assembling = 1 + choices.below(u64::from(flow.sets)) as u16;
    }
    let (silence, heartbeat) = (Duration::from_millis(60), Duration::from_millis(10));
    let largest_push = [80, 200, 1472][choices.below(3) as usize];
    let farm = FarmConfig { silence, heartbeat, largest_push, most_outstanding: 16, ..FarmConfig::new(NODES) };
    GatewayConfig::new(1, flows, farm)
}

fn address(source: u16) -> Address {
    Address::of(Ipv4Addr::new(10, 0, 0, source as u8))
}

/// Feeds a gateway.
///
/// # Panics
/// If the machine panics; if an account does not balance, a decision is sent twice or out of order, an event is stored
/// twice, or the machine does not come to rest.
pub fn gateway(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = config(&mut choices);
    let node = FarmNodeConfig {
        node: 0,
        incarnation: Incarnation(1),
        gateway: 1,
        window: 8,
        heartbeat: Duration::from_millis(10),
        patience: Duration::from_millis(5),
        largest_event: 1 << 16,
    };
    let mut known = Known {
        largest_push: config.farm.largest_push,
        gateway: Gateway::new(&config).expect("made to be right"),
        staging: Staging::new(Pool::new(PoolConfig::heap("packets", 256, 128)).expect("memory")),
        node: FarmNode::new(node),
        streamed: None,
        stored: BTreeSet::new(),
    };
    while !choices.is_over() {
        let now = choices.now();
        match choices.below(10) {
            0..=4 => packet(&mut known, &mut choices, now),
            5 | 6 => message(&mut known, &mut choices, now),
            7 => node_speaks(&mut known, &mut choices, now),
            8 if choices.below(16) == 0 => {
                known.gateway.receiver().stop_after(choices.below(2) as u8, FIRST + choices.below(64));
            }
            9 if choices.below(4) == 0 => {
                let source = SourceId(choices.below(u64::from(SOURCES) + 1) as u32);
                known.gateway.receiver().mask(source, choices.chance());
            }
            _ => _ = known.gateway.next_request(choices.below(3) as u8, Duration::ZERO, now),
        }
        if choices.chance() {
            turn(&mut known, &mut choices, now);
        }
        check(&known);
    }
}

/// A packet that is valid, nearly valid, or random.
fn packet(known: &mut Known, choices: &mut Choices<'_>, now: Instant) {
    let mut bytes = Vec::new();
    let first = FIRST.wrapping_add(u64::from(PACKING) * choices.below(12)) as u32;
    let mut encoder = MepEncoder::new(first, 0, &mut bytes);
    for _ in 0..PACKING {
        let length = choices.below(9) as usize * 4;
        encoder.fragment(|out| out.resize(out.len() + length, 0xAB)).expect("it is short");
    }
    encoder.finish();
    match choices.below(8) {
        0 => {
            let place = choices.below(bytes.len() as u64) as usize;
            bytes[place] ^= choices.below(256) as u8;
        }
        1 => bytes.truncate(choices.below(bytes.len() as u64) as usize),
        2 if choices.chance() => bytes = choices.raw(64).to_vec(),
        _ => {}
    }
    known.staging.pool_mut().collect();
    // In one piece, or in two.
    let cut = if choices.below(4) == 0 { choices.below(bytes.len() as u64 + 1) as usize } else { bytes.len() };
    let (head, tail) = bytes.split_at(cut);
    let Some(head) = known.staging.write(head) else { return };
    let Some(tail) = known.staging.write(tail) else { return };
    let packet: Payload = [head, tail].into_iter().collect();
    let source = choices.below(u64::from(SOURCES) + 1) as u16;
    // A packet refused for want of a set is dropped here: it is in no account.
    drop(known.gateway.on_packet(choices.below(3) as u8, address(source), packet, now));
}

/// A message from a node that may not exist, in any incarnation.
fn message(known: &mut Known, choices: &mut Choices<'_>, now: Instant) {
    let node = choices.below(u64::from(NODES) + 1) as u16;
    let incarnation = Incarnation(1 + choices.below(2));
    if choices.chance() {
        let window = choices.below(20) as u16;
        return known.gateway.on_message(&Message::Credit(Credit { node, incarnation, window }), now);
    }
    let verdicts = [Verdict::Accept, Verdict::Reject, Verdict::NotReceived];
    let entry = |choices: &mut Choices<'_>| Decision {
        sequence: if choices.below(16) == 0 { choices.wide() } else { choices.below(64) },
        verdict: verdicts[choices.below(3) as usize],
        word: 1,
    };
    let decisions = Decisions {
        node,
        gateway: 1,
        incarnation,
        gateway_incarnation: Incarnation(1),
        cumulative: if choices.below(16) == 0 { choices.wide() } else { choices.below(32) },
        bitmap: [if choices.chance() { choices.wide() } else { 0 }, 0, 0, 0],
        entries: (0..choices.below(6)).map(|_| entry(choices)).collect(),
    };
    known.gateway.on_message(&Message::Decisions(decisions), now);
}

/// A real node acts.
fn node_speaks(known: &mut Known, choices: &mut Choices<'_>, now: Instant) {
    let mut whole = Vec::new();
    while let Some(event) = known.node.next_event() {
        assert_eq!(event.bytes.len(), event.head.total as usize);
        whole.push(event.head.sequence);
    }
    for sequence in whole {
        known.node.decide(sequence, choices.chance(), 2);
    }
    known.node.on_time(now);
    for turn in 0.. {
        assert!(turn < MOST_ACTIONS, "the node does not come to rest");
        let Some(message) = known.node.next_message(now) else { break };
        if choices.below(4) > 0 {
            known.gateway.on_message(&message, now);
        }
    }
    let _ = known.node.next_deadline();
}

fn turn(known: &mut Known, choices: &mut Choices<'_>, now: Instant) {
    (0..2).for_each(|flow| known.gateway.receiver().on_drained(flow, now));
    known.gateway.turn(now, |set| assert!(set.missing().count() <= usize::from(SOURCES)));
    for turn in 0.. {
        assert!(turn < MOST_ACTIONS, "the gateway does not come to rest");
        if known.gateway.next_push().is_none() || choices.below(8) == 0 {
            break;
        }
        push(known, choices, now);
    }
    for turn in 0.. {
        assert!(turn < MOST_ACTIONS, "the gateway does not come to rest");
        match known.gateway.next_message(now) {
            None => break,
            Some(Outgoing::Progress(0, progress)) => known.node.on_progress(&progress, now),
            Some(Outgoing::Stream(stream)) => {
                for entry in stream.entries {
                    assert!(known.streamed.is_none_or(|last| last < entry.key), "{} is out of order", entry.key);
                    known.streamed = Some(entry.key);
                }
            }
            Some(_) => {}
        }
    }
    while let Some(key) = known.gateway.next_stored().filter(|_| choices.below(8) > 0) {
        let view = known.gateway.stored_view().expect("it was just shown");
        assert_eq!(view.pieces().map(<[u8]>::len).sum::<usize>(), view.head().length as usize);
        known.gateway.stored();
        assert!(known.stored.insert(key), "{key} is stored twice");
    }
}

fn push(known: &mut Known, choices: &mut Choices<'_>, now: Instant) {
    let view = known.gateway.push_view();
    let mut bytes = vec![0; view.length()];
    assert!(view.length() <= known.largest_push, "{} bytes", view.length());
    view.copy_to(&mut bytes, Copying::Short).expect("there is room");
    assert!(view.pieces().flatten().eq(&bytes), "gathered or copied, it is the same");
    known.gateway.sent(now);
    let (_, body, rest) = Frame::split(&bytes).expect("a message");
    assert!(rest.is_empty(), "one message");
    let push = PushView::parse(body).expect("a push");
    if choices.below(4) > 0 {
        known.node.on_push(&push, now);
    }
}

fn check(known: &Known) {
    for flow in 0..2 {
        let (packets, farm) = known.gateway.account(flow);
        assert!(packets.is_balanced(), "{packets:?}");
        assert!(farm.is_balanced(), "{farm:?}");
    }
    let imbalances = known.gateway.ledger().imbalances();
    assert!(imbalances.is_empty(), "{imbalances:?}");
    let _ = known.gateway.next_deadline();
}
