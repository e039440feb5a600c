//! Splitters in C that are called in the thread that reads, and libraries that are none.

mod support;

use ropewalk_flow::readout::Divides;
use ropewalk_plugin::{End, Keys, Library, Nonsense, PluginError, Splitter, SplitterConfig};
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{Piece, PieceKey};
use std::path::Path;
use support::{MISBEHAVING, TRIGGER_BOARD, TemporaryDirectory, build, config, frame, memory};

/// The frame of the example's board for these triggers, with so many bytes of hits each.
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
    Splitter::new(&config(library, configuration)).expect_err("it is none").to_string()
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
