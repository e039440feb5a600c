use super::*;
use ropewalk_flow::messages::Batch;
use ropewalk_terms::Place;

const SOURCE: SourceId = SourceId(7);

fn report(numbers: &[(Option<SourceId>, Counter, u64)]) -> Report {
    let entry = |&(source, counter, value): &(_, Counter, _)| ReportEntry { source, what: counter as u16, value };
    Report { entries: numbers.iter().map(entry).collect::<Batch<_>>(), last: true }
}

#[test]
fn what_a_dead_readout_unit_held_is_named_as_lost() {
    let (node, life) = (NodeId::readout(0), Incarnation(1));
    let mut standing = Standing::default();
    standing.node_connected(node, life);
    let numbers = [(Some(SOURCE), Counter::FragmentsReceived, 10), (Some(SOURCE), Counter::FragmentsInFlight, 10)];
    standing.reported(node, life, &report(&numbers));
    assert_eq!(RunSnapshot::of(&standing).ledger.fragments.in_flight, 10);
    standing.node_lost(node, life);
    let snapshot = RunSnapshot::of(&standing);
    assert_eq!(snapshot.sources[&SOURCE].dropped.get(Cause::ReadoutLost), 10);
    assert!(snapshot.ledger.is_balanced());
}

/// The numbers of a report are of one moment: every received fragment is accounted for.
#[test]
fn a_report_counts_when_it_is_whole() {
    let (node, life) = (NodeId::readout(0), Incarnation(1));
    let mut standing = Standing::default();
    let received = |count| [(Some(SOURCE), Counter::FragmentsReceived, count)];
    let part = |count| Report { last: false, ..report(&received(count)) };
    let told = |standing: &Standing| {
        let ledger = RunSnapshot::of(standing).ledger;
        assert!(ledger.is_balanced());
        ledger.fragments.received
    };
    let rest = |count| report(&[(Some(SOURCE), Counter::FragmentsInFlight, count)]);
    standing.node_connected(node, life);
    standing.reported(node, life, &part(10));
    assert_eq!(told(&standing), 0);
    standing.reported(node, life, &rest(10));
    assert_eq!(told(&standing), 10);
    standing.reported(node, life, &part(20));
    standing.node_lost(node, life);
    assert_eq!(told(&standing), 10, "it died in the middle");
    standing.node_connected(node, life);
    standing.reported(node, life, &part(30));
    standing.reported(node, life, &rest(30));
    assert_eq!(told(&standing), 30);
}

#[test]
fn a_mask_of_a_life_before_ends_where_the_next_life_begins() {
    let node = NodeId::readout(0);
    let key = |number| EventKey::new(0, number);
    let told = |begun: EventKey| {
        let mut standing = Standing::default();
        let turn = |turn, number| ReportEntry::turn(SOURCE, turn, key(number));
        let lives = [vec![turn(0, 1), turn(1, 3), turn(2, 5)], vec![ReportEntry::begun(SOURCE, begun), turn(0, 40)]];
        for (life, entries) in (1..).map(Incarnation).zip(lives) {
            standing.node_connected(node, life);
            standing.reported(node, life, &Report { entries: entries.into_iter().collect::<Batch<_>>(), last: true });
            standing.node_lost(node, life);
        }
        let intervals = RunSnapshot::of(&standing).masks[&SOURCE].intervals.clone();
        let numbers = |one: MaskedInterval| (one.from.number(), one.to.map(|to| to.number()));
        intervals.into_iter().map(numbers).collect::<Vec<_>>()
    };
    assert_eq!(told(key(9)), [(1, Some(3)), (5, Some(9)), (40, None)]);
    assert_eq!(told(EventKey::MIN), [(40, None)], "it began with the run: the events of the life before are its own");
}

