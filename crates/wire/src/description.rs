//! What describes the frames of a source that runs read: a layout of a configuration, or a format by its name.

use crate::foreign::{Counting, Describe, ForeignFormat};
use crate::framing::{Fields, Framing, Front, PieceHead, Search, Tick, Widths, Window};
use crate::layout::Plan;
use std::sync::Arc;

/// A source's frames.
#[derive(Clone, Debug)]
pub enum Description {
    /// As a layout says.
    Layout(Arc<Plan>),
    /// In a format with a name.
    Format(ForeignFormat),
    /// The same for one board, by the number in its frames, if that distinguishes boards.
    Board(ForeignFormat, u32),
}

impl Description {
    /// Whether frames come in datagrams alone, and not in a stream.
    pub fn needs_datagrams(&self) -> bool {
        match self {
            Self::Layout(plan) => plan.is_of_datagrams(),
            Self::Format(format) | Self::Board(format, _) => format.needs_datagrams(),
        }
    }

    /// What tells the boards apart that send to one place: the number that the layout names for it, or what the format says.
    pub fn board_of(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        match self {
            Self::Layout(plan) => plan.board_of(frame),
            Self::Format(format) | Self::Board(format, _) => format.fields(frame).source.map(u64::from),
        }
    }

    /// The format by which frames with several events each are divided; `None` if each frame is of one event.
    pub const fn splitter(&self) -> Option<ForeignFormat> {
        match self {
            Self::Format(format) | Self::Board(format, _) if format.has_several_events() => Some(*format),
            Self::Format(_) | Self::Board(..) | Self::Layout(_) => None,
        }
    }

    /// Whether frames say to which event they belong; they are counted where they do not.
    pub fn has_event(&self) -> bool {
        match self {
            Self::Layout(plan) => !plan.layout().event.is_empty(),
            Self::Format(_) | Self::Board(..) => self.counts_together(),
        }
    }

    /// Which of its numbers is one more from frame to frame of a board.
    pub fn counting(&self) -> Counting {
        match self {
            Self::Layout(plan) if plan.layout().sequence.is_some() => Counting::Frames,
            Self::Layout(plan) if plan.has_event() => Counting::Events,
            Self::Layout(_) => Counting::Nothing,
            Self::Format(format) | Self::Board(format, _) => format.counting(),
        }
    }

    /// Whether a frame goes on with the event of the frame before it.
    pub fn goes_on(&self, frame: &[u8]) -> bool {
        matches!(self, Self::Format(format) | Self::Board(format, _) if format.goes_on(frame))
    }

    /// How many events a whole frame holds.
    pub fn events_in(&self, frame: &[u8]) -> u64 {
        if let Self::Format(format) | Self::Board(format, _) = self { format.events_in(frame) } else { 1 }
    }

    /// Whether bytes that are no frame are meant to stand between frames.
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

/// Asks whichever it is.
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
        // What only the frames of all boards together do not count, those of one do.
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
