//! Runs with gateways: one gateway, emulated sources or farm nodes in this process.

use crate::arguments::{FarmNodeOptions, NodeOptions, RunLimits, SourceMepOptions};
use crate::exit::{self, Failure};
use crate::interrupts::Interrupts;
use crate::render::{grouped, warn};
use crate::running::{Limits, overrule, take_run, tell_summary};
use ropewalk_config::{Configuration, ConfigurationError};
use ropewalk_engine::gateway::PacketSourceReport;
use ropewalk_run::gateway::{GatewaySnapshot, SystemPart};
use ropewalk_run::launch_part;
use ropewalk_run::session::{GatewayProcess, Launcher};
use ropewalk_run::{RunError, RunHandle};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When emulated parts of a push system that are a process of their own end, and how that is reported.
struct PushLimits {
    /// After this time.
    duration: Option<Duration>,
    /// After this many events of the first flow.
    events: Option<u64>,
    /// The account as JSON.
    json: bool,
}

/// One gateway, its sources and its farm being other processes.
pub(crate) fn gateway(options: &NodeOptions) -> Result<u8, Failure> {
    let configuration = ropewalk_config::read_push(&options.config)?;
    let names: Vec<&str> = configuration.gateway.iter().map(|gateway| gateway.name.as_str()).collect();
    let known = names.join(", ");
    let name = match &options.name {
        None => return Err(Failure::Usage(format!("say which gateway to be with --name; there are: {known}"))),
        Some(name) if names.contains(&name.as_str()) => name.clone(),
        Some(name) => return Err(Failure::Usage(format!("no gateway is named `{name}`; there are: {known}"))),
    };
    let system = read_gateway(&options.config, &name, &options.limits)?;
    let limits = Limits::of(&options.limits, (&options.control, false), &system.configuration)?;
    let (file, options) = (options.config.clone(), options.limits.clone());
    let read =
        move || read_gateway(&file, &name, &options).map_err(|error| RunError::Unfit(Failure::from(error).to_string()));
    take_run(Arc::new(Launcher::reading(system, read)), &limits)
}

/// Reads the configuration of a gateway from a file; the options override the file.
fn read_gateway(file: &Path, name: &str, options: &RunLimits) -> Result<GatewayProcess, ConfigurationError> {
    let mut configuration = ropewalk_config::read_push(file)?;
    overrule(&mut configuration, options);
    Ok(GatewayProcess { configuration, name: name.to_owned() })
}

/// Runs the trigger and the sources of the chosen flows.
pub(crate) fn sources(options: &SourceMepOptions) -> Result<u8, Failure> {
    let mut configuration = ropewalk_config::read_push(&options.config)?;
    for name in &options.flow {
        if !configuration.flow.iter().any(|flow| flow.name == *name) {
            return Err(Failure::Usage(format!("no flow is named `{name}`")));
        }
    }
    for flow in &mut configuration.flow {
        let emulate = flow.emulate.get_or_insert_default();
        emulate.rate = options.rate.or(emulate.rate);
        emulate.loss = options.loss.unwrap_or(emulate.loss);
        if !(0.0..=1.0).contains(&emulate.loss) {
            return Err(Failure::Usage("--loss: a share lies between 0 and 1".to_owned()));
        }
    }
    let limits = PushLimits {
        duration: options.duration.or(configuration.run.duration).map(|time| time.0),
        events: options.events.or(configuration.run.events),
        json: options.json,
    };
    take(&configuration, &SystemPart::Sources(options.flow.clone()), &limits)
}

