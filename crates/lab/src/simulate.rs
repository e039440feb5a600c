//! `ropewalk simulate`: sizings from a file, fault campaigns, and the trace of one seed, in virtual time.

use crate::arguments::{SimulateOptions, Sweep};
use crate::output::print_json;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ropewalk_config::quantity::{Bandwidth, Bytes};
use ropewalk_console::exit::{self, Failure};
use ropewalk_console::{grouped, output};
use ropewalk_sim::campaign::{Campaign, Orders, Scenario, push, run_with_text};
use ropewalk_sim::sizing::{Buffer, FlowOutcome, Latency, Outcome, Resource, SizingFile, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// A campaign ends when this many seeds have failed: further failures are mostly the same.
const MOST_FAILURES: usize = 10;
/// Default number of seeds of a campaign.
const SEEDS: u64 = 500;

pub(crate) fn simulate(options: &SimulateOptions) -> Result<u8, Failure> {
    if let Some(system) = &options.system {
        return size(system, options);
    }
    if let Some(file) = &options.trace {
        write_trace(options.seed.unwrap_or(0), file)?;
        if options.campaign.is_none() {
            return Ok(exit::GOOD);
        }
    }
    campaign(options)
}

/// Interval of progress messages.
const REFRESH: Duration = Duration::from_millis(250);

/// The progress of the campaign after `time`.
fn so_far(done: u64, seeds: u64, time: Duration) -> String {
    let per_second = done as f64 / time.as_secs_f64().max(1e-3);
    let left = seeds.saturating_sub(done) as f64 / per_second.max(1e-3);
    format!("{} of {} seeds, {per_second:.0}/s, {left:.0} s to go", grouped(done), grouped(seeds))
}

/// Runs the seeds and prints the results.
fn campaign(options: &SimulateOptions) -> Result<u8, Failure> {
    let seeds = options.campaign.unwrap_or(SEEDS);
    let orders = Orders { first: options.seed.unwrap_or(0), seeds, most_failures: MOST_FAILURES };
    let is_terminal = std::io::stderr().is_terminal();
    let (begin, mut told) = (Instant::now(), 0);
    let mut drawn = begin;
    let campaign = Campaign::run(orders, |campaign| {
        for failure in &campaign.failures[told..] {
            tell!("{failure}");
        }
        told = campaign.failures.len();
        if is_terminal && drawn.elapsed() > REFRESH {
            drawn = Instant::now();
            output::live(Some(so_far(campaign.seeds, seeds, begin.elapsed())));
        }
    });
    if is_terminal {
        output::live(None);
    }
    if options.json {
        print_json(&campaign.summary())?;
    } else {
        say!("{}", campaign.coverage);
        say!(
            "{} seeds from {}, {:.0} s of virtual time, {} failed",
            campaign.seeds,
            campaign.first,
            campaign.nanoseconds as f64 / 1e9,
            campaign.failures.len()
        );
        campaign.failures.iter().for_each(|failure| say!("{}", failure.replay));
    }
    Ok(if campaign.failures.is_empty() { exit::GOOD } else { exit::UNBALANCED })
}

/// Runs both systems of a seed and writes their traces.
fn write_trace(seed: u64, file: &Path) -> Result<(), Failure> {
    let systems = [run_with_text(Scenario::draw(seed)), run_with_text(push::Scenario::draw(seed))];
    for broken in systems.iter().filter_map(|outcome| outcome.broken.as_ref()) {
        tell!("seed {seed}: {broken}");
    }
    let texts = systems.map(|outcome| outcome.text).join("\n");
    std::fs::write(file, texts)
        .map_err(|error| Failure::Environment(format!("cannot write {}: {error}", file.display())))
}

/// What `simulate FILE --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "The outcome of a simulated system: the last line of `ropewalk simulate FILE --json`")]
pub(crate) struct SizingReport<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The sizing file.
    file: String,
    /// The swept key and its values; null without a sweep.
    sweep: Option<&'a Sweep>,
    /// One run for each value of the sweep, or the only one.
    runs: Vec<Run>,
}

impl SizingReport<'_> {
    const SCHEMA: &'static str = "ropewalk-sizing-1";
}

/// One simulated run, and how long it took. Rates, latencies, resources and buffers are those between the end of the
/// warm-up and the last trigger.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Run {
    /// The value of the swept key; null without a sweep.
    value: Option<String>,
    #[serde(flatten)]
    outcome: Outcome,
    /// How long the simulation took, in seconds.
    #[schemars(range(min = 0))]
    wall_s: f64,
    /// Steps that were simulated in a second of that time.
    #[schemars(range(min = 0))]
    steps_per_s: f64,
}

