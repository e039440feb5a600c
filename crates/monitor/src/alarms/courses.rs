//! Alarms by random rules on random runs, against a referee who knows what the documentation says of them and nothing of
//! the machine: since when a condition holds, whether an alarm is open, whether it is over, and whether somebody knows.

use super::{Alarms, Condition, Quantity, Rule, Severity, State};
use crate::Sample;
use crate::bottleneck::Limit;
use crate::made_up::{node, sample};
use core::time::Duration;
use ropewalk_terms::{Counter, Instant, NodeId};
use std::cmp::Reverse;

const SEEDS: u64 = 1_000;
const STEPS: u64 = 120;
const LIMITS: [Limit; 3] = [Limit::DiskFull, Limit::SourceSilent, Limit::NoData];

/// Choices from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn rule(&mut self, number: u64) -> Rule {
        let blocks = self.of(&[Condition::Above(10.0), Condition::Below(5.0)]);
        let limited = (Quantity::LimitedBy(self.of(&LIMITS)), Condition::Above(0.0));
        let (quantity, condition) = self.of(&[(Quantity::Value(Counter::PoolHeld), blocks), limited]);
        Rule {
            name: format!("alarm{number}"),
            severity: self.of(&[Severity::Notice, Severity::Warning, Severity::Critical]),
            quantity,
            condition,
            hold: Duration::from_secs(self.of(&[0, 0, 1, 2, 5])),
            is_latched: self.below(2) == 0,
        }
    }
}

/// What the referee knows of an alarm.
#[derive(Clone, Default)]
struct Known {
    /// Since when the condition holds; none while it does not.
    holds_since: Option<Instant>,
    /// It was raised, and is not done with.
    is_open: bool,
    /// Somebody has acknowledged it since.
    is_acknowledged: bool,
    shelved_until: Option<Instant>,
}

impl Known {
    fn look(&mut self, rule: &Rule, holds: bool, now: Instant) {
        if !holds {
            self.holds_since = None;
            let stays = rule.is_latched && !self.is_acknowledged;
            self.is_open &= stays;
        } else {
            let since = *self.holds_since.get_or_insert(now);
            self.is_open |= now.since(since) >= rule.hold;
        }
        self.is_acknowledged &= self.is_open;
    }

    /// Whether there was something to be acknowledged.
    fn acknowledge(&mut self) -> bool {
        let was_open = self.is_open;
        // What is over is done with; what goes on is known of until it is over.
        self.is_open &= self.holds_since.is_some();
        self.is_acknowledged = self.is_open;
        was_open
    }

    fn state(&self) -> State {
        match (self.is_open, self.holds_since.is_some()) {
            (false, false) => State::Normal,
            (false, true) => State::Pending,
            (true, false) => State::Latched,
            (true, true) if self.is_acknowledged => State::Acknowledged,
            (true, true) => State::Active,
        }
    }
}

/// A run: the machine, what the referee knows, and which changes must have been told.
struct Course {
    draw: Draw,
    rules: Vec<Rule>,
    alarms: Alarms,
    known: Vec<Known>,
    told: Vec<(String, State, State)>,
    heard: Vec<(String, State, State)>,
    next: u64,
    seconds: u64,
    blocks: u64,
    limit: Option<Limit>,
}

impl Course {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let rules: Vec<_> = (0..1 + draw.below(5)).map(|number| draw.rule(number)).collect();
        Self {
            alarms: Alarms::new(rules.clone()).expect("names are numbered"),
            known: vec![Known::default(); rules.len()],
            told: Vec::new(),
            heard: Vec::new(),
            next: 0,
            seconds: 1,
            blocks: 7,
            limit: None,
            rules,
            draw,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.seconds * 1_000_000_000)
    }

    /// Does `what` to one alarm that the referee knows, and notes how it changed.
    fn update(&mut self, place: usize, what: impl FnOnce(&mut Known, &Rule)) {
        let before = self.known[place].state();
        what(&mut self.known[place], &self.rules[place]);
        let after = self.known[place].state();
        if before != after {
            self.told.push((self.rules[place].name.clone(), before, after));
        }
    }

    fn observe(&mut self) {
        self.seconds += self.draw.below(3);
        if self.draw.below(3) == 0 {
            self.blocks = self.draw.below(20);
            // Now and then nobody can tell what limits the run.
            self.limit = self.draw.of(&[None, Some(LIMITS[0]), Some(LIMITS[1]), Some(LIMITS[2]), Some(Limit::Sources)]);
        }
        let nodes = vec![node(NodeId::readout(0), &[(Counter::PoolHeld, self.blocks)])];
        self.alarms.observe(Sample { nodes, ..sample(self.seconds, Vec::new()) }, self.limit);
        let (now, blocks, limit) = (self.now(), self.blocks as f64, self.limit);
        for place in 0..self.rules.len() {
            self.update(place, |known, rule| {
                known.shelved_until = known.shelved_until.filter(|&until| until > now);
                let holds = match (rule.quantity, rule.condition) {
                    (Quantity::LimitedBy(of), _) => limit.map(|limit| limit == of),
                    (_, Condition::Above(most)) => Some(blocks > most),
                    (_, Condition::Below(least)) => Some(blocks < least),
                };
                if let Some(holds) = holds {
                    known.look(rule, holds, now);
                }
            });
        }
    }

    fn acknowledge(&mut self, place: usize) {
        let mut was_open = false;
        self.update(place, |known, _| was_open = known.acknowledge());
        assert_eq!(self.alarms.acknowledge(&self.rules[place].name, "Ada").is_ok(), was_open);
    }

    fn shelve(&mut self, place: usize) {
        let time = Duration::from_secs(self.draw.below(6));
        self.known[place].shelved_until = (!time.is_zero()).then(|| self.now().after(time));
        self.alarms.shelve(&self.rules[place].name, time).expect("it is there");
    }

    fn step(&mut self) {
        let place = self.draw.below(self.rules.len() as u64) as usize;
        match self.draw.below(10) {
            0 => self.acknowledge(place),
            1 => self.shelve(place),
            _ => self.observe(),
        }
        let states: Vec<_> = self.alarms.all().iter().map(|alarm| alarm.state).collect();
        assert_eq!(states, self.known.iter().map(Known::state).collect::<Vec<_>>());
        let mut shown: Vec<_> = self.known.iter().zip(&self.rules).collect();
        shown.retain(|(known, _)| known.is_open && known.shelved_until.is_none());
        shown.sort_by_key(|(_, rule)| Reverse(rule.severity));
        let shown: Vec<_> = shown.into_iter().map(|(_, rule)| &rule.name).collect();
        assert_eq!(self.alarms.shown().into_iter().map(|alarm| &alarm.rule.name).collect::<Vec<_>>(), shown);
        if self.draw.below(4) == 0 {
            self.hear();
        }
    }

    /// Somebody reads on where he stopped, as whoever sends alarms on does.
    fn hear(&mut self) {
        for change in self.alarms.changes_from(self.next) {
            assert_eq!(change.number, self.next, "one is missing, or comes twice");
            self.next += 1;
            self.heard.push((change.name.clone(), change.from, change.to));
        }
    }
}

#[test]
fn alarms_are_what_the_documentation_says_whatever_happens_and_every_change_is_told_once() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut course = Course::new(seed);
        // Times count from the last sample on: before the first one there is none to count from.
        course.observe();
        (0..STEPS).for_each(|_| course.step());
        course.hear();
        assert_eq!(course.heard, course.told, "seed {seed}");
    }
}
