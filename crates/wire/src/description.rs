//! The description of a source's frames: a configured layout, or a format by its name.

use crate::foreign::{Counting, Describe, ForeignFormat};
use crate::framing::{Fields, Framing, Front, PieceHead, Search, Tick, Widths, Window};
use crate::layout::Plan;
use std::sync::Arc;

/// The format of a source's frames.
#[derive(Clone, Debug)]
pub enum Description {
    /// According to a layout.
    Layout(Arc<Plan>),
    /// According to a named format.
    Format(ForeignFormat),
    /// The same for one board, by the number in its frames, if that distinguishes boards.
    Board(ForeignFormat, u32),
}

impl Description {
    /// Whether frames only arrive in datagrams, and not in a stream.
    pub fn needs_datagrams(&self) -> bool {
        match self {
            Self::Layout(plan) => plan.is_of_datagrams(),
            Self::Format(format) | Self::Board(format, _) => format.needs_datagrams(),
        }
    }

    /// The number that distinguishes boards that send to the same place: the one named in the layout, or that of the
    /// format.
    pub fn board_of(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        match self {
            Self::Layout(plan) => plan.board_of(frame),
            Self::Format(format) | Self::Board(format, _) => format.fields(frame).source.map(u64::from),
        }
    }

    /// The format by which frames with several events are divided; `None` if each frame belongs to one event.
    pub const fn splitter(&self) -> Option<ForeignFormat> {
        match self {
            Self::Format(format) | Self::Board(format, _) if format.has_several_events() => Some(*format),
            Self::Format(_) | Self::Board(..) | Self::Layout(_) => None,
        }
    }

    /// Whether frames state their event number. Otherwise they are counted.
    pub fn has_event(&self) -> bool {
        match self {
            Self::Layout(plan) => !plan.layout().event.is_empty(),
            Self::Format(_) | Self::Board(..) => self.counts_together(),
        }
    }

    /// The number that increases by one from frame to frame of a board.
    pub fn counting(&self) -> Counting {
        match self {
            Self::Layout(plan) if plan.layout().sequence.is_some() => Counting::Frames,
            Self::Layout(plan) if plan.has_event() => Counting::Events,
            Self::Layout(_) => Counting::Nothing,
            Self::Format(format) | Self::Board(format, _) => format.counting(),
        }
    }

    /// Whether a frame continues the event of the previous frame.
    pub fn goes_on(&self, frame: &[u8]) -> bool {
        matches!(self, Self::Format(format) | Self::Board(format, _) if format.goes_on(frame))
    }

    /// Number of events in a whole frame.
    pub fn events_in(&self, frame: &[u8]) -> u64 {
        if let Self::Format(format) | Self::Board(format, _) = self { format.events_in(frame) } else { 1 }
    }

    /// Whether bytes that are no frame are valid filler between frames.
    pub fn is_filler(&self, skipped: &[u8]) -> bool {
        matches!(self, Self::Format(format) | Self::Board(format, _) if format.is_filler(skipped))
    }
}

impl From<Arc<Plan>> for Description {
    fn from(plan: Arc<Plan>) -> Self {
        Self::Layout(plan)
    }
}

impl From<ForeignFormat> for Description {
    fn from(format: ForeignFormat) -> Self {
        Self::Format(format)
    }
}

/// Calls the function of the layout or of the format.
macro_rules! ask {
    ($self:ident, $framing:ident => $answer:expr) => {
        match $self {
            Description::Layout($framing) => $answer,
            Description::Format($framing) | Description::Board($framing, _) => $answer,
        }
    };
}

impl Framing for Description {
    #[inline]
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        ask!(self, framing => framing.front(window, search))
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        ask!(self, framing => framing.front_at_end(window, search))
    }

    #[inline]
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        ask!(self, framing => framing.fields(frame))
    }

    #[inline(always)]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        ask!(self, framing => framing.plain(bytes))
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        ask!(self, framing => framing.checksum(frame))
    }

    #[inline]
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        ask!(self, framing => framing.is_matched(frame))
    }

    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        ask!(self, framing => framing.piece(datagram))
    }

    fn comes_in_pieces(&self) -> bool {
        ask!(self, framing => framing.comes_in_pieces())
    }

    fn most(&self) -> usize {
        ask!(self, framing => framing.most())
    }

    fn board(&self) -> Option<u32> {
        if let Self::Board(_, board) = self { Some(*board) } else { ask!(self, framing => framing.board()) }
    }

    fn counts_together(&self) -> bool {
        // If the frames of all boards together are not counted, those of one board are.
        matches!(self, Self::Board(..)) || ask!(self, framing => framing.counts_together())
    }

    fn runs_free(&self) -> bool {
        ask!(self, framing => framing.runs_free())
    }

    fn widths(&self) -> Widths {
        ask!(self, framing => framing.widths())
    }

    fn tick(&self) -> Tick {
        ask!(self, framing => framing.tick())
    }
}
