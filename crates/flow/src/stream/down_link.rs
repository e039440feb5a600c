//! The other direction: bytes for e-links, in blocks that the card sends out.

use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status};
use std::collections::BTreeMap;

/// Packs what is sent to e-links into blocks. An e-link's encoder is made when something is sent to it for the first time.
#[derive(Debug)]
pub struct DownLink {
    format: BlockFormat,
    encoders: BTreeMap<ELink, Encoder>,
    blocks: Vec<u8>,
    most_bytes: usize,
}

impl DownLink {
    /// Blocks of this kind, of which at most about so many bytes wait for the card.
    pub const fn new(format: BlockFormat, most_bytes: usize) -> Self {
        Self { format, encoders: BTreeMap::new(), blocks: Vec::new(), most_bytes }
    }

    /// Bytes for an e-link, as one chunk. False where there is no room.
    pub fn push(&mut self, elink: ELink, bytes: &[u8]) -> bool {
        if self.blocks.len() + bytes.len() > self.most_bytes {
            return false;
        }
        let encoder = self.encoders.entry(elink).or_insert_with(|| Encoder::new(self.format, elink));
        encoder.chunk(bytes, Status::GOOD, &mut self.blocks);
        true
    }

    /// The blocks so far; those that are not full are filled up, for a command must not wait for the next one.
    pub fn blocks(&mut self) -> &[u8] {
        for encoder in self.encoders.values_mut() {
            encoder.flush(&mut self.blocks);
        }
        &self.blocks
    }

    /// The card has taken the first so many bytes.
    pub fn taken(&mut self, bytes: usize) {
        self.blocks.drain(..bytes.min(self.blocks.len()));
    }
}
