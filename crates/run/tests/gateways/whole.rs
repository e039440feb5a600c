//! Push systems in whole runs, over loopback: from emulated sources to decisions and run files.

use crate::support::{Held, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_flow::messages::Setting;
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use ropewalk_run::{LumisectionSummary, RunHandle, RunSummary};
use ropewalk_terms::{Cause, Parameter};
use ropewalk_wire::gateway::{Frame, Message};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const SOURCES: u16 = 9;
const PACKING: u16 = 5;
/// `timeouts.drain`.
const DRAIN: Duration = Duration::from_secs(5);

/// Division of a gateway's work among threads. It must make no difference to the result.
const ARCHITECTURES: [&str; 2] = ["run_to_completion", "threads"];

/// A run of one flow.
struct Run<'a> {
    architecture: &'a str,
    /// Address that the sources send from.
    sources: &'a str,
    /// Further keys of the flow.
    flow: &'a str,
    /// Emulation of the nodes, which accept everything by default.
    nodes: &'a str,
    /// Further sections.
    rest: &'a str,
    /// Limits of run files: keys of `[run]`.
    segments: &'a str,
    events: u64,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self {
            architecture: ARCHITECTURES[0],
            sources: "127.0.0.1:21000",
            flow: "emulate = { rate = \"20kHz\" }",
            nodes: "accept = 1.0, decision_time = \"uniform(0s,2ms)\"",
            rest: "",
            segments: "",
            events: 2000,
        }
    }
}

impl Run<'_> {
    fn start(&self, output: &TemporaryDirectory) -> RunHandle {
        let Self { architecture, sources, flow, nodes, rest, segments, events } = self;
        let nodes = if rest.contains("[filter]") { String::new() } else { format!("emulate = {{ {nodes} }}") };
        // Sources on a busy machine may take long between two packets of a set.
        let timeout = if flow.contains("timeout") { "" } else { "timeout = \"5s\"\n" };
        let usual = "decision_timeout = \"20s\"\nbudget = \"20s\"\n";
        let decisions = if flow.contains("decision_timeout") { "" } else { usual };
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n{segments}\n[[flow]]\nname = \"hlt\"\npacking = {PACKING}\n\
             sources.count = {SOURCES}\nsources.first = 700\nsources.address = \"{sources}\"\n\
             {decisions}{timeout}{flow}\n\
             [timeouts]\ndrain = \"{}s\"\n[farm]\n{nodes}\n{rest}\n",
            output.path().display().to_string(),
            DRAIN.as_secs()
        );
        let gateway = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }\n";
        let text = if text.contains("[[gateway]]") { text } else { text + gateway };
        let text = text.replace("[[gateway]]", &format!("[[gateway]]\narchitecture = \"{architecture}\""));
        let configuration = parse("push", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        launch_part(&configuration, &SystemPart::Whole, Some(*events)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Executes the run from start to end.
    fn whole(&self, output: &TemporaryDirectory) -> RunSummary {
        ended(self.start(output))
    }
}

/// Returns the address of sources with ports from this one on.
fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Returns the address of a gateway for the packets of the flow.
fn input_of(handle: &RunHandle, gateway: &str) -> String {
    let name = format!("{gateway} hlt");
    let found = handle.addresses().iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}: {:?}", handle.addresses())).1.clone()
}

