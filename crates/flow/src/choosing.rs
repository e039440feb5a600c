//! Selects the packets of a capture, and the frames of a source.
//!
//! A stream may contain the frames of several boards. The number that distinguishes the boards is in each frame: where
//! a layout specifies it (`demux`), or where a named format has it. The first of the sources passes on bytes that
//! belong to no frame, so that they are counted once, and frames of boards without a source.

use crate::trial::{Board, OwnBoard};
use core::net::IpAddr;
use ropewalk_wire::capture::{Aside, Carried, IpPacket};
use ropewalk_wire::description::Description;
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::mending::{Mender, StreamFrames};
use std::collections::BTreeMap;
use std::fmt;

/// Number of boards without a source that are counted individually; further ones are counted together.
const MOST_STRANGERS: usize = 16;

/// The selection of a source's frames in a stream.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The description of the frames.
    pub description: Description,
    /// The source's board.
    pub board: OwnBoard,
    /// The boards of the other sources that read the same stream.
    pub others: Vec<OwnBoard>,
    /// Whether this source accounts for frames of boards without a source.
    pub is_first: bool,
    /// The largest frame in bytes. At a larger one framing is given up, and all further bytes are passed on.
    pub max_frame: usize,
}

/// Counts of the frames of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChosenFrames {
    /// Frames of the source.
    pub own: u64,
    /// Frames of boards that no source takes, by board number; `None` if the frame is too short to hold one.
    pub strangers: BTreeMap<Option<u64>, u64>,
    /// Frames of further such boards.
    pub further: u64,
}

impl ChosenFrames {
    /// Whether every frame belonged to a source, and at least one to this source.
    pub fn is_pure(&self) -> bool {
        self.own > 0 && self.strangers.is_empty()
    }

    fn count_stranger(&mut self, board: Option<u64>) {
        if self.strangers.len() < MOST_STRANGERS || self.strangers.contains_key(&board) {
            *self.strangers.entry(board).or_default() += 1;
        } else {
            self.further += 1;
        }
    }
}

impl fmt::Display for ChosenFrames {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} frames were the source's", self.own)?;
        let strangers = self.strangers.values().sum::<u64>() + self.further;
        if strangers == 0 {
            return Ok(());
        }
        let named = self.strangers.iter().map(|(board, count)| match board {
            Some(board) => format!("board {board}: {count}"),
            None => format!("too short for a board number: {count}"),
        });
        let further = (self.further > 0).then(|| format!("others: {}", self.further));
        let named = named.chain(further).collect::<Vec<_>>().join(", ");
        write!(out, "; {strangers} frames belong to no source ({named})")
    }
}

/// Selects frames from bytes as they arrive.
#[derive(Debug)]
pub struct Chooser {
    chosen: Chosen,
    /// Bytes of an incomplete frame.
    held: Vec<u8>,
    search: Search,
    /// Whether framing was given up.
    is_lost: bool,
    /// The boards in the order in which they appeared, if that order identifies them.
    seen: Vec<u64>,
    frames: ChosenFrames,
}

impl Chooser {
    /// Creates a chooser of these frames, for a stream from its beginning.
    pub fn new(chosen: Chosen) -> Self {
        let (held, seen) = (Vec::new(), Vec::new());
        Self { chosen, held, search: Search::default(), is_lost: false, seen, frames: ChosenFrames::default() }
    }

    /// Takes bytes, and passes on the chosen ones. Returns false when no more are wanted.
    pub fn push(&mut self, bytes: &[u8], give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        if self.is_lost {
            return give(bytes);
        }
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        let mut is_wanted_still = true;
        while is_wanted_still && !self.is_lost {
            let rest = &held[at..];
            match self.chosen.description.front(rest, &mut self.search) {
                Front::Frame { bytes } => {
                    is_wanted_still = !self.is_own(&rest[..bytes]) || give(&rest[..bytes]);
                    (self.search, at) = (Search::default(), at + bytes);
                }
                Front::Skip { bytes, .. } => {
                    is_wanted_still = !self.chosen.is_first || give(&rest[..bytes]);
                    at += bytes;
                }
                Front::Needs { bytes } if bytes <= self.chosen.max_frame && rest.len() < bytes => break,
                Front::Needs { .. } | Front::Lost { .. } => self.is_lost = true,
            }
        }
        self.held = held;
        self.held.drain(..at);
        if self.is_lost { is_wanted_still && self.give_rest(give) } else { is_wanted_still }
    }

