//! FELIX blocks: no bytes panic, no walk leaves its block, and what is decoded comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::felix::{BlockFormat, Decoded, Decoder, Encoder, HEADER_BYTES, Status, Trailer, walk};

fuzz_target!(|bytes: &[u8]| {
    for format in [Some(BlockFormat::NARROW), Some(BlockFormat::WIDE), BlockFormat::sized(4), BlockFormat::detect(bytes)]
    {
        let Some(format) = format else { continue };
        let size = format.block_bytes();
        // A block that ends in nulls: the fuzzer's bytes are small.
        let mut blocks = bytes.to_vec();
        blocks.resize(bytes.len().next_multiple_of(size), 0);
        // Every second block has the right symbol: the fuzzer need not guess it.
        for block in blocks.chunks_mut(size).step_by(2) {
            block[2..HEADER_BYTES].copy_from_slice(&format.symbol().to_le_bytes());
        }
        blocks.chunks(size).for_each(|block| check_walk(block, format));
        decode_and_encode(&blocks, format);
        decode_and_encode(bytes, format);
    }
});

fn check_walk(block: &[u8], format: BlockFormat) {
    let mut sub_chunks = Vec::new();
    if walk(block, format, &mut sub_chunks).is_ok() {
        let mut at = HEADER_BYTES;
        for sub_chunk in &sub_chunks {
            assert_eq!(sub_chunk.offset as usize, at);
            let data = Trailer(sub_chunk.trailer).data_bytes() as usize;
            at += data.next_multiple_of(format.trailer_bytes()) + format.trailer_bytes();
        }
        assert_eq!(at, block.len());
    }
    assert!(sub_chunks.len() <= format.most_sub_chunks());
}

/// The chunks of good streams of one e-link each, encoded again, are the same chunks.
fn decode_and_encode(blocks: &[u8], format: BlockFormat) {
    let mut decoded = Vec::new();
    Decoder::new(format, 1 << 20).blocks(blocks, &mut |one| decoded.push(one));
    decoded.retain(|one| matches!(one, Decoded::Chunk { .. } | Decoded::Signal { .. }));
    let Some(Decoded::Chunk { elink, .. } | Decoded::Signal { elink, .. }) = decoded.first() else { return };
    let elink = *elink;
    let (mut encoder, mut out) = (Encoder::new(format, elink), Vec::new());
    for one in &mut decoded {
        match one {
            Decoded::Chunk { elink: of, bytes, status } => {
                *of = elink;
                if status.has(Status::TIMED_OUT) {
                    *status = status.and(Status::TRUNCATED);
                }
                encoder.chunk(bytes, *status, &mut out);
            }
            Decoded::Signal { elink: of, signal } => {
                *of = elink;
                encoder.out_of_band(*signal, &mut out);
            }
            Decoded::ChunkError { .. } | Decoded::BlockError(_) => unreachable!("only good ones were kept"),
        }
    }
    encoder.flush(&mut out);
    let mut again = Vec::new();
    Decoder::new(format, 1 << 20).blocks(&out, &mut |one| again.push(one));
    assert_eq!(again, decoded);
}
