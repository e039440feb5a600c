//! `examples/felix.toml` as it is run: events and subscribers from one card, whose link fails and returns.

use crate::examples::example;
use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::{TemporaryDirectory, wait_for};
use ropewalk_wire::felix::ELink;
use ropewalk_wire::stream::{CHUNK_HEAD_BYTES, ChunkHead};
use std::collections::BTreeMap;
use std::path::Path;

/// The events' numbers in the chunks that a subscriber wrote to its file, by e-link.
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

/// A monitor is stopped, so that it takes nothing any more, and killed later; another subscriber must lose nothing.
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
