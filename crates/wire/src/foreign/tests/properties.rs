//! Whatever comes, nothing panics, and what is found lies in what came.

use super::*;
use crate::framing::Splitter;
use proptest::collection::vec;
use proptest::prelude::*;

fn format() -> impl Strategy<Value = ForeignFormat> {
    prop::sample::select(ForeignFormat::ALL)
}

/// Asks everything about some bytes.
fn ask(format: ForeignFormat, bytes: &[u8]) {
    let _ = (format.fields(bytes), format.checksum(bytes), format.goes_on(bytes), format.events_in(bytes));
    let _ = (format.looks_like(bytes), format.split(bytes, &mut Vec::new()));
    let told = told(format, bytes);
    assert!(told.parts.len() <= bytes.len() + 2, "what is told is bounded by what came");
}

proptest! {
    #[test]
    fn any_bytes_are_cut_and_told(format in format(), bytes in vec(any::<u8>(), 0..300), step in 1..70_usize) {
        ask(format, &bytes);
        let cut = cut(format, &bytes, step);
        let found: usize = cut.frames.iter().map(Vec::len).sum();
        prop_assert_eq!(found + cut.skipped + cut.left, bytes.len());
    }

    #[test]
    fn damaged_frames_are_cut_and_told_the_same_however_they_come(
        format in format(),
        first in 0..2000_u32,
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut_at in any::<prop::sample::Index>(),
        step in 1..200_usize,
    ) {
        let mut stream = samples(format, 3, first, 3).concat();
        for (place, byte) in damage {
            let at = place.index(stream.len());
            stream[at] = byte;
        }
        ask(format, &stream[..cut_at.index(stream.len())]);
        let whole = cut(format, &stream, stream.len());
        whole.frames.iter().for_each(|frame| ask(format, frame));
        if !format.needs_datagrams() {
            prop_assert_eq!(cut(format, &stream, step), whole);
        }
    }

    #[test]
    fn any_format_may_be_recognised(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (ForeignFormat::recognise(&bytes), ForeignFormat::recognise_datagram(&bytes));
    }
}
