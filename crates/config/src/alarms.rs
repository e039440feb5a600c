//! `[[alarm]]`, `[alarms]`, `[logbook]` and `[monitor]`: alarms for operators, and their notification. `[control]`: the
//! server of run control.

use super::error::Faults;
use crate::quantity::{LONG_NAME, Time};
use ropewalk_engine::pages::PagesChoice;
use ropewalk_monitor::alarms::{Condition, Quantity, Rule, Severity, built_in};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// An alarm of this run, or a change of one that every run has.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlarmSection {
    /// Name: 1 to 64 letters, digits, `-` and `_`. The name of an alarm that every run has replaces that alarm.
    #[schemars(regex(pattern = LONG_NAME))]
    pub name: String,
    /// Whether there is an alarm of this name; `false` also removes one that every run has.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Quantity that is checked once a second ([metrics.md](metrics.md#alarms)); needed if the alarm is enabled. One of
    /// `"events_per_second"`, `"bytes_in_per_second"`, `"bytes_to_disk_per_second"`, `"live_share"` (0 to 1),
    /// `"nodes_missing"`, `"dead"` (1 while the run takes data and builds nothing although a source sends), and
    /// `"alarms_not_sent"` (1 while the last message of `[alarms]` was not accepted). For a
    /// [counter](metrics.md#counters) its sum over nodes and sources, `"total:crc_errors"`, or its growth,
    /// `"per_second:crc_errors"`. For a state 1 or 0, `"limited_by:disk"`, `"data:checksums_wrong"` or
    /// `"phase:draining"` ([names](metrics.md#alarms)). `"reference:bytes_in_per_second"` is the difference of a series
    /// from the [reference run](configuration-control.md#monitor) at the same age, in percent of the reference.
    #[serde(default, deserialize_with = "quantity")]
    #[schemars(with = "Option<String>")]
    pub quantity: Option<Quantity>,
    /// The alarm is raised if the quantity is larger than this, in its unit: events, bytes, or nanoseconds for counters
    /// of times. Either `above` or `below` is needed.
    pub above: Option<f64>,
    /// The alarm is raised if the quantity is smaller than this.
    pub below: Option<f64>,
    /// How long the condition must hold before the alarm is raised.
    #[serde(default, rename = "for")]
    pub hold: Time,
    /// Severity of the alarm.
    #[serde(default)]
    pub severity: Severity,
    /// The alarm stays after its condition is over, until it is acknowledged.
    #[serde(default)]
    pub latched: bool,
}

const fn yes() -> bool {
    true
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// Receivers of alarms, besides the users of the dashboard.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlarmsSection {
    /// Command with its arguments, run for each message; the message is on its standard input as one line of JSON.
    pub command: Vec<String>,
    /// Address to which each message is posted as JSON: `"https://host:port/path"`, or `http`. With `https` the host's
    /// certificate must be one that the [system trusts](access.md#tls). A status from 200 to 299 means that the
    /// message was received; redirects are not followed. Proxies of the environment (`http_proxy`, `ALL_PROXY`) are not
    /// used. To reach a host behind a proxy use `command`, such as `["curl", "--proxy", "http://proxy:3128", "--data",
    /// "@-", "https://host/path"]`.
    pub webhook: Option<String>,
    /// Interval of messages that say that all is well, at least 1 s. A receiver that gets none for longer knows that
    /// something is wrong, whatever the cause. It needs `command` or `webhook`.
    pub alive_every: Option<Time>,
    /// A command or webhook that takes longer than this is given up.
    pub timeout: Time,
}

impl Default for AlarmsSection {
    fn default() -> Self {
        Self { command: Vec::new(), webhook: None, alive_every: None, timeout: RECEIVER_TIMEOUT }
    }
}

/// Receivers of logbook entries, as soon as these are written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogbookSection {
    /// Command with its arguments, run for each entry; the entry is on its standard input as one line of JSON.
    pub command: Vec<String>,
    /// Address to which each entry is posted as JSON: `"https://host:port/path"`, or `http`. With `https` the host's
    /// certificate must be one that the [system trusts](access.md#tls). No proxy is used, as for `[alarms]`.
    pub webhook: Option<String>,
    /// A command or webhook that takes longer than this is given up.
    pub timeout: Time,
}

impl Default for LogbookSection {
    fn default() -> Self {
        Self { command: Vec::new(), webhook: None, timeout: RECEIVER_TIMEOUT }
    }
}

/// A person would notice a longer delay.
const RECEIVER_TIMEOUT: Time = Time(Duration::from_secs(10));

/// The reference run, pages of numbers, and the log level.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorSection {
    /// Number of an earlier run in the same `output` directory with which this run is compared. The dashboard draws it
    /// under the plots of the present run, and alarms on `reference:` use the difference
    /// ([api.md](api.md#a-run-to-compare-with)). On the dashboard each user may choose another one.
    pub reference: Option<u32>,
    /// Directory for the [page of numbers](metrics.md#pages-of-numbers) of each node, or `"none"` for no pages. Other
    /// programs read the pages without a request to the node. The directory is created if it does not exist. It should
    /// be in memory: with a disk a node may have to wait for it. If it is not usable, the run continues without pages,
    /// and the journal says so once. Without it: the user's directory in the shared memory of the machine
    /// (`/dev/shm/ropewalk-UID`), or no pages if the machine has none.
    #[serde(default, deserialize_with = "pages")]
    #[schemars(with = "Option<String>")]
    pub pages: PagesChoice,
    /// What `ropewalk run` prints of the journal on standard error. It can be [changed during a
    /// run](control.md#what-can-be-changed-while-a-run-goes-on). The journal and the logbook contain everything.
    #[serde(default)]
    pub log_level: LogLevel,
}

