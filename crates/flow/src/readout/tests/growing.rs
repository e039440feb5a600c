//! Sources whose event numbers grow, but not by one.

use super::*;

fn growing(sources: u32) -> ReadoutConfig {
    let mut config = config(sources);
    config.sources.iter_mut().for_each(|source| source.numbers_grow = true);
    config
}

/// The others would have no room before it is settled that it has nothing of the oldest events, which would last until its time-out.
#[test]
fn who_sees_one_event_of_many_holds_nobody_up() {
    let mut rig = Rig::started(growing(2));
    rig.feed(1, [10]);
    rig.feed(0, (1..=20).map(|event| 10 * event));
    rig.feed(1, [200, 210]);
    rig.feed(0, [210]);
    assert_eq!(rig.settled, key(21), "without waiting");
    assert_eq!(rig.held.iter().filter(|entry| entry.fragments == 2).count(), 3);
    let account = rig.readout.account(1);
    assert_eq!((account.missing.get(Cause::Skipped), account.missing.total()), (18, 18));
}

/// A damaged fragment gives no time: it has the place that others show, or none.
#[test]
fn damaged_times_are_no_times() {
    // The right time, one within a plausible step, one far ahead, one behind.
    for (time, is_placed) in [(500, true), (505, false), (1 << 40, false), (30, false)] {
        for (leader, window) in [(0, 1024), (1, 1024), (1, 4)] {
            let mut rig = Rig::started(ReadoutConfig { window, capacity: 4096, ..growing(2) });
            for event in 1..=100 {
                for source in [leader, 1 - leader] {
                    let is_damaged = source == 1 && event == 50;
                    rig.feed_fragments(
                        source,
                        vec![if is_damaged { damaged(1, time) } else { fragment(source as u32, 10 * event) }],
                    );
                }
            }
            rig.wait(SOURCE_TIMEOUT);
            rig.wait(SOURCE_TIMEOUT);
            let account = rig.readout.account(1);
            assert_eq!(rig.settled, key(100), "{time}");
            let full = rig.held.iter().filter(|entry| entry.fragments == 2).count();
            assert_eq!(full, if is_placed { 100 } else { 99 }, "{time}: {account:?}");
            assert_eq!(account.corrupt, u64::from(!is_placed), "{time}: {account:?}");
            assert_eq!(rig.missing(key(50)).len(), usize::from(!is_placed), "{time}");
        }
    }
}

/// Nothing tells where they belong: at the beginning, at the end, of a source alone.
#[test]
fn damaged_times_of_one_source_open_no_event() {
    let mut rig = Rig::started(growing(1));
    rig.feed_fragments(0, vec![damaged(0, 5)]);
    rig.feed(0, (1..=20).map(|event| 10 * event));
    rig.feed_fragments(0, vec![damaged(0, 210), damaged(0, 211)]);
    rig.readout.source_disconnected(rig.now, 0, false);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.settled, rig.account(0).corrupt), (key(20), 3), "{:?}", rig.account(0));
}

/// Of sources that show the same event one may have no room, and the other one's word is what would make some.
#[test]
fn who_shows_the_same_event_as_one_without_room_is_heard() {
    let mut rig = Rig::started(ReadoutConfig { window: 4, capacity: 8, ..growing(3) });
    rig.feed(2, [10]);
    rig.feed(0, (1..=5).map(|event| 10 * event));
    rig.feed(1, [10, 60, 70]);
    rig.feed(0, [60, 70]);
    rig.feed(2, [60, 70]);
    assert_eq!(rig.settled, key(7), "without waiting");
    assert_eq!(rig.readout.account(2).missing.get(Cause::Skipped), 4);
}

/// What it said is still waiting for the others when it comes back, and when it goes once more.
#[test]
fn who_comes_back_before_his_last_words_are_numbered_is_there() {
    let mut rig = Rig::started(growing(2));
    rig.feed(1, [10, 20]);
    for _ in 0..2 {
        rig.readout.source_disconnected(rig.now, 1, true);
        rig.connect(1);
    }
    rig.feed(0, [10, 20, 30]);
    assert_eq!(rig.settled, key(2));
    rig.wait(SOURCE_TIMEOUT);
    rig.wait(SOURCE_TIMEOUT);
    let account = rig.readout.account(1);
    assert_eq!(account.dropped.get(Cause::CutShort), 2, "each cut frame counts");
    assert_eq!((account.missing.get(Cause::TimedOut), account.missing.total()), (1, 1), "it was there, and silent");
}
