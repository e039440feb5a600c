//! Alarms: conditions that are shown to operators until they acknowledge them.
//!
//! ```text
//!             condition holds        for the hold time
//!  normal ───────────────────> pending ──────────────> active <──> acknowledged
//!    ^ <── it is over ────────────┘                      │ it is over     │
//!    │ <────────────── not latched, or acknowledged ─────┤ <──────────────┘
//!    └────── acknowledge ────── latched <── not yet acknowledged
//! ```
//!
//! A shelved alarm continues to be evaluated and is hidden until its time is over. *No triggers* differs from a dead
//! data acquisition: without triggers no source sends and everything is connected; a dead one has events to build, or
//! lacks a node or source, and builds nothing.
//!
//! A configuration writes quantities as
//!
//! ```text
//! events_per_second    bytes_in_per_second    bytes_to_disk_per_second    live_share    nodes_missing    dead
//! alarms_not_sent    total:COUNTER    per_second:COUNTER    limited_by:LIMIT    data:PROBLEM    phase:PHASE
//! reference:SERIES
//! ```

#[cfg(test)]
mod tests;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use ropewalk_terms::{COUNTERS, Counter, Instant, RunNumber, Unit, Utc, counted};
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::de::value::Error as NoLimit;
use serde::{Deserialize, Serialize};

use crate::bottleneck::{Finding, Limit};
use crate::history::{SERIES, Seen, Series};
use crate::presence::Presence;
use crate::prometheus::name as metric;
use crate::quality::{ProblemKind, Quality};
use crate::sample::PHASES;
use crate::{Rates, RunTrend, Sample};

/// Severity of an alarm.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information.
    Notice,
    /// It needs attention.
    #[default]
    Warning,
    /// Data are lost, or no data are taken.
    Critical,
}

/// A number of the run that an alarm looks at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// A counter's sum over nodes and sources.
    Value(Counter),
    /// How much a total grows per second, over nodes and sources.
    Growth(Counter),
    /// Events built per second.
    EventRate,
    /// Bytes of fragments received per second.
    BytesIn,
    /// Bytes written per second.
    BytesToDisk,
    /// Part of the time in which no source was held back, 0 to 1.
    LiveShare,
    /// Configured nodes that are not connected, and cannot be expected to join by themselves.
    NodesMissing,
    /// Difference of a series of the history, by its index in `SERIES`, from the reference run at the same age, in
    /// percent.
    FromReference(usize),
    /// 1 while this is what limits the run, else 0.
    LimitedBy(Limit),
    /// Number of sources that have this problem now; 1 or 0 for a problem of the run.
    Data(ProblemKind),
    /// 1 while the run is in this phase, else 0.
    Phase(&'static str),
    /// 1 while the run should take data and builds nothing although sources send, else 0.
    Dead,
    /// 1 while the last message about alarms was not accepted by its receiver, else 0.
    NotSent,
}

/// What one look at the run gives to rules.
#[derive(Copy, Clone, Debug)]
pub struct Look<'a> {
    /// The previous sample of the same run; `None` at first.
    pub before: Option<&'a Sample>,
    /// The sample.
    pub now: &'a Sample,
    /// The rates between the two.
    pub rates: Option<&'a Rates>,
    /// What limits the run.
    pub limit: Option<Limit>,
    /// The quality of the data.
    pub quality: &'a Quality,
    /// Which nodes are still to join.
    pub presence: &'a Presence,
    /// The run that this one is compared with, and how old this one is.
    pub reference: Option<(&'a RunTrend, Duration)>,
    /// Why the last message about alarms was not accepted; `None` if it was.
    pub not_sent: Option<&'a str>,
}

impl Look<'_> {
    /// The difference in percent. If the reference run had zero, any value is 100 percent more.
    fn difference(self, series: &Series) -> Option<f64> {
        let (trend, age) = self.reference.filter(|_| self.now.phase == "running")?;
        let seen = Seen { before: self.before?, now: self.now, rates: self.rates? };
        let (now, then) = (f64::from(series.value(seen)?), trend.at(series.name, age)?);
        if then == 0.0 {
            return Some(if now == 0.0 { 0.0 } else { 100.0 });
        }
        Some(100.0 * (now - then) / then)
    }
}

