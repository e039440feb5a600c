//! What sources do wrong, and where it is counted.

use super::*;

#[test]
fn the_same_event_twice_is_a_duplicate() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 3, 3, 2, 4]);
    rig.feed(1, 1..=4);
    assert_eq!(rig.account(0).duplicate, 2);
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 2, 2]);
    rig.release(key(1), 4, Outcome::Complete);
    rig.feed(0, [4]);
    assert_eq!(rig.account(0).duplicate, 3, "the last one again, though it was released");
}

#[test]
fn an_event_that_was_skipped_and_comes_after_all_is_late() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 3, 2]);
    rig.feed(1, 1..=3);
    assert_eq!((rig.account(0).late, rig.account(0).duplicate), (1, 0));
    assert_eq!(rig.missing(key(2)), [(0, Cause::Skipped)]);
}

#[test]
fn a_jump_that_nobody_believes_is_corrupt_and_opens_no_event() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 1_000_002, 3, 4]);
    rig.feed(1, 1..=4);
    assert_eq!(rig.account(0).corrupt, 1);
    assert_eq!(rig.numbers(), [1, 2, 3, 4]);
    assert!((1..=4).all(|number| rig.missing(key(number)).is_empty()));
    assert_eq!(rig.readout.next_deadline(), None);
}

#[test]
fn an_id_with_more_bits_than_the_counter_is_corrupt() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1, 1 << 24 | 2, 2]);
    assert_eq!((rig.account(0).corrupt, rig.numbers()), (1, vec![1, 2]));
}

#[test]
fn event_numbers_end_somewhere() {
    let mut settings = config(1);
    settings.sources[0].counter_bits = 64;
    let mut rig = Rig::new(settings);
    rig.tell(Message::Start(Start::of_run(key(EventKey::MAX_NUMBER - 3))));
    rig.connect(0);
    rig.feed(0, 1..=9);
    assert_eq!((rig.held.len(), rig.account(0).corrupt), (3, 6));
}

#[test]
fn flagged_contents_go_on_and_are_counted() {
    let mut rig = Rig::started(config(1));
    let mut damaged = fragment(0, 1);
    damaged.meta.flags = FragmentFlags::CRC_CHECKED.with(FragmentFlags::CRC_ERROR);
    rig.feed_fragments(0, vec![damaged, fragment(0, 2)]);
    assert_eq!(rig.numbers(), [1, 2]);
    assert!(rig.fragments(key(1))[0].meta.flags.contains(FragmentFlags::CRC_ERROR));
    let counter = ropewalk_terms::Counter::CrcErrors;
    assert_eq!(
        rig.readout.report(rig.now).find(|entry| entry.as_counter() == Some(counter)).map(|entry| entry.value),
        Some(1)
    );
}

#[test]
fn a_fragment_cut_by_a_disconnection_is_counted_by_name() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    rig.readout.source_disconnected(rig.now, 0, true);
    rig.poll();
    assert_eq!((rig.account(0).received, rig.account(0).dropped.get(Cause::CutShort)), (2, 1));
}

#[test]
fn bytes_without_sense_are_counted_by_name() {
    let mut rig = Rig::started(config(1));
    rig.readout.framing_lost(0, FramingError { cause: Cause::Oversize, bytes_discarded: 77 });
    rig.disconnect(0);
    assert_eq!(rig.account(0).dropped.get(Cause::Oversize), 1);
    let counter = ropewalk_terms::Counter::GarbageBytes;
    assert_eq!(
        rig.readout.report(rig.now).find(|entry| entry.as_counter() == Some(counter)).map(|entry| entry.value),
        Some(77)
    );
}

#[test]
fn an_event_that_was_released_before_it_was_settled_takes_nothing_more() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.release(key(1), 2, Outcome::Dropped(Cause::ReadoutLost));
    assert_eq!(rig.account(0).dropped.get(Cause::ReadoutLost), 2);
    assert_eq!(rig.settled, key(2), "nobody waits for them any more");
    rig.feed(1, 1..=3);
    assert_eq!(rig.account(1).late, 2);
    assert_eq!(rig.numbers(), [3]);
}

#[test]
fn an_event_that_was_released_before_any_source_showed_it_takes_nothing() {
    let mut rig = Rig::started(config(2));
    rig.release(key(3), 2, Outcome::IncompleteEmitted);
    rig.feed(0, 1..=5);
    rig.feed(1, 1..=5);
    assert_eq!((rig.numbers(), rig.account(0).late, rig.account(1).late), (vec![1, 2, 5], 2, 2));
    rig.release(key(1), 1, Outcome::Complete);
    rig.release(key(1), u32::MAX, Outcome::Complete);
    assert_eq!((rig.account(0).in_complete_events, rig.readout.held()), (3, 0), "each is counted once");
}

#[test]
fn a_release_that_comes_twice_does_not_reach_later_events() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=16);
    rig.release(key(1), 16, Outcome::Complete);
    rig.feed(0, 17..=32);
    rig.release(key(17), 16, Outcome::Complete);
    rig.feed(0, 33..=40);
    rig.release(key(1), 8, Outcome::Complete);
    assert_eq!((rig.readout.held(), rig.account(0).in_complete_events), (8, 32));
}

#[test]
fn fragments_come_in_before_the_start_and_are_stale() {
    let mut rig = Rig::new(config(1));
    rig.connect(0);
    assert_eq!(rig.readout.room(0), 0, "it must not be read");
    rig.feed(0, [1]);
    assert_eq!(rig.account(0).stale, 1);
}

#[test]
fn ids_from_before_the_run_are_stale() {
    let mut settings = config(1);
    settings.sources[0].first = 50;
    let mut rig = Rig::started(settings);
    rig.feed(0, [47, 48, 49, 50, 51]);
    assert_eq!((rig.account(0).stale, rig.numbers()), (3, vec![1, 2]));
}

#[test]
fn a_source_that_was_away_while_its_counter_wrapped_goes_on_with_the_run() {
    let mut settings = config(2);
    settings.sources[1].counter_bits = 12;
    let mut rig = Rig::started(settings);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    rig.disconnect(1);
    rig.release(key(1), 1, Outcome::Complete);
    for number in 2..=9000 {
        rig.feed(0, [number]);
        if number == 2 {
            rig.wait(SOURCE_TIMEOUT);
        }
        rig.release(key(number), 1, Outcome::IncompleteEmitted);
    }
    rig.connect(1);
    rig.feed(1, [9001 & 0xfff]);
    rig.feed(0, [9001]);
    assert_eq!(rig.missing(key(9001)), []);
}
