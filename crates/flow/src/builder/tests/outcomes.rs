//! Requests and answers, and the outcomes of events: policies, acknowledgement levels, bunch crossings, and sources
//! that slip.

use super::{Hand, TIMEOUT, acknowledged, config, fragment, key};
use crate::builder::synchrony::{self, Action, Config, SourceConfig};
use crate::builder::{Builder, BuilderConfig, BuilderConfigError, IncompletePolicy};
use crate::messages::{FragmentFlags, FragmentMeta, Message, RequestEntry, SynchronyState};
use core::time::Duration;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, Counter, Outcome, Requirement, SourceId, Verdict};

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
    // It continues, and omits one.
    hand.assign([2], 1);
    hand.done();
    hand.pass(TIMEOUT);
    hand.assign([3], 1);
    let third = hand.done().requests[0].1[0];
    hand.answer(0, third, &[0, 1]);
    hand.pass(TIMEOUT);
    assert_eq!(hand.done().emitted.len(), 1, "event 3");
    assert_eq!(hand.builder.in_work(), 2, "event 2, of which there is nothing, is dropped");
    // In the end it is given up.
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
fn unawaited_answers_are_dropped_and_counted() {
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
    // Its answer arrives after all.
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
    // No fragment arrived, so nothing was emitted.
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

/// Assigns an event and omits source 1.
fn incomplete(hand: &mut Hand, number: u64) {
    hand.assign([number], 1);
    let request = hand.done().requests[0].1[0];
    hand.answer(0, request, &[0]);
}

#[test]
fn an_incomplete_event_is_kept_and_flagged() {
    let mut hand = Hand::new(config(1));
    incomplete(&mut hand, 1);
    let emitted = hand.done().emitted;
    assert!(!hand.builder.event(emitted[0]).complete);
    hand.written(emitted[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::IncompleteEmitted)]);
    let account = hand.builder.account();
    assert_eq!((account.incomplete_emitted, account.accepted, account.written), (1, 1, 1));
}

#[test]
fn or_dropped_and_counted() {
    let mut hand = Hand::new(BuilderConfig { incomplete: IncompletePolicy::Drop, ..config(1) });
    incomplete(&mut hand, 1);
    let done = hand.done();
    assert!(done.emitted.is_empty());
    assert_eq!(acknowledged(&done), [(1, 1, Outcome::Dropped(Cause::IncompletePolicy))]);
    assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::IncompletePolicy), 1);
    assert_eq!(hand.builder.in_work(), 0);
}

#[test]
fn or_stops_the_run_once() {
    let mut hand = Hand::new(BuilderConfig { incomplete: IncompletePolicy::Stop, ..config(1) });
    incomplete(&mut hand, 1);
    let done = hand.done();
    assert_eq!((done.stop, done.emitted.len()), (vec![Cause::NotHeld], 1));
    incomplete(&mut hand, 2);
    assert_eq!(hand.done().stop, []);
}

#[test]
fn an_optional_source_is_not_missed() {
    let mut settings = BuilderConfig { incomplete: IncompletePolicy::Drop, ..config(1) };
    settings.sources[1].requirement = Requirement::Optional;
    let mut hand = Hand::new(settings);
    incomplete(&mut hand, 1);
    let emitted = hand.done().emitted;
    assert!(hand.builder.event(emitted[0]).complete);
    assert_eq!(hand.missing(emitted[0]), []);
}

#[test]
fn an_event_without_a_single_fragment_is_dropped_with_the_cause() {
    let mut hand = Hand::new(config(2));
    hand.readout_state(0, false);
    hand.readout_state(1, false);
    hand.assign([1], 1);
    let done = hand.done();
    assert_eq!(acknowledged(&done), [(1, 1, Outcome::Dropped(Cause::ReadoutLost))]);
    assert!(done.emitted.is_empty());
}

