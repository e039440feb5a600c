//! The decoder: converts blocks to chunks, batch by batch, and keeps the open chunks of each e-link.

use super::{ChunkBatch, ChunkConfig, ChunkFault, ChunkReport, Filled, Piece, Run, Scattered};
use core::iter::Zip;
use core::slice::IterMut;
use ropewalk_wire::felix::{
    Assembly, BlockError, BlockHeader, BlockWalk, ChunkError, ELINKS, ELink, Place, Rest, Status, SubChunk,
    SubChunkType, Trailer, Walked, Walker,
};

/// Decodes the blocks of one card. It allocates only when it is created.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    walker: Walker,
    batch: ChunkBatch,
    assembler: Assembler,
}

impl ChunkDecoder {
    /// Creates a decoder before its first block.
    pub fn new(config: ChunkConfig) -> Self {
        Self::with_walker(config, Walker::new(config.format.layout()))
    }

    /// Creates a decoder with another walk than the fastest one, for tests and measurements.
    pub fn with_walker(config: ChunkConfig, mut walker: Walker) -> Self {
        walker.leave_rest();
        let ChunkConfig { format, blocks_per_batch, most_chunk_bytes, open_pieces } = config;
        let batch = ChunkBatch {
            format,
            position: 0,
            walked: Walked::new(format.layout(), blocks_per_batch, 24),
            runs: Filled::with_room_for(blocks_per_batch),
            // A block of pairs of pieces, each pair a chunk, is possible although no card writes it.
            scattered: Filled::with_room_for(blocks_per_batch * (format.most_sub_chunks() / 2 + 1)),
            // Each block can end a chunk that was open before, with a first piece in addition to those in the store.
            pieces: Filled::with_room_for(open_pieces.max(1) + blocks_per_batch * (format.most_sub_chunks() + 1)),
            needs_from: 0,
        };
        let links = Links::new(most_chunk_bytes, open_pieces);
        // The worst case of a batch: every sub-chunk gives up a chunk.
        let faults = Vec::with_capacity(blocks_per_batch * (format.most_sub_chunks() + 1));
        let assembler = Assembler { links, report: ChunkReport::default(), faults, block: 0, items: 0 };
        Self { walker, batch, assembler }
    }

    /// Decodes blocks from the beginning of `bytes`, at most a batch. Returns their length in bytes. `bytes` begins at
    /// `position` of the card's stream; bytes after the last whole block are left.
    pub fn decode(&mut self, bytes: &[u8], position: u64) -> usize {
        let batch = &mut self.batch;
        batch.position = position;
        batch.needs_from = position;
        batch.runs.clear();
        batch.scattered.clear();
        batch.pieces.clear();
        self.assembler.faults.clear();
        let blocks = self.walker.walk(bytes, &mut batch.walked);
        self.assembler.assemble(batch, self.walker.rest(bytes, blocks));
        blocks * batch.format.block_bytes()
    }

    /// Returns the chunks of the last decoded blocks.
    pub const fn batch(&self) -> &ChunkBatch {
        &self.batch
    }

    /// Returns the bytes of a block.
    pub const fn block_bytes(&self) -> usize {
        self.batch.format.block_bytes()
    }

    /// Returns the counts so far.
    pub const fn report(&self) -> &ChunkReport {
        &self.assembler.report
    }

    /// Returns the faults in the blocks of the last [`Self::decode`], in order, or those of the last
    /// [`Self::give_up_before`] since.
    pub fn faults(&self) -> &[ChunkFault] {
        &self.assembler.faults
    }

    /// Returns the number of open chunks.
    pub fn open_chunks(&self) -> usize {
        self.assembler.links.open_chunks()
    }

    /// Returns the position of the oldest piece that an open chunk needs.
    pub fn oldest_open(&self) -> Option<u64> {
        self.assembler.links.oldest().map(|(_, position)| position)
    }

