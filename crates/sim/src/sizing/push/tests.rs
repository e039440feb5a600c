//! What a simulated push system does, beside what can be worked out by hand.

use super::super::{Outcome, SizingFile};
use ropewalk_config::ConfigurationError;
use std::path::Path;

/// Packets of 12 + 5 (4 + 40) bytes, so 232 in IP and 290 on the wire, of 10 sources.
const SMALL: &str = r#"version = 1
gateways = 2
duration = "60ms"
warm_up = "20ms"
[[flow]]
name = "one"
sources = 10
packing = 5
fragment_size = "40"
rate = "10kHz"
decision_time = "100us"
[gateway]
queues = 2
"#;

fn owned(instead: &[(&str, &str)]) -> Vec<(String, String)> {
    instead.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Whatever a system does, nothing may vanish.
fn simulated(system: Result<SizingFile, ConfigurationError>) -> Outcome {
    let system = system.unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(system, SizingFile::Push(_)));
    let outcome = system.simulate();
    let events = &outcome.events;
    let ended = events.built + events.incomplete + events.dropped;
    assert!(events.balanced && events.triggered == ended + events.in_flight, "{events:?}");
    outcome
}

/// The small system with other values in the place of its own.
fn outcome(instead: &[(&str, &str)]) -> Outcome {
    simulated(SizingFile::parse("test.toml", SMALL, &owned(instead)))
}

/// One gateway, so that sums are easy.
const ALONE: [(&str, &str); 2] = [("gateways", "1"), ("gateway.queues", "1")];

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.02, "{found} is not {expected}");
}

#[test]
fn what_is_triggered_is_decided() {
    let outcome = outcome(&[]);
    let flow = &outcome.flows[0];
    close(flow.offered_per_s, 10_000.0);
    close(outcome.rate.events_per_s, 10_000.0);
    close(flow.packets_per_s, 20_000.0);
    close(flow.bytes_per_s, 20_000.0 * 232.0);
    assert_eq!((outcome.dead_time, outcome.limit.by.as_str()), (0.0, "the trigger"));
    assert_eq!((outcome.events.in_flight, outcome.events.incomplete), (0, 0), "{:?}", outcome.events);
    let input = outcome.resources.iter().find(|one| one.name == "input of a queue").expect("links");
    close(input.bytes_per_s.expect("bytes") * 4.0, 20_000.0 * 290.0);
    close(input.utilisation * 4.0, 20_000.0 * 290.0 / 125e6);
}

#[test]
fn the_input_link_has_no_mercy_with_sources_that_push() {
    // 5.8 MB/s into 4 MB/s: what the port cannot hold is lost, and each loss leaves a set incomplete.
    let slow = [("gateway.input", "4MB/s"), ("network.buffer", "16KiB"), ("flow[0].timeout", "5ms")];
    let outcome = outcome(&[&ALONE[..], &slow].concat());
    assert_eq!(outcome.limit.by, "ports to queues", "{:?}", outcome.limit);
    assert!(outcome.events.incomplete > 0 && outcome.networks[0].dropped > 0, "{outcome:?}");
    assert_eq!(outcome.events.in_flight, 0, "{:?}", outcome.events);
}

#[test]
fn a_core_limits_by_its_cost_for_a_packet() {
    let slow = [("gateway.host.per_packet", "100us"), ("gateway.host.receive", "1TB/s"), ("duration", "200ms")];
    let outcome = outcome(&[&ALONE[..], &slow].concat());
    // 10,000 packets a second are 1,000 sets; the rest of a core's time goes to nodes.
    assert!((4400.0..5000.0).contains(&outcome.rate.events_per_s), "{:?}", outcome.rate);
    assert!(outcome.limit.by.starts_with("core of a queue"), "{:?}", outcome.limit);
}

#[test]
fn a_socket_that_overflows_loses_packets() {
    let slow = [("gateway.host.per_packet", "100us"), ("gateway.socket", "64KiB"), ("flow[0].timeout", "5ms")];
    let outcome = outcome(&[&ALONE[..], &slow].concat());
    assert_eq!(outcome.limit.by, "sockets of queues", "{:?}", outcome.limit);
    assert!(outcome.events.incomplete > 0, "{:?}", outcome.events);
}

#[test]
fn nodes_without_time_stop_the_trigger_through_the_throttle_and_nothing_is_lost() {
    // Two nodes of one core, 1 ms each: 2,000 events a second.
    let slow = [("farm.nodes", "2"), ("farm.cores", "1"), ("flow[0].decision_time", "1ms"), ("duration", "400ms")];
    let outcome = outcome(&[&ALONE[..], &slow].concat());
    close(outcome.rate.events_per_s, 2000.0);
    assert!((0.7..0.85).contains(&outcome.dead_time), "{}", outcome.dead_time);
    assert!(outcome.limit.by.starts_with("node"), "{:?}", outcome.limit);
    assert_eq!((outcome.events.incomplete, outcome.networks[0].dropped), (0, 0), "{:?}", outcome.events);
}

#[test]
fn latency_is_the_sum_of_what_happens_on_the_way() {
    let cheap =
        [("gateway.host.per_packet", "10ns"), ("gateway.host.per_push", "10ns"), ("gateway.host.turn", "100ns")];
    let own = [("gateway.host.per_message", "10ns"), ("network.latency", "50us"), ("flow[0].rate", "1kHz")];
    let outcome = outcome(&[&ALONE[..], &cheap, &own].concat());
    // A packet's 2.3 us on its source's link, ten packets on the queue's, and the latency.
    let built = 2.32e-6 + 10.0 * 2.32e-6 + 50e-6;
    assert!((built..built + 5e-6).contains(&outcome.latency.built.p50_s), "{:?}", outcome.latency.built);
    // To the node, with up to five events of 400 bytes before it on the link, and decided there.
    let decided = outcome.latency.released.p50_s - outcome.latency.built.p50_s;
    assert!((150e-6..180e-6).contains(&decided), "{decided}");
}

