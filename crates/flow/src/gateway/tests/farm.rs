//! The farm: which node gets which event, the effects of nodes' messages, and a node that puts events together.

use super::*;
use Verdict::{Accept, NotReceived, Reject};
use ropewalk_terms::{Attempt, EventKey, Incarnation};
use ropewalk_wire::gateway::{
    Copying, Credit, Decision, Decisions, EventFlags, FRAME_BYTES, Frame, Kind, Message, PieceHead, Progress, PushHead,
    PushView, Verdict,
};

/// A gateway whose only source sends sets of 4 events of 40 bytes each.
struct Setup {
    bench: Bench,
    gateway: Gateway,
    sets: u64,
}

/// The contents of a push: its node, its floor, its pieces.
type Pushed = (u16, u64, Vec<(PieceHead, Vec<u8>)>);

impl Setup {
    fn new(change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let flow = FlowConfig {
            output: Output::Stream,
            decision_timeout: Duration::from_millis(500),
            default_decision: DefaultDecision { accept: true, word: 99 },
            budget: Duration::from_millis(20),
            ..flow(1, 4)
        };
        let mut config = GatewayConfig::new(5, vec![flow], FarmConfig::new(2));
        change(&mut config);
        Self { bench: Bench::new(), gateway: Gateway::new(&config).expect("it can be"), sets: 0 }
    }

    fn set(&mut self, now: u64) {
        let packet = self.bench.packet(4 * self.sets, 4, self.sets as u8, 40);
        self.sets += 1;
        assert_eq!(self.gateway.on_packet(0, address(0), packet, at(now)), None);
        self.gateway.turn(at(now), |_| {});
    }

    fn credit(&mut self, node: u16, window: u16, incarnation: u64, now: u64) {
        let credit = Credit { node, incarnation: Incarnation(incarnation), window };
        self.gateway.on_message(&Message::Credit(credit), at(now));
    }

    fn decisions(&mut self, node: u16, cumulative: u64, entries: &[(u64, Verdict)], now: u64) {
        let entry = |&(sequence, verdict)| Decision { sequence, verdict, word: 100 + sequence as u32 };
        let decisions = Decisions {
            node,
            gateway: 5,
            incarnation: Incarnation(1),
            gateway_incarnation: Incarnation(1),
            cumulative,
            entries: entries.iter().map(entry).collect(),
            ..Decisions::default()
        };
        self.gateway.on_message(&Message::Decisions(decisions), at(now));
    }

    /// The next push; its gathered bytes are checked against the copied ones.
    fn push(&mut self, now: u64) -> Option<Pushed> {
        let node = self.gateway.next_push()?;
        let view = self.gateway.push_view();
        let bytes: Vec<u8> = view.pieces().flatten().copied().collect();
        for copying in [Copying::Short, Copying::Library] {
            let mut copied = vec![0; view.length()];
            assert_eq!(view.copy_to(&mut copied, copying), Some(bytes.len()));
            assert_eq!(copied, bytes);
            assert_eq!(view.copy_to(&mut copied[1..], copying), None, "it does not fit");
        }
        self.gateway.sent(at(now));
        let (kind, body, _) = Frame::split(&bytes).expect("a message");
        assert_eq!(kind, Kind::Push);
        let view = PushView::parse(body).expect("a push");
        assert_eq!((view.head().gateway, view.head().incarnation), (5, Incarnation(1)));
        Some((node, view.head().floor, view.pieces().map(|(head, bytes)| (head, bytes.to_vec())).collect()))
    }

    /// All current pushes: node, sequence number, event, attempt.
    fn pushes(&mut self, now: u64) -> Vec<(u16, u64, u64, u16)> {
        let mut all = Vec::new();
        while let Some((node, _, pieces)) = self.push(now) {
            all.extend(pieces.iter().map(|(head, _)| (node, head.sequence, head.key.number(), head.attempt.0)));
        }
        all
    }

    /// Decisions sent now: event, accepted, word, by default.
    fn stream(&mut self, now: u64) -> Vec<(u64, bool, u32, bool)> {
        let mut all = Vec::new();
        while let Some(message) = self.gateway.next_message(at(now)) {
            if let Outgoing::Stream(stream) = message {
                all.extend(
                    stream.entries.iter().map(|entry| (entry.key.number(), entry.accept, entry.word, entry.by_default)),
                );
            }
        }
        all
    }

