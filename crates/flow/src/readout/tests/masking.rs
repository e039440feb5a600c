//! Masked sources, from the start or from some event on.

use super::*;

impl Rig {
    pub(super) fn mask(&mut self, source: usize, is_masked: bool) {
        let source = self.readout.sources[source].id;
        self.tell(Message::Mask(Mask { source, is_masked }));
    }

    fn reported(&self, source: usize) -> Vec<ReportEntry> {
        let id = Some(self.readout.sources[source].id);
        self.readout.report(self.now).filter(|entry| entry.source == id).collect()
    }

    /// Returns the reported state: 0 takes part, 1 masked, 2 asked back.
    pub(super) fn masked(&self, source: usize) -> u64 {
        let of = |entry: &ReportEntry| entry.as_counter() == Some(Counter::SourceMasked);
        self.reported(source).into_iter().find(of).map_or(0, |entry| entry.value)
    }

    /// Returns the keys at which the source was masked and took part again.
    pub(super) fn turns(&self, source: usize) -> Vec<EventKey> {
        let turns = self.reported(source).into_iter().filter(|entry| entry.as_turn().is_some());
        turns.map(|entry| EventKey::from_bits(entry.value)).collect()
    }
}

fn with_trigger(sources: u32) -> ReadoutConfig {
    ReadoutConfig { trigger: Some(SourceId(0)), ..config(sources) }
}

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
fn a_source_masked_in_mid_run_leaves_behind_what_has_come_of_it() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=6);
    rig.feed(1, [1, 2]);
    rig.mask(1, true);
    assert_eq!((rig.settled, rig.turns(1)), (key(6), vec![key(3)]));
    assert_eq!((rig.missing(key(2)), rig.missing(key(3))), (vec![], vec![(1, Cause::Masked)]));
    assert_eq!(rig.account(1).missing.total(), 0, "it is not counted as missing");
    rig.feed(1, [3, 7, 900, 4]);
    assert_eq!((rig.account(1).dropped.get(Cause::Masked), rig.account(1).late), (4, 0));
    assert!(rig.readout.room(1) > 0);
}

#[test]
fn what_is_ahead_of_the_others_stays_and_is_the_last() {
    let mut rig = Rig::started(config(2));
    rig.feed(1, 1..=8);
    rig.mask(1, true);
    assert_eq!(rig.turns(1), [key(9)]);
    rig.feed(0, 1..=10);
    rig.feed(1, [9]);
    assert_eq!(rig.account(1).dropped.get(Cause::Masked), 1);
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
}

#[test]
fn a_source_comes_back_with_the_first_fragment_that_goes_on() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=4);
    rig.feed(1, 1..=2);
    rig.mask(1, true);
    rig.feed(1, [3, 4]);
    rig.mask(1, false);
    rig.feed(0, 5..=9);
    assert_eq!((rig.settled, rig.masked(1)), (key(9), 2), "a source that is asked back is not waited for");
    rig.feed(1, [12, 13]);
    assert_eq!((rig.turns(1), rig.masked(1)), (vec![key(3), key(12)], 0));
    rig.feed(0, 10..=14);
    assert_eq!(rig.settled, key(13), "it is waited for again");
    let missing: Vec<_> = (11..=13).map(|number| rig.missing(key(number))).collect();
    assert_eq!(missing, [vec![(1, Cause::Masked)], vec![], vec![]]);
}

#[test]
fn a_source_that_is_always_a_little_behind_comes_back_all_the_same() {
    let mut rig = Rig::started(config(2));
    rig.mask(1, true);
    rig.feed(0, 1..=4);
    rig.feed(1, 1..=3);
    rig.mask(1, false);
    rig.feed(1, [4]);
    assert_eq!((rig.turns(1), rig.masked(1), rig.account(1).dropped.get(Cause::Masked)), (vec![key(1), key(5)], 0, 4));
    rig.feed(0, 5..=6);
    assert_eq!(rig.settled, key(4), "it is waited for");
    rig.feed(1, 5..=6);
    assert_eq!((rig.settled, rig.missing(key(5))), (key(6), vec![]));
}

