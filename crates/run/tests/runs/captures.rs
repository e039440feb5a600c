//! Captures that replace boards: which packets belong to a source, and the handling of the others.

use crate::support::{Run, TemporaryDirectory, ess_pulses, free_port, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey, Utc};
use ropewalk_tools::RunIndex;
use ropewalk_tools::foreign::{ForeignReplayOptions, Naming, Pace, drafts, of_recordings, replay_foreign, sniff_file};
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::internet::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder};
use ropewalk_wire::run_file::FragmentFlags;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::Path;

/// The address that boards send to.
const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 9000);

fn board(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 8999)
}

fn ip(protocol: u8, from: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    ip_to(*from.ip(), *HERE.ip(), protocol, payload)
}

fn ip_to(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let addresses = PacketBuilder::ipv4(from.octets(), to.octets(), 64);
    addresses.write(&mut packet, IpNumber(protocol), payload).expect("it is short");
    packet
}

fn udp(from: SocketAddrV4, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let addresses = PacketBuilder::ipv4(from.ip().octets(), HERE.ip().octets(), 64);
    addresses.udp(from.port(), port).write(&mut packet, payload).expect("it is short");
    packet
}

/// Returns the same in two IP fragments.
fn udp_in_parts(from: SocketAddrV4, port: u16, payload: &[u8]) -> [Vec<u8>; 2] {
    let whole = udp(from, port, payload);
    let (header, datagram) = Ipv4Header::from_slice(&whole).expect("it is whole");
    let (first, second) = datagram.split_at(16);
    [(first, 0, true), (second, 2, false)].map(|(part, place, more_fragments)| {
        let fragment_offset = IpFragOffset::try_new(place).expect("13 bits");
        let mut header = Ipv4Header { dont_fragment: false, more_fragments, fragment_offset, ..header.clone() };
        header.set_payload_len(part.len()).expect("it is short");
        header.header_checksum = header.calc_header_checksum();
        [&header.to_bytes()[..], part].concat()
    })
}

fn tcp(from: SocketAddrV4, sequence: usize, payload: &[u8]) -> Vec<u8> {
    tcp_with(from, sequence, 0x10, payload)
}

/// Returns the same with these flags.
fn tcp_with(from: SocketAddrV4, sequence: usize, flags: u8, payload: &[u8]) -> Vec<u8> {
    let ports = [from.port().to_be_bytes(), HERE.port().to_be_bytes()].concat();
    let rest = [0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0];
    ip(6, from, &[&ports[..], &(sequence as u32).to_be_bytes(), &rest, payload].concat())
}

/// Returns a segment to a board.
fn tcp_to(to: SocketAddrV4, sequence: usize) -> Vec<u8> {
    let ports = [HERE.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let segment = [&ports[..], &(sequence as u32).to_be_bytes(), &[0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]].concat();
    ip_to(*HERE.ip(), *to.ip(), 6, &segment)
}

fn write_capture(path: &Path, packets: &[Vec<u8>]) {
    let mut file = Vec::new();
    encode_interface(LinkType::RAW, &mut file);
    for (packet, time) in packets.iter().zip(1..) {
        encode_packet(Utc(1_000_000 * time), packet, &mut file);
    }
    std::fs::write(path, file).expect("the directory is ours");
}

/// Returns a frame of a board: two letters, the event, and some more bytes.
fn frame(event: u32) -> Vec<u8> {
    [&b"RB"[..], &event.to_be_bytes(), &[7; 20]].concat()
}

/// Launches a run of these sources; their ids begin with 1.
fn launched(output: &TemporaryDirectory, sources: &[String]) -> RunHandle {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\nwindow = 256\n\
         [[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, keys) in (1..).zip(sources) {
        text += &format!(
            "[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\n{keys}\n"
        );
    }
    let configuration = parse("captures", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"))
}

fn taken(mut handle: RunHandle, events: u64) -> RunSummary {
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, events)));
    Run { handle }.end()
}

fn source(capture: &Path, keys: &str) -> String {
    let layout = "frame = \"datagram\"\nmatch = { at = 0, bytes = \"RB\" }\nevent = { at = 2, type = \"u32be\" }";
    format!("input = {:?}\n{layout}\n{keys}", capture.display().to_string())
}