#[test]
fn random_sizes_have_their_mean() {
    let random = [("flow[0].fragment_size", "uniform(8,152)"), ("flow[0].rate", "100kHz")];
    let outcome = outcome(&random);
    // Rounded up to words of 4 bytes.
    close(outcome.flows[0].bytes_per_s, 200_000.0 * (12.0 + 5.0 * 85.5));
}

#[test]
fn equal_seeds_give_equal_outcomes_byte_for_byte() {
    let json = |seed: &str| {
        let random = [("flow[0].rate", "poisson(50kHz)"), ("flow[0].fragment_size", "lognormal(64,0.7)")];
        let own = [("flow[0].decision_time", "exponential(300us)"), ("seed", seed)];
        serde_json::to_string(&outcome(&[&random[..], &own].concat())).expect("JSON")
    };
    assert_eq!(json("7"), json("7"));
    assert_ne!(json("7"), json("8"));
}

fn lhcb(instead: &[(&str, &str)]) -> Outcome {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sizing/lhcb-2005.toml");
    simulated(SizingFile::read(&file, &owned(instead)))
}

/// Costs follow from rows 7 and 8 of the paper's Table V; row 9 follows from them.
#[test]
fn a_gateway_of_2005_takes_what_the_paper_measured() {
    let row_8 = [("flow[0].packing", "25")];
    let row_7 = [&row_8[..], &[("gateway.mtu", "1500"), ("gateway.largest_push", "1480")]].concat();
    for (row, instead, measured) in [(7, &row_7[..], 1.77), (8, &row_8, 1.87), (9, &[], 1.95)] {
        // More than it can take, over links that take everything.
        let offered = [("gateways", "1"), ("flow[0].rate", "poisson(46kHz)"), ("flow[1].rate", "poisson(1840Hz)")];
        let links = [("gateway.input", "10Gb/s"), ("gateway.socket", "16MiB"), ("network.buffer", "16MiB")];
        let outcome = lhcb(&[&offered[..], &links, instead].concat());
        assert!(outcome.limit.by.starts_with("core of a queue"), "row {row}: {:?}", outcome.limit);
        let on_the_wire = outcome.flows.iter().map(|flow| flow.bytes_per_s + 58.0 * flow.packets_per_s);
        let rate = 8e-9 * on_the_wire.sum::<f64>();
        assert!((0.94..1.03).contains(&(rate / measured)), "row {row}: {rate} Gb/s, and the paper has {measured}");
    }
}

#[test]
fn so_many_gateways_suffice_for_lhcb_and_a_tenth_fewer_do_not() {
    for (gateways, keeps_up) in [("28", true), ("25", false)] {
        let outcome = lhcb(&[("gateways", gateways), ("duration", "60ms"), ("warm_up", "40ms")]);
        let offered = outcome.rate.offered_per_s.expect("a trigger");
        let rate = outcome.rate.events_per_s / offered;
        assert_eq!(rate > 0.97, keeps_up, "{gateways} gateways: {rate} of {offered}, {:?}", outcome.limit);
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_place() {
    let error = |text: &str| SizingFile::parse("test.toml", text, &[]).expect_err("a wrong system").to_string();
    let wrong = error(&format!("{SMALL}[farm]\nnodes = 0\n"));
    assert!(wrong.starts_with("test.toml:15:9: farm.nodes: between 1 and"), "{wrong}");
    let wrong = error(&SMALL.replace("packing = 5", "packing = 0"));
    assert!(wrong.starts_with("test.toml:8:11: flow[0].packing: at least 1"), "{wrong}");
    let wrong = error(&format!("{SMALL}[builder]\nevents = 1\n"));
    assert!(wrong.contains("builder"), "{wrong}");
}

#[test]
fn what_does_not_fit_together_is_told() {
    let cases = [
        ("version", "2", "version"),
        ("warm_up", "60ms", "duration"),
        ("drain", "2h", "duration"),
        ("gateways", "0", "gateways"),
        ("gateways", "1000", "gateways"),
        ("gateway.queues", "0", "gateway.queues"),
        ("gateway.batch", "0", "gateway.batch"),
        ("gateway.largest_push", "64", "gateway.largest_push"),
        ("gateway.mtu", "60", "gateway.mtu"),
        ("gateway.socket", "100", "gateway.socket"),
        ("gateway.host.turn", "1ns", "gateway.host.turn"),
        ("network.mtu", "100000", "network.mtu"),
        ("network.buffer", "200", "network.buffer"),
        ("farm.nodes", "0", "farm.nodes"),
        ("farm.cores", "0", "farm.cores"),
        ("farm.outstanding", "257", "farm.outstanding"),
        ("flow[0].sources", "0", "flow[0].sources"),
        ("flow[0].packing", "6000", "flow[0].packing"),
        ("flow[0].fragment_size", "20000", "flow[0].packing"),
        ("flow[0].sets", "1", "flow[0].sets"),
        ("flow[0].accept", "1.5", "flow[0].accept"),
    ];
    for (key, value, at) in cases {
        let error = SizingFile::parse("test.toml", SMALL, &owned(&[(key, value)])).expect_err(key);
        assert_eq!(error.key, at, "{key} = {value}: {error}");
    }
    for key in ["flow[1].packing", "flow[x].packing", "gateways[0]", "nothing[0].packing"] {
        let error = SizingFile::parse("test.toml", SMALL, &owned(&[(key, "1")])).expect_err(key);
        assert!(!error.message.is_empty(), "{key}: {error}");
    }
}
