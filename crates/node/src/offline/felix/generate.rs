//! The blocks of an emulated card, into a file or a pipe.

use crate::offline::OfflineError;
use ropewalk_flow::source::felix::{EmulatedCard, EmulatedCardConfig, FAULTS};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Blocks are written in pieces of about so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What is to be written.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The card.
    pub card: EmulatedCardConfig,
    /// Ends when every e-link has said so many chunks.
    pub chunks: Option<u64>,
    /// Ends when so many bytes are written.
    pub bytes: Option<u64>,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Generated {
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Chunks of each e-link.
    pub chunks_per_elink: u64,
    /// Bytes of all chunks, those with faults included.
    pub payload_bytes: u64,
    /// Faults that struck, by their names.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Writes blocks to `out`.
///
/// # Errors
/// Where `out` takes nothing more.
pub fn generate(options: &GenerateOptions, out: &mut dyn Write) -> Result<Generated, OfflineError> {
    let mut card = EmulatedCard::new(options.card.clone());
    let (mut piece, mut bytes) = (Vec::with_capacity(2 * PIECE_BYTES), 0);
    let mut write = |piece: &mut Vec<u8>| -> Result<u64, OfflineError> {
        out.write_all(piece)?;
        let written = piece.len() as u64;
        piece.clear();
        Ok(written)
    };
    let is_enough = |card: &EmulatedCard, bytes: u64| {
        options.chunks.is_some_and(|chunks| card.turns() >= chunks) || options.bytes.is_some_and(|most| bytes >= most)
    };
    while !is_enough(&card, bytes + piece.len() as u64) {
        card.turn(&mut piece);
        if piece.len() >= PIECE_BYTES {
            bytes += write(&mut piece)?;
        }
    }
    card.finish(&mut piece);
    bytes += write(&mut piece)?;
    let injected = card.injected_by_all();
    let struck = FAULTS.iter().map(|&fault| (fault.name(), injected.struck(fault)));
    Ok(Generated {
        bytes,
        chunks_per_elink: card.turns(),
        payload_bytes: injected.bytes,
        faults: struck.filter(|&(_, count)| count > 0).collect(),
    })
}
