//! Parameters that may be changed during a run: for that run, and for the following ones.

use super::control_handle::RequestRefusal;
use crate::REPORT_INTERVAL;
use ropewalk_config::no_such;
use ropewalk_config::quantity::Time;
use ropewalk_config::{Configuration, FlowSection, LogLevel, StreamSection};
use ropewalk_engine::gateway::OrderBoard;
use ropewalk_flow::filter::Streams;
use ropewalk_flow::messages::Setting;
use ropewalk_terms::{Parameter, StreamIndex};
use std::time::Duration;

/// The range of a time.
const TIMES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(24 * 3600)];
/// Below the lower bound reports would dominate the work; above the upper one, viewers would wait too long.
const INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(10)];

/// The subject of a parameter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The behaviour of nodes.
    Nodes(Parameter),
    /// The log level of this program; the value is the level's place in [`LogLevel::ALL`].
    Log,
}

impl Subject {
    /// Returns a readable description.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Nodes(parameter) => parameter.help(),
            Self::Log => {
                "What `ropewalk run` tells of the journal on standard error: error, warning (and what is not as it should be), info \
                 (and commands and changes of the state)."
            }
        }
    }
}

/// A parameter with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveParameter {
    /// Its name: `timeouts.readout`, `stream.physics.prescale`, or `flow.hlt.timeout`.
    pub name: String,
    /// Its subject.
    pub subject: Subject,
    /// Its current value, in its unit.
    pub value: u64,
    /// Its configured value.
    pub configured: u64,
    /// Index of its stream or flow.
    of: u16,
    /// Exclusive upper limit: the time-out of a flow's sets for decisions.
    below: Option<u64>,
}

impl LiveParameter {
    /// Returns a value in the syntax of a configuration.
    pub fn text(&self, value: u64) -> String {
        match self.subject {
            Subject::Nodes(Parameter::Prescale) => value.to_string(),
            Subject::Nodes(_) => Time(Duration::from_nanos(value)).to_string(),
            Subject::Log => level(value).name().to_owned(),
        }
    }

    /// Returns the setting for nodes; `None` if the parameter is not for them.
    const fn setting(&self) -> Option<Setting> {
        match self.subject {
            Subject::Nodes(parameter) => Some(Setting { parameter, of: self.of, value: self.value }),
            Subject::Log => None,
        }
    }

    /// Parses a value.
    fn read(&self, text: &str) -> Result<u64, String> {
        let unfit = |why: String| format!("{} = {text}: {why}", self.name);
        if self.subject == Subject::Log {
            let names = LogLevel::ALL.map(LogLevel::name);
            let known = names.iter().position(|name| *name == text);
            return known.map(|place| place as u64).ok_or_else(|| unfit(format!("one of {}", names.join(", "))));
        }
        if self.subject == Subject::Nodes(Parameter::Prescale) {
            let value: u32 =
                text.parse().map_err(|_| unfit("one of so many is kept: a number from 1 on".to_owned()))?;
            return if value == 0 { Err(unfit("a prescale of 0 keeps nothing".to_owned())) } else { Ok(value.into()) };
        }
        let Time(time) = text.parse().map_err(|error| unfit(format!("{error}")))?;
        let is_interval = self.subject == Subject::Nodes(Parameter::ReportInterval);
        let [least, most] = if is_interval { INTERVALS } else { TIMES };
        if !(least..=most).contains(&time) {
            return Err(unfit(format!("from {} to {}", Time(least), Time(most))));
        }
        Ok(time.as_nanos() as u64)
    }
}

/// Names and new values, as in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterRequest {
    /// The changes, of which all are made, or none.
    pub changes: Vec<(String, String)>,
}

/// All parameters of a sequence of runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters(Vec<LiveParameter>);

impl Parameters {
    /// Returns the parameters of a configuration.
    pub(super) fn of(configuration: &Configuration) -> Self {
        if configuration.has_gateways() {
            return Self::of_gateways(configuration);
        }
        let (times, streams) = (&configuration.timeouts, configuration.streams());
        if configuration.source.is_empty() {
            return Self(vec![log(configuration.monitor.log_level)]);
        }
        let time = |parameter: Parameter, time: Duration| {
            new(parameter.name(), Subject::Nodes(parameter), time.as_nanos() as u64)
        };
        let times = [
            time(Parameter::SourceTimeout, times.readout.0),
            time(Parameter::ResyncTimeout, times.resync.0),
            time(Parameter::BuilderTimeout, times.builder.0),
            time(Parameter::ManagerTimeout, times.manager.0),
            time(Parameter::UnreachableTimeout, times.unreachable.0),
            time(Parameter::DrainTimeout, times.drain.0),
            time(Parameter::ReportInterval, REPORT_INTERVAL),
        ];
        // Filter units that get events as files select streams themselves, and read their task once.
        let prescales = prescales(&configuration.stream, &streams).filter(|_| configuration.file_based.is_none());
        Self(times.into_iter().chain(prescales).chain([log(configuration.monitor.log_level)]).collect())
    }

