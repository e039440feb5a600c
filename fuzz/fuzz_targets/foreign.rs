//! Formats of other systems: a stream is divided in the same way for any pieces, and every frame can be described.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::foreign::{Describe, ForeignFormat, Inspector, Value};
use ropewalk_wire::framing::{Framing, Front, Search, Splitter};
use std::fmt::Arguments;

/// Counts its calls.
#[derive(Default)]
struct Counted(usize);

impl Inspector for Counted {
    fn kind(&mut self, _: &str) {}

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {
        self.0 += 1;
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn fault(&mut self, _: usize, _: &'static str) {}
}

/// The lengths of a stream's frames, of which `step` bytes more are there whenever more are needed.
fn frames(format: ForeignFormat, bytes: &[u8], step: usize) -> Vec<usize> {
    let (mut lengths, mut at, mut there, mut search) = (Vec::new(), 0, step.min(bytes.len()), Search::default());
    loop {
        let window = &bytes[at..there];
        match format.front(window, &mut search) {
            Front::Frame { bytes } => {
                let frame = &window[..bytes];
                let mut counted = Counted::default();
                format.describe(frame, &mut counted);
                assert!(counted.0 <= bytes + 2, "more parts than bytes");
                let _ = (format.fields(frame), format.checksum(frame), format.split(frame, &mut Vec::new()));
                let _ = format.announces(frame);
                if let Some(whole) = format.enclosed(frame) {
                    let lengths: usize = whole.members.iter().map(|member| frame[member.place.clone()].len()).sum();
                    assert_eq!(lengths, whole.data.len(), "the fragments fill the data");
                }
                lengths.push(bytes);
                (at, search) = (at + bytes, Search::default());
            }
            Front::Skip { bytes, .. } => {
                assert!((1..=window.len()).contains(&bytes), "what is skipped is there");
                at += bytes;
            }
            Front::Needs { bytes: needed } => {
                assert!(needed > window.len(), "what is there is not enough");
                if there == bytes.len() {
                    return lengths;
                }
                there = bytes.len().min(there + step);
            }
            Front::Lost { .. } => return lengths,
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, stream)) = bytes.split_first() else { return };
    let format = ForeignFormat::ALL[usize::from(choice) % ForeignFormat::ALL.len()];
    let _ = (ForeignFormat::recognise(stream), ForeignFormat::recognise_datagram(stream));
    let _ = (format.fields(stream), format.goes_on(stream), format.piece(stream));
    format.describe(stream, &mut Counted::default());
    let whole = frames(format, stream, stream.len().max(1));
    if !format.needs_datagrams() {
        assert_eq!(frames(format, stream, 1 + usize::from(choice) / 8), whole);
    }
});
