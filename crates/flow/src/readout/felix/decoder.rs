//! Blocks to chunks, batch by batch.

use super::links::Links;
use super::{ChunkBatch, ChunkConfig, ChunkReport, Piece, Run, Scattered};
use ropewalk_wire::felix::{
    BlockError, BlockHeader, BlockWalk, ChunkError, ELink, Place, Status, SubChunk, SubChunkType, Trailer, Walked,
    Walker,
};

/// Decodes the blocks of one card. Allocates only when it is made.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    walker: Walker,
    batch: ChunkBatch,
    assembler: Assembler,
}

impl ChunkDecoder {
    /// No block was seen yet.
    pub fn new(config: ChunkConfig) -> Self {
        Self::with_walker(config, Walker::new(config.format.layout()))
    }

    /// The same with another walk than the fastest one, for tests and measurements.
    pub fn with_walker(config: ChunkConfig, mut walker: Walker) -> Self {
        walker.leave_rest();
        let ChunkConfig { format, blocks_per_batch, most_chunk_bytes, open_pieces } = config;
        let batch = ChunkBatch {
            format,
            position: 0,
            walked: Walked::new(format.layout(), blocks_per_batch, 24),
            runs: Vec::with_capacity(blocks_per_batch),
            // A block of pairs of pieces, each pair a chunk, is possible though no card writes it.
            scattered: Vec::with_capacity(blocks_per_batch * (format.most_sub_chunks() / 2 + 1)),
            pieces: Vec::with_capacity(open_pieces + blocks_per_batch * format.most_sub_chunks()),
            needs_from: 0,
        };
        let links = Links::new(most_chunk_bytes, open_pieces);
        // The worst that a batch can be: every sub-chunk gives a chunk up.
        let faults = Vec::with_capacity(blocks_per_batch * (format.most_sub_chunks() + 1));
        let assembler = Assembler { links, report: ChunkReport::default(), faults };
        Self { walker, batch, assembler }
    }

    /// Decodes the blocks that `bytes` begin with, as many as a batch has, and says how many bytes those are. `bytes`
    /// begin at `position` of the card's stream; what is behind their last whole block stays.
    pub fn decode(&mut self, bytes: &[u8], position: u64) -> usize {
        let batch = &mut self.batch;
        batch.position = position;
        batch.needs_from = position;
        batch.runs.clear();
        batch.scattered.clear();
        batch.pieces.clear();
        self.assembler.faults.clear();
        let blocks = self.walker.walk(bytes, &mut batch.walked);
        self.assembler.assemble(batch, |block| self.walker.prefetch_rest(bytes, blocks + block));
        blocks * batch.format.block_bytes()
    }

    /// The chunks of the blocks that were decoded last.
    pub const fn batch(&self) -> &ChunkBatch {
        &self.batch
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> usize {
        self.batch.format.block_bytes()
    }

    /// What has been seen so far.
    pub const fn report(&self) -> &ChunkReport {
        &self.assembler.report
    }

    /// Whose chunks were given up by the last [`Self::decode`], or the last [`Self::give_up_before`] since, and why. A
    /// sequence gap is among them where a chunk was open: how many others it cost nobody knows.
    pub fn faults(&self) -> &[(ELink, ChunkError)] {
        &self.assembler.faults
    }

    /// The position of the oldest piece that an open chunk needs.
    pub fn oldest_open(&self) -> Option<u64> {
        self.assembler.links.oldest().map(|(_, position)| position)
    }

    /// Gives up every open chunk that begins before `position`: an e-link that says `first` and then no more must not
    /// keep the card's buffer for ever. Returns how many.
    pub fn give_up_before(&mut self, position: u64) -> u64 {
        let mut count = 0;
        self.assembler.faults.clear();
        while let Some((elink, begins)) = self.assembler.links.oldest()
            && begins < position
        {
            self.assembler.links.link(elink).assembly.give_up();
            self.assembler.drop_open(elink, ChunkError::Stalled);
            count += 1;
        }
        count
    }
}

/// Puts sub-chunks together, e-link by e-link.
#[derive(Clone, Debug)]
struct Assembler {
    links: Links,
    report: ChunkReport,
    faults: Vec<(ELink, ChunkError)>,
}

/// What of a batch is filled.
struct Output<'a> {
    position: u64,
    runs: &'a mut Vec<Run>,
    scattered: &'a mut Vec<Scattered>,
    pieces: &'a mut Vec<Piece>,
    needs_from: &'a mut u64,
}

impl Assembler {
    /// Assembles what was walked, and tells which block it is at: the one that is as far in the next batch comes soon.
    #[inline]
    fn assemble(&mut self, batch: &mut ChunkBatch, prefetch: impl Fn(usize)) {
        let ChunkBatch { position, walked, runs, scattered, pieces, needs_from, .. } = batch;
        let mut out = Output { position: *position, runs, scattered, pieces, needs_from };
        let (blocks, sub_chunks) = walked.parts();
        self.report.blocks += blocks.len() as u64;
        for (index, block) in blocks.iter().enumerate() {
            prefetch(index);
            if block.fault != 0 {
                self.damaged(block);
                continue;
            }
            let header = BlockHeader::of_word(block.header);
            let items = &mut sub_chunks[block.first as usize..][..block.count as usize];
            if block.is_plain() && self.passes(header, items, &mut out) {
                let (first, count, sequence) = (block.first, block.count as u16 - 1, header.sequence);
                out.runs.push(Run { first, count, elink: header.elink, block: index as u32, sequence });
                continue;
            }
            let missing = self.links.link(header.elink).assembly.begin_block(header);
            if missing > 0 {
                self.report.blocks_missing += u64::from(missing);
                self.drop_open(header.elink, ChunkError::SequenceGap);
            }
            let (before, count) = if block.is_plain() {
                self.plain(header.elink, items, &mut out)
            } else {
                self.odd(header.elink, items, &mut out)
            };
            if count > 0 {
                let (first, sequence) = (block.first + before as u32, header.sequence);
                out.runs.push(Run { first, count: count as u16, elink: header.elink, block: index as u32, sequence });
            }
        }
    }

