//! The fate of files while units come, work, fail and leave.

use super::*;
use core::time::Duration;
use ropewalk_terms::{Attempt, Instant};
use ropewalk_wire::run_file::StreamName;

const CONFIG: BrokerConfig =
    BrokerConfig { time_out: Duration::from_secs(10), tries: 2, retry: Duration::from_millis(100) };
const ONE: UnitId = UnitId(1);
const TWO: UnitId = UnitId(2);

const fn file(index: u32) -> FileId {
    FileId { lumisection: 1, index }
}

const fn work(index: u32, attempt: u16) -> Work {
    Work { file: file(index), attempt: Attempt(attempt) }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn broker(files: u32) -> Broker {
    let mut broker = Broker::new(CONFIG);
    (0..files).for_each(|index| broker.add(file(index), Attempt(0)));
    broker
}

fn actions(broker: &mut Broker, now: Instant) -> Vec<BrokerAction> {
    std::iter::from_fn(|| broker.poll(now)).collect()
}

fn given(broker: &mut Broker, unit: UnitId, now: Instant) -> Work {
    broker.request(unit);
    match actions(broker, now)[..] {
        [BrokerAction::Give { unit: to, work }] if to == unit => work,
        ref others => panic!("a file is given, and nothing else: {others:?}"),
    }
}

#[test]
fn each_unit_has_one_file_and_the_oldest_goes_first() {
    let mut broker = broker(2);
    assert_eq!(actions(&mut broker, at(0)), [], "no unit wants one");
    assert_eq!(given(&mut broker, ONE, at(0)), work(0, 1));
    assert_eq!(given(&mut broker, TWO, at(0)), work(1, 1));
    broker.request(ONE);
    assert_eq!(actions(&mut broker, at(1)), [], "it has one");
    broker.add(file(0), Attempt(0));
    assert_eq!(broker.counts().files, 2, "it is known");
}

#[test]
fn a_file_is_deleted_when_its_document_has_its_name_and_not_before() {
    let mut broker = broker(1);
    let first = given(&mut broker, ONE, at(0));
    broker.done(at(0), ONE, first);
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Commit { work: first }]);
    assert_eq!((broker.undecided(), broker.counts().decided), (1, 0));
    broker.lost(ONE);
    assert_eq!(actions(&mut broker, at(0)), [], "what it did is done");
    broker.not_committed(at(0), file(0));
    assert_eq!(
        (actions(&mut broker, at(0)), broker.next_deadline()),
        (vec![], Some(Instant::ZERO.after(CONFIG.retry)))
    );
    assert_eq!(actions(&mut broker, at(1)), [BrokerAction::Commit { work: first }]);
    broker.committed(file(0));
    broker.committed(file(0));
    assert_eq!(actions(&mut broker, at(1)), [BrokerAction::Delete { file: file(0) }]);
    assert_eq!((broker.undecided(), broker.counts().decided, broker.is_done()), (0, 1, false));
    broker.gone(file(0));
    broker.no_more_files();
    assert!(broker.is_done());
}

#[test]
fn the_file_of_a_lost_unit_goes_to_another_one_with_the_next_attempt() {
    let mut broker = broker(1);
    let first = given(&mut broker, ONE, at(0));
    broker.lost(ONE);
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Discard { work: first }]);
    assert_eq!(given(&mut broker, TWO, at(0)), work(0, 2));
    // Later messages of the first one are ignored.
    broker.done(at(0), ONE, first);
    broker.done(at(0), TWO, first);
    broker.failed(at(0), ONE, first);
    assert_eq!((actions(&mut broker, at(0)), broker.counts().stale), (vec![], 3));
    broker.done(at(0), TWO, work(0, 2));
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Commit { work: work(0, 2) }]);
    broker.done(at(0), TWO, work(0, 2));
    assert_eq!((actions(&mut broker, at(0)), broker.counts().stale), (vec![], 4));
}

