use super::*;
use proptest::prelude::*;
use ropewalk_terms::SourceId;
use ropewalk_wire::{fed, ferol, generic, message};

/// Tells the framer the stream in pieces of these lengths, over and over; where messages ended.
fn ends(framer: &mut dyn Framer, stream: &[u8], cuts: &[usize]) -> Result<Vec<usize>, FramingError> {
    let (mut ends, mut at) = (Vec::new(), 0);
    for &cut in cuts.iter().cycle() {
        let mut piece = &stream[at..stream.len().min(at + cut)];
        if piece.is_empty() {
            break;
        }
        while let Some(end) = framer.boundary(piece)? {
            assert!((1..=piece.len()).contains(&end));
            at += end;
            piece = &piece[end..];
            ends.push(at);
            if piece.is_empty() {
                break;
            }
        }
        at += piece.len();
    }
    Ok(ends)
}

/// The stream of all messages, and where each ends.
fn joined(messages: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let mut stream = Vec::new();
    let ends = messages.iter().map(|message| {
        stream.extend_from_slice(message);
        stream.len()
    });
    let ends = ends.collect();
    (stream, ends)
}

fn any_cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..200, 1..8)
}

fn field(header: usize, at: usize, width: usize, is_big_endian: bool, counts_header: bool) -> LengthField {
    LengthField { header, at, width, is_big_endian, unit: 1, counts_header }
}

proptest! {
    #[test]
    fn a_length_in_front_is_found_wherever_it_stands(
        lengths in prop::collection::vec(0_usize..300, 1..20),
        header in 2_usize..20,
        is_big_endian: bool,
        counts_header: bool,
        cuts in any_cuts(),
    ) {
        let at = header - 2;
        let messages: Vec<Vec<u8>> = lengths.iter().map(|&length| {
            let mut message = vec![0xee; header + length];
            let stated = (if counts_header { header + length } else { length }) as u16;
            message[at..].first_chunk_mut::<2>().expect("two bytes")
                .copy_from_slice(&if is_big_endian { stated.to_be_bytes() } else { stated.to_le_bytes() });
            message
        }).collect();
        let (stream, expected) = joined(&messages);
        let mut framer = field(header, at, 2, is_big_endian, counts_header).framer(1000);
        prop_assert_eq!(ends(&mut framer, &stream, &cuts), Ok(expected));
    }

    #[test]
    fn messages_of_one_size_end_at_its_multiples(size in 1_usize..300, count in 1_usize..20, cuts in any_cuts()) {
        let (stream, expected) = joined(&vec![vec![1; size]; count]);
        prop_assert_eq!(ends(&mut FixedSize::new(size), &stream, &cuts), Ok(expected));
    }

    #[test]
    fn a_fragment_in_ferol_blocks_is_one_message(
        words in prop::collection::vec(0_usize..1500, 1..6),
        cuts in any_cuts(),
    ) {
        let messages: Vec<Vec<u8>> = words.iter().map(|&words| {
            let (mut fragment, mut blocks) = (Vec::new(), Vec::new());
            let header = fed::Header::new(SourceId(843), 7, 1);
            fed::encode(header, &vec![5; 8 * words], fed::Trailer::new(), &mut fragment).expect("an allowed length");
            ferol::encode_fragment(&fragment, SourceId(843), 7, &mut blocks);
            blocks
        }).collect();
        let (stream, expected) = joined(&messages);
        prop_assert_eq!(ends(&mut Ferol::framer(1 << 20), &stream, &cuts), Ok(expected));
    }

    #[test]
    fn whatever_comes_is_cut_or_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), cuts in any_cuts()) {
        let mut framers: Vec<Box<dyn Framer>> = vec![
            Box::new(FixedSize::new(0)),
            Box::new(LengthField::U32.framer(1 << 20)),
            Box::new(field(64, 60, 8, true, true).framer(u64::MAX)),
            Box::new(I2o::framer()),
            Box::new(Ferol::framer(1 << 20)),
            Box::new(Generic::framer(1 << 20)),
            Box::new(NodeMessages::framer(1 << 20)),
        ];
        for framer in &mut framers {
            let _ = ends(framer.as_mut(), &bytes, &cuts);
        }
    }
}

#[test]
fn a_generic_stream_begins_with_its_hello() {
    let source = SourceId(17);
    let hello = generic::Hello::new(source, generic::HelloFlags::default(), "telescope").expect("a good name");
    let mut fragment = Vec::new();
    let flags = generic::Flags::default();
    let header = generic::Header { source, flags, event_number: 1, timestamp: 0, payload_bytes: 100 };
    generic::encode(&header, &[9; 100], &mut fragment).expect("an allowed length");
    let (stream, expected) = joined(&[hello.to_bytes().to_vec(), fragment.clone(), fragment]);
    for cut in 1..stream.len() {
        assert_eq!(ends(&mut Generic::framer(1000), &stream, &[cut]).as_ref(), Ok(&expected));
    }
}

#[test]
fn i2o_frames_state_their_size_in_words() {
    let frame = |words: u16| [[1, 0].as_slice(), &words.to_le_bytes(), &vec![3; 4 * usize::from(words) - 4]].concat();
    let (stream, expected) = joined(&[frame(1), frame(200), frame(2)]);
    assert_eq!(ends(&mut I2o::framer(), &stream, &[3, 50]), Ok(expected));
    let nothing = [1, 0, 0, 0];
    assert_eq!(
        I2o::framer().boundary(&nothing),
        Err(FramingError::Malformed("it states fewer bytes than its header has"))
    );
}

#[test]
fn a_node_message_ends_with_its_body() {
    use ropewalk_terms::{Epoch, Incarnation, NodeId, RunNumber};
    let message = |body: u32| {
        let (kind, sender) = (message::Kind::Welcome, NodeId::builder(3));
        let (run, epoch, incarnation) = (RunNumber(1), Epoch(1), Incarnation(1));
        let header = message::Header { kind, body, run, epoch, sender, incarnation };
        [header.to_bytes().as_slice(), &vec![0; body as usize]].concat()
    };
    let (stream, expected) = joined(&[message(0), message(77), message(0)]);
    assert_eq!(ends(&mut NodeMessages::framer(1000), &stream, &[31]), Ok(expected));
}

#[test]
fn a_message_that_claims_too_much_is_refused_by_its_header() {
    let mut framer = LengthField::U32.framer(1000);
    assert_eq!(framer.boundary(&[0xff; 4]), Err(FramingError::TooLong { bytes: (1 << 32) + 3, most: 1000 }));
}
