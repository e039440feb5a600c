//! Splitters and filters in C that are called in the thread that has the frames or events, and libraries without a plug-in.

use crate::support::{
    Event, MISBEHAVING, MISBEHAVING_FILTER, TRIGGER_BOARD, TemporaryDirectory, build, config, fragment, frame, memory,
    pool,
};
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_flow::readout::Divides;
use ropewalk_memory::MemoryKind;
use ropewalk_plugin::filter::FilterConfig;
use ropewalk_plugin::{End, Filter, Keys, Library, Nonsense, PluginError, Splitter, SplitterConfig, WrongDecision};
use ropewalk_terms::{Cause, RunNumber, TriggerBits};
use ropewalk_wire::framing::{Piece, PieceKey};
use std::path::Path;

/// The frame of the example's board for these triggers, with this many bytes of hits each.
fn triggers(numbers: &[(u32, u16)]) -> Vec<u8> {
    let mut bytes = [b"TB".as_slice(), &(numbers.len() as u16).to_le_bytes()].concat();
    for (number, hits) in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&hits.to_le_bytes());
        bytes.extend(std::iter::repeat_n(*number as u8, usize::from(*hits)));
    }
    bytes
}

fn divided(splitter: &mut Splitter, bytes: &[u8]) -> Result<Vec<Piece>, Cause> {
    let (mut memory, mut pieces) = (memory(), Vec::new());
    let said = splitter.divide(&frame(&mut memory, bytes), &mut pieces);
    said.expect("it is asked and answers").map(|()| pieces)
}

#[test]
fn a_library_says_into_which_pieces_a_frame_falls_apart() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, TRIGGER_BOARD, &[]);
    assert_eq!(Library::open(&library).expect("it is a plug-in").name(), "trigger board 1.0");
    let mut splitter = Splitter::new(&config(&library, "")).expect("it is a splitter");
    let piece = |number, offset, length| Piece { key: PieceKey::Event(number), offset, length };
    let bytes = triggers(&[(7, 3), (8, 0), (0xffff_ffff, 20)]);
    assert_eq!(divided(&mut splitter, &bytes), Ok(vec![piece(7, 10, 3), piece(8, 19, 0), piece(0xffff_ffff, 25, 20)]));
    assert_eq!(splitter.copied_bytes(), 0, "a frame in one piece is handed over where it lies");
    let long = triggers(&[(1, 1500), (2, 4000)]);
    assert_eq!(divided(&mut splitter, &long), Ok(vec![piece(1, 10, 1500), piece(2, 1516, 4000)]));
    assert_eq!(splitter.copied_bytes(), long.len() as u64, "one in several pieces is copied once");
    assert_eq!(divided(&mut splitter, &triggers(&[])), Ok(Vec::new()));
    for cut in 0..bytes.len() {
        assert_eq!(divided(&mut splitter, &bytes[..cut]), Err(Cause::Malformed), "after {cut} bytes");
    }
}

#[test]
fn what_a_splitter_says_that_cannot_be_true_is_not_believed() {
    let directory = TemporaryDirectory::new();
    let mut splitter = Splitter::new(&config(&build(&directory, MISBEHAVING, &[]), "")).expect("it is a splitter");
    assert_eq!(divided(&mut splitter, b".5").map(|pieces| pieces.len()), Ok(1));
    let cases = [
        (b"o5", Nonsense::Place { index: 0 }),
        (b"l5", Nonsense::Place { index: 1 }),
        (b"m5", Nonsense::Count { said: 65_537, capacity: 65_536 }),
        (b"k5", Nonsense::Kind { index: 0, kind: 9 }),
    ];
    for (bytes, nonsense) in cases {
        assert_eq!(divided(&mut splitter, bytes), Err(Cause::SplitterFailed));
        assert_eq!(splitter.journal().ends().pop(), Some((End::Nonsense(nonsense), 1)));
    }
    assert_eq!(divided(&mut splitter, b"?5"), Err(Cause::Malformed));
    let times = SplitterConfig { keys: Keys::Times, ..config(&build(&directory, MISBEHAVING, &[]), "") };
    let mut times = Splitter::new(&times).expect("it is a splitter");
    assert_eq!(divided(&mut times, b".5"), Err(Cause::SplitterFailed), "its keys are event numbers");
}

fn refused(library: &Path, configuration: &str) -> String {
    Splitter::new(&config(library, configuration)).expect_err("it is refused").to_string()
}

#[test]
fn libraries_that_are_no_splitter_are_refused_with_what_to_do() {
    let directory = TemporaryDirectory::new();
    let built = |macros: &[&str]| build(&directory, MISBEHAVING, macros);
    for (macros, word) in [
        (&["VERSION=2"][..], "built for version 2"),
        (&["SIZE=24"], "24 bytes, and at least 56"),
        (&["KIND=2"], "of kind 2"),
        (&["NO_SPLIT"], "no function `split`"),
        (&["NO_TABLE"], "no function `ropewalk_plugin`"),
    ] {
        let told = refused(&built(macros), "");
        assert!(told.contains(word), "{macros:?}: {told}");
    }
    let told = refused(&directory.0.join("nowhere.so"), "");
    assert!(told.contains("nowhere.so: cannot be loaded") && told.contains("cc -shared"), "{told}");
    let told = refused(&built(&[]), "refuse");
    assert!(told.contains("it wants to hear something else than \"refuse\""), "{told}");
    assert!(matches!(
        Splitter::new(&config(&built(&[]), "a\0b")),
        Err(PluginError::NotCreated { why, .. }) if why.contains("byte 0")
    ));
}

