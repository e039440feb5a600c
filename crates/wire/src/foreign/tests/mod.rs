//! Every format: what its encoder makes is found, said and told; and whatever comes, nothing panics.

mod faults;
mod formats;
mod page;
mod properties;
mod streams;
mod zeros;

use super::*;
use crate::framing::{Framing, Front, Search};
use crate::mep::{Bank, encode_bank, encode_mep};
use core::fmt::{Arguments, Write};
use ropewalk_terms::Cause;

/// What an inspector was told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    kind: String,
    fields: String,
    parts: Vec<String>,
    faults: Vec<&'static str>,
    /// Where something ended, at most.
    end: usize,
}

impl Inspector for Told {
    fn kind(&mut self, name: &str) {
        self.kind = name.to_owned();
    }

    fn field(&mut self, name: &str, at: usize, bytes: usize, value: Value<'_>) {
        write!(self.fields, "{name}={value};").expect("a string takes everything");
        self.end = self.end.max(at + bytes);
    }

    fn part(&mut self, name: Arguments<'_>, at: usize, bytes: usize) {
        self.parts.push(name.to_string());
        self.end = self.end.max(at + bytes);
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn fault(&mut self, _: usize, what: &'static str) {
        self.faults.push(what);
    }
}

fn told(format: ForeignFormat, frame: &[u8]) -> Told {
    let mut told = Told::default();
    format.describe(frame, &mut told);
    told
}

/// Some frames of a format, as its encoder makes them: of source `source` (below 256), from event `first` on.
fn samples(format: ForeignFormat, source: u8, first: u32, count: u32) -> Vec<Vec<u8>> {
    (first..first + count).flat_map(|event| sample(format, source, event)).collect()
}

/// What carries an event: one frame, or several.
fn sample(format: ForeignFormat, source: u8, event: u32) -> Vec<Vec<u8>> {
    let bytes = match format {
        ForeignFormat::Fed | ForeignFormat::Ferol => 8 * (event % 1200),
        ForeignFormat::Ejfat => 200 * (event % 100) + 1,
        _ => event % 50 + 3,
    };
    let payload: Vec<u8> = (0..bytes).map(|index| (index * 7 + event) as u8).collect();
    format.emulate(source.into(), event, &payload).expect("it is short")
}

fn bank(source: u8, data: &[u8]) -> Bank<'_> {
    Bank { kind: 12, version: 3, source: source.into(), data }
}

/// What a stream falls apart into.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cut {
    frames: Vec<Vec<u8>>,
    skipped: usize,
    lost: Option<Cause>,
    left: usize,
}

/// Cuts a stream of which `step` bytes more are there whenever more are needed.
fn cut(format: ForeignFormat, bytes: &[u8], step: usize) -> Cut {
    let (mut cut, mut at, mut there, mut search) = (Cut::default(), 0, bytes.len().min(step), Search::default());
    loop {
        let window = &bytes[at..there];
        let front = match format.front(window, &mut search) {
            front @ Front::Needs { .. } if there == bytes.len() => {
                format.front_at_end(window, &mut search).unwrap_or(front)
            }
            front => front,
        };
        match front {
            Front::Frame { bytes } => {
                assert!((1..=window.len()).contains(&bytes), "{format:?}: a frame is there");
                cut.frames.push(window[..bytes].to_vec());
                at += bytes;
                search = Search::default();
            }
            Front::Skip { bytes, .. } => {
                assert!((1..=window.len()).contains(&bytes), "{format:?}: what is skipped is there");
                (at, cut.skipped) = (at + bytes, cut.skipped + bytes);
            }
            Front::Needs { bytes: needed } => {
                assert!(needed > window.len(), "{format:?}: what is there is not enough");
                assert!(needed <= MOST_FRAME_BYTES + 64, "{format:?}: {needed} bytes would be held");
                if there == bytes.len() {
                    break;
                }
                there = bytes.len().min(there + step);
            }
            Front::Lost { cause } => {
                cut.lost = Some(cause);
                break;
            }
        }
    }
    cut.left = bytes.len() - at;
    cut
}
