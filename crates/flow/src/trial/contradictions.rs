//! Where a frame of a format with a name contradicts itself.

use core::fmt::Arguments;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{Describe, Inspector, Value};

/// The places in the frame, and what is wrong there; none of a layout, whose rules are looked at one by one.
pub(super) fn contradictions(framing: &Description, frame: &[u8]) -> Vec<(usize, &'static str)> {
    let mut found = Found::default();
    if let Description::Format(format) | Description::Board(format, _) = framing {
        format.describe(frame, &mut found);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<(usize, &'static str)>);

impl Inspector for Found {
    fn kind(&mut self, _: &str) {}

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, at: usize, what: &'static str) {
        self.0.push((at, what));
    }
}