#[test]
fn packets_of_others_are_told_apart_and_counted() {
    let output = TemporaryDirectory::new("captures");
    let (capture, mut packets) = (output.path().join("boards.pcapng"), Vec::new());
    for event in 1..=100 {
        packets.push(udp(board(1), 9000, &frame(event)));
        packets.push(udp(board(3), 9000, &frame(event)));
        match event {
            10 => packets.push(ip(1, board(9), &[3; 40])),
            20 | 30 => packets.push(udp(board(1), 9001, b"another port")),
            40 => packets.push(tcp(board(1), 1, b"a connection")),
            _ => {}
        }
        if event == 50 {
            packets.extend(udp_in_parts(board(2), 9000, &frame(event)));
        } else {
            packets.push(udp(board(2), 9000, &frame(event)));
        }
    }
    write_capture(&capture, &packets);
    let sources = [
        source(&capture, "packets = { port = 9000, from = \"10.0.0.1\" }"),
        source(&capture, "packets = { port = 9000, from = \"10.0.0.2\", to = \"10.0.0.100\" }"),
    ];
    let summary = taken(launched(&output, &sources), 100);
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.fragments.received), (100, 200));
    let warnings = summary.warnings.join("\n");
    for (name, aside) in [
        (
            "board1",
            "100 packets were the source's; not icmp: 1, ip_fragment: 1, other_address: 200, other_port: 2, other_protocol: 1",
        ),
        (
            "board2",
            "100 packets were the source's; not icmp: 1, ip_fragment: 1, other_address: 200, other_port: 2, other_protocol: 1",
        ),
    ] {
        let is_told = |line: &String| line.starts_with(&format!("{name}: ")) && line.ends_with(aside);
        assert!(summary.warnings.iter().any(is_told), "{name}: {warnings}");
    }
}

/// Boards with IPv6 addresses: one whose packets have extension headers, sometimes in fragments, and an IPv4 board
/// beside them. Incomplete packets are counted.
#[test]
fn boards_with_addresses_of_ipv6_are_told_apart() {
    let output = TemporaryDirectory::new("captures-ipv6");
    let (capture, mut packets) = (output.path().join("boards.pcapng"), Vec::new());
    let at = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last).octets();
    let sent = |last, event| {
        let mut packet = Vec::new();
        let addresses = PacketBuilder::ipv6(at(last), at(0x64), 64);
        addresses.udp(8999, 9000).write(&mut packet, &frame(event)).expect("it is short");
        packet
    };
    // Returns the packet with another header in front of its datagram.
    let behind = |packet: &[u8], kind: u8, header: [u8; 8], payload: &[u8]| {
        let length = (header.len() + payload.len()) as u16;
        [&packet[..4], &length.to_be_bytes(), &[kind, 64], &packet[8..40], &header, payload].concat()
    };
    for event in 1..=100_u32 {
        let (one, other) = (sent(1, event), sent(2, event));
        packets.push(behind(&one, 60, [17, 0, 1, 4, 0, 0, 0, 0], &one[40..]));
        if event % 10 == 0 {
            // Their offsets, with the flag for further fragments.
            let parts = other[40..].chunks(16).zip([1, 16 | 1, 32]);
            packets
                .extend(parts.map(|(part, place)| behind(&other, 44, [17, 0, 0, place, 0, 0, 0, event as u8], part)));
        } else {
            packets.push(other);
        }
        packets.push(udp(board(3), 9000, &frame(event)));
        if event == 40 {
            // A header that extends beyond the packet.
            packets.push(behind(&one, 60, [17, 200, 0, 0, 0, 0, 0, 0], &one[40..]));
        }
    }
    write_capture(&capture, &packets);
    let keys = |board: &str| {
        source(&capture, &format!("packets = {{ port = 9000 }}\ndemux = {{ at = \"ip.source\", is = \"{board}\" }}"))
    };
    let summary = taken(launched(&output, &["fd00::1", "fd00::2", "10.0.0.3"].map(keys)), 100);
    assert!(summary.events.written == 100 && summary.fragments.received == 300, "{summary:#?}");
    assert_eq!(summary.events.incomplete_emitted, 0, "{summary:#?}");
    let warnings = summary.warnings.join("\n");
    assert!(warnings.contains("malformed: 1") && warnings.contains("ip_fragment: 20"), "{warnings}");
}

