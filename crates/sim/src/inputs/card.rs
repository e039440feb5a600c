//! A small card for a router: chunks that tell their number, in blocks of which some are lost, up to decoded batches.

use super::choices::Choices;
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder, EventRule};
use ropewalk_flow::stream::{BatchCursor, Router};
use ropewalk_memory::PoolConfig;
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, SEQUENCES, Status};

/// Bytes of a chunk's head: its number, its e-link, its card.
const HEAD: usize = 6;
const PAGE: usize = 2 << 10;
const PAGES: usize = 6;

/// A card, its ring, and who decodes it.
pub(super) struct Card {
    name: u8,
    writer: RingWriter,
    ring: RingReader,
    decoder: ChunkDecoder,
    encoders: Vec<Encoder>,
    /// By e-link: blocks lost since the last one that was written.
    lost: Vec<u32>,
    /// Up to where blocks were decoded.
    position: u64,
    /// How far the last batch was routed; none when all of it was.
    cursor: Option<BatchCursor>,
}

impl Card {
    /// A card of so many e-links. One of even name has blocks with narrow trailers.
    pub(super) fn new(name: u8, elinks: u16) -> Self {
        let format = if name.is_multiple_of(2) { BlockFormat::NARROW } else { BlockFormat::WIDE };
        let (writer, ring) = ring(PoolConfig::heap("card", PAGE, PAGES)).expect("memory for a small ring");
        let chunks = ChunkConfig { blocks_per_batch: 4, open_pieces: 16, ..ChunkConfig::new(format) };
        Self {
            name,
            writer,
            ring,
            decoder: ChunkDecoder::new(chunks),
            encoders: (0..elinks).map(|elink| Encoder::new(format, ELink::new(elink))).collect(),
            lost: vec![0; elinks.into()],
            position: 0,
            cursor: None,
        }
    }

    /// An e-link says something: a chunk with this number, a signal, or that nothing more comes for a while.
    pub(super) fn say(&mut self, choices: &mut Choices<'_>, number: u32) {
        let (elink, mut blocks) = (choices.below(self.encoders.len() as u64) as u16, Vec::new());
        let length = if choices.below(4) == 0 { choices.below(3000) } else { choices.below(60) };
        let chunk = self.chunk(number, elink, HEAD + length as usize);
        let encoder = &mut self.encoders[usize::from(elink)];
        match choices.below(8) {
            0 => encoder.out_of_band(number, &mut blocks),
            1 => encoder.time_out(&mut blocks),
            2 | 3 => encoder.flush(&mut blocks),
            _ => encoder.chunk(&chunk, status_of(number), &mut blocks),
        }
        for block in blocks.chunks(self.decoder.block_bytes()) {
            // A gap of as many blocks as there are numbers is none: that is how the format is.
            let lost = &mut self.lost[usize::from(elink)];
            let comes_round = *lost > 0 && lost.is_multiple_of(SEQUENCES.into());
            let space = self.writer.space();
            if comes_round || choices.below(16) == 0 || space.len() < block.len() {
                *lost += 1;
                continue;
            }
            *lost = 0;
            space[..block.len()].copy_from_slice(block);
            let _ = self.writer.commit(block.len());
        }
    }

    fn chunk(&self, number: u32, elink: u16, length: usize) -> Vec<u8> {
        let mut chunk = number.to_le_bytes().to_vec();
        chunk.extend([elink as u8, self.name]);
        chunk.extend((HEAD..length).map(|place| (number as usize + place) as u8));
        chunk
    }

    /// The number of a chunk that this card may have said, byte by byte.
    ///
    /// # Panics
    /// Where it never said that.
    pub(super) fn number_of(&self, chunk: &[u8], elink: ELink, status: Status) -> u32 {
        let number = chunk.first_chunk().map(|word| u32::from_le_bytes(*word)).expect("a chunk has a head");
        assert_eq!(chunk, self.chunk(number, elink.number(), chunk.len()), "nobody said that");
        assert_eq!(status, status_of(number), "its flags are others");
        number
    }

    /// Routes what is there, a batch at most; false when somebody must be waited for.
    pub(super) fn route(&mut self, router: &mut Router, now: Instant) -> bool {
        self.ring.poll().expect("our own writer");
        if self.cursor.is_none() {
            let taken = self.decoder.decode(self.ring.bytes(self.position), self.position);
            self.position += taken as u64;
            self.cursor = (taken > 0).then(BatchCursor::default);
        }
        let Some(cursor) = &mut self.cursor else {
            self.free_what_stalls();
            return true;
        };
        let (batch, before) = (self.decoder.batch(), router.received().0);
        let passed = router.route(batch, &mut self.ring, &EventRule::USUAL.into(), cursor, now);
        assert!(router.received().0 - before <= passed as u64, "more was received than was passed");
        if cursor.is_at_end(batch) {
            self.cursor = None;
            self.done();
        }
        self.cursor.is_none()
    }

    fn done(&mut self) {
        self.ring.done_to(self.decoder.oldest_open().unwrap_or(u64::MAX).min(self.position));
    }

    /// A chunk that is open for a whole ring is given up.
    fn free_what_stalls(&mut self) {
        if self.ring.is_full() && self.decoder.give_up_before(self.ring.released() + self.ring.page_bytes()) > 0 {
            self.done();
        }
    }

    /// Nobody has anything of it any more.
    ///
    /// # Panics
    /// Where a page is missing that is done with.
    pub(super) fn check_home(&mut self) {
        self.ring.poll().expect("our own writer");
        let pages = self.ring.written().div_ceil(PAGE as u64) - self.ring.done() / PAGE as u64;
        assert_eq!(self.ring.account().held, pages, "a page did not come home");
    }
}

/// The flags of the chunk with a number.
const fn status_of(number: u32) -> Status {
    if number.is_multiple_of(5) { Status::ERROR } else { Status::GOOD }
}
