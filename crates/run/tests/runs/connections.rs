//! Connections: which are accepted, and how they end.

use crate::support::{FrontEnd, Held, Random, Setup, expect_everything, ferol_block, is_closed, lost};
use ropewalk_run::{RunError, launch};
use ropewalk_terms::{Cause, Counter};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns beginnings of connections that no front end sends.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let seed = 0x6761_7262_6167_6531;
    eprintln!("garbage from seed {seed:#x}");
    let mut random = Random::new(seed);
    vec![
        ("a browser", b"GET / HTTP/1.1\r\nHost: ru0\r\nAccept: text/html\r\nConnection: keep-alive\r\n\r\n".to_vec()),
        ("zeros", vec![0; 4096]),
        ("noise", (0..20_000).flat_map(|_| random.next().to_le_bytes()).collect()),
        ("a block without length", [&ferol_block(841, 1, 0, true, true, &[])[..], &[0; 64]].concat()),
        ("one byte", vec![0x47]),
    ]
}

#[test]
fn garbage_on_a_port_costs_no_event() {
    let setup = Setup::new("garbage", &[841, 843]);
    let mut run = setup.start(Some(300));
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    one.send(1..=150);
    let mut silent = Vec::new();
    for (what, bytes) in garbage() {
        let mut stream = TcpStream::connect(run.address()).expect("the port is open");
        // The peer may close before all of it is written.
        let _ = stream.write_all(&bytes);
        if bytes.len() > 1 {
            assert!(is_closed(&stream), "{what} was not turned away");
        } else {
            silent.push(stream);
        }
    }
    run.wait_for_count(Counter::ConnectionsRefused, 4);
    run.wait_for_count(Counter::GarbageBytes, 1);
    one.send(151..=300);
    other.send(1..=300);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    drop(silent);
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 300);
}

/// They send too little to be rejected, and must not use up the resources of others.
#[test]
fn many_connections_that_say_nothing_keep_no_source_out() {
    let setup = Setup::new("silent", &[841, 843]);
    let mut run = setup.start(Some(100));
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(run.address()).expect("the port is open");
            stream.write_all(&[0x47]).expect("a byte can be sent");
            stream
        })
        .collect();
    run.wait_for_count(Counter::ConnectionsRefused, 20);
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    one.send(1..=100);
    other.send(1..=100);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    drop(silent);
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 100);
}

/// Front ends, including one that reconnects, with every mechanism of the kernel.
#[test]
fn every_mechanism_of_tcp_builds_the_same_events() {
    for word in ["auto", "epoll", "io_uring", "poll", "select"] {
        let setup = Setup::new(word, &[841, 843]);
        let run = format!("[run]\noutput = '{}'\nsync = \"never\"\ntcp = \"{word}\"\n", setup.output().display());
        let setup = setup.and(&run);
        let run = setup.start(Some(200));
        let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
        one.send(1..=100);
        other.send(1..=200);
        one.disconnect();
        one.connect();
        one.send(101..=200);
        let summary = run.end();
        assert!(summary.is_lossless(), "{word}: {summary:#?}");
        expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 200);
    }
}

/// Data from before the identification of a source stays in common memory until its events are complete. This must not
/// block the sources that complete them.
#[test]
fn many_sources_that_come_one_after_the_other_keep_no_source_out() {
    let ids: Vec<u32> = (1..=24).collect();
    let setup = Setup::new("many", &ids);
    let run = setup.start(Some(40));
    let mut front_ends: Vec<_> = ids.iter().map(|&id| FrontEnd::ferol(&run.address(), id)).collect();
    for front_end in &mut front_ends {
        front_end.send(1..=40);
    }
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    let all: Vec<&FrontEnd> = front_ends.iter().collect();
    expect_everything(&all, &Held::in_directories(&[&summary.directory]), 40);
}

/// Each time it identifies itself in common memory.
#[test]
fn a_source_that_comes_back_again_and_again_keeps_no_other_source_out() {
    let setup = Setup::new("flapping", &[841, 843]);
    let mut run = setup.start(Some(24));
    let mut flaps = FrontEnd::ferol(&run.address(), 841);
    for event in 1..=24 {
        flaps.send([event]);
        flaps.disconnect();
        run.wait_for_fragments(841, event);
        flaps.connect();
    }
    let mut other = FrontEnd::ferol(&run.address(), 843);
    other.send(1..=24);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    expect_everything(&[&flaps, &other], &Held::in_directories(&[&summary.directory]), 24);
}

#[test]
fn garbage_within_a_stream_costs_its_connection_alone() {
    let setup = Setup::new("derailed", &[841, 843]);
    let mut run = setup.start(Some(200));
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    one.send(1..=100);
    one.send_bytes(&[0x55; 4096]);
    one.expect_closed();
    assert!(run.counter(Counter::SourceConnections) <= 2, "no other source came");
    one.connect();
    one.send(101..=200);
    other.send(1..=200);
    run.wait_for_count(Counter::GarbageBytes, 1);
    let summary = run.end();
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 200);
}

