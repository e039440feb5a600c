//! The state of every alarm.

use super::rule::{Look, Rule, Severity};
use crate::bottleneck::Limit;
use crate::{Rates, RunTrend, Sample};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Instant, Utc};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes that are kept; older ones are forgotten.
const MOST_CHANGES: usize = 1_000;
/// Bytes of somebody's name that are kept.
const LONGEST_NAME: usize = 64;

/// How an alarm is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Normal,
    /// Not as it should be, and not yet for the hold time.
    Pending,
    /// Raised, and nobody has acknowledged it.
    Active,
    /// Raised, and somebody knows.
    Acknowledged,
    /// Over, and nobody has acknowledged it.
    Latched,
}

/// A change of an alarm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Counted from 0 for all alarms; what is missing in front was forgotten.
    pub number: u64,
    /// When, in nanoseconds since 1970-01-01T00:00:00Z.
    pub utc_nanoseconds: i64,
    /// Which alarm.
    pub name: String,
    /// How it was.
    pub from: State,
    /// How it is.
    pub to: State,
    /// The value that it looked at last; none where it has not been told.
    pub value: Option<f64>,
    /// Who did it; none where it came by itself.
    pub by: Option<String>,
}

/// An alarm as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Alarm {
    /// Its rule.
    pub rule: Rule,
    /// How it is.
    pub state: State,
    /// Since when it is so.
    pub since: Instant,
    /// The value that it looked at last; none where it has not been told.
    pub value: Option<f64>,
    /// Who knows, of one that is acknowledged.
    pub known_by: Option<String>,
    /// Until when it is not shown.
    pub shelved_until: Option<Instant>,
    /// Who shelved it.
    pub shelved_by: Option<String>,
}

/// As much of somebody's name as is kept.
fn short(by: &str) -> String {
    by[..by.floor_char_boundary(LONGEST_NAME)].to_owned()
}

impl Alarm {
    /// It is so late.
    fn pass(&mut self, now: Instant) {
        if self.shelved_until.is_some_and(|until| until <= now) {
            (self.shelved_until, self.shelved_by) = (None, None);
        }
    }

    fn next(&self, holds: bool, now: Instant) -> State {
        let is_due = |since: Instant| now.since(since) >= self.rule.hold;
        match (self.state, holds) {
            (State::Normal, true) if self.rule.hold.is_zero() || is_planted(Flaw::AlarmHoldIgnored) => State::Active,
            (State::Normal, true) => State::Pending,
            (State::Pending, true) if is_due(self.since) => State::Active,
            (State::Pending | State::Acknowledged, false) => State::Normal,
            (State::Active, false) if self.rule.is_latched && !is_planted(Flaw::LatchForgotten) => State::Latched,
            (State::Active, false) => State::Normal,
            // It was raised and nobody knows: whether it was over in between does not matter.
            (State::Latched, true) => State::Active,
            (State::Acknowledged, true) if is_planted(Flaw::AcknowledgedAgain) => State::Active,
            (state, _) => state,
        }
    }
}

/// What was asked for and cannot be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AlarmError {
    /// Two rules have one name.
    #[error("two alarms are named {0}: each needs a name of its own")]
    Twice(String),
    /// There is no such alarm.
    #[error("there is no alarm {name}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The alarms that there are.
        known: String,
    },
    /// It is not raised.
    #[error("alarm {0} is not raised: there is nothing to acknowledge")]
    NotRaised(String),
}

/// All alarms. Time comes with the samples; nothing here waits or tells anybody.
#[derive(Clone, Debug)]
pub struct Alarms {
    alarms: Vec<Alarm>,
    changes: VecDeque<Change>,
    /// Changes since the beginning.
    changed: u64,
    now: (Instant, Utc),
    last: Option<Arc<Sample>>,
    /// It knows what time it is.
    has_looked: bool,
    /// The run that the present one is compared with, and how old the present one is.
    reference: Option<(Arc<RunTrend>, Duration)>,
}

impl Alarms {
    /// Alarms by these rules, all as they should be.
    ///
    /// # Errors
    /// [`AlarmError::Twice`].
    pub fn new(rules: Vec<Rule>) -> Result<Self, AlarmError> {
        let mut names: Vec<_> = rules.iter().map(|rule| rule.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(AlarmError::Twice(pair[0].to_owned()));
        }
        let of = |rule| Alarm {
            rule,
            state: State::Normal,
            since: Instant::ZERO,
            value: None,
            known_by: None,
            shelved_until: None,
            shelved_by: None,
        };
        let alarms = rules.into_iter().map(of).collect();
        Ok(Self {
            alarms,
            changes: VecDeque::new(),
            changed: 0,
            now: Default::default(),
            last: None,
            has_looked: false,
            reference: None,
        })
    }

    /// What is looked at next is of a run that is so old, and is compared with this one.
    pub fn compare_with(&mut self, reference: Option<(Arc<RunTrend>, Duration)>) {
        self.reference = reference;
    }