#[test]
fn a_file_that_units_die_over_is_set_aside() {
    let mut broker = broker(2);
    let first = given(&mut broker, ONE, at(0));
    broker.failed(at(0), ONE, first);
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Discard { work: first }]);
    let second = given(&mut broker, ONE, at(0));
    assert_eq!(second, work(0, 2));
    broker.lost(ONE);
    let expected = [BrokerAction::Discard { work: second }, BrokerAction::SetAside { file: file(0) }];
    assert_eq!(actions(&mut broker, at(0)), expected);
    assert_eq!((broker.counts().set_aside, broker.counts().given_back, broker.undecided()), (1, 2, 1));
    broker.gone(file(0));
    assert_eq!(given(&mut broker, TWO, at(0)), work(1, 1), "the others are not harmed");
}

#[test]
fn a_unit_that_takes_too_long_is_dismissed() {
    let mut broker = broker(1);
    let first = given(&mut broker, ONE, at(0));
    assert_eq!((broker.poll(at(9)), broker.next_deadline()), (None, Some(at(10))));
    let expected = [BrokerAction::Dismiss { unit: ONE }, BrokerAction::Discard { work: first }];
    assert_eq!(actions(&mut broker, at(10)), expected);
    broker.lost(ONE);
    assert_eq!(actions(&mut broker, at(10)), [], "it had been counted as lost");
    assert_eq!(given(&mut broker, TWO, at(11)), work(0, 2));
}

#[test]
fn a_unit_that_does_not_ask_for_a_file_that_is_ready_is_dismissed() {
    let mut broker = Broker::new(CONFIG);
    broker.joined(at(0), ONE);
    assert_eq!((actions(&mut broker, at(20)), broker.next_deadline()), (vec![], None), "no file is ready");
    broker.add(file(0), Attempt(0));
    assert_eq!(actions(&mut broker, at(20)), [BrokerAction::Dismiss { unit: ONE }]);
    // The same holds for units that do not ask again after a file.
    broker.add(file(1), Attempt(0));
    broker.add(file(2), Attempt(0));
    broker.joined(at(20), ONE);
    let first = given(&mut broker, ONE, at(20));
    broker.joined(at(20), TWO);
    let second = given(&mut broker, TWO, at(20));
    broker.done(at(21), ONE, first);
    broker.failed(at(22), TWO, second);
    let expected = [BrokerAction::Commit { work: first }, BrokerAction::Discard { work: second }];
    assert_eq!(actions(&mut broker, at(22)), expected);
    assert_eq!((actions(&mut broker, at(30)), broker.next_deadline()), (vec![], Some(at(31))));
    assert_eq!(actions(&mut broker, at(31)), [BrokerAction::Dismiss { unit: ONE }]);
    assert_eq!(broker.next_deadline(), Some(at(32)));
    assert_eq!(actions(&mut broker, at(32)), [BrokerAction::Dismiss { unit: TWO }]);
    assert_eq!((actions(&mut broker, at(60)), broker.next_deadline()), (vec![], None), "no unit is connected");
}

#[test]
fn a_unit_that_does_not_ask_stays_while_another_one_waits_for_files() {
    let mut broker = broker(1);
    broker.joined(at(0), ONE);
    broker.joined(at(0), TWO);
    broker.request(TWO);
    assert_eq!(actions(&mut broker, at(20)), [BrokerAction::Give { unit: TWO, work: work(0, 1) }]);
    broker.lost(ONE);
    broker.lost(TWO);
    assert_eq!(broker.next_deadline(), None);
}

#[test]
fn units_may_go_when_everything_is_decided() {
    let mut broker = broker(1);
    let first = given(&mut broker, ONE, at(0));
    broker.no_more_files();
    broker.request(TWO);
    assert_eq!(actions(&mut broker, at(0)), [], "the file may come back");
    broker.done(at(0), ONE, first);
    broker.request(ONE);
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Commit { work: first }]);
    broker.committed(file(0));
    let finish = |unit| BrokerAction::Finish { unit };
    assert_eq!(actions(&mut broker, at(0)), [BrokerAction::Delete { file: file(0) }, finish(TWO), finish(ONE)]);
}