#[test]
fn a_source_that_is_not_configured_is_turned_away() {
    let setup = Setup::new("unknown", &[841]).source("id = 77\nreadout = \"ru0\"\nformat = \"generic\"");
    let mut run = setup.start(Some(50));
    for mut stranger in [FrontEnd::ferol(&run.address(), 844), FrontEnd::generic(&run.address(), 78)] {
        let first = stranger.framed(1, &stranger.content(1));
        stranger.offer_bytes(&first);
        stranger.expect_closed();
    }
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::generic(&run.address(), 77));
    one.send(1..=50);
    other.send(1..=50);
    run.wait_for_count(Counter::ConnectionsRefused, 2);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 50);
}

#[test]
fn a_second_connection_of_a_source_is_turned_away_where_the_first_goes_on() {
    let setup = Setup::new("second", &[841, 843]);
    let mut run = setup.start(Some(100));
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    one.send(1..=10);
    run.wait_for_fragments(841, 10);
    let mut intruder = FrontEnd::ferol(&run.address(), 841).with_size(64);
    let foreign = intruder.framed(11, &intruder.content(12));
    intruder.offer_bytes(&foreign);
    // The first one sends while the intruder waits, however late that is detected.
    std::thread::scope(|scope| {
        scope.spawn(|| one.send_slowly(11..=60, Duration::from_millis(100)));
        intruder.expect_closed();
    });
    one.send(61..=100);
    other.send(1..=100);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 100);
}

/// Half a fragment, the end of the connection, another connection that begins with the whole fragment.
#[test]
fn a_fragment_that_a_disconnection_cut_may_come_again() {
    let setup = Setup::new("cut", &[841, 843]);
    let run = setup.start(Some(40));
    let (mut one, mut other) =
        (FrontEnd::ferol(&run.address(), 841).with_size(9000), FrontEnd::ferol(&run.address(), 843));
    other.send(1..=40);
    one.send(1..=20);
    let cut = one.framed(21, &one.content(21));
    one.send_bytes(&cut[..cut.len() / 2 + 5]);
    one.disconnect();
    one.connect();
    one.send(21..=40);
    let summary = run.end();
    assert_eq!(summary.fragments.dropped.get(Cause::CutShort), 1, "what was cut is named: {summary:#?}");
    expect_everything(&[&one, &other], &Held::in_directories(&[&summary.directory]), 40);
}

/// The same, but the source continues with the next event: the interrupted one is incomplete, with the cause.
#[test]
fn a_source_that_was_cut_goes_on_with_the_next_event() {
    let setup = Setup::new("goes-on", &[843]).source("id = 77\nreadout = \"ru0\"\nformat = \"generic\"");
    let run = setup.start(Some(40));
    let (mut one, mut other) = (FrontEnd::generic(&run.address(), 77), FrontEnd::ferol(&run.address(), 843));
    other.send(1..=40);
    one.send(1..=20);
    let cut = one.framed(21, &one.content(21));
    one.send_bytes(&cut[..33]);
    one.disconnect();
    one.connect();
    one.send(22..=40);
    let summary = run.end();
    assert_eq!(summary.fragments.dropped.get(Cause::CutShort), 1, "{summary:#?}");
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (39, 1));
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(40);
    held.expect_missing(77, [21], Cause::Skipped);
    assert_eq!(lost(&[&one, &other], &held), BTreeSet::new());
}

/// A source that stays away is not awaited beyond its time-out, and takes part again when it returns.
#[test]
fn a_source_that_stays_away_is_named_and_taken_in_again() {
    let setup = Setup::new("away", &[841, 843]).timeout("300ms");
    let mut run = setup.start(Some(90));
    let (mut one, mut other) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    one.send(1..=30);
    one.disconnect();
    other.send(1..=60);
    run.wait_until("events are built without the source", |snapshot| snapshot.ledger.events.incomplete_emitted == 30);
    one.connect();
    one.send(61..=90);
    run.wait_for_fragments(841, 60);
    other.send(61..=90);
    let summary = run.end();
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(90);
    held.expect_missing(841, 31..=60, Cause::Disconnected);
    assert_eq!(lost(&[&one, &other], &held), BTreeSet::new());
}

#[test]
fn a_port_that_is_taken_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("it is bound").to_string();
    let setup =
        Setup::new("taken", &[841]).readout(&format!("listen = \"{address}\"\npool = \"8MiB\"\nblock = \"16KiB\"\n"));
    let error = launch(&setup.configuration(), None).expect_err("the port is taken");
    assert!(matches!(&error, RunError::System(text) if text.starts_with("ru0: ")), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&address) && text.contains("taken"), "{text}");
}

#[test]
fn a_run_without_any_input_ends_and_names_its_sources() {
    let setup = Setup::new("nothing", &[841, 843]);
    let mut run = setup.start(None);
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.stop();
    let summary = run.end();
    assert_eq!(summary.remarks.len(), 2, "{summary:#?}");
    assert!(summary.ledger.balanced && !summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.state, summary.events.assigned, summary.fragments.received), ("ended", 0, 0));
    assert!(Held::in_directories(&[&summary.directory]).events.is_empty());
}
