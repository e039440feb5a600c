//! Chunks of many e-links, packed into blocks.

use super::{CARD_FAULTS, CardFault, CardFaults, ChunkSize, chunk_bytes};
use crate::source::Random;
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status, SubChunkType, Trailer};

/// What an emulated card is to be.
#[derive(Clone, Debug)]
pub struct BlockSourceConfig {
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// Its e-links, in the order in which they speak.
    pub elinks: Vec<ELink>,
    /// How large chunks are.
    pub size: ChunkSize,
    /// Everything random follows from it.
    pub seed: u64,
    /// What goes wrong, and how often.
    pub faults: CardFaults,
}

/// Writes the blocks of a card. Allocates only where the vector that it appends to grows, and for the largest chunk.
#[derive(Clone, Debug)]
pub struct BlockSource {
    config: BlockSourceConfig,
    encoders: Vec<Encoder>,
    random: Random,
    /// The number of the next chunk of every e-link.
    number: u64,
    chunk: Vec<u8>,
    struck: [u64; CARD_FAULTS.len()],
    bytes: u64,
}

impl BlockSource {
    /// A card that has said nothing yet. Its chunks are numbered from 1.
    pub fn new(config: BlockSourceConfig) -> Self {
        let encoders = config.elinks.iter().map(|&elink| Encoder::new(config.format, elink)).collect();
        let random = Random::new(config.seed, 0);
        let struck = [0; CARD_FAULTS.len()];
        Self { config, encoders, random, number: 1, chunk: Vec::new(), struck, bytes: 0 }
    }

    /// One more chunk of every e-link. Blocks that are full are appended to `out`.
    pub fn turn(&mut self, out: &mut Vec<u8>) {
        for link in 0..self.encoders.len() {
            let before = out.len();
            self.say(link, out);
            self.strike_blocks(before, out);
        }
        self.number += 1;
    }

    /// The blocks that are not full yet, filled up.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        for encoder in &mut self.encoders {
            encoder.flush(out);
        }
    }

    /// How many chunks every e-link has said, those with faults included.
    pub const fn turns(&self) -> u64 {
        self.number - 1
    }

    /// Bytes of all chunks, those with faults included.
    pub const fn payload_bytes(&self) -> u64 {
        self.bytes
    }

    /// How often a fault struck.
    pub const fn struck(&self, fault: CardFault) -> u64 {
        self.struck[fault as usize]
    }

    fn say(&mut self, link: usize, out: &mut Vec<u8>) {
        let length = self.config.size.next(&mut self.random) as usize;
        chunk_bytes(self.config.elinks[link], self.number, length, &mut self.chunk);
        self.bytes += length as u64;
        let fault = self.draw(false);
        let encoder = &mut self.encoders[link];
        let piece = |kind| Trailer::new(kind, 2, Status::GOOD);
        match fault {
            Some(CardFault::NoFirst) => encoder.sub_chunk(piece(SubChunkType::Last), &[0; 2], out),
            Some(CardFault::NoLast) => encoder.sub_chunk(piece(SubChunkType::First), &[0; 2], out),
            _ => encoder.chunk(&self.chunk, fault.map_or(Status::GOOD, CardFault::status), out),
        }
        if fault == Some(CardFault::Silence) {
            encoder.time_out(out);
        }
    }

    /// Which fault strikes the next chunk or block, if any does.
    fn draw(&mut self, blocks: bool) -> Option<CardFault> {
        for &fault in CARD_FAULTS.iter().filter(|fault| fault.strikes_blocks() == blocks) {
            let likelihood = self.config.faults.of(fault);
            if likelihood > 0.0 && self.random.unit() <= likelihood {
                self.struck[fault as usize] += 1;
                return Some(fault);
            }
        }
        None
    }

    /// Gives the blocks from `start` on their faults.
    fn strike_blocks(&mut self, start: usize, out: &mut Vec<u8>) {
        let format = self.config.format;
        let is_whole = !CARD_FAULTS.iter().any(|fault| fault.strikes_blocks() && self.config.faults.of(*fault) > 0.0);
        if is_whole || out.len() == start {
            return;
        }
        let blocks = out.split_off(start);
        for block in blocks.chunks(format.block_bytes()) {
            let at = out.len();
            out.extend_from_slice(block);
            if let Some(fault) = self.draw(true) {
                fault.strike(out, at, format);
            }
        }
    }
}