impl Quantity {
    /// Its value; `None` if this look does not have it.
    pub fn of(self, look: Look<'_>) -> Option<f64> {
        let truth = |is_true| if is_true { 1.0 } else { 0.0 };
        match self {
            Self::Value(counter) => Some(look.now.total(counter) as f64),
            Self::Growth(counter) => {
                let (before, seconds) = (look.before?.total(counter), look.rates?.seconds);
                Some(look.now.total(counter).saturating_sub(before) as f64 / seconds)
            }
            Self::EventRate => look.rates.map(|rates| rates.events_hz),
            Self::BytesIn => look.rates.map(|rates| rates.bytes_in_per_second),
            Self::BytesToDisk => look.rates.map(|rates| rates.bytes_to_disk_per_second),
            Self::LiveShare => look.rates.map(|rates| rates.live_share),
            Self::FromReference(place) => look.difference(SERIES.get(place)?),
            Self::NodesMissing => Some(look.presence.missing(look.now).map_or(0.0, |(_, count, _)| count as f64)),
            Self::LimitedBy(limit) => look.limit.map(|seen| truth(seen == limit)),
            Self::Data(kind) => Some(look.quality.current(kind) as f64),
            Self::Phase(phase) => Some(truth(look.now.phase == phase)),
            Self::Dead => {
                let builds = look.rates?.events_hz > 0.0;
                let should = look.now.phase == "running" && look.limit? != Limit::NoData;
                Some(truth(should && !builds))
            }
            Self::NotSent => Some(truth(look.not_sent.is_some())),
        }
    }
}

impl Quantity {
    /// Whether the quality of the data, or the disks that the run waits for, name it too.
    pub const fn is_said_elsewhere(self) -> bool {
        use Limit::{DiskFailing, DiskFull};
        matches!(self, Self::Data(_) | Self::NodesMissing | Self::Dead | Self::LimitedBy(DiskFailing | DiskFull))
    }

    /// Names the problem; empty if the condition is only a number. Problems that are over are named too if they were
    /// seen after `raised`, in nanoseconds since 1970 UTC.
    fn sentence(self, finding: Option<&Finding>, look: Look<'_>, raised: Option<i64>) -> String {
        match self {
            Self::Data(kind) => Some(problems_since(kind, look.quality, raised)),
            Self::NodesMissing => look.now.missing_nodes().map(|(.., sentence)| sentence),
            Self::LimitedBy(_) => finding.map(|finding| finding.sentence.clone()),
            Self::Dead => Some(dead_sentence(finding, look.quality)),
            Self::NotSent => look.not_sent.map(not_sent_sentence),
            Self::Growth(counter @ Counter::DecidedByDefault) => {
                let events = counted(look.now.total(counter), "event");
                Some(format!("no farm node decided in time: {events} decided by default"))
            }
            _ => None,
        }
        .unwrap_or_default()
    }
}

/// Problems that a sentence names at most.
const NAMED: usize = 3;

/// `calo: 1 fragment lost; earlier: muon: 3 fragments lost`.
fn problems_since(kind: ProblemKind, quality: &Quality, raised: Option<i64>) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for problem in quality.problems.iter().filter(|problem| problem.kind == kind) {
        let sentence = match (problem.is_current, raised) {
            (true, _) => problem.sentence.clone(),
            (false, Some(raised)) if problem.last_ns >= raised => format!("{EARLIER}{}", problem.sentence),
            (false, _) => continue,
        };
        // One sentence may be about several sources.
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let more = sentences.len().saturating_sub(NAMED);
    sentences.truncate(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    sentences.join("; ") + &more
}

/// That nothing is built, and why as far as that is known. The sentence on the limit may say that all is well.
fn dead_sentence(finding: Option<&Finding>, quality: &Quality) -> String {
    let problem = quality.worst(ProblemKind::DataAcquisitionDead);
    let nothing = problem.map_or("no event is built", |problem| &problem.sentence);
    match finding.filter(|finding| finding.limit.is_cause()) {
        Some(finding) => format!("{nothing}; {}", finding.sentence),
        None => format!("{nothing}, and no unit says why"),
    }
}

fn not_sent_sentence(why: &str) -> String {
    format!("the last message about alarms was not sent: {why}")
}

/// When a quantity is not as it should be.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Condition {
    /// It is larger.
    Above(f64),
    /// It is smaller.
    Below(f64),
}