    fn of_gateways(configuration: &Configuration) -> Self {
        let timeout = |(index, flow): (u16, &FlowSection)| {
            let name = format!("flow.{}.{}", flow.name, Parameter::SetTimeout.name());
            let below = Some(flow.decision_timeout.0.as_nanos() as u64);
            let subject = Subject::Nodes(Parameter::SetTimeout);
            LiveParameter { of: index, below, ..new(&name, subject, flow.timeout.0.as_nanos() as u64) }
        };
        let interval = Parameter::ReportInterval;
        let interval = new(interval.name(), Subject::Nodes(interval), OrderBoard::INTERVAL.as_nanos() as u64);
        let streams = configuration.streams();
        let prescales = prescales(&configuration.stream, &streams);
        let log = log(configuration.monitor.log_level);
        Self((0..).zip(&configuration.flow).map(timeout).chain([interval]).chain(prescales).chain([log]).collect())
    }

    /// Returns all parameters.
    pub(super) fn all(&self) -> &[LiveParameter] {
        &self.0
    }

    /// Applies a changed configuration. A parameter that was changed by an operator keeps its value if its configured
    /// value is the same.
    pub(super) fn follow(&mut self, configured: &Self) {
        let before = std::mem::replace(self, configured.clone());
        for one in &mut self.0 {
            let same = before.0.iter().find(|old| old.name == one.name && old.configured == one.configured);
            one.value = same.map_or(one.value, |old| old.value);
        }
        if fit(&self.0).is_err() {
            self.0.clone_from(&configured.0);
        }
    }

    /// Returns the parameters that differ from their configured value.
    pub(super) fn changed(&self) -> impl Iterator<Item = Setting> + '_ {
        self.0.iter().filter(|one| one.value != one.configured).filter_map(LiveParameter::setting)
    }

    /// Applies all changes or none. Returns the settings for nodes, and a description of each change.
    pub(super) fn ask(&mut self, request: &ParameterRequest) -> Result<Vec<(Option<Setting>, String)>, RequestRefusal> {
        let mut next = self.0.clone();
        let mut told = Vec::new();
        for (name, text) in &request.changes {
            let Some(place) = next.iter().position(|one| one.name == *name) else {
                let known = next.iter().map(|one| one.name.as_str());
                return Err(RequestRefusal::Unknown(no_such("parameter that can be changed is named", name, known)));
            };
            let one = &mut next[place];
            let value = one.read(text).map_err(RequestRefusal::Unfit)?;
            if value != one.value {
                let words = format!("{name} is {} now; it was {}", one.text(value), one.text(one.value));
                one.value = value;
                told.push((one.setting(), words));
            }
        }
        fit(&next).map_err(RequestRefusal::Unfit)?;
        self.0 = next;
        Ok(told)
    }
}

/// Returns the prescales that can be changed. Streams that take every event are excluded: `verify` would report the
/// events that they leave out as missing.
fn prescales<'a>(sections: &'a [StreamSection], streams: &'a Streams) -> impl Iterator<Item = LiveParameter> + 'a {
    let may_change = |(index, _): &(u16, _)| !streams.takes_all(StreamIndex(*index as u8));
    (0..).zip(sections).filter(may_change).map(|(index, stream): (u16, &StreamSection)| {
        let name = format!("stream.{}.{}", stream.name, Parameter::Prescale.name());
        LiveParameter { of: index, ..new(&name, Subject::Nodes(Parameter::Prescale), stream.prescale.into()) }
    })
}

/// Returns the current interval of nodes' reports.
pub(super) fn report_interval(parameters: &Parameters) -> Duration {
    let known = parameters.0.iter().find(|one| one.subject == Subject::Nodes(Parameter::ReportInterval));
    known.map_or(REPORT_INTERVAL, |one| Duration::from_nanos(one.value))
}

/// Returns the current log level.
pub(super) fn log_level(parameters: &Parameters) -> LogLevel {
    let known = parameters.0.iter().find(|one| one.subject == Subject::Log);
    known.map_or_else(LogLevel::default, |one| level(one.value))
}

fn new(name: &str, subject: Subject, value: u64) -> LiveParameter {
    LiveParameter { name: name.to_owned(), subject, value, configured: value, of: 0, below: None }
}

fn log(level: LogLevel) -> LiveParameter {
    new("monitor.log_level", Subject::Log, level as u64)
}

