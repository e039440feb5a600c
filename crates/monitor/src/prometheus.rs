//! A sample as text that Prometheus reads: the exposition format, version 0.0.4.
//!
//! Every counter of the one list is a metric `ropewalk_NAME`: totals end with `_total`, time is in seconds, and the
//! unit precedes that (`wire_bytes_received` is `ropewalk_wire_received_bytes_total`). Further metrics are the accounts
//! by cause, the event manager's own account of events (`ropewalk_run_events_...`), and the run's state.
//! `docs/metrics.md` lists them.

use crate::{Distribution, Sample, SourceSample, StreamSample};
use core::fmt::{Display, Write};
use ropewalk_terms::{ByCause, COUNTERS, Counter, CounterKind, EventAccount, MEASURES, Measure, NodeId, Unit};

/// The content type of an HTTP response with this text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of a sample. Each line ends with a line feed; a metric that no node reports is left out.
pub fn text(sample: &Sample) -> String {
    let mut page = Page { run: sample.run.0, text: String::new() };
    let labels = LabelsOf::new(sample);
    state(&mut page, sample, &labels);
    account(&mut page, &sample.events);
    causes(&mut page, sample, &labels);
    COUNTERS.iter().for_each(|&counter| metric_of(&mut page, counter, sample, &labels));
    MEASURES.iter().for_each(|&measure| histogram_of(&mut page, measure, sample));
    page.text
}

/// The metric's name of a counter.
pub fn name(counter: Counter) -> String {
    let plain = counter.name();
    let (plain, unit) = match counter.unit() {
        Unit::Count => (plain.to_owned(), ""),
        Unit::Bytes => {
            let words: Vec<_> = plain.split('_').filter(|&word| word != "bytes").collect();
            (words.join("_"), "_bytes")
        }
        Unit::Nanoseconds => (plain.trim_end_matches("_time").to_owned(), "_seconds"),
    };
    format!("ropewalk_{plain}{unit}{}", if counter.kind() == CounterKind::Total { "_total" } else { "" })
}

/// The metric's name of a measure.
pub fn name_of_measure(measure: Measure) -> String {
    let unit = if measure.unit() == Unit::Bytes { "bytes" } else { "seconds" };
    format!("ropewalk_{}_{unit}", measure.name())
}

#[derive(Copy, Clone)]
enum Kind {
    Total,
    Level,
}

/// The text so far; every line has the run's label.
struct Page {
    run: u32,
    text: String,
}

impl Page {
    /// A metric with its lines: labels after the run's, and values. Nothing if there are no lines.
    fn metric<'a, V: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        lines: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Total => "counter",
            Kind::Level => "gauge",
        };
        let help = escaped(help);
        let text = &mut self.text;
        // Writing to a string never fails.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let begin = format!("{name}{{run=\"{}\"", self.run);
        for (Labels { of, cause }, value) in lines {
            text.push_str(&begin);
            text.push_str(of);
            if let Some(cause) = cause {
                let _ = write!(text, ",cause=\"{cause}\"");
            }
            let _ = writeln!(text, "}} {value}");
        }
    }
}

/// The labels after the run's: whose a line is, as [`LabelsOf`] has it, and a cause by its stable name.
#[derive(Copy, Clone, Default)]
struct Labels<'a> {
    of: &'a str,
    cause: Option<&'static str>,
}

impl<'a> From<&'a String> for Labels<'a> {
    fn from(of: &'a String) -> Self {
        Self { of, cause: None }
    }
}

/// The labels of all nodes, sources and streams, in the sample's order. Each source has some dozens of lines: they are
/// made once.
struct LabelsOf {
    nodes: Vec<String>,
    sources: Vec<String>,
    streams: Vec<String>,
}

impl LabelsOf {
    fn new(sample: &Sample) -> Self {
        let named = |name: Option<&String>| name.map_or_else(String::new, |name| format!(",name=\"{}\"", quoted(name)));
        let of_source = |source: &SourceSample| {
            let name = named(sample.names.get(&source.source));
            format!(",node=\"{}\",source=\"{}\"{name}", source.readout, source.source)
        };
        let of_node = |node: NodeId| format!(",node=\"{node}\"{}", named(sample.node_names.get(&node)));
        Self {
            nodes: sample.nodes.iter().map(|node| of_node(node.node)).collect(),
            sources: sample.sources.iter().map(of_source).collect(),
            streams: sample.streams.iter().map(|stream| format!(",stream=\"{}\"", stream.stream.0)).collect(),
        }
    }
}

