//! Single events of a set for those who only look: what they see, and that nobody else notices.

use super::*;
use ropewalk_terms::{Cause, EventKey, Incarnation};
use ropewalk_wire::gateway::{Credit, EventFlags, Frame, Message, PushView};

/// A packet of four events: of each so many bytes of `fill`.
fn packet(bench: &mut Bench, fill: u8, lengths: [usize; 4]) -> Payload {
    let fragments = lengths.map(|length| vec![fill; length]);
    let mut bytes = Vec::new();
    encode_mep(8, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
    bench.payload(&bytes)
}

/// A gateway's halves, and a finished set of sources 0 and 2 with the fragments that the tests look for; source 1 has sent nothing.
fn halves(bench: &mut Bench, change: impl FnOnce(&mut FlowConfig)) -> (Receiver, Sender, EventSet) {
    let mut flow = flow(3, 4);
    change(&mut flow);
    let config = GatewayConfig::new(5, vec![flow], FarmConfig::new(1));
    let (mut receiver, sender) = Gateway::new(&config).expect("it can be").split();
    for (source, lengths) in [(0, [3, 5, 0, 7]), (2, [2, 0, 0, 4])] {
        let packet = packet(bench, source as u8, lengths);
        assert_eq!(receiver.on_packet(0, address(source), packet, at(0)), None);
    }
    receiver.on_drained(0, at(100));
    receiver.on_time(at(100));
    let set = receiver.take_set().expect("it waited long enough");
    (receiver, sender, set)
}

/// Everything that is pushed to the only node: events and their bytes.
fn pushed(sender: &mut Sender) -> Vec<(EventKey, Vec<u8>)> {
    let credit = Credit { node: 0, incarnation: Incarnation(1), window: 8 };
    sender.on_message(&Message::Credit(credit), at(100));
    let mut all = Vec::new();
    while sender.farm().next_push().is_some() {
        let bytes: Vec<u8> = sender.farm().push_view().pieces().flatten().copied().collect();
        sender.farm().sent(at(100));
        let (_, body, _) = Frame::split(&bytes).expect("a message");
        let view = PushView::parse(body).expect("a push");
        all.extend(view.pieces().map(|(head, bytes)| (head.key, bytes.to_vec())));
    }
    all
}

#[test]
fn an_event_is_shown_with_its_fragments_apart_and_with_what_is_missing() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |_| {});
    let set = sender.on_set(set, at(100)).expect("its events wait for nodes");
    let mut places = FragmentPlaces::new(3);
    // In any order: the set finds its way back.
    for (event, fragments) in [(3, vec![(0, 7), (2, 4)]), (0, vec![(0, 3), (2, 2)]), (1, vec![(0, 5)]), (2, vec![])] {
        let view = set.show(event, &mut places);
        assert_eq!(view.fragments().collect::<Vec<_>>(), fragments);
        let each: Vec<Vec<u8>> = view.pieces_of_each().map(|pieces| pieces.flatten().copied().collect()).collect();
        let sent: Vec<Vec<u8>> =
            fragments.iter().map(|&(source, length)| vec![source as u8; usize::from(length)]).collect();
        assert_eq!(each, sent);
        assert_eq!(view.missing().collect::<Vec<_>>(), [(1, Cause::TimedOut)]);
        let head = view.head();
        assert_eq!((head.key, head.attempt.0, view.word()), (EventKey::new(0, 8 + u64::from(event)), 0, 0));
        assert!(head.flags.has(EventFlags::INCOMPLETE));
        assert_eq!(head.total as usize, sent.concat().len());
    }
}

#[test]
fn nodes_get_the_same_events_whoever_has_looked_at_them() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |_| {});
    sender.on_set(set, at(100));
    let as_ever = pushed(&mut sender);
    assert_eq!(as_ever.len(), 4);
    for looked_at in [vec![0], vec![3], vec![0, 1, 2, 3], vec![2, 1]] {
        let (_, mut sender, set) = halves(&mut bench, |_| {});
        let set = sender.on_set(set, at(100)).expect("its events wait for nodes");
        let mut places = FragmentPlaces::new(3);
        for event in &looked_at {
            set.show(*event, &mut places);
        }
        assert_eq!(pushed(&mut sender), as_ever, "somebody looked at {looked_at:?}");
    }
}

#[test]
fn a_set_that_is_dropped_is_shown_to_nobody() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |flow| flow.incomplete = Incomplete::Drop);
    assert!(sender.on_set(set, at(100)).is_none());
    assert!(sender.take_empty().is_some());
}
