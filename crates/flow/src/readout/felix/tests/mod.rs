//! The decoder compared with the plain decoder of `wire`, and its own features: batches, positions, room.

mod card;

use super::*;
use proptest::prelude::*;
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

/// Returns chunks and signals in the form of the plain decoder; `stream` is the whole output of the card.
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

/// Decodes all batches of a stream.
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

/// Returns the output of the plain decoder, and the counts of chunks that it gave up.
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

/// The output of an e-link: a chunk, a signal, a time-out, a null, or a piece that may be invalid.
#[derive(Clone, Debug)]
enum Said {
    Chunk(usize, u8),
    Signal(u32),
    TimeOut,
    Null,
    Piece(u8, usize),
    Skip(u8),
}

fn any_said() -> impl Strategy<Value = Said> {
    prop_oneof![
        20 => (0..150_usize, prop_oneof![9 => Just(0), 1 => 0..32_u8]).prop_map(|(length, status)| Said::Chunk(length, status)),
        4 => (0..4000_usize, 0..32_u8).prop_map(|(length, status)| Said::Chunk(length, status)),
        1 => any::<u32>().prop_map(Said::Signal),
        1 => Just(Said::TimeOut),
        1 => Just(Said::Null),
        1 => (1..8_u8, 0..300_usize).prop_map(|(kind, length)| Said::Piece(kind, length)),
        1 => (0..32_u8).prop_map(Said::Skip),
    ]
}

/// Returns the blocks of a few e-links.
fn stream(format: BlockFormat, said: &[(u16, Said)]) -> Vec<u8> {
    let mut encoders: Vec<_> = (0..5).map(|elink| Encoder::new(format, ELink::new(elink * 400))).collect();
    let mut out = Vec::new();
    for (elink, said) in said {
        let encoder = &mut encoders[usize::from(*elink)];
        match *said {
            Said::Chunk(length, status) => encoder.chunk(&payload(length), Status(status), &mut out),
            Said::Signal(signal) => encoder.out_of_band(signal, &mut out),
            Said::TimeOut => encoder.time_out(&mut out),
            Said::Null => encoder.null(&mut out),
            Said::Piece(kind, length) => {
                let data = payload(if matches!(kind, 6 | 7) { 0 } else { length });
                let trailer = Trailer(u32::from(kind) << 29 | data.len() as u32);
                encoder.sub_chunk(trailer, &data, &mut out);
            }
            Said::Skip(sequence) => encoder.set_sequence(sequence),
        }
    }
    encoders.iter_mut().for_each(|encoder| encoder.flush(&mut out));
    out
}

proptest! {
    #[test]
    fn the_machine_says_what_the_plain_decoder_says(
        format in prop::sample::select(formats().to_vec()),
        said in prop::collection::vec((0..5_u16, any_said()), 0..300),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..6),
        blocks_per_batch in 1..100_usize,
    ) {
        let mut stream = stream(format, &said);
        let length = stream.len();
        for (place, bit) in flips.iter().filter(|_| length > 0) {
            stream[place.index(length)] ^= 1_u8 << bit;
        }
        let (expected, report) = plainly(format, &stream);
        for walker in Walker::all(format.layout()) {
            let mut decoder = ChunkDecoder::with_walker(ChunkConfig { blocks_per_batch, ..config(format) }, walker);
            prop_assert_eq!(&decode(&mut decoder, &stream), &expected);
            let found = *decoder.report();
            let scattered = found.scattered;
            prop_assert_eq!(ChunkReport { scattered: 0, blocks_missing: 0, ..found }, report);
            prop_assert!(scattered <= found.chunks);
            prop_assert_eq!(found.blocks_missing > 0, found.chunk_errors[ChunkError::SequenceGap as usize] > 0);
        }
    }
}