    /// Ends the stream: passes on the rest, and returns the counts of frames.
    pub fn end(mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> ChosenFrames {
        if self.chosen.is_first {
            self.give_rest(give);
        }
        self.frames
    }

    fn give_rest(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let held = std::mem::take(&mut self.held);
        held.is_empty() || give(&held)
    }

    /// Whether a frame belongs to the source; counts it.
    fn is_own(&mut self, frame: &[u8]) -> bool {
        let number = self.chosen.description.board_of(frame);
        let (board, others) = (Board { from: None, number }, self.boards_before(number));
        let is_own = self.chosen.board.is(&board, others);
        self.frames.own += u64::from(is_own);
        let is_of_another = || self.chosen.others.iter().any(|another| another.is(&board, others));
        if !is_own && self.chosen.is_first && !is_of_another() {
            self.frames.count_stranger(number);
        }
        is_own
    }

    /// Returns the number of boards that appeared before this one, if that order identifies them.
    fn boards_before(&mut self, number: Option<u64>) -> usize {
        if !matches!(self.chosen.board, OwnBoard::InOrder(_)) {
            return 0;
        }
        let Some(number) = number else { return usize::MAX };
        let known = self.seen.iter().position(|seen| *seen == number);
        known.unwrap_or_else(|| {
            // Boards beyond the number of sources need not be distinguished.
            if self.seen.len() <= self.chosen.others.len() {
                self.seen.push(number);
                return self.seen.len() - 1;
            }
            usize::MAX
        })
    }
}

/// The selection of packets of a capture. By default all are selected.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Packets to this port.
    pub port: Option<u16>,
    /// Packets from this address.
    pub from: Option<IpAddr>,
    /// Packets from this port.
    pub from_port: Option<u16>,
    /// Packets to this address.
    pub to: Option<IpAddr>,
    /// Packets directly in IP, with this protocol number.
    pub protocol: Option<u8>,
    /// Connections that any of these addresses sent on; all connections if empty.
    pub senders: Vec<IpAddr>,
    /// Index of the connection among the remaining ones, in the order in which they begin to carry data, from 0.
    pub connection: usize,
    /// Indices of the connections that other sources use.
    pub others: Vec<usize>,
    /// The kind of frames of a stream, to find the next frame after bytes that are missing in the capture; `None` if
    /// unknown.
    pub frames: Option<StreamFrames>,
    /// The longest of these frames, in bytes.
    pub max_frame: usize,
    /// The frames that are selected, if the stream contains those of several boards.
    pub chosen: Option<Chosen>,
}

/// The carrier of frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Datagrams: of UDP, or directly in IP if a protocol is selected.
    Datagrams,
    /// Connections.
    Connections,
}

impl Wanted {
    /// Selects packets to this port, if given.
    pub fn port(port: Option<u16>) -> Self {
        Self { port, ..Self::default() }
    }

    /// Returns the mender for the frames of a stream in a capture.
    pub fn mender(&self) -> Mender {
        Mender::new(self.frames.clone(), self.max_frame)
    }

