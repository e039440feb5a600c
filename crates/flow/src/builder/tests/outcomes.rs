//! What becomes of events: policies, acknowledgement levels, and events that cannot be written.

use super::hand::{Hand, acknowledged, config, key};
use crate::builder::{Builder, BuilderConfig, BuilderConfigError, IncompletePolicy};
use ropewalk_terms::{AcknowledgementLevel, Cause, Counter, Outcome, Requirement, SourceId, Verdict};

/// Assigns an event and leaves source 1 out.
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
        // One that is named twice, one that is still collected, and one that is none.
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
        // Whatever it is, it must not panic.
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
    // One that is named twice ends once.
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
    assert_eq!(hand.builder.oldest_unemitted(), Some(key(7)), "it is ready, and nobody has it");
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