/// One board of two that share a port falls silent for longer than the window allows others to run ahead. Events that
/// will never be complete must not block the other one's datagrams forever.
#[test]
fn a_board_that_falls_silent_is_given_up_though_another_one_fills_the_window() {
    let output = TemporaryDirectory::new("captures-silent");
    let (capture, mut packets) = (output.path().join("boards.pcapng"), Vec::new());
    for event in 1..=600 {
        packets.push(udp(board(1), 9000, &frame(event)));
        if event <= 10 {
            packets.push(udp(board(2), 9000, &frame(event)));
        }
    }
    write_capture(&capture, &packets);
    let shared = source(&capture, "demux = { at = \"ip.source\" }");
    let summary = taken(launched(&output, &[shared.clone(), shared]), 600);
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (600, 590), "{summary:#?}");
}

#[test]
fn a_captured_connection_is_a_stream() {
    let output = TemporaryDirectory::new("captures-stream");
    let (capture, mut packets, mut sent) = (output.path().join("boards.pcapng"), Vec::new(), 0);
    for event in 1..=50_u32 {
        let frame = [0xa000_0005, 0, event, 0, 9].map(u32::to_le_bytes).concat();
        packets.extend([tcp(board(1), 1 + sent, &frame[..7]), tcp(board(2), 1 + sent, b"another one")]);
        packets.push(tcp(board(1), 1 + sent + 7, &frame[7..]));
        sent += frame.len();
    }
    write_capture(&capture, &packets);
    let layout = "frame.length = { at = 0, type = \"u32le\", mask = 0x0fffffff, unit = 4 }\n\
                  event = { at = 8, type = \"u32le\", mask = 0xffffff }";
    let keys = format!("input = {:?}\npackets = {{ from = \"10.0.0.1\" }}\n{layout}", capture.display().to_string());
    let summary = taken(launched(&output, &[keys]), 50);
    assert!(summary.is_lossless() && summary.events.written == 50, "{summary:#?}");
    assert!(summary.warnings[0].ends_with("100 packets were the source's; not other_address: 50"), "{summary:#?}");
}

/// Events of three segments each, which arrive in any order; one event lacks the middle one.
#[test]
fn events_of_several_segments_are_fragments_of_a_source() {
    let output = TemporaryDirectory::new("captures-segments");
    let (capture, mut packets) = (output.path().join("ejfat.pcapng"), Vec::new());
    for event in 1..=50 {
        for board_id in [1, 2] {
            let payload = vec![event as u8; 20_000];
            let mut segments = ForeignFormat::Ejfat.emulate(board_id, event, &payload).expect("it is short");
            segments.rotate_left(board_id as usize);
            if (event, board_id) == (30, 2) {
                segments.remove(1);
            }
            packets.extend(segments.iter().map(|segment| udp(board(board_id as u8), 9000, segment)));
        }
    }
    write_capture(&capture, &packets);
    let keys = |last: u32| format!("input = {capture:?}\nformat = \"ejfat\"\npackets = {{ from = \"10.0.0.{last}\" }}");
    let summary = taken(launched(&output, &[keys(1), keys(2)]), 50);
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (50, 1), "{summary:#?}");
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let mut reader = index.reader();
    while let Some(event) = reader.next_event().expect("it can be read") {
        let number = event.event.head().key.number() as u8;
        let mut fragments = event.event.fragments();
        assert!(fragments.all(|fragment| fragment.payload.ends_with(&[number; 20_000])), "event {number}");
    }
}

#[test]
fn what_is_no_capture_is_said_with_the_source_s_name() {
    let output = TemporaryDirectory::new("captures-none");
    let file = output.path().join("plain.raw");
    std::fs::write(&file, frame(1)).expect("the directory is ours");
    let optional = format!("{}\nrequirement = \"optional\"", source(&file, ""));
    let (capture, packets) = (output.path().join("boards.pcapng"), [udp(board(1), 9000, &frame(1))]);
    write_capture(&capture, &packets);
    let summary = taken(launched(&output, &[source(&capture, ""), optional]), 1);
    assert_eq!((summary.events.written, summary.warnings.len()), (1, 1), "{summary:#?}");
    let warning = &summary.warnings[0];
    assert!(warning.starts_with("board2: ") && warning.contains("record a capture (pcap, pcapng)"), "{warning}");
}

