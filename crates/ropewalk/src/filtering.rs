//! Filtering files of events: the broker with its units, and one unit. And filter units for builder units elsewhere.

use crate::arguments::{FilterFilesOptions, FilterNodeOptions, FilterUnitOptions, UnitTaskOptions};
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::grouped;
use crate::running::warn;
use crate::signals::Interrupts;
use ropewalk_flow::files::BrokerConfig;
use ropewalk_node::configuration;
use ropewalk_node::file_based::{BrokerOptions, FilesSummary, Place, UnitTask, serve_files};
use ropewalk_node::run::launch_filter_node;
use ropewalk_plugin::filter::FilterConfig;
use std::time::Duration;

/// So many files of other runs are named.
const NAMED: usize = 3;

impl UnitTaskOptions {
    fn task(&self) -> UnitTask {
        let configuration = self.configuration.clone();
        let filter = self.library.clone().map(|library| FilterConfig { library, configuration });
        UnitTask::new(&self.trigger, filter.map(|filter| (filter, self.memory.0)), &self.stream)
    }
}

pub(crate) fn filter_files(options: &FilterFilesOptions) -> Result<u8, Failure> {
    let place = Place::open(&options.directory)?;
    let environment = |error: std::io::Error| Failure::Environment(error.to_string());
    let interrupts = Interrupts::listen().map_err(environment)?;
    let program = std::env::current_exe().map_err(environment)?;
    let task = options.task.task();
    // What is wrong with it is said once, and not by each unit.
    warn(&task.load(place.run()).map_err(|error| Failure::Usage(error.to_string()))?.warnings());
    let arguments = task.arguments(&options.directory);
    let broker = BrokerConfig { tries: options.tries, time_out: options.time_out.0, ..BrokerConfig::default() };
    let wanted = BrokerOptions { broker, units: options.units, unit: Some((program, arguments)) };
    let summary = serve_files(&place, &wanted, || interrupts.count() > 0)?;
    if options.json {
        print_json(&summary)?;
    } else {
        write_results(summary_text(&summary).as_bytes());
    }
    Ok(match (summary.balanced, summary.set_aside) {
        (false, _) => exit::UNBALANCED,
        (true, 1..) => exit::LOST,
        (true, 0) => exit::GOOD,
    })
}

pub(crate) fn filter_unit(options: &FilterUnitOptions) -> Result<u8, Failure> {
    let place = Place::open(&options.directory)?;
    let mut unit = options.task.task().load(place.run()).map_err(|error| Failure::Usage(error.to_string()))?;
    unit.filter_files(&place)?;
    Ok(exit::GOOD)
}

/// Is a filter node until it is interrupted.
pub(crate) fn filter_node(options: &FilterNodeOptions) -> Result<u8, Failure> {
    let configuration = configuration::read_pull(&options.config)?;
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let mut node = launch_filter_node(&configuration, &options.listen)?;
    warn(node.warnings());
    say!("ready filter-node {}", node.address());
    while interrupts.count() == 0 && !node.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
        node.take_news().iter().for_each(|line| tell!("{line}"));
    }
    let has_ended = node.has_ended();
    let summary = node.finish();
    let (welcomed, refused) = (grouped(summary.welcomed), grouped(summary.refused));
    tell!("{} decisions; {welcomed} callers were welcomed, and {refused} refused", grouped(summary.decisions));
    Ok(if has_ended { exit::UNBALANCED } else { exit::GOOD })
}

fn summary_text(summary: &FilesSummary) -> String {
    let mut text = format!("run          {}\n", summary.run);
    for (name, count) in [
        ("files", summary.files),
        ("decided", summary.decided),
        ("set aside", summary.set_aside),
        ("given back", summary.given_back),
        ("restarts", summary.restarts),
        ("events", summary.processed),
        ("accepted", summary.accepted),
    ] {
        text.push_str(&format!("{name:<12} {}\n", grouped(count)));
    }
    for stream in &summary.streams {
        let [selected, away, written, bytes] =
            [stream.selected, stream.prescaled_away, stream.written, stream.bytes].map(grouped);
        let name = &stream.stream;
        text.push_str(&format!(
            "stream       {name}: {written} written of {selected}, {away} prescaled away; {bytes} bytes\n"
        ));
    }
    let others: Vec<&str> = summary.of_other_runs.iter().map(String::as_str).take(NAMED).collect();
    if !others.is_empty() {
        let count = grouped(summary.of_other_runs.len() as u64);
        text.push_str(&format!("other runs   {count} files are left alone: {}\n", others.join(", ")));
    }
    summary.failures.iter().for_each(|why| text.push_str(&format!("given back   {why}\n")));
    summary.unbalanced.iter().for_each(|why| text.push_str(&format!("WRONG        {why}\n")));
    let verdict = if summary.balanced { "every event has its fate" } else { "NOT BALANCED: see above" };
    text + verdict + "\n"
}