    /// Gives up every open chunk that begins before `position`: an e-link that begins a chunk and never ends it must
    /// not hold the card's buffer forever. Returns how many there were.
    pub fn give_up_before(&mut self, position: u64) -> u64 {
        let mut count = 0;
        self.assembler.faults.clear();
        (self.assembler.block, self.assembler.items) = (ChunkFault::NO_BLOCK, 0);
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

/// Assembles sub-chunks, e-link by e-link.
#[derive(Clone, Debug)]
struct Assembler {
    links: Links,
    report: ChunkReport,
    faults: Vec<ChunkFault>,
    /// Index of the present block, counted from the batch's beginning, and the number of its items so far.
    block: u32,
    items: u16,
}

/// The filled part of a batch.
struct Output<'a> {
    position: u64,
    runs: &'a mut Filled<Run>,
    scattered: &'a mut Filled<Scattered>,
    pieces: &'a mut Filled<Piece>,
    needs_from: &'a mut u64,
}

/// The unfilled part of a batch, and how much of it was used.
struct Spare<'a> {
    position: u64,
    outputs: Zip<IterMut<'a, Run>, IterMut<'a, Scattered>>,
    pieces: &'a mut [Piece],
    /// Indices of the next scattered chunk, and of the next piece, in their arrays.
    place: u32,
    filled: usize,
    /// Number of runs, each with one scattered chunk, and of chunks in them.
    ended: usize,
    chunks: u64,
    needs_from: u64,
}

impl<'a> Spare<'a> {
    fn of(out: &'a mut Output<'_>) -> Self {
        let (place, filled) = (out.scattered.len() as u32, out.pieces.len());
        let outputs = out.runs.spare().iter_mut().zip(out.scattered.spare());
        let (position, pieces, needs_from) = (out.position, out.pieces.spare(), *out.needs_from);
        Self { position, outputs, pieces, place, filled, ended: 0, chunks: 0, needs_from }
    }

    /// Returns the piece that a sub-chunk with data describes.
    #[inline(always)]
    fn piece(&self, item: SubChunk) -> Piece {
        Piece { position: self.position + u64::from(item.offset), length: Trailer(item.trailer).length() }
    }
}

impl Output<'_> {
    /// Returns the piece that a sub-chunk describes.
    #[inline]
    fn piece(&self, item: &SubChunk) -> Piece {
        Piece { position: self.position + u64::from(item.offset), length: Trailer(item.trailer).data_bytes() }
    }
}

impl Assembler {
    /// Assembles the walked blocks, and prefetches the corresponding data of the next batch.
    fn assemble(&mut self, batch: &mut ChunkBatch, mut rest: Rest) {
        let ChunkBatch { position, walked, runs, scattered, pieces, needs_from, .. } = batch;
        let mut out = Output { position: *position, runs, scattered, pieces, needs_from };
        let (blocks, sub_chunks) = walked.parts();
        self.report.blocks += blocks.len() as u64;
        let mut index = 0;
        loop {
            index = self.frequent(blocks, index, sub_chunks, &mut out, &mut rest);
            let Some(block) = blocks.get(index) else { return };
            self.any(index, block, &mut sub_chunks[block.first as usize..][..block.count as usize], &mut out);
            index += 1;
        }
    }

    /// Takes blocks while they are of the most frequent kinds: one piece of a large chunk, or the end of a chunk, whole
    /// ones, and the beginning of a chunk. Returns the index of the first other block.
    ///
    /// This runs for every block, and memory is hardly slower. Counts therefore stay in registers, and nothing is
    /// checked twice.
    fn frequent(
        &mut self,
        blocks: &[BlockWalk],
        from: usize,
        sub_chunks: &mut [SubChunk],
        out: &mut Output<'_>,
        rest: &mut Rest,
    ) -> usize {
        let mut spare = Spare::of(out);
        let mut index = from;
        for block in &blocks[from..] {
            rest.prefetch_block();
            if !block.is_plain() {
                break;
            }
            let header = BlockHeader::of_word(block.header);
            let (first, count) = (block.first as usize, block.count as usize);
            let is_done = match sub_chunks.get_mut(first..first + count) {
                Some([item]) => self.goes_on(header, *item, index, &mut spare),
                Some([head, .., tail]) => self.ends(header, (head, *tail), (index, block), &mut spare),
                _ => false,
            };
            if !is_done {
                break;
            }
            index += 1;
        }
        let Spare { ended, filled, chunks, needs_from, .. } = spare;
        out.runs.fill(ended);
        out.scattered.fill(ended);
        out.pieces.fill(filled - out.pieces.len());
        *out.needs_from = needs_from;
        self.report.scattered += ended as u64;
        self.report.chunks += chunks;
        index
    }

    /// Handles a block that is one piece of a large chunk. Returns false without effect for any other block.
    #[inline(always)]
    fn goes_on(&mut self, header: BlockHeader, item: SubChunk, index: usize, spare: &mut Spare<'_>) -> bool {
        let is_it = self.links.link(header.elink).assembly.accept_middle(header, Trailer(item.trailer));
        if is_it && !self.links.append(header.elink, spare.piece(item)) {
            (self.block, self.items) = (index as u32, 0);
            self.no_room(header.elink);
        }
        is_it
    }

