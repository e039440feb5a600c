//! Putting a fragment together again that spans several blocks.

use super::{
    MAX_PAYLOAD_BYTES,
    block::{BlockHeader, PACKET_NUMBERS},
};
use ropewalk_terms::{Cause, SourceId};

/// Why a fragment that was being put together is given up. Blocks can still be told apart: the stream goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// Another fragment begins before this one ended.
    #[error("the next fragment begins before this one ended")]
    CutShort,
    /// A block continues a fragment that never began.
    #[error("the block continues a fragment that never began")]
    NoBeginning,
    /// The packet number is not the next one.
    #[error("a block of the fragment is missing or comes twice")]
    Packet,
    /// The block belongs to another source than the one before.
    #[error("the source changes within a fragment")]
    Source,
    /// The block belongs to another event than the one before.
    #[error("the event number changes within a fragment")]
    EventNumber,
    /// The fragment is larger than allowed.
    #[error("the fragment is larger than allowed")]
    Oversize,
}

impl FragmentError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::CutShort => Cause::CutShort,
            Self::Source => Cause::WrongSource,
            Self::NoBeginning | Self::Packet | Self::EventNumber => Cause::Malformed,
            Self::Oversize => Cause::Oversize,
        }
    }
}

/// Where a block's payload goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// It begins a fragment.
    Begins,
    /// It continues the fragment.
    Continues,
    /// Nowhere: it belongs to a fragment that was given up.
    Skipped,
}

/// What to do with a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// First of all: a fragment is given up for this, once for each fragment. What was kept of it goes back.
    pub gives_up: Option<FragmentError>,
    /// Then: where the payload goes.
    pub place: Place,
    /// At last: the fragment is whole, and this is its length in bytes.
    pub completes: Option<usize>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Between two fragments.
    Between,
    /// Within a fragment: what its next block must say, and the bytes so far.
    Within { source: SourceId, event_number: u32, packet: u16, bytes: usize },
    /// Within a fragment that was given up: waits for the next beginning.
    Lost,
}

/// Follows one stream's blocks and says which make up a fragment. Holds no bytes.
#[derive(Clone, Debug)]
pub struct Assembly {
    state: State,
    max_bytes: usize,
}

impl Assembly {
    /// Between two fragments. Fragments may have at most `max_bytes` bytes, or [`MAX_PAYLOAD_BYTES`] if that is
    /// more: a beginning is never too large, so that no block can give up two fragments at once.
    pub const fn new(max_bytes: usize) -> Self {
        let max_bytes = if max_bytes > MAX_PAYLOAD_BYTES { max_bytes } else { MAX_PAYLOAD_BYTES };
        Self { state: State::Between, max_bytes }
    }

    /// Whether the next block must begin a fragment.
    pub const fn is_between(&self) -> bool {
        matches!(self.state, State::Between)
    }

    /// The bytes of the fragment that is being put together, if one has begun and not ended. At the end of a
    /// connection such a fragment is cut short.
    pub const fn unfinished_bytes(&self) -> Option<usize> {
        match self.state {
            State::Within { bytes, .. } => Some(bytes),
            State::Between | State::Lost => None,
        }
    }

    /// Takes the next block's header.
    pub fn accept(&mut self, block: &BlockHeader) -> Accepted {
        if block.first {
            return self.begin(block);
        }
        match self.state {
            State::Between => self.give_up(block, FragmentError::NoBeginning),
            State::Lost => self.skip(block, None),
            State::Within { source, event_number, packet, bytes } => {
                if block.source != source {
                    self.give_up(block, FragmentError::Source)
                } else if block.event_number != event_number {
                    self.give_up(block, FragmentError::EventNumber)
                } else if block.packet != packet {
                    self.give_up(block, FragmentError::Packet)
                } else {
                    self.take(block, Place::Continues, bytes)
                }
            }
        }
    }

    /// A beginning is believed whatever its packet number: the blocks behind it count on from there.
    fn begin(&mut self, block: &BlockHeader) -> Accepted {
        let gives_up = matches!(self.state, State::Within { .. }).then_some(FragmentError::CutShort);
        Accepted { gives_up, ..self.take(block, Place::Begins, 0) }
    }

    fn take(&mut self, block: &BlockHeader, place: Place, before: usize) -> Accepted {
        let bytes = before + usize::from(block.payload_bytes);
        if bytes > self.max_bytes {
            return self.give_up(block, FragmentError::Oversize);
        }
        let BlockHeader { source, event_number, packet, last, .. } = *block;
        self.state = if last {
            State::Between
        } else {
            State::Within { source, event_number, packet: (packet + 1) % PACKET_NUMBERS, bytes }
        };
        Accepted { gives_up: None, place, completes: last.then_some(bytes) }
    }

    fn give_up(&mut self, block: &BlockHeader, error: FragmentError) -> Accepted {
        self.skip(block, Some(error))
    }

    fn skip(&mut self, block: &BlockHeader, gives_up: Option<FragmentError>) -> Accepted {
        self.state = if block.last { State::Between } else { State::Lost };
        Accepted { gives_up, place: Place::Skipped, completes: None }
    }
}
