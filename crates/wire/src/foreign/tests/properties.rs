//! Whatever comes, nothing panics, and what is found lies in what came.

use super::*;
use crate::framing::Splitter;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

fn format() -> impl Strategy<Value = ForeignFormat> {
    prop::sample::select(ForeignFormat::ALL)
}

/// Asks everything about some bytes.
fn ask(format: ForeignFormat, bytes: &[u8]) {
    let _ = (format.fields(bytes), format.checksum(bytes), format.goes_on(bytes), format.events_in(bytes));
    let _ = (format.looks_like(bytes), format.split(bytes, &mut Vec::new()), format.announces(bytes));
    if let Some(whole) = format.enclosed(bytes) {
        let lengths: usize = whole.members.iter().map(|member| member.place.len()).sum();
        assert!(lengths == whole.data.len() && whole.data.end <= bytes.len(), "the fragments fill the data");
    }
    let told = told(format, bytes);
    assert!(told.parts.len() <= bytes.len() + 2, "what is told is bounded by what came");
}

/// So many of each format; a million by hand with `PROPTEST_CASES=1000000`.
#[test]
fn any_bytes_are_cut_and_told() {
    for &format in ForeignFormat::ALL {
        let streams = (vec(any::<u8>(), 0..300), 1..70_usize, 0u32..2000, any::<bool>());
        let all_good = TestRunner::default().run(&streams, |(mut bytes, step, event, begins)| {
            if begins {
                // Behind a good frame, or its first part, more of what comes looks like something.
                let whole = samples(format, 3, event, 1).concat();
                bytes = [&whole[..whole.len().min(step * 8)], &bytes].concat();
            }
            ask(format, &bytes);
            let cut = cut(format, &bytes, step);
            let found: usize = cut.frames.iter().map(Vec::len).sum();
            prop_assert_eq!(found + cut.skipped + cut.left, bytes.len());
            Ok(())
        });
        all_good.unwrap_or_else(|failed| panic!("{}: {failed}", format.name()));
    }
}

proptest! {
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
