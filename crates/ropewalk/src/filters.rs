//! Filters over files of events, filter nodes, and trigger decisions over run files.

use crate::arguments::{DecisionsOptions, FilterFilesOptions, FilterNodeOptions, FilterUnitOptions, UnitTaskOptions};
use crate::exit::{self, Failure};
use crate::interrupts::Interrupts;
use crate::output::{print_json, write_results};
use crate::render::{counted, grouped, unless_closed, warn};
use ropewalk_flow::files::BrokerConfig;
use ropewalk_plugin::filter::FilterConfig;
use ropewalk_run::launch_filter_node;
use ropewalk_tools::file_based::{BrokerOptions, FilesSummary, Place, UnitTask, serve_files};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::gateway::{Frame, Message, Stream};
use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// This many files of other runs are named.
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
    // Its faults are reported once, and not by each unit.
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
    unit.filter_files(&place, place.connect()?)?;
    Ok(exit::GOOD)
}

/// Is a filter node until it is interrupted.
pub(crate) fn filter_node(options: &FilterNodeOptions) -> Result<u8, Failure> {
    let configuration = ropewalk_config::read(&options.config)?;
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
        let count = counted(summary.of_other_runs.len(), "file");
        text.push_str(&format!("other runs   {count} left alone: {}\n", others.join(", ")));
    }
    summary.failures.iter().for_each(|why| text.push_str(&format!("given back   {why}\n")));
    summary.unbalanced.iter().for_each(|why| text.push_str(&format!("WRONG        {why}\n")));
    let verdict = if summary.balanced { "every event has its fate" } else { "NOT BALANCED: see above" };
    text + verdict + "\n"
}

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Prints a line for each decision until the gateway ends, or this many were printed.
pub(crate) fn decisions(options: &DecisionsOptions) -> Result<u8, Failure> {
    let environment = |error: std::io::Error| Failure::Environment(format!("{}: {error}", options.address));
    let mut connection = TcpStream::connect(&options.address).map_err(environment)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut bytes, mut room, mut left) = (Vec::new(), vec![0; READ_BYTES], options.count.unwrap_or(u64::MAX));
    while left > 0 {
        let read = connection.read(&mut room).map_err(environment)?;
        bytes.extend_from_slice(&room[..read]);
        let taken = print_whole(&bytes, &mut out, &mut left, options.json);
        match taken.and_then(|taken| out.flush().map(|()| taken).map_err(Unprinted::Output)) {
            Ok(taken) => drop(bytes.drain(..taken)),
            Err(Unprinted::Output(error)) => return unless_closed(Err(error.into())),
            Err(Unprinted::Frame(error)) => {
                let text = format!("{}: not a gateway's decisions: {error}", options.address);
                return Err(Failure::Environment(text));
            }
        }
        if read == 0 {
            break;
        }
    }
    Ok(exit::GOOD)
}

/// Why decisions could not be printed.
enum Unprinted {
    Frame(FrameError),
    Output(std::io::Error),
}

/// Prints the messages that are whole; how many bytes they had.
fn print_whole(bytes: &[u8], out: &mut impl Write, left: &mut u64, json: bool) -> Result<usize, Unprinted> {
    let mut rest = bytes;
    loop {
        let (kind, body, behind) = match Frame::split(rest) {
            Err(FrameError::Short) => return Ok(bytes.len() - rest.len()),
            split => split.map_err(Unprinted::Frame)?,
        };
        if let Message::Stream(stream) = Message::decode(kind, body).map_err(Unprinted::Frame)? {
            print(&stream, out, left, json).map_err(Unprinted::Output)?;
        }
        rest = behind;
    }
}

fn print(stream: &Stream, out: &mut impl Write, left: &mut u64, json: bool) -> std::io::Result<()> {
    for (number, entry) in (stream.before..).zip(stream.entries.iter()) {
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        if json {
            let line = serde_json::json!({
                "number": number,
                "event": entry.key.number(),
                "accept": entry.accept,
                "word": entry.word,
                "by_default": entry.by_default,
            });
            writeln!(out, "{line}")?;
        } else {
            let (decision, default) =
                (if entry.accept { "accept" } else { "reject" }, if entry.by_default { " by default" } else { "" });
            writeln!(out, "{} {decision} {:#x}{default}", entry.key, entry.word)?;
        }
    }
    Ok(())
}