/// The figures of a real capture, from its file alone: two readout masters, each pulse an event of both.
#[test]
fn a_capture_of_real_boards_is_a_source_of_each() {
    let Some(data) = ropewalk_tidy::real_data("captures::a_capture_of_real_boards", "vmm") else { return };
    let output = TemporaryDirectory::new("captures-real");
    let input = data.join("example_LET.pcapng").display().to_string();
    for format in [
        "format = \"ess\"",
        "frame = \"datagram\"\nmatch = { at = 2, bytes = \"ESS\" }\nsequence = { at = 26, type = \"u32le\" }\n\
         event = { fields = [{ at = 10, type = \"u32le\" }, { at = 14, type = \"u32le\" }], numbers = \"growing\" }",
    ] {
        let keys = |last: u32| {
            format!("input = {input:?}\npackets = {{ port = 9000, from = \"192.168.10.{last}\" }}\n{format}")
        };
        let sources = [keys(1), keys(2)];
        let summary = taken(launched(&output, &sources), 100);
        // The boards have their own numbers, which differ from those of the configuration.
        let others = summary.status.reasons.keys().filter(|reason| reason.to_string() != "wrong_source");
        assert_eq!(others.count(), 0, "{summary:#?}");
        let pulses = ess_pulses(&summary.directory);
        let ends = (pulses.len(), pulses.first().copied(), pulses.last().copied());
        assert_eq!(ends, (100, Some([67_484, 1_619_617]), Some([67_491, 7_909_251])), "{format}");
    }
}

/// Returns the content of the run files converted from a recording of these sources.
fn converted(
    output: &TemporaryDirectory,
    files: &[&Path],
    sources: &[String],
    names: &[&str],
) -> (RunSummary, Vec<String>) {
    let directory = output.path().display().to_string();
    let mut text = format!(
        "version = 1\n[run]\noutput = {directory:?}\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\n\
         [[readout]]\nname = \"ru1\"\nlisten = \"10.9.8.7:1\"\n[[builder]]\nname = \"bu0\"\n[[builder]]\nname = \"bu1\"\noutput = \"/nowhere\"\n\
         [[thread]]\nmatch = \".*\"\ncpus = \"999\"\n[[source]]\nid = 9\nname = \"plain\"\nreadout = \"ru1\"\nformat = \"generic\"\n"
    );
    for (id, keys) in (1..).zip(sources) {
        text += &format!("[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\n{keys}\n");
    }
    let configuration = parse("converted", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let recorded = of_recordings(&configuration, files, &names).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&recorded.configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), None);
    let sources = recorded.configuration.source.len() as u64;
    let count = |counter| handle.snapshot().counter(counter);
    crate::support::wait_for("the end of the recording", || {
        let ended = (count(Counter::SourceConnections), count(Counter::SourceDisconnections));
        (ended == (sources, sources)).then_some(())
    });
    handle.stop();
    (Run { handle }.end(), recorded.left_out)
}

const BOARD: &str = "frame = \"datagram\"\nmatch = { at = 0, bytes = \"RB\" }\nmax_fragment = \"1KiB\"";

/// The configuration is that of the run of the boards: two of them on one port, one on another, with a 16-bit counter,
/// and one that began a little later. The recording begins in the middle.
#[test]
fn a_capture_becomes_the_run_files_of_the_sources_that_a_configuration_describes() {
    let output = TemporaryDirectory::new("captures-converted");
    let (capture, mut packets) = (output.path().join("boards.pcapng"), Vec::new());
    for event in 100_001..=100_200_u32 {
        packets.push(udp(board(1), 9000, &frame(event)));
        packets.push(udp(board(2), 9000, &frame(event)));
        if event > 100_010 {
            packets.push(udp(board(3), 9001, &[&b"RB"[..], &(event as u16).to_be_bytes(), &[1; 9]].concat()));
        }
    }
    write_capture(&capture, &packets);
    let shared = |last: u32| {
        format!(
            "listen = \"udp://0.0.0.0:9000\"\n{BOARD}\ndemux = {{ at = \"ip.source\", is = \"10.0.0.{last}\" }}\n\
             event = {{ at = 2, type = \"u32be\", first = 0 }}"
        )
    };
    let narrow = format!("listen = \"udp://0.0.0.0:9001\"\n{BOARD}\nevent = {{ at = 2, type = \"u16be\", first = 0 }}");
    let (summary, left_out) = converted(&output, &[&capture], &[shared(1), shared(2), narrow], &[]);
    assert!(summary.is_balanced() && left_out == ["plain"], "{left_out:?} {summary:#?}");
    let events = (summary.events.written, summary.events.incomplete_emitted, summary.fragments.received);
    assert_eq!(events, (200, 10, 590), "{summary:#?}");
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut number) = (index.reader(), 100_000);
    while let Some(event) = reader.next_event().expect("it can be read") {
        number += 1;
        assert_eq!(event.event.head().key.number(), u64::from(number) - 100_000);
        let first = event.event.fragments().next().expect("board 1 has all").payload.to_vec();
        assert_eq!(first, frame(number));
    }
}

