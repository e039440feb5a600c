//! Layouts: what is refused, what is read, and that frames are found again whatever comes between them.

mod datagrams;
mod faults;
mod fields;
mod streams;
mod zeros;

use super::*;
use crate::framing::{Framing, Front, Search};

/// A length of 32 bits in front, in units of a byte.
fn length_at(at: i32) -> Length {
    Length { number: Number::little_endian(at, 4), unit: 1, counts: Counts::Frame, add: 0 }
}

/// A stream as the digitisers of a common make have it: length in words, event counter, clock.
fn digitiser() -> Layout {
    let length =
        Length { number: Number::little_endian(0, 4).masked(0x0fff_ffff), unit: 4, counts: Counts::Frame, add: 0 };
    let ticks = vec![Number::little_endian(12, 4).masked(0x7fff_ffff)];
    Layout {
        event: vec![Number::little_endian(8, 4).masked(0xff_ffff)],
        time: Some(Clock { ticks, tick_attoseconds: 8_000_000_000, seconds: None }),
        ..Layout::new(Frame::Length(length), 1 << 20)
    }
}

/// Frames of 24 bytes.
fn fixed() -> Layout {
    Layout { event: vec![Number::big_endian(4, 4)], ..Layout::new(Frame::Fixed { bytes: 24 }, 24) }
}

/// A sync word, and a length that counts what follows it.
fn synchronised() -> Layout {
    let length = Length { number: Number::big_endian(4, 2), unit: 1, counts: Counts::AfterField, add: 0 };
    let frame = Frame::Sync { word: vec![0xca, 0xfe, 0xba, 0xbe], size: Size::Length(length) };
    Layout { event: vec![Number::big_endian(6, 3)], ..Layout::new(frame, 400) }
}

/// A sync word, and always as many bytes.
fn synchronised_fixed() -> Layout {
    let frame = Frame::Sync { word: vec![0x5a, 0xa5], size: Size::Fixed { bytes: 20 } };
    Layout { event: vec![Number::little_endian(2, 2)], ..Layout::new(frame, 100) }
}

/// Words of 64 bits with the length at the end, as S-LINK64 has it.
fn trailed() -> Layout {
    let length =
        Length { number: Number::little_endian(-4, 4).masked(0xff_ffff), unit: 8, counts: Counts::Frame, add: 0 };
    let mark = Some(Pattern { at: -1, bytes: vec![0xa0], mask: Some(vec![0xf0]) });
    let begin = Pattern { at: 7, bytes: vec![0x50], mask: Some(vec![0xf0]) };
    Layout {
        matches: Some(begin),
        event: vec![Number::little_endian(4, 4).masked(0xff_ffff)],
        ..Layout::new(Frame::Trailer { length, mark, step: 8 }, 4096)
    }
}

/// Lines of text, whose first eight letters are taken for a number.
fn lines() -> Layout {
    let frame = Frame::Delimiter { bytes: b"\r\n".to_vec() };
    Layout { event: vec![Number::big_endian(0, 8)], ..Layout::new(frame, 200) }
}

/// Every kind of framing in a stream.
fn streams() -> [Layout; 6] {
    [digitiser(), fixed(), synchronised(), synchronised_fixed(), trailed(), lines()]
}

fn plan(layout: &Layout) -> Plan {
    Plan::compile(layout).expect("a good layout")
}