    fn farm(&self) -> FarmAccount {
        let account = self.gateway.account(0).1;
        assert!(account.is_balanced() && self.gateway.ledger().is_balanced(), "{account:?}");
        account
    }
}

#[test]
fn a_decision_is_credit_for_the_next_event() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    assert_eq!(setup.pushes(0), [], "no node has credit");
    setup.credit(0, 2, 1, 0);
    assert_eq!(setup.pushes(0), [(0, 0, 0, 1), (0, 1, 1, 1)]);
    setup.decisions(0, 0, &[(1, Accept)], 1);
    assert_eq!(setup.pushes(1), [(0, 2, 2, 1)]);
    assert_eq!(setup.stream(1), [], "the first event's turn is not over");
    setup.decisions(0, 1, &[(0, Reject)], 1);
    assert_eq!(setup.stream(1), [(0, false, 100, false), (1, true, 101, false)]);
    assert_eq!(setup.pushes(1), [(0, 3, 3, 1)]);
    setup.decisions(0, 4, &[(2, Reject), (3, Reject)], 2);
    assert_eq!(setup.stream(2).len(), 2);
    setup.gateway.turn(at(2), |_| {});
    assert_eq!((setup.farm().decided, setup.farm().in_budget, setup.bench.held()), (4, 4, 0));
}

#[test]
fn nodes_take_turns_and_several_events_share_a_push() {
    let mut setup = Setup::new(|config| config.farm.largest_push = 32 + 3 * (32 + 40));
    (0..3).for_each(|_| setup.set(0));
    setup.credit(1, 5, 1, 0);
    setup.credit(0, 9, 1, 0);
    let counts: Vec<_> = core::iter::from_fn(|| setup.push(0)).map(|(node, _, pieces)| (node, pieces.len())).collect();
    assert_eq!(counts, [(1, 3), (0, 3), (1, 2), (0, 3), (0, 1)]);
}

#[test]
fn an_event_that_does_not_fit_is_cut_and_its_last_part_shares_a_push() {
    let mut setup = Setup::new(|config| config.farm.largest_push = 32 + 32 + 30);
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    let parts = |push: Option<Pushed>| {
        let (_, _, pieces) = push.expect("a push");
        pieces.iter().map(|(head, bytes)| (head.sequence, head.offset, bytes.len(), head.total)).collect::<Vec<_>>()
    };
    assert_eq!(parts(setup.push(0)), [(0, 0, 30, 40)]);
    assert_eq!(parts(setup.push(0)), [(0, 30, 10, 40)], "the next event would not fit whole");
    assert_eq!(parts(setup.push(0)), [(1, 0, 30, 40)]);
    assert_eq!(parts(setup.push(0)), [(1, 30, 10, 40)]);
    assert_eq!(setup.push(0), None);
}

#[test]
fn the_rest_of_an_event_that_was_decided_meanwhile_is_not_sent() {
    let mut setup = Setup::new(|config| config.farm.largest_push = 32 + 32 + 30);
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    assert!(setup.push(0).is_some());
    setup.gateway.turn(at(500), |_| {});
    assert_eq!((setup.stream(500).len(), setup.push(500)), (4, None));
    setup.set(501);
    assert_eq!(setup.push(501).map(|(_, _, pieces)| pieces[0].0.key.number()), Some(4));
}

#[test]
fn a_lost_message_of_decisions_loses_no_credit_and_its_events_go_out_again() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 4, 1, 0);
    assert_eq!(setup.pushes(0).len(), 4);
    // The first two are only known to be decided.
    setup.decisions(0, 3, &[(2, Accept)], 1);
    assert_eq!(setup.farm().lost, 2);
    assert_eq!(setup.pushes(1), [(0, 4, 1, 2), (0, 5, 0, 2)]);
    // Reported once more, too late.
    setup.decisions(0, 3, &[(0, Accept), (1, Accept), (2, Accept)], 1);
    assert_eq!((setup.farm().ignored, setup.farm().decided), (3, 1));
}

