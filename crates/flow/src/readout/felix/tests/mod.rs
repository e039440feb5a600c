//! The machine against the plain decoder of `wire`, and what only the machine has: batches, positions, room.

mod card;
mod heads;
mod listener;
mod machine;
mod retention;

use super::*;
use ropewalk_wire::felix::{
    BlockFormat, ChunkError, Decoded, Decoder, ELink, Encoder, Status, SubChunkType, Trailer, Walker,
};

const ELINK: ELink = ELink::of(1, 2, 3);

fn formats() -> [BlockFormat; 3] {
    [BlockFormat::NARROW, BlockFormat::WIDE, BlockFormat::sized(4).expect("a size")]
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + length) as u8).collect()
}

fn config(format: BlockFormat) -> ChunkConfig {
    ChunkConfig { blocks_per_batch: 20, most_chunk_bytes: 1 << 20, ..ChunkConfig::new(format) }
}

/// Chunks and signals as the plain decoder tells them: `stream` is all that the card wrote.
fn of_batch(batch: &ChunkBatch, stream: &[u8]) -> Vec<Decoded> {
    let bytes = |piece: &Piece| stream[piece.position as usize..][..piece.length as usize].to_vec();
    let decoded = |(elink, chunk): (ELink, Chunk<'_>)| match chunk {
        Chunk::Short { piece, status } => Decoded::Chunk { elink, bytes: bytes(&piece), status },
        Chunk::Scattered { pieces, bytes: length, status } => {
            let bytes: Vec<u8> = pieces.iter().flat_map(bytes).collect();
            assert_eq!(bytes.len() as u64, length);
            assert!(pieces.iter().all(|piece| piece.position >= batch.needs_from()));
            Decoded::Chunk { elink, bytes, status }
        }
        Chunk::Signal(signal) => Decoded::Signal { elink, signal },
    };
    batch.chunks().map(decoded).collect()
}

/// All batches of a stream.
fn decode(decoder: &mut ChunkDecoder, stream: &[u8]) -> Vec<Decoded> {
    let (mut out, mut position) = (Vec::new(), 0);
    loop {
        let taken = decoder.decode(&stream[position..], position as u64);
        if taken == 0 {
            return out;
        }
        position += taken;
        out.extend(of_batch(decoder.batch(), stream));
    }
}

/// What the plain decoder says, and how often it gave what up.
fn plainly(format: BlockFormat, stream: &[u8]) -> (Vec<Decoded>, ChunkReport) {
    let (mut out, mut report) = (Vec::new(), ChunkReport::default());
    let mut decoder = Decoder::new(format, 1 << 20);
    for block in stream.chunks_exact(format.block_bytes()) {
        report.blocks += 1;
        decoder.block(block, &mut |one| match one {
            Decoded::ChunkError { error, .. } => report.chunk_errors[error as usize] += 1,
            Decoded::BlockError(error) => report.block_errors[error as usize - 1] += 1,
            Decoded::Chunk { status, .. } => {
                report.chunks += 1;
                (0..5).for_each(|bit| report.flagged[bit] += u64::from(status.0 >> bit & 1));
                out.push(one);
            }
            Decoded::Signal { .. } => {
                report.signals += 1;
                out.push(one);
            }
        });
    }
    (out, report)
}