/// Escaped for the value of a label.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Escaped for a help text.
fn escaped(text: &str) -> String {
    text.trim().replace('\\', "\\\\").replace('\n', "\\n")
}

fn state(page: &mut Page, sample: &Sample, labels: &LabelsOf) {
    let phase = format!(",phase=\"{}\"", sample.phase);
    page.metric("ropewalk_run_phase", Kind::Level, "1 for the phase in which the run is.", [((&phase).into(), 1)]);
    let nodes = labels.nodes.iter().zip(&sample.nodes);
    let connected = nodes.map(|(labels, node)| (labels.into(), u8::from(node.is_connected)));
    let help = "1 for a node that is connected to the event manager, else 0.";
    page.metric("ropewalk_node_connected", Kind::Level, help, connected);
    let sources = labels.sources.iter().zip(&sample.sources);
    let connected = sources.map(|(labels, source)| (labels.into(), u8::from(source.is_connected())));
    let help = "1 for a source that has a connection, else 0; always 0 for a source that sends datagrams.";
    page.metric("ropewalk_source_connected", Kind::Level, help, connected);
    let free = sample.disk.map(|disk| (Labels::default(), disk.free_bytes));
    page.metric(
        "ropewalk_disk_free_bytes",
        Kind::Level,
        "Bytes that can still be written to the disk that is full first.",
        free,
    );
    let full_in = sample.disk.and_then(|disk| disk.full_in).map(|time| (Labels::default(), time.as_secs_f64()));
    page.metric("ropewalk_disk_full_in_seconds", Kind::Level, "When that disk is full at the rate of late.", full_in);
}

/// The event manager's account: each event once, whichever builder unit built it.
fn account(page: &mut Page, events: &EventAccount) {
    let totals = [
        ("assigned", events.assigned, "Events given to builder units, each once."),
        ("built", events.built, "Events built with every required source."),
        ("incomplete_emitted", events.incomplete_emitted, "Events kept although something was missing."),
        ("accepted", events.accepted, "Events kept by the decision."),
        ("unselected", events.unselected, "Accepted events that no stream took."),
        ("rejected", events.rejected, "Events thrown away by the decision."),
        ("quarantined", events.quarantined, "Events set aside because no decision could be had."),
        ("written", events.written, "Events known to be in run files."),
    ];
    for (what, value, help) in totals {
        page.metric(&format!("ropewalk_run_events_{what}_total"), Kind::Total, help, [(Labels::default(), value)]);
    }
    let help = "Events assigned and not finished now.";
    page.metric("ropewalk_run_events_in_flight", Kind::Level, help, [(Labels::default(), events.in_flight)]);
    let help = "Events dropped, by cause.";
    page.metric("ropewalk_run_events_dropped_total", Kind::Total, help, by_cause("", &events.incomplete_dropped));
}

fn causes(page: &mut Page, sample: &Sample, labels: &LabelsOf) {
    let of_sources = |account: fn(&SourceSample) -> &ByCause| {
        let sources = labels.sources.iter().zip(&sample.sources);
        sources.flat_map(move |(labels, source)| by_cause(labels, account(source)))
    };
    let help = "Fragments that were received and lost, by cause.";
    page.metric("ropewalk_fragments_dropped_total", Kind::Total, help, of_sources(|source| &source.account.dropped));
    let help = "Fragments that never came although an event needs them, by cause.";
    page.metric("ropewalk_fragments_missing_total", Kind::Total, help, of_sources(|source| &source.account.missing));
    let lost = of_sources(|source| &source.lost_datagrams).chain(by_cause("", &sample.lost_datagrams));
    let help = "Datagrams lost before they could be taken, by cause; without a source where several send to one port.";
    page.metric("ropewalk_source_datagrams_lost_total", Kind::Total, help, lost);
}