#[test]
fn the_earliest_event_counts_that_a_builder_unit_names_and_a_slip_that_ended_is_kept() {
    let mut standing = Standing::default();
    let mut judged = |builder, verdict, offset, since| {
        let since = EventKey::new(0, since);
        standing.judged(NodeId::builder(builder), SynchronyState { source: SOURCE, verdict, offset, since });
        (standing.synchrony[0].verdict, standing.synchrony[0].since.number(), standing.healed.len())
    };
    assert_eq!(judged(0, 1, 0, 1), (1, 1, 0));
    assert_eq!(judged(1, 2, 1, 4778), (2, 4778, 0));
    assert_eq!(judged(0, 2, 1, 4766), (2, 4766, 0), "it builds the events before");
    assert_eq!(judged(0, 1, 0, 5635), (1, 5635, 1));
    assert_eq!(judged(1, 2, 1, 4790), (1, 5635, 1), "old news of the same slip");
    assert_eq!(judged(1, 1, 0, 5640), (1, 5635, 1));
    assert_eq!(judged(1, 0, 0, 6000), (0, 6000, 1), "triggers are too regular");
    assert_eq!(judged(1, 2, 1, 5990), (2, 5990, 1));
    let (slip, until) = RunSnapshot::of(&standing).healed[0];
    assert_eq!((slip.since.number(), slip.offset, until.number()), (4766, 1, 5635));
}

#[test]
fn connections_end_with_the_readout_unit_that_had_them() {
    let node = NodeId::readout(0);
    let mut standing = Standing::default();
    let numbers = |opened, closed| {
        let source = Some(SOURCE);
        report(&[(source, Counter::SourceConnections, opened), (source, Counter::SourceDisconnections, closed)])
    };
    let told = |standing: &Standing| {
        let snapshot = RunSnapshot::of(standing);
        let count = |counter| snapshot.counter(counter);
        let orphans = snapshot.orphans.get(&SOURCE).copied();
        (count(Counter::SourceConnections), count(Counter::SourceDisconnections), orphans)
    };
    standing.node_connected(node, Incarnation(1));
    standing.reported(node, Incarnation(1), &numbers(2, 1));
    assert_eq!(told(&standing), (2, 1, None));
    standing.node_lost(node, Incarnation(1));
    assert_eq!(told(&standing), (2, 1, Some(1)), "it could not report the rest");
    standing.node_connected(node, Incarnation(2));
    standing.reported(node, Incarnation(2), &numbers(0, 0));
    assert_eq!(told(&standing), (2, 1, Some(1)), "its source has not come again");
    standing.reported(node, Incarnation(2), &numbers(1, 0));
    assert_eq!(told(&standing), (3, 2, None));
    standing.reported(node, Incarnation(2), &numbers(1, 1));
    assert_eq!(told(&standing), (3, 3, None));
}

#[test]
fn what_is_unknown_of_a_dead_readout_unit_is_reported() {
    let node = NodeId::readout(0);
    let mut standing = Standing { run: RunNumber(1), phase: RunPhase::Running, ..Standing::default() };
    standing.nodes = vec![(node, false), (NodeId::builder(0), true)];
    let unknown = |standing: &Standing| {
        let mut copy = Standing::default();
        copy.copy_from(standing);
        RunSnapshot::of(&copy).unknown
    };
    assert_eq!(unknown(&standing), [(node, Unknown::Everything)]);
    let key = EventKey::new(0, 400);
    standing.node_connected(node, Incarnation(2));
    assert_eq!(unknown(&standing), []);
    let entries = [ReportEntry::begun(SOURCE, key)].into_iter().collect::<Batch<_>>();
    standing.reported(node, Incarnation(2), &Report { entries, last: true });
    assert_eq!(unknown(&standing), [(node, Unknown::Before(key))], "an earlier life told another event manager");
    standing.node_connected(node, Incarnation(1));
    assert_eq!(unknown(&standing), [], "an earlier life told this one");
    standing.untold.push((node, key));
    assert_eq!(unknown(&standing), [(node, Unknown::Before(key))]);
    standing.untold.clear();
    standing.node_lost(node, Incarnation(1));
    assert_eq!(unknown(&standing), [(node, Unknown::SinceLastReport)]);
    standing.node_finished(node, Incarnation(1));
    assert_eq!(unknown(&standing), []);
}

