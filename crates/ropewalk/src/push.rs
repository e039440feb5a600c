//! Runs with gateways: one gateway, emulated sources or farm nodes in this process; what the terminal shows of the account.

use crate::arguments::{FarmNodeOptions, NodeOptions, RunLimits, SourceMepOptions};
use crate::exit::{self, Failure};
use crate::render::{disk_lines, grouped};
use crate::running::{Interrupts, Limits, overrule, take_run, tell_summary, warn};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_config::{Configuration, ConfigurationError};
use ropewalk_engine::gateway::PacketSourceReport;
use ropewalk_run::gateway::{FlowSummary, GatewaySnapshot, RestartSummary, SystemPart};
use ropewalk_run::launch_part;
use ropewalk_run::session::{GatewayProcess, Launcher};
use ropewalk_run::{RunError, RunHandle, RunSummary};
use ropewalk_terms::ByCause;
use std::io::IsTerminal;
use std::ops::Range;
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

/// Numbers as `0..4`.
pub(crate) fn numbers(text: &str) -> Result<Range<u16>, String> {
    let wrong = || format!("`{text}` is no range of numbers such as 0..4");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    Ok(first.parse().map_err(|_| wrong())?..end.parse().map_err(|_| wrong())?)
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

/// How often progress is shown.
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
            return format!("received {} events/s", rate(self.events, before.events));
        }
        format!(
            "sent {} packets/s  {} MB/s  lost on purpose {}",
            rate(self.packets, before.packets),
            rate(self.bytes / 1_000_000, before.bytes / 1_000_000),
            grouped(self.lost),
        )
    }
}

/// Sentences on sources that are printed of an account: a flow may have hundreds of sources.
const MOST_REMARKS: usize = 10;

/// The lines of an account with flows.
pub(crate) fn lines(summary: &RunSummary) -> Vec<String> {
    let mut lines = Vec::new();
    // Sources and nodes that are processes know only what they did themselves.
    let is_node = summary.gateways.is_empty() && summary.farm.is_some();
    match summary.farm.filter(|_| is_node) {
        Some(farm) => lines.push(format!(
            "received {} events, {} of them incomplete; accepted {}",
            grouped(farm.events + farm.incomplete),
            grouped(farm.incomplete),
            grouped(farm.accepted)
        )),
        None => lines.push(table(summary).to_string()),
    }
    lines.extend(summary.remarks.iter().take(MOST_REMARKS).cloned());
    let more = summary.remarks.len().saturating_sub(MOST_REMARKS);
    lines.extend((more > 0).then(|| format!("and {} more `remarks` in the account", grouped(more as u64))));
    lines.extend(restart_lines(summary));
    lines.extend(disk_lines(&summary.disk));
    lines.extend(summary.ledger.unbalanced.iter().map(|broken| format!("UNBALANCED: {broken}")));
    if !summary.directory.as_os_str().is_empty() {
        let written = grouped(summary.events.written);
        lines.push(format!("written {written} events; the account is in {}", summary.directory.display()));
    }
    lines
}

/// A line for each source that started its numbering again.
fn restart_lines(summary: &RunSummary) -> Vec<String> {
    let sources = summary.flows.values().flat_map(|flow| &flow.sources);
    let restarted = sources.filter_map(|(id, source)| Some((id, source.last_restart?, source.out_of_sync)));
    let line = |(id, RestartSummary { from, to }, dropped): (&String, RestartSummary, u64)| {
        format!("source {id} restarted counting: {from} -> {to}; {dropped} packets behind that were out of sync")
    };
    restarted.map(line).collect()
}

/// A number of a flow's account; `None` if it is unknown here.
type Number = fn(&FlowSummary) -> Option<u64>;

/// The first rows of `PACKETS`: what sources know.
const SENT_ROWS: usize = 2;

/// Rows of the account, above the packets that were lost without a cause.
const PACKETS: &[(&str, Number)] = &[
    ("packets sent", |flow| Some(flow.sent?.packets)),
    ("lost on purpose", |flow| Some(flow.sent?.lost_on_purpose)),
    ("received", |flow| Some(flow.packets.received)),
    ("  in complete sets", |flow| Some(flow.packets.in_complete_events)),
    ("  in incomplete sets", |flow| Some(flow.packets.in_incomplete_events)),
    ("  received twice", |flow| Some(flow.packets.duplicate)),
    ("  too late", |flow| Some(flow.packets.late)),
];

/// Rows below.
const EVENTS: &[(&str, Number)] = &[
    ("sets complete", |flow| Some(flow.sets.complete)),
    ("sets incomplete", |flow| Some(flow.sets.incomplete)),
    ("events decided", |flow| Some(flow.farm.decided)),
    ("  by default (time-out)", |flow| Some(flow.farm.by_default)),
    ("  within the latency budget", |flow| Some(flow.farm.in_budget)),
    ("accepted", |flow| Some(flow.events.accepted)),
    ("events sent to a node again", |flow| Some(flow.farm.pushed_again)),
    ("decisions sent in event order", |flow| Some(flow.farm.streamed)),
    ("events sent to storage", |flow| Some(flow.farm.stored)),
    ("events in flight", |flow| Some(flow.events.in_flight)),
];

fn table(summary: &RunSummary) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([String::new()].into_iter().chain(summary.flows.keys().cloned()));
    let mut row = |name: &str, text: &dyn Fn(&FlowSummary) -> String| {
        table.add_row([name.to_owned()].into_iter().chain(summary.flows.values().map(text)));
    };
    let is_known = |of: &Number| summary.flows.values().any(|flow| of(flow).is_some());
    let number = |number: Number| move |flow: &FlowSummary| number(flow).map_or_else(|| "-".to_owned(), grouped);
    if summary.gateways.is_empty() {
        PACKETS.iter().take(SENT_ROWS).for_each(|(name, of)| row(name, &number(*of)));
        return aligned(table);
    }
    PACKETS.iter().filter(|(_, of)| is_known(of)).for_each(|(name, of)| row(name, &number(*of)));
    row("sent, and lost without a cause", &|flow| {
        u64::try_from(flow.unexplained).map_or_else(|_| flow.unexplained.to_string(), grouped)
    });
    EVENTS.iter().for_each(|(name, of)| row(name, &number(*of)));
    row("packets lost", &|flow| by_cause(&flow.lost_by_cause));
    row("packets refused", &|flow| by_cause(&flow.packets.dropped));
    row("packets missing", &|flow| by_cause(&flow.sets.missing_packets));
    aligned(table)
}

fn aligned(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Counts by cause, a line each.
fn by_cause(causes: &ByCause) -> String {
    causes.names().iter().map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join("\n")
}
