//! Alarms by random rules, against a referee who knows what the documentation says of them and nothing of the machine: since when a
//! condition holds, whether an alarm is open, whether it is over, and whether somebody knows.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::made_up::{node, running};
use ropewalk_monitor::alarms::{Alarms, Condition, Quantity, Rule, Severity, State};
use ropewalk_monitor::bottleneck::Limit;
use ropewalk_terms::{Counter, NodeId};
use std::cmp::Reverse;
use std::time::Duration;

const LIMITS: [Limit; 3] = [Limit::DiskFull, Limit::SourceSilent, Limit::NoData];

fn rule(draw: &mut Draw, number: u64) -> Rule {
    let blocks = draw.of(&[Condition::Above(10.0), Condition::Below(5.0)]);
    let limited = (Quantity::LimitedBy(draw.of(&LIMITS)), Condition::Above(0.0));
    let (quantity, condition) = draw.of(&[(Quantity::Value(Counter::PoolHeld), blocks), limited]);
    Rule {
        name: format!("alarm{number}"),
        severity: draw.of(&[Severity::Notice, Severity::Warning, Severity::Critical]),
        quantity,
        condition,
        hold: Duration::from_secs(draw.of(&[0, 0, 1, 2, 5])),
        is_latched: draw.one_in(2),
    }
}

/// What the referee knows of an alarm. Times are since somebody began to count.
#[derive(Clone, Default)]
struct Known {
    /// Since when the condition holds; none while it does not.
    holds_since: Option<Duration>,
    /// It was raised, and is not done with.
    is_open: bool,
    /// Somebody has acknowledged it since.
    is_acknowledged: bool,
    shelved: Option<Shelved>,
}

/// How long an alarm is not shown.
#[derive(Copy, Clone)]
enum Shelved {
    Until(Duration),
    /// Nobody knows yet what time it is: from the first look on.
    For(Duration),
}

impl Known {
    fn look(&mut self, rule: &Rule, holds: bool, now: Duration) {
        if !holds {
            self.holds_since = None;
            let stays = rule.is_latched && !self.is_acknowledged;
            self.is_open &= stays;
        } else {
            let since = *self.holds_since.get_or_insert(now);
            self.is_open |= now - since >= rule.hold;
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

    fn tell_time(&mut self, now: Duration) {
        let until = match self.shelved {
            Some(Shelved::For(time)) => Some(now + time),
            Some(Shelved::Until(until)) => Some(until),
            None => None,
        };
        self.shelved = until.filter(|&until| until > now).map(Shelved::Until);
    }

    const fn state(&self) -> State {
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
pub(super) struct AlarmCourse {
    draw: Draw,
    rules: Vec<Rule>,
    alarms: Alarms,
    known: Vec<Known>,
    told: Vec<(String, State, State)>,
    heard: Vec<(String, State, State)>,
    next: u64,
    now: Duration,
    has_looked: bool,
    blocks: u64,
    limit: Option<Limit>,
}

impl AlarmCourse {
    pub(super) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0a1b);
        let rules: Vec<_> = (0..draw.between(1, 5)).map(|number| rule(&mut draw, number)).collect();
        Self {
            alarms: Alarms::new(rules.clone()).expect("names are numbered"),
            known: vec![Known::default(); rules.len()],
            told: Vec::new(),
            heard: Vec::new(),
            next: 0,
            now: Duration::from_secs(draw.below(100_000)),
            has_looked: false,
            blocks: 7,
            limit: None,
            rules,
            draw,
        }
    }

    pub(super) fn run(mut self, steps: u64) -> Result<(), Broken> {
        for _ in 0..steps {
            let place = self.draw.below(self.rules.len() as u64) as usize;
            match self.draw.below(10) {
                0 => self.acknowledge(place)?,
                1 => self.shelve(place)?,
                _ => self.observe(),
            }
            self.check()?;
            if self.draw.one_in(4) {
                self.hear()?;
            }
        }
        self.hear()?;
        Broken::unless(self.heard == self.told, Checker::Content, || {
            format!("told were {:?}, and it should be {:?}", self.heard, self.told)
        })
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
        self.now += Duration::from_secs(self.draw.below(3));
        self.has_looked = true;
        if self.draw.one_in(3) {
            self.blocks = self.draw.below(20);
            // Now and then nobody can tell what limits the run.
            self.limit = self.draw.of(&[None, Some(LIMITS[0]), Some(LIMITS[1]), Some(LIMITS[2]), Some(Limit::Sources)]);
        }
        let nodes = vec![node(NodeId::readout(0), &[(Counter::PoolHeld, self.blocks)])];
        self.alarms.observe(running(3, self.now, nodes, Vec::new()), self.limit);
        let (now, blocks, limit) = (self.now, self.blocks as f64, self.limit);
        for place in 0..self.rules.len() {
            self.update(place, |known, rule| {
                known.tell_time(now);
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

    fn acknowledge(&mut self, place: usize) -> Result<(), Broken> {
        let mut was_open = false;
        self.update(place, |known, _| was_open = known.acknowledge());
        let is_done = self.alarms.acknowledge(&self.rules[place].name, "Ada").is_ok();
        let words = || format!("alarm {place} is acknowledged: {is_done}, and it was raised: {was_open}");
        Broken::unless(is_done == was_open, Checker::Content, words)
    }

    fn shelve(&mut self, place: usize) -> Result<(), Broken> {
        let time = Duration::from_secs(self.draw.below(6));
        let shelved = if self.has_looked { Shelved::Until(self.now + time) } else { Shelved::For(time) };
        self.known[place].shelved = (!time.is_zero()).then_some(shelved);
        let is_there = self.alarms.shelve(&self.rules[place].name, time, "Ada").is_ok();
        Broken::unless(is_there, Checker::Content, || format!("there is no alarm {place}"))
    }

    fn check(&self) -> Result<(), Broken> {
        let states: Vec<_> = self.alarms.all().iter().map(|alarm| alarm.state).collect();
        let should: Vec<_> = self.known.iter().map(Known::state).collect();
        let words = || format!("alarms are {states:?}, and should be {should:?}, by {:?}", self.rules);
        Broken::unless(states == should, Checker::Content, words)?;
        let mut open: Vec<_> = self.known.iter().zip(&self.rules).collect();
        open.retain(|(known, _)| known.is_open && known.shelved.is_none());
        open.sort_by_key(|(_, rule)| Reverse(rule.severity));
        let open: Vec<_> = open.into_iter().map(|(_, rule)| &rule.name).collect();
        let shown: Vec<_> = self.alarms.shown().into_iter().map(|alarm| &alarm.rule.name).collect();
        Broken::unless(shown == open, Checker::Content, || format!("{shown:?} are shown, and should be {open:?}"))
    }

    /// Somebody reads on where they stopped, as whoever sends alarms on does.
    fn hear(&mut self) -> Result<(), Broken> {
        for change in self.alarms.changes_from(self.next) {
            let words = || format!("change {} is told, and the next one is {}", change.number, self.next);
            Broken::unless(change.number == self.next, Checker::Keys, words)?;
            self.next += 1;
            self.heard.push((change.name.clone(), change.from, change.to));
        }
        Ok(())
    }
}
