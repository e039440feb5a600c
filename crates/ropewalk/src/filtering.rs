//! Filtering files of events: the broker with its units, and one unit. And filter units for builder units elsewhere.

use crate::arguments::{FilterFilesOptions, FilterNodeOptions, FilterUnitOptions};
use crate::exit::{self, Failure};
use crate::files::{print_json, write_out};
use crate::render::grouped;
use crate::running::warn;
use crate::signals::Interrupts;
use ropewalk_flow::files::BrokerConfig;
use ropewalk_node::configuration;
use ropewalk_node::file_based::{BrokerOptions, FilesError, FilesSummary, Place, UnitFilter, serve_files};
use ropewalk_node::run::launch_filter_node;
use std::time::Duration;

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        let text = error.to_string();
        match error {
            FilesError::Document { .. } | FilesError::Served { .. } => Self::Usage(text),
            FilesError::System { error, .. } if error.kind() == std::io::ErrorKind::NotFound => Self::Usage(text),
            _ => Self::Environment(text),
        }
    }
}

pub(crate) fn filter_files(options: &FilterFilesOptions) -> Result<u8, Failure> {
    let place = Place::open(&options.directory)?;
    let environment = |error: std::io::Error| Failure::Environment(error.to_string());
    let interrupts = Interrupts::listen().map_err(environment)?;
    let program = std::env::current_exe().map_err(environment)?;
    let filter = UnitFilter::new(&options.filter, options.library.as_deref(), &options.configuration);
    let arguments = filter.arguments(&options.directory);
    let broker = BrokerConfig { tries: options.tries, time_out: options.time_out.0, ..BrokerConfig::default() };
    let wanted = BrokerOptions { broker, units: options.units, unit: Some((program, arguments)) };
    let summary = serve_files(&place, &wanted, || interrupts.count() > 0)?;
    if options.json {
        print_json(&summary)?;
    } else {
        write_out(summary_text(&summary).as_bytes())?;
    }
    Ok(match (summary.balanced, summary.set_aside) {
        (false, _) => exit::UNBALANCED,
        (true, 1..) => exit::LOST,
        (true, 0) => exit::GOOD,
    })
}

pub(crate) fn filter_unit(options: &FilterUnitOptions) -> Result<u8, Failure> {
    let place = Place::open(&options.directory)?;
    let filter = UnitFilter::new(&options.filter, options.library.as_deref(), &options.configuration);
    let mut filter = filter.load(place.run()).map_err(|error| Failure::Usage(error.to_string()))?;
    ropewalk_node::file_based::filter_files(&place, &mut *filter)?;
    Ok(exit::GOOD)
}

/// Is a filter node until it is interrupted.
pub(crate) fn filter_node(options: &FilterNodeOptions) -> Result<u8, Failure> {
    let configuration = configuration::read(&options.config)?;
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let mut node = launch_filter_node(&configuration, &options.listen)?;
    warn(node.warnings());
    say!("ready filter-node {}", node.address());
    while interrupts.count() == 0 && !node.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
        node.take_news().iter().for_each(|line| eprintln!("{line}"));
    }
    let has_ended = node.has_ended();
    let summary = node.finish();
    let (welcomed, refused) = (grouped(summary.welcomed), grouped(summary.refused));
    eprintln!("{} decisions; {welcomed} callers were welcomed, and {refused} refused", grouped(summary.decisions));
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
    ] {
        text.push_str(&format!("{name:<12} {}\n", grouped(count)));
    }
    for stream in &summary.streams {
        let (events, bytes) = (grouped(stream.events), grouped(stream.bytes));
        text.push_str(&format!("{:<12} {events} events, {bytes} bytes\n", stream.stream));
    }
    for lumisection in summary.lumisections.iter().filter(|lumisection| !lumisection.balanced) {
        text.push_str(&format!("WRONG        lumisection {} does not add up\n", lumisection.lumisection));
    }
    let verdict = if summary.balanced { "every event has its fate" } else { "NOT BALANCED" };
    text + verdict + "\n"
}