    /// Returns the selected part of a packet.
    ///
    /// # Errors
    /// The name under which the packet is counted instead: its kind, or its difference.
    pub fn pick<'a>(&self, carrier: Carrier, carried: Carried<'a>) -> Result<Carried<'a>, &'static str> {
        let (source, destination, ports, kind) = match &carried {
            Carried::Aside(aside) => return Err(Aside::name(*aside)),
            Carried::Datagram(it) => {
                let is_kind = carrier == Carrier::Datagrams && self.protocol.is_none();
                (it.source.ip(), it.destination.ip(), Some((it.source.port(), it.destination.port())), is_kind)
            }
            Carried::Segment(it) => {
                let is_kind = carrier == Carrier::Connections;
                (it.source.ip(), it.destination.ip(), Some((it.source.port(), it.destination.port())), is_kind)
            }
            Carried::Other(it) => (it.source, it.destination, None, self.is_protocol(it)),
        };
        let differs = |wanted: Option<IpAddr>, found: IpAddr| wanted.is_some_and(|wanted| wanted != found);
        let is_elsewhere = |(_, port)| self.port.is_some_and(|wanted| port != wanted);
        if ports.is_some_and(is_elsewhere) {
            return Err("other_port");
        }
        if !kind {
            return Err("other_protocol");
        }
        let is_from_elsewhere = self.from_port.is_some_and(|wanted| ports.map(|(from, _)| from) != Some(wanted));
        let is_of_another_board =
            carrier == Carrier::Connections && !self.senders.is_empty() && !self.senders.contains(&source);
        if differs(self.from, source) || differs(self.to, destination) || is_from_elsewhere || is_of_another_board {
            return Err("other_address");
        }
        Ok(carried)
    }

    fn is_protocol(&self, packet: &IpPacket<'_>) -> bool {
        self.protocol == Some(packet.protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_wire::foreign::ForeignFormat;
    use ropewalk_wire::layout::{Frame, Layout, Number, Plan};
    use std::sync::Arc;

    fn frames(format: ForeignFormat, source: u32, events: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        events.flat_map(|event| format.emulate(source, event, &[7; 40]).expect("it is short")).collect()
    }

    fn of_board(description: impl Into<Description>, board: OwnBoard) -> Chosen {
        let description = description.into();
        Chosen { description, board, others: Vec::new(), is_first: true, max_frame: 1 << 16 }
    }

    fn named(board: u64) -> OwnBoard {
        OwnBoard::Numbers(vec![board])
    }

    fn chosen(stream: &[u8], piece: usize, chosen: Chosen) -> (Vec<u8>, ChosenFrames) {
        let (mut chooser, mut out) = (Chooser::new(chosen), Vec::new());
        let mut give = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            true
        };
        stream.chunks(piece).for_each(|piece| _ = chooser.push(piece, &mut give));
        let frames = chooser.end(&mut give);
        (out, frames)
    }

    /// Frames of 8 bytes with the board's number in some bits of the last two.
    fn layout() -> Description {
        let demux = Number { at: 6, bytes: 2, is_big_endian: false, mask: Some(0x3f0), shift: None };
        let layout = Layout { demux: Some(demux), ..Layout::new(Frame::Fixed { bytes: 8 }, 8) };
        Arc::new(Plan::compile(&layout).expect("it makes sense")).into()
    }

    fn board_frame(board: u16, event: u8) -> [u8; 8] {
        let [low, high] = (board << 4 | 0x8005).to_le_bytes();
        [event, 1, 2, 3, 4, 5, low, high]
    }

    #[test]
    fn a_number_in_a_layout_tells_whose_a_frame_is() {
        let stream: Vec<u8> = (0..12).flat_map(|index| board_frame(u16::from(index % 3) + 20, index)).collect();
        for piece in [1, 5, 8, 96] {
            let (out, frames) =
                chosen(&stream, piece, Chosen { others: vec![named(22)], ..of_board(layout(), named(21)) });
            assert_eq!(out, [1, 4, 7, 10].map(|index| board_frame(21, index)).concat());
            let strangers = BTreeMap::from([(Some(20), 4)]);
            assert_eq!(frames, ChosenFrames { own: 4, strangers, further: 0 });
            let text = frames.to_string();
            assert_eq!(text, "4 frames were the source's; 4 frames belong to no source (board 20: 4)");
        }
    }

    #[test]
    fn boards_without_names_are_taken_in_the_order_in_which_they_appear() {
        let stream = [board_frame(9, 0), board_frame(3, 1), board_frame(9, 2), board_frame(5, 3)].concat();
        let order = |board| Chosen {
            others: vec![OwnBoard::InOrder(1 - board)],
            is_first: board == 0,
            ..of_board(layout(), OwnBoard::InOrder(board))
        };
        let (first, frames) = chosen(&stream, 7, order(0));
        assert_eq!(first, [board_frame(9, 0), board_frame(9, 2)].concat());
        assert_eq!((frames.own, frames.strangers), (2, BTreeMap::from([(Some(5), 1)])));
        assert_eq!(chosen(&stream, 7, order(1)).0, board_frame(3, 1));
    }

    #[test]
    fn bytes_of_no_frame_are_passed_on_by_the_first_source_alone() {
        let stream = [&board_frame(1, 0)[..], &board_frame(2, 1), b"cut"].concat();
        let second = Chosen { is_first: false, ..of_board(layout(), named(2)) };
        assert_eq!(chosen(&stream, 4, of_board(layout(), named(1))).0, [&board_frame(1, 0)[..], b"cut"].concat());
        assert_eq!(chosen(&stream, 4, second).0, board_frame(2, 1));
    }

    proptest! {
        #[test]
        fn frames_of_one_board_are_chosen_however_the_bytes_come(piece in 1_usize..500, cut in 0_usize..60) {
            let format = ForeignFormat::Fed;
            let [one, other] = [1, 2].map(|source| frames(format, source, 1..20));
            let mixed: Vec<u8> = one.iter().zip(&other).flat_map(|(one, other)| [&other[..], one].concat()).collect();
            let whole = of_board(format, named(1));
            prop_assert_eq!(chosen(&mixed, piece, whole.clone()).0, one.concat());
            // The rest of a cut frame belongs to no board.
            let cut = &mixed[..mixed.len() - cut];
            prop_assert!(chosen(cut, piece, whole).0.starts_with(&one[..18].concat()));
        }

        #[test]
        fn no_bytes_make_it_panic_or_hold_more_than_a_frame(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            piece in 1_usize..100,
        ) {
            let chosen = Chosen { max_frame: 256, ..of_board(ForeignFormat::Midas, named(1)) };
            let mut chooser = Chooser::new(chosen);
            let mut given = 0;
            for piece in bytes.chunks(piece) {
                chooser.push(piece, &mut |bytes| {
                    given += bytes.len();
                    true
                });
                prop_assert!(chooser.held.len() <= 256 + piece.len());
            }
            chooser.end(&mut |bytes| {
                given += bytes.len();
                true
            });
            prop_assert!(given <= bytes.len());
        }
    }
}