fn level(value: u64) -> LogLevel {
    LogLevel::ALL.get(value as usize).copied().unwrap_or_default()
}

/// Checks that each time-out is longer than the one before it, as in a configuration.
fn fit(parameters: &[LiveParameter]) -> Result<(), String> {
    let too_long = parameters.iter().find_map(|one| Some((one, one.below.filter(|below| one.value >= *below)?)));
    if let Some((one, below)) = too_long {
        let (name, value, below) = (&one.name, one.text(one.value), one.text(below));
        return Err(format!(
            "{name} ({value}) has to be shorter than decision_timeout ({below}): events wait for their packets first"
        ));
    }
    let of = |parameter| parameters.iter().find(|one| one.subject == Subject::Nodes(parameter));
    let ordered = [
        (Parameter::SourceTimeout, Parameter::BuilderTimeout),
        (Parameter::BuilderTimeout, Parameter::ManagerTimeout),
        (Parameter::ManagerTimeout, Parameter::DrainTimeout),
    ];
    for (shorter, longer) in ordered {
        if let (Some(shorter), Some(longer)) = (of(shorter), of(longer))
            && longer.value <= shorter.value
        {
            let (one, other) = (longer.text(longer.value), shorter.text(shorter.value));
            return Err(format!("{} ({one}) has to be longer than {} ({other})", longer.name, shorter.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_config::parse;

    fn parameters(more: &str) -> Parameters {
        let text = format!(
            "version = 1\n[run]\noutput = \"runs\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
             [[source]]\nid = 1\nreadout = \"ru0\"\n{more}"
        );
        Parameters::of(&parse("parameters", &text, &|_| None).unwrap_or_else(|error| panic!("{error}")))
    }

    fn ask(parameters: &mut Parameters, changes: &[(&str, &str)]) -> Result<Vec<String>, RequestRefusal> {
        let changes = changes.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        parameters.ask(&ParameterRequest { changes }).map(|told| told.into_iter().map(|(_, words)| words).collect())
    }

    #[test]
    fn changed_parameters_are_reported_and_an_unfit_request_is_refused_as_a_whole() {
        let mut all = parameters("[timeouts]\nreadout = \"1s\"\nbuilder = \"3s\"\nmanager = \"5s\"\ndrain = \"30s\"\n");
        assert_eq!(ask(&mut all, &[("timeouts.readout", "1s")]), Ok(vec![]));
        let words = "timeouts.readout is 2s now; it was 1s".to_owned();
        assert_eq!(ask(&mut all, &[("timeouts.readout", "2s")]), Ok(vec![words]));
        let setting = Setting { parameter: Parameter::SourceTimeout, of: 0, value: 2_000_000_000 };
        assert_eq!(all.changed().collect::<Vec<_>>(), [setting]);
        let refused = ask(&mut all, &[("monitoring.interval", "1s"), ("timeouts.builder", "2s")]);
        let why = "timeouts.builder (2s) has to be longer than timeouts.readout (2s)";
        assert_eq!(refused, Err(RequestRefusal::Unfit(why.to_owned())));
        assert_eq!(all.changed().count(), 1, "nothing of what is refused is done");
        for (name, text) in [("timeouts.readout", "soon"), ("timeouts.readout", "0s"), ("monitoring.interval", "1h")] {
            assert!(matches!(ask(&mut all, &[(name, text)]), Err(RequestRefusal::Unfit(_))), "{name} = {text}");
        }
        assert!(matches!(ask(&mut all, &[("run.output", "x")]), Err(RequestRefusal::Unknown(_))));
        let near = "no parameter that can be changed is named `timeout.readout`; did you mean `timeouts.readout`?";
        assert_eq!(ask(&mut all, &[("timeout.readout", "2s")]), Err(RequestRefusal::Unknown(near.to_owned())));
        ask(&mut all, &[("timeouts.readout", "1s")]).expect("as it was");
        assert_eq!(all.changed().count(), 0);
    }

    #[test]
    fn what_was_changed_stays_so_where_the_configuration_says_what_it_said() {
        let times = |readout: &str, builder: &str| {
            parameters(&format!(
                "[timeouts]\nreadout = \"{readout}\"\nbuilder = \"{builder}\"\nmanager = \"9s\"\ndrain = \"30s\"\n"
            ))
        };
        let values = |all: &Parameters| [&all.all()[0], &all.all()[2]].map(|one| one.text(one.value));
        let changed = [("timeouts.readout", "2s"), ("timeouts.builder", "4s")];
        let mut all = times("1s", "3s");
        ask(&mut all, &changed).expect("it fits");
        all.follow(&times("1s", "5s"));
        assert_eq!(values(&all), ["2s", "5s"]);
        all.follow(&times("1s", "1500ms"));
        assert_eq!(values(&all), ["1s", "1.5s"], "what does not fit together any more is as it is configured");
    }

    #[test]
    fn prescales_of_streams_that_do_not_have_every_event_may_be_changed() {
        let streams = "[[stream]]\nname = \"all\"\n[[stream]]\nname = \"some\"\nprescale = 10\n";
        let mut all = parameters(streams);
        let names: Vec<_> = all.all()[7..].iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["stream.some.prescale", "monitor.log_level"]);
        let told = all.ask(&ParameterRequest { changes: vec![("stream.some.prescale".to_owned(), "4".to_owned())] });
        let setting = Setting { parameter: Parameter::Prescale, of: 1, value: 4 };
        assert_eq!(told.expect("it fits")[0].0, Some(setting));
        for text in ["0", "-1", "1.5", "4294967296", "1s"] {
            assert!(ask(&mut all, &[("stream.some.prescale", text)]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_log_level_may_be_changed_and_nodes_do_not_hear_of_it() {
        let mut all = parameters("[monitor]\nlog_level = \"error\"\n");
        assert_eq!(log_level(&all), LogLevel::Error);
        let words = "monitor.log_level is info now; it was error".to_owned();
        assert_eq!(ask(&mut all, &[("monitor.log_level", "info")]), Ok(vec![words]));
        assert_eq!((log_level(&all), all.changed().count()), (LogLevel::Info, 0));
        let why = "monitor.log_level = loud: one of error, warning, info".to_owned();
        assert_eq!(ask(&mut all, &[("monitor.log_level", "loud")]), Err(RequestRefusal::Unfit(why)));
        assert_eq!(log_level(&parameters("")), LogLevel::Warning);
        for (place, level) in LogLevel::ALL.into_iter().enumerate() {
            assert_eq!(level as usize, place, "{}", level.name());
        }
    }

    #[test]
    fn the_time_outs_of_flows_and_how_often_gateways_tell_of_themselves_may_be_changed() {
        let system = |decisions: &str| {
            let text = format!(
                "version = 1\n[[flow]]\nname = \"l1\"\npacking = 5\nsources = {{ count = 3, first = 0, address = \"127.0.0.1:23000\" }}\n\
                 [[flow]]\nname = \"hlt\"\npacking = 5\ntimeout = \"300ms\"\ndecision_timeout = \"{decisions}\"\n\
                 sources = {{ count = 2, first = 10, address = \"127.0.0.1:24000\" }}\n\
                 [[gateway]]\nname = \"gw0\"\nlisten = {{ l1 = \"127.0.0.1:0\", hlt = \"127.0.0.1:0\" }}\n[farm]\nnodes = 1\nemulate = {{}}\n\
                 [[stream]]\nname = \"all\"\n[[stream]]\nname = \"some\"\nprescale = 10\n"
            );
            let read = ropewalk_config::parse("parameters", &text, &|_| None);
            Parameters::of(&read.unwrap_or_else(|error| panic!("{error}")))
        };
        let mut all = system("2s");
        let told: Vec<_> = all.all().iter().map(|one| format!("{} = {}", one.name, one.text(one.value))).collect();
        let configured = ["flow.l1.timeout = 100ms", "flow.hlt.timeout = 300ms", "monitoring.interval = 50ms"];
        assert_eq!(told[..3], configured);
        assert_eq!(told[3..], ["stream.some.prescale = 10", "monitor.log_level = warning"]);
        let changes = [("flow.hlt.timeout", "1s"), ("monitoring.interval", "200ms")];
        assert_eq!(ask(&mut all, &changes).map(|told| told.len()), Ok(2));
        let timeout = Setting { parameter: Parameter::SetTimeout, of: 1, value: 1_000_000_000 };
        let interval = Setting { parameter: Parameter::ReportInterval, of: 0, value: 200_000_000 };
        assert_eq!(all.changed().collect::<Vec<_>>(), [timeout, interval]);
        let why =
            "flow.hlt.timeout (2s) has to be shorter than decision_timeout (2s): events wait for their packets first";
        assert_eq!(ask(&mut all, &[("flow.hlt.timeout", "2s")]), Err(RequestRefusal::Unfit(why.to_owned())));
        assert!(ask(&mut all, &[("flow.l1.timeout", "0s")]).is_err());
        assert!(matches!(ask(&mut all, &[("flow.other.timeout", "1s")]), Err(RequestRefusal::Unknown(_))));
        all.follow(&system("3s"));
        assert_eq!(all.changed().count(), 2, "it still fits");
        all.follow(&system("800ms"));
        assert_eq!(all.changed().count(), 0);
    }
}
