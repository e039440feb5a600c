//! Which sub-chunks of one e-link make up a chunk.

use super::{BlockHeader, ChunkError, LARGEST_BLOCK_BYTES, SEQUENCES, Status, SubChunkType, Trailer};

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

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Between two chunks.
    Between,
    /// Within a chunk.
    Within { bytes: u64, status: Status },
    /// Within a chunk of which something was missed, or perhaps between two: waits for the next beginning.
    Lost,
}

/// Follows the blocks of one e-link and says what makes up a chunk. Holds no bytes.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// The sequence number of the next block, from when one was seen.
    next: Option<u8>,
    state: State,
    most_bytes: u64,
}

impl Assembly {
    /// An e-link of which no block was seen. A chunk may have `most_bytes` bytes, or [`LARGEST_BLOCK_BYTES`] if that
    /// is more: a beginning is never too large, so that no sub-chunk can give up two chunks at once.
    pub const fn new(most_bytes: u64) -> Self {
        let least = LARGEST_BLOCK_BYTES as u64;
        Self { next: None, state: State::Between, most_bytes: if most_bytes > least { most_bytes } else { least } }
    }

    /// Whether a chunk has begun and not ended.
    #[inline]
    pub const fn is_within(&self) -> bool {
        matches!(self.state, State::Within { .. })
    }

    /// A good block comes. Returns how many are missing before it, modulo 32: then [`Self::give_up`] was called.
    /// The first block of all is believed; if it is not number 0, the e-link is joined in the middle.
    #[inline]
    pub fn begin_block(&mut self, header: BlockHeader) -> u8 {
        let missing = match self.next {
            None => {
                if header.sequence != 0 {
                    self.state = State::Lost;
                }
                0
            }
            Some(next) => header.sequence.wrapping_sub(next) % SEQUENCES,
        };
        self.next = Some((header.sequence + 1) % SEQUENCES);
        if missing > 0 {
            self.give_up();
        }
        missing
    }

    /// A damaged block comes whose header can be read. If it has the number that is expected, it is believed to be of
    /// this e-link: true, and [`Self::give_up`] was called. Else it may be anybody's.
    pub fn damaged_block(&mut self, header: BlockHeader) -> bool {
        let is_next = self.next == Some(header.sequence);
        if is_next {
            self.next = Some((header.sequence + 1) % SEQUENCES);
            self.give_up();
        }
        is_next
    }

    /// Takes a whole block whose number is due and that ends a chunk, brings any whole ones without flags, and begins a
    /// chunk: the same as [`Self::begin_block`] and [`Self::accept`] for each. Gives the flags of the chunk that ends;
    /// nothing, and nothing was done, if this is not such a block.
    #[inline]
    pub fn accept_ends(&mut self, header: BlockHeader, ends: Trailer, begins: Trailer) -> Option<Status> {
        let State::Within { bytes, status } = self.state else { return None };
        let fits = bytes + u64::from(ends.data_bytes()) <= self.most_bytes;
        let is_it = ends.kind() == SubChunkType::Last && begins.kind() == SubChunkType::First;
        if !fits || !is_it || self.next != Some(header.sequence) {
            return None;
        }
        self.next = Some((header.sequence + 1) % SEQUENCES);
        self.state = State::Within { bytes: u64::from(begins.data_bytes()), status: begins.status() };
        Some(status.and(ends.status()))
    }

    /// Takes any number of whole chunks without flags: the same as [`Self::accept`] for each of them, of which only the
    /// first one can give a chunk up.
    #[inline]
    pub fn accept_whole_ones(&mut self) -> Option<ChunkError> {
        let gives_up = self.is_within().then_some(ChunkError::NoLast);
        self.state = State::Between;
        gives_up
    }

    /// Something of the e-link was missed: an open chunk is lost, and pieces are skipped until the next one begins.
    pub fn give_up(&mut self) {
        self.state = State::Lost;
    }

    /// Takes the next sub-chunk.
    #[inline]
    pub fn accept(&mut self, trailer: Trailer) -> Accepted {
        let kind = match trailer.kind() {
            // Data that a time-out cut off end a chunk, whether it lies in one piece or several.
            SubChunkType::Timeout if trailer.has_data() => match self.state {
                State::Between => SubChunkType::Both,
                State::Within { .. } | State::Lost => SubChunkType::Last,
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
        let (bytes, status) = (u64::from(trailer.data_bytes()), trailer.status());
        self.state = if is_whole { State::Between } else { State::Within { bytes, status } };
        Accepted { gives_up, place: if is_whole { Place::Whole } else { Place::Begins }, status }
    }

    #[inline]
    fn go_on(&mut self, trailer: Trailer, is_last: bool) -> Accepted {
        let skipped = |gives_up| Accepted { gives_up, ..Self::no_data(Place::Skipped) };
        let (accepted, next) = match self.state {
            State::Between => (skipped(Some(ChunkError::NoFirst)), State::Lost),
            State::Lost => (skipped(None), State::Lost),
            State::Within { bytes, status } => {
                let (bytes, status) = (bytes + u64::from(trailer.data_bytes()), status.and(trailer.status()));
                if bytes > self.most_bytes {
                    (skipped(Some(ChunkError::Oversize)), State::Lost)
                } else {
                    let place = if is_last { Place::Ends } else { Place::Continues };
                    (Accepted { gives_up: None, place, status }, State::Within { bytes, status })
                }
            }
        };
        self.state = if is_last { State::Between } else { next };
        accepted
    }
}