    /// Handles a block with the end of a chunk, whole chunks, and the beginning of a chunk. Returns false without
    /// effect for any other block.
    #[inline(always)]
    fn ends(
        &mut self,
        header: BlockHeader,
        (head, tail): (&mut SubChunk, SubChunk),
        (index, block): (usize, &BlockWalk),
        spare: &mut Spare<'_>,
    ) -> bool {
        let (ends, begins) = (Trailer(head.trailer), Trailer(tail.trailer));
        let Some((status, bytes)) = self.links.link(header.elink).assembly.accept_ends(header, ends, begins) else {
            return false;
        };
        let (last, first) = (spare.piece(*head), spare.piece(tail));
        let pieces = core::mem::take(&mut spare.pieces);
        let before = self.links.close_and_open(header.elink, first, pieces);
        pieces[before] = last;
        spare.needs_from = spare.needs_from.min(pieces[0].position);
        spare.pieces = &mut pieces[before + 1..];
        let (run, scattered) = spare.outputs.next().expect("there are as many as blocks");
        *scattered = Scattered { bytes, first: spare.filled as u32, pieces: before as u32 + 1, status };
        *head = SubChunk { offset: spare.place, trailer: Trailer::new(SubChunkType::Last, 0, status).0 };
        if !status.is_good() {
            self.report.count_status(status);
        }
        let BlockHeader { elink, sequence } = header;
        let (first, count) = (block.first, block.count as u16 - 1);
        *run = Run { first, count, whole_from: 1, elink, block: index as u32, sequence };
        (spare.filled, spare.place) = (spare.filled + before + 1, spare.place + 1);
        (spare.ended, spare.chunks) = (spare.ended + 1, spare.chunks + u64::from(count));
        true
    }

    /// Handles a block of any kind.
    #[inline(never)]
    fn any(&mut self, index: usize, block: &BlockWalk, items: &mut [SubChunk], out: &mut Output<'_>) {
        (self.block, self.items) = (index as u32, 0);
        if block.fault != 0 {
            return self.damaged(block);
        }
        let header = BlockHeader::of_word(block.header);
        let missing = self.links.link(header.elink).assembly.begin_block(header);
        if missing > 0 {
            self.report.blocks_missing += u64::from(missing);
            self.drop_open(header.elink, ChunkError::SequenceGap);
        }
        let (before, count) =
            if block.is_plain() { self.plain(header.elink, items, out) } else { self.odd(header.elink, items, out) };
        if count > 0 {
            let (first, count, sequence) = (block.first + before as u32, count as u16, header.sequence);
            let (whole_from, block) = (count, index as u32);
            out.runs.push(Run { first, count, whole_from, elink: header.elink, block, sequence });
        }
    }

    /// Handles a block of whole chunks between any first and any last sub-chunk. Those in the middle are items without
    /// a change. Returns how many sub-chunks before the items are not items, and how many items there are.
    #[inline]
    fn plain(&mut self, elink: ELink, items: &mut [SubChunk], out: &mut Output<'_>) -> (usize, usize) {
        let [head, middle @ ..] = items else { return (0, 0) };
        let is_head = self.item(elink, head, out);
        let [middle @ .., tail] = middle else { return (0, usize::from(is_head)) };
        self.items = u16::from(is_head);
        if !middle.is_empty() {
            if let Some(error) = self.links.link(elink).assembly.accept_whole_ones() {
                self.drop_open(elink, error);
            }
            self.report.chunks += middle.len() as u64;
            self.items += middle.len() as u16;
        }
        let is_tail = self.item(elink, tail, out);
        (usize::from(!is_head), usize::from(is_head) + middle.len() + usize::from(is_tail))
    }

    /// Handles a block of any sub-chunks, and compacts its items.
    fn odd(&mut self, elink: ELink, items: &mut [SubChunk], out: &mut Output<'_>) -> (usize, usize) {
        let mut count = 0;
        for index in 0..items.len() {
            let mut item = items[index];
            self.items = count as u16;
            if self.item(elink, &mut item, out) {
                items[count] = item;
                count += 1;
            }
        }
        (0, count)
    }