    /// Looks at the next sample, and at what limits the run by then. A quantity that cannot be told leaves its alarm as it is.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>, limit: Option<Limit>) {
        let sample = sample.into();
        if !core::mem::replace(&mut self.has_looked, true) {
            // What was shelved before anybody knew what time it is begins now.
            let begin = |until: Instant| sample.time.after(until.since(Instant::ZERO));
            self.alarms.iter_mut().for_each(|alarm| alarm.shelved_until = alarm.shelved_until.map(begin));
        }
        self.now = (sample.time, sample.utc);
        let before = self.last.take().filter(|before| before.run == sample.run);
        let rates = before.as_ref().and_then(|before| Rates::between(before, &sample));
        let reference = self.reference.clone();
        let reference = reference.as_ref().map(|(trend, age)| (&**trend, *age));
        let look = Look { before: before.as_deref(), now: &sample, rates: rates.as_ref(), limit, reference };
        for place in 0..self.alarms.len() {
            let alarm = &mut self.alarms[place];
            alarm.pass(look.now.time);
            if let Some(value) = alarm.rule.quantity.of(look) {
                alarm.value = Some(value);
                let next = alarm.next(alarm.rule.condition.holds(value), look.now.time);
                self.change(place, next, None);
            }
        }
        self.last = Some(sample);
    }

    /// There is no run to look at, for so long since it was looked at last: nothing is wrong with it, and time passes.
    pub fn rest(&mut self, time: Duration) {
        if !self.has_looked {
            return;
        }
        let utc = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.now = (self.now.0.after(time), Utc(self.now.1.0.saturating_add(utc)));
        self.last = None;
        for place in 0..self.alarms.len() {
            let alarm = &mut self.alarms[place];
            alarm.pass(self.now.0);
            alarm.value = None;
            let next = alarm.next(false, self.now.0);
            self.change(place, next, None);
        }
    }

    /// For how long an alarm is shelved still; none where it is not.
    pub fn shelved_for(&self, alarm: &Alarm) -> Option<Duration> {
        alarm.shelved_until.map(|until| until.since(self.now.0))
    }

    /// Somebody knows of an alarm that is raised, or was.
    ///
    /// # Errors
    /// [`AlarmError::Unknown`], or [`AlarmError::NotRaised`]; acknowledging twice is none.
    pub fn acknowledge(&mut self, name: &str, by: &str) -> Result<(), AlarmError> {
        let place = self.place(name)?;
        let next = match self.alarms[place].state {
            State::Active | State::Acknowledged => State::Acknowledged,
            State::Latched => State::Normal,
            State::Normal | State::Pending => return Err(AlarmError::NotRaised(name.to_owned())),
        };
        self.change(place, next, Some(by));
        Ok(())
    }

    /// Does not show an alarm for so long from the last sample on, as somebody wants it; no time shows it again.
    ///
    /// # Errors
    /// [`AlarmError::Unknown`].
    pub fn shelve(&mut self, name: &str, time: Duration, by: &str) -> Result<(), AlarmError> {
        let place = self.place(name)?;
        let until = (!time.is_zero()).then(|| self.now.0.after(time));
        let alarm = &mut self.alarms[place];
        (alarm.shelved_until, alarm.shelved_by) = (until, until.map(|_| short(by)));
        Ok(())
    }

    /// Every alarm, in the order of the rules.
    pub fn all(&self) -> &[Alarm] {
        &self.alarms
    }

    /// Alarms to be shown: raised, or over and not acknowledged, and not shelved; the worst first.
    pub fn shown(&self) -> Vec<&Alarm> {
        let is_raised = |alarm: &&Alarm| !matches!(alarm.state, State::Normal | State::Pending);
        let is_hidden = |alarm: &Alarm| alarm.shelved_until.is_some() && !is_planted(Flaw::ShelvedAlarmShown);
        let mut shown: Vec<_> = self.alarms.iter().filter(is_raised).filter(|alarm| !is_hidden(alarm)).collect();
        shown.sort_by_key(|alarm| core::cmp::Reverse(alarm.rule.severity));
        shown
    }

    /// The worst of what is shown.
    pub fn worst(&self) -> Option<Severity> {
        self.shown().first().map(|alarm| alarm.rule.severity)
    }

    /// Changes with this number or a later one, the oldest first.
    pub fn changes_from(&self, number: u64) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.number >= number)
    }

    fn place(&self, name: &str) -> Result<usize, AlarmError> {
        self.alarms.iter().position(|alarm| alarm.rule.name == name).ok_or_else(|| {
            let known: Vec<_> = self.alarms.iter().map(|alarm| alarm.rule.name.as_str()).collect();
            AlarmError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })
    }

    fn change(&mut self, place: usize, to: State, by: Option<&str>) {
        let alarm = &mut self.alarms[place];
        let from = core::mem::replace(&mut alarm.state, to);
        if from == to {
            return;
        }
        alarm.since = self.now.0;
        alarm.known_by = by.filter(|_| to == State::Acknowledged).map(short);
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Change {
            number: self.changed,
            utc_nanoseconds: self.now.1.0,
            name: alarm.rule.name.clone(),
            from,
            to,
            value: alarm.value,
            by: by.map(short),
        });
        self.changed += 1;
    }
}
