//! Runs each bench once, tiny, and checks its output.

use crate::{BenchError, NAMES, Options, Scale, run};
use serde_json::Value;
use std::path::PathBuf;

fn options(name: &str) -> Options {
    Options {
        scale: Scale::Tiny,
        json: true,
        case: None,
        report: None,
        peers: false,
        output: std::env::temp_dir().join(format!("ropewalk-bench-{name}-{}", std::process::id())),
        // Accepts any arguments and succeeds; the tests of the program start the real one.
        program: PathBuf::from("/bin/true"),
    }
}

/// The objects that a bench prints.
fn lines(name: &str, options: Options) -> Vec<Value> {
    let (mut out, output) = (Vec::new(), options.output.clone());
    let ran = run(name, options, &mut out);
    let _ = std::fs::remove_dir_all(output);
    assert_eq!(ran.expect("a bench that works"), 0, "{}", String::from_utf8_lossy(&out));
    let text = String::from_utf8(out).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn check(name: &str, rows: usize) {
    check_case(name, None, rows);
}

fn check_case(name: &str, case: Option<&str>, rows: usize) {
    for row in check_rows(name, case, rows) {
        assert!(row["limit"].as_f64() > Some(0.0), "{row}");
    }
}

/// Checks the rows of a case, whose figures may be 0.
fn check_rows(name: &str, case: Option<&str>, rows: usize) -> Vec<Value> {
    let lines = lines(name, Options { case: case.map(str::to_owned), ..options(name) });
    assert_eq!(lines[0]["bench"], "machine");
    assert!(lines[0]["kernel"].is_string() && lines[0]["cpu"].is_string() && lines[0]["pages"].is_string());
    assert_eq!(lines.len() - 1, rows);
    for row in &lines[1..] {
        assert_eq!(row["bench"], name);
        assert!(row["case"].is_object() && row["unit"].is_string() && row["note"].is_string(), "{row}");
        for key in ["median", "min", "max", "limit", "ratio_to_limit"] {
            assert!(row[key].as_f64().is_some_and(|value| value >= 0.0), "{key} of {row}");
        }
        assert!(row["repeats"].as_u64() >= Some(1), "{row}");
    }
    lines[1..].to_vec()
}

/// Benches of rates report their cost in all threads.
#[test]
fn throughput_has_its_cost() {
    let cases = [
        ("builder", "crc=off"),
        ("write", "sources"),
        ("storing", "write=direct"),
        ("storing", "packed"),
        ("filtering", "by=thread event_bytes=256"),
        ("filing", "beside=dealt"),
        ("tcpla", "figure=7 mechanism=epoll"),
        ("tcpla", "fragment_bytes=2048 nodes=in process"),
        ("felix", "figure=6"),
        ("felix", "figure=subscriber"),
    ];
    for (name, case) in cases {
        let rows = lines(name, Options { case: Some(case.to_owned()), ..options(&format!("cost-{name}")) });
        let row = &rows[1];
        for side in ["ours", "limit"] {
            let cost = row["process_cpu_seconds_per_gigabyte"][side].as_f64();
            assert!(cost.is_some_and(|cost| cost > 0.0 && cost.is_finite()), "{side} of {row}");
        }
    }
}

#[test]
fn builder_gives_figures() {
    check("builder", 6);
}

#[test]
fn machines_gives_figures() {
    check("machines", 6);
}

#[test]
fn scale_gives_the_cost_at_each_point_and_an_exponent_for_each_series() {
    let lines = lines("scale", options("scale"));
    let exponents = lines.iter().filter(|row| row["unit"] == "exponent").count();
    let costs: Vec<_> = lines.iter().filter(|row| row["unit"] == "ns/event").collect();
    assert_eq!((exponents, costs.len()), (5, 24));
    assert!(costs.iter().all(|row| row["median"].as_f64() > Some(0.0) && row["limit"].as_f64() > Some(0.0)));
}

#[test]
fn framing_gives_figures() {
    check("framing", 4);
}

/// The cases with a process need the program, whose tests have them.
#[test]
fn splitting_gives_figures() {
    check_case("splitting", Some("by=thread"), 3);
}

#[test]
fn filtering_gives_figures() {
    check_case("filtering", Some("by=thread"), 6);
    check_case("filtering", Some("by=chain"), 1);
}

#[test]
fn filing_gives_figures() {
    check("filing", 4);
}

#[test]
fn crc_gives_figures() {
    check("crc", 4);
}

#[test]
fn write_gives_figures() {
    check("write", 1);
}

#[test]
fn storing_gives_figures() {
    check("storing", 5);
}

#[test]
fn start_gives_figures() {
    check("start", 1);
}

/// A script replaces the demo and prints what the demo would print.
#[test]
fn demo_gives_its_rate_beside_the_slower_limit() {
    let directory = std::env::temp_dir().join(format!("ropewalk-bench-stand-in-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the test");
    let program = directory.join("ropewalk");
    let account = r#"{"rate":{"bytes_per_s":5e8},"bytes":{"payload_received":1000000}}"#;
    // Another process writes it: a child that a test of this process starts could still have the file open for writing.
    let script = format!("#!/bin/sh\necho run 1 runs\necho '{account}'\n");
    let write = ["-c", "printf %s \"$1\" > \"$0\" && chmod +x \"$0\""];
    let written = std::process::Command::new("sh").args(write).arg(&program).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()));
    let rows = lines("demo", Options { program, ..options("demo") });
    let _ = std::fs::remove_dir_all(directory);
    let [_, rate, disk, copy] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(rate["median"].as_f64(), Some(0.5));
    let limits = [disk, copy].map(|row| row["median"].as_f64().expect("a figure"));
    assert_eq!(rate["limit"].as_f64(), Some(limits[0].min(limits[1])));
    assert!(disk["limit"].is_null() && copy["limit"].is_null() && rate["ratio_to_limit"].as_f64() > Some(0.0));
}

