//! Requests and answers: who is asked when, and what is done with answers that nobody waits for.

use super::hand::{Hand, TIMEOUT, config, fragment, key};
use crate::builder::BuilderConfig;
use crate::messages::{FragmentMeta, RequestEntry};
use core::time::Duration;
use ropewalk_terms::{Attempt, Cause, Requirement, SourceId};

#[test]
fn each_builder_begins_at_another_readout_unit() {
    for index in 0..5 {
        let mut hand = Hand::new(BuilderConfig { index, ..config(3) });
        hand.assign(1..=2, 1);
        let asked: Vec<_> = hand.done().requests.iter().map(|(readout, _)| *readout).collect();
        let expected: Vec<_> = (0..3).map(|turn| (index + turn) % 3).collect();
        assert_eq!(asked, expected);
    }
}

#[test]
fn requests_are_batched_and_none_is_longer_than_a_message() {
    let mut hand = Hand::new(BuilderConfig { slots: 100, ..config(1) });
    hand.assign(1..=64, 1);
    hand.assign(65..=100, 1);
    let lengths: Vec<_> = hand.done().requests.iter().map(|(_, entries)| entries.len()).collect();
    assert_eq!(lengths, [64, 36]);
}

#[test]
fn fragments_lie_in_the_configured_order_however_they_come() {
    let mut hand = Hand::new(config(2));
    hand.assign([1], 1);
    let done = hand.done();
    hand.answer(1, done.requests[1].1[0], &[11, 10]);
    assert!(hand.done().emitted.is_empty());
    hand.answer(0, done.requests[0].1[0], &[1, 0]);
    let emitted = hand.done().emitted;
    assert_eq!(hand.sources(emitted[0]), [0, 1, 10, 11]);
    assert!(hand.builder.event(emitted[0]).complete);
    assert_eq!(hand.builder.event(emitted[0]).payload_bytes(), 40);
}

/// Its process was stopped, or a switch rebooted: it still holds its data.
#[test]
fn a_readout_unit_that_answers_nothing_at_all_is_waited_for_longer_than_one_that_skips_a_request() {
    let mut hand = Hand::new(BuilderConfig { unreachable_timeout: 10 * TIMEOUT, ..config(1) });
    hand.assign([1], 1);
    let first = hand.done().requests[0].1[0];
    hand.pass(9 * TIMEOUT);
    assert!(hand.done().emitted.is_empty());
    hand.answer(0, first, &[0, 1]);
    let emitted = hand.done().emitted;
    assert!(hand.builder.event(emitted[0]).complete);
    // It goes on, and leaves one out.
    hand.assign([2], 1);
    hand.done();
    hand.pass(TIMEOUT);
    hand.assign([3], 1);
    let third = hand.done().requests[0].1[0];
    hand.answer(0, third, &[0, 1]);
    hand.pass(TIMEOUT);
    assert_eq!(hand.done().emitted.len(), 1, "event 3");
    assert_eq!(hand.builder.in_work(), 2, "event 2, of which there is nothing, is dropped");
    // And in the end it is not waited for.
    hand.assign([4], 1);
    hand.done();
    hand.pass(10 * TIMEOUT - Duration::from_nanos(1));
    hand.done();
    assert_eq!(hand.builder.in_work(), 3);
    hand.pass(Duration::from_nanos(1));
    hand.done();
    assert_eq!(hand.builder.in_work(), 2);
}

#[test]
fn answers_that_nobody_waits_for_are_dropped_and_counted() {
    let mut hand = Hand::new(config(2));
    hand.assign([1], 2);
    let request = hand.done().requests[0].1[0];
    let wrong = [
        (0, RequestEntry { slot: 99, ..request }),
        (0, RequestEntry { slot: (request.slot + 1) % 4, ..request }),
        (0, RequestEntry { key: key(2), ..request }),
        (0, RequestEntry { attempt: Attempt(1), ..request }),
        (7, request),
    ];
    for (readout, entry) in wrong {
        hand.answer(readout, entry, &[0, 1]);
    }
    assert_eq!(hand.builder.counts().stale_answers, 5);
    hand.answer(0, request, &[0, 1]);
    hand.answer(0, request, &[0, 1]);
    assert_eq!(hand.builder.counts().stale_answers, 6);
    assert!(hand.done().emitted.is_empty());
}