/// Waits until all events have been decided.
fn ended(mut handle: RunHandle) -> RunSummary {
    let patience = Instant::now() + Duration::from_secs(60);
    while !handle.is_ended() {
        assert!(Instant::now() < patience, "it does not end: {:?}", handle.gateways());
        let now = handle.summary();
        assert!(now.is_balanced(), "at any time: {:?}", now.ledger);
        std::thread::sleep(Duration::from_millis(2));
        if handle.sources_ended() {
            handle.stop();
        }
    }
    let summary = handle.finish(Duration::ZERO);
    assert!(summary.is_balanced(), "{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    summary
}

fn number(summary: &RunSummary, place: &str) -> u64 {
    let flow = json!(summary.flows["hlt"]);
    let found = place.split('.').fold(&flow, |value, name| &value[name]).as_u64();
    found.unwrap_or_else(|| panic!("{place} is no number in {:?}", summary.flows))
}

#[test]
fn every_event_is_built_decided_and_written_with_every_way_to_gather() {
    for architecture in ARCHITECTURES {
        for (port, gather) in [(21_000, "iovec"), (21_100, "memcpy"), (21_200, "short_copy")] {
            let output = TemporaryDirectory::new("push-whole");
            let gateway =
                format!("[[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\ngather = \"{gather}\"");
            let emulate = "emulate = { fragment_size = \"uniform(8,200)\", rate = \"20kHz\" }";
            let summary = Run { architecture, sources: &at(port), flow: emulate, rest: &gateway, ..Run::default() }
                .whole(&output);
            assert!(summary.is_lossless(), "{gather}: {:?}", summary.flows);
            assert_eq!((summary.events.written, number(&summary, "farm.decided")), (2000, 2000), "{gather}");
            let bytes = &summary.bytes;
            assert!(bytes.wire_received > 0 && bytes.wire_received == bytes.payload_received, "{bytes:?}");
            let held = Held::in_directories(&[&summary.directory]);
            let keys: BTreeSet<u64> = held.events.keys().map(|key| key.number()).collect();
            assert_eq!(keys, (0..2000).collect(), "{gather}");
            let sources = sources(SizeDistribution::Uniform { least: 8, most: 200 }, 0.0);
            for (key, event) in &held.events {
                for source in 0..SOURCES {
                    let mut banks = Vec::new();
                    sources.append_banks(source, key.number(), &mut banks);
                    let (found, _) = event.fragments[&(700 + u32::from(source))];
                    assert_eq!(found, crate::support::hash(&banks), "{gather}: event {key}, source {source}");
                }
            }
        }
    }
}

fn sources(size: SizeDistribution, loss: f64) -> MepSourceConfig {
    MepSourceConfig { size, loss, ..MepSourceConfig::new(SOURCES, PACKING, 0) }
}

#[test]
fn exactly_the_events_of_packets_that_were_lost_are_incomplete() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-loss");
        let emulate = "timeout = \"300ms\"\nsets = 1024\nassembling = 512\nemulate = { fragment_size = \"32\", rate = \"5kHz\", loss = 0.02, duplicates = 0.02, \
                       reordered = 0.05, jitter = \"1ms\" }";
        let summary = Run { architecture, sources: &at(21_300), flow: emulate, ..Run::default() }.whole(&output);
        let held = Held::in_directories(&[&summary.directory]);
        assert_eq!(held.events.len(), 2000);
        let sources = sources(SizeDistribution::Fixed(32), 0.02);
        let mut lost = 0;
        for (key, event) in &held.events {
            let set = key.number() / u64::from(PACKING);
            let missing = |source: &u16| sources.is_lost(set, *source);
            let wanted = (0..SOURCES).filter(missing).map(|source| (700 + u32::from(source), Some(Cause::TimedOut)));
            assert_eq!(event.missing, wanted.collect(), "event {key}");
            lost += event.missing.len() as u64;
        }
        assert!(lost > 0);
        assert_eq!(lost, number(&summary, "sent.lost_on_purpose") * u64::from(PACKING));
        assert_eq!(number(&summary, "packets.duplicate"), number(&summary, "sent.sent_twice"));
    }
}

#[test]
fn what_was_lost_is_known_by_source_and_masked_sources_are_not_missed() {
    let output = TemporaryDirectory::new("push-sources");
    let flow = "timeout = \"300ms\"\nsources.masked = [701, 705]\nemulate = { rate = \"5kHz\", loss = 0.02 }";
    let summary = Run { sources: &at(22_600), flow, ..Run::default() }.whole(&output);
    let sets = 2000 / u64::from(PACKING);
    let emulated = sources(SizeDistribution::Fixed(32), 0.02);
    let mut masked = 0;
    for source in 0..SOURCES {
        let (id, lost) = (700 + source, (0..sets).filter(|&set| emulated.is_lost(set, source)).count() as u64);
        if [701, 705].contains(&id) {
            assert_eq!(summary.flows["hlt"].sources.get(&id.to_string()), None);
            masked += sets - lost;
            continue;
        }
        assert_eq!(number(&summary, &format!("sources.{id}.missing")), lost, "source {id}");
        assert_eq!(number(&summary, &format!("sources.{id}.packets")), sets - lost, "source {id}");
    }
    assert_eq!(number(&summary, "packets.dropped.masked"), masked);
    let held = Held::in_directories(&[&summary.directory]);
    assert!(held.events.values().all(|event| !event.fragments.contains_key(&701)));
}

#[test]
fn what_strangers_send_is_counted_and_leaves_the_account_in_balance() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-strangers");
        let handle = Run { architecture, sources: &at(22_900), ..Run::default() }.start(&output);
        let (stranger, to) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), input_of(&handle, "gw0"));
        for length in 0..50 {
            assert_eq!(stranger.send_to(&[0x5A; 50][..length], &to).ok(), Some(length));
        }
        let summary = ended(handle);
        assert_eq!((number(&summary, "packets.dropped.unknown_source"), number(&summary, "unexplained")), (50, 0));
        let sent = number(&summary, "sent.packets");
        assert_eq!((number(&summary, "packets.received"), summary.events.written), (sent + 50, 2000));
    }
}

