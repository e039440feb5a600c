//! A node puts events together whatever comes twice, late or not at all, and repeats what it decided.

use super::*;
use ropewalk_terms::{Attempt, EventKey, Incarnation};
use ropewalk_wire::gateway::{
    Decision, Decisions, FRAME_BYTES, Message, PieceHead, Progress, PushHead, PushView, Verdict,
};

fn node() -> FarmNode {
    FarmNode::new(FarmNodeConfig {
        node: 2,
        incarnation: Incarnation(8),
        gateway: 1,
        window: 100,
        heartbeat: Duration::from_millis(10),
        patience: Duration::from_millis(3),
        largest_event: 100,
    })
}

/// A part of an event of six bytes, which are its places.
fn part(sequence: u64, offset: u32, length: u32) -> PieceHead {
    let key = EventKey::new(0, 1000 + sequence);
    PieceHead { sequence, key, attempt: Attempt(1), total: 6, offset, length, ..PieceHead::default() }
}

fn push(node: &mut FarmNode, incarnation: u64, floor: u64, parts: &[PieceHead], now: u64) {
    let bytes: Vec<u8> = parts
        .iter()
        .flat_map(|part| {
            let places = (part.offset..part.offset + part.length).map(|place| place as u8);
            part.to_bytes().into_iter().chain(places)
        })
        .collect();
    let incarnation = Incarnation(incarnation);
    let head = PushHead { gateway: 1, incarnation, pieces: parts.len() as u16, floor };
    let message = [&head.to_bytes(bytes.len())[..], &bytes].concat();
    node.on_push(&PushView::parse(&message[FRAME_BYTES..]).expect("a push"), at(now));
}

/// Whole events, by their numbers.
fn events(node: &mut FarmNode) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(event) = node.next_event() {
        assert_eq!(event.bytes, [0, 1, 2, 3, 4, 5]);
        all.push(event.head.sequence);
    }
    all
}

fn decisions(node: &mut FarmNode, now: u64) -> Option<Decisions> {
    core::iter::from_fn(|| node.next_message(at(now))).find_map(|message| match message {
        Message::Decisions(decisions) => Some(decisions),
        _ => None,
    })
}

fn said(decisions: &Decisions) -> Vec<(u64, Verdict)> {
    decisions.entries.iter().map(|Decision { sequence, verdict, .. }| (*sequence, *verdict)).collect()
}

#[test]
fn parts_come_in_any_order_and_twice() {
    let mut node = node();
    push(&mut node, 1, 0, &[part(0, 4, 2), part(1, 0, 6), part(0, 4, 2)], 0);
    push(&mut node, 1, 0, &[part(0, 4, 2), part(0, 0, 2), part(0, 1, 3)], 0);
    assert_eq!(events(&mut node), [1]);
    push(&mut node, 1, 0, &[part(0, 2, 2), part(1, 0, 6)], 0);
    assert_eq!(events(&mut node), [0]);
    assert!(node.decide(0, true, 5) && !node.decide(0, true, 5) && !node.decide(7, true, 5));
    push(&mut node, 1, 0, &[part(0, 0, 6), PieceHead { total: 101, ..part(2, 0, 6) }], 0);
    assert!(events(&mut node).is_empty(), "one is decided, the other too long");
}

#[test]
fn a_decision_is_told_again_in_later_messages() {
    let mut node = node();
    push(&mut node, 1, 0, &[part(0, 0, 6), part(1, 0, 6), part(2, 0, 6)], 0);
    node.decide(1, true, 0);
    let first = decisions(&mut node, 0).expect("there is news");
    assert_eq!((first.cumulative, first.bitmap[0], said(&first)), (0, 0b10, vec![(1, Verdict::Accept)]));
    node.decide(0, false, 0);
    let second = decisions(&mut node, 1).expect("there is news");
    assert_eq!(said(&second), [(0, Verdict::Reject), (1, Verdict::Accept)]);
    assert_eq!((second.cumulative, second.bitmap[0], decisions(&mut node, 2)), (2, 0, None));
    let repeated = decisions(&mut node, 11).expect("once more, should the last one be lost");
    assert_eq!(said(&repeated), [(0, Verdict::Reject), (1, Verdict::Accept)]);
    assert_eq!(decisions(&mut node, 30), None);
}

