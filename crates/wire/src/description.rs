//! What describes the frames of a source that runs read: a layout of a configuration, or a format by its name.

use crate::foreign::ForeignFormat;
use crate::framing::{Fields, Framing, Front, PieceHead, Search, Tick, Widths, Window};
use crate::layout::Plan;
use std::sync::Arc;

/// A source's frames.
#[derive(Clone, Debug)]
pub enum Description {
    /// As a layout says.
    Layout(Arc<Plan>),
    /// Of a format with a name.
    Format(ForeignFormat),
}

impl Description {
    /// Whether frames come in datagrams alone, and not in a stream.
    pub fn needs_datagrams(&self) -> bool {
        match self {
            Self::Layout(plan) => plan.is_of_datagrams(),
            Self::Format(format) => format.needs_datagrams(),
        }
    }

    /// What tells the boards apart that send to one place: the number that the layout names for it, or what the format says.
    pub fn board_of(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        match self {
            Self::Layout(plan) => plan.board_of(frame),
            Self::Format(format) => format.fields(frame).source.map(u64::from),
        }
    }

    /// Whether frames say to which event they belong; they are counted where they do not.
    pub fn has_event(&self) -> bool {
        match self {
            Self::Layout(plan) => !plan.layout().event.is_empty(),
            Self::Format(_) => true,
        }
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
            Description::Format($framing) => $answer,
        }
    };
}

impl Framing for Description {
    #[inline]
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        ask!(self, framing => framing.front(window, search))
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
        ask!(self, framing => framing.board())
    }

    fn widths(&self) -> Widths {
        ask!(self, framing => framing.widths())
    }

    fn tick(&self) -> Tick {
        ask!(self, framing => framing.tick())
    }
}