/// Nodes reject everything, and for many events they take too long: these are accepted by default.
#[test]
fn what_nodes_decide_too_late_is_decided_by_default_and_holds_nothing_up() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-default");
        let flow = "output = \"stream\"\ntimeout = \"1s\"\ndecision_timeout = \"1200ms\"\nbudget = \"400ms\"\n\
                    default_decision = \"accept\"\nemulate = { rate = \"200Hz\" }";
        let nodes = "accept = 0.0, decision_time = \"uniform(0s,3s)\"";
        let run = Run { architecture, sources: &at(23_000), flow, nodes, events: 200, ..Run::default() };
        let summary = run.whole(&output);
        let number = |place| number(&summary, place);
        let (by_default, decided) = (number("farm.by_default"), number("farm.decided"));
        assert!(by_default > 0 && by_default < decided && decided == 200, "{:?}", summary.flows);
        assert_eq!((number("events.accepted"), number("events.rejected")), (by_default, decided - by_default));
        assert_eq!((number("sent.decisions_in_order"), number("sent.decisions_missed")), (200, 0));
        assert_eq!(number("sent.decisions_accepted"), by_default, "what leaves says so");
        assert!(number("farm.late") > 0, "{:?}", summary.flows);
        assert!(
            number("farm.in_budget") < decided - by_default,
            "those by default took three budgets: {:?}",
            summary.flows
        );
    }
}

#[test]
fn incomplete_events_are_dropped_where_that_is_wanted() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-drop");
        let emulate = "incomplete = \"drop\"\ntimeout = \"200ms\"\nemulate = { rate = \"20kHz\", loss = 0.02 }";
        let summary =
            Run { architecture, sources: &at(21_400), flow: emulate, events: 1000, ..Run::default() }.whole(&output);
        let held = Held::in_directories(&[&summary.directory]);
        let sources = sources(SizeDistribution::Fixed(32), 0.02);
        let is_whole = |set: &u64| (0..SOURCES).all(|source| !sources.is_lost(*set, source));
        let whole: BTreeSet<u64> = (0..1000).filter(|event| is_whole(&(event / u64::from(PACKING)))).collect();
        let keys: BTreeSet<u64> = held.events.keys().map(|key| key.number()).collect();
        assert_eq!(keys, whole);
    }
}

#[test]
fn two_gateways_share_the_sets_however_the_trigger_names_them() {
    for architecture in ARCHITECTURES {
        for (port, naming) in [(21_500, "round_robin"), (21_600, "request")] {
            let output = TemporaryDirectory::new("push-two");
            let gateways = format!(
                "[trigger]\nnaming = \"{naming}\"\n[[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n\
                 [[gateway]]\nname = \"gw1\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}"
            );
            let summary = Run {
                architecture,
                sources: &at(port),
                flow: "emulate = { rate = \"4kHz\" }",
                rest: &gateways,
                ..Run::default()
            }
            .whole(&output);
            assert!(summary.is_lossless(), "{naming}: {:?}", summary.flows);
            assert_eq!(summary.events.written, 2000, "{naming}");
            for gateway in ["gw0", "gw1"] {
                // The number depends on when its thread begins.
                assert!(summary.gateways[gateway].written.events > 0, "{naming}: {gateway} wrote none");
            }
        }
    }
}

/// Two gateways see the same lumisections, each with the events of both.
#[test]
fn every_event_is_in_one_lumisection_and_each_is_closed_when_its_events_are_decided() {
    let gateways = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }\nqueues = 2\n\
                    [[gateway]]\nname = \"gw1\"\nlisten = { hlt = \"127.0.0.1:0\" }\n\
                    [[stream]]\nname = \"half\"\nprescale = 2";
    let flow = "timeout = \"200ms\"\nincomplete = \"drop\"\nemulate = { rate = \"4kHz\", loss = 0.01 }";
    let nodes = "accept = 0.5, decision_time = \"uniform(0s,2ms)\"";
    for (port, architecture) in [22_000, 22_100].into_iter().zip(ARCHITECTURES) {
        // 298 events are 60 sets.
        for (length, is_time) in [("{ events = 298 }", false), ("{ time = \"100ms\" }", true)] {
            let (output, segments) = (TemporaryDirectory::new("push-lumi"), format!("lumisection = {length}"));
            let run = Run {
                architecture,
                sources: &at(port),
                flow,
                nodes,
                rest: gateways,
                segments: &segments,
                ..Run::default()
            };
            let summary = run.whole(&output);
            let (all, events) = (&summary.lumisections, &summary.events);
            assert!((1..).zip(all).all(|(number, one)| one.number == number), "{all:?}");
            assert!(all.iter().all(|one| one.flow.as_deref() == Some("hlt")));
            let firsts: Vec<u64> = all.iter().map(|one| one.first.parse().expect("an event")).collect();
            assert!(firsts[0] == 0 && firsts.is_sorted() && firsts.iter().all(|first| first % u64::from(PACKING) == 0));
            let sum = |count: fn(&LumisectionSummary) -> u64| -> u64 { all.iter().map(count).sum() };
            assert_eq!([sum(|one| one.assigned), sum(|one| one.built)], [events.assigned, events.built]);
            assert_eq!([sum(|one| one.accepted), sum(|one| one.rejected)], [events.accepted, events.rejected]);
            assert_eq!(sum(|one| one.incomplete_dropped), events.incomplete_dropped);
            let left_out: u64 = summary.gateways.values().map(|gateway| gateway.written.left_out).sum();
            assert!(left_out > 0 && events.incomplete_dropped > 0 && sum(|one| one.unselected) == left_out);
            if is_time {
                assert!(all.len() >= 5, "500 ms of events: {all:?}");
                // No set is late enough for its lumisection to be closed: each has its own range.
                let ranges = firsts.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(ranges.eq(all[..all.len() - 1].iter().map(|one| one.assigned)), "{all:?}");
            } else {
                assert_eq!(firsts, [0, 300, 600, 900, 1200, 1500, 1800]);
                assert!(all.iter().map(|one| one.assigned).eq([300, 300, 300, 300, 300, 300, 200]), "{all:?}");
            }
        }
    }
}