impl Condition {
    /// The value is not as it should be.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Above(limit) => value > limit,
            Self::Below(limit) => value < limit,
        }
    }
}

/// When an alarm is raised.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// The alarm's name, once only.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it looks at.
    pub quantity: Quantity,
    /// When that is not as it should be.
    pub condition: Condition,
    /// How long it has to be so.
    pub hold: Duration,
    /// It stays after it is over, until an operator has acknowledged it.
    pub is_latched: bool,
}

impl Rule {
    /// `events_per_second is 987, below 2000`.
    fn comparison(&self, value: f64) -> String {
        let (than, limit) = match self.condition {
            Condition::Above(limit) => ("above", limit),
            Condition::Below(limit) => ("below", limit),
        };
        let rounded = |value: f64| if value.abs() < 10.0 { (value * 100.0).round() / 100.0 } else { value.round() };
        format!("{} is {}, {than} {}", self.quantity, rounded(value), rounded(limit))
    }

    /// Rates and counts are those of a run that takes data: without one, and while it is paused or drains, they are
    /// low.
    fn applies_in(&self, phase: &str) -> bool {
        use Quantity::{BytesIn, BytesToDisk, EventRate, FromReference, Growth, LiveShare, Value};
        let takes_data = phase == "running" || phase == "draining" && matches!(self.condition, Condition::Above(_));
        let is_of_data = matches!(self.quantity, Value(_) | Growth(_) | EventRate | BytesIn | BytesToDisk);
        takes_data || !(is_of_data || matches!(self.quantity, LiveShare | FromReference(_)))
    }
}

/// The rules that every run has.
pub fn built_in() -> Vec<Rule> {
    let rule = |name: &str, severity, quantity, seconds, is_latched| Rule {
        name: name.to_owned(),
        severity,
        quantity,
        condition: Condition::Above(0.0),
        hold: Duration::from_secs(seconds),
        is_latched,
    };
    let (limited_by, data) = (Quantity::LimitedBy, Quantity::Data);
    vec![
        rule("disk_failing", Severity::Critical, limited_by(Limit::DiskFailing), 0, true),
        rule("disk_full", Severity::Critical, limited_by(Limit::DiskFull), 0, false),
        // Longer than a burst of events or a flush of the page cache.
        rule("disk_slow", Severity::Warning, limited_by(Limit::Disk), 10, false),
        rule("node_missing", Severity::Critical, Quantity::NodesMissing, 2, true),
        rule("node_silent", Severity::Critical, data(ProblemKind::NodeSilent), 0, true),
        // Longer than it takes to build the first events when triggers begin.
        rule("data_acquisition_dead", Severity::Critical, Quantity::Dead, 10, true),
        rule("datagrams_lost", Severity::Critical, limited_by(Limit::DatagramsLost), 0, true),
        rule("wrong_first_number", Severity::Critical, data(ProblemKind::WrongFirstNumber), 0, true),
        rule("source_restarted", Severity::Critical, data(ProblemKind::SourceRestarted), 0, true),
        rule("source_out_of_step", Severity::Critical, data(ProblemKind::SourceOutOfStep), 0, true),
        rule("wrong_source", Severity::Critical, data(ProblemKind::WrongSource), 0, true),
        rule("bunch_crossing_mismatch", Severity::Critical, data(ProblemKind::BunchCrossingMismatch), 0, true),
        rule("source_stays_out", Severity::Critical, data(ProblemKind::SourceStaysOut), 0, false),
        rule("source_never_sent", Severity::Critical, data(ProblemKind::SourceNeverSent), 0, false),
        rule("source_silent", Severity::Critical, data(ProblemKind::SourceSilent), 0, false),
        rule("events_incomplete", Severity::Critical, data(ProblemKind::EventsIncomplete), 0, true),
        rule("fragments_lost", Severity::Warning, data(ProblemKind::FragmentsLost), 0, true),
        rule("fragments_faulty", Severity::Warning, data(ProblemKind::FragmentsFaulty), 0, true),
        rule("checksums_wrong", Severity::Warning, data(ProblemKind::ChecksumsWrong), 0, true),
        rule("alarms_not_sent", Severity::Warning, Quantity::NotSent, 0, true),
        rule("filters_given_up", Severity::Critical, data(ProblemKind::FiltersGivenUp), 0, true),
        rule("filter_failing", Severity::Warning, data(ProblemKind::FilterFailing), 0, true),
        rule("decided_by_default", Severity::Warning, Quantity::Growth(Counter::DecidedByDefault), 0, true),
        // Longer than a run drains by default.
        rule("run_does_not_end", Severity::Warning, Quantity::Phase("draining"), 60, false),
        rule("source_recovered", Severity::Notice, data(ProblemKind::SourceRecovered), 0, true),
        rule("no_triggers", Severity::Notice, limited_by(Limit::NoData), 10, false),
    ]
}