#[test]
fn what_has_no_room_in_a_message_is_not_settled_by_it() {
    let mut node = node();
    let parts: Vec<_> = (0..90).map(|sequence| part(sequence, 0, 6)).collect();
    push(&mut node, 1, 0, &parts, 0);
    (0..90).rev().for_each(|sequence| assert!(node.decide(sequence, true, 0)));
    let first = decisions(&mut node, 0).expect("there is news");
    assert_eq!((first.cumulative, first.entries.len()), (0, 64));
    assert!((0..90).all(|sequence| first.covers(sequence) == (sequence >= 26)));
    let second = decisions(&mut node, 0).expect("there is more");
    assert_eq!((second.cumulative, second.entries.len()), (90, 64));
}

#[test]
fn what_does_not_come_is_not_received() {
    let mut node = node();
    push(&mut node, 1, 0, &[part(0, 0, 3), part(2, 0, 6)], 0);
    node.on_progress(&Progress { gateway: 1, incarnation: Incarnation(1), next: 4, floor: 0 }, at(1));
    node.on_time(at(2));
    let answer = decisions(&mut node, 2).map(|decisions| (decisions.cumulative, decisions.entries.len()));
    assert_eq!(
        (answer, decisions(&mut node, 2)),
        (Some((0, 0)), None),
        "the gateway is told how far the node is, once"
    );
    assert_eq!(node.next_deadline(), at(3));
    node.on_time(at(3));
    let lost = |sequence| (sequence, Verdict::NotReceived);
    assert_eq!(decisions(&mut node, 3).map(|decisions| said(&decisions)), Some(vec![lost(0), lost(1)]));
    node.on_time(at(4));
    assert_eq!(decisions(&mut node, 4).map(|decisions| said(&decisions)[0]), Some(lost(3)));
    push(&mut node, 1, 0, &[part(0, 3, 3)], 5);
    assert_eq!(events(&mut node), [2]);
}

/// Nothing else is left to be decided, and the credit for it would be lost.
#[test]
fn what_is_forgotten_is_told_as_often_as_the_gateway_says_how_far_it_is() {
    let mut node = node();
    push(&mut node, 1, 0, &[part(0, 0, 3)], 0);
    assert_eq!(decisions(&mut node, 0), None);
    for now in [1, 2] {
        node.on_progress(&Progress { gateway: 1, incarnation: Incarnation(1), next: 1, floor: 1 }, at(now));
        let answer = decisions(&mut node, now).expect("the gateway waits for it");
        assert_eq!((answer.cumulative, answer.covers(0), said(&answer)), (1, true, vec![]));
    }
}

#[test]
fn what_is_not_awaited_any_more_is_forgotten_and_a_new_life_of_the_gateway_begins_anew() {
    let mut node = node();
    push(&mut node, 2, 0, &[part(0, 0, 6), part(1, 0, 6)], 0);
    push(&mut node, 2, 1, &[part(2, 0, 6)], 0);
    assert_eq!(events(&mut node), [1, 2]);
    push(&mut node, 1, 0, &[part(3, 0, 6)], 0);
    assert!(events(&mut node).is_empty(), "an earlier life");
    push(&mut node, 3, 40, &[part(40, 0, 6)], 0);
    assert_eq!((events(&mut node), node.decide(1, true, 0)), (vec![40], false));
    node.decide(40, true, 0);
    let decisions = decisions(&mut node, 0).expect("there is news");
    assert_eq!((decisions.cumulative, decisions.gateway_incarnation, decisions.entries.len()), (41, Incarnation(3), 1));
}
