//! The assignment of events to filter units, and their fate when a filter unit ends: rule by rule, and with filter
//! units that end at random.

use crate::filter::{FarmAction, FarmConfig, FilterFarm};
use crate::supervision::SupervisorConfig;
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{Attempt, EventKey, Instant};
use std::collections::{BTreeMap, VecDeque};

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanoseconds(1_000_000 * milliseconds)
}

const SUPERVISION: SupervisorConfig = SupervisorConfig {
    timeout: Duration::from_millis(100),
    start_timeout: Duration::from_millis(1000),
    restart_delay: Duration::from_millis(50),
    restarts: 3,
};

/// A farm whose units are ready, each with this credit in events, at 0.
fn farm(units: u16, credit: u64) -> FilterFarm {
    let mut farm = FilterFarm::new(FarmConfig { units, slots: 16, supervision: SUPERVISION });
    for unit in 0..units {
        assert_eq!(farm.poll(at(0)), Some(FarmAction::Start { unit }));
    }
    (0..units).for_each(|unit| begin(&mut farm, unit, credit));
    farm
}

fn begin(farm: &mut FilterFarm, unit: u16, credit: u64) {
    farm.ready(unit);
    farm.granted(unit, credit);
}

fn add(farm: &mut FilterFarm, slots: impl IntoIterator<Item = u32>) {
    slots.into_iter().for_each(|slot| farm.add(slot, EventKey::new(0, u64::from(slot)), Attempt(1)));
}

/// The current offers: unit and slot.
fn offered(farm: &mut FilterFarm, now: Instant) -> Vec<(u16, u32)> {
    std::iter::from_fn(|| farm.poll(now))
        .map(|action| match action {
            FarmAction::Offer { unit, slot } => (unit, slot),
            other => panic!("it wants {other:?}"),
        })
        .collect()
}

fn decide(farm: &mut FilterFarm, unit: u16, slots: impl IntoIterator<Item = u32>) {
    slots.into_iter().for_each(|slot| assert!(farm.decided(unit, slot, Attempt(1)), "slot {slot}"));
}

/// Restarts a unit that has ended until it is ready. Returns the time.
fn again(farm: &mut FilterFarm, now: Instant, unit: u16, credit: u64) -> Instant {
    let later = now.after(SUPERVISION.restart_delay);
    assert!(farm.next_deadline().is_some_and(|due| due <= later));
    assert_eq!(farm.poll(later), Some(FarmAction::Start { unit }));
    begin(farm, unit, credit);
    later
}

#[test]
fn events_go_to_the_unit_with_the_least_work_and_credit() {
    let mut farm = farm(2, 3);
    add(&mut farm, 0..8);
    assert_eq!(offered(&mut farm, at(0)), [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5)], "three each, in turns");
    decide(&mut farm, 1, [1, 3]);
    assert_eq!(offered(&mut farm, at(1)), [], "credit is absolute: what was granted is used up");
    farm.granted(1, 5);
    assert_eq!(offered(&mut farm, at(1)), [(1, 6), (1, 7)]);
    decide(&mut farm, 0, [0, 2, 4]);
    decide(&mut farm, 1, [5, 6, 7]);
    assert_eq!((farm.in_work(), farm.counts().decided, farm.next_deadline()), (0, 8, None));
}

#[test]
fn a_decision_counts_once_and_only_from_the_unit_that_has_the_event() {
    let mut farm = farm(2, 4);
    add(&mut farm, [3]);
    assert_eq!(offered(&mut farm, at(0)), [(0, 3)]);
    assert!(!farm.decided(1, 3, Attempt(1)), "another one has it");
    assert!(!farm.decided(0, 3, Attempt(2)), "of another attempt");
    assert!(!farm.decided(0, 99, Attempt(1)), "there is no such slot");
    assert!(farm.decided(0, 3, Attempt(1)));
    assert!(!farm.decided(0, 3, Attempt(1)), "twice");
    assert_eq!((farm.counts().stale, farm.counts().decided), (4, 1));
}