#[test]
fn what_a_node_did_not_receive_is_sent_again() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 4, 1, 0);
    setup.pushes(0);
    setup.decisions(0, 1, &[(0, NotReceived)], 1);
    let (_, floor, pieces) = setup.push(1).expect("it goes out again");
    let head = pieces[0].0;
    assert_eq!((floor, head.sequence, head.key, head.attempt.0), (1, 4, EventKey::new(0, 0), 2));
    assert!(head.flags.has(EventFlags::SENT_AGAIN));
    assert_eq!(setup.farm().not_received, 1);
}

#[test]
fn a_silent_nodes_events_go_to_others_and_what_it_says_of_them_later_is_ignored() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    assert_eq!(setup.pushes(0).len(), 2);
    setup.credit(1, 8, 1, 500);
    setup.gateway.turn(at(499), |_| {});
    assert_eq!(setup.pushes(499), [(1, 0, 2, 1), (1, 1, 3, 1)]);
    let mut setup = Setup::new(|config| config.flows[0].decision_timeout = Duration::from_secs(9));
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    setup.pushes(0);
    setup.credit(1, 8, 1, 900);
    assert_eq!(setup.pushes(900), [(1, 0, 2, 1), (1, 1, 3, 1)]);
    setup.gateway.turn(at(999), |_| {});
    assert_eq!(setup.pushes(999), []);
    assert!(setup.gateway.next_deadline() <= at(1000));
    setup.gateway.turn(at(1000), |_| {});
    assert_eq!(setup.farm().taken_back, 2);
    assert_eq!(setup.pushes(1000), [(1, 2, 0, 2), (1, 3, 1, 2)]);
    setup.decisions(0, 2, &[(0, Accept), (1, Accept)], 1001);
    assert_eq!((setup.farm().decided, setup.farm().ignored), (0, 0), "it is not there");
    // In the same incarnation again: it has room, and its earlier events do not count.
    setup.credit(0, 2, 1, 1002);
    setup.decisions(0, 2, &[(0, Accept), (1, Accept)], 1003);
    assert_eq!((setup.farm().decided, setup.farm().ignored), (0, 2));
    (0..2).for_each(|_| setup.set(1003));
    assert_eq!(setup.pushes(1003).iter().filter(|(node, ..)| *node == 0).count(), 2);
}

#[test]
fn a_node_that_starts_again_has_nothing_of_before() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    setup.pushes(0);
    setup.credit(0, 2, 2, 1);
    assert_eq!(setup.pushes(1), [(0, 2, 0, 2), (0, 3, 1, 2)]);
    setup.decisions(0, 2, &[(2, Accept)], 1);
    assert_eq!(setup.farm().decided, 0, "the earlier life speaks");
    setup.credit(0, 99, 1, 1);
    assert_eq!(setup.pushes(1), [], "nor has its credit a meaning");
}

#[test]
fn an_event_without_a_decision_is_decided_by_default_in_time() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 2, 1, 0);
    setup.pushes(0);
    setup.decisions(0, 0, &[(1, Reject)], 1);
    setup.gateway.turn(at(499), |_| {});
    assert_eq!(setup.stream(499), []);
    setup.gateway.turn(at(500), |_| {});
    let by_default = |event| (event, true, 99, true);
    assert_eq!(setup.stream(500), [by_default(0), (1, false, 101, false), by_default(2), by_default(3)]);
    // Its remaining events count against its credit, until it sends a message.
    setup.set(500);
    setup.credit(0, 2, 1, 500);
    let (_, floor, pieces) = setup.push(500).expect("a push");
    assert_eq!(
        (floor, pieces.len(), setup.push(500)),
        (2, 1, None),
        "nothing is awaited of what was decided by default"
    );
    setup.decisions(0, 1, &[(0, Reject)], 501);
    assert_eq!((setup.farm().late, setup.farm().by_default, setup.farm().decided), (1, 3, 4));
    assert_eq!(setup.pushes(501).len(), 1);
}

#[test]
fn decisions_are_within_the_budget_up_to_its_end() {
    let mut setup = Setup::new(|_| {});
    setup.set(100);
    setup.credit(0, 4, 1, 100);
    setup.pushes(100);
    setup.decisions(0, 1, &[(0, Accept)], 120);
    setup.decisions(0, 4, &[(1, Reject), (2, Reject), (3, Accept)], 121);
    assert_eq!((setup.farm().in_budget, setup.farm().decided), (1, 4));
}

