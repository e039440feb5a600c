//! One source misses a trigger or counts one twice, seen by bunch crossing.

use super::super::{Doubt, REACH};
use super::*;
use proptest::prelude::*;

const EVENTS: usize = 1200;

fn crossing(trigger: &Trigger) -> Observation {
    Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing)
}

/// Source 0 in step, source 1 as given by `carried`.
fn feed_crossings(seed: u64, carried: &[usize]) -> (Synchrony, Vec<Change>) {
    let triggers = random_triggers(seed, EVENTS + 200);
    let mut machine = machine(config(2));
    let changes =
        feed(&mut machine, EVENTS, |event| vec![crossing(&triggers[event]), crossing(&triggers[carried[event]])]);
    (machine, changes)
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn a_slip_of_any_size_within_reach_is_found(seed: u64, at in 0..700_usize, size in 1..=REACH as usize, early: bool) {
        let carried = in_step(EVENTS + 200);
        let carried = if early { losing(carried, at, size) } else { doubling(carried, at, size) };
        let (_, changes) = feed_crossings(seed, &carried);
        let (verdict, since, found) = *verdicts(&changes, 1).last().expect("there is a verdict");
        let offset = if early { size as i16 } else { -(size as i16) };
        prop_assert_eq!(verdict, Verdict::Offset(offset));
        // A trigger counted twice is right the first time; chance may hide an event at the edge.
        let first = if early { at } else { at + size };
        prop_assert!(since.abs_diff(first as u64) <= 1, "slipped at {first}, said since {since}");
        prop_assert!(found <= (at + 200) as u64, "slipped at {at}, found at {found}");
    }

    #[test]
    fn without_a_slip_the_only_verdict_is_in_sync(seed: u64) {
        let (_, changes) = feed_crossings(seed, &in_step(EVENTS + 200));
        let verdicts = verdicts(&changes, 1);
        prop_assert_eq!(verdicts.len(), 1);
        prop_assert_eq!((verdicts[0].0, verdicts[0].1), (Verdict::InSync, 0));
    }

    #[test]
    fn single_errors_change_no_verdict(seed: u64, rate in 0.0..0.05_f64) {
        let triggers = random_triggers(seed, EVENTS);
        let (mut random, mut machine) = (Random(seed ^ 1), machine(config(2)));
        let changes = feed(&mut machine, EVENTS, |event| {
            let wrong = Observation::MISSING.with_bunch_crossing(random.below(3564) as u16);
            let right = crossing(&triggers[event]);
            let mut say = || if random.chance(rate) { wrong } else { right };
            vec![say(), say()]
        });
        prop_assert_eq!(verdicts(&changes, 1).len(), 1);
        prop_assert_eq!(verdicts(&changes, 1)[0].0, Verdict::InSync);
    }

    #[test]
    fn bursts_of_missing_fragments_hide_no_slip_and_make_none(seed: u64, slips: bool) {
        let triggers = random_triggers(seed, 3000);
        let carried = if slips { losing(in_step(3000), 900, 1) } else { in_step(3000) };
        let mut config = config(2);
        config.reference = Some(SourceId(0));
        let (mut random, mut machine) = (Random(seed ^ 2), machine(config));
        let mut burst = [0_u64; 2];
        let mut present = Vec::new();
        let changes = feed(&mut machine, 2000, |event| {
            let seen = [crossing(&triggers[event]), crossing(&triggers[carried[event]])];
            for burst in &mut burst {
                *burst = if *burst == 0 && random.chance(0.02) { random.below(40) } else { burst.saturating_sub(1) };
            }
            present.push(burst.map(|left| left == 0));
            (0..2).map(|source| if burst[source] == 0 { seen[source] } else { Observation::MISSING }).collect()
        });
        let verdicts = verdicts(&changes, 1);
        prop_assert_eq!(verdicts[0].0, Verdict::InSync);
        prop_assert_eq!(verdicts.len(), if slips { 2 } else { 1 });
        if slips {
            prop_assert_eq!(verdicts[1].0, Verdict::Offset(1));
            // The first event after the slip with both fragments.
            let first = (900..).find(|&event| present[event][1] && present[event + 1][0]).expect("bursts end");
            prop_assert!(verdicts[1].1.abs_diff(first as u64) <= 1, "slipped at {first}, said since {}", verdicts[1].1);
        }
    }

    #[test]
    fn anything_at_all_is_taken_in(rows in prop::collection::vec((any::<u64>(), any::<u16>(), any::<u64>(), 0..4_u8), 0..600)) {
        let mut machine = machine(config(2));
        for (key, crossing, time, kinds) in rows {
            let mut one = Observation::MISSING;
            if kinds & 1 != 0 { one = one.with_bunch_crossing(crossing); }
            if kinds & 2 != 0 { one = one.with_time(time); }
            machine.observe(EventKey::from_bits(key), &[one]);
            machine.observe(EventKey::from_bits(key % 500), &[one, one, one]);
        }
        machine.conclude();
        let change = machine.poll();
        prop_assert!(!change.is_some_and(|change| change.verdict.is_displaced()));
    }
}