#[test]
fn a_broker_that_comes_after_another_one_goes_on_where_that_was() {
    let mut broker = Broker::new(CONFIG);
    broker.add_decided(file(0));
    broker.add(file(1), Attempt(1));
    broker.add(file(2), Attempt(2));
    let discard = |index, attempt| BrokerAction::Discard { work: work(index, attempt) };
    let expected = [BrokerAction::Delete { file: file(0) }, discard(1, 1), discard(2, 1), discard(2, 2)];
    assert_eq!(actions(&mut broker, at(0)), expected);
    assert_eq!(given(&mut broker, ONE, at(0)), work(1, 2));
    // Attempts under the previous broker are not held against the file.
    assert_eq!(given(&mut broker, TWO, at(0)), work(2, 3));
    broker.lost(TWO);
    assert_eq!(actions(&mut broker, at(0)), [discard(2, 3)]);
    assert_eq!((broker.counts().files, broker.counts().decided), (3, 1));
}

/// The outcome of a file: the first stream has all accepted events, the second one some of them.
fn decided(processed: u64, accepted: u64, written: u64) -> Decided {
    let whole = StreamCounts { selected: accepted, prescaled_away: 0, written: accepted, bytes: 100 * accepted };
    let part = StreamCounts { written, prescaled_away: accepted - written, bytes: 100 * written, ..whole };
    Decided { processed, accepted, streams: [(name("physics"), whole), (name("monitoring"), part)].into() }
}

fn name(name: &str) -> StreamName {
    name.parse().expect("a name")
}

#[test]
fn a_lumisection_is_closed_once_when_all_its_files_are_in() {
    let mut merger = Merger::default();
    merger.decided(file(0), &decided(10, 3, 1));
    merger.decided(file(0), &decided(10, 3, 1));
    merger.decided(file(3), &decided(10, 2, 0));
    let written = Written { files: 3, events: 27 };
    merger.written(1, written);
    assert_eq!(merger.poll(), None);
    merger.set_aside(file(7), 7);
    let closed = merger.poll().expect("all is in");
    let account = LumisectionAccount { files: 3, set_aside: 7, decided: decided(20, 5, 1) };
    assert_eq!(closed, Closed { lumisection: 1, account: account.clone(), written });
    assert_eq!(closed.imbalances().count(), 0);
    merger.written(1, written);
    merger.decided(file(9), &decided(1, 1, 1));
    assert_eq!((merger.poll(), merger.total(), merger.open_lumisections().count()), (None, &account, 0));
}

#[test]
fn a_lumisection_that_does_not_add_up_says_so() {
    for (files, events) in [(1, 11), (2, 10), (0, 10)] {
        let mut merger = Merger::default();
        merger.written(1, Written { files, events });
        merger.decided(file(0), &decided(10, 2, 2));
        if files == 2 {
            let open = (1, 1, Some(Written { files, events }));
            assert_eq!((merger.poll(), merger.open_lumisections().collect::<Vec<_>>()), (None, vec![open]));
            continue;
        }
        assert!(merger.poll().expect("all is in").imbalances().count() > 0, "{files} files with {events} events");
    }
    let mut empty = Merger::default();
    empty.written(3, Written::default());
    assert_eq!(empty.poll().expect("nothing is missing").imbalances().count(), 0);
}

#[test]
fn a_stream_that_does_not_add_up_is_named() {
    let mut wrong = decided(10, 4, 2);
    wrong.streams.entry(name("monitoring")).or_default().prescaled_away = 1;
    let [(stream, imbalance)] = wrong.imbalances().collect::<Vec<_>>()[..] else { panic!("one thing is wrong") };
    assert_eq!((stream, imbalance.left, imbalance.right), (Some(name("monitoring")), 4, 3));
    let more = Decided { processed: 3, ..decided(10, 4, 2) };
    assert_eq!(more.imbalances().map(|(stream, _)| stream).collect::<Vec<_>>(), [None]);
    let unaccepted = Decided { accepted: 3, ..decided(10, 4, 2) };
    assert_eq!(unaccepted.imbalances().count(), 2, "both streams have more than was accepted");
}
