//! Which sub-chunks of one e-link make up a chunk.

use super::{BlockHeader, ChunkError, LARGEST_BLOCK_BYTES, SEQUENCES, Status, SubChunkType, Trailer};
use ropewalk_terms::flaws::{Flaw, is_planted};

/// Where a sub-chunk's data go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// They are a whole chunk.
    Whole,
    /// They begin a chunk.
    Begins,
    /// They continue the chunk.
    Continues,
    /// They end the chunk.
    Ends,
    /// There are none: the trailer is a signal.
    Signal,
    /// Nowhere: filler, or a piece of a chunk that was given up.
    Skipped,
}

/// What to do with a sub-chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// First of all: a chunk is given up for this. What was kept of it goes.
    pub gives_up: Option<ChunkError>,
    /// Then: where the data go.
    pub place: Place,
    /// All flags of the chunk so far, or of the chunk that is whole now.
    pub status: Status,
}

/// What is open.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Between two chunks.
    Between,
    /// Within a chunk.
    Within,
    /// Within a chunk of which something was missed, or perhaps between two: waits for the next beginning.
    Lost,
}

/// Follows the blocks of one e-link and says what makes up a chunk. Holds no bytes of it. Small, since a decoder has one
/// for each e-link and goes from one to the other with each block.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Bytes of the chunk that is open, and the most there may be.
    bytes: u64,
    most_bytes: u64,
    /// The sequence number of the next block, or [`UNSEEN`].
    next: u8,
    /// The same within a chunk, and [`NEVER`] otherwise: so one look tells whether a block goes on with what is open.
    goes_on: u8,
    state: State,
    /// All flags of the chunk that is open.
    status: Status,
}

/// In place of a sequence number: no block was seen yet.
const UNSEEN: u8 = SEQUENCES;
/// In place of a sequence number: none.
const NEVER: u8 = SEQUENCES + 1;

impl Assembly {
    /// An e-link of which no block was seen. A chunk may have `most_bytes` bytes, or [`LARGEST_BLOCK_BYTES`] if that
    /// is more: a beginning is never too large, so that no sub-chunk can give up two chunks at once.
    pub const fn new(most_bytes: u64) -> Self {
        let least = LARGEST_BLOCK_BYTES as u64;
        let most_bytes = if most_bytes > least { most_bytes } else { least };
        Self { bytes: 0, most_bytes, next: UNSEEN, goes_on: NEVER, state: State::Between, status: Status::GOOD }
    }

    /// Whether a chunk has begun and not ended.
    #[inline]
    pub const fn is_within(&self) -> bool {
        matches!(self.state, State::Within)
    }