/// The bytes of one stream, and a captured connection to a port.
#[test]
fn what_a_stream_carried_becomes_run_files() {
    let output = TemporaryDirectory::new("captures-converted-stream");
    let (file, capture) = (output.path().join("stream.raw"), output.path().join("stream.pcapng"));
    let frames: Vec<u8> = (7..=56_u32).flat_map(|event| [5, event].map(u32::to_le_bytes).concat()).collect();
    std::fs::write(&file, &frames).expect("the directory is ours");
    let pieces = frames.chunks(13).zip((1..).step_by(13));
    write_capture(&capture, &pieces.map(|(piece, at)| tcp(board(1), at, piece)).collect::<Vec<_>>());
    let stream =
        |listen: &str| format!("{listen}\nframe = {{ fixed = \"8B\" }}\nevent = {{ at = 4, type = \"u32le\" }}");
    let sources = [stream("connect = \"tcp://10.0.0.1:5000\""), stream("listen = \"tcp://0.0.0.0:9000\"")];
    for (file, name) in [(&file, "board1"), (&capture, "board1"), (&capture, "board2")] {
        let (summary, _) = converted(&output, &[file], &sources, &[name]);
        assert!(summary.is_lossless() && summary.events.written == 50, "{name}: {summary:#?}");
    }
}

/// Three boards on one machine connect to one port, and get acknowledgements of their bytes. One is cut off and
/// reconnects from another port; one is no source.
#[test]
fn several_connections_of_a_capture_are_a_source_each() {
    const FIN: u8 = 1;
    let output = TemporaryDirectory::new("captures-connections");
    let (capture, mut packets) = (output.path().join("boards.pcapng"), Vec::new());
    let at = |port: u16| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
    let said = |board: u8, event: u32| [&event.to_be_bytes()[..], &[board; 12]].concat();
    for event in 1..=60_usize {
        // The opposite direction comes first, and carries no data.
        packets.push(tcp_to(at(4001), event));
        for board in [2_u8, 1, 3] {
            let (port, first) = if board == 1 && event > 30 { (5001, 31) } else { (4000 + u16::from(board), 1) };
            let bytes = said(board, event as u32);
            let flags = if board == 1 && event == 30 { FIN } else { 0x10 };
            packets.push(tcp_with(at(port), 1 + 16 * (event - first), flags, &bytes));
        }
    }
    write_capture(&capture, &packets);
    let keys = |packets: &str| {
        format!("input = {capture:?}\nframe = {{ fixed = \"16B\" }}\nevent = {{ at = 0, type = \"u32be\" }}\n{packets}")
    };
    let cases = [
        (["", ""], [2, 1], Some("10.0.0.1:4003 to 10.0.0.100:9000 (60)")),
        (["packets = { connection = 3 }", "packets = { connection = 2 }"], [3, 1], Some("10.0.0.1:4002 to")),
        (["packets = { port = 9000, from_port = 4002 }", "packets = { port = 9000, from_port = 4003 }"], [2, 3], None),
    ];
    for (packets, boards, other) in cases {
        let summary = taken(launched(&output, &packets.map(keys)), 60);
        assert!(summary.is_lossless() && summary.events.written == 60, "{packets:?}: {summary:#?}");
        let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
        let mut reader = index.reader();
        while let Some(event) = reader.next_event().expect("it can be read") {
            let number = event.event.head().key.number() as u32;
            let found: Vec<_> = event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
            assert_eq!(found, boards.map(|board| said(board, number)), "{packets:?}");
        }
        for warning in &summary.warnings {
            assert_eq!(other.is_some_and(|other| warning.contains(other)), other.is_some(), "{warning}");
            assert_eq!(warning.contains("connections that no source reads: 1:"), other.is_some(), "{warning}");
        }
        assert_eq!(summary.warnings.len(), 2, "{packets:?}: {summary:#?}");
    }
}