#[test]
fn decisions_of_the_first_level_leave_in_the_order_of_events() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-stream");
        let summary = Run {
            architecture,
            sources: &at(21_700),
            flow: "output = \"stream\"\nemulate = { rate = \"20kHz\" }",
            ..Run::default()
        }
        .whole(&output);
        assert!(summary.is_lossless(), "{:?}", summary.flows);
        assert_eq!(number(&summary, "sent.decisions_in_order"), 2000);
        assert_eq!((number(&summary, "sent.decisions_missed"), summary.events.written), (0, 0));
    }
}

#[test]
fn a_slow_farm_fills_the_memory_the_trigger_is_stopped_in_time_and_nothing_is_lost() {
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-memory");
        // 64 at once for 10 ms each: a sixth of the events sent, even if decisions are started late.
        let nodes = "accept = 1.0, decision_time = \"10ms\"";
        let emulate = "sets = 4096\nassembling = 1024\ntimeout = \"10s\"\nemulate = { fragment_size = \"200\", rate = \"40kHz\" }";
        let rest = "nodes = 1\n[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }\nmemory = \"1MiB\"\n\
                    throttle = { rate = \"75MB/s\", latency = \"2ms\" }";
        let summary =
            Run { architecture, sources: &at(21_800), flow: emulate, nodes, rest, events: 10_000, ..Run::default() }
                .whole(&output);
        assert!(summary.is_lossless(), "{:?}", summary.flows);
        assert_eq!(summary.events.written, 10_000);
        let causes = &summary.gateways["gw0"].throttle.by_cause;
        assert!(causes["memory"].stops > 0, "{causes:?}");
        assert_eq!(causes["hlt"].stops, 0, "there are sets enough: {causes:?}");
    }
}

/// The kernel's buffers outlast a gateway without a processor, if they are large enough: smaller ones cause a warning.
#[test]
fn a_socket_buffer_too_small_for_a_pause_of_its_gateway_is_warned_of() {
    for (port, buffer, is_short) in [(22_700, "64KiB", true), (22_800, "256KiB", false)] {
        let output = TemporaryDirectory::new("push-short");
        // 10 ms, and 1 ms until the trigger acts, of a set in 5 ms, and one set more: 36 packets of 2.3 KiB, twice as
        // much in all.
        let rest = format!(
            "[trigger]\nsilence = \"10ms\"\n[[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n\
             receive_buffer = \"{buffer}\""
        );
        let flow = "emulate = { rate = \"1kHz\" }";
        let handle = Run { sources: &at(port), flow, rest: &rest, events: 200, ..Run::default() }.start(&output);
        let warnings = handle.warnings().to_vec();
        let summary = ended(handle);
        let room = summary.gateways["gw0"].waiting.room_bytes;
        let told = warnings.iter().any(|one| one.contains("gw0") && one.contains("`receive_buffer`"));
        assert_eq!((told, warnings.len()), (is_short, usize::from(is_short)), "{room} bytes of room: {warnings:?}");
        assert_eq!(room, if is_short { 64 << 10 } else { 256 << 10 });
    }
}

#[test]
fn packets_straight_over_ip_are_built_as_others_are() {
    let test = "push::packets_straight_over_ip_are_built_as_others_are";
    if rustix::process::geteuid().as_raw() != 0 {
        return ropewalk_tidy::skipped(test, "needs root to open raw sockets");
    }
    for architecture in ARCHITECTURES {
        let output = TemporaryDirectory::new("push-raw");
        let text = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.4.0.1:0\" }";
        let summary = Run {
            architecture,
            sources: "127.3.0.1",
            flow: "protocol = 253\nemulate = { rate = \"20kHz\" }",
            rest: text,
            events: 1000,
            ..Run::default()
        }
        .whole(&output);
        assert!(summary.is_lossless(), "{:?}", summary.flows);
        assert_eq!(
            (summary.events.written, number(&summary, "packets.received")),
            (1000, 1000 / 5 * u64::from(SOURCES))
        );
    }
}

