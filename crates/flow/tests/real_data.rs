//! Machines on recorded data: the sniffer on captures of front ends, and synchrony on two front ends of CMS.
#![allow(clippy::disallowed_methods, reason = "the tests read recorded files; the machines do not")]

use ropewalk_flow::builder::synchrony::{Config, Observation, SourceConfig, Synchrony};
use ropewalk_flow::sniff::{Group, Limits, Meaning, Peer, Sniffer, Transport, draft};
use ropewalk_terms::{EventKey, Instant, SourceId};
use ropewalk_wire::capture::{CaptureReader, Carried, Found, Traffic};
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{Number, Plan};
use std::path::Path;

/// The sniffer's findings at this port of a capture.
fn group(test: &str, name: &str, port: u16) -> Option<Group> {
    let directory = ropewalk_tidy::real_data(&format!("real_data::{test}"), "vmm")?;
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

/// The source id of a file, and the bunch crossing of each S-LINK64 fragment, found backwards from the trailers.
fn read(directory: &Path, name: &str) -> (SourceId, Vec<u16>) {
    let bytes = std::fs::read(directory.join(name)).expect("the data are complete");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut end, mut crossings, mut source) = (bytes.len(), Vec::new(), SourceId(0));
    while end > 0 {
        assert_eq!(word(end - 4) >> 28, 0xa, "a trailer ends at {end}");
        let start = end - (word(end - 4) & 0xff_ffff) as usize * 8;
        assert_eq!(word(start + 4) >> 28, 0x5, "a header begins at {start}");
        source = SourceId(word(start) >> 8 & 0xfff);
        crossings.push((word(start) >> 20) as u16);
        end = start;
    }
    crossings.reverse();
    (source, crossings)
}

/// The fragments of two cathode-strip chambers of CMS, local run 307511.
fn files(test: &str) -> Option<[(SourceId, Vec<u16>); 2]> {
    let directory = ropewalk_tidy::real_data(&format!("real_data::{test}"), "cms_csc")?;
    let names = ["csc_00307511_EmuRUI01_Local_000.raw", "csc_00307511_EmuRUI03_Local_000.raw"];
    Some(names.map(|name| read(&directory, name)))
}

/// Feeds events 1, 2, 3 ... of both; returns the reported lines, each with its event.
fn watch([one, two]: &[(SourceId, Vec<u16>); 2]) -> Vec<(String, u64)> {
    let config = Config::new([one.0, two.0].map(SourceConfig::new));
    let mut machine = Synchrony::new(config).expect("a configuration that makes sense");
    let mut told = Vec::new();
    for (number, (&one, &two)) in (1..).zip(one.1.iter().zip(&two.1)) {
        let row = [one, two].map(|crossing| Observation::MISSING.with_bunch_crossing(crossing));
        machine.observe(EventKey::new(0, number), &row);
        told.extend(machine.poll().map(|change| (change.to_string(), change.at.number())));
    }
    machine.conclude();
    told.extend(machine.poll().map(|change| (change.to_string(), change.at.number())));
    told
}

fn lines(told: &[(String, u64)]) -> Vec<&str> {
    told.iter().map(|(line, _)| line.as_str()).collect()
}

#[test]
fn untouched_there_is_no_false_verdict() {
    let Some(files) = files("untouched_there_is_no_false_verdict") else { return };
    assert_eq!(files[0].1.len(), 4685);
    assert_eq!(lines(&watch(&files)), ["source 843: in sync since event 1"]);
}

#[test]
fn fragment_2000_removed_is_one_event_early() {
    let Some(mut files) = files("fragment_2000_removed_is_one_event_early") else { return };
    files[1].1.remove(1999);
    let told = watch(&files);
    assert_eq!(lines(&told), ["source 843: in sync since event 1", "source 843: one event early since event 2000"]);
    assert!(told[1].1 <= 2200, "found at {}", told[1].1);
}

#[test]
fn fragment_2000_doubled_is_one_event_late() {
    let Some(mut files) = files("fragment_2000_doubled_is_one_event_late") else { return };
    let doubled = files[1].1[1999];
    files[1].1.insert(1999, doubled);
    let told = watch(&files);
    assert_eq!(lines(&told), ["source 843: in sync since event 1", "source 843: one event late since event 2001"]);
    assert!(told[1].1 <= 2200, "found at {}", told[1].1);
}

#[test]
fn a_fragment_removed_anywhere_is_found() {
    let Some(files) = files("a_fragment_removed_anywhere_is_found") else { return };
    for at in (20..4480).step_by(37) {
        let mut files = files.clone();
        files[1].1.remove(at - 1);
        let told = watch(&files);
        let (line, found) = told.last().expect("there is a verdict");
        assert!(line.starts_with("source 843: one event early since event"), "removed {at}: {line}");
        assert!(*found <= at as u64 + 200, "removed {at}, found at {found}");
    }
}

#[test]
fn numbering_from_0_against_1_is_one_event_early_from_the_first() {
    let Some(mut files) = files("numbering_from_0_against_1_is_one_event_early_from_the_first") else { return };
    files[1].1.remove(0);
    assert_eq!(lines(&watch(&files)), ["source 843: one event early since event 1"]);
}