/// From a capture of two boards to their draft, and from the draft to a run of the played capture, without a manual
/// change.
#[test]
fn a_draft_of_several_boards_takes_what_is_played_of_them() {
    let output = TemporaryDirectory::new("captures-drafted");
    let capture = output.path().join("boards.pcapng");
    let sent = (1..=100).flat_map(|event| [1, 2].map(|last| udp(board(last), 9000, &frame(event))));
    write_capture(&capture, &sent.collect::<Vec<_>>());
    let real = ropewalk_tidy::real_data("captures::a_draft_of_several_boards", "vmm");
    for capture in real.map(|data| data.join("example_LET.pcapng")).into_iter().chain([capture]) {
        let findings = sniff_file(&capture).expect("it is a capture").findings;
        let group = findings.groups.iter().find(|group| group.peers[0].peer.port == 9000).expect("it went there");
        let draft = drafts(std::slice::from_ref(group), "", &Naming::default()).remove(0).expect("frames were found");
        let port = free_port();
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{}",
            output.path().display().to_string(),
            draft.replace("0.0.0.0:9000", &format!("127.0.0.1:{port}"))
        );
        let configuration = parse("drafted", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
        handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 100)));
        wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
        let target = format!("udp://127.0.0.1:{port}").parse().expect("a target");
        let pace = Pace::Hertz(2000.0);
        let options = ForeignReplayOptions { target, pace, port: Some(9000), format: None, by: None, times: 1 };
        assert_eq!(replay_foreign(&capture, &options).expect("it can be read").messages, 200);
        let summary = Run { handle }.end();
        assert!(summary.is_lossless() && summary.datagrams.nobodys == 0, "{draft}\n{summary:#?}");
        assert_eq!((summary.events.written, summary.fragments.received), (100, 200), "{draft}");
    }
}

/// A file for each source, in the order in which they are named, or listed.
#[test]
fn a_file_for_each_source_becomes_run_files() {
    let output = TemporaryDirectory::new("captures-converted-files");
    let said = |board: u32, event: u32| [board, event].map(u32::to_le_bytes).concat();
    let files = [1, 2].map(|board| output.path().join(format!("board{board}.raw")));
    for (file, board) in files.iter().zip(1..) {
        let frames: Vec<u8> = (7..=56).flat_map(|event| said(board, event)).collect();
        std::fs::write(file, frames).expect("the directory is ours");
    }
    let keys = "frame = { fixed = \"8B\" }\nevent = { at = 4, type = \"u32le\" }\ninput = \"-\"".to_owned();
    let sources = [keys.clone(), keys];
    let [first, second] = [&files[0], &files[1]].map(|file| file.as_path());
    for (files, names) in [([first, second], &[][..]), ([second, first], &["board2", "board1"])] {
        let (summary, _) = converted(&output, &files, &sources, names);
        assert!(summary.is_lossless() && summary.events.written == 50, "{names:?}: {summary:#?}");
        let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
        let (mut reader, mut number) = (index.reader(), 6);
        while let Some(event) = reader.next_event().expect("it can be read") {
            number += 1;
            let found: Vec<_> = event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
            assert_eq!(found, [1, 2].map(|board| said(board, number)), "{names:?}");
        }
    }
}

