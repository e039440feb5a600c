//! What is read, and how faults are told.

use super::*;
use crate::configuration::ConfigurationError;
use ropewalk_flow::gateway::Address;
use std::net::Ipv4Addr;

const GOOD: &str = r#"
version = 1

[[flow]]
name = "l1"
packing = 25
sources = { count = 126, address = "127.1.0.1" }
output = "stream"

[[flow]]
name = "hlt"
packing = 10
sources = { count = 323, first = 1000, address = "127.0.0.1:20000" }

[[gateway]]
name = "gw0"
listen = { l1 = "127.0.0.1:9701", hlt = "127.0.0.1:9702" }
"#;

fn read(text: &str) -> Result<PushConfiguration, ConfigurationError> {
    parse("test.toml", text, &|_| None)
}

fn fault(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    read(&GOOD.replacen(from, to, 1)).expect_err("a fault").to_string()
}

#[test]
fn sources_have_addresses_or_ports_one_behind_the_other() {
    let configuration = read(GOOD).expect("a good configuration");
    let of = |flow: usize, number| configuration.flow[flow].sources.address.of(number);
    assert_eq!(of(0, 255), Some(Address::of(Ipv4Addr::new(127, 1, 1, 0))));
    assert_eq!(of(1, 322), Some(Address { ip: Ipv4Addr::LOCALHOST, port: 20_322 }));
    assert_eq!(of(1, 60_000), None);
}

#[test]
fn a_file_with_a_gateway_is_a_push_system() {
    assert!(is_push(GOOD));
    assert!(!is_push("version = 1\n[[readout]]\nname = \"ru0\""));
    assert!(!is_push("version = "));
}

#[test]
fn every_fault_is_told_with_its_key() {
    for (from, to, key) in [
        ("version = 1", "version = 2", "version"),
        ("name = \"hlt\"", "name = \"l1\"", "flow[1].name"),
        ("packing = 25", "packing = 0", "flow[0].packing"),
        ("count = 126", "count = 0", "flow[0].sources.count"),
        ("127.0.0.1:20000", "127.0.0.1:65500", "flow[1].sources.address"),
        ("output = \"stream\"", "decision_timeout = \"50ms\"", "flow[0].decision_timeout"),
        ("output = \"stream\"", "incomplete = \"stop\"", "flow[0].incomplete"),
        ("output = \"stream\"", "assembling = 300", "flow[0].assembling"),
        ("output = \"stream\"", "emulate = { loss = 1.5 }", "flow[0].emulate.loss"),
        ("hlt = \"127.0.0.1:9702\"", "hlt = \"127.0.0.1:9701\"", "gateway[0].listen.l1"),
        (", hlt = \"127.0.0.1:9702\"", "", "gateway[0].listen"),
        ("hlt = \"127.0.0.1:9702\"", "hlt = \"127.0.0.1:9702\", xlt = \"127.0.0.1:9703\"", "gateway[0].listen.xlt"),
        ("name = \"gw0\"", "name = \"gw0\"\nmemory = \"1KiB\"", "gateway[0].memory"),
        ("name = \"gw0\"", "name = \"gw0\"\nreceive = \"raw_ip\"", "flow[1].sources.address"),
        ("[[gateway]]", "[farm]\nnodes = 0\n[[gateway]]", "farm.nodes"),
        ("[[gateway]]", "[farm]\ntransport = \"raw_ip\"\nemulate = {}\n[[gateway]]", "farm.address"),
        ("[[gateway]]", "[farm]\naddress = \"10.0.0.1:65535\"\n[[gateway]]", "farm.address"),
        (
            "[[gateway]]",
            "[farm]\nemulate = { outages = [{ node = 2, from = \"1s\", lasts = \"1s\" }] }\n[[gateway]]",
            "farm.emulate.outages[0].node",
        ),
        ("[[gateway]]", "[farm]\nlargest_push = \"1MiB\"\n[[gateway]]", "farm.largest_push"),
        ("[[gateway]]", "[farm]\nemulate = { accept = 2.0 }\n[[gateway]]", "farm.emulate.accept"),
    ] {
        let text = fault(from, to);
        assert!(text.contains(key), "{key}: {text}");
        assert!(text.contains("test.toml:"), "{text}");
    }
    assert!(fault("127.1.0.1", "gw1.example.org").contains("10.0.0.1"), "an address is a number");
}

#[test]
fn over_ip_alone_addresses_tell_flows_apart_and_all_gateways_do_alike() {
    let addresses = GOOD.replace("127.0.0.1:20000", "127.2.0.1").replace("\"gw0\"", "\"gw0\"\nreceive = \"raw_ip\"");
    let two_flows = read(&addresses).expect_err("one address for both flows").to_string();
    assert!(two_flows.contains("gateway[0].listen.l1"), "{two_flows}");
    let good = addresses.replace("127.0.0.1:9702", "127.0.0.2:9702");
    read(&good).unwrap_or_else(|error| panic!("{error}"));
    let other = "\n[[gateway]]\nname = \"gw1\"\nlisten = { l1 = \"127.0.0.3:1\", hlt = \"127.0.0.4:1\" }\n";
    let mixed = read(&(good + other)).expect_err("one gateway listens to UDP").to_string();
    assert!(mixed.contains("gateway[1].receive"), "{mixed}");
}
