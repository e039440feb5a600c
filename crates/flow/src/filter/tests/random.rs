//! Filter units that end whenever they like: every event is decided once or has failed, and nobody waits for ever.

use super::farm::{SUPERVISION, at};
use crate::filter::{FarmAction, FarmConfig, FilterFarm};
use crate::supervision::SupervisorConfig;
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{Attempt, EventKey, Instant};
use std::collections::{BTreeMap, VecDeque};

const SLOTS: u32 = 12;
const CREDIT: u64 = 4;

/// What the processes are, beside the machine.
struct Bench {
    farm: FilterFarm,
    now: Instant,
    has: Vec<VecDeque<u32>>,
    decided: Vec<u64>,
    /// By slot: which event, and over how many of its tries a process ended.
    events: BTreeMap<u32, (u64, u8)>,
    next: u64,
    ended: u64,
}

impl Bench {
    fn new(units: u16) -> Self {
        // Ends are as many as there are: that all are given up is another test.
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
                FarmAction::Kill { unit } => self.end(unit),
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
    fn every_event_ends_once_whoever_crashes(units in 1..4_u16, steps in proptest::collection::vec(any::<(u8, u8)>(), 0..400)) {
        let mut bench = Bench::new(units);
        for (choice, which) in steps {
            bench.step(choice, which);
            let waiting = bench.events.values().map(|&(number, _)| EventKey::new(0, number)).min();
            prop_assert_eq!((bench.farm.in_work(), bench.farm.oldest()), (bench.events.len(), waiting));
        }
        for turn in 0..10_000_u32 {
            // Time passes only where nothing else can be done: nobody is ended for being slow.
            let all_idle = bench.has.iter().all(VecDeque::is_empty);
            bench.step(if all_idle { 7 } else { 3 }, if all_idle { 50 } else { (turn % 4) as u8 });
            if bench.events.is_empty() {
                break;
            }
        }
        prop_assert_eq!((bench.ended, bench.farm.in_work()), (bench.next, 0));
    }
}
