//! The text for Prometheus, read by its grammar, and the files that name its metrics.

use ropewalk_monitor::alarms::Quantity;
use ropewalk_monitor::prometheus::{name, text};
use ropewalk_monitor::{DiskSample, NodeSample, Numbers, Sample, SourceSample, StreamSample};
use ropewalk_terms::{
    ByCause, COUNTERS, Cause, Counter, EventAccount, FragmentAccount, Incarnation, Instant, MEASURES, NodeId,
    RunNumber, SourceId, StreamAccount, StreamIndex, Unit, Utc,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn by_cause(causes: &[(Cause, u64)]) -> ByCause {
    let mut all = ByCause::default();
    causes.iter().for_each(|&(cause, count)| all.add(cause, count));
    all
}

/// A small run in which a bit of everything has happened.
fn sample() -> Sample {
    let node = |node, is_connected, numbers: &[(Counter, u64)]| NodeSample {
        node,
        is_connected,
        reported: None,
        incarnation: Some(Incarnation(1)),
        numbers: numbers.iter().copied().collect(),
        distributions: BTreeMap::new(),
    };
    let source = |id: u32, received, dropped: &[(Cause, u64)]| SourceSample {
        source: SourceId(id),
        readout: NodeId::readout(0),
        account: FragmentAccount { received, dropped: by_cause(dropped), ..FragmentAccount::default() },
        lost_datagrams: by_cause(&[(Cause::SocketQueueFull, u64::from(id))]),
        corrupt: Vec::new(),
        numbers: Numbers::from_iter([
            (Counter::FragmentsReceived, received),
            (Counter::SourceConnections, 1),
            (Counter::BackPressureTime, 1_500_000_000),
        ]),
        doubts: Vec::new(),
        sends_datagrams: false,
        numbering: Default::default(),
        histograms: BTreeMap::new(),
    };
    Sample {
        time: Instant::from_nanoseconds(1),
        utc: Utc(2),
        run: RunNumber(12),
        phase: "running",
        manager_turned: None,
        report_interval: Duration::ZERO,
        nodes: vec![
            node(NodeId::readout(0), true, &[(Counter::PoolHeld, 3), (Counter::WireBytesReceived, 4_096)]),
            node(NodeId::builder(0), false, &[(Counter::EventsBuilt, 100), (Counter::BytesWritten, u64::MAX)]),
        ],
        sources: vec![source(5, 100, &[]), source(700, 98, &[(Cause::CrcError, 2), (Cause::Malformed, 1)])],
        streams: vec![StreamSample {
            stream: StreamIndex(0),
            account: StreamAccount { selected: 7, ..Default::default() },
        }],
        events: EventAccount { assigned: 101, built: 100, in_flight: 1, ..EventAccount::default() },
        synchrony: Vec::new(),
        names: Arc::new([(SourceId(700), "the \"veto\"".to_owned())].into()),
        node_names: Arc::new([(NodeId::readout(0), "crate-1".to_owned())].into()),
        outputs: Arc::default(),
        unrelated: Vec::new(),
        optional: Arc::default(),
        disk_loads: Arc::default(),
        unchecked_step: None,
        lost_datagrams: by_cause(&[(Cause::UnknownSource, 6)]),
        disk: Some(DiskSample { free_bytes: 1 << 30, full_in: Some(Duration::from_millis(2_500)) }),
    }
}

/// A sample in which every metric has a line.
fn sample_of_everything() -> Sample {
    let mut sample = sample();
    sample.nodes[1].distributions =
        MEASURES.iter().map(|&measure| (measure, [100, 4_096, 4_097, u64::MAX].into_iter().collect())).collect();
    sample.nodes[0].numbers = COUNTERS.iter().map(|&counter| (counter, 1)).collect();
    sample.sources[0].account.missing = by_cause(&[(Cause::TimedOut, 1)]);
    sample.events.incomplete_dropped = by_cause(&[(Cause::ForcedStop, 1)]);
    sample
}

type Labels = Vec<(String, String)>;

/// Of each metric, its type and its lines: labels and value.
type Metrics = BTreeMap<String, (String, Vec<(Labels, f64)>)>;

/// Reads the exposition format as its specification says, strictly: HELP, then TYPE, then all lines of a metric.
fn parse(text: &str) -> Result<Metrics, String> {
    let body = text.strip_suffix('\n').ok_or("the last line does not end")?;
    let mut metrics = Metrics::new();
    let (mut helped, mut current) = (None, None);
    for line in body.split('\n') {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
            if help.is_empty() || metrics.contains_key(name) {
                return Err(wrong("empty, or a second time"));
            }
            unescape(help, false).ok_or_else(|| wrong("escapes"))?;
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            if helped.take().as_deref() != Some(name)
                || !["counter", "gauge", "histogram"].contains(&kind)
                || !is_name(name)
            {
                return Err(wrong("no HELP before it, or no type or name"));
            }
            metrics.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            current = Some(name.to_owned());
        } else {
            let (name, labels, value) = parse_line(line).ok_or_else(|| wrong("no line"))?;
            let of = current.as_ref().ok_or_else(|| wrong("in no metric"))?;
            let (kind, lines) = metrics.get_mut(of).ok_or_else(|| wrong("no TYPE"))?;
            let part = name.strip_prefix(of.as_str()).ok_or_else(|| wrong("not in its metric"))?;
            let may_be = if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            if !may_be.contains(&part) {
                return Err(wrong("not in its metric"));
            }
            // The parts of a histogram differ as if by a label.
            let part = (!part.is_empty()).then(|| ("part".to_owned(), part.to_owned()));
            lines.push((labels.into_iter().chain(part).collect(), value));
        }
    }
    Ok(metrics)
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    name.bytes().next().is_some_and(is_letter) && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fn parse_line(line: &str) -> Option<(String, Labels, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (mut rest, mut labels) = (rest, Vec::new());
    let value = loop {
        let (label, after) = rest.split_once("=\"")?;
        let end = (0..after.len()).find(|&at| {
            let escapes = after.as_bytes()[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
            after.as_bytes()[at] == b'"' && escapes % 2 == 0
        })?;
        if !is_name(label) {
            return None;
        }
        labels.push((label.to_owned(), unescape(&after[..end], true)?));
        match after[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => break after[end + 1..].strip_prefix("} ")?,
        }
    };
    is_name(name).then_some((name.to_owned(), labels, value.parse().ok()?))
}

fn unescape(text: &str, is_label: bool) -> Option<String> {
    let (mut plain, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next()? {
                'n' => '\n',
                '\\' => '\\',
                '"' if is_label => '"',
                _ => return None,
            },
            '"' if is_label => return None,
            plain => plain,
        });
    }
    Some(plain)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_text_of_a_small_run_is_what_it_was() {
    let path = root().join("crates/monitor/tests/golden/metrics.txt");
    let text = text(&sample());
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the golden file");
    }
    assert_eq!(text, read("crates/monitor/tests/golden/metrics.txt"), "ROPEWALK_BLESS=1 writes it anew");
}