/// Changes that are kept; older ones are forgotten.
const MOST_CHANGES: usize = 1_000;
/// Bytes of an operator's name that are kept.
const LONGEST_NAME: usize = 64;

/// How an alarm is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Normal,
    /// Not as it should be, and not yet for the hold time.
    Pending,
    /// Raised, and not acknowledged.
    Active,
    /// Raised, and acknowledged by an operator.
    Acknowledged,
    /// Over, but never acknowledged.
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
    /// The value that it looked at last; `None` if there was none yet.
    pub value: Option<f64>,
    /// The operator who did it; `None` if it came by itself.
    pub by: Option<String>,
}

/// The state of an alarm.
#[derive(Clone, PartialEq, Debug)]
pub struct Alarm {
    /// Its rule.
    pub rule: Rule,
    /// How it is.
    pub state: State,
    /// Since when it has been in this state.
    pub since: Instant,
    /// The value that it looked at last; `None` if there was none yet.
    pub value: Option<f64>,
    /// The run in which it was raised last; `None` if it was not, or was raised outside of runs.
    pub run: Option<RunNumber>,
    /// The client that acknowledged it, if it is acknowledged.
    pub known_by: Option<String>,
    /// Until when it is not shown.
    pub shelved_until: Option<Instant>,
    /// Who shelved it.
    pub shelved_by: Option<String>,
    /// What is or was wrong, in a sentence.
    pub sentence: String,
    /// When it was raised first since it was last normal, in nanoseconds since 1970 UTC.
    raised_ns: Option<i64>,
}

/// The sentence of an alarm whose cause is over begins with this.
pub const EARLIER: &str = "earlier: ";

/// The part of an operator's name that is kept.
fn short(by: &str) -> String {
    by[..by.floor_char_boundary(LONGEST_NAME)].to_owned()
}

impl Alarm {
    /// Advances the time: a shelved alarm may be shown again.
    fn pass(&mut self, now: Instant) {
        if self.shelved_until.is_some_and(|until| until <= now) {
            (self.shelved_until, self.shelved_by) = (None, None);
        }
    }

