//! FELIX blocks on the command line: made, counted, shown.

use crate::forms::{expect_form, schema};
use crate::process::{Ended, Program, example};
use crate::support::{TemporaryDirectory, wait_for};
use ropewalk_wire::felix::ELink;
use ropewalk_wire::stream::{CHUNK_HEAD_BYTES, ChunkHead};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A file of the directory with blocks of these options.
fn generated(directory: &TemporaryDirectory, options: &[&str]) -> String {
    let file = directory.path().join("blocks.dat");
    Program::run([&["felix", "generate", text(&file)], options].concat()).expect_status(0);
    text(&file).to_owned()
}

fn decoded(file: &str) -> Ended {
    Program::run(["felix", "decode", file, "--json"])
}

#[test]
fn blocks_of_every_kind_are_made_and_counted() {
    let directory = TemporaryDirectory::new("felix-kinds");
    for (kind, symbol) in [("narrow", "0xABCD"), ("wide", "0xABCE"), ("1KiB", "0xC0CE"), ("4KiB", "0xC3CE")] {
        let options = ["--kind", kind, "--elinks", "0,8-10", "--chunks", "500", "--chunk-size", "uniform(0,3000)"];
        let ended = decoded(&generated(&directory, &options));
        let report = ended.expect_status(0).account();
        expect_form(&report, &schema("felix-decode.json"));
        assert_eq!((&report["symbol"], &report["chunks"]), (&symbol.into(), &2000.into()));
        let elinks: Vec<_> = report["elinks"].as_array().expect("a list").iter().map(|link| &link["elink"]).collect();
        assert_eq!(elinks, [0, 8, 9, 10]);
    }
}

#[test]
fn damage_is_status_1_and_named_and_shown_where_it_is() {
    let directory = TemporaryDirectory::new("felix-damage");
    let options = ["--chunks", "2000", "--elinks", "5", "--fault", "past_header=0.02", "--fault", "crc=0.01"];
    let file = generated(&directory, &options);
    let ended = decoded(&file);
    let report = ended.expect_status(1).account();
    expect_form(&report, &schema("felix-decode.json"));
    let first = &report["first_faults"][0];
    assert_eq!((&first["error"], &first["elink"]), (&"past_header".into(), &5.into()));
    let readable = Program::run(["felix", "decode", &file]);
    let line = readable.expect_status(1).out.iter().find(|line| line.starts_with("damaged blocks: past_header "));
    assert!(line.is_some(), "{readable:#?}");
    let block = first["block"].to_string();
    let shown = Program::run(["felix", "dump", &file, "--blocks", &block]);
    assert!(shown.expect_status(0).out[0].starts_with(&format!("block {block} at 0x")), "{shown:#?}");
    assert!(shown.out[1].contains("past_header") && !shown.out[1].contains('\x1b'), "{shown:#?}");
}