#[test]
fn sizing_gives_figures_beside_predictions() {
    check("sizing", 8);
}

#[test]
fn tcpla_gives_throughput_of_every_mechanism() {
    check_case("tcpla", Some("figure=7"), 8);
    check_case("tcpla", Some("figure=auto"), 1);
    check_case("tcpla", Some("figure=coalescing"), 2);
    check_case("tcpla", Some("figure=place"), 1);
}

#[test]
fn tcpla_gives_quantiles_of_latency() {
    check_case("tcpla", Some("figure=latency"), 8);
}

#[test]
fn tcpla_gives_what_a_readout_unit_takes_in() {
    // Cases with nodes as processes need the program, and are tested with it.
    check_case("tcpla", Some("fragment_bytes=2048 nodes=in process"), 2);
    check_case("tcpla", Some("figure=checked"), 1);
}

#[test]
fn felix_gives_every_stage_beside_its_limits() {
    check_case("felix", Some("figure=6"), 14);
}

#[test]
fn felix_gives_threads_memory_and_the_roofline() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = (1..=cpus).filter(|count| count.is_power_of_two() || *count == cpus).count();
    check_case("felix", Some("figure=7"), counts + usize::from(cpus > 1));
    // Four widths in a cache and in memory on huge pages, and in memory on plain ones.
    check_case("felix", Some("figure=8"), 12 * counts);
    check_case("felix", Some("figure=9"), 3);
    check_case("felix", Some("figure=pipeline"), 8);
    check_case("felix", Some("figure=subscriber"), 1);
    check_case("felix", Some("figure=latency"), 4);
}

/// Whether a test may make network namespaces; if not, the skip is recorded.
fn may_lay_cables(name: &str) -> bool {
    let case = Some("figure=6 kernel=interrupt mechanism=recvmmsg".to_owned());
    let is_skipped =
        lines("packet", Options { case, ..options("cables") }).iter().any(|line| line["skipped"].is_string());
    if is_skipped {
        ropewalk_tidy::skipped(name, "may not make network namespaces");
    }
    !is_skipped
}

