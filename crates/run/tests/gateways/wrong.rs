//! All possible faults of a packet, in a whole run over loopback, with the test as the sources. Each fault has its name
//! in the account, and the files contain the missing sources of an event with the cause.

use crate::support::{Held, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_run::gateway::{FlowSummary, SystemPart, WaitingSummary};
use ropewalk_run::launch_part;
use ropewalk_run::{RunHandle, RunSummary};
use ropewalk_terms::Cause;
use ropewalk_wire::gateway::{Message, Throttle, ThrottleState};
use ropewalk_wire::mep::encode_mep;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Events in a packet, their partition, and the run's first one.
const PACKING: usize = 5;
const PARTITION: u32 = 7;
const FIRST: u32 = 100;
/// The port of the first source, and its id; the fourth one is masked.
const PORT: u16 = 24_000;
const ID: u32 = 700;
const SOURCES: u16 = 4;
const MASKED: usize = 3;
const BYTES: usize = 16;

const GATEWAY: &str = "[[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"127.0.0.1:0\" }";

/// Longer than any test takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn launch(text: &str, part: &SystemPart, events: Option<u64>) -> RunHandle {
    let configuration = parse("wrong", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    launch_part(&configuration, part, events).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a gateway and its nodes, without sources, whose ports begin with this one.
fn gateway(output: &TemporaryDirectory, port: u16, keys: &str, nodes: &str) -> RunHandle {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[flow]]\nname = \"hlt\"\npacking = {PACKING}\npartition = {PARTITION}\n\
         first_event = {FIRST}\ntimeout = \"2s\"\ndecision_timeout = \"20s\"\n\
         sources = {{ count = {SOURCES}, first = {ID}, address = \"127.0.0.1:{port}\", masked = [703] }}\n\
         {keys}\n[farm]\nemulate = {{ accept = 1.0{nodes} }}\n",
        output.path().display().to_string()
    );
    launch(&text, &SystemPart::Whole, None)
}