#[test]
fn what_is_no_block_or_not_there_is_status_2_and_says_what_would_be_right() {
    let directory = TemporaryDirectory::new("felix-wrong");
    let none = directory.path().join("none.dat");
    std::fs::write(&none, "no block far and wide").expect("a file can be written");
    let good = generated(&directory, &["--chunks", "10"]);
    for (arguments, hint) in [
        (&["felix", "decode", text(&none)][..], "cd ab"),
        (&["felix", "dump", "no-such-file"], "no-such-file"),
        (&["felix", "dump", &good, "--blocks", "9000.."], "there is no block 9000"),
        (&["felix", "dump", &good, "--blocks", "8..5"], "5..8"),
        (&["felix", "generate", "-", "--fault", "bitrot=1"], "lost_block"),
        (&["felix", "generate", "-", "--fault", "crc=2"], "from 0 to 1"),
        (&["felix", "generate", "-", "--fault", "crc=0.6", "--fault", "error=0.6"], "1 at most together"),
        (&["felix", "generate", "-", "--kind", "3000"], "narrow"),
        (&["felix", "generate", "-", "--elinks", "5-1"], "1,8-15"),
        (&["felix", "generate", "no-such-directory/blocks.dat"], "no-such-directory"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

#[test]
fn a_reader_that_stops_is_no_error() {
    let directory = TemporaryDirectory::new("felix-head");
    let file = generated(&directory, &["--chunks", "5000", "--chunk-size", "500"]);
    for arguments in [&["felix", "decode", &file][..], &["felix", "dump", &file, "--blocks", "0.."]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it is our child");
        assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
}

/// Starts a server of the file. Returns its address.
fn served(file: &str, options: &[&str]) -> (Program, String) {
    let mut server = Program::start([&["felix", "serve", file, "--json"], options].concat());
    let address = server.expect_line("ready felix ");
    (server, address)
}

fn subscribed(address: &str, options: &[&str]) -> Program {
    Program::start([&["felix", "subscribe", address], options].concat())
}

#[test]
fn every_subscriber_gets_the_chunks_of_its_e_links_and_both_sides_say_how_many() {
    let directory = TemporaryDirectory::new("felix-serve");
    let options = ["--elinks", "0-7", "--chunks", "3000", "--chunk-size", "uniform(10,2000)", "--kind", "4KiB"];
    let file = generated(&directory, &options);
    let payload = decoded(&file).account()["payload_bytes"].as_u64().expect("a number");
    let (server, address) = served(&file, &["--wait", "2"]);
    let output = directory.path().join("chunks.dat");
    let some = subscribed(&address, &["--elinks", "1,5-6", "--json"]);
    let all = subscribed(&address, &["--output", text(&output)]);
    let account = some.end().expect_status(0).account();
    expect_form(&account, &schema("felix-subscribe.json"));
    assert_eq!((&account["chunks"], &account["server"]["sent"]), (&9000.into(), &9000.into()), "{account:#}");
    let elinks: Vec<_> = account["elinks"].as_array().expect("a list").iter().map(|link| &link["elink"]).collect();
    assert_eq!(elinks, [1, 5, 6]);
    all.end().expect_status(0);
    let written = std::fs::metadata(&output).expect("it was written").len();
    assert_eq!(written, payload + 8 * 24_000, "each chunk behind a head of 8 bytes");
    let account = server.end().expect_status(0).account();
    expect_form(&account, &schema("felix-serve.json"));
    let (sent, is_balanced) = (&account["sent"], &account["ledger"]["balanced"]);
    assert_eq!((sent, is_balanced, &account["chunks"]), (&33_000.into(), &true.into(), &24_000.into()), "{account:#}");
}

#[test]
fn a_server_reports_the_bytes_that_were_lost_between_blocks() {
    let directory = TemporaryDirectory::new("felix-lost-bytes");
    let file = generated(&directory, &["--elinks", "8-11", "--chunks", "1000"]);
    let mut blocks = std::fs::read(&file).expect("it was written");
    // Twice, in two distant blocks.
    for from in [150 * 1024 + 512, 40 * 1024 + 512] {
        blocks.drain(from..from + 512);
    }
    blocks.truncate(blocks.len() - 100);
    std::fs::write(&file, &blocks).expect("the directory is there");
    let decoded = decoded(&file).expect_status(1).account();
    let (server, address) = served(&file, &["--wait", "1"]);
    subscribed(&address, &[]).end().expect_status(0);
    let account = server.end().expect_status(3).account();
    expect_form(&account, &schema("felix-serve.json"));
    for name in ["blocks", "chunks", "skipped_bytes", "left_over_bytes", "block_errors"] {
        assert_eq!(account[name], decoded[name], "{name}: {account:#}");
    }
    assert!(
        account["skipped_bytes"].as_u64() > Some(0) && account["chunk_errors"] != serde_json::json!({}),
        "{account:#}"
    );
    assert!(account["chunks"].as_u64() > Some(3900), "{account:#}");
}

#[test]
fn a_fault_that_the_blocks_cannot_carry_is_refused_before_a_file_is_made() {
    let directory = TemporaryDirectory::new("felix-no-fault");
    let file = directory.path().join("blocks.dat");
    let ended = Program::run(["felix", "generate", text(&file), "--fault", "busy=0.1"]);
    assert!(ended.expect_status(2).errors.contains("`busy` is a bit of trailers of 32 bits"), "{ended:#?}");
    assert!(!file.exists());
    Program::run(["felix", "generate", text(&file), "--fault", "busy=0.1", "--kind", "wide"]).expect_status(0);
}

#[test]
fn a_subscriber_that_is_killed_in_mid_stream_costs_another_one_nothing() {
    let directory = TemporaryDirectory::new("felix-killed");
    let file = generated(&directory, &["--elinks", "0-3", "--chunks", "20000", "--chunk-size", "500"]);
    let (server, address) = served(&file, &["--wait", "2", "--rate", "40MB/s"]);
    let killed_output = directory.path().join("killed.dat");
    let mut killed = subscribed(&address, &["--output", text(&killed_output)]);
    let good = subscribed(&address, &["--json"]);
    crate::support::wait_for("some chunks", || {
        std::fs::metadata(&killed_output).ok().filter(|file| file.len() > 1 << 20).map(|_| ())
    });
    killed.kill();
    let account = good.end().expect_status(0).account();
    assert_eq!((&account["chunks"], &account["dropped"]), (&80_000.into(), &0.into()), "{account:#}");
    let ended = server.end();
    let account = ended.account();
    assert!(matches!(ended.status, Some(0 | 3)) && account["ledger"]["balanced"] == true, "{ended:#?}");
    assert!(account["dropped"].get("queue_full").is_none(), "{account:#}");
}

#[test]
fn a_subscriber_comes_back_when_its_server_does() {
    let directory = TemporaryDirectory::new("felix-back");
    let file = generated(&directory, &["--elinks", "0", "--chunks", "1000"]);
    let (mut first, address) = served(&file, &["--loop", "--rate", "2MB/s"]);
    let output = directory.path().join("chunks.dat");
    let subscriber = subscribed(&address, &["--reconnect", "20ms", "--chunks", "200000", "--output", text(&output)]);
    let grows_to = |bytes: u64| {
        crate::support::wait_for("more chunks", || {
            std::fs::metadata(&output).ok().filter(|file| file.len() > bytes).map(|_| ())
        });
    };
    grows_to(1 << 20);
    first.kill();
    let (second, _) = served(&file, &["--loop", "--listen", &address]);
    subscriber.end().expect_status(0);
    second.interrupt();
    let account = second.end().account();
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
}

#[test]
fn what_is_sent_to_an_e_link_comes_back_from_the_emulated_card() {
    let directory = TemporaryDirectory::new("felix-down");
    let file = generated(&directory, &["--elinks", "0", "--chunks", "1000"]);
    let (server, address) = served(&file, &["--loop-back", "--loop", "--rate", "1MB/s"]);
    let output = directory.path().join("answer.dat");
    let options = ["--elinks", "99", "--send", "99=reset", "--chunks", "1", "--output", text(&output)];
    subscribed(&address, &options).end().expect_status(0);
    let answer = std::fs::read(&output).expect("it was written");
    assert_eq!(answer[8..], *b"reset");
    server.interrupt();
    let account = server.end().expect_status(0).account();
    assert_eq!(account["down"]["sent"], 1, "{account:#}");
}

#[test]
fn what_is_sent_to_an_e_link_is_refused_and_counted_where_no_down_link_is() {
    let directory = TemporaryDirectory::new("felix-no-down");
    let file = generated(&directory, &["--elinks", "0", "--chunks", "1000"]);
    let (server, address) = served(&file, &["--loop", "--rate", "1MB/s"]);
    let subscriber = subscribed(&address, &["--elinks", "0", "--send", "99=reset", "--chunks", "100", "--json"]).end();
    assert_eq!(subscriber.expect_status(3).account()["down_refused"], 1);
    assert!(subscriber.errors.contains("the first one to 99: no card's down-link"), "{subscriber:#?}");
    server.interrupt();
    let ended = server.end();
    // Chunks queued when the subscriber left are lost for it: status 3.
    assert!(matches!(ended.status, Some(0 | 3)), "{ended:#?}");
    let account = ended.account();
    assert_eq!(account["down"], serde_json::json!({ "sent": 0, "refused": 1 }), "{account:#}");
}

#[test]
fn a_server_that_is_not_there_or_refuses_is_named() {
    let directory = TemporaryDirectory::new("felix-refused");
    let file = generated(&directory, &["--elinks", "0", "--chunks", "1000"]);
    let (server, address) = served(&file, &["--subscribers", "1", "--wait", "2"]);
    let first = subscribed(&address, &[]);
    // Both request the only place; one of them gets it.
    let second = subscribed(&address, &["--json"]);
    let mut both = [first, second];
    crate::support::wait_for("a refusal", || both.iter_mut().any(Program::has_ended).then_some(()));
    let [first, second] = both;
    let (mut refused, mut taken) = (first, second);
    if !refused.has_ended() {
        std::mem::swap(&mut refused, &mut taken);
    }
    assert!(refused.end().expect_status(2).errors.contains("--subscribers"));
    server.interrupt();
    taken.end().expect_status(0);
    server.end().expect_status(0);
    let unanswered = Program::run(["felix", "subscribe", &address]);
    assert!(
        unanswered.expect_status(4).errors.contains(&address) && unanswered.errors.contains("--reconnect"),
        "{unanswered:#?}"
    );
    for (arguments, hint) in [
        (&["felix", "subscribe", &address, "--send", "reset"][..], "5=reset"),
        (&["felix", "subscribe", &address, "--one-in", "0"], "one-in"),
        (&["felix", "serve", "no-such-file"], "no-such-file"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// The event numbers of the chunks that a subscriber wrote to its file, by e-link.
fn numbers(file: &Path) -> BTreeMap<u16, Vec<u32>> {
    let (bytes, mut numbers) = (std::fs::read(file).expect("it was written"), BTreeMap::<u16, Vec<u32>>::new());
    let mut rest = &bytes[..];
    while let Some((head, behind)) = rest.split_first_chunk::<CHUNK_HEAD_BYTES>() {
        let head = ChunkHead::parse(head).expect("the head of a chunk");
        let (chunk, behind) = behind.split_at(head.length as usize);
        let number = u32::from_le_bytes(*chunk.first_chunk().expect("a chunk begins with its number"));
        numbers.entry(head.elink.number()).or_default().push(number);
        rest = behind;
    }
    assert!(rest.is_empty(), "the file ends with a whole chunk");
    numbers
}

/// A monitor is stopped, so that it no longer reads, and killed later; another subscriber must lose nothing.
#[test]
fn a_card_serves_its_subscribers_and_builds_its_events_whatever_happens_to_link_and_monitor() {
    let directory = TemporaryDirectory::new("felix-run");
    let (elink, outage) = (ELink::new(31).number(), "elink = 31, from = \"500ms\", lasts = \"700ms\"");
    let config = example(
        &directory,
        "felix.toml",
        &[
            ("{ listen = \"127.0.0.1:9570\" }", "{ wait = 2 }"),
            ("elink = 31, from = \"20s\", lasts = \"10s\"", outage),
            ("readout = \"500ms\"", "readout = \"200ms\""),
        ],
    );
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &config, "--output", &output, "--duration", "3s", "--json"]);
    let address = run.expect_error_line("flx0 listens on ");
    let [good_file, monitor_file] = ["good.dat", "monitor.dat"].map(|name| directory.path().join(name));
    let subscribe = |file: &Path, options: &[&str]| {
        let file = file.display().to_string();
        Program::start([&["felix", "subscribe", &address, "--output", &file], options].concat())
    };
    let good = subscribe(&good_file, &[]);
    let mut monitor = subscribe(&monitor_file, &["--when-full", "drop"]);
    let grows_to = |file: &Path, bytes: u64| {
        wait_for("chunks", || std::fs::metadata(file).ok().filter(|file| file.len() > bytes).map(|_| ()));
    };
    grows_to(&monitor_file, 4 << 20);
    monitor.pause();
    grows_to(&good_file, 80 << 20);
    monitor.kill();
    good.end().expect_status(0);
    let ended = run.end();
    let account = ended.expect_status(3).account();
    expect_form(&account, &schema("run.json"));
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");

    let came = numbers(&good_file);
    assert_eq!(came.len(), 24);
    let events = account["events"]["assigned"].as_u64().expect("a number");
    let everything: Vec<u32> = (1..=events as u32).collect();
    for (_, numbers) in came.iter().filter(|&(&other, _)| other != elink) {
        assert!(*numbers == everything, "{} of {events}", numbers.len());
    }
    let of_dead_link = &came[&elink];
    assert_eq!((of_dead_link[0], of_dead_link.last().copied()), (1, everything.last().copied()), "it comes back");
    let gaps = of_dead_link.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert_eq!(gaps, 1, "it fails once");
    let missing = events - of_dead_link.len() as u64;
    let (events, fragments) = (&account["events"], &account["fragments"]);
    assert_eq!((&events["incomplete_emitted"], &events["incomplete_dropped"]), (&missing.into(), &0.into()));
    assert_eq!(fragments["dropped"], serde_json::json!({}), "{account:#}");

    let cards = &account["cards"];
    assert_eq!((&cards["chunks"], &cards["given_up"]), (&fragments["received"], &0.into()), "{account:#}");
    let subscribers = &cards["subscribers"];
    assert_eq!((&subscribers["joined"], &subscribers["queued"]), (&2.into(), &0.into()), "{account:#}");
    assert!(subscribers["dropped"].as_u64() > Some(0) && subscribers["copied_bytes"].as_u64() > Some(4 << 20));
}