pub(crate) fn size(file: &Path, options: &SimulateOptions) -> Result<u8, Failure> {
    let asked = &options.sizing;
    let values: Vec<Option<&String>> = match &asked.sweep {
        Some(sweep) => sweep.values.iter().map(Some).collect(),
        None => vec![None],
    };
    let key = asked.sweep.as_ref().map_or("", |sweep| &sweep.key);
    // Errors in the last value are reported before the first is simulated.
    let systems: Vec<SizingFile> =
        values.iter().map(|value| read(file, key, *value, options)).collect::<Result<_, Failure>>()?;
    let mut runs = Vec::with_capacity(systems.len());
    for (system, value) in systems.iter().zip(values) {
        let name = value.map_or(String::new(), |value| format!(", {key} = {value}"));
        tell!("simulating {} of {}{name} ...", system.times().0, file.display());
        let begin = Instant::now();
        let outcome = system.simulate();
        let wall_s = begin.elapsed().as_secs_f64();
        let steps_per_s = outcome.steps as f64 / wall_s.max(1e-9);
        runs.push(Run { value: value.cloned(), outcome, wall_s, steps_per_s });
    }
    match (&asked.sweep, runs.as_slice()) {
        (None, [run]) => tables(run).iter().for_each(|table| say!("{table}")),
        _ => say!("{}", sweep_table(key, &runs)),
    }
    let balanced = runs.iter().all(|run| run.outcome.events.balanced);
    if options.json {
        let file = file.display().to_string();
        let report = SizingReport { schema: SizingReport::SCHEMA, file, sweep: asked.sweep.as_ref(), runs };
        let text = serde_json::to_string(&report).map_err(|error| Failure::Environment(error.to_string()))?;
        say!("{text}");
    }
    Ok(if balanced { exit::GOOD } else { exit::UNBALANCED })
}

/// Reads the system of a file, with values from the command line in place of the file's: settings, the seed, one value
/// of the sweep, the duration.
fn read(file: &Path, key: &str, value: Option<&String>, options: &SimulateOptions) -> Result<SizingFile, Failure> {
    let seed = options.seed.map(|seed| ("seed".to_owned(), seed.to_string()));
    let value = value.map(|value| (key.to_owned(), value.clone()));
    let mut instead: Vec<(String, String)> = options.sizing.set.iter().cloned().chain(seed).chain(value).collect();
    let system = SizingFile::read(file, &instead)?;
    let Some(duration) = options.sizing.duration else { return Ok(system) };
    let (whole, warm_up) = system.times();
    let warm_up = duration.0.mul_f64(warm_up.0.as_secs_f64() / whole.0.as_secs_f64());
    let nanoseconds = |time: Duration| format!("{}ns", time.as_nanos());
    instead.push(("duration".to_owned(), nanoseconds(duration.0)));
    instead.push(("warm_up".to_owned(), nanoseconds(warm_up)));
    Ok(SizingFile::read(file, &instead)?)
}

// ---- tables --------------------------------------------------------------------------------------------------------

/// A table whose columns after the first are numbers.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for column in 1..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn bandwidth(bytes_per_second: f64) -> String {
    Bandwidth { bytes_per_second }.to_string()
}

/// Formats seconds for people.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.0} us", seconds * 1e6),
    }
}

fn tables(run: &Run) -> Vec<Table> {
    let outcome = &run.outcome;
    let mut all = vec![summary(run)];
    if !outcome.flows.is_empty() {
        let mut flows =
            table(&["flow", "triggered", "decided", "packets", "of bytes", "built 50 / 99 %", "decided 50 / 99 %"]);
        flows.add_rows(outcome.flows.iter().map(flow_row));
        all.push(flows);
    }
    let mut resources = table(&["works", "how many", "busy", "the busiest", "moves", "the one that moves most"]);
    resources.add_rows(outcome.resources.iter().map(resource_row));
    all.push(resources);
    let mut buffers = table(&["holds", "at most held", "has room for", "made others wait"]);
    buffers.add_rows(outcome.buffers.iter().map(buffer_row));
    all.push(buffers);
    let mut networks = table(&[
        "network",
        "packets",
        "lost",
        "time-outs",
        "sent again at once",
        "senders paused",
        "flows standing still",
    ]);
    for network in &outcome.networks {
        networks.add_row([
            network.name.clone(),
            grouped(network.packets),
            grouped(network.dropped),
            grouped(network.timeouts),
            grouped(network.fast_retransmits),
            percent(network.paused),
            format!("{:.1}", network.stalled_flows),
        ]);
    }
    all.push(networks);
    all
}

