//! Sources that are masked: who is told, and when again.

use super::hand::{Hand, config, key};
use crate::messages::{Mask, Message, Setting};
use ropewalk_terms::{NodeId, Parameter, SourceId};

/// What is said of masks, and where between them the run starts.
fn told(sent: &[(NodeId, Message)]) -> Vec<(u16, String)> {
    let word = |(to, message): &(NodeId, Message)| match message {
        Message::Mask(Mask { source, is_masked: true }) => Some((to.index, format!("mask {}", source.0))),
        Message::Mask(Mask { source, is_masked: false }) => Some((to.index, format!("unmask {}", source.0))),
        Message::Start(_) if to.role == ropewalk_terms::Role::Readout => Some((to.index, "start".to_owned())),
        _ => None,
    };
    sent.iter().filter_map(word).collect()
}

fn words(words: &[(u16, &str)]) -> Vec<(u16, String)> {
    words.iter().map(|&(node, word)| (node, word.to_owned())).collect()
}

#[test]
fn a_source_masked_before_the_run_is_told_before_its_start() {
    let mut hand = Hand::new(config(2, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.manager.mask(SourceId(5), true);
    hand.manager.mask(SourceId(6), true);
    hand.manager.mask(SourceId(6), false);
    assert_eq!(told(&hand.sent()), []);
    hand.manager.start(hand.now, key(1), None);
    let expected = words(&[(0, "mask 5"), (0, "unmask 6"), (0, "start")]);
    assert_eq!(told(&hand.sent()), expected);
    assert_eq!(hand.manager.masked().collect::<Vec<_>>(), [SourceId(5)]);
}

#[test]
fn every_readout_unit_hears_of_it_in_mid_run() {
    let mut hand = Hand::running(config(2, 1));
    hand.manager.mask(SourceId(5), true);
    assert_eq!(told(&hand.sent()), words(&[(0, "mask 5"), (1, "mask 5")]));
    hand.manager.mask(SourceId(5), false);
    assert_eq!(told(&hand.sent()), words(&[(0, "unmask 5"), (1, "unmask 5")]));
}

#[test]
fn a_readout_unit_that_was_away_hears_what_was_said_meanwhile() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 2, 1..=2);
    hand.manager.mask(SourceId(5), true);
    hand.lose(NodeId::readout(0));
    hand.sent();
    hand.manager.mask(SourceId(5), false);
    hand.manager.mask(SourceId(6), true);
    hand.sent();
    hand.connect(NodeId::readout(0), 1);
    assert_eq!(told(&hand.sent()), words(&[(0, "unmask 5"), (0, "mask 6")]), "in the same life");
    hand.lose(NodeId::readout(0));
    hand.connect(NodeId::readout(0), 2);
    assert_eq!(told(&hand.sent()), words(&[(0, "unmask 5"), (0, "mask 6"), (0, "start")]), "begun anew");
}

#[test]
fn a_successor_learns_of_masks_from_readout_units_and_believes_its_operator_first() {
    let mut hand = Hand::new(config(2, 1));
    for index in 0..2 {
        hand.connect(NodeId::readout(index), 1);
    }
    hand.manager.recover(hand.now, key(1), None);
    hand.manager.mask(SourceId(7), false);
    for source in [5, 7] {
        hand.say(NodeId::readout(0), &Message::Mask(Mask { source: SourceId(source), is_masked: true }));
    }
    hand.sent();
    assert_eq!(hand.manager.masked().collect::<Vec<_>>(), [SourceId(5)]);
}

#[test]
fn who_waits_for_none_of_its_sources_is_told_of_events_at_once() {
    let mut hand = Hand::running(config(2, 1));
    let told = |hand: &mut Hand| {
        let sent = hand.sent();
        let told = sent.iter().filter(|(_, message)| matches!(message, Message::Highest(_)));
        told.map(|(to, message)| (*to, message.clone())).collect::<Vec<_>>()
    };
    hand.announce(0, 2, 1..=2);
    assert_eq!(told(&mut hand), [], "who waits for sources of its own has its own patience");
    hand.say(NodeId::readout(1), &Message::Follows(true));
    assert_eq!(told(&mut hand), [(NodeId::readout(1), Message::Highest(key(2)))]);
    hand.announce(1, 2, []);
    hand.announce(0, 3, [3]);
    assert_eq!(told(&mut hand), [], "not for each event");
    let due = hand.manager.next_deadline().expect("it is told soon");
    assert!(due.since(hand.now) <= core::time::Duration::from_millis(1));
    hand.now = due;
    assert_eq!(told(&mut hand), [(NodeId::readout(1), Message::Highest(key(3)))]);
}

#[test]
fn parameters_are_told_to_every_node_and_to_those_that_come_later() {
    let mut hand = Hand::new(config(1, 1));
    let setting = |parameter, value| Setting { parameter, of: 0, value };
    let told = |hand: &mut Hand| {
        let sent = hand.sent();
        let set = |(to, message): &(NodeId, Message)| match message {
            Message::Set(setting) => Some((*to, setting.parameter, setting.value)),
            _ => None,
        };
        sent.iter().filter_map(set).collect::<Vec<_>>()
    };
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.manager.set(setting(Parameter::SourceTimeout, 5));
    assert_eq!(told(&mut hand), [], "there is no run");
    hand.manager.start(hand.now, key(1), None);
    let both = [NodeId::readout(0), NodeId::builder(0)];
    assert_eq!(told(&mut hand), both.map(|node| (node, Parameter::SourceTimeout, 5)));
    hand.manager.set(setting(Parameter::SourceTimeout, 7));
    assert_eq!(told(&mut hand), both.map(|node| (node, Parameter::SourceTimeout, 7)));
    for node in both {
        hand.lose(node);
        hand.connect(node, 2);
        assert_eq!(told(&mut hand), [(node, Parameter::SourceTimeout, 7)], "the last value alone");
    }
    // What a predecessor said is told by readout units, and does not go before what this one said.
    for value in [9, 11] {
        hand.say(NodeId::readout(0), &Message::Set(setting(Parameter::SourceTimeout, value)));
        hand.say(NodeId::readout(0), &Message::Set(setting(Parameter::Prescale, value)));
    }
    hand.lose(NodeId::builder(0));
    hand.connect(NodeId::builder(0), 3);
    let all = [(Parameter::SourceTimeout, 7), (Parameter::Prescale, 9)];
    assert_eq!(told(&mut hand), all.map(|(parameter, value)| (NodeId::builder(0), parameter, value)));
}
