//! What is read, and how faults are reported.

use super::*;
use crate::{Configuration, ConfigurationError, parse};
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

fn read(text: &str) -> Result<Configuration, ConfigurationError> {
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
fn histograms_are_of_the_sources_of_all_flows_that_are_wanted() {
    let of = "of = \"size\"\nfrom = 0\nto = 9\nbins = 3\n";
    let both =
        format!("[[histogram]]\nname = \"all\"\n{of}[[histogram]]\nname = \"some\"\nsources = [\"124-1001\"]\n{of}");
    let text = GOOD
        .replace("count = 126", "masked = [125], count = 126")
        .replace("[[gateway]]", &format!("{both}[[gateway]]"));
    let configs = read(&text).unwrap_or_else(|error| panic!("{error}")).histogram_configs();
    let [all, some] = &configs[..] else { panic!("two of them") };
    assert_eq!((all.index, all.sources.len(), some.index), (0, 125 + 323, 1));
    assert_eq!(some.sources.iter().map(|source| source.0).collect::<Vec<_>>(), [124, 1000, 1001]);
}

#[test]
fn what_gateways_do_not_use_is_refused() {
    let with = |text: &str| read(&format!("{GOOD}\n{text}\n"));
    for (text, key) in [
        ("[[readout]]\nname = \"ru0\"", "readout"),
        ("[synchrony]\naction = \"stop\"", "synchrony"),
        ("[filter]\ntriggers = [\"all\"]\nlibrary = \"a.so\"", "filter.library"),
        ("[run]\ncheck_crc = true", "run.check_crc"),
        ("[run]\nacknowledge = \"written\"", "run.acknowledge"),
        ("[timeouts]\nbuilder = \"1s\"", "timeouts.builder"),
    ] {
        let error = with(text).expect_err(text);
        assert!(error.key == key && error.message.contains("do not use it"), "{error}");
        assert!(error.line > 16 && error.each().count() == 1, "{error}");
    }
    let both = with("[[readout]]\nname = \"ru0\"\n[run]\ntcp = \"epoll\"\ncheck_crc = true");
    assert_eq!(both.expect_err("three things").each().count(), 3);
}

#[test]
fn times_of_a_run_are_those_of_every_system_and_an_old_key_still_works() {
    let read = |text: &str| read(&format!("{GOOD}\n{text}\n"));
    let plain = read("").expect("a good configuration");
    assert_eq!((plain.timeouts.drain, plain.renamed.len()), (crate::TimeoutSection::default().drain, 0));
    let shorter = read("[timeouts]\ndrain = \"1s\"\noperator = \"5s\"").expect("a good configuration");
    assert_eq!((shorter.timeouts.drain.to_string(), shorter.timeouts.operator.to_string()), ("1s".into(), "5s".into()));
    let old = read("[run]\ndrain = \"3s\"").expect("a good configuration");
    assert_eq!((old.timeouts.drain.to_string().as_str(), old.run.drain), ("3s", None));
    assert_eq!(old.renamed, ["`drain` of [run] is `drain` of [timeouts] now"]);
    let twice = read("[run]\ndrain = \"3s\"\n[timeouts]\ndrain = \"4s\"").expect_err("which one?");
    assert_eq!(twice.key, "run.drain");
}

#[test]
fn every_fault_names_its_key() {
    for (from, to, key) in [
        ("version = 1", "version = 2", "version"),
        ("name = \"hlt\"", "name = \"l1\"", "flow[1].name"),
        ("packing = 25", "packing = 0", "flow[0].packing"),
        ("[[gateway]]", "[run]\nlumisection = { events = 0 }\n[[gateway]]", "run.lumisection"),
        ("[[gateway]]", "[run]\nlumisection = { time = \"9ms\" }\n[[gateway]]", "run.lumisection"),
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
        ("packing = 10", "packing = 10\nprotocol = 253", "flow[1].sources.address"),
        ("packing = 25", "packing = 25\nprotocol = 17", "flow[0].protocol"),
        ("name = \"gw0\"", "name = \"gw0\"\nqueues = 0", "gateway[0].queues"),
        ("name = \"gw0\"", "name = \"gw0\"\nqueues = 2", "gateway[0].listen.l1"),
        ("name = \"gw0\"", "name = \"gw0\"\nreceive = \"tpacket\"", "gateway[0].interface"),
        ("name = \"gw0\"", "name = \"gw0\"\nsend = \"af_xdp\"", "gateway[0].send"),
        ("[[gateway]]", "[farm]\ntransport = \"tcp\"\n[[gateway]]\nsend = \"tx_ring\"", "gateway[0].send"),
        ("[[gateway]]", "[[thread]]\nmatch = \"gw0\"\n[[gateway]]", "thread[0]"),
        (
            "\nlisten = { l1 = \"127.0.0.1",
            "\ninterface = \"lo\"\nreceive = \"af_xdp\"\nlisten = { l1 = \"0.0.0.0",
            "gateway[0].listen.l1",
        ),
        ("name = \"gw0\"", "name = \"gw0\"\ndecisions = { hlt = \"127.0.0.1:0\" }", "gateway[0].decisions.hlt"),
        ("name = \"gw0\"", "name = \"gw0\"\nthrottle = { tell = {} }", "gateway[0].throttle.tell"),
        ("count = 126", "masked = [5, 126], count = 126", "flow[0].sources.masked"),
        ("[[gateway]]", "[farm]\nnodes = 5000\n[[gateway]]", "farm.nodes"),
        ("[[gateway]]", "[farm]\ntransport = \"raw_ip\"\nemulate = {}\n[[gateway]]", "farm.address"),
        ("[[gateway]]", "[farm]\naddress = \"10.0.0.1:65535\"\n[[gateway]]", "farm.address"),
        (
            "[[gateway]]",
            "[farm]\nemulate = { outages = [{ node = 2, from = \"1s\", lasts = \"1s\" }] }\n[[gateway]]",
            "farm.emulate.outages[0].node",
        ),
        ("[[gateway]]", "[farm]\nlargest_push = \"1MiB\"\n[[gateway]]", "farm.largest_push"),
        ("[[gateway]]", "[farm]\nemulate = { accept = 2.0 }\n[[gateway]]", "farm.emulate.accept"),
        (
            "[[gateway]]",
            "[[histogram]]\nname = \"a\"\nsources = [999]\nof = \"size\"\nfrom = 0\nto = 9\nbins = 3\n[[gateway]]",
            "histogram[0].sources",
        ),
    ] {
        let text = fault(from, to);
        assert!(text.contains(key), "{key}: {text}");
        assert!(text.contains("test.toml:"), "{text}");
    }
    assert!(fault("127.1.0.1", "gw1.example.org").contains("10.0.0.1"), "an address is a number");
}

#[test]
fn without_ports_protocols_and_addresses_tell_flows_queues_and_gateways_apart() {
    let raw = GOOD.replace("127.0.0.1:20000", "127.2.0.1").replace("packing", "protocol = 253\npacking");
    let two_flows = read(&raw).expect_err("one address for both flows").to_string();
    assert!(two_flows.contains("gateway[0].listen.l1"), "{two_flows}");
    assert!(two_flows.contains("127.0.0.1 with protocol 253 is used twice"), "{two_flows}");
    let other_protocol = raw.replacen("protocol = 253", "protocol = 252", 1);
    read(&other_protocol).unwrap_or_else(|error| panic!("{error}"));
    let other_address = raw.replace("127.0.0.1:9702", "127.0.0.3:9702");
    read(&other_address).unwrap_or_else(|error| panic!("{error}"));
    let queues = other_address.replace("name = \"gw0\"", "name = \"gw0\"\nqueues = 3");
    let overlap = read(&queues).expect_err("the third queue of one flow is the first of the other").to_string();
    assert!(overlap.contains("gateway[0].listen"), "{overlap}");
}

#[test]
fn queues_listen_behind_each_other() {
    let first: ListenAddress = "10.0.0.5:9000".parse().expect("an address");
    let of =
        |first: ListenAddress, queue, has_ports| first.of_queue(queue, has_ports).map(|address| address.to_string());
    assert_eq!(of(first, 3, true).as_deref(), Some("10.0.0.5:9003"));
    assert_eq!(of(first, 3, false).as_deref(), Some("10.0.0.8:0"));
    let any: ListenAddress = "10.0.0.5:0".parse().expect("an address");
    assert_eq!(of(any, 3, true).as_deref(), Some("10.0.0.5:0"));
    let last: ListenAddress = "255.255.255.255:65535".parse().expect("an address");
    assert_eq!((of(last, 1, true), of(last, 1, false)), (None, None));
}
