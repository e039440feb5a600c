//! Frames of several datagrams put together, and where the rules of a layout look.

use core::net::IpAddr;
use core::ops::Range;
use ropewalk_wire::framing::PieceHead;
use ropewalk_wire::layout::{Frame, Number, Plan, Size};
use std::collections::BTreeMap;

/// Frames that are open at once; of more the oldest one is given up.
const MOST_OPEN: usize = 256;

/// A frame of which datagrams came: the first one whole, of the others what is behind their headers, by their places.
#[derive(Debug)]
struct Open {
    whose: (Option<IpAddr>, u64),
    bodies: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    whole: Option<u64>,
}

/// Frames of several datagrams that are not whole yet.
#[derive(Debug, Default)]
pub struct Parts {
    open: Vec<Open>,
    given_up: u64,
}

impl Parts {
    /// Takes a datagram of this sender; appends the frame to `out` if it is whole now, and says so. One of more than `most`
    /// bytes is given up.
    pub fn accept(
        &mut self,
        from: Option<IpAddr>,
        piece: &PieceHead,
        datagram: &[u8],
        most: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let whose = (from, piece.frame);
        let index = self.open.iter().position(|open| open.whose == whose).unwrap_or_else(|| {
            if self.open.len() == MOST_OPEN {
                self.open.remove(0);
                self.given_up += 1;
            }
            self.open.push(Open { whose, bodies: BTreeMap::new(), bytes: 0, whole: None });
            self.open.len() - 1
        });
        let open = &mut self.open[index];
        let body = if piece.place == 0 { datagram } else { &datagram[piece.header.min(datagram.len())..] };
        if open.bodies.insert(piece.place, body.to_vec()).is_none() {
            open.bytes += datagram.len().saturating_sub(piece.header);
        }
        open.whole = open.whole.or(piece.whole);
        let come = if piece.is_in_bytes { open.bytes as u64 } else { open.bodies.len() as u64 };
        let is_whole = open.whole == Some(come) && open.bodies.contains_key(&0);
        if is_whole || open.bytes > most {
            let open = self.open.remove(index);
            self.given_up += u64::from(!is_whole);
            let whole = open.bodies.values().filter(|_| is_whole);
            whole.for_each(|body| out.extend_from_slice(body));
        }
        is_whole
    }

    /// Frames that did not become whole, those that are still open included.
    pub fn unfinished(&self) -> u64 {
        self.given_up + self.open.len() as u64
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