#[test]
fn a_push_keeps_its_bytes_until_it_was_sent() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 4, 1, 0);
    assert_eq!(setup.gateway.next_push(), Some(0));
    let before: Vec<u8> = setup.gateway.push_view().pieces().flatten().copied().collect();
    setup.gateway.turn(at(500), |_| {});
    assert_eq!(setup.stream(500).len(), 4);
    assert!(setup.gateway.push_view().pieces().flatten().eq(&before));
    assert_eq!(setup.bench.held(), 1);
    setup.gateway.sent(at(500));
    setup.gateway.turn(at(500), |_| {});
    assert_eq!(setup.bench.held(), 0);
}

#[test]
fn what_was_never_pushed_and_what_is_meant_for_others_counts_nothing() {
    let mut setup = Setup::new(|_| {});
    setup.set(0);
    setup.credit(0, 4, 1, 0);
    setup.credit(7, 4, 1, 0);
    setup.pushes(0);
    setup.decisions(0, 5, &[], 1);
    setup.decisions(7, 0, &[(0, Accept)], 1);
    let other = |change: fn(&mut Decisions)| {
        let mut decisions = Decisions {
            gateway: 5,
            incarnation: Incarnation(1),
            gateway_incarnation: Incarnation(1),
            cumulative: 4,
            ..Decisions::default()
        };
        change(&mut decisions);
        Message::Decisions(decisions)
    };
    for message in [
        other(|decisions| decisions.gateway = 4),
        other(|decisions| decisions.gateway_incarnation = Incarnation(0)),
        other(|decisions| decisions.incarnation = Incarnation(2)),
    ] {
        setup.gateway.on_message(&message, at(1));
    }
    assert_eq!((setup.farm().lost, setup.pushes(1).len()), (0, 0));
    setup.gateway.on_message(&other(|_| {}), at(1));
    assert_eq!(setup.farm().lost, 4);
}

#[test]
fn a_set_that_comes_when_its_turn_is_over_is_dropped() {
    let mut setup = Setup::new(|_| {});
    setup.sets = 1;
    setup.set(0);
    setup.credit(0, 8, 1, 0);
    setup.pushes(0);
    setup.decisions(0, 4, &[(0, Accept), (1, Accept), (2, Accept), (3, Accept)], 0);
    assert_eq!(setup.stream(0).len(), 4);
    setup.sets = 0;
    setup.set(1);
    assert_eq!(setup.pushes(1), []);
    assert_eq!(setup.farm().events.incomplete_dropped.get(ropewalk_terms::Cause::Late), 4);
}