#[test]
fn a_source_that_returns_to_step_is_in_sync_again_and_its_past_is_reported() {
    let carried = doubling(losing(in_step(EVENTS + 200), 300, 1), 700, 1);
    let (machine, changes) = feed_crossings(7, &carried);
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Offset(1), 300), (Verdict::InSync, 701)]);
    let status = machine.statuses().nth(1).expect("two sources");
    assert_eq!(status.to_string(), "source 1: in sync since event 701; before that one event early since event 300");
    assert!((300..=420).contains(&status.displaced_events), "{} events flagged", status.displaced_events);
}

#[test]
fn two_slips_add_up() {
    let carried = losing(losing(in_step(EVENTS + 200), 300, 1), 600, 2);
    let (_, changes) = feed_crossings(8, &carried);
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Offset(1), 300), (Verdict::Offset(3), 600)]);
}

#[test]
fn ids_that_start_at_0_against_1_are_an_offset_from_the_first_event() {
    let (_, changes) = feed_crossings(9, &losing(in_step(EVENTS + 200), 0, 1));
    assert_eq!(verdicts(&changes, 1).len(), 1);
    assert_eq!((verdicts(&changes, 1)[0].0, verdicts(&changes, 1)[0].1), (Verdict::Offset(1), 0));
}

#[test]
fn a_stuck_bit_is_no_offset() {
    for bit in [0_u32, 3, 6, 8, 10] {
        let triggers = random_triggers(11, 5000);
        let mut machine = machine(config(3));
        let changes = feed(&mut machine, 5000, |event| {
            let trigger = &triggers[event];
            vec![
                crossing(trigger),
                Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing & !(1 << bit)),
                Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing | 1 << bit),
            ]
        });
        for source in [1, 2] {
            let told = verdicts(&changes, source);
            assert!(told.iter().all(|told| told.0 == Verdict::InSync), "bit {bit}, source {source}: {told:?}");
            assert_eq!(told.len(), 1, "bit {bit}, source {source}: {told:?}");
            let status = machine.statuses().nth(source as usize).expect("three sources");
            assert_eq!(status.stuck_bits, 1 << bit, "{status}");
        }
    }
}

#[test]
fn a_stuck_bit_in_the_event_id_leaves_gaps_and_no_offset() {
    // Bit 3 of the source's event number is stuck at 0: every second group of eight fragments is dropped as duplicates
    // before the check.
    let triggers = random_triggers(12, EVENTS);
    let mut machine = machine(config(2));
    let changes = feed(&mut machine, EVENTS, |event| {
        let own = if event & 8 == 0 { crossing(&triggers[event]) } else { Observation::MISSING };
        vec![crossing(&triggers[event]), own]
    });
    assert_eq!(verdicts(&changes, 1).len(), 1);
    assert_eq!(verdicts(&changes, 1)[0].0, Verdict::InSync);
}

