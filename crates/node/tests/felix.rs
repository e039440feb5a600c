//! Link cards in whole runs: from an emulated card's blocks to run files.

mod support;

use ropewalk_flow::source::felix::{ChunkOrigin, FAULTS, Fault};
use ropewalk_node::configuration::parse;
use ropewalk_node::offline::RunIndex;
use ropewalk_node::run::{RunSummary, launch};
use ropewalk_terms::EventKey;
use std::fmt::Write as _;
use support::{Run, TemporaryDirectory};

const LINKS: u32 = 6;
const EVENTS: u64 = 3000;

/// A run of one card whose first e-link is the trigger source.
fn configuration(output: &TemporaryDirectory, card: &str) -> String {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"4MiB\"\nblock = \"64KiB\"\n\
         [[builder]]\nname = \"bu0\"\n[timeouts]\nreadout = \"300ms\"\n[[felix]]\nname = \"card\"\nmemory = \"4MiB\"\n{card}\n",
        output.path().display().to_string()
    );
    for link in 0..LINKS {
        let trigger = link == 0;
        let _ = write!(
            text,
            "[[source]]\nid = {}\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\ntrigger = {trigger}\n\
             felix = {{ card = \"card\", elink = {link} }}\n",
            100 + link
        );
    }
    text
}

/// Runs it, and looks at every byte of every event in the files.
fn run(name: &str, card: &str) -> (RunSummary, usize) {
    let output = TemporaryDirectory::new(name);
    let text = configuration(&output, card);
    let configuration = parse(name, &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, Some(EVENTS)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{:?}", summary.ledger);
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut fragments) = (index.reader(), 0);
    while let Some(event) = reader.next_event().expect("it can be read") {
        let number = event.event.head().key.number();
        for fragment in event.event.fragments() {
            let origin = ChunkOrigin::of(fragment.payload).expect("every byte is as the card wrote it");
            assert_eq!((origin.source, u64::from(origin.number)), (fragment.entry.source, number));
            fragments += 1;
        }
    }
    (summary, fragments)
}

#[test]
fn every_chunk_of_a_card_is_in_the_files_without_a_copy() {
    for (name, card) in [
        ("felix-interrupt", "[felix.emulate]\nchunk_size = \"uniform(16,3000)\"\nrate = \"20kHz\""),
        ("felix-poll", "blocks = \"0xABCD\"\nwake = \"poll\"\n[felix.emulate]\nchunk_size = \"5000\""),
    ] {
        let (summary, fragments) = run(name, card);
        assert!(summary.is_lossless(), "{name}: {:?} {:?}", summary.fragments, summary.events);
        assert_eq!((summary.events.written, fragments as u64), (EVENTS, EVENTS * u64::from(LINKS)), "{name}");
        assert_eq!(summary.copies["bytes"], 0, "{name}");
    }
}

#[test]
fn whatever_goes_wrong_on_a_card_stands_in_the_ledger_under_its_name() {
    let mut card = "[felix.emulate]\nchunk_size = \"uniform(16,5000)\"\nrate = \"5kHz\"\n\
                    outages = [{ elink = 3, from = \"100ms\", lasts = \"50ms\" }]\n[felix.emulate.faults]\n"
        .to_owned();
    for fault in FAULTS.iter().filter(|fault| !fault.is_of_streams()) {
        let share = match fault {
            Fault::Oversize | Fault::Stalled => 0.0002,
            fault if fault.strikes_blocks() => 0.001,
            _ => 0.01,
        };
        let _ = writeln!(card, "{} = {share}", fault.name());
    }
    let (summary, fragments) = run("felix-faults", &card);
    assert!(summary.fragments.crc_errors > 50, "{:?}", summary.fragments);
    for cause in ["cut_short", "malformed", "oversize", "timed_out"] {
        assert!(summary.fragments.dropped.contains_key(cause), "{cause}: {:?}", summary.fragments);
    }
    assert!(summary.events.incomplete_emitted > 100, "{:?} {:?}", summary.events, summary.by_source);
    assert!(summary.events.written > EVENTS * 9 / 10, "{:?} {:?}", summary.events, summary.by_source);
    assert!(fragments as u64 > EVENTS * u64::from(LINKS) * 8 / 10);
}
