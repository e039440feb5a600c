//! Builder units ask, and a new event manager asks anew.

use super::*;

fn not_held(rig: &Rig) -> Vec<(u64, Option<Cause>)> {
    rig.answers.iter().map(|(_, entry)| (entry.key.number(), entry.not_held)).collect()
}

#[test]
fn requests_are_answered_in_order_with_what_is_held() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 4]);
    rig.feed(1, [1, 4]);
    rig.request(3, &[key(2), key(1), key(3)]);
    let [(builder, second), (_, first), (_, third)] = rig.answers[..] else { panic!("three answers") };
    assert_eq!((builder, second.slot, second.attempt), (3, 2, Attempt(1)));
    assert_eq!((second.fragments, second.bytes, second.not_held), (2, LENGTH, None), "one of them missing");
    assert_eq!((first.fragments, first.bytes), (2, 2 * LENGTH));
    assert_eq!((third.fragments, third.bytes), (2, 0));
    assert_eq!(rig.missing(key(3)), [(0, Cause::Skipped), (1, Cause::Skipped)]);
    let bytes = rig.readout.super_fragment(key(2)).map(|held| held.bytes());
    let there = rig.fragments(key(2)).iter().filter(|one| one.meta.length > 0).count();
    assert_eq!((there, bytes), (1, Some(LENGTH)));
}

#[test]
fn a_request_for_an_event_that_is_not_settled_is_answered_when_it_is() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2]);
    rig.request(0, &[key(1), key(2)]);
    assert_eq!(not_held(&rig), []);
    rig.feed(1, [1]);
    assert_eq!(not_held(&rig), [(1, None)]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(not_held(&rig), [(1, None), (2, None)]);
}

#[test]
fn what_is_not_held_is_said_to_be_so() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=3);
    rig.release(key(1), 1, Outcome::Complete);
    rig.tell(Message::StopAt(key(3)));
    rig.request(0, &[key(0), key(1), key(9)]);
    assert_eq!(not_held(&rig), [(0, Some(Cause::NotHeld)), (1, Some(Cause::Late)), (9, Some(Cause::NotHeld))]);
    assert!(rig.readout.super_fragment(key(1)).is_none());
}

#[test]
fn an_event_in_a_gap_is_said_not_to_be_held() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [900]);
    rig.request(0, &[key(500)]);
    assert_eq!(not_held(&rig), [(500, Some(Cause::NotHeld))]);
}

#[test]
fn builders_are_answered_in_turn() {
    let mut rig = Rig::started(config(1));
    let all: Vec<_> = (1..=6).map(key).collect();
    rig.request(0, &all[..4]);
    rig.request(1, &all[4..]);
    rig.feed(0, 1..=6);
    let order: Vec<_> = rig.answers.iter().map(|&(builder, entry)| (builder, entry.key.number())).collect();
    assert_eq!(order, [(0, 1), (1, 5), (0, 2), (1, 6), (0, 3), (0, 4)]);
}

#[test]
fn a_builder_unit_that_is_not_configured_gets_no_answer_and_no_room() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    rig.request(4, &[key(1)]);
    rig.request(u16::MAX, &[key(1)]);
    assert_eq!((rig.answers.len(), rig.readout.requests_refused()), (0, 2));
}

#[test]
fn requests_of_a_lost_builder_are_forgotten_and_its_events_kept() {
    let mut rig = Rig::started(config(1));
    rig.request(0, &[key(1)]);
    rig.readout.peer_lost(rig.now, NodeId::builder(0));
    rig.feed(0, [1]);
    assert_eq!(rig.answers, []);
    rig.request(1, &[key(1)]);
    assert_eq!(not_held(&rig), [(1, None)]);
}

#[test]
fn a_new_event_manager_is_told_everything_that_is_held() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1, 2, 3, 5]);
    rig.release(key(2), 1, Outcome::Complete);
    rig.readout.peer_lost(rig.now, NodeId::MANAGER);
    rig.held.clear();
    rig.settled = EventKey::MIN;
    rig.tell(Message::Recover);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 3, 5], key(5)));
    rig.release(key(1), 5, Outcome::Complete);
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert_eq!((rig.numbers(), rig.settled), (vec![], key(5)), "even that nothing is held");
}

#[test]
fn only_the_event_manager_gives_orders() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    let entries = [ReleaseEntry { first: key(1), count: 1, outcome: Outcome::Complete }].into_iter().collect();
    rig.readout.message(rig.now, NodeId::builder(0), &Message::Release(Release { entries }));
    rig.readout.message(rig.now, NodeId::readout(1), &Message::Finish);
    rig.poll();
    assert_eq!((rig.readout.held(), rig.others.len()), (1, 0));
}