    fn next(&self, holds: bool, now: Instant) -> State {
        let is_due = |since: Instant| now.since(since) >= self.rule.hold;
        match (self.state, holds) {
            (State::Normal, true) if self.rule.hold.is_zero() => State::Active,
            (State::Normal, true) => State::Pending,
            (State::Pending, true) if is_due(self.since) => State::Active,
            (State::Pending | State::Acknowledged, false) => State::Normal,
            (State::Active, false) if self.rule.is_latched => State::Latched,
            (State::Active, false) => State::Normal,
            // It was raised and not acknowledged: whether it was over in between does not matter.
            (State::Latched, true) => State::Active,
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

/// All alarms. Time comes with the samples; nothing here waits or notifies.
#[derive(Clone, Debug)]
pub struct Alarms {
    alarms: Vec<Alarm>,
    changes: VecDeque<Change>,
    /// Changes since the beginning.
    changed: u64,
    now: (Instant, Utc),
    last: Option<Arc<Sample>>,
    presence: Presence,
    /// Whether `now` is set.
    has_looked: bool,
    /// The run that the present one is compared with, and how old the present one is.
    reference: Option<(Arc<RunTrend>, Duration)>,
    /// Why the last message was not accepted.
    not_sent: Option<String>,
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
            run: None,
            known_by: None,
            shelved_until: None,
            shelved_by: None,
            sentence: String::new(),
            raised_ns: None,
        };
        let alarms = rules.into_iter().map(of).collect();
        Ok(Self {
            alarms,
            changes: VecDeque::new(),
            changed: 0,
            now: Default::default(),
            last: None,
            presence: Presence::default(),
            has_looked: false,
            reference: None,
            not_sent: None,
        })
    }

    /// Compares the next samples, which belong to a run of this age, with this reference.
    pub fn compare_with(&mut self, reference: Option<(Arc<RunTrend>, Duration)>) {
        self.reference = reference;
    }

    /// Tells why the last message about alarms was not accepted by its receiver; `None` if it was. Returns whether this
    /// has begun now.
    pub fn set_not_sent(&mut self, why: Option<String>) -> bool {
        let has_begun = why.is_some() && self.not_sent.is_none();
        self.not_sent = why;
        has_begun
    }

    /// Looks at the next sample, at what limits the run by then, and at the quality of its data. An alarm whose
    /// quantity is not known keeps its state.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>, finding: Option<&Finding>, quality: &Quality) {
        let sample = sample.into();
        if !core::mem::replace(&mut self.has_looked, true) {
            // What was shelved before the first sample gave the time begins now.
            let begin = |until: Instant| sample.time.after(until.since(Instant::ZERO));
            self.alarms.iter_mut().for_each(|alarm| alarm.shelved_until = alarm.shelved_until.map(begin));
        }
        self.now = (sample.time, sample.utc);
        let before = self.last.take().filter(|before| before.run == sample.run);
        let rates = before.as_ref().and_then(|before| Rates::between(before, &sample));
        let reference = self.reference.clone();
        let reference = reference.as_ref().map(|(trend, age)| (&**trend, *age));
        let limit = finding.map(|finding| finding.limit);
        let not_sent = self.not_sent.clone();
        self.presence.observe(&sample);
        let presence = self.presence.clone();
        let look = Look {
            before: before.as_deref(),
            now: &sample,
            rates: rates.as_ref(),
            limit,
            quality,
            presence: &presence,
            reference,
            not_sent: not_sent.as_deref(),
        };
        for place in 0..self.alarms.len() {
            let alarm = &mut self.alarms[place];
            alarm.pass(look.now.time);
            let applies = alarm.rule.applies_in(look.now.phase);
            if let Some(value) = alarm.rule.quantity.of(look).or((!applies).then_some(0.0)) {
                alarm.value = Some(value).filter(|_| applies);
                let holds = applies && alarm.rule.condition.holds(value);
                if holds {
                    let sentence = alarm.rule.quantity.sentence(finding, look, alarm.raised_ns);
                    alarm.sentence = if sentence.is_empty() { alarm.rule.comparison(value) } else { sentence };
                }
                let next = alarm.next(holds, look.now.time);
                if next == State::Active && alarm.state != State::Active {
                    alarm.run = Some(look.now.run).filter(|run| *run != RunNumber::default());
                }
                self.change(place, next, None);
            }
        }
        self.last = Some(sample);
    }