#[test]
fn a_source_that_is_far_behind_catches_up_first() {
    let mut rig = Rig::started(config(2));
    rig.mask(1, true);
    for number in 1..=40 {
        rig.feed(0, [number]);
        rig.release(key(number), 1, Outcome::Complete);
    }
    rig.mask(1, false);
    rig.feed(1, 1..=20);
    assert_eq!(rig.masked(1), 2, "more than the window of 16");
    rig.feed(1, 21..=38);
    // At its event 25 it is near enough; the events that were settled by then are without it.
    assert_eq!((rig.turns(1), rig.account(1).dropped.get(Cause::Masked)), (vec![key(1), key(41)], 38));
    rig.feed(0, [41]);
    assert_eq!(rig.settled, key(40));
    rig.feed(1, 39..=41);
    assert_eq!((rig.settled, rig.missing(key(41))), (key(41), vec![]));
}

#[test]
fn a_board_that_counts_anew_does_not_come_back_before_the_others_do_so_too() {
    let mut rig = Rig::started(with_trigger(2));
    rig.feed(0, 1..=10);
    rig.feed(1, 1..=10);
    rig.mask(1, true);
    rig.connect(1);
    rig.mask(1, false);
    rig.feed(0, 11..=14);
    rig.feed(1, [1, 2, 3]);
    assert_eq!((rig.settled, rig.masked(1)), (key(14), 2));
    rig.feed(0, [1, 2, 3, 4]);
    rig.feed(1, [5]);
    assert_eq!((rig.turns(1), rig.masked(1)), (vec![key(11), EventKey::new(1, 5)], 0));
    assert_eq!(rig.account(1).dropped.get(Cause::Masked), 3);
}

#[test]
fn a_mask_that_is_repeated_before_the_source_came_back_goes_on() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=4);
    rig.feed(1, 1..=4);
    for is_masked in [true, true, false, false, true] {
        rig.mask(1, is_masked);
    }
    rig.feed(1, [5]);
    rig.feed(0, [5]);
    assert_eq!((rig.settled, rig.turns(1), rig.masked(1)), (key(5), vec![key(5)], 1));
}

#[test]
fn a_source_that_is_masked_again_at_once_stays_out_from_where_it_was() {
    let mut rig = Rig::started(config(2));
    rig.feed(1, 1..=4);
    rig.feed(0, 1..=4);
    rig.mask(1, true);
    rig.mask(1, false);
    // The source comes back ahead of the settled events, and is masked before any event is settled there.
    rig.feed(1, [9]);
    rig.mask(1, true);
    assert_eq!((rig.turns(1), rig.account(1).dropped.get(Cause::Masked)), (vec![key(5), key(9), key(9)], 1));
    rig.feed(0, 5..=10);
    assert_eq!((rig.settled, rig.missing(key(9))), (key(10), vec![(1, Cause::Masked)]));
}

#[test]
fn a_source_masked_before_the_run_takes_part_in_no_event_of_it() {
    let mut rig = Rig::new(config(2));
    rig.mask(1, true);
    rig.tell(Message::Start(Start::of_run(key(1))));
    (0..2).for_each(|source| rig.connect(source));
    rig.feed(1, [1]);
    rig.feed(0, [1, 2]);
    assert_eq!((rig.settled, rig.turns(1)), (key(2), vec![key(1)]));
    rig.mask(1, false);
    rig.feed(1, [3]);
    rig.feed(0, [3]);
    assert_eq!((rig.turns(1), rig.missing(key(3))), (vec![key(1), key(3)], vec![]));
}

#[test]
fn the_trigger_source_and_one_that_the_configuration_masks_are_not_to_be_masked() {
    let mut settings = with_trigger(3);
    settings.sources[2].requirement = Requirement::Masked;
    let mut rig = Rig::started(settings);
    for source in [0, 2] {
        rig.mask(source, true);
        rig.mask(source, false);
    }
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    rig.feed(2, [1]);
    assert_eq!((rig.turns(0), rig.turns(2), rig.account(2).dropped.get(Cause::Masked)), (vec![], vec![], 1));
}

#[test]
fn where_no_required_source_takes_part_optional_ones_settle_events() {
    let mut settings = config(2);
    settings.sources[1].requirement = Requirement::Optional;
    let mut rig = Rig::started(settings);
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=3);
    rig.mask(0, true);
    rig.feed(1, [4, 5]);
    assert_eq!(rig.settled, key(5));
    rig.mask(0, false);
    rig.feed(0, [6]);
    assert_eq!(rig.settled, key(5), "event 6 waits for source 1");
}

