//! Front ends with faulty event counters.

use crate::support::{FrontEnd, Held, Run, Setup, expect_everything, lost};
use ropewalk_terms::Cause;
use std::collections::BTreeSet;

/// Starts a run of this many events with a good front end (843), which has sent all of them, and one that is to
/// misbehave.
fn with_a_good_front_end(name: &str, events: u64) -> (Setup, Run, FrontEnd, FrontEnd) {
    let setup = Setup::new(name, &[841, 843]);
    let run = setup.start(Some(events));
    let (bad, mut good) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=events);
    (setup, run, bad, good)
}

#[test]
fn a_fragment_that_comes_twice_is_counted_once() {
    let (_setup, run, mut bad, good) = with_a_good_front_end("twice", 100);
    bad.send(1..=50);
    bad.send([50]);
    bad.send(51..=60);
    // Not a repetition of the last one, but of an earlier one, with other bytes: the first one is kept.
    let other_bytes = bad.content(1059);
    bad.send_content(59, &other_bytes);
    bad.send(61..=100);
    let summary = run.end();
    // The bytes of the second one contain another number than its header: it is damaged.
    let again = (summary.fragments.duplicate, summary.fragments.corrupt);
    assert_eq!((summary.fragments.received, again), (202, (1, 1)), "{summary:#?}");
    assert_eq!(summary.fragments.in_complete_events, 200);
    let held = Held::in_directories(&[&summary.directory]);
    assert_eq!(held.copies, 0);
    expect_everything(&[&bad, &good], &held, 100);
}

/// A later number proves immediately that the skipped ones will not come: no time-out passes within this test.
#[test]
fn numbers_that_are_skipped_are_missed_at_once() {
    let (_setup, run, mut bad, good) = with_a_good_front_end("skips", 100);
    bad.send(1..=40);
    bad.send(48..=100);
    let summary = run.end();
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (93, 7), "{summary:#?}");
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(100);
    held.expect_missing(841, 41..=47, Cause::Skipped);
    assert_eq!(lost(&[&bad, &good], &held), BTreeSet::new());
}

/// The reset counter would put every fragment into an old event. None is accepted until the source reconnects in order.
#[test]
fn a_counter_that_was_reset_shifts_no_event() {
    let setup = Setup::new("reset", &[841, 843]);
    let mut run = setup.start(Some(120));
    let (mut bad, mut good) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=80);
    bad.send(1..=60);
    for event in 1..=20 {
        let reset = bad.framed(event, &bad.content(event));
        bad.send_bytes(&reset);
    }
    // A source that is out of sync is not awaited.
    run.wait_until("events are built without it, and what it sent is named", |snapshot| {
        let dropped = snapshot.ledger.fragments.dropped.get(Cause::OutOfSync);
        (snapshot.ledger.events.incomplete_emitted, dropped) == (20, 20)
    });
    bad.disconnect();
    bad.connect();
    bad.send(81..=120);
    run.wait_for_fragments(841, 120);
    good.send(81..=120);
    let summary = run.end();
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (100, 20), "{summary:#?}");
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(120);
    held.expect_missing(841, 61..=80, Cause::OutOfSync);
    assert_eq!(lost(&[&bad, &good], &held), BTreeSet::new());
}

#[test]
fn a_jump_by_a_million_opens_no_event() {
    let (_setup, run, mut bad, good) = with_a_good_front_end("jump", 100);
    bad.send(1..=50);
    let jump = bad.framed(1_000_051, &bad.content(1_000_051));
    bad.send_bytes(&jump);
    bad.send(51..=100);
    let summary = run.end();
    let dropped = summary.fragments.dropped.get(Cause::ImplausibleJump);
    assert_eq!((dropped, summary.events.built), (1, 100), "{summary:#?}");
    assert_eq!(summary.events.assigned, 100, "no event a million ahead was opened");
    expect_everything(&[&bad, &good], &Held::in_directories(&[&summary.directory]), 100);
}

/// Fragments in transit before the run, and fragments after its last event, are not part of it.
#[test]
fn what_comes_before_and_after_the_run_is_counted_apart() {
    let (_setup, mut run, mut bad, mut good) = with_a_good_front_end("edges", 30);
    let before = bad.framed(0, &bad.content(0));
    bad.send_bytes(&before);
    bad.send(1..=29);
    let after = good.framed(31, &good.content(31));
    good.send_bytes(&after);
    run.wait_until("it is counted", |snapshot| snapshot.ledger.fragments.after_stop == 1);
    bad.send([30]);
    let summary = run.end();
    assert_eq!((summary.fragments.stale, summary.fragments.after_stop), (1, 1), "{summary:#?}");
    expect_everything(&[&bad, &good], &Held::in_directories(&[&summary.directory]), 30);
}
