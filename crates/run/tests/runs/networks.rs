//! Boards that send to a multicast group, or directly over IP, in whole runs.

use crate::support::{Run, TemporaryDirectory, wait_for};
use ropewalk_config::parse;
use ropewalk_run::launch;
use ropewalk_terms::EventKey;
use ropewalk_tools::RunIndex;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SendFlags, SocketFlags, SocketType, sendto, socket_with};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;

const EVENTS: u32 = 200;
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 9), 9471);
/// One of the protocol numbers for experiments.
const PROTOCOL: u8 = 253;

fn frame(board: u8, event: u32) -> Vec<u8> {
    let data = (0..50).map(|place| place ^ board ^ event as u8);
    event.to_be_bytes().into_iter().chain(data).collect()
}

/// Sends to the group over the loopback interface, by its address.
fn to_group() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a free port")
}

/// Sends directly over IP; `None` without the right to do so.
fn straight() -> Option<OwnedFd> {
    let protocol = RawProtocol::new(PROTOCOL.into()).map(Protocol::from_raw);
    socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, protocol).ok()
}

#[test]
fn boards_speak_to_a_group_and_straight_over_ip() {
    let Some(straight) = straight() else {
        return ropewalk_tidy::skipped("networks::boards_speak", "needs root to open raw sockets");
    };
    let output = TemporaryDirectory::new("networks");
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    let listen = [format!("udp://{GROUP}@127.0.0.1"), format!("ip://127.0.0.1/{PROTOCOL}")];
    for (id, listen) in (1..).zip(&listen) {
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nlisten = {listen:?}\nframe = \"datagram\"\n\
             event = {{ at = 0, type = \"u32be\" }}\n"
        );
    }
    let configuration = parse("networks", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS.into())));
    let running = ropewalk_flow::control::RunPhase::Running;
    wait_for("the start", || (handle.snapshot().phase == running).then_some(()));
    let group = to_group();
    for event in 1..=EVENTS {
        group.send_to(&frame(1, event), GROUP).expect("a way to the group");
        let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        sendto(&straight, &frame(2, event), SendFlags::empty(), &here).expect("a way to this host");
    }
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut events) = (index.reader(), 0);
    while let Some(event) = reader.next_event().expect("it can be read") {
        events += 1;
        let found: Vec<_> = event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
        assert_eq!(found, [frame(1, events), frame(2, events)], "event {events}");
    }
    assert_eq!(events, EVENTS);
}

/// One board has an IPv6 address, one a socket for both versions, one a name.
#[test]
fn boards_speak_ipv6_and_are_listened_for_by_name() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return ropewalk_tidy::skipped("networks::boards_speak_ipv6", "this machine has no IPv6");
    }
    let output = TemporaryDirectory::new("networks-ipv6");
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, listen) in (1..).zip(["udp://[::1]:0", "udp://[::]:0", "udp://localhost:0"]) {
        text += &format!(
            "[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nlisten = {listen:?}\nframe = \"datagram\"\n\
             event = {{ at = 0, type = \"u32be\" }}\n"
        );
    }
    let configuration = parse("networks", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    let ports: Vec<u16> = handle
        .addresses()
        .iter()
        .filter_map(|(name, address)| {
            let address: SocketAddr = address.parse().expect("a bound socket");
            name.starts_with("board").then_some(address.port())
        })
        .collect();
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS.into())));
    let running = ropewalk_flow::control::RunPhase::Running;
    wait_for("the start", || (handle.snapshot().phase == running).then_some(()));
    let [v4, v6] = ["127.0.0.1:0", "[::1]:0"].map(|own| UdpSocket::bind(own).expect("a free port"));
    for event in 1..=EVENTS {
        v6.send_to(&frame(1, event), (Ipv6Addr::LOCALHOST, ports[0])).expect("a way to this host");
        if event % 2 == 0 {
            v6.send_to(&frame(2, event), (Ipv6Addr::LOCALHOST, ports[1])).expect("a way to this host");
        } else {
            v4.send_to(&frame(2, event), (Ipv4Addr::LOCALHOST, ports[1])).expect("a way to this host");
        }
        // The name also has an IPv4 address, which is the one used.
        v4.send_to(&frame(3, event), (Ipv4Addr::LOCALHOST, ports[2])).expect("a way to this host");
    }
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.fragments.received), (EVENTS.into(), 3 * u64::from(EVENTS)));
}

#[test]
fn a_name_that_does_not_resolve_is_called_that_and_no_run_begins() {
    let text = "version = 1\n[run]\noutput = \"/nowhere\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
                [[source]]\nid = 1\nname = \"board\"\nreadout = \"ru0\"\nlisten = \"udp://no-such-host.invalid:9000\"\n\
                frame = \"datagram\"\nevent = { at = 0, type = \"u32be\" }\n";
    let configuration = parse("networks", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let error = launch(&configuration, None).expect_err("there is no such host").to_string();
    assert!(error.contains("no-such-host.invalid") && error.contains("board"), "{error}");
}
