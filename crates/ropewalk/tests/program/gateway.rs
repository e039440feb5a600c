//! `examples/lhcb-gateway.toml`, in one process and in several, one of which is killed.

use crate::control::Controlled;
use crate::forms::{expect_form, schema};
use crate::process::{Program, example};
use crate::support::{Held, TemporaryDirectory, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

fn number(account: &Value, place: &str) -> u64 {
    account.pointer(place).and_then(Value::as_u64).unwrap_or_else(|| panic!("{place} is no number: {account:#}"))
}

#[test]
fn both_flows_of_paper_1_are_built_decided_and_written() {
    let directory = TemporaryDirectory::new("gateway-run");
    let config = example(
        &directory,
        "lhcb-gateway.toml",
        &[("poisson(20kHz)", "poisson(5kHz)"), ("poisson(1kHz)", "poisson(200Hz)")],
    );
    let output = directory.path().display().to_string();
    let ended = Program::run(["run", &config, "--output", &output, "--duration", "1s", "--json"]);
    let account = ended.account();
    expect_form(&account, &schema("run.json"));
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    for (flow, packing) in [("l1", 25), ("hlt", 10)] {
        let number = |place: &str| number(&account, &format!("/flows/{flow}{place}"));
        assert!(number("/sent/sets") > 0, "{account:#}");
        assert_eq!(number("/events/assigned"), packing * number("/sets/opened"), "{flow}");
        assert_eq!(number("/events/in_flight"), 0, "{flow}");
        assert_eq!(account["flows"][flow]["sets"]["refused"], serde_json::json!({}), "{flow}");
        assert_eq!(number("/farm/decided") + number("/farm/by_default"), number("/events/assigned"), "{flow}");
    }
    let l1 = |place: &str| number(&account, &format!("/flows/l1{place}"));
    assert_eq!((l1("/sent/decisions_in_order"), l1("/sent/decisions_missed")), (l1("/events/assigned"), 0));
    assert_eq!(number(&account, "/events/written"), number(&account, "/flows/hlt/events/accepted"));
}

/// One process each for the gateway, the sources, and two nodes; one node is killed, and another process replaces it.
#[test]
fn a_node_that_is_killed_costs_no_event_and_one_that_comes_back_gets_events_again() {
    let directory = TemporaryDirectory::new("gateway-processes");
    let base = 23_400;
    let listen = format!("listen = {{ l1 = \"127.0.0.1:{}\", hlt = \"127.0.0.1:{}\" }}", base + 1, base + 2);
    let control = format!(
        "{listen}\ncontrol = \"127.0.0.1:{base}\"\n[trigger]\nlisten = {{ l1 = \"127.0.0.1:{}\", \
                           hlt = \"127.0.0.1:{}\" }}",
        base + 3,
        base + 4
    );
    let config = example(
        &directory,
        "lhcb-gateway.toml",
        &[
            ("listen = { l1 = \"127.0.0.1:0\", hlt = \"127.0.0.1:0\" }", &control),
            ("poisson(20kHz)", "poisson(2kHz)"),
            ("poisson(1kHz)", "poisson(100Hz)"),
            ("decision_timeout = \"5s\"", "decision_timeout = \"20s\""),
            ("nodes = 2", "nodes = 2\nsilence = \"300ms\""),
            ("accept = 0.05", "accept = 1.0"),
        ],
    );
    let output = directory.path().display().to_string();
    let mut gateway = Program::start(["node", "gateway", &config, "--name", "gw0", "--output", &output, "--json"]);
    gateway.expect_error_line("gw0 control listens on ");
    let node = |numbers| Program::start(["farm-node", &config, "--nodes", numbers, "--json"]);
    let (stays, mut killed) = (node("0..1"), node("1..2"));
    let sources = Program::start(["source", "mep", &config, "--duration", "2s", "--json"]);
    let wait = |milliseconds| std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    wait(700);
    killed.kill();
    wait(500);
    let returned = node("1..2");
    let sources = sources.end();
    let sent = sources.expect_status(0).account();
    // The other node decides the events of the dead one.
    wait(800);
    gateway.interrupt();
    let ended = gateway.end();
    let account = ended.expect_status(0).account();
    expect_form(&account, &schema("run.json"));
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    for flow in ["l1", "hlt"] {
        let events = number(&sent, &format!("/flows/{flow}/sent/events"));
        let place = |place: &str| number(&account, &format!("/flows/{flow}/{place}"));
        assert!(events > 0);
        assert_eq!((place("farm/decided"), place("farm/by_default")), (events, 0), "{account:#}");
    }
    assert_eq!(number(&account, "/events/written"), number(&sent, "/flows/hlt/sent/events"));
    assert!(number(&account, "/flows/l1/farm/taken_back") > 0, "{account:#}");
    returned.interrupt();
    let returned = returned.end();
    assert!(number(&returned.expect_status(0).account(), "/farm/events") > 0, "{account:#}");
    stays.interrupt();
    stays.end().expect_status(0);
}

fn assigned(controlled: &Controlled) -> u64 {
    controlled.good("ledger")["events"]["assigned"].as_u64().expect("a number")
}

/// Waits until there are more than `before` events.
fn wait_beyond(controlled: &Controlled, before: u64) -> u64 {
    wait_for("further events", || Some(assigned(controlled)).filter(|&now| now > before))
}

/// The number of events when no more come and all are decided: the trigger pauses shortly after the operator gets the
/// answer.
fn last_assigned(controlled: &Controlled) -> u64 {
    let decided = || {
        let events = controlled.good("ledger")["events"].clone();
        (events["in_flight"] == 0).then(|| events["assigned"].as_u64().expect("a number"))
    };
    wait_for("triggers to stay away", || {
        let before = decided()?;
        // Otherwise there are thousands a second.
        std::thread::sleep(std::time::Duration::from_millis(200));
        decided().filter(|&now| now == before)
    })
}

/// The printed account of each run; each balances, and nothing was lost.
fn accounts(controlled: Controlled, runs: u64) -> Vec<Value> {
    controlled.good("shutdown");
    let ended = controlled.program.end();
    let lines = &ended.expect_status(0).out;
    let accounts: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    let numbers: Vec<_> = accounts.iter().map(|account| account["run"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (1..=runs).collect::<Vec<_>>());
    for account in &accounts {
        expect_form(account, &schema("run.json"));
        assert_eq!((&account["state"], &account["ledger"]["balanced"]), (&"ended".into(), &true.into()), "{account:#}");
        for flow in account["flows"].as_object().expect("flows").values() {
            assert_eq!(
                (&flow["sets"]["incomplete"], &flow["lost_by_cause"]),
                (&0.into(), &serde_json::json!({})),
                "{flow:#}"
            );
        }
    }
    accounts
}

/// Every source's banks by size; and of one source the intervals of its packets, and the size in each bank's header,
/// header included.
const HISTOGRAMS: &str = r#"
[[histogram]]
name = "sizes"
of = "size"
bins = 64
from = 0
to = 256

[[histogram]]
name = "intervals"
sources = [1005]
of = "interval"
scale = "logarithmic"
from = "1us"
to = "10s"

[[histogram]]
name = "said"
sources = [1005]
of = { offset = 2, bytes = 2 }
bins = 64
from = 0
to = 256
"#;

/// The total count of a histogram for a source, and its bins.
fn counted(histograms: &Value, name: &str, source: &str) -> (u64, Vec<u64>) {
    let all = histograms.as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {histograms:#}"));
    let known = &one["sources"][source];
    let bins: Vec<u64> = serde_json::from_value(known["counts"].clone()).expect("numbers");
    let beside = ["underflow", "overflow", "short"].map(|which| known[which].as_u64().expect("a number"));
    (bins.iter().chain(&beside).sum(), bins)
}

/// Checks that every fragment of the run is in its bin: ten per packet of source 1005, twenty-five per packet of the
/// first level.
fn expect_histograms(account: &Value) {
    let histograms = &account["histograms"];
    let packets =
        |flow: &str, source: &str| account["flows"][flow]["sources"][source]["packets"].as_u64().expect("a number");
    let (of_1005, of_7) = (packets("hlt", "1005"), packets("l1", "7"));
    let (sizes, bins) = counted(histograms, "sizes", "1005");
    let bin = |bytes: usize| bytes / 4;
    assert_eq!((sizes, bins[bin(100)..bin(116)].iter().sum()), (10 * of_1005, 10 * of_1005), "{bins:?}");
    let (said, said_bins) = counted(histograms, "said", "1005");
    assert_eq!((said, said_bins), (sizes, bins), "a bank says what it has");
    assert_eq!(counted(histograms, "sizes", "7").0, 25 * of_7);
    assert_eq!(counted(histograms, "intervals", "1005").0, of_1005 - 1, "the first packet has no interval");
    assert_eq!(histograms[2]["sources"].as_object().map(serde_json::Map::len), Some(1));
}

#[test]
fn a_push_system_is_started_paused_stopped_and_watched_as_any_other() {
    let directory = TemporaryDirectory::new("gateway-control");
    let slower = [("poisson(20kHz)", "poisson(5kHz)"), ("poisson(1kHz)", "poisson(200Hz)")];
    let with_histograms = format!("{HISTOGRAMS}\n[[gateway]]");
    // A loaded machine may delay a source for longer than the example waits for it.
    let patient = ("timeout = \"200ms\"", "timeout = \"2s\"");
    let changes = [slower[0], slower[1], patient, ("[[gateway]]", &with_histograms)];
    let config = example(&directory, "lhcb-gateway.toml", &changes);
    let output = directory.path().display().to_string();
    let controlled = Controlled::of(&["run", &config], &["--output", &output, "--idle"]);
    controlled.wait("the run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
    assert_eq!(assigned(&controlled), 0, "the run was not started");
    for run in 1..=2 {
        controlled.good("start");
        wait_beyond(&controlled, 0);
        assert_eq!(controlled.good("pause")["state"], "paused");
        let quiet = last_assigned(&controlled);
        controlled.good("resume");
        wait_beyond(&controlled, quiet);
        let sources = controlled.good("sources");
        assert_eq!(sources.as_array().map(Vec::len), Some(126 + 323));
        assert_eq!(controlled.good("addresses").as_array().map(Vec::len), Some(3), "of each flow, and of nodes");
        wait_for("bins that are filled while it goes on", || {
            (counted(&controlled.good("histograms"), "said", "1005").0 > 0).then_some(())
        });
        assert_eq!(controlled.good("stop")["answer"], "done", "run {run}");
    }
    let refused = controlled.ctl("pause");
    assert_eq!(refused.expect_status(3).account()["answer"], "not_now");
    let accounts = accounts(controlled, 2);
    assert!(
        accounts.iter().all(|account| account["configuration"]["sha256"] == accounts[0]["configuration"]["sha256"])
    );
    accounts.iter().for_each(expect_histograms);
    let listed = Program::run(["runs", "list", "--output", &output, "--json"]);
    let listed = listed.expect_status(0).account();
    let written: Vec<_> = accounts.iter().map(|account| &account["events"]["written"]).collect();
    let known: Vec<_> = listed.as_array().expect("a list").iter().map(|run| &run["written"]).collect();
    assert_eq!(known, written);
}

/// The answer at an address of run control, over a separate connection.
fn asked(controlled: &Controlled, path: &str) -> Value {
    let address = controlled.url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a time");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let body = answer.find('{').map_or("", |start| &answer[start..]);
    serde_json::from_str(body.trim_end()).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Checks that each source of a sample has this many bytes, and no flag.
fn expect_fragments(sample: &Value, ids: std::ops::Range<u64>, bytes: u64) {
    let sources = sample["sources"].as_array().expect("a list");
    let known: Vec<_> = sources.iter().map(|source| (source["id"].as_u64(), source["bytes"].as_u64())).collect();
    let sent: Vec<_> = ids.clone().map(|id| (Some(id), Some(bytes))).collect();
    assert_eq!(known, sent, "{sample:#}");
    assert!(sources.iter().all(|source| source["missing"] == false), "{sample:#}");
    let digits = |source: &Value| source["hex"].as_str().map(str::len);
    assert!(sources.iter().all(|source| digits(source) == Some(2 * bytes.min(40) as usize)), "{sample:#}");
    let whole = (ids.end - ids.start) * bytes;
    assert_eq!((&sample["bytes"], &sample["is_complete"]), (&whole.into(), &true.into()), "{sample:#}");
}

/// On one thread and on two: clients get copies of events from either half of the gateway.
#[test]
fn clients_of_a_push_system_get_samples_of_whole_events() {
    let change = [("poisson(20kHz)", "poisson(2kHz)"), ("poisson(1kHz)", "poisson(200Hz)")];
    for architecture in ["run_to_completion", "threads"] {
        let directory = TemporaryDirectory::new("gateway-samples");
        let named = format!("name = \"gw0\"\narchitecture = \"{architecture}\"");
        let config = example(&directory, "lhcb-gateway.toml", &[change[0], change[1], ("name = \"gw0\"", &named)]);
        let output = directory.path().display().to_string();
        let controlled = Controlled::of(&["run", &config], &["--output", &output, "--idle"]);
        controlled.wait("the run", |state| state["state"] == "configured" && state["task"].is_null());
        controlled.good("start");
        let first = wait_beyond(&controlled, 0);
        // Raw banks have a header, and are padded to four bytes.
        for (id, ids, least) in [(7, 0..126, 32), (1005, 1000..1323, 100)] {
            let sample = asked(&controlled, &format!("/api/v1/events/sample?source={id}&front=40"));
            let bytes = sample["sources"][0]["bytes"].as_u64().expect("a number");
            assert!((least..least + 16).contains(&bytes), "{sample:#}");
            expect_fragments(&sample, ids, bytes);
            assert_eq!(sample["builder"], "bu0");
        }
        let words = ["ctl", "samples", "--url", &controlled.url, "--rate", "20", "--count", "3", "--front", "40"];
        let told = Program::run(words.iter().chain(&["--source", "1322", "--json"]));
        let told: Vec<Value> =
            told.expect_status(0).out.iter().map(|line| serde_json::from_str(line).expect("a sample")).collect();
        assert_eq!(told.len(), 3);
        let bytes = told[0]["sources"][0]["bytes"].as_u64().expect("a number");
        told.iter().for_each(|sample| expect_fragments(sample, 1000..1323, bytes));
        wait_beyond(&controlled, first);
        controlled.good("stop");
        accounts(controlled, 1);
    }
}

/// A source of the first level is restarted and one of the second is masked for a while: every event stays complete,
/// also in the files.
#[test]
fn sources_that_push_are_masked_and_begun_anew_while_the_run_goes_on() {
    let directory = TemporaryDirectory::new("gateway-masks");
    let slower = [
        ("poisson(20kHz)", "poisson(5kHz)"),
        ("poisson(1kHz)", "poisson(500Hz)"),
        ("decision_timeout = \"5s\"", "decision_timeout = \"20s\""),
        ("timeout = \"200ms\"", "timeout = \"5s\""),
    ];
    let config = example(&directory, "lhcb-gateway.toml", &slower);
    let output = directory.path().display().to_string();
    let controlled = Controlled::of(&["run", &config], &["--output", &output, "--idle"]);
    controlled.wait("the run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
    controlled.good("start");
    let before = wait_beyond(&controlled, 0);
    let masked = controlled.mask("mask", "1005");
    assert_eq!((&masked[0]["source"], &masked[0]["in_run"]), (&1005.into(), &"masked".into()), "{masked}");
    let from = masked[0]["events"][0]["from"].clone();
    let restarted = controlled.mask("restart", "3");
    assert_eq!(
        (&restarted["answer"], &restarted["restarted"][0]["source"]),
        (&"done".into(), &3.into()),
        "{restarted}"
    );
    let refused = Program::run(["ctl", "mask", "1000-1322", "--url", &controlled.url]);
    let said = refused.expect_status(3).out.concat();
    assert!(said.contains("no source of flow `hlt` would be left to take part"), "{said}");
    wait_beyond(&controlled, before + 5000);
    wait_for("the masked source's fragments to be dropped", || {
        let sources = controlled.good("sources");
        let of_it = sources.as_array().expect("a list").iter().find(|source| source["id"] == 1005);
        of_it.filter(|source| source["dropped"]["masked"].as_u64() > Some(5)).map(|_| ())
    });
    let back = controlled.mask("unmask", "1005");
    let known = back.as_array().expect("a list").iter().find(|mask| mask["source"] == 1005).expect("it was masked");
    assert_eq!((&known["in_run"], &known["events"][0]["from"]), (&"takes_part".into(), &from), "{back}");
    let to = known["events"][0]["to"].clone();
    let seen = assigned(&controlled);
    wait_beyond(&controlled, seen + 2000);
    assert_eq!(controlled.good("stop")["answer"], "done");
    let account = accounts(controlled, 1).remove(0);
    let masked = &account["gateways"]["gw0"]["masked"];
    assert_eq!(masked["1005"], serde_json::json!([{ "from": from, "to": to }]));
    assert_eq!(masked["3"][0]["from"], restarted["restarted"][0]["out_from"]);
    assert!(account["flows"]["hlt"]["sources"]["1005"]["masked"].as_u64() > Some(5), "{account:#}");
    let number = |event: &Value| event.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let held = Held::in_directories(&[directory.path().join("run000001")]);
    assert!(held.events.values().all(|event| event.missing.is_empty()), "a masked source is not missing");
    let mut times = [0, 0];
    for (key, event) in &held.events {
        let is_out = (number(&from)..number(&to)).contains(&key.number());
        assert_eq!(
            (event.fragments.contains_key(&1005), event.fragments.contains_key(&1004)),
            (!is_out, true),
            "{key}"
        );
        times[usize::from(is_out)] += 1;
    }
    assert!(times.iter().all(|&events| events > 0), "{times:?} events with and without it");
}

/// Trigger, sources and farm are other processes, which stay from run to run: the throttle carries all commands to
/// them.
#[test]
fn a_gateway_alone_takes_run_after_run_of_sources_that_never_stop() {
    let directory = TemporaryDirectory::new("gateway-control-alone");
    let base = 23_420;
    let listen = format!("listen = {{ l1 = \"127.0.0.1:{}\", hlt = \"127.0.0.1:{}\" }}", base + 1, base + 2);
    let control = format!(
        "{listen}\ncontrol = \"127.0.0.1:{base}\"\n[trigger]\nlisten = {{ l1 = \"127.0.0.1:{}\", hlt = \"127.0.0.1:{}\" }}",
        base + 3,
        base + 4
    );
    let config = example(
        &directory,
        "lhcb-gateway.toml",
        &[
            ("listen = { l1 = \"127.0.0.1:0\", hlt = \"127.0.0.1:0\" }", &control),
            ("poisson(20kHz)", "poisson(2kHz)"),
            ("poisson(1kHz)", "poisson(100Hz)"),
            ("decision_timeout = \"5s\"", "decision_timeout = \"20s\""),
        ],
    );
    let output = directory.path().display().to_string();
    let nodes = Program::start(["farm-node", &config, "--nodes", "0..2", "--json"]);
    let sources = Program::start(["source", "mep", &config, "--json"]);
    let controlled = Controlled::of(&["node", "gateway", &config, "--name", "gw0"], &["--output", &output]);
    controlled.wait("the run", |state| state["state"] == "running");
    for run in 1..=3 {
        let seen = wait_beyond(&controlled, 0);
        controlled.good("pause");
        controlled.good("resume");
        wait_beyond(&controlled, seen);
        assert_eq!(controlled.good("stop")["answer"], "done");
        if run < 3 {
            controlled.good("start");
        }
    }
    sources.interrupt();
    let sent = sources.end().expect_status(0).account();
    let accounts = accounts(controlled, 3);
    for flow in ["l1", "hlt"] {
        let place = format!("/flows/{flow}/packets/received");
        let received =
            accounts.iter().map(|account| account.pointer(&place).and_then(Value::as_u64).expect("a number"));
        let sent = sent.pointer(&format!("/flows/{flow}/sent/packets")).and_then(Value::as_u64);
        assert_eq!(Some(received.sum()), sent, "between two runs nothing was sent");
    }
    nodes.interrupt();
    nodes.end().expect_status(0);
}