#[test]
fn what_one_ended_over_is_tried_by_another_and_the_rest_is_returned_before_it() {
    let mut farm = farm(2, 4);
    add(&mut farm, 0..6);
    assert_eq!(offered(&mut farm, at(0)).len(), 6);
    decide(&mut farm, 0, [0]);
    farm.ended(at(2), 0);
    // Unit 1 has 1, 3 and 5, and takes one more.
    assert_eq!(offered(&mut farm, at(2)), [(1, 4)], "first what only waited behind it");
    decide(&mut farm, 1, [1, 3, 5, 4]);
    farm.granted(1, 8);
    assert_eq!(offered(&mut farm, at(3)), [(1, 2)]);
    farm.ended(at(4), 1);
    assert_eq!((farm.next_failed(), farm.next_failed(), farm.in_work()), (Some(2), None, 0), "twice is enough");
    assert_eq!((farm.counts().failed, farm.counts().returned, farm.restarted()), (1, 2, 2));
}

#[test]
fn one_that_hangs_is_ended_and_its_end_waited_for() {
    let mut farm = farm(1, 4);
    add(&mut farm, [0, 1]);
    assert_eq!(offered(&mut farm, at(0)).len(), 2);
    farm.progressed(at(60), 0, 1);
    decide(&mut farm, 0, [0]);
    assert_eq!((farm.poll(at(159)), farm.next_deadline()), (None, Some(at(160))), "the time is that of one event");
    assert_eq!(farm.poll(at(160)), Some(FarmAction::Kill { unit: 0 }));
    assert!(!farm.decided(0, 1, Attempt(1)), "a unit that is being killed is not listened to");
    assert_eq!((farm.poll(at(9000)), farm.in_work()), (None, 1), "it is not certain yet");
    farm.ended(at(9001), 0);
    let now = again(&mut farm, at(9001), 0, 4);
    assert_eq!(offered(&mut farm, now), [(0, 1)], "there is no other one");
    farm.disbelieve(0);
    assert_eq!(farm.poll(now), Some(FarmAction::Kill { unit: 0 }));
    farm.ended(now, 0);
    assert_eq!(farm.next_failed(), Some(1));
}

#[test]
fn a_unit_whose_decisions_are_not_fetched_does_not_hang() {
    let mut farm = farm(1, 4);
    add(&mut farm, [0, 1]);
    assert_eq!(offered(&mut farm, at(0)).len(), 2);
    farm.progressed(at(50), 0, 2);
    assert_eq!((farm.poll(at(9000)), farm.next_deadline()), (None, None));
    decide(&mut farm, 0, [0, 1]);
    farm.progressed(at(9000), 0, 99);
    add(&mut farm, [2]);
    assert_eq!(offered(&mut farm, at(9000)), [(0, 2)], "what says that it did more than there is did what there is");
    assert_eq!(farm.next_deadline(), Some(at(9100)));
}

#[test]
fn what_one_decided_before_it_was_to_end_counts_and_nothing_behind_it() {
    let mut farm = farm(1, 4);
    add(&mut farm, 0..4);
    assert_eq!(offered(&mut farm, at(0)).len(), 4);
    farm.progressed(at(10), 0, 2);
    assert_eq!(farm.poll(at(110)), Some(FarmAction::Kill { unit: 0 }));
    farm.progressed(at(111), 0, 3);
    decide(&mut farm, 0, [0, 1]);
    assert!(!farm.decided(0, 2, Attempt(1)), "too late");
    farm.ended(at(112), 0);
    let now = again(&mut farm, at(112), 0, 4);
    assert_eq!(offered(&mut farm, now), [(0, 3), (0, 2)], "it had ended over 2");
    farm.progressed(now, 0, 2);
    farm.disbelieve(0);
    assert!(!farm.decided(0, 3, Attempt(1)), "a unit that lies is believed nothing more");
}

#[test]
fn a_start_is_no_events_fault() {
    let mut farm = FilterFarm::new(FarmConfig { units: 1, slots: 4, supervision: SUPERVISION });
    add(&mut farm, [0]);
    assert_eq!(farm.poll(at(0)), Some(FarmAction::Start { unit: 0 }));
    assert_eq!(farm.poll(at(1000)), Some(FarmAction::Kill { unit: 0 }), "it is not ready in time");
    farm.ended(at(1001), 0);
    assert_eq!((farm.next_failed(), farm.in_work()), (None, 1));
    let now = again(&mut farm, at(1001), 0, 1);
    assert_eq!(offered(&mut farm, now), [(0, 0)]);
}

