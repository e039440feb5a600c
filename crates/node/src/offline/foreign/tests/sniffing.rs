//! What unknown datagrams mean: out of captures, the real ones among them, and from a port.

use super::*;
use ropewalk_wire::sniff::{Meaning, NumberPlace, Sniffed};
use std::net::UdpSocket;
use std::time::Duration;

fn places(sniffed: &Sniffed, wanted: impl Fn(&Meaning) -> bool) -> Vec<(usize, String)> {
    let found = sniffed.guesses.iter().filter(|guess| wanted(&guess.meaning)).map(|guess| guess.place);
    found.map(|place: NumberPlace| (place.at, place.type_text())).collect()
}

fn counters(sniffed: &Sniffed) -> Vec<(usize, String)> {
    places(sniffed, |meaning| *meaning == Meaning::Counter)
}

#[test]
fn the_counter_of_the_ess_capture_is_found() {
    let test = "foreign::tests::sniffing::the_counter_of_the_ess_capture_is_found";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let found = sniff_capture(&directory.join("example_LET.pcapng")).expect("it can be read").remove(0);
    assert_eq!((found.port, found.senders.len()), (9000, 2));
    assert_eq!(counters(&found), [(26, "u32le".to_owned())]);
    let lengths = places(&found, |meaning| *meaning == Meaning::Length { unit: 1, more: 0 });
    assert_eq!(lengths, [(6, "u16le".to_owned())]);
    // Seconds: of the pulse, of the one before, and of readouts.
    let clocks = places(&found, |meaning| matches!(meaning, Meaning::Clock { .. }));
    assert!(clocks.contains(&(10, "u32le".to_owned())) && clocks.contains(&(18, "u32le".to_owned())), "{clocks:?}");
    assert!(clocks.iter().all(|(_, kind)| kind == "u32le"), "{clocks:?}");
    for line in ["bytes = \"ESS", "ip.source", "sequence = { at = 26, type = \"u32le\" }"] {
        assert!(found.draft.contains(line), "{line}: {}", found.draft);
    }
}

#[test]
fn the_counter_and_the_clock_of_the_srs_capture_are_found() {
    let test = "foreign::tests::sniffing::the_counter_and_the_clock_of_the_srs_capture_are_found";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let found = sniff_capture(&directory.join("example_xyu.pcapng")).expect("it can be read").remove(0);
    assert_eq!((found.port, found.senders.len()), (6006, 2));
    assert_eq!(counters(&found), [(0, "u32be".to_owned())]);
    let clocks: Vec<_> = found.guesses.iter().filter(|guess| matches!(guess.meaning, Meaning::Clock { .. })).collect();
    assert_eq!((clocks.len(), clocks[0].place.at, clocks[0].place.is_big_endian), (1, 8, true), "{clocks:?}");
    let Meaning::Clock { tick_nanoseconds } = clocks[0].meaning else { panic!("it is a clock") };
    assert!((tick_nanoseconds - 22.5).abs() < 0.5, "the cards' clock has 44.4 MHz: {tick_nanoseconds}");
    assert!(found.draft.contains("bytes = \"VM3\""), "{}", found.draft);
}

#[test]
fn a_draft_is_a_configuration() {
    let board = |last: u8, number: u32| {
        let mut payload = b"BOARD".to_vec();
        payload.extend_from_slice(&number.to_le_bytes());
        payload.extend_from_slice(&(125_000 * number).to_be_bytes());
        payload.push(last);
        udp(host(last, 9000), 9001, &payload)
    };
    let packets: Vec<_> = (0..50).flat_map(|number| [1, 2].map(|last| board(last, number))).collect();
    let file = std::env::temp_dir().join(format!("ropewalk-draft-{}.pcapng", std::process::id()));
    std::fs::write(&file, capture(&packets)).expect("a file can be written");
    let found = sniff_capture(&file).expect("it can be read").remove(0);
    std::fs::remove_file(&file).expect("it is ours");
    let rest = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n";
    let text = format!("{rest}{}", found.draft.replace("id = 1", "id = 1\nreadout = \"ru0\""));
    let parsed = crate::configuration::parse("draft.toml", &text, &|_| None);
    assert!(parsed.is_ok(), "{}\n{text}", parsed.expect_err("it was refused"));
    assert!(found.draft.contains("sequence = { at = 5, type = \"u32le\" }"), "{}", found.draft);
}

#[test]
fn what_is_no_capture_is_refused() {
    let error = sniff_capture(Path::new("no-such-file")).expect_err("it is not there").to_string();
    assert!(error.contains("no-such-file"), "{error}");
    let text = std::env::temp_dir().join(format!("ropewalk-sniffing-{}", std::process::id()));
    std::fs::write(&text, "no capture").expect("a file can be written");
    let error = sniff_capture(&text).expect_err("it is a text").to_string();
    std::fs::remove_file(&text).expect("it is ours");
    assert!(error.contains("pcapng"), "{error}");
}

#[test]
fn what_comes_to_a_port_is_looked_at_and_saved() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = socket.local_addr().expect("it is bound");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // What is sent before anybody looks waits in the socket's queue.
    for number in 0..50_u32 {
        sender.send_to(&[&b"BOARD"[..], &number.to_be_bytes(), b"\xFF"].concat(), target).expect("it is sent");
    }
    let save = std::env::temp_dir().join(format!("ropewalk-sniffing-{}.pcapng", std::process::id()));
    let found = sniff_socket(&socket, Duration::from_millis(300), Some(&save)).expect("it can be received").remove(0);
    assert_eq!((found.port, found.senders[0].datagrams), (target.port(), 50));
    assert_eq!(counters(&found), [(5, "u32be".to_owned())]);
    let saved = sniff_capture(&save).expect("it was saved").remove(0);
    std::fs::remove_file(&save).expect("it is ours");
    assert_eq!((saved.port, saved.senders[0].datagrams, counters(&saved)), (target.port(), 50, counters(&found)));
}