#[test]
fn a_source_that_speaks_nonsense_is_lost_and_found() {
    let triggers = random_triggers(13, EVENTS);
    let (mut random, mut machine) = (Random(14), machine(config(2)));
    let changes = feed(&mut machine, EVENTS, |event| {
        let nonsense = Observation::MISSING.with_bunch_crossing(random.below(3564) as u16);
        let own = if (400..800).contains(&event) { nonsense } else { crossing(&triggers[event]) };
        vec![crossing(&triggers[event]), own]
    });
    let told = verdicts(&changes, 1);
    let short: Vec<_> = told.iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(short, [(Verdict::InSync, 0), (Verdict::Lost, 400), (Verdict::InSync, 800)]);
    assert!(told[1].2 <= 600, "found at {}", told[1].2);
    assert!(told[2].2 <= 900, "found at {}", told[2].2);
}

#[test]
fn keys_without_any_relation_are_not_called_lost() {
    let (mut random, mut machine) = (Random(15), machine(config(2)));
    let changes = feed(&mut machine, EVENTS, |_| {
        (0..2).map(|_| Observation::MISSING.with_bunch_crossing(random.below(3564) as u16)).collect()
    });
    assert_eq!(verdicts(&changes, 1).len(), 1);
    assert_eq!(verdicts(&changes, 1)[0].0, Verdict::CannotTell(Doubt::NoRelation));
}

#[test]
fn configured_offsets_and_masks_count() {
    let triggers = random_triggers(16, EVENTS + 1);
    let carried = losing(in_step(EVENTS + 1), 600, 1);
    let mut config = config(2);
    config.sources[0].bunch_crossing_offset = 5;
    config.sources[1].bunch_crossing_offset = -20;
    config.sources[1].bunch_crossing_mask = 0x3ff;
    let mut machine = machine(config);
    let raw = |trigger: &Trigger, offset: i32| (i32::from(trigger.bunch_crossing) - offset).rem_euclid(3564) as u16;
    let changes = feed(&mut machine, EVENTS, |event| {
        // The two bits beyond the mask are noise.
        let own = raw(&triggers[carried[event]], -20) & 0x3ff | ((event as u16 * 7) << 10);
        vec![
            Observation::MISSING.with_bunch_crossing(raw(&triggers[event], 5)),
            Observation::MISSING.with_bunch_crossing(own),
        ]
    });
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Offset(1), 600)]);
}

#[test]
fn a_reference_that_slips_displaces_all_other_sources() {
    let triggers = random_triggers(17, EVENTS + 1);
    let carried = losing(in_step(EVENTS + 1), 600, 1);
    let mut machine = machine(config(40));
    let changes = feed(&mut machine, EVENTS, |event| {
        let mut row = vec![crossing(&triggers[event]); 40];
        row[0] = crossing(&triggers[carried[event]]);
        row
    });
    for source in 1..40 {
        let (verdict, since, at) = *verdicts(&changes, source).last().expect("there is a verdict");
        assert_eq!(verdict, Verdict::Offset(-1));
        assert!((600..=601).contains(&since) && at <= 800, "since {since}, at {at}");
    }
}

#[test]
fn a_reference_that_falls_silent_is_replaced_unless_it_is_configured() {
    let triggers = random_triggers(18, 2000);
    for configured in [false, true] {
        let mut config = config(3);
        config.reference = configured.then_some(SourceId(0));
        let mut machine = machine(config);
        feed(&mut machine, 2000, |event| {
            let first = if event < 300 { crossing(&triggers[event]) } else { Observation::MISSING };
            vec![first, crossing(&triggers[event]), crossing(&triggers[event])]
        });
        let verdict = machine.statuses().nth(2).map(|status| status.verdict);
        if configured {
            assert_eq!(machine.reference(), Some(SourceId(0)));
            assert_eq!(verdict, Some(Verdict::CannotTell(Doubt::TooFew)));
        } else {
            assert_eq!(machine.reference(), Some(SourceId(1)));
            assert_eq!(verdict, Some(Verdict::InSync));
        }
    }
}