#[test]
fn the_level_decides_when_an_event_is_acknowledged() {
    use AcknowledgementLevel::{Built, Handed, Synced, Written};
    for level in [Built, Handed, Written, Synced] {
        let mut hand = Hand::new(BuilderConfig { level, ..config(1) });
        let slot = hand.build([1])[0];
        for reached in [Built, Handed, Written, Synced] {
            hand.builder.reached(hand.now, slot, reached);
            let expected = if reached == level { 1 } else { 0 };
            assert_eq!(hand.done().acknowledged.len(), expected, "{level:?} {reached:?}");
            // Payloads are held until they are written; the slot until it is acknowledged as well.
            let free = reached >= Written && reached >= level;
            assert_eq!(hand.builder.in_work() == 0, free, "{level:?} {reached:?}");
        }
        assert_eq!(hand.builder.account().written, 1);
    }
}

#[test]
fn bytes_are_free_when_written_and_the_slot_when_acknowledged() {
    let mut hand = Hand::new(BuilderConfig { level: AcknowledgementLevel::Synced, ..config(1) });
    let slot = hand.build([1])[0];
    hand.written(slot);
    let credit = hand.done().credits[0];
    assert_eq!((credit.events, credit.bytes), (4, 1100));
    hand.builder.reached(hand.now, slot, AcknowledgementLevel::Synced);
    let credit = hand.done().credits[0];
    assert_eq!((credit.events, credit.bytes), (5, 1100));
}

#[test]
fn events_that_are_written_together_end_as_one_after_the_other() {
    let ends = |written: fn(&mut Hand, &[u32])| {
        let mut hand = Hand::new(config(2));
        let slots = hand.build([1, 2, 3]);
        hand.assign([4], 1);
        hand.done();
        // One slot named twice, one whose event is still collected, and one that does not exist.
        written(&mut hand, &[slots[2], slots[0], slots[2], 3, 99]);
        let done = hand.done();
        let credit = done.credits.last().copied();
        (acknowledged(&done), credit, hand.builder.account().written, hand.builder.in_work())
    };
    let one_by_one = ends(|hand, slots| slots.iter().for_each(|&slot| hand.written(slot)));
    let together = ends(|hand, slots| {
        hand.builder.all_reached(hand.now, slots.iter().copied(), AcknowledgementLevel::Written);
    });
    assert_eq!(together, one_by_one);
    assert_eq!(together.0, [(3, 1, Outcome::Complete), (1, 1, Outcome::Complete)]);
}

#[test]
fn what_cannot_be_written_is_dropped_by_name() {
    let mut hand = Hand::new(config(1));
    let slot = hand.build([1])[0];
    hand.builder.failed(hand.now, slot, Cause::WriteFailed);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Dropped(Cause::WriteFailed))]);
    assert_eq!(hand.builder.in_work(), 0);
    let mut hand = Hand::new(BuilderConfig { level: AcknowledgementLevel::Built, ..config(1) });
    let slot = hand.build([1])[0];
    hand.builder.reached(hand.now, slot, AcknowledgementLevel::Built);
    hand.builder.failed(hand.now, slot, Cause::WriteFailed);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Complete)]);
    assert_eq!(hand.builder.counts().lost_after_acknowledgement, 1);
}

#[test]
fn slots_that_were_not_emitted_cannot_reach_anything() {
    let mut hand = Hand::new(config(1));
    hand.assign([1], 1);
    hand.done();
    for slot in [0, 1, 2, 3, 4, 99] {
        hand.written(slot);
        hand.builder.failed(hand.now, slot, Cause::WriteFailed);
    }
    assert_eq!(acknowledged(&hand.done()), []);
    assert_eq!(hand.builder.account().in_flight, 1);
}

#[test]
fn the_report_tells_the_account() {
    let mut hand = Hand::new(BuilderConfig { incomplete: IncompletePolicy::Drop, ..config(1) });
    let slot = hand.build([1])[0];
    hand.written(slot);
    incomplete(&mut hand, 2);
    hand.done();
    let value = |counter| hand.builder.report().find(|entry| entry.as_counter() == Some(counter)).map(|e| e.value);
    assert_eq!(value(Counter::EventsBuilt), Some(1));
    assert_eq!(value(Counter::EventsWritten), Some(1));
    let dropped: Vec<_> = hand.builder.report().filter_map(|entry| entry.as_cause()).collect();
    assert_eq!(dropped, [Cause::IncompletePolicy]);
}