#[test]
fn every_line_is_of_the_grammar_and_no_two_are_the_same_series() {
    for sample in [sample(), sample_of_everything(), Sample::default()] {
        let metrics = parse(&text(&sample)).unwrap_or_else(|error| panic!("{error}"));
        for (name, (kind, lines)) in &metrics {
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            let series: BTreeSet<_> = lines.iter().map(|(labels, _)| labels).collect();
            assert_eq!(series.len(), lines.len(), "{name}");
            let has_run = |(labels, _): &(Labels, f64)| labels[0] == ("run".to_owned(), sample.run.to_string());
            assert!(!lines.is_empty() && lines.iter().all(has_run), "{name}");
        }
    }
}

#[test]
fn values_and_labels_arrive() {
    let metrics = parse(&text(&sample())).unwrap_or_else(|error| panic!("{error}"));
    let value = |name: &str, labels: &[(&str, &str)]| {
        let of = |known: &[(String, String)]| {
            known.iter().skip(1).map(|(label, content)| (label.as_str(), content.as_str())).eq(labels.iter().copied())
        };
        metrics[name].1.iter().find(|(known, _)| of(known)).map(|&(_, value)| value)
    };
    assert_eq!(value("ropewalk_back_pressure_seconds_total", &[("node", "ru0"), ("source", "5")]), Some(1.5));
    let crc = [("node", "ru0"), ("source", "700"), ("name", "the \"veto\""), ("cause", "crc_error")];
    assert_eq!(value("ropewalk_fragments_dropped_total", &crc), Some(2.0));
    assert_eq!(value("ropewalk_source_datagrams_lost_total", &[("cause", "unknown_source")]), Some(6.0));
    assert_eq!(value("ropewalk_node_connected", &[("node", "bu0")]), Some(0.0));
    assert_eq!(value("ropewalk_node_connected", &[("node", "ru0"), ("name", "crate-1")]), Some(1.0));
    assert_eq!(value("ropewalk_stream_selected_total", &[("stream", "0")]), Some(7.0));
    assert_eq!(value("ropewalk_disk_full_in_seconds", &[]), Some(2.5));
}

#[test]
fn a_histogram_counts_up_to_each_end_and_ends_with_all() {
    let metrics = parse(&text(&sample_of_everything())).unwrap_or_else(|error| panic!("{error}"));
    let (kind, lines) = &metrics["ropewalk_event_size_bytes"];
    assert_eq!(kind, "histogram");
    let of = |label: &str, content: &str| {
        let has = |(labels, _): &&(Labels, f64)| labels.contains(&(label.to_owned(), content.to_owned()));
        lines.iter().find(has).expect("it is there").1
    };
    assert_eq!((of("le", "64"), of("le", "128"), of("le", "4096"), of("le", "8192")), (0.0, 1.0, 2.0, 3.0));
    assert_eq!((of("le", "+Inf"), of("part", "_count")), (4.0, 4.0));
    let ends: Vec<_> = lines.iter().filter(|(labels, _)| labels.iter().any(|(label, _)| label == "le")).collect();
    assert!(ends.is_sorted_by(|one, other| one.1 <= other.1), "{ends:?}");
    assert!(metrics["ropewalk_build_latency_seconds"].1.iter().any(|(labels, _)| labels[2].1 == "0.000001024"));
}