/// Waits until the account fulfils a condition.
fn wait_until(handle: &RunHandle, holds: impl Fn(&FlowSummary) -> bool) {
    let begin = Instant::now();
    while !holds(&handle.summary().flows["hlt"]) {
        assert!(begin.elapsed() < PATIENCE, "it never holds: {:?}", handle.summary().flows);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(mut handle: RunHandle) -> RunSummary {
    let begin = Instant::now();
    handle.stop();
    while !handle.is_ended() {
        assert!(begin.elapsed() < PATIENCE, "it does not end: {:?}", handle.gateways());
        std::thread::sleep(Duration::from_millis(2));
    }
    handle.finish(Duration::ZERO)
}

/// Returns a packet of a set.
fn packet(first: u32, partition: u32, packing: usize) -> Vec<u8> {
    let (mut bytes, fragment) = (Vec::new(), [0x5A; BYTES]);
    encode_mep(first, partition, (0..packing).map(|_| &fragment[..]), &mut bytes).expect("it is short");
    bytes
}

fn good(first: u32) -> Vec<u8> {
    packet(first, PARTITION, PACKING)
}

/// Returns the packet with one byte changed.
fn with(mut packet: Vec<u8>, place: usize, value: u8) -> Vec<u8> {
    packet[place] = value;
    packet
}

/// Sockets of the sources, then one of an unknown sender, and their target.
struct Sources {
    sockets: Vec<UdpSocket>,
    to: String,
    sent: u64,
}

const STRANGER: usize = SOURCES as usize;

impl Sources {
    fn new(handle: &RunHandle, port: u16) -> Self {
        let to = handle.addresses().iter().find(|(name, _)| name == "gw0 hlt").expect("it listens").1.clone();
        let own =
            (port..port + SOURCES).map(|port| UdpSocket::bind(("127.0.0.1", port)).expect("a port of the test's own"));
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
        Self { sockets: own.chain([stranger]).collect(), to, sent: 0 }
    }

    fn send(&mut self, source: usize, packet: &[u8]) {
        assert_eq!(self.sockets[source].send_to(packet, &self.to).expect("a way"), packet.len());
        self.sent += 1;
    }

    fn send_all(&mut self, sources: &[usize], first: u32) {
        sources.iter().for_each(|&source| self.send(source, &good(first)));
    }
}

/// The first event of each incomplete set, with the missing source and the cause.
const LACKING: [(u32, u32, Cause); 4] = [
    (105, 700, Cause::LengthMismatch),
    (110, 701, Cause::WrongPacking),
    (115, 702, Cause::TimedOut),
    (120, 700, Cause::Malformed),
];

/// Sends every fault once, except for duplicates.
fn send_what_is_wrong(sources: &mut Sources, handle: &RunHandle) {
    sources.send_all(&[0, 1, 2, 0], 100);
    sources.send_all(&[1, 2], 105);
    sources.send(0, &good(105)[..4]);
    sources.send(0, &good(105)[..50]);
    sources.send_all(&[0, 2], 110);
    sources.send(1, &packet(110, PARTITION, PACKING + 1));
    sources.send_all(&[0, 1], 115);
    sources.send(2, &packet(115, PARTITION + 1, PACKING));
    sources.send(MASKED, &good(100));
    sources.send(STRANGER, &good(120));
    sources.send(0, &good(121));
    // The number of the first fragment's event follows the packet's header.
    sources.send(0, &with(good(120), 12, 99));
    sources.send_all(&[1, 2], 120);
    sources.send(0, &good(FIRST - 5));
    // Longer than any packet may be: the receiver rejects it before the gateway gets it.
    sources.send(0, &[0; 2000]);
    sources.sent -= 1;
    sources.send(0, &good(FIRST + 5 * (1 << 25)));
    wait_until(handle, |flow| flow.sets.incomplete == LACKING.len() as u64);
    sources.send_all(&[0, 1], 105);
    let sent = sources.sent;
    wait_until(handle, |flow| flow.packets.received == sent);
}

#[test]
fn each_thing_that_is_wrong_with_a_packet_has_its_name_in_the_account_and_in_the_files() {
    let output = TemporaryDirectory::new("push-wrong");
    let handle = gateway(&output, PORT, GATEWAY, "");
    let mut sources = Sources::new(&handle, PORT);
    send_what_is_wrong(&mut sources, &handle);
    let summary = end(handle);
    assert!(summary.is_balanced(), "{:?}", summary.ledger);
    let flow = &summary.flows["hlt"];
    let packets = &flow.packets;
    assert_eq!((packets.received, packets.in_complete_events, packets.in_incomplete_events), (sources.sent, 3, 8));
    assert_eq!((packets.duplicate, packets.late, packets.stale, packets.in_flight), (2, 1, 1, 0));
    let refused = [
        Cause::ShortPacket,
        Cause::LengthMismatch,
        Cause::WrongPacking,
        Cause::WrongPartition,
        Cause::Masked,
        Cause::UnknownSource,
        Cause::Misaligned,
        Cause::Malformed,
        Cause::ImplausibleJump,
    ];
    let once: BTreeMap<&str, u64> = refused.iter().map(|cause| (cause.name(), 1)).collect();
    assert_eq!(packets.dropped.names(), once);
    assert_eq!(flow.lost_by_cause.names(), [(Cause::Truncated.name(), 1)].into());
    let lacking: BTreeMap<&str, u64> = LACKING.iter().map(|(_, _, cause)| (cause.name(), 1)).collect();
    assert_eq!(flow.sets.missing_packets.names(), lacking);
    let missing = |id: u32| flow.sources.get(&id.to_string()).map(|source| source.missing);
    assert_eq!([missing(700), missing(701), missing(702), missing(703)], [Some(2), Some(1), Some(1), None]);
    expect_in_files(&summary);
}

/// Checks that the files contain five sets, each event with exactly the sources that sent valid data.
fn expect_in_files(summary: &RunSummary) {
    let held = Held::in_directories(&[&summary.directory]);
    assert_eq!(held.events.len(), 5 * PACKING);
    for (key, event) in &held.events {
        let set = FIRST + (key.number() as u32 - FIRST) / PACKING as u32 * PACKING as u32;
        let lacks = LACKING.iter().find(|(first, ..)| *first == set).map(|&(_, source, cause)| (source, Some(cause)));
        assert_eq!(
            event.missing.iter().map(|(source, cause)| (*source, *cause)).collect::<Vec<_>>(),
            Vec::from_iter(lacks),
            "event {key}"
        );
        assert_eq!(event.fragments.len() + event.missing.len(), 3, "event {key}");
    }
}

#[test]
fn packets_that_the_system_refuses_to_send_are_counted_as_such_and_not_as_sent() {
    // Addresses in 127.0.0.0/8 cannot reach other machines.
    let text = "version = 1\n[[flow]]\nname = \"hlt\"\npacking = 5\nsources = { count = 3, address = \"127.0.0.1:24100\" }\n\
                emulate = { rate = \"10kHz\" }\n\
                [[gateway]]\nname = \"gw0\"\nlisten = { hlt = \"192.0.2.1:9\" }\ncontrol = \"192.0.2.1:10\"\n\
                [trigger]\nlisten = { hlt = \"127.0.0.1:24110\" }\n";
    let handle = launch(text, &SystemPart::Sources(Vec::new()), Some(50));
    let (voice, begin) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), Instant::now());
    for sequence in 1.. {
        assert!(begin.elapsed() < PATIENCE, "{:?}", handle.gateways());
        let (mut bytes, state) = (Vec::new(), ThrottleState::Ready);
        Message::Throttle(Throttle { gateway: 0, sequence, state, ..Throttle::default() }).encode(&mut bytes);
        voice.send_to(&bytes, "127.0.0.1:24110").expect("a way");
        if handle.sources_ended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let summary = end(handle);
    let sent = summary.flows["hlt"].sent.expect("its sources are here");
    assert_eq!((sent.sets, sent.packets, sent.failed), (10, 0, 30), "{sent:?}");
}

/// Sources that ignore the throttle: they send more than the gateway has sets for, so that the rest waits in its
/// socket.
#[test]
fn what_waits_in_a_socket_stops_the_trigger_and_is_built_when_its_turn_comes() {
    let (output, port) = (TemporaryDirectory::new("push-waiting"), PORT + 20);
    let keys = format!("sets = 64\nassembling = 4\n{GATEWAY}\nreceive_buffer = \"1MiB\"");
    let handle = gateway(&output, port, &keys, ", decision_time = \"500ms\"");
    let (mut sources, mut sets, begin) = (Sources::new(&handle, port), 0, Instant::now());
    // Without a known rate an eighth of the queue is headroom.
    let is_nearly_full = |summary: &RunSummary| {
        let WaitingSummary { most_bytes, room_bytes } = summary.gateways["gw0"].waiting;
        // At first the gateway has not measured the size yet.
        room_bytes > 0 && most_bytes * 10 >= room_bytes * 9
    };
    while !is_nearly_full(&handle.summary()) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", handle.summary().gateways);
        for _ in 0..10 {
            sources.send_all(&[0, 1, 2], FIRST + sets * PACKING as u32);
            sets += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let sent = sources.sent;
    wait_until(&handle, |flow| flow.packets.received == sent);
    let summary = end(handle);
    assert!(summary.is_balanced() && summary.is_lossless(), "{:?}", summary.flows);
    assert_eq!(summary.events.written, u64::from(sets) * PACKING as u64);
    let gateway = &summary.gateways["gw0"];
    let queue = &gateway.throttle.by_cause["queue"];
    assert!(queue.stops >= 1 && queue.dead_s > 0.0, "{gateway:?}");
}