fn summary(run: &Run) -> Table {
    let outcome = &run.outcome;
    let mut summary = table(&[&outcome.system, &format!("{} counted", time(outcome.counted_s))]);
    let mut row = |name: &str, value: String| {
        summary.add_row([name.to_owned(), value]);
    };
    row("events per second", grouped(outcome.rate.events_per_s.round() as u64));
    if let Some(offered) = outcome.rate.offered_per_s {
        row("triggers per second", grouped(offered.round() as u64));
        row("dead time", percent(outcome.dead_time));
    }
    row("bandwidth", bandwidth(outcome.rate.bytes_per_s));
    row("limited by", outcome.limit.by.clone());
    row("", outcome.limit.because.clone());
    let latency = |latency: &Latency| {
        let times = [latency.p50_s, latency.p90_s, latency.p99_s, latency.p999_s, latency.max_s];
        times.map(time).join(" / ")
    };
    row("trigger to built: 50 / 90 / 99 / 99.9 % / all", latency(&outcome.latency.built));
    row("trigger to released", latency(&outcome.latency.released));
    let events = &outcome.events;
    row("whole run: triggered / vetoed", format!("{} / {}", grouped(events.triggered), grouped(events.vetoed)));
    row("  built / left over", format!("{} / {}", grouped(events.built), grouped(events.in_flight)));
    for (name, count) in [("  incomplete", events.incomplete), ("  dropped", events.dropped)] {
        if count > 0 {
            row(name, grouped(count));
        }
    }
    row("  account", if events.balanced { "balanced" } else { "NOT BALANCED" }.to_owned());
    let steps =
        format!("{} in {}, {:.2} million a second", grouped(outcome.steps), time(run.wall_s), run.steps_per_s / 1e6);
    row("steps (what was taken from the queue)", steps);
    summary
}

fn flow_row(flow: &FlowOutcome) -> [String; 7] {
    let a_second = |rate: f64| format!("{}/s", grouped(rate.round() as u64));
    let latency = |latency: &Latency| format!("{} / {}", time(latency.p50_s), time(latency.p99_s));
    [
        flow.name.clone(),
        a_second(flow.offered_per_s),
        a_second(flow.events_per_s),
        a_second(flow.packets_per_s),
        bandwidth(flow.bytes_per_s),
        latency(&flow.built),
        latency(&flow.decided),
    ]
}

fn resource_row(resource: &Resource) -> [String; 6] {
    let busiest = percent(resource.utilisation_max);
    let bytes = |rate: Option<f64>| rate.map_or_else(String::new, bandwidth);
    [
        resource.name.clone(),
        resource.count.to_string(),
        percent(resource.utilisation),
        if resource.count > 1 { format!("{busiest} (number {})", resource.busiest) } else { busiest },
        bytes(resource.bytes_per_s),
        bytes(resource.bytes_per_s_max),
    ]
}

fn buffer_row(buffer: &Buffer) -> [String; 4] {
    let amount = |amount: u64| match buffer.unit {
        Unit::Bytes => Bytes(amount).to_string(),
        Unit::Events => format!("{} events", grouped(amount)),
    };
    [
        buffer.name.clone(),
        amount(buffer.most),
        buffer.size.map_or_else(String::new, amount),
        buffer.full.map_or_else(String::new, percent),
    ]
}

fn sweep_table(key: &str, runs: &[Run]) -> Table {
    let mut all = table(&[key, "events/s", "bandwidth", "dead time", "built 50 % / 99 %", "limited by", "steps/s"]);
    for run in runs {
        let Outcome { rate, latency, limit, dead_time, .. } = &run.outcome;
        all.add_row([
            run.value.clone().unwrap_or_default(),
            grouped(rate.events_per_s.round() as u64),
            bandwidth(rate.bytes_per_s),
            rate.offered_per_s.map_or_else(String::new, |_| percent(*dead_time)),
            format!("{} / {}", time(latency.built.p50_s), time(latency.built.p99_s)),
            limit.by.clone(),
            format!("{:.2} M", run.steps_per_s / 1e6),
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_their_unit() {
        assert_eq!([1.5, 0.0025, 3e-6].map(time), ["1.50 s", "2.50 ms", "3 us"]);
    }
}