    /// Bytes of the chunk that is open, or of the one that ended last.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    const fn set(&mut self, next: u8, state: State) {
        (self.next, self.state) = (next, state);
        self.goes_on = if matches!(state, State::Within) { next } else { NEVER };
    }

    /// A good block comes. Returns how many are missing before it, modulo 32: then [`Self::give_up`] was called.
    /// The first block of all is believed; if it is not number 0, the e-link is joined in the middle.
    #[inline]
    pub fn begin_block(&mut self, header: BlockHeader) -> u8 {
        let behind = (header.sequence + 1) % SEQUENCES;
        let (missing, state) = match self.next {
            UNSEEN if header.sequence != 0 => (0, State::Lost),
            UNSEEN => (0, self.state),
            next if header.sequence == next || is_planted(Flaw::SequenceGapIgnored) => (0, self.state),
            next => (header.sequence.wrapping_sub(next) % SEQUENCES, State::Lost),
        };
        self.set(behind, state);
        missing
    }

    /// A damaged block comes whose header can be read. If it has the number that is expected, it is believed to be of
    /// this e-link: true, and [`Self::give_up`] was called. Else it may be anybody's.
    pub fn damaged_block(&mut self, header: BlockHeader) -> bool {
        let is_next = self.next == header.sequence;
        if is_next {
            let state = if is_planted(Flaw::OpenOverDamage) { self.state } else { State::Lost };
            self.set((header.sequence + 1) % SEQUENCES, state);
        }
        is_next
    }

    /// Takes a whole block whose number is due and that ends a chunk, brings any whole ones without flags, and begins a
    /// chunk: the same as [`Self::begin_block`] and [`Self::accept`] for each. Gives the flags and bytes of the chunk
    /// that ends; nothing, and nothing was done, if this is not such a block.
    #[inline]
    pub fn accept_ends(&mut self, header: BlockHeader, ends: Trailer, begins: Trailer) -> Option<(Status, u64)> {
        if ends.kind() != SubChunkType::Last || begins.kind() != SubChunkType::First {
            return None;
        }
        let bytes = self.with_more(header, ends)?;
        let status = self.status.and(ends.status());
        self.next = (header.sequence + 1) % SEQUENCES;
        self.goes_on = self.next;
        (self.bytes, self.status) = (u64::from(begins.data_bytes()), begins.status());
        Some((status, bytes))
    }

    /// Takes a whole block whose number is due and that is one piece of a chunk, neither its first nor its last one:
    /// the same as [`Self::begin_block`] and [`Self::accept`]. False, and nothing was done, if this is not such a block.
    #[inline]
    pub fn accept_middle(&mut self, header: BlockHeader, piece: Trailer) -> bool {
        if piece.kind() != SubChunkType::Middle {
            return false;
        }
        let Some(bytes) = self.with_more(header, piece) else { return false };
        self.next = (header.sequence + 1) % SEQUENCES;
        self.goes_on = self.next;
        (self.bytes, self.status) = (bytes, self.status.and(piece.status()));
        true
    }

    /// How many bytes the open chunk has with this piece of a block, if one is open, the block's number is due, and
    /// they are not too many.
    #[inline]
    fn with_more(&self, header: BlockHeader, piece: Trailer) -> Option<u64> {
        let bytes = self.bytes + u64::from(piece.data_bytes());
        (self.goes_on == header.sequence && bytes <= self.most_bytes).then_some(bytes)
    }

    /// Takes any number of whole chunks without flags: the same as [`Self::accept`] for each of them, of which only the
    /// first one can give a chunk up.
    #[inline]
    pub fn accept_whole_ones(&mut self) -> Option<ChunkError> {
        let gives_up = self.is_within().then_some(ChunkError::NoLast);
        self.set(self.next, State::Between);
        gives_up
    }

    /// Something of the e-link was missed: an open chunk is lost, and pieces are skipped until the next one begins.
    pub fn give_up(&mut self) {
        self.set(self.next, State::Lost);
    }

    /// Takes the next sub-chunk.
    #[inline]
    pub fn accept(&mut self, trailer: Trailer) -> Accepted {
        let kind = match trailer.kind() {
            // Data that a time-out cut off end a chunk, whether it lies in one piece or several.
            SubChunkType::Timeout if trailer.has_data() => match self.state {
                State::Between => SubChunkType::Both,
                State::Within | State::Lost => SubChunkType::Last,
            },
            kind => kind,
        };
        match kind {
            SubChunkType::First | SubChunkType::Both => self.begin(trailer, kind == SubChunkType::Both),
            SubChunkType::Middle | SubChunkType::Last => self.go_on(trailer, kind == SubChunkType::Last),
            SubChunkType::OutOfBand => Self::no_data(Place::Signal),
            SubChunkType::Null | SubChunkType::Timeout | SubChunkType::Undefined => Self::no_data(Place::Skipped),
        }
    }

    #[inline]
    const fn no_data(place: Place) -> Accepted {
        Accepted { gives_up: None, place, status: Status::GOOD }
    }

    #[inline]
    fn begin(&mut self, trailer: Trailer, is_whole: bool) -> Accepted {
        let gives_up = self.is_within().then_some(ChunkError::NoLast);
        (self.bytes, self.status) = (u64::from(trailer.data_bytes()), trailer.status());
        self.set(self.next, if is_whole { State::Between } else { State::Within });
        Accepted { gives_up, place: if is_whole { Place::Whole } else { Place::Begins }, status: self.status }
    }

    #[inline]
    fn go_on(&mut self, trailer: Trailer, is_last: bool) -> Accepted {
        let skipped = |gives_up| Accepted { gives_up, ..Self::no_data(Place::Skipped) };
        let (accepted, next) = match self.state {
            State::Between => (skipped(Some(ChunkError::NoFirst)), State::Lost),
            State::Lost => (skipped(None), State::Lost),
            State::Within => {
                self.bytes += u64::from(trailer.data_bytes());
                self.status = self.status.and(trailer.status());
                if self.bytes > self.most_bytes {
                    (skipped(Some(ChunkError::Oversize)), State::Lost)
                } else {
                    let place = if is_last { Place::Ends } else { Place::Continues };
                    (Accepted { gives_up: None, place, status: self.status }, State::Within)
                }
            }
        };
        self.set(self.next, if is_last { State::Between } else { next });
        accepted
    }
}
