//! What the event manager leaves here is told to its successor.

use super::*;

fn ended(below: u64) -> Ended {
    Ended { below: key(below), built: below - 1, ..Ended::default() }
}

#[test]
fn what_the_event_manager_left_is_told_to_its_successor_once() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    rig.tell(Message::Ended(ended(4)));
    // An older word that comes late says less.
    rig.tell(Message::Ended(ended(3)));
    assert_eq!(rig.others, []);
    // What is announced again was settled before.
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!((rig.others.as_slice(), rig.numbers().len()), (&[Message::Ended(ended(4))][..], 9));
    rig.feed(0, [10]);
    assert_eq!(rig.others.len(), 1);
}

#[test]
fn where_nothing_was_left_nothing_is_told() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!(rig.others, []);
}

#[test]
fn a_unit_in_which_the_run_has_not_begun_says_so() {
    let mut rig = Rig::new(config(1));
    rig.tell(Message::Recover);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others, [Message::Highest(EventKey::MIN)]);
    rig.tell(Message::Start(Start::of_run(key(1))));
    rig.connect(0);
    rig.feed(0, 1..=3);
    assert_eq!((rig.numbers(), rig.others.len()), (vec![1, 2, 3], 1));
}

#[test]
fn the_run_s_end_is_told_to_a_successor() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    rig.tell(Message::StopAt(key(7)));
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!(rig.others, [Message::StopAt(key(7))]);
}