/// Some nodes of the farm.
pub(crate) fn farm_node(options: &FarmNodeOptions) -> Result<u8, Failure> {
    let mut configuration = ropewalk_config::read_push(&options.config)?;
    if configuration.filter.is_none() {
        let emulate = configuration.farm.emulate.get_or_insert_default();
        emulate.decision_time = options.decision_time.unwrap_or(emulate.decision_time);
        emulate.accept = options.accept.unwrap_or(emulate.accept);
        if !(0.0..=1.0).contains(&emulate.accept) {
            return Err(Failure::Usage("--accept: a share lies between 0 and 1".to_owned()));
        }
    } else if options.decision_time.is_some() || options.accept.is_some() {
        let message = "the nodes decide by the [filter]: leave out --decision-time and --accept";
        return Err(Failure::Usage(message.to_owned()));
    }
    let all = configuration.farm.nodes;
    let nodes = options.nodes.clone().unwrap_or(0..all);
    if nodes.is_empty() || nodes.end > all {
        return Err(Failure::Usage(format!("--nodes: the farm has the nodes 0..{all}")));
    }
    let limits = PushLimits { duration: options.duration.map(|time| time.0), events: None, json: options.json };
    take(&configuration, &SystemPart::Nodes(nodes), &limits)
}

/// Emulates a part of another process's run and prints its account; returns the exit status.
fn take(configuration: &Configuration, part: &SystemPart, limits: &PushLimits) -> Result<u8, Failure> {
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let mut handle = launch_part(configuration, part, limits.events)?;
    warn(handle.warnings());
    for (name, address) in handle.addresses() {
        tell!("{name} listens on {address}");
    }
    conduct(&mut handle, part, limits, &interrupts);
    let summary = handle.finish(Duration::ZERO);
    tell_summary(&summary, limits.json)?;
    Ok(exit::with_reasons(&summary.status))
}

/// The interval of progress reports.
const PROGRESS: Duration = Duration::from_secs(1);

fn conduct(handle: &mut RunHandle, part: &SystemPart, limits: &PushLimits, interrupts: &Interrupts) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut shown = Instant::now();
    let (mut before, mut told) = (Totals::default(), false);
    while !handle.is_ended() {
        std::thread::sleep(Duration::from_millis(10));
        if shown.elapsed() >= if is_terminal { PROGRESS } else { 5 * PROGRESS } {
            let now = Totals::of(&handle.gateways());
            tell!("{}", now.since(&before, shown.elapsed(), part));
            (before, shown) = (now, Instant::now());
        }
        let is_over = limits.duration.is_some_and(|duration| handle.age() >= duration);
        if interrupts.count() > 0 && !std::mem::replace(&mut told, true) {
            tell!("stopping: what has come is still built and decided; interrupt again to stop at once");
        }
        if interrupts.count() > 1 {
            handle.force_stop();
            return;
        }
        if interrupts.count() > 0 || is_over || handle.sources_ended() {
            handle.stop();
        }
    }
}

/// Numbers for the line of progress.
#[derive(Copy, Clone, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
    lost: u64,
    events: u64,
}

impl Totals {
    fn of(snapshot: &GatewaySnapshot) -> Self {
        let sum = |count: fn(&PacketSourceReport) -> u64| snapshot.sources.iter().map(|(_, sent)| count(sent)).sum();
        Self {
            packets: sum(|sent| sent.packets),
            bytes: sum(|sent| sent.bytes),
            lost: sum(|sent| sent.lost),
            events: snapshot.nodes.iter().map(|node| node.events).sum(),
        }
    }

    /// What sources send, and what nodes take.
    fn since(&self, before: &Self, elapsed: Duration, part: &SystemPart) -> String {
        let rate = |now: u64, before: u64| grouped(((now - before) as f64 / elapsed.as_secs_f64()) as u64);
        if matches!(part, SystemPart::Nodes(_)) {
            if self.events == 0 {
                return "no gateway has sent an event yet".to_owned();
            }
            return format!("received {} events/s", rate(self.events, before.events));
        }
        if self.packets == 0 {
            return "nothing sent yet: no gateway has started a run".to_owned();
        }
        format!(
            "sent {} packets/s  {} MB/s  lost on purpose {}",
            rate(self.packets, before.packets),
            rate(self.bytes / 1_000_000, before.bytes / 1_000_000),
            grouped(self.lost),
        )
    }
}
