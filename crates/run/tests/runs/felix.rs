//! Link cards in whole runs: from an emulated card's blocks to run files.

use crate::support::{Run, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_flow::source::felix::{ChunkOrigin, FAULTS, Fault};
use ropewalk_run::{RunSummary, launch};
use ropewalk_terms::{Counter, EventKey};
use ropewalk_tools::RunIndex;
use ropewalk_wire::rod;
use ropewalk_wire::run_file::{FragmentFlags, FragmentView};
use std::fmt::Write as _;

const LINKS: u32 = 6;
const EVENTS: u64 = 3000;

/// Returns the configuration of a run of one card whose first e-link is the trigger source, and whose e-links from
/// `first_rod` on send headers of ROD fragments.
fn configuration(output: &TemporaryDirectory, card: &str, first_rod: u32) -> String {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"4MiB\"\nblock = \"64KiB\"\n\
         [[builder]]\nname = \"bu0\"\n[storage]\nwrite = \"buffered\"\n[timeouts]\nreadout = \"300ms\"\n[[felix]]\nname = \"card\"\nmemory = \"4MiB\"\n{card}\n",
        output.path().display().to_string()
    );
    for link in 0..LINKS {
        let (trigger, event) = (link == 0, if link < first_rod { "" } else { ", event = \"rod\"" });
        let _ = write!(
            text,
            "[[source]]\nid = {}\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\ntrigger = {trigger}\n\
             felix = {{ card = \"card\", elink = {link}{event} }}\n",
            100 + link
        );
    }
    text
}

/// Executes the run, and checks every byte of every event in the files. Returns the flags of all fragments in them.
fn run(name: &str, card: &str) -> (RunSummary, Vec<FragmentFlags>) {
    let mut flags = Vec::new();
    let summary = run_with(name, card, LINKS, |fragment, number| {
        let origin = ChunkOrigin::of(fragment.payload).expect("every byte is as the card wrote it");
        assert_eq!((origin.source, u64::from(origin.number)), (fragment.entry.source, number));
        flags.push(fragment.entry.flags);
    });
    (summary, flags)
}