#[test]
fn slots_are_used_again_clean() {
    let mut hand = Hand::new(config(1));
    for number in 0..20 {
        incomplete(&mut hand, 2 * number);
        let slot = hand.done().emitted[0];
        hand.written(slot);
        let slot = hand.build([2 * number + 1])[0];
        let event = hand.builder.event(slot);
        assert_eq!((event.key, event.complete), (key(2 * number + 1), true));
        assert_eq!(hand.missing(slot), []);
        hand.written(slot);
    }
    assert_eq!(hand.builder.account().built, 20);
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let check = |change: fn(&mut BuilderConfig)| {
        let mut bad = config(2);
        change(&mut bad);
        // No configuration may cause a panic.
        let _ = Builder::new(bad.clone());
        bad.check()
    };
    assert_eq!(check(|_| ()), Ok(()));
    assert_eq!(check(|bad| bad.slots = 0), Err(BuilderConfigError::NoSlots));
    assert_eq!(check(|bad| bad.sources.clear()), Err(BuilderConfigError::NoSources));
    assert_eq!(check(|bad| bad.sources[1].id = SourceId(0)), Err(BuilderConfigError::SourceTwice(SourceId(0))));
    let unknown = BuilderConfigError::UnknownReadout { id: SourceId(0), readout: 2 };
    assert_eq!(check(|bad| bad.sources[0].readout = 2), Err(unknown));
    let watch_nothing = |bad: &mut BuilderConfig| bad.synchrony = Some(crate::builder::synchrony::Config::new([]));
    assert_eq!(check(watch_nothing), Err(BuilderConfigError::SynchronySources));
}

#[test]
fn what_was_decided_is_acknowledged_with_the_event() {
    let mut hand = Hand::new(config(1));
    let slots = hand.build([1, 2, 3, 4]);
    let verdicts = [Verdict::Accepted, Verdict::Quarantined, Verdict::Rejected, Verdict::Unselected];
    for (&slot, verdict) in slots.iter().zip(verdicts).take(2) {
        hand.builder.decided(slot, verdict);
        hand.written(slot);
    }
    // A slot that is named twice ends once.
    let discarded = [(slots[2], Verdict::Rejected), (slots[3], Verdict::Unselected), (slots[2], Verdict::Accepted)];
    hand.builder.discard(hand.now, discarded);
    let acknowledged = hand.done().acknowledged;
    assert_eq!(acknowledged.iter().map(|entry| entry.ending.verdict).collect::<Vec<_>>(), verdicts);
    let account = hand.builder.account();
    let decided = (account.accepted, account.unselected, account.rejected, account.quarantined);
    assert_eq!((account.built, decided, account.written), (4, (2, 1, 1, 1), 2));
    assert_eq!((hand.builder.in_work(), hand.done().credits.last().map(|credit| credit.events)), (0, None));
}

#[test]
fn what_was_not_emitted_yet_is_known_by_its_lowest_key() {
    let mut hand = Hand::new(config(1));
    assert_eq!(hand.builder.oldest_unemitted(), None);
    hand.assign([7, 8], 1);
    let requests = hand.done().requests[0].1.clone();
    assert_eq!(hand.builder.oldest_unemitted(), Some(key(7)));
    hand.answer(0, requests[0], &[0, 1]);
    assert_eq!(hand.builder.oldest_unemitted(), Some(key(7)), "it is ready and not emitted");
    assert_eq!(hand.done().emitted.len(), 1);
    assert_eq!(hand.builder.oldest_unemitted(), Some(key(8)));
}

#[test]
fn it_is_full_with_an_event_in_every_slot_or_with_nearly_all_bytes() {
    let mut hand = Hand::new(config(1));
    assert!(!hand.builder.is_full());
    hand.assign(1..=3, 1);
    assert!(!hand.builder.is_full());
    hand.assign([4], 1);
    assert!(hand.builder.is_full(), "there are four slots");
    let mut hand = Hand::new(BuilderConfig { slots: 100, ..config(1) });
    hand.assign(1..=8, 1);
    assert!(!hand.builder.is_full(), "of 1,000 bytes 800 are held");
    hand.assign([9], 1);
    assert!(hand.builder.is_full());
}