fn filter_config(library: &Path, configuration: &str) -> FilterConfig {
    FilterConfig { library: library.to_owned(), configuration: configuration.to_owned() }
}

#[test]
fn a_filter_gets_all_that_is_known_of_an_event_and_decides() {
    let directory = TemporaryDirectory::new();
    let mut filter =
        Filter::new(&filter_config(&build(&directory, MISBEHAVING_FILTER, &[]), "")).expect("it is a filter");
    let mut memory = pool(MemoryKind::Heap, 4096, 16);
    filter.begin_run(RunNumber(77));
    let mut event = Event::new(
        5,
        [
            fragment(&mut memory, 11, b"?one", 4),
            fragment(&mut memory, 12, &[1, 2, 3, 4, 5, 6], 2),
            fragment(&mut memory, 13, b"", 1),
        ],
    );
    event.is_complete = false;
    event.fragments[1].meta.flags = event.fragments[1].meta.flags.with(FragmentFlags::CRC_ERROR);
    let decision = filter.process(&event).expect("it can be true").expect("it decides");
    assert!(decision.accept);
    assert_eq!(decision.bits, TriggerBits::of(0).with(TriggerBits::of(127)));
    assert_eq!(
        std::str::from_utf8(decision.result).expect("text"),
        "run 77 key 562949953421317 number 5 resync 2 attempt 3 flags 3 type 9; \
         11: 4 bytes 65 in 1, 20001 3000 5 1099511627787 1125899906842624; \
         12: 6 bytes 5 in 3, 20003 3000 5 1099511627788 1125899906842624; \
         13: 0 bytes 0 in 0, 20001 3000 5 1099511627789 1125899906842624"
    );
    filter.end_run();
    filter.begin_run(RunNumber(78));
    let told = Event::new(6, [fragment(&mut memory, 11, b"0", 1)]);
    let decision = filter.process(&told).expect("it can be true").expect("it decides");
    assert_eq!(decision.result, b"78 1 2", "the run, runs that ended, events");
    let rejected = Event::new(7, [fragment(&mut memory, 11, b"-", 1)]);
    let decision = filter.process(&rejected).expect("it can be true").expect("it decides");
    assert_eq!((decision.accept, decision.result), (false, &b""[..]));
    assert!(filter.process(&Event::new(8, [])).expect("it can be true").is_some(), "an event without fragments");
}

#[test]
fn what_a_filter_decides_that_cannot_be_true_is_not_believed() {
    let directory = TemporaryDirectory::new();
    let mut filter =
        Filter::new(&filter_config(&build(&directory, MISBEHAVING_FILTER, &[]), "")).expect("it is a filter");
    let mut memory = pool(MemoryKind::Heap, 4096, 16);
    let mut decide = |filter: &mut Filter, bytes: &[u8]| {
        let decision = filter.process(&Event::new(1, [fragment(&mut memory, 1, bytes, 100)]));
        decision.map(|decision| decision.map(|decision| decision.result.len()))
    };
    assert_eq!(decide(&mut filter, b"R"), Ok(Some(65_536)), "the longest result");
    for (bytes, length) in [(b"l", 65_537), (b"L", u32::MAX)] {
        let nonsense = WrongDecision::Result { at: 0, length };
        assert_eq!(decide(&mut filter, bytes), Err(nonsense));
        assert_eq!(filter.journal().ends().pop(), Some((End::Decision(nonsense), 1)));
    }
    assert_eq!(decide(&mut filter, b"u"), Ok(None), "it cannot decide, and says so");
    assert_eq!(filter.why(), "it did not like the event");
    assert_eq!(decide(&mut filter, b"."), Ok(Some(0)));
}

#[test]
fn libraries_that_are_no_filter_are_refused_with_what_to_do() {
    let directory = TemporaryDirectory::new();
    let built = |macros: &[&str]| build(&directory, MISBEHAVING_FILTER, macros);
    let refused = |library: &Path, configuration: &str| {
        Filter::new(&filter_config(library, configuration)).expect_err("it is refused").to_string()
    };
    for (macros, words) in [
        (&["VERSION=2"][..], ["built for version 2 of the interface of filters", "ropewalk_filter.h"]),
        (&["SIZE=24"], ["24 bytes, and at least 72", "ROPEWALK_FILTER_HEAD"]),
        (&["KIND=1"], ["of kind 1", "a filter is of kind 2"]),
        (&["NO_PROCESS"], ["no function `process`", ".so"]),
        (&["NO_TABLE"], ["no function `ropewalk_plugin`", "ropewalk_plugin.h"]),
    ] {
        let told = refused(&built(macros), "");
        assert!(words.iter().all(|word| told.contains(word)), "{macros:?}: {told}");
    }
    let told = refused(&directory.0.join("nowhere.so"), "");
    assert!(told.contains("nowhere.so: cannot be loaded from /"), "{told}");
    assert!(told.contains("No such file or directory"), "the system's own words: {told}");
    let told = refused(&built(&[]), "refuse");
    assert!(told.contains("it wants to hear something else than \"refuse\""), "{told}");
}