    /// Converts a sub-chunk to an item. Returns false if it gives none.
    #[inline]
    fn item(&mut self, elink: ELink, item: &mut SubChunk, out: &mut Output<'_>) -> bool {
        let trailer = Trailer(item.trailer);
        let accepted = self.links.link(elink).assembly.accept(trailer);
        if let Some(error) = accepted.gives_up {
            self.drop_open(elink, error);
        }
        let piece = out.piece(item);
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
            Place::Ends => {
                let bytes = self.links.link(elink).assembly.bytes();
                self.end(elink, piece, (accepted.status, bytes), item, out);
            }
        }
        true
    }

    /// Ends a chunk with its last piece, whose item becomes a scattered one.
    fn end(
        &mut self,
        elink: ELink,
        piece: Piece,
        (status, bytes): (Status, u64),
        item: &mut SubChunk,
        out: &mut Output<'_>,
    ) {
        let first = out.pieces.len() as u32;
        let before = self.links.close(elink, out.pieces.spare());
        out.pieces.fill(before);
        out.pieces.push(piece);
        let pieces = before as u32 + 1;
        *out.needs_from = out.pieces[first as usize].position.min(*out.needs_from);
        let place = out.scattered.len() as u32;
        out.scattered.push(Scattered { bytes, first, pieces, status });
        *item = SubChunk { offset: place, trailer: Trailer::new(SubChunkType::Last, 0, status).0 };
        self.report.scattered += 1;
        self.count_chunk(status);
    }

    #[inline]
    fn count_chunk(&mut self, status: Status) {
        self.report.chunks += 1;
        if !status.is_good() {
            self.report.count_status(status);
        }
    }

    /// Skips the rest of a chunk if there is no room for a piece.
    #[cold]
    fn no_room(&mut self, elink: ELink) {
        self.links.link(elink).assembly.give_up();
        self.drop_open(elink, ChunkError::Oversize);
    }

    /// Drops the open chunk, if there is one, and counts the error.
    #[cold]
    fn drop_open(&mut self, elink: ELink, error: ChunkError) {
        self.report.count_error(error);
        let was_open = error != ChunkError::SequenceGap || self.links.link(elink).pieces > 0;
        self.faults.push(ChunkFault { elink, error, block: self.block, items: self.items, was_open });
        self.links.forget(elink);
    }

    /// Handles a damaged block. Nothing in it is trusted, except its e-link if it comes when that e-link's next block
    /// is due.
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

/// No node.
const NONE: u32 = u32::MAX;

/// One e-link, aligned to a cache line, since each block belongs to another e-link.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Link {
    assembly: Assembly,
    /// The first piece of the open chunk: most chunks have no second one before they end.
    first: Piece,
    /// Number of its pieces so far; 0 if no chunk is open.
    pub(super) pieces: u32,
    /// The chain of its other pieces; unused for a single piece.
    head: u32,
    tail: u32,
}

#[derive(Copy, Clone, Debug, Default)]
struct Node {
    piece: Piece,
    next: u32,
}

/// All e-links of a card. They share one store for the pieces after the first one.
#[derive(Clone, Debug)]
pub(super) struct Links {
    links: Box<[Link; ELINKS]>,
    nodes: Box<[Node]>,
    /// The chain of unused nodes.
    free: u32,
    order: Order,
}

impl Links {
    pub(super) fn new(most_bytes: u64, open_pieces: usize) -> Self {
        let assembly = Assembly::new(most_bytes);
        let link = Link { assembly, first: Piece::default(), pieces: 0, head: NONE, tail: NONE };
        let count = open_pieces.clamp(1, NONE as usize) as u32;
        let node =
            |index: u32| Node { piece: Piece::default(), next: if index + 1 < count { index + 1 } else { NONE } };
        Self {
            links: vec![link; ELINKS].try_into().expect("as many as were made"),
            nodes: (0..count).map(node).collect(),
            free: 0,
            order: Order::new(),
        }
    }

    #[inline]
    pub(super) fn link(&mut self, elink: ELink) -> &mut Link {
        // The remainder changes nothing, since there are as many places, but makes a bounds check unnecessary.
        &mut self.links[place(elink)]
    }

    /// Opens a chunk with its first piece. No chunk may be open.
    #[inline]
    pub(super) fn open(&mut self, elink: ELink, piece: Piece) {
        let link = self.link(elink);
        debug_assert_eq!(link.pieces, 0);
        (link.first, link.pieces) = (piece, 1);
        self.order.enter(elink);
    }

    /// Appends a piece to the open chunk. Returns false if there is no room for it.
    #[inline]
    pub(super) fn append(&mut self, elink: ELink, piece: Piece) -> bool {
        let taken = self.free;
        let Some(node) = self.nodes.get_mut(taken as usize) else { return false };
        self.free = node.next;
        *node = Node { piece, next: NONE };
        let link = &mut self.links[place(elink)];
        match self.nodes.get_mut(link.tail as usize).filter(|_| link.pieces > 1) {
            Some(last) => last.next = taken,
            None => link.head = taken,
        }
        link.tail = taken;
        link.pieces += 1;
        true
    }