#[test]
fn decisions_wait_for_earlier_sets_that_are_still_in_assembly() {
    let mut setup = Setup::new(|config| config.flows[0] = FlowConfig { output: Output::Stream, ..flow(2, 4) });
    let mut packet = |source: u16, first: u64, now: u64| {
        let packet = setup.bench.packet(first, 4, 1, 8);
        assert_eq!(setup.gateway.on_packet(0, address(source), packet, at(now)), None);
    };
    packet(0, 0, 0);
    packet(0, 4, 0);
    packet(1, 4, 0);
    setup.gateway.turn(at(0), |_| {});
    setup.credit(0, 8, 1, 0);
    assert_eq!(setup.pushes(0).len(), 4);
    setup.decisions(0, 4, &[(0, Accept), (1, Accept), (2, Accept), (3, Accept)], 0);
    assert_eq!(setup.stream(0), []);
    setup.gateway.receiver().on_drained(0, at(100));
    setup.gateway.turn(at(100), |set| assert_eq!(set.ending(), Ending::Incomplete));
    let pushed = setup.pushes(100);
    assert_eq!(pushed.len(), 4);
    setup.decisions(0, 8, &[(4, Reject), (5, Reject), (6, Reject), (7, Reject)], 100);
    let events: Vec<u64> = setup.stream(100).into_iter().map(|(event, ..)| event).collect();
    assert_eq!(events, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn accepted_events_go_to_storage_and_are_kept_until_it_has_them() {
    let mut setup = Setup::new(|config| config.flows[0].output = Output::Storage);
    setup.set(0);
    setup.credit(0, 8, 1, 0);
    setup.pushes(0);
    setup.decisions(0, 4, &[(0, Reject), (2, Accept), (1, Accept), (3, Reject)], 1);
    for event in [2, 1] {
        assert_eq!(setup.gateway.next_stored(), Some(EventKey::new(0, event)));
        let view = setup.gateway.stored_view().expect("it was just shown");
        assert_eq!((view.word(), view.head().length, view.pieces().flatten().count()), (100 + event as u32, 40, 40));
        setup.gateway.turn(at(2), |_| {});
        assert_eq!(setup.bench.held(), 1);
        setup.gateway.stored();
    }
    assert_eq!(setup.gateway.next_stored(), None);
    setup.gateway.turn(at(2), |_| {});
    assert_eq!((setup.bench.held(), setup.farm().stored, setup.farm().stored_bytes), (0, 2, 80));
}

#[test]
fn a_node_that_gets_nothing_hears_which_numbers_there_are() {
    let mut setup = Setup::new(|_| {});
    let progress = |setup: &mut Setup, now: u64| {
        core::iter::from_fn(|| setup.gateway.next_message(at(now))).find_map(|message| match message {
            Outgoing::Progress(node, progress) => Some((node, progress.next, progress.floor)),
            _ => None,
        })
    };
    assert_eq!(progress(&mut setup, 0), None);
    setup.credit(1, 8, 1, 0);
    assert_eq!(progress(&mut setup, 0), Some((1, 0, 0)), "a new node gets the numbers at once");
    setup.set(10);
    setup.pushes(10);
    assert_eq!(progress(&mut setup, 109), None);
    assert_eq!(progress(&mut setup, 110), Some((1, 4, 0)));
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let good = || GatewayConfig::new(0, vec![flow(2, 4)], FarmConfig::new(1));
    let wrong = |change: fn(&mut GatewayConfig)| {
        let mut config = good();
        change(&mut config);
        config.check().err()
    };
    assert_eq!(wrong(|_| {}), None);
    let address = address(0);
    let cases = [
        (wrong(|config| config.flows.clear()), GatewayConfigError::Flows(0)),
        (wrong(|config| config.flows[0].sources.clear()), GatewayConfigError::Sources { flow: 0, sources: 0 }),
        (
            wrong(|config| config.flows[0].sources[1].address = config.flows[0].sources[0].address),
            GatewayConfigError::Twice { flow: 0, address },
        ),
        (wrong(|config| config.flows[0].packing = 0), GatewayConfigError::Packing { flow: 0 }),
        (
            wrong(|config| config.flows[0].assembling = 300),
            GatewayConfigError::Sets { flow: 0, assembling: 300, sets: 256 },
        ),
        (wrong(|config| config.flows[0].window = 3), GatewayConfigError::Window { flow: 0, window: 3, assembling: 64 }),
        (
            wrong(|config| config.flows = vec![FlowConfig { sets: 40_000, ..config.flows[0].clone() }; 2]),
            GatewayConfigError::AllSets,
        ),
        (wrong(|config| config.farm.nodes = 0), GatewayConfigError::Nodes(0)),
        (wrong(|config| config.farm.largest_push = 64), GatewayConfigError::Push { bytes: 64, least: 65 }),
        (wrong(|config| config.farm.most_outstanding = 257), GatewayConfigError::Outstanding(257)),
        (wrong(|config| config.farm.silence = config.farm.heartbeat), GatewayConfigError::Silence),
        (wrong(|config| config.throttle.bytes_per_second = f64::NAN), GatewayConfigError::Throttle),
    ];
    for (found, expected) in cases {
        assert_eq!(found, Some(expected));
        assert!(!expected.to_string().is_empty());
    }
}

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

/// A part of an event of six bytes, whose values are their offsets.
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

/// Complete events, by their numbers.
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
fn a_decision_is_repeated_in_later_messages() {
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
    assert_eq!((answer, decisions(&mut node, 2)), (Some((0, 0)), None), "the node reports its progress, once");
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
fn what_is_forgotten_is_reported_as_often_as_the_gateway_reports_its_progress() {
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