    /// The most frequent block by far: it ends a chunk, brings whole ones, and begins a chunk. Does nothing and says so
    /// if this is none.
    #[inline]
    fn passes(&mut self, header: BlockHeader, items: &mut [SubChunk], out: &mut Output<'_>) -> bool {
        let [head, middle @ .., tail] = items else { return false };
        let (ends, begins) = (Trailer(head.trailer), Trailer(tail.trailer));
        let Some(status) = self.links.link(header.elink).assembly.accept_ends(header, ends, begins) else {
            return false;
        };
        let piece = |item: &SubChunk, length| Piece { position: out.position + u64::from(item.offset), length };
        let (last, first) = (piece(head, ends.data_bytes()), piece(tail, begins.data_bytes()));
        self.end(header.elink, last, status, head, out);
        self.report.chunks += middle.len() as u64;
        self.links.open(header.elink, first);
        true
    }

    /// A block of whole chunks between any first and any last sub-chunk: those in the middle are items as they are.
    /// Returns how many sub-chunks before the items are none, and how many items there are.
    #[inline]
    fn plain(&mut self, elink: ELink, items: &mut [SubChunk], out: &mut Output<'_>) -> (usize, usize) {
        let [head, middle @ ..] = items else { return (0, 0) };
        let is_head = self.item(elink, head, out);
        let [middle @ .., tail] = middle else { return (0, usize::from(is_head)) };
        if !middle.is_empty() {
            if let Some(error) = self.links.link(elink).assembly.accept_whole_ones() {
                self.drop_open(elink, error);
            }
            self.report.chunks += middle.len() as u64;
        }
        let is_tail = self.item(elink, tail, out);
        (usize::from(!is_head), usize::from(is_head) + middle.len() + usize::from(is_tail))
    }

    /// A block of anything: its items are moved together.
    fn odd(&mut self, elink: ELink, items: &mut [SubChunk], out: &mut Output<'_>) -> (usize, usize) {
        let mut count = 0;
        for index in 0..items.len() {
            let mut item = items[index];
            if self.item(elink, &mut item, out) {
                items[count] = item;
                count += 1;
            }
        }
        (0, count)
    }

    /// Makes an item of a sub-chunk, or says that it is none.
    #[inline]
    fn item(&mut self, elink: ELink, item: &mut SubChunk, out: &mut Output<'_>) -> bool {
        let trailer = Trailer(item.trailer);
        let accepted = self.links.link(elink).assembly.accept(trailer);
        if let Some(error) = accepted.gives_up {
            self.drop_open(elink, error);
        }
        let piece = Piece { position: out.position + u64::from(item.offset), length: trailer.data_bytes() };
        match accepted.place {
            Place::Whole => self.count_chunk(accepted.status),
            Place::Signal => self.report.signals += 1,
            Place::Skipped => return false,
            Place::Begins => {
                self.links.open(elink, piece);
                return false;
            }
            Place::Continues => {
                if !self.links.append(elink, piece) {
                    self.no_room(elink);
                }
                return false;
            }
            Place::Ends => return self.end(elink, piece, accepted.status, item, out),
        }
        true
    }

    /// The last piece of a chunk: its item becomes a scattered one.
    #[inline(always)]
    fn end(&mut self, elink: ELink, piece: Piece, status: Status, item: &mut SubChunk, out: &mut Output<'_>) -> bool {
        let link = self.links.link(elink);
        let (first, pieces, bytes) = (out.pieces.len() as u32, link.pieces + 1, link.bytes + u64::from(piece.length));
        self.links.close(elink, |piece| out.pieces.push(piece));
        out.pieces.push(piece);
        *out.needs_from = out.pieces[first as usize].position.min(*out.needs_from);
        let place = out.scattered.len() as u32;
        out.scattered.push(Scattered { bytes, first, pieces, status });
        *item = SubChunk { offset: place, trailer: Trailer::new(SubChunkType::Last, 0, status).0 };
        self.report.scattered += 1;
        self.count_chunk(status);
        true
    }

    #[inline]
    fn count_chunk(&mut self, status: Status) {
        self.report.chunks += 1;
        if !status.is_good() {
            self.report.count_status(status);
        }
    }

    /// There is no room for a piece: the rest of its chunk is skipped.
    #[cold]
    fn no_room(&mut self, elink: ELink) {
        self.links.link(elink).assembly.give_up();
        self.drop_open(elink, ChunkError::Oversize);
    }

    /// The open chunk, if there is one, goes, and why is counted.
    #[cold]
    fn drop_open(&mut self, elink: ELink, error: ChunkError) {
        self.report.count_error(error);
        if error != ChunkError::SequenceGap || self.links.link(elink).pieces > 0 {
            self.faults.push((elink, error));
        }
        self.links.close(elink, |_| {});
    }

    /// A block of which nothing is believed, but whose it is if it comes when that e-link's next one is due.
    #[cold]
    fn damaged(&mut self, block: &BlockWalk) {
        let error = BlockError::from_u8(block.fault as u8).expect("a walk tells errors by their numbers");
        self.report.block_errors[error as usize - 1] += 1;
        if error == BlockError::StartOfBlock {
            return;
        }
        let header = BlockHeader::of_word(block.header);
        let link = self.links.link(header.elink);
        let was_within = link.assembly.is_within();
        if link.assembly.damaged_block(header) && was_within {
            self.drop_open(header.elink, ChunkError::Damaged);
        }
    }
}