#[test]
fn chunks_of_one_piece_are_short_and_others_scattered() {
    for format in formats() {
        let (mut stream, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        (0..40).for_each(|_| encoder.chunk(&payload(70), Status::GOOD, &mut stream));
        encoder.chunk(&payload(9000), Status::CRC, &mut stream);
        encoder.flush(&mut stream);
        let mut decoder = ChunkDecoder::new(config(format));
        decode(&mut decoder, &stream);
        let report = decoder.report();
        assert_eq!((report.chunks, report.flagged[Status::CRC.0.trailing_zeros() as usize]), (41, 1));
        // Each block that the small chunks fill ends in a piece of one.
        let bytes = 70_usize.next_multiple_of(format.trailer_bytes()) + format.trailer_bytes();
        let split = 40 * bytes / (format.block_bytes() - 4);
        assert_eq!(report.scattered, split as u64 + 1);
        assert_eq!(decoder.oldest_open(), None);
    }
}

#[test]
fn a_run_names_block_sequence_and_elink() {
    let format = BlockFormat::NARROW;
    let (mut stream, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    encoder.set_sequence(30);
    (0..3).for_each(|_| encoder.chunk(&payload(1018), Status::GOOD, &mut stream));
    let mut decoder = ChunkDecoder::new(config(format));
    assert_eq!(decoder.decode(&stream, 1 << 40), 3 * 1024);
    let runs: Vec<_> =
        decoder.batch().runs().iter().map(|run| (run.block, run.sequence, run.elink, run.count)).collect();
    assert_eq!(runs, [(0, 30, ELINK, 1), (1, 31, ELINK, 1), (2, 0, ELINK, 1)]);
    let (_, chunk) = decoder.batch().chunks().nth(1).expect("three chunks");
    let piece = Piece { position: (1 << 40) + 1024 + 4, length: 1018 };
    assert_eq!(chunk, Chunk::Short { piece, status: Status::GOOD });
    assert_eq!((chunk.bytes(), decoder.batch().needs_from()), (1018, 1 << 40));
}

#[test]
fn a_chunk_that_began_in_an_earlier_batch_needs_its_blocks() {
    for format in formats() {
        let (mut stream, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        let size = format.block_bytes();
        encoder.chunk(&payload(10), Status::GOOD, &mut stream);
        encoder.chunk(&payload(5 * size), Status::GOOD, &mut stream);
        encoder.flush(&mut stream);
        let mut decoder = ChunkDecoder::new(ChunkConfig { blocks_per_batch: 2, ..config(format) });
        let begins = Some(4 + (10 + format.trailer_bytes()).next_multiple_of(format.trailer_bytes()) as u64);
        for batch in 0..2 {
            decoder.decode(&stream[batch * 2 * size..], (batch * 2 * size) as u64);
            assert_eq!(decoder.oldest_open(), begins);
            assert_eq!(decoder.batch().needs_from(), (batch * 2 * size) as u64);
        }
        decoder.decode(&stream[4 * size..], 4 * size as u64);
        assert_eq!(decoder.oldest_open(), None);
        assert_eq!(Some(decoder.batch().needs_from()), begins);
    }
}

#[test]
fn what_is_open_for_longest_is_given_up_first() {
    let format = BlockFormat::NARROW;
    let mut stream = Vec::new();
    let mut encoders: Vec<_> = (0..4).map(|elink| Encoder::new(format, ELink::new(elink))).collect();
    for index in [2, 0, 3, 1] {
        encoders[index].chunk(&payload(1500), Status::GOOD, &mut stream);
    }
    let mut decoder = ChunkDecoder::new(config(format));
    decode(&mut decoder, &stream);
    assert_eq!(decoder.oldest_open(), Some(4));
    assert_eq!(decoder.give_up_before(4), 0);
    assert_eq!(decoder.give_up_before(2 * 1024), 2);
    assert_eq!(decoder.oldest_open(), Some(2 * 1024 + 4));
    // Their ends are skipped. The other two chunks are complete, and so is the next one.
    let mut rest = Vec::new();
    for encoder in &mut encoders {
        encoder.chunk(&payload(3), Status::GOOD, &mut rest);
        encoder.flush(&mut rest);
    }
    stream.extend_from_slice(&rest);
    decoder.decode(&stream[4 * 1024..], 4 * 1024);
    let lengths: Vec<_> = decoder.batch().chunks().map(|(elink, chunk)| (elink.number(), chunk.bytes())).collect();
    assert_eq!(lengths, [(0, 3), (1, 1500), (1, 3), (2, 3), (3, 1500), (3, 3)]);
    assert_eq!(decoder.report().chunk_errors[ChunkError::Stalled as usize], 2);
    assert_eq!(decoder.oldest_open(), None);
}

#[test]
fn a_chunk_without_room_for_its_pieces_is_given_up_and_the_room_comes_back() {
    let format = BlockFormat::NARROW;
    let (mut stream, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    let lengths = [9000, 2500, 6000, 1500];
    lengths.iter().for_each(|&length| encoder.chunk(&payload(length), Status::GOOD, &mut stream));
    encoder.flush(&mut stream);
    let mut decoder = ChunkDecoder::new(ChunkConfig { open_pieces: 2, ..config(format) });
    let decoded = decode(&mut decoder, &stream);
    let chunk = |length| Decoded::Chunk { elink: ELINK, bytes: payload(length), status: Status::GOOD };
    assert_eq!(decoded, [chunk(2500), chunk(1500)]);
    assert_eq!(decoder.report().chunk_errors[ChunkError::Oversize as usize], 2);
    // Another e-link occupies all room: a chunk of two pieces needs none.
    let (mut stream, mut other) = (Vec::new(), Encoder::new(format, ELink::new(1)));
    for kind in [SubChunkType::First, SubChunkType::Middle] {
        other.sub_chunk(Trailer::new(kind, 1, Status::GOOD), &[1], &mut stream);
    }
    other.flush(&mut stream);
    let mut encoder = Encoder::new(format, ELINK);
    lengths[1..].iter().for_each(|&length| encoder.chunk(&payload(length), Status::GOOD, &mut stream));
    encoder.flush(&mut stream);
    let mut decoder = ChunkDecoder::new(ChunkConfig { open_pieces: 1, ..config(format) });
    let decoded = decode(&mut decoder, &stream);
    assert_eq!(decoded, [chunk(1500)]);
}

#[test]
fn the_oldest_open_chunk_is_known_after_any_others_close() {
    let mut links = super::decoder::Links::new(0, 1);
    let piece = |position| Piece { position, length: 1 };
    // Two e-links that share a path on other optical links, the first e-link and the last one.
    let elinks = [0, 64, 128, 2047].map(ELink::new);
    let mut pieces = [Piece::default(); 2];
    for (position, elink) in (1..).zip(elinks) {
        links.open(elink, piece(position));
    }
    assert_eq!(links.oldest(), Some((elinks[0], 1)));
    assert_eq!((links.close(elinks[1], &mut pieces), pieces[0]), (1, piece(2)));
    assert_eq!(links.close_and_open(elinks[0], piece(5), &mut pieces), 1);
    assert_eq!((pieces[0], links.oldest()), (piece(1), Some((elinks[2], 3))));
    links.forget(elinks[2]);
    links.forget(elinks[2]);
    assert_eq!(links.oldest(), Some((elinks[3], 4)));
    assert_eq!(links.close(elinks[3], &mut pieces), 1);
    assert_eq!(links.oldest(), Some((elinks[0], 5)));
    assert_eq!((links.close(elinks[0], &mut pieces), links.oldest()), (1, None));
    assert_eq!(links.close(elinks[0], &mut pieces), 0);
}

#[test]
fn no_two_e_links_share_a_place() {
    let mut links = super::decoder::Links::new(0, 1);
    (0..2048).for_each(|number| links.open(ELink::new(number), piece_at(number)));
    for number in 0..2048 {
        let elink = ELink::new(number);
        assert_eq!(links.oldest(), Some((elink, piece_at(number).position)));
        links.forget(elink);
    }
    assert_eq!(links.oldest(), None);
}

fn piece_at(number: u16) -> Piece {
    Piece { position: u64::from(number) + 7, length: 1 }
}

#[test]
fn a_batch_has_room_for_the_most_that_blocks_can_bring() {
    let format = BlockFormat::NARROW;
    let (mut stream, mut last) = (Vec::new(), Vec::new());
    // Chunks that were open before, as many pieces as there is room for, and then every pair of sub-chunks is a chunk.
    for elink in 0..2 {
        let mut encoder = Encoder::new(format, ELink::new(elink));
        for kind in [SubChunkType::First, SubChunkType::Middle, SubChunkType::Middle] {
            encoder.sub_chunk(Trailer::new(kind, 0, Status::GOOD), &[], &mut stream);
        }
        encoder.flush(&mut stream);
        for _ in 0..255 {
            for kind in [SubChunkType::Last, SubChunkType::First] {
                encoder.sub_chunk(Trailer::new(kind, 0, Status::GOOD), &[], &mut last);
            }
        }
        encoder.flush(&mut last);
    }
    assert_eq!((stream.len(), last.len()), (2 * 1024, 2 * 1024));
    let config = ChunkConfig { blocks_per_batch: 2, open_pieces: 4, ..config(format) };
    for walker in Walker::all(format.layout()) {
        let mut decoder = ChunkDecoder::with_walker(config, walker);
        assert_eq!(decoder.decode(&stream, 0), 2 * 1024);
        assert_eq!(decoder.decode(&last, 2 * 1024), 2 * 1024);
        assert_eq!((decoder.report().chunks, decoder.report().scattered), (2 * 255, 2 * 255));
        assert_eq!(decoder.batch().chunks().count(), 2 * 255);
    }
}

#[test]
fn bytes_that_are_no_whole_block_stay() {
    let format = BlockFormat::WIDE;
    let (mut stream, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    (0..5).for_each(|_| encoder.chunk(&payload(1000), Status::GOOD, &mut stream));
    let mut decoder = ChunkDecoder::new(config(format));
    assert_eq!(decoder.decode(&stream[..1023], 0), 0);
    assert_eq!(decoder.batch().chunks().count(), 0);
    assert_eq!(decoder.decode(&stream[..2047], 0), 1024);
    assert_eq!(decoder.decode(&[], 1024), 0);
}