#[test]
fn when_the_run_must_end_nothing_waits_but_for_the_end_of_processes() {
    let mut farm = farm(2, 2);
    add(&mut farm, 0..6);
    assert_eq!(offered(&mut farm, at(0)), [(0, 0), (1, 1), (0, 2), (1, 3)]);
    farm.progressed(at(1), 0, 1);
    farm.close();
    assert_eq!((farm.next_failed(), farm.next_failed(), farm.next_failed()), (Some(4), Some(5), None));
    assert_eq!([0; 2].map(|_| farm.poll(at(1))), [0, 1].map(|unit| Some(FarmAction::Dismiss { unit })));
    decide(&mut farm, 0, [0]);
    assert!(!farm.decided(1, 1, Attempt(1)), "too late");
    farm.ended(at(2), 0);
    farm.ended(at(2), 1);
    let failed: Vec<u32> = std::iter::from_fn(|| farm.next_failed()).collect();
    assert_eq!((failed, farm.in_work(), farm.poll(at(9999))), (vec![2, 1, 3], 0, None), "no unit is started again");
    assert_eq!((farm.restarted(), farm.given_up()), (0, 0), "the run ended them: they did nothing wrong");
    add(&mut farm, [7]);
    assert_eq!(farm.next_failed(), Some(7));
    farm.open();
    add(&mut farm, [8]);
    let now = again(&mut farm, at(9999), 0, 1);
    assert_eq!(farm.next_failed(), None, "another run waits for its decisions");
    assert_eq!(farm.poll(now), Some(FarmAction::Start { unit: 1 }));
    assert_eq!(offered(&mut farm, now), [(0, 8)]);
}

#[test]
fn units_that_runs_end_are_never_given_up_and_one_that_ended_before_counts() {
    let mut farm = farm(1, 1);
    for run in 0..2 * u64::from(SUPERVISION.restarts) {
        farm.close();
        assert_eq!(farm.poll(at(run * 100)), Some(FarmAction::Dismiss { unit: 0 }));
        farm.ended(at(run * 100), 0);
        farm.open();
        assert_eq!(farm.poll(at(run * 100 + 50)), Some(FarmAction::Start { unit: 0 }));
        begin(&mut farm, 0, 1);
    }
    assert_eq!((farm.restarted(), farm.given_up()), (0, 0));
    // It took too long before the run ended it.
    add(&mut farm, [0]);
    assert_eq!(offered(&mut farm, at(1000)), [(0, 0)]);
    assert_eq!(farm.poll(at(1100)), Some(FarmAction::Kill { unit: 0 }));
    farm.close();
    farm.ended(at(1101), 0);
    assert_eq!(farm.restarted(), 1);
}

#[test]
fn when_all_are_given_up_nothing_waits() {
    let mut farm = farm(1, 1);
    add(&mut farm, [0, 1, 2]);
    let mut now = at(0);
    assert_eq!(offered(&mut farm, now), [(0, 0)]);
    for _ in 0..3 {
        farm.ended(now, 0);
        now = again(&mut farm, now, 0, 0);
    }
    farm.ended(now, 0);
    let failed: Vec<u32> = std::iter::from_fn(|| farm.next_failed()).collect();
    assert_eq!((failed, farm.given_up(), farm.in_work()), (vec![0, 1, 2], 1, 0));
    add(&mut farm, [3]);
    assert_eq!((farm.next_failed(), farm.poll(now.after(Duration::from_secs(99)))), (Some(3), None));
}

#[test]
fn what_is_not_taken_is_offered_again_first_when_there_is_room() {
    let mut farm = farm(1, 8);
    add(&mut farm, [0, 1, 2]);
    assert_eq!(farm.poll(at(0)), Some(FarmAction::Offer { unit: 0, slot: 0 }));
    assert_eq!(farm.poll(at(0)), Some(FarmAction::Offer { unit: 0, slot: 1 }));
    farm.not_taken(0);
    assert_eq!(farm.poll(at(0)), None, "it has said that it has no room");
    decide(&mut farm, 0, [0]);
    farm.granted(0, 9);
    assert_eq!(offered(&mut farm, at(1)), [(0, 1), (0, 2)]);
    assert_eq!(farm.oldest(), Some(EventKey::new(0, 1)));
    add(&mut farm, [3, 4]);
    assert_eq!(farm.poll(at(1)), Some(FarmAction::Offer { unit: 0, slot: 3 }));
    farm.too_large(0);
    assert_eq!((farm.next_failed(), offered(&mut farm, at(1))), (Some(3), vec![(0, 4)]), "the others go on");
}

