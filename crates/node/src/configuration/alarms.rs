//! `[[alarm]]`, `[alarms]`, `[logbook]` and `[monitor]`: what people have to know of, and how they hear of it.

use super::check::fault;
use super::parse::Fault;
use crate::quantity::Time;
use ropewalk_monitor::alarms::{Condition, Quantity, Rule, Severity, built_in};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// An alarm of the run's own, or another form of one that every run has.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlarmSection {
    /// Its name. That of an alarm that every run has takes the place of that one.
    pub name: String,
    /// False: there is no alarm of this name, also if every run has it.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What it looks at: `events_per_second`, `total:crc_errors`, ...; docs/metrics.md, "Alarms".
    #[serde(default, deserialize_with = "quantity")]
    #[schemars(with = "Option<String>")]
    pub quantity: Option<Quantity>,
    /// It is raised when that is larger.
    pub above: Option<f64>,
    /// It is raised when that is smaller.
    pub below: Option<f64>,
    /// How long it has to be so.
    #[serde(default, rename = "for")]
    pub hold: Time,
    /// How bad it is.
    #[serde(default)]
    pub severity: SeverityChoice,
    /// It stays after it is over, until somebody has acknowledged it.
    #[serde(default)]
    pub latched: bool,
}

const fn yes() -> bool {
    true
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// How bad an alarm is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeverityChoice {
    /// To be known.
    Notice,
    /// To be looked after.
    #[default]
    Warning,
    /// Data are lost, or none are taken.
    Critical,
}

impl From<SeverityChoice> for Severity {
    fn from(choice: SeverityChoice) -> Self {
        match choice {
            SeverityChoice::Notice => Self::Notice,
            SeverityChoice::Warning => Self::Warning,
            SeverityChoice::Critical => Self::Critical,
        }
    }
}

/// Who hears of alarms, beside those who look at the page.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlarmsSection {
    /// A command and its arguments: it is given each message as a line of JSON on its standard input.
    pub command: Vec<String>,
    /// An address to which each message is posted as JSON: `https://host:port/path`, or `http`.
    pub webhook: Option<String>,
    /// So often a message says that all goes on, so that somebody else can notice when none comes.
    pub alive_every: Option<Time>,
    /// A command or a webhook that takes longer is given up.
    pub timeout: Option<Time>,
}

/// Who has what is written into the logbook, as soon as it is written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogbookSection {
    /// A command and its arguments: it is given each entry as a line of JSON on its standard input.
    pub command: Vec<String>,
    /// An address to which each entry is posted as JSON: `https://host:port/path`, or `http`.
    pub webhook: Option<String>,
    /// A command or a webhook that takes longer is given up.
    pub timeout: Option<Time>,
}

impl LogbookSection {
    /// How long a command or a webhook may take where nothing is said of it.
    pub const TIMEOUT: Duration = AlarmsSection::TIMEOUT;
}

/// What runs are compared with, where their numbers stand for others to read, and what is told of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorSection {
    /// The number of a run of the past that is laid over the present one, and that alarms on `reference:` look at.
    pub reference: Option<u32>,
    /// The directory in memory in which nodes have their pages of numbers, or "none".
    #[serde(default, deserialize_with = "PagesChoice::deserialize")]
    #[schemars(with = "Option<String>")]
    pub pages: PagesChoice,
    /// What `ropewalk run` tells of the journal as it is written, on standard error. Live: it may be changed while a run goes on.
    #[serde(default)]
    pub log_level: LogLevel,
}

/// What is told of what happens, the least first; each level has what those before it have.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Commands that could not be carried out, and whatever keeps runs from going on.
    Error,
    /// What is not as it should be while the run goes on.
    #[default]
    Warning,
    /// Commands, who gave them, and changes of the state.
    Info,
}