#[test]
fn packet_gives_rates_and_costs_of_every_mechanism() {
    if may_lay_cables("tests::packet_gives_rates_and_costs_of_every_mechanism") {
        // A flood may leave a receiver no time at all.
        check_rows("packet", Some("figure=6"), 22);
        check_rows("packet", Some("figure=stumble kernel=thread mechanism=ring"), 3);
        check_rows("packet", Some("figure=loss kernel=interrupt mechanism=recvmmsg"), 3);
        check_case("packet", Some("figure=cost kernel=interrupt"), 7);
    }
}

#[test]
fn gateway_gives_every_table() {
    if may_lay_cables("tests::gateway_gives_every_table") {
        check_case("gateway", Some("mechanism=recvmmsg payload_bytes=912 table=limits"), 6);
        check_case("gateway", Some("flow=hlt job=forward with decisions kernel=interrupt mechanism=r"), 8);
        check_case("gateway", Some("with=ring"), 1);
        check_case("gateway", Some("table=5"), 9);
        check_case("gateway", Some("table=1"), 2);
        check_case("gateway", Some("effect=timestamp"), 1);
        check_case("gateway", Some("row=9 packing 32"), 1);
    }
}

#[test]
fn a_filter_chooses_cases() {
    let chosen = lines("crc", Options { case: Some("checksum=crc16 data=hot".to_owned()), ..options("filter") });
    assert_eq!(chosen.len(), 2);
    let nothing = run("crc", Options { case: Some("nothing".to_owned()), ..options("filter") }, &mut Vec::new());
    assert!(matches!(nothing, Err(BenchError::NoCase { .. })));
    let unknown = run("speed", options("filter"), &mut Vec::new()).expect_err("no such bench");
    assert!(NAMES.iter().all(|name| unknown.to_string().contains(name)));
}

#[test]
fn a_report_keeps_the_lines_and_a_table_is_for_people() {
    let directory = std::env::temp_dir().join(format!("ropewalk-bench-report-{}", std::process::id()));
    let options = Options { json: false, report: Some(directory.clone()), ..options("report") };
    let mut out = Vec::new();
    run("crc", options, &mut out).expect("a bench that works");
    let table = String::from_utf8(out).expect("text");
    assert!(table.contains("checksum=crc16 data=hot") && table.contains("GB/s"), "{table}");
    let days: Vec<_> = std::fs::read_dir(&directory).expect("a report").flatten().collect();
    let kept = std::fs::read_to_string(days[0].path().join("crc.jsonl")).expect("lines");
    std::fs::remove_dir_all(&directory).expect("our own directory");
    assert_eq!((days.len(), kept.lines().count()), (1, 5));
}

/// Settings and the load by others change: a page of the day's first run would not describe the others.
#[test]
fn every_run_that_is_reported_has_the_doctors_page() {
    let directory = std::env::temp_dir().join(format!("ropewalk-bench-doctor-{}", std::process::id()));
    let case = Some("checksum=crc16 data=hot".to_owned());
    let options = Options { case, report: Some(directory.clone()), ..options("doctors") };
    for _ in 0..2 {
        run("crc", options.clone(), &mut Vec::new()).expect("a bench that works");
    }
    run("sizing", Options { case: None, ..options }, &mut Vec::new()).expect("a bench that works");
    let day = std::fs::read_dir(&directory).expect("a report").flatten().next().expect("one day").path();
    let text = |name: &str| std::fs::read_to_string(day.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let told = text("crc.doctor.txt");
    let pages: Vec<&str> = told.split("\n----\n\n").collect();
    let runs = text("crc.jsonl").matches("\"bench\":\"machine\"").count();
    assert_eq!((pages.len(), runs), (2, 2), "{told}");
    for page in pages.into_iter().chain([text("sizing.doctor.txt").as_str()]) {
        assert!(
            page.contains("What the kernel can do for it") && page.contains("Settings (ropewalk tune check)"),
            "{page}"
        );
    }
    std::fs::remove_dir_all(&directory).expect("our own directory");
}

#[test]
fn monitoring_gives_figures() {
    check("monitoring", 12);
}