#[test]
fn fragments_that_do_not_belong_are_dropped_by_kind() {
    let mut settings = config(1);
    settings.sources[1].requirement = Requirement::Masked;
    let mut hand = Hand::new(settings);
    hand.assign([1], 1);
    let request = hand.done().requests[0].1[0];
    hand.answer(0, request, &[0, 0, 1, 77]);
    let emitted = hand.done().emitted;
    assert_eq!(hand.sources(emitted[0]), [0]);
    assert!(hand.builder.event(emitted[0]).complete);
    let counts = hand.builder.counts();
    // A source that is masked from the start has no place at all.
    assert_eq!((counts.duplicate_fragments, counts.unknown_fragments), (1, 2));
}

#[test]
fn a_source_is_not_missing_where_its_readout_unit_says_that_it_is_masked() {
    let mut hand = Hand::new(config(1));
    hand.assign(1..=2, 1);
    let requests = hand.done().requests[0].1.clone();
    hand.answer(0, requests[0], &[0]);
    let mut fragments = vec![fragment(2, 0), fragment(2, 1)];
    fragments[1].meta = FragmentMeta::missing(SourceId(1), Cause::Masked);
    hand.answer_with(0, requests[1], &mut fragments, None);
    let emitted = hand.done().emitted;
    assert_eq!(hand.missing(emitted[0]), [(1, Cause::NotHeld)]);
    assert!(hand.builder.event(emitted[1]).complete);
    assert_eq!((hand.sources(emitted[1]), hand.missing(emitted[1])), (vec![0], vec![]));
}

#[test]
fn what_is_missing_is_named_with_its_cause() {
    let mut hand = Hand::new(config(3));
    hand.assign([1], 1);
    let done = hand.done();
    let request = done.requests[0].1[0];
    let mut fragments = vec![fragment(1, 0), fragment(1, 1)];
    fragments[1].meta = FragmentMeta::missing(SourceId(1), Cause::CrcError);
    hand.answer_with(0, request, &mut fragments, None);
    hand.answer_with(1, request, &mut Vec::new(), Some(Cause::Late));
    hand.answer(2, request, &[20]);
    let emitted = hand.done().emitted;
    let expected = [(1, Cause::CrcError), (10, Cause::Late), (11, Cause::Late), (21, Cause::NotHeld)];
    assert_eq!(hand.missing(emitted[0]), expected);
    assert_eq!(hand.sources(emitted[0]), [0, 20]);
    assert_eq!(hand.builder.counts().missing.get(Cause::Late), 2);
}

#[test]
fn a_silent_readout_unit_is_given_up_after_the_time_out() {
    let mut hand = Hand::new(config(2));
    hand.assign([1], 1);
    let done = hand.done();
    hand.answer(0, done.requests[0].1[0], &[0, 1]);
    assert_eq!(hand.builder.next_deadline(), Some(hand.now.after(TIMEOUT)));
    hand.pass(TIMEOUT - Duration::from_millis(1));
    assert!(hand.done().emitted.is_empty());
    hand.pass(Duration::from_millis(1));
    let emitted = hand.done().emitted;
    assert_eq!(hand.missing(emitted[0]), [(10, Cause::TimedOut), (11, Cause::TimedOut)]);
    assert_eq!(hand.builder.next_deadline(), None);
    // Its answer comes after all.
    hand.answer(1, done.requests[1].1[0], &[10, 11]);
    assert_eq!(hand.builder.counts().stale_answers, 1);
}