#[test]
fn nodes_may_be_reached_over_tcp_and_straight_over_ip() {
    for architecture in ARCHITECTURES {
        let test = "push::nodes_may_be_reached_over_tcp_and_straight_over_ip";
        for (port, transport, farm) in [(21_900, "tcp", ""), (22_000, "raw_ip", "address = \"127.6.0.1\"\n")] {
            if transport == "raw_ip" && rustix::process::geteuid().as_raw() != 0 {
                return ropewalk_tidy::skipped(test, "needs root to open raw sockets");
            }
            for gather in ["iovec", "short_copy"] {
                let output = TemporaryDirectory::new("push-transport");
                let rest = format!(
                    "transport = \"{transport}\"\nlargest_push = \"9000\"\n{farm}[[gateway]]\nname = \"gw0\"\n\
                     listen = {{ hlt = \"127.0.0.1:0\" }}\ncontrol = \"127.6.1.1:0\"\ngather = \"{gather}\""
                );
                let summary = Run { architecture, sources: &at(port), rest: &rest, ..Run::default() }.whole(&output);
                assert!(summary.is_lossless(), "{transport}, {gather}: {:?}", summary.flows);
                assert_eq!(
                    (summary.events.written, number(&summary, "farm.pushed_again")),
                    (2000, 0),
                    "{transport}, {gather}"
                );
            }
        }
    }
}

#[test]
fn a_node_that_dies_and_comes_back_costs_no_event_whatever_it_is_reached_over() {
    for architecture in ARCHITECTURES {
        for (port, transport) in [(22_100, "udp"), (22_200, "tcp")] {
            let output = TemporaryDirectory::new("push-death");
            let outage = "{ node = 1, from = \"200ms\", lasts = \"500ms\" }";
            let rest = format!("transport = \"{transport}\"\nsilence = \"100ms\"\n");
            let flow = "emulate = { rate = \"4kHz\" }";
            let emulate = format!("accept = 1.0, outages = [{outage}], decision_time = \"uniform(0s,2ms)\"");
            let summary = Run {
                architecture,
                sources: &at(port),
                flow,
                nodes: &emulate,
                rest: &rest,
                events: 6000,
                ..Run::default()
            }
            .whole(&output);
            assert!(summary.is_lossless(), "{transport}: {:?}", summary.flows);
            assert_eq!((summary.events.written, number(&summary, "farm.decided")), (6000, 6000), "{transport}");
            assert!(
                number(&summary, "farm.taken_back") > 0,
                "{transport}: it had events when it died: {:?}",
                summary.flows
            );
            assert_eq!(summary.farm.expect("farm nodes").deaths, 1);
        }
    }
}

#[test]
fn readers_who_connect_get_every_decision_from_there_on_in_the_order_of_events() {
    ARCHITECTURES.into_iter().for_each(expect_readers_to_get_every_decision);
}

fn expect_readers_to_get_every_decision(architecture: &str) {
    let output = TemporaryDirectory::new("push-readers");
    let flow = "output = \"stream\"\nemulate = { rate = \"2kHz\" }";
    let rest = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }\ndecisions = { hlt = \"127.0.0.1:0\" }";
    let nodes = "accept = 0.5, decision_time = \"uniform(0s,2ms)\"";
    let handle = Run { architecture, sources: &at(22_300), flow, nodes, rest, ..Run::default() }.start(&output);
    let named = handle.addresses().iter().find(|(name, _)| name.contains("decisions of hlt"));
    let address = named.expect("it says where").1.clone();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        TcpStream::connect(address).expect("it listens").read_to_end(&mut bytes).expect("to its end");
        bytes
    });
    let summary = ended(handle);
    let bytes = reader.join().expect("it reads");
    let (mut rest, mut next, mut accepted) = (&bytes[..], None, 0);
    while !rest.is_empty() {
        let (kind, body, behind) = Frame::split(rest).expect("whole messages");
        let Ok(Message::Stream(stream)) = Message::decode(kind, body) else { panic!("only decisions come") };
        assert_eq!(*next.get_or_insert(stream.before), stream.before, "none is left out");
        for (number, entry) in (stream.before..).zip(stream.entries.iter()) {
            assert_eq!(entry.key.number(), number, "in the order of events");
            accepted += u64::from(entry.accept);
        }
        next = Some(stream.before + stream.entries.len() as u64);
        rest = behind;
    }
    assert_eq!(next, Some(2000), "the last one comes");
    assert!(accepted > 0 && accepted <= number(&summary, "events.accepted"), "{accepted}: {:?}", summary.flows);
    assert_eq!(summary.gateways["gw0"].readers_cut_off, 0);
}

