//! Zeros are no frames: in front, in the middle, at the end, and over a part of what was there.

use super::*;
use crate::zeros;

fn streams() -> impl Iterator<Item = ForeignFormat> {
    ForeignFormat::ALL.iter().copied().filter(|format| !format.needs_datagrams())
}

/// Bytes of a stream, and the frames in it.
fn stream(format: ForeignFormat, first: u32, count: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let frames = samples(format, 3, first, count);
    (frames.concat(), frames)
}

/// Cut until nothing more is found; a tail of zeros that is shorter than a header may be left.
fn found(format: ForeignFormat, bytes: &[u8], step: usize) -> (Vec<Vec<u8>>, usize) {
    let cut = cut(format, bytes, step);
    let rest = &bytes[bytes.len() - cut.left..];
    assert_eq!((cut.lost, zeros::leading(rest, rest.len())), (None, cut.left), "{format:?} in steps of {step}");
    (cut.frames, cut.skipped + cut.left)
}

#[test]
fn zeros_between_frames_become_none_and_hide_none() {
    for format in streams() {
        let (before, mut frames) = stream(format, 1, 4);
        let (behind, others) = stream(format, 5, 4);
        frames.extend(others);
        for zeros in [64, 512, 4096, 5000] {
            let zeros = vec![0; zeros];
            for (name, bytes) in [
                ("in front", [&zeros, &before, &behind].map(Vec::as_slice).concat()),
                ("in the middle", [&before, &zeros, &behind].map(Vec::as_slice).concat()),
                ("at the end", [&before, &behind, &zeros].map(Vec::as_slice).concat()),
            ] {
                for step in [1, 100, bytes.len()] {
                    let found = found(format, &bytes, step);
                    assert_eq!(found.1, zeros.len(), "{format:?} {name}");
                    assert!(found.0 == frames, "{format:?} {name} in steps of {step}");
                }
            }
        }
    }
}

#[test]
fn behind_a_page_of_zeros_the_next_true_header_is_found() {
    for format in streams() {
        let (whole, frames) = stream(format, 1, 60);
        for (place, length) in [(whole.len() / 3, 300), (whole.len() / 2 / 8 * 8, 512), (whole.len() / 4, 640)] {
            let mut bytes = whole.clone();
            bytes[place..place + length].fill(0);
            let Cut { frames: found, lost, .. } = cut(format, &bytes, 1000);
            // What ends in the zeros and what begins in them is lost; the others are as they were.
            let (mut start, mut good) = (0, Vec::new());
            for frame in &frames {
                let is_touched = start < place + length && place < start + frame.len();
                good.extend((!is_touched).then_some(frame));
                start += frame.len();
            }
            // Where no length is at the front, an event may be cut short by zeros.
            let header = if format == ForeignFormat::Eudaq { eudaq::HEADER_BYTES } else { 4 };
            let is_same = |one: &[u8], other: &[u8]| one.get(..header) == other.get(..header);
            let has_length = format != ForeignFormat::Eudaq;
            let is_known = |frame: &Vec<u8>| {
                // Of a damaged event the fragments in it may be found.
                let is_part = format == ForeignFormat::Atlas && whole.windows(frame.len()).any(|part| part == frame);
                is_part || frames.iter().any(|good| is_same(good, frame) && (good.len() == frame.len() || !has_length))
            };
            let invented = found.iter().filter(|frame| !is_known(frame));
            assert_eq!((lost, invented.count()), (None, 0), "{format:?}, {length} zeros at {place}");
            let kept = good.iter().filter(|good| found.contains(good)).count();
            assert!(kept + 1 >= good.len(), "{format:?}: {kept} of {}, {length} zeros at {place}", good.len());
        }
    }
}

#[test]
fn a_datagram_of_zeros_is_no_frame() {
    for &format in ForeignFormat::ALL {
        for length in [64, 1000] {
            assert!(cut(format, &vec![0; length], length).frames.is_empty(), "{format:?}");
        }
    }
}