#[test]
fn a_new_event_manager_hears_which_sources_are_masked() {
    let mut rig = Rig::started(config(3));
    rig.mask(1, true);
    rig.tell(Message::Recover);
    let masks = rig.others.iter().filter(|message| matches!(message, Message::Mask(_)));
    let expected = Message::Mask(Mask { source: SourceId(1), is_masked: true });
    assert_eq!(masks.collect::<Vec<_>>(), [&expected]);
}

#[test]
fn a_readout_unit_with_masked_sources_only_has_nothing_to_wait_for() {
    let mut settings = config(1);
    settings.sources[0].requirement = Requirement::Masked;
    let rig = Rig::started(settings);
    assert_eq!(rig.settled, EventKey::MAX);
}

#[test]
fn a_source_cannot_be_masked_more_often_than_is_recorded() {
    let mut rig = Rig::started(config(2));
    for turn in 0..40 {
        let number = 2 * turn + 1;
        rig.feed(0, [number]);
        rig.mask(1, true);
        rig.mask(1, false);
        rig.feed(1, [number + 1]);
        rig.feed(0, [number + 1]);
        rig.release(key(number), 2, Outcome::Complete);
    }
    assert_eq!(rig.turns(1).len(), ReportEntry::MOST_TURNS);
}

#[test]
fn a_readout_unit_whose_sources_are_all_masked_asks_to_hear_of_events_at_once() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1, 2]);
    rig.others.clear();
    rig.mask(0, true);
    assert_eq!(rig.others, [Message::Follows(true)]);
    rig.tell(Message::Highest(key(9)));
    assert_eq!(rig.settled, key(9));
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert!(rig.others[1..].contains(&Message::Follows(true)), "a new event manager hears of it, too");
    rig.mask(0, false);
    rig.feed(0, [10]);
    assert_eq!(rig.others.last(), Some(&Message::Follows(false)));
}

#[test]
fn an_event_without_any_fragment_says_of_each_source_why() {
    let mut rig = Rig::started(config(2));
    rig.mask(1, true);
    // The other source skips events that another readout unit holds.
    rig.feed(0, [5]);
    let all = [3, 5].map(|number| rig.missing(key(number)));
    assert_eq!(all, [vec![(0, Cause::Skipped), (1, Cause::Masked)], vec![(1, Cause::Masked)]]);
    rig.mask(1, false);
    rig.feed(1, [7]);
    rig.feed(0, [8]);
    rig.feed(1, [8]);
    rig.mask(1, true);
    let all = [3, 6, 7].map(|number| rig.missing(key(number)));
    let expected = [vec![(0, Cause::Skipped), (1, Cause::Masked)], vec![(0, Cause::Skipped), (1, Cause::Masked)]];
    assert_eq!(all[..2], expected, "also when it is masked for the second time");
    assert_eq!(all[2], [(0, Cause::Skipped)]);
}

#[test]
fn events_that_there_was_no_room_to_note_say_which_source_was_masked() {
    let mut rig = Rig::started(config(2));
    rig.mask(1, true);
    // The table has room for 32.
    rig.tell(Message::Highest(key(20)));
    rig.feed(0, [90]);
    rig.request(0, &[key(40)]);
    let (_, entry) = rig.answers.last().expect("an answer");
    assert_eq!((entry.not_held, entry.fragments), (None, 2));
    assert_eq!(rig.missing(key(40)), [(0, Cause::NotHeld), (1, Cause::Masked)]);
}

#[test]
fn events_of_a_count_that_ended_before_they_were_shown_say_which_source_was_masked() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.mask(0, true);
    rig.tell(Message::Resync(Resync { first: EventKey::new(1, 1) }));
    rig.request(0, &[key(3)]);
    let (_, entry) = rig.answers.last().expect("an answer");
    assert_eq!((entry.not_held, entry.fragments), (None, 1));
    assert_eq!(rig.missing(key(3)), [(0, Cause::Masked)]);
}

#[test]
fn events_that_were_shown_before_their_count_began_are_settled_with_it() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.mask(0, true);
    rig.tell(Message::Highest(EventKey::new(1, 3)));
    rig.tell(Message::Resync(Resync { first: EventKey::new(1, 1) }));
    assert_eq!(rig.settled, EventKey::new(1, 3));
}