const SLOTS: u32 = 12;
const CREDIT: u64 = 4;

/// The processes, outside of the machine.
struct Bench {
    farm: FilterFarm,
    now: Instant,
    has: Vec<VecDeque<u32>>,
    decided: Vec<u64>,
    /// By slot: the event, and the number of its attempts in which a process ended.
    events: BTreeMap<u32, (u64, u8)>,
    next: u64,
    ended: u64,
}

impl Bench {
    fn new(units: u16) -> Self {
        // Restarts are unlimited: giving up on all units is another test.
        let supervision = SupervisorConfig { restarts: 100_000, ..SUPERVISION };
        Self {
            farm: FilterFarm::new(FarmConfig { units, slots: SLOTS, supervision }),
            now: at(0),
            has: vec![VecDeque::new(); usize::from(units)],
            decided: vec![0; usize::from(units)],
            events: BTreeMap::new(),
            next: 0,
            ended: 0,
        }
    }

    fn end(&mut self, unit: u16) {
        let had = core::mem::take(&mut self.has[usize::from(unit)]);
        if let Some(event) = had.front().and_then(|slot| self.events.get_mut(slot)) {
            event.1 += 1;
        }
        self.farm.ended(self.now, unit);
    }

    fn act(&mut self) {
        while let Some(action) = self.farm.poll(self.now) {
            match action {
                FarmAction::Start { unit } => {
                    self.decided[usize::from(unit)] = 0;
                    self.farm.ready(unit);
                    self.farm.granted(unit, CREDIT);
                }
                FarmAction::Kill { unit } | FarmAction::Dismiss { unit } => self.end(unit),
                FarmAction::Offer { unit, slot } => {
                    let has = &mut self.has[usize::from(unit)];
                    has.push_back(slot);
                    assert!(has.len() as u64 <= CREDIT, "beyond its credit");
                }
            }
        }
        while let Some(slot) = self.farm.next_failed() {
            let (_, tries) = self.events.remove(&slot).expect("it was in the farm");
            assert_eq!(tries, SupervisorConfig::TRIES, "it was tried as often as it may be");
            self.ended += 1;
        }
    }

    fn step(&mut self, choice: u8, which: u8) {
        let unit = usize::from(which) % self.has.len();
        match choice % 8 {
            0..=2 => {
                if let Some(slot) = (0..SLOTS).find(|slot| !self.events.contains_key(slot)) {
                    self.farm.add(slot, EventKey::new(0, self.next), Attempt(1));
                    self.events.insert(slot, (self.next, 0));
                    self.next += 1;
                }
            }
            3..=5 => {
                if let Some(slot) = self.has[unit].pop_front() {
                    assert!(self.farm.decided(unit as u16, slot, Attempt(1)), "it was its own");
                    self.events.remove(&slot).expect("each is decided once");
                    self.ended += 1;
                    self.decided[unit] += 1;
                    self.farm.progressed(self.now, unit as u16, self.decided[unit]);
                    self.farm.granted(unit as u16, CREDIT + self.decided[unit]);
                }
            }
            6 => self.end(unit as u16),
            _ => self.now = self.now.after(Duration::from_millis(u64::from(which))),
        }
        self.act();
    }
}

proptest! {
    #[test]
    fn every_event_ends_once_in_any_crashes(units in 1..4_u16, steps in proptest::collection::vec(any::<(u8, u8)>(), 0..400)) {
        let mut bench = Bench::new(units);
        for (choice, which) in steps {
            bench.step(choice, which);
            let waiting = bench.events.values().map(|&(number, _)| EventKey::new(0, number)).min();
            prop_assert_eq!((bench.farm.in_work(), bench.farm.oldest()), (bench.events.len(), waiting));
        }
        for turn in 0..10_000_u32 {
            // Time passes only when nothing else can be done: no unit is killed for slowness.
            let all_idle = bench.has.iter().all(VecDeque::is_empty);
            bench.step(if all_idle { 7 } else { 3 }, if all_idle { 50 } else { (turn % 4) as u8 });
            if bench.events.is_empty() {
                break;
            }
        }
        prop_assert_eq!((bench.ended, bench.farm.in_work()), (bench.next, 0));
    }
}