/// Executes the run, and passes every fragment in the files to `look`, with the number of its event.
fn run_with(name: &str, card: &str, first_rod: u32, mut look: impl FnMut(&FragmentView<'_>, u64)) -> RunSummary {
    let output = TemporaryDirectory::new(name);
    let text = configuration(&output, card, first_rod);
    let configuration = parse(name, &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, Some(EVENTS)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{:?}", summary.ledger);
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let mut reader = index.reader();
    while let Some(event) = reader.next_event().expect("it can be read") {
        let number = event.event.head().key.number();
        event.event.fragments().for_each(|fragment| look(&fragment, number));
    }
    summary
}

#[test]
fn every_chunk_of_a_card_is_in_the_files_without_a_copy() {
    for (name, card) in [
        ("felix-interrupt", "[felix.emulate]\nchunk_size = \"uniform(16,3000)\"\nrate = \"20kHz\""),
        ("felix-poll", "blocks = \"0xABCD\"\nwake = \"poll\"\n[felix.emulate]\nchunk_size = \"5000\""),
    ] {
        let (summary, fragments) = run(name, card);
        assert!(summary.is_lossless(), "{name}: {:?} {:?}", summary.fragments, summary.events);
        assert_eq!((summary.events.written, fragments.len() as u64), (EVENTS, EVENTS * u64::from(LINKS)), "{name}");
        assert_eq!(summary.copies.bytes, 0, "{name}");
    }
}

#[test]
fn links_with_heads_of_their_own_are_built_and_agree_in_their_bunch_crossings() {
    let card = "event = { offset = 3, bytes = 5, endian = \"big\", mask = 0xfff_fff0 }\n\
                [felix.emulate]\nchunk_size = \"uniform(16,3000)\"\nrate = \"20kHz\"";
    let first_rod = LINKS - 2;
    let mut crossings = std::collections::BTreeMap::new();
    let summary = run_with("felix-heads", card, first_rod, |fragment, number| {
        let (entry, head) = (fragment.entry, fragment.payload);
        if entry.source.0 < 100 + first_rod {
            let field = u64::from_be_bytes(*head.first_chunk().expect("eight bytes"));
            assert_eq!((field >> 4 & 0xff_ffff, entry.flags), (number, FragmentFlags::default()));
        } else {
            let header = rod::Header::parse(head.first_chunk().expect("a header")).expect("a header");
            assert_eq!((u64::from(header.level1_id()), header.bunch_crossing()), (number, entry.bunch_crossing));
            assert_eq!(entry.flags, FragmentFlags::HAS_BUNCH_CROSSING);
            assert_eq!(*crossings.entry(number).or_insert(entry.bunch_crossing), entry.bunch_crossing);
        }
    });
    assert!(summary.is_lossless(), "{:?} {:?}", summary.fragments, summary.events);
    assert!(crossings.len() as u64 == EVENTS && crossings.values().any(|crossing| *crossing != crossings[&1]));
}

/// The effect of a fault in a run.
enum Trace {
    /// The fragment has this flag, and no event lacks anything.
    Flag(FragmentFlags),
    /// Fragments are dropped for this cause.
    Dropped(&'static str),
    /// Blocks are damaged; their content is unknown.
    Damage,
    /// Blocks are missing; their content is unknown.
    Gap,
    /// Events lack a fragment for an unknown reason.
    Absence,
    /// A signal is counted, and no event lacks anything.
    Signal,
    /// No effect.
    Nothing,
}

const fn trace(fault: Fault) -> Trace {
    match fault {
        Fault::Busy => Trace::Flag(FragmentFlags::BUSY),
        Fault::Crc => Trace::Flag(FragmentFlags::CRC_ERROR),
        Fault::Error => Trace::Flag(FragmentFlags::MALFORMED),
        Fault::Truncated | Fault::TimedOut => Trace::Flag(FragmentFlags::LENGTH_MISMATCH),
        Fault::Missing => Trace::Absence,
        Fault::NoFirst => Trace::Dropped("malformed"),
        Fault::NoLast => Trace::Dropped("cut_short"),
        Fault::Oversize => Trace::Dropped("oversize"),
        Fault::Stalled => Trace::Dropped("timed_out"),
        Fault::OutOfBand => Trace::Signal,
        Fault::LostBlock | Fault::SequenceGap => Trace::Gap,
        Fault::StartOfBlock | Fault::Padding | Fault::PastHeader | Fault::UndefinedType => Trace::Damage,
        Fault::Silence | Fault::LostBytes => Trace::Nothing,
    }
}

#[test]
fn each_fault_of_a_card_leaves_the_trace_that_is_its_own_and_no_other() {
    for &fault in FAULTS.iter().filter(|fault| !fault.is_of_streams()) {
        let name = fault.name();
        let share = match fault {
            Fault::Oversize | Fault::Stalled => 0.0003,
            fault if fault.strikes_blocks() => 0.005,
            _ => 0.01,
        };
        let card = "chunk_size = \"uniform(16,5000)\"\nrate = \"20kHz\"";
        let card = format!("[felix.emulate]\n{card}\n[felix.emulate.faults]\n{name} = {share}");
        let (summary, flags) = run(&format!("felix-{name}"), &card);
        // Without its trigger's chunk an event is never opened, and the others' chunks of it are dropped.
        let mut dropped: Vec<_> = summary.fragments.dropped.names().into_keys().collect();
        dropped.retain(|cause| *cause != "no_trigger");
        let cards = &summary.cards;
        let says = format!("{name}: {:?} {:?} {cards:?}", summary.fragments, summary.events);
        let is_complete = dropped.is_empty() && flags.len() as u64 == EVENTS * u64::from(LINKS);
        let is_whole = summary.is_lossless() && is_complete;
        let is_absent = summary.events.incomplete_emitted > 0 || summary.events.written < EVENTS;
        match trace(fault) {
            Trace::Flag(flag) => {
                let flagged = flags.iter().filter(|flags| flags.contains(flag)).count();
                assert!(is_complete && flagged > 50 && cards.flagged >= flagged as u64, "{says}");
            }
            Trace::Dropped(cause) => {
                // A chunk that is still stalled when the card ends is cut short.
                let is_its_own = |one: &&str| *one == cause || fault == Fault::Stalled && *one == "cut_short";
                assert!(dropped.contains(&cause) && dropped.iter().all(is_its_own) && is_absent, "{says}");
            }
            Trace::Damage => assert!(cards.blocks_damaged > 5 && is_absent, "{says}"),
            Trace::Gap => {
                assert!(cards.blocks_missing > 5 && cards.blocks_damaged == 0 && is_absent, "{says}");
                assert_eq!(dropped, ["cut_short"], "{says}");
            }
            Trace::Absence => assert!(dropped.is_empty() && is_absent, "{says}"),
            Trace::Signal => assert!(is_whole && cards.signals > 50, "{says}"),
            Trace::Nothing => assert!(is_whole && cards.signals == 0 && cards.flagged == 0, "{says}"),
        }
    }
}

#[test]
fn every_fault_of_a_card_is_in_the_ledger_under_its_name() {
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
    assert!(summary.fragments.counts.get(Counter::CrcErrors) > 50, "{:?}", summary.fragments);
    for cause in ["cut_short", "malformed", "oversize", "timed_out"] {
        assert!(summary.fragments.dropped.names().contains_key(cause), "{cause}: {:?}", summary.fragments);
    }
    assert!(summary.events.incomplete_emitted > 100, "{:?} {:?}", summary.events, summary.by_source);
    assert!(summary.events.written > EVENTS * 9 / 10, "{:?} {:?}", summary.events, summary.by_source);
    assert!(fragments.len() as u64 > EVENTS * u64::from(LINKS) * 8 / 10);
}