#[test]
fn a_slow_readout_unit_is_not_silent() {
    let mut hand = Hand::new(config(1));
    hand.assign(1..=4, 1);
    let requests = hand.done().requests[0].1.clone();
    for request in requests {
        hand.pass(TIMEOUT - Duration::from_millis(1));
        assert!(hand.done().emitted.is_empty());
        hand.answer(0, request, &[0, 1]);
        assert_eq!(hand.done().emitted, [request.slot]);
    }
    assert_eq!(hand.builder.account().in_flight, 4);
}

#[test]
fn a_request_that_was_skipped_is_given_up_while_others_are_answered() {
    let mut hand = Hand::new(config(1));
    hand.assign([1], 1);
    hand.done();
    for number in 2..8 {
        hand.pass(TIMEOUT / 2);
        let emitted = hand.build([number]);
        hand.written(emitted[0]);
    }
    // Nothing of it came, so that there was nothing to emit.
    assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::TimedOut), 1);
    assert_eq!((hand.builder.account().built, hand.builder.in_work()), (6, 0));
}

#[test]
fn a_broken_data_connection_is_asked_again_and_nothing_is_lost() {
    let mut hand = Hand::new(config(2));
    hand.assign(1..=2, 1);
    let first = hand.done();
    hand.answer(1, first.requests[1].1[0], &[10, 11]);
    hand.builder.readout_lost(hand.now, 1);
    hand.assign([3], 1);
    let meanwhile = hand.done();
    assert_eq!(meanwhile.requests.iter().map(|(readout, _)| *readout).collect::<Vec<_>>(), [0]);
    hand.builder.readout_connected(hand.now, 1);
    let again = hand.done();
    let asked: Vec<_> = again.requests[0].1.iter().map(|entry| entry.key.number()).collect();
    assert_eq!((again.requests[0].0, asked), (1, vec![2, 3]));
    for done in [&first, &meanwhile, &again] {
        hand.answer_all(done);
    }
    assert_eq!(hand.done().emitted.len(), 3);
    assert_eq!(hand.builder.counts().missing.total(), 0);
}

#[test]
fn a_readout_unit_that_stays_away_is_named_disconnected() {
    let mut hand = Hand::new(config(2));
    hand.assign([1], 1);
    let done = hand.done();
    hand.answer(0, done.requests[0].1[0], &[0, 1]);
    hand.builder.readout_lost(hand.now, 1);
    hand.pass(TIMEOUT);
    let emitted = hand.done().emitted;
    assert_eq!(hand.missing(emitted[0]), [(10, Cause::Disconnected), (11, Cause::Disconnected)]);
}

#[test]
fn a_lost_readout_unit_is_not_waited_for_until_it_is_back() {
    let mut hand = Hand::new(config(2));
    hand.assign([1], 1);
    let done = hand.done();
    hand.answer(0, done.requests[0].1[0], &[0, 1]);
    hand.readout_state(1, false);
    let emitted = hand.done().emitted;
    assert_eq!(hand.missing(emitted[0]), [(10, Cause::ReadoutLost), (11, Cause::ReadoutLost)]);
    hand.assign([2], 1);
    let done = hand.done();
    assert_eq!(done.requests.len(), 1);
    hand.answer_all(&done);
    let emitted = hand.done().emitted;
    assert_eq!(hand.missing(emitted[0]), [(10, Cause::ReadoutLost), (11, Cause::ReadoutLost)]);
    hand.readout_state(1, true);
    hand.assign([3], 1);
    assert_eq!(hand.done().requests.len(), 2);
}

#[test]
fn more_than_sixty_four_readout_units_are_nothing_special() {
    let mut hand = Hand::new(config(200));
    let emitted = hand.build([1]);
    assert_eq!(hand.sources(emitted[0]).len(), 400);
    assert!(hand.builder.event(emitted[0]).complete);
}
