//! A gateway in a separate network namespace, with rings of its network card and several input queues. Sources, trigger
//! and nodes are at the other end of a cable.

use crate::support::{Held, TemporaryDirectory};
use ropewalk_config::{Configuration, parse};
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_io::packet::cable::{CARD, Cable, Host};
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use ropewalk_run::{RunHandle, RunSummary};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Events of the flow that is written.
const EVENTS: u64 = 2000;

/// Setup of the gateway.
struct Setting {
    receive: &'static str,
    send: &'static str,
    architecture: &'static str,
    queues: u32,
    /// Transport of the second flow, whose packets are fragmented.
    second: Second,
    /// Transport between the gateway and its nodes. Over IP without ports each node needs its own address, so that
    /// there is only one.
    transport: &'static str,
}

#[derive(Copy, Clone, PartialEq)]
enum Second {
    Udp,
    Raw,
}

fn configuration(setting: &Setting, output: &TemporaryDirectory) -> Configuration {
    let Setting { receive, send, architecture, queues, second, transport } = setting;
    let second = match second {
        Second::Udp => "sources = { count = 3, first = 900, address = \"10.77.0.1:23000\" }",
        Second::Raw => "protocol = 253\nsources = { count = 1, first = 900, address = \"10.77.0.1\" }",
    };
    let (nodes, port) = if *transport == "raw_ip" { (1, "") } else { (2, ":9720") };
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n\
         [[flow]]\nname = \"hlt\"\npacking = 5\nsources = {{ count = 9, first = 700, address = \"10.77.0.1:21000\" }}\n\
         timeout = \"2s\"\ndecision_timeout = \"20s\"\nemulate = {{ fragment_size = \"uniform(8,200)\", rate = \"10kHz\" }}\n\
         [[flow]]\nname = \"l1\"\npacking = 5\n{second}\nlargest_packet = \"4KiB\"\noutput = \"stream\"\n\
         timeout = \"2s\"\ndecision_timeout = \"20s\"\nemulate = {{ fragment_size = \"700\", rate = \"2kHz\" }}\n\
         [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"10.77.0.2:9701\", l1 = \"10.77.0.2:9801\" }}\n\
         control = \"10.77.0.2:9601\"\ninterface = {CARD:?}\nmemory = \"16MiB\"\nqueues = {queues}\n\
         receive = {receive:?}\nsend = {send:?}\narchitecture = {architecture:?}\n\
         [trigger]\nlisten = {{ hlt = \"10.77.0.1:9711\", l1 = \"10.77.0.1:9712\" }}\n\
         [farm]\nnodes = {nodes}\ntransport = {transport:?}\naddress = \"10.77.0.1{port}\"\nemulate = {{ accept = 1.0, decision_time = \"uniform(0s,2ms)\" }}\n",
        output.path().display().to_string()
    );
    parse("push", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn launch(host: &Host, configuration: &Configuration, part: SystemPart, events: u64) -> RunHandle {
    let launch = || launch_part(configuration, &part, Some(events)).unwrap_or_else(|error| panic!("{error}"));
    host.inside(launch)
}

/// Waits until a part has ended. `turn` is called repeatedly.
fn end(handle: &mut RunHandle, mut turn: impl FnMut(&mut RunHandle)) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !handle.is_ended() {
        assert!(Instant::now() < patience, "it does not end: {:?}", handle.gateways());
        std::thread::sleep(Duration::from_millis(2));
        turn(handle);
    }
}

/// Returns the accounts of the gateway and of the part at the other end of the cable.
fn run(cable: &Cable, configuration: &Configuration, events: u64) -> (RunSummary, RunSummary) {
    let mut gateway = launch(&cable.sink, configuration, SystemPart::Gateway("gw0".to_owned()), events);
    let nodes = launch(&cable.source, configuration, SystemPart::Nodes(0..configuration.farm.nodes), events);
    let mut sources = launch(&cable.source, configuration, SystemPart::Sources(Vec::new()), events);
    end(&mut sources, |sources| {
        if sources.sources_ended() {
            sources.stop();
        }
    });
    gateway.stop();
    end(&mut gateway, |_| ());
    let (gateway, sources) = (gateway.finish(Duration::ZERO), sources.finish(Duration::ZERO));
    nodes.finish(Duration::ZERO);
    assert!(gateway.is_balanced(), "{}", serde_json::to_string_pretty(&gateway).expect("JSON"));
    (gateway, sources)
}

fn number(summary: &RunSummary, flow: &str, place: &str) -> u64 {
    let found = json!(summary.flows[flow]).pointer(place).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{place} is no number in {:?}", summary.flows))
}

/// Runs a setting: all sent data is received, built, decided and written.
fn everything_comes_through(test: &str, setting: &Setting) {
    let Ok(cable) = Cable::lay(1500, setting.queues) else {
        return ropewalk_tidy::skipped(test, "may not make network namespaces");
    };
    cable.resolve().expect("a way there and back");
    let output = TemporaryDirectory::new("gateway-rings");
    let (gateway, sources) = run(&cable, &configuration(setting, &output), EVENTS);
    assert!(gateway.is_lossless(), "{}", serde_json::to_string_pretty(&gateway).expect("JSON"));
    for flow in ["hlt", "l1"] {
        let sent = number(&sources, flow, "/sent/packets");
        assert_eq!(number(&gateway, flow, "/packets/received"), sent, "{flow}");
        assert_eq!(number(&gateway, flow, "/packets/in_complete_events"), sent, "{flow}");
    }
    let streamed = number(&sources, "l1", "/sent/decisions_in_order");
    assert_eq!(
        (streamed, number(&sources, "l1", "/sent/events")),
        (number(&gateway, "l1", "/farm/streamed"), streamed)
    );
    assert_eq!(gateway.gateways.len() as u32, setting.queues, "each queue has an entry");
    assert!(gateway.gateways.values().all(|queue| queue.written.events > 0), "each had its part");
    assert_eq!(gateway.events.written, EVENTS);
    let held = Held::in_directories(&[&gateway.directory]);
    let keys: BTreeSet<u64> = held.events.keys().map(|key| key.number()).collect();
    assert_eq!(keys, (0..EVENTS).collect());
}