#[test]
fn what_the_grammar_forbids_is_found() {
    let good = "# HELP a_b c\n# TYPE a_b gauge\na_b{run=\"1\"} 2\n";
    assert!(parse(good).is_ok());
    let changes = [("gauge", "heap"), ("run=\"1\"", "run=1"), ("} 2", "} two"), ("# HELP a_b c\n", ""), ("a_b{", "b{")];
    for (from, to) in changes {
        assert!(parse(&good.replace(from, to)).is_err(), "{from} {to}");
    }
    assert!(parse(&good.repeat(2)).is_err(), "HELP and TYPE stand once");
}

#[test]
fn every_metric_that_the_examples_and_the_page_name_exists() {
    let metrics = parse(&text(&sample_of_everything())).unwrap_or_else(|error| panic!("{error}"));
    for path in ["examples/grafana.json", "docs/metrics.md"] {
        let content = read(path);
        let words = content.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let named: BTreeSet<_> = words.filter(|word| word.starts_with("ropewalk_") && !word.ends_with('_')).collect();
        assert!(named.len() > 5, "{path} names metrics");
        for word in named {
            assert!(metrics.contains_key(word), "{path} names {word}, which does not exist");
        }
    }
    serde_json::from_str::<serde_json::Value>(&read("examples/grafana.json")).expect("a dashboard is JSON");
    assert!(read("examples/prometheus.yml").contains("metrics_path: /metrics"));
}

/// An alarm takes a counter under each name that docs/metrics.md has of it, and no two counters share one.
#[test]
fn alarms_take_counters_under_the_names_of_their_metrics() {
    for &counter in COUNTERS {
        let metric = name(counter);
        let plain = metric.trim_start_matches("ropewalk_").trim_end_matches("_total").to_owned();
        let read = |name: &str| format!("total:{name}").parse::<Quantity>();
        assert_eq!(read(counter.name()), Ok(Quantity::Value(counter)));
        for name in [metric.as_str(), plain.as_str()] {
            match read(name) {
                Ok(quantity) => assert_eq!(quantity, Quantity::Value(counter), "{name}"),
                // The unit in the name is not that of the number.
                Err(error) => {
                    assert!(
                        counter.unit() == Unit::Nanoseconds && error.to_string().contains(counter.name()),
                        "{error}"
                    );
                }
            }
        }
    }
    for (wrong, right) in
        [("bytes_writen", "bytes_"), ("errors_crc", "is it crc_errors"), ("disk_busy", "is it disk_busy_time?")]
    {
        let error = format!("per_second:{wrong}").parse::<Quantity>().expect_err(wrong).to_string();
        assert!(error.contains(right), "{error}");
    }
    let error = "total:disk_busy_seconds".parse::<Quantity>().expect_err("seconds").to_string();
    assert!(error.contains("in nanoseconds: `disk_busy_time`"), "{error}");
}

/// The page names every limit and every problem that a rule can be about.
#[test]
fn the_page_lists_what_rules_can_be_about() {
    let page = read("docs/metrics.md");
    let alarms = page.split("## Alarms").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    for wrong in ["limited_by:x", "data:x"] {
        let error = wrong.parse::<Quantity>().expect_err(wrong).to_string();
        let (_, names) = error.split_once(": there are ").expect("the error lists them");
        let names: Vec<_> = names.split(", ").collect();
        assert!(names.len() > 10, "{error}");
        for name in names {
            assert!(alarms.contains(&format!("`{name}`")), "{name} is not in the section on alarms");
        }
    }
}

/// The table of counters in docs/metrics.md is the list of counters.
/// To update it: `ROPEWALK_BLESS=1 cargo test -p ropewalk-monitor --test prometheus`.
#[test]
fn the_page_lists_every_counter() {
    const HEAD: &str = "| Metric | In alarms | What it counts |\n|---|---|---|\n";
    let page = read("docs/metrics.md");
    let (before, table) = page.rsplit_once(HEAD).expect("the page has a table of counters");
    let after = table.split_once("\n\n").map_or_else(String::new, |(_, after)| format!("\n{after}"));
    let row = |&counter: &Counter| {
        let unit = if counter.unit() == Unit::Nanoseconds { ", in nanoseconds" } else { "" };
        let (metric, own) = (name(counter), counter.name());
        format!("| `{metric}` | `{own}`{unit} | {} |\n", counter.help().trim().replace(". Per ", "; per "))
    };
    let made = format!("{before}{HEAD}{}{after}", COUNTERS.iter().map(row).collect::<String>());
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        std::fs::write(root().join("docs/metrics.md"), &made).expect("the page is written");
        return;
    }
    let differs = page.lines().zip(made.lines()).find(|(page, made)| page != made);
    assert!(page == made, "docs/metrics.md differs at {differs:#?}; ROPEWALK_BLESS=1 writes its table");
}