    /// There is no run to look at, for this long since the last look: nothing is wrong with it, and time passes.
    /// Messages are sent all the same.
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
            let why = self.not_sent.as_deref().filter(|_| alarm.rule.quantity == Quantity::NotSent);
            alarm.value = why.map(|_| 1.0);
            if let Some(why) = why {
                alarm.sentence = not_sent_sentence(why);
            }
            let next = alarm.next(why.is_some(), self.now.0);
            self.change(place, next, None);
        }
    }

    /// For how long an alarm is shelved still; `None` if it is not.
    pub fn shelved_for(&self, alarm: &Alarm) -> Option<Duration> {
        alarm.shelved_until.map(|until| until.since(self.now.0))
    }

    /// An operator acknowledges an alarm that is raised, or was.
    ///
    /// # Errors
    /// [`AlarmError::Unknown`], or [`AlarmError::NotRaised`]; acknowledging twice is not an error.
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

    /// Hides an alarm for this time from the last sample on, at an operator's wish; zero shows it again.
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
        let is_hidden = |alarm: &Alarm| alarm.shelved_until.is_some();
        let mut shown: Vec<_> = self.alarms.iter().filter(is_raised).filter(|alarm| !is_hidden(alarm)).collect();
        shown.sort_by_key(|alarm| core::cmp::Reverse(alarm.rule.severity));
        shown
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
        let (was_raised, is_over) = (matches!(from, State::Active | State::Acknowledged), to != State::Acknowledged);
        if was_raised && is_over && !alarm.sentence.starts_with(EARLIER) {
            alarm.sentence.insert_str(0, EARLIER);
        }
        match to {
            State::Active => alarm.raised_ns = alarm.raised_ns.or(Some(self.now.1.0)),
            State::Normal => alarm.raised_ns = None,
            _ => {}
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

/// Quantities without a parameter.
const WORDS: [(&str, Quantity); 7] = [
    ("events_per_second", Quantity::EventRate),
    ("bytes_in_per_second", Quantity::BytesIn),
    ("bytes_to_disk_per_second", Quantity::BytesToDisk),
    ("live_share", Quantity::LiveShare),
    ("nodes_missing", Quantity::NodesMissing),
    ("dead", Quantity::Dead),
    ("alarms_not_sent", Quantity::NotSent),
];

/// Why a text is no quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoQuantity {
    /// The words before a colon, or instead of it.
    #[error(
        "`{0}` is no quantity: there are events_per_second, bytes_in_per_second, bytes_to_disk_per_second, live_share, \
         nodes_missing, dead, alarms_not_sent, total:COUNTER, per_second:COUNTER, limited_by:LIMIT, data:PROBLEM, \
         phase:PHASE and reference:SERIES"
    )]
    Unknown(String),
    /// There is no such counter.
    #[error("there is no counter `{0}`; docs/metrics.md lists them, with their names in alarms{near}", near = near(.0))]
    Counter(String),
    /// The name of a metric, whose unit is not that of the counter.
    #[error("the metric `{0}` is in seconds; alarms use the counter, in nanoseconds: `{name}`", name = .1.name())]
    Seconds(String, Counter),
    /// There is no such limit.
    #[error("no limit is named `{0}`: there are {1}")]
    Limit(String, String),
    /// There is no such problem of the data.
    #[error("no problem of the data is named `{0}`: there are {1}")]
    Problem(String, String),
    /// There is no such series.
    #[error("nothing is known of `{0}` in a reference run: there are {series}", series = names())]
    Series(String),
    /// There is no such phase.
    #[error("a run has no phase `{0}`: there are {phases}", phases = PHASES.join(", "))]
    Phase(String),
}