/// One packet in five hundred is lost, so that one set in fifty waits for 14 seconds, while others go round the ring.
/// The throttle leaves so little room that it stops nothing earlier. The trigger is this slow because nothing else
/// holds a packet back here: when sets are moved out of the ring, its rest lasts for a second, in which a busy machine
/// may not turn the gateway.
const LOSS: f64 = 0.002;

/// Thirteen seconds of events; the ring lasts for nine.
const EVENTS_WITH_LOSSES: u64 = 3900;

fn with_losses(output: &TemporaryDirectory) -> Configuration {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[flow]]\nname = \"hlt\"\npacking = 5\n\
         sources = {{ count = 9, first = 700, address = \"10.77.0.1:21000\" }}\nsets = 4096\nassembling = 1024\n\
         timeout = \"14s\"\ndecision_timeout = \"20s\"\nemulate = {{ rate = \"300Hz\", loss = {LOSS}, seed = 9 }}\n\
         [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"10.77.0.2:9701\" }}\ncontrol = \"10.77.0.2:9601\"\n\
         interface = {CARD:?}\nmemory = \"8MiB\"\nreceive = \"tpacket\"\n\
         throttle = {{ rate = \"1kB/s\", latency = \"1ms\" }}\n\
         [trigger]\nlisten = {{ hlt = \"10.77.0.1:9711\" }}\n\
         [farm]\naddress = \"10.77.0.1:9720\"\nemulate = {{ accept = 1.0 }}\n",
        output.path().display().to_string()
    );
    parse("push", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn sets_that_wait_are_moved_out_of_a_ring_before_it_stops_in_front_of_them() {
    let Ok(cable) = Cable::lay(1500, 1) else {
        let test = "gateway_rings::sets_that_wait_are_moved_out_of_a_ring_before_it_stops_in_front_of_them";
        return ropewalk_tidy::skipped(test, "may not make network namespaces");
    };
    cable.resolve().expect("a way there and back");
    let output = TemporaryDirectory::new("gateway-moved");
    let (gateway, sources) = run(&cable, &with_losses(&output), EVENTS_WITH_LOSSES);
    assert!(gateway.gateways["gw0"].evacuated_packets > 0, "{:?}", gateway.gateways);
    assert!(gateway.flows["hlt"].lost_by_cause.total() == 0, "the ring went on: {:?}", gateway.gateways);
    assert_eq!(number(&gateway, "hlt", "/packets/received"), number(&sources, "hlt", "/sent/packets"));
    let emulated = MepSourceConfig { loss: LOSS, seed: 9, ..MepSourceConfig::new(9, 5, 32) };
    let held = Held::in_directories(&[&gateway.directory]);
    assert_eq!(held.events.len() as u64, EVENTS_WITH_LOSSES);
    for (key, event) in &held.events {
        let lost = (0..9).filter(|&source| emulated.is_lost(key.number() / 5, source));
        let wanted: Vec<u32> = lost.map(|source| 700 + u32::from(source)).collect();
        assert_eq!(event.missing.keys().copied().collect::<Vec<_>>(), wanted, "event {key}");
        for source in (0..9).filter(|source| !wanted.contains(&(700 + u32::from(*source)))) {
            let mut banks = Vec::new();
            emulated.append_banks(source, key.number(), &mut banks);
            let (found, _) = event.fragments[&(700 + u32::from(source))];
            assert_eq!(found, crate::support::hash(&banks), "event {key}, source {source}");
        }
    }
}

macro_rules! settings {
    ($($name:ident: $receive:literal, $send:literal, $architecture:literal, $queues:literal, $second:ident, $transport:literal;)*) => {$(
        #[test]
        fn $name() {
            let setting = Setting {
                receive: $receive,
                send: $send,
                architecture: $architecture,
                queues: $queues,
                second: Second::$second,
                transport: $transport,
            };
            everything_comes_through(concat!("gateway_rings::", stringify!($name)), &setting);
        }
    )*};
}

settings! {
    mapped_rings_bring_packets_and_take_events: "tpacket", "tx_ring", "run_to_completion", 1, Raw, "udp";
    several_queues_have_rings_of_their_own: "tpacket", "sendmmsg", "threads", 2, Udp, "udp";
    a_queue_of_the_card_brings_both_flows: "af_xdp", "af_xdp", "run_to_completion", 1, Raw, "udp";
    halves_on_two_threads_share_a_queue_of_the_card: "af_xdp", "af_xdp", "threads", 1, Raw, "udp";
    queues_of_the_card_are_those_of_the_gateway: "af_xdp", "af_xdp", "run_to_completion", 2, Udp, "udp";
    what_comes_from_the_card_may_leave_through_a_socket: "af_xdp", "sendmmsg", "threads", 2, Udp, "udp";
    events_leave_straight_over_ip_in_frames_of_a_ring: "tpacket", "tx_ring", "run_to_completion", 1, Udp, "raw_ip";
    events_leave_straight_over_ip_in_frames_of_a_card: "af_xdp", "af_xdp", "threads", 1, Raw, "raw_ip";
    several_queues_have_sockets_of_their_own: "recvmmsg", "sendmmsg", "threads", 3, Udp, "udp";
}