impl LogLevel {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Info];

    /// As it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Where nodes have their pages of numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PagesChoice {
    /// In the machine's shared memory, where there is some.
    #[default]
    Usual,
    /// Nowhere.
    Nowhere,
    /// In this directory.
    In(PathBuf),
}

impl PagesChoice {
    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" => Err(D::Error::custom("a directory in memory, such as \"/dev/shm/daq\", or \"none\"")),
            "none" => Ok(Self::Nowhere),
            directory => Ok(Self::In(directory.into())),
        }
    }
}

impl AlarmsSection {
    /// How long a command or a webhook may take where nothing is said of it.
    pub const TIMEOUT: Duration = Duration::from_secs(10);
}

impl AlarmSection {
    /// What is wrong with it, by the name of the key.
    fn rule(&self) -> Result<Rule, (&'static str, &'static str)> {
        let quantity = self.quantity.ok_or(("quantity", "what does it look at? See docs/metrics.md, \"Alarms\""))?;
        let condition = match (self.above, self.below) {
            (Some(limit), None) => Condition::Above(limit),
            (None, Some(limit)) => Condition::Below(limit),
            _ => return Err(("above", "either `above` or `below` says when it is raised")),
        };
        let (name, severity) = (self.name.clone(), self.severity.into());
        Ok(Rule { name, severity, quantity, condition, hold: self.hold.0, is_latched: self.latched })
    }
}

/// The rules of all alarms: those that every run has, and a configuration's.
pub fn alarm_rules(sections: &[AlarmSection]) -> Vec<Rule> {
    let is_replaced = |rule: &Rule| sections.iter().any(|alarm| alarm.name == rule.name);
    let of_every_run = built_in().into_iter().filter(|rule| !is_replaced(rule));
    let own = sections.iter().filter(|alarm| alarm.enabled).filter_map(|alarm| alarm.rule().ok());
    of_every_run.chain(own).collect()
}

pub(super) fn check(sections: &[AlarmSection], told: &AlarmsSection, logbook: &LogbookSection) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    for (index, alarm) in sections.iter().enumerate() {
        let key = |field: &str| format!("alarm[{index}].{field}");
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if alarm.name.is_empty() || alarm.name.len() > 64 || !alarm.name.chars().all(is_letter) {
            return Err(fault(key("name"), "1 to 64 letters, digits, - and _: it stands in addresses"));
        }
        if !names.insert(&alarm.name) {
            return Err(fault(key("name"), format!("two alarms are named `{}`", alarm.name)));
        }
        if alarm.enabled
            && let Err((field, message)) = alarm.rule()
        {
            return Err(fault(key(field), message));
        }
    }
    check_hearers("logbook", &logbook.command, logbook.webhook.as_deref(), logbook.timeout)?;
    check_hearers("alarms", &told.command, told.webhook.as_deref(), told.timeout)?;
    match told.alive_every {
        Some(_) if told.webhook.is_none() && told.command.is_empty() => {
            Err(fault("alarms.alive_every", "to whom? Give `command` or `webhook`"))
        }
        Some(time) if time.0 < Duration::from_secs(1) => Err(fault("alarms.alive_every", "once a second at most")),
        _ => Ok(()),
    }
}

/// Whether a command and a webhook can hear anything.
fn check_hearers(section: &str, command: &[String], webhook: Option<&str>, timeout: Option<Time>) -> Result<(), Fault> {
    let wrong = match webhook {
        _ if command.first().is_some_and(String::is_empty) => Some(("command", "a program and its arguments")),
        Some(address) if !["http://", "https://"].iter().any(|scheme| address.starts_with(scheme)) => {
            Some(("webhook", "an address that begins with http:// or https://; for others let `command` run curl"))
        }
        _ if timeout.is_some_and(|time| time.0.is_zero()) => Some(("timeout", "longer than no time at all")),
        _ => None,
    };
    wrong.map_or(Ok(()), |(field, message)| Err(fault(format!("{section}.{field}"), message)))
}