/// Log level; each level includes those before it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Commands that failed, and everything that prevents runs.
    Error,
    /// Also what is wrong during a run.
    #[default]
    Warning,
    /// Also commands, who gave them, and changes of the state.
    Info,
}

impl LogLevel {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Info];

    /// The name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// The directory of pages, from the text of the key.
fn pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PagesChoice, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" => Err(D::Error::custom("a directory in memory, such as \"/dev/shm/daq\", or \"none\"")),
        "none" => Ok(PagesChoice::Nowhere),
        directory => Ok(PagesChoice::In(directory.into())),
    }
}

impl AlarmSection {
    /// What is wrong with it, by the name of the key.
    fn rule(&self) -> Result<Rule, (&'static str, &'static str)> {
        let quantity = self.quantity.ok_or(("quantity", "it is missing: what the rule checks, such as \"events_per_second\"; docs/configuration-control.md lists all"))?;
        let condition = match (self.above, self.below) {
            (Some(limit), None) => Condition::Above(limit),
            (None, Some(limit)) => Condition::Below(limit),
            _ => return Err(("above", "either `above` or `below` says when it is raised")),
        };
        let (name, severity) = (self.name.clone(), self.severity);
        Ok(Rule { name, severity, quantity, condition, hold: self.hold.0, is_latched: self.latched })
    }
}

/// The rules of all alarms: the built-in ones of every run, and the configuration's.
pub fn alarm_rules(sections: &[AlarmSection]) -> Vec<Rule> {
    let is_replaced = |rule: &Rule| sections.iter().any(|alarm| alarm.name == rule.name);
    let of_every_run = built_in().into_iter().filter(|rule| !is_replaced(rule));
    let own = sections.iter().filter(|alarm| alarm.enabled).filter_map(|alarm| alarm.rule().ok());
    of_every_run.chain(own).collect()
}

pub(super) fn check_alarms(
    sections: &[AlarmSection],
    told: &AlarmsSection,
    logbook: &LogbookSection,
    faults: &mut Faults,
) {
    let mut names = BTreeSet::new();
    for (index, alarm) in sections.iter().enumerate() {
        let key = |field: &str| format!("alarm[{index}].{field}");
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if alarm.name.is_empty() || alarm.name.len() > 64 || !alarm.name.chars().all(is_letter) {
            faults.add(key("name"), "1 to 64 letters, digits, - and _: it is part of addresses");
        }
        if !names.insert(&alarm.name) {
            faults.add(key("name"), format!("two alarms are named `{}`", alarm.name));
        }
        if alarm.enabled
            && let Err((field, message)) = alarm.rule()
        {
            faults.add(key(field), message);
        }
    }
    check_hearers("logbook", &logbook.command, logbook.webhook.as_deref(), logbook.timeout, faults);
    check_hearers("alarms", &told.command, told.webhook.as_deref(), told.timeout, faults);
    match told.alive_every {
        Some(_) if told.webhook.is_none() && told.command.is_empty() => {
            faults.add("alarms.alive_every", "without a receiver: give `command` or `webhook`")
        }
        Some(time) if time.0 < Duration::from_secs(1) => faults.add("alarms.alive_every", "once a second at most"),
        _ => {}
    }
}

/// Checks the command and the webhook that receive messages.
fn check_hearers(section: &str, command: &[String], webhook: Option<&str>, timeout: Time, faults: &mut Faults) {
    let wrong = match webhook {
        _ if command.first().is_some_and(String::is_empty) => Some(("command", "a program and its arguments")),
        Some(address) if !["http://", "https://"].iter().any(|scheme| address.starts_with(scheme)) => {
            Some(("webhook", "an address that begins with http:// or https://; for others let `command` run curl"))
        }
        _ if timeout.0.is_zero() => Some(("timeout", "longer than no time at all")),
        _ => None,
    };
    if let Some((field, message)) = wrong {
        faults.add(format!("{section}.{field}"), message);
    }
}

/// The server of run control (`--control`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSection {
    /// PEM file with the server's certificate, followed by its intermediate certificates. With it the server speaks
    /// only TLS ([access.md](access.md#tls)).
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate, without a pass phrase; needed with `certificate`. It is
    /// refused if others may read it (mode 0600).
    pub key: Option<PathBuf>,
}

pub(super) fn check_control(section: &ControlSection, faults: &mut Faults) {
    match (&section.certificate, &section.key) {
        (Some(_), None) => faults.add("control.key", "a certificate needs its private key, in a file of mode 0600"),
        (None, Some(_)) => faults.add("control.certificate", "a private key needs its certificate: give `certificate`"),
        _ => {}
    }
}