/// Builds an event whose sources 0, 1, 10, 11 ... have these crossings; returns the flagged sources.
fn flagged(config: BuilderConfig, crossings: &[Option<u16>]) -> Vec<u32> {
    let mut hand = Hand::new(config);
    hand.assign([1], 1);
    let requests = hand.done().requests;
    for (readout, entries) in requests {
        let place = 2 * usize::from(readout);
        let mut fragments: Vec<_> = (0..2).map(|number| fragment(1, u32::from(10 * readout) + number)).collect();
        for (fragment, crossing) in fragments.iter_mut().zip(&crossings[place..]) {
            fragment.meta.bunch_crossing = crossing.unwrap_or(0);
            fragment.meta.flags = crossing.map_or(FragmentFlags::default(), |_| FragmentFlags::HAS_BUNCH_CROSSING);
        }
        hand.answer_with(readout, entries[0], &mut fragments, None);
    }
    let slot = hand.done().emitted[0];
    let event = hand.builder.event(slot);
    let wrong = |flags: FragmentFlags| flags.contains(FragmentFlags::BUNCH_CROSSING_MISMATCH);
    let flagged: Vec<_> = event.fragments().filter(|one| wrong(one.meta.flags)).map(|one| one.meta.source.0).collect();
    let counted = hand.builder.config.sources.iter().zip(&hand.builder.mismatches).filter(|&(_, &count)| count > 0);
    assert_eq!(counted.map(|(source, _)| source.id.0).collect::<Vec<_>>(), flagged);
    flagged
}

#[test]
fn sources_that_agree_are_not_flagged() {
    assert!(flagged(config(2), &[Some(9); 4]).is_empty());
    assert!(flagged(config(2), &[Some(9), None, Some(9), None]).is_empty());
    assert!(flagged(config(2), &[None; 4]).is_empty());
}

#[test]
fn the_majority_is_right() {
    assert_eq!(flagged(config(2), &[Some(8), Some(9), Some(9), Some(9)]), [0]);
    assert_eq!(flagged(config(2), &[Some(9), Some(9), Some(8), Some(9)]), [10]);
    assert_eq!(flagged(config(3), &[Some(1), Some(2), Some(7), Some(7), Some(7), Some(7)]), [0, 1]);
    // Without a majority the first source is right.
    assert_eq!(flagged(config(2), &[Some(1), Some(2), Some(3), Some(4)]), [1, 10, 11]);
    assert_eq!(flagged(config(1), &[Some(1), Some(2)]), [1]);
}

#[test]
fn offsets_wrap_with_the_orbit() {
    let mut settings = config(1);
    settings.sources[1].bunch_crossing_offset = 2;
    assert!(flagged(settings.clone(), &[Some(12), Some(10)]).is_empty());
    assert!(flagged(settings.clone(), &[Some(1), Some(3563)]).is_empty());
    assert_eq!(flagged(settings.clone(), &[Some(10), Some(10)]), [1]);
    settings.sources[1].bunch_crossing_offset = -2;
    assert!(flagged(settings.clone(), &[Some(3563), Some(1)]).is_empty());
    settings.orbit = 0;
    settings.sources[0].bunch_crossing_mask = 0xff;
    settings.sources[1].bunch_crossing_mask = 0xff;
    assert!(flagged(settings, &[Some(0xff), Some(1)]).is_empty());
}

#[test]
fn only_bits_that_both_have_are_compared() {
    let mut settings = config(1);
    settings.sources[1].bunch_crossing_mask = 0xf;
    assert!(flagged(settings.clone(), &[Some(0x123), Some(0x3)]).is_empty());
    assert_eq!(flagged(settings.clone(), &[Some(0x123), Some(0x4)]), [1]);
    settings.sources[1].bunch_crossing_mask = 0;
    assert!(flagged(settings, &[Some(0x123), Some(0x4)]).is_empty());
}