#[test]
fn hardware_gets_the_throttle_by_datagram_and_by_command() {
    ARCHITECTURES.into_iter().for_each(expect_hardware_to_be_told);
}

fn expect_hardware_to_be_told(architecture: &str) {
    let output = TemporaryDirectory::new("push-hardware");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (address, file) = (socket.local_addr().expect("it is bound"), output.path().join("states"));
    let flow = "sets = 40\nassembling = 32\ntimeout = \"10s\"\nemulate = { rate = \"20kHz\" }";
    let rest = format!(
        "[[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n\
         throttle.tell = {{ udp = \"{address}\", command = [\"/bin/sh\", \"-c\", \"echo $0 $1 >> {}\", \
         \"{{gateway}}\", \"{{state}}\"] }}",
        file.display()
    );
    let nodes = "accept = 1.0, decision_time = \"20ms\"";
    let summary = Run { architecture, sources: &at(22_400), flow, nodes, rest: &rest, ..Run::default() }.whole(&output);
    assert!(summary.is_lossless(), "{:?}", summary.flows);
    socket.set_nonblocking(true).expect("it can be");
    let (mut said, mut room) = (Vec::new(), [0; 64]);
    while let Ok(length) = socket.recv(&mut room) {
        said.push(String::from_utf8_lossy(&room[..length]).into_owned());
    }
    let has = |state: &str| said.iter().any(|line| line.starts_with(&format!("gw0 {state} ")));
    assert!(has("ready") && has("busy"), "a slow farm stops the trigger: {said:?}");
    assert!(
        said.last().is_some_and(|last| last.starts_with("gw0 error ")),
        "a gateway that is gone is an error: {said:?}"
    );
    let called = std::fs::read_to_string(&file).expect("it was called");
    assert!(called.lines().any(|line| line == "gw0 ready"), "{called}");
    assert_eq!(called.lines().last(), Some("gw0 error"));
    let told = summary.gateways["gw0"].throttle.told.as_ref().expect("there is some");
    assert_eq!((told.times, told.failed), ((said.len() + called.lines().count()) as u64, 0));
}

#[test]
fn a_command_that_cannot_be_called_is_counted_and_nothing_else_suffers() {
    let output = TemporaryDirectory::new("push-no-command");
    let rest = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }\n\
                throttle.tell = { command = [\"/nowhere/tts\", \"{state}\"] }";
    let summary = Run { sources: &at(22_500), rest, events: 500, ..Run::default() }.whole(&output);
    assert!(summary.is_lossless(), "{:?}", summary.flows);
    let told = summary.gateways["gw0"].throttle.told.as_ref().expect("there is some");
    assert!(told.failed > 0, "{told:?}");
    assert!(told.failure.as_ref().is_some_and(|failure| failure.starts_with("/nowhere/tts: ")), "{told:?}");
}

/// A command that copies `$1` to `$2`, and prints the checksum that its writer left beside it.
const COPY: &str = "cp \"$1\" \"$2\" && cat \"$1.crc32c\"";

#[test]
fn gateways_compress_spread_and_transfer_run_files_as_builder_units_do() {
    for (port, architecture) in [25_000, 25_100].into_iter().zip(ARCHITECTURES) {
        let [output, other, archive] = ["push-storage", "push-other", "push-archive"].map(TemporaryDirectory::new);
        let rest = format!(
            "[storage]\ncompress = \"zstd:1\"\ncompress_threads = 2\nchecksums = true\nmore_outputs = [{:?}]\n\
             [storage.transfer]\ncommand = [\"sh\", \"-c\", '{COPY}', \"transfer\", \"{{file}}\", {:?}]",
            other.path(),
            archive.path()
        );
        let run =
            Run { architecture, sources: &at(port), rest: &rest, segments: "segment_events = 100", ..Run::default() };
        let summary = run.whole(&output);
        assert!(summary.is_lossless() && summary.events.written == 2000, "{summary:#?}");
        let transfer = summary.transfer.as_ref().expect("a transfer command is configured");
        assert!(transfer.transferred >= 20 && transfer.failures + transfer.left == 0, "{transfer:?}");
        let written = [output.path(), other.path()].map(|place| Held::in_directories(&[place.join("run000001")]));
        assert!(written.iter().all(|held| !held.events.is_empty()), "one of the disks has nothing");
        let held = written.iter().map(|held| held.events.len()).sum::<usize>();
        assert_eq!((held, Held::in_directories(&[archive.path()]).events.len()), (2000, 2000));
    }
}

#[test]
fn a_gateway_with_too_little_free_space_waits_and_writes_what_is_built_at_the_end() {
    for (port, architecture) in [25_200, 25_300].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("push-short");
        let rest = "[storage]\nstart_free = \"0\"\nleast_free = \"1000000GiB\"";
        let mut handle = Run { architecture, sources: &at(port), rest, ..Run::default() }.start(&output);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let snapshot = handle.gateways();
            let written = snapshot.gateways[0].1.storage.map(|storage| storage.events);
            assert_eq!(written.unwrap_or(0), 0, "{architecture}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!handle.is_ended(), "{architecture}");
        let stopped = Instant::now();
        handle.stop();
        let summary = ended(handle);
        // Packets in the kernel need the room of sets that wait for the disk: it must not wait until draining is given
        // up.
        assert!(stopped.elapsed() < DRAIN, "{architecture}: draining timed out");
        assert!(summary.is_lossless() && summary.events.written > 0, "{architecture}: {summary:#?}");
        assert_eq!(summary.events.written, number(&summary, "events.accepted"), "{architecture}");
    }
}

#[test]
fn a_gateway_whose_disk_refuses_its_files_ends_its_run_and_names_what_is_not_written() {
    for (port, architecture) in [25_400, 25_500].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("push-refused");
        // A closed file cannot be moved into a path that is not a directory.
        let obstacle = output.path().join("obstacle");
        std::fs::write(&obstacle, "").expect("a file can be written");
        let rest = format!("[storage]\nhand_over = {:?}", obstacle.join("there"));
        let run =
            Run { architecture, sources: &at(port), rest: &rest, segments: "segment_events = 100", ..Run::default() };
        let mut handle = run.start(&output);
        let begun = Instant::now();
        let refusals = |handle: &RunHandle| handle.gateways().gateways[0].1.storage.map(|storage| storage.refusals);
        // The run waits for its disk until it is stopped.
        while refusals(&handle).unwrap_or(0) == 0 || begun.elapsed() < Duration::from_secs(1) {
            assert!(begun.elapsed() < Duration::from_secs(60) && !handle.is_ended(), "{:?}", handle.gateways());
            std::thread::sleep(Duration::from_millis(10));
        }
        handle.stop();
        let summary = ended(handle);
        assert!(!summary.is_lossless(), "{architecture}: {:?}", summary.status);
        assert!(summary.events.written < number(&summary, "events.accepted"), "{architecture}: {summary:#?}");
    }
}

