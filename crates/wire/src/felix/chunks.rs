//! Chunks and blocks: assembles the sub-chunks of one e-link to chunks, and encodes chunks into blocks.
//!
//! The [`Decoder`] is as simple as possible. Tools use it, and tests compare faster code with it.

use std::collections::BTreeMap;

use super::{
    BlockError, BlockFormat, BlockHeader, ChunkError, ELink, HEADER_BYTES, LARGEST_BLOCK_BYTES, SEQUENCES, Status,
    SubChunk, SubChunkType, Trailer, walk,
};

/// The destination of a sub-chunk's data.
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
    /// Not used: filler, or a piece of a dropped chunk.
    Skipped,
}

/// The result for a sub-chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// First step: a chunk is dropped for this reason, together with its kept bytes.
    pub gives_up: Option<ChunkError>,
    /// Second step: the destination of the data.
    pub place: Place,
    /// All flags of the chunk so far, or of the chunk just completed.
    pub status: Status,
}

/// The state of an assembly.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Between two chunks.
    Between,
    /// Within a chunk.
    Within,
    /// Within a chunk of which data are missing, or perhaps between two: waits for the next beginning.
    Lost,
}

/// Follows the blocks of one e-link and determines the pieces of each chunk. Holds no bytes of it. Small, since a
/// decoder has one for each e-link and switches between them with each block.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Bytes of the open chunk, and their maximum.
    bytes: u64,
    most_bytes: u64,
    /// The sequence number of the next block, or [`UNSEEN`].
    next: u8,
    /// The same within a chunk, and [`NEVER`] otherwise: one comparison shows whether a block continues the open chunk.
    goes_on: u8,
    state: State,
    /// All flags of the open chunk.
    status: Status,
}

/// Replaces a sequence number: no block was seen yet.
const UNSEEN: u8 = SEQUENCES;
/// Replaces a sequence number: matches none.
const NEVER: u8 = SEQUENCES + 1;

impl Assembly {
    /// Makes the state of an e-link before its first block. A chunk may have `most_bytes` bytes, or
    /// [`LARGEST_BLOCK_BYTES`] if that is more: a beginning is never too large, so no sub-chunk can make two chunks be
    /// dropped at once.
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