#[test]
fn a_builder_unit_that_sees_every_other_event_finds_what_it_can() {
    let triggers = random_triggers(24, 3000);
    let timed = |trigger: &Trigger| Observation::MISSING.with_time(trigger.time as u64);
    // For half of the offsets no event was seen by both: there only the loss of the relation can be reported.
    for (lost, verdict) in [(0, Verdict::InSync), (1, Verdict::Lost), (2, Verdict::Offset(2))] {
        for observe in [&crossing as &dyn Fn(&Trigger) -> Observation, &timed] {
            let carried = losing(in_step(3000), 1200, lost);
            let mut machine = machine(config(2));
            for event in (0..2400).step_by(2) {
                let row = [observe(&triggers[event]), observe(&triggers[carried[event]])];
                machine.observe(EventKey::new(0, event as u64), &row);
            }
            assert_eq!(machine.statuses().nth(1).map(|status| status.verdict), Some(verdict));
        }
    }
}

#[test]
fn a_builder_unit_that_sees_every_third_batch_finds_the_slip() {
    let triggers = random_triggers(19, 6000);
    let carried = losing(in_step(6000), 3000, 1);
    let mut machine = machine(config(2));
    let mut last = None;
    for event in (0..5900).filter(|event| event / 16 % 3 == 0) {
        let row = [crossing(&triggers[event]), crossing(&triggers[carried[event]])];
        machine.observe(EventKey::new(0, event as u64), &row);
        last = machine.poll().or(last);
    }
    let change = last.expect("there is a verdict");
    assert_eq!(change.verdict, Verdict::Offset(1));
    assert!((3000..3050).contains(&change.since.number()), "{change}");
}

#[test]
fn events_out_of_order_are_no_slip() {
    let triggers = random_triggers(20, EVENTS);
    let mut order: Vec<usize> = (0..EVENTS).collect();
    let mut random = Random(21);
    for block in order.chunks_mut(8) {
        for place in 0..block.len() {
            block.swap(place, random.below(block.len() as u64) as usize);
        }
    }
    let mut machine = machine(config(3));
    let mut told = Vec::new();
    for event in order {
        let trigger = &triggers[event];
        let timed = Observation::MISSING.with_time(trigger.time as u64);
        let both = timed.with_bunch_crossing(trigger.bunch_crossing);
        machine.observe(EventKey::new(0, event as u64), &[both, crossing(trigger), timed]);
        told.extend(machine.poll());
    }
    told.sort_by_key(|change| change.source);
    assert_eq!(told.iter().map(|change| change.verdict).collect::<Vec<_>>(), [Verdict::InSync; 2]);
}

#[test]
fn a_resynchronisation_ends_a_displacement() {
    let triggers = random_triggers(22, 2000);
    let carried = losing(in_step(2000), 300, 1);
    let mut machine = machine(config(2));
    let mut told = Vec::new();
    for event in 0..1200 {
        let resync = u16::from(event >= 600);
        let own = if resync == 0 { carried[event] } else { event };
        let number = event as u64 % 600;
        machine.observe(EventKey::new(resync, number), &[crossing(&triggers[event]), crossing(&triggers[own])]);
        told.extend(machine.poll());
    }
    let lines: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "source 1: in sync since event 0",
            "source 1: one event early since event 300",
            "source 1: in sync since event 1:0"
        ]
    );
}

#[test]
fn the_end_of_a_run_is_judged_without_waiting() {
    let triggers = random_triggers(23, 200);
    let carried = losing(in_step(200), 80, 1);
    let mut machine = machine(config(2));
    feed(&mut machine, 97, |event| vec![crossing(&triggers[event]), crossing(&triggers[carried[event]])]);
    machine.conclude();
    let status = machine.statuses().nth(1).expect("two sources");
    assert_eq!((status.verdict, status.since.number()), (Verdict::Offset(1), 80));
}