/// The frames of two boards in one file, and in the datagrams of one sender. Their content identifies the board.
#[test]
fn boards_of_a_named_format_share_a_file_or_a_port() {
    let output = TemporaryDirectory::new("captures-named");
    let (file, capture) = (output.path().join("run.mid"), output.path().join("boards.pcapng"));
    let frame = |format: ForeignFormat, board: u32, event: u32| {
        format.emulate(board, event, &[board as u8; 40]).expect("it is short").concat()
    };
    // Board 3 is no source.
    let midas: Vec<u8> =
        (11..=60).flat_map(|event| [3, 2, 1].map(|id| frame(ForeignFormat::Midas, id, event)).concat()).collect();
    std::fs::write(&file, midas).expect("the directory is ours");
    let dune =
        (11..=60).flat_map(|event| [3, 2, 1].map(|id| udp(board(1), 9000, &frame(ForeignFormat::Dune, id, event))));
    write_capture(&capture, &dune.collect::<Vec<_>>());
    let keys = |format: ForeignFormat, place: &Path, board: u32| {
        format!(
            "input = {:?}\nformat = {:?}\nfirst = 11\ndemux = {{ at = \"frame.source\", is = {board} }}",
            place.display().to_string(),
            format.name()
        )
    };
    for (format, place) in [(ForeignFormat::Midas, &file), (ForeignFormat::Dune, &capture)] {
        let sources = [2, 1].map(|board| keys(format, place, board));
        let summary = taken(launched(&output, &sources), 50);
        assert!(summary.is_lossless() && summary.events.written == 50, "{}: {summary:#?}", format.name());
        let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
        let (mut reader, mut number) = (index.reader(), 10);
        while let Some(event) = reader.next_event().expect("it can be read") {
            number += 1;
            let found: Vec<_> = event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
            assert_eq!(found, [2, 1].map(|board| frame(format, board, number)), "{}", format.name());
            // A frame of a board other than the source's would be flagged.
            assert!(
                event.event.fragments().all(|fragment| !fragment.entry.flags.contains(FragmentFlags::WRONG_SOURCE))
            );
        }
    }
}

/// Frames of 12 bytes: the event, the board in some bits of a word, and the numbers that they were made of.
fn numbered(board: u16, event: u32) -> Vec<u8> {
    let board_bits = (board << 3 | 0x8001).to_be_bytes();
    [&event.to_le_bytes()[..], &board_bits, &[board as u8; 6]].concat()
}

/// Frames of a layout in one plain file, and in one captured connection: a number in them identifies the board.
#[test]
fn boards_of_a_layout_share_a_file_and_each_source_has_its_own_frames() {
    let output = TemporaryDirectory::new("captures-layout");
    let (file, capture) = (output.path().join("boards.raw"), output.path().join("connection.pcapng"));
    // Board 9 is no source.
    let frames: Vec<u8> = (1..=50).flat_map(|event| [9, 6, 5].map(|id| numbered(id, event)).concat()).collect();
    std::fs::write(&file, &frames).expect("the directory is ours");
    let segments: Vec<_> =
        frames.chunks(100).enumerate().map(|(index, part)| tcp(board(1), 100 * index, part)).collect();
    write_capture(&capture, &segments);
    let keys = |place: &Path, is: &str| {
        format!(
            "input = {:?}\nframe = {{ fixed = \"12B\" }}\nevent = {{ at = 0, type = \"u32le\" }}\n\
             demux = {{ at = 4, type = \"u16be\", mask = 0x7ff8{is} }}",
            place.display().to_string()
        )
    };
    let named = [", is = 5", ", is = [6, 7]"];
    for (place, is, boards) in [(&file, named, [5, 6]), (&capture, named, [5, 6]), (&file, [""; 2], [9, 6])] {
        let sources = is.map(|is| keys(place, is));
        let summary = taken(launched(&output, &sources), 50);
        assert!(summary.is_lossless() && summary.events.written == 50, "{is:?}: {summary:#?}");
        let stranger = if is == named { "board 9: 50" } else { "board 5: 50" };
        let told = summary.warnings.iter().filter(|warning| warning.contains(stranger)).count();
        assert_eq!(told, 1, "the frames without a source are reported once: {:?}", summary.warnings);
        let (converted, _) = converted(&output, &[place.as_path()], &sources, &[]);
        assert!(converted.is_lossless() && converted.events.written == 50, "{is:?}: {converted:#?}");
        for directory in [&summary.directory, &converted.directory] {
            let index = RunIndex::build(&[directory]).expect("the files are whole");
            let (mut reader, mut number) = (index.reader(), 0);
            while let Some(event) = reader.next_event().expect("it can be read") {
                number += 1;
                let found: Vec<_> = event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
                assert_eq!(found, boards.map(|board| numbered(board, number)), "{is:?}");
            }
        }
    }
}

