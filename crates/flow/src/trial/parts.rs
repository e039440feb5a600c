//! Frames of several datagrams put together as a run does, and where the rules of a layout look.

use crate::readout::{Assembly, DatagramLimits, Placed};
use core::net::IpAddr;
use core::ops::Range;
use ropewalk_terms::{Instant, Utc};
use ropewalk_wire::framing::PieceHead;
use ropewalk_wire::layout::{Frame, Number, Plan, Size};
use std::collections::BTreeMap;

/// Frames of several datagrams, which each sender numbers for itself.
#[derive(Debug)]
pub struct Parts {
    limits: DatagramLimits,
    senders: BTreeMap<Option<IpAddr>, Assembly<Vec<u8>>>,
    given_up: u64,
}

impl Parts {
    /// With the limits of a run.
    pub const fn new(limits: DatagramLimits) -> Self {
        Self { limits, senders: BTreeMap::new(), given_up: 0 }
    }

    /// Takes a datagram that came from this sender at this time, where that is known. Returns the frame that is whole with it. A frame
    /// of more than `most` bytes is given up.
    pub fn accept(
        &mut self,
        from: Option<IpAddr>,
        time: Option<Utc>,
        piece: &PieceHead,
        datagram: &[u8],
        most: usize,
    ) -> Option<Vec<u8>> {
        let now = Instant::from_nanoseconds(time.map_or(0, |time| time.0.max(0) as u64));
        let limits = self.limits;
        let new = || Assembly::new(most, limits.open_frames, limits.pieces_timeout);
        let assembly = self.senders.entry(from).or_insert_with(new);
        self.given_up += assembly.expire(now) as u64;
        let given_up = &mut self.given_up;
        match assembly.place(now, piece, datagram.to_vec(), &mut |_| *given_up += 1) {
            Placed::Whole(frame) => return Some(frame),
            Placed::Waits | Placed::Repeated => {}
            Placed::GivenUp(_) => self.given_up += 1,
        }
        None
    }

    /// Frames that did not become whole, those that are still open included.
    pub fn unfinished(&self) -> u64 {
        self.given_up + self.senders.values().map(|assembly| assembly.unfinished() as u64).sum::<u64>()
    }
}

/// Where the rule with this key looks, in a frame of so many bytes; none where it looks at all of it.
pub(super) fn place_of(plan: &Plan, key: &str, length: usize) -> Option<Range<usize>> {
    let layout = plan.layout();
    let place = |at: i32, bytes: usize| {
        let start = if at < 0 { length.saturating_sub(at.unsigned_abs() as usize) } else { at as usize };
        start..start + bytes
    };
    let number = |number: &Number| place(number.at, number.bytes.into());
    match key {
        "match" => layout.matches.as_ref().map(|pattern| place(pattern.at, pattern.bytes.len())),
        "sequence" => layout.sequence.as_ref().map(number),
        "event" => layout.event.first().map(number),
        "checksum" => layout.checksum.as_ref().map(|checksum| number(&checksum.number)),
        "frame.sync" => match &layout.frame {
            Frame::Sync { word, .. } => Some(0..word.len()),
            _ => None,
        },
        "frame.length" | "frame.max" => match &layout.frame {
            Frame::Length(length)
            | Frame::Sync { size: Size::Length(length), .. }
            | Frame::Several(Size::Length(length)) => Some(number(&length.number)),
            _ => None,
        },
        _ => None,
    }
}
