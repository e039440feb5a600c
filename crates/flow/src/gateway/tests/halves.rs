//! Producer and consumer do what one thread does.

use super::*;
use crate::source::mep::{MepSourceConfig, MepSources};
use ropewalk_terms::{EventKey, Incarnation};
use ropewalk_wire::gateway::{Credit, Decision, Decisions, Frame, Message, PushView as Pushed, Verdict};
use std::collections::VecDeque;

const SOURCES: u16 = 6;
const PACKING: u16 = 4;
const SETS: u64 = 40;

fn config() -> GatewayConfig {
    let flow = FlowConfig { output: Output::Stream, sets: 8, assembling: 8, ..flow(SOURCES, PACKING) };
    GatewayConfig::new(2, vec![flow], FarmConfig::new(1))
}

/// Decides on everything that is pushed, and returns what left in order.
fn serve(sender: &mut Sender, now: Instant) -> Vec<(EventKey, bool)> {
    let mut entries = Vec::new();
    while sender.farm().next_push().is_some() {
        let bytes: Vec<u8> = sender.farm().push_view().pieces().flatten().copied().collect();
        sender.farm().sent(now);
        let (_, body, _) = Frame::split(&bytes).expect("a message");
        for (head, _) in Pushed::parse(body).expect("a push").pieces() {
            let verdict = if head.key.number().is_multiple_of(3) { Verdict::Accept } else { Verdict::Reject };
            entries.push(Decision { sequence: head.sequence, verdict, word: 0 });
        }
    }
    for entries in entries.chunks(32) {
        let cumulative = entries.iter().map(|entry| entry.sequence).min().unwrap_or_default();
        let (incarnation, gateway_incarnation) = (Incarnation(1), Incarnation(1));
        let entries = entries.iter().copied().collect();
        let decisions =
            Decisions { gateway: 2, incarnation, gateway_incarnation, cumulative, entries, ..Decisions::default() };
        sender.on_message(&Message::Decisions(decisions), now);
    }
    let mut left = Vec::new();
    while let Some(message) = sender.next_message(now) {
        if let Outgoing::Stream(stream) = message {
            left.extend(stream.entries.iter().map(|entry| (entry.key, entry.accept)));
        }
    }
    left
}

/// All sets, of which some packets are lost; every so many of them the other half has its turn.
fn run(every: u64) -> (FlowAccount, FarmAccount, Vec<(EventKey, bool)>) {
    let mut bench = Bench::new();
    let mut sources = MepSources::new(MepSourceConfig { loss: 0.02, ..MepSourceConfig::new(SOURCES, PACKING, 60) });
    let (mut receiver, mut sender) = Gateway::new(&config()).expect("it can be").split();
    let credit = Credit { node: 0, incarnation: Incarnation(1), window: 64 };
    sender.on_message(&Message::Credit(credit), at(0));
    let (mut queue, mut left) = (VecDeque::new(), Vec::new());
    for set in 0..SETS + 8 {
        // Those that lack something are finished before the next one begins.
        let now = at(200 * set);
        if set < SETS {
            sources.trigger(0);
            while let Some(packet) = sources.next_packet() {
                let mut bytes = Vec::new();
                sources.encode(&packet, &mut bytes);
                if !packet.is_lost {
                    assert_eq!(receiver.on_packet(0, address(packet.source), bench.payload(&bytes), now), None);
                }
            }
        }
        receiver.on_drained(0, at(200 * set + 150));
        receiver.on_time(at(200 * set + 150));
        queue.extend(core::iter::from_fn(|| receiver.take_set()));
        if set % every == 0 || set >= SETS {
            sender.on_message(&Message::Credit(credit), now);
            while let Some(set) = queue.pop_front() {
                sender.on_set(set, now);
            }
            left.extend(serve(&mut sender, now));
            sender.on_time(now);
            while let Some(set) = sender.take_empty() {
                receiver.give_back(set);
            }
        }
    }
    assert_eq!(bench.held(), 0);
    (receiver.account(0), sender.farm().account(0), left)
}

#[test]
fn it_makes_no_difference_how_far_the_halves_are_apart() {
    let (packets, farm, left) = run(1);
    assert!(packets.is_balanced() && farm.is_balanced());
    assert_eq!((packets.opened, farm.decided, left.len() as u64), (SETS, SETS * 4, SETS * 4));
    assert!(packets.incomplete > 0 && packets.open == 0);
    for every in [2, 5] {
        let (other_packets, other_farm, other_left) = run(every);
        assert_eq!((other_packets, other_left), (packets, left.clone()));
        assert_eq!(FarmAccount { in_budget: farm.in_budget, ..other_farm }, farm, "they may be later, no more");
    }
}