/// Frames of 100 bytes in segments of 130: one segment is missing, others are reordered or duplicated.
#[test]
fn behind_a_missing_segment_a_connection_goes_on_with_the_next_whole_frame() {
    let output = TemporaryDirectory::new("captures-hole");
    let capture = output.path().join("connection.pcapng");
    let frame = |event: u32| {
        let noise = (0..92).map(|index: u32| (event.wrapping_mul(2_654_435_761).rotate_left(index) ^ index) as u8);
        [&[0, 100, 0xbe, 0xef][..], &event.to_be_bytes()].concat().into_iter().chain(noise).collect::<Vec<u8>>()
    };
    let frames: Vec<u8> = (1..=200).flat_map(frame).collect();
    let length = "frame = { length = { at = 0, type = \"u16be\" }, max = \"1KiB\" }\n";
    let event = "event = { at = 4, type = \"u32be\" }";
    let matched = format!("{length}match = {{ at = 2, bytes = [0xbe, 0xef] }}\n{event}");
    let plain = format!("{length}{event}");
    // Frames 53 and 54 have bytes in the segment from 5,200 on, frames 1 and 2 in the first one.
    for (keys, missing, lost, dropped) in [
        (&matched, Some(40), 2, 70),
        (&plain, Some(40), 2, 70),
        (&plain, None, 0, 0),
        (&matched, Some(0), 2, 70),
        (&plain, Some(0), 2, 70),
    ] {
        let segments = frames.chunks(130).enumerate().filter(|(index, _)| Some(*index) != missing);
        let mut packets = vec![tcp_with(board(1), 0, 0x02, &[])];
        packets.extend(segments.map(|(index, part)| tcp(board(1), 1 + 130 * index, part)));
        packets.swap(10, 12);
        packets.insert(20, packets[15].clone());
        write_capture(&capture, &packets);
        let keys = format!("input = {:?}\n{keys}", capture.display().to_string());
        // Counting begins with the first frame.
        let events = if missing == Some(0) { 200 - lost } else { 200 };
        let summary = taken(launched(&output, std::slice::from_ref(&keys)), events);
        assert_eq!((summary.events.written, summary.is_lossless()), (200 - lost, lost == 0), "{summary:#?}");
        let input = &summary.inputs[0];
        let missed = if lost > 0 { 130 } else { 0 };
        assert_eq!((input.missed_bytes, input.dropped_bytes), (missed, dropped), "{input:?}");
        let told = format!(
            "130 bytes of the connection are missing behind its first {}, and 70 around them belong to no whole frame",
            130 * missing.unwrap_or(0)
        );
        assert_eq!(summary.warnings.iter().any(|warning| warning.contains(&told)), lost > 0, "{:?}", summary.warnings);
        let (converted, _) = converted(&output, &[capture.as_path()], &[keys], &[]);
        assert_eq!(converted.events.written, 200 - lost, "{converted:#?}");
        assert_eq!(converted.status.reasons.get("missed_bytes"), (lost > 0).then_some(&200), "{converted:#?}");
    }
}

#[test]
fn a_recording_that_does_not_fit_says_what_would() {
    let output = TemporaryDirectory::new("captures-unfit");
    let file = output.path().join("stream.raw");
    std::fs::write(&file, [0; 64]).expect("the directory is ours");
    let begin = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n";
    let board = |id: u32, keys: &str| format!("[[source]]\nid = {id}\nreadout = \"ru0\"\n{keys}\n");
    let stream = "input = \"-\"\nframe = { fixed = \"8B\" }\nevent = { at = 4, type = \"u32le\" }";
    let datagrams = format!("listen = \"udp://0.0.0.0:9000\"\n{BOARD}\nevent = {{ at = 2, type = \"u32be\" }}");
    for (sources, names, hint) in [
        (board(1, "format = \"generic\""), vec![], "describes no frames"),
        (board(1, stream), vec!["caen".to_owned()], "there are source-1"),
        (board(1, stream) + &board(2, stream), vec![], "--source source-1 or source-2"),
        (board(1, &datagrams), vec![], "record a capture"),
    ] {
        let configuration = parse("unfit", &format!("{begin}{sources}"), &|_| None).expect("a good configuration");
        let error = of_recordings(&configuration, &[&file], &names).expect_err(hint).to_string();
        assert!(error.contains(hint) && error.contains("stream.raw"), "{error}");
    }
}