fn by_cause<'a>(of: &'a str, causes: &'a ByCause) -> impl Iterator<Item = (Labels<'a>, u64)> {
    causes.iter().map(move |(cause, count)| (Labels { of, cause: Some(cause.name()) }, count))
}

fn metric_of(page: &mut Page, counter: Counter, sample: &Sample, labels: &LabelsOf) {
    let nodes = labels.nodes.iter().zip(&sample.nodes);
    let nodes = nodes.filter_map(|(labels, node)| Some((labels.into(), node.numbers.known(counter)?)));
    let sources = labels.sources.iter().zip(&sample.sources);
    let sources = sources.filter_map(|(labels, source)| Some((labels.into(), source.numbers.known(counter)?)));
    let streams = labels.streams.iter().zip(&sample.streams);
    let streams = streams.filter_map(|(labels, stream)| Some((labels.into(), of_stream(stream, counter)?)));
    let kind = if counter.kind() == CounterKind::Total { Kind::Total } else { Kind::Level };
    let (name, lines) = (name(counter), nodes.chain(sources).chain(streams));
    if counter.unit() == Unit::Nanoseconds {
        let seconds = lines.map(|(labels, value): (Labels<'_>, u64)| (labels, value as f64 / 1e9));
        page.metric(&name, kind, counter.help(), seconds);
    } else {
        page.metric(&name, kind, counter.help(), lines);
    }
}

/// The upper ends of the buckets of sizes, as powers of two: 64 bytes to 1 GiB.
const SIZES: core::ops::RangeInclusive<u32> = 6..=30;
/// The same for nanoseconds: from a microsecond to a minute.
const TIMES: core::ops::RangeInclusive<u32> = 10..=36;

/// What was measured, as a histogram of Prometheus: the upper ends are powers of two, at which it is exact.
fn histogram_of(page: &mut Page, measure: Measure, sample: &Sample) {
    let name = name_of_measure(measure);
    let known = sample.nodes.iter().filter_map(|node| Some((node.node, node.distributions.get(&measure)?)));
    let mut known = known.peekable();
    if known.peek().is_none() {
        return;
    }
    // Writing to a string never fails.
    let _ = writeln!(page.text, "# HELP {name} {}\n# TYPE {name} histogram", escaped(measure.help()));
    for (node, distribution) in known {
        let labels = format!("run=\"{}\",node=\"{node}\"", page.run);
        histogram(&mut page.text, &name, &labels, measure.unit(), distribution);
    }
}

fn histogram(text: &mut String, name: &str, labels: &str, unit: Unit, distribution: &Distribution) {
    let (powers, scale) = if unit == Unit::Bytes { (SIZES, 1.0) } else { (TIMES, 1e9) };
    for power in powers {
        let end = 1_u64 << power;
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{}\"}} {}", end as f64 / scale, distribution.at_most(end));
    }
    let count = distribution.count();
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum{{{labels}}} {}", distribution.sum as f64 / scale);
    let _ = writeln!(text, "{name}_count{{{labels}}} {count}");
}

const fn of_stream(stream: &StreamSample, counter: Counter) -> Option<u64> {
    match counter {
        Counter::StreamSelected => Some(stream.account.selected),
        Counter::StreamPrescaledAway => Some(stream.account.prescaled_away),
        Counter::StreamWritten => Some(stream.account.written),
        Counter::StreamFailed => Some(stream.account.failed),
        Counter::StreamInFlight => Some(stream.account.in_flight),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_unit_and_no_two_are_alike() {
        assert_eq!(name(Counter::WireBytesReceived), "ropewalk_wire_received_bytes_total");
        assert_eq!(name(Counter::GarbageBytes), "ropewalk_garbage_bytes_total");
        assert_eq!(name(Counter::BackPressureTime), "ropewalk_back_pressure_seconds_total");
        assert_eq!(name(Counter::PoolHeld), "ropewalk_pool_held");
        let mut names: Vec<_> = COUNTERS.iter().map(|&counter| name(counter)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), COUNTERS.len());
    }

    #[test]
    fn what_would_end_a_line_is_escaped() {
        assert_eq!(escaped("a\\b\nc\"d"), "a\\\\b\\nc\"d");
    }
}