    /// Bytes of the open chunk, or of the last completed one.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    const fn set(&mut self, next: u8, state: State) {
        (self.next, self.state) = (next, state);
        self.goes_on = if matches!(state, State::Within) { next } else { NEVER };
    }

    /// Begins a good block. Returns the number of missing blocks before it, modulo 32. If any are missing, the state is
    /// as after [`Self::give_up`]. The first block of all is accepted; if its number is not 0, the e-link is joined in
    /// the middle.
    #[inline]
    pub fn begin_block(&mut self, header: BlockHeader) -> u8 {
        let behind = (header.sequence + 1) % SEQUENCES;
        let (missing, state) = match self.next {
            UNSEEN if header.sequence != 0 => (0, State::Lost),
            UNSEEN => (0, self.state),
            next if header.sequence == next => (0, self.state),
            next => (header.sequence.wrapping_sub(next) % SEQUENCES, State::Lost),
        };
        self.set(behind, state);
        missing
    }

    /// Reports a damaged block whose header can be read. If it has the expected number, it is taken to be of this
    /// e-link: returns true, and the state is as after [`Self::give_up`]. Otherwise it may be of any e-link.
    pub fn damaged_block(&mut self, header: BlockHeader) -> bool {
        let is_next = self.next == header.sequence;
        if is_next {
            self.set((header.sequence + 1) % SEQUENCES, State::Lost);
        }
        is_next
    }

    /// Takes a whole block with the expected number that ends a chunk, contains any number of whole ones without flags,
    /// and begins a chunk: the same as [`Self::begin_block`] and [`Self::accept`] for each. Returns the flags and bytes
    /// of the chunk that ends. `None`, with no change, if this is not such a block.
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

    /// Takes a whole block with the expected number that is one piece of a chunk, neither its first nor its last one:
    /// the same as [`Self::begin_block`] and [`Self::accept`]. False, with no change, if this is not such a block.
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

    /// Number of bytes of the open chunk with this piece of a block, if a chunk is open, the block has the expected
    /// number, and the bytes are not too many.
    #[inline]
    fn with_more(&self, header: BlockHeader, piece: Trailer) -> Option<u64> {
        let bytes = self.bytes + u64::from(piece.data_bytes());
        (self.goes_on == header.sequence && bytes <= self.most_bytes).then_some(bytes)
    }

    /// Takes any number of whole chunks without flags: the same as [`Self::accept`] for each of them. Only the first
    /// one can make a chunk be dropped.
    #[inline]
    pub fn accept_whole_ones(&mut self) -> Option<ChunkError> {
        let gives_up = self.is_within().then_some(ChunkError::NoLast);
        self.set(self.next, State::Between);
        gives_up
    }

    /// Reports lost data of the e-link: an open chunk is lost, and pieces are skipped until the next one begins.
    pub fn give_up(&mut self) {
        self.set(self.next, State::Lost);
    }

    /// Takes the next sub-chunk.
    #[inline]
    pub fn accept(&mut self, trailer: Trailer) -> Accepted {
        let kind = match trailer.kind() {
            // Data that a time-out cut off end a chunk, in one piece or several.
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

/// A result of decoding blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// A whole chunk.
    Chunk {
        /// The e-link.
        elink: ELink,
        /// Its bytes.
        bytes: Vec<u8>,
        /// All flags of its pieces.
        status: Status,
    },
    /// A signal outside the data.
    Signal {
        /// The e-link.
        elink: ELink,
        /// Its 13 or 29 bits.
        signal: u32,
    },
    /// A chunk was dropped, or pieces of it were missed.
    ChunkError {
        /// The e-link of the chunk.
        elink: ELink,
        /// The reason.
        error: ChunkError,
    },
    /// A block was dropped, together with the chunk that it interrupts.
    BlockError(BlockError),
}

/// Decodes blocks one by one and copies the chunks. For tools and tests: the reference for faster code.
#[derive(Clone, Debug)]
pub struct Decoder {
    format: BlockFormat,
    most_bytes: u64,
    links: BTreeMap<ELink, Link>,
    sub_chunks: Vec<SubChunk>,
}

#[derive(Clone, Debug)]
struct Link {
    assembly: Assembly,
    /// The open chunk.
    bytes: Vec<u8>,
}

impl Decoder {
    /// Makes the state before the first block. Chunks may have `most_bytes` bytes (see [`Assembly::new`]).
    pub fn new(format: BlockFormat, most_bytes: u64) -> Self {
        Self { format, most_bytes, links: BTreeMap::new(), sub_chunks: Vec::new() }
    }

    /// Decodes the next block and passes its contents to `out`, in order.
    pub fn block(&mut self, block: &[u8], out: &mut impl FnMut(Decoded)) {
        let mut sub_chunks = core::mem::take(&mut self.sub_chunks);
        sub_chunks.clear();
        match walk(block, self.format, &mut sub_chunks) {
            Ok(header) => self.good_block(header, block, &sub_chunks, out),
            Err(error) => self.damaged_block(block, error, out),
        }
        self.sub_chunks = sub_chunks;
    }

    /// Decodes consecutive blocks; an incomplete block at the end counts as damaged.
    pub fn blocks(&mut self, bytes: &[u8], out: &mut impl FnMut(Decoded)) {
        bytes.chunks(self.format.block_bytes()).for_each(|block| self.block(block, out));
    }

    /// Number of e-links within a chunk: at the end of a stream those chunks are cut short.
    pub fn open_chunks(&self) -> usize {
        self.links.values().filter(|link| link.assembly.is_within()).count()
    }

    fn link(&mut self, elink: ELink) -> &mut Link {
        let assembly = Assembly::new(self.most_bytes);
        self.links.entry(elink).or_insert(Link { assembly, bytes: Vec::new() })
    }

    fn good_block(
        &mut self,
        header: BlockHeader,
        block: &[u8],
        sub_chunks: &[SubChunk],
        out: &mut impl FnMut(Decoded),
    ) {
        let (elink, format) = (header.elink, self.format);
        let link = self.link(elink);
        if link.assembly.begin_block(header) > 0 {
            out(Decoded::ChunkError { elink, error: ChunkError::SequenceGap });
        }
        for sub_chunk in sub_chunks {
            let trailer = Trailer(sub_chunk.trailer);
            let accepted = link.assembly.accept(trailer);
            if let Some(error) = accepted.gives_up {
                out(Decoded::ChunkError { elink, error });
            }
            let start = sub_chunk.offset as usize;
            let data = &block[start..start + trailer.data_bytes() as usize];
            match accepted.place {
                Place::Whole | Place::Begins => link.bytes = data.to_vec(),
                Place::Continues | Place::Ends => link.bytes.extend_from_slice(data),
                Place::Signal => out(Decoded::Signal { elink, signal: trailer.signal(format) }),
                Place::Skipped => {}
            }
            if matches!(accepted.place, Place::Whole | Place::Ends) {
                let bytes = core::mem::take(&mut link.bytes);
                out(Decoded::Chunk { elink, bytes, status: accepted.status });
            }
        }
    }

    fn damaged_block(&mut self, block: &[u8], error: BlockError, out: &mut impl FnMut(Decoded)) {
        out(Decoded::BlockError(error));
        let header = block.first_chunk().filter(|_| error != BlockError::Size);
        if let Some(Ok(header)) = header.map(|header| BlockHeader::parse(header, self.format))
            && let Some(link) = self.links.get_mut(&header.elink)
        {
            let was_within = link.assembly.is_within();
            if link.assembly.damaged_block(header) && was_within {
                out(Decoded::ChunkError { elink: header.elink, error: ChunkError::Damaged });
            }
        }
    }
}

/// Packs the data of one e-link into blocks, as a link card does. Full blocks are appended to the `out` of each call;
/// the unfinished one stays here. Allocates only when `out` grows.
#[derive(Clone, Debug)]
pub struct Encoder {
    format: BlockFormat,
    header: BlockHeader,
    /// The unfinished block. It always has its header and room for at least one trailer.
    block: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder whose first block is number 0.
    pub fn new(format: BlockFormat, elink: ELink) -> Self {
        let mut block = Vec::with_capacity(format.block_bytes());
        let header = BlockHeader { elink, sequence: 0 };
        block.extend_from_slice(&header.to_bytes(format));
        Self { format, header, block }
    }

    /// The format of its blocks.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The header of the unfinished block.
    pub const fn header(&self) -> BlockHeader {
        self.header
    }

    /// Bytes left in the unfinished block, trailers included.
    pub fn room(&self) -> usize {
        self.format.block_bytes() - self.block.len()
    }

    /// Whether the unfinished block is empty.
    pub fn is_empty(&self) -> bool {
        self.block.len() == HEADER_BYTES
    }

    /// Gives the unfinished block another number: blocks before it will seem to be missing.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.header.sequence = sequence % SEQUENCES;
        self.block[..HEADER_BYTES].copy_from_slice(&self.header.to_bytes(self.format));
    }

    /// Appends a chunk, in as many blocks as needed. Its last trailer carries its flags; with [`Status::TIMED_OUT`]
    /// that is a time-out trailer, and [`Status::TRUNCATED`] is set as well.
    pub fn chunk(&mut self, mut chunk: &[u8], status: Status, out: &mut Vec<u8>) {
        let (mut whole, mut next) = (SubChunkType::Both, SubChunkType::First);
        while self.room() < self.padded(chunk.len()) + self.format.trailer_bytes() {
            let bytes = self.room() - self.format.trailer_bytes();
            if bytes == 0 {
                self.null(out);
                continue;
            }
            let (piece, rest) = chunk.split_at(bytes);
            self.sub_chunk(Trailer::new(next, bytes as u16, Status::GOOD), piece, out);
            (chunk, whole, next) = (rest, SubChunkType::Last, SubChunkType::Middle);
        }
        let length = chunk.len() as u16;
        let trailer = if status.has(Status::TIMED_OUT) {
            Trailer::new(SubChunkType::Timeout, length, status.and(Status::TRUNCATED))
        } else {
            Trailer::new(whole, length, status)
        };
        self.sub_chunk(trailer, chunk, out);
    }

    /// Appends a signal of 13 bits, or of 29 in trailers of 32 bits.
    pub fn out_of_band(&mut self, signal: u32, out: &mut Vec<u8>) {
        self.sub_chunk(Trailer::out_of_band(signal, self.format), &[], out);
    }

    /// Appends a null trailer.
    pub fn null(&mut self, out: &mut Vec<u8>) {
        self.sub_chunk(Trailer::new(SubChunkType::Null, 0, Status::GOOD), &[], out);
    }

    /// Fills up the block with null trailers; a block of nulls alone is not written.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            self.block.resize(self.format.block_bytes(), 0);
            self.finish(out);
        }
    }

    /// Ends the block after a time without data: the rest of it is filler, followed by a time-out trailer. A block of
    /// filler alone is not written.
    pub fn time_out(&mut self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let filler = self.room() - self.format.trailer_bytes();
        self.block.resize(self.block.len() + filler, 0);
        self.trailer(Trailer::new(SubChunkType::Timeout, filler as u16, Status::GOOD));
        self.finish(out);
    }

    /// Appends any sub-chunk, valid or not, to make faults. If it does not fit, the block before it is filled up with
    /// null trailers.
    ///
    /// # Panics
    /// If no block has room for the data.
    pub fn sub_chunk(&mut self, trailer: Trailer, data: &[u8], out: &mut Vec<u8>) {
        let bytes = self.padded(data.len()) + self.format.trailer_bytes();
        assert!(bytes <= self.format.block_bytes() - HEADER_BYTES, "a sub-chunk is smaller than a block");
        if bytes > self.room() {
            self.flush(out);
        }
        self.block.extend_from_slice(data);
        self.block.resize(self.block.len() + self.padded(data.len()) - data.len(), 0);
        self.trailer(trailer);
        if self.room() == 0 {
            self.finish(out);
        }
    }

    fn padded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.format.trailer_bytes())
    }

    fn trailer(&mut self, trailer: Trailer) {
        let word = trailer.to_word(self.format).to_le_bytes();
        self.block.extend_from_slice(&word[word.len() - self.format.trailer_bytes()..]);
    }

    /// Writes the full block, and begins the next one.
    fn finish(&mut self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.block.len(), self.format.block_bytes());
        out.extend_from_slice(&self.block);
        self.block.truncate(HEADER_BYTES);
        self.set_sequence(self.header.sequence + 1);
    }
}