#[test]
fn deleted_closed_files_of_a_gateway_are_counted_by_their_events() {
    for (port, architecture) in [25_600, 25_700].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("push-gone");
        let run = Run { architecture, sources: &at(port), segments: "segment_events = 100", ..Run::default() };
        let mut handle = Run { flow: "emulate = { rate = \"2kHz\" }", ..run }.start(&output);
        let directory = output.path().join("run000001");
        let closed = || {
            let names =
                std::fs::read_dir(&directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
            names.into_iter().find(|path| path.extension().is_some_and(|end| end == "rwk"))
        };
        let begun = Instant::now();
        let file = loop {
            assert!(begun.elapsed() < Duration::from_secs(30) && !handle.is_ended(), "no file is closed");
            if let Some(file) = closed() {
                break file;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        std::fs::remove_file(file).expect("it is ours");
        let summary = ended(handle);
        let held = Held::in_directories(&[&directory]).events.len() as u64;
        assert_eq!((summary.disk.events_gone, held, summary.events.written), (100, 1900, 2000), "{summary:#?}");
        assert!(!summary.is_lossless(), "{architecture}: {:?}", summary.status);
    }
}

#[test]
fn gateways_divide_accepted_events_into_streams() {
    for (port, architecture) in [25_800, 25_900].into_iter().zip(ARCHITECTURES) {
        let [output, other] = ["push-streams", "push-streams-other"].map(TemporaryDirectory::new);
        // Emulated nodes set bit 0 of the word if they accept.
        let rest = format!(
            "[[stream]]\nname = \"express\"\nprescale = 10\noutputs = [{:?}]\ncompress = \"lz4\"\n\
             [[stream]]\nname = \"zero\"\ntriggers = [0]\nprescale = 3\n[[stream]]\nname = \"muon\"\ntriggers = [7]",
            other.path()
        );
        let summary = Run { architecture, sources: &at(port), rest: &rest, ..Run::default() }.whole(&output);
        assert!(summary.is_lossless(), "{:?}", summary.status);
        let account = |name: &str| {
            let stream = summary.streams[name];
            (stream.selected, stream.prescaled_away, stream.written, stream.failed + stream.in_flight)
        };
        assert_eq!(account("express"), (2000, 1800, 200, 0));
        assert_eq!(account("zero"), (2000, 1333, 667, 0));
        assert_eq!(account("muon"), (0, 0, 0, 0));
        let held = |place: &TemporaryDirectory| Held::in_directories(&[place.path().join("run000001")]).events;
        let (zero, express) = (held(&output), held(&other));
        assert_eq!((zero.len(), express.len()), (667, 200));
        let written = zero.keys().chain(express.keys()).collect::<BTreeSet<_>>().len() as u64;
        let gateway = &summary.gateways["gw0"].written;
        assert_eq!((summary.events.written, gateway.events, gateway.left_out), (written, written, 2000 - written));
    }
}

#[test]
fn nodes_decide_by_the_triggers_of_a_filter() {
    for (port, architecture) in [26_100, 26_200].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("push-filter");
        // A bank's header has the number of the emulated source in its flow.
        let rest = "[filter]\ntriggers = [{ every = 10 }, { every = 25 }, { present = 9 }]\n\
                    [[stream]]\nname = \"ten\"\ntriggers = [0]\n[[stream]]\nname = \"twentyfive\"\ntriggers = [1]\n\
                    [[stream]]\nname = \"none\"\ntriggers = [2]";
        let summary = Run { architecture, sources: &at(port), rest, ..Run::default() }.whole(&output);
        assert!(summary.is_lossless(), "{:?}", summary.status);
        let events = &summary.flows["hlt"].events;
        // Every tenth or twenty-fifth event of 0 to 1999.
        let accepted: Vec<u64> = (0..2000).filter(|event| event % 10 == 0 || event % 25 == 0).collect();
        assert_eq!((events.built, events.accepted), (2000, accepted.len() as u64));
        assert_eq!(["ten", "twentyfive", "none"].map(|name| summary.streams[name].written), [200, 80, 0]);
        let held = Held::in_directories(&[output.path().join("run000001")]).events;
        assert_eq!(held.keys().map(|key| key.number()).collect::<Vec<_>>(), accepted);
    }
}

#[test]
fn a_filter_of_gateways_has_triggers_alone_and_no_emulated_nodes_beside() {
    let with = |text: &str| {
        let text = format!(
            "version = 1\n[[flow]]\nname = \"hlt\"\npacking = 5\nsources = {{ count = 2, first = 0, address = \"127.0.0.1:23000\" }}\n\
             [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n{text}\n"
        );
        parse("filter", &text, &|_| None).map(|_| ()).map_err(|error| (error.key.clone(), error.to_string()))
    };
    let many = vec!["\"all\""; 33].join(", ");
    assert_eq!(with("[filter]\ntriggers = [{ present = 40000 }]"), Ok(()));
    for (text, key) in [
        ("[filter]", "filter"),
        (&format!("[filter]\ntriggers = [{many}]"), "filter.triggers"),
        ("[filter]\ntriggers = [\"all\"]\nunits = 2", "filter.units"),
        ("[filter]\ntriggers = [\"all\"]\n[farm]\nemulate = {}", "farm.emulate"),
        ("[filter]\ntriggers = [{ present = 70000 }]", "filter.triggers[0]"),
        ("[filter]\ntriggers = [\"all\"]\n[[stream]]\nname = \"a\"\ntriggers = [1]", "stream[0].triggers"),
    ] {
        assert_eq!(with(text).expect_err(text).0, key, "{text}");
    }
}

#[test]
fn what_gateways_cannot_do_with_streams_is_refused_with_the_key() {
    let with = |stream: &str| {
        let text = format!(
            "version = 1\n[[flow]]\nname = \"hlt\"\npacking = 5\nsources = {{ count = 2, first = 0, address = \"127.0.0.1:23000\" }}\n\
             [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n[[stream]]\nname = \"one\"\n{stream}\n"
        );
        parse("streams", &text, &|_| None).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with("triggers = [31]"), Ok(()));
    for (stream, key) in [("ordered = true", "ordered"), ("triggers = [32]", "triggers"), ("prescale = 0", "prescale")]
    {
        let refused = with(stream).expect_err(stream);
        assert!(refused.contains(key), "{stream}: {refused}");
    }
}

#[test]
fn the_prescale_of_a_gateway_s_stream_may_be_changed_while_the_run_goes_on() {
    let output = TemporaryDirectory::new("push-prescale");
    let rest = "[[stream]]\nname = \"some\"\nprescale = 2";
    let flow = "emulate = { rate = \"2kHz\" }";
    let handle = Run { sources: &at(26_000), flow, rest, ..Run::default() }.start(&output);
    let begun = Instant::now();
    while handle.summary().streams["some"].selected < 100 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", handle.gateways());
        std::thread::sleep(Duration::from_millis(1));
    }
    handle.set(Setting { parameter: Parameter::Prescale, of: 0, value: 1 << 30 });
    let stream = ended(handle).streams["some"];
    assert_eq!((stream.selected, stream.written + stream.prescaled_away), (2000, 2000));
    assert!((50..800).contains(&stream.written), "{stream:?}");
}
