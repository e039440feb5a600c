//! The counters of real captures are found without a word about their formats.
#![allow(clippy::disallowed_methods, reason = "the test reads recorded files; the machine does not")]

use ropewalk_flow::sniff::{Group, Limits, Meaning, Peer, Sniffer, Transport, draft};
use ropewalk_terms::Instant;
use ropewalk_wire::capture::{CaptureReader, Carried, Found, Traffic};
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{Number, Plan};

/// What was heard at this port of a capture.
fn group(test: &str, name: &str, port: u16) -> Option<Group> {
    let directory = ropewalk_tidy::real_data(&format!("sniff_captures::{test}"), "vmm")?;
    let bytes = std::fs::read(directory.join(name)).expect("the data are complete");
    let (mut reader, mut traffic, mut rest) = (CaptureReader::new(), Traffic::new(), &bytes[..]);
    let mut sniffer = Sniffer::new(Limits::default());
    while let Found::Packet { bytes, .. } | Found::Other { bytes } | Found::Damaged { bytes, .. } =
        match reader.next(rest).expect("a whole capture") {
            Found::Packet { bytes, packet } => {
                let time = Instant::from_nanoseconds(packet.time.expect("it has times").0 as u64);
                if let Carried::Datagram(datagram) = traffic.accept(&packet) {
                    let (port, from) = (datagram.destination.port(), datagram.source);
                    sniffer.accept(Peer { port, transport: Transport::Udp, from }, time, datagram.payload);
                }
                Found::Other { bytes }
            }
            other => other,
        }
    {
        rest = &rest[bytes..];
    }
    sniffer.findings().groups.into_iter().find(|group| group.peers[0].peer.port == port)
}

fn told(group: &Group) -> String {
    group.guesses.iter().map(|guess| format!("{guess}\n")).collect()
}

#[test]
fn the_sequence_and_the_pulse_time_of_a_readout_are_found() {
    let Some(group) = group("the_sequence_and_the_pulse_time_of_a_readout_are_found", "example_LET.pcapng", 9000)
    else {
        return;
    };
    let told = told(&group);
    assert_eq!((group.peers.len(), group.frames), (2, 200), "{told}");
    let little = Number::little_endian;
    let counts = |number: Number, shared: bool| {
        group
            .guesses
            .iter()
            .any(|guess| guess.meaning == Meaning::FrameCounter { number, is_shared: shared } && guess.holds == 198)
    };
    assert!(counts(little(26, 4), true), "{told}");
    let clock = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Clock { number, tick, wraps, is_shared, .. } if number == little(14, 4) => {
            Some((tick, wraps.expect("seconds"), is_shared))
        }
        _ => None,
    });
    let (tick, wraps, is_shared) = clock.unwrap_or_else(|| panic!("{told}"));
    // The clock of the ESS: 88.0525 MHz.
    assert!((tick - 1e3 / 88.0525).abs() < 0.01 && is_shared, "{told}");
    assert!(wraps.number == little(10, 4) && wraps.are_seconds(), "{told}");
    let repeats = |at: i32, of: i32| {
        let meaning = Meaning::Before { number: little(at, 4), of: little(of, 4) };
        group.guesses.iter().any(|guess| guess.meaning == meaning)
    };
    assert!(repeats(18, 10) && repeats(22, 14), "{told}");
    let has_length = group.guesses.iter().any(
        |guess| matches!(guess.meaning, Meaning::Length(length) if length.number == little(6, 2) && length.add == 0),
    );
    assert!(has_length && told.contains("\"ESS"), "{told}");
}

#[test]
fn the_frame_counter_and_the_clock_of_an_srs_are_found() {
    let test = "the_frame_counter_and_the_clock_of_an_srs_are_found";
    let Some(group) = group(test, "example_xyu.pcapng", 6006) else { return };
    let told = told(&group);
    assert_eq!((group.peers.len(), group.frames), (2, 50), "{told}");
    let big = Number::big_endian;
    let counter = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::FrameCounter { number, is_shared } => Some((number, is_shared, guess.holds)),
        _ => None,
    });
    assert_eq!(counter, Some((big(0, 4), false, 48)), "{told}");
    let clock =
        group.guesses.iter().any(|guess| matches!(guess.meaning, Meaning::Clock { number, .. } if number == big(8, 4)));
    assert!(clock, "{told}");
    let values = group.guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::Peer { number, values } if number.at == 7 => Some(values.clone()),
        _ => None,
    });
    assert_eq!(values, Some(vec![0x60, 0x70]), "{told}");
}

#[test]
fn a_draft_reads_what_it_was_made_from() {
    let Some(group) = group("a_draft_reads_what_it_was_made_from", "example_LET.pcapng", 9000) else { return };
    let layout = draft(&group).expect("datagrams always have one");
    let plan = Plan::compile(&layout).expect("it compiles");
    let seconds = layout.time.as_ref().and_then(|time| time.seconds);
    assert_eq!(seconds, Some(Number::little_endian(10, 4)));
    let shown = &group.peers[0].shown[0];
    let fields = plan.fields(&shown[..]);
    assert_eq!((fields.event, fields.sequence), (Some(943_997), Some(943_997)), "{layout:?}");
    assert!(plan.is_matched(&shown[..]) && !plan.is_matched(&[0_u8; 64][..]));
}
