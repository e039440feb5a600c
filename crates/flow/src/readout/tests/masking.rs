//! Sources that do not take part, from the start or from some event on.

use super::*;

#[test]
fn a_masked_source_is_neither_waited_for_nor_kept() {
    let mut settings = config(2);
    settings.sources[1].requirement = Requirement::Masked;
    let mut rig = Rig::started(settings);
    rig.feed(1, [1, 2]);
    rig.feed(0, [1]);
    assert_eq!((rig.account(1).dropped.get(Cause::Masked), rig.settled), (2, key(1)));
    assert_eq!(rig.missing(key(1)), []);
}

#[test]
fn a_source_masked_in_mid_run_leaves_from_a_recorded_event_on() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=6);
    rig.feed(1, [1, 2]);
    assert_eq!(rig.readout.mask(rig.now, 1, key(5)), key(5));
    rig.poll();
    assert_eq!(rig.settled, key(2), "it is waited for up to there");
    rig.feed(1, [3, 5, 6]);
    assert_eq!(rig.settled, key(6));
    assert_eq!(rig.account(1).dropped.get(Cause::Masked), 2);
    assert_eq!(rig.missing(key(4)), [(1, Cause::Skipped)]);
    assert_eq!(rig.missing(key(5)), []);
    assert!(rig.readout.room(1) > 0);
}

#[test]
fn what_is_settled_stays_as_it_is() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=4);
    rig.feed(1, 1..=2);
    assert_eq!(rig.readout.mask(rig.now, 1, key(1)), key(3));
    rig.poll();
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 1, 1]);
}

#[test]
fn what_is_held_of_a_masked_source_is_dropped() {
    let mut rig = Rig::started(config(2));
    rig.feed(1, 1..=8);
    rig.readout.mask(rig.now, 1, key(3));
    rig.feed(0, 1..=4);
    assert_eq!(rig.account(1).dropped.get(Cause::Masked), 6);
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 1, 1]);
    rig.feed(1, [9]);
    assert_eq!(rig.account(1).dropped.get(Cause::Masked), 7);
}

#[test]
fn a_readout_unit_with_masked_sources_only_has_nothing_to_wait_for() {
    let mut settings = config(1);
    settings.sources[0].requirement = Requirement::Masked;
    let rig = Rig::started(settings);
    assert_eq!(rig.settled, EventKey::MAX);
}

#[test]
fn an_event_that_only_the_masked_source_had_leaves_nothing_behind() {
    let mut rig = Rig::started(config(3));
    rig.feed(1, [3]);
    rig.readout.mask(rig.now, 1, key(2));
    for source in [0, 2] {
        rig.feed(source, [1, 2, 4]);
    }
    assert_eq!(rig.numbers(), [1, 2, 4]);
    assert_eq!(rig.missing(key(3)), [(0, Cause::Skipped), (2, Cause::Skipped)]);
    rig.release(key(1), 2, Outcome::Complete);
    rig.release(key(4), 1, Outcome::Complete);
    // Event 35 has the places that event 3 had.
    rig.feed(0, [16, 35]);
    rig.feed(2, [16, 36]);
    rig.release(key(16), 1, Outcome::Complete);
    assert_eq!(rig.missing(key(35)), [(2, Cause::Skipped)]);
}