#[test]
fn a_readout_unit_that_died_before_the_run_began_leaves_nothing_unknown() {
    let node = NodeId::readout(0);
    let mut standing = Standing { run: RunNumber(3), phase: RunPhase::Configured, ..Standing::default() };
    standing.nodes = vec![(node, true)];
    standing.node_connected(node, Incarnation(1));
    standing.node_lost(node, Incarnation(1));
    standing.node_connected(node, Incarnation(2));
    standing.phase = RunPhase::Running;
    assert_eq!(RunSnapshot::of(&standing).unknown, []);
    standing.node_lost(node, Incarnation(2));
    assert_eq!(RunSnapshot::of(&standing).unknown, [(node, Unknown::SinceLastReport)]);
}

#[test]
fn gaps_of_every_life_of_a_readout_unit_are_reported_in_order() {
    let node = NodeId::readout(0);
    let mut standing = Standing::default();
    let gap = |first, last, missing| Gap { first: EventKey::new(0, first), last: EventKey::new(0, last), missing };
    let told = [[gap(3, 5, 3), gap(9, 20, 2)], [gap(40, 40, 1), gap(50, 51, 2)]];
    for (life, gaps) in (1..).zip(told) {
        let life = Incarnation(life);
        standing.node_connected(node, life);
        let entries = (0..).zip(gaps).flat_map(|(index, gap)| ReportEntry::gap(SOURCE, index, gap));
        standing.reported(node, life, &Report { entries: entries.collect::<Batch<_>>(), last: true });
    }
    assert_eq!(RunSnapshot::of(&standing).gaps, [(SOURCE, told.concat())].into());
}

#[test]
fn further_counts_are_kept_by_source_and_in_sum() {
    let (node, life) = (NodeId::readout(0), Incarnation(1));
    let mut standing = Standing::default();
    standing.node_connected(node, life);
    let other = SourceId(8);
    let of_source = COUNTERS.iter().filter(|counter| counter.places().contains(&Place::Account));
    let numbers = of_source.map(|&counter| (Some(SOURCE), counter, 10 + counter as u64));
    let numbers: Vec<_> = numbers.chain([(Some(other), Counter::FramesMissing, 7)]).collect();
    standing.reported(node, life, &report(&numbers));
    let snapshot = RunSnapshot::of(&standing);
    assert_eq!(snapshot.counts[&SOURCE], SourceCounts::of(|counter| 10 + counter as u64));
    assert_eq!(snapshot.counts[&other].get(Counter::FramesMissing), 7);
    assert_eq!(snapshot.counter(Counter::FramesMissing), 10 + Counter::FramesMissing as u64 + 7);
}

#[test]
fn lives_of_a_node_add_up() {
    let node = NodeId::builder(0);
    let mut standing = Standing::default();
    for life in [Incarnation(1), Incarnation(2)] {
        standing.node_connected(node, life);
        standing.reported(node, life, &report(&[(None, Counter::EventsWritten, 5)]));
    }
    assert_eq!((standing.youngest(node), standing.youngest(NodeId::builder(1))), (Some(Incarnation(2)), None));
    let mut copy = Standing::default();
    copy.copy_from(&standing);
    assert_eq!(RunSnapshot::of(&copy).ledger.events.written, 10);
}

/// The dead unit had written more than it could still report, and less than both together if some events were built
/// again.
#[test]
fn what_is_acknowledged_as_written_is_written_whatever_a_dead_builder_unit_reported() {
    let (node, life) = (NodeId::builder(0), Incarnation(1));
    let mut standing = Standing { is_written_when_acknowledged: true, ..Standing::default() };
    standing.events = EventAccount { built: 8, incomplete_emitted: 1, accepted: 9, ..EventAccount::default() };
    standing.node_connected(node, life);
    standing.reported(node, life, &report(&[(None, Counter::EventsWritten, 5)]));
    standing.node_lost(node, life);
    let mut copy = Standing::default();
    copy.copy_from(&standing);
    assert_eq!(RunSnapshot::of(&copy).ledger.events.written, 9);
    standing.is_written_when_acknowledged = false;
    assert_eq!(RunSnapshot::of(&standing).ledger.events.written, 5);
}