#[test]
fn it_can_be_switched_off() {
    let settings = BuilderConfig { check_bunch_crossing: false, ..config(1) };
    assert!(flagged(settings, &[Some(1), Some(2)]).is_empty());
}

const SLIP: u64 = 300;
const EVENTS: u64 = 1000;

/// The bunch crossing of a trigger: without a pattern over a few hundred events.
fn crossing_of(trigger: u64) -> u16 {
    (trigger.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16 % 3564
}

struct Slipped {
    hand: Hand,
    told: Vec<SynchronyState>,
    stop: Vec<Cause>,
    flagged: Vec<(u64, u32)>,
}

/// Two sources; from event `SLIP` on source 1 delivers the data of the next trigger.
fn slip(action: Action) -> Slipped {
    let synchrony = Config { action, ..Config::new([SourceConfig::new(SourceId(0)), SourceConfig::new(SourceId(1))]) };
    let settings = BuilderConfig { synchrony: Some(synchrony), check_bunch_crossing: false, ..config(1) };
    let mut slipped = Slipped { hand: Hand::new(settings), told: vec![], stop: vec![], flagged: vec![] };
    for number in 1..=EVENTS {
        let hand = &mut slipped.hand;
        hand.assign([number], 1);
        let request = hand.done().requests[0].1[0];
        let mut fragments = vec![fragment(number, 0), fragment(number, 1)];
        fragments[0].meta.bunch_crossing = crossing_of(number);
        fragments[1].meta.bunch_crossing = crossing_of(if number < SLIP { number } else { number + 1 });
        hand.answer_with(0, request, &mut fragments, None);
        let done = hand.done();
        for fragment in hand.builder.event(done.emitted[0]).fragments() {
            if fragment.meta.flags.contains(FragmentFlags::DISPLACED) {
                slipped.flagged.push((number, fragment.meta.source.0));
            }
        }
        hand.written(done.emitted[0]);
        slipped.stop.extend(done.stop);
        slipped.told.extend(done.other.iter().map(|message| match message {
            Message::Synchrony(state) => *state,
            other => panic!("{other:?}"),
        }));
    }
    slipped
}

#[test]
fn a_source_that_slipped_is_reported_and_its_fragments_are_flagged() {
    let slipped = slip(Action::Flag);
    let displaced = slipped.told.iter().find(|state| state.verdict == 2).expect("the slip is reported");
    assert_eq!((displaced.source, displaced.offset), (SourceId(1), 1));
    assert!(displaced.since.number().abs_diff(SLIP) <= 2, "{displaced:?}");
    let (first, _) = slipped.flagged[0];
    assert!((SLIP..SLIP + 200).contains(&first), "found at {first}");
    assert!(slipped.flagged.iter().all(|&(_, source)| source == 1));
    assert_eq!(slipped.flagged.len() as u64, EVENTS + 1 - first);
    assert!(slipped.stop.is_empty());
    assert_eq!(slipped.hand.builder.paused(), None);
    let mut statuses = slipped.hand.builder.synchrony().expect("it is watched").statuses();
    assert!(statuses.any(|status| status.verdict == synchrony::Verdict::Offset(1)));
    assert_eq!(slipped.hand.builder.account().built, EVENTS);
}

#[test]
fn it_stops_the_run_where_that_is_asked_for() {
    assert_eq!(slip(Action::Stop).stop, [Cause::SynchronyOffset]);
}

#[test]
fn it_withholds_credit_where_a_pause_is_asked_for_until_it_is_resumed() {
    let mut hand = slip(Action::Pause).hand;
    assert_eq!(hand.builder.paused(), Some(Cause::SynchronyOffset));
    assert!(hand.done().credits.is_empty());
    hand.builder.resume();
    let credit = hand.done().credits[0];
    assert_eq!(credit.events, EVENTS + 4);
}

#[test]
fn a_new_run_forgets_the_slip() {
    let mut hand = slip(Action::Pause).hand;
    hand.say(&Message::Start(crate::messages::Start::of_run(super::key(1))));
    assert_eq!(hand.builder.paused(), None);
    assert!(!hand.builder.synchrony().expect("it is watched").any_displaced());
}