    /// Closes the open chunk, if there is one, and puts its pieces in order into `out`. Returns how many there are.
    ///
    /// # Panics
    /// If `out` has no room for them.
    #[inline]
    pub(super) fn close(&mut self, elink: ELink, out: &mut [Piece]) -> usize {
        let pieces = self.take(elink, out);
        if pieces > 0 {
            self.order.leave(elink);
        }
        pieces
    }

    /// Closes the open chunk, which must exist, as [`Self::close`] does, and opens another one with `piece`.
    #[inline]
    pub(super) fn close_and_open(&mut self, elink: ELink, piece: Piece, out: &mut [Piece]) -> usize {
        let link = &mut self.links[place(elink)];
        let pieces = if link.pieces == 1 {
            out[0] = link.first;
            1
        } else {
            self.take(elink, out)
        };
        let link = self.link(elink);
        (link.first, link.pieces) = (piece, 1);
        self.order.renew(elink);
        pieces
    }

    /// Gives up the open chunk, if there is one.
    pub(super) fn forget(&mut self, elink: ELink) {
        let link = &mut self.links[place(elink)];
        let pieces = core::mem::take(&mut link.pieces);
        if pieces > 1 {
            self.nodes[link.tail as usize].next = self.free;
            self.free = link.head;
        }
        if pieces > 0 {
            self.order.leave(elink);
        }
    }

    #[inline(never)]
    fn take(&mut self, elink: ELink, out: &mut [Piece]) -> usize {
        let link = &mut self.links[place(elink)];
        let pieces = core::mem::take(&mut link.pieces) as usize;
        if pieces > 0 {
            out[0] = link.first;
        }
        if pieces > 1 {
            let mut at = link.head;
            for piece in &mut out[1..pieces] {
                let node = &self.nodes[at as usize];
                *piece = node.piece;
                at = node.next;
            }
            self.nodes[link.tail as usize].next = self.free;
            self.free = link.head;
        }
        pieces
    }

    /// Returns the number of open chunks.
    fn open_chunks(&self) -> usize {
        self.links.iter().filter(|link| link.pieces > 0).count()
    }

    /// Returns the e-link whose chunk has been open the longest, and the position of that chunk.
    pub(super) fn oldest(&self) -> Option<(ELink, u64)> {
        let elink = self.order.first()?;
        Some((elink, self.links[place(elink)].first.position))
    }
}

/// Returns the index of an e-link in the table. With e-links in order, the paths with the same number of all optical
/// links would be a multiple of 4 KiB apart, and no cache would keep more than a few of them. The function is its own
/// inverse.
#[inline]
const fn place(elink: ELink) -> usize {
    (elink.index() ^ elink.index() >> 6) % ELINKS
}

/// The e-links with an open chunk, in the order in which the chunks began: a ring through [`NO_LINK`].
#[derive(Clone, Debug)]
struct Order(Box<[Neighbours; 2 * ELINKS]>);

/// The neighbours of an e-link in the order.
#[derive(Copy, Clone, Debug)]
struct Neighbours {
    before: u16,
    behind: u16,
}

/// The index that is not an e-link, where the order begins and ends.
const NO_LINK: u16 = ELINKS as u16;

impl Order {
    fn new() -> Self {
        Self(Box::new([Neighbours { before: NO_LINK, behind: NO_LINK }; 2 * ELINKS]))
    }

    #[inline]
    fn of(&mut self, place: u16) -> &mut Neighbours {
        // No bounds check is needed: the table has as many places, although the ones behind `NO_LINK` are unused.
        &mut self.0[usize::from(place) % (2 * ELINKS)]
    }

    /// Appends an e-link at the end.
    #[inline]
    fn enter(&mut self, elink: ELink) {
        let me = place(elink) as u16;
        let latest = core::mem::replace(&mut self.of(NO_LINK).before, me);
        *self.of(me) = Neighbours { before: latest, behind: NO_LINK };
        self.of(latest).behind = me;
    }

    /// Moves an e-link to the end.
    #[inline]
    fn renew(&mut self, elink: ELink) {
        self.leave(elink);
        self.enter(elink);
    }

    #[inline]
    fn leave(&mut self, elink: ELink) {
        let Neighbours { before, behind } = *self.of(place(elink) as u16);
        self.of(before).behind = behind;
        self.of(behind).before = before;
    }

    fn first(&self) -> Option<ELink> {
        let first = self.0[usize::from(NO_LINK)].behind;
        (first != NO_LINK).then(|| ELink::new(place(ELink::new(first)) as u16))
    }
}