/// Counters whose names share the most words with the wrong one, in any order.
fn near(wrong: &str) -> String {
    let words: Vec<_> = wrong.split('_').filter(|word| word.len() > 2).collect();
    // `errors` and `error` count as the same word.
    let is_same = |word: &str, other: &str| word.starts_with(other) || other.starts_with(word);
    let shared =
        |name: &str| words.iter().filter(|word| name.split('_').any(|own| own.len() > 2 && is_same(own, word))).count();
    let most = COUNTERS.iter().map(|counter| shared(counter.name())).max().unwrap_or(0);
    let mut near: Vec<_> = COUNTERS.iter().map(|counter| counter.name()).filter(|name| shared(name) == most).collect();
    near.sort_by_key(|name| name.len().abs_diff(wrong.len()));
    near.truncate(4);
    if most == 0 { String::new() } else { format!("; is it {}?", near.join(" or ")) }
}

/// The names that a message of serde on an unknown one lists: every second piece between backquotes.
fn known_in(error: &NoLimit) -> String {
    error.to_string().split('`').skip(3).step_by(2).collect::<Vec<_>>().join(", ")
}

fn names() -> String {
    SERIES.iter().map(|series| series.name).collect::<Vec<_>>().join(", ")
}

/// The counter of this name, or of the metric of this name, with or without `ropewalk_` and `_total`.
fn counter(name: &str) -> Result<Counter, NoQuantity> {
    if let Some(&counter) = COUNTERS.iter().find(|counter| counter.name() == name) {
        return Ok(counter);
    }
    let plain = |name: &str| name.trim_start_matches("ropewalk_").trim_end_matches("_total").to_owned();
    let wanted = plain(name);
    match COUNTERS.iter().find(|&&counter| counter.name() == wanted || plain(&metric(counter)) == wanted) {
        Some(&counter) if counter.unit() == Unit::Nanoseconds && counter.name() != wanted => {
            Err(NoQuantity::Seconds(name.to_owned(), counter))
        }
        Some(&counter) => Ok(counter),
        None => Err(NoQuantity::Counter(name.to_owned())),
    }
}

impl FromStr for Quantity {
    type Err = NoQuantity;

    fn from_str(text: &str) -> Result<Self, NoQuantity> {
        if let Some((_, quantity)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*quantity);
        }
        match text.split_once(':') {
            Some(("total", name)) => counter(name).map(Self::Value),
            Some(("per_second", name)) => counter(name).map(Self::Growth),
            Some(("limited_by", name)) => Limit::deserialize(name.into_deserializer())
                .map(Self::LimitedBy)
                .map_err(|error: NoLimit| NoQuantity::Limit(name.to_owned(), known_in(&error))),
            Some(("data", name)) => ProblemKind::deserialize(name.into_deserializer())
                .map(Self::Data)
                .map_err(|error: NoLimit| NoQuantity::Problem(name.to_owned(), known_in(&error))),
            Some(("reference", name)) => {
                let place = SERIES.iter().position(|series| series.name == name);
                place.map(Self::FromReference).ok_or_else(|| NoQuantity::Series(name.to_owned()))
            }
            Some(("phase", name)) => {
                let phase = PHASES.into_iter().find(|phase| *phase == name);
                phase.map(Self::Phase).ok_or_else(|| NoQuantity::Phase(name.to_owned()))
            }
            _ => Err(NoQuantity::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Quantity {
    /// As it can be written in a configuration.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(counter) => write!(out, "total:{}", counter.name()),
            Self::Growth(counter) => write!(out, "per_second:{}", counter.name()),
            Self::LimitedBy(limit) => {
                out.write_str("limited_by:")?;
                limit.serialize(out)
            }
            Self::Data(kind) => {
                out.write_str("data:")?;
                kind.serialize(out)
            }
            Self::FromReference(place) => {
                write!(out, "reference:{}", SERIES.get(*place).map_or("", |series| series.name))
            }
            Self::Phase(phase) => write!(out, "phase:{phase}"),
            word => out.write_str(WORDS.iter().find(|(_, quantity)| quantity == word).map_or("", |(word, _)| word)),
        }
    }
}
