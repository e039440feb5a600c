//! `examples/lhcb-gateway.toml` as it is run, in one process and in several, one of which is killed.

use crate::examples::example;
use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::TemporaryDirectory;
use serde_json::Value;

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

/// A process each for the gateway, the sources, and two nodes; one node is killed without a word, and another process takes its
/// place.
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
    // What the dead node had is decided by the other one.
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
